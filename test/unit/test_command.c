/* Commands: what of a registry file is refused, the command lines that arguments make, and what the end of a process
 * proves. Processes themselves run in test/e2e/test_commands.py and below in "a_process". */
#include "support/command_case.h"
#include "support/sections.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>

#define EXITED(code)     ((code) << 8)
#define SIGNALLED(which) (which)

static void begin(struct command_case *c, const char *provider, const char *tool)
{
    memset(c, 0, sizeof *c);
    arena_init(&c->arena);
    command_case_init(c, parse(&c->arena, provider), parse(&c->arena, tool));
}

static const char *problems_of(struct command_case *c)
{
    const char *text = "";
    for (size_t i = 0; i < c->problems.count; i++)
        text = arena_printf(&c->arena, "%s%s: %s\n", text, c->problems.items[i].pointer, c->problems.items[i].text);
    return text;
}

#define PLAIN "{\"command\":{}}"

/* ---- sections ---- */

static void refused(const char *provider, const char *tool, const char *wanted)
{
    struct command_case c;
    begin(&c, provider, tool);
    assert_string_equal(problems_of(&c), wanted);
    assert_null(c.tool);
    command_case_release(&c);
}

static void sections_are_checked(void **state)
{
    (void)state;
    refused(PLAIN, "{}", "/tools/t/run: is missing, expected at least argv\n");
    refused(PLAIN, "{\"run\":{\"argv\":[]}}",
            "/tools/t/run/argv: expected a list of 1 to 256 words: the program and its arguments\n");
    refused(PLAIN, "{\"run\":{\"argv\":[\"{program}\"]}}",
            "/tools/t/run/argv/0: is the program: expected a name or a path without {places}\n");
    refused(PLAIN, "{\"run\":{\"argv\":[\"a\", 5]}}",
            "/tools/t/run/argv/1: expected a text; a number as a text: \"5\"\n");
    refused(PLAIN, "{\"run\":{\"argv\":[\"a\", \"${env:HOME}\"]}}",
            "/tools/t/run/argv/1: has a reference: every user of the machine can read arguments of processes, put it "
            "into env\n");
    refused(
        PLAIN, "{\"run\":{\"argv\":[\"/bin/sh\", \"-ec\", \"rm {file}\"]}}",
        "/tools/t/run/argv/2: a shell executes what is put in here; give the value as an argument instead: [sh, -c, "
        "'prog \"$1\"', sh, \"{value}\"]\n");
    refused(PLAIN, "{\"run\":{\"argv\":[\"a\"],\"env\":{\"ONCED_RUN\":\"x\",\"a=b\":\"c\"}}}",
            "/tools/t/run/env/ONCED_RUN: is set by onced: its value belongs to each operation\n"
            "/tools/t/run/env/a=b: is no name of an environment variable\n");
    refused(PLAIN, "{\"run\":{\"argv\":[\"a\"],\"timeout\":\"61s\"}}",
            "/tools/t/run/timeout: is longer than the provider's timeout\n");
    refused(PLAIN, "{\"run\":{\"argv\":[\"a\"],\"output\":\"none\",\"external_id\":\"/id\"}}",
            "/tools/t/run/external_id: needs an output to look into, but run.output is none\n");
    refused(PLAIN, "{\"run\":{\"argv\":[\"a\"]},\"lookup\":{\"run\":{\"argv\":[\"b\"]}}}",
            "/tools/t/lookup: expected exit: {absent: […]}, or found or absent as jq over the output: what does it "
            "prove?\n");
    refused("{\"command\":{\"env\":{\"A\":\"{x}\"}}}", "{\"run\":{\"argv\":[\"a\"]}}",
            "/providers/p/command/env/A: has a {place}: a provider's variables are the same for all calls\n");
}

