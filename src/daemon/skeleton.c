#include "daemon/skeleton.h"

#include "base/map.h"
#include "daemon/config_options.h"

#include <ctype.h>

#define COMMENT_BYTES 100 /* of a server's own text in a comment */
#define KEY_PARTS_MAX 4
#define FOLDED_MAX    64

/* ---- words that say what an argument or a tool may be ---- */

/* Lower case, letters and digits only: request_id, requestId and Request-ID are one word. */
static void fold(struct str name, char out[FOLDED_MAX])
{
    size_t n = 0;
    for (size_t i = 0; i < name.n && n < FOLDED_MAX - 1; i++)
        if (isalnum((unsigned char)name.p[i]))
            out[n++] = (char)tolower((unsigned char)name.p[i]);
    out[n] = '\0';
}

static bool is_one_of(const char *text, const char *const *words)
{
    for (; *words; words++)
        if (strcmp(text, *words) == 0)
            return true;
    return false;
}

static bool has_one_of(const char *text, const char *const *words)
{
    for (; *words; words++)
        if (strstr(text, *words))
            return true;
    return false;
}

/* A token that only the caller could keep the same on a retry. */
static bool is_like_key(struct str name)
{
    static const char *const words[] = {
        "requestid",        "requesttoken", "requestkey",  "clientrequestid", "clientreference",   "clientreferenceid",
        "clienttoken",      "referenceid",  "dedupekey",   "dedupeid",        "dedupkey",          "deduplicationid",
        "deduplicationkey", "uniqueid",     "externalref", "externalid",      "externalreference", NULL};
    char folded[FOLDED_MAX];
    fold(name, folded);
    return is_one_of(folded, words) || strncmp(folded, "idempoten", 9) == 0;
}

/* Differs between two attempts at the same intent without meaning another one. */
static bool is_volatile(struct str name)
{
    static const char *const words[] = {"timestamp",   "traceid",   "tracecontext", "traceparent", "correlation",
                                        "requestedat", "sessionid", "nonce",        "debug",       "verbose",
                                        NULL};
    char folded[FOLDED_MAX];
    fold(name, folded);
    return has_one_of(folded, words);
}

/* Free text that a model words anew each time. */
static bool is_wording(struct str name)
{
    static const char *const words[] = {"content", "body",    "text",    "message", "description", "comment",
                                        "note",    "summary", "subject", "reason",  "prompt",      NULL};
    char folded[FOLDED_MAX];
    fold(name, folded);
    return has_one_of(folded, words);
}

static bool sounds_irreversible(struct str name)
{
    static const char *const words[] = {"send",   "mail",   "pay",    "charge", "refund", "transfer", "publish",
                                        "delete", "remove", "cancel", "submit", "order",  "book",     NULL};
    char folded[FOLDED_MAX];
    fold(name, folded);
    return has_one_of(folded, words);
}

static bool sounds_reading(struct str name)
{
    static const char *const words[] = {"get",   "list",     "read", "search", "find", "fetch",
                                        "query", "describe", "show", "count",  NULL};
    char folded[FOLDED_MAX];
    fold(name, folded);
    for (size_t i = 0; words[i]; i++)
        if (strncmp(folded, words[i], strlen(words[i])) == 0)
            return true;
    return false;
}

/* ---- schemas ---- */

static const struct json *properties_of(const struct json *tool)
{
    const struct json *properties = json_get(json_get(tool, "inputSchema"), "properties");
    return properties && properties->type == JSON_OBJECT ? properties : NULL;
}

static bool is_required(const struct json *tool, struct str name)
{
    const struct json *required = json_get(json_get(tool, "inputSchema"), "required");
    for (uint32_t i = 0; required && required->type == JSON_ARRAY && i < required->count; i++)
        if (required->items[i].type == JSON_STRING && str_equal(required->items[i].text, name))
            return true;
    return false;
}

/* "string", "?" when it is not one plain type. */
static struct str type_of(const struct json *property)
{
    struct str type = json_get_text(property, "type");
    return type.p ? type : STR("?");
}

