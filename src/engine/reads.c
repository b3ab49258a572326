/* Reads (class read): no ledger row, free retries, identical concurrent ones share a request, results may be cached
 * (design 4). */
#include "base/mem.h"
#include "engine/internal.h"

#include <stdlib.h>

#define CACHE_MAX              1024 /* results kept */
#define CACHE_RESULT_BYTES_MAX 65536

static const struct err no_error;

struct read {
    struct reads *reads;
    struct read *next, **at; /* of all reads */
    struct arena arena;
    char *key; /* tenant, principal, tool, fingerprint */
    struct registry *registry;
    const struct tool *tool;
    struct route *route;
    struct operation op; /* never stored: shape for the answer */
    const struct json *arguments;
    struct adapter_origin origin; /* of the first caller */
    struct waiter *callers;
    struct queued queued;
    struct heap_node timer; /* retry, or the end of a cached result */
    bool has_slot, on_wire, is_queued, cached;
    int64_t started_ms;
};

struct reads {
    struct engine *engine;
    struct read *first; /* all of them; one of a former registry is no longer in the map */
    struct map by_key;
    struct heap timers, deadlines;
    size_t cached, busy;
};

struct reads *reads_new(struct engine *engine)
{
    struct reads *reads = mem_zero(sizeof *reads);
    reads->engine = engine;
    map_init(&reads->by_key);
    heap_init(&reads->timers);
    heap_init(&reads->deadlines);
    return reads;
}

static void read_free(struct read *read)
{
    struct reads *reads = read->reads;
    heap_remove(&reads->timers, &read->timer);
    if (map_get(&reads->by_key, read->key) == read)
        map_remove(&reads->by_key, read->key);
    if (read->cached)
        reads->cached--;
    *read->at = read->next;
    if (read->next)
        read->next->at = read->at;
    registry_unref(read->registry);
    arena_release(&read->arena);
    free(read->key);
    free(read);
}

void reads_free(struct reads *reads)
{
    while (reads->first)
        read_free(reads->first);
    map_release(&reads->by_key);
    heap_release(&reads->timers);
    heap_release(&reads->deadlines);
    free(reads);
}

size_t reads_busy(const struct reads *reads)
{
    return reads->busy;
}

int64_t reads_next_ms(const struct reads *reads)
{
    struct heap_node *timer = heap_first(&reads->timers), *deadline = heap_first(&reads->deadlines);
    if (!timer || !deadline)
        return timer ? timer->at_ms : deadline ? deadline->at_ms : 0;
    return timer->at_ms < deadline->at_ms ? timer->at_ms : deadline->at_ms;
}

static void drop_waiter(struct reads *reads, struct waiter *waiter)
{
    *waiter->at = waiter->next;
    if (waiter->next)
        waiter->next->at = waiter->at;
    waiter->at = NULL;
    waiter->read = NULL;
    heap_remove(&reads->deadlines, &waiter->deadline);
}

bool reads_cancel(struct reads *reads, struct waiter *waiter)
{
    if (!waiter->read)
        return false;
    drop_waiter(reads, waiter);
    waiter_free(waiter);
    return true;
}

static void give(struct read *read, struct waiter *waiter, bool replayed)
{
    struct engine_reply reply = {
        .kind = REPLY_READ, .op = &read->op, .tool = read->tool, .replayed = replayed, .err = &no_error};
    drop_waiter(read->reads, waiter);
    waiter_reply(waiter, &reply);
}

static void wait_on(struct read *read, struct waiter *waiter)
{
    struct reads *reads = read->reads;
    waiter->read = read;
    waiter->at = &read->callers;
    waiter->next = read->callers;
    if (read->callers)
        read->callers->at = &waiter->next;
    read->callers = waiter;
    waiter->deadline.at_ms = engine_now(reads->engine) + waiter->wait_ms;
    heap_add(&reads->deadlines, &waiter->deadline);
}

/* ---- request and retry ---- */

static void try_now(struct read *read);

static void finish(struct read *read)
{
    struct reads *reads = read->reads;
    bool keep = read->op.state == STATE_COMPLETED_SUCCESS && read->tool->cache_ms > 0 && reads->cached < CACHE_MAX &&
                read->op.result.n <= CACHE_RESULT_BYTES_MAX;
    reads->busy--;
    read->op.completed_ms = read->op.updated_ms = engine_now(reads->engine);
    while (read->callers)
        give(read, read->callers, false);
    if (!keep) {
        read_free(read);
    } else {
        read->cached = true;
        reads->cached++;
        read->timer.at_ms = read->op.completed_ms + read->tool->cache_ms;
        heap_add(&reads->timers, &read->timer);
    }
    engine_check_stopped(reads->engine);
}

