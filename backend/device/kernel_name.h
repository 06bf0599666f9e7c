/* kernel_name.h: what every device backend says of a kernel in the same words, and which of its rows runs a
 * task. */
#ifndef TANDEM_BACKEND_KERNEL_NAME_H
#define TANDEM_BACKEND_KERNEL_NAME_H

#include "tandem/step.h"

/* A backend's rows: one for each operator of op.def, one each for casts and for sums of gradients, and one
 * that stays NULL. */
enum {
    KERNEL_ROW_CAST = TANDEM_N_OP_KIND,
    KERNEL_ROW_ACCUMULATE,
    KERNEL_ROW_NONE, /* all-reduces and updates are no kernels */
    N_KERNEL_ROW
};
/* op: the task's operator, or NULL. */
int kernel_row_of(const tandem_task *task, const tandem_op *op);

enum { KERNEL_NAME = 160 };
/* "the dgrad of operator 'block0.q' (linear, bf16, f32 to bf16)" */
void kernel_name(char name[KERNEL_NAME], const tandem_task *task, const tandem_op *op);

/* TANDEM_NO_KERNEL: the device, the kernel, and why. */
tandem_status kernel_refuse(const char *device, const tandem_task *task, const tandem_op *op, const char *why,
                            tandem_error *error);
/* TANDEM_NO_KERNEL: number `index` of the step is a task without a kernel; op may be NULL. */
tandem_status kernel_missing(int index, const tandem_task *task, const tandem_op *op, tandem_error *error);
/* TANDEM_NO_MEMORY, while it was prepared. */
tandem_status kernel_no_memory(const tandem_task *task, const tandem_op *op, tandem_error *error);

#endif
