/* Whether the names that a tool uses in templates, volatile and normalize are members that its input schema knows: a
 * misspelt one would refuse every call, or fingerprint what should not be. Only a plain NO counts; schemas that combine
 * others are given the benefit of the doubt. */
#include "daemon/config_options.h"
#include "daemon/config_parts.h"

#define REF_DEPTH_MAX   16
#define PATH_TOKENS_MAX 32
#define SUGGESTIONS_MAX 200

enum known { KNOWN, UNKNOWN, UNSURE };

struct path {
    struct str tokens[PATH_TOKENS_MAX];
    size_t count;
};

struct finding {
    struct str token;              /* the one that is not known */
    const struct json *properties; /* among which it was looked for; may be NULL */
};

static bool has_any(const struct json *schema, const char *const *names)
{
    for (; *names; names++)
        if (json_get(schema, *names))
            return true;
    return false;
}

static const struct json *resolve(const struct json *root, const struct json *ref)
{
    if (ref->type != JSON_STRING || ref->text.n == 0 || ref->text.p[0] != '#')
        return NULL;
    return json_pointer_get(root, (struct str){ref->text.p + 1, ref->text.n - 1});
}

static enum known member_known(const struct json *root, const struct json *schema, const struct path *path, size_t at,
                               unsigned depth, struct finding *finding)
{
    static const char *const open_ended[] = {"allOf",
                                             "anyOf",
                                             "oneOf",
                                             "if",
                                             "dependentSchemas",
                                             "patternProperties",
                                             "$dynamicRef",
                                             "$recursiveRef",
                                             "unevaluatedProperties",
                                             "dependencies",
                                             NULL};
    if (schema->type == JSON_BOOL)
        return schema->boolean ? UNSURE : UNKNOWN;
    if (schema->type != JSON_OBJECT || depth > REF_DEPTH_MAX)
        return UNSURE;
    if (at == path->count)
        return KNOWN;
    const struct json *ref = json_get(schema, "$ref");
    if (ref) {
        const struct json *target = resolve(root, ref);
        return target ? member_known(root, target, path, at, depth + 1, finding) : UNSURE;
    }
    const struct json *properties = json_get(schema, "properties");
    const struct json *member = properties ? json_get_str(properties, path->tokens[at]) : NULL;
    if (member)
        return member_known(root, member, path, at + 1, depth, finding);
    const struct json *items = json_get(schema, "items");
    if (items && (str_is(path->tokens[at], "*") ||
                  (path->tokens[at].n && path->tokens[at].p[0] >= '0' && path->tokens[at].p[0] <= '9')))
        return member_known(root, items, path, at + 1, depth, finding);
    const struct json *additional = json_get(schema, "additionalProperties");
    bool closed = additional && additional->type == JSON_BOOL && !additional->boolean;
    if (has_any(schema, open_ended) || (additional && !closed) || (!properties && !closed))
        return UNSURE;
    *finding = (struct finding){path->tokens[at], properties};
    return UNKNOWN;
}

/* "a.b" or "/a/b" (escapes decoded into arena) → tokens; false when it is neither or too long. */
static bool split_path(struct arena *arena, struct str text, struct path *path)
{
    path->count = 0;
    bool pointer = text.n > 0 && text.p[0] == '/';
    if (pointer)
        text = (struct str){text.p + 1, text.n - 1};
    for (;;) {
        const char *end = memchr(text.p, pointer ? '/' : '.', text.n);
        struct str raw = {text.p, end ? (size_t)(end - text.p) : text.n};
        if (path->count == PATH_TOKENS_MAX || (!pointer && raw.n == 0))
            return false;
        char *token = arena_alloc(arena, raw.n + 1);
        size_t n = 0;
        for (size_t i = 0; i < raw.n; i++) {
            bool escape = pointer && raw.p[i] == '~' && i + 1 < raw.n;
            token[n++] = !escape ? raw.p[i] : raw.p[++i] == '1' ? '/' : '~';
        }
        path->tokens[path->count++] = (struct str){token, n};
        if (!end)
            return true;
        text.n -= raw.n + 1;
        text.p = end + 1;
    }
}

