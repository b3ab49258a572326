#include "cli/timeline.h"

#include "cli/view.h"
#include "cli/view_steps.h"
#include "core/state.h"

#include <inttypes.h>

/* ---- one line of the timeline ---- */

/* Three lists, each in order, are merged by time. At one and the same millisecond causes come before their effects: the
 * dispatch event, the request, its end, and the event that says what it meant. */
enum mark_rank { RANK_EVENT, RANK_SENT, RANK_ENDED, RANK_JUDGED, RANK_INCIDENT };

struct mark {
    int64_t at_ms;
    enum mark_rank rank;
    const struct json *of; /* event, attempt or incident */
};

struct marks {
    struct mark *items;
    size_t count;
};

static struct marks marks_new(struct arena *arena, const struct json *list, size_t per_item)
{
    size_t most = list && list->type == JSON_ARRAY ? list->count * per_item : 0;
    return (struct marks){arena_alloc(arena, (most + 1) * sizeof(struct mark)), 0};
}

/* An item without a readable time stays beside its predecessor. */
static void marks_add(struct marks *marks, const struct json *of, const char *time, enum mark_rank rank)
{
    int64_t at_ms = marks->count > 0 ? marks->items[marks->count - 1].at_ms : 0;
    out_parse_time(json_get_text(of, time), &at_ms);
    marks->items[marks->count++] = (struct mark){at_ms, rank, of};
}

static bool mark_before(const struct mark *a, const struct mark *b)
{
    return a->at_ms != b->at_ms ? a->at_ms < b->at_ms : a->rank < b->rank;
}

static struct marks marks_merge(struct arena *arena, struct marks a, struct marks b)
{
    struct marks all = {arena_alloc(arena, (a.count + b.count + 1) * sizeof(struct mark)), 0};
    size_t i = 0, j = 0;
    while (i < a.count || j < b.count) {
        bool take_b = i == a.count || (j < b.count && mark_before(&b.items[j], &a.items[i]));
        all.items[all.count++] = take_b ? b.items[j++] : a.items[i++];
    }
    return all;
}

static struct marks event_marks(struct arena *arena, const struct json *events)
{
    struct marks marks = marks_new(arena, events, 1);
    for (uint32_t i = 0; i < events->count; i++) {
        struct str cause = json_get_text(&events->items[i], "cause");
        bool begins = str_is(cause, "admitted") || str_is(cause, "dispatch") ||
                      str_is(json_get_text(&events->items[i], "to"), "dispatched");
        marks_add(&marks, &events->items[i], "at", begins ? RANK_EVENT : RANK_JUDGED);
    }
    return marks;
}

static struct marks attempt_marks(struct arena *arena, const struct json *attempts)
{
    struct marks marks = marks_new(arena, attempts, 2);
    for (uint32_t i = 0; i < attempts->count; i++) {
        marks_add(&marks, &attempts->items[i], "started_at", RANK_SENT);
        if (json_get_text(&attempts->items[i], "finished_at").p)
            marks_add(&marks, &attempts->items[i], "finished_at", RANK_ENDED);
    }
    return marks;
}

static struct marks incident_marks(struct arena *arena, const struct json *incidents)
{
    struct marks marks = marks_new(arena, incidents, 1);
    for (uint32_t i = 0; incidents && incidents->type == JSON_ARRAY && i < incidents->count; i++)
        marks_add(&marks, &incidents->items[i], "at", RANK_INCIDENT);
    return marks;
}

/* ---- printing ---- */

static void pad(struct out *out, size_t used, size_t width)
{
    out_printf(out, "%*s", used < width ? (int)(width - used) : 1, "");
}

static void note(struct out *out, struct str text)
{
    if (text.n == 0)
        return;
    out_printf(out, "  ");
    out_str(out, OUT_DIM, text);
}

static void print_state(struct out *out, struct str state)
{
    out_str(out, view_state_style(state), state);
}

