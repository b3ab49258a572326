#include "daemon/yaml.h"

#include "base/mem.h"

#include <libfyaml.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <utf8proc.h>

/* Flow: check_text refuses what the library should not even see; reader_run pulls libfyaml's events; read_node builds
 * values, places and sizes bottom-up. Problems that leave the structure readable (a duplicate key, a doubtful scalar)
 * are noted and reading goes on; syntax errors and limits end it. */

struct node {
    struct json value;
    struct yaml_place place;
    size_t values;   /* in this subtree, aliases expanded, itself included */
    unsigned height; /* of nesting below and including it; scalars 0 */
};

struct anchor {
    struct str name;
    struct node node;
};

struct reader {
    struct arena *arena;
    struct yaml *out;
    struct fy_diag *diag;
    struct fy_parser *parser;
    struct fy_token_iter *iterator; /* for one token at a time */
    struct anchor *anchors;
    size_t anchor_count;
    size_t values; /* read so far, aliases expanded */
    bool over_limit;
};

static void add_problem(struct reader *reader, unsigned line, unsigned column, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

static void add_problem(struct reader *reader, unsigned line, unsigned column, const char *format, ...)
{
    struct yaml *out = reader->out;
    if (out->problem_count == YAML_PROBLEMS_MAX)
        return;
    if (!out->problems)
        out->problems = arena_alloc(reader->arena, YAML_PROBLEMS_MAX * sizeof *out->problems);
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    out->problems[out->problem_count++] =
        (struct yaml_problem){line ? line : 1, column ? column : 1, arena_copy_text(reader->arena, text)};
}

/* Names in messages are cut: a key can be as long as the file. */
static int shown(struct str text)
{
    return text.n > 60 ? 60 : (int)text.n;
}

/* ---- before the library: size, encoding, control characters ---- */

static bool check_text(struct reader *reader, struct str text)
{
    if (text.n > YAML_BYTES_MAX) {
        add_problem(reader, 1, 1, "the file has %zu bytes, at most %d are allowed", text.n, YAML_BYTES_MAX);
        reader->over_limit = true;
        return false;
    }
    unsigned line = 1, column = 1;
    for (size_t i = 0; i < text.n;) {
        utf8proc_int32_t c;
        utf8proc_ssize_t n = utf8proc_iterate((const utf8proc_uint8_t *)text.p + i, (utf8proc_ssize_t)(text.n - i), &c);
        if (n <= 0) {
            add_problem(reader, line, column, "the text is not valid UTF-8");
            return false;
        }
        bool control = (c < 0x20 && c != '\t' && c != '\n' && c != '\r') || (c >= 0x7f && c < 0xa0 && c != 0x85);
        if (control || (c == 0xfeff && i > 0)) {
            add_problem(reader, line, column, "control character U+%04X is not allowed", (unsigned)c);
            return false;
        }
        i += (size_t)n;
        column++;
        if (c == '\n') {
            line++;
            column = 1;
        }
    }
    return true;
}

/* ---- scalars ---- */

static size_t digits(struct str text, size_t at)
{
    size_t n = 0;
    while (at + n < text.n && text.p[at + n] >= '0' && text.p[at + n] <= '9')
        n++;
    return n;
}

static bool starts_with(struct str text, size_t at, const char *prefix)
{
    size_t n = strlen(prefix);
    return text.n - at >= n && memcmp(text.p + at, prefix, n) == 0;
}

/* Whether all of text is a decimal number in YAML's core schema; *is_json when JSON writes it the same way. */
static bool is_number(struct str text, bool *is_json)
{
    *is_json = true;
    size_t at = 0;
    if (at < text.n && (text.p[at] == '-' || text.p[at] == '+')) {
        if (text.p[at] == '+')
            *is_json = false;
        at++;
    }
    size_t whole = digits(text, at), fraction = 0;
    if (whole == 0 || (whole > 1 && text.p[at] == '0'))
        *is_json = false;
    at += whole;
    if (at < text.n && text.p[at] == '.') {
        fraction = digits(text, at + 1);
        if (fraction == 0)
            *is_json = false;
        at += 1 + fraction;
    }
    if (whole + fraction == 0)
        return false;
    if (at < text.n && (text.p[at] == 'e' || text.p[at] == 'E')) {
        at++;
        if (at < text.n && (text.p[at] == '-' || text.p[at] == '+'))
            at++;
        size_t exponent = digits(text, at);
        if (exponent == 0)
            return false;
        at += exponent;
    }
    return at == text.n;
}

/* Numbers that YAML has and JSON has not: hexadecimal, octal, infinities, not-a-number. */
static bool is_foreign_number(struct str text)
{
    size_t at = text.n && (text.p[0] == '-' || text.p[0] == '+') ? 1 : 0;
    static const char *const words[] = {".inf", ".Inf", ".INF", ".nan", ".NaN", ".NAN"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (text.n - at == 4 && starts_with(text, at, words[i]))
            return true;
    if (text.n - at < 3)
        return false;
    const char *alphabet = starts_with(text, at, "0x")   ? "0123456789abcdefABCDEF"
                           : starts_with(text, at, "0o") ? "01234567"
                           : starts_with(text, at, "0b") ? "01"
                                                         : NULL;
    if (!alphabet)
        return false;
    for (size_t i = at + 2; i < text.n; i++)
        if (!text.p[i] || !strchr(alphabet, text.p[i]))
            return false;
    return true;
}

static bool is_one_of(struct str text, const char *const *words)
{
    for (; *words; words++)
        if (str_is(text, *words))
            return true;
    return false;
}

static const char *const null_words[] = {"", "~", "null", "Null", "NULL", NULL};
static const char *const true_words[] = {"true", "True", "TRUE", NULL};
static const char *const false_words[] = {"false", "False", "FALSE", NULL};
static const char *const yes_words[] = {"yes", "Yes", "YES", "on", "On", "ON", NULL};
static const char *const no_words[] = {"no", "No", "NO", "off", "Off", "OFF", NULL};

static struct json plain_value(struct reader *reader, struct str text, unsigned line, unsigned column)
{
    bool is_json;
    if (is_one_of(text, null_words))
        return json_null();
    if (is_one_of(text, true_words))
        return json_bool(true);
    if (is_one_of(text, false_words))
        return json_bool(false);
    bool yes = is_one_of(text, yes_words);
    if (yes || is_one_of(text, no_words)) {
        add_problem(reader, line, column,
                    "%.*s is a boolean to some YAML readers and text to others: write %s, or \"%.*s\" in quotes",
                    STR_ARG(text), yes ? "true" : "false", STR_ARG(text));
        return json_null();
    }
    if (is_number(text, &is_json) && is_json)
        return json_number(text);
    if (is_number(text, &is_json) || is_foreign_number(text)) {
        add_problem(reader, line, column,
                    "%.*s is not a number as JSON writes it: write a decimal number, or \"%.*s\" in quotes",
                    shown(text), text.p, shown(text), text.p);
        return json_null();
    }
    return json_string(text);
}

/* The token's text in the arena. By the iterator: libfyaml 0.7.12's fy_token_get_text leaks memory for text with many
 * escapes. */
static struct str token_text(struct reader *reader, struct fy_token *token)
{
    if (!token)
        return STR("");
    struct buf buf;
    buf_init(&buf, 0);
    const struct fy_iter_chunk *chunk = NULL;
    fy_token_iter_start(token, reader->iterator);
    while ((chunk = fy_token_iter_chunk_next(reader->iterator, chunk, NULL)))
        buf_add(&buf, chunk->str, chunk->len);
    fy_token_iter_finish(reader->iterator);
    struct str text = arena_str(reader->arena, buf_str(&buf));
    buf_release(&buf);
    return text;
}

/* Escapes in double quotes can name what the file itself may not hold. */
static bool check_scalar(struct reader *reader, struct str text, unsigned line, unsigned column)
{
    if (memchr(text.p, '\0', text.n)) {
        add_problem(reader, line, column, "NUL characters are not allowed");
        return false;
    }
    for (size_t i = 0; i < text.n;) {
        utf8proc_int32_t c;
        utf8proc_ssize_t n = utf8proc_iterate((const utf8proc_uint8_t *)text.p + i, (utf8proc_ssize_t)(text.n - i), &c);
        if (n <= 0) {
            add_problem(reader, line, column, "the text is not valid UTF-8 after its escapes");
            return false;
        }
        i += (size_t)n;
    }
    return true;
}

/* ---- events ---- */

static bool is_plain(struct fy_token *token)
{
    enum fy_scalar_style style = token ? fy_scalar_token_get_style(token) : FYSS_PLAIN;
    return style == FYSS_PLAIN || style == FYSS_ANY;
}

static struct yaml_place event_place(struct fy_event *event, struct yaml_place fallback)
{
    const struct fy_mark *mark = fy_event_start_mark(event);
    if (!mark || mark->line < 0 || mark->column < 0)
        return fallback;
    unsigned column = (unsigned)mark->column + 1;
    struct fy_token *token = fy_event_get_token(event);
    enum fy_scalar_style style = event->type == FYET_SCALAR && token ? fy_scalar_token_get_style(token) : FYSS_PLAIN;
    bool quoted = style == FYSS_SINGLE_QUOTED || style == FYSS_DOUBLE_QUOTED;
    if ((quoted || event->type == FYET_ALIAS) && column > 1)
        column--; /* the library's mark is behind the quote or star */
    return (struct yaml_place){(unsigned)mark->line + 1, column, NULL};
}

static void add_syntax_error(struct reader *reader, struct yaml_place near)
{
    void *previous = NULL;
    struct fy_diag_error *error = fy_diag_errors_iterate(reader->diag, &previous);
    if (error && error->line > 0)
        add_problem(reader, (unsigned)error->line, error->column > 0 ? (unsigned)error->column : 1, "%s", error->msg);
    else
        add_problem(reader, near.line, near.column, "%s", error && error->msg ? error->msg : "this is not valid YAML");
}

/* NULL after an error (noted) or at an end that came too early. */
static struct fy_event *next_event(struct reader *reader, struct yaml_place near)
{
    struct fy_event *event = fy_parser_parse(reader->parser);
    if (!event)
        add_syntax_error(reader, near);
    return event;
}

static bool count_values(struct reader *reader, size_t count, struct yaml_place place)
{
    if (count <= YAML_VALUES_MAX - reader->values) {
        reader->values += count;
        return true;
    }
    add_problem(reader, place.line, place.column, "more than %d values (aliases expanded) are not allowed",
                YAML_VALUES_MAX);
    reader->over_limit = true;
    return false;
}

static bool check_depth(struct reader *reader, unsigned depth, struct yaml_place place)
{
    if (depth <= YAML_DEPTH_MAX)
        return true;
    add_problem(reader, place.line, place.column, "nested deeper than %d levels", YAML_DEPTH_MAX);
    reader->over_limit = true;
    return false;
}

static bool keep_anchor(struct reader *reader, struct fy_event *event, const struct node *node)
{
    struct fy_token *token = fy_event_get_anchor_token(event);
    if (!token || event->type == FYET_ALIAS)
        return true;
    if (reader->anchor_count == YAML_ANCHORS_MAX) {
        add_problem(reader, node->place.line, node->place.column, "more than %d anchors are not allowed",
                    YAML_ANCHORS_MAX);
        reader->over_limit = true;
        return false;
    }
    if (!reader->anchors)
        reader->anchors = arena_alloc(reader->arena, YAML_ANCHORS_MAX * sizeof *reader->anchors);
    reader->anchors[reader->anchor_count++] = (struct anchor){token_text(reader, token), *node};
    return true;
}

/* The latest anchor of that name counts. An alias within the anchored value finds none: it is kept only when complete.
 */
static bool read_alias(struct reader *reader, struct fy_event *event, unsigned depth, struct node *out)
{
    struct str name = token_text(reader, fy_event_get_token(event));
    struct yaml_place place = out->place, star = event_place(event, place);
    for (size_t i = reader->anchor_count; i > 0; i--) {
        const struct anchor *anchor = &reader->anchors[i - 1];
        if (!str_equal(anchor->name, name))
            continue;
        *out = anchor->node;
        out->place.line = place.line;
        out->place.column = place.column;
        return check_depth(reader, depth + out->height, place) && count_values(reader, out->values, place);
    }
    add_problem(reader, star.line, star.column, "alias *%.*s names no anchor that was completed before it", shown(name),
                name.p);
    return false;
}

static void refuse_tag(struct reader *reader, struct fy_event *event, struct yaml_place place)
{
    if (event->type != FYET_ALIAS && fy_event_get_tag_token(event))
        add_problem(reader, place.line, place.column, "tags are not supported: put text in quotes instead");
}

static bool read_node(struct reader *reader, struct fy_event *event, unsigned depth, struct node *out);

/* Grows an arena array: the old copy stays behind, which doubling keeps below the size of the array. */
static void *grown(struct arena *arena, void *items, size_t count, size_t *cap, size_t size)
{
    if (count < *cap)
        return items;
    *cap = *cap ? *cap * 2 : 4;
    void *copy = arena_alloc(arena, *cap * size);
    if (count)
        memcpy(copy, items, count * size);
    return copy;
}

static bool read_sequence(struct reader *reader, unsigned depth, struct node *out)
{
    struct json *items = NULL;
    struct yaml_place *places = NULL;
    size_t count = 0, items_cap = 0, places_cap = 0;
    bool fine = false;
    for (;;) {
        struct fy_event *event = next_event(reader, out->place);
        if (!event)
            return false;
        if (event->type == FYET_SEQUENCE_END) {
            fy_parser_event_free(reader->parser, event);
            fine = true;
            break;
        }
        struct node item = {.place = event_place(event, out->place)};
        bool read = read_node(reader, event, depth + 1, &item);
        fy_parser_event_free(reader->parser, event);
        if (!read)
            break;
        items = grown(reader->arena, items, count, &items_cap, sizeof *items);
        places = grown(reader->arena, places, count, &places_cap, sizeof *places);
        items[count] = item.value;
        places[count++] = item.place;
        out->values += item.values;
        if (item.height + 1 > out->height)
            out->height = item.height + 1;
    }
    out->value = (struct json){.type = JSON_ARRAY, .count = (uint32_t)count, .items = items};
    out->place.children = places;
    return fine;
}

struct key_index {
    struct str name;
    size_t index;
};

static int compare_keys(const void *a, const void *b)
{
    const struct key_index *x = a, *y = b;
    size_t shared = x->name.n < y->name.n ? x->name.n : y->name.n;
    int order = memcmp(x->name.p, y->name.p, shared);
    if (order)
        return order;
    if (x->name.n != y->name.n)
        return x->name.n < y->name.n ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

static void find_duplicates(struct reader *reader, const struct node *mapping)
{
    size_t count = mapping->value.count;
    if (count < 2)
        return;
    struct key_index *keys = mem_alloc(count * sizeof *keys);
    for (size_t i = 0; i < count; i++)
        keys[i] = (struct key_index){mapping->value.members[i].name, i};
    qsort(keys, count, sizeof *keys, compare_keys);
    for (size_t i = 1; i < count; i++) {
        if (!str_equal(keys[i - 1].name, keys[i].name))
            continue;
        const struct yaml_place *first = &mapping->place.children[keys[i - 1].index];
        const struct yaml_place *second = &mapping->place.children[keys[i].index];
        add_problem(reader, second->line, second->column, "\"%.*s\" is given twice, first in line %u",
                    shown(keys[i].name), keys[i].name.p, first->line);
    }
    free(keys);
}

/* Keys must be text that every YAML reader takes for text. */
static bool read_key(struct reader *reader, struct fy_event *event, struct yaml_place place, struct str *name)
{
    if (event->type != FYET_SCALAR) {
        add_problem(reader, place.line, place.column, "a key must be text, this one is %s",
                    event->type == FYET_ALIAS ? "an alias" : "a list or mapping");
        return false;
    }
    refuse_tag(reader, event, place);
    struct fy_token *token = event->scalar.value;
    struct str text = token_text(reader, token);
    *name = text;
    if (!check_scalar(reader, text, place.line, place.column))
        return true;
    bool is_json;
    if (!is_plain(token))
        return true;
    if (str_is(text, "<<"))
        add_problem(reader, place.line, place.column, "merge keys (<<) are not supported: repeat the members");
    else if (is_one_of(text, null_words) || is_one_of(text, true_words) || is_one_of(text, false_words) ||
             is_number(text, &is_json) || is_foreign_number(text))
        add_problem(reader, place.line, place.column, "a key must be text: put \"%.*s\" in quotes", shown(text),
                    text.p);
    return true;
}

static bool read_member(struct reader *reader, struct fy_event *event, unsigned depth, struct yaml_place parent,
                        struct str *name, struct node *value)
{
    struct yaml_place place = event_place(event, parent);
    if (!read_key(reader, event, place, name))
        return false;
    struct node anchored = {.value = json_string(*name), .place = place, .values = 1};
    if (!keep_anchor(reader, event, &anchored))
        return false;
    struct fy_event *next = next_event(reader, place);
    if (!next)
        return false;
    value->place = place;
    bool read = read_node(reader, next, depth + 1, value);
    fy_parser_event_free(reader->parser, next);
    return read;
}

static bool read_mapping(struct reader *reader, unsigned depth, struct node *out)
{
    struct json_member *members = NULL;
    struct yaml_place *places = NULL;
    size_t count = 0, members_cap = 0, places_cap = 0;
    for (;;) {
        struct fy_event *event = next_event(reader, out->place);
        if (!event)
            return false;
        if (event->type == FYET_MAPPING_END) {
            fy_parser_event_free(reader->parser, event);
            break;
        }
        struct str name = STR("");
        struct node value = {0};
        bool read = read_member(reader, event, depth, out->place, &name, &value);
        fy_parser_event_free(reader->parser, event);
        if (!read)
            return false;
        members = grown(reader->arena, members, count, &members_cap, sizeof *members);
        places = grown(reader->arena, places, count, &places_cap, sizeof *places);
        members[count] = (struct json_member){name, value.value};
        places[count++] = value.place;
        out->values += value.values;
        if (value.height + 1 > out->height)
            out->height = value.height + 1;
    }
    out->value = (struct json){.type = JSON_OBJECT, .count = (uint32_t)count, .members = members};
    out->place.children = places;
    find_duplicates(reader, out);
    return true;
}

static void read_scalar(struct reader *reader, struct fy_event *event, struct node *out)
{
    struct fy_token *token = event->scalar.value;
    struct str text = token_text(reader, token);
    struct yaml_place at = event_place(event, out->place);
    if (!check_scalar(reader, text, at.line, at.column))
        out->value = json_null();
    else if (is_plain(token))
        out->value = plain_value(reader, text, at.line, at.column);
    else
        out->value = json_string(text);
}

/* Builds the value that starts with event. out->place is set by the caller. */
static bool read_node(struct reader *reader, struct fy_event *event, unsigned depth, struct node *out)
{
    if (event->type == FYET_ALIAS)
        return read_alias(reader, event, depth, out);
    out->values = 1;
    if (!count_values(reader, 1, out->place))
        return false;
    refuse_tag(reader, event, event_place(event, out->place));
    if (event->type == FYET_SCALAR) {
        read_scalar(reader, event, out);
    } else if (event->type == FYET_SEQUENCE_START || event->type == FYET_MAPPING_START) {
        if (!check_depth(reader, depth + 1, out->place))
            return false;
        out->height = 1;
        bool read =
            event->type == FYET_SEQUENCE_START ? read_sequence(reader, depth, out) : read_mapping(reader, depth, out);
        if (!read)
            return false;
    } else {
        add_problem(reader, out->place.line, out->place.column, "a value is missing");
        return false;
    }
    return keep_anchor(reader, event, out);
}

static void refuse_directives(struct reader *reader, struct fy_event *event)
{
    struct fy_document_state *state = event->document_start.document_state;
    if (state && (fy_document_state_version_explicit(state) || fy_document_state_tags_explicit(state)))
        add_problem(reader, 1, 1, "directives (%%YAML, %%TAG) are not supported");
}

/* STREAM_START DOCUMENT_START node DOCUMENT_END STREAM_END, and nothing else. */
static void reader_run(struct reader *reader)
{
    struct yaml_place at = {1, 1, NULL};
    struct node root = {.place = at};
    bool has_root = false;
    for (;;) {
        struct fy_event *event = next_event(reader, at);
        if (!event)
            return;
        enum fy_event_type type = event->type;
        struct yaml_place place = event_place(event, at);
        bool go_on = true;
        if (type == FYET_DOCUMENT_START && has_root) {
            add_problem(reader, place.line, place.column,
                        "a second document starts here, the file must hold exactly one");
            go_on = false;
        } else if (type == FYET_DOCUMENT_START) {
            refuse_directives(reader, event);
        } else if (type != FYET_STREAM_START && type != FYET_DOCUMENT_END && type != FYET_STREAM_END) {
            root.place = place;
            go_on = read_node(reader, event, 0, &root);
            has_root = go_on;
        }
        fy_parser_event_free(reader->parser, event);
        if (!go_on)
            return;
        if (type == FYET_STREAM_END)
            break;
    }
    if (!has_root) {
        add_problem(reader, 1, 1, "the file is empty");
        return;
    }
    if (reader->out->problem_count)
        return;
    struct json *value = arena_alloc(reader->arena, sizeof *value);
    *value = root.value;
    reader->out->root = value;
    reader->out->place = root.place;
}

enum err_code yaml_parse(struct arena *arena, struct str text, struct yaml *out)
{
    *out = (struct yaml){.place = {1, 1, NULL}};
    struct reader reader = {.arena = arena, .out = out};
    if (!check_text(&reader, text))
        goto out;
    struct fy_diag_cfg diag_cfg;
    fy_diag_cfg_default(&diag_cfg);
    diag_cfg.fp = NULL; /* the library must not write to our standard error */
    diag_cfg.colorize = false;
    reader.diag = fy_diag_create(&diag_cfg);
    if (!reader.diag)
        mem_exhausted("libfyaml");
    fy_diag_set_collect_errors(reader.diag, true);
    struct fy_parse_cfg cfg = {.flags = FYPCF_DEFAULT_VERSION_1_2 | FYPCF_JSON_NONE, .diag = reader.diag};
    reader.parser = fy_parser_create(&cfg);
    reader.iterator = fy_token_iter_create(NULL);
    if (!reader.parser || !reader.iterator)
        mem_exhausted("libfyaml");
    if (fy_parser_set_string(reader.parser, text.n ? text.p : "", text.n) != 0)
        add_problem(&reader, 1, 1, "the YAML library refuses the text");
    else
        reader_run(&reader);
    fy_token_iter_destroy(reader.iterator);
    fy_parser_destroy(reader.parser);
    fy_diag_destroy(reader.diag);
out:
    if (out->root)
        return ERR_NONE;
    return reader.over_limit ? ERR_LIMIT : ERR_INVALID;
}

/* One token of a JSON Pointer, decoded. *rest starts at the next "/" or is empty. */
static size_t next_token(struct str pointer, char *token, size_t size, struct str *rest)
{
    size_t i = 1, n = 0;
    for (; i < pointer.n && pointer.p[i] != '/'; i++) {
        char c = pointer.p[i];
        if (c == '~' && i + 1 < pointer.n)
            c = pointer.p[++i] == '1' ? '/' : '~';
        if (n < size)
            token[n] = c;
        n++;
    }
    *rest = (struct str){pointer.p + i, pointer.n - i};
    return n;
}

static size_t child_index(const struct json *value, struct str token)
{
    if (value->type == JSON_OBJECT) {
        for (size_t i = 0; i < value->count; i++)
            if (str_equal(value->members[i].name, token))
                return i;
    } else if (value->type == JSON_ARRAY && token.n > 0 && token.n < 9 && digits(token, 0) == token.n) {
        size_t index = 0;
        for (size_t i = 0; i < token.n; i++)
            index = index * 10 + (size_t)(token.p[i] - '0');
        if (index < value->count)
            return index;
    }
    return SIZE_MAX;
}

struct yaml_place yaml_find(const struct yaml *yaml, struct str pointer)
{
    const struct json *value = yaml->root;
    struct yaml_place place = yaml->place;
    while (value && pointer.n > 0 && pointer.p[0] == '/') {
        char token[1024];
        struct str rest;
        size_t n = next_token(pointer, token, sizeof token, &rest);
        size_t index = n <= sizeof token ? child_index(value, (struct str){token, n}) : SIZE_MAX;
        if (index == SIZE_MAX || !place.children)
            break;
        value = value->type == JSON_OBJECT ? &value->members[index].value : &value->items[index];
        place = place.children[index];
        pointer = rest;
    }
    return place;
}
