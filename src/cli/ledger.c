#include "cli/cli.h"
#include "cli/ledger_path.h"
#include "cli/ledger_verbs.h"
#include "cli/view.h"

#include "base/env.h"

#include <inttypes.h>
#include <stdlib.h>

enum { DRY_RUN = 256, MAX, SNAPSHOT };

#define MAX_DEFAULT 100

static const struct cli_option options[] = {
    {DRY_RUN, "dry-run", NULL, NULL, "migrate: only say what would be done"},
    {MAX, "max", "N", NULL, "verify: print so many of what is wrong (default 100); all are counted"},
    {SNAPSHOT, "snapshot", NULL, NULL, "copy: from a ledger in use, as it is now; can not be resumed"},
    {0},
};

const struct cli_command cli_ledger_command = {
    .name = "ledger",
    .operands = "migrate|verify|stats|copy [FROM TO]",
    .words = "migrate verify stats copy",
    .summary = "look after the ledger itself: schema, soundness, figures, moving it",
    .text =
        "migrate brings the tables to this program's schema. verify reads all rows, while daemons may run, and says\n"
        "what does not fit together. stats counts. copy puts all that FROM holds into TO, each a file or\n"
        "postgresql://…, and compares both; TO must be new or empty. When it was cut short, the same command goes on.\n"
        "No daemon may have FROM or TO meanwhile.\n"
        "Exit status: 7 the schema is newer, or must be migrated first; 9 a daemon has the ledger; 10 it is not "
        "sound,\n"
        "or the copy differs.",
    .options = options,
    .shared = CLI_LEDGER | CLI_JSON,
    .run = cli_ledger,
};

int ledger_trouble(enum bulk_trouble trouble, const struct err *err)
{
    view_error(err);
    switch (trouble) {
    case BULK_IN_USE: return CLI_IN_USE;
    case BULK_NEWER:
    case BULK_OLDER: return CLI_LEDGER_BAD;
    case BULK_UNREACHABLE: return err->code == ERR_NOT_FOUND ? CLI_NOT_FOUND : CLI_UNREACHABLE;
    case BULK_UNFINISHED:
    case BULK_FINE:
    case BULK_OTHER: break;
    }
    return err->code == ERR_DENIED ? CLI_DENIED : err->code == ERR_UNAVAILABLE ? CLI_UNREACHABLE : CLI_FAILED;
}

/* ---- migrate ---- */

static void say_versions(const struct ledger_wish *wish, const struct bulk_versions *versions, bool done)
{
    bool needed = versions->there < versions->known;
    if (wish->args.json) {
        printf("{\"schema_version\":%d,\"known_version\":%d,\"migrated\":%s}\n",
               done ? versions->known : versions->there, versions->known, done && needed ? "true" : "false");
        return;
    }
    if (!needed)
        printf("schema version %d, as this onced needs it: nothing to do\n", versions->there);
    else if (versions->there == 0)
        printf("%s all tables (schema version %d)\n", done ? "created" : "would create", versions->known);
    else
        printf("%s schema version %d to %d; there is no way back but a backup\n",
               done ? "migrated from" : "would migrate from", versions->there, versions->known);
}

int ledger_migrate(const struct ledger_wish *wish, const char *where)
{
    struct env *env = env_system();
    struct bulk_versions versions;
    enum bulk_trouble trouble;
    struct bulk *bulk = NULL;
    struct err err = {0};
    if (bulk_peek(where, env, &versions, &trouble, &err))
        return ledger_trouble(trouble, &err);
    if (versions.there > versions.known) {
        err_set(&err, ERR_INVALID,
                "the ledger has schema version %d, this onced knows versions up to %d: run the newer "
                "onced that wrote it",
                versions.there, versions.known);
        return ledger_trouble(BULK_NEWER, &err);
    }
    if (!wish->dry_run && versions.there < versions.known) {
        if (bulk_open(where, BULK_MIGRATE, env, &bulk, &trouble, &err))
            return ledger_trouble(trouble, &err);
        bulk_close(bulk);
    }
    say_versions(wish, &versions, !wish->dry_run);
    return CLI_OK;
}

/* ---- stats ---- */

struct figures {
    int64_t rows[TABLE_IDS], states[STATE_COUNT];
    int64_t unresolved, oldest_unresolved_ms, oldest_unknown_ms, open_incidents, waiting_events, bytes;
};

static enum err_code count_tables(struct bulk *bulk, struct figures *out, struct err *err)
{
    char sql[80];
    for (int i = 0; i < TABLE_IDS && !err->code; i++) {
        snprintf(sql, sizeof sql, "SELECT count(*) FROM %s", table_name((enum table_id)i));
        bulk_number(bulk, sql, &out->rows[i], err);
    }
    return err->code;
}

