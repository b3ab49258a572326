/* From a schema's JSON to its nodes:
 *
 *   index the document  ->  a node per place, from a work list  ->  dynamic scope table  ->  refuse endless references
 *   (schema_index.c)        (one function per keyword)
 *
 * Nodes are made for every subschema of the schema itself, so that a mistake in a rarely used one shows at once, and
 * for what "$ref" needs of other documents. */
#include "base/mem.h"
#include "core/schema_index.h"
#include "core/schema_node.h"

#include <stdlib.h>

struct compiler {
    struct schema *schema;
    struct arena scratch;
    struct schema_index index;
    struct schema_place **queue; /* places whose nodes exist, by node id */
    size_t queued, queue_room;
    struct str *dynamic_names; /* of anchors that a $dynamicRef needs */
    size_t dynamic_count, dynamic_room;
    struct err *err;
};

/* One keyword being compiled. */
struct site {
    struct compiler *compiler;
    struct schema_place *place;
    struct schema_node *node;
    const char *keyword;
    const struct json *value;
};

#define REFUSE(site, ...) schema_refuse((site)->compiler->err, (site)->place, (site)->keyword, __VA_ARGS__)

static void *room(struct site *site, size_t bytes)
{
    return arena_zero(&site->compiler->schema->arena, bytes);
}

static void *room_for(struct arena *arena, void *old, size_t count, size_t *have, size_t element_bytes)
{
    if (count < *have)
        return old;
    *have = *have ? *have * 2 : 64;
    void *larger = arena_alloc(arena, *have * element_bytes);
    if (count)
        memcpy(larger, old, count * element_bytes);
    return larger;
}

/* ---- nodes ---- */

/* The node of a place; a new one is filled when its turn comes. */
static struct schema_node *node_of(struct compiler *c, struct schema_place *place)
{
    if (!place->node) {
        struct schema_node *node = arena_zero(&c->schema->arena, sizeof *node);
        node->id = (uint32_t)c->queued;
        place->node = node;
        c->queue = room_for(&c->scratch, c->queue, c->queued, &c->queue_room, sizeof *c->queue);
        c->queue[c->queued++] = place;
    }
    return place->node;
}

static const struct schema_node *child(struct site *site, const struct json *value)
{
    return node_of(site->compiler, schema_index_find(&site->compiler->index, value));
}

static struct schema_number_rules *number_rules(struct site *site)
{
    if (!site->node->number)
        site->node->number = room(site, sizeof *site->node->number);
    return site->node->number;
}

static struct schema_string_rules *string_rules(struct site *site)
{
    if (!site->node->string) {
        site->node->string = room(site, sizeof *site->node->string);
        site->node->string->length_max = SCHEMA_COUNT_MAX;
    }
    return site->node->string;
}

static struct schema_array_rules *array_rules(struct site *site)
{
    struct schema_array_rules *rules = site->node->array;
    if (!rules) {
        site->node->array = rules = room(site, sizeof *rules);
        rules->contains_min = 1;
        rules->contains_max = rules->items_max = SCHEMA_COUNT_MAX;
        rules->contains_evaluates = !site->place->resource->dialect.draft_7;
    }
    return rules;
}

static struct schema_object_rules *object_rules(struct site *site)
{
    if (!site->node->object) {
        site->node->object = room(site, sizeof *site->node->object);
        site->node->object->members_max = SCHEMA_COUNT_MAX;
    }
    return site->node->object;
}

static struct schema_logic_rules *logic_rules(struct site *site)
{
    if (!site->node->logic)
        site->node->logic = room(site, sizeof *site->node->logic);
    return site->node->logic;
}

/* ---- reading values ---- */

static enum err_code read_count(struct site *site, uint64_t *out)
{
    int64_t count;
    if (site->value->type != JSON_NUMBER || !json_number_is_integer(site->value->text) ||
        json_number_compare(site->value->text, STR("0")) < 0)
        return REFUSE(site, "must be a non-negative integer");
    *out = json_number_int64(site->value->text, &count) ? (uint64_t)count : SCHEMA_COUNT_MAX;
    return ERR_NONE;
}

static enum err_code read_bound(struct site *site, struct schema_bound *out)
{
    if (site->value->type != JSON_NUMBER)
        return REFUSE(site, "must be a number");
    out->text = site->value->text;
    out->is_plain = schema_plain_integer(out->text, &out->plain);
    return ERR_NONE;
}

