/* Approval by the user of an MCP client (`approval.mcp: elicit` of a tool): a form at the client that can show one
 * (elicitation), answered by whoever sits there.
 *
 *   legacy   the call waits, its client is asked; the answer decides, and the call goes on
 *   modern   the call is answered with input_required; the round that brings the answer decides and goes on. Nothing
 *            is kept meanwhile: requestState says what was asked, under a MAC
 *
 * An accepted form is one decision, by "PRINCIPAL/user"; a declined or cancelled one is none at all. That this is
 * another person than the calling agent is so by name only: what the client does with the form nobody here can see.
 * Only the client of the principal that called is asked. */
#ifndef DOOR_MCP_APPROVE_H
#define DOOR_MCP_APPROVE_H

#include "door/mcp_parts.h"

#define MCP_APPROVE_ROUNDS_MAX     3    /* questions within one call: the policy may change under the first */
#define MCP_APPROVE_SHOW_BYTES_MAX 8000 /* of arguments in a form; who cannot be shown all is not asked */

struct mcp_approving;

/* Embedded in what works on the call. */
struct mcp_approve {
    struct mcp_approving *open; /* a question or a decision is under way; NULL = none */
    char operation[OPERATION_ID_SIZE];
    unsigned rounds;
    bool decided; /* the form was accepted, and nobody else is waited for */
    bool again;   /* what was shown is not what stands any more */
    /* What became of it, told once unless let go of: see the operation for the rest. */
    void (*done)(struct mcp_request *request);
};

/* Whether this client is to be asked about the operation. */
bool mcp_approve_wanted(const struct mcp_request *request, const struct operation *op, const struct tool *tool,
                        const struct mcp_approve *approve);
/* Asks. true: done follows (legacy), or the request has been answered (modern). false: go on as without. */
bool mcp_approve_ask(struct mcp_request *request, struct mcp_approve *approve, const struct operation *op,
                     const struct tool *tool);
/* Before the request goes, or when the matter is settled: the client is told that its answer is not needed. */
void mcp_approve_let_go(struct mcp_request *request, struct mcp_approve *approve);

/* Whether the request brings the answer to such a question (modern), or says so. */
bool mcp_approve_is_round(const struct mcp_request *request);
/* Reads it. false: the request was refused. */
bool mcp_approve_read(struct mcp_request *request, struct mcp_approve *approve);
/* Decides as that answer says; done follows. */
void mcp_approve_go_on(struct mcp_request *request, struct mcp_approve *approve);

#endif
