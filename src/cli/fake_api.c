/* /v1: writes with their faults. fake_lookup.c has the look-ups. */
#include "cli/fake_api.h"

#include "base/env.h"
#include "cli/fake_form.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- choosing what goes wrong ---- */

/* The fault that is set for all requests; absent when there is none. */
static struct str fixed_fault(const struct fake_config *config, bool lookup)
{
    if (lookup)
        return config->lookup_fault[0] ? str_of(config->lookup_fault) : STR_NONE;
    return config->fault[0] ? str_of(config->fault) : STR_NONE;
}

bool fake_api_choose(struct fake_request *request, bool lookup, uint64_t identity, unsigned nth)
{
    struct fake *fake = request->fake;
    struct err err = {0};
    struct fake_script_match match = {lookup, STR_NONE, request->reference, request->business};
    match.collection = str_of(fake->store.collections[request->collection]);
    struct str text = fake_request_header(request, "Fake-Fault");
    if (!text.p && request->json)
        text = json_get_text(request->json, "fake_fault");
    if (!text.p)
        text = str_of(fake_script_take(&fake->script, &match));
    if (!text.p)
        text = fixed_fault(&fake->config, lookup);
    if (!text.p && fake->config.chances.count)
        text = str_of(fake_chances_draw(&fake->config.chances, lookup, identity, nth));
    fake_plan_init(&request->plan);
    if (text.p && fake_plan_parse(text, nth, &request->plan, &err)) {
        fake_answer_error(request, 400, "bad_fault", "%s", err.text);
        return false;
    }
    if (lookup ? !fake_fault_on_lookups(request->plan.fault) : !fake_fault_on_writes(request->plan.fault))
        request->plan.fault = FAULT_SUCCESS;
    fake->fault_used[request->plan.fault]++;
    struct fake_entry *entry = fake_request_entry(request);
    if (entry && request->plan.text[0])
        fake_entry_set(entry, LOG_PLAN, str_of(request->plan.text));
    int64_t latency_ms = lookup ? fake->config.lookup_latency_ms : fake->config.latency_ms;
    if (request->plan.fault == FAULT_SUCCESS && latency_ms) {
        request->plan.fault = FAULT_SLOW;
        request->plan.argument = latency_ms;
    }
    return true;
}

/* ---- reading a write ---- */

static bool is_form(const struct fake_request *request)
{
    struct str type = fake_request_header(request, "Content-Type");
    return type.n >= 33 && strncasecmp(type.p, "application/x-www-form-urlencoded", 33) == 0;
}

static const struct json_limits body_limits = {.bytes_max = FAKE_BODY_MAX, .depth_max = 128, .values_max = 500000};

static bool read_body(struct fake_request *request)
{
    struct err err = {0};
    struct arena *arena = &request->arena;
    if (request->body.n == 0)
        request->json = json_object(arena);
    else if (is_form(request))
        fake_form_parse(arena, buf_str(&request->body), &request->json, &err);
    else
        json_parse(arena, buf_str(&request->body), &body_limits, &request->json, &err);
    if (!err.code && request->json->type != JSON_OBJECT)
        err_set(&err, ERR_INVALID, "the body is not an object");
    if (err.code) {
        request->json = NULL;
        fake_answer_error(request, 400, "invalid_request", "%s", err.text);
    }
    return !err.code;
}

/* A member of the body or of its metadata as text; numbers as they were written. */
static struct str member_text(const struct json *body, const char *name)
{
    const struct json *value = json_get(body, name);
    if (!value)
        value = json_get(json_get(body, "metadata"), name);
    return value && (value->type == JSON_STRING || value->type == JSON_NUMBER) ? value->text : STR_NONE;
}

/* "refunds/pay_1" */
static struct str business_key(struct fake_request *request, struct str value)
{
    const char *name = request->fake->store.collections[request->collection];
    size_t n = strlen(name);
    char *text = arena_alloc(&request->arena, n + 1 + value.n);
    memcpy(text, name, n + 1);
    text[n] = '/';
    memcpy(text + n + 1, value.p, value.n);
    return (struct str){text, n + 1 + value.n};
}

