/* Stands in for the working half of the MCP door at link time: what is called, passed through, built in and kept as
 * tasks. Sessions, dispatch and lists (mcp_session.c, mcp_rpc.c, mcp_ask.c, mcp_seen.c, mcp_list.c) are the real ones.
 */
#ifndef SUPPORT_FAKE_WORK_H
#define SUPPORT_FAKE_WORK_H

#include "door/mcp_parts.h"

#define FAKE_HELD_MAX     1024
#define PLAY_MESSAGES_MAX 16

/* One per program, zeroed by fake_work_reset. */
struct fake_work {
    /* played */
    bool hold;             /* tools/call and the like are kept until the test answers them; else answered at once */
    bool fail;             /* … with the error -32603 */
    const char *offers[8]; /* capabilities of the servers behind; ends with NULL */
    bool cancel_answers;   /* a request that is cancelled is answered by its worker */
    const char *hidden;    /* mcp_tool_key_argument */
    bool has_server;       /* one server with instructions */
    bool tasks_possible;
    /* seen */
    struct mcp_request *held[FAKE_HELD_MAX]; /* in the order that they came; NULL once it is gone */
    size_t held_count, held_ever;
    size_t handled, released, cancels, notices, sessions_ended, calls_ended, lists_changed, configured, closed;
    char last_method[RPC_METHOD_BYTES_MAX + 1], last_notice[RPC_METHOD_BYTES_MAX + 1], last_changed[32];
};
extern struct fake_work fake_work;

void fake_work_reset(void);
/* The oldest request that is still held; NULL = none. */
struct mcp_request *fake_work_oldest(void);

/* ---- a client's end ---- */

/* What came on the sink of one request. Texts are copies. */
struct play_client {
    struct mcp_sink sink;              /* first */
    char *messages[PLAY_MESSAGES_MAX]; /* the first ones */
    size_t message_count;              /* all */
    char *final;                       /* NULL = none yet */
    int final_count, drop_count, delivers_count, http_status;
    int after_final; /* messages that came when it was over: a mistake */
    char delivered[OPERATION_ID_SIZE];
    struct mcp_session *ends; /* is ended within the final message, as transports of ephemeral sessions do */
};
void play_client_init(struct play_client *client);
void play_client_release(struct play_client *client);
/* Over, one way or another: nothing may come any more. */
bool play_client_over(const struct play_client *client);

#endif
