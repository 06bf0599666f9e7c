/* run.c: runs the tasks of a step program: kernels, buckets that become ready, the norm and the updates. */
#include <string.h>

#include "backend/executor/batch.h"
#include "backend/executor/transfer.h"
#include "base/clock.h"
#include "base/philox.h"

/* The first micro-step's gradient replaces the sum of the step before. */
static int is_first_summand(const tandem_executor *executor, const tandem_task *task, int64_t micro_index)
{
    return task->kind == TANDEM_TASK_ACCUMULATE && task->parameter >= 0 &&
           micro_index % executor->step->options.n_micro == 0;
}

/* Casts draw per micro-step. Dropout draws per step and index in the global batch, so that micro-steps drop
 * what one large batch would. Kernels that add stream_offset get only the rest. The executor's first
 * micro-step finds empty histories, unless a checkpoint has filled them. */
static void set_micro_step(const tandem_executor *executor, tandem_kernel_call *call, int64_t micro_index)
{
    const int64_t n_micro = executor->step->options.n_micro;
    const int is_dropout = call->rng.stream[2] == TANDEM_RNG_DROPOUT;
    if (executor->step_args)
        call->rng.stream[0] = is_dropout ? 0 : (uint32_t)(micro_index % n_micro);
    else if (executor->emulation.same_weight_draws && call->rng.stream[2] == TANDEM_RNG_WEIGHT)
        call->rng.stream[0] = 0;
    else
        call->rng.stream[0] = (uint32_t)(is_dropout ? micro_index / n_micro : micro_index);
    call->first_sample = tandem_executor_first_sample(executor, micro_index);
    call->may_lack_range = executor->graphs.n_step == 0 && micro_index % n_micro == 0;
}

static void set_error_scale(const tandem_executor *executor, tandem_kernel_call *call, int t,
                            int64_t micro_index)
{
    const tandem_emulation *emulation = &executor->emulation;
    const int is_exact = micro_index % executor->step->options.n_micro < emulation->exact_micro_steps;
    call->error_scale =
        is_exact ? 0 : emulation->error_scale * (emulation->task_scale ? emulation->task_scale[t] : 1);
}

tandem_status tandem_executor_run_task(tandem_executor *executor, int t, int64_t micro_index,
                                       tandem_error *error)
{
    const tandem_task *task = &executor->step->task[t];
    tandem_kernel_call *call = &executor->call[t];
    if (!executor->kernel[t]) return tandem_batch_run_source(executor, task->op, micro_index, error);
    if (is_first_summand(executor, task, micro_index))
        return tandem_worker_copy_async(
            executor->worker, call->out[0], call->in[1],
            (uint64_t)executor->graph->parameter[task->parameter].elements * sizeof(float), error);
    set_micro_step(executor, call, micro_index);
    if (call->emulation) set_error_scale(executor, call, t, micro_index);
    tandem_status status = executor->worker->backend->run(executor->kernel[t], call, error);
    const int is_norm = task->kind == TANDEM_TASK_FORWARD && executor->batchnorm_stats.start[task->op] >= 0 &&
                        !tandem_step_is_recomputed(executor->step, t); /* once per micro-step */
    if (status == TANDEM_OK && is_norm && !executor->is_evaluation && !executor->options.hold_weights)
        status = tandem_batchnorm_stats_update(&executor->batchnorm_stats, executor->graph, task->op,
                                               call->out[1], executor->worker, error);
    return status;
}

/* A bucket is complete in this micro-step; its all-reduce may begin in the last one. */
static void set_bucket_ready(tandem_executor *executor, int b, int64_t micro_index)
{
    const int64_t n_micro = executor->step->options.n_micro, micro = micro_index % n_micro;
    if (b == 0) {
        const int id = tandem_value_activation(executor->step, executor->graph->loss, TANDEM_F32);
        float loss;
        memcpy(&loss, executor->arena + executor->offset[id], sizeof loss);
        executor->loss = micro == 0 ? loss : executor->loss + loss;
    }
    if (micro < n_micro - 1) return;
    if (b == 0) *tandem_executor_loss_slot(executor) = executor->loss;
    if (executor->reducer) tandem_reducer_ready(executor->reducer, b);
}

static tandem_status wait_for_bucket(tandem_executor *executor, int b, int64_t origin, tandem_error *error)
{
    const tandem_bucket *bucket = &executor->step->bucket[b];
    tandem_step_times *times = &executor->times;
    const int64_t before = tandem_now_ns();
    if (executor->reducer) {
        int64_t start = 0, end = 0;
        const tandem_status status = tandem_reducer_wait(executor->reducer, b, &start, &end, error);
        if (status != TANDEM_OK) return status;
        times->start_ns[bucket->reduce_task] = start - origin;
        times->end_ns[bucket->reduce_task] = end - origin;
    } else if (tandem_worker_has_device_memory(executor->worker) && executor->host_gradient) {
        const tandem_status status = tandem_transfer_wait_bucket(executor, b, error);
        if (status != TANDEM_OK) return status;
    }
    times->wait_ns[b] = tandem_now_ns() - before;
    return TANDEM_OK;
}

/* Waits for all buckets, because clipping and unscaling need the norm of all gradients. */
static tandem_status unscale_and_clip(tandem_executor *executor, int t, int64_t origin, tandem_error *error)
{
    const tandem_step *step = executor->step;
    const int has_device_memory = tandem_worker_has_device_memory(executor->worker);
    tandem_status status = has_device_memory ? tandem_transfer_record_wait(executor, 0, error) : TANDEM_OK;
    for (int b = 0; b < step->n_bucket && status == TANDEM_OK; b++)
        status = wait_for_bucket(executor, b, origin, error);
    if (status != TANDEM_OK) return status;
    executor->times.start_ns[t] = tandem_now_ns() - origin;
    status = tandem_executor_unscale_and_clip(executor, error);
    executor->times.end_ns[t] = tandem_now_ns() - origin;
    return status;
}