static void exit_codes_mean_one_thing(void **state)
{
    (void)state;
    struct command_case c;
    refused(PLAIN, "{\"run\":{\"argv\":[\"a\"],\"exit\":{\"noop\":[3],\"no_effect\":[\"1-4\"]}}}",
            "/tools/t/run/exit/no_effect: exit code 3 is named twice: it can mean one thing only\n");
    refused(PLAIN, "{\"run\":{\"argv\":[\"a\"],\"exit\":{\"success\":[256]}}}",
            "/tools/t/run/exit/success: expected exit codes from 0 to 255, or ranges such as \"64-78\"\n");
    refused(PLAIN, "{\"run\":{\"argv\":[\"a\"],\"exit\":{\"success\":[\"7-6\"]}}}",
            "/tools/t/run/exit/success: expected exit codes from 0 to 255, or ranges such as \"64-78\"\n");
    refused(PLAIN, "{\"run\":{\"argv\":[\"a\"],\"exit\":{\"accepted\":[9]}}}",
            "/tools/t/run/exit/accepted: needs a lookup, or the final outcome could never be known\n");
    begin(&c, PLAIN, "{\"run\":{\"argv\":[\"a\"],\"exit\":{\"no_effect\":[0, \"200-255\"]}}}");
    assert_non_null(c.tool); /* a stated meaning takes the default's place */
    assert_true(command_exits_has(&c.tool->refused, 0) && command_exits_has(&c.tool->refused, 255));
    assert_false(command_exits_has(&c.tool->success, 0) || command_exits_has(&c.tool->refused, 199));
    command_case_release(&c);
}

/* The lease and the settle time must outlive the process: time-out, SIGTERM, SIGKILL. */
static void the_provider_counts_until_the_process_is_gone(void **state)
{
    (void)state;
    struct command_case c;
    begin(&c, "{\"command\":{\"kill_after\":\"3s\"},\"timeout\":\"7s\"}", "{\"run\":{\"argv\":[\"a\"]}}");
    assert_int_equal(c.core_provider.timeout_ms, 10000);
    assert_int_equal(c.core_provider.kind, PROVIDER_COMMAND);
    assert_false(c.core_provider.key_honoured);
    assert_int_equal(c.tool->run.timeout_ms, 7000);
    command_case_release(&c);
}

/* ---- command lines ---- */

struct built {
    struct command_case c;
    struct command_line line;
    struct err err;
    enum err_code code;
};

static void build(struct built *b, const char *tool, const char *arguments)
{
    memset(b, 0, sizeof *b);
    begin(&b->c, "{\"command\":{\"env\":{\"SHARED\":\"1\",\"BOTH\":\"provider\"},\"cwd\":\"/p\"}}", tool);
    if (!b->c.tool)
        fail_msg("%s", problems_of(&b->c));
    b->c.call.arguments = parse(&b->c.arena, arguments);
    b->code = command_build(b->c.tool, &b->c.call, &b->c.arena, &b->line, &b->err);
}

static const char *words(struct built *b)
{
    const char *text = "";
    for (char **word = b->line.argv; *word; word++)
        text = arena_printf(&b->c.arena, "%s<%s>", text, *word);
    return text;
}

static bool has_variable(const struct built *b, const char *line)
{
    for (char **variable = b->line.env; *variable; variable++) {
        if (strcmp(*variable, line) == 0)
            return true;
    }
    return false;
}

static void expect_words(const char *tool, const char *arguments, const char *wanted)
{
    struct built b;
    build(&b, tool, arguments);
    if (b.code)
        fail_msg("%s", b.err.text);
    assert_string_equal(words(&b), wanted);
    command_case_release(&b.c);
}

static void expect_refusal(const char *tool, const char *arguments, const char *wanted)
{
    struct built b;
    build(&b, tool, arguments);
    assert_int_not_equal(b.code, ERR_NONE);
    assert_string_equal(b.err.text, wanted);
    command_case_release(&b.c);
}

