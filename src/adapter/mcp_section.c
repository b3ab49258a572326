/* MCP servers and their tools as the registry file states them (docs/mcp.md). */
#include "adapter/mcp_section.h"

#include "base/digest.h"
#include "base/mem.h"

#include <stdlib.h>
#include <strings.h>

#define COMMAND_WORDS_MAX 256
#define HOUR_MS           (INT64_C(60) * 60 * 1000)

/* A request with one of these was refused before the server's tools saw it. Not in it: 404, which also says that a
 * session ended, and sessions end after their calls as well as before (case S12); 409, which some servers use for a
 * call that runs. */
static const int no_effect_default[] = {400, 401, 402, 403, 405, 406, 410, 411, 412, 413, 414, 415, 422, 431, 0};
static const int not_processed_default[] = {429, 0};

/* ---- life ---- */

static void list_free(char **list)
{
    for (size_t i = 0; list && list[i]; i++)
        free(list[i]);
    free(list);
}

struct mcp_provider *mcp_provider_ref(struct mcp_provider *provider)
{
    provider->refs++;
    return provider;
}

void mcp_provider_unref(struct mcp_provider *provider)
{
    if (!provider || --provider->refs > 0)
        return;
    list_free(provider->command);
    list_free(provider->env);
    free(provider->cwd);
    free(provider->url);
    free(provider->url_shown);
    http_headers_release(&provider->headers);
    curl_slist_free_all(provider->header_lines);
    free(provider->tls_ca);
    free(provider->version);
    free(provider->prefix);
    free(provider->key_argument);
    http_statuses_release(&provider->no_effect);
    http_statuses_release(&provider->not_processed);
    secrets_release(&provider->secrets);
    free((char *)provider->identity.p);
    free(provider);
}

void mcp_provider_free(struct mcp_provider *provider)
{
    mcp_provider_unref(provider);
}

struct str mcp_provider_identity(const struct mcp_provider *provider)
{
    return provider->identity;
}

/* ---- texts ---- */

/* A text with its secrets in place, heap. NULL after reporting. */
static char *expand(struct mcp_provider *provider, const struct json *value, const char *pointer,
                    struct problems *problems)
{
    struct err err = {0};
    char *out = NULL;
    bool secret;
    if (value->type != JSON_STRING) {
        problems_add(problems, pointer, "is %s, expected a text", json_type_name(value->type));
        return NULL;
    }
    if (value->text.n > 0 && memchr(value->text.p, 0, value->text.n)) {
        problems_add(problems, pointer, "holds a NUL character");
        return NULL;
    }
    char *text = mem_copy_bytes(value->text.p, value->text.n);
    if (http_secret_expand(text, &out, &secret, &err) != ERR_NONE)
        problems_add(problems, pointer, "%s", err.text);
    else
        secrets_keep(&provider->secrets, text);
    free(text);
    return out;
}

static char *expand_member(struct mcp_provider *provider, struct section *section, const char *name)
{
    const struct json *value = section_member(section, name);
    return value ? expand(provider, value, section_pointer(section, str_of(name)), section->problems) : NULL;
}

/* ---- a server that is started ---- */

static void read_command(struct section *section, struct mcp_provider *provider)
{
    const struct json *value = section_member(section, "command");
    if (!value)
        return;
    if (value->type != JSON_ARRAY || value->count == 0 || value->count > COMMAND_WORDS_MAX) {
        section_problem(section, "command", "expected a list of 1 to %d words: the program and its arguments",
                        COMMAND_WORDS_MAX);
        return;
    }
    char **words = mem_zero(sizeof *words * (value->count + 1));
    size_t count = 0;
    provider->command = words;
    for (uint32_t i = 0; i < value->count; i++) {
        const char *pointer =
            arena_printf(section->problems->arena, "%s/%u", section_pointer(section, STR("command")), i);
        char *word = expand(provider, &value->items[i], pointer, section->problems);
        if (word)
            words[count++] = word;
        if (word && i == 0 && !*word)
            problems_add(section->problems, pointer, "is empty, expected the program's name");
    }
}

