/* Callers that wait for an operation: they hang on its flight, or on a list of their own while it sleeps in the ledger
 * or another gateway moves it:
 *
 *   a list begins ─► watch: news of its moves are wanted; what it is now ─┬─ settled ─► all are answered
 *                      ▲                                                  └─ else: until there are news, or,
 *                      └────────────────────────────────────────────────────  in case they are lost, some time */
#include "base/mark.h"
#include "base/mem.h"
#include "engine/internal.h"

#include <stdlib.h>

static const struct err no_error;

bool operation_settled(const struct operation *op)
{
    return state_terminal(op->state) || op->reason == REASON_NEEDS_OPERATOR;
}

struct waiter *waiter_new(struct engine *engine, engine_reply_fn *reply, void *user, int64_t wait_ms)
{
    struct waiter *waiter = mem_zero(sizeof *waiter);
    waiter->engine = engine;
    waiter->reply = reply;
    waiter->user = user;
    waiter->wait_ms = wait_ms < ENGINE_WAIT_MS_MAX ? wait_ms : ENGINE_WAIT_MS_MAX;
    engine->waiter_count++;
    return waiter;
}

static void detach(struct waiter *waiter)
{
    if (!waiter->list)
        return;
    *waiter->at = waiter->next;
    if (waiter->next)
        waiter->next->at = waiter->at;
    waiter->list = NULL;
    waiter->at = NULL;
}

void waiter_free(struct waiter *waiter)
{
    struct engine *engine = waiter->engine;
    heap_remove(&engine->deadlines, &waiter->deadline);
    detach(waiter);
    engine->waiter_count--;
    free(waiter);
}

void waiter_reply(struct waiter *waiter, const struct engine_reply *reply)
{
    engine_reply_fn *fn = waiter->reply;
    void *user = waiter->user;
    if (waiter->called_ms)
        latency_add(&waiter->engine->stats.call_took, waiter->called_ms, engine_now(waiter->engine));
    waiter_free(waiter);
    if (fn) /* NULL: the caller is gone */
        fn(user, reply);
}

static void push(struct wait_list *list, struct waiter *waiter)
{
    waiter->list = list;
    waiter->at = &list->first;
    waiter->next = list->first;
    if (list->first)
        list->first->at = &waiter->next;
    list->first = waiter;
}

/* ---- orphans (design 2.9) ---- */

static void mark_done(struct ledger_request *request)
{
    struct arena arena = *request->arena;
    struct engine *engine = request->user;
    engine_request_ended(engine);
    MARK(mark_done);
    arena_release(&arena);
}

static void mark(struct engine *engine, const struct ledger_mark *mark)
{
    struct arena arena;
    arena_init(&arena);
    struct {
        struct ledger_request request;
        struct arena arena;
    } *box = arena_zero(&arena, sizeof *box);
    box->request.command = LEDGER_MARK;
    box->request.mark = *mark;
    box->request.mark.operation = arena_copy_text(&arena, mark->operation);
    box->request.mark.tenant = arena_copy_text(&arena, mark->tenant);
    box->request.user = engine;
    box->request.done = mark_done;
    box->arena = arena;
    box->request.arena = &box->arena;
    MARK(before_mark);
    engine_submit(engine, &box->request);
}

void engine_delivered(struct engine *engine, const struct operation *op)
{
    /* Only the repeat rule asks (2.2.5); other calls are spared the write. */
    if (op->key_source == KEY_SOURCE_REPEAT && !op->delivered && state_terminal(op->state) && op->id[0])
        mark(engine, &(struct ledger_mark){.operation = op->id, .tenant = op->tenant, .delivered = true});
}

static bool nobody_present(const struct wait_list *list)
{
    const struct waiter *waiter = list->first;
    while (waiter && waiter->away)
        waiter = waiter->next;
    return !waiter;
}

static void check_orphaned(struct engine *engine, struct wait_list *list, const char *id, bool holds)
{
    if (holds && list->had_waiter && nobody_present(list) && !list->orphaned) {
        list->orphaned = true;
        mark(engine, &(struct ledger_mark){.operation = id, .orphaned = true});
    }
}

static void somebody_waits(struct engine *engine, struct wait_list *list, const char *id)
{
    list->had_waiter = true;
    if (list->orphaned) {
        list->orphaned = false;
        mark(engine, &(struct ledger_mark){.operation = id, .not_orphaned = true});
    }
}

