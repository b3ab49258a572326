/* onced guard: any command, at most once per key.
 *
 *   begin ─┬─ execute ─► run it, heartbeats ─► complete | fail (until it is heard) ─► its exit code
 *          ├─ replay, unknown ─► what was recorded is printed again, its exit code returned
 *          └─ wait, approval_required, denied, refused ─► say so, run nothing */
#include "cli/call_body.h"
#include "cli/cli.h"
#include "cli/command.h"
#include "cli/guard_run.h"
#include "cli/view.h"

#include "base/env.h"
#include "base/ulid.h"
#include "base/units.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define BEAT_MS_MAX      20000 /* between heartbeats; a third of the lease when that is less */
#define REPORT_MS        60000 /* the daemon has so long to hear how it ended */
#define BEGIN_TRIES      40
#define REPORT_PAUSE_MS  250
#define SIGNALLED_STATUS 128 /* what shells return for signals: 128 + its number */

enum { TOOL = 't', KEY = 'k', ARG = 'a', ARGS = 256, WAIT, DISTINCT_FROM, NO_EFFECT, TRY_AGAIN };

static const struct cli_option options[] = {
    {TOOL, "tool", "TOOL", NULL, "a tool of guard mode"},
    {KEY, "key", "KEY", NULL, "idempotency key: the same for every repetition of the same intent"},
    {ARG, "arg", "NAME=VALUE", NULL, "an argument that is recorded; a value that is JSON is taken as JSON"},
    {ARGS, "args", "JSON", NULL, "all of them as one JSON object"},
    {WAIT, "wait", "DURATION", NULL, "wait this long when somebody else is at it (10s, 2m; default: as the tool says)"},
    {DISTINCT_FROM, "distinct-from", "OP", NULL, "this is another intent than that unresolved operation"},
    {NO_EFFECT, "no-effect", "CODES", NULL, "exit codes that prove that nothing happened: 64-78,2"},
    {TRY_AGAIN, "try-again", "CODES", NULL, "the same, and the next call may run it again: 75"},
    {0},
};

const struct cli_command cli_guard_command = {
    .name = "guard",
    .operands = "-- COMMAND...",
    .summary = "run a command at most once per key",
    .text = "The command runs when nobody has run it under this key; else its recorded output is printed and its exit\n"
            "code returned. Exit code 0 is recorded as success. Any other one means that it may have happened, unless\n"
            "--no-effect or --try-again name it: then the same command again runs nothing and a person must look.\n"
            "The command gets ONCED_IDEMPOTENCY_KEY and ONCED_OPERATION.",
    .options = options,
    .shared = CLI_CONNECTS,
    .run = cli_guard,
};

struct exits {
    bool has[256];
};

struct guard {
    struct cli_args args;
    struct arena arena;
    struct call_body body;
    struct exits no_effect, try_again;
    struct client *client;
    const char *lease; /* token */
    char executor[ULID_CHARS + 1];
};

/* ---- the command line ---- */

/* "64-78,2" */
static bool read_codes(const char *text, struct exits *out)
{
    while (*text) {
        char *end;
        long first = strtol(text, &end, 10), last = first;
        if (end == text || first < 1 || first > 255)
            return false;
        if (*end == '-') {
            text = end + 1;
            last = strtol(text, &end, 10);
            if (end == text || last < first || last > 255)
                return false;
        }
        for (long code = first; code <= last; code++)
            out->has[code] = true;
        if (*end && *end != ',')
            return false;
        text = *end ? end + 1 : end;
    }
    return true;
}

/* False when a message was printed. */
static bool take_codes(const char *name, const char *text, struct exits *out)
{
    if (read_codes(text, out))
        return true;
    cli_usage(&cli_guard_command, "--%s %s: expected exit codes from 1 to 255, for example 64-78,2", name, text);
    return false;
}

