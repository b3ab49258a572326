#include "ledger/rows.h"

#include "base/buf.h"

#include <stdlib.h>

/* ---- names ---- */

#define COUNT_OF(name, text, ...) +1
static const int name_counts[NAME_KINDS] = {
    [NAME_STATE] = STATE_COUNT,
    [NAME_REASON] = REASON_COUNT,
    [NAME_CAUSE] = CAUSE_COUNT,
    [NAME_OUTCOME] = OUTCOME_COUNT,
    [NAME_KEY_SOURCE] = 0 KEY_SOURCES(COUNT_OF),
    [NAME_ATTEMPT_KIND] = ATTEMPT_LOOKUP + 1,
    [NAME_INCIDENT_KIND] = 0 INCIDENTS(COUNT_OF),
    [NAME_ROLE] = ROLE_ADMIN + 1,
};
#undef COUNT_OF
_Static_assert(OUTCOME_COUNT <= NAME_VALUES_MAX && REASON_COUNT <= NAME_VALUES_MAX && CAUSE_COUNT <= NAME_VALUES_MAX,
               "stored numbers of names fit");

static const char *const kind_texts[NAME_KINDS] = {
    [NAME_STATE] = "state",
    [NAME_REASON] = "reason",
    [NAME_CAUSE] = "cause",
    [NAME_OUTCOME] = "outcome",
    [NAME_KEY_SOURCE] = "key_source",
    [NAME_ATTEMPT_KIND] = "attempt_kind",
    [NAME_INCIDENT_KIND] = "incident_kind",
    [NAME_ROLE] = "role",
};

const char *name_text(enum name_kind kind, int value)
{
    switch (kind) {
    case NAME_STATE: return state_name((enum state)value);
    case NAME_REASON: return reason_name((enum reason)value);
    case NAME_CAUSE: return cause_name((enum cause)value);
    case NAME_OUTCOME: return outcome_name((enum outcome)value);
    case NAME_KEY_SOURCE: return key_source_name((enum key_source)value);
    case NAME_ATTEMPT_KIND: return attempt_kind_name((enum attempt_kind)value);
    case NAME_INCIDENT_KIND: return incident_kind_name((enum incident_kind)value);
    case NAME_ROLE: return role_name((enum role)value);
    case NAME_KINDS: break;
    }
    return "";
}

const char *name_kind_text(enum name_kind kind)
{
    return kind_texts[kind];
}

int name_count(enum name_kind kind)
{
    return name_counts[kind];
}

int name_value(enum name_kind kind, struct str text)
{
    for (int value = 0; value < name_counts[kind]; value++)
        if (str_is(text, name_text(kind, value)))
            return value;
    return -1;
}

/* ---- operations ---- */

bool operation_in_doubt(enum state state, bool orphaned, int64_t unknown_since_ms)
{
    return state == STATE_UNKNOWN_OUTCOME || ((orphaned || unknown_since_ms != 0) && !state_terminal(state));
}

uint64_t text_hash(uint64_t hash, const char *text)
{
    for (const unsigned char *p = (const unsigned char *)text;; p++) {
        hash = (hash ^ *p) * 0x100000001b3u;
        if (!*p)
            return hash;
    }
}

int64_t operation_repeat_hash(const struct operation *op)
{
    uint64_t hash = text_hash(text_hash(text_hash(TEXT_HASH_START, op->tenant), op->tool), op->principal);
    return (int64_t)(hash ^ (uint64_t)digest_int64(&op->fingerprint));
}

/* Events at admission are nearly always "principal, now, into the first state". */
static bool event_is_plain(const struct ledger_admit *admit)
{
    const struct operation *op = admit->admission.op;
    const struct event *event = &admit->event;
    return event->cause == CAUSE_ADMITTED && event->from == op->state && event->to == op->state &&
           event->at_ms == op->created_ms && !event->note && event->attempt == (admit->attempt ? 1 : 0) &&
           text_equal(event->actor, op->principal);
}

static bool attempt_is_plain(const struct ledger_admit *admit, bool event_is)
{
    const struct attempt *attempt = admit->attempt;
    return event_is && attempt && attempt->number == 1 && attempt->kind == ATTEMPT_CALL &&
           attempt->outcome == OUTCOME_OPEN && attempt->started_ms == admit->admission.op->created_ms &&
           attempt->finished_ms == 0 && attempt->http_status == 0 && !attempt->provider_request_id && !attempt->detail;
}

struct admitted admitted_plain(const struct ledger_admit *admit)
{
    struct admitted plain = {.event = event_is_plain(admit)};
    plain.attempt = attempt_is_plain(admit, plain.event);
    if (admit->attempt && !plain.attempt)
        plain.event = false; /* both in one line of history */
    return plain;
}

bool operation_same_call(const struct operation *a, const struct operation *b)
{
    return digest_equal(&a->fingerprint, &b->fingerprint) && text_equal(a->tool, b->tool) &&
           text_equal(a->principal, b->principal) && text_equal(a->tenant, b->tenant);
}

bool attempts_have(const struct attempt *all, size_t count, const char *id)
{
    while (count-- > 0) /* lines of one attempt lie close together */
        if (strcmp(all[count].id, id) == 0)
            return true;
    return false;
}

