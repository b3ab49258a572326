#include "sim/arguments.h"

#include "base/map.h"
#include "base/mem.h"
#include "core/identity.h"
#include "sim/sample.h"

#include <stdlib.h>

#define TIMES_MAX        16
#define REWRITERS_MAX    64
#define REWRITER_SAMPLES 8

/* Ways of writing a text differently that leave an intent as it is, if the tool says so. */
enum rewriting { REWRITE_PADDED, REWRITE_UPPER, REWRITE_SPACED, REWRITE_REWORDED, REWRITE_COUNT };

/* A member of the outermost object and one way of writing it differently. */
struct rewriter {
    struct str name;
    enum rewriting how;
};

struct tool_arguments {
    const struct tool *tool;
    const struct json *schema;   /* what samples are made from */
    const struct json *examples; /* array, or NULL */
    const struct json **made;    /* [n]; NULL: not made yet */
    size_t made_count;
    const char *times[TIMES_MAX]; /* pointers of texts that normalisers want to be points in time */
    size_t time_count;
    bool spread;
    bool rewriters_found;
    struct rewriter rewriters[REWRITERS_MAX];
    size_t rewriter_count;
};

struct arguments {
    struct arena arena;
    const struct json *examples;
    struct map tools;
};

/* What onced takes for the identity of an intent. */
struct identity {
    struct digest key, fingerprint;
};

struct arguments *arguments_new(const struct json *examples)
{
    struct arguments *arguments = mem_zero(sizeof *arguments);
    arena_init(&arguments->arena);
    map_init(&arguments->tools);
    arguments->examples = examples;
    return arguments;
}

static void forget(struct tool_arguments *of)
{
    free(of->made);
    of->made = NULL;
    of->made_count = 0;
}

void arguments_free(struct arguments *arguments)
{
    if (!arguments)
        return;
    size_t at = 0;
    for (struct tool_arguments *of; (of = map_next(&arguments->tools, &at));)
        forget(of);
    map_release(&arguments->tools);
    arena_release(&arguments->arena);
    free(arguments);
}

/* A tool without a schema takes any object; what its key is made of must be in it all the same. */
static const struct json *schema_of(struct arena *arena, const struct tool *tool)
{
    if (tool->input_schema_json)
        return tool->input_schema_json;
    struct json *schema = json_object(arena), *properties = json_object(arena), *required = json_array(arena);
    struct json *text = json_object(arena);
    struct str name, pointer;
    json_set(arena, text, STR("type"), json_string(STR("string")));
    json_set(arena, text, STR("minLength"), json_number(STR("1")));
    for (size_t i = 0; tool->key && template_place(tool->key, i, &name, &pointer); i++) {
        struct str member = {pointer.p + 1, pointer.n ? pointer.n - 1 : 0};
        if (member.n == 0 || memchr(member.p, '/', member.n) || memchr(member.p, '~', member.n))
            continue; /* not a plain member: an example must be given */
        json_set(arena, properties, member, *text);
        json_append(arena, required, json_string(member));
    }
    json_set(arena, schema, STR("type"), json_string(STR("object")));
    json_set(arena, schema, STR("properties"), *properties);
    json_set(arena, schema, STR("required"), *required);
    return schema;
}

static struct tool_arguments *arguments_of(struct arguments *arguments, const struct tool *tool)
{
    struct tool_arguments *of = map_get(&arguments->tools, tool->name);
    if (of)
        return of;
    of = arena_zero(&arguments->arena, sizeof *of);
    of->tool = tool;
    of->schema = schema_of(&arguments->arena, tool);
    of->spread = true;
    const struct json *examples = arguments->examples ? json_get(arguments->examples, tool->name) : NULL;
    of->examples = examples && examples->type == JSON_ARRAY && examples->count > 0 ? examples : NULL;
    map_put(&arguments->tools, tool->name, of);
    return of;
}

/* ---- judging ---- */

static enum err_code judge(const struct tool *tool, const struct json *value, struct arena *arena,
                           struct identity *identity, enum refusal *why, struct err *err)
{
    static const char secret[DIGEST_BYTES];
    const struct call call = {
        .tenant = "chaos",
        .principal = "agent",
        .arguments = value,
        .idempotency_key = tool->identity == IDENTITY_CALLER ? "key" : NULL,
    };
    struct operation op = {.id = "op_01ARZ3NDEKTSV4RRFFQ69G5FAV"};
    struct admission admission;
    const struct json *effective = NULL;
    struct identity_error refused;
    enum err_code code = identity_derive(&call, tool, (struct str){secret, sizeof secret}, arena, &op, &admission,
                                         &effective, &refused, err);
    *why = refused.refusal;
    if (code && refused.error_count > 0 && refused.errors[0].pointer[0])
        err_prefix(err, "%s: ", refused.errors[0].pointer);
    if (code)
        return code;
    identity->fingerprint = op.fingerprint;
    identity->key = op.key_source == KEY_SOURCE_BUSINESS ? op.key_hash : op.fingerprint;
    return ERR_NONE;
}