static enum reason failure_reason(enum outcome outcome)
{
    switch (outcome) {
    case OUTCOME_NOT_SENT: return REASON_NOT_SENT;
    case OUTCOME_REFUSED: return REASON_PROVIDER_REFUSED;
    case OUTCOME_NOT_PROCESSED: return REASON_THROTTLED;
    case OUTCOME_TIMEOUT: return REASON_TIMEOUT;
    case OUTCOME_CONNECTION_LOST: return REASON_CONNECTION_LOST;
    case OUTCOME_WRONG_OBJECT: return REASON_WRONG_OBJECT;
    case OUTCOME_UNREADABLE: return REASON_UNREADABLE_ANSWER;
    default: return REASON_PROVIDER_ERROR;
    }
}

static void fail(struct read *read, const struct adapter_answer *answer)
{
    read->op.state = STATE_FAILED_PERMANENT;
    read->op.reason = failure_reason(answer->outcome);
    read->op.error = arena_str(&read->arena, answer->error);
    if (!read->op.error.p) {
        struct buf text;
        struct json_out out;
        buf_init(&text, 0);
        json_out_init(&out, &text);
        json_out_object(&out);
        json_out_member_text(&out, "message", answer->detail ? answer->detail : outcome_name(answer->outcome));
        json_out_end_object(&out);
        read->op.error = (struct str){arena_copy_str(&read->arena, buf_str(&text)), text.n};
        buf_release(&text);
    }
    finish(read);
}

static bool retry_later(struct read *read, const struct adapter_answer *answer)
{
    struct reads *reads = read->reads;
    const struct retry_policy *policy = &read->tool->retry;
    int64_t now = engine_now(reads->engine);
    bool definite = answer->outcome == OUTCOME_REFUSED || answer->outcome == OUTCOME_WRONG_OBJECT;
    if (definite || !read->callers || read->op.attempts >= (int)policy->attempts_max ||
        now - read->started_ms >= policy->total_ms || reads->engine->stopping)
        return false;
    int64_t cap = policy->backoff_ms << (read->op.attempts < 16 ? read->op.attempts - 1 : 15);
    if (cap > policy->backoff_max_ms || cap <= 0)
        cap = policy->backoff_max_ms > 0 ? policy->backoff_max_ms : 1;
    int64_t delay = 1 + (int64_t)(env_random64(reads->engine->env) % (uint64_t)cap);
    read->timer.at_ms = now + (delay > answer->retry_after_ms ? delay : answer->retry_after_ms);
    heap_add(&reads->timers, &read->timer);
    engine_reschedule(reads->engine);
    return true;
}

static void answered(void *user, const struct adapter_answer *answer)
{
    struct read *read = user;
    struct engine *engine = read->reads->engine;
    struct route *route = read->route;
    read->on_wire = read->has_slot = false;
    gate_done(&route->gate, read->tool->provider, answer->outcome, engine_now(engine));
    read->op.http_status = answer->http_status;
    if (answer->outcome == OUTCOME_SUCCESS || answer->outcome == OUTCOME_NOOP) {
        read->op.state = STATE_COMPLETED_SUCCESS;
        read->op.result = arena_str(&read->arena, answer->result);
        read->op.external_id = arena_copy_text(&read->arena, answer->external_id);
        read->op.result_bytes = (int64_t)answer->result.n;
        finish(read);
    } else if (!retry_later(read, answer)) {
        fail(read, answer);
    }
    route_pump(route);
}

static void queue_go(struct queued *queued)
{
    struct read *read = (struct read *)((char *)queued - offsetof(struct read, queued));
    read->is_queued = false;
    try_now(read);
}

static void not_now(struct read *read, enum gate_answer why, int64_t until_ms)
{
    struct reads *reads = read->reads;
    if (why == GATE_FULL) {
        read->is_queued = true;
        read->queued.go = queue_go;
        route_push(read->route, &read->queued);
        return;
    }
    read->timer.at_ms = until_ms;
    heap_add(&reads->timers, &read->timer);
    engine_reschedule(reads->engine);
}

