/* Validation: a walk over instance and nodes, twice at most. The first walk only wants the verdict and stops at the
 * first failure; it allocates nothing for common schemas. Only when it fails a second one collects errors. */
#include "core/schema.h"

#include "core/schema_node.h"
#include "core/schema_report.h"

#include <stdlib.h>

#define STEPS_MAX        1000000
#define NESTING_MAX      500 /* of schemas applied within schemas; bounds the C stack */
#define UNIQUE_PAIRS_MAX 8   /* items that are compared pair by pair */

/* Resources entered so far, innermost first; for $dynamicRef. */
struct scope {
    uint32_t resource;
    const struct scope *outer;
};

struct check {
    const struct schema *schema;
    struct arena *arena;
    struct schema_report *report; /* NULL: only the verdict counts */
    const struct scope *scope;
    int64_t steps; /* left */
    unsigned nesting;
    const char *stopped; /* why the work ended early; every verdict is void then */
    struct schema_matcher matcher;
};

struct evaluated;

static bool check_node(struct check *c, const struct schema_node *node, const struct schema_spot *spot,
                       struct evaluated *evaluated);

/* ---- failing ---- */

/* Returns false, for `return fail(...)`. */
__attribute__((format(printf, 4, 5))) static bool fail(struct check *c, const struct schema_spot *spot,
                                                       const char *keyword, const char *format, ...)
{
    if (c->report) {
        va_list args;
        va_start(args, format);
        schema_report_add(c->report, c->arena, spot, keyword, format, args);
        va_end(args);
    }
    return false;
}

/* After a failure: whether to look for more. */
static bool wants_more(const struct check *c)
{
    return c->report && c->report->count < SCHEMA_ERRORS_MAX && !c->stopped;
}

static bool stop(struct check *c, const char *why)
{
    if (!c->stopped)
        c->stopped = why;
    return false;
}

static bool charge(struct check *c, size_t steps)
{
    c->steps -= (int64_t)steps;
    return c->steps >= 0 || stop(c, "validation takes more than a million steps");
}

/* The verdict alone, without errors. */
static bool check_quietly(struct check *c, const struct schema_node *node, const struct schema_spot *spot,
                          struct evaluated *evaluated)
{
    struct schema_report *report = c->report;
    c->report = NULL;
    bool ok = check_node(c, node, spot, evaluated);
    c->report = report;
    return ok;
}

static bool check_reporting(struct check *c, const struct schema_node *node, const struct schema_spot *spot,
                            struct evaluated *evaluated, struct schema_report *into)
{
    struct schema_report *report = c->report;
    c->report = into;
    bool ok = check_node(c, node, spot, evaluated);
    c->report = report;
    return ok;
}

/* ---- which members and items were evaluated (unevaluatedProperties, unevaluatedItems) ---- */

#define FEW_WORDS 2

struct evaluated {
    uint64_t *bits;
    size_t words;
    uint64_t few[FEW_WORDS]; /* enough for 128 members */
};

static void evaluated_init(struct check *c, struct evaluated *set, const struct json *value)
{
    set->words = ((size_t)value->count + 63) / 64;
    if (set->words <= FEW_WORDS) {
        memset(set->few, 0, sizeof set->few);
        set->bits = set->few;
    } else {
        charge(c, set->words);
        set->bits = arena_zero(c->arena, set->words * sizeof *set->bits);
    }
}

/* All of them do nothing for NULL: nobody asks. */
static void evaluated_add(struct evaluated *set, uint32_t i)
{
    if (set)
        set->bits[i / 64] |= UINT64_C(1) << i % 64;
}

static void evaluated_add_all(struct evaluated *set)
{
    for (size_t i = 0; set && i < set->words; i++)
        set->bits[i] = UINT64_MAX;
}

static void evaluated_merge(struct evaluated *set, const struct evaluated *more)
{
    for (size_t i = 0; set && i < set->words; i++)
        set->bits[i] |= more->bits[i];
}

static bool evaluated_has(const struct evaluated *set, uint32_t i)
{
    return set->bits[i / 64] >> i % 64 & 1;
}

static bool has_children(const struct json *value)
{
    return value->type == JSON_OBJECT || value->type == JSON_ARRAY;
}

/* A subschema that may fail without harm: what it evaluated counts only when it matches. Errors go to into (may be
 * NULL). */
static bool try_branch(struct check *c, const struct schema_node *node, const struct schema_spot *spot,
                       struct evaluated *evaluated, struct schema_report *into)
{
    struct evaluated own;
    if (!evaluated || !has_children(spot->value))
        return check_reporting(c, node, spot, NULL, into);
    evaluated_init(c, &own, spot->value);
    bool ok = check_reporting(c, node, spot, &own, into);
    if (ok)
        evaluated_merge(evaluated, &own);
    return ok;
}

