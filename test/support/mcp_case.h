/* A hub on a loop of its own, with servers as the test names them: what tests of MCP links share. */
#ifndef SUPPORT_MCP_CASE_H
#define SUPPORT_MCP_CASE_H

#include "adapter/mcp_parts.h"

/* Everything about one test. */
struct mcp_case {
    uv_loop_t loop;
    struct mcp_hub *hub;
    struct arena arena;
    struct registry *registry;
    unsigned catalog_changes;
    bool closed;
    uv_timer_t ticker; /* so that waiting looks at its condition now and then */
};

void mcp_case_begin(struct mcp_case *mcp); /* with a quicker pace (mcp_pace) */
/* Closes hub and loop; everything must have gone. */
void mcp_case_end(struct mcp_case *mcp);

/* Names the servers: pairs of a name and its provider section ({"mcp": {...}}), ending with NULL. In a section
 * SERVER stands for the scripted server's path, and ' for ". */
void mcp_case_apply(struct mcp_case *mcp, ...) __attribute__((sentinel));
struct mcp_server *mcp_case_server(struct mcp_case *mcp, const char *name);

/* Turns the loop until the condition holds. False: it did not within 10 s. */
bool mcp_case_wait(struct mcp_case *mcp, bool (*holds)(void *user), void *user);
bool mcp_case_wait_state(struct mcp_case *mcp, const char *name, enum mcp_server_state state);
bool mcp_case_wait_settled(struct mcp_case *mcp);
void mcp_case_turn(struct mcp_case *mcp, int64_t ms); /* for so long */

/* A request and how it ended; texts are in the case's arena. */
struct mcp_reply {
    struct mcp_case *mcp;
    unsigned count; /* how often it was told */
    enum mcp_end end;
    bool sent;
    const char *text;   /* of the outcome, "" = none */
    const char *result; /* JSON text, NULL = none */
    int64_t code;       /* of an error */
    const char *words;  /* text of the first content block of a tool's result, NULL = none */
};
/* params with ' for ". */
struct mcp_pending *mcp_case_request(struct mcp_case *mcp, struct mcp_link *link, const char *method,
                                     const char *params, int64_t timeout_ms, struct mcp_reply *reply);
/* tools/call of the scripted server; waits for its end. arguments may be NULL. */
void mcp_case_call(struct mcp_case *mcp, struct mcp_link *link, const char *tool, const char *arguments,
                   struct mcp_reply *reply);
bool mcp_case_wait_reply(struct mcp_case *mcp, struct mcp_reply *reply);

/* What a link's or the hub's listener heard. */
struct mcp_heard {
    struct mcp_case *mcp;
    unsigned notified, asked, withdrawn, lost;
    char last_method[RPC_METHOD_BYTES_MAX + 1];
    const char *last_params; /* JSON text */
    void *last_user;         /* related */
    struct adapter_origin last_origin;
    struct mcp_question *question; /* the last one, not answered yet */
    const char *answer;            /* JSON text that questions are answered with at once; NULL = kept */
    const char *why;               /* of lost */
};
extern const struct mcp_listener mcp_case_listener; /* user: struct mcp_heard */
struct mcp_link *mcp_case_open(struct mcp_case *mcp, const char *server, struct mcp_heard *heard,
                               const struct mcp_link_options *options);

#endif
