/* inbox.NAME.forward in the registry file: what is refused, and where; what the registry then says. */
#include "support/test.h"

#include "base/log.h"
#include "daemon/config.h"
#include "daemon/config_report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_WITH                                                                                                      \
    "onced: 1\n"                                                                                                       \
    "providers:\n"                                                                                                     \
    "  pay: {base_url: \"http://127.0.0.1:1\"}\n"                                                                      \
    "tools:\n"                                                                                                         \
    "  t: {class: read, provider: pay, request: {path: /x}}\n"                                                         \
    "inbox:\n"                                                                                                         \
    "  pay:\n"                                                                                                         \
    "    provider: pay\n"                                                                                              \
    "    signature: {scheme: stripe, secrets: [\"${env:TEST_SECRET}\"]}\n"                                             \
    "    match: {reference: /r}\n"                                                                                     \
    "    outcomes: [{outcome: success}]\n"

static struct registry *load(const char *forward, char *said, size_t size)
{
    struct config_report report;
    struct registry *registry = NULL;
    struct buf text;
    config_report_init(&report);
    buf_init(&text, 0);
    buf_printf(&text, FILE_WITH "    forward: %s\n", forward);
    config_load_text("f", buf_str(&text), NULL, &registry, &report);
    FILE *out = fmemopen(said, size, "w");
    config_report_print(&report, out);
    fclose(out);
    config_report_release(&report);
    buf_release(&text);
    return registry;
}

static void expect(const char *forward, const char *wanted)
{
    char said[2048] = "";
    struct registry *registry = load(forward, said, sizeof said);
    bool fine = !*wanted || strstr(wanted, "warning") != NULL;
    if (*wanted ? !strstr(said, wanted) : *said != '\0')
        fail_msg("%s\nwanted: %s\ngot: %s", forward, wanted, said);
    assert_true((registry != NULL) == fine);
    registry_unref(registry);
}

static void test_refusals(void **state)
{
    (void)state;
    expect("{url: \"https://app.example/hooks?x=1\"}", "");
    expect("{url: \"http://127.0.0.1:9/\", secret: \"${env:TEST_SECRET}\", timeout: 1s, give_up: 30d}", "");
    expect("{}", "f:12:5: /inbox/pay/forward/url: is missing");
    expect("{url: app.example}", "/inbox/pay/forward/url: is no URL, expected http:// or https://");
    expect("{url: \"https://me:word@app.example/\"}", "/inbox/pay/forward/url: has a user or fragment");
    expect("{url: \"http://app.example/\"}", "warning: /inbox/pay/forward/url: plain HTTP to another machine");
    expect("{url: \"https://app.example/\", give_up: 31d}",
           "/inbox/pay/forward/give_up: is longer than the events are kept (retain)");
    expect("{url: \"https://app.example/\", secret: whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw}",
           "/inbox/pay/forward/secret: a secret is given by reference: ${env:NAME} or ${file:PATH}");
    expect("{url: \"https://app.example/\", secret: \"${env:SHORT_SECRET}\"}",
           "/inbox/pay/forward/secret: expected whsec_ and at least 16 bytes in base 64");
    expect("{url: \"https://app.example/\", secret: \"${env:NOT_SET}\"}", "/inbox/pay/forward/secret: ");
    expect("{url: \"https://app.example/\", timeout: 2m}", "/inbox/pay/forward/timeout: ");
    expect("{url: \"https://app.example/\", tries: 3}", "/inbox/pay/forward/tries: unknown member");
}

static void test_what_the_registry_says(void **state)
{
    char said[2048] = "";
    (void)state;
    struct registry *registry =
        load("{url: \"https://app.example/\", secret: \"${env:TEST_SECRET}\", give_up: 2h}", said, sizeof said);
    assert_non_null(registry);
    const struct inbox_source *source = registry_source(registry, "pay");
    assert_non_null(source->forward);
    assert_string_equal(source->forward->url, "https://app.example/");
    assert_int_equal(source->forward->secret.n, 24);
    assert_int_equal(source->forward->timeout_ms, 10000);
    assert_int_equal(source->forward->give_up_ms, 7200000);
    assert_null(source->forward->ca);
    registry_unref(registry);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_what_the_registry_says),
    };
    log_set_level(LOG_OFF);
    setenv("TEST_SECRET", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", 1);
    setenv("SHORT_SECRET", "whsec_c2hvcnQ=", 1);
    unsetenv("NOT_SET");
    return cmocka_run_group_tests_name("config_inbox", tests, NULL, NULL);
}
