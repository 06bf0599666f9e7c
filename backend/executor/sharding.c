/* sharding.c: ranks that keep shards of the optimizer's state (ZeRO, stage 1): each updates its shard of the
 * weights, by gradients that were reduce-scattered, and all gather the weights. */
#include <string.h>

#include "backend/executor/executor.h"
#include "base/clock.h"

/* What a rank has found. */
typedef struct sharded_result {
    float loss;    /* of the rank that keeps the last element of bucket 0 */
    int32_t place; /* of a parameter whose gradient is not finite, in the flat arrays' order; −1 = none */
} sharded_result;

static tandem_status check_sharded_worker(const tandem_executor *executor, tandem_error *error)
{
    const tandem_sharding *s = &executor->step->options.sharding;
    const tandem_worker *worker = executor->worker;
    if (tandem_worker_has_device_memory(worker))
        return tandem_error_set(error, TANDEM_USAGE,
                                "device '%s' has memory of its own, and ZeRO shards the state of ranks on "
                                "CPUs only. Leave out --zero",
                                worker->device_name);
    if (s->n_rank == worker->n_rank && s->rank == worker->rank && !executor->options.without_all_reduce)
        return TANDEM_OK;
    return tandem_error_set(error, TANDEM_USAGE,
                            "the step has shards of rank %d of %d, but this is rank %d of %d%s", s->rank,
                            s->n_rank, worker->rank, worker->n_rank,
                            executor->options.without_all_reduce ? ", without all-reduce" : "");
}

static void fill_borders(tandem_executor *executor)
{
    const tandem_step *step = executor->step;
    const int n = executor->worker->n_rank + 1;
    for (int b = 0; b < step->n_bucket; b++)
        for (int r = 0; r < n; r++)
            executor->border[b * n + r] =
                (size_t)tandem_shard_border(&step->options.sharding, step->bucket[b].elements, r);
}

tandem_status tandem_executor_open_shards(tandem_executor *executor, tandem_error *error)
{
    const tandem_step *step = executor->step;
    const size_t n_bucket = (size_t)step->n_bucket, n_border = (size_t)executor->worker->n_rank + 1;
    tandem_arena *tables = &executor->tables;
    const int is_sharded = tandem_executor_is_sharded(executor);
    const tandem_status status = is_sharded ? check_sharded_worker(executor, error) : TANDEM_OK;
    if (status != TANDEM_OK) return status;
    if (!(executor->shard = tandem_arena_array(tables, n_bucket, sizeof *executor->shard)) ||
        (is_sharded &&
         (!(executor->border = tandem_arena_array(tables, n_bucket * n_border, sizeof *executor->border)) ||
          !(executor->found = tandem_arena_array(tables, n_border, sizeof *executor->found)))))
        return tandem_executor_no_memory(executor, error);
    for (int b = 0; b < step->n_bucket; b++) executor->shard[b] = tandem_step_shard(step, b);
    if (is_sharded) fill_borders(executor);
    return TANDEM_OK;
}

/* --- The update ----------------------------------------------------------------------------------------- */

/* A part of a parameter, in the flat arrays, that lies in this rank's shard; n 0: none does. */
typedef struct owned_part {
    int64_t first, n;
    int64_t state_at; /* of its first element in arrays of state */
} owned_part;

static owned_part find_owned_part(const tandem_executor *executor, int p, int b)
{
    const tandem_step *step = executor->step;
    const tandem_shard *shard = &executor->shard[b];
    const int64_t start = step->parameter_start[p], end = start + step->graph->parameter[p].elements,
                  shard_begin = step->bucket[b].start + shard->first,
                  shard_end = shard_begin + shard->elements;
    const int64_t first = start > shard_begin ? start : shard_begin, last = end < shard_end ? end : shard_end;
    return (owned_part){first, last > first ? last - first : 0, shard->start + first - shard_begin};
}

void tandem_executor_update_parameter(tandem_executor *executor, int p, int b, int64_t index)
{
    const owned_part part = find_owned_part(executor, p, b);
    if (executor->nonfinite_parameter >= 0 || executor->grad_scaler.skip_step || part.n == 0) return;
    float *const state[2] = {executor->state[0] + part.state_at,
                             executor->state[1] ? executor->state[1] + part.state_at : NULL};
    const int is_finite = executor->worker->backend->update(
        executor->worker->device, &executor->optimizer, executor->has_weight_decay[p], NULL,
        executor->weight + part.first, state, executor->gradient + part.first, part.n,
        tandem_executor_applied_steps(executor, index), NULL);
    if (!is_finite && !executor->options.allow_nan) executor->nonfinite_parameter = p;
}

