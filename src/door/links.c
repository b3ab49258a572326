#include "door/links.h"

#include "base/digest.h"
#include "core/claims.h"
#include "door/approvals.h"
#include "door/ask.h"
#include "door/auth.h"
#include "door/call_body.h"
#include "door/people.h"
#include "door/rest.h"

#include <stdlib.h>
#include <string.h>

#define MAC_BYTES 32
#define SEPARATOR '\n' /* in no name: they are printable */

/* ---- tokens: HEX(tenant, operation, approver, decision, end, maker, ground) "." HEX(MAC) ---- */

#define PARTS 7

static struct digest mac_of(const unsigned char secret[LEDGER_SECRET_BYTES], struct str payload)
{
    const struct str domain[] = {STR("onced approval link 2")};
    struct digest key = digest_parts_keyed((struct str){(const char *)secret, LEDGER_SECRET_BYTES}, domain, 1);
    return digest_parts_keyed((struct str){(const char *)key.b, DIGEST_BYTES}, &payload, 1);
}

static void add_hex(struct buf *out, struct str bytes)
{
    for (size_t i = 0; i < bytes.n; i++)
        buf_printf(out, "%02x", (unsigned char)bytes.p[i]);
}

const char *link_write(struct arena *arena, const unsigned char secret[LEDGER_SECRET_BYTES], const struct link *link)
{
    struct buf text;
    char mac[2 * MAC_BYTES + 1];
    struct str payload =
        str_of(arena_printf(arena, "%s%c%s%c%s%c%s%c%lld%c%s%c%s", link->tenant, SEPARATOR, link->operation, SEPARATOR,
                            link->approver, SEPARATOR, link->approve ? "approve" : "deny", SEPARATOR,
                            (long long)link->expires_ms, SEPARATOR, link->made_by, SEPARATOR, link->ground));
    struct digest digest = mac_of(secret, payload);
    buf_init(&text, 0);
    add_hex(&text, payload);
    buf_add_char(&text, '.');
    digest_hex(&digest, MAC_BYTES, mac);
    buf_add_text(&text, mac);
    const char *token = arena_copy_str(arena, buf_str(&text));
    buf_release(&text);
    return token;
}

