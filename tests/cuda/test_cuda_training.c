/* folder: backend, and others for devices, plans or robust means */
/* Whole training steps on the CUDA backend where there is no card: the executor, the worker and
 * libtandem_cuda.so are those of the product, but that the library is linked with stand_in.h instead of
 * NVIDIA's. Its card's memory is apart: a host that touches it dies. Its lanes beside the first do nothing
 * before somebody waits for them. */
#include <dlfcn.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/device/worker.h"
#include "kernels/cuda/kernels.h"
#include "tests/cuda/stand_in_library.h"
#include "tests/support/tandem_test.h"
#include "tests/support/training_run.h"

/* What tests change of the stand-in that ranks open; ranks are forked, so that each has its own. */
static int *fails_after, *has_device_memory, *n_gpu, *refuses_lock;
static int64_t *memory_left, *max_locked;
static int (*open_things)(void);

static const char *const models[] = {"mlp:width=16", "resnet20:width=4,blocks=1",
                                     "gpt_tiny:width=16,depth=1,length=8"};
enum { N_MODEL = 3, EXTRA_BYTES = 1 << 16 };

static int open_training_stand_in(void **state)
{
    void *library = stand_in_library_open();
    if (!library) fail_msg("%s", dlerror());
    fails_after = dlsym(library, "stand_in_calls_to_failure");
    has_device_memory = dlsym(library, "stand_in_has_device_memory");
    memory_left = dlsym(library, "stand_in_memory_left");
    max_locked = dlsym(library, "stand_in_max_locked");
    refuses_lock = dlsym(library, "stand_in_lock_refused_on");
    n_gpu = dlsym(library, "stand_in_n_gpu");
    *(void **)(void *)&open_things = dlsym(library, "stand_in_open_handles");
    assert_true(fails_after && has_device_memory && memory_left && open_things && max_locked &&
                refuses_lock && n_gpu);
    *has_device_memory = 1;
    *n_gpu = 2;
    return training_folder_open(state);
}

static experiment gpu_experiment(const char *model)
{
    return (experiment){.model = model,
                        .device = "cuda:0",
                        .batch = 4,
                        .n_rank = 1,
                        .steps = 3,
                        .precision = TANDEM_PRECISION_FP32,
                        .seed = 3,
                        .killed_rank = -1,
                        .open_things = open_things};
}

static record *run_on_cpu(experiment e)
{
    e.device = training_weakest();
    e.open_things = NULL;
    return training_run(&e);
}

/* Where nothing was meant to fail. */
static void check_whole(const experiment *e, const record *r)
{
    for (int rank = 0; rank < e->n_rank; rank++) {
        assert_int_equal(r->status[rank], TANDEM_OK);
        assert_int_equal(r->steps_done[rank], e->steps);
        assert_int_equal(r->allocated[rank], r->planned[rank]);
        assert_int_equal(r->open_things[rank], 0);
    }
    /* What is no longer free on the card is the plan, and tables beside it. */
    assert_in_range(r->resident[0], r->planned[0], r->planned[0] + EXTRA_BYTES);
}

static void check_close(const experiment *e, const record *a, const record *b, double tolerance)
{
    for (int i = 0; i < e->steps; i++)
        if (!(fabs(a->loss[0][i] - b->loss[0][i]) <= tolerance * b->loss[0][i]))
            fail_msg("%s, step %d: loss %.9g, should be %.9g", e->model, i, a->loss[0][i], b->loss[0][i]);
}

static void losses_are_those_of_the_cpu(void **state)
{
    training_require_device();
    const struct {
        tandem_precision precision;
        double tolerance;
    } by[] = {{TANDEM_PRECISION_FP32, 1e-4}, {TANDEM_PRECISION_INT8, 3e-2}};
    for (int m = 0; m < N_MODEL; m++)
        for (int k = 0; k < 2; k++) {
            experiment e = gpu_experiment(models[m]);
            e.precision = by[k].precision;
            e.evaluate = 6;
            record *gpu = training_run(&e), *cpu = run_on_cpu(e);
            check_whole(&e, gpu);
            check_close(&e, gpu, cpu, by[k].tolerance);
            if (k == 0) assert_int_equal(gpu->evaluated[0].correct, cpu->evaluated[0].correct);
            assert_true(gpu->loss[0][e.steps - 1] != gpu->loss[0][0]);
            training_forget(cpu);
            training_forget(gpu);
        }
}

