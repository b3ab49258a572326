#include "daemon/daemon_parts.h"

#include "adapter/command.h"
#include "adapter/http.h"
#include "adapter/mail.h"
#include "adapter/sql.h"
#include "adapter/webhook.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/pg_url.h"
#include "ledger/open.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define DRAIN_MS       100 /* the last answers get this long to reach their sockets */
#define FILE_BYTES_MAX (1024 * 1024)
#define LOOK_MS        1000 /* between looks at what other gateways have left or made due */
#define SETTLE_STEP_MS 10   /* between looks whether all MCP servers have told their tools */
#define LEDGER_STEP_MS 500  /* between tries to open a ledger that is waited for */

/* ---- time ---- */

static void plan_tick(void *user);

static void on_tick(uv_timer_t *timer)
{
    struct daemon *daemon = timer->data;
    engine_tick(daemon->engine);
    plan_tick(daemon);
}

static void plan_tick(void *user)
{
    struct daemon *daemon = user;
    int64_t next = engine_next_tick_ms(daemon->engine);
    if (daemon->closing || next == 0) {
        uv_timer_stop(&daemon->tick);
        return;
    }
    int64_t delay = next - engine_now_ms(daemon->engine);
    /* At least 1: libuv 1.44 runs a timer that its callback starts anew with 0 again at once, for ever, and nothing
     * else. */
    uv_timer_start(&daemon->tick, on_tick, delay > 1 ? (uint64_t)delay : 1, 0);
}

/* ---- ledger ---- */

static void ledger_has_news(void *user) /* on the ledger thread */
{
    struct daemon *daemon = user;
    uv_async_send(&daemon->ledger_news);
}

static void on_ledger_news(uv_async_t *async)
{
    struct daemon *daemon = async->data;
    ledger_poll(daemon->ledger);
}

/* Requests to the ledger are collected as long as turns of the loop bring some (ledger_turn). */
static void stay_awake(uv_idle_t *idle)
{
    (void)idle; /* only keeps the loop from sleeping */
}

static void on_first_request(void *user)
{
    struct daemon *daemon = user;
    if (!uv_is_closing((uv_handle_t *)&daemon->awake)) /* else closing the ledger sends it on its way */
        uv_idle_start(&daemon->awake, stay_awake);
}

static void on_put_off(uv_timer_t *timer);

static void end_turn(struct daemon *daemon)
{
    int sleep_ms = ledger_turn(daemon->ledger);
    if (sleep_ms == 0)
        return;
    uv_idle_stop(&daemon->awake);
    if (sleep_ms > 0)
        uv_timer_start(&daemon->put_off, on_put_off, (uint64_t)sleep_ms, 0);
    else
        uv_timer_stop(&daemon->put_off);
}

static void on_put_off(uv_timer_t *timer)
{
    end_turn(timer->data);
}

static void on_turn_end(uv_prepare_t *prepare)
{
    struct daemon *daemon = prepare->data;
    if (uv_is_active((uv_handle_t *)&daemon->awake))
        end_turn(daemon);
}

static const char *ledger_where(const struct daemon *daemon)
{
    const char *given = daemon->options->ledger_override;
    return given ? given : daemon->config->ledger.where;
}

/* Gateways on one ledger compare times (when something was sent, when a lease ends): they go by its clock. */
static struct env *ledger_env(struct daemon *daemon)
{
    return pg_url_is(ledger_where(daemon)) ? &daemon->clock.env : env_system();
}

static enum err_code open_ledger(struct daemon *daemon, struct err *err)
{
    struct ledger_open_options options = {
        .where = ledger_where(daemon),
        .clock = &daemon->clock,
        .turn = on_first_request,
        .notify = ledger_has_news,
        .user = daemon,
    };
    return ledger_open(&options, ledger_env(daemon), &daemon->ledger, err);
}

/* ---- door ---- */

