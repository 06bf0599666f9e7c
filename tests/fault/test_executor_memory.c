/* link: --wrap=malloc --wrap=calloc --wrap=realloc */
/* folder: backend, and others for devices, plans or robust means */
/* Every allocation of the backend's own code on the way to an executor, an evaluation and a checkpoint fails
 * once: NO_MEMORY is said, and the next try succeeds. That nothing leaks, the address sanitizer says. */
#include <dlfcn.h>
#include <unistd.h>

#include "tandem/advanced/backend.h"
#include "tandem/cluster.h"
#include "tests/cuda/stand_in_library.h"
#include "tests/support/fail_allocation.h"
#include "tests/support/tandem_test.h"

typedef struct fixture {
    const tandem_backend_api *backend;
    tandem_graph *graph;
    tandem_step *step;
    tandem_worker *worker;
    tandem_executor *executor;
    char path[64];
} fixture;

static tandem_status open_executor_executor_memory(fixture *f, const uint64_t *limit, tandem_error *error)
{
    return f->backend->executor_open(
        &f->executor, f->worker,
        &(tandem_executor_options){
            .step = f->step, .global_batch = 4, .memory_limit_bytes = limit, .with_evaluation = 1},
        error);
}

static int open_on(fixture **out, const char *device)
{
    static fixture f;
    f = (fixture){0};
    *out = &f;
    if (!device) return 0;
    tandem_device found;
    f.backend = tandem_backend_get(TANDEM_BACKEND_VERSION);
    (void)snprintf(f.path, sizeof f.path, "/tmp/tandem-executor-XXXXXX");
    assert_non_null(mkdtemp(f.path));
    memcpy(f.path + strlen(f.path), "/c", 3);
    assert_int_equal(tandem_device_find(&found, device, NULL), TANDEM_OK);
    assert_int_equal(tandem_graph_open(&f.graph, "mlp:width=8,depth=1", 4, NULL), TANDEM_OK);
    const tandem_step_options varied = {
        .n_micro = 2, .n_recompute_segment = TANDEM_RECOMPUTE_SQRT, .scaling = {4, 0}};
    assert_int_equal(tandem_step_open_with(&f.step, f.graph, found.amp_dtype, 0, &varied, NULL), TANDEM_OK);
    for (int i = 0; i < f.graph->n_op; i++)
        if (tandem_op_is_adjustable(&f.graph->op[i])) tandem_step_set(f.step, i, TANDEM_PRECISION_INT8);
    tandem_step_resolve(f.step);
    const tandem_worker_options options = {
        .device = device, .n_rank = 1, .cpu = -1, .timeout_ns = INT64_C(1000000000)};
    assert_int_equal(f.backend->worker_open(&f.worker, &options, NULL), TANDEM_OK);
    assert_int_equal(open_executor_executor_memory(&f, NULL, NULL), TANDEM_OK);
    return 0;
}

static int open_fixture_executor_memory(void **out)
{
    const char *device = NULL;
    for (int k = tandem_device_count() - 1; k >= 0; k--)
        if (tandem_device_is_present(tandem_device_get(k)->name)) device = tandem_device_get(k)->name;
    return open_on((fixture **)out, device);
}

/* What is allocated for memory that is not the host's; the device itself is a stand-in, whose own allocations
 * do not fail. */
static int open_fixture_on_gpu(void **out)
{
    if (!stand_in_library_open()) fail_msg("%s", dlerror());
    return open_on((fixture **)out, "cuda:0");
}

static int close_fixture_executor_memory(void **out)
{
    fixture *f = *out;
    if (!f->worker) return 0;
    f->backend->executor_close(f->executor);
    f->backend->worker_close(f->worker);
    tandem_step_close(f->step);
    tandem_graph_close(f->graph);
    (void)unlink(f->path);
    *strrchr(f->path, '/') = '\0';
    return rmdir(f->path);
}

