/* Lists of resources, templates and prompts: every server that offers them is asked at once, what they answer is put
 * together in the order of their names. One server alone: its answer as it is, cursors included. Several: a cursor of
 * ours, which holds those of the servers that have more ({"server":"cursor"} in hexadecimal). */
#include "door/mcp_forward.h"

#include "base/log.h"

/* What one server is asked. */
struct part {
    struct listing *listing;
    const char *server, *prefix;
    struct str cursor; /* of the server; absent = from the beginning */
    struct errand *errand;
    const struct json *result; /* NULL: it has none, or was not to be reached */
    struct rpc_message *error;
    struct mcp_outcome lost; /* end is not MCP_ANSWERED */
    bool refused;            /* nothing was sent */
};

/* Lives in the request's arena. */
struct listing {
    struct mcp_request *request;
    const char *items; /* the member of results */
    enum route_kind kind;
    const char *name; /* the member of items that is unique */
    struct part *parts;
    size_t count, waiting;
    bool alone; /* one server is all there is */
};

static void listing_answer(struct listing *listing);

static void listing_release(struct mcp_request *request)
{
    struct listing *listing = request->user;
    for (size_t i = 0; i < listing->count; i++) {
        struct errand *errand = listing->parts[i].errand;
        listing->parts[i].errand = NULL;
        if (errand)
            errand_abandon(errand, "the client does not want the answer any more");
    }
}

static void part_done(struct errand *errand, const struct mcp_outcome *outcome)
{
    struct part *part = errand->user;
    struct listing *listing = part->listing;
    struct arena *arena = &listing->request->arena;
    part->errand = NULL;
    if (outcome->end != MCP_ANSWERED) {
        part->lost = (struct mcp_outcome){.end = outcome->end, .text = arena_copy_text(arena, outcome->text)};
    } else if (outcome->message->kind == RPC_RESULT) {
        part->result = json_copy(arena, outcome->message->result);
    } else {
        part->error = arena_zero(arena, sizeof *part->error);
        part->error->code = outcome->message->code;
        part->error->message = arena_str(arena, outcome->message->message);
        part->error->data = outcome->message->data ? json_copy(arena, outcome->message->data) : NULL;
    }
    if (--listing->waiting == 0)
        listing_answer(listing);
}

static void part_send(struct part *part)
{
    struct mcp_request *request = part->listing->request;
    struct mcp_server *server = mcp_hub_find(request->session->door->hub, part->server);
    struct err err = {0};
    struct lane *lane = server ? lane_for(request, server, &err) : NULL;
    if (lane) {
        struct era_params change = {.cursor = part->listing->alone ? STR_NONE
                                              : part->cursor.p     ? part->cursor
                                                                   : STR("")};
        struct buf params;
        buf_init(&params, 0);
        era_write_params(&params, request, mcp_link_era(lane->link) != MCP_ERA_LEGACY, &change);
        part->errand = errand_send(lane, part->listing->alone ? request : NULL, request->message.method,
                                   buf_str(&params), part_done, part, &err);
        buf_release(&params);
    }
    if (part->errand)
        part->listing->waiting++;
    else
        part->lost = (struct mcp_outcome){.end = MCP_LOST, .text = arena_copy_text(&request->arena, err.text)};
    part->refused = !part->errand;
}

/* ---- cursors ---- */

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool hex_decode(struct buf *out, struct str text)
{
    for (size_t i = 0; i + 1 < text.n; i += 2) {
        int high = hex_digit(text.p[i]), low = hex_digit(text.p[i + 1]);
        if (high < 0 || low < 0)
            return false;
        buf_add_char(out, (char)(high << 4 | low));
    }
    return text.n % 2 == 0;
}

static void hex_encode(struct buf *out, struct str text)
{
    for (size_t i = 0; i < text.n; i++)
        buf_printf(out, "%02x", (unsigned char)text.p[i]);
}

/* {"server":"cursor", …} of a cursor of ours; NULL: it is none. */
static const struct json *cursor_read(struct arena *arena, struct str cursor)
{
    struct json *tree;
    struct buf text;
    buf_init(&text, FORWARD_CURSOR_MAX);
    bool fine = cursor.n <= FORWARD_CURSOR_MAX && hex_decode(&text, cursor) && !text.over &&
                json_parse(arena, buf_str(&text), NULL, &tree, NULL) == ERR_NONE && tree->type == JSON_OBJECT;
    for (uint32_t i = 0; fine && i < tree->count; i++)
        fine = tree->members[i].value.type == JSON_STRING;
    buf_release(&text);
    return fine ? tree : NULL;
}

