/* Which calls are the same call (design 2): sources of keys in their order, what a key is over, fingerprints. */
#include "core/identity.h"
#include "support/test.h"
#include "support/world.h"

#include <stdio.h>
#include <string.h>

#define ARGUMENTS "{\"order\":\"o1\",\"amount\":10}"
#define CHANGED   "{\"order\":\"o1\",\"amount\":12}"

struct fix {
    struct arena arena;
    struct provider provider;
    struct tool tool;
    struct template *key;
    struct schema *schema;
    struct normal *normal;
    struct call call;
};

/* What became of a call. */
struct derived {
    struct operation op;
    struct admission admission;
    const struct json *effective;
    struct identity_error why;
    struct err err;
    enum err_code code;
};

static int setup(void **state)
{
    static struct fix fix;
    memset(&fix, 0, sizeof fix);
    world_provider(&fix.provider);
    world_tool(&fix.tool, "refund", CLASS_EXTERNAL_IDEMPOTENT, &fix.provider);
    fix.call = (struct call){.tenant = "acme", .principal = "agent"};
    *state = &fix;
    return 0;
}

static int teardown(void **state)
{
    struct fix *fix = *state;
    template_free(fix->key);
    schema_free(fix->schema);
    normal_free(fix->normal);
    arena_release(&fix->arena);
    return 0;
}

static struct json *parse(struct fix *fix, const char *text)
{
    struct json *value;
    struct err err = {0};
    if (json_parse(&fix->arena, str_of(text), NULL, &value, &err))
        fail_msg("%s: %s", text, err.text);
    return value;
}

static void use_key(struct fix *fix, const char *text)
{
    struct err err = {0};
    assert_int_equal(template_new(text, &fix->key, &err), 0);
    fix->tool.key = fix->key;
}

static struct derived derive(struct fix *fix, const char *arguments)
{
    struct derived d = {0};
    static unsigned calls;
    snprintf(d.op.id, sizeof d.op.id, "op_01MCC5RM00D6J0D89EBFQA%04u", calls++ % 10000);
    fix->call.arguments = parse(fix, arguments);
    d.code = identity_derive(&fix->call, &fix->tool, STR("secret"), &fix->arena, &d.op, &d.admission, &d.effective,
                             &d.why, &d.err);
    d.op.provider_key = arena_copy_text(&fix->arena, d.op.provider_key); /* may be d.op.id, which is about to move */
    return d;
}

static struct derived good(struct fix *fix, const char *arguments)
{
    struct derived d = derive(fix, arguments);
    if (d.code)
        fail_msg("%s: %s", arguments, d.err.text);
    return d;
}

static bool same_key(const struct derived *a, const struct derived *b)
{
    assert_int_equal(strcmp(a->op.key, b->op.key) == 0, digest_equal(&a->op.key_hash, &b->op.key_hash));
    return digest_equal(&a->op.key_hash, &b->op.key_hash);
}

static bool same_arguments(const struct derived *a, const struct derived *b)
{
    return digest_equal(&a->op.fingerprint, &b->op.fingerprint);
}

/* 2.2: each source wins over all that come after it. */
static void test_sources_in_their_order(void **state)
{
    struct fix *fix = *state;
    use_key(fix, "order:{order}");
    fix->call.idempotency_key = "caller-1";
    fix->call.run = "run", fix->call.step = "step", fix->call.call = "call", fix->call.session = "session";
    struct derived d = good(fix, ARGUMENTS);
    assert_int_equal(d.op.key_source, KEY_SOURCE_CALLER);
    assert_string_equal(d.op.key, "caller-1");
    fix->call.idempotency_key = NULL;
    d = good(fix, ARGUMENTS);
    assert_int_equal(d.op.key_source, KEY_SOURCE_BUSINESS);
    assert_string_equal(d.op.key, "order:o1");
    fix->tool.key = NULL;
    assert_int_equal(good(fix, ARGUMENTS).op.key_source, KEY_SOURCE_STEP);
    fix->call.step = NULL;
    assert_int_equal(good(fix, ARGUMENTS).op.key_source, KEY_SOURCE_CALL);
    fix->call.call = NULL;
    assert_int_equal(good(fix, ARGUMENTS).op.key_source, KEY_SOURCE_REPEAT);
}

