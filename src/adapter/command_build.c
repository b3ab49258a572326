/* From the arguments of a call to a command line. The same arguments give the same bytes, so that every attempt of an
 * operation starts the same command. */
#include "adapter/command_parts.h"

#include <stdio.h>
#include <stdlib.h>

struct builder {
    const struct command_tool *tool;
    const struct command_run *run;
    const struct adapter_call *call;
    struct arena *arena;
    struct http_fill fill;
    struct buf scratch;
    size_t bytes; /* of argv and env so far */
    struct command_line *line;
    struct err *err;
};

/* ---- argv ---- */

static enum err_code check_word(struct builder *b, struct str text)
{
    if (text.n > 0 && memchr(text.p, 0, text.n))
        return err_set(b->err, ERR_INVALID, "a value holds a NUL character");
    if (text.n > COMMAND_WORD_BYTES_MAX)
        return err_set(b->err, ERR_LIMIT, "has more than %d bytes", COMMAND_WORD_BYTES_MAX);
    b->bytes += text.n + 1 + sizeof(char *);
    if (b->bytes > COMMAND_LINE_BYTES_MAX)
        return err_set(b->err, ERR_LIMIT, "arguments and variables have more than %d bytes", COMMAND_LINE_BYTES_MAX);
    return ERR_NONE;
}

/* A value at the beginning of a word could be an option that nobody meant to offer. */
static enum err_code check_dash(struct builder *b, const struct command_word *word, struct str text)
{
    if (word->fixed_begin || b->run->dash_allowed || text.n == 0 || text.p[0] != '-')
        return ERR_NONE;
    return err_set(b->err, ERR_INVALID, "\"%.*s\" begins with \"-\": the command could take it for an option",
                   (int)(text.n > 40 ? 40 : text.n), text.p);
}

static enum err_code add_word(struct builder *b, const struct command_word *word, struct str text, size_t *count)
{
    enum err_code code = check_word(b, text);
    if (!code)
        code = check_dash(b, word, text);
    if (!code)
        b->line->argv[(*count)++] = arena_copy_str(b->arena, text);
    return code;
}

static const struct json *single_of(const struct builder *b, const struct http_text *text)
{
    bool single = false;
    return text->single ? template_single(text->template, &b->fill.values, &single) : NULL;
}

/* A list is as many words as it has items. */
static enum err_code add_list(struct builder *b, const struct command_word *word, const struct json *list,
                              size_t *count)
{
    for (uint32_t i = 0; i < list->count; i++) {
        const struct json *item = &list->items[i];
        if (item->type != JSON_STRING && item->type != JSON_NUMBER)
            return err_set(b->err, ERR_INVALID, "item %u is %s, expected a text or a number", i,
                           json_type_name(item->type));
        enum err_code code = add_word(b, word, item->text, count);
        if (code)
            return code;
    }
    return ERR_NONE;
}

static size_t words_at_most(const struct builder *b)
{
    size_t count = b->run->argv_count;
    for (size_t i = 0; i < b->run->argv_count; i++) {
        const struct json *value = single_of(b, &b->run->argv[i].text);
        count += value && value->type == JSON_ARRAY ? value->count : 0;
    }
    return count;
}

static enum err_code build_word(struct builder *b, size_t i, size_t *count)
{
    const struct command_word *word = &b->run->argv[i];
    const struct json *value = single_of(b, &word->text);
    enum err_code code;
    if (word->text.optional && (!value || value->type == JSON_NULL))
        return ERR_NONE;
    if (value && value->type == JSON_ARRAY)
        return add_list(b, word, value, count);
    buf_reset(&b->scratch);
    code = http_fill_text(&b->fill, &word->text, TEMPLATE_PLAIN, &b->scratch);
    return code ? code : add_word(b, word, buf_str(&b->scratch), count);
}

static enum err_code build_argv(struct builder *b)
{
    size_t count = 0;
    b->line->argv = arena_zero(b->arena, (words_at_most(b) + 1) * sizeof *b->line->argv);
    for (size_t i = 0; i < b->run->argv_count; i++) {
        enum err_code code = build_word(b, i, &count);
        if (code) {
            err_prefix(b->err, "argv %zu: ", i);
            return code;
        }
    }
    return ERR_NONE;
}

