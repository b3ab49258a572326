/* The values of a call put into what the registry file has places for: texts, JSON bodies, expectations. */
#include "adapter/http_parts.h"

#include "base/mem.h"

#include <stdlib.h>

#define NODE_DEPTH_MAX 32

/* ---- compiling ---- */

void http_node_release(struct http_node *node)
{
    http_text_release(&node->text);
    for (uint32_t i = 0; i < node->count; i++) {
        http_node_release(&node->items[i]);
        if (node->names)
            free(node->names[i]);
    }
    free(node->items);
    free(node->names);
}

static void node_read(const struct json *value, const char *pointer, struct problems *problems, unsigned depth,
                      struct http_node *out)
{
    struct err err = {0};
    *out = (struct http_node){.type = value->type};
    if (depth > NODE_DEPTH_MAX) {
        problems_add(problems, pointer, "is nested deeper than %d", NODE_DEPTH_MAX);
        return;
    }
    switch (value->type) {
    case JSON_NULL:
    case JSON_BOOL: out->literal = *value; return;
    case JSON_NUMBER:
        out->text.value = mem_copy_bytes(value->text.p, value->text.n);
        out->literal = json_number((struct str){out->text.value, value->text.n});
        return;
    case JSON_STRING: {
        char *text = mem_copy_bytes(value->text.p, value->text.n);
        if (http_text_new(text, true, &out->text, &err) != ERR_NONE)
            problems_add(problems, pointer, "%s", err.text);
        free(text);
        return;
    }
    case JSON_ARRAY:
    case JSON_OBJECT: break;
    }
    bool object = value->type == JSON_OBJECT;
    struct section section = {.pointer = pointer, .problems = problems};
    out->items = mem_zero(sizeof *out->items * (value->count + 1));
    out->names = object ? mem_zero(sizeof *out->names * (value->count + 1)) : NULL;
    for (; out->count < value->count; out->count++) {
        uint32_t i = out->count;
        const char *place = object ? section_pointer(&section, value->members[i].name)
                                   : arena_printf(problems->arena, "%s/%u", pointer, i);
        node_read(object ? &value->members[i].value : &value->items[i], place, problems, depth + 1, &out->items[i]);
        if (object)
            out->names[i] = mem_copy_bytes(value->members[i].name.p, value->members[i].name.n);
    }
}

void http_node_read(struct section *section, const char *name, const struct json *value, struct http_node *out)
{
    node_read(value, section_pointer(section, str_of(name)), section->problems, 0, out);
}

/* ---- values ---- */

static const struct json no_arguments = {.type = JSON_OBJECT};

static void add_place(struct json *values, const char *name, const char *text)
{
    if (text)
        values->members[values->count++] = (struct json_member){str_of(name), json_string(str_of(text))};
}

/* Ours come first and win: an argument that is called "$operation" is no reference of ours. */
static void collect_values(struct http_fill *fill)
{
    const struct json *arguments = fill->arguments;
    fill->values = (struct json){.type = JSON_OBJECT};
    fill->values.members = arena_alloc(fill->arena, sizeof *fill->values.members * (arguments->count + 5));
    add_place(&fill->values, "$operation", fill->places.operation);
    add_place(&fill->values, "$key", fill->places.key);
    add_place(&fill->values, "$tenant", fill->places.tenant);
    add_place(&fill->values, "$run", fill->places.run);
    add_place(&fill->values, "$external_id", fill->places.external_id);
    for (uint32_t i = 0; i < arguments->count; i++) {
        if (arguments->members[i].name.n == 0 || arguments->members[i].name.p[0] != '$')
            fill->values.members[fill->values.count++] = arguments->members[i];
    }
}

static const struct json *mask(struct arena *arena, const struct json *arguments, char *const *redact, size_t count)
{
    if (count == 0)
        return arguments;
    struct json *copy = json_copy(arena, arguments);
    for (size_t i = 0; i < count; i++) {
        /* the copy is ours, and what a pointer finds in it as well */
        struct json *value = (struct json *)json_pointer_get(copy, str_of(redact[i]));
        if (value)
            *value = json_string(STR("***"));
    }
    return copy;
}

void http_fill_init(struct http_fill *fill, struct arena *arena, const struct adapter_call *call, struct buf *scratch,
                    struct err *err)
{
    *fill = (struct http_fill){.arena = arena, .scratch = scratch, .err = err};
    fill->places = (struct jq_places){call->operation, call->provider_key, call->tenant, call->run,
                                      call->kind == ATTEMPT_LOOKUP ? call->external_id : NULL};
    fill->arguments = call->arguments && call->arguments->type == JSON_OBJECT ? call->arguments : &no_arguments;
    collect_values(fill);
}