static bool take(struct guard *guard, int option, const char *value)
{
    struct err err = {0};
    enum err_code code = ERR_NONE;
    switch (option) {
    case TOOL: guard->body.tool = value; break;
    case KEY: guard->body.key = value; break;
    case ARG: code = call_body_arg(&guard->body, value, &err); break;
    case ARGS: code = call_body_args(&guard->body, str_of(value), &err); break;
    case WAIT:
        code = units_duration_ms(str_of(value), &guard->body.wait_ms, &err);
        if (code)
            err_prefix(&err, "--wait: ");
        break;
    case DISTINCT_FROM: code = call_body_distinct(&guard->body, value, &err); break;
    case NO_EFFECT: return take_codes("no-effect", value, &guard->no_effect);
    case TRY_AGAIN: return take_codes("try-again", value, &guard->try_again);
    }
    if (code)
        cli_usage(&cli_guard_command, "%s", err.text);
    return !code;
}

/* 0 = go on, else exit code + 1. */
static int read_line(struct guard *guard)
{
    int option;
    while ((option = cli_args_next(&guard->args)) > 0) {
        if (!take(guard, option, guard->args.value))
            return CLI_USAGE + 1;
    }
    if (option == CLI_ARGS_HELP)
        return CLI_OK + 1;
    if (option == CLI_ARGS_BAD || !cli_args_operands(&guard->args, 1, INT32_MAX))
        return CLI_USAGE + 1;
    if (!guard->body.tool || !guard->body.key)
        return cli_usage(&cli_guard_command, "--tool and --key must be given") + 1;
    return 0;
}

/* ---- asking ---- */

static const char *path_of(struct guard *guard, const char *word)
{
    struct buf path;
    buf_init(&path, 0);
    buf_add_text(&path, "/v1/guard/");
    client_escape(&path, guard->body.tool);
    buf_printf(&path, "/%s", word);
    const char *text = arena_copy_str(&guard->arena, buf_str(&path));
    buf_release(&path);
    return text;
}

static struct str begin_body(struct guard *guard, int64_t wait_ms)
{
    struct buf text;
    struct json_out out;
    buf_init(&text, 0);
    json_out_init(&out, &text);
    json_out_object(&out);
    json_out_member_text(&out, "idempotency_key", guard->body.key);
    json_out_member_text(&out, "executor", guard->executor);
    json_out_name(&out, "arguments");
    json_out_value(&out, guard->body.arguments);
    json_out_name(&out, "distinct_from");
    json_out_array(&out);
    for (size_t i = 0; i < guard->body.distinct_count; i++)
        json_out_text(&out, guard->body.distinct_from[i]);
    json_out_end_array(&out);
    if (wait_ms >= 0)
        json_out_member_int(&out, "wait_ms", wait_ms);
    json_out_end_object(&out);
    struct str body = arena_str(&guard->arena, buf_str(&text));
    buf_release(&text);
    return body;
}

static void beat(void *user)
{
    struct guard *guard = user;
    struct arena arena;
    struct client_answer answer;
    struct err err = {0};
    arena_init(&arena);
    struct client_request request = {.method = "POST", .path = path_of(guard, "heartbeat")};
    request.body = str_of(arena_printf(&arena, "{\"lease\":\"%s\"}", guard->lease));
    /* not heard, or too late: the command goes on, and how it ends is told all the same */
    if (client_ask(guard->client, &request, &arena, &answer, &err) == ERR_NONE && answer.status >= 400)
        fprintf(stderr, "onced guard: the lease has ended; how the command ends is told all the same\n");
    arena_release(&arena);
}

/* ---- how it ended ---- */

static void write_outcome(struct json_out *out, const struct guard_run *run, const char *code_name, int code)
{
    const struct {
        const char *name;
        const struct buf *text;
    } streams[] = {{"stdout", &run->output}, {"stderr", &run->errors}};
    json_out_member_int(out, code_name, code);
    for (size_t i = 0; i < 2; i++) {
        if (streams[i].text->n == 0)
            continue;
        struct buf text;
        buf_init(&text, 0);
        for (size_t k = 0; k < streams[i].text->n; k++) { /* what is no text is kept as "?" */
            unsigned char c = (unsigned char)streams[i].text->p[k];
            buf_add_char(&text, c < 128 ? (char)c : '?');
        }
        json_out_name(out, streams[i].name);
        json_out_str(out, buf_str(&text));
        buf_release(&text);
    }
    if (run->output.over || run->errors.over)
        json_out_member_bool(out, "cut", true);
}

