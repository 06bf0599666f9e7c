/* product.h: matrix products in every type, for linear, matmul and convolutions over columns.
 *
 * f32, bf16, and s8 with AVX-512 VNNI run oneDNN's matmul. Other s8 products run tandem's own kernel
 * (isa_kernels.h): without VNNI oneDNN's saturates in 16 bits, and with 256-bit VNNI it is slower. s8
 * products are exact in s32 and scaled in their epilogue. Where oneDNN cannot write the result type (f32 or
 * s8 operands, bf16 result), the workspace holds an f32 result that is then narrowed. An accumulated result
 * is added in f32 and rounded once. */
#pragma once

#include "backend/cpu/dnnl_primitive.h"

/* C = A·B, `batch` times. All matrices are packed and row-major, one after the other. */
typedef struct cpu_product_spec {
    int64_t batch, m, n, k;
    int transpose_a;   /* A is stored (k, m) instead of (m, k) */
    int transpose_b;   /* B is stored (n, k) instead of (k, n) */
    int swap_operands; /* A is operand 1 of the kernel, and B is operand 0 */
    tandem_dtype from, to;
    int accumulate; /* C += A·B */
} cpu_product_spec;

typedef struct cpu_product {
    cpu_product_spec spec;
    cpu_primitive primitive; /* none if the kernel is tandem's own */
    uint64_t result_offset;  /* of the f32 result in the workspace, before it is narrowed */
    int is_narrowed;
    uint64_t workspace_bytes;
} cpu_product;

/* cpu_product_open: prepares a product for a kernel. All zero is closed. TANDEM_NO_KERNEL,
 * TANDEM_NO_MEMORY. */
tandem_status cpu_product_open(cpu_product *product, const tandem_kernel *kernel,
                               const cpu_product_spec *spec, tandem_error *error);
void cpu_product_close(cpu_product *product);
/* cpu_product_run: `scale` is the product of the operands' scales (1 for floats). `workspace`:
 * workspace_bytes. */
tandem_status cpu_product_run(const cpu_product *product, const tandem_kernel *kernel, const void *a,
                              const void *b, void *c, float scale, void *workspace, tandem_error *error);

/* A kernel that runs one product of its two operands (`prepare` of linear and matmul). */
tandem_status cpu_product_prepare(tandem_kernel *kernel, const cpu_product_spec *spec, tandem_error *error);
