#include "cli/out.h"

#include "base/buf.h"
#include "core/timestamp.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

static const char *const style_codes[] = {
    [OUT_PLAIN] = "",         [OUT_BOLD] = "\033[1m",    [OUT_DIM] = "\033[2m",   [OUT_RED] = "\033[31m",
    [OUT_GREEN] = "\033[32m", [OUT_YELLOW] = "\033[33m", [OUT_CYAN] = "\033[36m",
};

void out_init(struct out *out, FILE *file)
{
    struct winsize size;
    const char *no_colour = getenv("NO_COLOR"), *term = getenv("TERM");
    bool terminal = isatty(fileno(file)) == 1;
    *out = (struct out){.file = file};
    out->colours = terminal && !(no_colour && *no_colour) && !(term && strcmp(term, "dumb") == 0);
    if (terminal && ioctl(fileno(file), TIOCGWINSZ, &size) == 0)
        out->columns = size.ws_col;
}

static bool continues(unsigned char byte)
{
    return (byte & 0xC0) == 0x80;
}

size_t out_columns(struct str text)
{
    size_t n = 0;
    for (size_t i = 0; i < text.n; i++)
        n += !continues((unsigned char)text.p[i]);
    return n;
}

/* C0 controls, DEL, and the C1 controls U+0080..9F (C2 80..9F), which some terminals obey too. */
static bool harmful(struct str text, size_t i)
{
    unsigned char byte = (unsigned char)text.p[i];
    if (byte < 0x20 || byte == 0x7F)
        return true;
    return byte == 0xC2 && i + 1 < text.n && (unsigned char)text.p[i + 1] >= 0x80 &&
           (unsigned char)text.p[i + 1] < 0xA0;
}

void out_str(struct out *out, enum out_style style, struct str text)
{
    bool styled = out->colours && style != OUT_PLAIN;
    if (styled)
        fputs(style_codes[style], out->file);
    for (size_t i = 0; i < text.n; i++) {
        if (!harmful(text, i)) {
            fputc(text.p[i], out->file);
            continue;
        }
        if ((unsigned char)text.p[i] == 0xC2)
            i++;
        fprintf(out->file, "\\x%02x", (unsigned char)text.p[i]);
    }
    if (styled)
        fputs("\033[0m", out->file);
}

void out_text(struct out *out, enum out_style style, const char *text)
{
    out_str(out, style, str_of(text));
}

void out_printf(struct out *out, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vfprintf(out->file, format, list);
    va_end(list);
}

void out_json(struct out *out, const struct json *value, unsigned indent)
{
    struct buf text;
    buf_init(&text, 0);
    json_write_pretty(&text, value);
    struct str rest = buf_str(&text);
    while (rest.n > 0) {
        const char *newline = memchr(rest.p, '\n', rest.n);
        size_t n = newline ? (size_t)(newline - rest.p) : rest.n;
        fprintf(out->file, "%*s", (int)indent, "");
        out_str(out, OUT_PLAIN, (struct str){rest.p, n});
        fputc('\n', out->file);
        n += newline != NULL;
        rest = (struct str){rest.p + n, rest.n - n};
    }
    buf_release(&text);
}

void out_field(struct out *out, const char *name, struct str value)
{
    if (value.n == 0)
        return;
    fputs("  ", out->file);
    out_text(out, OUT_DIM, name);
    fprintf(out->file, "%*s", (int)(OUT_FIELD_COLUMNS - strlen(name)), "");
    out_str(out, OUT_PLAIN, value);
    fputc('\n', out->file);
}

/* ---- tables ---- */

void out_table_init(struct out_table *table, struct arena *arena, const char *const *heads, size_t columns)
{
    assert(columns > 0 && columns <= OUT_TABLE_COLUMNS_MAX);
    *table = (struct out_table){.arena = arena, .columns = columns};
    for (size_t i = 0; i < columns; i++)
        table->heads[i] = heads[i];
}

struct out_cell *out_table_row(struct out_table *table)
{
    if (table->rows == table->cap) {
        size_t cap = table->cap ? 2 * table->cap : 32;
        struct out_cell *cells = arena_zero(table->arena, cap * table->columns * sizeof *cells);
        if (table->rows > 0)
            memcpy(cells, table->cells, table->rows * table->columns * sizeof *cells);
        table->cells = cells;
        table->cap = cap;
    }
    return table->cells + table->rows++ * table->columns;
}

