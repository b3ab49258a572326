#include "cli/fake_script.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

void fake_script_init(struct fake_script *script)
{
    *script = (struct fake_script){0};
}

static void entry_release(struct fake_script_entry *entry)
{
    free(entry->fault);
    free(entry->collection);
    free(entry->reference);
    free(entry->key);
}

void fake_script_release(struct fake_script *script)
{
    for (size_t i = 0; i < script->count; i++)
        entry_release(&script->entries[i]);
    free(script->entries);
    fake_script_init(script);
}

static char *copy(struct str text)
{
    return text.p ? mem_copy_bytes(text.p, text.n) : NULL;
}

static enum err_code read_count(const struct json *item, const char *name, unsigned fallback, unsigned *out,
                                struct err *err)
{
    const struct json *value = json_get(item, name);
    int64_t number = fallback;
    if (value &&
        (value->type != JSON_NUMBER || !json_number_int64(value->text, &number) || number < 0 || number > 1000000000))
        return err_set(err, ERR_INVALID, "%s: expected a number from 0 to 1000000000", name);
    *out = (unsigned)number;
    return ERR_NONE;
}

static enum err_code read_entry(const struct json *item, struct fake_script_entry *entry, struct err *err)
{
    struct fake_plan plan;
    bool plain = item->type == JSON_STRING;
    if (!plain && item->type != JSON_OBJECT)
        return err_set(err, ERR_INVALID, "expected a fault or an object with the member fault");
    struct str fault = plain ? item->text : json_get_text(item, "fault");
    if (!fault.p)
        return err_set(err, ERR_INVALID, "the member fault is missing");
    if (fault.n >= FAKE_PLAN_TEXT_MAX)
        return err_set(err, ERR_LIMIT, "fault is longer than %d bytes", FAKE_PLAN_TEXT_MAX - 1);
    if (fake_plan_parse(fault, 1, &plan, err))
        return ERR_INVALID;
    if (read_count(item, "nth", 0, &entry->nth, err) || read_count(item, "times", 1, &entry->times, err))
        return ERR_INVALID;
    struct str on = json_get_text(item, "on");
    if (on.p && !str_is(on, "lookup") && !str_is(on, "write"))
        return err_set(err, ERR_INVALID, "on: expected write or lookup");
    entry->lookup = on.p ? str_is(on, "lookup") : !fake_fault_on_writes(plan.fault);
    entry->fault = copy(fault);
    entry->collection = copy(json_get_text(item, "collection"));
    entry->reference = copy(json_get_text(item, "reference"));
    struct str key = json_get_text(item, "key");
    entry->key = copy(key.p ? key : json_get_text(item, "payment_id"));
    return ERR_NONE;
}

enum err_code fake_script_add(struct fake_script *script, const struct json *list, struct err *err)
{
    if (list->type == JSON_OBJECT && json_get(list, "faults"))
        list = json_get(list, "faults");
    if (list->type != JSON_ARRAY)
        return err_set(err, ERR_INVALID, "expected an array of faults");
    if (script->count + list->count > FAKE_SCRIPT_MAX)
        return err_set(err, ERR_LIMIT, "more than %d entries", FAKE_SCRIPT_MAX);
    if (script->count + list->count > script->cap) {
        script->cap = script->count + list->count;
        script->entries = mem_grow(script->entries, script->cap * sizeof *script->entries);
    }
    for (uint32_t i = 0; i < list->count; i++) {
        struct fake_script_entry *entry = &script->entries[script->count + i];
        *entry = (struct fake_script_entry){0};
        if (read_entry(&list->items[i], entry, err)) {
            err_prefix(err, "entry %u: ", (unsigned)i);
            for (uint32_t j = 0; j <= i; j++)
                entry_release(&script->entries[script->count + j]);
            return ERR_INVALID;
        }
    }
    script->count += list->count;
    return ERR_NONE;
}

static bool key_matches(const char *key, struct str business)
{
    if (!business.p)
        return false;
    if (str_is(business, key))
        return true;
    const char *slash = memchr(business.p, '/', business.n);
    size_t skip = slash ? (size_t)(slash - business.p) + 1 : 0;
    return str_is((struct str){business.p + skip, business.n - skip}, key);
}

static bool entry_matches(const struct fake_script_entry *entry, const struct fake_script_match *match)
{
    if (entry->lookup != match->lookup)
        return false;
    if (entry->collection && !str_is(match->collection, entry->collection))
        return false;
    if (entry->reference && !str_is(match->reference, entry->reference))
        return false;
    return !entry->key || key_matches(entry->key, match->business);
}

const char *fake_script_take(struct fake_script *script, const struct fake_script_match *match)
{
    const char *taken = NULL;
    for (size_t i = 0; i < script->count; i++) {
        struct fake_script_entry *entry = &script->entries[i];
        if (!entry_matches(entry, match))
            continue;
        entry->seen++;
        if (taken || entry->times == 0 || (entry->nth && entry->seen != entry->nth))
            continue;
        entry->times--;
        taken = entry->fault;
    }
    return taken;
}

size_t fake_script_left(const struct fake_script *script)
{
    size_t left = 0;
    for (size_t i = 0; i < script->count; i++)
        left += script->entries[i].times > 0;
    return left;
}
