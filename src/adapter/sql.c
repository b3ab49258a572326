/* The wire of the SQL adapter: one transaction per call or look-up.
 *
 *   call     BEGIN ─► claim ─┬─ new ──► statements ─► record ─► COMMIT ─► success
 *                            └─ there ─► stored result ─► ROLLBACK ─► success
 *   look-up  BEGIN ─► claim ─┬─ new ──► ROLLBACK ─► absent
 *                            └─ there ─► stored result ─► ROLLBACK ─► found
 *   read     BEGIN READ ONLY ─► statements ─► ROLLBACK ─► success
 *
 * The claim inserts the record's key. It waits for a transaction that holds the same key, until that one has committed
 * or rolled back: that is why its word is final. One statement at a time is on the wire; COMMIT only after all others
 * were answered, so that a client that died before has committed nothing, and one that died after holds the key. */
#include "adapter/sql.h"

#include "adapter/sql_link.h"
#include "adapter/sql_parts.h"
#include "base/env.h"
#include "base/mark.h"
#include "base/mem.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

struct sql_adapter {
    struct adapter base;
    struct sql_links links;
    struct exchange *exchanges;
    bool closing, links_closed;
    void (*closed)(void *user);
    void *closed_user;
};

struct exchange {
    struct sql_adapter *adapter;
    struct exchange *next, *before;
    struct sql_tool *tool; /* a reference */
    enum attempt_kind kind;
    struct arena arena;
    adapter_done *done;
    void *user;
    struct sql_call call;
    struct err refusal; /* it could not be built */
    struct sql_link *link;
    enum sql_stage stage;
    size_t statement;
    struct sql_rows *rows; /* by statement */
    /* answer to what is on the wire */
    struct sql_rows reply;
    char tag[24]; /* "COMMIT" */
    struct sql_fault fault;
    bool has_fault;
    /* what the caller will get */
    struct adapter_answer answer;
    uv_timer_t deadline;
};

static struct sql_adapter *sql_adapter_of(struct adapter *adapter)
{
    return (struct sql_adapter *)adapter;
}

/* ---- life of an exchange ---- */

static void adapter_free_when_closed(struct sql_adapter *adapter)
{
    if (!adapter->links_closed || adapter->exchanges)
        return;
    void (*closed)(void *user) = adapter->closed;
    void *user = adapter->closed_user;
    free(adapter);
    if (closed)
        closed(user);
}

static void on_deadline_closed(uv_handle_t *handle)
{
    struct exchange *exchange = handle->data;
    struct sql_adapter *adapter = exchange->adapter;
    if (exchange->before)
        exchange->before->next = exchange->next;
    else
        adapter->exchanges = exchange->next;
    if (exchange->next)
        exchange->next->before = exchange->before;
    sql_tool_unref(exchange->tool);
    arena_release(&exchange->arena);
    free(exchange);
    adapter_free_when_closed(adapter);
}

/* Answers once and lets go. keep: the transaction has ended, the connection is good for another one. */
static void finish(struct exchange *exchange, bool keep)
{
    struct sql_link *link = exchange->link;
    exchange->link = NULL;
    if (link && keep)
        sql_link_give_back(link);
    else if (link)
        sql_link_drop(link);
    uv_close((uv_handle_t *)&exchange->deadline, on_deadline_closed);
    exchange->done(exchange->user, &exchange->answer);
}

/* ---- what the caller gets ---- */

static struct str error_json(struct exchange *exchange, const char *message, const struct sql_fault *fault)
{
    struct buf text;
    struct json_out out;
    buf_init(&text, 0);
    json_out_init(&out, &text);
    json_out_object(&out);
    json_out_member_text(&out, "message", message);
    if (fault && fault->state[0]) {
        json_out_member_text(&out, "code", fault->state);
        json_out_name(&out, "provider");
        json_out_object(&out);
        json_out_member_text(&out, "message", fault->message);
        json_out_member_text(&out, "detail", fault->detail);
        json_out_member_text(&out, "hint", fault->hint);
        json_out_member_text(&out, "constraint", fault->constraint);
        json_out_end_object(&out);
    }
    json_out_end_object(&out);
    struct str copy = arena_str(&exchange->arena, buf_str(&text));
    buf_release(&text);
    return copy;
}

