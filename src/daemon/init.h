/* `onced init`: a commented registry file for one tool, as a start that passes `onced check`. */
#ifndef DAEMON_INIT_H
#define DAEMON_INIT_H

#include "base/buf.h"
#include "base/err.h"
#include "core/tool.h"

struct init_options {
    const char *tool;   /* name; NULL: "example.create" */
    const char *url;    /* of the request, http or https, with its path; NULL: the fake provider's refunds */
    const char *method; /* NULL: GET for class read, else POST */
    enum tool_class class;
    const char *key_header; /* name of the provider's idempotency key header; NULL: none, but for external_idempotent
                             * "Idempotency-Key" */
    const char *token_env;  /* environment variable with a bearer token; NULL: none */
};

/* Appends the file's text. ERR_INVALID names the option that cannot be used. */
enum err_code init_write(const struct init_options *options, struct buf *out, struct err *err);

#endif
