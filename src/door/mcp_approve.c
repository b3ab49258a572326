#include "door/mcp_approve.h"

#include "base/mem.h"

#include <stdlib.h>

#define STATE_PREFIX "onced-approval:"
#define MAC_BYTES    16
#define ANSWER_KEY   "approval"
#define SCHEMA                                                                                                         \
    "{\"type\":\"object\",\"properties\":{\"decision\":{\"type\":\"string\",\"title\":\"Decision\",\"description\":"   \
    "\"approve: it runs as shown. deny: it never does.\",\"enum\":[\"approve\",\"deny\"]},\"note\":{\"type\":"         \
    "\"string\",\"title\":\"Note\",\"description\":\"Kept with the decision; the caller is told why it was denied.\"," \
    "\"maxLength\":500}},\"required\":[\"decision\"]}"

/* Lives as long as a question or a decision is under way, also after the request. */
struct mcp_approving {
    struct mcp_request *request; /* NULL = gone */
    struct mcp_approve *approve;
    int64_t until_ms;  /* end of the request that was shown: one that was made anew is another one */
    char question[24]; /* legacy: id of our request to the client; "" = none is open */
    /* the decision */
    bool accepted, approves;
    char *note;
};

static const char *user_of(struct arena *arena, const struct mcp_session *session)
{
    return arena_printf(arena, "%s/user", session->principal);
}

static struct mcp_approving *approving_new(struct mcp_request *request, struct mcp_approve *approve, int64_t until_ms)
{
    struct mcp_approving *approving = mem_zero(sizeof *approving);
    approving->request = request;
    approving->approve = approve;
    approving->until_ms = until_ms;
    approve->open = approving;
    return approving;
}

static void approving_free(struct mcp_approving *approving)
{
    if (approving->request)
        approving->approve->open = NULL;
    free(approving->note);
    free(approving);
}

void mcp_approve_let_go(struct mcp_request *request, struct mcp_approve *approve)
{
    struct mcp_approving *approving = approve->open;
    if (!approving)
        return;
    approve->open = NULL;
    approving->request = NULL;
    if (!approving->question[0])
        return; /* the decision is on its way: it comes back to us */
    mcp_ask_withdraw(request->session, str_of(approving->question));
    approving_free(approving);
}

/* ---- whether ---- */

bool mcp_approve_wanted(const struct mcp_request *request, const struct operation *op, const struct tool *tool,
                        const struct mcp_approve *approve)
{
    struct approval approval;
    struct arena arena;
    if (!tool || tool->approval.mcp != APPROVAL_MCP_ELICIT || approve->rounds >= MCP_APPROVE_ROUNDS_MAX ||
        op->state != STATE_PLANNED || op->reason != REASON_AWAITING_APPROVAL ||
        !text_equal(op->principal, request->session->principal) ||
        !mcp_client_can(request->capabilities, "elicitation.form"))
        return false;
    arena_init(&arena);
    bool open = approval_read(&arena, op->approval, &approval, NULL) == ERR_NONE &&
                !approval_stands(&approval, user_of(&arena, request->session));
    arena_release(&arena);
    return open;
}

/* ---- the form ---- */

/* What is to be decided, in words. NULL: it cannot be shown as it is. The arguments come last and as JSON, in which
 * nothing that a model wrote can pass for words of ours. */
static const char *question_text(struct mcp_request *request, const struct operation *op, const struct tool *tool)
{
    struct arena *arena = &request->arena;
    struct approval approval;
    struct json *value;
    struct str shown = shape_masked(arena, op->arguments, tool);
    struct buf text;
    if (!shown.p || json_parse(arena, shown, &json_limits_kept, &value, NULL) ||
        approval_read(arena, op->approval, &approval, NULL))
        return NULL;
    buf_init(&text, 0);
    buf_printf(&text,
               "%s (%s) was called by %s and runs only if it is approved (%u of %u so far). You decide as %s. "
               "Arguments:\n",
               tool->title ? tool->title : tool->name, op->id, op->principal, approval_given(&approval),
               approval.needed, user_of(arena, request->session));
    json_write_pretty(&text, value);
    const char *copy = text.n <= MCP_APPROVE_SHOW_BYTES_MAX ? arena_copy_str(arena, buf_str(&text)) : NULL;
    buf_release(&text);
    return copy;
}

