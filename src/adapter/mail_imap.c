#include "adapter/mail_imap.h"

#include "adapter/mail_smtp.h"

#include <strings.h>

static void end(struct imap_dialogue *dialogue, enum outcome outcome, const char *text)
{
    dialogue->step = IMAP_OVER;
    dialogue->finding =
        (struct imap_finding){outcome, dialogue->matches, dialogue->match_uid, arena_copy_text(dialogue->arena, text)};
}

void imap_broken(struct imap_dialogue *dialogue, const char *why)
{
    if (dialogue->step != IMAP_OVER)
        end(dialogue, OUTCOME_CANNOT_TELL, why);
}

void imap_quote(struct buf *out, const char *text)
{
    buf_add_char(out, '"');
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            buf_add_char(out, '\\');
        buf_add_char(out, *text);
    }
    buf_add_char(out, '"');
}

void imap_start(struct imap_dialogue *dialogue, struct arena *arena, const char *folder, const char *message_id,
                struct buf *out)
{
    *dialogue =
        (struct imap_dialogue){.arena = arena, .folder = folder, .message_id = message_id, .step = IMAP_EXAMINE};
    buf_init(&dialogue->in, IMAP_RESPONSE_BYTES_MAX);
    buf_add_text(out, "o1 EXAMINE ");
    imap_quote(out, folder);
    buf_add_text(out, "\r\n");
}

void imap_release(struct imap_dialogue *dialogue)
{
    buf_release(&dialogue->in);
}

/* ---- one response ---- */

/* The rest behind a word that text must begin with, any case. */
static bool skip_word(struct str *text, const char *word)
{
    size_t n = strlen(word);
    if (text->n < n || strncasecmp(text->p, word, n) != 0 || (text->n > n && text->p[n] != ' '))
        return false;
    n += text->n > n;
    *text = (struct str){text->p + n, text->n - n};
    return true;
}

/* A number and what follows it; false: none, or over 32 bits. */
static bool skip_number(struct str *text, uint32_t *out)
{
    uint64_t value = 0;
    size_t n = 0;
    for (; n < text->n && text->p[n] >= '0' && text->p[n] <= '9'; n++) {
        value = value * 10 + (uint64_t)(text->p[n] - '0');
        if (value > UINT32_MAX)
            return false;
    }
    *out = (uint32_t)value;
    *text = (struct str){text->p + n, text->n - n};
    return n > 0;
}

static bool knows_uid(const struct imap_dialogue *dialogue, uint32_t uid, size_t *at)
{
    for (*at = 0; *at < dialogue->uid_count; (*at)++)
        if (dialogue->uids[*at] == uid)
            return true;
    return false;
}

/* "* SEARCH 4 17" */
static void take_search(struct imap_dialogue *dialogue, struct str text)
{
    dialogue->searched = true;
    while (text.n > 0 && dialogue->step != IMAP_OVER) {
        uint32_t uid;
        size_t at;
        if (text.p[0] == ' ') {
            text = (struct str){text.p + 1, text.n - 1};
            continue;
        }
        if (!skip_number(&text, &uid) || uid == 0 || (text.n > 0 && text.p[0] != ' '))
            end(dialogue, OUTCOME_CANNOT_TELL, "the IMAP server's search result is not readable");
        else if (knows_uid(dialogue, uid, &at))
            continue;
        else if (dialogue->uid_count == IMAP_MATCHES_MAX)
            end(dialogue, OUTCOME_CANNOT_TELL, "the IMAP server found too many messages to look at");
        else
            dialogue->uids[dialogue->uid_count++] = uid;
    }
}

static struct str trim(struct str text)
{
    while (text.n > 0 && strchr(" \t\r\n", text.p[0]) && text.p[0])
        text = (struct str){text.p + 1, text.n - 1};
    while (text.n > 0 && strchr(" \t\r\n", text.p[text.n - 1]) && text.p[text.n - 1])
        text.n--;
    return text;
}

/* "Message-ID: <…>" CRLF CRLF, the value perhaps on a line of its own. */
static bool is_our_header(const struct imap_dialogue *dialogue, struct str header)
{
    static const char name[] = "Message-ID:";
    size_t n = sizeof name - 1;
    return header.n > n && strncasecmp(header.p, name, n) == 0 &&
           str_is(trim((struct str){header.p + n, header.n - n}), dialogue->message_id);
}

/* What a FETCH response is looked through for. */
struct fetched {
    uint32_t uid; /* 0 = not there */
    struct str header;
    bool has_header, readable;
};

