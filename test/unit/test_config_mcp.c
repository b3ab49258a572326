/* MCP in the registry file: the door's section, principals, servers and their tools, and what an import makes of the
 * list that a server gives. */
#include "adapter/mcp.h"
#include "daemon/config.h"
#include "daemon/skeleton.h"

#include "support/test.h"

#include <stdlib.h>

struct file {
    struct config *config;
    struct registry *registry;
    char *report;
    enum err_code code;
};

static const struct json *parse(struct arena *arena, const char *text)
{
    struct json *value;
    struct err err = {0};
    if (json_parse(arena, str_of(text), NULL, &value, &err))
        fail_msg("%s in %s", err.text, text);
    return value;
}

/* catalog: JSON text, NULL = none. */
static struct file load_at(const char *path, const char *text, const char *catalog)
{
    struct file file = {0};
    struct config_report report;
    struct arena arena;
    size_t size;
    arena_init(&arena);
    config_report_init(&report);
    file.code = config_load_text_with(path, str_of(text), catalog ? parse(&arena, catalog) : NULL, &file.config,
                                      &file.registry, &report);
    FILE *out = open_memstream(&file.report, &size);
    config_report_print(&report, out);
    fclose(out);
    config_report_release(&report);
    arena_release(&arena); /* nothing may point into the catalogue */
    return file;
}

static struct file load(const char *text, const char *catalog)
{
    return load_at("f", text, catalog);
}

static void unload(struct file *file)
{
    config_free(file->config);
    registry_unref(file->registry);
    free(file->report);
}

static void expect(const char *text, const char *catalog, const char *wanted)
{
    struct file file = load(text, catalog);
    if (strcmp(file.report, wanted) != 0)
        print_error("%s\nwanted:\n%s\ngot:\n%s", text, wanted, file.report);
    assert_string_equal(file.report, wanted);
    assert_int_equal(file.registry != NULL, file.code == ERR_NONE);
    unload(&file);
}

static const struct tool *find(const struct file *file, const char *name)
{
    const struct tool *tool = file->registry ? registry_find(file->registry, str_of(name)) : NULL;
    if (!tool)
        fail_msg("no tool %s: %s", name, file->report);
    return tool;
}

static void expect_names(const struct file *file, const char *wanted)
{
    struct buf names;
    buf_init(&names, 0);
    for (size_t i = 0; file->registry && i < registry_tool_count(file->registry); i++)
        buf_printf(&names, "%s%s", i ? " " : "", registry_tool_at(file->registry, i)->name);
    assert_string_equal(buf_str(&names).p ? buf_str(&names).p : "", wanted);
    buf_release(&names);
}

/* ---- the door and principals ---- */

#define HTTP                                                                                                           \
    "providers: {p: {base_url: \"http://[::1]:1\"}}\ntools: {t: {class: read, provider: p, request: {path: /}}}\n"

static void test_door(void **state)
{
    (void)state;
    struct file file = load("onced: 1\n" HTTP, NULL);
    const struct mcp_settings *mcp = &file.config->mcp, *usual = &mcp_settings_default;
    assert_true(mcp->tool_status && mcp->tool_wait && mcp->tool_plan && mcp->tool_run_report && mcp->tasks);
    assert_false(mcp->output_schema);
    assert_int_equal(mcp->task_after_ms, usual->task_after_ms);
    assert_int_equal(mcp->wait_ms_max, usual->wait_ms_max);
    assert_int_equal(mcp->sessions_max, usual->sessions_max);
    assert_int_equal(mcp->session_idle_ms, usual->session_idle_ms);
    assert_int_equal(mcp->calls_max, usual->calls_max);
    assert_int_equal(mcp->stream_bytes_max, usual->stream_bytes_max);
    assert_int_equal(mcp->origin_count, usual->origin_count);
    assert_string_equal(mcp->stdio_principal, usual->stdio_principal);
    assert_string_equal(mcp->stdio_tenant, usual->stdio_tenant);
    assert_null(mcp->instructions);
    assert_false(file.config->has_mcp_servers);
    unload(&file);

    file = load("onced: 1\n"
                "mcp: {tools: {status: false, plan: false}, output_schema: true, tasks: false, task_after: 3s,\n"
                "  wait: 0, sessions: 7, session_idle: 2m, calls: 9, stream_bytes: 64KB,\n"
                "  origins: [\"https://a.example\", \"https://b.example\"],\n"
                "  stdio: {principal: me, tenant: ours}, instructions: Be careful.}\n" HTTP,
                NULL);
    assert_string_equal(file.report, "");
    mcp = &file.config->mcp;
    assert_false(mcp->tool_status || mcp->tool_plan || mcp->tasks);
    assert_true(mcp->tool_wait && mcp->tool_run_report && mcp->output_schema);
    assert_int_equal(mcp->task_after_ms, 3000);
    assert_int_equal(mcp->wait_ms_max, 0);
    assert_int_equal(mcp->sessions_max, 7);
    assert_int_equal(mcp->session_idle_ms, 120000);
    assert_int_equal(mcp->calls_max, 9);
    assert_int_equal(mcp->stream_bytes_max, 65536);
    assert_int_equal(mcp->origin_count, 2);
    assert_string_equal(mcp->origins[1], "https://b.example");
    assert_string_equal(mcp->stdio_principal, "me");
    assert_string_equal(mcp->stdio_tenant, "ours");
    assert_string_equal(mcp->instructions, "Be careful.");
    unload(&file);

    expect("onced: 1\nmcp:\n  calls: 0\n  tool: {}\n  origins: [a, 3]\n  stdio: {principal: \"\"}\n" HTTP, NULL,
           "f:3:3: /mcp/calls: expected a whole number from 1 to 100000, found 0\n"
           "f:4:3: /mcp/tool: unknown member \"tool\", did you mean \"tools\"?\n"
           "f:5:16: /mcp/origins/1: expected a list of texts, found 3 (put it in quotes)\n"
           "f:6:11: /mcp/stdio/principal: expected a text, found \"\"\n");
}

