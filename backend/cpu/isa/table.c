/* table.c: the row of this instruction set. */
#include "backend/cpu/isa/isa.h"

#define ISA_TEXT_OF(set) #set
#define ISA_TEXT(set) ISA_TEXT_OF(set)

const tandem_isa_kernels ISA(kernels) = {
    .isa = ISA_TEXT(TANDEM_ISA),
    .amax_f32 = ISA(amax_f32),
    .amax_bf16 = ISA(amax_bf16),
    .quantise_f32 = ISA(quantise_f32),
    .quantise_bf16 = ISA(quantise_bf16),
    .dequantise_f32 = ISA(dequantise_f32),
    .dequantise_bf16 = ISA(dequantise_bf16),
    .bf16_from_f32 = ISA(bf16_from_f32),
    .f32_from_bf16 = ISA(f32_from_bf16),
    .gemm_s8 = ISA(gemm_s8),
    .gemm_s8_workspace = ISA(gemm_s8_workspace),
    .im2col_s8 = ISA(im2col_s8),
    .add_f32 = ISA(add_f32),
    .add_bf16 = ISA(add_bf16),
    .bias_f32 = ISA(bias_f32),
    .bias_bf16 = ISA(bias_bf16),
    .column_sum_f32 = ISA(column_sum_f32),
    .column_sum_bf16 = ISA(column_sum_bf16),
    .relu_f32 = ISA(relu_f32),
    .relu_bf16 = ISA(relu_bf16),
    .relu_backward_f32 = ISA(relu_backward_f32),
    .relu_backward_bf16 = ISA(relu_backward_bf16),
    .sgd = ISA(sgd),
    .adamw = ISA(adamw),
};