static void print_event(struct out *out, const struct json *event)
{
    struct str cause = json_get_text(event, "cause"), reason = json_get_text(event, "reason");
    struct str from = json_get_text(event, "from"), to = json_get_text(event, "to");
    struct str actor = json_get_text(event, "actor");
    out_str(out, OUT_BOLD, cause);
    pad(out, out_columns(cause), 12);
    if (!str_equal(from, to) && from.n > 0) {
        print_state(out, from);
        out_printf(out, " → ");
    }
    print_state(out, to);
    if (reason.n > 0) {
        out_printf(out, " (");
        out_str(out, OUT_PLAIN, reason);
        out_printf(out, ")");
    }
    if (actor.n > 0 && !str_is(actor, "onced")) {
        out_printf(out, "  by ");
        out_str(out, OUT_PLAIN, actor);
    }
    note(out, json_get_text(event, "note"));
}

static void print_sent(struct out *out, const struct json *attempt)
{
    bool lookup = str_is(json_get_text(attempt, "kind"), "lookup");
    out_printf(out, "  #%" PRId64 " %s", json_get_int(attempt, "number", 0),
               lookup ? "look-up asks the provider" : "request to the provider");
    if (!json_get_text(attempt, "finished_at").p)
        out_text(out, OUT_YELLOW, "  no end recorded: its bytes may have left");
}

static enum out_style outcome_style(struct str outcome)
{
    static const char *const good[] = {"success", "noop", "found", "accepted"};
    static const char *const bad[] = {"refused", "failed_there", "several", "wrong_object"};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        if (str_is(outcome, good[i]))
            return OUT_GREEN;
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        if (str_is(outcome, bad[i]))
            return OUT_RED;
    }
    return OUT_YELLOW;
}

static void print_ended(struct out *out, const struct json *attempt)
{
    char span[OUT_SPAN_SIZE];
    int64_t from, to, status = json_get_int(attempt, "http_status", 0);
    struct str outcome = json_get_text(attempt, "outcome"), id = json_get_text(attempt, "provider_request_id");
    out_printf(out, "  #%" PRId64 " ended: ", json_get_int(attempt, "number", 0));
    out_str(out, outcome_style(outcome), outcome);
    if (status > 0)
        out_printf(out, ", HTTP %" PRId64, status);
    if (out_parse_time(json_get_text(attempt, "started_at"), &from) &&
        out_parse_time(json_get_text(attempt, "finished_at"), &to)) {
        out_span(to - from, span);
        out_printf(out, ", after %s", span);
    }
    if (id.n > 0) {
        out_printf(out, ", provider's ");
        out_str(out, OUT_PLAIN, id);
    }
    note(out, json_get_text(attempt, "detail"));
}

static void print_incident(struct out *out, const struct json *incident)
{
    struct str by = json_get_text(incident, "acknowledged_by");
    out_text(out, OUT_RED, "incident    ");
    out_str(out, OUT_RED, json_get_text(incident, "kind"));
    out_printf(out, " ");
    out_str(out, OUT_PLAIN, json_get_text(incident, "id"));
    if (by.n > 0) {
        out_printf(out, ", acknowledged by ");
        out_str(out, OUT_PLAIN, by);
    }
    note(out, json_get_text(incident, "note"));
}

static void print_mark(struct out *out, const struct mark *mark, int64_t start_ms)
{
    char span[OUT_SPAN_SIZE];
    out_span(mark->at_ms - start_ms, span);
    out_printf(out, "  %s%s", mark->at_ms < start_ms ? "" : "+", span);
    pad(out, strlen(span) + (mark->at_ms >= start_ms), 13);
    switch (mark->rank) {
    case RANK_EVENT:
    case RANK_JUDGED: print_event(out, mark->of); break;
    case RANK_SENT: print_sent(out, mark->of); break;
    case RANK_ENDED: print_ended(out, mark->of); break;
    case RANK_INCIDENT: print_incident(out, mark->of); break;
    }
    out_printf(out, "\n");
}

/* ---- the head ---- */

