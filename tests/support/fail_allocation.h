/* fail_allocation.h: makes one allocation fail, to see whether the code survives it.
 *
 * A test that wants it has the line `link: --wrap=malloc --wrap=calloc --wrap=realloc` (as a comment of its
 * own, `--wrap=free` after it where it counts what is alive) at its top; the Makefile then links
 * fail_allocation.c in, and every call out of the project's own code, not those inside of shared libraries,
 * passes through here. The loop, after SQLite:
 *
 *     tandem_status status = TANDEM_NO_MEMORY;
 *     for (long k = 0; status != TANDEM_OK; k++) {
 *         tandem_fail_allocation_after(k);
 *         status = what_is_tested(…);
 *         const int failed = tandem_allocation_failed();
 *         tandem_fail_allocation_after(-1);
 *         assert_int_equal(status, failed ? TANDEM_NO_MEMORY : TANDEM_OK);
 *     } */
#ifndef TANDEM_TESTS_FAIL_ALLOCATION_H
#define TANDEM_TESTS_FAIL_ALLOCATION_H

/* From now on k allocations succeed, the next one fails, and all after it succeed again. k < 0: none fails.
 * Counts the allocations of all threads together. */
void tandem_fail_allocation_after(long k);

/* Whether one has failed since the last call of tandem_fail_allocation_after. */
int tandem_allocation_failed(void);

/* Blocks that were allocated and not freed, over all the run: a difference of two calls says what leaked
 * between them. Right only with --wrap=free, and where nobody frees what a shared library has allocated. */
long tandem_allocations_alive(void);

#endif
