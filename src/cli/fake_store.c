#include "cli/fake_store.h"

#include "base/mem.h"
#include "cli/fake_fault.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- counts ---- */

static struct fake_count *slot_of(const struct fake_counts *counts, uint64_t hash)
{
    size_t i = hash & (counts->cap - 1);
    while (counts->slots[i].hash && counts->slots[i].hash != hash)
        i = (i + 1) & (counts->cap - 1);
    return &counts->slots[i];
}

static void counts_grow(struct fake_counts *counts)
{
    struct fake_counts grown = *counts;
    grown.cap = counts->cap ? counts->cap * 2 : 1024;
    grown.slots = mem_zero(grown.cap * sizeof *grown.slots);
    for (size_t i = 0; i < counts->cap; i++) {
        if (counts->slots[i].hash)
            *slot_of(&grown, counts->slots[i].hash) = counts->slots[i];
    }
    free(counts->slots);
    *counts = grown;
}

static uint64_t count_hash(struct str text)
{
    uint64_t hash = fake_hash(text, 1);
    return hash ? hash : 1;
}

static struct fake_count *counts_find_hash(const struct fake_counts *counts, uint64_t hash)
{
    if (!counts->cap)
        return NULL;
    struct fake_count *count = slot_of(counts, hash);
    return count->hash ? count : NULL;
}

struct fake_count *fake_counts_find(const struct fake_counts *counts, struct str text)
{
    return counts_find_hash(counts, count_hash(text));
}

struct fake_count *fake_counts_get(struct fake_counts *counts, struct str text)
{
    if (counts->used * 2 >= counts->cap)
        counts_grow(counts);
    uint64_t hash = count_hash(text);
    struct fake_count *count = slot_of(counts, hash);
    if (!count->hash) {
        count->hash = hash;
        count->text = counts->used < counts->texts_max ? mem_copy_bytes(text.p, text.n) : NULL;
        counts->used++;
    }
    return count;
}

void fake_counts_release(struct fake_counts *counts)
{
    for (size_t i = 0; i < counts->cap; i++)
        free(counts->slots[i].text);
    free(counts->slots);
    *counts = (struct fake_counts){.texts_max = counts->texts_max};
}

/* ---- the store ---- */

void fake_store_init(struct fake_store *store, size_t objects_max)
{
    memset(store, 0, sizeof *store);
    store->objects_max = objects_max;
    size_t buckets = 1024;
    while (buckets < objects_max)
        buckets *= 2;
    store->bucket_mask = buckets - 1;
    store->ring = mem_zero(objects_max * sizeof(struct fake_object *));
    store->ids = mem_zero(buckets * sizeof(struct fake_object *));
    store->keys = mem_zero(buckets * sizeof(struct fake_key *));
    store->references.texts_max = objects_max;
    store->business.texts_max = objects_max;
    store->oldest = store->next = 1;
}

static void object_free(struct fake_object *object)
{
    if (object)
        free(object->text);
    free(object);
}

void fake_store_reset(struct fake_store *store)
{
    for (uint64_t seq = store->oldest; seq < store->next; seq++) {
        object_free(store->ring[seq % store->objects_max]);
        store->ring[seq % store->objects_max] = NULL;
    }
    store->oldest = store->next;
    memset(store->ids, 0, (store->bucket_mask + 1) * sizeof(struct fake_object *));
    while (store->key_oldest)
        fake_store_key_drop(store, store->key_oldest);
    fake_counts_release(&store->references);
    fake_counts_release(&store->business);
    memset(store->collection_effects, 0, sizeof store->collection_effects);
    store->collection_count = 0;
    store->totals = (struct fake_totals){0};
}

void fake_store_release(struct fake_store *store)
{
    fake_store_reset(store);
    free(store->ring);
    free(store->ids);
    free(store->keys);
}

int fake_store_collection(struct fake_store *store, struct str name)
{
    for (unsigned i = 0; i < store->collection_count; i++) {
        if (str_is(name, store->collections[i]))
            return (int)i;
    }
    if (name.n == 0 || name.n > FAKE_COLLECTION_NAME_MAX || store->collection_count == FAKE_COLLECTIONS_MAX)
        return -1;
    for (size_t i = 0; i < name.n; i++) {
        if (!strchr("abcdefghijklmnopqrstuvwxyz0123456789_-", name.p[i]) || !name.p[i])
            return -1;
    }
    char *text = store->collections[store->collection_count];
    memcpy(text, name.p, name.n);
    text[name.n] = 0;
    return (int)store->collection_count++;
}

static struct fake_object **id_bucket(const struct fake_store *store, unsigned collection, struct str id)
{
    return &store->ids[fake_hash(id, collection + 7) & store->bucket_mask];
}

