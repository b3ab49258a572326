#include "door/issuers.h"

#include "adapter/curl_loop.h"
#include "base/digest.h"
#include "base/log.h"
#include "base/mem.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#define SECOND_MS 1000

struct source {
    struct issuers *issuers;
    struct jwt_issuer issuer;
    struct jwt_keys *keys; /* NULL: none yet */
    struct digest digest;  /* of the text they were read from */
    int64_t read_ms;       /* loop time of the last success */
    int64_t asked_ms;      /* … of the last attempt; -1 = none yet */
    struct err failure;    /* of the last attempt; no code: it succeeded */
    uv_timer_t timer;
    /* an address */
    struct curl_transfer transfer;
    struct curl_slist *headers;
    struct buf body;
    bool in_flight;
    struct issuers_question *waiting, **waiting_end; /* for the end of the reading in flight */
};

struct issuers {
    uv_loop_t *loop;
    struct env *env;
    struct curl_loop curl;
    struct source *sources;
    size_t count, waiting;
    size_t handles_open;
    void (*closed)(void *user);
    void *closed_user;
};

static void judge(struct source *source, struct issuers_question *question, bool after_reading);

/* ---- keys that were read ---- */

static int64_t again_ms(const struct source *source)
{
    int64_t tenth_ms = source->issuer.refresh_ms / 10;
    return tenth_ms > ISSUERS_AGAIN_MS ? ISSUERS_AGAIN_MS : tenth_ms;
}

static void log_failure(const struct source *source)
{
    if (!log_begin(LOG_WARN, "issuer_keys"))
        return;
    log_text("issuer", source->issuer.name);
    log_text("jwks", source->issuer.jwks);
    log_text("detail", source->failure.text);
    log_int("keys", source->keys ? (int64_t)jwt_keys_count(source->keys) : 0); /* that stay in force */
    log_end();
}

static void log_change(const struct source *source)
{
    if (!log_begin(LOG_INFO, "issuer_keys"))
        return;
    log_text("issuer", source->issuer.name);
    log_text("jwks", source->issuer.jwks);
    log_int("keys", (int64_t)jwt_keys_count(source->keys));
    log_end();
}

/* text absent: err says why there is none. */
static void take_keys(struct source *source, struct str text, const struct err *err)
{
    struct jwt_keys *keys = NULL;
    struct digest digest = digest_sha256(text.p ? text : STR(""));
    err_clear(&source->failure);
    if (text.p && source->keys && digest_equal(&digest, &source->digest)) {
        source->read_ms = (int64_t)uv_now(source->issuers->loop);
        return;
    }
    if (!text.p)
        source->failure = *err;
    else if (jwt_keys_read(text, &keys, &source->failure) == ERR_NONE) {
        jwt_keys_free(source->keys);
        source->keys = keys;
        source->digest = digest;
        source->read_ms = (int64_t)uv_now(source->issuers->loop);
        log_change(source);
    }
    if (source->failure.code)
        log_failure(source);
}

static void timer_fired(uv_timer_t *timer);

static void plan_next(struct source *source)
{
    int64_t in_ms = source->failure.code ? again_ms(source) : source->issuer.refresh_ms;
    uv_timer_start(&source->timer, timer_fired, (uint64_t)in_ms, 0);
}

static void reading_ended(struct source *source)
{
    struct issuers_question *question = source->waiting;
    source->in_flight = false;
    source->waiting = NULL;
    source->waiting_end = &source->waiting;
    plan_next(source);
    while (question) { /* done may ask again: those wait in a new list, if at all */
        struct issuers_question *next = question->next;
        source->issuers->waiting--;
        question->at = NULL;
        if (next)
            next->at = &question; /* one that is withdrawn meanwhile is taken out of what is left here */
        struct issuers_question *now = question;
        question = next;
        judge(source, now, true);
    }
}

/* ---- a file ---- */

