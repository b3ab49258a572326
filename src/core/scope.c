#include "core/scope.h"

#include "core/claims.h"

#include <fnmatch.h>

#define WORDS_BYTES_MAX 200

/* ---- reading ---- */

static enum err_code check_pattern(enum scope_kind kind, struct str pattern, const char *what, struct err *err)
{
    if (pattern.n == 0 || pattern.n > SCOPE_PATTERN_BYTES_MAX)
        return err_set(err, ERR_INVALID, "%s: a pattern has 1 to %d characters", what, SCOPE_PATTERN_BYTES_MAX);
    for (size_t i = 0; i < pattern.n; i++)
        if ((unsigned char)pattern.p[i] < ' ' || pattern.p[i] == 0x7f)
            return err_set(err, ERR_INVALID, "%s: a pattern holds a control character", what);
    const char *slash = memchr(pattern.p, '/', pattern.n);
    if (kind == SCOPE_ENTITIES && (!slash || slash == pattern.p || slash == pattern.p + pattern.n - 1))
        return err_set(err, ERR_INVALID, "%s: \"%.*s\" is no entity pattern, expected TYPE/ID, for example order/*",
                       what, pattern.n > 60 ? 60 : (int)pattern.n, pattern.p);
    return ERR_NONE;
}

static enum err_code add_pattern(struct arena *arena, enum scope_kind kind, struct str pattern, const char *what,
                                 const char **patterns, size_t *count, struct err *err)
{
    enum err_code code = check_pattern(kind, pattern, what, err);
    if (!code && *count == SCOPE_PATTERNS_MAX)
        code = err_set(err, ERR_LIMIT, "%s: more than %d patterns", what, SCOPE_PATTERNS_MAX);
    if (!code)
        patterns[(*count)++] = arena_copy_str(arena, pattern);
    return code;
}

static enum err_code read_words(struct arena *arena, enum scope_kind kind, struct str text, const char *what,
                                const char **patterns, size_t *count, struct err *err)
{
    enum err_code code = ERR_NONE;
    for (size_t at = 0, end; at < text.n && !code; at = end) {
        while (at < text.n && text.p[at] == ' ')
            at++;
        for (end = at; end < text.n && text.p[end] != ' ';)
            end++;
        if (end > at)
            code = add_pattern(arena, kind, (struct str){text.p + at, end - at}, what, patterns, count, err);
    }
    return code;
}

enum err_code scope_list_read(struct arena *arena, enum scope_kind kind, const struct json *value, const char *what,
                              struct scope_list *out, struct err *err)
{
    enum err_code code = ERR_NONE;
    size_t count = 0;
    const char **patterns = arena_alloc(arena, SCOPE_PATTERNS_MAX * sizeof *patterns);
    if (value->type == JSON_STRING)
        code = read_words(arena, kind, value->text, what, patterns, &count, err);
    else if (value->type != JSON_ARRAY)
        code =
            err_set(err, ERR_INVALID, "%s: expected a list of patterns, found %s", what, json_type_name(value->type));
    for (uint32_t i = 0; value->type == JSON_ARRAY && i < value->count && !code; i++) {
        if (value->items[i].type != JSON_STRING)
            code = err_set(err, ERR_INVALID, "%s: expected a list of texts, item %u is %s", what, (unsigned)i + 1,
                           json_type_name(value->items[i].type));
        else
            code = add_pattern(arena, kind, value->items[i].text, what, patterns, &count, err);
    }
    if (!code)
        *out = (struct scope_list){.limited = true, .patterns = patterns, .count = count};
    return code;
}

enum err_code scope_list_parse(struct arena *arena, enum scope_kind kind, const char *text, struct scope_list *out,
                               struct err *err)
{
    struct json *value;
    if (!text) {
        *out = (struct scope_list){0};
        return ERR_NONE;
    }
    enum err_code code = json_parse(arena, str_of(text), NULL, &value, err);
    if (!code)
        code = scope_list_read(arena, kind, value, kind == SCOPE_TOOLS ? "tools" : "entities", out, err);
    return code;
}

/* ---- writing ---- */

const char *scope_list_text(struct arena *arena, const struct scope_list *list)
{
    if (!list->limited)
        return NULL;
    struct json *value = json_array(arena);
    for (size_t i = 0; i < list->count; i++)
        json_append(arena, value, json_string(str_of(list->patterns[i])));
    return json_to_text(arena, value).p;
}

