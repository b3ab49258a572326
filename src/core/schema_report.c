#include "core/schema_report.h"

#include "core/schema_node.h"

#include <stdio.h>

#define NAME_SHOWN_MAX 64
#define MESSAGE_MAX    400

unsigned schema_spot_depth(const struct schema_spot *spot)
{
    unsigned depth = 0;
    for (; spot->up; spot = spot->up)
        depth++;
    return depth;
}

static void add_pointer(struct buf *buf, const struct schema_spot *spot)
{
    if (!spot->up)
        return;
    add_pointer(buf, spot->up);
    if (spot->name.p)
        json_pointer_add(buf, spot->name);
    else
        buf_printf(buf, "/%u", spot->index);
}

void schema_report_add(struct schema_report *report, struct arena *arena, const struct schema_spot *spot,
                       const char *keyword, const char *format, va_list args)
{
    char message[MESSAGE_MAX];
    struct buf pointer;
    if (report->count == SCHEMA_ERRORS_MAX)
        return;
    vsnprintf(message, sizeof message, format, args);
    buf_init(&pointer, 0);
    add_pointer(&pointer, spot);
    report->depths[report->count] = schema_spot_depth(spot);
    report->errors[report->count++] = (struct schema_error){
        .pointer = arena_copy_str(arena, buf_str(&pointer)),
        .message = arena_copy_text(arena, message),
        .keyword = keyword,
    };
    buf_release(&pointer);
}

void schema_report_append(struct schema_report *report, const struct schema_report *more)
{
    for (size_t i = 0; i < more->count && report->count < SCHEMA_ERRORS_MAX; i++) {
        report->depths[report->count] = more->depths[i];
        report->errors[report->count++] = more->errors[i];
    }
}

void schema_report_sort(struct schema_report *report)
{
    for (size_t i = 1; i < report->count; i++) {
        struct schema_error error = report->errors[i];
        unsigned depth = report->depths[i];
        size_t at = i;
        for (; at && report->depths[at - 1] < depth; at--) {
            report->errors[at] = report->errors[at - 1];
            report->depths[at] = report->depths[at - 1];
        }
        report->errors[at] = error;
        report->depths[at] = depth;
    }
}

static bool plain_word(struct str name)
{
    for (size_t i = 0; i < name.n; i++)
        if ((unsigned char)name.p[i] <= ' ' || name.p[i] == '"' || name.p[i] == 0x7f)
            return false;
    return name.n > 0;
}

const char *schema_name_text(struct arena *arena, struct str name)
{
    bool cut = name.n > NAME_SHOWN_MAX;
    if (cut) {
        name.n = NAME_SHOWN_MAX;
        while (name.n && ((unsigned char)name.p[name.n] & 0xc0) == 0x80) /* not within a character */
            name.n--;
    }
    struct buf buf;
    buf_init(&buf, 0);
    if (plain_word(name))
        buf_add_str(&buf, name);
    else
        json_write_string(&buf, name);
    if (cut)
        buf_add_text(&buf, "...");
    const char *text = arena_copy_str(arena, buf_str(&buf));
    buf_release(&buf);
    return text;
}

const char *schema_types_text(struct arena *arena, unsigned types)
{
    static const char *const names[] = {"null", "boolean", "integer", "number", "string", "array", "object"};
    char text[96];
    size_t n = 0;
    if (types & SCHEMA_NUMBER)
        types &= ~(unsigned)SCHEMA_INTEGER;
    /* null last: "string or null" */
    for (unsigned i = 1; i <= 7; i++) {
        unsigned bit = i % 7;
        if (types & 1U << bit)
            n += (size_t)snprintf(text + n, sizeof text - n, "%s%s", n ? " or " : "", names[bit]);
    }
    return arena_copy_text(arena, text);
}

/* A member that tells alternatives apart has another value: this alternative was not meant. */
static bool other_kind(const struct schema_report *report, unsigned depth)
{
    for (size_t i = 0; i < report->count; i++)
        if (report->depths[i] == depth + 1 && text_equal(report->errors[i].keyword, "const"))
            return true;
    return false;
}

const struct schema_report *schema_report_closest(const struct schema_report *reports, const bool *ruled_out,
                                                  size_t count, unsigned depth)
{
    const struct schema_report *possible = NULL, *likely = NULL;
    size_t possible_count = 0, likely_count = 0;
    for (size_t i = 0; i < count; i++) {
        if (ruled_out[i])
            continue;
        possible = &reports[i];
        possible_count++;
        if (other_kind(&reports[i], depth))
            continue;
        likely = &reports[i];
        likely_count++;
    }
    if (likely_count == 1)
        return likely;
    return possible_count == 1 ? possible : NULL;
}
