/* The rules of core/audit.h, one by one: an operation that is sound, and one thing changed. */
#include "core/audit.h"

#include "core/approval.h"
#include "core/identity.h"
#include "support/test.h"

#include <stdio.h>
#include <string.h>

#define ID     "op_01ARZ3NDEKTSV4RRFFQ69G5FAV"
#define OTHER  "op_01ARZ3NDEKTSV4RRFFQ69G5FAW"
#define EVENTS 3

/* A call that succeeded at its second attempt; the first one was not sent. */
struct stored {
    struct operation op, other;
    struct event events[EVENTS];
    int64_t sequences[EVENTS];
    struct attempt attempts[2];
    struct tombstone stone;
    struct audit_other link;
};

static struct stored sound(void)
{
    struct stored it = {
        .op = {.id = ID,
               .tenant = "t",
               .tool = "pay",
               .principal = "ann",
               .key = "k",
               .key_version = 1,
               .canonical_version = 1,
               .created_ms = 100,
               .state = STATE_COMPLETED_SUCCESS,
               .rev = 3,
               .may_have_applied = true,
               .attempts = 1,
               .tries = 2,
               .completed_ms = 200,
               .retain_until_ms = 900},
        .events = {{.cause = CAUSE_ADMITTED, .from = STATE_DISPATCHED, .to = STATE_DISPATCHED, .attempt = 1},
                   {.cause = CAUSE_ANSWER, .from = STATE_DISPATCHED, .to = STATE_FAILED_RETRYABLE, .attempt = 1},
                   {.cause = CAUSE_DISPATCH, .from = STATE_FAILED_RETRYABLE, .to = STATE_DISPATCHED, .attempt = 2}},
        .sequences = {4, 8, 12},
        .attempts = {{.id = "at_1", .number = 1, .outcome = OUTCOME_NOT_SENT, .started_ms = 100, .finished_ms = 110},
                     {.id = "at_2", .number = 2, .outcome = OUTCOME_OPEN, .started_ms = 120}},
    };
    it.op.key_hash = it.op.base_hash = identity_key_hash("t", "pay", "k", NULL);
    it.other = it.op;
    memcpy(it.other.id, OTHER, sizeof it.other.id);
    return it;
}

struct heard {
    char rules[2000];
};

static void hear(void *user, const char *rule, const char *expected, const char *found)
{
    struct heard *heard = user;
    assert_true(*expected && *found);
    snprintf(heard->rules + strlen(heard->rules), sizeof heard->rules - strlen(heard->rules), " %s", rule);
}

/* The rules that complain; the answer ends the second attempt. */
static void judge(const struct stored *it, struct heard *heard)
{
    const struct event end = {
        .cause = CAUSE_ANSWER, .from = STATE_DISPATCHED, .to = STATE_COMPLETED_SUCCESS, .attempt = 2};
    struct attempt ended = it->attempts[1];
    struct audit audit;
    *heard = (struct heard){0};
    ended.outcome = OUTCOME_SUCCESS;
    ended.finished_ms = 200;
    audit_begin(&audit, &it->op, hear, heard);
    for (int i = 0; i < EVENTS; i++) {
        audit_line(&audit, it->sequences[i]);
        audit_event(&audit, &it->events[i]);
        if (i == 1)
            audit_attempt(&audit, &it->attempts[0]);
    }
    audit_attempt(&audit, &it->attempts[1]);
    audit_line(&audit, it->sequences[EVENTS - 1] + 1);
    audit_event(&audit, &end);
    audit_attempt(&audit, &ended);
    audit_end(&audit);
}

static bool has(const struct heard *heard, const char *rule)
{
    char word[64];
    snprintf(word, sizeof word, " %s", rule);
    const char *at = strstr(heard->rules, word);
    return at && (at[strlen(word)] == ' ' || at[strlen(word)] == '\0');
}

static void test_sound(void **state)
{
    (void)state;
    struct stored it = sound();
    struct heard heard;
    judge(&it, &heard);
    assert_string_equal(heard.rules, "");
}

