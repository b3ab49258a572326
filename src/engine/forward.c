#include "engine/forward.h"

#include "base/log.h"
#include "base/mark.h"
#include "base/mem.h"
#include "engine/internal.h"

#include <assert.h>
#include <stdlib.h>

#define POSTS_MAX 8     /* on the wire at one time */
#define SWEEP_MS  30000 /* between looks at what other gateways have left */

struct try;

struct forwarder {
    struct engine *engine;
    bool asking;         /* the ledger is asked what is due */
    size_t busy;         /* tries under way, stalled ones included */
    int64_t next_ms;     /* when to ask, 0 = not planned */
    struct try *stalled; /* whose end could not be written */
    int64_t stall_ms;
};

struct question {
    struct ledger_request request;
    struct arena arena;
    struct forwarder *forwarder;
};

/* One event on its way. */
struct
try {
    struct ledger_request request;
    struct arena arena;
    struct forwarder *forwarder;
    const struct inbound *event;
    struct forward written; /* as the ledger has it */
    struct try *next;       /* stalled */
};

/* ---- life ---- */

struct forwarder *forwarder_new(struct engine *engine)
{
    struct forwarder *forwarder = mem_zero(sizeof *forwarder);
    forwarder->engine = engine;
    return forwarder;
}

static struct try *try_new(struct forwarder *forwarder, const struct inbound *event)
{
    struct arena arena;
    arena_init(&arena);
    struct try *try = arena_zero(&arena, sizeof *try);
    try->forwarder = forwarder;
    try->event = inbound_copy(&arena, event);
    try->written = try->event->forward;
    try->arena = arena;
    forwarder->busy++;
    return try;
}

static void try_free(struct try *try)
{
    struct arena arena = try->arena;
    try->forwarder->busy--;
    arena_release(&arena);
}

void forwarder_free(struct forwarder *forwarder)
{
    while (forwarder->stalled) {
        struct try *try = forwarder->stalled;
        forwarder->stalled = try->next;
        try_free(try);
    }
    assert(forwarder->busy == 0);
    free(forwarder);
}

/* ---- time ---- */

void forwarder_plan(struct forwarder *forwarder, int64_t at_ms)
{
    if (!forwarder->engine->webhooks) /* a simulator's, a test's: nothing is ever forwarded */
        return;
    if (forwarder->next_ms == 0 || at_ms < forwarder->next_ms)
        forwarder->next_ms = at_ms;
    engine_reschedule(forwarder->engine);
}

int64_t forwarder_next_ms(const struct forwarder *forwarder)
{
    int64_t next = forwarder->asking || forwarder->busy >= POSTS_MAX ? 0 : forwarder->next_ms;
    if (forwarder->engine->stopping)
        return forwarder->stall_ms;
    return next == 0 || (forwarder->stall_ms && forwarder->stall_ms < next) ? forwarder->stall_ms : next;
}

size_t forwarder_busy(const struct forwarder *forwarder)
{
    return forwarder->busy;
}

/* ---- one try ---- */

static void ended(struct forwarder *forwarder)
{
    struct engine *engine = forwarder->engine;
    if (engine->stopping)
        engine_check_stopped(engine);
    else if (forwarder->next_ms)
        engine_reschedule(engine); /* a place is free */
}

static void submit_move(struct try *try, struct forward to, void (*done)(struct ledger_request *request))
{
    try->request = (struct ledger_request){
        .command = LEDGER_FORWARD_MOVE,
        .forward_move = {.id = try->event->id, .was = try->written, .to = to},
        .arena = &try->arena,
        .done = done,
        .user = try,
    };
    engine_submit(try->forwarder->engine, &try->request);
}

static void say_undelivered(const struct try *try, const struct forward *forward)
{
    if (forward->status == FORWARD_UNDELIVERED)
        log_message(LOG_ERROR, "inbox", "event %s of %s does not reach the application and is not sent any more: %s",
                    try->event->id, try->event->source, forward->detail ? forward->detail : "");
}

static void told(struct ledger_request *request)
{
    struct try *try = request->user;
    struct forwarder *forwarder = try->forwarder;
    const struct forward *to = &request->forward_move.to;
    bool lost = request->code && request->code != ERR_STALE && request->code != ERR_NOT_FOUND;
    engine_request_ended(forwarder->engine);
    if (lost && !forwarder->engine->stopping) { /* what the endpoint has acknowledged must not be sent again */
        try->next = forwarder->stalled;
        forwarder->stalled = try;
        forwarder->stall_ms = engine_now(forwarder->engine) + COMMIT_RETRY_MAX_MS;
        engine_reschedule(forwarder->engine);
        return;
    }
    if (!request->code) {
        struct engine_stats *stats = &forwarder->engine->stats;
        stats->forwarded += to->status == FORWARD_DELIVERED;
        stats->forwards_given_up += to->status == FORWARD_UNDELIVERED;
        say_undelivered(try, to);
        if (to->status == FORWARD_DUE)
            forwarder_plan(forwarder, to->at_ms);
    }
    try_free(try);
    ended(forwarder);
}

