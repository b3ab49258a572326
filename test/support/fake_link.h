/* Stands in at link time for the MCP adapter below the door: servers that a test describes, links whose requests the
 * test sees and answers, questions that the test asks. */
#ifndef SUPPORT_FAKE_LINK_H
#define SUPPORT_FAKE_LINK_H

#include "adapter/mcp.h"

#define FAKE_SERVERS_MAX 8

struct mcp_server {
    const char *name, *prefix, *capabilities; /* JSON text */
    enum mcp_server_state state;
    enum mcp_era era;
    bool forward, per_client;
    /* seen */
    struct mcp_link *links;
    size_t link_count, opened;
    struct json *tree; /* capabilities */
};

struct mcp_link {
    struct mcp_link *next;
    struct mcp_server *server;
    const struct mcp_listener *listener;
    void *user;
    uint64_t session;
    char *capabilities, *client_info, *version;
    bool lost;
};

struct mcp_pending {
    struct mcp_pending *next;
    struct mcp_link *link;
    char *method, *params;
    mcp_done *done;
    void *user;
    bool cancelled, told;
};

struct mcp_question {
    struct mcp_question *next; /* of the hub, while it is open */
    struct mcp_link *link;
    bool open, withdrawn;
    int answers;
    char *result, *message;
    int64_t code;
};

struct mcp_hub {
    struct mcp_server *servers[FAKE_SERVERS_MAX];
    size_t server_count;
    struct mcp_pending *pendings;   /* newest first; also told ones */
    struct mcp_question *questions; /* that wait for an answer */
    size_t notified;
    char *last_notice, *last_notice_params;
    const struct mcp_listener *attempts;
    void *attempts_user;
    struct arena arena;
};
extern struct mcp_hub *fake_hub; /* the one that links belong to */

void fake_hub_init(struct mcp_hub *hub);
void fake_hub_release(struct mcp_hub *hub);
struct mcp_server *fake_server(struct mcp_hub *hub, const char *name, enum mcp_era era, const char *capabilities);
/* The oldest request to this server with this method that is not answered; NULL = none. */
struct mcp_pending *fake_find(struct mcp_server *server, const char *method);
size_t fake_waiting(const struct mcp_hub *hub);
void fake_result(struct mcp_pending *pending, const char *result);
void fake_error(struct mcp_pending *pending, int64_t code, const char *message, const char *data);
void fake_end(struct mcp_pending *pending, enum mcp_end end, const char *text);
/* A notification or a request of the server; pending NULL: about nothing. */
void fake_notify(struct mcp_link *link, struct mcp_pending *pending, const char *method, const char *params);
void fake_ask(struct mcp_link *link, struct mcp_pending *pending, struct mcp_question *question, const char *method,
              const char *params);
void fake_withdraw(struct mcp_link *link, struct mcp_question *question);
/* Requests are told, questions withdrawn, then the link's owner. */
void fake_lose(struct mcp_link *link);
void fake_question_release(struct mcp_question *question);

#endif
