/* Bearer tokens (design 16): onced's own and, where the registry file names issuers, signed ones (issuers.h). One of
 * onced's own is a random text that only its owner has; the ledger keeps its SHA-256, so that finding a token is a
 * look-up by hash and nothing is ever compared byte by byte with a secret. Either kind ends here: it is never passed
 * on. */
#ifndef DOOR_AUTH_H
#define DOOR_AUTH_H

#include "door/exchange.h"
#include "door/issuers.h"
#include "door/people.h"

/* "onced_" + 43 characters of base64url (256 random bits), with the NUL. */
#define AUTH_TOKEN_SIZE      50
#define AUTH_TOKEN_BYTES_MAX 256 /* of onced's own; longer ones are refused without a look */
/* How long a positive look-up is remembered: a revocation by another process takes effect within this time, one through
 * this daemon at once. */
#define AUTH_CACHE_MS  5000
#define AUTH_CACHE_MAX 1024

/* A new secret and what to store of it. */
void auth_token_make(struct env *env, char out[AUTH_TOKEN_SIZE], struct digest *hash);
/* The hash of a token as it was presented. */
struct digest auth_token_hash(struct str token);

struct auth;
/* issuers: taken; NULL: signed tokens are refused. */
struct auth *auth_new(struct issuers *issuers);
/* Nobody may wait any more. closed is called, at once or from the loop; auth is gone then. NULL is fine. */
void auth_close(struct auth *auth, void (*closed)(void *user), void *user);
void auth_tick(struct auth *auth, int64_t now_ms);         /* forgets what is too old */
void auth_forget(struct auth *auth, const char *token_id); /* revoked */

/* Who has shown a signed token and may decide. */
const struct people *auth_people(const struct auth *auth);
/* Whether signed tokens of this issuer (`iss`) are taken. */
bool auth_has_issuer(const struct auth *auth, const char *issuer);

enum auth_outcome { AUTH_OK, AUTH_MISSING, AUTH_REFUSED, AUTH_UNAVAILABLE };

/* Finds out who calls and fills exchange->caller when AUTH_OK. ready is called once, at once or later; text says more
 * for people ("" when there is nothing to add). */
void auth_check(struct auth *auth, struct exchange *exchange,
                void (*ready)(struct exchange *exchange, enum auth_outcome outcome, const char *text));

#endif
