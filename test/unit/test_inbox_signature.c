/* Signatures of webhooks: vectors made by the libraries stripe and standardwebhooks (test/webhooks), GitHub's own
 * example, and everything that must be refused. How events are read. */
#include "support/test.h"

#include "base/log.h"
#include "door/inbox_rules.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOLERANCE_MS 300000

struct fix {
    struct arena arena;
    struct json *file;
    int64_t now_ms;
};

static int setup(void **state)
{
    static struct fix fix;
    static char text[65536];
    FILE *file = fopen(WEBHOOK_VECTORS, "r");
    log_set_level(LOG_OFF);
    assert_non_null(file);
    size_t n = fread(text, 1, sizeof text, file);
    fclose(file);
    arena_init(&fix.arena);
    assert_int_equal(json_parse(&fix.arena, (struct str){text, n}, &json_limits_default, &fix.file, NULL), 0);
    fix.now_ms = strtoll(arena_copy_str(&fix.arena, json_get(fix.file, "now")->text), NULL, 10) * 1000;
    *state = &fix;
    return 0;
}

static int teardown(void **state)
{
    struct fix *fix = *state;
    arena_release(&fix->arena);
    return 0;
}

static struct str text_of(const struct json *object, const char *name)
{
    const struct json *value = json_get(object, name);
    return value ? value->text : STR_NONE;
}

static struct inbox_rules rules_with(struct fix *fix, enum inbox_scheme scheme, struct str secret)
{
    struct inbox_rules rules = {.scheme = scheme, .secret_count = 1, .tolerance_ms = TOLERANCE_MS};
    struct err err = {0};
    assert_int_equal(inbox_secret(scheme, arena_copy_str(&fix->arena, secret), &fix->arena, &rules.secrets[0], &err),
                     0);
    return rules;
}

static void vector_of(struct fix *fix, const struct json *vector, struct inbox_rules *rules,
                      struct inbox_message *message)
{
    const struct json *headers = json_get(vector, "headers");
    bool stripe = str_is(text_of(vector, "scheme"), "stripe");
    *rules = rules_with(fix, stripe ? INBOX_STRIPE : INBOX_STANDARD_WEBHOOKS, text_of(vector, "secret"));
    *message = (struct inbox_message){
        .body = text_of(vector, "body"),
        .stripe = text_of(headers, "stripe-signature"),
        .webhook_id = text_of(headers, "webhook-id"),
        .webhook_time = text_of(headers, "webhook-timestamp"),
        .webhook_sign = text_of(headers, "webhook-signature"),
    };
}

static void expect(const struct inbox_rules *rules, const struct inbox_message *message, int64_t now_ms,
                   const char *refusal)
{
    struct err err = {0};
    enum err_code code = inbox_verify(rules, message, now_ms, &err);
    if (!refusal) {
        if (code)
            fail_msg("refused: %s", err.text);
        return;
    }
    assert_int_equal(code, ERR_DENIED);
    if (!strstr(err.text, refusal))
        fail_msg("\"%s\" does not say \"%s\"", err.text, refusal);
}

/* Every one-bit change of a text must be refused. */
static void expect_each_bit(struct fix *fix, const struct inbox_rules *rules, const struct inbox_message *message,
                            size_t member)
{
    struct inbox_message changed = *message;
    struct str *text = (struct str *)((char *)&changed + member);
    char *copy = arena_copy_str(&fix->arena, *text);
    struct err err = {0};
    text->p = copy;
    for (size_t i = 0; i < text->n; i++)
        for (int bit = 0; bit < 7; bit++) {
            copy[i] ^= (char)(1 << bit);
            bool same_hex = copy[i] >= 'A' && copy[i] <= 'F' && bit == 5; /* hex digits in another case */
            if (!same_hex && inbox_verify(rules, &changed, fix->now_ms, &err) == ERR_NONE)
                fail_msg("byte %zu, bit %d changed and accepted: %.200s", i, bit, copy);
            copy[i] ^= (char)(1 << bit);
        }
}

static void test_vectors_of_the_libraries(void **state)
{
    struct fix *fix = *state;
    const struct json *vectors = json_get(fix->file, "vectors");
    assert_true(vectors->count >= 12);
    for (uint32_t i = 0; i < vectors->count; i++) {
        struct inbox_rules rules;
        struct inbox_message message;
        vector_of(fix, &vectors->items[i], &rules, &message);
        bool stripe = rules.scheme == INBOX_STRIPE;
        expect(&rules, &message, fix->now_ms, NULL);
        expect(&rules, &message, fix->now_ms + TOLERANCE_MS, NULL);
        expect(&rules, &message, fix->now_ms - TOLERANCE_MS, NULL);
        expect(&rules, &message, fix->now_ms + TOLERANCE_MS + 1000, "old"); /* replayed later */
        expect(&rules, &message, fix->now_ms - TOLERANCE_MS - 1000, "ahead");
        expect_each_bit(fix, &rules, &message, offsetof(struct inbox_message, body));
        expect_each_bit(fix, &rules, &message,
                        stripe ? offsetof(struct inbox_message, stripe) : offsetof(struct inbox_message, webhook_sign));
        if (!stripe)
            expect_each_bit(fix, &rules, &message, offsetof(struct inbox_message, webhook_id));
        for (uint32_t k = 0; k < vectors->count; k++) { /* nobody else's fits */
            struct inbox_rules other;
            struct inbox_message theirs;
            vector_of(fix, &vectors->items[k], &other, &theirs);
            if (other.scheme != rules.scheme || k == i)
                continue;
            theirs.body = message.body;
            if (!str_equal(text_of(&vectors->items[k], "secret"), text_of(&vectors->items[i], "secret")))
                expect(&rules, &theirs, fix->now_ms, "no signature fits");
        }
    }
}

