#include "core/claims.h"

#include "core/template.h"

#include <assert.h>
#include <stdlib.h>

/* ---- from the call ---- */

static enum err_code fill(const struct template *template, const struct json *arguments, const char *kind,
                          const char *name, struct arena *arena, const char **out, struct err *err)
{
    struct buf text;
    struct err inner = {0};
    buf_init(&text, 0);
    enum err_code code = template_fill(template, arguments, TEMPLATE_KEY, &text, &inner);
    if (code)
        err_set(err, code, "%s%s: %s", kind, name, inner.text);
    else if (text.n == 0)
        code = err_set(err, ERR_INVALID, "%s%s: %s is empty", kind, name, template_text(template));
    else if (text.n > CLAIMS_TEXT_BYTES_MAX)
        code = err_set(err, ERR_LIMIT, "%s%s: longer than %d bytes", kind, name, CLAIMS_TEXT_BYTES_MAX);
    else
        *out = arena_copy_str(arena, buf_str(&text));
    buf_release(&text);
    return code;
}

static int compare_entities(const void *left, const void *right)
{
    const struct claim_entity *a = left, *b = right;
    int order = strcmp(a->type, b->type);
    return order ? order : strcmp(a->id, b->id);
}

/* Two rules may name the same one; then it is taken once, and waited for only if both say so. */
static void drop_twins(struct claims *claims)
{
    size_t kept = 0;
    qsort(claims->entities, claims->entity_count, sizeof *claims->entities, compare_entities);
    for (size_t i = 0; i < claims->entity_count; i++) {
        struct claim_entity *last = kept ? &claims->entities[kept - 1] : NULL;
        if (last && compare_entities(last, &claims->entities[i]) == 0)
            last->queue = last->queue && claims->entities[i].queue;
        else
            claims->entities[kept++] = claims->entities[i];
    }
    claims->entity_count = kept;
}

static enum err_code attribute_value(const struct attribute_rule *rule, const struct json *arguments,
                                     struct arena *arena, struct json *out, struct err *err)
{
    if (!rule->template) {
        *out = *rule->value;
        return ERR_NONE;
    }
    bool single;
    const struct json *value = template_single(rule->template, arguments, &single);
    if (single && value) {
        *out = *json_copy(arena, value);
        return ERR_NONE;
    }
    struct buf text;
    struct err inner = {0};
    buf_init(&text, 0);
    enum err_code code = template_fill(rule->template, arguments, TEMPLATE_PLAIN, &text, &inner);
    if (code)
        err_set(err, code, "attribute %s of entity %s: %s", rule->name, rule->type, inner.text);
    else
        *out = json_string(arena_str(arena, buf_str(&text)));
    buf_release(&text);
    return code;
}

static enum err_code attributes_of(const struct tool_claims *rules, const char *type, const struct json *arguments,
                                   struct arena *arena, const struct json **out, struct err *err)
{
    struct json *object = NULL;
    for (size_t i = 0; i < rules->set_count; i++) {
        const struct attribute_rule *rule = &rules->sets[i];
        struct json value;
        if (strcmp(rule->type, type) != 0)
            continue;
        enum err_code code = attribute_value(rule, arguments, arena, &value, err);
        if (code)
            return code;
        object = object ? object : json_object(arena);
        json_set(arena, object, str_of(rule->name), value);
    }
    if (object && json_to_text(arena, object).n > CLAIMS_SETS_BYTES_MAX)
        return err_set(err, ERR_LIMIT, "attributes of entity %s: more than %d bytes", type, CLAIMS_SETS_BYTES_MAX);
    *out = object;
    return ERR_NONE;
}

static enum err_code entities_of(const struct tool_claims *rules, const struct json *arguments, struct arena *arena,
                                 struct claims *out, struct err *err)
{
    assert(rules->entity_count <= CLAIMS_ENTITIES_MAX);
    for (size_t i = 0; i < rules->entity_count; i++) {
        const struct entity_rule *rule = &rules->entities[i];
        struct claim_entity *entity = &out->entities[i];
        *entity = (struct claim_entity){.type = rule->type, .queue = rule->queue, .seen_rev = -1};
        enum err_code code = fill(rule->id, arguments, "entity ", rule->type, arena, &entity->id, err);
        if (code == ERR_NONE)
            code = attributes_of(rules, rule->type, arguments, arena, &entity->sets, err);
        if (code)
            return code;
    }
    out->entity_count = rules->entity_count;
    drop_twins(out);
    return ERR_NONE;
}

