/* What is told of an operation and under which id; who may be given links, and what a link says. */
#include "door/notify.h"

#include "door/links.h"
#include "door/people.h"
#include "support/test.h"

#define DAY_MS INT64_C(86400000)

struct fix {
    struct arena arena;
    struct operation op;
    struct approval_policy policy;
};

static int setup(void **state)
{
    static struct fix fix;
    memset(&fix, 0, sizeof fix);
    arena_init(&fix.arena);
    fix.policy = (struct approval_policy){.required = true, .approvers = 1, .expires_ms = DAY_MS, .policy = "p1"};
    fix.op = (struct operation){.tenant = "acme", .tool = "refund.create", .principal = "agent"};
    strcpy(fix.op.id, "op_01ARZ3NDEKTSV4RRFFQ69G5FAV");
    fix.op.state = STATE_PLANNED;
    fix.op.reason = REASON_AWAITING_APPROVAL;
    fix.op.rev = 1;
    fix.op.approval = approval_request(&fix.arena, &fix.policy, 1000);
    *state = &fix;
    return 0;
}

static int teardown(void **state)
{
    struct fix *fix = *state;
    arena_release(&fix->arena);
    return 0;
}

/* ---- ids ---- */

static void test_ids_last_as_long_as_what_is_asked(void **state)
{
    struct fix *fix = *state;
    char first[NOTIFY_ID_SIZE], again[NOTIFY_ID_SIZE];
    assert_true(notify_id(NOTIFY_APPROVAL, &fix->op, NULL, 2000, first));
    assert_int_equal(strlen(first), NOTIFY_ID_SIZE - 1);
    fix->op.rev = 7; /* a link was made, one of two has agreed: nothing new is asked */
    assert_true(notify_id(NOTIFY_APPROVAL, &fix->op, NULL, 3000, again));
    assert_string_equal(first, again);
    fix->op.approval = approval_request(&fix->arena, &fix->policy, 5000); /* asked anew */
    assert_true(notify_id(NOTIFY_APPROVAL, &fix->op, NULL, 6000, again));
    assert_string_not_equal(first, again);
    fix->op.id[5] = 'B';
    fix->op.approval = approval_request(&fix->arena, &fix->policy, 1000);
    assert_true(notify_id(NOTIFY_APPROVAL, &fix->op, NULL, 2000, again));
    assert_string_not_equal(first, again);
}

static void test_what_waits_for_nobody_is_not_told(void **state)
{
    struct fix *fix = *state;
    char id[NOTIFY_ID_SIZE];
    assert_false(notify_id(NOTIFY_APPROVAL, &fix->op, NULL, 1000 + DAY_MS, id)); /* over */
    assert_false(notify_id(NOTIFY_OPERATOR, &fix->op, NULL, 2000, id));
    assert_false(notify_id(NOTIFY_STUCK, &fix->op, NULL, 2000, id));
    assert_false(notify_id(NOTIFY_INCIDENT, &fix->op, "", 2000, id));
    assert_false(notify_id(NOTIFY_APPROVAL, NULL, NULL, 2000, id));
    struct approval approval;
    assert_int_equal(approval_read(&fix->arena, fix->op.approval, &approval, NULL), ERR_NONE);
    approval.decisions[approval.count++] = (struct approval_decision){.by = "ann", .approve = true};
    fix->op.approval = approval_write(&fix->arena, &approval);
    assert_false(notify_id(NOTIFY_APPROVAL, &fix->op, NULL, 2000, id)); /* complete */
    fix->op.state = STATE_UNKNOWN_OUTCOME;
    fix->op.reason = REASON_NEEDS_OPERATOR;
    assert_true(notify_id(NOTIFY_OPERATOR, &fix->op, NULL, 2000, id));
    assert_false(notify_id(NOTIFY_STUCK, &fix->op, NULL, 2000, id));
    fix->op.state = STATE_COMPENSATING;
    assert_false(notify_id(NOTIFY_OPERATOR, &fix->op, NULL, 2000, id));
    assert_true(notify_id(NOTIFY_STUCK, &fix->op, NULL, 2000, id));
    assert_true(notify_id(NOTIFY_INCIDENT, NULL, "in_1", 2000, id)); /* stays when its operation does not */
}

/* ---- who exists ---- */

static const char *found(struct fix *fix, const struct people *people, const struct token *tokens, size_t count,
                         const char *principal, int64_t now_ms)
{
    struct people_ground ground = {0};
    static struct err err;
    err_clear(&err);
    if (people_find(people, tokens, count, &fix->op, principal, now_ms, &ground, &err)) {
        assert_int_equal(err.code, ERR_DENIED);
        return err.text;
    }
    return ground.token ? "token" : ground.issuer;
}

