#include "ledger/ledger.h"

#include <assert.h>

static const char *const role_names[] = {"agent", "approver", "operator", "admin"};

const char *role_name(enum role role)
{
    return (size_t)role < sizeof role_names / sizeof *role_names ? role_names[role] : "?";
}

bool role_from_name(struct str text, enum role *out)
{
    for (size_t i = 0; i < sizeof role_names / sizeof *role_names; i++) {
        if (str_is(text, role_names[i])) {
            *out = (enum role)i;
            return true;
        }
    }
    return false;
}

void ledger_submit(struct ledger *ledger, struct ledger_request *request)
{
    assert(request->arena);
    request->next = NULL;
    request->code = ERR_NONE;
    err_clear(&request->err);
    ledger->ops->submit(ledger, request);
}

void ledger_on_news(struct ledger *ledger, ledger_news_fn *news, void *user)
{
    ledger->news = news;
    ledger->news_user = user;
    if (news && ledger->ops->listen)
        ledger->ops->listen(ledger);
}

int ledger_turn(struct ledger *ledger)
{
    return ledger->ops->turn ? ledger->ops->turn(ledger) : -1;
}

void ledger_poll(struct ledger *ledger)
{
    ledger->ops->poll(ledger);
}

void ledger_wait(struct ledger *ledger, int timeout_ms)
{
    if (ledger->ops->wait)
        ledger->ops->wait(ledger, timeout_ms);
}

void ledger_close(struct ledger *ledger)
{
    if (ledger)
        ledger->ops->close(ledger);
}

static void call_done(struct ledger_request *request)
{
    *(bool *)request->user = true;
}

/* done and user of the request are ours for the time of the call. */
enum err_code ledger_call(struct ledger *ledger, struct ledger_request *request)
{
    bool finished = false;
    void (*done)(struct ledger_request *) = request->done;
    void *user = request->user;
    request->done = call_done;
    request->user = &finished;
    ledger_submit(ledger, request);
    while (!finished) {
        ledger_wait(ledger, 1000);
        ledger_poll(ledger);
    }
    request->done = done;
    request->user = user;
    return request->code;
}
