/* What tools/call answers for every reply of the engine (design 12, case S88). */
#include "support/test.h"

#include "support/fake_forward.h"

#include <stdlib.h>

#define OP  "op_01J00000000000000000000001"
#define NOW INT64_C(1790000000000)

static const struct err no_error;

struct world {
    struct arena arena;
    struct provider provider;
    struct tool tool;
    struct operation op;
    struct tombstone tombstone;
    struct engine_reply reply;
    struct mcp_result_view view;
    const struct json *result; /* of the last answer() */
    const char *text;          /* its last text block */
};

static int set_up(void **state)
{
    struct world *world = calloc(1, sizeof *world);
    arena_init(&world->arena);
    world->provider = (struct provider){.name = "payments"};
    world->tool = (struct tool){.name = "refund.create", .class = CLASS_EXTERNAL_WEAK, .provider = &world->provider};
    world->op = (struct operation){
        .id = OP,
        .tenant = "default",
        .tool = "refund.create",
        .principal = "local",
        .key_version = 1,
        .created_ms = NOW - 5000,
        .updated_ms = NOW - 4000,
        .completed_ms = NOW - 4000,
        .state = STATE_COMPLETED_SUCCESS,
        .attempts = 1,
        .result = STR("{\"id\":\"re_1\",\"card\":\"4242\"}"),
        .external_id = "re_1",
    };
    world->tombstone = (struct tombstone){
        .operation = OP,
        .tenant = "default",
        .tool = "refund.create",
        .principal = "local",
        .state = STATE_COMPLETED_SUCCESS,
        .completed_ms = NOW - 9000,
        .dropped_ms = NOW - 1000,
    };
    world->reply =
        (struct engine_reply){.kind = REPLY_OPERATION, .op = &world->op, .tool = &world->tool, .err = &no_error};
    world->view = (struct mcp_result_view){
        .shape = {.arena = &world->arena, .now_ms = NOW, .own_call = true},
        .era = MCP_ERA_LEGACY,
        .tool = "refund.create",
        .can_wait = true,
        .can_status = true,
    };
    fake_forward_reset();
    *state = world;
    return 0;
}

static int tear_down(void **state)
{
    struct world *world = *state;
    arena_release(&world->arena);
    free(world);
    return 0;
}

static const struct json *content(const struct world *world)
{
    return json_get(world->result, "content");
}

/* What clients are told that structured content looks like (settings.output_schema) holds for every answer of ours. */
static void check_schema(struct world *world)
{
    const struct json *shape = json_get(world->result, "structuredContent");
    if (!shape || world->provider.kind == PROVIDER_MCP || world->reply.kind == REPLY_PLAN)
        return;
    struct json *tree;
    struct schema *schema;
    struct schema_error *errors;
    size_t count;
    struct err err = {0};
    assert_int_equal(json_parse(&world->arena, str_of(mcp_result_schema), NULL, &tree, &err), ERR_NONE);
    assert_int_equal(schema_new(tree, NULL, 0, &schema, &err), ERR_NONE);
    if (schema_validate(schema, &world->arena, shape, &errors, &count, &err))
        fail_msg("%s", err.text);
    schema_free(schema);
}

static void answer(struct world *world)
{
    struct buf out;
    struct json *tree;
    struct err err = {0};
    buf_init(&out, 0);
    mcp_write_result(&out, &world->reply, &world->view);
    if (json_parse(&world->arena, buf_str(&out), NULL, &tree, &err))
        fail_msg("%s in %s", err.text, out.p);
    world->result = tree;
    buf_release(&out);
    check_schema(world);
    assert_true(content(world)->count > 0);
    world->text =
        arena_copy_str(&world->arena, json_get_text(&content(world)->items[content(world)->count - 1], "text"));
}

static void assert_error(struct world *world, bool wanted)
{
    const struct json *error = json_get(world->result, "isError");
    assert_non_null(error);
    assert_int_equal(error->boolean, wanted);
}