struct checker {
    const struct loader *loader;
    const struct json *schema; /* the tool's; never NULL here */
};

/* Adds "input_schema has no member …" at pointer when the path is surely unknown. */
static bool check_path(const struct checker *checker, struct str text, const char *pointer, bool warning)
{
    struct path path;
    struct finding finding = {0};
    struct arena *arena = &checker->loader->loaded->arena;
    if (text.n == 0 || !split_path(arena, text, &path))
        return true;
    if (member_known(checker->schema, checker->schema, &path, 0, 0, &finding) != UNKNOWN)
        return true;
    const char *names[SUGGESTIONS_MAX];
    size_t count = 0;
    for (uint32_t i = 0; finding.properties && finding.properties->type == JSON_OBJECT && i < finding.properties->count;
         i++)
        if (count < SUGGESTIONS_MAX)
            names[count++] = arena_copy_str(arena, finding.properties->members[i].name);
    const char *nearest = options_nearest(finding.token, names, count);
    int shown = finding.token.n > 60 ? 60 : (int)finding.token.n;
    const char *hint = nearest ? arena_printf(arena, ", did you mean \"%s\"?", nearest) : "";
    struct problems *problems = checker->loader->problems;
    if (warning)
        problems_warn(problems, pointer, "input_schema has no member \"%.*s\"%s", shown,
                      finding.token.p ? finding.token.p : "", hint);
    else
        problems_add(problems, pointer, "input_schema has no member \"%.*s\"%s", shown,
                     finding.token.p ? finding.token.p : "", hint);
    return false;
}

/* The places of a template that come from the arguments: {name}, {a.b}, {/pointer}, {name?}. False: no further place.
 */
static bool next_place(struct str *text, struct str *place)
{
    while (text->n > 0) {
        char c = text->p[0];
        bool doubled = text->n > 1 && text->p[1] == c;
        if ((c == '{' || c == '}') && doubled) {
            *text = (struct str){text->p + 2, text->n - 2};
            continue;
        }
        const char *end = c == '{' ? memchr(text->p, '}', text->n) : NULL;
        if (end) {
            *place = (struct str){text->p + 1, (size_t)(end - text->p - 1)};
            *text = (struct str){end + 1, (size_t)(text->p + text->n - end - 1)};
            if (place->n > 0 && place->p[place->n - 1] == '?')
                place->n--;
            if (place->n > 0 && place->p[0] != '$')
                return true;
            continue;
        }
        *text = (struct str){text->p + 1, text->n - 1};
    }
    return false;
}

static void check_template(const struct checker *checker, struct str text, const char *pointer)
{
    struct str place;
    while (next_place(&text, &place))
        check_path(checker, place, pointer, false);
}

/* All texts below value are templates. */
static void check_templates(const struct checker *checker, const struct json *value, const char *pointer,
                            unsigned depth)
{
    struct arena *arena = &checker->loader->loaded->arena;
    if (!value || depth > 64)
        return;
    if (value->type == JSON_STRING)
        check_template(checker, value->text, pointer);
    for (uint32_t i = 0; value->type == JSON_ARRAY && i < value->count; i++)
        check_templates(checker, &value->items[i], arena_printf(arena, "%s/%u", pointer, i), depth + 1);
    for (uint32_t i = 0; value->type == JSON_OBJECT && i < value->count; i++)
        if (!str_is(value->members[i].name, "jq") || value->count > 1) /* {jq: program} is no template */
            check_templates(checker, &value->members[i].value, options_pointer(arena, pointer, value->members[i].name),
                            depth + 1);
}

static void check_request(const struct checker *checker, const struct json *request, const char *pointer)
{
    static const char *const members[] = {"path", "query", "headers", "json", "form"};
    struct arena *arena = &checker->loader->loaded->arena;
    for (size_t i = 0; request && i < sizeof members / sizeof *members; i++) {
        const struct json *value = json_get(request, members[i]);
        bool jq = i >= 3 && value && value->type == JSON_STRING; /* a body that is a text is a program */
        if (!jq)
            check_templates(checker, value, options_pointer(arena, pointer, str_of(members[i])), 0);
    }
}