static void read_identity(struct fake_request *request)
{
    const struct fake_config *config = &request->fake->config;
    struct str reference = json_get_text(request->json, "reference");
    if (!reference.p)
        reference = json_get_text(json_get(request->json, "metadata"), "operation");
    request->reference = reference;
    for (size_t i = 0; i < config->business_key_count && !request->business.p; i++) {
        struct str value = member_text(request->json, config->business_keys[i]);
        if (value.p)
            request->business = business_key(request, value);
    }
}

static struct str read_key(struct fake_request *request)
{
    const struct fake_config *config = &request->fake->config;
    struct str key = fake_request_header(request, config->key_header);
    if (!key.p && config->key_field[0])
        key = json_get_text(request->json, config->key_field);
    return key.n ? key : STR_NONE;
}

/* Which attempt for the same thing is this? */
static unsigned count_write(struct fake_request *request)
{
    struct fake_store *store = &request->fake->store;
    unsigned nth = 1;
    if (request->reference.p)
        nth = ++fake_counts_get(&store->references, request->reference)->writes;
    if (request->business.p)
        nth = ++fake_counts_get(&store->business, request->business)->writes;
    return nth;
}

static uint64_t identity_of(const struct fake_request *request)
{
    if (request->business.p)
        return fake_hash(request->business, 11);
    return request->reference.p ? fake_hash(request->reference, 11) : request->n;
}

/* ---- effects ---- */

static int64_t visible_at(const struct fake_request *request)
{
    int64_t delay =
        request->plan.propagation_ms >= 0 ? request->plan.propagation_ms : request->fake->config.propagation_ms;
    return delay ? request->fake->now_ms + delay : 0;
}

static void log_effect(struct fake_request *request, const struct fake_object *object)
{
    struct fake_entry *entry = fake_request_entry(request);
    if (!entry)
        return;
    entry->effect = true;
    fake_entry_set(entry, LOG_OBJECT, object->id);
}

static struct fake_object *create(struct fake_request *request)
{
    struct fake *fake = request->fake;
    bool accepted = request->plan.fault == FAULT_ACCEPTED;
    struct fake_new_object made = {
        .collection = (unsigned)request->collection,
        .id = request->id,
        .reference = request->reference,
        .business = request->business,
        .body = request->json,
        .wall_ms = env_system()->now_ms(env_system()),
        .visible_at_ms = visible_at(request),
        .settles_at_ms = accepted ? fake->now_ms + request->plan.argument : 0,
        .ends_failed = accepted && strcmp(request->plan.second, "failed") == 0,
    };
    struct fake_object *object = fake_store_create(&fake->store, &made);
    log_effect(request, object);
    fake_webhooks_created(request, object);
    return object;
}

static void write_error(struct buf *out, const char *code, const char *text)
{
    buf_printf(out, "{\"error\":{\"code\":\"%s\",\"message\":\"%s\"}}", code, text);
}

static bool version_differs(const struct fake_request *request, const struct fake_object *object)
{
    if (!request->connection)
        return false;
    struct str match = fake_request_header(request, "If-Match");
    char etag[16];
    snprintf(etag, sizeof etag, "\"%u\"", object ? object->version : 0);
    return match.p && !str_is(match, etag) && !(object && str_is(match, "*"));
}

static int commit_put(struct fake_request *request, struct buf *out)
{
    struct fake *fake = request->fake;
    struct fake_object *object = fake_store_find(&fake->store, (unsigned)request->collection, request->id);
    if (version_differs(request, object)) {
        write_error(out, "version_differs", "the object has another version");
        return 412;
    }
    int status = object ? 200 : 201;
    if (!object) {
        object = create(request);
    } else if (fake_store_replace(object, request->json)) {
        fake_store_count_effect(&fake->store, (unsigned)request->collection, request->reference, request->business);
        log_effect(request, object);
    }
    request->etag = object->version;
    fake_object_write(&fake->store, object, fake->now_ms, out);
    return status;
}

static int commit_delete(struct fake_request *request, struct buf *out)
{
    struct fake *fake = request->fake;
    struct fake_object *object = fake_store_find(&fake->store, (unsigned)request->collection, request->id);
    if (!object || version_differs(request, object)) {
        write_error(out, object ? "version_differs" : "not_found",
                    object ? "the object has another version" : "no such object");
        return object ? 412 : 404;
    }
    object->deleted = true;
    fake_store_count_effect(&fake->store, (unsigned)request->collection, request->reference, request->business);
    log_effect(request, object);
    buf_add_text(out, "{\"id\":");
    json_write_string(out, object->id);
    buf_add_text(out, ",\"deleted\":true}");
    return 200;
}

