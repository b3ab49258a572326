#include "cli/cli.h"
#include "cli/command.h"
#include "cli/ledger_path.h"
#include "cli/view.h"

#include "base/pg_url.h"
#include "ledger/ledger.h"

#include <inttypes.h>
#include <sys/stat.h>

const struct cli_command cli_backup_command = {
    .name = "backup",
    .operands = "TARGET",
    .words = "FILE",
    .summary = "copy the ledger into a new file, while the daemon may be running",
    .text = "The copy is consistent and was checked before it got its name. An existing file is never overwritten.",
    .shared = CLI_LEDGER | CLI_JSON,
    .run = cli_backup,
};

static void told(const struct cli_args *args, const char *target, int64_t bytes)
{
    struct buf text;
    struct json_out out;
    if (!args->json) {
        printf("%s: %" PRId64 " bytes, checked\n", target, bytes);
        return;
    }
    buf_init(&text, 0);
    json_out_init(&out, &text);
    json_out_object(&out);
    json_out_member_text(&out, "file", target);
    json_out_member_int(&out, "bytes", bytes);
    json_out_end_object(&out);
    printf("%s\n", text.p);
    buf_release(&text);
}

int cli_backup(int argc, char **argv)
{
    struct cli_args args;
    struct arena arena;
    struct stat stat_target = {0};
    struct err err = {0};
    int code = CLI_USAGE;
    cli_args_init(&args, &cli_backup_command, argc, argv);
    int option = cli_args_next(&args);
    if (option == CLI_ARGS_HELP)
        return CLI_OK;
    if (option == CLI_ARGS_BAD || !cli_args_operands(&args, 1, 1))
        return CLI_USAGE;
    arena_init(&arena);
    const char *path = ledger_path(&args, &arena);
    if (!path)
        goto out;
    if (pg_url_is(path)) {
        cli_usage(args.command,
                  "the ledger is a PostgreSQL database: back it up with pg_dump or the server's own means");
        goto out;
    }
    enum err_code failed = ledger_sqlite_backup(path, args.operands[0], &err);
    if (failed) {
        view_error(&err);
        code = failed == ERR_NOT_FOUND ? CLI_NOT_FOUND : CLI_FAILED;
        goto out;
    }
    stat(args.operands[0], &stat_target);
    told(&args, args.operands[0], (int64_t)stat_target.st_size);
    code = CLI_OK;
out:
    arena_release(&arena);
    return code;
}
