#include "cli/eval_print.h"

#include "cli/eval_reason.h"

#define FINGERPRINT_BYTES 4 /* shown to people */

void eval_count(struct eval_counts *counts, const struct eval_verdict *verdict)
{
    counts->groups++;
    counts->hold += verdict->finding_count == 0;
    for (size_t i = 0; i < verdict->finding_count; i++) {
        switch (verdict->findings[i].kind) {
        case FINDING_COLLISION: counts->collisions++; break;
        case FINDING_SPLIT: counts->splits++; break;
        case FINDING_OTHER: counts->others++; break;
        }
    }
}

void eval_counts_add(struct eval_counts *sum, const struct eval_counts *counts)
{
    sum->groups += counts->groups;
    sum->hold += counts->hold;
    sum->collisions += counts->collisions;
    sum->splits += counts->splits;
    sum->others += counts->others;
}

/* ---- text ---- */

static void print_arguments(struct out *out, const struct eval_result *result)
{
    struct buf text;
    buf_init(&text, 0);
    if (result->effective || result->call->arguments)
        json_write(&text, result->effective ? result->effective : result->call->arguments);
    else
        buf_add_str(&text, result->call->arguments_text);
    out_str(out, OUT_PLAIN, buf_str(&text));
    buf_release(&text);
}

static void print_call(struct out *out, const struct eval_verdict *verdict, size_t index, bool with_caller)
{
    const struct eval_result *result = &verdict->results[index];
    struct arena arena;
    arena_init(&arena);
    out_printf(out, "  call %zu, line %u: ", index + 1, result->call->line);
    out_text(out, OUT_BOLD, result->tool->name);
    out_printf(out, " ");
    print_arguments(out, result);
    out_printf(out, "\n      ");
    out_text(out, OUT_PLAIN, eval_identity_text(&arena, result));
    if (result->identified) {
        char hex[2 * FINGERPRINT_BYTES + 1];
        digest_hex(&result->op.fingerprint, FINGERPRINT_BYTES, hex);
        out_printf(out, ", fingerprint %s", hex);
    }
    if (with_caller) {
        out_printf(out, ", by ");
        out_text(out, OUT_PLAIN, arena_printf(&arena, "%s of %s", result->call->principal, result->call->tenant));
    }
    out_printf(out, "\n      %s", answer_words(result->answer));
    if (result->text) {
        out_printf(out, ": ");
        out_text(out, OUT_PLAIN, result->text);
    }
    out_printf(out, "\n");
    arena_release(&arena);
}

static bool callers_differ(const struct eval_verdict *verdict)
{
    const struct eval_group *group = verdict->group;
    for (size_t i = 1; i < group->call_count; i++)
        if (!text_equal(group->calls[i].tenant, group->calls[0].tenant) ||
            !text_equal(group->calls[i].principal, group->calls[0].principal))
            return true;
    return false;
}

static void print_head(struct out *out, const char *path, const struct eval_verdict *verdict, enum out_style style,
                       const char *word)
{
    out_text(out, OUT_PLAIN, path);
    out_printf(out, ":%u:%u: ", verdict->group->line, verdict->group->column);
    out_text(out, style, word);
    out_printf(out, ": ");
    out_text(out, OUT_PLAIN, verdict->group->name);
    out_printf(out, " (expected: %s)\n", expectation_name(verdict->group->expectation));
}

static void print_findings(struct out *out, const char *path, const struct eval_verdict *verdict)
{
    bool with_caller = callers_differ(verdict);
    for (size_t i = 0; i < verdict->finding_count; i++) {
        const struct eval_finding *finding = &verdict->findings[i];
        print_head(out, path, verdict, OUT_RED, finding_kind_name(finding->kind));
        if (finding->earlier != finding->later)
            print_call(out, verdict, finding->earlier, with_caller);
        print_call(out, verdict, finding->later, with_caller);
        out_printf(out, "  ");
        out_text(out, OUT_BOLD, "why:");
        out_printf(out, " ");
        out_text(out, OUT_PLAIN, finding->why);
        out_printf(out, "\n\n");
    }
}

