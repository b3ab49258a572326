/* Texts of the request side: secrets by reference, places. */
#include "adapter/http_parts.h"

#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>

#define SECRET_BYTES_MAX (64 * 1024)
#define MASK             "***"

/* ---- secrets ---- */

/* "NAME" or "NAME:-default". */
static enum err_code read_environment(struct str reference, struct buf *out, struct err *err)
{
    struct str fallback = STR_NONE;
    for (size_t i = 0; i + 1 < reference.n; i++) {
        if (reference.p[i] == ':' && reference.p[i + 1] == '-') {
            fallback = (struct str){reference.p + i + 2, reference.n - i - 2};
            reference.n = i;
            break;
        }
    }
    char name[256];
    if (reference.n == 0 || reference.n >= sizeof name)
        return err_set(err, ERR_INVALID, "\"${env:%.*s}\" does not name a variable", STR_ARG(reference));
    snprintf(name, sizeof name, "%.*s", STR_ARG(reference));
    const char *value = getenv(name);
    if (value)
        buf_add_text(out, value);
    else if (fallback.p)
        buf_add_str(out, fallback);
    else
        return err_set(err, ERR_NOT_FOUND, "environment variable %s is not set", name);
    return ERR_NONE;
}

static enum err_code read_file(struct str reference, struct buf *out, struct err *err)
{
    char path[4096], chunk[4096];
    if (reference.n == 0 || reference.n >= sizeof path)
        return err_set(err, ERR_INVALID, "\"${file:%.*s}\" does not name a file",
                       (int)(reference.n > 64 ? 64 : reference.n), reference.p);
    snprintf(path, sizeof path, "%.*s", STR_ARG(reference));
    FILE *file = fopen(path, "rb");
    if (!file)
        return err_set(err, ERR_NOT_FOUND, "file %.300s cannot be read: %m", path);
    struct buf content;
    buf_init(&content, SECRET_BYTES_MAX);
    for (size_t n; (n = fread(chunk, 1, sizeof chunk, file)) > 0;)
        buf_add(&content, chunk, n);
    enum err_code code = ERR_NONE;
    if (ferror(file))
        code = err_set(err, ERR_IO, "file %.300s cannot be read", path);
    else if (content.over || (content.n > 0 && memchr(content.p, 0, content.n)))
        code = err_set(err, ERR_INVALID, "file %.300s is no text of at most %d bytes", path, SECRET_BYTES_MAX);
    if (content.n > 0 && content.p[content.n - 1] == '\n')
        content.n--;
    if (code == ERR_NONE)
        buf_add_str(out, buf_str(&content));
    buf_release(&content);
    fclose(file);
    return code;
}

static enum err_code expand(const char *text, struct buf *out, struct buf *shown, bool *secret, struct err *err)
{
    while (*text) {
        size_t n = strcspn(text, "$");
        buf_add(out, text, n);
        buf_add(shown, text, n);
        text += n;
        if (*text == '\0')
            break;
        if (text[1] != '{') {
            buf_add_char(out, '$');
            buf_add_char(shown, '$');
            text++;
            continue;
        }
        const char *end = strchr(text, '}');
        if (!end)
            return err_set(err, ERR_INVALID, "\"${\" is not closed");
        struct str reference = {text + 2, (size_t)(end - text) - 2};
        enum err_code code;
        if (reference.n > 4 && strncmp(reference.p, "env:", 4) == 0)
            code = read_environment((struct str){reference.p + 4, reference.n - 4}, out, err);
        else if (reference.n > 5 && strncmp(reference.p, "file:", 5) == 0)
            code = read_file((struct str){reference.p + 5, reference.n - 5}, out, err);
        else
            code = err_set(err, ERR_INVALID, "\"${%.*s}\" is no reference, expected ${env:NAME} or ${file:PATH}",
                           (int)(reference.n > 64 ? 64 : reference.n), reference.p);
        if (code != ERR_NONE)
            return code;
        buf_add_text(shown, MASK);
        *secret = true;
        text = end + 1;
    }
    return ERR_NONE;
}

enum err_code http_secret_expand_shown(const char *text, char **out, char **shown, bool *secret, struct err *err)
{
    struct buf value, masked;
    bool any = false;
    buf_init(&value, 0);
    buf_init(&masked, 0);
    enum err_code code = expand(text, &value, &masked, &any, err);
    if (code == ERR_NONE) {
        *out = buf_detach(&value, NULL);
        *shown = buf_detach(&masked, NULL);
        *secret = any;
    }
    buf_release(&value);
    buf_release(&masked);
    return code;
}

enum err_code http_secret_expand(const char *text, char **out, bool *secret, struct err *err)
{
    char *shown = NULL;
    enum err_code code = http_secret_expand_shown(text, out, &shown, secret, err);
    free(shown);
    return code;
}

/* ---- texts ---- */

/* "{name?}": a place that may be missing. */
static bool is_optional(const char *text)
{
    size_t n = strlen(text);
    return n > 3 && text[0] == '{' && text[1] != '{' && strcspn(text + 1, "{}") == n - 2 && text[n - 2] == '?';
}

static enum err_code read_places(const char *text, bool optional_single, struct http_text *out, struct err *err)
{
    char *copy = NULL;
    if (optional_single && is_optional(text)) {
        size_t n = strlen(text);
        copy = mem_copy_bytes(text, n);
        memcpy(copy + n - 2, "}", 2);
        out->optional = true;
    }
    enum err_code code = template_new(copy ? copy : text, &out->template, err);
    free(copy);
    if (code == ERR_NONE) {
        struct json nothing = {.type = JSON_OBJECT};
        template_single(out->template, &nothing, &out->single);
    }
    return code;
}

enum err_code http_text_new(const char *text, bool optional_single, struct http_text *out, struct err *err)
{
    *out = (struct http_text){0};
    if (strstr(text, "${")) {
        bool secret;
        enum err_code code = http_secret_expand_shown(text, &out->value, &out->shown, &secret, err);
        if (code == ERR_NONE && strpbrk(out->shown, "{}"))
            code = err_set(err, ERR_INVALID, "takes either secrets (${env:NAME}) or places ({name}), not both");
        if (code != ERR_NONE)
            http_text_release(out);
        return code;
    }
    if (strpbrk(text, "{}"))
        return read_places(text, optional_single, out, err);
    out->value = mem_copy_text(text);
    out->shown = mem_copy_text(text);
    return ERR_NONE;
}

void http_text_release(struct http_text *text)
{
    free(text->value);
    free(text->shown);
    template_free(text->template);
    *text = (struct http_text){0};
}
