#include "cli/fake_config.h"

#include <stdio.h>
#include <string.h>

static const char *const keys_names[] = {"honour", "ignore", "forget"};
static const char *const keep_names[] = {"effect", "success", "not_5xx", "not_429", "all"};

static const char *const default_business_keys[] = {"payment_id", "payment", "charge",
                                                    "order_id",   "order",   "business_key"};

/* Documented contracts of real providers (scenario S63); times are theirs, tests shorten them with retention_ms. */
struct contract {
    const char *name;
    enum fake_keep keep;
    int64_t retention_ms;
    int mismatch_status;
    bool scope_global;
};

#define MINUTES(n) ((int64_t)(n)*60000)
#define HOURS(n)   MINUTES((n)*60)
static const struct contract contracts[] = {
    {"stripe", KEEP_NOT_429, HOURS(24), 400, true},   {"qonto", KEEP_SUCCESS, MINUTES(30), 0, true},
    {"checkout", KEEP_SUCCESS, HOURS(24), 422, true}, {"truelayer", KEEP_ALL, HOURS(24 * 30), 422, true},
    {"solid", KEEP_NOT_429, HOURS(24), 422, true},    {"easyship", KEEP_ALL, HOURS(24), 422, true},
    {"epay", KEEP_EFFECT, HOURS(24), 422, false},
};

void fake_config_init(struct fake_config *config)
{
    *config = (struct fake_config){
        .keys = KEYS_HONOUR,
        .keep = KEEP_EFFECT,
        .retention_ms = HOURS(24),
        .in_use_status = 409,
        .mismatch_status = 422,
        .page_size = 30,
        .page_size_max = 100,
        .key_header = "Idempotency-Key",
        .chances.seed = 1,
    };
    for (size_t i = 0; i < sizeof default_business_keys / sizeof *default_business_keys; i++)
        snprintf(config->business_keys[config->business_key_count++], FAKE_NAME_MAX, "%s", default_business_keys[i]);
}

static enum err_code read_text(char *out, size_t size, const struct json *value, struct err *err)
{
    if (value->type != JSON_STRING || value->text.n >= size || memchr(value->text.p, 0, value->text.n))
        return err_set(err, ERR_INVALID, "expected a text of at most %zu bytes", size - 1);
    memcpy(out, value->text.p, value->text.n);
    out[value->text.n] = 0;
    return ERR_NONE;
}

static enum err_code read_int(int64_t *out, int64_t min, int64_t max, const struct json *value, struct err *err)
{
    int64_t number = 0;
    if (value->type != JSON_NUMBER || !json_number_int64(value->text, &number) || number < min || number > max)
        return err_set(err, ERR_INVALID, "expected an integer from %lld to %lld", (long long)min, (long long)max);
    *out = number;
    return ERR_NONE;
}

static enum err_code read_status(int *out, bool zero, const struct json *value, struct err *err)
{
    int64_t number = 0;
    if (read_int(&number, 0, 599, value, err))
        return ERR_INVALID;
    if (number < 100 && !(zero && number == 0))
        return err_set(err, ERR_INVALID, "expected an HTTP status");
    *out = (int)number;
    return ERR_NONE;
}

static enum err_code read_small(int *out, int max, const struct json *value, struct err *err)
{
    int64_t number = 0;
    if (read_int(&number, 1, max, value, err))
        return ERR_INVALID;
    *out = (int)number;
    return ERR_NONE;
}

static enum err_code read_choice(int *out, const char *const *names, int count, const struct json *value,
                                 struct err *err)
{
    char all[128] = "";
    for (int i = 0; i < count; i++) {
        if (value->type == JSON_STRING && str_is(value->text, names[i])) {
            *out = i;
            return ERR_NONE;
        }
        size_t used = strlen(all);
        snprintf(all + used, sizeof all - used, "%s%s", i ? ", " : "", names[i]);
    }
    return err_set(err, ERR_INVALID, "expected one of %s", all);
}

static enum err_code read_plan(char *out, const struct json *value, struct err *err)
{
    struct fake_plan plan;
    char text[FAKE_PLAN_TEXT_MAX];
    if (read_text(text, sizeof text, value, err))
        return ERR_INVALID;
    for (unsigned nth = 1; nth <= FAKE_PLAN_TEXT_MAX; nth++) {
        if (fake_plan_parse(str_of(text), nth, &plan, err))
            return ERR_INVALID;
    }
    strcpy(out, text);
    return ERR_NONE;
}

