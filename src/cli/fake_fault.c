#include "cli/fake_fault.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum fault_where { FAULT_ON_WRITES = 1, FAULT_ON_LOOKUPS = 2, FAULT_ON_BOTH = 3, FAULT_MODIFIER = 7 };

struct fault_form {
    const char *name;
    enum fake_commit commit;
    enum fault_where where;
    int64_t argument;
};

#define FAULT_FORM(name, fault, commit, where, argument) [fault] = {name, commit, where, argument},
static const struct fault_form forms[FAULT_COUNT] = {FAKE_FAULTS(FAULT_FORM)};
#undef FAULT_FORM

struct fault_alias {
    const char *name;
    enum fake_fault fault;
};

static const struct fault_alias aliases[] = {
    {"timeout_before", FAULT_TIMEOUT_BEFORE},
    {"timeout_after", FAULT_TIMEOUT_AFTER},
    {"429", FAULT_RATE_LIMITED},
    {"500_committed", FAULT_STATUS_COMMITTED},
    {"307", FAULT_REDIRECT},
    {"401", FAULT_CHALLENGE},
};

enum fake_commit fake_fault_commit(enum fake_fault fault)
{
    return forms[fault].commit;
}

const char *fake_fault_name(enum fake_fault fault)
{
    return forms[fault].name;
}

bool fake_fault_on_lookups(enum fake_fault fault)
{
    return (forms[fault].where & FAULT_ON_LOOKUPS) != 0;
}

bool fake_fault_on_writes(enum fake_fault fault)
{
    return (forms[fault].where & FAULT_ON_WRITES) != 0;
}

static struct str trim(struct str s)
{
    while (s.n && (*s.p == ' ' || *s.p == '\t')) {
        s.p++;
        s.n--;
    }
    while (s.n && (s.p[s.n - 1] == ' ' || s.p[s.n - 1] == '\t'))
        s.n--;
    return s;
}

/* Cuts what is before the first of the separators off *rest. */
static struct str cut(struct str *rest, const char *separators)
{
    size_t n = 0;
    while (n < rest->n && !strchr(separators, rest->p[n]))
        n++;
    struct str head = {rest->p, n};
    size_t skip = n < rest->n ? n + 1 : n;
    rest->p += skip;
    rest->n -= skip;
    return trim(head);
}

static bool read_number(struct str text, int64_t *out)
{
    char copy[24];
    if (text.n == 0 || text.n >= sizeof copy)
        return false;
    memcpy(copy, text.p, text.n);
    copy[text.n] = 0;
    char *end;
    errno = 0;
    long long value = strtoll(copy, &end, 10);
    if (*end || errno || value < -1)
        return false;
    *out = value;
    return true;
}

/* "502", "502_committed", "502_not_committed" */
static bool status_fault(struct str name, enum fake_fault *fault, int64_t *status)
{
    if (name.n < 3 || !read_number((struct str){name.p, 3}, status) || *status < 100 || *status > 599)
        return false;
    struct str rest = {name.p + 3, name.n - 3};
    if (str_is(rest, "_committed"))
        *fault = FAULT_STATUS_COMMITTED;
    else if (rest.n == 0 || str_is(rest, "_not_committed"))
        *fault = FAULT_STATUS;
    else
        return false;
    return true;
}

static bool find_fault(struct str name, enum fake_fault *fault, int64_t *argument)
{
    for (int i = 0; i < FAULT_COUNT; i++) {
        if (str_is(name, forms[i].name)) {
            *fault = (enum fake_fault)i;
            *argument = forms[i].argument;
            return true;
        }
    }
    for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++) {
        if (str_is(name, aliases[i].name)) {
            *fault = aliases[i].fault;
            *argument = forms[*fault].argument;
            return true;
        }
    }
    return status_fault(name, fault, argument);
}

void fake_plan_init(struct fake_plan *plan)
{
    memset(plan, 0, sizeof *plan);
    plan->fault = FAULT_SUCCESS;
    plan->propagation_ms = -1;
}

static enum err_code add_fault(struct str text, struct fake_plan *plan, struct err *err)
{
    struct str rest = text;
    struct str name = cut(&rest, "=:");
    struct str first = cut(&rest, ":");
    struct str second = trim(rest);
    enum fake_fault fault;
    int64_t argument;
    if (!find_fault(name, &fault, &argument))
        return err_set(err, ERR_INVALID, "unknown fault \"%.*s\"", STR_ARG(name));
    if (first.n && !str_is(first, "forever") && !read_number(first, &argument))
        return err_set(err, ERR_INVALID, "fault %s: \"%.*s\" is not a number", forms[fault].name, STR_ARG(first));
    if (str_is(first, "forever"))
        argument = -1;
    if (second.n >= sizeof plan->second)
        return err_set(err, ERR_INVALID, "fault %s: \"%.*s\" is too long", forms[fault].name, STR_ARG(second));
    if (fault == FAULT_PROPAGATION) {
        plan->propagation_ms = argument;
    } else if (fault == FAULT_KEY_IGNORED) {
        plan->key_ignored = true;
    } else if (fault == FAULT_KEY_FORGOTTEN) {
        plan->key_forgotten = true;
    } else {
        plan->fault = fault;
        plan->argument = argument;
        memcpy(plan->second, second.p, second.n);
        plan->second[second.n] = 0;
    }
    return ERR_NONE;
}

