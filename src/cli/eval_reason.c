#include "cli/eval_reason.h"

#define DIFFERENCES_MAX 8
#define VALUE_BYTES_MAX 48

struct pair {
    struct arena *arena;
    const struct eval_result *a, *b;
    size_t a_number, b_number;
    const char **differing; /* JSON Pointers into the effective arguments */
    size_t differing_count;
};

/* ---- values ---- */

static void add_value(struct buf *out, const struct json *value)
{
    if (!value) {
        buf_add_text(out, "absent");
        return;
    }
    struct buf text;
    buf_init(&text, 0);
    json_write(&text, value);
    size_t n = text.n;
    if (n > VALUE_BYTES_MAX)
        for (n = VALUE_BYTES_MAX; n > 0 && ((unsigned char)text.p[n] & 0xC0) == 0x80; n--)
            ;
    buf_printf(out, "%.*s%s", (int)n, text.p, n < text.n ? "…" : "");
    buf_release(&text);
}

static void add_difference(struct buf *out, const struct pair *pair, const char *pointer)
{
    buf_printf(out, "%s (", *pointer ? pointer : "all");
    add_value(out, json_pointer_get(pair->a->effective, str_of(pointer)));
    buf_add_text(out, ", ");
    add_value(out, json_pointer_get(pair->b->effective, str_of(pointer)));
    buf_add_char(out, ')');
}

/* The same value, or one within the other. */
static bool overlaps(struct str a, struct str b)
{
    size_t n = a.n < b.n ? a.n : b.n;
    if (n && memcmp(a.p, b.p, n) != 0)
        return false;
    return a.n == b.n || (a.n > n ? a.p[n] : b.p[n]) == '/';
}

static bool in_key(const struct tool *tool, const char *pointer)
{
    struct str name, place;
    for (size_t i = 0; template_place(tool->key, i, &name, &place); i++)
        if (overlaps(place, str_of(pointer)))
            return true;
    return false;
}

static bool is_volatile(const struct tool *tool, const char *pointer)
{
    for (size_t i = 0; i < tool->volatile_count; i++)
        if (overlaps(str_of(tool->volatile_pointers[i]), str_of(pointer)))
            return true;
    return false;
}

/* Which differences a list is about. */
enum which { ALL_DIFFERENCES, IN_KEY, NOT_IN_KEY, FINGERPRINTED };

static bool is_meant(const struct pair *pair, enum which which, const char *pointer)
{
    const struct tool *tool = pair->b->tool;
    switch (which) {
    case ALL_DIFFERENCES: return true;
    case IN_KEY: return in_key(tool, pointer);
    case NOT_IN_KEY: return !in_key(tool, pointer);
    case FINGERPRINTED: return !is_volatile(tool, pointer);
    }
    return false;
}

/* "/amount_cents (4900, 1000), /note (absent, "x")"; false when there are none. */
static bool add_differences(struct buf *out, const struct pair *pair, enum which which)
{
    bool any = false;
    for (size_t i = 0; i < pair->differing_count; i++) {
        if (!is_meant(pair, which, pair->differing[i]))
            continue;
        if (any)
            buf_add_text(out, ", ");
        add_difference(out, pair, pair->differing[i]);
        any = true;
    }
    return any;
}

static void add_components(struct buf *out, const struct eval_result *result)
{
    struct str name, pointer;
    for (size_t i = 0; template_place(result->tool->key, i, &name, &pointer); i++) {
        buf_printf(out, "%s%.*s = ", i ? ", " : "", STR_ARG(name));
        add_value(out, json_pointer_get(result->effective, pointer));
    }
}

/* ---- identity ---- */

static const char *or_none(const char *text)
{
    return text ? text : "none";
}

const char *eval_identity_text(struct arena *arena, const struct eval_result *result)
{
    const struct operation *op = &result->op;
    const char *more = op->repeat_of ? ", once more" : "";
    if (!result->identified)
        return "no identity";
    switch (op->key_source) {
    case KEY_SOURCE_CALLER: return arena_printf(arena, "key %s (caller)%s", op->key, more);
    case KEY_SOURCE_BUSINESS: return arena_printf(arena, "key %s (business)%s", op->key, more);
    case KEY_SOURCE_STEP:
        return arena_printf(arena, "step %s of run %s (step)%s", or_none(op->step), or_none(op->run), more);
    case KEY_SOURCE_CALL:
        return arena_printf(arena, "call id %s in session %s, run %s (call)%s", or_none(op->call), or_none(op->session),
                            or_none(op->run), more);
    case KEY_SOURCE_REPEAT: return arena_printf(arena, "no key, its arguments (repeat)%s", more);
    }
    return "?";
}

