/* What went wrong, for callers and for people. A function that can fail returns an error code (0 = fine) and fills
 * `struct err`; the first error wins, callers add context in front. One text reaches HTTP, CLI and logs. */
#ifndef BASE_ERR_H
#define BASE_ERR_H

enum err_code {
    ERR_NONE = 0,
    ERR_INVALID,     /* the input is malformed or refused: the sender must change it */
    ERR_LIMIT,       /* the input is over a stated maximum */
    ERR_NOT_FOUND,   /* no such thing, or not for this caller */
    ERR_CONFLICT,    /* the thing exists and differs */
    ERR_STALE,       /* compare-and-set lost: the caller looked at an older version */
    ERR_DENIED,      /* the caller may not */
    ERR_UNAVAILABLE, /* not now (disk full, busy, stopping): nothing was done, try again */
    ERR_CORRUPT,     /* stored data is damaged */
    ERR_IO,          /* the operating system or a library refused */
    ERR_INTERNAL     /* a bug or a broken contract of ours */
};

#define ERR_TEXT_MAX 512 /* bytes, NUL included; longer texts are cut */

struct err {
    enum err_code code;
    char text[ERR_TEXT_MAX];
};

/* Records code and text unless an error is recorded already. Returns code. err may be NULL. */
enum err_code err_set(struct err *err, enum err_code code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Puts context in front of the recorded text ("tools.pay: " + text). No effect without an error. */
void err_prefix(struct err *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

void err_clear(struct err *err);

/* Stable lower-case name of a code, for logs and JSON. */
const char *err_name(enum err_code code);

#endif
