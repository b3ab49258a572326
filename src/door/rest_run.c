/* GET /v1/runs/{run_id}: what really happened in a run, so that an application can check what a model claims. The
 * summary counts the whole run, whatever page is shown. */
#include "door/ask.h"
#include "door/rest.h"
#include "door/run.h"

struct run {
    const char *id, *next;
    const char *cursor; /* of the page that is shown, NULL = from the first */
    size_t limit;
    struct run_summary summary;
    struct arena page; /* of the pages that are only counted */
};

static void finish(struct exchange *exchange, struct run *run)
{
    struct json_out out;
    struct buf *answer = &exchange->answer;
    arena_release(&run->page);
    rest_write_next(exchange, run->next);
    buf_add_char(answer, ',');
    json_out_init(&out, answer);
    json_out_object(&out);
    answer->n--; /* the object is open already */
    run_write(&run->summary, &out);
    json_out_end_object(&out);
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
        run_count(&run->summary, list->ops[i]);
    run->summary.cut = list->next && run->summary.total >= RUN_OPERATIONS_MAX;
    if (!list->next || run->summary.cut) {
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
            run_count(&run->summary, request->list.ops[i]);
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
