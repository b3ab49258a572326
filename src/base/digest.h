/* SHA-256 and HMAC-SHA-256 over unambiguous tuples (libcrypto). */
#ifndef BASE_DIGEST_H
#define BASE_DIGEST_H

#include "base/str.h"

#include <stdint.h>

#define DIGEST_BYTES 32

struct digest {
    unsigned char b[DIGEST_BYTES];
};

struct digest digest_sha256(struct str text);

/* SHA-256 over the parts, each preceded by its length, so that ("a","bc") and ("ab","c") differ, as do an absent part
 * and an empty one. */
struct digest digest_parts(const struct str *parts, size_t count);

/* The same under a secret key. */
struct digest digest_parts_keyed(struct str secret, const struct str *parts, size_t count);

bool digest_equal(const struct digest *a, const struct digest *b);

/* First eight bytes as an integer, for indexes that verify the full value afterwards. */
int64_t digest_int64(const struct digest *digest);

/* Lower-case hex of the first n bytes; out has room for 2 * n + 1. */
void digest_hex(const struct digest *digest, size_t n, char *out);

/* Constant-time comparison of equally long byte strings. */
bool digest_same_secret(const unsigned char *a, const unsigned char *b, size_t n);

#endif
