/* Base 64 (RFC 4648). */
#ifndef BASE_BASE64_H
#define BASE_BASE64_H

#include "base/str.h"

/* The standard alphabet, strict, padding optional. out has room for BASE64_DECODED_MAX(text.n); written on success only
 * as far as *n says. */
#define BASE64_DECODED_MAX(bytes) ((bytes) / 4 * 3 + 3)
bool base64_decode(struct str text, unsigned char *out, size_t *n);
/* The alphabet of URLs, as strict, without padding. */
bool base64url_decode(struct str text, unsigned char *out, size_t *n);

/* With padding, NUL-terminated. out has room for BASE64_ENCODED_SIZE(n). */
#define BASE64_ENCODED_SIZE(bytes) (((bytes) + 2) / 3 * 4 + 1)
void base64_encode(const unsigned char *bytes, size_t n, char *out);

#endif
