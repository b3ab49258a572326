#include "door/notify.h"

#include "base/log.h"
#include "base/map.h"
#include "base/mark.h"
#include "base/mem.h"
#include "door/auth.h"
#include "door/links.h"
#include "door/shape.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#define SCAN_PAGE      100
#define SCAN_PAGES_MAX 1000 /* pages that were looked through for one kind; what is beyond is told when it changes */
#define QUEUE_LOW      (NOTIFY_QUEUE_MAX / 10) /* with no more than that in the queue the scan goes on */
#define SETTLE_MS      50                      /* between looks whether the engine has recovered */
#define MADE_BY        "notify"                /* who made the links that go along */

/* Something to tell. */
struct notice {
    struct notice *next;
    enum notify_kind kind;
    char operation[OPERATION_ID_SIZE], incident[OPERATION_ID_SIZE];
    char id[NOTIFY_ID_SIZE];
    int64_t since_ms; /* when it was queued */
    int refusals;
};

/* An id that was told; a ring in the order of time. */
struct told {
    char id[NOTIFY_ID_SIZE];
};

enum scan { SCAN_APPROVALS, SCAN_OPERATORS, SCAN_STUCK, SCAN_INCIDENTS, SCAN_DONE };

/* The first notice of the queue, on its way. */
struct job {
    struct arena arena;
    struct ledger_request request;
    const struct operation *op; /* NULL: only its tombstone is left, or not even that */
    const char *tenant;
    const struct incident *incident;
    const struct token *tokens;
    size_t token_count;
    size_t approver; /* next one that links are made for */
    const char *ground;
    struct buf links; /* JSON objects */
    int64_t links_until_ms;
    struct buf body; /* kept over further tries, so that a message that is sent again makes no further links … */
    bool ready;      /* … and stands */
};

struct notify {
    uv_loop_t *loop;
    struct engine *engine;
    struct webhooks *webhooks;
    const struct door_parts *parts;
    uv_timer_t timer;
    /* settings: in use, and those that wait for the end of a request */
    struct arena arena, later_arena;
    struct notify_settings settings, later;
    bool has_later;
    struct notice *first, **end;
    size_t count;
    struct map ids; /* of the queue and of what was told: id → itself */
    struct told *told;
    size_t told_count, told_at;
    enum scan scan;
    struct arena scan_arena;
    struct ledger_request scan_request;
    char cursor[OPERATION_ID_SIZE];
    size_t pages;
    int64_t compensating; /* rows of that state that the scan has not met yet; -1 = not asked for */
    bool behind;          /* something did not fit into the queue: it is scanned for once more */
    bool busy;            /* a request to the ledger, a decision or a POST is under way */
    bool posting;         /* … and it is a POST */
    bool waits;           /* for the end of a backoff */
    bool closing, ending;
    struct job *job; /* of the first notice; NULL: not begun */
    int64_t backoff_ms;
    struct notify_stats stats;
    void (*closed)(void *user);
    void *closed_user;
};

const char *notify_kind_name(enum notify_kind kind)
{
    static const char *const names[] = {
#define X(constant, name, type) name,
        NOTIFY_KINDS(X)
#undef X
    };
    return names[kind];
}

const char *notify_kind_type(enum notify_kind kind)
{
    static const char *const types[] = {
#define X(constant, name, type) type,
        NOTIFY_KINDS(X)
#undef X
    };
    return types[kind];
}

static int64_t now_of(const struct notify *notify)
{
    struct env *env = engine_env(notify->engine);
    return env->now_ms(env);
}

/* ---- what waits ---- */