static void every_precision_trains(void **state)
{
    experiment e = gpu_experiment(models[2]);
    record *wide = training_run(&e);
    for (int p = TANDEM_PRECISION_FP32 + 1; p <= TANDEM_PRECISION_INT8_FULL; p++) {
        e.precision = (tandem_precision)p;
        record *narrow = training_run(&e);
        check_whole(&e, narrow);
        check_close(&e, narrow, wide, 5e-2);
        assert_true(memcmp(narrow->loss[0], wide->loss[0], (size_t)e.steps * sizeof(double)) != 0);
        training_forget(narrow);
    }
    training_forget(wide);
}

/* Where both products of an attention are in bf16 it is one task, unless somebody looks at the terms of
 * gradients: then it is separate operators, with the same draws of dropout. */
static void attention_trains_as_its_parts_do(void **state)
{
    experiment e = gpu_experiment("gpt_tiny:width=16,depth=1,length=19,dropout=0.9");
    e.precision = TANDEM_PRECISION_BF16;
    record *fused = training_run(&e);
    e.variant.n_recompute_segment = 2;
    record *again = training_run(&e);
    e.variant = (tandem_step_options){.separate_partial_grads = 1};
    record *parts = training_run(&e);
    check_whole(&e, fused);
    check_whole(&e, parts);
    check_close(&e, fused, parts, 5e-5);                /* other draws: from 1e-4 to 1e-3 */
    assert_true(fused->planned[0] < parts->planned[0]); /* an evaluation would need more than both */
    assert_memory_equal(again->loss[0], fused->loss[0], (size_t)e.steps * sizeof(double));
    assert_true(memcmp(fused->loss[0], parts->loss[0], (size_t)e.steps * sizeof(double)) != 0);
    training_forget(parts);
    training_forget(again);
    training_forget(fused);
}

/* Micro-steps, recomputation, clipping, a scaled loss, smoothed labels, several buckets, patterns of decay.
 * */
static void variants_are_those_of_the_cpu(void **state)
{
    training_require_device();
    tandem_optimizer_options slow = {.kind = TANDEM_SGD, .rate = 0.05f, .momentum = 0.9f, .decay = 0.1f};
    for (int m = 1; m < N_MODEL; m++)
        for (int v = 0; v < 4; v++) {
            experiment e = gpu_experiment(models[m]);
            e.batch = 2;
            e.bucket_bytes = 4096;
            e.variant = (tandem_step_options){.n_micro = v == 0 ? 3 : 1,
                                              .n_recompute_segment = v == 1 ? TANDEM_RECOMPUTE_SQRT : 0};
            e.clip = v == 2 ? 0.05 : 0;
            e.loss_scale = v == 3 ? 256 : 0;
            e.label_smoothing = v == 3 ? 0.1f : 0;
            e.no_decay = "*.weight";
            if (m == 1) e.optimizer = &slow;
            record *gpu = training_run(&e), *cpu = run_on_cpu(e);
            check_whole(&e, gpu);
            check_close(&e, gpu, cpu, 1e-4);
            if (v >= 2)
                assert_true(fabs(gpu->report[0][0].gradient_norm - cpu->report[0][0].gradient_norm) <=
                            1e-3 * cpu->report[0][0].gradient_norm);
            training_forget(cpu);
            training_forget(gpu);
        }
}

static void the_same_bits_again_and_after_a_checkpoint(void **state)
{
    training_require_device();
    for (int m = 0; m < N_MODEL; m++) {
        char path[] = "/tmp/tandem-cuda-XXXXXX";
        const int file = mkstemp(path);
        assert_true(file >= 0);
        (void)close(file);
        experiment e = gpu_experiment(models[m]);
        e.precision = TANDEM_PRECISION_INT8;
        e.steps = 4;
        e.hash_gradients = 1;
        record *first = training_run(&e), *second = training_run(&e);
        e.steps = 2;
        e.save = path;
        record *half = training_run(&e);
        e.steps = 4;
        e.save = NULL;
        e.resume = path;
        record *rest = training_run(&e);
        check_whole(&e, first);
        check_whole(&e, rest);
        assert_int_equal(rest->resumed_at[0], 2);
        assert_memory_equal(first->loss[0], second->loss[0], 4 * sizeof(double));
        assert_memory_equal(first->gradients[0], second->gradients[0], 4 * sizeof(uint64_t));
        assert_memory_equal(first->loss[0], half->loss[0], 2 * sizeof(double));
        assert_memory_equal(first->loss[0] + 2, rest->loss[0] + 2, 2 * sizeof(double));
        assert_memory_equal(first->gradients[0] + 2, rest->gradients[0] + 2, 2 * sizeof(uint64_t));
        training_forget(rest);
        training_forget(half);
        training_forget(second);
        training_forget(first);
        (void)unlink(path);
    }
}