static bool flight_holds(const struct flight *flight)
{
    return flight->tool && flight->tool->in_doubt == IN_DOUBT_HOLD && !state_terminal(flight->op.state);
}

/* Somebody is there who cannot be reached; asleep in the ledger it makes no difference. */
static void waits_away(struct engine *engine, struct wait_list *list)
{
    list->had_waiter = true;
    if (list->id[0])
        return;
    const struct flight *flight = (const struct flight *)((char *)list - offsetof(struct flight, callers));
    check_orphaned(engine, list, flight->op.id, flight_holds(flight));
}

/* ---- what other gateways move ---- */

static void watch(struct engine *engine, struct wait_list *list);

/* ---- attaching ---- */

static struct wait_list *list_new(struct engine *engine, const struct operation *op)
{
    struct wait_list *list = mem_zero(sizeof *list);
    memcpy(list->id, op->id, OPERATION_ID_SIZE);
    arena_init(&list->arena);
    list->known = operation_copy(&list->arena, op);
    map_put(&engine->lists, list->id, list);
    watch(engine, list);
    return list;
}

void wait_list_free(struct wait_list *list)
{
    arena_release(&list->arena);
    free(list);
}

static struct wait_list *list_of(struct engine *engine, const struct operation *op)
{
    struct flight *flight = map_get(&engine->flights, op->id);
    if (flight)
        return &flight->callers;
    struct wait_list *list = map_get(&engine->lists, op->id);
    if (!list)
        return list_new(engine, op);
    if (op->rev > list->known->rev) {
        arena_reset(&list->arena);
        list->known = operation_copy(&list->arena, op);
    }
    return list;
}

void waiter_attach(struct waiter *waiter, const struct operation *op)
{
    struct engine *engine = waiter->engine;
    struct wait_list *list = list_of(engine, op);
    waiter->admitting = NULL;
    push(list, waiter);
    if (waiter->away)
        waits_away(engine, list);
    else
        somebody_waits(engine, list, op->id);
    waiter->deadline.at_ms = engine_now(engine) + waiter->wait_ms;
    heap_add(&engine->deadlines, &waiter->deadline);
    engine_reschedule(engine);
}

static void drop_list_if_empty(struct engine *engine, struct wait_list *list)
{
    if (!list->first && list->id[0]) {
        map_remove(&engine->lists, list->id);
        heap_remove(&engine->looks, &list->look);
        wait_list_free(list);
    }
}

void callers_take_over(struct flight *flight)
{
    struct wait_list *list = map_remove(&flight->engine->lists, flight->op.id);
    if (!list)
        return;
    flight->callers.had_waiter |= list->had_waiter;
    flight->callers.orphaned |= list->orphaned;
    while (list->first) {
        struct waiter *waiter = list->first;
        detach(waiter);
        push(&flight->callers, waiter);
    }
    heap_remove(&flight->engine->looks, &list->look);
    wait_list_free(list);
}

/* ---- answering ---- */

static struct engine_reply reply_of(const struct waiter *waiter, const struct operation *op, const struct tool *tool)
{
    return (struct engine_reply){
        .kind = REPLY_OPERATION,
        .op = op,
        .tool = tool,
        .replayed = waiter->replayed,
        .other_arguments = waiter->other_arguments,
        .err = &no_error,
    };
}

void callers_tell(struct flight *flight)
{
    if (!flight->callers.first || !operation_settled(&flight->durable))
        return;
    struct operation op = flight->durable;
    if (flight->full_result.p)
        op.result = flight->full_result;
    while (flight->callers.first) {
        struct engine_reply reply = reply_of(flight->callers.first, &op, flight->tool);
        waiter_reply(flight->callers.first, &reply);
    }
}

void callers_leave(struct flight *flight)
{
    struct engine *engine = flight->engine;
    while (engine->stopping && flight->callers.first) {
        struct engine_reply reply = reply_of(flight->callers.first, &flight->durable, flight->tool);
        reply.waited_out = true;
        waiter_reply(flight->callers.first, &reply);
    }
    if (!flight->callers.first)
        return;
    struct wait_list *list = list_new(engine, &flight->durable);
    list->had_waiter = true;
    while (flight->callers.first) {
        struct waiter *waiter = flight->callers.first;
        detach(waiter);
        push(list, waiter);
    }
}

