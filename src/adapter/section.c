#include "adapter/section.h"

#include "base/units.h"

#include <stdarg.h>
#include <stdio.h>

void section_open(struct section *section, const struct json *value, const char *pointer, struct problems *problems)
{
    *section = (struct section){.value = value, .pointer = pointer, .problems = problems};
    if (value && value->type == JSON_NULL)
        section->value = NULL;
    if (!section->value || value->type == JSON_OBJECT)
        return;
    problems_add(problems, pointer, "is %s, expected members", json_type_name(value->type));
    section->value = NULL;
}

void section_close(struct section *section)
{
    for (uint32_t i = 0; section->value && i < section->value->count; i++) {
        if (i >= SECTION_MEMBERS_MAX || !(section->asked & UINT64_C(1) << i))
            problems_add(section->problems, section_pointer(section, section->value->members[i].name),
                         "unknown member");
    }
}

const struct json *section_member(struct section *section, const char *name)
{
    for (uint32_t i = 0; section->value && i < section->value->count && i < SECTION_MEMBERS_MAX; i++) {
        if (str_is(section->value->members[i].name, name)) {
            section->asked |= UINT64_C(1) << i;
            const struct json *value = &section->value->members[i].value;
            return value->type == JSON_NULL ? NULL : value;
        }
    }
    return NULL;
}

const char *section_pointer(const struct section *section, struct str name)
{
    struct buf buf;
    buf_init(&buf, 0);
    buf_add_text(&buf, section->pointer);
    json_pointer_add(&buf, name);
    const char *pointer = arena_copy_str(section->problems->arena, buf_str(&buf));
    buf_release(&buf);
    return pointer;
}

void section_problem(struct section *section, const char *name, const char *format, ...)
{
    char text[ERR_TEXT_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    problems_add(section->problems, section_pointer(section, str_of(name)), "%s", text);
}

/* Of the wanted type, or NULL after reporting. */
static const struct json *typed(struct section *section, const char *name, enum json_type type, const char *wanted)
{
    const struct json *value = section_member(section, name);
    if (value && value->type != type) {
        section_problem(section, name, "is %s, expected %s", json_type_name(value->type), wanted);
        return NULL;
    }
    return value;
}

const char *section_text(struct section *section, const char *name, const char *fallback)
{
    const struct json *value = typed(section, name, JSON_STRING, "a text");
    if (value && memchr(value->text.p, 0, value->text.n)) {
        section_problem(section, name, "holds a NUL character");
        return fallback;
    }
    /* texts of the tree need not end in NUL */
    return value ? arena_copy_str(section->problems->arena, value->text) : fallback;
}

bool section_bool(struct section *section, const char *name, bool fallback)
{
    const struct json *value = typed(section, name, JSON_BOOL, "true or false");
    return value ? value->boolean : fallback;
}

int64_t section_int(struct section *section, const char *name, int64_t fallback, int64_t min, int64_t max)
{
    const struct json *value = typed(section, name, JSON_NUMBER, "a whole number");
    int64_t number;
    if (!value)
        return fallback;
    if (!json_number_int64(value->text, &number) || number < min || number > max) {
        section_problem(section, name, "is %.*s, expected a whole number from %lld to %lld", STR_ARG(value->text),
                        (long long)min, (long long)max);
        return fallback;
    }
    return number;
}

int64_t section_ms(struct section *section, const char *name, int64_t fallback, int64_t min, int64_t max)
{
    const struct json *value = section_member(section, name);
    int64_t ms;
    struct err err = {0};
    if (!value)
        return fallback;
    /* 0 is written without a unit and comes as a number */
    if (value->type == JSON_NUMBER && str_is(value->text, "0")) {
        ms = 0;
    } else if (value->type != JSON_STRING) {
        section_problem(section, name, "is %s, expected a duration such as 10s", json_type_name(value->type));
        return fallback;
    } else if (units_duration_ms(value->text, &ms, &err) != ERR_NONE) {
        section_problem(section, name, "%s", err.text);
        return fallback;
    }
    if (ms < min || ms > max) {
        section_problem(section, name, "is %lldms, expected %lldms to %lldms", (long long)ms, (long long)min,
                        (long long)max);
        return fallback;
    }
    return ms;
}

size_t section_bytes(struct section *section, const char *name, size_t fallback, size_t min, size_t max)
{
    const struct json *value = section_member(section, name);
    size_t bytes;
    struct err err = {0};
    if (!value)
        return fallback;
    if (value->type != JSON_STRING && value->type != JSON_NUMBER) {
        section_problem(section, name, "is %s, expected a size such as 1MB", json_type_name(value->type));
        return fallback;
    }
    if (units_bytes(value->text, &bytes, &err) != ERR_NONE) {
        section_problem(section, name, "%s", err.text);
        return fallback;
    }
    if (bytes < min || bytes > max) {
        section_problem(section, name, "is %zu bytes, expected %zu to %zu", bytes, min, max);
        return fallback;
    }
    return bytes;
}

unsigned section_choice(struct section *section, const char *name, const char *const *choices, unsigned fallback)
{
    const struct json *value = typed(section, name, JSON_STRING, "a text");
    if (!value)
        return fallback;
    struct buf list;
    buf_init(&list, 0);
    unsigned found = fallback;
    bool good = false;
    for (unsigned i = 0; choices[i]; i++) {
        if (str_is(value->text, choices[i])) {
            found = i;
            good = true;
        }
        buf_printf(&list, "%s%s", i ? ", " : "", choices[i]);
    }
    if (!good)
        section_problem(section, name, "is \"%.*s\", expected one of: %s",
                        (int)(value->text.n > 64 ? 64 : value->text.n), value->text.p, list.p);
    buf_release(&list);
    return found;
}
