/* Runs the groups of a scenario file and says which of them hold: collisions (one operation where several were meant),
 * splits (several where one, or none, was meant), and whatever else came otherwise. */
#ifndef CLI_EVAL_JUDGE_H
#define CLI_EVAL_JUDGE_H

#include "cli/eval_world.h"

enum finding_kind { FINDING_COLLISION, FINDING_SPLIT, FINDING_OTHER };
const char *finding_kind_name(enum finding_kind kind); /* "collision", "split", "other" */

/* Two calls of a group (or one: earlier == later) that came otherwise than the group expects. */
struct eval_finding {
    enum finding_kind kind;
    size_t earlier, later; /* indexes of calls */
    const char *why;
};

struct eval_verdict {
    const struct eval_group *group;
    struct eval_result *results; /* one per call */
    struct eval_finding *findings;
    size_t finding_count; /* 0: the group holds */
};

/* Plays the group in an empty world. Everything in *out lives in arena. */
void eval_judge(struct eval_world *world, const struct eval_group *group, struct arena *arena,
                struct eval_verdict *out);

#endif
