/* tools.NAME.approval (design 8). */
#include "base/digest.h"
#include "daemon/config.h"
#include "daemon/config_parts.h"

static const char *below(const struct loader *loader, const char *pointer, const char *name)
{
    return options_pointer(&loader->loaded->arena, pointer, str_of(name));
}

/* What an approval is for, as far as the file says it: what was asked of people, and what would be sent. Other edits of
 * the file leave approvals alone. */
static const char *digest_of(const struct loader *loader, const struct json *section)
{
    static const char *const members[] = {"approval", "provider", "request",    "mcp",  "run",
                                          "sql",      "mail",     "guard_mode", "steps"};
    struct arena *arena = &loader->loaded->arena;
    struct json *kept = json_object(arena);
    struct buf canonical;
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        const struct json *value = json_get(section, members[i]);
        if (value)
            json_set(arena, kept, str_of(members[i]), *value);
    }
    buf_init(&canonical, 0);
    json_canonical(&canonical, kept);
    struct digest digest = digest_sha256(buf_str(&canonical));
    char *hex = arena_alloc(arena, 2 * APPROVAL_POLICY_BYTES + 1);
    digest_hex(&digest, APPROVAL_POLICY_BYTES, hex);
    buf_release(&canonical);
    return hex;
}

static void read_condition(const struct loader *loader, const struct json *approval, const char *pointer,
                           struct loaded_tool *out)
{
    const struct json *when = json_get(approval, "when");
    struct err err = {0};
    if (!when || when->type != JSON_STRING)
        return;
    const char *text = arena_copy_str(&loader->loaded->arena, when->text);
    if (jq_program_new(text, false, &out->approval_when, &err))
        problems_add(loader->problems, below(loader, pointer, "when"), "%s", err.text);
    out->core.approval.condition = out->approval_when;
}

static void check(const struct loader *loader, const char *pointer, const struct tool *tool)
{
    if (tool->class == CLASS_READ)
        problems_add(loader->problems, pointer, "is for tools that change something, not for class read");
    if (tool->approval.mcp == APPROVAL_MCP_ELICIT && tool->approval.approvers == 1 &&
        tool->class == CLASS_EXTERNAL_IRREVERSIBLE)
        problems_warn(loader->problems, below(loader, pointer, "mcp"),
                      "a form at the calling client is all that it takes, and a client may answer by itself: for what "
                      "can not be undone name more approvers, or ask nobody by MCP");
}

void config_approval_read(const struct loader *loader, const struct json *section, const char *pointer,
                          struct loaded_tool *out)
{
    const struct json *approval = json_get(section, "approval");
    struct approval_policy *policy = &out->core.approval;
    const char *at = below(loader, pointer, "approval");
    policy->policy = digest_of(loader, section);
    policy->required = approval && !(approval->type == JSON_STRING && str_is(approval->text, "none"));
    if (!policy->required)
        return;
    if (approval->type == JSON_OBJECT)
        read_condition(loader, approval, at, out);
    check(loader, at, &out->core);
}

/* Without tokens every caller is the same person, who has called and so may not decide. */
void config_approval_check(const struct loader *loader, const struct config_server *server)
{
    const struct loaded *loaded = loader->loaded;
    bool people = server->auth == CONFIG_AUTH_TOKENS || server->links.base;
    for (size_t i = 0; !people && !loader->problems->errors && i < loaded->tool_count; i++) {
        const struct tool *tool = &loaded->tools[i].core;
        bool form = tool->approval.mcp == APPROVAL_MCP_ELICIT && tool->approval.approvers == 1;
        if (form || (!tool->approval.required && tool->repeat != REPEAT_WITH_APPROVAL))
            continue;
        const char *pointer = below(loader, "/tools", tool->name);
        problems_warn(
            loader->problems, below(loader, pointer, tool->approval.required ? "approval" : "repeat"),
            "nobody can approve: without auth: tokens (or links) in server all callers are one person, and who "
            "calls a tool does not decide on it");
        return;
    }
}

/* ---- server.links ---- */

void config_links_finish(struct config_server *server, struct arena *arena, struct problems *problems)
{
    struct str base = str_of(server->links.base);
    if (!base.p)
        return;
    if (strncmp(base.p, "https://", 8) != 0 && strncmp(base.p, "http://", 7) != 0)
        problems_add(problems, "/server/links/base", "expected a URL (https://onced.example.com), found \"%.60s\"",
                     base.p);
    while (base.n > 0 && base.p[base.n - 1] == '/')
        base.n--;
    server->links.base = arena_copy_str(arena, base);
}