static void values_become_words(void **state)
{
    (void)state;
    expect_words("{\"run\":{\"argv\":[\"p\",\"--to={to}\",\"{n}\",\"{no?}\",\"{{x}}\"]}}",
                 "{\"to\":\"a b;$(c)\",\"n\":1.50}", "<p><--to=a b;$(c)><1.50><{x}>");
    expect_words("{\"run\":{\"argv\":[\"p\",\"{list}\",\"{$operation}\",\"{$key}\"]}}", "{\"list\":[\"a\",2,\"\"]}",
                 "<p><a><2><><op_01ARZ3NDEKTSV4RRFFQ69G5FAV><key-1>");
    expect_words("{\"run\":{\"argv\":[\"p\",\"{list}\"]}}", "{\"list\":[]}", "<p>");
    expect_refusal("{\"run\":{\"argv\":[\"p\",\"{x}\"]}}", "{}", "argv 1: x is missing");
    expect_refusal("{\"run\":{\"argv\":[\"p\",\"{x}\"]}}", "{\"x\":[[1]]}",
                   "argv 1: item 0 is array, expected a text or a number");
    expect_refusal("{\"run\":{\"argv\":[\"p\",\"{x}\"]}}", "{\"x\":\"a\\u0000b\"}",
                   "argv 1: a value holds a NUL character");
}

static void values_are_no_options(void **state)
{
    (void)state;
    static const char refusal[] = "argv 1: \"-rf\" begins with \"-\": the command could take it for an option";
    expect_refusal("{\"run\":{\"argv\":[\"rm\",\"{x}\"]}}", "{\"x\":\"-rf\"}", refusal);
    expect_refusal("{\"run\":{\"argv\":[\"rm\",\"{x}{y}\"]}}", "{\"x\":\"\",\"y\":\"-rf\"}", refusal);
    expect_refusal("{\"run\":{\"argv\":[\"rm\",\"{x}\"]}}", "{\"x\":[\"a\",\"-rf\"]}", refusal);
    expect_words("{\"run\":{\"argv\":[\"rm\",\"--\",\"a\",\"{x}\"]}}", "{\"x\":\"-rf\"}", "<rm><--><a><-rf>");
    expect_words("{\"run\":{\"argv\":[\"rm\",\"./{x}\"]}}", "{\"x\":\"-rf\"}", "<rm><./-rf>");
    expect_words("{\"run\":{\"argv\":[\"add\",\"{x}\"],\"leading_dash\":\"allow\"}}", "{\"x\":-5}", "<add><-5>");
}

static void the_environment_is_what_is_stated(void **state)
{
    (void)state;
    struct built b;
    build(
        &b,
        "{\"run\":{\"argv\":[\"p\"],\"env\":{\"BOTH\":\"tool\",\"TO\":\"{to}\",\"NO\":\"{no?}\"},\"stdin\":\"json\"}}",
        "{\"to\":\"x=y\"}");
    assert_int_equal(b.code, ERR_NONE);
    assert_true(has_variable(&b, "SHARED=1") && has_variable(&b, "BOTH=tool") && has_variable(&b, "TO=x=y"));
    assert_true(has_variable(&b, "ONCED_IDEMPOTENCY_KEY=key-1") && has_variable(&b, "ONCED_TENANT=acme"));
    assert_false(has_variable(&b, "BOTH=provider") || has_variable(&b, "NO="));
    assert_string_equal(b.line.cwd, "/p");
    assert_true(str_is(b.line.input, "{\"to\":\"x=y\"}"));
    command_case_release(&b.c);
    build(&b, "{\"run\":{\"argv\":[\"p\"],\"stdin\":\"{a: .x, op: $operation}\"}}", "{\"x\":[1]}");
    assert_true(str_is(b.line.input, "{\"a\":[1],\"op\":\"op_01ARZ3NDEKTSV4RRFFQ69G5FAV\"}"));
    command_case_release(&b.c);
}

