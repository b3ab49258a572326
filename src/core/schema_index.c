#include "core/schema_index.h"

#include "core/schema_meta.h"
#include "core/schema_node.h"
#include "core/schema_uri.h"

#include <stdarg.h>
#include <stdio.h>

/* ---- map ---- */

struct schema_map_entry {
    struct str key; /* absent: free */
    void *value;
};

/* Keys come from schemas of strangers; the address of the table makes it hard to find keys that collide. */
static uint64_t hash(const struct schema_map *map, struct str key)
{
    return schema_hash_from((uintptr_t)map->entries, key);
}

/* The entry of key, or the free one where it belongs. */
static struct schema_map_entry *map_slot(const struct schema_map *map, struct str key)
{
    size_t at = hash(map, key) & (map->room - 1);
    while (map->entries[at].key.p && !str_equal(map->entries[at].key, key))
        at = (at + 1) & (map->room - 1);
    return &map->entries[at];
}

static void *map_get(const struct schema_map *map, struct str key)
{
    return map->room ? map_slot(map, key)->value : NULL;
}

static void map_grow(struct schema_map *map, struct arena *arena)
{
    struct schema_map old = *map;
    map->room = old.room ? old.room * 2 : 64;
    map->entries = arena_zero(arena, map->room * sizeof *map->entries);
    for (size_t i = 0; i < old.room; i++)
        if (old.entries[i].key.p)
            *map_slot(map, old.entries[i].key) = old.entries[i];
}

/* Borrows key. Keeps the old value when there is one and returns it; else NULL. */
static void *map_put(struct schema_map *map, struct arena *arena, struct str key, void *value)
{
    if (map->used * 2 >= map->room)
        map_grow(map, arena);
    struct schema_map_entry *entry = map_slot(map, key);
    if (entry->key.p)
        return entry->value;
    *entry = (struct schema_map_entry){key.p ? key : STR(""), value};
    map->used++;
    return NULL;
}

static struct str address_key(struct arena *arena, const struct json *value)
{
    return arena_str(arena, (struct str){(const char *)&value, sizeof value});
}

struct schema_place *schema_index_find(const struct schema_index *index, const struct json *value)
{
    return map_get(&index->by_value, (struct str){(const char *)&value, sizeof value});
}

/* ---- errors ---- */

static void add_pointer(struct buf *buf, const struct schema_place *place)
{
    if (place->parent)
        add_pointer(buf, place->parent);
    else if (place->resource->document)
        buf_printf(buf, "%.*s#", STR_ARG(place->resource->uri));
    buf_add_str(buf, place->path);
}