/* Length of the literal that is announced at the end of a line "…{17}", -1 = none. */
static int64_t literal_at_end(struct str line)
{
    int64_t length = 0;
    if (line.n < 3 || line.p[line.n - 1] != '}')
        return -1;
    size_t i = line.n - 1;
    while (i > 0 && line.p[i - 1] >= '0' && line.p[i - 1] <= '9')
        i--;
    if (i == line.n - 1 || i == 0 || line.p[i - 1] != '{' || line.n - 1 - i > 9)
        return -1;
    for (; i < line.n - 1; i++)
        length = length * 10 + (line.p[i] - '0');
    return length;
}

/* The quoted string that text begins with, without escapes resolved (a Message-ID of ours needs none). */
static bool skip_quoted(struct str *text, struct str *out)
{
    for (size_t i = 1; i < text->n; i++) {
        if (text->p[i] == '\\') {
            i++;
        } else if (text->p[i] == '"') {
            *out = (struct str){text->p + 1, i - 1};
            *text = (struct str){text->p + i + 1, text->n - i - 1};
            return true;
        }
    }
    return false;
}

/* The literal that text begins with: "{17}\r\n" and 17 bytes. */
static bool skip_literal(struct str *text, struct str *out)
{
    const char *close = memchr(text->p, '}', text->n);
    size_t head = close ? (size_t)(close - text->p) + 1 : 0;
    int64_t length = head ? literal_at_end((struct str){text->p, head}) : -1;
    if (length < 0 || text->n < head + 2 || memcmp(text->p + head, "\r\n", 2) != 0 ||
        text->n - head - 2 < (size_t)length)
        return false;
    *out = (struct str){text->p + head + 2, (size_t)length};
    *text = (struct str){out->p + out->n, text->n - head - 2 - out->n};
    return true;
}

/* "(UID 17 BODY[HEADER.FIELDS (Message-ID)] {40}…)", items in any order. */
static struct fetched read_fetch(struct str text)
{
    struct fetched out = {.readable = true};
    bool after_uid = false, after_body = false;
    while (text.n > 0 && out.readable) {
        struct str value = STR_NONE;
        char c = text.p[0];
        if (c == '"' || c == '{') {
            out.readable = c == '"' ? skip_quoted(&text, &value) : skip_literal(&text, &value);
            if (out.readable && after_body && !out.has_header) {
                out.header = value;
                out.has_header = true;
            }
            after_body = after_uid = false;
        } else if (c == ' ' || c == '(' || c == ')') {
            text = (struct str){text.p + 1, text.n - 1};
        } else if (text.n > 5 && strncasecmp(text.p, "BODY[", 5) == 0) {
            const char *close = memchr(text.p, ']', text.n);
            out.readable = close != NULL;
            text = close ? (struct str){close + 1, text.n - (size_t)(close + 1 - text.p)} : text;
            after_body = true;
        } else if (after_uid) {
            out.readable = skip_number(&text, &out.uid);
            after_uid = false;
        } else {
            size_t n = 0;
            while (n < text.n && !strchr(" ()\"{", text.p[n]))
                n++;
            after_uid = n == 3 && strncasecmp(text.p, "UID", 3) == 0;
            text = (struct str){text.p + n, text.n - n};
            out.readable = n > 0;
        }
    }
    return out;
}

/* Responses about other messages, or without what was asked for, are news of the server's: not ours. */
static void take_fetch(struct imap_dialogue *dialogue, struct str text)
{
    struct fetched fetched = read_fetch(text);
    size_t at;
    if (!fetched.readable) {
        end(dialogue, OUTCOME_CANNOT_TELL, "the IMAP server's answer is not readable");
        return;
    }
    if (!fetched.has_header || !knows_uid(dialogue, fetched.uid, &at) || dialogue->looked_at[at])
        return;
    dialogue->looked_at[at] = true;
    dialogue->looked_at_count++;
    if (is_our_header(dialogue, fetched.header)) {
        dialogue->matches++;
        dialogue->match_uid = fetched.uid;
    }
}

static void take_untagged(struct imap_dialogue *dialogue, struct str text)
{
    uint32_t number;
    if (skip_word(&text, "BYE")) {
        end(dialogue, OUTCOME_CANNOT_TELL, "the IMAP server says goodbye");
    } else if (dialogue->step == IMAP_SEARCH && skip_word(&text, "SEARCH")) {
        take_search(dialogue, text);
    } else if (dialogue->step == IMAP_FETCH && skip_number(&text, &number) && text.n > 0 && text.p[0] == ' ') {
        text = (struct str){text.p + 1, text.n - 1};
        if (skip_word(&text, "FETCH"))
            take_fetch(dialogue, text);
    }
}

