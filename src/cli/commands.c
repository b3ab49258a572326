/* All subcommands. The one whose command line is read elsewhere (fake-provider) is described here. */
#include "cli/cli.h"
#include "cli/command.h"

static const struct cli_option fake_provider_options[] = {
    {256, "port", "N", NULL, "listen on this port; 0, the default, takes a free one"},
    {257, "listen", "ADDRESS", NULL, "IPv4 address (default 127.0.0.1)"},
    {258, "faults", "LIST", NULL, "seeded probabilities: timeout_after_commit:500=0.1,5xx_committed=0.05"},
    {259, "seed", "N", NULL, "seed of the probabilities (default 1)"},
    {260, "contract", "NAME", "stripe qonto checkout truelayer solid easyship epay", "how idempotency keys behave"},
    {261, "set", "NAME=VALUE", NULL, "any setting of POST /_fake/config, such as keys=ignore"},
    {262, "objects-max", "N", NULL, "objects and keys kept, the oldest are forgotten"},
    {263, "requests-max", "N", NULL, "requests kept for GET /_fake/requests; 0 = none"},
    {264, "connections-max", "N", NULL, "connections at once"},
    {0},
};

static const struct cli_command fake_provider_command = {
    .name = "fake-provider",
    .operands = "",
    .summary = "run a payment-like provider that fails on demand",
    .options = fake_provider_options,
    .run = cli_fake_provider,
};

const struct cli_command *const cli_commands[] = {
    &cli_serve_command,      &cli_mcp_command,       &cli_check_command,
    &cli_eval_command,       &cli_simulate_command,  &cli_chaos_command,
    &cli_init_command,       &cli_call_command,      &cli_guard_command,
    &cli_show_command,       &cli_list_command,      &cli_pending_command,
    &cli_approve_command,    &cli_deny_command,      &cli_trace_command,
    &cli_resolve_command,    &cli_retry_command,     &cli_cancel_command,
    &cli_compensate_command, &cli_inbox_command,     &cli_incidents_command,
    &cli_entities_command,   &cli_budgets_command,   &cli_backup_command,
    &cli_ledger_command,     &cli_sql_command,       &cli_relay_command,
    &cli_token_command,      &fake_provider_command, &cli_completion_command,
    &cli_version_command,    &cli_help_command,      NULL,
};