static int compare_attempts(const void *left, const void *right)
{
    return ((const struct attempt *)left)->number - ((const struct attempt *)right)->number;
}

void attempts_sort(struct attempt *all, size_t count)
{
    qsort(all, count, sizeof *all, compare_attempts);
}

/* ---- texts ---- */

/* Length of the UTF-8 character at p, 0 when there is none. */
static size_t character(const unsigned char *p, size_t n)
{
    if (p[0] < 0x80)
        return p[0] ? 1 : 0;
    size_t length = p[0] >= 0xc2 && p[0] < 0xe0 ? 2 : (p[0] & 0xf0) == 0xe0 ? 3 : p[0] >= 0xf0 && p[0] < 0xf5 ? 4 : 0;
    if (length == 0 || length > n)
        return 0;
    for (size_t i = 1; i < length; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    bool overlong = (p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xf0 && p[1] < 0x90);
    bool beyond = (p[0] == 0xed && p[1] >= 0xa0) || (p[0] == 0xf4 && p[1] >= 0x90);
    return overlong || beyond ? 0 : length;
}

struct str text_storable(struct str text, struct arena *arena, bool *changed)
{
    size_t good = 0, length;
    while (good < text.n && (length = character((const unsigned char *)text.p + good, text.n - good)) > 0)
        good += length;
    if (changed)
        *changed = good < text.n;
    if (good == text.n)
        return text;
    struct buf out;
    buf_init(&out, 0);
    for (size_t i = 0; i < text.n;) {
        length = character((const unsigned char *)text.p + i, text.n - i);
        buf_add_str(&out, length ? (struct str){text.p + i, length} : STR("\xef\xbf\xbd"));
        i += length ? length : 1;
    }
    struct str kept = arena_str(arena, buf_str(&out));
    buf_release(&out);
    return kept;
}

/* ---- changes ---- */

bool transition_owner_fits(const struct ledger_transition *change, const char *owner)
{
    return change->fence ? text_equal(change->fence, owner) : !(change->unheld && owner);
}

enum err_code transition_check(const struct ledger_transition *change, bool found, int64_t rev, bool owned,
                               struct err *err)
{
    const struct operation *op = change->op;
    if (!found)
        return err_set(err, ERR_NOT_FOUND, "there is no operation %s", op->id);
    if (rev != op->rev - 1)
        return err_set(err, ERR_STALE, "%s is at version %lld, the change was made for version %lld", op->id,
                       (long long)rev, (long long)op->rev - 1);
    if (!owned)
        return change->fence ? err_set(err, ERR_STALE, "%s is no longer held by %s", op->id, change->fence)
                             : err_set(err, ERR_STALE, "%s is held by somebody else now", op->id);
    return ERR_NONE;
}

bool claim_may_take(const struct ledger_claim *claim, const struct operation *op)
{
    return claim->foreign || !op->owner || text_equal(op->owner, claim->owner) || op->lease_until_ms <= claim->now_ms;
}

enum err_code expire_check(const struct ledger_expire *expire, const struct operation *op, struct err *err)
{
    if (!op)
        return err_set(err, ERR_NOT_FOUND, "there is no operation %s", expire->operation);
    if (op->rev != expire->rev)
        return err_set(err, ERR_STALE, "%s is at version %lld, not %lld", op->id, (long long)op->rev,
                       (long long)expire->rev);
    if (!state_terminal(op->state))
        return err_set(err, ERR_CONFLICT, "%s is %s: only what has ended can be dropped", op->id,
                       state_name(op->state));
    return ERR_NONE;
}

/* ---- inbox ---- */

void inbound_sort(struct inbound *events, size_t count)
{
    for (size_t i = 1; i < count; i++) {
        struct inbound event = events[i];
        size_t at = i;
        for (; at > 0 && strcmp(events[at - 1].id, event.id) > 0; at--)
            events[at] = events[at - 1];
        events[at] = event;
    }
}

/* ---- commands ---- */

bool ledger_command_writes(enum ledger_command command)
{
    switch (command) {
    case LEDGER_ADMIT:
    case LEDGER_TRANSITION:
    case LEDGER_CLAIM_DUE:
    case LEDGER_MARK:
    case LEDGER_WATCH:
    case LEDGER_RELEASE:
    case LEDGER_EXPIRE:
    case LEDGER_ACKNOWLEDGE:
    case LEDGER_TOKEN_ADD:
    case LEDGER_TOKEN_REVOKE:
    case LEDGER_RECORD_INBOUND:
    case LEDGER_INBOX_PRUNE:
    case LEDGER_FORWARD_MOVE:
    case LEDGER_ENTITY_RELEASE: return true;
    case LEDGER_GET:
    case LEDGER_GET_BY_KEY:
    case LEDGER_LIST:
    case LEDGER_EVENTS:
    case LEDGER_ATTEMPTS:
    case LEDGER_INCIDENTS:
    case LEDGER_TOKEN_FIND:
    case LEDGER_TOKEN_LIST:
    case LEDGER_INBOX_OF:
    case LEDGER_INBOX_DUE:
    case LEDGER_INBOX_LIST:
    case LEDGER_INBOX_COUNTS:
    case LEDGER_FORWARD_DUE:
    case LEDGER_ENTITIES:
    case LEDGER_BUDGETS:
    case LEDGER_STATS: return false;
    }
    return false;
}
