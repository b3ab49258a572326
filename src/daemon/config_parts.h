/* How the registry file's providers and tools become what core and the adapter work with. Inside of config only. */
#ifndef DAEMON_CONFIG_PARTS_H
#define DAEMON_CONFIG_PARTS_H

#include "adapter/command.h"
#include "adapter/http.h"
#include "adapter/jq.h"
#include "adapter/mail.h"
#include "adapter/mcp.h"
#include "adapter/sql.h"
#include "base/problem.h"
#include "core/claims.h"
#include "core/registry.h"
#include "daemon/config_options.h"

/* Everything that one registry consists of; released after its last reference is gone. */
struct loaded_provider {
    struct provider core;
    struct http_provider *http; /* one of these by core.kind; NULL after errors */
    struct mcp_provider *mcp;
    struct command_provider *command;
    struct mail_provider *mail;
    struct sql_provider *sql;
};

struct loaded_tool {
    struct tool core;
    const struct json *section; /* what it was made of */
    struct http_tool *http;     /* one of these by the provider's kind; NULL after errors */
    struct mcp_tool *mcp;
    struct command_tool *command;
    struct mail_tool *mail;
    struct sql_tool *sql;
    struct config_claims *claims;       /* in the arena; what it holds is released with the tool */
    struct config_playbooks *playbooks; /* the same */
    struct config_steps *steps;         /* the same; NULL: no multi-step tool */
    struct jq_program *approval_when;   /* NULL when not stated */
    struct template *key;               /* NULL after errors or when not stated, like the next two */
    struct normal *normal;
    struct schema *schema;
};

struct loaded {
    struct arena arena; /* the file's tree, names, texts */
    struct loaded_provider *providers;
    size_t provider_count;
    struct loaded_tool *tools;
    size_t tool_count;
    struct http_provider *assumed_http; /* stand in for broken ones while tools are checked; else NULL */
    struct mcp_provider *assumed_mcp;
    struct command_provider *assumed_command;
    struct mail_provider *assumed_mail;
    struct sql_provider *assumed_sql;
    struct budget *budgets;
    size_t budget_count;
    struct registry_access *access;
    size_t access_count;
    struct inbox_source *sources; /* config_inbox.c */
    size_t source_count;
};

void loaded_free(struct loaded *loaded); /* NULL is fine */
void loaded_tool_release(struct loaded_tool *tool);

struct loader {
    struct loaded *loaded;
    struct problems *problems;
    const char *folder; /* of the registry file, ends with "/" or is empty: relative paths start here */
};

/* A tool to compile. */
struct planned_tool {
    struct str name;
    const struct json *section; /* what the file says, merged over what its MCP server's import proposes */
    const char *pointer;        /* where a reader has to look: the tool's own entry, or the import */
    const char *server;         /* whose list went into it: what is wrong may be the server's doing; else NULL */
    bool imported;              /* the file does not name it */
};

/* The file's tools in their order, then those that are imported from MCP servers. catalog (mcp_hub_catalog) may be
 * NULL. Warns of listed tools that are left out or whose class is a guess. The array is in loaded's arena. */
size_t config_plan_tools(const struct loader *loader, const struct json *providers, const struct json *tools,
                         const struct json *catalog, struct planned_tool **out);

/* folder + path, or path itself when it is absolute; in arena. */
const char *config_resolve_path(struct arena *arena, const char *folder, struct str path);

/* References to files in the texts of a mapping ("${file:PATH}") start at the registry file's folder. */
void config_settle_members(const struct loader *loader, struct json *object, const char *name);

/* config_command.c: relative paths start at the registry file's folder. config_settle_run: a copy of a tool's section.
 */
void config_settle_command(const struct loader *loader, struct json *command);
const struct json *config_settle_run(const struct loader *loader, const struct json *section);
/* Stands in for a broken or unknown provider while its tools are checked. */
const struct command_provider *config_assumed_command(const struct loader *loader);

/* config_guard.c: a tool of guard mode. */
void config_guard_read(const struct loader *loader, const struct json *section, const char *pointer,
                       struct loaded_tool *tool);

