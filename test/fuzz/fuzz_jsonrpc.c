/* Any bytes as a message: refused with a code and words, or read; what is written of it is read as the same. */
#include "fuzz.h"

#include "base/jsonrpc.h"

static void check_id(struct str id)
{
    struct arena arena;
    struct json *value;
    struct err err = {0};
    arena_init(&arena);
    CHECK(id.n <= RPC_ID_BYTES_MAX && json_parse(&arena, id, NULL, &value, &err) == ERR_NONE);
    CHECK(value->type == JSON_STRING || (value->type == JSON_NUMBER && json_number_is_integer(value->text)));
    arena_release(&arena);
}

static struct str text_of(struct arena *arena, const struct json *value)
{
    if (!value)
        return STR_NONE;
    struct buf text;
    buf_init(&text, 0);
    json_write(&text, value);
    struct str copy = arena_str(arena, buf_str(&text));
    buf_release(&text);
    return copy;
}

static void write_again(struct arena *arena, const struct rpc_message *m, struct buf *out)
{
    switch (m->kind) {
    case RPC_REQUEST: rpc_write_request(out, m->id, m->method, text_of(arena, m->params)); return;
    case RPC_NOTIFICATION: rpc_write_notification(out, m->method, text_of(arena, m->params)); return;
    case RPC_RESULT: rpc_write_result(out, m->id, text_of(arena, m->result)); return;
    case RPC_ERROR: rpc_write_error(out, m->id, m->code, m->message, text_of(arena, m->data)); return;
    }
}

static bool same_value(const struct json *a, const struct json *b)
{
    return a == b || (a && b && json_equal(a, b));
}

static void check_message(struct arena *arena, const struct rpc_message *m)
{
    struct buf out;
    struct rpc_message again;
    struct rpc_fault fault;
    struct json_limits limits = {.bytes_max = SIZE_MAX / 4, .depth_max = 100, .values_max = 1000000};
    CHECK((m->kind == RPC_REQUEST || m->kind == RPC_NOTIFICATION) == (m->method != NULL));
    CHECK(m->kind != RPC_REQUEST || m->id.p);
    CHECK(m->kind != RPC_NOTIFICATION || !m->id.p);
    CHECK(m->kind != RPC_RESULT || (m->id.p && m->result));
    CHECK(!m->params || m->params->type == JSON_OBJECT);
    CHECK(!m->method || strlen(m->method) <= RPC_METHOD_BYTES_MAX);
    if (m->id.p)
        check_id(m->id);
    buf_init(&out, 0);
    write_again(arena, m, &out);
    CHECK(!memchr(out.p, '\n', out.n)); /* one line */
    CHECK(rpc_read(arena, buf_str(&out), &limits, &again, &fault));
    CHECK(again.kind == m->kind && str_equal(again.id, m->id) && text_equal(again.method, m->method));
    CHECK(again.code == m->code && str_equal(again.message, m->message));
    CHECK(same_value(again.params, m->params) && same_value(again.result, m->result) &&
          same_value(again.data, m->data));
    buf_release(&out);
}

/* A glance sees the same, unless names are written with escapes. */
static void check_glance(struct arena *arena, struct str input, const struct rpc_message *m)
{
    struct rpc_glance glance = rpc_glance(arena, input);
    if (memchr(input.p, '\\', input.n))
        return;
    CHECK(str_equal(glance.id, m->id));
    CHECK(m->method ? str_is(glance.method, m->method) : !glance.method.p);
    CHECK((glance.result || glance.error) == (m->kind == RPC_RESULT || m->kind == RPC_ERROR));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arena arena;
    struct rpc_message message;
    struct rpc_fault fault;
    arena_init(&arena);
    struct str input = size ? (struct str){(const char *)data, size} : STR("");
    if (rpc_read(&arena, input, NULL, &message, &fault)) {
        check_message(&arena, &message);
        check_glance(&arena, input, &message);
    } else {
        CHECK(fault.code == RPC_PARSE_ERROR || fault.code == RPC_INVALID_REQUEST);
        CHECK(fault.err.code != ERR_NONE && fault.err.text[0]);
        if (fault.id.p)
            check_id(fault.id);
    }
    arena_release(&arena);
    return 0;
}
