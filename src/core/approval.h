/* Approvals (design 8): what is asked of people before an operation may run, and what they said. The record lies with
 * the operation as one JSON text (operation.approval), so that a decision is a transition like any other:
 * compare-and-set, one wins everywhere. An approval belongs to that operation, whose arguments never change, and is
 * used up with it.
 *
 *     {"needed":2,"expires_ms":1790000000000,"policy":"6f1c…","decisions":[
 *       {"by":"alice","at_ms":1789990000000,"decision":"approve","note":"seen the order","via":"rest"}]}
 */
#ifndef CORE_APPROVAL_H
#define CORE_APPROVAL_H

#include "base/arena.h"
#include "base/err.h"
#include "base/str.h"

#include <stdbool.h>
#include <stdint.h>

struct operation;

#define APPROVERS_MAX           10 /* people that a registry may ask for */
#define APPROVAL_DECISIONS_MAX  (APPROVERS_MAX + 1)
#define APPROVAL_NOTE_BYTES_MAX 2000
#define APPROVAL_POLICY_BYTES   16 /* of a policy's digest; twice as many hex digits */

/* Whether the user of an MCP client may be one of those who decide. */
enum approval_mcp { APPROVAL_MCP_NONE, APPROVAL_MCP_ELICIT };

/* What a tool asks for. Immutable, part of struct tool. */
struct approval_policy {
    bool required;         /* calls need it: all, or those for which condition holds */
    const void *condition; /* the engine's (jq over the effective arguments), owned by the registry; NULL = all calls */
    unsigned approvers; /* distinct people who must agree, where it is asked for (repeats on purpose may need it too) */
    int64_t expires_ms; /* since it was asked for */
    enum approval_mcp mcp;
    const char *policy; /* digest of all that the answer rests on: the tool's approval section, its request; hex.
                         * NULL: not known, never compared */
};

/* How a decision came in. X(constant, text) */
#define APPROVAL_VIAS(X)                                                                                               \
    X(APPROVAL_VIA_REST, "rest")                                                                                       \
    X(APPROVAL_VIA_CLI, "cli")                                                                                         \
    X(APPROVAL_VIA_LINK, "link")                                                                                       \
    X(APPROVAL_VIA_MCP, "mcp")

enum approval_via {
#define X(constant, text) constant,
    APPROVAL_VIAS(X)
#undef X
};
const char *approval_via_name(enum approval_via via);
bool approval_via_from_name(struct str text, enum approval_via *out);

struct approval_decision {
    const char *by;
    int64_t at_ms;
    bool approve;
    const char *note; /* NULL = none */
    enum approval_via via;
    const char *link_by; /* APPROVAL_VIA_LINK: who made the link; NULL = not known */
};

struct approval {
    unsigned needed;
    int64_t expires_ms; /* wall clock */
    const char *policy;
    struct approval_decision decisions[APPROVAL_DECISIONS_MAX];
    size_t count;
};

/* The record of a new request. */
struct str approval_request(struct arena *arena, const struct approval_policy *policy, int64_t now_ms);

/* Texts in arena. ERR_INVALID when the text is no such record. */
enum err_code approval_read(struct arena *arena, struct str text, struct approval *out, struct err *err);
struct str approval_write(struct arena *arena, const struct approval *approval);

unsigned approval_given(const struct approval *approval); /* how many agreed */
/* The denial, or NULL. */
const struct approval_decision *approval_denial(const struct approval *approval);
const struct approval_decision *approval_by(const struct approval *approval, const char *person);
/* The decision that answers this person's: their own first one, else what has settled the matter (the denial, the last
 * agreement that was needed); NULL while their decision would count. */
const struct approval_decision *approval_stands(const struct approval *approval, const char *person);

/* No approval was asked for, or enough people have agreed and nobody has said no. False for a record that cannot be
 * read. Nothing of the operation may leave before. */
bool approval_complete(const struct operation *op);
/* When the request ends; 0 = none is open (not asked for, complete, denied). */
int64_t approval_open_until(const struct operation *op);

#endif
