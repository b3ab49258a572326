#include "base/digest.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>

/* The low-level SHA256_* interface: EVP costs more than the hash itself at our sizes, and allocates. SHA256() is built
 * on EVP: without memory it leaves the digest unset. */
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

struct digest digest_sha256(struct str text)
{
    SHA256_CTX ctx;
    struct digest out;
    SHA256_Init(&ctx);
    SHA256_Update(&ctx, text.p, text.n);
    SHA256_Final(out.b, &ctx);
    return out;
}

static void add_part(SHA256_CTX *ctx, struct str part)
{
    /* One byte of presence, eight bytes of length, then the bytes. */
    unsigned char head[9] = {part.p ? 1 : 0};
    for (int i = 0; i < 8; i++)
        head[1 + i] = (unsigned char)((uint64_t)part.n >> (56 - 8 * i));
    SHA256_Update(ctx, head, sizeof head);
    if (part.n)
        SHA256_Update(ctx, part.p, part.n);
}

struct digest digest_parts(const struct str *parts, size_t count)
{
    SHA256_CTX ctx;
    SHA256_Init(&ctx);
    for (size_t i = 0; i < count; i++)
        add_part(&ctx, parts[i]);
    struct digest out;
    SHA256_Final(out.b, &ctx);
    return out;
}

struct digest digest_parts_keyed(struct str secret, const struct str *parts, size_t count)
{
    /* HMAC (RFC 2104): the secret is hashed to block size when longer. */
    unsigned char block[64] = {0};
    if (secret.n > sizeof block) {
        struct digest short_secret = digest_sha256(secret);
        memcpy(block, short_secret.b, DIGEST_BYTES);
    } else if (secret.n) {
        memcpy(block, secret.p, secret.n);
    }
    unsigned char pad[64];
    SHA256_CTX ctx;
    struct digest inner, out;
    for (size_t i = 0; i < sizeof pad; i++)
        pad[i] = block[i] ^ 0x36;
    SHA256_Init(&ctx);
    SHA256_Update(&ctx, pad, sizeof pad);
    for (size_t i = 0; i < count; i++)
        add_part(&ctx, parts[i]);
    SHA256_Final(inner.b, &ctx);
    for (size_t i = 0; i < sizeof pad; i++)
        pad[i] = block[i] ^ 0x5c;
    SHA256_Init(&ctx);
    SHA256_Update(&ctx, pad, sizeof pad);
    SHA256_Update(&ctx, inner.b, DIGEST_BYTES);
    SHA256_Final(out.b, &ctx);
    return out;
}

bool digest_equal(const struct digest *a, const struct digest *b)
{
    return memcmp(a->b, b->b, DIGEST_BYTES) == 0;
}

int64_t digest_int64(const struct digest *digest)
{
    uint64_t value = 0;
    for (int i = 0; i < 8; i++)
        value = value << 8 | digest->b[i];
    return (int64_t)value;
}

void digest_hex(const struct digest *digest, size_t n, char *out)
{
    static const char hex[] = "0123456789abcdef";
    for (size_t i = 0; i < n; i++) {
        out[2 * i] = hex[digest->b[i] >> 4];
        out[2 * i + 1] = hex[digest->b[i] & 15];
    }
    out[2 * n] = '\0';
}

bool digest_same_secret(const unsigned char *a, const unsigned char *b, size_t n)
{
    return CRYPTO_memcmp(a, b, n) == 0;
}