static enum err_code amount_of(const struct debit_rule *rule, const struct json *arguments, struct decimal *out,
                               struct err *err)
{
    if (!rule->amount) {
        *out = decimal_of(1);
        return ERR_NONE;
    }
    const struct json *value = json_pointer_get(arguments, str_of(rule->amount));
    const char *name = rule->budget->name;
    if (!value || value->type == JSON_NULL)
        return err_set(err, ERR_INVALID, "budget %s: %s is missing", name, rule->amount);
    if (value->type != JSON_NUMBER && value->type != JSON_STRING)
        return err_set(err, ERR_INVALID, "budget %s: %s must be a number", name, rule->amount);
    struct err inner = {0};
    enum err_code code = decimal_read(value->text, out, &inner);
    if (code)
        return err_set(err, code, "budget %s: %s: %s", name, rule->amount, inner.text);
    if (out->units < 0) /* would make room for others */
        return err_set(err, ERR_INVALID, "budget %s: %s must not be negative", name, rule->amount);
    return ERR_NONE;
}

static enum err_code debits_of(const struct tool_claims *rules, const struct operation *op,
                               const struct json *arguments, struct arena *arena, struct claims *out, struct err *err)
{
    assert(rules->debit_count <= CLAIMS_DEBITS_MAX);
    for (size_t i = 0; i < rules->debit_count; i++) {
        const struct debit_rule *rule = &rules->debits[i];
        const struct budget *budget = rule->budget;
        struct claim_debit *debit = &out->debits[i];
        *debit = (struct claim_debit){
            .budget = budget->name,
            .subject = budget->per_principal ? op->principal : "",
            .key = "",
            .per_ms = budget->per_ms,
            .limit = budget->limit,
        };
        if (amount_of(rule, arguments, &debit->amount, err) ||
            (rule->key && fill(rule->key, arguments, "budget ", budget->name, arena, &debit->key, err)))
            return err->code;
        out->debit_count++;
    }
    return ERR_NONE;
}

enum err_code claims_of_call(const struct tool_claims *rules, const struct operation *op, const struct json *arguments,
                             const char *override_reason, struct arena *arena, struct claims *out, struct err *err)
{
    *out = (struct claims){
        .override_reason = override_reason,
        .window_per_ms = rules->window.per_ms,
        .window_overridable = rules->window.overridable,
    };
    if (entities_of(rules, arguments, arena, out, err) || debits_of(rules, op, arguments, arena, out, err))
        return err->code;
    if (rules->window.key && fill(rules->window.key, arguments, "window", "", arena, &out->window, err))
        return err->code;
    return ERR_NONE;
}

/* ---- the text that is kept ---- */

#define ENTITIES_FIRST "{\"entities\":["

static void write_entities(struct json_out *out, const struct claims *claims)
{
    json_out_name(out, "entities");
    json_out_array(out);
    for (size_t i = 0; i < claims->entity_count; i++) {
        const struct claim_entity *entity = &claims->entities[i];
        json_out_object(out);
        json_out_member_text(out, "type", entity->type);
        json_out_member_text(out, "id", entity->id);
        if (entity->queue)
            json_out_member_bool(out, "queue", true);
        if (entity->sets) {
            json_out_name(out, "sets");
            json_out_value(out, entity->sets);
        }
        json_out_end_object(out);
    }
    json_out_end_array(out);
}

static void write_debits(struct json_out *out, const struct claims *claims)
{
    json_out_name(out, "budgets");
    json_out_array(out);
    for (size_t i = 0; i < claims->debit_count; i++) {
        const struct claim_debit *debit = &claims->debits[i];
        char amount[DECIMAL_TEXT_BYTES];
        decimal_write(debit->amount, amount);
        json_out_object(out);
        json_out_member_text(out, "budget", debit->budget);
        json_out_member_text(out, "subject", debit->subject);
        json_out_member_text(out, "key", debit->key);
        json_out_member_text(out, "amount", amount);
        json_out_member_int(out, "per_ms", debit->per_ms);
        json_out_end_object(out);
    }
    json_out_end_array(out);
}

struct str claims_write(struct arena *arena, const struct claims *claims)
{
    if (claims->entity_count == 0 && claims->debit_count == 0 && !claims->window)
        return STR_NONE;
    struct buf text;
    struct json_out out;
    buf_init(&text, 0);
    json_out_init(&out, &text);
    json_out_object(&out);
    if (claims->entity_count > 0) /* first: claims_want_entities goes by it */
        write_entities(&out, claims);
    if (claims->window) {
        json_out_member_text(&out, "window", claims->window);
        json_out_member_int(&out, "window_per_ms", claims->window_per_ms);
        json_out_member_text(&out, "override", claims->override_reason);
    }
    if (claims->debit_count > 0)
        write_debits(&out, claims);
    json_out_end_object(&out);
    struct str kept = arena_str(arena, buf_str(&text));
    buf_release(&text);
    return kept;
}

