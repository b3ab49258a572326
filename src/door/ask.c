#include "door/ask.h"

struct ask {
    struct ledger_request request;
    struct exchange *exchange;
    ask_done *done;
};

static void answered(struct ledger_request *request)
{
    struct ask *ask = request->user;
    exchange_hold(ask->exchange, -1);
    ask->done(ask->exchange, request);
}

struct ledger_request *ask_new(struct exchange *exchange, enum ledger_command command)
{
    struct ask *ask = arena_zero(&exchange->arena, sizeof *ask);
    ask->exchange = exchange;
    ask->request.command = command;
    ask->request.arena = &exchange->arena;
    ask->request.done = answered;
    ask->request.user = ask;
    return &ask->request;
}

void ask(struct exchange *exchange, struct ledger_request *request, ask_done *done)
{
    struct ask *box = request->user;
    box->done = done;
    exchange_hold(exchange, 1);
    ledger_submit(engine_ledger(exchange->engine), request);
}
