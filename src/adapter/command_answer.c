/* What the end of a process means, by the tool's exit-code contract (design 5.3, 6, 13). Once a command was started,
 * nothing in here ends as an ordinary error: what is not in the contract is an outcome that is not known.
 *
 *   not started ───────────────────────────────► not_sent
 *   killed: time-out, onced stops, a signal ───► timeout | connection_lost
 *   exit code, the list that has it ───────────► noop | refused | not_processed | provider_error (in none)
 *      │ success, accepted
 *      └► output readable? error_when, success_when, external id, result, verify ──► success | accepted | …
 */
#include "adapter/command_parts.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>

struct judging {
    const struct command_judge *judge;
    const struct command_tool *tool;
    const struct command_end *end;
    struct arena *arena;
    struct adapter_answer *answer;
    const struct json *output; /* NULL: none, or not readable */
    const char *unreadable;    /* why */
};

/* ---- reading ---- */

static bool looks_at_output(const struct command_run *run)
{
    return run->output != COMMAND_OUTPUT_NONE;
}

/* {"text": …, "cut": true?} */
static const struct json *wrap_text(struct judging *j)
{
    struct buf text;
    buf_init(&text, 0);
    http_add_lossy(&text, j->end->output);
    struct json *object = json_object(j->arena);
    json_set(j->arena, object, STR("text"), json_string(arena_str(j->arena, buf_str(&text))));
    if (j->end->output_cut)
        json_set(j->arena, object, STR("cut"), json_bool(true));
    buf_release(&text);
    return object;
}

static void read_output(struct judging *j, const struct command_run *run)
{
    struct json_limits limits = json_limits_default;
    struct json *value = NULL;
    struct err err = {0};
    if (run->output == COMMAND_OUTPUT_TEXT)
        j->output = wrap_text(j);
    if (run->output != COMMAND_OUTPUT_JSON)
        return;
    limits.bytes_max = run->output_bytes_max;
    if (j->end->output_cut)
        j->unreadable = arena_printf(j->arena, "the output has more than %zu bytes", run->output_bytes_max);
    else if (json_parse(j->arena, j->end->output, &limits, &value, &err) != ERR_NONE)
        j->unreadable = arena_printf(j->arena, "the output is not JSON: %s", err.text);
    j->output = value;
}

/* ---- what is handed on ---- */

static const char *end_text(struct judging *j)
{
    const struct command_end *end = j->end;
    if (end->timed_out)
        return "the command did not end within its time and was killed";
    if (end->stopped)
        return "onced stopped and ended the command";
    if (WIFSIGNALED(end->status))
        return arena_printf(j->arena, "the command was ended by signal %d (%s)", WTERMSIG(end->status),
                            strsignal(WTERMSIG(end->status)));
    return arena_printf(j->arena, "the command exited with status %d", WEXITSTATUS(end->status));
}

/* {"message", "code"?, "provider"?: {"exit_code"?, "signal"?, "stderr"?, "output"?}} */
static void set_error(struct judging *j, const char *message)
{
    const struct command_end *end = j->end;
    struct buf text;
    struct json_out out;
    buf_init(&text, 0);
    json_out_init(&out, &text);
    json_out_object(&out);
    json_out_member_text(&out, "message", message);
    if (end->started) {
        bool exited = WIFEXITED(end->status);
        if (exited)
            json_out_member_text(&out, "code", arena_printf(j->arena, "exit_%d", WEXITSTATUS(end->status)));
        json_out_name(&out, "provider");
        json_out_object(&out);
        json_out_member_int(&out, exited ? "exit_code" : "signal",
                            exited ? WEXITSTATUS(end->status) : WTERMSIG(end->status));
        if (end->written.n > 0) {
            json_out_name(&out, "stderr");
            json_out_str(&out, end->written);
        }
        if (j->output && end->output.n <= HTTP_ERROR_BYTES_MAX) {
            json_out_name(&out, "output");
            json_out_value(&out, j->output);
        }
        json_out_end_object(&out);
    }
    json_out_end_object(&out);
    j->answer->error = arena_str(j->arena, buf_str(&text));
    j->answer->detail = message;
    buf_release(&text);
}

static void unreadable(struct judging *j, const char *detail)
{
    j->answer->outcome = OUTCOME_UNREADABLE;
    j->answer->result = STR_NONE;
    set_error(j, detail);
}

static bool fits(struct judging *j, struct jq_program *program, struct err *err)
{
    bool truth = false;
    return program && !err->code && jq_program_test(program, j->output, &truth, err) == ERR_NONE && truth;
}

