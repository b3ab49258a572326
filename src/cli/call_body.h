/* The body of POST /v1/calls from what was given on the command line. */
#ifndef CLI_CALL_BODY_H
#define CLI_CALL_BODY_H

#include "base/json.h"

#define CALL_DISTINCT_MAX 16
#define CALL_WAIT_MS_MAX  120000 /* longest wait that the daemon grants */

struct call_body {
    struct arena *arena;
    const char *tool;
    struct json *arguments;                                                            /* an object */
    const char *key, *run, *step, *session, *call, *workflow, *not_before, *repeat_of; /* NULL = not given */
    const char *override_reason;
    const char *distinct_from[CALL_DISTINCT_MAX];
    size_t distinct_count;
    int64_t wait_ms; /* < 0: not given */
    bool async, dry_run;
};

void call_body_init(struct call_body *body, struct arena *arena);

/* "name=value": a value that is valid JSON is taken as JSON ("5", "true", "{…}", "\"5\""), anything else is text. */
enum err_code call_body_arg(struct call_body *body, const char *text, struct err *err);
/* One JSON object; its members are added to the arguments. */
enum err_code call_body_args(struct call_body *body, struct str text, struct err *err);
/* The same from a file; "-" is standard input. */
enum err_code call_body_args_file(struct call_body *body, const char *path, struct err *err);
enum err_code call_body_distinct(struct call_body *body, const char *operation, struct err *err);

void call_body_write(const struct call_body *body, struct buf *out);

#endif