static bool is_required(const struct json *schema, struct str name)
{
    const struct json *required = json_get(schema, "required");
    for (uint32_t i = 0; required && required->type == JSON_ARRAY && i < required->count; i++)
        if (required->items[i].type == JSON_STRING && str_equal(required->items[i].text, name))
            return true;
    const struct json *properties = json_get(schema, "properties");
    const struct json *member = properties ? json_get_str(properties, name) : NULL;
    return !member || json_get(member, "default"); /* not a plain member: no verdict */
}

/* A key over an optional argument refuses calls that leave it out, which its author should know. */
static void check_key(const struct checker *checker, const struct json *key, const char *pointer)
{
    if (!key || key->type != JSON_STRING)
        return;
    struct str text = key->text, place;
    while (next_place(&text, &place))
        if (check_path(checker, place, pointer, false) && !is_required(checker->schema, place))
            problems_warn(checker->loader->problems, pointer,
                          "input_schema does not require \"%.*s\": calls without it are refused", STR_ARG(place));
    text = key->text;
    if (memmem(text.p, text.n, "{$", 2))
        problems_add(checker->loader->problems, pointer,
                     "a business key is made of arguments only, {$…} is not allowed here");
}

/* One template of each item of a list. */
static void check_items(const struct checker *checker, const struct json *list, const char *pointer, const char *name)
{
    struct arena *arena = &checker->loader->loaded->arena;
    for (uint32_t i = 0; list && list->type == JSON_ARRAY && i < list->count; i++)
        check_key(checker, json_get(&list->items[i], name), arena_printf(arena, "%s/%u/%s", pointer, i, name));
}

static void check_claims(const struct checker *checker, const struct json *section, const char *pointer)
{
    struct arena *arena = &checker->loader->loaded->arena;
    const struct json *window = json_get(section, "window"), *budgets = json_get(section, "budgets");
    check_items(checker, json_get(section, "entities"), options_pointer(arena, pointer, STR("entities")), "id");
    check_items(checker, budgets, options_pointer(arena, pointer, STR("budgets")), "key");
    if (window && window->type == JSON_OBJECT)
        check_key(checker, json_get(window, "key"),
                  options_pointer(arena, options_pointer(arena, pointer, STR("window")), STR("key")));
    for (uint32_t i = 0; budgets && budgets->type == JSON_ARRAY && i < budgets->count; i++) {
        struct str amount = json_get_text(&budgets->items[i], "amount");
        if (amount.p && json_pointer_valid(amount))
            check_path(checker, amount, arena_printf(arena, "%s/budgets/%u/amount", pointer, i), true);
    }
    const struct json *sets = json_get(section, "sets");
    if (sets && sets->type == JSON_OBJECT)
        check_templates(checker, sets, options_pointer(arena, pointer, STR("sets")), 0);
}

/* What a playbook takes from the arguments of the operation that it undoes. */
static void check_playbooks(const struct checker *checker, const struct json *section, const char *pointer)
{
    struct arena *arena = &checker->loader->loaded->arena;
    const struct json *playbooks = json_get(section, "compensation");
    pointer = options_pointer(arena, pointer, STR("compensation"));
    for (uint32_t i = 0; playbooks && playbooks->type == JSON_OBJECT && i < playbooks->count; i++) {
        const struct json *one = &playbooks->members[i].value;
        const struct json *form = one->type == JSON_OBJECT ? json_get(one, "arguments") : NULL;
        if (form && form->type == JSON_OBJECT)
            check_templates(
                checker, form,
                options_pointer(arena, options_pointer(arena, pointer, playbooks->members[i].name), STR("arguments")),
                0);
    }
}

