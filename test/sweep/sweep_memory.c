/* The n-th allocation fails: malloc, calloc, realloc of onced itself and of every library in the process.
 *
 *     life            engine and SQLite ledger (life.h). onced's own allocations end the process with a message
 *                     (base/mem.h), which is a crash like any other; those of libraries are their errors. The next life
 *                     must keep all promises
 *     registry …      a registry file is loaded, and for its tools a call is given an identity and a request is built.
 *                     Either the result is the same as with enough memory, or there is an error, or the process ends
 * with the message. Never another result, never a crash without a word
 *
 *     sweep_memory                     n is spread over the allocations of an undisturbed run
 *     ONCED_SWEEP=500 sweep_memory      so many n of each sweep
 *     ONCED_SWEEP=full sweep_memory    every n, until a run is not touched any more
 *     sweep_memory NAME N              one case, for looking at it */
#include "adapter/http.h"
#include "base/digest.h"
#include "core/identity.h"
#include "daemon/config.h"
#include "support/test.h"
#include "sweep/alloc.h"
#include "sweep/case.h"

#include <execinfo.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define FAILURES_MAX 5
#define ENDED_WELL   0 /* of a registry child: the result is in the shared word */
#define ENDED_ERROR  3 /* an error is in the shared word */

/* How a process may end for want of memory: by onced's own message, by libjq's, or within libfyaml 0.7.12, which reads
 * through NULL when its parser takes a text; the stack, written by name_death, tells that. libjq 1.6 looks at the
 * result of few of its allocations while it compiles: where a registry has expressions, any signal is taken for its
 * end, and what is left to judge is that no other registry comes out of it. */
#define WORD_OF_MEM    "onced: out of memory"
#define WORD_OF_JQ     "error: cannot allocate memory"
#define PLACE_OF_FYAML "(fy_parse_input_append"

struct target {
    const char *name;
    uint64_t times;
    const char *file, *tool, *arguments; /* file NULL: the life */
    unsigned few;
    bool has_jq;
};

static const struct target targets[] = {
    {"life", 1, NULL, NULL, NULL, 60},
    {"life_for_ever", 0, NULL, NULL, NULL, 15},
    {"registry_payments", 1, "examples/payments.yaml", "refund.create",
     "{\"payment_id\":\" p-1 \",\"amount_cents\":4900,\"note\":\"k\\u00fcrzlich  bezahlt\"}", 60},
    {"registry_stripe", 1, "examples/stripe.yaml", NULL, NULL, 30, true},
    {"registry_tickets", 1, "examples/tickets.yaml", NULL, NULL, 30},
    {"registry_mail", 1, "examples/mail.yaml", NULL, NULL, 30},
};

static struct sweep_case one;
static const struct target *current;
static uint64_t fail_nth;

static void name_death(int number)
{
    void *frames[8];
    backtrace_symbols_fd(frames, backtrace(frames, 8), 2);
    signal(number, SIG_DFL);
    raise(number);
}

static void begin_to_fail(struct sweep_case *sweep)
{
    void *frame[1];
    backtrace(frame, 1); /* loads what it needs now, while memory is there */
    signal(SIGSEGV, name_death);
    alloc_arm(&sweep->memory->allocations, fail_nth, current->times);
}

/* ---- a life ---- */

static int life_child(struct sweep_case *sweep, const void *argument)
{
    static const struct life_plan no_faults;
    (void)argument;
    begin_to_fail(sweep);
    return life_run(sweep->memory, &no_faults, sweep->ledger);
}

/* ---- a registry, an identity, a request ---- */

/* All that must be the same: policy, key, fingerprint, provider's request. */
static enum err_code derive(const struct registry *registry, struct adapter *adapter, struct buf *out, struct err *err)
{
    const struct tool *tool = registry_find(registry, str_of(current->tool));
    struct arena arena;
    struct operation op = {.id = "op_01K0000000000000000000000A"};
    struct admission admission = {0};
    struct identity_error why;
    struct json *arguments;
    const struct json *effective;
    arena_init(&arena);
    enum err_code code = json_parse(&arena, str_of(current->arguments), &json_limits_default, &arguments, err);
    struct call call = {.tenant = "acme", .principal = "agent", .arguments = arguments};
    if (code == ERR_NONE)
        code = identity_derive(&call, tool, STR("0123456789abcdef"), &arena, &op, &admission, &effective, &why, err);
    if (code == ERR_NONE) {
        struct adapter_call request = {.tool = tool,
                                       .kind = ATTEMPT_CALL,
                                       .operation = op.id,
                                       .provider_key = op.provider_key,
                                       .tenant = "acme",
                                       .arguments = effective};
        char hex[2 * DIGEST_BYTES + 1];
        struct json_out json;
        digest_hex(&op.fingerprint, DIGEST_BYTES, hex);
        buf_printf(out, " %s %s ", op.key, hex);
        json_out_init(&json, out);
        code = adapter->ops->describe(adapter, &request, &json, err);
    }
    arena_release(&arena);
    return code;
}

static int say(struct sweep_case *sweep, int end, const char *text)
{
    alloc_disarm();
    snprintf(sweep->memory->word, sizeof sweep->memory->word, "%s", text);
    return end;
}