/* Look-ups know found and absent; whatever else happens to them is "cannot tell". */
static void plan(struct exchange *exchange, enum outcome outcome, const char *message, const struct sql_fault *fault)
{
    bool lookup = exchange->kind == ATTEMPT_LOOKUP;
    exchange->answer = (struct adapter_answer){.outcome = lookup ? OUTCOME_CANNOT_TELL : outcome, .detail = message};
    if (outcome != OUTCOME_NOOP)
        exchange->answer.error = error_json(exchange, message, fault);
}

static bool is_outcome_planned(const struct exchange *exchange)
{
    return exchange->stage == SQL_STAGE_ROLLBACK;
}

/* The connection is gone, or is given up. */
static void lost(struct exchange *exchange, bool timed_out, const char *why)
{
    enum sql_stage stage = exchange->stage;
    if (!is_outcome_planned(exchange)) {
        const char *words =
            stage == SQL_STAGE_COMMIT || stage == SQL_STAGE_CONNECT
                ? why
                : arena_printf(&exchange->arena, "%s: nothing was committed, the transaction is rolled back", why);
        plan(exchange, sql_lost_outcome(stage, timed_out), words, NULL);
    }
    finish(exchange, false);
}

static const char *connection_words(struct exchange *exchange)
{
    struct sql_fault fault;
    sql_fault_read(NULL, exchange->link->conn, &exchange->arena, &fault);
    return fault.message;
}

/* ---- the wire ---- */

static void step(struct exchange *exchange);

/* Hands the system what it takes. */
static bool flush(struct exchange *exchange)
{
    int left = PQflush(exchange->link->conn);
    if (left >= 0 && sql_link_watch(exchange->link, left > 0) == ERR_NONE)
        return true;
    lost(exchange, false, connection_words(exchange));
    return false;
}

static void begin_reply(struct exchange *exchange, enum sql_stage stage)
{
    exchange->stage = stage;
    exchange->reply = (struct sql_rows){0};
    exchange->has_fault = false;
    exchange->tag[0] = '\0';
}

/* Statements of ours without values. */
static bool send_words(struct exchange *exchange, enum sql_stage stage, const char *text)
{
    begin_reply(exchange, stage);
    if (PQsendQuery(exchange->link->conn, text))
        return flush(exchange);
    lost(exchange, false, connection_words(exchange));
    return false;
}

static void send_values(struct exchange *exchange, enum sql_stage stage, const char *text, int count,
                        const char *const *values)
{
    begin_reply(exchange, stage);
    if (!PQsendQueryParams(exchange->link->conn, text, count, NULL, values, NULL, NULL, 0))
        lost(exchange, false, connection_words(exchange));
    else if (stage == SQL_STAGE_STATEMENT && !PQsetSingleRowMode(exchange->link->conn))
        lost(exchange, false, "the rows cannot be read one by one");
    else
        flush(exchange);
}

static void roll_back(struct exchange *exchange)
{
    send_words(exchange, SQL_STAGE_ROLLBACK, "ROLLBACK");
}

static void fail(struct exchange *exchange, enum outcome outcome, const char *message)
{
    plan(exchange, outcome, message, NULL);
    roll_back(exchange);
}

/* ---- the transaction's parts ---- */

static void send_claim(struct exchange *exchange)
{
    const struct sql_call *call = &exchange->call;
    const char *const values[] = {call->key, exchange->tool->name, call->operation, call->fingerprint};
    send_values(exchange, SQL_STAGE_CLAIM, exchange->tool->provider->claim, 4, values);
}

