/* Where the calls of a scenario meet: the real engine over a ledger in memory, with a clock that only the scenario
 * moves and a provider that answers as the scenario says. Requests are built as they would be sent, and never sent.
 *
 *   eval_call ─► engine ─► memory ledger          "answered with", "opens", "held", … is what a door would have told
 *                  └─► provider of this file: keeps each request until the operation is to be brought into a state
 */
#ifndef CLI_EVAL_WORLD_H
#define CLI_EVAL_WORLD_H

#include "cli/eval_file.h"
#include "core/identity.h"
#include "engine/engine.h"

struct eval_world;

/* What a call was answered. X(constant, words after "call N") */
#define ANSWERS(X)                                                                                                     \
    X(ANSWER_OPENED, "opens an operation")                                                                             \
    X(ANSWER_JOINED, "is taken for the same operation") /* waits for it, or gets its result */                         \
    X(ANSWER_CONFLICT, "meets a conflict")                                                                             \
    X(ANSWER_HELD, "is held")                                                                                          \
    X(ANSWER_NOT_SHARED, "may not see the result")                                                                     \
    X(ANSWER_REFUSED, "is refused")                                                                                    \
    X(ANSWER_READ, "is a read and runs")                                                                               \
    X(ANSWER_BROKEN, "cannot be judged") /* the scenario asks for what cannot be */

enum answer {
#define X(constant, text) constant,
    ANSWERS(X)
#undef X
};
const char *answer_words(enum answer answer);
const char *answer_name(enum answer answer); /* for JSON: "opened", "joined", … */

/* A call with what became of it. Texts live in the arena of eval_world_call. */
struct eval_result {
    const struct eval_call *call;
    const struct tool *tool;
    int64_t at_ms;                /* when it arrived, since the first call */
    bool identified;              /* op and effective are set: the call got as far as having an identity */
    struct operation op;          /* identity part: key, source, fingerprint */
    const struct json *effective; /* arguments as fingerprinted and sent */
    enum answer answer;
    char operation[OPERATION_ID_SIZE]; /* opened, joined, in conflict with, held by; "" = none */
    enum state state;                  /* of that operation when the call was answered */
    bool delivered;                    /* … and whether its result had been told to a caller (repeat rule) */
    int64_t completed_ms;              /* … and when it ended, since the first call; -1: open */
    int key_version;                   /* of that operation */
    bool other_arguments;              /* joined although the arguments differ (on_mismatch: replay) */
    const char *text;                  /* why not, in the words that the caller gets; NULL for opened, joined, read */
};

/* registry: a reference is taken. */
enum err_code eval_world_new(struct registry *registry, struct eval_world **out, struct err *err);
void eval_world_free(struct eval_world *world); /* NULL is fine */

/* An empty ledger; the clock starts anew. Each begin needs its end. */
void eval_world_begin(struct eval_world *world);
void eval_world_end(struct eval_world *world);

/* Moves the clock to the call's time, makes the call, and brings its operation into the state that the next call is to
 * find. `earlier` are the results of the group's calls before this one (for references). Texts go to arena. */
void eval_world_call(struct eval_world *world, const struct eval_call *call, const struct eval_result *earlier,
                     struct arena *arena, struct eval_result *out);

#endif
