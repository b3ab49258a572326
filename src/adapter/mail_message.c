/* A call's message: addresses, headers, body, and its id. */
#include "adapter/mail_parts.h"

#include "adapter/mail_text.h"
#include "base/digest.h"
#include "base/env.h"
#include "base/ulid.h"

#include <strings.h>

#define VALUE_BYTES_MAX 4000 /* of one header */

void mail_message_init(struct mail_message *message)
{
    *message = (struct mail_message){0};
    buf_init(&message->data, MAIL_BYTES_MAX);
}

void mail_message_release(struct mail_message *message)
{
    buf_release(&message->data);
}

/* ---- values ---- */

/* Absent for a place that may be left out, and for what is not stated. */
static enum err_code fill_text(struct http_fill *fill, const struct http_node *node, const char *name, struct str *out)
{
    struct json value = {.type = JSON_NULL};
    bool left_out = false;
    *out = STR_NONE;
    enum err_code code = http_fill_node(fill, node, &value, &left_out);
    if (code != ERR_NONE) {
        err_prefix(fill->err, "%s: ", name);
        return code;
    }
    if (left_out || value.type == JSON_NULL)
        return ERR_NONE;
    if (value.type != JSON_STRING && value.type != JSON_NUMBER)
        return err_set(fill->err, ERR_INVALID, "%s is %s, expected a text", name, json_type_name(value.type));
    *out = value.text.p ? value.text : STR("");
    return ERR_NONE;
}

static enum err_code fill_value(struct http_fill *fill, const struct http_node *node, const char *name, struct str *out)
{
    enum err_code code = fill_text(fill, node, name, out);
    if (code == ERR_NONE && out->n > VALUE_BYTES_MAX)
        code = err_set(fill->err, ERR_INVALID, "%s is longer than %d bytes", name, VALUE_BYTES_MAX);
    if (code == ERR_NONE && !mail_value_valid(*out))
        code = err_set(fill->err, ERR_INVALID,
                       "%s holds a line break or another control character, which a mail header cannot have", name);
    return code;
}

/* Texts of a value that is a text or a list of them, lists within lists included ("[\"{to}\", \"archive@…\"]"). */
static enum err_code collect(struct http_fill *fill, const struct json *value, const char *name, unsigned depth,
                             struct mail_address *out, size_t *count)
{
    if (value->type == JSON_NULL)
        return ERR_NONE;
    if (value->type == JSON_STRING) {
        if (*count == MAIL_RECIPIENTS_MAX)
            return err_set(fill->err, ERR_INVALID, "%s has more than %d addresses", name, MAIL_RECIPIENTS_MAX);
        enum err_code code = mail_address_read(fill->arena, value->text, &out[(*count)++], fill->err);
        if (code != ERR_NONE)
            err_prefix(fill->err, "%s: ", name);
        return code;
    }
    if (value->type != JSON_ARRAY || depth > 1)
        return err_set(fill->err, ERR_INVALID, "%s is %s, expected an address or a list of addresses", name,
                       json_type_name(value->type));
    enum err_code code = ERR_NONE;
    for (uint32_t i = 0; i < value->count && code == ERR_NONE; i++)
        code = collect(fill, &value->items[i], name, depth + 1, out, count);
    return code;
}

static enum err_code fill_addresses(struct http_fill *fill, const struct http_node *node, const char *name,
                                    struct mail_address **out, size_t *count)
{
    struct json value = {.type = JSON_NULL};
    bool left_out = false;
    *count = 0;
    *out = arena_zero(fill->arena, sizeof **out * MAIL_RECIPIENTS_MAX);
    enum err_code code = http_fill_node(fill, node, &value, &left_out);
    if (code != ERR_NONE)
        err_prefix(fill->err, "%s: ", name);
    return code == ERR_NONE && !left_out ? collect(fill, &value, name, 0, *out, count) : code;
}

/* ---- sender, id ---- */

