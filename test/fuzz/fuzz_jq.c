/* jq in the registry file: a program of a provider's contract, and the answers that it is run on. First line: the
 * program, or "#N" for one of ours (libjq takes 30 ms to compile one, so most inputs name one); the rest: the JSON that
 * it sees. */
#include "fuzz.h"

#include "adapter/jq.h"

/* libjq keeps its stack by a pointer to the stack's end, which the leak checker takes for lost. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:libjq";
}

static const char *const programs[] = {
    ".",
    ".data[0].id",
    ".amount * 100",
    "if .ok then .id else error(\"no\") end",
    "[.. | numbers]",
    "tojson",
    ".status == \"done\"",
    "{id: .id, n: (.items | length)}",
    "map(.a) | add",
    ".[\"a b\"]? // null",
    "$key",
    "first(.[])",
};
#define PROGRAMS (sizeof programs / sizeof *programs)

static struct jq_program *program_of(struct arena *arena, struct str line, bool *ours)
{
    static struct jq_program *compiled[PROGRAMS];
    struct jq_program *program = NULL;
    struct err err = {0};
    *ours = line.n == 2 && line.p[0] == '#';
    if (*ours) {
        size_t i = (unsigned char)line.p[1] % PROGRAMS;
        if (!compiled[i])
            CHECK(jq_program_new(programs[i], true, &compiled[i], &err) == ERR_NONE);
        return compiled[i];
    }
    enum err_code code = jq_program_new(arena_copy_str(arena, line), true, &program, &err);
    CHECK((code == ERR_NONE) == (program != NULL) && (program || err.text[0]));
    return program;
}

static void run(struct jq_program *program, struct arena *arena, const struct json *input)
{
    static const struct jq_places places = {.operation = "op_1", .key = "k", .tenant = "acme"};
    struct json *result = NULL, *again = NULL;
    struct err err = {0}, second = {0};
    bool truth = false;
    enum err_code code = jq_program_run(program, arena, input, &places, &result, &err);
    CHECK((code == ERR_NONE) == (result != NULL) && (result || err.text[0]));
    CHECK(jq_program_run(program, arena, input, &places, &again, &second) == code); /* pure */
    if (result) {
        struct buf a, b;
        buf_init(&a, 0);
        buf_init(&b, 0);
        json_write(&a, result);
        json_write(&b, again);
        CHECK(str_equal(buf_str(&a), buf_str(&b)));
        buf_release(&a);
        buf_release(&b);
    }
    err_clear(&err);
    jq_program_test(program, input, &truth, &err);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str line, rest;
    struct arena arena;
    struct json *input;
    struct err err = {0};
    fuzz_split((struct str){(const char *)data, size}, &line, &rest);
    if (line.n == 0 || line.n > 200)
        return 0;
    arena_init(&arena);
    if (json_parse(&arena, rest, NULL, &input, &err) == ERR_NONE) {
        bool ours;
        struct jq_program *program = program_of(&arena, line, &ours);
        if (program)
            run(program, &arena, input);
        if (!ours)
            jq_program_free(program);
    }
    arena_release(&arena);
    return 0;
}
