#include "door/suggest.h"

static unsigned least(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

/* Edits between two short texts, neighbours that change places being one (optimal string alignment), row by row. */
static unsigned distance(struct str a, struct str b)
{
    unsigned rows[3][SUGGEST_BYTES_MAX + 1];
    unsigned *before = rows[0], *last = rows[1], *row = rows[2];
    for (unsigned j = 0; j <= b.n; j++)
        last[j] = j;
    for (unsigned i = 1; i <= a.n; i++) {
        row[0] = i;
        for (unsigned j = 1; j <= b.n; j++) {
            row[j] = least(least(last[j], row[j - 1]) + 1, last[j - 1] + (a.p[i - 1] != b.p[j - 1]));
            if (i > 1 && j > 1 && a.p[i - 1] == b.p[j - 2] && a.p[i - 2] == b.p[j - 1])
                row[j] = least(row[j], before[j - 2] + 1);
        }
        unsigned *spare = before;
        before = last;
        last = row;
        row = spare;
    }
    return last[b.n];
}

struct suggestion suggestion_for(struct str wanted)
{
    return (struct suggestion){.wanted = wanted, .distance = (unsigned)(wanted.n / 3 < 1 ? 1 : wanted.n / 3) + 1};
}

void suggestion_offer(struct suggestion *suggestion, const char *name)
{
    struct str text = str_of(name);
    if (suggestion->wanted.n > SUGGEST_BYTES_MAX || text.n > SUGGEST_BYTES_MAX)
        return;
    unsigned edits = distance(suggestion->wanted, text);
    if (edits < suggestion->distance) {
        suggestion->distance = edits;
        suggestion->name = name;
    }
}