/* An argument that a call may leave out would fail the step, after others were done. */
static void check_needed(const struct checker *checker, const struct json *value, const char *pointer)
{
    struct arena *arena = &checker->loader->loaded->arena;
    struct str text = value->type == JSON_STRING ? value->text : STR_NONE, place;
    while (next_place(&text, &place))
        if (check_path(checker, place, pointer, false) && !is_required(checker->schema, place))
            problems_warn(checker->loader->problems, pointer,
                          "input_schema does not require \"%.*s\": in calls without it this step fails",
                          STR_ARG(place));
    for (uint32_t i = 0; value->type == JSON_ARRAY && i < value->count; i++)
        check_needed(checker, &value->items[i], arena_printf(arena, "%s/%u", pointer, i));
    for (uint32_t i = 0; value->type == JSON_OBJECT && i < value->count; i++)
        check_needed(checker, &value->members[i].value, options_pointer(arena, pointer, value->members[i].name));
}

static void check_steps(const struct checker *checker, const struct json *section, const char *pointer)
{
    struct arena *arena = &checker->loader->loaded->arena;
    const struct json *steps = json_get(section, "steps");
    for (uint32_t i = 0; steps && steps->type == JSON_ARRAY && i < steps->count; i++) {
        const struct json *step = &steps->items[i];
        const struct json *form = step->type == JSON_OBJECT ? json_get(step, "arguments") : NULL;
        if (form && form->type == JSON_OBJECT)
            check_needed(checker, form, arena_printf(arena, "%s/steps/%u/arguments", pointer, i));
    }
}

static void check_sql(const struct checker *checker, const struct json *sql, const char *pointer)
{
    struct arena *arena = &checker->loader->loaded->arena;
    const struct json *list = sql && sql->type == JSON_OBJECT ? json_get(sql, "statements") : NULL;
    for (uint32_t i = 0; list && list->type == JSON_ARRAY && i < list->count; i++)
        if (list->items[i].type == JSON_OBJECT)
            check_templates(checker, json_get(&list->items[i], "parameters"),
                            arena_printf(arena, "%s/statements/%u/parameters", pointer, i), 0);
}

void config_names_check(const struct loader *loader, const struct json *section, const char *pointer,
                        const struct tool *tool)
{
    if (!tool->input_schema_json)
        return;
    struct checker checker = {loader, tool->input_schema_json};
    struct arena *arena = &loader->loaded->arena;
    check_key(&checker, json_get(section, "key"), options_pointer(arena, pointer, STR("key")));
    check_request(&checker, json_get(section, "request"), options_pointer(arena, pointer, STR("request")));
    check_templates(&checker, json_get(section, "verify"), options_pointer(arena, pointer, STR("verify")), 0);
    const struct json *lookup = json_get(section, "lookup");
    const char *lookup_pointer = options_pointer(arena, pointer, STR("lookup"));
    static const char *const requests[] = {"request", "by_id"}, *const equalities[] = {"match", "verify"};
    for (size_t i = 0; lookup && i < 2; i++) {
        check_request(&checker, json_get(lookup, requests[i]),
                      options_pointer(arena, lookup_pointer, str_of(requests[i])));
        check_templates(&checker, json_get(lookup, equalities[i]),
                        options_pointer(arena, lookup_pointer, str_of(equalities[i])), 0);
    }
    const struct json *arguments = lookup && lookup->type == JSON_OBJECT ? json_get(lookup, "arguments") : NULL;
    if (arguments && arguments->type != JSON_STRING) /* a text is a program */
        check_templates(&checker, arguments, options_pointer(arena, lookup_pointer, STR("arguments")), 0);
    check_claims(&checker, section, pointer);
    check_playbooks(&checker, section, pointer);
    check_steps(&checker, section, pointer);
    check_sql(&checker, json_get(section, "sql"), options_pointer(arena, pointer, STR("sql")));
    const char *volatile_pointer = options_pointer(arena, pointer, STR("volatile"));
    for (size_t i = 0; i < tool->volatile_count; i++)
        check_path(&checker, str_of(tool->volatile_pointers[i]), arena_printf(arena, "%s/%zu", volatile_pointer, i),
                   true);
    const struct json *normalize = json_get(section, "normalize");
    const char *normalize_pointer = options_pointer(arena, pointer, STR("normalize"));
    for (uint32_t i = 0; normalize && normalize->type == JSON_OBJECT && i < normalize->count; i++)
        check_path(&checker, normalize->members[i].name,
                   options_pointer(arena, normalize_pointer, normalize->members[i].name), true);
}