static void write_form(struct json_out *out, const char *message, bool modern)
{
    json_out_object(out);
    if (modern)
        json_out_member_text(out, "mode", "form");
    json_out_member_text(out, "message", message);
    json_out_name(out, "requestedSchema");
    json_out_raw(out, STR(SCHEMA));
    json_out_end_object(out);
}

/* ---- what was answered ---- */

/* An ElicitResult. Anything but an accepted form with a decision decides nothing. */
static void read_answer(struct mcp_approving *approving, const struct json *result)
{
    const struct json *content = result ? json_get(result, "content") : NULL;
    struct str decision = content ? json_get_text(content, "decision") : STR_NONE;
    struct str note = content ? json_get_text(content, "note") : STR_NONE;
    bool known = str_is(decision, "approve") || str_is(decision, "deny");
    approving->accepted = result && str_is(json_get_text(result, "action"), "accept") && known;
    approving->approves = str_is(decision, "approve");
    if (note.p && note.n > 0 && note.n <= APPROVAL_NOTE_BYTES_MAX)
        approving->note = mem_copy_bytes(note.p, note.n);
}

static void told(struct mcp_approving *approving)
{
    struct mcp_request *request = approving->request;
    struct mcp_approve *approve = approving->approve;
    approving_free(approving);
    if (request)
        approve->done(request);
}

static void decided(void *user, const struct engine_reply *reply)
{
    struct mcp_approving *approving = user;
    if (approving->request) {
        approving->approve->decided =
            reply->kind == REPLY_OPERATION && (reply->op->state != STATE_PLANNED || approval_complete(reply->op));
        approving->approve->again = reply->kind == REPLY_STALE;
    }
    told(approving);
}

static void decide(struct mcp_approving *approving)
{
    struct mcp_request *request = approving->request;
    const struct mcp_session *session = request->session;
    if (!approving->accepted) {
        told(approving);
        return;
    }
    const struct engine_decision decision = {
        .kind = approving->approves ? DECISION_APPROVE : DECISION_DENY,
        .tenant = session->tenant,
        .operation = approving->approve->operation,
        .until_ms = approving->until_ms,
        .actor = user_of(&request->arena, session),
        .note = approving->note || approving->approves ? approving->note : "by the client's user, without a note",
        .via = APPROVAL_VIA_MCP,
    };
    engine_decide(session->door->engine, &decision, decided, approving);
}

/* ---- legacy: the client is asked, the call waits ---- */

static void answered(void *user, const struct rpc_message *message)
{
    struct mcp_approving *approving = user;
    approving->question[0] = '\0';
    if (!approving->request) { /* let go of while the session ends */
        approving_free(approving);
        return;
    }
    if (message && message->kind == RPC_RESULT)
        read_answer(approving, message->result);
    decide(approving);
}

static bool ask_legacy(struct mcp_request *request, struct mcp_approve *approve, const struct operation *op,
                       const char *message)
{
    struct json_out out;
    struct buf params;
    struct str id;
    struct mcp_approving *approving = approving_new(request, approve, approval_open_until(op));
    buf_init(&params, 0);
    json_out_init(&out, &params);
    write_form(&out, message, false);
    bool asked = mcp_ask(request->session, request, "elicitation/create", buf_str(&params), answered, approving, &id);
    buf_release(&params);
    if (asked)
        snprintf(approving->question, sizeof approving->question, "%.*s", STR_ARG(id));
    else
        approving_free(approving);
    return asked;
}

/* ---- modern: the question goes out with the answer, and comes back with the next round ---- */

/* Of whom called what: the round that answers must be the same call. */
static void call_parts(const struct mcp_request *request, struct buf *out)
{
    static const char *const names[] = {"name", "arguments"};
    buf_init(out, 0);
    buf_printf(out, "%s\n%s\n", request->session->tenant, request->session->principal);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const struct json *value = json_get(request->message.params, names[i]);
        if (value)
            json_canonical(out, value);
        buf_add_char(out, '\n');
    }
}