/* Does what was asked for; the provider's own answer goes to out. */
static int commit(struct fake_request *request, struct buf *out)
{
    struct fake *fake = request->fake;
    if (request->method == METHOD_PUT)
        return commit_put(request, out);
    if (request->method == METHOD_DELETE)
        return commit_delete(request, out);
    struct fake_object *object = create(request);
    if (request->plan.fault == FAULT_DOUBLE_COMMIT)
        object = create(request);
    request->etag = object->version;
    fake_object_write(&fake->store, object, fake->now_ms, out);
    return request->plan.fault == FAULT_ACCEPTED ? 202 : 201;
}

/* ---- what goes back under a fault ---- */

static void set_answer(struct fake_request *request, int status, const char *type, const char *text)
{
    request->status = status;
    request->content_type = type;
    buf_reset(&request->answer);
    buf_add_text(&request->answer, text);
}

static void answer_big(struct fake_request *request)
{
    size_t padding =
        request->plan.argument > 0 && request->plan.argument <= 1 << 30 ? (size_t)request->plan.argument : 0;
    if (request->answer.n && request->answer.p[request->answer.n - 1] == '}')
        request->answer.p[--request->answer.n] = 0;
    buf_add_text(&request->answer, request->answer.n > 1 ? ",\"padding\":\"" : "{\"padding\":\"");
    char block[4096];
    memset(block, 'x', sizeof block);
    for (size_t left = padding; left; left -= left < sizeof block ? left : sizeof block)
        buf_add(&request->answer, block, left < sizeof block ? left : sizeof block);
    buf_add_text(&request->answer, "\"}");
}

void fake_api_alter_amounts(struct fake_request *request, struct json *object, int64_t amount)
{
    static const char *const names[] = {"amount", "amount_cents", "amount_minor", "total"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const struct json *value = json_get(object, names[i]);
        int64_t number;
        if (!value || (value->type != JSON_NUMBER && value->type != JSON_STRING))
            continue;
        if (amount >= 0)
            number = amount;
        else if (!json_number_int64(value->text, &number))
            number = 0;
        json_set(&request->arena, object, str_of(names[i]),
                 json_int(&request->arena, amount >= 0 ? number : number + 1));
    }
}

/* The object of another operation, as a provider that mixes up its replays would send it. */
static void answer_wrong_object(struct fake_request *request, bool committed)
{
    struct json *object = json_copy(&request->arena, request->json);
    fake_api_alter_amounts(request, object, request->plan.argument);
    const char *name = request->fake->store.collections[request->collection];
    if (committed) {
        struct json *own;
        if (json_parse(&request->arena, buf_str(&request->answer), &body_limits, &own, NULL) == ERR_NONE) {
            object = own;
            fake_api_alter_amounts(request, object, request->plan.argument);
        }
    } else {
        json_set(&request->arena, object, STR("id"), json_string(STR("other_1")));
        json_set(&request->arena, object, STR("object"), json_string(str_of(name)));
        json_set(&request->arena, object, STR("status"), json_string(STR("succeeded")));
        json_set(&request->arena, object, STR("reference"), json_string(STR("other")));
        json_remove(object, STR("metadata"));
        request->replayed = true;
    }
    buf_reset(&request->answer);
    json_write(&request->answer, object);
    request->status = committed ? request->status : 200;
}

static void answer_redirect(struct fake_request *request)
{
    bool has_query = memchr(request->uri.p, '?', request->uri.n) != NULL;
    fake_answer_error(request, (int)request->plan.argument, "moved", "look elsewhere");
    request->location =
        arena_printf(&request->arena, "%.*s%credirected=1", STR_ARG(request->uri), has_query ? '&' : '?');
}

static void hold(struct fake_request *request, enum fake_delivery then)
{
    request->hold_ms = request->plan.argument;
    request->delivery = then;
}

#define HTML_TIMEOUT                                                                                                   \
    "<!DOCTYPE html><html><head><title>Session timed out</title></head><body><h1>Session timed out</h1>"               \
    "<p>Your session has timed out. Please log in and try again.</p></body></html>"
