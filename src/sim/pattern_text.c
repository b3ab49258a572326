/* A pattern is read into a small tree. How often each repetition is repeated is fixed then (as near as its limits allow
 * to one number for all), so that every node has a known number of texts, and a number is turned into a text from right
 * to left like the digits of a counter:
 *
 *   ^[A-Z]+-[0-9]+$      repeated 4 times: 26^4 · 10^4 texts;   17 → AAAA-0017,   10017 → AAAB-0017 */
#include "sim/pattern_text.h"

#include <string.h>

#define DEPTH_MAX  64
#define CHARS_MAX  128 /* of one class: more are not needed to tell texts apart */
#define REPEAT_MAX 256
#define LENGTH_MAX 65536

enum node_kind { NODE_CHARS, NODE_SEQUENCE, NODE_CHOICE, NODE_REPEAT };

struct node {
    enum node_kind kind;
    struct node *first, *next;       /* children of sequences, choices (first may be NULL: empty) and repeats */
    const uint32_t *chars;           /* NODE_CHARS: code points */
    uint32_t char_count;             /* at least 1 */
    uint64_t repeat_min, repeat_max; /* NODE_REPEAT */
    uint64_t repeat;                 /* chosen */
    uint64_t count;                  /* of texts, saturated */
    uint64_t length_min, length_max; /* of texts, in characters, saturated */
};

struct pattern_text {
    struct node *root;
};

struct reading {
    struct arena *arena;
    struct str text;
    size_t at;
    unsigned depth;
    struct err *err;
};

