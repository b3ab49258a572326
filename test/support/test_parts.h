/* A test program whose tests stand in several files: each has one part, the main file runs all in turn. */
#ifndef SUPPORT_TEST_PARTS_H
#define SUPPORT_TEST_PARTS_H

#include "support/test.h"

struct test_part {
    const char *name;
    const struct CMUnitTest *tests;
    size_t count;
};

/* For main(): 0 when all have passed. */
static inline int test_parts_run(const struct test_part *const *parts, size_t count)
{
    int failed = 0;
    for (size_t i = 0; i < count; i++)
        failed += _cmocka_run_group_tests(parts[i]->name, parts[i]->tests, parts[i]->count, NULL, NULL);
    return failed != 0;
}

#endif
