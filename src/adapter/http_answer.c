/* What an answer means, by the provider's contract and the tool's response section (design 5.3, 5.4, 6). Once a byte
 * has left, nothing in here ends as an ordinary error: what cannot be read or judged is an outcome that is not known.
 *
 *   not sent ────────────────────────────► not_sent
 *   no whole answer ─────────────────────► timeout | connection_lost | unreadable
 *   status (+ code, + condition),
 *   the first list that has it ──────────► noop | refused | not_processed | key_in_use | provider_error
 *      │ accepted, success
 *      └► readable? error_when, success_when, external id, result, verify ──► accepted | success | wrong_object | …
 */
#include "adapter/http_parts.h"

#include <stdlib.h>
#include <strings.h>

struct judge {
    const struct http_tool *tool;
    const struct http_provider *provider;
    const struct http_message *message;
    const struct http_reply *reply;
    struct arena *arena;
    struct adapter_answer *answer;
    bool parsed;       /* an attempt was made */
    struct json *body; /* NULL: not JSON */
    struct err body_error;
    struct str code;   /* the provider's error code */
    struct err broken; /* a condition could not be evaluated */
};

/* ---- reading ---- */

struct json *http_parse_answer(const struct http_provider *provider, struct arena *arena, struct str body,
                               struct err *err)
{
    struct json_limits limits = json_limits_default;
    struct json *value = NULL;
    limits.bytes_max = provider->answer_bytes_max;
    return json_parse(arena, body, &limits, &value, err) == ERR_NONE ? value : NULL;
}

static void parse(struct judge *j)
{
    if (j->parsed)
        return;
    j->parsed = true;
    if (j->reply->end != HTTP_END_COMPLETE || j->reply->body.n == 0)
        err_set(&j->body_error, ERR_INVALID, "the answer is empty");
    else
        j->body = http_parse_answer(j->provider, j->arena, j->reply->body, &j->body_error);
    if (j->body)
        j->code = http_error_code(j->provider, j->body);
}

struct str http_error_code(const struct http_provider *provider, const struct json *body)
{
    const struct json *code = body ? json_pointer_get(body, str_of(provider->error_code)) : NULL;
    return code && (code->type == JSON_STRING || code->type == JSON_NUMBER) ? code->text : STR_NONE;
}

const char *http_id_text(struct arena *arena, const struct json *value)
{
    bool good = value && (value->type == JSON_STRING || value->type == JSON_NUMBER) && value->text.n > 0 &&
                !memchr(value->text.p, 0, value->text.n);
    return good ? arena_copy_str(arena, value->text) : NULL;
}

enum err_code http_extract_run(const struct http_extract *extract, const struct json *value, struct arena *arena,
                               const struct json **out, struct err *err)
{
    struct json *result = NULL;
    *out = NULL;
    if (extract->jq) {
        enum err_code code = jq_program_run(extract->jq, arena, value, NULL, &result, err);
        *out = result;
        return code;
    }
    if (!extract->pointer)
        return ERR_NONE;
    *out = json_pointer_get(value, str_of(extract->pointer));
    return *out ? ERR_NONE : err_set(err, ERR_INVALID, "the answer has no %s", extract->pointer);
}

/* ---- statuses ---- */

const struct http_status *http_statuses_match(const struct http_statuses *statuses, int status, struct str code,
                                              const struct json *body, struct err *broken)
{
    for (size_t i = 0; i < statuses->count; i++) {
        const struct http_status *item = &statuses->items[i];
        if (item->status != status || (item->code && !(code.p && str_is(code, item->code))))
            continue;
        if (!item->when)
            return item;
        bool holds = false;
        if (body && jq_program_test(item->when, body, &holds, broken) == ERR_NONE && holds)
            return item;
    }
    return NULL;
}

static bool is_in(struct judge *j, const struct http_statuses *statuses)
{
    for (size_t i = 0; i < statuses->count; i++) {
        if (statuses->items[i].status == j->reply->status && (statuses->items[i].code || statuses->items[i].when))
            parse(j);
    }
    return http_statuses_match(statuses, j->reply->status, j->code, j->body, &j->broken) != NULL;
}

