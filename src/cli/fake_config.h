/* Settings of the fault-injecting provider, from options and POST /_fake/config. */
#ifndef CLI_FAKE_CONFIG_H
#define CLI_FAKE_CONFIG_H

#include "base/err.h"
#include "base/json.h"
#include "cli/fake_fault.h"

/* What is done with idempotency keys. */
enum fake_keys {
    KEYS_HONOUR, /* remembered for retention_ms after the answer */
    KEYS_IGNORE, /* never looked at */
    KEYS_FORGET  /* known only while the first request is being worked on */
};

/* Which answers are kept for replay. */
enum fake_keep {
    KEEP_EFFECT,  /* the result of every committed effect, whatever was answered; refusals are not kept */
    KEEP_SUCCESS, /* what was answered, if 2xx: after anything else the same key is a new attempt */
    KEEP_NOT_5XX, /* what was answered, if below 500 */
    KEEP_NOT_429, /* whatever was answered, but for 429 */
    KEEP_ALL      /* whatever was answered */
};

#define FAKE_NAME_MAX          64
#define FAKE_BUSINESS_KEYS_MAX 16

struct fake_config {
    enum fake_keys keys;
    enum fake_keep keep;
    int64_t retention_ms; /* 0 = for ever */
    int in_use_status;
    int mismatch_status; /* 0 = the kept answer is replayed though the body differs */
    bool scope_global;   /* one key space for all paths and methods; else per method and collection */
    char key_header[FAKE_NAME_MAX];
    char key_field[FAKE_NAME_MAX]; /* top-level member that carries the key; "" = none */
    char business_keys[FAKE_BUSINESS_KEYS_MAX]
                      [FAKE_NAME_MAX]; /* members that name the business object, first present wins */
    size_t business_key_count;
    char token[FAKE_NAME_MAX]; /* bearer token that /v1 requests must carry; "" = none */
    struct fake_chances chances;
    char fault[FAKE_PLAN_TEXT_MAX];        /* plan for every write; "" = none */
    char lookup_fault[FAKE_PLAN_TEXT_MAX]; /* plan for every look-up; "" = none */
    int64_t latency_ms;                    /* writes take this long before they commit */
    int64_t lookup_latency_ms;
    int64_t propagation_ms; /* objects are invisible to look-ups for this long */
    int page_size;          /* of lists when no limit is given */
    int page_size_max;      /* larger limits are cut to it */
};

void fake_config_init(struct fake_config *config);

/* Applies the members of an object (names as above; `contract` first: stripe, qonto, checkout, truelayer, solid,
 * easyship, epay). All or nothing; ERR_INVALID names the member. */
enum err_code fake_config_apply(struct fake_config *config, const struct json *object, struct err *err);

/* One "name=value" from the command line; value is JSON or plain text. */
enum err_code fake_config_apply_text(struct fake_config *config, const char *text, struct err *err);

void fake_config_write(struct json_out *out, const struct fake_config *config);

#endif