static int registry_child(struct sweep_case *sweep, const void *argument)
{
    struct config_report report;
    struct registry *registry = NULL;
    struct config *config = NULL;
    struct adapter *adapter = NULL;
    struct err err = {0};
    uv_loop_t loop;
    (void)argument;
    if (uv_loop_init(&loop) != 0 || http_adapter_new(&loop, &adapter, &err))
        return 1;
    begin_to_fail(sweep);
    config_report_init(&report);
    if (config_load(current->file, &config, &registry, &report)) {
        config_report_print(&report, stderr);
        return say(sweep, ENDED_ERROR, "the registry was refused");
    }
    struct buf out;
    buf_init(&out, 0);
    buf_add_text(&out, registry_policy_version(registry));
    if (current->tool && derive(registry, adapter, &out, &err))
        return say(sweep, ENDED_ERROR, err.text);
    return say(sweep, ENDED_WELL, out.p);
}

/* ---- judging ---- */

static bool ended_by_memory(int status)
{
    char log[4096];
    case_log(&one, log, sizeof log);
    int number = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    if (current->has_jq && (number == SIGSEGV || number == SIGABRT))
        return true;
    return (number == SIGABRT && (strstr(log, WORD_OF_MEM) || strstr(log, WORD_OF_JQ))) ||
           (number == SIGSEGV && strstr(log, PLACE_OF_FYAML));
}

static const char *run_life(int *status, uint64_t *allocations)
{
    *status = case_child(&one, life_child, NULL);
    *allocations = one.memory->allocations; /* the second life counts anew */
    const char *wrong = ended_by_memory(*status)
                            ? NULL
                            : case_ended(&one, *status, 1u << LIFE_DONE | 1u << LIFE_REFUSED | 1u << LIFE_TIRED);
    return wrong ? wrong : case_judge(&one);
}

/* What a registry child said with all the memory that it wanted. */
static char expected[sizeof((struct life_memory *)0)->word];

static const char *run_registry(int *status, uint64_t *allocations)
{
    static char text[4096];
    char log[1024];
    *status = case_child(&one, registry_child, NULL);
    *allocations = one.memory->allocations;
    int code = WIFEXITED(*status) ? WEXITSTATUS(*status) : -1;
    const char *word = one.memory->word;
    if (fail_nth == 0)
        snprintf(expected, sizeof expected, "%s", word);
    case_log(&one, log, sizeof log);
    if ((code == ENDED_WELL && strcmp(word, expected) == 0) || (code == ENDED_ERROR && word[0] && fail_nth) ||
        ended_by_memory(*status))
        return NULL;
    snprintf(text, sizeof text, "status %d, signal %d: %s; with enough memory: %s; %s", code,
             WIFSIGNALED(*status) ? WTERMSIG(*status) : 0, word, expected, log);
    return text;
}

/* NULL, or what is wrong. n = 0: nothing fails. */
static const char *run_case(uint64_t n, int *status, uint64_t *allocations)
{
    fail_nth = n;
    case_reset(&one);
    return current->file ? run_registry(status, allocations) : run_life(status, allocations);
}

static void run_target(void **state)
{
    current = *state;
    unsigned cases = 0, ended = 0, wrong_ones = 0;
    uint64_t total = 0, calls = 0, n;
    int status;
    const char *wrong = run_case(0, &status, &total);
    if (wrong)
        fail_msg("undisturbed: %s", wrong);
    assert_true(total > 100); /* else they are not seen */
    for (unsigned i = 0; (n = case_point(total, current->few, i)) > 0; i++, cases++) {
        wrong = run_case(n, &status, &calls);
        ended += WIFSIGNALED(status);
        if (wrong && ++wrong_ones <= FAILURES_MAX)
            print_message("# sweep_memory %s %llu: %s\n", current->name, (unsigned long long)n, wrong);
    }
    for (calls = total; calls >= total && wrong_ones == 0; cases++) /* until one is not touched */
        if ((wrong = run_case(++total, &status, &calls)))
            fail_msg("sweep_memory %s %llu: %s", current->name, (unsigned long long)total, wrong);
    print_message("# %s: %u cases over %llu allocations, %u ended for want of memory, %u wrong\n", current->name, cases,
                  (unsigned long long)total - 1, ended, wrong_ones);
    assert_int_equal(wrong_ones, 0);
}

static int run_one(const char *name, uint64_t n)
{
    uint64_t calls;
    int status;
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++) {
        if (strcmp(targets[i].name, name) != 0)
            continue;
        current = &targets[i];
        run_case(0, &status, &calls);
        const char *wrong = run_case(n, &status, &calls);
        printf("%llu allocations, wait status %d; %s\n", (unsigned long long)calls, status,
               wrong ? wrong : "as promised");
        return wrong != NULL;
    }
    fprintf(stderr, "there is no target %s\n", name);
    return 2;
}

int main(int count, char **words)
{
    struct CMUnitTest tests[sizeof targets / sizeof *targets];
    const char *source = getenv("ONCED_SOURCE");
    if (source && chdir(source) != 0)
        return 2;
    setenv("STRIPE_KEY", "sk_test", 0); /* examples name it */
    case_init(&one);
    int failed;
    if (count == 3) {
        failed = run_one(words[1], strtoull(words[2], NULL, 10));
    } else {
        for (size_t i = 0; i < sizeof targets / sizeof *targets; i++)
            tests[i] = (struct CMUnitTest){
                .name = targets[i].name, .test_func = run_target, .initial_state = (void *)&targets[i]};
        failed = cmocka_run_group_tests_name("sweep_memory", tests, NULL, NULL);
    }
    case_release(&one);
    return failed;
}
