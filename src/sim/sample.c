#include "sim/sample_parts.h"

#include <stdarg.h>
#include <stdio.h>

#define DEPTH_MAX      24
#define DEPTH_OPTIONAL 5 /* deeper, members that are not required are left out: schemas may contain themselves */
#define REFS_MAX       64
#define ITEMS_MAX      64
#define MEMBERS_MAX    256

/* ---- the place ---- */

struct str sampling_name(const struct sampling *sampling)
{
    struct str path = buf_str(&sampling->path);
    for (size_t at = path.n; at > 0; at--)
        if (path.p[at - 1] == '/')
            return (struct str){path.p + at, path.n - at};
    return STR("");
}

enum err_code sampling_refuse(struct sampling *sampling, const char *format, ...)
{
    char text[ERR_TEXT_MAX];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    struct str path = buf_str(&sampling->path);
    return err_set(sampling->err, ERR_INVALID, "%.*s: %s", path.n ? (int)path.n : 13, path.n ? path.p : "the arguments",
                   text);
}

static size_t enter(struct sampling *sampling, struct str name)
{
    size_t before = sampling->path.n;
    json_pointer_add(&sampling->path, name);
    return before;
}

static void leave(struct sampling *sampling, size_t before)
{
    sampling->path.n = before;
    if (sampling->path.p)
        sampling->path.p[before] = '\0';
}

/* ---- numbers into values ---- */

#define PLACE_MANY 1000000

uint64_t sampling_place(struct sampling *sampling, uint64_t count)
{
    if (count <= 1)
        return 0;
    if (count >= PLACE_MANY || !sampling->request->spread)
        return sampling->n % count;
    uint64_t digit = sampling->rest % count;
    sampling->rest /= count;
    return digit;
}

/* Which branch this attempt takes; the first attempt takes all first ones. */
static unsigned branch(struct sampling *sampling, unsigned count)
{
    unsigned taken = sampling->choice % count;
    sampling->choice /= count;
    sampling->choices = sampling->choices > SAMPLE_ATTEMPTS ? sampling->choices : sampling->choices * count;
    return taken;
}

/* ---- facets ---- */

const struct json *facet_get(const struct facets *facets, size_t i, const char *keyword)
{
    return json_get(facets->list[i], keyword);
}

static uint64_t facets_bound(const struct facets *facets, const char *keyword, uint64_t fallback, bool largest)
{
    bool found = false;
    for (size_t i = 0; i < facets->count; i++) {
        int64_t value = 0;
        const struct json *number = facet_get(facets, i, keyword);
        if (!number || number->type != JSON_NUMBER || !json_number_int64(number->text, &value) || value < 0)
            continue;
        if (!found || (largest ? (uint64_t)value > fallback : (uint64_t)value < fallback))
            fallback = (uint64_t)value;
        found = true;
    }
    return fallback;
}

uint64_t facets_largest(const struct facets *facets, const char *keyword, uint64_t fallback)
{
    return facets_bound(facets, keyword, fallback, true);
}

uint64_t facets_smallest(const struct facets *facets, const char *keyword, uint64_t fallback)
{
    return facets_bound(facets, keyword, fallback, false);
}

/* A schema object below value that has this name as its "$anchor". */
static const struct json *find_anchor(const struct json *value, struct str name, unsigned depth)
{
    if (depth > DEPTH_MAX || (value->type != JSON_OBJECT && value->type != JSON_ARRAY))
        return NULL;
    const struct json *found = NULL;
    struct str anchor = value->type == JSON_OBJECT ? json_get_text(value, "$anchor") : STR_NONE;
    if (anchor.p && str_equal(anchor, name))
        return value;
    for (uint32_t i = 0; i < value->count && !found; i++)
        found = find_anchor(value->type == JSON_OBJECT ? &value->members[i].value : &value->items[i], name, depth + 1);
    return found;
}

static unsigned hex_digit(char c)
{
    return c >= '0' && c <= '9'   ? (unsigned)(c - '0')
           : c >= 'a' && c <= 'f' ? (unsigned)(c - 'a') + 10
           : c >= 'A' && c <= 'F' ? (unsigned)(c - 'A') + 10
                                  : 16;
}

