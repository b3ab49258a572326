/* The registry in force.
 *
 *   file ──SIGHUP──► text ──────────────┐
 *                                       ├─► registry ─► engine, MCP hub, MCP door    all or nothing: else the former
 * one MCP servers ─► lists ─► LEDGER.tools ┘                                           stays
 */
#include "daemon/daemon_parts.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/pg_url.h"
#include "daemon/tool_lists.h"

#include <stdio.h>
#include <stdlib.h>

static bool has_line(const char *text, struct str line)
{
    for (; text && *text; text += strcspn(text, "\n") + 1)
        if (strncmp(text, line.p, line.n) == 0)
            return true;
    return false;
}

/* At a change of the servers' lists only what was not told before: the same warnings again would hide the new ones. */
static void print_report(const char *text, const char *before)
{
    for (size_t n; *text; text += n) {
        n = strcspn(text, "\n") + 1; /* each line has its end */
        if (!has_line(before, (struct str){text, n}))
            fwrite(text, 1, n, stderr);
    }
}

static void tell(struct daemon *daemon, const struct config_report *report, enum err_code code, bool always)
{
    char *text = NULL;
    size_t size;
    bool quiet = !code && daemon->options->mcp; /* which starts again and again */
    FILE *file = open_memstream(&text, &size);
    if (!file)
        mem_exhausted("stdio");
    config_report_print(report, file);
    fclose(file);
    if (!quiet)
        print_report(text, always ? NULL : daemon->report);
    free(daemon->report);
    daemon->report = text;
}

static void read_lists(struct daemon *daemon, const struct config *config)
{
    const char *ledger = daemon->options->ledger_override ? daemon->options->ledger_override : config->ledger.where;
    if (pg_url_is(ledger)) /* it has no folder, and can hold a password: beside the registry file then */
        ledger = daemon->options->config_path;
    daemon->lists_path = arena_printf(&daemon->paths, "%s%s", ledger, TOOL_LISTS_SUFFIX);
    daemon->lists = tool_lists_read(&daemon->lists_arena, daemon->lists_path);
}

/* One reading of the file with the servers' lists. */
struct reading {
    struct config *config;
    struct registry *registry;
    struct arena arena;
    const struct json *lists; /* in arena */
};

static void reading_release(struct reading *reading)
{
    config_free(reading->config);
    registry_unref(reading->registry);
    arena_release(&reading->arena);
    *reading = (struct reading){0};
}

static const struct provider *provider_named(const struct registry *registry, struct str name)
{
    for (size_t i = 0; i < registry_provider_count(registry); i++)
        if (str_is(name, registry_provider_at(registry, i)->name))
            return registry_provider_at(registry, i);
    return NULL;
}

static bool same_server(const struct provider *a, const struct provider *b)
{
    return a && b && a->kind == PROVIDER_MCP && b->kind == PROVIDER_MCP &&
           str_equal(mcp_provider_identity(a->adapter_provider), mcp_provider_identity(b->adapter_provider));
}

/* What the hub's servers list, as far as they are the ones that `registry` names. */
static const struct json *lists_now(struct daemon *daemon, const struct registry *registry, struct arena *arena)
{
    const struct json *all = daemon->hub ? mcp_hub_catalog(daemon->hub, arena) : NULL;
    struct json *lists = json_object(arena);
    for (uint32_t i = 0; all && i < all->count; i++) {
        struct str name = all->members[i].name;
        if (same_server(provider_named(registry, name), provider_named(engine_registry(daemon->engine), name)))
            json_set(arena, lists, name, all->members[i].value);
    }
    return lists;
}

static void merge_lists(struct daemon *daemon, struct str text, const struct registry *registry,
                        struct reading *reading)
{
    struct yaml yaml;
    if (yaml_parse(&reading->arena, text, &yaml) == ERR_NONE)
        reading->lists = tool_lists_merge(&reading->arena, json_get(yaml.root, "providers"),
                                          lists_now(daemon, registry, &reading->arena), daemon->lists);
}

/* With the lists, if there are any: *report is anew. */
static enum err_code load_with_lists(struct daemon *daemon, struct str text, struct reading *reading,
                                     struct config_report *report)
{
    const char *path = daemon->options->config_path;
    if (!reading->lists || reading->lists->count == 0)
        return ERR_NONE;
    config_free(reading->config);
    registry_unref(reading->registry);
    reading->config = NULL;
    reading->registry = NULL;
    config_report_release(report);
    return config_load_text_with(path, text, reading->lists, &reading->config, &reading->registry, report);
}

/* A text that was not in force before: it is loaded without the lists first, so that what is wrong with the file itself
 * is never blamed on a server, and refuses it. */
static enum err_code load_fresh(struct daemon *daemon, struct str text, struct reading *reading)
{
    struct config_report report;
    config_report_init(&report);
    arena_init(&reading->arena);
    enum err_code code =
        config_load_text(daemon->options->config_path, text, &reading->config, &reading->registry, &report);
    if (!code && !daemon->lists_path)
        read_lists(daemon, reading->config);
    if (!code && reading->config->has_mcp_servers) {
        merge_lists(daemon, text, reading->registry, reading);
        code = load_with_lists(daemon, text, reading, &report);
    }
    tell(daemon, &report, code, true);
    config_report_release(&report);
    return code;
}

