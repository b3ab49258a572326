#include "door/rest.h"

#include "base/jsonrpc.h"
#include "base/log.h"
#include "door/ask.h"
#include "door/auth.h"
#include "door/call_body.h"
#include "door/links.h"
#include "door/mcp_http.h"
#include "door/suggest.h"

#include <arpa/inet.h>
#include <string.h>
#include <strings.h>

#define TENANT_DEFAULT    "default"
#define PRINCIPAL_DEFAULT "local"
#define NAME_BYTES_MAX    128 /* of a tenant or principal */

/* ---- problems ---- */

static int seconds(int64_t ms)
{
    return (int)((ms + 999) / 1000);
}

/* One line a second at most: a full disk fails thousands of requests a second, for one reason. */
#define FAILURE_LOG_MS 1000

static void log_failure(struct exchange *exchange, int status, const char *detail)
{
    struct door_parts *parts = exchange_parts(exchange);
    int64_t now_ms = exchange_now_ms(exchange);
    parts->failures++;
    if (parts->failure_logged_ms && now_ms >= parts->failure_logged_ms &&
        now_ms - parts->failure_logged_ms < FAILURE_LOG_MS)
        return;
    if (log_begin(LOG_WARN, "request_failed")) {
        log_text("path", exchange->route ? exchange->route->path : NULL);
        log_int("status", status);
        log_text("operation", exchange->operation_id[0] ? exchange->operation_id : NULL);
        log_text("detail", detail);
        log_int("count", parts->failures); /* since the last such line */
        log_end();
    }
    parts->failures = 0;
    parts->failure_logged_ms = now_ms;
}

static bool is_mcp(struct exchange *exchange)
{
    return exchange_parts(exchange)->mcp && strcmp(exchange->path, MCP_PATH) == 0;
}

void rest_problem(struct exchange *exchange, const struct problem_document *problem)
{
    int status = problem_type_status(problem->type);
    exchange->retry_after_s = seconds(problem->retry_after_ms);
    exchange->challenge = problem->type == PROBLEM_UNAUTHORIZED;
    if (status >= 500)
        log_failure(exchange, status, problem->detail);
    if (is_mcp(exchange)) {
        mcp_http_refuse(exchange, status, status < 500 ? RPC_INVALID_REQUEST : RPC_INTERNAL_ERROR, STR_NONE, STR_NONE,
                        problem->detail);
        return;
    }
    buf_reset(&exchange->answer);
    shape_problem(&exchange->answer, problem);
    exchange->content_type = PROBLEM_MEDIA_TYPE;
    exchange_send(exchange, status);
}

void rest_refuse(struct exchange *exchange, enum problem_type type, const char *detail)
{
    rest_problem(exchange, &(struct problem_document){.type = type,
                                                      .detail = detail,
                                                      .retry_after_ms = type == PROBLEM_UNAVAILABLE ? 1000 : 0});
}

void rest_ledger_problem(struct exchange *exchange, const struct ledger_request *request, const char *not_found)
{
    switch (request->code) {
    case ERR_NOT_FOUND: rest_refuse(exchange, PROBLEM_NOT_FOUND, not_found); return;
    case ERR_INVALID:
    case ERR_LIMIT: rest_refuse(exchange, PROBLEM_MALFORMED, request->err.text); return;
    case ERR_STALE:
    case ERR_CONFLICT: rest_refuse(exchange, PROBLEM_NOT_POSSIBLE, request->err.text); return;
    case ERR_DENIED: rest_refuse(exchange, PROBLEM_FORBIDDEN, request->err.text); return;
    case ERR_NONE:
    case ERR_INTERNAL: rest_refuse(exchange, PROBLEM_INTERNAL, request->err.text); return;
    case ERR_UNAVAILABLE:
    case ERR_CORRUPT:
    case ERR_IO: rest_refuse(exchange, PROBLEM_UNAVAILABLE, request->err.text); return;
    }
}

/* ---- query and body ---- */

struct str rest_query(const struct exchange *exchange, const char *name)
{
    for (const struct query_pair *pair = exchange->query; pair; pair = pair->next) {
        if (str_is(pair->name, name))
            return pair->value;
    }
    return STR_NONE;
}