/* Percent-escapes of a URI fragment. */
static struct str unescape(struct arena *arena, struct str text)
{
    char *out = arena_copy_str(arena, text);
    size_t n = 0;
    for (size_t i = 0; i < text.n; i++) {
        bool escape = text.p[i] == '%' && i + 2 < text.n;
        unsigned high = escape ? hex_digit(text.p[i + 1]) : 16, low = escape ? hex_digit(text.p[i + 2]) : 16;
        bool good = high < 16 && low < 16;
        out[n++] = good ? (char)(high << 4 | low) : text.p[i];
        i += good ? 2 : 0;
    }
    return (struct str){out, n};
}

static const struct json *resolve(struct sampling *sampling, struct str ref)
{
    if (ref.n == 0 || ref.p[0] != '#')
        return NULL;
    const struct json *document = sampling->request->schema;
    struct str fragment = unescape(sampling->arena, (struct str){ref.p + 1, ref.n - 1});
    if (fragment.n == 0 || fragment.p[0] == '/')
        return json_pointer_get(document, fragment);
    return find_anchor(document, fragment, 0);
}

static enum err_code collect(struct sampling *sampling, const struct json *schema, struct facets *facets,
                             unsigned refs);

static enum err_code collect_ref(struct sampling *sampling, const struct json *schema, const char *keyword,
                                 struct facets *facets, unsigned refs)
{
    struct str ref = json_get_text(schema, keyword);
    if (!ref.p)
        return ERR_NONE;
    const struct json *target = resolve(sampling, ref);
    if (!target)
        return sampling_refuse(sampling, "%s \"%.*s\" does not lead to a place within the schema", keyword,
                               STR_ARG(ref));
    return collect(sampling, target, facets, refs + 1);
}

static enum err_code collect_branch(struct sampling *sampling, const struct json *schema, const char *keyword,
                                    struct facets *facets, unsigned refs)
{
    const struct json *branches = json_get(schema, keyword);
    if (!branches || branches->type != JSON_ARRAY || branches->count == 0)
        return ERR_NONE;
    return collect(sampling, &branches->items[branch(sampling, branches->count)], facets, refs + 1);
}

/* Either what "if" asks for and then "then", or "else" and hope that "if" does not hold. */
static enum err_code collect_condition(struct sampling *sampling, const struct json *schema, struct facets *facets,
                                       unsigned refs)
{
    const struct json *condition = json_get(schema, "if"), *then = json_get(schema, "then");
    const struct json *otherwise = json_get(schema, "else");
    if (!condition || (!then && !otherwise))
        return ERR_NONE;
    enum err_code code = ERR_NONE;
    if (branch(sampling, 2) == 1)
        return otherwise ? collect(sampling, otherwise, facets, refs + 1) : ERR_NONE;
    code = collect(sampling, condition, facets, refs + 1);
    return code || !then ? code : collect(sampling, then, facets, refs + 1);
}

static enum err_code collect(struct sampling *sampling, const struct json *schema, struct facets *facets, unsigned refs)
{
    if (schema->type == JSON_BOOL)
        return schema->boolean ? ERR_NONE : sampling_refuse(sampling, "the schema allows nothing here");
    if (schema->type != JSON_OBJECT)
        return sampling_refuse(sampling, "expected a schema, got %s", json_type_name(schema->type));
    if (refs > REFS_MAX || facets->count == FACETS_MAX)
        return sampling_refuse(sampling, "the schema refers to itself or to too many others");
    facets->list[facets->count++] = schema;
    enum err_code code = ERR_NONE;
    const struct json *all = json_get(schema, "allOf");
    for (uint32_t i = 0; !code && all && all->type == JSON_ARRAY && i < all->count; i++)
        code = collect(sampling, &all->items[i], facets, refs + 1);
    if (!code)
        code = collect_ref(sampling, schema, "$ref", facets, refs);
    if (!code)
        code = collect_ref(sampling, schema, "$dynamicRef", facets, refs);
    if (!code)
        code = collect_branch(sampling, schema, "oneOf", facets, refs);
    if (!code)
        code = collect_branch(sampling, schema, "anyOf", facets, refs);
    if (!code)
        code = collect_condition(sampling, schema, facets, refs);
    return code;
}

/* ---- types ---- */

static bool type_named(const struct json *types, struct str name)
{
    if (types->type == JSON_STRING)
        return str_equal(types->text, name) || (str_is(types->text, "number") && str_is(name, "integer"));
    bool found = false;
    for (uint32_t i = 0; types->type == JSON_ARRAY && i < types->count && !found; i++)
        found = types->items[i].type == JSON_STRING && type_named(&types->items[i], name);
    return found;
}

