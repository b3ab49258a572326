#include "core/steps.h"

#include "base/json.h"
#include "core/form.h"

const struct provider steps_provider = {
    .name = "(steps)", /* no provider of the file can be called so */
    .kind = PROVIDER_STEPS,
    .connections_max = 1000000,
    .queue_max = 1000000,
    .timeout_ms = 30000,
    .connect_timeout_ms = 30000,
};

#define NAME_OF(names, value) ((size_t)(value) < sizeof(names) / sizeof *(names) ? (names)[value] : "?")

const char *steps_status_name(enum steps_status status)
{
    static const char *const names[] = {
#define X(constant, text) text,
        STEPS_STATUSES(X)
#undef X
    };
    return NAME_OF(names, status);
}

bool steps_status_from_name(struct str text, enum steps_status *out)
{
#define X(constant, name)                                                                                              \
    if (str_is(text, name)) {                                                                                          \
        *out = constant;                                                                                               \
        return true;                                                                                                   \
    }
    STEPS_STATUSES(X)
#undef X
    return false;
}

static const char *undo_name(enum steps_undo undo)
{
    static const char *const names[] = {
#define X(constant, text) text,
        STEPS_UNDOS(X)
#undef X
    };
    return NAME_OF(names, undo);
}

static bool undo_from_name(struct str text, enum steps_undo *out)
{
#define X(constant, name)                                                                                              \
    if (str_is(text, name)) {                                                                                          \
        *out = constant;                                                                                               \
        return true;                                                                                                   \
    }
    STEPS_UNDOS(X)
#undef X
    return false;
}

const struct steps_item *steps_find(const struct steps_list *list, const char *name)
{
    for (size_t i = 0; i < list->count; i++)
        if (strcmp(list->items[i].name, name) == 0)
            return &list->items[i];
    return NULL;
}

/* ---- the record ---- */

void steps_start(const struct steps_list *list, struct steps_progress *out)
{
    *out = (struct steps_progress){.digest = list->digest, .count = list->count};
    for (size_t i = 0; i < list->count; i++)
        out->entries[i] = (struct steps_entry){
            .name = list->items[i].name,
            .tool = list->items[i].tool,
            .undo = list->items[i].undo,
            .playbook = list->items[i].playbook,
        };
}

static void member_text(struct json_out *out, const char *name, const char *text)
{
    if (text)
        json_out_member_text(out, name, text);
}

static void write_entry(struct json_out *out, const struct steps_entry *entry)
{
    json_out_object(out);
    json_out_member_text(out, "name", entry->name);
    json_out_member_text(out, "tool", entry->tool);
    json_out_member_text(out, "status", steps_status_name(entry->status));
    json_out_member_text(out, "undo", undo_name(entry->undo));
    member_text(out, "playbook", entry->playbook);
    member_text(out, "operation", entry->operation);
    member_text(out, "undo_operation", entry->undo_operation);
    member_text(out, "note", entry->note);
    member_text(out, "code", entry->code);
    if (entry->held_since_ms)
        json_out_member_int(out, "held_since_ms", entry->held_since_ms);
    json_out_end_object(out);
}

struct str steps_write(struct arena *arena, const struct steps_progress *progress)
{
    struct buf text;
    struct json_out out;
    buf_init(&text, 0);
    json_out_init(&out, &text);
    json_out_object(&out);
    json_out_member_text(&out, "digest", progress->digest);
    member_text(&out, "rolling_back", progress->rolling_back);
    if (progress->cancelled)
        json_out_member_bool(&out, "cancelled", true);
    json_out_name(&out, "steps");
    json_out_array(&out);
    for (size_t i = 0; i < progress->count; i++)
        write_entry(&out, &progress->entries[i]);
    json_out_end_array(&out);
    json_out_end_object(&out);
    struct str kept = arena_str(arena, buf_str(&text));
    buf_release(&text);
    return kept;
}

static const char *text_of(struct arena *arena, const struct json *object, const char *name)
{
    struct str text = json_get_text(object, name);
    return text.p ? arena_copy_str(arena, text) : NULL;
}

static enum err_code read_entry(struct arena *arena, const struct json *from, struct steps_entry *out, struct err *err)
{
    out->name = text_of(arena, from, "name");
    out->tool = text_of(arena, from, "tool");
    if (!out->name || !out->tool || !steps_status_from_name(json_get_text(from, "status"), &out->status) ||
        !undo_from_name(json_get_text(from, "undo"), &out->undo))
        return err_set(err, ERR_INVALID, "a step of the progress can not be read");
    out->playbook = text_of(arena, from, "playbook");
    out->operation = text_of(arena, from, "operation");
    out->undo_operation = text_of(arena, from, "undo_operation");
    out->note = text_of(arena, from, "note");
    out->code = text_of(arena, from, "code");
    out->held_since_ms = json_get_int(from, "held_since_ms", 0);
    return ERR_NONE;
}