/* Can stand in a key: a plain value under a name that is a place. */
static bool is_plain(const struct json_member *property)
{
    struct str type = type_of(&property->value);
    bool plain = str_is(type, "string") || str_is(type, "integer") || str_is(type, "number") || str_is(type, "boolean");
    for (size_t i = 0; i < property->name.n; i++) {
        char c = property->name.p[i];
        plain = plain && (isalnum((unsigned char)c) || c == '_' || c == '-');
    }
    return plain && property->name.n > 0;
}

static bool hint(const struct json *tool, const char *name, bool fallback)
{
    return json_get_bool(json_get(tool, "annotations"), name, fallback);
}

/* ---- texts ---- */

/* Printable, one line, cut. */
static void add_comment_text(struct buf *out, struct str text)
{
    size_t n = text.n > COMMENT_BYTES ? COMMENT_BYTES : text.n;
    while (n < text.n && n > 0 && ((unsigned char)text.p[n] & 0xc0) == 0x80)
        n--; /* not within a character */
    for (size_t i = 0; i < n; i++)
        buf_add_char(out, (unsigned char)text.p[i] < 0x20 || text.p[i] == 0x7f ? ' ' : text.p[i]);
    if (n < text.n)
        buf_add_text(out, "…");
}

/* A name as a YAML key or value: plain where every reader takes it for a text. */
static void add_text(struct buf *out, struct str text)
{
    static const char *const others[] = {"null", "true", "false", "yes", "no", "on", "off", "y", "n", "~", NULL};
    char folded[FOLDED_MAX];
    bool plain = text.n > 0 && text.n < FOLDED_MAX && isalpha((unsigned char)text.p[0]);
    for (size_t i = 0; i < text.n; i++)
        plain =
            plain && (isalnum((unsigned char)text.p[i]) || text.p[i] == '_' || text.p[i] == '-' || text.p[i] == '.');
    fold(text, folded);
    if (plain && !is_one_of(folded, others))
        buf_add_str(out, text);
    else
        json_write_string(out, text);
}

/* JSON is YAML; mappings and lists of the outer levels are set out in lines. */
static void add_value(struct buf *out, const struct json *value, unsigned indent)
{
    if (value->type != JSON_OBJECT || value->count == 0 || indent > 12) {
        buf_add_char(out, ' ');
        json_write(out, value);
        buf_add_char(out, '\n');
        return;
    }
    buf_add_char(out, '\n');
    for (uint32_t i = 0; i < value->count; i++) {
        buf_printf(out, "%*s", (int)indent, "");
        add_text(out, value->members[i].name);
        buf_add_char(out, ':');
        add_value(out, &value->members[i].value, indent + 2);
    }
}

/* ---- one tool ---- */

struct writer {
    const struct skeleton *skeleton;
    struct arena arena;
    struct map names; /* taken */
    struct buf *out;
};

/* The server's name if onced and clients take it, else the nearest that they take. */
static const char *name_for(struct writer *writer, struct str remote)
{
    char name[CONFIG_NAME_BYTES_MAX + 1];
    size_t n = remote.n > CONFIG_NAME_BYTES_MAX ? CONFIG_NAME_BYTES_MAX : remote.n;
    for (size_t i = 0; i < n; i++) {
        char c = remote.p[i];
        name[i] = (char)(isalnum((unsigned char)c) || c == '_' || c == '-' || c == '.' ? c : '_');
    }
    name[n] = '\0';
    const char *found = arena_copy_text(&writer->arena, name);
    for (unsigned i = 2; map_get(&writer->names, found); i++)
        found = arena_printf(&writer->arena, "%.*s_%u", (int)(n > 58 ? 58 : n), name, i);
    map_put(&writer->names, found, writer);
    return found;
}

static void write_hints(struct writer *writer, const struct json *tool)
{
    static const char *const names[] = {"readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"};
    const struct json *annotations = json_get(tool, "annotations");
    bool any = false;
    buf_add_text(writer->out, "    # The server's hints: ");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const struct json *value = annotations ? json_get(annotations, names[i]) : NULL;
        if (!value || value->type != JSON_BOOL)
            continue;
        buf_printf(writer->out, "%s%s %s", any ? ", " : "", names[i], value->boolean ? "true" : "false");
        any = true;
    }
    buf_add_text(writer->out, any ? "\n" : "none\n");
}

