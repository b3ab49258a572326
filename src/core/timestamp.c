#include "core/timestamp.h"

#include <stdint.h>

struct moment {
    int year, month, day, hour, minute, second;
    struct str fraction; /* digits behind the point, trailing zeros dropped */
    int offset_minutes;
};

/* Reads `count` digits at *p, which moves on. -1 when there are fewer. */
static int read_number(const char **p, const char *end, int count)
{
    int value = 0;
    if (end - *p < count)
        return -1;
    for (int i = 0; i < count; i++, (*p)++) {
        if (**p < '0' || **p > '9')
            return -1;
        value = value * 10 + (**p - '0');
    }
    return value;
}

static bool read_char(const char **p, const char *end, const char *allowed)
{
    if (*p == end || !**p || !strchr(allowed, **p))
        return false;
    (*p)++;
    return true;
}

static bool is_leap(int year)
{
    return (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
}

static int month_days(int year, int month)
{
    static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    return month == 2 && is_leap(year) ? 29 : days[month - 1];
}

static bool read_date(const char **p, const char *end, struct moment *m)
{
    m->year = read_number(p, end, 4);
    if (m->year < 0 || !read_char(p, end, "-"))
        return false;
    m->month = read_number(p, end, 2);
    if (m->month < 1 || m->month > 12 || !read_char(p, end, "-"))
        return false;
    m->day = read_number(p, end, 2);
    return m->day >= 1 && m->day <= month_days(m->year, m->month);
}

static bool read_fraction(const char **p, const char *end, struct moment *m)
{
    m->fraction = STR_NONE;
    if (!read_char(p, end, "."))
        return true;
    const char *start = *p;
    while (*p < end && **p >= '0' && **p <= '9')
        (*p)++;
    m->fraction = (struct str){start, (size_t)(*p - start)};
    if (m->fraction.n == 0)
        return false;
    while (m->fraction.n > 0 && m->fraction.p[m->fraction.n - 1] == '0')
        m->fraction.n--;
    return true;
}

static bool read_time(const char **p, const char *end, struct moment *m)
{
    m->hour = read_number(p, end, 2);
    if (m->hour < 0 || m->hour > 23 || !read_char(p, end, ":"))
        return false;
    m->minute = read_number(p, end, 2);
    if (m->minute < 0 || m->minute > 59 || !read_char(p, end, ":"))
        return false;
    m->second = read_number(p, end, 2);
    return m->second >= 0 && m->second <= 60 && read_fraction(p, end, m);
}

static bool read_offset(const char **p, const char *end, struct moment *m)
{
    m->offset_minutes = 0;
    if (read_char(p, end, "Zz"))
        return true;
    bool west = *p < end && **p == '-';
    if (!read_char(p, end, "+-"))
        return false;
    int hours = read_number(p, end, 2);
    if (hours < 0 || hours > 23 || !read_char(p, end, ":"))
        return false;
    int minutes = read_number(p, end, 2);
    if (minutes < 0 || minutes > 59)
        return false;
    m->offset_minutes = (west ? -1 : 1) * (hours * 60 + minutes);
    return true;
}

/* Offsets are less than a day, so at most one date line is crossed. */
static bool move_to_utc(struct moment *m)
{
    int minutes = m->hour * 60 + m->minute - m->offset_minutes;
    if (minutes < 0 && --m->day == 0) {
        if (--m->month == 0) {
            m->month = 12;
            m->year--;
        }
        m->day = month_days(m->year, m->month);
    } else if (minutes >= 24 * 60 && ++m->day > month_days(m->year, m->month)) {
        m->day = 1;
        if (++m->month == 13) {
            m->month = 1;
            m->year++;
        }
    }
    minutes = (minutes + 24 * 60) % (24 * 60);
    m->hour = minutes / 60;
    m->minute = minutes % 60;
    return m->year >= 0 && m->year <= 9999;
}

bool timestamp_to_utc(struct buf *out, struct str text)
{
    struct moment m;
    const char *p = text.p, *end = text.p + text.n;
    if (!read_date(&p, end, &m) || !read_char(&p, end, "Tt ") || !read_time(&p, end, &m) || !read_offset(&p, end, &m) ||
        p != end || !move_to_utc(&m))
        return false;
    if (m.second == 60 && (m.hour != 23 || m.minute != 59))
        return false;
    buf_printf(out, "%04d-%02d-%02dT%02d:%02d:%02d", m.year, m.month, m.day, m.hour, m.minute, m.second);
    if (m.fraction.n > 0) {
        buf_add_char(out, '.');
        buf_add_str(out, m.fraction);
    }
    buf_add_char(out, 'Z');
    return true;
}
