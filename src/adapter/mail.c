/* The wire of the mail adapter: one exchange per message or look-up.
 *
 *   send ─► build ─► libcurl: connect, TLS, log in ─► connected ─► pump: bytes ⇄ dialogue ─► done
 *                         └─► finished: no connection ─► done
 *   the deadline covers all of it
 *
 * Input is taken whenever there is any, output as the socket allows. Before the final dot is handed to the system,
 * input is looked for once more: a server that has already refused is not given it. */
#include "adapter/mail.h"

#include "adapter/curl_loop.h"
#include "adapter/mail_imap.h"
#include "adapter/mail_parts.h"
#include "base/mark.h"
#include "base/mem.h"

#include <assert.h>
#include <stdlib.h>

#define READ_BYTES 16384

struct mail_adapter {
    struct adapter base;
    struct curl_loop loop;
    unsigned exchanges;
    bool loop_closed;
    void (*closed)(void *user);
    void *closed_user;
};

struct exchange {
    struct curl_transfer transfer; /* first: see exchange_of */
    struct mail_adapter *adapter;
    struct mail_tool *tool; /* a reference */
    enum attempt_kind kind;
    struct arena arena;
    adapter_done *done;
    void *user;
    struct mail_message message; /* calls */
    const char *message_id;
    struct smtp_greeting greeting;
    struct smtp_dialogue smtp;
    struct imap_dialogue imap;
    struct buf in, out; /* in: SMTP's unfinished line */
    size_t out_sent;
    struct err refusal; /* it could not be built or begun */
    bool begun;         /* the connection stands, the dialogue goes on */
    bool answered;
    uv_poll_t poll;
    uv_timer_t deadline;
    bool has_poll;
    unsigned handles; /* that are not closed yet */
};

static struct mail_adapter *mail_adapter_of(struct adapter *adapter)
{
    return (struct mail_adapter *)adapter;
}

static struct exchange *exchange_of(struct curl_transfer *transfer)
{
    return (struct exchange *)transfer;
}

/* ---- life of an exchange ---- */

static void adapter_free_when_closed(struct mail_adapter *adapter)
{
    if (!adapter->loop_closed || adapter->exchanges > 0)
        return;
    void (*closed)(void *user) = adapter->closed;
    void *user = adapter->closed_user;
    free(adapter);
    if (closed)
        closed(user);
}

static void exchange_free(struct exchange *exchange)
{
    struct mail_adapter *adapter = exchange->adapter;
    if (exchange->begun && exchange->kind == ATTEMPT_LOOKUP)
        imap_release(&exchange->imap);
    else if (exchange->begun)
        smtp_release(&exchange->smtp);
    mail_message_release(&exchange->message);
    buf_release(&exchange->in);
    buf_release(&exchange->out);
    mail_tool_unref(exchange->tool);
    arena_release(&exchange->arena);
    free(exchange);
    adapter->exchanges--;
    adapter_free_when_closed(adapter);
}

static void on_handle_closed(uv_handle_t *handle)
{
    struct exchange *exchange = handle->data;
    if (--exchange->handles == 0)
        exchange_free(exchange);
}

/* The socket is watched no more before libcurl closes it. */
static void exchange_close(struct exchange *exchange)
{
    if (exchange->has_poll)
        uv_close((uv_handle_t *)&exchange->poll, on_handle_closed);
    uv_close((uv_handle_t *)&exchange->deadline, on_handle_closed);
    curl_transfer_release(&exchange->transfer);
}

/* Answers once and lets go. */
static void answer(struct exchange *exchange, const struct adapter_answer *answer)
{
    assert(!exchange->answered);
    exchange->answered = true;
    exchange_close(exchange);
    exchange->done(exchange->user, answer);
}

/* ---- answers ---- */

static struct str json_of(struct exchange *exchange, struct buf *text)
{
    struct str copy = arena_str(&exchange->arena, buf_str(text));
    buf_release(text);
    return copy;
}

static struct str error_json(struct exchange *exchange, const char *message, int code)
{
    struct buf text;
    struct json_out out;
    buf_init(&text, 0);
    json_out_init(&out, &text);
    json_out_object(&out);
    json_out_member_text(&out, "message", message);
    if (code)
        json_out_member_text(&out, "code", arena_printf(&exchange->arena, "%d", code));
    json_out_end_object(&out);
    return json_of(exchange, &text);
}

