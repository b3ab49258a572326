/* Requests: from the registry's section and the arguments to bytes. */
#include "support/http_case.h"
#include "support/test.h"

#include <unistd.h>

#define PROVIDER "{\"base_url\":\"https://api.example.com/base/\"}"

static void init(struct http_case *c, const char *provider, const char *tool, enum tool_class class)
{
    http_case_init(c, provider, tool, class);
    if (!c->tool)
        fail_msg("%s", http_case_problems(c));
}

/* Builds and gives "METHOD URL\nheader lines…\n\nbody", or "!" + error; in the arena. */
static const char *build(struct http_case *c, const char *arguments)
{
    struct err err = {0};
    struct http_message message;
    struct buf out;
    c->call.arguments = http_case_json(c, arguments);
    http_message_init(&message, &c->arena);
    buf_init(&out, 0);
    if (http_message_build(&message, c->tool, &c->call, &err) == ERR_NONE) {
        buf_printf(&out, "%s %s\n", message.request->method, message.url.p);
        for (struct curl_slist *node = message.headers; node; node = node->next)
            buf_printf(&out, "%s\n", node->data);
        buf_add_char(&out, '\n');
        buf_add_str(&out, buf_str(&message.body));
    } else {
        buf_printf(&out, "!%s", err.text);
    }
    const char *text = arena_copy_str(&c->arena, buf_str(&out));
    buf_release(&out);
    http_message_release(&message);
    return text;
}

static void has(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("expected \"%s\" in \"%s\"", part, text);
}

static void lacks(const char *text, const char *part)
{
    if (strstr(text, part))
        fail_msg("unexpected \"%s\" in \"%s\"", part, text);
}

/* One request of a write with this "request" section. */
static void check_request(const char *request, const char *arguments, const char *part)
{
    struct http_case c;
    char tool[2048];
    snprintf(tool, sizeof tool, "{\"request\":%s}", request);
    init(&c, PROVIDER, tool, CLASS_EXTERNAL_WEAK);
    has(build(&c, arguments), part);
    http_case_release(&c);
}

static void test_path(void **state)
{
    (void)state;
    const char *request = "{\"method\":\"PUT\",\"path\":\"/v1/orders/{id}/items/{/a~1b}\"}";
    check_request(request, "{\"id\":\"o/1 ä?#%\",\"a/b\":7}",
                  "PUT https://api.example.com/base/v1/orders/o%2F1%20%C3%A4%3F%23%25/items/7\n");
    check_request(request, "{\"id\":\"..\",\"a/b\":7}", "!path: ");
    check_request(request, "{\"id\":\"\",\"a/b\":7}", "!path: id is empty");
    check_request(request, "{\"a/b\":7}", "!path: id is missing");
    check_request("{\"path\":{\"jq\":\"\\\"/v1/\\\" + .id\"}}", "{\"id\":\"x\"}", "/base/v1/x\n");
    check_request("{\"path\":{\"jq\":\"\\\"/v1/\\\" + .id\"}}", "{\"id\":\"a b\"}", "!path: holds a character");
    check_request("{\"path\":{\"jq\":\"\\\"/v1/\\\" + .id\"}}", "{\"id\":\"a\\u0000b\"}", "!path: holds a character");
    check_request("{\"path\":{\"jq\":\"\\\"/v1/\\\" + .id\"}}", "{\"id\":\"../x\"}", "!path: has a segment");
    check_request("{\"path\":{\"jq\":\".id\"}}", "{\"id\":\"@evil.example/\"}", "!path: does not begin");
    check_request("{\"path\":{\"jq\":\".id\"}}", "{\"id\":1}", "!path: the program gives number");
    check_request("{\"path\":\"/{$operation}/{$tenant}\"}", "{\"$operation\":\"forged\"}",
                  "/base/op_01ARZ3NDEKTSV4RRFFQ69G5FAV/acme\n");
    check_request("{\"path\":\"/{$run}\"}", "{\"$run\":\"forged\"}", "!path: $run is missing");
}

