/* Text for people: colours only on a terminal and without NO_COLOR, tables, times as people say them. Whatever came
 * over the wire is printed with control bytes made visible, so that a provider's message cannot steer the terminal. */
#ifndef CLI_OUT_H
#define CLI_OUT_H

#include "base/arena.h"
#include "base/json.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum out_style { OUT_PLAIN, OUT_BOLD, OUT_DIM, OUT_RED, OUT_GREEN, OUT_YELLOW, OUT_CYAN };

struct out {
    FILE *file;
    bool colours;
    size_t columns; /* of the terminal; 0 = not a terminal, lines are not cut */
};

/* Looks at the file, NO_COLOR and TERM. */
void out_init(struct out *out, FILE *file);

/* Prints text in a style, control bytes as \xNN. */
void out_str(struct out *out, enum out_style style, struct str text);
void out_text(struct out *out, enum out_style style, const char *text); /* NULL prints nothing */
/* Our own words only: format arguments are not cleaned. */
void out_printf(struct out *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Pretty JSON, each line behind `indent` spaces. */
void out_json(struct out *out, const struct json *value, unsigned indent);
/* "  name          value"; nothing when value is absent or empty. */
void out_field(struct out *out, const char *name, struct str value);
#define OUT_FIELD_COLUMNS 14

/* Characters that text takes on the screen, UTF-8 counted by code points. */
size_t out_columns(struct str text);

/* ---- tables ---- */

#define OUT_TABLE_COLUMNS_MAX 10

struct out_cell {
    struct str text;
    enum out_style style;
};

struct out_table {
    struct arena *arena; /* borrowed; holds the cells, not their texts */
    size_t columns;
    const char *heads[OUT_TABLE_COLUMNS_MAX];
    struct out_cell *cells; /* rows * columns */
    size_t rows, cap;
};

void out_table_init(struct out_table *table, struct arena *arena, const char *const *heads, size_t columns);
/* A new row of `columns` empty cells to be filled in. */
struct out_cell *out_table_row(struct out_table *table);
/* The last column takes what is left of the terminal's width. */
void out_table_print(struct out *out, const struct out_table *table);

/* ---- times ---- */

/* Milliseconds since 1970 of an RFC 3339 text as the daemon writes it; false for anything else. */
bool out_parse_time(struct str text, int64_t *ms);
/* "0 ms", "350 ms", "1.2 s", "3 min 05 s", "2 h 10 min", "3 d 4 h"; negative spans with a minus sign. */
#define OUT_SPAN_SIZE 32
void out_span(int64_t ms, char *text);

#endif
