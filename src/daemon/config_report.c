#include "daemon/config_report.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

void config_report_init(struct config_report *report)
{
    *report = (struct config_report){0};
    arena_init(&report->arena);
}

void config_report_release(struct config_report *report)
{
    arena_release(&report->arena);
    config_report_init(report);
}

void config_report_print(const struct config_report *report, FILE *out)
{
    for (size_t i = 0; i < report->count; i++) {
        const struct config_problem *item = &report->items[i];
        fprintf(out, "%s:", report->path);
        if (item->line)
            fprintf(out, "%u:%u:", item->line, item->column);
        fprintf(out, " %s%s%s%s\n", item->warning ? "warning: " : "", item->pointer, *item->pointer ? ": " : "",
                item->text);
    }
    size_t errors = 0;
    for (size_t i = 0; i < report->count; i++)
        errors += !report->items[i].warning;
    if (errors < report->errors)
        fprintf(out, "%s: %zu further errors\n", report->path, report->errors - errors);
}

static int compare_problems(const void *a, const void *b)
{
    const struct config_problem *x = a, *y = b;
    if (x->line != y->line)
        return x->line < y->line ? -1 : 1;
    if (x->column != y->column)
        return x->column < y->column ? -1 : 1;
    if (x->warning != y->warning)
        return x->warning ? 1 : -1;
    int order = strcmp(x->pointer, y->pointer);
    return order ? order : strcmp(x->text, y->text);
}

void config_report_one(struct config_report *report, const char *text)
{
    report->items = arena_alloc(&report->arena, sizeof *report->items);
    report->items[0] = (struct config_problem){.pointer = "", .text = arena_copy_text(&report->arena, text)};
    report->count = report->errors = 1;
}

void config_report_yaml(struct config_report *report, const struct yaml *yaml)
{
    report->items = arena_alloc(&report->arena, (yaml->problem_count + 1) * sizeof *report->items);
    for (size_t i = 0; i < yaml->problem_count; i++)
        report->items[report->count++] =
            (struct config_problem){.line = yaml->problems[i].line,
                                    .column = yaml->problems[i].column,
                                    .pointer = "",
                                    .text = arena_copy_text(&report->arena, yaml->problems[i].text)};
    report->errors = report->count;
    qsort(report->items, report->count, sizeof *report->items, compare_problems);
}

void config_report_problems(struct config_report *report, const struct yaml *yaml, const struct problems *problems)
{
    report->items = arena_alloc(&report->arena, (problems->count + 1) * sizeof *report->items);
    for (size_t i = 0; i < problems->count; i++) {
        const struct problem *problem = &problems->items[i];
        struct yaml_place place = yaml_find(yaml, str_of(problem->pointer));
        report->items[report->count++] = (struct config_problem){.line = place.line,
                                                                 .column = place.column,
                                                                 .pointer = problem->pointer,
                                                                 .text = problem->text,
                                                                 .warning = problem->warning};
    }
    report->errors = problems->errors;
    qsort(report->items, report->count, sizeof *report->items, compare_problems);
}

/* ---- the file ---- */

static enum err_code read_file(const char *path, const char *expected, struct buf *out, struct err *err)
{
    struct stat stat;
    char chunk[16384];
    enum err_code code = ERR_NONE;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe without a writer must not block */
    if (fd < 0)
        return err_set(err, errno == ENOENT ? ERR_NOT_FOUND : ERR_IO, "cannot be opened: %s", strerror(errno));
    if (fstat(fd, &stat) == 0 && S_ISDIR(stat.st_mode))
        code = err_set(err, ERR_IO, "is a folder, expected %s", expected);
    while (!code && !out->over) {
        ssize_t n = read(fd, chunk, sizeof chunk);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            code = err_set(err, ERR_IO, "cannot be read: %s", strerror(errno));
        if (n <= 0)
            break;
        buf_add(out, chunk, (size_t)n);
    }
    if (!code && out->over)
        code = err_set(err, ERR_LIMIT, "has more than %d bytes", CONFIG_BYTES_MAX);
    close(fd);
    return code;
}

enum err_code config_read_file(const char *path, const char *expected, struct buf *out, struct config_report *report)
{
    struct err err = {0};
    report->path = arena_copy_text(&report->arena, path);
    enum err_code code = read_file(path, expected, out, &err);
    if (code) {
        config_report_one(report, err.text);
        report->unreadable = true;
    }
    return code;
}