bool claims_want_entities(struct str text)
{
    size_t n = sizeof ENTITIES_FIRST - 1;
    return text.p && text.n > n && memcmp(text.p, ENTITIES_FIRST, n) == 0;
}

static const char *member(struct arena *arena, const struct json *object, const char *name)
{
    return arena_copy_str(arena, json_get_text(object, name));
}

static bool read_entities(struct arena *arena, const struct json *list, struct claims *out)
{
    size_t count = list && list->type == JSON_ARRAY ? list->count : 0;
    for (size_t i = 0; i < count && i < CLAIMS_ENTITIES_MAX; i++) {
        const struct json *item = &list->items[i];
        out->entities[out->entity_count++] = (struct claim_entity){
            .type = member(arena, item, "type"),
            .id = member(arena, item, "id"),
            .queue = json_get_bool(item, "queue", false),
            .sets = json_get(item, "sets"),
            .seen_rev = -1,
        };
        if (!out->entities[i].type || !out->entities[i].id)
            return false;
    }
    return count <= CLAIMS_ENTITIES_MAX;
}

static bool read_debits(struct arena *arena, const struct json *list, struct claims *out)
{
    size_t count = list && list->type == JSON_ARRAY ? list->count : 0;
    for (size_t i = 0; i < count && i < CLAIMS_DEBITS_MAX; i++) {
        const struct json *item = &list->items[i];
        struct claim_debit *debit = &out->debits[out->debit_count++];
        *debit = (struct claim_debit){
            .budget = member(arena, item, "budget"),
            .subject = member(arena, item, "subject"),
            .key = member(arena, item, "key"),
            .per_ms = json_get_int(item, "per_ms", 0),
        };
        if (!debit->budget || !debit->subject || !debit->key || debit->per_ms <= 0 ||
            decimal_read(json_get_text(item, "amount"), &debit->amount, NULL))
            return false;
    }
    return count <= CLAIMS_DEBITS_MAX;
}

enum err_code claims_read(struct arena *arena, struct str text, struct claims *out, struct err *err)
{
    struct json *object;
    *out = (struct claims){0};
    if (!text.p)
        return ERR_NONE;
    if (json_parse(arena, text, &json_limits_kept, &object, NULL) ||
        !read_entities(arena, json_get(object, "entities"), out) ||
        !read_debits(arena, json_get(object, "budgets"), out))
        return err_set(err, ERR_CORRUPT, "the claims of an operation can not be read");
    out->window = member(arena, object, "window");
    out->window_per_ms = json_get_int(object, "window_per_ms", 0);
    out->override_reason = member(arena, object, "override");
    return ERR_NONE;
}

/* Written as it is, so that a text without it need not be read. */
static bool is_plain(const char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < 0x20 || (unsigned char)*text >= 0x7f || *text == '"' || *text == '\\')
            return false;
    return true;
}

static bool may_name(struct str text, const struct claim_entity *entity)
{
    return !is_plain(entity->id) || memmem(text.p, text.n, entity->id, strlen(entity->id));
}

bool claims_share_entity(struct str text, const struct claims *of)
{
    struct claims claims;
    struct arena arena;
    bool maybe = false, shares = false;
    for (size_t i = 0; i < of->entity_count && !maybe && claims_want_entities(text); i++)
        maybe = may_name(text, &of->entities[i]);
    if (!maybe)
        return false;
    arena_init(&arena);
    if (claims_read(&arena, text, &claims, NULL) == ERR_NONE)
        for (size_t i = 0; i < of->entity_count; i++)
            for (size_t k = 0; k < claims.entity_count; k++)
                shares = shares || (text_equal(of->entities[i].type, claims.entities[k].type) &&
                                    text_equal(of->entities[i].id, claims.entities[k].id));
    arena_release(&arena);
    return shares;
}

/* ---- decisions ---- */

const char *claims_verdict_name(enum claims_verdict verdict)
{
    switch (verdict) {
    case CLAIMS_PASS: return "pass";
    case CLAIMS_WAIT: return "wait";
    case CLAIMS_LOOK: return "look_again";
    case CLAIMS_GUARD: return "guard";
    case CLAIMS_ENTITY: return "entity_busy";
    case CLAIMS_WINDOW: return "window";
    case CLAIMS_BUDGET: return "budget";
    }
    return "?";
}