static char *read_file(const char *path, struct err *err)
{
    FILE *file = fopen(path, "rb");
    if (!file) {
        err_set(err, ERR_IO, "%s can not be read: %m", path);
        return NULL;
    }
    char *text = mem_alloc(FILE_BYTES_MAX + 1);
    size_t n = fread(text, 1, FILE_BYTES_MAX, file);
    text[n] = '\0';
    fclose(file);
    return text;
}

static bool is_loopback(const char *host)
{
    return strncmp(host, "127.", 4) == 0 || strcmp(host, "::1") == 0 || strcmp(host, "localhost") == 0;
}

/* --listen may move a loopback server to another loopback address or port; what the file's checks protect stays. */
static enum err_code override_listen(struct daemon *daemon, char *host, size_t size, unsigned *port, struct err *err)
{
    const char *text = daemon->options->listen_override;
    const char *colon = strrchr(text, ':');
    size_t n = colon ? (size_t)(colon - text) : 0;
    char *end = NULL;
    unsigned long value = colon ? strtoul(colon + 1, &end, 10) : 0;
    if (!colon || n == 0 || n >= size || !colon[1] || *end || value > 65535)
        return err_set(err, ERR_INVALID, "--listen %s: expected ADDRESS:PORT, for example 127.0.0.1:7070", text);
    if (text[0] == '[' && text[n - 1] == ']') {
        memcpy(host, text + 1, n - 2);
        host[n - 2] = '\0';
    } else {
        memcpy(host, text, n);
        host[n] = '\0';
    }
    if (!is_loopback(host) && daemon->config->server.auth == CONFIG_AUTH_NONE)
        return err_set(err, ERR_DENIED, "--listen %s: elsewhere than loopback needs auth: tokens in the registry file",
                       text);
    *port = (unsigned)value;
    return ERR_NONE;
}

static void open_mcp_door(struct daemon *daemon)
{
    const struct config *config = daemon->current ? daemon->current : daemon->config;
    struct mcp_door_options options = {
        .loop = &daemon->loop,
        .engine = daemon->engine,
        .hub = daemon->hub,
        .settings = &config->mcp,
    };
    daemon->mcp = mcp_door_new(&options);
}

static enum err_code open_door(struct daemon *daemon, struct err *err)
{
    const struct config_server *server = &daemon->config->server;
    char host[128];
    unsigned port = server->port;
    snprintf(host, sizeof host, "%s", server->host);
    if (daemon->options->listen_override) {
        enum err_code code = override_listen(daemon, host, sizeof host, &port, err);
        if (code)
            return code;
    }
    struct http_door_options options = {
        .loop = &daemon->loop,
        .engine = daemon->engine,
        .address = host,
        .port = (uint16_t)port,
        .mcp = daemon->mcp,
        .auth_tokens = server->auth == CONFIG_AUTH_TOKENS,
        .issuers = server->issuers,
        .issuer_count = server->issuer_count,
        .connections_max = server->connections_max,
        .body_bytes_max = server->body_bytes_max,
        .links_base = server->links.base,
        .links_expires_ms = server->links.expires_ms,
        .notify = daemon->notify,
    };
    char *certificate = NULL, *key = NULL;
    enum err_code code = ERR_NONE;
    if (server->tls_certificate) {
        certificate = read_file(server->tls_certificate, err);
        key = certificate ? read_file(server->tls_key, err) : NULL;
        if (!key)
            code = ERR_IO;
        options.tls_cert_pem = certificate;
        options.tls_key_pem = key;
    }
    if (!code)
        code = http_door_new(&options, &daemon->door, err);
    if (!code)
        notify_set_door(daemon->notify, http_door_parts(daemon->door));
    if (key)
        explicit_bzero(key, strlen(key));
    free(certificate);
    free(key);
    if (!code && !daemon->options->quiet) {
        printf("{\"ready\":true,\"address\":\"%s\",\"port\":%u,\"pid\":%d,\"tools\":%zu}\n", host,
               (unsigned)http_door_port(daemon->door), (int)getpid(),
               registry_tool_count(engine_registry(daemon->engine)));
        fflush(stdout);
    }
    if (!code && log_begin(LOG_INFO, "listening")) {
        log_text("address", host);
        log_int("port", http_door_port(daemon->door));
        log_end();
    }
    return code;
}