static enum err_code read_file(struct daemon *daemon, struct buf *text)
{
    struct config_report report;
    config_report_init(&report);
    enum err_code code = config_read_file(daemon->options->config_path, "a registry file", text, &report);
    if (code)
        tell(daemon, &report, code, true);
    config_report_release(&report);
    return code;
}

static void keep_text(struct daemon *daemon, struct buf *text)
{
    buf_release(&daemon->text);
    daemon->text = *text;
    buf_init(text, 0);
}

/* Takes the lists over; a file that cannot be written costs the next start some time, no more. */
static void keep_lists(struct daemon *daemon, struct reading *reading)
{
    struct err err = {0};
    if (!reading->lists || (daemon->lists && json_equal(daemon->lists, reading->lists)))
        return;
    if (daemon->engine && tool_lists_write(daemon->lists_path, reading->lists, &err))
        log_message(LOG_WARN, "mcp_tools", "%s", err.text);
    struct arena former = daemon->lists_arena;
    arena_init(&daemon->lists_arena);
    daemon->lists = json_copy(&daemon->lists_arena, reading->lists);
    arena_release(&former);
}

enum err_code daemon_registry_load(struct daemon *daemon, struct registry **registry)
{
    struct reading reading = {0};
    struct buf text;
    buf_init(&text, CONFIG_BYTES_MAX);
    arena_init(&daemon->paths);
    arena_init(&daemon->lists_arena);
    enum err_code code = read_file(daemon, &text);
    if (!code)
        code = load_fresh(daemon, buf_str(&text), &reading);
    if (code && daemon->lists) { /* nothing that is kept may keep us from starting */
        reading_release(&reading);
        daemon->lists = NULL;
        code = load_fresh(daemon, buf_str(&text), &reading);
    }
    if (!code) {
        keep_text(daemon, &text);
        keep_lists(daemon, &reading);
        daemon->config = reading.config;
        *registry = registry_ref(reading.registry);
        reading.config = NULL;
    }
    reading_release(&reading);
    buf_release(&text);
    return code;
}

/* ---- putting one in place ---- */

static void log_registry(const char *event, const struct registry *registry)
{
    if (!log_begin(LOG_INFO, event))
        return;
    log_int("tools", (int64_t)registry_tool_count(registry));
    log_text("policy_version", registry_policy_version(registry));
    log_end();
}

/* Takes the config over. */
static void put_in_place(struct daemon *daemon, struct reading *reading)
{
    engine_set_registry(daemon->engine, reading->registry);
    notify_configure(daemon->notify, &reading->config->notify.settings);
    mcp_hub_apply(daemon->hub, reading->registry);
    if (daemon->mcp) {
        mcp_door_configure(daemon->mcp, &reading->config->mcp);
        mcp_door_tools_changed(daemon->mcp);
    }
    config_free(daemon->current);
    daemon->current = reading->config;
    reading->config = NULL;
}

void daemon_registry_reload(struct daemon *daemon)
{
    struct reading reading = {0};
    struct buf text;
    buf_init(&text, CONFIG_BYTES_MAX);
    enum err_code code = read_file(daemon, &text);
    if (!code)
        code = load_fresh(daemon, buf_str(&text), &reading);
    if (code) {
        log_message(LOG_ERROR, "reload", "refused: the registry in force stays");
    } else {
        if (!config_same_process(daemon->config, reading.config))
            log_message(LOG_WARN, "reload", "changes of server and ledger take effect with a restart");
        keep_text(daemon, &text);
        keep_lists(daemon, &reading);
        log_set_level(reading.config->server.log);
        log_registry("reload", reading.registry);
        put_in_place(daemon, &reading);
    }
    reading_release(&reading);
    buf_release(&text);
}

static void take_new_lists(struct daemon *daemon, struct reading *reading)
{
    struct config_report report;
    config_report_init(&report);
    enum err_code code = load_with_lists(daemon, buf_str(&daemon->text), reading, &report);
    tell(daemon, &report, code, false);
    config_report_release(&report);
    if (code) {
        log_message(LOG_ERROR, "mcp_tools", "the lists of MCP servers cannot be used: the registry in force stays");
        return;
    }
    keep_lists(daemon, reading);
    log_registry("mcp_tools", reading->registry);
    put_in_place(daemon, reading);
}

void daemon_catalog_changed(void *user)
{
    struct daemon *daemon = user;
    struct reading reading = {0};
    if (daemon->stopping || daemon->closing)
        return;
    arena_init(&reading.arena);
    merge_lists(daemon, buf_str(&daemon->text), engine_registry(daemon->engine), &reading);
    bool other =
        reading.lists && reading.lists->count > 0 && !(daemon->lists && json_equal(daemon->lists, reading.lists));
    if (other)
        take_new_lists(daemon, &reading);
    reading_release(&reading);
}

void daemon_registry_release(struct daemon *daemon)
{
    buf_release(&daemon->text);
    free(daemon->report);
    config_free(daemon->current);
    config_free(daemon->config);
    arena_release(&daemon->lists_arena);
    arena_release(&daemon->paths);
}