static void posted(void *user, const struct webhook_report *report)
{
    struct try *try = user;
    struct forwarder *forwarder = try->forwarder;
    struct engine *engine = forwarder->engine;
    if (engine->stopping && !engine->stopped) { /* too late to write anything: the next start tries again */
        try_free(try);
        return;
    }
    MARK(forward_answered);
    engine->stats.forward_failures += !report->delivered;
    submit_move(try,
                forward_tried(&try->written, report->delivered, report->retry_after_ms,
                              arena_copy_text(&try->arena, report->detail), engine_now(engine),
                              env_random64(engine->env)),
                told);
}

/* The policy in force; the registry may have changed since the event came. */
static const struct forward_policy *policy_of(const struct engine *engine, const struct inbound *event)
{
    const struct inbox_source *source = registry_source(engine->registry, event->source);
    return source ? source->forward : NULL;
}

static void begun(struct ledger_request *request)
{
    struct try *try = request->user;
    struct forwarder *forwarder = try->forwarder;
    struct engine *engine = forwarder->engine;
    const struct forward_policy *policy = policy_of(engine, try->event);
    engine_request_ended(engine);
    if (request->code && request->code != ERR_STALE && request->code != ERR_NOT_FOUND)
        forwarder_plan(forwarder, engine_now(engine) + COMMIT_RETRY_MAX_MS);
    if (request->code || !policy || engine->stopping) {
        if (!request->code)
            forwarder_plan(forwarder, request->forward_move.to.at_ms);
        try_free(try);
        ended(forwarder);
        return;
    }
    char id[FORWARD_ID_SIZE];
    const struct webhook_endpoint endpoint = {
        .url = policy->url, .secret = policy->secret, .timeout_ms = policy->timeout_ms, .ca = policy->ca};
    forward_id(try->event, id);
    const struct webhook_message message = {.id = id, .now_ms = engine_now(engine), .body = try->event->body};
    try->written = request->forward_move.to;
    MARK(forward_written);
    webhook_post(engine->webhooks, &endpoint, &message, posted, try);
}

static void begin(struct forwarder *forwarder, const struct inbound *event)
{
    struct engine *engine = forwarder->engine;
    const struct forward_policy *policy = policy_of(engine, event);
    struct try *try = try_new(forwarder, event);
    if (policy) {
        submit_move(try, forward_try(&try->written, policy, engine_now(engine)), begun);
        return;
    }
    struct forward to = try->written;
    to.status = FORWARD_UNDELIVERED;
    to.at_ms = engine_now(engine);
    to.detail = "the registry file no longer says where this source's events go";
    submit_move(try, to, told);
}

/* ---- what is due ---- */

static void answered(struct ledger_request *request)
{
    struct question *question = request->user;
    struct forwarder *forwarder = question->forwarder;
    struct engine *engine = forwarder->engine;
    const struct ledger_forward_due *due = &request->forward_due;
    engine_request_ended(engine);
    forwarder->asking = false;
    if (request->code) {
        log_message(LOG_ERROR, "inbox", "looking for events to forward: %s", request->err.text);
        forwarder_plan(forwarder, engine_now(engine) + COMMIT_RETRY_MAX_MS);
    } else if (!engine->stopping) {
        for (size_t i = 0; i < due->count; i++)
            begin(forwarder, &due->events[i]);
        if (due->next_ms)
            forwarder_plan(forwarder, due->next_ms);
        if (!engine->sole_owner)
            forwarder_plan(forwarder, engine_now(engine) + SWEEP_MS);
    }
    struct arena arena = question->arena;
    arena_release(&arena);
    engine_reschedule(engine);
}

static void ask_what_is_due(struct forwarder *forwarder, int64_t now_ms)
{
    struct arena arena;
    arena_init(&arena);
    struct question *question = arena_zero(&arena, sizeof *question);
    question->forwarder = forwarder;
    question->arena = arena;
    question->request = (struct ledger_request){
        .command = LEDGER_FORWARD_DUE,
        .forward_due = {.now_ms = now_ms, .limit = POSTS_MAX - forwarder->busy},
        .arena = &question->arena,
        .done = answered,
        .user = question,
    };
    forwarder->asking = true;
    forwarder->next_ms = 0;
    engine_submit(forwarder->engine, &question->request);
}

static void write_again(struct forwarder *forwarder)
{
    struct try *try = forwarder->stalled;
    forwarder->stalled = NULL;
    forwarder->stall_ms = 0;
    while (try) {
        struct try *next = try->next;
        submit_move(try, try->request.forward_move.to, told);
        try = next;
    }
}

void forwarder_tick(struct forwarder *forwarder, int64_t now_ms)
{
    if (forwarder->stall_ms && (forwarder->stall_ms <= now_ms || forwarder->engine->stopping))
        write_again(forwarder);
    if (!forwarder->engine->stopping && !forwarder->asking && forwarder->busy < POSTS_MAX && forwarder->next_ms &&
        forwarder->next_ms <= now_ms)
        ask_what_is_due(forwarder, now_ms);
}

void engine_forward_due(struct engine *engine)
{
    forwarder_plan(engine->forwarder, engine_now(engine));
}
