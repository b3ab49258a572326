/* GET /v1/runs/{run_id}: what really happened in a run, so that an application can check what a model claims. The
 * summary counts the whole run, whatever page is shown. */
#include "door/ask.h"
#include "door/rest.h"

#define RUN_OPERATIONS_MAX 10000 /* counted; a larger run is reported as not complete */

struct run {
    const char *id, *next;
    const char *cursor; /* of the page that is shown, NULL = from the first */
    size_t limit;
    bool cut; /* more than RUN_OPERATIONS_MAX */
    int64_t total, succeeded, failed, open, unknown, doubled;
    struct arena page; /* of the pages that are only counted */
};

static void count(struct run *run, const struct operation *op)
{
    run->total++;
    run->doubled += op->duplicate_seen;
    switch (op->state) {
    case STATE_COMPLETED_SUCCESS:
    case STATE_COMPLETED_NOOP: run->succeeded++; return;
    case STATE_FAILED_PERMANENT:
    case STATE_REJECTED:
    case STATE_COMPENSATED: run->failed++; return;
    case STATE_UNKNOWN_OUTCOME: run->unknown++; return;
    case STATE_PLANNED:
    case STATE_PENDING_DISPATCH:
    case STATE_DISPATCHED:
    case STATE_ACKNOWLEDGED:
    case STATE_FAILED_RETRYABLE:
    case STATE_COMPENSATING: run->open++; return;
    }
}

static const char *run_message(const struct run *run)
{
    if (run->total == 0)
        return "Nothing is recorded for this run.";
    if (run->cut)
        return "This run is too large to be summed up.";
    if (run->unknown > 0)
        return "For a part of this it is not known whether it was done.";
    if (run->open > 0)
        return "A part of this has not ended yet.";
    if (run->doubled > 0)
        return "A part of this was done possibly more than once; a person has to check.";
    if (run->failed == 0)
        return "All of this was done.";
    return run->succeeded == 0 ? "Nothing of this was done." : "A part of this was done, a part was not.";
}

static void finish(struct exchange *exchange, struct run *run)
{
    struct json_out out;
    struct buf *answer = &exchange->answer;
    arena_release(&run->page);
    rest_write_next(exchange, run->next);
    buf_add_char(answer, ',');
    buf_add_text(answer, "\"summary\":");
    json_out_init(&out, answer);
    json_out_object(&out);
    json_out_member_int(&out, "total", run->total);
    json_out_member_int(&out, "succeeded", run->succeeded);
    json_out_member_int(&out, "failed", run->failed);
    json_out_member_int(&out, "open", run->open);
    json_out_member_int(&out, "unknown", run->unknown);
    json_out_end_object(&out);
    buf_add_text(answer, ",\"complete\":");
    buf_add_text(answer, !run->cut && run->open == 0 && run->unknown == 0 ? "true" : "false");
    buf_add_text(answer, ",\"safe_user_message\":");
    json_write_string(answer, str_of(run_message(run)));
    buf_add_char(answer, '}');
    exchange_send(exchange, 200);
}

static void walk(struct exchange *exchange, struct run *run, const char *cursor);

static void counted(struct exchange *exchange, struct ledger_request *request)
{
    struct run *run = exchange->user;
    const struct ledger_list *list = &request->list;
    if (request->code) {
        arena_release(&run->page);
        rest_ledger_problem(exchange, request, "no such run");
        return;
    }
    for (size_t i = 0; i < list->count; i++)
        count(run, list->ops[i]);
    run->cut = list->next && run->total >= RUN_OPERATIONS_MAX;
    if (!list->next || run->cut) {
        finish(exchange, run);
        return;
    }
    const char *next = arena_copy_text(&exchange->arena, list->next);
    arena_reset(&run->page);
    walk(exchange, run, next);
}

/* Counting goes over everything from the first operation on, without payloads. */
static void walk(struct exchange *exchange, struct run *run, const char *cursor)
{
    struct ledger_request *request = ask_new(exchange, LEDGER_LIST);
    request->arena = &run->page;
    request->list.tenant = exchange->caller.tenant;
    request->list.run = run->id;
    request->list.oldest_first = true;
    request->list.before = cursor;
    request->list.limit = LEDGER_LIST_MAX;
    ask(exchange, request, counted);
}

static void show_page(struct exchange *exchange, struct ledger_request *request)
{
    struct run *run = exchange->user;
    struct buf *answer = &exchange->answer;
    if (request->code) {
        rest_ledger_problem(exchange, request, "no such run");
        return;
    }
    buf_add_text(answer, "{\"run_id\":");
    json_write_string(answer, str_of(run->id));
    buf_add_char(answer, ',');
    run->next = rest_write_operations(exchange, &request->list);
    if (!run->cursor && !request->list.next) { /* this page is all there is */
        for (size_t i = 0; i < request->list.count; i++)
            count(run, request->list.ops[i]);
        finish(exchange, run);
        return;
    }
    walk(exchange, run, NULL);
}

void rest_run(struct exchange *exchange)
{
    struct run *run = arena_zero(&exchange->arena, sizeof *run);
    run->id = exchange->params[0];
    arena_init(&run->page);
    exchange->user = run;
    if (!rest_page(exchange, operation_id_valid, &run->limit, &run->cursor))
        return;
    struct ledger_request *request = ask_new(exchange, LEDGER_LIST);
    request->list.tenant = exchange->caller.tenant;
    request->list.run = run->id;
    request->list.oldest_first = true;
    request->list.before = run->cursor;
    request->list.limit = run->limit;
    request->list.with_payload = true;
    ask(exchange, request, show_page);
}
