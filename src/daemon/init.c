#include "daemon/init.h"

#include "daemon/config_options.h"

#include <ctype.h>

/* The URL's parts: base_url is the origin, path the rest. */
struct url {
    struct str origin, path;
};

/* Whether text can stand in a YAML double-quoted string as it is. */
static bool is_plain_text(const char *text)
{
    for (const char *p = text; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == '"' || *p == '\\' || *p == 0x7f || (unsigned char)*p >= 0x80)
            return false;
    return true;
}

static bool is_word(const char *text)
{
    for (const char *p = text; *p; p++)
        if (!isalnum((unsigned char)*p) && *p != '_' && *p != '-')
            return false;
    return *text != '\0';
}

static enum err_code split_url(const char *text, struct url *url, struct err *err)
{
    const char *host = strncmp(text, "http://", 7) == 0    ? text + 7
                       : strncmp(text, "https://", 8) == 0 ? text + 8
                                                           : NULL;
    if (!host || *host == '\0' || *host == '/' || !is_plain_text(text) || strpbrk(text, "?# @{}"))
        return err_set(
            err, ERR_INVALID,
            "url: \"%.200s\" is not usable, expected http:// or https://, a host and a path, without query or user",
            text);
    size_t origin = (size_t)(host - text) + strcspn(host, "/");
    url->origin = (struct str){text, origin};
    url->path = text[origin] ? str_of(text + origin) : STR("/");
    return ERR_NONE;
}

static enum err_code check_options(const struct init_options *options, struct err *err)
{
    static const char *const methods[] = {"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD"};
    if (!config_name_valid(str_of(options->tool)))
        return err_set(err, ERR_INVALID,
                       "tool: \"%.80s\" is not a name, expected 1 to %d characters of A-Z a-z 0-9 _ . -", options->tool,
                       CONFIG_NAME_BYTES_MAX);
    bool known = false;
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        known = known || strcmp(methods[i], options->method) == 0;
    if (!known)
        return err_set(err, ERR_INVALID,
                       "method: \"%.20s\" is not known, expected GET, POST, PUT, PATCH, DELETE or HEAD",
                       options->method);
    if (options->key_header && !is_word(options->key_header))
        return err_set(err, ERR_INVALID, "key header: \"%.80s\" is not a header name", options->key_header);
    if (options->token_env && !is_word(options->token_env))
        return err_set(err, ERR_INVALID, "token variable: \"%.80s\" is not a variable name", options->token_env);
    return ERR_NONE;
}

static void write_provider(const struct init_options *options, struct str origin, struct buf *out)
{
    buf_printf(out,
               "providers:\n"
               "  api:\n"
               "    base_url: \"%.*s\"\n",
               STR_ARG(origin));
    if (options->token_env)
        buf_printf(out,
                   "    headers:\n"
                   "      Authorization: \"Bearer ${env:%s}\"   # secrets by reference only\n",
                   options->token_env);
    else
        buf_add_text(out,
                     "    # headers: {Authorization: \"Bearer ${env:API_TOKEN}\"}   # secrets by reference only\n");
    buf_add_text(out, "    timeout: 10s                # of a whole attempt\n");
    if (options->key_header)
        buf_printf(
            out,
            "    key:                        # the provider's idempotency keys\n"
            "      header: %s\n"
            "      retention: 24h            # how long the provider remembers one: take it from its documentation\n",
            options->key_header);
    else
        buf_add_text(
            out, "    # key: {header: Idempotency-Key, retention: 24h}   # if the provider takes idempotency keys\n");
    buf_add_char(out, '\n');
}

static const char *class_comment(enum tool_class class)
{
    switch (class) {
    case CLASS_READ: return "changes nothing; freely repeated";
    case CLASS_INTERNAL_WRITE: return "changes something of ours";
    case CLASS_EXTERNAL_IDEMPOTENT: return "the provider keeps a repeated request from acting twice";
    case CLASS_EXTERNAL_WEAK: return "a repeated request may act twice: never re-sent by itself";
    case CLASS_EXTERNAL_IRREVERSIBLE: return "cannot be undone: key and approval policy must be stated";
    }
    return "";
}

