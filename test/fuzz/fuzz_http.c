/* The HTTP door over a real socket: request line, headers and an empty line, then the body; length, host and version
 * are added, so that most inputs reach a route. With a "!" in front the bytes go out as they are. Behind the routes
 * stands an engine that is played (support/fake_engine.h). Whatever comes in, the answer is HTTP, never a 500, and what
 * claims to be JSON is JSON. */
#include "fuzz.h"

#include "core/identity.h"
#include "door/http.h"
#include "support/fake_engine.h"
#include "support/http_client.h"

#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#define NOW_MS INT64_C(1790000000000)
#define OP_1   "op_01J00000000000000000000001"
#define OP_2   "op_01J00000000000000000000002"

struct stage {
    uv_loop_t loop;
    struct engine engine;
    struct registry *registry;
    struct provider provider;
    struct tool tool;
    struct http_door *door;
    struct operation done, unknown;
    struct event event;
    struct attempt attempt;
    struct incident incident;
    struct tombstone tombstone;
};

static void make_operation(struct operation *op, const char *id, enum state state)
{
    *op = (struct operation){
        .tenant = "default",
        .tool = "refund.create",
        .principal = "local",
        .key = "refund:pay_1",
        .key_version = 1,
        .created_ms = NOW_MS - 5000,
        .updated_ms = NOW_MS - 4000,
        .completed_ms = state_terminal(state) ? NOW_MS - 4000 : 0,
        .state = state,
        .rev = 2,
        .attempts = 1,
        .tries = 1,
        .run = "run_1",
        .arguments = STR("{\"payment_id\":\"pay_1\",\"card\":{\"number\":\"4242\"}}"),
        .result = STR("{\"id\":\"re_1\"}"),
    };
    snprintf(op->id, sizeof op->id, "%s", id);
    op->key_hash = identity_key_hash("default", "refund.create", "refund:pay_1", NULL);
}

static void fill_ledger(struct stage *stage)
{
    struct engine *engine = &stage->engine;
    make_operation(&stage->done, OP_1, STATE_COMPLETED_SUCCESS);
    make_operation(&stage->unknown, OP_2, STATE_UNKNOWN_OUTCOME);
    engine->ops[0] = &stage->done;
    engine->ops[1] = &stage->unknown;
    engine->op_count = 2;
    stage->event = (struct event){.at_ms = NOW_MS, .cause = CAUSE_ADMITTED, .actor = "local"};
    stage->attempt = (struct attempt){.id = "at_01J00000000000000000000001", .number = 1, .started_ms = NOW_MS};
    stage->incident = (struct incident){.id = "in_01J00000000000000000000001", .tenant = "default", .operation = OP_1};
    stage->tombstone = (struct tombstone){.operation = "op_01J00000000000000000000009",
                                          .tenant = "default",
                                          .tool = "refund.create",
                                          .principal = "local"};
    stage->tombstone.state = STATE_COMPLETED_SUCCESS;
    engine->events = &stage->event, engine->event_count = 1;
    engine->attempts = &stage->attempt, engine->attempt_count = 1;
    engine->incidents = &stage->incident, engine->incident_count = 1;
    engine->tombstone = &stage->tombstone;
}

static struct stage *open_stage(void)
{
    static struct stage *stage;
    static const char *const redact[] = {"/card/number"};
    struct err err = {0};
    if (stage)
        return stage;
    stage = calloc(1, sizeof *stage);
    CHECK(stage && uv_loop_init(&stage->loop) == 0);
    stage->provider = (struct provider){.name = "payments"};
    stage->tool = (struct tool){.name = "refund.create",
                                .class = CLASS_EXTERNAL_IDEMPOTENT,
                                .provider = &stage->provider,
                                .redact_pointers = redact,
                                .redact_count = 1,
                                .reconcile = {.strategies = {STRATEGY_LOOKUP, STRATEGY_MANUAL}, .strategy_count = 2}};
    const struct tool *tools[] = {&stage->tool};
    const struct provider *providers[] = {&stage->provider};
    CHECK(registry_new(tools, 1, providers, 1, "abcdef012345", NULL, NULL, &stage->registry, &err) == 0);
    fake_engine_init(&stage->engine, stage->registry);
    stage->engine.now_ms = NOW_MS;
    stage->engine.recovered = true;
    fill_ledger(stage);
    const struct http_door_options options = {
        .loop = &stage->loop, .engine = &stage->engine, .address = "127.0.0.1", .body_bytes_max = 64 * 1024};
    CHECK(http_door_new(&options, &stage->door, &err) == 0);
    return stage;
}

