/* One-time links for approvers who read their mail or a chat (design 8): each names operation, decision, approver and
 * its end, under a MAC whose key is derived from the ledger's secret. Opening one shows a page and changes nothing
 * (scanners of mail open links); its form decides. Used up with the operation's decision: the first one stands. */
#ifndef DOOR_LINKS_H
#define DOOR_LINKS_H

#include "door/exchange.h"

#define LINKS_PATH "/links/"

struct link {
    const char *tenant, *operation, *approver;
    bool approve;
    int64_t expires_ms;
};

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