/* ---- any type ---- */

static unsigned types_of(const struct json *value)
{
    switch (value->type) {
    case JSON_NULL: return SCHEMA_NULL;
    case JSON_BOOL: return SCHEMA_BOOLEAN;
    case JSON_NUMBER: return json_number_is_integer(value->text) ? SCHEMA_NUMBER | SCHEMA_INTEGER : SCHEMA_NUMBER;
    case JSON_STRING: return SCHEMA_STRING;
    case JSON_ARRAY: return SCHEMA_ARRAY;
    case JSON_OBJECT: return SCHEMA_OBJECT;
    }
    return 0;
}

static bool has_type(const struct json *value, unsigned types)
{
    static const uint8_t plain[] = {
        [JSON_NULL] = SCHEMA_NULL,     [JSON_BOOL] = SCHEMA_BOOLEAN, [JSON_NUMBER] = SCHEMA_NUMBER,
        [JSON_STRING] = SCHEMA_STRING, [JSON_ARRAY] = SCHEMA_ARRAY,  [JSON_OBJECT] = SCHEMA_OBJECT,
    };
    int64_t ignored;
    if (types & plain[value->type])
        return true;
    return value->type == JSON_NUMBER && types & SCHEMA_INTEGER &&
           (schema_plain_integer(value->text, &ignored) || json_number_is_integer(value->text));
}

static bool fail_type(struct check *c, const struct schema_spot *spot, const char *keyword, unsigned types)
{
    unsigned got = types_of(spot->value);
    if (!c->report)
        return false;
    if (got & SCHEMA_INTEGER) /* say the narrower word */
        got = SCHEMA_INTEGER;
    return fail(c, spot, keyword, "expected %s, got %s", schema_types_text(c->arena, types),
                schema_types_text(c->arena, got));
}

/* Roughly what comparing or hashing value costs. */
static size_t weight(const struct json *value)
{
    size_t sum = 1;
    switch (value->type) {
    case JSON_NULL:
    case JSON_BOOL: break;
    case JSON_NUMBER:
    case JSON_STRING: sum += value->text.n / 16; break;
    case JSON_ARRAY:
        for (uint32_t i = 0; i < value->count; i++)
            sum += weight(&value->items[i]);
        break;
    case JSON_OBJECT:
        for (uint32_t i = 0; i < value->count; i++)
            sum += 1 + value->members[i].name.n / 16 + weight(&value->members[i].value);
        break;
    }
    return sum;
}

static bool equal(struct check *c, const struct json *a, const struct json *b)
{
    if (a->type != b->type)
        return false;
    if (has_children(a) && (a->count != b->count || !charge(c, weight(a))))
        return false;
    if (a->type == JSON_NUMBER && !charge(c, (a->text.n + b->text.n) / 16))
        return false;
    return json_equal(a, b);
}

static bool check_choices(struct check *c, const struct schema_values *choices, const struct schema_spot *spot)
{
    bool found = false;
    for (uint32_t i = 0; !found && !c->stopped && i < choices->count; i++)
        found = equal(c, spot->value, &choices->values[i]);
    if (found || !charge(c, choices->count / 8))
        return found;
    return fail(c, spot, choices->is_const ? "const" : "enum", "%s", choices->text);
}

/* ---- numbers and strings ---- */

struct number {
    struct str text;
    int64_t plain;
    bool is_plain;
};

static int compare(const struct number *number, const struct schema_bound *bound)
{
    if (number->is_plain && bound->is_plain)
        return (number->plain > bound->plain) - (number->plain < bound->plain);
    return json_number_compare(number->text, bound->text);
}

#define SHOWN(text) (int)((text).n < 64 ? (text).n : 64), (text).p

