/* Mail: what servers answer, and what becomes of arguments. The first byte says which of three.
 *
 *   0  SMTP: a dialogue fed with lines. Nothing but 2xx behind the final dot is a success; before the dot left nothing
 * is unknown but what breaks the protocol; every command is one line. 1  IMAP: a look-up fed with bytes; the pieces do
 * not matter. "found" and "several" only by our own Message-ID. 2  a message of subject, address and body: no line that
 * is not ours, no line too long. */
#include "fuzz.h"

#include "adapter/mail_imap.h"
#include "adapter/mail_smtp.h"
#include "adapter/mail_text.h"

#define MARK "<op_01M8N7FXZ15E56XTVA8HVJEM36@example.com>"

static void check_commands(const struct buf *out)
{
    CHECK(out->n == 0 || (out->n >= 2 && memcmp(out->p + out->n - 2, "\r\n", 2) == 0));
    for (size_t i = 0; i < out->n; i++)
        CHECK(out->p[i] == '\r' ? out->p[i + 1] == '\n' : out->p[i] != '\n' || (i > 0 && out->p[i - 1] == '\r'));
}

/* ---- SMTP ---- */

static void check_finding(const struct smtp_dialogue *dialogue)
{
    const struct smtp_finding *finding = &dialogue->finding;
    int hundreds = finding->code / 100;
    CHECK(finding->text && strlen(finding->text) < 8 * SMTP_TEXT_BYTES_MAX);
    switch ((int)finding->outcome) {
    case OUTCOME_SUCCESS: CHECK(dialogue->end_sent && hundreds == 2); break;
    case OUTCOME_REFUSED: CHECK(hundreds == 5); break;
    case OUTCOME_NOT_PROCESSED: CHECK(!dialogue->end_sent || hundreds == 4); break;
    case OUTCOME_PROVIDER_ERROR: CHECK(hundreds == 2 || hundreds == 3); break;
    case OUTCOME_UNREADABLE:
    case OUTCOME_CONNECTION_LOST: CHECK(dialogue->end_sent); break;
    default: CHECK(false);
    }
}

static void fuzz_smtp(struct str input)
{
    static const char *const recipients[] = {"a@example.com", "b@example.com", "c@example.com"};
    const struct smtp_mail mail = {
        .from = "s@example.com", .recipients = recipients, .recipient_count = 3, .data = STR("X: y\r\n\r\nz\r\n")};
    struct smtp_greeting greeting = {0};
    struct smtp_dialogue dialogue;
    struct arena arena;
    struct buf out;
    arena_init(&arena);
    buf_init(&out, 0);
    smtp_start(&dialogue, &arena, &mail, &greeting, &out);
    for (size_t at = 0; at < input.n && dialogue.step != SMTP_OVER;) {
        const char *newline = memchr(input.p + at, '\n', input.n - at);
        size_t end = newline ? (size_t)(newline - input.p) : input.n;
        struct str line = {input.p + at, end - at};
        smtp_greeting_line(&greeting, line);
        check_commands(&out);
        buf_reset(&out);
        if (dialogue.step == SMTP_MESSAGE)
            smtp_written(&dialogue, &out);
        smtp_line(&dialogue, line, line.n % 16 == 15, &out);
        at = end + 1;
    }
    if (dialogue.step != SMTP_OVER)
        smtp_broken(&dialogue, SMTP_LOST, "the end of the input");
    check_finding(&dialogue);
    smtp_release(&dialogue);
    buf_release(&out);
    arena_release(&arena);
}

/* ---- IMAP ---- */

static struct imap_finding look_up(struct arena *arena, struct str input, size_t piece, struct buf *out)
{
    struct imap_dialogue dialogue;
    imap_start(&dialogue, arena, "INBOX", MARK, out);
    for (size_t at = 0; at < input.n; at += piece)
        imap_take(&dialogue, (struct str){input.p + at, input.n - at < piece ? input.n - at : piece}, out);
    imap_broken(&dialogue, "the end of the input");
    struct imap_finding finding = dialogue.finding;
    imap_release(&dialogue);
    return finding;
}

