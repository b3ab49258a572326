/* The ids of a legacy session's requests with a digest of what was asked and, for a while, what was answered: the same
 * message again is the same call, another message under a former id is an error (docs/mcp.md). Bounded: the oldest ids
 * and answers are forgotten. */
#ifndef DOOR_MCP_SEEN_H
#define DOOR_MCP_SEEN_H

#include "base/digest.h"
#include "core/operation.h"

#define MCP_SEEN_IDS_MAX      256
#define MCP_SEEN_ANSWER_BYTES ((size_t)16 * 1024) /* longer answers are not kept */
#define MCP_SEEN_BYTES_MAX    ((size_t)64 * 1024) /* of all answers together */

/* The operation whose outcome an answer tells, for engine_delivered. */
struct mcp_delivery {
    char operation[OPERATION_ID_SIZE]; /* "" = none */
    enum key_source key_source;
    enum state state;
};

struct mcp_seen;

struct mcp_seen *mcp_seen_new(void);
void mcp_seen_free(struct mcp_seen *seen); /* NULL is fine */

enum mcp_seen_as {
    MCP_SEEN_NEVER, /* noted now */
    MCP_SEEN_SAME,  /* the same message; *answer is what it was answered, absent when that is not kept */
    MCP_SEEN_DIFFERENT
};
/* *answer is valid until the next call. */
enum mcp_seen_as mcp_seen_note(struct mcp_seen *seen, const char *id, const struct digest *digest, struct str *answer,
                               struct mcp_delivery *delivery);
/* Keeps the answer to a noted id, as long as there is room. */
void mcp_seen_answered(struct mcp_seen *seen, const char *id, struct str answer, const struct mcp_delivery *delivery);

#endif
