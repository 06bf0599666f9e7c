/* dtype.h: the number types of tensors. */
#ifndef TANDEM_DTYPE_H
#define TANDEM_DTYPE_H

typedef enum tandem_dtype {
    TANDEM_F32,
    TANDEM_BF16,
    TANDEM_S8,
    TANDEM_F16,  /* IEEE 754 binary16: 10 bits of mantissa, largest 65504, steps of 2^-24 below 2^-14 */
    TANDEM_E4M3, /* one byte, largest 448, steps of 2^-9 below 2^-6; and */
    /* largest 57344, steps of 2^-16 below 2^-14: "FP8 Formats for Deep Learning", arXiv:2209.05433, 2022 */
    TANDEM_E5M2,
    TANDEM_N_STORAGE_DTYPE, /* the types above are those an activation or gradient can have */
    /* f32 of which a product reads 10 bits of mantissa: rates and roundings have it, no tensor */
    TANDEM_TF32 = TANDEM_N_STORAGE_DTYPE,
    TANDEM_N_COMPUTE_DTYPE,
    TANDEM_S32 = TANDEM_N_COMPUTE_DTYPE, /* tokens and labels; accumulators */
    TANDEM_AMP,                          /* only in precision rows: the device's best wider type */
    TANDEM_SAME                          /* only in precision rows: as the operands are */
} tandem_dtype;

#endif