static void send_statement(struct exchange *exchange)
{
    const struct sql_values *values = &exchange->call.values[exchange->statement];
    send_values(exchange, SQL_STAGE_STATEMENT, exchange->tool->statements[exchange->statement].text, (int)values->count,
                values->items);
}

static void send_record(struct exchange *exchange)
{
    const struct adapter_answer *answer = &exchange->answer;
    const char *const values[] = {exchange->call.key, arena_copy_str(&exchange->arena, answer->result),
                                  answer->external_id};
    MARK(sql_executed);
    send_values(exchange, SQL_STAGE_RECORD, exchange->tool->provider->record, 3, values);
}

static void send_commit(struct exchange *exchange)
{
    MARK(sql_recorded);
    MARK(request_let_out);
    if (send_words(exchange, SQL_STAGE_COMMIT, "COMMIT"))
        MARK(request_written);
}

/* ---- judging ---- */

/* The key was not there. For as long as records are kept that is proof: whoever could still commit would hold it. */
static void judge_absent(struct exchange *exchange)
{
    struct env *env = env_system();
    if (sql_absent_counts(exchange->tool->provider, exchange->call.operation, env->now_ms(env)))
        exchange->answer = (struct adapter_answer){.outcome = OUTCOME_ABSENT, .detail = "there is no record of it"};
    else
        plan(exchange, OUTCOME_CANNOT_TELL, "the operation is older than records are kept (sql.retention)", NULL);
    roll_back(exchange);
}

static void judge_stored(struct exchange *exchange)
{
    const struct json *list = &exchange->reply.list;
    bool there = list->type == JSON_ARRAY && list->count == 1;
    const struct json *row = there ? &list->items[0] : NULL;
    struct str result = json_get_text(row, "result"), id = json_get_text(row, "external_id"),
               fingerprint = json_get_text(row, "fingerprint");
    struct json *parsed = NULL;
    struct json_limits limits = json_limits_default;
    limits.bytes_max = HTTP_ANSWER_BYTES_MAX;
    if (!there) /* pruned meanwhile */
        plan(exchange, OUTCOME_NOT_PROCESSED, "the record has gone while it was read", NULL);
    else if (!sql_record_is_ours(&exchange->call, fingerprint))
        plan(exchange, OUTCOME_WRONG_OBJECT, "the record of this key is of a call with other arguments", NULL);
    else if (result.p && json_parse(&exchange->arena, result, &limits, &parsed, NULL) != ERR_NONE)
        plan(exchange, OUTCOME_UNREADABLE, "the record's result is no JSON", NULL);
    else
        exchange->answer = (struct adapter_answer){
            .outcome = exchange->kind == ATTEMPT_LOOKUP ? OUTCOME_FOUND : OUTCOME_SUCCESS,
            .detail = "committed by an earlier attempt: the stored result",
            .result = result,
            .external_id = id.p ? arena_copy_str(&exchange->arena, id) : NULL,
        };
    roll_back(exchange);
}

/* What callers get, worked out before COMMIT: an error in it has no effect. */
static enum err_code extract(struct exchange *exchange, const struct json *document, bool *noop, struct err *err)
{
    const struct sql_tool *tool = exchange->tool;
    const struct json *id = NULL, *result = NULL;
    enum err_code code = ERR_NONE;
    *noop = false;
    if (tool->noop_when)
        code = jq_program_test(tool->noop_when, document, noop, err);
    if (code)
        return err_prefix(err, "noop_when: "), code;
    if (!*noop)
        code = http_extract_run(&tool->external_id, document, &exchange->arena, &id, err);
    const char *text = http_id_text(&exchange->arena, id);
    if (!code && id && !text)
        code = err_set(err, ERR_INVALID, "is no text or number");
    if (code)
        return err_prefix(err, "external_id: "), code;
    code = http_extract_run(&tool->result, document, &exchange->arena, &result, err);
    if (code)
        return err_prefix(err, "result: "), code;
    exchange->answer = (struct adapter_answer){.outcome = OUTCOME_SUCCESS,
                                               .external_id = text,
                                               .result = result ? json_to_text(&exchange->arena, result) : STR_NONE};
    return ERR_NONE;
}