/* Beside an MCP client HTTP is an extra: the address may be another process's. */
static enum err_code open_http(struct daemon *daemon, struct err *err)
{
    enum err_code code = open_door(daemon, err);
    if (!code || !daemon->options->mcp)
        return code;
    log_message(LOG_INFO, "no_http", "%s", err->text);
    err_clear(err);
    return ERR_NONE;
}

/* ---- stopping ---- */

static void close_handle(uv_handle_t *handle)
{
    if (handle->type != UV_UNKNOWN_HANDLE && !uv_is_closing(handle))
        uv_close(handle, NULL);
}

static void close_handles(struct daemon *daemon)
{
    close_handle((uv_handle_t *)&daemon->ledger_news);
    close_handle((uv_handle_t *)&daemon->turn_end);
    close_handle((uv_handle_t *)&daemon->awake);
    close_handle((uv_handle_t *)&daemon->put_off);
    close_handle((uv_handle_t *)&daemon->tick);
    close_handle((uv_handle_t *)&daemon->drain);
    close_handle((uv_handle_t *)&daemon->settle);
    close_handle((uv_handle_t *)&daemon->again);
    close_handle((uv_handle_t *)&daemon->terminate);
    close_handle((uv_handle_t *)&daemon->interrupt);
    close_handle((uv_handle_t *)&daemon->reload);
}

/* Doors first (their ledger requests still come back), then the adapters, then what the loop itself holds. */
static void on_wires_closed(void *user)
{
    close_handles(user);
}

static void close_webhooks(void *user)
{
    struct daemon *daemon = user;
    struct webhooks *webhooks = daemon->webhooks;
    daemon->webhooks = NULL;
    if (webhooks)
        webhooks_close(webhooks, on_wires_closed, daemon);
    else
        on_wires_closed(daemon);
}

static void close_http(void *user)
{
    struct daemon *daemon = user;
    struct adapter *http = daemon->http;
    daemon->http = NULL;
    if (http)
        http_adapter_close(http, close_webhooks, daemon);
    else
        close_webhooks(daemon);
}

static void close_mail(void *user)
{
    struct daemon *daemon = user;
    struct adapter *mail = daemon->mail;
    daemon->mail = NULL;
    if (mail)
        mail_adapter_close(mail, close_http, daemon);
    else
        close_http(daemon);
}

static void close_sql(void *user)
{
    struct daemon *daemon = user;
    struct adapter *sql = daemon->sql;
    daemon->sql = NULL;
    if (sql)
        sql_adapter_close(sql, close_mail, daemon);
    else
        close_mail(daemon);
}

static void close_command(void *user)
{
    struct daemon *daemon = user;
    struct adapter *command = daemon->command;
    daemon->command = NULL;
    if (command)
        command_adapter_close(command, close_sql, daemon);
    else
        close_sql(daemon);
}

static void close_hub(void *user)
{
    struct daemon *daemon = user;
    struct mcp_hub *hub = daemon->hub;
    mcp_door_free(daemon->mcp);
    daemon->mcp = NULL;
    daemon->hub = NULL;
    if (hub)
        mcp_hub_close(hub, close_command, daemon);
    else
        close_command(daemon);
}

static void on_door_closed(void *user)
{
    struct daemon *daemon = user;
    struct notify *notify = daemon->notify;
    daemon->notify = NULL;
    if (notify)
        notify_close(notify, close_hub, daemon);
    else
        close_hub(daemon);
}

static void close_all(struct daemon *daemon)
{
    struct http_door *door = daemon->door;
    daemon->closing = true;
    daemon->door = NULL;
    local_clients_close(&daemon->clients);
    if (daemon->mcp)
        mcp_door_close(daemon->mcp);
    if (daemon->notify)
        notify_set_door(daemon->notify, NULL);
    if (door)
        http_door_close(door, on_door_closed, daemon);
    else
        on_door_closed(daemon);
}