static bool env_name_valid(struct str name)
{
    return name.n > 0 && !memchr(name.p, '=', name.n) && !memchr(name.p, 0, name.n);
}

static void env_add(struct mcp_provider *provider, size_t *count, struct str name, const char *value)
{
    struct buf line;
    buf_init(&line, 0);
    buf_add_str(&line, name);
    buf_add_char(&line, '=');
    buf_add_text(&line, value);
    provider->env[(*count)++] = buf_detach(&line, NULL);
}

/* What a child gets without being told: it must find programs and its own files. */
static void env_inherit(struct mcp_provider *provider, size_t *count, const struct json *stated)
{
    static const char *const names[] = {"PATH", "HOME"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *value = getenv(names[i]);
        if (value && !json_get(stated, names[i]))
            env_add(provider, count, str_of(names[i]), value);
    }
}

static void read_env(struct section *section, struct mcp_provider *provider)
{
    const struct json *value = section_member(section, "env");
    struct section inner;
    size_t count = 0;
    section_open(&inner, value, section_pointer(section, STR("env")), section->problems);
    uint32_t stated = inner.value ? inner.value->count : 0;
    provider->env = mem_zero(sizeof *provider->env * (stated + 3));
    env_inherit(provider, &count, inner.value);
    for (uint32_t i = 0; i < stated; i++) {
        const struct json_member *member = &inner.value->members[i];
        const char *pointer = section_pointer(&inner, member->name);
        if (!env_name_valid(member->name))
            problems_add(section->problems, pointer, "is no name of an environment variable");
        char *text = expand(provider, &member->value, pointer, section->problems);
        if (text)
            env_add(provider, &count, member->name, text);
        free(text);
    }
}

/* ---- a server behind a URL ---- */

/* Host and port are no secrets; what a reference put into the path, and a query, may be. */
static char *shown_url(const char *url, size_t origin, const char *written)
{
    struct buf shown;
    buf_init(&shown, 0);
    buf_add(&shown, url, origin);
    if (!strstr(written, "${"))
        buf_add(&shown, url + origin, strcspn(url + origin, "?"));
    else if (url[origin])
        buf_add_text(&shown, "/***");
    return buf_detach(&shown, NULL);
}

static void read_url(struct section *section, struct mcp_provider *provider)
{
    bool plain = false;
    provider->url = expand_member(provider, section, "url");
    if (!provider->url)
        return;
    const char *fault = strstr(provider->url, "://") ? http_url_fault(provider->url, true, &plain)
                                                     : "is no URL, expected for example http://127.0.0.1:3001/mcp";
    if (fault)
        section_problem(section, "url", "%s", fault);
    else if (plain)
        problems_warn(section->problems, section_pointer(section, STR("url")),
                      "is plain http to another machine: requests and secrets can be read on the way");
    provider->origin_bytes = http_origin_bytes(provider->url);
    provider->url_shown = shown_url(provider->url, provider->origin_bytes, section_text(section, "url", ""));
}

/* What onced itself says to an MCP server. */
static bool is_own_header(const char *name)
{
    static const char *const own[] = {"Accept",   "Content-Type", "Mcp-Session-Id", "MCP-Protocol-Version",
                                      "Mcp-Name", "Mcp-Method",   "Last-Event-ID",  NULL};
    for (size_t i = 0; own[i]; i++) {
        if (strcasecmp(name, own[i]) == 0)
            return true;
    }
    return strncasecmp(name, "Mcp-Param-", 10) == 0;
}

static void add_line(struct curl_slist **list, const char *line)
{
    struct curl_slist *longer = curl_slist_append(*list, line);
    if (!longer)
        mem_exhausted("libcurl");
    *list = longer;
}

static void add_header(struct curl_slist **list, const char *name, const char *value)
{
    struct buf line;
    buf_init(&line, 0);
    buf_printf(&line, *value ? "%s: %s" : "%s;", name, value); /* libcurl's way to write an empty value */
    add_line(list, line.p);
    buf_release(&line);
}

