/* table.c: the rows that this compilation serves: its own instruction set, and those which differ from it only in
 * instructions that tandem's kernels have no use for. Their int8 product is oneDNN's, which VNNI makes exact; and the
 * bf16 conversion instruction takes denormals for zero, so that its bits would not be those of the other tables. */
#include "backend/cpu/isa/isa.h"

#define ROW(name, product, product_workspace)                                                                \
    {                                                                                                        \
        .isa = (name), .amax_f32 = ISA(amax_f32), .amax_bf16 = ISA(amax_bf16),                               \
        .quantise_f32 = ISA(quantise_f32), .quantise_bf16 = ISA(quantise_bf16),                              \
        .dequantise_f32 = ISA(dequantise_f32), .dequantise_bf16 = ISA(dequantise_bf16),                      \
        .bf16_from_f32 = ISA(bf16_from_f32), .f32_from_bf16 = ISA(f32_from_bf16), .gemm_s8 = (product),      \
        .gemm_s8_workspace = (product_workspace), .im2col_s8 = ISA(im2col_s8), .add_f32 = ISA(add_f32),      \
        .add_bf16 = ISA(add_bf16), .bias_f32 = ISA(bias_f32), .bias_bf16 = ISA(bias_bf16),                   \
        .column_sum_f32 = ISA(column_sum_f32), .column_sum_bf16 = ISA(column_sum_bf16),                      \
        .relu_f32 = ISA(relu_f32), .relu_bf16 = ISA(relu_bf16), .relu_backward_f32 = ISA(relu_backward_f32), \
        .relu_backward_bf16 = ISA(relu_backward_bf16), .batchnorm_f32 = ISA(batchnorm_f32),                  \
        .batchnorm_bf16 = ISA(batchnorm_bf16), .batchnorm_backward_f32 = ISA(batchnorm_backward_f32),        \
        .batchnorm_backward_bf16 = ISA(batchnorm_backward_bf16), .sgd = ISA(sgd), .adamw = ISA(adamw)                  \
    }

#if defined __AVX2__
static size_t no_workspace(int64_t m, int64_t n, int64_t k)
{
    (void)m, (void)n, (void)k;
    return 0;
}
#endif

const tandem_isa_kernels ISA(kernels)[] = {
#if defined __AVX512BW__
    ROW("avx512", ISA(gemm_s8), ISA(gemm_s8_workspace)),
    ROW("avx512_vnni", NULL, no_workspace),
    ROW("avx512_bf16", NULL, no_workspace),
#elif defined __AVX2__
    ROW("avx2", ISA(gemm_s8), ISA(gemm_s8_workspace)),
    ROW("avx2_vnni", NULL, no_workspace),
#elif defined __AVX__
    ROW("avx", ISA(gemm_s8), ISA(gemm_s8_workspace)),
#else
    ROW("sse41", ISA(gemm_s8), ISA(gemm_s8_workspace)),
#endif
    {0},
};
