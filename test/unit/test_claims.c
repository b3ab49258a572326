/* Exact decimals, and what calls claim: entities, windows, budgets, attributes (core/claims.h). */
#include "core/claims.h"
#include "core/template.h"

#include "support/test.h"

#include <stdio.h>

/* ---- decimals ---- */

static void decimals_are_exact(void **state)
{
    (void)state;
    static const struct {
        const char *text, *shown;
    } good[] = {
        {"0", "0"},
        {"-0", "0"},
        {"10.00", "10"},
        {"0.1", "0.1"},
        {"1e3", "1000"},
        {"1.5E-3", "0.0015"},
        {"-3.25", "-3.25"},
        {"123456789012345678", "123456789012345678"},
        {"0.000000000000000001", "0.000000000000000001"},
        {"100e-2", "1"},
        {"0.10e1", "1"},
        {"0e999999999999", "0"},
        {"1.000000000000000000000", "1"},
        {"999999999999999999.999999999999999999", "999999999999999999.999999999999999999"},
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        struct decimal value;
        char text[DECIMAL_TEXT_BYTES];
        assert_int_equal(decimal_read(str_of(good[i].text), &value, NULL), 0);
        decimal_write(value, text);
        assert_string_equal(text, good[i].shown);
        struct decimal again;
        assert_int_equal(decimal_read(str_of(text), &again, NULL), 0);
        assert_int_equal(decimal_compare(value, again), 0);
    }
    struct decimal sum = decimal_of(0), tenth;
    assert_int_equal(decimal_read(STR("0.1"), &tenth, NULL), 0);
    for (int i = 0; i < 30; i++)
        sum = decimal_add(sum, tenth);
    assert_int_equal(decimal_compare(sum, decimal_of(3)), 0);
    assert_int_equal(decimal_compare(decimal_subtract(sum, tenth), decimal_of(3)), -1);
}

static void what_does_not_fit_is_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {"",   "-",  "+1",  "01",  "1.",   ".5",   "1e",  "1e+",  "x",
                                      "1 ", " 1", "1,5", "NaN", "0x10", "1.5.", "--1", "1e1.5"};
    static const char *const large[] = {"1e18",
                                        "1000000000000000000",
                                        "0.0000000000000000001",
                                        "1e-19",
                                        "1e999999999",
                                        "-1e18",
                                        "1e-999999999",
                                        "1234567890123456789012345678901234567890"};
    struct decimal value;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(decimal_read(str_of(bad[i]), &value, NULL), ERR_INVALID);
    for (size_t i = 0; i < sizeof large / sizeof *large; i++)
        assert_int_equal(decimal_read(str_of(large[i]), &value, NULL), ERR_LIMIT);
    assert_int_equal(decimal_read(STR_NONE, &value, NULL), ERR_INVALID);
}

/* ---- what a call claims ---- */

struct fix {
    struct arena arena;
    struct template *templates[8];
    size_t template_count;
    struct entity_rule entities[2];
    struct attribute_rule sets[2];
    struct budget budget;
    struct debit_rule debit;
    struct tool_claims rules;
    struct operation op;
    struct claims claims;
    struct err err;
};

static const struct template *template(struct fix *fix, const char *text)
{
    struct template **out = &fix->templates[fix->template_count++];
    assert_int_equal(template_new(text, out, NULL), 0);
    return *out;
}

static int setup(void **state)
{
    static struct fix fix;
    fix = (struct fix){.op = {.principal = "ann", .id = "op_1"}};
    arena_init(&fix.arena);
    *state = &fix;
    return 0;
}

static int teardown(void **state)
{
    struct fix *fix = *state;
    for (size_t i = 0; i < fix->template_count; i++)
        template_free(fix->templates[i]);
    arena_release(&fix->arena);
    return 0;
}

static enum err_code of_call(struct fix *fix, const char *arguments)
{
    struct json *value;
    fix->err = (struct err){0};
    assert_int_equal(json_parse(&fix->arena, str_of(arguments), NULL, &value, NULL), 0);
    return claims_of_call(&fix->rules, &fix->op, value, "a reason", &fix->arena, &fix->claims, &fix->err);
}