static enum err_code fill_from(struct http_fill *fill, const struct mail_tool *tool, struct mail_address *out)
{
    struct str text = STR_NONE;
    enum err_code code = fill_text(fill, &tool->from, "from", &text);
    if (code == ERR_NONE && !text.p)
        text = str_of(tool->provider->from);
    if (code == ERR_NONE && !text.p)
        code = err_set(fill->err, ERR_INVALID, "from is missing");
    if (code == ERR_NONE && (code = mail_address_read(fill->arena, text, out, fill->err)) != ERR_NONE)
        err_prefix(fill->err, "from: ");
    return code;
}

static bool is_ascii(const char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text >= 0x80)
            return false;
    return true;
}

static enum err_code make_id(struct http_fill *fill, const struct mail_tool *tool, const struct mail_address *from,
                             const char *key, const char **out)
{
    const char *host = tool->provider->message_id_host ? tool->provider->message_id_host : from->domain;
    if (!is_ascii(host))
        return err_set(fill->err, ERR_INVALID,
                       "the sender's domain is not ASCII, so the provider must say smtp.message_id_host");
    *out = arena_printf(fill->arena, "<%s@%s>", key && *key ? key : "not-known-yet", host);
    return ERR_NONE;
}

enum err_code mail_message_id(struct arena *arena, const struct mail_tool *tool, const struct adapter_call *call,
                              const char **out, struct err *err)
{
    struct http_fill fill;
    struct mail_address from;
    struct buf scratch;
    buf_init(&scratch, 0);
    http_fill_init(&fill, arena, call, &scratch, err);
    enum err_code code = fill_from(&fill, tool, &from);
    if (code == ERR_NONE)
        code = make_id(&fill, tool, &from, call->provider_key, out);
    buf_release(&scratch);
    return code;
}

/* ---- message ---- */

struct draft {
    struct mail_address from, *to, *cc, *bcc, *reply_to;
    size_t to_count, cc_count, bcc_count, reply_to_count;
    struct str subject, text, html;
};

static enum err_code fill_draft(struct http_fill *fill, const struct mail_tool *tool, struct draft *draft)
{
    enum err_code code = fill_from(fill, tool, &draft->from);
    if (code == ERR_NONE)
        code = fill_addresses(fill, &tool->to, "to", &draft->to, &draft->to_count);
    if (code == ERR_NONE)
        code = fill_addresses(fill, &tool->cc, "cc", &draft->cc, &draft->cc_count);
    if (code == ERR_NONE)
        code = fill_addresses(fill, &tool->bcc, "bcc", &draft->bcc, &draft->bcc_count);
    if (code == ERR_NONE)
        code = fill_addresses(fill, &tool->reply_to, "reply_to", &draft->reply_to, &draft->reply_to_count);
    if (code == ERR_NONE)
        code = fill_value(fill, &tool->subject, "subject", &draft->subject);
    if (code == ERR_NONE)
        code = fill_text(fill, &tool->text, "text", &draft->text);
    if (code == ERR_NONE)
        code = fill_text(fill, &tool->html, "html", &draft->html);
    if (code == ERR_NONE && !draft->text.p && !draft->html.p)
        code = err_set(fill->err, ERR_INVALID, "text is missing: the message has no body");
    return code;
}

static bool knows(const struct smtp_mail *mail, const char *address)
{
    for (size_t i = 0; i < mail->recipient_count; i++)
        if (strcasecmp(mail->recipients[i], address) == 0)
            return true;
    return false;
}

/* Who is named twice gets one message. */
static void add_recipients(struct smtp_mail *mail, const char **list, const struct mail_address *addresses,
                           size_t count)
{
    for (size_t i = 0; i < count; i++) {
        mail->utf8 = mail->utf8 || addresses[i].utf8;
        if (!knows(mail, addresses[i].address))
            list[mail->recipient_count++] = addresses[i].address;
    }
}

