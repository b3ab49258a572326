/* What the files of the command adapter share. Not for others.
 *
 *   provider + tool sections ──command_section.c──▶ struct command_tool                             once, at load
 *   adapter_call ──command_build.c──▶ struct command_line ──command.c──▶ process                    per attempt
 *   its end ──command.c──▶ struct command_end ──command_answer.c──▶ adapter_answer
 */
#ifndef ADAPTER_COMMAND_PARTS_H
#define ADAPTER_COMMAND_PARTS_H

#include "adapter/command.h"
#include "adapter/http_parts.h"
#include "adapter/secrets.h"

#define COMMAND_WORDS_MAX        256
#define COMMAND_ENV_MAX          256
#define COMMAND_WORD_BYTES_MAX   (128 * 1024 - 1) /* Linux takes no longer argument or variable */
#define COMMAND_LINE_BYTES_MAX   (512 * 1024)     /* all arguments and variables; Linux takes 2 MB by default */
#define COMMAND_OUTPUT_BYTES_MAX (64 * 1024 * 1024)
#define COMMAND_STDERR_BYTES_MAX 4096     /* its end is kept */
#define COMMAND_KILL_AFTER_MAX   15000    /* below the engine's slack: the lease must outlive the process */
#define COMMAND_RESERVED_PREFIX  "ONCED_" /* of variables that onced sets */

/* ---- sections ---- */

struct command_exits {
    uint64_t bits[4]; /* exit codes 0 to 255 */
};

static inline bool command_exits_has(const struct command_exits *exits, int code)
{
    return code >= 0 && code < 256 && (exits->bits[code / 64] >> (code % 64) & 1);
}

struct command_word {
    struct http_text text;
    bool fixed_begin; /* cannot be taken for an option: begins with text of ours, or comes after "--" */
};

enum command_input { COMMAND_INPUT_NONE, COMMAND_INPUT_ARGUMENTS, COMMAND_INPUT_BODY };
enum command_output { COMMAND_OUTPUT_JSON, COMMAND_OUTPUT_TEXT, COMMAND_OUTPUT_NONE };

/* How a process is started, and how long and how much it may. */
struct command_run {
    struct command_word *argv;
    size_t argv_count;
    bool dash_allowed; /* values may begin with "-" anywhere */
    struct http_headers env;
    char *cwd; /* NULL = the provider's */
    enum command_input input;
    struct http_node *node; /* COMMAND_INPUT_BODY: either … */
    struct jq_program *jq;  /* … or */
    enum command_output output;
    size_t output_bytes_max;
    int64_t timeout_ms;
};

struct command_lookup {
    struct command_run run;
    struct command_exits found, absent, pending, failed;
    struct jq_program *found_when, *absent_when, *pending_when, *failed_when; /* over the output; NULL = not asked */
    struct http_extract external_id, result;
    struct http_equalities verify;
};

struct command_provider {
    unsigned refs;
    struct http_headers env; /* without places */
    char *cwd;               /* NULL = ours */
    int64_t timeout_ms, kill_after_ms;
    size_t output_bytes_max;
    struct secrets secrets;
};

struct command_tool {
    unsigned refs;
    struct command_provider *provider; /* a reference */
    bool write;
    struct command_run run;
    struct command_exits success, noop, accepted, refused, not_processed;
    struct jq_program *success_when, *error_when;
    struct http_extract external_id, result;
    struct http_equalities verify;
    struct command_lookup *lookup; /* NULL = none */
    struct secrets secrets;        /* of its own env */
    char **redact;                 /* JSON Pointers */
    size_t redact_count;
};

struct command_tool *command_tool_ref(struct command_tool *tool);
void command_tool_unref(struct command_tool *tool); /* NULL is fine */

/* ---- one attempt ---- */

/* All in the arena that it was built in. */
struct command_line {
    const struct command_run *run;
    char **argv, **env; /* end with NULL */
    const char *cwd;    /* NULL = ours */
    struct str input;   /* for stdin; absent = none */
    struct http_expected *expected;
    size_t expected_count;
};

/* ERR_INVALID names the argument. */
enum err_code command_build(const struct command_tool *tool, const struct adapter_call *call, struct arena *arena,
                            struct command_line *line, struct err *err);
/* As it would be started, secrets and redacted arguments masked: {"method": "run", "url": "command:PROVIDER", "argv",
 * "env", "cwd", "body"}. */
enum err_code command_describe(const struct command_tool *tool, const struct adapter_call *call, struct json_out *out,
                               struct err *err);

/* How a process ended. */
struct command_end {
    bool started;       /* else nothing of it was executed, detail says why */
    bool timed_out;     /* it was killed: its time was over */
    bool stopped;       /* it was killed: onced stops */
    int status;         /* as wait(2) gives it */
    struct str output;  /* of stdout */
    bool output_cut;    /* there was more than output_bytes_max */
    struct str written; /* the end of stderr, secrets masked */
    const char *detail;
};

/* What it is judged by; texts of the answer are in arena or borrowed from end. */
struct command_judge {
    const struct command_tool *tool;
    enum attempt_kind kind;
    const struct http_expected *expected;
    size_t expected_count;
    struct arena *arena;
};
void command_answer(const struct command_judge *judge, const struct command_end *end, struct adapter_answer *answer);

#endif
