/* Laws of real training runs: repeatable to the bit, and the same whether one rank or two do the work. Every run is a set of
 * forked ranks, because an instruction set and a Gloo connection belong to a process. */
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "tandem/backend.h"
#include "tandem/cluster.h"

enum { MOST_STEPS = 64, MOST_RANKS = 2 };

/* What ranks leave behind, in memory shared with them. */
typedef struct record {
    double loss[MOST_RANKS][MOST_STEPS];
    tandem_status status[MOST_RANKS];
    int dead_rank[MOST_RANKS];
    int64_t failed_ns[MOST_RANKS];
    uint64_t allocated[MOST_RANKS], planned[MOST_RANKS];
    volatile int64_t steps_done[MOST_RANKS];
} record;

typedef struct experiment {
    const char *model, *device;
    int64_t batch; /* local */
    int n_rank, steps;
    tandem_precision precision;
    uint64_t seed;
    int killed_rank; /* −1 = none: dies by SIGKILL once it has done three steps */
} experiment;

static tandem_status open_step(tandem_step **step, const tandem_graph *graph, const experiment *e, tandem_error *error)
{
    tandem_device device;
    tandem_status status = tandem_device_find(&device, e->device, error);
    if (status == TANDEM_OK) status = tandem_step_open(step, graph, device.wider, 0, error);
    for (int i = 0; i < graph->n_op && status == TANDEM_OK; i++) {
        const unsigned has = tandem_op_row_get(graph->op[i].kind)->precisions;
        if (!has) continue;
        tandem_precision p = e->precision; /* int8 where there is no int8_full, else fp32 */
        if (!(has & (1u << p)) && p == TANDEM_PRECISION_INT8_FULL) p = TANDEM_PRECISION_INT8;
        tandem_step_set(*step, i, has & (1u << p) ? p : TANDEM_PRECISION_FP32);
    }
    if (status == TANDEM_OK) tandem_step_resolve(*step);
    return status;
}

static tandem_status run_rank(const experiment *e, int rank, const char *store, record *r, tandem_error *error)
{
    const tandem_backend_api *backend = tandem_backend_get(TANDEM_BACKEND_VERSION);
    tandem_graph *graph = NULL;
    tandem_step *step = NULL;
    tandem_worker *worker = NULL;
    tandem_executor *executor = NULL;
    tandem_status status = tandem_graph_open(&graph, e->model, e->batch, error);
    if (status == TANDEM_OK) status = open_step(&step, graph, e, error);
    if (status == TANDEM_OK)
        status = backend->worker_open(
            &worker, &(tandem_worker_options){e->device, rank, e->n_rank, store, -1, INT64_C(20000000000)}, error);
    if (status == TANDEM_OK)
        status = backend->executor_open(&executor, worker,
                                        &(tandem_executor_options){.step = step,
                                                                   .seed = e->seed,
                                                                   .global_batch = e->batch * e->n_rank,
                                                                   .first_place = e->batch * rank},
                                        error);
    for (int i = 0; i < e->steps && status == TANDEM_OK; i++) {
        status = backend->executor_step(executor, i, &r->loss[rank][i], error);
        r->steps_done[rank] = i + 1;
    }
    if (status != TANDEM_OK) return status; /* the process ends; a broken run is not closed politely */
    r->allocated[rank] = backend->executor_allocated(executor);
    r->planned[rank] = backend->executor_memory(executor)->peak;
    backend->executor_close(executor);
    backend->worker_close(worker);
    tandem_step_close(step);
    tandem_graph_close(graph);
    return TANDEM_OK;
}

static void empty_directory(const char *path)
{
    char command[256];
    (void)snprintf(command, sizeof command, "rm -rf '%s'", path);
    assert_int_equal(system(command), 0);
}

