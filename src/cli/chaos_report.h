/* How the outcome of `onced chaos` is told: for people at a terminal, for programs, for people in a browser. Nothing of
 * the machine, the time of day or the program's surroundings goes in: the same outcome gives the same bytes. */
#ifndef CLI_CHAOS_REPORT_H
#define CLI_CHAOS_REPORT_H

#include "cli/chaos_run.h"
#include "cli/out.h"

void chaos_write_text(struct out *out, const struct chaos_outcome *outcome);
void chaos_write_json(struct buf *out, const struct chaos_outcome *outcome); /* docs/chaos.md has its members */
void chaos_write_html(struct buf *out, const struct chaos_outcome *outcome); /* one file, refers to nothing outside */

/* ---- what the three share (chaos_figures.c) ---- */

/* One figure as the list of a report shows it. Both texts are appended to the buffer. */
struct chaos_figure {
    const char *title, *meaning; /* half a line; one sentence */
    void (*value)(struct buf *out, const struct chaos_kpi *kpi);
    void (*detail)(struct buf *out, const struct chaos_kpi *kpi);
};
extern const struct chaos_figure chaos_figures[];
extern const size_t chaos_figure_count;

/* "external_idempotent; key honoured for 24 h; look-up" */
void chaos_contract(struct buf *out, const struct tool *tool);
/* "crash, pause, …" */
void chaos_fault_names(struct buf *out, uint64_t faults);
/* What the report is of: "seed 1 · 2 gateways · 10 % faults", in parts parted by `between`. */
void chaos_setting(struct buf *out, const struct chaos_outcome *outcome, const char *between);
/* One sentence: holds, or what is broken. */
void chaos_verdict(struct buf *out, const struct chaos_outcome *outcome);
/* How time and latency are simulated: three sentences. */
extern const char chaos_model[];

/* 12345 → "12,345" */
void chaos_count(struct buf *out, int64_t n);
double chaos_share(int64_t part, int64_t whole);          /* 0 when there is no whole */
double chaos_contention(const struct chaos_kpi *kpi);     /* share */
double chaos_extra_requests(const struct chaos_kpi *kpi); /* per operation */

#endif
