/* Section "relay" of the registry file: an outbox table, and the gateways that its rows go to (docs/relay.md). */
#include "daemon/config.h"
#include "daemon/config_parts.h"

#include "adapter/http.h"
#include "adapter/webhook.h"
#include "base/pg_url.h"

#include <stdlib.h>

#define AT(type, member) (offsetof(struct type, member) + 1)
#define COUNT(array)     (sizeof(array) / sizeof *(array))
#define SECOND           INT64_C(1000)
#define MINUTE           (60 * SECOND)
#define KB               INT64_C(1024)
#define MB               (1024 * KB)
#define GATEWAY_DEFAULT  "http://127.0.0.1:7070"

#define COLUMN(member_name, words)                                                                                     \
    {                                                                                                                  \
#member_name, OPTION_TEXT, .fallback = #member_name, .at = AT(config_relay, settings.columns.member_name),     \
                                   .text = words                                                                       \
    }
#define COLUMN_OR_NONE(member_name, without, words)                                                                    \
    {                                                                                                                  \
#member_name, OPTION_TEXT, .computed = without, .at = AT(config_relay, settings.columns.member_name),          \
                                   .text = words                                                                       \
    }

static const struct option columns_options[] = {
    COLUMN(id, "What a row's key is made of: unique, never used again, not null."),
    COLUMN(tool, "The tool's name."),
    COLUMN(arguments, "`jsonb`, `json` or text: an object, or null for none."),
    {"entity", OPTION_TEXT, .may_be_empty = true, .fallback = "entity", .at = AT(config_relay, settings.columns.entity),
     .text = "Rows with the same value go one after the other; null: in no order. `\"\"`: no row has one."},
    COLUMN_OR_NONE(order, "the id", "What the order within an entity is by."),
    COLUMN_OR_NONE(run_id, "none", "The run that the call belongs to."),
    COLUMN_OR_NONE(tenant, "`tenant` of `relay`", "The tenant of each row, where the gateway has `auth: none`."),
    COLUMN(status,
           "`new`, written by the application; then `admitted`, the state in which the operation ended, or `refused`."),
    COLUMN(operation_id, "The operation."),
    COLUMN(problem, "Why it was refused, failed, or goes on being tried."),
    COLUMN(attempts, "Calls without a decision, or looks since admission."),
    COLUMN(next_at, "Not before this time; null: at once."),
    COLUMN(admitted_at, "When the ledger had it."),
    COLUMN(ended_at, "When it was refused, or known to have ended."),
};
static const struct option_section columns_section = {
    .name = "relay.columns",
    .text = "What the table's columns are called: `a-z`, `0-9` and `_`.",
    .options = columns_options,
    .count = COUNT(columns_options),
};

