#include "door/suggest.h"

/* Edits between two short texts (Levenshtein), one row at a time. */
static unsigned distance(struct str a, struct str b)
{
    unsigned char row[SUGGEST_BYTES_MAX + 1];
    for (size_t j = 0; j <= b.n; j++)
        row[j] = (unsigned char)j;
    for (size_t i = 1; i <= a.n; i++) {
        unsigned diagonal = row[0];
        row[0] = (unsigned char)i;
        for (size_t j = 1; j <= b.n; j++) {
            unsigned best = diagonal + (a.p[i - 1] != b.p[j - 1]);
            if (row[j] + 1u < best)
                best = row[j] + 1u;
            if (row[j - 1] + 1u < best)
                best = row[j - 1] + 1u;
            diagonal = row[j];
            row[j] = (unsigned char)best;
        }
    }
    return row[b.n];
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