bool rest_query_int(struct exchange *exchange, const char *name, int64_t min, int64_t max, int64_t fallback,
                    int64_t *out)
{
    struct str text = rest_query(exchange, name);
    int64_t value = 0;
    bool ok = text.n > 0 && text.n < 10;
    *out = fallback;
    if (!text.p)
        return true;
    for (size_t i = 0; ok && i < text.n; i++) {
        ok = text.p[i] >= '0' && text.p[i] <= '9';
        value = value * 10 + (text.p[i] - '0');
    }
    if (ok && value >= min && value <= max) {
        *out = value;
        return true;
    }
    rest_refuse(exchange, PROBLEM_MALFORMED,
                arena_printf(&exchange->arena, "the parameter \"%s\" must be a whole number from %lld to %lld", name,
                             (long long)min, (long long)max));
    return false;
}

/* Parameters that the route does not know are refused: a filter with a typing error must not list everything. */
static bool check_query(struct exchange *exchange)
{
    const struct route_parameter *known = exchange->route->query;
    for (const struct query_pair *pair = exchange->query; pair; pair = pair->next) {
        struct suggestion nearest = suggestion_for(pair->name);
        bool found = false;
        for (size_t i = 0; known && known[i].name && !found; i++) {
            found = str_is(pair->name, known[i].name);
            suggestion_offer(&nearest, known[i].name);
        }
        if (found)
            continue;
        struct str shown = {pair->name.p, pair->name.n < 100 ? pair->name.n : 100};
        const char *text = nearest.name
                               ? arena_printf(&exchange->arena, "unknown parameter \"%.*s\"; did you mean \"%s\"?",
                                              STR_ARG(shown), nearest.name)
                               : arena_printf(&exchange->arena, "unknown parameter \"%.*s\"", STR_ARG(shown));
        rest_refuse(exchange, PROBLEM_MALFORMED, text);
        return false;
    }
    if (exchange->bad_query)
        rest_refuse(exchange, PROBLEM_MALFORMED, "the query has a broken escape, a NUL byte or too many parameters");
    return !exchange->bad_query;
}

/* application/json or a +json type, with no charset other than UTF-8. */
static bool is_json_type(struct str type)
{
    const char *semicolon = memchr(type.p, ';', type.n);
    struct str media = semicolon ? (struct str){type.p, (size_t)(semicolon - type.p)} : type;
    while (media.n > 0 && media.p[media.n - 1] == ' ')
        media.n--;
    bool json = (media.n == 16 && strncasecmp(media.p, "application/json", 16) == 0) ||
                (media.n > 17 && strncasecmp(media.p, "application/", 12) == 0 &&
                 strncasecmp(media.p + media.n - 5, "+json", 5) == 0);
    if (!json || !semicolon)
        return json;
    char parameters[64];
    snprintf(parameters, sizeof parameters, "%.*s", (int)(type.n - media.n), type.p + media.n);
    const char *charset = strcasestr(parameters, "charset=");
    return !charset || strncasecmp(charset + 8, "utf-8", 5) == 0 || strncasecmp(charset + 8, "\"utf-8\"", 7) == 0;
}

/* Before anything of a body is looked at. */
static bool check_body(struct exchange *exchange)
{
    const struct route *route = exchange->route;
    if (!route->body || (route->body_optional && exchange->body.n == 0))
        return true;
    struct str type = exchange->headers[HEADER_CONTENT_TYPE];
    if (type.p && is_json_type(type))
        return true;
    rest_refuse(exchange, PROBLEM_NOT_JSON,
                type.p ? "expected Content-Type: application/json (UTF-8)"
                       : "Content-Type is missing; expected application/json");
    return false;
}

bool rest_body(struct exchange *exchange, const struct body_member *members, size_t count)
{
    struct problem_document problem;
    struct json *body;
    struct str text = buf_str(&exchange->body);
    if (text.n == 0 && exchange->route->body_optional)
        text = STR("{}");
    if (body_parse(&exchange->arena, text, &body, &problem) &&
        body_read(&exchange->arena, body, members, count, &problem))
        return true;
    rest_problem(exchange, &problem);
    return false;
}

