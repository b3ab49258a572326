#include "adapter/curl_loop.h"

#include "base/mark.h"
#include "base/mem.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define BODY_AT_ONCE_MAX (32 * 1024) /* libcurl joins head and body up to 64 KiB */
#define EVENTS_PER_WAIT  64
#define BUFFER_BYTES     16384L /* libcurl's, per transfer */

/* Per file descriptor. */
struct curl_watch {
    bool ours;       /* opened by us: stays registered between requests until it is closed */
    bool registered; /* in the epoll set, with mask */
    bool wanted;     /* libcurl waits for it */
    uint32_t mask;
};

/* ---- sockets ---- */

static struct curl_watch *watch_of(struct curl_loop *loop, int fd)
{
    size_t index = (size_t)fd;
    if (index >= loop->watch_count) {
        size_t count = (index + 64) & ~(size_t)63;
        loop->watches = mem_grow(loop->watches, count * sizeof *loop->watches);
        memset(loop->watches + loop->watch_count, 0, (count - loop->watch_count) * sizeof *loop->watches);
        loop->watch_count = count;
    }
    return &loop->watches[index];
}

static void watch_set(struct curl_loop *loop, int fd, uint32_t mask)
{
    struct curl_watch *watch = watch_of(loop, fd);
    struct epoll_event event = {.events = mask, .data.fd = fd};
    if (watch->registered && watch->mask == mask)
        return;
    int rc = epoll_ctl(loop->epoll, watch->registered ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &event);
    watch->registered = rc == 0;
    watch->mask = mask;
}

static void watch_remove(struct curl_loop *loop, int fd)
{
    struct curl_watch *watch = watch_of(loop, fd);
    if (watch->registered)
        epoll_ctl(loop->epoll, EPOLL_CTL_DEL, fd, NULL);
    watch->registered = false;
}

static int on_socket(CURL *easy, curl_socket_t fd, int what, void *user, void *socket_user)
{
    struct curl_loop *loop = user;
    (void)easy;
    (void)socket_user;
    struct curl_watch *watch = watch_of(loop, fd);
    watch->wanted = what != CURL_POLL_REMOVE && what != CURL_POLL_NONE;
    if (watch->wanted)
        watch_set(loop, fd, (what & CURL_POLL_IN ? EPOLLIN : 0u) | (what & CURL_POLL_OUT ? EPOLLOUT : 0u));
    else if (!watch->ours || watch->mask != EPOLLIN)
        watch_remove(loop, fd); /* libcurl's own descriptors are closed behind our back */
    return 0;
}

static curl_socket_t open_socket(void *user, curlsocktype purpose, struct curl_sockaddr *address)
{
    struct curl_transfer *transfer = user;
    (void)purpose;
    if (transfer->let_pass > 0)
        return CURL_SOCKET_BAD;
    int fd = socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
    if (fd < 0)
        return CURL_SOCKET_BAD;
    *watch_of(transfer->loop, fd) = (struct curl_watch){.ours = true};
    return fd;
}

static int close_socket(void *user, curl_socket_t fd)
{
    struct curl_loop *loop = user;
    *watch_of(loop, fd) = (struct curl_watch){0}; /* the kernel takes it out of the set */
    return close(fd);
}

/* ---- what libcurl asks for ---- */

static int before_request(void *user, char *remote, char *local, int remote_port, int local_port)
{
    struct curl_transfer *transfer = user;
    (void)remote;
    (void)local;
    (void)remote_port;
    (void)local_port;
    if (transfer->let_pass > 0)
        return CURL_PREREQFUNC_ABORT;
    MARK(request_let_out);
    transfer->let_pass++;
    transfer->loop->let_out = true;
    return CURL_PREREQFUNC_OK;
}

static size_t read_body(char *out, size_t size, size_t count, void *user)
{
    struct curl_transfer *transfer = user;
    size_t n = transfer->body.n - transfer->body_sent;
    if (n > size * count)
        n = size * count;
    if (n > 0)
        memcpy(out, transfer->body.p + transfer->body_sent, n);
    transfer->body_sent += n;
    return n;
}

/* libcurl winds a handle's body back before the first request after a failed one; once the request was let pass, never.
 */
static int rewind_body(void *user, curl_off_t offset, int origin)
{
    struct curl_transfer *transfer = user;
    if (transfer->let_pass > 0 || offset != 0 || origin != SEEK_SET)
        return CURL_SEEKFUNC_FAIL;
    transfer->body_sent = 0;
    return CURL_SEEKFUNC_OK;
}