static void people_see_no_secrets(void **state)
{
    (void)state;
    struct command_case c;
    struct buf text;
    struct json_out out;
    struct err err = {0};
    setenv("COMMAND_TEST_SECRET", "geheimnis", 1);
    begin(&c, "{\"command\":{\"env\":{\"A\":\"t ${env:COMMAND_TEST_SECRET}\"}}}",
          "{\"run\":{\"argv\":[\"p\",\"x{secret}\",\"{n}\"],\"stdin\":\"json\"}}");
    c.call.arguments = parse(&c.arena, "{\"secret\":\"geheim\",\"n\":1}");
    buf_init(&text, 0);
    json_out_init(&out, &text);
    assert_int_equal(command_describe(c.tool, &c.call, &out, &err), ERR_NONE);
    assert_string_equal(
        text.p, "{\"method\":\"run\",\"url\":\"command:p\",\"argv\":[\"p\",\"x***\",\"1\"],\"env\":[\"A=t ***\","
                "\"ONCED_IDEMPOTENCY_KEY=key-1\",\"ONCED_OPERATION=op_01ARZ3NDEKTSV4RRFFQ69G5FAV\","
                "\"ONCED_TENANT=acme\"],\"body\":{\"secret\":\"***\",\"n\":1}}");
    buf_reset(&text);
    secrets_mask(&c.provider->secrets, STR("said geheimnis"), &text);
    assert_string_equal(text.p, "said ***");
    buf_release(&text);
    command_case_release(&c);
}

/* ---- ends ---- */

#define CONTRACT                                                                                                       \
    "{\"run\":{\"argv\":[\"p\"],\"output\":\"json\",\"exit\":{\"success\":[0,1],\"noop\":[2],\"no_effect\":[3],"       \
    "\"not_processed\":[4],\"accepted\":[5]},\"external_id\":\"/"                                                      \
    "id\",\"error_when\":\".bad\",\"success_when\":\".id\"},"                                                          \
    "\"verify\":{\"/n\":\"{n}\"},\"lookup\":{\"run\":{\"argv\":[\"q\"],\"output\":\"json\"},"                          \
    "\"exit\":{\"absent\":[1],\"pending\":[2],\"failed\":[3]},\"absent\":\".gone\",\"verify\":{\"/n\":\"{n}\"}}}"

static struct adapter_answer judge(struct command_case *c, enum attempt_kind kind, const struct command_end *end)
{
    struct command_line line;
    struct err err = {0};
    struct adapter_answer answer;
    c->call.kind = kind;
    c->call.arguments = parse(&c->arena, "{\"n\":7}");
    if (command_build(c->tool, &c->call, &c->arena, &line, &err))
        fail_msg("%s", err.text);
    const struct command_judge judge = {c->tool, kind, line.expected, line.expected_count, &c->arena};
    command_answer(&judge, end, &answer);
    return answer;
}

static void expect_end(struct command_case *c, enum attempt_kind kind, int status, const char *output,
                       enum outcome wanted)
{
    const struct command_end end = {.started = true, .status = status, .output = str_of(output)};
    struct adapter_answer answer = judge(c, kind, &end);
    if (answer.outcome != wanted)
        fail_msg("%d %s: expected %s, got %s (%s)", status, output, outcome_name(wanted), outcome_name(answer.outcome),
                 answer.detail ? answer.detail : "");
}

