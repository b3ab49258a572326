#include "core/inbox.h"

#include <fnmatch.h>

static const char *const outcome_texts[INBOUND_OUTCOME_COUNT] = {
#define X(constant, text) text,
    INBOUND_OUTCOMES(X)
#undef X
};
static const char *const match_texts[INBOUND_MATCH_COUNT] = {
#define X(constant, text) text,
    INBOUND_MATCHES(X)
#undef X
};
static const char *const status_texts[INBOUND_STATUS_COUNT] = {
#define X(constant, text) text,
    INBOUND_STATUSES(X)
#undef X
};

static const char *name_at(const char *const *texts, int count, int value)
{
    return value >= 0 && value < count ? texts[value] : "?";
}

static int value_of(const char *const *texts, int count, struct str text)
{
    for (int i = 0; i < count; i++)
        if (str_is(text, texts[i]))
            return i;
    return -1;
}

const char *inbound_outcome_name(enum inbound_outcome outcome)
{
    return name_at(outcome_texts, INBOUND_OUTCOME_COUNT, (int)outcome);
}

bool inbound_outcome_from_name(struct str text, enum inbound_outcome *out)
{
    int value = value_of(outcome_texts, INBOUND_OUTCOME_COUNT, text);
    if (value >= 0)
        *out = (enum inbound_outcome)value;
    return value >= 0;
}

const char *inbound_match_name(enum inbound_match match)
{
    return name_at(match_texts, INBOUND_MATCH_COUNT, (int)match);
}

bool inbound_match_from_name(struct str text, enum inbound_match *out)
{
    int value = value_of(match_texts, INBOUND_MATCH_COUNT, text);
    if (value >= 0)
        *out = (enum inbound_match)value;
    return value >= 0;
}

const char *inbound_status_name(enum inbound_status status)
{
    return name_at(status_texts, INBOUND_STATUS_COUNT, (int)status);
}

bool inbound_status_from_name(struct str text, enum inbound_status *out)
{
    int value = value_of(status_texts, INBOUND_STATUS_COUNT, text);
    if (value >= 0)
        *out = (enum inbound_status)value;
    return value >= 0;
}

bool inbox_source_takes(const struct inbox_source *source, const char *tenant, const char *name,
                        const struct tool *tool)
{
    if (source->tenant && !text_equal(source->tenant, tenant))
        return false;
    if (source->provider && !(tool && text_equal(source->provider, tool->provider->name)))
        return false;
    bool takes = source->tool_count == 0;
    for (size_t i = 0; i < source->tool_count && !takes; i++)
        takes = fnmatch(source->tools[i], name, 0) == 0;
    return takes;
}

bool inbound_newer(const struct inbound *event, const struct inbound_standing *standing)
{
    if (!standing->any)
        return true;
    if (event->created_ms != standing->created_ms)
        return event->created_ms > standing->created_ms;
    return event->outcome > standing->outcome;
}

void inbound_note(struct inbound_standing *standing, const struct inbound *event)
{
    if (inbound_newer(event, standing))
        *standing = (struct inbound_standing){true, event->created_ms, event->outcome};
}

struct inbound *inbound_copy(struct arena *arena, const struct inbound *event)
{
    struct inbound *copy = arena_alloc(arena, sizeof *copy);
    *copy = *event;
    const char **texts[] = {&copy->source, &copy->event,       &copy->type,
                            &copy->value,  &copy->external_id, &copy->operation};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        *texts[i] = arena_copy_text(arena, *texts[i]);
    copy->result = arena_str(arena, event->result);
    copy->body = arena_str(arena, event->body);
    return copy;
}
