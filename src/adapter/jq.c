#include "adapter/jq.h"

#include "base/mem.h"

#include <ctype.h>
#include <jq.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define NUMBER_CHARS_MAX 400 /* longer texts are no numbers that a double could give back */

struct jq_program {
    jq_state *jq;
    bool with_places;
    struct err compile_error; /* filled by libjq's callback while compiling */
};

/* What would reach out of the program or make two runs differ. Refused when the registry is loaded, for the operator to
 * see; PRELUDE hides the same names, so that nothing depends on the scanner's understanding of jq's grammar. */
static const char *const forbidden[] = {
    "env",    "$ENV",      "input",         "inputs",       "input_filename", "input_line_number", "debug",
    "stderr", "import",    "include",       "halt",         "halt_error",     "modulemeta",        "get_search_list",
    "now",    "localtime", "strflocaltime", "input_string",
};

#define HIDDEN(name) "def " name ": error(\"" name " is not available\"); "
#define HIDDEN_INPUT                                                                                                   \
    HIDDEN("env")                                                                                                      \
    HIDDEN("input")                                                                                                    \
    HIDDEN("inputs")                                                                                                   \
    HIDDEN("input_filename")                                                                                           \
    HIDDEN("input_line_number")
#define HIDDEN_END                                                                                                     \
    HIDDEN("debug")                                                                                                    \
    HIDDEN("stderr")                                                                                                   \
    HIDDEN("halt")                                                                                                     \
    HIDDEN("halt_error")
#define HIDDEN_WORLD                                                                                                   \
    HIDDEN("modulemeta")                                                                                               \
    HIDDEN("get_search_list")                                                                                          \
    HIDDEN("now")                                                                                                      \
    HIDDEN("localtime")                                                                                                \
    HIDDEN("strflocaltime")
#define HIDDEN_WITH_ARGUMENT "def halt_error(f): halt_error; def strflocaltime(f): strflocaltime; "
#define PRELUDE              HIDDEN_INPUT HIDDEN_END HIDDEN_WORLD HIDDEN_WITH_ARGUMENT "{} as $ENV | "
/* The line feed ends a comment on the program's last line. */
#define PLAIN_HEAD  PRELUDE "("
#define PLACES_HEAD PRELUDE ". as [$__in, $operation, $key, $tenant, $run, $external_id] | $__in | ("
#define TAIL        "\n)"

/* ---- what a program may not use ---- */