static void forget_object(struct fake_store *store, uint64_t seq)
{
    struct fake_object *object = store->ring[seq % store->objects_max];
    struct fake_object **at = id_bucket(store, object->collection, object->id);
    while (*at != object)
        at = &(*at)->bucket_next;
    *at = object->bucket_next;
    struct fake_count *count =
        object->reference_hash ? counts_find_hash(&store->references, object->reference_hash) : NULL;
    if (count) {
        struct fake_object **link = &count->newest;
        while (*link && *link != object)
            link = &(*link)->reference_next;
        if (*link)
            *link = NULL; /* the oldest object is the end of its list */
    }
    store->ring[seq % store->objects_max] = NULL;
    object_free(object);
    store->totals.objects_forgotten++;
}

static bool reserved(struct str name)
{
    return str_is(name, "id") || str_is(name, "object") || str_is(name, "status") || str_is(name, "created") ||
           str_is(name, "created_ms") || str_is(name, "version") || str_is(name, "reference");
}

static void write_members(struct buf *out, const struct json *body)
{
    for (uint32_t i = 0; i < body->count; i++) {
        const struct json_member *member = &body->members[i];
        if (reserved(member->name))
            continue;
        buf_add_char(out, ',');
        json_write_string(out, member->name);
        buf_add_char(out, ':');
        json_write(out, &member->value);
    }
}

/* id, reference and members one after another in one block. */
static void set_texts(struct fake_object *object, struct str id, struct str reference, const struct json *body)
{
    struct buf text;
    buf_init(&text, 0);
    buf_add_str(&text, id);
    buf_add_str(&text, reference);
    write_members(&text, body);
    size_t n;
    char *block = buf_detach(&text, &n);
    object->id = (struct str){block, id.n};
    object->reference = reference.p ? (struct str){block + id.n, reference.n} : STR_NONE;
    object->members = (struct str){block + id.n + reference.n, n - id.n - reference.n};
    free(object->text);
    object->text = block;
}

void fake_store_count_effect(struct fake_store *store, unsigned collection, struct str reference, struct str business)
{
    store->totals.effects++;
    store->collection_effects[collection]++;
    if (reference.p && fake_counts_get(&store->references, reference)->effects++)
        store->totals.double_by_reference++;
    if (business.p && fake_counts_get(&store->business, business)->effects++)
        store->totals.double_by_key++;
}

size_t fake_number_text(char *out, uint64_t number)
{
    char digits[20];
    size_t at = sizeof digits;
    do {
        digits[--at] = (char)('0' + number % 10);
        number /= 10;
    } while (number);
    memcpy(out, digits + at, sizeof digits - at);
    out[sizeof digits - at] = 0;
    return sizeof digits - at;
}

/* "refund_17" for refunds; out has room for FAKE_COLLECTION_NAME_MAX + 24. */
static struct str fresh_id(char *out, const char *collection, uint64_t seq)
{
    size_t n = strlen(collection);
    memcpy(out, collection, n + 1);
    if (n > 1 && collection[n - 1] == 's')
        n--;
    out[n++] = '_';
    return (struct str){out, n + fake_number_text(out + n, seq)};
}

struct fake_object *fake_store_create(struct fake_store *store, const struct fake_new_object *made)
{
    uint64_t seq = store->next++;
    if (seq - store->oldest >= store->objects_max)
        forget_object(store, store->oldest++);
    struct fake_object *object = mem_zero(sizeof *object);
    char fresh[FAKE_COLLECTION_NAME_MAX + 24];
    struct str id = made->id;
    if (!id.p)
        id = fresh_id(fresh, store->collections[made->collection], seq);
    set_texts(object, id, made->reference, made->body);
    object->seq = seq;
    object->collection = made->collection;
    object->version = 1;
    object->created_ms = made->wall_ms;
    object->visible_at_ms = made->visible_at_ms;
    object->settles_at_ms = made->settles_at_ms;
    object->ends_failed = made->ends_failed;
    store->ring[seq % store->objects_max] = object;
    struct fake_object **bucket = id_bucket(store, made->collection, object->id);
    object->bucket_next = *bucket;
    *bucket = object;
    fake_store_count_effect(store, made->collection, made->reference, made->business);
    if (made->reference.p) {
        struct fake_count *count = fake_counts_get(&store->references, made->reference);
        object->reference_hash = count->hash;
        object->reference_next = count->newest;
        count->newest = object;
    }
    return object;
}

