/* The mail adapter without a wire: sections, messages, the dialogues of SMTP and IMAP. */
#include "support/sections.h"

#include "adapter/mail_imap.h"
#include "adapter/mail_parts.h"
#include "adapter/mail_text.h"
#include "base/mem.h"

#include <stdlib.h>

/* ---- a case: one provider, one tool, one call ---- */

#define OPERATION "op_01M8N7FXZ15E56XTVA8HVJEM36" /* 2026-11-30 03:20:35 UTC */
#define MARK      "<" OPERATION "@example.com>"

struct mail_case {
    struct arena arena;
    struct problems problems;
    struct provider core;
    struct tool tool;
    struct mail_provider *provider;
    struct mail_tool *mail;
    struct mail_message message;
    struct err err;
};

static void case_init(struct mail_case *c, enum tool_class class, const char *provider, const char *tool)
{
    *c = (struct mail_case){.tool = {.class = class, .provider = &c->core}};
    arena_init(&c->arena);
    problems_init(&c->problems, &c->arena);
    mail_message_init(&c->message);
    c->provider = mail_provider_new(parse(&c->arena, provider), "/providers/p", &c->core, &c->problems);
    if (c->provider)
        c->mail = mail_tool_new(parse(&c->arena, tool), "/tools/t", c->provider, &c->tool, &c->problems);
    c->tool.adapter_tool = c->mail;
}

static void case_release(struct mail_case *c)
{
    mail_message_release(&c->message);
    mail_tool_free(c->mail);
    mail_provider_free(c->provider);
    arena_release(&c->arena);
}

#define PROVIDER "{\"smtp\":{\"url\":\"smtp://127.0.0.1:25\",\"from\":\"Shop <shop@example.com>\"}}"
#define TOOL                                                                                                           \
    "{\"mail\":{\"to\":\"{to}\",\"cc\":\"{cc?}\",\"bcc\":[\"{bcc?}\",\"archive@example.com\"],\"subject\":\"{subject?" \
    "}\","                                                                                                             \
    "\"text\":\"{text?}\",\"html\":\"{html?}\",\"headers\":{\"X-Order\":\"{order?}\"}}}"

static enum err_code build(struct mail_case *c, const char *arguments)
{
    const struct adapter_call call = {.tool = &c->tool,
                                      .operation = OPERATION,
                                      .provider_key = OPERATION,
                                      .tenant = "default",
                                      .arguments = parse(&c->arena, arguments)};
    err_clear(&c->err);
    mail_message_release(&c->message);
    mail_message_init(&c->message);
    return mail_message_build(&c->message, &c->arena, c->mail, &call, &c->err);
}

/* ---- sections ---- */

static void refused(const char *provider, const char *tool, enum tool_class class, const char *pointer,
                    const char *words)
{
    struct mail_case c;
    case_init(&c, class, provider, tool);
    expect_problem(&c.problems, pointer, words);
    case_release(&c);
}

static void provider_sections(void **state)
{
    (void)state;
    refused("{\"smtp\":{\"url\":\"http://x\"}}", "{}", CLASS_EXTERNAL_WEAK, "/providers/p/smtp/url", "another scheme");
    refused("{\"smtp\":{\"url\":\"smtp://u:p@x\"}}", "{}", CLASS_EXTERNAL_WEAK, "/providers/p/smtp/url", "credentials");
    refused("{\"smtp\":{\"url\":\"smtp://x/y\"}}", "{}", CLASS_EXTERNAL_WEAK, "/providers/p/smtp/url", "path");
    refused("{\"smtp\":{\"url\":\"smtps://x\",\"tls\":\"none\"}}", "{}", CLASS_EXTERNAL_WEAK, "/providers/p/smtp/tls",
            "contradicts");
    refused("{\"smtp\":{\"url\":\"smtp://x\",\"username\":\"u\"}}", "{}", CLASS_EXTERNAL_WEAK,
            "/providers/p/smtp/username", "needs a password");
    refused("{\"smtp\":{\"url\":\"smtp://x\",\"tls\":\"opportunistic\",\"username\":\"u\",\"password\":\"p\"}}", "{}",
            CLASS_EXTERNAL_WEAK, "/providers/p/smtp/tls", "password and messages");
    refused("{\"smtp\":{\"url\":\"smtp://x\"},\"imap\":{\"url\":\"imap://x\",\"username\":\"u\",\"password\":\"p\","
            "\"folder\":\"Gesendet \xc3\xbc\"}}",
            "{}", CLASS_EXTERNAL_WEAK, "/providers/p/imap/folder", "ASCII");
    refused("{\"smtp\":{\"url\":\"smtp://x\",\"helo\":\"a b\"}}", "{}", CLASS_EXTERNAL_WEAK, "/providers/p/smtp/helo",
            "host name");
}

