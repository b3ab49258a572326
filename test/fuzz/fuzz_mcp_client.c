/* A hostile MCP server: whatever it sends and whenever it goes, every request is told exactly once, every request that
 * the transport took is dropped exactly once, every question is answered or withdrawn, and nothing is left behind.
 *
 * One step per line: a letter that says what happens, the rest is what it happens with. In messages of the server $0,
 * $1, … stand for the ids of the requests that it has not answered. */
#include "fuzz.h"

#include "adapter/mcp_parts.h"
#include "base/log.h"

#define STEPS_MAX    200
#define REQUESTS_MAX 256
#define LINKS_MAX    6
#define TAKEN_MAX    64
#define QUESTIONS    32

struct world;

struct request {
    struct world *world;
    struct mcp_pending *pending;
    bool told, forgotten;
};

/* A transport without bytes. */
struct wire {
    struct mcp_transport base;
    struct world *world;
    struct wire *next;
    struct mcp_pending *taken[TAKEN_MAX];
    size_t taken_count;
    bool closed;
};

struct heard {
    struct world *world;
    struct mcp_link *link; /* NULL = closed */
    struct mcp_question *questions[QUESTIONS];
};

struct world {
    uv_loop_t loop;
    struct mcp_hub *hub;
    struct mcp_provider providers[3];
    struct registry *registries[4];
    struct wire *wires;
    struct request requests[REQUESTS_MAX];
    size_t request_count;
    struct heard heard[LINKS_MAX + 1]; /* the last one is the hub's */
    bool streams, refuses, closed;
};

/* ---- the transport ---- */

static struct wire *wire_of(struct mcp_transport *transport)
{
    return (struct wire *)transport;
}

static bool wire_send(struct mcp_transport *transport, const struct mcp_outgoing *message, struct err *err)
{
    struct wire *wire = wire_of(transport);
    CHECK(!wire->closed && transport->connection);
    CHECK(message->text.n > 0 && !memchr(message->text.p, '\n', message->text.n));
    if (wire->world->refuses || wire->taken_count == TAKEN_MAX)
        return err_set(err, ERR_UNAVAILABLE, "not now"), false;
    struct arena arena;
    struct rpc_message read;
    struct rpc_fault fault;
    arena_init(&arena);
    CHECK(rpc_read(&arena, message->text, &mcp_message_limits, &read, &fault) && read.kind == message->kind);
    arena_release(&arena);
    size_t i = 0;
    while (i < wire->taken_count && wire->taken[i] != message->pending)
        i++;
    if (message->kind == RPC_REQUEST) {
        CHECK(i == wire->taken_count);
        wire->taken[wire->taken_count++] = message->pending;
    } else {
        CHECK(!message->pending || i < wire->taken_count); /* what it is about has not ended */
    }
    return true;
}

static void wire_drop(struct mcp_transport *transport, struct mcp_pending *pending, bool cancelled)
{
    struct wire *wire = wire_of(transport);
    size_t i = 0;
    (void)cancelled;
    CHECK(!wire->closed);
    while (i < wire->taken_count && wire->taken[i] != pending)
        i++;
    CHECK(i < wire->taken_count);
    wire->taken_count--;
    memmove(wire->taken + i, wire->taken + i + 1, (wire->taken_count - i) * sizeof wire->taken[0]);
}

static void wire_free(void *user)
{
    struct wire *wire = user;
    struct wire **at = &wire->world->wires;
    struct mcp_hub *hub = wire->world->hub;
    while (*at != wire)
        at = &(*at)->next;
    *at = wire->next;
    free(wire);
    mcp_hub_release(hub);
}

static void wire_close(struct mcp_transport *transport)
{
    struct wire *wire = wire_of(transport);
    CHECK(!wire->closed && wire->taken_count == 0 && !transport->connection);
    wire->closed = true;
    mcp_hub_defer(wire->world->hub, wire_free, wire);
}

static const struct mcp_transport_ops line_ops = {.send = wire_send, .drop = wire_drop, .close = wire_close};
static const struct mcp_transport_ops stream_ops = {
    .streams = true, .send = wire_send, .drop = wire_drop, .close = wire_close};

static struct mcp_transport *open_wire(struct mcp_connection *connection, struct err *err)
{
    struct world *world = connection->hub->options.user;
    if (world->refuses) {
        err_set(err, ERR_IO, "cannot be started");
        return NULL;
    }
    struct wire *wire = calloc(1, sizeof *wire);
    wire->base = (struct mcp_transport){.ops = world->streams ? &stream_ops : &line_ops, .connection = connection};
    wire->world = world;
    wire->next = world->wires;
    world->wires = wire;
    mcp_hub_hold(world->hub);
    return &wire->base;
}

