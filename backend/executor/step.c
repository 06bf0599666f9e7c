/* step.c: runs one training step: its micro-steps here, the all-reduces of ready buckets on the reducer's
 * thread. */
#include "backend/executor/batch.h"
#include "backend/executor/transfer.h"
#include "base/clock.h"

/* Runs one micro-step; the last one includes the updates. What is pending of the step before is read as soon
 * as this one is under way, and before the next batch takes that step's place. */
static tandem_status run_micro_step(tandem_executor *executor, int64_t micro_index, int64_t origin,
                                    double *loss, tandem_error *error)
{
    const int n_micro = executor->step->options.n_micro, micro = (int)(micro_index % n_micro);
    const int n_backward = executor->n_backward;
    const int end = micro < n_micro - 1 ? n_backward : executor->n_run;
    int done = 0;
    tandem_status status = tandem_device_graphs_run(executor, &done, micro_index, origin, error);
    if (status == TANDEM_OK)
        status = tandem_executor_run_tasks(executor, done, n_backward, micro_index, origin, error);
    if (status == TANDEM_OK) status = tandem_late_read(executor, loss, error);
    if (status == TANDEM_OK) status = tandem_batch_prefetch(executor, micro_index + 1, error);
    if (status == TANDEM_OK)
        status = tandem_executor_run_tasks(executor, done > n_backward ? done : n_backward, end, micro_index,
                                           origin, error);
    if (status != TANDEM_OK) return status;
    return tandem_worker_has_device_memory(executor->worker)
               ? tandem_transfer_end_micro_step(executor, micro, error)
               : TANDEM_OK;
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
        status = run_micro_step(executor, index * n_micro + micro, origin, loss, error);
    if (status == TANDEM_OK && has_device_memory && !executor->late.is_enabled)
        status = tandem_transfer_end_step(executor, &carried, error);
    if (status != TANDEM_OK) return status;
    if (!has_device_memory) carried = *tandem_executor_loss_slot(executor);
    if (tandem_executor_is_sharded(executor))
        status = tandem_executor_end_sharded_step(executor, origin, &carried, error);
    if (status != TANDEM_OK) return status;
    if (executor->reducer) tandem_reducer_next_step(executor->reducer);
    executor->times.step_ns = tandem_now_ns() - origin;
    executor->times.n_event = executor->n_active;
    executor->graphs.n_step++;
    /* the second step made the graphs */
    if (has_device_memory && executor->graphs.n_step == 2) tandem_executor_note_unplanned(executor);
    if (executor->late.is_enabled) return tandem_late_queue(executor, index, loss, error);
    if (has_device_memory) status = tandem_transfer_read_times(executor, error);
    if (status == TANDEM_OK) status = tandem_late_finish_step(executor, index, carried, loss, error);
    if (status != TANDEM_OK) return status;
    if (executor->grad_scaler.is_loss_scaled) tandem_grad_scaler_update(&executor->grad_scaler);
    return TANDEM_OK;
}
