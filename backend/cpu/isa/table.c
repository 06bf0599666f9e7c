/* table.c: the rows that this compilation serves: its own instruction set; and avx512_bf16, whose conversion
 * instruction takes denormals for zero, so that its bits would not be those of the other tables. */
#include "backend/cpu/isa/isa.h"

#if defined __AVX512VNNI__ || defined __AVXVNNI__
#define HAS_INT8_DOT 1
#else
#define HAS_INT8_DOT 0
#endif

#if defined __AVX512BW__
#define CONVOLUTIONS                                                                                         \
    .winograd = ISA(winograd), .winograd_workspace = ISA(winograd_workspace),                                \
    .weight_gradient = ISA(weight_gradient), .weight_gradient_workspace = ISA(weight_gradient_workspace),
#else
#define CONVOLUTIONS
#endif

#define ROW(name)                                                                                            \
    {                                                                                                        \
        CONVOLUTIONS.isa = (name), .has_int8_dot = HAS_INT8_DOT, .amax_f32 = ISA(amax_f32),                  \
        .amax_bf16 = ISA(amax_bf16), .quantise_f32 = ISA(quantise_f32), .quantise_bf16 = ISA(quantise_bf16), \
        .quantise_amax_f32 = ISA(quantise_amax_f32), .quantise_amax_bf16 = ISA(quantise_amax_bf16),          \
        .quantise_nearest_amax_f32 = ISA(quantise_nearest_amax_f32),                                         \
        .quantise_nearest_amax_bf16 = ISA(quantise_nearest_amax_bf16),                                       \
        .quantise_nearest_f32 = ISA(quantise_nearest_f32),                                                   \
        .quantise_nearest_bf16 = ISA(quantise_nearest_bf16), .transpose_s8 = ISA(transpose_s8),              \
        .dequantise_f32 = ISA(dequantise_f32), .dequantise_bf16 = ISA(dequantise_bf16),                      \
        .bf16_from_f32 = ISA(bf16_from_f32), .f32_from_bf16 = ISA(f32_from_bf16), .gemm_s8 = ISA(gemm_s8),   \
        .gemm_s8_workspace = ISA(gemm_s8_workspace), .add_s32 = ISA(add_s32),                                \
        .f32_from_s32 = ISA(f32_from_s32), .bf16_from_s32 = ISA(bf16_from_s32), .im2col_s8 = ISA(im2col_s8), \
        .add_f32 = ISA(add_f32), .add_bf16 = ISA(add_bf16), .add_f32_to_bf16 = ISA(add_f32_to_bf16),         \
        .bias_f32 = ISA(bias_f32), .bias_bf16 = ISA(bias_bf16), .column_sum_f32 = ISA(column_sum_f32),       \
        .column_sum_bf16 = ISA(column_sum_bf16), .relu_f32 = ISA(relu_f32), .relu_bf16 = ISA(relu_bf16),     \
        .relu_backward_f32 = ISA(relu_backward_f32), .relu_backward_bf16 = ISA(relu_backward_bf16),          \
        .dropout_f32 = ISA(dropout_f32), .dropout_bf16 = ISA(dropout_bf16),                                  \
        .batchnorm_f32 = ISA(batchnorm_f32), .batchnorm_bf16 = ISA(batchnorm_bf16),                          \
        .batchnorm_backward_f32 = ISA(batchnorm_backward_f32),                                               \
        .batchnorm_backward_bf16 = ISA(batchnorm_backward_bf16),                                             \
        .batchnorm_add_f32 = ISA(batchnorm_add_f32), .batchnorm_add_bf16 = ISA(batchnorm_add_bf16),          \
        .noise_f32 = ISA(noise_f32), .batchnorm_add_backward_f32 = ISA(batchnorm_add_backward_f32),          \
        .batchnorm_add_backward_bf16 = ISA(batchnorm_add_backward_bf16), .gelu_f32 = ISA(gelu_f32),          \
        .gelu_backward_f32 = ISA(gelu_backward_f32), .bias_gelu_f32 = ISA(bias_gelu_f32),                    \
        .bias_gelu_bf16 = ISA(bias_gelu_bf16), .bias_gelu_backward_f32 = ISA(bias_gelu_backward_f32),        \
        .bias_gelu_backward_bf16 = ISA(bias_gelu_backward_bf16), .softmax_f32 = ISA(softmax_f32),            \
        .scale_difference_f32 = ISA(scale_difference_f32),                                                   \
        .softmax_backward_f32 = ISA(softmax_backward_f32), .sgd = ISA(sgd), .adamw = ISA(adamw)              \
    }

const tandem_isa_kernels ISA(kernels)[] = {
#if defined __AVX512VNNI__
    ROW("avx512_vnni"),
    ROW("avx512_bf16"),
#elif defined __AVX512BW__
    ROW("avx512"),
#elif defined __AVXVNNI__
    ROW("avx2_vnni"),
#elif defined __AVX2__
    ROW("avx2"),
#elif defined __AVX__
    ROW("avx"),
#else
    ROW("sse41"),
#endif
    {0},
};
