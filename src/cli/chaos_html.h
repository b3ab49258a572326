/* What the pages of the HTML report are made of. Not for others than chaos_html.c and chaos_charts.c. */
#ifndef CLI_CHAOS_HTML_H
#define CLI_CHAOS_HTML_H

#include "cli/chaos_report.h"

/* Text as HTML shows it; what is no character there becomes a replacement character. */
void html_text(struct buf *out, struct str text);
void html_span(struct buf *out, int64_t ms);

const char *chart_colour(size_t n); /* "#rrggbb" */

struct chart_part { /* of a bar, with what it stands for */
    const char *name, *text;
    int64_t count;
    size_t colour;
};

/* "name ▇▇▇▇▆▆ 12,345": parts side by side, together the whole width; nothing when all are 0. */
void chart_bar(struct buf *out, const char *name, const struct chart_part *parts, size_t count);
void chart_legend(struct buf *out, const struct chart_part *parts, size_t count);
/* Columns over bins of time that widen: 1 ms … 1 day. */
void chart_times(struct buf *out, const char *title, const struct histogram *times);
/* One line of a list of bars, whose lengths go by the logarithm. */
void chart_line(struct buf *out, const char *name, const char *note, int64_t count, int64_t largest, size_t colour);

#endif