static bool check_number(struct check *c, const struct schema_number_rules *rules, const struct schema_spot *spot)
{
    struct number number = {.text = spot->value->text};
    bool ok = true;
    number.is_plain = schema_plain_integer(number.text, &number.plain);
    if (!number.is_plain && !charge(c, number.text.n / 4))
        return false;
    if (rules->minimum.text.p && compare(&number, &rules->minimum) < 0)
        ok = fail(c, spot, "minimum", "must be at least %.*s", SHOWN(rules->minimum.text));
    if (rules->exclusive_minimum.text.p && compare(&number, &rules->exclusive_minimum) <= 0)
        ok = fail(c, spot, "exclusiveMinimum", "must be greater than %.*s", SHOWN(rules->exclusive_minimum.text));
    if (rules->maximum.text.p && compare(&number, &rules->maximum) > 0)
        ok = fail(c, spot, "maximum", "must be at most %.*s", SHOWN(rules->maximum.text));
    if (rules->exclusive_maximum.text.p && compare(&number, &rules->exclusive_maximum) >= 0)
        ok = fail(c, spot, "exclusiveMaximum", "must be less than %.*s", SHOWN(rules->exclusive_maximum.text));
    if (rules->multiple_of.p && !json_number_multiple_of(number.text, rules->multiple_of))
        ok = fail(c, spot, "multipleOf", "must be a multiple of %.*s", SHOWN(rules->multiple_of));
    return ok;
}

static size_t code_points(struct str text)
{
    size_t count = 0;
    for (size_t i = 0; i < text.n; i++)
        count += ((unsigned char)text.p[i] & 0xc0) != 0x80;
    return count;
}

static const char *plural(uint64_t count)
{
    return count == 1 ? "" : "s";
}

static bool check_length(struct check *c, const struct schema_string_rules *rules, const struct schema_spot *spot)
{
    struct str text = spot->value->text;
    /* A character has one to four bytes. */
    if (text.n / 4 >= rules->length_min && text.n <= rules->length_max)
        return true;
    if (!charge(c, text.n / 64))
        return false;
    size_t length = code_points(text);
    if (length < rules->length_min)
        return fail(c, spot, "minLength", "expected at least %llu character%s, got %zu",
                    (unsigned long long)rules->length_min, plural(rules->length_min), length);
    if (length > rules->length_max)
        return fail(c, spot, "maxLength", "expected at most %llu character%s, got %zu",
                    (unsigned long long)rules->length_max, plural(rules->length_max), length);
    return true;
}

static bool matches(struct check *c, const struct schema_pattern *pattern, struct str text)
{
    enum schema_match match = schema_pattern_match(pattern, &c->matcher, text, &c->steps);
    if (match == SCHEMA_MATCH_LIMIT)
        return stop(c, "a pattern of the schema backtracks more than 100000 times");
    return charge(c, 0) && match == SCHEMA_MATCH_YES;
}

static bool check_string(struct check *c, const struct schema_string_rules *rules, const struct schema_spot *spot)
{
    bool ok = check_length(c, rules, spot);
    if (rules->pattern && (ok || wants_more(c)) && !matches(c, rules->pattern, spot->value->text)) {
        struct str pattern = schema_pattern_text(rules->pattern);
        ok = fail(c, spot, "pattern", "does not match the pattern %.*s%s", (int)(pattern.n < 200 ? pattern.n : 200),
                  pattern.p, pattern.n < 200 ? "" : "...");
    }
    return ok;
}

/* ---- arrays ---- */

static struct schema_spot item_spot(const struct schema_spot *array, uint32_t i)
{
    return (struct schema_spot){.value = &array->value->items[i], .up = array, .index = i};
}

static bool check_prefix(struct check *c, const struct schema_array_rules *rules, const struct schema_spot *spot,
                         struct evaluated *evaluated)
{
    bool ok = true;
    for (uint32_t i = 0; i < rules->prefix.count && i < spot->value->count && (ok || wants_more(c)); i++) {
        struct schema_spot item = item_spot(spot, i);
        ok &= check_node(c, rules->prefix.nodes[i], &item, NULL);
        evaluated_add(evaluated, i);
    }
    return ok;
}

static bool check_rest(struct check *c, const struct schema_array_rules *rules, const struct schema_spot *spot,
                       struct evaluated *evaluated)
{
    uint32_t count = spot->value->count, known = rules->prefix.count;
    bool ok = true;
    if (rules->rest->never && count > known)
        return fail(c, spot, rules->rest_keyword, "expected at most %u item%s, got %u", known, plural(known), count);
    for (uint32_t i = known; i < count && (ok || wants_more(c)); i++) {
        struct schema_spot item = item_spot(spot, i);
        ok &= check_node(c, rules->rest, &item, NULL);
    }
    evaluated_add_all(evaluated);
    return ok;
}