static void entities_are_ordered_and_taken_once(void **state)
{
    struct fix *fix = *state;
    fix->entities[0] = (struct entity_rule){"account", template(fix, "{to}"), true};
    fix->entities[1] = (struct entity_rule){"account", template(fix, "{from}"), false};
    fix->rules.entities = fix->entities;
    fix->rules.entity_count = 2;
    assert_int_equal(of_call(fix, "{\"from\":\"a\",\"to\":\"b\"}"), 0);
    assert_int_equal(fix->claims.entity_count, 2);
    assert_string_equal(fix->claims.entities[0].id, "a");
    assert_string_equal(fix->claims.entities[1].id, "b");
    assert_int_equal(of_call(fix, "{\"from\":\"a\",\"to\":\"a\"}"), 0);
    assert_int_equal(fix->claims.entity_count, 1);
    assert_false(fix->claims.entities[0].queue); /* who does not wait for one of them, does not wait */
    assert_int_equal(of_call(fix, "{\"from\":\"a:b\",\"to\":7.0}"), 0);
    assert_string_equal(fix->claims.entities[0].id, "7"); /* as keys are filled: 7 and 7.0 are one */
    assert_string_equal(fix->claims.entities[1].id, "a%3Ab");
    assert_int_equal(of_call(fix, "{\"from\":\"a\"}"), ERR_INVALID);
    assert_string_equal(fix->err.text, "entity account: to is missing");
    assert_int_equal(of_call(fix, "{\"from\":\"a\",\"to\":null}"), ERR_INVALID);
    assert_int_equal(of_call(fix, "{\"from\":\"a\",\"to\":\"\"}"), ERR_INVALID);
}

static void amounts_are_judged(void **state)
{
    struct fix *fix = *state;
    static const struct {
        const char *arguments;
        enum err_code code;
    } cases[] = {
        {"{\"amount\":10.00}", ERR_NONE},      {"{\"amount\":\"10.00\"}", ERR_NONE},
        {"{\"amount\":0}", ERR_NONE},          {"{\"amount\":-1}", ERR_INVALID},
        {"{\"amount\":\"ten\"}", ERR_INVALID}, {"{\"amount\":null}", ERR_INVALID},
        {"{\"amount\":true}", ERR_INVALID},    {"{}", ERR_INVALID},
        {"{\"amount\":1e30}", ERR_LIMIT},
    };
    fix->budget = (struct budget){.name = "b", .per_ms = 60000, .limit = decimal_of(5), .per_principal = true};
    fix->debit = (struct debit_rule){&fix->budget, "/amount", NULL};
    fix->rules.debits = &fix->debit;
    fix->rules.debit_count = 1;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(of_call(fix, cases[i].arguments), cases[i].code);
    assert_int_equal(of_call(fix, "{\"amount\":2}"), 0);
    assert_string_equal(fix->claims.debits[0].subject, "ann");
    fix->debit.amount = NULL; /* a count */
    assert_int_equal(of_call(fix, "{}"), 0);
    assert_int_equal(decimal_compare(fix->claims.debits[0].amount, decimal_of(1)), 0);
}

