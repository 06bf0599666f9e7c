/* optimizer.c: one update of the master weights. The order of the operations is part of the contract.
 * -fno-math-errno lets the compiler vectorise square roots.
 *
 * The update also checks whether the gradient is finite, while it is in a register; a separate pass would
 * cost a fifth of an update. */
#include "kernels/cpu/isa/isa.h"

#include <float.h>

/* 1 once an element is not finite. As a float, because AVX has no integers of its width. */
static inline float track_nonfinite(float before, float x)
{
    return __builtin_fabsf(x) <= FLT_MAX ? before : 1.0f;
}

int ISA(sgd)(float *restrict w, float *restrict v, const float *restrict g, size_t n, float rate,
             float momentum, float decay)
{
    float has_nonfinite = 0;
    for (size_t i = 0; i < n; i++) {
        has_nonfinite = track_nonfinite(has_nonfinite, g[i]);
        const float velocity = (momentum * v[i] + g[i]) + decay * w[i];
        v[i] = velocity;
        w[i] -= rate * velocity;
    }
    return has_nonfinite == 0;
}

int ISA(adamw)(float *restrict w, float *restrict m, float *restrict v, const float *restrict g, size_t n,
               float rate, float beta1, float beta2, float epsilon, float decay, float correction1,
               float correction2)
{
    const float rest1 = 1.0f - beta1, rest2 = 1.0f - beta2;
    float has_nonfinite = 0;
    for (size_t i = 0; i < n; i++) {
        has_nonfinite = track_nonfinite(has_nonfinite, g[i]);
        const float m1 = beta1 * m[i] + rest1 * g[i];
        const float m2 = beta2 * v[i] + (rest2 * g[i]) * g[i];
        const float denominator = __builtin_sqrtf(m2 * correction2) + epsilon;
        m[i] = m1;
        v[i] = m2;
        w[i] -= rate * ((m1 * correction1) / denominator + decay * w[i]);
    }
    return has_nonfinite == 0;
}