enum err_code steps_read(struct arena *arena, struct str text, struct steps_progress *out, struct err *err)
{
    struct json *record;
    *out = (struct steps_progress){0};
    enum err_code code = json_parse(arena, text, &json_limits_kept, &record, err);
    if (code)
        return code;
    const struct json *steps = json_get(record, "steps");
    out->digest = text_of(arena, record, "digest");
    if (!out->digest || !steps || steps->type != JSON_ARRAY || steps->count == 0 || steps->count > STEPS_MAX)
        return err_set(err, ERR_INVALID, "the progress of the steps can not be read");
    out->rolling_back = text_of(arena, record, "rolling_back");
    out->cancelled = json_get_bool(record, "cancelled", false);
    for (; out->count < steps->count && !code; out->count++)
        code = read_entry(arena, &steps->items[out->count], &out->entries[out->count], err);
    return code;
}

size_t steps_entry_of(const struct steps_progress *progress, const char *operation)
{
    size_t at = 0;
    while (at < progress->count && !text_equal(progress->entries[at].operation, operation) &&
           !text_equal(progress->entries[at].undo_operation, operation))
        at++;
    return at;
}

size_t steps_count(const struct steps_progress *progress, enum steps_status status)
{
    size_t count = 0;
    for (size_t i = 0; i < progress->count; i++)
        count += progress->entries[i].status == status;
    return count;
}

/* ---- what is next ---- */

static size_t first_of(const struct steps_progress *progress, enum steps_status status)
{
    size_t at = 0;
    while (at < progress->count && progress->entries[at].status != status)
        at++;
    return at;
}

static size_t last_of(const struct steps_progress *progress, enum steps_status status)
{
    size_t at = progress->count;
    while (at > 0 && progress->entries[at - 1].status != status)
        at--;
    return at > 0 ? at - 1 : progress->count;
}

static struct steps_next next(enum steps_next_kind kind, size_t at)
{
    return (struct steps_next){kind, at};
}

static struct steps_next next_forward(const struct steps_progress *progress)
{
    size_t at = first_of(progress, STEPS_FAILED);
    if (at < progress->count)
        return next(STEPS_NEXT_TURN, at);
    at = first_of(progress, STEPS_WAITING);
    return at < progress->count ? next(STEPS_NEXT_BEGIN, at) : next(STEPS_NEXT_SUCCEED, 0);
}

/* The last one that stands goes first; what it built on stays until it is gone. */
static struct steps_next next_back(const struct steps_progress *progress)
{
    size_t at = last_of(progress, STEPS_STUCK);
    if (at < progress->count)
        return next(STEPS_NEXT_STUCK, at);
    at = last_of(progress, STEPS_DONE);
    if (at == progress->count)
        return next(steps_stand(progress) ? STEPS_NEXT_END : STEPS_NEXT_FAIL, 0);
    switch (progress->entries[at].undo) {
    case STEPS_UNDO_NOTHING:
    case STEPS_UNDO_LEAVE: return next(STEPS_NEXT_LEAVE, at);
    case STEPS_UNDO_PLAYBOOK: return next(STEPS_NEXT_UNDO, at);
    case STEPS_UNDO_ESCALATE: break;
    }
    return next(STEPS_NEXT_STUCK, at);
}

struct steps_next steps_next(const struct steps_progress *progress)
{
    size_t busy = first_of(progress, STEPS_RUNNING);
    if (busy == progress->count)
        busy = first_of(progress, STEPS_UNDOING);
    if (busy < progress->count) /* one at a time: its end says what is next */
        return next(STEPS_NEXT_WAIT, busy);
    return progress->rolling_back ? next_back(progress) : next_forward(progress);
}

void steps_turn(struct arena *arena, struct steps_progress *progress, size_t at)
{
    const struct steps_entry *entry = &progress->entries[at];
    progress->rolling_back =
        arena_printf(arena, "step %s failed%s%s", entry->name, entry->note ? ": " : "", entry->note ? entry->note : "");
}