static uint64_t plus(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

static uint64_t times(uint64_t a, uint64_t b)
{
    return a && b > UINT64_MAX / a ? UINT64_MAX : a * b;
}

/* ---- classes ---- */

struct chars {
    uint32_t list[CHARS_MAX];
    uint32_t count;
    bool ascii[128]; /* printable ones that are in */
};

static void add_char(struct chars *chars, uint32_t c)
{
    if (c < 128)
        chars->ascii[c] = true;
    else if (chars->count < CHARS_MAX)
        chars->list[chars->count++] = c;
}

static void add_range(struct chars *chars, uint32_t from, uint32_t to)
{
    for (uint32_t c = from, n = 0; c <= to && (c < 128 || n < 16); c++) {
        add_char(chars, c);
        n += c >= 128;
    }
}

static void add_text(struct chars *chars, const char *text)
{
    for (; *text; text++)
        add_char(chars, (unsigned char)*text);
}

/* \d \w \s and their opposites among printable ASCII; false for any other letter. */
static bool add_escape_class(struct chars *chars, char letter)
{
    struct chars in = {0};
    switch (letter) {
    case 'd':
    case 'D': add_range(&in, '0', '9'); break;
    case 'w':
    case 'W':
        add_range(&in, '0', '9');
        add_range(&in, 'A', 'Z');
        add_range(&in, 'a', 'z');
        add_char(&in, '_');
        break;
    case 's':
    case 'S': add_text(&in, " \t\n"); break;
    default: return false;
    }
    bool opposite = letter < 'a';
    for (uint32_t c = opposite ? ' ' : 0; c < 127; c++)
        if (in.ascii[c] != opposite)
            add_char(chars, c);
    return true;
}

static bool has_any(const struct chars *chars, unsigned char from, unsigned char to)
{
    for (unsigned c = from; c <= to; c++)
        if (chars->ascii[c])
            return true;
    return false;
}

static void take(struct chars *chars, unsigned char from, unsigned char to)
{
    for (unsigned c = from; c <= to; c++)
        if (chars->ascii[c] && chars->count < CHARS_MAX)
            chars->list[chars->count++] = c;
}

/* The plain characters of a class, so that texts differ also after trimming and a change of case: digits and letters of
 * one case if there are any, then what else can be printed, then anything. */
static struct node *chars_node(struct arena *arena, struct chars *chars)
{
    uint32_t beyond = chars->count;
    take(chars, '0', '9');
    take(chars, 'a', 'z');
    if (!has_any(chars, 'a', 'z'))
        take(chars, 'A', 'Z');
    if (chars->count == beyond)
        take(chars, '!', '~');
    if (chars->count == 0)
        take(chars, 1, 126);
    /* letters beyond ASCII only when there is nothing else */
    bool plain = chars->count > beyond && beyond > 0;
    uint32_t from = plain ? beyond : 0, count = chars->count - from;
    if (count == 0)
        return NULL;
    struct node *node = arena_zero(arena, sizeof *node);
    uint32_t *list = arena_alloc(arena, count * sizeof *list);
    memcpy(list, chars->list + from, count * sizeof *list);
    node->kind = NODE_CHARS;
    node->chars = list;
    node->char_count = count;
    return node;
}

/* ---- reading ---- */

static enum err_code refuse(struct reading *reading, size_t at, const char *what)
{
    return err_set(reading->err, ERR_INVALID, "%s at byte %zu of the pattern", what, at + 1);
}

static bool more(const struct reading *reading)
{
    return reading->at < reading->text.n;
}

static bool ahead(const struct reading *reading, const char *text)
{
    size_t n = strlen(text);
    return reading->text.n - reading->at >= n && memcmp(reading->text.p + reading->at, text, n) == 0;
}

static bool skip(struct reading *reading, const char *text)
{
    if (!ahead(reading, text))
        return false;
    reading->at += strlen(text);
    return true;
}

/* One code point of UTF-8 that was checked when the schema was read. */
static uint32_t next_char(struct reading *reading)
{
    const unsigned char *p = (const unsigned char *)reading->text.p + reading->at;
    size_t left = reading->text.n - reading->at;
    unsigned n = *p < 0x80 ? 1 : *p < 0xe0 ? 2 : *p < 0xf0 ? 3 : 4;
    uint32_t c = n == 1 ? *p : *p & (0x7fU >> n);
    for (unsigned i = 1; i < n && i < left; i++)
        c = c << 6 | (p[i] & 0x3f);
    reading->at += n < left ? n : left;
    return c;
}

static bool read_hex(struct reading *reading, unsigned digits, uint32_t *out)
{
    uint32_t value = 0;
    if (reading->text.n - reading->at < digits)
        return false;
    for (unsigned i = 0; i < digits; i++) {
        char c = reading->text.p[reading->at + i];
        uint32_t digit = c >= '0' && c <= '9'   ? (uint32_t)(c - '0')
                         : c >= 'a' && c <= 'f' ? (uint32_t)(c - 'a') + 10
                         : c >= 'A' && c <= 'F' ? (uint32_t)(c - 'A') + 10
                                                : 16;
        if (digit == 16)
            return false;
        value = value << 4 | digit;
    }
    reading->at += digits;
    *out = value;
    return true;
}

static const struct {
    const char *name, *from_to; /* pairs */
} properties[] = {
    {"{L}", "azAZ"}, {"{Letter}", "azAZ"}, {"{Alphabetic}", "azAZ"}, {"{Ll}", "az"},      {"{Lu}", "AZ"},
    {"{N}", "09"},   {"{Nd}", "09"},       {"{Number}", "09"},       {"{Latin}", "azAZ"}, {"{Script=Latin}", "azAZ"},
};

static enum err_code read_property(struct reading *reading, size_t start, struct chars *chars)
{
    for (size_t i = 0; i < sizeof properties / sizeof *properties; i++) {
        if (!skip(reading, properties[i].name))
            continue;
        for (const char *p = properties[i].from_to; *p; p += 2)
            add_range(chars, (uint32_t)p[0], (uint32_t)p[1]);
        return ERR_NONE;
    }
    return refuse(reading, start, "\\p{…} of a kind that no text is made for");
}

/* Behind the backslash: one character or a class. *single is false for a class. */
static enum err_code read_escape(struct reading *reading, struct chars *chars, bool *single, uint32_t *c)
{
    size_t start = reading->at - 1;
    static const char controls[] = "t\tn\nr\rf\fv\v";
    *single = false;
    if (!more(reading))
        return refuse(reading, start, "a backslash without a character");
    char letter = reading->text.p[reading->at];
    if (add_escape_class(chars, letter)) {
        reading->at++;
        return ERR_NONE;
    }
    if (letter == 'p') {
        reading->at++;
        return read_property(reading, start, chars);
    }
    if (letter == 'P' || letter == 'k' || (letter >= '1' && letter <= '9'))
        return refuse(reading, start, letter == 'P' ? "\\P{…}" : "a back-reference");
    *single = true;
    *c = next_char(reading);
    if (letter == 'x' || letter == 'u') {
        bool good = letter == 'u' && skip(reading, "{") ? false : read_hex(reading, letter == 'x' ? 2 : 4, c);
        return good ? ERR_NONE : refuse(reading, start, "an escape that is not understood");
    }
    for (const char *p = controls; *p; p += 2)
        if (letter == *p)
            *c = (unsigned char)p[1];
    return ERR_NONE;
}

/* One member of a bracket expression; *single tells whether a range may begin with it. */
static enum err_code read_member(struct reading *reading, struct chars *chars, bool *single, uint32_t *c)
{
    *single = true;
    if (!skip(reading, "\\")) {
        *c = next_char(reading);
        return ERR_NONE;
    }
    if (skip(reading, "b")) {
        *c = '\b';
        return ERR_NONE;
    }
    return read_escape(reading, chars, single, c);
}

static void negate(struct chars *chars)
{
    struct chars others = {0};
    for (uint32_t c = ' '; c < 127; c++)
        if (!chars->ascii[c])
            add_char(&others, c);
    *chars = others;
}

/* Behind "[". */
static enum err_code read_brackets(struct reading *reading, struct node **out)
{
    size_t start = reading->at - 1;
    struct chars chars = {0};
    bool negated = skip(reading, "^");
    while (more(reading) && !ahead(reading, "]")) {
        bool single = true, to_single = true;
        uint32_t from = 0, to = 0;
        enum err_code code = read_member(reading, &chars, &single, &from);
        if (code)
            return code;
        if (!single)
            continue;
        to = from;
        if (ahead(reading, "-") && !ahead(reading, "-]")) {
            reading->at++;
            if (more(reading) && (code = read_member(reading, &chars, &to_single, &to)))
                return code;
        }
        if (to_single)
            add_range(&chars, from, to);
    }
    if (!skip(reading, "]"))
        return refuse(reading, start, "\"[\" is not closed");
    if (negated)
        negate(&chars);
    *out = chars_node(reading->arena, &chars);
    return *out ? ERR_NONE : refuse(reading, start, "a class that nothing is in");
}

static enum err_code read_choice(struct reading *reading, struct node **out);

/* Behind "(". */
static enum err_code read_group(struct reading *reading, struct node **out)
{
    size_t start = reading->at - 1;
    if (skip(reading, "?") && !skip(reading, ":")) {
        if (!skip(reading, "<") || ahead(reading, "=") || ahead(reading, "!"))
            return refuse(reading, start, "a look-ahead, look-behind or flag");
        while (more(reading) && !ahead(reading, ">"))
            reading->at++;
        skip(reading, ">");
    }
    if (++reading->depth > DEPTH_MAX)
        return refuse(reading, start, "groups nested too deeply");
    enum err_code code = read_choice(reading, out);
    reading->depth--;
    if (code)
        return code;
    return skip(reading, ")") ? ERR_NONE : refuse(reading, start, "\"(\" is not closed");
}

static struct node *one_char(struct arena *arena, uint32_t c)
{
    struct node *node = arena_zero(arena, sizeof *node);
    uint32_t *list = arena_alloc(arena, sizeof *list);
    *list = c;
    *node = (struct node){.kind = NODE_CHARS, .chars = list, .char_count = 1};
    return node;
}

/* *out NULL: an anchor, which stands for no text. */
static enum err_code read_atom(struct reading *reading, struct node **out)
{
    *out = NULL;
    if (skip(reading, "^") || skip(reading, "$") || skip(reading, "\\b"))
        return ERR_NONE;
    if (skip(reading, "["))
        return read_brackets(reading, out);
    if (skip(reading, "("))
        return read_group(reading, out);
    struct chars chars = {0};
    bool single = true;
    uint32_t c = 0;
    if (skip(reading, ".")) {
        add_range(&chars, ' ', '~');
        single = false;
    } else if (skip(reading, "\\")) {
        enum err_code code = read_escape(reading, &chars, &single, &c);
        if (code)
            return code;
    } else {
        c = next_char(reading);
    }
    *out = single ? one_char(reading->arena, c) : chars_node(reading->arena, &chars);
    return ERR_NONE;
}

static bool read_count(struct reading *reading, uint64_t *out)
{
    size_t start = reading->at;
    uint64_t value = 0;
    for (; more(reading); reading->at++) {
        char c = reading->text.p[reading->at];
        if (c < '0' || c > '9')
            break;
        value = value < REPEAT_MAX * 100 ? value * 10 + (uint64_t)(c - '0') : value;
    }
    *out = value;
    return reading->at > start;
}

/* "*", "+", "?", "{n}", "{n,}", "{n,m}"; false when none is there. */
static bool read_quantifier(struct reading *reading, uint64_t *min, uint64_t *max)
{
    size_t start = reading->at;
    *min = skip(reading, "+") ? 1 : 0;
    *max = UINT64_MAX;
    if (*min)
        return true;
    if (skip(reading, "*"))
        return true;
    if (skip(reading, "?")) {
        *max = 1;
        return true;
    }
    if (skip(reading, "{") && read_count(reading, min)) {
        *max = *min;
        if (skip(reading, ",") && !read_count(reading, max))
            *max = UINT64_MAX;
        if (skip(reading, "}"))
            return true;
    }
    reading->at = start;
    return false;
}

static struct node *repeated(struct arena *arena, struct node *node, uint64_t min, uint64_t max)
{
    struct node *repeat = arena_zero(arena, sizeof *repeat);
    *repeat = (struct node){.kind = NODE_REPEAT, .first = node, .repeat_min = min, .repeat_max = max};
    return repeat;
}

static enum err_code read_sequence(struct reading *reading, struct node **out)
{
    struct node *sequence = arena_zero(reading->arena, sizeof *sequence), **last = &sequence->first;
    sequence->kind = NODE_SEQUENCE;
    while (more(reading) && !ahead(reading, "|") && !ahead(reading, ")")) {
        struct node *node = NULL;
        size_t start = reading->at;
        uint64_t min = 0, max = 0;
        enum err_code code = read_atom(reading, &node);
        if (code)
            return code;
        if (node && read_quantifier(reading, &min, &max)) {
            if (min > REPEAT_MAX)
                return refuse(reading, start, "more repetitions than are made");
            skip(reading, "?"); /* lazy: the same texts */
            node = repeated(reading->arena, node, min, max);
        }
        if (node) {
            *last = node;
            last = &node->next;
        }
    }
    *out = sequence;
    return ERR_NONE;
}

static enum err_code read_choice(struct reading *reading, struct node **out)
{
    struct node *choice = arena_zero(reading->arena, sizeof *choice), **last = &choice->first;
    choice->kind = NODE_CHOICE;
    do {
        enum err_code code = read_sequence(reading, last);
        if (code)
            return code;
        last = &(*last)->next;
    } while (skip(reading, "|"));
    *out = choice;
    return ERR_NONE;
}

/* ---- counting ---- */

static void count_texts(struct node *node, uint64_t wish);

static void count_children(struct node *node, uint64_t wish)
{
    bool choice = node->kind == NODE_CHOICE;
    node->count = choice ? 0 : 1;
    node->length_min = choice ? UINT64_MAX : 0;
    node->length_max = 0;
    for (struct node *child = node->first; child; child = child->next) {
        count_texts(child, wish);
        if (choice) {
            node->count = plus(node->count, child->count);
            node->length_min = child->length_min < node->length_min ? child->length_min : node->length_min;
            node->length_max = child->length_max > node->length_max ? child->length_max : node->length_max;
        } else {
            node->count = times(node->count, child->count);
            node->length_min = plus(node->length_min, child->length_min);
            node->length_max = plus(node->length_max, child->length_max);
        }
    }
}

static void count_repeat(struct node *node, uint64_t wish)
{
    count_texts(node->first, wish);
    node->repeat = wish < node->repeat_min ? node->repeat_min : wish > node->repeat_max ? node->repeat_max : wish;
    node->count = 1;
    for (uint64_t i = 0; i < node->repeat; i++)
        node->count = times(node->count, node->first->count);
    node->length_min = times(node->first->length_min, node->repeat);
    node->length_max = times(node->first->length_max, node->repeat);
}

/* With every repetition as near to `wish` as its limits allow. */
static void count_texts(struct node *node, uint64_t wish)
{
    switch (node->kind) {
    case NODE_CHARS:
        node->count = node->char_count;
        node->length_min = node->length_max = 1;
        break;
    case NODE_SEQUENCE:
    case NODE_CHOICE: count_children(node, wish); break;
    case NODE_REPEAT: count_repeat(node, wish); break;
    }
}

/* Enough different texts of a length that is allowed; the most that can be had otherwise. */
static void choose_repeats(struct node *root, uint64_t length_min, uint64_t length_max)
{
    static const uint64_t wishes[] = {4,  3,  5,  6,  7,  8,  2,  1,  0,  9,  10, 11, 12, 13, 14,
                                      15, 16, 17, 18, 19, 20, 24, 28, 32, 36, 40, 48, 64, 128};
    const uint64_t enough = 1000000;
    uint64_t best = wishes[0], best_count = 0;
    for (size_t i = 0; i < sizeof wishes / sizeof *wishes && best_count < enough; i++) {
        count_texts(root, wishes[i]);
        bool fits = root->length_min >= length_min && root->length_max <= length_max;
        if (fits && root->count > best_count) {
            best = wishes[i];
            best_count = root->count;
        }
    }
    count_texts(root, best);
}

enum err_code pattern_text_new(struct arena *arena, struct str pattern, uint64_t length_min, uint64_t length_max,
                               struct pattern_text **out, struct err *err)
{
    struct reading reading = {.arena = arena, .text = pattern, .err = err};
    struct pattern_text *text = arena_zero(arena, sizeof *text);
    enum err_code code = read_choice(&reading, &text->root);
    if (code)
        return code;
    if (more(&reading))
        return refuse(&reading, reading.at, "\")\" without \"(\"");
    choose_repeats(text->root, length_min, length_max);
    if (text->root->length_max > LENGTH_MAX)
        return refuse(&reading, 0, "texts that are too long, from the beginning");
    *out = text;
    return ERR_NONE;
}

uint64_t pattern_text_count(const struct pattern_text *pattern)
{
    return pattern->root->count;
}

/* ---- writing ---- */

static void write_char(struct buf *out, uint32_t c)
{
    if (c < 0x80) {
        buf_add_char(out, (char)c);
        return;
    }
    unsigned n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    buf_add_char(out, (char)((0xf00U >> n & 0xf0U) | c >> 6 * (n - 1)));
    while (--n > 0)
        buf_add_char(out, (char)(0x80 | (c >> 6 * (n - 1) & 0x3f)));
}

static void write_node(const struct node *node, uint64_t n, struct buf *out);

/* The last child takes the lowest digit. */
static void write_children(const struct node *node, uint64_t n, struct buf *out)
{
    for (const struct node *child = node->first; child; child = child->next) {
        uint64_t below = 1;
        for (const struct node *later = child->next; later; later = later->next)
            below = times(below, later->count);
        write_node(child, n / below % child->count, out);
    }
}

static void write_repeat(const struct node *node, uint64_t n, struct buf *out)
{
    for (uint64_t i = 0; i < node->repeat; i++) {
        uint64_t below = 1;
        for (uint64_t later = i + 1; later < node->repeat; later++)
            below = times(below, node->first->count);
        write_node(node->first, n / below % node->first->count, out);
    }
}

static void write_node(const struct node *node, uint64_t n, struct buf *out)
{
    switch (node->kind) {
    case NODE_CHARS: write_char(out, node->chars[n % node->char_count]); break;
    case NODE_SEQUENCE: write_children(node, n, out); break;
    case NODE_REPEAT: write_repeat(node, n, out); break;
    case NODE_CHOICE:
        for (const struct node *child = node->first; child; child = child->next) {
            if (n < child->count || !child->next) {
                write_node(child, n, out);
                break;
            }
            n -= child->count;
        }
        break;
    }
}

void pattern_text_write(const struct pattern_text *pattern, uint64_t n, struct buf *out)
{
    write_node(pattern->root, n % pattern->root->count, out);
}