static void the_text_tells_all_that_is_kept(void **state)
{
    struct fix *fix = *state;
    assert_int_equal(of_call(fix, "{}"), 0);
    assert_null(claims_write(&fix->arena, &fix->claims).p);
    assert_false(claims_want_entities(STR_NONE));
    fix->rules.window = (struct window_rule){template(fix, "w:{x}"), 1000, true};
    assert_int_equal(of_call(fix, "{\"x\":\"1\",\"n\":12.50}"), 0);
    struct str text = claims_write(&fix->arena, &fix->claims);
    assert_false(claims_want_entities(text));
    fix->entities[0] = (struct entity_rule){"order", template(fix, "{x}"), true};
    fix->sets[0] = (struct attribute_rule){.type = "order", .name = "n", .template = template(fix, "{n}")};
    fix->rules.entities = fix->entities;
    fix->rules.sets = fix->sets;
    fix->rules.entity_count = fix->rules.set_count = 1;
    assert_int_equal(of_call(fix, "{\"x\":\"1\",\"n\":12.50}"), 0);
    text = claims_write(&fix->arena, &fix->claims);
    assert_true(claims_want_entities(text));
    struct claims read;
    assert_int_equal(claims_read(&fix->arena, text, &read, NULL), 0);
    assert_string_equal(read.window, "w:1");
    assert_string_equal(read.override_reason, "a reason");
    assert_int_equal(read.window_per_ms, 1000);
    assert_int_equal(json_get(read.entities[0].sets, "n")->type, JSON_NUMBER); /* a place alone keeps its type */
    assert_true(str_equal(claims_write(&fix->arena, &read), text));
    static const char *const broken[] = {"{", "{\"entities\":[{\"type\":\"a\"}]}", "{\"budgets\":[{}]}"};
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++)
        assert_int_equal(claims_read(&fix->arena, str_of(broken[i]), &read, NULL), ERR_CORRUPT);
}

/* ---- decisions ---- */

static void the_order_of_refusals(void **state)
{
    (void)state;
    struct claims claims = {.entity_count = 1, .window = "w", .debit_count = 1, .guard = "no"};
    struct claims_facts facts = {.window_operation = "op_w", .window_until_ms = 5};
    struct claims_refusal refusal;
    claims.entities[0] = (struct claim_entity){.type = "t", .id = "i", .seen_rev = 1};
    claims.debits[0] = (struct claim_debit){.budget = "b", .amount = decimal_of(1), .limit = decimal_of(1)};
    facts.entities[0].rev = 2;
    facts.entities[0].holder = "op_h";
    facts.totals[0] = decimal_of(1);
    assert_int_equal(claims_decide(&claims, &facts, true, &refusal), CLAIMS_LOOK); /* what guards said is old */
    facts.entities[0].rev = 1;
    assert_int_equal(claims_decide(&claims, &facts, true, &refusal), CLAIMS_GUARD);
    claims.guard = NULL;
    assert_int_equal(claims_decide(&claims, &facts, true, &refusal), CLAIMS_WINDOW);
    claims.window_overridable = true;
    assert_int_equal(claims_decide(&claims, &facts, true, &refusal), CLAIMS_WINDOW);
    claims.override_reason = "why";
    assert_int_equal(claims_decide(&claims, &facts, true, &refusal), CLAIMS_BUDGET);
    claims.debits[0].limit = decimal_of(2);
    assert_int_equal(claims_decide(&claims, &facts, true, &refusal), CLAIMS_ENTITY);
    assert_string_equal(refusal.operation, "op_h");
    assert_int_equal(claims_decide(&claims, &facts, false, &refusal), CLAIMS_PASS); /* not its turn yet */
    claims.entities[0].queue = true;
    assert_int_equal(claims_decide(&claims, &facts, true, &refusal), CLAIMS_WAIT);
    facts.entities[0].waiting = CLAIMS_WAITERS_MAX;
    assert_int_equal(claims_decide(&claims, &facts, true, &refusal), CLAIMS_ENTITY);
    facts.entities[0].holder = NULL;
    facts.entities[0].waiting = 1; /* free, but others wait for it */
    assert_int_equal(claims_decide(&claims, &facts, true, &refusal), CLAIMS_WAIT);
    facts.entities[0].waiting = 0;
    assert_int_equal(claims_decide(&claims, &facts, true, &refusal), CLAIMS_PASS);
}