/* ---- environment ---- */

struct variables {
    char **lines;
    size_t count;
};

static enum err_code add_variable(struct builder *b, struct variables *out, const char *name, struct str value)
{
    enum err_code code = check_word(b, value);
    if (code) {
        err_prefix(b->err, "env %s: ", name);
        return code;
    }
    size_t n = strlen(name);
    for (size_t i = 0; i < out->count; i++) {
        if (strncmp(out->lines[i], name, n) != 0 || out->lines[i][n] != '=')
            continue;
        out->lines[i] = (char *)arena_printf(b->arena, "%s=%.*s", name, STR_ARG(value)); /* the later one wins */
        return ERR_NONE;
    }
    out->lines[out->count++] = (char *)arena_printf(b->arena, "%s=%.*s", name, STR_ARG(value));
    return ERR_NONE;
}

static enum err_code add_stated(struct builder *b, struct variables *out, const struct http_headers *env)
{
    for (size_t i = 0; i < env->count; i++) {
        const struct http_text *text = &env->items[i].text;
        const struct json *value = single_of(b, text);
        if (text->optional && (!value || value->type == JSON_NULL))
            continue;
        buf_reset(&b->scratch);
        enum err_code code = http_fill_text(&b->fill, text, TEMPLATE_PLAIN, &b->scratch);
        if (code) {
            err_prefix(b->err, "env %s: ", env->items[i].name);
            return code;
        }
        code = add_variable(b, out, env->items[i].name, buf_str(&b->scratch));
        if (code)
            return code;
    }
    return ERR_NONE;
}

/* A command must find programs and its own files. */
static enum err_code add_inherited(struct builder *b, struct variables *out)
{
    static const char *const names[] = {"PATH", "HOME"};
    enum err_code code = ERR_NONE;
    for (size_t i = 0; i < sizeof names / sizeof *names && !code && !b->fill.shown; i++) {
        const char *value = getenv(names[i]);
        if (value)
            code = add_variable(b, out, names[i], str_of(value));
    }
    return code;
}

static enum err_code add_own(struct builder *b, struct variables *out)
{
    const struct adapter_call *call = b->call;
    const struct {
        const char *name, *value;
    } own[] = {
        {"ONCED_IDEMPOTENCY_KEY", call->provider_key},
        {"ONCED_OPERATION", call->operation},
        {"ONCED_TENANT", call->tenant},
        {"ONCED_RUN", call->run},
        {"ONCED_EXTERNAL_ID", call->kind == ATTEMPT_LOOKUP ? call->external_id : NULL},
        {"TRACEPARENT", http_trace_valid(call->trace) && !b->fill.shown ? call->trace : NULL},
    };
    enum err_code code = ERR_NONE;
    for (size_t i = 0; i < sizeof own / sizeof *own && !code; i++) {
        if (own[i].value)
            code = add_variable(b, out, own[i].name, str_of(own[i].value));
    }
    return code;
}

#define OWN_VARIABLES 8 /* at most: inherited ones and ours */

static enum err_code build_env(struct builder *b)
{
    const struct http_headers *shared = &b->tool->provider->env, *stated = &b->run->env;
    struct variables out = {0};
    out.lines = arena_zero(b->arena, (shared->count + stated->count + OWN_VARIABLES + 1) * sizeof *out.lines);
    enum err_code code = add_inherited(b, &out);
    if (!code)
        code = add_stated(b, &out, shared);
    if (!code)
        code = add_stated(b, &out, stated);
    if (!code)
        code = add_own(b, &out);
    b->line->env = out.lines;
    return code;
}

/* ---- stdin ---- */

