/* The schema documents while a schema is being compiled: where subschemas are, which URIs and anchors name them, in
 * which dialect they are written. Private to schema_compile.c; all of it lives in a scratch arena that ends with the
 * compilation. */
#ifndef CORE_SCHEMA_INDEX_H
#define CORE_SCHEMA_INDEX_H

#include "base/arena.h"
#include "base/json.h"
#include "core/schema.h"

#define SCHEMA_PLACES_MAX 50000 /* subschemas, together with those of the documents that "$ref" needs */
#define SCHEMA_DEPTH_MAX  200   /* of subschemas in subschemas */

struct schema_node;

enum {
    VOCABULARY_CORE = 1,
    VOCABULARY_APPLICATOR = 2,
    VOCABULARY_UNEVALUATED = 4,
    VOCABULARY_VALIDATION = 8,
    VOCABULARY_OTHER = 16 /* known, asserts nothing: meta-data, format annotation, content */
};

struct schema_dialect {
    bool draft_7; /* else 2020-12 */
    unsigned vocabularies;
};

struct schema_place;

struct schema_anchor {
    struct str name;
    struct schema_place *place;
    struct schema_anchor *next;
    bool dynamic;
};

/* A schema with a URI of its own, and all below it up to the next one. */
struct schema_resource {
    struct str uri; /* without fragment; "" for a root without "$id" */
    uint32_t id;
    struct schema_dialect dialect;
    struct schema_place *root;
    struct schema_anchor *anchors;
    uint32_t document; /* 0: the schema itself; messages name the others */
};

/* Where a schema (object or boolean) stands. */
struct schema_place {
    const struct json *value;
    struct schema_resource *resource;
    const struct schema_place *parent; /* NULL at the root of a document */
    struct str path;                   /* pointer from the parent: "/properties/a" */
    unsigned depth;
    struct schema_node *node; /* NULL until asked for */
};

struct schema_map_entry;

/* From bytes to pointers. */
struct schema_map {
    struct schema_map_entry *entries;
    size_t used, room;
};

struct schema_index {
    struct arena *scratch;
    struct arena *arena; /* the schema's: values that nodes point to */
    const struct schema_document *documents;
    size_t document_count;
    struct schema_place **places; /* in the order in which they were found */
    size_t place_count, place_room;
    struct schema_resource **resources;
    size_t resource_count, resource_room;
    struct schema_map by_value;  /* address of the value -> place */
    struct schema_map by_member; /* address of a large object and name -> value of the member */
    struct schema_map by_uri;    /* URI -> resource */
    struct schema_map by_anchor; /* id of the resource and name -> anchor */
    uint32_t document_number;
    struct err *err;
};

/* Indexes the schema itself (value is in index->arena). */
enum err_code schema_index_root(struct schema_index *index, const struct json *value, struct schema_place **out);

/* The place that a reference at `at` names; indexes another document when it needs to. *anchor is the anchor's entry
 * when the fragment is a plain name, else NULL. */
enum err_code schema_index_resolve(struct schema_index *index, const struct schema_place *at, const char *keyword,
                                   struct str reference, struct schema_place **out,
                                   const struct schema_anchor **anchor);

/* The place of a subschema that the keywords of its dialect lead to. Never NULL for those. */
struct schema_place *schema_index_find(const struct schema_index *index, const struct json *value);

/* Records ERR_INVALID with the pointer of the place (and of the keyword, when not NULL) in front. */
enum err_code schema_refuse(struct err *err, const struct schema_place *place, const char *keyword, const char *format,
                            ...) __attribute__((format(printf, 4, 5)));

/* What a keyword's value holds. */
enum schema_shape {
    SHAPE_NONE,          /* no schemas */
    SHAPE_ONE,           /* a schema */
    SHAPE_LIST,          /* an array of schemas */
    SHAPE_MAP,           /* an object of schemas */
    SHAPE_ONE_OR_LIST,   /* draft 7's items */
    SHAPE_MAP_OF_EITHER, /* draft 7's dependencies: schemas or arrays of names */
};

/* The shape under which keyword holds subschemas in that dialect. */
enum schema_shape schema_keyword_shape(const struct schema_dialect *dialect, struct str keyword);

/* Draft 7: "$ref" hides its siblings. */
bool schema_ref_hides(const struct schema_dialect *dialect, const struct json *value);

#endif