static void test_query(void **state)
{
    (void)state;
    const char *request =
        "{\"path\":\"/q\",\"query\":{\"a b\":\"{a}\",\"n\":\"{n}\",\"fix&\":\"1=1\",\"both\":\"{n}-{n}\"}}";
    check_request(request, "{\"a\":\"x&y=z \xc3\xa4\",\"n\":9007199254740993}",
                  "/q?a+b=x%26y%3Dz+%C3%A4&n=9007199254740993&fix%26=1%3D1&both=9007199254740993-9007199254740993\n");
    check_request(request, "{\"n\":1}", "/q?n=1&fix%26=1%3D1&both=1-1\n");
    check_request(request, "{\"a\":null,\"n\":1}", "/q?n=1&fix");
    check_request(request, "{\"a\":[1,\"b\",true],\"n\":1}", "/q?a+b=1&a+b=b&a+b=true&n=1");
    check_request(request, "{\"a\":[[]],\"n\":1}", "!query a b: item 0 is array");
    check_request(request, "{\"a\":{},\"n\":1}", "!query a b: a is an object");
    check_request(request, "{}", "!query both: n is missing");
    check_request("{\"path\":\"/q?v=1\",\"query\":{\"a\":\"{a}\"}}", "{\"a\":1}", "/q?v=1&a=1\n");
}

static void test_json_body(void **state)
{
    (void)state;
    const char *request =
        "{\"path\":\"/\",\"json\":{\"amount\":\"{amount}\",\"text\":\"n={amount}\",\"all\":\"{all}\",\"deep\":[{\"op\":"
        "\"{$operation}\"},1.50,null,true],\"maybe\":\"{note?}\",\"brace\":\"{{x}}\"}}";
    check_request(
        request, "{\"amount\":9007199254740993,\"all\":{\"z\":1e400,\"a\":[]}}",
        "\n\n{\"amount\":9007199254740993,\"text\":\"n=9007199254740993\",\"all\":{\"z\":1e400,\"a\":[]},\"deep\":"
        "[{\"op\":\"op_01ARZ3NDEKTSV4RRFFQ69G5FAV\"},1.50,null,true],\"brace\":\"{x}\"}");
    check_request(request, "{\"amount\":null,\"all\":1}", "!body: text: amount is null");
    check_request(request, "{\"amount\":1}", "!body: all: all is missing");
    check_request(request, "{\"amount\":1,\"all\":null,\"note\":\"x\"}", "\"all\":null,\"deep\"");
    check_request(request, "{\"amount\":1,\"all\":null,\"note\":\"x\"}", "\"maybe\":\"x\",\"brace\"");
    check_request("{\"path\":\"/\"}", "{\"b\":1.0,\"a\":\"\\u0000\"}", "\n\n{\"b\":1.0,\"a\":\"\\u0000\"}");
    check_request("{\"path\":\"/\"}", "{}", "Content-Type: application/json\n");
    check_request("{\"path\":\"/\",\"json\":\"{id: .id, op: $operation}\"}", "{\"id\":3}",
                  "{\"id\":3,\"op\":\"op_01ARZ3NDEKTSV4RRFFQ69G5FAV\"}");
    check_request("{\"path\":\"/\",\"json\":\"{id: .id}\"}", "{\"id\":9007199254740993}",
                  "!body: /id: jq would change the number 9007199254740993");
    check_request("{\"path\":\"/\",\"json\":\".a.b\"}", "{\"a\":1}", "!body: jq: Cannot index");
}