#define NULL_DATA "{\"data\":null,\"errors\":[{\"message\":\"internal error\"}]}"

void fake_api_shape(struct fake_request *request)
{
    const struct fake_plan *plan = &request->plan;
    switch (plan->fault) {
    case FAULT_SUCCESS:
    case FAULT_SLOW:
    case FAULT_DOUBLE_COMMIT:
    case FAULT_ACCEPTED:
    case FAULT_LATE_COMMIT: break;
    case FAULT_TIMEOUT_BEFORE: hold(request, DELIVER_CLOSE); break;
    case FAULT_TIMEOUT_AFTER: hold(request, DELIVER_ANSWER); break;
    case FAULT_LOOKUP_TIMEOUT: hold(request, DELIVER_ANSWER); break;
    case FAULT_RESET_BEFORE:
    case FAULT_RESET_AFTER: request->delivery = DELIVER_RESET; break;
    case FAULT_CLOSE_BEFORE:
    case FAULT_CLOSE_AFTER: request->delivery = DELIVER_CLOSE; break;
    case FAULT_RATE_LIMITED:
        fake_answer_error(request, 429, "rate_limited", "too many requests");
        request->retry_after_s = plan->argument;
        break;
    case FAULT_STATUS_COMMITTED:
    case FAULT_STATUS:
    case FAULT_LOOKUP_ERROR:
        fake_answer_error(request, (int)plan->argument, "server_error", "something went wrong");
        break;
    case FAULT_REFUSED: fake_answer_error(request, (int)plan->argument, "refused", "the request is refused"); break;
    case FAULT_IN_USE:
        fake_answer_error(request, (int)plan->argument, "key_in_use", "a request with this key is being worked on");
        break;
    case FAULT_MALFORMED:
    case FAULT_LOOKUP_MALFORMED:
        set_answer(request, 200, "application/json", "{\"id\":\"refund_1\",\"status\":");
        break;
    case FAULT_TRUNCATED: request->delivery = DELIVER_TRUNCATE; break;
    case FAULT_DRIP:
        request->delivery = DELIVER_DRIP;
        request->drip_ms = plan->argument > 0 ? plan->argument : 0;
        break;
    case FAULT_WRONG_OBJECT: answer_wrong_object(request, false); break;
    case FAULT_WRONG_OBJECT_COMMITTED: answer_wrong_object(request, true); break;
    case FAULT_REDIRECT: answer_redirect(request); break;
    case FAULT_CHALLENGE:
        fake_answer_error(request, 401, "unauthorized", "who are you?");
        request->challenge = "Basic realm=\"fake\"";
        break;
    case FAULT_ERROR_200:
    case FAULT_ERROR_200_NOT: set_answer(request, 200, "application/json", NULL_DATA); break;
    case FAULT_BIG: answer_big(request); break;
    case FAULT_CONTENT_TYPE: request->content_type = "text/plain; charset=utf-8"; break;
    case FAULT_HTML: set_answer(request, 200, "text/html; charset=utf-8", HTML_TIMEOUT); break;
    case FAULT_EMPTY: set_answer(request, (int)plan->argument, "application/json", ""); break;
    case FAULT_LOOKUP_EMPTY:
    case FAULT_LOOKUP_PARTIAL:
    case FAULT_LOOKUP_WRONG:
    case FAULT_LOOKUP_TWICE: /* part of how the look-up is answered */
    case FAULT_PROPAGATION:
    case FAULT_KEY_IGNORED:
    case FAULT_KEY_FORGOTTEN: /* never the fault of a plan */
    case FAULT_COUNT: break;
    }
}

/* ---- keys ---- */

/* Keeps or drops the key's record. own: what the provider's own answer was (status 0 when nothing was committed); what
 * was answered is in the request. */