static bool check_contains(struct check *c, const struct schema_array_rules *rules, const struct schema_spot *spot,
                           struct evaluated *evaluated)
{
    bool all = rules->contains_max != SCHEMA_COUNT_MAX || (evaluated && rules->contains_evaluates);
    uint64_t found = 0;
    for (uint32_t i = 0; i < spot->value->count && (all || found < rules->contains_min); i++) {
        struct schema_spot item = item_spot(spot, i);
        if (!check_quietly(c, rules->contains, &item, NULL))
            continue;
        found++;
        if (rules->contains_evaluates)
            evaluated_add(evaluated, i);
    }
    if (c->stopped)
        return false;
    if (found < rules->contains_min)
        return fail(c, spot, "contains", "expected at least %llu matching item%s, got %llu",
                    (unsigned long long)rules->contains_min, plural(rules->contains_min), (unsigned long long)found);
    if (found > rules->contains_max)
        return fail(c, spot, "maxContains", "expected at most %llu matching item%s, got %llu",
                    (unsigned long long)rules->contains_max, plural(rules->contains_max), (unsigned long long)found);
    return true;
}

static uint64_t mix(uint64_t h, uint64_t more)
{
    h = (h ^ more) * UINT64_C(0x9e3779b97f4a7c15);
    return h ^ h >> 29;
}

static uint64_t hash_number(struct str number)
{
    int64_t integer;
    if (schema_plain_integer(number, &integer) || json_number_int64(number, &integer))
        return mix(1, (uint64_t)integer);
    struct buf canonical;
    buf_init(&canonical, 0);
    json_canonical_number(&canonical, number);
    uint64_t h = schema_hash(buf_str(&canonical));
    buf_release(&canonical);
    return h;
}

/* Equal values have equal hashes: numbers by value, members in any order. */
static uint64_t hash_value(const struct json *value)
{
    uint64_t h = 0;
    switch (value->type) {
    case JSON_NULL: break;
    case JSON_BOOL: h = value->boolean; break;
    case JSON_NUMBER: h = hash_number(value->text); break;
    case JSON_STRING: h = schema_hash(value->text); break;
    case JSON_ARRAY:
        for (uint32_t i = 0; i < value->count; i++)
            h = mix(h, hash_value(&value->items[i]));
        break;
    case JSON_OBJECT:
        for (uint32_t i = 0; i < value->count; i++)
            h += mix(schema_hash(value->members[i].name), hash_value(&value->members[i].value));
        break;
    }
    return mix(h, (uint64_t)value->type + 1);
}

static bool fail_unique(struct check *c, const struct schema_spot *spot, uint32_t a, uint32_t b)
{
    return fail(c, spot, "uniqueItems", "items %u and %u are equal", a < b ? a : b, a < b ? b : a);
}

static bool check_unique_pairs(struct check *c, const struct schema_spot *spot)
{
    const struct json *array = spot->value;
    for (uint32_t b = 1; b < array->count; b++)
        for (uint32_t a = 0; a < b; a++)
            if (equal(c, &array->items[a], &array->items[b]))
                return fail_unique(c, spot, a, b);
    return !c->stopped;
}

static bool check_unique_hashed(struct check *c, const struct schema_spot *spot)
{
    const struct json *array = spot->value;
    size_t slots = 16;
    while (slots < (size_t)array->count * 2)
        slots *= 2;
    if (!charge(c, weight(array) + slots / 8))
        return false;
    uint64_t *hashes = arena_alloc(c->arena, array->count * sizeof *hashes);
    uint32_t *table = arena_zero(c->arena, slots * sizeof *table); /* index + 1 */
    for (uint32_t i = 0; i < array->count; i++) {
        hashes[i] = hash_value(&array->items[i]);
        size_t at = hashes[i] & (slots - 1);
        for (; table[at] && charge(c, 1); at = (at + 1) & (slots - 1)) {
            uint32_t other = table[at] - 1;
            if (hashes[other] == hashes[i] && equal(c, &array->items[other], &array->items[i]))
                return fail_unique(c, spot, other, i);
        }
        if (c->stopped)
            return false;
        table[at] = i + 1;
    }
    return true;
}

static bool check_unique(struct check *c, const struct schema_spot *spot)
{
    return spot->value->count <= UNIQUE_PAIRS_MAX ? check_unique_pairs(c, spot) : check_unique_hashed(c, spot);
}

static bool check_item_count(struct check *c, const struct schema_array_rules *rules, const struct schema_spot *spot)
{
    uint32_t count = spot->value->count;
    if (count < rules->items_min)
        return fail(c, spot, "minItems", "expected at least %llu item%s, got %u", (unsigned long long)rules->items_min,
                    plural(rules->items_min), count);
    if (count > rules->items_max)
        return fail(c, spot, "maxItems", "expected at most %llu item%s, got %u", (unsigned long long)rules->items_max,
                    plural(rules->items_max), count);
    return true;
}