enum err_code fake_plan_parse(struct str text, unsigned nth, struct fake_plan *plan, struct err *err)
{
    struct str rest = text;
    struct str alternative = cut(&rest, "|");
    for (unsigned i = 1; i < nth && rest.n; i++)
        alternative = cut(&rest, "|");
    struct fake_plan read;
    fake_plan_init(&read);
    snprintf(read.text, sizeof read.text, "%.*s", STR_ARG(alternative));
    struct str faults = alternative;
    while (faults.n) {
        struct str one = cut(&faults, ",");
        if (one.n && add_fault(one, &read, err))
            return ERR_INVALID;
    }
    *plan = read;
    return ERR_NONE;
}

/* ---- chances ---- */

static enum err_code read_chance(struct str text, struct fake_chance *chance, struct err *err)
{
    size_t at = text.n;
    while (at > 0 && text.p[at - 1] != '=')
        at--;
    char number[32];
    size_t digits = text.n - at;
    if (at == 0 || digits == 0 || digits >= sizeof number)
        return err_set(err, ERR_INVALID, "\"%.*s\": expected name=probability", STR_ARG(text));
    memcpy(number, text.p + at, digits);
    number[digits] = 0;
    char *end;
    double probability = strtod(number, &end);
    if (*end || !(probability >= 0 && probability <= 1))
        return err_set(err, ERR_INVALID, "\"%s\" is not a probability between 0 and 1", number);
    struct str name = trim((struct str){text.p, at - 1});
    struct fake_plan plan;
    if (name.n >= sizeof chance->plan)
        return err_set(err, ERR_LIMIT, "fault \"%.*s\" is too long", STR_ARG(name));
    if (fake_plan_parse(name, 1, &plan, err))
        return ERR_INVALID;
    snprintf(chance->plan, sizeof chance->plan, "%.*s", STR_ARG(name));
    chance->lookup = !fake_fault_on_writes(plan.fault);
    chance->per_million = (unsigned)(probability * 1000000 + 0.5);
    return ERR_NONE;
}

enum err_code fake_chances_parse(struct str text, struct fake_chances *chances, struct err *err)
{
    struct fake_chances read = {.seed = chances->seed};
    unsigned sum[2] = {0, 0};
    struct str rest = text;
    while (rest.n) {
        struct str one = cut(&rest, ",");
        if (one.n == 0)
            continue;
        if (read.count == FAKE_CHANCES_MAX)
            return err_set(err, ERR_LIMIT, "more than %d fault probabilities", FAKE_CHANCES_MAX);
        struct fake_chance *chance = &read.items[read.count++];
        if (read_chance(one, chance, err))
            return ERR_INVALID;
        sum[chance->lookup] += chance->per_million;
        if (sum[chance->lookup] > 1000000)
            return err_set(err, ERR_INVALID, "fault probabilities add up to more than 1");
    }
    *chances = read;
    return ERR_NONE;
}

static uint64_t mix(uint64_t x)
{
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9U;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebU;
    return x ^ (x >> 31);
}

const char *fake_chances_draw(const struct fake_chances *chances, bool lookup, uint64_t identity, unsigned nth)
{
    uint64_t draw = mix(mix(chances->seed + 0x9e3779b97f4a7c15U) ^ identity ^ mix(nth + (lookup ? 1000003U : 0U)));
    unsigned at = (unsigned)(draw % 1000000);
    for (size_t i = 0; i < chances->count; i++) {
        const struct fake_chance *chance = &chances->items[i];
        if (chance->lookup != lookup)
            continue;
        if (at < chance->per_million)
            return chance->plan;
        at -= chance->per_million;
    }
    return NULL;
}

uint64_t fake_hash(struct str text, uint64_t seed)
{
    uint64_t hash = mix(seed ^ (text.n * 0x9e3779b97f4a7c15U));
    size_t i = 0;
    for (; i + 8 <= text.n; i += 8) {
        uint64_t word;
        memcpy(&word, text.p + i, 8);
        hash = mix(hash ^ word) + 0x9e3779b97f4a7c15U;
    }
    uint64_t tail = 0;
    if (i < text.n)
        memcpy(&tail, text.p + i, text.n - i);
    return mix(hash ^ tail);
}
