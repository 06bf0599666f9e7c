/* values.c: what a value id means, in both directions. */
#include "step/program/values.h"

int tandem_value_activation(const tandem_step *step, int tensor, tandem_dtype dtype)
{
    return activation_value(step, tensor, dtype);
}

int tandem_value_gradient(const tandem_step *step, int tensor, tandem_dtype dtype)
{
    return gradient_value(step, tensor, dtype);
}

int tandem_value_aux(const tandem_step *step, int op)
{
    (void)step;
    return value_id(op, VALUE_AUX, 0);
}

int tandem_value_untransposed(const tandem_step *step, int value)
{
    const int n = step->index->n_untransposed;
    return value >= n ? value - n : value;
}

int tandem_value_role(const tandem_step *step, int value, int *op)
{
    const int v = tandem_value_untransposed(step, value), role = v % VALUES_PER_OP;
    if (v >= step->graph->n_op * VALUES_PER_OP) return -1;
    *op = v / VALUES_PER_OP;
    return role < VALUE_GRADIENT ? 0 : role < VALUE_AUX ? 1 : 2 + role - VALUE_AUX;
}
_Static_assert((int)TANDEM_N_VALUE_ROLE == 2 + VALUES_PER_OP - VALUE_AUX, "every role has a number");

int step_cast_value(const tandem_step *step, const tandem_task *task, tandem_dtype to)
{
    return task->kind == TANDEM_TASK_WEIGHT_CAST ? weight_value(step, task->op, to)
           : task->kind == TANDEM_TASK_CAST      ? activation_value(step, task->op, to)
                                                 : gradient_value(step, task->op, to);
}

int64_t step_home_of_copy(const tandem_step *step, int v)
{
    const int n_op = step->graph->n_op, first = n_op * VALUES_PER_OP, n_copy = n_op * WEIGHT_COPIES_PER_OP;
    if (!step_copies_have_homes(step) || v < first || v >= first + n_copy) return -1;
    const int op = (v - first) / WEIGHT_COPIES_PER_OP;
    if (!step_is_written_by(step->graph, op)) return -1;
    const int p = step->graph->op[op].parameter[0], wgrad = step->index->wgrad[op];
    const int64_t from = step_place_in_gradient(step->graph->parameter[p].elements, step->value[v].bytes);
    if (from < 0 || wgrad < 0 || !step->task[wgrad].active || step->value[v].last >= wgrad) return -1;
    return step->parameter_start[p] * (int64_t)sizeof(float) + from;
}

tandem_memory_category step_value_category(const tandem_step *step, int value)
{
    static const tandem_memory_category activation[] = {
        [TANDEM_F32] = TANDEM_MEMORY_ACTIVATIONS_F32,     [TANDEM_BF16] = TANDEM_MEMORY_ACTIVATIONS_BF16,
        [TANDEM_S8] = TANDEM_MEMORY_ACTIVATIONS_S8,       [TANDEM_F16] = TANDEM_MEMORY_ACTIVATIONS_F16,
        [TANDEM_E4M3] = TANDEM_MEMORY_ACTIVATIONS_E4M3,   [TANDEM_MXFP8] = TANDEM_MEMORY_ACTIVATIONS_MXFP8,
        [TANDEM_NVFP4] = TANDEM_MEMORY_ACTIVATIONS_NVFP4, [TANDEM_S32] = TANDEM_MEMORY_ACTIVATIONS_S32};
    const int n_op = step->graph->n_op, v = tandem_value_untransposed(step, value);
    const int is_extra = v >= n_op * BASIC_VALUES_PER_OP;
    const int role = is_extra ? (v - n_op * BASIC_VALUES_PER_OP) % EXTRA_VALUES_PER_OP : v % VALUES_PER_OP;
    if (is_extra && role >= EXTRA_WEIGHT_GRADIENT) return TANDEM_MEMORY_WEIGHT_GRADIENTS;
    if (!is_extra && v >= n_op * VALUES_PER_OP) return TANDEM_MEMORY_WEIGHT_COPIES;
    if (role == (is_extra ? (int)EXTRA_AUX : (int)VALUE_AUX)) return TANDEM_MEMORY_SIDE_RESULTS;
    if (!is_extra && ((role >= VALUE_GRADIENT && role < VALUE_AUX) || role >= VALUE_CONTRIBUTION))
        return TANDEM_MEMORY_ACTIVATION_GRADIENTS;
    return activation[step->value[v].dtype];
}
