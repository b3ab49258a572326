/* Text of a message: addresses, header values (RFC 5322 folding, RFC 2047 encoded words), bodies (quoted-printable).
 * Pure. Nothing that is written here holds a line break that is not ours: no value can add a header, a recipient or an
 * SMTP command. */
#ifndef ADAPTER_MAIL_TEXT_H
#define ADAPTER_MAIL_TEXT_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"

#include <stdint.h>

#define MAIL_ADDRESS_BYTES_MAX 254 /* RFC 5321 4.5.3.1.3, without "<>" */
#define MAIL_LOCAL_BYTES_MAX   64
#define MAIL_NAME_BYTES_MAX    320
#define MAIL_LINE_BYTES_MAX    998 /* without CRLF */

struct mail_address {
    struct str name;     /* display name as text; absent = none */
    const char *address; /* "local@domain" */
    const char *domain;  /* within address */
    bool utf8;           /* the address (not the name) has characters beyond ASCII: needs SMTPUTF8 */
};

/* One mailbox: "ada@example.com", "Ada L <ada@example.com>", "\"L, Ada\" <ada@example.com>". Local parts are dot-atoms;
 * quoted ones, groups, comments and several addresses in one text are refused. ERR_INVALID says what is wrong. */
enum err_code mail_address_read(struct arena *arena, struct str text, struct mail_address *out, struct err *err);

/* Whether every character may stand in a header's value: no control characters but tab. */
bool mail_value_valid(struct str text);

/* "Name: value" CRLF, value valid UTF-8 and mail_value_valid. Lines of at most 78 characters where there are spaces. */
void mail_header_text(struct buf *out, const char *name, struct str value);
/* "Name: a, b" CRLF. */
void mail_header_addresses(struct buf *out, const char *name, const struct mail_address *addresses, size_t count);

/* Content-Type, Content-Transfer-Encoding, empty line and body, all lines ended by CRLF. subtype: "plain", "html". Any
 * kind of line break in text ends a line. */
void mail_part(struct buf *out, const char *subtype, struct str text);

/* Copies lines that end in CRLF; a leading dot is doubled (RFC 5321 4.5.2). */
void mail_stuff_dots(struct buf *out, struct str lines);

/* "Mon, 30 Nov 2026 03:02:19 +0000", in arena. */
const char *mail_date(struct arena *arena, int64_t at_ms);

#endif
