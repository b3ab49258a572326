/* The identity providers whose signed tokens are taken (server.jwt), with their public keys kept fresh.
 *
 *   ask ─► read ─► whose? ─► kid known ─────────────────────────► verify ─► claims ─► done
 *                        └─► kid unknown, keys not asked for lately ─► fetch ─► the same once more
 *
 * Keys are read when the server starts, then every `refresh`, and when a token names a key that is not among them: new
 * keys work at once, keys that were taken away end with the next reading. How often a stranger's made-up kid can cause
 * a reading is limited. While an issuer cannot be reached its last keys stay in force; a token that they do not cover
 * is then answered with "not now" instead of "no". Redirects are not followed: the file names where keys come from.
 *
 * For one thread: the loop's. */
#ifndef DOOR_ISSUERS_H
#define DOOR_ISSUERS_H

#include "base/env.h"
#include "door/jwt.h"

#include <uv.h>

#define ISSUERS_WAITING_MAX 1024 /* questions that wait for keys; further ones are answered with "not now" */
/* After a failure, and between two readings for the sake of unknown keys: a tenth of `refresh`, but not more. */
#define ISSUERS_AGAIN_MS     10000
#define ISSUERS_TIMEOUT_MS   10000 /* of one reading */
#define ISSUERS_CONNECT_MS   5000
#define ISSUERS_BEARER_BYTES JWT_BYTES_MAX

struct issuers;

/* The list is copied, its texts and arrays are borrowed until issuers_close has called back. A file that cannot be read
 * or holds no keys is an error; an address is asked as soon as the loop runs. */
enum err_code issuers_new(uv_loop_t *loop, struct env *env, const struct jwt_issuer *list, size_t count,
                          struct issuers **out, struct err *err);
/* Nothing may wait any more. closed is called from the loop; the issuers are gone then. */
void issuers_close(struct issuers *issuers, void (*closed)(void *user), void *user);

/* Whether `iss` is one of them. */
bool issuers_has(const struct issuers *issuers, const char *iss);

enum issuers_verdict { ISSUERS_YES, ISSUERS_NO, ISSUERS_NOT_NOW };

/* One token to judge. The asker's, until done is called. */
struct issuers_question {
    struct arena *arena; /* holds what comes out */
    struct str token;    /* borrowed until done */
    void *user;
    void (*done)(struct issuers_question *question);
    /* out */
    enum issuers_verdict verdict;
    struct caller caller; /* ISSUERS_YES */
    struct err err;       /* else: the sentence for the caller */
    /* the issuers' */
    struct jwt jwt;
    struct issuers_question *next, **at;
};
/* done is called once, at once or later. */
void issuers_ask(struct issuers *issuers, struct issuers_question *question);
/* Nobody waits for the answer any more: done will not be called. Only before it was. */
void issuers_withdraw(struct issuers *issuers, struct issuers_question *question);

#endif
