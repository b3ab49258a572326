/* Statements as the registry file has them: enough of PostgreSQL's lexical rules to see parameters and how many
 * statements there are. Nothing is rewritten: the text goes to the server as it is. */
#include "adapter/sql_parts.h"

struct scanner {
    struct str text;
    size_t at;
    struct sql_scan *out;
};

static char peek(const struct scanner *s, size_t ahead)
{
    return s->at + ahead < s->text.n ? s->text.p[s->at + ahead] : '\0';
}

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Bytes beyond ASCII are letters, as in PostgreSQL. */
static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (unsigned char)c >= 0x80;
}

/* 'text' or "name"; a doubled quote stands for itself. In E'…' a backslash takes the next character with it. */
static void skip_quoted(struct scanner *s, bool backslash)
{
    char quote = peek(s, 0);
    for (s->at++; s->at < s->text.n; s->at++) {
        if (backslash && peek(s, 0) == '\\') {
            s->at++;
        } else if (peek(s, 0) == quote) {
            if (peek(s, 1) != quote) {
                s->at++;
                return;
            }
            s->at++;
        }
    }
    s->at = s->text.n;
    s->out->unended = quote == '"' ? "quoted name" : "text";
}

static void skip_line_comment(struct scanner *s)
{
    while (s->at < s->text.n && peek(s, 0) != '\n')
        s->at++;
}

/* They nest. */
static void skip_block_comment(struct scanner *s)
{
    unsigned depth = 0;
    while (s->at < s->text.n) {
        bool begins = peek(s, 0) == '/' && peek(s, 1) == '*', ends = peek(s, 0) == '*' && peek(s, 1) == '/';
        s->at += begins || ends ? 2 : 1;
        depth += begins;
        if (ends && --depth == 0)
            return;
    }
    s->at = s->text.n;
    s->out->unended = "comment";
}

/* $1, or $tag$ … $tag$. */
static void take_dollar(struct scanner *s)
{
    size_t n = 1;
    unsigned long number = 0;
    if (is_digit(peek(s, 1))) {
        for (; is_digit(peek(s, n)); n++)
            number = number > 100000 ? number : number * 10 + (unsigned)(peek(s, n) - '0');
        if (number > s->out->parameters)
            s->out->parameters = (unsigned)number;
        s->at += n;
        return;
    }
    while (is_letter(peek(s, n)) || (n > 1 && is_digit(peek(s, n))))
        n++;
    if (peek(s, n) != '$') {
        s->at++;
        return;
    }
    struct str tag = {s->text.p + s->at, n + 1};
    const char *begin = tag.p + tag.n;
    const char *end = memmem(begin, s->text.n - s->at - tag.n, tag.p, tag.n);
    if (!end)
        s->out->unended = "dollar-quoted text";
    s->at = end ? (size_t)(end - s->text.p) + tag.n : s->text.n;
}

/* A name or keyword; E before a quote changes how the text is read. */
static void take_word(struct scanner *s)
{
    size_t from = s->at, n;
    while (is_letter(peek(s, 0)) || is_digit(peek(s, 0)) || peek(s, 0) == '$')
        s->at++;
    n = s->at - from;
    if (n == 1 && (s->text.p[from] == 'e' || s->text.p[from] == 'E') && peek(s, 0) == '\'')
        skip_quoted(s, true);
    if (s->out->word[0])
        return;
    for (size_t i = 0; i < n && i + 1 < sizeof s->out->word; i++) { /* a longer word is no keyword that we look for */
        char c = s->text.p[from + i];
        s->out->word[i] = c >= 'a' && c <= 'z' ? (char)(c - 'a' + 'A') : c;
    }
}

static void take_one(struct scanner *s)
{
    char c = peek(s, 0);
    if (c == '\'' || c == '"')
        skip_quoted(s, false);
    else if (c == '$')
        take_dollar(s);
    else if (is_letter(c))
        take_word(s);
    else
        s->at++;
}

void sql_scan(struct str text, struct sql_scan *out)
{
    struct scanner s = {.text = text, .out = out};
    bool ended = false;
    *out = (struct sql_scan){0};
    while (s.at < text.n) {
        char c = peek(&s, 0);
        if (is_space(c)) {
            s.at++;
        } else if (c == '-' && peek(&s, 1) == '-') {
            skip_line_comment(&s);
        } else if (c == '/' && peek(&s, 1) == '*') {
            skip_block_comment(&s);
        } else if (c == ';') {
            s.at++;
            ended = true;
        } else {
            out->several = out->several || ended;
            take_one(&s);
        }
    }
}

/* What may stand in a transaction that is ours to end. */
static bool is_allowed(const char *word, bool write)
{
    static const char *const reading[] = {"SELECT", "WITH", "VALUES", "TABLE", NULL};
    static const char *const writing[] = {"INSERT", "UPDATE", "DELETE", "MERGE", "CALL", "LOCK", NULL};
    for (size_t i = 0; reading[i]; i++)
        if (strcmp(word, reading[i]) == 0)
            return true;
    for (size_t i = 0; write && writing[i]; i++)
        if (strcmp(word, writing[i]) == 0)
            return true;
    return false;
}

const char *sql_statement_fault(const struct sql_scan *scan, bool write)
{
    if (scan->unended)
        return "has a text, quoted name or comment that does not end";
    if (scan->several)
        return "has several statements, expected one per entry of the list";
    if (is_allowed(scan->word, write))
        return NULL;
    return write ? "expected SELECT, INSERT, UPDATE, DELETE, MERGE, WITH, VALUES, TABLE, CALL or LOCK: the transaction "
                   "is onced's to begin and to end"
                 : "expected SELECT, WITH, VALUES or TABLE: class read changes nothing";
}
