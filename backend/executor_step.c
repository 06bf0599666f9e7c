/* executor_step.c: runs the step program once: compute here, all-reduce of finished buckets on the reducer's
 * thread. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "backend/batch.h"
#include "backend/transfer.h"
#include "base/clock.h"
#include "base/philox.h"

/* --- Tasks ---------------------------------------------------------------------------------------------- */

/* In the first micro-step nothing has been summed yet. */
static int begins_sum(const tandem_executor *executor, const tandem_task *task, int64_t pass)
{
    return task->kind == TANDEM_TASK_ACCUMULATE && task->parameter >= 0 &&
           pass % executor->step->options.n_micro == 0;
}

/* Draws are of the micro-step, but those of dropout of the step and of the place in the global batch:
 * micro-steps drop what the whole batch would. Where the device knows the step (draws.since), only what is
 * behind that. */
static void set_draws(const tandem_executor *executor, tandem_kernel_call *call, int64_t pass)
{
    const int64_t n_micro = executor->step->options.n_micro;
    const int drops = call->draws.stream[2] == TANDEM_DRAW_DROPOUT;
    if (executor->now)
        call->draws.stream[0] = drops ? 0 : (uint32_t)(pass % n_micro);
    else
        call->draws.stream[0] = (uint32_t)(drops ? pass / n_micro : pass);
    call->first_place = tandem_executor_first_sample(executor, pass);
}

tandem_status tandem_executor_run_task(tandem_executor *executor, int t, int64_t pass, tandem_error *error)
{
    const tandem_task *task = &executor->step->task[t];
    tandem_kernel_call *call = &executor->call[t];
    if (!executor->kernel[t]) return tandem_batch_run(executor, task->op, pass, error);
    if (begins_sum(executor, task, pass))
        return tandem_worker_move(
            executor->worker, call->out[0], call->in[1],
            (uint64_t)executor->graph->parameter[task->parameter].elements * sizeof(float), error);
    set_draws(executor, call, pass);
    tandem_status status = executor->worker->backend->run(executor->kernel[t], call, error);
    const int is_norm = task->kind == TANDEM_TASK_FORWARD && executor->statistics.start[task->op] >= 0 &&
                        !tandem_step_is_again(executor->step, t); /* once a micro-step */
    if (status == TANDEM_OK && is_norm && !executor->evaluates)
        status = tandem_running_follow(&executor->statistics, executor->graph, task->op, call->out[1],
                                       executor->worker, error);
    return status;
}

/* A bucket is complete: of the step in its last micro-step. */
static void hand_over(tandem_executor *executor, int b, int64_t pass)
{
    const int64_t n_micro = executor->step->options.n_micro, micro = pass % n_micro;
    if (b == 0) {
        const int id = tandem_value_activation(executor->step, executor->graph->loss, TANDEM_F32);
        float loss;
        memcpy(&loss, executor->arena + executor->offset[id], sizeof loss);
        executor->loss = micro == 0 ? loss : executor->loss + loss;
    }
    if (micro < n_micro - 1) return;
    if (b == 0) *tandem_executor_loss_carrier(executor) = executor->loss;
    if (executor->reducer) tandem_reducer_ready(executor->reducer, b);
}

/* With the one under way. */
static int64_t steps_applied(const tandem_executor *executor, int64_t index)
{
    return index + 1 - executor->gate.scaling.skipped;
}

/* Behind a gradient that is not finite, nothing more is updated, and in a step that is skipped nothing at
 * all. */
static void update_parameter(tandem_executor *executor, int p, int64_t index)
{
    if (executor->not_finite >= 0 || executor->gate.skips) return;
    const int64_t at = executor->step->parameter_start[p];
    float *const state[2] = {executor->state[0] + at, executor->state[1] ? executor->state[1] + at : NULL};
    const int is_finite = executor->worker->backend->update(
        executor->worker->device, &executor->optimizer, executor->decays[p], NULL, executor->weight + at,
        state, executor->gradient + at, executor->graph->parameter[p].elements,
        steps_applied(executor, index), NULL);
    if (!is_finite && !executor->options.allow_nan) executor->not_finite = p;
}

