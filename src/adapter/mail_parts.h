/* What the files of the mail adapter share: compiled sections and built messages. Not for others. Texts with places,
 * secrets and names are those of the HTTP adapter. */
#ifndef ADAPTER_MAIL_PARTS_H
#define ADAPTER_MAIL_PARTS_H

#include "adapter/http_parts.h"
#include "adapter/mail.h"
#include "adapter/mail_smtp.h"

#define MAIL_BYTES_MAX      (16 * 1024 * 1024) /* of a message */
#define MAIL_RECIPIENTS_MAX 100                /* what RFC 5321 promises */

enum mail_tls { MAIL_TLS_REQUIRED, MAIL_TLS_OPPORTUNISTIC, MAIL_TLS_NONE };

struct mail_server {
    char *url; /* for libcurl; NULL = none */
    enum mail_tls tls;
    char *username, *password; /* NULL = none */
};

struct mail_provider {
    unsigned refs; /* registry, tools */
    struct mail_server smtp, imap;
    char *url_shown;       /* of smtp */
    char *from;            /* NULL = none */
    char *message_id_host; /* NULL = the sender's domain */
    char *folder;          /* of imap */
    int64_t timeout_ms, connect_timeout_ms;
    char *ca; /* NULL = the system's */
    bool verify;
};

struct mail_tool {
    unsigned refs;
    struct mail_provider *provider; /* a reference */
    int64_t timeout_ms;
    struct http_node from, to, cc, bcc, reply_to, subject, text, html; /* not stated: JSON_NULL */
    struct http_headers headers;
    char **redact;
    size_t redact_count;
};

void mail_provider_ref(struct mail_provider *provider);
void mail_provider_unref(struct mail_provider *provider); /* NULL is fine */
void mail_tool_ref(struct mail_tool *tool);
void mail_tool_unref(struct mail_tool *tool); /* NULL is fine */

/* A message ready for the wire. */
struct mail_message {
    struct smtp_mail mail; /* in the arena, data in `data` */
    const char *message_id;
    struct buf data;
};

void mail_message_init(struct mail_message *message);
void mail_message_release(struct mail_message *message);
/* ERR_INVALID names the member and what is wrong with its value. */
enum err_code mail_message_build(struct mail_message *message, struct arena *arena, const struct mail_tool *tool,
                                 const struct adapter_call *call, struct err *err);
/* "<key@host>": the same on every attempt of an operation and for its look-ups. */
enum err_code mail_message_id(struct arena *arena, const struct mail_tool *tool, const struct adapter_call *call,
                              const char **out, struct err *err);
enum err_code mail_message_describe(const struct mail_tool *tool, const struct adapter_call *call, struct json_out *out,
                                    struct err *err);

#endif
