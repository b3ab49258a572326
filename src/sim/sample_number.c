/* Numbers: exact decimals, counted in units of a common power of ten. */
#include "sim/sample_parts.h"

#define SCALE_MAX  9
#define UNITS_MAX  INT64_C(1000000000000000000)
#define DIGITS_MAX 18

/* value = units / 10^scale */
struct decimal {
    int64_t units;
    unsigned scale;
};

static bool multiply(int64_t *units, int64_t by)
{
    return !__builtin_mul_overflow(*units, by, units) && *units <= UNITS_MAX && *units >= -UNITS_MAX;
}

/* False for what has more digits than are dealt with here. */
static bool parse(struct str text, struct decimal *out)
{
    size_t at = text.n && text.p[0] == '-';
    int64_t units = 0;
    int scale = 0, exponent = 0;
    bool negative = at == 1, behind_point = false;
    for (; at < text.n && text.p[at] != 'e' && text.p[at] != 'E'; at++) {
        if (text.p[at] == '.') {
            behind_point = true;
            continue;
        }
        if (!multiply(&units, 10))
            return false;
        units += text.p[at] - '0';
        scale += behind_point;
    }
    if (at < text.n) {
        bool minus = text.p[++at] == '-';
        at += minus || text.p[at] == '+';
        for (; at < text.n; at++)
            exponent = exponent < 100 ? exponent * 10 + (text.p[at] - '0') : exponent;
        scale += minus ? exponent : -exponent;
    }
    while (scale > 0 && units % 10 == 0) {
        units /= 10;
        scale--;
    }
    for (; scale < 0; scale++)
        if (!multiply(&units, 10))
            return false;
    if (scale > SCALE_MAX)
        return false;
    *out = (struct decimal){negative ? -units : units, (unsigned)scale};
    return true;
}

static bool rescale(struct decimal *value, unsigned scale)
{
    for (; value->scale < scale; value->scale++)
        if (!multiply(&value->units, 10))
            return false;
    return true;
}

/* The bounds of all facets; all have the same scale in the end. */
struct range {
    struct decimal min, max, step;
    bool has_min, has_max, min_excluded, max_excluded, has_step;
    unsigned scale;
};

static int compare(struct decimal a, struct decimal b)
{
    unsigned scale = a.scale > b.scale ? a.scale : b.scale;
    if (!rescale(&a, scale) || !rescale(&b, scale))
        return 0;
    return (a.units > b.units) - (a.units < b.units);
}

/* Draft 4 had exclusiveMinimum as a boolean; schema_new refuses that. */
static bool read_bound(struct range *range, const struct json *value, bool minimum, bool excluded)
{
    struct decimal bound;
    if (!value || value->type != JSON_NUMBER)
        return true;
    if (!parse(value->text, &bound))
        return false;
    range->scale = bound.scale > range->scale ? bound.scale : range->scale;
    if (minimum &&
        (!range->has_min || compare(bound, range->min) > 0 || (excluded && compare(bound, range->min) == 0))) {
        range->min = bound;
        range->min_excluded = excluded;
        range->has_min = true;
    }
    if (!minimum &&
        (!range->has_max || compare(bound, range->max) < 0 || (excluded && compare(bound, range->max) == 0))) {
        range->max = bound;
        range->max_excluded = excluded;
        range->has_max = true;
    }
    return true;
}

/* One multipleOf is followed; of several, the largest, and validation tells. */
static bool read_step(struct range *range, const struct json *value)
{
    struct decimal step;
    if (!value || value->type != JSON_NUMBER)
        return true;
    if (!parse(value->text, &step) || step.units <= 0)
        return false;
    range->scale = step.scale > range->scale ? step.scale : range->scale;
    if (!range->has_step || compare(step, range->step) > 0)
        range->step = step;
    range->has_step = true;
    return true;
}