static void test_principals(void **state)
{
    (void)state;
    struct file file = load("onced: 1\nprincipals:\n  agent@x: {tools: [\"t*\"]}\n  nobody: {tools: []}\n" HTTP, NULL);
    assert_string_equal(file.report, "");
    const struct tool *tool = find(&file, "t");
    assert_true(registry_allows(file.registry, "agent@x", tool));
    assert_false(registry_allows(file.registry, "nobody", tool));
    assert_true(registry_allows(file.registry, "other", tool));
    unload(&file);
    expect("onced: 1\nprincipals:\n  a: {}\n  b: {tools: [u, t]}\n  \"\": {tools: [t]}\n  c: {tools: t}\n" HTTP, NULL,
           "f:3:3: /principals/a/tools: is missing, expected a list of texts\n"
           "f:4:15: warning: /principals/b/tools/0: no tool has such a name\n"
           "f:5:3: /principals/: a principal's name is 1 to 128 characters\n"
           "f:6:7: /principals/c/tools: expected a list of texts, found \"t\"\n");
    /* what a server has that nobody has asked yet is not known */
    expect("onced: 1\nprincipals: {a: {tools: [x]}}\nproviders: {s: {mcp: {url: \"http://[::1]:1\", import: {}}}}\n",
           NULL, "");
    expect("onced: 1\nprincipals: {a: {tools: [x]}}\nproviders: {s: {mcp: {url: \"http://[::1]:1\", import: {}}}}\n",
           "{\"s\": {\"tools\": []}}", "f:2:26: warning: /principals/a/tools/0: no tool has such a name\n");
}

/* ---- servers and the tools that the file names ---- */

static void test_servers(void **state)
{
    (void)state;
    struct file file =
        load("onced: 1\n"
             "providers:\n"
             "  a: {mcp: {command: [cat], start_timeout: 3s}, timeout: 9s, connections: 2, queue: 3,\n"
             "    key: {argument: k, honoured: true, retention: 1h, format: hex, max_length: 40}}\n"
             "  b: {mcp: {url: \"http://127.0.0.1:1/mcp\", start_timeout: 20s, protocol: \"2025-06-18\"}}\n"
             "tools:\n"
             "  t: {provider: a, class: external_idempotent, mcp: {tool: T, key_argument: id}}\n"
             "  u: {provider: b, class: read, forwarded: true, annotations: {readOnlyHint: true}}\n",
             NULL);
    assert_string_equal(file.report, "");
    assert_true(file.config->has_mcp_servers);
    assert_int_equal(file.config->mcp_start_timeout_ms_max, 20000);
    const struct tool *t = find(&file, "t"), *u = find(&file, "u");
    const struct provider *a = t->provider, *b = u->provider;
    assert_int_equal(a->kind, PROVIDER_MCP);
    assert_non_null(a->adapter_provider);
    assert_int_equal(a->timeout_ms, 9000);
    assert_int_equal(b->timeout_ms, 60000);
    assert_int_equal(a->connections_max, 2);
    assert_int_equal(a->queue_max, 3);
    assert_true(a->key_honoured && !b->key_honoured);
    assert_int_equal(a->key_retention_ms, 3600000);
    assert_int_equal(a->key_format, KEY_FORMAT_HEX);
    assert_int_equal(a->key_bytes_max, 40);
    assert_string_equal(mcp_tool_remote_name(t->adapter_tool), "T");
    assert_string_equal(mcp_tool_key_argument(t->adapter_tool), "id");
    assert_string_equal(mcp_tool_remote_name(u->adapter_tool), "u");
    assert_null(mcp_tool_key_argument(u->adapter_tool));
    assert_true(u->forwarded && !t->forwarded);
    assert_true(json_get_bool(u->annotations_json, "readOnlyHint", false));
    unload(&file);
}

#define SERVER "onced: 1\nproviders:\n  s: {mcp: {command: [cat]}}\ntools:\n"

