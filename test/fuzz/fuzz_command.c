/* A tool's section on the first line, its arguments on the second, then the byte that the process exits with and what
 * it writes: whatever comes, no value becomes an option or another variable, and no end proves more than the contract
 * says. */
#include "fuzz.h"

#include "../support/command_case.h"

/* A word that begins with "-" is the file's own, or comes after "--". */
static bool is_own_option(const struct command_run *run)
{
    for (size_t i = 1; i < run->argv_count; i++) {
        const struct http_text *text = &run->argv[i].text;
        if ((text->value ? text->value : template_text(text->template))[0] == '-')
            return true;
    }
    return run->dash_allowed;
}

static void check_line(const struct command_line *line)
{
    const struct command_run *run = line->run;
    bool operands = false;
    CHECK(line->argv[0] && strcmp(line->argv[0], run->argv[0].text.value) == 0);
    for (char **word = line->argv + 1; *word; word++) {
        CHECK(strlen(*word) <= COMMAND_WORD_BYTES_MAX);
        CHECK((*word)[0] != '-' || operands || is_own_option(run));
        operands = operands || strcmp(*word, "--") == 0;
    }
    for (char **variable = line->env; *variable; variable++)
        CHECK(strchr(*variable, '=') > *variable);
}

static void check_end(const struct command_case *c, const struct command_line *line, enum attempt_kind kind,
                      const struct command_end *end)
{
    struct arena arena;
    struct adapter_answer answer;
    struct json *value = NULL;
    arena_init(&arena);
    const struct command_judge judge = {c->tool, kind, line->expected, line->expected_count, &arena};
    command_answer(&judge, end, &answer);
    int code = end->status >> 8;
    bool call = kind == ATTEMPT_CALL;
    CHECK(answer.outcome != OUTCOME_OPEN && (call || !answer.error.p));
    CHECK(answer.outcome != OUTCOME_SUCCESS || (call && command_exits_has(&c->tool->success, code)));
    CHECK(answer.outcome != OUTCOME_NOOP || (call && command_exits_has(&c->tool->noop, code)));
    CHECK(answer.outcome != OUTCOME_REFUSED || (call && command_exits_has(&c->tool->refused, code)));
    CHECK(answer.outcome != OUTCOME_FOUND || (!call && command_exits_has(&c->tool->lookup->found, code)));
    CHECK(!end->timed_out || answer.outcome == OUTCOME_TIMEOUT || answer.outcome == OUTCOME_CANNOT_TELL);
    CHECK(!answer.error.p || json_parse(&arena, answer.error, NULL, &value, NULL) == ERR_NONE);
    CHECK(!answer.result.p || json_parse(&arena, answer.result, NULL, &value, NULL) == ERR_NONE);
    arena_release(&arena);
}

static void check_attempt(struct command_case *c, enum attempt_kind kind, struct str rest)
{
    struct command_line line;
    struct err err = {0};
    c->call.kind = kind;
    if (command_build(c->tool, &c->call, &c->arena, &line, &err) != ERR_NONE) {
        CHECK(err.text[0] != '\0');
        return;
    }
    check_line(&line);
    struct command_end end = {.started = true, .status = rest.n ? (unsigned char)rest.p[0] << 8 : 0};
    end.output = rest.n ? (struct str){rest.p + 1, rest.n - 1} : STR("");
    check_end(c, &line, kind, &end);
    end.timed_out = true;
    check_end(c, &line, kind, &end);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str section, arguments, rest;
    struct command_case c = {0};
    struct json *tool = NULL, *values = NULL;
    fuzz_split((struct str){(const char *)data, size}, &section, &rest);
    fuzz_split(rest, &arguments, &rest);
    arena_init(&c.arena);
    bool good = json_parse(&c.arena, section, NULL, &tool, NULL) == ERR_NONE &&
                json_parse(&c.arena, arguments, NULL, &values, NULL) == ERR_NONE;
    struct json *provider = json_object(&c.arena);
    json_set(&c.arena, provider, STR("command"), *json_object(&c.arena));
    if (good)
        command_case_init(&c, provider, tool);
    if (c.tool) {
        c.call.arguments = values;
        struct buf text;
        struct json_out out;
        buf_init(&text, 0);
        json_out_init(&out, &text);
        if (command_describe(c.tool, &c.call, &out, NULL) == ERR_NONE)
            CHECK(json_parse(&c.arena, buf_str(&text), NULL, &values, NULL) != ERR_INVALID);
        buf_release(&text);
        check_attempt(&c, ATTEMPT_CALL, rest);
        if (c.tool->lookup)
            check_attempt(&c, ATTEMPT_LOOKUP, rest);
    }
    command_case_release(&c);
    return 0;
}
