/* fit.c: whether a run fits into memory, agreed upon by all ranks before any of them allocates: each rank
 * within its limit, the ranks on a card together within what is free there, and the ranks of a machine
 * together within what is available there (MemAvailable of Linux: what can be had without swapping). Of the
 * machine's memory, a rank on a card takes what it copies from and to. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/transfer.h"
#include "base/boot_id.h"
#include "base/quantity.h"

/* What each rank tells the others. */
typedef struct claim {
    int rank;
    int64_t batch;
    tandem_memory memory;
    uint64_t limit_bytes, available_bytes; /* 0 = none, not known */
    uint64_t host_bytes;                   /* that it takes of the machine's memory */
    uint64_t beside_bytes, free_bytes; /* on a card, beside the plan's; that are free there, 0 = not known */
    char machine[TANDEM_BOOT_ID_BYTES], card[TANDEM_DEVICE_NAME]; /* card: "" = none */
} claim;

/* What does not fit: a rank, or all ranks on its card, or of its machine. */
typedef enum place { LIMIT, CARD, MACHINE } place;
typedef struct verdict {
    tandem_status status; /* TANDEM_OK: all fits */
    place where;
    const claim *by;
    uint64_t needed_bytes, there_bytes; /* of the rank, or of all of them */
    uint64_t share_bytes;               /* that the plan of this rank may take */
} verdict;

/* --- What is there -------------------------------------------------------------------------------------- */

static uint64_t available_bytes(void)
{
    unsigned long long kib = 0;
    char line[128];
    FILE *stream = fopen("/proc/meminfo", "re");
    while (stream && fgets(line, sizeof line, stream))
        if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1) break;
    if (stream) (void)fclose(stream);
    return (uint64_t)kib * 1024;
}

/* What kernels see of values beside their numbers, running statistics, and which weights decay. */
static uint64_t beside_bytes(const tandem_executor *executor)
{
    return (executor->forward ? beside_bytes(executor->forward) : 0) +
           (uint64_t)executor->step->n_value * sizeof(float) +
           (uint64_t)executor->statistics.n * sizeof(float) + (uint64_t)executor->step->n_flat / 16;
}

static void claim_card(claim *own, const tandem_executor *executor)
{
    const tandem_worker *worker = executor->worker;
    own->host_bytes = tandem_transfer_staging_bytes(executor);
    if (executor->forward) own->host_bytes += tandem_transfer_staging_bytes(executor->forward);
    own->beside_bytes = beside_bytes(executor);
    own->free_bytes = worker->backend->free_bytes(worker->device);
    (void)snprintf(own->card, sizeof own->card, "%s", worker->device_name);
}

static claim claim_of(const tandem_executor *executor)
{
    const uint64_t *limit = executor->options.memory_limit_bytes;
    claim own = {.rank = executor->worker->rank,
                 .batch = executor->graph->batch,
                 .memory = executor->memory,
                 .limit_bytes = limit ? *limit : 0,
                 .available_bytes = available_bytes(),
                 .host_bytes = executor->memory.peak};
    tandem_boot_id(own.machine);
    if (tandem_worker_is_apart(executor->worker)) claim_card(&own, executor);
    return own;
}

/* --- What fits ------------------------------------------------------------------------------------------ */

static const verdict all_fit = {.status = TANDEM_OK};

static int is_beside(const claim *a, const claim *b, place where)
{
    return strcmp(a->machine, b->machine) == 0 && (where == MACHINE || strcmp(a->card, b->card) == 0);
}

static uint64_t taken_bytes(const claim *c, place where)
{
    return where == MACHINE ? c->host_bytes : c->memory.peak + c->beside_bytes;
}

static uint64_t there_bytes(const claim *c, place where)
{
    return where == MACHINE ? c->available_bytes : c->free_bytes;
}

