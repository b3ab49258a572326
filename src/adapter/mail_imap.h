/* The IMAP dialogue of a look-up, as a pure state machine: response bytes in, commands out, at the end found, absent or
 * cannot tell (design 7.1).
 *
 *   EXAMINE folder ─► UID SEARCH HEADER Message-ID ─► UID FETCH their Message-ID ─► how many are exactly ours
 *
 * Servers search for a part of the header, some in an index of words: what they found is looked at. Anything that is
 * not understood is "cannot tell". */
#ifndef ADAPTER_MAIL_IMAP_H
#define ADAPTER_MAIL_IMAP_H

#include "base/arena.h"
#include "base/buf.h"
#include "core/operation.h"

#define IMAP_RESPONSE_BYTES_MAX (64 * 1024) /* one response with its literals */
#define IMAP_TOTAL_BYTES_MAX    (1024 * 1024)
#define IMAP_MATCHES_MAX        50 /* that are looked at; more is "cannot tell" */

enum imap_step { IMAP_EXAMINE, IMAP_SEARCH, IMAP_FETCH, IMAP_OVER };

struct imap_finding {
    enum outcome outcome; /* FOUND, SEVERAL, ABSENT, CANNOT_TELL */
    unsigned matches;
    uint32_t uid;     /* FOUND */
    const char *text; /* in arena, NULL = nothing to add */
};

struct imap_dialogue {
    struct arena *arena;             /* borrowed, as the next two */
    const char *folder, *message_id; /* printable ASCII; message_id with "<>" */
    enum imap_step step;
    struct buf in; /* what has come of a response */
    size_t total;
    bool searched; /* a SEARCH response was there */
    uint32_t uids[IMAP_MATCHES_MAX];
    bool looked_at[IMAP_MATCHES_MAX];
    size_t uid_count, looked_at_count;
    unsigned matches;
    uint32_t match_uid;
    struct imap_finding finding; /* IMAP_OVER */
};

/* Appends the first command. End with imap_release. */
void imap_start(struct imap_dialogue *dialogue, struct arena *arena, const char *folder, const char *message_id,
                struct buf *out);
void imap_release(struct imap_dialogue *dialogue);
/* What came from the server, in pieces of any size; *out gets what is to be sent next. */
void imap_take(struct imap_dialogue *dialogue, struct str bytes, struct buf *out);
/* Lost, timed out: cannot tell. */
void imap_broken(struct imap_dialogue *dialogue, const char *why);

/* As an IMAP quoted string. */
void imap_quote(struct buf *out, const char *text);

#endif
