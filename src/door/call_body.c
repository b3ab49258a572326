#include "door/call_body.h"

#include "base/units.h"
#include "core/timestamp.h"
#include "door/suggest.h"

#include <strings.h>

bool body_refuse(struct problem_document *problem, enum problem_type type, const char *pointer, const char *detail)
{
    *problem = (struct problem_document){.type = type, .pointer = pointer, .detail = detail};
    return false;
}

bool body_parse(struct arena *arena, struct str body, struct json **out, struct problem_document *problem)
{
    const struct json_limits limits = {SIZE_MAX, CALL_DEPTH_MAX, CALL_VALUES_MAX};
    struct err err = {0};
    if (body.n == 0)
        return body_refuse(problem, PROBLEM_MALFORMED, NULL, "the body is empty; expected a JSON object");
    enum err_code code = json_parse(arena, body, &limits, out, &err);
    if (!code)
        return true;
    return body_refuse(problem, code == ERR_LIMIT ? PROBLEM_TOO_LARGE : PROBLEM_MALFORMED, NULL,
                       arena_copy_text(arena, err.text));
}

/* ---- times ---- */

static int64_t digits(const char *p, unsigned n)
{
    int64_t value = 0;
    while (n-- > 0)
        value = value * 10 + (*p++ - '0');
    return value;
}

/* Days since 1970-01-01 in the proleptic Gregorian calendar; years begin on 1 March, so that the leap day comes last.
 */
static int64_t days_from_civil(int64_t year, int64_t month, int64_t day)
{
    year -= month <= 2;
    int64_t era = year / 400, year_of_era = year % 400;
    int64_t day_of_year = (153 * (month > 2 ? month - 3 : month + 9) + 2) / 5 + day - 1;
    int64_t day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    return era * 146097 + day_of_era - 719468;
}

bool body_time(struct str text, int64_t *ms)
{
    struct buf utc;
    buf_init(&utc, 64);
    bool ok = text.n < 64 && timestamp_to_utc(&utc, text) && !utc.over && utc.n >= 20;
    if (ok) {
        const char *p = utc.p; /* 2026-11-29T16:23:28.5Z */
        int64_t days = digits(p, 4) > 0 ? days_from_civil(digits(p, 4), digits(p + 5, 2), digits(p + 8, 2)) : 0;
        int64_t seconds = digits(p + 11, 2) * 3600 + digits(p + 14, 2) * 60 + digits(p + 17, 2);
        int64_t milli = 0, scale = 100;
        for (const char *f = p + 20; p[19] == '.' && *f >= '0' && *f <= '9' && scale > 0; f++, scale /= 10)
            milli += (*f - '0') * scale;
        *ms = days * 86400000 + seconds * 1000 + milli;
    }
    buf_release(&utc);
    return ok;
}

/* ---- members ---- */

static const char *pointer_to(struct arena *arena, struct str name)
{
    struct buf pointer;
    buf_init(&pointer, 256);
    json_pointer_add(&pointer, name);
    const char *text = pointer.over ? "" : arena_copy_str(arena, buf_str(&pointer));
    buf_release(&pointer);
    return text;
}

static const char *type_wanted(enum body_type type)
{
    switch (type) {
    case BODY_TEXT: return "a string";
    case BODY_BOOL: return "true or false";
    case BODY_INT: return "a whole number";
    case BODY_TIME: return "an RFC 3339 time such as \"2026-12-01T08:00:00Z\"";
    case BODY_ANY: break;
    }
    return "a value";
}

static bool unknown_member(struct arena *arena, struct str name, const struct body_member *members, size_t count,
                           struct problem_document *problem)
{
    struct suggestion nearest = suggestion_for(name);
    for (size_t i = 0; i < count; i++)
        suggestion_offer(&nearest, members[i].name);
    struct str shown = {name.p, name.n < 100 ? name.n : 100};
    const char *detail = nearest.name ? arena_printf(arena, "unknown member \"%.*s\"; did you mean \"%s\"?",
                                                     STR_ARG(shown), nearest.name)
                                      : arena_printf(arena, "unknown member \"%.*s\"", STR_ARG(shown));
    return body_refuse(problem, PROBLEM_MALFORMED, pointer_to(arena, name), detail);
}

static bool take_member(struct arena *arena, const struct json *value, const struct body_member *member)
{
    switch (member->type) {
    case BODY_TEXT:
        if (value->type != JSON_STRING || memchr(value->text.p, 0, value->text.n))
            return false;
        *(const char **)member->out = arena_copy_str(arena, value->text);
        return true;
    case BODY_BOOL:
        if (value->type != JSON_BOOL)
            return false;
        *(bool *)member->out = value->boolean;
        return true;
    case BODY_INT:
        return value->type == JSON_NUMBER && json_number_int64(value->text, member->out) &&
               *(int64_t *)member->out >= member->min && *(int64_t *)member->out <= member->max;
    case BODY_TIME: return value->type == JSON_STRING && body_time(value->text, member->out);
    case BODY_ANY: *(const struct json **)member->out = value; return true;
    }
    return false;
}

