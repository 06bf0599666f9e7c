/* dnnl_primitive.h: a oneDNN primitive made ready once, so that running it is setting pointers and one call.
 *
 * Every primitive is made with the user scratchpad mode: what it needs beside its operands is told in
 * scratchpad_bytes and handed in by the caller. Memory objects are made with the primitive and only change
 * their pointers, so a primitive is run by one thread at a time. */
#ifndef TANDEM_BACKEND_CPU_DNNL_PRIMITIVE_H
#define TANDEM_BACKEND_CPU_DNNL_PRIMITIVE_H

#include "backend/cpu/operator.h"

enum { CPU_PRIMITIVE_ARGUMENTS = 9 };

/* All zero: none; running or closing it does nothing. */
typedef struct cpu_primitive {
    dnnl_primitive_t primitive;
    int n; /* arguments, without the scratchpad, which stands behind them */
    dnnl_exec_arg_t argument[CPU_PRIMITIVE_ARGUMENTS + 1];
    uint64_t scratchpad_bytes;
} cpu_primitive;

/* cpu_primitive_describe: what oneDNN would run for an operation description.
 *   attributes [in]  NULL, or the caller's (their scratchpad mode is set here)
 *   hint       [in]  forward description of a backward primitive, else NULL
 * The description is the caller's to destroy. TANDEM_NO_KERNEL (names kernel's operator and form),
 * TANDEM_NO_MEMORY. */
tandem_status cpu_primitive_describe(dnnl_primitive_desc_t *description, const tandem_kernel *kernel,
                                     const_dnnl_op_desc_t operation, dnnl_primitive_attr_t attributes,
                                     const_dnnl_primitive_desc_t hint, tandem_error *error);

/* Whether a description is of the reference implementation, which is a hundred times slower than any other.
 * */
int cpu_primitive_is_reference(const_dnnl_primitive_desc_t description);

/* cpu_primitive_open: the primitive of a description, with one memory object for each of n argument ids
 * (DNNL_ARG_…; a runtime output scale is DNNL_ARG_ATTR_OUTPUT_SCALES, one float). `description` is taken over
 * and destroyed, also on error. TANDEM_NO_MEMORY, TANDEM_BUG. */
tandem_status cpu_primitive_open(cpu_primitive *primitive, const tandem_kernel *kernel,
                                 dnnl_primitive_desc_t description, int n, const int *argument,
                                 tandem_error *error);
void cpu_primitive_close(cpu_primitive *primitive);

/* Both of the above, for a primitive without attributes. `forward`: of a backward operation the forward one,
 * else NULL. */
tandem_status cpu_primitive_make(cpu_primitive *primitive, const tandem_kernel *kernel,
                                 const_dnnl_op_desc_t operation, const_dnnl_op_desc_t forward, int n,
                                 const int *argument, tandem_error *error);

/* cpu_primitive_keep: a kernel that is this one primitive: state (a cpu_primitive), destroy, workspace and
 * `run` are set. The primitive is taken over, also on error. TANDEM_NO_MEMORY. */
tandem_status cpu_primitive_keep(tandem_kernel *kernel, cpu_primitive *primitive,
                                 tandem_status (*run)(const tandem_kernel *, const tandem_kernel_call *,
                                                      tandem_error *),
                                 tandem_error *error);

/* cpu_primitive_copy: from one layout to another, equal ones included; arguments: source, destination.
 * cpu_primitive_reorder: the same, but none where the layouts are equal. */
tandem_status cpu_primitive_copy(cpu_primitive *primitive, const tandem_kernel *kernel,
                                 const dnnl_memory_desc_t *from, const dnnl_memory_desc_t *to,
                                 tandem_error *error);
tandem_status cpu_primitive_reorder(cpu_primitive *primitive, const tandem_kernel *kernel,
                                    const dnnl_memory_desc_t *from, const dnnl_memory_desc_t *to,
                                    tandem_error *error);

/* cpu_primitive_run: run it on `data`, one pointer for each argument in the order given at open.
 * Allocates nothing but what oneDNN's own matrix product may. TANDEM_NO_MEMORY, TANDEM_BUG. */
tandem_status cpu_primitive_run(const cpu_primitive *primitive, const tandem_kernel *kernel,
                                const void *const *data, void *scratchpad, tandem_error *error);

/* oneDNN's name of a type (F32, BF16, S8, S32). */
dnnl_data_type_t cpu_dnnl_type(tandem_dtype dtype);

/* Row-major descriptor (no padding, channels last for images given as n, c, h, w with DNNL's nhwc).
 * Dimensions are at least 1 and few, so these cannot fail. */
dnnl_memory_desc_t cpu_matrix_descriptor(tandem_dtype dtype, int64_t rows, int64_t columns);
dnnl_memory_desc_t cpu_image_descriptor(tandem_dtype dtype, const tandem_shape *shape);

#endif