static void test_form_body(void **state)
{
    (void)state;
    const char *request =
        "{\"path\":\"/\",\"form\":{\"amount\":\"{amount}\",\"metadata\":{\"op\":\"{$operation}\",\"a b\":\"ä&=\"},"
        "\"items\":\"{items}\",\"expand\":[\"x\",\"y\"],\"gone\":null,\"yes\":true}}";
    check_request(request, "{\"amount\":9007199254740993,\"items\":[{\"p\":1},{\"p\":[2]}]}",
                  "\n\namount=9007199254740993&metadata[op]=op_01ARZ3NDEKTSV4RRFFQ69G5FAV&metadata[a+b]=%C3%A4%26%3D&"
                  "items[][p]=1&items[][p][]=2&expand[]=x&expand[]=y&yes=true");
    check_request(request, "{\"amount\":1,\"items\":[]}", "Content-Type: application/x-www-form-urlencoded\n");
    check_request("{\"path\":\"/\",\"form_arrays\":\"indexed\",\"form\":{\"items\":\"{items}\",\"a\":[[1,2]]}}",
                  "{\"items\":[{\"p\":1},{\"p\":2}]}", "\n\nitems[0][p]=1&items[1][p]=2&a[0][0]=1&a[0][1]=2");
    check_request("{\"path\":\"/\",\"form\":\"{a: .x, b: [1.5]}\"}", "{\"x\":\"=\"}", "\n\na=%3D&b[]=1.5");
    check_request("{\"path\":\"/\",\"form\":\"[1]\"}", "{}", "!body: is array, a form needs members");
}

static void test_headers(void **state)
{
    (void)state;
    struct http_case c;
    setenv("HTTP_TEST_TOKEN", "s3cret", 1);
    init(&c,
         "{\"base_url\":\"http://127.0.0.1:1\",\"headers\":{\"Authorization\":\"Bearer ${env:HTTP_TEST_TOKEN}\","
         "\"X-A\":\"provider\",\"X-T\":\"{$tenant}\"}}",
         "{\"request\":{\"path\":\"/"
         "\",\"headers\":{\"x-a\":\"tool\",\"X-B\":\"{b}\",\"X-Empty\":\"\",\"X-C\":\"{c?}\"}}}",
         CLASS_EXTERNAL_WEAK);
    c.call.trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    const char *text = build(&c, "{\"b\":\"1\"}");
    has(text, "\nAuthorization: Bearer s3cret\n");
    has(text, "\nx-a: tool\n");
    lacks(text, "provider");
    has(text, "\nX-B: 1\n");
    has(text, "\nX-T: acme\n");
    has(text, "\nX-Empty;\n");
    lacks(text, "X-C");
    has(text, "\nExpect:\n");
    has(text, "\ntraceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\n");
    has(build(&c, "{\"b\":\"1\\r\\nX-Evil: 1\"}"), "!header X-B: a value from the arguments has a line feed");
    has(build(&c, "{\"b\":\"1\\u0000\"}"), "!header X-B: ");
    has(build(&c, "{}"), "!header X-B: b is missing");
    c.call.trace = "00-x\r\nX-Evil: 1";
    lacks(build(&c, "{\"b\":\"1\"}"), "Evil");
    http_case_release(&c);
}