/* The n-th that is open, or NULL. */
static struct wire *wire_at(struct world *world, unsigned n)
{
    struct wire *found = NULL;
    for (struct wire *wire = world->wires; wire; wire = wire->next) {
        if (wire->closed)
            continue;
        found = wire;
        if (n-- == 0)
            break;
    }
    return found;
}

/* ---- clients ---- */

static void on_done(void *user, const struct mcp_outcome *outcome)
{
    struct request *request = user;
    CHECK(!request->told && !request->forgotten);
    CHECK((outcome->end == MCP_ANSWERED) == (outcome->message != NULL));
    if (outcome->message)
        CHECK(outcome->sent && (outcome->message->kind == RPC_RESULT || outcome->message->kind == RPC_ERROR));
    request->told = true;
    request->pending = NULL;
}

static void keep_question(struct heard *heard, struct mcp_question *question)
{
    for (size_t i = 0; i < QUESTIONS; i++) {
        CHECK(heard->questions[i] != question);
        if (!heard->questions[i]) {
            heard->questions[i] = question;
            return;
        }
    }
    mcp_answer(question, STR_NONE, -1, STR("no room"));
}

static void close_link(struct heard *heard)
{
    struct mcp_link *link = heard->link;
    if (!link)
        return;
    heard->link = NULL;
    /* answered for it: never to be touched again */
    memset(heard->questions, 0, sizeof heard->questions);
    mcp_link_close(link);
}

/* Owners do as they like from within: {"close": n}. */
static void do_as_told(struct heard *heard, const struct rpc_message *message)
{
    const struct json *close = json_get(message->params, "close");
    int64_t n = 0;
    if (!close || close->type != JSON_NUMBER || !json_number_int64(close->text, &n))
        return;
    if (n >= 0 && n < LINKS_MAX)
        close_link(&heard->world->heard[n]);
    else
        mcp_hub_apply(heard->world->hub, heard->world->registries[n & 3]);
}

static void on_notified(void *user, struct mcp_link *link, const struct mcp_related *related,
                        const struct rpc_message *message)
{
    struct heard *heard = user;
    (void)link;
    (void)related;
    CHECK(message->kind == RPC_NOTIFICATION && message->method);
    CHECK(heard->link || heard == &heard->world->heard[LINKS_MAX]);
    do_as_told(heard, message);
}

static void on_asked(void *user, struct mcp_link *link, const struct mcp_related *related,
                     const struct rpc_message *message, struct mcp_question *question)
{
    (void)link;
    (void)related;
    CHECK(message->kind == RPC_REQUEST && message->id.p);
    if (message->params && json_get(message->params, "at_once"))
        mcp_answer(question, STR("{}"), 0, STR_NONE);
    else
        keep_question(user, question);
    do_as_told(user, message);
}

static void on_withdrawn(void *user, struct mcp_link *link, struct mcp_question *question)
{
    struct heard *heard = user;
    size_t i = 0;
    (void)link;
    while (i < QUESTIONS && heard->questions[i] != question)
        i++;
    CHECK(i < QUESTIONS); /* never one that was answered */
    heard->questions[i] = NULL;
}

static void on_lost(void *user, struct mcp_link *link, const char *why)
{
    struct heard *heard = user;
    CHECK(heard->link == link && why);
    for (size_t i = 0; i < QUESTIONS; i++)
        CHECK(!heard->questions[i]); /* withdrawn before */
    close_link(heard);
}

static const struct mcp_listener listener = {on_notified, on_asked, on_withdrawn, on_lost};

/* ---- steps ---- */

static struct mcp_server *server_of(struct world *world)
{
    return mcp_hub_find(world->hub, "s");
}

static void open_link(struct world *world, struct str rest)
{
    struct mcp_server *server = server_of(world);
    struct heard *heard = world->heard;
    while (heard < world->heard + LINKS_MAX && heard->link)
        heard++;
    if (!server || heard == world->heard + LINKS_MAX)
        return;
    struct mcp_link_options options = {.session = (uint64_t)(heard - world->heard) + 1,
                                       .era = (enum mcp_era)(rest.n % 3),
                                       .capabilities = STR("{\"sampling\":{},\"elicitation\":{}}"),
                                       .listener = &listener,
                                       .user = heard};
    if (rest.n > 0 && rest.p[0] == '{')
        options.capabilities = rest;
    heard->link = mcp_link_open(server, &options, NULL);
}

static const char *const methods[] = {"tools/call", "tools/list", "resources/read", "subscriptions/listen", "ping"};

