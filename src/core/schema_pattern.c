#define PCRE2_CODE_UNIT_WIDTH 8

#include "core/schema_pattern.h"

#include "base/buf.h"
#include "base/digits.h"

#include <ctype.h>
#include <pcre2.h>
#include <stdlib.h>

/* A quick try is cheap to account for; only what runs into its limit is repeated with the full one and charged for it.
 * So an evil pattern costs at most about a hundred full tries per validation. */
#define QUICK_MATCH_LIMIT 1000
#define FULL_MATCH_LIMIT  100000
#define FULL_MATCH_STEPS  10000
#define MATCH_STEPS       8
#define HEAP_LIMIT_KIB    16384     /* without JIT */
#define JIT_STACK_BYTES   (4 << 20) /* for the rare match that outgrows the 32 KiB that JIT takes from the C stack */

struct schema_pattern {
    struct str text;
    pcre2_code *code;
    struct schema_pattern *next;
};

struct schema_matcher_data {
    pcre2_match_context *context;
    pcre2_match_data *match;
};

/* ---- ECMA-262 to PCRE2 ---- */

struct translation {
    struct str text;
    size_t at; /* next byte of text */
    struct buf out;
    bool quantifiable; /* an atom precedes */
    struct err *err;
};

#define SPACES "\\s\\x{feff}\\p{Z}" /* what ECMA-262 calls white space and line terminators */

static enum err_code refuse(struct translation *t, size_t at, const char *what)
{
    return err_set(t->err, ERR_INVALID, "%s at byte %zu of the pattern", what, at + 1);
}

static bool ahead(const struct translation *t, char c)
{
    return t->at < t->text.n && t->text.p[t->at] == c;
}

static bool ahead_text(const struct translation *t, const char *text)
{
    size_t n = strlen(text);
    return t->text.n - t->at >= n && memcmp(t->text.p + t->at, text, n) == 0;
}

/* General categories by their long names; short ones, scripts and binary properties are PCRE2's own. */
static const char *const categories[][2] = {
    {"Cased_Letter", "L&"},
    {"Close_Punctuation", "Pe"},
    {"Combining_Mark", "M"},
    {"Connector_Punctuation", "Pc"},
    {"Control", "Cc"},
    {"Currency_Symbol", "Sc"},
    {"Dash_Punctuation", "Pd"},
    {"Decimal_Number", "Nd"},
    {"Enclosing_Mark", "Me"},
    {"Final_Punctuation", "Pf"},
    {"Format", "Cf"},
    {"Initial_Punctuation", "Pi"},
    {"LC", "L&"},
    {"Letter", "L"},
    {"Letter_Number", "Nl"},
    {"Line_Separator", "Zl"},
    {"Lowercase_Letter", "Ll"},
    {"Mark", "M"},
    {"Math_Symbol", "Sm"},
    {"Modifier_Letter", "Lm"},
    {"Modifier_Symbol", "Sk"},
    {"Nonspacing_Mark", "Mn"},
    {"Number", "N"},
    {"Open_Punctuation", "Ps"},
    {"Other", "C"},
    {"Other_Letter", "Lo"},
    {"Other_Number", "No"},
    {"Other_Punctuation", "Po"},
    {"Other_Symbol", "So"},
    {"Paragraph_Separator", "Zp"},
    {"Private_Use", "Co"},
    {"Punctuation", "P"},
    {"Separator", "Z"},
    {"Space_Separator", "Zs"},
    {"Spacing_Mark", "Mc"},
    {"Surrogate", "Cs"},
    {"Symbol", "S"},
    {"Titlecase_Letter", "Lt"},
    {"Unassigned", "Cn"},
    {"Uppercase_Letter", "Lu"},
    {"cntrl", "Cc"},
    {"digit", "Nd"},
    {"punct", "P"},
};

static struct str category(struct str name)
{
    for (size_t i = 0; i < sizeof categories / sizeof *categories; i++)
        if (str_is(name, categories[i][0]))
            return str_of(categories[i][1]);
    return name;
}

