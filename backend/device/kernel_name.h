/* kernel_name.h: how every device backend names a kernel in errors, and which row of its table runs a task.
 * */
#pragma once

#include "tandem/advanced/step.h"

/* The rows of a device's table: one per operator of op.def, one for casts, one for sums of gradients, and one
 * that stays NULL. */
enum {
    KERNEL_ROW_CAST = TANDEM_N_OP_KIND,
    KERNEL_ROW_ACCUMULATE,
    KERNEL_ROW_NONE, /* all-reduces and updates run no kernel */
    N_KERNEL_ROW
};
/* op: the task's operator, or NULL. */
int kernel_row_of(const tandem_task *task, const tandem_op *op);

enum { KERNEL_NAME = 160 };
/* "the dgrad of operator 'block0.q' (linear, bf16, f32 to bf16)" */
void kernel_name(char name[KERNEL_NAME], const tandem_task *task, const tandem_op *op);

/* TANDEM_NO_KERNEL: names the device, the kernel and the reason. */
tandem_status kernel_refuse(const char *device, const tandem_task *task, const tandem_op *op, const char *why,
                            tandem_error *error);
/* TANDEM_NO_KERNEL: task number `index` of the step runs no kernel; op may be NULL. */
tandem_status kernel_missing(int index, const tandem_task *task, const tandem_op *op, tandem_error *error);
/* TANDEM_NO_MEMORY while a kernel was prepared. */
tandem_status kernel_no_memory(const tandem_task *task, const tandem_op *op, tandem_error *error);
