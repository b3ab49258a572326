#include "cli/view.h"

#include "base/env.h"
#include "cli/cli.h"
#include "cli/view_steps.h"
#include "core/state.h"

#include <stdlib.h>

/* ---- what a state means ---- */

enum out_style view_state_style(struct str status)
{
    enum state state;
    if (!state_from_name(status, &state))
        return OUT_PLAIN;
    switch (state) {
    case STATE_COMPLETED_SUCCESS:
    case STATE_COMPLETED_NOOP:
    case STATE_COMPENSATED: return OUT_GREEN;
    case STATE_FAILED_PERMANENT:
    case STATE_REJECTED: return OUT_RED;
    case STATE_UNKNOWN_OUTCOME:
    case STATE_FAILED_RETRYABLE:
    case STATE_COMPENSATING: return OUT_YELLOW;
    case STATE_PLANNED:
    case STATE_PENDING_DISPATCH:
    case STATE_DISPATCHED:
    case STATE_ACKNOWLEDGED: return OUT_CYAN;
    }
    return OUT_PLAIN;
}

static int status_exit(struct str status)
{
    enum state state;
    if (!state_from_name(status, &state))
        return CLI_OPEN; /* a state that this program does not know proves nothing */
    switch (state) {
    case STATE_COMPLETED_SUCCESS:
    case STATE_COMPLETED_NOOP: return CLI_OK;
    case STATE_FAILED_PERMANENT:
    case STATE_REJECTED:
    case STATE_COMPENSATED: /* what was asked for is not so any more */ return CLI_FAILED;
    case STATE_PLANNED:
    case STATE_PENDING_DISPATCH:
    case STATE_DISPATCHED:
    case STATE_ACKNOWLEDGED:
    case STATE_FAILED_RETRYABLE:
    case STATE_UNKNOWN_OUTCOME:
    case STATE_COMPENSATING: return CLI_OPEN;
    }
    return CLI_OPEN;
}

int view_operation_exit(const struct json *operation)
{
    return status_exit(json_get_text(operation, "status"));
}

/* The last part of "urn:onced:problem:NAME". */
static struct str problem_name(const struct json *problem)
{
    struct str type = json_get_text(problem, "type");
    const char *colon = type.p ? memrchr(type.p, ':', type.n) : NULL;
    return colon ? (struct str){colon + 1, type.n - (size_t)(colon + 1 - type.p)} : type;
}

int view_problem_exit(const struct client_answer *answer)
{
    switch (answer->status) {
    case 401:
    case 403: return CLI_DENIED;
    case 404: return CLI_NOT_FOUND;
    case 502:
    case 503:
    case 504: return CLI_UNREACHABLE;
    }
    /* known to have been executed, the result is gone: what counts is how it ended */
    struct str status = json_get_text(answer->json, "operation_status");
    if (status.p && str_is(problem_name(answer->json), "result_expired"))
        return status_exit(status);
    return answer->status >= 500 ? CLI_OPEN : CLI_FAILED;
}

const char *view_effect(const struct json *operation)
{
    enum state state;
    if (view_has_steps(operation))
        return view_steps_effect(operation);
    if (!state_from_name(json_get_text(operation, "status"), &state))
        return "not known";
    switch (state) {
    case STATE_COMPLETED_SUCCESS: return "proven: it happened";
    case STATE_COMPLETED_NOOP: return "proven: it was so already";
    case STATE_COMPENSATED: return "it happened and was undone";
    case STATE_COMPENSATING: return "it happened and is being undone";
    case STATE_FAILED_PERMANENT:
    case STATE_FAILED_RETRYABLE: return "proven: it did not happen";
    case STATE_REJECTED:
    case STATE_PLANNED:
    case STATE_PENDING_DISPATCH: return "none: nothing was sent";
    case STATE_DISPATCHED: return "possible: a request is on its way";
    case STATE_ACKNOWLEDGED: return "possible: the provider accepted it and is still working";
    case STATE_UNKNOWN_OUTCOME: return "possible: a request left, and nothing has proved yet what came of it";
    }
    return "not known";
}

/* ---- operations ---- */

struct str view_time(struct arena *arena, const struct json *object, const char *name, int64_t now_ms)
{
    char span[OUT_SPAN_SIZE];
    int64_t ms;
    struct str text = json_get_text(object, name);
    if (!out_parse_time(text, &ms) || text.n < 19)
        return text;
    out_span(ms > now_ms ? ms - now_ms : now_ms - ms, span);
    return str_of(arena_printf(arena, "%.10s %.8s UTC (%s%s%s)", text.p, text.p + 11, ms > now_ms ? "in " : "", span,
                               ms > now_ms ? "" : " ago"));
}