/* ---- operations as this caller may see them ---- */

bool rest_privileged(const struct exchange *exchange)
{
    return exchange->caller.role == ROLE_OPERATOR || exchange->caller.role == ROLE_ADMIN;
}

const struct tool *rest_tool(struct exchange *exchange, const char *name)
{
    return registry_find(engine_registry(exchange->engine), str_of(name));
}

bool rest_may_use(struct exchange *exchange, const struct tool *tool)
{
    const struct scope *scope = exchange->caller.scope;
    struct err err = {0};
    if (!scope_allows_tool(scope, tool->name)) {
        scope_check(&exchange->arena, scope, tool->name, NULL, 0, &err);
        rest_refuse(exchange, PROBLEM_FORBIDDEN, arena_copy_text(&exchange->arena, err.text));
        return false;
    }
    if (registry_allows(engine_registry(exchange->engine), exchange->caller.principal, tool))
        return true;
    rest_refuse(exchange, PROBLEM_FORBIDDEN,
                arena_printf(&exchange->arena,
                             "principal \"%.128s\" may not use tool \"%s\" (principals in the registry file)",
                             exchange->caller.principal, tool->name));
    return false;
}

struct shape_view rest_view(struct exchange *exchange, const struct operation *op, const struct tool *tool)
{
    bool privileged = rest_privileged(exchange);
    bool own = text_equal(op->principal, exchange->caller.principal);
    bool outside = !caller_covers(exchange->caller.scope, op);
    return (struct shape_view){
        .arena = &exchange->arena,
        .now_ms = exchange_now_ms(exchange),
        .privileged = privileged,
        .approver = exchange->caller.role == ROLE_APPROVER,
        .outside = outside,
        .withheld = outside || (!privileged && !own && !shape_shared(op, tool)),
    };
}

void rest_send_operation(struct exchange *exchange, const struct operation *op, const struct tool *tool,
                         const struct shape_view *view)
{
    bool read = !op->id[0];
    bool terminal = read || state_terminal(op->state);
    int status = !terminal                                                                            ? 202
                 : view->own_call && !view->replayed && !read && op->state == STATE_COMPLETED_SUCCESS ? 201
                                                                                                      : 200;
    shape_operation(&exchange->answer, op, tool, view);
    memcpy(exchange->operation_id, op->id, sizeof exchange->operation_id);
    exchange->location = status != 200;
    exchange->replayed = view->replayed && terminal;
    if (!terminal)
        exchange->retry_after_s = seconds(shape_retry_after_ms(op, view->now_ms));
    if (terminal && !read && !view->withheld && text_equal(op->principal, exchange->caller.principal)) {
        struct operation *told = &exchange->delivered;
        memcpy(told->id, op->id, sizeof told->id);
        told->key_source = op->key_source;
        told->state = op->state;
        told->delivered = op->delivered;
        exchange->tell_delivered = !op->delivered;
    }
    exchange_send(exchange, status);
}

/* ---- replies of the engine ---- */

static const char *error_text(const struct engine_reply *reply)
{
    return reply->err && reply->err->text[0] ? reply->err->text : NULL;
}

static void refused_call(struct exchange *exchange, const struct engine_reply *reply)
{
    const struct identity_error *why = reply->why;
    struct problem_document problem = {.type = PROBLEM_INVALID_ARGUMENTS, .detail = error_text(reply)};
    if (reply->err->code == ERR_DENIED)
        problem.type = PROBLEM_FORBIDDEN;
    switch (why ? why->refusal : REFUSAL_NONE) {
    case REFUSAL_KEY_MISSING: problem.type = PROBLEM_KEY_MISSING; break;
    case REFUSAL_KEY_INVALID: problem.type = PROBLEM_KEY_INVALID; break;
    case REFUSAL_ARGUMENTS:
        problem.errors = why->errors;
        problem.error_count = why->error_count;
        break;
    case REFUSAL_KEY_COMPONENT:
    case REFUSAL_NONE: break;
    }
    rest_problem(exchange, &problem);
}

static const char *reply_principal(const struct engine_reply *reply)
{
    return reply->op ? reply->op->principal : reply->tombstone ? reply->tombstone->principal : NULL;
}