/* ---- what other gateways move ---- */

struct look {
    struct ledger_request request;
    struct arena arena;
    struct engine *engine;
};

static void tell_list(struct engine *engine, struct wait_list *list, const struct ledger_get *found)
{
    const struct operation *op = found->op;
    const struct tool *tool = op ? registry_find(engine->registry, str_of(op->tool)) : NULL;
    char id[OPERATION_ID_SIZE];
    memcpy(id, list->id, sizeof id);
    while ((list = map_get(&engine->lists, id)) && list->first) { /* a reply may change whatever it likes */
        struct waiter *waiter = list->first;
        struct engine_reply reply = reply_of(waiter, op, tool);
        if (!op)
            reply = (struct engine_reply){.kind = REPLY_EXPIRED, .tombstone = found->tombstone, .err = &no_error};
        detach(waiter);
        drop_list_if_empty(engine, list);
        waiter_reply(waiter, &reply);
    }
}

static void plan_look(struct engine *engine, struct wait_list *list)
{
    list->look_ms = list->look_ms ? 2 * list->look_ms : WATCH_MS;
    if (list->look_ms > WATCH_MAX_MS)
        list->look_ms = WATCH_MAX_MS;
    list->look.at_ms = engine_now(engine) + list->look_ms;
    heap_add(&engine->looks, &list->look);
    engine_reschedule(engine);
}

static void looked(struct ledger_request *request)
{
    struct look *look = request->user;
    struct engine *engine = look->engine;
    struct wait_list *list = map_get(&engine->lists, request->get.operation);
    const struct operation *op = request->code ? NULL : request->get.op;
    engine_request_ended(engine);
    if (list && list->looking) {
        list->looking = false;
        if (!request->code && (!op || operation_settled(op))) {
            MARK(news_answered);
            tell_list(engine, list, &request->get);
        } else {
            if (op && op->rev > list->known->rev) {
                arena_reset(&list->arena);
                list->known = operation_copy(&list->arena, op);
            }
            if (list->again)
                watch(engine, list);
            else
                plan_look(engine, list);
        }
    }
    struct arena arena = look->arena;
    arena_release(&arena);
}

static void watch(struct engine *engine, struct wait_list *list)
{
    if (engine->sole_owner || engine->stopping)
        return;
    heap_remove(&engine->looks, &list->look);
    list->again = list->looking; /* what is on its way may have missed the last move */
    if (list->looking)
        return;
    struct arena arena;
    arena_init(&arena);
    struct look *look = arena_zero(&arena, sizeof *look);
    look->engine = engine;
    look->request.command = LEDGER_WATCH;
    look->request.get.tenant = arena_copy_text(&arena, list->known->tenant);
    look->request.get.operation = arena_copy_text(&arena, list->id);
    look->request.done = looked;
    look->request.user = look;
    look->arena = arena;
    look->request.arena = &look->arena;
    list->looking = true;
    engine_submit(engine, &look->request);
}

void waiters_news(void *user, const char *operation)
{
    struct engine *engine = user;
    struct wait_list *list;
    if (operation) {
        list = map_get(&engine->lists, operation);
        if (list) {
            list->look_ms = 0;
            watch(engine, list);
        }
        return;
    }
    size_t at = 0;
    while ((list = map_next(&engine->lists, &at)))
        watch(engine, list);
}

void waiters_look(struct engine *engine, int64_t now_ms)
{
    struct heap_node *node;
    while ((node = heap_first(&engine->looks)) && node->at_ms <= now_ms) {
        heap_remove(&engine->looks, node);
        if (!engine->stopping)
            watch(engine, (struct wait_list *)((char *)node - offsetof(struct wait_list, look)));
    }
}

/* ---- the wait is over ---- */

/* The wait is over and the operation is not: the caller gets its state now, or, when the ledger can not be asked, its
 * state as it was last seen. "Unavailable" would say that nothing was recorded. */
struct late {
    struct ledger_request request;
    struct arena arena;
    struct waiter *waiter;
    const struct operation *known;
};