static void on_drained(uv_timer_t *timer)
{
    close_all(timer->data);
}

static void on_engine_stopped(void *user)
{
    struct daemon *daemon = user;
    uv_timer_start(&daemon->drain, on_drained, DRAIN_MS, 0);
}

static void begin_stop(struct daemon *daemon)
{
    int64_t timeout_ms = daemon->config->server.stop_timeout_ms;
    daemon->stopping = true;
    uv_timer_stop(&daemon->settle);
    uv_timer_stop(&daemon->again);
    if (!daemon->engine) { /* still waits for its ledger */
        close_all(daemon);
        return;
    }
    local_clients_stop(&daemon->clients);
    if (daemon->door)
        http_door_stop_accepting(daemon->door);
    engine_stop(daemon->engine, engine_now_ms(daemon->engine) + timeout_ms, on_engine_stopped, daemon);
    if (!daemon->closing)
        plan_tick(daemon);
}

static void on_stop_signal(uv_signal_t *signal, int number)
{
    struct daemon *daemon = signal->data;
    if (daemon->told) {
        log_message(LOG_WARN, "stopping",
                    "second signal: leaving at once; open attempts are unknown until the next start");
        _exit(1);
    }
    daemon->told = true;
    log_message(LOG_INFO, "stopping", "signal %d: finishing what is on the wire, at most %lld ms", number,
                (long long)daemon->config->server.stop_timeout_ms);
    if (!daemon->stopping)
        begin_stop(daemon);
}

static void on_reload_signal(uv_signal_t *signal, int number)
{
    struct daemon *daemon = signal->data;
    (void)number;
    if (!daemon->stopping && daemon->engine)
        daemon_registry_reload(daemon);
}

/* ---- start ---- */

static bool start_signals(struct daemon *daemon)
{
    signal(SIGPIPE, SIG_IGN);
    return uv_signal_init(&daemon->loop, &daemon->terminate) == 0 &&
           uv_signal_init(&daemon->loop, &daemon->interrupt) == 0 &&
           uv_signal_init(&daemon->loop, &daemon->reload) == 0 &&
           uv_signal_start(&daemon->terminate, on_stop_signal, SIGTERM) == 0 &&
           uv_signal_start(&daemon->interrupt, on_stop_signal, SIGINT) == 0 &&
           uv_signal_start(&daemon->reload, on_reload_signal, SIGHUP) == 0;
}

/* Without its event counter nobody would hear of the ledger, without its signals it could not be stopped. */
static bool start_loop(struct daemon *daemon)
{
    if (uv_loop_init(&daemon->loop) != 0 || uv_async_init(&daemon->loop, &daemon->ledger_news, on_ledger_news) != 0 ||
        !start_signals(daemon))
        return false;
    uv_idle_init(&daemon->loop, &daemon->awake);
    uv_prepare_init(&daemon->loop, &daemon->turn_end);
    uv_timer_init(&daemon->loop, &daemon->put_off);
    daemon->turn_end.data = daemon->put_off.data = daemon;
    uv_prepare_start(&daemon->turn_end, on_turn_end);
    uv_timer_init(&daemon->loop, &daemon->tick);
    uv_timer_init(&daemon->loop, &daemon->drain);
    uv_timer_init(&daemon->loop, &daemon->settle);
    uv_timer_init(&daemon->loop, &daemon->again);
    daemon->ledger_news.data = daemon->tick.data = daemon->drain.data = daemon->settle.data = daemon;
    daemon->again.data = daemon;
    daemon->terminate.data = daemon->interrupt.data = daemon->reload.data = daemon;
    return true;
}

enum daemon_exit daemon_ledger_exit(enum err_code code)
{
    switch (code) {
    case ERR_NONE: return DAEMON_STOPPED;
    case ERR_UNAVAILABLE: return DAEMON_LEDGER_AWAY;
    case ERR_DENIED: return DAEMON_DENIED;
    case ERR_INVALID:
    case ERR_CORRUPT:
    case ERR_IO:
    case ERR_NOT_FOUND:
    case ERR_STALE:
    case ERR_CONFLICT:
    case ERR_LIMIT: return DAEMON_LEDGER;
    case ERR_INTERNAL: break;
    }
    return DAEMON_FAILED;
}