static void existing_problem(struct exchange *exchange, const struct engine_reply *reply, enum problem_type type,
                             const char *detail)
{
    struct problem_document problem = {
        .type = type,
        .detail = error_text(reply) ? error_text(reply) : detail,
        .op = reply->op,
        .tombstone = reply->tombstone,
    };
    if (type == PROBLEM_RESULT_NOT_SHARED)
        problem.principal = reply_principal(reply);
    if (type == PROBLEM_KEY_REUSED) {
        static const char *const none[] = {NULL};
        problem.differing = reply->differing_count > 0 ? reply->differing : none;
        problem.differing_count = reply->differing_count;
    }
    if (type == PROBLEM_STALE_VERSION && reply->op)
        problem.version = reply->op->rev;
    if (type == PROBLEM_IN_DOUBT && reply->op)
        problem.retry_after_ms = shape_retry_after_ms(reply->op, exchange_now_ms(exchange));
    if (reply->op)
        memcpy(exchange->operation_id, reply->op->id, sizeof exchange->operation_id);
    rest_problem(exchange, &problem);
}

static void held(struct exchange *exchange, const struct engine_reply *reply)
{
    const char *id = reply->op ? reply->op->id : "an earlier operation";
    existing_problem(
        exchange, reply, PROBLEM_IN_DOUBT,
        arena_printf(&exchange->arena,
                     "%s is unresolved; if this is the same intent, wait for it; if it is another one, call "
                     "again with distinct_from",
                     id));
}

static void refused_by_policy(struct exchange *exchange, const struct engine_reply *reply)
{
    struct problem_document problem = {
        .type = shape_refusal_type(reply->refusal),
        .detail = error_text(reply),
        .refusal = reply->refusal,
        .retry_after_ms = shape_refusal_wait_ms(reply->refusal, exchange_now_ms(exchange)),
    };
    rest_problem(exchange, &problem);
}

static void plan(struct exchange *exchange, const struct engine_reply *reply)
{
    buf_add_str(&exchange->answer, reply->plan);
    exchange_send(exchange, 200);
}

/* Incidents are rare and not part of a reply: they are asked for when the operation hints at one. */
struct with_incidents {
    const struct operation *op;
    struct shape_view view;
};

static void incidents_known(struct exchange *exchange, struct ledger_request *request)
{
    struct with_incidents *kept = exchange->user;
    if (!request->code) {
        kept->view.with_incidents = true;
        kept->view.incidents = request->get.incidents;
        kept->view.incident_count = request->get.incident_count;
    }
    rest_send_operation(exchange, kept->op, rest_tool(exchange, kept->op->tool), &kept->view);
}

static bool hints_at_incident(const struct operation *op)
{
    return op->id[0] && (op->duplicate_seen || op->reason == REASON_WRONG_OBJECT || op->reason == REASON_LATE_LANDING ||
                         op->reason == REASON_DUPLICATE_EFFECT);
}

static void send_reply(struct exchange *exchange, const struct engine_reply *reply, bool own_call)
{
    struct shape_view view = rest_view(exchange, reply->op, reply->tool);
    view.own_call = own_call;
    view.replayed = own_call && reply->replayed;
    view.other_arguments = reply->other_arguments;
    if (own_call)
        view.withheld = false; /* the engine has decided (REPLY_NOT_SHARED) */
    if (!hints_at_incident(reply->op)) {
        view.with_incidents = true;
        rest_send_operation(exchange, reply->op, reply->tool, &view);
        return;
    }
    struct with_incidents *kept = arena_zero(&exchange->arena, sizeof *kept);
    kept->op = operation_copy(&exchange->arena, reply->op);
    kept->view = view;
    exchange->user = kept;
    struct ledger_request *request = ask_new(exchange, LEDGER_GET);
    request->get.tenant = exchange->caller.tenant;
    request->get.operation = kept->op->id;
    ask(exchange, request, incidents_known);
}