/* The version of what people are asked, as text; NULL: they are not asked. It outlives changes that ask nothing new. */
static const char *version_of(enum notify_kind kind, const struct operation *op, const char *incident, int64_t now_ms,
                              struct arena *arena)
{
    struct approval approval;
    bool needs = op && op->reason == REASON_NEEDS_OPERATOR;
    switch (kind) {
    case NOTIFY_APPROVAL:
        if (!op || op->state != STATE_PLANNED || approval_open_until(op) <= now_ms ||
            approval_read(arena, op->approval, &approval, NULL))
            return NULL;
        return arena_printf(arena, "%s %lld", approval.policy, (long long)approval.expires_ms);
    case NOTIFY_OPERATOR:
        if (!needs || op->state == STATE_COMPENSATING)
            return NULL;
        return arena_printf(arena, "%lld %d", (long long)op->unknown_since_ms, op->attempts);
    case NOTIFY_STUCK:
        return needs && op->state == STATE_COMPENSATING ? arena_printf(arena, "%lld", (long long)op->rev) : NULL;
    case NOTIFY_INCIDENT: return incident && incident[0] ? incident : NULL;
    case NOTIFY_KIND_COUNT: break;
    }
    return NULL;
}

static void make_id(enum notify_kind kind, const char *operation, const char *version, char out[NOTIFY_ID_SIZE])
{
    const struct str parts[] = {STR("onced notification"), str_of(notify_kind_name(kind)), str_of(operation),
                                str_of(version)};
    struct digest digest = digest_parts(parts, 4);
    digest_hex(&digest, (NOTIFY_ID_SIZE - 5) / 2, stpcpy(out, "msg_"));
}

bool notify_id(enum notify_kind kind, const struct operation *op, const char *incident, int64_t now_ms,
               char out[NOTIFY_ID_SIZE])
{
    struct arena arena;
    arena_init(&arena);
    const char *version = version_of(kind, op, incident, now_ms, &arena);
    if (version)
        make_id(kind, kind == NOTIFY_INCIDENT ? "" : op->id, version, out);
    arena_release(&arena);
    return version != NULL;
}

/* ---- the queue ---- */

static void fired(uv_timer_t *timer);

static void wake(struct notify *notify, int64_t in_ms)
{
    if (!notify->closing)
        uv_timer_start(&notify->timer, fired, in_ms > 0 ? (uint64_t)in_ms : 1, 0);
}

static bool wanted(const struct notify *notify, enum notify_kind kind)
{
    return notify->settings.endpoint.url && notify->settings.kinds & 1u << kind;
}

static void add(struct notify *notify, enum notify_kind kind, const struct operation *op, const char *operation,
                const char *incident)
{
    char id[NOTIFY_ID_SIZE];
    if (!wanted(notify, kind) || !notify_id(kind, op, incident, now_of(notify), id) || map_get(&notify->ids, id))
        return;
    if (notify->count >= NOTIFY_QUEUE_MAX) {
        notify->behind = true;
        notify->stats.overflows++;
        return;
    }
    struct notice *notice = mem_zero(sizeof *notice);
    notice->kind = kind;
    snprintf(notice->operation, sizeof notice->operation, "%s", operation);
    snprintf(notice->incident, sizeof notice->incident, "%s", incident ? incident : "");
    memcpy(notice->id, id, sizeof id);
    notice->since_ms = now_of(notify);
    *notify->end = notice;
    notify->end = &notice->next;
    notify->count++;
    map_put(&notify->ids, notice->id, notice);
    if (!notify->busy && !notify->waits)
        wake(notify, 0);
}

static void changed(void *user, const struct engine_change *change)
{
    struct notify *notify = user;
    const struct operation *op = change->op;
    if (notify->closing || !notify->settings.endpoint.url)
        return;
    add(notify, NOTIFY_APPROVAL, op, op->id, NULL);
    add(notify, NOTIFY_OPERATOR, op, op->id, NULL);
    add(notify, NOTIFY_STUCK, op, op->id, NULL);
    for (size_t i = 0; i < change->incident_count; i++)
        add(notify, NOTIFY_INCIDENT, op, op->id, change->incidents[i].id);
}

static void remember(struct notify *notify, const char *id)
{
    struct told *told = &notify->told[notify->told_at];
    if (notify->told_count == NOTIFY_TOLD_MAX)
        map_remove(&notify->ids, told->id);
    else
        notify->told_count++;
    notify->told_at = (notify->told_at + 1) % NOTIFY_TOLD_MAX;
    memcpy(told->id, id, NOTIFY_ID_SIZE);
    map_put(&notify->ids, told->id, told);
}