static void judge_all(struct exchange *exchange)
{
    const struct json *document = sql_document(exchange->rows, exchange->tool->statement_count, &exchange->arena);
    struct err err = {0};
    bool noop = false;
    if (extract(exchange, document, &noop, &err) != ERR_NONE) {
        fail(exchange, OUTCOME_REFUSED, arena_copy_text(&exchange->arena, err.text));
    } else if (noop) {
        exchange->answer.outcome = OUTCOME_NOOP;
        roll_back(exchange);
    } else if (!exchange->tool->write) {
        roll_back(exchange);
    } else {
        send_record(exchange);
    }
}

static void judge_statement(struct exchange *exchange)
{
    const struct sql_statement *statement = &exchange->tool->statements[exchange->statement];
    struct sql_rows *rows = &exchange->rows[exchange->statement];
    *rows = exchange->reply;
    if (PQtransactionStatus(exchange->link->conn) != PQTRANS_INTRANS) { /* sql_statement_fault() keeps it from being */
        plan(exchange, OUTCOME_UNREADABLE, "the statement has ended the transaction", NULL);
        finish(exchange, false);
    } else if (!sql_rows_fit(statement, rows->affected)) {
        const char *words = statement->refusal;
        if (!words)
            words = arena_printf(&exchange->arena, "statement %zu met %lld rows, expected %lld: all is rolled back",
                                 exchange->statement + 1, (long long)rows->affected, (long long)statement->expect_rows);
        fail(exchange, OUTCOME_REFUSED, words);
    } else if (++exchange->statement < exchange->tool->statement_count) {
        send_statement(exchange);
    } else {
        judge_all(exchange);
    }
}

static void judge_claim(struct exchange *exchange)
{
    MARK(sql_claimed);
    enum sql_stage next = sql_after_claim(exchange->kind, exchange->reply.affected);
    if (next == SQL_STAGE_STORED)
        send_values(exchange, SQL_STAGE_STORED, exchange->tool->provider->stored, 1,
                    (const char *const[]){exchange->call.key});
    else if (next == SQL_STAGE_ROLLBACK)
        judge_absent(exchange);
    else
        send_statement(exchange);
}

static void judge_commit(struct exchange *exchange)
{
    MARK(sql_committed);
    if (strcmp(exchange->tag, "COMMIT") != 0) /* of a transaction that had failed, which is seen before */
        plan(exchange, OUTCOME_NOT_PROCESSED, "the server rolled the transaction back", NULL);
    finish(exchange, true);
}

static void judge_fault(struct exchange *exchange)
{
    const char *words = NULL;
    enum sql_stage stage = exchange->stage;
    if (is_outcome_planned(exchange)) {
        finish(exchange, false);
        return;
    }
    enum outcome outcome = sql_fault_outcome(exchange->tool, stage, &exchange->fault, &exchange->arena, &words);
    plan(exchange, outcome, words, &exchange->fault);
    /* another session may be another server, or one that takes writes again */
    bool useless = exchange->fault.fatal || stage == SQL_STAGE_BEGIN || strcmp(exchange->fault.state, "25006") == 0;
    if (useless || stage == SQL_STAGE_COMMIT)
        finish(exchange, !useless);
    else
        roll_back(exchange);
}