static void fuzz_imap(struct str input)
{
    struct arena arena;
    struct buf out, again;
    arena_init(&arena);
    buf_init(&out, 0);
    buf_init(&again, 0);
    struct imap_finding finding = look_up(&arena, input, input.n + 1, &out);
    struct imap_finding pieces = look_up(&arena, input, 1 + input.n % 7, &again);
    check_commands(&out);
    CHECK(finding.outcome == pieces.outcome && finding.matches == pieces.matches && finding.uid == pieces.uid);
    CHECK(str_equal(buf_str(&out), buf_str(&again)));
    bool ours = memmem(input.p, input.n, MARK, strlen(MARK)) != NULL;
    switch ((int)finding.outcome) {
    case OUTCOME_FOUND: CHECK(ours && finding.matches == 1 && finding.uid > 0); break;
    case OUTCOME_SEVERAL: CHECK(ours && finding.matches > 1); break;
    case OUTCOME_ABSENT: CHECK(finding.matches == 0); break;
    case OUTCOME_CANNOT_TELL: break;
    default: CHECK(false);
    }
    buf_release(&out);
    buf_release(&again);
    arena_release(&arena);
}

/* ---- messages ---- */

/* Every line ends in CRLF and has at most `max` bytes; no other control characters but tab. */
static void check_lines(struct str lines, size_t max)
{
    CHECK(lines.n >= 2 && memcmp(lines.p + lines.n - 2, "\r\n", 2) == 0);
    for (size_t at = 0; at < lines.n;) {
        const char *end = memmem(lines.p + at, lines.n - at, "\r\n", 2);
        size_t n = (size_t)(end - lines.p) - at;
        CHECK(n <= max);
        for (size_t i = 0; i < n; i++)
            CHECK(((unsigned char)lines.p[at + i] >= ' ' || lines.p[at + i] == '\t') && lines.p[at + i] != 0x7f);
        at += n + 2;
    }
}

/* A header is one: all its further lines begin with a blank. */
static void check_header(struct str header)
{
    check_lines(header, MAIL_LINE_BYTES_MAX);
    for (size_t i = 0; i + 2 < header.n; i++)
        CHECK(header.p[i] != '\n' || header.p[i + 1] == ' ' || header.p[i + 1] == '\t');
}

static void fuzz_address(struct arena *arena, struct str text, struct buf *out)
{
    struct mail_address address;
    struct err err = {0};
    if (mail_address_read(arena, text, &address, &err) != ERR_NONE)
        return;
    CHECK(strlen(address.address) <= MAIL_ADDRESS_BYTES_MAX && !strpbrk(address.address, " <>\r\n\t,;\""));
    CHECK(address.domain > address.address && address.domain[-1] == '@' && *address.domain);
    buf_reset(out);
    mail_header_addresses(out, "To", &address, 1);
    check_header(buf_str(out));
}

static void fuzz_message(struct str input)
{
    struct arena arena;
    struct buf out, stuffed;
    arena_init(&arena);
    buf_init(&out, 0);
    buf_init(&stuffed, 0);
    fuzz_address(&arena, input, &out);
    if (mail_value_valid(input)) {
        buf_reset(&out);
        mail_header_text(&out, "Subject", input);
        check_header(buf_str(&out));
    }
    buf_reset(&out);
    mail_part(&out, "plain", input);
    check_lines(buf_str(&out), 78);
    mail_stuff_dots(&stuffed, buf_str(&out));
    CHECK(!memmem(stuffed.p, stuffed.n, "\r\n.\r\n", 5));
    buf_release(&out);
    buf_release(&stuffed);
    arena_release(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    struct str input = {(const char *)data + 1, size - 1};
    switch (data[0] % 3) {
    case 0: fuzz_smtp(input); break;
    case 1: fuzz_imap(input); break;
    default: fuzz_message(input); break;
    }
    return 0;
}