/* ---- transfers ---- */

/* libcurl copies texts. One that it has no memory for would leave the option as it was: another method, a proxy from
 * the environment, another set of certificates. */
void curl_transfer_text(struct curl_transfer *transfer, CURLoption option, const char *text)
{
    if (curl_easy_setopt(transfer->easy, option, text) == CURLE_OUT_OF_MEMORY)
        mem_exhausted("libcurl");
}

void curl_transfer_init(struct curl_transfer *transfer, struct curl_loop *loop, const struct curl_transfer_ops *ops)
{
    CURL *easy = curl_easy_init();
    if (!easy)
        mem_exhausted("libcurl");
    *transfer = (struct curl_transfer){.loop = loop, .easy = easy, .ops = ops};
    curl_easy_setopt(easy, CURLOPT_PRIVATE, transfer);
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, transfer->error);
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_transfer_text(transfer, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
    curl_transfer_text(transfer, CURLOPT_PROXY, "");
    curl_transfer_text(transfer, CURLOPT_NOPROXY, "*");
    curl_easy_setopt(easy, CURLOPT_NETRC, (long)CURL_NETRC_IGNORED);
    curl_easy_setopt(easy, CURLOPT_PATH_AS_IS, 1L);
    curl_easy_setopt(easy, CURLOPT_TCP_NODELAY, 1L);
    curl_easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 0L);
    curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, BUFFER_BYTES);
    curl_easy_setopt(easy, CURLOPT_UPLOAD_BUFFERSIZE, BUFFER_BYTES);
    curl_easy_setopt(easy, CURLOPT_PREREQFUNCTION, before_request);
    curl_easy_setopt(easy, CURLOPT_PREREQDATA, transfer);
    curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, open_socket);
    curl_easy_setopt(easy, CURLOPT_OPENSOCKETDATA, transfer);
    curl_easy_setopt(easy, CURLOPT_CLOSESOCKETFUNCTION, close_socket);
    curl_easy_setopt(easy, CURLOPT_CLOSESOCKETDATA, loop);
    curl_easy_setopt(easy, CURLOPT_READFUNCTION, read_body);
    curl_easy_setopt(easy, CURLOPT_READDATA, transfer);
    curl_easy_setopt(easy, CURLOPT_SEEKFUNCTION, rewind_body);
    curl_easy_setopt(easy, CURLOPT_SEEKDATA, transfer);
}

void curl_transfer_release(struct curl_transfer *transfer)
{
    curl_transfer_stop(transfer);
    curl_easy_cleanup(transfer->easy);
    transfer->easy = NULL;
}

void curl_transfer_clear(struct curl_transfer *transfer)
{
    transfer->let_pass = 0;
    transfer->body = STR_NONE;
    transfer->body_sent = 0;
    transfer->error[0] = '\0';
}

void curl_transfer_body(struct curl_transfer *transfer, struct str body)
{
    bool at_once = body.n <= BODY_AT_ONCE_MAX;
    transfer->body = body;
    transfer->body_sent = 0;
    curl_easy_setopt(transfer->easy, CURLOPT_POSTFIELDS, at_once ? body.p : NULL); /* NULL: from the read callback */
    curl_easy_setopt(transfer->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)body.n);
}

void curl_transfer_connect_only(struct curl_transfer *transfer)
{
    transfer->connect_only = true;
    curl_easy_setopt(transfer->easy, CURLOPT_CONNECT_ONLY, 1L);
    curl_easy_setopt(transfer->easy, CURLOPT_FRESH_CONNECT, 1L);
}

static void list_add(struct curl_transfer **list, struct curl_transfer *transfer)
{
    transfer->prev = NULL;
    transfer->next = *list;
    if (*list)
        (*list)->prev = transfer;
    *list = transfer;
}

static void list_remove(struct curl_transfer **list, struct curl_transfer *transfer)
{
    if (transfer->prev)
        transfer->prev->next = transfer->next;
    else
        *list = transfer->next;
    if (transfer->next)
        transfer->next->prev = transfer->prev;
    transfer->prev = transfer->next = NULL;
}

void curl_transfer_received(struct curl_transfer *transfer)
{
    struct curl_loop *loop = transfer->loop;
    if (transfer->is_received)
        return;
    transfer->is_received = true;
    transfer->received_prev = NULL;
    transfer->received_next = loop->received;
    if (loop->received)
        loop->received->received_prev = transfer;
    loop->received = transfer;
}