#define BREAKS(rule, change)                                                                                           \
    do {                                                                                                               \
        struct stored it = sound();                                                                                    \
        struct heard heard;                                                                                            \
        change;                                                                                                        \
        judge(&it, &heard);                                                                                            \
        if (!has(&heard, rule))                                                                                        \
            fail_msg("%s does not break %s but:%s", #change, rule, heard.rules);                                       \
    } while (0)

static void test_events(void **state)
{
    (void)state;
    BREAKS("events-begin", it.events[0].cause = CAUSE_TIMER);
    BREAKS("events-begin", it.events[1].cause = CAUSE_ADMITTED);
    BREAKS("events-chain", it.events[1].from = STATE_PLANNED);
    BREAKS("events-move", (it.events[1].to = STATE_REJECTED, it.events[2].from = STATE_REJECTED));
    BREAKS("events-end", it.op.state = STATE_COMPLETED_NOOP);
    BREAKS("event-sequence", it.sequences[1] = 9);
    BREAKS("event-sequence", it.sequences[1] = 4);
    BREAKS("event-sequence", it.op.rev = 2);
    BREAKS("event-actor", it.events[1].cause = CAUSE_OPERATOR);
    BREAKS("event-attempt", it.events[2].attempt = 3);
}

static void test_attempts(void **state)
{
    (void)state;
    BREAKS("attempt-numbers", it.attempts[1].number = 3);
    BREAKS("attempt-times", it.attempts[0].finished_ms = 0);
    BREAKS("attempt-times", it.attempts[0].started_ms = 0);
    BREAKS("attempt-times", it.attempts[1].finished_ms = 5);
    BREAKS("attempt-counts", it.op.attempts = 0);
    BREAKS("attempt-counts", it.op.attempts = 3);
    BREAKS("attempt-counts", it.op.lookups = 1);
    BREAKS("attempt-counts", it.op.tries = 3);
    BREAKS("attempt-counts", it.attempts[0].kind = ATTEMPT_LOOKUP);
}

/* Its gateway had lost the lease when it found that it had not sent: that is evidence, and counts nothing back. */
static void test_late_word_of_what_was_not_sent(void **state)
{
    (void)state;
    struct stored it = sound();
    struct heard heard;
    it.op.attempts = 2;
    judge(&it, &heard);
    assert_false(has(&heard, "attempt-counts"));
}

static void test_row(void **state)
{
    (void)state;
    BREAKS("may-have-applied", it.op.may_have_applied = false);
    BREAKS("no-effect", it.op.state = STATE_FAILED_PERMANENT);
    BREAKS("rejected-unsent", (it.op.state = STATE_REJECTED, it.op.may_have_applied = false));
    BREAKS("unknown-since", it.op.unknown_since_ms = 5);
    BREAKS("unknown-since", it.op.state = STATE_UNKNOWN_OUTCOME);
    BREAKS("completed", it.op.completed_ms = 0);
    BREAKS("completed", it.op.state = STATE_DISPATCHED);
    BREAKS("retain", it.op.retain_until_ms = 0);
    BREAKS("created", it.op.created_ms = 0);
    BREAKS("lease", it.op.owner = "gw");
    BREAKS("lease", it.op.lease_until_ms = 300);
    BREAKS("lease-noticed", (it.op.owner = "gw", it.op.lease_until_ms = 300, it.op.wake_at_ms = 301));
    BREAKS("claimable", (it.op.state = STATE_DISPATCHED, it.op.completed_ms = 0));
    BREAKS("id", it.op.id[0] = 'x');
    BREAKS("versions", it.op.key_version = 0);
    BREAKS("key-hash", it.op.key = "another");
    BREAKS("key-hash", it.op.base_hash.b[0] ^= 1);
    BREAKS("approval-record", it.op.approval = STR("{}"));
    BREAKS("approval-first", it.op.approval = STR("{\"needed\":1,\"expires_ms\":5,\"policy\":\"p\",\"decisions\":[]}"));
    BREAKS("claims-record", it.op.claims = STR("["));
    BREAKS("steps-record", it.op.steps = STR("["));
}

static void test_fingerprint(void **state)
{
    (void)state;
    struct stored it = sound();
    it.op.arguments = STR("{\"b\": 2.0, \"a\": 1}");
    assert_false(audit_fingerprint(&it.op));
    it.op.fingerprint = digest_sha256(STR("{\"a\":1,\"b\":2}"));
    assert_true(audit_fingerprint(&it.op));
    it.op.arguments = STR_NONE; /* dropped: nothing can be said */
    it.op.fingerprint.b[0] ^= 1;
    assert_true(audit_fingerprint(&it.op));
}

/* Which rules complain about two rows. */
static struct heard between(const struct stored *it, void (*rule)(struct audit *audit, const struct audit_other *other))
{
    struct heard heard = {0};
    struct audit audit;
    struct audit_other other = it->link;
    audit_begin(&audit, &it->op, hear, &heard);
    rule(&audit, &other);
    return heard;
}

#define BETWEEN(function, rule, change)                                                                                \
    do {                                                                                                               \
        struct stored it = sound();                                                                                    \
        const char *wanted = rule;                                                                                     \
        it.link.op = &it.other;                                                                                        \
        change;                                                                                                        \
        struct heard heard = between(&it, function);                                                                   \
        if (wanted ? !has(&heard, wanted) : heard.rules[0] != '\0')                                                    \
            fail_msg("%s: %s but:%s", #change, wanted ? wanted : "nothing", heard.rules);                              \
    } while (0)
#define NOTHING NULL
#define SECOND                                                                                                         \
    (it.op.key_version = 2, it.op.previous = OTHER, it.other.state = STATE_FAILED_PERMANENT,                           \
     it.other.may_have_applied = false)
#define UNDOES                                                                                                         \
    (it.op.compensates = OTHER, it.op.playbook = "p", it.op.state = STATE_DISPATCHED,                                  \
     it.other.state = STATE_COMPENSATING, it.other.compensation = ID)
#define UNDONE (it.op.state = STATE_COMPENSATED, it.op.compensation = OTHER, it.other.compensates = ID)

static void test_two_rows(void **state)
{
    (void)state;
    BETWEEN(audit_previous, NOTHING, SECOND);
    BETWEEN(audit_previous, "key-versions", it.op.key_version = 2);
    BETWEEN(audit_previous, "key-versions", (SECOND, it.other.key_version = 3));
    BETWEEN(audit_previous, "key-versions", (SECOND, it.other.key_hash.b[0] ^= 1));
    BETWEEN(audit_previous, "key-versions", (SECOND, it.other.state = STATE_DISPATCHED));
    BETWEEN(audit_previous, "link", (SECOND, it.link.op = NULL));
    BETWEEN(audit_previous, "link-tenant", (SECOND, it.other.tenant = "u"));
    BETWEEN(audit_compensates, NOTHING, UNDOES);
    BETWEEN(audit_compensates, "compensates", (UNDOES, it.op.playbook = NULL));
    BETWEEN(audit_compensates, "compensates", (UNDOES, it.other.compensation = "op_x"));
    BETWEEN(audit_compensates, "compensates", (UNDOES, it.other.state = STATE_COMPLETED_SUCCESS));
    BETWEEN(audit_compensation, NOTHING, UNDONE);
    BETWEEN(audit_compensation, "compensation", (UNDONE, it.op.compensation = NULL));
    BETWEEN(audit_compensation, "compensation", (UNDONE, it.other.compensates = NULL));
    BETWEEN(audit_compensation, "compensation", (UNDONE, it.other.state = STATE_REJECTED));
    BETWEEN(audit_compensation, "compensation", (UNDONE, it.op.state = STATE_COMPENSATING));
    BETWEEN(audit_parent, "steps", it.op.parent = OTHER);
    BETWEEN(audit_parent, "link", (it.op.parent = OTHER, it.link.op = NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sound),    cmocka_unit_test(test_events),
        cmocka_unit_test(test_attempts), cmocka_unit_test(test_late_word_of_what_was_not_sent),
        cmocka_unit_test(test_row),      cmocka_unit_test(test_fingerprint),
        cmocka_unit_test(test_two_rows),
    };
    return cmocka_run_group_tests_name("audit", tests, NULL, NULL);
}