static struct str joined(struct arena *arena, const struct json *operation, const char *const *names, size_t count)
{
    struct buf text;
    buf_init(&text, 0);
    for (size_t i = 0; i + 1 < count; i += 2) {
        struct str value = json_get_text(operation, names[i]);
        if (value.n > 0)
            buf_printf(&text, "%s%s%.*s", text.n > 0 ? ", " : "", names[i + 1], STR_ARG(value));
    }
    struct str result = arena_str(arena, buf_str(&text));
    buf_release(&text);
    return result;
}

static void print_key(struct out *out, const struct json *operation, struct arena *arena)
{
    struct str key = json_get_text(operation, "key"), source = json_get_text(operation, "key_source");
    int64_t version = json_get_int(operation, "key_version", 1);
    if (source.n == 0)
        return;
    out_field(out, "key",
              str_of(arena_printf(arena, "%.*s%sfrom %.*s, version %" PRId64, STR_ARG(key), key.n > 0 ? "  " : "",
                                  STR_ARG(source), version)));
}

static void print_head(struct out *out, const struct json *operation, int64_t now_ms, struct arena *arena)
{
    static const char *const who[] = {"principal", "", "tenant", "tenant ", "workflow", "workflow "};
    static const char *const where[] = {"run_id", "run ", "step_id", "step ", "session_id", "session "};
    static const char *const links[] = {"repeat_of",           "repeat of ", "previous",     "after ",
                                        "distinct_from",       "not ",       "compensates",  "undoes ",
                                        "parent_operation_id", "step of ",   "compensation", "undone by "};
    struct str status = json_get_text(operation, "status"), reason = json_get_text(operation, "reason");
    out_str(out, OUT_BOLD, json_get_text(operation, "tool"));
    out_printf(out, "  ");
    out_str(out, OUT_BOLD, json_get_text(operation, "operation_id"));
    out_printf(out, "  ");
    print_state(out, status);
    if (reason.n > 0) {
        out_printf(out, " (");
        out_str(out, OUT_PLAIN, reason);
        out_printf(out, ")");
    }
    out_printf(out, "\n");
    out_field(out, "effect", str_of(view_effect(operation)));
    print_key(out, operation, arena);
    out_field(out, "who", joined(arena, operation, who, 6));
    out_field(out, "where", joined(arena, operation, where, 6));
    out_field(out, "linked", joined(arena, operation, links, sizeof links / sizeof *links));
    out_field(out, "created", view_time(arena, operation, "created_at", now_ms));
    out_field(out, "not before", view_time(arena, operation, "not_before", now_ms));
    out_field(out, "ended", view_time(arena, operation, "completed_at", now_ms));
    out_field(out, "version", str_of(arena_printf(arena, "%" PRId64, json_get_int(operation, "version", 0))));
    out_field(out, "external id", json_get_text(operation, "external_id"));
    out_field(out, "told callers", json_get_text(operation, "safe_user_message"));
}

static void print_value(struct out *out, const char *name, const struct json *value)
{
    if (!value || value->type == JSON_NULL)
        return;
    out_printf(out, "  ");
    out_text(out, OUT_DIM, name);
    out_printf(out, "\n");
    out_json(out, value, 4);
}

void trace_print(struct out *out, const struct trace *trace, int64_t now_ms)
{
    struct arena arena;
    int64_t start_ms = 0;
    arena_init(&arena);
    struct marks marks =
        marks_merge(&arena, event_marks(&arena, trace->events), attempt_marks(&arena, trace->attempts));
    marks = marks_merge(&arena, marks, incident_marks(&arena, json_get(trace->operation, "incidents")));
    if (!out_parse_time(json_get_text(trace->operation, "created_at"), &start_ms) && marks.count > 0)
        start_ms = marks.items[0].at_ms;
    print_head(out, trace->operation, now_ms, &arena);
    view_steps(out, trace->operation);
    print_value(out, "arguments", json_get(trace->operation, "arguments"));
    out_printf(out, "\n");
    for (size_t i = 0; i < marks.count; i++)
        print_mark(out, &marks.items[i], start_ms);
    out_printf(out, "\n");
    print_value(out, "result", json_get(trace->operation, "result"));
    print_value(out, "error", json_get(trace->operation, "error"));
    view_next(out, trace->operation);
    arena_release(&arena);
}