/* Until bucket b is reduced. */
static tandem_status await_bucket(tandem_executor *executor, int b, int64_t origin, tandem_error *error)
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
    } else if (tandem_worker_is_apart(executor->worker) && executor->host_gradient) {
        const tandem_status status = tandem_transfer_await_bucket(executor, b, error);
        if (status != TANDEM_OK) return status;
    }
    times->wait_ns[b] = tandem_now_ns() - before;
    return TANDEM_OK;
}

/* Where all gradients must be known before any update. */
static tandem_status judge(tandem_executor *executor, int t, int64_t origin, tandem_error *error)
{
    const tandem_step *step = executor->step;
    const int is_apart = tandem_worker_is_apart(executor->worker);
    tandem_status status = is_apart ? tandem_transfer_begin_wait(executor, 0, error) : TANDEM_OK;
    for (int b = 0; b < step->n_bucket && status == TANDEM_OK; b++)
        status = await_bucket(executor, b, origin, error);
    if (status != TANDEM_OK) return status;
    executor->times.start_ns[t] = tandem_now_ns() - origin;
    tandem_gate_judge(&executor->gate, step, executor->host_gradient);
    executor->times.end_ns[t] = tandem_now_ns() - origin;
    return TANDEM_OK;
}

static tandem_status update(tandem_executor *executor, int b, int64_t index, int64_t origin,
                            tandem_error *error)
{
    const tandem_step *step = executor->step;
    const tandem_bucket *bucket = &step->bucket[b];
    tandem_step_times *times = &executor->times;
    const int is_apart = tandem_worker_is_apart(executor->worker), is_judged = step->norm_task >= 0;
    tandem_status status =
        is_apart && !(is_judged && b == 0) ? tandem_transfer_begin_wait(executor, b, error) : TANDEM_OK;
    if (status == TANDEM_OK && !is_judged) status = await_bucket(executor, b, origin, error);
    if (status != TANDEM_OK) return status;
    times->start_ns[bucket->update_task] = tandem_now_ns() - origin;
    if (is_apart) return tandem_transfer_update(executor, b, steps_applied(executor, index), error);
    for (int k = 0; k < bucket->n_parameter; k++)
        update_parameter(executor, step->parameter_order[bucket->first_parameter_place + k], index);
    times->end_ns[bucket->update_task] = tandem_now_ns() - origin;
    return TANDEM_OK;
}

/* The active task at place k. */
static tandem_status run_one(tandem_executor *executor, int k, int64_t pass, int64_t origin,
                             tandem_error *error)
{
    const tandem_step *step = executor->step;
    const int t = executor->active[k], is_apart = tandem_worker_is_apart(executor->worker);
    const tandem_task *task = &step->task[t];
    const int64_t micro = pass % step->options.n_micro;
    if (task->kind == TANDEM_TASK_NORM) return judge(executor, t, origin, error);
    if (task->kind == TANDEM_TASK_UPDATE)
        return update(executor, task->bucket, pass / step->options.n_micro, origin, error);
    if (task->kind == TANDEM_TASK_REDUCE) {
        if (is_apart) return tandem_transfer_send_bucket(executor, task->bucket, pass, error);
        hand_over(executor, task->bucket, pass);
        return TANDEM_OK;
    }
    if (is_apart) {
        const tandem_status status = tandem_executor_run_task(executor, t, pass, error);
        return status == TANDEM_OK ? tandem_transfer_end_task(executor, k, error) : status;
    }
    executor->times.all_start_ns[micro * step->n_task + t] = tandem_now_ns() - origin;
    const tandem_status status = tandem_executor_run_task(executor, t, pass, error);
    executor->times.all_end_ns[micro * step->n_task + t] = tandem_now_ns() - origin;
    return status;
}

int tandem_executor_first_behind(const tandem_executor *executor)
{
    const tandem_step *step = executor->step;
    const int first_behind = step->norm_task >= 0 ? step->norm_task : step->bucket[0].update_task;
    int place = 0;
    while (place < executor->n_active && executor->active[place] < first_behind) place++;
    return place;
}