static enum err_code read_list(struct site *site, struct schema_nodes *out)
{
    if (site->value->type != JSON_ARRAY || !site->value->count)
        return REFUSE(site, "must be a non-empty array of schemas");
    out->count = site->value->count;
    out->nodes = room(site, out->count * sizeof *out->nodes);
    for (uint32_t i = 0; i < out->count; i++)
        out->nodes[i] = child(site, &site->value->items[i]);
    return ERR_NONE;
}

static enum err_code read_one(struct site *site, const struct schema_node **out)
{
    *out = child(site, site->value);
    return ERR_NONE;
}

static enum err_code check_names(struct site *site, const struct json *names)
{
    if (names->type != JSON_ARRAY)
        return REFUSE(site, "must be an array of names");
    for (uint32_t i = 0; i < names->count; i++)
        if (names->items[i].type != JSON_STRING)
            return REFUSE(site, "must be an array of names");
    return ERR_NONE;
}

static enum err_code read_pattern(struct site *site, struct str text, const struct schema_pattern **out)
{
    struct schema *schema = site->compiler->schema;
    struct schema_pattern *pattern = NULL;
    struct err why = {0};
    enum err_code rc = schema_pattern_new(&schema->arena, text, &pattern, &why);
    if (rc)
        return REFUSE(site, "%s", why.text);
    schema_pattern_link(pattern, schema->patterns);
    schema->patterns = pattern;
    *out = pattern;
    return ERR_NONE;
}

/* ---- keywords for any type ---- */

static uint8_t type_bit(const struct json *name)
{
    static const struct {
        const char *name;
        uint8_t bit;
    } types[] = {
        {"null", SCHEMA_NULL},     {"boolean", SCHEMA_BOOLEAN}, {"integer", SCHEMA_INTEGER}, {"number", SCHEMA_NUMBER},
        {"string", SCHEMA_STRING}, {"array", SCHEMA_ARRAY},     {"object", SCHEMA_OBJECT},
    };
    for (size_t i = 0; name->type == JSON_STRING && i < sizeof types / sizeof *types; i++)
        if (str_is(name->text, types[i].name))
            return types[i].bit;
    return 0;
}

static enum err_code compile_type(struct site *site)
{
    const struct json *value = site->value;
    bool list = value->type == JSON_ARRAY;
    uint32_t count = list ? value->count : 1;
    for (uint32_t i = 0; i < count; i++) {
        uint8_t bit = type_bit(list ? &value->items[i] : value);
        if (!bit)
            return REFUSE(site, "must be one or an array of null, boolean, integer, number, string, array, object");
        site->node->types |= bit;
    }
    return count ? ERR_NONE : REFUSE(site, "must name at least one type");
}

#define CHOICES_SHOWN_MAX 200 /* bytes */

/* The values themselves stand in a published schema, so that naming them gives nothing away. */
static const char *choices_text(struct site *site, const struct json *values, uint32_t count, bool is_const)
{
    struct buf buf;
    buf_init(&buf, 0);
    buf_add_text(&buf, is_const ? "must be " : "must be one of ");
    for (uint32_t i = 0; i < count; i++) {
        size_t before = buf.n;
        buf_add_text(&buf, i ? ", " : "");
        json_write(&buf, &values[i]);
        if (buf.n > CHOICES_SHOWN_MAX) {
            buf.n = before;
            buf.p[before] = '\0';
            if (!i)
                buf_add_text(&buf, is_const ? "the value of the schema" : "the values of the schema");
            else
                buf_printf(&buf, ", ... (%u values)", count);
            break;
        }
    }
    if (!count)
        buf_add_text(&buf, "the values of the schema (there are none)");
    const char *text = arena_copy_str(&site->compiler->schema->arena, buf_str(&buf));
    buf_release(&buf);
    return text;
}

static enum err_code compile_choices(struct site *site, const struct json *values, uint32_t count, bool is_const,
                                     const struct schema_values **out)
{
    struct schema_values *choices = room(site, sizeof *choices);
    choices->values = values;
    choices->count = count;
    choices->is_const = is_const;
    choices->text = choices_text(site, values, count, is_const);
    *out = choices;
    return ERR_NONE;
}

static enum err_code compile_enum(struct site *site)
{
    if (site->value->type != JSON_ARRAY)
        return REFUSE(site, "must be an array of values");
    return compile_choices(site, site->value->items, site->value->count, false, &site->node->choices);
}

static enum err_code compile_const(struct site *site)
{
    return compile_choices(site, site->value, 1, true, &site->node->constant);
}

