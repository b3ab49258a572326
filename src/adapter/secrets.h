/* The values that references (${env:NAME}, ${file:PATH}) of a section stand for, so that they can be masked in what a
 * process of ours writes. */
#ifndef ADAPTER_SECRETS_H
#define ADAPTER_SECRETS_H

#include "base/buf.h"

struct secrets {
    char **values; /* ends with NULL; NULL = none */
    size_t count;
};

/* Keeps the values of text's references, which were expanded before and hold. */
void secrets_keep(struct secrets *secrets, const char *text);
void secrets_release(struct secrets *secrets);

/* Appends text with each secret as "***" and control characters as spaces. Of a secret with several lines each stands
 * for itself: what is masked comes line by line. */
void secrets_mask(const struct secrets *secrets, struct str text, struct buf *out);

#endif
