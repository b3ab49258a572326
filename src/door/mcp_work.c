#include "door/mcp_work.h"

#include "base/log.h"
#include "base/mem.h"
#include "door/suggest.h"

#include <stdlib.h>

#define PROGRESS_MS 5000 /* shorter than any client's time-out that starts anew with progress */

/* ---- questions to the ledger ---- */

/* The ledger may work on it after the client's request has gone: it has memory of its own. */
struct mcp_query {
    struct ledger_request ledger;
    struct arena arena;
    struct mcp_request *request; /* NULL = gone */
    mcp_work_answered *done;
    bool out; /* submitted, not answered yet */
};

static struct mcp_work *work_of(struct mcp_request *request)
{
    return request->user;
}

static void query_free(struct mcp_query *query)
{
    arena_release(&query->arena);
    free(query);
}

static void drop_query(struct mcp_work *work)
{
    struct mcp_query *query = work->query;
    work->query = NULL;
    if (query && query->out)
        query->request = NULL; /* freed when the ledger has answered */
    else if (query)
        query_free(query);
}

static void answered(struct ledger_request *ledger)
{
    struct mcp_query *query = ledger->user;
    query->out = false;
    if (query->request)
        query->done(query->request, ledger);
    else
        query_free(query);
}

struct ledger_request *mcp_work_query(struct mcp_request *request, enum ledger_command command, struct arena **arena)
{
    struct mcp_work *work = work_of(request);
    drop_query(work);
    struct mcp_query *query = mem_zero(sizeof *query);
    arena_init(&query->arena);
    query->request = request;
    query->ledger.command = command;
    query->ledger.arena = &query->arena;
    query->ledger.done = answered;
    query->ledger.user = query;
    work->query = query;
    if (arena)
        *arena = &query->arena;
    return &query->ledger;
}

void mcp_work_ask(struct mcp_request *request, mcp_work_answered *done)
{
    struct mcp_query *query = work_of(request)->query;
    query->done = done;
    query->out = true;
    ledger_submit(engine_ledger(request->session->door->engine), &query->ledger);
}

/* ---- time ---- */

struct mcp_pulse {
    uv_timer_t timer;
    struct mcp_request *request;
    void (*beat)(struct mcp_request *request);
};

static void pulse_closed(uv_handle_t *handle)
{
    free(handle->data);
}

void mcp_work_still(struct mcp_request *request)
{
    struct mcp_work *work = work_of(request);
    if (!work->pulse)
        return;
    uv_close((uv_handle_t *)&work->pulse->timer, pulse_closed);
    work->pulse = NULL;
}

static void beaten(uv_timer_t *timer)
{
    struct mcp_pulse *pulse = timer->data;
    pulse->beat(pulse->request);
}

void mcp_work_every(struct mcp_request *request, int64_t interval_ms, void (*beat)(struct mcp_request *request))
{
    mcp_work_still(request);
    struct mcp_pulse *pulse = mem_zero(sizeof *pulse);
    pulse->request = request;
    pulse->beat = beat;
    uv_timer_init(request->session->door->loop, &pulse->timer);
    pulse->timer.data = pulse;
    uv_timer_start(&pulse->timer, beaten, (uint64_t)interval_ms, (uint64_t)interval_ms);
    work_of(request)->pulse = pulse;
}

/* Values may only grow, and a server behind us counts in units of its own (mcp_forward.c): once it tells progress by
 * itself, nothing of ours comes between. */
static void tell_progress(struct mcp_request *request)
{
    struct mcp_work *work = work_of(request);
    const char *operation = work->waiter ? engine_waiting(work->waiter).operation : "";
    char text[64 + OPERATION_ID_SIZE], seconds[16];
    if (request->progress_told != work->beats) {
        mcp_work_still(request);
        return;
    }
    work->beats++;
    snprintf(seconds, sizeof seconds, "%u", work->beats * (PROGRESS_MS / 1000));
    snprintf(text, sizeof text, "still under way%s%s after %s s", operation[0] ? ": " : "", operation, seconds);
    mcp_progress(request, str_of(seconds), STR_NONE, str_of(text));
}

void mcp_work_progress(struct mcp_request *request)
{
    if (request->progress_token.p)
        mcp_work_every(request, PROGRESS_MS, tell_progress);
}

/* ---- the request ---- */

void mcp_work_release(struct mcp_request *request)
{
    struct mcp_work *work = work_of(request);
    mcp_work_still(request);
    drop_query(work);
    if (work->waiter)
        engine_caller_left(request->session->door->engine, work->waiter);
    work->waiter = NULL;
}

static void caller_away(struct mcp_request *request, bool away)
{
    struct mcp_work *work = work_of(request);
    if (work->waiter)
        engine_caller_away(request->session->door->engine, work->waiter, away);
}