static void print_holding(struct out *out, const char *path, const struct eval_verdict *verdict)
{
    bool with_caller = callers_differ(verdict);
    print_head(out, path, verdict, OUT_GREEN, "holds");
    for (size_t i = 0; i < verdict->group->call_count; i++)
        print_call(out, verdict, i, with_caller);
    out_printf(out, "\n");
}

static const char *plural(size_t n)
{
    return n == 1 ? "" : "s";
}

static void print_counts(struct out *out, const struct eval_counts *counts)
{
    out_printf(out, "%zu group%s, %zu hold%s: ", counts->groups, plural(counts->groups), counts->hold,
               counts->hold == 1 ? "s" : "");
    out_printf(out, "%zu collision%s, %zu split%s, %zu other%s\n", counts->collisions, plural(counts->collisions),
               counts->splits, plural(counts->splits), counts->others, plural(counts->others));
}

void eval_print_text(struct out *out, const struct eval_outcome *outcome, bool all)
{
    for (size_t i = 0; i < outcome->counts.groups; i++) {
        const struct eval_verdict *verdict = &outcome->verdicts[i];
        if (verdict->finding_count)
            print_findings(out, outcome->path, verdict);
        else if (all)
            print_holding(out, outcome->path, verdict);
    }
    if (!outcome->registry)
        return;
    out_text(out, OUT_PLAIN, outcome->path);
    out_printf(out, ": ");
    print_counts(out, &outcome->counts);
}

void eval_print_sum(struct out *out, const struct eval_counts *sum, size_t files)
{
    out_printf(out, "%zu files: ", files);
    print_counts(out, sum);
}

/* ---- JSON ---- */

static void write_call(struct json_out *out, const struct eval_verdict *verdict, size_t index)
{
    const struct eval_result *result = &verdict->results[index];
    const struct eval_call *call = result->call;
    json_out_object(out);
    json_out_member_int(out, "number", (int64_t)index + 1);
    json_out_member_int(out, "line", call->line);
    json_out_member_int(out, "column", call->column);
    json_out_member_text(out, "tool", call->tool);
    json_out_member_text(out, "tenant", call->tenant);
    json_out_member_text(out, "principal", call->principal);
    json_out_name(out, "arguments");
    if (result->effective || call->arguments)
        json_out_value(out, result->effective ? result->effective : call->arguments);
    else
        json_out_str(out, call->arguments_text);
    json_out_member_text(out, "answer", answer_name(result->answer));
    json_out_member_text(out, "detail", result->text);
    if (result->identified) {
        char hex[2 * DIGEST_BYTES + 1];
        bool random = result->op.key_source == KEY_SOURCE_REPEAT && !result->op.repeat_of;
        digest_hex(&result->op.fingerprint, DIGEST_BYTES, hex);
        json_out_member_text(out, "key_source", key_source_name(result->op.key_source));
        json_out_member_text(out, "key", random ? NULL : result->op.key);
        json_out_member_text(out, "fingerprint", hex);
    }
    if (result->operation[0])
        json_out_member_text(out, "operation_id", result->operation);
    json_out_end_object(out);
}

static void write_group(struct json_out *out, const struct eval_verdict *verdict)
{
    json_out_member_text(out, "group", verdict->group->name);
    json_out_member_int(out, "line", verdict->group->line);
    json_out_member_int(out, "column", verdict->group->column);
    json_out_member_text(out, "expected", expectation_name(verdict->group->expectation));
}

static void write_finding(struct json_out *out, const struct eval_verdict *verdict, const struct eval_finding *finding)
{
    json_out_object(out);
    json_out_member_text(out, "kind", finding_kind_name(finding->kind));
    write_group(out, verdict);
    json_out_member_text(out, "why", finding->why);
    json_out_name(out, "calls");
    json_out_array(out);
    if (finding->earlier != finding->later)
        write_call(out, verdict, finding->earlier);
    write_call(out, verdict, finding->later);
    json_out_end_array(out);
    json_out_end_object(out);
}

