/* Texts: by pattern, by format, by what the member's name suggests, else the name and the number. */
#include "sim/pattern_text.h"
#include "sim/sample_parts.h"

#include <ctype.h>

#define TEXT_BYTES_MAX 65536

struct limits {
    uint64_t min, max; /* characters */
};

static bool fits(struct limits limits, struct str text)
{
    return text.n >= limits.min && text.n <= limits.max;
}

/* ---- patterns ---- */

static const struct json *find_text(const struct facets *facets, const char *keyword)
{
    for (size_t i = 0; i < facets->count; i++) {
        const struct json *value = facet_get(facets, i, keyword);
        if (value && value->type == JSON_STRING)
            return value;
    }
    return NULL;
}

static enum err_code from_pattern(struct sampling *sampling, struct str pattern, struct limits limits, struct json *out)
{
    struct pattern_text *texts = NULL;
    struct err why = {0};
    if (pattern_text_new(sampling->arena, pattern, limits.min, limits.max, &texts, &why))
        return sampling_refuse(sampling, "no text can be made for pattern %.*s: %s", STR_ARG(pattern), why.text);
    struct buf text;
    buf_init(&text, TEXT_BYTES_MAX);
    pattern_text_write(texts, sampling_place(sampling, pattern_text_count(texts)), &text);
    bool over = text.over;
    *out = json_string(arena_str(sampling->arena, buf_str(&text)));
    buf_release(&text);
    return over ? sampling_refuse(sampling, "texts of pattern %.*s are too long", STR_ARG(pattern)) : ERR_NONE;
}

/* ---- formats ---- */

/* Points in time that differ: from 2026 on, with months of 28 days, so that no calendar is needed. */
static char *date_time(struct arena *arena, unsigned long long minutes)
{
    return arena_printf(arena, "%04llu-%02llu-%02lluT%02llu:%02llu:00Z", 2026 + minutes / 483840 % 7000,
                        minutes / 40320 % 12 + 1, minutes / 1440 % 28 + 1, minutes / 60 % 24, minutes % 60);
}

static char *date(struct arena *arena, unsigned long long days)
{
    return arena_printf(arena, "%04llu-%02llu-%02llu", 2026 + days / 336 % 7000, days / 28 % 12 + 1, days % 28 + 1);
}