static enum err_code compile_default(struct site *site)
{
    site->node->fallback = site->value;
    return ERR_NONE;
}

/* ---- references ---- */

static enum err_code resolve(struct site *site, struct schema_place **target, const struct schema_anchor **anchor)
{
    if (site->value->type != JSON_STRING)
        return REFUSE(site, "must be a URI reference");
    return schema_index_resolve(&site->compiler->index, site->place, site->keyword, site->value->text, target, anchor);
}

static enum err_code compile_ref(struct site *site)
{
    struct schema_place *target = NULL;
    const struct schema_anchor *anchor;
    enum err_code rc = resolve(site, &target, &anchor);
    if (!rc)
        site->node->ref = node_of(site->compiler, target);
    return rc;
}

#define DYNAMIC_NAMES_MAX 256

/* Number of the name among those that need the dynamic scope; UINT32_MAX when there are too many of them. */
static uint32_t dynamic_name(struct compiler *c, struct str name)
{
    for (size_t i = 0; i < c->dynamic_count; i++)
        if (str_equal(c->dynamic_names[i], name))
            return (uint32_t)i;
    if (c->dynamic_count == DYNAMIC_NAMES_MAX)
        return UINT32_MAX;
    c->dynamic_names =
        room_for(&c->scratch, c->dynamic_names, c->dynamic_count, &c->dynamic_room, sizeof *c->dynamic_names);
    c->dynamic_names[c->dynamic_count] = name;
    return (uint32_t)c->dynamic_count++;
}

static enum err_code compile_dynamic_ref(struct site *site)
{
    struct schema_place *target = NULL;
    const struct schema_anchor *anchor;
    enum err_code rc = resolve(site, &target, &anchor);
    if (rc)
        return rc;
    struct schema_dynamic_ref *ref = room(site, sizeof *ref);
    ref->fallback = node_of(site->compiler, target);
    ref->is_dynamic = anchor && anchor->dynamic;
    if (ref->is_dynamic)
        ref->name = dynamic_name(site->compiler, anchor->name);
    if (ref->name == UINT32_MAX)
        return REFUSE(site, "the schema uses more than %d dynamic anchors", DYNAMIC_NAMES_MAX);
    site->node->dynamic_ref = ref;
    return ERR_NONE;
}

/* ---- logic ---- */

static enum err_code compile_all_of(struct site *site)
{
    return read_list(site, &logic_rules(site)->all_of);
}

static enum err_code compile_any_of(struct site *site)
{
    return read_list(site, &logic_rules(site)->any_of);
}

static enum err_code compile_one_of(struct site *site)
{
    return read_list(site, &logic_rules(site)->one_of);
}

static enum err_code compile_not(struct site *site)
{
    return read_one(site, &logic_rules(site)->negated);
}

/* "then" and "else" mean nothing without it. */
static enum err_code compile_if(struct site *site)
{
    const struct json *then = json_get(site->place->value, "then"), *otherwise = json_get(site->place->value, "else");
    struct schema_logic_rules *rules = logic_rules(site);
    rules->then = then ? child(site, then) : NULL;
    rules->otherwise = otherwise ? child(site, otherwise) : NULL;
    return read_one(site, &rules->condition);
}

/* ---- numbers ---- */

static enum err_code compile_minimum(struct site *site)
{
    return read_bound(site, &number_rules(site)->minimum);
}

static enum err_code compile_maximum(struct site *site)
{
    return read_bound(site, &number_rules(site)->maximum);
}

static enum err_code compile_exclusive_minimum(struct site *site)
{
    return read_bound(site, &number_rules(site)->exclusive_minimum);
}

static enum err_code compile_exclusive_maximum(struct site *site)
{
    return read_bound(site, &number_rules(site)->exclusive_maximum);
}

static enum err_code compile_multiple_of(struct site *site)
{
    if (site->value->type != JSON_NUMBER || json_number_compare(site->value->text, STR("0")) <= 0)
        return REFUSE(site, "must be a number greater than 0");
    number_rules(site)->multiple_of = site->value->text;
    return ERR_NONE;
}

/* ---- strings ---- */

static enum err_code compile_min_length(struct site *site)
{
    return read_count(site, &string_rules(site)->length_min);
}

static enum err_code compile_max_length(struct site *site)
{
    return read_count(site, &string_rules(site)->length_max);
}

static enum err_code compile_pattern(struct site *site)
{
    if (site->value->type != JSON_STRING)
        return REFUSE(site, "must be a string");
    return read_pattern(site, site->value->text, &string_rules(site)->pattern);
}