static enum err_code make_envelope(struct http_fill *fill, const struct draft *draft, struct smtp_mail *mail)
{
    const char **list = arena_alloc(fill->arena, sizeof *list * 3 * MAIL_RECIPIENTS_MAX);
    *mail = (struct smtp_mail){.from = draft->from.address, .recipients = list, .utf8 = draft->from.utf8};
    add_recipients(mail, list, draft->to, draft->to_count);
    add_recipients(mail, list, draft->cc, draft->cc_count);
    add_recipients(mail, list, draft->bcc, draft->bcc_count);
    for (size_t i = 0; i < draft->reply_to_count; i++)
        mail->utf8 = mail->utf8 || draft->reply_to[i].utf8;
    if (mail->recipient_count == 0)
        return err_set(fill->err, ERR_INVALID, "to, cc and bcc name nobody");
    if (mail->recipient_count > MAIL_RECIPIENTS_MAX)
        return err_set(fill->err, ERR_INVALID, "to, cc and bcc together name more than %d recipients",
                       MAIL_RECIPIENTS_MAX);
    return ERR_NONE;
}

static enum err_code add_header(struct http_fill *fill, const struct http_header *header, struct buf *out)
{
    const struct http_node node = {.type = JSON_STRING, .text = header->text};
    struct str value;
    enum err_code code = fill_value(fill, &node, header->name, &value);
    if (code == ERR_NONE && value.n > 0)
        mail_header_text(out, header->name, value);
    return code;
}

/* The moment of the operation's admission: the same on every attempt. */
static const char *date_of(struct arena *arena, const struct adapter_call *call)
{
    bool known = call->operation && operation_id_valid(call->operation);
    return mail_date(arena, known ? ulid_time_ms(call->operation + 3) : env_system()->now_ms(env_system()));
}

static enum err_code add_headers(struct http_fill *fill, const struct mail_tool *tool, const struct draft *draft,
                                 const char *message_id, const char *date, struct buf *out)
{
    enum err_code code = ERR_NONE;
    mail_header_text(out, "Date", str_of(date));
    mail_header_addresses(out, "From", &draft->from, 1);
    if (draft->to_count > 0)
        mail_header_addresses(out, "To", draft->to, draft->to_count);
    else if (draft->cc_count == 0)
        buf_add_text(out, "To: undisclosed-recipients:;\r\n");
    if (draft->cc_count > 0)
        mail_header_addresses(out, "Cc", draft->cc, draft->cc_count);
    if (draft->reply_to_count > 0)
        mail_header_addresses(out, "Reply-To", draft->reply_to, draft->reply_to_count);
    if (draft->subject.n > 0)
        mail_header_text(out, "Subject", draft->subject);
    buf_printf(out, "Message-ID: %s\r\nMIME-Version: 1.0\r\n", message_id);
    for (size_t i = 0; i < tool->headers.count && code == ERR_NONE; i++)
        code = add_header(fill, &tool->headers.items[i], out);
    return code;
}

/* Text and HTML are two forms of one content. The boundary cannot be in either: it depends on both. */
static void add_body(const struct draft *draft, const char *message_id, struct buf *out)
{
    const struct str parts[] = {str_of(message_id), draft->text, draft->html};
    struct digest digest = digest_parts(parts, 3);
    char boundary[2 * DIGEST_BYTES + 1];
    if (!draft->html.p || !draft->text.p) {
        mail_part(out, draft->html.p ? "html" : "plain", draft->html.p ? draft->html : draft->text);
        return;
    }
    digest_hex(&digest, 16, boundary);
    buf_printf(out, "Content-Type: multipart/alternative; boundary=\"=_%s\"\r\n\r\n--=_%s\r\n", boundary, boundary);
    mail_part(out, "plain", draft->text);
    buf_printf(out, "\r\n--=_%s\r\n", boundary);
    mail_part(out, "html", draft->html);
    buf_printf(out, "\r\n--=_%s--\r\n", boundary);
}

static enum err_code build(struct mail_message *message, struct http_fill *fill, const struct mail_tool *tool,
                           const struct adapter_call *call, struct buf *lines)
{
    struct draft draft = {0};
    enum err_code code = fill_draft(fill, tool, &draft);
    if (code == ERR_NONE)
        code = make_envelope(fill, &draft, &message->mail);
    if (code == ERR_NONE)
        code = make_id(fill, tool, &draft.from, call->provider_key, &message->message_id);
    if (code == ERR_NONE)
        code = add_headers(fill, tool, &draft, message->message_id, date_of(fill->arena, call), lines);
    if (code != ERR_NONE)
        return code;
    add_body(&draft, message->message_id, lines);
    mail_stuff_dots(&message->data, buf_str(lines));
    if (lines->over || message->data.over)
        return err_set(fill->err, ERR_LIMIT, "the message is larger than %d bytes", MAIL_BYTES_MAX);
    message->mail.data = buf_str(&message->data);
    return ERR_NONE;
}

