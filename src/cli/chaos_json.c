#include "cli/chaos_report.h"

static void number(struct json_out *json, const char *name, double value)
{
    char text[64];
    snprintf(text, sizeof text, "%.6f", value);
    json_out_name(json, name);
    json_out_raw(json, str_of(text));
}

/* null where there is nothing to take a share of: 0 of 0 says nothing good. */
static void share(struct json_out *json, const char *name, int64_t part, int64_t whole)
{
    if (whole) {
        number(json, name, chaos_share(part, whole));
        return;
    }
    json_out_name(json, name);
    json_out_null(json);
}

static void times(struct json_out *json, const char *name, const struct histogram *histogram)
{
    json_out_name(json, name);
    json_out_object(json);
    json_out_member_int(json, "count", histogram->count);
    json_out_member_int(json, "mean", histogram->count ? histogram->sum / histogram->count : 0);
    json_out_member_int(json, "p50", histogram_percentile(histogram, 50));
    json_out_member_int(json, "p90", histogram_percentile(histogram, 90));
    json_out_member_int(json, "p99", histogram_percentile(histogram, 99));
    json_out_member_int(json, "max", histogram->max);
    json_out_end_object(json);
}

static void write_doubts(struct json_out *json, const struct chaos_kpi *kpi)
{
    json_out_name(json, "unknown_outcomes");
    json_out_object(json);
    json_out_member_int(json, "count", kpi->unknown);
    for (size_t i = 0; i < DOUBT_COUNT; i++)
        json_out_member_int(json, chaos_doubt_name((enum chaos_doubt)i), kpi->doubts[i]);
    share(json, "resolved_without_human", chaos_kpi_resolved(kpi), kpi->unknown);
    json_out_end_object(json);
    json_out_name(json, "ends");
    json_out_object(json);
    for (size_t i = 0; i < END_COUNT; i++)
        json_out_member_int(json, chaos_end_name((enum chaos_end)i), kpi->ends[i]);
    json_out_end_object(json);
}

static void write_dedupe(struct json_out *json, const struct chaos_kpi *kpi)
{
    json_out_name(json, "false_dedupe");
    json_out_object(json);
    json_out_member_int(json, "count", kpi->false_dedupe);
    json_out_member_int(json, "answers", kpi->answers);
    share(json, "rate", kpi->false_dedupe, kpi->answers);
    json_out_end_object(json);
    json_out_name(json, "missed_dedupe");
    json_out_object(json);
    json_out_member_int(json, "count", kpi->missed_dedupe);
    json_out_member_int(json, "repeats", kpi->repeats);
    share(json, "rate", kpi->missed_dedupe, kpi->repeats);
    json_out_end_object(json);
}

static void write_kpi(struct json_out *json, const struct chaos_kpi *kpi)
{
    json_out_member_int(json, "operations", kpi->operations);
    json_out_member_int(json, "calls", kpi->calls);
    json_out_member_int(json, "effects", kpi->effects);
    json_out_member_int(json, "duplicates", kpi->duplicates);
    number(json, "duplicates_per_10000", 10000 * chaos_share(kpi->duplicates, kpi->operations));
    json_out_member_int(json, "duplicates_excused", kpi->duplicates_excused);
    json_out_member_int(json, "duplicates_without_key", kpi->duplicates_keyless);
    write_doubts(json, kpi);
    times(json, "reconciliation_ms", &kpi->reconcile_ms);
    write_dedupe(json, kpi);
    json_out_name(json, "lock_contention");
    json_out_object(json);
    json_out_member_int(json, "commits", kpi->commits);
    json_out_member_int(json, "stale", kpi->stale);
    json_out_member_int(json, "joined", kpi->joined);
    json_out_member_int(json, "held", kpi->held);
    number(json, "rate", chaos_contention(kpi));
    json_out_end_object(json);
    times(json, "added_latency_ms", &kpi->added_ms);
    json_out_name(json, "provider_requests");
    json_out_object(json);
    json_out_member_int(json, "calls", kpi->requests);
    json_out_member_int(json, "lookups", kpi->lookups);
    number(json, "extra_per_operation", chaos_extra_requests(kpi));
    json_out_end_object(json);
}

static void write_tools(struct json_out *json, const struct chaos_outcome *outcome)
{
    struct buf contract;
    buf_init(&contract, 0);
    json_out_name(json, "tools");
    json_out_array(json);
    for (size_t i = 0; i < outcome->tool_count; i++) {
        buf_reset(&contract);
        chaos_contract(&contract, outcome->tools[i]);
        json_out_object(json);
        json_out_member_text(json, "name", outcome->tools[i]->name);
        json_out_member_text(json, "contract", buf_str(&contract).p);
        write_kpi(json, &outcome->kpis[i]);
        json_out_end_object(json);
    }
    json_out_end_array(json);
    json_out_name(json, "not_exercised");
    json_out_array(json);
    for (size_t i = 0; i < outcome->skipped_count; i++) {
        json_out_object(json);
        json_out_member_text(json, "name", outcome->skipped[i].name);
        json_out_member_text(json, "why", outcome->skipped[i].why);
        json_out_end_object(json);
    }
    json_out_end_array(json);
    buf_release(&contract);
}

static void write_faults(struct json_out *json, const struct chaos_outcome *outcome)
{
    json_out_name(json, "faults");
    json_out_array(json);
    for (size_t i = 0; i < SIM_FAULT_COUNT; i++) {
        if (!(outcome->options->faults & SIM_FAULT_BIT(i)))
            continue;
        json_out_object(json);
        json_out_member_text(json, "name", sim_fault_name((enum sim_fault)i));
        json_out_member_bool(json, "breaks_contract", sim_fault_breaks((enum sim_fault)i));
        json_out_member_int(json, "injected", outcome->faults[i]);
        json_out_end_object(json);
    }
    json_out_end_array(json);
}

static void write_setting(struct json_out *json, const struct chaos_outcome *outcome)
{
    const struct chaos_options *options = outcome->options;
    json_out_member_text(json, "onced", ONCED_VERSION);
    json_out_member_text(json, "file", options->path);
    json_out_member_text(json, "policy_version", registry_policy_version(outcome->registry));
    json_out_member_text(json, "command", options->command);
    json_out_name(json, "seed"); /* a text: 64 bits are more than many readers of JSON numbers keep */
    char seed[24];
    snprintf(seed, sizeof seed, "%llu", (unsigned long long)options->seed);
    json_out_text(json, seed);
    json_out_member_int(json, "gateways", options->gateways);
    json_out_member_int(json, "rate_percent", options->rate);
    json_out_member_int(json, "worlds", outcome->worlds);
    json_out_member_int(json, "crashes", outcome->crashes);
    json_out_member_int(json, "incidents", outcome->incidents);
    json_out_member_int(json, "simulated_ms", outcome->simulated_ms);
    json_out_member_bool(json, "holds", chaos_holds(outcome));
    json_out_name(json, "violation");
    json_out_text(json, outcome->violation);
    json_out_name(json, "trace");
    json_out_text(json, outcome->trace);
    json_out_member_text(json, "model", chaos_model);
}

void chaos_write_json(struct buf *out, const struct chaos_outcome *outcome)
{
    struct json_out json;
    json_out_init(&json, out);
    json_out_object(&json);
    write_setting(&json, outcome);
    json_out_name(&json, "total");
    json_out_object(&json);
    write_kpi(&json, outcome->total);
    json_out_end_object(&json);
    write_tools(&json, outcome);
    write_faults(&json, outcome);
    json_out_end_object(&json);
    buf_add_char(out, '\n');
}