static void test_key(void **state)
{
    (void)state;
    struct http_case c;
    const char *tool =
        "{\"request\":{\"path\":\"/\"},\"lookup\":{\"request\":{\"path\":\"/l\",\"query\":{\"k\":\"{$key}\"}}}}";
    init(&c, "{\"base_url\":\"http://127.0.0.1:1\",\"key\":{\"header\":\"Idempotency-Key\"}}", tool,
         CLASS_EXTERNAL_IDEMPOTENT);
    has(build(&c, "{}"), "\nIdempotency-Key: key-1\n");
    c.call.kind = ATTEMPT_LOOKUP;
    lacks(build(&c, "{}"), "Idempotency-Key");
    has(build(&c, "{}"), "/l?k=key-1\n");
    http_case_release(&c);

    init(&c, "{\"base_url\":\"http://127.0.0.1:1\",\"key\":{\"header\":\"Idempotency-Key\",\"quoted\":true}}", tool,
         CLASS_EXTERNAL_IDEMPOTENT);
    c.call.provider_key = "a\"b\\c";
    has(build(&c, "{}"), "\nIdempotency-Key: \"a\\\"b\\\\c\"\n");
    http_case_release(&c);

    init(&c, "{\"base_url\":\"http://127.0.0.1:1\",\"key\":{\"field\":\"token\"}}", tool, CLASS_EXTERNAL_IDEMPOTENT);
    has(build(&c, "{\"a\":1,\"token\":\"forged\"}"), "\n\n{\"a\":1,\"token\":\"key-1\"}");
    http_case_release(&c);

    init(&c, "{\"base_url\":\"http://127.0.0.1:1\",\"key\":{\"field\":\"token\"}}",
         "{\"request\":{\"path\":\"/\",\"form\":{\"a\":\"{a}\"}}}", CLASS_EXTERNAL_IDEMPOTENT);
    has(build(&c, "{\"a\":1}"), "\n\na=1&token=key-1");
    http_case_release(&c);

    init(&c, "{\"base_url\":\"http://127.0.0.1:1\",\"key\":{\"field\":\"token\"}}",
         "{\"request\":{\"path\":\"/\",\"json\":\"[1]\"}}", CLASS_EXTERNAL_IDEMPOTENT);
    has(build(&c, "{}"), "!body: the body is array, but the provider's key token needs members");
    http_case_release(&c);

    init(&c, "{\"base_url\":\"http://127.0.0.1:1\",\"key\":{\"query\":\"rid\"}}",
         "{\"request\":{\"path\":\"/x\",\"method\":\"DELETE\"}}", CLASS_EXTERNAL_IDEMPOTENT);
    has(build(&c, "{}"), "DELETE http://127.0.0.1:1/x?rid=key-1\n");
    http_case_release(&c);

    init(&c, "{\"base_url\":\"http://127.0.0.1:1\",\"key\":{\"header\":\"Idempotency-Key\"}}",
         "{\"request\":{\"path\":\"/x\"}}", CLASS_READ);
    has(build(&c, "{}"), "GET http://127.0.0.1:1/x\n");
    lacks(build(&c, "{}"), "Idempotency-Key");
    http_case_release(&c);
}

/* Attempts of one operation are the same request. */
static void test_same_bytes(void **state)
{
    (void)state;
    struct http_case c;
    init(&c, PROVIDER, "{\"request\":{\"path\":\"/\",\"json\":\"to_entries | map({(.key): .value}) | add\"}}",
         CLASS_EXTERNAL_WEAK);
    const char *arguments = "{\"z\":1,\"a\":2,\"m\":{\"y\":1,\"b\":[3]},\"k\":0.1}", *first = build(&c, arguments);
    for (int i = 0; i < 10; i++)
        assert_string_equal(build(&c, arguments), first);
    http_case_release(&c);
}

static void check_described(struct http_case *c, const char *arguments, const char *wanted)
{
    struct err err = {0};
    struct buf buf;
    struct json_out out;
    buf_init(&buf, 0);
    json_out_init(&out, &buf);
    c->call.arguments = http_case_json(c, arguments);
    assert_int_equal(http_message_describe(c->tool, &c->call, &out, &err), ERR_NONE);
    assert_string_equal(buf.p, wanted);
    buf_release(&buf);
}

