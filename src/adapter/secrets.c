#include "adapter/secrets.h"

#include "adapter/http.h"
#include "base/mem.h"

#include <stdlib.h>

#define SECRET_BYTES_MIN      6 /* shorter ones would mask ordinary words */
#define SECRET_LINE_BYTES_MIN 6 /* as would shorter lines of one */

static void keep(struct secrets *secrets, char *value)
{
    if (strlen(value) < SECRET_BYTES_MIN) {
        free(value);
        return;
    }
    secrets->values = mem_grow(secrets->values, (secrets->count + 2) * sizeof *secrets->values);
    secrets->values[secrets->count++] = value;
    secrets->values[secrets->count] = NULL;
}

void secrets_keep(struct secrets *secrets, const char *text)
{
    for (const char *at = text; (at = strstr(at, "${"));) {
        const char *end = strchr(at, '}');
        char *reference = mem_copy_bytes(at, (size_t)(end - at) + 1), *value = NULL;
        bool secret;
        if (http_secret_expand(reference, &value, &secret, NULL) == ERR_NONE)
            keep(secrets, value);
        free(reference);
        at = end + 1;
    }
}

void secrets_release(struct secrets *secrets)
{
    for (size_t i = 0; i < secrets->count; i++)
        free(secrets->values[i]);
    free(secrets->values);
    *secrets = (struct secrets){0};
}

/* Bytes of the longest secret that rest begins with. */
static size_t secret_at(const struct secrets *secrets, struct str rest)
{
    size_t longest = 0;
    for (size_t i = 0; i < secrets->count; i++) {
        bool lines = strchr(secrets->values[i], '\n') != NULL;
        for (const char *at = secrets->values[i]; *at;) {
            size_t n = strcspn(at, "\r\n");
            bool long_enough = !lines || n >= SECRET_LINE_BYTES_MIN;
            if (long_enough && n > longest && n <= rest.n && memcmp(rest.p, at, n) == 0)
                longest = n;
            at += n + strspn(at + n, "\r\n");
        }
    }
    return longest;
}

void secrets_mask(const struct secrets *secrets, struct str text, struct buf *out)
{
    for (size_t i = 0; i < text.n && !out->over;) {
        size_t secret = secret_at(secrets, (struct str){text.p + i, text.n - i});
        if (secret > 0) {
            buf_add_text(out, "***");
            i += secret;
            continue;
        }
        char c = text.p[i++];
        buf_add_char(out, (unsigned char)c < ' ' || c == 127 ? ' ' : c);
    }
}
