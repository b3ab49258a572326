/* How answers of the daemon are shown: operations, problems, what to do next; and which exit code they mean. */
#ifndef CLI_VIEW_H
#define CLI_VIEW_H

#include "base/json.h"
#include "cli/client.h"
#include "cli/command.h"
#include "cli/out.h"

/* The colour of a state's name. */
enum out_style view_state_style(struct str status);

/* What an operation's status means for the exit code of a command that waits for its end. */
int view_operation_exit(const struct json *operation);
/* The same for a problem document. */
int view_problem_exit(const struct client_answer *answer);

/* One operation in a few lines. */
void view_operation(struct out *out, const struct json *operation, bool replayed);
/* Title, detail, the pointers that are wrong, the operation that is meant. */
void view_problem(struct out *out, const struct client_answer *answer);
/* Whether an effect of the operation is proven, impossible, or possible; in words. */
const char *view_effect(const struct json *operation);
/* What to do now, as lines of text with the commands to type. */
void view_next(struct out *out, const struct json *operation);

/* "2026-11-29 16:23:28 UTC (4 min 05 s ago)" from a member that holds a time; absent when it does not. */
struct str view_time(struct arena *arena, const struct json *object, const char *name, int64_t now_ms);

/* ---- asking and showing in one ---- */

/* Asks; on a failure prints it and returns its exit code. *asked is true when there is an HTTP answer. lost: what to
 * tell when the request left and no answer came (NULL for reads). */
int view_ask(struct client *client, const struct client_request *request, struct arena *arena,
             struct client_answer *answer, const char *lost, bool *asked);

/* Prints an error of ours to standard error: "onced: text". */
void view_error(const struct err *err);

/* Deals with everything but a success: problem documents, answers that are not JSON (to standard error; with json the
 * document to standard output). Returns true when the answer is a success with JSON in it; else *code is the exit code.
 */
bool view_success(const struct client_answer *answer, bool json, int *code);

/* The answer as it came, with a newline: --json. */
void view_raw(const struct client_answer *answer);

/* The whole of a command that gets one operation: asks, prints it (or JSON), returns CLI_OK when by_state is false and
 * the request was granted, else the code of the operation's state. */
int view_operation_command(const struct cli_args *args, const struct client_request *request, const char *lost,
                           bool by_state);

#endif
