#include "core/identity.h"

#include "core/playbook.h"
#include "core/steps.h"

#include <stdio.h>

struct digest identity_key_hash(const char *tenant, const char *tool, const char *key, const char *repeat_of)
{
    struct str parts[] = {str_of(tenant), str_of(tool), str_of(key), str_of(repeat_of)};
    return digest_parts(parts, repeat_of ? 4 : 3);
}

void identity_key_short(struct str secret, const char *key, char out[9])
{
    struct str part = str_of(key);
    struct digest digest = digest_parts_keyed(secret, &part, 1);
    digest_hex(&digest, 4, out);
}

static bool has_control(const char *text)
{
    for (const unsigned char *p = (const unsigned char *)text; *p; p++)
        if (*p < 0x20 || *p == 0x7f)
            return true;
    return false;
}

enum err_code identity_check_key(const char *key, struct err *err)
{
    size_t n = strlen(key);
    if (n == 0)
        return err_set(err, ERR_INVALID, "the idempotency key is empty");
    if (n > OPERATION_KEY_BYTES_MAX)
        return err_set(err, ERR_INVALID, "the idempotency key has %zu bytes, at most %d are allowed", n,
                       OPERATION_KEY_BYTES_MAX);
    if (has_control(key))
        return err_set(err, ERR_INVALID, "the idempotency key contains control characters");
    return ERR_NONE;
}

enum err_code identity_parse_header(struct str value, struct arena *arena, const char **key, struct err *err)
{
    while (value.n && (*value.p == ' ' || *value.p == '\t'))
        value.p++, value.n--;
    while (value.n && (value.p[value.n - 1] == ' ' || value.p[value.n - 1] == '\t'))
        value.n--;
    char *out = arena_alloc(arena, value.n + 1);
    size_t n = 0;
    if (value.n && value.p[0] == '"') {
        size_t i = 1;
        for (; i < value.n && value.p[i] != '"'; i++) {
            if (value.p[i] == '\\') {
                if (++i == value.n || (value.p[i] != '"' && value.p[i] != '\\'))
                    return err_set(err, ERR_INVALID, "Idempotency-Key: a backslash may only stand before \" or \\");
            }
            out[n++] = value.p[i];
        }
        if (i + 1 != value.n)
            return err_set(err, ERR_INVALID,
                           i == value.n ? "Idempotency-Key: the closing quote is missing"
                                        : "Idempotency-Key: nothing may follow the closing quote");
    } else {
        memcpy(out, value.p ? value.p : "", value.n);
        n = value.n;
    }
    out[n] = '\0';
    if (strlen(out) != n)
        return err_set(err, ERR_INVALID, "Idempotency-Key: contains a NUL byte");
    enum err_code code = identity_check_key(out, err);
    if (!code)
        *key = out;
    return code;
}

static enum err_code check_coordinates(const struct call *call, struct err *err)
{
    const struct {
        const char *name, *value;
    } given[] = {{"workflow", call->workflow},
                 {"run_id", call->run},
                 {"step_id", call->step},
                 {"session_id", call->session},
                 {"call_id", call->call}};
    for (size_t i = 0; i < sizeof given / sizeof *given; i++) {
        const char *value = given[i].value;
        if (!value)
            continue;
        if (!*value || strlen(value) > CALL_COORDINATE_BYTES_MAX || has_control(value))
            return err_set(err, ERR_INVALID, "%s must have 1 to %d bytes and no control characters", given[i].name,
                           CALL_COORDINATE_BYTES_MAX);
    }
    if (call->step && !call->run && !call->parent) /* a step of a multi-step operation lies within that */
        return err_set(err, ERR_INVALID, "step_id needs run_id: a step has no meaning outside its run");
    return ERR_NONE;
}

static void refuse_argument(struct arena *arena, struct identity_error *why, const struct err *err)
{
    why->refusal = REFUSAL_ARGUMENTS;
    if (why->error_count > 0)
        return;
    why->errors = arena_zero(arena, sizeof *why->errors);
    *why->errors =
        (struct schema_error){.pointer = "", .message = arena_copy_text(arena, err->text), .keyword = "normalize"};
    why->error_count = 1;
}

/* 2.6: defaults, normalisers, then the schema judges what would be sent. */
static enum err_code make_effective(const struct call *call, const struct tool *tool, struct arena *arena,
                                    const struct json **out, struct identity_error *why, struct err *err)
{
    const struct json *given = call->arguments ? call->arguments : json_object(arena);
    struct err local = {0};
    if (given->type != JSON_OBJECT) {
        err_set(&local, ERR_INVALID, "arguments must be an object, got %s", json_type_name(given->type));
        refuse_argument(arena, why, &local);
        return err_set(err, ERR_INVALID, "%s", local.text);
    }
    struct json *value = json_copy(arena, given);
    if (tool->input_schema)
        schema_apply_defaults(tool->input_schema, arena, value);
    if (tool->normal && normal_apply(tool->normal, arena, value, &local)) {
        refuse_argument(arena, why, &local);
        return err_set(err, ERR_INVALID, "%s", local.text);
    }
    if (tool->input_schema) {
        enum err_code code = schema_validate(tool->input_schema, arena, value, &why->errors, &why->error_count, &local);
        if (code) {
            refuse_argument(arena, why, &local);
            return err_set(err, ERR_INVALID, "%s", local.text);
        }
    }
    *out = value;
    return ERR_NONE;
}