static struct pair make_pair(struct arena *arena, const struct eval_result *a, size_t a_number,
                             const struct eval_result *b, size_t b_number)
{
    struct pair pair = {.arena = arena, .a = a, .b = b, .a_number = a_number, .b_number = b_number};
    if (a->identified && b->identified)
        pair.differing_count = json_diff(arena, a->effective, b->effective, DIFFERENCES_MAX, &pair.differing);
    return pair;
}

static const char *finish(struct arena *arena, struct buf *text)
{
    const char *copy = arena_copy_str(arena, buf_str(text));
    buf_release(text);
    return copy;
}

/* ---- one operation ---- */

static void one_business(struct buf *out, const struct pair *pair)
{
    buf_printf(out, "the key template %s comes out as %s for both, with ", template_text(pair->b->tool->key),
               pair->b->op.key);
    add_components(out, pair->b);
    struct buf rest;
    buf_init(&rest, 0);
    if (add_differences(&rest, pair, NOT_IN_KEY))
        buf_printf(out, "; they differ in %s, which the key does not hold", rest.p);
    buf_release(&rest);
}

/* As registry and scenario files write it: 24h, 15m. */
static void add_duration(struct buf *out, int64_t ms)
{
    static const struct {
        int64_t ms;
        const char *unit;
    } units[] = {{3600000, "h"}, {60000, "m"}, {1000, "s"}, {1, "ms"}};
    size_t i = 0;
    while (ms % units[i].ms)
        i++;
    buf_printf(out, "%lld%s", (long long)(ms / units[i].ms), units[i].unit);
}

static void add_window(struct buf *out, const struct eval_result *result)
{
    buf_add_text(out, "repeat_window ");
    add_duration(out, result->tool->repeat_window_ms);
}

static void one_repeat(struct buf *out, const struct pair *pair)
{
    const struct eval_result *b = pair->b;
    buf_printf(out,
               "neither has a key, and the same principal called with equal arguments while call %zu's operation was ",
               pair->a_number);
    if (!state_terminal(b->state)) {
        buf_printf(out, "%s", state_name(b->state));
    } else if (!b->delivered) {
        buf_add_text(out, "finished but not delivered");
    } else {
        buf_add_text(out, "within ");
        add_window(out, b);
    }
}

static void one_other_source(struct buf *out, const struct pair *pair)
{
    buf_printf(out, "call %zu has %s, call %zu has %s: keys of one tool are one space, whoever they come from",
               pair->a_number, eval_identity_text(pair->arena, pair->a), pair->b_number,
               eval_identity_text(pair->arena, pair->b));
}

const char *eval_reason_one(struct arena *arena, const struct eval_result *a, size_t a_number,
                            const struct eval_result *b, size_t b_number)
{
    struct pair pair = make_pair(arena, a, a_number, b, b_number);
    struct buf out;
    buf_init(&out, 0);
    if (a->op.key_source != b->op.key_source) {
        one_other_source(&out, &pair);
        return finish(arena, &out);
    }
    switch (b->op.key_source) {
    case KEY_SOURCE_CALLER: buf_printf(&out, "both carry the caller's key %s", b->op.key); break;
    case KEY_SOURCE_BUSINESS: one_business(&out, &pair); break;
    case KEY_SOURCE_STEP:
        buf_printf(&out, "both are step %s of run %s", or_none(b->op.step), or_none(b->op.run));
        if (b->tool->step_identity == STEP_PER_STEP)
            buf_add_text(&out, ", and step_identity is per_step: arguments are no part of it");
        break;
    case KEY_SOURCE_CALL:
        buf_printf(&out, "both carry call id %s of session %s", or_none(b->op.call), or_none(b->op.session));
        break;
    case KEY_SOURCE_REPEAT: one_repeat(&out, &pair); break;
    }
    if (a->op.repeat_of && text_equal(a->op.repeat_of, b->op.repeat_of))
        buf_add_text(&out, "; both ask for one more of the same operation, which is one more");
    if (b->answer == ANSWER_CONFLICT)
        buf_printf(&out, "; call %zu is refused as a conflict, nothing runs for it", b_number);
    else if (b->answer == ANSWER_NOT_SHARED)
        buf_printf(&out, "; call %zu belongs to another principal and is told so, nothing runs for it", b_number);
    else if (b->other_arguments)
        buf_printf(&out, "; on_mismatch is replay: call %zu gets the result of other arguments", b_number);
    return finish(arena, &out);
}

/* ---- two operations ---- */