static void job_free(struct notify *notify)
{
    struct job *job = notify->job;
    if (!job)
        return;
    notify->job = NULL;
    arena_release(&job->arena);
    buf_release(&job->links);
    buf_release(&job->body);
    free(job);
}

/* The first one of the queue is done with. */
static void pop(struct notify *notify, bool was_told)
{
    struct notice *notice = notify->first;
    job_free(notify);
    notify->first = notice->next;
    if (!notify->first)
        notify->end = &notify->first;
    notify->count--;
    map_remove(&notify->ids, notice->id);
    if (was_told)
        remember(notify, notice->id);
    free(notice);
}

static void forget_all(struct notify *notify)
{
    while (notify->first)
        pop(notify, false);
    for (size_t i = 0; i < notify->told_count; i++)
        map_remove(&notify->ids, notify->told[i].id);
    notify->told_count = notify->told_at = 0;
}

/* ---- the scan: what waits in the ledger ---- */

static void scan_next(struct notify *notify)
{
    notify->scan++;
    notify->cursor[0] = '\0';
    notify->pages = 0;
    notify->compensating = -1;
}

static void scan_again(struct notify *notify)
{
    notify->scan = SCAN_APPROVALS;
    notify->cursor[0] = '\0';
    notify->pages = 0;
    notify->compensating = -1;
    notify->behind = false;
}

static void go_on(struct notify *notify);

static void scanned(struct ledger_request *request)
{
    struct notify *notify = request->user;
    const struct ledger_list *list = &request->list;
    const char *next = request->code                          ? NULL
                       : request->command == LEDGER_INCIDENTS ? request->incidents.next
                                                              : list->next;
    notify->busy = false;
    if (request->command == LEDGER_INCIDENTS) {
        for (size_t i = 0; !request->code && i < request->incidents.count; i++)
            add(notify, NOTIFY_INCIDENT, NULL, request->incidents.incidents[i].operation,
                request->incidents.incidents[i].id);
    } else {
        static const enum notify_kind kinds[] = {NOTIFY_APPROVAL, NOTIFY_OPERATOR, NOTIFY_STUCK};
        for (size_t i = 0; !request->code && i < list->count; i++)
            add(notify, kinds[notify->scan], list->ops[i], list->ops[i]->id, NULL);
    }
    if (notify->scan == SCAN_STUCK && !request->code)
        notify->compensating -= (int64_t)list->count;
    if (notify->scan == SCAN_STUCK && notify->compensating <= 0)
        next = NULL;
    if (request->code)
        log_message(LOG_WARN, "notify", "what waits can not be read: %s", request->err.text);
    snprintf(notify->cursor, sizeof notify->cursor, "%s", next ? next : "");
    if (!next || ++notify->pages >= SCAN_PAGES_MAX)
        scan_next(notify);
    arena_release(&notify->scan_arena);
    go_on(notify);
}

/* No index leads to what is being undone, but the ledger knows how many there are: mostly none. */
static void counted(struct ledger_request *request)
{
    struct notify *notify = request->user;
    notify->busy = false;
    notify->compensating = request->code ? 0 : request->stats.by_state[STATE_COMPENSATING];
    if (notify->compensating == 0)
        scan_next(notify);
    arena_release(&notify->scan_arena);
    go_on(notify);
}

static void scan_page(struct notify *notify)
{
    struct ledger_request *request = &notify->scan_request;
    const char *before = NULL;
    arena_init(&notify->scan_arena);
    if (notify->cursor[0])
        before = arena_copy_text(&notify->scan_arena, notify->cursor);
    *request = (struct ledger_request){.arena = &notify->scan_arena, .done = scanned, .user = notify};
    if (notify->scan == SCAN_STUCK && notify->compensating < 0) {
        request->command = LEDGER_STATS;
        request->done = counted;
        notify->busy = true;
        ledger_submit(engine_ledger(notify->engine), request);
        return;
    }
    request->command = LEDGER_LIST;
    request->list = (struct ledger_list){.before = before, .limit = SCAN_PAGE};
    switch (notify->scan) {
    case SCAN_APPROVALS: request->list.reason = REASON_AWAITING_APPROVAL; break;
    case SCAN_OPERATORS:
        request->list.reason = REASON_NEEDS_OPERATOR;
        request->list.states = 1u << STATE_UNKNOWN_OUTCOME;
        break;
    case SCAN_STUCK: request->list.states = 1u << STATE_COMPENSATING; break;
    case SCAN_INCIDENTS:
        request->command = LEDGER_INCIDENTS;
        request->incidents = (struct ledger_incidents){.open_only = true, .before = before, .limit = SCAN_PAGE};
        break;
    case SCAN_DONE: break;
    }
    notify->busy = true;
    ledger_submit(engine_ledger(notify->engine), request);
}

