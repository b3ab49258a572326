/* GET /metrics: figures in the text format of Prometheus (design 17). Of all tenants together, so for operators; no
 * label holds anything that callers wrote. Counters begin at 0 with each start. */
#include "door/ask.h"
#include "door/notify.h"
#include "door/rest.h"

/* ---- the format ---- */

static void family(struct buf *out, const char *name, const char *type, const char *help)
{
    buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void sample(struct buf *out, const char *name, const char *label, const char *value, int64_t number)
{
    if (label)
        buf_printf(out, "%s{%s=\"%s\"} %lld\n", name, label, value, (long long)number);
    else
        buf_printf(out, "%s %lld\n", name, (long long)number);
}

static void counter(struct buf *out, const char *name, const char *help, int64_t number)
{
    family(out, name, "counter", help);
    sample(out, name, NULL, NULL, number);
}

static void gauge(struct buf *out, const char *name, const char *help, int64_t number)
{
    family(out, name, "gauge", help);
    sample(out, name, NULL, NULL, number);
}

/* Seconds with milliseconds; 0 when there is no beginning, or it lies ahead of a clock that was set back. */
static void age(struct buf *out, const char *name, const char *help, int64_t since_ms, int64_t now_ms)
{
    int64_t ms = since_ms > 0 && now_ms > since_ms ? now_ms - since_ms : 0;
    family(out, name, "gauge", help);
    buf_printf(out, "%s %lld.%03lld\n", name, (long long)(ms / 1000), (long long)(ms % 1000));
}

struct labelled {
    const char *label;
    int64_t number;
};

static void counters(struct buf *out, const char *name, const char *help, const char *label,
                     const struct labelled *items, size_t count)
{
    family(out, name, "counter", help);
    for (size_t i = 0; i < count; i++)
        sample(out, name, label, items[i].label, items[i].number);
}

/* Seconds; Prometheus counts what is at most as long as each bound. */
static void histogram(struct buf *out, const char *name, const char *help, const struct latency *latency)
{
    int64_t count = 0;
    family(out, name, "histogram", help);
    for (size_t i = 0; i < LATENCY_BOUNDS; i++) {
        count += latency->counts[i];
        buf_printf(out, "%s_bucket{le=\"%g\"} %lld\n", name, (double)latency_bounds_ms[i] / 1000, (long long)count);
    }
    count += latency->counts[LATENCY_BOUNDS];
    buf_printf(out, "%s_bucket{le=\"+Inf\"} %lld\n%s_sum %lld.%03lld\n%s_count %lld\n", name, (long long)count, name,
               (long long)(latency->sum_ms / 1000), (long long)(latency->sum_ms % 1000), name, (long long)count);
}

/* ---- what is told ---- */

static void write_ledger(struct buf *out, const struct ledger_stats *stats, int64_t now_ms)
{
    family(out, "onced_operations", "gauge", "Operations by state, dropped ones included.");
    for (unsigned i = 0; i < STATE_COUNT; i++)
        sample(out, "onced_operations", "state", state_name((enum state)i), stats->by_state[i]);
    age(out, "onced_oldest_unknown_seconds", "Age of the oldest unknown outcome; 0 when there is none.",
        stats->oldest_unknown_ms, now_ms);
    gauge(out, "onced_open_incidents", "Incidents that nobody has acknowledged.", stats->open_incidents);
    gauge(out, "onced_approvals_waiting", "Operations that wait for people.", stats->approvals_waiting);
    age(out, "onced_oldest_approval_seconds",
        "Age of the oldest operation that waits for people; 0 when there is none.", stats->oldest_approval_ms, now_ms);
    gauge(out, "onced_entities_held", "Entities that operations hold for themselves.", stats->entities_held);
    gauge(out, "onced_entity_queue", "Places in the queues of entities.", stats->entities_waiting);
    counter(out, "onced_ledger_commits_total", "Commits of the ledger.", stats->commits);
    counter(out, "onced_ledger_commands_total", "Commands that these commits made durable.", stats->commands);
    gauge(out, "onced_ledger_file_bytes", "Size of the ledger's file.", stats->file_bytes);
}

static void write_engine(struct buf *out, const struct engine_stats *stats)
{
    const struct labelled suppressed[] = {
        {"joined", stats->joined}, {"replayed", stats->replayed}, {"conflict", stats->conflicts},
        {"in_doubt", stats->held}, {"window", stats->windows},
    };
    const struct labelled refused[] = {
        {"entity", stats->entities_busy},
        {"guard", stats->guards},
        {"window", stats->windows},
        {"budget", stats->budgets},
    };
    const struct labelled decided[] = {
        {"granted", stats->approvals_granted},
        {"denied", stats->approvals_denied},
        {"expired", stats->approvals_expired},
    };
    counter(out, "onced_calls_total", "Calls of tools.", stats->calls);
    counter(out, "onced_admitted_total", "Operations that calls have opened.", stats->admitted);
    counters(out, "onced_suppressed_total", "Calls that ran nothing, by why.", "reason", suppressed,
             sizeof suppressed / sizeof *suppressed);
    counter(out, "onced_attempts_total", "Requests to providers that are effects.", stats->attempts);
    counter(out, "onced_lookups_total", "Requests to providers that find out what happened.", stats->lookups);
    counter(out, "onced_compensations_total", "Operations opened to undo another one.", stats->compensations);
    counters(out, "onced_policy_refusals_total", "Refusals by entities, guards, windows and budgets.", "policy",
             refused, sizeof refused / sizeof *refused);
    counter(out, "onced_entity_waits_total", "Operations that had to wait for their entities.", stats->entity_waits);
    counter(out, "onced_approvals_asked_total", "Operations for which people were asked.", stats->approvals_asked);
    counters(out, "onced_approvals_total", "How requests for approval ended.", "outcome", decided,
             sizeof decided / sizeof *decided);
    gauge(out, "onced_flights", "Operations in memory.", (int64_t)stats->flights);
    gauge(out, "onced_waiters", "Callers that wait.", (int64_t)stats->waiters);
    counter(out, "onced_unavailable_total", "Calls answered with \"not now\".", stats->unavailable);
    histogram(out, "onced_call_seconds", "From a call until its answer, what it waited for included.",
              &stats->call_took);
    histogram(out, "onced_provider_request_seconds", "Requests to providers that left, look-ups included.",
              &stats->request_took);
    histogram(out, "onced_commit_seconds", "Until a change of an operation was durable.", &stats->commit_took);
    counter(out, "onced_inbound_total", "Events that providers told, further deliveries not counted.", stats->inbound);
    counter(out, "onced_inbound_duplicates_total", "Further deliveries of them.", stats->inbound_duplicates);
    counter(out, "onced_forwarded_total", "Events that the application has taken.", stats->forwarded);
    counter(out, "onced_forward_failures_total", "Tries that it did not answer with 2xx.", stats->forward_failures);
    counter(out, "onced_forwards_given_up_total", "Events that did not reach it.", stats->forwards_given_up);
}

static void write_notify(struct buf *out, const struct notify_stats *stats)
{
    struct labelled told[NOTIFY_KIND_COUNT];
    for (unsigned i = 0; i < NOTIFY_KIND_COUNT; i++)
        told[i] = (struct labelled){notify_kind_name((enum notify_kind)i), stats->told[i]};
    counters(out, "onced_notifications_total", "Messages that the endpoint of `notify` has taken.", "kind", told,
             NOTIFY_KIND_COUNT);
    counter(out, "onced_notification_failures_total", "Requests that it did not answer with 2xx.", stats->failures);
    counter(out, "onced_notifications_given_up_total", "Messages that were given up.", stats->given_up);
    counter(out, "onced_notifications_moot_total", "Messages that nobody needed any more at their turn.", stats->moot);
    counter(out, "onced_notification_overflows_total", "Times that the queue was full.", stats->overflows);
    gauge(out, "onced_notifications_queued", "Messages that wait.", (int64_t)stats->queued);
}

static void show(struct exchange *exchange, struct ledger_request *request)
{
    const struct notify *notify = exchange_parts(exchange)->notify;
    struct buf *out = &exchange->answer;
    if (request->code) {
        rest_ledger_problem(exchange, request, "no figures");
        return;
    }
    const struct engine_stats engine = engine_stats(exchange->engine);
    family(out, "onced_info", "gauge", "The version that runs.");
    sample(out, "onced_info", "version", ONCED_VERSION, 1);
    write_ledger(out, &request->stats, exchange_now_ms(exchange));
    write_engine(out, &engine);
    if (notify) {
        const struct notify_stats told = notify_stats(notify);
        write_notify(out, &told);
    }
    exchange->content_type = "text/plain; version=0.0.4; charset=utf-8";
    exchange_send(exchange, 200);
}

void rest_metrics(struct exchange *exchange)
{
    ask(exchange, ask_new(exchange, LEDGER_STATS), show);
}