static void read_headers(struct section *section, struct mcp_provider *provider)
{
    struct section inner = {.pointer = section_pointer(section, STR("headers")), .problems = section->problems};
    bool named = false;
    http_headers_read(section, "headers", NULL, &provider->headers);
    for (size_t i = 0; i < provider->headers.count; i++) {
        const struct http_header *header = &provider->headers.items[i];
        if (is_own_header(header->name))
            section_problem(&inner, header->name, "belongs to the protocol and is set by onced");
        else if (header->text.template)
            section_problem(&inner, header->name, "has a {place}: a server's headers are the same for all calls");
        else if (header->text.value)
            add_header(&provider->header_lines, header->name, header->text.value);
        named = named || strcasecmp(header->name, "User-Agent") == 0;
    }
    add_line(&provider->header_lines, "Expect:"); /* libcurl would send its own */
    if (!named)
        add_line(&provider->header_lines, "User-Agent: onced/" ONCED_VERSION);
}

/* ---- the mcp section of a provider ---- */

static void check_members(struct section *section, struct mcp_provider *provider)
{
    static const char *const started[] = {"env", "cwd", NULL};
    if (section->value && !section_member(section, "command") && !section_member(section, "url"))
        problems_add(section->problems, section->pointer, "expected command or url: how is the server reached?");
    if (section_member(section, "command") && section_member(section, "url"))
        section_problem(section, "url", "a server has a command or a url, not both");
    for (size_t i = 0; started[i]; i++) {
        if (provider->url && section_member(section, started[i]))
            section_problem(section, started[i], "is for servers that onced starts (command)");
    }
    if (!provider->url && section_member(section, "command") && section_member(section, "headers"))
        section_problem(section, "headers", "are for servers with a url");
}

static void read_protocol(struct section *section, struct mcp_provider *provider)
{
    static const char *const revisions[] = {"auto", "2025-11-25", "2025-06-18", "2025-03-26", MCP_MODERN_VERSION, NULL};
    unsigned index = section_choice(section, "protocol", revisions, 0);
    provider->version = index == 0 ? NULL : mem_copy_text(revisions[index]);
}

static void read_server(struct section *section, struct mcp_provider *provider)
{
    static const char *const sessions[] = {"shared", "per_client", NULL};
    static const char *const errors[] = {"unknown", "no_effect", NULL};
    read_command(section, provider);
    read_env(section, provider);
    provider->cwd = expand_member(provider, section, "cwd");
    read_url(section, provider);
    read_headers(section, provider);
    check_members(section, provider);
    read_protocol(section, provider);
    provider->per_client = section_choice(section, "sessions", sessions, provider->url ? 1 : 0) == 1;
    provider->forward = section_bool(section, "forward", true);
    provider->errors = (enum mcp_errors)section_choice(section, "errors", errors, MCP_ERRORS_UNKNOWN);
    provider->start_timeout_ms = section_ms(section, "start_timeout", 15000, 100, HOUR_MS);
    struct str prefix = json_get_text(section_member(section, "import"), "prefix");
    provider->prefix = prefix.p ? mem_copy_bytes(prefix.p, prefix.n) : mem_copy_text("");
}

/* ---- what servers have in common with other providers ---- */

static void read_key(struct section *parent, struct mcp_provider *provider, struct provider *core)
{
    static const char *const formats[] = {"operation_id", "uuid", "hex", NULL};
    struct section section;
    section_open(&section, section_member(parent, "key"), section_pointer(parent, STR("key")), parent->problems);
    const char *argument = section_text(&section, "argument", NULL);
    if (argument && !*argument)
        section_problem(&section, "argument", "is empty, expected the name of an argument");
    provider->key_argument = mem_copy_text(argument);
    provider->key_meta = section_bool(&section, "meta", true);
    core->key_honoured = section_bool(&section, "honoured", false);
    core->key_format = (enum key_format)section_choice(&section, "format", formats, KEY_FORMAT_OPERATION_ID);
    core->key_bytes_max = (unsigned)section_int(&section, "max_length", 0, 16, 1000);
    core->key_retention_ms = section_ms(&section, "retention", 0, 0, INT64_MAX);
    if (core->key_honoured && !provider->key_argument && !provider->key_meta)
        section_problem(&section, "honoured", "is true, but the server is not given the key (argument, meta)");
    section_close(&section);
}