static void keep_key(struct fake_request *request, int own_status, struct str own)
{
    struct fake *fake = request->fake;
    struct fake_key *key = request->key;
    if (!key)
        return;
    request->key = NULL;
    bool sent = request->status != 0; /* the provider meant to answer this */
    int status = sent ? request->status : own_status;
    bool keep = false;
    switch (fake->config.keep) {
    case KEEP_EFFECT: keep = own_status >= 200 && own_status < 300; break;
    case KEEP_SUCCESS: keep = own_status && status >= 200 && status < 300; break;
    case KEEP_NOT_5XX: keep = status && status < 500; break;
    case KEEP_NOT_429: keep = status && status != 429; break;
    case KEEP_ALL: keep = status != 0; break;
    }
    bool use_own = own_status && (fake->config.keep == KEEP_EFFECT || status == own_status);
    if (!keep || fake->config.keys == KEYS_FORGET)
        fake_store_key_drop(&fake->store, key);
    else if (use_own)
        fake_store_key_done(key, own_status, own, fake->now_ms);
    else
        fake_store_key_done(key, status, buf_str(&request->answer), fake->now_ms);
}

/* What the key is remembered under: with the endpoint's method, collection and id in front, unless all share one space.
 */
static char *key_with_scope(struct fake_request *request, struct str key)
{
    if (request->fake->config.scope_global)
        return arena_copy_str(&request->arena, key);
    char *text = arena_alloc(&request->arena, 3 + request->id.n + key.n + 1);
    text[0] = (char)('0' + request->method);
    text[1] = (char)('0' + request->collection);
    if (request->id.n)
        memcpy(text + 2, request->id.p, request->id.n);
    text[2 + request->id.n] = ' ';
    memcpy(text + 3 + request->id.n, key.p, key.n);
    text[3 + request->id.n + key.n] = 0;
    return text;
}

/* Looks the key up. True when that answers the request (replay, in use, mismatch); else the key is ours, if there is
 * one. */
static bool key_answers(struct fake_request *request, struct str key_text)
{
    struct fake *fake = request->fake;
    struct fake_config *config = &fake->config;
    if (!key_text.p || config->keys == KEYS_IGNORE || request->plan.key_ignored)
        return false;
    char *text = key_with_scope(request, key_text);
    uint64_t fingerprint[2];
    fake_fingerprint(request->json, fingerprint);
    struct fake_key *key = fake_store_key_find(&fake->store, str_of(text), fake->now_ms, config->retention_ms);
    if (key && request->plan.key_forgotten && !key->in_progress) {
        fake_store_key_drop(&fake->store, key);
        key = NULL;
    }
    if (!key) {
        request->key = fake_store_key_add(&fake->store, str_of(text), fingerprint);
        return false;
    }
    if (key->in_progress) {
        fake->store.totals.in_use++;
        fake_answer_error(request, config->in_use_status, "key_in_use", "a request with this key is being worked on");
        return true;
    }
    bool same = key->fingerprint[0] == fingerprint[0] && key->fingerprint[1] == fingerprint[1];
    if (!same)
        fake->store.totals.mismatches++;
    if (!same && config->mismatch_status) {
        fake_answer_error(request, config->mismatch_status, "key_mismatch", "the key was used with other parameters");
        return true;
    }
    fake->store.totals.replays++;
    buf_add(&request->answer, key->answer, key->answer_size);
    request->status = key->status;
    request->replayed = true;
    struct fake_entry *entry = fake_request_entry(request);
    if (entry)
        entry->replayed = true;
    if (request->plan.fault == FAULT_SLOW)
        request->hold_ms = request->plan.argument;
    fake_api_shape(request);
    return true;
}

/* ---- writes ---- */

/* Commits, keeps the key, and shapes the answer. */
static void commit_and_answer(struct fake_request *request)
{
    request->status = commit(request, &request->answer);
    int own_status = request->status;
    struct str own = STR_NONE;
    if (request->key)
        own = arena_str(&request->arena, buf_str(&request->answer));
    fake_api_shape(request);
    keep_key(request, own_status, own);
}

static void on_slow_commit(struct fake_timer *timer)
{
    struct fake_request *request = timer->user;
    commit_and_answer(request);
    if (!fake_webhooks_hold(request))
        fake_request_ready(request);
}

/* The answer, if any, went out long ago. */
static void on_late_commit(struct fake_timer *timer)
{
    struct fake_request *request = timer->user;
    struct buf own;
    buf_init(&own, 0);
    int own_status = commit(request, &own);
    if (request->key) {
        fake_store_key_done(request->key, own_status, buf_str(&own), request->fake->now_ms);
        if (request->fake->config.keys == KEYS_FORGET)
            fake_store_key_drop(&request->fake->store, request->key);
        request->key = NULL;
    }
    buf_release(&own);
    fake_request_done(request);
}