/* The beginning of text that takes at most `columns` on the screen. */
static struct str cut(struct str text, size_t columns)
{
    size_t n = 0, seen = 0;
    while (n < text.n) {
        if (!continues((unsigned char)text.p[n]) && seen++ == columns)
            break;
        n++;
    }
    return (struct str){text.p, n};
}

static void print_cell(struct out *out, struct out_cell cell, size_t width, bool last, size_t room)
{
    size_t taken = out_columns(cell.text);
    if (last && out->columns > 0 && taken > room) {
        out_str(out, cell.style, cut(cell.text, room > 1 ? room - 1 : 1));
        fputs("…", out->file);
        return;
    }
    out_str(out, cell.style, cell.text);
    if (!last)
        fprintf(out->file, "%*s", (int)(width - taken + 2), "");
}

static void print_row(struct out *out, const struct out_table *table, const struct out_cell *cells,
                      const size_t *widths)
{
    size_t used = 0, last = table->columns - 1;
    while (last > 0 && cells[last].text.n == 0)
        last--; /* no spaces behind the last text */
    for (size_t i = 0; i <= last; i++) {
        size_t room = out->columns > used ? out->columns - used : 1;
        print_cell(out, cells[i], widths[i], i == last, room);
        used += widths[i] + 2;
    }
    fputc('\n', out->file);
}

void out_table_print(struct out *out, const struct out_table *table)
{
    size_t widths[OUT_TABLE_COLUMNS_MAX] = {0};
    struct out_cell heads[OUT_TABLE_COLUMNS_MAX] = {0};
    for (size_t c = 0; c < table->columns; c++) {
        heads[c] = (struct out_cell){str_of(table->heads[c]), OUT_DIM};
        widths[c] = out_columns(heads[c].text);
        for (size_t r = 0; r < table->rows; r++) {
            size_t n = out_columns(table->cells[r * table->columns + c].text);
            widths[c] = n > widths[c] ? n : widths[c];
        }
    }
    print_row(out, table, heads, widths);
    for (size_t r = 0; r < table->rows; r++)
        print_row(out, table, table->cells + r * table->columns, widths);
}

/* ---- times ---- */

/* timestamp_to_utc writes fixed places: "2026-11-29T16:23:28" and perhaps a fraction. */
static int digits(const char *p, int count)
{
    int value = 0;
    for (int i = 0; i < count; i++)
        value = value * 10 + (p[i] - '0');
    return value;
}

static int64_t utc_ms(const char *text)
{
    struct tm tm = {
        .tm_year = digits(text, 4) - 1900, .tm_mon = digits(text + 5, 2) - 1, .tm_mday = digits(text + 8, 2)};
    tm.tm_hour = digits(text + 11, 2);
    tm.tm_min = digits(text + 14, 2);
    tm.tm_sec = digits(text + 17, 2);
    int64_t ms = (int64_t)timegm(&tm) * 1000, unit = 100;
    if (text[19] != '.')
        return ms;
    for (const char *p = text + 20; *p >= '0' && *p <= '9' && unit > 0; p++, unit /= 10)
        ms += (*p - '0') * unit;
    return ms;
}

bool out_parse_time(struct str text, int64_t *ms)
{
    struct buf utc;
    buf_init(&utc, 64);
    bool good = text.p && timestamp_to_utc(&utc, text) && !utc.over;
    if (good)
        *ms = utc_ms(utc.p);
    buf_release(&utc);
    return good;
}

void out_span(int64_t ms, char *text)
{
    const char *sign = ms < 0 ? "-" : "";
    int64_t span = ms < 0 ? -ms : ms;
    int64_t s = span / 1000;
    if (span < 1000)
        snprintf(text, OUT_SPAN_SIZE, "%s%" PRId64 " ms", sign, span);
    else if (s < 60)
        snprintf(text, OUT_SPAN_SIZE, "%s%" PRId64 ".%" PRId64 " s", sign, s, span % 1000 / 100);
    else if (s < 3600)
        snprintf(text, OUT_SPAN_SIZE, "%s%" PRId64 " min %02" PRId64 " s", sign, s / 60, s % 60);
    else if (s < 86400)
        snprintf(text, OUT_SPAN_SIZE, "%s%" PRId64 " h %02" PRId64 " min", sign, s / 3600, s % 3600 / 60);
    else
        snprintf(text, OUT_SPAN_SIZE, "%s%" PRId64 " d %" PRId64 " h", sign, s / 86400, s % 86400 / 3600);
}