static void assert_text(struct world *world, const char *part)
{
    if (!world->text || !strstr(world->text, part))
        fail_msg("no \"%s\" in: %s", part, world->text ? world->text : "(no text)");
}

static void refute_text(struct world *world, const char *part)
{
    if (world->text && strstr(world->text, part))
        fail_msg("\"%s\" in: %s", part, world->text);
}

static void assert_member(const struct json *object, const char *name, const char *wanted)
{
    struct buf text;
    const struct json *value = json_get(object, name);
    if (!value)
        fail_msg("no member %s", name);
    buf_init(&text, 0);
    json_write(&text, value);
    assert_string_equal(text.p, wanted);
    buf_release(&text);
}

static const struct json *shape(const struct world *world)
{
    const struct json *value = json_get(world->result, "structuredContent");
    assert_non_null(value);
    return value;
}

/* ---- operations ---- */

static void success_gives_the_result(void **state)
{
    struct world *world = *state;
    answer(world);
    assert_error(world, false);
    assert_text(world, "This was done.");
    assert_text(world, "Do not call refund.create again for the same purpose");
    assert_text(world, "Result: {\"id\":\"re_1\",\"card\":\"4242\"}"); /* for clients without structured content */
    assert_member(shape(world), "operation_id", "\"" OP "\"");
    assert_member(shape(world), "status", "\"completed_success\"");
    assert_member(shape(world), "next_action", "\"use_result\"");
    assert_member(shape(world), "result", "{\"id\":\"re_1\",\"card\":\"4242\"}");
    assert_null(json_get(world->result, "resultType"));
    world->view.era = MCP_ERA_MODERN;
    answer(world);
    assert_member(world->result, "resultType", "\"complete\"");
    world->view.inlined = true;
    answer(world);
    assert_null(json_get(world->result, "resultType"));
}

static void a_replay_says_so(void **state)
{
    struct world *world = *state;
    world->reply.replayed = world->view.shape.replayed = true;
    answer(world);
    assert_error(world, false);
    assert_text(world, "already done at ");
    assert_text(world, "as " OP "; to do it once more on purpose, call again with repeat_of");
    assert_member(shape(world), "replayed", "true");
    world->tool.repeat = REPEAT_DENIED;
    answer(world);
    refute_text(world, "repeat_of");
}

/* S88: whatever may have happened is no error, whatever the reason. */
static void open_and_unknown_outcomes_are_no_errors(void **state)
{
    struct world *world = *state;
    static const enum state states[] = {STATE_PLANNED,           STATE_PENDING_DISPATCH, STATE_DISPATCHED,
                                        STATE_ACKNOWLEDGED,      STATE_FAILED_RETRYABLE, STATE_UNKNOWN_OUTCOME,
                                        STATE_COMPLETED_SUCCESS, STATE_COMPLETED_NOOP,   STATE_COMPENSATING,
                                        STATE_COMPENSATED};
    world->op.error = STR("{\"message\":\"boom\"}");
    for (size_t i = 0; i < sizeof states / sizeof *states; i++) {
        for (int reason = 0; reason < REASON_COUNT; reason++) {
            world->op.state = states[i];
            world->op.reason = (enum reason)reason;
            answer(world);
            assert_error(world, false);
            assert_text(world, OP);
        }
    }
}

static void unknown_says_wait(void **state)
{
    struct world *world = *state;
    world->op.state = STATE_UNKNOWN_OUTCOME;
    world->op.reason = REASON_TIMEOUT;
    world->op.result = STR_NONE;
    world->op.completed_ms = 0;
    answer(world);
    assert_text(world, "It is not known yet whether this was done");
    assert_text(world, "Do not call refund.create again for this");
    assert_text(world, "call onced_wait with {\"operation_id\": \"" OP "\"}");
    assert_text(world, "say neither that it was done nor that it failed");
    assert_member(shape(world), "next_action", "\"wait\"");
    world->view.can_wait = false;
    answer(world);
    refute_text(world, "onced_wait");
    assert_text(world, "onced_status");
    world->view.can_status = false;
    answer(world);
    refute_text(world, "onced_");
    world->op.reason = REASON_NEEDS_OPERATOR;
    answer(world);
    assert_error(world, false);
    assert_text(world, "a person has to look at " OP);
    assert_member(shape(world), "next_action", "\"ask_human\"");
}

