/* Scenario files of `onced eval`: groups of calls with what must become of them (docs/eval.md). Read with positions;
 * all problems at once, like registry files. */
#ifndef CLI_EVAL_FILE_H
#define CLI_EVAL_FILE_H

#include "core/admission.h"
#include "core/registry.h"
#include "daemon/config_report.h"

#define EVAL_GROUPS_MAX 5000 /* of a file */
#define EVAL_CALLS_MAX  32   /* of a group, those before it included */

/* What a group says about its calls, in their order of arrival. X(constant, member of the file) */
#define EXPECTATIONS(X)                                                                                                \
    X(EXPECT_SAME, "same")             /* all are one operation */                                                     \
    X(EXPECT_DISTINCT, "distinct")     /* each is an operation of its own */                                           \
    X(EXPECT_CONFLICT, "conflict")     /* the first opens one; the others have its key and other arguments: 422 */     \
    X(EXPECT_HELD, "held")             /* the first opens one; the others are held until it is resolved */             \
    X(EXPECT_NOT_SHARED, "not_shared") /* the first opens one; the others are told that it is not theirs */            \
    X(EXPECT_REFUSED, "refused")       /* nothing comes of any of them */

enum expectation {
#define X(constant, text) constant,
    EXPECTATIONS(X)
#undef X
        EXPECTATION_COUNT
};
const char *expectation_name(enum expectation expectation);

/* An operation that a call names in repeat_of or distinct_from. */
struct eval_reference {
    size_t call;    /* of this earlier call of the group, from 1; 0: not by call */
    const char *id; /* as written (op_…); NULL: none, unless call is set */
};

struct eval_call {
    unsigned line, column;
    const char *tool, *tool_pointer; /* where the tool was named, for problems */
    const char *tenant, *principal;
    const char *idempotency_key, *workflow, *run, *step, *session, *call; /* NULL: not given */
    const struct json *arguments;                                         /* NULL: see arguments_text */
    struct str arguments_text;                                            /* JSON as an agent sent it */
    struct eval_reference repeat_of, distinct_from[ADMISSION_DISTINCT_MAX];
    size_t distinct_count;
    bool has_after;
    enum state after; /* what its operation is in from then on */
    bool caller_gone; /* left before it was told */
    int64_t at_ms;    /* since the first call of the group */
};

struct eval_group {
    const char *name;
    unsigned line, column;
    enum expectation expectation;
    const char *because;     /* text that the answers must contain; NULL: any */
    struct eval_call *calls; /* in the order of their arrival */
    size_t call_count;
    size_t first; /* index of the first call that is judged; those before it only happened before */
};

struct eval_file {
    struct arena arena; /* holds all of it */
    const char *path;
    const char *registry; /* as the program can open it; NULL: the file names none */
    struct eval_group *groups;
    size_t group_count;
    struct yaml yaml; /* for eval_file_check */
};

/* Reads a file; `path` names it in messages and is where a relative registry path starts. ERR_NONE: *out
 * (eval_file_free) is new. Otherwise the report has the reasons. */
enum err_code eval_file_load(const char *path, struct eval_file **out, struct config_report *report);
enum err_code eval_file_load_text(const char *path, struct str text, struct eval_file **out,
                                  struct config_report *report);
void eval_file_free(struct eval_file *file); /* NULL is fine */

/* Whether the registry has the tools that the file calls, and whether what is expected of them can be: reads have no
 * operations. ERR_INVALID: the report, which must be fresh, has the reasons. */
enum err_code eval_file_check(const struct eval_file *file, const struct registry *registry,
                              struct config_report *report);

#endif
