/* A template on the first line, the values behind it. */
#include "fuzz.h"

#include "core/template.h"

/* What a place adds to a key has none of the bytes that a template can hold between places. */
static void check_key_place(const struct json *values)
{
    struct template *template = NULL;
    struct buf out;
    buf_init(&out, 0);
    CHECK(template_new("{/v}", &template, NULL) == ERR_NONE);
    if (template_fill(template, values, TEMPLATE_KEY, &out, NULL) == ERR_NONE)
        for (size_t i = 0; i < out.n; i++)
            CHECK((unsigned char)out.p[i] >= 0x20 && !strchr(":{}\x7f", out.p[i]));
    buf_reset(&out);
    if (template_fill(template, values, TEMPLATE_PATH, &out, NULL) == ERR_NONE) {
        CHECK(out.n > 0 && !str_is(buf_str(&out), ".") && !str_is(buf_str(&out), ".."));
        for (size_t i = 0; i < out.n; i++)
            CHECK((unsigned char)out.p[i] < 0x7f && !strchr("/?#& ", out.p[i]));
    }
    buf_release(&out);
    template_free(template);
}

static void check_fill(const struct template *template, const struct json *values)
{
    static const enum template_escape escapes[] = {TEMPLATE_PLAIN, TEMPLATE_KEY, TEMPLATE_PATH, TEMPLATE_QUERY};
    for (size_t i = 0; i < sizeof escapes / sizeof *escapes; i++) {
        struct buf out;
        struct err err = {0};
        buf_init(&out, 1 << 20);
        enum err_code code = template_fill(template, values, escapes[i], &out, &err);
        CHECK(code == ERR_NONE || (code == ERR_INVALID && err.text[0] != '\0'));
        bool single;
        const struct json *value = template_single(template, values, &single);
        CHECK(single || !value);
        CHECK(!single || value || code == ERR_INVALID);
        buf_release(&out);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str line, rest;
    fuzz_split((struct str){(const char *)data, size}, &line, &rest);
    struct arena arena;
    struct err err = {0};
    struct template *template = NULL;
    struct json *values = NULL;
    arena_init(&arena);
    char *text = arena_copy_str(&arena, line);
    if (template_new(text, &template, &err) == ERR_NONE) {
        CHECK(strcmp(template_text(template), text) == 0);
        if (json_parse(&arena, rest, NULL, &values, NULL) == ERR_NONE) {
            check_fill(template, values);
            check_key_place(values);
        }
    } else {
        CHECK(err.text[0] != '\0');
    }
    template_free(template);
    arena_release(&arena);
    return 0;
}