static void commit_late(struct fake_request *request)
{
    const struct fake_plan *plan = &request->plan;
    struct fake *fake = request->fake;
    request->commit_timer.fire = on_late_commit;
    fake_timer_start(&fake->timers, &request->commit_timer, fake->now_ms + plan->argument);
    int status = (int)strtol(plan->second, NULL, 10);
    if (strcmp(plan->second, "close") == 0)
        request->delivery = DELIVER_CLOSE;
    else if (strcmp(plan->second, "reset") == 0)
        request->delivery = DELIVER_RESET;
    else if (strcmp(plan->second, "202") == 0)
        set_answer(request, 202, "application/json", "{\"status\":\"pending\"}");
    else if (status >= 200)
        fake_answer_error(request, status, "server_error", "something went wrong");
    else
        request->delivery = DELIVER_NEVER;
}

static void start_write(struct fake_request *request)
{
    struct fake *fake = request->fake;
    request->write = true;
    fake->store.totals.writes++;
    if (!read_body(request))
        return;
    read_identity(request);
    struct str key = read_key(request);
    struct fake_entry *entry = fake_request_entry(request);
    if (entry) {
        fake_entry_set(entry, LOG_KEY, key);
        fake_entry_set(entry, LOG_REFERENCE, request->reference);
    }
    if (key.n > FAKE_KEY_MAX) {
        fake_answer_error(request, 400, "invalid_key", "the idempotency key is longer than %d bytes", FAKE_KEY_MAX);
        return;
    }
    unsigned nth = count_write(request);
    if (!fake_api_choose(request, false, identity_of(request), nth) || key_answers(request, key))
        return;
    switch (fake_fault_commit(request->plan.fault)) {
    case COMMIT_NOW: commit_and_answer(request); break;
    case COMMIT_NEVER:
        fake_api_shape(request);
        keep_key(request, 0, STR_NONE);
        break;
    case COMMIT_LATER:
        if (request->plan.fault == FAULT_LATE_COMMIT) {
            commit_late(request);
            break;
        }
        request->phase = PHASE_HELD;
        request->commit_timer.fire = on_slow_commit;
        fake_timer_start(&fake->timers, &request->commit_timer, fake->now_ms + request->plan.argument);
        break;
    }
}

/* ---- routing ---- */

static bool token_fits(struct fake_request *request)
{
    const char *token = request->fake->config.token;
    if (!*token)
        return true;
    struct str header = fake_request_header(request, "Authorization");
    if (header.n > 7 && memcmp(header.p, "Bearer ", 7) == 0 && str_is((struct str){header.p + 7, header.n - 7}, token))
        return true;
    fake_answer_error(request, 401, "unauthorized", "a valid bearer token is needed");
    request->challenge = "Bearer";
    return false;
}

/* "/v1/NAME" or "/v1/NAME/ID" */
static bool read_path(struct fake_request *request)
{
    struct str path = request->path;
    if (path.n < 5 || memcmp(path.p, "/v1/", 4) != 0)
        return false;
    struct str name = {path.p + 4, path.n - 4};
    const char *slash = memchr(name.p, '/', name.n);
    if (slash) {
        request->id = (struct str){slash + 1, name.n - (size_t)(slash + 1 - name.p)};
        name.n = (size_t)(slash - name.p);
        if (request->id.n == 0 || memchr(request->id.p, '/', request->id.n))
            return false;
    }
    request->collection = fake_store_collection(&request->fake->store, name);
    return request->collection >= 0;
}

void fake_api_start(struct fake_request *request)
{
    if (!token_fits(request))
        return;
    if (!read_path(request)) {
        fake_answer_error(request, 404, "not_found", "no such path; try /v1/refunds");
        return;
    }
    bool has_id = request->id.p != NULL;
    if (request->method == METHOD_GET)
        fake_lookup_start(request);
    else if (has_id ? request->method == METHOD_PUT || request->method == METHOD_DELETE
                    : request->method == METHOD_POST)
        start_write(request);
    else
        fake_answer_error(request, 405, "method_not_allowed", "not with this method");
}
