/* The mail adapter: SMTP to send, IMAP to look up (docs/mail.md).
 *
 *   section ─► mail_provider, mail_tool      once, at load
 *   call ─► message (RFC 5322) ─► SMTP dialogue ─► finding
 *        └► Message-ID ─────────► IMAP dialogue ─► found, absent, cannot tell
 *
 * libcurl connects, does TLS and logs in; the dialogue from MAIL on is ours (mail_smtp.h): libcurl's own waits inside
 * one call for the answer to a message and for the answer to QUIT, and would hold up every other call of the daemon,
 * and it does not tell whether the end of the message was sent. What libcurl was never given, it cannot send twice
 * (design 5.2).
 *
 * One connection per message. Before the message's final dot leaves, nothing can have happened, whatever goes wrong. */
#ifndef ADAPTER_MAIL_H
#define ADAPTER_MAIL_H

#include "adapter/adapter.h"
#include "base/problem.h"

#include <uv.h>

/* Compiled section of a provider: members "smtp" and "imap". Fills of *provider what the section states, defaults
 * included (kind, limits, budget, breaker). NULL only with problems. */
struct mail_provider;
struct mail_provider *mail_provider_new(const struct json *section, const char *pointer, struct provider *provider,
                                        struct problems *problems);
void mail_provider_free(struct mail_provider *provider); /* NULL is fine */

/* Compiled members "mail" and "timeout" of a tool's section. Needs of *tool the class and redact. What struct
 * tool.adapter_tool points to when the provider's kind is PROVIDER_MAIL. NULL only with problems. */
struct mail_tool;
struct mail_tool *mail_tool_new(const struct json *section, const char *pointer, const struct mail_provider *provider,
                                struct tool *tool, struct problems *problems);
void mail_tool_free(struct mail_tool *tool);
bool mail_tool_has_lookup(const struct mail_tool *tool);

/* The client side of one event loop. Outlives registries. */
enum err_code mail_adapter_new(uv_loop_t *loop, struct adapter **out, struct err *err);
/* Ends what is on the wire (done is called with what is known) and releases. The loop must still run: closed is called
 * when all handles are closed. */
void mail_adapter_close(struct adapter *adapter, void (*closed)(void *user), void *user);

#endif
