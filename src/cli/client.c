#include "cli/client.h"

#include "base/header.h"
#include "base/mem.h"

#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct client {
    CURL *curl;
    char *server; /* without a slash at the end */
    char *token;  /* or NULL */
    char *tenant, *principal;
    char error[CURL_ERROR_SIZE];
};

static enum err_code client_token_check(const char *token, const char *source, struct err *err)
{
    if (!token[0])
        return err_set(err, ERR_INVALID, "%s holds no token", source);
    for (const char *p = token; *p; p++) {
        if (*p <= ' ' || *p > '~')
            return err_set(err, ERR_INVALID, "%s does not hold a token: it has spaces or odd bytes in it", source);
    }
    return ERR_NONE;
}

/* The first line of a small file. */
static enum err_code client_token_read(const char *path, char **out, struct err *err)
{
    char text[CLIENT_TOKEN_BYTES_MAX];
    FILE *file = fopen(path, "r");
    if (!file)
        return err_set(err, ERR_IO, "token file %s: %m", path);
    size_t n = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[n] = '\0';
    text[strcspn(text, "\r\n")] = '\0';
    enum err_code code = client_token_check(text, path, err);
    if (!code)
        *out = mem_copy_text(text);
    return code;
}

static const char *or_environment(const char *given, const char *name, const char *fallback)
{
    if (given)
        return given;
    const char *value = getenv(name);
    return value && *value ? value : fallback;
}

static enum err_code client_take_token(struct client *client, const struct client_options *options, struct err *err)
{
    if (options->token_file)
        return client_token_read(options->token_file, &client->token, err);
    const char *token = or_environment(NULL, "ONCED_TOKEN", NULL);
    if (!token)
        return ERR_NONE;
    enum err_code code = client_token_check(token, "ONCED_TOKEN", err);
    if (!code)
        client->token = mem_copy_text(token);
    return code;
}

static enum err_code client_take_server(struct client *client, const struct client_options *options, struct err *err)
{
    const char *server = or_environment(options->server, "ONCED_SERVER", CLIENT_SERVER_DEFAULT);
    if (strncmp(server, "http://", 7) != 0 && strncmp(server, "https://", 8) != 0)
        return err_set(err, ERR_INVALID, "server '%s' is not a URL that begins with http:// or https://", server);
    client->server = mem_copy_text(server);
    size_t n = strlen(client->server);
    while (n > 0 && client->server[n - 1] == '/')
        client->server[--n] = '\0';
    return ERR_NONE;
}

enum err_code client_new(const struct client_options *options, struct client **out, struct err *err)
{
    struct client *client = mem_zero(sizeof *client);
    enum err_code code = client_take_server(client, options, err);
    if (!code)
        code = client_take_token(client, options, err);
    if (code)
        goto out;
    const char *tenant = or_environment(options->tenant, "ONCED_TENANT", NULL);
    const char *principal = or_environment(options->principal, "ONCED_PRINCIPAL", NULL);
    client->tenant = mem_copy_text(tenant);
    client->principal = mem_copy_text(principal);
    client->curl = curl_easy_init();
    if (!client->curl) {
        code = err_set(err, ERR_INTERNAL, "libcurl cannot be started");
        goto out;
    }
    *out = client;
    client = NULL;
out:
    client_free(client);
    return code;
}

void client_free(struct client *client)
{
    if (!client)
        return;
    curl_easy_cleanup(client->curl);
    free(client->server);
    free(client->token);
    free(client->tenant);
    free(client->principal);
    free(client);
}

const char *client_server(const struct client *client)
{
    return client->server;
}

void client_escape(struct buf *out, const char *text)
{
    for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
        bool plain = (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') || (*p >= '0' && *p <= '9') ||
                     (*p && strchr("-._~", *p));
        if (plain)
            buf_add_char(out, (char)*p);
        else
            buf_printf(out, "%%%02X", *p);
    }
}

/* ---- one exchange ---- */

static size_t take_body(char *p, size_t size, size_t n, void *user)
{
    struct buf *body = user;
    buf_add(body, p, size * n);
    return body->over ? 0 : size * n;
}

static size_t take_header(char *p, size_t size, size_t n, void *user)
{
    struct client_answer *answer = user;
    struct str line = {p, size * n};
    struct str value = header_value(line, "Idempotency-Replayed");
    if (value.p)
        answer->replayed = str_is(value, "true");
    value = header_value(line, "Location");
    if (value.p)
        snprintf(answer->location, sizeof answer->location, "%.*s", STR_ARG(value));
    return size * n;
}