/* ---- arrays ---- */

static enum err_code compile_prefix_items(struct site *site)
{
    return read_list(site, &array_rules(site)->prefix);
}

static enum err_code compile_items(struct site *site)
{
    struct schema_array_rules *rules = array_rules(site);
    if (site->value->type == JSON_ARRAY)
        return REFUSE(site, "an array of schemas is draft 7; 2020-12 calls it prefixItems");
    rules->rest_keyword = "items";
    return read_one(site, &rules->rest);
}

/* Draft 7: an array is today's prefixItems; only then "additionalItems" says something. */
static enum err_code compile_items_7(struct site *site)
{
    if (site->value->type != JSON_ARRAY)
        return compile_items(site);
    struct schema_array_rules *rules = array_rules(site);
    const struct json *rest = json_get(site->place->value, "additionalItems");
    if (rest) {
        rules->rest = child(site, rest);
        rules->rest_keyword = "additionalItems";
    }
    return site->value->count ? read_list(site, &rules->prefix) : ERR_NONE;
}

static enum err_code compile_contains(struct site *site)
{
    return read_one(site, &array_rules(site)->contains);
}

static enum err_code compile_min_contains(struct site *site)
{
    return read_count(site, &array_rules(site)->contains_min);
}

static enum err_code compile_max_contains(struct site *site)
{
    return read_count(site, &array_rules(site)->contains_max);
}

static enum err_code compile_min_items(struct site *site)
{
    return read_count(site, &array_rules(site)->items_min);
}

static enum err_code compile_max_items(struct site *site)
{
    return read_count(site, &array_rules(site)->items_max);
}

static enum err_code compile_unique_items(struct site *site)
{
    if (site->value->type != JSON_BOOL)
        return REFUSE(site, "must be true or false");
    if (site->value->boolean)
        array_rules(site)->unique = true;
    return ERR_NONE;
}

static enum err_code compile_unevaluated_items(struct site *site)
{
    site->node->evaluates = true;
    return read_one(site, &array_rules(site)->unevaluated);
}

/* ---- objects ---- */

static enum err_code require_object(struct site *site)
{
    return site->value->type == JSON_OBJECT ? ERR_NONE : REFUSE(site, "must be an object");
}

/* Only checked here; compile_members makes one table of "properties" and "required". */
static enum err_code compile_properties(struct site *site)
{
    enum err_code rc = require_object(site);
    if (!rc)
        object_rules(site);
    return rc;
}

static enum err_code compile_required(struct site *site)
{
    enum err_code rc = check_names(site, site->value);
    if (!rc)
        object_rules(site);
    return rc;
}

static enum err_code compile_pattern_properties(struct site *site)
{
    enum err_code rc = require_object(site);
    if (rc)
        return rc;
    struct schema_object_rules *rules = object_rules(site);
    struct schema_pattern_property *patterns = room(site, site->value->count * sizeof *patterns);
    for (uint32_t i = 0; !rc && i < site->value->count; i++) {
        const struct json_member *member = &site->value->members[i];
        patterns[i].node = child(site, &member->value);
        rc = read_pattern(site, member->name, &patterns[i].pattern);
    }
    rules->patterns = patterns;
    rules->pattern_count = site->value->count;
    return rc;
}

static enum err_code compile_additional_properties(struct site *site)
{
    return read_one(site, &object_rules(site)->additional);
}

static enum err_code compile_property_names(struct site *site)
{
    return read_one(site, &object_rules(site)->names);
}

static enum err_code compile_min_properties(struct site *site)
{
    return read_count(site, &object_rules(site)->members_min);
}

static enum err_code compile_max_properties(struct site *site)
{
    return read_count(site, &object_rules(site)->members_max);
}

/* dependentRequired, dependentSchemas, and draft 7's dependencies, where an array means names and a schema itself. */
static enum err_code compile_dependents(struct site *site)
{
    enum err_code rc = require_object(site);
    if (rc)
        return rc;
    bool names_only = strcmp(site->keyword, "dependentRequired") == 0;
    bool schemas_only = strcmp(site->keyword, "dependentSchemas") == 0;
    struct schema_object_rules *rules = object_rules(site);
    struct schema_dependent *all = room(site, (rules->dependent_count + site->value->count) * sizeof *all);
    if (rules->dependent_count)
        memcpy(all, rules->dependents, rules->dependent_count * sizeof *all);
    for (uint32_t i = 0; !rc && i < site->value->count; i++) {
        const struct json_member *member = &site->value->members[i];
        struct schema_dependent *dependent = &all[rules->dependent_count++];
        dependent->name = member->name;
        dependent->keyword = site->keyword;
        if (names_only || (!schemas_only && member->value.type == JSON_ARRAY)) {
            rc = check_names(site, &member->value);
            dependent->required = &member->value;
        } else {
            dependent->node = child(site, &member->value);
        }
    }
    rules->dependents = all;
    return rc;
}

