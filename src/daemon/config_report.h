/* What is wrong with a YAML file that a person wrote (registry, scenarios): every problem with its line and column,
 * told at once (design 13). */
#ifndef DAEMON_CONFIG_REPORT_H
#define DAEMON_CONFIG_REPORT_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/problem.h"
#include "daemon/yaml.h"

#include <stdio.h>

#define CONFIG_BYTES_MAX (1024 * 1024) /* of the file */

/* What is wrong with a file, ordered by line and column. */
struct config_problem {
    unsigned line, column; /* from 1; 0 when the file could not be read at all */
    const char *pointer;   /* JSON Pointer of the place, "" for the whole file */
    const char *text;      /* what is wrong, what was expected */
    bool warning;          /* dangerous or pointless, but not refused */
};

struct config_report {
    struct arena arena;
    const char *path;
    struct config_problem *items;
    size_t count;    /* at most PROBLEMS_MAX */
    size_t errors;   /* without warnings; may be more than are kept */
    bool unreadable; /* the file could not be opened or read: items has the one reason */
};
void config_report_init(struct config_report *report);
void config_report_release(struct config_report *report);
/* How the report is filled: with the one reason why there is nothing to look at, with what the YAML reader said, or
 * with problems whose pointers lead into the tree. Each is called at most once. */
void config_report_one(struct config_report *report, const char *text);
void config_report_yaml(struct config_report *report, const struct yaml *yaml);
void config_report_problems(struct config_report *report, const struct yaml *yaml, const struct problems *problems);

/* One line each: "file:line:column: path: text" ("file:line:column: warning: path: text"). */
void config_report_print(const struct config_report *report, FILE *out);

/* Reads the file at path into out, which must be made with CONFIG_BYTES_MAX. `expected` ("a registry file") is for the
 * message about folders. ERR_NOT_FOUND, ERR_IO, ERR_LIMIT: the report has the reason and is unreadable. */
enum err_code config_read_file(const char *path, const char *expected, struct buf *out, struct config_report *report);

#endif
