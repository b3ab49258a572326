/* Stands in for what is behind the MCP door's dispatch (tools, downstream servers) at link time, so that transports can
 * be tested without: the test says what calls do. Link before the door's library. */
#ifndef SUPPORT_FAKE_TOOLS_H
#define SUPPORT_FAKE_TOOLS_H

#include "door/mcp_parts.h"

#define FAKE_HELD_MAX 4096

/* tools/call by the tool's name:
 *   now       answered at once, with the arguments as "echo"
 *   hold      kept until the test answers
 *   progress  tells progress, then kept
 *   deliver   answered at once with `operation` as the one delivered
 *   incapable refused with -32021
 * anything else is an unknown tool. */
struct fake_tools {
    struct mcp_request *held[FAKE_HELD_MAX]; /* oldest first */
    size_t held_count;
    bool away;                      /* what was told last about a held call */
    int calls, cancelled, released; /* released counts those that ended without our answer too */
    struct operation operation;
    struct mcp_facts facts; /* of the last call, in the arena */
    struct arena arena;
    char principal[64], tenant[64];
    enum mcp_era era;
};

void fake_tools_init(struct fake_tools *fake); /* one at a time in a process */
void fake_tools_release(struct fake_tools *fake);
/* Answers the oldest held call. False: there is none. delivers: with `operation` as the one delivered. */
bool fake_tools_answer(struct fake_tools *fake, struct str result, bool delivers);
/* A notification on the stream of the oldest held call. */
bool fake_tools_tell(struct fake_tools *fake, struct str params);

#endif
