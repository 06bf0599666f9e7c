/* late_results.c: what a step ends with, at once, or while the next one runs. */
#include <math.h>
#include <stdio.h>

#include "backend/executor/transfer.h"

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

tandem_status tandem_late_finish_step(const tandem_executor *executor, int64_t index, float carried,
                                      double *loss, tandem_error *error)
{
    const float mean = isnan(carried) ? NAN : carried; /* a NaN without its sign */
    const tandem_status status =
        executor->options.allow_nan ? TANDEM_OK : check_step_finite(executor, index, mean, error);
    if (status == TANDEM_OK) *loss = (double)mean;
    return status;
}

/* Nothing may run on in memory that is freed next. */
static void drain(const tandem_executor *executor)
{
    int is_finite = 0;
    (void)executor->worker->backend->device_sync(executor->worker->device, &is_finite, NULL);
}

void tandem_late_close(const tandem_executor *executor)
{
    if (executor->late.is_pending) drain(executor);
}

tandem_status tandem_late_read(tandem_executor *executor, double *loss, tandem_error *error)
{
    tandem_late_results *late = &executor->late;
    float carried = 0;
    if (!late->is_pending) return TANDEM_OK;
    late->is_pending = 0;
    tandem_status status = tandem_transfer_read_results(executor, &carried, error);
    if (status == TANDEM_OK) status = tandem_late_finish_step(executor, late->index, carried, loss, error);
    if (status != TANDEM_OK) drain(executor);
    return status;
}

tandem_status tandem_late_queue(tandem_executor *executor, int64_t index, double *loss, tandem_error *error)
{
    tandem_late_results *late = &executor->late;
    late->index = index;
    const tandem_status status = tandem_transfer_queue_results(executor, error);
    late->is_pending = 1; /* work is under way, also after an error */
    if (status != TANDEM_OK) return status;
    return tandem_transfer_updates_at_once(executor) ? TANDEM_OK : tandem_late_read(executor, loss, error);
}

int tandem_executor_is_pending(const tandem_executor *executor) { return executor->late.is_pending; }

tandem_status tandem_executor_settle(tandem_executor *executor, double *loss, tandem_error *error)
{
    return tandem_late_read(executor, loss, error);
}