bool fake_store_replace(struct fake_object *object, const struct json *body)
{
    struct buf members;
    buf_init(&members, 0);
    write_members(&members, body);
    bool same = str_equal(buf_str(&members), object->members);
    buf_release(&members);
    if (same)
        return false;
    char *old = object->text;
    struct str id = object->id, reference = object->reference;
    object->text = NULL;
    set_texts(object, id, reference, body);
    free(old);
    object->version++;
    return true;
}

struct fake_object *fake_store_find(struct fake_store *store, unsigned collection, struct str id)
{
    struct fake_object *object = *id_bucket(store, collection, id);
    while (object && !(object->collection == collection && !object->deleted && str_equal(object->id, id)))
        object = object->bucket_next;
    return object;
}

const char *fake_object_status(const struct fake_object *object, int64_t now_ms)
{
    if (object->settles_at_ms > now_ms)
        return "pending";
    return object->ends_failed ? "failed" : "succeeded";
}

static void add_number(struct buf *out, uint64_t number)
{
    char digits[24];
    buf_add(out, digits, fake_number_text(digits, number));
}

void fake_object_write(const struct fake_store *store, const struct fake_object *object, int64_t now_ms,
                       struct buf *out)
{
    buf_add_text(out, "{\"id\":");
    json_write_string(out, object->id);
    buf_add_text(out, ",\"object\":\"");
    buf_add_text(out, store->collections[object->collection]);
    buf_add_text(out, "\",\"status\":\"");
    buf_add_text(out, fake_object_status(object, now_ms));
    buf_add_text(out, "\",\"created\":");
    add_number(out, (uint64_t)object->created_ms / 1000);
    buf_add_text(out, ",\"version\":");
    add_number(out, object->version);
    buf_add_text(out, ",\"reference\":");
    if (object->reference.p)
        json_write_string(out, object->reference);
    else
        buf_add_text(out, "null");
    buf_add_str(out, object->members);
    buf_add_char(out, '}');
}

/* ---- keys ---- */

void fake_fingerprint(const struct json *body, uint64_t out[2])
{
    struct buf text;
    buf_init(&text, 0);
    json_canonical(&text, body);
    out[0] = fake_hash(buf_str(&text), 3);
    out[1] = fake_hash(buf_str(&text), 5);
    buf_release(&text);
}

struct fake_key *fake_store_key_find(struct fake_store *store, struct str text, int64_t now_ms, int64_t retention_ms)
{
    uint64_t hash = fake_hash(text, 9);
    struct fake_key *key = store->keys[hash & store->bucket_mask];
    while (key && !(key->hash == hash && str_is(text, key->text)))
        key = key->bucket_next;
    if (key && !key->in_progress && retention_ms && now_ms - key->done_ms >= retention_ms) {
        fake_store_key_drop(store, key);
        store->totals.keys_forgotten++;
        return NULL;
    }
    return key;
}

void fake_store_key_drop(struct fake_store *store, struct fake_key *key)
{
    struct fake_key **at = &store->keys[key->hash & store->bucket_mask];
    while (*at != key)
        at = &(*at)->bucket_next;
    *at = key->bucket_next;
    *(key->newer ? &key->newer->older : &store->key_newest) = key->older;
    *(key->older ? &key->older->newer : &store->key_oldest) = key->newer;
    store->key_count--;
    free(key->text);
    free(key->answer);
    free(key);
}

/* Room for one more: the oldest that is not being worked on goes. */
static void make_room(struct fake_store *store)
{
    struct fake_key *key = store->key_oldest;
    while (key && key->in_progress)
        key = key->newer;
    if (key) {
        fake_store_key_drop(store, key);
        store->totals.keys_forgotten++;
    }
}

struct fake_key *fake_store_key_add(struct fake_store *store, struct str text, const uint64_t fingerprint[2])
{
    if (store->key_count >= store->objects_max)
        make_room(store);
    struct fake_key *key = mem_zero(sizeof *key);
    key->hash = fake_hash(text, 9);
    key->text = mem_copy_bytes(text.p, text.n);
    key->fingerprint[0] = fingerprint[0];
    key->fingerprint[1] = fingerprint[1];
    key->in_progress = true;
    struct fake_key **bucket = &store->keys[key->hash & store->bucket_mask];
    key->bucket_next = *bucket;
    *bucket = key;
    key->older = store->key_newest;
    *(store->key_newest ? &store->key_newest->newer : &store->key_oldest) = key;
    store->key_newest = key;
    store->key_count++;
    return key;
}

void fake_store_key_done(struct fake_key *key, int status, struct str answer, int64_t now_ms)
{
    key->in_progress = false;
    key->done_ms = now_ms;
    key->status = status;
    free(key->answer);
    key->answer = mem_copy_bytes(answer.p, answer.n);
    key->answer_size = answer.n;
}