static bool is_name_char(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

static bool is_forbidden(struct str name)
{
    for (size_t i = 0; i < sizeof forbidden / sizeof *forbidden; i++) {
        if (str_is(name, forbidden[i]))
            return true;
    }
    return false;
}

static const char *skip_comment(const char *p)
{
    while (*p && *p != '\n')
        p++;
    return p;
}

/* .name is a member, name: and {name} are members too. */
static bool is_member_name(const char *text, const char *start, const char *end)
{
    if (start > text && start[-1] == '.')
        return true;
    while (*end == ' ' || *end == '\t' || *end == '\n')
        end++;
    return *end == ':' || (*end == '}' && *start != '$');
}

/* One name at p, which may be forbidden. Returns its end, NULL after filling err. */
static const char *scan_name(const char *text, const char *p, struct err *err)
{
    const char *start = p++;
    while (is_name_char(*p))
        p++;
    struct str name = {start, (size_t)(p - start)};
    if (is_forbidden(name) && !is_member_name(text, start, p)) {
        err_set(err, ERR_INVALID, "\"%.*s\" is not available: programs see their input only", STR_ARG(name));
        return NULL;
    }
    return p;
}

/* Code from p up to the closing parenthesis of an interpolation or the end of the text; strings hold further code in
 * \(…), which is why both share one loop with a stack of what encloses what. */
static enum err_code scan(const char *text, struct err *err)
{
    enum { NESTING_MAX = 64 };
    unsigned parentheses[NESTING_MAX] = {0}; /* open ones per level of interpolation */
    unsigned level = 0;
    bool in_string = false;
    for (const char *p = text; *p;) {
        if (in_string) {
            if (p[0] == '\\' && p[1] == '(') {
                if (++level == NESTING_MAX)
                    return err_set(err, ERR_LIMIT, "strings are nested too deeply");
                parentheses[level] = 0;
                in_string = false;
                p += 2;
            } else if (p[0] == '\\' && p[1]) {
                p += 2;
            } else {
                in_string = *p++ != '"';
            }
        } else if (*p == '"') {
            in_string = true;
            p++;
        } else if (*p == '#') {
            p = skip_comment(p);
        } else if (*p == '$' || (is_name_char(*p) && !isdigit((unsigned char)*p))) {
            p = scan_name(text, p, err);
            if (!p)
                return ERR_INVALID;
        } else {
            if (*p == '(')
                parentheses[level]++;
            if (*p == ')' && parentheses[level]-- == 0) {
                if (level == 0)
                    return err_set(err, ERR_INVALID, "\")\" without \"(\"");
                level--;
                in_string = true;
            }
            p++;
        }
    }
    return ERR_NONE;
}

/* ---- compiling ---- */

/* libjq numbers lines of what it was given and repeats the whole program; the first line says what is wrong. */
static void on_compile_error(void *user, jv message)
{
    struct jq_program *program = user;
    if (jv_get_kind(message) == JV_KIND_STRING) {
        const char *text = jv_string_value(message);
        size_t n = strcspn(text, "\n");
        for (const char *p = text; p < text + n; p++) {
            if (strncmp(p, " at <", 5) == 0)
                n = (size_t)(p - text);
        }
        static const char head[] = "jq: error: ";
        if (n > sizeof head - 1 && strncmp(text, head, sizeof head - 1) == 0) {
            text += sizeof head - 1;
            n -= sizeof head - 1;
        }
        if (!strstr(text, "compile error")) /* the count that closes the list */
            err_set(&program->compile_error, ERR_INVALID, "%.*s", (int)n, text);
    }
    jv_free(message);
}

enum err_code jq_program_new(const char *text, bool with_places, struct jq_program **out, struct err *err)
{
    if (strlen(text) > JQ_PROGRAM_BYTES_MAX)
        return err_set(err, ERR_LIMIT, "a jq program has at most %d bytes", JQ_PROGRAM_BYTES_MAX);
    enum err_code code = scan(text, err);
    if (code != ERR_NONE)
        return code;
    struct jq_program *program = mem_zero(sizeof *program);
    program->with_places = with_places;
    program->jq = jq_init();
    if (!program->jq)
        mem_exhausted("libjq");
    jq_set_error_cb(program->jq, on_compile_error, program);
    struct buf wrapped;
    buf_init(&wrapped, 0);
    buf_add_text(&wrapped, with_places ? PLACES_HEAD : PLAIN_HEAD);
    buf_add_text(&wrapped, text);
    buf_add_text(&wrapped, TAIL);
    int good = jq_compile(program->jq, wrapped.p);
    buf_release(&wrapped);
    if (!good) {
        code = err_set(err, ERR_INVALID, "%s",
                       program->compile_error.code ? program->compile_error.text : "not a jq program");
        jq_program_free(program);
        return code;
    }
    *out = program;
    return ERR_NONE;
}

void jq_program_free(struct jq_program *program)
{
    if (!program)
        return;
    jq_teardown(&program->jq);
    free(program);
}

/* ---- numbers ---- */

/* Shortest text that reads back as the same double; a valid JSON number. */
static void double_text(double value, char out[32])
{
    if (value == 0) {
        memcpy(out, "0", 2); /* also for -0, which is the same number */
        return;
    }
    if (fabs(value) < 1e15 && value == floor(value)) {
        snprintf(out, 32, "%.0f", value);
        return;
    }
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(out, 32, "%.*g", digits, value);
        if (strtod(out, NULL) == value)
            return;
    }
}

static bool number_to_double(struct str number, bool exact, double *out)
{
    char text[NUMBER_CHARS_MAX + 1], back[32];
    if (number.n > NUMBER_CHARS_MAX)
        return false;
    memcpy(text, number.p, number.n);
    text[number.n] = '\0';
    *out = strtod(text, NULL);
    if (!exact) {
        if (isinf(*out))
            *out = *out > 0 ? 1.7976931348623157e308 : -1.7976931348623157e308;
        return true;
    }
    if (isinf(*out))
        return false;
    double_text(*out, back);
    return json_number_compare(number, str_of(back)) == 0;
}

/* ---- our JSON to jq's ---- */

struct to_jv {
    bool exact;
    struct buf pointer; /* of the value at hand, for the refusal */
    struct err *err;
};

static jv jv_text(struct str text)
{
    return jv_string_sized(text.n ? text.p : "", (int)text.n);
}

static bool to_jv(struct to_jv *state, const struct json *value, jv *out);