static void fail(struct daemon *daemon, enum daemon_exit code, const struct err *err)
{
    daemon->exit_code = code;
    if (code != DAEMON_LEDGER_BUSY)
        fprintf(stderr, "onced: %s\n", err->text);
    close_all(daemon);
}

static void on_clients_left(void *user)
{
    struct daemon *daemon = user;
    if (!daemon->stopping)
        begin_stop(daemon);
}

static enum err_code open_to_local_clients(struct daemon *daemon, struct err *err)
{
    const struct daemon_options *options = daemon->options;
    const struct local_clients_options local = {
        .loop = &daemon->loop,
        .door = daemon->mcp,
        .ledger_path = pg_url_is(ledger_where(daemon)) ? NULL : ledger_where(daemon),
        .in = options->mcp ? options->mcp_in : -1,
        .out = options->mcp ? options->mcp_out : -1,
        .idle = options->mcp ? on_clients_left : NULL,
        .user = daemon,
    };
    return local_clients_open(&daemon->clients, &local, err);
}

static void open_doors(struct daemon *daemon)
{
    struct err err = {0};
    open_mcp_door(daemon);
    if (open_http(daemon, &err))
        fail(daemon, DAEMON_NO_ADDRESS, &err);
    else if (open_to_local_clients(daemon, &err))
        fail(daemon, DAEMON_FAILED, &err);
}

/* Clients shall not see half a list of tools; recovery and what is due goes on meanwhile. */
static void on_settle(uv_timer_t *timer)
{
    struct daemon *daemon = timer->data;
    bool late = (int64_t)uv_now(&daemon->loop) >= daemon->settle_until_ms;
    if (!late && !mcp_hub_settled(daemon->hub))
        return;
    if (!mcp_hub_settled(daemon->hub))
        log_message(LOG_WARN, "starting", "not every MCP server has told its tools in time: they come later");
    uv_timer_stop(timer);
    open_doors(daemon);
}

static void open_doors_when_settled(struct daemon *daemon)
{
    if (!daemon->config->has_mcp_servers) {
        open_doors(daemon);
        return;
    }
    daemon->settle_until_ms = (int64_t)uv_now(&daemon->loop) + daemon->config->mcp_start_timeout_ms_max;
    uv_timer_start(&daemon->settle, on_settle, SETTLE_STEP_MS, SETTLE_STEP_MS);
}

static enum err_code open_adapters(struct daemon *daemon, struct err *err)
{
    struct mcp_hub_options options = {
        .loop = &daemon->loop,
        .env = env_system(),
        .catalog_changed = daemon_catalog_changed,
        .user = daemon,
    };
    enum err_code code = http_adapter_new(&daemon->loop, &daemon->http, err);
    if (!code)
        code = mcp_hub_new(&options, &daemon->hub, err);
    if (!code)
        code = mail_adapter_new(&daemon->loop, &daemon->mail, err);
    if (!code)
        code = sql_adapter_new(&daemon->loop, &daemon->sql, err);
    if (!code)
        code = webhooks_new(&daemon->loop, &daemon->webhooks, err);
    if (code)
        return code;
    daemon->command = command_adapter_new(&daemon->loop);
    adapter_route_init(&daemon->route);
    daemon->route.kinds[PROVIDER_HTTP] = daemon->http;
    daemon->route.kinds[PROVIDER_MCP] = mcp_hub_adapter(daemon->hub);
    daemon->route.kinds[PROVIDER_COMMAND] = daemon->command;
    daemon->route.kinds[PROVIDER_MAIL] = daemon->mail;
    daemon->route.kinds[PROVIDER_SQL] = daemon->sql;
    return ERR_NONE;
}