static void write_arguments(struct writer *writer, const struct json *tool)
{
    const struct json *properties = properties_of(tool);
    buf_add_text(writer->out, "    # Arguments: ");
    for (uint32_t i = 0; properties && i < properties->count; i++) {
        const struct json_member *property = &properties->members[i];
        buf_add_text(writer->out, i ? ", " : "");
        add_comment_text(writer->out, property->name);
        buf_add_text(writer->out, " (");
        add_comment_text(writer->out, type_of(&property->value));
        buf_add_text(writer->out, is_required(tool, property->name) ? ", required)" : ")");
    }
    buf_add_text(writer->out, properties && properties->count ? "\n" : "none\n");
}

static void write_class(struct writer *writer, const struct json *tool, struct str remote)
{
    bool reads = hint(tool, "readOnlyHint", false);
    buf_printf(writer->out, "    class: %s\n", reads ? "read" : "external_weak");
    if (reads) {
        buf_add_text(writer->out,
                     "    # Decide: the server says that it only reads. If that is not so, nothing keeps a "
                     "repeated call from acting twice.\n");
        return;
    }
    buf_add_text(writer->out, "    # Decide the class: may a repeated call act twice (external_weak), never "
                              "(external_idempotent), or can it not be undone\n"
                              "    #   (external_irreversible: needs key and approval)?\n");
    if (hint(tool, "idempotentHint", false))
        buf_add_text(writer->out,
                     "    #   The server says that repeating changes nothing more: external_idempotent with "
                     "idempotent_by: nature, if you believe it.\n");
    else if (sounds_irreversible(remote))
        buf_add_text(writer->out, "    #   Its name sounds as if it could not be undone.\n");
    else if (sounds_reading(remote))
        buf_add_text(writer->out, "    #   Its name sounds like reading: class read, if it changes nothing.\n");
}

/* What stands for the intent: required plain arguments that are neither wording nor tokens. */
static bool in_key(const struct json *tool, const struct json_member *property)
{
    return is_required(tool, property->name) && is_plain(property) && !is_like_key(property->name) &&
           !is_volatile(property->name) && !is_wording(property->name);
}

static void write_key(struct writer *writer, const struct json *tool, const char *name)
{
    const struct json *properties = properties_of(tool);
    struct buf key;
    unsigned parts = 0;
    buf_init(&key, 0);
    for (uint32_t i = 0; properties && i < properties->count && parts < KEY_PARTS_MAX; i++) {
        if (!in_key(tool, &properties->members[i]))
            continue;
        buf_printf(&key, ":{%.*s}", STR_ARG(properties->members[i].name));
        parts++;
    }
    if (parts)
        buf_printf(
            writer->out,
            "    # Decide the key: two calls with the same one are one effect, for ever. Which arguments make the "
            "intent?\n"
            "    # key: \"%s%s\"\n",
            name, buf_str(&key).p);
    else
        buf_add_text(writer->out,
                     "    # No argument stands for the intent by itself: callers should send an idempotency "
                     "key, or equal calls are joined\n"
                     "    #   for repeat_window.\n");
    buf_release(&key);
}

static void write_odd_arguments(struct writer *writer, const struct json *tool)
{
    const struct json *properties = properties_of(tool);
    struct buf names;
    buf_init(&names, 0);
    for (uint32_t i = 0; properties && i < properties->count; i++) {
        const struct json_member *property = &properties->members[i];
        bool text = str_is(type_of(&property->value), "string") && is_plain(property);
        if (text && is_like_key(property->name))
            buf_printf(writer->out,
                       "    # %.*s looks like a key: onced can fill it in, hidden from the model, the same on every "
                       "attempt:\n"
                       "    # mcp: {key_argument: %.*s}\n",
                       STR_ARG(property->name), STR_ARG(property->name));
        else if (is_plain(property) && is_volatile(property->name))
            buf_printf(&names, "%s/%.*s", names.n ? ", " : "", STR_ARG(property->name));
    }
    if (names.n)
        buf_printf(writer->out,
                   "    # Differs between attempts without meaning another intent?\n    # volatile: [%s]\n", names.p);
    buf_release(&names);
}