static char *day_time(struct arena *arena, unsigned long long seconds)
{
    return arena_printf(arena, "%02llu:%02llu:%02lluZ", seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
}

/* The text of a format, NULL for one that says nothing about how a text looks. */
static const char *from_format(struct arena *arena, struct str format, struct str name, unsigned long long n)
{
    if (str_is(format, "date-time"))
        return date_time(arena, n);
    if (str_is(format, "date"))
        return date(arena, n);
    if (str_is(format, "time"))
        return day_time(arena, n);
    if (str_is(format, "email") || str_is(format, "idn-email"))
        return arena_printf(arena, "user%llu@example.com", n);
    if (str_is(format, "uuid"))
        return arena_printf(arena, "00000000-0000-4000-8000-%012llx", n & 0xffffffffffff);
    if (str_is(format, "uri") || str_is(format, "url") || str_is(format, "iri"))
        return arena_printf(arena, "https://example.com/%.*s/%llu", STR_ARG(name), n);
    if (str_is(format, "uri-reference") || str_is(format, "iri-reference") || str_is(format, "json-pointer"))
        return arena_printf(arena, "/%.*s/%llu", STR_ARG(name), n);
    if (str_is(format, "hostname") || str_is(format, "idn-hostname"))
        return arena_printf(arena, "host%llu.example.com", n);
    if (str_is(format, "ipv4"))
        return arena_printf(arena, "10.%llu.%llu.%llu", n >> 16 & 255, n >> 8 & 255, n & 255);
    if (str_is(format, "ipv6"))
        return arena_printf(arena, "2001:db8::%llx", n & 0xffff);
    if (str_is(format, "duration"))
        return arena_printf(arena, "PT%lluS", n + 1);
    return NULL;
}

/* ---- names ---- */

/* Whether name has this word in it, whatever the case. */
static bool speaks_of(struct str name, const char *word)
{
    size_t n = strlen(word);
    for (size_t at = 0; at + n <= name.n; at++) {
        size_t i = 0;
        while (i < n && tolower((unsigned char)name.p[at + i]) == word[i])
            i++;
        if (i == n)
            return true;
    }
    return false;
}

/* Members whose text other rules (currencies of normalisers) or people expect to be of a kind. */
static const char *from_name(struct arena *arena, struct str name, unsigned long long n)
{
    if (speaks_of(name, "currency"))
        return "EUR";
    if (speaks_of(name, "country"))
        return "DE";
    if (speaks_of(name, "email"))
        return arena_printf(arena, "user%llu@example.com", n);
    if (speaks_of(name, "url"))
        return arena_printf(arena, "https://example.com/%llu", n);
    return NULL;
}

static struct str plain_name(struct arena *arena, struct str name)
{
    char *out = arena_copy_str(arena, name);
    size_t n = 0;
    for (size_t i = 0; i < name.n && n < 24; i++)
        if (isalnum((unsigned char)name.p[i]) || name.p[i] == '_')
            out[n++] = (char)tolower((unsigned char)name.p[i]);
    return n ? (struct str){out, n} : STR("text");
}

/* n with 36 digits, exactly `length` of them: the lowest ones when there is no room for all. */
static struct str short_number(struct arena *arena, uint64_t n, uint64_t length)
{
    char *text = arena_alloc(arena, length + 1);
    text[length] = '\0';
    for (uint64_t i = length; i-- > 0; n /= 36)
        text[i] = "0123456789abcdefghijklmnopqrstuvwxyz"[n % 36];
    return (struct str){text, length};
}

/* "payment_id-17"; shorter or longer where the limits ask for it. */
static struct str from_number(struct sampling *sampling, struct limits limits)
{
    struct str name = plain_name(sampling->arena, sampling_name(sampling));
    const char *text = arena_printf(sampling->arena, "%.*s-%llu", STR_ARG(name), (unsigned long long)sampling->n);
    if (fits(limits, str_of(text)))
        return str_of(text);
    if (strlen(text) > limits.max)
        return short_number(sampling->arena, sampling->n,
                            limits.max < 8   ? limits.max
                            : limits.min > 8 ? limits.min
                                             : 8);
    size_t missing = (size_t)limits.min - strlen(text);
    char *filled = arena_alloc(sampling->arena, (size_t)limits.min + 1);
    memset(filled, 'x', missing);
    memcpy(filled + missing, text, strlen(text) + 1);
    return (struct str){filled, (size_t)limits.min};
}

static bool must_be_time(const struct sampling *sampling)
{
    for (size_t i = 0; i < sampling->request->time_count; i++)
        if (str_is(buf_str(&sampling->path), sampling->request->times[i]))
            return true;
    return false;
}

enum err_code sample_text(struct sampling *sampling, const struct facets *facets, struct json *out)
{
    struct limits limits = {facets_largest(facets, "minLength", 0), facets_smallest(facets, "maxLength", UINT64_MAX)};
    const struct json *pattern = find_text(facets, "pattern"), *format = find_text(facets, "format");
    if (limits.min > limits.max || limits.min > TEXT_BYTES_MAX)
        return sampling_refuse(sampling, "no text has the length that is asked for");
    if (pattern)
        return from_pattern(sampling, pattern->text, limits, out);
    struct str name = sampling_name(sampling);
    const char *text = NULL;
    if (must_be_time(sampling))
        text = date_time(sampling->arena, sampling->n);
    if (!text && format)
        text = from_format(sampling->arena, format->text, plain_name(sampling->arena, name), sampling->n);
    if (!text)
        text = from_name(sampling->arena, name, sampling->n);
    *out = json_string(text && fits(limits, str_of(text)) ? str_of(text) : from_number(sampling, limits));
    return ERR_NONE;
}