/* ---- calls ---- */

static bool conditions_hold(struct judging *j)
{
    const struct command_tool *tool = j->tool;
    struct err err = {0};
    if (fits(j, tool->error_when, &err)) {
        j->answer->outcome = OUTCOME_PROVIDER_ERROR;
        set_error(j, "the output is an error in spite of its exit code (error_when)");
        return false;
    }
    bool good = !tool->success_when || j->answer->outcome != OUTCOME_SUCCESS || fits(j, tool->success_when, &err);
    if (err.code)
        unreadable(j, arena_printf(j->arena, "error_when, success_when: %s", err.text));
    else if (!good)
        unreadable(j, "the output is not what success_when promises");
    return !err.code && good;
}

static bool take_values(struct judging *j)
{
    const struct command_tool *tool = j->tool;
    const struct json *id = NULL, *result = NULL;
    struct err err = {0};
    bool strict = j->answer->outcome == OUTCOME_SUCCESS;
    bool wants_id = tool->external_id.pointer || tool->external_id.jq;
    enum err_code code = http_extract_run(&tool->external_id, j->output, j->arena, &id, &err);
    j->answer->external_id = http_id_text(j->arena, id);
    if (strict && wants_id && !j->answer->external_id) {
        unreadable(j, arena_printf(j->arena, "external_id: %s", code ? err.text : "is no text or number"));
        return false;
    }
    err_clear(&err);
    code = http_extract_run(&tool->result, j->output, j->arena, &result, &err);
    if (!code && result)
        j->answer->result = json_to_text(j->arena, result);
    else if (strict && code)
        unreadable(j, arena_printf(j->arena, "result: %s", err.text));
    return !strict || !code;
}

static void verify(struct judging *j)
{
    const struct command_judge *judge = j->judge;
    const struct json *got = NULL;
    for (size_t i = 0; i < judge->expected_count; i++) {
        const struct http_expected *item = &judge->expected[i];
        if (!http_mismatch(item, 1, j->output, &got))
            continue;
        /* "accepted" is provisional: what it does not show yet is no contradiction */
        if (!got && j->answer->outcome == OUTCOME_ACCEPTED)
            continue;
        j->answer->outcome = OUTCOME_WRONG_OBJECT;
        j->answer->result = STR_NONE;
        set_error(j, http_mismatch_text(j->arena, item, got));
        return;
    }
}

static void judge_success(struct judging *j)
{
    if (!looks_at_output(&j->tool->run))
        return;
    if (!j->output) {
        unreadable(j, j->unreadable);
        return;
    }
    if (conditions_hold(j) && take_values(j))
        verify(j);
}

/* What the output holds besides is a bonus. */
static void judge_noop(struct judging *j)
{
    const struct json *value = NULL;
    struct err ignored = {0};
    if (!j->output)
        return;
    if (http_extract_run(&j->tool->external_id, j->output, j->arena, &value, &ignored) == ERR_NONE)
        j->answer->external_id = http_id_text(j->arena, value);
    if (http_extract_run(&j->tool->result, j->output, j->arena, &value, &ignored) == ERR_NONE && value)
        j->answer->result = json_to_text(j->arena, value);
}

static enum outcome classify(const struct command_tool *tool, int code)
{
    if (command_exits_has(&tool->noop, code))
        return OUTCOME_NOOP;
    if (command_exits_has(&tool->refused, code))
        return OUTCOME_REFUSED;
    if (command_exits_has(&tool->not_processed, code))
        return OUTCOME_NOT_PROCESSED;
    if (command_exits_has(&tool->accepted, code))
        return OUTCOME_ACCEPTED;
    if (command_exits_has(&tool->success, code))
        return OUTCOME_SUCCESS;
    return OUTCOME_PROVIDER_ERROR;
}

static void judge_call(struct judging *j)
{
    read_output(j, &j->tool->run);
    j->answer->outcome = classify(j->tool, WEXITSTATUS(j->end->status));
    switch ((int)j->answer->outcome) {
    case OUTCOME_NOOP: judge_noop(j); break;
    case OUTCOME_SUCCESS:
    case OUTCOME_ACCEPTED: judge_success(j); break;
    default: set_error(j, end_text(j)); break;
    }
}

/* ---- look-ups (design 7): whatever does not look exactly as configured is "cannot tell" ---- */

static void cannot_tell(struct judging *j, const char *detail)
{
    j->answer->outcome = OUTCOME_CANNOT_TELL;
    j->answer->detail = detail;
    j->answer->external_id = NULL;
    j->answer->result = STR_NONE;
}

