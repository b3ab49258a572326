#include "relay/gateway.h"

#include "base/header.h"
#include "base/mem.h"

#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CONNECT_TIMEOUT_MS 5000L

/* One exchange; the handle and its connection are used again. */
struct exchange {
    CURL *easy;
    void *row;
    bool busy, look, replayed, over;
    size_t address;
    struct buf url, body, answer;
    struct curl_slist *headers; /* its own when the row names a tenant, else NULL */
    char operation[RELAY_OPERATION_BYTES];
    int64_t retry_after_ms;
    char error[CURL_ERROR_SIZE];
};

struct relay_gateway {
    const struct relay_settings *settings;
    CURLM *multi;
    struct exchange *exchanges;
    unsigned count, in_flight, looks;
    size_t current;
    struct curl_slist *headers;
};

/* ---- life ---- */

static void add_header(struct curl_slist **list, const char *name, const char *value)
{
    struct buf line;
    if (!value)
        return;
    buf_init(&line, 0);
    buf_printf(&line, "%s: %s", name, value);
    struct curl_slist *longer = curl_slist_append(*list, line.p);
    *list = longer ? longer : *list;
    buf_release(&line);
}

static struct curl_slist *make_headers(const struct relay_settings *settings, const char *tenant)
{
    struct curl_slist *list = NULL;
    struct buf bearer;
    buf_init(&bearer, 0);
    buf_printf(&bearer, "Bearer %s", settings->token ? settings->token : "");
    add_header(&list, "Content-Type", "application/json");
    add_header(&list, "Accept", "application/json, application/problem+json");
    add_header(&list, "Authorization", settings->token ? bearer.p : NULL);
    add_header(&list, "Onced-Tenant", tenant);
    add_header(&list, "Onced-Principal", settings->principal);
    add_header(&list, "Expect", ""); /* no 100-continue round */
    buf_release(&bearer);
    return list;
}

enum err_code relay_gateway_new(const struct relay_settings *settings, struct relay_gateway **out, struct err *err)
{
    struct relay_gateway *gateway = mem_zero(sizeof *gateway);
    gateway->settings = settings;
    gateway->multi = curl_multi_init();
    gateway->headers = make_headers(settings, settings->tenant);
    gateway->count = settings->in_flight > RELAY_LOOKS_MAX ? settings->in_flight : RELAY_LOOKS_MAX;
    gateway->exchanges = mem_zero(gateway->count * sizeof *gateway->exchanges);
    bool fine = gateway->multi != NULL;
    for (unsigned i = 0; i < gateway->count; i++) {
        struct exchange *exchange = &gateway->exchanges[i];
        buf_init(&exchange->url, 0);
        buf_init(&exchange->body, 0);
        buf_init(&exchange->answer, RELAY_ANSWER_BYTES_MAX);
        exchange->easy = curl_easy_init();
        fine = fine && exchange->easy;
    }
    if (!fine) {
        relay_gateway_free(gateway);
        return err_set(err, ERR_INTERNAL, "libcurl cannot be started");
    }
    curl_multi_setopt(gateway->multi, CURLMOPT_MAXCONNECTS, (long)gateway->count);
    *out = gateway;
    return ERR_NONE;
}

void relay_gateway_free(struct relay_gateway *gateway)
{
    if (!gateway)
        return;
    for (unsigned i = 0; i < gateway->count; i++) {
        struct exchange *exchange = &gateway->exchanges[i];
        if (exchange->busy)
            curl_multi_remove_handle(gateway->multi, exchange->easy);
        curl_easy_cleanup(exchange->easy);
        curl_slist_free_all(exchange->headers);
        buf_release(&exchange->url);
        buf_release(&exchange->body);
        buf_release(&exchange->answer);
    }
    curl_multi_cleanup(gateway->multi);
    curl_slist_free_all(gateway->headers);
    free(gateway->exchanges);
    free(gateway);
}

/* ---- sending ---- */

static size_t take_body(char *p, size_t size, size_t n, void *user)
{
    struct exchange *exchange = user;
    if (!exchange->over)
        buf_add(&exchange->answer, p, size * n);
    exchange->over |= exchange->answer.over; /* the rest is read and forgotten: the connection stays of use */
    return size * n;
}

static size_t take_header(char *p, size_t size, size_t n, void *user)
{
    struct exchange *exchange = user;
    struct str line = {p, size * n};
    struct str value = header_value(line, "Onced-Operation-Id");
    if (value.p && value.n < sizeof exchange->operation) {
        memcpy(exchange->operation, value.p, value.n);
        exchange->operation[value.n] = '\0';
    }
    value = header_value(line, "Idempotency-Replayed");
    if (value.p)
        exchange->replayed = str_is(value, "true");
    value = header_value(line, "Retry-After");
    if (value.p && value.n < 8)
        exchange->retry_after_ms = 1000 * (int64_t)strtol(value.p, NULL, 10);
    return size * n;
}

static struct exchange *free_exchange(struct relay_gateway *gateway)
{
    for (unsigned i = 0; i < gateway->count; i++)
        if (!gateway->exchanges[i].busy)
            return &gateway->exchanges[i];
    return NULL;
}

