/* What the SQL ledgers share of how records become rows: the texts of enumerations, what the row of an operation says
 * of its beginning, what they search by. Not for others. */
#ifndef LEDGER_ROWS_H
#define LEDGER_ROWS_H

#include "ledger/ledger.h"

enum name_kind {
    NAME_STATE,
    NAME_REASON,
    NAME_CAUSE,
    NAME_OUTCOME,
    NAME_KEY_SOURCE,
    NAME_ATTEMPT_KIND,
    NAME_INCIDENT_KIND,
    NAME_ROLE,
    NAME_KINDS
};
#define NAME_VALUES_MAX 64

const char *name_kind_text(enum name_kind kind); /* "state", "reason", … */
int name_count(enum name_kind kind);
const char *name_text(enum name_kind kind, int value);
int name_value(enum name_kind kind, struct str text); /* -1: none that we know */

/* An operation's first event and first attempt go into its own row when they are what the row says anyway ("principal,
 * at created_ms, into the first state"; call attempt 1, begun then), as they nearly always are. attempt only with
 * event. */
struct admitted {
    bool event, attempt;
};
struct admitted admitted_plain(const struct ledger_admit *admit);

/* May hold other calls, now or as soon as it is orphaned: more than admission_doubts asks for. */
bool operation_in_doubt(enum state state, bool orphaned, int64_t unknown_since_ms);
/* 64 bits over (tenant, tool, principal, fingerprint). */
int64_t operation_repeat_hash(const struct operation *op);
/* FNV-1a over text and its NUL, which separates; start with TEXT_HASH_START. */
#define TEXT_HASH_START 0xcbf29ce484222325u
uint64_t text_hash(uint64_t hash, const char *text);

/* text as PostgreSQL can store it: UTF-8 without NUL; what is not becomes U+FFFD. Itself, or a copy in arena. changed
 * may be NULL. */
struct str text_storable(struct str text, struct arena *arena, bool *changed);

/* Whether it is the same call (design 2.2.5): verifies a hit of operation_repeat_hash. */
bool operation_same_call(const struct operation *a, const struct operation *b);

/* Of attempts' lines, newest first, only the newest of each counts: whether id is among them. */
bool attempts_have(const struct attempt *all, size_t count, const char *id);
void attempts_sort(struct attempt *all, size_t count); /* by number */

/* Whether a change's fence or unheld is content with the row's owner. */
bool transition_owner_fits(const struct ledger_transition *change, const char *owner);
/* Whether a claim may take the row. */
bool claim_may_take(const struct ledger_claim *claim, const struct operation *op);

/* Of a transition that came too late, or for nothing: ERR_NOT_FOUND, ERR_STALE in words. rev: of the row, owned: the
 * owner fits. ERR_NONE when nothing is in the way. */
enum err_code transition_check(const struct ledger_transition *change, bool found, int64_t rev, bool owned,
                               struct err *err);
enum err_code expire_check(const struct ledger_expire *expire, const struct operation *op, struct err *err);

/* What is read of inbound events, by rising id. */
void inbound_sort(struct inbound *events, size_t count);

bool ledger_command_writes(enum ledger_command command);

/* The row of the table meta in a ledger that is being filled (copy.h): nobody may work with it while it is there. */
#define LEDGER_COPY "copy"

#endif