static enum err_code read_business_keys(struct fake_config *config, const struct json *value, struct err *err)
{
    if (value->type != JSON_ARRAY || value->count > FAKE_BUSINESS_KEYS_MAX)
        return err_set(err, ERR_INVALID, "expected a list of at most %d names", FAKE_BUSINESS_KEYS_MAX);
    char names[FAKE_BUSINESS_KEYS_MAX][FAKE_NAME_MAX] = {0};
    for (uint32_t i = 0; i < value->count; i++)
        if (read_text(names[i], FAKE_NAME_MAX, &value->items[i], err))
            return ERR_INVALID;
    memcpy(config->business_keys, names, sizeof names);
    config->business_key_count = value->count;
    return ERR_NONE;
}

/* "a=0.1,b=0.2" or {"a": 0.1, "b": 0.2} */
static enum err_code read_chances(struct fake_chances *chances, const struct json *value, struct err *err)
{
    if (value->type == JSON_STRING)
        return fake_chances_parse(value->text, chances, err);
    if (value->type != JSON_OBJECT)
        return err_set(err, ERR_INVALID, "expected a text or an object of probabilities");
    struct buf text;
    buf_init(&text, 64 << 10);
    for (uint32_t i = 0; i < value->count; i++) {
        const struct json_member *member = &value->members[i];
        bool number = member->value.type == JSON_NUMBER;
        buf_printf(&text, "%s%.*s=%.*s", i ? "," : "", STR_ARG(member->name), number ? (int)member->value.text.n : 1,
                   number ? member->value.text.p : "?");
    }
    enum err_code code = fake_chances_parse(buf_str(&text), chances, err);
    buf_release(&text);
    return code;
}

static enum err_code read_contract(struct fake_config *config, const struct json *value, struct err *err)
{
    for (size_t i = 0; i < sizeof contracts / sizeof *contracts; i++) {
        if (value->type == JSON_STRING && str_is(value->text, contracts[i].name)) {
            config->keys = KEYS_HONOUR;
            config->keep = contracts[i].keep;
            config->retention_ms = contracts[i].retention_ms;
            config->mismatch_status = contracts[i].mismatch_status;
            config->scope_global = contracts[i].scope_global;
            return ERR_NONE;
        }
    }
    return err_set(err, ERR_INVALID, "expected stripe, qonto, checkout, truelayer, solid, easyship or epay");
}

static enum err_code read_scope(struct fake_config *config, const struct json *value, struct err *err)
{
    static const char *const names[] = {"endpoint", "global"};
    int choice = 0;
    if (read_choice(&choice, names, 2, value, err))
        return ERR_INVALID;
    config->scope_global = choice == 1;
    return ERR_NONE;
}

#define TIME_MAX_MS ((int64_t)10 * 366 * 24 * 3600 * 1000)

static enum err_code apply_member(struct fake_config *config, struct str name, const struct json *value,
                                  struct err *err)
{
    int choice = 0;
    if (str_is(name, "contract"))
        return read_contract(config, value, err);
    if (str_is(name, "keys")) {
        if (read_choice(&choice, keys_names, 3, value, err))
            return ERR_INVALID;
        config->keys = (enum fake_keys)choice;
        return ERR_NONE;
    }
    if (str_is(name, "keep")) {
        if (read_choice(&choice, keep_names, 5, value, err))
            return ERR_INVALID;
        config->keep = (enum fake_keep)choice;
        return ERR_NONE;
    }
    if (str_is(name, "retention_ms"))
        return read_int(&config->retention_ms, 0, TIME_MAX_MS, value, err);
    if (str_is(name, "in_use_status"))
        return read_status(&config->in_use_status, false, value, err);
    if (str_is(name, "mismatch_status"))
        return read_status(&config->mismatch_status, true, value, err);
    if (str_is(name, "scope"))
        return read_scope(config, value, err);
    if (str_is(name, "key_header"))
        return read_text(config->key_header, FAKE_NAME_MAX, value, err);
    if (str_is(name, "key_field"))
        return read_text(config->key_field, FAKE_NAME_MAX, value, err);
    if (str_is(name, "business_keys"))
        return read_business_keys(config, value, err);
    if (str_is(name, "token"))
        return read_text(config->token, FAKE_NAME_MAX, value, err);
    if (str_is(name, "faults"))
        return read_chances(&config->chances, value, err);
    if (str_is(name, "seed"))
        return read_int((int64_t *)&config->chances.seed, 0, INT64_MAX, value, err);
    if (str_is(name, "fault"))
        return read_plan(config->fault, value, err);
    if (str_is(name, "lookup_fault"))
        return read_plan(config->lookup_fault, value, err);
    if (str_is(name, "latency_ms"))
        return read_int(&config->latency_ms, 0, TIME_MAX_MS, value, err);
    if (str_is(name, "lookup_latency_ms"))
        return read_int(&config->lookup_latency_ms, 0, TIME_MAX_MS, value, err);
    if (str_is(name, "propagation_ms"))
        return read_int(&config->propagation_ms, 0, TIME_MAX_MS, value, err);
    if (str_is(name, "page_size"))
        return read_small(&config->page_size, 10000, value, err);
    if (str_is(name, "page_size_max"))
        return read_small(&config->page_size_max, 10000, value, err);
    return err_set(err, ERR_INVALID, "no such setting");
}