static void exchange_set(const struct relay_gateway *gateway, struct exchange *exchange, int64_t timeout_ms)
{
    CURL *easy = exchange->easy;
    curl_easy_reset(easy);
    curl_easy_setopt(easy, CURLOPT_URL, exchange->url.p);
    curl_easy_setopt(easy, CURLOPT_PRIVATE, exchange);
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, exchange->headers ? exchange->headers : gateway->headers);
    curl_easy_setopt(easy, CURLOPT_USERAGENT, "onced-relay/" ONCED_VERSION);
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(easy, CURLOPT_PROXY, ""); /* a proxy of the environment would see the token */
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, CONNECT_TIMEOUT_MS);
    curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, (long)timeout_ms);
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, exchange->error);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, take_body);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, exchange);
    curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, take_header);
    curl_easy_setopt(easy, CURLOPT_HEADERDATA, exchange);
    if (gateway->settings->ca)
        curl_easy_setopt(easy, CURLOPT_CAINFO, gateway->settings->ca);
    if (!exchange->look) {
        curl_easy_setopt(easy, CURLOPT_POST, 1L);
        curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)exchange->body.n);
        curl_easy_setopt(easy, CURLOPT_POSTFIELDS, exchange->body.p ? exchange->body.p : "");
    }
}

void relay_gateway_send(struct relay_gateway *gateway, const struct relay_request *request)
{
    struct exchange *exchange = free_exchange(gateway); /* there is one: has_room */
    exchange->row = request->row;
    exchange->look = request->operation != NULL;
    exchange->replayed = exchange->over = false;
    exchange->address = gateway->current;
    exchange->operation[0] = exchange->error[0] = '\0';
    exchange->retry_after_ms = 0;
    buf_release(&exchange->answer); /* few are large: none keeps what one of them needed */
    buf_init(&exchange->answer, exchange->look ? RELAY_LOOK_BYTES_MAX : RELAY_ANSWER_BYTES_MAX);
    buf_reset(&exchange->body);
    buf_add_str(&exchange->body, request->body);
    buf_reset(&exchange->url);
    buf_printf(&exchange->url, "%s/v1/%s%s", gateway->settings->gateways[gateway->current],
               exchange->look ? "operations/" : "calls", exchange->look ? request->operation : "");
    curl_slist_free_all(exchange->headers);
    exchange->headers = request->tenant ? make_headers(gateway->settings, request->tenant) : NULL;
    exchange_set(gateway, exchange, request->timeout_ms);
    exchange->busy = true;
    gateway->in_flight++;
    gateway->looks += exchange->look;
    curl_multi_add_handle(gateway->multi, exchange->easy);
}

unsigned relay_gateway_in_flight(const struct relay_gateway *gateway)
{
    return gateway->in_flight;
}

bool relay_gateway_has_room(const struct relay_gateway *gateway, bool look)
{
    return gateway->in_flight < gateway->count &&
           (look ? gateway->looks < RELAY_LOOKS_MAX : gateway->in_flight < gateway->settings->in_flight);
}

/* ---- what comes of it ---- */

static void transfer_failed(const struct relay_gateway *gateway, struct exchange *exchange, CURLcode result,
                            struct relay_done *out)
{
    curl_off_t before_transfer_us = 0;
    curl_easy_getinfo(exchange->easy, CURLINFO_PRETRANSFER_TIME_T, &before_transfer_us);
    out->sent = before_transfer_us != 0;
    out->verdict = (struct relay_verdict){.outcome = RELAY_LATER, .suspect = true};
    snprintf(out->verdict.problem, sizeof out->verdict.problem, "%s: %s",
             gateway->settings->gateways[exchange->address],
             exchange->error[0] ? exchange->error : curl_easy_strerror(result));
}

static void exchange_end(struct relay_gateway *gateway, struct exchange *exchange, CURLcode result,
                         struct relay_done *out)
{
    *out = (struct relay_done){
        .row = exchange->row, .replayed = exchange->replayed, .sent = true, .address = exchange->address};
    if (result != CURLE_OK) {
        transfer_failed(gateway, exchange, result, out);
    } else {
        struct relay_answer answer = {.operation = exchange->operation[0] ? str_of(exchange->operation) : STR_NONE,
                                      .retry_after_ms = exchange->retry_after_ms,
                                      .body = buf_str(&exchange->answer),
                                      .over = exchange->over};
        curl_easy_getinfo(exchange->easy, CURLINFO_RESPONSE_CODE, &answer.status);
        relay_judge(&answer, &out->verdict);
    }
    curl_multi_remove_handle(gateway->multi, exchange->easy);
    exchange->busy = false;
    gateway->in_flight--;
    gateway->looks -= exchange->look;
}

static bool take_ended(struct relay_gateway *gateway, struct relay_done *out)
{
    int left;
    for (CURLMsg *message; (message = curl_multi_info_read(gateway->multi, &left));) {
        struct exchange *exchange = NULL;
        if (message->msg != CURLMSG_DONE)
            continue;
        CURLcode result = message->data.result; /* message is gone with the handle */
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&exchange);
        exchange_end(gateway, exchange, result, out);
        return true;
    }
    return false;
}

bool relay_gateway_next(struct relay_gateway *gateway, int wait_ms, struct relay_done *out)
{
    int running;
    if (take_ended(gateway, out))
        return true;
    if (gateway->in_flight == 0)
        return false;
    curl_multi_perform(gateway->multi, &running);
    if (take_ended(gateway, out))
        return true;
    curl_multi_poll(gateway->multi, NULL, 0, wait_ms, NULL);
    curl_multi_perform(gateway->multi, &running);
    return take_ended(gateway, out);
}

/* ---- addresses ---- */

void relay_gateway_turn(struct relay_gateway *gateway, size_t failed)
{
    if (gateway->current == failed)
        gateway->current = (failed + 1) % gateway->settings->gateway_count;
}

const char *relay_gateway_address(const struct relay_gateway *gateway)
{
    return gateway->settings->gateways[gateway->current];
}