static enum err_code read_text(const char *path, struct buf *out, struct err *err)
{
    char piece[4096];
    size_t n;
    FILE *file = fopen(path, "rbe");
    if (!file)
        return err_set(err, ERR_IO, "%s cannot be read: %m", path);
    while (!out->over && (n = fread(piece, 1, sizeof piece, file)) > 0)
        buf_add(out, piece, n);
    if (ferror(file))
        err_set(err, ERR_IO, "%s cannot be read: %m", path);
    else if (out->over)
        err_set(err, ERR_LIMIT, "%s has more than %zu bytes", path, JWT_KEY_SET_MAX);
    fclose(file);
    return err->code;
}

static void read_file(struct source *source)
{
    struct err err = {0};
    struct buf text;
    buf_init(&text, JWT_KEY_SET_MAX);
    enum err_code code = read_text(source->issuer.jwks, &text, &err);
    take_keys(source, code ? STR_NONE : buf_str(&text), &err);
    buf_release(&text);
}

/* A server that could take no token of an issuer does not start; later a broken file leaves the former keys. */
static enum err_code check_file(const struct jwt_issuer *issuer, struct err *err)
{
    struct jwt_keys *keys = NULL;
    struct buf text;
    buf_init(&text, JWT_KEY_SET_MAX);
    enum err_code code = read_text(issuer->jwks, &text, err);
    if (!code)
        code = jwt_keys_read(buf_str(&text), &keys, err);
    if (code)
        err_prefix(err, "the keys of issuer %s: ", issuer->name);
    jwt_keys_free(keys);
    buf_release(&text);
    return code;
}

/* ---- an address ---- */

static size_t on_body(char *p, size_t size, size_t count, void *user)
{
    struct source *source = user;
    buf_add(&source->body, p, size * count);
    return source->body.over ? 0 : size * count; /* 0 ends the transfer */
}

static void fetched(struct curl_transfer *transfer, CURLcode code)
{
    struct source *source = (struct source *)((char *)transfer - offsetof(struct source, transfer));
    struct err err = {0};
    long status = 0;
    curl_easy_getinfo(transfer->easy, CURLINFO_RESPONSE_CODE, &status);
    if (source->body.over)
        err_set(&err, ERR_LIMIT, "the key set has more than %zu bytes", JWT_KEY_SET_MAX);
    else if (code != CURLE_OK)
        err_set(&err, ERR_UNAVAILABLE, "%s", transfer->error[0] ? transfer->error : curl_easy_strerror(code));
    else if (status >= 300 && status < 400)
        err_set(&err, ERR_UNAVAILABLE, "answered with a redirect (%ld), which is not followed", status);
    else if (status != 200)
        err_set(&err, ERR_UNAVAILABLE, "answered with status %ld", status);
    take_keys(source, err.code ? STR_NONE : buf_str(&source->body), &err);
    buf_reset(&source->body);
    reading_ended(source);
}

static const struct curl_transfer_ops transfer_ops = {.finished = fetched};

static void fetch(struct source *source)
{
    struct err err = {0};
    curl_transfer_clear(&source->transfer);
    buf_reset(&source->body);
    source->in_flight = true;
    if (curl_transfer_start(&source->transfer, &err) == ERR_NONE)
        return;
    snprintf(source->transfer.error, sizeof source->transfer.error, "%.200s", err.text);
    curl_transfer_refuse(&source->transfer);
}

static void prepare_fetch(struct source *source)
{
    CURL *easy;
    buf_init(&source->body, JWT_KEY_SET_MAX);
    curl_transfer_init(&source->transfer, &source->issuers->curl, &transfer_ops);
    easy = source->transfer.easy;
    source->headers = curl_slist_append(NULL, "Accept: application/jwk-set+json, application/json");
    if (!source->headers)
        mem_exhausted("libcurl");
    curl_transfer_text(&source->transfer, CURLOPT_URL, source->issuer.jwks);
    curl_transfer_text(&source->transfer, CURLOPT_USERAGENT, "onced/" ONCED_VERSION);
    curl_easy_setopt(easy, CURLOPT_HTTPGET, 1L);
    curl_easy_setopt(easy, CURLOPT_FRESH_CONNECT, 1L); /* one that died meanwhile is not tried again by itself */
    curl_easy_setopt(easy, CURLOPT_FORBID_REUSE, 1L);
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, source->headers);
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, (long)ISSUERS_CONNECT_MS);
    curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, (long)ISSUERS_TIMEOUT_MS);
    curl_easy_setopt(easy, CURLOPT_SSL_VERIFYPEER, 1L);
    curl_easy_setopt(easy, CURLOPT_SSL_VERIFYHOST, 2L);
    if (source->issuer.ca)
        curl_transfer_text(&source->transfer, CURLOPT_CAINFO, source->issuer.ca);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, source);
}

