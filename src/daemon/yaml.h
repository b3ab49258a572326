/* Reads the YAML of a registry file into a JSON tree (base/json.h) and keeps where each value stood. Stricter than
 * YAML: one document; duplicate and non-string keys, tags, directives, merge keys and NUL are refused; plain scalars
 * become JSON's null, booleans and numbers (with their exact text) or strings, and those that YAML versions read
 * differently (yes, 0x10, 007, .inf) are refused rather than guessed. Anchors and aliases are allowed within the
 * limits. */
#ifndef DAEMON_YAML_H
#define DAEMON_YAML_H

#include "base/json.h"

#define YAML_BYTES_MAX    (1024 * 1024)
#define YAML_DEPTH_MAX    48     /* nesting of lists and mappings, aliases expanded */
#define YAML_VALUES_MAX   100000 /* all values together, aliases expanded: bounds what "billion laughs" can do */
#define YAML_ANCHORS_MAX  256
#define YAML_PROBLEMS_MAX 50 /* further ones are not kept */

/* Where a value stood: its key when it is a member, else its first character. children run parallel to the items or
 * members of the json value. Lines and columns (characters) count from 1. */
struct yaml_place {
    unsigned line, column;
    const struct yaml_place *children;
};

struct yaml_problem {
    unsigned line, column;
    const char *text;
};

struct yaml {
    const struct json *root;
    struct yaml_place place; /* of the root */
    struct yaml_problem *problems;
    size_t problem_count;
};

/* Everything in *out lives in arena. ERR_NONE: no problems, root is set. ERR_INVALID or ERR_LIMIT: root is NULL and
 * problems holds at least one. Values that alias each other share memory: treat the tree as read-only. */
enum err_code yaml_parse(struct arena *arena, struct str text, struct yaml *out);

/* Where the deepest existing part of pointer stood; always gives a place. */
struct yaml_place yaml_find(const struct yaml *yaml, struct str pointer);

#endif