static enum err_code compile_unevaluated_properties(struct site *site)
{
    site->node->evaluates = true;
    return read_one(site, &object_rules(site)->unevaluated);
}

#define PROBES_MAX 256 /* far more than names that were not made to collide need */

/* The entry of name, made when it is new; NULL when too many names collide. */
static struct schema_property *property(struct schema_object_rules *rules, struct str name)
{
    struct schema_property *known = (struct schema_property *)schema_property_find(rules, name);
    if (known)
        return known;
    struct schema_property *new = &rules->properties[rules->property_count++];
    new->name = name;
    new->hash = schema_hash(name);
    uint32_t probe = 0;
    while (rules->slots[((uint32_t) new->hash + probe) & rules->slot_mask])
        if (++probe > PROBES_MAX)
            return NULL;
    rules->slots[((uint32_t) new->hash + probe) & rules->slot_mask] = rules->property_count;
    if (probe > rules->probe_max)
        rules->probe_max = probe;
    return new;
}

static enum err_code compile_members(struct site *site, const struct json *properties, const struct json *required)
{
    struct schema_object_rules *rules = site->node->object;
    uint32_t count = (properties ? properties->count : 0) + (required ? required->count : 0);
    uint32_t slots = 4;
    while (slots < count * 2)
        slots *= 2;
    rules->properties = room(site, count * sizeof *rules->properties);
    rules->slots = room(site, slots * sizeof *rules->slots);
    rules->slot_mask = slots - 1;
    struct schema_property *entry = rules->properties;
    for (uint32_t i = 0; entry && properties && i < properties->count; i++) {
        entry = property(rules, properties->members[i].name);
        if (entry)
            entry->node = child(site, &properties->members[i].value);
    }
    for (uint32_t i = 0; entry && required && i < required->count; i++) {
        entry = property(rules, required->items[i].text);
        if (!entry)
            break;
        rules->required_count += !entry->required;
        entry->required = true;
    }
    return entry ? ERR_NONE : schema_refuse(site->compiler->err, site->place, NULL, "too many member names collide");
}

/* ---- one node ---- */

enum { DRAFT_7 = 1, DRAFT_2020 = 2, BOTH = 3 };