static bool type_allowed(const struct facets *facets, struct str name)
{
    for (size_t i = 0; i < facets->count; i++) {
        const struct json *types = facet_get(facets, i, "type");
        if (types && !type_named(types, name))
            return false;
    }
    return true;
}

static bool any_has(const struct facets *facets, const char *const *keywords)
{
    for (; *keywords; keywords++)
        for (size_t i = 0; i < facets->count; i++)
            if (facet_get(facets, i, *keywords))
                return true;
    return false;
}

/* What a schema without "type" seems to be about. */
static struct str implied_type(const struct facets *facets)
{
    static const char *const object[] = {"properties", "required", "additionalProperties", "minProperties", NULL};
    static const char *const array[] = {"items", "prefixItems", "minItems", "maxItems", "contains", NULL};
    static const char *const number[] = {"minimum",          "maximum",    "exclusiveMinimum",
                                         "exclusiveMaximum", "multipleOf", NULL};
    return any_has(facets, object)   ? STR("object")
           : any_has(facets, array)  ? STR("array")
           : any_has(facets, number) ? STR("number")
                                     : STR("string");
}

static struct str choose_type(const struct facets *facets)
{
    static const char *const names[] = {"object", "array", "string", "number", "integer", "boolean", "null"};
    struct str implied = implied_type(facets);
    bool stated = false;
    for (size_t i = 0; i < facets->count; i++) {
        const struct json *types = facet_get(facets, i, "type");
        stated = stated || types;
        for (uint32_t t = 0; types && types->type == JSON_ARRAY && t < types->count; t++) {
            struct str name = types->items[t].text; /* the first of the list is what the author thought of first */
            if (types->items[t].type == JSON_STRING && !str_is(name, "null") && type_allowed(facets, name))
                return name;
        }
    }
    if (!stated)
        return implied;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (type_allowed(facets, str_of(names[i])))
            return str_of(names[i]);
    return STR_NONE;
}

/* ---- values ---- */

static enum err_code make(struct sampling *sampling, const struct json *const *schemas, size_t count, struct json *out);

static bool type_fits(const struct facets *facets, const struct json *value)
{
    struct str name = str_of(json_type_name(value->type));
    if (value->type == JSON_NUMBER && json_number_is_integer(value->text))
        name = STR("integer");
    return type_allowed(facets, name);
}

static bool in_all_enums(const struct facets *facets, const struct json *value)
{
    for (size_t i = 0; i < facets->count; i++) {
        const struct json *values = facet_get(facets, i, "enum");
        bool found = !values || values->type != JSON_ARRAY;
        for (uint32_t k = 0; !found && k < values->count; k++)
            found = json_equal(&values->items[k], value);
        if (!found)
            return false;
    }
    return true;
}

/* "const", else one of "enum". *done tells whether there was one of them. */
static enum err_code make_stated(struct sampling *sampling, const struct facets *facets, bool *done, struct json *out)
{
    const struct json *values = NULL;
    *done = true;
    for (size_t i = 0; i < facets->count; i++) {
        const struct json *value = facet_get(facets, i, "const");
        if (value) {
            *out = *json_copy(sampling->arena, value);
            return ERR_NONE;
        }
        values = values ? values : facet_get(facets, i, "enum");
    }
    *done = values && values->type == JSON_ARRAY;
    if (!*done)
        return ERR_NONE;
    struct json *fitting = json_array(sampling->arena);
    bool null_fits = false;
    for (uint32_t i = 0; i < values->count; i++) {
        bool fits = type_fits(facets, &values->items[i]) && in_all_enums(facets, &values->items[i]);
        null_fits = null_fits || (fits && values->items[i].type == JSON_NULL);
        if (fits && values->items[i].type != JSON_NULL)
            json_append(sampling->arena, fitting, values->items[i]);
    }
    if (fitting->count == 0 && !null_fits)
        return sampling_refuse(sampling, "no value of \"enum\" fits what else is asked");
    *out = fitting->count == 0 ? json_null()
                               : *json_copy(sampling->arena, &fitting->items[sampling_place(sampling, fitting->count)]);
    return ERR_NONE;
}

/* A member's schemas, from all facets that name it; else what is said of members that nobody names. */
static size_t member_schemas(const struct facets *facets, struct str name, const struct json **out)
{
    size_t count = 0;
    for (size_t i = 0; i < facets->count; i++) {
        const struct json *properties = facet_get(facets, i, "properties");
        const struct json *schema = properties ? json_get_str(properties, name) : NULL;
        if (!schema && !facet_get(facets, i, "patternProperties"))
            schema = facet_get(facets, i, "additionalProperties");
        if (schema && count < FACETS_MAX)
            out[count++] = schema;
    }
    return count;
}