static void answer_failed(struct exchange *exchange, enum outcome outcome, const char *detail, int code)
{
    struct adapter_answer result = {.outcome = outcome, .detail = detail};
    if (exchange->kind == ATTEMPT_LOOKUP)
        result.outcome = OUTCOME_CANNOT_TELL;
    result.error = error_json(exchange, detail, code);
    answer(exchange, &result);
}

static struct str sent_json(struct exchange *exchange)
{
    const struct smtp_mail *mail = &exchange->message.mail;
    struct buf text;
    struct json_out out;
    buf_init(&text, 0);
    json_out_init(&out, &text);
    json_out_object(&out);
    json_out_member_text(&out, "message_id", exchange->message_id);
    json_out_name(&out, "recipients");
    json_out_array(&out);
    for (size_t i = 0; i < mail->recipient_count; i++)
        json_out_text(&out, mail->recipients[i]);
    json_out_end_array(&out);
    json_out_member_text(&out, "reply", exchange->smtp.finding.text);
    json_out_end_object(&out);
    return json_of(exchange, &text);
}

static struct str found_json(struct exchange *exchange)
{
    struct buf text;
    struct json_out out;
    buf_init(&text, 0);
    json_out_init(&out, &text);
    json_out_object(&out);
    json_out_member_text(&out, "message_id", exchange->message_id);
    json_out_member_text(&out, "folder", exchange->tool->provider->folder);
    json_out_member_int(&out, "uid", exchange->imap.finding.uid);
    json_out_end_object(&out);
    return json_of(exchange, &text);
}

static void answer_smtp(struct exchange *exchange)
{
    const struct smtp_finding *finding = &exchange->smtp.finding;
    if (finding->outcome != OUTCOME_SUCCESS) {
        answer_failed(exchange, finding->outcome, finding->text, finding->code);
        return;
    }
    const struct adapter_answer result = {.outcome = OUTCOME_SUCCESS,
                                          .detail = finding->text,
                                          .external_id = exchange->message_id,
                                          .result = sent_json(exchange)};
    answer(exchange, &result);
}

static void answer_imap(struct exchange *exchange)
{
    const struct imap_finding *finding = &exchange->imap.finding;
    struct adapter_answer result = {.outcome = finding->outcome, .detail = finding->text, .matches = finding->matches};
    if (finding->outcome == OUTCOME_FOUND) {
        result.external_id = exchange->message_id;
        result.result = found_json(exchange);
    }
    answer(exchange, &result);
}

/* ---- the dialogue ---- */

/* Without waiting for the answer: all is said. Not in the middle of a message, where it would be one of its lines. */
static void say_goodbye(struct exchange *exchange)
{
    bool lookup = exchange->kind == ATTEMPT_LOOKUP;
    const struct smtp_dialogue *smtp = &exchange->smtp;
    const char *words = lookup ? "o4 LOGOUT\r\n" : "QUIT\r\n";
    size_t n;
    if (lookup ? exchange->imap.finding.outcome != OUTCOME_CANNOT_TELL
               : smtp->finding.code && (smtp->end_sent || !smtp->message_begun))
        (void)curl_easy_send(exchange->transfer.easy, words, strlen(words), &n);
}

static bool is_over(const struct exchange *exchange)
{
    return exchange->kind == ATTEMPT_LOOKUP ? exchange->imap.step == IMAP_OVER : exchange->smtp.step == SMTP_OVER;
}

static void broken(struct exchange *exchange, enum smtp_break how, const char *why)
{
    if (exchange->kind == ATTEMPT_LOOKUP)
        imap_broken(&exchange->imap, why);
    else
        smtp_broken(&exchange->smtp, how, why);
}

static bool has_output(const struct exchange *exchange)
{
    return exchange->out_sent < exchange->out.n;
}

/* The lines that have come. What we are about to say has not left while a line comes: it cannot be the answer. */
static void take_lines(struct exchange *exchange)
{
    struct buf *in = &exchange->in;
    const char *newline;
    size_t done = 0;
    while (!is_over(exchange) && (newline = memchr(in->p + done, '\n', in->n - done))) {
        struct str line = {in->p + done, (size_t)(newline - in->p) - done};
        done = (size_t)(newline - in->p) + 1;
        if (line.n > 0 && line.p[line.n - 1] == '\r')
            line.n--;
        if (has_output(exchange) && exchange->smtp.step != SMTP_MESSAGE)
            broken(exchange, SMTP_UNREADABLE, "the server answers before it was asked");
        else
            smtp_line(&exchange->smtp, line, done < in->n, &exchange->out);
    }
    memmove(in->p, in->p + done, in->n - done);
    in->n -= done;
    if (!is_over(exchange) && in->n > SMTP_LINE_BYTES_MAX)
        broken(exchange, SMTP_UNREADABLE, "the server's answer is too long");
}