static void view_value(struct out *out, const char *name, const struct json *value)
{
    if (!value || value->type == JSON_NULL)
        return;
    if (value->type == JSON_STRING || value->type == JSON_NUMBER) {
        out_field(out, name, value->text);
    } else {
        out_printf(out, "  ");
        out_text(out, OUT_DIM, name);
        out_printf(out, "\n");
        out_json(out, value, 4);
    }
}

/* The error member: {"message", "code"?, "provider"?}. */
static void view_failure(struct out *out, const struct json *operation)
{
    const struct json *error = json_get(operation, "error");
    if (!error || error->type != JSON_OBJECT)
        return;
    struct str message = json_get_text(error, "message"), code = json_get_text(error, "code");
    out_printf(out, "  ");
    out_text(out, OUT_DIM, "error         ");
    out_str(out, OUT_RED, message.p ? message : STR("(no message)"));
    if (code.n > 0) {
        out_printf(out, " (");
        out_str(out, OUT_PLAIN, code);
        out_printf(out, ")");
    }
    out_printf(out, "\n");
}

/* What people were asked for, and what each of them said. */
static void view_approval(struct out *out, const struct json *approval, struct arena *arena)
{
    if (!approval)
        return;
    int64_t now_ms = env_system()->now_ms(env_system());
    const struct json *decisions = json_get(approval, "decisions");
    out_field(out, "approval",
              str_of(arena_printf(arena, "%lld of %lld%s", (long long)json_get_int(approval, "given", 0),
                                  (long long)json_get_int(approval, "needed", 0),
                                  json_get_bool(approval, "open", false) ? ", open" : "")));
    if (json_get_bool(approval, "open", false))
        out_field(out, "until", view_time(arena, approval, "expires_at", now_ms));
    for (uint32_t i = 0; decisions && decisions->type == JSON_ARRAY && i < decisions->count; i++) {
        const struct json *decision = &decisions->items[i];
        struct str note = json_get_text(decision, "note"), at = view_time(arena, decision, "at", now_ms);
        struct str by = json_get_text(decision, "by"), said = json_get_text(decision, "decision");
        out_field(out, "",
                  str_of(arena_printf(arena, "%.*s by %.*s, %.*s%s%.*s", STR_ARG(said), STR_ARG(by), STR_ARG(at),
                                      note.n > 0 ? ": " : "", STR_ARG(note))));
    }
}

static void view_heading(struct out *out, const struct json *operation, bool replayed)
{
    struct str status = json_get_text(operation, "status"), reason = json_get_text(operation, "reason");
    struct str id = json_get_text(operation, "operation_id");
    out_str(out, view_state_style(status), status.p ? status : STR("(no status)"));
    if (reason.n > 0) {
        out_printf(out, " (");
        out_str(out, OUT_PLAIN, reason);
        out_printf(out, ")");
    }
    out_printf(out, "  ");
    out_str(out, OUT_BOLD, json_get_text(operation, "tool"));
    out_printf(out, "  ");
    out_str(out, OUT_PLAIN, id.p ? id : STR("read, not recorded"));
    if (replayed || json_get_bool(operation, "replayed", false))
        out_text(out, OUT_YELLOW, "  replayed");
    out_printf(out, "\n");
}

void view_operation(struct out *out, const struct json *operation, bool replayed)
{
    struct arena arena;
    arena_init(&arena);
    int64_t now_ms = env_system()->now_ms(env_system());
    view_heading(out, operation, replayed);
    out_field(out, "message", json_get_text(operation, "safe_user_message"));
    view_failure(out, operation);
    out_field(out, "external id", json_get_text(operation, "external_id"));
    view_value(out, "key", json_get(operation, "key"));
    out_field(out, "run", json_get_text(operation, "run_id"));
    out_field(out, "step", json_get_text(operation, "step_id"));
    out_field(out, "repeat of", json_get_text(operation, "repeat_of"));
    out_field(out, "step of", json_get_text(operation, "parent_operation_id"));
    out_field(out, "undoes", json_get_text(operation, "compensates"));
    out_field(out, "playbook", json_get_text(operation, "playbook"));
    out_field(out, "undone by", json_get_text(operation, "compensation"));
    out_field(out, "created", view_time(&arena, operation, "created_at", now_ms));
    out_field(out, "not before", view_time(&arena, operation, "not_before", now_ms));
    out_field(out, "ended", view_time(&arena, operation, "completed_at", now_ms));
    if (!view_has_steps(operation)) /* whose parent sends nothing */
        view_value(out, "requests", json_get(operation, "attempts"));
    view_steps(out, operation);
    if (json_get_int(operation, "lookups", 0) > 0)
        view_value(out, "look-ups", json_get(operation, "lookups"));
    view_value(out, "arguments", json_get(operation, "arguments"));
    view_value(out, "result", json_get(operation, "result"));
    if (json_get_bool(operation, "result_dropped", false))
        out_field(out, "result", STR("too large to keep: it was delivered once"));
    view_approval(out, json_get(operation, "approval"), &arena);
    out_field(out, "note", json_get_text(operation, "note"));
    view_next(out, operation);
    arena_release(&arena);
}

