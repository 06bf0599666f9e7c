/* amax_history.h: delayed scaling: the range of a tensor from its largest magnitudes in the casts before.
 *
 * range = 2^margin · max of the last `window` amax. Quantising with it reads the tensor once, and finds the
 * next amax in the same pass (tandem_quantise_call.amax in kernels.h). What outgrows the range is clamped; a
 * window of its maxima and a margin make that rare.
 * Sources: Micikevicius et al., "FP8 formats for deep learning", arXiv 2209.05433, 2022; NVIDIA Transformer
 * Engine, the recipe DelayedScaling (history of amax, margin as a power of two).
 *
 * The history is the caller's: copy it to save it. All of it is plain data; one thread at a time. */
#ifndef TANDEM_AMAX_HISTORY_H
#define TANDEM_AMAX_HISTORY_H

#include <stddef.h>
#include <stdint.h>

#include "tandem/status.h"

TANDEM_BEGIN_DECLARATIONS

enum { TANDEM_AMAX_WINDOW = 1024, TANDEM_AMAX_MARGIN = 64 };
typedef struct tandem_amax_history {
    int32_t window, margin;
    int64_t updates; /* so far; the last is at amax[(updates − 1) % window] */
    float before;    /* the range before the last update: what that cast took, for one that does it again */
    /* the first `window` are used: tandem_amax_history_bytes are enough to lie in */
    float amax[TANDEM_AMAX_WINDOW];
} tandem_amax_history;

/* 1 ≤ window ≤ TANDEM_AMAX_WINDOW, |margin| ≤ TANDEM_AMAX_MARGIN: TANDEM_USAGE if not. */
tandem_status tandem_amax_history_init(tandem_amax_history *history, int window, int margin,
                                       tandem_error *error);
/* TANDEM_LIMIT_EXCEEDED where amax is not finite: the history is untouched, the range stays. */
tandem_status tandem_amax_history_add(tandem_amax_history *history, float amax, tandem_error *error);
/* −1 before the first amax, 0 where all were 0: quantise with TANDEM_SCALE_TENSOR then. At most FLT_MAX. */
float tandem_amax_history_range(const tandem_amax_history *history);
/* Of a history of so long a window. */
static inline size_t tandem_amax_history_bytes(int window)
{
    return offsetof(tandem_amax_history, amax) + (size_t)window * sizeof(float);
}

TANDEM_END_DECLARATIONS
#endif