static void test_errors(void **state)
{
    (void)state;
    expect("onced: 1\ntools: {}\nproviders:\n  s: {mcp: {}}\n", NULL,
           "f:2:1: warning: /tools: no tools are defined: every call will be refused\n"
           "f:4:7: /providers/s/mcp: expected command or url: how is the server reached?\n");
    expect(
        "onced: 1\ntools: {}\nproviders:\n  s:\n    mcp: {command: [a, 3], url: \"http://x\", cwd: /}\n    base_url: "
        "x\n    keepalive: true\n",
        NULL,
        "f:2:1: warning: /tools: no tools are defined: every call will be refused\n"
        "f:5:24: /providers/s/mcp/command/1: expected a list of texts, found 3 (put it in quotes)\n"
        "f:5:28: /providers/s/mcp/url: a server has a command or a url, not both\n"
        "f:5:28: warning: /providers/s/mcp/url: is plain http to another machine: requests and secrets can be read "
        "on the way\n"
        "f:5:45: /providers/s/mcp/cwd: is for servers that onced starts (command)\n"
        "f:6:5: /providers/s/base_url: belongs to HTTP providers and their tools; this one is an MCP server\n"
        "f:7:5: /providers/s/keepalive: belongs to HTTP providers and their tools; this one is an MCP server\n");
    expect(SERVER "  t: {provider: s, class: external_weak, forwarded: true, request: {path: /}}\n", NULL,
           "f:5:20: warning: /tools/t/class: class external_weak without a lookup: every unknown outcome waits for an "
           "operator\n"
           "f:5:42: /tools/t/forwarded: is for class read: a call that changes something must go through the ledger\n"
           "f:5:59: /tools/t/request: belongs to HTTP providers and their tools; this one is an MCP server\n");
    expect(SERVER "  t: {provider: s, class: external_idempotent}\n", NULL,
           "f:5:20: /tools/t/class: class external_idempotent by key needs key: {honoured: true, …} in provider \"s\"; "
           "without that choose external_weak, or idempotent_by: precondition or nature\n"
           "f:5:20: warning: /tools/t/class: class external_idempotent without a lookup: every unknown outcome waits "
           "for an operator\n");
    expect(
        SERVER "  t: {provider: s, class: external_weak, lookup: {tool: t, found: \"(\"}}\n", NULL,
        "f:5:51: /tools/t/lookup/tool: is \"t\", expected another tool of the server: a look-up must not do it again\n"
        "f:5:60: /tools/t/lookup/found: syntax error, unexpected ')' (Unix shell quoting issues?)\n");
    /* without a provider, and no import that could be meant */
    expect(SERVER "  t: {class: read}\n", NULL,
           "f:5:3: /tools/t/provider: is missing, expected a text\n"
           "f:5:3: /tools/t/request: is missing, expected a mapping\n");
    expect(
        "onced: 1\nproviders:\n  h: {base_url: \"http://[::1]:1\"}\ntools:\n  t: {provider: h, class: read, request: "
        "{path: /}, mcp: {}}\n",
        NULL, "f:5:53: /tools/t/mcp: belongs to MCP servers and their tools; this one is an HTTP provider\n");
    expect(
        "onced: 1\nproviders:\n  s:\n    mcp:\n      command: [cat]\n      import:\n        classes: {a: reed, b: "
        "read}\n        unclassified: no\n        forwarded: [3]\n        defaults: {provider: s, class: read, wat: 1, "
        "settle: 0}\n",
        NULL, "f:8:23: no is a boolean to some YAML readers and text to others: write false, or \"no\" in quotes\n");
    expect("onced: 1\nproviders:\n  s:\n    mcp:\n      command: [cat]\n      import:\n        classes: {a: reed, b: "
           "read}\n        unclassified: nothing\n        forwarded: [3]\n        defaults: {provider: s, class: read, "
           "watt: 1, settle: 0}\n        deny: x\n",
           NULL,
           "f:7:19: /providers/s/mcp/import/classes/a: expected a mapping of names to read, internal_write, "
           "external_idempotent, external_weak, external_irreversible, found \"reed\"\n"
           "f:8:9: /providers/s/mcp/import/unclassified: expected one of refuse, read_only_hints, external_weak, found "
           "\"nothing\"\n"
           "f:9:21: /providers/s/mcp/import/forwarded/0: expected true, false or a list of texts, found 3\n"
           "f:10:20: /providers/s/mcp/import/defaults/provider: belongs to one tool: state it in tools\n"
           "f:10:33: /providers/s/mcp/import/defaults/class: belongs to one tool: state it in tools, or in classes\n"
           "f:10:46: /providers/s/mcp/import/defaults/watt: unknown member \"watt\", did you mean \"wait\"?\n"
           "f:11:9: /providers/s/mcp/import/deny: expected a list of texts, found \"x\"\n");
}

static void test_paths(void **state)
{
    (void)state;
    /* relative to the registry file, wherever onced was started; seen in what makes it another server */
    const char *text = "onced: 1\nproviders:\n  s: {mcp: {command: [cat]}}\ntools: {t: {provider: s, class: read}}\n";
    struct file here = load_at("x/f", text, NULL), there = load_at("y/f", text, NULL),
                again = load_at("x/g", text, NULL);
    struct str a = mcp_provider_identity(find(&here, "t")->provider->adapter_provider);
    struct str b = mcp_provider_identity(find(&there, "t")->provider->adapter_provider);
    struct str c = mcp_provider_identity(find(&again, "t")->provider->adapter_provider);
    assert_false(str_equal(a, b));
    assert_true(str_equal(a, c));
    assert_string_equal(registry_policy_version(here.registry), registry_policy_version(there.registry));
    unload(&here);
    unload(&there);
    unload(&again);
}