static void multiply_owned_gradients(const tandem_executor *executor, float factor)
{
    const tandem_step *step = executor->step;
    for (int b = 0; b < step->n_bucket; b++)
        for (int k = 0; k < step->bucket[b].n_parameter; k++) {
            const int p = step->parameter_order[step->bucket[b].first_parameter_position + k];
            const owned_part part = find_owned_part(executor, p, b);
            float *const gradient = executor->host_gradient + part.first;
            for (int64_t i = 0; i < part.n; i++) gradient[i] *= factor;
        }
}

tandem_status tandem_executor_unscale_and_clip(tandem_executor *executor, tandem_error *error)
{
    double sum = 0;
    const tandem_status status = tandem_executor_sum_squares(&sum, executor, error);
    if (status != TANDEM_OK) return status;
    const float factor = tandem_grad_scaler_factor(&executor->grad_scaler, sum);
    if (factor < 1) multiply_owned_gradients(executor, factor);
    return TANDEM_OK;
}

/* --- The end of a step ---------------------------------------------------------------------------------- */

static int32_t place_of_parameter(const tandem_step *step, int p)
{
    int32_t k = p < 0 ? -1 : 0;
    while (k >= 0 && step->parameter_order[k] != p) k++;
    return k;
}

static tandem_status share_results(tandem_executor *executor, float *loss, tandem_error *error)
{
    const tandem_step *step = executor->step;
    const int n_rank = executor->worker->n_rank;
    const sharded_result mine = {*tandem_executor_loss_slot(executor),
                                 place_of_parameter(step, executor->nonfinite_parameter)};
    sharded_result *const all = executor->found;
    int owner = n_rank - 1, place = -1;
    while (executor->border[owner] == executor->border[owner + 1]) owner--;
    const tandem_status status = tandem_worker_gather(executor->worker, &mine, all, sizeof mine, error);
    for (int r = 0; r < n_rank && status == TANDEM_OK; r++)
        if (all[r].place >= 0 && (place < 0 || all[r].place < place)) place = all[r].place;
    if (status == TANDEM_OK) {
        *loss = all[owner].loss;
        executor->nonfinite_parameter = place < 0 ? -1 : step->parameter_order[place];
    }
    return status;
}

tandem_status tandem_executor_end_sharded_step(tandem_executor *executor, int64_t origin, float *loss,
                                               tandem_error *error)
{
    const tandem_step *step = executor->step;
    if (!executor->reducer) return TANDEM_OK;
    for (int b = 0; b < step->n_bucket; b++) {
        int64_t start_ns = 0, end_ns = 0;
        const int64_t before_ns = tandem_now_ns();
        const tandem_status status =
            tandem_reducer_wait_gathered(executor->reducer, b, &start_ns, &end_ns, error);
        if (status != TANDEM_OK) return status;
        executor->times.start_ns[step->bucket[b].gather_task] = start_ns - origin;
        executor->times.end_ns[step->bucket[b].gather_task] = end_ns - origin;
        executor->times.wait_ns[b] += tandem_now_ns() - before_ns;
    }
    return share_results(executor, loss, error);
}

/* --- Checkpoints ---------------------------------------------------------------------------------------- */

static void copy_own_shards(const tandem_executor *executor, int k, int into_state)
{
    for (int b = 0; b < executor->step->n_bucket; b++) {
        const tandem_shard *shard = &executor->shard[b];
        float *const state = executor->state[k] + shard->start, *const whole =
                                                                    executor->host_gradient +
                                                                    executor->step->bucket[b].start +
                                                                    shard->first;
        memcpy(into_state ? state : whole, into_state ? whole : state,
               (size_t)shard->elements * sizeof *state);
    }
}

tandem_status tandem_executor_gather_state(tandem_executor *executor, int k, tandem_error *error)
{
    const size_t n_border = (size_t)executor->worker->n_rank + 1;
    tandem_status status = TANDEM_OK;
    copy_own_shards(executor, k, 0);
    for (int b = 0; b < executor->step->n_bucket && executor->worker->comm && status == TANDEM_OK; b++)
        status = tandem_comm_gather_shards(executor->worker->comm,
                                           executor->host_gradient + executor->step->bucket[b].start,
                                           (size_t)executor->step->bucket[b].elements,
                                           executor->border + (size_t)b * n_border, TAG_WORKER, error);
    return status;
}

void tandem_executor_take_state(tandem_executor *executor, int k) { copy_own_shards(executor, k, 1); }