static record *run(const experiment *e)
{
    char store[] = "/tmp/tandem-training-XXXXXX";
    assert_non_null(mkdtemp(store));
    record *r = mmap(NULL, sizeof *r, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(r != MAP_FAILED);
    pid_t pid[MOST_RANKS];
    for (int rank = 0; rank < e->n_rank; rank++) {
        pid[rank] = fork();
        assert_true(pid[rank] >= 0);
        if (pid[rank]) continue;
        (void)signal(SIGSEGV, SIG_DFL); /* cmocka's handlers would run the remaining tests in this process */
        (void)signal(SIGABRT, SIG_DFL);
        tandem_error error = {0};
        r->status[rank] = run_rank(e, rank, store, r, &error);
        r->failed_ns[rank] = tandem_now_ns();
        r->dead_rank[rank] = error.rank;
        if (r->status[rank] != TANDEM_OK && e->killed_rank < 0)
            fprintf(stderr, "rank %d: %s\n", rank, error.text);
        _exit(0);
    }
    if (e->killed_rank >= 0) {
        while (r->steps_done[e->killed_rank] < 3) (void)usleep(1000);
        (void)kill(pid[e->killed_rank], SIGKILL);
    }
    for (int rank = 0; rank < e->n_rank; rank++) {
        int state = 0;
        assert_int_equal(waitpid(pid[rank], &state, 0), pid[rank]);
        if (rank != e->killed_rank) assert_true(WIFEXITED(state));
    }
    empty_directory(store);
    return r;
}

static void forget(record *r) { (void)munmap(r, sizeof *r); }

static const char *weakest(void)
{
    for (int k = 0; k < tandem_device_count(); k++)
        if (tandem_device_present(tandem_device_get(k)->name)) return tandem_device_get(k)->name;
    return NULL;
}

static const char *strongest(void)
{
    const char *name = NULL;
    for (int k = 0; k < tandem_device_count(); k++)
        if (tandem_device_present(tandem_device_get(k)->name)) name = tandem_device_get(k)->name;
    return name;
}

static void require_device(void)
{
    if (weakest()) return;
    puts("SKIP: this machine has none of tandem's devices");
    skip();
}

static const char *const models[] = {"mlp:width=64",
                                     "vit_tiny:width=48,depth=2",
                                     "gpt_tiny:width=32,depth=2,length=16",
                                     "gpt2_small:seq=8,width=32,layers=1,heads=2,vocabulary=200,positions=16",
                                     "bert_base:seq=16,width=32,layers=1,heads=2,vocabulary=200,positions=32",
                                     "bert_base:seq=16,width=32,layers=1,heads=2,vocabulary=200,positions=32,head=class",
                                     "vit_b16:image=8x8x3,patch=4,width=32,layers=1,heads=2,classes=10",
                                     "resnet20:width=8,blocks=1",
                                     "resnet18:width=4,image=16x16x3,classes=10",
                                     "resnet50:width=4,image=16x16x3,classes=10",
                                     "vgg16_bn:width=4,hidden=32,image=32x32x1,classes=10"};
enum { N_MODEL = 11, N_WITHOUT_BATCHNORM = 7 };

static void two_ranks_of_half_the_batch_follow_one(void **state)
{
    (void)state;
    require_device();
    for (int m = 0; m < N_WITHOUT_BATCHNORM; m++) {
        experiment e = {models[m], strongest(), 16, 1, 10, TANDEM_PRECISION_FP32, 7, -1};
        record *whole = run(&e);
        e.batch = 8;
        e.n_rank = 2;
        record *halves = run(&e);
        for (int i = 0; i < e.steps; i++) {
            assert_true(whole->loss[0][i] > 0);
            assert_true(fabs(halves->loss[0][i] - whole->loss[0][i]) <= 1e-4 * whole->loss[0][i]);
            assert_true(memcmp(&halves->loss[0][i], &halves->loss[1][i], sizeof(double)) == 0);
        }
        assert_true(whole->loss[0][9] != whole->loss[0][0]); /* it does learn */
        forget(whole);
        forget(halves);
    }
}

static void same_seed_same_losses_to_the_bit(void **state)
{
    (void)state;
    require_device();
    for (int m = 0; m < N_MODEL; m++)
        for (int n_rank = 1; n_rank <= 2; n_rank++)
            for (int p = 0; p < TANDEM_N_PRECISION; p++) {
                if (p == TANDEM_PRECISION_BF16) continue;
                experiment e = {models[m], weakest(), 4, n_rank, 4, (tandem_precision)p, 3, -1};
                record *first = run(&e), *second = run(&e);
                e.seed = 4;
                record *other = run(&e);
                for (int rank = 0; rank < n_rank; rank++) {
                    assert_int_equal(first->status[rank], TANDEM_OK);
                    assert_memory_equal(first->loss[rank], second->loss[rank], (size_t)e.steps * sizeof(double));
                    assert_int_equal(first->allocated[rank], first->planned[rank]);
                }
                assert_true(memcmp(first->loss[0], other->loss[0], (size_t)e.steps * sizeof(double)) != 0);
                forget(first);
                forget(second);
                forget(other);
            }
}

/* Rounding noise must not bend the first losses away from fp32's. */
static void low_precision_follows_fp32_at_first(void **state)
{
    (void)state;
    require_device();
    for (int m = 0; m < N_MODEL; m++) {
        experiment e = {models[m], strongest(), 16, 1, 3, TANDEM_PRECISION_FP32, 5, -1};
        tandem_device device;
        assert_int_equal(tandem_device_find(&device, e.device, NULL), TANDEM_OK);
        record *reference = run(&e);
        for (int p = 1; p < TANDEM_N_PRECISION; p++) {
            if (!(device.precisions & (1u << p))) continue;
            e.precision = (tandem_precision)p;
            record *narrow = run(&e);
            assert_int_equal(narrow->status[0], TANDEM_OK);
            assert_true(fabs(narrow->loss[0][0] - reference->loss[0][0]) < 0.05 * reference->loss[0][0]);
            assert_true(narrow->loss[0][0] != reference->loss[0][0]); /* it is not fp32 under another name */
            forget(narrow);
        }
        forget(reference);
    }
}

static void a_killed_rank_stops_the_others_soon(void **state)
{
    (void)state;
    require_device();
    const experiment e = {models[1], weakest(), 8, 2, MOST_STEPS, TANDEM_PRECISION_FP32, 1, 1};
    const int64_t begin = tandem_now_ns();
    record *r = run(&e);
    assert_int_equal(r->status[0], TANDEM_PEER);
    assert_int_equal(r->dead_rank[0], 1);
    assert_int_equal(tandem_status_exit_code(r->status[0]), 6);
    assert_true(r->failed_ns[0] - begin < INT64_C(30000000000));
    forget(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_ranks_of_half_the_batch_follow_one),
        cmocka_unit_test(same_seed_same_losses_to_the_bit),
        cmocka_unit_test(low_precision_follows_fp32_at_first),
        cmocka_unit_test(a_killed_rank_stops_the_others_soon),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