/* ---- import ---- */

#define CATALOG "{\"s\": {\"tools\": [" READ ", " WRITE ", " DROP "]}}"
#define READ                                                                                                           \
    "{\"name\": \"read\", \"title\": \"Read\", \"description\": \"Reads.\", \"annotations\": {\"readOnlyHint\": "      \
    "true}, "                                                                                                          \
    "\"inputSchema\": {\"type\": \"object\", \"properties\": {\"path\": {\"type\": \"string\"}}}, \"outputSchema\": "  \
    "{\"type\": \"object\"}, \"icons\": [{\"src\": \"x\"}], \"_meta\": {\"m\": 1}}"
#define WRITE                                                                                                          \
    "{\"name\": \"write\", \"description\": \"Writes.\", \"inputSchema\": {\"type\": \"object\", \"required\": "       \
    "[\"path\", \"request_id\"], \"properties\": {\"path\": {\"type\": \"string\"}, \"request_id\": {\"type\": "       \
    "\"string\"}}}}"
#define DROP "{\"name\": \"drop\", \"inputSchema\": {\"type\": \"object\"}}"

#define IMPORT(members) "onced: 1\nproviders:\n  s:\n    mcp:\n      command: [cat]\n      import: {" members "}\n"
#define AT_IMPORT       "f:6:7: warning: /providers/s/mcp/import: "
#define GUESS(n, are, names)                                                                                           \
    AT_IMPORT #n " of server s without a class of yours " are                                                          \
                 " taken for external_weak (never sent twice, unknown outcomes wait for an operator): " names "\n"

static void expect_class(const char *text, const char *catalog, const char *name, enum tool_class class)
{
    struct file file = load(text, catalog);
    assert_int_equal(find(&file, name)->class, class);
    unload(&file);
}

static void test_import(void **state)
{
    (void)state;
    struct file file = load(IMPORT(""), NULL); /* the server was not asked yet */
    assert_string_equal(file.report, "");
    expect_names(&file, "");
    unload(&file);

    file = load(IMPORT(""), CATALOG);
    assert_string_equal(file.report, GUESS(3 tools, "are", "read, write, drop"));
    expect_names(&file, "drop read write");
    const struct tool *tool = find(&file, "read");
    assert_int_equal(tool->class, CLASS_EXTERNAL_WEAK);
    assert_string_equal(tool->title, "Read");
    assert_string_equal(tool->description, "Reads.");
    assert_non_null(tool->input_schema);
    assert_true(json_get_bool(tool->annotations_json, "readOnlyHint", false));
    assert_non_null(json_get(tool->output_schema_json, "type"));
    assert_int_equal(tool->icons_json->count, 1);
    assert_int_equal(json_get_int(tool->meta_json, "m", 0), 1);
    assert_null(find(&file, "drop")->annotations_json);
    assert_int_equal(find(&file, "write")->repeat_window_ms, 86400000);
    assert_string_equal(mcp_tool_remote_name(find(&file, "write")->adapter_tool), "write");
    unload(&file);

    file = load(IMPORT("prefix: s_, allow: [\"*r*\"], deny: [drop]"), CATALOG);
    expect_names(&file, "s_read s_write");
    assert_string_equal(mcp_tool_remote_name(find(&file, "s_read")->adapter_tool), "read");
    unload(&file);
    file = load(IMPORT("allow: []"), CATALOG);
    expect_names(&file, "");
    assert_string_equal(file.report, "");
    unload(&file);
}

static void test_classes(void **state)
{
    (void)state;
    const char *hints = IMPORT("unclassified: read_only_hints");
    expect_class(hints, CATALOG, "read", CLASS_READ);
    expect_class(hints, CATALOG, "write", CLASS_EXTERNAL_WEAK);
    expect(hints, CATALOG, GUESS(2 tools, "are", "write, drop"));
    expect_class(IMPORT("unclassified: external_weak"), CATALOG, "read", CLASS_EXTERNAL_WEAK);

    const char *classes =
        IMPORT("classes: {\"*r*\": internal_write, read: read, drop: external_idempotent, \"*\": read}, "
               "defaults: {idempotent_by: nature}");
    struct file file = load(classes, CATALOG);
    assert_int_equal(find(&file, "read")->class, CLASS_READ); /* the full name wins */
    assert_int_equal(find(&file, "write")->class, CLASS_INTERNAL_WRITE);
    assert_int_equal(find(&file, "drop")->class, CLASS_EXTERNAL_IDEMPOTENT);
    unload(&file);

    /* a hint is no proof, and its absence says something */
    expect(IMPORT("classes: {\"*\": read}"), CATALOG,
           "f:6:16: warning: /providers/s/mcp/import/classes: class read without server s saying readOnlyHint: if they "
           "change something, nothing keeps it from happening twice: write, drop\n");

    file = load(IMPORT("unclassified: refuse, classes: {read: read}"), CATALOG);
    expect_names(&file, "read");
    assert_string_equal(
        file.report, AT_IMPORT
        "tool \"drop\" of server s is left out: it has no class, and unclassified tools are refused; give it "
        "one in classes or in tools\n" AT_IMPORT
        "tool \"write\" of server s is left out: it has no class, and unclassified tools are refused; give it "
        "one in classes or in tools\n");
    unload(&file);
}