const char *scope_list_words(struct arena *arena, const struct scope_list *list)
{
    if (!list->limited)
        return "all";
    if (list->count == 0)
        return "none";
    struct buf words;
    buf_init(&words, 0);
    for (size_t i = 0; i < list->count && words.n < WORDS_BYTES_MAX; i++)
        buf_printf(&words, "%s%s", i ? ", " : "", list->patterns[i]);
    if (words.n >= WORDS_BYTES_MAX)
        buf_add_text(&words, ", …");
    const char *text = arena_copy_str(arena, buf_str(&words));
    buf_release(&words);
    return text;
}

/* ---- judging ---- */

bool scope_allows_tool(const struct scope *scope, const char *tool)
{
    if (!scope || !scope->tools.limited)
        return true;
    for (size_t i = 0; i < scope->tools.count; i++)
        if (fnmatch(scope->tools.patterns[i], tool, 0) == 0)
            return true;
    return false;
}

/* The pattern's two halves; check_pattern has seen to it that there are two. */
static bool fits(const char *pattern, const char *type, const char *id)
{
    char type_pattern[SCOPE_PATTERN_BYTES_MAX + 1];
    size_t n = strcspn(pattern, "/");
    memcpy(type_pattern, pattern, n);
    type_pattern[n] = '\0';
    return fnmatch(type_pattern, type, 0) == 0 && fnmatch(pattern + n + 1, id, 0) == 0;
}

bool scope_allows_entity(const struct scope *scope, const char *type, const char *id)
{
    if (!scope || !scope->entities.limited)
        return true;
    for (size_t i = 0; i < scope->entities.count; i++)
        if (fits(scope->entities.patterns[i], type, id))
            return true;
    return false;
}

bool scope_is_limited(const struct scope *scope)
{
    return scope && (scope->tools.limited || scope->entities.limited);
}

static bool list_equal(const struct scope_list *a, const struct scope_list *b)
{
    if (a->limited != b->limited || a->count != b->count)
        return false;
    for (size_t i = 0; i < a->count; i++)
        if (strcmp(a->patterns[i], b->patterns[i]) != 0)
            return false;
    return true;
}

bool scope_equal(const struct scope *a, const struct scope *b)
{
    static const struct scope all = {0};
    a = a ? a : &all;
    b = b ? b : &all;
    return list_equal(&a->tools, &b->tools) && list_equal(&a->entities, &b->entities);
}

enum err_code scope_check(struct arena *arena, const struct scope *scope, const char *tool,
                          const struct scope_entity *entities, size_t count, struct err *err)
{
    if (!scope_allows_tool(scope, tool))
        return err_set(err, ERR_DENIED, "the token does not cover tool \"%s\"; its tools: %s", tool,
                       scope_list_words(arena, &scope->tools));
    if (!scope || !scope->entities.limited)
        return ERR_NONE;
    if (count == 0)
        return err_set(err, ERR_DENIED,
                       "the token is limited to certain entities (%s), and tool \"%s\" does not say which it touches",
                       scope_list_words(arena, &scope->entities), tool);
    for (size_t i = 0; i < count; i++)
        if (!scope_allows_entity(scope, entities[i].type, entities[i].id))
            return err_set(err, ERR_DENIED, "the token does not cover entity %.64s/%.128s; its entities: %s",
                           entities[i].type, entities[i].id, scope_list_words(arena, &scope->entities));
    return ERR_NONE;
}

enum err_code scope_check_operation(const struct scope *scope, const struct operation *op, struct err *err)
{
    if (!scope_is_limited(scope))
        return ERR_NONE;
    struct arena arena;
    struct claims claims = {0};
    struct scope_entity entities[CLAIMS_ENTITIES_MAX];
    arena_init(&arena);
    enum err_code code =
        scope->entities.limited && op->claims.p ? claims_read(&arena, op->claims, &claims, err) : ERR_NONE;
    for (size_t i = 0; i < claims.entity_count; i++)
        entities[i] = (struct scope_entity){claims.entities[i].type, claims.entities[i].id};
    if (!code)
        code = scope_check(&arena, scope, op->tool, entities, claims.entity_count, err);
    arena_release(&arena);
    return code;
}

/* ---- copying ---- */

static struct scope_list list_copy(struct arena *arena, const struct scope_list *list)
{
    const char **patterns = arena_alloc(arena, (list->count + 1) * sizeof *patterns);
    for (size_t i = 0; i < list->count; i++)
        patterns[i] = arena_copy_text(arena, list->patterns[i]);
    return (struct scope_list){list->limited, patterns, list->count};
}

const struct scope *scope_copy(struct arena *arena, const struct scope *scope)
{
    if (!scope)
        return NULL;
    struct scope *copy = arena_alloc(arena, sizeof *copy);
    *copy = (struct scope){list_copy(arena, &scope->tools), list_copy(arena, &scope->entities)};
    return copy;
}
