#include "ledger/open.h"

#include "ledger/postgres.h"

#include "base/pg_url.h"

enum err_code ledger_open(const struct ledger_open_options *options, struct env *env, struct ledger **out,
                          struct err *err)
{
    if (pg_url_is(options->where)) {
        struct ledger_postgres_options postgres = {
            .url = options->where,
            .clock = options->clock,
            .turn = options->turn,
            .notify = options->notify,
            .user = options->user,
        };
        return ledger_postgres_open(&postgres, env, out, err);
    }
    struct ledger_sqlite_options sqlite = {
        .path = options->where,
        .shared = options->beside,
        .turn = options->turn,
        .notify = options->notify,
        .user = options->user,
    };
    return ledger_sqlite_open(&sqlite, env, out, err);
}