static void received_remove(struct curl_transfer *transfer)
{
    if (!transfer->is_received)
        return;
    transfer->is_received = false;
    if (transfer->received_prev)
        transfer->received_prev->received_next = transfer->received_next;
    else
        transfer->loop->received = transfer->received_next;
    if (transfer->received_next)
        transfer->received_next->received_prev = transfer->received_prev;
}

/* First come, first told. */
static void refused_add(struct curl_loop *loop, struct curl_transfer *transfer)
{
    transfer->is_refused = true;
    transfer->next = NULL;
    transfer->prev = loop->refused_last;
    if (transfer->prev)
        transfer->prev->next = transfer;
    else
        loop->refused = transfer;
    loop->refused_last = transfer;
    loop->refused_count++;
}

static void refused_remove(struct curl_transfer *transfer)
{
    struct curl_loop *loop = transfer->loop;
    if (loop->refused_last == transfer)
        loop->refused_last = transfer->prev;
    transfer->is_refused = false;
    loop->refused_count--;
    list_remove(&loop->refused, transfer);
}

void curl_transfer_stop(struct curl_transfer *transfer)
{
    received_remove(transfer);
    if (transfer->on_wire) {
        transfer->on_wire = false;
        CURLMcode code = curl_multi_remove_handle(transfer->loop->multi, transfer->easy);
        assert(code == CURLM_OK);
        list_remove(&transfer->loop->busy, transfer);
    } else if (transfer->is_refused) {
        refused_remove(transfer);
    }
}

enum err_code curl_transfer_start(struct curl_transfer *transfer, struct err *err)
{
    CURLMcode code = curl_multi_add_handle(transfer->loop->multi, transfer->easy);
    if (code != CURLM_OK)
        return err_set(err, ERR_INTERNAL, "libcurl: %s", curl_multi_strerror(code));
    transfer->on_wire = true;
    list_add(&transfer->loop->busy, transfer);
    return ERR_NONE;
}

static void on_deferred(uv_timer_t *timer);

void curl_transfer_refuse(struct curl_transfer *transfer)
{
    struct curl_loop *loop = transfer->loop;
    refused_add(loop, transfer);
    if (!loop->released)
        uv_timer_start(&loop->deferred, on_deferred, 0, 0);
}

/* ---- ends ---- */

static void finish(struct curl_transfer *transfer, CURLcode code)
{
    curl_transfer_stop(transfer);
    transfer->ops->finished(transfer, code);
}

static void tell_received(struct curl_loop *loop)
{
    while (loop->received && !loop->closing) {
        struct curl_transfer *transfer = loop->received;
        received_remove(transfer);
        transfer->ops->received(transfer);
    }
}

static void tell_finished(struct curl_loop *loop)
{
    CURLMsg *message;
    int left;
    tell_received(loop); /* what came goes before that it was the last */
    while (!loop->closing && (message = curl_multi_info_read(loop->multi, &left))) {
        struct curl_transfer *transfer = NULL;
        if (message->msg != CURLMSG_DONE)
            continue;
        CURLcode code = message->data.result;
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&transfer);
        if (transfer->connect_only && code == CURLE_OK)
            transfer->ops->connected(transfer); /* stays where it is: libcurl closes what is taken out */
        else
            finish(transfer, code);
    }
}

static void on_deferred(uv_timer_t *timer)
{
    struct curl_loop *loop = timer->data;
    curl_loop_enter(loop);
    /* what is refused meanwhile waits for the next turn */
    for (size_t count = loop->refused_count; count > 0 && loop->refused && !loop->closing; count--)
        finish(loop->refused, CURLE_FAILED_INIT);
    curl_loop_leave(loop);
}

/* ---- the loop ---- */

/* libcurl writes a request, or its first part, in the same turn in which it asks whether it may. */
static void mark_written(struct curl_loop *loop)
{
    MARK_IF(loop->let_out, request_written);
    loop->let_out = false;
}

static void on_ready(uv_poll_t *poll, int status, int uv_events)
{
    struct curl_loop *loop = poll->data;
    struct epoll_event events[EVENTS_PER_WAIT];
    int running;
    (void)status;
    (void)uv_events;
    curl_loop_enter(loop);
    int count = epoll_wait(loop->epoll, events, EVENTS_PER_WAIT, 0);
    for (int i = 0; i < count; i++) {
        int fd = events[i].data.fd;
        uint32_t mask = events[i].events;
        if (!watch_of(loop, fd)->wanted) {
            watch_remove(loop, fd); /* an idle connection was closed by the other side: libcurl sees it when it looks */
            continue;
        }
        int action = (mask & EPOLLIN ? CURL_CSELECT_IN : 0) | (mask & EPOLLOUT ? CURL_CSELECT_OUT : 0) |
                     (mask & (EPOLLERR | EPOLLHUP) ? CURL_CSELECT_ERR : 0);
        curl_multi_socket_action(loop->multi, fd, action, &running);
    }
    mark_written(loop);
    tell_finished(loop);
    curl_loop_leave(loop);
}

