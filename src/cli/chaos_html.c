/* The report as one HTML file: style and charts are in it, scripts are not. */
#include "cli/chaos_html.h"

static const char style[] =
    ":root{color-scheme:light "
    "dark;--ink:#1b1f24;--dim:#5c6670;--page:#fff;--card:#f5f6f8;--line:#d8dde3;--good:#00694c;"
    "--bad:#a63a00}"
    "@media (prefers-color-scheme:dark){:root{--ink:#e8eaed;--dim:#a3adb8;--page:#15181c;--card:#1f242a;--line:#39414a;"
    "--good:#3ddba6;--bad:#ff8a4c}}"
    "*{box-sizing:border-box}"
    "body{margin:0 auto;padding:1.5rem 1rem 4rem;max-width:68rem;background:var(--page);color:var(--ink);"
    "font:16px/1.5 system-ui,sans-serif;overflow-wrap:break-word}"
    "h1{font-size:1.5rem;margin:0}h2{font-size:1.15rem;margin:2.2rem 0 .6rem}"
    ".setting,.model,.legend,.detail{color:var(--dim)}.setting{margin:.2rem 0 1rem}"
    ".verdict{padding:.7rem 1rem;border-left:.4rem solid var(--good);background:var(--card);font-weight:600;"
    "white-space:pre-wrap}"
    ".verdict.broken{border-color:var(--bad);color:var(--bad)}"
    ".tiles{display:grid;grid-template-columns:repeat(auto-fill,minmax(15rem,1fr));gap:.7rem;margin:1rem 0;padding:0;"
    "list-style:none}"
    ".tiles li{background:var(--card);padding:.7rem .9rem;border-radius:.4rem}"
    ".tiles b{display:block;font-size:1.35rem;line-height:1.3}.detail{font-size:.85rem}"
    ".bar{display:grid;grid-template-columns:minmax(7rem,14rem) 1fr 5rem;gap:.7rem;align-items:center;margin:.3rem 0}"
    ".bar "
    "svg{width:100%;height:1.1rem;background:var(--card)}.number{text-align:right;font-variant-numeric:tabular-nums}"
    ".name{overflow:hidden;text-overflow:ellipsis}"
    ".legend span{margin-right:1rem;white-space:nowrap}"
    ".legend i{display:inline-block;width:.8rem;height:.8rem;margin-right:.35rem;border-radius:.15rem}"
    ".times{width:100%;max-height:18rem}"
    "h3{font-size:1rem;margin:1.6rem 0 0}h3+p{margin:0 0 .4rem}"
    "table{border-collapse:collapse;width:100%;font-size:.9rem}"
    "th,td{padding:.3rem .6rem .3rem 0;border-bottom:1px solid var(--line);text-align:left;vertical-align:top}"
    "th{font-weight:400;width:11rem}td{font-variant-numeric:tabular-nums}td:nth-child(2){font-weight:600;width:16rem}"
    "dt{font-weight:600}dd{margin:0 0 .5rem}"
    "pre{background:var(--card);padding:.8rem 1rem;overflow-x:auto;white-space:pre-wrap}"
    "@media (max-width:36rem){tr{display:block;padding:.3rem 0;border-bottom:1px solid var(--line)}"
    "th,td,td:nth-child(2){display:inline;border:0;width:auto}"
    ".bar{grid-template-columns:1fr 5rem}.bar svg{grid-column:1/3;grid-row:2}}"
    "@media print{body{font-size:11pt;max-width:none}.tiles "
    "li,.bar,.times,tr{break-inside:avoid}h2,h3{break-after:avoid}"
    "*{print-color-adjust:exact;-webkit-print-color-adjust:exact}}";

void html_text(struct buf *out, struct str text)
{
    for (size_t i = 0; i < text.n; i++) {
        unsigned char c = (unsigned char)text.p[i];
        switch (c) {
        case '<': buf_add_text(out, "&lt;"); break;
        case '>': buf_add_text(out, "&gt;"); break;
        case '&': buf_add_text(out, "&amp;"); break;
        case '"': buf_add_text(out, "&quot;"); break;
        case '\'': buf_add_text(out, "&#39;"); break;
        default:
            if ((c < ' ' && c != '\n' && c != '\t') || c == 127)
                buf_add_text(out, "\xef\xbf\xbd");
            else
                buf_add_char(out, (char)c);
        }
    }
}