static void make_request(struct world *world, unsigned n, struct str rest, bool attempt)
{
    struct heard *heard = &world->heard[n % LINKS_MAX];
    struct mcp_server *server = server_of(world);
    struct adapter_origin origin = {n % (LINKS_MAX + 1), n};
    struct mcp_link *link = heard->link;
    if (attempt)
        link = server ? mcp_server_attempt_link(server, origin, NULL) : NULL;
    if (!link || world->request_count == REQUESTS_MAX)
        return;
    struct request *request = &world->requests[world->request_count++];
    *request = (struct request){.world = world};
    struct mcp_request_options options = {.method = methods[n % 5],
                                          .params = rest.n > 0 && rest.p[0] == '{' ? rest : STR_NONE,
                                          .done = on_done,
                                          .user = request};
    request->pending = attempt ? mcp_link_attempt(link, &options, origin) : mcp_link_request(link, &options);
    CHECK(!request->told);
}

static struct request *open_request(struct world *world, unsigned n)
{
    for (size_t i = 0; i < world->request_count; i++) {
        struct request *request = &world->requests[(n + i) % world->request_count];
        if (request->pending)
            return request;
    }
    return NULL;
}

static void expand(const struct wire *wire, struct str text, struct buf *out)
{
    for (size_t i = 0; i < text.n; i++) {
        unsigned n = i + 1 < text.n ? (unsigned)text.p[i + 1] - '0' : 10;
        if (text.p[i] == '$' && n < 10 && n < wire->taken_count) {
            buf_add_text(out, wire->taken[n]->id);
            i++;
        } else {
            buf_add_char(out, text.p[i]);
        }
    }
}

static void take_message(struct wire *wire, struct str text, struct mcp_pending *pending)
{
    struct buf message;
    buf_init(&message, 0);
    expand(wire, text, &message);
    /* exact size, so that reading beyond it is seen */
    char *exact = malloc(message.n ? message.n : 1);
    memcpy(exact, buf_str(&message).p, message.n);
    mcp_connection_message(wire->base.connection, pending, (struct str){exact, message.n}, 200);
    free(exact);
    buf_release(&message);
}

/* What a server in good order answers to the handshake. */
static void shake_hands(struct wire *wire)
{
    for (size_t i = 0; i < wire->taken_count; i++) {
        bool modern = strcmp(wire->taken[i]->method, "server/discover") == 0;
        char text[512];
        if (!modern && strcmp(wire->taken[i]->method, "initialize") != 0)
            continue;
        snprintf(text, sizeof text,
                 "{\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{%s,\"capabilities\":{\"tools\":{"
                 "\"listChanged\":true}}}}",
                 wire->taken[i]->id,
                 modern ? "\"supportedVersions\":[\"2026-07-28\"]" : "\"protocolVersion\":\"2025-06-18\"");
        take_message(wire, str_of(text), NULL);
        return;
    }
}

static void answer_question(struct world *world, unsigned n, struct str rest)
{
    for (size_t i = 0; i <= LINKS_MAX; i++) {
        struct heard *heard = &world->heard[(n + i) % (LINKS_MAX + 1)];
        for (size_t k = 0; k < QUESTIONS; k++) {
            struct mcp_question *question = heard->questions[k];
            if (!question)
                continue;
            heard->questions[k] = NULL;
            mcp_answer(question, rest.n % 2 ? STR("{\"action\":\"accept\"}") : STR_NONE, -1, STR("no"));
            return;
        }
    }
}

static void serve(struct world *world, char step, unsigned n, struct str rest)
{
    struct wire *wire = wire_at(world, n / 16);
    if (!wire)
        return;
    struct mcp_pending *taken = wire->taken_count > 0 ? wire->taken[n % wire->taken_count] : NULL;
    switch (step) {
    case 'H': shake_hands(wire); break;
    case 'm': take_message(wire, rest, NULL); break;
    case 's': take_message(wire, rest, taken); break;
    case 'v': mcp_connection_oversize(wire->base.connection, n % 2 ? taken : NULL, rest); break;
    case 'l': mcp_connection_lost(wire->base.connection, "the server is gone"); break;
    case 'p':
        if (taken)
            mcp_connection_pending_lost(wire->base.connection, taken, n % 2 ? MCP_LOST : MCP_UNREADABLE, n % 3 > 0,
                                        (int)(n % 4) * 100 + 200, "its stream ended");
        break;
    default: break;
    }
}