static void proven_failures_are_errors(void **state)
{
    struct world *world = *state;
    world->op.state = STATE_FAILED_PERMANENT;
    world->op.reason = REASON_PROVIDER_REFUSED;
    world->op.result = STR_NONE;
    world->op.error = STR("{\"message\":\"amount is larger than the charge\"}");
    answer(world);
    assert_error(world, true);
    assert_text(world, "This was not done.");
    assert_text(world, "What went wrong: amount is larger than the charge");
    assert_text(world, "Mend the arguments");
    assert_member(shape(world), "next_action", "\"fix_arguments\"");
    world->op.reason = REASON_ATTEMPTS_EXHAUSTED;
    answer(world);
    assert_error(world, true);
    assert_text(world, "a person has to look at " OP);
    world->op.state = STATE_REJECTED;
    world->op.reason = REASON_CANCELLED;
    answer(world);
    assert_error(world, true);
    assert_text(world, "cancelled before it was done");
}

static void a_dropped_result_is_told(void **state)
{
    struct world *world = *state;
    world->op.result = STR_NONE;
    world->op.result_dropped = true;
    world->op.result_bytes = 70000;
    answer(world);
    assert_error(world, false);
    assert_text(world, "the result had 70000 bytes, was delivered once and is not kept");
    refute_text(world, "Result: ");
}

static void redaction_holds_but_for_the_own_call(void **state)
{
    struct world *world = *state;
    static const char *const redact[] = {"/card"};
    world->tool.redact_pointers = redact;
    world->tool.redact_count = 1;
    world->view.shape.own_call = false;
    answer(world);
    refute_text(world, "4242");
    assert_member(shape(world), "result", "{\"id\":\"re_1\",\"card\":\"***\"}");
    world->view.shape.withheld = true;
    answer(world);
    refute_text(world, "Result: ");
    assert_text(world, "the result belongs to local and is not shown");
    assert_member(shape(world), "result", "null");
}

/* ---- reads ---- */

static void reads_fail_openly(void **state)
{
    struct world *world = *state;
    world->reply.kind = REPLY_READ;
    world->op.id[0] = '\0';
    world->tool.class = CLASS_READ;
    answer(world);
    assert_error(world, false);
    assert_text(world, "Result: {\"id\":\"re_1\"");
    world->op.state = STATE_FAILED_PERMANENT;
    world->op.reason = REASON_TIMEOUT;
    world->op.result = STR_NONE;
    answer(world);
    assert_error(world, true);
    assert_text(world, "may be called again");
    world->op.state = STATE_UNKNOWN_OUTCOME;
    answer(world);
    assert_error(world, true);
}

/* ---- calls that did not run ---- */

static void refused_arguments_name_their_places(void **state)
{
    struct world *world = *state;
    struct schema_error errors[20];
    for (size_t i = 0; i < 20; i++)
        errors[i] = (struct schema_error){"/amount", "expected integer, got string", "type"};
    errors[0].pointer = "";
    const struct identity_error why = {REFUSAL_ARGUMENTS, errors, 20};
    world->reply = (struct engine_reply){.kind = REPLY_REFUSED, .tool = &world->tool, .why = &why, .err = &no_error};
    answer(world);
    assert_error(world, true);
    assert_text(world, "Nothing was run");
    assert_text(world, "- /amount: expected integer, got string");
    assert_text(world, "- the arguments: expected");
    assert_text(world, "and 4 more");
    assert_member(shape(world), "status", "\"not_run\"");
    assert_member(shape(world), "next_action", "\"fix_arguments\"");
    assert_member(shape(world), "operation_id", "null");
    assert_int_equal(json_get(json_get(shape(world), "problem"), "errors")->count, 20);
}

