#include "adapter/mail_smtp.h"

#include <assert.h>
#include <strings.h>

void smtp_clean(struct str text, char out[SMTP_TEXT_BYTES_MAX + 1])
{
    size_t n = text.n < SMTP_TEXT_BYTES_MAX ? text.n : SMTP_TEXT_BYTES_MAX;
    for (size_t i = 0; i < n; i++)
        out[i] = (unsigned char)text.p[i] < ' ' || (unsigned char)text.p[i] > '~' ? '?' : text.p[i];
    out[n] = '\0';
}

/* "250-SIZE 1000" or "250 ok": the code, whether the reply goes on, the text. */
static bool read_line(struct str line, int *code, bool *more, struct str *text)
{
    if (line.n < 3 || line.p[0] < '2' || line.p[0] > '5')
        return false;
    for (size_t i = 0; i < 3; i++)
        if (line.p[i] < '0' || line.p[i] > '9')
            return false;
    if (line.n > 3 && line.p[3] != ' ' && line.p[3] != '-')
        return false;
    *code = (line.p[0] - '0') * 100 + (line.p[1] - '0') * 10 + (line.p[2] - '0');
    *more = line.n > 3 && line.p[3] == '-';
    *text = line.n > 4 ? (struct str){line.p + 4, line.n - 4} : STR("");
    return true;
}

/* ---- greeting ---- */

static bool is_keyword(struct str text, const char *keyword)
{
    size_t n = strlen(keyword);
    return text.n >= n && strncasecmp(text.p, keyword, n) == 0 && (text.n == n || text.p[n] == ' ');
}

void smtp_greeting_line(struct smtp_greeting *greeting, struct str line)
{
    struct str text;
    bool more;
    int code;
    while (line.n > 0 && (line.p[line.n - 1] == '\n' || line.p[line.n - 1] == '\r'))
        line.n--;
    if (!read_line(line, &code, &more, &text))
        return;
    greeting->code = code;
    smtp_clean(line, greeting->text);
    if (code == 220) /* the greeting, and the answer to STARTTLS: what was said before it does not count */
        greeting->utf8 = greeting->size = greeting->authenticated = false;
    greeting->authenticated = greeting->authenticated || code == 235;
    if (code == 250) {
        greeting->utf8 = greeting->utf8 || is_keyword(text, "SMTPUTF8");
        greeting->size = greeting->size || is_keyword(text, "SIZE");
    }
}

/* ---- ends ---- */

static void end(struct smtp_dialogue *dialogue, enum outcome outcome, int code, const char *text)
{
    dialogue->step = SMTP_OVER;
    dialogue->finding = (struct smtp_finding){outcome, code, arena_copy_text(dialogue->arena, text)};
}

static const char *step_name(enum smtp_step step)
{
    switch (step) {
    case SMTP_MAIL: return "MAIL";
    case SMTP_RCPT: return "RCPT";
    case SMTP_DATA: return "DATA";
    case SMTP_MESSAGE: return "the message";
    case SMTP_END:
    case SMTP_OVER: return "the end of the message";
    }
    return "";
}

static const char *reply_text(const struct smtp_dialogue *dialogue)
{
    char clean[SMTP_TEXT_BYTES_MAX + 1];
    smtp_clean(buf_str(&dialogue->text), clean);
    return arena_printf(dialogue->arena, "%d%s%s", dialogue->code, *clean ? " " : "", clean);
}

/* 4xx: not now; 5xx: not this way. Both say that the server has not taken the message. */
static void refuse(struct smtp_dialogue *dialogue)
{
    enum outcome outcome = dialogue->code < 500 ? OUTCOME_NOT_PROCESSED : OUTCOME_REFUSED;
    end(dialogue, outcome, dialogue->code,
        arena_printf(dialogue->arena, "the server answered %s with %s", step_name(dialogue->step),
                     reply_text(dialogue)));
}

/* An answer that fits no step. The final dot was not sent, yet who breaks the protocol may take half a message. */
static void surprise(struct smtp_dialogue *dialogue)
{
    end(dialogue, OUTCOME_PROVIDER_ERROR, dialogue->code,
        arena_printf(dialogue->arena, "the server answered %s with %s", step_name(dialogue->step),
                     reply_text(dialogue)));
}

void smtp_broken(struct smtp_dialogue *dialogue, enum smtp_break how, const char *why)
{
    static const enum outcome outcomes[] = {OUTCOME_CONNECTION_LOST, OUTCOME_TIMEOUT, OUTCOME_UNREADABLE};
    if (dialogue->step == SMTP_OVER)
        return;
    enum outcome outcome = dialogue->end_sent ? outcomes[how] : OUTCOME_NOT_PROCESSED;
    end(dialogue, outcome, 0,
        arena_printf(dialogue->arena, "%s at %s%s", why, step_name(dialogue->step),
                     dialogue->end_sent ? "" : "; the message was not completed, so nothing was sent"));
}

/* ---- steps ---- */

static void ask_recipient(struct smtp_dialogue *dialogue, struct buf *out)
{
    dialogue->step = SMTP_RCPT;
    buf_printf(out, "RCPT TO:<%s>\r\n", dialogue->mail->recipients[dialogue->recipient]);
}