void mcp_work_begin(struct mcp_request *request, struct mcp_work *work, void (*cancel)(struct mcp_request *request))
{
    *work = (struct mcp_work){0};
    request->user = work;
    request->release = mcp_work_release;
    request->cancel = cancel;
    request->away = caller_away;
}

/* ---- answers ---- */

struct mcp_result_view mcp_view(struct mcp_request *request, const struct operation *op, const struct tool *tool,
                                bool own_call)
{
    const struct mcp_session *session = request->session;
    struct env *env = engine_env(session->door->engine);
    bool privileged = session->role == ROLE_OPERATOR || session->role == ROLE_ADMIN;
    bool own = op && text_equal(op->principal, session->principal);
    bool outside = op && !own_call && !caller_covers(session->scope, op);
    return (struct mcp_result_view){
        .shape =
            {
                .arena = &request->arena,
                .now_ms = env->now_ms(env),
                .privileged = privileged,
                .own_call = own_call,
                .outside = outside,
                .withheld = outside || (op && !own_call && !privileged && !own && !shape_shared(op, tool)),
            },
        .era = request->era,
        .can_wait = session->door->settings.tool_wait,
        .can_status = session->door->settings.tool_status,
    };
}

/* Only the principal's own: what somebody else was told does not reach it. */
static void note_delivery(struct mcp_request *request, const struct engine_reply *reply)
{
    const struct operation *op = reply->op;
    if (reply->kind == REPLY_OPERATION && op->id[0] && state_terminal(op->state) && !op->delivered &&
        text_equal(op->principal, request->session->principal))
        mcp_request_set_delivery(request, op);
}

void mcp_answer_reply(struct mcp_request *request, const struct engine_reply *reply, const struct mcp_result_view *view)
{
    struct mcp_fault fault;
    if (mcp_reply_is_error(&request->arena, reply, view->tool ? view->tool : "", &fault)) {
        mcp_reply_error(request, fault.code,
                        reply->kind == REPLY_UNAVAILABLE ? STR("{\"retry_after_ms\":1000}") : STR_NONE, "%s",
                        fault.text);
        return;
    }
    struct buf out;
    buf_init(&out, 0);
    mcp_write_result(&out, reply, view);
    note_delivery(request, reply);
    mcp_reply(request, buf_str(&out));
    buf_release(&out);
}

void mcp_answer_ledger(struct mcp_request *request, const struct ledger_request *answer)
{
    if (answer->code == ERR_NOT_FOUND) {
        const struct err none = {0};
        const struct engine_reply reply = {.kind = REPLY_NOT_FOUND, .err = &none};
        const struct mcp_result_view view = mcp_view(request, NULL, NULL, false);
        mcp_answer_reply(request, &reply, &view);
        return;
    }
    if (log_begin(LOG_WARN, "request_failed")) {
        log_text("method", request->message.method);
        log_text("detail", answer->err.text);
        log_end();
    }
    mcp_reply_error(request, RPC_INTERNAL_ERROR, STR("{\"retry_after_ms\":1000}"),
                    "the ledger cannot be read: %s; ask again in a moment", answer->err.text);
}

const struct tool *mcp_find_tool(struct mcp_request *request, struct str name)
{
    const struct registry *registry = engine_registry(request->session->door->engine);
    const char *principal = request->session->principal;
    const struct tool *tool = registry_find(registry, name);
    const struct scope *scope = request->session->scope;
    struct err err = {0};
    if (tool && caller_may_use(registry, principal, scope, tool))
        return tool;
    if (tool && !scope_allows_tool(scope, tool->name)) { /* its own token says what it may: nothing is given away */
        scope_check(&request->arena, scope, tool->name, NULL, 0, &err);
        mcp_reply_error(request, RPC_INVALID_PARAMS, STR_NONE, "%s; nothing was run", err.text);
        return NULL;
    }
    struct suggestion nearest = suggestion_for(name);
    for (size_t i = 0; i < registry_tool_count(registry); i++) {
        const struct tool *other = registry_tool_at(registry, i);
        if (caller_may_use(registry, principal, scope, other))
            suggestion_offer(&nearest, other->name);
    }
    struct str shown = {name.p, name.n < 100 ? name.n : 100};
    if (nearest.name)
        mcp_reply_error(request, RPC_INVALID_PARAMS, STR_NONE, "no tool \"%.*s\"; did you mean \"%s\"?", STR_ARG(shown),
                        nearest.name);
    else
        mcp_reply_error(request, RPC_INVALID_PARAMS, STR_NONE, "no tool \"%.*s\"", STR_ARG(shown));
    return NULL;
}