static const struct keyword {
    const char *name;
    unsigned drafts;
    unsigned vocabulary;
    enum err_code (*compile)(struct site *site);
} keywords[] = {
    {"$ref", BOTH, VOCABULARY_CORE, compile_ref},
    {"$dynamicRef", DRAFT_2020, VOCABULARY_CORE, compile_dynamic_ref},
    {"type", BOTH, VOCABULARY_VALIDATION, compile_type},
    {"enum", BOTH, VOCABULARY_VALIDATION, compile_enum},
    {"const", BOTH, VOCABULARY_VALIDATION, compile_const},
    {"default", BOTH, VOCABULARY_CORE, compile_default},
    {"allOf", BOTH, VOCABULARY_APPLICATOR, compile_all_of},
    {"anyOf", BOTH, VOCABULARY_APPLICATOR, compile_any_of},
    {"oneOf", BOTH, VOCABULARY_APPLICATOR, compile_one_of},
    {"not", BOTH, VOCABULARY_APPLICATOR, compile_not},
    {"if", BOTH, VOCABULARY_APPLICATOR, compile_if},
    {"minimum", BOTH, VOCABULARY_VALIDATION, compile_minimum},
    {"maximum", BOTH, VOCABULARY_VALIDATION, compile_maximum},
    {"exclusiveMinimum", BOTH, VOCABULARY_VALIDATION, compile_exclusive_minimum},
    {"exclusiveMaximum", BOTH, VOCABULARY_VALIDATION, compile_exclusive_maximum},
    {"multipleOf", BOTH, VOCABULARY_VALIDATION, compile_multiple_of},
    {"minLength", BOTH, VOCABULARY_VALIDATION, compile_min_length},
    {"maxLength", BOTH, VOCABULARY_VALIDATION, compile_max_length},
    {"pattern", BOTH, VOCABULARY_VALIDATION, compile_pattern},
    {"prefixItems", DRAFT_2020, VOCABULARY_APPLICATOR, compile_prefix_items},
    {"items", DRAFT_2020, VOCABULARY_APPLICATOR, compile_items},
    {"items", DRAFT_7, VOCABULARY_APPLICATOR, compile_items_7},
    {"contains", BOTH, VOCABULARY_APPLICATOR, compile_contains},
    {"minContains", DRAFT_2020, VOCABULARY_VALIDATION, compile_min_contains},
    {"maxContains", DRAFT_2020, VOCABULARY_VALIDATION, compile_max_contains},
    {"minItems", BOTH, VOCABULARY_VALIDATION, compile_min_items},
    {"maxItems", BOTH, VOCABULARY_VALIDATION, compile_max_items},
    {"uniqueItems", BOTH, VOCABULARY_VALIDATION, compile_unique_items},
    {"unevaluatedItems", DRAFT_2020, VOCABULARY_UNEVALUATED, compile_unevaluated_items},
    {"properties", BOTH, VOCABULARY_APPLICATOR, compile_properties},
    {"required", BOTH, VOCABULARY_VALIDATION, compile_required},
    {"patternProperties", BOTH, VOCABULARY_APPLICATOR, compile_pattern_properties},
    {"additionalProperties", BOTH, VOCABULARY_APPLICATOR, compile_additional_properties},
    {"propertyNames", BOTH, VOCABULARY_APPLICATOR, compile_property_names},
    {"minProperties", BOTH, VOCABULARY_VALIDATION, compile_min_properties},
    {"maxProperties", BOTH, VOCABULARY_VALIDATION, compile_max_properties},
    {"dependentRequired", DRAFT_2020, VOCABULARY_VALIDATION, compile_dependents},
    {"dependentSchemas", DRAFT_2020, VOCABULARY_APPLICATOR, compile_dependents},
    {"dependencies", BOTH, VOCABULARY_APPLICATOR, compile_dependents}, /* old, still common without "$schema" */
    {"unevaluatedProperties", DRAFT_2020, VOCABULARY_UNEVALUATED, compile_unevaluated_properties},
};

static const struct keyword *keyword_of(const struct schema_dialect *dialect, struct str name)
{
    unsigned draft = dialect->draft_7 ? DRAFT_7 : DRAFT_2020;
    for (size_t i = 0; i < sizeof keywords / sizeof *keywords; i++)
        if ((keywords[i].drafts & draft) && (keywords[i].vocabulary & dialect->vocabularies) &&
            str_is(name, keywords[i].name))
            return &keywords[i];
    return NULL;
}

/* Maps of schemas that say nothing by themselves must still be maps. */
static enum err_code check_definitions(struct site *site, struct str name)
{
    bool definitions = str_is(name, "$defs") || str_is(name, "definitions");
    site->keyword = str_is(name, "$defs") ? "$defs" : "definitions";
    return definitions ? require_object(site) : ERR_NONE;
}

static enum err_code compile_object(struct site *site)
{
    const struct schema_dialect *dialect = &site->place->resource->dialect;
    const struct json *value = site->place->value, *properties = NULL, *required = NULL;
    bool only_ref = schema_ref_hides(dialect, value);
    enum err_code rc = ERR_NONE;
    for (uint32_t i = 0; !rc && i < value->count; i++) {
        const struct json_member *member = &value->members[i];
        const struct keyword *keyword = keyword_of(dialect, member->name);
        site->value = &member->value;
        if (!keyword) {
            rc = check_definitions(site, member->name);
            continue;
        }
        if (only_ref && keyword->compile != compile_ref)
            continue;
        site->keyword = keyword->name;
        rc = keyword->compile(site);
        if (keyword->compile == compile_properties)
            properties = site->value;
        else if (keyword->compile == compile_required)
            required = site->value;
    }
    if (!rc && (properties || required))
        rc = compile_members(site, properties, required);
    return rc;
}

static enum err_code compile_place(struct compiler *c, struct schema_place *place)
{
    struct site site = {.compiler = c, .place = place, .node = place->node};
    place->node->resource = place->resource->id;
    switch (place->value->type) {
    case JSON_OBJECT: return compile_object(&site);
    case JSON_BOOL: place->node->never = !place->value->boolean; return ERR_NONE;
    case JSON_NULL:
    case JSON_NUMBER:
    case JSON_STRING:
    case JSON_ARRAY: break;
    }
    return schema_refuse(c->err, place, NULL, "must be a schema (an object, true or false), is %s",
                         json_type_name(place->value->type));
}

