#include "daemon/config.h"

#include "base/digest.h"
#include "base/mem.h"
#include "base/units.h"
#include "core/steps.h"
#include "daemon/config_auth.h"
#include "daemon/config_options.h"
#include "daemon/config_parts.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <unistd.h>

/* file ──yaml.c──▶ tree + places ──config_read.c (option table)──▶ config, tools ──config_import.c──▶ with what MCP
 * servers list ──config_provider.c, config_tool.c──▶ compiled parts ──config_policy.c, config_names.c──▶ checks;
 * problems carry pointers until the end, when yaml_find gives each its line and column. */

#define VERSION_HEX_BYTES    6     /* of the digest in policy_version */
#define MCP_START_TIMEOUT_MS 15000 /* start_timeout's default */

/* ---- loaded parts ---- */

void loaded_tool_release(struct loaded_tool *tool)
{
    http_tool_free(tool->http);
    mcp_tool_free(tool->mcp);
    command_tool_free(tool->command);
    mail_tool_free(tool->mail);
    sql_tool_free(tool->sql);
    jq_program_free(tool->approval_when);
    config_claims_release(tool);
    config_playbooks_release(tool);
    config_steps_release(tool);
    template_free(tool->key);
    normal_free(tool->normal);
    schema_free(tool->schema);
    *tool = (struct loaded_tool){0};
}

void loaded_free(struct loaded *loaded)
{
    if (!loaded)
        return;
    for (size_t i = 0; i < loaded->tool_count; i++)
        loaded_tool_release(&loaded->tools[i]);
    config_inbox_release(loaded);
    for (size_t i = 0; i < loaded->provider_count; i++) {
        http_provider_free(loaded->providers[i].http);
        mcp_provider_free(loaded->providers[i].mcp);
        command_provider_free(loaded->providers[i].command);
        mail_provider_free(loaded->providers[i].mail);
        sql_provider_free(loaded->providers[i].sql);
    }
    http_provider_free(loaded->assumed_http);
    mcp_provider_free(loaded->assumed_mcp);
    command_provider_free(loaded->assumed_command);
    mail_provider_free(loaded->assumed_mail);
    sql_provider_free(loaded->assumed_sql);
    arena_release(&loaded->arena);
    free(loaded);
}

static void loaded_destroy(void *owner)
{
    loaded_free(owner);
}

static const struct json *mapping(const struct json *root, const char *name)
{
    const struct json *value = root->type == JSON_OBJECT ? json_get(root, name) : NULL;
    return value && value->type == JSON_OBJECT ? value : NULL;
}

static void load_providers(const struct loader *loader, const struct json *root)
{
    const struct json *providers = mapping(root, "providers");
    struct loaded *loaded = loader->loaded;
    if (providers && providers->count > REGISTRY_PROVIDERS_MAX)
        problems_add(loader->problems, "/providers", "%u providers, at most %d are allowed", providers->count,
                     REGISTRY_PROVIDERS_MAX);
    else if (providers) {
        loaded->providers = arena_zero(&loaded->arena, (providers->count + 1) * sizeof *loaded->providers);
        for (uint32_t i = 0; i < providers->count; i++) {
            const struct json_member *member = &providers->members[i];
            config_provider_read(loader, member->name, &member->value,
                                 options_pointer(&loaded->arena, "/providers", member->name),
                                 &loaded->providers[loaded->provider_count++]);
        }
    }
}

/* What its server lists made the tool unusable: no reason to refuse the file, but the tool is not there. Of tools that
 * the file does not name, warnings are told by the import, for all of them together. */
static bool left_out(const struct loader *loader, const struct planned_tool *plan, size_t from, size_t errors)
{
    struct problems *problems = loader->problems;
    bool broken = problems->errors > errors;
    const char *why = "";
    if (!plan->server || (!broken && !plan->imported))
        return false;
    for (size_t i = problems->count; broken && i > from; i--) /* the first one stays */
        if (!problems->items[i - 1].warning)
            why = arena_printf(problems->arena, "%s: %s", problems->items[i - 1].pointer + strlen(plan->pointer),
                               problems->items[i - 1].text);
    problems->count = from;
    problems->errors = errors;
    if (broken)
        problems_warn(problems, plan->pointer, "tool \"%.*s\" is left out, with what server %s lists it is wrong: %s",
                      STR_ARG(plan->name), plan->server, why);
    return broken;
}