static void read_wire(struct section *section, struct mcp_provider *provider, struct provider *core)
{
    core->kind = PROVIDER_MCP;
    core->timeout_ms = section_ms(section, "timeout", 60000, 1, HOUR_MS);
    core->connect_timeout_ms = section_ms(section, "connect_timeout", 3000, 1, HOUR_MS);
    core->connections_max = (unsigned)section_int(section, "connections", 64, 1, 4096);
    core->queue_max = (unsigned)section_int(section, "queue", 4096, 1, 1000000);
    provider->timeout_ms = core->timeout_ms;
    provider->connect_timeout_ms = core->connect_timeout_ms;
    provider->connections = core->connections_max;
    provider->answer_bytes_max =
        section_bytes(section, "answer_bytes_max", (size_t)4 * 1024 * 1024, 1024, MCP_MESSAGE_BYTES_MAX);
}

/* ---- identity: when is it another server ---- */

static const char *const connection_members[] = {"command",  "env",      "cwd",           "url",     "headers",
                                                 "protocol", "sessions", "start_timeout", "forward", NULL};

/* Secrets only as a digest: the text may be kept and compared, not read. */
static void digest_values(const struct mcp_provider *provider, struct buf *out)
{
    char hex[2 * DIGEST_BYTES + 1];
    struct buf values;
    buf_init(&values, 0);
    for (char **word = provider->command; word && *word; word++)
        buf_add(&values, *word, strlen(*word) + 1);
    for (char **line = provider->env; line && *line; line++)
        buf_add(&values, *line, strlen(*line) + 1);
    for (const struct curl_slist *line = provider->header_lines; line; line = line->next)
        buf_add(&values, line->data, strlen(line->data) + 1);
    buf_printf(&values, "%s %s %s", provider->cwd ? provider->cwd : "", provider->url ? provider->url : "",
               provider->tls_ca ? provider->tls_ca : "");
    struct digest digest = digest_sha256(buf_str(&values));
    digest_hex(&digest, DIGEST_BYTES, hex);
    buf_printf(out, " %s %d %zu", hex, provider->tls_verify, provider->answer_bytes_max);
    buf_release(&values);
}

static void make_identity(struct mcp_provider *provider, const struct json *section, struct arena *arena)
{
    struct json *part = json_object(arena);
    struct buf text;
    buf_init(&text, 0);
    for (size_t i = 0; connection_members[i]; i++) {
        const struct json *value = json_get(section, connection_members[i]);
        if (value)
            json_set(arena, part, str_of(connection_members[i]), *value);
    }
    json_canonical(&text, part);
    digest_values(provider, &text);
    provider->identity.p = buf_detach(&text, &provider->identity.n);
}

struct mcp_provider *mcp_provider_new(const struct json *value, const char *pointer, struct provider *core,
                                      struct problems *problems)
{
    size_t errors = problems->errors;
    struct mcp_provider *provider = mem_zero(sizeof *provider);
    struct section section, server;
    provider->refs = 1;
    section_open(&section, value, pointer, problems);
    read_wire(&section, provider, core);
    http_tls_read(&section, &provider->tls_ca, &provider->tls_verify);
    read_key(&section, provider, core);
    http_statuses_read(&section, "no_effect", no_effect_default, &provider->no_effect);
    http_statuses_read(&section, "not_processed", not_processed_default, &provider->not_processed);
    http_limits_read(&section, core);
    const struct json *mcp = section_member(&section, "mcp");
    if (section.value && !mcp)
        section_problem(&section, "mcp", "is missing, expected command or url of the server");
    section_open(&server, mcp, section_pointer(&section, STR("mcp")), problems);
    read_server(&server, provider);
    section_close(&server);
    section_close(&section);
    make_identity(provider, mcp, problems->arena);
    if (problems->errors == errors)
        return provider;
    mcp_provider_free(provider);
    return NULL;
}

/* ---- tools ---- */

struct mcp_tool *mcp_tool_ref(struct mcp_tool *tool)
{
    tool->refs++;
    return tool;
}