/* ---- when keys are read ---- */

static void read_keys(struct source *source)
{
    source->asked_ms = (int64_t)uv_now(source->issuers->loop);
    if (source->issuer.jwks_is_file) {
        read_file(source);
        plan_next(source);
    } else if (!source->in_flight) {
        fetch(source);
    }
}

static void timer_fired(uv_timer_t *timer)
{
    read_keys(timer->data);
}

static bool may_read(const struct source *source)
{
    int64_t now_ms = (int64_t)uv_now(source->issuers->loop);
    return source->asked_ms < 0 || now_ms - source->asked_ms >= again_ms(source);
}

/* ---- questions ---- */

static void answer(struct issuers_question *question, enum issuers_verdict verdict)
{
    question->verdict = verdict;
    question->done(question);
}

static void wait_for_keys(struct source *source, struct issuers_question *question)
{
    if (source->issuers->waiting >= ISSUERS_WAITING_MAX) {
        err_clear(&question->err);
        err_set(&question->err, ERR_UNAVAILABLE, "too many callers wait for the keys of issuer %s",
                source->issuer.name);
        answer(question, ISSUERS_NOT_NOW);
        return;
    }
    source->issuers->waiting++;
    question->next = NULL;
    question->at = source->waiting_end;
    *source->waiting_end = question;
    source->waiting_end = &question->next;
}

/* The keys in force do not cover the token, and asking again is over or not allowed yet. */
static void answer_unknown(struct source *source, struct issuers_question *question)
{
    if (!source->failure.code && source->keys) {
        answer(question, ISSUERS_NO); /* err says which key is missing */
        return;
    }
    struct err because = source->failure;
    err_prefix(&because, "the keys of issuer %s cannot be read now: ", source->issuer.name);
    question->err = because;
    err_set(&question->err, ERR_UNAVAILABLE, "the keys of issuer %s are not there yet", source->issuer.name);
    answer(question, ISSUERS_NOT_NOW);
}

static void unknown_key(struct source *source, struct issuers_question *question, bool after_reading)
{
    if (after_reading) {
        answer_unknown(source, question);
    } else if (source->in_flight) {
        wait_for_keys(source, question);
    } else if (!may_read(source)) {
        answer_unknown(source, question);
    } else {
        read_keys(source);
        if (source->in_flight)
            wait_for_keys(source, question);
        else
            judge(source, question, true);
    }
}

static void judge(struct source *source, struct issuers_question *question, bool after_reading)
{
    const struct jwt_issuer *issuer = &source->issuer;
    struct env *env = source->issuers->env;
    err_clear(&question->err);
    enum err_code code =
        source->keys ? jwt_verify(&question->jwt, issuer, source->keys, &question->err) : ERR_NOT_FOUND;
    if (code == ERR_NOT_FOUND) {
        unknown_key(source, question, after_reading);
        return;
    }
    if (!code)
        code = jwt_caller(question->arena, &question->jwt, issuer, env->now_ms(env), &question->caller, &question->err);
    answer(question, code ? ISSUERS_NO : ISSUERS_YES);
}

bool issuers_has(const struct issuers *issuers, const char *iss)
{
    for (size_t i = 0; i < issuers->count; i++)
        if (strcmp(issuers->sources[i].issuer.issuer, iss) == 0)
            return true;
    return false;
}