static void state_mac(const struct mcp_request *request, struct str payload, char hex[2 * MAC_BYTES + 1])
{
    const struct str domain[] = {STR("onced mcp approval 1")};
    const unsigned char *secret = engine_ledger(request->session->door->engine)->secret;
    struct digest key = digest_parts_keyed((struct str){(const char *)secret, LEDGER_SECRET_BYTES}, domain, 1);
    struct buf call;
    call_parts(request, &call);
    const struct str parts[] = {payload, buf_str(&call)};
    struct digest mac = digest_parts_keyed((struct str){(const char *)key.b, DIGEST_BYTES}, parts, 2);
    buf_release(&call);
    digest_hex(&mac, MAC_BYTES, hex);
}

static void ask_modern(struct mcp_request *request, const struct operation *op, const char *message)
{
    char mac[2 * MAC_BYTES + 1];
    const char *payload = arena_printf(&request->arena, "%s.%lld", op->id, (long long)approval_open_until(op));
    struct json_out out;
    struct buf text;
    state_mac(request, str_of(payload), mac);
    buf_init(&text, 0);
    json_out_init(&out, &text);
    json_out_object(&out);
    json_out_member_text(&out, "resultType", "input_required");
    json_out_name(&out, "inputRequests");
    json_out_object(&out);
    json_out_name(&out, ANSWER_KEY);
    json_out_object(&out);
    json_out_member_text(&out, "method", "elicitation/create");
    json_out_name(&out, "params");
    write_form(&out, message, true);
    json_out_end_object(&out);
    json_out_end_object(&out);
    json_out_member_text(&out, "requestState", arena_printf(&request->arena, STATE_PREFIX "%s.%s", payload, mac));
    json_out_end_object(&out);
    mcp_reply(request, buf_str(&text));
    buf_release(&text);
}

bool mcp_approve_ask(struct mcp_request *request, struct mcp_approve *approve, const struct operation *op,
                     const struct tool *tool)
{
    const char *message = question_text(request, op, tool);
    if (!message)
        return false;
    approve->rounds++;
    approve->decided = approve->again = false;
    memcpy(approve->operation, op->id, OPERATION_ID_SIZE);
    if (request->era == MCP_ERA_LEGACY)
        return ask_legacy(request, approve, op, message);
    ask_modern(request, op, message);
    return true;
}

bool mcp_approve_is_round(const struct mcp_request *request)
{
    static const size_t n = sizeof STATE_PREFIX - 1;
    struct str state = json_get_text(request->message.params, "requestState");
    return request->era != MCP_ERA_LEGACY && state.p && state.n > n && memcmp(state.p, STATE_PREFIX, n) == 0;
}

bool mcp_approve_read(struct mcp_request *request, struct mcp_approve *approve)
{
    static const size_t n = sizeof STATE_PREFIX - 1;
    struct str state = json_get_text(request->message.params, "requestState");
    struct env *env = engine_env(request->session->door->engine);
    char *text = arena_copy_str(&request->arena, (struct str){state.p + n, state.n - n});
    char mac[2 * MAC_BYTES + 1], *dot = strrchr(text, '.');
    int64_t until_ms = 0;
    bool good = dot && strlen(text) == state.n - n && strlen(dot + 1) == sizeof mac - 1;
    if (good) {
        *dot = '\0';
        state_mac(request, str_of(text), mac);
        good = digest_same_secret((const unsigned char *)mac, (const unsigned char *)dot + 1, sizeof mac - 1) &&
               strlen(text) > OPERATION_ID_SIZE;
    }
    if (good) { /* what follows is as ask_modern wrote it */
        until_ms = strtoll(text + OPERATION_ID_SIZE, NULL, 10);
        good = until_ms > env->now_ms(env);
    }
    if (!good) {
        mcp_reply_error(request, RPC_INVALID_PARAMS, STR_NONE,
                        "requestState is altered, expired or of another call: call again without it");
        return false;
    }
    snprintf(approve->operation, sizeof approve->operation, "%.*s", OPERATION_ID_SIZE - 1, text);
    struct mcp_approving *approving = approving_new(request, approve, until_ms);
    const struct json *responses = json_get(request->message.params, "inputResponses");
    read_answer(approving, responses ? json_get(responses, ANSWER_KEY) : NULL);
    return true;
}

void mcp_approve_go_on(struct mcp_request *request, struct mcp_approve *approve)
{
    (void)request;
    decide(approve->open);
}
