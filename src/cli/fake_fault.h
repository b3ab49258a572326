/* What the fault-injecting provider can do wrong, and how a fault is named: `name[=argument[:second]]`, several in one
 * plan separated by commas, plans for successive attempts separated by `|` (the last one stays). docs/fake-provider.md
 * lists them. */
#ifndef CLI_FAKE_FAULT_H
#define CLI_FAKE_FAULT_H

#include "base/err.h"
#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* When a write takes effect under a fault. */
enum fake_commit {
    COMMIT_NOW,
    COMMIT_NEVER,
    COMMIT_LATER /* the argument says after how many ms */
};

/* name, enum, commit, applies to writes / look-ups / is a modifier that goes with any other fault, default argument */
#define FAKE_FAULTS(X)                                                                                                 \
    X("success", FAULT_SUCCESS, COMMIT_NOW, FAULT_ON_BOTH, 0)                                                          \
    X("timeout_before_commit", FAULT_TIMEOUT_BEFORE, COMMIT_NEVER, FAULT_ON_BOTH, -1)                                  \
    X("timeout_after_commit", FAULT_TIMEOUT_AFTER, COMMIT_NOW, FAULT_ON_BOTH, -1)                                      \
    X("slow", FAULT_SLOW, COMMIT_LATER, FAULT_ON_BOTH, 1000)                                                           \
    X("reset_before_commit", FAULT_RESET_BEFORE, COMMIT_NEVER, FAULT_ON_BOTH, 0)                                       \
    X("reset_after_commit", FAULT_RESET_AFTER, COMMIT_NOW, FAULT_ON_BOTH, 0)                                           \
    X("close_before_commit", FAULT_CLOSE_BEFORE, COMMIT_NEVER, FAULT_ON_BOTH, 0)                                       \
    X("close_after_commit", FAULT_CLOSE_AFTER, COMMIT_NOW, FAULT_ON_BOTH, 0)                                           \
    X("rate_limited", FAULT_RATE_LIMITED, COMMIT_NEVER, FAULT_ON_BOTH, 1)                                              \
    X("5xx_committed", FAULT_STATUS_COMMITTED, COMMIT_NOW, FAULT_ON_WRITES, 500)                                       \
    X("5xx_not_committed", FAULT_STATUS, COMMIT_NEVER, FAULT_ON_BOTH, 503)                                             \
    X("malformed", FAULT_MALFORMED, COMMIT_NOW, FAULT_ON_BOTH, 0)                                                      \
    X("truncated", FAULT_TRUNCATED, COMMIT_NOW, FAULT_ON_BOTH, 0)                                                      \
    X("drip", FAULT_DRIP, COMMIT_NOW, FAULT_ON_BOTH, 2000)                                                             \
    X("late_commit", FAULT_LATE_COMMIT, COMMIT_LATER, FAULT_ON_WRITES, 1000)                                           \
    X("double_commit", FAULT_DOUBLE_COMMIT, COMMIT_NOW, FAULT_ON_WRITES, 0)                                            \
    X("wrong_object", FAULT_WRONG_OBJECT, COMMIT_NEVER, FAULT_ON_WRITES, -1)                                           \
    X("wrong_object_committed", FAULT_WRONG_OBJECT_COMMITTED, COMMIT_NOW, FAULT_ON_WRITES, -1)                         \
    X("accepted", FAULT_ACCEPTED, COMMIT_NOW, FAULT_ON_WRITES, 1000)                                                   \
    X("in_use", FAULT_IN_USE, COMMIT_NEVER, FAULT_ON_WRITES, 409)                                                      \
    X("redirect", FAULT_REDIRECT, COMMIT_NEVER, FAULT_ON_BOTH, 307)                                                    \
    X("challenge", FAULT_CHALLENGE, COMMIT_NEVER, FAULT_ON_BOTH, 401)                                                  \
    X("error_200", FAULT_ERROR_200, COMMIT_NOW, FAULT_ON_BOTH, 0)                                                      \
    X("error_200_not_committed", FAULT_ERROR_200_NOT, COMMIT_NEVER, FAULT_ON_WRITES, 0)                                \
    X("big", FAULT_BIG, COMMIT_NOW, FAULT_ON_BOTH, 10 << 20)                                                           \
    X("content_type", FAULT_CONTENT_TYPE, COMMIT_NOW, FAULT_ON_BOTH, 0)                                                \
    X("html", FAULT_HTML, COMMIT_NOW, FAULT_ON_BOTH, 0)                                                                \
    X("empty", FAULT_EMPTY, COMMIT_NOW, FAULT_ON_WRITES, 200)                                                          \
    X("refused", FAULT_REFUSED, COMMIT_NEVER, FAULT_ON_WRITES, 402)                                                    \
    X("lookup_500", FAULT_LOOKUP_ERROR, COMMIT_NEVER, FAULT_ON_LOOKUPS, 500)                                           \
    X("lookup_empty", FAULT_LOOKUP_EMPTY, COMMIT_NEVER, FAULT_ON_LOOKUPS, 0)                                           \
    X("lookup_partial", FAULT_LOOKUP_PARTIAL, COMMIT_NEVER, FAULT_ON_LOOKUPS, 0)                                       \
    X("lookup_wrong", FAULT_LOOKUP_WRONG, COMMIT_NEVER, FAULT_ON_LOOKUPS, -1)                                          \
    X("lookup_twice", FAULT_LOOKUP_TWICE, COMMIT_NEVER, FAULT_ON_LOOKUPS, 0)                                           \
    X("lookup_timeout", FAULT_LOOKUP_TIMEOUT, COMMIT_NEVER, FAULT_ON_LOOKUPS, -1)                                      \
    X("lookup_malformed", FAULT_LOOKUP_MALFORMED, COMMIT_NEVER, FAULT_ON_LOOKUPS, 0)                                   \
    X("propagation", FAULT_PROPAGATION, COMMIT_NOW, FAULT_MODIFIER, 1000)                                              \
    X("key_ignored", FAULT_KEY_IGNORED, COMMIT_NOW, FAULT_MODIFIER, 0)                                                 \
    X("key_forgotten", FAULT_KEY_FORGOTTEN, COMMIT_NOW, FAULT_MODIFIER, 0)

