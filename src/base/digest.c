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

/* Parts in one piece as long as they are short: a call of SHA256_Update costs more than the copy. */
struct gathered {
    SHA256_CTX *ctx;
    size_t n;
    unsigned char bytes[256];
};

static void pass_on(struct gathered *gathered)
{
    SHA256_Update(gathered->ctx, gathered->bytes, gathered->n);
    gathered->n = 0;
}

static void add_part(struct gathered *gathered, struct str part)
{
    /* One byte of presence, eight bytes of length, then the bytes. */
    enum { HEAD = 9 };
    if (sizeof gathered->bytes - gathered->n < HEAD)
        pass_on(gathered);
    unsigned char *head = gathered->bytes + gathered->n;
    head[0] = part.p ? 1 : 0;
    for (int i = 0; i < 8; i++)
        head[1 + i] = (unsigned char)((uint64_t)part.n >> (56 - 8 * i));
    gathered->n += HEAD;
    if (part.n <= sizeof gathered->bytes - gathered->n) {
        if (part.n)
            memcpy(gathered->bytes + gathered->n, part.p, part.n);
        gathered->n += part.n;
        return;
    }
    pass_on(gathered);
    SHA256_Update(gathered->ctx, part.p, part.n);
}

static void add_parts(SHA256_CTX *ctx, const struct str *parts, size_t count)
{
    struct gathered gathered;
    gathered.ctx = ctx;
    gathered.n = 0;
    for (size_t i = 0; i < count; i++)
        add_part(&gathered, parts[i]);
    pass_on(&gathered);
}

struct digest digest_parts(const struct str *parts, size_t count)
{
    SHA256_CTX ctx;
    SHA256_Init(&ctx);
    add_parts(&ctx, parts, count);
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
    add_parts(&ctx, parts, count);
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
