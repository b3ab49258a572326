/* A borrowed run of bytes. Bytes may contain NUL; nobody owns them through this struct. */
#ifndef BASE_STR_H
#define BASE_STR_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

struct str {
    const char *p; /* NULL means absent */
    size_t n;      /* bytes */
};

#define STR(literal) ((struct str){(literal), sizeof(literal) - 1})
#define STR_NONE     ((struct str){NULL, 0})
/* For printf: "%.*s", STR_ARG(s) */
#define STR_ARG(s) (int)(s).n, (s).p ? (s).p : ""

/* Borrows text; NULL gives the absent string. */
static inline struct str str_of(const char *text)
{
    return text ? (struct str){text, strlen(text)} : STR_NONE;
}

static inline bool str_equal(struct str a, struct str b)
{
    return a.n == b.n && (a.n == 0 || memcmp(a.p, b.p, a.n) == 0);
}

static inline bool str_is(struct str a, const char *text)
{
    return str_equal(a, str_of(text));
}

/* Both absent, or both present and equal. */
static inline bool text_equal(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

#endif