static bool check_array(struct check *c, const struct schema_array_rules *rules, const struct schema_spot *spot,
                        struct evaluated *evaluated)
{
    bool ok = check_item_count(c, rules, spot);
    if (rules->prefix.count && (ok || wants_more(c)))
        ok &= check_prefix(c, rules, spot, evaluated);
    if (rules->rest && (ok || wants_more(c)))
        ok &= check_rest(c, rules, spot, evaluated);
    if (rules->contains && (ok || wants_more(c)))
        ok &= check_contains(c, rules, spot, evaluated);
    if (rules->unique && (ok || wants_more(c)))
        ok &= check_unique(c, spot);
    return ok;
}

/* ---- objects ---- */

static struct schema_spot member_spot(const struct schema_spot *object, uint32_t i)
{
    const struct json_member *member = &object->value->members[i];
    return (struct schema_spot){.value = &member->value, .up = object, .name = member->name};
}

static bool check_member_count(struct check *c, const struct schema_object_rules *rules, const struct schema_spot *spot)
{
    uint32_t count = spot->value->count;
    if (count < rules->members_min)
        return fail(c, spot, "minProperties", "expected at least %llu member%s, got %u",
                    (unsigned long long)rules->members_min, plural(rules->members_min), count);
    if (count > rules->members_max)
        return fail(c, spot, "maxProperties", "expected at most %llu member%s, got %u",
                    (unsigned long long)rules->members_max, plural(rules->members_max), count);
    return true;
}

/* A misspelled member is the most common mistake of all: names that differ by a letter or by their separators. */
static bool similar(struct str a, struct str b)
{
    size_t shorter = a.n < b.n ? a.n : b.n, longer = a.n < b.n ? b.n : a.n;
    size_t head = 0, tail = 0;
    if (longer < 4 || longer - shorter > 2)
        return false;
    while (head < shorter && (a.p[head] | 0x20) == (b.p[head] | 0x20))
        head++;
    while (tail < shorter - head && (a.p[a.n - 1 - tail] | 0x20) == (b.p[b.n - 1 - tail] | 0x20))
        tail++;
    return longer - head - tail <= 2;
}

static bool fail_unknown(struct check *c, const struct schema_object_rules *rules, const struct schema_spot *member,
                         const char *keyword)
{
    if (!c->report)
        return false;
    const char *name = schema_name_text(c->arena, member->name);
    for (uint32_t i = 0; i < rules->property_count && charge(c, 1); i++) {
        const struct schema_property *known = &rules->properties[i];
        if (similar(known->name, member->name) && !json_get_str(member->up->value, known->name))
            return fail(c, member, keyword, "unknown member %s (did you mean %s?)", name,
                        schema_name_text(c->arena, known->name));
    }
    return fail(c, member, keyword, "unknown member %s", name);
}

static bool check_name(struct check *c, const struct schema_node *node, const struct schema_spot *member)
{
    struct json name = json_string(member->name);
    struct schema_spot spot = *member;
    spot.value = &name;
    if (!c->report)
        return check_node(c, node, &spot, NULL);
    struct schema_report *why = arena_zero(c->arena, sizeof *why);
    if (check_reporting(c, node, &spot, NULL, why))
        return true;
    return fail(c, member, "propertyNames", "member name %s is not allowed%s%s",
                schema_name_text(c->arena, member->name), why->count ? ": " : "",
                why->count ? why->errors[0].message : "");
}

/* One member against "properties", "patternProperties", "additionalProperties" and "propertyNames". */
static bool check_member(struct check *c, const struct schema_object_rules *rules,
                         const struct schema_property *property, const struct schema_spot *member, bool *known)
{
    bool ok = true;
    *known = property && property->node;
    if (*known)
        ok = check_node(c, property->node, member, NULL);
    for (uint32_t i = 0; i < rules->pattern_count && (ok || wants_more(c)); i++) {
        if (!matches(c, rules->patterns[i].pattern, member->name))
            continue;
        *known = true;
        ok &= check_node(c, rules->patterns[i].node, member, NULL);
    }
    if (rules->additional && !*known && !c->stopped) {
        *known = true;
        if (rules->additional->never)
            ok &= fail_unknown(c, rules, member, "additionalProperties");
        else
            ok &= check_node(c, rules->additional, member, NULL);
    }
    if (rules->names && (ok || wants_more(c)))
        ok &= check_name(c, rules->names, member);
    return ok && !c->stopped;
}