static bool holds(struct str text, struct str part)
{
    for (size_t i = 0; i + part.n <= text.n; i++)
        if (strncasecmp(text.p + i, part.p, part.n) == 0)
            return true;
    return false;
}

static void reset(struct stage *stage)
{
    struct engine *engine = &stage->engine;
    for (size_t i = 0; i < engine->token_count; i++) {
        free((char *)engine->tokens[i].id);
        free((char *)engine->tokens[i].tenant);
        free((char *)engine->tokens[i].principal);
    }
    engine->token_count = 0;
    engine->calls = 0;
    static const struct err none;
    engine->reply =
        (struct engine_reply){.kind = REPLY_OPERATION, .op = &stage->done, .tool = &stage->tool, .err = &none};
}

/* The request as it leaves. */
static void assemble(struct str input, struct buf *out)
{
    const char *empty = input.n ? memmem(input.p, input.n, "\n\n", 2) : NULL;
    struct str head = {input.p, empty ? (size_t)(empty - input.p) : input.n};
    struct str body = empty ? (struct str){empty + 2, input.n - head.n - 2} : STR_NONE;
    struct str line, headers;
    fuzz_split(head, &line, &headers);
    buf_add_str(out, line);
    buf_add_text(out, " HTTP/1.1\r\nHost: localhost\r\n");
    if (body.n > 0)
        buf_printf(out, "Content-Type: application/json\r\nContent-Length: %zu\r\n", body.n);
    while (headers.n > 0) {
        struct str next;
        fuzz_split(headers, &line, &next);
        headers = next;
        if (line.n == 0)
            continue;
        buf_add_str(out, line);
        buf_add_text(out, "\r\n");
    }
    buf_add_text(out, "\r\n");
    buf_add_str(out, body);
}

static void check_call(const struct engine *engine)
{
    if (engine->calls == 0)
        return;
    CHECK(engine->tool[0] && engine->tenant[0] && engine->principal[0]);
    CHECK(strlen(engine->key) <= OPERATION_KEY_BYTES_MAX && engine->wait_ms <= ENGINE_WAIT_MS_MAX);
    CHECK(engine->distinct_count <= ADMISSION_DISTINCT_MAX);
}

static void check_answer(struct http_answer *answer)
{
    CHECK(answer->status >= 200 && answer->status < 600 && answer->status != 500);
    const char *type = http_answer_header(answer, "Content-Type");
    if (type && answer->body.n > 0 && strstr(type, "json"))
        CHECK(answer->json);
    if (answer->json && strstr(type, "problem+json"))
        CHECK(json_get_int(answer->json, "status", 0) == answer->status && json_get_text(answer->json, "type").n > 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct stage *stage = open_stage();
    struct str input = {(const char *)data, size};
    struct http_answer answer;
    struct buf request;
    bool raw = size > 0 && data[0] == '!';
    if (size == 0 || size > 60000)
        return 0;
    reset(stage);
    buf_init(&request, 0);
    if (raw)
        buf_add(&request, input.p + 1, input.n - 1);
    else
        assemble(input, &request);
    /* with a length of its own it need not be whole */
    raw |= holds(input, STR("transfer-encoding")) || holds(input, STR("content-length"));
    int fd = http_connect(http_door_port(stage->door));
    CHECK(fd >= 0);
    if (http_send(&stage->loop, fd, request.p ? request.p : "", request.n)) {
        if (raw)
            shutdown(fd, SHUT_WR);
        http_receive(&stage->loop, fd, NULL, strncmp(request.p ? request.p : "", "HEAD ", 5) == 0, raw ? 10 : 5000,
                     &answer);
        CHECK(raw || answer.status != -1); /* a whole request is answered or its connection is closed */
        check_call(&stage->engine);
        if (answer.status > 100) /* 100: Expect was read, the answer comes behind */
            check_answer(&answer);
        http_answer_release(&answer);
    }
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &(struct linger){.l_onoff = 1}, sizeof(struct linger)); /* no port is kept */
    close(fd);
    uv_run(&stage->loop, UV_RUN_NOWAIT);
    buf_release(&request);
    return 0;
}