/* Appends "nextCursor" when a server has more. */
static void cursor_write(struct json_out *out, const struct listing *listing)
{
    struct buf text;
    struct json_out cursors;
    bool more = false;
    buf_init(&text, FORWARD_CURSOR_MAX / 2);
    json_out_init(&cursors, &text);
    json_out_object(&cursors);
    for (size_t i = 0; i < listing->count; i++) {
        struct str next = json_get_text(listing->parts[i].result, "nextCursor");
        if (next.n == 0)
            continue;
        json_out_name(&cursors, listing->parts[i].server);
        json_out_str(&cursors, next);
        more = true;
    }
    json_out_end_object(&cursors);
    if (more && text.over)
        log_message(LOG_WARN, "mcp_cursor_dropped", "cursors of %s are over %d bytes together: the list ends here",
                    listing->request->message.method, FORWARD_CURSOR_MAX);
    if (more && !text.over) {
        struct buf encoded;
        buf_init(&encoded, 0);
        hex_encode(&encoded, buf_str(&text));
        json_out_name(out, "nextCursor");
        json_out_str(out, buf_str(&encoded));
        buf_release(&encoded);
    }
    buf_release(&text);
}

/* ---- putting together ---- */

static void write_item(struct json_out *out, const struct listing *listing, const struct part *part,
                       const struct json *item, struct str name)
{
    if (listing->kind != ROUTE_PROMPT || !part->prefix[0]) {
        json_out_value(out, item);
        return;
    }
    struct arena *arena = &listing->request->arena;
    struct json *copy = json_copy(arena, item);
    json_set(arena, copy, STR("name"), json_string(name));
    json_out_value(out, copy);
}

static void write_items(struct json_out *out, struct listing *listing)
{
    struct passing *passing = passing_of(listing->request->session->door);
    struct arena *arena = &listing->request->arena;
    for (size_t i = 0; i < listing->count; i++) {
        const struct part *part = &listing->parts[i];
        const struct json *items = json_get(part->result, listing->items);
        for (uint32_t j = 0; items && items->type == JSON_ARRAY && j < items->count; j++) {
            const struct json *item = &items->items[j];
            struct str name = json_get_text(item, listing->name);
            if (listing->kind == ROUTE_PROMPT && name.p)
                name = str_of(arena_printf(arena, "%s%.*s", part->prefix, STR_ARG(name)));
            if (listing->alone || route_learn(passing, listing->kind, name, part->server))
                write_item(out, listing, part, item, name);
        }
    }
}

static void write_hints(struct json_out *out, const struct listing *listing)
{
    int64_t ttl_ms = INT64_MAX;
    bool public = true;
    for (size_t i = 0; i < listing->count; i++) {
        const struct json *result = listing->parts[i].result;
        int64_t own = json_get_int(result, "ttlMs", 0); /* not reached: it may be back at once */
        ttl_ms = own < ttl_ms ? own : ttl_ms;
        public = public && str_is(json_get_text(result, "cacheScope"), "public");
    }
    json_out_member_int(out, "ttlMs", listing->count && ttl_ms > 0 ? ttl_ms : 0);
    json_out_member_text(out, "cacheScope", public && listing->count ? "public" : "private");
}

static void listing_merge(struct listing *listing)
{
    struct buf text;
    struct json_out out;
    buf_init(&text, MCP_MESSAGE_BYTES_MAX);
    json_out_init(&out, &text);
    json_out_object(&out);
    if (listing->request->era != MCP_ERA_LEGACY)
        json_out_member_text(&out, "resultType", "complete");
    json_out_name(&out, listing->items);
    json_out_array(&out);
    write_items(&out, listing);
    json_out_end_array(&out);
    cursor_write(&out, listing);
    if (listing->request->era != MCP_ERA_LEGACY)
        write_hints(&out, listing);
    json_out_end_object(&out);
    if (text.over)
        mcp_reply_error(listing->request, RPC_INTERNAL_ERROR, STR_NONE, "The list is over %zu bytes",
                        MCP_MESSAGE_BYTES_MAX);
    else
        mcp_reply(listing->request, buf_str(&text));
    buf_release(&text);
}