static bool fail_required(struct check *c, const struct schema_object_rules *rules, const struct schema_spot *spot)
{
    for (uint32_t i = 0; i < rules->property_count && wants_more(c) && charge(c, 1 + spot->value->count / 8); i++) {
        const struct schema_property *property = &rules->properties[i];
        if (property->required && !json_get_str(spot->value, property->name))
            fail(c, spot, "required", "required member %s is missing", schema_name_text(c->arena, property->name));
    }
    return false;
}

static bool check_members(struct check *c, const struct schema_object_rules *rules, const struct schema_spot *spot,
                          struct evaluated *evaluated)
{
    uint32_t required = 0, count = spot->value->count;
    bool ok = true;
    for (uint32_t i = 0; i < count && (ok || wants_more(c)); i++) {
        struct schema_spot member = member_spot(spot, i);
        const struct schema_property *property = schema_property_find(rules, member.name);
        bool known;
        required += property && property->required;
        ok &= check_member(c, rules, property, &member, &known);
        if (known)
            evaluated_add(evaluated, i);
    }
    if (required < rules->required_count && (ok || wants_more(c)))
        ok = fail_required(c, rules, spot);
    return ok && charge(c, count);
}

static bool check_dependent(struct check *c, const struct schema_dependent *dependent, const struct schema_spot *spot,
                            struct evaluated *evaluated)
{
    const struct json *object = spot->value;
    bool ok = true;
    if (!charge(c, 1 + object->count / 8) || !json_get_str(object, dependent->name))
        return !c->stopped;
    if (dependent->node)
        return check_node(c, dependent->node, spot, evaluated);
    for (uint32_t i = 0; i < dependent->required->count && (ok || wants_more(c)); i++) {
        struct str name = dependent->required->items[i].text;
        if (!charge(c, 1 + object->count / 8))
            return false;
        if (!json_get_str(object, name))
            ok = c->report && fail(c, spot, dependent->keyword, "member %s is required when %s is there",
                                   schema_name_text(c->arena, name), schema_name_text(c->arena, dependent->name));
    }
    return ok;
}

static bool check_object(struct check *c, const struct schema_object_rules *rules, const struct schema_spot *spot,
                         struct evaluated *evaluated)
{
    bool ok = check_member_count(c, rules, spot);
    if (ok || wants_more(c))
        ok &= check_members(c, rules, spot, evaluated);
    for (uint32_t i = 0; i < rules->dependent_count && (ok || wants_more(c)); i++)
        ok &= check_dependent(c, &rules->dependents[i], spot, evaluated);
    return ok;
}

/* ---- logic ---- */

/* The types that node asks for, directly or by reference; 0: any. */
static unsigned asked_types(const struct schema_node *node)
{
    while (!node->types && node->ref)
        node = node->ref;
    return node->types;
}

/* No alternative matches: say so in the words of the one that was meant, when that is evident. */
static bool fail_alternatives(struct check *c, const struct schema_nodes *nodes, const struct schema_spot *spot,
                              const char *keyword, const struct schema_report *reports)
{
    bool *ruled_out = arena_zero(c->arena, nodes->count * sizeof *ruled_out);
    unsigned types = 0;
    bool all = true;
    for (uint32_t i = 0; i < nodes->count; i++) {
        unsigned asked = asked_types(nodes->nodes[i]);
        ruled_out[i] = asked && !has_type(spot->value, asked);
        types |= asked;
        all &= ruled_out[i];
    }
    if (all)
        return fail_type(c, spot, keyword, types);
    const struct schema_report *closest =
        schema_report_closest(reports, ruled_out, nodes->count, schema_spot_depth(spot));
    if (closest && closest->count) {
        schema_report_append(c->report, closest);
        return false;
    }
    return fail(c, spot, keyword, "matches none of the %u alternatives of %s", nodes->count, keyword);
}

#define ALTERNATIVES_EXPLAINED_MAX 64

static bool check_any_of(struct check *c, const struct schema_nodes *nodes, const struct schema_spot *spot,
                         struct evaluated *evaluated)
{
    struct schema_report *reports = NULL;
    bool matched = false;
    if (c->report && nodes->count <= ALTERNATIVES_EXPLAINED_MAX)
        reports = arena_zero(c->arena, nodes->count * sizeof *reports);
    for (uint32_t i = 0; i < nodes->count && !(matched && !evaluated); i++)
        matched |= try_branch(c, nodes->nodes[i], spot, evaluated, reports ? &reports[i] : NULL);
    if (matched || c->stopped || !c->report)
        return matched && !c->stopped;
    if (!reports)
        return fail(c, spot, "anyOf", "matches none of the %u alternatives of anyOf", nodes->count);
    return fail_alternatives(c, nodes, spot, "anyOf", reports);
}