static enum err_code measure(struct bulk *bulk, struct figures *out, struct err *err)
{
    static const struct {
        const char *sql;
        size_t offset;
    } asks[] = {
        {"SELECT count(*) FROM operations WHERE open = 1", offsetof(struct figures, unresolved)},
        {"SELECT min(created_ms) FROM operations WHERE open = 1", offsetof(struct figures, oldest_unresolved_ms)},
        {"SELECT min(unknown_since_ms) FROM operations WHERE open = 1 AND unknown_since_ms > 0",
         offsetof(struct figures, oldest_unknown_ms)},
        {"SELECT count(*) FROM incidents WHERE acknowledged_ms = 0", offsetof(struct figures, open_incidents)},
        {"SELECT count(*) FROM inbox WHERE status = 'waiting'", offsetof(struct figures, waiting_events)},
    };
    *out = (struct figures){0};
    if (bulk_begin(bulk, false, err))
        return err->code;
    if (count_tables(bulk, out, err) == 0 && bulk_by_state(bulk, out->states, err) == 0)
        bulk_bytes(bulk, &out->bytes, err);
    for (size_t i = 0; i < sizeof asks / sizeof *asks && !err->code; i++)
        bulk_number(bulk, asks[i].sql, (int64_t *)((char *)out + asks[i].offset), err);
    bulk_rollback(bulk); /* it only read */
    return err->code;
}

static void add_time(struct json_out *out, const char *name, int64_t ms)
{
    char text[ENV_TIME_SIZE];
    if (ms)
        env_time_text(ms, text);
    json_out_name(out, name);
    json_out_text(out, ms ? text : NULL);
}

static void stats_json(const struct bulk *bulk, const struct bulk_versions *versions, const struct figures *figures)
{
    char fingerprint[BULK_FINGERPRINT_SIZE];
    struct json_out out;
    struct buf text;
    bulk_fingerprint(bulk, fingerprint);
    buf_init(&text, 0);
    json_out_init(&out, &text);
    json_out_object(&out);
    json_out_member_text(&out, "ledger", bulk->name);
    json_out_member_text(&out, "kind", bulk->postgres ? "postgres" : "sqlite");
    json_out_member_int(&out, "schema_version", versions->there);
    json_out_member_text(&out, "fingerprint", fingerprint);
    json_out_member_int(&out, "bytes", figures->bytes);
    json_out_name(&out, "rows");
    json_out_object(&out);
    for (int i = 0; i < TABLE_IDS; i++)
        json_out_member_int(&out, table_name((enum table_id)i), figures->rows[i]);
    json_out_end_object(&out);
    json_out_name(&out, "states");
    json_out_object(&out);
    for (int i = 0; i < STATE_COUNT; i++)
        json_out_member_int(&out, state_name((enum state)i), figures->states[i]);
    json_out_end_object(&out);
    json_out_member_int(&out, "unresolved", figures->unresolved);
    add_time(&out, "oldest_unresolved_at", figures->oldest_unresolved_ms);
    add_time(&out, "oldest_unknown_since", figures->oldest_unknown_ms);
    json_out_member_int(&out, "open_incidents", figures->open_incidents);
    json_out_member_int(&out, "waiting_events", figures->waiting_events);
    json_out_end_object(&out);
    printf("%s\n", text.p);
    buf_release(&text);
}

static void print_age(struct out *out, const char *name, int64_t since_ms)
{
    char at[ENV_TIME_SIZE], span[OUT_SPAN_SIZE];
    if (!since_ms)
        return;
    env_time_text(since_ms, at);
    out_span(env_system()->now_ms(env_system()) - since_ms, span);
    out_printf(out, "%-20s %s (%s ago)\n", name, at, span);
}