/* ---- what to do next ---- */

static void next_line(struct out *out, const char *before, struct str id, const char *after)
{
    out_printf(out, "    %s", before);
    out_str(out, OUT_PLAIN, id);
    out_printf(out, "%s\n", after);
}

static void next_unknown(struct out *out, const struct json *operation, struct str id)
{
    if (!str_is(json_get_text(operation, "reason"), "needs_operator")) {
        out_printf(out, "    Nothing by hand yet: onced is finding out. Do not repeat the call.\n");
        next_line(out, "onced show ", id, " --wait 60s");
        return;
    }
    out_printf(out, "    onced could not find out. Look at the provider whether it happened; our mark there is\n");
    next_line(out, "", id, " (or the provider key), then say what you found:");
    next_line(out, "onced resolve ", id, " --happened --external-id ID --note 'where you saw it'");
    next_line(out, "onced resolve ", id, " --did-not-happen --note 'how you know'   (add --retry to do it now)");
}

static void next_failed(struct out *out, const struct json *operation, struct str id)
{
    if (str_is(json_get_text(operation, "next_action"), "fix_arguments"))
        out_printf(out, "    It did not happen. Correct the arguments and call again.\n");
    else
        out_printf(out, "    It did not happen. A new call with other arguments is let through.\n");
    next_line(out, "onced retry ", id, " --note 'why'   tries it again as it is");
}

void view_next(struct out *out, const struct json *operation)
{
    enum state state;
    struct str id = json_get_text(operation, "operation_id");
    if (!id.p || !state_from_name(json_get_text(operation, "status"), &state))
        return;
    if (state == STATE_COMPLETED_SUCCESS || state == STATE_COMPLETED_NOOP || state == STATE_COMPENSATED)
        return; /* use the result */
    if (view_has_steps(operation)) {
        view_steps_next(out, operation);
        return;
    }
    out_printf(out, "  ");
    out_text(out, OUT_DIM, "next");
    out_printf(out, "\n");
    switch (state) {
    case STATE_UNKNOWN_OUTCOME: next_unknown(out, operation, id); break;
    case STATE_FAILED_PERMANENT:
    case STATE_REJECTED: next_failed(out, operation, id); break;
    case STATE_PLANNED:
    case STATE_PENDING_DISPATCH:
    case STATE_FAILED_RETRYABLE:
        if (str_is(json_get_text(operation, "reason"), "awaiting_approval")) {
            next_line(out, "onced approve ", id, "");
            next_line(out, "onced deny ", id, " --note 'why'");
        }
        next_line(out, "onced show ", id, " --wait 60s   waits for its end");
        next_line(out, "onced cancel ", id, " --note 'why'   stops it while nothing has left");
        break;
    case STATE_DISPATCHED:
    case STATE_ACKNOWLEDGED:
    case STATE_COMPENSATING: next_line(out, "onced show ", id, " --wait 60s   waits for its end"); break;
    case STATE_COMPLETED_SUCCESS:
    case STATE_COMPLETED_NOOP:
    case STATE_COMPENSATED: break;
    }
}

/* ---- problems ---- */

static void problem_list(struct out *out, const struct json *problem)
{
    const struct json *errors = json_get(problem, "errors"), *differing = json_get(problem, "differing");
    for (uint32_t i = 0; errors && errors->type == JSON_ARRAY && i < errors->count; i++) {
        struct str pointer = json_get_text(&errors->items[i], "pointer");
        out_printf(out, "  ");
        out_str(out, OUT_BOLD, pointer.n > 0 ? pointer : STR("(arguments)"));
        out_printf(out, ": ");
        out_str(out, OUT_PLAIN, json_get_text(&errors->items[i], "message"));
        out_printf(out, "\n");
    }
    for (uint32_t i = 0; differing && differing->type == JSON_ARRAY && i < differing->count; i++) {
        out_printf(out, "  ");
        out_str(out, OUT_BOLD, differing->items[i].type == JSON_STRING ? differing->items[i].text : STR("?"));
        out_printf(out, ": differs from the first call\n");
    }
}

