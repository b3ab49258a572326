#include "cli/mcp_import.h"

#include "cli/cli.h"
#include "daemon/catalog.h"
#include "daemon/config.h"
#include "daemon/config_options.h"
#include "daemon/skeleton.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#define SAY(...) fprintf(stderr, "onced mcp import: " __VA_ARGS__)

/* ---- the provider's section ---- */

static struct json text_value(const char *text)
{
    return json_string(str_of(text));
}

static bool add_env(struct arena *arena, const struct mcp_import *import, struct json *mcp)
{
    struct json *env = json_object(arena);
    for (size_t i = 0; i < import->env_count; i++) {
        const char *name = import->env[i];
        if (!*name || strpbrk(name, "={}"))
            return false;
        json_set(arena, env, str_of(name), text_value(arena_printf(arena, "${env:%s}", name)));
    }
    if (import->env_count)
        json_set(arena, mcp, STR("env"), *env);
    return true;
}

static bool add_headers(struct arena *arena, const struct mcp_import *import, struct json *mcp)
{
    struct json *headers = json_object(arena);
    for (size_t i = 0; i < import->header_count; i++) {
        const char *colon = strchr(import->headers[i], ':');
        if (!colon || colon == import->headers[i])
            return false;
        struct str name = {import->headers[i], (size_t)(colon - import->headers[i])};
        json_set(arena, headers, name, text_value(colon + 1 + strspn(colon + 1, " ")));
    }
    if (import->header_count)
        json_set(arena, mcp, STR("headers"), *headers);
    return true;
}

static const struct json *make_section(struct arena *arena, const struct mcp_import *import)
{
    struct json *section = json_object(arena), *mcp = json_object(arena);
    if (import->url) {
        json_set(arena, mcp, STR("url"), text_value(import->url));
    } else {
        struct json *command = json_array(arena);
        for (size_t i = 0; i < import->word_count; i++)
            json_append(arena, command, text_value(import->words[i]));
        json_set(arena, mcp, STR("command"), *command);
    }
    if (!add_env(arena, import, mcp) || !add_headers(arena, import, mcp))
        return NULL;
    json_set(arena, section, STR("mcp"), *mcp);
    return section;
}

/* ---- the registry that has the server ---- */

struct source {
    struct arena arena;
    const char *name;           /* of the provider */
    const struct json *section; /* as written */
    struct config *config;
    struct registry *registry;
};

static enum err_code load(struct source *source, const char *path, struct str text)
{
    struct config_report report;
    config_report_init(&report);
    enum err_code code = config_load_text(path, text, &source->config, &source->registry, &report);
    if (code)
        config_report_print(&report, stderr);
    config_report_release(&report);
    return code;
}

static int find_in_file(const struct mcp_import *import, struct source *source)
{
    struct config_report report;
    struct buf text;
    struct yaml yaml;
    int code = CLI_USAGE;
    buf_init(&text, CONFIG_BYTES_MAX);
    config_report_init(&report);
    if (config_read_file(import->config, "a registry file", &text, &report)) {
        config_report_print(&report, stderr);
    } else if (load(source, import->config, buf_str(&text)) == ERR_NONE &&
               yaml_parse(&source->arena, buf_str(&text), &yaml) == ERR_NONE) {
        source->name = import->server;
        source->section = json_get(json_get(yaml.root, "providers"), import->server);
        code = source->section && json_get(source->section, "mcp") ? CLI_OK : CLI_NOT_FOUND;
        if (code)
            SAY("%s has no MCP server \"%s\" in its providers\n", import->config, import->server);
    }
    config_report_release(&report);
    buf_release(&text);
    return code;
}

