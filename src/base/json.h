/* JSON as onced needs it: strict RFC 8259 reader into an arena that keeps the exact text of numbers, writer, RFC 8785
 * canonical form with exact decimals (design 2.5), JSON Pointer (RFC 6901). No floating point anywhere: identity
 * depends on 9007199254740993 and 9007199254740992 being two numbers and 49, 49.0 and 4.9e1 being one. */
#ifndef BASE_JSON_H
#define BASE_JSON_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum json_type { JSON_NULL, JSON_BOOL, JSON_NUMBER, JSON_STRING, JSON_ARRAY, JSON_OBJECT };

struct json_member;

struct json {
    enum json_type type : 8;
    uint32_t room : 24; /* free places behind the last item or member; kept by json_set and json_append, else 0 */
    uint32_t count;     /* items or members */
    union {
        bool boolean;
        struct str text;             /* string: decoded UTF-8, may contain NUL; number: its exact text */
        struct json *items;          /* array */
        struct json_member *members; /* object, in the order of the text */
    };
};

struct json_member {
    struct str name; /* decoded */
    struct json value;
};

struct json_limits {
    size_t bytes_max;   /* of the text */
    unsigned depth_max; /* nesting of arrays and objects */
    size_t values_max;  /* all values together; bounds memory */
    /* RFC 8259 only advises against duplicate names; onced refuses them everywhere (design 2.5). true accepts them, in
     * their order, for judging the grammar alone: look-ups, equality and the canonical form are not defined for such
     * values. */
    bool duplicates_accepted;
};

/* 1 MiB, depth 64, 100,000 values. */
extern const struct json_limits json_limits_default;
/* For what was taken in under limits of its own, recorded by us and is read back: none but that of nesting. */
extern const struct json_limits json_limits_kept;

/* Parses the whole text as one value. Refuses with position ("line 3, column 7 (byte 41): …"; lines and columns count
 * from 1, bytes from 0): anything RFC 8259 does not allow, a byte order mark, invalid UTF-8, lone surrogates (raw or
 * escaped), duplicate member names (after decoding), and whatever is over the limits (ERR_LIMIT; all else ERR_INVALID).
 * limits NULL means the default; nesting beyond 1000 is refused in any case. Nothing in *out points into text. */
enum err_code json_parse(struct arena *arena, struct str text, const struct json_limits *limits, struct json **out,
                         struct err *err);

const char *json_type_name(enum json_type type); /* "null", "boolean", "number", "string", "array", "object" */

/* NULL when value is not an object or has no such member. Linear for small objects, so keep it out of loops over large
 * ones. */
const struct json *json_get(const struct json *object, const char *name);
const struct json *json_get_str(const struct json *object, struct str name);

/* Typed look-ups for trees that we wrote or validated ourselves; the fallback when absent or of another type. */
struct str json_get_text(const struct json *object, const char *name); /* absent: STR_NONE */
bool json_get_bool(const struct json *object, const char *name, bool fallback);
int64_t json_get_int(const struct json *object, const char *name, int64_t fallback);

/* The number as an integer if it is mathematically one and fits (49, 49.0 and 4.9e1 do). */
bool json_number_int64(struct str number, int64_t *out);
/* Compares two JSON numbers exactly as decimals: <0, 0, >0. Exponents of any size do not expand. */
int json_number_compare(struct str a, struct str b);
/* True if a is a multiple of b (b > 0), exactly. Used by JSON Schema multipleOf. Gives false for exponent spans over
 * 10,000 digits rather than working without bound. */
bool json_number_multiple_of(struct str a, struct str b);
bool json_number_is_integer(struct str number);

/* Same type and value; numbers as decimals, members in any order. */
bool json_equal(const struct json *a, const struct json *b);

/* ---- building ---- */

