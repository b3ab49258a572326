/* Reads one mapping of the registry file by the option table: see config_options.h. */
#include "base/units.h"
#include "daemon/config_options.h"

#include <assert.h>
#include <stdio.h>

#define LIST_MAX    100 /* items of any list that is an option */
#define MAPPING_MAX 200 /* members of headers, query, verify, … */

static_assert(sizeof(enum tool_class) == sizeof(unsigned), "choices are stored as unsigned");

/* ---- names ---- */

bool config_name_valid(struct str name)
{
    if (name.n == 0 || name.n > CONFIG_NAME_BYTES_MAX)
        return false;
    for (size_t i = 0; i < name.n; i++) {
        char c = name.p[i];
        bool fine = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
                    c == '.' || c == '-';
        if (!fine)
            return false;
    }
    return true;
}

const char *options_pointer(struct arena *arena, const char *parent, struct str token)
{
    struct buf buf;
    buf_init(&buf, 0);
    buf_add_text(&buf, parent);
    json_pointer_add(&buf, token);
    const char *pointer = arena_copy_str(arena, buf_str(&buf));
    buf_release(&buf);
    return pointer;
}

static const char *item_pointer(struct arena *arena, const char *parent, uint32_t index)
{
    return arena_printf(arena, "%s/%u", parent, index);
}

/* Edit distance with transpositions of neighbours; names longer than the table are taken for far. */
#define DISTANCE_NAME_MAX 40

static size_t distance(struct str a, struct str b)
{
    if (a.n > DISTANCE_NAME_MAX || b.n > DISTANCE_NAME_MAX)
        return SIZE_MAX;
    size_t rows[3][DISTANCE_NAME_MAX + 1];
    size_t *before = rows[0], *last = rows[1], *now = rows[2];
    for (size_t j = 0; j <= b.n; j++)
        last[j] = before[j] = j;
    for (size_t i = 1; i <= a.n; i++) {
        now[0] = i;
        for (size_t j = 1; j <= b.n; j++) {
            size_t best = last[j - 1] + (a.p[i - 1] != b.p[j - 1]);
            if (last[j] + 1 < best)
                best = last[j] + 1;
            if (now[j - 1] + 1 < best)
                best = now[j - 1] + 1;
            bool swapped = i > 1 && j > 1 && a.p[i - 1] == b.p[j - 2] && a.p[i - 2] == b.p[j - 1];
            if (swapped && before[j - 2] + 1 < best)
                best = before[j - 2] + 1;
            now[j] = best;
        }
        size_t *spare = before;
        before = last;
        last = now;
        now = spare;
    }
    return last[b.n];
}

const char *options_nearest(struct str name, const char *const *candidates, size_t count)
{
    size_t best = name.n / 3 + 1; /* farther ones are no misspelling */
    const char *nearest = NULL;
    for (size_t i = 0; i < count; i++) {
        size_t d = distance(name, str_of(candidates[i]));
        if (d < best + (nearest == NULL)) {
            best = d;
            nearest = candidates[i];
        }
    }
    return nearest;
}

/* ---- what is expected ---- */

static bool is_choice(const struct option *option, size_t index)
{
    return option->choices[index] && !text_equal(option->choices[index], option->unavailable);
}

static void add_choices(const struct option *option, struct buf *out)
{
    const char *separator = "";
    for (size_t i = 0; i < OPTION_CHOICES_MAX && option->choices[i]; i++) {
        if (!is_choice(option, i))
            continue;
        buf_printf(out, "%s%s", separator, option->choices[i]);
        separator = ", ";
    }
}

static void add_duration(struct buf *out, int64_t ms)
{
    static const struct {
        int64_t ms;
        const char *unit;
    } units[] = {{86400000, "d"}, {3600000, "h"}, {60000, "m"}, {1000, "s"}, {1, "ms"}};
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        if (ms % units[i].ms == 0 && ms > 0) {
            buf_printf(out, "%lld%s", (long long)(ms / units[i].ms), units[i].unit);
            return;
        }
    }
    buf_add_text(out, "0");
}

static void add_size(struct buf *out, int64_t bytes)
{
    if (bytes && bytes % (1024 * 1024) == 0)
        buf_printf(out, "%lldMB", (long long)(bytes / (1024 * 1024)));
    else if (bytes && bytes % 1024 == 0)
        buf_printf(out, "%lldKB", (long long)(bytes / 1024));
    else
        buf_printf(out, "%lld", (long long)bytes);
}