static void test_any_secret_of_a_rotation_fits(void **state)
{
    struct fix *fix = *state;
    const struct json *vectors = json_get(fix->file, "vectors");
    struct inbox_rules first, second;
    struct inbox_message message;
    vector_of(fix, &vectors->items[1], &second, &message);
    vector_of(fix, &vectors->items[0], &first, &message);
    struct inbox_rules both = second;
    both.secrets[both.secret_count++] = first.secrets[0];
    expect(&both, &message, fix->now_ms, NULL);
    expect(&second, &message, fix->now_ms, "no signature fits");
    /* a sender that rotates signs twice: the other way round */
    struct inbox_message twice = message;
    twice.stripe = str_of(arena_printf(&fix->arena, "%.*s,v1=%064d,v0=abc", STR_ARG(message.stripe), 0));
    expect(&first, &twice, fix->now_ms, NULL);
    vector_of(fix, &vectors->items[2], &first, &message);
    twice = message;
    twice.webhook_sign = str_of(arena_printf(
        &fix->arena, "v1,AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA= v1a,AAAA %.*s", STR_ARG(message.webhook_sign)));
    expect(&first, &twice, fix->now_ms, NULL);
}

static void test_github(void **state)
{
    struct fix *fix = *state; /* the example of GitHub's documentation */
    struct inbox_rules rules = rules_with(fix, INBOX_GITHUB, STR("It's a Secret to Everybody"));
    struct inbox_message message = {
        .body = STR("Hello, World!"),
        .hub = STR("sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"),
    };
    expect(&rules, &message, fix->now_ms, NULL);
    expect_each_bit(fix, &rules, &message, offsetof(struct inbox_message, body));
    expect_each_bit(fix, &rules, &message, offsetof(struct inbox_message, hub));
    message.hub = STR("sha1=757107ea0eb2509fc211221cce984b8a37570b6d");
    expect(&rules, &message, fix->now_ms, "sha256=HEX");
}

static void test_malformed_headers(void **state)
{
    struct fix *fix = *state;
    static const char *const stripe[] = {
        "",
        "t=1795968000",
        "v1=aa",
        "t=,v1=",
        "t=abc,v1=9d31612ae1f5b893e82171a17158e370f3876f84a3f80ad076692760a00c3489",
        "t=-1,v1=9d31612ae1f5b893e82171a17158e370f3876f84a3f80ad076692760a00c3489",
        "t=99999999999999999999,v1=00",
        ",,,=,=",
        "t=1795968000,v1=zz31612ae1f5b893e82171a17158e370f3876f84a3f80ad076692760a00c3489"};
    struct inbox_rules rules = rules_with(fix, INBOX_STRIPE, STR("secret"));
    for (size_t i = 0; i < sizeof stripe / sizeof *stripe; i++) {
        struct inbox_message message = {.body = STR("{}"), .stripe = str_of(stripe[i])};
        expect(&rules, &message, fix->now_ms, "Stripe-Signature");
    }
    struct inbox_message none = {.body = STR("{}")};
    expect(&rules, &none, fix->now_ms, "missing");
    rules = rules_with(fix, INBOX_STANDARD_WEBHOOKS, STR("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"));
    expect(&rules, &none, fix->now_ms, "webhook-id");
    struct inbox_message some = {
        .body = STR("{}"), .webhook_id = STR("m"), .webhook_time = STR("x"), .webhook_sign = STR("v1,AAAA v2, ,v1")};
    expect(&rules, &some, fix->now_ms, "webhook-timestamp");
}

static void test_secrets(void **state)
{
    struct fix *fix = *state;
    struct str out;
    struct err err = {0};
    assert_int_equal(inbox_secret(INBOX_STRIPE, "", &fix->arena, &out, &err), ERR_INVALID);
    err_clear(&err);
    assert_int_equal(inbox_secret(INBOX_STANDARD_WEBHOOKS, "whsec_???", &fix->arena, &out, &err), ERR_INVALID);
    err_clear(&err);
    assert_int_equal(inbox_secret(INBOX_STANDARD_WEBHOOKS, "whsec_YWJj", &fix->arena, &out, &err), ERR_INVALID);
    err_clear(&err);
    assert_int_equal(inbox_secret(INBOX_STANDARD_WEBHOOKS, "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", &fix->arena, &out, &err),
                     0);
    assert_int_equal(out.n, 24);
}

/* ---- reading ---- */

