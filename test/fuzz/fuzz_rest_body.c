/* The body of POST /v1/calls behind the headers that go with it: header values a line each ("name: value"), an empty
 * line, the body. */
#include "fuzz.h"

#include "door/call_body.h"

#include <stdlib.h>

#define NOW_MS INT64_C(1790000000000)

static struct str next_line(struct str *rest)
{
    const char *end = memchr(rest->p, '\n', rest->n);
    size_t n = end ? (size_t)(end - rest->p) : rest->n;
    struct str line = {rest->p, n};
    size_t skip = end ? n + 1 : n;
    *rest = (struct str){rest->p + skip, rest->n - skip};
    return line;
}

static void take_header(struct call_headers *headers, struct str line)
{
    const struct {
        char letter;
        struct str *out;
    } names[] = {{'k', &headers->idempotency_key}, {'r', &headers->run_id},  {'s', &headers->step_id},
                 {'e', &headers->session_id},      {'c', &headers->call_id}, {'t', &headers->traceparent},
                 {'p', &headers->prefer}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (line.n >= 2 && line.p[0] == names[i].letter && line.p[1] == ':')
            *names[i].out = (struct str){line.p + 2, line.n - 2};
    }
}

/* What gets through is within what the engine is promised. */
static void check_call(const struct engine_call *call)
{
    const struct call *c = &call->call;
    CHECK(call->tool && call->tool[0]);
    CHECK(!c->arguments || c->arguments->type == JSON_OBJECT);
    CHECK(call->wait_ms >= -1 && call->wait_ms <= ENGINE_WAIT_MS_MAX);
    CHECK(!call->async || call->wait_ms <= 0);
    CHECK(c->not_before_ms >= 0);
    CHECK(!c->repeat_of || operation_id_valid(c->repeat_of));
    CHECK(c->distinct_count <= ADMISSION_DISTINCT_MAX);
    for (size_t i = 0; i < c->distinct_count; i++)
        CHECK(operation_id_valid(c->distinct_from[i]));
    CHECK(!c->trace || strlen(c->trace) == 55);
}

/* What is refused has a problem document that is JSON and says why. */
static void check_problem(struct arena *arena, const struct problem_document *problem)
{
    struct buf text;
    struct json *value;
    struct err err = {0};
    buf_init(&text, 0);
    CHECK(problem->detail && problem->detail[0]);
    CHECK(!problem->pointer || json_pointer_valid(str_of(problem->pointer)));
    shape_problem(&text, problem);
    CHECK(json_parse(arena, buf_str(&text), NULL, &value, &err) == ERR_NONE);
    CHECK(json_get_int(value, "status", 0) >= 400 && json_get_int(value, "status", 0) < 500);
    buf_release(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arena arena;
    struct call_headers headers = {0};
    struct engine_call call;
    struct problem_document problem;
    struct str rest = {(const char *)data, size};
    arena_init(&arena);
    for (int i = 0; i < 8 && rest.n > 0; i++) {
        struct str line = next_line(&rest);
        if (line.n == 0)
            break;
        take_header(&headers, line);
    }
    if (call_body_read(&arena, rest, &headers, NOW_MS, &call, &problem))
        check_call(&call);
    else
        check_problem(&arena, &problem);
    arena_release(&arena);
    return 0;
}
