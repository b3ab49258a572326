#include "cli/cli.h"
#include "cli/command.h"
#include "cli/ledger_path.h"
#include "cli/view.h"

#include "base/env.h"
#include "base/pg_url.h"
#include "base/ulid.h"
#include "base/units.h"
#include "daemon/daemon.h"
#include "door/auth.h"
#include "ledger/ledger.h"
#include "ledger/open.h"

#include <errno.h>
#include <inttypes.h>
#include <unistd.h>

enum { TENANT = 256, PRINCIPAL, ROLE, EXPIRES, TOOLS, ENTITIES };

static const struct cli_option options[] = {
    {TENANT, "tenant", "NAME", NULL, "create: what the token gives access to (default: default)"},
    {PRINCIPAL, "principal", "NAME", NULL, "create: who its holder is; one name per agent or person"},
    {ROLE, "role", "ROLE", "agent approver operator admin", "create: agent, approver, operator or admin"},
    {TOOLS, "tools", "PATTERN", NULL, "create: only tools of such names (refund.*); may be given again"},
    {ENTITIES, "entities", "PATTERN", NULL, "create: only such entities (order/*); may be given again"},
    {EXPIRES, "expires", "DURATION", NULL, "create: how long it is good (90d; default: until revoked)"},
    {0},
};

const struct cli_command cli_token_command = {
    .name = "token",
    .operands = "create|list|revoke [TOKEN]",
    .words = "create list revoke",
    .summary = "create, list and revoke bearer tokens",
    .text =
        "create prints the secret once; the ledger keeps only its SHA-256. revoke takes the id that list shows\n"
        "(tok_…). Without --tools and --entities a token is good for whatever its role may do; a call of a tool that\n"
        "names no entity is refused when entities are limited. All of it works while the daemon is running.",
    .options = options,
    .shared = CLI_LEDGER | CLI_JSON,
    .run = cli_token,
};

#define NAME_BYTES_MAX 128

struct token_wish {
    struct cli_args args;
    const char *tenant, *principal, *expires;
    enum role role;
    bool has_role;
    struct buf tools, entities; /* patterns, with blanks between them */
};

/* ---- output ---- */

static void member_time(struct json_out *out, const char *name, int64_t ms)
{
    char text[ENV_TIME_SIZE];
    json_out_name(out, name);
    if (ms)
        env_time_text(ms, text);
    json_out_text(out, ms ? text : NULL);
}

/* A list, or null: not limited. */
static void member_list(struct json_out *out, const char *name, const char *list)
{
    json_out_name(out, name);
    json_out_raw(out, str_of(list));
}

static void token_members(struct json_out *out, const struct token *token)
{
    json_out_member_text(out, "id", token->id);
    json_out_member_text(out, "tenant", token->tenant);
    json_out_member_text(out, "principal", token->principal);
    json_out_member_text(out, "role", role_name(token->role));
    member_list(out, "tools", token->tools);
    member_list(out, "entities", token->entities);
    member_time(out, "created_at", token->created_ms);
    member_time(out, "expires_at", token->expires_ms);
    member_time(out, "revoked_at", token->revoked_ms);
}

/* "refund.*, order.get", "all", "none". */
static const char *list_words(struct arena *arena, enum scope_kind kind, const char *text)
{
    struct scope_list list;
    return scope_list_parse(arena, kind, text, &list, NULL) ? "?" : scope_list_words(arena, &list);
}

static void print_created(bool json, const struct token *token, const char *secret, struct arena *arena)
{
    struct buf text;
    struct json_out out;
    if (!json) {
        printf("%s\n", secret); /* alone on standard output: TOKEN=$(onced token create …) */
        fflush(stdout);
        fprintf(stderr,
                "token %s for %s of tenant %s, role %s, tools: %s, entities: %s. The secret above is shown only now.\n",
                token->id, token->principal, token->tenant, role_name(token->role),
                list_words(arena, SCOPE_TOOLS, token->tools), list_words(arena, SCOPE_ENTITIES, token->entities));
        return;
    }
    buf_init(&text, 0);
    json_out_init(&out, &text);
    json_out_object(&out);
    token_members(&out, token);
    json_out_member_text(&out, "token", secret);
    json_out_end_object(&out);
    printf("%s\n", text.p);
    explicit_bzero(text.p, text.n);
    buf_release(&text);
}

static void print_list_json(const struct ledger_token_list *list)
{
    struct buf text;
    struct json_out out;
    buf_init(&text, 0);
    json_out_init(&out, &text);
    json_out_object(&out);
    json_out_name(&out, "tokens");
    json_out_array(&out);
    for (size_t i = 0; i < list->count; i++) {
        json_out_object(&out);
        token_members(&out, &list->tokens[i]);
        json_out_end_object(&out);
    }
    json_out_end_array(&out);
    json_out_end_object(&out);
    printf("%s\n", text.p);
    buf_release(&text);
}