static void a_conflict_names_what_differs(void **state)
{
    struct world *world = *state;
    static const char *const differing[] = {"/amount", "/note"};
    world->reply.kind = REPLY_CONFLICT;
    world->reply.differing = differing;
    world->reply.differing_count = 2;
    answer(world);
    assert_error(world, true);
    assert_text(world, "Nothing was run");
    assert_text(world, "They differ at /amount, /note.");
    assert_text(world, OP);
    assert_text(world, "onced_status");
    assert_member(shape(world), "reason", "\"key_reused\"");
    assert_member(shape(world), "next_action", "\"do_not_retry\"");
    assert_member(json_get(shape(world), "problem"), "operation_id", "\"" OP "\"");
    world->reply.differing_count = 0;
    answer(world);
    refute_text(world, "differ at");
}

static void held_says_both_ways_out(void **state)
{
    struct world *world = *state;
    world->reply.kind = REPLY_HELD;
    world->op.state = STATE_UNKNOWN_OUTCOME;
    answer(world);
    assert_error(world, false);
    assert_text(world, "Nothing was run");
    assert_text(world, "onced_wait with {\"operation_id\": \"" OP "\"}");
    assert_text(world, "with \"distinct_from\": \"" OP "\"");
    assert_member(shape(world), "reason", "\"in_doubt\"");
    assert_member(shape(world), "next_action", "\"wait\"");
    assert_member(shape(world), "status", "\"not_run\"");
    world->op.reason = REASON_NEEDS_OPERATOR; /* waiting would be of no use */
    answer(world);
    refute_text(world, "onced_wait");
    assert_text(world, "a person has to look at " OP);
    assert_text(world, "with \"distinct_from\": \"" OP "\"");
    assert_member(shape(world), "next_action", "\"ask_human\"");
}

static void others_results_are_not_told(void **state)
{
    struct world *world = *state;
    world->reply.kind = REPLY_NOT_SHARED;
    world->op.principal = "somebody";
    answer(world);
    assert_error(world, false);
    assert_text(world, "called before by somebody");
    refute_text(world, "re_1");
    assert_member(shape(world), "reason", "\"result_not_shared\"");
    assert_member(json_get(shape(world), "problem"), "principal", "\"somebody\"");
    assert_null(json_get(shape(world), "result"));
}

static void expired_is_known_all_the_same(void **state)
{
    struct world *world = *state;
    world->reply = (struct engine_reply){
        .kind = REPLY_EXPIRED, .tombstone = &world->tombstone, .tool = &world->tool, .err = &no_error};
    answer(world);
    assert_error(world, false);
    assert_text(world, "This was done.");
    assert_text(world, "Do not call refund.create again");
    assert_member(shape(world), "status", "\"completed_success\"");
    world->tombstone.state = STATE_FAILED_PERMANENT;
    answer(world);
    assert_error(world, true);
}

static void a_refused_repeat_says_why(void **state)
{
    struct world *world = *state;
    struct err err = {ERR_CONFLICT, "repeat_of names op_x, which is not an operation of this tool"};
    world->reply.kind = REPLY_REPEAT;
    world->reply.op = NULL;
    world->reply.err = &err;
    answer(world);
    assert_error(world, true);
    assert_text(world, "which is not an operation of this tool");
    assert_member(shape(world), "next_action", "\"do_not_retry\"");
    world->reply.op = &world->op;
    world->op.state = STATE_UNKNOWN_OUTCOME; /* what it names is pending: no error */
    answer(world);
    assert_error(world, false);
    assert_text(world, "onced_wait");
    assert_member(shape(world), "next_action", "\"wait\"");
}