void options_expected(const struct option *option, struct buf *out)
{
    switch (option->type) {
    case OPTION_TEXT: buf_add_text(out, "a text"); break;
    case OPTION_BOOL: buf_add_text(out, "true or false"); break;
    case OPTION_INTEGER:
    case OPTION_COUNT:
        buf_printf(out, option->min == option->max ? "%lld" : "a whole number from %lld to %lld",
                   (long long)option->min, (long long)option->max);
        break;
    case OPTION_DECIMAL:
        buf_printf(out, "a number from %lld to %lld", (long long)option->min, (long long)option->max);
        break;
    case OPTION_DURATION:
        buf_add_text(out, "a duration (500ms, 10s, 5m, 24h, 30d) from ");
        add_duration(out, option->min);
        buf_add_text(out, " to ");
        add_duration(out, option->max);
        break;
    case OPTION_SIZE:
        buf_add_text(out, "a size (bytes, 64KB, 1MB) from ");
        add_size(out, option->min);
        buf_add_text(out, " to ");
        add_size(out, option->max);
        break;
    case OPTION_TEXTS: buf_add_text(out, "a list of texts"); break;
    case OPTION_FLAG_OR_TEXTS: buf_add_text(out, "true, false or a list of texts"); break;
    case OPTION_CHOICE:
        if (option->choices[1])
            buf_add_text(out, "one of ");
        add_choices(option, out);
        break;
    case OPTION_CHOICES:
        buf_add_text(out, "a list of ");
        add_choices(option, out);
        break;
    case OPTION_DURATIONS: buf_printf(out, "a list of at most %lld durations (1m, 24h)", (long long)option->max); break;
    case OPTION_POINTER: buf_add_text(out, "a JSON Pointer (/a/b)"); break;
    case OPTION_POINTERS: buf_add_text(out, "a list of JSON Pointers (/a/b)"); break;
    case OPTION_TEMPLATE: buf_add_text(out, "a text with {places}"); break;
    case OPTION_TEMPLATE_OR_JQ: buf_add_text(out, "a text with {places} or {jq: program}"); break;
    case OPTION_POINTER_OR_JQ: buf_add_text(out, "a JSON Pointer (/a/b) or {jq: program}"); break;
    case OPTION_JQ: buf_add_text(out, "a jq program"); break;
    case OPTION_TEMPLATES: buf_add_text(out, "a mapping of names to texts"); break;
    case OPTION_EQUALITIES:
        buf_add_text(out, "a mapping of JSON Pointers to templates, plain values or {jq: program}");
        break;
    case OPTION_STATUSES: buf_add_text(out, "a list of HTTP statuses (409) or {status, code, when}"); break;
    case OPTION_JSON_BODY: buf_add_text(out, "a JSON body or a jq program"); break;
    case OPTION_FORM_BODY: buf_add_text(out, "a mapping or a jq program"); break;
    case OPTION_SCHEMA: buf_add_text(out, "a JSON Schema"); break;
    case OPTION_OBJECT: buf_add_text(out, "a mapping"); break;
    case OPTION_LIST: buf_add_text(out, "a list"); break;
    case OPTION_CLASSES:
        buf_add_text(out, "a mapping of names to ");
        add_choices(option, out);
        break;
    case OPTION_NORMALIZERS: buf_add_text(out, "a mapping of fields to normalisers"); break;
    case OPTION_MESSAGES: buf_add_text(out, "a mapping of states to texts"); break;
    case OPTION_ANY: buf_add_text(out, "a value"); break;
    case OPTION_SECTION: buf_add_text(out, "a mapping"); break;
    case OPTION_SECTIONS: buf_printf(out, "a list of at most %lld mappings", (long long)option->max); break;
    case OPTION_CHOICE_OR_SECTION:
        add_choices(option, out);
        buf_add_text(out, " or a mapping");
        break;
    case OPTION_MAP: buf_add_text(out, "a mapping of names to sections"); break;
    }
}

