/* What must hold of approvals (design 8), counted from the events of each commit: the record that the product keeps of
 * them is not believed. */
#include "sim/checker.h"

#include "base/mem.h"

#include <stdio.h>

#define ASKED_ANEW "the tool's approval policy"

struct check_said { /* a decision as its commit counted it; others may have asked anew since */
    const struct check_said *older;
    const char *who;
    bool approve;
    int64_t rev;
};

struct check_asked {
    unsigned needed;
    const char *agreed[APPROVERS_MAX + 2];
    unsigned count; /* who agreed since people were last asked */
    const char *denied_by;
    const struct check_said *said; /* the latest one of all, also from before people were last asked */
};

static unsigned needed_by(const struct operation *op)
{
    struct arena arena;
    struct json *record;
    arena_init(&arena);
    int64_t needed = json_parse(&arena, op->approval, &json_limits_default, &record, NULL) == ERR_NONE
                         ? json_get_int(record, "needed", 0)
                         : 0;
    arena_release(&arena);
    return needed > 0 && needed <= APPROVERS_MAX ? (unsigned)needed : APPROVERS_MAX + 1;
}

void check_asked_at_admission(struct checker_model *model, struct check_row *row, const struct operation *op)
{
    const struct tool *tool = row->tool;
    bool needs = tool && (tool->approval.required || (op->repeat_of && tool->repeat == REPEAT_WITH_APPROVAL));
    bool waits = op->state == STATE_PLANNED && op->reason == REASON_AWAITING_APPROVAL && op->approval.p;
    if (needs && !waits)
        sim_violated(model->sim, "8 people are asked before anything runs: %s (intent %u) begins as %s (%s)", row->id,
                     row->intent, state_name(op->state), reason_name(op->reason));
    if (!op->approval.p)
        return;
    row->asked = arena_zero(&model->arena, sizeof *row->asked);
    row->asked->needed = needed_by(op);
    if (tool && needs && row->asked->needed != tool->approval.approvers)
        sim_violated(model->sim, "8 as many as the tool says: %s asks %u people, its tool says %u", row->id,
                     row->asked->needed, tool->approval.approvers);
}

static bool agreed(const struct check_asked *asked, const char *who)
{
    for (unsigned i = 0; i < asked->count; i++)
        if (text_equal(asked->agreed[i], who))
            return true;
    return false;
}

static bool is_complete(const struct check_asked *asked)
{
    return !asked->denied_by && asked->count >= asked->needed;
}

static bool was_said(const struct check_asked *asked, const char *who, bool approve, int64_t rev)
{
    const struct check_said *said = asked->said;
    while (said && said->rev > rev)
        said = said->older;
    return said && said->rev == rev && said->approve == approve && text_equal(said->who, who);
}

static void hear(struct checker_model *model, struct check_row *row, const struct event *event, int64_t rev)
{
    struct check_asked *asked = row->asked;
    bool anew = event->note && strncmp(event->note, ASKED_ANEW, strlen(ASKED_ANEW)) == 0;
    if (!asked || event->from != STATE_PLANNED) {
        sim_violated(model->sim, "8 an approval is for what waits: %s (intent %u) is %s and gets a decision of %s",
                     row->id, row->intent, state_name(event->from), event->actor);
        return;
    }
    if (anew) {
        *asked = (struct check_asked){.needed = asked->needed, .said = asked->said};
        return;
    }
    if (event->to == STATE_REJECTED && event->reason == REASON_EXPIRED)
        return; /* too late to count */
    if (asked->denied_by || is_complete(asked))
        sim_violated(model->sim, "8 the first decision stands: %s decides on %s (intent %u), which was decided",
                     event->actor, row->id, row->intent);
    if (text_equal(event->actor, row->principal))
        sim_violated(model->sim, "8 never the one who calls: %s decides on %s (intent %u)", event->actor, row->id,
                     row->intent);
    if (agreed(asked, event->actor))
        sim_violated(model->sim, "8 distinct people: %s is counted twice for %s (intent %u)", event->actor, row->id,
                     row->intent);
    const char *who = arena_copy_text(&model->arena, event->actor);
    struct check_said *said = arena_zero(&model->arena, sizeof *said);
    *said = (struct check_said){asked->said, who, event->to != STATE_REJECTED, rev};
    asked->said = said;
    if (event->to == STATE_REJECTED)
        asked->denied_by = who;
    else if (asked->count < sizeof asked->agreed / sizeof *asked->agreed)
        asked->agreed[asked->count++] = who;
}

void check_approvals(struct checker_model *model, struct check_row *row, const struct ledger_transition *change)
{
    for (size_t i = 0; i < change->event_count; i++) {
        const struct event *event = &change->events[i];
        bool leaves =
            event->from == STATE_PLANNED &&
            (event->to == STATE_DISPATCHED || event->to == STATE_PENDING_DISPATCH || event->to == STATE_ACKNOWLEDGED);
        if (event->cause == CAUSE_APPROVAL)
            hear(model, row, event, change->op->rev);
        if (row->asked && leaves && !is_complete(row->asked))
            sim_violated(model->sim,
                         "8 nothing leaves without a complete approval: %s (intent %u, tool %s): %u of %u agreed%s",
                         row->id, row->intent, row->tool_name, row->asked->count, row->asked->needed,
                         row->asked->denied_by ? ", and it was denied" : "");
    }
    if (row->asked && change->op->approval.p) /* asked anew, perhaps of more people */
        row->asked->needed = needed_by(change->op);
    if (row->asked && !change->op->approval.p)
        sim_violated(model->sim, "8 what people said is kept: %s (intent %u) has lost it", row->id, row->intent);
}

bool check_was_asked(const struct check_row *row)
{
    return row->asked != NULL;
}

/* What a person is told of their own decision is so: the version that they are shown counted it. Until they are told,
 * others may have asked anew, and heard somebody else. */
void checker_decided(struct sim *sim, const char *operation, const char *who, bool approve,
                     const struct engine_reply *reply)
{
    const struct check_row *row = check_find(sim->checker, operation);
    if (reply->kind != REPLY_OPERATION || reply->replayed || !row || !row->asked)
        return;
    if (!was_said(row->asked, who, approve, reply->op->rev))
        sim_violated(sim, "8 told that it counts: %s %s %s (intent %u), and it does not", who,
                     approve ? "approves" : "denies", row->id, row->intent);
}