/* Each fills one entry of loaded from one member of "providers" or "tools" and adds what is wrong. */
void config_provider_read(const struct loader *loader, struct str name, const struct json *section, const char *pointer,
                          struct loaded_provider *out);
void config_tool_read(const struct loader *loader, struct str name, const struct json *section, const char *pointer,
                      struct loaded_tool *out);

/* inbox.NAME: fills loaded's sources; after the tools, whether what they wait for can come. */
void config_inbox_read(const struct loader *loader, const struct json *inbox);
void config_inbox_check(const struct loader *loader);
void config_inbox_release(struct loaded *loaded);

/* Whether a provider's section is that of an MCP server. */
enum option_kind config_provider_kind(const struct json *section);

/* A tool of a mail server; provider may be NULL or broken. */
void config_mail_compile(const struct loader *loader, const struct json *section, const char *pointer,
                         const struct loaded_provider *provider, struct loaded_tool *out);

/* A tool of a database; the same. */
void config_sql_compile(const struct loader *loader, const struct json *section, const char *pointer,
                        const struct loaded_provider *provider, struct loaded_tool *out);

/* Policy: contradictions are errors, dangers are warnings (design 13). Called when the tool's parts are compiled;
 * leaves out of the default strategies what the tool cannot do. */
void config_tool_check(const struct loader *loader, const struct json *section, const char *pointer,
                       struct loaded_tool *tool);

struct config_server;
/* After all tools: warns when nobody could ever approve. */
void config_approval_check(const struct loader *loader, const struct config_server *server);
/* notify: its secret, and what is contradictory about it. After server. */
struct config;
void config_notify_finish(const struct loader *loader, struct config *config);
/* ledger, as the option table stored it. */
void config_ledger_finish(const struct loader *loader, struct config *config);
/* relay, as the option table stored it. */
void config_relay_finish(const struct loader *loader, struct config *config);
/* server.links: takes a final slash off its base. */
void config_links_finish(struct config_server *server, struct arena *arena, struct problems *problems);

/* tools.NAME.approval: its condition, what its answers rest on, and what is contradictory about it. */
void config_approval_read(const struct loader *loader, const struct json *section, const char *pointer,
                          struct loaded_tool *tool);

/* budgets, before tools; tools.NAME.{entities, guards, sets, window, budgets}. */
#define CONFIG_SETS_MAX 32 /* attributes of one tool */
void config_budgets_read(const struct loader *loader, const struct json *budgets);
void config_claims_read(const struct loader *loader, const struct json *section, const char *pointer,
                        struct loaded_tool *tool);
void config_claims_release(struct loaded_tool *tool);

/* tools.NAME.compensation; check: when all tools are read, whether those that playbooks run are there and fit. */
#define CONFIG_SUGGESTIONS_MAX 200 /* names among which a near one is looked for */
void config_playbooks_read(const struct loader *loader, const struct json *section, const char *pointer,
                           struct loaded_tool *tool);
void config_playbooks_check(const struct loader *loader);
void config_playbooks_release(struct loaded_tool *tool);
/* The tool of that name, or NULL, which is told at pointer. When all tools are read. */
const struct tool *config_find_tool(const struct loader *loader, const char *name, const char *pointer);
/* Whether arguments that are made from form can fit the tool's input schema. */
void config_form_check(const struct loader *loader, const struct json *form, const struct tool *tool,
                       const char *pointer);

/* tools.NAME.steps. class: that of the most dangerous step; false when it is not known. check: when all tools are read,
 * whether those of the steps are there and fit. */
bool config_steps_stated(const struct json *section);
bool config_steps_class(const struct loader *loader, const struct json *section, const char *pointer,
                        enum tool_class *class);
void config_steps_read(const struct loader *loader, const struct json *section, const char *pointer,
                       struct loaded_tool *tool);
void config_steps_check(const struct loader *loader);
void config_steps_release(struct loaded_tool *tool);

/* Member names in the tool's templates, volatile and normalize that its input schema does not know. */
void config_names_check(const struct loader *loader, const struct json *section, const char *pointer,
                        const struct tool *tool);

/* Problems from index `from` on that repeat the place of an error between `start` and `from` are dropped: the option
 * table and the adapter look at the same members. */
void config_drop_repeated(struct problems *problems, size_t start, size_t from);

#endif