static void take(struct exchange *exchange, struct str bytes)
{
    if (exchange->kind == ATTEMPT_LOOKUP) {
        imap_take(&exchange->imap, bytes, &exchange->out);
        return;
    }
    buf_add_str(&exchange->in, bytes);
    take_lines(exchange);
}

/* Takes what there is. */
static void receive(struct exchange *exchange)
{
    char bytes[READ_BYTES];
    while (!is_over(exchange)) {
        size_t n = 0;
        CURLcode code = curl_easy_recv(exchange->transfer.easy, bytes, sizeof bytes, &n);
        if (code == CURLE_AGAIN)
            return;
        if (code == CURLE_OK && n > 0)
            take(exchange, (struct str){bytes, n});
        else
            broken(exchange, SMTP_LOST, "the connection was closed");
    }
}

/* Gives the system what it takes; false: not all, or the dialogue is over. */
static bool flush(struct exchange *exchange)
{
    struct buf *out = &exchange->out;
    while (!is_over(exchange) && has_output(exchange)) {
        size_t n = 0;
        CURLcode code =
            curl_easy_send(exchange->transfer.easy, out->p + exchange->out_sent, out->n - exchange->out_sent, &n);
        if (code == CURLE_AGAIN)
            return false;
        if (code != CURLE_OK) {
            receive(exchange); /* the server's last words say more */
            broken(exchange, SMTP_LOST, "the connection was closed");
            return false;
        }
        exchange->out_sent += n;
    }
    buf_reset(out);
    exchange->out_sent = 0;
    return !is_over(exchange);
}

/* All of the message is out but its end, and the server has not objected. */
static void send_end(struct exchange *exchange)
{
    MARK(request_let_out);
    smtp_written(&exchange->smtp, &exchange->out);
    flush(exchange);
    MARK(request_written);
}

static void on_ready(uv_poll_t *poll, int status, int events);

static void pump(struct exchange *exchange)
{
    receive(exchange);
    bool flushed = flush(exchange);
    if (flushed && exchange->kind == ATTEMPT_CALL && exchange->smtp.step == SMTP_MESSAGE) {
        receive(exchange);
        if (!is_over(exchange))
            send_end(exchange);
    }
    if (is_over(exchange)) {
        say_goodbye(exchange);
        if (exchange->kind == ATTEMPT_LOOKUP)
            answer_imap(exchange);
        else
            answer_smtp(exchange);
        return;
    }
    uv_poll_start(&exchange->poll, UV_READABLE | (has_output(exchange) ? UV_WRITABLE : 0), on_ready);
}

static void on_ready(uv_poll_t *poll, int status, int events)
{
    struct exchange *exchange = poll->data;
    struct curl_loop *loop = &exchange->adapter->loop;
    (void)status;
    (void)events;
    curl_loop_enter(loop);
    pump(exchange);
    curl_loop_leave(loop);
}

static void on_deadline(uv_timer_t *timer)
{
    struct exchange *exchange = timer->data;
    struct curl_loop *loop = &exchange->adapter->loop;
    curl_loop_enter(loop);
    if (!exchange->begun) {
        answer_failed(exchange, OUTCOME_NOT_SENT, "no connection in time", 0);
    } else {
        broken(exchange, SMTP_TIMED_OUT, "no answer in time");
        pump(exchange);
    }
    curl_loop_leave(loop);
}

/* ---- connecting ---- */

static const struct mail_server *server_of(const struct exchange *exchange)
{
    const struct mail_provider *provider = exchange->tool->provider;
    return exchange->kind == ATTEMPT_LOOKUP ? &provider->imap : &provider->smtp;
}

static void dialogue_begin(struct exchange *exchange)
{
    exchange->begun = true;
    if (exchange->kind == ATTEMPT_LOOKUP)
        imap_start(&exchange->imap, &exchange->arena, exchange->tool->provider->folder, exchange->message_id,
                   &exchange->out);
    else
        smtp_start(&exchange->smtp, &exchange->arena, &exchange->message.mail, &exchange->greeting, &exchange->out);
}

/* libcurl goes on without logging in where the server does not offer it. */
static bool is_logged_in(const struct exchange *exchange)
{
    return exchange->kind == ATTEMPT_LOOKUP || !server_of(exchange)->password || exchange->greeting.authenticated;
}