struct json json_null(void);
struct json json_bool(bool value);
struct json json_string(struct str text);       /* borrows; the absent string gives null */
struct json json_number(struct str exact_text); /* borrows; must be valid JSON */
struct json json_int(struct arena *arena, int64_t value);
struct json *json_object(struct arena *arena); /* empty */
struct json *json_array(struct arena *arena);  /* empty */
/* Replaces a member of that name or appends; name and value are borrowed (shallow copy of the struct). Amortised
 * growth. Copies of a struct share its items or members: change only one of them afterwards, or json_copy first. */
void json_set(struct arena *arena, struct json *object, struct str name, struct json value);
void json_remove(struct json *object, struct str name);
void json_append(struct arena *arena, struct json *array, struct json value);
struct json *json_copy(struct arena *arena, const struct json *value); /* deep, text included */

/* ---- writing ---- */

/* Compact; members in their order, numbers in their exact text, strings with the shortest escapes of RFC 8785. */
void json_write(struct buf *buf, const struct json *value);
/* The same as a text in arena; absent for NULL. */
struct str json_to_text(struct arena *arena, const struct json *value);

/* The same with two-space indentation, for people. */
void json_write_pretty(struct buf *buf, const struct json *value);
/* One string with quotes and escapes. */
void json_write_string(struct buf *buf, struct str text);

/* RFC 8785 layout: members sorted by UTF-16 code units, no white space, shortest escapes; numbers as exact decimals in
 * the layout that ECMAScript would use (digits beyond double precision are kept; "-0" is "0"; 1e400 stays 1e+400).
 * JSON_CANONICAL_VERSION is stored with each fingerprint, so that a change of the form can never turn a replay into a
 * new operation. */
#define JSON_CANONICAL_VERSION 1
void json_canonical(struct buf *buf, const struct json *value);
/* The canonical text of one number. */
void json_canonical_number(struct buf *buf, struct str number);

/* A writer for texts that we compose: keeps track of commas only. No value may be given where a name is expected; names
 * and values alternate in objects. Depth at most 64. */
struct json_out {
    struct buf *buf;
    uint64_t has_value; /* one bit per level */
    unsigned depth;
    bool after_name;
};
void json_out_init(struct json_out *out, struct buf *buf);
void json_out_object(struct json_out *out);
void json_out_end_object(struct json_out *out);
void json_out_array(struct json_out *out);
void json_out_end_array(struct json_out *out);
void json_out_name(struct json_out *out, const char *name);
void json_out_text(struct json_out *out, const char *text); /* NULL writes null */
void json_out_str(struct json_out *out, struct str text);   /* absent writes null */
void json_out_int(struct json_out *out, int64_t value);
void json_out_bool(struct json_out *out, bool value);
void json_out_null(struct json_out *out);
void json_out_raw(struct json_out *out, struct str json_text); /* already JSON; absent writes null */
void json_out_value(struct json_out *out, const struct json *value);
/* Name and value in one; text members are left out when NULL. */
void json_out_member_text(struct json_out *out, const char *name, const char *text);
void json_out_member_int(struct json_out *out, const char *name, int64_t value);
void json_out_member_bool(struct json_out *out, const char *name, bool value);

/* ---- JSON Pointer (RFC 6901) ---- */

/* NULL when nothing is there. "" is the value itself. */
const struct json *json_pointer_get(const struct json *value, struct str pointer);
/* True for "" or a text that starts with "/" and has only valid escapes. */
bool json_pointer_valid(struct str pointer);
/* Removes the member that a pointer names; a pointer to an item of an array or to nothing is left alone. */
void json_pointer_remove(struct json *value, const char *pointer);
/* Appends "/" + token with "~" and "/" escaped. */
void json_pointer_add(struct buf *buf, struct str token);

/* The pointers at which a and b differ (leaves, missing members, arrays of different lengths as a whole) in the order
 * of names, at most max of them, in an arena-allocated array. Returns how many. */
size_t json_diff(struct arena *arena, const struct json *a, const struct json *b, size_t max, const char ***pointers);

#endif
