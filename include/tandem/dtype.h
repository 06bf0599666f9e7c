/* dtype.h: the number types of tensors, operands and accumulators. */
#ifndef TANDEM_DTYPE_H
#define TANDEM_DTYPE_H

/* E4M3 and E5M2: "FP8 Formats for Deep Learning", arXiv:2209.05433, 2022. */
typedef enum tandem_dtype {
    TANDEM_F32,
    TANDEM_BF16,
    TANDEM_S8,
    /* IEEE 754 binary16: 10 bits of mantissa, largest 65504, steps of 2^-24 below 2^-14 */
    TANDEM_F16,
    TANDEM_E4M3,                          /* one byte, largest 448, steps of 2^-9 below 2^-6 */
    TANDEM_E5M2,                          /* one byte, largest 57344, steps of 2^-16 below 2^-14 */
    TANDEM_MXFP8,                         /* E4M3, 32 numbers share a power of two; emulated only */
    TANDEM_NVFP4,                         /* 4 bits, 16 numbers share one of E4M3; emulated only */
    TANDEM_N_STORAGE_DTYPE,               /* activations and gradients have one of the dtypes above */
    TANDEM_TF32 = TANDEM_N_STORAGE_DTYPE, /* products read 10 bits of mantissa of f32; no tensor has it */
    TANDEM_N_COMPUTE_DTYPE,
    TANDEM_S32 = TANDEM_N_COMPUTE_DTYPE, /* tokens and labels; accumulators */
    TANDEM_AMP,                          /* only in precision rows: the device's AMP dtype */
    TANDEM_SAME                          /* only in precision rows: as the operands */
} tandem_dtype;

#endif