void smtp_start(struct smtp_dialogue *dialogue, struct arena *arena, const struct smtp_mail *mail,
                const struct smtp_greeting *greeting, struct buf *out)
{
    assert(mail->recipient_count > 0);
    *dialogue = (struct smtp_dialogue){.arena = arena, .mail = mail, .step = SMTP_MAIL};
    buf_init(&dialogue->text, SMTP_TEXT_BYTES_MAX);
    buf_init(&dialogue->refused, 4 * SMTP_TEXT_BYTES_MAX);
    if (mail->utf8 && !greeting->utf8) {
        end(dialogue, OUTCOME_REFUSED, 0,
            "the server does not take addresses beyond ASCII (it does not offer SMTPUTF8); nothing was sent");
        return;
    }
    buf_printf(out, "MAIL FROM:<%s>", mail->from);
    if (greeting->size)
        buf_printf(out, " SIZE=%zu", mail->data.n);
    buf_add_text(out, mail->utf8 ? " SMTPUTF8 BODY=8BITMIME\r\n" : "\r\n");
}

void smtp_release(struct smtp_dialogue *dialogue)
{
    buf_release(&dialogue->text);
    buf_release(&dialogue->refused);
}

static void refuse_recipient(struct smtp_dialogue *dialogue)
{
    buf_printf(&dialogue->refused, "%s%s: %s", dialogue->refused.n ? "; " : "",
               dialogue->mail->recipients[dialogue->recipient], reply_text(dialogue));
    if (dialogue->refused_code < 500) /* what lasts weighs more than what passes */
        dialogue->refused_code =
            dialogue->code >= 500 || !dialogue->refused_code ? dialogue->code : dialogue->refused_code;
}

/* All are asked, so that a caller who has to correct addresses hears of all of them at once. */
static void recipients_over(struct smtp_dialogue *dialogue, struct buf *out)
{
    if (!dialogue->refused_code) {
        dialogue->step = SMTP_DATA;
        buf_add_text(out, "DATA\r\n");
        return;
    }
    end(dialogue, dialogue->refused_code < 500 ? OUTCOME_NOT_PROCESSED : OUTCOME_REFUSED, dialogue->refused_code,
        arena_printf(dialogue->arena, "recipients were refused, so the message went to nobody: %s%s",
                     buf_str(&dialogue->refused).p, dialogue->refused.over ? " …" : ""));
}

static void take_recipient(struct smtp_dialogue *dialogue, struct buf *out)
{
    if (dialogue->code >= 400 && dialogue->code != 421)
        refuse_recipient(dialogue);
    else if (dialogue->code >= 300)
        refuse(dialogue); /* 421: the server is leaving; 3xx: means nothing here */
    if (dialogue->step == SMTP_OVER)
        return;
    if (++dialogue->recipient < dialogue->mail->recipient_count)
        ask_recipient(dialogue, out);
    else
        recipients_over(dialogue, out);
}

static void take_reply(struct smtp_dialogue *dialogue, struct buf *out)
{
    int hundreds = dialogue->code / 100;
    switch (dialogue->step) {
    case SMTP_MAIL:
        if (hundreds == 2)
            ask_recipient(dialogue, out);
        else
            refuse(dialogue);
        break;
    case SMTP_RCPT: take_recipient(dialogue, out); break;
    case SMTP_DATA:
        if (dialogue->code == 354) {
            dialogue->step = SMTP_MESSAGE;
            dialogue->message_begun = true;
            buf_add_str(out, dialogue->mail->data);
        } else if (hundreds >= 4) {
            refuse(dialogue);
        } else {
            surprise(dialogue);
        }
        break;
    case SMTP_MESSAGE: /* it does not wait for the end */
    case SMTP_END:
        if (hundreds >= 4)
            refuse(dialogue);
        else if (hundreds == 2 && dialogue->end_sent)
            end(dialogue, OUTCOME_SUCCESS, dialogue->code, reply_text(dialogue));
        else
            surprise(dialogue);
        break;
    case SMTP_OVER: break;
    }
}

void smtp_line(struct smtp_dialogue *dialogue, struct str line, bool behind, struct buf *out)
{
    struct str text;
    bool more;
    int code;
    if (dialogue->step == SMTP_OVER)
        return;
    if (!read_line(line, &code, &more, &text) || (dialogue->lines > 0 && code != dialogue->code)) {
        smtp_broken(dialogue, SMTP_UNREADABLE, "the server's answer is not SMTP");
        return;
    }
    dialogue->code = code;
    if (dialogue->text.n > 0 && dialogue->text.n < SMTP_TEXT_BYTES_MAX)
        buf_add_char(&dialogue->text, ' ');
    size_t room = SMTP_TEXT_BYTES_MAX - dialogue->text.n;
    buf_add(&dialogue->text, text.p, text.n < room ? text.n : room);
    if (more) {
        if (++dialogue->lines > SMTP_LINES_MAX)
            smtp_broken(dialogue, SMTP_UNREADABLE, "the server's answer does not end");
        return;
    }
    bool goes_on = !dialogue->end_sent && (code < 400 || dialogue->step == SMTP_RCPT);
    if (behind && goes_on) { /* or the next answer would be taken for one to what we ask now */
        smtp_broken(dialogue, SMTP_UNREADABLE, "the server answers before it was asked");
        return;
    }
    take_reply(dialogue, out);
    dialogue->lines = 0;
    buf_reset(&dialogue->text);
}

void smtp_written(struct smtp_dialogue *dialogue, struct buf *out)
{
    if (dialogue->step != SMTP_MESSAGE)
        return;
    dialogue->step = SMTP_END;
    dialogue->end_sent = true;
    buf_add_text(out, ".\r\n");
}