static void on_timer(uv_timer_t *timer)
{
    struct curl_loop *loop = timer->data;
    int running;
    curl_loop_enter(loop);
    curl_multi_socket_action(loop->multi, CURL_SOCKET_TIMEOUT, 0, &running);
    mark_written(loop);
    tell_finished(loop);
    curl_loop_leave(loop);
}

static int set_timer(CURLM *multi, long timeout_ms, void *user)
{
    struct curl_loop *loop = user;
    (void)multi;
    if (timeout_ms < 0)
        uv_timer_stop(&loop->timer);
    else
        uv_timer_start(&loop->timer, on_timer, (uint64_t)timeout_ms, 0);
    return 0;
}

/* ---- life ---- */

static enum err_code init_curl(struct curl_loop *loop, struct err *err)
{
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        return err_set(err, ERR_IO, "libcurl cannot be initialised");
    loop->multi = curl_multi_init();
    loop->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (!loop->multi || loop->epoll < 0)
        return err_set(err, ERR_IO, "no event set for the HTTP client: %m");
    curl_multi_setopt(loop->multi, CURLMOPT_SOCKETFUNCTION, on_socket);
    curl_multi_setopt(loop->multi, CURLMOPT_SOCKETDATA, loop);
    curl_multi_setopt(loop->multi, CURLMOPT_TIMERFUNCTION, set_timer);
    curl_multi_setopt(loop->multi, CURLMOPT_TIMERDATA, loop);
    curl_multi_setopt(loop->multi, CURLMOPT_PIPELINING, (long)CURLPIPE_NOTHING);
    return ERR_NONE;
}

enum err_code curl_loop_init(struct curl_loop *loop, uv_loop_t *uv, struct err *err)
{
    *loop = (struct curl_loop){.loop = uv, .epoll = -1};
    enum err_code code = init_curl(loop, err);
    if (code == ERR_NONE && uv_poll_init(uv, &loop->poll, loop->epoll) != 0)
        code = err_set(err, ERR_IO, "the event loop does not take the HTTP client");
    if (code != ERR_NONE) {
        curl_multi_cleanup(loop->multi);
        if (loop->epoll >= 0)
            close(loop->epoll);
        return code;
    }
    uv_timer_init(uv, &loop->timer);
    uv_timer_init(uv, &loop->deferred);
    loop->poll.data = loop->timer.data = loop->deferred.data = loop;
    loop->open_handles = 3;
    uv_poll_start(&loop->poll, UV_READABLE, on_ready);
    return ERR_NONE;
}

static void on_handle_closed(uv_handle_t *handle)
{
    struct curl_loop *loop = handle->data;
    if (--loop->open_handles > 0)
        return;
    close(loop->epoll);
    free(loop->watches);
    loop->closed(loop->user); /* may free loop */
}

static void release(struct curl_loop *loop)
{
    loop->released = true;
    while (loop->busy) {
        snprintf(loop->busy->error, sizeof loop->busy->error, "onced stopped before the answer");
        finish(loop->busy, CURLE_RECV_ERROR);
    }
    while (loop->refused)
        finish(loop->refused, CURLE_FAILED_INIT);
    loop->release(loop->user);
    curl_multi_cleanup(loop->multi);
    uv_close((uv_handle_t *)&loop->poll, on_handle_closed);
    uv_close((uv_handle_t *)&loop->timer, on_handle_closed);
    uv_close((uv_handle_t *)&loop->deferred, on_handle_closed);
}

void curl_loop_enter(struct curl_loop *loop)
{
    loop->depth++;
}

void curl_loop_leave(struct curl_loop *loop)
{
    if (--loop->depth == 0 && loop->closing && !loop->released)
        release(loop);
}

void curl_loop_close(struct curl_loop *loop, void (*release_user)(void *user), void (*closed)(void *user), void *user)
{
    loop->closing = true;
    loop->release = release_user;
    loop->closed = closed;
    loop->user = user;
    curl_loop_enter(loop);
    curl_loop_leave(loop);
}