/* All of the answer to what was sent last is there. */
static void judge(struct exchange *exchange)
{
    if (exchange->has_fault) {
        judge_fault(exchange);
        return;
    }
    switch (exchange->stage) {
    case SQL_STAGE_BEGIN:
        if (exchange->tool->write)
            send_claim(exchange);
        else
            send_statement(exchange);
        break;
    case SQL_STAGE_CLAIM: judge_claim(exchange); break;
    case SQL_STAGE_STORED: judge_stored(exchange); break;
    case SQL_STAGE_STATEMENT: judge_statement(exchange); break;
    case SQL_STAGE_RECORD:
        if (exchange->reply.affected == 1)
            send_commit(exchange);
        else
            fail(exchange, OUTCOME_REFUSED,
                 "the tool's statements have removed onced's own record: all is rolled back");
        break;
    case SQL_STAGE_COMMIT: judge_commit(exchange); break;
    case SQL_STAGE_ROLLBACK: finish(exchange, true); break;
    case SQL_STAGE_CONNECT: break; /* nothing was sent */
    }
}

/* ---- receiving ---- */

static void take_result(struct exchange *exchange, const PGresult *result)
{
    size_t bytes_max = exchange->stage == SQL_STAGE_STORED ? 2 * (size_t)HTTP_ANSWER_BYTES_MAX
                                                           : exchange->tool->provider->answer_bytes_max;
    ExecStatusType status = PQresultStatus(result);
    if (status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK || status == PGRES_SINGLE_TUPLE) {
        if (PQnfields(result) > 0)
            sql_rows_add(&exchange->reply, result, bytes_max, &exchange->arena);
        if (status != PGRES_SINGLE_TUPLE)
            exchange->reply.affected = strtoll(PQcmdTuples((PGresult *)result), NULL, 10);
        snprintf(exchange->tag, sizeof exchange->tag, "%s", PQcmdStatus((PGresult *)result));
    } else if (status != PGRES_EMPTY_QUERY && !exchange->has_fault) {
        sql_fault_read(result, exchange->link->conn, &exchange->arena, &exchange->fault);
        exchange->has_fault = true;
    }
}

/* Takes what there is; true: the answer is complete. */
static bool receive(struct exchange *exchange)
{
    PGconn *conn = exchange->link->conn;
    while (!PQisBusy(conn)) {
        PGresult *result = PQgetResult(conn);
        if (!result)
            return true;
        take_result(exchange, result);
        PQclear(result);
    }
    return false;
}

static void connected_or_not(struct exchange *exchange)
{
    if (PQstatus(exchange->link->conn) != CONNECTION_OK)
        lost(exchange, false, connection_words(exchange));
    else
        send_words(exchange, SQL_STAGE_BEGIN,
                   exchange->tool->write ? exchange->tool->provider->begin_write
                                         : exchange->tool->provider->begin_read);
}

static void step(struct exchange *exchange)
{
    PGconn *conn = exchange->link->conn;
    if (exchange->stage == SQL_STAGE_CONNECT) {
        connected_or_not(exchange);
        return;
    }
    int left = PQflush(conn), alive = PQconsumeInput(conn); /* a dead connection may have last words */
    bool complete = receive(exchange);
    if (exchange->reply.over) {
        plan(exchange, OUTCOME_REFUSED, "the rows have more bytes than answer_bytes_max: all is rolled back", NULL);
        finish(exchange, false);
    } else if (exchange->has_fault && (exchange->fault.fatal || complete)) {
        judge_fault(exchange);
    } else if (complete) {
        judge(exchange);
    } else if (!alive || left < 0 || PQstatus(conn) != CONNECTION_OK) {
        lost(exchange, false, connection_words(exchange));
    } else if (sql_link_watch(exchange->link, left > 0) != ERR_NONE) {
        lost(exchange, false, "the connection cannot be watched");
    }
}

static void on_link(void *user)
{
    step(user);
}

static void on_deadline(uv_timer_t *timer)
{
    struct exchange *exchange = timer->data;
    if (exchange->refusal.code != ERR_NONE) {
        plan(exchange, OUTCOME_NOT_SENT, exchange->refusal.text, NULL);
        finish(exchange, false);
    } else {
        lost(exchange, true, exchange->stage == SQL_STAGE_CONNECT ? "no connection in time" : "no answer in time");
    }
}

