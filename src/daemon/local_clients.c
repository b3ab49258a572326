#include "daemon/local_clients.h"

#include "base/log.h"
#include "base/mem.h"

#include <stdlib.h>

static void check_idle(struct local_clients *clients)
{
    bool served = clients->stdio || (clients->socket && mcp_socket_clients(clients->socket) > 0);
    if (served || clients->told || clients->stopped || !clients->options.idle ||
        uv_is_active((uv_handle_t *)&clients->first))
        return;
    clients->told = true;
    log_message(LOG_INFO, "no_clients", "the last MCP client has left");
    clients->options.idle(clients->options.user);
}

static void on_left(void *user)
{
    struct local_clients *clients = user;
    uv_timer_stop(&clients->first);
    check_idle(clients);
}

static void on_stdio_ended(void *user)
{
    struct local_clients *clients = user;
    clients->stdio = NULL;
    check_idle(clients);
}

static void on_first(uv_timer_t *timer)
{
    check_idle(timer->data);
}

static enum err_code listen_on_socket(struct local_clients *clients, struct err *err)
{
    const struct local_clients_options *options = &clients->options;
    if (!options->ledger_path)
        return ERR_NONE;
    size_t n = strlen(options->ledger_path);
    char *path = mem_alloc(n + sizeof MCP_SOCKET_SUFFIX);
    memcpy(path, options->ledger_path, n);
    memcpy(path + n, MCP_SOCKET_SUFFIX, sizeof MCP_SOCKET_SUFFIX);
    struct err own = {0};
    enum err_code code = mcp_socket_listen(options->door, path, &clients->socket, &own);
    free(path);
    if (!code)
        mcp_socket_on_left(clients->socket, on_left, clients);
    else if (options->idle && options->in < 0)
        return err_set(err, code, "%s", own.text);
    else
        log_message(LOG_WARN, "no_socket", "other onced mcp processes are not served: %s", own.text);
    return ERR_NONE;
}

enum err_code local_clients_open(struct local_clients *clients, const struct local_clients_options *options,
                                 struct err *err)
{
    *clients = (struct local_clients){.options = *options, .open = true};
    uv_timer_init(options->loop, &clients->first);
    clients->first.data = clients;
    enum err_code code = listen_on_socket(clients, err);
    if (!code && options->in >= 0)
        code = mcp_stream_open(options->door, options->in, options->out, on_stdio_ended, clients, &clients->stdio, err);
    if (!code && options->idle && options->in < 0)
        uv_timer_start(&clients->first, on_first, LOCAL_CLIENTS_FIRST_MS, 0);
    return code;
}

void local_clients_stop(struct local_clients *clients)
{
    if (!clients->open || clients->stopped)
        return;
    clients->stopped = true;
    if (clients->socket)
        mcp_socket_stop(clients->socket);
    if (clients->stdio)
        mcp_stream_finish(clients->stdio);
}

void local_clients_close(struct local_clients *clients)
{
    if (!clients->open)
        return;
    clients->open = false;
    clients->stopped = true;
    mcp_socket_close(clients->socket);
    mcp_stream_close(clients->stdio);
    clients->socket = NULL;
    clients->stdio = NULL;
    uv_close((uv_handle_t *)&clients->first, NULL);
}
