/* optimizer.c: one update of the master weights. The order of the operations is part of the contract.
 * -fno-math-errno lets the compiler vectorise square roots.
 *
 * The update also checks whether the gradient is finite, while it is in a register; a separate pass would
 * cost a fifth of an update. */
#include "kernels/cpu/isa/isa.h"

#include <float.h>

/* Memory limits an update. Lines are asked for some blocks before they are needed, because the hardware stops
 * at the ends of pages (measured: a tenth less time). */
enum { BLOCK = 64, AHEAD = 512, LINE = 16 }; /* numbers */

static inline void fetch_block(const float *x)
{
    for (size_t i = 0; i < BLOCK; i += LINE)
        __builtin_prefetch((const char *)((uintptr_t)(x + i) + AHEAD * sizeof *x), 0, 2);
}

/* 1 once an element is not finite. As a float, because AVX has no integers of its width. */
static inline float track_nonfinite(float before, float x)
{
    return __builtin_fabsf(x) <= FLT_MAX ? before : 1.0f;
}

#define INLINE static inline __attribute__((always_inline))

/* The update of n elements, BLOCK or the last ones; returns what has_nonfinite becomes. */
INLINE float sgd_block(float *restrict w, float *restrict v, const float *restrict g, size_t n, float rate,
                       float momentum, float decay, float has_nonfinite)
{
    for (size_t i = 0; i < n; i++) {
        has_nonfinite = track_nonfinite(has_nonfinite, g[i]);
        const float velocity = (momentum * v[i] + g[i]) + decay * w[i];
        v[i] = velocity;
        w[i] -= rate * velocity;
    }
    return has_nonfinite;
}

int ISA(sgd)(float *restrict w, float *restrict v, const float *restrict g, size_t n, float rate,
             float momentum, float decay)
{
    float has_nonfinite = 0;
    size_t i = 0;
    for (; i + BLOCK <= n; i += BLOCK) {
        fetch_block(w + i);
        fetch_block(v + i);
        fetch_block(g + i);
        has_nonfinite = sgd_block(w + i, v + i, g + i, BLOCK, rate, momentum, decay, has_nonfinite);
    }
    has_nonfinite = sgd_block(w + i, v + i, g + i, n - i, rate, momentum, decay, has_nonfinite);
    return has_nonfinite == 0;
}

/* What every element of an update by AdamW shares. */
typedef struct adamw_rates {
    float rate, beta1, beta2, rest1, rest2, epsilon, decay, correction1, correction2;
} adamw_rates;

INLINE float adamw_block(float *restrict w, float *restrict m, float *restrict v, const float *restrict g,
                         size_t n, const adamw_rates *r, float has_nonfinite)
{
    for (size_t i = 0; i < n; i++) {
        has_nonfinite = track_nonfinite(has_nonfinite, g[i]);
        const float m1 = r->beta1 * m[i] + r->rest1 * g[i];
        const float m2 = r->beta2 * v[i] + (r->rest2 * g[i]) * g[i];
        const float denominator = __builtin_sqrtf(m2 * r->correction2) + r->epsilon;
        m[i] = m1;
        v[i] = m2;
        w[i] -= r->rate * ((m1 * r->correction1) / denominator + r->decay * w[i]);
    }
    return has_nonfinite;
}

int ISA(adamw)(float *restrict w, float *restrict m, float *restrict v, const float *restrict g, size_t n,
               float rate, float beta1, float beta2, float epsilon, float decay, float correction1,
               float correction2)
{
    const adamw_rates rates = {.rate = rate,
                               .beta1 = beta1,
                               .beta2 = beta2,
                               .rest1 = 1.0f - beta1,
                               .rest2 = 1.0f - beta2,
                               .epsilon = epsilon,
                               .decay = decay,
                               .correction1 = correction1,
                               .correction2 = correction2};
    float has_nonfinite = 0;
    size_t i = 0;
    for (; i + BLOCK <= n; i += BLOCK) {
        fetch_block(w + i);
        fetch_block(m + i);
        fetch_block(v + i);
        fetch_block(g + i);
        has_nonfinite = adamw_block(w + i, m + i, v + i, g + i, BLOCK, &rates, has_nonfinite);
    }
    has_nonfinite = adamw_block(w + i, m + i, v + i, g + i, n - i, &rates, has_nonfinite);
    return has_nonfinite == 0;
}