static void tool_sections(void **state)
{
    (void)state;
    refused(PROVIDER, "{\"mail\":{\"text\":\"x\"}}", CLASS_EXTERNAL_WEAK, "/tools/t/mail/to", "who gets");
    refused(PROVIDER, "{\"mail\":{\"to\":\"{to}\"}}", CLASS_EXTERNAL_WEAK, "/tools/t/mail/text", "no body");
    refused("{\"smtp\":{\"url\":\"smtp://x\"}}", TOOL, CLASS_EXTERNAL_WEAK, "/tools/t/mail/from", "missing");
    refused(PROVIDER, "{\"mail\":{\"to\":\"{to}\",\"text\":\"x\",\"headers\":{\"bcc\":\"{x}\"}}}", CLASS_EXTERNAL_WEAK,
            "/tools/t/mail/headers/bcc", "written by onced");
    refused(PROVIDER, "{\"mail\":{\"to\":\"{to}\",\"text\":\"x\",\"headers\":{\"A b\":\"{x}\"}}}", CLASS_EXTERNAL_WEAK,
            "/tools/t/mail/headers/A b", "header name");
    for (enum tool_class class = CLASS_READ; class <= CLASS_EXTERNAL_IDEMPOTENT; class ++)
        refused(PROVIDER, TOOL, class, "/tools/t/class", "external_weak or external_irreversible");
}

/* ---- messages ---- */

static void a_message(void **state)
{
    struct mail_case c;
    (void)state;
    case_init(&c, CLASS_EXTERNAL_WEAK, PROVIDER, TOOL);
    assert_non_null(c.mail);
    assert_int_equal(build(&c, "{\"to\":[\"Ada <ada@example.com>\",\"bob@example.com\"],\"cc\":\"BOB@example.com\","
                               "\"subject\":\"hello\",\"text\":\"one\\n.two\"}"),
                     ERR_NONE);
    assert_string_equal(c.message.message_id, MARK);
    assert_string_equal(c.message.data.p, "Date: Mon, 30 Nov 2026 03:20:35 +0000\r\n"
                                          "From: Shop <shop@example.com>\r\n"
                                          "To: Ada <ada@example.com>,\r\n bob@example.com\r\n"
                                          "Cc: BOB@example.com\r\n"
                                          "Subject: hello\r\n"
                                          "Message-ID: " MARK "\r\n"
                                          "MIME-Version: 1.0\r\n"
                                          "Content-Type: text/plain; charset=utf-8\r\n"
                                          "Content-Transfer-Encoding: 7bit\r\n\r\n"
                                          "one\r\n..two\r\n");
    assert_int_equal(c.message.mail.recipient_count, 3); /* Bob once, the archive without being named */
    assert_string_equal(c.message.mail.recipients[2], "archive@example.com");
    assert_string_equal(c.message.mail.from, "shop@example.com");
    case_release(&c);
}