static void a_plan_is_shown(void **state)
{
    struct world *world = *state;
    world->reply = (struct engine_reply){
        .kind = REPLY_PLAN, .plan = STR("{\"decision\":\"execute\"}"), .tool = &world->tool, .err = &no_error};
    answer(world);
    assert_error(world, false);
    assert_text(world, "Nothing was run or recorded");
    assert_member(shape(world), "decision", "\"execute\"");
}

static void an_unknown_operation_is_an_error(void **state)
{
    struct world *world = *state;
    world->reply = (struct engine_reply){.kind = REPLY_NOT_FOUND, .err = &no_error};
    answer(world);
    assert_error(world, true);
    assert_member(shape(world), "reason", "\"not_found\"");
}

/* ---- errors of JSON-RPC ---- */

static void what_was_not_accepted_is_an_error_of_the_request(void **state)
{
    struct world *world = *state;
    struct mcp_fault fault;
    struct err err = {ERR_UNAVAILABLE, "the disk is full"};
    struct engine_reply reply = {.kind = REPLY_UNAVAILABLE, .err = &err};
    assert_true(mcp_reply_is_error(&world->arena, &reply, "refund.create", &fault));
    assert_int_equal(fault.code, RPC_INTERNAL_ERROR);
    assert_non_null(strstr(fault.text, "nothing was sent: the disk is full"));
    reply.kind = REPLY_NO_TOOL;
    assert_true(mcp_reply_is_error(&world->arena, &reply, "refund.create", &fault));
    assert_int_equal(fault.code, RPC_INVALID_PARAMS);
    struct identity_error why = {.refusal = REFUSAL_KEY_MISSING};
    reply = (struct engine_reply){.kind = REPLY_REFUSED, .why = &why, .err = &no_error};
    assert_true(mcp_reply_is_error(&world->arena, &reply, "refund.create", &fault));
    assert_int_equal(fault.code, RPC_INVALID_PARAMS);
    assert_non_null(strstr(fault.text, "dev.onced/idempotency-key"));
    why.refusal = REFUSAL_KEY_INVALID;
    assert_true(mcp_reply_is_error(&world->arena, &reply, "refund.create", &fault));
    why.refusal = REFUSAL_KEY_COMPONENT;
    assert_false(mcp_reply_is_error(&world->arena, &reply, "refund.create", &fault));
    why.refusal = REFUSAL_ARGUMENTS;
    assert_false(mcp_reply_is_error(&world->arena, &reply, "refund.create", &fault));
    static const enum reply_kind results[] = {REPLY_OPERATION, REPLY_READ,       REPLY_PLAN,
                                              REPLY_CONFLICT,  REPLY_NOT_SHARED, REPLY_HELD,
                                              REPLY_EXPIRED,   REPLY_REPEAT,     REPLY_NOT_FOUND};
    for (size_t i = 0; i < sizeof results / sizeof *results; i++) {
        reply.kind = results[i];
        assert_false(mcp_reply_is_error(&world->arena, &reply, "refund.create", &fault));
    }
}

/* ---- results of MCP servers ---- */

static void serve_mcp(struct world *world, const char *result)
{
    world->provider.kind = PROVIDER_MCP;
    world->op.result = str_of(result);
}

