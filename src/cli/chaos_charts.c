/* Charts in SVG. Shapes are stretched to the width that there is; words stand in HTML around them, so that they are
 * never stretched and can be read on a telephone. */
#include "cli/chaos_html.h"

/* Told apart also by people who see fewer colours (Okabe and Ito); good on light and on dark. Shapes have them as
 * attributes: not all that show HTML apply style sheets within SVG. */
static const char *const colours[] = {"#0072b2", "#56b4e9", "#009e73", "#8a8f98",
                                      "#e69f00", "#d55e00", "#cc79a7", "#f0e442"};
#define GREY "#80868e"

const char *chart_colour(size_t n)
{
    return colours[n % (sizeof colours / sizeof *colours)];
}

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
        buf_printf(
            out, "<rect fill=\"%s\" x=\"%.2f\" width=\"%.2f\" height=\"18\"><title>%s: ", chart_colour(parts[i].colour),
            BAR_WIDTH * chaos_share(before, whole), BAR_WIDTH * chaos_share(parts[i].count, whole), parts[i].name);
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
        buf_printf(out, "<span><i style=\"background:%s\"></i>%s (%s)</span> ", chart_colour(parts[i].colour),
                   parts[i].name, parts[i].text);
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
    buf_printf(out, "<rect fill=\"%s\" x=\"%zu\" y=\"%.2f\" width=\"%d\" height=\"%.2f\"><title>", chart_colour(0),
               bin * COLUMN + 3, CHART_HEIGHT - height, COLUMN - 6, height);
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
               "<line stroke=\"" GREY "\" x1=\"%d\" x2=\"%d\" y1=\"%d\" y2=\"%d\"/>",
               left, width + COLUMN, CHART_HEIGHT + 30, title, left, left + width, CHART_HEIGHT, CHART_HEIGHT);
    for (size_t i = first; i <= last; i++) {
        if (counts[i])
            column(out, i, counts[i], largest);
        if (bins[i].label[0])
            buf_printf(out,
                       "<text fill=\"" GREY "\" font-size=\"13\" text-anchor=\"middle\" x=\"%zu\" y=\"%d\">%s</text>",
                       (i + 1) * COLUMN, CHART_HEIGHT + 18, bins[i].label);
    }
    buf_add_text(out, "</svg>\n");
}

/* The binary logarithm, straight between powers of two: good enough for the length of a bar. */
static double logarithm(int64_t n)
{
    if (n < 1)
        return 0;
    int power = 63 - __builtin_clzll((unsigned long long)n);
    return power + (double)n / (double)(INT64_C(1) << power) - 1;
}

void chart_line(struct buf *out, const char *name, const char *note, int64_t count, int64_t largest, size_t colour)
{
    double width = largest > 0 ? BAR_WIDTH * logarithm(count + 1) / logarithm(largest + 1) : 0;
    buf_printf(out,
               "<div class=\"bar\"><span class=\"name\">%s%s</span><svg viewBox=\"0 0 %d 18\" "
               "preserveAspectRatio=\"none\" aria-hidden=\"true\"><rect fill=\"%s\" width=\"%.2f\" "
               "height=\"18\"/></svg><span class=\"number\">",
               name, note, BAR_WIDTH, chart_colour(colour), width);
    chaos_count(out, count);
    buf_add_text(out, "</span></div>\n");
}