static void the_same_on_every_attempt(void **state)
{
    struct mail_case c;
    (void)state;
    case_init(&c, CLASS_EXTERNAL_WEAK, PROVIDER, TOOL);
    const char *arguments = "{\"to\":\"ada@example.com\",\"text\":\"a\",\"html\":\"<p>\xc3\xa4</p>\"}";
    assert_int_equal(build(&c, arguments), ERR_NONE);
    char *first = mem_copy_text(c.message.data.p);
    assert_int_equal(build(&c, arguments), ERR_NONE);
    assert_string_equal(first, c.message.data.p);
    expect_in(first, "multipart/alternative; boundary=\"=_");
    expect_in(first, "<p>=C3=A4</p>\r\n");
    free(first);
    case_release(&c);
}

static void nothing_is_smuggled_in(void **state)
{
    static const char *const broken[][2] = {
        {"{\"to\":\"a@example.com\\r\\nBcc: eve@example.com\",\"text\":\"x\"}", "to: holds a line break"},
        {"{\"to\":\"a@example.com> NOTIFY=NEVER\",\"text\":\"x\"}", "host names do not have"},
        {"{\"to\":\"a@example.com, eve@example.com\",\"text\":\"x\"}", "expected one address"},
        {"{\"to\":\"Ada, Eve <a@example.com>\",\"text\":\"x\"}", "not quoted"},
        {"{\"to\":\"\",\"text\":\"x\"}", "no @"},
        {"{\"to\":{\"x\":1},\"text\":\"x\"}", "expected an address"},
        {"{\"to\":\"a@example.com\",\"text\":\"x\",\"subject\":\"a\\nb\"}", "subject holds a line break"},
        {"{\"to\":\"a@example.com\",\"text\":\"x\",\"order\":\"a\\r\\n\\r\\nbody\"}", "X-Order holds a line break"},
        {"{\"to\":\"a@example.com\",\"text\":\"x\",\"order\":\"a\\u0085b\"}", "X-Order holds"},
        {"{\"text\":\"x\"}", "to is missing"},
        {"{\"to\":\"a@example.com\"}", "no body"},
        {"{\"to\":\"a@-example.com\",\"text\":\"x\"}", "misplaced"},
        {"{\"to\":\"a..b@example.com\",\"text\":\"x\"}", "misplaced"},
        {"{\"to\":\"\\\"a b\\\"@example.com\",\"text\":\"x\"}", "before the @"},
    };
    struct mail_case c;
    (void)state;
    case_init(&c, CLASS_EXTERNAL_WEAK, PROVIDER, TOOL);
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        if (build(&c, broken[i][0]) != ERR_INVALID)
            fail_msg("%s was taken", broken[i][0]);
        expect_in(c.err.text, broken[i][1]);
    }
    case_release(&c);
}

static void check_lines(const char *data, size_t max)
{
    for (const char *at = data, *end; (end = strstr(at, "\r\n")); at = end + 2) {
        if ((size_t)(end - at) > max)
            fail_msg("a line of %zu bytes: %.200s", (size_t)(end - at), at);
        for (const char *p = at; p < end; p++)
            if ((*p < ' ' && *p != '\t') || (unsigned char)*p > '~')
                fail_msg("a byte %02x in %.100s", (unsigned char)*p, at);
    }
}

static void lines_stay_short_and_seven_bit(void **state)
{
    struct mail_case c;
    struct buf arguments;
    (void)state;
    case_init(&c, CLASS_EXTERNAL_WEAK, PROVIDER, TOOL);
    buf_init(&arguments, 0);
    for (unsigned n = 1; n < 300; n += 7) {
        buf_reset(&arguments);
        buf_add_text(&arguments, "{\"to\":\"a@example.com\",\"subject\":\"");
        for (unsigned i = 0; i < n; i++)
            buf_add_text(&arguments, i % 9 == 8 ? " " : i % 3 ? "x" : "\xf0\x9f\x98\x80");
        buf_add_text(&arguments, ".\",\"text\":\"");
        for (unsigned i = 0; i < n; i++)
            buf_add_text(&arguments, i % 11 == 10 ? ". " : i % 5 ? "=" : "\xc3\xbc");
        buf_add_text(&arguments, "\\n.\\nFrom x\"}");
        assert_int_equal(build(&c, arguments.p), ERR_NONE);
        check_lines(c.message.data.p, 78);
        assert_null(strstr(c.message.data.p, "\r\n.\r\n"));
    }
    buf_release(&arguments);
    case_release(&c);
}

