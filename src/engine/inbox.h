/* The engine's inbox: what providers tell of their own accord (design 11.1). Inside of engine only.
 *
 *     engine_inbound ─► ledger: recorded ─► reply (2xx)
 *                          └─► operations named ─► look ─┬─ a flight has it: at its next pause (inbox_takes)
 *                                                        └─ at rest: step(INBOUND) ─► commit: row and event in one
 *
 * What was recorded and not applied (a crash; an operation that does not know its external id yet; another gateway's
 * attempt under way) is found again: at the start, before anything is sent; when an operation learns its external id;
 * and by a sweep from time to time. */
#ifndef ENGINE_INBOX_H
#define ENGINE_INBOX_H

#include "engine/engine.h"

struct flight;
struct inbox;

struct inbox *inbox_new(struct engine *engine);
void inbox_free(struct inbox *inbox);

/* Looks through what waits; done is called when everything that could be applied at once is on its way. */
void inbox_start(struct inbox *inbox, void (*done)(struct engine *engine));
void inbox_reloaded(struct inbox *inbox); /* the registry may have other sources now */
void inbox_tick(struct inbox *inbox, int64_t now_ms);
int64_t inbox_next_ms(const struct inbox *inbox); /* 0 = nothing planned */

/* The flight pauses: nothing is on the wire and no commit is open. True: an event about it is waiting, and the inbox
 * has the flight until that is applied or found to be nothing (then flight_go_on). */
bool inbox_takes(struct flight *flight);
/* The operation's external id was committed. */
void inbox_named(struct flight *flight);
void inbox_flight_gone(struct inbox *inbox, const char *operation);

#endif
