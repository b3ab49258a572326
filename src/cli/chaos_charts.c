/* Charts in SVG. Shapes are stretched to the width that there is; words stand in HTML around them, so that they are
 * never stretched and can be read on a telephone. */
#include "cli/chaos_html.h"

/* Blue to red by how much an operator wants to see of it; told apart by people who see fewer colours, too (Okabe and
 * Ito). */
const char chart_style[] = ".c0{fill:#0072b2;background:#0072b2}.c1{fill:#56b4e9;background:#56b4e9}"
                           ".c2{fill:#009e73;background:#009e73}.c3{fill:#8a8f98;background:#8a8f98}"
                           ".c4{fill:#e69f00;background:#e69f00}.c5{fill:#d55e00;background:#d55e00}"
                           ".c6{fill:#cc79a7;background:#cc79a7}.c7{fill:#f0e442;background:#f0e442}";

#define BAR_WIDTH 1000

static void percent(struct buf *out, int64_t part, int64_t whole)
{
    buf_printf(out, "%.1f %%", 100 * chaos_share(part, whole));
}

void chart_bar(struct buf *out, const char *name, const struct chart_part *parts, size_t count)
{
    int64_t whole = 0, before = 0;
    for (size_t i = 0; i < count; i++)
        whole += parts[i].count;
    if (whole == 0)
        return;
    buf_add_text(out, "<div class=\"bar\"><span class=\"name\">");
    html_text(out, str_of(name));
    buf_printf(out, "</span><svg viewBox=\"0 0 %d 18\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"",
               BAR_WIDTH);
    for (size_t i = 0; i < count; i++) {
        buf_printf(out, "%s%s ", i ? ", " : "", parts[i].name);
        percent(out, parts[i].count, whole);
    }
    buf_add_text(out, "\">");
    for (size_t i = 0; i < count; i++) {
        if (parts[i].count == 0)
            continue;
        buf_printf(out, "<rect class=\"c%zu\" x=\"%.2f\" width=\"%.2f\" height=\"18\"><title>%s: ", i,
                   BAR_WIDTH * chaos_share(before, whole), BAR_WIDTH * chaos_share(parts[i].count, whole),
                   parts[i].name);
        chaos_count(out, parts[i].count);
        buf_add_text(out, "</title></rect>");
        before += parts[i].count;
    }
    buf_add_text(out, "</svg><span class=\"number\">");
    chaos_count(out, whole);
    buf_add_text(out, "</span></div>\n");
}

void chart_legend(struct buf *out, const struct chart_part *parts, size_t count)
{
    buf_add_text(out, "<p class=\"legend\">");
    for (size_t i = 0; i < count; i++)
        buf_printf(out, "<span><i class=\"c%zu\"></i>%s (%s)</span> ", i, parts[i].name, parts[i].text);
    buf_add_text(out, "</p>\n");
}

/* Upper ends of the bins, in ms, and what stands below them. */
static const struct {
    int64_t upto_ms;
    const char *label;
} bins[] = {
    {1, "1 ms"},      {2, ""},        {5, ""},           {10, "10 ms"},       {20, ""},           {50, ""},
    {100, "0.1 s"},   {200, ""},      {500, ""},         {1000, "1 s"},       {2000, ""},         {5000, ""},
    {10000, "10 s"},  {30000, ""},    {60000, "1 min"},  {300000, ""},        {600000, "10 min"}, {1800000, ""},
    {3600000, "1 h"}, {21600000, ""}, {86400000, "1 d"}, {INT64_MAX, "more"},
};
#define BINS         (sizeof bins / sizeof *bins)
#define COLUMN       40
#define CHART_HEIGHT 180

static void column(struct buf *out, size_t bin, int64_t count, int64_t largest)
{
    double height = CHART_HEIGHT * chaos_share(count, largest);
    buf_printf(out, "<rect class=\"c0\" x=\"%zu\" y=\"%.2f\" width=\"%d\" height=\"%.2f\"><title>", bin * COLUMN + 3,
               CHART_HEIGHT - height, COLUMN - 6, height);
    if (bins[bin].upto_ms == INT64_MAX) {
        buf_add_text(out, "longer: ");
    } else {
        buf_add_text(out, "up to ");
        html_span(out, bins[bin].upto_ms);
        buf_add_text(out, ": ");
    }
    chaos_count(out, count);
    buf_add_text(out, "</title></rect>");
}

void chart_times(struct buf *out, const char *title, const struct histogram *times)
{
    int64_t counts[BINS], largest = 0;
    size_t first = BINS, last = 0;
    for (size_t i = 0; i < BINS; i++) {
        counts[i] = histogram_between(times, i ? bins[i - 1].upto_ms : -1, bins[i].upto_ms);
        largest = counts[i] > largest ? counts[i] : largest;
        first = counts[i] && i < first ? i : first;
        last = counts[i] ? i : last;
    }
    if (largest == 0) {
        buf_add_text(out, "<p>There were none.</p>\n");
        return;
    }
    first = first ? first - 1 : 0;
    last = last + 1 < BINS ? last + 1 : last;
    int width = (int)(last - first + 1) * COLUMN, left = (int)first * COLUMN;
    buf_printf(out,
               "<svg class=\"times\" viewBox=\"%d -4 %d %d\" role=\"img\" aria-label=\"%s\">"
               "<line x1=\"%d\" x2=\"%d\" y1=\"%d\" y2=\"%d\"/>",
               left, width, CHART_HEIGHT + 30, title, left, left + width, CHART_HEIGHT, CHART_HEIGHT);
    for (size_t i = first; i <= last; i++) {
        if (counts[i])
            column(out, i, counts[i], largest);
        if (bins[i].label[0])
            buf_printf(out, "<text x=\"%zu\" y=\"%d\">%s</text>", (i + 1) * COLUMN, CHART_HEIGHT + 18, bins[i].label);
    }
    buf_add_text(out, "</svg>\n");
}

void chart_line(struct buf *out, const char *name, const char *note, int64_t count, int64_t largest, unsigned colour)
{
    buf_printf(out,
               "<div class=\"bar\"><span class=\"name\">%s%s</span><svg viewBox=\"0 0 %d 18\" "
               "preserveAspectRatio=\"none\" aria-hidden=\"true\"><rect class=\"c%u\" width=\"%.2f\" "
               "height=\"18\"/></svg><span class=\"number\">",
               name, note, BAR_WIDTH, colour, BAR_WIDTH * chaos_share(count, largest));
    chaos_count(out, count);
    buf_add_text(out, "</span></div>\n");
}
