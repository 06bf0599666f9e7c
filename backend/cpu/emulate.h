/* emulate.h: runs a task of any dtypes with an f32 kernel, and rounds what the plan rounds. */
#ifndef TANDEM_BACKEND_CPU_EMULATE_H
#define TANDEM_BACKEND_CPU_EMULATE_H

#include "backend/cpu/operator.h"

/* The task in f32. */
tandem_task cpu_emulated_task(const tandem_task *task);
/* Wraps a kernel that was prepared for the task in f32. It then rounds operands before a product that reads
 * tf32 and, where the step has a recipe, before one that reads s8; and results that are written in bf16 or
 * f16. On error the kernel is as it was. */
tandem_status cpu_emulate_kernel(tandem_kernel *kernel, const tandem_step *step, int task,
                                 tandem_error *error);

#endif