static bool array_to_jv(struct to_jv *state, const struct json *value, jv *out)
{
    size_t length = state->pointer.n;
    jv array = jv_array_sized((int)value->count);
    for (uint32_t i = 0; i < value->count; i++) {
        jv item;
        buf_printf(&state->pointer, "/%u", i);
        if (!to_jv(state, &value->items[i], &item)) {
            jv_free(array);
            return false;
        }
        array = jv_array_append(array, item);
        state->pointer.n = length;
    }
    *out = array;
    return true;
}

static bool object_to_jv(struct to_jv *state, const struct json *value, jv *out)
{
    size_t length = state->pointer.n;
    jv object = jv_object();
    for (uint32_t i = 0; i < value->count; i++) {
        jv member;
        json_pointer_add(&state->pointer, value->members[i].name);
        if (!to_jv(state, &value->members[i].value, &member)) {
            jv_free(object);
            return false;
        }
        object = jv_object_set(object, jv_text(value->members[i].name), member);
        state->pointer.n = length;
    }
    *out = object;
    return true;
}

static bool number_to_jv(struct to_jv *state, struct str number, jv *out)
{
    double value;
    if (!number_to_double(number, state->exact, &value)) {
        struct str pointer = buf_str(&state->pointer);
        err_set(state->err, ERR_INVALID, "%.*s: jq would change the number %.*s (it computes in double precision)",
                STR_ARG(pointer), (int)(number.n > 64 ? 64 : number.n), number.p);
        return false;
    }
    *out = jv_number(value);
    return true;
}

static bool to_jv(struct to_jv *state, const struct json *value, jv *out)
{
    switch (value->type) {
    case JSON_NULL: *out = jv_null(); return true;
    case JSON_BOOL: *out = jv_bool(value->boolean); return true;
    case JSON_STRING: *out = jv_text(value->text); return true;
    case JSON_NUMBER: return number_to_jv(state, value->text, out);
    case JSON_ARRAY: return array_to_jv(state, value, out);
    case JSON_OBJECT: return object_to_jv(state, value, out);
    }
    abort();
}

/* ---- jq's JSON to ours ---- */

struct from_jv {
    struct arena *arena;
    size_t bytes; /* so far, at most JQ_RESULT_BYTES_MAX */
    struct err *err;
};

static bool count_bytes(struct from_jv *state, size_t bytes)
{
    state->bytes += bytes;
    if (state->bytes <= JQ_RESULT_BYTES_MAX)
        return true;
    err_set(state->err, ERR_LIMIT, "the program's result is over %d bytes", JQ_RESULT_BYTES_MAX);
    return false;
}

/* Borrows value. */
static bool text_from_jv(struct from_jv *state, jv value, struct str *out)
{
    size_t n = (size_t)jv_string_length_bytes(jv_copy(value));
    if (!count_bytes(state, n + 2))
        return false;
    *out = arena_str(state->arena, (struct str){jv_string_value(value), n});
    return true;
}

static bool number_from_jv(struct from_jv *state, double value, struct json *out)
{
    if (isnan(value) || isinf(value)) {
        err_set(state->err, ERR_INVALID, "the program's result holds %s, which is no JSON number",
                isnan(value) ? "nan" : "infinity");
        return false;
    }
    char text[32];
    double_text(value, text);
    *out = json_number(arena_str(state->arena, str_of(text)));
    return count_bytes(state, out->text.n);
}

static bool from_jv(struct from_jv *state, jv value, unsigned depth, struct json *out);

/* Borrows value. */
static bool array_from_jv(struct from_jv *state, jv value, unsigned depth, struct json *out)
{
    struct json *array = json_array(state->arena);
    int count = jv_array_length(jv_copy(value));
    for (int i = 0; i < count; i++) {
        struct json item;
        if (!from_jv(state, jv_array_get(jv_copy(value), i), depth + 1, &item))
            return false;
        json_append(state->arena, array, item);
    }
    *out = *array;
    return true;
}

/* Borrows value. Members are unique already: json_set would look for each name among all former ones. */
static bool object_from_jv(struct from_jv *state, jv value, unsigned depth, struct json *out)
{
    int count = jv_object_length(jv_copy(value));
    *out = (struct json){.type = JSON_OBJECT};
    out->members = arena_alloc(state->arena, sizeof *out->members * (size_t)(count ? count : 1));
    for (int i = jv_object_iter(value); jv_object_iter_valid(value, i); i = jv_object_iter_next(value, i)) {
        struct json_member *member = &out->members[out->count];
        jv name = jv_object_iter_key(value, i);
        bool good = text_from_jv(state, name, &member->name);
        jv_free(name);
        if (!good || !from_jv(state, jv_object_iter_value(value, i), depth + 1, &member->value))
            return false;
        out->count++;
    }
    return true;
}