static struct str report_body(struct guard *guard, const struct guard_run *run, const struct err *started)
{
    bool exited = !started->code && WIFEXITED(run->status);
    int code = exited ? WEXITSTATUS(run->status) : 0;
    bool again = exited && guard->try_again.has[code], none = exited && guard->no_effect.has[code];
    struct buf text;
    struct json_out out;
    buf_init(&text, 0);
    json_out_init(&out, &text);
    json_out_object(&out);
    json_out_member_text(&out, "lease", guard->lease);
    if (exited && code == 0) {
        json_out_name(&out, "result");
        json_out_object(&out);
        write_outcome(&out, run, "exit_code", 0);
        json_out_end_object(&out);
    } else {
        json_out_member_text(&out, "effect", started->code || again || none ? "none" : "unknown");
        if (started->code || again)
            json_out_member_bool(&out, "retry", true);
        json_out_name(&out, "error");
        json_out_object(&out);
        const char *message = started->code ? started->text
                              : exited      ? arena_printf(&guard->arena, "the command exited with status %d", code)
                                            : arena_printf(&guard->arena, "the command was ended by signal %d (%s)",
                                                           WTERMSIG(run->status), strsignal(WTERMSIG(run->status)));
        json_out_member_text(&out, "message", message);
        json_out_name(&out, "provider");
        json_out_object(&out);
        if (!started->code)
            write_outcome(&out, run, exited ? "exit_code" : "signal", exited ? code : WTERMSIG(run->status));
        json_out_end_object(&out);
        json_out_end_object(&out);
    }
    json_out_end_object(&out);
    struct str body = arena_str(&guard->arena, buf_str(&text));
    buf_release(&text);
    return body;
}

static void pause_ms(long ms)
{
    const struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    nanosleep(&time, NULL);
}

/* The daemon may be away: what happened is told until it is heard. */
static bool report(struct guard *guard, const char *word, struct str body, struct err *err)
{
    struct env *env = env_system();
    int64_t until = env->now_ms(env) + REPORT_MS;
    struct client_request request = {.method = "POST", .path = path_of(guard, word), .body = body};
    struct client_answer answer = {0};
    do {
        err_clear(err);
        if (client_ask(guard->client, &request, &guard->arena, &answer, err) == ERR_NONE && answer.status < 500) {
            if (answer.status < 400)
                return true;
            err_set(err, ERR_DENIED, "the daemon answers %ld: %.*s", answer.status,
                    (int)(answer.text.n > 300 ? 300 : answer.text.n), answer.text.p);
            return false;
        }
        pause_ms(REPORT_PAUSE_MS);
    } while (env->now_ms(env) < until);
    return false;
}

static int execute(struct guard *guard, const struct json *answer)
{
    const struct json *lease = json_get(answer, "lease"), *operation = json_get(answer, "operation");
    int64_t lease_ms = json_get_int(lease, "lease_ms", 3 * BEAT_MS_MAX);
    struct err started = {0}, err = {0};
    struct guard_run run = {
        .argv = guard->args.operands,
        .key = arena_copy_str(&guard->arena, json_get_text(lease, "idempotency_key")),
        .operation = arena_copy_str(&guard->arena, json_get_text(operation, "operation_id")),
        .beat_ms = lease_ms / 3 < BEAT_MS_MAX ? lease_ms / 3 : BEAT_MS_MAX,
        .beat = beat,
        .user = guard,
    };
    guard->lease = arena_copy_str(&guard->arena, json_get_text(lease, "token"));
    guard_run(&run, &started);
    struct str body = report_body(guard, &run, &started);
    bool success = !started.code && WIFEXITED(run.status) && WEXITSTATUS(run.status) == 0;
    bool heard = report(guard, success ? "complete" : "fail", body, &err);
    if (started.code)
        fprintf(stderr, "onced guard: %s\n", started.text);
    if (!heard)
        fprintf(stderr, "onced guard: how %s ended could not be told, so that it is unknown to onced: %s\n",
                run.operation, err.text);
    buf_release(&run.output);
    buf_release(&run.errors);
    if (started.code)
        return started.code == ERR_NOT_FOUND ? 127 : 126;
    return WIFEXITED(run.status) ? WEXITSTATUS(run.status) : SIGNALLED_STATUS + WTERMSIG(run.status);
}