/* ---- SMTP ---- */

struct talk {
    struct arena arena;
    struct smtp_mail mail;
    struct smtp_greeting greeting;
    struct smtp_dialogue dialogue;
    struct buf out;
};

static const char *const two[] = {"a@example.com", "b@example.com"};

static void talk_init(struct talk *talk)
{
    *talk = (struct talk){
        .mail = {.from = "s@example.com", .recipients = two, .recipient_count = 2, .data = STR("X: y\r\n\r\nz\r\n")}};
    arena_init(&talk->arena);
    buf_init(&talk->out, 0);
    smtp_greeting_line(&talk->greeting, STR("250-SIZE 1000\r\n"));
    smtp_start(&talk->dialogue, &talk->arena, &talk->mail, &talk->greeting, &talk->out);
}

static void talk_release(struct talk *talk)
{
    smtp_release(&talk->dialogue);
    buf_release(&talk->out);
    arena_release(&talk->arena);
}

/* What is said to the reply. */
static const char *told(struct talk *talk, const char *line)
{
    buf_reset(&talk->out);
    smtp_line(&talk->dialogue, str_of(line), false, &talk->out);
    return talk->out.p ? talk->out.p : "";
}

static void ends_as(struct talk *talk, enum outcome outcome, const char *words)
{
    assert_int_equal(talk->dialogue.step, SMTP_OVER);
    if (talk->dialogue.finding.outcome != outcome)
        fail_msg("expected %s, got %s (%s)", outcome_name(outcome), outcome_name(talk->dialogue.finding.outcome),
                 talk->dialogue.finding.text);
    expect_in(talk->dialogue.finding.text, words);
}

static void up_to(struct talk *talk, enum smtp_step step)
{
    talk_init(talk);
    if (step > SMTP_MAIL)
        told(talk, "250 ok");
    if (step > SMTP_RCPT)
        told(talk, "250 ok"), told(talk, "250 ok");
    if (step > SMTP_DATA)
        told(talk, "354 go");
    if (step > SMTP_MESSAGE) {
        buf_reset(&talk->out);
        smtp_written(&talk->dialogue, &talk->out);
    }
    assert_int_equal(talk->dialogue.step, step);
}

static void smtp_to_the_end(void **state)
{
    struct talk talk;
    (void)state;
    talk_init(&talk);
    assert_string_equal(talk.out.p, "MAIL FROM:<s@example.com> SIZE=11\r\n");
    assert_string_equal(told(&talk, "250-fine"), "");
    assert_string_equal(told(&talk, "250 really"), "RCPT TO:<a@example.com>\r\n");
    assert_string_equal(told(&talk, "250"), "RCPT TO:<b@example.com>\r\n");
    assert_string_equal(told(&talk, "251 forwarded"), "DATA\r\n");
    assert_string_equal(told(&talk, "354 go"), "X: y\r\n\r\nz\r\n");
    assert_false(talk.dialogue.end_sent);
    buf_reset(&talk.out);
    smtp_written(&talk.dialogue, &talk.out);
    assert_string_equal(talk.out.p, ".\r\n");
    assert_true(talk.dialogue.end_sent);
    told(&talk, "250 2.0.0 taken as 17");
    ends_as(&talk, OUTCOME_SUCCESS, "250 2.0.0 taken as 17");
    talk_release(&talk);
}