static void moves_follow_the_state(void **state)
{
    (void)state;
    for (int from = 0; from < STATE_COUNT; from++)
        for (int to = 0; to < STATE_COUNT; to++) {
            struct operation op = {.state = (enum state)to};
            struct claims_move move = claims_move((enum state)from, &op);
            bool no_effect = to == STATE_FAILED_PERMANENT || to == STATE_REJECTED;
            assert_int_equal(move.counts, !no_effect);
            assert_int_equal(move.release, state_terminal(op.state) && !state_terminal((enum state)from));
            assert_false(move.acquire);
            if (move.set)
                assert_true(to == STATE_COMPLETED_SUCCESS || to == STATE_COMPLETED_NOOP);
        }
    struct operation waits = {.state = STATE_PLANNED, .reason = REASON_AWAITING_ENTITY};
    assert_true(claims_move(STATE_PLANNED, &waits).acquire);
    waits.reason = REASON_AWAITING_APPROVAL;
    assert_false(claims_move(STATE_PLANNED, &waits).acquire);
}

static void slices_cover_their_time(void **state)
{
    (void)state;
    static const int64_t periods[] = {1, 59, 60, 61, 1000, 86400000};
    for (size_t i = 0; i < sizeof periods / sizeof *periods; i++)
        for (int64_t at = 1795968000000; at < 1795968000200; at += 13) {
            int64_t start, until, length = (periods[i] + CLAIMS_SLICES - 1) / CLAIMS_SLICES;
            claims_slice(at, periods[i], &start, &until);
            assert_true(start <= at && at < until);
            assert_int_equal(until - start, length);
            assert_true(length * CLAIMS_SLICES >= periods[i]);
        }
}

/* ---- attributes ---- */

static void attributes_name_who_set_them(void **state)
{
    struct fix *fix = *state;
    struct json *sets;
    assert_int_equal(json_parse(&fix->arena, STR("{\"state\":\"paid\",\"n\":1}"), NULL, &sets, NULL), 0);
    struct str once = claims_set(&fix->arena, STR_NONE, sets, "op_a", 7);
    assert_int_equal(json_parse(&fix->arena, STR("{\"state\":\"refunded\"}"), NULL, &sets, NULL), 0);
    struct str twice = claims_set(&fix->arena, once, sets, "op_b", 9);
    struct claims claims = {.entity_count = 2};
    claims.entities[0] = (struct claim_entity){.type = "order", .id = "1"};
    claims.entities[1] = (struct claim_entity){.type = "order", .id = "2"};
    struct str attributes[] = {twice, STR_NONE};
    struct json *arguments;
    assert_int_equal(json_parse(&fix->arena, STR("{\"order_id\":\"1\"}"), NULL, &arguments, NULL), 0);
    struct json *input = claims_guard_input(&fix->arena, &claims, attributes, arguments);
    const struct json *order = json_get(input, "order");
    assert_true(str_is(json_get_text(order, "id"), "1")); /* the first of its type has the name */
    assert_true(str_is(json_get_text(order, "state"), "refunded"));
    assert_int_equal(json_get_int(order, "n", 0), 1);
    assert_true(str_is(json_get_text(json_get(order, "by"), "state"), "op_b"));
    assert_true(str_is(json_get_text(json_get(order, "by"), "n"), "op_a"));
    assert_int_equal(json_get(input, "entities")->count, 2);
    const struct json *values = claims_message_values(&fix->arena, input);
    struct buf text;
    buf_init(&text, 0);
    assert_int_equal(template_fill(template(fix, "order {order_id} is {order.state} by {order.by.state}"), values,
                                   TEMPLATE_PLAIN, &text, NULL),
                     0);
    assert_true(str_is(buf_str(&text), "order 1 is refunded by op_b"));
    buf_release(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decimals_are_exact),
        cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test_setup_teardown(entities_are_ordered_and_taken_once, setup, teardown),
        cmocka_unit_test_setup_teardown(amounts_are_judged, setup, teardown),
        cmocka_unit_test_setup_teardown(the_text_tells_all_that_is_kept, setup, teardown),
        cmocka_unit_test(the_order_of_refusals),
        cmocka_unit_test(moves_follow_the_state),
        cmocka_unit_test(slices_cover_their_time),
        cmocka_unit_test_setup_teardown(attributes_name_who_set_them, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
