/* Requests of ours to legacy clients, and what they answer. */
#include "base/mem.h"
#include "door/mcp_parts.h"

#include <inttypes.h>
#include <stdlib.h>

struct mcp_outgoing {
    struct mcp_outgoing *next;
    char id[24];      /* decimal, which is its JSON text */
    uint64_t request; /* number of the request it belongs to, 0 = none */
    mcp_asked_fn *done;
    void *user;
};

/* On the stream of the request while that is open, else on the session's own. */
static bool transmit(struct mcp_session *session, struct mcp_request *request, struct str text)
{
    if (request && request->sink) {
        request->sink->ops->message(request->sink, text, false, 200);
        return true;
    }
    return session->send && session->send(session, session->send_user, text);
}

static size_t waiting(const struct mcp_session *session)
{
    size_t count = 0;
    for (const struct mcp_outgoing *out = session->outgoing; out; out = out->next)
        count++;
    return count;
}

bool mcp_ask(struct mcp_session *session, struct mcp_request *request, const char *method, struct str params,
             mcp_asked_fn *done, void *user, struct str *id)
{
    if (!session->initialized || waiting(session) >= MCP_ASKS_MAX)
        return false;
    struct mcp_outgoing *out = mem_zero(sizeof *out);
    snprintf(out->id, sizeof out->id, "%" PRIu64, ++session->door->next_number);
    out->request = request ? request->number : 0;
    out->done = done;
    out->user = user;
    struct buf text;
    buf_init(&text, 0);
    rpc_write_request(&text, str_of(out->id), method, params);
    bool sent = transmit(session, request, buf_str(&text));
    buf_release(&text);
    if (!sent) {
        free(out);
        return false;
    }
    out->next = session->outgoing;
    session->outgoing = out;
    *id = str_of(out->id);
    return true;
}

static struct mcp_outgoing *take(struct mcp_session *session, struct str id)
{
    for (struct mcp_outgoing **at = &session->outgoing; *at; at = &(*at)->next)
        if (str_is(id, (*at)->id)) {
            struct mcp_outgoing *out = *at;
            *at = out->next;
            return out;
        }
    return NULL;
}

void mcp_ask_withdraw(struct mcp_session *session, struct str id)
{
    struct mcp_outgoing *out = take(session, id);
    if (!out)
        return;
    struct buf params, text;
    buf_init(&params, 0);
    buf_init(&text, 0);
    buf_printf(&params, "{\"requestId\":%s,\"reason\":\"the answer is not needed any more\"}", out->id);
    rpc_write_notification(&text, "notifications/cancelled", buf_str(&params));
    transmit(session, mcp_request_by_number(session->door, session->number, out->request), buf_str(&text));
    buf_release(&text);
    buf_release(&params);
    free(out);
}

bool mcp_ask_answered(struct mcp_session *session, const struct rpc_message *message)
{
    struct mcp_outgoing *out = take(session, message->id);
    if (!out)
        return false;
    out->done(out->user, message);
    free(out);
    return true;
}

void mcp_asks_end(struct mcp_session *session)
{
    while (session->outgoing) {
        struct mcp_outgoing *out = session->outgoing;
        session->outgoing = out->next;
        out->done(out->user, NULL);
        free(out);
    }
}
