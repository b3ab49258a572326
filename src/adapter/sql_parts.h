/* What the files of the SQL adapter share. Not for others. Texts with places, secrets and names are those of the HTTP
 * adapter.
 *
 *   provider + tool sections ──sql_section.c──▶ struct sql_tool                                     once, at load
 *   adapter_call ──sql_build.c──▶ struct sql_call ──sql.c, sql_link.c──▶ transaction                per attempt
 *   its answers ──sql_answer.c──▶ words for an adapter_answer
 */
#ifndef ADAPTER_SQL_PARTS_H
#define ADAPTER_SQL_PARTS_H

#include "adapter/http_parts.h"
#include "adapter/sql.h"
#include "base/digest.h"

#include <libpq-fe.h>

#define SQL_STATEMENTS_MAX      32
#define SQL_STATEMENT_BYTES_MAX (64 * 1024)
#define SQL_PARAMETERS_MAX      128               /* of one statement */
#define SQL_VALUES_BYTES_MAX    (4 * 1024 * 1024) /* of all parameters of a call */
#define SQL_STATES_MAX          64
#define SQL_STATE_CHARS         5
/* Records outlive the retention that resends rely on by so much: the database's clock is another one. */
#define SQL_RETENTION_SLACK_MS (INT64_C(24) * 60 * 60 * 1000)

/* ---- statements as written ---- */

/* What a statement's text says of itself. */
struct sql_scan {
    char word[16];       /* the first keyword in capitals, "" when there is none */
    unsigned parameters; /* the highest $n */
    bool several;        /* something follows a ";" */
    const char *unended; /* "text", "comment", … that does not end; NULL = fine */
};
/* Knows texts, quoted names, dollar quotes and comments, as PostgreSQL does. */
void sql_scan(struct str text, struct sql_scan *out);
/* What is wrong with a statement of a tool, or NULL. */
const char *sql_statement_fault(const struct sql_scan *scan, bool write);

/* ---- sections ---- */

/* SQLSTATEs, or their classes (two characters). */
struct sql_states {
    char items[SQL_STATES_MAX][SQL_STATE_CHARS + 1];
    size_t count;
};
bool sql_states_has(const struct sql_states *states, const char *state);

enum sql_isolation { SQL_READ_COMMITTED, SQL_REPEATABLE_READ, SQL_SERIALIZABLE };

struct sql_provider {
    unsigned refs; /* registry, tools, connections */
    bool closed;   /* the registry let go of it: no connection is kept for it any more */
    char *url;     /* anything that libpq takes as a connection string */
    char *url_shown;
    char *table;
    int64_t retention_ms, timeout_ms, connect_timeout_ms, lock_timeout_ms, statement_timeout_ms;
    enum sql_isolation isolation;
    struct sql_states not_processed;
    size_t answer_bytes_max;
    char *begin_write, *begin_read; /* statements of ours, made at load: */
    char *claim, *stored, *record;
};

struct sql_statement {
    char *text;
    struct http_node *parameters; /* values; not a text with a place: as they are */
    size_t parameter_count;
    int64_t expect_rows; /* -1 = any number */
    char *refusal;       /* what callers are told when it was another number; NULL = our own words */
};

struct sql_tool {
    unsigned refs;
    struct sql_provider *provider; /* a reference */
    char *name;
    bool write;
    int64_t timeout_ms;
    struct sql_statement *statements;
    size_t statement_count;
    struct sql_states noop;
    struct jq_program *noop_when;
    struct http_extract external_id, result;
    char **redact;
    size_t redact_count;
};

void sql_provider_ref(struct sql_provider *provider);
void sql_provider_unref(struct sql_provider *provider); /* NULL is fine */
void sql_tool_ref(struct sql_tool *tool);
void sql_tool_unref(struct sql_tool *tool); /* NULL is fine */

/* ---- one attempt ---- */

/* Parameters of one statement for libpq: texts, NULL = SQL's null. */
struct sql_values {
    const char **items;
    size_t count;
};

/* All in the arena that it was built in. */
struct sql_call {
    struct sql_values *values;              /* by statement */
    char fingerprint[2 * DIGEST_BYTES + 1]; /* of the arguments; "" when they are not known (any more) */
    const char *key, *operation;
};

/* ERR_INVALID names the argument. */
enum err_code sql_call_build(const struct sql_tool *tool, const struct adapter_call *call, struct arena *arena,
                             struct sql_call *out, struct err *err);
/* As it would be executed, redacted arguments masked: {"method": "SQL", "url", "body": [{"text", "parameters"}]}. */
enum err_code sql_call_describe(const struct sql_tool *tool, const struct adapter_call *call, struct json_out *out,
                                struct err *err);

/* ---- answers ---- */

/* The rows that a statement gave. */
struct sql_rows {
    int64_t affected;
    struct json list; /* array of objects */
    size_t bytes;     /* roughly, of all of them */
    bool over;        /* there are more bytes than the provider's answer_bytes_max */
};

/* Appends the rows of result. */
void sql_rows_add(struct sql_rows *rows, const PGresult *result, size_t bytes_max, struct arena *arena);

/* What the server says: state is "" when it is libpq's own word (the connection). Texts in arena. */
struct sql_fault {
    char state[SQL_STATE_CHARS + 1];
    bool fatal;                                       /* the session is over, or worse */
    const char *message, *detail, *hint, *constraint; /* all but message may be NULL */
};
void sql_fault_read(const PGresult *result, const PGconn *conn, struct arena *arena, struct sql_fault *out);

/* Where in a transaction something happened. */
enum sql_stage {
    SQL_STAGE_CONNECT,
    SQL_STAGE_BEGIN,
    SQL_STAGE_CLAIM,     /* the record's key is written … */
    SQL_STAGE_STORED,    /* … or was there: it is read */
    SQL_STAGE_STATEMENT, /* the tool's own, one after the other */
    SQL_STAGE_RECORD,    /* the result is put into the record */
    SQL_STAGE_COMMIT,    /* the only one at which the outcome can be unknown */
    SQL_STAGE_ROLLBACK,  /* the outcome is known already */
};

/* What an error of the server at that stage proves of a call; *words (in arena) for people. */
enum outcome sql_fault_outcome(const struct sql_tool *tool, enum sql_stage stage, const struct sql_fault *fault,
                               struct arena *arena, const char **words);
/* The same for a connection that is gone, or a time that is over (OUTCOME_TIMEOUT). */
enum outcome sql_lost_outcome(enum sql_stage stage, bool timed_out);

/* What comes after the claim, which inserted so many rows: STORED, STATEMENT, or ROLLBACK for a look-up that found
 * nothing. */
enum sql_stage sql_after_claim(enum attempt_kind kind, int64_t affected);
/* Whether "no record" proves that there was no commit: not when the record may have been pruned. */
bool sql_absent_counts(const struct sql_provider *provider, const char *operation, int64_t now_ms);
/* Whether a record is of these arguments; those that are not known any more are not compared. */
bool sql_record_is_ours(const struct sql_call *call, struct str fingerprint);
bool sql_rows_fit(const struct sql_statement *statement, int64_t affected);

/* What the tool's statements gave, as JSON: {"affected", "rows", "statements": [{"affected", "rows"}]}; the first two
 * are the last statement's. */
struct json *sql_document(const struct sql_rows *rows, size_t count, struct arena *arena);

#endif