static void load_tool(const struct loader *loader, const struct planned_tool *plan)
{
    struct loaded_tool *tool = &loader->loaded->tools[loader->loaded->tool_count];
    size_t from = loader->problems->count, errors = loader->problems->errors;
    config_tool_read(loader, plan->name, plan->section, plan->pointer, tool);
    if (left_out(loader, plan, from, errors))
        loaded_tool_release(tool);
    else
        loader->loaded->tool_count++;
}

static void load_tools(const struct loader *loader, const struct json *root, const struct json *catalog,
                       const struct config *config)
{
    const struct json *tools = mapping(root, "tools"), *providers = mapping(root, "providers");
    struct loaded *loaded = loader->loaded;
    struct problems *problems = loader->problems;
    if (tools && tools->count > REGISTRY_TOOLS_MAX) {
        problems_add(problems, "/tools", "%u tools, at most %d are allowed", tools->count, REGISTRY_TOOLS_MAX);
        return;
    }
    if ((!tools || tools->count == 0) && !config->imports_tools && !config->relay.database)
        problems_warn(problems, "/tools", "no tools are defined: every call will be refused");
    struct planned_tool *plans;
    size_t count = config_plan_tools(loader, providers, tools, catalog, &plans);
    loaded->tools = arena_zero(&loaded->arena, (count + 1) * sizeof *loaded->tools);
    for (size_t i = 0; i < count; i++)
        if (!config_steps_stated(plans[i].section))
            load_tool(loader, &plans[i]);
    for (size_t i = 0; i < count; i++) /* their class is that of the tools of their steps */
        if (config_steps_stated(plans[i].section))
            load_tool(loader, &plans[i]);
}

/* ---- principals ---- */

static void load_principals(const struct loader *loader, const struct json *root)
{
    const struct json *principals = mapping(root, "principals");
    struct loaded *loaded = loader->loaded;
    struct options_reader reader = {.arena = &loaded->arena, .problems = loader->problems};
    if (principals && principals->count > REGISTRY_ACCESS_MAX) {
        problems_add(loader->problems, "/principals", "%u principals, at most %d are allowed", principals->count,
                     REGISTRY_ACCESS_MAX);
        return;
    }
    loaded->access = arena_zero(&loaded->arena, ((principals ? principals->count : 0) + 1) * sizeof *loaded->access);
    for (uint32_t i = 0; principals && i < principals->count; i++) {
        const struct json_member *member = &principals->members[i];
        struct registry_access *access = &loaded->access[loaded->access_count++];
        const char *pointer = options_pointer(&loaded->arena, "/principals", member->name);
        access->principal = arena_copy_str(&loaded->arena, member->name);
        if (member->name.n == 0 || member->name.n > PRINCIPAL_BYTES_MAX)
            problems_add(loader->problems, pointer, "a principal's name is 1 to %d characters", PRINCIPAL_BYTES_MAX);
        options_read(&reader, &config_principal_section, &member->value, pointer, access);
    }
}

/* Tools that nobody's patterns could ever fit are most likely misspelt. Only where all tools are known. */
static void check_principals(const struct loader *loader, const struct json *catalog)
{
    const struct loaded *loaded = loader->loaded;
    for (size_t i = 0; i < loaded->provider_count; i++)
        if (loaded->providers[i].core.kind == PROVIDER_MCP &&
            !(catalog && json_get(catalog, loaded->providers[i].core.name)))
            return;
    for (size_t i = 0; i < loaded->access_count; i++) {
        const struct registry_access *access = &loaded->access[i];
        for (size_t k = 0; k < access->tool_count; k++) {
            bool any = false;
            for (size_t t = 0; t < loaded->tool_count && !any; t++)
                any = fnmatch(access->tools[k], loaded->tools[t].core.name, 0) == 0;
            if (!any)
                problems_warn(
                    loader->problems,
                    arena_printf(loader->problems->arena, "%s/tools/%zu",
                                 options_pointer(loader->problems->arena, "/principals", str_of(access->principal)), k),
                    "no tool has such a name");
        }
    }
}

/* ---- server ---- */

static bool is_loopback(const char *host, bool *is_address)
{
    struct in_addr v4;
    struct in6_addr v6;
    *is_address = true;
    if (strcmp(host, "localhost") == 0)
        return true;
    if (inet_pton(AF_INET, host, &v4) == 1)
        return (ntohl(v4.s_addr) >> 24) == 127;
    if (inet_pton(AF_INET6, host, &v6) == 1)
        return IN6_IS_ADDR_LOOPBACK(&v6) || (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == 127);
    *is_address = false;
    return false;
}