static void two_business(struct buf *out, const struct pair *pair)
{
    buf_printf(out, "the key template %s comes out as %s and %s, by ", template_text(pair->b->tool->key),
               pair->a->op.key, pair->b->op.key);
    if (!add_differences(out, pair, IN_KEY))
        add_components(out, pair->b);
}

static void add_two_texts(struct buf *out, const char *what, const char *a, const char *b)
{
    if (!text_equal(a, b))
        buf_printf(out, "%s%s %s and %s", out->n ? ", " : "", what, or_none(a), or_none(b));
}

static void two_step(struct buf *out, const struct pair *pair)
{
    const struct operation *a = &pair->a->op, *b = &pair->b->op;
    add_two_texts(out, "run", a->run, b->run);
    add_two_texts(out, "step", a->step, b->step);
    if (out->n)
        return;
    buf_add_text(out, "step_identity is per_arguments, and they differ in ");
    add_differences(out, pair, FINGERPRINTED);
}

static void two_call(struct buf *out, const struct pair *pair)
{
    const struct operation *a = &pair->a->op, *b = &pair->b->op;
    add_two_texts(out, "call id", a->call, b->call);
    add_two_texts(out, "session", a->session, b->session);
    add_two_texts(out, "run", a->run, b->run);
    add_two_texts(out, "principal", a->principal, b->principal);
}

/* Equal arguments without a key: what else the repeat rule asks for. */
static void two_repeat_scope(struct buf *out, const struct pair *pair)
{
    const struct operation *a = &pair->a->op, *b = &pair->b->op;
    add_two_texts(out, "principal", a->principal, b->principal);
    if (b->run)
        add_two_texts(out, "run", a->run, b->run);
    else if (b->session)
        add_two_texts(out, "session", a->session, b->session);
    if (out->n) {
        buf_add_text(out, ": without a key only finished calls of one principal and one run or session are joined");
        return;
    }
    buf_printf(out, "no key, and call %zu comes ", pair->b_number);
    add_duration(out, pair->b->at_ms - pair->a->at_ms);
    buf_printf(out, " after call %zu: ", pair->a_number);
    if (pair->b->tool->repeat_window_ms)
        add_window(out, pair->b);
    else
        buf_add_text(out, "repeat_window is off");
}

static void two_repeat(struct buf *out, const struct pair *pair)
{
    struct buf differences;
    buf_init(&differences, 0);
    if (add_differences(&differences, pair, FINGERPRINTED))
        buf_printf(out, "no key: only equal arguments are one operation, and they differ in %s", differences.p);
    else
        two_repeat_scope(out, pair);
    buf_release(&differences);
}

static void two_versions(struct buf *out, const struct pair *pair)
{
    buf_printf(out, "the same key, but call %zu's operation had ended without an effect and the arguments differ: ",
               pair->a_number);
    add_differences(out, pair, FINGERPRINTED);
    buf_add_text(out, "; the key's next version was opened");
}

static void two_by_source(struct buf *out, const struct pair *pair)
{
    if (pair->a->op.key_source != KEY_SOURCE_REPEAT && digest_equal(&pair->a->op.key_hash, &pair->b->op.key_hash)) {
        two_versions(out, pair);
        return;
    }
    switch (pair->b->op.key_source) {
    case KEY_SOURCE_CALLER: add_two_texts(out, "the caller's keys", pair->a->op.key, pair->b->op.key); break;
    case KEY_SOURCE_BUSINESS: two_business(out, pair); break;
    case KEY_SOURCE_STEP: two_step(out, pair); break;
    case KEY_SOURCE_CALL: two_call(out, pair); break;
    case KEY_SOURCE_REPEAT: two_repeat(out, pair); break;
    }
}

const char *eval_reason_two(struct arena *arena, const struct eval_result *a, size_t a_number,
                            const struct eval_result *b, size_t b_number)
{
    struct pair pair = make_pair(arena, a, a_number, b, b_number);
    struct buf out;
    buf_init(&out, 0);
    if (a->tool != b->tool)
        buf_printf(&out, "%s and %s are two tools: every tool has its own keys", a->tool->name, b->tool->name);
    else if (!text_equal(a->call->tenant, b->call->tenant))
        buf_printf(&out, "tenants %s and %s share no operations", a->call->tenant, b->call->tenant);
    else if (b->op.repeat_of && !text_equal(a->op.repeat_of, b->op.repeat_of))
        buf_printf(&out, "call %zu asks for one more: repeat_of", b_number);
    else if (a->op.key_source != b->op.key_source)
        buf_printf(&out, "call %zu is known by %s, call %zu by %s", a_number, eval_identity_text(arena, a), b_number,
                   eval_identity_text(arena, b));
    else
        two_by_source(&out, &pair);
    return finish(arena, &out);
}
