/* Reads a verified webhook by its source's rules. */
#include "base/digest.h"
#include "base/log.h"
#include "core/timestamp.h"
#include "door/inbox_rules.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* What runs through a source's rules. */
struct reading {
    const struct inbox_rules *rules;
    const char *source;
    struct arena *arena;
    const struct json *root;
};

/* NULL when the part is not told, or cannot be told from this event: then the log says why. */
static const struct json *pick(const struct reading *reading, const struct inbox_pick *pick)
{
    struct json *value = NULL;
    struct err err = {0};
    if (pick->pointer)
        return json_pointer_get(reading->root, str_of(pick->pointer));
    if (!pick->jq)
        return NULL;
    if (jq_program_run(pick->jq, reading->arena, reading->root, NULL, &value, &err)) {
        log_message(LOG_WARN, "inbox", "%s: a jq program could not be run on an event: %s", reading->source, err.text);
        return NULL;
    }
    return value;
}

/* Texts and numbers name things; all else is none. */
static const char *pick_text(const struct reading *reading, const struct inbox_pick *of, size_t bytes_max)
{
    const struct json *value = pick(reading, of);
    if (!value || (value->type != JSON_STRING && value->type != JSON_NUMBER) || value->text.n == 0 ||
        value->text.n > bytes_max || memchr(value->text.p, '\0', value->text.n))
        return NULL;
    return arena_copy_str(reading->arena, value->text);
}

/* RFC 3339; 0 when it is none. */
static int64_t read_rfc3339(struct str text)
{
    struct tm tm = {0};
    struct buf utc;
    buf_init(&utc, 0);
    int64_t at_ms = 0;
    bool valid = text.n < 64 && timestamp_to_utc(&utc, text);
    const char *rest = valid ? strptime(buf_str(&utc).p, "%Y-%m-%dT%H:%M:%S", &tm) : NULL;
    if (rest) {
        double fraction = *rest == '.' ? strtod(rest, NULL) : 0; /* ".5Z" */
        at_ms = (int64_t)timegm(&tm) * 1000 + (int64_t)(fraction * 1000);
    }
    buf_release(&utc);
    return at_ms > 0 ? at_ms : 0;
}

/* Seconds or milliseconds since 1970, or RFC 3339. 0 when it is neither. */
static int64_t pick_time(const struct reading *reading, const struct inbox_pick *of)
{
    enum { SECONDS_UNTIL = 100000000000 }; /* the year 5138 in seconds, 1973 in milliseconds */
    const struct json *value = pick(reading, of);
    if (!value)
        return 0;
    if (value->type == JSON_STRING)
        return read_rfc3339(value->text);
    if (value->type != JSON_NUMBER || value->text.n > 20)
        return 0;
    char text[24];
    memcpy(text, value->text.p, value->text.n);
    text[value->text.n] = '\0';
    double number = strtod(text, NULL);
    if (!(number > 0 && number < 1e15))
        return 0;
    return number < (double)SECONDS_UNTIL ? (int64_t)(number * 1000) : (int64_t)number;
}

static const struct inbox_rule *rule_of(const struct reading *reading)
{
    for (size_t i = 0; i < reading->rules->outcome_count; i++) {
        const struct inbox_rule *rule = &reading->rules->outcomes[i];
        struct err err = {0};
        bool holds = true;
        if (rule->when && jq_program_test(rule->when, reading->root, &holds, &err)) {
            log_message(LOG_WARN, "inbox", "%s: the condition of outcome %zu can not be judged: %s", reading->source, i,
                        err.text);
            holds = false;
        }
        if (holds)
            return rule;
    }
    return NULL;
}

static const char *event_id(const struct reading *reading, const struct inbox_message *message)
{
    if (reading->rules->event_id.pointer || reading->rules->event_id.jq)
        return pick_text(reading, &reading->rules->event_id, INBOX_EVENT_BYTES_MAX);
    if (reading->rules->scheme == INBOX_STANDARD_WEBHOOKS && message->webhook_id.n <= INBOX_EVENT_BYTES_MAX)
        return arena_copy_str(reading->arena, message->webhook_id); /* part of what is signed */
    char hex[2 * DIGEST_BYTES + 1];
    struct digest digest = digest_sha256(message->body); /* a header that is not signed could be made up */
    digest_hex(&digest, DIGEST_BYTES, hex);
    return arena_copy_text(reading->arena, hex);
}

static void match(const struct reading *reading, struct inbound *event)
{
    const struct inbox_rules *rules = reading->rules;
    const struct {
        enum inbound_match match;
        const struct inbox_pick *pick;
    } ways[] = {{INBOUND_BY_REFERENCE, &rules->reference},
                {INBOUND_BY_PROVIDER_KEY, &rules->provider_key},
                {INBOUND_BY_EXTERNAL_ID, &rules->external_id}};
    event->match = INBOUND_BY_NOTHING;
    for (size_t i = 0; i < sizeof ways / sizeof *ways && !event->value; i++) {
        event->value = pick_text(reading, ways[i].pick, INBOX_VALUE_BYTES_MAX);
        if (event->value)
            event->match = ways[i].match;
    }
}

enum err_code inbox_read(const struct inbox_rules *rules, const char *source, const struct inbox_message *message,
                         struct arena *arena, struct inbound *event, struct err *err)
{
    struct json *root;
    *event = (struct inbound){.source = source, .outcome = INBOUND_IGNORE, .body = message->body};
    if (json_parse(arena, message->body, &json_limits_default, &root, err))
        return err->code;
    struct reading reading = {rules, source, arena, root};
    event->event = event_id(&reading, message);
    if (!event->event || !event->event[0])
        return err_set(err, ERR_INVALID, "the event has no id where the source's rules look for it (at most %d bytes)",
                       INBOX_EVENT_BYTES_MAX);
    event->type = pick_text(&reading, &rules->type, INBOX_VALUE_BYTES_MAX);
    if (!event->type && rules->scheme == INBOX_GITHUB && message->hub_event.n <= INBOX_VALUE_BYTES_MAX)
        event->type = arena_copy_str(arena, message->hub_event);
    event->created_ms = pick_time(&reading, &rules->created);
    match(&reading, event);
    const struct inbox_rule *rule = rule_of(&reading);
    if (!rule)
        return ERR_NONE;
    event->outcome = rule->outcome;
    event->external_id = pick_text(&reading, &rule->external_id, INBOX_VALUE_BYTES_MAX);
    if (!event->external_id)
        event->external_id = pick_text(&reading, &rules->external_id, INBOX_VALUE_BYTES_MAX);
    event->result = json_to_text(arena, pick(&reading, &rule->result));
    return ERR_NONE;
}