enum err_code mail_message_build(struct mail_message *message, struct arena *arena, const struct mail_tool *tool,
                                 const struct adapter_call *call, struct err *err)
{
    struct http_fill fill;
    struct buf scratch, lines;
    buf_init(&scratch, 0);
    buf_init(&lines, MAIL_BYTES_MAX);
    http_fill_init(&fill, arena, call, &scratch, err);
    enum err_code code = build(message, &fill, tool, call, &lines);
    buf_release(&scratch);
    buf_release(&lines);
    return code;
}

/* ---- for people ---- */

static enum err_code describe_node(struct http_fill *fill, const struct http_node *node, const char *name,
                                   struct json_out *out)
{
    struct json value = {.type = JSON_NULL};
    bool left_out = false;
    enum err_code code = http_fill_node(fill, node, &value, &left_out);
    if (code == ERR_NONE && !left_out && value.type != JSON_NULL) {
        json_out_name(out, name);
        json_out_value(out, &value);
    }
    return code;
}

static enum err_code describe_headers(struct http_fill *fill, const struct mail_tool *tool, const char *message_id,
                                      struct json_out *out)
{
    const struct {
        const char *name;
        const struct http_node *node;
    } parts[] = {{"From", &tool->from},         {"To", &tool->to},          {"Cc", &tool->cc}, {"Bcc", &tool->bcc},
                 {"Reply-To", &tool->reply_to}, {"Subject", &tool->subject}};
    enum err_code code = ERR_NONE;
    json_out_name(out, "headers");
    json_out_object(out);
    if (tool->from.type == JSON_NULL)
        json_out_member_text(out, "From", tool->provider->from);
    for (size_t i = 0; i < sizeof parts / sizeof *parts && code == ERR_NONE; i++)
        code = describe_node(fill, parts[i].node, parts[i].name, out);
    json_out_member_text(out, "Message-ID", message_id);
    for (size_t i = 0; i < tool->headers.count && code == ERR_NONE; i++) {
        const struct http_node node = {.type = JSON_STRING, .text = tool->headers.items[i].text};
        code = describe_node(fill, &node, tool->headers.items[i].name, out);
    }
    json_out_end_object(out);
    return code;
}

static enum err_code describe(struct http_fill *fill, const struct mail_tool *tool, const char *message_id,
                              struct json_out *out)
{
    json_out_object(out);
    json_out_member_text(out, "method", "MAIL");
    json_out_member_text(out, "url", tool->provider->url_shown);
    enum err_code code = describe_headers(fill, tool, message_id, out);
    json_out_name(out, "body");
    json_out_object(out);
    if (code == ERR_NONE)
        code = describe_node(fill, &tool->text, "text", out);
    if (code == ERR_NONE)
        code = describe_node(fill, &tool->html, "html", out);
    json_out_end_object(out);
    json_out_end_object(out);
    return code;
}

enum err_code mail_message_describe(const struct mail_tool *tool, const struct adapter_call *call, struct json_out *out,
                                    struct err *err)
{
    struct arena arena;
    struct mail_message message;
    struct http_fill fill;
    struct buf scratch;
    arena_init(&arena);
    mail_message_init(&message);
    buf_init(&scratch, 0);
    enum err_code code = mail_message_build(&message, &arena, tool, call, err);
    if (code == ERR_NONE) {
        http_fill_init(&fill, &arena, call, &scratch, err);
        http_fill_mask(&fill, tool->redact, tool->redact_count);
        code = describe(&fill, tool, message.message_id, out);
    }
    buf_release(&scratch);
    mail_message_release(&message);
    arena_release(&arena);
    return code;
}