static struct str after_prefix(struct str s, const char *prefix)
{
    size_t n = strlen(prefix);
    return s.n >= n && memcmp(s.p, prefix, n) == 0 ? (struct str){s.p + n, s.n - n} : STR_NONE;
}

/* \p{...} and \P{...}; at the brace. */
static enum err_code property(struct translation *t, size_t start, char letter)
{
    size_t end = t->at + 1;
    if (!ahead(t, '{'))
        return refuse(t, start, "\\p needs a property name in braces");
    while (end < t->text.n && (isalnum((unsigned char)t->text.p[end]) || strchr("_=", t->text.p[end])) &&
           t->text.p[end])
        end++;
    if (end == t->text.n || t->text.p[end] != '}')
        return refuse(t, start, "\\p needs a property name in braces");
    struct str name = {t->text.p + t->at + 1, end - t->at - 1};
    t->at = end + 1;

    const char *kind = "";
    struct str value;
    if ((value = after_prefix(name, "gc=")).p || (value = after_prefix(name, "General_Category=")).p) {
        name = category(value);
    } else if ((value = after_prefix(name, "sc=")).p || (value = after_prefix(name, "Script=")).p) {
        kind = "sc:";
        name = value;
    } else if ((value = after_prefix(name, "scx=")).p || (value = after_prefix(name, "Script_Extensions=")).p) {
        kind = "scx:";
        name = value;
    } else {
        name = category(name);
    }
    buf_printf(&t->out, "\\%c{%s%.*s}", letter, kind, STR_ARG(name));
    return ERR_NONE;
}

/* Exactly count hex digits at t->at; false without moving when they are not there. */
static bool hex_number(struct translation *t, unsigned count, unsigned *out)
{
    unsigned value = 0;
    if (t->text.n - t->at < count)
        return false;
    for (unsigned i = 0; i < count; i++) {
        int digit = hex_value(t->text.p[t->at + i]);
        if (digit < 0)
            return false;
        value = value << 4 | (unsigned)digit;
    }
    t->at += count;
    *out = value;
    return true;
}