/* ---- dynamic scope ---- */

/* Gives nodes to the dynamic anchors that references may end at. Compiling them may bring in more documents, hence the
 * caller's loop. True when there was a new one. */
static bool add_dynamic_targets(struct compiler *c)
{
    size_t before = c->queued;
    for (size_t r = 0; c->dynamic_count && r < c->index.resource_count; r++)
        for (const struct schema_anchor *anchor = c->index.resources[r]->anchors; anchor; anchor = anchor->next)
            for (size_t i = 0; anchor->dynamic && i < c->dynamic_count; i++)
                if (str_equal(anchor->name, c->dynamic_names[i]))
                    node_of(c, anchor->place);
    return c->queued > before;
}

#define DYNAMIC_CELLS_MAX 1000000

static enum err_code fill_dynamic_table(struct compiler *c)
{
    size_t cells = c->index.resource_count * c->dynamic_count;
    if (cells > DYNAMIC_CELLS_MAX)
        return err_set(c->err, ERR_LIMIT, "the schema has too many $dynamicAnchor names and $id resources");
    c->schema->dynamic_names = (uint32_t)c->dynamic_count;
    c->schema->dynamic = arena_zero(&c->schema->arena, cells * sizeof *c->schema->dynamic);
    for (size_t r = 0; c->dynamic_count && r < c->index.resource_count; r++)
        for (const struct schema_anchor *anchor = c->index.resources[r]->anchors; anchor; anchor = anchor->next)
            for (size_t i = 0; anchor->dynamic && i < c->dynamic_count; i++)
                if (str_equal(anchor->name, c->dynamic_names[i]))
                    c->schema->dynamic[r * c->dynamic_count + i] = anchor->place->node;
    return ERR_NONE;
}

/* ---- endless references ---- */

struct edges {
    struct arena *arena;
    uint32_t (*pairs)[2]; /* from, to */
    size_t count, room;
};

static void add_edge(struct edges *edges, const struct schema_node *from, const struct schema_node *to)
{
    if (!to)
        return;
    edges->pairs = room_for(edges->arena, edges->pairs, edges->count, &edges->room, sizeof *edges->pairs);
    edges->pairs[edges->count][0] = from->id;
    edges->pairs[edges->count++][1] = to->id;
}

static void add_edges(struct edges *edges, const struct schema_node *from, const struct schema_nodes *to)
{
    for (uint32_t i = 0; i < to->count; i++)
        add_edge(edges, from, to->nodes[i]);
}

/* To the nodes that are applied to the same instance. */
static void add_in_place_edges(struct edges *edges, const struct schema_node *node)
{
    const struct schema_logic_rules *logic = node->logic;
    add_edge(edges, node, node->ref);
    if (logic) {
        add_edges(edges, node, &logic->all_of);
        add_edges(edges, node, &logic->any_of);
        add_edges(edges, node, &logic->one_of);
        add_edge(edges, node, logic->negated);
        add_edge(edges, node, logic->condition);
        add_edge(edges, node, logic->then);
        add_edge(edges, node, logic->otherwise);
    }
    for (uint32_t i = 0; node->object && i < node->object->dependent_count; i++)
        add_edge(edges, node, node->object->dependents[i].node);
}

/* Takes away, again and again, nodes without an edge to a node that is left. Returns how many are left, and in
 * out_degree[] more than 0 for those. */
static size_t peel(struct arena *scratch, const struct edges *edges, uint32_t *out_degree, size_t nodes)
{
    uint32_t *first = arena_zero(scratch, (nodes + 2) * sizeof *first); /* incoming edges by target: a counting sort */
    uint32_t *from = arena_alloc(scratch, edges->count * sizeof *from);
    uint32_t *stack = arena_alloc(scratch, nodes * sizeof *stack);
    size_t stacked = 0, left = nodes;
    for (size_t i = 0; i < edges->count; i++) {
        out_degree[edges->pairs[i][0]]++;
        first[edges->pairs[i][1] + 2]++;
    }
    for (size_t i = 2; i < nodes + 2; i++)
        first[i] += first[i - 1];
    for (size_t i = 0; i < edges->count; i++)
        from[first[edges->pairs[i][1] + 1]++] = edges->pairs[i][0];
    for (size_t i = 0; i < nodes; i++)
        if (!out_degree[i])
            stack[stacked++] = (uint32_t)i;
    while (stacked) {
        uint32_t node = stack[--stacked];
        left--;
        for (uint32_t i = first[node]; i < first[node + 1]; i++)
            if (!--out_degree[from[i]])
                stack[stacked++] = from[i];
    }
    return left;
}