static void connected(struct curl_transfer *transfer)
{
    struct exchange *exchange = exchange_of(transfer);
    curl_socket_t fd = CURL_SOCKET_BAD;
    curl_easy_getinfo(transfer->easy, CURLINFO_ACTIVESOCKET, &fd);
    if (!is_logged_in(exchange)) {
        answer_failed(exchange, OUTCOME_NOT_SENT, "the mail server does not offer to log in", 0);
        return;
    }
    if (fd == CURL_SOCKET_BAD || uv_poll_init_socket(exchange->adapter->loop.loop, &exchange->poll, fd) != 0) {
        answer_failed(exchange, OUTCOME_NOT_SENT, "the connection to the mail server cannot be watched", 0);
        return;
    }
    exchange->poll.data = exchange;
    exchange->has_poll = true;
    exchange->handles++;
    dialogue_begin(exchange);
    pump(exchange);
}

/* The server's own words where it refused us, libcurl's otherwise. Nothing of the message was given to it. */
static void answer_unconnected(struct exchange *exchange, CURLcode code)
{
    const struct smtp_greeting *greeting = &exchange->greeting;
    const char *why = exchange->transfer.error[0] ? exchange->transfer.error : curl_easy_strerror(code);
    bool refused = code == CURLE_WEIRD_SERVER_REPLY || code == CURLE_LOGIN_DENIED ||
                   code == CURLE_REMOTE_ACCESS_DENIED || code == CURLE_AUTH_ERROR;
    enum outcome outcome = OUTCOME_NOT_SENT;
    if (refused && greeting->code >= 400) {
        outcome = greeting->code >= 500 ? OUTCOME_REFUSED : OUTCOME_NOT_PROCESSED;
        why = arena_printf(&exchange->arena, "the mail server refused %s: %s",
                           code == CURLE_LOGIN_DENIED || code == CURLE_AUTH_ERROR ? "the login" : "the connection",
                           greeting->text);
    }
    answer_failed(exchange, outcome, arena_copy_text(&exchange->arena, why), refused ? greeting->code : 0);
}

static void finished(struct curl_transfer *transfer, CURLcode code)
{
    struct exchange *exchange = exchange_of(transfer);
    if (exchange->refusal.code != ERR_NONE) {
        answer_failed(exchange, OUTCOME_NOT_SENT, exchange->refusal.text, 0);
    } else if (!exchange->begun) {
        answer_unconnected(exchange, code);
    } else { /* onced stops: the connection is gone already */
        broken(exchange, SMTP_LOST, "onced stopped before the answer");
        if (exchange->kind == ATTEMPT_LOOKUP)
            answer_imap(exchange);
        else
            answer_smtp(exchange);
    }
}

static const struct curl_transfer_ops exchange_ops = {.finished = finished, .connected = connected};

static size_t on_line(char *line, size_t size, size_t count, void *user)
{
    struct exchange *exchange = user;
    if (exchange->kind == ATTEMPT_CALL)
        smtp_greeting_line(&exchange->greeting, (struct str){line, size * count});
    return size * count;
}

/* Instead of curl_loop's: a connection is no request yet. No socket is opened any more from here on. */
static int before_dialogue(void *user, char *remote, char *local, int remote_port, int local_port)
{
    struct curl_transfer *transfer = user;
    (void)remote;
    (void)local;
    (void)remote_port;
    (void)local_port;
    return transfer->let_pass++ > 0 ? CURL_PREREQFUNC_ABORT : CURL_PREREQFUNC_OK;
}

static void set_options(struct exchange *exchange)
{
    static const long ssl[] = {CURLUSESSL_ALL, CURLUSESSL_TRY, CURLUSESSL_NONE};
    struct curl_transfer *transfer = &exchange->transfer;
    const struct mail_provider *provider = exchange->tool->provider;
    const struct mail_server *server = server_of(exchange);
    CURL *easy = transfer->easy;
    curl_transfer_connect_only(transfer);
    curl_transfer_text(transfer, CURLOPT_PROTOCOLS_STR, "smtp,smtps,imap,imaps");
    curl_transfer_text(transfer, CURLOPT_URL, server->url);
    curl_easy_setopt(easy, CURLOPT_USE_SSL, ssl[server->tls]);
    curl_easy_setopt(easy, CURLOPT_SSL_VERIFYPEER, provider->verify ? 1L : 0L);
    curl_easy_setopt(easy, CURLOPT_SSL_VERIFYHOST, provider->verify ? 2L : 0L);
    if (provider->ca)
        curl_transfer_text(transfer, CURLOPT_CAINFO, provider->ca);
    if (server->username)
        curl_transfer_text(transfer, CURLOPT_USERNAME, server->username);
    if (server->password)
        curl_transfer_text(transfer, CURLOPT_PASSWORD, server->password);
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, (long)provider->connect_timeout_ms);
    curl_easy_setopt(easy, CURLOPT_PREREQFUNCTION, before_dialogue);
    curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_line);
    curl_easy_setopt(easy, CURLOPT_HEADERDATA, exchange);
}

