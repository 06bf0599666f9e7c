/* step.c: runs one training step: its micro-steps here, the all-reduces of ready buckets on the reducer's
 * thread. */
#include <math.h>
#include <stdio.h>

#include "backend/executor/batch.h"
#include "backend/executor/transfer.h"
#include "base/clock.h"

/* Runs one micro-step; the last one includes the updates. */
static tandem_status run_micro_step(tandem_executor *executor, int64_t micro_index, int64_t origin,
                                    tandem_error *error)
{
    const int n_micro = executor->step->options.n_micro, micro = (int)(micro_index % n_micro);
    const int n_backward = executor->n_backward;
    const int end = micro < n_micro - 1 ? n_backward : executor->n_run;
    int done = 0;
    tandem_status status = tandem_device_graphs_run(executor, &done, micro_index, origin, error);
    if (status == TANDEM_OK)
        status = tandem_executor_run_tasks(executor, done, n_backward, micro_index, origin, error);
    if (status == TANDEM_OK) status = tandem_batch_prefetch(executor, micro_index + 1, error);
    if (status == TANDEM_OK)
        status = tandem_executor_run_tasks(executor, done > n_backward ? done : n_backward, end, micro_index,
                                           origin, error);
    if (status != TANDEM_OK) return status;
    return tandem_worker_has_device_memory(executor->worker)
               ? tandem_transfer_end_micro_step(executor, micro, error)
               : TANDEM_OK;
}

/* All ranks see the same sums, so all stop in the same step, and rank 0 reports it. Parameters lie in
 * backward order, so the first one found is the first in that order. */
static tandem_status check_step_finite(const tandem_executor *executor, int64_t index, float loss,
                                       tandem_error *error)
{
    const int p = executor->nonfinite_parameter;
    if (p < 0 && isfinite(loss)) return TANDEM_OK;
    char where[128] = "";
    if (p >= 0) {
        const tandem_op *op = &executor->graph->op[executor->graph->parameter[p].op];
        (void)snprintf(where, sizeof where, "the gradient of operator '%s' (%s) is not finite, ", op->name,
                       tandem_op_row_get(op->kind)->name);
    }
    (void)tandem_error_set(
        error, TANDEM_LIMIT_EXCEEDED,
        "training has diverged in step %lld: %sthe loss is %g; a smaller learning rate, a warm-up, or fewer "
        "operators in low precision may help",
        (long long)index + 1, where, (double)loss);
    if (error) error->rank = 0;
    return TANDEM_LIMIT_EXCEEDED;
}

tandem_status tandem_executor_step(tandem_executor *executor, int64_t index, double *loss,
                                   tandem_error *error)
{
    const int64_t origin = tandem_now_ns();
    executor->nonfinite_parameter = -1;
    executor->grad_scaler.skip_step = 0;
    const int n_micro = executor->step->options.n_micro,
              has_device_memory = tandem_worker_has_device_memory(executor->worker);
    if (!has_device_memory)
        executor->call[executor->loss_dgrad_task].row_weight =
            executor->call[executor->loss_forward_task].row_weight * executor->grad_scaler.loss_scale.scale;
    float carried = 0;
    tandem_status status =
        has_device_memory ? tandem_transfer_begin_step(executor, index,
                                                       tandem_executor_applied_steps(executor, index), error)
                          : TANDEM_OK;
    for (int micro = 0; micro < n_micro && status == TANDEM_OK; micro++)
        status = run_micro_step(executor, index * n_micro + micro, origin, error);
    if (status == TANDEM_OK && has_device_memory)
        status = tandem_transfer_end_step(executor, &carried, error);
    if (status != TANDEM_OK) return status;
    if (!has_device_memory) carried = *tandem_executor_loss_slot(executor);
    if (executor->reducer) tandem_reducer_next_step(executor->reducer);
    executor->times.step_ns = tandem_now_ns() - origin;
    executor->times.n_event = executor->n_active;
    executor->graphs.n_step++;
    /* the second step made the graphs */
    if (has_device_memory && executor->graphs.n_step == 2) tandem_executor_note_unplanned(executor);
    if (has_device_memory) status = tandem_transfer_read_times(executor, error);
    if (status != TANDEM_OK) return status;
    const float mean = isnan(carried) ? NAN : carried; /* a NaN without its sign */
    if (!executor->options.allow_nan) status = check_step_finite(executor, index, mean, error);
    if (status != TANDEM_OK) return status;
    if (executor->grad_scaler.is_loss_scaled) tandem_grad_scaler_update(&executor->grad_scaler);
    *loss = (double)mean;
    return TANDEM_OK;
}