/* Every node that is left leads to another such node; after as many steps as there are nodes one is on a cycle. */
static uint32_t on_cycle(struct arena *scratch, const struct edges *edges, const uint32_t *out_degree, size_t nodes)
{
    uint32_t *next = arena_alloc(scratch, nodes * sizeof *next);
    uint32_t at = 0;
    for (size_t i = 0; i < edges->count; i++)
        if (out_degree[edges->pairs[i][0]] && out_degree[edges->pairs[i][1]]) {
            at = edges->pairs[i][0];
            next[at] = edges->pairs[i][1];
        }
    for (size_t i = 0; i < nodes; i++)
        at = next[at];
    return at;
}

static enum err_code refuse_endless(struct compiler *c)
{
    struct edges edges = {.arena = &c->scratch};
    for (size_t i = 0; i < c->queued; i++)
        add_in_place_edges(&edges, c->queue[i]->node);
    uint32_t *out_degree = arena_zero(&c->scratch, c->queued * sizeof *out_degree);
    if (!peel(&c->scratch, &edges, out_degree, c->queued))
        return ERR_NONE;
    uint32_t id = on_cycle(&c->scratch, &edges, out_degree, c->queued);
    return schema_refuse(c->err, c->queue[id], NULL, "refers to itself for the same value without end");
}

/* ---- defaults ---- */

#define FALLBACK_REFS_MAX 16

/* The default of a property may stand behind its "$ref". */
static const struct json *find_fallback(const struct schema_node *node)
{
    for (int i = 0; node && i < FALLBACK_REFS_MAX; i++, node = node->ref)
        if (node->fallback)
            return node->fallback;
    return NULL;
}

static void find_fallbacks(struct compiler *c)
{
    for (size_t i = 0; i < c->queued; i++) {
        struct schema_object_rules *rules = c->queue[i]->node->object;
        for (uint32_t p = 0; rules && p < rules->property_count; p++) {
            rules->properties[p].fallback = find_fallback(rules->properties[p].node);
            rules->has_defaults |= rules->properties[p].fallback != NULL;
        }
        if (rules && rules->has_defaults)
            c->schema->has_defaults = true;
    }
}

/* ---- all of it ---- */

static enum err_code compile_queue(struct compiler *c)
{
    enum err_code rc = ERR_NONE;
    size_t done = 0;
    do
        while (!rc && done < c->queued)
            rc = compile_place(c, c->queue[done++]);
    while (!rc && add_dynamic_targets(c));
    return rc;
}

static enum err_code compile_schema(struct compiler *c, const struct json *value)
{
    struct schema_place *root = NULL;
    enum err_code rc = schema_index_root(&c->index, json_copy(&c->schema->arena, value), &root);
    if (rc)
        return rc;
    size_t own_places = c->index.place_count;
    for (size_t i = 0; i < own_places; i++)
        node_of(c, c->index.places[i]);
    c->schema->root = root->node;
    rc = compile_queue(c);
    if (!rc)
        rc = fill_dynamic_table(c);
    if (!rc)
        rc = refuse_endless(c);
    if (!rc)
        find_fallbacks(c);
    return rc;
}

enum err_code schema_new(const struct json *value, const struct schema_document *documents, size_t document_count,
                         struct schema **out, struct err *err)
{
    struct err own = {0}; /* callers may pass NULL */
    struct schema *schema = mem_zero(sizeof *schema);
    struct compiler c = {.schema = schema, .err = err ? err : &own};
    arena_init(&schema->arena);
    arena_init(&c.scratch);
    c.index = (struct schema_index){.scratch = &c.scratch,
                                    .arena = &schema->arena,
                                    .documents = documents,
                                    .document_count = document_count,
                                    .err = c.err};
    enum err_code rc = compile_schema(&c, value);
    arena_release(&c.scratch);
    if (rc)
        schema_free(schema);
    else
        *out = schema;
    return rc;
}

void schema_free(struct schema *schema)
{
    if (!schema)
        return;
    for (struct schema_pattern *pattern = schema->patterns; pattern; pattern = schema_pattern_next(pattern))
        schema_pattern_release(pattern);
    arena_release(&schema->arena);
    free(schema);
}