static bool same_identity(const struct identity *a, const struct identity *b)
{
    return digest_equal(&a->key, &b->key) && digest_equal(&a->fingerprint, &b->fingerprint);
}

/* ---- making ---- */

/* "/when: expected a time …" of a normaliser: that member has to be one. True when this was news. */
static bool learn_time(struct arguments *arguments, struct tool_arguments *of, const char *text)
{
    const char *end = strstr(text, ": ");
    if (text[0] != '/' || !end || of->time_count == TIMES_MAX)
        return false;
    const char *pointer = arena_copy_str(&arguments->arena, (struct str){text, (size_t)(end - text)});
    for (size_t i = 0; i < of->time_count; i++)
        if (strcmp(of->times[i], pointer) == 0)
            return false;
    of->times[of->time_count++] = pointer;
    return true;
}

struct making {
    struct arguments *arguments;
    struct tool_arguments *of;
    uint64_t n;
    unsigned attempt, attempts; /* this one; how many are worth making */
    bool all_members;
    enum refusal refusal;
};

static enum err_code make_once(struct making *making, struct json *out, struct err *err)
{
    struct tool_arguments *of = making->of;
    struct arena *arena = &making->arguments->arena;
    const struct sample_request request = {
        .schema = of->schema,
        .n = making->n,
        .attempt = making->attempt,
        .all_members = making->all_members,
        .spread = of->spread,
        .given = of->examples ? &of->examples->items[making->n % of->examples->count] : NULL,
        .times = of->times,
        .time_count = of->time_count,
    };
    unsigned branches = 0;
    struct identity identity;
    making->refusal = REFUSAL_NONE;
    enum err_code code = sample(arena, &request, out, &branches, err);
    if (making->attempt == 0)
        making->attempts = branches < SAMPLE_ATTEMPTS ? branches + 1 : SAMPLE_ATTEMPTS;
    if (code)
        return code;
    if (out->type != JSON_OBJECT)
        return err_set(err, ERR_INVALID, "the schema asks for %s instead of an object", json_type_name(out->type));
    struct arena work;
    arena_init(&work);
    code = judge(of->tool, out, &work, &identity, &making->refusal, err);
    arena_release(&work);
    return code;
}

/* The first attempt's error is the one to tell: it took the branches that the author wrote first. */
static enum err_code make(struct arguments *arguments, struct tool_arguments *of, uint64_t n, struct json *out,
                          struct err *err)
{
    struct making making = {.arguments = arguments, .of = of, .n = n, .attempts = 1};
    struct err first = {0};
    for (; making.attempt < making.attempts; making.attempt++) {
        for (int all = 0; all < 2;) {
            struct err why = {0};
            making.all_members = all;
            if (!make_once(&making, out, &why))
                return ERR_NONE;
            bool learned = making.refusal == REFUSAL_ARGUMENTS && learn_time(arguments, of, why.text);
            if (all && !learned)
                err_set(&first, ERR_INVALID, "%s", why.text);
            all += !learned;
        }
    }
    return err_set(err, ERR_INVALID, "%s", first.text);
}

static enum err_code made(struct arguments *arguments, struct tool_arguments *of, uint64_t n, const struct json **out,
                          struct err *err)
{
    if (n >= of->made_count) {
        size_t count = of->made_count * 2 > n + 1 ? of->made_count * 2 : (size_t)n + 1;
        of->made = mem_grow(of->made, count * sizeof(const struct json *));
        for (size_t i = of->made_count; i < count; i++)
            of->made[i] = NULL;
        of->made_count = count;
    }
    if (!of->made[n]) {
        struct json *value = arena_zero(&arguments->arena, sizeof *value);
        enum err_code code = make(arguments, of, n, value, err);
        if (code)
            return code;
        of->made[n] = value;
    }
    *out = of->made[n];
    return ERR_NONE;
}

/* ---- checking ---- */

static int by_key(const void *a, const void *b)
{
    return memcmp(*(const struct digest *const *)a, *(const struct digest *const *)b, sizeof(struct digest));
}