static void a_servers_result_is_passed_on_unchanged(void **state)
{
    struct world *world = *state;
    serve_mcp(world,
              "{\"content\":[{\"type\":\"image\",\"data\":\"QQ==\",\"mimeType\":\"image/png\"},{\"type\":"
              "\"text\",\"text\":\"hi\",\"annotations\":{\"audience\":[\"user\"]}}],\"structuredContent\":{\"n\":"
              "1.50},\"isError\":false,\"resultType\":\"complete\",\"ttlMs\":5,\"_meta\":{\"a/b\":1,"
              "\"io.modelcontextprotocol/serverInfo\":{\"name\":\"x\"}},\"extra\":true}");
    answer(world);
    assert_member(
        world->result, "content",
        "[{\"type\":\"image\",\"data\":\"QQ==\",\"mimeType\":\"image/png\"},{\"type\":\"text\",\"text\":\"hi\","
        "\"annotations\":{\"audience\":[\"user\"]}}]");
    assert_member(world->result, "structuredContent", "{\"n\":1.50}");
    assert_member(world->result, "extra", "true");
    assert_error(world, false);
    assert_null(json_get(world->result, "resultType"));
    assert_null(json_get(world->result, "ttlMs"));
    const struct json *meta = json_get(world->result, "_meta");
    assert_member(meta, "a/b", "1");
    assert_null(json_get(meta, MCP_META_SERVER));
    const struct json *ours = json_get(meta, MCP_META_RESULT);
    assert_member(ours, "operation_id", "\"" OP "\"");
    assert_member(ours, "result", "null"); /* it is the answer itself */
    world->view.era = MCP_ERA_MODERN;
    answer(world);
    assert_member(world->result, "resultType", "\"complete\"");
}

static void a_servers_replay_adds_a_block(void **state)
{
    struct world *world = *state;
    serve_mcp(world, "{\"content\":[{\"type\":\"text\",\"text\":\"hi\"}]}");
    world->reply.replayed = world->view.shape.replayed = true;
    answer(world);
    assert_int_equal(content(world)->count, 2);
    assert_text(world, "already done at ");
    assert_text(world, "call again with repeat_of");
    assert_member(json_get(json_get(world->result, "_meta"), MCP_META_RESULT), "replayed", "true");
    world->reply.replayed = world->view.shape.replayed = false;
    world->op.duplicate_seen = true;
    answer(world);
    assert_int_equal(content(world)->count, 2);
    assert_text(world, "possibly more than once");
}

static void structured_content_fits_the_era(void **state)
{
    struct world *world = *state;
    serve_mcp(world, "{\"content\":[],\"structuredContent\":[1]}");
    world->reply.replayed = world->view.shape.replayed = true;
    answer(world);
    assert_null(json_get(world->result, "structuredContent"));
    world->view.era = MCP_ERA_MODERN;
    answer(world);
    assert_member(world->result, "structuredContent", "[1]");
    serve_mcp(world, "{\"structuredContent\":{\"a\":1}}"); /* no content: the member must be there */
    answer(world);
    assert_int_equal(content(world)->count, 1);
}

/* noop_when: the server calls it an error, the registry does not. */
static void a_noop_is_no_error(void **state)
{
    struct world *world = *state;
    serve_mcp(world, "{\"content\":[{\"type\":\"text\",\"text\":\"exists already\"}],\"isError\":true}");
    world->op.state = STATE_COMPLETED_NOOP;
    answer(world);
    assert_error(world, false);
    assert_text(world, "Nothing had to be done");
}

/* What a look-up tool found is not what the tool would have answered. */
static void findings_are_told_in_our_words(void **state)
{
    struct world *world = *state;
    serve_mcp(world, "{\"content\":[{\"type\":\"text\",\"text\":\"the file's text\"}]}");
    world->op.reason = REASON_RECONCILED;
    answer(world);
    assert_int_equal(content(world)->count, 1);
    assert_text(world, "This was done.");
    assert_member(shape(world), "status", "\"completed_success\"");
}

static void a_servers_refusal_is_shown_with_advice(void **state)
{
    struct world *world = *state;
    serve_mcp(world, "");
    world->op.result = STR_NONE;
    world->op.state = STATE_FAILED_PERMANENT;
    world->op.reason = REASON_PROVIDER_REFUSED;
    world->op.error = STR("{\"message\":\"no such file\",\"provider\":{\"content\":[{\"type\":\"text\",\"text\":"
                          "\"ENOENT: no such file\"}],\"isError\":true}}");
    answer(world);
    assert_error(world, true);
    assert_int_equal(content(world)->count, 2);
    assert_member(&content(world)->items[0], "text", "\"ENOENT: no such file\"");
    assert_text(world, "Mend the arguments");
    world->op.state = STATE_UNKNOWN_OUTCOME; /* it may have happened: our words only */
    world->op.reason = REASON_PROVIDER_ERROR;
    answer(world);
    assert_error(world, false);
    assert_int_equal(content(world)->count, 1);
}

