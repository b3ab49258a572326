/* Calls to gateways over HTTP (docs/http-api.md), many in flight at once. Repeating one is always safe: a POST carries
 * the row's key, a look changes nothing. */
#ifndef RELAY_GATEWAY_H
#define RELAY_GATEWAY_H

#include "relay/answer.h"
#include "relay/relay.h"

#define RELAY_ANSWER_BYTES_MAX (1024 * 1024)      /* of a call; a longer one is judged by its head */
#define RELAY_LOOK_BYTES_MAX   (20 * 1024 * 1024) /* of a look */
#define RELAY_LOOKS_MAX        4                  /* at once: they may be that large */

struct relay_gateway;

/* Borrows settings. ERR_INTERNAL: libcurl cannot be started. */
enum err_code relay_gateway_new(const struct relay_settings *settings, struct relay_gateway **out, struct err *err);
void relay_gateway_free(struct relay_gateway *gateway); /* NULL is fine; what is in flight is given up */

/* What is asked. row: whatever comes back with the answer. */
struct relay_request {
    void *row;
    const char *operation; /* a look at this operation, or NULL: a call, with body */
    struct str body;       /* copied */
    const char *tenant;    /* NULL: the settings' */
    int64_t timeout_ms;    /* of all of it */
};

struct relay_done {
    void *row;
    struct relay_verdict verdict;
    bool replayed;  /* the operation was there before */
    bool sent;      /* false: it did not leave */
    size_t address; /* of settings->gateways, that was asked */
};

unsigned relay_gateway_in_flight(const struct relay_gateway *gateway);
/* Whether another one may be sent: settings->in_flight of calls, RELAY_LOOKS_MAX of looks. */
bool relay_gateway_has_room(const struct relay_gateway *gateway, bool look);
/* To the present address. */
void relay_gateway_send(struct relay_gateway *gateway, const struct relay_request *request);
/* The next one that has ended; waits at most wait_ms. False: none has. Nothing is lost by asking again. */
bool relay_gateway_next(struct relay_gateway *gateway, int wait_ms, struct relay_done *out);

/* The address failed: the next one, unless that was done already. */
void relay_gateway_turn(struct relay_gateway *gateway, size_t failed);
const char *relay_gateway_address(const struct relay_gateway *gateway); /* present, for people */

#endif
