/* optimizer.c: one update of the master weights. The order of the operations is part of the contract.
 * -fno-math-errno is what lets the compiler take square roots as vectors. */
#include "backend/cpu/isa/isa.h"

void ISA(sgd)(float *restrict w, float *restrict v, const float *restrict g, size_t n, float rate,
              float momentum, float decay)
{
    for (size_t i = 0; i < n; i++) {
        const float velocity = (momentum * v[i] + g[i]) + decay * w[i];
        v[i] = velocity;
        w[i] -= rate * velocity;
    }
}

void ISA(adamw)(float *restrict w, float *restrict m, float *restrict v, const float *restrict g, size_t n,
                float rate, float beta1, float beta2, float epsilon, float decay, float correction1, float correction2)
{
    const float rest1 = 1.0f - beta1, rest2 = 1.0f - beta2;
    for (size_t i = 0; i < n; i++) {
        const float m1 = beta1 * m[i] + rest1 * g[i];
        const float m2 = beta2 * v[i] + (rest2 * g[i]) * g[i];
        const float denominator = __builtin_sqrtf(m2 * correction2) + epsilon;
        m[i] = m1;
        v[i] = m2;
        w[i] -= rate * ((m1 * correction1) / denominator + decay * w[i]);
    }
}
