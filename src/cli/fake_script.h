/* Faults to be used up one per request (POST /_fake/script). */
#ifndef CLI_FAKE_SCRIPT_H
#define CLI_FAKE_SCRIPT_H

#include "base/err.h"
#include "base/json.h"
#include "cli/fake_fault.h"

#define FAKE_SCRIPT_MAX 10000

struct fake_script_entry {
    char *fault;                        /* owned, as all texts here */
    char *collection, *reference, *key; /* NULL = any; key: value of the business key or "collection/value" */
    unsigned nth;                       /* 0 = every matching request, n = only the n-th one */
    unsigned seen;                      /* matching requests so far */
    unsigned times;                     /* how often it may still be used */
    bool lookup;
};

struct fake_script {
    struct fake_script_entry *entries;
    size_t count, cap;
};

void fake_script_init(struct fake_script *script);
void fake_script_release(struct fake_script *script); /* forgets all entries; may be filled again */

/* An array of fault texts or of objects {fault, on: "write" | "lookup", collection, reference, payment_id | key, nth,
 * times}, or an object {"faults": array}. Appends; all or nothing. */
enum err_code fake_script_add(struct fake_script *script, const struct json *list, struct err *err);

struct fake_script_match {
    bool lookup;
    struct str collection, reference, business; /* business: "collection/value" */
};

/* The fault text for this request, used up by it, or NULL. */
const char *fake_script_take(struct fake_script *script, const struct fake_script_match *match);

/* How many entries can still be used. */
size_t fake_script_left(const struct fake_script *script);

#endif