static void smtp_refusals(void **state)
{
    struct talk talk;
    (void)state;
    for (enum smtp_step step = SMTP_MAIL; step <= SMTP_END; step++) {
        if (step == SMTP_RCPT)
            continue;
        up_to(&talk, step);
        told(&talk, "451 later");
        ends_as(&talk, OUTCOME_NOT_PROCESSED, "451 later");
        talk_release(&talk);
        up_to(&talk, step);
        told(&talk, "550 5.7.1 never");
        ends_as(&talk, OUTCOME_REFUSED, "550 5.7.1 never");
        talk_release(&talk);
    }
}

static void smtp_all_recipients_or_none(void **state)
{
    struct talk talk;
    (void)state;
    up_to(&talk, SMTP_RCPT);
    assert_string_equal(told(&talk, "450 later"), "RCPT TO:<b@example.com>\r\n");
    assert_string_equal(told(&talk, "250 ok"), "");
    ends_as(&talk, OUTCOME_NOT_PROCESSED, "a@example.com: 450 later");
    talk_release(&talk);
    up_to(&talk, SMTP_RCPT);
    told(&talk, "550 who?");
    told(&talk, "450 later");
    ends_as(&talk, OUTCOME_REFUSED, "a@example.com: 550 who?; b@example.com: 450 later");
    talk_release(&talk);
    up_to(&talk, SMTP_RCPT);
    assert_string_equal(told(&talk, "421 leaving"), "");
    ends_as(&talk, OUTCOME_NOT_PROCESSED, "421 leaving");
    talk_release(&talk);
}

static void smtp_breaks(void **state)
{
    static const enum outcome at_end[] = {OUTCOME_CONNECTION_LOST, OUTCOME_TIMEOUT, OUTCOME_UNREADABLE};
    struct talk talk;
    (void)state;
    for (enum smtp_step step = SMTP_MAIL; step <= SMTP_END; step++)
        for (enum smtp_break how = SMTP_LOST; how <= SMTP_UNREADABLE; how++) {
            up_to(&talk, step);
            smtp_broken(&talk.dialogue, how, "it broke");
            ends_as(&talk, step == SMTP_END ? at_end[how] : OUTCOME_NOT_PROCESSED, "it broke");
            talk_release(&talk);
        }
}

static void smtp_surprises(void **state)
{
    struct talk talk;
    (void)state;
    up_to(&talk, SMTP_DATA);
    told(&talk, "250 already?");
    ends_as(&talk, OUTCOME_PROVIDER_ERROR, "250 already?");
    talk_release(&talk);
    up_to(&talk, SMTP_MESSAGE); /* an early answer is not the answer to the end */
    told(&talk, "250 already?");
    ends_as(&talk, OUTCOME_PROVIDER_ERROR, "250 already?");
    talk_release(&talk);
    up_to(&talk, SMTP_END);
    told(&talk, "hello");
    ends_as(&talk, OUTCOME_UNREADABLE, "not SMTP");
    talk_release(&talk);
    up_to(&talk, SMTP_END);
    told(&talk, "250-one");
    told(&talk, "251 two");
    ends_as(&talk, OUTCOME_UNREADABLE, "not SMTP");
    talk_release(&talk);
    up_to(&talk, SMTP_END);
    told(&talk, "354 more?");
    ends_as(&talk, OUTCOME_PROVIDER_ERROR, "354");
    talk_release(&talk);
    up_to(&talk, SMTP_MAIL); /* the next answer is there before the question */
    buf_reset(&talk.out);
    smtp_line(&talk.dialogue, STR("250 ok"), true, &talk.out);
    ends_as(&talk, OUTCOME_NOT_PROCESSED, "before it was asked");
    talk_release(&talk);
    up_to(&talk, SMTP_MAIL);
    for (unsigned i = 0; i <= SMTP_LINES_MAX; i++)
        told(&talk, "250-and");
    ends_as(&talk, OUTCOME_NOT_PROCESSED, "does not end");
    talk_release(&talk);
}