static verdict judge_place(const claim *all, int n, const claim *one, place where)
{
    verdict v = {
        .status = TANDEM_NO_MEMORY, .where = where, .by = one, .there_bytes = there_bytes(one, where)};
    for (const claim *c = all; c < all + n; c++) {
        if (!is_beside(c, one, where)) continue;
        v.needed_bytes += taken_bytes(c, where);
        if (taken_bytes(c, where) > taken_bytes(v.by, where)) v.by = c;
        if (there_bytes(c, where) < v.there_bytes) v.there_bytes = there_bytes(c, where);
    }
    if (v.there_bytes == 0 || v.needed_bytes <= v.there_bytes) return all_fit;
    const uint64_t own = taken_bytes(v.by, where);
    v.share_bytes = (uint64_t)((double)own / (double)v.needed_bytes * (double)v.there_bytes);
    if (where == CARD)
        v.share_bytes -= v.share_bytes < v.by->beside_bytes ? v.share_bytes : v.by->beside_bytes;
    return v;
}

static verdict judge(const claim *all, int n)
{
    for (const claim *c = all; c < all + n; c++)
        if (c->limit_bytes && c->memory.peak > c->limit_bytes)
            return (verdict){TANDEM_NO_FIT, LIMIT, c, c->memory.peak, c->limit_bytes, c->limit_bytes};
    for (const claim *c = all; c < all + n; c++) {
        verdict v = c->card[0] ? judge_place(all, n, c, CARD) : all_fit;
        if (v.status == TANDEM_OK) v = judge_place(all, n, c, MACHINE);
        if (v.status != TANDEM_OK) return v;
    }
    return all_fit;
}

/* --- Which batch would fit ------------------------------------------------------------------------------ */

/* Peak of the same plan at another batch: with kernels, or without what these need beside their operands. 0 =
 * not known. */