static bool wrong_type(struct arena *arena, const struct json *value, const struct body_member *member,
                       struct problem_document *problem)
{
    const char *detail;
    if (member->type == BODY_INT && value->type == JSON_NUMBER)
        detail = arena_printf(arena, "\"%s\" must be a whole number from %lld to %lld", member->name,
                              (long long)member->min, (long long)member->max);
    else if (member->type == BODY_TEXT && value->type == JSON_STRING)
        detail = arena_printf(arena, "\"%s\" must not contain NUL characters", member->name);
    else
        detail = arena_printf(arena, "\"%s\" must be %s, got %s", member->name, type_wanted(member->type),
                              member->type == BODY_TIME && value->type == JSON_STRING ? "another text"
                                                                                      : json_type_name(value->type));
    return body_refuse(problem, PROBLEM_MALFORMED, pointer_to(arena, str_of(member->name)), detail);
}

#define MEMBERS_MAX 32

bool body_read(struct arena *arena, const struct json *body, const struct body_member *members, size_t count,
               struct problem_document *problem)
{
    uint32_t seen = 0;
    if (body->type != JSON_OBJECT)
        return body_refuse(problem, PROBLEM_MALFORMED, "",
                           arena_printf(arena, "the body must be an object, got %s", json_type_name(body->type)));
    for (uint32_t i = 0; i < body->count; i++) {
        struct str name = body->members[i].name;
        const struct json *value = &body->members[i].value;
        size_t at = 0;
        while (at < count && !str_is(name, members[at].name))
            at++;
        if (at == count)
            return unknown_member(arena, name, members, count, problem);
        if (value->type == JSON_NULL)
            continue;
        if (!take_member(arena, value, &members[at]))
            return wrong_type(arena, value, &members[at], problem);
        seen |= (uint32_t)1 << at;
        if (members[at].given)
            *members[at].given = true;
    }
    for (size_t at = 0; at < count && at < MEMBERS_MAX; at++) {
        if (members[at].required && !(seen & (uint32_t)1 << at))
            return body_refuse(
                problem, PROBLEM_MALFORMED, pointer_to(arena, str_of(members[at].name)),
                arena_printf(arena, "\"%s\" is missing; expected %s", members[at].name, type_wanted(members[at].type)));
    }
    return true;
}

/* ---- headers ---- */

/* One fact from two places: the header fills the gap, a difference is refused. */
static bool merge(struct arena *arena, const char *header, struct str value, const char *member, const char **out,
                  struct problem_document *problem)
{
    if (!value.p)
        return true;
    for (size_t i = 0; i < value.n; i++) {
        if ((unsigned char)value.p[i] < 0x20 || (unsigned char)value.p[i] > 0x7e)
            return body_refuse(problem, PROBLEM_MALFORMED, NULL,
                               arena_printf(arena, "the header %s may hold printable ASCII only; use the member \"%s\"",
                                            header, member));
    }
    if (value.n == 0)
        return body_refuse(problem, PROBLEM_MALFORMED, NULL, arena_printf(arena, "the header %s is empty", header));
    if (*out && !str_is(value, *out))
        return body_refuse(problem, PROBLEM_MALFORMED, pointer_to(arena, str_of(member)),
                           arena_printf(arena, "the header %s and the member \"%s\" differ", header, member));
    if (!*out)
        *out = arena_copy_str(arena, value);
    return true;
}

static bool merge_key(struct arena *arena, struct str value, const char **out, struct problem_document *problem)
{
    if (!value.p)
        return true;
    const char *key;
    struct err err = {0};
    if (identity_parse_header(value, arena, &key, &err))
        return body_refuse(problem, PROBLEM_KEY_INVALID, NULL,
                           arena_printf(arena, "the header Idempotency-Key: %s", err.text));
    if (*out && strcmp(*out, key) != 0)
        return body_refuse(problem, PROBLEM_MALFORMED, "/idempotency_key",
                           "the header Idempotency-Key and the member \"idempotency_key\" differ");
    *out = key;
    return true;
}

const char *call_traceparent(struct arena *arena, struct str text)
{
    static const char form[] = "00-xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx-xxxxxxxxxxxxxxxx-xx";
    if (text.n != sizeof form - 1)
        return NULL;
    for (size_t i = 0; i < text.n; i++) {
        char c = text.p[i];
        bool hex = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
        if (form[i] == 'x' ? !hex : c != form[i])
            return NULL;
    }
    return arena_copy_str(arena, text);
}

struct preferences {
    bool async, has_wait;
    int64_t wait_ms;
};