static void test_a_required_key(void **state)
{
    struct fix *fix = *state;
    use_key(fix, "order:{order}");
    fix->tool.identity = IDENTITY_CALLER;
    struct derived d = derive(fix, ARGUMENTS);
    assert_int_equal(d.code, ERR_INVALID);
    assert_int_equal(d.why.refusal, REFUSAL_KEY_MISSING);
    fix->call.idempotency_key = "k";
    assert_int_equal(good(fix, ARGUMENTS).op.key_source, KEY_SOURCE_CALLER);
}

/* An argument that looks like a key is an argument (2.1). */
static void test_arguments_are_no_keys(void **state)
{
    struct fix *fix = *state;
    struct derived a = good(fix, "{\"idempotency_key\":\"k\"}"), b = good(fix, "{\"idempotency_key\":\"k\"}");
    assert_int_equal(a.op.key_source, KEY_SOURCE_REPEAT);
    assert_false(same_key(&a, &b));
}

static void test_business_keys(void **state)
{
    struct fix *fix = *state;
    use_key(fix, "{a}:{b}");
    struct derived one = good(fix, "{\"a\":\"a:b\",\"b\":\"c\"}"), two = good(fix, "{\"a\":\"a\",\"b\":\"b:c\"}");
    assert_false(same_key(&one, &two));
    struct derived number = good(fix, "{\"a\":\"x\",\"b\":49.00}"), other = good(fix, "{\"a\":\"x\",\"b\":4.9e1}");
    assert_true(same_key(&number, &other));
    const char *refused[] = {"{\"a\":\"x\",\"b\":null}", "{\"a\":\"x\"}"};
    for (size_t i = 0; i < 2; i++) {
        struct derived d = derive(fix, refused[i]);
        assert_int_equal(d.code, ERR_INVALID);
        assert_int_equal(d.why.refusal, REFUSAL_KEY_COMPONENT);
        assert_non_null(strstr(d.err.text, "b is"));
    }
}

/* 2.2.3: a step is its run, its name and the tool; not the arguments, not the session. */
static void test_steps(void **state)
{
    struct fix *fix = *state;
    fix->call.workflow = "flow", fix->call.run = "r1", fix->call.step = "s1", fix->call.session = "c1";
    struct derived first = good(fix, ARGUMENTS), changed = good(fix, CHANGED);
    assert_true(same_key(&first, &changed));
    assert_false(same_arguments(&first, &changed));
    fix->call.session = "c2";
    struct derived reconnected = good(fix, ARGUMENTS);
    assert_true(same_key(&first, &reconnected));
    fix->call.run = "r2";
    struct derived other_run = good(fix, ARGUMENTS);
    assert_false(same_key(&first, &other_run));
    fix->call.run = "r1", fix->call.step = "s2";
    struct derived other_step = good(fix, ARGUMENTS);
    assert_false(same_key(&first, &other_step));
    fix->call.step = "s1";
    fix->tool.step_identity = STEP_PER_ARGUMENTS;
    struct derived a = good(fix, ARGUMENTS), b = good(fix, CHANGED), again = good(fix, ARGUMENTS);
    assert_false(same_key(&a, &b));
    assert_true(same_key(&a, &again));
}

static void test_a_step_needs_its_run(void **state)
{
    struct fix *fix = *state;
    fix->call.step = "s1";
    struct derived d = derive(fix, ARGUMENTS);
    assert_int_equal(d.why.refusal, REFUSAL_KEY_INVALID);
}

static void test_call_ids_belong_to_a_session(void **state)
{
    struct fix *fix = *state;
    fix->call.call = "1", fix->call.session = "a";
    struct derived first = good(fix, ARGUMENTS), changed = good(fix, CHANGED);
    assert_true(same_key(&first, &changed));
    fix->call.session = "b";
    struct derived other = good(fix, ARGUMENTS);
    assert_false(same_key(&first, &other));
    fix->call.session = "a", fix->call.principal = "another";
    struct derived colleague = good(fix, ARGUMENTS);
    assert_false(same_key(&first, &colleague));
}

