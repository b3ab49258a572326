/* What a request of a client waits for while onced works on it: an operation, an answer of the ledger, the next moment
 * to say something. Everything is let go of when the request ends, whoever ends it: nobody is called back for a
 * request that is gone. */
#ifndef DOOR_MCP_WORK_H
#define DOOR_MCP_WORK_H

#include "door/mcp_parts.h"

struct mcp_query;
struct mcp_pulse;

/* Embedded first in what request->user points to; lives in the request's arena. */
struct mcp_work {
    struct waiter *waiter;   /* engine_call or engine_wait; NULL = none. Whoever gets the reply sets it to NULL first */
    struct mcp_query *query; /* of the ledger */
    struct mcp_pulse *pulse;
    unsigned beats; /* of mcp_work_progress so far */
};

/* Makes work the request's. cancel may be NULL: a cancelled request is only let go of. */
void mcp_work_begin(struct mcp_request *request, struct mcp_work *work, void (*cancel)(struct mcp_request *request));

/* What mcp_work_begin makes the request's release: for those that have more to let go of. */
void mcp_work_release(struct mcp_request *request);

/* One question to the ledger at a time: fill the request that this gives (zeroed; *arena outlives the request of the
 * client, texts that the ledger is to see go there), then submit. done is called once, at once or later, unless the
 * client's request ends first; what the ledger gave is valid until the next question or until the request's end. */
struct ledger_request *mcp_work_query(struct mcp_request *request, enum ledger_command command, struct arena **arena);
typedef void mcp_work_answered(struct mcp_request *request, struct ledger_request *answer);
void mcp_work_ask(struct mcp_request *request, mcp_work_answered *done);

/* Calls beat every interval_ms until the request ends or mcp_work_still. */
void mcp_work_every(struct mcp_request *request, int64_t interval_ms, void (*beat)(struct mcp_request *request));
void mcp_work_still(struct mcp_request *request);

/* Progress for a client that wants it: every few seconds, so that its clock starts anew. */
void mcp_work_progress(struct mcp_request *request);

/* ---- what the answers of tools have in common ---- */

/* How this client is to see an operation: as over REST (masked, withheld from other principals). op NULL: nothing of
 * others is shown. own_call: the answer of its own call, which is not masked. */
struct mcp_result_view mcp_view(struct mcp_request *request, const struct operation *op, const struct tool *tool,
                                bool own_call);
/* Answers with a reply of the engine, as a result or as an error, and says so to the transport when it delivers the
 * outcome of an operation of this principal. */
void mcp_answer_reply(struct mcp_request *request, const struct engine_reply *reply,
                      const struct mcp_result_view *view);
/* What the ledger could not tell: an error; not_found as a result that says so. */
void mcp_answer_ledger(struct mcp_request *request, const struct ledger_request *answer);
/* A tool of that name for this principal; NULL: answered with an error that suggests one. */
const struct tool *mcp_find_tool(struct mcp_request *request, struct str name);

#endif
