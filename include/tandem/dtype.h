/* dtype.h: the number types of tensors. */
#ifndef TANDEM_DTYPE_H
#define TANDEM_DTYPE_H

typedef enum tandem_dtype {
    TANDEM_F32,
    TANDEM_BF16,
    TANDEM_S8,
    TANDEM_N_VERSION,              /* the types above are those an activation or gradient can have */
    TANDEM_S32 = TANDEM_N_VERSION, /* tokens and labels; accumulators */
    TANDEM_WIDER                   /* only in precision rows: the device's best wider type */
} tandem_dtype;

#endif