static void test_forwarded(void **state)
{
    (void)state;
    struct file file = load(IMPORT("unclassified: read_only_hints, forwarded: true"), CATALOG);
    assert_true(find(&file, "read")->forwarded);
    assert_false(find(&file, "write")->forwarded);
    unload(&file);
    file = load(IMPORT("classes: {\"*\": read}, forwarded: [\"d*\"]"), CATALOG);
    assert_true(find(&file, "drop")->forwarded);
    assert_false(find(&file, "read")->forwarded);
    unload(&file);
    file = load(IMPORT("unclassified: read_only_hints, forwarded: true") "tools:\n"
                                                                         "  read: {mcp: {key_argument: path}}\n",
                CATALOG);
    const struct json *schema = find(&file, "read")->input_schema_json; /* it gets no key: its arguments stay its own */
    assert_non_null(json_get(json_get(schema, "properties"), "path"));
    unload(&file);
}

static void test_defaults(void **state)
{
    (void)state;
    const char *text = IMPORT("unclassified: read_only_hints, defaults: {repeat_window: 1h, cache: 2s, wait: 3s, key: "
                              "\"k:{path}\"}");
    struct file file = load(text, CATALOG);
    const struct tool *read = find(&file, "read"), *write = find(&file, "write");
    assert_int_equal(read->cache_ms, 2000);
    assert_int_equal(write->cache_ms, 0);
    assert_int_equal(read->wait_ms, 3000);
    assert_int_equal(write->repeat_window_ms, 3600000);
    assert_null(read->key);
    assert_string_equal(template_text(write->key), "k:{path}");
    unload(&file);
}

/* The file's own entry is merged over the proposal. */
static void test_merge(void **state)
{
    (void)state;
    const char *text =
        IMPORT("prefix: s_, classes: {write: external_weak}, deny: [drop], defaults: {repeat_window: 1h, "
               "wait: 3s}") "tools:\n"
                            "  s_write:\n"
                            "    key: \"write:{path}\"\n"
                            "    description: Mine.\n"
                            "    repeat_window: 2h\n"
                            "    mcp: {key_argument: request_id}\n"
                            "    lookup: {tool: read, arguments: {path: \"{path}\"}, found: .f}\n"
                            "  s_read: {class: read}\n"
                            "  other: {provider: s, mcp: {tool: drop}, class: external_weak, lookup: "
                            "{tool: read, found: .f}}\n";
    struct file file = load(text, CATALOG);
    assert_string_equal(file.report, "");
    expect_names(&file, "other s_read s_write");
    const struct tool *write = find(&file, "s_write"), *other = find(&file, "other");
    assert_int_equal(write->class, CLASS_EXTERNAL_WEAK);
    assert_string_equal(template_text(write->key), "write:{path}");
    assert_string_equal(write->description, "Mine.");
    assert_int_equal(write->repeat_window_ms, 7200000);
    assert_int_equal(write->wait_ms, 3000);
    assert_non_null(write->input_schema);
    assert_true(write->has_lookup);
    assert_string_equal(mcp_tool_remote_name(write->adapter_tool), "write");
    assert_string_equal(mcp_tool_key_argument(write->adapter_tool), "request_id");
    const struct json *schema = write->input_schema_json, *required = json_get(schema, "required");
    assert_non_null(json_get(json_get(schema, "properties"), "path"));
    assert_null(json_get(json_get(schema, "properties"), "request_id")); /* onced's to fill */
    assert_true(required->count == 1 && str_is(required->items[0].text, "path"));
    assert_string_equal(find(&file, "s_read")->title, "Read");
    assert_int_equal(other->repeat_window_ms, 86400000); /* not imported: no defaults */
    assert_string_equal(mcp_tool_remote_name(other->adapter_tool), "drop");
    assert_non_null(other->input_schema);
    unload(&file);

    /* the same file before the server was asked: what it names is there */
    file = load(text, NULL);
    assert_string_equal(file.report, "");
    expect_names(&file, "other s_read s_write");
    assert_null(find(&file, "s_write")->input_schema);
    unload(&file);

    /* without an import what the server lists completes what the file names */
    file = load(SERVER "  read: {provider: s, class: read}\n  mine: {provider: s, class: external_weak, mcp: {tool: "
                       "write}, lookup: {tool: read, found: .f}, input_schema: {type: object, title: mine}}\n",
                CATALOG);
    assert_string_equal(file.report, "");
    expect_names(&file, "mine read");
    assert_string_equal(find(&file, "mine")->description, "Writes.");
    assert_string_equal(json_get_text(find(&file, "mine")->input_schema_json, "title").p, "mine");
    unload(&file);
}

