/* What a server's answer to tools/call means for an operation (design 5.3, 5.4, 6): pure but for jq. */
#ifndef ADAPTER_MCP_ANSWER_H
#define ADAPTER_MCP_ANSWER_H

#include "adapter/mcp_section.h"

#define MCP_HEADER_MISMATCH    (-32020)
#define MCP_MISSING_CAPABILITY (-32021)
#define MCP_ELICITATION_FIRST  (-32042) /* 2025-11-25: a URL is to be visited before the call is begun */

/* What is asked after the call's arguments are gone. */
struct mcp_judge {
    const struct mcp_tool *tool;
    enum attempt_kind kind;
    const struct http_expected *expected; /* what `verify` says, filled in */
    size_t expected_count;
    bool continued; /* an earlier request of this attempt was answered with questions: it may have done something */
    struct arena *arena; /* texts of the answer that are not borrowed */
};

/* Fills *answer. It borrows from outcome and arena. The result has the form of the registry's tools: without the modern
 * envelope's resultType. */
void mcp_judge(const struct mcp_judge *judge, const struct mcp_outcome *outcome, struct adapter_answer *answer);

/* An end that is no answer of the server. Where the request was sent, never "not sent". */
void mcp_judge_failure(const struct mcp_judge *judge, enum outcome outcome, const char *detail,
                       struct adapter_answer *answer);

#endif
