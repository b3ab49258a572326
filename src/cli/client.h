/* Asks the daemon over HTTP (docs/http-api.md), one request after the other. Blocking. */
#ifndef CLI_CLIENT_H
#define CLI_CLIENT_H

#include "base/arena.h"
#include "base/err.h"
#include "base/json.h"

#include <stdbool.h>
#include <stdint.h>

#define CLIENT_SERVER_DEFAULT   "http://127.0.0.1:7070"
#define CLIENT_ANSWER_BYTES_MAX (64 * 1024 * 1024)
#define CLIENT_TIMEOUT_MS       30000 /* of a request that waits for nothing */
#define CLIENT_TOKEN_BYTES_MAX  4096

struct client_options {
    const char *server;             /* NULL: ONCED_SERVER, else CLIENT_SERVER_DEFAULT */
    const char *token_file;         /* NULL: the token in ONCED_TOKEN, if any */
    const char *tenant, *principal; /* NULL: not named */
};

struct client;

/* ERR_INVALID, ERR_IO: the URL is none, the token file cannot be read. Free with client_free (NULL is fine). */
enum err_code client_new(const struct client_options *options, struct client **out, struct err *err);
void client_free(struct client *client);
const char *client_server(const struct client *client); /* the URL, for messages */

struct client_request {
    const char *method;         /* "GET", "POST" */
    const char *path;           /* with query, escaped */
    struct str body;            /* JSON; absent = none */
    const char *const *headers; /* further ones, "Name: value" */
    size_t header_count;
    int64_t wait_ms; /* how long the server may take on purpose; is added to the time limit */
};

struct client_answer {
    long status;
    struct str text;         /* the body as it came */
    const struct json *json; /* NULL when it is not JSON */
    bool replayed;           /* Idempotency-Replayed: true */
    char location[256];      /* "" without one */
};

/* ERR_NONE: an HTTP answer of whatever status, in arena. ERR_UNAVAILABLE: the request did not leave, so nothing was
 * done. ERR_IO: the request left and no whole answer came back, so it may have been done. ERR_LIMIT: larger than
 * CLIENT_ANSWER_BYTES_MAX. */
enum err_code client_ask(struct client *client, const struct client_request *request, struct arena *arena,
                         struct client_answer *answer, struct err *err);

/* Appends text as one path segment or query value. */
void client_escape(struct buf *out, const char *text);

#endif