static enum err_code start(struct daemon *daemon, struct registry *registry, struct err *err)
{
    enum err_code code = open_adapters(daemon, err);
    if (code)
        return code;
    struct engine_options options = {
        .env = ledger_env(daemon),
        .ledger = daemon->ledger,
        .adapter = &daemon->route.adapter,
        .webhooks = daemon->webhooks,
        .registry = registry,
        .in_flight_max = daemon->config->server.in_flight_max,
        .sole_owner = !pg_url_is(ledger_where(daemon)),
        .lease_ms = daemon->config->ledger.lease_ms,
        .look_ms = LOOK_MS,
    };
    daemon->engine = engine_new(&options);
    engine_on_schedule(daemon->engine, plan_tick, daemon);
    code = notify_new(&daemon->loop, daemon->engine, &daemon->notify, err);
    if (code)
        return code;
    notify_configure(daemon->notify, &daemon->config->notify.settings);
    mcp_hub_apply(daemon->hub, registry);
    engine_start(daemon->engine);
    plan_tick(daemon);
    open_doors_when_settled(daemon);
    return ERR_NONE;
}

static enum daemon_exit why_no_ledger(const struct daemon *daemon, const struct err *err)
{
    bool file = !pg_url_is(ledger_where(daemon));
    return daemon->options->mcp && file && err->code == ERR_UNAVAILABLE ? DAEMON_LEDGER_BUSY
                                                                        : daemon_ledger_exit(err->code);
}

/* With the ledger, or not at all; a database that is away may be waited for. */
static void try_start(struct daemon *daemon);

static void on_again(uv_timer_t *timer)
{
    try_start(timer->data);
}

static void try_start(struct daemon *daemon)
{
    struct err err = {0};
    if (open_ledger(daemon, &err)) {
        uv_update_time(&daemon->loop);
        if (err.code == ERR_UNAVAILABLE && (int64_t)uv_now(&daemon->loop) < daemon->ledger_until_ms) {
            log_message(LOG_WARN, "starting", "waiting for the ledger: %s", err.text);
            uv_timer_start(&daemon->again, on_again, LEDGER_STEP_MS, 0);
            return;
        }
        fail(daemon, why_no_ledger(daemon, &err), &err);
    } else if (start(daemon, daemon->first, &err)) {
        fail(daemon, DAEMON_FAILED, &err);
    }
    registry_unref(daemon->first);
    daemon->first = NULL;
}

/* libpq's own words could repeat a password. */
static bool ledger_option_is_good(const struct daemon *daemon)
{
    const char *url = daemon->options->ledger_override, *fault = NULL;
    struct arena arena;
    bool password;
    if (!url || !pg_url_is(url))
        return true;
    arena_init(&arena);
    pg_url_shown(url, &arena, &fault, &password);
    if (fault)
        fprintf(stderr, "onced: --ledger: the URL is not understood, expected postgresql://user@host:port/database\n");
    arena_release(&arena);
    return !fault;
}

int daemon_run(const struct daemon_options *options)
{
    struct daemon daemon = {.options = options};
    env_shared_init(&daemon.clock);
    if (!ledger_option_is_good(&daemon) || daemon_registry_load(&daemon, &daemon.first)) {
        daemon_registry_release(&daemon);
        return DAEMON_CONFIG;
    }
    log_set_level(daemon.config->server.log);
    if (!start_loop(&daemon)) {
        fprintf(stderr, "onced: the event loop can not be started: no memory or no file descriptors are left\n");
        registry_unref(daemon.first);
        daemon_registry_release(&daemon);
        return DAEMON_FAILED; /* the process ends: what the loop has is the system's to take back */
    }
    if (pg_url_is(ledger_where(&daemon)))
        daemon.ledger_until_ms = (int64_t)uv_now(&daemon.loop) + options->ledger_wait_ms;
    try_start(&daemon);
    uv_run(&daemon.loop, UV_RUN_DEFAULT);
    registry_unref(daemon.first);
    ledger_close(daemon.ledger);
    engine_free(daemon.engine);
    uv_loop_close(&daemon.loop);
    daemon_registry_release(&daemon);
    return daemon.exit_code;
}