static void test_who_shares(void **state)
{
    struct fix *fix = *state;
    fix->call.idempotency_key = "k";
    assert_false(good(fix, ARGUMENTS).admission.share_with_tenant);
    fix->call.idempotency_key = NULL;
    assert_false(good(fix, ARGUMENTS).admission.share_with_tenant);
    use_key(fix, "order:{order}");
    assert_true(good(fix, ARGUMENTS).admission.share_with_tenant);
    fix->tool.share = SHARE_PRINCIPAL;
    assert_false(good(fix, ARGUMENTS).admission.share_with_tenant);
    fix->tool.key = NULL, fix->tool.share = SHARE_TENANT;
    assert_true(good(fix, ARGUMENTS).admission.share_with_tenant);
}

static void test_tenants(void **state)
{
    struct fix *fix = *state;
    fix->call.idempotency_key = "k";
    struct derived mine = good(fix, ARGUMENTS);
    fix->call.tenant = "other";
    struct derived theirs = good(fix, ARGUMENTS);
    assert_false(digest_equal(&mine.op.key_hash, &theirs.op.key_hash));
    assert_true(same_arguments(&mine, &theirs));
}

/* 2.5 as far as calls see it. */
static void test_fingerprints(void **state)
{
    static const struct {
        const char *a, *b;
        bool same;
    } pairs[] = {
        {"{\"n\":9007199254740993}", "{\"n\":9007199254740992}", false},
        {"{\"n\":49}", "{\"n\":49.0}", true},
        {"{\"n\":49.00}", "{\"n\":4.9e1}", true},
        {"{\"a\":1,\"b\":2}", "{\"b\":2,\"a\":1}", true},
        {"{\"a\":[1,2]}", "{\"a\":[2,1]}", false},
        {"{\"a\":1,\"b\":null}", "{\"a\":1}", false},
        {"{\"a\":\"1\"}", "{\"a\":1}", false},
        {"{\"a\":\"\\u00e9\"}", "{\"a\":\"é\"}", true},
        {"{\"a\":\"e\\u0301\"}", "{\"a\":\"é\"}", false},
    };
    struct fix *fix = *state;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        struct derived a = good(fix, pairs[i].a), b = good(fix, pairs[i].b);
        if (same_arguments(&a, &b) != pairs[i].same)
            fail_msg("%s and %s", pairs[i].a, pairs[i].b);
    }
}

/* 2.6 */
static void test_effective_arguments(void **state)
{
    struct fix *fix = *state;
    struct err err = {0};
    static const char *const volatile_pointers[] = {"/sent_at", "/meta/trace"};
    fix->tool.volatile_pointers = volatile_pointers;
    fix->tool.volatile_count = 2;
    struct derived a = good(fix, "{\"n\":1,\"sent_at\":\"now\",\"meta\":{\"trace\":1,\"kept\":1}}");
    struct derived b = good(fix, "{\"n\":1,\"sent_at\":\"later\",\"meta\":{\"trace\":2,\"kept\":1}}");
    struct derived c = good(fix, "{\"n\":1,\"sent_at\":\"now\",\"meta\":{\"trace\":1,\"kept\":2}}");
    assert_true(same_arguments(&a, &b));
    assert_false(same_arguments(&a, &c));
    assert_non_null(strstr(b.op.arguments.p, "later")); /* sent, though not fingerprinted */
    fix->tool.volatile_count = 0;
    struct json *schema = parse(fix, "{\"properties\":{\"currency\":{\"type\":\"string\",\"default\":\"eur\"}}}");
    assert_int_equal(schema_new(schema, NULL, 0, &fix->schema, &err), 0);
    fix->tool.input_schema = fix->schema;
    struct derived left_out = good(fix, "{\"n\":1}"), written = good(fix, "{\"n\":1,\"currency\":\"eur\"}");
    assert_true(same_arguments(&left_out, &written));
    assert_non_null(strstr(left_out.op.arguments.p, "eur"));
    assert_int_equal(derive(fix, "{\"currency\":1}").why.refusal, REFUSAL_ARGUMENTS);
    assert_int_equal(normal_new(parse(fix, "{\"currency\":\"lower\"}"), &fix->normal, &err), 0);
    fix->tool.normal = fix->normal;
    struct derived upper = good(fix, "{\"n\":1,\"currency\":\"EUR\"}");
    assert_true(same_arguments(&upper, &written));
    assert_null(strstr(upper.op.arguments.p, "EUR"));
}

