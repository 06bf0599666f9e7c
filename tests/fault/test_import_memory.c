/* link: --wrap=malloc --wrap=calloc --wrap=realloc --wrap=free */
/* folder: predictor */
/* An import while memory runs out: NO_MEMORY is said, nothing leaks, and nothing of it stays in the store. */
#include "tandem/advanced/timings.h"
#include "tests/support/fail_allocation.h"
#include "tests/support/replay_store.h"

static char table[16384];

static tandem_status import_table(tandem_store *store, tandem_error *error)
{
    tandem_import *import = NULL;
    FILE *const stream = fmemopen(table, strlen(table), "r");
    if (!stream) return TANDEM_NO_MEMORY;
    tandem_status status = tandem_store_begin(store, error);
    if (status == TANDEM_OK) status = tandem_import_open(&import, store, NULL, 0, error);
    if (status == TANDEM_OK) status = tandem_import_read(import, stream, "rows.csv", error);
    tandem_import_close(import);
    (void)fclose(stream);
    if (status == TANDEM_OK) return tandem_store_commit(store, error);
    tandem_store_rollback(store);
    return status;
}

static tandem_status count_imported(void *n, const tandem_timing *timing, tandem_error *error)
{
    (void)timing, (void)error;
    ++*(int *)n;
    return TANDEM_OK;
}

static void an_import_survives_every_failed_allocation(void **state)
{
    enum { ROWS = 300 }; /* more than tables and arrays begin with */
    replay_store s = {.path = ""};
    tandem_status status = TANDEM_NO_MEMORY;
    int n_failed = 0;
    size_t n = (size_t)snprintf(table, sizeof table, "device,operator,precision,m,k,n,time_us\n");
    for (int i = 0; i < ROWS; i++)
        n += (size_t)snprintf(table + n, sizeof table - n, "%s,linear,fp32,%d,8,8,9\n", i % 2 ? "t4" : "a100",
                              i + 1);
    assert_true(n < sizeof table);
    replay_store_open(&s);
    for (long k = 0; status != TANDEM_OK; k++) {
        tandem_error error = {0};
        int found = 0;
        const long alive = tandem_allocations_alive();
        tandem_fail_allocation_after(k);
        status = import_table(s.store, &error);
        const int failed = tandem_allocation_failed();
        tandem_fail_allocation_after(-1);
        assert_int_equal(status, failed ? TANDEM_NO_MEMORY : TANDEM_OK);
        assert_int_equal(tandem_allocations_alive(), alive);
        n_failed += failed;
        require_ok(tandem_store_visit_timings(s.store, "t4", count_imported, &found, &error), &error);
        require_ok(tandem_store_visit_timings(s.store, "a100", count_imported, &found, &error), &error);
        assert_int_equal(found, failed ? 0 : ROWS);
    }
    assert_true(n_failed > 5);
    replay_store_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(an_import_survives_every_failed_allocation)};
    return cmocka_run_group_tests_name("imports without memory", tests, NULL, NULL);
}
