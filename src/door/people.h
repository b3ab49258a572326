/* Who may be given approval links (design 8): principals that exist and may decide, each by a token of onced's own or
 * by a signed one of an issuer. The ledger lists the former. Of the latter nobody has a list: they are known once they
 * have shown a token to this process, which keeps the last ones in memory. */
#ifndef DOOR_PEOPLE_H
#define DOOR_PEOPLE_H

#include "core/operation.h"
#include "door/caller.h"

#define PEOPLE_MAX     1024 /* of issuers, remembered; the one that was not seen for longest goes first */
#define PEOPLE_KEEP_MS (INT64_C(30) * 24 * 3600 * 1000) /* since they were seen last */

struct people;
struct people *people_new(void);
void people_free(struct people *people); /* NULL is fine */

/* A signed token of this issuer (`iss`) was accepted. Only who may decide is remembered. Copied. */
void people_saw(struct people *people, const char *issuer, const struct caller *caller, int64_t now_ms);

bool people_may_decide(enum role role);

/* Why somebody may decide on an operation. */
struct people_ground {
    bool token;         /* a live token of the ledger's; else … */
    const char *issuer; /* … of this issuer, borrowed until the next people_saw */
};

/* Whether `principal` exists in the operation's tenant with a role that decides, by a token that covers the operation.
 * ERR_DENIED says what is missing. people may be NULL. */
enum err_code people_find(const struct people *people, const struct token *tokens, size_t count,
                          const struct operation *op, const char *principal, int64_t now_ms, struct people_ground *out,
                          struct err *err);

#endif