static enum err_code input_value(struct builder *b, struct json *out)
{
    const struct command_run *run = b->run;
    struct json *value = NULL;
    bool left_out = false;
    *out = *b->fill.arguments;
    if (run->jq) {
        enum err_code code = jq_program_run(run->jq, b->arena, b->fill.arguments, &b->fill.places, &value, b->err);
        if (!code)
            *out = *value;
        return code;
    }
    if (!run->node)
        return ERR_NONE;
    *out = json_null();
    return http_fill_node(&b->fill, run->node, out, &left_out);
}

static enum err_code build_input(struct builder *b)
{
    struct json value;
    struct buf text;
    if (b->run->input == COMMAND_INPUT_NONE)
        return ERR_NONE;
    enum err_code code = input_value(b, &value);
    buf_init(&text, HTTP_BODY_BYTES_MAX);
    if (!code)
        json_write(&text, &value);
    if (!code && text.over)
        code = err_set(b->err, ERR_LIMIT, "has more than %d bytes", HTTP_BODY_BYTES_MAX);
    if (!code)
        b->line->input = arena_str(b->arena, buf_str(&text));
    else
        err_prefix(b->err, "stdin: ");
    buf_release(&text);
    return code;
}

/* ---- the whole ---- */

static enum err_code begin(struct builder *b, const struct command_tool *tool, const struct adapter_call *call,
                           struct arena *arena, struct command_line *line, struct err *err)
{
    bool lookup = call->kind == ATTEMPT_LOOKUP;
    *line = (struct command_line){0};
    *b = (struct builder){.tool = tool, .call = call, .arena = arena, .line = line, .err = err};
    buf_init(&b->scratch, HTTP_BODY_BYTES_MAX);
    http_fill_init(&b->fill, arena, call, &b->scratch, err);
    if (lookup && !tool->lookup)
        return err_set(err, ERR_INVALID, "the tool has no look-up");
    b->run = line->run = lookup ? &tool->lookup->run : &tool->run;
    line->cwd = b->run->cwd ? b->run->cwd : tool->provider->cwd;
    return ERR_NONE;
}

static enum err_code build(struct builder *b)
{
    enum err_code code = build_argv(b);
    if (!code)
        code = build_env(b);
    if (!code)
        code = build_input(b);
    return code;
}

enum err_code command_build(const struct command_tool *tool, const struct adapter_call *call, struct arena *arena,
                            struct command_line *line, struct err *err)
{
    struct builder b;
    enum err_code code = begin(&b, tool, call, arena, line, err);
    if (!code)
        code = build(&b);
    if (!code)
        code = http_fill_equalities(&b.fill, call->kind == ATTEMPT_LOOKUP ? &tool->lookup->verify : &tool->verify,
                                    &line->expected, &line->expected_count);
    buf_release(&b.scratch);
    return code;
}

static void write_list(struct json_out *out, const char *name, char *const *list)
{
    json_out_name(out, name);
    json_out_array(out);
    for (; list && *list; list++)
        json_out_text(out, *list);
    json_out_end_array(out);
}

enum err_code command_describe(const struct command_tool *tool, const struct adapter_call *call, struct json_out *out,
                               struct err *err)
{
    struct arena arena;
    struct command_line line;
    struct builder b;
    struct err ignored = {0};
    arena_init(&arena);
    enum err_code code = command_build(tool, call, &arena, &line, err);
    if (code) {
        arena_release(&arena);
        return code;
    }
    begin(&b, tool, call, &arena, &line, &ignored);
    http_fill_mask(&b.fill, tool->redact, tool->redact_count);
    bool good = build(&b) == ERR_NONE; /* masks may spoil it: "***" is no number for jq */
    json_out_object(out);
    json_out_member_text(out, "method", "run");
    json_out_member_text(out, "url", arena_printf(&arena, "command:%s", call->tool->provider->name));
    write_list(out, "argv", good ? line.argv : NULL);
    write_list(out, "env", good ? line.env : NULL);
    json_out_member_text(out, "cwd", line.cwd);
    json_out_name(out, "body");
    json_out_raw(out, !good ? STR("\"***\"") : line.input.p ? line.input : STR("null"));
    json_out_end_object(out);
    buf_release(&b.scratch);
    arena_release(&arena);
    return ERR_NONE;
}