static struct str trimmed(struct str text)
{
    while (text.n > 0 && (text.p[0] == ' ' || text.p[0] == '\t'))
        text.p++, text.n--;
    while (text.n > 0 && (text.p[text.n - 1] == ' ' || text.p[text.n - 1] == '\t'))
        text.n--;
    return text;
}

static bool is_word(struct str text, const char *word)
{
    return text.n == strlen(word) && strncasecmp(text.p, word, text.n) == 0;
}

static bool preference_wait(struct str value, struct preferences *out)
{
    if (value.n >= 2 && value.p[0] == '"' && value.p[value.n - 1] == '"')
        value = (struct str){value.p + 1, value.n - 2};
    if (value.n == 0 || value.n > 6)
        return false;
    for (size_t i = 0; i < value.n; i++) {
        if (value.p[i] < '0' || value.p[i] > '9')
            return false;
    }
    out->wait_ms = digits(value.p, (unsigned)value.n) * 1000;
    out->has_wait = true;
    return out->wait_ms <= ENGINE_WAIT_MS_MAX;
}

/* RFC 7240: a list of NAME[=VALUE][;parameters]. Preferences that nobody here knows are to be ignored. */
static bool read_prefer(struct str text, struct preferences *out, struct problem_document *problem)
{
    while (text.n > 0) {
        const char *comma = memchr(text.p, ',', text.n);
        size_t n = comma ? (size_t)(comma - text.p) : text.n;
        struct str item = {text.p, n};
        text = comma ? (struct str){comma + 1, text.n - n - 1} : (struct str){text.p + n, 0};
        const char *semicolon = memchr(item.p, ';', item.n);
        item = trimmed(semicolon ? (struct str){item.p, (size_t)(semicolon - item.p)} : item);
        const char *equals = memchr(item.p, '=', item.n);
        struct str name = trimmed(equals ? (struct str){item.p, (size_t)(equals - item.p)} : item);
        struct str value =
            equals ? trimmed((struct str){equals + 1, item.n - (size_t)(equals + 1 - item.p)}) : STR_NONE;
        if (is_word(name, "respond-async"))
            out->async = true;
        else if (is_word(name, "wait") && !preference_wait(value, out))
            return body_refuse(problem, PROBLEM_MALFORMED, NULL,
                               "the header Prefer: wait must be a whole number of seconds from 0 to 120");
    }
    return true;
}

static bool apply_prefer(struct str header, int64_t member_ms, struct engine_call *call,
                         struct problem_document *problem)
{
    struct preferences prefer = {0};
    call->wait_ms = member_ms;
    call->waits_for_people = member_ms > 0;
    if (!header.p)
        return true;
    if (!read_prefer(header, &prefer, problem))
        return false;
    if (prefer.has_wait && member_ms >= 0 && prefer.wait_ms != member_ms)
        return body_refuse(problem, PROBLEM_MALFORMED, "/wait_ms",
                           "the header Prefer: wait and the member \"wait_ms\" differ");
    if (prefer.has_wait)
        call->wait_ms = prefer.wait_ms, call->waits_for_people = prefer.wait_ms > 0;
    /* With a wait as well, the answer comes at once only after that time (RFC 7240, 4.3). */
    call->async = prefer.async && call->wait_ms <= 0;
    return true;
}

/* ---- the call ---- */

static bool read_distinct(const struct json *value, struct arena *arena, struct call *call,
                          struct problem_document *problem)
{
    static const char wanted[] = "\"distinct_from\" must be an operation id or an array of at most 8 operation ids";
    if (!value)
        return true;
    const struct json *items = value->type == JSON_ARRAY ? value->items : value;
    size_t count = value->type == JSON_ARRAY ? value->count : 1;
    if (count > ADMISSION_DISTINCT_MAX)
        return body_refuse(problem, PROBLEM_MALFORMED, "/distinct_from", wanted);
    for (size_t i = 0; i < count; i++) {
        if (items[i].type != JSON_STRING || items[i].text.n != OPERATION_ID_SIZE - 1 ||
            !operation_id_valid(arena_copy_str(arena, items[i].text)))
            return body_refuse(
                problem, PROBLEM_MALFORMED,
                value->type == JSON_ARRAY ? arena_printf(arena, "/distinct_from/%zu", i) : "/distinct_from", wanted);
        call->distinct_from[i] = arena_copy_str(arena, items[i].text);
    }
    call->distinct_count = count;
    return true;
}

/* Other members may be null for "not given". A key that its sender believes to have given is never dropped silently. */
static bool check_key(const struct json *body, struct problem_document *problem)
{
    const struct json *key = json_get(body, "idempotency_key");
    if (!key || key->type != JSON_NULL)
        return true;
    return body_refuse(problem, PROBLEM_KEY_INVALID, "/idempotency_key",
                       "\"idempotency_key\" is null; leave it out when there is no key");
}