static bool check_one_of(struct check *c, const struct schema_nodes *nodes, const struct schema_spot *spot,
                         struct evaluated *evaluated)
{
    struct schema_report *reports = NULL;
    uint32_t matched = 0, first = 0;
    if (c->report && nodes->count <= ALTERNATIVES_EXPLAINED_MAX)
        reports = arena_zero(c->arena, nodes->count * sizeof *reports);
    for (uint32_t i = 0; i < nodes->count; i++) {
        if (!try_branch(c, nodes->nodes[i], spot, evaluated, reports ? &reports[i] : NULL))
            continue;
        if (matched++)
            return fail(c, spot, "oneOf", "matches alternatives %u and %u of oneOf, expected only one", first, i);
        first = i;
    }
    if (matched || c->stopped || !c->report)
        return matched && !c->stopped;
    if (!reports)
        return fail(c, spot, "oneOf", "matches none of the %u alternatives of oneOf", nodes->count);
    return fail_alternatives(c, nodes, spot, "oneOf", reports);
}

static bool check_condition(struct check *c, const struct schema_logic_rules *rules, const struct schema_spot *spot,
                            struct evaluated *evaluated)
{
    bool holds = try_branch(c, rules->condition, spot, evaluated, NULL);
    const struct schema_node *node = holds ? rules->then : rules->otherwise;
    if (c->stopped)
        return false;
    return !node || check_node(c, node, spot, evaluated);
}

static bool check_not(struct check *c, const struct schema_node *node, const struct schema_spot *spot)
{
    bool matched = check_quietly(c, node, spot, NULL);
    if (c->stopped)
        return false;
    return !matched || fail(c, spot, "not", "must not match the schema under \"not\"");
}

static bool check_logic(struct check *c, const struct schema_logic_rules *rules, const struct schema_spot *spot,
                        struct evaluated *evaluated)
{
    bool ok = true;
    for (uint32_t i = 0; i < rules->all_of.count && (ok || wants_more(c)); i++)
        ok &= check_node(c, rules->all_of.nodes[i], spot, evaluated);
    if (rules->any_of.count && (ok || wants_more(c)))
        ok &= check_any_of(c, &rules->any_of, spot, evaluated);
    if (rules->one_of.count && (ok || wants_more(c)))
        ok &= check_one_of(c, &rules->one_of, spot, evaluated);
    if (rules->negated && (ok || wants_more(c)))
        ok &= check_not(c, rules->negated, spot);
    if (rules->condition && (ok || wants_more(c)))
        ok &= check_condition(c, rules, spot, evaluated);
    return ok;
}

/* ---- one node ---- */

static const struct schema_node *dynamic_target(const struct check *c, const struct schema_dynamic_ref *ref)
{
    const struct schema_node *target = ref->fallback;
    if (!ref->is_dynamic)
        return target;
    for (const struct scope *scope = c->scope; scope; scope = scope->outer) {
        const struct schema_node *node = c->schema->dynamic[scope->resource * c->schema->dynamic_names + ref->name];
        if (node)
            target = node; /* the outermost one stays */
    }
    return target;
}

static bool check_by_type(struct check *c, const struct schema_node *node, const struct schema_spot *spot,
                          struct evaluated *evaluated)
{
    switch (spot->value->type) {
    case JSON_NULL:
    case JSON_BOOL: return true;
    case JSON_NUMBER: return !node->number || check_number(c, node->number, spot);
    case JSON_STRING: return !node->string || check_string(c, node->string, spot);
    case JSON_ARRAY: return !node->array || check_array(c, node->array, spot, evaluated);
    case JSON_OBJECT: return !node->object || check_object(c, node->object, spot, evaluated);
    }
    return true;
}

static bool check_keywords(struct check *c, const struct schema_node *node, const struct schema_spot *spot,
                           struct evaluated *evaluated)
{
    bool ok = true;
    if (node->never)
        return fail(c, spot, "false", "no value is allowed here");
    if (node->types && !has_type(spot->value, node->types))
        return fail_type(c, spot, "type", node->types);
    if (node->choices)
        ok &= check_choices(c, node->choices, spot);
    if (node->constant && (ok || wants_more(c)))
        ok &= check_choices(c, node->constant, spot);
    if (ok || wants_more(c))
        ok &= check_by_type(c, node, spot, evaluated);
    if (node->ref && (ok || wants_more(c)))
        ok &= check_node(c, node->ref, spot, evaluated);
    if (node->dynamic_ref && (ok || wants_more(c)))
        ok &= check_node(c, dynamic_target(c, node->dynamic_ref), spot, evaluated);
    if (node->logic && (ok || wants_more(c)))
        ok &= check_logic(c, node->logic, spot, evaluated);
    return ok;
}