/* ---- sending ---- */

static struct exchange *exchange_new(struct sql_adapter *adapter, const struct adapter_call *call, adapter_done *done,
                                     void *user)
{
    struct exchange *exchange = mem_zero(sizeof *exchange);
    exchange->adapter = adapter;
    exchange->tool = (struct sql_tool *)call->tool->adapter_tool;
    exchange->kind = call->kind;
    exchange->done = done;
    exchange->user = user;
    sql_tool_ref(exchange->tool);
    arena_init(&exchange->arena);
    exchange->rows = arena_zero(&exchange->arena, exchange->tool->statement_count * sizeof *exchange->rows);
    uv_timer_init(adapter->links.loop, &exchange->deadline);
    exchange->deadline.data = exchange;
    exchange->next = adapter->exchanges;
    if (adapter->exchanges)
        adapter->exchanges->before = exchange;
    adapter->exchanges = exchange;
    return exchange;
}

static void sql_send(struct adapter *base, const struct adapter_call *call, adapter_done *done, void *user)
{
    struct sql_adapter *adapter = sql_adapter_of(base);
    struct exchange *exchange = exchange_new(adapter, call, done, user);
    struct err *err = &exchange->refusal;
    enum err_code code = ERR_NONE;
    if (adapter->closing)
        code = err_set(err, ERR_UNAVAILABLE, "onced is stopping");
    if (!code)
        code = sql_call_build(exchange->tool, call, &exchange->arena, &exchange->call, err);
    if (!code)
        exchange->link = sql_links_take(&adapter->links, exchange->tool->provider, on_link, exchange);
    uv_timer_start(&exchange->deadline, on_deadline, code ? 0 : (uint64_t)exchange->tool->timeout_ms, 0);
}

/* ---- dry runs ---- */

static enum err_code sql_check(struct adapter *adapter, const struct adapter_call *call, struct err *err)
{
    struct arena arena;
    struct sql_call ignored;
    (void)adapter;
    arena_init(&arena);
    enum err_code code = sql_call_build(call->tool->adapter_tool, call, &arena, &ignored, err);
    arena_release(&arena);
    return code;
}

static enum err_code sql_describe(struct adapter *adapter, const struct adapter_call *call, struct json_out *out,
                                  struct err *err)
{
    (void)adapter;
    return sql_call_describe(call->tool->adapter_tool, call, out, err);
}

/* ---- life ---- */

static const struct adapter_ops sql_ops = {.check = sql_check, .describe = sql_describe, .send = sql_send};

enum err_code sql_adapter_new(uv_loop_t *loop, struct adapter **out, struct err *err)
{
    struct sql_adapter *adapter = mem_zero(sizeof *adapter);
    if (!PQisthreadsafe()) {
        free(adapter);
        return err_set(err, ERR_INTERNAL, "this libpq is not for programs with threads");
    }
    adapter->base.ops = &sql_ops;
    sql_links_init(&adapter->links, loop);
    *out = &adapter->base;
    return ERR_NONE;
}

static void on_links_closed(void *user)
{
    struct sql_adapter *adapter = user;
    adapter->links_closed = true;
    adapter_free_when_closed(adapter);
}

void sql_adapter_close(struct adapter *base, void (*closed)(void *user), void *user)
{
    struct sql_adapter *adapter = sql_adapter_of(base);
    adapter->closing = true;
    adapter->closed = closed;
    adapter->closed_user = user;
    for (struct exchange *exchange = adapter->exchanges, *next; exchange; exchange = next) {
        next = exchange->next; /* they are freed by the loop, later */
        if (!uv_is_closing((uv_handle_t *)&exchange->deadline))
            lost(exchange, false, "onced stopped before the answer");
    }
    sql_links_close(&adapter->links, on_links_closed, adapter);
}
