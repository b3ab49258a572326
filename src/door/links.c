#include "door/links.h"

#include "base/digest.h"
#include "door/approvals.h"
#include "door/ask.h"
#include "door/call_body.h"
#include "door/rest.h"

#include <stdlib.h>
#include <string.h>

#define MAC_BYTES 32
#define SEPARATOR '\n' /* in no name: they are printable */

/* ---- tokens: HEX(tenant, operation, approver, decision, end) "." HEX(MAC) ---- */

static struct digest mac_of(const unsigned char secret[LEDGER_SECRET_BYTES], struct str payload)
{
    const struct str domain[] = {STR("onced approval link 1")};
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
    struct str payload = str_of(arena_printf(arena, "%s%c%s%c%s%c%s%c%lld", link->tenant, SEPARATOR, link->operation,
                                             SEPARATOR, link->approver, SEPARATOR, link->approve ? "approve" : "deny",
                                             SEPARATOR, (long long)link->expires_ms));
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
    char *parts[5], *at = (char *)(uintptr_t)payload.p; /* our own copy */
    for (size_t i = 0; i < 5; i++) {
        parts[i] = at;
        at = strchr(at, SEPARATOR);
        if ((at == NULL) != (i == 4))
            return false;
        if (at)
            *at++ = '\0';
    }
    *out = (struct link){.tenant = parts[0],
                         .operation = parts[1],
                         .approver = parts[2],
                         .approve = strcmp(parts[3], "approve") == 0,
                         .expires_ms = strtoll(parts[4], NULL, 10)};
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

/* ---- making them ---- */

struct wish {
    const char *approver;
};

static bool is_name(const char *text)
{
    size_t n = text ? strlen(text) : 0;
    for (size_t i = 0; i < n; i++)
        if (text[i] <= 0x20 || text[i] >= 0x7f)
            return false;
    return n > 0 && n <= 128;
}

static void give(struct exchange *exchange, struct ledger_request *request)
{
    const struct wish *wish = exchange->user;
    const struct link_settings *settings = &exchange_parts(exchange)->links;
    if (request->code) {
        rest_ledger_problem(exchange, request, "no such operation");
        return;
    }
    const struct operation *op = request->get.op;
    int64_t until_ms = op ? approval_open_until(op) : 0, now_ms = exchange_now_ms(exchange);
    if (until_ms <= now_ms || op->state != STATE_PLANNED) {
        rest_refuse(exchange, PROBLEM_NOT_POSSIBLE, "the operation waits for nobody's approval");
        return;
    }
    if (text_equal(wish->approver, op->principal)) {
        rest_refuse(exchange, PROBLEM_FORBIDDEN, "who calls a tool does not decide on it");
        return;
    }
    if (until_ms > now_ms + settings->expires_ms)
        until_ms = now_ms + settings->expires_ms;
    struct link link = {op->tenant, op->id, wish->approver, true, until_ms};
    struct json_out out;
    char at[ENV_TIME_SIZE];
    json_out_init(&out, &exchange->answer);
    json_out_object(&out);
    json_out_member_text(&out, "approver", wish->approver);
    for (int approve = 1; approve >= 0; approve--) {
        link.approve = approve;
        json_out_member_text(&out, approve ? "approve" : "deny",
                             arena_printf(&exchange->arena, "%s%s%s", settings->base, LINKS_PATH,
                                          link_write(&exchange->arena, secret_of(exchange), &link)));
    }
    env_time_text(until_ms, at);
    json_out_member_text(&out, "expires_at", at);
    json_out_end_object(&out);
    exchange_send(exchange, 200);
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
    ask(exchange, request, give);
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

static bool open_link(struct exchange *exchange, struct link *link)
{
    if (exchange_parts(exchange)->links.base &&
        link_read(&exchange->arena, secret_of(exchange), exchange->params[0], exchange_now_ms(exchange), link))
        return true;
    begin_page(exchange, "This link is not valid");
    buf_add_text(&exchange->answer, "<p>It is over, or not complete. Nothing was changed.");
    exchange_send(exchange, 404);
    return false;
}

/* The text of a value, or "" */
static void preformatted(struct exchange *exchange, const char *title, struct str json_text)
{
    struct json *value;
    struct buf text;
    if (!json_text.p || json_parse(&exchange->arena, json_text, &json_limits_default, &value, NULL))
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

static void page_known(struct exchange *exchange, struct ledger_request *request)
{
    const struct link *link = exchange->user;
    const struct operation *op = request->code ? NULL : request->get.op;
    if (!op) {
        begin_page(exchange, "This is not known any more");
        exchange_send(exchange, request->code && request->code != ERR_NOT_FOUND ? 503 : 404);
        return;
    }
    const struct tool *tool = rest_tool(exchange, op->tool);
    bool open = op->state == STATE_PLANNED && approval_open_until(op) > 0;
    begin_page(exchange, !open ? "This has been decided" : link->approve ? "Approve?" : "Deny?");
    show_operation(exchange, op, tool);
    if (open) {
        line(exchange, "<form method=\"post\"><p>You decide as <b>", link->approver,
             "</b>. <label>Note <input name=\"note\" maxlength=\"500\"></label> ");
        line(exchange, "<button>", link->approve ? "Approve" : "Deny", "</button></form>");
    } else {
        line(exchange, "<p>", shape_message(op, tool), "</p>");
    }
    exchange_send(exchange, 200);
}

void rest_link_page(struct exchange *exchange)
{
    struct link *link = arena_zero(&exchange->arena, sizeof *link);
    if (!open_link(exchange, link))
        return;
    exchange->user = link;
    struct ledger_request *request = ask_new(exchange, LEDGER_GET);
    request->get.tenant = link->tenant;
    request->get.operation = link->operation;
    ask(exchange, request, page_known);
}

static void used(void *user, const struct engine_reply *reply)
{
    struct exchange *exchange = user;
    const struct link *link = exchange->user;
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

void rest_link_used(struct exchange *exchange)
{
    struct link *link = arena_zero(&exchange->arena, sizeof *link);
    if (!open_link(exchange, link))
        return;
    exchange->user = link;
    const char *note = note_of(exchange);
    const struct engine_decision decision = {
        .kind = link->approve ? DECISION_APPROVE : DECISION_DENY,
        .tenant = link->tenant,
        .operation = link->operation,
        .actor = link->approver,
        .note = note || link->approve ? note : "by link, without a note",
        .via = APPROVAL_VIA_LINK,
    };
    engine_decide(exchange->engine, &decision, used, exchange);
}
