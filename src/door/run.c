#include "door/run.h"

void run_count(struct run_summary *run, const struct operation *op)
{
    run->total++;
    run->doubled += op->duplicate_seen;
    switch (op->state) {
    case STATE_COMPLETED_SUCCESS:
    case STATE_COMPLETED_NOOP: run->succeeded++; return;
    case STATE_FAILED_PERMANENT:
    case STATE_REJECTED:
    case STATE_COMPENSATED: run->failed++; return;
    case STATE_UNKNOWN_OUTCOME: run->unknown++; return;
    case STATE_PLANNED:
    case STATE_PENDING_DISPATCH:
    case STATE_DISPATCHED:
    case STATE_ACKNOWLEDGED:
    case STATE_FAILED_RETRYABLE:
    case STATE_COMPENSATING: run->open++; return;
    }
}

bool run_complete(const struct run_summary *run)
{
    return !run->cut && run->open == 0 && run->unknown == 0;
}

const char *run_message(const struct run_summary *run)
{
    if (run->total == 0)
        return "Nothing is recorded for this run.";
    if (run->cut)
        return "This run is too large to be summed up.";
    if (run->unknown > 0)
        return "For a part of this it is not known whether it was done.";
    if (run->open > 0)
        return "A part of this has not ended yet.";
    if (run->doubled > 0)
        return "A part of this was done possibly more than once; a person has to check.";
    if (run->failed == 0)
        return "All of this was done.";
    return run->succeeded == 0 ? "Nothing of this was done." : "A part of this was done, a part was not.";
}

void run_write(const struct run_summary *run, struct json_out *out)
{
    json_out_name(out, "summary");
    json_out_object(out);
    json_out_member_int(out, "total", run->total);
    json_out_member_int(out, "succeeded", run->succeeded);
    json_out_member_int(out, "failed", run->failed);
    json_out_member_int(out, "open", run->open);
    json_out_member_int(out, "unknown", run->unknown);
    json_out_end_object(out);
    json_out_member_bool(out, "complete", run_complete(run));
    json_out_member_text(out, "safe_user_message", run_message(run));
}
