/* The statements on the outbox table, made of the names that the settings give. Every name is [a-z0-9_] and quoted. */
#ifndef RELAY_TABLE_H
#define RELAY_TABLE_H

#include "relay/relay.h"

enum relay_statement {
    STATEMENT_HEADS,     /* $1 limit */
    STATEMENT_FOLLOWERS, /* $1 limit, $2 entities, $3 ids that are taken already */
    STATEMENT_LOOKS,     /* $1 limit */
    STATEMENT_ARGUMENTS, /* $1 ids */
    STATEMENT_MARK,      /* $1 … arrays, one item for each row: enum mark_parameter */
    STATEMENT_BACKLOG,   /* $1 limit */
    STATEMENT_COUNT
};

/* Columns of what STATEMENT_HEADS, _FOLLOWERS and _LOOKS give. */
enum row_column { ROW_ID, ROW_TOOL, ROW_ENTITY, ROW_RUN, ROW_TENANT, ROW_BYTES, ROW_ATTEMPTS, ROW_OPERATION };

enum mark_parameter {
    MARK_ID,
    MARK_STATUS,
    MARK_OPERATION,
    MARK_PROBLEM,
    MARK_ATTEMPTS,
    MARK_DELAY, /* ms; NULL = never again */
    MARK_ADMITTED,
    MARK_ENDED,
    MARK_PARAMETERS
};

/* id_type: of the id's column, as PostgreSQL writes it; STATEMENT_MARK needs it. To be freed. */
char *relay_statement(const struct relay_settings *settings, enum relay_statement which, const char *id_type);

/* "schema"."table" */
void relay_table_write(struct buf *out, const char *table);

#endif