/* Short form of a value for messages; texts are cut. */
static void add_found(struct buf *out, const struct json *value)
{
    switch (value->type) {
    case JSON_NULL: buf_add_text(out, "nothing"); break;
    case JSON_BOOL: buf_add_text(out, value->boolean ? "true" : "false"); break;
    case JSON_NUMBER: buf_printf(out, "%.*s", value->text.n > 40 ? 40 : (int)value->text.n, value->text.p); break;
    case JSON_STRING: buf_printf(out, "\"%.*s\"", value->text.n > 40 ? 40 : (int)value->text.n, value->text.p); break;
    case JSON_ARRAY: buf_add_text(out, "a list"); break;
    case JSON_OBJECT: buf_add_text(out, "a mapping"); break;
    }
}

static void refuse(const struct options_reader *reader, const struct option *option, const struct json *value,
                   const char *pointer)
{
    struct buf buf;
    buf_init(&buf, 0);
    buf_add_text(&buf, "expected ");
    options_expected(option, &buf);
    buf_add_text(&buf, ", found ");
    add_found(&buf, value);
    bool text_wanted = option->type == OPTION_TEXT || option->type == OPTION_TEXTS || option->type == OPTION_TEMPLATE ||
                       option->type == OPTION_JQ;
    if (text_wanted && (value->type == JSON_NUMBER || value->type == JSON_BOOL))
        buf_add_text(&buf, " (put it in quotes)");
    if (option->hint &&
        (!option->unavailable || (value->type == JSON_STRING && str_is(value->text, option->unavailable))))
        buf_printf(&buf, "; %s", option->hint);
    problems_add(reader->problems, pointer, "%s", buf_str(&buf).p);
    buf_release(&buf);
}

/* ---- values ---- */

static void *place(void *target, size_t at)
{
    return target && at ? (char *)target + at - 1 : NULL;
}

static void store(void *target, size_t at, const void *value, size_t bytes)
{
    void *to = place(target, at);
    if (to)
        memcpy(to, value, bytes);
}

static bool read_integer(const struct option *option, const struct json *value, int64_t *out)
{
    return value->type == JSON_NUMBER && json_number_int64(value->text, out) && *out >= option->min &&
           *out <= option->max;
}

/* "0" may be written as the number 0. */
static bool read_duration(const struct json *value, int64_t min, int64_t max, int64_t *ms)
{
    bool zero = value->type == JSON_NUMBER && str_is(value->text, "0");
    if (value->type != JSON_STRING && !zero)
        return false;
    return units_duration_ms(value->text, ms, NULL) == ERR_NONE && *ms >= min && *ms <= max;
}

static bool read_size(const struct option *option, const struct json *value, size_t *bytes)
{
    if (value->type != JSON_STRING && value->type != JSON_NUMBER)
        return false;
    return units_bytes(value->text, bytes, NULL) == ERR_NONE && *bytes >= (size_t)option->min &&
           *bytes <= (size_t)option->max;
}

static bool read_choice(const struct option *option, const struct json *value, unsigned *out)
{
    if (value->type != JSON_STRING)
        return false;
    for (unsigned i = 0; i < OPTION_CHOICES_MAX && option->choices[i]; i++) {
        if (str_is(value->text, option->choices[i])) {
            *out = option->base + i;
            return is_choice(option, i);
        }
    }
    return false;
}

static bool is_text(const struct json *value)
{
    return value->type == JSON_STRING && value->text.n > 0;
}

static bool is_list(const struct json *value, size_t max)
{
    return value->type == JSON_ARRAY && value->count <= max;
}

static bool is_pointer(const struct json *value)
{
    return value->type == JSON_STRING && json_pointer_valid(value->text);
}

static bool is_jq_object(const struct json *value)
{
    return value->type == JSON_OBJECT && value->count == 1 && str_is(value->members[0].name, "jq") &&
           is_text(&value->members[0].value);
}

static bool is_mapping_of(const struct json *value, bool (*check)(const struct json_member *member))
{
    if (value->type != JSON_OBJECT || value->count > MAPPING_MAX)
        return false;
    for (uint32_t i = 0; i < value->count; i++)
        if (!check(&value->members[i]))
            return false;
    return true;
}

static bool is_named_text(const struct json_member *member)
{
    return member->name.n > 0 && member->value.type == JSON_STRING;
}

static bool is_equality(const struct json_member *member)
{
    bool scalar = member->value.type != JSON_ARRAY && member->value.type != JSON_OBJECT;
    return json_pointer_valid(member->name) && (scalar || is_jq_object(&member->value));
}