static void ends_of_calls(void **state)
{
    (void)state;
    struct command_case c;
    static const char good[] = "{\"id\":\"x\",\"n\":7}";
    begin(&c, PLAIN, CONTRACT);
    assert_string_equal(problems_of(&c), "");
    expect_end(&c, ATTEMPT_CALL, EXITED(0), good, OUTCOME_SUCCESS);
    expect_end(&c, ATTEMPT_CALL, EXITED(1), good, OUTCOME_SUCCESS);
    expect_end(&c, ATTEMPT_CALL, EXITED(2), "", OUTCOME_NOOP);
    expect_end(&c, ATTEMPT_CALL, EXITED(3), good, OUTCOME_REFUSED);
    expect_end(&c, ATTEMPT_CALL, EXITED(4), good, OUTCOME_NOT_PROCESSED);
    expect_end(&c, ATTEMPT_CALL, EXITED(5), "{}", OUTCOME_ACCEPTED);
    expect_end(&c, ATTEMPT_CALL, EXITED(6), good, OUTCOME_PROVIDER_ERROR);
    expect_end(&c, ATTEMPT_CALL, EXITED(127), good, OUTCOME_PROVIDER_ERROR);
    expect_end(&c, ATTEMPT_CALL, SIGNALLED(SIGKILL), good, OUTCOME_CONNECTION_LOST);
    expect_end(&c, ATTEMPT_CALL, SIGNALLED(SIGSEGV), good, OUTCOME_CONNECTION_LOST);
    expect_end(&c, ATTEMPT_CALL, EXITED(0), "", OUTCOME_UNREADABLE);
    expect_end(&c, ATTEMPT_CALL, EXITED(0), "{\"id\":\"x\"", OUTCOME_UNREADABLE);
    expect_end(&c, ATTEMPT_CALL, EXITED(0), "{\"n\":7}", OUTCOME_UNREADABLE);
    expect_end(&c, ATTEMPT_CALL, EXITED(0), "{\"id\":\"x\",\"n\":7,\"bad\":true}", OUTCOME_PROVIDER_ERROR);
    expect_end(&c, ATTEMPT_CALL, EXITED(0), "{\"id\":\"x\",\"n\":8}", OUTCOME_WRONG_OBJECT);
    expect_end(&c, ATTEMPT_CALL, EXITED(5), "{\"n\":8}", OUTCOME_WRONG_OBJECT);
    command_case_release(&c);
}

static void ends_that_prove_nothing(void **state)
{
    (void)state;
    struct command_case c;
    begin(&c, PLAIN, CONTRACT);
    const struct command_end late = {.started = true, .timed_out = true, .status = EXITED(3)};
    assert_int_equal(judge(&c, ATTEMPT_CALL, &late).outcome,
                     OUTCOME_TIMEOUT); /* what it says on SIGTERM is no contract */
    const struct command_end stopped = {.started = true, .stopped = true, .status = EXITED(0)};
    assert_int_equal(judge(&c, ATTEMPT_CALL, &stopped).outcome, OUTCOME_CONNECTION_LOST);
    const struct command_end cut = {.started = true, .output = STR("{\"id\":1,\"n\":7}"), .output_cut = true};
    assert_int_equal(judge(&c, ATTEMPT_CALL, &cut).outcome, OUTCOME_UNREADABLE);
    const struct command_end none = {.detail = "p is not in the PATH of its environment"};
    struct adapter_answer answer = judge(&c, ATTEMPT_CALL, &none);
    assert_int_equal(answer.outcome, OUTCOME_NOT_SENT);
    assert_true(str_is(answer.error, "{\"message\":\"p is not in the PATH of its environment\"}"));
    assert_int_equal(judge(&c, ATTEMPT_LOOKUP, &none).outcome, OUTCOME_CANNOT_TELL);
    assert_int_equal(judge(&c, ATTEMPT_LOOKUP, &late).outcome, OUTCOME_CANNOT_TELL);
    command_case_release(&c);
}