static tandem_status reopen(fixture *f, tandem_error *error)
{
    tandem_executor *before = f->executor;
    f->executor = NULL;
    const tandem_status status = open_executor_executor_memory(f, NULL, error);
    if (status != TANDEM_OK) {
        assert_null(f->executor);
        f->executor = before;
    } else {
        f->backend->executor_close(before);
    }
    return status;
}

static tandem_status evaluate(fixture *f, tandem_error *error)
{
    tandem_evaluation seen;
    return f->backend->executor_evaluate(f->executor, NULL, 8, &seen, error);
}

static tandem_status save_executor_memory(fixture *f, tandem_error *error)
{
    return f->backend->executor_save(f->executor, f->path, 3, "", error);
}

static tandem_status restore(fixture *f, tandem_error *error)
{
    tandem_checkpoint_info info;
    return f->backend->executor_restore(f->executor, f->path, &info, error);
}

static tandem_status export_weights(fixture *f, tandem_error *error)
{
    return f->backend->executor_export(f->executor, f->path, error);
}

static tandem_status import_weights(fixture *f, tandem_error *error)
{
    return f->backend->executor_import(f->executor, f->path, error);
}

/* The number of failures it survived. */
static long survive_executor_memory(fixture *f, tandem_status (*run)(fixture *, tandem_error *))
{
    for (long k = 0;; k++) {
        tandem_error error = {0};
        tandem_fail_allocation_after(k);
        const tandem_status status = run(f, &error);
        const int failed = tandem_allocation_failed();
        tandem_fail_allocation_after(-1);
        assert_int_equal(status, failed ? TANDEM_NO_MEMORY : TANDEM_OK);
        if (!failed) return k;
        assert_true(error.text[0] != '\0');
    }
}

static void require_device(const fixture *f)
{
    if (f->worker) return;
    puts("SKIP: this machine has none of tandem's devices");
    skip();
}

static void an_executor_survives(void **state)
{
    require_device(*state);
    assert_true(survive_executor_memory(*state, reopen) > 10);
}

static void an_evaluation_survives(void **state)
{
    require_device(*state);
    (void)survive_executor_memory(
        *state, evaluate); /* all but views of a device was taken when the executor was opened */
}

static void a_checkpoint_survives(void **state)
{
    require_device(*state);
    assert_true(survive_executor_memory(*state, save_executor_memory) > 0);
    (void)survive_executor_memory(*state, restore);
}

static void weights_in_a_file_survive(void **state)
{
    require_device(*state);
    assert_true(survive_executor_memory(*state, export_weights) > 0);
    assert_true(survive_executor_memory(*state, import_weights) > 1);
}

/* What does not fit is refused; only the batch that would fit may go unsaid. */
static void a_refusal_survives(void **state)
{
    fixture *f = *state;
    require_device(f);
    const uint64_t limit = f->backend->executor_memory(f->executor)->peak - 1;
    tandem_executor *kept = f->executor;
    for (int failed = 1, k = 0; failed; k++) {
        tandem_error error = {0};
        tandem_fail_allocation_after(k);
        const tandem_status status = open_executor_executor_memory(f, &limit, &error);
        failed = tandem_allocation_failed();
        tandem_fail_allocation_after(-1);
        assert_true(status == TANDEM_INFEASIBLE || (failed && status == TANDEM_NO_MEMORY));
        if (!failed) assert_non_null(strstr(error.text, "would fit"));
        assert_ptr_equal(f->executor, kept);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_executor_survives),  cmocka_unit_test(an_evaluation_survives),
        cmocka_unit_test(a_checkpoint_survives), cmocka_unit_test(weights_in_a_file_survive),
        cmocka_unit_test(a_refusal_survives),
    };
    return cmocka_run_group_tests_name("executor: memory runs out", tests, open_fixture_executor_memory,
                                       close_fixture_executor_memory) +
           cmocka_run_group_tests_name("executor on a GPU: memory runs out", tests, open_fixture_on_gpu,
                                       close_fixture_executor_memory);
}