void html_span(struct buf *out, int64_t ms)
{
    char text[OUT_SPAN_SIZE];
    out_span(ms, text);
    buf_add_text(out, text);
}

static void element(struct buf *out, const char *open, struct str text, const char *close)
{
    buf_add_text(out, open);
    html_text(out, text);
    buf_add_text(out, close);
}

static void write_head(struct buf *out, const struct chaos_outcome *outcome)
{
    struct buf text;
    buf_init(&text, 0);
    buf_add_text(out, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
                      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n");
    element(out, "<title>onced chaos: ", str_of(outcome->options->path), "</title>\n<style>");
    buf_add_text(out, style);
    element(out, "</style>\n</head>\n<body>\n<h1>onced chaos: ", str_of(outcome->options->path), "</h1>\n");
    chaos_setting(&text, outcome, " · ");
    element(out, "<p class=\"setting\">", buf_str(&text), " · policy ");
    element(out, "", str_of(registry_policy_version(outcome->registry)), " · onced " ONCED_VERSION "</p>\n");
    buf_reset(&text);
    chaos_verdict(&text, outcome);
    element(out, chaos_holds(outcome) ? "<p class=\"verdict\">" : "<p class=\"verdict broken\">", buf_str(&text),
            "</p>\n");
    buf_release(&text);
}

static void write_tiles(struct buf *out, const struct chaos_kpi *kpi)
{
    buf_add_text(out, "<ul class=\"tiles\">\n");
    for (size_t i = 0; i < chaos_figure_count; i++) {
        buf_printf(out, "<li>%s<b>", chaos_figures[i].title);
        chaos_figures[i].value(out, kpi);
        buf_add_text(out, "</b><span class=\"detail\">");
        chaos_figures[i].detail(out, kpi);
        buf_add_text(out, "</span></li>\n");
    }
    buf_add_text(out, "</ul>\n");
}

static size_t end_parts(struct chart_part *parts, const struct chaos_kpi *kpi)
{
    for (size_t i = 0; i < END_COUNT; i++) {
        enum chaos_end end = (enum chaos_end)i;
        parts[i] = (struct chart_part){chaos_end_name(end), chaos_end_text(end), kpi->ends[i], i};
    }
    return END_COUNT;
}

static size_t doubt_parts(struct chart_part *parts, const struct chaos_kpi *kpi)
{
    for (size_t i = 0; i < DOUBT_COUNT; i++) {
        enum chaos_doubt doubt = (enum chaos_doubt)i;
        size_t colour = i < DOUBT_OPERATOR ? i : i - DOUBT_OPERATOR + END_OPERATOR; /* as in the chart of ends */
        parts[i] = (struct chart_part){chaos_doubt_name(doubt), chaos_doubt_text(doubt), kpi->doubts[i], colour};
    }
    return DOUBT_COUNT;
}

static void write_bars(struct buf *out, const struct chaos_outcome *outcome,
                       size_t (*fill)(struct chart_part *parts, const struct chaos_kpi *kpi))
{
    struct chart_part parts[8];
    size_t count = fill(parts, outcome->total);
    chart_legend(out, parts, count);
    for (size_t i = 0; i < outcome->tool_count; i++) {
        fill(parts, &outcome->kpis[i]);
        chart_bar(out, outcome->tools[i]->name, parts, count);
    }
}

static void write_fault_bars(struct buf *out, const struct chaos_outcome *outcome)
{
    int64_t largest = 0;
    for (size_t i = 0; i < SIM_FAULT_COUNT; i++)
        largest = outcome->faults[i] > largest ? outcome->faults[i] : largest;
    buf_add_text(out, "<h2>Faults injected</h2>\n<p class=\"legend\">Bars on a logarithmic scale.</p>\n");
    for (size_t i = 0; i < SIM_FAULT_COUNT; i++) {
        bool breaks = sim_fault_breaks((enum sim_fault)i);
        if (outcome->options->faults & SIM_FAULT_BIT(i))
            chart_line(out, sim_fault_name((enum sim_fault)i), breaks ? " (breaks the contract)" : "",
                       outcome->faults[i], largest, breaks ? 5 : 0);
    }
}

static void write_charts(struct buf *out, const struct chaos_outcome *outcome)
{
    buf_add_text(out, "<h2>How operations ended</h2>\n");
    write_bars(out, outcome, end_parts);
    buf_add_text(out, "<h2>What ended an unknown outcome</h2>\n");
    if (outcome->total->unknown > 0)
        write_bars(out, outcome, doubt_parts);
    else
        buf_add_text(out, "<p>No outcome was unknown.</p>\n");
    buf_add_text(out, "<h2>Time until an unknown outcome was known</h2>\n");
    chart_times(out, "Reconciliation times", &outcome->total->reconcile_ms);
    buf_add_text(out, "<h2>Added latency</h2>\n");
    chart_times(out, "Added latency", &outcome->total->added_ms);
    write_fault_bars(out, outcome);
}

static void write_tool(struct buf *out, const struct tool *tool, const struct chaos_kpi *kpi)
{
    struct buf contract;
    buf_init(&contract, 0);
    chaos_contract(&contract, tool);
    element(out, "<section>\n<h3>", str_of(tool->name), "</h3>\n");
    element(out, "<p class=\"detail\">", buf_str(&contract), "</p>\n<table>\n");
    for (size_t i = 0; i < chaos_figure_count; i++) {
        buf_printf(out, "<tr><th>%s</th><td>", chaos_figures[i].title);
        chaos_figures[i].value(out, kpi);
        buf_add_text(out, "</td><td class=\"detail\">");
        chaos_figures[i].detail(out, kpi);
        buf_add_text(out, "</td></tr>\n");
    }
    buf_add_text(out, "</table>\n</section>\n");
    buf_release(&contract);
}

static void write_tools(struct buf *out, const struct chaos_outcome *outcome)
{
    buf_add_text(out, "<h2>By tool</h2>\n");
    for (size_t i = 0; i < outcome->tool_count; i++)
        write_tool(out, outcome->tools[i], &outcome->kpis[i]);
}

static void write_trace(struct buf *out, const struct chaos_outcome *outcome)
{
    if (outcome->trace)
        element(out, "<h2>How it came about, made small</h2>\n<pre>", str_of(outcome->trace), "</pre>\n");
}

static void write_skipped(struct buf *out, const struct chaos_outcome *outcome)
{
    if (outcome->skipped_count == 0)
        return;
    buf_add_text(out, "<h2>Not exercised</h2>\n<dl>\n");
    for (size_t i = 0; i < outcome->skipped_count; i++) {
        element(out, "<dt>", str_of(outcome->skipped[i].name), "</dt>");
        element(out, "<dd>", str_of(outcome->skipped[i].why), "</dd>\n");
    }
    buf_add_text(out, "</dl>\n");
}

static void write_words(struct buf *out, const struct chaos_outcome *outcome)
{
    buf_add_text(out, "<h2>What the figures mean</h2>\n<dl>\n");
    for (size_t i = 0; i < chaos_figure_count; i++)
        buf_printf(out, "<dt>%s</dt><dd>%s</dd>\n", chaos_figures[i].title, chaos_figures[i].meaning);
    buf_add_text(out, "</dl>\n<p class=\"model\">");
    buf_add_text(out, chaos_model);
    element(out, "</p>\n<h2>Once more</h2>\n<pre>", str_of(outcome->options->command), "</pre>\n</body>\n</html>\n");
}

void chaos_write_html(struct buf *out, const struct chaos_outcome *outcome)
{
    write_head(out, outcome);
    write_tiles(out, outcome->total);
    write_charts(out, outcome);
    write_tools(out, outcome);
    write_trace(out, outcome);
    write_skipped(out, outcome);
    write_words(out, outcome);
}