/* "ADDRESS:PORT" or "[IPV6]:PORT". */
static bool split_listen(struct arena *arena, const char *text, struct config_server *server)
{
    const char *colon = strrchr(text, ':');
    if (!colon || colon == text)
        return false;
    struct str host = {text, (size_t)(colon - text)};
    bool brackets = host.p[0] == '[' && host.p[host.n - 1] == ']' && host.n > 2;
    if (brackets)
        host = (struct str){host.p + 1, host.n - 2};
    else if (memchr(host.p, ':', host.n))
        return false;
    size_t digits = strspn(colon + 1, "0123456789");
    unsigned long port = digits > 0 && digits <= 5 && colon[1 + digits] == '\0' ? strtoul(colon + 1, NULL, 10) : 65536;
    if (port > 65535)
        return false;
    bool is_address;
    const char *name = arena_copy_str(arena, host);
    bool loopback = is_loopback(name, &is_address);
    if (!is_address)
        return false;
    server->host = name;
    server->port = (unsigned)port;
    server->loopback = loopback;
    return true;
}

static void check_file(struct problems *problems, const char *pointer, const char *path)
{
    if (access(path, R_OK) != 0)
        problems_warn(problems, pointer, "%s cannot be read now: %s", path, strerror(errno));
}

static void finish_server(struct config *config, const char *folder, struct problems *problems)
{
    struct config_server *server = &config->server;
    config_links_finish(server, &config->arena, problems);
    const char *listen = server->host; /* as the option table stored it */
    if (!split_listen(&config->arena, listen, server)) {
        problems_add(problems, "/server/listen",
                     "\"%.60s\" is not an address and port, expected for example 127.0.0.1:7070 or [::1]:7070", listen);
        server->host = "127.0.0.1";
        server->loopback = true;
    }
    if (server->tls_certificate && server->tls_key) {
        server->tls_certificate = config_resolve_path(&config->arena, folder, str_of(server->tls_certificate));
        server->tls_key = config_resolve_path(&config->arena, folder, str_of(server->tls_key));
        check_file(problems, "/server/tls/certificate", server->tls_certificate);
        check_file(problems, "/server/tls/key", server->tls_key);
    }
    if (server->loopback)
        return;
    if (server->auth != CONFIG_AUTH_TOKENS)
        problems_add(problems, "/server/listen",
                     "listening on %s needs auth: tokens, or anybody who can reach it may call tools", server->host);
    if (!server->tls_certificate && !server->insecure_listen)
        problems_add(problems, "/server/listen",
                     "listening on %s needs tls, or insecure_listen: true behind something that encrypts",
                     server->host);
}

/* The compiled sections are the adapter's own; what the daemon has to know of them is read here. */
static void finish_servers(struct config *config, const struct json *providers)
{
    for (uint32_t i = 0; providers && i < providers->count; i++) {
        const struct json *section = &providers->members[i].value;
        if (config_provider_kind(section) != OPTION_MCP)
            continue;
        int64_t timeout_ms = 0;
        struct str stated = json_get_text(json_get(section, "mcp"), "start_timeout");
        if (!stated.p || units_duration_ms(stated, &timeout_ms, NULL))
            timeout_ms = MCP_START_TIMEOUT_MS;
        config->has_mcp_servers = true;
        config->imports_tools = config->imports_tools || json_get(json_get(section, "mcp"), "import");
        if (timeout_ms > config->mcp_start_timeout_ms_max)
            config->mcp_start_timeout_ms_max = timeout_ms;
    }
}

void config_free(struct config *config)
{
    if (!config)
        return;
    arena_release(&config->arena);
    free(config);
}

bool config_same_process(const struct config *a, const struct config *b)
{
    const struct config_server *x = &a->server, *y = &b->server;
    return text_equal(a->ledger.where, b->ledger.where) && text_equal(x->host, y->host) && x->port == y->port &&
           x->auth == y->auth && x->insecure_listen == y->insecure_listen &&
           text_equal(x->tls_certificate, y->tls_certificate) && text_equal(x->tls_key, y->tls_key) &&
           x->connections_max == y->connections_max && x->body_bytes_max == y->body_bytes_max &&
           x->in_flight_max == y->in_flight_max && x->stop_timeout_ms == y->stop_timeout_ms &&
           text_equal(x->links.base, y->links.base) && x->links.expires_ms == y->links.expires_ms &&
           digest_equal(&x->jwt_digest, &y->jwt_digest);
}

