/* The command line: one file per subcommand, one table (commands.c) that knows them all. Each subcommand gets argc and
 * argv with its own name in argv[0] ("check") and returns one of the exit codes below. */
#ifndef CLI_CLI_H
#define CLI_CLI_H

/* What the program's exit status says, the same for every subcommand (onced(1)). */
enum cli_exit {
    CLI_OK = 0,          /* done; call: the effect is proven (or the read was answered) */
    CLI_FAILED = 1,      /* failed or refused: proven not to have happened, or not done at all */
    CLI_USAGE = 2,       /* the command line is wrong, or a file it names cannot be read */
    CLI_OPEN = 3,        /* not decided yet: still running, or the outcome is unknown. Do not repeat; ask again */
    CLI_UNREACHABLE = 4, /* no daemon or no ledger answers, or cannot work now: nothing is known to have been done */
    CLI_NOT_FOUND = 5,   /* no such operation, tool, incident or token */
    CLI_DENIED = 6,      /* token missing, wrong or not entitled; the ledger does not let us in */
    CLI_LEDGER_BAD = 7,  /* the ledger can not be used: newer schema, damage, wrong encoding, no such database, … */
    CLI_NO_ADDRESS = 8,  /* serve: cannot listen */
    CLI_IN_USE = 9,      /* ledger: a daemon has it */
    CLI_UNSOUND = 10     /* ledger: rows do not fit together, or a copy differs */
};

int cli_compensate(int argc, char **argv);
int cli_approve(int argc, char **argv);
int cli_backup(int argc, char **argv);
int cli_budgets(int argc, char **argv);
int cli_call(int argc, char **argv);
int cli_cancel(int argc, char **argv);
int cli_chaos(int argc, char **argv);
int cli_check(int argc, char **argv);
int cli_completion(int argc, char **argv);
int cli_deny(int argc, char **argv);
int cli_entities(int argc, char **argv);
int cli_eval(int argc, char **argv);
int cli_fake_provider(int argc, char **argv);
int cli_guard(int argc, char **argv);
int cli_help(int argc, char **argv);
int cli_inbox(int argc, char **argv);
int cli_incidents(int argc, char **argv);
int cli_init(int argc, char **argv);
int cli_ledger(int argc, char **argv);
int cli_list(int argc, char **argv);
int cli_mcp(int argc, char **argv);
int cli_pending(int argc, char **argv);
int cli_relay(int argc, char **argv);
int cli_resolve(int argc, char **argv);
int cli_retry(int argc, char **argv);
int cli_serve(int argc, char **argv);
int cli_simulate(int argc, char **argv);
int cli_show(int argc, char **argv);
int cli_sql(int argc, char **argv);
int cli_token(int argc, char **argv);
int cli_trace(int argc, char **argv);
int cli_version(int argc, char **argv);

#endif