/* How many from the first on differ from all before them. */
static uint64_t count_distinct(const struct digest *keys, uint64_t count)
{
    const struct digest **sorted = mem_alloc((size_t)count * sizeof *sorted);
    for (uint64_t i = 0; i < count; i++)
        sorted[i] = &keys[i];
    qsort(sorted, (size_t)count, sizeof *sorted, by_key);
    uint64_t distinct = count;
    for (uint64_t i = 1; i < count; i++) {
        const struct digest *later = sorted[i] > sorted[i - 1] ? sorted[i] : sorted[i - 1];
        if (digest_equal(sorted[i], sorted[i - 1]) && (uint64_t)(later - keys) < distinct)
            distinct = (uint64_t)(later - keys);
    }
    free(sorted);
    return distinct;
}

static enum err_code check_once(struct arguments *arguments, struct tool_arguments *of, uint64_t wanted,
                                uint64_t *distinct, struct err *err)
{
    struct digest *keys = mem_alloc((size_t)wanted * sizeof *keys);
    struct arena work;
    arena_init(&work);
    enum err_code code = ERR_NONE;
    for (uint64_t n = 0; n < wanted && !code; n++) {
        const struct json *value = NULL;
        struct identity identity;
        enum refusal why;
        code = made(arguments, of, n, &value, err);
        if (!code)
            code = judge(of->tool, value, &work, &identity, &why, err);
        if (!code)
            keys[n] = identity.key;
        arena_reset(&work);
    }
    if (!code)
        *distinct = of->tool->identity == IDENTITY_CALLER ? wanted : count_distinct(keys, wanted);
    arena_release(&work);
    free(keys);
    return code;
}

enum err_code arguments_check(struct arguments *arguments, const struct tool *tool, uint64_t wanted, uint64_t *distinct,
                              struct err *err)
{
    struct tool_arguments *of = arguments_of(arguments, tool);
    uint64_t dealt = 0, modulo = 0;
    enum err_code code = check_once(arguments, of, wanted, &dealt, err);
    *distinct = dealt;
    if (code || dealt == wanted)
        return code;
    of->spread = false; /* the members that make the identity may be better off without dealing */
    forget(of);
    if (!check_once(arguments, of, wanted, &modulo, NULL) && modulo > dealt) {
        *distinct = modulo;
        return ERR_NONE;
    }
    of->spread = true;
    forget(of);
    return ERR_NONE;
}

/* ---- writing the same intent differently ---- */

static bool rewrite(struct arena *arena, enum rewriting how, struct json *value)
{
    if (value->type != JSON_STRING || value->text.n == 0)
        return false;
    struct str text = value->text;
    char *space = memchr(text.p, ' ', text.n);
    char *upper = NULL;
    switch (how) {
    case REWRITE_PADDED: *value = json_string(str_of(arena_printf(arena, " %.*s ", STR_ARG(text)))); return true;
    case REWRITE_UPPER:
        upper = arena_copy_str(arena, text);
        for (size_t i = 0; i < text.n; i++)
            upper[i] = upper[i] >= 'a' && upper[i] <= 'z' ? (char)(upper[i] - 'a' + 'A') : upper[i];
        *value = json_string((struct str){upper, text.n});
        return memcmp(upper, text.p, text.n) != 0;
    case REWRITE_SPACED:
        if (!space)
            return false;
        *value = json_string(str_of(
            arena_printf(arena, "%.*s %.*s", (int)(space - text.p), text.p, (int)(text.p + text.n - space), space)));
        return true;
    case REWRITE_REWORDED: *value = json_string(str_of(arena_printf(arena, "%.*s again", STR_ARG(text)))); return true;
    case REWRITE_COUNT: break;
    }
    return false;
}

static struct json *member_of(struct json *object, struct str name)
{
    for (uint32_t i = 0; i < object->count; i++)
        if (str_equal(object->members[i].name, name))
            return &object->members[i].value;
    return NULL;
}

static bool has_rewriter(const struct tool_arguments *of, struct str name, enum rewriting how)
{
    for (size_t i = 0; i < of->rewriter_count; i++)
        if (of->rewriters[i].how == how && str_equal(of->rewriters[i].name, name))
            return true;
    return false;
}