static bool check_unevaluated_members(struct check *c, const struct schema_object_rules *rules,
                                      const struct schema_spot *spot, const struct evaluated *evaluated)
{
    bool ok = true;
    for (uint32_t i = 0; i < spot->value->count && (ok || wants_more(c)); i++) {
        if (evaluated_has(evaluated, i))
            continue;
        struct schema_spot member = member_spot(spot, i);
        if (rules->unevaluated->never)
            ok = fail_unknown(c, rules, &member, "unevaluatedProperties");
        else
            ok &= check_node(c, rules->unevaluated, &member, NULL);
    }
    return ok;
}

static bool check_unevaluated_items(struct check *c, const struct schema_array_rules *rules,
                                    const struct schema_spot *spot, const struct evaluated *evaluated)
{
    bool ok = true;
    for (uint32_t i = 0; i < spot->value->count && (ok || wants_more(c)); i++) {
        if (evaluated_has(evaluated, i))
            continue;
        struct schema_spot item = item_spot(spot, i);
        if (rules->unevaluated->never)
            ok = fail(c, &item, "unevaluatedItems", "unexpected item");
        else
            ok &= check_node(c, rules->unevaluated, &item, NULL);
    }
    return ok;
}

/* A node with unevaluatedProperties or unevaluatedItems: its other keywords first, on a set of their own. */
static bool check_evaluating(struct check *c, const struct schema_node *node, const struct schema_spot *spot,
                             struct evaluated *outer)
{
    const struct json *value = spot->value;
    struct evaluated own;
    evaluated_init(c, &own, value);
    bool ok = check_keywords(c, node, spot, &own);
    if (!ok) /* what a failed subschema did not evaluate would only confuse */
        return false;
    if (value->type == JSON_OBJECT && node->object && node->object->unevaluated) {
        ok &= check_unevaluated_members(c, node->object, spot, &own);
        evaluated_add_all(&own);
    }
    if (value->type == JSON_ARRAY && node->array && node->array->unevaluated) {
        ok &= check_unevaluated_items(c, node->array, spot, &own);
        evaluated_add_all(&own);
    }
    evaluated_merge(outer, &own);
    return ok;
}

static bool check_node(struct check *c, const struct schema_node *node, const struct schema_spot *spot,
                       struct evaluated *evaluated)
{
    const struct scope *outer = c->scope;
    struct scope scope = {node->resource, outer};
    if (c->stopped || !charge(c, 1))
        return false;
    if (c->nesting == NESTING_MAX)
        return stop(c, "schemas nest more than 500 deep on this instance");
    c->nesting++;
    if (!outer || outer->resource != node->resource)
        c->scope = &scope;
    bool ok = node->evaluates && has_children(spot->value) ? check_evaluating(c, node, spot, evaluated)
                                                           : check_keywords(c, node, spot, evaluated);
    c->scope = outer;
    c->nesting--;
    return ok && !c->stopped;
}

/* ---- all of it ---- */

static bool run(struct check *c, const struct json *instance)
{
    struct schema_spot spot = {.value = instance};
    c->steps = STEPS_MAX;
    c->stopped = NULL;
    return check_node(c, c->schema->root, &spot, NULL);
}

/* The second walk. It may run into a limit that the first did not reach, because it goes on after failures; what it has
 * found by then is enough. */
static struct schema_report *collect(struct check *c, const struct json *instance)
{
    struct schema_report *report = arena_zero(c->arena, sizeof *report);
    c->report = report;
    run(c, instance);
    if (!report->count)
        report->errors[report->count++] = (struct schema_error){"", "does not match the schema", "type"};
    schema_report_sort(report);
    return report;
}

enum err_code schema_validate(const struct schema *schema, struct arena *arena, const struct json *instance,
                              struct schema_error **errors, size_t *error_count, struct err *err)
{
    struct check c = {.schema = schema, .arena = arena, .matcher = {.arena = arena}};
    if (run(&c, instance))
        return ERR_NONE;
    if (c.stopped)
        return err_set(err, ERR_LIMIT, "%s", c.stopped);
    struct schema_report *report = collect(&c, instance);
    *errors = report->errors;
    *error_count = report->count;
    const struct schema_error *first = &report->errors[0];
    return err_set(err, ERR_INVALID, "%s%s%s", first->pointer, *first->pointer ? ": " : "", first->message);
}