void rest_no_tool(struct exchange *exchange, const char *name)
{
    struct registry *registry = engine_registry(exchange->engine);
    struct suggestion nearest = suggestion_for(str_of(name));
    for (size_t i = 0; i < registry_tool_count(registry); i++)
        if (caller_may_use(registry, exchange->caller.principal, exchange->caller.scope, registry_tool_at(registry, i)))
            suggestion_offer(&nearest, registry_tool_at(registry, i)->name);
    rest_refuse(exchange, PROBLEM_NO_SUCH_TOOL,
                nearest.name
                    ? arena_printf(&exchange->arena, "no tool \"%.100s\"; did you mean \"%s\"?", name, nearest.name)
                    : arena_printf(&exchange->arena, "no tool \"%.100s\"", name));
}

void rest_reply(struct exchange *exchange, const struct engine_reply *reply, bool own_call)
{
    exchange->waiter = NULL;
    switch (reply->kind) {
    case REPLY_OPERATION:
    case REPLY_READ: send_reply(exchange, reply, own_call); return;
    case REPLY_PLAN: plan(exchange, reply); return;
    case REPLY_NO_TOOL: rest_no_tool(exchange, exchange->user ? exchange->user : ""); return;
    case REPLY_REFUSED: refused_call(exchange, reply); return;
    case REPLY_CONFLICT:
        existing_problem(exchange, reply, PROBLEM_KEY_REUSED,
                         "the same idempotency key was used with other arguments; use another key for another intent");
        return;
    case REPLY_NOT_SHARED:
        existing_problem(exchange, reply, PROBLEM_RESULT_NOT_SHARED,
                         "this was called by another principal, who alone may see the result");
        return;
    case REPLY_HELD: held(exchange, reply); return;
    case REPLY_EXPIRED:
        existing_problem(exchange, reply, PROBLEM_RESULT_EXPIRED,
                         "this has been called before; only the fact is still kept");
        return;
    case REPLY_POLICY: refused_by_policy(exchange, reply); return;
    case REPLY_REPEAT: existing_problem(exchange, reply, PROBLEM_REPEAT_REFUSED, NULL); return;
    case REPLY_NOT_FOUND: rest_refuse(exchange, PROBLEM_NOT_FOUND, "no such operation"); return;
    case REPLY_STALE:
        existing_problem(exchange, reply, PROBLEM_STALE_VERSION, "look at the present version and decide again");
        return;
    case REPLY_IMPOSSIBLE:
        existing_problem(exchange, reply, reply->err->code == ERR_DENIED ? PROBLEM_FORBIDDEN : PROBLEM_NOT_POSSIBLE,
                         NULL);
        return;
    case REPLY_UNAVAILABLE: rest_refuse(exchange, PROBLEM_UNAVAILABLE, error_text(reply)); return;
    }
}

/* ---- dispatch ---- */

/* Literal parts must be equal as sent; a place takes one segment, in which a slash is written %2F. */
static bool path_matches(struct exchange *exchange, const struct route *route)
{
    const char *pattern = route->path, *path = exchange->path;
    unsigned params = 0;
    while (*pattern) {
        if (*pattern != '{') {
            if (*pattern++ != *path++)
                return false;
            continue;
        }
        struct str segment = {path, strcspn(path, "/")};
        if (segment.n == 0 || !exchange_unescape(&exchange->arena, segment, &segment))
            return false;
        exchange->params[params++] = segment.p;
        path += strcspn(path, "/");
        pattern = strchr(pattern, '}') + 1;
    }
    return *path == '\0';
}

static const struct route *find_route(struct exchange *exchange, char *allow, size_t allow_size)
{
    static const char *const names[] = {"GET", "HEAD", "POST", "DELETE", "OPTIONS", ""};
    size_t used = 0;
    enum http_method method = exchange->method == METHOD_HEAD ? METHOD_GET : exchange->method;
    bool mcp = is_mcp(exchange), text = links_path(exchange->path) || strcmp(exchange->path, METRICS_PATH) == 0;
    const struct route *table = mcp ? rest_mcp_routes : text ? rest_text_routes : rest_routes;
    size_t count = mcp ? rest_mcp_route_count : text ? rest_text_route_count : rest_route_count;
    for (size_t i = 0; i < count; i++) {
        const struct route *route = &table[i];
        if (!path_matches(exchange, route))
            continue;
        if (route->method == method)
            return route;
        used += (size_t)snprintf(allow + used, allow_size - used, "%s%s, ", names[route->method],
                                 route->method == METHOD_GET ? ", HEAD" : "");
    }
    if (used > 0)
        snprintf(allow + used, allow_size - used, "OPTIONS");
    return NULL;
}