static bool is_success(struct judge *j)
{
    int status = j->reply->status;
    if (j->tool->response.success_default)
        return status >= 200 && status <= 299 && status != 202;
    return is_in(j, &j->tool->response.success);
}

/* The order matters: what a tool says about a status is more special than what its provider says. */
static enum outcome classify(struct judge *j)
{
    const struct http_response *response = &j->tool->response;
    if (is_in(j, &response->noop))
        return OUTCOME_NOOP;
    if (is_in(j, &response->refused))
        return OUTCOME_REFUSED;
    if (is_in(j, &response->not_processed))
        return OUTCOME_NOT_PROCESSED;
    if (is_in(j, &j->provider->in_use))
        return OUTCOME_KEY_IN_USE;
    if (is_in(j, &j->provider->mismatch))
        return OUTCOME_PROVIDER_ERROR;
    if (is_in(j, &response->accepted))
        return OUTCOME_ACCEPTED;
    if (is_success(j))
        return OUTCOME_SUCCESS;
    if (is_in(j, &j->provider->not_processed))
        return OUTCOME_NOT_PROCESSED;
    if (is_in(j, &j->provider->no_effect))
        return OUTCOME_REFUSED;
    return OUTCOME_PROVIDER_ERROR;
}

/* ---- what is handed on ---- */

/* {"message", "code"?, "provider"?}; the provider's whole answer is its error object. */
static struct str error_text(struct judge *j, const char *fallback)
{
    struct buf buf;
    struct json_out out;
    const struct json *message = j->body ? json_pointer_get(j->body, str_of(j->provider->error_message)) : NULL;
    buf_init(&buf, 0);
    json_out_init(&out, &buf);
    json_out_object(&out);
    json_out_name(&out, "message");
    if (message && message->type == JSON_STRING && message->text.n > 0 && message->text.n <= HTTP_ERROR_BYTES_MAX)
        json_out_str(&out, message->text);
    else
        json_out_text(&out, fallback);
    if (j->code.p && j->code.n <= HTTP_ERROR_BYTES_MAX) {
        json_out_name(&out, "code");
        json_out_str(&out, j->code);
    }
    if (j->body && j->reply->body.n <= HTTP_ERROR_BYTES_MAX) {
        json_out_name(&out, "provider");
        json_out_value(&out, j->body);
    }
    json_out_end_object(&out);
    struct str text = arena_str(j->arena, buf_str(&buf));
    buf_release(&buf);
    return text;
}

static void set_error(struct judge *j, const char *text)
{
    parse(j);
    j->answer->error = error_text(j, text);
    if (!j->answer->detail)
        j->answer->detail = text;
}

void http_add_lossy(struct buf *out, struct str bytes)
{
    const unsigned char *p = (const unsigned char *)bytes.p, *end = p + bytes.n;
    while (p < end) {
        size_t n = *p < 0x80                 ? 1
                   : *p >= 0xc2 && *p < 0xe0 ? 2
                   : *p >= 0xe0 && *p < 0xf0 ? 3
                   : *p >= 0xf0 && *p < 0xf5 ? 4
                                             : 0;
        bool good = n > 0 && (size_t)(end - p) >= n;
        for (size_t i = 1; good && i < n; i++)
            good = (p[i] & 0xc0) == 0x80;
        /* overlong forms, surrogates and what lies beyond U+10FFFF */
        good = good && !(p[0] == 0xe0 && p[1] < 0xa0) && !(p[0] == 0xed && p[1] > 0x9f) &&
               !(p[0] == 0xf0 && p[1] < 0x90) && !(p[0] == 0xf4 && p[1] > 0x8f);
        if (good)
            buf_add(out, (const char *)p, n);
        else
            buf_add_text(out, "\xef\xbf\xbd");
        p += good ? n : 1;
    }
}

