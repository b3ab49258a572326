/* Makes a failing run small: leaves out kinds of faults, intents and single faults, each in halves, quarters, … single
 * ones, as long as the same rule is broken (delta debugging). */
#include "base/mem.h"
#include "sim/run.h"

#include <stdlib.h>

struct shrinker {
    struct sim_options options;  /* the smallest so far */
    unsigned runs_left, smaller; /* smaller: how often it became so */
    char rule[64];
    uint32_t *intents; /* left out, sorted */
    struct sim_decision *decisions;
    struct sim_result last; /* of the smallest run */
};

/* A violation begins with its rule, design numbers and words, before what is of this run: "5.1 an attempt that has
 * ended (lost) is sent: at_…" */
static void rule_of(const struct sim_result *result, char *out, size_t size)
{
    size_t n = strspn(result->violation, "0123456789., ");
    n += strcspn(result->violation + n, ":(0123456789");
    n = n < size - 1 ? n : size - 1;
    memcpy(out, result->violation, n);
    out[n] = '\0';
}

/* Whether these options still break the rule; then they are the smallest so far. */
static bool still_fails(struct shrinker *shrinker, const struct sim_options *options)
{
    struct sim_result result;
    char rule[sizeof shrinker->rule];
    if (shrinker->runs_left == 0)
        return false;
    shrinker->runs_left--;
    sim_run(options, &result);
    rule_of(&result, rule, sizeof rule);
    if (!result.violated || (shrinker->rule[0] && strcmp(rule, shrinker->rule) != 0)) {
        sim_result_release(&result);
        return false;
    }
    memcpy(shrinker->rule, rule, sizeof rule);
    sim_result_release(&shrinker->last);
    shrinker->last = result;
    shrinker->options = *options;
    shrinker->smaller++;
    return true;
}

/* ---- kinds of faults ---- */

static void leave_out_kinds(struct shrinker *shrinker)
{
    for (size_t i = 0; i < SIM_FAULT_COUNT; i++) {
        struct sim_options options = shrinker->options;
        if (!(options.faults & SIM_FAULT_BIT(i)))
            continue;
        options.faults &= ~SIM_FAULT_BIT(i);
        still_fails(shrinker, &options);
    }
}

/* ---- intents ---- */

static int compare_intents(const void *left, const void *right)
{
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    return (a > b) - (a < b);
}

static bool is_left_out(const struct sim_options *options, uint32_t intent)
{
    return options->intents_left_out_count > 0 &&
           bsearch(&intent, options->intents_left_out, options->intents_left_out_count, sizeof intent, compare_intents);
}

/* Tries without `count` of the intents that are left, the first of them being the from-th. */
static bool try_without_intents(struct shrinker *shrinker, size_t from, size_t count)
{
    struct sim_options options = shrinker->options;
    uint32_t *list = mem_alloc((options.intents + 1) * sizeof *list);
    size_t out = 0, at = 0;
    for (uint32_t intent = 1; intent <= options.intents; intent++) {
        bool left = is_left_out(&options, intent);
        if (left || (at >= from && at < from + count))
            list[out++] = intent;
        at += !left;
    }
    options.intents_left_out = list;
    options.intents_left_out_count = out;
    bool fails = still_fails(shrinker, &options);
    free(fails ? shrinker->intents : list);
    if (fails)
        shrinker->intents = list;
    return fails;
}

static void leave_out_intents(struct shrinker *shrinker)
{
    size_t left = shrinker->options.intents - shrinker->options.intents_left_out_count;
    for (size_t size = left / 2; size > 0; size /= 2)
        for (size_t from = 0; from < left && shrinker->runs_left > 0;)
            if (left > 1 && try_without_intents(shrinker, from, size))
                left -= size < left - from ? size : left - from;
            else
                from += size;
}

/* ---- single faults ---- */

static int compare_decisions(const void *left, const void *right)
{
    const struct sim_decision *a = left, *b = right;
    if (a->stream != b->stream)
        return a->stream < b->stream ? -1 : 1;
    return (a->index > b->index) - (a->index < b->index);
}

static bool try_without_decisions(struct shrinker *shrinker, size_t from, size_t count)
{
    struct sim_options options = shrinker->options;
    size_t before = options.left_out_count, total = shrinker->last.taken_count;
    count = count < total - from ? count : total - from;
    struct sim_decision *list = mem_alloc((before + count + 1) * sizeof *list);
    if (before > 0)
        memcpy(list, options.left_out, before * sizeof *list);
    memcpy(list + before, shrinker->last.taken + from, count * sizeof *list);
    qsort(list, before + count, sizeof *list, compare_decisions);
    options.left_out = list;
    options.left_out_count = before + count;
    bool fails = still_fails(shrinker, &options);
    free(fails ? shrinker->decisions : list);
    if (fails)
        shrinker->decisions = list;
    return fails;
}

static void leave_out_decisions(struct shrinker *shrinker)
{
    for (size_t size = (shrinker->last.taken_count + 1) / 2; size > 0; size /= 2)
        for (size_t from = 0; from < shrinker->last.taken_count && shrinker->runs_left > 0;)
            if (!try_without_decisions(shrinker, from, size))
                from += size;
}

/* ---- the report ---- */

static void write_line(void *user, int64_t now_ms, const char *who, const char *what)
{
    buf_printf(user, "%12lld ms  %-10s %s\n", (long long)(now_ms - SIM_START_MS), who, what);
}

static void write_summary(const struct shrinker *shrinker, struct buf *out)
{
    const struct sim_options *options = &shrinker->options;
    buf_printf(out, "seed %llu, %u gateways, intents", (unsigned long long)options->seed, options->gateways);
    for (uint32_t intent = 1; intent <= options->intents; intent++)
        if (!is_left_out(options, intent))
            buf_printf(out, " %u", intent);
    buf_printf(out, ", %zu faults:", shrinker->last.taken_count);
    for (size_t i = 0; i < SIM_FAULT_COUNT; i++)
        if (shrinker->last.faults_by_kind[i] > 0)
            buf_printf(out, " %s %lld", sim_fault_name((enum sim_fault)i), (long long)shrinker->last.faults_by_kind[i]);
    buf_printf(out, "\n%s\n", shrinker->last.violation);
}

void sim_shrink(const struct sim_options *options, unsigned runs_max, struct buf *trace)
{
    struct shrinker shrinker = {.runs_left = runs_max ? runs_max : 1};
    struct sim_options first = *options;
    struct sim_shared *own = options->shared ? NULL : sim_shared_new();
    first.watch = NULL;
    if (own)
        first.shared = own;
    if (!still_fails(&shrinker, &first)) {
        buf_printf(trace, "seed %llu breaks no rule\n", (unsigned long long)options->seed);
        sim_shared_free(own);
        return;
    }
    leave_out_kinds(&shrinker);
    for (unsigned before = 0; before != shrinker.smaller;) {
        before = shrinker.smaller;
        leave_out_intents(&shrinker);
        leave_out_decisions(&shrinker);
    }
    write_summary(&shrinker, trace);
    struct sim_watch watch = {.user = trace, .line = write_line};
    struct sim_options last = shrinker.options;
    struct sim_result result;
    last.watch = &watch;
    sim_run(&last, &result);
    sim_result_release(&result);
    sim_result_release(&shrinker.last);
    sim_shared_free(own);
    free(shrinker.intents);
    free(shrinker.decisions);
}