static bool is_message(const struct json_member *member)
{
    enum state state;
    return state_from_name(member->name, &state) && is_text(&member->value);
}

static bool is_status_number(const struct json *value)
{
    int64_t status;
    return value->type == JSON_NUMBER && json_number_int64(value->text, &status) && status >= 100 && status <= 599;
}

static bool is_status(const struct json *value)
{
    if (is_status_number(value))
        return true;
    const struct json *status = value->type == JSON_OBJECT ? json_get(value, "status") : NULL;
    if (!status || !is_status_number(status))
        return false;
    for (uint32_t i = 0; i < value->count; i++) {
        const struct json_member *member = &value->members[i];
        bool code = str_is(member->name, "code") && (is_text(&member->value) || member->value.type == JSON_NUMBER);
        bool when = str_is(member->name, "when") && is_text(&member->value);
        if (!code && !when && !str_is(member->name, "status"))
            return false;
    }
    return true;
}

/* The first item that check refuses is told with its place. */
static bool read_list(const struct options_reader *reader, const struct option *option, const struct json *value,
                      const char *pointer, bool (*check)(const struct json *))
{
    if (!is_list(value, LIST_MAX)) {
        refuse(reader, option, value, pointer);
        return false;
    }
    bool fine = true;
    for (uint32_t i = 0; i < value->count; i++) {
        if (!check(&value->items[i])) {
            refuse(reader, option, &value->items[i], item_pointer(reader->arena, pointer, i));
            fine = false;
        }
    }
    return fine;
}

static void read_choices(const struct options_reader *reader, const struct option *option, const struct json *value,
                         const char *pointer, void *target)
{
    if (!is_list(value, (size_t)option->max)) {
        refuse(reader, option, value, pointer);
        return;
    }
    unsigned chosen[OPTION_CHOICES_MAX], count = 0;
    for (uint32_t i = 0; i < value->count; i++) {
        const char *at = item_pointer(reader->arena, pointer, i);
        if (!read_choice(option, &value->items[i], &chosen[count])) {
            refuse(reader, option, &value->items[i], at);
            return;
        }
        for (unsigned k = 0; k < count; k++) {
            if (chosen[k] == chosen[count]) {
                problems_add(reader->problems, at, "\"%.*s\" is listed twice", STR_ARG(value->items[i].text));
                return;
            }
        }
        count++;
    }
    store(target, option->at, chosen, count * sizeof *chosen);
    store(target, option->count_at, &count, sizeof count);
}

static void read_durations(const struct options_reader *reader, const struct option *option, const struct json *value,
                           const char *pointer, void *target)
{
    if (!is_list(value, (size_t)option->max)) {
        refuse(reader, option, value, pointer);
        return;
    }
    int64_t list[LIST_MAX];
    unsigned count = 0;
    for (; count < value->count; count++) {
        if (!read_duration(&value->items[count], option->min, UNITS_DURATION_MS_MAX, &list[count])) {
            refuse(reader, option, &value->items[count], item_pointer(reader->arena, pointer, count));
            return;
        }
        if (count > 0 && list[count] <= list[count - 1]) {
            problems_add(reader->problems, item_pointer(reader->arena, pointer, count),
                         "durations must increase, this one is not longer than the one before");
            return;
        }
    }
    store(target, option->at, list, count * sizeof *list);
    store(target, option->count_at, &count, sizeof count);
}

static void read_texts(const struct options_reader *reader, const struct option *option, const struct json *value,
                       const char *pointer, bool (*is_item)(const struct json *), void *target)
{
    if (!read_list(reader, option, value, pointer, is_item))
        return;
    size_t count = value->count;
    const char **list = arena_alloc(reader->arena, (count + 1) * sizeof *list);
    for (size_t i = 0; i < count; i++)
        list[i] = arena_copy_str(reader->arena, value->items[i].text);
    store(target, option->at, &list, sizeof list);
    store(target, option->count_at, &count, sizeof count);
}