/* response.body any: what is not JSON is wrapped. */
static const struct json *wrap_text(struct judge *j)
{
    struct buf text;
    buf_init(&text, 0);
    http_add_lossy(&text, j->reply->body);
    struct json *object = json_object(j->arena);
    json_set(j->arena, object, STR("text"), json_string(arena_str(j->arena, buf_str(&text))));
    buf_release(&text);
    return object;
}

static struct str trim(struct str text)
{
    while (text.n > 0 && strchr(" \t\r\n", text.p[0])) {
        text.p++;
        text.n--;
    }
    while (text.n > 0 && strchr(" \t\r\n", text.p[text.n - 1]))
        text.n--;
    return text;
}

/* ---- definite answers other than success ---- */

static void judge_noop(struct judge *j)
{
    const struct http_response *response = &j->tool->response;
    const struct json *value = NULL;
    struct err ignored = {0};
    parse(j);
    if (!j->body)
        return;
    /* it is a status that says "already so": what the answer holds besides is a bonus */
    if (http_extract_run(&response->external_id, j->body, j->arena, &value, &ignored) == ERR_NONE)
        j->answer->external_id = http_id_text(j->arena, value);
    if (http_extract_run(&response->result, j->body, j->arena, &value, &ignored) == ERR_NONE && value)
        j->answer->result = json_to_text(j->arena, value);
}

static int64_t retry_after_ms(const char *text, int64_t now_ms)
{
    if (!text)
        return 0;
    while (*text == ' ')
        text++;
    size_t digits = strspn(text, "0123456789");
    int64_t ms;
    if (digits > 0) {
        ms = digits > 9 ? HTTP_RETRY_AFTER_MS_MAX : (int64_t)strtol(text, NULL, 10) * 1000;
    } else {
        int64_t at = curl_getdate(text, NULL); /* seconds, of whatever year the provider likes */
        int64_t far = now_ms / 1000 + HTTP_RETRY_AFTER_MS_MAX / 1000 + 1;
        ms = at < 0 ? 0 : at > far ? HTTP_RETRY_AFTER_MS_MAX : at * 1000 - now_ms;
    }
    return ms < 0 ? 0 : ms > HTTP_RETRY_AFTER_MS_MAX ? HTTP_RETRY_AFTER_MS_MAX : ms;
}

/* ---- success and accepted ---- */

static void unreadable(struct judge *j, const char *detail)
{
    j->answer->outcome = OUTCOME_UNREADABLE;
    j->answer->detail = detail;
    j->answer->result = STR_NONE;
    j->answer->error = error_text(j, detail);
}

static bool is_json_type(const char *type)
{
    if (!type)
        return false;
    size_t n = strcspn(type, "; \t");
    return (n == 16 && strncasecmp(type, "application/json", 16) == 0) ||
           (n > 5 && strncasecmp(type, "application/", 12) == 0 && strncasecmp(type + n - 5, "+json", 5) == 0);
}

/* Whether the body can be used; else judged unreadable. An answer that has no body by definition (204) is null. */
static bool read_body(struct judge *j)
{
    static const struct json none = {.type = JSON_NULL};
    const struct http_response *response = &j->tool->response;
    parse(j);
    if (j->body)
        return true;
    if (j->reply->end == HTTP_END_OVERSIZE) {
        unreadable(j, j->reply->detail);
        return false;
    }
    if (j->reply->status == 204 || j->reply->status == 205)
        j->body = (struct json *)&none; /* never written to */
    else if (response->body == HTTP_ANSWER_ANY)
        j->body = (struct json *)wrap_text(j);
    else
        unreadable(j, arena_printf(j->arena, "the answer is not JSON: %s", j->body_error.text));
    return j->body != NULL;
}

const struct http_expected *http_mismatch(const struct http_expected *expected, size_t count, const struct json *value,
                                          const struct json **got)
{
    for (size_t i = 0; i < count; i++) {
        *got = value ? json_pointer_get(value, str_of(expected[i].pointer)) : NULL;
        if (!*got || !json_equal(*got, expected[i].value))
            return &expected[i];
    }
    return NULL;
}

