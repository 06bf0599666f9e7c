/* link: --wrap=malloc --wrap=calloc --wrap=realloc */
/* folder: runtime */
/* Every allocation on the way from a request to its ranks' answer fails once: NO_MEMORY is said, the result
 * is as it was, and no rank is left. (That nothing leaks is for SAN=address to see.) */
#include "tandem/runtime.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "tests/support/fail_allocation.h"
#include "tests/support/tandem_test.h"

static void a_training_survives(void **state)
{
    tandem_train_request request = tandem_train_request_default();
    long k = 0;
    request.workload.model = "mlp:depth=1,width=8";
    request.workload.cluster = "cpu:sse41 + cpu:sse41";
    request.workload.batch = 4;
    request.store = "none.db";
    request.steps = 3;
    request.per_task = 1;
    for (int failed = 1; failed; k++) {
        tandem_train_result result = {.n_rank = 7};
        tandem_error error = {0};
        tandem_fail_allocation_after(k);
        const tandem_status status = tandem_train(&result, &request, &error);
        failed = tandem_allocation_failed();
        tandem_fail_allocation_after(-1);
        if (status != (failed ? TANDEM_NO_MEMORY : TANDEM_OK))
            fail_msg("allocation %ld: %s: %s", k, tandem_status_name(status), error.text);
        assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
        assert_int_equal(errno, ECHILD);
        assert_int_equal(result.n_rank, failed ? 7 : 2);
        if (!failed) tandem_train_result_free(&result);
    }
    assert_true(k > 20); /* it was really on the way */
}

int main(int argc, char **argv)
{
    char folder[2048], path[4096];
    (void)argc;
    (void)snprintf(folder, sizeof folder, "%s", argv[0]);
    char *const tests_folder = strstr(folder, "/tests/fault/");
    if (!tests_folder) return 1;
    *tests_folder = '\0';
    (void)snprintf(path, sizeof path, "%s/tandem-rank", folder);
    (void)setenv("TANDEM_RANK_PROGRAM", path, 0);
    (void)snprintf(path, sizeof path, "%s/libtandem_backend.so", folder);
    (void)setenv("TANDEM_BACKEND", path, 0);
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_training_survives)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
