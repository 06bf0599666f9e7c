#include "tests/support/training_run.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "tests/support/tandem_test.h"

static const char *device_of(const experiment *e, int rank)
{
    return rank == 1 && e->second_device ? e->second_device : e->device;
}

static tandem_status open_step_training_run(tandem_step **step, const tandem_graph *graph,
                                            const experiment *e, int rank, tandem_error *error)
{
    tandem_device device;
    tandem_step_options variant = e->variant;
    variant.with_norm = e->clip > 0 || e->loss_scale != 0;
    tandem_status status = tandem_device_find(&device, device_of(e, rank), error);
    if (status == TANDEM_OK)
        status = tandem_device_open_step(step, &device, graph, e->bucket_bytes, &variant, error);
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

static tandem_status resume(const tandem_backend_api *backend, tandem_executor *executor, const experiment *e,
                            int64_t *step, tandem_error *error)
{
    tandem_checkpoint_info info;
    const tandem_status status = backend->executor_restore(executor, e->resume, &info, error);
    if (status == TANDEM_OK) *step = info.step;
    return status;
}

/* FNV-1a over the bits. */
static uint64_t hash_gradients(const tandem_backend_api *backend, const tandem_executor *executor,
                               const tandem_graph *graph)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (int p = 0; p < graph->n_parameter; p++) {
        const uint32_t *word = backend->executor_value(executor, TANDEM_PARAMETER(p), 1, NULL);
        for (int64_t k = 0; k < graph->parameter[p].elements; k++)
            hash = (hash ^ word[k]) * UINT64_C(0x100000001b3);
    }
    return hash;
}

static tandem_status run_rank(const experiment *e, int rank, const char *store, record *r,
                              tandem_error *error)
{
    const tandem_backend_api *backend = tandem_backend_get(TANDEM_BACKEND_VERSION);
    tandem_graph *graph = NULL;
    tandem_step *step = NULL;
    tandem_worker *worker = NULL;
    tandem_executor *executor = NULL;
    tandem_status status = tandem_graph_open(&graph, e->model, e->batch, error);
    if (status == TANDEM_OK) status = open_step_training_run(&step, graph, e, rank, error);
    if (status == TANDEM_OK)
        status = backend->worker_open(
            &worker,
            &(tandem_worker_options){device_of(e, rank), rank, e->n_rank, store, -1, INT64_C(20000000000),
                                     e->over_network, e->wires_differ && rank == 0 ? TANDEM_F32 : e->wire,
                                     NULL, NULL, 0},
            error);
    if (status == TANDEM_OK)
        status = backend->executor_open(
            &executor, worker,
            &(tandem_executor_options){.step = step,
                                       .data = e->data,
                                       .seed = e->seed,
                                       .global_batch = e->batch * step->options.n_micro * e->n_rank,
                                       .first_sample = e->batch * step->options.n_micro * rank,
                                       .memory_limit_bytes = e->memory_bytes ? &e->memory_bytes : NULL,
                                       .optimizer = e->optimizer,
                                       .clip = e->clip,
                                       .label_smoothing = e->label_smoothing,
                                       .loss_scale = e->loss_scale,
                                       .no_decay = e->no_decay,
                                       .emulation = e->emulation,
                                       .with_evaluation = e->evaluate > 0,
                                       .allow_nan = e->allow_nan},
            error);
    if (status == TANDEM_OK) r->shares[rank] = backend->worker_shares_memory(worker);
    if (status == TANDEM_OK)
        (void)snprintf(r->shared_memory_error[rank], sizeof r->shared_memory_error[rank], "%s",
                       backend->worker_shared_memory_error(worker));
    training_view view = {.step = step, .rank = rank, .n_rank = e->n_rank};
    if (status == TANDEM_OK && e->init) status = backend->executor_import(executor, e->init, error);
    if (status == TANDEM_OK && e->resume) status = resume(backend, executor, e, &r->resumed_at[rank], error);
    if (status == TANDEM_OK && e->observer) backend->executor_observe(executor, e->observer, &view);
    for (int i = (int)r->resumed_at[rank]; i < e->steps && status == TANDEM_OK; i++) {
        view.index = i;
        if (e->rate) backend->executor_set_rate(executor, e->rate(i));
        status = backend->executor_step(executor, i, &r->loss[rank][i], error);
        if (status == TANDEM_OK && e->save &&
            (i + 1 == e->steps || (e->save_every && (i + 1) % e->save_every == 0)))
            status = backend->executor_save(executor, e->save, i + 1, "by a test", error);
        if (status == TANDEM_OK) r->report[rank][i] = backend->executor_report(executor);
        if (status == TANDEM_OK && e->export && i + 1 == e->steps)
            status = backend->executor_export(executor, e->export, error);
        if (status == TANDEM_OK && e->hash_gradients)
            r->gradients[rank][i] = hash_gradients(backend, executor, graph);
        r->steps_done[rank] = i + 1;
    }
    if (status == TANDEM_OK && e->evaluate)
        status = backend->executor_evaluate(executor, NULL, e->evaluate, &r->evaluated[rank], error);
    if (status != TANDEM_OK) return status; /* the process ends; a broken run is not closed politely */
    r->allocated[rank] = backend->executor_allocated_bytes(executor);
    r->planned[rank] = backend->executor_memory(executor)->peak;
    r->evaluation[rank] = backend->executor_memory(executor)->evaluation;
    r->resident[rank] = backend->executor_resident_bytes(executor);
    backend->executor_close(executor);
    backend->worker_close(worker);
    tandem_step_close(step);
    tandem_graph_close(graph);
    if (e->open_things) r->open_things[rank] = e->open_things();
    return TANDEM_OK;
}