static tandem_status update_bucket(tandem_executor *executor, int b, int64_t index, int64_t origin,
                                   tandem_error *error)
{
    const tandem_step *step = executor->step;
    const tandem_bucket *bucket = &step->bucket[b];
    tandem_step_times *times = &executor->times;
    const int has_device_memory = tandem_worker_has_device_memory(executor->worker),
              has_norm = step->norm_task >= 0;
    tandem_status status = has_device_memory && !(has_norm && b == 0)
                               ? tandem_transfer_record_wait(executor, b, error)
                               : TANDEM_OK;
    if (status == TANDEM_OK && !has_norm) status = wait_for_bucket(executor, b, origin, error);
    if (status != TANDEM_OK) return status;
    times->start_ns[bucket->update_task] = tandem_now_ns() - origin;
    if (has_device_memory)
        return tandem_transfer_update_bucket(executor, b, tandem_executor_applied_steps(executor, index),
                                             error);
    for (int k = 0; k < bucket->n_parameter; k++)
        tandem_executor_update_parameter(
            executor, step->parameter_order[bucket->first_parameter_position + k], b, index);
    times->end_ns[bucket->update_task] = tandem_now_ns() - origin;
    return TANDEM_OK;
}

/* A task of the CPU begins where the one before has ended: what lies between them is time of the step, too.
 * *begin_ns moves to its end. */
static tandem_status run_timed_task(tandem_executor *executor, int t, int64_t micro_index, int64_t origin,
                                    int64_t *begin_ns, tandem_error *error)
{
    const tandem_step *step = executor->step;
    const int64_t at = micro_index % step->options.n_micro * step->n_task + t;
    const tandem_status status = tandem_executor_run_task(executor, t, micro_index, error);
    executor->times.all_start_ns[at] = *begin_ns;
    executor->times.all_end_ns[at] = *begin_ns = tandem_now_ns() - origin;
    return status;
}

/* Runs active task number k. *begin_ns: when the task before has ended, where it is known. */
static tandem_status run_active_task(tandem_executor *executor, int k, int64_t micro_index, int64_t origin,
                                     int64_t *begin_ns, tandem_error *error)
{
    const tandem_step *step = executor->step;
    const int t = executor->active[k], has_device_memory = tandem_worker_has_device_memory(executor->worker);
    const tandem_task *task = &step->task[t];
    if (task->kind == TANDEM_TASK_NORM) return unscale_and_clip(executor, t, origin, error);
    if (task->kind == TANDEM_TASK_UPDATE)
        return update_bucket(executor, task->bucket, micro_index / step->options.n_micro, origin, error);
    if (task->kind == TANDEM_TASK_GATHER) {
        if (executor->reducer) tandem_reducer_updated(executor->reducer, task->bucket);
        return TANDEM_OK;
    }
    if (tandem_task_is_collective(task->kind)) {
        if (has_device_memory) return tandem_transfer_send_bucket(executor, task->bucket, micro_index, error);
        set_bucket_ready(executor, task->bucket, micro_index);
        return TANDEM_OK;
    }
    if (has_device_memory) {
        const tandem_status status = tandem_executor_run_task(executor, t, micro_index, error);
        return status == TANDEM_OK ? tandem_transfer_end_task(executor, k, error) : status;
    }
    return run_timed_task(executor, t, micro_index, origin, begin_ns, error);
}

/* Runs n active tasks, from number k on, as one. */
static tandem_status run_merged_tasks(tandem_executor *executor, int k, int n, int64_t micro_index,
                                      tandem_error *error)
{
    const tandem_kernel *kernel[TANDEM_MAX_MERGED_CASTS];
    const tandem_kernel_call *call[TANDEM_MAX_MERGED_CASTS];
    const tandem_task *task = &executor->step->task[executor->active[k]];
    if (task->kind == TANDEM_TASK_UPDATE)
        return tandem_transfer_update_buckets(
            executor, task->bucket, n,
            tandem_executor_applied_steps(executor, micro_index / executor->step->options.n_micro), error);
    for (int i = 0; i < n; i++) {
        const int t = executor->active[k + i];
        set_micro_step(executor, &executor->call[t], micro_index);
        kernel[i] = executor->kernel[t];
        call[i] = &executor->call[t];
    }
    const tandem_status status = executor->worker->backend->run_merged(kernel, call, n, error);
    return status == TANDEM_OK ? tandem_transfer_end_task(executor, k + n - 1, error) : status;
}

tandem_status tandem_executor_run_tasks(tandem_executor *executor, int first, int end, int64_t micro_index,
                                        int64_t origin, tandem_error *error)
{
    int64_t begin_ns = tandem_now_ns() - origin;
    for (int k = first, n; k < end; k += n) {
        const int64_t before_ns = begin_ns;
        n = tandem_executor_merged(executor, k);
        const tandem_status status =
            n > 1 ? run_merged_tasks(executor, k, n, micro_index, error)
                  : run_active_task(executor, k, micro_index, origin, &begin_ns, error);
        if (status != TANDEM_OK) return status;
        if (executor->observer) executor->observer(executor->observer_context, executor, executor->active[k]);
        if (executor->observer || begin_ns == before_ns) begin_ns = tandem_now_ns() - origin;
    }
    return TANDEM_OK;
}
