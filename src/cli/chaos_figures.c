/* The figures' words and numbers, one table for all reports. */
#include "cli/chaos_report.h"

const char chaos_model[] = "Time is simulated. A commit takes 0 to 3 ms and its answer 0 to 2 ms more (slow commits, "
                           "when that fault is chosen, up to a "
                           "minute), a message 1 to "
                           "20 ms each way; clocks of gateways differ and jump when that fault is chosen. Latencies "
                           "and times are for comparing "
                           "registries and policies with each other, they are no benchmark.";

/* ---- numbers ---- */

void chaos_count(struct buf *out, int64_t n)
{
    char digits[32];
    int length = snprintf(digits, sizeof digits, "%lld", (long long)n);
    for (int i = 0; i < length; i++) {
        buf_add_char(out, digits[i]);
        int left = length - 1 - i;
        if (left > 0 && left % 3 == 0 && digits[i] != '-')
            buf_add_char(out, ',');
    }
}

double chaos_share(int64_t part, int64_t whole)
{
    return whole ? (double)part / (double)whole : 0;
}

double chaos_contention(const struct chaos_kpi *kpi)
{
    return chaos_share(kpi->stale + kpi->joined + kpi->held, kpi->commits + kpi->calls);
}

double chaos_extra_requests(const struct chaos_kpi *kpi)
{
    return kpi->operations ? chaos_share(kpi->requests + kpi->lookups, kpi->operations) - 1 : 0;
}

static void percent(struct buf *out, int64_t part, int64_t whole)
{
    if (!whole)
        buf_add_text(out, "–");
    else if (part == 0 || part == whole)
        buf_printf(out, "%d %%", part ? 100 : 0);
    else
        buf_printf(out, "%.2f %%", 100 * chaos_share(part, whole));
}

static void span(struct buf *out, int64_t ms)
{
    char text[OUT_SPAN_SIZE];
    out_span(ms, text);
    buf_add_text(out, text);
}

/* "3 of 1,200 answers" */
static void part_of(struct buf *out, int64_t part, int64_t whole, const char *what)
{
    chaos_count(out, part);
    buf_add_text(out, " of ");
    chaos_count(out, whole);
    buf_printf(out, " %s", what);
}

static void counted(struct buf *out, int64_t n, const char *what)
{
    chaos_count(out, n);
    buf_printf(out, " %s", what);
}

/* ---- the figures ---- */

static void duplicates_value(struct buf *out, const struct chaos_kpi *kpi)
{
    if (kpi->duplicates == 0)
        buf_add_text(out, "0");
    else
        buf_printf(out, "%.2f", 10000 * chaos_share(kpi->duplicates, kpi->operations));
}

static void duplicates_detail(struct buf *out, const struct chaos_kpi *kpi)
{
    counted(out, kpi->duplicates, "in ");
    counted(out, kpi->operations, "operations, ");
    counted(out, kpi->effects, "effects");
}

static void excused_value(struct buf *out, const struct chaos_kpi *kpi)
{
    chaos_count(out, kpi->duplicates_excused);
}

static void excused_detail(struct buf *out, const struct chaos_kpi *kpi)
{
    buf_printf(out, "%.2f per 10,000 operations", 10000 * chaos_share(kpi->duplicates_excused, kpi->operations));
}

static void keyless_value(struct buf *out, const struct chaos_kpi *kpi)
{
    chaos_count(out, kpi->duplicates_keyless);
}

static void keyless_detail(struct buf *out, const struct chaos_kpi *kpi)
{
    buf_printf(out, "%.2f per 10,000 operations", 10000 * chaos_share(kpi->duplicates_keyless, kpi->operations));
}

static void unknown_value(struct buf *out, const struct chaos_kpi *kpi)
{
    chaos_count(out, kpi->unknown);
}

static void unknown_detail(struct buf *out, const struct chaos_kpi *kpi)
{
    percent(out, kpi->unknown, kpi->operations);
    buf_add_text(out, " of operations; at the end ");
    counted(out, kpi->doubts[DOUBT_OPERATOR], "given to the operator, ");
    counted(out, kpi->doubts[DOUBT_OPEN], "open");
}

static void resolved_value(struct buf *out, const struct chaos_kpi *kpi)
{
    percent(out, chaos_kpi_resolved(kpi), kpi->unknown);
}