/* ---- loading ---- */

/* "dir/" of "dir/file.yaml", "" of "file.yaml". */
static const char *folder_of(struct arena *arena, const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? arena_copy_str(arena, (struct str){path, (size_t)(slash - path) + 1}) : "";
}

/* Of the text, not of what secrets expand to: a rotated token is no new policy. With what MCP servers list: a tool that
 * its server changed is one. */
static void policy_version(struct loaded *loaded, const struct json *root, char out[2 * VERSION_HEX_BYTES + 1])
{
    const struct json *providers = mapping(root, "providers"), *stated = mapping(root, "tools");
    struct json *tools = json_object(&loaded->arena);
    struct buf canonical;
    buf_init(&canonical, 0);
    if (providers)
        json_canonical(&canonical, providers);
    buf_add_char(&canonical, '\n');
    for (size_t i = 0; i < loaded->tool_count; i++)
        json_set(&loaded->arena, tools, str_of(loaded->tools[i].core.name), *loaded->tools[i].section);
    if (stated || tools->count)
        json_canonical(&canonical, tools);
    buf_add_char(&canonical, '\n');
    struct digest digest = digest_sha256(buf_str(&canonical));
    digest_hex(&digest, VERSION_HEX_BYTES, out);
    buf_release(&canonical);
}

static enum err_code make_registry(struct loaded *loaded, const struct json *root, struct registry **out,
                                   struct err *err)
{
    const struct tool **tools = mem_alloc((loaded->tool_count + 1) * sizeof *tools);
    const struct provider **providers = mem_alloc((loaded->provider_count + 1) * sizeof *providers);
    for (size_t i = 0; i < loaded->tool_count; i++)
        tools[i] = &loaded->tools[i].core;
    for (size_t i = 0; i < loaded->provider_count; i++)
        providers[i] = &loaded->providers[i].core;
    char version[2 * VERSION_HEX_BYTES + 1];
    policy_version(loaded, root, version);
    enum err_code code = registry_new(tools, loaded->tool_count, providers, loaded->provider_count, version,
                                      loaded_destroy, loaded, out, err);
    if (!code) {
        registry_restrict(*out, loaded->access, loaded->access_count);
        registry_listen(*out, loaded->sources, loaded->source_count);
    }
    free(tools);
    free(providers);
    return code;
}

/* The tree is valid YAML: everything else is found here. */
static void read_tree(const struct loader *loader, const struct json *root, const struct json *catalog,
                      struct config *config)
{
    struct options_reader reader = {.arena = &config->arena, .problems = loader->problems};
    options_read(&reader, &config_file, root, "", config);
    const struct config_auth_reader auth = {&config->arena, loader->problems, loader->folder};
    const struct json *server = mapping(root, "server");
    config_auth_read(&auth, server ? mapping(server, "jwt") : NULL, &config->server);
    finish_server(config, loader->folder, loader->problems);
    config_ledger_finish(loader, config);
    config_notify_finish(loader, config);
    config_relay_finish(loader, config);
    load_providers(loader, root);
    config_budgets_read(loader, mapping(root, "budgets"));
    finish_servers(config, mapping(root, "providers"));
    config_inbox_read(loader, mapping(root, "inbox"));
    load_tools(loader, root, catalog, config);
    config_playbooks_check(loader);
    config_steps_check(loader);
    config_inbox_check(loader);
    config_approval_check(loader, &config->server);
    load_principals(loader, root);
    check_principals(loader, catalog);
}

