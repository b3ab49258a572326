/* What the fault-injecting provider knows: the objects that were created, the idempotency keys that it remembers, and
 * the count of effects per reference and business key, which is the truth that onced is judged by (design 18). In
 * memory. Objects and keys are kept up to objects_max (the oldest are forgotten and counted as such); counts are never
 * forgotten. */
#ifndef CLI_FAKE_STORE_H
#define CLI_FAKE_STORE_H

#include "base/buf.h"
#include "base/json.h"
#include "base/str.h"

#include <stdbool.h>
#include <stdint.h>

#define FAKE_COLLECTIONS_MAX     64
#define FAKE_COLLECTION_NAME_MAX 40

/* How often something was written and how often that had an effect. */
struct fake_count {
    uint64_t hash;
    char *text; /* NULL for those past the limit of texts */
    unsigned writes, effects;
    struct fake_object *newest; /* by reference only: the newest object with it */
};

struct fake_counts {
    struct fake_count *slots; /* open addressing; hash 0 = empty */
    size_t used, cap;
    size_t texts_max;
};

struct fake_object {
    struct fake_object *bucket_next;    /* same bucket of the id table */
    struct fake_object *reference_next; /* the next older one with the same reference */
    uint64_t seq;                       /* order of creation */
    unsigned collection;
    unsigned version;      /* raised by PUT; its ETag */
    int64_t created_ms;    /* wall clock */
    int64_t visible_at_ms; /* monotonic; look-ups do not see it earlier */
    int64_t settles_at_ms; /* monotonic; pending until then; 0 = settled at once */
    bool ends_failed, deleted;
    uint64_t reference_hash; /* 0 = no reference */
    struct str id, reference,
        members; /* owned, in one block; members: `,"name":value…` as sent, without reserved names */
    char *text;  /* that block */
};

struct fake_key {
    struct fake_key *bucket_next;
    struct fake_key *older, *newer; /* in order of arrival */
    uint64_t hash;
    uint64_t fingerprint[2]; /* of the request body, independent of layout */
    bool in_progress;
    int64_t done_ms; /* monotonic */
    int status;
    char *text;   /* owned: scope + key */
    char *answer; /* owned */
    size_t answer_size;
};

struct fake_totals {
    uint64_t requests, writes, lookups, effects, double_by_reference, double_by_key, replays, in_use, mismatches;
    uint64_t objects_forgotten, keys_forgotten;
};

struct fake_store {
    size_t objects_max;
    struct fake_object **ring; /* by seq % objects_max */
    uint64_t oldest, next;     /* seq of the oldest kept and of the next one */
    struct fake_object **ids;
    size_t bucket_mask;
    struct fake_key **keys;
    struct fake_key *key_newest, *key_oldest;
    size_t key_count;
    struct fake_counts references, business;
    char collections[FAKE_COLLECTIONS_MAX][FAKE_COLLECTION_NAME_MAX + 1];
    uint64_t collection_effects[FAKE_COLLECTIONS_MAX];
    unsigned collection_count;
    struct fake_totals totals;
};

void fake_store_init(struct fake_store *store, size_t objects_max);
void fake_store_release(struct fake_store *store);
/* Forgets everything; ids are not given out again. */
void fake_store_reset(struct fake_store *store);

/* Number of a collection, made when new; -1 when the name is not one or there are too many. */
int fake_store_collection(struct fake_store *store, struct str name);

/* Entry for a text, made when new. Valid until the next call. */
struct fake_count *fake_counts_get(struct fake_counts *counts, struct str text);
void fake_counts_release(struct fake_counts *counts); /* forgets all; may be used again */
/* NULL when there is none. */
struct fake_count *fake_counts_find(const struct fake_counts *counts, struct str text);

struct fake_new_object {
    unsigned collection;
    struct str id;           /* absent: a fresh one is made */
    struct str reference;    /* may be absent */
    struct str business;     /* "collection/value", may be absent */
    const struct json *body; /* an object */
    int64_t now_ms, wall_ms, visible_at_ms, settles_at_ms;
    bool ends_failed;
};

/* Decimal digits of a number at out (room for 21), with a NUL; how many. Answers hold several: printf would be a tenth
 * of the provider's work. */
size_t fake_number_text(char *out, uint64_t number);

/* Creates an object and counts the effect. */
struct fake_object *fake_store_create(struct fake_store *store, const struct fake_new_object *made);
/* Counts an effect that changed or removed an existing object. */
void fake_store_count_effect(struct fake_store *store, unsigned collection, struct str reference, struct str business);
/* New members for an existing object (PUT). False when they are what they were. */
bool fake_store_replace(struct fake_object *object, const struct json *body);

/* By id, also one that is not yet visible; not deleted ones. */
struct fake_object *fake_store_find(struct fake_store *store, unsigned collection, struct str id);

/* The object's JSON as of now. */
void fake_object_write(const struct fake_store *store, const struct fake_object *object, int64_t now_ms,
                       struct buf *out);
const char *fake_object_status(const struct fake_object *object, int64_t now_ms);

/* ---- keys ---- */

/* Fingerprint of a body: equal for equal JSON values. */
void fake_fingerprint(const struct json *body, uint64_t out[2]);

/* The remembered key, unless it is older than retention_ms (0 = for ever). */
struct fake_key *fake_store_key_find(struct fake_store *store, struct str text, int64_t now_ms, int64_t retention_ms);
/* A new key in progress. */
struct fake_key *fake_store_key_add(struct fake_store *store, struct str text, const uint64_t fingerprint[2]);
/* The answer to be replayed. */
void fake_store_key_done(struct fake_key *key, int status, struct str answer, int64_t now_ms);
void fake_store_key_drop(struct fake_store *store, struct fake_key *key);

#endif