static void lookup_free(struct mcp_lookup *lookup)
{
    if (!lookup)
        return;
    free(lookup->tool);
    if (lookup->node)
        http_node_release(lookup->node);
    free(lookup->node);
    jq_program_free(lookup->jq);
    jq_program_free(lookup->found);
    jq_program_free(lookup->absent);
    jq_program_free(lookup->pending);
    jq_program_free(lookup->failed);
    http_equalities_release(&lookup->verify);
    http_extract_release(&lookup->external_id);
    free(lookup);
}

void mcp_tool_unref(struct mcp_tool *tool)
{
    if (!tool || --tool->refs > 0)
        return;
    free(tool->remote_name);
    free(tool->key_argument);
    jq_program_free(tool->no_effect_when);
    jq_program_free(tool->not_processed_when);
    jq_program_free(tool->noop_when);
    jq_program_free(tool->error_when);
    jq_program_free(tool->success_when);
    http_equalities_release(&tool->verify);
    http_extract_release(&tool->external_id);
    lookup_free(tool->lookup);
    for (size_t i = 0; i < tool->redact_count; i++)
        free(tool->redact[i]);
    free(tool->redact);
    mcp_provider_unref(tool->provider);
    free(tool);
}

void mcp_tool_free(struct mcp_tool *tool)
{
    mcp_tool_unref(tool);
}

bool mcp_tool_has_lookup(const struct mcp_tool *tool)
{
    return tool->lookup != NULL;
}

const char *mcp_tool_remote_name(const struct mcp_tool *tool)
{
    return tool->remote_name;
}

const char *mcp_tool_key_argument(const struct mcp_tool *tool)
{
    return tool->key_argument;
}

/* The tool's own name without the prefix that imported names have. */
static const char *default_name(const struct mcp_provider *provider, const struct tool *core)
{
    size_t n = strlen(provider->prefix);
    bool prefixed = n > 0 && strncmp(core->name, provider->prefix, n) == 0 && core->name[n];
    return core->name + (prefixed ? n : 0);
}

static bool schema_has(const struct json *schema, const char *argument)
{
    return json_get(json_get(schema, "properties"), argument) != NULL;
}

/* What the tool states, else what its server says for all tools that have such an argument. */
static char *find_key_argument(struct section *section, const struct mcp_provider *provider, const struct json *value,
                               const struct tool *core)
{
    const char *stated = section_text(section, "key_argument", NULL), *usual = provider->key_argument;
    if (stated && !*stated)
        section_problem(section, "key_argument", "is empty, expected the name of an argument");
    if (stated)
        return mem_copy_text(stated);
    bool has =
        usual && (schema_has(json_get(value, "input_schema"), usual) || schema_has(core->input_schema_json, usual));
    return has ? mem_copy_text(usual) : NULL;
}

/* A jq program as text, or anything that http_extract_read takes: a plain text is jq here, a pointer begins with "/".
 */
static void read_external_id(struct section *section, struct http_extract *out)
{
    const struct json *value = section_member(section, "external_id");
    if (value && value->type == JSON_STRING && value->text.n > 0 && value->text.p[0] != '/')
        out->jq = http_jq_read(section, "external_id");
    else
        http_extract_read(section, "external_id", NULL, out);
}

/* unknown | no_effect | {no_effect: jq, not_processed: jq, noop: jq} */
static void read_errors(struct section *parent, struct mcp_tool *tool)
{
    static const char *const choices[] = {"unknown", "no_effect", NULL};
    const struct json *value = section_member(parent, "errors");
    struct section section;
    tool->errors = tool->provider->errors;
    if (!value || value->type == JSON_STRING) {
        tool->errors = (enum mcp_errors)section_choice(parent, "errors", choices, tool->errors);
        return;
    }
    section_open(&section, value, section_pointer(parent, STR("errors")), parent->problems);
    tool->errors = MCP_ERRORS_UNKNOWN;
    tool->no_effect_when = http_jq_read(&section, "no_effect");
    tool->not_processed_when = http_jq_read(&section, "not_processed");
    tool->noop_when = http_jq_read(&section, "noop");
    section_close(&section);
}