static void read_classes(const struct options_reader *reader, const struct option *option, const struct json *value,
                         const char *pointer)
{
    unsigned choice;
    if (value->type != JSON_OBJECT || value->count > MAPPING_MAX) {
        refuse(reader, option, value, pointer);
        return;
    }
    for (uint32_t i = 0; i < value->count; i++) {
        const struct json_member *member = &value->members[i];
        if (!read_choice(option, &member->value, &choice))
            refuse(reader, option, &member->value, options_pointer(reader->arena, pointer, member->name));
    }
}

static void read_text(const struct options_reader *reader, const struct option *option, const struct json *value,
                      void *target)
{
    const char *text = arena_copy_str(reader->arena, value->text);
    store(target, option->at, &text, sizeof text);
}

/* Whether value has the form of an option that is not stored, or stored by the caller. */
static bool has_form(const struct option *option, const struct json *value)
{
    switch (option->type) {
    case OPTION_DECIMAL: {
        if (value->type != JSON_NUMBER)
            return false;
        char min[24], max[24];
        snprintf(min, sizeof min, "%lld", (long long)option->min);
        snprintf(max, sizeof max, "%lld", (long long)option->max);
        return json_number_compare(value->text, str_of(min)) >= 0 && json_number_compare(value->text, str_of(max)) <= 0;
    }
    case OPTION_POINTER: return is_pointer(value);
    case OPTION_TEMPLATE:
    case OPTION_JQ: return is_text(value);
    case OPTION_TEMPLATE_OR_JQ: return value->type == JSON_STRING || is_jq_object(value);
    case OPTION_POINTER_OR_JQ: return is_pointer(value) || is_jq_object(value);
    case OPTION_TEMPLATES: return is_mapping_of(value, is_named_text);
    case OPTION_EQUALITIES: return is_mapping_of(value, is_equality);
    case OPTION_JSON_BODY: return value->type != JSON_NULL;
    case OPTION_FORM_BODY: return value->type == JSON_OBJECT || is_text(value);
    case OPTION_SCHEMA:
    case OPTION_OBJECT: return value->type == JSON_OBJECT;
    case OPTION_LIST: return value->type == JSON_ARRAY;
    case OPTION_NORMALIZERS: return value->type == JSON_OBJECT;
    case OPTION_MESSAGES: return is_mapping_of(value, is_message);
    case OPTION_ANY: return true;
    case OPTION_MAP: return value->type == JSON_OBJECT;
    case OPTION_TEXT:
    case OPTION_TEXTS:
    case OPTION_FLAG_OR_TEXTS:
    case OPTION_CLASSES:
    case OPTION_BOOL:
    case OPTION_INTEGER:
    case OPTION_COUNT:
    case OPTION_DURATION:
    case OPTION_SIZE:
    case OPTION_CHOICE:
    case OPTION_CHOICES:
    case OPTION_DURATIONS:
    case OPTION_POINTERS:
    case OPTION_STATUSES:
    case OPTION_SECTIONS:
    case OPTION_CHOICE_OR_SECTION:
    case OPTION_SECTION: break;
    }
    return false;
}

