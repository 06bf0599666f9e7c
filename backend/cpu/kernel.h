/* kernel.h: shared by the operators' files: names of kernels in errors, shapes, offsets in the workspace. */
#pragma once

#include "backend/cpu/operator.h"
#include "backend/device/kernel_name.h"

/* TANDEM_NO_KERNEL, with the device, the kernel and the reason. */
static inline tandem_status cpu_kernel_refuse(const tandem_kernel *kernel, const char *why,
                                              tandem_error *error)
{
    return kernel_refuse(kernel->device->name, &kernel->task, kernel->op, why, error);
}
/* TANDEM_NO_MEMORY during prepare. */
static inline tandem_status cpu_kernel_no_memory(const tandem_kernel *kernel, tandem_error *error)
{
    return kernel_no_memory(&kernel->task, kernel->op, error);
}

static inline int cpu_is_float(tandem_dtype dtype) { return dtype == TANDEM_F32 || dtype == TANDEM_BF16; }

/* Sets `run`. TANDEM_NO_KERNEL unless the task reads and writes one float type, f32 or bf16. */
tandem_status cpu_kernel_of_float(tandem_kernel *kernel, cpu_kernel_run *run, tandem_error *error);

/* Shape of the operator's input `slot`. */
const tandem_shape *cpu_input_shape(const tandem_kernel *kernel, int slot);

/* Finds the label of row `row` of `rows` in `label`, the operator's input 1. *label_index holds the result
 * for the row before and receives that of this row. If a sample has fewer rows than labels, row j has its
 * j-th label that is not −1. TANDEM_MALFORMED: a sample has too few labels. */
tandem_status cpu_label_index(int64_t *label_index, const tandem_kernel *kernel, const int32_t *label,
                              int64_t row, int64_t rows, tandem_error *error);

/* What an operator does with its parts begin … end of a range (cpu_for in team.h). It calls kernels of one
 * thread. */
typedef void cpu_kernel_part(const tandem_kernel *kernel, const tandem_kernel_call *call, int64_t begin,
                             int64_t end);
/* Divides n rows of `width` elements among the threads of the device; few elements stay on one. Results of
 * a row depend on no other row. */
void cpu_kernel_rows(const tandem_kernel *kernel, const tandem_kernel_call *call, int64_t n, int64_t width,
                     cpu_kernel_part *part);

/* Number of elements of the parameter that a bias adds repeatedly (graph.h). */
size_t cpu_bias_period(const tandem_kernel *kernel);

/* sum[j] += row[j]; the row is f32 or bf16. */
void cpu_add_row(float *sum, const void *row, tandem_dtype from, int64_t n);

/* Reserves `bytes` after *end in the workspace and returns their offset. Offsets are multiples of 64. */
static inline uint64_t cpu_workspace_reserve(uint64_t *end, uint64_t bytes)
{
    const uint64_t start = *end;
    *end = (start + bytes + 63) / 64 * 64;
    return start;
}
static inline void *cpu_workspace_at(void *workspace, uint64_t offset) { return (char *)workspace + offset; }

/* The product of the scales of operands 0 and 1; 1 for floats. */
static inline float cpu_product_scale(const tandem_kernel_call *call)
{
    return (call->in_scale[0] ? *call->in_scale[0] : 1.0f) * (call->in_scale[1] ? *call->in_scale[1] : 1.0f);
}