static bool check_call(struct arena *arena, struct engine_call *call, int64_t now_ms, struct problem_document *problem)
{
    struct call *c = &call->call;
    if (c->not_before_ms < 0)
        c->not_before_ms = 0; /* before 1970: at once */
    if (!call->tool[0])
        return body_refuse(problem, PROBLEM_MALFORMED, "/tool", "\"tool\" is empty");
    if (c->arguments && c->arguments->type != JSON_OBJECT)
        return body_refuse(
            problem, PROBLEM_MALFORMED, "/arguments",
            arena_printf(arena, "\"arguments\" must be an object, got %s", json_type_name(c->arguments->type)));
    if (c->repeat_of && !operation_id_valid(c->repeat_of))
        return body_refuse(problem, PROBLEM_MALFORMED, "/repeat_of", "\"repeat_of\" must be an operation id (op_…)");
    if (c->not_before_ms > now_ms + UNITS_DURATION_MS_MAX)
        return body_refuse(problem, PROBLEM_MALFORMED, "/not_before", "\"not_before\" is more than ten years ahead");
    return true;
}

static bool merge_headers(struct arena *arena, const struct call_headers *headers, struct call *call,
                          struct problem_document *problem)
{
    call->trace = headers->traceparent.p ? call_traceparent(arena, headers->traceparent) : NULL;
    return merge_key(arena, headers->idempotency_key, &call->idempotency_key, problem) &&
           merge(arena, "Onced-Run-Id", headers->run_id, "run_id", &call->run, problem) &&
           merge(arena, "Onced-Step-Id", headers->step_id, "step_id", &call->step, problem) &&
           merge(arena, "Onced-Session-Id", headers->session_id, "session_id", &call->session, problem) &&
           merge(arena, "Onced-Call-Id", headers->call_id, "call_id", &call->call, problem);
}

/* call->begins and call->tool are set for guard mode, else nothing is. */
static bool read_members(struct arena *arena, struct str body, const struct call_headers *headers, int64_t now_ms,
                         struct engine_call *call, struct problem_document *problem)
{
    struct json *value;
    const struct json *distinct = NULL;
    int64_t wait_ms = -1;
    struct call *c = &call->call;
    call->wait_ms = -1;
    const struct body_member members[] = {
        {.name = call->begins ? "executor" : "tool",
         .type = BODY_TEXT,
         .out = call->begins ? &call->executor : &call->tool,
         .required = !call->begins},
        {.name = "arguments", .type = BODY_ANY, .out = &c->arguments},
        {.name = "idempotency_key", .type = BODY_TEXT, .out = &c->idempotency_key},
        {.name = "run_id", .type = BODY_TEXT, .out = &c->run},
        {.name = "step_id", .type = BODY_TEXT, .out = &c->step},
        {.name = "session_id", .type = BODY_TEXT, .out = &c->session},
        {.name = "call_id", .type = BODY_TEXT, .out = &c->call},
        {.name = "workflow", .type = BODY_TEXT, .out = &c->workflow},
        {.name = "repeat_of", .type = BODY_TEXT, .out = &c->repeat_of},
        {.name = "distinct_from", .type = BODY_ANY, .out = &distinct},
        {.name = "override_reason", .type = BODY_TEXT, .out = &c->override_reason},
        {.name = "wait_ms", .type = BODY_INT, .out = &wait_ms, .min = 0, .max = ENGINE_WAIT_MS_MAX},
        {.name = "not_before", .type = BODY_TIME, .out = &c->not_before_ms},
        {.name = "dry_run", .type = BODY_BOOL, .out = &call->dry_run},
    };
    return body_parse(arena, body, &value, problem) &&
           body_read(arena, value, members, sizeof members / sizeof *members, problem) && check_key(value, problem) &&
           read_distinct(distinct, arena, c, problem) && check_call(arena, call, now_ms, problem) &&
           merge_headers(arena, headers, c, problem) && apply_prefer(headers->prefer, wait_ms, call, problem);
}

bool call_body_read(struct arena *arena, struct str body, const struct call_headers *headers, int64_t now_ms,
                    struct engine_call *call, struct problem_document *problem)
{
    *call = (struct engine_call){.begins = false};
    return read_members(arena, body, headers, now_ms, call, problem);
}

bool guard_body_read(struct arena *arena, struct str body, const struct call_headers *headers, const char *tool,
                     struct engine_call *call, struct problem_document *problem)
{
    *call = (struct engine_call){.begins = true, .tool = tool};
    if (!read_members(arena, body, headers, 0, call, problem))
        return false;
    if (call->async || call->call.not_before_ms > 0)
        return body_refuse(problem, PROBLEM_MALFORMED, call->async ? NULL : "/not_before",
                           "who begins performs it now: neither respond-async nor not_before can be meant");
    return true;
}