static void test_tokens_that_decide(void **state)
{
    struct fix *fix = *state;
    const struct token tokens[] = {
        {.tenant = "acme", .principal = "ann", .role = ROLE_APPROVER},
        {.tenant = "acme", .principal = "agent-1", .role = ROLE_AGENT},
        {.tenant = "other", .principal = "foreign", .role = ROLE_ADMIN},
        {.tenant = "acme", .principal = "gone", .role = ROLE_APPROVER, .revoked_ms = 1},
        {.tenant = "acme", .principal = "old", .role = ROLE_APPROVER, .expires_ms = 2000},
        {.tenant = "acme", .principal = "narrow", .role = ROLE_OPERATOR, .tools = "[\"payout.*\"]"},
        {.tenant = "acme", .principal = "fits", .role = ROLE_ADMIN, .tools = "[\"refund.*\"]"},
        {.tenant = "acme", .principal = "broken", .role = ROLE_APPROVER, .tools = "["},
        {.tenant = "acme", .principal = "two", .role = ROLE_AGENT},
        {.tenant = "acme", .principal = "two", .role = ROLE_APPROVER},
    };
    static const struct {
        const char *principal, *says;
    } rows[] = {
        {"ann", "token"},
        {"fits", "token"},
        {"two", "token"},
        {"nobody", "nobody is known"},
        {"foreign", "nobody is known"},
        {"gone", "nobody is known"},
        {"old", "nobody is known"},
        {"agent-1", "role approver"},
        {"narrow", "payout"},
        {"broken", "may not decide"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *says = found(fix, NULL, tokens, sizeof tokens / sizeof *tokens, rows[i].principal, 2000);
        if (!strstr(says, rows[i].says))
            fail_msg("%s: %s", rows[i].principal, says);
    }
    assert_string_equal(found(fix, NULL, tokens, sizeof tokens / sizeof *tokens, "old", 1999), "token");
}

static void test_people_of_issuers(void **state)
{
    struct fix *fix = *state;
    struct people *people = people_new();
    const struct scope narrow = {.tools = {.limited = true}};
    struct caller dora = {"acme", "dora", ROLE_APPROVER, NULL}, erin = {"acme", "erin", ROLE_AGENT, NULL};
    struct caller fred = {"acme", "fred", ROLE_APPROVER, &narrow};
    people_saw(people, "https://idp", &dora, 1000);
    people_saw(people, "https://idp", &erin, 1000);
    people_saw(people, "https://idp", &fred, 1000);
    assert_string_equal(found(fix, people, NULL, 0, "dora", 2000), "https://idp");
    assert_non_null(strstr(found(fix, people, NULL, 0, "erin", 2000), "nobody is known"));
    assert_non_null(strstr(found(fix, people, NULL, 0, "fred", 2000), "may not decide"));
    assert_string_equal(found(fix, people, NULL, 0, "dora", 1000 + PEOPLE_KEEP_MS), "https://idp");
    assert_non_null(strstr(found(fix, people, NULL, 0, "dora", 1001 + PEOPLE_KEEP_MS), "nobody is known"));
    dora.role = ROLE_AGENT; /* the last token counts */
    people_saw(people, "https://idp", &dora, 3000);
    assert_non_null(strstr(found(fix, people, NULL, 0, "dora", 3000), "nobody is known"));
    dora.tenant = "other";
    dora.role = ROLE_ADMIN;
    people_saw(people, "https://idp", &dora, 3000);
    assert_non_null(strstr(found(fix, people, NULL, 0, "dora", 3000), "nobody is known"));
    people_free(people);
}

/* No more than so many are remembered: who was seen last stays. */
static void test_people_are_bounded(void **state)
{
    struct fix *fix = *state;
    struct people *people = people_new();
    char name[32];
    for (int i = 0; i < PEOPLE_MAX + 10; i++) {
        const struct caller first = {"acme", "p0", ROLE_APPROVER, NULL};
        snprintf(name, sizeof name, "p%d", i);
        const struct caller caller = {"acme", name, ROLE_APPROVER, NULL};
        people_saw(people, "i", &caller, 1000 + i);
        people_saw(people, "i", &first, 1000 + i);
    }
    assert_string_equal(found(fix, people, NULL, 0, "p0", 5000), "i");
    assert_string_equal(found(fix, people, NULL, 0, name, 5000), "i");
    assert_non_null(strstr(found(fix, people, NULL, 0, "p1", 5000), "nobody is known"));
    people_free(people);
}

/* ---- links ---- */

static void test_links_say_what_they_were_made_for(void **state)
{
    struct fix *fix = *state;
    unsigned char secret[LEDGER_SECRET_BYTES] = {7}, other[LEDGER_SECRET_BYTES] = {8};
    const struct people_ground issuer = {.issuer = "https://idp"}, token = {.token = true};
    struct link link = {"acme", fix->op.id, "dora", true, 5000, "ops", link_ground(&fix->arena, &issuer)}, back;
    const char *text = link_write(&fix->arena, secret, &link);
    assert_true(link_read(&fix->arena, secret, text, 4999, &back));
    assert_true(back.approve && back.expires_ms == 5000);
    assert_string_equal(back.made_by, "ops");
    assert_string_equal(back.ground, "issuer:https://idp");
    assert_string_equal(back.approver, "dora");
    assert_false(link_read(&fix->arena, secret, text, 5000, &back));
    assert_false(link_read(&fix->arena, other, text, 4999, &back));
    assert_string_equal(link_ground(&fix->arena, &token), LINK_GROUND_TOKEN);
    for (size_t i = 0, n = strlen(text); i < n; i += 7) { /* no part of it can be another one */
        char *changed = arena_copy_text(&fix->arena, text);
        changed[i] = changed[i] == '6' ? '7' : '6';
        assert_false(link_read(&fix->arena, secret, changed, 4999, &back));
    }
}

static void test_links_end_with_the_request(void **state)
{
    struct fix *fix = *state;
    const struct link_settings settings = {.base = "https://h", .expires_ms = 1000};
    assert_int_equal(link_until(&fix->op, &settings, 2000), 3000);
    assert_int_equal(link_until(&fix->op, &settings, 500 + DAY_MS), 1000 + DAY_MS);
    assert_int_equal(link_until(&fix->op, &settings, 1000 + DAY_MS), 0);
    fix->op.state = STATE_REJECTED;
    assert_int_equal(link_until(&fix->op, &settings, 2000), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_ids_last_as_long_as_what_is_asked),
        TEST(test_what_waits_for_nobody_is_not_told),
        TEST(test_tokens_that_decide),
        TEST(test_people_of_issuers),
        TEST(test_people_are_bounded),
        TEST(test_links_say_what_they_were_made_for),
        TEST(test_links_end_with_the_request),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
