/* tandem_test.h: what every test program includes: cmocka with the headers that it needs, and the C library's
 * common ones. */
#ifndef TANDEM_TESTS_SUPPORT_TANDEM_TEST_H
#define TANDEM_TESTS_SUPPORT_TANDEM_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tandem/status.h"

/* With TEST_LONG=1, as `make test LONG=1` sets it, tests draw all their cases: else one in `by`. */
static inline int test_is_long(void)
{
    const char *const set = getenv("TEST_LONG");
    return set != NULL && *set != '\0';
}
static inline uint32_t cases_of(uint32_t all, uint32_t by)
{
    return test_is_long() ? all : (all + by - 1) / by;
}

#define N_OF(array) (sizeof(array) / sizeof((array)[0]))

/* Fails the running test with the error's text, unless `status` is TANDEM_OK. */
static inline void require_ok(tandem_status status, const tandem_error *error)
{
    if (status != TANDEM_OK) fail_msg("%s", error->text);
}

/* The same in a test of drawn cases, which names the seed. */
static inline void require_ok_seed(tandem_status status, const tandem_error *error, uint64_t seed)
{
    if (status != TANDEM_OK) fail_msg("seed %llu: %s", (unsigned long long)seed, error->text);
}

#endif
