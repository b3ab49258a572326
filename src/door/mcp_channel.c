/* Channels: the way back to the client of one request.
 *
 *              final first                    ┌──────────────────────────► JSON answer, gone
 *   waiting ───┤
 *              message, or 0.75 s ─► open ─ final ─► (modern) gone, (legacy) parked: kept for a while
 *                                     │ client leaves
 *                                     ├─ modern: the request is cancelled, gone
 *                                     └─ legacy: parked ─ Last-Event-ID ─► open; too long: gone
 */
#include "base/mem.h"
#include "base/sse.h"
#include "door/mcp_http_parts.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>

#define EVENT_STREAM "text/event-stream"

/* ---- lists ---- */

static void leave_list(struct channel *channel)
{
    struct mcp_http *http = channel->http;
    if (!channel->at)
        return;
    if (http->waiting_end == &channel->next)
        http->waiting_end = channel->at;
    *channel->at = channel->next;
    if (channel->next)
        channel->next->at = channel->at;
    channel->next = NULL;
    channel->at = NULL;
}

static void enter_list(struct channel *channel, struct channel **list)
{
    leave_list(channel);
    channel->since_ms = mcp_http_now_ms(channel->http);
    channel->next = *list;
    channel->at = list;
    if (*list)
        (*list)->at = &channel->next;
    *list = channel;
}

static void enter_waiting(struct channel *channel)
{
    struct mcp_http *http = channel->http;
    channel->since_ms = mcp_http_now_ms(http);
    channel->at = http->waiting_end;
    *http->waiting_end = channel;
    http->waiting_end = &channel->next;
}

static void join_client(struct channel *channel, struct mcp_client *client)
{
    channel->client = client;
    channel->sibling = client->channels;
    channel->sibling_at = &client->channels;
    if (client->channels)
        client->channels->sibling_at = &channel->sibling;
    client->channels = channel;
}

static void free_kept(struct channel *channel)
{
    for (struct kept *kept = channel->kept, *next; kept; kept = next) {
        next = kept->next;
        free(kept);
    }
    channel->kept = NULL;
    channel->kept_end = &channel->kept;
    channel->kept_bytes = 0;
}

static void channel_free(struct channel *channel)
{
    assert(!channel->exchange);
    leave_list(channel);
    if (channel->client) {
        *channel->sibling_at = channel->sibling;
        if (channel->sibling)
            channel->sibling->sibling_at = channel->sibling_at;
    }
    free_kept(channel);
    free(channel);
}

/* ---- writing ---- */

static size_t pending_max(const struct mcp_http *http)
{
    return 2 * http->door->settings.stream_bytes_max + 4096; /* all that is kept may be sent at once, and as much new */
}

static void add_session_header(const struct channel *channel)
{
    const struct mcp_session *session = channel->client ? channel->client->session : NULL;
    if (session)
        exchange_add_header(channel->exchange, "Mcp-Session-Id",
                            arena_copy_text(&channel->exchange->arena, session->id));
}

/* Events have ids in the legacy era only: they are what a client comes back with. */
static bool has_ids(const struct channel *channel)
{
    return channel->client != NULL;
}

static struct str event_id(const struct channel *channel, uint64_t event, char text[48])
{
    if (!has_ids(channel))
        return STR_NONE;
    int n = snprintf(text, 48, "%" PRIu64 "-%" PRIu64, channel->number, event);
    return (struct str){text, (size_t)n};
}

static void write_bytes(struct channel *channel, struct str bytes)
{
    if (!channel->exchange)
        return;
    channel->since_ms = mcp_http_now_ms(channel->http);
    exchange_stream_write(channel->exchange, bytes);
}

