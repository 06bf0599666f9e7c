/* adamw.h: the bias correction of AdamW, with the same bits on every device. */
#pragma once

#include <math.h>
#include <stdint.h>

/* 1 / (1 − beta^t): corrects moments that began at 0, in update number t. */
static inline float tandem_adamw_correction(float beta, int64_t t)
{
    return (float)(1 / (1 - pow((double)beta, (double)t)));
}