static void read_value(const struct options_reader *reader, const struct option *option, const struct json *value,
                       const char *pointer, void *target)
{
    int64_t number;
    size_t bytes;
    unsigned choice;
    bool fine = true;
    switch (option->type) {
    case OPTION_TEXT:
        fine = value->type == JSON_STRING && (value->text.n > 0 || option->may_be_empty);
        if (fine)
            read_text(reader, option, value, target);
        break;
    case OPTION_BOOL:
        fine = value->type == JSON_BOOL;
        if (fine)
            store(target, option->at, &value->boolean, sizeof value->boolean);
        break;
    case OPTION_INTEGER:
        fine = read_integer(option, value, &number);
        choice = fine ? (unsigned)number : 0;
        if (fine)
            store(target, option->at, &choice, sizeof choice);
        break;
    case OPTION_COUNT:
        fine = read_integer(option, value, &number);
        bytes = fine ? (size_t)number : 0;
        if (fine)
            store(target, option->at, &bytes, sizeof bytes);
        break;
    case OPTION_DURATION:
        fine = read_duration(value, option->min, option->max, &number);
        if (fine)
            store(target, option->at, &number, sizeof number);
        break;
    case OPTION_SIZE:
        fine = read_size(option, value, &bytes);
        if (fine)
            store(target, option->at, &bytes, sizeof bytes);
        break;
    case OPTION_CHOICE:
        fine = read_choice(option, value, &choice);
        if (fine)
            store(target, option->at, &choice, sizeof choice);
        break;
    case OPTION_CHOICES: read_choices(reader, option, value, pointer, target); break;
    case OPTION_DURATIONS: read_durations(reader, option, value, pointer, target); break;
    case OPTION_POINTERS: read_texts(reader, option, value, pointer, is_pointer, target); break;
    case OPTION_TEXTS: read_texts(reader, option, value, pointer, is_text, target); break;
    case OPTION_FLAG_OR_TEXTS:
        if (value->type == JSON_ARRAY)
            read_list(reader, option, value, pointer, is_text);
        else
            fine = value->type == JSON_BOOL;
        break;
    case OPTION_CLASSES: read_classes(reader, option, value, pointer); break;
    case OPTION_OBJECT:
    case OPTION_LIST:
        fine = has_form(option, value);
        if (fine)
            store(target, option->at, &value, sizeof value);
        break;
    case OPTION_STATUSES: read_list(reader, option, value, pointer, is_status); break;
    case OPTION_SECTION: options_read(reader, option->section, value, pointer, place(target, option->at)); break;
    case OPTION_SECTIONS:
        fine = value->type == JSON_ARRAY && value->count <= option->max;
        for (uint32_t i = 0; fine && i < value->count; i++)
            options_read(reader, option->section, &value->items[i], arena_printf(reader->arena, "%s/%u", pointer, i),
                         NULL);
        break;
    case OPTION_CHOICE_OR_SECTION:
        if (value->type == JSON_OBJECT)
            options_read(reader, option->section, value, pointer, place(target, option->at));
        else
            fine = read_choice(option, value, &choice);
        break;
    case OPTION_DECIMAL:
    case OPTION_POINTER:
    case OPTION_TEMPLATE:
    case OPTION_TEMPLATE_OR_JQ:
    case OPTION_POINTER_OR_JQ:
    case OPTION_JQ:
    case OPTION_TEMPLATES:
    case OPTION_EQUALITIES:
    case OPTION_JSON_BODY:
    case OPTION_FORM_BODY:
    case OPTION_SCHEMA:
    case OPTION_NORMALIZERS:
    case OPTION_MESSAGES:
    case OPTION_ANY:
    case OPTION_MAP: fine = has_form(option, value); break;
    }
    if (!fine)
        refuse(reader, option, value, pointer);
}

/* ---- defaults ---- */

static struct json split_list(struct arena *arena, const char *text)
{
    struct json *list = json_array(arena);
    while (*text) {
        size_t n = strcspn(text, ",");
        json_append(arena, list, json_string(arena_str(arena, (struct str){text, n})));
        text += n;
        text += strspn(text, ", ");
    }
    return *list;
}

static const char *fallback_text(const struct options_reader *reader, const struct option *option)
{
    const char *by_class = option->by_class[reader->class];
    return by_class ? by_class : option->fallback;
}

/* Defaults go the same way as what the file says, so that both mean the same. */
static void store_fallback(const struct options_reader *reader, const struct option *option, void *target)
{
    if (option->type == OPTION_SECTION || option->type == OPTION_CHOICE_OR_SECTION) {
        if (option->at && target)
            for (size_t i = 0; i < option->section->count; i++)
                store_fallback(reader, &option->section->options[i], place(target, option->at));
        return;
    }
    const char *text = fallback_text(reader, option);
    if (!text || !option->at || !target)
        return;
    struct json value = json_string(str_of(text));
    if (option->type == OPTION_BOOL)
        value = json_bool(strcmp(text, "true") == 0);
    else if (option->type == OPTION_INTEGER || option->type == OPTION_COUNT)
        value = json_number(str_of(text));
    else if (option->type == OPTION_CHOICES || option->type == OPTION_DURATIONS)
        value = split_list(reader->arena, text);
    size_t errors = reader->problems->errors;
    read_value(reader, option, &value, "", target);
    assert(reader->problems->errors == errors); /* the table's own defaults are valid */
}

/* ---- sections ---- */

static bool is_of_kind(const struct option *option, enum option_kind kind)
{
    return option->kind == OPTION_ANY_KIND || kind == OPTION_ANY_KIND || (option->kind & kind);
}