void issuers_ask(struct issuers *issuers, struct issuers_question *question)
{
    question->at = NULL;
    question->next = NULL;
    err_clear(&question->err);
    if (jwt_read(question->arena, question->token, &question->jwt, &question->err)) {
        answer(question, ISSUERS_NO);
        return;
    }
    for (size_t i = 0; i < issuers->count; i++) {
        if (strcmp(issuers->sources[i].issuer.issuer, question->jwt.issuer) == 0) {
            judge(&issuers->sources[i], question, false);
            return;
        }
    }
    err_set(&question->err, ERR_DENIED, "the token's issuer (iss) is not one of this server's");
    answer(question, ISSUERS_NO);
}

void issuers_withdraw(struct issuers *issuers, struct issuers_question *question)
{
    assert(question->at);
    *question->at = question->next;
    if (question->next)
        question->next->at = question->at;
    for (size_t i = 0; i < issuers->count; i++)
        if (issuers->sources[i].waiting_end == &question->next)
            issuers->sources[i].waiting_end = question->at;
    question->at = NULL;
    issuers->waiting--;
}

/* ---- start, end ---- */

static void released(void *user)
{
    struct issuers *issuers = user;
    for (size_t i = 0; i < issuers->count; i++) {
        struct source *source = &issuers->sources[i];
        if (source->issuer.jwks_is_file)
            continue;
        curl_transfer_release(&source->transfer);
        curl_slist_free_all(source->headers);
    }
}

static void one_closed(struct issuers *issuers)
{
    if (--issuers->handles_open > 0)
        return;
    void (*closed)(void *user) = issuers->closed;
    void *user = issuers->closed_user;
    for (size_t i = 0; i < issuers->count; i++) {
        jwt_keys_free(issuers->sources[i].keys);
        buf_release(&issuers->sources[i].body);
    }
    free(issuers->sources);
    free(issuers);
    closed(user);
}

static void timer_closed(uv_handle_t *handle)
{
    struct source *source = handle->data;
    one_closed(source->issuers);
}

static void curl_closed(void *user)
{
    one_closed(user);
}

void issuers_close(struct issuers *issuers, void (*closed)(void *user), void *user)
{
    assert(issuers->waiting == 0);
    issuers->closed = closed;
    issuers->closed_user = user;
    issuers->handles_open = issuers->count + 1;
    for (size_t i = 0; i < issuers->count; i++) {
        struct source *source = &issuers->sources[i];
        if (source->in_flight)
            curl_transfer_stop(&source->transfer);
        uv_close((uv_handle_t *)&source->timer, timer_closed);
    }
    curl_loop_close(&issuers->curl, released, curl_closed, issuers);
}

static void source_start(struct issuers *issuers, struct source *source, const struct jwt_issuer *issuer)
{
    source->issuers = issuers;
    source->issuer = *issuer;
    source->asked_ms = -1;
    source->waiting_end = &source->waiting;
    uv_timer_init(issuers->loop, &source->timer);
    source->timer.data = source;
    if (!issuer->jwks_is_file)
        prepare_fetch(source);
    read_keys(source);
}

enum err_code issuers_new(uv_loop_t *loop, struct env *env, const struct jwt_issuer *list, size_t count,
                          struct issuers **out, struct err *err)
{
    enum err_code code = ERR_NONE;
    for (size_t i = 0; i < count && !code; i++)
        if (list[i].jwks_is_file)
            code = check_file(&list[i], err);
    if (code)
        return code;
    struct issuers *issuers = mem_zero(sizeof *issuers);
    code = curl_loop_init(&issuers->curl, loop, err);
    if (code) {
        free(issuers);
        return code;
    }
    issuers->loop = loop;
    issuers->env = env;
    issuers->sources = mem_zero((count + 1) * sizeof *issuers->sources);
    issuers->count = count;
    for (size_t i = 0; i < count; i++)
        source_start(issuers, &issuers->sources[i], &list[i]);
    *out = issuers;
    return ERR_NONE;
}