static int nibble(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool from_hex(struct arena *arena, struct str hex, struct str *out)
{
    char *bytes = arena_zero(arena, hex.n / 2 + 1);
    for (size_t i = 0; i < hex.n / 2; i++) {
        int high = nibble(hex.p[2 * i]), low = nibble(hex.p[2 * i + 1]);
        if (high < 0 || low < 0)
            return false;
        bytes[i] = (char)(high << 4 | low);
    }
    *out = (struct str){bytes, hex.n / 2};
    return hex.n % 2 == 0;
}

bool link_read(struct arena *arena, const unsigned char secret[LEDGER_SECRET_BYTES], const char *text, int64_t now_ms,
               struct link *out)
{
    const char *dot = strchr(text, '.');
    struct str payload, mac;
    if (!dot || !from_hex(arena, (struct str){text, (size_t)(dot - text)}, &payload) ||
        !from_hex(arena, str_of(dot + 1), &mac) || mac.n != MAC_BYTES)
        return false;
    struct digest expected = mac_of(secret, payload);
    if (!digest_same_secret(expected.b, (const unsigned char *)mac.p, MAC_BYTES))
        return false;
    char *parts[PARTS], *at = (char *)(uintptr_t)payload.p; /* our own copy */
    for (size_t i = 0; i < PARTS; i++) {
        parts[i] = at;
        at = strchr(at, SEPARATOR);
        if ((at == NULL) != (i == PARTS - 1))
            return false;
        if (at)
            *at++ = '\0';
    }
    *out = (struct link){.tenant = parts[0],
                         .operation = parts[1],
                         .approver = parts[2],
                         .approve = strcmp(parts[3], "approve") == 0,
                         .expires_ms = strtoll(parts[4], NULL, 10),
                         .made_by = parts[5],
                         .ground = parts[6]};
    return now_ms < out->expires_ms;
}

bool links_path(const char *path)
{
    return strncmp(path, LINKS_PATH, strlen(LINKS_PATH)) == 0;
}

static const unsigned char *secret_of(struct exchange *exchange)
{
    return engine_ledger(exchange->engine)->secret;
}

/* ---- on what they rest ---- */

const char *link_ground(struct arena *arena, const struct people_ground *ground)
{
    if (ground->token)
        return LINK_GROUND_TOKEN;
    return arena_printf(arena, LINK_GROUND_ISSUER "%s", ground->issuer);
}

/* What a link rested on when it was made must hold when it is used. */
static bool still_may(struct exchange *exchange, const struct link *link, const struct operation *op,
                      const struct ledger_token_list *tokens)
{
    static const size_t prefix = sizeof LINK_GROUND_ISSUER - 1;
    const struct auth *auth = exchange_parts(exchange)->auth;
    struct people_ground ground;
    struct err err = {0};
    if (!auth)
        return true;
    if (strncmp(link->ground, LINK_GROUND_ISSUER, prefix) == 0)
        return auth_has_issuer(auth, link->ground + prefix);
    return strcmp(link->ground, LINK_GROUND_TOKEN) == 0 &&
           people_find(NULL, tokens->tokens, tokens->count, op, link->approver, exchange_now_ms(exchange), &ground,
                       &err) == ERR_NONE;
}

int64_t link_until(const struct operation *op, const struct link_settings *settings, int64_t now_ms)
{
    int64_t until_ms = op->state == STATE_PLANNED ? approval_open_until(op) : 0;
    if (until_ms <= now_ms)
        return 0;
    return until_ms > now_ms + settings->expires_ms ? now_ms + settings->expires_ms : until_ms;
}

void link_write_both(struct arena *arena, const unsigned char secret[LEDGER_SECRET_BYTES], const char *base,
                     struct link link, struct json_out *out)
{
    char at[ENV_TIME_SIZE];
    json_out_member_text(out, "approver", link.approver);
    for (int approve = 1; approve >= 0; approve--) {
        link.approve = approve;
        json_out_member_text(out, approve ? "approve" : "deny",
                             arena_printf(arena, "%s%s%s", base, LINKS_PATH, link_write(arena, secret, &link)));
    }
    env_time_text(link.expires_ms, at);
    json_out_member_text(out, "expires_at", at);
}

/* ---- making them ---- */

struct wish {
    const char *approver;
    const struct operation *op;
    const char *ground;
};

static bool is_name(const char *text)
{
    size_t n = text ? strlen(text) : 0;
    for (size_t i = 0; i < n; i++)
        if (text[i] <= 0x20 || text[i] >= 0x7f)
            return false;
    return n > 0 && n <= 128;
}

/* It stands in the operation's events who made them: now they may be given. */
static void noted(void *user, const struct engine_reply *reply)
{
    struct exchange *exchange = user;
    const struct wish *wish = exchange->user;
    const struct link_settings *settings = &exchange_parts(exchange)->links;
    struct json_out out;
    int64_t until_ms = reply->kind == REPLY_OPERATION ? link_until(reply->op, settings, exchange_now_ms(exchange)) : 0;
    if (!until_ms) {
        rest_reply(exchange, reply, false);
        return;
    }
    const struct link link = {
        .tenant = wish->op->tenant,
        .operation = wish->op->id,
        .approver = wish->approver,
        .expires_ms = until_ms,
        .made_by = exchange->caller.principal,
        .ground = wish->ground,
    };
    json_out_init(&out, &exchange->answer);
    json_out_object(&out);
    link_write_both(&exchange->arena, secret_of(exchange), settings->base, link, &out);
    json_out_member_text(&out, "made_by", link.made_by);
    json_out_end_object(&out);
    exchange_send(exchange, 200);
}

static void note_them(struct exchange *exchange)
{
    const struct wish *wish = exchange->user;
    const struct engine_decision decision = {
        .kind = DECISION_LINK,
        .tenant = exchange->caller.tenant,
        .operation = wish->op->id,
        .actor = exchange->caller.principal,
        .approver = wish->approver,
        .scope = exchange->caller.scope,
    };
    engine_decide(exchange->engine, &decision, noted, exchange);
}

static void tokens_known(struct exchange *exchange, struct ledger_request *request)
{
    struct wish *wish = exchange->user;
    const struct ledger_token_list *list = &request->token_list;
    struct people_ground ground = {0};
    struct err err = {0};
    if (request->code) {
        rest_ledger_problem(exchange, request, "no tokens");
        return;
    }
    if (people_find(auth_people(exchange_parts(exchange)->auth), list->tokens, list->count, wish->op, wish->approver,
                    exchange_now_ms(exchange), &ground, &err)) {
        rest_refuse(exchange, PROBLEM_NOT_POSSIBLE, arena_copy_text(&exchange->arena, err.text));
        return;
    }
    wish->ground = link_ground(&exchange->arena, &ground);
    note_them(exchange);
}

static void operation_known(struct exchange *exchange, struct ledger_request *request)
{
    struct wish *wish = exchange->user;
    if (request->code) {
        rest_ledger_problem(exchange, request, "no such operation");
        return;
    }
    wish->op = request->get.op;
    if (!wish->op || !link_until(wish->op, &exchange_parts(exchange)->links, exchange_now_ms(exchange))) {
        rest_refuse(exchange, PROBLEM_NOT_POSSIBLE, "the operation waits for nobody's approval");
    } else if (exchange_parts(exchange)->auth) {
        ask(exchange, ask_new(exchange, LEDGER_TOKEN_LIST), tokens_known);
    } else {
        wish->ground = LINK_GROUND_OPEN;
        note_them(exchange);
    }
}

void rest_links(struct exchange *exchange)
{
    struct wish *wish = arena_zero(&exchange->arena, sizeof *wish);
    const struct body_member members[] = {
        {.name = "approver", .type = BODY_TEXT, .out = &wish->approver, .required = true},
    };
    if (!rest_names_operation(exchange) || !rest_body(exchange, members, sizeof members / sizeof *members))
        return;
    if (!exchange_parts(exchange)->links.base) {
        rest_refuse(exchange, PROBLEM_NOT_POSSIBLE, "the registry file has no server.links");
        return;
    }
    if (!is_name(wish->approver)) {
        rest_refuse(exchange, PROBLEM_MALFORMED, "\"approver\" must be 1 to 128 printable characters without spaces");
        return;
    }
    exchange->user = wish;
    struct ledger_request *request = ask_new(exchange, LEDGER_GET);
    request->get.tenant = exchange->caller.tenant;
    request->get.operation = exchange->params[0];
    ask(exchange, request, operation_known);
}

/* ---- pages ---- */

static void add_escaped(struct buf *out, struct str text)
{
    for (size_t i = 0; i < text.n; i++) {
        switch (text.p[i]) {
        case '<': buf_add_text(out, "&lt;"); break;
        case '>': buf_add_text(out, "&gt;"); break;
        case '&': buf_add_text(out, "&amp;"); break;
        case '"': buf_add_text(out, "&quot;"); break;
        default: buf_add_char(out, text.p[i]);
        }
    }
}

static void line(struct exchange *exchange, const char *before, const char *text, const char *behind)
{
    buf_add_text(&exchange->answer, before);
    add_escaped(&exchange->answer, str_of(text));
    buf_add_text(&exchange->answer, behind);
}

/* No scripts, no frames, nothing from elsewhere, nothing that is kept or passed on. */
static void begin_page(struct exchange *exchange, const char *title)
{
    exchange->content_type = "text/html; charset=utf-8";
    exchange_add_header(exchange, "Content-Security-Policy",
                        "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; frame-ancestors 'none'");
    exchange_add_header(exchange, "Referrer-Policy", "no-referrer");
    exchange_add_header(exchange, "Cache-Control", "no-store");
    buf_reset(&exchange->answer);
    line(exchange,
         "<!doctype html><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">"
         "<style>body{font:16px sans-serif;max-width:40em;margin:2em auto;padding:0 1em}"
         "pre{background:#eee;padding:1em;overflow:auto}</style><title>",
         title, "</title>");
    line(exchange, "<h1>", title, "</h1>");
}

/* A link that was opened, with what it is about. */
struct opened {
    struct link link;
    const struct operation *op;
    const char *note;
    void (*next)(struct exchange *exchange);
};

static void not_valid(struct exchange *exchange, const char *why)
{
    begin_page(exchange, "This link is not valid");
    line(exchange, "<p>", why, " Nothing was changed.");
    exchange_send(exchange, 404);
}

static void rights_known(struct exchange *exchange, struct ledger_request *request)
{
    const struct opened *opened = exchange->user;
    if (request->code) {
        begin_page(exchange, "This is not known now");
        exchange_send(exchange, 503);
    } else if (!still_may(exchange, &opened->link, opened->op, &request->token_list)) {
        not_valid(exchange, "Whom it was made for may not decide on this any more.");
    } else {
        opened->next(exchange);
    }
}

static void found(struct exchange *exchange, struct ledger_request *request)
{
    struct opened *opened = exchange->user;
    opened->op = request->code ? NULL : request->get.op;
    if (!opened->op) {
        begin_page(exchange, "This is not known any more");
        exchange_send(exchange, request->code && request->code != ERR_NOT_FOUND ? 503 : 404);
        return;
    }
    ask(exchange, ask_new(exchange, LEDGER_TOKEN_LIST), rights_known);
}

/* next: the link is good, its operation is there, and whom it was made for may still decide. */
static void open_link(struct exchange *exchange, void (*next)(struct exchange *exchange), const char *note)
{
    struct opened *opened = arena_zero(&exchange->arena, sizeof *opened);
    if (!exchange_parts(exchange)->links.base || !link_read(&exchange->arena, secret_of(exchange), exchange->params[0],
                                                            exchange_now_ms(exchange), &opened->link)) {
        not_valid(exchange, "It is over, or not complete.");
        return;
    }
    opened->next = next;
    opened->note = note;
    exchange->user = opened;
    struct ledger_request *request = ask_new(exchange, LEDGER_GET);
    request->get.tenant = opened->link.tenant;
    request->get.operation = opened->link.operation;
    ask(exchange, request, found);
}

/* The text of a value, or "" */
static void preformatted(struct exchange *exchange, const char *title, struct str json_text)
{
    struct json *value;
    struct buf text;
    if (!json_text.p || json_parse(&exchange->arena, json_text, &json_limits_kept, &value, NULL))
        return;
    buf_init(&text, 0);
    json_write_pretty(&text, value);
    line(exchange, "<h2>", title, "</h2><pre>");
    add_escaped(&exchange->answer, buf_str(&text));
    buf_add_text(&exchange->answer, "</pre>");
    buf_release(&text);
}

static void show_operation(struct exchange *exchange, const struct operation *op, const struct tool *tool)
{
    struct buf request;
    struct json_out out;
    line(exchange, "<p><b>", tool && tool->title ? tool->title : op->tool, "</b>");
    line(exchange, ", called by ", op->principal, "");
    line(exchange, " (", op->id, ")</p>");
    if (tool && tool->description)
        line(exchange, "<p>", tool->description, "</p>");
    preformatted(exchange, "Arguments", shape_masked(&exchange->arena, op->arguments, tool));
    buf_init(&request, 0);
    json_out_init(&out, &request);
    approvals_write_request(exchange, op, tool, &out);
    preformatted(exchange, "What would be sent", buf_str(&request));
    buf_release(&request);
}

/* A line for each operation on what this one works on. */
static void show_entities(struct exchange *exchange, const struct approvals_history *history)
{
    for (size_t i = 0; history->claims && i < history->claims->entity_count; i++) {
        const struct claims one = {.entities = {history->claims->entities[i]}, .entity_count = 1};
        line(exchange, "<h2>Lately with ", one.entities[0].type, " ");
        line(exchange, "", one.entities[0].id, "</h2><ul>");
        for (size_t k = 0; k < history->sharing_count; k++) {
            const struct operation *op = history->sharing[k];
            char at[ENV_TIME_SIZE];
            if (strcmp(op->id, history->op->id) == 0 || !claims_share_entity(op->claims, &one))
                continue;
            env_time_text(op->completed_ms ? op->completed_ms : op->created_ms, at);
            line(exchange, "<li>", at, "");
            line(exchange, " ", op->tool, "");
            line(exchange, ": ", state_name(op->state), "");
            line(exchange, " (", op->id, ")</li>");
        }
        buf_add_text(&exchange->answer, "</ul>");
    }
    for (size_t i = 0; i < history->earlier_count; i++) {
        const struct operation *op = history->earlier[i];
        line(exchange, "<p>Earlier under the same key: ", state_name(op->state), "");
        line(exchange, " (", op->id, ")</p>");
    }
}

static void show_page(struct exchange *exchange, const struct approvals_history *history)
{
    const struct opened *opened = exchange->user;
    const struct link *link = &opened->link;
    const struct operation *op = opened->op;
    const struct tool *tool = rest_tool(exchange, op->tool);
    bool open = op->state == STATE_PLANNED && approval_open_until(op) > 0;
    begin_page(exchange, !open ? "This has been decided" : link->approve ? "Approve?" : "Deny?");
    show_operation(exchange, op, tool);
    show_entities(exchange, history);
    if (open) {
        line(exchange, "<form method=\"post\"><p>You decide as <b>", link->approver, "</b>, ");
        line(exchange, "by a link that ", link->made_by,
             " made. <label>Note <input name=\"note\" maxlength=\"500\"></label> ");
        line(exchange, "<button>", link->approve ? "Approve" : "Deny", "</button></form>");
    } else {
        line(exchange, "<p>", shape_message(op, tool), "</p>");
    }
    exchange_send(exchange, 200);
}

static void look_at(struct exchange *exchange)
{
    const struct opened *opened = exchange->user;
    approvals_look_back(exchange, opened->op, show_page);
}

void rest_link_page(struct exchange *exchange)
{
    open_link(exchange, look_at, NULL);
}

static void used(void *user, const struct engine_reply *reply)
{
    struct exchange *exchange = user;
    const struct opened *opened = exchange->user;
    const struct link *link = &opened->link;
    const struct operation *op = reply->op;
    struct approval approval;
    const struct approval_decision *stands = NULL;
    int status = 200;
    if (op && op->approval.p && approval_read(&exchange->arena, op->approval, &approval, NULL) == ERR_NONE)
        stands = approval_stands(&approval, link->approver);
    if (reply->kind == REPLY_OPERATION && !reply->replayed) {
        begin_page(exchange, link->approve ? "Approved" : "Denied");
    } else if (reply->kind == REPLY_OPERATION && stands) {
        begin_page(exchange, "This had been decided");
        line(exchange, "<p>", stands->approve ? "Approved" : "Denied", "");
        line(exchange, " by ", stands->by, "</p>");
    } else {
        status = reply->kind == REPLY_UNAVAILABLE ? 503 : 409;
        begin_page(exchange, "This was not possible");
        line(exchange, "<p>", reply->err->text, "</p>");
    }
    if (op)
        line(exchange, "<p>", shape_message(op, reply->tool), "</p>");
    exchange_send(exchange, status);
}

/* note=… of a form; NULL when there is none. */
static const char *note_of(struct exchange *exchange)
{
    struct str body = buf_str(&exchange->body);
    struct str value;
    if (body.n < 6 || memcmp(body.p, "note=", 5) != 0)
        return NULL;
    char *text = arena_copy_str(&exchange->arena, (struct str){body.p + 5, strcspn(body.p + 5, "&")});
    for (char *p = text; *p; p++)
        if (*p == '+')
            *p = ' ';
    bool good = exchange_unescape(&exchange->arena, str_of(text), &value) && value.n <= APPROVAL_NOTE_BYTES_MAX;
    return good && value.n > 0 ? value.p : NULL;
}

static void use(struct exchange *exchange)
{
    const struct opened *opened = exchange->user;
    const struct link *link = &opened->link;
    const struct engine_decision decision = {
        .kind = link->approve ? DECISION_APPROVE : DECISION_DENY,
        .tenant = link->tenant,
        .operation = link->operation,
        .actor = link->approver,
        .note = opened->note || link->approve ? opened->note : "by link, without a note",
        .via = APPROVAL_VIA_LINK,
        .link_by = link->made_by,
    };
    engine_decide(exchange->engine, &decision, used, exchange);
}

void rest_link_used(struct exchange *exchange)
{
    open_link(exchange, use, note_of(exchange));
}
