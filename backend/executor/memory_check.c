/* memory_check.c: checks that a run fits into memory, on all ranks before any of them allocates: each rank
 * within its limit, the ranks on a GPU together within what is free there, and the ranks of a machine
 * together within what is available there (MemAvailable of Linux: what can be had without swapping). A rank
 * on a GPU takes its staging memory from the machine. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/executor/image_input.h"
#include "backend/executor/transfer.h"
#include "base/boot_id.h"
#include "base/quantity.h"
#include "graph/zoo/zoo.h"

/* What each rank sends to the others. */
typedef struct memory_claim {
    int rank;
    int64_t batch;
    tandem_memory memory;
    uint64_t limit_bytes, available_bytes; /* 0 = no limit, not known */
    uint64_t host_bytes;                   /* of the machine's memory */
    /* on a GPU: beyond the plan's peak, by its own count and as profiles saw; free there, 0 = not known */
    uint64_t overhead_bytes, free_bytes;
    char machine[TANDEM_BOOT_ID_BYTES], gpu[TANDEM_DEVICE_NAME]; /* gpu: "" = none */
} memory_claim;

/* What must fit: a rank alone, all ranks on its GPU, or all ranks of its machine. */
typedef enum memory_scope { SCOPE_RANK, SCOPE_GPU, SCOPE_MACHINE } memory_scope;
typedef struct memory_verdict {
    tandem_status status; /* TANDEM_OK: all fits */
    memory_scope scope;
    const memory_claim *largest;
    uint64_t needed_bytes, available_bytes; /* of the rank, or of all of them */
    uint64_t share_bytes;                   /* the share of this rank's plan */
} memory_verdict;

/* --- What is there -------------------------------------------------------------------------------------- */

/* Device memory that the plan does not count: scales, running statistics, the decay mask, and images on their
 * way. */
static uint64_t gpu_overhead_bytes(const tandem_executor *executor)
{
    return (executor->evaluator ? gpu_overhead_bytes(executor->evaluator) : 0) +
           tandem_image_input_device_bytes(executor) + (uint64_t)executor->step->n_value * sizeof(float) +
           (uint64_t)executor->batchnorm_stats.n * sizeof(float) + (uint64_t)executor->step->n_flat / 16;
}

/* Ranks beside this one may take memory of the same GPU meanwhile, so only a rank alone knows what is its
 * own.
 */
void tandem_executor_note_unplanned(const tandem_executor *executor)
{
    const tandem_worker *worker = executor->worker;
    if (tandem_executor_has_all_reduce(executor) || !executor->free_before_bytes) return;
    const uint64_t free_now = worker->backend->free_bytes(worker->device),
                   planned = executor->memory.peak + gpu_overhead_bytes(executor);
    if (free_now && executor->free_before_bytes > free_now + planned)
        (void)worker->backend->unplanned_bytes(worker->device,
                                               executor->free_before_bytes - free_now - planned);
}

static void claim_gpu(memory_claim *own, const tandem_executor *executor)
{
    const tandem_worker *worker = executor->worker;
    own->host_bytes = tandem_transfer_staging_bytes(executor) + tandem_image_input_staging_bytes(executor);
    if (executor->evaluator) own->host_bytes += tandem_transfer_staging_bytes(executor->evaluator);
    own->overhead_bytes = gpu_overhead_bytes(executor) + worker->backend->unplanned_bytes(worker->device, 0);
    own->free_bytes = worker->backend->free_bytes(worker->device);
    (void)snprintf(own->gpu, sizeof own->gpu, "%s", worker->device_name);
}

static memory_claim make_memory_claim(const tandem_executor *executor)
{
    const uint64_t *limit = executor->options.memory_limit_bytes;
    const int64_t available = tandem_proc_bytes("/proc/meminfo", "MemAvailable: %llu kB");
    memory_claim own = {.rank = executor->worker->rank,
                        .batch = executor->graph->batch,
                        .memory = executor->memory,
                        .limit_bytes = limit ? *limit : 0,
                        .available_bytes = available > 0 ? (uint64_t)available : 0,
                        .host_bytes = executor->memory.peak};
    tandem_boot_id(own.machine);
    if (tandem_worker_has_device_memory(executor->worker)) claim_gpu(&own, executor);
    return own;
}

/* --- What fits ------------------------------------------------------------------------------------------ */

static const memory_verdict all_fit = {.status = TANDEM_OK};

static int is_same_scope(const memory_claim *a, const memory_claim *b, memory_scope scope)
{
    return strcmp(a->machine, b->machine) == 0 && (scope == SCOPE_MACHINE || strcmp(a->gpu, b->gpu) == 0);
}

static uint64_t claimed_bytes(const memory_claim *c, memory_scope scope)
{
    return scope == SCOPE_MACHINE ? c->host_bytes : c->memory.peak + c->overhead_bytes;
}

