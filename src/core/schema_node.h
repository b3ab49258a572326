/* The compiled form of a JSON Schema, private to schema_compile.c (writes it) and schema.c (reads it). One node per
 * schema object; every reference is a pointer to its node, so that validation does no URI work. A node holds one rules
 * struct per kind of instance and only those that its keywords need. All of it lives in the schema's arena and is
 * immutable once schema_new returned.
 *
 *   {"type": "object", "required": ["a"],        node(types = OBJECT)
 *    "properties": {"a": {"$ref": "#/$defs/n"}},   object -> table {a: node(ref) --> node(types = INTEGER)}
 *    "$defs": {"n": {"type": "integer"}}}                                   ^ found once, at compile time */
#ifndef CORE_SCHEMA_NODE_H
#define CORE_SCHEMA_NODE_H

#include "base/arena.h"
#include "base/json.h"
#include "core/schema_pattern.h"

struct schema_node;

/* Bits of schema_node.types. "number" allows integers too: an instance 1.0 has both bits. */
enum {
    SCHEMA_NULL = 1,
    SCHEMA_BOOLEAN = 2,
    SCHEMA_INTEGER = 4,
    SCHEMA_NUMBER = 8,
    SCHEMA_STRING = 16,
    SCHEMA_ARRAY = 32,
    SCHEMA_OBJECT = 64
};

#define SCHEMA_COUNT_MAX UINT64_MAX /* of maxLength and its like: no limit */

struct schema_nodes {
    const struct schema_node **nodes;
    uint32_t count;
};

struct schema_values {
    const struct json *values; /* of enum, or the one of const */
    uint32_t count;
    bool is_const;
    const char *text; /* "must be one of ..." */
};

/* One bound of a number. */
struct schema_bound {
    struct str text; /* absent: no bound */
    int64_t plain;   /* its value when is_plain */
    bool is_plain;   /* a plain integer of at most 18 digits: the common case, compared without decimals */
};

struct schema_number_rules {
    struct schema_bound minimum, maximum, exclusive_minimum, exclusive_maximum;
    struct str multiple_of; /* absent: none */
};

struct schema_string_rules {
    uint64_t length_min, length_max; /* code points */
    const struct schema_pattern *pattern;
};

struct schema_array_rules {
    struct schema_nodes prefix;
    const struct schema_node *rest; /* items behind the prefix; NULL: anything */
    const char *rest_keyword;       /* "items" or draft 7's "additionalItems" */
    const struct schema_node *contains;
    uint64_t contains_min, contains_max;
    uint64_t items_min, items_max;
    bool unique;
    bool contains_evaluates; /* 2020-12: what contains matched counts as evaluated */
    const struct schema_node *unevaluated;
};

/* A name that "properties" or "required" mentions. */
struct schema_property {
    struct str name;
    uint64_t hash;
    const struct schema_node *node; /* NULL: only required */
    const struct json *fallback;    /* its "default"; NULL: none */
    bool required;
};

struct schema_pattern_property {
    const struct schema_pattern *pattern;
    const struct schema_node *node;
};

/* What the presence of one member asks for. */
struct schema_dependent {
    struct str name;
    const char *keyword;
    const struct json *required;    /* array of names, or NULL */
    const struct schema_node *node; /* for the whole object, or NULL */
};

struct schema_object_rules {
    struct schema_property *properties;
    uint32_t property_count;
    uint32_t required_count;
    uint32_t *slots;    /* open addressing: index + 1 into properties, 0 = empty */
    uint32_t slot_mask; /* number of slots - 1; no slots when property_count is 0 */
    uint32_t probe_max; /* how far from its first slot a name can be: bounds the look-ups of whatever a caller sends */
    const struct schema_pattern_property *patterns;
    uint32_t pattern_count;
    const struct schema_dependent *dependents;
    uint32_t dependent_count;
    const struct schema_node *additional;
    const struct schema_node *names;
    const struct schema_node *unevaluated;
    uint64_t members_min, members_max;
    bool has_defaults; /* some property has a fallback */
};

/* Schemas that are applied to the same instance. */
struct schema_logic_rules {
    struct schema_nodes all_of, any_of, one_of;
    const struct schema_node *negated; /* "not" */
    const struct schema_node *condition, *then, *otherwise;
};

/* "$dynamicRef". When its static target is a "$dynamicAnchor", the outermost resource in the dynamic scope that has one
 * of that name wins; otherwise it is a "$ref". */
struct schema_dynamic_ref {
    const struct schema_node *fallback; /* the static target */
    bool is_dynamic;
    uint32_t name; /* column of schema.dynamic */
};

struct schema_node {
    uint32_t id;       /* number among the schema's nodes */
    uint32_t resource; /* row of schema.dynamic */
    uint8_t types;     /* 0: any */
    bool never;        /* the schema false */
    bool evaluates;    /* has unevaluatedItems or unevaluatedProperties */
    const struct schema_node *ref;
    const struct schema_dynamic_ref *dynamic_ref;
    const struct schema_values *choices;  /* enum */
    const struct schema_values *constant; /* const */
    struct schema_number_rules *number;
    struct schema_string_rules *string;
    struct schema_array_rules *array;
    struct schema_object_rules *object;
    struct schema_logic_rules *logic;
    const struct json *fallback; /* "default" */
};

struct schema {
    struct arena arena;
    const struct schema_node *root;
    struct schema_pattern *patterns;    /* list of all, for release */
    const struct schema_node **dynamic; /* [resource][name]; NULL entries: no such anchor */
    uint32_t dynamic_names;             /* columns; 0: no $dynamicRef that needs a scope */
    bool has_defaults;
};

static inline uint64_t schema_hash_from(uint64_t seed, struct str s)
{
    uint64_t h = (seed ^ s.n) * UINT64_C(0x9e3779b97f4a7c15);
    size_t at = 0;
    for (; at + 8 <= s.n; at += 8) {
        uint64_t word;
        memcpy(&word, s.p + at, 8);
        h = (h ^ word) * UINT64_C(0xff51afd7ed558ccd);
        h ^= h >> 32;
    }
    uint64_t tail = 0;
    for (; at < s.n; at++)
        tail = tail << 8 | (unsigned char)s.p[at];
    h = (h ^ tail) * UINT64_C(0xff51afd7ed558ccd);
    return h ^ h >> 32;
}

static inline uint64_t schema_hash(struct str s)
{
    return schema_hash_from(0, s);
}

/* NULL when neither "properties" nor "required" mentions name. */
static inline const struct schema_property *schema_property_find(const struct schema_object_rules *rules,
                                                                 struct str name)
{
    if (!rules->property_count)
        return NULL;
    uint64_t hash = schema_hash(name);
    for (uint32_t probe = 0; probe <= rules->probe_max; probe++) {
        uint32_t slot = rules->slots[((uint32_t)hash + probe) & rules->slot_mask];
        if (!slot)
            return NULL;
        const struct schema_property *property = &rules->properties[slot - 1];
        if (property->hash == hash && str_equal(property->name, name))
            return property;
    }
    return NULL;
}

/* True for an integer written plainly with at most 18 digits; much cheaper than json_number_int64. */
static inline bool schema_plain_integer(struct str number, int64_t *out)
{
    size_t at = number.n && number.p[0] == '-';
    if (number.n == at || number.n - at > 18)
        return false;
    int64_t value = 0;
    for (size_t i = at; i < number.n; i++) {
        unsigned digit = (unsigned)(number.p[i] - '0');
        if (digit > 9)
            return false;
        value = value * 10 + (int64_t)digit;
    }
    *out = at ? -value : value;
    return true;
}

#endif
