/* From the arguments of a call to parameters of its statements. The same arguments give the same bytes, so that every
 * attempt of an operation executes the same. */
#include "adapter/sql_parts.h"

#include <inttypes.h>

struct builder {
    const struct sql_tool *tool;
    struct arena *arena;
    struct http_fill fill;
    struct buf scratch;
    size_t bytes; /* of all values so far */
    struct err *err;
};

/* ---- one value ---- */

/* Text for the server, which reads it as the type that the statement wants: numbers without an exponent where they have
 * a short form, lists and objects as JSON. */
static const char *value_text(struct arena *arena, const struct json *value)
{
    struct buf text;
    if (value->type == JSON_NULL)
        return NULL;
    if (value->type == JSON_STRING)
        return arena_copy_str(arena, value->text);
    buf_init(&text, 0);
    if (value->type == JSON_NUMBER)
        json_canonical_number(&text, value->text);
    else
        json_write(&text, value);
    const char *out = arena_copy_str(arena, buf_str(&text));
    buf_release(&text);
    return out;
}

static enum err_code fill_value(struct builder *b, const struct http_node *node, struct json *out)
{
    bool left_out = false;
    enum err_code code = http_fill_node(&b->fill, node, out, &left_out);
    if (left_out)
        *out = json_null();
    return code;
}

static enum err_code build_value(struct builder *b, const struct http_node *node, const char **out)
{
    struct json value = json_null();
    enum err_code code = fill_value(b, node, &value);
    if (code)
        return code;
    if (value.type == JSON_STRING && value.text.n > 0 && memchr(value.text.p, 0, value.text.n))
        return err_set(b->err, ERR_INVALID, "holds a NUL character, which no text in PostgreSQL can");
    *out = value_text(b->arena, &value);
    b->bytes += *out ? strlen(*out) : 0;
    if (b->bytes > SQL_VALUES_BYTES_MAX)
        return err_set(b->err, ERR_LIMIT, "all values together have more than %d bytes", SQL_VALUES_BYTES_MAX);
    return ERR_NONE;
}

static enum err_code build_statement(struct builder *b, size_t i, struct sql_values *out)
{
    const struct sql_statement *statement = &b->tool->statements[i];
    out->count = statement->parameter_count;
    out->items = arena_zero(b->arena, (out->count + 1) * sizeof *out->items);
    for (size_t k = 0; k < out->count; k++) {
        enum err_code code = build_value(b, &statement->parameters[k], &out->items[k]);
        if (code) {
            err_prefix(b->err, "statement %zu, $%zu: ", i + 1, k + 1);
            return code;
        }
    }
    return ERR_NONE;
}

/* ---- a call ---- */

static void builder_init(struct builder *b, const struct sql_tool *tool, const struct adapter_call *call,
                         struct arena *arena, struct err *err)
{
    *b = (struct builder){.tool = tool, .arena = arena, .err = err};
    buf_init(&b->scratch, SQL_VALUES_BYTES_MAX);
    http_fill_init(&b->fill, arena, call, &b->scratch, err);
}

/* Of the arguments as they are sent, in a form that does not depend on the order of members. */
static void fingerprint(const struct adapter_call *call, struct sql_call *out)
{
    struct buf text;
    if (!call->arguments)
        return;
    buf_init(&text, 0);
    json_canonical(&text, call->arguments);
    struct digest digest = digest_sha256(buf_str(&text));
    digest_hex(&digest, DIGEST_BYTES, out->fingerprint);
    buf_release(&text);
}

enum err_code sql_call_build(const struct sql_tool *tool, const struct adapter_call *call, struct arena *arena,
                             struct sql_call *out, struct err *err)
{
    struct builder b;
    enum err_code code = ERR_NONE;
    *out = (struct sql_call){.key = arena_copy_text(arena, call->provider_key),
                             .operation = arena_copy_text(arena, call->operation)};
    if (tool->write && !out->key && call->attempt) /* dry runs have none yet */
        return err_set(err, ERR_INTERNAL, "the operation has no provider key");
    fingerprint(call, out);
    out->values = arena_zero(arena, (tool->statement_count + 1) * sizeof *out->values);
    builder_init(&b, tool, call, arena, err);
    for (size_t i = 0; i < tool->statement_count && !code && call->kind == ATTEMPT_CALL; i++)
        code = build_statement(&b, i, &out->values[i]);
    buf_release(&b.scratch);
    return code;
}

/* ---- for people ---- */

static enum err_code describe_statement(struct builder *b, size_t i, struct json_out *out)
{
    const struct sql_statement *statement = &b->tool->statements[i];
    enum err_code code = ERR_NONE;
    json_out_object(out);
    json_out_member_text(out, "text", statement->text);
    json_out_name(out, "parameters");
    json_out_array(out);
    for (size_t k = 0; k < statement->parameter_count && !code; k++) {
        struct json value = json_null();
        code = fill_value(b, &statement->parameters[k], &value);
        json_out_value(out, &value);
    }
    json_out_end_array(out);
    json_out_end_object(out);
    return code;
}

static enum err_code describe(struct builder *b, struct json_out *out)
{
    enum err_code code = ERR_NONE;
    json_out_object(out);
    json_out_member_text(out, "method", "SQL");
    json_out_member_text(out, "url", b->tool->provider->url_shown);
    json_out_name(out, "body");
    json_out_array(out);
    for (size_t i = 0; i < b->tool->statement_count && !code; i++)
        code = describe_statement(b, i, out);
    json_out_end_array(out);
    json_out_end_object(out);
    return code;
}

enum err_code sql_call_describe(const struct sql_tool *tool, const struct adapter_call *call, struct json_out *out,
                                struct err *err)
{
    struct arena arena;
    struct builder b;
    struct sql_call ignored;
    arena_init(&arena);
    enum err_code code = sql_call_build(tool, call, &arena, &ignored, err);
    if (code == ERR_NONE) {
        builder_init(&b, tool, call, &arena, err);
        http_fill_mask(&b.fill, tool->redact, tool->redact_count);
        code = describe(&b, out);
        buf_release(&b.scratch);
    }
    arena_release(&arena);
    return code;
}