static struct out_cell token_state(const struct token *token, int64_t now_ms)
{
    if (token->revoked_ms)
        return (struct out_cell){STR("revoked"), OUT_RED};
    if (token->expires_ms && token->expires_ms <= now_ms)
        return (struct out_cell){STR("expired"), OUT_RED};
    return (struct out_cell){STR("good"), OUT_GREEN};
}

static struct str day(struct arena *arena, int64_t ms)
{
    char text[ENV_TIME_SIZE] = "";
    if (!ms)
        return STR("-");
    env_time_text(ms, text);
    return str_of(arena_printf(arena, "%.10s", text));
}

static void print_list(const struct ledger_token_list *list, struct arena *arena)
{
    static const char *const heads[] = {"TOKEN",    "TENANT", "PRINCIPAL", "ROLE",   "TOOLS",
                                        "ENTITIES", "STATE",  "CREATED",   "EXPIRES"};
    int64_t now_ms = env_system()->now_ms(env_system());
    struct out_table table;
    struct out out;
    out_init(&out, stdout);
    if (list->count == 0) {
        out_printf(&out, "no tokens\n");
        return;
    }
    out_table_init(&table, arena, heads, sizeof heads / sizeof heads[0]);
    for (size_t i = 0; i < list->count; i++) {
        const struct token *token = &list->tokens[i];
        struct out_cell *cells = out_table_row(&table);
        cells[0].text = str_of(token->id);
        cells[1].text = str_of(token->tenant);
        cells[2].text = str_of(token->principal);
        cells[3].text = str_of(role_name(token->role));
        cells[4].text = str_of(list_words(arena, SCOPE_TOOLS, token->tools));
        cells[5].text = str_of(list_words(arena, SCOPE_ENTITIES, token->entities));
        cells[6] = token_state(token, now_ms);
        cells[7].text = day(arena, token->created_ms);
        cells[8].text = day(arena, token->expires_ms);
    }
    out_table_print(&out, &table);
}

/* ---- the three verbs ---- */

static int failed(const struct ledger_request *request)
{
    view_error(&request->err);
    return request->code == ERR_NOT_FOUND ? CLI_NOT_FOUND : CLI_FAILED;
}

/* The list as it is stored; NULL: not limited. */
static enum err_code stored_list(struct arena *arena, enum scope_kind kind, const struct buf *words, const char *option,
                                 const char **out, struct err *err)
{
    struct scope_list list = {0};
    struct json value = json_string(buf_str(words));
    enum err_code code = words->n ? scope_list_read(arena, kind, &value, option, &list, err) : ERR_NONE;
    if (!code)
        *out = scope_list_text(arena, &list);
    return code;
}

static int token_create(const struct token_wish *wish, struct ledger *ledger, struct arena *arena)
{
    char secret[AUTH_TOKEN_SIZE], id[ULID_CHARS + 1];
    struct ulid_source ids;
    struct err err = {0};
    int64_t life_ms = 0;
    struct env *env = env_system();
    if (wish->expires && units_duration_ms(str_of(wish->expires), &life_ms, &err))
        return cli_usage(&cli_token_command, "--expires: %s", err.text);
    const char *tools = NULL, *entities = NULL;
    if (stored_list(arena, SCOPE_TOOLS, &wish->tools, "--tools", &tools, &err) ||
        stored_list(arena, SCOPE_ENTITIES, &wish->entities, "--entities", &entities, &err))
        return cli_usage(&cli_token_command, "%s", err.text);
    ulid_source_init(&ids, env);
    ulid_next(&ids, id);
    struct ledger_request request = {.command = LEDGER_TOKEN_ADD, .arena = arena};
    struct token *token = &request.token.token;
    token->id = arena_printf(arena, "tok_%s", id);
    auth_token_make(env, secret, &token->secret_hash);
    token->tenant = wish->tenant;
    token->principal = wish->principal;
    token->role = wish->role;
    token->tools = tools;
    token->entities = entities;
    token->created_ms = env->now_ms(env);
    token->expires_ms = life_ms ? token->created_ms + life_ms : 0;
    int code = ledger_call(ledger, &request) ? failed(&request) : CLI_OK;
    if (code == CLI_OK)
        print_created(wish->args.json, token, secret, arena);
    explicit_bzero(secret, sizeof secret);
    return code;
}

static int token_list(const struct token_wish *wish, struct ledger *ledger, struct arena *arena)
{
    struct ledger_request request = {.command = LEDGER_TOKEN_LIST, .arena = arena};
    if (ledger_call(ledger, &request))
        return failed(&request);
    if (wish->args.json)
        print_list_json(&request.token_list);
    else
        print_list(&request.token_list, arena);
    return CLI_OK;
}

