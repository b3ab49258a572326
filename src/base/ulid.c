#include "base/ulid.h"

#include <string.h>

static const char alphabet[] = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";

void ulid_source_init(struct ulid_source *source, struct env *env)
{
    *source = (struct ulid_source){.env = env, .last_ms = -1};
}

void ulid_next(struct ulid_source *source, char out[ULID_CHARS + 1])
{
    int64_t now = source->env->now_ms(source->env);
    if (now < 0)
        now = 0; /* before 1970 cannot be written */
    if (now > source->last_ms) {
        source->last_ms = now;
        source->env->random(source->env, source->last, sizeof source->last);
        source->last[0] &= 0x7f; /* room to count up within one millisecond */
    } else {
        int i = (int)sizeof source->last - 1;
        while (i >= 0 && ++source->last[i] == 0)
            i--;
        if (i < 0)
            source->last_ms++; /* 2^79 ids in a millisecond: borrow the next one */
    }
    uint64_t ms = (uint64_t)source->last_ms;
    for (int i = 9; i >= 0; i--) {
        out[i] = alphabet[ms & 31];
        ms >>= 5;
    }
    unsigned bits = 0, held = 0;
    int at = 10;
    for (size_t i = 0; i < sizeof source->last; i++) {
        bits = bits << 8 | source->last[i];
        held += 8;
        while (held >= 5) {
            held -= 5;
            out[at++] = alphabet[bits >> held & 31];
        }
    }
    out[ULID_CHARS] = '\0';
}

bool ulid_valid(const char *text)
{
    for (int i = 0; i < ULID_CHARS; i++)
        if (!text[i] || !strchr(alphabet, text[i]))
            return false;
    return text[ULID_CHARS] == '\0' && text[0] <= '7';
}

int64_t ulid_time_ms(const char *text)
{
    int64_t ms = 0;
    for (int i = 0; i < 10; i++)
        ms = ms << 5 | (strchr(alphabet, text[i]) - alphabet);
    return ms;
}
