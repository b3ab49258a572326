/* Questions of routes to the ledger: one command after the other, within an exchange. */
#ifndef DOOR_ASK_H
#define DOOR_ASK_H

#include "door/exchange.h"

typedef void ask_done(struct exchange *exchange, struct ledger_request *request);

/* A request in the exchange's arena, all zero. */
struct ledger_request *ask_new(struct exchange *exchange, enum ledger_command command);
/* Submits it; done is called once, at once or later. The exchange's arena is not to be used until then. */
void ask(struct exchange *exchange, struct ledger_request *request, ask_done *done);

#endif
