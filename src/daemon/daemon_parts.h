/* What the files of the daemon share. Not for others.
 *
 *   daemon.c          loop, start, stop          daemon_registry.c   the registry in force: reload, lists of MCP
 * servers */
#ifndef DAEMON_DAEMON_PARTS_H
#define DAEMON_DAEMON_PARTS_H

#include "adapter/mcp.h"
#include "adapter/route.h"
#include "daemon/config.h"
#include "daemon/daemon.h"
#include "daemon/local_clients.h"
#include "door/http.h"
#include "door/mcp.h"
#include "engine/engine.h"
#include "ledger/ledger.h"

#include <uv.h>

struct daemon {
    const struct daemon_options *options;
    struct config *config; /* of the start: what a reload cannot change */
    uv_loop_t loop;
    uv_async_t ledger_news;
    uv_prepare_t turn_end; /* of the loop: requests to the ledger are collected by turns */
    uv_idle_t awake;       /* active: another turn comes at once */
    uv_timer_t put_off;    /* the turn after that, if none comes before */
    uv_timer_t tick, drain, settle, again;
    uv_signal_t terminate, interrupt, reload;
    struct ledger *ledger;
    struct env_shared clock; /* with a ledger that several gateways share: its clock */
    struct adapter *http, *command, *mail, *sql;
    struct mcp_hub *hub;
    struct adapter_route route; /* to all of them */
    struct webhooks *webhooks;  /* for what the engine forwards */
    struct engine *engine;
    struct notify *notify;
    struct mcp_door *mcp;
    struct http_door *door;
    struct local_clients clients;
    int64_t settle_until_ms; /* of the loop's clock: the doors open then at the latest */
    struct registry *first;  /* a reference, until the start has succeeded or failed */
    int64_t ledger_until_ms; /* of the loop's clock: the ledger is waited for until then */
    enum daemon_exit exit_code;
    bool stopping, closing;
    bool told; /* by a signal to stop */
    /* the registry file as it was read last: lists of MCP servers are merged into this text, not into what somebody is
     * editing */
    struct buf text;
    struct config *current; /* what the MCP door's settings borrow from */
    char *report;           /* the last one that was printed */
    /* what MCP servers listed last (tool_lists.h) */
    struct arena lists_arena, paths;
    const struct json *lists; /* NULL = nothing yet */
    const char *lists_path;
};

/* Reads the registry file. On failure the reasons were printed. The caller owns *registry. */
enum err_code daemon_registry_load(struct daemon *daemon, struct registry **registry);
/* SIGHUP: the file is read again, all or nothing. */
void daemon_registry_reload(struct daemon *daemon);
/* mcp_hub_options.catalog_changed */
void daemon_catalog_changed(void *user);
void daemon_registry_release(struct daemon *daemon);

#endif