static void act(struct world *world, char step, unsigned n, struct str rest)
{
    struct request *request = open_request(world, n);
    struct heard *heard = &world->heard[n % LINKS_MAX];
    switch (step) {
    case 'o': open_link(world, rest); break;
    case 'c': close_link(heard); break;
    case 'r': make_request(world, n, rest, false); break;
    case 'a': make_request(world, n, rest, true); break;
    case 'x':
        if (request)
            mcp_pending_cancel(request->pending, rest.n % 2 ? "why not" : NULL);
        break;
    case 'f':
        if (request) {
            mcp_pending_forget(request->pending);
            request->forgotten = true;
            request->pending = NULL;
        }
        break;
    case 'n':
        if (heard->link)
            mcp_link_notify(heard->link, "notifications/roots/list_changed", STR_NONE);
        break;
    case 'q': answer_question(world, n, rest); break;
    case 'A': mcp_hub_apply(world->hub, world->registries[n % 4]); break;
    case 'z': world->refuses = !world->refuses; break;
    case 't': uv_run(&world->loop, UV_RUN_NOWAIT); break;
    default: serve(world, step, n, rest); break;
    }
}

/* ---- life ---- */

static void on_changed(void *user)
{
    struct world *world = user;
    struct arena arena;
    arena_init(&arena);
    CHECK(mcp_hub_catalog(world->hub, &arena));
    arena_release(&arena);
}

static void on_closed(void *user)
{
    struct world *world = user;
    world->closed = true;
}

static struct registry *registry_with(struct mcp_provider *section)
{
    struct provider provider = {.name = "s", .kind = PROVIDER_MCP, .adapter_provider = section};
    const struct provider *providers[] = {&provider};
    struct provider *copy = NULL;
    struct registry *registry = NULL;
    if (section) {
        copy = malloc(sizeof *copy);
        *copy = provider;
        providers[0] = copy;
    }
    CHECK(registry_new(NULL, 0, providers, section ? 1 : 0, "1", free, copy, &registry, NULL) == ERR_NONE);
    return registry;
}

static void world_begin(struct world *world, char kind)
{
    static const char *const identities[] = {"one", "two", "three"};
    *world = (struct world){.streams = kind & 1};
    CHECK(uv_loop_init(&world->loop) == 0);
    struct mcp_hub_options options = {
        .loop = &world->loop, .env = env_system(), .catalog_changed = on_changed, .user = world};
    CHECK(mcp_hub_new(&options, &world->hub, NULL) == ERR_NONE);
    world->hub->open = open_wire;
    for (size_t i = 0; i <= LINKS_MAX; i++)
        world->heard[i].world = world;
    mcp_hub_set_listener(world->hub, &listener, &world->heard[LINKS_MAX]);
    for (size_t i = 0; i < 3; i++) {
        world->providers[i] = (struct mcp_provider){.refs = 1,
                                                    .url = kind & 1 ? (char *)"http://127.0.0.1:1/" : NULL,
                                                    .version = kind & 2 ? (char *)MCP_LEGACY_VERSION : NULL,
                                                    .per_client = kind & 4,
                                                    .start_timeout_ms = 10000,
                                                    .prefix = (char *)"",
                                                    .identity = str_of(identities[i])};
        world->registries[i] = registry_with(&world->providers[i]);
    }
    world->registries[3] = registry_with(NULL);
    mcp_hub_apply(world->hub, world->registries[0]);
}

static void world_end(struct world *world)
{
    mcp_hub_close(world->hub, on_closed, world);
    for (int i = 0; i < 100 && !world->closed; i++)
        uv_run(&world->loop, UV_RUN_NOWAIT);
    CHECK(world->closed && !world->wires);
    for (size_t i = 0; i < world->request_count; i++)
        CHECK(world->requests[i].told != world->requests[i].forgotten);
    for (size_t i = 0; i <= LINKS_MAX; i++) {
        CHECK(!world->heard[i].link);
        for (size_t k = 0; k < QUESTIONS; k++)
            CHECK(!world->heard[i].questions[k]);
    }
    for (size_t i = 0; i < 4; i++)
        registry_unref(world->registries[i]);
    for (size_t i = 0; i < 3; i++)
        CHECK(world->providers[i].refs == 1);
    CHECK(uv_loop_close(&world->loop) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct world world; /* too large for the stack */
    struct str line, rest = {(const char *)data, size};
    log_set_level(LOG_OFF);
    if (size == 0)
        return 0;
    fuzz_split(rest, &line, &rest);
    world_begin(&world, line.n > 0 ? line.p[0] : '0');
    for (int i = 0; i < STEPS_MAX && rest.n > 0; i++) {
        fuzz_split(rest, &line, &rest);
        if (line.n >= 2)
            act(&world, line.p[0], (unsigned char)line.p[1], (struct str){line.p + 2, line.n - 2});
    }
    world_end(&world);
    return 0;
}
