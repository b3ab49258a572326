/* The SMTP dialogue from MAIL to the answer to the message, as a pure state machine: reply lines in, commands out, at
 * the end a finding. Bytes are moved by mail_wire.c.
 *
 *   MAIL ─► RCPT … RCPT ─► DATA ─► message ─► "." ─► answer
 *   ◄────────── no effect, whatever happens ──────►│◄─ 2xx success, 4xx and 5xx no effect, anything else unknown
 *
 * All recipients or none: when one is refused, DATA is not sent (a message that only some get could not be told apart
 * from one that must be sent again). Commands are not pipelined; a server that answers before it was asked ends the
 * dialogue before the message could be taken. */
#ifndef ADAPTER_MAIL_SMTP_H
#define ADAPTER_MAIL_SMTP_H

#include "base/arena.h"
#include "base/buf.h"
#include "core/operation.h"

#define SMTP_LINE_BYTES_MAX 4096 /* RFC 5321 says 512; servers write stories */
#define SMTP_LINES_MAX      128  /* of one reply */
#define SMTP_TEXT_BYTES_MAX 400  /* of a reply that is kept */

/* What is to be sent. Borrowed. */
struct smtp_mail {
    const char *from; /* envelope sender */
    const char *const *recipients;
    size_t recipient_count;
    bool utf8;       /* addresses beyond ASCII */
    struct str data; /* dots doubled, ends in CRLF, without the final dot */
};

/* What the server said while libcurl connected. */
struct smtp_greeting {
    bool utf8, size;    /* SMTPUTF8; SIZE */
    bool authenticated; /* 235 was answered */
    int code;           /* of the last reply line; 0 = none yet */
    char text[SMTP_TEXT_BYTES_MAX + 1];
};
/* Each line, CRLF or not. */
void smtp_greeting_line(struct smtp_greeting *greeting, struct str line);

enum smtp_step { SMTP_MAIL, SMTP_RCPT, SMTP_DATA, SMTP_MESSAGE, SMTP_END, SMTP_OVER };

/* What came of it. */
struct smtp_finding {
    enum outcome outcome; /* SUCCESS, REFUSED, NOT_PROCESSED, PROVIDER_ERROR, UNREADABLE, TIMEOUT, CONNECTION_LOST */
    int code;             /* the reply's that decided, 0 = none */
    const char *text;     /* in arena */
};

struct smtp_dialogue {
    struct arena *arena; /* borrowed */
    const struct smtp_mail *mail;
    enum smtp_step step;
    size_t recipient;   /* whose reply is awaited */
    bool message_begun; /* the server is in the middle of the message until the final dot */
    bool end_sent;      /* the final dot may have left: from here on an effect is possible */
    /* the reply being read */
    int code;
    unsigned lines;
    struct buf text;
    /* refused recipients */
    struct buf refused;
    int refused_code;
    struct smtp_finding finding; /* SMTP_OVER */
};

/* Appends the first command. End with smtp_release. */
void smtp_start(struct smtp_dialogue *dialogue, struct arena *arena, const struct smtp_mail *mail,
                const struct smtp_greeting *greeting, struct buf *out);
void smtp_release(struct smtp_dialogue *dialogue);

/* One line of a reply, without CRLF. *out gets what is to be sent next; nothing while the reply goes on. behind: bytes
 * came behind this line already: fatal unless the reply goes on. */
void smtp_line(struct smtp_dialogue *dialogue, struct str line, bool behind, struct buf *out);
/* All that was appended has been given to the system. In SMTP_MESSAGE: appends the final dot, from when on an effect is
 * possible. Look for input that nobody asked for first. */
void smtp_written(struct smtp_dialogue *dialogue, struct buf *out);

/* The dialogue ends here. */
enum smtp_break { SMTP_LOST, SMTP_TIMED_OUT, SMTP_UNREADABLE };
void smtp_broken(struct smtp_dialogue *dialogue, enum smtp_break how, const char *why);

/* Printable ASCII of at most SMTP_TEXT_BYTES_MAX bytes, the rest replaced; NUL-terminated. */
void smtp_clean(struct str text, char out[SMTP_TEXT_BYTES_MAX + 1]);

#endif