static void weights_in_a_file_are_the_weights(void **state)
{
    training_require_device();
    char path[] = "/tmp/tandem-cuda-XXXXXX";
    const int file = mkstemp(path);
    assert_true(file >= 0);
    (void)close(file);
    experiment e = gpu_experiment(models[1]);
    e.export = path;
    record *gpu = training_run(&e);
    check_whole(&e, gpu);
    e.export = NULL;
    e.init = path;
    e.evaluate = 8;
    record *again = training_run(&e), *cpu = run_on_cpu(e);
    check_whole(&e, again);
    check_close(&e, again, cpu, 1e-4);
    assert_int_equal(again->evaluated[0].correct, cpu->evaluated[0].correct);
    assert_true(again->loss[0][0] != gpu->loss[0][0]);
    training_forget(cpu);
    training_forget(again);
    training_forget(gpu);
    (void)unlink(path);
}

/* The checkpoint compares the bits of weights and state of both. */
static void a_gpu_and_a_cpu_train_together(void **state)
{
    training_require_device();
    for (int m = 0; m < N_MODEL; m++) {
        char path[] = "/tmp/tandem-cuda-XXXXXX";
        const int file = mkstemp(path);
        assert_true(file >= 0);
        (void)close(file);
        experiment e = gpu_experiment(models[m]);
        e.n_rank = 2;
        e.batch = 2;
        e.second_device = training_weakest();
        e.bucket_bytes = 4096;
        e.hash_gradients = 1;
        e.clip = m == 0 ? 0.1 : 0;
        e.save = path;
        e.evaluate = 5;
        record *mixed = training_run(&e);
        e.second_device = NULL;
        record *alike = run_on_cpu(e);
        mixed->open_things[1] = 0; /* it opened none */
        check_whole(&e, mixed);
        check_close(&e, mixed, alike, 1e-4);
        assert_memory_equal(mixed->loss[0], mixed->loss[1], (size_t)e.steps * sizeof(double));
        assert_memory_equal(mixed->gradients[0], mixed->gradients[1], (size_t)e.steps * sizeof(uint64_t));
        assert_int_equal(mixed->evaluated[0].correct + mixed->evaluated[1].correct,
                         alike->evaluated[0].correct + alike->evaluated[1].correct);
        training_forget(alike);
        training_forget(mixed);
        (void)unlink(path);
    }
}

/* --- What ranks exchange in ----------------------------------------------------------------------------- */

static experiment ranks_experiment(const char *model, int n_rank, const char *second)
{
    experiment e = gpu_experiment(model);
    e.n_rank = n_rank;
    e.batch = 2;
    e.second_device = second;
    e.bucket_bytes = 4096;
    e.hash_gradients = 1;
    return e;
}

/* Ranks on one card, on two, and on one beside a CPU; with graphs and, where gradients are clipped, judged on
 * the way. */
static experiment mixed_ranks(int case_index)
{
    static const char *const second[] = {NULL, "cuda:1", ""};
    experiment e = ranks_experiment(models[case_index % N_MODEL], 2 + case_index % 2, second[case_index % 3]);
    if (e.second_device && !*e.second_device) e.second_device = training_weakest();
    e.precision = case_index % 2 ? TANDEM_PRECISION_INT8 : TANDEM_PRECISION_FP32;
    e.clip = case_index % 4 == 3 ? 0.1 : 0;
    return e;
}
enum { N_CASE = 6 };