static void odd_results_of_servers_are_shown_as_they_are(void **state)
{
    struct world *world = *state;
    static const char *const odd[] = {"7", "{}", "{\"content\":7}", "[]", "null"};
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        serve_mcp(world, odd[i]);
        answer(world);
        assert_error(world, false);
        assert_text(world, "This was done.");
        assert_member(shape(world), "result", odd[i]);
    }
}

static void servers_results_are_masked(void **state)
{
    struct world *world = *state;
    static const char *const redact[] = {"/structuredContent/card"};
    world->tool.redact_pointers = redact;
    world->tool.redact_count = 1;
    serve_mcp(world, "{\"content\":[{\"type\":\"text\",\"text\":\"ok\"}],\"structuredContent\":{\"card\":\"4242\"}}");
    world->view.shape.own_call = false;
    answer(world);
    assert_member(world->result, "structuredContent", "{\"card\":\"***\"}");
}

static void a_tasks_result_names_its_task(void **state)
{
    struct world *world = *state;
    world->view.task = OP;
    answer(world);
    assert_member(json_get(world->result, "_meta"), MCP_META_RELATED_TASK, "{\"taskId\":\"" OP "\"}");
    serve_mcp(world, "{\"content\":[{\"type\":\"text\",\"text\":\"ok\"}],\"_meta\":{"
                     "\"io.modelcontextprotocol/related-task\":{\"taskId\":\"theirs\"}}}");
    answer(world);
    assert_member(json_get(world->result, "_meta"), MCP_META_RELATED_TASK, "{\"taskId\":\"" OP "\"}");
}

/* Long texts are cut between characters. */
static void long_errors_are_cut(void **state)
{
    struct world *world = *state;
    struct buf error;
    buf_init(&error, 0);
    buf_add_text(&error, "{\"message\":\"x");
    for (int i = 0; i < 3000; i++)
        buf_add_text(&error, "é");
    buf_add_text(&error, "\"}");
    world->op.state = STATE_FAILED_PERMANENT;
    world->op.result = STR_NONE;
    world->op.error = buf_str(&error);
    answer(world);
    assert_text(world, "é …");
    assert_true(strlen(world->text) < 2400);
    buf_release(&error);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(success_gives_the_result),
        TEST(a_replay_says_so),
        TEST(open_and_unknown_outcomes_are_no_errors),
        TEST(unknown_says_wait),
        TEST(proven_failures_are_errors),
        TEST(a_dropped_result_is_told),
        TEST(redaction_holds_but_for_the_own_call),
        TEST(reads_fail_openly),
        TEST(refused_arguments_name_their_places),
        TEST(a_conflict_names_what_differs),
        TEST(held_says_both_ways_out),
        TEST(others_results_are_not_told),
        TEST(expired_is_known_all_the_same),
        TEST(a_refused_repeat_says_why),
        TEST(a_plan_is_shown),
        TEST(an_unknown_operation_is_an_error),
        TEST(what_was_not_accepted_is_an_error_of_the_request),
        TEST(a_servers_result_is_passed_on_unchanged),
        TEST(a_servers_replay_adds_a_block),
        TEST(structured_content_fits_the_era),
        TEST(a_noop_is_no_error),
        TEST(findings_are_told_in_our_words),
        TEST(a_servers_refusal_is_shown_with_advice),
        TEST(odd_results_of_servers_are_shown_as_they_are),
        TEST(servers_results_are_masked),
        TEST(a_tasks_result_names_its_task),
        TEST(long_errors_are_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