/* ---- steps ---- */

static void ask_search(struct imap_dialogue *dialogue, struct buf *out)
{
    dialogue->step = IMAP_SEARCH;
    buf_add_text(out, "o2 UID SEARCH HEADER Message-ID ");
    imap_quote(out, dialogue->message_id);
    buf_add_text(out, "\r\n");
}

static void searched(struct imap_dialogue *dialogue, struct buf *out)
{
    if (!dialogue->searched) {
        end(dialogue, OUTCOME_CANNOT_TELL, "the IMAP server did not say what it found");
        return;
    }
    if (dialogue->uid_count == 0) {
        end(dialogue, OUTCOME_ABSENT, NULL);
        return;
    }
    dialogue->step = IMAP_FETCH;
    buf_add_text(out, "o3 UID FETCH ");
    for (size_t i = 0; i < dialogue->uid_count; i++)
        buf_printf(out, "%s%u", i ? "," : "", dialogue->uids[i]);
    buf_add_text(out, " (UID BODY.PEEK[HEADER.FIELDS (Message-ID)])\r\n");
}

static void looked_at_all(struct imap_dialogue *dialogue)
{
    if (dialogue->looked_at_count < dialogue->uid_count)
        end(dialogue, OUTCOME_CANNOT_TELL, "a message was removed while it was looked at");
    else if (dialogue->matches == 0)
        end(dialogue, OUTCOME_ABSENT, NULL);
    else
        end(dialogue, dialogue->matches == 1 ? OUTCOME_FOUND : OUTCOME_SEVERAL, NULL);
}

static void take_tagged(struct imap_dialogue *dialogue, struct str text, struct buf *out)
{
    if (!skip_word(&text, "OK")) {
        char clean[SMTP_TEXT_BYTES_MAX + 1];
        smtp_clean(text, clean);
        end(dialogue, OUTCOME_CANNOT_TELL, arena_printf(dialogue->arena, "the IMAP server refused: %s", clean));
        return;
    }
    switch (dialogue->step) {
    case IMAP_EXAMINE: ask_search(dialogue, out); break;
    case IMAP_SEARCH: searched(dialogue, out); break;
    case IMAP_FETCH: looked_at_all(dialogue); break;
    case IMAP_OVER: break;
    }
}

static void take_response(struct imap_dialogue *dialogue, struct str text, struct buf *out)
{
    static const char *const tags[] = {"o1", "o2", "o3", ""};
    if (skip_word(&text, "*"))
        take_untagged(dialogue, text);
    else if (skip_word(&text, tags[dialogue->step]))
        take_tagged(dialogue, text, out);
    else
        end(dialogue, OUTCOME_CANNOT_TELL, "the IMAP server's answer is not readable");
}

/* Length of the response that text begins with, its last CRLF included; 0 = more has to come. */
static size_t response_bytes(struct str text)
{
    size_t at = 0;
    for (;;) {
        const char *newline = at < text.n ? memmem(text.p + at, text.n - at, "\r\n", 2) : NULL;
        if (!newline)
            return 0;
        size_t line_end = (size_t)(newline - text.p);
        int64_t literal = literal_at_end((struct str){text.p + at, line_end - at});
        if (literal < 0)
            return line_end + 2;
        if ((size_t)literal > text.n - line_end - 2)
            return 0;
        at = line_end + 2 + (size_t)literal;
    }
}

void imap_take(struct imap_dialogue *dialogue, struct str bytes, struct buf *out)
{
    size_t done = 0, n;
    dialogue->total += bytes.n;
    if (dialogue->step == IMAP_OVER)
        return;
    buf_add_str(&dialogue->in, bytes);
    if (dialogue->in.over || dialogue->total > IMAP_TOTAL_BYTES_MAX) {
        end(dialogue, OUTCOME_CANNOT_TELL, "the IMAP server's answer is too long");
        return;
    }
    struct str in = buf_str(&dialogue->in);
    while (dialogue->step != IMAP_OVER && (n = response_bytes((struct str){in.p + done, in.n - done})) > 0) {
        take_response(dialogue, (struct str){in.p + done, n - 2}, out);
        done += n;
    }
    if (done > 0) { /* keep what has come of the next one */
        memmove(dialogue->in.p, dialogue->in.p + done, dialogue->in.n - done);
        dialogue->in.n -= done;
        dialogue->in.p[dialogue->in.n] = '\0';
    }
}