/* Behind \u: four digits (two such escapes for a surrogate pair) or any code point in braces. */
static enum err_code unicode_escape(struct translation *t, size_t start)
{
    unsigned code = 0, low = 0;
    if (ahead(t, '{')) {
        size_t first = ++t->at;
        unsigned digit;
        while (code <= 0x10ffff && hex_number(t, 1, &digit))
            code = code << 4 | digit;
        if (t->at == first || !ahead(t, '}'))
            return refuse(t, start, "\\u{ needs hex digits up to 10FFFF and a closing brace");
        t->at++;
    } else if (!hex_number(t, 4, &code)) {
        return refuse(t, start, "\\u needs four hex digits");
    }
    if (code >= 0xd800 && code < 0xdc00 && ahead_text(t, "\\u")) {
        size_t back = t->at;
        t->at += 2;
        if (hex_number(t, 4, &low) && low >= 0xdc00 && low < 0xe000)
            code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
        else
            t->at = back;
    }
    if (code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
        return refuse(t, start, "\\u names no character");
    buf_printf(&t->out, "\\x{%x}", code);
    return ERR_NONE;
}

static enum err_code back_reference(struct translation *t, size_t start)
{
    unsigned number = 0;
    t->at--;
    while (t->at < t->text.n && isdigit((unsigned char)t->text.p[t->at]) && number < 1000)
        number = number * 10 + (unsigned)(t->text.p[t->at++] - '0');
    if (number >= 1000)
        return refuse(t, start, "there is no such group");
    buf_printf(&t->out, "\\g{%u}", number);
    return ERR_NONE;
}

static enum err_code named_reference(struct translation *t, size_t start)
{
    size_t end = t->at;
    while (end < t->text.n && t->text.p[end] != '>')
        end++;
    if (!ahead(t, '<') || end == t->text.n)
        return refuse(t, start, "\\k needs a group name in angle brackets");
    buf_add_text(&t->out, "\\k");
    buf_add(&t->out, t->text.p + t->at, end + 1 - t->at);
    t->at = end + 1;
    return ERR_NONE;
}

/* Escapes that mean the same inside and outside of brackets. c is the character behind the backslash. */
static enum err_code common_escape(struct translation *t, size_t start, char c)
{
    unsigned code;
    switch (c) {
    case 'd':
    case 'D':
    case 'w':
    case 'W':
    case 't':
    case 'n':
    case 'r':
    case 'f': buf_printf(&t->out, "\\%c", c); return ERR_NONE;
    case 'v': buf_add_text(&t->out, "\\x0b"); return ERR_NONE;
    case 'p':
    case 'P': return property(t, start, c);
    case 'u': return unicode_escape(t, start);
    case 'x':
        if (!hex_number(t, 2, &code))
            return refuse(t, start, "\\x needs two hex digits");
        buf_printf(&t->out, "\\x{%x}", code);
        return ERR_NONE;
    case 'c':
        if (t->at == t->text.n || !isalpha((unsigned char)t->text.p[t->at]))
            return refuse(t, start, "\\c needs a letter");
        buf_printf(&t->out, "\\x{%x}", t->text.p[t->at++] & 31U);
        return ERR_NONE;
    case '0':
        if (t->at < t->text.n && isdigit((unsigned char)t->text.p[t->at]))
            return refuse(t, start, "octal escapes are not ECMA-262");
        buf_add_text(&t->out, "\\x00");
        return ERR_NONE;
    default: break;
    }
    if (isalnum((unsigned char)c))
        return refuse(t, start, "unknown escape (ECMA-262 regular expressions)");
    if ((unsigned char)c < 0x80 && isprint((unsigned char)c))
        buf_add_char(&t->out, '\\');
    buf_add_char(&t->out, c);
    return ERR_NONE;
}

static enum err_code escape(struct translation *t)
{
    size_t start = t->at++;
    if (t->at == t->text.n)
        return refuse(t, start, "lone backslash");
    char c = t->text.p[t->at++];
    t->quantifiable = c != 'b' && c != 'B';
    switch (c) {
    case 'b':
    case 'B': buf_printf(&t->out, "\\%c", c); return ERR_NONE;
    case 's': buf_add_text(&t->out, "[" SPACES "]"); return ERR_NONE;
    case 'S': buf_add_text(&t->out, "[^" SPACES "]"); return ERR_NONE;
    case 'k': return named_reference(t, start);
    default: break;
    }
    return c >= '1' && c <= '9' ? back_reference(t, start) : common_escape(t, start, c);
}

static enum err_code class_escape(struct translation *t)
{
    size_t start = t->at++;
    if (t->at == t->text.n)
        return refuse(t, start, "lone backslash");
    char c = t->text.p[t->at++];
    switch (c) {
    case 'b': buf_add_text(&t->out, "\\x08"); return ERR_NONE;
    case 's': buf_add_text(&t->out, SPACES); return ERR_NONE;
    case 'S': buf_add_text(&t->out, "\\S"); return ERR_NONE;
    default: return common_escape(t, start, c);
    }
}

static enum err_code class(struct translation *t) {
    size_t start = t->at++; enum err_code rc = ERR_NONE; buf_add_char(&t->out, '[');
    if (ahead(t, '^')) buf_add_char(&t->out, t->text.p[t->at++]);
    while (!rc && t->at < t->text.n && t->text.p[t->at] != ']'){char c = t->text.p[t->at];
                                                                if (c == '\\'){rc = class_escape(t); continue;}
if (c == '[') /* PCRE2 would see [:alpha:] */
    buf_add_char(&t->out, '\\');
buf_add_char(&t->out, c);
t->at++;
}
if (rc)
    return rc;
if (t->at == t->text.n)
    return refuse(t, start, "bracket without its closing one");
buf_add_char(&t->out, ']');
t->at++;
t->quantifiable = true;
return ERR_NONE;
}

/* Length of "(?i" or "(?im-s" in front of ":" or ")"; 0 when it is none. */
static size_t flags_length(const struct translation *t)
{
    size_t at = t->at + 2;
    while (at < t->text.n && t->text.p[at] && strchr("ims-", t->text.p[at]))
        at++;
    bool closed = at < t->text.n && (t->text.p[at] == ':' || t->text.p[at] == ')');
    return closed && at > t->at + 2 ? at - t->at : 0;
}

static enum err_code group(struct translation *t)
{
    static const char *const openings[] = {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?<"};
    size_t n = 1;
    t->quantifiable = false;
    if (ahead_text(t, "(?")) {
        n = flags_length(t);
        for (size_t i = 0; !n && i < sizeof openings / sizeof *openings; i++)
            if (ahead_text(t, openings[i]))
                n = strlen(openings[i]);
        if (!n)
            return refuse(t, t->at, "unknown kind of group (ECMA-262 regular expressions)");
    }
    buf_add(&t->out, t->text.p + t->at, n);
    t->at += n;
    return ERR_NONE;
}

/* Length of "{2}", "{2,}" or "{2,3}" at t->at; 0 when the brace is a plain character. */
static size_t counted_length(const struct translation *t)
{
    size_t at = t->at + 1, first = at;
    while (at < t->text.n && isdigit((unsigned char)t->text.p[at]))
        at++;
    if (at == first)
        return 0;
    if (at < t->text.n && t->text.p[at] == ',')
        at++;
    while (at < t->text.n && isdigit((unsigned char)t->text.p[at]))
        at++;
    return at < t->text.n && t->text.p[at] == '}' ? at + 1 - t->at : 0;
}

static enum err_code quantifier(struct translation *t, size_t n)
{
    if (!t->quantifiable)
        return refuse(t, t->at, "nothing to repeat");
    buf_add(&t->out, t->text.p + t->at, n);
    t->at += n;
    if (ahead(t, '?'))
        buf_add_char(&t->out, t->text.p[t->at++]);
    t->quantifiable = false;
    return ERR_NONE;
}

static enum err_code literal(struct translation *t, const char *replacement)
{
    if (replacement)
        buf_add_text(&t->out, replacement);
    else
        buf_add_char(&t->out, t->text.p[t->at]);
    t->at++;
    t->quantifiable = true;
    return ERR_NONE;
}

static enum err_code translate_next(struct translation *t)
{
    size_t n;
    switch (t->text.p[t->at]) {
    case '\\': return escape(t);
    case '[': return class(t);
    case '(': return group(t);
    case '*':
    case '+':
    case '?': return quantifier(t, 1);
    case '{': n = counted_length(t); return n ? quantifier(t, n) : literal(t, "\\{");
    case '.': return literal(t, "[^\\n\\r\\x{2028}\\x{2029}]");
    case '|':
    case '^':
    case '$':
        literal(t, NULL);
        t->quantifiable = false;
        return ERR_NONE;
    default: return literal(t, NULL);
    }
}

/* ---- compiling ---- */

static enum err_code compile(struct translation *t, pcre2_code **out)
{
    int error = 0;
    PCRE2_SIZE offset = 0;
    uint32_t options = PCRE2_UTF | PCRE2_DOLLAR_ENDONLY | PCRE2_ALLOW_EMPTY_CLASS | PCRE2_MATCH_UNSET_BACKREF |
                       PCRE2_NEVER_BACKSLASH_C;
    pcre2_code *code = pcre2_compile((PCRE2_SPTR)t->out.p, t->out.n, options, &error, &offset, NULL);
    if (!code) {
        char why[160] = "unknown";
        pcre2_get_error_message(error, (PCRE2_UCHAR *)why, sizeof why);
        return err_set(t->err, ERR_INVALID, "%s in the pattern", why);
    }
    /* No JIT (not built in, or memory that may not be executed) only means slower matches. */
    pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
    *out = code;
    return ERR_NONE;
}

enum err_code schema_pattern_new(struct arena *arena, struct str text, struct schema_pattern **out, struct err *err)
{
    struct translation t = {.text = text, .err = err};
    enum err_code rc = ERR_NONE;
    pcre2_code *code = NULL;
    if (text.n > SCHEMA_PATTERN_BYTES_MAX)
        return err_set(err, ERR_LIMIT, "the pattern is longer than %d bytes", SCHEMA_PATTERN_BYTES_MAX);
    buf_init(&t.out, 0);
    buf_add_text(&t.out, "");
    while (!rc && t.at < text.n)
        rc = translate_next(&t);
    if (!rc)
        rc = compile(&t, &code);
    buf_release(&t.out);
    if (rc)
        return rc;
    struct schema_pattern *pattern = arena_zero(arena, sizeof *pattern);
    pattern->text = text;
    pattern->code = code;
    *out = pattern;
    return ERR_NONE;
}

void schema_pattern_release(struct schema_pattern *pattern)
{
    pcre2_code_free(pattern->code);
    pattern->code = NULL;
}

struct str schema_pattern_text(const struct schema_pattern *pattern)
{
    return pattern->text;
}

struct schema_pattern *schema_pattern_next(const struct schema_pattern *pattern)
{
    return pattern->next;
}

void schema_pattern_link(struct schema_pattern *pattern, struct schema_pattern *next)
{
    pattern->next = next;
}

/* ---- matching ---- */

static void *take(size_t bytes, void *arena)
{
    return arena_alloc(arena, bytes);
}

static void give_back(void *p, void *arena)
{
    (void)p; /* the arena does it */
    (void)arena;
}

static struct schema_matcher_data *matcher_data(struct schema_matcher *matcher)
{
    if (!matcher->data) {
        pcre2_general_context *general = pcre2_general_context_create(take, give_back, matcher->arena);
        struct schema_matcher_data *data = arena_alloc(matcher->arena, sizeof *data);
        data->context = pcre2_match_context_create(general);
        pcre2_set_heap_limit(data->context, HEAP_LIMIT_KIB);
        data->match = pcre2_match_data_create(1, general);
        matcher->data = data;
    }
    return matcher->data;
}

static int match_once(const struct schema_pattern *pattern, struct schema_matcher_data *data, struct str text)
{
    PCRE2_SPTR subject = (PCRE2_SPTR)(text.p ? text.p : "");
    return pcre2_match(pattern->code, subject, text.n, 0, 0, data->match, data->context);
}

static int match_with_stack(const struct schema_pattern *pattern, struct schema_matcher_data *data, struct str text)
{
    pcre2_jit_stack *stack = pcre2_jit_stack_create(JIT_STACK_BYTES / 16, JIT_STACK_BYTES, NULL);
    if (!stack)
        return PCRE2_ERROR_JIT_STACKLIMIT;
    pcre2_jit_stack_assign(data->context, NULL, stack);
    int rc = match_once(pattern, data, text);
    pcre2_jit_stack_assign(data->context, NULL, NULL);
    pcre2_jit_stack_free(stack);
    return rc;
}

enum schema_match schema_pattern_match(const struct schema_pattern *pattern, struct schema_matcher *matcher,
                                       struct str text, int64_t *steps)
{
    struct schema_matcher_data *data = matcher_data(matcher);
    size_t quick = QUICK_MATCH_LIMIT + text.n * 2;
    *steps -= MATCH_STEPS + (int64_t)(text.n / 16);
    pcre2_set_match_limit(data->context, quick < FULL_MATCH_LIMIT ? (uint32_t)quick : FULL_MATCH_LIMIT);
    int rc = match_once(pattern, data, text);
    if (rc == PCRE2_ERROR_MATCHLIMIT || rc == PCRE2_ERROR_JIT_STACKLIMIT) {
        *steps -= FULL_MATCH_STEPS;
        pcre2_set_match_limit(data->context, FULL_MATCH_LIMIT);
        rc = match_once(pattern, data, text);
    }
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
        rc = match_with_stack(pattern, data, text);
    switch (rc) {
    case PCRE2_ERROR_MATCHLIMIT:
    case PCRE2_ERROR_DEPTHLIMIT:
    case PCRE2_ERROR_HEAPLIMIT:
    case PCRE2_ERROR_JIT_STACKLIMIT: return SCHEMA_MATCH_LIMIT;
    default: return rc >= 0 ? SCHEMA_MATCH_YES : SCHEMA_MATCH_NO; /* text that is not UTF-8 matches nothing */
    }
}
