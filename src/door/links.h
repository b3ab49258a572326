/* One-time links for approvers who read their mail or a chat (design 8): each names operation, decision, approver, its
 * end, who made it and why the approver may decide, under a MAC whose key is derived from the ledger's secret. Opening
 * one shows a page and changes nothing (scanners of mail open links); its form decides. Used up with the operation's
 * decision: the first one stands.
 *
 * A link is made for a principal that exists and may decide (people.h), and is good only as long as that is so: when
 * the token is revoked on which it rests, or the issuer is taken out of the registry file, the link is over. Without
 * tokens (auth: none) there are no principals to look for: any name will do, for nobody is kept from any. */
#ifndef DOOR_LINKS_H
#define DOOR_LINKS_H

#include "door/exchange.h"

#define LINKS_PATH "/links/"

struct link {
    const char *tenant, *operation, *approver;
    bool approve;
    int64_t expires_ms;
    const char *made_by;
    const char *ground; /* LINK_GROUND_…; of an issuer: what follows the prefix is its `iss` */
};

#define LINK_GROUND_OPEN   "open"  /* the server wants no tokens */
#define LINK_GROUND_TOKEN  "token" /* a token of the ledger's */
#define LINK_GROUND_ISSUER "issuer:"

struct people_ground;
/* In arena. */
const char *link_ground(struct arena *arena, const struct people_ground *ground);

/* Until when a link made now would be good; 0: the operation waits for nobody. */
int64_t link_until(const struct operation *op, const struct link_settings *settings, int64_t now_ms);
/* The addresses of both decisions, members of an open object: "approver", "approve", "deny", "expires_at". */
void link_write_both(struct arena *arena, const unsigned char secret[LEDGER_SECRET_BYTES], const char *base,
                     struct link link, struct json_out *out);

/* The path's last segment. */
const char *link_write(struct arena *arena, const unsigned char secret[LEDGER_SECRET_BYTES], const struct link *link);
/* False: not one of ours, altered, or over. Texts in arena. */
bool link_read(struct arena *arena, const unsigned char secret[LEDGER_SECRET_BYTES], const char *text, int64_t now_ms,
               struct link *out);

bool links_path(const char *path);
void rest_links(struct exchange *exchange);     /* POST /v1/operations/{id}/links */
void rest_link_page(struct exchange *exchange); /* GET  /links/{token} */
void rest_link_used(struct exchange *exchange); /* POST /links/{token} */

#endif
