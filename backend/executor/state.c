/* state.c: saves and restores the training state of all ranks: rank 0 writes and reads the checkpoint. */
#include <stdlib.h>
#include <string.h>

#include "backend/checkpoint.h"
#include "backend/executor/executor.h"

/* Whether array k of a state is gathered from the ranks' shards, in the gradients' memory. */
static int is_gathered(const tandem_executor *executor, int k)
{
    return k > 0 && tandem_executor_is_sharded(executor);
}

static float *flat_array_at(const tandem_executor *executor, int k)
{
    return is_gathered(executor, k) ? executor->host_gradient
           : k == 0                 ? executor->weight
                                    : executor->state[k - 1];
}

/* Ends the views of the device's arrays; copy_back: copies what the host wrote to them to the device. */
static tandem_status end_state_views(tandem_training_state *state, const tandem_executor *executor,
                                     int copy_back, tandem_error *error)
{
    tandem_status status = TANDEM_OK;
    for (int k = 0; k < state->n_array; k++) {
        if (is_gathered(executor, k)) continue; /* on the host */
        const tandem_status one = tandem_worker_end_view(
            executor->worker, state->array[k], flat_array_at(executor, k),
            tandem_executor_flat_bytes(executor), copy_back && status == TANDEM_OK, error);
        if (status == TANDEM_OK) status = one;
    }
    free(state->running_stats);
    free(state->histories.record);
    return status;
}

static tandem_status begin_state_views(tandem_training_state *out, const tandem_executor *executor,
                                       tandem_error *error)
{
    if (executor->options.lender)
        return tandem_error_set(error, TANDEM_USAGE,
                                "an executor with borrowed weights has no state to keep");
    tandem_loss_scale loss_scale = executor->grad_scaler.loss_scale;
    if (!executor->grad_scaler.is_loss_scaled) loss_scale.scale = 0;
    tandem_training_state state = {
        .step = executor->step, .loss_scale = loss_scale, .n_rank = executor->worker->n_rank};
    const int n_array = 1 + tandem_optimizer_n_state(executor->graph->optimizer.kind);
    for (; state.n_array < n_array; state.n_array++) {
        void *view = NULL;
        const tandem_status status =
            tandem_worker_view(&view, executor->worker, flat_array_at(executor, state.n_array),
                               tandem_executor_flat_bytes(executor), 1, error);
        if (status != TANDEM_OK) {
            (void)end_state_views(&state, executor, 0, NULL);
            return status;
        }
        state.array[state.n_array] = view;
    }
    *out = state;
    return TANDEM_OK;
}

tandem_status tandem_executor_share_status(const tandem_executor *executor, tandem_status status,
                                           tandem_error *own, tandem_error *error)
{
    own->rank = 0;
    if (status == TANDEM_OK) *own = (tandem_error){0};
    const tandem_status sent = tandem_worker_broadcast(executor->worker, own, sizeof *own, 0, error);
    if (sent != TANDEM_OK) return sent;
    if (own->status != TANDEM_OK && error) *error = *own;
    return own->status;
}

/* --- Saving --------------------------------------------------------------------------------------------- */

/* Ranks apply the same sums to the same weights in the same order, so their weights stay equal to the bit on
 * mixed devices too. */
static tandem_status check_ranks_equal(const tandem_executor *executor, const uint32_t *crc,
                                       tandem_error *error)
{
    const size_t bytes = TANDEM_CHECKPOINT_ARRAYS * sizeof *crc;
    const int n_rank = executor->worker->n_rank;
    uint32_t *all = malloc((size_t)n_rank * bytes);
    if (!all) return tandem_no_memory(error, "to compare %d ranks", n_rank);
    tandem_status status = tandem_worker_gather(executor->worker, crc, all, bytes, error);
    for (int r = 1; r < n_rank && status == TANDEM_OK; r++)
        if (memcmp(all, all + (size_t)r * TANDEM_CHECKPOINT_ARRAYS, bytes) != 0) {
            status = tandem_error_set(
                error, TANDEM_BUG,
                "the weights of rank %d are not those of rank 0, so no checkpoint was written", r);
            if (error) error->rank = 0;
        }
    free(all);
    return status;
}

/* A state that is written: arrays follow each other in memory that they share. */
typedef struct state_gathering {
    tandem_executor *executor;
    int n; /* arrays that were gathered */
} state_gathering;

static tandem_status gather_array(void *context, int k, tandem_error *error)
{
    state_gathering *const g = context;
    g->n = k + 1;
    return is_gathered(g->executor, k) ? tandem_executor_gather_state(g->executor, k - 1, error) : TANDEM_OK;
}

