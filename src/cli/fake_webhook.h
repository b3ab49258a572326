/* Webhooks of the fault-injecting provider: what it tells of each object that it created, to one endpoint, signed as
 * Stripe, GitHub or Standard Webhooks do. Set by POST /_fake/webhooks (docs/fake-provider.md).
 *
 *     commit ─► event ─► its time ─► POST ─┬─ 2xx: the next copy, then the event that waited for this one
 *                                          └─ else: again after retry_ms, at most `tries` times
 *
 * They are sent from the server's loop through libcurl's multi interface, which is asked every few milliseconds while
 * something is on the wire. */
#ifndef CLI_FAKE_WEBHOOK_H
#define CLI_FAKE_WEBHOOK_H

#include "base/err.h"
#include "base/json.h"
#include "cli/fake_store.h"

#include <curl/curl.h>

#define FAKE_URL_MAX    512
#define FAKE_SECRET_MAX 256
#define FAKE_EVENTS_MAX 10000 /* kept; beyond it nothing is told of new objects */
#define FAKE_COPIES_MAX 100

struct fake;
struct fake_request;
struct fake_event;

enum fake_scheme { SCHEME_STRIPE, SCHEME_GITHUB, SCHEME_STANDARD_WEBHOOKS };

/* When an event is sent first. */
enum fake_when {
    WHEN_AFTER_COMMIT,  /* at once; the answer does not wait */
    WHEN_BEFORE_ANSWER, /* at once; the answer goes out when the endpoint has answered, or could not be reached */
    WHEN_LATE,          /* delay_ms later */
    WHEN_NEVER
};

struct fake_webhooks {
    /* settings; no URL: nothing is told */
    char url[FAKE_URL_MAX], secret[FAKE_SECRET_MAX];
    enum fake_scheme scheme;
    enum fake_when when;
    int64_t delay_ms; /* late */
    int64_t copies;   /* of each event, the first included … */
    int64_t every_ms; /* … so long one after the other */
    bool reversed;    /* the older of an object's two events only once the newer one was taken */
    int64_t retry_ms;
    int64_t tries; /* of each copy */
    /* life */
    CURLM *multi; /* made when first needed */
    size_t on_wire;
    struct fake_event *oldest, *newest;
    size_t event_count;
    uint64_t made; /* events so far, also forgotten ones: their ids */
};

void fake_webhooks_init(struct fake_webhooks *webhooks);
/* Forgets all events; settings as after init. */
void fake_webhooks_reset(struct fake *fake);
void fake_webhooks_release(struct fake *fake);

/* Applies the members of an object. All or nothing; ERR_INVALID names the member. */
enum err_code fake_webhooks_apply(struct fake_webhooks *webhooks, const struct json *object, struct err *err);
/* Settings without the secret, events with what became of them. */
void fake_webhooks_write(struct json_out *out, const struct fake_webhooks *webhooks);

/* The request created the object. */
void fake_webhooks_created(struct fake_request *request, const struct fake_object *object);
/* Whether the request's answer waits for an event (before_answer). */
bool fake_webhooks_hold(const struct fake_request *request);
/* The request no longer waits. */
void fake_webhooks_forget(const struct fake_request *request);

/* What is to be sent or has come. */
void fake_webhooks_run(struct fake *fake);
/* Longest time until fake_webhooks_run is wanted again. */
int fake_webhooks_wait(const struct fake *fake, int wait_ms);

#endif