static void test_describe(void **state)
{
    (void)state;
    struct http_case c;
    static const char *const redact[] = {"/card/number", "/nowhere"};
    setenv("HTTP_TEST_TOKEN", "s3cret", 1);
    setenv("HTTP_TEST_PORT", "9000", 1);
    http_case_init(&c,
                   "{\"base_url\":\"http://127.0.0.1:${env:HTTP_TEST_PORT}/bot${env:HTTP_TEST_TOKEN}\",\"headers\":{"
                   "\"Authorization\":\"Bearer ${env:HTTP_TEST_TOKEN}\"},\"key\":{\"header\":\"Idempotency-Key\"}}",
                   "{\"request\":{\"path\":\"/p\",\"query\":{\"t\":\"${env:HTTP_TEST_TOKEN}\"}}}",
                   CLASS_EXTERNAL_IDEMPOTENT);
    if (!c.tool)
        fail_msg("%s", http_case_problems(&c));
    check_described(
        &c, "{\"amount\":1.50}",
        "{\"method\":\"POST\",\"url\":\"http://127.0.0.1:9000/bot***/p?t=***\",\"headers\":{\"Authorization\":"
        "\"Bearer ***\",\"Content-Type\":\"application/json\",\"Idempotency-Key\":\"key-1\"},\"body\":{"
        "\"amount\":1.50}}");
    http_case_release(&c);

    http_case_init(&c, PROVIDER, "{}", CLASS_EXTERNAL_WEAK);
    c.core_tool.redact_pointers = redact;
    c.core_tool.redact_count = 2;
    c.problems.errors = 0;
    c.tool = http_tool_new(http_case_json(&c, "{\"request\":{\"path\":\"/\",\"form\":{\"n\":\"{card.number}\"}}}"), "",
                           c.provider, &c.core_tool, &c.problems);
    assert_non_null(c.tool);
    check_described(&c, "{\"card\":{\"number\":4111}}",
                    "{\"method\":\"POST\",\"url\":\"https://api.example.com/base/\",\"headers\":{\"Content-Type\":"
                    "\"application/x-www-form-urlencoded\"},\"body\":\"n=***\"}");
    http_tool_free(c.tool);
    c.tool = http_tool_new(http_case_json(&c, "{\"request\":{\"path\":\"/\",\"json\":\"{n: (.card.number + 1)}\"}}"),
                           "", c.provider, &c.core_tool, &c.problems);
    assert_non_null(c.tool);
    check_described(&c, "{\"card\":{\"number\":4111}}",
                    "{\"method\":\"POST\",\"url\":\"***\",\"headers\":{\"Content-Type\":\"application/json\"},\"body\":"
                    "\"***\"}");
    http_case_release(&c);
}

static void check_problem(const char *provider, const char *tool, enum tool_class class, const char *part)
{
    struct http_case c;
    http_case_init(&c, provider, tool, class);
    if (c.tool && c.provider)
        fail_msg("accepted, expected a problem with \"%s\"", part);
    has(http_case_problems(&c), part);
    http_case_release(&c);
}