/* All ranks gather as often as rank 0, which writes; also where writing has failed. */
static tandem_status write_state(tandem_executor *executor, tandem_training_state *state, const char *path,
                                 const uint32_t *crc, int64_t step, const char *train_config,
                                 tandem_error *error)
{
    state_gathering g = {executor, 0};
    tandem_error own = {0};
    tandem_status status = TANDEM_OK, gathered = TANDEM_OK;
    state->exchange = gather_array;
    state->exchange_context = &g;
    if (executor->worker->rank == 0)
        status = tandem_checkpoint_write(path, state, crc, step, train_config, &own);
    while (g.n < state->n_array && gathered == TANDEM_OK) gathered = gather_array(&g, g.n, error);
    state->exchange = NULL; /* its context ends here */
    state->exchange_context = NULL;
    return gathered == TANDEM_OK ? tandem_executor_share_status(executor, status, &own, error) : gathered;
}

static tandem_status save_state(tandem_executor *executor, tandem_training_state *state, const char *path,
                                int64_t step, const char *train_config, tandem_error *error)
{
    uint32_t crc[TANDEM_CHECKPOINT_ARRAYS] = {0};
    tandem_status status = TANDEM_OK;
    for (int k = 0; k < state->n_array && status == TANDEM_OK; k++) {
        if (is_gathered(executor, k)) status = tandem_executor_gather_state(executor, k - 1, error);
        if (status == TANDEM_OK) crc[k] = tandem_checkpoint_crc(state, k);
    }
    if (status == TANDEM_OK) status = check_ranks_equal(executor, crc, error);
    if (status == TANDEM_OK)
        status = tandem_batchnorm_stats_gather(&state->running_stats, &executor->batchnorm_stats,
                                               executor->worker, error);
    if (status == TANDEM_OK)
        status =
            tandem_amax_histories_gather(&state->histories, &executor->histories, executor->worker, error);
    return status == TANDEM_OK ? write_state(executor, state, path, crc, step, train_config, error) : status;
}

tandem_status tandem_executor_save(tandem_executor *executor, const char *path, int64_t step,
                                   const char *train_config, tandem_error *error)
{
    tandem_training_state state = {0};
    tandem_status status = begin_state_views(&state, executor, error);
    if (status != TANDEM_OK) return status;
    status = save_state(executor, &state, path, step, train_config, error);
    (void)end_state_views(&state, executor, 0, NULL);
    return status;
}

/* --- Restoring ------------------------------------------------------------------------------------------ */

/* What rank 0 broadcasts besides the arrays. */
typedef struct restored_state {
    tandem_checkpoint_info info;
    tandem_loss_scale loss_scale;
    int n_rank; /* whose statistics the file holds */
    tandem_amax_snapshot histories;
} restored_state;

static tandem_status alloc_amax_records(tandem_amax_snapshot *snapshot, const char *path, tandem_error *error)
{
    if ((snapshot->record = malloc((size_t)tandem_amax_snapshot_bytes(snapshot)))) return TANDEM_OK;
    return tandem_no_memory(error, "for the amax histories in '%.200s'", path);
}

/* Fills the arrays of `state`; the caller frees its `running_stats` and its histories' records. */
static tandem_status read_checkpoint_state(restored_state *out, tandem_training_state *state,
                                           const char *path, tandem_error *error)
{
    tandem_checkpoint checkpoint = {0};
    const size_t n = (size_t)tandem_batchnorm_stats_count(state->step->graph);
    tandem_status status = tandem_checkpoint_open(&checkpoint, path, state->step->graph, error);
    if (status == TANDEM_OK &&
        !(state->running_stats = calloc((size_t)checkpoint.n_rank * n + 1, sizeof(float))))
        status = tandem_no_memory(error, "for the running statistics in '%.200s'", path);
    state->histories = checkpoint.histories;
    if (status == TANDEM_OK && state->histories.n > 0)
        status = alloc_amax_records(&state->histories, path, error);
    if (status == TANDEM_OK) status = tandem_checkpoint_read(&checkpoint, state, path, error);
    if (status == TANDEM_OK)
        *out = (restored_state){checkpoint.info, checkpoint.loss_scale, checkpoint.n_rank, state->histories};
    tandem_checkpoint_close(&checkpoint);
    return status;
}

/* A rank restores its own statistics where the file has as many ranks, else the mean of all. `copies` are
 * rank 0's. */