/* Tries every way on every text: those that leave the identity alone may be used. */
static void try_rewriters(struct arguments *arguments, struct tool_arguments *of, const struct json *sample)
{
    struct arena work;
    struct identity before, after;
    enum refusal why;
    arena_init(&work);
    bool known = !judge(of->tool, sample, &work, &before, &why, NULL);
    for (uint32_t i = 0; known && i < sample->count; i++) {
        for (int how = 0; how < REWRITE_COUNT; how++) {
            struct str name = sample->members[i].name;
            struct json *copy = json_copy(&work, sample);
            if (of->rewriter_count < REWRITERS_MAX && !has_rewriter(of, name, (enum rewriting)how) &&
                rewrite(&work, (enum rewriting)how, member_of(copy, name)) &&
                !judge(of->tool, copy, &work, &after, &why, NULL) && same_identity(&before, &after))
                of->rewriters[of->rewriter_count++] =
                    (struct rewriter){arena_str(&arguments->arena, name), (enum rewriting)how};
        }
    }
    arena_release(&work);
}

/* From the first intents, not from the one that is asked for: what comes out must not depend on the order of asking. */
static void find_rewriters(struct arguments *arguments, struct tool_arguments *of)
{
    of->rewriters_found = true;
    for (uint64_t n = 0; n < REWRITER_SAMPLES; n++) {
        const struct json *sample = NULL;
        if (!made(arguments, of, n, &sample, NULL))
            try_rewriters(arguments, of, sample);
    }
}

static uint64_t mix(uint64_t value)
{
    value = (value ^ value >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    value = (value ^ value >> 27) * UINT64_C(0x94d049bb133111eb);
    return value ^ value >> 31;
}

/* 49 as 49.0, 4.5 as 4.50; what has an exponent stays. */
static void rewrite_number(struct arena *arena, struct json *value)
{
    struct str text = value->text;
    if (memchr(text.p, 'e', text.n) || memchr(text.p, 'E', text.n))
        return;
    value->text = str_of(arena_printf(arena, memchr(text.p, '.', text.n) ? "%.*s0" : "%.*s.0", STR_ARG(text)));
}

/* Turns the members of all objects and rewrites numbers by the bits of random. */
static void reorder(struct arena *arena, struct json *value, uint64_t random)
{
    if (value->type == JSON_NUMBER && (random & 2))
        rewrite_number(arena, value);
    if (value->type == JSON_ARRAY)
        for (uint32_t i = 0; i < value->count; i++)
            reorder(arena, &value->items[i], mix(random + i));
    if (value->type != JSON_OBJECT || value->count == 0)
        return;
    uint32_t count = value->count, by = (uint32_t)(random >> 8) % count;
    struct json_member *turned = arena_alloc(arena, count * sizeof *turned);
    for (uint32_t i = 0; i < count; i++) {
        turned[i] = value->members[(i + by) % count];
        reorder(arena, &turned[i].value, mix(random + i));
    }
    for (uint32_t i = 0; (random & 1) && i < count / 2; i++) {
        struct json_member swap = turned[i];
        turned[i] = turned[count - 1 - i];
        turned[count - 1 - i] = swap;
    }
    memcpy(value->members, turned, count * sizeof *turned);
}

static struct json *write_differently(const struct tool_arguments *of, const struct json *value, uint64_t random,
                                      bool texts, struct arena *arena)
{
    struct json *copy = json_copy(arena, value);
    for (size_t i = 0; texts && i < of->rewriter_count; i++) {
        struct json *member = member_of(copy, of->rewriters[i].name);
        if (member && (mix(random + i) & 1))
            rewrite(arena, of->rewriters[i].how, member);
    }
    reorder(arena, copy, random);
    return copy;
}

const struct json *arguments_give(void *user, const struct tool *tool, uint64_t n, unsigned variant, uint64_t random,
                                  struct arena *arena)
{
    struct arguments *arguments = user;
    struct tool_arguments *of = arguments_of(arguments, tool);
    const struct json *value = NULL;
    if (made(arguments, of, n, &value, NULL))
        return NULL;
    if (variant == 0)
        return json_copy(arena, value);
    if (!of->rewriters_found)
        find_rewriters(arguments, of);
    struct identity before, after;
    enum refusal why;
    uint64_t bits = mix(random ^ mix(n << 8 | variant));
    /* two ways of writing one text may not go together; then only order and numbers change, then nothing */
    for (int texts = 1; texts >= 0; texts--) {
        struct json *copy = write_differently(of, value, bits, texts, arena);
        if (!judge(tool, value, arena, &before, &why, NULL) && !judge(tool, copy, arena, &after, &why, NULL) &&
            same_identity(&before, &after))
            return copy;
    }
    return json_copy(arena, value);
}
