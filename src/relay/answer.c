#include "relay/answer.h"

#include "base/json.h"

#include <stdarg.h>
#include <stdio.h>

#define PROBLEM_PREFIX "urn:onced:problem:"
#define DEPTH_MAX      64 /* the gateway's own limits */
#define VALUES_MAX     100000
#define ANSWER_DEPTH   200
#define ANSWER_VALUES  2000000

static const char *const terminal[] = {"completed_success", "completed_noop", "failed_permanent",
                                       "rejected",          "compensated",    NULL};

static bool is_one_of(const char *text, const char *const *list)
{
    for (size_t i = 0; list[i]; i++)
        if (strcmp(text, list[i]) == 0)
            return true;
    return false;
}

static void copy_short(char *out, size_t size, struct str text)
{
    size_t n = text.n < size ? text.n : 0; /* one that does not fit is none of ours */
    memcpy(out, text.n ? text.p : "", n);
    out[n] = '\0';
}

/* Cut at a character's border; what a database could refuse in a text becomes a space. */
static void copy_words(char out[RELAY_PROBLEM_BYTES], struct str text)
{
    size_t n = text.n < RELAY_PROBLEM_BYTES ? text.n : RELAY_PROBLEM_BYTES - 1;
    while (n > 0 && n < text.n && ((unsigned char)text.p[n] & 0xc0) == 0x80)
        n--;
    for (size_t i = 0; i < n; i++)
        out[i] = (unsigned char)text.p[i] < ' ' || text.p[i] == 0x7f ? ' ' : text.p[i];
    out[n] = '\0';
}