static int make_source(const struct cli_command *command, const struct mcp_import *import, struct source *source)
{
    struct arena *arena = &source->arena;
    struct json *file = json_object(arena), *providers = json_object(arena);
    struct buf text;
    source->name = import->name  ? import->name
                   : import->url ? skeleton_name_of_url(arena, import->url)
                                 : skeleton_name_of_command(arena, import->words, import->word_count);
    source->section = make_section(arena, import);
    if (!source->section)
        return cli_usage(command, "--env takes the name of a variable, --header a NAME: VALUE");
    if (!config_name_valid(str_of(source->name)))
        return cli_usage(command, "--name %s: expected 1 to %d characters of A-Z a-z 0-9 _ . -", source->name,
                         CONFIG_NAME_BYTES_MAX);
    json_set(arena, providers, str_of(source->name), *source->section);
    json_set(arena, file, STR("onced"), json_int(arena, 1));
    json_set(arena, file, STR("providers"), *providers);
    buf_init(&text, 0);
    json_write(&text, file);
    int code = load(source, import->output ? import->output : "onced.yaml", buf_str(&text)) ? CLI_USAGE : CLI_OK;
    buf_release(&text);
    return code;
}

/* Only the one server is to be started. */
static enum err_code alone(const struct source *source, struct registry **out, struct err *err)
{
    const struct provider *provider = NULL;
    for (size_t i = 0; i < registry_provider_count(source->registry); i++)
        if (strcmp(registry_provider_at(source->registry, i)->name, source->name) == 0)
            provider = registry_provider_at(source->registry, i);
    return registry_new(NULL, 0, &provider, 1, "", NULL, NULL, out, err);
}

/* ---- writing ---- */

static int write_out(const struct mcp_import *import, struct str text, uint32_t tools)
{
    if (!import->output)
        return fwrite(text.p, 1, text.n, stdout) == text.n && fflush(stdout) == 0 ? CLI_OK : CLI_FAILED;
    int fd = open(import->output, O_WRONLY | O_CREAT | O_CLOEXEC | (import->force ? O_TRUNC : O_EXCL), 0644);
    if (fd < 0 && errno == EEXIST) {
        SAY("%s exists already; --force overwrites it\n", import->output);
        return CLI_FAILED;
    }
    FILE *file = fd >= 0 ? fdopen(fd, "w") : NULL;
    bool written = file && fwrite(text.p, 1, text.n, file) == text.n;
    if (file)
        written = fclose(file) == 0 && written;
    if (!written) {
        SAY("%s cannot be written: %s\n", import->output, strerror(errno));
        return CLI_FAILED;
    }
    printf("%s is written: %u tool%s. Next: decide what it asks, then onced check --connect %s\n", import->output,
           tools, tools == 1 ? "" : "s", import->output);
    return CLI_OK;
}

static int write_skeleton(const struct mcp_import *import, const struct source *source, const struct catalog *catalog)
{
    struct skeleton skeleton = {
        .provider = source->name,
        .section = source->section,
        .tools = json_get(json_get(catalog->tools, source->name), "tools"),
        .facts = json_get(catalog->servers, source->name),
        .path = import->config,
    };
    struct buf text;
    if (!skeleton.tools) {
        struct str why = json_get_text(catalog->failures, source->name);
        SAY("%s: %.*s\n", source->name, STR_ARG(why));
        return CLI_UNREACHABLE;
    }
    buf_init(&text, 0);
    skeleton_write(&skeleton, &text);
    int code = write_out(import, buf_str(&text), skeleton.tools->count);
    buf_release(&text);
    return code;
}

int cli_mcp_import(const struct cli_command *command, const struct mcp_import *import)
{
    struct source source = {0};
    struct registry *registry = NULL;
    struct catalog catalog;
    struct err err = {0};
    arena_init(&source.arena);
    log_set_level(LOG_ERROR); /* why a server cannot be asked is told below */
    int code = import->config ? find_in_file(import, &source) : make_source(command, import, &source);
    if (code == CLI_OK) {
        int64_t timeout_ms = source.config->mcp_start_timeout_ms_max;
        if (alone(&source, &registry, &err) || catalog_fetch(registry, timeout_ms, &source.arena, &catalog, &err)) {
            SAY("%s\n", err.text);
            code = CLI_FAILED;
        } else {
            code = write_skeleton(import, &source, &catalog);
        }
    }
    registry_unref(registry);
    registry_unref(source.registry);
    config_free(source.config);
    arena_release(&source.arena);
    return code;
}