/* Takes value. */
static bool from_jv(struct from_jv *state, jv value, unsigned depth, struct json *out)
{
    bool good = count_bytes(state, 4);
    if (good && depth > JQ_DEPTH_MAX) {
        err_set(state->err, ERR_LIMIT, "the program's result is nested deeper than %d", JQ_DEPTH_MAX);
        good = false;
    }
    if (good) {
        switch (jv_get_kind(value)) {
        case JV_KIND_INVALID:
        case JV_KIND_NULL: *out = json_null(); break;
        case JV_KIND_FALSE: *out = json_bool(false); break;
        case JV_KIND_TRUE: *out = json_bool(true); break;
        case JV_KIND_NUMBER: good = number_from_jv(state, jv_number_value(value), out); break;
        case JV_KIND_STRING:
            *out = json_string(STR(""));
            good = text_from_jv(state, value, &out->text);
            break;
        case JV_KIND_ARRAY: good = array_from_jv(state, value, depth, out); break;
        case JV_KIND_OBJECT: good = object_from_jv(state, value, depth, out); break;
        }
    }
    jv_free(value);
    return good;
}

/* ---- running ---- */

static jv place(const char *text)
{
    return text ? jv_string(text) : jv_null();
}

static enum err_code start(struct jq_program *program, const struct json *input, const struct jq_places *places,
                           bool exact, struct err *err)
{
    struct err refusal = {0};
    struct to_jv state = {.exact = exact, .err = &refusal};
    buf_init(&state.pointer, 0);
    jv value;
    bool good = to_jv(&state, input, &value);
    buf_release(&state.pointer);
    if (!good)
        return err_set(err, refusal.code, "%s", refusal.text);
    if (program->with_places) {
        jv all = jv_array_append(jv_array(), value);
        all = jv_array_append(all, place(places ? places->operation : NULL));
        all = jv_array_append(all, place(places ? places->key : NULL));
        all = jv_array_append(all, place(places ? places->tenant : NULL));
        all = jv_array_append(all, place(places ? places->run : NULL));
        value = jv_array_append(all, place(places ? places->external_id : NULL));
    }
    jq_start(program->jq, value, 0);
    return ERR_NONE;
}

/* Takes value, an invalid one: the end of the results, or an error with a message. */
static enum err_code runtime_error(jv value, struct err *err)
{
    jv message = jv_invalid_get_msg(value);
    enum err_code code = ERR_NONE;
    if (jv_get_kind(message) == JV_KIND_STRING)
        code = err_set(err, ERR_INVALID, "jq: %.300s", jv_string_value(message));
    else if (jv_get_kind(message) != JV_KIND_NULL)
        code = err_set(err, ERR_INVALID, "jq: the program ended with an error value");
    jv_free(message);
    return code;
}

enum err_code jq_program_run(struct jq_program *program, struct arena *arena, const struct json *input,
                             const struct jq_places *places, struct json **out, struct err *err)
{
    enum err_code code = start(program, input, places, true, err);
    if (code != ERR_NONE)
        return code;
    jv value = jq_next(program->jq);
    if (!jv_is_valid(value)) {
        code = runtime_error(value, err);
        return code ? code : err_set(err, ERR_INVALID, "jq: the program gives no value");
    }
    jv second = jq_next(program->jq);
    if (jv_is_valid(second)) {
        jv_free(second);
        jv_free(value);
        return err_set(err, ERR_INVALID, "jq: the program gives more than one value");
    }
    code = runtime_error(second, err);
    if (code != ERR_NONE) {
        jv_free(value);
        return code;
    }
    struct err refusal = {0};
    struct from_jv state = {.arena = arena, .err = &refusal};
    struct json *result = arena_alloc(arena, sizeof *result);
    if (!from_jv(&state, value, 0, result))
        return err_set(err, refusal.code, "%s", refusal.text);
    *out = result;
    return ERR_NONE;
}

enum err_code jq_program_test(struct jq_program *program, const struct json *input, bool *out, struct err *err)
{
    enum err_code code = start(program, input, NULL, false, err);
    if (code != ERR_NONE)
        return code;
    jv value = jq_next(program->jq);
    if (!jv_is_valid(value)) {
        code = runtime_error(value, err);
        if (code == ERR_NONE)
            *out = false;
        return code;
    }
    jv_kind kind = jv_get_kind(value);
    *out = kind != JV_KIND_NULL && kind != JV_KIND_FALSE;
    jv_free(value);
    return ERR_NONE;
}
