/* docs/states.md says what the table of moves says. */
#include "core/state.h"
#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *page; /* of the whole program: read once in the group's set-up */

static int read_page(void **state)
{
    (void)state;
    char path[4096];
    const char *source = getenv("ONCED_SOURCE");
    snprintf(path, sizeof path, "%s/docs/states.md", source ? source : ".");
    FILE *file = fopen(path, "r");
    if (!file)
        return -1;
    page = calloc(1, 65536);
    size_t n = fread(page, 1, 65535, file);
    fclose(file);
    return n > 0 && n < 65535 ? 0 : -1;
}

static int free_page(void **state)
{
    (void)state;
    free(page);
    return 0;
}

/* The table row "| `name` | …", without its first cell. */
static char *row_of(const char *name)
{
    char start[64];
    snprintf(start, sizeof start, "\n| `%s` |", name);
    const char *at = strstr(page, start);
    if (!at)
        fail_msg("docs/states.md has no row for %s", name);
    at += strlen(start);
    assert_null(strstr(at, start)); /* only one */
    return strndup(at, strcspn(at, "\n"));
}

static void test_moves(void **state)
{
    (void)state;
    for (int from = 0; from < STATE_COUNT; from++) {
        char *row = row_of(state_name((enum state)from));
        bool ended = strncmp(row, " yes |", 6) == 0;
        assert_true(ended || strncmp(row, " no |", 5) == 0);
        assert_int_equal(ended, state_terminal((enum state)from));
        for (int to = 0; to < STATE_COUNT; to++) {
            char quoted[64];
            snprintf(quoted, sizeof quoted, "`%s`", state_name((enum state)to));
            bool told = strstr(row, quoted) != NULL;
            if (told != state_may_move((enum state)from, (enum state)to, false))
                fail_msg("docs/states.md is wrong about %s -> %s", state_name((enum state)from), quoted);
        }
        free(row);
    }
}

static void test_evidence(void **state)
{
    (void)state;
    char *text = strstr(page, "Evidence of an effect also moves ");
    assert_non_null(text);
    text = strndup(text, (size_t)(strstr(text, " to `completed_success`") - text));
    for (int from = 0; from < STATE_COUNT; from++) {
        char quoted[64];
        snprintf(quoted, sizeof quoted, "`%s`", state_name((enum state)from));
        bool by_evidence = !state_may_move((enum state)from, STATE_COMPLETED_SUCCESS, false) &&
                           state_may_move((enum state)from, STATE_COMPLETED_SUCCESS, true);
        assert_int_equal(strstr(text, quoted) != NULL, by_evidence);
    }
    free(text);
}

static void test_reasons(void **state)
{
    (void)state;
    size_t rows = 0;
    for (int reason = REASON_NONE + 1; reason < REASON_COUNT; reason++)
        free(row_of(reason_name((enum reason)reason)));
    for (const char *at = strstr(page, "## Reasons"); (at = strstr(at, "\n| `")); at++)
        rows++;
    assert_int_equal(rows, REASON_COUNT - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_moves),
        cmocka_unit_test(test_evidence),
        cmocka_unit_test(test_reasons),
    };
    return cmocka_run_group_tests(tests, read_page, free_page);
}