static struct jq_program *program(const char *text)
{
    struct jq_program *made = NULL;
    struct err err = {0};
    if (jq_program_new(text, false, &made, &err))
        fail_msg("%s", err.text);
    return made;
}

static void test_reading(void **state)
{
    struct fix *fix = *state;
    struct inbox_rules rules = {
        .scheme = INBOX_STRIPE,
        .event_id = {.pointer = "/id"},
        .type = {.pointer = "/type"},
        .created = {.pointer = "/created"},
        .reference = {.pointer = "/data/operation"},
        .provider_key = {.jq = program(".request.idempotency_key")},
        .external_id = {.pointer = "/data/id"},
        .outcomes = {{.when = program(".type == \"paid\""), .outcome = INBOUND_SUCCESS, .result = {.pointer = "/data"}},
                     {.when = program(".data.n > 5"),
                      .outcome = INBOUND_NO_EFFECT,
                      .external_id = {.pointer = "/other"}},
                     {.when = program(".type == (1 | error)"), .outcome = INBOUND_FAILED}},
        .outcome_count = 3,
    };
    const struct {
        const char *body;
        enum inbound_outcome outcome;
        enum inbound_match match;
        const char *value, *external_id, *result;
        int64_t created_ms;
    } cases[] = {
        {"{\"id\":\"e\",\"type\":\"paid\",\"created\":1795968000,\"data\":{\"operation\":\"op_1\",\"id\":\"x\"}}",
         INBOUND_SUCCESS, INBOUND_BY_REFERENCE, "op_1", "x", "{\"operation\":\"op_1\",\"id\":\"x\"}", 1795968000000},
        {"{\"id\":\"e\",\"created\":1795968000123,\"request\":{\"idempotency_key\":\"k\"},\"data\":{\"n\":6,\"id\":7},"
         "\"other\":\"o\"}",
         INBOUND_NO_EFFECT, INBOUND_BY_PROVIDER_KEY, "k", "o", NULL, 1795968000123},
        {"{\"id\":17,\"created\":\"2026-11-29T16:00:00.5Z\",\"data\":{\"id\":7}}", INBOUND_IGNORE,
         INBOUND_BY_EXTERNAL_ID, "7", NULL, NULL, 1795968000500},
        {"{\"id\":\"e\",\"created\":true,\"data\":{\"operation\":null,\"id\":{}}}", INBOUND_IGNORE, INBOUND_BY_NOTHING,
         NULL, NULL, NULL, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct inbox_message message = {.body = str_of(cases[i].body)};
        struct inbound event;
        struct err err = {0};
        if (inbox_read(&rules, "pay", &message, &fix->arena, &event, &err))
            fail_msg("case %zu: %s", i, err.text);
        assert_string_equal(inbound_outcome_name(event.outcome), inbound_outcome_name(cases[i].outcome));
        assert_string_equal(inbound_match_name(event.match), inbound_match_name(cases[i].match));
        assert_true(text_equal(event.value, cases[i].value));
        assert_true(text_equal(event.external_id, cases[i].external_id));
        assert_true(str_equal(event.result, str_of(cases[i].result)));
        assert_int_equal(event.created_ms, cases[i].created_ms);
        assert_string_equal(event.event, i == 2 ? "17" : "e");
        assert_true(str_equal(event.body, message.body));
    }
    static const char *const bad[] = {"", "x", "{\"id\":\"\"}", "{}", "[]", "{\"id\":{}}", "{\"id\":\"a\\u0000b\"}"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct inbox_message message = {.body = str_of(bad[i])};
        struct inbound event;
        struct err err = {0};
        assert_int_not_equal(inbox_read(&rules, "pay", &message, &fix->arena, &event, &err), 0);
    }
    for (size_t i = 0; i < rules.outcome_count; i++)
        jq_program_free(rules.outcomes[i].when);
    jq_program_free(rules.provider_key.jq);
}

static void test_ids_that_are_signed(void **state)
{
    struct fix *fix = *state;
    struct inbox_rules rules = {.scheme = INBOX_STANDARD_WEBHOOKS};
    struct inbox_message message = {.body = STR("{}"), .webhook_id = STR("msg_1")};
    struct inbound event;
    struct err err = {0};
    assert_int_equal(inbox_read(&rules, "s", &message, &fix->arena, &event, &err), 0);
    assert_string_equal(event.event, "msg_1");
    rules.scheme = INBOX_GITHUB; /* its delivery id is not signed: the body's digest tells events apart */
    message.hub_event = STR("push");
    assert_int_equal(inbox_read(&rules, "s", &message, &fix->arena, &event, &err), 0);
    assert_string_equal(event.event, "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a");
    assert_string_equal(event.type, "push");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vectors_of_the_libraries),
        cmocka_unit_test(test_any_secret_of_a_rotation_fits),
        cmocka_unit_test(test_github),
        cmocka_unit_test(test_malformed_headers),
        cmocka_unit_test(test_secrets),
        cmocka_unit_test(test_reading),
        cmocka_unit_test(test_ids_that_are_signed),
    };
    return cmocka_run_group_tests_name("inbox signatures", tests, setup, teardown);
}