static struct digest make_fingerprint(const struct tool *tool, struct arena *arena, const struct json *effective)
{
    const struct json *value = effective;
    if (tool->volatile_count > 0) {
        struct json *copy = json_copy(arena, effective);
        for (size_t i = 0; i < tool->volatile_count; i++)
            json_pointer_remove(copy, tool->volatile_pointers[i]);
        value = copy;
    }
    struct buf text;
    buf_init(&text, 0);
    json_canonical(&text, value);
    struct digest digest = digest_sha256(buf_str(&text));
    buf_release(&text);
    return digest;
}

static const char *hex_key(struct arena *arena, const char *prefix, const struct digest *digest)
{
    char hex[2 * DIGEST_BYTES + 1];
    digest_hex(digest, DIGEST_BYTES, hex);
    size_t n = strlen(prefix);
    char *key = arena_alloc(arena, n + 1 + sizeof hex);
    memcpy(key, prefix, n);
    key[n] = ':';
    memcpy(key + n + 1, hex, sizeof hex);
    return key;
}

static struct str fingerprint_str(const struct operation *op)
{
    return (struct str){(const char *)op->fingerprint.b, DIGEST_BYTES};
}

static enum err_code business_key(const struct tool *tool, const struct json *effective, struct arena *arena,
                                  const char **key, struct err *err)
{
    struct buf text;
    buf_init(&text, OPERATION_KEY_BYTES_MAX);
    enum err_code code = template_fill(tool->key, effective, TEMPLATE_KEY, &text, err);
    if (!code && text.over)
        code = err_set(err, ERR_INVALID, "the business key is longer than %d bytes", OPERATION_KEY_BYTES_MAX);
    if (!code)
        *key = arena_copy_str(arena, buf_str(&text));
    else
        err_prefix(err, "key %s: ", template_text(tool->key));
    buf_release(&text);
    return code;
}

/* 2.2: the first source that yields a key wins. */
static enum err_code derive_key(const struct call *call, const struct tool *tool, struct str secret,
                                struct arena *arena, const struct json *effective, struct operation *op,
                                struct identity_error *why, struct err *err)
{
    if (call->compensates) { /* asked for twice, it is done once */
        op->key_source = KEY_SOURCE_BUSINESS;
        op->key = playbook_key(arena, call->compensates, call->playbook);
        return ERR_NONE;
    }
    if (call->parent) { /* of one parent each step is one intent, whatever its arguments become */
        op->key_source = KEY_SOURCE_STEP;
        op->key = steps_key(arena, call->parent, call->step);
        return ERR_NONE;
    }
    if (call->idempotency_key) {
        why->refusal = REFUSAL_KEY_INVALID;
        if (strncmp(call->idempotency_key, PLAYBOOK_KEY, sizeof PLAYBOOK_KEY - 1) == 0)
            return err_set(err, ERR_INVALID,
                           "keys that begin with \"%s\" are those of compensations: run a playbook "
                           "of the operation instead",
                           PLAYBOOK_KEY);
        if (strncmp(call->idempotency_key, STEPS_KEY "op_", sizeof STEPS_KEY + 2) == 0)
            return err_set(err, ERR_INVALID, "keys that begin with \"%sop_\" are those of steps of multi-step tools",
                           STEPS_KEY);
        op->key_source = KEY_SOURCE_CALLER;
        op->key = call->idempotency_key;
        return identity_check_key(op->key, err);
    }
    if (tool->identity == IDENTITY_CALLER) {
        why->refusal = REFUSAL_KEY_MISSING;
        return err_set(err, ERR_INVALID,
                       "tool %s needs an idempotency key from the caller (header Idempotency-Key or idempotency_key)",
                       tool->name);
    }
    if (tool->key) {
        why->refusal = REFUSAL_KEY_COMPONENT;
        op->key_source = KEY_SOURCE_BUSINESS;
        return business_key(tool, effective, arena, &op->key, err);
    }
    if (call->run && call->step) {
        struct str parts[] = {str_of(call->tenant), str_of(call->run), str_of(call->step), str_of(tool->name),
                              fingerprint_str(op)};
        struct digest digest = digest_parts_keyed(secret, parts, tool->step_identity == STEP_PER_ARGUMENTS ? 5 : 4);
        op->key_source = KEY_SOURCE_STEP;
        op->key = hex_key(arena, "step", &digest);
        return ERR_NONE;
    }
    if (call->call) {
        struct str parts[] = {str_of(call->tenant), str_of(call->principal), str_of(call->session),
                              str_of(call->run),    str_of(call->call),      str_of(tool->name)};
        struct digest digest = digest_parts_keyed(secret, parts, sizeof parts / sizeof *parts);
        op->key_source = KEY_SOURCE_CALL;
        op->key = hex_key(arena, "call", &digest);
        return ERR_NONE;
    }
    op->key_source = KEY_SOURCE_REPEAT;
    if (call->repeat_of) { /* a retry of this very call must find what it opened: nothing random in its key */
        struct str parts[] = {str_of(call->tenant), str_of(call->principal), str_of(tool->name), fingerprint_str(op)};
        struct digest digest = digest_parts_keyed(secret, parts, sizeof parts / sizeof *parts);
        op->key = hex_key(arena, "repeat", &digest);
    } else {
        op->key = arena_printf(arena, "repeat:%s", op->id + 3);
    }
    return ERR_NONE;
}

