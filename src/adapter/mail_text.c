#include "adapter/mail_text.h"

#include <openssl/evp.h>
#include <string.h>
#include <time.h>

#define FOLD_AT            78
#define ENCODED_WORD_BYTES 45 /* "=?utf-8?B?" + 60 + "?=" = 72 of the allowed 75 characters */
#define WORD_BYTES_MAX     70 /* a longer one cannot be folded */
#define QP_LINE            76 /* RFC 2045 6.7, soft break included */

static bool is_control(unsigned char c)
{
    return c < 0x20 || c == 0x7f;
}

/* U+0080 to U+009F. */
static bool is_c1(struct str text, size_t at)
{
    return (unsigned char)text.p[at] == 0xc2 && at + 1 < text.n && (unsigned char)text.p[at + 1] < 0xa0;
}

static bool is_ascii(struct str text)
{
    for (size_t i = 0; i < text.n; i++)
        if ((unsigned char)text.p[i] >= 0x80)
            return false;
    return true;
}

bool mail_value_valid(struct str text)
{
    for (size_t i = 0; i < text.n; i++)
        if ((is_control((unsigned char)text.p[i]) && text.p[i] != '\t') || is_c1(text, i))
            return false;
    return true;
}

/* ---- addresses ---- */

static bool is_alnum(unsigned char c)
{
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

static bool is_atext(unsigned char c)
{
    return is_alnum(c) || c >= 0x80 || (c && strchr("!#$%&'*+-/=?^_`{|}~", c));
}

static const char *local_fault(struct str local)
{
    if (local.n == 0)
        return "has nothing before the @";
    if (local.n > MAIL_LOCAL_BYTES_MAX)
        return "has more than 64 bytes before the @";
    for (size_t i = 0; i < local.n; i++) {
        bool dot = local.p[i] == '.';
        if (dot && (i == 0 || i + 1 == local.n || local.p[i - 1] == '.'))
            return "has a misplaced dot before the @";
        if (!dot && !is_atext((unsigned char)local.p[i]))
            return "has a character before the @ that addresses do not have";
    }
    return NULL;
}

/* "[192.0.2.1]", "[IPv6:2001:db8::1]" */
static const char *literal_fault(struct str domain)
{
    if (domain.n < 3 || domain.p[domain.n - 1] != ']')
        return "has an unfinished address in [] after the @";
    for (size_t i = 1; i + 1 < domain.n; i++)
        if (!is_alnum((unsigned char)domain.p[i]) && domain.p[i] != '.' && domain.p[i] != ':')
            return "has a character in [] that addresses do not have";
    return NULL;
}

static const char *label_fault(struct str label)
{
    if (label.n == 0 || label.n > 63 || label.p[0] == '-' || label.p[label.n - 1] == '-')
        return "has a misplaced dot or hyphen, or too long a part, behind the @";
    for (size_t i = 0; i < label.n; i++)
        if (!is_alnum((unsigned char)label.p[i]) && label.p[i] != '-' && (unsigned char)label.p[i] < 0x80)
            return "has a character behind the @ that host names do not have";
    return NULL;
}

static const char *domain_fault(struct str domain)
{
    if (domain.n == 0)
        return "has nothing behind the @";
    if (domain.p[0] == '[')
        return literal_fault(domain);
    for (size_t at = 0; at <= domain.n;) {
        const char *dot = at < domain.n ? memchr(domain.p + at, '.', domain.n - at) : NULL;
        size_t end = dot ? (size_t)(dot - domain.p) : domain.n;
        const char *fault = label_fault((struct str){domain.p + at, end - at});
        if (fault)
            return fault;
        at = end + 1;
    }
    return NULL;
}

static const char *address_fault(struct str text, size_t *at)
{
    const char *sign = text.n ? memrchr(text.p, '@', text.n) : NULL;
    if (!sign)
        return "has no @";
    if (text.n > MAIL_ADDRESS_BYTES_MAX)
        return "is longer than 254 bytes";
    for (size_t i = 0; i < text.n; i++)
        if (is_control((unsigned char)text.p[i]) || is_c1(text, i))
            return "holds a control character";
    *at = (size_t)(sign - text.p);
    const char *fault = local_fault((struct str){text.p, *at});
    return fault ? fault : domain_fault((struct str){sign + 1, text.n - *at - 1});
}

static struct str trim(struct str text)
{
    while (text.n > 0 && text.p[0] == ' ') {
        text.p++;
        text.n--;
    }
    while (text.n > 0 && text.p[text.n - 1] == ' ')
        text.n--;
    return text;
}

/* "\"L, \\\"Ada\\\"\"" as it is meant; other names as they stand. */
static const char *name_read(struct arena *arena, struct str text, struct str *out)
{
    *out = STR_NONE;
    if (text.n > MAIL_NAME_BYTES_MAX)
        return "has a name of more than 320 bytes";
    if (text.n == 0)
        return NULL;
    bool quoted = text.p[0] == '"';
    if (quoted && (text.n < 2 || text.p[text.n - 1] != '"'))
        return "has a name with an unfinished quote";
    struct str inner = quoted ? (struct str){text.p + 1, text.n - 2} : text;
    char *name = arena_alloc(arena, inner.n + 1);
    size_t n = 0;
    for (size_t i = 0; i < inner.n; i++) {
        char c = inner.p[i];
        if (c == '"' || (!quoted && c && strchr("<>,;", c)))
            return "has a name with one of \" < > , ; that is not quoted";
        if (quoted && c == '\\') {
            if (++i == inner.n)
                return "has a name with an unfinished quote";
            c = inner.p[i];
        }
        name[n++] = c;
    }
    name[n] = '\0';
    if (n > 0)
        *out = (struct str){name, n};
    return NULL;
}

enum err_code mail_address_read(struct arena *arena, struct str text, struct mail_address *out, struct err *err)
{
    struct str given = trim(text), address = given, name = STR_NONE;
    const char *fault = NULL;
    size_t at = 0;
    *out = (struct mail_address){0};
    if (!mail_value_valid(given))
        return err_set(err, ERR_INVALID, "holds a line break or another control character");
    if (given.n > 0 && given.p[given.n - 1] == '>') {
        const char *open = memrchr(given.p, '<', given.n);
        if (!open)
            return err_set(err, ERR_INVALID, "has > without <");
        address = (struct str){open + 1, (size_t)(given.p + given.n - 1 - open) - 1};
        name = trim((struct str){given.p, (size_t)(open - given.p)});
        fault = name_read(arena, name, &out->name);
    }
    if (!fault)
        fault = address_fault(address, &at);
    if (fault)
        return err_set(err, ERR_INVALID, "\"%.*s\" %s; expected one address such as ada@example.com",
                       given.n > 80 ? 80 : (int)given.n, given.p ? given.p : "", fault);
    char *copy = arena_copy_str(arena, address);
    out->address = copy;
    out->domain = copy + at + 1;
    out->utf8 = !is_ascii(address);
    return ERR_NONE;
}

/* ---- header values ---- */

/* Bytes of the next piece for an encoded word of at most `max` of them: whole characters. */
static size_t encoded_piece(struct str text, size_t max)
{
    size_t n = text.n < max ? text.n : max;
    while (n < text.n && n > 1 && ((unsigned char)text.p[n] & 0xc0) == 0x80)
        n--;
    return n;
}

static void add_encoded_words(struct buf *out, size_t *column, struct str text)
{
    /* the first one begins in the name's line: some readers take a fold there for a blank of the value's */
    size_t room = *column + 12 < FOLD_AT ? (FOLD_AT - *column - 12) / 4 * 3 : 0;
    size_t max = room < ENCODED_WORD_BYTES ? room : ENCODED_WORD_BYTES;
    if (max < 4) { /* the longest character */
        buf_add_text(out, "\r\n ");
        *column = 1;
        max = ENCODED_WORD_BYTES;
    }
    while (text.n > 0) {
        unsigned char word[4 * ((ENCODED_WORD_BYTES + 2) / 3) + 1];
        size_t n = encoded_piece(text, max);
        int length = EVP_EncodeBlock(word, (const unsigned char *)text.p, (int)n);
        buf_add_text(out, "=?utf-8?B?");
        buf_add(out, (const char *)word, (size_t)length);
        buf_add_text(out, "?=");
        *column += 12 + (size_t)length;
        text.p += n;
        text.n -= n;
        if (text.n > 0) {
            buf_add_text(out, "\r\n ");
            *column = 1;
        }
        max = ENCODED_WORD_BYTES;
    }
}

/* May stand as it is: printable ASCII that folds at its spaces and is no encoded word by chance. */
static bool is_plain(struct str text)
{
    size_t word = 0;
    if (text.n > 0 && (text.p[0] == ' ' || text.p[text.n - 1] == ' '))
        return false;
    for (size_t i = 0; i < text.n; i++) {
        unsigned char c = (unsigned char)text.p[i];
        word = c == ' ' ? 0 : word + 1;
        if (is_control(c) || c >= 0x80 || word > WORD_BYTES_MAX)
            return false;
    }
    return text.n == 0 || !memmem(text.p, text.n, "=?", 2);
}

/* Folds before a space where the next word would pass the margin. */
static void add_plain(struct buf *out, size_t *column, struct str text)
{
    for (size_t i = 0; i < text.n;) {
        size_t end = i + 1;
        while (end < text.n && text.p[end] != ' ')
            end++;
        bool word = end - i > 1; /* more than the space alone: a folded line of spaces only would be lost */
        if (text.p[i] == ' ' && word && *column + (end - i) > FOLD_AT) {
            buf_add_text(out, "\r\n");
            *column = 0;
        }
        buf_add(out, text.p + i, end - i);
        *column += end - i;
        i = end;
    }
}

void mail_header_text(struct buf *out, const char *name, struct str value)
{
    size_t column = strlen(name) + 2;
    buf_add_text(out, name);
    buf_add_text(out, ": ");
    if (is_plain(value))
        add_plain(out, &column, value);
    else
        add_encoded_words(out, &column, value);
    buf_add_text(out, "\r\n");
}

static bool is_phrase(struct str text)
{
    if (!is_plain(text))
        return false;
    for (size_t i = 0; i < text.n; i++)
        if (text.p[i] != ' ' && !is_atext((unsigned char)text.p[i]))
            return false;
    return true;
}

static void add_name(struct buf *out, size_t *column, struct str name)
{
    size_t before = out->n;
    if (is_phrase(name)) {
        add_plain(out, column, name);
        return;
    }
    if (!is_plain(name) || name.n > WORD_BYTES_MAX / 2) {
        add_encoded_words(out, column, name);
        return;
    }
    buf_add_char(out, '"');
    for (size_t i = 0; i < name.n; i++) {
        if (name.p[i] == '"' || name.p[i] == '\\')
            buf_add_char(out, '\\');
        buf_add_char(out, name.p[i]);
    }
    buf_add_char(out, '"');
    *column += out->n - before;
}

void mail_header_addresses(struct buf *out, const char *name, const struct mail_address *addresses, size_t count)
{
    size_t column = strlen(name) + 2;
    buf_add_text(out, name);
    buf_add_text(out, ": ");
    for (size_t i = 0; i < count; i++) {
        const struct mail_address *address = &addresses[i];
        if (i > 0) { /* one per line: addresses are long */
            buf_add_text(out, ",\r\n ");
            column = 1;
        }
        if (address->name.n > 0) {
            add_name(out, &column, address->name);
            if (column + strlen(address->address) + 3 > FOLD_AT) {
                buf_add_text(out, "\r\n");
                column = 0;
            }
            buf_add_text(out, " <");
            buf_add_text(out, address->address);
            buf_add_char(out, '>');
        } else {
            buf_add_text(out, address->address);
        }
    }
    buf_add_text(out, "\r\n");
}

/* ---- bodies ---- */

/* Length of the line break at text.p[at], 0 = none. */
static size_t line_break(struct str text, size_t at)
{
    if (text.p[at] == '\r')
        return at + 1 < text.n && text.p[at + 1] == '\n' ? 2 : 1;
    return text.p[at] == '\n' ? 1 : 0;
}

static size_t line_end(struct str text, size_t at)
{
    while (at < text.n && text.p[at] != '\r' && text.p[at] != '\n')
        at++;
    return at;
}

static bool starts_from(struct str line)
{
    return line.n >= 5 && memcmp(line.p, "From ", 5) == 0;
}

/* May go as it is: short lines of printable ASCII that no server on the way feels called to repair. */
static bool is_seven_bit(struct str text)
{
    for (size_t at = 0; at < text.n;) {
        size_t end = line_end(text, at);
        struct str line = {text.p + at, end - at};
        if (line.n > FOLD_AT || starts_from(line) || (line.n > 0 && strchr(" \t", line.p[line.n - 1])))
            return false;
        for (size_t i = 0; i < line.n; i++)
            if ((is_control((unsigned char)line.p[i]) && line.p[i] != '\t') || (unsigned char)line.p[i] >= 0x80)
                return false;
        at = end < text.n ? end + line_break(text, end) : end;
    }
    return true;
}

static bool qp_literal(struct str line, size_t i, size_t column)
{
    unsigned char c = (unsigned char)line.p[i];
    if (column == 0 && (c == '.' || (c == 'F' && starts_from((struct str){line.p + i, line.n - i}))))
        return false;
    if (c == ' ' || c == '\t')
        return i + 1 < line.n;
    return c > ' ' && c < 0x7f && c != '=';
}

static void add_qp_line(struct buf *out, struct str line)
{
    size_t column = 0;
    for (size_t i = 0; i < line.n; i++) {
        if (column + (qp_literal(line, i, column) ? 1 : 3) > QP_LINE - 1) {
            buf_add_text(out, "=\r\n");
            column = 0;
        }
        if (qp_literal(line, i, column)) {
            buf_add_char(out, line.p[i]);
            column++;
        } else {
            buf_printf(out, "=%02X", (unsigned char)line.p[i]);
            column += 3;
        }
    }
    buf_add_text(out, "\r\n");
}

void mail_part(struct buf *out, const char *subtype, struct str text)
{
    bool plain = is_seven_bit(text);
    buf_printf(out, "Content-Type: text/%s; charset=utf-8\r\nContent-Transfer-Encoding: %s\r\n\r\n", subtype,
               plain ? "7bit" : "quoted-printable");
    for (size_t at = 0; at < text.n && !out->over;) {
        size_t end = line_end(text, at);
        struct str line = {text.p + at, end - at};
        if (plain) {
            buf_add_str(out, line);
            buf_add_text(out, "\r\n");
        } else {
            add_qp_line(out, line);
        }
        at = end < text.n ? end + line_break(text, end) : end;
    }
}

void mail_stuff_dots(struct buf *out, struct str lines)
{
    for (size_t at = 0; at < lines.n && !out->over;) {
        const char *newline = memchr(lines.p + at, '\n', lines.n - at);
        size_t end = newline ? (size_t)(newline - lines.p) + 1 : lines.n;
        if (lines.p[at] == '.')
            buf_add_char(out, '.');
        buf_add(out, lines.p + at, end - at);
        at = end;
    }
}

const char *mail_date(struct arena *arena, int64_t at_ms)
{
    static const char *const days[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
    static const char *const months[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                         "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    time_t seconds = (time_t)(at_ms / 1000);
    struct tm tm = {0};
    gmtime_r(&seconds, &tm);
    return arena_printf(arena, "%s, %02d %s %04d %02d:%02d:%02d +0000", days[tm.tm_wday], tm.tm_mday, months[tm.tm_mon],
                        tm.tm_year + 1900, tm.tm_hour, tm.tm_min, tm.tm_sec);
}
