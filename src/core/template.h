/* Simple templates: text with {name} or {/json/pointer} places, filled from a JSON value. "{{" and "}}" are literal
 * braces. {a.b} walks members. Compiled when the registry is loaded. */
#ifndef CORE_TEMPLATE_H
#define CORE_TEMPLATE_H

#include "base/json.h"

struct template;

/* How values are escaped where they are put in. */
enum template_escape {
    TEMPLATE_PLAIN, /* text as it is, numbers in their exact text */
    TEMPLATE_KEY,   /* ":" "%" "{" "}" and control bytes as %XX (design 2.2.2); numbers in canonical form */
    TEMPLATE_PATH,  /* one path segment: everything but unreserved characters as %XX (RFC 3986) */
    TEMPLATE_QUERY  /* application/x-www-form-urlencoded value: space as "+" */
};

/* Parses text (copied, at most 64 KiB: ERR_LIMIT). A broken place ("{", "{}") is refused with its column. Free with
 * template_free (NULL is fine). */
enum err_code template_new(const char *text, struct template **out, struct err *err);
void template_free(struct template *template);

/* The text that it was made from. */
const char *template_text(const struct template *template);

/* Appends the filled text. A place whose value is missing or null is refused by name ("order_id is missing", "order_id
 * is null"), ERR_INVALID; so is an object or array, and with TEMPLATE_PATH an empty text, "." and "..", which would
 * name another resource. Literal text is never escaped. *out may hold the parts before the refused one. */
enum err_code template_fill(const struct template *template, const struct json *values, enum template_escape escape,
                            struct buf *out, struct err *err);

/* The index-th place, from 0: its name as written and the JSON Pointer that it stands for. False behind the last. */
bool template_place(const struct template *template, size_t index, struct str *name, struct str *pointer);

/* When the template is exactly one place, e.g. "{amount}": the value itself (any type; NULL when missing), so that JSON
 * bodies keep numbers as numbers. *is_single tells. */
const struct json *template_single(const struct template *template, const struct json *values, bool *is_single);

#endif