/* The oldest go first: a client that comes back for one of them is told that it is too late. */
static void keep(struct channel *channel, uint64_t number, struct str bytes)
{
    size_t max = channel->http->door->settings.stream_bytes_max;
    struct kept *kept = mem_alloc(sizeof *kept + bytes.n);
    kept->next = NULL;
    kept->number = number;
    kept->n = bytes.n;
    memcpy(kept->bytes, bytes.p, bytes.n);
    *channel->kept_end = kept;
    channel->kept_end = &kept->next;
    channel->kept_bytes += bytes.n;
    while (channel->kept_bytes > max && channel->kept != kept) {
        struct kept *oldest = channel->kept;
        channel->kept = oldest->next;
        channel->kept_bytes -= oldest->n;
        channel->lost_before = oldest->number + 1;
        free(oldest);
    }
}

static void write_event(struct channel *channel, struct str message)
{
    struct buf *out = &channel->http->scratch;
    char text[48];
    uint64_t number = channel->next_event++;
    buf_reset(out);
    sse_write(out, STR("message"), event_id(channel, number, text), -1, message);
    if (has_ids(channel))
        keep(channel, number, buf_str(out));
    write_bytes(channel, buf_str(out));
}

/* Clients of the newest legacy revision learn an event id before anything can break; older ones cannot take an event
 * with empty data. */
static void prime(struct channel *channel)
{
    struct buf *out = &channel->http->scratch;
    char text[48];
    if (!channel->client || strcmp(channel->client->session->version, MCP_LEGACY_VERSION) != 0)
        return;
    buf_reset(out);
    sse_write(out, STR_NONE, event_id(channel, channel->next_event++, text), CHANNEL_RETRY_MS, STR(""));
    write_bytes(channel, buf_str(out));
}

/* ---- ends ---- */

/* The session that only this channel had ends with it. */
static void end_channel(struct channel *channel)
{
    struct mcp_session *session = channel->session;
    channel->session = NULL;
    channel_free(channel);
    if (!session)
        return;
    session->ended = NULL;
    mcp_session_end(session);
}

/* Nobody will take the answer: modern clients cancel by leaving. */
static void give_up(struct channel *channel)
{
    if (channel->kind != CHANNEL_LISTEN && !channel->ended)
        mcp_request_gone(&channel->sink, channel->kind == CHANNEL_MODERN);
    end_channel(channel);
}

static void left_waiting(struct exchange *exchange)
{
    struct channel *channel = exchange->user;
    channel->exchange = NULL;
    give_up(channel); /* a legacy client knows no event id yet: it cannot come back */
}

/* Whether anybody is there who waits for the answer: the same request may have come more than once. */
static void tell_presence(const struct channel *channel)
{
    struct mcp_request *request = channel->sink.request;
    bool away = true;
    if (!request || !request->away)
        return;
    for (const struct mcp_sink *sink = request->sink; sink; sink = sink->older)
        away &= !((const struct channel *)sink)->exchange;
    request->away(request, away);
}

static void left_stream(struct exchange *exchange)
{
    struct channel *channel = exchange->user;
    channel->exchange = NULL;
    exchange_stream_end(exchange);
    if (!channel->client) {
        give_up(channel);
        return;
    }
    enter_list(channel, &channel->http->parked);
    tell_presence(channel);
}

static void open_stream(struct channel *channel)
{
    enter_list(channel, &channel->http->open);
    channel->streaming = true;
    if (channel->client && !channel->number)
        channel->number = ++channel->client->next_number;
    add_session_header(channel);
    exchange_stream(channel->exchange, EVENT_STREAM, pending_max(channel->http), left_stream);
}

static void close_stream(struct channel *channel)
{
    struct exchange *exchange = channel->exchange;
    channel->exchange = NULL;
    if (exchange)
        exchange_stream_end(exchange);
}

/* ---- sinks ---- */

static void tell_delivery(struct channel *channel)
{
    struct operation *told = &channel->exchange->delivered;
    if (!channel->delivers.id[0])
        return;
    memcpy(told->id, channel->delivers.id, sizeof told->id);
    told->key_source = channel->delivers.key_source;
    told->state = channel->delivers.state;
    channel->exchange->tell_delivered = true;
}

