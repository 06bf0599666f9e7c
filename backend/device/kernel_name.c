/* kernel_name.c: names of kernels in errors. */
#include "backend/device/kernel_name.h"

#include <stdio.h>

int kernel_row_of(const tandem_task *task, const tandem_op *op)
{
    switch (task->kind) {
    case TANDEM_TASK_WEIGHT_CAST:
    case TANDEM_TASK_CAST:
    case TANDEM_TASK_GRADIENT_CAST:
    case TANDEM_TASK_SAVED_CAST: return KERNEL_ROW_CAST;
    case TANDEM_TASK_ACCUMULATE: return KERNEL_ROW_ACCUMULATE;
    case TANDEM_TASK_FORWARD:
    case TANDEM_TASK_WGRAD:
    case TANDEM_TASK_DGRAD: return op ? (int)op->kind : KERNEL_ROW_NONE;
    default: return KERNEL_ROW_NONE;
    }
}

void kernel_name(char name[KERNEL_NAME], const tandem_task *task, const tandem_op *op)
{
    const tandem_op_row *row = tandem_op_row_get(op->kind);
    (void)snprintf(name, KERNEL_NAME, "the %s of operator '%s' (%s%s%s, %s to %s)",
                   tandem_task_kind_name(task->kind), op->name, row->name,
                   row->op_class == TANDEM_ADJUSTABLE ? ", " : "",
                   row->op_class == TANDEM_ADJUSTABLE ? tandem_precision_get(task->precision)->name : "",
                   tandem_dtype_name(task->from), tandem_dtype_name(task->to));
}

tandem_status kernel_refuse(const char *device, const tandem_task *task, const tandem_op *op, const char *why,
                            tandem_error *error)
{
    char name[KERNEL_NAME];
    kernel_name(name, task, op);
    return tandem_error_set(
        error, TANDEM_NO_KERNEL,
        "device '%s' has no kernel for %s: %s; give the operator another precision or use another device",
        device, name, why);
}

tandem_status kernel_missing(int index, const tandem_task *task, const tandem_op *op, tandem_error *error)
{
    return tandem_error_set(error, TANDEM_NO_KERNEL, "task %d (%s%s%s) runs no kernel", index,
                            tandem_task_kind_name(task->kind), op ? " of operator " : "", op ? op->name : "");
}

tandem_status kernel_no_memory(const tandem_task *task, const tandem_op *op, tandem_error *error)
{
    char name[KERNEL_NAME];
    kernel_name(name, task, op);
    return tandem_no_memory(error, "to prepare %s", name);
}