static bool scan_wanted(const struct notify *notify)
{
    switch (notify->scan) {
    case SCAN_APPROVALS: return wanted(notify, NOTIFY_APPROVAL);
    case SCAN_OPERATORS: return wanted(notify, NOTIFY_OPERATOR);
    case SCAN_STUCK: return wanted(notify, NOTIFY_STUCK);
    case SCAN_INCIDENTS: return wanted(notify, NOTIFY_INCIDENT);
    case SCAN_DONE: break;
    }
    return false;
}

/* ---- sending ---- */

static void fail(struct notify *notify, const char *detail, int64_t retry_after_ms)
{
    const struct notice *notice = notify->first;
    int64_t backoff_ms = notify->backoff_ms ? 2 * notify->backoff_ms : NOTIFY_BACKOFF_MS;
    notify->backoff_ms = backoff_ms > NOTIFY_BACKOFF_MAX_MS ? NOTIFY_BACKOFF_MAX_MS : backoff_ms;
    int64_t in_ms =
        notify->backoff_ms + (int64_t)(env_random64(engine_env(notify->engine)) % (uint64_t)(notify->backoff_ms / 4));
    if (in_ms < retry_after_ms)
        in_ms = retry_after_ms > NOTIFY_BACKOFF_MAX_MS ? NOTIFY_BACKOFF_MAX_MS : retry_after_ms;
    if (log_begin(LOG_WARN, "notify")) {
        log_text("kind", notify_kind_name(notice->kind));
        log_text("operation", notice->operation);
        log_text("webhook_id", notice->id);
        log_text("detail", detail);
        log_int("again_in_ms", in_ms);
        log_end();
    }
    notify->waits = !notify->has_later; /* other settings need not wait for the former endpoint's pause */
    wake(notify, notify->has_later ? 0 : in_ms);
}

static void give_up(struct notify *notify, const char *detail)
{
    const struct notice *notice = notify->first;
    if (log_begin(LOG_ERROR, "notify_given_up")) {
        log_text("kind", notify_kind_name(notice->kind));
        log_text("operation", notice->operation);
        log_text("webhook_id", notice->id);
        log_text("detail", detail);
        log_end();
    }
    notify->stats.given_up++;
    pop(notify, true); /* it is told again after the next start, if it still waits then */
}

static bool is_refusal(int status)
{
    return status >= 400 && status < 500 && status != 408 && status != 425 && status != 429;
}

static void posted(void *user, const struct webhook_report *report)
{
    struct notify *notify = user;
    struct notice *notice = notify->first;
    notify->busy = notify->posting = false;
    MARK_IF(report->delivered, notified);
    if (notify->closing) /* told or not: what waits after the next start is told then, with the same id */
        return;
    if (report->delivered) {
        notify->stats.told[notice->kind]++;
        notify->backoff_ms = 0;
        log_message(LOG_DEBUG, "notify", "%s %s: told", notify_kind_name(notice->kind), notice->operation);
        pop(notify, true);
        go_on(notify);
        return;
    }
    notify->stats.failures++;
    notice->refusals += is_refusal(report->status);
    bool over = notice->refusals >= NOTIFY_REFUSALS_MAX || now_of(notify) - notice->since_ms >= NOTIFY_GIVE_UP_MS;
    if (!over) {
        fail(notify, report->detail, report->retry_after_ms);
        return;
    }
    give_up(notify, report->detail);
    go_on(notify);
}