static bool named_in(const struct json *names, struct str name)
{
    for (uint32_t i = 0; names && names->type == JSON_ARRAY && i < names->count; i++)
        if (names->items[i].type == JSON_STRING && str_equal(names->items[i].text, name))
            return true;
    return false;
}

/* What the presence of the members in `taken` asks for ("dependencies" as drafts before 2019 had it). */
static bool depended_on(const struct json *schema, const char *keyword, const struct json *taken, struct str name)
{
    const struct json *dependents = json_get(schema, keyword);
    for (uint32_t i = 0; dependents && dependents->type == JSON_OBJECT && i < dependents->count; i++)
        if (json_get_str(taken, dependents->members[i].name) && named_in(&dependents->members[i].value, name))
            return true;
    return false;
}

static bool required(const struct facets *facets, const struct json *taken, struct str name)
{
    for (size_t i = 0; i < facets->count; i++)
        if (named_in(facet_get(facets, i, "required"), name) ||
            depended_on(facets->list[i], "dependentRequired", taken, name) ||
            depended_on(facets->list[i], "dependencies", taken, name))
            return true;
    return false;
}

/* Every second time, each member on its own. */
static bool left_out(const struct sampling *sampling, struct str name)
{
    uint64_t hash = sampling->n * UINT64_C(0x9e3779b97f4a7c15);
    for (size_t i = 0; i < name.n; i++)
        hash = (hash ^ (unsigned char)name.p[i]) * UINT64_C(0x100000001b3);
    return (hash >> 33 & 1) != 0;
}

static bool wanted(const struct sampling *sampling, struct str name)
{
    const struct sample_request *request = sampling->request;
    if (sampling->depth > DEPTH_OPTIONAL || (sampling->depth == 1 && request->given))
        return false;
    return request->all_members || !left_out(sampling, name);
}

static void take(struct sampling *sampling, struct json *taken, struct str name)
{
    json_set(sampling->arena, taken, name, json_null());
}

/* Names of all members, in the order of the schema: an object whose values do not matter yet. */
static struct json *choose_members(struct sampling *sampling, const struct facets *facets)
{
    struct json *taken = json_object(sampling->arena);
    uint64_t least = facets_largest(facets, "minProperties", 0),
             most = facets_smallest(facets, "maxProperties", MEMBERS_MAX);
    for (int pass = 0; pass < 4; pass++) { /* required; what these ask for; some others; more if there are too few */
        for (size_t i = 0; i < facets->count; i++) {
            const struct json *properties = facet_get(facets, i, "properties");
            for (uint32_t m = 0; properties && properties->type == JSON_OBJECT && m < properties->count; m++) {
                struct str name = properties->members[m].name;
                bool never = properties->members[m].value.type == JSON_BOOL && !properties->members[m].value.boolean;
                bool take_it = required(facets, taken, name) ||
                               (pass == 2 && taken->count < most && !never && wanted(sampling, name)) ||
                               (pass == 3 && taken->count < least && !never);
                if (take_it && taken->count < MEMBERS_MAX)
                    take(sampling, taken, name);
            }
            const struct json *names = facet_get(facets, i, "required");
            for (uint32_t m = 0; names && names->type == JSON_ARRAY && m < names->count; m++)
                if (names->items[m].type == JSON_STRING && taken->count < MEMBERS_MAX)
                    take(sampling, taken, names->items[m].text);
        }
    }
    for (unsigned i = 1; taken->count < least && taken->count < MEMBERS_MAX; i++)
        take(sampling, taken, str_of(arena_printf(sampling->arena, "member_%u", i)));
    return taken;
}

static enum err_code make_object(struct sampling *sampling, const struct facets *facets, struct json *out)
{
    const struct json *given = sampling->depth == 1 ? sampling->request->given : NULL;
    struct json *object = json_object(sampling->arena);
    const struct json *taken = choose_members(sampling, facets);
    for (uint32_t i = 0; i < taken->count; i++) {
        struct str name = taken->members[i].name;
        const struct json *schemas[FACETS_MAX];
        struct json value;
        if (given && json_get_str(given, name))
            continue;
        size_t before = enter(sampling, name);
        enum err_code code = make(sampling, schemas, member_schemas(facets, name, schemas), &value);
        leave(sampling, before);
        if (code)
            return code;
        json_set(sampling->arena, object, name, value);
    }
    for (uint32_t i = 0; given && i < given->count; i++)
        json_set(sampling->arena, object, given->members[i].name, given->members[i].value);
    *out = *object;
    return ERR_NONE;
}