static bool guards_saw_this(const struct claims *claims, const struct claims_facts *facts)
{
    for (size_t i = 0; i < claims->entity_count; i++)
        if (claims->entities[i].seen_rev >= 0 && claims->entities[i].seen_rev != facts->entities[i].rev)
            return false;
    return true;
}

static bool window_is_used(const struct claims *claims, const struct claims_facts *facts,
                           struct claims_refusal *refusal)
{
    if (!claims->window || !facts->window_operation || (claims->window_overridable && claims->override_reason))
        return false;
    refusal->operation = facts->window_operation;
    refusal->at_ms = facts->window_at_ms;
    refusal->until_ms = facts->window_until_ms;
    refusal->overridable = claims->window_overridable;
    return true;
}

static bool budget_is_used_up(const struct claims *claims, const struct claims_facts *facts,
                              struct claims_refusal *refusal)
{
    for (size_t i = 0; i < claims->debit_count; i++) {
        const struct claim_debit *debit = &claims->debits[i];
        if (decimal_compare(decimal_add(facts->totals[i], debit->amount), debit->limit) <= 0)
            continue;
        refusal->budget = debit->budget;
        refusal->until_ms = facts->room_at_ms[i];
        return true;
    }
    return false;
}

/* All or nothing, and nobody goes before those who wait: hence no dead lock, and no starving. */
static enum claims_verdict ask_for_entities(const struct claims *claims, const struct claims_facts *facts,
                                            struct claims_refusal *refusal)
{
    enum claims_verdict verdict = CLAIMS_PASS;
    for (size_t i = 0; i < claims->entity_count; i++) {
        const struct claim_entity *entity = &claims->entities[i];
        bool busy = facts->entities[i].holder || facts->entities[i].waiting > 0;
        if (!busy)
            continue;
        if (entity->queue && facts->entities[i].waiting < CLAIMS_WAITERS_MAX) {
            verdict = CLAIMS_WAIT;
            continue;
        }
        refusal->operation = facts->entities[i].holder;
        refusal->type = entity->type;
        refusal->id = entity->id;
        return CLAIMS_ENTITY;
    }
    return verdict;
}

enum claims_verdict claims_decide(const struct claims *claims, const struct claims_facts *facts, bool wants_entities,
                                  struct claims_refusal *refusal)
{
    *refusal = (struct claims_refusal){.verdict = CLAIMS_PASS};
    if (!guards_saw_this(claims, facts))
        refusal->verdict = CLAIMS_LOOK;
    else if (claims->guard)
        refusal->verdict = CLAIMS_GUARD;
    else if (window_is_used(claims, facts, refusal))
        refusal->verdict = CLAIMS_WINDOW;
    else if (budget_is_used_up(claims, facts, refusal))
        refusal->verdict = CLAIMS_BUDGET;
    else if (wants_entities)
        refusal->verdict = ask_for_entities(claims, facts, refusal);
    return refusal->verdict;
}

void claims_explain(const struct claims *claims, const struct claims_refusal *refusal, struct err *err)
{
    const char *who = refusal->operation ? refusal->operation : "an operation";
    switch (refusal->verdict) {
    case CLAIMS_GUARD: err_set(err, ERR_DENIED, "%s", claims->guard); return;
    case CLAIMS_ENTITY:
        if (refusal->operation)
            err_set(err, ERR_CONFLICT, "%s %s is held by %s until that has ended", refusal->type, refusal->id, who);
        else
            err_set(err, ERR_CONFLICT, "%s %s: others wait for it already", refusal->type, refusal->id);
        return;
    case CLAIMS_WINDOW:
        err_set(err, ERR_CONFLICT, "the same was done by %s already, and may be done again when its period is over%s",
                who,
                refusal->overridable ? "; to do it before on purpose, call again with override_reason"
                                     : " (override: denied)");
        return;
    case CLAIMS_BUDGET:
        err_set(err, ERR_LIMIT, "budget %s has no room for this call%s", refusal->budget,
                refusal->until_ms ? "" : ", and never will: it is more than the whole limit");
        return;
    case CLAIMS_PASS:
    case CLAIMS_WAIT:
    case CLAIMS_LOOK: break;
    }
}

void claims_await(struct operation *op, int64_t until_ms)
{
    op->state = STATE_PLANNED;
    op->reason = REASON_AWAITING_ENTITY;
    op->may_have_applied = false;
    op->attempts = op->tries = 0;
    op->first_sent_ms = op->last_sent_ms = 0;
    op->owner = NULL;
    op->lease_until_ms = 0;
    op->wake_at_ms = until_ms;
}