static void resolved_detail(struct buf *out, const struct chaos_kpi *kpi)
{
    buf_add_text(out, "by re-send ");
    chaos_count(out, kpi->doubts[DOUBT_RESEND]);
    buf_add_text(out, ", look-up ");
    chaos_count(out, kpi->doubts[DOUBT_LOOKUP]);
    buf_add_text(out, ", late answer ");
    chaos_count(out, kpi->doubts[DOUBT_EVIDENCE]);
}

static void reconcile_value(struct buf *out, const struct chaos_kpi *kpi)
{
    const struct histogram *times = &kpi->reconcile_ms;
    if (times->count == 0) {
        buf_add_text(out, "–");
        return;
    }
    buf_add_text(out, "mean ");
    span(out, times->sum / times->count);
    buf_add_text(out, ", p99 ");
    span(out, histogram_percentile(times, 99));
}

static void reconcile_detail(struct buf *out, const struct chaos_kpi *kpi)
{
    counted(out, kpi->reconcile_ms.count, "doubts ended, longest ");
    span(out, kpi->reconcile_ms.max);
}

static void false_value(struct buf *out, const struct chaos_kpi *kpi)
{
    percent(out, kpi->false_dedupe, kpi->answers);
}

static void false_detail(struct buf *out, const struct chaos_kpi *kpi)
{
    part_of(out, kpi->false_dedupe, kpi->answers, "answers");
}

static void missed_value(struct buf *out, const struct chaos_kpi *kpi)
{
    percent(out, kpi->missed_dedupe, kpi->repeats);
}

static void missed_detail(struct buf *out, const struct chaos_kpi *kpi)
{
    part_of(out, kpi->missed_dedupe, kpi->repeats, "repeated calls");
}

static void contention_value(struct buf *out, const struct chaos_kpi *kpi)
{
    buf_printf(out, "%.2f %%", 100 * chaos_contention(kpi));
}

static void contention_detail(struct buf *out, const struct chaos_kpi *kpi)
{
    part_of(out, kpi->stale, kpi->commits, "commits stale; ");
    counted(out, kpi->joined, "joined, ");
    counted(out, kpi->held, "held of ");
    counted(out, kpi->calls, "calls");
}

static void added_value(struct buf *out, const struct chaos_kpi *kpi)
{
    const struct histogram *times = &kpi->added_ms;
    if (times->count == 0) {
        buf_add_text(out, "–");
        return;
    }
    buf_add_text(out, "p50 ");
    span(out, histogram_percentile(times, 50));
    buf_add_text(out, ", p99 ");
    span(out, histogram_percentile(times, 99));
}

static void added_detail(struct buf *out, const struct chaos_kpi *kpi)
{
    counted(out, kpi->added_ms.count, "calls answered at the first attempt");
}

static void extra_value(struct buf *out, const struct chaos_kpi *kpi)
{
    buf_printf(out, "%.2f", chaos_extra_requests(kpi));
}

static void extra_detail(struct buf *out, const struct chaos_kpi *kpi)
{
    counted(out, kpi->requests, "calls and ");
    counted(out, kpi->lookups, "look-ups arrived for ");
    counted(out, kpi->operations, "operations");
}

const struct chaos_figure chaos_figures[] = {
    {"duplicate effects", "Further effects of one intent at the provider that nothing excuses, per 10,000 operations.",
     duplicates_value, duplicates_detail},
    {"excused duplicates",
     "Further effects of an intent for which a provider, the network or a person broke the contract.", excused_value,
     excused_detail},
    {"keyless duplicates",
     "Further effects of an intent whose calls carried nothing that onced could know the repeat by (missed dedupe).",
     keyless_value, keyless_detail},
    {"unknown outcomes", "Operations that were unknown_outcome at some time.", unknown_value, unknown_detail},
    {"resolved by itself", "Of these, the share that became known by a re-send, a look-up or a late answer.",
     resolved_value, resolved_detail},
    {"reconciliation", "From the moment an outcome became unknown until it was known again, without a person.",
     reconcile_value, reconcile_detail},
    {"false dedupe", "Answers that told a call of another intent's operation.", false_value, false_detail},
    {"missed dedupe", "Repeated calls that opened another operation although the first may have had an effect.",
     missed_value, missed_detail},
    {"lock contention",
     "Commits refused because somebody else was first, calls that joined or were held, of all commits and calls.",
     contention_value, contention_detail},
    {"added latency", "Time of a call less the time its one request was on the wire.", added_value, added_detail},
    {"extra requests", "Requests that arrived at the provider, look-ups too, per operation, less one.", extra_value,
     extra_detail},
};
const size_t chaos_figure_count = sizeof chaos_figures / sizeof *chaos_figures;