static void post(struct notify *notify)
{
    const struct notice *notice = notify->first;
    const struct webhook_message message = {
        .id = notice->id,
        .now_ms = now_of(notify),
        .body = buf_str(&notify->job->body),
    };
    notify->busy = notify->posting = true;
    MARK(before_notify);
    webhook_post(notify->webhooks, &notify->settings.endpoint, &message, posted, notify);
}

static void write_body(struct notify *notify)
{
    struct job *job = notify->job;
    const struct notice *notice = notify->first;
    const struct registry *registry = engine_registry(notify->engine);
    struct buf *out = &job->body;
    buf_reset(out);
    buf_printf(out, "{\"type\":\"%s\",\"timestamp\":", notify_kind_type(notice->kind));
    shape_time(out, job->incident ? job->incident->at_ms : job->op ? job->op->updated_ms : notice->since_ms);
    buf_add_text(out, ",\"data\":{\"tenant\":");
    if (job->tenant)
        json_write_string(out, str_of(job->tenant));
    else
        buf_add_text(out, "null");
    buf_printf(out, ",\"operation_id\":\"%s\",\"operation\":", notice->operation);
    if (job->op) {
        struct operation shown = *job->op;
        const struct shape_view view = {.arena = &job->arena, .now_ms = now_of(notify), .approver = true};
        if (!notify->settings.payload) {
            shown.arguments = shown.result = shown.error = STR_NONE;
            shown.external_id = NULL;
        }
        shape_operation(out, &shown, registry_find(registry, str_of(shown.tool)), &view);
    } else {
        buf_add_text(out, "null");
    }
    if (job->incident) {
        buf_add_text(out, ",\"incident\":");
        shape_incident(out, job->incident);
    }
    if (job->links.n > 0) {
        buf_add_text(out, ",\"links\":[");
        buf_add_str(out, buf_str(&job->links));
        buf_add_char(out, ']');
    }
    buf_add_text(out, "}}");
    job->ready = true;
}

/* ---- links for approvers ---- */

static bool wants_links(const struct notify *notify)
{
    return notify->first->kind == NOTIFY_APPROVAL && notify->settings.approver_count > 0 && notify->parts &&
           notify->parts->links.base;
}

static void next_approver(struct notify *notify);

/* Who made them stands in the operation's events: now they may go out. */
static void link_noted(void *user, const struct engine_reply *reply)
{
    struct notify *notify = user;
    struct job *job = notify->job;
    int64_t now_ms = now_of(notify);
    notify->busy = false;
    bool may = reply->kind == REPLY_OPERATION && wants_links(notify) && job->approver < notify->settings.approver_count;
    int64_t until_ms = may ? link_until(reply->op, &notify->parts->links, now_ms) : 0;
    if (until_ms) {
        struct json_out out;
        const struct link link = {
            .tenant = job->tenant,
            .operation = job->op->id,
            .approver = notify->settings.approvers[job->approver],
            .expires_ms = until_ms,
            .made_by = MADE_BY,
            .ground = job->ground,
        };
        job->op = operation_copy(&job->arena, reply->op);
        job->links_until_ms = until_ms;
        if (job->links.n > 0)
            buf_add_char(&job->links, ',');
        json_out_init(&out, &job->links);
        json_out_object(&out);
        link_write_both(&job->arena, engine_ledger(notify->engine)->secret, notify->parts->links.base, link, &out);
        json_out_end_object(&out);
    }
    job->approver++;
    if (notify->closing)
        go_on(notify);
    else
        next_approver(notify);
}

static bool may_decide(const struct notify *notify, const char *approver)
{
    struct job *job = notify->job;
    struct people_ground ground = {0};
    struct err err = {0};
    if (text_equal(approver, job->op->principal))
        return false;
    job->ground = LINK_GROUND_OPEN;
    if (!notify->parts->auth)
        return true;
    if (people_find(auth_people(notify->parts->auth), job->tokens, job->token_count, job->op, approver, now_of(notify),
                    &ground, &err)) {
        log_message(LOG_WARN, "notify", "%s: no links for %s: %s", job->op->id, approver, err.text);
        return false;
    }
    job->ground = link_ground(&job->arena, &ground);
    return true;
}