/* What exit code and conditions say together. Several of them: cannot tell. */
static enum outcome lookup_word(struct judging *j, struct err *err)
{
    const struct command_lookup *lookup = j->tool->lookup;
    int code = WEXITSTATUS(j->end->status);
    if (command_exits_has(&lookup->absent, code))
        return OUTCOME_ABSENT;
    if (command_exits_has(&lookup->pending, code))
        return OUTCOME_PENDING;
    if (command_exits_has(&lookup->failed, code))
        return OUTCOME_FAILED_THERE;
    if (!command_exits_has(&lookup->found, code))
        return OUTCOME_CANNOT_TELL;
    bool any = lookup->found_when || lookup->absent_when || lookup->pending_when || lookup->failed_when;
    if (!any)
        return OUTCOME_FOUND;
    if (!j->output)
        return OUTCOME_CANNOT_TELL;
    bool found = fits(j, lookup->found_when, err), absent = fits(j, lookup->absent_when, err);
    bool pending = fits(j, lookup->pending_when, err), failed = fits(j, lookup->failed_when, err);
    if (err->code || found + absent + pending + failed > 1)
        return OUTCOME_CANNOT_TELL;
    if (absent || pending || failed)
        return absent ? OUTCOME_ABSENT : pending ? OUTCOME_PENDING : OUTCOME_FAILED_THERE;
    /* without a word for "found", what is none of the others is it */
    return found || !lookup->found_when ? OUTCOME_FOUND : OUTCOME_CANNOT_TELL;
}

static void take_match(struct judging *j)
{
    const struct command_lookup *lookup = j->tool->lookup;
    const struct json *id = NULL, *result = NULL, *got = NULL;
    struct err err = {0};
    bool stated = lookup->external_id.pointer || lookup->external_id.jq;
    if (j->answer->outcome == OUTCOME_ABSENT || !looks_at_output(&lookup->run))
        return;
    if (!j->output) { /* what carries no readable output proves nothing */
        cannot_tell(j, j->unreadable);
        return;
    }
    const struct http_expected *mismatch = http_mismatch(j->judge->expected, j->judge->expected_count, j->output, &got);
    if (mismatch && j->answer->outcome == OUTCOME_FOUND) {
        j->answer->outcome = OUTCOME_WRONG_OBJECT;
        j->answer->detail = http_mismatch_text(j->arena, mismatch, got);
    }
    http_extract_run(stated ? &lookup->external_id : &j->tool->external_id, j->output, j->arena, &id, &err);
    j->answer->external_id = http_id_text(j->arena, id);
    if (stated && !j->answer->external_id) {
        cannot_tell(j, arena_printf(j->arena, "external_id of the match: %s", err.code ? err.text : "no id"));
        return;
    }
    err_clear(&err);
    if (http_extract_run(&lookup->result, j->output, j->arena, &result, &err) != ERR_NONE)
        cannot_tell(j, arena_printf(j->arena, "result of the match: %s", err.text));
    else if (result)
        j->answer->result = json_to_text(j->arena, result);
}

static void judge_lookup(struct judging *j)
{
    struct err err = {0};
    if (!j->end->started || j->end->timed_out || j->end->stopped || !WIFEXITED(j->end->status)) {
        cannot_tell(j, j->end->started ? end_text(j) : j->end->detail);
        return;
    }
    read_output(j, &j->tool->lookup->run);
    enum outcome word = lookup_word(j, &err);
    if (word == OUTCOME_CANNOT_TELL) {
        cannot_tell(j, err.code ? arena_copy_text(j->arena, err.text) : j->unreadable ? j->unreadable : end_text(j));
        return;
    }
    j->answer->outcome = word;
    take_match(j);
}

void command_answer(const struct command_judge *judge, const struct command_end *end, struct adapter_answer *answer)
{
    struct judging j = {
        .judge = judge, .tool = judge->tool, .end = end, .arena = judge->arena, .answer = answer, .output = NULL};
    *answer = (struct adapter_answer){.outcome = OUTCOME_OPEN};
    if (judge->kind == ATTEMPT_LOOKUP) {
        judge_lookup(&j);
    } else if (!end->started) {
        answer->outcome = OUTCOME_NOT_SENT;
        set_error(&j, end->detail ? end->detail : "not started");
    } else if (end->timed_out || end->stopped || !WIFEXITED(end->status)) {
        answer->outcome = end->timed_out ? OUTCOME_TIMEOUT : OUTCOME_CONNECTION_LOST;
        set_error(&j, end_text(&j));
    } else {
        judge_call(&j);
    }
}