static void stats_text(const struct bulk *bulk, const struct bulk_versions *versions, const struct figures *figures)
{
    char fingerprint[BULK_FINGERPRINT_SIZE];
    struct out out;
    out_init(&out, stdout);
    bulk_fingerprint(bulk, fingerprint);
    out_printf(&out, "%-20s %s\n", bulk->postgres ? "PostgreSQL" : "SQLite", bulk->name);
    out_printf(&out, "%-20s %d\n", "schema version", versions->there);
    out_printf(&out, "%-20s %s\n", "fingerprint", fingerprint);
    out_printf(&out, "%-20s %" PRId64 "\n", "bytes", figures->bytes);
    for (int i = 0; i < TABLE_IDS; i++)
        if (figures->rows[i])
            out_printf(&out, "%-20s %" PRId64 "\n", table_name((enum table_id)i), figures->rows[i]);
    for (int i = 0; i < STATE_COUNT; i++)
        if (figures->states[i])
            out_printf(&out, "  %-18s %" PRId64 "\n", state_name((enum state)i), figures->states[i]);
    out_printf(&out, "%-20s %" PRId64 "\n", "unresolved", figures->unresolved);
    print_age(&out, "oldest unresolved", figures->oldest_unresolved_ms);
    print_age(&out, "oldest unknown", figures->oldest_unknown_ms);
    out_printf(&out, "%-20s %" PRId64 "\n", "open incidents", figures->open_incidents);
    out_printf(&out, "%-20s %" PRId64 "\n", "waiting events", figures->waiting_events);
}

int ledger_stats(const struct ledger_wish *wish, const char *where)
{
    struct bulk_versions versions;
    enum bulk_trouble trouble;
    struct bulk *bulk = NULL;
    struct figures figures;
    struct err err = {0};
    if (bulk_peek(where, env_system(), &versions, &trouble, &err) ||
        bulk_open(where, BULK_LOOK, env_system(), &bulk, &trouble, &err))
        return ledger_trouble(trouble, &err);
    int code = measure(bulk, &figures, &err) ? ledger_trouble(BULK_OTHER, &err) : CLI_OK;
    if (code == CLI_OK && wish->args.json)
        stats_json(bulk, &versions, &figures);
    else if (code == CLI_OK)
        stats_text(bulk, &versions, &figures);
    bulk_close(bulk);
    return code;
}

/* ---- the command line ---- */

static bool take(struct ledger_wish *wish, int option, const char *value)
{
    char *end = NULL;
    switch (option) {
    case DRY_RUN: wish->dry_run = true; break;
    case SNAPSHOT: wish->snapshot = true; break;
    case MAX:
        wish->max = strtoll(value, &end, 10);
        if (end == value || *end || wish->max < 0) {
            cli_usage(&cli_ledger_command, "--max: expected a number, not %s", value);
            return false;
        }
        break;
    }
    return true;
}

static int run_verb(const struct ledger_wish *wish, int (*verb)(const struct ledger_wish *wish, const char *where))
{
    struct arena arena;
    arena_init(&arena);
    const char *where = ledger_path(&wish->args, &arena);
    int code = where ? verb(wish, where) : CLI_USAGE;
    arena_release(&arena);
    return code;
}

static int run(struct ledger_wish *wish)
{
    static const struct {
        const char *word;
        int (*run)(const struct ledger_wish *wish, const char *where);
    } verbs[] = {{"migrate", ledger_migrate}, {"verify", ledger_verify_rows}, {"stats", ledger_stats}};
    const struct cli_args *args = &wish->args;
    const char *word = args->operand_count > 0 ? args->operands[0] : "";
    bool copy = strcmp(word, "copy") == 0, migrate = strcmp(word, "migrate") == 0;
    if ((wish->dry_run && !migrate) || (wish->snapshot && !copy))
        return cli_usage(&cli_ledger_command,
                         wish->snapshot ? "--snapshot belongs to copy" : "--dry-run belongs to migrate");
    if (copy && args->operand_count != 3)
        return cli_usage(&cli_ledger_command, "copy takes two ledgers: FROM and TO, each a file or postgresql://…");
    if (copy && (args->ledger || args->config))
        return cli_usage(&cli_ledger_command, "copy names its ledgers itself: leave --ledger and --config out");
    if (copy)
        return ledger_copy_rows(wish, args->operands[1], args->operands[2]);
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++) {
        if (strcmp(word, verbs[i].word) != 0)
            continue;
        if (args->operand_count > 1)
            return cli_usage(&cli_ledger_command, "%s takes no further words; name the ledger by --ledger or --config",
                             word);
        return run_verb(wish, verbs[i].run);
    }
    return cli_usage(&cli_ledger_command, "expected migrate, verify, stats or copy");
}

int cli_ledger(int argc, char **argv)
{
    struct ledger_wish wish = {.max = MAX_DEFAULT};
    int option;
    cli_args_init(&wish.args, &cli_ledger_command, argc, argv);
    while ((option = cli_args_next(&wish.args)) > 0)
        if (!take(&wish, option, wish.args.value))
            return CLI_USAGE;
    if (option == CLI_ARGS_HELP)
        return CLI_OK;
    return option == CLI_ARGS_BAD ? CLI_USAGE : run(&wish);
}