static void smtp_addresses_beyond_ascii(void **state)
{
    struct talk talk;
    (void)state;
    talk_init(&talk);
    smtp_release(&talk.dialogue);
    talk.mail.utf8 = true;
    buf_reset(&talk.out);
    smtp_start(&talk.dialogue, &talk.arena, &talk.mail, &talk.greeting, &talk.out);
    ends_as(&talk, OUTCOME_REFUSED, "SMTPUTF8");
    smtp_release(&talk.dialogue);
    smtp_greeting_line(&talk.greeting, STR("250 SMTPUTF8\r\n"));
    smtp_start(&talk.dialogue, &talk.arena, &talk.mail, &talk.greeting, &talk.out);
    assert_string_equal(talk.out.p, "MAIL FROM:<s@example.com> SIZE=11 SMTPUTF8 BODY=8BITMIME\r\n");
    smtp_greeting_line(&talk.greeting, STR("220 go ahead with TLS\r\n")); /* what was said in the clear is forgotten */
    assert_false(talk.greeting.utf8 || talk.greeting.size || talk.greeting.authenticated);
    talk_release(&talk);
}

/* ---- IMAP ---- */

#define HELLO  "* 3 EXISTS\r\n* OK [UIDVALIDITY 1] fine\r\no1 OK [READ-ONLY] selected\r\n"
#define HEADER "Message-ID: " MARK "\r\n\r\n"

static struct imap_finding look_up(struct arena *arena, const char *text, size_t piece, struct buf *out)
{
    struct imap_dialogue dialogue;
    size_t n = strlen(text);
    buf_init(out, 0);
    imap_start(&dialogue, arena, "All \"mail\"", MARK, out);
    for (size_t at = 0; at < n; at += piece)
        imap_take(&dialogue, (struct str){text + at, n - at < piece ? n - at : piece}, out);
    imap_broken(&dialogue, "the connection was closed");
    struct imap_finding finding = dialogue.finding;
    imap_release(&dialogue);
    return finding;
}

static void finds(const char *text, enum outcome outcome, unsigned matches)
{
    struct arena arena;
    struct buf out;
    arena_init(&arena);
    for (size_t piece = 1; piece < 200; piece += 13) {
        struct imap_finding finding = look_up(&arena, text, piece, &out);
        if (finding.outcome != outcome || finding.matches != matches)
            fail_msg("%s in pieces of %zu: %s, %u matches (%s)", text, piece, outcome_name(finding.outcome),
                     finding.matches, finding.text ? finding.text : "");
        buf_release(&out);
    }
    arena_release(&arena);
}

static char *fetched(struct arena *arena, unsigned uid, const char *header)
{
    return arena_printf(arena, "* %u FETCH (UID %u BODY[HEADER.FIELDS (Message-ID)] {%zu}\r\n%s)\r\n", uid, uid,
                        strlen(header), header);
}

static void imap_commands(void **state)
{
    struct arena arena;
    struct buf out;
    (void)state;
    arena_init(&arena);
    look_up(&arena, HELLO "* SEARCH 4 17\r\no2 OK\r\n", 1000, &out);
    assert_string_equal(out.p, "o1 EXAMINE \"All \\\"mail\\\"\"\r\n"
                               "o2 UID SEARCH HEADER Message-ID \"" MARK "\"\r\n"
                               "o3 UID FETCH 4,17 (UID BODY.PEEK[HEADER.FIELDS (Message-ID)])\r\n");
    buf_release(&out);
    arena_release(&arena);
}

