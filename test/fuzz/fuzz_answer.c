/* A provider's answer: whatever it says, it is judged without a crash, never as something that the status and the rules
 * rule out, and a look-up's progress can be used for the next page. First line: status, how it ended and which tool,
 * each one byte; the rest is the body. */
#include "fuzz.h"

#include "support/http_case.h"

/* libjq keeps its stack by a pointer to the stack's end, which the leak checker takes for lost. The unit tests, which
 * free their programs, watch for real leaks. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:libjq";
}

static const char provider[] =
    "{\"base_url\":\"http://127.0.0.1:1\",\"answer_bytes_max\":\"64KB\",\"key\":{\"header\":\"K\",\"in_use\":[409],"
    "\"mismatch\":[422]},\"not_processed\":[429,{\"status\":503,\"when\":\".safe\"}]}";
static const char *const tools[] = {
    "{\"request\":{\"path\":\"/\"},\"response\":{\"noop\":[{\"status\":409,\"code\":\"already\"}],\"success_when\":"
    "\".object == \\\"refund\\\"\",\"error_when\":\".errors\",\"external_id\":\"/id\",\"result\":{\"jq\":\".\"}},"
    "\"verify\":{\"/amount\":\"{amount}\"},\"lookup\":{\"request\":{\"path\":\"/l\"},\"items\":\"/data\",\"match\":"
    "{\"/op\":\"{$operation}\"},\"next\":{\"cursor\":\"/"
    "next\",\"query\":\"after\"},\"pending\":\".pending\",\"verify\":"
    "{\"/amount\":\"{amount}\"}}}",
    "{\"request\":{\"path\":\"/\"},\"response\":{\"body\":\"any\",\"result\":\"/"
    "data\"},\"lookup\":{\"request\":{\"path\":"
    "\"/l\"},\"items\":\"\",\"match\":{\"/op\":\"{$operation}\"},\"external_id\":\"/id\",\"next\":{\"url\":\"/0/"
    "next\"}}}",
    "{\"request\":{\"path\":\"/\"},\"response\":{\"body\":\"none\"},\"lookup\":{\"request\":{\"path\":\"/"
    "l\"},\"items\":"
    "\"/data\",\"match\":{\"/op\":\"{$operation}\"},\"next\":{\"more\":\"/more\",\"last_id\":\"/"
    "id\",\"query\":\"after\"}}}",
    "{\"request\":{\"path\":\"/\"},\"lookup\":{\"request\":{\"path\":\"/l\"},\"match\":{\"/"
    "op\":\"{$operation}\"},\"result\":"
    "\"/data\"}}",
};
#define TOOLS (sizeof tools / sizeof *tools)

static const int statuses[] = {0, 100, 200, 201, 202, 204, 206, 302, 400, 404, 409, 422, 429, 500, 503, 599};

static struct http_case *cases(void)
{
    static struct http_case all[TOOLS];
    for (size_t i = 0; i < TOOLS && !all[i].tool; i++) {
        http_case_init(&all[i], provider, tools[i], CLASS_EXTERNAL_IDEMPOTENT);
        CHECK(all[i].tool);
        all[i].call.arguments = http_case_json(&all[i], "{\"amount\":4900}");
    }
    return all;
}

static void check_call(const struct adapter_answer *answer, const struct http_reply *reply)
{
    struct arena arena;
    struct json *value = NULL;
    arena_init(&arena);
    CHECK(answer->outcome != OUTCOME_OPEN && answer->outcome < OUTCOME_FOUND);
    if (answer->outcome == OUTCOME_SUCCESS || answer->outcome == OUTCOME_ACCEPTED)
        CHECK(reply->status >= 200 && reply->status < 300);
    if (answer->outcome == OUTCOME_REFUSED)
        CHECK(reply->status >= 400 && reply->status < 500);
    if (answer->result.p)
        CHECK(json_parse(&arena, answer->result, NULL, &value, NULL) == ERR_NONE);
    if (answer->error.p)
        CHECK(json_parse(&arena, answer->error, NULL, &value, NULL) == ERR_NONE);
    arena_release(&arena);
}

static void check_lookup(struct http_case *c, struct http_message *message, const struct adapter_answer *answer,
                         const struct http_reply *reply)
{
    struct err err = {0};
    CHECK(answer->outcome >= OUTCOME_FOUND && answer->outcome < OUTCOME_COUNT ||
          answer->outcome == OUTCOME_WRONG_OBJECT);
    bool success = reply->status >= 200 && reply->status < 300 && reply->status != 202 && reply->status != 206;
    if (answer->outcome != OUTCOME_CANNOT_TELL)
        CHECK(reply->end == HTTP_END_COMPLETE && (success || reply->status == 404));
    if (reply->status == 404 && answer->outcome != OUTCOME_CANNOT_TELL)
        CHECK(answer->outcome == OUTCOME_ABSENT && !c->tool->lookup->items);
    if (answer->outcome != OUTCOME_MORE)
        return;
    struct adapter_call next = c->call;
    next.progress = arena_str(message->arena, answer->progress);
    if (http_message_build(message, c->tool, &next, &err) == ERR_NONE)
        CHECK(strncmp(message->url.p, "http://127.0.0.1:1", 18) == 0 &&
              (message->url.p[18] == '/' || message->url.p[18] == '?'));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str line, body;
    fuzz_split((struct str){(const char *)data, size}, &line, &body);
    if (line.n < 3)
        return 0;
    struct http_case *c = &cases()[(unsigned char)line.p[2] % TOOLS];
    struct arena arena;
    struct http_message message;
    struct adapter_answer answer;
    struct err err = {0};
    struct http_reply reply = {.sent = true,
                               .status = statuses[(unsigned char)line.p[0] % 16],
                               .end = (enum http_end)((unsigned char)line.p[1] % 5),
                               .body = body,
                               .detail = "detail"};
    arena_init(&arena);
    http_message_init(&message, &arena);
    c->call.kind = line.p[1] & 0x40 ? ATTEMPT_LOOKUP : ATTEMPT_CALL;
    CHECK(http_message_build(&message, c->tool, &c->call, &err) == ERR_NONE);
    http_judge(c->tool, &message, &reply, &arena, 0, &answer);
    if (c->call.kind == ATTEMPT_CALL)
        check_call(&answer, &reply);
    else
        check_lookup(c, &message, &answer, &reply);
    http_message_release(&message);
    arena_release(&arena);
    return 0;
}
