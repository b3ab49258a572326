/* /_fake: the truth about effects and requests, and what is to go wrong next. */
#include "base/env.h"
#include "cli/fake_server.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void write_totals(struct json_out *out, const struct fake *fake)
{
    const struct fake_totals *totals = &fake->store.totals;
    json_out_member_int(out, "requests", (int64_t)totals->requests);
    json_out_member_int(out, "writes", (int64_t)totals->writes);
    json_out_member_int(out, "lookups", (int64_t)totals->lookups);
    json_out_member_int(out, "effects", (int64_t)totals->effects);
    json_out_member_int(out, "duplicates_by_reference", (int64_t)totals->double_by_reference);
    json_out_member_int(out, "duplicates_by_key", (int64_t)totals->double_by_key);
    json_out_member_int(out, "replays", (int64_t)totals->replays);
    json_out_member_int(out, "in_use", (int64_t)totals->in_use);
    json_out_member_int(out, "mismatches", (int64_t)totals->mismatches);
}

static void count_open(const struct fake *fake, int64_t *held, int64_t *late)
{
    *held = *late = 0;
    for (const struct fake_request *request = fake->newest; request; request = request->older) {
        *held += request->suspended;
        *late += request->commit_timer.place != 0;
    }
}

static void write_stats(struct json_out *out, struct fake *fake)
{
    int64_t held, late;
    count_open(fake, &held, &late);
    json_out_object(out);
    write_totals(out, fake);
    json_out_member_int(out, "connections", (int64_t)fake->connections);
    json_out_member_int(out, "held", held);
    json_out_member_int(out, "late_commits_to_come", late);
    json_out_member_int(out, "keys", (int64_t)fake->store.key_count);
    json_out_member_int(out, "keys_forgotten", (int64_t)fake->store.totals.keys_forgotten);
    json_out_member_int(out, "objects_forgotten", (int64_t)fake->store.totals.objects_forgotten);
    json_out_member_int(out, "script_left", (int64_t)fake_script_left(&fake->script));
    json_out_name(out, "faults");
    json_out_object(out);
    for (int i = 0; i < FAULT_COUNT; i++) {
        if (fake->fault_used[i])
            json_out_member_int(out, fake_fault_name((enum fake_fault)i), (int64_t)fake->fault_used[i]);
    }
    json_out_end_object(out);
    json_out_end_object(out);
}

static void write_counts(struct json_out *out, const struct fake_counts *counts, bool doubles_only)
{
    json_out_object(out);
    for (size_t i = 0; i < counts->cap; i++) {
        const struct fake_count *count = &counts->slots[i];
        if (count->hash && count->text && count->effects > (doubles_only ? 1U : 0U))
            json_out_member_int(out, count->text, count->effects);
    }
    json_out_end_object(out);
}

static void write_effects(struct json_out *out, struct fake_request *request)
{
    struct fake *fake = request->fake;
    struct fake_store *store = &fake->store;
    bool doubles_only = fake_request_query(request, "duplicates").p != NULL;
    json_out_object(out);
    json_out_member_int(out, "effects", (int64_t)store->totals.effects);
    json_out_member_int(out, "duplicates_by_reference", (int64_t)store->totals.double_by_reference);
    json_out_member_int(out, "duplicates_by_key", (int64_t)store->totals.double_by_key);
    json_out_name(out, "collections");
    json_out_object(out);
    for (unsigned i = 0; i < store->collection_count; i++)
        json_out_member_int(out, store->collections[i], (int64_t)store->collection_effects[i]);
    json_out_end_object(out);
    json_out_name(out, "by_reference");
    write_counts(out, &store->references, doubles_only);
    json_out_name(out, "by_key");
    write_counts(out, &store->business, doubles_only);
    json_out_end_object(out);
}

static uint64_t query_number(struct fake_request *request, const char *name, uint64_t fallback)
{
    struct str text = fake_request_query(request, name);
    return text.p ? strtoull(text.p, NULL, 10) : fallback;
}

