#include "ledger/mem_inbox.h"

#include "base/mem.h"

#include <stdlib.h>

struct kept {
    struct inbound event; /* first: found by its address */
    struct arena arena;
};

static struct kept *kept_new(const struct inbound *event)
{
    struct kept *kept = mem_zero(sizeof *kept);
    arena_init(&kept->arena);
    kept->event = *inbound_copy(&kept->arena, event);
    return kept;
}

static void kept_free(struct kept *kept)
{
    arena_release(&kept->arena);
    free(kept);
}

void mem_inbox_release(struct mem_inbox *inbox)
{
    for (size_t i = 0; i < inbox->count; i++)
        kept_free((struct kept *)inbox->events[i]);
    for (size_t i = 0; i < inbox->source_count; i++)
        free((char *)inbox->sources[i].source);
    free(inbox->events);
    free(inbox->sources);
}

/* First position whose id is not below. */
static size_t position(const struct mem_inbox *inbox, const char *id)
{
    size_t low = 0, high = inbox->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (strcmp(inbox->events[middle]->id, id) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static struct inbound *find(const struct mem_inbox *inbox, const char *id)
{
    size_t at = position(inbox, id);
    return at < inbox->count && strcmp(inbox->events[at]->id, id) == 0 ? inbox->events[at] : NULL;
}

static struct inbox_counts *counts_of(struct mem_inbox *inbox, const char *source)
{
    size_t at = 0;
    while (at < inbox->source_count && strcmp(inbox->sources[at].source, source) < 0)
        at++;
    if (at < inbox->source_count && strcmp(inbox->sources[at].source, source) == 0)
        return &inbox->sources[at];
    if (inbox->source_count == inbox->source_room) {
        inbox->source_room = inbox->source_room ? inbox->source_room * 2 : 4;
        inbox->sources = mem_grow(inbox->sources, inbox->source_room * sizeof *inbox->sources);
    }
    memmove(&inbox->sources[at + 1], &inbox->sources[at], (inbox->source_count - at) * sizeof *inbox->sources);
    inbox->source_count++;
    inbox->sources[at] = (struct inbox_counts){.source = mem_copy_text(source)};
    return &inbox->sources[at];
}

static bool names(const struct inbound *event, const struct operation *op)
{
    switch (event->match) {
    case INBOUND_BY_REFERENCE: return text_equal(event->value, op->id);
    case INBOUND_BY_PROVIDER_KEY: return text_equal(event->value, op->provider_key);
    case INBOUND_BY_EXTERNAL_ID: return text_equal(event->value, op->external_id);
    case INBOUND_BY_NOTHING:
    case INBOUND_MATCH_COUNT: break;
    }
    return false;
}

static struct ledger_named named_of(struct arena *arena, const struct operation *op)
{
    return (struct ledger_named){arena_copy_text(arena, op->id), arena_copy_text(arena, op->tenant),
                                 arena_copy_text(arena, op->tool)};
}

static size_t named(const struct inbound *event, const struct mem_inbox_rows *rows, struct arena *arena,
                    struct ledger_named *out, size_t max)
{
    size_t count = 0;
    if (event->status != INBOUND_WAITING || !event->value)
        return 0;
    if (event->match == INBOUND_BY_REFERENCE) {
        const struct operation *op = rows->find(rows->user, event->value);
        if (op)
            out[count++] = named_of(arena, op);
        return count;
    }
    const struct operation *op;
    for (size_t i = 0; count < max && (op = rows->at(rows->user, i)); i++)
        if (names(event, op))
            out[count++] = named_of(arena, op);
    return count;
}

static void insert(struct mem_inbox *inbox, const struct inbound *event)
{
    if (inbox->count == inbox->room) {
        inbox->room = inbox->room ? inbox->room * 2 : 16;
        inbox->events = mem_grow(inbox->events, inbox->room * sizeof *inbox->events);
    }
    size_t at = position(inbox, event->id);
    memmove(&inbox->events[at + 1], &inbox->events[at], (inbox->count - at) * sizeof *inbox->events);
    inbox->events[at] = &kept_new(event)->event;
    inbox->count++;
    struct inbox_counts *counts = counts_of(inbox, event->source);
    counts->events++;
    counts->ignored += event->status == INBOUND_IGNORED;
}

enum err_code mem_inbox_record(struct mem_inbox *inbox, const struct mem_inbox_rows *rows,
                               struct ledger_request *request)
{
    struct ledger_record_inbound *record = &request->record_inbound;
    struct inbound *known = NULL;
    for (size_t i = 0; i < inbox->count && !known; i++)
        if (text_equal(inbox->events[i]->source, record->event->source) &&
            text_equal(inbox->events[i]->event, record->event->event))
            known = inbox->events[i];
    record->duplicate = known != NULL;
    if (known) {
        known->duplicates++;
        known->duplicate_ms = record->now_ms;
        counts_of(inbox, known->source)->duplicates++;
    } else {
        insert(inbox, record->event);
        known = find(inbox, record->event->id);
    }
    record->event = inbound_copy(request->arena, known);
    record->named_count = named(known, rows, request->arena, record->named, LEDGER_INBOX_OPS_MAX);
    return ERR_NONE;
}

static struct inbound copy_out(struct arena *arena, const struct inbound *event, bool body)
{
    struct inbound shallow = *event;
    if (!body)
        shallow.body = STR_NONE;
    return *inbound_copy(arena, &shallow);
}

static struct inbound_standing standing_of(const struct mem_inbox *inbox, const struct inbound *of,
                                           const char *operation)
{
    struct inbound_standing standing = {0};
    for (size_t i = 0; i < inbox->count; i++) {
        const struct inbound *event = inbox->events[i];
        if (event->status == INBOUND_APPLIED && text_equal(event->operation, operation) &&
            text_equal(event->source, of->source))
            inbound_note(&standing, event);
    }
    return standing;
}

enum err_code mem_inbox_of(struct mem_inbox *inbox, const struct mem_inbox_rows *rows, struct ledger_request *request)
{
    struct ledger_inbox_of *out = &request->inbox_of;
    out->events = arena_alloc(request->arena, LEDGER_INBOX_EVENTS_MAX * sizeof *out->events);
    out->standing = arena_alloc(request->arena, LEDGER_INBOX_EVENTS_MAX * sizeof *out->standing);
    out->named = arena_alloc(request->arena, LEDGER_INBOX_EVENTS_MAX * sizeof *out->named);
    out->named_count = arena_alloc(request->arena, LEDGER_INBOX_EVENTS_MAX * sizeof *out->named_count);
    out->count = 0;
    out->more = false;
    for (size_t i = 0; i < inbox->count && !out->more; i++) {
        const struct inbound *event = inbox->events[i];
        if (event->status != INBOUND_WAITING || !event->value || !names(event, out->op))
            continue;
        out->more = out->count == LEDGER_INBOX_EVENTS_MAX;
        if (out->more)
            break;
        out->standing[out->count] = standing_of(inbox, event, out->op->id);
        out->named_count[out->count] = named(event, rows, request->arena, out->named[out->count], LEDGER_INBOX_OPS_MAX);
        out->events[out->count++] = copy_out(request->arena, event, false);
    }
    return ERR_NONE;
}

enum err_code mem_inbox_due(struct mem_inbox *inbox, const struct mem_inbox_rows *rows, struct ledger_request *request)
{
    struct ledger_inbox_due *due = &request->inbox_due;
    due->operations = arena_alloc(request->arena, LEDGER_INBOX_PAGE_MAX * sizeof *due->operations);
    due->count = 0;
    due->next = NULL;
    due->any_waiting = due->after != NULL;
    const char *last = "";
    for (size_t i = due->after ? position(inbox, due->after) : 0; i < inbox->count; i++) {
        const struct inbound *event = inbox->events[i];
        if (event->status != INBOUND_WAITING || (due->after && strcmp(event->id, due->after) <= 0))
            continue;
        due->any_waiting = true;
        if (due->count == LEDGER_INBOX_PAGE_MAX) {
            due->next = arena_copy_text(request->arena, last);
            break;
        }
        struct ledger_named first;
        if (named(event, rows, request->arena, &first, 1))
            due->operations[due->count++] = first.operation;
        last = event->id;
    }
    return ERR_NONE;
}

static bool list_wants(const struct ledger_inbox_list *list, const struct inbound *event)
{
    return (!list->source || text_equal(list->source, event->source)) &&
           (!list->operation || text_equal(list->operation, event->operation)) &&
           (!list->statuses || (list->statuses & 1u << event->status)) &&
           (!list->forwards || (list->forwards & 1u << event->forward.status)) &&
           (!list->before || strcmp(event->id, list->before) < 0);
}

enum err_code mem_inbox_list(struct mem_inbox *inbox, struct ledger_request *request)
{
    struct ledger_inbox_list *list = &request->inbox_list;
    if (list->limit > LEDGER_LIST_MAX)
        list->limit = LEDGER_LIST_MAX;
    list->count = 0;
    list->next = NULL;
    list->events = arena_alloc(request->arena, (list->limit + 1) * sizeof *list->events);
    if (list->id) {
        const struct inbound *event = find(inbox, list->id);
        if (!event)
            return err_set(&request->err, ERR_NOT_FOUND, "there is no inbound event %s", list->id);
        list->events[list->count++] = copy_out(request->arena, event, true);
        return ERR_NONE;
    }
    for (size_t i = inbox->count; i-- > 0;) {
        if (!list_wants(list, inbox->events[i]))
            continue;
        if (list->count == list->limit) {
            list->next = list->count ? list->events[list->count - 1].id : NULL;
            break;
        }
        list->events[list->count++] = copy_out(request->arena, inbox->events[i], false);
    }
    return ERR_NONE;
}

enum err_code mem_inbox_counts(struct mem_inbox *inbox, struct ledger_request *request)
{
    struct ledger_inbox_counts *out = &request->inbox_counts;
    out->count = inbox->source_count;
    out->sources = arena_alloc(request->arena, (out->count + 1) * sizeof *out->sources);
    for (size_t i = 0; i < out->count; i++) {
        out->sources[i] = inbox->sources[i];
        out->sources[i].source = arena_copy_text(request->arena, inbox->sources[i].source);
    }
    return ERR_NONE;
}

enum err_code mem_inbox_prune(struct mem_inbox *inbox, struct ledger_request *request)
{
    struct ledger_inbox_prune *prune = &request->inbox_prune;
    prune->count = 0;
    prune->next_ms = 0;
    size_t kept = 0;
    for (size_t i = 0; i < inbox->count; i++) {
        struct inbound *event = inbox->events[i];
        if (event->retain_until_ms <= prune->now_ms && prune->count < prune->limit) {
            prune->count++;
            counts_of(inbox, event->source)->dropped += event->status == INBOUND_WAITING;
            kept_free((struct kept *)event);
            continue;
        }
        if (prune->next_ms == 0 || event->retain_until_ms < prune->next_ms)
            prune->next_ms = event->retain_until_ms;
        inbox->events[kept++] = event;
    }
    inbox->count = kept;
    return ERR_NONE;
}

enum err_code mem_forward_due(struct mem_inbox *inbox, struct ledger_request *request)
{
    struct ledger_forward_due *due = &request->forward_due;
    struct inbound *chosen[LEDGER_FORWARDS_MAX + 1];
    size_t limit = due->limit < LEDGER_FORWARDS_MAX ? due->limit : LEDGER_FORWARDS_MAX, found = 0;
    for (size_t i = 0; i < inbox->count; i++) {
        struct inbound *event = inbox->events[i];
        if (event->forward.status != FORWARD_DUE)
            continue;
        size_t at = found;
        while (at > 0 && chosen[at - 1]->forward.at_ms > event->forward.at_ms)
            at--;
        if (at > limit)
            continue;
        found += found <= limit;
        memmove(&chosen[at + 1], &chosen[at], (found - 1 - at) * sizeof *chosen);
        chosen[at] = event;
    }
    due->events = arena_alloc(request->arena, LEDGER_FORWARDS_MAX * sizeof *due->events);
    due->count = 0;
    while (due->count < found && due->count < limit && chosen[due->count]->forward.at_ms <= due->now_ms) {
        due->events[due->count] = copy_out(request->arena, chosen[due->count], true);
        due->count++;
    }
    due->next_ms = due->count < found ? chosen[due->count]->forward.at_ms : 0;
    return ERR_NONE;
}

enum err_code mem_forward_move(struct mem_inbox *inbox, struct ledger_request *request)
{
    const struct ledger_forward_move *move = &request->forward_move;
    struct inbound *event = find(inbox, move->id);
    if (!event)
        return err_set(&request->err, ERR_NOT_FOUND, "there is no inbound event %s", move->id);
    if (event->forward.status != move->was.status || event->forward.tries != move->was.tries)
        return err_set(&request->err, ERR_STALE, "the forwarding of %s has gone on meanwhile", move->id);
    event->forward = move->to;
    event->forward.detail = arena_copy_text(&((struct kept *)event)->arena, move->to.detail);
    return ERR_NONE;
}

bool mem_inbox_waits(const struct mem_inbox *inbox, const char *id)
{
    const struct inbound *event = find(inbox, id);
    return event && event->status == INBOUND_WAITING;
}

void mem_inbox_apply(struct mem_inbox *inbox, const struct ledger_transition *change)
{
    struct inbound *event = find(inbox, change->inbound);
    event->status = INBOUND_APPLIED;
    event->operation = arena_copy_text(&((struct kept *)event)->arena, change->op->id);
    event->settled_ms = change->op->updated_ms;
    counts_of(inbox, event->source)->applied++;
}