static void empty_directory(const char *path)
{
    char command[256];
    (void)snprintf(command, sizeof command, "rm -rf '%s'", path);
    assert_int_equal(system(command), 0);
}

record *training_run(const experiment *e)
{
    char store[] = "/tmp/tandem-training-XXXXXX";
    assert_non_null(mkdtemp(store));
    record *r = mmap(NULL, sizeof *r, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(r != MAP_FAILED);
    pid_t pid[MAX_RANKS];
    for (int rank = 0; rank < e->n_rank; rank++) {
        pid[rank] = fork();
        assert_true(pid[rank] >= 0);
        if (pid[rank]) continue;
        (void)signal(SIGSEGV, SIG_DFL); /* cmocka's handlers would run the remaining tests in this process */
        (void)signal(SIGABRT, SIG_DFL);
        tandem_error error = {0};
        r->status[rank] = run_rank(e, rank, store, r, &error);
        r->failed_ns[rank] = tandem_now_ns();
        r->error[rank] = error;
        if (r->status[rank] != TANDEM_OK && !e->fails && e->killed_rank < 0 &&
            r->status[rank] != TANDEM_LIMIT_EXCEEDED && r->status[rank] != TANDEM_INFEASIBLE &&
            r->status[rank] != TANDEM_NO_MEMORY)
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
        if (rank != e->killed_rank && !e->kills) assert_true(WIFEXITED(state));
    }
    empty_directory(store);
    return r;
}

static char folder[] = "/tmp/tandem-training-XXXXXX";

int training_folder_open(void **state) { return mkdtemp(folder) ? 0 : -1; }

int training_folder_remove(void **state)
{
    char command[64];
    (void)snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

training_file training_file_named(const char *name)
{
    training_file file;
    (void)snprintf(file.path, sizeof file.path, "%s/%s", folder, name);
    return file;
}

int training_files_equal(const char *a, const char *b)
{
    char *bytes[2] = {NULL, NULL};
    size_t n[2] = {0, 0};
    assert_int_equal(tandem_file_read(&bytes[0], &n[0], a, 1 << 28, NULL), TANDEM_OK);
    assert_int_equal(tandem_file_read(&bytes[1], &n[1], b, 1 << 28, NULL), TANDEM_OK);
    const int same = n[0] == n[1] && memcmp(bytes[0], bytes[1], n[0]) == 0;
    free(bytes[0]);
    free(bytes[1]);
    return same;
}

void training_forget(record *r) { (void)munmap(r, sizeof *r); }

record *training_run_through(const experiment *e)
{
    record *r = training_run(e);
    for (int rank = 0; rank < e->n_rank; rank++) {
        assert_int_equal(r->status[rank], TANDEM_OK);
        assert_int_equal(r->steps_done[rank], e->steps);
        assert_int_equal(r->allocated[rank], r->planned[rank]);
    }
    return r;
}

void training_check_same_bits(const record *a, const record *b, const experiment *e)
{
    for (int rank = 0; rank < e->n_rank; rank++) {
        assert_memory_equal(a->loss[rank], b->loss[rank], (size_t)e->steps * sizeof *a->loss[rank]);
        assert_memory_equal(a->gradients[rank], b->gradients[rank],
                            (size_t)e->steps * sizeof *a->gradients[rank]);
    }
}

const char *training_weakest(void)
{
    for (int k = 0; k < tandem_device_count(); k++)
        if (tandem_device_is_present(tandem_device_get(k)->name)) return tandem_device_get(k)->name;
    return NULL;
}

const char *training_strongest(void)
{
    const char *name = NULL;
    for (int k = 0; k < tandem_device_count(); k++)
        if (tandem_device_is_present(tandem_device_get(k)->name)) name = tandem_device_get(k)->name;
    return name;
}

void training_require_device(void)
{
    if (training_weakest()) return;
    puts("SKIP: this machine has none of tandem's devices");
    skip();
}