static struct curl_slist *header_named(struct curl_slist *list, const char *name, const char *value)
{
    if (!value)
        return list;
    struct buf line;
    buf_init(&line, 0);
    buf_printf(&line, "%s: %s", name, value);
    struct curl_slist *longer = curl_slist_append(list, line.p);
    buf_release(&line);
    return longer ? longer : list;
}

static struct curl_slist *client_headers(const struct client *client, const struct client_request *request)
{
    struct curl_slist *list = header_named(NULL, "Accept", "application/json, application/problem+json");
    if (request->body.p)
        list = header_named(list, "Content-Type", "application/json");
    if (client->token) {
        char value[CLIENT_TOKEN_BYTES_MAX + 16];
        snprintf(value, sizeof value, "Bearer %s", client->token);
        list = header_named(list, "Authorization", value);
    }
    list = header_named(list, "Onced-Tenant", client->tenant);
    list = header_named(list, "Onced-Principal", client->principal);
    list = header_named(list, "Expect", ""); /* no 100-continue round */
    for (size_t i = 0; i < request->header_count; i++) {
        struct curl_slist *longer = curl_slist_append(list, request->headers[i]);
        list = longer ? longer : list;
    }
    return list;
}

static void client_set(struct client *client, const struct client_request *request, const char *url,
                       struct curl_slist *headers)
{
    CURL *curl = client->curl;
    curl_easy_reset(curl);
    curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(curl, CURLOPT_USERAGENT, "onced/" ONCED_VERSION);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(curl, CURLOPT_PROXY, ""); /* a proxy of the environment would see the token */
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, 5000L);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, (long)(CLIENT_TIMEOUT_MS + request->wait_ms));
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, client->error);
    if (strcmp(request->method, "POST") == 0) {
        /* a connection that was used before may be dead, and curl would silently send the request twice */
        curl_easy_setopt(curl, CURLOPT_FRESH_CONNECT, 1L);
        curl_easy_setopt(curl, CURLOPT_POST, 1L);
        curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)request->body.n);
        curl_easy_setopt(curl, CURLOPT_POSTFIELDS, request->body.p ? request->body.p : "");
    }
    client->error[0] = '\0';
}

/* What a failed transfer means: did anything leave? */
static enum err_code client_judge(const struct client *client, CURLcode result, struct err *err)
{
    const char *why = client->error[0] ? client->error : curl_easy_strerror(result);
    curl_off_t before_transfer_us = 0;
    curl_easy_getinfo(client->curl, CURLINFO_PRETRANSFER_TIME_T, &before_transfer_us);
    if (before_transfer_us == 0)
        return err_set(err, ERR_UNAVAILABLE, "no daemon answers at %s: %s", client->server, why);
    return err_set(err, ERR_IO, "the daemon at %s was asked, and its answer did not arrive: %s", client->server, why);
}

static void answer_read(struct client_answer *answer, struct arena *arena, const struct buf *body)
{
    static const struct json_limits limits = {CLIENT_ANSWER_BYTES_MAX, 200, 5000000};
    struct json *json;
    answer->text = arena_str(arena, buf_str(body));
    if (body->n > 0 && json_parse(arena, answer->text, &limits, &json, NULL) == ERR_NONE)
        answer->json = json;
}

enum err_code client_ask(struct client *client, const struct client_request *request, struct arena *arena,
                         struct client_answer *answer, struct err *err)
{
    enum err_code code = ERR_NONE;
    struct buf body;
    buf_init(&body, CLIENT_ANSWER_BYTES_MAX);
    *answer = (struct client_answer){0};
    const char *url = arena_printf(arena, "%s%s", client->server, request->path);
    struct curl_slist *headers = client_headers(client, request);
    client_set(client, request, url, headers);
    curl_easy_setopt(client->curl, CURLOPT_WRITEFUNCTION, take_body);
    curl_easy_setopt(client->curl, CURLOPT_WRITEDATA, &body);
    curl_easy_setopt(client->curl, CURLOPT_HEADERFUNCTION, take_header);
    curl_easy_setopt(client->curl, CURLOPT_HEADERDATA, answer);
    CURLcode result = curl_easy_perform(client->curl);
    if (body.over) {
        code = err_set(err, ERR_LIMIT, "the answer is larger than %d MiB; ask for less", CLIENT_ANSWER_BYTES_MAX >> 20);
    } else if (result != CURLE_OK) {
        code = client_judge(client, result, err);
    } else {
        curl_easy_getinfo(client->curl, CURLINFO_RESPONSE_CODE, &answer->status);
        answer_read(answer, arena, &body);
    }
    curl_slist_free_all(headers);
    buf_release(&body);
    return code;
}
