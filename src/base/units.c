#include "base/units.h"

struct unit {
    const char *name;
    uint64_t factor;
};

static const struct unit durations[] = {
    {"ms", 1}, {"s", 1000}, {"m", 60 * 1000}, {"h", 60 * 60 * 1000}, {"d", 24 * 60 * 60 * 1000}};
static const struct unit sizes[] = {{"", 1}, {"B", 1}, {"KB", 1024}, {"MB", 1024 * 1024}, {"GB", 1024 * 1024 * 1024}};

/* Leading digits; false without one or when the value is out of any range that a unit could have. */
static bool read_number(struct str text, uint64_t *number, struct str *rest)
{
    size_t i = 0;
    uint64_t value = 0;
    for (; i < text.n && text.p[i] >= '0' && text.p[i] <= '9'; i++) {
        if (value > UINT64_MAX / 1000) {
            return false;
        }
        value = value * 10 + (uint64_t)(text.p[i] - '0');
    }
    *number = value;
    *rest = (struct str){text.p + i, text.n - i};
    return i > 0;
}

static bool apply(const struct unit *units, size_t count, struct str unit, uint64_t number, uint64_t max, uint64_t *out)
{
    for (size_t i = 0; i < count; i++) {
        if (str_is(unit, units[i].name)) {
            *out = number * units[i].factor;
            return number <= max / units[i].factor;
        }
    }
    return false;
}

enum err_code units_duration_ms(struct str text, int64_t *ms, struct err *err)
{
    uint64_t number, value;
    struct str unit;
    if (text.p && read_number(text, &number, &unit)) {
        if (number == 0 && unit.n == 0) {
            *ms = 0;
            return ERR_NONE;
        }
        if (apply(durations, sizeof(durations) / sizeof(*durations), unit, number, UNITS_DURATION_MS_MAX, &value)) {
            *ms = (int64_t)value;
            return ERR_NONE;
        }
    }
    return err_set(
        err, ERR_INVALID,
        "\"%.*s\" is not a duration, expected a whole number with a unit (500ms, 10s, 5m, 24h, 30d), at most "
        "3650d",
        (int)(text.n > 64 ? 64 : text.n), text.p ? text.p : "");
}

enum err_code units_bytes(struct str text, size_t *bytes, struct err *err)
{
    uint64_t number, value;
    struct str unit;
    if (text.p && read_number(text, &number, &unit) &&
        apply(sizes, sizeof(sizes) / sizeof(*sizes), unit, number, INT64_MAX, &value)) {
        *bytes = (size_t)value;
        return ERR_NONE;
    }
    return err_set(
        err, ERR_INVALID,
        "\"%.*s\" is not a size, expected a whole number of bytes or one with a unit (64KB, 1MB; 1024-based)",
        (int)(text.n > 64 ? 64 : text.n), text.p ? text.p : "");
}