#define FAKE_FAULT_ENUM(name, fault, commit, where, argument) fault,
enum fake_fault { FAKE_FAULTS(FAKE_FAULT_ENUM) FAULT_COUNT };
#undef FAKE_FAULT_ENUM

#define FAKE_PLAN_TEXT_MAX 96

/* What happens to one request. */
struct fake_plan {
    enum fake_fault fault;  /* FAULT_SUCCESS when nothing else was asked for */
    int64_t argument;       /* -1 = for ever / not given */
    char second[16];        /* late_commit: the early answer; accepted: how it ends */
    int64_t propagation_ms; /* -1 = as configured */
    bool key_ignored, key_forgotten;
    char text[FAKE_PLAN_TEXT_MAX]; /* as it was asked for, cut; "" for none */
};

void fake_plan_init(struct fake_plan *plan);

/* Reads the alternative for attempt nth (1 = first) of a text like "close_after_commit|success". Also understood:
 * "429", "503", "502_committed", "502_not_committed", timeout_before, timeout_after. ERR_INVALID with the unknown name
 * or bad argument. */
enum err_code fake_plan_parse(struct str text, unsigned nth, struct fake_plan *plan, struct err *err);

enum fake_commit fake_fault_commit(enum fake_fault fault);
const char *fake_fault_name(enum fake_fault fault);
bool fake_fault_on_lookups(enum fake_fault fault);
bool fake_fault_on_writes(enum fake_fault fault);

/* ---- seeded probabilities: "timeout_after_commit:500=0.1, 5xx_committed=0.05, lookup_500=0.2" ---- */

#define FAKE_CHANCES_MAX 32

struct fake_chance {
    char plan[FAKE_PLAN_TEXT_MAX];
    bool lookup; /* for look-ups; else for writes */
    unsigned per_million;
};

struct fake_chances {
    struct fake_chance items[FAKE_CHANCES_MAX];
    size_t count;
    uint64_t seed;
};

/* Keeps the seed. Refuses unknown names, probabilities outside 0..1 and sums over 1. */
enum err_code fake_chances_parse(struct str text, struct fake_chances *chances, struct err *err);

/* The plan text that falls on attempt nth of the thing called identity, or NULL. Depends on seed, identity and nth
 * only, so that the order in which concurrent requests arrive does not matter. */
const char *fake_chances_draw(const struct fake_chances *chances, bool lookup, uint64_t identity, unsigned nth);

/* 64-bit hash used by the provider for all its tables; not for anything that an attacker feeds. */
uint64_t fake_hash(struct str text, uint64_t seed);

#endif
