#include "cli/fake_log.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

#define ABSENT 0xffff

void fake_log_init(struct fake_log *log, size_t max)
{
    *log = (struct fake_log){.max = max};
    if (max)
        log->ring = mem_zero(max * sizeof *log->ring);
}

void fake_log_release(struct fake_log *log)
{
    for (size_t i = 0; i < log->max; i++)
        free(log->ring[i].text);
    free(log->ring);
}

void fake_log_reset(struct fake_log *log)
{
    log->count = 0;
}

uint64_t fake_log_add(struct fake_log *log, uint64_t connection, int64_t wall_ms, const char *method, struct str path)
{
    uint64_t n = ++log->count;
    if (!log->max)
        return n;
    struct fake_entry *entry = &log->ring[n % log->max];
    *entry = (struct fake_entry){
        .n = n, .connection = connection, .wall_ms = wall_ms, .text = entry->text, .cap = entry->cap};
    for (int i = 0; i < 6; i++)
        entry->at[i] = ABSENT;
    fake_entry_set(entry, LOG_METHOD, str_of(method));
    fake_entry_set(entry, LOG_PATH, path);
    return n;
}

struct fake_entry *fake_log_find(struct fake_log *log, uint64_t n)
{
    if (!log->max || n == 0 || n > log->count || n + log->max <= log->count)
        return NULL;
    return &log->ring[n % log->max];
}

void fake_entry_set(struct fake_entry *entry, int what, struct str text)
{
    if (!text.p)
        return;
    size_t n = text.n < FAKE_LOG_TEXT_MAX ? text.n : FAKE_LOG_TEXT_MAX;
    if (entry->size + n + 1 > entry->cap) {
        entry->cap = (entry->size + n + 1) * 2;
        entry->text = mem_grow(entry->text, entry->cap);
    }
    memcpy(entry->text + entry->size, text.p, n);
    entry->text[entry->size + n] = 0;
    entry->at[what] = (uint16_t)entry->size;
    entry->size += n + 1;
}

static const char *entry_text(const struct fake_entry *entry, int what)
{
    return entry->at[what] == ABSENT ? NULL : entry->text + entry->at[what];
}

static const char *outcome_name(enum fake_outcome outcome)
{
    switch (outcome) {
    case OUTCOME_OPEN: return "open";
    case OUTCOME_ANSWERED: return "answered";
    case OUTCOME_CLOSED: return "closed";
    case OUTCOME_RESET: return "reset";
    case OUTCOME_BROKEN: return "broken";
    case OUTCOME_LEFT: return "left";
    }
    return "open";
}

static void write_entry(struct json_out *out, const struct fake_entry *entry)
{
    json_out_object(out);
    json_out_member_int(out, "n", (int64_t)entry->n);
    json_out_member_text(out, "method", entry_text(entry, LOG_METHOD));
    json_out_member_text(out, "path", entry_text(entry, LOG_PATH));
    json_out_name(out, "key");
    json_out_text(out, entry_text(entry, LOG_KEY));
    json_out_name(out, "reference");
    json_out_text(out, entry_text(entry, LOG_REFERENCE));
    json_out_member_int(out, "time_ms", entry->wall_ms);
    json_out_name(out, "took_ms");
    if (entry->answered_ms)
        json_out_int(out, entry->answered_ms - entry->wall_ms);
    else
        json_out_null(out);
    json_out_member_int(out, "connection", (int64_t)entry->connection);
    json_out_name(out, "fault");
    json_out_text(out, entry_text(entry, LOG_PLAN));
    json_out_member_bool(out, "effect", entry->effect);
    json_out_name(out, "object");
    json_out_text(out, entry_text(entry, LOG_OBJECT));
    json_out_member_bool(out, "replayed", entry->replayed);
    json_out_member_text(out, "outcome", outcome_name(entry->outcome));
    json_out_member_int(out, "status", entry->status);
    json_out_end_object(out);
}

void fake_log_write(struct json_out *out, struct fake_log *log, uint64_t since, size_t limit, struct str reference)
{
    uint64_t oldest = log->count > log->max ? log->count - log->max + 1 : 1;
    json_out_array(out);
    for (uint64_t n = since > oldest ? since : oldest; n <= log->count && limit; n++) {
        const struct fake_entry *entry = fake_log_find(log, n);
        if (!entry || (reference.p && !str_equal(reference, str_of(entry_text(entry, LOG_REFERENCE)))))
            continue;
        write_entry(out, entry);
        limit--;
    }
    json_out_end_array(out);
}