enum err_code config_load_text_with(const char *path, struct str text, const struct json *catalog,
                                    struct config **config_out, struct registry **registry_out,
                                    struct config_report *report)
{
    report->path = arena_copy_text(&report->arena, path);
    struct loaded *loaded = mem_zero(sizeof *loaded);
    struct config *config = mem_zero(sizeof *config);
    arena_init(&loaded->arena);
    arena_init(&config->arena);
    config->path = arena_copy_text(&config->arena, path);
    struct yaml yaml;
    struct registry *registry = NULL;
    struct err err = {0};
    enum err_code code = yaml_parse(&loaded->arena, text, &yaml);
    if (code) {
        config_report_yaml(report, &yaml);
        goto out;
    }
    struct problems problems;
    problems_init(&problems, &report->arena);
    struct loader loader = {loaded, &problems, folder_of(&loaded->arena, path)};
    read_tree(&loader, yaml.root, catalog, config);
    config_report_problems(report, &yaml, &problems);
    code = problems.errors ? ERR_INVALID : make_registry(loaded, yaml.root, &registry, &err);
    if (code == ERR_NONE) {
        loaded = NULL; /* belongs to the registry now */
        if (registry_out)
            *registry_out = registry_ref(registry);
        if (config_out) {
            *config_out = config;
            config = NULL;
        }
    } else if (!problems.errors) {
        config_report_one(report, err.text);
    }
out:
    registry_unref(registry);
    loaded_free(loaded);
    config_free(config);
    return code;
}

enum err_code config_load_with(const char *path, const struct json *catalog, struct config **config,
                               struct registry **registry, struct config_report *report)
{
    struct buf text;
    buf_init(&text, CONFIG_BYTES_MAX);
    enum err_code code = config_read_file(path, "a registry file", &text, report);
    if (!code)
        code = config_load_text_with(path, buf_str(&text), catalog, config, registry, report);
    buf_release(&text);
    return code;
}

enum err_code config_load(const char *path, struct config **config, struct registry **registry,
                          struct config_report *report)
{
    return config_load_with(path, NULL, config, registry, report);
}

enum err_code config_load_text(const char *path, struct str text, struct config **config, struct registry **registry,
                               struct config_report *report)
{
    return config_load_text_with(path, text, NULL, config, registry, report);
}

/* ---- onced check ---- */

static size_t warning_count(const struct config_report *report)
{
    size_t warnings = 0;
    for (size_t i = 0; i < report->count; i++)
        warnings += report->items[i].warning;
    return warnings;
}

static void print_json(const struct config_report *report, const struct registry *registry, FILE *file)
{
    struct buf buf;
    struct json_out out;
    buf_init(&buf, 0);
    json_out_init(&out, &buf);
    json_out_object(&out);
    json_out_member_text(&out, "file", report->path);
    json_out_member_bool(&out, "ok", registry != NULL);
    json_out_member_int(&out, "errors", (int64_t)report->errors);
    json_out_member_int(&out, "warnings", (int64_t)warning_count(report));
    if (registry) {
        json_out_member_int(&out, "tools", (int64_t)registry_tool_count(registry));
        json_out_member_text(&out, "policy_version", registry_policy_version(registry));
    }
    json_out_name(&out, "problems");
    json_out_array(&out);
    for (size_t i = 0; i < report->count; i++) {
        const struct config_problem *item = &report->items[i];
        json_out_object(&out);
        json_out_member_int(&out, "line", item->line);
        json_out_member_int(&out, "column", item->column);
        json_out_member_text(&out, "pointer", item->pointer);
        json_out_member_text(&out, "severity", item->warning ? "warning" : "error");
        json_out_member_text(&out, "message", item->text);
        json_out_end_object(&out);
    }
    json_out_end_array(&out);
    json_out_end_object(&out);
    fprintf(file, "%s\n", buf_str(&buf).p);
    buf_release(&buf);
}

static void print_text(const struct config_report *report, const struct registry *registry, FILE *file)
{
    config_report_print(report, file);
    if (registry) {
        size_t tools = registry_tool_count(registry);
        fprintf(file, "%s: fine, %zu tool%s, policy %s\n", report->path, tools, tools == 1 ? "" : "s",
                registry_policy_version(registry));
    }
    for (size_t i = 0; registry && i < registry_tool_count(registry); i++) {
        const struct tool *tool = registry_tool_at(registry, i);
        if (tool->steps) /* the file does not say its class */
            fprintf(file, "  %s: %zu step%s, class %s\n", tool->name, tool->steps->count,
                    tool->steps->count == 1 ? "" : "s", tool_class_name(tool->class));
    }
}

int config_check(const char *path, const struct json *catalog, bool json, FILE *out)
{
    struct config_report report;
    struct registry *registry = NULL;
    config_report_init(&report);
    enum err_code code = config_load_with(path, catalog, NULL, &registry, &report);
    if (json)
        print_json(&report, registry, out);
    else
        print_text(&report, registry, out);
    int status = report.unreadable ? 2 : code != ERR_NONE;
    registry_unref(registry);
    config_report_release(&report);
    return status;
}
