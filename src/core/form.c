#include "core/form.h"

#include "core/template.h"

static enum err_code fill_text(struct arena *arena, struct str text, const struct json *values, struct json *out,
                               struct err *err)
{
    struct template *template;
    struct buf filled;
    bool single;
    enum err_code code = template_new(arena_copy_str(arena, text), &template, err);
    if (code)
        return code;
    buf_init(&filled, FORM_TEXT_BYTES_MAX);
    const struct json *value = template_single(template, values, &single);
    if (single && value && value->type != JSON_NULL) {
        *out = *value;
    } else {
        code = template_fill(template, values, TEMPLATE_PLAIN, &filled, err);
        if (!code && filled.over)
            code = err_set(err, ERR_LIMIT, "is longer than %d bytes", FORM_TEXT_BYTES_MAX);
        if (!code)
            *out = json_string(arena_str(arena, buf_str(&filled)));
    }
    buf_release(&filled);
    template_free(template);
    return code;
}

/* As deep as the registry file may be, which json_parse has limited. */
static enum err_code fill(struct arena *arena, const struct json *form, const struct json *values, struct json *out,
                          struct err *err)
{
    struct json item;
    if (form->type == JSON_STRING)
        return fill_text(arena, form->text, values, out, err);
    *out = *form;
    if (form->type == JSON_ARRAY)
        *out = *json_array(arena);
    if (form->type == JSON_OBJECT)
        *out = *json_object(arena);
    for (uint32_t i = 0; form->type == JSON_ARRAY && i < form->count; i++) {
        if (fill(arena, &form->items[i], values, &item, err))
            return err_prefix(err, "%u: ", i), err->code;
        json_append(arena, out, item);
    }
    for (uint32_t i = 0; form->type == JSON_OBJECT && i < form->count; i++) {
        const struct json_member *member = &form->members[i];
        if (fill(arena, &member->value, values, &item, err))
            return err_prefix(err, "%.*s: ", STR_ARG(member->name)), err->code;
        json_set(arena, out, member->name, item);
    }
    return ERR_NONE;
}

enum err_code form_fill(struct arena *arena, const struct json *form, const struct json *values, struct json **out,
                        struct err *err)
{
    struct json *filled = json_object(arena);
    enum err_code code = fill(arena, form, values, filled, err);
    if (!code)
        *out = filled;
    return code;
}