bool steps_stand(const struct steps_progress *progress)
{
    for (size_t i = 0; i < progress->count; i++) {
        const struct steps_entry *entry = &progress->entries[i];
        switch (entry->status) {
        case STEPS_DONE:
        case STEPS_LEFT:
            if (entry->undo == STEPS_UNDO_NOTHING)
                break;
            return true;
        case STEPS_UNDOING:
        case STEPS_UNDONE:
        case STEPS_STUCK: return true;
        case STEPS_WAITING:
        case STEPS_RUNNING:
        case STEPS_SKIPPED:
        case STEPS_FAILED: break;
        }
    }
    return false;
}

static void add_names(struct buf *text, const char *before, const struct steps_progress *progress,
                      enum steps_status status)
{
    for (size_t i = progress->count; i-- > 0;) { /* in the order of the rollback */
        const struct steps_entry *entry = &progress->entries[i];
        if (entry->status != status || (status == STEPS_LEFT && entry->undo == STEPS_UNDO_NOTHING))
            continue;
        buf_add_text(text, before);
        buf_add_text(text, entry->name);
        before = ", ";
    }
}

struct str steps_error(struct arena *arena, const struct steps_progress *progress)
{
    struct buf message;
    struct json *error = json_object(arena);
    size_t failed = first_of(progress, STEPS_FAILED);
    buf_init(&message, 0);
    buf_add_text(&message, progress->rolling_back ? progress->rolling_back : "rolled back");
    add_names(&message, "; undone: ", progress, STEPS_UNDONE);
    add_names(&message, "; left as it is: ", progress, STEPS_LEFT);
    json_set(arena, error, STR("message"), json_string(arena_str(arena, buf_str(&message))));
    if (failed < progress->count) {
        const struct steps_entry *entry = &progress->entries[failed];
        json_set(arena, error, STR("step"), json_string(str_of(entry->name)));
        if (entry->code)
            json_set(arena, error, STR("code"), json_string(str_of(entry->code)));
    }
    buf_release(&message);
    return json_to_text(arena, error);
}

/* ---- what a step operation tells ---- */

static struct json *parsed(struct arena *arena, struct str text)
{
    struct json *value;
    return text.p && json_parse(arena, text, &json_limits_kept, &value, NULL) == ERR_NONE ? value : NULL;
}

#define NOTE_BYTES_MAX 500 /* of a provider's words in an entry */

/* Not within a character. */
static struct str cut(struct str text)
{
    if (text.n <= NOTE_BYTES_MAX)
        return text;
    size_t n = NOTE_BYTES_MAX;
    while (n > 0 && ((unsigned char)text.p[n] & 0xC0) == 0x80)
        n--;
    return (struct str){text.p, n};
}

static void take_failure(struct arena *arena, struct steps_entry *entry, const struct operation *step)
{
    const struct json *error = parsed(arena, step->error);
    struct str message = error ? cut(json_get_text(error, "message")) : STR_NONE;
    entry->status = STEPS_FAILED;
    entry->code = error ? text_of(arena, error, "code") : NULL;
    entry->note = arena_printf(arena, "%s%s%s%s%.*s", state_name(step->state), step->reason ? ", " : "",
                               step->reason ? reason_name(step->reason) : "", message.p ? ": " : "", STR_ARG(message));
}

static void become(struct steps_entry *entry, enum steps_status status, const char *note)
{
    entry->status = status;
    entry->note = note;
    entry->code = NULL;
}

/* Its effect stands. */
static bool take_success(struct arena *arena, struct steps_entry *entry, const struct operation *step)
{
    switch (entry->status) {
    case STEPS_WAITING:
    case STEPS_RUNNING:
    case STEPS_SKIPPED:
    case STEPS_FAILED: become(entry, STEPS_DONE, NULL); return true;
    case STEPS_UNDOING:
        become(entry, STEPS_STUCK,
               arena_printf(arena, "%s has not undone it: it still stands",
                            step->compensation ? step->compensation : "its playbook"));
        return true;
    case STEPS_DONE:
    case STEPS_UNDONE: /* by hand, as a person said */
    case STEPS_LEFT:
    case STEPS_STUCK: break;
    }
    return false;
}

