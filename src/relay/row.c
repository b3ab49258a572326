#include "relay/row.h"

#include "base/json.h"

#include <stdio.h>
#include <string.h>

#define AGAIN_FIRST_MS INT64_C(200)
#define AGAIN_MAX_MS   INT64_C(300000)
#define LOOK_FIRST_MS  INT64_C(200)
#define LOOK_MAX_MS    INT64_C(30000)
#define SESSION_MAX    256 /* bytes of session_id that a gateway takes */

int64_t relay_doubled(int64_t first_ms, int64_t times, int64_t max_ms)
{
    int64_t ms = times < 20 ? first_ms << times : max_ms;
    return ms < max_ms ? ms : max_ms;
}

/* It becomes a header. */
static bool tenant_fits(const char *tenant)
{
    size_t n = strlen(tenant);
    for (size_t i = 0; i < n; i++)
        if (tenant[i] <= ' ' || tenant[i] > '~')
            return false;
    return n > 0 && n <= 128;
}

/* It becomes a part of a path. */
static bool operation_fits(const char *operation)
{
    size_t n = strlen(operation);
    return n > 0 && n < RELAY_OPERATION_BYTES &&
           strspn(operation, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_") == n;
}

bool relay_row_fits(struct relay_row *row, const struct relay_settings *settings)
{
    if (row->tenant && !tenant_fits(row->tenant)) {
        relay_refuse(&row->verdict, "the tenant is not 1 to 128 visible ASCII characters");
        return false;
    }
    if (row->operation && !operation_fits(row->operation)) {
        relay_refuse(&row->verdict, "operation_id is none of onced's: was it changed?");
        row->verdict.outcome = RELAY_LATER; /* it was sent: nobody knows that it is refused */
        return false;
    }
    if (row->operation)
        return true;
    if (!row->tool || !row->tool[0]) {
        relay_refuse(&row->verdict, "the row names no tool");
        return false;
    }
    return relay_arguments_fit(row->arguments, row->arguments_bytes, settings->arguments_bytes_max, &row->verdict);
}

/* The session stands for the row alone: what is in doubt of another row holds nothing up (design 2.9), since two rows
 * are two intents. */
void relay_row_write_call(const struct relay_row *row, const struct relay_settings *settings, struct buf *out)
{
    struct json_out json;
    struct buf key;
    buf_init(&key, 0);
    buf_printf(&key, "outbox:%s:%s", settings->name, row->id);
    json_out_init(&json, out);
    json_out_object(&json);
    json_out_member_text(&json, "tool", row->tool);
    json_out_name(&json, "arguments");
    json_out_raw(&json, row->arguments ? (struct str){row->arguments, row->arguments_bytes} : STR("{}"));
    json_out_member_text(&json, "idempotency_key", key.p);
    if (key.n <= SESSION_MAX)
        json_out_member_text(&json, "session_id", key.p);
    json_out_member_text(&json, "run_id", row->run_id);
    json_out_member_int(&json, "wait_ms", settings->wait_ms);
    json_out_end_object(&json);
    buf_release(&key);
}

bool relay_row_lets_next_go(const struct relay_row *row, const struct relay_settings *settings)
{
    switch (row->verdict.outcome) {
    case RELAY_ADMITTED: return settings->order == RELAY_AFTER_ADMISSION;
    case RELAY_ENDED: return !row->verdict.failed || settings->on_refusal == RELAY_SKIP;
    case RELAY_REFUSED: return settings->on_refusal == RELAY_SKIP;
    case RELAY_LATER:
    case RELAY_AWAY:
    case RELAY_UNAUTHORIZED: break;
    }
    return false;
}

int64_t relay_row_delay_ms(const struct relay_row *row)
{
    bool admitted = row->verdict.outcome == RELAY_ADMITTED || row->operation;
    int64_t times = row->verdict.outcome == RELAY_ADMITTED && !row->operation ? 0 : row->attempts;
    int64_t ms = admitted ? relay_doubled(LOOK_FIRST_MS, times, LOOK_MAX_MS)
                          : relay_doubled(AGAIN_FIRST_MS, times, AGAIN_MAX_MS);
    int64_t asked_ms = row->verdict.retry_after_ms < AGAIN_MAX_MS ? row->verdict.retry_after_ms : AGAIN_MAX_MS;
    return row->verdict.outcome == RELAY_LATER && asked_ms > ms ? asked_ms : ms;
}

const char *relay_row_status(const struct relay_row *row)
{
    switch (row->verdict.outcome) {
    case RELAY_ADMITTED: return "admitted";
    case RELAY_ENDED: return row->verdict.status;
    case RELAY_REFUSED: return "refused";
    case RELAY_LATER:
    case RELAY_AWAY:
    case RELAY_UNAUTHORIZED: break;
    }
    return row->operation ? "admitted" : "new";
}

/* Admission begins the count of looks anew. */
int64_t relay_row_attempts(const struct relay_row *row)
{
    bool first = row->verdict.outcome == RELAY_ADMITTED && !row->operation;
    return first ? 0 : row->attempts < INT32_MAX ? row->attempts + 1 : row->attempts;
}