enum err_code fake_config_apply(struct fake_config *config, const struct json *object, struct err *err)
{
    struct fake_config changed = *config;
    if (object->type != JSON_OBJECT)
        return err_set(err, ERR_INVALID, "expected an object of settings");
    const struct json *contract = json_get(object, "contract");
    if (contract && apply_member(&changed, STR("contract"), contract, err)) {
        err_prefix(err, "contract: ");
        return ERR_INVALID;
    }
    for (uint32_t i = 0; i < object->count; i++) {
        const struct json_member *member = &object->members[i];
        if (str_is(member->name, "contract"))
            continue;
        if (apply_member(&changed, member->name, &member->value, err)) {
            err_prefix(err, "%.*s: ", STR_ARG(member->name));
            return ERR_INVALID;
        }
    }
    *config = changed;
    return ERR_NONE;
}

enum err_code fake_config_apply_text(struct fake_config *config, const char *text, struct err *err)
{
    const char *equals = strchr(text, '=');
    if (!equals)
        return err_set(err, ERR_INVALID, "\"%s\": expected name=value", text);
    struct arena arena;
    arena_init(&arena);
    struct str name = {text, (size_t)(equals - text)};
    struct json *value;
    struct json plain = json_string(str_of(equals + 1));
    if (json_parse(&arena, str_of(equals + 1), &json_limits_default, &value, NULL))
        value = &plain;
    enum err_code code = apply_member(config, name, value, err);
    if (code)
        err_prefix(err, "%.*s: ", STR_ARG(name));
    arena_release(&arena);
    return code;
}

void fake_config_write(struct json_out *out, const struct fake_config *config)
{
    json_out_object(out);
    json_out_member_text(out, "keys", keys_names[config->keys]);
    json_out_member_text(out, "keep", keep_names[config->keep]);
    json_out_member_int(out, "retention_ms", config->retention_ms);
    json_out_member_int(out, "in_use_status", config->in_use_status);
    json_out_member_int(out, "mismatch_status", config->mismatch_status);
    json_out_member_text(out, "scope", config->scope_global ? "global" : "endpoint");
    json_out_member_text(out, "key_header", config->key_header);
    json_out_member_text(out, "key_field", config->key_field);
    json_out_name(out, "business_keys");
    json_out_array(out);
    for (size_t i = 0; i < config->business_key_count; i++)
        json_out_text(out, config->business_keys[i]);
    json_out_end_array(out);
    json_out_name(out, "faults");
    json_out_object(out);
    for (size_t i = 0; i < config->chances.count; i++) {
        char number[16];
        unsigned millionths = config->chances.items[i].per_million;
        snprintf(number, sizeof number, "%u.%06u", millionths / 1000000, millionths % 1000000);
        json_out_name(out, config->chances.items[i].plan);
        json_out_raw(out, str_of(number));
    }
    json_out_end_object(out);
    json_out_member_int(out, "seed", (int64_t)config->chances.seed);
    json_out_member_text(out, "fault", config->fault);
    json_out_member_text(out, "lookup_fault", config->lookup_fault);
    json_out_member_int(out, "latency_ms", config->latency_ms);
    json_out_member_int(out, "lookup_latency_ms", config->lookup_latency_ms);
    json_out_member_int(out, "propagation_ms", config->propagation_ms);
    json_out_member_int(out, "page_size", config->page_size);
    json_out_member_int(out, "page_size_max", config->page_size_max);
    json_out_end_object(out);
}