static void write_identity(const struct init_options *options, struct buf *out)
{
    if (options->class == CLASS_EXTERNAL_IRREVERSIBLE)
        buf_add_text(out,
                     "    key: \"order:{id}:v1\"        # business key: two calls with the same one are one effect\n"
                     "    approval: none              # none is a statement\n");
    else if (options->class != CLASS_READ)
        buf_add_text(out,
                     "    # key: \"order:{id}:v1\"      # business key: two calls with the same one are one effect\n");
}

static void write_request(const struct init_options *options, struct str path, struct buf *out)
{
    bool body = strcmp(options->method, "POST") == 0 || strcmp(options->method, "PUT") == 0 ||
                strcmp(options->method, "PATCH") == 0;
    buf_printf(out,
               "    request:\n"
               "      method: %s\n"
               "      path: \"%.*s\"\n",
               options->method, STR_ARG(path));
    if (body && options->class != CLASS_READ)
        buf_add_text(
            out,
            "      json: {id: \"{id}\", reference: \"{$operation}\"}   # {$operation} lets a look-up find it again\n");
    else if (body)
        buf_add_text(out, "      json: {id: \"{id}\"}\n");
    else
        buf_add_text(out, "      query: {id: \"{id}\"}\n");
}

static void write_lookup(const struct init_options *options, struct str path, struct buf *out)
{
    if (options->class == CLASS_READ)
        return;
    buf_printf(out,
               "    # How to find out what really happened after a time-out; without it an operator is asked:\n"
               "    # lookup:\n"
               "    #   request: {path: \"%.*s\", query: {reference: \"{$operation}\"}}\n"
               "    #   items: /data\n"
               "    #   match: {/reference: \"{$operation}\"}\n",
               STR_ARG(path));
}

static void write_tool(const struct init_options *options, struct str path, struct buf *out)
{
    buf_printf(out,
               "tools:\n"
               "  %s:\n"
               "    description: What the model is told about this tool.\n"
               "    class: %s   # %s\n"
               "    provider: api\n"
               "    input_schema:\n"
               "      type: object\n"
               "      required: [id]\n"
               "      properties:\n"
               "        id: {type: string, minLength: 1}\n"
               "      additionalProperties: false\n",
               options->tool, tool_class_name(options->class), class_comment(options->class));
    if (options->class == CLASS_READ && strcmp(options->method, "GET") != 0 && strcmp(options->method, "HEAD") != 0)
        buf_add_text(out, "    method_is_read: true        # this request changes nothing\n");
    write_identity(options, out);
    write_request(options, path, out);
    buf_add_text(out, "    # response: {external_id: /id}   # where the provider's id is in its answer\n");
    write_lookup(options, path, out);
}

enum err_code init_write(const struct init_options *given, struct buf *out, struct err *err)
{
    struct init_options options = *given;
    struct url url = {0};
    if (!options.tool)
        options.tool = "example.create";
    if (!options.url)
        options.url = "http://127.0.0.1:9000/v1/refunds";
    if (!options.method)
        options.method = options.class == CLASS_READ ? "GET" : "POST";
    if (!options.key_header && options.class == CLASS_EXTERNAL_IDEMPOTENT)
        options.key_header = "Idempotency-Key";
    enum err_code code = check_options(&options, err);
    if (!code)
        code = split_url(options.url, &url, err);
    if (code)
        return code;
    buf_add_text(out, "# Registry file of onced: what it runs and how. `onced check FILE` validates it, `onced serve "
                      "FILE` starts it.\n"
                      "# All members: docs/registry-reference.md. Durations are 500ms, 10s, 5m, 24h, 30d.\n"
                      "onced: 1\n\n"
                      "server:\n"
                      "  listen: 127.0.0.1:7070        # elsewhere than loopback needs auth: tokens and tls\n\n"
                      "ledger:\n"
                      "  path: onced.db                # relative to this file\n\n");
    write_provider(&options, url.origin, out);
    write_tool(&options, url.path, out);
    return ERR_NONE;
}