static const struct option relay_options[] = {
    {"name", OPTION_TEXT, .fallback = "outbox", .at = AT(config_relay, settings.name),
     .text = "Part of every row's key, `outbox:NAME:ID`. Another name makes all rows new ones."},
    {"database", OPTION_TEXT, .required = true, .at = AT(config_relay, database),
     .text = "The application's PostgreSQL database (14 or newer): "
             "`postgresql://user@host:port/database?sslmode=verify-full`, or "
             "`host=… dbname=…`. `${env:NAME}` and `${file:PATH}` are expanded, by `onced relay` only; a password only "
             "so."},
    {"table", OPTION_TEXT, .fallback = "outbox", .at = AT(config_relay, settings.table),
     .text = "Also `schema.name`; made by `onced relay install`, or the application's own."},
    {"columns", OPTION_SECTION, .section = &columns_section, .at = 1, .text = "What the table's columns are called."},
    {"channel", OPTION_TEXT, .may_be_empty = true, .fallback = "onced_outbox", .at = AT(config_relay, settings.channel),
     .text = "Of NOTIFY, by which new rows are found at once; `\"\"`: by `poll` alone."},
    {"gateways", OPTION_TEXTS, .computed = "`[\"" GATEWAY_DEFAULT "\"]`", .at = AT(config_relay, gateways),
     .count_at = AT(config_relay, settings.gateway_count),
     .text = "Base URLs; when one is away, the next one. They must share one ledger."},
    {"token", OPTION_TEXT, .computed = "none", .at = AT(config_relay, token),
     .text = "Bearer token by reference (`${env:NAME}`, `${file:PATH}`), of an agent or operator."},
    {"ca", OPTION_TEXT, .computed = "the system's certificates", .at = AT(config_relay, settings.ca),
     .text = "PEM file with the certificates to trust when gateways are asked."},
    {"tenant", OPTION_TEXT, .computed = "the token's, or `default`", .at = AT(config_relay, settings.tenant),
     .text = "Where the gateway has `auth: none`."},
    {"principal", OPTION_TEXT, .computed = "the token's, or `local`", .at = AT(config_relay, settings.principal),
     .text = "The same. Results are shared within a principal, so keep it."},
    {"order", OPTION_CHOICE, .fallback = "after_completion", .choices = {"after_completion", "after_admission"},
     .at = AT(config_relay, settings.order),
     .text = "When the next row of an entity may go: when the operation before it has ended, or when it is recorded."},
    {"on_refusal", OPTION_CHOICE, .fallback = "skip", .choices = {"skip", "hold"},
     .at = AT(config_relay, settings.on_refusal),
     .text = "`hold`: a row that was refused, or whose operation failed, holds back the later ones of its entity."},
    {"poll", OPTION_DURATION, .fallback = "1s", .min = 10, .max = 10 * MINUTE, .at = AT(config_relay, settings.poll_ms),
     .text = "The table is looked at so often, whatever NOTIFY says."},
    {"wait", OPTION_DURATION, .fallback = "1s", .max = 2 * MINUTE, .at = AT(config_relay, settings.wait_ms),
     .text = "A call waits this long for the operation's end; later ends are asked for. At most a quarter of `lease`."},
    {"lease", OPTION_DURATION, .fallback = "30s", .min = 2 * SECOND, .max = 10 * MINUTE,
     .at = AT(config_relay, settings.lease_ms),
     .text =
         "The server takes rows from a relay that stands still for so long (`idle_in_transaction_session_timeout`)."},
    {"batch", OPTION_INTEGER, .fallback = "500", .min = 1, .max = RELAY_BATCH_MAX,
     .at = AT(config_relay, settings.batch), .text = "Rows of one transaction."},
    {"in_flight", OPTION_INTEGER, .fallback = "64", .min = 1, .max = RELAY_IN_FLIGHT_MAX,
     .at = AT(config_relay, settings.in_flight), .text = "Calls at once."},
    {"arguments_bytes_max", OPTION_SIZE, .fallback = "1MB", .min = 1, .max = 16 * MB,
     .at = AT(config_relay, settings.arguments_bytes_max),
     .text = "A row with more is refused. The gateway has a limit of its own, `server.body_bytes_max`."},
};
const struct option_section config_relay_section = {
    .name = "relay",
    .text = "The outbox relay, `onced relay`; see relay.md. The daemon does nothing with it.",
    .options = relay_options,
    .count = COUNT(relay_options),
};

static const char *settled(const struct loader *loader, const char *text)
{
    struct arena *arena = &loader->loaded->arena;
    struct json *outer = json_object(arena), *inner = json_object(arena);
    json_set(arena, inner, STR("text"), json_string(str_of(text)));
    json_set(arena, outer, STR("members"), *inner);
    config_settle_members(loader, outer, "members");
    return arena_copy_str(arena, json_get_text(json_get(outer, "members"), "text"));
}

/* References need not hold where the daemon runs: that they do not is a warning here and an error of `onced relay`.
 * NULL after that. */
static const char *expanded(const struct loader *loader, struct config *config, const char *pointer, const char *text,
                            bool *referred)
{
    char *value = NULL;
    const char *kept = NULL;
    struct err err = {0};
    if (http_secret_expand(settled(loader, text), &value, referred, &err))
        problems_warn(loader->problems, pointer, "%s: onced relay cannot run with this", err.text);
    else
        kept = arena_copy_text(&config->arena, value);
    free(value);
    return kept;
}

/* libpq's words may repeat what is wrong: not where it can be a secret. */
static void read_database(const struct loader *loader, struct config *config)
{
    struct config_relay *relay = &config->relay;
    bool referred = false, password = false;
    const char *fault = NULL, *url = expanded(loader, config, "/relay/database", relay->database, &referred);
    if (!url)
        return;
    relay->settings.database = url;
    relay->settings.database_shown = pg_url_shown(url, &config->arena, &fault, &password);
    if (fault)
        problems_add(loader->problems, "/relay/database", "is not understood%s%s", referred ? "" : ": ",
                     referred ? "" : fault);
    else if (password && !referred)
        problems_add(loader->problems, "/relay/database",
                     "holds a password: give it by reference, ${env:NAME} or ${file:PATH}");
}

