/* Defaults of absent members. */
#include "core/schema.h"

#include "core/schema_node.h"

#define STEPS_MAX 1000000
#define DEPTH_MAX 256

struct filling {
    struct arena *arena;
    int64_t steps; /* left; each of them is a look at a member or an item */
    unsigned depth;
};

static void fill(struct filling *filling, const struct schema_node *node, struct json *value);

/* Composite defaults are copied, because nested defaults may be added to them. */
static void add_absent(struct filling *filling, const struct schema_object_rules *rules, struct json *object)
{
    for (uint32_t i = 0; i < rules->property_count; i++) {
        const struct schema_property *property = &rules->properties[i];
        filling->steps -= property->fallback ? 1 + (int64_t)(object->count / 8) : 0;
        if (filling->steps < 0)
            return;
        if (property->fallback && !json_get_str(object, property->name))
            json_set(filling->arena, object, property->name, *json_copy(filling->arena, property->fallback));
    }
}

static void fill_object(struct filling *filling, const struct schema_object_rules *rules, struct json *object)
{
    if (rules->has_defaults)
        add_absent(filling, rules, object);
    for (uint32_t i = 0; i < object->count && filling->steps > 0; i++) {
        const struct schema_property *property = schema_property_find(rules, object->members[i].name);
        filling->steps--;
        if (property && property->node)
            fill(filling, property->node, &object->members[i].value);
    }
}

static void fill_array(struct filling *filling, const struct schema_array_rules *rules, struct json *array)
{
    for (uint32_t i = 0; i < array->count && filling->steps > 0; i++) {
        const struct schema_node *node = i < rules->prefix.count ? rules->prefix.nodes[i] : rules->rest;
        filling->steps--;
        if (node)
            fill(filling, node, &array->items[i]);
    }
}

static void fill(struct filling *filling, const struct schema_node *node, struct json *value)
{
    if (filling->depth == DEPTH_MAX || --filling->steps < 0)
        return;
    filling->depth++;
    if (value->type == JSON_OBJECT && node->object)
        fill_object(filling, node->object, value);
    if (value->type == JSON_ARRAY && node->array)
        fill_array(filling, node->array, value);
    if (node->ref)
        fill(filling, node->ref, value);
    for (uint32_t i = 0; node->logic && i < node->logic->all_of.count; i++)
        fill(filling, node->logic->all_of.nodes[i], value);
    filling->depth--;
}

void schema_apply_defaults(const struct schema *schema, struct arena *arena, struct json *instance)
{
    struct filling filling = {.arena = arena, .steps = STEPS_MAX};
    if (schema->has_defaults)
        fill(&filling, schema->root, instance);
}