static void what_callers_get(void **state)
{
    (void)state;
    struct command_case c;
    begin(&c, PLAIN, CONTRACT);
    const struct command_end good = {.started = true, .output = STR("{\"id\":12,\"n\":7}\n")};
    struct adapter_answer answer = judge(&c, ATTEMPT_CALL, &good);
    assert_string_equal(answer.external_id, "12");
    assert_true(str_is(answer.result, "{\"id\":12,\"n\":7}"));
    const struct command_end bad = {.started = true, .status = EXITED(9), .written = STR("no\"pe")};
    answer = judge(&c, ATTEMPT_CALL, &bad);
    assert_true(str_is(answer.error,
                       "{\"message\":\"the command exited with status 9\",\"code\":\"exit_9\",\"provider\":"
                       "{\"exit_code\":9,\"stderr\":\"no\\\"pe\"}}"));
    command_case_release(&c);
    begin(&c, PLAIN, "{\"run\":{\"argv\":[\"p\"],\"output\":\"text\"}}");
    const struct command_end text = {.started = true, .output = STR("a\xff"), .output_cut = true};
    answer = judge(&c, ATTEMPT_CALL, &text);
    assert_int_equal(answer.outcome, OUTCOME_SUCCESS);
    assert_true(str_is(answer.result, "{\"text\":\"a\xef\xbf\xbd\",\"cut\":true}"));
    command_case_release(&c);
}

static void ends_of_lookups(void **state)
{
    (void)state;
    struct command_case c;
    begin(&c, PLAIN, CONTRACT);
    expect_end(&c, ATTEMPT_LOOKUP, EXITED(0), "{\"id\":\"x\",\"n\":7}", OUTCOME_FOUND);
    expect_end(&c, ATTEMPT_LOOKUP, EXITED(0), "{\"gone\":true}", OUTCOME_ABSENT);
    expect_end(&c, ATTEMPT_LOOKUP, EXITED(0), "{\"id\":\"x\",\"n\":8}", OUTCOME_WRONG_OBJECT);
    expect_end(&c, ATTEMPT_LOOKUP, EXITED(0), "nothing", OUTCOME_CANNOT_TELL);
    expect_end(&c, ATTEMPT_LOOKUP, EXITED(1), "", OUTCOME_ABSENT);
    expect_end(&c, ATTEMPT_LOOKUP, EXITED(2), "{}", OUTCOME_PENDING);
    expect_end(&c, ATTEMPT_LOOKUP, EXITED(3), "{}", OUTCOME_FAILED_THERE);
    expect_end(&c, ATTEMPT_LOOKUP, EXITED(4), "{\"gone\":true}", OUTCOME_CANNOT_TELL);
    expect_end(&c, ATTEMPT_LOOKUP, EXITED(127), "", OUTCOME_CANNOT_TELL);
    expect_end(&c, ATTEMPT_LOOKUP, SIGNALLED(SIGTERM), "", OUTCOME_CANNOT_TELL);
    command_case_release(&c);
}

/* Two conditions that hold at once, or one that cannot be evaluated, prove nothing. */
static void lookups_that_contradict_themselves(void **state)
{
    (void)state;
    struct command_case c;
    begin(&c, PLAIN,
          "{\"run\":{\"argv\":[\"p\"]},\"lookup\":{\"run\":{\"argv\":[\"q\"],\"output\":\"json\"},"
          "\"found\":\".n > 0\",\"absent\":\".n < 2\",\"pending\":\".x | test(\\\"p\\\")\"}}");
    assert_non_null(c.tool);
    expect_end(&c, ATTEMPT_LOOKUP, EXITED(0), "{\"n\":2,\"x\":\"\"}", OUTCOME_FOUND);
    expect_end(&c, ATTEMPT_LOOKUP, EXITED(0), "{\"n\":0,\"x\":\"\"}", OUTCOME_ABSENT);
    expect_end(&c, ATTEMPT_LOOKUP, EXITED(0), "{\"n\":1,\"x\":\"\"}", OUTCOME_CANNOT_TELL);
    expect_end(&c, ATTEMPT_LOOKUP, EXITED(0), "{\"n\":0}", OUTCOME_CANNOT_TELL);
    command_case_release(&c);
}

/* ---- processes ---- */

