/* What `onced eval` tells, for people and as JSON. */
#ifndef CLI_EVAL_PRINT_H
#define CLI_EVAL_PRINT_H

#include "cli/eval_judge.h"
#include "cli/out.h"

struct eval_counts {
    size_t groups, hold, collisions, splits, others;
};

/* What one file came to. */
struct eval_outcome {
    const char *path;
    const struct registry *registry;     /* NULL: not evaluated, see reports */
    const char *registry_path;           /* NULL: not known */
    const struct eval_verdict *verdicts; /* one per group */
    struct eval_counts counts;
    const struct config_report *reports[3]; /* of the scenario file, the registry, and both together; NULL: none */
};

void eval_count(struct eval_counts *counts, const struct eval_verdict *verdict);
void eval_counts_add(struct eval_counts *sum, const struct eval_counts *counts);

/* Groups that do not hold, or all, and a closing line. */
void eval_print_text(struct out *out, const struct eval_outcome *outcome, bool all);
void eval_print_sum(struct out *out, const struct eval_counts *sum, size_t files);
/* {"ok", "groups", "hold", "collisions", "splits", "others", "files": […]}, one line (docs/eval.md). */
void eval_print_json(FILE *file, const struct eval_outcome *outcomes, size_t count, bool ok, bool all);

#endif