static void next_approver(struct notify *notify)
{
    struct job *job = notify->job;
    while (wants_links(notify) && job->approver < notify->settings.approver_count) {
        const char *approver = notify->settings.approvers[job->approver];
        if (may_decide(notify, approver)) {
            const struct engine_decision decision = {
                .kind = DECISION_LINK,
                .operation = job->op->id,
                .actor = MADE_BY,
                .approver = approver,
            };
            notify->busy = true;
            engine_decide(notify->engine, &decision, link_noted, notify);
            return;
        }
        job->approver++;
    }
    write_body(notify);
    post(notify);
}

static void tokens_known(struct ledger_request *request)
{
    struct notify *notify = request->user;
    notify->busy = false;
    notify->job->tokens = request->token_list.tokens;
    notify->job->token_count = request->code ? 0 : request->token_list.count;
    if (notify->closing)
        go_on(notify);
    else
        next_approver(notify);
}

/* ---- is it still so? ---- */

static void submit(struct notify *notify, enum ledger_command command, void (*done)(struct ledger_request *request))
{
    struct ledger_request *request = &notify->job->request;
    *request = (struct ledger_request){.command = command, .arena = &notify->job->arena, .done = done, .user = notify};
    if (command == LEDGER_GET)
        request->get.operation = notify->first->operation;
    notify->busy = true;
    ledger_submit(engine_ledger(notify->engine), request);
}

/* The incident among those of its operation; only the oldest are told there. */
static const struct incident *incident_of(const struct notice *notice, const struct ledger_get *get)
{
    for (size_t i = 0; i < get->incident_count; i++)
        if (strcmp(get->incidents[i].id, notice->incident) == 0)
            return &get->incidents[i];
    return NULL;
}

static bool still_waits(struct notify *notify)
{
    const struct notice *notice = notify->first;
    const struct job *job = notify->job;
    char id[NOTIFY_ID_SIZE];
    if (job->incident && job->incident->acknowledged_by)
        return false;
    return notify_id(notice->kind, job->op, notice->incident, now_of(notify), id) && strcmp(id, notice->id) == 0;
}

static void looked(struct ledger_request *request)
{
    struct notify *notify = request->user;
    struct job *job = notify->job;
    const struct ledger_get *get = &request->get;
    notify->busy = false;
    if (notify->closing) {
        go_on(notify);
        return;
    }
    if (request->code && request->code != ERR_NOT_FOUND) {
        fail(notify, request->err.text, 0);
        return;
    }
    job->op = request->code ? NULL : get->op;
    job->incident = request->code ? NULL : incident_of(notify->first, get);
    job->tenant = job->op ? job->op->tenant : job->incident ? job->incident->tenant : NULL;
    if (!still_waits(notify)) {
        notify->stats.moot++;
        pop(notify, false);
        go_on(notify);
    } else if (job->ready && (!job->links.n || job->links_until_ms > now_of(notify))) {
        post(notify); /* once more, as it was */
    } else if (wants_links(notify)) {
        job->approver = 0;
        buf_reset(&job->links);
        submit(notify, LEDGER_TOKEN_LIST, tokens_known);
    } else {
        write_body(notify);
        post(notify);
    }
}

static void begin(struct notify *notify)
{
    if (!notify->job) {
        notify->job = mem_zero(sizeof *notify->job);
        buf_init(&notify->job->links, 0);
        buf_init(&notify->job->body, 0);
    } else {
        arena_release(&notify->job->arena);
    }
    arena_init(&notify->job->arena);
    submit(notify, LEDGER_GET, looked);
}

/* ---- going on ---- */

static void take_settings(struct notify *notify)
{
    const char *former = notify->settings.endpoint.url;
    bool other = !text_equal(former, notify->later.endpoint.url) || notify->settings.kinds != notify->later.kinds;
    if (other) {
        forget_all(notify);
        scan_again(notify);
        notify->backoff_ms = 0;
    }
    job_free(notify); /* it is written anew */
    arena_release(&notify->arena);
    notify->arena = notify->later_arena;
    notify->settings = notify->later;
    notify->has_later = false;
}

static void finish_close(struct notify *notify);

