/* dnnl_primitive.h: a oneDNN primitive that is prepared once and then runs with one call.
 *
 * Every primitive uses oneDNN's user scratchpad mode: scratchpad_bytes says what the caller must provide.
 * Memory objects are made with the primitive, and later calls only change their pointers. So only one thread
 * may run a primitive at a time. */
#pragma once

#include "backend/cpu/operator.h"

enum { CPU_PRIMITIVE_ARGUMENTS = 9 };

/* All zero: no primitive; running or closing it does nothing. */
typedef struct cpu_primitive {
    dnnl_primitive_t primitive;
    int n;    /* arguments, without the scratchpad, which comes after them */
    int n_in; /* of a kernel's only primitive: the first n_in are the call's inputs, the others its results */
    dnnl_exec_arg_t argument[CPU_PRIMITIVE_ARGUMENTS + 1];
    uint64_t scratchpad_bytes;
} cpu_primitive;

/* cpu_primitive_describe: what oneDNN would run for an operation descriptor.
 *   attributes [in]  NULL, or the caller's; their scratchpad mode is set here
 *   hint       [in]  the forward description of a backward primitive, else NULL
 * The caller destroys the description. TANDEM_NO_KERNEL (with the operator and variant), TANDEM_NO_MEMORY. */
tandem_status cpu_primitive_describe(dnnl_primitive_desc_t *description, const tandem_kernel *kernel,
                                     const_dnnl_op_desc_t operation, dnnl_primitive_attr_t attributes,
                                     const_dnnl_primitive_desc_t hint, tandem_error *error);

/* The same without a hint, by the first implementation whose name (dnnl_query_impl_info_str) begins with
 * `wanted`; by the first of all where oneDNN has no such one. attributes: not NULL. */
tandem_status cpu_primitive_describe_by(dnnl_primitive_desc_t *description, const tandem_kernel *kernel,
                                        const_dnnl_op_desc_t operation, dnnl_primitive_attr_t attributes,
                                        const char *wanted, tandem_error *error);

/* Whether oneDNN would run its reference implementation, which is a hundred times slower than any other. */
int cpu_primitive_is_reference(const_dnnl_primitive_desc_t description);

/* cpu_primitive_open: makes the primitive, with one memory object per argument id (DNNL_ARG_…; a runtime
 * output scale is DNNL_ARG_ATTR_OUTPUT_SCALES, one float). Takes `description` over and destroys it, also on
 * error. TANDEM_NO_MEMORY, TANDEM_BUG. */
tandem_status cpu_primitive_open(cpu_primitive *primitive, const tandem_kernel *kernel,
                                 dnnl_primitive_desc_t description, int n, const int *argument,
                                 tandem_error *error);
void cpu_primitive_close(cpu_primitive *primitive);

/* Describes and opens a primitive without attributes. `forward`: the forward operation of a backward one,
 * else NULL. */
tandem_status cpu_primitive_make(cpu_primitive *primitive, const tandem_kernel *kernel,
                                 const_dnnl_op_desc_t operation, const_dnnl_op_desc_t forward, int n,
                                 const int *argument, tandem_error *error);

/* cpu_primitive_keep: makes `kernel` run this one primitive: sets state (a cpu_primitive), destroy, workspace
 * and `run`. The primitive's first n_in arguments are the inputs of a call, in their order; its results
 * follow. Takes the primitive over, also on error. TANDEM_NO_MEMORY. */
tandem_status cpu_primitive_keep(tandem_kernel *kernel, cpu_primitive *primitive, int n_in,
                                 tandem_error *error);

/* cpu_primitive_copy: copies from one layout to another, also between equal ones. Arguments: source,
 * destination.
 * cpu_primitive_reorder: the same, but no primitive if the layouts are equal. */
tandem_status cpu_primitive_copy(cpu_primitive *primitive, const tandem_kernel *kernel,
                                 const dnnl_memory_desc_t *from, const dnnl_memory_desc_t *to,
                                 tandem_error *error);
tandem_status cpu_primitive_reorder(cpu_primitive *primitive, const tandem_kernel *kernel,
                                    const dnnl_memory_desc_t *from, const dnnl_memory_desc_t *to,
                                    tandem_error *error);

/* cpu_primitive_run: runs it on `data`, one pointer per argument in the order given at open. Allocates
 * nothing, except inside oneDNN's matrix product. TANDEM_NO_MEMORY, TANDEM_BUG. */
tandem_status cpu_primitive_run(const cpu_primitive *primitive, const tandem_kernel *kernel,
                                const void *const *data, void *scratchpad, tandem_error *error);

/* oneDNN's name of a dtype (F32, BF16, S8, S32). */
dnnl_data_type_t cpu_dnnl_type(tandem_dtype dtype);

/* Row-major descriptors without padding. Images are (n, h, w, c), channels last; oneDNN calls the layout
 * nhwc. Dimensions are at least 1 and few, so these calls cannot fail. */
dnnl_memory_desc_t cpu_matrix_descriptor(tandem_dtype dtype, int64_t rows, int64_t columns);
dnnl_memory_desc_t cpu_image_descriptor(tandem_dtype dtype, const tandem_shape *shape);