static void imap_answers(void **state)
{
    struct arena arena;
    (void)state;
    arena_init(&arena);
    const char *one = fetched(&arena, 4, HEADER),
               *other = fetched(&arena, 4, "Message-ID: <x" OPERATION "@example.com>\r\n\r\n");
    finds(HELLO "* SEARCH\r\no2 OK done\r\n", OUTCOME_ABSENT, 0);
    finds(arena_printf(&arena, HELLO "* SEARCH 4\r\no2 OK\r\n%so3 OK\r\n", one), OUTCOME_FOUND, 1);
    finds(arena_printf(&arena, HELLO "* SEARCH 4\r\no2 OK\r\n%so3 OK\r\n", other), OUTCOME_ABSENT, 0);
    finds(arena_printf(&arena, HELLO "* SEARCH 4 5\r\no2 OK\r\n%s* 9 EXISTS\r\n%so3 OK\r\n", one,
                       fetched(&arena, 5, HEADER)),
          OUTCOME_SEVERAL, 2);
    finds(arena_printf(&arena, HELLO "* SEARCH 4 5\r\no2 OK\r\n%s%so3 OK\r\n", one, one), OUTCOME_CANNOT_TELL, 1);
    finds(arena_printf(&arena, HELLO "* SEARCH 4\r\no2 OK\r\n* 4 FETCH (FLAGS (\\Seen))\r\n%so3 OK\r\n", one),
          OUTCOME_FOUND, 1);
    finds(HELLO "* SEARCH 4\r\no2 OK\r\n* 4 FETCH (BODY[HEADER.FIELDS (Message-ID)] \"Message-ID: " MARK
                "\" UID 4)\r\no3 OK\r\n",
          OUTCOME_FOUND, 1);
    arena_release(&arena);
}

static void imap_cannot_tell(void **state)
{
    static const char *const texts[] = {
        "",
        "o1 NO no such folder\r\n",
        "* BYE\r\n",
        HELLO "o2 OK done\r\n", /* nothing was said about what was found */
        HELLO "* SEARCH\r\n",
        HELLO "* SEARCH 4x\r\no2 OK\r\n",
        HELLO "* SEARCH 99999999999\r\no2 OK\r\n",
        HELLO "* SEARCH 0\r\no2 OK\r\n",
        HELLO "o2 BAD what?\r\n",
        HELLO "* SEARCH 4\r\no2 OK\r\no3 OK\r\n", /* it went meanwhile */
        HELLO "* SEARCH 4\r\no2 OK\r\n* 4 FETCH (UID 4 BODY[HEADER.FIELDS (Message-ID)] {99}\r\nshort",
        HELLO "* SEARCH 4\r\no2 OK\r\n* 4 FETCH (UID 4 BODY[\r\no3 OK\r\n",
        "+ go on\r\n",
        "HTTP/1.1 400 Bad Request\r\n",
    };
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        finds(texts[i], OUTCOME_CANNOT_TELL, 0);
}

static void imap_limits(void **state)
{
    struct buf text;
    (void)state;
    buf_init(&text, 0);
    buf_add_text(&text, "* ");
    for (size_t i = 0; i < IMAP_RESPONSE_BYTES_MAX; i++)
        buf_add_char(&text, 'x');
    finds(text.p, OUTCOME_CANNOT_TELL, 0);
    buf_reset(&text);
    buf_add_text(&text, HELLO "* SEARCH");
    for (unsigned i = 1; i <= IMAP_MATCHES_MAX + 1; i++)
        buf_printf(&text, " %u", i);
    buf_add_text(&text, "\r\no2 OK\r\n");
    finds(text.p, OUTCOME_CANNOT_TELL, 0);
    buf_release(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(provider_sections),
        cmocka_unit_test(tool_sections),
        cmocka_unit_test(a_message),
        cmocka_unit_test(the_same_on_every_attempt),
        cmocka_unit_test(nothing_is_smuggled_in),
        cmocka_unit_test(lines_stay_short_and_seven_bit),
        cmocka_unit_test(smtp_to_the_end),
        cmocka_unit_test(smtp_refusals),
        cmocka_unit_test(smtp_all_recipients_or_none),
        cmocka_unit_test(smtp_breaks),
        cmocka_unit_test(smtp_surprises),
        cmocka_unit_test(smtp_addresses_beyond_ascii),
        cmocka_unit_test(imap_commands),
        cmocka_unit_test(imap_answers),
        cmocka_unit_test(imap_cannot_tell),
        cmocka_unit_test(imap_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