static void read_mcp(struct section *parent, struct mcp_tool *tool, const struct json *value, const struct tool *core)
{
    struct section section;
    section_open(&section, section_member(parent, "mcp"), section_pointer(parent, STR("mcp")), parent->problems);
    const char *name = section_text(&section, "tool", default_name(tool->provider, core));
    if (!*name)
        section_problem(&section, "tool", "is empty, expected the server's name of the tool");
    tool->remote_name = mem_copy_text(name);
    tool->key_argument = find_key_argument(&section, tool->provider, value, core);
    read_errors(&section, tool);
    tool->error_when = http_jq_read(&section, "error_when");
    tool->success_when = http_jq_read(&section, "success_when");
    read_external_id(&section, &tool->external_id);
    section_close(&section);
}

static void read_arguments(struct section *section, struct mcp_lookup *out)
{
    const struct json *value = section_member(section, "arguments");
    struct err err = {0};
    if (!value)
        return;
    if (value->type == JSON_STRING) {
        const char *text = section_text(section, "arguments", NULL);
        if (text && jq_program_new(text, true, &out->jq, &err) != ERR_NONE)
            section_problem(section, "arguments", "%s", err.text);
        return;
    }
    if (value->type != JSON_OBJECT) {
        section_problem(section, "arguments", "is %s, expected names and values, or a jq program as text",
                        json_type_name(value->type));
        return;
    }
    out->node = mem_zero(sizeof *out->node);
    http_node_read(section, "arguments", value, out->node);
}

static void read_lookup(struct section *parent, struct mcp_tool *tool)
{
    const struct json *value = section_member(parent, "lookup");
    struct section section;
    if (!value)
        return;
    struct mcp_lookup *out = mem_zero(sizeof *out);
    tool->lookup = out;
    section_open(&section, value, section_pointer(parent, STR("lookup")), parent->problems);
    const char *name = section_text(&section, "tool", NULL);
    if (section.value && !section_member(&section, "tool"))
        section_problem(&section, "tool", "is missing, expected another tool of the server");
    else if (name && (!*name || strcmp(name, tool->remote_name) == 0))
        section_problem(&section, "tool",
                        "is \"%.64s\", expected another tool of the server: a look-up must not do it again", name);
    out->tool = mem_copy_text(name);
    read_arguments(&section, out);
    out->found = http_jq_read(&section, "found");
    out->absent = http_jq_read(&section, "absent");
    out->pending = http_jq_read(&section, "pending");
    out->failed = http_jq_read(&section, "failed");
    if (section.value && !section_member(&section, "found") && !section_member(&section, "absent"))
        problems_add(section.problems, section.pointer, "expected found or absent: what does the answer prove?");
    http_equalities_read(&section, "verify", &out->verify);
    read_external_id(&section, &out->external_id);
    out->timeout_ms = section_ms(&section, "timeout", tool->timeout_ms, 1, HOUR_MS);
    section_close(&section);
}

static void copy_redact(struct mcp_tool *tool, const struct tool *core)
{
    tool->redact = mem_zero(sizeof *tool->redact * (core->redact_count + 1));
    for (size_t i = 0; i < core->redact_count; i++)
        tool->redact[tool->redact_count++] = mem_copy_text(core->redact_pointers[i]);
}

struct mcp_tool *mcp_tool_new(const struct json *value, const char *pointer, const struct mcp_provider *provider,
                              struct tool *core, struct problems *problems)
{
    size_t errors = problems->errors;
    struct mcp_tool *tool = mem_zero(sizeof *tool);
    struct section section;
    tool->refs = 1;
    /* the caller lends its provider; attempts on the wire need it for longer */
    tool->provider = mcp_provider_ref((struct mcp_provider *)provider);
    tool->write = tool_is_write(core);
    copy_redact(tool, core);
    section_open(&section, value, pointer, problems);
    tool->timeout_ms = section_ms(&section, "timeout", provider->timeout_ms, 1, HOUR_MS);
    core->timeout_ms = tool->timeout_ms;
    read_mcp(&section, tool, value, core);
    read_lookup(&section, tool);
    http_equalities_read(&section, "verify", &tool->verify);
    if (problems->errors == errors)
        return tool;
    mcp_tool_free(tool);
    return NULL;
}
