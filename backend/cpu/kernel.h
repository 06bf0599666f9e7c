/* kernel.h: what the operators' files share: names of kernels in errors, shapes, places in the workspace. */
#ifndef TANDEM_BACKEND_CPU_KERNEL_H
#define TANDEM_BACKEND_CPU_KERNEL_H

#include "backend/cpu/operator.h"
#include "backend/device/kernel_name.h"

/* TANDEM_NO_KERNEL: the device, the kernel, and why. */
static inline tandem_status cpu_kernel_refuse(const tandem_kernel *kernel, const char *why,
                                              tandem_error *error)
{
    return kernel_refuse(kernel->device->name, &kernel->task, kernel->op, why, error);
}
/* TANDEM_NO_MEMORY, while it was prepared. */
static inline tandem_status cpu_kernel_no_memory(const tandem_kernel *kernel, tandem_error *error)
{
    return kernel_no_memory(&kernel->task, kernel->op, error);
}

/* Shape of the operator's input `slot`, and of its output. */
const tandem_shape *cpu_input_shape(const tandem_kernel *kernel, int slot);

/* Where in `label`, the operator's input 1, the label of row `row` stands, of `rows` in all; *place: of the
 * row before. Where a sample has fewer rows than labels, row j has its j-th label that is not −1.
 * TANDEM_MALFORMED: there are too few. */
tandem_status cpu_label_index(int64_t *label_index, const tandem_kernel *kernel, const int32_t *label,
                              int64_t row, int64_t rows, tandem_error *error);

/* Elements of a bias's parameter that it adds, over and over (graph.h). */
size_t cpu_bias_period(const tandem_kernel *kernel);

/* sum[j] += row[j], a row of f32 or bf16. */
void cpu_add_row(float *sum, const void *row, tandem_dtype from, int64_t n);

/* Places in the workspace are multiples of 64: reserves `bytes` behind *end and returns where they begin. */
static inline uint64_t cpu_workspace_reserve(uint64_t *end, uint64_t bytes)
{
    const uint64_t start = *end;
    *end = (start + bytes + 63) / 64 * 64;
    return start;
}
static inline void *cpu_workspace_at(void *workspace, uint64_t offset) { return (char *)workspace + offset; }

/* What a product of operands 0 and 1 stands for, beside its integers: the product of their scales; 1 for
 * floats. */
static inline float cpu_product_scale(const tandem_kernel_call *call)
{
    return (call->in_scale[0] ? *call->in_scale[0] : 1.0f) * (call->in_scale[1] ? *call->in_scale[1] : 1.0f);
}

#endif