void http_fill_mask(struct http_fill *fill, char *const *redact, size_t count)
{
    fill->shown = true;
    fill->arguments = mask(fill->arena, fill->arguments, redact, count);
    collect_values(fill);
}

enum err_code http_fill_text(struct http_fill *fill, const struct http_text *text, enum template_escape escape,
                             struct buf *out)
{
    if (text->template)
        return template_fill(text->template, &fill->values, escape, out, fill->err);
    buf_add_text(out, fill->shown ? text->shown : text->value);
    return ERR_NONE;
}

/* ---- bodies ---- */

static enum err_code node_text(struct http_fill *fill, const struct http_node *node, struct json *out, bool *left_out)
{
    const struct http_text *text = &node->text;
    if (text->single) {
        bool single;
        const struct json *value = template_single(text->template, &fill->values, &single);
        if (value)
            *out = *value;
        if (value || text->optional) {
            *left_out = !value;
            return ERR_NONE;
        }
    }
    if (!text->template) {
        *out = json_string(str_of(fill->shown ? text->shown : text->value));
        return ERR_NONE;
    }
    buf_reset(fill->scratch);
    enum err_code code = template_fill(text->template, &fill->values, TEMPLATE_PLAIN, fill->scratch, fill->err);
    if (code == ERR_NONE)
        *out = json_string(arena_str(fill->arena, buf_str(fill->scratch)));
    return code;
}

static enum err_code node_children(struct http_fill *fill, const struct http_node *node, struct json *out)
{
    bool object = node->type == JSON_OBJECT;
    *out = (struct json){.type = node->type};
    /* one more: the provider's key may be added */
    if (object)
        out->members = arena_alloc(fill->arena, sizeof *out->members * (node->count + 1));
    else
        out->items = arena_alloc(fill->arena, sizeof *out->items * (node->count + 1));
    for (uint32_t i = 0; i < node->count; i++) {
        bool left_out = false;
        struct json value;
        enum err_code code = http_fill_node(fill, &node->items[i], &value, &left_out);
        if (code != ERR_NONE) {
            if (object)
                err_prefix(fill->err, "%s: ", node->names[i]);
            return code;
        }
        if (left_out)
            continue;
        if (object)
            out->members[out->count++] = (struct json_member){str_of(node->names[i]), value};
        else
            out->items[out->count++] = value;
    }
    return ERR_NONE;
}

enum err_code http_fill_node(struct http_fill *fill, const struct http_node *node, struct json *out, bool *left_out)
{
    switch (node->type) {
    case JSON_NULL:
    case JSON_BOOL:
    case JSON_NUMBER: *out = node->literal; return ERR_NONE;
    case JSON_STRING: return node_text(fill, node, out, left_out);
    case JSON_ARRAY:
    case JSON_OBJECT: break;
    }
    return node_children(fill, node, out);
}

/* ---- expectations ---- */

static enum err_code expected_value(struct http_fill *fill, const struct http_equality *equality,
                                    const struct json **out)
{
    const struct http_text *text = &equality->text;
    struct json *value = NULL;
    if (equality->literal) {
        *out = json_copy(fill->arena, equality->literal);
        return ERR_NONE;
    }
    if (equality->jq) {
        enum err_code code =
            jq_program_run(equality->jq, fill->arena, fill->arguments, &fill->places, &value, fill->err);
        *out = value;
        return code;
    }
    if (text->single && !equality->quoted) {
        bool single;
        const struct json *found = template_single(text->template, &fill->values, &single);
        if (found || text->optional) {
            *out = found ? json_copy(fill->arena, found) : NULL;
            return ERR_NONE;
        }
    }
    buf_reset(fill->scratch);
    enum err_code code = http_fill_text(fill, text, TEMPLATE_PLAIN, fill->scratch);
    if (code == ERR_NONE) {
        value = arena_alloc(fill->arena, sizeof *value);
        *value = json_string(arena_str(fill->arena, buf_str(fill->scratch)));
        *out = value;
    }
    return code;
}

enum err_code http_fill_equalities(struct http_fill *fill, const struct http_equalities *equalities,
                                   struct http_expected **out, size_t *count)
{
    *count = 0;
    *out = NULL;
    if (equalities->count == 0)
        return ERR_NONE;
    *out = arena_alloc(fill->arena, sizeof **out * equalities->count);
    for (size_t i = 0; i < equalities->count; i++) {
        const struct http_equality *equality = &equalities->items[i];
        const struct json *value = NULL;
        enum err_code code = expected_value(fill, equality, &value);
        if (code != ERR_NONE) {
            err_prefix(fill->err, "expected %s: ", equality->pointer);
            return code;
        }
        if (value)
            (*out)[(*count)++] = (struct http_expected){arena_copy_text(fill->arena, equality->pointer), value};
    }
    return ERR_NONE;
}