struct told {
    bool done;
    enum outcome outcome;
    char result[128];
};

static void on_done(void *user, const struct adapter_answer *answer)
{
    struct told *told = user;
    assert_false(told->done);
    told->done = true;
    told->outcome = answer->outcome;
    snprintf(told->result, sizeof told->result, "%.*s", STR_ARG(answer->result));
}

static void on_closed(void *user)
{
    *(bool *)user = true;
}

static struct told run(const char *provider, const char *tool, bool close_at_once)
{
    struct command_case c;
    struct told told = {0};
    uv_loop_t loop;
    bool closed = false;
    assert_int_equal(uv_loop_init(&loop), 0);
    begin(&c, provider, tool);
    if (!c.tool)
        fail_msg("%s", problems_of(&c));
    struct adapter *adapter = command_adapter_new(&loop);
    c.call.arguments = parse(&c.arena, "{\"word\":\"hello\"}");
    adapter->ops->send(adapter, &c.call, on_done, &told);
    assert_false(told.done); /* never from within */
    while (!told.done && !close_at_once)
        uv_run(&loop, UV_RUN_ONCE);
    command_adapter_close(adapter, on_closed, &closed);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_true(told.done && closed);
    assert_int_equal(uv_loop_close(&loop), 0);
    command_case_release(&c);
    return told;
}

static void a_process(void **state)
{
    (void)state;
    signal(SIGPIPE, SIG_IGN);
    struct told told = run(PLAIN, "{\"run\":{\"argv\":[\"cat\"],\"stdin\":\"json\",\"output\":\"json\"}}", false);
    assert_int_equal(told.outcome, OUTCOME_SUCCESS);
    assert_string_equal(told.result, "{\"word\":\"hello\"}");
    told = run(PLAIN, "{\"run\":{\"argv\":[\"true\"],\"stdin\":\"json\",\"output\":\"none\"}}", false);
    assert_int_equal(told.outcome, OUTCOME_SUCCESS); /* it need not read what it is given */
    told = run(PLAIN, "{\"run\":{\"argv\":[\"/no/such/program\"]}}", false);
    assert_int_equal(told.outcome, OUTCOME_NOT_SENT);
    told = run("{\"command\":{\"cwd\":\"/no/such/folder\"}}", "{\"run\":{\"argv\":[\"true\"]}}", false);
    assert_int_equal(told.outcome, OUTCOME_NOT_SENT);
    told = run("{\"command\":{\"env\":{\"PATH\":\"/nowhere\"}}}", "{\"run\":{\"argv\":[\"true\"]}}", false);
    assert_int_equal(told.outcome, OUTCOME_NOT_SENT);
    told =
        run("{\"command\":{\"kill_after\":\"1ms\"}}",
            "{\"run\":{\"argv\":[\"sh\",\"-c\",\"trap '' TERM; while :; do sleep 100; done\"],\"timeout\":\"20ms\"}}",
            false);
    assert_int_equal(told.outcome, OUTCOME_TIMEOUT);
    told = run(PLAIN, "{\"run\":{\"argv\":[\"sleep\",\"100\"]}}", true);
    assert_int_equal(told.outcome, OUTCOME_CONNECTION_LOST);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sections_are_checked),
        cmocka_unit_test(exit_codes_mean_one_thing),
        cmocka_unit_test(the_provider_counts_until_the_process_is_gone),
        cmocka_unit_test(values_become_words),
        cmocka_unit_test(values_are_no_options),
        cmocka_unit_test(the_environment_is_what_is_stated),
        cmocka_unit_test(people_see_no_secrets),
        cmocka_unit_test(ends_of_calls),
        cmocka_unit_test(ends_that_prove_nothing),
        cmocka_unit_test(what_callers_get),
        cmocka_unit_test(ends_of_lookups),
        cmocka_unit_test(lookups_that_contradict_themselves),
        cmocka_unit_test(a_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
