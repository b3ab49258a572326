/* What a caller may use beside what its role allows (design 16): the tools and the entities that its token names. Comes
 * from `onced token create --tools … --entities …` or from the claims of a signed token. A plain value; no I/O.
 *
 * Patterns are those of the shell (fnmatch): `refund.*` for tools, TYPE/ID for entities, where both halves are patterns
 * and are compared apart: a type that merely begins with "order/" is not of the type "order". */
#ifndef CORE_SCOPE_H
#define CORE_SCOPE_H

#include "base/arena.h"
#include "base/err.h"
#include "base/json.h"
#include "core/operation.h"

#include <stdbool.h>
#include <stddef.h>

#define SCOPE_PATTERNS_MAX      100 /* of tools, and of entities */
#define SCOPE_PATTERN_BYTES_MAX 200

/* limited without a pattern: nothing at all. */
struct scope_list {
    bool limited; /* false: whatever there is */
    const char *const *patterns;
    size_t count;
};

struct scope {
    struct scope_list tools, entities;
};

enum scope_kind { SCOPE_TOOLS, SCOPE_ENTITIES };

/* Reads patterns from a list of texts, or from one text with blanks between them (as OAuth's scope is written). Refuses
 * (ERR_INVALID, ERR_LIMIT) other values, empty patterns, control characters and, for entities, patterns without "/";
 * what names the place in messages. Texts are copied to arena; *out is written on success only. */
enum err_code scope_list_read(struct arena *arena, enum scope_kind kind, const struct json *value, const char *what,
                              struct scope_list *out, struct err *err);
/* The same from the text that scope_list_text made; NULL: not limited. */
enum err_code scope_list_parse(struct arena *arena, enum scope_kind kind, const char *text, struct scope_list *out,
                               struct err *err);
/* A JSON list in arena, as it is stored; NULL when not limited. */
const char *scope_list_text(struct arena *arena, const struct scope_list *list);
/* For people: "refund.*, order.get", "none", "all"; shortened when it is long. */
const char *scope_list_words(struct arena *arena, const struct scope_list *list);

/* A scope that is NULL limits nothing. */
bool scope_allows_tool(const struct scope *scope, const char *tool);
bool scope_allows_entity(const struct scope *scope, const char *type, const char *id);
bool scope_is_limited(const struct scope *scope);
/* The same patterns in the same order. */
bool scope_equal(const struct scope *a, const struct scope *b);

/* Whether a call of this tool, which touches these entities, is within the scope. A tool that names no entity may touch
 * any: with limited entities it is refused. ERR_DENIED says in err what is missing. */
struct scope_entity {
    const char *type, *id;
};
enum err_code scope_check(struct arena *arena, const struct scope *scope, const char *tool,
                          const struct scope_entity *entities, size_t count, struct err *err);

/* Whether an operation that is there lies within the scope: its tool, and every entity that it claims. */
enum err_code scope_check_operation(const struct scope *scope, const struct operation *op, struct err *err);

/* A copy in arena, with all texts; NULL for NULL. */
const struct scope *scope_copy(struct arena *arena, const struct scope *scope);

#endif