static void test_provider_problems(void **state)
{
    (void)state;
    static const struct {
        const char *provider, *part;
    } cases[] = {
        {"{}", "/providers/p/base_url: is missing"},
        {"{\"base_url\":\"ftp://x\"}", "/base_url: is neither http nor https"},
        {"{\"base_url\":\"x\"}", "/base_url: is no URL"},
        {"{\"base_url\":\"http://u:p@x\"}", "has a user"},
        {"{\"base_url\":\"http://x?a=1\"}", "has a user, query"},
        {"{\"base_url\":\"http://x\",\"timeout\":\"10\"}", "/providers/p/timeout: \"10\" is not a duration"},
        {"{\"base_url\":\"http://x\",\"timeout\":10}", "/timeout: is number, expected a duration"},
        {"{\"base_url\":\"http://x\",\"connections\":0}", "/connections: is 0, expected a whole number from 1"},
        {"{\"base_url\":\"http://x\",\"colour\":1}", "/providers/p/colour: unknown member"},
        {"{\"base_url\":\"http://x\",\"key\":{}}", "/key: expected exactly one of"},
        {"{\"base_url\":\"http://x\",\"key\":{\"header\":\"A\",\"field\":\"b\"}}", "/key: expected exactly one of"},
        {"{\"base_url\":\"http://x\",\"key\":{\"header\":\"A\",\"formt\":\"b\"}}", "/key/formt: unknown member"},
        {"{\"base_url\":\"http://x\",\"no_effect\":[99]}", "/no_effect/0: is 99"},
        {"{\"base_url\":\"http://x\",\"no_effect\":[{\"code\":\"x\"}]}", "/no_effect/0/status: is missing"},
        {"{\"base_url\":\"http://x\",\"not_processed\":[{\"status\":400,\"when\":\"nonsense\"}]}",
         "/not_processed/0/when: nonsense/0 is not defined"},
        {"{\"base_url\":\"http://x\",\"headers\":{\"A\":\"${env:HTTP_TEST_NOWHERE}\"}}",
         "/headers/A: environment variable HTTP_TEST_NOWHERE is not set"},
        {"{\"base_url\":\"http://x\",\"headers\":{\"A\":\"${file:/nowhere/at/all}\"}}",
         "/headers/A: file /nowhere/at/all cannot be read"},
        {"{\"base_url\":\"http://x\",\"headers\":{\"Host\":\"y\"}}", "/headers/Host: belongs to the connection"},
        {"{\"base_url\":\"http://x\",\"headers\":{\"A b\":\"y\"}}", "is no header name"},
        {"{\"base_url\":\"http://x\",\"headers\":{\"A\":\"x\\ny\"}}", "control character"},
        /* S17 */
        {"{\"base_url\":\"http://x\",\"headers\":{\"PayPal-Request-Id\":\"y\"}}", "would be the same for all"},
        {"{\"base_url\":\"http://x\",\"headers\":{\"idempotency-key\":\"y\"}}", "would be the same for all"},
        {"{\"base_url\":\"http://x\",\"key\":{\"header\":\"X-My-Key\"},\"headers\":{\"x-my-key\":\"{order}\"}}",
         "is the provider's idempotency key"},
        {"{\"base_url\":\"http://x\",\"error\":{\"code\":\"code\"}}", "/error/code: is no JSON Pointer"},
        {"{\"base_url\":\"http://x\",\"retry_budget\":{\"per_second\":-1}}", "/retry_budget/per_second: expected"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_problem(cases[i].provider, "{\"request\":{\"path\":\"/\"}}", CLASS_EXTERNAL_WEAK, cases[i].part);
}

static void test_tool_problems(void **state)
{
    (void)state;
    static const struct {
        const char *tool, *part;
    } cases[] = {
        {"{}", "/tools/t/request: is missing"},
        {"{\"request\":{}}", "/request/path: is missing"},
        {"{\"request\":{\"path\":\"v1\"}}", "/request/path: does not begin"},
        {"{\"request\":{\"path\":\"/{\"}}", "/request/path: column 2"},
        {"{\"request\":{\"path\":{\"jq\":\"(\"}}}", "/request/path/jq: syntax error"},
        {"{\"request\":{\"path\":\"/\",\"jsn\":{}}}", "/request/jsn: unknown member"},
        {"{\"request\":{\"path\":\"/\",\"json\":{},\"form\":{}}}", "/request/form: a request has json or form"},
        {"{\"request\":{\"path\":\"/\",\"method\":\"GET\",\"json\":{}}}", "GET requests have no body"},
        {"{\"request\":{\"path\":\"/\",\"method\":\"HEAD\"}}", "cannot be a write"},
        {"{\"request\":{\"path\":\"/\",\"json\":{\"a\":[\"{\"]}}}", "/request/json/a/0: column 1"},
        {"{\"request\":{\"path\":\"/\",\"json\":{\"a\":\"${env:HOME}{b}\"}}}", "not both"},
        {"{\"request\":{\"path\":\"/\",\"headers\":{\"Content-Length\":\"1\"}}}", "belongs to the connection"},
        {"{\"request\":{\"path\":\"/\"},\"response\":{\"accepted\":[202]}}", "/response/accepted: needs a lookup"},
        {"{\"request\":{\"path\":\"/\"},\"response\":{\"result\":\"x\"}}",
         "/response/result: \"x\" is no JSON Pointer"},
        {"{\"request\":{\"path\":\"/\"},\"response\":{\"body\":\"none\"},\"verify\":{\"/a\":1}}", "/verify: needs"},
        {"{\"request\":{\"path\":\"/\"},\"verify\":{\"a\":1}}", "/verify/a: \"a\" is no JSON Pointer"},
        {"{\"request\":{\"path\":\"/\"},\"lookup\":{}}", "/lookup/request: is missing"},
        {"{\"request\":{\"path\":\"/\"},\"lookup\":{\"request\":{\"path\":\"/\",\"method\":\"DELETE\"}}}",
         "must not change anything"},
        {"{\"request\":{\"path\":\"/\"},\"lookup\":{\"request\":{\"path\":\"/\"},\"items\":\"/data\"}}",
         "/lookup/match: is missing"},
        {"{\"request\":{\"path\":\"/\"},\"lookup\":{\"request\":{\"path\":\"/\"},\"items\":\"/data\",\"match\":{\"/"
         "a\":1},"
         "\"next\":{\"cursor\":\"/c\"}}}",
         "/lookup/next: expected {cursor, query}"},
        {"{\"request\":{\"path\":\"/\"},\"timeout\":\"soon\"}", "/tools/t/timeout: \"soon\" is not a duration"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_problem(PROVIDER, cases[i].tool, CLASS_EXTERNAL_WEAK, cases[i].part);
    check_problem("{\"base_url\":\"http://x\",\"key\":{\"field\":\"k\"}}",
                  "{\"request\":{\"path\":\"/\",\"method\":\"DELETE\"}}", CLASS_EXTERNAL_IDEMPOTENT,
                  "the request has no body");
    check_problem("{\"base_url\":\"http://x\",\"key\":{\"field\":\"k\"}}",
                  "{\"request\":{\"path\":\"/\",\"json\":{\"k\":\"{k}\"}}}", CLASS_EXTERNAL_IDEMPOTENT,
                  "is set by onced");
}

static void test_contract(void **state)
{
    (void)state;
    struct http_case c;
    init(&c,
         "{\"base_url\":\"http://"
         "127.0.0.1:1\",\"timeout\":\"4s\",\"connect_timeout\":\"1s\",\"connections\":5,\"queue\":6,"
         "\"key\":{\"header\":\"K\",\"format\":\"uuid\",\"max_length\":36,\"retention\":\"24h\"},"
         "\"retry_budget\":{\"per_second\":2.5,\"burst\":7},\"breaker\":{\"failures\":0,\"open\":\"1s\"}}",
         "{\"request\":{\"path\":\"/\"},\"timeout\":\"2s\"}", CLASS_EXTERNAL_IDEMPOTENT);
    const struct provider *p = &c.core_provider;
    assert_int_equal(p->timeout_ms, 4000);
    assert_int_equal(p->connect_timeout_ms, 1000);
    assert_int_equal(p->connections_max, 5);
    assert_int_equal(p->queue_max, 6);
    assert_true(p->key_honoured);
    assert_int_equal(p->key_retention_ms, 24 * 3600 * 1000);
    assert_int_equal(p->key_format, KEY_FORMAT_UUID);
    assert_int_equal(p->key_bytes_max, 36);
    assert_true(p->retry_budget_per_s == 2.5);
    assert_int_equal(p->retry_budget_burst, 7);
    assert_int_equal(p->breaker_failures, 0);
    assert_int_equal(p->breaker_open_ms, 1000);
    assert_int_equal(c.tool->timeout_ms, 2000);
    http_case_release(&c);
}

static void test_secrets(void **state)
{
    (void)state;
    char path[] = "/tmp/onced-test-XXXXXX", text[64];
    int fd = mkstemp(path);
    assert_true(fd >= 0 && write(fd, "pass word\n\n", 11) == 11);
    close(fd);
    char *out = NULL;
    bool secret = false;
    struct err err = {0};
    snprintf(text, sizeof text, "a${file:%s}b$c${env:HTTP_TEST_NOWHERE:-d}", path);
    assert_int_equal(http_secret_expand(text, &out, &secret, &err), ERR_NONE);
    assert_string_equal(out, "apass word\nb$cd");
    assert_true(secret);
    free(out);
    assert_int_equal(http_secret_expand("plain {x}", &out, &secret, &err), ERR_NONE);
    assert_string_equal(out, "plain {x}");
    assert_false(secret);
    free(out);
    assert_int_equal(http_secret_expand("${env:", &out, &secret, &err), ERR_INVALID);
    err_clear(&err);
    assert_int_equal(http_secret_expand("${vault:x}", &out, &secret, &err), ERR_INVALID);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_path),          cmocka_unit_test(test_query),    cmocka_unit_test(test_json_body),
        cmocka_unit_test(test_form_body),     cmocka_unit_test(test_headers),  cmocka_unit_test(test_key),
        cmocka_unit_test(test_same_bytes),    cmocka_unit_test(test_describe), cmocka_unit_test(test_provider_problems),
        cmocka_unit_test(test_tool_problems), cmocka_unit_test(test_contract), cmocka_unit_test(test_secrets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
