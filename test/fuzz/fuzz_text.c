/* Small texts from outside, one parser per first byte: headers, times, units, ids, escapes, pointers. What is read is
 * within the bounds that its header promises; what is refused says why. */
#include "fuzz.h"

#include "base/ulid.h"
#include "base/units.h"
#include "core/currency.h"
#include "core/identity.h"
#include "core/timestamp.h"
#include "door/exchange.h"
#include "support/http_case.h"

#define NOW_MS INT64_C(1790000000000)

/* see fuzz_answer.c */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:libjq";
}

static void try_key_header(struct arena *arena, struct str text)
{
    struct err err = {0};
    const char *key = NULL;
    enum err_code code = identity_parse_header(text, arena, &key, &err);
    CHECK(code == ERR_NONE || (code == ERR_INVALID && err.text[0] && !key));
    if (code)
        return;
    size_t n = strlen(key);
    CHECK(n > 0 && n <= OPERATION_KEY_BYTES_MAX && n <= text.n);
    for (const char *p = key; *p; p++)
        CHECK((unsigned char)*p >= 0x20 && *p != 0x7f);
    struct buf quoted; /* the quoted form of what was read is read as the same */
    buf_init(&quoted, 0);
    buf_add_char(&quoted, '"');
    for (const char *p = key; *p; p++) {
        if (*p == '"' || *p == '\\')
            buf_add_char(&quoted, '\\');
        buf_add_char(&quoted, *p);
    }
    buf_add_char(&quoted, '"');
    const char *again = NULL;
    CHECK(identity_parse_header(buf_str(&quoted), arena, &again, &err) == ERR_NONE && strcmp(again, key) == 0);
    buf_release(&quoted);
}

static void try_duration(struct arena *arena, struct str text)
{
    struct err err = {0};
    int64_t ms = -1;
    (void)arena;
    if (units_duration_ms(text, &ms, &err) == ERR_NONE)
        CHECK(ms >= 0 && ms <= UNITS_DURATION_MS_MAX);
    else
        CHECK(ms == -1 && err.code == ERR_INVALID && err.text[0]);
}

static void try_bytes(struct arena *arena, struct str text)
{
    struct err err = {0};
    size_t bytes = 1;
    (void)arena;
    if (units_bytes(text, &bytes, &err))
        CHECK(bytes == 1 && err.code == ERR_INVALID && err.text[0]);
}

/* UTC once is UTC for ever. */
static void try_timestamp(struct arena *arena, struct str text)
{
    struct buf utc, again;
    (void)arena;
    buf_init(&utc, 0);
    buf_init(&again, 0);
    if (timestamp_to_utc(&utc, text)) {
        CHECK(utc.n >= 20 && utc.p[utc.n - 1] == 'Z');
        CHECK(timestamp_to_utc(&again, buf_str(&utc)) && str_equal(buf_str(&again), buf_str(&utc)));
    }
    buf_release(&utc);
    buf_release(&again);
}

static void try_currency(struct arena *arena, struct str text)
{
    (void)arena;
    int digits = currency_digits(text);
    CHECK(digits >= -1 && digits <= 4 && (digits < 0 || text.n == 3));
}

static void try_id(struct arena *arena, struct str text)
{
    const char *id = arena_copy_str(arena, text);
    if (!operation_id_valid(id))
        return;
    CHECK(strlen(id) == OPERATION_ID_SIZE - 1 && ulid_valid(id + 3));
    int64_t ms = ulid_time_ms(id + 3);
    CHECK(ms >= 0 && ms < INT64_C(1) << 48);
}

static void try_pointer(struct arena *arena, struct str text)
{
    static const char document[] = "{\"a\":{\"b/c\":[1,{\"~\":null}],\"\":{\"\":2}},\"d\":\"e\"}";
    struct json *value;
    struct err err = {0};
    CHECK(json_parse(arena, str_of(document), NULL, &value, &err) == ERR_NONE);
    if (json_pointer_get(value, text))
        CHECK(json_pointer_valid(text));
    const char *pointer = arena_copy_str(arena, text);
    bool whole = strlen(pointer) == text.n && text.n > 0;
    bool there = whole && json_pointer_get(value, text);
    json_pointer_remove(value, pointer);
    struct buf out;
    buf_init(&out, 0);
    json_write(&out, value); /* still a value */
    CHECK(json_parse(arena, buf_str(&out), NULL, &value, &err) == ERR_NONE);
    if (there && text.p[text.n - 1] != '/' && !memchr(text.p, '[', text.n))
        CHECK(out.n <= sizeof document);
    buf_release(&out);
}

static void try_escapes(struct arena *arena, struct str text)
{
    struct str out;
    if (exchange_unescape(arena, text, &out))
        CHECK(out.n <= text.n && strlen(out.p) <= out.n);
}

/* Answer headers: Retry-After, the content type. */
static void try_answer_headers(struct arena *arena, struct str text)
{
    static const char provider[] = "{\"base_url\":\"http://127.0.0.1:1\",\"not_processed\":[429]}";
    static struct http_case c;
    static const int statuses[] = {429, 200, 503};
    if (!c.tool)
        http_case_init(&c, provider, "{\"request\":{\"path\":\"/\"}}", CLASS_EXTERNAL_IDEMPOTENT);
    struct http_message message;
    struct adapter_answer answer;
    struct err err = {0};
    const char *header = arena_copy_str(arena, text);
    http_message_init(&message, arena);
    CHECK(http_message_build(&message, c.tool, &c.call, &err) == ERR_NONE);
    for (size_t i = 0; i < 3; i++) {
        struct http_reply reply = {.sent = true, .status = statuses[i], .body = STR("{}"), .retry_after = header};
        reply.content_type = header;
        http_judge(c.tool, &message, &reply, arena, NOW_MS, &answer);
        CHECK(answer.retry_after_ms >= 0 && answer.retry_after_ms <= HTTP_RETRY_AFTER_MS_MAX);
        CHECK(statuses[i] != 429 || answer.outcome == OUTCOME_NOT_PROCESSED);
        CHECK(statuses[i] != 503 || answer.outcome == OUTCOME_PROVIDER_ERROR);
    }
    http_message_release(&message);
}

static void try_names(struct arena *arena, struct str text)
{
    enum state state;
    enum reason reason;
    enum outcome outcome;
    enum tool_class class;
    enum role role;
    (void)arena;
    if (state_from_name(text, &state))
        CHECK(str_is(text, state_name(state)));
    if (reason_from_name(text, &reason))
        CHECK(str_is(text, reason_name(reason)));
    if (outcome_from_name(text, &outcome))
        CHECK(str_is(text, outcome_name(outcome)));
    if (tool_class_from_name(text, &class))
        CHECK(str_is(text, tool_class_name(class)));
    if (role_from_name(text, &role))
        CHECK(str_is(text, role_name(role)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void (*const parsers[])(struct arena *, struct str) = {
        try_key_header, try_duration, try_bytes,   try_timestamp,      try_currency,
        try_id,         try_pointer,  try_escapes, try_answer_headers, try_names,
    };
    struct arena arena;
    if (size == 0)
        return 0;
    arena_init(&arena);
    parsers[(data[0] - '0') % (sizeof parsers / sizeof *parsers)](&arena,
                                                                  (struct str){(const char *)data + 1, size - 1});
    arena_release(&arena);
    return 0;
}
