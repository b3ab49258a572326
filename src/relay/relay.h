/* The outbox relay (docs/relay.md): rows that an application writes into a table of its own PostgreSQL database, in its
 * own transactions, become operations, each exactly once.
 *
 *   application ── INSERT, COMMIT ─► outbox table ── NOTIFY or the next poll ─► relay
 *   relay:   BEGIN; take rows (FOR UPDATE SKIP LOCKED) ─► POST /v1/calls, each under its row's key ─► mark rows; COMMIT
 *   gateway: the key is unique, so a repeated POST joins or replays
 *
 * A row is marked only with what a gateway has answered, and a gateway answers only what it has on disk. So a relay may
 * die anywhere: rows without a mark are posted again, under the same key. Several relays share one table. A relay owns
 * rows only by the locks of its transaction, which ends with its connection, and which the server ends when the relay
 * stands still for longer than lease_ms.
 *
 * Single-threaded and blocking: many calls in flight at once, one statement of the database after the other. */
#ifndef RELAY_RELAY_H
#define RELAY_RELAY_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

#define RELAY_NAME_BYTES_MAX 64
#define RELAY_GATEWAYS_MAX   16
#define RELAY_BATCH_MAX      5000
#define RELAY_IN_FLIGHT_MAX  256

/* When the next row of an entity may go. */
enum relay_order {
    RELAY_AFTER_COMPLETION, /* the operation of the one before has ended */
    RELAY_AFTER_ADMISSION,  /* it is on disk in the ledger */
};

/* What a row that was refused, or whose operation failed, means for the later ones of its entity. */
enum relay_on_refusal { RELAY_SKIP, RELAY_HOLD };

/* Names of the table's columns; "" where it has none, which is allowed for those marked so. */
struct relay_columns {
    const char *id, *tool, *arguments;
    const char *order;                    /* "" = id */
    const char *entity, *run_id, *tenant; /* or "" */
    const char *status, *operation_id, *problem, *attempts, *next_at, *admitted_at,
        *ended_at; /* written by the relay */
};

/* All borrowed; must live as long as whoever was given them. */
struct relay_settings {
    const char *name;     /* part of every key: relays with one name on one table are one */
    const char *database; /* anything that libpq takes as a connection string */
    const char *database_shown;
    const char *table;   /* "name" or "schema.name" (relay_name_valid) */
    const char *channel; /* of NOTIFY; "" = rows are found by polling alone */
    struct relay_columns columns;
    const char *const *gateways; /* base URLs without a final slash; the next one when one is away */
    size_t gateway_count;
    const char *token;              /* NULL: none */
    const char *ca;                 /* NULL: the system's certificates */
    const char *tenant, *principal; /* headers; NULL: none */
    enum relay_order order;
    enum relay_on_refusal on_refusal;
    int64_t poll_ms, wait_ms, lease_ms;
    unsigned batch, in_flight;
    size_t arguments_bytes_max; /* of one row */
};

/* a-z, 0-9 and _, not beginning with a digit, at most 63 bytes; dotted: with one dot ("schema.name"). */
bool relay_name_valid(const char *name, bool dotted);

/* The statements that make the table, its indexes and triggers, with ";" behind each. */
void relay_install_write(const struct relay_settings *settings, struct buf *out);

/* How a relay ended. */
enum relay_end {
    RELAY_STOPPED,      /* SIGTERM, SIGINT; or once: nothing is left that could be done now */
    RELAY_NO_DATABASE,  /* not reached at the start */
    RELAY_NO_TABLE,     /* the table or a column is missing */
    RELAY_NO_RIGHTS,    /* the database's role lacks rights */
    RELAY_UNFIT,        /* the table has other types than the relay can use */
    RELAY_NOT_ENTITLED, /* the gateway refuses the token */
    RELAY_NO_GATEWAY,   /* once: none answers, rows are left */
};

/* Runs the statements of relay_install_write. Idempotent. */
enum relay_end relay_install(const struct relay_settings *settings, struct err *err);

/* Until a signal comes or, with once, nothing is left to be done now. Blocks SIGTERM and SIGINT and takes them itself.
 * Writes log lines. err says why it ended, but for RELAY_STOPPED. ready (NULL is fine) is called when the database has
 * been looked at and all fits. */
enum relay_end relay_serve(const struct relay_settings *settings, bool once, void (*ready)(void), struct err *err);

#endif