bool claims_count(enum state state)
{
    return state != STATE_FAILED_PERMANENT && state != STATE_REJECTED;
}

static bool took_effect(enum state state)
{
    return state == STATE_COMPLETED_SUCCESS || state == STATE_COMPLETED_NOOP;
}

bool claims_holds(const struct operation *op, const char *holder)
{
    return holder && (strcmp(holder, op->id) == 0 || text_equal(holder, op->parent));
}

/* What was rolled back leaves the key, and so its window and sums, to another attempt. */
static bool counts_now(const struct operation *op)
{
    bool rolled_back = op->steps.p && op->state == STATE_COMPENSATED && !op->may_have_applied;
    return claims_count(op->state) && !rolled_back;
}

struct claims_move claims_move(enum state from, const struct operation *to)
{
    return (struct claims_move){
        .release = state_terminal(to->state) && !state_terminal(from),
        .acquire = to->state == STATE_PLANNED && to->reason == REASON_AWAITING_ENTITY,
        .set = took_effect(to->state) && !took_effect(from) && from != STATE_COMPENSATING,
        .counts = counts_now(to),
        .counted = from == to->state ? counts_now(to) : claims_count(from),
    };
}

void claims_slice(int64_t created_ms, int64_t per_ms, int64_t *start_ms, int64_t *until_ms)
{
    int64_t length = (per_ms + CLAIMS_SLICES - 1) / CLAIMS_SLICES;
    length = length > 0 ? length : 1;
    *start_ms = created_ms - created_ms % length;
    *until_ms = *start_ms + length;
}

/* ---- attributes ---- */

static struct json *parsed(struct arena *arena, struct str attributes)
{
    struct json *object;
    if (!attributes.p || json_parse(arena, attributes, &json_limits_kept, &object, NULL) || object->type != JSON_OBJECT)
        return json_object(arena);
    return object;
}

struct str claims_set(struct arena *arena, struct str attributes, const struct json *sets, const char *operation,
                      int64_t now_ms)
{
    struct json *object = parsed(arena, attributes);
    for (uint32_t i = 0; i < sets->count; i++) {
        struct json *entry = json_object(arena);
        json_set(arena, entry, STR("value"), sets->members[i].value);
        json_set(arena, entry, STR("by"), json_string(str_of(operation)));
        json_set(arena, entry, STR("at_ms"), json_int(arena, now_ms));
        json_set(arena, object, sets->members[i].name, *entry);
    }
    return json_to_text(arena, object);
}

/* The attributes as guards see them. */
static struct json *seen(struct arena *arena, const char *id, struct str attributes)
{
    const struct json *object = parsed(arena, attributes);
    struct json *out = json_object(arena), *by = json_object(arena);
    for (uint32_t i = 0; i < object->count; i++) {
        const struct json_member *attribute = &object->members[i];
        const struct json *value = json_get(&attribute->value, "value"), *who = json_get(&attribute->value, "by");
        if (value)
            json_set(arena, out, attribute->name, *value);
        if (who)
            json_set(arena, by, attribute->name, *who);
    }
    json_set(arena, out, STR("id"), json_string(str_of(id)));
    json_set(arena, out, STR("by"), *by);
    return out;
}

struct json *claims_guard_input(struct arena *arena, const struct claims *claims, const struct str *attributes,
                                const struct json *arguments)
{
    struct json *input = json_object(arena), *list = json_array(arena);
    for (size_t i = 0; i < claims->entity_count; i++) {
        const struct claim_entity *entity = &claims->entities[i];
        const struct json *object = seen(arena, entity->id, attributes[i]);
        struct json *typed = json_copy(arena, object);
        json_set(arena, typed, STR("type"), json_string(str_of(entity->type)));
        json_append(arena, list, *typed);
        if (!json_get(input, entity->type))
            json_set(arena, input, str_of(entity->type), *object);
    }
    json_set(arena, input, STR("entities"), *list);
    json_set(arena, input, STR("arguments"), *arguments);
    return input;
}

struct json *claims_message_values(struct arena *arena, const struct json *input)
{
    const struct json *arguments = json_get(input, "arguments");
    struct json *values = json_copy(arena, arguments);
    for (uint32_t i = 0; i < input->count; i++)
        if (!json_get_str(values, input->members[i].name))
            json_set(arena, values, input->members[i].name, input->members[i].value);
    return values;
}