/* How many of the reader's required arguments the tool has too; 0 when it wants one that the tool does not have. */
static unsigned shared_arguments(const struct json *tool, const struct json *reader)
{
    const struct json *theirs = properties_of(reader), *ours = properties_of(tool);
    unsigned count = 0;
    for (uint32_t i = 0; theirs && i < theirs->count; i++) {
        if (!is_required(reader, theirs->members[i].name))
            continue;
        if (!ours || !json_get_str(ours, theirs->members[i].name) || !is_plain(&theirs->members[i]))
            return 0;
        count++;
    }
    return count;
}

static void write_lookup(struct writer *writer, const struct json *tool)
{
    const struct json *tools = writer->skeleton->tools, *best = NULL;
    unsigned most = 0;
    for (uint32_t i = 0; i < tools->count; i++) {
        unsigned shared = &tools->items[i] != tool && hint(&tools->items[i], "readOnlyHint", false)
                              ? shared_arguments(tool, &tools->items[i])
                              : 0;
        if (shared > most) {
            most = shared;
            best = &tools->items[i];
        }
    }
    buf_add_text(writer->out,
                 "    # Decide how to find out what happened when a call's answer is lost; without a lookup an "
                 "operator is asked.\n");
    if (!best)
        return;
    const struct json *properties = properties_of(best);
    const char *separator = "";
    buf_add_text(writer->out, "    # lookup: {tool: ");
    add_text(writer->out, json_get_text(best, "name"));
    buf_add_text(writer->out, ", arguments: {");
    for (uint32_t i = 0; i < properties->count; i++) {
        struct str name = properties->members[i].name;
        if (!is_required(best, name))
            continue;
        buf_printf(writer->out, "%s%.*s: \"{%.*s}\"", separator, STR_ARG(name), STR_ARG(name));
        separator = ", ";
    }
    buf_add_text(writer->out, "}, found: 'jq over its result', absent: 'jq over its result'}\n");
}

static void write_tool(struct writer *writer, const struct json *tool)
{
    struct str remote = json_get_text(tool, "name"), description = json_get_text(tool, "description");
    if (!remote.p || remote.n == 0)
        return;
    const char *name = name_for(writer, remote);
    buf_add_text(writer->out, "\n  ");
    add_text(writer->out, str_of(name));
    buf_add_text(writer->out, ":\n");
    if (description.p && description.n) {
        buf_add_text(writer->out, "    # ");
        add_comment_text(writer->out, description);
        buf_add_char(writer->out, '\n');
    }
    write_hints(writer, tool);
    write_arguments(writer, tool);
    buf_add_text(writer->out, "    provider: ");
    add_text(writer->out, str_of(writer->skeleton->provider));
    buf_add_char(writer->out, '\n');
    if (!str_is(remote, name)) {
        buf_add_text(writer->out, "    mcp: {tool: ");
        json_write_string(writer->out, remote);
        buf_add_text(writer->out, "}\n");
    }
    write_class(writer, tool, remote);
    if (hint(tool, "readOnlyHint", false))
        return;
    write_key(writer, tool, name);
    write_odd_arguments(writer, tool);
    write_lookup(writer, tool);
}

/* ---- the file ---- */

static void write_head(struct writer *writer)
{
    const struct json *facts = writer->skeleton->facts;
    struct str name = json_get_text(facts, "name"), release = json_get_text(facts, "release");
    struct str version = json_get_text(facts, "version");
    buf_add_text(writer->out,
                 "# Registry file of onced, made by `onced mcp import` from what the server says of itself");
    if (name.p) {
        buf_add_text(writer->out, ":\n# ");
        add_comment_text(writer->out, name);
        buf_add_char(writer->out, ' ');
        add_comment_text(writer->out, release.p ? release : STR(""));
        buf_add_text(writer->out, ", MCP ");
        add_comment_text(writer->out, version.p ? version : STR("?"));
    }
    buf_add_text(writer->out, ".\n# Hints are no proof. What is marked with \"Decide\" is yours to decide; docs/mcp.md "
                              "explains it. Then: onced check FILE\n"
                              "onced: 1\n\n");
    if (writer->skeleton->path)
        buf_printf(writer->out, "# Server and ledger: as in %s\n", writer->skeleton->path);
    buf_add_text(writer->out, "server:\n"
                              "  listen: 127.0.0.1:7070\n\n"
                              "ledger:\n"
                              "  path: onced.db                # relative to this file\n\n");
}