/* RFC 9562 version 8: bits of our own making. */
static const char *uuid_of(struct arena *arena, const struct digest *digest, const char *hex)
{
    char *out = arena_copy_text(arena, "........-....-8...-....-............");
    memcpy(out, hex, 8);
    memcpy(out + 9, hex + 8, 4);
    memcpy(out + 15, hex + 13, 3);
    out[19] = "89ab"[(digest->b[8] >> 4) & 3];
    memcpy(out + 20, hex + 17, 3);
    memcpy(out + 24, hex + 20, 12);
    return out;
}

/* The digest is made only where it is asked for: by default the key is the id itself. */
static const char *make_provider_key(struct arena *arena, const struct provider *provider, const char *id)
{
    size_t bytes_max = provider->key_bytes_max;
    if (provider->key_format == KEY_FORMAT_OPERATION_ID && (bytes_max == 0 || bytes_max >= strlen(id)))
        return id;
    struct digest digest = digest_sha256(str_of(id));
    char hex[2 * DIGEST_BYTES + 1];
    digest_hex(&digest, DIGEST_BYTES, hex);
    if (provider->key_format == KEY_FORMAT_UUID)
        return uuid_of(arena, &digest, hex);
    size_t n = bytes_max && bytes_max < strlen(hex) ? bytes_max : strlen(hex);
    return arena_copy_str(arena, (struct str){hex, n});
}

static void fill_admission(const struct call *call, const struct tool *tool, struct operation *op,
                           struct admission *admission)
{
    *admission = (struct admission){
        .op = op,
        .on_mismatch = tool->on_mismatch,
        .share_with_tenant =
            tool->share == SHARE_TENANT || (tool->share == SHARE_DEFAULT && op->key_source == KEY_SOURCE_BUSINESS),
        .repeat_window_ms = tool->repeat_window_ms,
        .repeats_too = op->key_source == KEY_SOURCE_CALL && call->call_id_per_try,
        .hold_in_doubt = tool->in_doubt == IN_DOUBT_HOLD,
        .distinct_count = call->distinct_count,
        .volatile_pointers = tool->volatile_pointers,
        .volatile_count = tool->volatile_count,
    };
    memcpy(admission->distinct_from, call->distinct_from, sizeof admission->distinct_from);
    if (!call->compensates && !call->parent)
        return;
    /* It names the operation that it undoes, or is a step of: nobody can mean another one, and what else is in doubt is
     * no matter. */
    admission->share_with_tenant = true;
    admission->on_mismatch = MISMATCH_CONFLICT;
    admission->hold_in_doubt = false;
}

enum err_code identity_derive(const struct call *call, const struct tool *tool, struct str secret, struct arena *arena,
                              struct operation *op, struct admission *admission, const struct json **effective,
                              struct identity_error *why, struct err *err)
{
    *why = (struct identity_error){.refusal = REFUSAL_KEY_INVALID};
    enum err_code code = check_coordinates(call, err);
    if (code)
        return code;
    if ((code = make_effective(call, tool, arena, effective, why, err)))
        return code;
    op->tenant = call->tenant;
    op->principal = call->principal;
    op->tool = tool->name;
    op->workflow = call->workflow;
    op->run = call->run;
    op->step = call->step;
    op->session = call->session;
    op->call = call->call;
    op->trace = call->trace;
    op->repeat_of = call->repeat_of;
    op->compensates = call->compensates;
    op->playbook = call->playbook;
    op->parent = call->parent;
    op->distinct_from = call->distinct_count ? call->distinct_from[0] : NULL;
    op->not_before_ms = call->not_before_ms;
    op->canonical_version = JSON_CANONICAL_VERSION;
    op->key_version = 1;
    op->fingerprint = make_fingerprint(tool, arena, *effective);
    if ((code = derive_key(call, tool, secret, arena, *effective, op, why, err)))
        return code;
    op->key_hash = identity_key_hash(op->tenant, op->tool, op->key, op->repeat_of);
    op->base_hash = op->repeat_of ? identity_key_hash(op->tenant, op->tool, op->key, NULL) : op->key_hash;
    op->provider_key = make_provider_key(arena, tool->provider, op->id);
    struct buf text;
    buf_init(&text, 0);
    json_write(&text, *effective);
    op->arguments = (struct str){arena_copy_str(arena, buf_str(&text)), text.n};
    buf_release(&text);
    fill_admission(call, tool, op, admission);
    why->refusal = REFUSAL_NONE;
    return ERR_NONE;
}