static void no_route(struct exchange *exchange, const char *allow)
{
    if (!allow[0]) {
        rest_refuse(exchange, PROBLEM_NOT_FOUND, "there is nothing at this path; /openapi.json lists what there is");
        return;
    }
    exchange->allow = arena_copy_text(&exchange->arena, allow);
    if (exchange->method == METHOD_OPTIONS)
        exchange_send(exchange, 204);
    else
        rest_refuse(exchange, PROBLEM_METHOD_NOT_ALLOWED,
                    arena_printf(&exchange->arena, "allowed here: %s", exchange->allow));
}

/* ---- foreign web pages (design 16): only where no token protects ---- */

static bool is_loopback_name(const char *host)
{
    return strcasecmp(host, "localhost") == 0 || strncmp(host, "127.", 4) == 0 || strcmp(host, "[::1]") == 0;
}

/* HOST[:PORT] without the port. */
static bool split_host(struct str text, char host[64])
{
    const char *end = text.n > 0 && text.p[0] == '[' ? memchr(text.p, ']', text.n) : NULL;
    size_t n = end ? (size_t)(end + 1 - text.p) : 0;
    if (!end) {
        const char *colon = memchr(text.p, ':', text.n);
        n = colon ? (size_t)(colon - text.p) : text.n;
    }
    if (n == 0 || n >= 64)
        return false;
    memcpy(host, text.p, n);
    host[n] = '\0';
    return true;
}

/* A name that DNS could point at us is refused: rebinding would make a foreign page same-origin. */
static bool host_is_ours(struct str header)
{
    char host[64];
    struct in_addr v4;
    struct in6_addr v6;
    if (!header.p)
        return true;
    if (!split_host(header, host))
        return false;
    if (strcasecmp(host, "localhost") == 0 || inet_pton(AF_INET, host, &v4) == 1)
        return true;
    size_t n = strlen(host);
    if (host[0] != '[')
        return false;
    host[n - 1] = '\0';
    return inet_pton(AF_INET6, host + 1, &v6) == 1;
}

static bool origin_is_ours(struct str header)
{
    char host[64];
    if (!header.p)
        return true;
    const char *rest = NULL;
    size_t n = 0;
    if (header.n > 7 && strncasecmp(header.p, "http://", 7) == 0)
        rest = header.p + 7, n = header.n - 7;
    else if (header.n > 8 && strncasecmp(header.p, "https://", 8) == 0)
        rest = header.p + 8, n = header.n - 8;
    return rest && split_host((struct str){rest, n}, host) && is_loopback_name(host);
}

/* Tokens protect what is reached with them, but MCP wants foreign pages kept out all the same. */
static bool check_web(struct exchange *exchange)
{
    uint32_t twice = (uint32_t)1 << HEADER_HOST | (uint32_t)1 << HEADER_ORIGIN;
    struct str origin = exchange->headers[HEADER_ORIGIN];
    const struct door_parts *parts = exchange_parts(exchange);
    bool mcp = is_mcp(exchange);
    if ((parts->auth && !mcp) || links_path(exchange->path)) /* a link is good for what it says, whoever opens it */
        return true;
    bool once = !(exchange->repeated & twice);
    if (mcp && origin.p && once && mcp_http_origin_allowed(parts->mcp, origin))
        mcp_http_allow_origin(exchange);
    else if (!once || !origin_is_ours(origin)) {
        rest_refuse(exchange, PROBLEM_FORBIDDEN, "pages of other origins than this machine's may not ask here");
        return false;
    }
    if (parts->auth || host_is_ours(exchange->headers[HEADER_HOST]))
        return true;
    rest_refuse(exchange, PROBLEM_FORBIDDEN,
                "without tokens only this machine may ask: Host must be an IP address or localhost");
    return false;
}

/* ---- who calls ---- */