static void add_short(struct buf *buf, const struct json *value)
{
    size_t start = buf->n;
    if (!value) {
        buf_add_text(buf, "nothing");
        return;
    }
    json_write(buf, value);
    if (buf->n - start > 100) { /* cut between characters */
        size_t n = start + 100;
        while (n > start && ((unsigned char)buf->p[n] & 0xc0) == 0x80)
            n--;
        buf->n = n;
        buf_add_text(buf, "…");
    }
}

const char *http_mismatch_text(struct arena *arena, const struct http_expected *expected, const struct json *got)
{
    struct buf buf;
    buf_init(&buf, 0);
    buf_printf(&buf, "%s: expected ", *expected->pointer ? expected->pointer : "the answer");
    add_short(&buf, expected->value);
    buf_add_text(&buf, ", got ");
    add_short(&buf, got);
    const char *text = arena_copy_str(arena, buf_str(&buf));
    buf_release(&buf);
    return text;
}

static bool conditions_hold(struct judge *j, enum outcome outcome)
{
    const struct http_response *response = &j->tool->response;
    struct err err = {0};
    bool truth = false;
    if (response->error_when && jq_program_test(response->error_when, j->body, &truth, &err) != ERR_NONE) {
        unreadable(j, arena_printf(j->arena, "error_when: %s", err.text));
        return false;
    }
    if (response->error_when && truth) {
        j->answer->outcome = OUTCOME_PROVIDER_ERROR;
        set_error(j, "the answer is an error in spite of its status (error_when)");
        return false;
    }
    if (!response->success_when || outcome != OUTCOME_SUCCESS)
        return true;
    if (jq_program_test(response->success_when, j->body, &truth, &err) != ERR_NONE)
        unreadable(j, arena_printf(j->arena, "success_when: %s", err.text));
    else if (!truth)
        unreadable(j, "the answer is not what success_when promises");
    return err.code == ERR_NONE && truth;
}

static bool verify(struct judge *j, enum outcome outcome)
{
    const struct json *got = NULL;
    for (size_t i = 0; i < j->message->verify_count; i++) {
        const struct http_expected *item = &j->message->verify[i];
        if (!http_mismatch(item, 1, j->body, &got))
            continue;
        /* "accepted" is provisional: what it does not show yet is no contradiction */
        if (!got && outcome == OUTCOME_ACCEPTED)
            continue;
        j->answer->outcome = OUTCOME_WRONG_OBJECT;
        j->answer->result = STR_NONE;
        j->answer->detail = http_mismatch_text(j->arena, item, got);
        j->answer->error = error_text(j, j->answer->detail);
        return false;
    }
    return true;
}

static void take_values(struct judge *j, enum outcome outcome)
{
    const struct http_response *response = &j->tool->response;
    const struct json *id = NULL, *result = NULL;
    struct err err = {0};
    bool strict = outcome == OUTCOME_SUCCESS;
    enum err_code code = http_extract_run(&response->external_id, j->body, j->arena, &id, &err);
    j->answer->external_id = http_id_text(j->arena, id);
    if (strict && (response->external_id.pointer || response->external_id.jq) && !j->answer->external_id) {
        unreadable(j, arena_printf(j->arena, "external_id: %s", code ? err.text : "is no text or number"));
        return;
    }
    err_clear(&err);
    bool whole = response->result.pointer && *response->result.pointer == '\0';
    if (whole && j->body_error.code == ERR_NONE) { /* as the provider wrote it, byte for byte */
        j->answer->result = trim(j->reply->body);
        return;
    }
    code = http_extract_run(&response->result, j->body, j->arena, &result, &err);
    if (code == ERR_NONE && result)
        j->answer->result = json_to_text(j->arena, result);
    else if (strict && code != ERR_NONE)
        unreadable(j, arena_printf(j->arena, "result: %s", err.text));
}