tandem_status tandem_executor_run_places(tandem_executor *executor, int first, int end, int64_t pass,
                                         int64_t origin, tandem_error *error)
{
    for (int k = first; k < end; k++) {
        const tandem_status status = run_one(executor, k, pass, origin, error);
        if (status != TANDEM_OK) return status;
        if (executor->observer) executor->observer(executor->observer_context, executor, executor->active[k]);
    }
    return TANDEM_OK;
}

/* One micro-step; updates come with the last one. */
static tandem_status run_pass(tandem_executor *executor, int64_t pass, int64_t origin, tandem_error *error)
{
    const int n_micro = executor->step->options.n_micro, micro = (int)(pass % n_micro);
    const int behind = tandem_executor_first_behind(executor),
              end = micro < n_micro - 1 ? behind : executor->n_active;
    int done = 0;
    tandem_status status = tandem_graphs_run(executor, &done, pass, origin, error);
    if (status == TANDEM_OK) status = tandem_executor_run_places(executor, done, behind, pass, origin, error);
    if (status == TANDEM_OK) status = tandem_batch_load_ahead(executor, pass + 1, error);
    if (status == TANDEM_OK)
        status =
            tandem_executor_run_places(executor, done > behind ? done : behind, end, pass, origin, error);
    if (status != TANDEM_OK) return status;
    return tandem_worker_is_apart(executor->worker) ? tandem_transfer_end_pass(executor, micro, error)
                                                    : TANDEM_OK;
}

/* All ranks see the same sums, so all stop in the same step, and rank 0 tells it. Buckets and their
 * parameters stand in backward order, so the parameter found first is the first there. */
static tandem_status check_finite(const tandem_executor *executor, int64_t index, float loss,
                                  tandem_error *error)
{
    const int p = executor->not_finite;
    if (p < 0 && isfinite(loss)) return TANDEM_OK;
    char where[128] = "";
    if (p >= 0) {
        const tandem_op *op = &executor->graph->op[executor->graph->parameter[p].op];
        (void)snprintf(where, sizeof where, "the gradient of operator '%s' (%s) is not finite, ", op->name,
                       tandem_op_row_get(op->kind)->name);
    }
    (void)tandem_error_set(error, TANDEM_OVER_LIMIT,
                           "training has diverged in step %lld: %sthe loss is %g; a smaller learning rate, a "
                           "warm-up, or "
                           "fewer operators in low precision may help",
                           (long long)index + 1, where, (double)loss);
    if (error) error->rank = 0;
    return TANDEM_OVER_LIMIT;
}

tandem_status tandem_executor_step(tandem_executor *executor, int64_t index, double *loss,
                                   tandem_error *error)
{
    const int64_t origin = tandem_now_ns();
    executor->not_finite = -1;
    executor->gate.skips = 0;
    const int n_micro = executor->step->options.n_micro, is_apart = tandem_worker_is_apart(executor->worker);
    if (!is_apart)
        executor->call[executor->loss_dgrad].row_weight =
            executor->call[executor->loss_forward].row_weight * executor->gate.scaling.scale;
    float carried = 0;
    tandem_status status =
        is_apart ? tandem_transfer_begin_step(executor, index, steps_applied(executor, index), error)
                 : TANDEM_OK;
    for (int micro = 0; micro < n_micro && status == TANDEM_OK; micro++)
        status = run_pass(executor, index * n_micro + micro, origin, error);
    if (status == TANDEM_OK && is_apart) status = tandem_transfer_end_step(executor, &carried, error);
    if (status != TANDEM_OK) return status;
    if (!is_apart) carried = *tandem_executor_loss_carrier(executor);
    if (executor->reducer) tandem_reducer_next_step(executor->reducer);
    executor->times.step_ns = tandem_now_ns() - origin;
    executor->times.n_event = executor->n_active;
    executor->graphs.steps++;
    if (is_apart) status = tandem_transfer_read_times(executor, error);
    if (status != TANDEM_OK) return status;
    const float mean = isnan(carried) ? NAN : carried; /* a NaN without a sign */
    if (!executor->options.allow_nan) status = check_finite(executor, index, mean, error);
    if (status != TANDEM_OK) return status;
    if (executor->gate.scales) tandem_gate_adapt(&executor->gate);
    *loss = (double)mean;
    return TANDEM_OK;
}