static uint64_t scope_free_bytes(const memory_claim *c, memory_scope scope)
{
    return scope == SCOPE_MACHINE ? c->available_bytes : c->free_bytes;
}

static memory_verdict check_memory_scope(const memory_claim *all, int n, const memory_claim *one,
                                         memory_scope scope)
{
    memory_verdict v = {.status = TANDEM_NO_MEMORY,
                        .scope = scope,
                        .largest = one,
                        .available_bytes = scope_free_bytes(one, scope)};
    for (const memory_claim *c = all; c < all + n; c++) {
        if (!is_same_scope(c, one, scope)) continue;
        v.needed_bytes += claimed_bytes(c, scope);
        if (claimed_bytes(c, scope) > claimed_bytes(v.largest, scope)) v.largest = c;
        if (scope_free_bytes(c, scope) < v.available_bytes) v.available_bytes = scope_free_bytes(c, scope);
    }
    if (v.available_bytes == 0 || v.needed_bytes <= v.available_bytes) return all_fit;
    const uint64_t own = claimed_bytes(v.largest, scope);
    v.share_bytes = (uint64_t)((double)own / (double)v.needed_bytes * (double)v.available_bytes);
    if (scope == SCOPE_GPU)
        v.share_bytes -=
            v.share_bytes < v.largest->overhead_bytes ? v.share_bytes : v.largest->overhead_bytes;
    return v;
}

static memory_verdict check_memory_claims(const memory_claim *all, int n)
{
    for (const memory_claim *c = all; c < all + n; c++)
        if (c->limit_bytes && c->memory.peak > c->limit_bytes)
            return (memory_verdict){TANDEM_INFEASIBLE, SCOPE_RANK,     c,
                                    c->memory.peak,    c->limit_bytes, c->limit_bytes};
    for (const memory_claim *c = all; c < all + n; c++) {
        memory_verdict v = c->gpu[0] ? check_memory_scope(all, n, c, SCOPE_GPU) : all_fit;
        if (v.status == TANDEM_OK) v = check_memory_scope(all, n, c, SCOPE_MACHINE);
        if (v.status != TANDEM_OK) return v;
    }
    return all_fit;
}

/* --- Which batch would fit ------------------------------------------------------------------------------ */

/* Peak of the same plan at another batch, with kernels or without their workspace. 0 = not known. */
static uint64_t peak_bytes_at_batch(const tandem_executor *executor, int64_t batch, int with_kernels)
{
    tandem_graph *graph = NULL;
    tandem_step *step = NULL;
    tandem_executor *probe = NULL;
    tandem_memory memory = {0};
    tandem_status status = tandem_graph_open_zoo(&graph, executor->graph->model, batch, NULL);
    if (status == TANDEM_OK && graph->hash != executor->graph->hash) status = TANDEM_WRONG_MODEL;
    if (status == TANDEM_OK)
        status = tandem_step_open_with(&step, graph, executor->step->amp_dtype, executor->step->bucket_bytes,
                                       &executor->step->options, NULL);
    if (status == TANDEM_OK) {
        for (int i = 0; i < graph->n_op; i++)
            if (tandem_op_is_adjustable(&graph->op[i]))
                tandem_step_set(step, i, executor->step->precision[i]);
        tandem_step_resolve(step);
        tandem_executor_options options = executor->options;
        options.step = step;
        if (with_kernels)
            status = tandem_executor_prepare(&probe, executor->worker, &options, 0, NULL);
        else
            status = tandem_memory_plan(&memory, step, NULL, NULL, NULL, NULL);
    }
    const uint64_t peak = status != TANDEM_OK ? 0 : probe ? probe->memory.peak : memory.peak;
    tandem_executor_close(probe);
    tandem_step_close(step);
    tandem_graph_close(graph);
    return peak;
}

/* The largest batch below `limit` whose peak, with `more` for its kernels, is at most `allowed`; 0 = none. */
static int64_t largest_fitting_batch(const tandem_executor *executor, int64_t limit, uint64_t more,
                                     uint64_t allowed)
{
    int64_t fits = 0;
    for (int64_t past = limit; past - fits > 1;) {
        const int64_t middle = fits + (past - fits) / 2;
        const uint64_t peak = peak_bytes_at_batch(executor, middle, 0);
        if (peak > 0 && peak + more <= allowed)
            fits = middle;
        else
            past = middle;
    }
    return fits;
}

/* Preparing kernels is slow, so the search runs without them, and its result is checked with them. */
static int64_t find_fitting_batch(const tandem_executor *executor, uint64_t allowed)
{
    enum { TRIES = 4 };
    uint64_t more = 0;
    int64_t batch = executor->graph->batch;
    for (int k = 0; k < TRIES; k++) {
        batch = largest_fitting_batch(executor, batch, more, allowed);
        if (batch == 0) return 0;
        const uint64_t exact = peak_bytes_at_batch(executor, batch, 1),
                       rough = peak_bytes_at_batch(executor, batch, 0);
        if (exact == 0) return 0;
        if (exact <= allowed) return batch;
        more = exact - rough;
    }
    return 0;
}