static uint64_t peak_at(const tandem_executor *executor, int64_t batch, int with_kernels)
{
    tandem_graph *graph = NULL;
    tandem_step *step = NULL;
    tandem_executor *probe = NULL;
    tandem_memory memory = {0};
    tandem_status status = tandem_graph_open(&graph, executor->graph->model, batch, NULL);
    if (status == TANDEM_OK && graph->hash != executor->graph->hash) status = TANDEM_WRONG_MODEL;
    if (status == TANDEM_OK)
        status = tandem_step_open_with(&step, graph, executor->step->amp_dtype, executor->step->bucket_bytes,
                                       &executor->step->options, NULL);
    if (status == TANDEM_OK) {
        for (int i = 0; i < graph->n_op; i++)
            if (tandem_op_row_get(graph->op[i].kind)->op_class == TANDEM_ADJUSTABLE)
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

/* The largest batch below `most` whose peak, with `more` for its kernels, is at most `allowed`; 0 = none. */
static int64_t largest_batch(const tandem_executor *executor, int64_t most, uint64_t more, uint64_t allowed)
{
    int64_t fits = 0;
    for (int64_t past = most; past - fits > 1;) {
        const int64_t middle = fits + (past - fits) / 2;
        const uint64_t peak = peak_at(executor, middle, 0);
        if (peak > 0 && peak + more <= allowed)
            fits = middle;
        else
            past = middle;
    }
    return fits;
}

/* Kernels take long to prepare, so the search is made without them, and its result tried with them. */
static int64_t fitting_batch(const tandem_executor *executor, uint64_t allowed)
{
    enum { TRIES = 4 };
    uint64_t more = 0;
    int64_t batch = executor->graph->batch;
    for (int k = 0; k < TRIES; k++) {
        batch = largest_batch(executor, batch, more, allowed);
        if (batch == 0) return 0;
        const uint64_t exact = peak_at(executor, batch, 1), rough = peak_at(executor, batch, 0);
        if (exact == 0) return 0;
        if (exact <= allowed) return batch;
        more = exact - rough;
    }
    return 0;
}

/* --- What is said --------------------------------------------------------------------------------------- */

typedef struct bytes_text {
    char text[TANDEM_QUANTITY_TEXT];
} bytes_text;

static bytes_text print(uint64_t bytes)
{
    bytes_text t = {0};
    (void)tandem_quantity_print_bytes(t.text, sizeof t.text, bytes);
    return t;
}

/* "the ranks of a machine need 3 GiB, 2 GiB are available there (MemAvailable); rank 1 at batch 8 needs 2
 * GiB" */
static void describe(char *what, size_t size, const verdict *v)
{
    const claim *by = v->by;
    char needed[TANDEM_QUANTITY_TEXT], there[TANDEM_QUANTITY_TEXT];
    (void)snprintf(needed, sizeof needed, "%s", print(v->needed_bytes).text);
    (void)snprintf(there, sizeof there, "%s", print(v->there_bytes).text);
    if (v->where == LIMIT)
        (void)snprintf(what, size, "rank %d needs %s at batch %lld, its limit is %s", by->rank, needed,
                       (long long)by->batch, there);
    else if (v->where == CARD)
        (void)snprintf(what, size,
                       "the ranks on '%s' need %s, %s are free there; rank %d at batch %lld "
                       "needs %s",
                       by->card, needed, there, by->rank, (long long)by->batch,
                       print(taken_bytes(by, CARD)).text);
    else
        (void)snprintf(what, size,
                       "the ranks of a machine need %s, %s are available there (MemAvailable); rank %d at "
                       "batch %lld needs "
                       "%s",
                       needed, there, by->rank, (long long)by->batch, print(by->host_bytes).text);
}

static tandem_status tell(const verdict *v, int64_t fitting, tandem_error *error)
{
    const tandem_memory *m = &v->by->memory;
    const uint64_t alive =
        m->activations + m->activation_gradients + m->weight_copies + m->weight_gradients + m->workspace;
    char what[320], batch[64], evaluation[96] = "";
    describe(what, sizeof what, v);
    if (m->evaluation)
        (void)snprintf(evaluation, sizeof evaluation, ", more for evaluations (--eval) %s",
                       print(m->evaluation).text);
    if (v->where == MACHINE && v->by->card[0])
        return tandem_error_set(error, v->status, "%s to copy from and to device '%s'", what, v->by->card);
    (void)snprintf(batch, sizeof batch,
                   fitting > 0 ? "batch %lld would fit"
                               : "no smaller batch was found "
                                 "to fit",
                   (long long)fitting);
    (void)tandem_error_set(error, v->status,
                           "%s: weights %s, gradients %s, optimizer %s, activations %s, their gradients %s, "
                           "low-precision weights %s, workspace %s, gaps %s%s; %s",
                           what, print(m->weights).text, print(m->gradients).text, print(m->optimizer).text,
                           print(m->activations).text, print(m->activation_gradients).text,
                           print(m->weight_copies).text, print(m->workspace).text,
                           print(m->arena > alive ? m->arena - alive : 0).text, evaluation, batch);
    return v->status;
}

tandem_status tandem_executor_check_fit(const tandem_executor *executor, tandem_error *error)
{
    tandem_worker *worker = executor->worker;
    const int together = tandem_executor_exchanges(executor), n = together ? worker->n_rank : 1;
    const claim own = claim_of(executor);
    claim *all = malloc((size_t)n * sizeof *all);
    if (!all) return tandem_error_set(error, TANDEM_NO_MEMORY, "no memory to compare %d ranks", n);
    all[0] = own;
    tandem_status status = together ? tandem_worker_gather(worker, &own, all, sizeof own, error) : TANDEM_OK;
    const verdict v = status == TANDEM_OK ? judge(all, n) : all_fit;
    if (v.status != TANDEM_OK) {
        int64_t fitting = v.by->rank == worker->rank ? fitting_batch(executor, v.share_bytes) : 0;
        if (together) status = tandem_worker_broadcast(worker, &fitting, sizeof fitting, v.by->rank, error);
        if (status == TANDEM_OK) status = tell(&v, fitting, error);
        if (together && status == v.status && error) error->rank = 0;
    }
    free(all);
    return status;
}