/* All of the ranks share memory, or none does; `why` (NULL: nothing) is reported on all. */
static record *run_sharing(experiment e, const training_file *file, int shares, const char *why)
{
    e.save = file->path;
    record *r = training_run_through(&e);
    for (int rank = 0; rank < e.n_rank; rank++) {
        assert_int_equal(r->shares[rank], shares);
        if (!strstr(r->shared_memory_error[rank], why ? why : "") || !*r->shared_memory_error[rank] != !why)
            fail_msg("rank %d: '%s'", rank, r->shared_memory_error[rank]);
        const int is_cpu = rank == 1 && e.second_device && strncmp(e.second_device, "cpu", 3) == 0;
        if (!is_cpu) assert_int_equal(r->open_things[rank], 0);
    }
    return r;
}

static void shared_memory_and_network_have_the_same_bits(void **state)
{
    training_require_device();
    const training_file shared = training_file_named("shared"), network = training_file_named("network");
    for (int case_index = 0; case_index < N_CASE; case_index++) {
        experiment e = mixed_ranks(case_index);
        record *a = run_sharing(e, &shared, 1, NULL);
        e.over_network = 1;
        record *b = run_sharing(e, &network, 0, NULL);
        training_check_same_bits(a, b, &e);
        assert_true(training_files_equal(shared.path, network.path));
        training_forget(b);
        training_forget(a);
    }
}

/* A driver that locks no shared memory, of one rank or two of three; and one that locks a page, and not as
 * much as all gradients. */
static void where_a_driver_refuses_all_use_the_network(void **state)
{
    training_require_device();
    const training_file shared = training_file_named("shared"), network = training_file_named("network");
    static const struct {
        int gpu;
        int64_t tolerance;
        const char *why;
    } rows[] = {{0, INT64_MAX,
                 "rank 0: device 'cuda:0' failed to page-lock memory that ranks share: not "
                 "supported"},
                {1, INT64_MAX,
                 "rank 1: device 'cuda:1' failed to page-lock memory that ranks share: not "
                 "supported"},
                {-1, 4096, "rank 0: device 'cuda:0' failed to page-lock memory that ranks share: no memory"}};
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        const experiment e = ranks_experiment(models[1], 3, rows[k].gpu < 0 ? training_weakest() : "cuda:1");
        record *right = run_sharing(e, &shared, 1, NULL);
        *refuses_lock = rows[k].gpu;
        *max_locked = rows[k].tolerance;
        record *r = run_sharing(e, &network, 0, rows[k].why);
        *refuses_lock = -1;
        *max_locked = INT64_MAX;
        training_check_same_bits(right, r, &e);
        assert_true(training_files_equal(shared.path, network.path));
        training_forget(r);
        training_forget(right);
    }
}

/* What is shared is in the place of a rank's own copy: as much is page-locked, but for the page that is
 * not full. */
static void nothing_is_locked_twice(void **state)
{
    int (*max_host_bytes)(void) = NULL;
    *(void **)(void *)&max_host_bytes = dlsym(stand_in_library_open(), "stand_in_max_host_bytes");
    assert_non_null(max_host_bytes);
    experiment e = ranks_experiment(models[1], 2, NULL);
    e.open_things = max_host_bytes;
    int tolerance[3];
    /* shared; by choice over the network; since a driver refuses all but a page */
    for (int case_index = 0; case_index < 3; case_index++) {
        e.over_network = case_index == 1;
        *max_locked = case_index == 2 ? 4096 : INT64_MAX;
        record *r = training_run_through(&e);
        assert_int_equal(r->shares[0], case_index == 0);
        tolerance[case_index] = r->open_things[0];
        training_forget(r);
    }
    *max_locked = INT64_MAX;
    assert_true(tolerance[1] > 4 * 4096);
    assert_in_range(tolerance[0], tolerance[1], tolerance[1] + 4096);
    assert_int_equal(tolerance[2], tolerance[1]);
}

/* Exits after its first bucket is ready; the other ranks wait for the next one. */
static void die_in_an_all_reduce(void *context, const tandem_executor *executor, int task)
{
    (void)executor;
    const training_view *view = context;
    const tandem_step *step = view->step;
    if (step->n_bucket < 2) abort();
    if (view->rank == 1 && view->index == 2 && task == step->bucket[0].reduce_task) (void)raise(SIGKILL);
}