/* What a server lists can be wrong in every way without the file being refused. */
static void test_bad_lists(void **state)
{
    (void)state;
    struct file file = load(
        IMPORT("classes: {\"*\": internal_write}, prefix: a23456789_"),
        "{\"s\": {\"tools\": [1, {}, {\"name\": 3}, {\"name\": \"\"}, {\"name\": \"a/b\"}, "
        "{\"name\": \"x123456789x123456789x123456789x123456789x123456789x1234\"}, "
        "{\"name\": \"x123456789x123456789x123456789x123456789x123456789x123\", \"description\": \"\", \"title\": 3}, "
        "{\"name\": \"bad\", \"inputSchema\": {\"type\": \"object\", \"properties\": {\"p\": {\"type\": \"nope\"}}}}, "
        "{\"name\": \"list\", \"inputSchema\": {\"type\": \"array\"}}, "
        "{\"name\": \"odd\", \"inputSchema\": [], \"annotations\": 1, \"icons\": {}, \"_meta\": \"\"}, "
        "{\"name\": \"odd\"}]}}");
    assert_int_equal(file.code, ERR_NONE);
    expect_names(&file, "a23456789_odd a23456789_x123456789x123456789x123456789x123456789x123456789x123");
    assert_string_equal(
        file.report, AT_IMPORT
        "tool \"a/b\" of server s is left out: a tool's name is 1 to 64 characters of A-Z a-z 0-9 _ . -; name it in "
        "tools: NAME: {provider: …, mcp: {tool: …}}\n" AT_IMPORT
        "tool \"a23456789_bad\" is left out, with what server s lists it is wrong: /input_schema/properties/p/type: "
        "must "
        "be one or an array of null, boolean, integer, number, string, array, object\n" AT_IMPORT
        "tool \"a23456789_list\" is left out, with what server s lists it is wrong: /input_schema/type: arguments are "
        "always an object, expected type object\n" AT_IMPORT
        "tool \"x123456789x123456789x123456789x123456789x123456789x1234\" of server s is left out: its name would "
        "have "
        "65 characters, clients take 64; name it in tools: SHORT: {provider: …, mcp: {tool: "
        "x123456789x123456789x123456789x123456789x123456789x1234}}\n");
    unload(&file);
    static const char *const odd[] = {"{}", "[]", "{\"s\": 1}", "{\"s\": {\"tools\": {}}}",
                                      "{\"other\": {\"tools\": [{\"name\": \"x\"}]}}"};
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        file = load(IMPORT(""), odd[i]);
        assert_int_equal(file.code, ERR_NONE);
        expect_names(&file, "");
        unload(&file);
    }
}

static void test_collisions(void **state)
{
    (void)state;
    const char *text = "onced: 1\n"
                       "providers:\n"
                       "  a: {mcp: {command: [cat], import: {classes: {\"*\": internal_write}}}}\n"
                       "  b: {mcp: {command: [cat], import: {classes: {\"*\": internal_write}}}}\n"
                       "  h: {base_url: \"http://[::1]:1\"}\n"
                       "tools:\n"
                       "  mine: {class: read, provider: h, request: {path: /}}\n";
    struct file file = load(text, "{\"b\": {\"tools\": [{\"name\": \"x\"}, {\"name\": \"z\"}]}, \"a\": {\"tools\": "
                                  "[{\"name\": \"x\"}, {\"name\": \"mine\"}, {\"name\": \"onced_status\"}]}}");
    assert_string_equal(
        file.report, "f:3:29: warning: /providers/a/mcp/import: tool \"mine\" of server a is left out: the file's own "
                     "tools have this name; give the import a prefix\n"
                     "f:3:29: warning: /providers/a/mcp/import: tool \"onced_status\" of server a is left out: names "
                     "that begin with onced_ belong to onced; give the import a prefix\n"
                     "f:4:29: warning: /providers/b/mcp/import: tool \"x\" of server b is left out: server a has a "
                     "tool of this name too; give an import a prefix\n");
    expect_names(&file, "mine x z");
    assert_string_equal(find(&file, "x")->provider->name, "a"); /* the file's order, not the list's */
    assert_string_equal(find(&file, "mine")->provider->name, "h");
    unload(&file);
}

/* Which server is meant when the file's entry does not say. */
static void test_refined_server(void **state)
{
    (void)state;
    const char *text = "onced: 1\n"
                       "providers:\n"
                       "  a: {mcp: {command: [cat], import: {classes: {\"*\": internal_write}}}}\n"
                       "  b: {mcp: {command: [cat], import: {prefix: b_, classes: {\"*\": read}, allow: [\"r*\"]}}}\n"
                       "tools:\n"
                       "  b_read: {title: T}\n"
                       "  b_write: {title: T}\n";
    struct file file = load(text, "{\"a\": {\"tools\": [{\"name\": \"b_write\"}]}, \"b\": {\"tools\": [" READ "]}}");
    assert_string_equal(file.report,
                        "f:7:3: warning: /tools/b_write/class: class internal_write without a lookup: every "
                        "unknown outcome waits for an operator\n");
    assert_string_equal(find(&file, "b_read")->provider->name, "b");
    assert_int_equal(find(&file, "b_read")->class, CLASS_READ);
    assert_string_equal(find(&file, "b_write")->provider->name, "a");
    unload(&file);
    /* both could have a b_read: it must be said */
    expect(text, NULL,
           "f:6:3: /tools/b_read/class: is missing, expected one of read, internal_write, "
           "external_idempotent, external_weak, external_irreversible\n"
           "f:6:3: /tools/b_read/provider: is missing, expected a text\n"
           "f:6:3: /tools/b_read/request: is missing, expected a mapping\n"
           "f:7:3: warning: /tools/b_write/class: class internal_write without a lookup: every unknown outcome "
           "waits for an operator\n");
}