/* The one of the reader's kind, else one of another kind. */
static const struct option *find_option(const struct options_reader *reader, const struct option_section *section,
                                        struct str name)
{
    const struct option *found = NULL;
    for (size_t i = 0; i < section->count; i++) {
        const struct option *option = &section->options[i];
        if (str_is(name, option->name) && (!found || is_of_kind(option, reader->kind)))
            found = option;
    }
    return found;
}

static void refuse_kind(const struct options_reader *reader, const struct option *option, const char *pointer)
{
    struct buf owners;
    const char *one = "";
    if (option->kind == OPTION_PERFORMED) {
        problems_add(reader->problems, pointer, "is not for multi-step tools: it is said at the tools of their steps");
        return;
    }
    buf_init(&owners, 0);
    for (size_t i = 0; i < OPTION_KIND_COUNT; i++) {
        if (option->kind & config_kinds[i].kind)
            buf_printf(&owners, "%s%s", owners.n ? ", " : "", config_kinds[i].many);
        if (reader->kind == config_kinds[i].kind)
            one = config_kinds[i].one;
    }
    bool of_tools = !(option->kind & ~(unsigned)(OPTION_GUARDED | OPTION_STEPS));
    problems_add(reader->problems, pointer, "belongs to %s%s; this one is %s", buf_str(&owners).p,
                 of_tools ? "" : " and their tools", one);
    buf_release(&owners);
}

#define SECTION_OPTIONS_MAX 80

static void refuse_unknown(const struct options_reader *reader, const struct option_section *section, struct str name,
                           const char *pointer)
{
    const char *names[SECTION_OPTIONS_MAX];
    size_t count = 0;
    assert(section->count <= SECTION_OPTIONS_MAX);
    struct buf list;
    buf_init(&list, 0);
    for (size_t i = 0; i < section->count; i++) {
        if (!is_of_kind(&section->options[i], reader->kind))
            continue;
        names[count] = section->options[i].name;
        buf_printf(&list, "%s%s", count ? ", " : "", names[count]);
        count++;
    }
    const char *nearest = options_nearest(name, names, count);
    const char *at = options_pointer(reader->arena, pointer, name);
    int shown = name.n > 60 ? 60 : (int)name.n;
    if (nearest)
        problems_add(reader->problems, at, "unknown member \"%.*s\", did you mean \"%s\"?", shown, name.p, nearest);
    else
        problems_add(reader->problems, at, "unknown member \"%.*s\", expected one of %s", shown, name.p,
                     buf_str(&list).p);
    buf_release(&list);
}

static void require(const struct options_reader *reader, const struct option_section *section, const struct json *value,
                    const char *pointer)
{
    for (size_t i = 0; i < section->count; i++) {
        const struct option *option = &section->options[i];
        bool wanted = option->required && !reader->partial && is_of_kind(option, reader->kind);
        if (option->of_steps && reader->kind == OPTION_STEPS)
            wanted = false;
        if (!wanted || (value && json_get(value, option->name)))
            continue;
        struct buf buf;
        buf_init(&buf, 0);
        options_expected(option, &buf);
        problems_add(reader->problems, options_pointer(reader->arena, pointer, str_of(option->name)),
                     "is missing, expected %s", buf_str(&buf).p);
        buf_release(&buf);
    }
}

void options_read(const struct options_reader *reader, const struct option_section *section, const struct json *value,
                  const char *pointer, void *target)
{
    for (size_t i = 0; i < section->count; i++)
        if (is_of_kind(&section->options[i], reader->kind))
            store_fallback(reader, &section->options[i], target);
    if (value && value->type != JSON_OBJECT) {
        struct buf buf;
        buf_init(&buf, 0);
        add_found(&buf, value);
        problems_add(reader->problems, pointer, "expected a mapping, found %s", buf_str(&buf).p);
        buf_release(&buf);
        return;
    }
    require(reader, section, value, pointer);
    for (uint32_t i = 0; value && i < value->count; i++) {
        const struct json_member *member = &value->members[i];
        const struct option *option = find_option(reader, section, member->name);
        if (!option)
            refuse_unknown(reader, section, member->name, pointer);
        else if (!is_of_kind(option, reader->kind))
            refuse_kind(reader, option, options_pointer(reader->arena, pointer, member->name));
        else
            read_value(reader, option, &member->value, options_pointer(reader->arena, pointer, member->name), target);
    }
}