static tandem_status restore_batchnorm_stats(tandem_executor *executor, float **copies, int n_rank,
                                             tandem_error *error)
{
    tandem_worker *worker = executor->worker;
    const int64_t n = executor->batchnorm_stats.n;
    if (n == 0) return TANDEM_OK;
    const size_t bytes = (size_t)n_rank * (size_t)n * sizeof(float);
    if (!*copies && !(*copies = malloc(bytes)))
        return tandem_no_memory(error, "for the running statistics of %d ranks", n_rank);
    const tandem_status status = tandem_worker_broadcast(worker, *copies, bytes, 0, error);
    if (status != TANDEM_OK) return status;
    const float *own = *copies + worker->rank * n;
    if (n_rank != worker->n_rank) {
        tandem_batchnorm_stats_mean(*copies, *copies, n_rank, n); /* in place of the first copy */
        own = *copies;
    }
    return tandem_batchnorm_stats_set(&executor->batchnorm_stats, own, worker, error);
}

/* `snapshot` and its records are rank 0's; the other ranks have none yet. */
static tandem_status restore_amax_histories(tandem_executor *executor, tandem_amax_snapshot *snapshot,
                                            const tandem_amax_snapshot *read, const char *path,
                                            tandem_error *error)
{
    tandem_status status = TANDEM_OK;
    unsigned char *const record = snapshot->record;
    *snapshot = *read;
    snapshot->record = record;
    if (snapshot->n == 0) return TANDEM_OK;
    if (!snapshot->record) status = alloc_amax_records(snapshot, path, error);
    if (status == TANDEM_OK)
        status = tandem_worker_broadcast(executor->worker, snapshot->record,
                                         (size_t)tandem_amax_snapshot_bytes(snapshot), 0, error);
    return status == TANDEM_OK
               ? tandem_amax_histories_restore(&executor->histories, snapshot, executor->worker, error)
               : status;
}

/* A fixed scale is this run's own, and so is the first dynamic one where the file has none. */
static void restore_loss_scale(tandem_grad_scaler *scaler, const tandem_loss_scale *saved)
{
    scaler->loss_scale.skipped = saved->skipped;
    if (!scaler->is_dynamic || !(saved->scale > 0)) return;
    scaler->loss_scale.scale = saved->scale;
    scaler->loss_scale.good_steps = saved->good_steps;
}

/* A state that is restored. */
typedef struct state_spreading {
    tandem_executor *executor;
    const tandem_training_state *state;
} state_spreading;

/* Every rank has the same layout, because buckets are equal. Before each array rank 0 says that it could be
 * read. */
static tandem_status spread_array(void *context, int k, tandem_error *error)
{
    const state_spreading *const s = context;
    tandem_executor *const executor = s->executor;
    tandem_error own = {0};
    tandem_status status = tandem_executor_share_status(executor, TANDEM_OK, &own, error);
    if (status == TANDEM_OK)
        status = tandem_worker_broadcast(executor->worker, s->state->array[k],
                                         tandem_executor_flat_bytes(executor), 0, error);
    if (status == TANDEM_OK && is_gathered(executor, k)) tandem_executor_take_state(executor, k - 1);
    return status;
}

static tandem_status restore_state(tandem_executor *executor, tandem_training_state *state, const char *path,
                                   restored_state *read, tandem_error *error)
{
    tandem_worker *worker = executor->worker;
    state_spreading spreading = {executor, state};
    tandem_error own = {0};
    tandem_status status = TANDEM_OK;
    state->exchange = spread_array;
    state->exchange_context = &spreading;
    if (worker->rank == 0) status = read_checkpoint_state(read, state, path, &own);
    for (int k = 0; worker->rank != 0 && k < state->n_array && status == TANDEM_OK; k++)
        status = spread_array(&spreading, k, error);
    state->exchange = NULL; /* its context ends here */
    state->exchange_context = NULL;
    if (worker->rank == 0 || status == TANDEM_OK)
        status = tandem_executor_share_status(executor, status, &own, error);
    if (status == TANDEM_OK) status = tandem_worker_broadcast(worker, read, sizeof *read, 0, error);
    if (status == TANDEM_OK)
        status = restore_batchnorm_stats(executor, &state->running_stats, read->n_rank, error);
    return status == TANDEM_OK
               ? restore_amax_histories(executor, &state->histories, &read->histories, path, error)
               : status;
}

tandem_status tandem_executor_restore(tandem_executor *executor, const char *path,
                                      tandem_checkpoint_info *info, tandem_error *error)
{
    tandem_training_state state = {0};
    restored_state read = {0};
    tandem_status status = begin_state_views(&state, executor, error);
    if (status != TANDEM_OK) return status;
    status = restore_state(executor, &state, path, &read, error);
    const tandem_status ended =
        end_state_views(&state, executor, status == TANDEM_OK, status == TANDEM_OK ? error : NULL);
    if (status == TANDEM_OK) status = ended;
    if (status != TANDEM_OK) return status;
    restore_loss_scale(&executor->grad_scaler, &read.loss_scale);
    *info = read.info;
    return TANDEM_OK;
}