enum err_code schema_refuse(struct err *err, const struct schema_place *place, const char *keyword, const char *format,
                            ...)
{
    struct buf buf;
    char text[ERR_TEXT_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    buf_init(&buf, 0);
    add_pointer(&buf, place);
    if (keyword) {
        buf_add_char(&buf, '/');
        buf_add_text(&buf, keyword);
    }
    err_set(err, ERR_INVALID, "%s%s%s", buf.n ? buf.p : "", buf.n ? ": " : "", text);
    buf_release(&buf);
    return ERR_INVALID;
}

/* ---- dialects ---- */

#define SCHEMA_2020 "https://json-schema.org/draft/2020-12/schema"
#define VOCABULARIES_ALL                                                                                               \
    (VOCABULARY_CORE | VOCABULARY_APPLICATOR | VOCABULARY_UNEVALUATED | VOCABULARY_VALIDATION | VOCABULARY_OTHER)

static const struct schema_dialect dialect_2020 = {.vocabularies = VOCABULARIES_ALL};
static const struct schema_dialect dialect_7 = {
    .draft_7 = true,
    .vocabularies = VOCABULARY_CORE | VOCABULARY_APPLICATOR | VOCABULARY_VALIDATION,
};

static unsigned vocabulary(struct str uri)
{
    static const struct {
        const char *name;
        unsigned bit;
    } known[] = {
        {"core", VOCABULARY_CORE},
        {"applicator", VOCABULARY_APPLICATOR},
        {"unevaluated", VOCABULARY_UNEVALUATED},
        {"validation", VOCABULARY_VALIDATION},
        {"meta-data", VOCABULARY_OTHER},
        {"format-annotation", VOCABULARY_OTHER},
        {"content", VOCABULARY_OTHER},
    };
    struct str head = STR("https://json-schema.org/draft/2020-12/vocab/");
    if (uri.n <= head.n || memcmp(uri.p, head.p, head.n) != 0)
        return 0;
    struct str name = {uri.p + head.n, uri.n - head.n};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (str_is(name, known[i].name))
            return known[i].bit;
    return 0;
}

static struct str without_empty_fragment(struct str uri)
{
    if (uri.n && uri.p[uri.n - 1] == '#')
        uri.n--;
    return uri;
}

static const struct json *find_document(const struct schema_index *index, struct str uri)
{
    for (size_t i = 0; i < index->document_count; i++)
        if (str_equal(without_empty_fragment(str_of(index->documents[i].uri)), uri))
            return index->documents[i].value;
    return NULL;
}

static bool known_dialect(struct str uri, struct schema_dialect *out)
{
    if (str_is(uri, SCHEMA_2020) || str_is(uri, "http://json-schema.org/draft/2020-12/schema"))
        *out = dialect_2020;
    else if (str_is(uri, "http://json-schema.org/draft-07/schema") ||
             str_is(uri, "https://json-schema.org/draft-07/schema"))
        *out = dialect_7;
    else
        return false;
    return true;
}

/* A custom meta-schema is written in a known dialect and may switch vocabularies off. */
static enum err_code custom_dialect(struct schema_index *index, const struct schema_place *at, const struct json *meta,
                                    struct schema_dialect *out)
{
    struct str base = json_get_text(meta, "$schema");
    if (base.p && !known_dialect(without_empty_fragment(base), out))
        return schema_refuse(index->err, at, "$schema", "the meta-schema's own dialect is not supported: %.*s",
                             STR_ARG(base));
    if (!base.p)
        *out = dialect_2020;
    const struct json *list = json_get(meta, "$vocabulary");
    if (!list || list->type != JSON_OBJECT)
        return ERR_NONE;
    out->vocabularies = VOCABULARY_CORE;
    for (uint32_t i = 0; i < list->count; i++) {
        const struct json_member *member = &list->members[i];
        unsigned bit = vocabulary(member->name);
        bool required = member->value.type == JSON_BOOL && member->value.boolean;
        if (!bit && required)
            return schema_refuse(index->err, at, "$schema",
                                 "the meta-schema requires the vocabulary %.*s, which is not supported",
                                 STR_ARG(member->name));
        out->vocabularies |= bit;
    }
    return ERR_NONE;
}

/* Reads "$schema" of a resource's root; without one *out stays as it is. */
static enum err_code read_dialect(struct schema_index *index, const struct schema_place *at, struct schema_dialect *out)
{
    const struct json *value = json_get(at->value, "$schema");
    if (!value)
        return ERR_NONE;
    if (value->type != JSON_STRING)
        return schema_refuse(index->err, at, "$schema", "must be a string");
    struct str uri = without_empty_fragment(value->text);
    if (known_dialect(uri, out))
        return ERR_NONE;
    const struct json *meta = find_document(index, uri);
    if (meta)
        return custom_dialect(index, at, meta, out);
    return schema_refuse(index->err, at, "$schema", "%.*s is not supported (2020-12 and draft-07 are)",
                         STR_ARG(value->text));
}

bool schema_ref_hides(const struct schema_dialect *dialect, const struct json *value)
{
    return dialect->draft_7 && json_get(value, "$ref");
}

/* ---- where keywords hold schemas ---- */

enum schema_shape schema_keyword_shape(const struct schema_dialect *dialect, struct str keyword)
{
    enum { DRAFT_7 = 1, DRAFT_2020 = 2, BOTH = 3 };
    static const struct {
        const char *keyword;
        enum schema_shape shape;
        unsigned drafts;
        unsigned vocabulary;
    } table[] = {
        {"properties", SHAPE_MAP, BOTH, VOCABULARY_APPLICATOR},
        {"patternProperties", SHAPE_MAP, BOTH, VOCABULARY_APPLICATOR},
        {"additionalProperties", SHAPE_ONE, BOTH, VOCABULARY_APPLICATOR},
        {"propertyNames", SHAPE_ONE, BOTH, VOCABULARY_APPLICATOR},
        {"items", SHAPE_ONE, DRAFT_2020, VOCABULARY_APPLICATOR},
        {"items", SHAPE_ONE_OR_LIST, DRAFT_7, VOCABULARY_APPLICATOR},
        {"prefixItems", SHAPE_LIST, DRAFT_2020, VOCABULARY_APPLICATOR},
        {"additionalItems", SHAPE_ONE, DRAFT_7, VOCABULARY_APPLICATOR},
        {"contains", SHAPE_ONE, BOTH, VOCABULARY_APPLICATOR},
        {"allOf", SHAPE_LIST, BOTH, VOCABULARY_APPLICATOR},
        {"anyOf", SHAPE_LIST, BOTH, VOCABULARY_APPLICATOR},
        {"oneOf", SHAPE_LIST, BOTH, VOCABULARY_APPLICATOR},
        {"not", SHAPE_ONE, BOTH, VOCABULARY_APPLICATOR},
        {"if", SHAPE_ONE, BOTH, VOCABULARY_APPLICATOR},
        {"then", SHAPE_ONE, BOTH, VOCABULARY_APPLICATOR},
        {"else", SHAPE_ONE, BOTH, VOCABULARY_APPLICATOR},
        {"dependentSchemas", SHAPE_MAP, DRAFT_2020, VOCABULARY_APPLICATOR},
        {"dependencies", SHAPE_MAP_OF_EITHER, BOTH, VOCABULARY_APPLICATOR},
        {"unevaluatedItems", SHAPE_ONE, DRAFT_2020, VOCABULARY_UNEVALUATED},
        {"unevaluatedProperties", SHAPE_ONE, DRAFT_2020, VOCABULARY_UNEVALUATED},
        {"contentSchema", SHAPE_ONE, DRAFT_2020, VOCABULARY_OTHER},
        /* Each draft has its own word; both are common in schemas of either. */
        {"$defs", SHAPE_MAP, BOTH, VOCABULARY_CORE},
        {"definitions", SHAPE_MAP, BOTH, VOCABULARY_CORE},
    };
    unsigned draft = dialect->draft_7 ? DRAFT_7 : DRAFT_2020;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if ((table[i].drafts & draft) && (table[i].vocabulary & dialect->vocabularies) &&
            str_is(keyword, table[i].keyword))
            return table[i].shape;
    return SHAPE_NONE;
}

/* ---- walking a document ---- */

static void *grown(struct arena *arena, void *old, size_t count, size_t *room, size_t element_bytes)
{
    if (count < *room)
        return old;
    *room = *room ? *room * 2 : 64;
    void *larger = arena_alloc(arena, *room * element_bytes);
    if (count)
        memcpy(larger, old, count * element_bytes);
    return larger;
}

static struct schema_resource *add_resource(struct schema_index *index, struct str uri, struct schema_place *root,
                                            struct schema_dialect dialect)
{
    struct schema_resource *resource = arena_zero(index->scratch, sizeof *resource);
    resource->uri = uri;
    resource->root = root;
    resource->dialect = dialect;
    resource->document = index->document_number;
    resource->id = (uint32_t)index->resource_count;
    index->resources =
        grown(index->scratch, index->resources, index->resource_count, &index->resource_room, sizeof *index->resources);
    index->resources[index->resource_count++] = resource;
    return resource;
}

static enum err_code add_place(struct schema_index *index, const struct schema_place *parent,
                               struct schema_resource *resource, struct str path, const struct json *value,
                               struct schema_place **out)
{
    if (index->place_count >= SCHEMA_PLACES_MAX)
        return err_set(index->err, ERR_LIMIT, "the schema has more than %d subschemas", SCHEMA_PLACES_MAX);
    if (parent && parent->depth >= SCHEMA_DEPTH_MAX)
        return err_set(index->err, ERR_LIMIT, "the schema is nested deeper than %d levels", SCHEMA_DEPTH_MAX);
    *out = schema_index_find(index, value);
    if (*out) /* a reference into an unknown keyword came here before */
        return ERR_NONE;
    struct schema_place *place = arena_zero(index->scratch, sizeof *place);
    place->value = value;
    place->resource = resource;
    place->parent = parent;
    place->path = path;
    place->depth = parent ? parent->depth + 1 : 0;
    index->places = grown(index->scratch, index->places, index->place_count, &index->place_room, sizeof *index->places);
    index->places[index->place_count++] = place;
    map_put(&index->by_value, index->scratch, address_key(index->scratch, value), place);
    *out = place;
    return ERR_NONE;
}

static struct str child_path(struct arena *arena, struct str keyword, struct str key)
{
    struct buf buf;
    buf_init(&buf, 0);
    json_pointer_add(&buf, keyword);
    if (key.p)
        json_pointer_add(&buf, key);
    struct str path = arena_str(arena, buf_str(&buf));
    buf_release(&buf);
    return path;
}

static enum err_code add_child(struct schema_index *index, const struct schema_place *parent, struct str keyword,
                               struct str key, const struct json *value)
{
    struct schema_place *child;
    return add_place(index, parent, parent->resource, child_path(index->scratch, keyword, key), value, &child);
}

static enum err_code add_list(struct schema_index *index, const struct schema_place *parent, struct str keyword,
                              const struct json *list)
{
    enum err_code rc = ERR_NONE;
    for (uint32_t i = 0; !rc && i < list->count; i++) {
        char digits[16];
        snprintf(digits, sizeof digits, "%u", i);
        rc = add_child(index, parent, keyword, str_of(digits), &list->items[i]);
    }
    return rc;
}

static enum err_code add_map(struct schema_index *index, const struct schema_place *parent, struct str keyword,
                             const struct json *map, bool arrays_too)
{
    enum err_code rc = ERR_NONE;
    for (uint32_t i = 0; !rc && i < map->count; i++)
        if (arrays_too || map->members[i].value.type != JSON_ARRAY)
            rc = add_child(index, parent, keyword, map->members[i].name, &map->members[i].value);
    return rc;
}

/* Values of the wrong type are left alone: compiling refuses them with a better text. */
static enum err_code add_children(struct schema_index *index, const struct schema_place *place,
                                  const struct json_member *member)
{
    const struct json *value = &member->value;
    switch (schema_keyword_shape(&place->resource->dialect, member->name)) {
    case SHAPE_NONE: return ERR_NONE;
    case SHAPE_ONE_OR_LIST:
        if (value->type == JSON_ARRAY)
            return add_list(index, place, member->name, value);
        return add_child(index, place, member->name, STR_NONE, value);
    case SHAPE_ONE: return add_child(index, place, member->name, STR_NONE, value);
    case SHAPE_LIST: return value->type == JSON_ARRAY ? add_list(index, place, member->name, value) : ERR_NONE;
    case SHAPE_MAP: return value->type == JSON_OBJECT ? add_map(index, place, member->name, value, true) : ERR_NONE;
    case SHAPE_MAP_OF_EITHER:
        return value->type == JSON_OBJECT ? add_map(index, place, member->name, value, false) : ERR_NONE;
    }
    return ERR_NONE;
}

static struct str anchor_key(struct arena *arena, const struct schema_resource *resource, struct str name)
{
    char *key = arena_alloc(arena, sizeof resource->id + name.n + 1);
    memcpy(key, &resource->id, sizeof resource->id);
    memcpy(key + sizeof resource->id, name.p, name.n);
    return (struct str){key, sizeof resource->id + name.n};
}

static struct schema_anchor *find_anchor(const struct schema_index *index, const struct schema_resource *resource,
                                         struct str name)
{
    return map_get(&index->by_anchor, anchor_key(index->scratch, resource, name));
}

static enum err_code add_anchor(struct schema_index *index, struct schema_place *place, const char *keyword,
                                struct str name, bool dynamic)
{
    struct schema_resource *resource = place->resource;
    struct schema_anchor *anchor = find_anchor(index, resource, name);
    if (anchor && anchor->place != place)
        return schema_refuse(index->err, place, keyword, "the anchor %.*s is there twice", STR_ARG(name));
    if (!anchor) {
        anchor = arena_zero(index->scratch, sizeof *anchor);
        anchor->name = name;
        anchor->place = place;
        anchor->next = resource->anchors;
        resource->anchors = anchor;
        map_put(&index->by_anchor, index->scratch, anchor_key(index->scratch, resource, name), anchor);
    }
    anchor->dynamic |= dynamic;
    return ERR_NONE;
}

static enum err_code read_anchor(struct schema_index *index, struct schema_place *place, const char *keyword,
                                 bool dynamic)
{
    const struct json *value = json_get(place->value, keyword);
    if (!value)
        return ERR_NONE;
    if (value->type != JSON_STRING || !value->text.n)
        return schema_refuse(index->err, place, keyword, "must be a name");
    return add_anchor(index, place, keyword, value->text, dynamic);
}

/* "$id" opens a resource; draft 7 uses it for anchors too ("#name"). */
static enum err_code read_id(struct schema_index *index, struct schema_place *place)
{
    const struct json *value = json_get(place->value, "$id");
    if (!value)
        return ERR_NONE;
    if (value->type != JSON_STRING)
        return schema_refuse(index->err, place, "$id", "must be a string");
    bool draft_7 = place->resource->dialect.draft_7;
    struct schema_uri uri = schema_uri_resolve(index->scratch, place->resource->uri, value->text);
    bool anchor = uri.fragment.n > 0;
    if (anchor && !draft_7)
        return schema_refuse(index->err, place, "$id", "must have no fragment");
    bool opens = value->text.n && value->text.p[0] != '#';
    if (opens && !(place == place->resource->root && str_equal(uri.base, place->resource->uri))) {
        struct schema_dialect dialect = place->resource->dialect;
        enum err_code rc = read_dialect(index, place, &dialect);
        if (rc)
            return rc;
        struct schema_resource *resource = add_resource(index, uri.base, place, dialect);
        struct schema_resource *other = map_put(&index->by_uri, index->scratch, uri.base, resource);
        if (other && other->document == resource->document)
            return schema_refuse(index->err, place, "$id", "%.*s is there twice", STR_ARG(uri.base));
        place->resource = resource;
    }
    return anchor ? add_anchor(index, place, "$id", uri.fragment, false) : ERR_NONE;
}

static enum err_code walk_place(struct schema_index *index, struct schema_place *place)
{
    enum err_code rc = ERR_NONE;
    if (place->value->type != JSON_OBJECT)
        return ERR_NONE;
    if (!schema_ref_hides(&place->resource->dialect, place->value)) {
        rc = read_id(index, place);
        if (!rc && !place->resource->dialect.draft_7)
            rc = read_anchor(index, place, "$anchor", false);
        if (!rc && !place->resource->dialect.draft_7)
            rc = read_anchor(index, place, "$dynamicAnchor", true);
    }
    for (uint32_t i = 0; !rc && i < place->value->count; i++)
        rc = add_children(index, place, &place->value->members[i]);
    return rc;
}

/* Breadth first, so that no document can overflow the stack. */
static enum err_code walk(struct schema_index *index, size_t from)
{
    enum err_code rc = ERR_NONE;
    for (size_t i = from; !rc && i < index->place_count; i++)
        rc = walk_place(index, index->places[i]);
    return rc;
}

static enum err_code index_document(struct schema_index *index, struct str uri, struct schema_dialect dialect,
                                    const struct json *value, struct schema_place **out)
{
    size_t from = index->place_count;
    struct schema_resource *resource = add_resource(index, uri, NULL, dialect);
    map_put(&index->by_uri, index->scratch, uri, resource);
    enum err_code rc = add_place(index, NULL, resource, STR(""), value, &resource->root);
    if (!rc)
        rc = read_dialect(index, resource->root, &resource->dialect);
    if (!rc)
        rc = walk(index, from);
    *out = resource->root;
    index->document_number++;
    return rc;
}

enum err_code schema_index_root(struct schema_index *index, const struct json *value, struct schema_place **out)
{
    return index_document(index, STR(""), dialect_2020, value, out);
}

/* ---- references ---- */

/* The value of a document that nobody indexed yet, in the schema's arena; NULL when there is none of that URI. */
static enum err_code load_document(struct schema_index *index, struct str uri, const struct json **out)
{
    const struct json *given = find_document(index, uri);
    struct str text = given ? STR_NONE : schema_meta_text(index->scratch, uri);
    struct json *value = NULL;
    enum err_code rc = ERR_NONE;
    if (given)
        value = json_copy(index->arena, given);
    else if (text.p)
        rc = json_parse(index->arena, text, &json_limits_default, &value, index->err);
    *out = value;
    return rc;
}

static enum err_code find_resource(struct schema_index *index, const struct schema_place *at, const char *keyword,
                                   struct str uri, const struct schema_place **root)
{
    const struct schema_resource *known = map_get(&index->by_uri, uri);
    if (known) {
        *root = known->root;
        return ERR_NONE;
    }
    const struct json *value = NULL;
    struct schema_place *place = NULL;
    enum err_code rc = load_document(index, uri, &value);
    if (rc)
        return rc;
    if (!value)
        return schema_refuse(index->err, at, keyword, "%.*s is not part of this schema, and nothing is fetched",
                             STR_ARG(uri));
    rc = index_document(index, uri, at->resource->dialect, value, &place);
    *root = place;
    return rc;
}

/* Decodes one token of a JSON Pointer; absent when it has a wrong escape. */
static struct str decode_token(struct arena *arena, struct str token)
{
    char *out = arena_alloc(arena, token.n + 1);
    size_t n = 0;
    for (size_t i = 0; i < token.n; i++) {
        char c = token.p[i];
        if (c == '~') {
            char next = i + 1 < token.n ? token.p[++i] : '\0';
            if (next != '0' && next != '1')
                return STR_NONE;
            c = next == '0' ? '~' : '/';
        }
        out[n++] = c;
    }
    return (struct str){out, n};
}

static struct str member_key(struct arena *arena, const struct json *object, struct str name)
{
    char *key = arena_alloc(arena, sizeof object + name.n + 1);
    memcpy(key, &object, sizeof object);
    memcpy(key + sizeof object, name.p, name.n);
    return (struct str){key, sizeof object + name.n};
}

#define LARGE_OBJECT 16 /* members */

/* References into a large "$defs" must not cost a walk through it each. */
static const struct json *member_of_large(struct schema_index *index, const struct json *object, struct str name)
{
    if (!map_get(&index->by_member, member_key(index->scratch, object, object->members[0].name)))
        for (uint32_t i = 0; i < object->count; i++)
            map_put(&index->by_member, index->scratch, member_key(index->scratch, object, object->members[i].name),
                    (void *)&object->members[i].value);
    return map_get(&index->by_member, member_key(index->scratch, object, name));
}

/* What a token of a JSON Pointer leads to; NULL when there is nothing. */
static const struct json *step_into(struct schema_index *index, const struct json *value, struct str token)
{
    if (value->type == JSON_OBJECT) {
        struct str name = decode_token(index->scratch, token);
        if (!name.p)
            return NULL;
        return value->count > LARGE_OBJECT ? member_of_large(index, value, name) : json_get_str(value, name);
    }
    if (value->type != JSON_ARRAY)
        return NULL;
    char pointer[16];
    int n = snprintf(pointer, sizeof pointer, "/%.*s", STR_ARG(token));
    return n < (int)sizeof pointer ? json_pointer_get(value, str_of(pointer)) : NULL;
}

/* Follows a JSON Pointer from the root of a resource. A target that no keyword leads to becomes a place of its own, in
 * the resource of the last place on the way. */
static enum err_code follow_pointer(struct schema_index *index, const struct schema_place *root, struct str pointer,
                                    const struct schema_place *at, const char *keyword, struct schema_place **out)
{
    const struct json *value = root->value;
    const struct schema_place *last = root;
    size_t last_at = 0, next = 0;
    while (value && next < pointer.n) {
        size_t end = next + 1;
        while (end < pointer.n && pointer.p[end] != '/')
            end++;
        value = step_into(index, value, (struct str){pointer.p + next + 1, end - next - 1});
        next = end;
        const struct schema_place *place = value ? schema_index_find(index, value) : NULL;
        if (place) {
            last = place;
            last_at = end;
        }
    }
    if (!value)
        return schema_refuse(index->err, at, keyword, "there is nothing at #%.*s", STR_ARG(pointer));
    if (value->type != JSON_OBJECT && value->type != JSON_BOOL)
        return schema_refuse(index->err, at, keyword, "#%.*s is not a schema", STR_ARG(pointer));
    if (last->value == value) {
        *out = schema_index_find(index, value);
        return ERR_NONE;
    }
    size_t from = index->place_count;
    struct str rest = arena_str(index->scratch, (struct str){pointer.p + last_at, pointer.n - last_at});
    enum err_code rc = add_place(index, last, last->resource, rest, value, out);
    return rc ? rc : walk(index, from);
}

enum err_code schema_index_resolve(struct schema_index *index, const struct schema_place *at, const char *keyword,
                                   struct str reference, struct schema_place **out, const struct schema_anchor **anchor)
{
    struct schema_uri uri = schema_uri_resolve(index->scratch, at->resource->uri, reference);
    const struct schema_place *root = NULL;
    *anchor = NULL;
    enum err_code rc = find_resource(index, at, keyword, uri.base, &root);
    if (rc)
        return rc;
    if (!uri.fragment.n || uri.fragment.p[0] == '/')
        return follow_pointer(index, root, uri.fragment, at, keyword, out);
    *anchor = find_anchor(index, root->resource, uri.fragment);
    if (!*anchor)
        return schema_refuse(index->err, at, keyword, "there is no anchor %.*s", STR_ARG(uri.fragment));
    *out = (*anchor)->place;
    return ERR_NONE;
}