/* What initialize has made goes on only when it was accepted. */
static void settle_session(struct channel *channel)
{
    struct mcp_session *session = channel->session;
    if (channel->kind != CHANNEL_INITIALIZE || !session->initialized)
        return;
    channel->session = NULL;
    channel->kind = CHANNEL_LEGACY;
    join_client(channel, mcp_client_new(channel->http, session));
}

static void finish_plain(struct channel *channel, struct str message, int http_status)
{
    struct exchange *exchange = channel->exchange;
    settle_session(channel);
    add_session_header(channel);
    tell_delivery(channel);
    if (http_status == 503)
        exchange->retry_after_s = 1;
    buf_add_str(&exchange->answer, message);
    channel->exchange = NULL;
    exchange_send(exchange, http_status);
    end_channel(channel);
}

/* Answers kept for clients that come back are bounded together; the oldest go. */
static void bound_ended(struct mcp_client *client)
{
    size_t bytes = 0, count = 0, bytes_max = client->http->door->settings.stream_bytes_max;
    for (struct channel *channel = client->channels, *older; channel; channel = older) {
        older = channel->sibling;
        if (!channel->ended)
            continue;
        bytes += channel->kept_bytes;
        if (++count > 1 && (count > CHANNEL_ENDED_MAX || bytes > bytes_max))
            channel_free(channel);
    }
}

static void finish_stream(struct channel *channel, struct str message)
{
    bool connected = channel->exchange != NULL;
    write_event(channel, message);
    if (connected)
        tell_delivery(channel);
    close_stream(channel);
    if (!channel->client) {
        end_channel(channel);
        return;
    }
    channel->ended = true;
    enter_list(channel, &channel->http->parked);
    if (connected)
        channel->since_ms -= CHANNEL_KEPT_MS - CHANNEL_WRITTEN_MS;
    bound_ended(channel->client);
}

static void sink_message(struct mcp_sink *sink, struct str message, bool final, int http_status)
{
    struct channel *channel = (struct channel *)sink;
    if (!channel->streaming && final && (channel->accepts.json || !channel->accepts.stream)) {
        finish_plain(channel, message, http_status);
        return;
    }
    if (!channel->streaming && (!channel->accepts.stream || channel->kind == CHANNEL_INITIALIZE) && !final)
        return; /* a modern client that takes no stream: progress has nowhere to go */
    if (!channel->streaming) {
        open_stream(channel);
        prime(channel);
    }
    if (final)
        finish_stream(channel, message);
    else
        write_event(channel, message);
}

/* A cancelled request has no answer; a stream that ends without one says so. */
static void answer_nothing(struct channel *channel)
{
    struct exchange *exchange = channel->exchange;
    add_session_header(channel);
    channel->exchange = NULL;
    if (channel->http->door->closing) {
        exchange->retry_after_s = 1;
        mcp_http_refuse(exchange, 503, RPC_INTERNAL_ERROR, STR_NONE, STR_NONE, "onced is stopping");
    } else if (channel->accepts.stream) {
        exchange_stream(exchange, EVENT_STREAM, 0, NULL);
        exchange_stream_end(exchange);
    } else {
        exchange_send(exchange, 204);
    }
}

static void sink_drop(struct mcp_sink *sink)
{
    struct channel *channel = (struct channel *)sink;
    if (channel->exchange && channel->streaming)
        close_stream(channel);
    else if (channel->exchange)
        answer_nothing(channel);
    channel->ended = true;
    if (channel->session)
        enter_list(channel, &channel->http->parked); /* it may be what is ending: session_ended(), or the next tick */
    else
        channel_free(channel);
}

static void sink_delivers(struct mcp_sink *sink, const struct operation *op)
{
    struct channel *channel = (struct channel *)sink;
    if (op->delivered || !op->id[0])
        return;
    memcpy(channel->delivers.id, op->id, sizeof channel->delivers.id);
    channel->delivers.key_source = op->key_source;
    channel->delivers.state = op->state;
}