static void write_provider(struct writer *writer)
{
    buf_add_text(writer->out, "providers:\n  ");
    add_text(writer->out, str_of(writer->skeleton->provider));
    buf_add_char(writer->out, ':');
    add_value(writer->out, writer->skeleton->section, 4);
    if (json_get(json_get(writer->skeleton->section, "mcp"), "import"))
        buf_add_text(writer->out, "\n# The import takes over what the server lists; what is said here wins.\n");
    else
        buf_add_text(writer->out,
                     "\n# Only what is named here can be called. Instead, `import: {…}` in the provider's mcp "
                     "section takes over everything\n# that the server lists, also what it will list later.\n");
    buf_add_text(writer->out, "tools:");
}

void skeleton_write(const struct skeleton *skeleton, struct buf *out)
{
    struct writer writer = {.skeleton = skeleton, .out = out};
    arena_init(&writer.arena);
    map_init(&writer.names);
    write_head(&writer);
    write_provider(&writer);
    for (uint32_t i = 0; i < skeleton->tools->count; i++)
        write_tool(&writer, &skeleton->tools->items[i]);
    buf_add_text(out, writer.names.count ? "" : " {}\n");
    map_release(&writer.names);
    arena_release(&writer.arena);
}

/* ---- names ---- */

static const char *clean_name(struct arena *arena, struct str text)
{
    static const char *const heads[] = {"mcp-server-", "server-", "mcp-"}, *const tails[] = {"-mcp-server", "-mcp",
                                                                                             "-server"};
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        size_t n = strlen(heads[i]);
        if (text.n > n && strncmp(text.p, heads[i], n) == 0)
            text = (struct str){text.p + n, text.n - n};
    }
    for (size_t i = 0; i < sizeof tails / sizeof *tails; i++) {
        size_t n = strlen(tails[i]);
        if (text.n > n && strncmp(text.p + text.n - n, tails[i], n) == 0)
            text.n -= n;
    }
    char name[CONFIG_NAME_BYTES_MAX + 1];
    size_t n = 0;
    for (; n < text.n && n < CONFIG_NAME_BYTES_MAX; n++)
        name[n] = (char)(isalnum((unsigned char)text.p[n]) ? text.p[n] : '-');
    while (n > 0 && name[n - 1] == '-')
        n--;
    name[n] = '\0';
    bool usable = n > 0 && isalpha((unsigned char)name[0]);
    return arena_copy_text(arena, usable ? name : "server");
}

/* What runs programs, not what is run. */
static bool is_runner(struct str word)
{
    static const char *const words[] = {"npx",  "node",   "uvx", "uv",   "python", "python3", "bun",  "bunx",
                                        "deno", "docker", "run", "tool", "env",    "sh",      "exec", NULL};
    char text[16];
    if (word.n >= sizeof text)
        return false;
    memcpy(text, word.p, word.n);
    text[word.n] = '\0';
    return is_one_of(text, words);
}

/* "/usr/bin/x.py" → "x", "@scope/x@1.2" → "x". */
static struct str last_part(const char *word)
{
    static const char *const endings[] = {".js", ".mjs", ".cjs", ".ts", ".py", ".sh"};
    const char *slash = strrchr(word, '/');
    struct str part = str_of(slash ? slash + 1 : word);
    const char *at = part.n > 1 ? memchr(part.p + 1, '@', part.n - 1) : NULL;
    if (at)
        part.n = (size_t)(at - part.p);
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        size_t n = strlen(endings[i]);
        if (part.n > n && memcmp(part.p + part.n - n, endings[i], n) == 0)
            part.n -= n;
    }
    return part;
}

const char *skeleton_name_of_command(struct arena *arena, char *const *words, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct str part = last_part(words[i]);
        if (words[i][0] != '-' && part.n && !is_runner(part) && !memchr(part.p, '=', part.n))
            return clean_name(arena, part);
    }
    return "server";
}

const char *skeleton_name_of_url(struct arena *arena, const char *url)
{
    const char *host = strstr(url, "://");
    host = host ? host + 3 : url;
    size_t n = strcspn(host, ":/?");
    bool number = isdigit((unsigned char)host[0]) || host[0] == '[';
    return number ? "server" : clean_name(arena, (struct str){host, n});
}