/* ---- words ---- */

static void add_strategies(struct buf *out, const struct tool *tool)
{
    for (unsigned i = 0; i < tool->reconcile.strategy_count; i++)
        buf_printf(out, "%s%s", i ? ", then " : "; if in doubt ", strategy_name(tool->reconcile.strategies[i]));
}

static bool can_look_up(const struct tool *tool)
{
    for (unsigned i = 0; i < tool->reconcile.strategy_count; i++)
        if (tool->reconcile.strategies[i] == STRATEGY_LOOKUP)
            return tool->has_lookup;
    return false;
}

void chaos_contract(struct buf *out, const struct tool *tool)
{
    const struct provider *provider = tool->provider;
    buf_add_text(out, tool_class_name(tool->class));
    if (tool->class == CLASS_EXTERNAL_IDEMPOTENT && tool->idempotent_by != IDEMPOTENT_BY_KEY) {
        buf_printf(out, " by %s", tool->idempotent_by == IDEMPOTENT_BY_NATURE ? "nature" : "precondition");
    } else if (provider->key_honoured) {
        buf_add_text(out, "; key honoured");
        if (provider->key_retention_ms) {
            buf_add_text(out, " for ");
            span(out, provider->key_retention_ms);
        }
    } else {
        buf_add_text(out, "; no key");
    }
    if (!can_look_up(tool))
        buf_add_text(out, "; no look-up");
    add_strategies(out, tool);
}

void chaos_fault_names(struct buf *out, uint64_t faults)
{
    const char *between = "";
    for (size_t i = 0; i < SIM_FAULT_COUNT; i++) {
        if (!(faults & SIM_FAULT_BIT(i)))
            continue;
        buf_printf(out, "%s%s", between, sim_fault_name((enum sim_fault)i));
        between = ", ";
    }
}

static unsigned fault_kinds(uint64_t faults)
{
    return (unsigned)__builtin_popcountll(faults);
}

static uint64_t breaking(uint64_t faults)
{
    return faults & ~sim_faults_within_contract();
}

void chaos_setting(struct buf *out, const struct chaos_outcome *outcome, const char *between)
{
    const struct chaos_options *options = outcome->options;
    buf_printf(out, "seed %llu%s", (unsigned long long)options->seed, between);
    counted(out, outcome->total->operations, "operations");
    buf_add_text(out, between);
    counted(out, outcome->worlds, outcome->worlds == 1 ? "world of " : "worlds of ");
    buf_printf(out, "%u gateway%s%s%u kinds of faults", options->gateways, options->gateways == 1 ? "" : "s", between,
               fault_kinds(options->faults));
    if (breaking(options->faults))
        buf_printf(out, ", %u of them break contracts", fault_kinds(breaking(options->faults)));
    if (options->rate)
        buf_printf(out, ", at %u %%", options->rate);
}

void chaos_verdict(struct buf *out, const struct chaos_outcome *outcome)
{
    const struct chaos_kpi *total = outcome->total;
    if (outcome->violated) {
        buf_printf(out, "broken: %s", outcome->violation);
        return;
    }
    if (total->duplicates > 0) {
        buf_add_text(out, "broken: ");
        counted(out, total->duplicates, "duplicate effects that no broken contract excuses");
        return;
    }
    buf_add_text(out, "holds: no duplicate effect that the stated contracts rule out");
    if (total->duplicates_excused > 0) {
        buf_add_text(out, "; ");
        counted(out, total->duplicates_excused, "after contracts were broken");
    }
    if (total->duplicates_keyless > 0) {
        buf_add_text(out, "; ");
        counted(out, total->duplicates_keyless, "of calls without a key: give these tools one");
    }
}