/* What only the list can tell about what the file says. */
static void test_advice(void **state)
{
    (void)state;
    expect(SERVER "  a: {provider: s, class: external_weak, mcp: {tool: rite, key_argument: id}, lookup: {tool: reed, "
                  "found: .f}}\n"
                  "  write: {provider: s, class: read, mcp: {key_argument: id}}\n"
                  "  drop: {provider: s, class: external_irreversible, approval: none, key: \"k\"}\n",
           CATALOG,
           "f:5:48: warning: /tools/a/mcp/tool: server s has no tool \"rite\", did you mean \"write\"?\n"
           "f:5:88: warning: /tools/a/lookup/tool: server s has no tool \"reed\", did you mean \"read\"?\n"
           "f:6:24: warning: /tools/write/class: class read, but server s does not say readOnlyHint: if it changes "
           "something, nothing keeps it from happening twice\n"
           "f:6:43: warning: /tools/write/mcp/key_argument: input_schema has no member \"id\": the server may refuse "
           "it\n"
           "f:7:23: warning: /tools/drop/class: class external_irreversible without a lookup: every unknown outcome "
           "waits for an operator\n");
    /* a key over a member that the server's schema does not have: the tool is left out, the file stays good */
    struct file file = load(SERVER "  write: {provider: s, class: external_weak, key: \"k:{pth}\"}\n", CATALOG);
    assert_string_equal(file.report,
                        "f:5:3: warning: /tools/write: tool \"write\" is left out, with what server s lists it "
                        "is wrong: /key: input_schema has no member \"pth\", did you mean \"path\"?\n");
    expect_names(&file, "");
    unload(&file);
    /* and an error that is the file's alone is one without the list */
    expect(
        SERVER "  write: {provider: s, class: external_weak, key: \"k:{p\"}\n", NULL,
        "f:5:24: warning: /tools/write/class: class external_weak without a lookup: every unknown outcome waits for an "
        "operator\n"
        "f:5:46: /tools/write/key: column 3: \"{\" is not closed; write \"{{\" for a literal brace\n");
}

static void test_policy_version(void **state)
{
    (void)state;
    static const char *const catalogs[] = {
        NULL, "{\"s\": {\"tools\": [" WRITE "]}}", "{\"s\": {\"tools\": [" WRITE "]}}",
        "{\"s\": {\"tools\": [{\"name\": \"write\", \"description\": \"Writes, and more.\"}]}}"};
    char versions[4][32];
    for (size_t i = 0; i < 4; i++) {
        struct file file = load(IMPORT(""), catalogs[i]);
        snprintf(versions[i], sizeof versions[i], "%s", registry_policy_version(file.registry));
        unload(&file);
    }
    assert_string_not_equal(versions[0], versions[1]);
    assert_string_equal(versions[1], versions[2]);
    assert_string_not_equal(versions[1], versions[3]); /* a tool that the server changed is another policy */
}

/* ---- onced mcp import ---- */

/* tools: JSON array. Compares what is written from the line "tools:" on, and that it can be used. */
static void expect_skeleton(const char *tools, const char *names, const char *wanted)
{
    struct arena arena;
    struct buf text;
    arena_init(&arena);
    buf_init(&text, 0);
    const struct skeleton skeleton = {
        .provider = "s",
        .section =
            parse(&arena, "{\"mcp\": {\"command\": [\"a b\", \"#: {\\n\"], \"env\": {\"on\": \"${env:HOME}\"}}}"),
        .tools = parse(&arena, tools),
        .facts = parse(&arena, "{\"name\": \"n\\nonced: 2\", \"release\": \"1\", \"version\": \"2025-11-25\"}"),
    };
    skeleton_write(&skeleton, &text);
    struct file file = load(buf_str(&text).p, NULL);
    if (!file.registry)
        fail_msg("%s%s", buf_str(&text).p, file.report);
    expect_names(&file, names);
    const char *part = strstr(buf_str(&text).p, "\ntools:");
    assert_non_null(part);
    if (wanted)
        assert_string_equal(part + 1, wanted);
    unload(&file);
    buf_release(&text);
    arena_release(&arena);
}