/* 2.8: a retry of a repeat is that repeat; a repeat of another operation is another. */
static void test_repeats(void **state)
{
    struct fix *fix = *state;
    struct derived plain = good(fix, ARGUMENTS), other = good(fix, ARGUMENTS);
    assert_false(same_key(&plain, &other)); /* the ledger finds the one to join */
    fix->call.repeat_of = "op_01MCC5RM00D6J0D89EBFQAC9QQ";
    struct derived repeat = good(fix, ARGUMENTS), retried = good(fix, ARGUMENTS);
    assert_true(same_key(&repeat, &retried));
    fix->call.repeat_of = "op_01MCC5RM00D6J0D89EBFQAC9QR";
    struct derived second = good(fix, ARGUMENTS);
    assert_false(digest_equal(&repeat.op.key_hash, &second.op.key_hash));
    fix->call.idempotency_key = "k";
    struct derived keyed = good(fix, ARGUMENTS);
    fix->call.repeat_of = NULL;
    struct derived base = good(fix, ARGUMENTS);
    assert_true(digest_equal(&keyed.op.base_hash, &base.op.key_hash));
    assert_false(digest_equal(&keyed.op.key_hash, &base.op.key_hash));
}

/* The provider's key: opaque, within its alphabet and length, another one for each operation. */
static void test_provider_keys(void **state)
{
    struct fix *fix = *state;
    fix->call.idempotency_key = "secret business";
    struct derived a = good(fix, ARGUMENTS), b = good(fix, ARGUMENTS);
    assert_string_not_equal(a.op.provider_key, b.op.provider_key);
    fix->provider.key_format = KEY_FORMAT_UUID;
    struct derived uuid = good(fix, ARGUMENTS);
    assert_int_equal(strlen(uuid.op.provider_key), 36);
    assert_int_equal(uuid.op.provider_key[14], '8');
    fix->provider.key_format = KEY_FORMAT_HEX;
    fix->provider.key_bytes_max = 20;
    struct derived hex = good(fix, ARGUMENTS);
    assert_int_equal(strlen(hex.op.provider_key), 20);
    assert_int_equal(strspn(hex.op.provider_key, "0123456789abcdef"), 20);
    fix->provider.key_format = KEY_FORMAT_OPERATION_ID;
    struct derived cut = good(fix, ARGUMENTS), next = good(fix, ARGUMENTS);
    assert_int_equal(strlen(cut.op.provider_key), 20);
    assert_string_not_equal(cut.op.provider_key, next.op.provider_key); /* not the ids' common start */
}

static void test_headers(void **state)
{
    static const struct {
        const char *value, *key; /* NULL: refused */
    } cases[] = {
        {"abc", "abc"},  {" \tabc ", "abc"}, {"\"abc\"", "abc"}, {"\"a\\\"b\\\\c\"", "a\"b\\c"}, {"\"a b\"", "a b"},
        {"\"abc", NULL}, {"\"\"", NULL},     {"", NULL},         {"\"abc\";p=1", NULL},          {"\"a\\b\"", NULL},
        {"a\x01", NULL}, {"\"a\" b", NULL},  {"\"a\\", NULL},
    };
    struct fix *fix = *state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *key = NULL;
        struct err err = {0};
        enum err_code code = identity_parse_header(str_of(cases[i].value), &fix->arena, &key, &err);
        if (cases[i].key) {
            assert_int_equal(code, 0);
            assert_string_equal(key, cases[i].key);
        } else if (code != ERR_INVALID) {
            fail_msg("accepted: %s", cases[i].value);
        }
    }
    char longest[OPERATION_KEY_BYTES_MAX + 2];
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    struct err err = {0};
    assert_int_equal(identity_check_key(longest, &err), ERR_INVALID);
    assert_int_equal(identity_check_key(longest + 1, &err), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_sources_in_their_order),
        TEST(test_a_required_key),
        TEST(test_arguments_are_no_keys),
        TEST(test_business_keys),
        TEST(test_steps),
        TEST(test_a_step_needs_its_run),
        TEST(test_call_ids_belong_to_a_session),
        TEST(test_who_shares),
        TEST(test_tenants),
        TEST(test_fingerprints),
        TEST(test_effective_arguments),
        TEST(test_repeats),
        TEST(test_provider_keys),
        TEST(test_headers),
    };
    return cmocka_run_group_tests_name("identity", tests, NULL, NULL);
}