static bool read_range(struct range *range, const struct facets *facets)
{
    bool good = true;
    for (size_t i = 0; good && i < facets->count; i++)
        good = read_bound(range, facet_get(facets, i, "minimum"), true, false) &&
               read_bound(range, facet_get(facets, i, "exclusiveMinimum"), true, true) &&
               read_bound(range, facet_get(facets, i, "maximum"), false, false) &&
               read_bound(range, facet_get(facets, i, "exclusiveMaximum"), false, true) &&
               read_step(range, facet_get(facets, i, "multipleOf"));
    return good;
}

/* Distance of two values: whole numbers by one, others by a half so that there is a fraction now and then, or finer
 * where the range is narrow. */
static bool set_step(struct range *range, bool integer)
{
    if (!range->has_step && integer)
        range->step = (struct decimal){1, 0};
    if (!range->has_step && !integer) {
        bool narrow = range->has_min && range->has_max;
        range->step = narrow ? (struct decimal){1, range->scale < SCALE_MAX - 3 ? range->scale + 3 : SCALE_MAX}
                             : (struct decimal){5, 1};
        range->scale = range->step.scale > range->scale ? range->step.scale : range->scale;
    }
    return rescale(&range->min, range->scale) && rescale(&range->max, range->scale) &&
           rescale(&range->step, range->scale);
}

/* The smallest multiple of step that is at least (more than, when excluded) units. */
static int64_t first_multiple(int64_t units, int64_t step, bool excluded)
{
    int64_t quotient = units / step;
    if (quotient * step < units)
        quotient++;
    if (excluded && quotient * step == units)
        quotient++;
    return quotient * step;
}

static void write(struct sampling *sampling, int64_t units, unsigned scale, struct json *out)
{
    while (scale > 0 && units % 10 == 0) {
        units /= 10;
        scale--;
    }
    uint64_t power = 1, size = units < 0 ? (uint64_t)-units : (uint64_t)units;
    for (unsigned i = 0; i < scale; i++)
        power *= 10;
    const char *sign = units < 0 ? "-" : "";
    const char *text = scale ? arena_printf(sampling->arena, "%s%llu.%0*llu", sign, (unsigned long long)(size / power),
                                            (int)scale, (unsigned long long)(size % power))
                             : arena_printf(sampling->arena, "%s%llu", sign, (unsigned long long)size);
    *out = json_number(str_of(text));
}

enum err_code sample_number(struct sampling *sampling, const struct facets *facets, bool integer, struct json *out)
{
    struct range range = {.scale = 0};
    if (!read_range(&range, facets) || !set_step(&range, integer))
        return sampling_refuse(sampling, "bounds of more than %d digits", DIGITS_MAX);
    int64_t step = range.step.units, one = 1;
    for (unsigned i = 0; i < range.scale; i++)
        one *= 10;
    if (integer && range.has_step && step % one != 0)
        for (int64_t fine = step; step % one != 0;)
            step += fine; /* a multiple that is whole: at most 10^scale rounds, and scales are small */
    /* without a lower bound: from one upwards, or below the upper bound */
    int64_t first = range.has_min ? first_multiple(range.min.units, step, range.min_excluded) : step;
    if (!range.has_min && range.has_max && first > range.max.units - (range.max_excluded ? 1 : 0))
        first = first_multiple(range.max.units - 1000 * step, step, false);
    uint64_t count = UINT64_MAX;
    if (range.has_max) {
        int64_t last = range.max.units - (range.max_excluded ? 1 : 0);
        if (last < first)
            return sampling_refuse(sampling, "no number lies within the bounds");
        count = (uint64_t)(last - first) / (uint64_t)step + 1;
    }
    uint64_t place = count == UINT64_MAX ? sampling->n : sampling_place(sampling, count);
    int64_t offset = (int64_t)(place % (UINT64_C(1) << 40));
    int64_t units = 0;
    if (__builtin_mul_overflow(offset, step, &units) || __builtin_add_overflow(units, first, &units))
        return sampling_refuse(sampling, "bounds of more than %d digits", DIGITS_MAX);
    write(sampling, units, range.scale, out);
    return ERR_NONE;
}