static void try_now(struct read *read)
{
    struct engine *engine = read->reads->engine;
    int64_t now = engine_now(engine), until = now + HOLD_MS;
    enum gate_answer why = gate_take(&read->route->gate, read->tool->provider, read->op.attempts > 0, now, &until);
    if (why != GATE_PASS) {
        not_now(read, why, until);
        return;
    }
    read->has_slot = read->on_wire = true;
    read->op.attempts++;
    engine->stats.reads++;
    struct adapter_call call = {
        .tool = read->tool,
        .kind = ATTEMPT_CALL,
        .operation = "",
        .provider_key = "",
        .tenant = read->op.tenant,
        .run = read->op.run,
        .trace = read->op.trace,
        .arguments = read->arguments,
        .origin = read->origin,
    };
    engine->adapter->ops->send(engine->adapter, &call, answered, read);
}

/* ---- entry ---- */

static char *read_key(const struct operation *op)
{
    struct buf text;
    char hex[2 * DIGEST_BYTES + 1];
    digest_hex(&op->fingerprint, DIGEST_BYTES, hex);
    buf_init(&text, 0);
    buf_printf(&text, "%zu:%s %zu:%s %s %s", strlen(op->tenant), op->tenant, strlen(op->principal), op->principal,
               op->tool, hex);
    return buf_detach(&text, NULL);
}

struct waiter *reads_call(struct reads *reads, const struct engine_call *request, const struct tool *tool,
                          const struct operation *op, const struct json *arguments, engine_reply_fn *reply, void *user)
{
    struct engine *engine = reads->engine;
    char *key = read_key(op);
    struct read *read = map_get(&reads->by_key, key);
    struct waiter *waiter = waiter_new(engine, reply, user, request->wait_ms < 0 ? tool->wait_ms : request->wait_ms);
    waiter->called_ms = engine_now(engine);
    if (read && read->tool == tool) {
        free(key);
        wait_on(read, waiter);
        if (!read->cached)
            return waiter;
        give(read, waiter, true);
        return NULL;
    }
    read = mem_zero(sizeof *read);
    read->reads = reads;
    arena_init(&read->arena);
    read->key = key;
    read->registry = registry_ref(engine->registry);
    read->tool = tool;
    read->route = engine_route(engine, tool->provider);
    read->op = *operation_copy(&read->arena, op);
    read->op.id[0] = '\0';
    read->op.tool = tool->name;
    read->op.state = STATE_DISPATCHED;
    read->arguments = json_copy(&read->arena, arguments);
    read->origin = request->origin;
    read->started_ms = read->op.created_ms = engine_now(engine);
    map_put(&reads->by_key, read->key, read);
    read->next = reads->first;
    read->at = &reads->first;
    if (read->next)
        read->next->at = &read->next;
    reads->first = read;
    reads->busy++;
    wait_on(read, waiter);
    try_now(read);
    engine_reschedule(engine);
    return waiter;
}

static void wait_is_over(struct read *read, struct waiter *waiter)
{
    struct operation op = read->op;
    op.state = STATE_FAILED_PERMANENT; /* of this caller's read; it had no effect */
    op.reason = REASON_TIMEOUT;
    op.error = STR("{\"message\":\"the read took longer than the caller waited\"}");
    struct engine_reply reply = {
        .kind = REPLY_READ, .op = &op, .tool = read->tool, .waited_out = true, .err = &no_error};
    drop_waiter(read->reads, waiter);
    waiter_reply(waiter, &reply);
}

static void answer_until(struct reads *reads, int64_t now_ms)
{
    struct heap_node *node;
    while ((node = heap_first(&reads->deadlines)) && node->at_ms <= now_ms) {
        struct waiter *waiter = (struct waiter *)((char *)node - offsetof(struct waiter, deadline));
        wait_is_over(waiter->read, waiter);
    }
}

void reads_answer_all(struct reads *reads)
{
    answer_until(reads, INT64_MAX);
}

void reads_tick(struct reads *reads, int64_t now_ms)
{
    struct heap_node *node;
    answer_until(reads, now_ms);
    while ((node = heap_first(&reads->timers)) && node->at_ms <= now_ms) {
        struct read *read = (struct read *)((char *)node - offsetof(struct read, timer));
        heap_remove(&reads->timers, node);
        if (read->cached)
            read_free(read);
        else
            try_now(read);
    }
}