static size_t item_schemas(const struct facets *facets, uint32_t index, bool contained, const struct json **out)
{
    size_t count = 0;
    for (size_t i = 0; i < facets->count && count + 2 <= FACETS_MAX; i++) {
        const struct json *items = facet_get(facets, i, "items"), *prefix = facet_get(facets, i, "prefixItems");
        if (items && items->type == JSON_ARRAY) { /* as drafts before 2020 had it */
            prefix = items;
            items = facet_get(facets, i, "additionalItems");
        }
        const struct json *schema = prefix && index < prefix->count ? &prefix->items[index] : items;
        const struct json *contains = contained ? facet_get(facets, i, "contains") : NULL;
        if (schema)
            out[count++] = schema;
        if (contains)
            out[count++] = contains;
    }
    return count;
}

static enum err_code make_array(struct sampling *sampling, const struct facets *facets, struct json *out)
{
    static const char *const contains[] = {"contains", NULL};
    uint64_t least = facets_largest(facets, "minItems", 0), most = facets_smallest(facets, "maxItems", ITEMS_MAX);
    uint64_t contained = any_has(facets, contains) ? facets_largest(facets, "minContains", 1) : 0;
    uint64_t length = least > contained ? least : contained;
    if (length == 0 && most > 0 && sampling->depth <= DEPTH_OPTIONAL)
        length = 1;
    if (length > ITEMS_MAX)
        return sampling_refuse(sampling, "more than %d items are asked for", ITEMS_MAX);
    struct json *array = json_array(sampling->arena);
    uint64_t n = sampling->n;
    for (uint32_t i = 0; i < length; i++) {
        const struct json *schemas[FACETS_MAX];
        struct json value;
        size_t before = enter(sampling, str_of(arena_printf(sampling->arena, "%u", i)));
        sampling->n = length > 1 ? n * length + i : n; /* items differ among each other, too */
        enum err_code code = make(sampling, schemas, item_schemas(facets, i, i < contained, schemas), &value);
        sampling->n = n;
        leave(sampling, before);
        if (code)
            return code;
        json_append(sampling->arena, array, value);
    }
    *out = *array;
    return ERR_NONE;
}

static enum err_code make_of_type(struct sampling *sampling, const struct facets *facets, struct json *out)
{
    struct str type = choose_type(facets);
    if (!type.p)
        return sampling_refuse(sampling, "the types that are asked for exclude each other");
    if (str_is(type, "object"))
        return make_object(sampling, facets, out);
    if (str_is(type, "array"))
        return make_array(sampling, facets, out);
    if (str_is(type, "string"))
        return sample_text(sampling, facets, out);
    if (str_is(type, "integer") || str_is(type, "number"))
        return sample_number(sampling, facets, str_is(type, "integer"), out);
    *out = str_is(type, "boolean") ? json_bool(sampling_place(sampling, 2) != 0) : json_null();
    return ERR_NONE;
}

static enum err_code make(struct sampling *sampling, const struct json *const *schemas, size_t count, struct json *out)
{
    struct facets facets = {.count = 0};
    bool done = false;
    enum err_code code = ERR_NONE;
    if (++sampling->depth > DEPTH_MAX)
        return sampling_refuse(sampling, "the schema asks for values nested without end");
    for (size_t i = 0; i < count && !code; i++)
        code = collect(sampling, schemas[i], &facets, 0);
    if (!code)
        code = make_stated(sampling, &facets, &done, out);
    if (!code && !done)
        code = make_of_type(sampling, &facets, out);
    sampling->depth--;
    return code;
}

enum err_code sample(struct arena *arena, const struct sample_request *request, struct json *out, unsigned *branches,
                     struct err *err)
{
    struct sampling sampling = {
        .arena = arena,
        .request = request,
        .n = request->n,
        .rest = request->n,
        .choice = request->attempt,
        .choices = 1,
        .err = err,
    };
    buf_init(&sampling.path, 0);
    enum err_code code = make(&sampling, &request->schema, 1, out);
    buf_release(&sampling.path);
    *branches = sampling.choices - 1;
    return code;
}
