/* adamw.h: what of AdamW changes from step to step, in the bits that every device's updates have. */
#ifndef TANDEM_BACKEND_ADAMW_H
#define TANDEM_BACKEND_ADAMW_H

#include <math.h>
#include <stdint.h>

/* 1 / (1 − beta^t): what makes up for moments that began at 0, at the t-th update. */
static inline float tandem_adamw_correction(float beta, int64_t t)
{
    return (float)(1 / (1 - pow((double)beta, (double)t)));
}

#endif