/* ---- what is known already ---- */

static void print_stream(const struct json *recorded, const char *name, FILE *file)
{
    struct str text = json_get_text(recorded, name);
    if (text.n > 0)
        fwrite(text.p, 1, text.n, file);
}

static int play(const struct json *recorded)
{
    print_stream(recorded, "stdout", stdout);
    print_stream(recorded, "stderr", stderr);
    int64_t number = json_get_int(recorded, "signal", 0);
    return (int)(number > 0 ? SIGNALLED_STATUS + number : json_get_int(recorded, "exit_code", CLI_FAILED));
}

static int known(const struct json *answer, struct str decision)
{
    const struct json *operation = json_get(answer, "operation");
    const struct json *result = json_get(operation, "result"), *error = json_get(operation, "error");
    const struct json *recorded = json_get(result, "exit_code") ? result : json_get(error, "provider");
    struct str id = json_get_text(operation, "operation_id"), status = json_get_text(operation, "status");
    bool has_end = json_get(recorded, "exit_code") || json_get(recorded, "signal");
    bool open = !str_is(decision, "replay") && !str_is(decision, "denied");
    int code = has_end ? play(recorded) : open ? CLI_OPEN : view_operation_exit(operation);
    if (str_is(decision, "replay") && has_end)
        fprintf(stderr, "onced guard: already run as %.*s (%.*s): nothing was run now\n", STR_ARG(id), STR_ARG(status));
    else if (str_is(decision, "unknown"))
        fprintf(stderr,
                "onced guard: it may have happened (%.*s): nothing was run now; a person must look: onced show %.*s\n",
                STR_ARG(id), STR_ARG(id));
    else if (str_is(decision, "approval_required"))
        fprintf(stderr, "onced guard: %.*s waits for an approval: call again once it is given\n", STR_ARG(id));
    else if (str_is(decision, "wait"))
        fprintf(stderr, "onced guard: somebody else runs it as %.*s: nothing was run now\n", STR_ARG(id));
    else
        fprintf(stderr, "onced guard: %.*s is %.*s: nothing was run now\n", STR_ARG(id), STR_ARG(status));
    return code;
}

/* When an answer is lost, this process may have been elected: as the same executor it gets the same lease. */
static void wait_until_heard(struct guard *guard, const struct client_request *request)
{
    struct client_answer answer;
    struct err err = {0};
    for (int tries = 0; tries < BEGIN_TRIES; tries++) {
        if (client_ask(guard->client, request, &guard->arena, &answer, &err) != ERR_IO)
            return;
        err_clear(&err);
        pause_ms(REPORT_PAUSE_MS);
    }
}

static int begin(struct guard *guard)
{
    static const char lost[] = "The same command again is safe.";
    struct client_request request = {.method = "POST", .path = path_of(guard, "begin"), .body = begin_body(guard, 0)};
    struct client_answer answer;
    bool asked;
    wait_until_heard(guard, &request);
    request.body = begin_body(guard, guard->body.wait_ms);
    request.wait_ms = guard->body.wait_ms >= 0 ? guard->body.wait_ms : CALL_WAIT_MS_MAX;
    int code = view_ask(guard->client, &request, &guard->arena, &answer, lost, &asked);
    if (!asked || !view_success(&answer, false, &code))
        return code;
    struct str decision = json_get_text(answer.json, "decision");
    return str_is(decision, "execute") ? execute(guard, answer.json) : known(answer.json, decision);
}

int cli_guard(int argc, char **argv)
{
    struct guard guard = {.lease = NULL};
    struct ulid_source ids;
    struct err err = {0};
    arena_init(&guard.arena);
    call_body_init(&guard.body, &guard.arena);
    cli_args_init(&guard.args, &cli_guard_command, argc, argv);
    ulid_source_init(&ids, env_system());
    ulid_next(&ids, guard.executor);
    int code = read_line(&guard);
    if (code) {
        code--;
    } else if (client_new(&guard.args.connection, &guard.client, &err)) {
        view_error(&err);
        code = CLI_USAGE;
    } else {
        code = begin(&guard);
    }
    client_free(guard.client);
    arena_release(&guard.arena);
    return code;
}
