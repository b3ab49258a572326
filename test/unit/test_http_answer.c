/* Answers: what they mean by the provider's contract, what is taken out of them, look-ups over pages. */
#include "support/http_case.h"
#include "support/test.h"

#define NOW_MS 1700000000000 /* 2023-11-14 22:13:20 UTC */

#define PROVIDER                                                                                                       \
    "{\"base_url\":\"http://127.0.0.1:1\",\"answer_bytes_max\":\"64KB\",\"key\":{\"header\":\"K\",\"in_use\":[409],"   \
    "\"mismatch\":[422,{\"status\":400,\"code\":\"key_reused\"}]},"                                                    \
    "\"not_processed\":[429,{\"status\":503,\"when\":\".safe == true\"}],"                                             \
    "\"error\":{\"message\":\"/error/message\",\"code\":\"/error/code\"}}"

struct judged {
    struct http_case c;
    struct http_message message;
    struct adapter_answer answer;
};

static void init(struct judged *j, const char *provider, const char *tool)
{
    http_case_init(&j->c, provider, tool, CLASS_EXTERNAL_IDEMPOTENT);
    if (!j->c.tool)
        fail_msg("%s", http_case_problems(&j->c));
    http_message_init(&j->message, &j->c.arena);
    j->c.call.arguments = http_case_json(&j->c, "{\"amount\":4900,\"text\":\"x\",\"big\":9007199254740993}");
}

static void release(struct judged *j)
{
    http_message_release(&j->message);
    http_case_release(&j->c);
}

static enum outcome judge_reply(struct judged *j, const struct http_reply *reply)
{
    struct err err = {0};
    if (http_message_build(&j->message, j->c.tool, &j->c.call, &err) != ERR_NONE)
        fail_msg("%s", err.text);
    http_judge(j->c.tool, &j->message, reply, &j->c.arena, NOW_MS, &j->answer);
    return j->answer.outcome;
}

static enum outcome judge(struct judged *j, int status, const char *body)
{
    return judge_reply(j, &(struct http_reply){.sent = true, .status = status, .body = str_of(body)});
}

static void expect(struct judged *j, int status, const char *body, enum outcome wanted)
{
    enum outcome got = judge(j, status, body);
    if (got != wanted)
        fail_msg("%d %s: expected %s, got %s (%s)", status, body, outcome_name(wanted), outcome_name(got),
                 j->answer.detail ? j->answer.detail : "");
}

static void expect_text(struct str got, const char *wanted)
{
    if (!str_is(got, wanted))
        fail_msg("expected %s, got %.*s", wanted, STR_ARG(got));
}

static void expect_detail(struct judged *j, const char *part)
{
    if (!j->answer.detail || !strstr(j->answer.detail, part))
        fail_msg("expected \"%s\" in \"%s\"", part, j->answer.detail ? j->answer.detail : "");
}