static const struct mcp_sink_ops sink_ops = {.message = sink_message, .drop = sink_drop, .delivers = sink_delivers};

/* ---- channels of requests ---- */

/* The door ended a session that only this channel has: the request was dropped before. */
static void own_session_ended(struct mcp_session *session, void *user)
{
    struct channel *channel = user;
    (void)session;
    channel->session = NULL;
    channel_free(channel);
}

static struct channel *channel_make(struct mcp_http *http, enum channel_kind kind)
{
    struct channel *channel = mem_zero(sizeof *channel);
    channel->sink.ops = &sink_ops;
    channel->kind = kind;
    channel->http = http;
    channel->kept_end = &channel->kept;
    return channel;
}

static void attach(struct channel *channel, struct exchange *exchange)
{
    channel->exchange = exchange;
    exchange->user = channel;
}

struct channel *channel_new(struct mcp_http *http, enum channel_kind kind, struct exchange *exchange,
                            const struct accepts *accepts)
{
    struct channel *channel = channel_make(http, kind);
    channel->accepts = *accepts;
    attach(channel, exchange);
    exchange_on_gone(exchange, left_waiting);
    enter_waiting(channel);
    return channel;
}

void channel_own_session(struct channel *channel, struct mcp_session *session)
{
    channel->session = session;
    session->ended = own_session_ended;
    session->send_user = channel;
}

void channel_join(struct channel *channel, struct mcp_client *client)
{
    join_client(channel, client);
}

/* ---- streams of a session ---- */

void channel_listen(struct mcp_client *client, struct exchange *exchange)
{
    struct channel *channel = channel_make(client->http, CHANNEL_LISTEN), *oldest = NULL;
    unsigned count = 0;
    for (struct channel *other = client->channels; other; other = other->sibling) {
        if (other->kind == CHANNEL_LISTEN)
            oldest = other, count++;
    }
    if (count >= CHANNEL_LISTEN_MAX) {
        close_stream(oldest);
        channel_free(oldest);
    }
    join_client(channel, client);
    attach(channel, exchange);
    open_stream(channel);
    prime(channel);
}

/* The newest that has a client; else one whose client may come back. */
static bool send_to_session(struct mcp_session *session, void *user, struct str message)
{
    struct mcp_client *client = user;
    struct channel *found = NULL;
    (void)session;
    for (struct channel *channel = client->channels; channel; channel = channel->sibling) {
        if (channel->kind == CHANNEL_LISTEN && (!found || (channel->exchange && !found->exchange)))
            found = channel;
    }
    if (found)
        write_event(found, message);
    return found != NULL;
}

/* ---- coming back ---- */

static bool read_number(struct str *text, uint64_t *out)
{
    size_t i = 0;
    *out = 0;
    for (; i < text->n && i < 18 && text->p[i] >= '0' && text->p[i] <= '9'; i++)
        *out = *out * 10 + (uint64_t)(text->p[i] - '0');
    text->p += i;
    text->n -= i;
    return i > 0;
}

static bool read_event_id(struct str text, uint64_t *channel, uint64_t *event)
{
    if (!read_number(&text, channel) || text.n < 2 || text.p[0] != '-')
        return false;
    text.p++, text.n--;
    return read_number(&text, event) && text.n == 0;
}

