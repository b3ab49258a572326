/* How an attempt reaches a provider. An adapter builds the request from the effective arguments, sends it exactly once
 * (design 5.2), and judges the answer by the provider's contract. It knows nothing of the ledger and decides nothing
 * about retries: one call in, one answer out. */
#ifndef ADAPTER_ADAPTER_H
#define ADAPTER_ADAPTER_H

#include "base/json.h"
#include "core/operation.h"
#include "core/tool.h"

struct adapter;

/* Who is behind a call, as numbers of the door that took it: what an MCP server asks or tells while it works goes
 * there. No part of any identity, never stored; both 0 = nobody (REST, recovery, retries after a restart). */
struct adapter_origin {
    uint64_t session, call;
};

/* One request for the wire. Borrowed for the duration of the call of send / check / describe only. */
struct adapter_call {
    const struct tool *tool;
    enum attempt_kind kind;
    const char *operation;            /* operation id */
    const char *attempt;              /* attempt id, NULL for check and describe */
    const char *provider_key;         /* as derived at admission */
    const char *external_id;          /* look-ups: provider's id when it is known already, else NULL */
    const char *tenant, *run, *trace; /* may be NULL */
    const struct json *arguments;     /* effective arguments */
    struct str progress;              /* look-ups: what the former page's answer gave, absent for the first page */
    struct adapter_origin origin;     /* of the caller that waits since admission */
};

/* What came of it. Everything is borrowed for the duration of the done callback. */
struct adapter_answer {
    enum outcome outcome;
    int http_status; /* 0 = no status line seen */
    const char *provider_request_id, *detail;
    struct str result; /* JSON text: mapped result of success, noop, accepted, found; absent = none */
    struct str error;  /* JSON text {"message", "code"?, "provider"?: provider's own error object}; absent = none */
    const char *external_id;
    int64_t retry_after_ms; /* not_processed, key_in_use: what the provider asked for; 0 = nothing */
    struct str progress;    /* OUTCOME_MORE: hand this to the next page's call */
    unsigned matches;       /* OUTCOME_SEVERAL: how many */
};

typedef void adapter_done(void *user, const struct adapter_answer *answer);

struct adapter_ops {
    /* Whether a request can be built from these arguments: ERR_INVALID names the argument. Nothing is sent. */
    enum err_code (*check)(struct adapter *adapter, const struct adapter_call *call, struct err *err);
    /* Writes the request as it would be sent, secrets masked ("***"), redact paths masked: {"method","url","headers",
     * "body"}; one JSON value. */
    enum err_code (*describe)(struct adapter *adapter, const struct adapter_call *call, struct json_out *out,
                              struct err *err);
    /* Sends. done is called exactly once, never from within send, also when the request cannot be built (not_sent). */
    void (*send)(struct adapter *adapter, const struct adapter_call *call, adapter_done *done, void *user);
};

struct adapter {
    const struct adapter_ops *ops;
};

#endif
