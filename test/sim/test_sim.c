/* The simulator itself: a run is a function of its options, faults can be left out one by one, a failing run becomes
 * small, and both ledgers behave the same. */
#include "sim/parts.h"
#include "support/test.h"

#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct sim_options options_of(uint64_t seed)
{
    return (struct sim_options){
        .seed = seed,
        .gateways = 1 + (unsigned)(seed % 3),
        .intents = 40,
        .faults = SIM_FAULTS_ALL,
        .fault_percent = 15,
    };
}

static struct sim_result run(const struct sim_options *options)
{
    struct sim_result result;
    sim_run(options, &result);
    if (result.violated)
        print_error("seed %llu: %s\n", (unsigned long long)options->seed, result.violation);
    assert_false(result.violated);
    return result;
}

static int setup(void **state)
{
    (void)state;
    log_set_level(LOG_OFF);
    return 0;
}

/* ---- a run is a function of its options ---- */

static void count_line(void *user, int64_t now_ms, const char *who, const char *what)
{
    (void)now_ms;
    (void)who;
    *(size_t *)user += strlen(what);
}

static void same_options_same_run(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 6; seed++) {
        size_t text = 0;
        struct sim_watch watch = {.user = &text, .line = count_line};
        struct sim_options options = options_of(seed);
        struct sim_result first = run(&options), second = run(&options);
        options.watch = &watch; /* looking on changes nothing */
        struct sim_result traced = run(&options);
        assert_int_equal(first.digest, second.digest);
        assert_int_equal(first.digest, traced.digest);
        assert_int_equal(first.operations, second.operations);
        assert_int_equal(first.taken_count, second.taken_count);
        assert_memory_equal(first.taken, second.taken, first.taken_count * sizeof *first.taken);
        assert_true(text > 0);
        sim_result_release(&first);
        sim_result_release(&second);
        sim_result_release(&traced);
    }
}

static void other_seed_other_run(void **state)
{
    (void)state;
    struct sim_options a = options_of(1), b = options_of(4);
    struct sim_result first = run(&a), second = run(&b);
    assert_int_not_equal(first.digest, second.digest);
    sim_result_release(&first);
    sim_result_release(&second);
}

/* One world left alone: nothing fails, everything is done once. */
static void no_faults_no_trouble(void **state)
{
    (void)state;
    struct sim_options options = options_of(2);
    options.faults = 0;
    struct sim_result result = run(&options);
    assert_int_equal(result.faults, 0);
    assert_int_equal(result.crashes, 0);
    assert_int_equal(result.incidents, 0);
    assert_int_equal(result.duplicates_excused, 0);
    assert_true(result.operations > 0);
    assert_int_equal(result.operations, result.settled);
    sim_result_release(&result);
}

static void ledgers_agree(void **state)
{
    (void)state;
    char path[] = "/tmp/onced-test-sim-XXXXXX";
    assert_non_null(mkdtemp(path));
    for (uint64_t seed = 1; seed <= 4; seed++) {
        char file[128];
        struct sim_options options = options_of(seed);
        snprintf(file, sizeof file, "%s/%u.db", path, (unsigned)seed);
        struct sim_result in_memory = run(&options);
        options.ledger = SIM_LEDGER_SQLITE;
        options.ledger_path = file;
        struct sim_result on_disk = run(&options);
        assert_int_equal(in_memory.digest, on_disk.digest);
        sim_result_release(&in_memory);
        sim_result_release(&on_disk);
        static const char *const endings[] = {"", "-wal", "-shm", ".lock"};
        for (size_t i = 0; i < 4; i++) {
            char name[160];
            snprintf(name, sizeof name, "%s%s", file, endings[i]);
            unlink(name);
        }
    }
    assert_int_equal(rmdir(path), 0);
}

/* ---- faults ---- */

static void every_fault_happens(void **state)
{
    (void)state;
    int64_t seen[SIM_FAULT_COUNT] = {0};
    size_t missing = SIM_FAULT_COUNT;
    for (uint64_t seed = 100; seed < 160 && missing > 0; seed++) {
        struct sim_options options = options_of(seed);
        struct sim_result result = run(&options);
        missing = 0;
        for (size_t i = 0; i < SIM_FAULT_COUNT; i++) {
            /* it changes what the tools say and how time passes, no decision is made of it */
            bool always = i == SIM_RETENTION || i == SIM_STEPS;
            seen[i] += result.faults_by_kind[i];
            missing += seen[i] == 0 && !always;
        }
        sim_result_release(&result);
    }
    for (size_t i = 0; i < SIM_FAULT_COUNT; i++)
        if (seen[i] == 0 && i != SIM_RETENTION && i != SIM_STEPS)
            print_error("%s never happened\n", sim_fault_name((enum sim_fault)i));
    assert_int_equal(missing, 0);
}

static void faults_have_names(void **state)
{
    (void)state;
    uint64_t within = sim_faults_within_contract();
    enum sim_fault fault;
    for (size_t i = 0; i < SIM_FAULT_COUNT; i++) {
        assert_true(sim_fault_from_name(str_of(sim_fault_name((enum sim_fault)i)), &fault));
        assert_int_equal(fault, i);
        assert_int_equal((within & SIM_FAULT_BIT(i)) == 0, sim_fault_breaks((enum sim_fault)i));
    }
    assert_false(sim_fault_from_name(STR("weather"), &fault));
}

