#include "cli/chaos_report.h"

#define TITLE_COLUMNS 20
#define VALUE_COLUMNS 36

static void line(struct out *out, const char *title, enum out_style style, const struct buf *value,
                 const struct buf *detail)
{
    out_printf(out, "  ");
    out_text(out, OUT_DIM, title);
    out_printf(out, "%*s", (int)(TITLE_COLUMNS - out_columns(str_of(title))), "");
    out_str(out, style, buf_str(value));
    size_t columns = out_columns(buf_str(value));
    out_printf(out, "%*s", columns < VALUE_COLUMNS ? (int)(VALUE_COLUMNS - columns) : 1, "");
    out_str(out, OUT_PLAIN, buf_str(detail));
    out_printf(out, "\n");
}

static void write_figures(struct out *out, const struct chaos_outcome *outcome)
{
    struct buf value, detail;
    buf_init(&value, 0);
    buf_init(&detail, 0);
    for (size_t i = 0; i < chaos_figure_count; i++) {
        buf_reset(&value);
        buf_reset(&detail);
        chaos_figures[i].value(&value, outcome->total);
        chaos_figures[i].detail(&detail, outcome->total);
        bool first = i == 0;
        line(out, chaos_figures[i].title,
             !first                       ? OUT_BOLD
             : outcome->total->duplicates ? OUT_RED
                                          : OUT_GREEN,
             &value, &detail);
    }
    buf_release(&value);
    buf_release(&detail);
}

static struct str cell(struct arena *arena, struct buf *text)
{
    struct str copy = arena_str(arena, buf_str(text));
    buf_reset(text);
    return copy;
}

static struct str counted(struct arena *arena, struct buf *text, int64_t n)
{
    chaos_count(text, n);
    return cell(arena, text);
}

static struct str percentile(struct arena *arena, const struct histogram *times)
{
    char text[OUT_SPAN_SIZE];
    if (times->count == 0)
        return STR("–");
    out_span(histogram_percentile(times, 99), text);
    return str_of(arena_copy_text(arena, text));
}

static void write_tools(struct out *out, const struct chaos_outcome *outcome)
{
    static const char *const heads[] = {"tool",    "operations", "effects",  "duplicates",     "excused",
                                        "unknown", "by itself",  "operator", "p99 reconciled", "extra requests"};
    struct arena arena;
    struct out_table table;
    struct buf text;
    arena_init(&arena);
    buf_init(&text, 0);
    out_table_init(&table, &arena, heads, sizeof heads / sizeof *heads);
    for (size_t i = 0; i < outcome->tool_count; i++) {
        const struct chaos_kpi *kpi = &outcome->kpis[i];
        struct out_cell *row = out_table_row(&table);
        row[0] = (struct out_cell){str_of(outcome->tools[i]->name), OUT_BOLD};
        row[1].text = counted(&arena, &text, kpi->operations);
        row[2].text = counted(&arena, &text, kpi->effects);
        row[3] = (struct out_cell){counted(&arena, &text, kpi->duplicates), kpi->duplicates ? OUT_RED : OUT_GREEN};
        row[4].text = counted(&arena, &text, kpi->duplicates_excused + kpi->duplicates_keyless);
        row[5].text = counted(&arena, &text, kpi->unknown);
        row[6].text = counted(&arena, &text, chaos_kpi_resolved(kpi));
        row[7].text = counted(&arena, &text, kpi->doubts[DOUBT_OPERATOR]);
        row[8].text = percentile(&arena, &kpi->reconcile_ms);
        buf_printf(&text, "%.2f", chaos_extra_requests(kpi));
        row[9].text = cell(&arena, &text);
    }
    out_table_print(out, &table);
    buf_release(&text);
    arena_release(&arena);
}

static void write_faults(struct out *out, const struct chaos_outcome *outcome)
{
    struct buf text;
    int64_t sum = 0;
    buf_init(&text, 0);
    for (size_t i = 0; i < SIM_FAULT_COUNT; i++) {
        if (outcome->faults[i] == 0)
            continue;
        buf_printf(&text, "%s%s ", sum ? ", " : "", sim_fault_name((enum sim_fault)i));
        chaos_count(&text, outcome->faults[i]);
        if (sim_fault_breaks((enum sim_fault)i))
            buf_add_text(&text, " (breaks the contract)");
        sum += outcome->faults[i];
    }
    out_printf(out, "\n");
    out_text(out, OUT_BOLD, "faults injected");
    out_printf(out, ": %s\n", sum ? buf_str(&text).p : "none");
    buf_release(&text);
}

static void write_skipped(struct out *out, const struct chaos_outcome *outcome)
{
    for (size_t i = 0; i < outcome->skipped_count; i++) {
        out_text(out, OUT_YELLOW, "not exercised");
        out_printf(out, ": ");
        out_text(out, OUT_PLAIN, outcome->skipped[i].name);
        out_printf(out, ": ");
        out_text(out, OUT_PLAIN, outcome->skipped[i].why);
        out_printf(out, "\n");
    }
}

static void write_verdict(struct out *out, const struct chaos_outcome *outcome)
{
    struct buf text;
    buf_init(&text, 0);
    chaos_verdict(&text, outcome);
    out_str(out, chaos_holds(outcome) ? OUT_GREEN : OUT_RED, buf_str(&text));
    out_printf(out, "\n");
    buf_release(&text);
}

void chaos_write_text(struct out *out, const struct chaos_outcome *outcome)
{
    struct buf setting;
    buf_init(&setting, 0);
    chaos_setting(&setting, outcome, ", ");
    out_text(out, OUT_BOLD, outcome->options->path);
    out_printf(out, ": %s\n\n", buf_str(&setting).p);
    buf_release(&setting);
    write_figures(out, outcome);
    out_printf(out, "\n");
    write_tools(out, outcome);
    write_faults(out, outcome);
    if (outcome->trace)
        out_printf(out, "\n%s\n", outcome->trace);
    write_skipped(out, outcome);
    out_printf(out, "again: %s\n", outcome->options->command);
    write_verdict(out, outcome);
}