static int token_revoke(const struct token_wish *wish, struct ledger *ledger, struct arena *arena)
{
    struct env *env = env_system();
    struct ledger_request request = {.command = LEDGER_TOKEN_REVOKE, .arena = arena};
    request.token.token.id = wish->args.operands[1];
    request.token.token.revoked_ms = env->now_ms(env);
    if (ledger_call(ledger, &request))
        return failed(&request);
    if (wish->args.json)
        printf("{\"id\":\"%s\",\"revoked\":true}\n", request.token.token.id);
    else
        printf("%s is revoked\n", wish->args.operands[1]);
    return CLI_OK;
}

/* ---- the command line ---- */

static bool name_fits(const char *option, const char *text)
{
    bool good = text[0] && strlen(text) <= NAME_BYTES_MAX;
    for (const char *p = text; *p; p++)
        good = good && *p > ' ' && *p != 0x7F;
    if (!good)
        cli_usage(&cli_token_command, "--%s: expected 1 to %d characters without spaces", option, NAME_BYTES_MAX);
    return good;
}

static bool add_words(struct buf *words, const char *option, const char *value)
{
    if (!value[strspn(value, " ")]) {
        cli_usage(&cli_token_command, "--%s: expected a pattern; without the option the token is not limited", option);
        return false;
    }
    buf_printf(words, "%s%s", words->n ? " " : "", value);
    return true;
}

static bool take(struct token_wish *wish, int option, const char *value)
{
    switch (option) {
    case TENANT: wish->tenant = value; return name_fits("tenant", value);
    case PRINCIPAL: wish->principal = value; return name_fits("principal", value);
    case EXPIRES: wish->expires = value; return true;
    case TOOLS: return add_words(&wish->tools, "tools", value);
    case ENTITIES: return add_words(&wish->entities, "entities", value);
    case ROLE:
        wish->has_role = role_from_name(str_of(value), &wish->role);
        if (!wish->has_role)
            cli_usage(&cli_token_command, "--role %s: expected agent, approver, operator or admin", value);
        return wish->has_role;
    }
    return true;
}

enum verb { VERB_CREATE, VERB_LIST, VERB_REVOKE };

static bool verb_read(const struct token_wish *wish, enum verb *verb)
{
    const struct cli_args *args = &wish->args;
    const char *word = args->operand_count > 0 ? args->operands[0] : "";
    bool create = strcmp(word, "create") == 0, list = strcmp(word, "list") == 0, revoke = strcmp(word, "revoke") == 0;
    *verb = create ? VERB_CREATE : list ? VERB_LIST : VERB_REVOKE;
    if (!create && !list && !revoke)
        cli_usage(&cli_token_command, "expected create, list or revoke TOKEN");
    else if (args->operand_count != (revoke ? 2 : 1))
        cli_usage(&cli_token_command, revoke ? "revoke takes one token id" : "%s takes no further words", word);
    else if (create && (!wish->principal || !wish->has_role))
        cli_usage(&cli_token_command, "create needs --principal NAME and --role ROLE");
    else
        return true;
    return false;
}

static int token_run(const struct token_wish *wish, enum verb verb, const char *path, struct arena *arena)
{
    struct ledger_open_options opening = {.where = path, .beside = true};
    struct ledger *ledger = NULL;
    struct err err = {0};
    int code = CLI_OK;
    if (verb != VERB_CREATE && !pg_url_is(path) && access(path, F_OK) != 0) { /* opening would make a new, empty one */
        fprintf(stderr, "onced token: %s: %m\n", path);
        return errno == ENOENT ? CLI_NOT_FOUND : CLI_FAILED;
    }
    if (ledger_open(&opening, env_system(), &ledger, &err)) {
        view_error(&err);
        return (int)daemon_ledger_exit(err.code);
    }
    switch (verb) {
    case VERB_CREATE: code = token_create(wish, ledger, arena); break;
    case VERB_LIST: code = token_list(wish, ledger, arena); break;
    case VERB_REVOKE: code = token_revoke(wish, ledger, arena); break;
    }
    ledger_close(ledger);
    return code;
}

static int token_main(struct token_wish *wish, int argc, char **argv)
{
    struct arena arena;
    enum verb verb;
    int option, code = CLI_USAGE;
    cli_args_init(&wish->args, &cli_token_command, argc, argv);
    while ((option = cli_args_next(&wish->args)) > 0) {
        if (!take(wish, option, wish->args.value))
            return CLI_USAGE;
    }
    if (option == CLI_ARGS_HELP)
        return CLI_OK;
    if (option == CLI_ARGS_BAD || !verb_read(wish, &verb))
        return CLI_USAGE;
    arena_init(&arena);
    const char *path = ledger_path(&wish->args, &arena);
    if (path)
        code = token_run(wish, verb, path, &arena);
    arena_release(&arena);
    return code;
}

int cli_token(int argc, char **argv)
{
    struct token_wish wish = {.tenant = "default"};
    buf_init(&wish.tools, 0);
    buf_init(&wish.entities, 0);
    int code = token_main(&wish, argc, argv);
    buf_release(&wish.tools);
    buf_release(&wish.entities);
    return code;
}