bool steps_take(struct arena *arena, struct steps_entry *entry, const struct operation *step)
{
    switch (step->state) {
    case STATE_COMPLETED_SUCCESS: return take_success(arena, entry, step);
    case STATE_COMPLETED_NOOP:
        if (entry->status != STEPS_RUNNING)
            return false;
        become(entry, STEPS_DONE,
               step->attempts > 1 ? "it was so already, perhaps by an earlier request of its own"
                                  : "it was so already");
        if (step->attempts <= 1)
            entry->undo = STEPS_UNDO_NOTHING; /* nothing was done by us that could be undone */
        else if (entry->undo == STEPS_UNDO_PLAYBOOK)
            entry->undo = STEPS_UNDO_ESCALATE; /* nobody knows whether there is anything to undo */
        return true;
    case STATE_FAILED_PERMANENT:
    case STATE_REJECTED:
        if (entry->status != STEPS_RUNNING)
            return false;
        take_failure(arena, entry, step);
        return true;
    case STATE_COMPENSATED:
        if (entry->status == STEPS_UNDONE)
            return false;
        become(entry, STEPS_UNDONE, NULL);
        entry->undo_operation = arena_copy_text(arena, step->compensation);
        return true;
    case STATE_PLANNED:
    case STATE_PENDING_DISPATCH:
    case STATE_DISPATCHED:
    case STATE_ACKNOWLEDGED:
    case STATE_FAILED_RETRYABLE:
    case STATE_UNKNOWN_OUTCOME:
    case STATE_COMPENSATING: break;
    }
    return false;
}

bool steps_tell(enum state from, const struct operation *to)
{
    return to->parent && !to->compensates && from != to->state && state_terminal(to->state);
}

/* ---- passing results on ---- */

const char *steps_key(struct arena *arena, const char *parent, const char *name)
{
    return arena_printf(arena, STEPS_KEY "%s:%s", parent, name);
}

static struct json value_or_null(struct arena *arena, struct str text)
{
    const struct json *value = parsed(arena, text);
    return value ? *value : (struct json){.type = JSON_NULL};
}

static struct json text_or_null(const char *text)
{
    return text ? json_string(str_of(text)) : (struct json){.type = JSON_NULL};
}

static bool is_over(enum steps_status status)
{
    return status != STEPS_WAITING && status != STEPS_RUNNING;
}

static struct json step_input_of(struct arena *arena, const struct steps_entry *entry, const struct operation *step)
{
    struct json *value = json_object(arena);
    json_set(arena, value, STR("status"), json_string(str_of(steps_status_name(entry->status))));
    if (!step)
        return *value;
    json_set(arena, value, STR("result"), value_or_null(arena, step->result));
    json_set(arena, value, STR("external_id"), text_or_null(step->external_id));
    json_set(arena, value, STR("operation_id"), json_string(str_of(step->id)));
    json_set(arena, value, STR("arguments"), value_or_null(arena, step->arguments));
    return *value;
}

const struct json *steps_input(struct arena *arena, const struct operation *parent,
                               const struct steps_progress *progress, const struct operation *const *steps)
{
    struct json *input = json_object(arena), *by_name = json_object(arena);
    for (size_t i = 0; i < progress->count; i++)
        if (is_over(progress->entries[i].status))
            json_set(arena, by_name, str_of(progress->entries[i].name),
                     step_input_of(arena, &progress->entries[i], steps[i]));
    json_set(arena, input, STR("arguments"), value_or_null(arena, parent->arguments));
    json_set(arena, input, STR("steps"), *by_name);
    json_set(arena, input, STR("operation_id"), json_string(str_of(parent->id)));
    json_set(arena, input, STR("run_id"), text_or_null(parent->run));
    return input;
}

/* Ours win: an argument that is called "$steps" is no place of ours. */
enum err_code steps_fill(struct arena *arena, const struct json *form, const struct json *input, struct json **out,
                         struct err *err)
{
    struct json *values = json_object(arena);
    const struct json *arguments = json_get(input, "arguments");
    for (uint32_t i = 0; arguments->type == JSON_OBJECT && i < arguments->count; i++)
        json_set(arena, values, arguments->members[i].name, arguments->members[i].value);
    json_set(arena, values, STR("$steps"), *json_get(input, "steps"));
    json_set(arena, values, STR("$operation"), *json_get(input, "operation_id"));
    json_set(arena, values, STR("$run"), *json_get(input, "run_id"));
    return form_fill(arena, form, values, out, err);
}

struct json *steps_result(struct arena *arena, const struct json *input)
{
    static const char *const told[] = {"operation_id", "status", "external_id", "result"};
    const struct json *steps = json_get(input, "steps");
    struct json *result = json_object(arena), *by_name = json_object(arena);
    for (uint32_t i = 0; i < steps->count; i++) {
        struct json *step = json_object(arena);
        for (size_t k = 0; k < sizeof told / sizeof *told; k++) {
            const struct json *value = json_get(&steps->members[i].value, told[k]);
            if (value)
                json_set(arena, step, str_of(told[k]), *value);
        }
        json_set(arena, by_name, steps->members[i].name, *step);
    }
    json_set(arena, result, STR("steps"), *by_name);
    return result;
}
