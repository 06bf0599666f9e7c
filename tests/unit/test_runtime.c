/* folder: runtime */
/* test_runtime.c: the library as a program with threads uses it: it prints nothing, leaves signals as they
 * are, answers several threads at once, and ends when it is cancelled. Ranks are processes of tandem-rank. */
#include "tandem/runtime.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/tandem_test.h"

static tandem_train_request small_training(void)
{
    tandem_train_request request = tandem_train_request_default();
    request.workload.model = "mlp";
    request.workload.cluster = "cpu:sse41";
    request.workload.batch = 8;
    request.store = "none.db";
    request.steps = 6;
    return request;
}

/* --- A plain request ------------------------------------------------------------------------------------ */

static void a_training_prints_nothing_and_leaves_signals_alone(void **state)
{
    struct sigaction before[NSIG], after;
    const tandem_train_request request = small_training();
    tandem_train_result result = {.n_rank = 0};
    tandem_error error = {0};
    FILE *const said = tmpfile();
    assert_non_null(said);
    (void)fflush(stdout);
    (void)fflush(stderr);
    const int out = dup(STDOUT_FILENO), err = dup(STDERR_FILENO);
    for (int k = 1; k < NSIG; k++) (void)sigaction(k, NULL, &before[k]);
    assert_true(dup2(fileno(said), STDOUT_FILENO) >= 0 && dup2(fileno(said), STDERR_FILENO) >= 0);
    const tandem_status status = tandem_train(&result, &request, &error);
    (void)fflush(stdout);
    assert_true(dup2(out, STDOUT_FILENO) >= 0 && dup2(err, STDERR_FILENO) >= 0);
    require_ok(status, &error);
    assert_int_equal(lseek(fileno(said), 0, SEEK_END), 0);
    (void)fclose(said);
    for (int k = 1; k < NSIG; k++)
        if (sigaction(k, NULL, &after) == 0) assert_true(after.sa_handler == before[k].sa_handler);
    assert_int_equal(result.steps, 6);
    assert_int_equal(result.n_rank, 1);
    assert_string_equal(result.model, "mlp");
    assert_true(result.loss[5] > 0 && result.rank[0].period_ns > 0);
    tandem_train_result_free(&result);
}

static void an_error_is_returned_and_nothing_changes(void **state)
{
    tandem_train_request request = small_training();
    tandem_train_result result = {.n_rank = 7};
    tandem_error error = {0};
    request.workload.model = "no_such_model";
    assert_int_equal(tandem_train(&result, &request, &error), TANDEM_UNKNOWN_NAME);
    assert_non_null(strstr(error.text, "no_such_model"));
    request = small_training();
    request.steps = 0; /* as where nobody took the defaults */
    assert_int_equal(tandem_train(&result, &request, &error), TANDEM_USAGE);
    assert_non_null(strstr(error.text, "0 steps"));
    request = small_training();
    request.data = "/nowhere"; /* found before a rank starts */
    assert_int_not_equal(tandem_train(&result, &request, &error), TANDEM_OK);
    assert_int_equal(result.n_rank, 7);
}

/* An error that only the rank finds: its loss is not finite. */
static void an_error_of_a_rank_reaches_the_caller(void **state)
{
    tandem_train_request request = small_training();
    tandem_train_result result = {.n_rank = 0};
    tandem_error error = {0};
    request.training.rate = 1e30;
    request.steps = 40;
    assert_int_equal(tandem_train(&result, &request, &error), TANDEM_LIMIT_EXCEEDED);
    assert_non_null(strstr(error.text, "finite"));
}