static void late_done(struct ledger_request *request)
{
    struct late *late = request->user;
    struct waiter *waiter = late->waiter;
    struct engine *engine = waiter->engine;
    engine_request_ended(engine);
    const struct operation *op = !request->code && request->get.op ? request->get.op : late->known;
    struct engine_reply reply = reply_of(waiter, op, registry_find(engine->registry, str_of(op->tool)));
    reply.waited_out = true;
    if (!request->code && request->get.tombstone)
        reply = (struct engine_reply){.kind = REPLY_EXPIRED, .tombstone = request->get.tombstone, .err = &no_error};
    waiter_reply(waiter, &reply);
    struct arena arena = late->arena;
    arena_release(&arena);
}

static void answer_late(struct waiter *waiter, const struct operation *known)
{
    struct arena arena;
    arena_init(&arena);
    struct late *late = arena_zero(&arena, sizeof *late);
    late->waiter = waiter;
    late->known = operation_copy(&arena, known);
    late->request.command = LEDGER_GET;
    late->request.get.operation = late->known->id;
    late->request.done = late_done;
    late->request.user = late;
    late->arena = arena;
    late->request.arena = &late->arena;
    engine_submit(waiter->engine, &late->request);
}

static void expire(struct waiter *waiter)
{
    struct engine *engine = waiter->engine;
    struct wait_list *list = waiter->list;
    heap_remove(&engine->deadlines, &waiter->deadline); /* answering may take until after its deadline */
    if (list->id[0]) {                                  /* asleep in the ledger */
        detach(waiter);
        answer_late(waiter, list->known);
        drop_list_if_empty(engine, list);
        return;
    }
    struct flight *flight = (struct flight *)((char *)list - offsetof(struct flight, callers));
    struct engine_reply reply = reply_of(waiter, &flight->durable, flight->tool);
    reply.waited_out = true;
    detach(waiter);
    check_orphaned(engine, list, flight->op.id, flight_holds(flight));
    waiter_reply(waiter, &reply);
}

void waiters_expire(struct engine *engine, int64_t now_ms)
{
    for (;;) {
        struct heap_node *node = heap_first(&engine->deadlines);
        if (!node || node->at_ms > now_ms)
            return;
        expire((struct waiter *)((char *)node - offsetof(struct waiter, deadline)));
    }
}

void waiters_answer_all(struct engine *engine)
{
    waiters_expire(engine, INT64_MAX);
    reads_answer_all(engine->reads);
}

void waiters_answer_sleeping(struct engine *engine)
{
    size_t at = 0;
    struct wait_list *list;
    while ((list = map_next(&engine->lists, &at))) {
        expire(list->first); /* may drop the list: look again from the start */
        at = 0;
    }
}

struct engine_waiting engine_waiting(const struct waiter *waiter)
{
    const struct wait_list *list = waiter->list;
    if (!list && waiter->admitting)
        return (struct engine_waiting){waiter->admitting->op.id, true, true};
    if (!list) /* a read, or a look at the ledger is on its way */
        return (struct engine_waiting){"", false, false};
    const struct flight *flight =
        list->id[0] ? NULL : (const struct flight *)((const char *)list - offsetof(struct flight, callers));
    return (struct engine_waiting){
        .operation = flight ? flight->op.id : list->id,
        .opened = waiter->opened,
        .alone = list->first == waiter && !waiter->next,
    };
}

void engine_caller_away(struct engine *engine, struct waiter *waiter, bool away)
{
    struct wait_list *list = waiter->list;
    waiter->away = away;
    if (!list) /* a read, or not attached yet: looked at then */
        return;
    if (away) {
        waits_away(engine, list);
        return;
    }
    const struct flight *flight = (const struct flight *)((char *)list - offsetof(struct flight, callers));
    somebody_waits(engine, list, list->id[0] ? list->id : flight->op.id);
}

void engine_caller_left(struct engine *engine, struct waiter *waiter)
{
    if (reads_cancel(engine->reads, waiter))
        return;
    struct wait_list *list = waiter->list;
    if (!list) { /* its admission or a last look-up is on its way: the reply goes nowhere */
        struct flight *flight = waiter->admitting;
        if (flight)
            flight->callers.had_waiter = true;
        waiter->reply = NULL;
        return;
    }
    struct flight *flight = list->id[0] ? NULL : (struct flight *)((char *)list - offsetof(struct flight, callers));
    waiter_free(waiter);
    if (flight)
        check_orphaned(engine, list, flight->op.id, flight_holds(flight));
    else
        drop_list_if_empty(engine, list);
}