static void judge_success(struct judge *j, enum outcome outcome)
{
    const struct http_response *response = &j->tool->response;
    if (response->insist_type && !is_json_type(j->reply->content_type)) {
        unreadable(j, "the answer's content type is not application/json");
        return;
    }
    if (response->body == HTTP_ANSWER_NONE || !read_body(j) || !conditions_hold(j, outcome))
        return;
    /* the id helps to find out what that object is, also when it is the wrong one */
    take_values(j, outcome);
    if (j->answer->outcome == outcome)
        verify(j, outcome);
}

/* ---- the whole ---- */

static const char *status_text(struct judge *j, const char *meaning)
{
    return arena_printf(j->arena, "the provider answered %d%s%s", j->reply->status, *meaning ? ": " : "", meaning);
}

static void judge_status(struct judge *j, int64_t now_ms)
{
    enum outcome outcome = classify(j);
    struct adapter_answer *answer = j->answer;
    answer->outcome = outcome;
    if (j->broken.code != ERR_NONE && outcome != OUTCOME_PROVIDER_ERROR) {
        /* a condition that might have said otherwise could not be evaluated */
        unreadable(j, arena_printf(j->arena, "when: %s", j->broken.text));
        return;
    }
    switch ((int)outcome) {
    case OUTCOME_NOOP: judge_noop(j); break;
    case OUTCOME_SUCCESS:
    case OUTCOME_ACCEPTED: judge_success(j, outcome); break;
    case OUTCOME_NOT_PROCESSED:
        answer->retry_after_ms = retry_after_ms(j->reply->retry_after, now_ms);
        set_error(j, status_text(j, "not processed"));
        break;
    case OUTCOME_KEY_IN_USE:
        answer->retry_after_ms = retry_after_ms(j->reply->retry_after, now_ms);
        set_error(j, status_text(j, "a request with this key is still running"));
        break;
    case OUTCOME_PROVIDER_ERROR:
        answer->retry_after_ms = retry_after_ms(j->reply->retry_after, now_ms);
        set_error(j, status_text(j, is_in(j, &j->provider->mismatch) ? "same key, other parameters" : ""));
        break;
    default: set_error(j, status_text(j, "")); break;
    }
}

static void judge_transport(struct judge *j)
{
    struct adapter_answer *answer = j->answer;
    switch (j->reply->end) {
    case HTTP_END_COMPLETE:
    case HTTP_END_UNREADABLE:
    case HTTP_END_OVERSIZE: answer->outcome = OUTCOME_UNREADABLE; break;
    case HTTP_END_TIMEOUT: answer->outcome = OUTCOME_TIMEOUT; break;
    case HTTP_END_LOST: answer->outcome = OUTCOME_CONNECTION_LOST; break;
    }
    answer->error = error_text(j, j->reply->detail ? j->reply->detail : "no answer");
}

/* An answer that was cut short proves nothing, not even by its status; one that is merely larger than we want to read
 * does. */
static bool has_usable_status(const struct http_reply *reply)
{
    return reply->status >= 100 && (reply->end == HTTP_END_COMPLETE || reply->end == HTTP_END_OVERSIZE);
}

void http_judge(const struct http_tool *tool, const struct http_message *message, const struct http_reply *reply,
                struct arena *arena, int64_t now_ms, struct adapter_answer *answer)
{
    struct judge j = {
        .tool = tool, .provider = tool->provider, .message = message, .reply = reply, .arena = arena, .answer = answer};
    *answer = (struct adapter_answer){
        .outcome = OUTCOME_OPEN, .http_status = reply->status, .provider_request_id = reply->request_id};
    if (!reply->sent) {
        answer->outcome = OUTCOME_NOT_SENT;
        answer->detail = reply->detail;
        answer->error = error_text(&j, reply->detail ? reply->detail : "not sent");
    } else if (message->kind == ATTEMPT_LOOKUP) {
        http_judge_lookup(tool, message, reply, arena, answer);
    } else if (!has_usable_status(reply)) {
        answer->detail = reply->detail;
        judge_transport(&j);
    } else {
        judge_status(&j, now_ms);
    }
}