static void without_the_helper_it_says_where_it_looked(void **state)
{
    const tandem_train_request request = small_training();
    tandem_train_result result = {.n_rank = 0};
    tandem_error error = {0};
    char kept[4096];
    (void)snprintf(kept, sizeof kept, "%s", getenv("TANDEM_RANK_PROGRAM"));
    (void)setenv("TANDEM_RANK_PROGRAM", "/nowhere/tandem-rank", 1);
    assert_int_equal(tandem_train(&result, &request, &error), TANDEM_MISSING);
    assert_non_null(strstr(error.text, "/nowhere/tandem-rank"));
    (void)setenv("TANDEM_RANK_PROGRAM", kept, 1);
}

/* --- Several threads ------------------------------------------------------------------------------------ */

typedef struct request_thread {
    pthread_t thread;
    uint64_t seed;
    tandem_status status;
    tandem_error error;
    tandem_train_result result;
} request_thread;

static void *train_in_thread(void *of)
{
    request_thread *self = of;
    tandem_train_request request = small_training();
    request.workload.seed = self->seed;
    self->status = tandem_train(&self->result, &request, &self->error);
    return NULL;
}

static void threads_may_train_at_once(void **state)
{
    request_thread all[3] = {{.seed = 1}, {.seed = 2}, {.seed = 1}};
    for (int k = 0; k < 3; k++)
        assert_int_equal(pthread_create(&all[k].thread, NULL, train_in_thread, &all[k]), 0);
    for (int k = 0; k < 3; k++) (void)pthread_join(all[k].thread, NULL);
    for (int k = 0; k < 3; k++) require_ok(all[k].status, &all[k].error);
    const size_t bytes = 6 * sizeof(double);
    assert_memory_equal(all[0].result.loss, all[2].result.loss, bytes);
    assert_int_not_equal(memcmp(all[0].result.loss, all[1].result.loss, bytes), 0);
    for (int k = 0; k < 3; k++) tandem_train_result_free(&all[k].result);
}

/* --- Ending --------------------------------------------------------------------------------------------- */

typedef struct canceller {
    int cancel, n_note, n_progress;
} canceller;

static void cancel_at_progress(void *of, int64_t left_ns, const char *text)
{
    canceller *c = of;
    const uint64_t one = 1;
    (void)left_ns;
    if (strstr(text, "step") && c->n_progress++ == 0) assert_int_equal(write(c->cancel, &one, sizeof one), 8);
}

static void a_request_can_be_cancelled(void **state)
{
    canceller c = {.cancel = eventfd(0, EFD_CLOEXEC)};
    tandem_train_request request = small_training();
    tandem_train_result result = {.n_rank = 0};
    tandem_error error = {0};
    request.workload.cluster = "cpu:sse41 + cpu:sse41";
    request.steps = 100000000; /* hours */
    request.listener = (tandem_listener){.context = &c, .progress = cancel_at_progress, .cancel = c.cancel};
    assert_int_equal(tandem_train(&result, &request, &error), TANDEM_CANCELLED);
    assert_int_equal(c.n_progress > 0, 1);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* no child is left */
    assert_int_equal(errno, ECHILD);
    (void)close(c.cancel);
}

int main(int argc, char **argv)
{
    char folder[2048], path[4096];
    (void)argc;
    (void)snprintf(folder, sizeof folder, "%s", argv[0]);
    char *const tests_folder = strstr(folder, "/tests/unit/");
    if (!tests_folder) return 1;
    *tests_folder = '\0';
    (void)snprintf(path, sizeof path, "%s/tandem-rank", folder);
    (void)setenv("TANDEM_RANK_PROGRAM", path, 0);
    (void)snprintf(path, sizeof path, "%s/libtandem_backend.so", folder);
    (void)setenv("TANDEM_BACKEND", path, 0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_training_prints_nothing_and_leaves_signals_alone),
        cmocka_unit_test(an_error_is_returned_and_nothing_changes),
        cmocka_unit_test(an_error_of_a_rank_reaches_the_caller),
        cmocka_unit_test(without_the_helper_it_says_where_it_looked),
        cmocka_unit_test(threads_may_train_at_once),
        cmocka_unit_test(a_request_can_be_cancelled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