static bool is_name(struct str text)
{
    if (text.n == 0 || text.n > NAME_BYTES_MAX)
        return false;
    for (size_t i = 0; i < text.n; i++) {
        if (text.p[i] <= 0x20 || text.p[i] >= 0x7f)
            return false;
    }
    return true;
}

static bool named_or(struct exchange *exchange, enum header header, const char *fallback, const char **out)
{
    struct str text = exchange->headers[header];
    *out = fallback;
    if (!text.p)
        return true;
    if (!is_name(text) || exchange->repeated & (uint32_t)1 << header) {
        rest_refuse(exchange, PROBLEM_MALFORMED,
                    arena_printf(&exchange->arena,
                                 "the header %s must be 1 to %d printable characters without spaces, once",
                                 header_name(header), NAME_BYTES_MAX));
        return false;
    }
    *out = arena_copy_str(&exchange->arena, text);
    return true;
}

static void authorised(struct exchange *exchange)
{
    const struct route *route = exchange->route;
    if (!(route->roles & 1u << exchange->caller.role)) {
        rest_refuse(exchange, PROBLEM_FORBIDDEN,
                    arena_printf(&exchange->arena, "not with the role %s", role_name(exchange->caller.role)));
        return;
    }
    if (check_body(exchange) && check_query(exchange))
        route->handle(exchange);
}

/* A token stands for one tenant and principal: headers that say otherwise are refused rather than ignored. */
static bool headers_agree(struct exchange *exchange)
{
    struct str tenant = exchange->headers[HEADER_TENANT], principal = exchange->headers[HEADER_PRINCIPAL];
    if ((!tenant.p || str_is(tenant, exchange->caller.tenant)) &&
        (!principal.p || str_is(principal, exchange->caller.principal)))
        return true;
    rest_refuse(exchange, PROBLEM_FORBIDDEN, "the token stands for another tenant or principal than the headers name");
    return false;
}

static void authenticated(struct exchange *exchange, enum auth_outcome outcome, const char *text)
{
    switch (outcome) {
    case AUTH_OK:
        if (headers_agree(exchange))
            authorised(exchange);
        return;
    case AUTH_MISSING:
    case AUTH_REFUSED:
        exchange->bad_token = outcome == AUTH_REFUSED;
        rest_refuse(exchange, PROBLEM_UNAUTHORIZED, arena_copy_text(&exchange->arena, text));
        return;
    case AUTH_UNAVAILABLE: rest_refuse(exchange, PROBLEM_UNAVAILABLE, arena_copy_text(&exchange->arena, text)); return;
    }
}

static void authenticate(struct exchange *exchange)
{
    struct auth *auth = exchange_parts(exchange)->auth;
    if (exchange->route->roles == MAY_ANYBODY) {
        if (check_body(exchange) && check_query(exchange))
            exchange->route->handle(exchange);
        return;
    }
    if (auth) {
        auth_check(auth, exchange, authenticated);
        return;
    }
    exchange->caller.role = ROLE_ADMIN;
    if (named_or(exchange, HEADER_TENANT, TENANT_DEFAULT, &exchange->caller.tenant) &&
        named_or(exchange, HEADER_PRINCIPAL, PRINCIPAL_DEFAULT, &exchange->caller.principal))
        authorised(exchange);
}

/* Needs no look at the ledger: a body that is far too large is refused before it is read. */
static bool check_size(struct exchange *exchange)
{
    if (!exchange->too_large)
        return true;
    rest_refuse(
        exchange, PROBLEM_TOO_LARGE,
        arena_printf(&exchange->arena, "the body has more than %zu bytes", exchange_parts(exchange)->body_bytes_max));
    return false;
}

void rest_handle(struct exchange *exchange)
{
    char allow[128] = "";
    if (exchange_surplus(exchange)) {
        exchange->close = true;
        rest_refuse(exchange, PROBLEM_UNAVAILABLE, "too many connections");
        return;
    }
    if (!check_web(exchange) || !check_size(exchange))
        return;
    exchange->route = find_route(exchange, allow, sizeof allow);
    if (exchange->route)
        authenticate(exchange);
    else
        no_route(exchange, allow);
}