static void a_rank_that_dies_in_an_exchange_wakes_the_others(void **state)
{
    training_require_device();
    for (int case_index = 0; case_index < 2 * 3; case_index++) {
        experiment e = mixed_ranks(case_index % 3);
        e.n_rank = 3;
        e.over_network = case_index / 3;
        e.observer = die_in_an_all_reduce;
        e.fails = e.kills = 1;
        record *r = training_run(&e);
        for (int rank = 0; rank < e.n_rank; rank += 2) {
            assert_int_equal(r->shares[rank], !e.over_network);
            /* the third was tried; a rank that the machine kept waiting may still end the second */
            assert_in_range(r->steps_done[rank], 2, 3);
            assert_int_equal(r->status[rank], TANDEM_RANK_FAILED);
            assert_int_equal(r->error[rank].rank, 1);
            assert_int_equal(tandem_status_exit_code(r->status[rank]), 6);
        }
        training_forget(r);
    }
}

/* Runs two steps in this process and looks at the times of the last. */
static void check_times(int timed)
{
    const tandem_backend_api *backend = tandem_backend_get(TANDEM_BACKEND_VERSION);
    tandem_graph *graph = NULL;
    tandem_step *step = NULL;
    tandem_worker *worker = NULL;
    tandem_executor *executor = NULL;
    double loss = 0;
    const tandem_step_options variant = {.n_micro = 2};
    const tandem_worker_options worker_options = {
        .device = "cuda:0", .n_rank = 1, .cpu = -1, .timeout_ns = INT64_C(1000000000)};
    assert_int_equal(tandem_graph_open(&graph, models[0], 2, NULL), TANDEM_OK);
    assert_int_equal(tandem_step_open_with(&step, graph, TANDEM_BF16, 4096, &variant, NULL), TANDEM_OK);
    assert_int_equal(backend->worker_open(&worker, &worker_options, NULL), TANDEM_OK);
    const tandem_executor_options how = {.step = step, .global_batch = 4, .with_task_times = timed};
    assert_int_equal(backend->executor_open(&executor, worker, &how, NULL), TANDEM_OK);
    for (int i = 0; i < 2; i++) assert_int_equal(backend->executor_step(executor, i, &loss, NULL), TANDEM_OK);
    const tandem_step_times *times = backend->executor_times(executor);
    int64_t before = 0;
    for (int row = 0; row < 2 * step->n_task; row++) {
        const tandem_task *task = &step->task[row % step->n_task];
        const int runs = task->active && task->kind != TANDEM_TASK_REDUCE &&
                         (task->kind == TANDEM_TASK_UPDATE ? row >= step->n_task : timed);
        const int64_t start = times->all_start_ns[row], end = times->all_end_ns[row];
        assert_true(runs ? start >= before && end >= start : start == -1 && end == -1);
        if (runs) before = end;
    }
    assert_true(before > 0);
    for (int b = 0; b < step->n_bucket; b++) assert_true(times->wait_ns[b] >= 0);
    backend->executor_close(executor);
    backend->worker_close(worker);
    tandem_step_close(step);
    tandem_graph_close(graph);
    assert_int_equal(open_things(), 0);
}

static void times_are_in_order_and_cost_nothing_unasked(void **state)
{
    check_times(1);
    check_times(0);
}

static void a_divergence_names_its_operator(void **state)
{
    experiment e = gpu_experiment(models[0]);
    const tandem_optimizer_options wild = {.kind = TANDEM_SGD, .rate = 1e30f, .momentum = 0.9f};
    e.optimizer = &wild;
    e.steps = 20;
    record *r = training_run(&e);
    assert_int_equal(r->status[0], TANDEM_LIMIT_EXCEEDED);
    assert_non_null(strstr(r->error[0].text, "diverged in step"));
    assert_non_null(strstr(r->error[0].text, "of operator '"));
    training_forget(r);
}

static void what_does_not_fit_is_said_before_the_first_step(void **state)
{
    const int64_t before = *memory_left;
    experiment e = gpu_experiment(models[0]);
    record *whole = training_run(&e);
    /* the device takes some bytes for itself beside its tickets: as many are missing */
    *memory_left = (int64_t)whole->planned[0] + TANDEM_CUDA_TICKETS * (int64_t)sizeof(uint32_t);
    record *r = training_run(&e);
    *memory_left = before;
    assert_int_equal(r->status[0], TANDEM_NO_MEMORY);
    assert_int_equal(r->steps_done[0], 0);
    assert_non_null(strstr(r->error[0].text, "cuda:0"));
    assert_non_null(strstr(r->error[0].text, "weights"));
    assert_non_null(strstr(r->error[0].text, "batch 2 would fit"));
    training_forget(r);
    training_forget(whole);
}