static void test_skeleton(void **state)
{
    (void)state;
    expect_skeleton("[]", "", "tools: {}\n");
    expect_skeleton(
        "[" READ
        ", {\"name\": \"send_mail\", \"description\": \"Sends.\", \"annotations\": {\"destructiveHint\": true, "
        "\"openWorldHint\": false}, \"inputSchema\": {\"type\": \"object\", \"required\": [\"to\", \"path\", \"body\", "
        "\"list\"], \"properties\": {\"to\": {\"type\": \"string\"}, \"path\": {\"type\": \"string\"}, \"body\": "
        "{\"type\": \"string\"}, \"list\": {\"type\": \"array\"}, \"Idempotency-Key\": {\"type\": \"string\"}, "
        "\"requestTimestamp\": {\"type\": \"integer\"}}}}]",
        "read send_mail",
        "tools:\n"
        "  read:\n"
        "    # Reads.\n"
        "    # The server's hints: readOnlyHint true\n"
        "    # Arguments: path (string)\n"
        "    provider: s\n"
        "    class: read\n"
        "    # Decide: the server says that it only reads. If that is not so, nothing keeps a repeated call from "
        "acting "
        "twice.\n"
        "\n"
        "  send_mail:\n"
        "    # Sends.\n"
        "    # The server's hints: destructiveHint true, openWorldHint false\n"
        "    # Arguments: to (string, required), path (string, required), body (string, required), list (array, "
        "required), "
        "Idempotency-Key (string), requestTimestamp (integer)\n"
        "    provider: s\n"
        "    class: external_weak\n"
        "    # Decide the class: may a repeated call act twice (external_weak), never (external_idempotent), or can it "
        "not "
        "be undone\n"
        "    #   (external_irreversible: needs key and approval)?\n"
        "    #   Its name sounds as if it could not be undone.\n"
        "    # Decide the key: two calls with the same one are one effect, for ever. Which arguments make the intent?\n"
        "    # key: \"send_mail:{to}:{path}\"\n"
        "    # Idempotency-Key looks like a key: onced can fill it in, hidden from the model, the same on every "
        "attempt:\n"
        "    # mcp: {key_argument: Idempotency-Key}\n"
        "    # Differs between attempts without meaning another intent?\n"
        "    # volatile: [/requestTimestamp]\n"
        "    # Decide how to find out what happened when a call's answer is lost; without a lookup an operator is "
        "asked.\n");
}

/* What a server says of itself is text for comments and names, whatever it looks like. */
static void test_skeleton_of_odd_lists(void **state)
{
    (void)state;
    expect_skeleton(
        "[{\"name\": \"a/b c\\n#\", \"description\": \"x\\ntools: {evil: 1}\\u0000\\t\"}, {\"name\": \"a_b_c__\"}, "
        "{\"name\": \"true\"}, {\"name\": \"12\"}, {\"name\": \"\"}, {}, 1, {\"name\": \"\\\"'{}\"}, {\"name\": "
        "\"x123456789x123456789x123456789x123456789x123456789x123456789x123456789\"}, {\"name\": "
        "\"x123456789x123456789x123456789x123456789x123456789x123456789x1234567890\"}, {\"name\": \"get_x\", "
        "\"inputSchema\": {\"required\": [\"a}:\\n\", 3], \"properties\": {\"a}:\\n\": {\"type\": \"string\"}, "
        "\"idempotency\\nkey\": {\"type\": \"string\"}, \"n\": {\"type\": [\"string\"]}, \"t\": 3}}, \"annotations\": "
        "7}]",
        "12 ____ a_b_c__ a_b_c___2 get_x true x123456789x123456789x123456789x123456789x123456789x123456789x123 "
        "x123456789x123456789x123456789x123456789x123456789x1234567_2",
        NULL);
}

static void test_skeleton_names(void **state)
{
    (void)state;
    static const struct {
        const char *words[5], *name;
    } commands[] = {
        {{"npx", "-y", "@modelcontextprotocol/server-filesystem@2026.1", "/data"}, "filesystem"},
        {{"uvx", "mcp-server-git"}, "git"},
        {{"/usr/bin/python3", "tools/mail_mcp.py"}, "mail-mcp"},
        {{"docker", "run", "-i", "ghcr.io/x/github-mcp-server"}, "github"},
        {{"env", "A=b", "node", "./server.js"}, "server"},
        {{"./files-mcp"}, "files"},
        {{"python3", "-c", "???"}, "server"},
    };
    struct arena arena;
    arena_init(&arena);
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        char *words[5];
        size_t count = 0;
        for (; count < 5 && commands[i].words[count]; count++)
            words[count] = arena_copy_text(&arena, commands[i].words[count]);
        assert_string_equal(skeleton_name_of_command(&arena, words, count), commands[i].name);
    }
    assert_string_equal(skeleton_name_of_url(&arena, "https://mcp.example.com/x"), "mcp-example-com");
    assert_string_equal(skeleton_name_of_url(&arena, "http://127.0.0.1:3001/mcp"), "server");
    arena_release(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_door),
        cmocka_unit_test(test_principals),
        cmocka_unit_test(test_servers),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_paths),
        cmocka_unit_test(test_import),
        cmocka_unit_test(test_classes),
        cmocka_unit_test(test_forwarded),
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_merge),
        cmocka_unit_test(test_bad_lists),
        cmocka_unit_test(test_collisions),
        cmocka_unit_test(test_refined_server),
        cmocka_unit_test(test_advice),
        cmocka_unit_test(test_policy_version),
        cmocka_unit_test(test_skeleton),
        cmocka_unit_test(test_skeleton_of_odd_lists),
        cmocka_unit_test(test_skeleton_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
