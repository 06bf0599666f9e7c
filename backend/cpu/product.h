/* product.h: matrix products, in every type: what linear, matmul and convolution over columns are made of.
 *
 * f32 and bf16, and s8 where the instruction set has int8 dot products, are oneDNN's matmul; other s8
 * products are tandem's own (isa_kernels.h), because oneDNN's saturate in 16 bits on those instruction sets.
 * s8 products are exact in s32 and are scaled in their epilogue. Results that oneDNN cannot write directly
 * (f32 or s8 operands, bf16 result) are made in f32 in the workspace and narrowed. One that is added to what
 * is there is added in f32 and rounded once. */
#ifndef TANDEM_BACKEND_CPU_PRODUCT_H
#define TANDEM_BACKEND_CPU_PRODUCT_H

#include "backend/cpu/dnnl_primitive.h"

/* C = A·B, `batch` times. All matrices are packed row-major, one behind the other. */
typedef struct cpu_product_spec {
    int64_t batch, m, n, k;
    int transpose_a;   /* A is stored (k, m) instead of (m, k) */
    int transpose_b;   /* B is stored (n, k) instead of (k, n) */
    int swap_operands; /* of a kernel: A is its operand 1 and B its operand 0 */
    tandem_dtype from, to;
    int accumulate; /* C += A·B */
} cpu_product_spec;

typedef struct cpu_product {
    cpu_product_spec spec;
    cpu_primitive primitive; /* none where tandem's own kernel runs */
    uint64_t result_offset;  /* of the f32 result that is narrowed, in the workspace */
    int is_narrowed;
    uint64_t workspace_bytes;
} cpu_product;

/* cpu_product_open: prepare a product for a kernel. All zero is closed. TANDEM_NO_KERNEL, TANDEM_NO_MEMORY.
 * */
tandem_status cpu_product_open(cpu_product *product, const tandem_kernel *kernel,
                               const cpu_product_spec *spec, tandem_error *error);
void cpu_product_close(cpu_product *product);
/* cpu_product_run: scale is what the integers stand for (1 for floats). `workspace`: workspace_bytes. */
tandem_status cpu_product_run(const cpu_product *product, const tandem_kernel *kernel, const void *a,
                              const void *b, void *c, float scale, void *workspace, tandem_error *error);

/* A kernel that is one product of its two operands (`prepare` of linear and matmul). */
tandem_status cpu_product_prepare(tandem_kernel *kernel, const cpu_product_spec *spec, tandem_error *error);

#endif
