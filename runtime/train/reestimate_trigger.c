#include "runtime/train/reestimate_trigger.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    CHECKS = 8,      /* of ranges, between two estimates */
    QUARTERS = 4,    /* of a power of two: the resolution of a kept range */
    TOP_QUARTER = 90 /* as many as there are characters for in a checkpoint */
};

static int count_watched_operators(const reestimate_trigger *trigger)
{
    return trigger->rank->step->graph->n_op;
}

tandem_status reestimate_trigger_open(reestimate_trigger *trigger, training_rank *rank, int64_t every,
                                      tandem_error *error)
{
    *trigger = (reestimate_trigger){.rank = rank, .every = every};
    const size_t n_op = (size_t)count_watched_operators(trigger);
    trigger->seen = calloc(n_op, sizeof *trigger->seen);
    trigger->range = calloc(n_op, sizeof *trigger->range);
    return trigger->seen && trigger->range
               ? TANDEM_OK
               : tandem_no_memory(error, "for the ranges of %d operators", (int)n_op);
}

void reestimate_trigger_close(reestimate_trigger *trigger)
{
    free(trigger->seen);
    free(trigger->range);
    *trigger = (reestimate_trigger){0};
}

/* The gradient of an operator's output, before it is cast. */
static void see_gradient(void *context, const tandem_executor *executor, int t)
{
    reestimate_trigger *const trigger = context;
    const tandem_step *step = trigger->rank->step;
    const tandem_task *task = &step->task[t];
    if (task->op < 0) return;
    int value = -1;
    if (task->kind == TANDEM_TASK_GRADIENT_CAST) value = task->read[0]; /* after a bias, the bias's */
    if (task->kind == TANDEM_TASK_WGRAD) value = task->read[1]; /* of products; a bias reads none there */
    if (value < 0 || step->value[value].dtype != TANDEM_F32) return;
    const float *g = trigger->rank->backend->executor_value(executor, value, 0, NULL);
    const int64_t n = tandem_shape_elements(&step->graph->op[task->op].shape);
    double square = 0, largest = 0;
    for (int64_t i = 0; g && i < n; i++) {
        const double x = fabs((double)g[i]);
        square += x * x;
        largest = fmax(largest, x);
    }
    /* a NaN, of zeros or of what is not finite, is left out */
    trigger->seen[task->op] = fmaxf(trigger->seen[task->op], (float)(largest / sqrt(square / (double)n)));
}

/* Over all ranks, in quarters of a power of two. range: zeros. */
static tandem_status gather_ranges(unsigned char *range, const reestimate_trigger *trigger,
                                   tandem_error *error)
{
    const int n_op = count_watched_operators(trigger), n_rank = trigger->rank->self.n_rank;
    float *const all = malloc((size_t)n_op * (size_t)n_rank * sizeof *all);
    if (!all) return tandem_no_memory(error, "for the ranges of %d operators", n_op);
    const tandem_status status = trigger->rank->backend->worker_gather(
        trigger->rank->worker, trigger->seen, all, (size_t)n_op * sizeof *all, error);
    for (int i = 0; i < n_op && status == TANDEM_OK; i++) {
        float largest = 0;
        for (int r = 0; r < n_rank; r++) largest = fmaxf(largest, all[r * n_op + i]);
        if (largest > 0)
            range[i] = (unsigned char)fmin(1 + round(QUARTERS * log2(fmax((double)largest, 1))), TOP_QUARTER);
    }
    free(all);
    return status;
}

/* The operator whose gradient's range has doubled; -1: none. */
static int find_doubled(const unsigned char *before, const unsigned char *now, int n_op)
{
    for (int i = 0; i < n_op; i++)
        if (before[i] && now[i] >= before[i] + QUARTERS) return i;
    return -1;
}

static int may_estimate_early(const reestimate_trigger *trigger, int64_t done)
{
    enum { MORE = 4, OF = 3 };
    return !trigger->is_limited || OF * trigger->every * (trigger->n_estimated + 1) <= MORE * done;
}

static int is_reestimate_due(const reestimate_trigger *trigger, int64_t done)
{
    return trigger->every > 0 && done - trigger->last >= trigger->every;
}

void reestimate_trigger_before(reestimate_trigger *trigger, int64_t done)
{
    const int64_t check = trigger->every > CHECKS ? trigger->every / CHECKS : 1;
    trigger->is_observed = trigger->every > 0 && (done % check == 0 || is_reestimate_due(trigger, done));
    if (!trigger->is_observed) return;
    memset(trigger->seen, 0, (size_t)count_watched_operators(trigger) * sizeof *trigger->seen);
    trigger->rank->backend->executor_observe(trigger->rank->executor, see_gradient, trigger);
}

tandem_status reestimate_trigger_after(reestimate_trigger *trigger, int64_t done, int *is_due, int *doubled,
                                       tandem_error *error)
{
    *is_due = 0;
    *doubled = -1;
    if (!trigger->is_observed) return TANDEM_OK;
    const int n_op = count_watched_operators(trigger);
    int is_first = 1;
    for (int i = 0; i < n_op; i++) is_first = is_first && !trigger->range[i];
    unsigned char *const now = calloc((size_t)n_op, 1);
    if (!now) return tandem_no_memory(error, "for the ranges of %d operators", n_op);
    trigger->rank->backend->executor_observe(trigger->rank->executor, NULL, NULL);
    const tandem_status status = gather_ranges(now, trigger, error);
    if (status == TANDEM_OK) {
        if (may_estimate_early(trigger, done)) *doubled = find_doubled(trigger->range, now, n_op);
        *is_due = *doubled >= 0 || is_reestimate_due(trigger, done);
        if (is_first || *is_due) memcpy(trigger->range, now, (size_t)n_op);
        if (*is_due) trigger->last = done;
        trigger->n_estimated += *is_due;
    }
    free(now);
    return status;
}