/* ---- sending ---- */

static struct exchange *exchange_new(struct mail_adapter *adapter, const struct adapter_call *call, adapter_done *done,
                                     void *user)
{
    struct exchange *exchange = mem_zero(sizeof *exchange);
    exchange->adapter = adapter;
    exchange->tool = (struct mail_tool *)call->tool->adapter_tool;
    exchange->kind = call->kind;
    exchange->done = done;
    exchange->user = user;
    mail_tool_ref(exchange->tool);
    arena_init(&exchange->arena);
    mail_message_init(&exchange->message);
    buf_init(&exchange->in, 0); /* take_lines limits it */
    buf_init(&exchange->out, 0);
    curl_transfer_init(&exchange->transfer, &adapter->loop, &exchange_ops);
    uv_timer_init(adapter->loop.loop, &exchange->deadline);
    exchange->deadline.data = exchange;
    exchange->handles = 1;
    adapter->exchanges++;
    return exchange;
}

static enum err_code build(struct exchange *exchange, const struct adapter_call *call)
{
    const struct mail_tool *tool = exchange->tool;
    struct err *err = &exchange->refusal;
    if (exchange->adapter->loop.closing)
        return err_set(err, ERR_UNAVAILABLE, "onced is stopping");
    if (!server_of(exchange)->url)
        return err_set(err, ERR_INVALID, "the provider has no imap section to look up in");
    if (call->kind == ATTEMPT_LOOKUP)
        return mail_message_id(&exchange->arena, tool, call, &exchange->message_id, err);
    enum err_code code = mail_message_build(&exchange->message, &exchange->arena, tool, call, err);
    exchange->message_id = exchange->message.message_id;
    return code;
}

static void mail_send(struct adapter *base, const struct adapter_call *call, adapter_done *done, void *user)
{
    struct exchange *exchange = exchange_new(mail_adapter_of(base), call, done, user);
    enum err_code code = build(exchange, call);
    if (code == ERR_NONE) {
        set_options(exchange);
        uv_timer_start(&exchange->deadline, on_deadline, (uint64_t)exchange->tool->timeout_ms, 0);
        code = curl_transfer_start(&exchange->transfer, &exchange->refusal);
    }
    if (code != ERR_NONE)
        curl_transfer_refuse(&exchange->transfer);
}

/* ---- dry runs ---- */

static enum err_code mail_check(struct adapter *adapter, const struct adapter_call *call, struct err *err)
{
    struct arena arena;
    struct mail_message message;
    (void)adapter;
    arena_init(&arena);
    mail_message_init(&message);
    enum err_code code = mail_message_build(&message, &arena, call->tool->adapter_tool, call, err);
    mail_message_release(&message);
    arena_release(&arena);
    return code;
}

static enum err_code mail_describe(struct adapter *adapter, const struct adapter_call *call, struct json_out *out,
                                   struct err *err)
{
    (void)adapter;
    return mail_message_describe(call->tool->adapter_tool, call, out, err);
}

/* ---- life ---- */

static const struct adapter_ops mail_ops = {.check = mail_check, .describe = mail_describe, .send = mail_send};

enum err_code mail_adapter_new(uv_loop_t *loop, struct adapter **out, struct err *err)
{
    struct mail_adapter *adapter = mem_zero(sizeof *adapter);
    adapter->base.ops = &mail_ops;
    enum err_code code = curl_loop_init(&adapter->loop, loop, err);
    if (code == ERR_NONE)
        *out = &adapter->base;
    else
        free(adapter);
    return code;
}

static void release_nothing(void *user)
{
    (void)user; /* each exchange released its handle when it ended */
}

static void on_loop_closed(void *user)
{
    struct mail_adapter *adapter = user;
    adapter->loop_closed = true;
    adapter_free_when_closed(adapter);
}

void mail_adapter_close(struct adapter *base, void (*closed)(void *user), void *user)
{
    struct mail_adapter *adapter = mail_adapter_of(base);
    adapter->closed = closed;
    adapter->closed_user = user;
    curl_loop_close(&adapter->loop, release_nothing, on_loop_closed, adapter);
}