static void go_on(struct notify *notify)
{
    if (notify->closing)
        finish_close(notify);
    if (notify->closing || notify->busy)
        return;
    if (notify->has_later)
        take_settings(notify);
    if (!notify->settings.endpoint.url)
        return;
    if (!engine_recovered(notify->engine)) {
        wake(notify, SETTLE_MS);
        return;
    }
    if (notify->behind && notify->scan == SCAN_DONE && !notify->first)
        scan_again(notify);
    while (notify->scan != SCAN_DONE && !scan_wanted(notify))
        scan_next(notify);
    if (notify->scan != SCAN_DONE && notify->count <= QUEUE_LOW)
        scan_page(notify);
    else if (notify->first)
        begin(notify);
}

static void fired(uv_timer_t *timer)
{
    struct notify *notify = timer->data;
    notify->waits = false;
    go_on(notify);
}

/* ---- start, end ---- */

enum err_code notify_new(uv_loop_t *loop, struct engine *engine, struct notify **out, struct err *err)
{
    struct webhooks *webhooks;
    enum err_code code = webhooks_new(loop, &webhooks, err);
    if (code)
        return code;
    struct notify *notify = mem_zero(sizeof *notify);
    notify->loop = loop;
    notify->engine = engine;
    notify->webhooks = webhooks;
    notify->end = &notify->first;
    notify->told = mem_zero(NOTIFY_TOLD_MAX * sizeof *notify->told);
    map_init(&notify->ids);
    arena_init(&notify->arena);
    uv_timer_init(loop, &notify->timer);
    notify->timer.data = notify;
    engine_on_change(engine, changed, notify);
    *out = notify;
    return ERR_NONE;
}

static struct str copy_bytes(struct arena *arena, struct str bytes)
{
    return bytes.p ? arena_str(arena, bytes) : STR_NONE;
}

void notify_configure(struct notify *notify, const struct notify_settings *settings)
{
    struct notify_settings *copy = &notify->later;
    struct arena *arena = &notify->later_arena;
    if (notify->has_later)
        arena_release(arena);
    arena_init(arena);
    *copy = *settings;
    copy->endpoint.url = arena_copy_text(arena, settings->endpoint.url);
    copy->endpoint.ca = arena_copy_text(arena, settings->endpoint.ca);
    copy->endpoint.secret = copy_bytes(arena, settings->endpoint.secret);
    const char **approvers = arena_zero(arena, (settings->approver_count + 1) * sizeof *approvers);
    for (size_t i = 0; i < settings->approver_count; i++)
        approvers[i] = arena_copy_text(arena, settings->approvers[i]);
    copy->approvers = approvers;
    notify->has_later = true;
    notify->waits = false;
    wake(notify, 0);
}

void notify_set_door(struct notify *notify, const struct door_parts *parts)
{
    notify->parts = parts;
}

struct notify_stats notify_stats(const struct notify *notify)
{
    struct notify_stats stats = notify->stats;
    stats.queued = notify->count;
    return stats;
}

static void webhooks_closed(void *user)
{
    struct notify *notify = user;
    void (*closed)(void *user) = notify->closed;
    void *closed_user = notify->closed_user;
    forget_all(notify);
    arena_release(&notify->arena);
    if (notify->has_later)
        arena_release(&notify->later_arena);
    map_release(&notify->ids);
    free(notify->told);
    free(notify);
    closed(closed_user);
}

static void timer_closed(uv_handle_t *handle)
{
    struct notify *notify = handle->data;
    webhooks_close(notify->webhooks, webhooks_closed, notify);
}

/* What asks the ledger comes back by itself; a POST is ended. */
static void finish_close(struct notify *notify)
{
    if (notify->ending || (notify->busy && !notify->posting))
        return;
    notify->ending = true;
    uv_close((uv_handle_t *)&notify->timer, timer_closed);
}

void notify_close(struct notify *notify, void (*closed)(void *user), void *user)
{
    notify->closing = true;
    notify->closed = closed;
    notify->closed_user = user;
    engine_on_change(notify->engine, NULL, NULL);
    uv_timer_stop(&notify->timer);
    go_on(notify);
}