static void test_classes(void **state)
{
    (void)state;
    struct judged j;
    init(&j, PROVIDER,
         "{\"request\":{\"path\":\"/\"},\"response\":{\"noop\":[{\"status\":409,\"code\":\"already_refunded\"},"
         "{\"status\":200,\"when\":\".status == \\\"already\\\"\"}],\"refused\":[{\"status\":500,\"code\":\"never\"},"
         "{\"status\":200,\"when\":\".errors[0].code == "
         "\\\"NO\\\"\"}],\"not_processed\":[{\"status\":500,\"code\":\"later\"}],"
         "\"error_when\":\".errors\"}}");
    static const struct {
        int status;
        const char *body;
        enum outcome outcome;
    } cases[] = {
        {200, "{}", OUTCOME_SUCCESS},
        {201, "{}", OUTCOME_SUCCESS},
        {204, "", OUTCOME_SUCCESS},
        {299, "{}", OUTCOME_SUCCESS},
        {202, "{}", OUTCOME_PROVIDER_ERROR}, /* not listed, and without a look-up nobody could find out */
        {200, "", OUTCOME_UNREADABLE},
        {200, "<html>", OUTCOME_UNREADABLE},
        {200, "{\"a\":1,\"a\":2}", OUTCOME_UNREADABLE},
        {200, "{\"status\":\"already\"}", OUTCOME_NOOP},
        {200, "{\"errors\":[{\"code\":\"NO\"}]}", OUTCOME_REFUSED},
        {200, "{\"errors\":[{\"code\":\"?\"}]}", OUTCOME_PROVIDER_ERROR},
        {200, "{\"errors\":7}", OUTCOME_UNREADABLE}, /* a condition that cannot be evaluated */
        {409, "{\"error\":{\"code\":\"already_refunded\"}}", OUTCOME_NOOP},
        {409, "{\"error\":{\"code\":\"other\"}}", OUTCOME_KEY_IN_USE},
        {409, "busy", OUTCOME_KEY_IN_USE},
        {422, "{}", OUTCOME_PROVIDER_ERROR},
        {400, "{\"error\":{\"code\":\"key_reused\"}}", OUTCOME_PROVIDER_ERROR},
        {400, "{\"error\":{\"code\":7}}", OUTCOME_REFUSED},
        {401, "", OUTCOME_REFUSED},
        {403, "no", OUTCOME_REFUSED},
        {404, "{}", OUTCOME_REFUSED},
        {408, "{}", OUTCOME_PROVIDER_ERROR},
        {418, "{}", OUTCOME_PROVIDER_ERROR},
        {429, "{}", OUTCOME_NOT_PROCESSED},
        {500, "{}", OUTCOME_PROVIDER_ERROR},
        {500, "{\"error\":{\"code\":\"never\"}}", OUTCOME_REFUSED},
        {500, "{\"error\":{\"code\":\"later\"}}", OUTCOME_NOT_PROCESSED},
        {503, "{}", OUTCOME_PROVIDER_ERROR},
        {503, "{\"safe\":true}", OUTCOME_NOT_PROCESSED},
        {503, "oops", OUTCOME_PROVIDER_ERROR},
        {302, "", OUTCOME_PROVIDER_ERROR},
        {101, "", OUTCOME_PROVIDER_ERROR},
        {999, "", OUTCOME_PROVIDER_ERROR},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect(&j, cases[i].status, cases[i].body, cases[i].outcome);
    release(&j);
}

static void test_transport(void **state)
{
    (void)state;
    struct judged j;
    init(&j, PROVIDER, "{\"request\":{\"path\":\"/\"}}");
    static const struct {
        enum http_end end;
        int status;
        enum outcome outcome;
    } cases[] = {
        {HTTP_END_TIMEOUT, 0, OUTCOME_TIMEOUT},       {HTTP_END_TIMEOUT, 200, OUTCOME_TIMEOUT},
        {HTTP_END_LOST, 0, OUTCOME_CONNECTION_LOST},  {HTTP_END_LOST, 200, OUTCOME_CONNECTION_LOST},
        {HTTP_END_UNREADABLE, 0, OUTCOME_UNREADABLE}, {HTTP_END_UNREADABLE, 400, OUTCOME_UNREADABLE},
        {HTTP_END_OVERSIZE, 200, OUTCOME_UNREADABLE}, {HTTP_END_OVERSIZE, 400, OUTCOME_REFUSED},
        {HTTP_END_COMPLETE, 0, OUTCOME_UNREADABLE},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct http_reply reply = {.sent = true, .end = cases[i].end, .status = cases[i].status, .detail = "why"};
        assert_int_equal(judge_reply(&j, &reply), cases[i].outcome);
        reply.sent = false;
        assert_int_equal(judge_reply(&j, &reply), OUTCOME_NOT_SENT);
        expect_text(j.answer.error, "{\"message\":\"why\"}");
    }
    release(&j);
}

static void test_errors(void **state)
{
    (void)state;
    struct judged j;
    init(&j, PROVIDER, "{\"request\":{\"path\":\"/\"}}");
    judge(&j, 404, "{\"error\":{\"message\":\"No such payment\",\"code\":\"missing\"}}");
    expect_text(j.answer.error,
                "{\"message\":\"No such payment\",\"code\":\"missing\",\"provider\":{\"error\":{\"message\":"
                "\"No such payment\",\"code\":\"missing\"}}}");
    judge(&j, 404, "<html>secret</html>");
    expect_text(j.answer.error, "{\"message\":\"the provider answered 404\"}");
    judge(&j, 422, "{\"error\":{\"code\":17}}");
    expect_text(j.answer.error,
                "{\"message\":\"the provider answered 422: same key, other parameters\",\"code\":\"17\","
                "\"provider\":{\"error\":{\"code\":17}}}");
    release(&j);
}

static void test_retry_after(void **state)
{
    (void)state;
    struct judged j;
    init(&j, PROVIDER, "{\"request\":{\"path\":\"/\"}}");
    static const struct {
        const char *header;
        int64_t ms;
    } cases[] = {
        {NULL, 0},
        {"7", 7000},
        {"0", 0},
        {"99999999999999", HTTP_RETRY_AFTER_MS_MAX},
        {"Tue, 14 Nov 2023 22:13:50 GMT", 30000},
        {"Tue, 14 Nov 2023 22:13:10 GMT", 0},
        {"Wed, 21 Oct 320252025 07:28:00 GMT", HTTP_RETRY_AFTER_MS_MAX},
        {"soon", 0},
        {"-5", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        judge_reply(&j, &(struct http_reply){.sent = true, .status = 429, .retry_after = cases[i].header});
        assert_int_equal(j.answer.outcome, OUTCOME_NOT_PROCESSED);
        assert_int_equal(j.answer.retry_after_ms, cases[i].ms);
    }
    release(&j);
}

static void test_mapping(void **state)
{
    (void)state;
    struct judged j;
    init(&j, PROVIDER,
         "{\"request\":{\"path\":\"/\"},\"response\":{\"success\":[200,204],\"success_when\":\".object == "
         "\\\"refund\\\"\","
         "\"external_id\":\"/id\",\"result\":{\"jq\":\"{id, amount}\"}}}");
    expect(&j, 200, "{\"object\":\"refund\",\"id\":\"re_1\",\"amount\":1.50}", OUTCOME_SUCCESS);
    assert_string_equal(j.answer.external_id, "re_1");
    expect_text(j.answer.result, "{\"id\":\"re_1\",\"amount\":1.5}");
    expect(&j, 200, "{\"object\":\"refund\",\"id\":9007199254740993,\"amount\":1}", OUTCOME_UNREADABLE);
    expect_detail(&j, "result: /id: jq would change");
    assert_string_equal(j.answer.external_id, "9007199254740993"); /* exact, and kept for the look-up */
    expect(&j, 200, "{\"object\":\"refund\",\"amount\":1}", OUTCOME_UNREADABLE);
    expect_detail(&j, "external_id: the answer has no /id");
    expect(&j, 200, "{\"object\":\"refund\",\"id\":null}", OUTCOME_UNREADABLE);
    expect(&j, 200, "{\"object\":\"charge\",\"id\":\"re_1\"}", OUTCOME_UNREADABLE);
    expect_detail(&j, "success_when");
    expect(&j, 200, "[]", OUTCOME_UNREADABLE);
    expect(&j, 200, "null", OUTCOME_UNREADABLE);
    expect(&j, 204, "", OUTCOME_UNREADABLE);
    expect(&j, 201, "{\"object\":\"refund\",\"id\":\"re_1\"}", OUTCOME_PROVIDER_ERROR); /* 201 was not stated */
    release(&j);

    init(&j, PROVIDER, "{\"request\":{\"path\":\"/\"},\"response\":{\"result\":\"/data\"}}");
    expect(&j, 200, "{\"data\":{\"n\":9007199254740993,\"f\":1.0}}", OUTCOME_SUCCESS);
    expect_text(j.answer.result, "{\"n\":9007199254740993,\"f\":1.0}");
    expect(&j, 200, "{}", OUTCOME_UNREADABLE);
    release(&j);

    init(&j, PROVIDER, "{\"request\":{\"path\":\"/\"}}");
    expect(&j, 200, " \n{ \"n\": 1.0 }\r\n", OUTCOME_SUCCESS);
    expect_text(j.answer.result, "{ \"n\": 1.0 }");
    release(&j);
}

static void test_bodies(void **state)
{
    (void)state;
    struct judged j;
    init(&j, PROVIDER, "{\"request\":{\"path\":\"/\"},\"response\":{\"body\":\"any\"}}");
    expect(&j, 200, "done \"x\" \xff\xc3\xa4\xed\xa0\x80", OUTCOME_SUCCESS);
    expect_text(j.answer.result,
                "{\"text\":\"done \\\"x\\\" \xef\xbf\xbd\xc3\xa4\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"}");
    expect(&j, 200, "{\"a\":1}", OUTCOME_SUCCESS);
    expect_text(j.answer.result, "{\"a\":1}");
    release(&j);

    init(&j, PROVIDER, "{\"request\":{\"path\":\"/\"},\"response\":{\"body\":\"none\"}}");
    expect(&j, 200, "whatever", OUTCOME_SUCCESS);
    assert_null(j.answer.result.p);
    expect(&j, 400, "{\"error\":{\"message\":\"m\"}}", OUTCOME_REFUSED);
    expect_text(j.answer.error, "{\"message\":\"m\",\"provider\":{\"error\":{\"message\":\"m\"}}}");
    release(&j);

    init(&j, PROVIDER, "{\"request\":{\"path\":\"/\"},\"response\":{\"content_type\":\"json\"}}");
    struct http_reply reply = {.sent = true, .status = 200, .body = STR("{}")};
    assert_int_equal(judge_reply(&j, &reply), OUTCOME_UNREADABLE);
    reply.content_type = "text/html";
    assert_int_equal(judge_reply(&j, &reply), OUTCOME_UNREADABLE);
    reply.content_type = "Application/JSON; charset=utf-8";
    assert_int_equal(judge_reply(&j, &reply), OUTCOME_SUCCESS);
    reply.content_type = "application/hal+json";
    assert_int_equal(judge_reply(&j, &reply), OUTCOME_SUCCESS);
    release(&j);
}

static void test_verify(void **state)
{
    (void)state;
    struct judged j;
    init(&j, PROVIDER,
         "{\"request\":{\"path\":\"/\"},\"response\":{\"external_id\":\"/id\"},\"verify\":{\"/amount\":\"{amount}\",\"/"
         "big\":"
         "\"{big}\",\"/text\":\"\\\"{amount}\\\"\",\"/note\":\"{note?}\",\"/ok\":true}}");
    const char *right = "{\"id\":\"re\",\"amount\":49e2,\"big\":9007199254740993,\"text\":\"4900\",\"ok\":true}";
    expect(&j, 200, right, OUTCOME_SUCCESS);
    static const struct {
        const char *body, *detail;
    } wrong[] = {
        {"{\"id\":\"re\",\"amount\":\"4900\",\"big\":9007199254740993,\"text\":\"4900\",\"ok\":true}",
         "/amount: expected 4900, got \"4900\""},
        {"{\"id\":\"re\",\"amount\":4900,\"big\":9007199254740992,\"text\":\"4900\",\"ok\":true}",
         "/big: expected 9007199254740993, got 9007199254740992"},
        {"{\"id\":\"re\",\"amount\":4900,\"big\":9007199254740993,\"text\":4900,\"ok\":true}",
         "/text: expected \"4900\", got 4900"},
        {"{\"id\":\"re\",\"amount\":4900,\"big\":9007199254740993,\"text\":\"4900\"}",
         "/ok: expected true, got nothing"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        expect(&j, 200, wrong[i].body, OUTCOME_WRONG_OBJECT);
        assert_string_equal(j.answer.detail, wrong[i].detail);
        assert_null(j.answer.result.p);
        assert_string_equal(j.answer.external_id, "re");
    }
    release(&j);

    init(&j, PROVIDER, "{\"request\":{\"path\":\"/\"},\"verify\":{\"/sum\":{\"jq\":\".amount + 1\"}}}");
    j.c.call.arguments = http_case_json(&j.c, "{\"amount\":4900}");
    expect(&j, 200, "{\"sum\":4901}", OUTCOME_SUCCESS);
    expect(&j, 200, "{\"sum\":4900}", OUTCOME_WRONG_OBJECT);
    release(&j);
}

static void test_accepted(void **state)
{
    (void)state;
    struct judged j;
    init(&j, PROVIDER,
         "{\"request\":{\"path\":\"/\"},\"response\":{\"external_id\":\"/id\"},\"verify\":{\"/amount\":\"{amount}\"},"
         "\"lookup\":{\"request\":{\"path\":\"/l\"}}}");
    expect(&j, 202, "{\"id\":\"re\"}", OUTCOME_ACCEPTED);
    assert_string_equal(j.answer.external_id, "re");
    expect(&j, 202, "{}", OUTCOME_ACCEPTED);
    expect(&j, 202, "{\"id\":\"re\",\"amount\":1}", OUTCOME_WRONG_OBJECT);
    expect(&j, 202, "no", OUTCOME_UNREADABLE);
    release(&j);
}

/* ---- look-ups ---- */

#define LIST_TOOL                                                                                                      \
    "{\"request\":{\"path\":\"/\"},\"lookup\":{\"request\":{\"path\":\"/l\",\"query\":{\"ref\":\"{$operation}\"}},"    \
    "\"by_id\":{\"path\":\"/l/{$external_id}\"},\"items\":\"/data\",\"match\":{\"/meta/op\":\"{$operation}\"},"        \
    "\"next\":%s,\"pages_max\":3,\"pending\":\".status == \\\"pending\\\"\",\"failed\":\".status == \\\"failed\\\"\"," \
    "\"external_id\":\"/id\",\"result\":{\"jq\":\".id\"},\"verify\":{\"/amount\":\"{amount}\"}}}"

#define ITEM(id, amount, status)                                                                                       \
    "{\"id\":\"" id "\",\"amount\":" amount ",\"status\":\"" status                                                    \
    "\",\"meta\":{\"op\":\"op_01ARZ3NDEKTSV4RRFFQ69G5FAV\"}}"
#define OTHER "{\"id\":\"x\",\"amount\":1,\"meta\":{\"op\":\"op_other\"}},{\"id\":\"y\"}"

static void init_lookup(struct judged *j, const char *next)
{
    char tool[1024];
    snprintf(tool, sizeof tool, LIST_TOOL, next);
    init(j, PROVIDER, tool);
    j->c.call.kind = ATTEMPT_LOOKUP;
}

static void test_lookup_list(void **state)
{
    (void)state;
    struct judged j;
    init_lookup(&j, "null");
    static const struct {
        int status;
        const char *body;
        enum outcome outcome;
    } cases[] = {
        {200, "{\"data\":[]}", OUTCOME_ABSENT},
        {200, "{\"data\":[" OTHER "]}", OUTCOME_ABSENT},
        {200, "{\"data\":[" OTHER "," ITEM("re", "4900", "ok") "]}", OUTCOME_FOUND},
        {200, "{\"data\":[" ITEM("re", "4900", "ok") "," ITEM("rf", "4900", "ok") "]}", OUTCOME_SEVERAL},
        {200, "{\"data\":[" ITEM("re", "4900", "ok") "," ITEM("re", "4900", "ok") "]}", OUTCOME_FOUND},
        {200, "{\"data\":[" ITEM("re", "4901", "ok") "]}", OUTCOME_WRONG_OBJECT},
        {200, "{\"data\":[" ITEM("re", "4900", "pending") "]}", OUTCOME_PENDING},
        {200, "{\"data\":[" ITEM("re", "4900", "failed") "]}", OUTCOME_FAILED_THERE},
        {200, "{\"data\":{}}", OUTCOME_CANNOT_TELL},
        {200, "{\"data\":null}", OUTCOME_CANNOT_TELL},
        {200, "{}", OUTCOME_CANNOT_TELL},
        {200, "[]", OUTCOME_CANNOT_TELL},
        {200, "{\"data\":[null]}", OUTCOME_CANNOT_TELL},
        {200, "{\"data\":[{\"meta\":{\"op\":\"op_01ARZ3NDEKTSV4RRFFQ69G5FAV\"}}]}", OUTCOME_CANNOT_TELL}, /* no id */
        {200, "", OUTCOME_CANNOT_TELL},
        {200, "{\"data\":[", OUTCOME_CANNOT_TELL},
        {204, "", OUTCOME_CANNOT_TELL},
        {202, "{\"data\":[]}", OUTCOME_CANNOT_TELL},
        {206, "{\"data\":[]}", OUTCOME_CANNOT_TELL},
        {404, "{}", OUTCOME_CANNOT_TELL}, /* of a list: the path is wrong */
        {400, "{}", OUTCOME_CANNOT_TELL},
        {429, "{}", OUTCOME_CANNOT_TELL},
        {500, "{\"data\":[]}", OUTCOME_CANNOT_TELL},
        {302, "", OUTCOME_CANNOT_TELL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect(&j, cases[i].status, cases[i].body, cases[i].outcome);
    expect(&j, 200, "{\"data\":[" ITEM("re", "4900", "ok") "]}", OUTCOME_FOUND);
    assert_string_equal(j.answer.external_id, "re");
    expect_text(j.answer.result, "\"re\"");
    expect(&j, 200, "{\"data\":[" ITEM("re", "4900", "ok") "," ITEM("rf", "4900", "ok") "]}", OUTCOME_SEVERAL);
    assert_int_equal(j.answer.matches, 2);
    static const enum http_end ends[] = {HTTP_END_TIMEOUT, HTTP_END_LOST, HTTP_END_UNREADABLE, HTTP_END_OVERSIZE};
    for (size_t i = 0; i < 4; i++) {
        struct http_reply reply = {.sent = true, .end = ends[i], .status = 200, .body = STR("{\"data\":[]}")};
        assert_int_equal(judge_reply(&j, &reply), OUTCOME_CANNOT_TELL);
        reply.sent = false;
        assert_int_equal(judge_reply(&j, &reply), OUTCOME_NOT_SENT);
    }
    release(&j);
}

static void test_lookup_by_id(void **state)
{
    (void)state;
    struct judged j;
    init_lookup(&j, "null");
    j.c.call.external_id = "re/1";
    expect(&j, 404, "", OUTCOME_ABSENT);
    assert_string_equal(j.message.url.p, "http://127.0.0.1:1/l/re%2F1");
    expect(&j, 200, ITEM("re/1", "4900", "ok"), OUTCOME_FOUND);
    expect(&j, 200, ITEM("re/2", "4900", "ok"), OUTCOME_WRONG_OBJECT);
    expect_detail(&j, "asked for re/1, got re/2");
    expect(&j, 200, ITEM("re/1", "1", "ok"), OUTCOME_WRONG_OBJECT);
    expect(&j, 200, "[]", OUTCOME_CANNOT_TELL);
    expect(&j, 410, "", OUTCOME_CANNOT_TELL);
    release(&j);

    init(&j, PROVIDER,
         "{\"request\":{\"path\":\"/\"},\"lookup\":{\"request\":{\"path\":\"/l/{$operation}\"},\"match\":{\"/op\":"
         "\"{$operation}\"},\"absent_status\":[404,{\"status\":400,\"code\":\"gone\"}]}}");
    j.c.call.kind = ATTEMPT_LOOKUP;
    expect(&j, 404, "", OUTCOME_ABSENT);
    expect(&j, 400, "{\"error\":{\"code\":\"gone\"}}", OUTCOME_ABSENT);
    expect(&j, 400, "{\"error\":{\"code\":\"other\"}}", OUTCOME_CANNOT_TELL);
    expect(&j, 200, "{\"op\":\"op_01ARZ3NDEKTSV4RRFFQ69G5FAV\"}", OUTCOME_FOUND);
    expect(&j, 200, "{\"op\":\"op_other\"}", OUTCOME_CANNOT_TELL);
    release(&j);
}

/* Turns to the next page: what the engine does with OUTCOME_MORE. */
static void turn(struct judged *j)
{
    assert_int_equal(j->answer.outcome, OUTCOME_MORE);
    j->c.call.progress = arena_str(&j->c.arena, j->answer.progress);
}

static void test_pages(void **state)
{
    (void)state;
    struct judged j;
    init_lookup(&j, "{\"cursor\":\"/next\",\"query\":\"after\"}");
    const char *found = "{\"next\":\"c 2\",\"data\":[" ITEM("re", "4900", "ok") "]}";

    expect(&j, 200, "{\"next\":\"c 2\",\"data\":[]}", OUTCOME_MORE);
    turn(&j);
    expect(&j, 200, "{\"next\":17,\"data\":[" OTHER "]}", OUTCOME_MORE);
    assert_string_equal(j.message.url.p, "http://127.0.0.1:1/l?ref=op_01ARZ3NDEKTSV4RRFFQ69G5FAV&after=c+2");
    turn(&j);
    expect(&j, 200, "{\"next\":null,\"data\":[]}", OUTCOME_ABSENT);
    assert_string_equal(j.message.url.p, "http://127.0.0.1:1/l?ref=op_01ARZ3NDEKTSV4RRFFQ69G5FAV&after=17");
    /* the third page may be the last one only if it says so */
    expect(&j, 200, "{\"next\":\"c4\",\"data\":[]}", OUTCOME_CANNOT_TELL);
    expect_detail(&j, "no end after 3 pages");
    expect(&j, 404, "", OUTCOME_CANNOT_TELL);
    expect(&j, 200, "{\"next\":\"17\",\"data\":[]}", OUTCOME_CANNOT_TELL);
    expect_detail(&j, "same page again");
    expect(&j, 200, "{\"next\":{},\"data\":[]}", OUTCOME_CANNOT_TELL);

    /* the match is on the first page, and stays what it was */
    j.c.call.progress = STR_NONE;
    expect(&j, 200, found, OUTCOME_MORE);
    turn(&j);
    expect(&j, 200, "{\"data\":[" OTHER "]}", OUTCOME_FOUND);
    assert_string_equal(j.answer.external_id, "re");
    expect_text(j.answer.result, "\"re\"");
    expect(&j, 200, "{\"data\":[" ITEM("re", "4900", "ok") "]}", OUTCOME_FOUND); /* shown twice */
    expect(&j, 200, "{\"data\":[" ITEM("rf", "4900", "ok") "]}", OUTCOME_SEVERAL);
    assert_int_equal(j.answer.matches, 2);
    expect(&j, 500, "", OUTCOME_CANNOT_TELL);

    j.c.call.progress = STR_NONE;
    expect(&j, 200, "{\"next\":\"c2\",\"data\":[" ITEM("re", "1", "ok") "]}", OUTCOME_MORE);
    turn(&j);
    expect(&j, 200, "{\"data\":[]}", OUTCOME_WRONG_OBJECT);
    assert_string_equal(j.answer.detail, "/amount: expected 4900, got 1");
    release(&j);
}

static void test_pages_by_last_id(void **state)
{
    (void)state;
    struct judged j;
    init_lookup(&j, "{\"more\":\"/more\",\"last_id\":\"/id\",\"query\":\"ref\"}");
    expect(&j, 200, "{\"data\":[],\"more\":false}", OUTCOME_ABSENT);
    expect(&j, 200, "{\"data\":[]}", OUTCOME_CANNOT_TELL);
    expect(&j, 200, "{\"data\":[],\"more\":true}", OUTCOME_CANNOT_TELL);
    expect(&j, 200, "{\"data\":[{\"id\":{}}],\"more\":true}", OUTCOME_CANNOT_TELL);
    expect(&j, 200, "{\"data\":[" OTHER "],\"more\":true}", OUTCOME_MORE);
    turn(&j);
    expect(&j, 200, "{\"data\":[],\"more\":false}", OUTCOME_ABSENT);
    assert_string_equal(j.message.url.p, "http://127.0.0.1:1/l?ref=y"); /* takes the place of the configured one */
    release(&j);
}

static void test_pages_by_url(void **state)
{
    (void)state;
    struct judged j;
    struct err err = {0};
    init_lookup(&j, "{\"url\":\"/links/next\"}");
    expect(&j, 200, "{\"data\":[],\"links\":{\"next\":\"/l?page=2\"}}", OUTCOME_MORE);
    turn(&j);
    expect(&j, 200, "{\"data\":[],\"links\":{\"next\":\"http://127.0.0.1:1/l?page=3\"}}", OUTCOME_MORE);
    assert_string_equal(j.message.url.p, "http://127.0.0.1:1/l?page=2");
    turn(&j);
    expect(&j, 200, "{\"data\":[],\"links\":{}}", OUTCOME_ABSENT);
    assert_string_equal(j.message.url.p, "http://127.0.0.1:1/l?page=3");
    static const char *const elsewhere[] = {"http://evil.example/l",
                                            "//evil.example/l",
                                            "http://127.0.0.1:12/l",
                                            "http://127.0.0.1:1@evil.example/",
                                            "l?page=2",
                                            "ftp://127.0.0.1:1/l"};
    for (size_t i = 0; i < sizeof elsewhere / sizeof *elsewhere; i++) {
        char body[256];
        j.c.call.progress = STR_NONE;
        snprintf(body, sizeof body, "{\"data\":[],\"links\":{\"next\":\"%s\"}}", elsewhere[i]);
        judge(&j, 200, body);
        turn(&j);
        err_clear(&err);
        assert_int_equal(http_message_build(&j.message, j.c.tool, &j.c.call, &err), ERR_INVALID);
        assert_non_null(strstr(err.text, "not on the provider's host"));
    }
    release(&j);
}

static void test_foreign_progress(void **state)
{
    (void)state;
    struct judged j;
    struct err err = {0};
    init_lookup(&j, "null");
    static const char *const texts[] = {"", "[]", "{\"page\":1,\"cursor\":\"x\"}", "nonsense"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        j.c.call.progress = str_of(texts[i]);
        err_clear(&err);
        assert_int_equal(http_message_build(&j.message, j.c.tool, &j.c.call, &err), ERR_INVALID);
    }
    j.c.call.progress = STR("{\"page\":1,\"matches\":5}");
    expect(&j, 200, "{\"data\":[]}", OUTCOME_CANNOT_TELL);
    release(&j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_classes),      cmocka_unit_test(test_transport),
        cmocka_unit_test(test_errors),       cmocka_unit_test(test_retry_after),
        cmocka_unit_test(test_mapping),      cmocka_unit_test(test_bodies),
        cmocka_unit_test(test_verify),       cmocka_unit_test(test_accepted),
        cmocka_unit_test(test_lookup_list),  cmocka_unit_test(test_lookup_by_id),
        cmocka_unit_test(test_pages),        cmocka_unit_test(test_pages_by_last_id),
        cmocka_unit_test(test_pages_by_url), cmocka_unit_test(test_foreign_progress),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