/* One server: its answer as it is, prompts under the names that onced gives them. */
static void listing_verbatim(struct listing *listing)
{
    struct mcp_request *request = listing->request;
    struct part *part = &listing->parts[0];
    if (part->error) {
        forward_reply_error(request, part->error);
        return;
    }
    const struct json *result = part->result;
    const struct json *items = json_get(result, listing->items);
    if (listing->kind == ROUTE_PROMPT && part->prefix[0] && items && items->type == JSON_ARRAY) {
        struct buf text;
        struct json_out out;
        buf_init(&text, 0);
        json_out_init(&out, &text);
        json_out_array(&out);
        write_items(&out, listing);
        json_out_end_array(&out);
        struct json *tree = json_copy(&request->arena, result), *renamed;
        if (json_parse(&request->arena, buf_str(&text), &mcp_door_limits, &renamed, NULL) == ERR_NONE)
            json_set(&request->arena, tree, str_of(listing->items), *renamed);
        buf_release(&text);
        result = tree;
    }
    struct buf text;
    buf_init(&text, 0);
    era_write_result(&text, request, result);
    mcp_reply(request, buf_str(&text));
    buf_release(&text);
}

/* That a server is down was told when it went down. */
static void log_left_out(const struct listing *listing)
{
    for (size_t i = 0; i < listing->count; i++) {
        const struct part *part = &listing->parts[i];
        const char *text = part->lost.text ? part->lost.text : "";
        struct str why = part->error ? part->error->message : str_of(text);
        if (!part->result && !(part->error && part->error->code == RPC_METHOD_NOT_FOUND))
            log_message(part->refused ? LOG_DEBUG : LOG_WARN, "mcp_list_incomplete", "%s without server \"%s\": %.*s",
                        listing->request->message.method, part->server, STR_ARG(why));
    }
}

static void listing_answer(struct listing *listing)
{
    log_left_out(listing);
    if (listing->alone && (listing->parts[0].result || listing->parts[0].error))
        listing_verbatim(listing);
    else
        listing_merge(listing);
}

/* Which servers, and from where: all of them, or those that the cursor names. false: the cursor is none of ours. */
static bool listing_plan(struct listing *listing, struct mcp_server *const *servers, size_t count)
{
    struct mcp_request *request = listing->request;
    const struct json *cursor = json_get(request->message.params, "cursor"), *cursors = NULL;
    if (cursor && cursor->type == JSON_NULL)
        cursor = NULL;
    if (cursor && !listing->alone) {
        cursors = cursor->type == JSON_STRING ? cursor_read(&request->arena, cursor->text) : NULL;
        if (!cursors)
            return false;
    }
    listing->parts = arena_zero(&request->arena, (count + 1) * sizeof *listing->parts);
    for (size_t i = 0; i < count; i++) {
        struct mcp_server_info info = mcp_server_info(servers[i]);
        struct str from = cursors ? json_get_text(cursors, info.name) : STR_NONE;
        if (cursors && !from.p)
            continue;
        struct part *part = &listing->parts[listing->count++];
        part->listing = listing;
        part->server = arena_copy_text(&request->arena, info.name);
        part->prefix = arena_copy_text(&request->arena, info.prefix ? info.prefix : "");
        part->cursor = from;
    }
    return true;
}

void listing_begin(struct mcp_request *request)
{
    static const struct {
        const char *method, *items, *name, *capability;
        enum route_kind kind;
    } table[] = {
        {"resources/list", "resources", "uri", "resources", ROUTE_URI},
        {"resources/templates/list", "resourceTemplates", "uriTemplate", "resources", ROUTE_TEMPLATE},
        {"prompts/list", "prompts", "name", "prompts", ROUTE_PROMPT},
    };
    size_t row = 0;
    while (strcmp(request->message.method, table[row].method) != 0)
        row++;
    struct mcp_door *door = request->session->door;
    struct mcp_server *servers[FORWARD_SERVERS_MAX], *all[2];
    size_t count = forward_servers(door, table[row].capability, servers, FORWARD_SERVERS_MAX);
    if (count == 0) {
        forward_reply_no_method(request);
        return;
    }
    struct listing *listing = arena_zero(&request->arena, sizeof *listing);
    listing->request = request;
    listing->items = table[row].items;
    listing->name = table[row].name;
    listing->kind = table[row].kind;
    listing->alone = count == 1 && forward_servers(door, NULL, all, 2) == 1;
    if (!listing_plan(listing, servers, count)) {
        mcp_reply_error(request, RPC_INVALID_PARAMS, STR_NONE, "params.cursor is none that this server gave");
        return;
    }
    request->user = listing;
    request->release = listing_release;
    for (size_t i = 0; i < listing->count; i++)
        part_send(&listing->parts[i]);
    if (listing->waiting == 0)
        listing_answer(listing);
}