void relay_refuse(struct relay_verdict *out, const char *format, ...)
{
    char text[RELAY_PROBLEM_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    *out = (struct relay_verdict){.outcome = RELAY_REFUSED};
    copy_words(out->problem, str_of(text));
}

/* The state decides, not the HTTP status: whoever asks again gets 200 for what was 201. */
static void judge_state(struct str operation, struct str status, struct relay_verdict *out)
{
    out->suspect = false;
    copy_short(out->operation, sizeof out->operation, operation);
    copy_short(out->status, sizeof out->status, status);
    out->outcome = is_one_of(out->status, terminal) ? RELAY_ENDED : RELAY_ADMITTED;
    out->failed = strcmp(out->status, "failed_permanent") == 0 || strcmp(out->status, "rejected") == 0;
    if (out->operation[0])
        return;
    *out = (struct relay_verdict){.outcome = RELAY_LATER, .suspect = true};
    copy_words(out->problem, STR("the answer names no operation: is that a gateway of onced?"));
}

static void judge_operation(const struct json *body, struct relay_verdict *out)
{
    judge_state(json_get_text(body, "operation_id"), json_get_text(body, "status"), out);
    const struct json *error = json_get(body, "error");
    struct str message = error ? json_get_text(error, "message") : STR_NONE;
    if (out->failed && message.p)
        copy_words(out->problem, message);
    else if (out->failed)
        copy_words(out->problem, json_get_text(body, "reason"));
}

/* Too long to be kept: the head alone tells. 201 is the first answer of a call that succeeded. */
static void judge_head(const struct relay_answer *answer, struct relay_verdict *out)
{
    judge_state(answer->operation, answer->status == 201 ? STR("completed_success") : STR_NONE, out);
}

static void add_part(struct buf *out, const char *before, struct str text, size_t bytes_max, const char *after)
{
    buf_add_text(out, before);
    buf_add(out, text.n ? text.p : "", text.n < bytes_max ? text.n : bytes_max);
    buf_add_text(out, after);
}

/* "NAME: detail", and where it is about arguments the first one's pointer and message. */
static void problem_words(struct str name, const struct json *body, struct relay_verdict *out)
{
    struct buf text;
    struct str detail = json_get_text(body, "detail");
    const struct json *errors = json_get(body, "errors");
    buf_init(&text, 0);
    add_part(&text, "", name, 100, "");
    if (detail.n)
        add_part(&text, ": ", detail, RELAY_PROBLEM_BYTES, "");
    if (errors && errors->type == JSON_ARRAY && errors->count > 0) {
        add_part(&text, " (", json_get_text(&errors->items[0], "pointer"), 200, ": ");
        add_part(&text, "", json_get_text(&errors->items[0], "message"), 500, ")");
    }
    copy_words(out->problem, buf_str(&text));
    buf_release(&text);
}

/* Only what onced itself says is a refusal: a proxy's page is no word about the row. */
static void judge_problem(struct str name, const struct json *body, struct relay_verdict *out)
{
    static const char *const passing[] = {"entity_busy", "in_doubt", "budget", "internal", NULL};
    static const char *const known[] = {"result_expired", "result_not_shared", NULL};
    char short_name[40];
    copy_short(short_name, sizeof short_name, name);
    problem_words(name, body, out);
    out->suspect = false;
    out->retry_after_ms = json_get_int(body, "retry_after_ms", out->retry_after_ms);
    if (strcmp(short_name, "unavailable") == 0)
        out->outcome = RELAY_AWAY;
    else if (strcmp(short_name, "unauthorized") == 0)
        out->outcome = RELAY_UNAUTHORIZED;
    else if (is_one_of(short_name, passing))
        out->outcome = RELAY_LATER;
    else if (is_one_of(short_name, known) && json_get_text(body, "operation_id").p)
        judge_state(json_get_text(body, "operation_id"), json_get_text(body, "operation_status"), out);
    else
        out->outcome = RELAY_REFUSED;
}

static void judge_body(const struct relay_answer *answer, const struct json *body, struct relay_verdict *out)
{
    struct str type = json_get_text(body, "type");
    size_t prefix = sizeof PROBLEM_PREFIX - 1;
    bool success = answer->status >= 200 && answer->status < 300;
    if (success && json_get(body, "operation_id"))
        judge_operation(body, out);
    else if (!success && type.n > prefix && memcmp(type.p, PROBLEM_PREFIX, prefix) == 0)
        judge_problem((struct str){type.p + prefix, type.n - prefix}, body, out);
    else
        snprintf(out->problem, sizeof out->problem, "HTTP %ld that is not onced's", answer->status);
}

void relay_judge(const struct relay_answer *answer, struct relay_verdict *out)
{
    static const struct json_limits limits = {SIZE_MAX, ANSWER_DEPTH, ANSWER_VALUES};
    struct arena arena;
    struct json *body;
    *out = (struct relay_verdict){.outcome = RELAY_LATER, .suspect = true, .retry_after_ms = answer->retry_after_ms};
    if (answer->over && answer->status < 300) {
        judge_head(answer, out);
        return;
    }
    arena_init(&arena);
    if (!answer->over && json_parse(&arena, answer->body, &limits, &body, NULL) == ERR_NONE)
        judge_body(answer, body, out);
    else
        snprintf(out->problem, sizeof out->problem, "HTTP %ld without JSON", answer->status);
    arena_release(&arena);
}

bool relay_arguments_fit(const char *text, size_t bytes, size_t bytes_max, struct relay_verdict *out)
{
    const struct json_limits limits = {bytes_max, DEPTH_MAX, VALUES_MAX};
    struct arena arena;
    struct json *value;
    struct err err = {0};
    bool fits = true;
    if (bytes > bytes_max) {
        relay_refuse(out, "the arguments have %zu bytes, the relay takes %zu", bytes, bytes_max);
        return false;
    }
    if (!text)
        return true;
    arena_init(&arena);
    if (json_parse(&arena, (struct str){text, bytes}, &limits, &value, &err)) {
        relay_refuse(out, "the arguments cannot be sent: %s", err.text);
        fits = false;
    } else if (value->type != JSON_OBJECT) {
        relay_refuse(out, "the arguments are %s, expected an object", json_type_name(value->type));
        fits = false;
    }
    arena_release(&arena);
    return fits;
}