/* Decisions are made by place, not by what was decided before. */
static void a_decision_left_out_moves_no_other(void **state)
{
    (void)state;
    enum { COUNT = 2000 };
    bool with[COUNT], without[COUNT];
    struct sim_result result = {0};
    struct sim_options options = options_of(7);
    struct sim sim = {.options = &options, .result = &result, .fault_percent = 20};
    struct dice dice = dice_of(&sim, STREAM(STREAM_REQUEST, 5));
    for (size_t i = 0; i < COUNT; i++)
        with[i] = roll_fault(&dice, SIM_NET_LOST, 50);
    assert_true(result.taken_count > COUNT / 20);
    struct sim_decision out[] = {result.taken[3], result.taken[40]};
    sim_result_release(&result);
    options.left_out = out;
    options.left_out_count = 2;
    dice = dice_of(&sim, STREAM(STREAM_REQUEST, 5));
    for (size_t i = 0; i < COUNT; i++) {
        without[i] = roll_fault(&dice, SIM_NET_LOST, 50);
        assert_int_equal(without[i], with[i] && i != out[0].index && i != out[1].index);
    }
    sim_result_release(&result);
}

static void what_is_left_out_does_not_happen(void **state)
{
    (void)state;
    struct sim_options options = options_of(3);
    struct sim_result result = run(&options);
    assert_true(result.taken_count > 0);
    struct sim_decision first = result.taken[0];
    sim_result_release(&result);
    options.left_out = &first;
    options.left_out_count = 1;
    result = run(&options);
    for (size_t i = 0; i < result.taken_count; i++)
        assert_false(result.taken[i].stream == first.stream && result.taken[i].index == first.index);
    sim_result_release(&result);
}

static void look_for_client(void *user, int64_t now_ms, const char *who, const char *what)
{
    (void)now_ms;
    unsigned *intents = user, n;
    if (strcmp(who, "client") == 0 ? sscanf(what, "%u ", &n) == 1 : sscanf(who, "client %u", &n) == 1)
        intents[n < 64 ? n : 0]++;
}

static void an_intent_left_out_is_never_called_for(void **state)
{
    (void)state;
    unsigned intents[64] = {0};
    static const uint32_t out[] = {2, 17};
    struct sim_watch watch = {.user = intents, .line = look_for_client};
    struct sim_options options = options_of(5);
    options.watch = &watch;
    options.intents_left_out = out;
    options.intents_left_out_count = 2;
    struct sim_result result = run(&options);
    assert_int_equal(intents[2], 0);
    assert_int_equal(intents[17], 0);
    assert_true(intents[3] > 0);
    sim_result_release(&result);
}

/* ---- the shrinker ---- */

/* The linker sends the store's calls of checker_committed here (meson.build). */
void __real_checker_committed(struct sim *sim, struct gateway *gateway, const struct ledger_request *request);
void __wrap_checker_committed(struct sim *sim, struct gateway *gateway, const struct ledger_request *request);

static bool planted;

/* A bug that needs one crash and, after it, one success of intent 9. */
void __wrap_checker_committed(struct sim *sim, struct gateway *gateway, const struct ledger_request *request)
{
    __real_checker_committed(sim, gateway, request);
    if (!planted || request->command != LEDGER_TRANSITION || sim->result->faults_by_kind[SIM_CRASH] == 0)
        return;
    const struct operation *op = request->transition.op;
    if (op->state == STATE_COMPLETED_SUCCESS && intent_of_trace(op->trace) == 9)
        sim_violated(sim, "planted: intent 9 is done after a crash");
}

static void a_failing_run_becomes_small(void **state)
{
    (void)state;
    planted = true;
    struct sim_options options;
    struct sim_result result = {0};
    for (uint64_t seed = 1; seed < 200 && !result.violated; seed++) {
        options = options_of(seed);
        options.faults = sim_faults_within_contract();
        options.fault_percent = 30;
        sim_run(&options, &result);
        sim_result_release(&result);
    }
    assert_string_equal(result.violation, "planted: intent 9 is done after a crash");
    struct buf trace;
    buf_init(&trace, 0);
    sim_shrink(&options, 3000, &trace);
    planted = false;
    if (!strstr(trace.p, "intents 9, 1 faults: crash 1\nplanted: intent 9 is done after a crash\n"))
        print_error("%.400s\n", trace.p);
    assert_non_null(strstr(trace.p, "intents 9, 1 faults: crash 1\nplanted: intent 9 is done after a crash\n"));
    assert_non_null(strstr(trace.p, "is killed"));
    assert_non_null(strstr(trace.p, "completed_success"));
    assert_null(strstr(trace.p, "intent 8"));
    buf_release(&trace);
}

static void a_good_run_is_not_made_small(void **state)
{
    (void)state;
    struct buf trace;
    struct sim_options options = options_of(1);
    buf_init(&trace, 0);
    sim_shrink(&options, 10, &trace);
    assert_string_equal(trace.p, "seed 1 breaks no rule\n");
    buf_release(&trace);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_options_same_run),
        cmocka_unit_test(other_seed_other_run),
        cmocka_unit_test(no_faults_no_trouble),
        cmocka_unit_test(ledgers_agree),
        cmocka_unit_test(every_fault_happens),
        cmocka_unit_test(faults_have_names),
        cmocka_unit_test(a_decision_left_out_moves_no_other),
        cmocka_unit_test(what_is_left_out_does_not_happen),
        cmocka_unit_test(an_intent_left_out_is_never_called_for),
        cmocka_unit_test(a_failing_run_becomes_small),
        cmocka_unit_test(a_good_run_is_not_made_small),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
