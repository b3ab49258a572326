/* The registry in force.
 *
 *   file ──SIGHUP──► text ──┐
 *                           ├─► registry ─► engine, MCP hub, MCP door       all or nothing: else the former one stays
 *   MCP servers ─► lists ───┘ */
#include "daemon/daemon_parts.h"

#include "base/log.h"
#include "base/mem.h"

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

/* fresh: the text was not in force before. Then it is loaded without the servers' lists first: what is wrong with the
 * file itself is never blamed on a server, and refuses it. (A load takes some 30 ms for each jq program.) */
static enum err_code load(struct daemon *daemon, struct str text, bool fresh, struct config **config,
                          struct registry **registry)
{
    struct config_report report;
    struct arena arena;
    const char *path = daemon->options->config_path;
    enum err_code code = ERR_NONE;
    arena_init(&arena);
    config_report_init(&report);
    const struct json *catalog = daemon->hub ? mcp_hub_catalog(daemon->hub, &arena) : NULL;
    bool listed = catalog && catalog->count > 0;
    if (fresh || !listed)
        code = config_load_text(path, text, config, registry, &report);
    if (!code && listed) {
        config_free(*config);
        registry_unref(*registry);
        *config = NULL;
        *registry = NULL;
        config_report_release(&report);
        code = config_load_text_with(path, text, catalog, config, registry, &report);
    }
    tell(daemon, &report, code, fresh);
    config_report_release(&report);
    arena_release(&arena);
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

enum err_code daemon_registry_load(struct daemon *daemon, struct registry **registry)
{
    struct buf text;
    buf_init(&text, CONFIG_BYTES_MAX);
    enum err_code code = read_file(daemon, &text);
    if (!code)
        code = load(daemon, buf_str(&text), true, &daemon->config, registry);
    if (!code)
        keep_text(daemon, &text);
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
static void put_in_place(struct daemon *daemon, struct config *config, struct registry *registry)
{
    engine_set_registry(daemon->engine, registry);
    mcp_hub_apply(daemon->hub, registry);
    if (daemon->mcp) {
        mcp_door_configure(daemon->mcp, &config->mcp);
        mcp_door_tools_changed(daemon->mcp);
    }
    config_free(daemon->current);
    daemon->current = config;
}

void daemon_registry_reload(struct daemon *daemon)
{
    struct config *config = NULL;
    struct registry *registry = NULL;
    struct buf text;
    buf_init(&text, CONFIG_BYTES_MAX);
    enum err_code code = read_file(daemon, &text);
    if (!code)
        code = load(daemon, buf_str(&text), true, &config, &registry);
    if (code) {
        log_message(LOG_ERROR, "reload", "refused: the registry in force stays");
    } else {
        if (!config_same_process(daemon->config, config))
            log_message(LOG_WARN, "reload", "changes of server and ledger take effect with a restart");
        keep_text(daemon, &text);
        log_set_level(config->server.log);
        log_registry("reload", registry);
        put_in_place(daemon, config, registry);
        registry_unref(registry);
    }
    buf_release(&text);
}

void daemon_catalog_changed(void *user)
{
    struct daemon *daemon = user;
    struct config *config = NULL;
    struct registry *registry = NULL;
    if (daemon->stopping || daemon->closing)
        return;
    if (load(daemon, buf_str(&daemon->text), false, &config, &registry)) {
        log_message(LOG_ERROR, "mcp_tools", "the lists of MCP servers cannot be used: the registry in force stays");
        return;
    }
    if (strcmp(registry_policy_version(registry), registry_policy_version(engine_registry(daemon->engine))) == 0) {
        config_free(config);
    } else {
        log_registry("mcp_tools", registry);
        put_in_place(daemon, config, registry);
    }
    registry_unref(registry);
}

void daemon_registry_release(struct daemon *daemon)
{
    buf_release(&daemon->text);
    free(daemon->report);
    config_free(daemon->current);
    config_free(daemon->config);
}