void view_problem(struct out *out, const struct client_answer *answer)
{
    const struct json *problem = answer->json;
    if (!problem || problem->type != JSON_OBJECT) {
        out_printf(out, "onced: the server answered %ld with something that is not JSON; is it a onced daemon?\n",
                   answer->status);
        return;
    }
    struct str title = json_get_text(problem, "title"), detail = json_get_text(problem, "detail");
    struct str id = json_get_text(problem, "operation_id");
    out_printf(out, "onced: ");
    out_str(out, OUT_RED, title.n > 0 ? title : STR("the daemon refused"));
    out_printf(out, " (%ld", answer->status);
    if (problem_name(problem).n > 0) {
        out_printf(out, " ");
        out_str(out, OUT_PLAIN, problem_name(problem));
    }
    out_printf(out, ")\n");
    const struct json *errors = json_get(problem, "errors");
    bool listed = errors && errors->type == JSON_ARRAY && errors->count > 0; /* the detail repeats the first of them */
    if (detail.n > 0 && !listed) {
        out_printf(out, "  ");
        out_str(out, OUT_PLAIN, detail);
        out_printf(out, "\n");
    }
    problem_list(out, problem);
    if (id.n > 0) {
        out_printf(out, "  operation ");
        out_str(out, OUT_BOLD, id);
        out_printf(out, " ");
        out_str(out, view_state_style(json_get_text(problem, "operation_status")),
                json_get_text(problem, "operation_status"));
        out_printf(out, "\n  onced trace ");
        out_str(out, OUT_PLAIN, id);
        out_printf(out, "   shows its life\n");
    }
}

/* ---- asking ---- */

void view_error(const struct err *err)
{
    struct out out;
    out_init(&out, stderr);
    out_printf(&out, "onced: ");
    out_text(&out, OUT_PLAIN, err->text);
    out_printf(&out, "\n");
}

int view_ask(struct client *client, const struct client_request *request, struct arena *arena,
             struct client_answer *answer, const char *lost, bool *asked)
{
    struct err err = {0};
    enum err_code code = client_ask(client, request, arena, answer, &err);
    *asked = code == ERR_NONE;
    if (code == ERR_NONE)
        return CLI_OK;
    view_error(&err);
    if (code == ERR_IO && lost) {
        fprintf(stderr, "  %s\n", lost);
        return CLI_OPEN;
    }
    if (code == ERR_UNAVAILABLE)
        fprintf(stderr,
                "  Is the daemon running? Start it: onced serve FILE. Elsewhere: --server URL or ONCED_SERVER\n");
    return code == ERR_LIMIT ? CLI_FAILED : CLI_UNREACHABLE;
}

void view_raw(const struct client_answer *answer)
{
    fwrite(answer->text.p, 1, answer->text.n, stdout);
    if (answer->text.n == 0 || answer->text.p[answer->text.n - 1] != '\n')
        fputc('\n', stdout);
}

bool view_success(const struct client_answer *answer, bool json, int *code)
{
    struct out out;
    if (answer->status >= 200 && answer->status < 300 && answer->json)
        return true;
    *code = view_problem_exit(answer);
    if (json && answer->json) {
        view_raw(answer);
        return false;
    }
    out_init(&out, stderr);
    view_problem(&out, answer);
    return false;
}

int view_operation_command(const struct cli_args *args, const struct client_request *request, const char *lost,
                           bool by_state)
{
    struct arena arena;
    struct out out;
    struct client *client = NULL;
    struct client_answer answer;
    struct err err = {0};
    bool asked;
    int code = CLI_USAGE;
    arena_init(&arena);
    if (client_new(&args->connection, &client, &err)) {
        view_error(&err);
        goto out;
    }
    code = view_ask(client, request, &arena, &answer, lost, &asked);
    if (!asked || !view_success(&answer, args->json, &code))
        goto out;
    out_init(&out, stdout);
    if (args->json)
        view_raw(&answer);
    else
        view_operation(&out, answer.json, answer.replayed);
    code = by_state ? view_operation_exit(answer.json) : CLI_OK;
out:
    client_free(client);
    arena_release(&arena);
    return code;
}