static void lose_gpu_in_task(void *context, const tandem_executor *executor, int task)
{
    (void)executor;
    (void)task;
    const training_view *view = context;
    if (view->rank == 0 && view->index == 1) *fails_after = 0;
}

static void a_gpu_lost_in_a_step_ends_the_run(void **state)
{
    training_require_device();
    experiment e = gpu_experiment(models[2]);
    e.observer = lose_gpu_in_task;
    e.fails = 1;
    record *alone = training_run(&e);
    assert_int_equal(alone->status[0], TANDEM_NO_DEVICE);
    assert_int_equal(alone->steps_done[0], 2); /* the second was tried */
    assert_non_null(strstr(alone->error[0].text, "the GPU is gone"));
    assert_int_equal(tandem_status_exit_code(alone->status[0]), 4);
    e.n_rank = 2;
    e.second_device = training_weakest();
    record *two = training_run(&e);
    assert_int_equal(two->status[0], TANDEM_NO_DEVICE);
    assert_int_equal(two->status[1], TANDEM_RANK_FAILED);
    assert_int_equal(two->error[1].rank, 0);
    assert_int_equal(tandem_status_exit_code(two->status[1]), 6);
    training_forget(two);
    training_forget(alone);
}

/* A thread has the cores of the one that begins it, and the driver begins some when a card is opened. */
static void a_rank_is_pinned_after_the_opening_of_its_gpu(void **state)
{
    const int *cores_at_open = dlsym(stand_in_library_open(), "stand_in_cores_at_open");
    cpu_set_t before, after;
    int cpu = 0, ended = -1;
    assert_true(cores_at_open && sched_getaffinity(0, sizeof before, &before) == 0);
    if (CPU_COUNT(&before) < 2) {
        printf("SKIP: one core is not pinned to fewer\n");
        skip();
    }
    while (!CPU_ISSET((size_t)cpu, &before)) cpu++;
    const pid_t rank = fork(); /* so that the other tests are not pinned */
    if (rank == 0) {
        tandem_worker *worker = NULL;
        const tandem_worker_options options = {.device = "cuda:0", .n_rank = 1, .cpu = cpu};
        int is_good = tandem_worker_open(&worker, &options, NULL) == TANDEM_OK &&
                      *cores_at_open == CPU_COUNT(&before) &&
                      sched_getaffinity(0, sizeof after, &after) == 0 && CPU_COUNT(&after) == 1 &&
                      CPU_ISSET((size_t)cpu, &after);
        tandem_worker_close(worker);
        _exit(!is_good);
    }
    assert_int_equal(waitpid(rank, &ended, 0), rank);
    assert_true(WIFEXITED(ended) && WEXITSTATUS(ended) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losses_are_those_of_the_cpu),
        cmocka_unit_test(every_precision_trains),
        cmocka_unit_test(attention_trains_as_its_parts_do),
        cmocka_unit_test(variants_are_those_of_the_cpu),
        cmocka_unit_test(the_same_bits_again_and_after_a_checkpoint),
        cmocka_unit_test(weights_in_a_file_are_the_weights),
        cmocka_unit_test(a_gpu_and_a_cpu_train_together),
        cmocka_unit_test(shared_memory_and_network_have_the_same_bits),
        cmocka_unit_test(where_a_driver_refuses_all_use_the_network),
        cmocka_unit_test(nothing_is_locked_twice),
        cmocka_unit_test(a_rank_that_dies_in_an_exchange_wakes_the_others),
        cmocka_unit_test(times_are_in_order_and_cost_nothing_unasked),
        cmocka_unit_test(a_divergence_names_its_operator),
        cmocka_unit_test(what_does_not_fit_is_said_before_the_first_step),
        cmocka_unit_test(a_gpu_lost_in_a_step_ends_the_run),
        cmocka_unit_test(a_rank_is_pinned_after_the_opening_of_its_gpu),
    };
    return cmocka_run_group_tests_name("training on cards", tests, open_training_stand_in,
                                       training_folder_remove);
}