static void write_details(struct json_out *out, const struct eval_outcome *outcome)
{
    json_out_name(out, "details");
    json_out_array(out);
    for (size_t i = 0; i < outcome->counts.groups; i++) {
        const struct eval_verdict *verdict = &outcome->verdicts[i];
        json_out_object(out);
        write_group(out, verdict);
        json_out_member_bool(out, "holds", verdict->finding_count == 0);
        json_out_name(out, "calls");
        json_out_array(out);
        for (size_t c = 0; c < verdict->group->call_count; c++)
            write_call(out, verdict, c);
        json_out_end_array(out);
        json_out_end_object(out);
    }
    json_out_end_array(out);
}

static void write_problems(struct json_out *out, const struct eval_outcome *outcome)
{
    json_out_name(out, "problems");
    json_out_array(out);
    for (size_t r = 0; r < sizeof outcome->reports / sizeof *outcome->reports; r++) {
        const struct config_report *report = outcome->reports[r];
        for (size_t i = 0; report && i < report->count; i++) {
            const struct config_problem *item = &report->items[i];
            json_out_object(out);
            json_out_member_text(out, "file", report->path);
            json_out_member_int(out, "line", item->line);
            json_out_member_int(out, "column", item->column);
            json_out_member_text(out, "pointer", item->pointer);
            json_out_member_text(out, "severity", item->warning ? "warning" : "error");
            json_out_member_text(out, "message", item->text);
            json_out_end_object(out);
        }
    }
    json_out_end_array(out);
}

static void write_counts(struct json_out *out, const struct eval_counts *counts)
{
    json_out_member_int(out, "groups", (int64_t)counts->groups);
    json_out_member_int(out, "hold", (int64_t)counts->hold);
    json_out_member_int(out, "collisions", (int64_t)counts->collisions);
    json_out_member_int(out, "splits", (int64_t)counts->splits);
    json_out_member_int(out, "others", (int64_t)counts->others);
}

static void write_file(struct json_out *out, const struct eval_outcome *outcome, bool all)
{
    json_out_object(out);
    json_out_member_text(out, "file", outcome->path);
    json_out_member_text(out, "registry", outcome->registry_path);
    if (outcome->registry)
        json_out_member_text(out, "policy_version", registry_policy_version(outcome->registry));
    json_out_member_bool(out, "ok", outcome->registry && outcome->counts.hold == outcome->counts.groups);
    write_counts(out, &outcome->counts);
    write_problems(out, outcome);
    json_out_name(out, "findings");
    json_out_array(out);
    for (size_t i = 0; i < outcome->counts.groups; i++)
        for (size_t f = 0; f < outcome->verdicts[i].finding_count; f++)
            write_finding(out, &outcome->verdicts[i], &outcome->verdicts[i].findings[f]);
    json_out_end_array(out);
    if (all)
        write_details(out, outcome);
    json_out_end_object(out);
}

void eval_print_json(FILE *file, const struct eval_outcome *outcomes, size_t count, bool ok, bool all)
{
    struct eval_counts sum = {0};
    struct buf buf;
    struct json_out out;
    buf_init(&buf, 0);
    json_out_init(&out, &buf);
    for (size_t i = 0; i < count; i++)
        eval_counts_add(&sum, &outcomes[i].counts);
    json_out_object(&out);
    json_out_member_bool(&out, "ok", ok);
    write_counts(&out, &sum);
    json_out_name(&out, "files");
    json_out_array(&out);
    for (size_t i = 0; i < count; i++)
        write_file(&out, &outcomes[i], all);
    json_out_end_array(&out);
    json_out_end_object(&out);
    fprintf(file, "%s\n", buf_str(&buf).p);
    buf_release(&buf);
}