static void write_requests(struct json_out *out, struct fake_request *request)
{
    struct fake_log *log = &request->fake->log;
    json_out_object(out);
    json_out_member_int(out, "seen", (int64_t)log->count);
    json_out_member_int(out, "kept", (int64_t)(log->count < log->max ? log->count : log->max));
    json_out_name(out, "requests");
    fake_log_write(out, log, query_number(request, "since", 1), query_number(request, "limit", SIZE_MAX),
                   fake_request_query(request, "reference"));
    json_out_end_object(out);
}

static void write_index(struct json_out *out, struct fake_request *request)
{
    static const char *const paths[] = {"/_fake/effects", "/_fake/requests", "/_fake/stats",   "/_fake/config",
                                        "/_fake/script",  "/_fake/webhooks", "/_fake/release", "/_fake/reset"};
    json_out_object(out);
    json_out_member_int(out, "pid", getpid());
    json_out_name(out, "paths");
    json_out_array(out);
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        json_out_text(out, paths[i]);
    json_out_end_array(out);
    json_out_name(out, "faults");
    json_out_array(out);
    for (int i = 0; i < FAULT_COUNT; i++)
        json_out_text(out, fake_fault_name((enum fake_fault)i));
    json_out_end_array(out);
    json_out_end_object(out);
    (void)request;
}

static void get(struct fake_request *request)
{
    struct json_out out;
    json_out_init(&out, &request->answer);
    request->status = 200;
    if (str_is(request->path, "/_fake"))
        write_index(&out, request);
    else if (str_is(request->path, "/_fake/effects"))
        write_effects(&out, request);
    else if (str_is(request->path, "/_fake/requests"))
        write_requests(&out, request);
    else if (str_is(request->path, "/_fake/stats"))
        write_stats(&out, request->fake);
    else if (str_is(request->path, "/_fake/config"))
        fake_config_write(&out, &request->fake->config);
    else if (str_is(request->path, "/_fake/webhooks"))
        fake_webhooks_write(&out, &request->fake->webhooks);
    else
        fake_answer_error(request, 404, "not_found", "no such path; GET /_fake lists them");
}

static void post(struct fake_request *request)
{
    struct fake *fake = request->fake;
    struct err err = {0};
    struct json *body = NULL;
    bool reset = str_is(request->path, "/_fake/reset"), release = str_is(request->path, "/_fake/release");
    if (!reset && !release && json_parse(&request->arena, buf_str(&request->body), &json_limits_default, &body, &err)) {
        fake_answer_error(request, 400, "invalid_request", "%s", err.text);
        return;
    }
    request->status = 200;
    if (reset) {
        fake_server_reset(fake);
    } else if (release) {
        fake_server_release(fake);
    } else if (str_is(request->path, "/_fake/config")) {
        fake_config_apply(&fake->config, body, &err);
    } else if (str_is(request->path, "/_fake/script")) {
        fake_script_add(&fake->script, body, &err);
    } else if (str_is(request->path, "/_fake/webhooks")) {
        fake_webhooks_apply(&fake->webhooks, body, &err);
    } else {
        fake_answer_error(request, 404, "not_found", "no such path; GET /_fake lists them");
        return;
    }
    if (err.code)
        fake_answer_error(request, 400, "invalid_request", "%s", err.text);
    else
        buf_add_text(&request->answer, "{\"ok\":true}");
}

void fake_control_start(struct fake_request *request)
{
    if (request->method == METHOD_GET)
        get(request);
    else if (request->method == METHOD_POST)
        post(request);
    else if (request->method == METHOD_DELETE && str_is(request->path, "/_fake/script")) {
        fake_script_release(&request->fake->script);
        request->status = 200;
        buf_add_text(&request->answer, "{\"ok\":true}");
    } else
        fake_answer_error(request, 405, "method_not_allowed", "GET or POST");
}