const char *channel_resume(struct mcp_client *client, struct exchange *exchange, struct str event)
{
    uint64_t number, last;
    struct channel *channel = client->channels;
    if (!read_event_id(event, &number, &last))
        return "Last-Event-ID is none of ours";
    while (channel && channel->number != number)
        channel = channel->sibling;
    if (!channel || last >= channel->next_event)
        return "the stream of Last-Event-ID is not kept any more";
    if (channel->lost_before > last + 1)
        return "events after Last-Event-ID are not kept any more";
    close_stream(channel); /* a connection that we do not know to be dead yet */
    attach(channel, exchange);
    open_stream(channel);
    for (struct kept *kept = channel->kept; kept; kept = kept->next) {
        if (kept->number > last)
            write_bytes(channel, (struct str){kept->bytes, kept->n});
    }
    if (!channel->ended) {
        tell_presence(channel);
        return NULL;
    }
    tell_delivery(channel);
    close_stream(channel);
    enter_list(channel, &channel->http->parked);
    channel->since_ms -= CHANNEL_KEPT_MS - CHANNEL_WRITTEN_MS;
    return NULL;
}

/* ---- time ---- */

static void open_waiting(struct mcp_http *http, int64_t now_ms)
{
    for (struct channel *channel = http->waiting, *next; channel; channel = next) {
        next = channel->next;
        if (now_ms - channel->since_ms < CHANNEL_OPEN_MS)
            return;
        if (!channel->accepts.stream || channel->kind == CHANNEL_INITIALIZE)
            continue;
        open_stream(channel);
        prime(channel);
        if (!channel->client)
            write_bytes(channel, STR(": waiting\n\n"));
    }
}

static void keep_alive(struct mcp_http *http, int64_t now_ms)
{
    for (struct channel *channel = http->open; channel; channel = channel->next) {
        if (now_ms - channel->since_ms < CHANNEL_KEEPALIVE_MS)
            continue;
        write_bytes(channel, STR(": keepalive\n\n"));
        if (channel->client)
            channel->client->session->used_ms = now_ms; /* somebody is there */
    }
}

static int64_t parked_ms(const struct channel *channel)
{
    if (channel->session)
        return 0; /* dropped */
    if (channel->ended)
        return CHANNEL_KEPT_MS;
    return channel->kind == CHANNEL_LISTEN ? CHANNEL_IDLE_MS : CHANNEL_RESUME_MS;
}

static void forget_parked(struct mcp_http *http, int64_t now_ms)
{
    struct channel *channel = http->parked;
    while (channel) {
        if (now_ms - channel->since_ms < parked_ms(channel)) {
            channel = channel->next;
            continue;
        }
        give_up(channel);
        channel = http->parked; /* whoever gives up a request may change the list */
    }
}

void channel_forget(struct channel *channel)
{
    give_up(channel);
}

void channels_tick(struct mcp_http *http)
{
    int64_t now_ms = mcp_http_now_ms(http);
    open_waiting(http, now_ms);
    keep_alive(http, now_ms);
    forget_parked(http, now_ms);
}

/* ---- legacy sessions ---- */

static void client_release(struct mcp_client *client)
{
    while (client->channels) {
        struct channel *channel = client->channels;
        close_stream(channel);
        channel_free(channel);
    }
    *client->at = client->next;
    if (client->next)
        client->next->at = client->at;
    free(client);
}

/* Requests that waited were dropped before. */
static void client_ended(struct mcp_session *session, void *user)
{
    (void)session;
    client_release(user);
}

struct mcp_client *mcp_client_new(struct mcp_http *http, struct mcp_session *session)
{
    struct mcp_client *client = mem_zero(sizeof *client);
    client->http = http;
    client->session = session;
    client->next = http->clients;
    client->at = &http->clients;
    if (http->clients)
        http->clients->at = &client->next;
    http->clients = client;
    mcp_session_set_sender(session, send_to_session, client);
    session->ended = client_ended;
    return client;
}

struct mcp_client *mcp_client_of(struct mcp_session *session)
{
    return session->ended == client_ended ? session->send_user : NULL;
}

void mcp_client_free(struct mcp_client *client)
{
    client->session->ended = NULL;
    mcp_session_set_sender(client->session, NULL, NULL);
    for (struct channel *channel = client->channels, *next; channel; channel = next) {
        next = channel->sibling;
        close_stream(channel);
        give_up(channel);
    }
    client_release(client);
}