/* --- What is said --------------------------------------------------------------------------------------- */

typedef struct quantity_text {
    char text[TANDEM_QUANTITY_TEXT];
} quantity_text;

static quantity_text print_quantity(uint64_t bytes)
{
    quantity_text t = {0};
    (void)tandem_quantity_print_bytes(t.text, sizeof t.text, bytes);
    return t;
}

/* "the ranks of a machine need 3 GiB, 2 GiB are available there (MemAvailable); rank 1 at batch 8 needs 2
 * GiB" */
static void describe_shortage(char *what, size_t size, const memory_verdict *v)
{
    const memory_claim *largest = v->largest;
    char needed[TANDEM_QUANTITY_TEXT], there[TANDEM_QUANTITY_TEXT];
    (void)snprintf(needed, sizeof needed, "%s", print_quantity(v->needed_bytes).text);
    (void)snprintf(there, sizeof there, "%s", print_quantity(v->available_bytes).text);
    if (v->scope == SCOPE_RANK)
        (void)snprintf(what, size, "rank %d needs %s at batch %lld, its limit is %s", largest->rank, needed,
                       (long long)largest->batch, there);
    else if (v->scope == SCOPE_GPU)
        (void)snprintf(what, size,
                       "the ranks on '%s' need %s, %s are free there; rank %d at batch %lld needs %s",
                       largest->gpu, needed, there, largest->rank, (long long)largest->batch,
                       print_quantity(claimed_bytes(largest, SCOPE_GPU)).text);
    else
        (void)snprintf(
            what, size,
            "the ranks of a machine need %s, %s are available there (MemAvailable); rank %d at batch %lld "
            "needs %s",
            needed, there, largest->rank, (long long)largest->batch,
            print_quantity(largest->host_bytes).text);
}

static tandem_status set_shortage_error(const memory_verdict *v, int64_t fitting, tandem_error *error)
{
    const tandem_memory *m = &v->largest->memory;
    const uint64_t alive =
        m->activations + m->activation_gradients + m->weight_copies + m->weight_gradients + m->workspace;
    char what[320], batch[64], evaluation[96] = "";
    describe_shortage(what, sizeof what, v);
    if (m->evaluation)
        (void)snprintf(evaluation, sizeof evaluation, ", more for evaluations (--eval) %s",
                       print_quantity(m->evaluation).text);
    if (v->scope == SCOPE_MACHINE && v->largest->gpu[0])
        return tandem_error_set(error, v->status, "%s to copy from and to device '%s'", what,
                                v->largest->gpu);
    (void)snprintf(batch, sizeof batch,
                   fitting > 0 ? "batch %lld would fit" : "no smaller batch was found to fit",
                   (long long)fitting);
    (void)tandem_error_set(
        error, v->status,
        "%s: weights %s, gradients %s, optimizer %s, activations %s, their gradients %s, low-precision "
        "weights %s, workspace %s, gaps %s%s; %s",
        what, print_quantity(m->weights).text, print_quantity(m->gradients).text,
        print_quantity(m->optimizer).text, print_quantity(m->activations).text,
        print_quantity(m->activation_gradients).text, print_quantity(m->weight_copies).text,
        print_quantity(m->workspace).text, print_quantity(m->arena > alive ? m->arena - alive : 0).text,
        evaluation, batch);
    return v->status;
}

tandem_status tandem_executor_check_memory(const tandem_executor *executor, tandem_error *error)
{
    tandem_worker *worker = executor->worker;
    const int is_collective = tandem_executor_has_all_reduce(executor),
              n = is_collective ? worker->n_rank : 1;
    const memory_claim own = make_memory_claim(executor);
    memory_claim *all = malloc((size_t)n * sizeof *all);
    if (!all) return tandem_no_memory(error, "to compare %d ranks", n);
    all[0] = own;
    tandem_status status =
        is_collective ? tandem_worker_gather(worker, &own, all, sizeof own, error) : TANDEM_OK;
    const memory_verdict v = status == TANDEM_OK ? check_memory_claims(all, n) : all_fit;
    if (v.status != TANDEM_OK) {
        int64_t fitting = v.largest->rank == worker->rank ? find_fitting_batch(executor, v.share_bytes) : 0;
        if (is_collective)
            status = tandem_worker_broadcast(worker, &fitting, sizeof fitting, v.largest->rank, error);
        if (status == TANDEM_OK) status = set_shortage_error(&v, fitting, error);
        if (is_collective && status == v.status && error) error->rank = 0;
    }
    free(all);
    return status;
}
