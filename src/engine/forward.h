/* Forwarding of inbound events to the application (design 11.1): after an event is durable, its body goes on to the
 * endpoint that its source names, with the same webhook-id on every try. Inside of engine only.
 *
 *     recorded ─► due ─► the try is written down (with the time of the next) ─► POST ─┬─ 2xx: delivered, never again
 *                  ▲                                                                  ├─ else: due again, later
 *                  └── a person asks (engine_forward_due) ◄── undelivered ◄───────────┴─ no time left
 *
 * What happens to the process between two of these steps costs a repetition at most; the endpoint tells it by the id.
 * Nothing is promised about the order of events. */
#ifndef ENGINE_FORWARD_H
#define ENGINE_FORWARD_H

#include "engine/engine.h"

struct forwarder;

struct forwarder *forwarder_new(struct engine *engine);
/* No post may be on the wire any more. */
void forwarder_free(struct forwarder *forwarder);

/* There may be something to send from that time on. */
void forwarder_plan(struct forwarder *forwarder, int64_t at_ms);
void forwarder_tick(struct forwarder *forwarder, int64_t now_ms);
int64_t forwarder_next_ms(const struct forwarder *forwarder); /* 0 = nothing planned */
/* Tries under way, for the graceful stop. */
size_t forwarder_busy(const struct forwarder *forwarder);

#endif
