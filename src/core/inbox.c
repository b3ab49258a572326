#include "core/inbox.h"

#include "base/digest.h"

#include <assert.h>
#include <fnmatch.h>
#include <stdio.h>

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

static const char *const forward_texts[FORWARD_STATUS_COUNT] = {
#define X(constant, text) text,
    FORWARD_STATUSES(X)
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

const char *forward_status_name(enum forward_status status)
{
    return name_at(forward_texts, FORWARD_STATUS_COUNT, (int)status);
}

bool forward_status_from_name(struct str text, enum forward_status *out)
{
    int value = value_of(forward_texts, FORWARD_STATUS_COUNT, text);
    if (value >= 0)
        *out = (enum forward_status)value;
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
    const char **texts[] = {&copy->source,      &copy->event,     &copy->type,          &copy->value,
                            &copy->external_id, &copy->operation, &copy->forward.detail};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        *texts[i] = arena_copy_text(arena, *texts[i]);
    copy->result = arena_str(arena, event->result);
    copy->body = arena_str(arena, event->body);
    return copy;
}

/* ---- forwarding ---- */

struct forward forward_begin(const struct forward_policy *policy, int64_t now_ms)
{
    if (!policy)
        return (struct forward){.status = FORWARD_NONE};
    return (struct forward){.status = FORWARD_DUE, .at_ms = now_ms, .until_ms = now_ms + policy->give_up_ms};
}

struct forward forward_try(const struct forward *forward, const struct forward_policy *policy, int64_t now_ms)
{
    struct forward next = *forward;
    assert(forward->status == FORWARD_DUE);
    next.tries++;
    next.at_ms = now_ms + policy->timeout_ms + FORWARD_FIRST_MS;
    return next;
}

static int64_t delay_ms(int64_t tries, uint64_t random)
{
    int64_t most = FORWARD_FIRST_MS;
    for (int64_t i = 1; i < tries && most < FORWARD_MOST_MS; i++)
        most *= 2;
    if (most > FORWARD_MOST_MS)
        most = FORWARD_MOST_MS;
    return most / 2 + (int64_t)(random % (uint64_t)(most / 2 + 1));
}

struct forward forward_tried(const struct forward *tried, bool delivered, int64_t retry_after_ms, const char *detail,
                             int64_t now_ms, uint64_t random)
{
    struct forward next = *tried;
    int64_t wait_ms = delay_ms(tried->tries, random);
    next.detail = delivered ? NULL : detail;
    next.status = delivered ? FORWARD_DELIVERED : FORWARD_DUE;
    next.at_ms = now_ms;
    if (delivered)
        return next;
    next.at_ms = now_ms + (retry_after_ms > wait_ms ? retry_after_ms : wait_ms);
    if (next.at_ms > next.until_ms) {
        next.status = FORWARD_UNDELIVERED;
        next.at_ms = now_ms;
    }
    return next;
}

struct forward forward_again(const struct forward *forward, const struct forward_policy *policy, int64_t now_ms)
{
    assert(forward->status == FORWARD_UNDELIVERED);
    struct forward again = forward_begin(policy, now_ms);
    again.detail = forward->detail;
    return again;
}

static bool fits_header(const char *text)
{
    for (const char *p = text; *p; p++)
        if (*p <= ' ' || *p > '~' || *p == '.')
            return false;
    return true;
}

void forward_id(const struct inbound *event, char *out)
{
    const struct str parts[] = {str_of(event->source), str_of(event->event)};
    if (fits_header(event->source) && fits_header(event->event) && parts[0].n + parts[1].n + 2 <= FORWARD_ID_SIZE) {
        snprintf(out, FORWARD_ID_SIZE, "%s:%s", event->source, event->event);
        return;
    }
    struct digest digest = digest_parts(parts, 2);
    strcpy(out, "sha256:");
    digest_hex(&digest, DIGEST_BYTES, out + 7);
}