static void read_token(const struct loader *loader, struct config *config)
{
    bool referred = false;
    const char *token = expanded(loader, config, "/relay/token", config->relay.token, &referred);
    size_t n = 0;
    if (!token)
        return;
    while (token[n] > ' ' && token[n] <= '~')
        n++;
    if (!referred)
        problems_add(loader->problems, "/relay/token", "a secret is given by reference: ${env:NAME} or ${file:PATH}");
    else if (n == 0 || token[n])
        problems_add(loader->problems, "/relay/token", "does not hold a token: it is empty, or has odd bytes in it");
    config->relay.settings.token = token;
}

/* A column that the file does not name is "", as one that it says is not there. */
static void fill_columns(struct relay_columns *columns)
{
    const char **optional[] = {&columns->order, &columns->run_id, &columns->tenant};
    for (size_t i = 0; i < COUNT(optional); i++)
        if (!*optional[i])
            *optional[i] = "";
}

static void check_names(const struct loader *loader, const struct config_relay *relay)
{
    const struct relay_settings *settings = &relay->settings;
    size_t n = strspn(settings->name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.");
    if (settings->name[n] || n > RELAY_NAME_BYTES_MAX)
        problems_add(loader->problems, "/relay/name", "expected 1 to %d letters, digits, _, - or .",
                     RELAY_NAME_BYTES_MAX);
    if (!relay_name_valid(settings->table, true))
        problems_add(loader->problems, "/relay/table", "expected a name of a-z, 0-9 and _, or schema.name");
    if (settings->channel[0] && !relay_name_valid(settings->channel, false))
        problems_add(loader->problems, "/relay/channel", "expected a name of a-z, 0-9 and _");
    for (size_t i = 0; i < COUNT(columns_options); i++) {
        const char *name = *(const char *const *)((const char *)relay + columns_options[i].at - 1);
        bool none = !name[0] && (columns_options[i].may_be_empty || columns_options[i].computed);
        if (!none && !relay_name_valid(name, false))
            problems_add(loader->problems,
                         arena_printf(loader->problems->arena, "/relay/columns/%s", columns_options[i].name),
                         "expected a name of a-z, 0-9 and _");
    }
}

static void read_gateways(const struct loader *loader, struct config *config)
{
    static const char *const fallback[] = {GATEWAY_DEFAULT};
    struct config_relay *relay = &config->relay;
    struct relay_settings *settings = &relay->settings;
    if (!relay->gateways) {
        relay->gateways = fallback;
        settings->gateway_count = 1;
    }
    if (settings->gateway_count < 1 || settings->gateway_count > RELAY_GATEWAYS_MAX)
        problems_add(loader->problems, "/relay/gateways", "expected 1 to %d URLs", RELAY_GATEWAYS_MAX);
    const char **urls = arena_zero(&config->arena, (settings->gateway_count + 1) * sizeof *urls);
    for (size_t i = 0; i < settings->gateway_count; i++) {
        const char *pointer = arena_printf(loader->problems->arena, "/relay/gateways/%zu", i), *fault;
        bool plain = false;
        size_t n = strlen(relay->gateways[i]);
        while (n > 0 && relay->gateways[i][n - 1] == '/')
            n--;
        urls[i] = arena_copy_str(&config->arena, (struct str){relay->gateways[i], n});
        fault = webhook_url_fault(urls[i], &plain);
        if (!fault && strchr(urls[i], '?'))
            fault = "has a query, expected the address of a gateway";
        if (fault)
            problems_add(loader->problems, pointer, "%s", fault);
        else if (plain)
            problems_warn(loader->problems, pointer,
                          "plain HTTP to another machine: the token and all rows can be read on the way");
    }
    settings->gateways = urls;
}

void config_relay_finish(const struct loader *loader, struct config *config)
{
    struct config_relay *relay = &config->relay;
    struct relay_settings *settings = &relay->settings;
    if (!relay->database)
        return;
    read_database(loader, config);
    if (relay->token)
        read_token(loader, config);
    fill_columns(&settings->columns);
    check_names(loader, relay);
    read_gateways(loader, config);
    if (settings->ca)
        settings->ca = config_resolve_path(&config->arena, loader->folder, str_of(settings->ca));
    if (settings->wait_ms > settings->lease_ms / 4)
        problems_add(loader->problems, "/relay/wait", "is longer than a quarter of the lease");
}
