/* What the fault-injecting provider is told, one form per first byte: form bodies, scripts, settings, plans, chances.
 * All or nothing: what is refused leaves everything as it was. */
#include "fuzz.h"

#include "cli/fake_config.h"
#include "cli/fake_form.h"
#include "cli/fake_script.h"

static struct json *parse(struct arena *arena, struct str text)
{
    struct json *value = NULL;
    struct err err = {0};
    return json_parse(arena, text, NULL, &value, &err) == ERR_NONE ? value : NULL;
}

static void try_form(struct arena *arena, struct str text)
{
    struct json *value = NULL;
    struct err err = {0};
    enum err_code code = fake_form_parse(arena, text, &value, &err);
    if (code) {
        CHECK((code == ERR_INVALID || code == ERR_LIMIT) && err.text[0]);
        return;
    }
    struct buf out;
    buf_init(&out, 0);
    CHECK(value->type == JSON_OBJECT);
    json_write(&out, value);
    struct json *again = parse(arena, buf_str(&out)); /* not when the form was not UTF-8 */
    CHECK(!again || again->type == JSON_OBJECT);
    buf_release(&out);
}

static void try_script(struct arena *arena, struct str text)
{
    struct fake_script script;
    struct err err = {0};
    const struct json *list = parse(arena, text);
    if (!list)
        return;
    fake_script_init(&script);
    enum err_code code = fake_script_add(&script, list, &err);
    CHECK(script.count <= FAKE_SCRIPT_MAX && (code == ERR_NONE || (script.count == 0 && err.text[0])));
    struct fake_script_match match = {
        .collection = STR("refunds"), .reference = STR("op_1"), .business = STR("refunds/p1")};
    size_t left = fake_script_left(&script);
    for (int i = 0; i < 4; i++) {
        struct fake_plan plan;
        const char *fault = fake_script_take(&script, &match);
        if (fault) /* what was accepted can be carried out */
            CHECK(fake_plan_parse(str_of(fault), 1, &plan, &err) == ERR_NONE);
        match.lookup = !match.lookup;
    }
    CHECK(fake_script_left(&script) <= left);
    fake_script_release(&script);
}

static void check_config(const struct fake_config *before, const struct fake_config *after, enum err_code code,
                         const struct err *err)
{
    struct buf out;
    struct json_out json;
    if (code) {
        CHECK(memcmp(before, after, sizeof *before) == 0 && err->text[0]);
        return;
    }
    CHECK(after->page_size > 0 && after->page_size_max > 0 && after->latency_ms >= 0 && after->retention_ms >= 0);
    buf_init(&out, 0);
    json_out_init(&json, &out);
    fake_config_write(&json, after);
    buf_release(&out);
}

static void try_config(struct arena *arena, struct str text)
{
    static struct fake_config before, after;
    struct err err = {0};
    const struct json *object = parse(arena, text);
    if (!object)
        return;
    fake_config_init(&before);
    after = before;
    enum err_code code = fake_config_apply(&after, object, &err);
    check_config(&before, &after, code, &err);
}

static void try_config_text(struct arena *arena, struct str text)
{
    static struct fake_config before, after;
    struct err err = {0};
    fake_config_init(&before);
    after = before;
    enum err_code code = fake_config_apply_text(&after, arena_copy_str(arena, text), &err);
    check_config(&before, &after, code, &err);
}

static void try_plan(struct arena *arena, struct str text)
{
    (void)arena;
    for (unsigned nth = 1; nth < 4; nth++) {
        struct fake_plan plan;
        struct err err = {0};
        fake_plan_init(&plan);
        if (fake_plan_parse(text, nth, &plan, &err))
            CHECK(err.text[0]);
        else
            CHECK(plan.fault < FAULT_COUNT && strlen(plan.text) < sizeof plan.text && plan.argument >= -1);
    }
}

static void try_chances(struct arena *arena, struct str text)
{
    static struct fake_chances chances;
    struct err err = {0};
    (void)arena;
    chances = (struct fake_chances){.seed = 7};
    if (fake_chances_parse(text, &chances, &err)) {
        CHECK(err.text[0]);
        return;
    }
    CHECK(chances.count <= FAKE_CHANCES_MAX && chances.seed == 7);
    uint64_t sums[2] = {0};
    for (size_t i = 0; i < chances.count; i++)
        sums[chances.items[i].lookup] += chances.items[i].per_million;
    CHECK(sums[0] <= 1000000 && sums[1] <= 1000000);
    for (uint64_t i = 0; i < 20; i++) {
        const char *drawn = fake_chances_draw(&chances, i & 1, i, 1);
        struct fake_plan plan;
        if (drawn)
            CHECK(fake_plan_parse(str_of(drawn), 1, &plan, &err) == ERR_NONE);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void (*const parsers[])(struct arena *, struct str) = {try_form,        try_script, try_config,
                                                                  try_config_text, try_plan,   try_chances};
    struct arena arena;
    if (size == 0)
        return 0;
    arena_init(&arena);
    parsers[(data[0] - '0') % (sizeof parsers / sizeof *parsers)](&arena,
                                                                  (struct str){(const char *)data + 1, size - 1});
    arena_release(&arena);
    return 0;
}
