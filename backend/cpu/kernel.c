#include "backend/cpu/kernel.h"

#include <string.h>

const tandem_shape *cpu_input_shape(const tandem_kernel *kernel, int slot)
{
    return &kernel->graph->op[kernel->op->input[slot]].shape;
}

void cpu_add_row(float *sum, const void *row, tandem_dtype from, int64_t n)
{
    if (from == TANDEM_F32) {
        const float *const wide = row;
        for (int64_t j = 0; j < n; j++) sum[j] += wide[j];
        return;
    }
    const uint16_t *const narrow = row;
    for (int64_t j = 0; j < n; j++) {
        const uint32_t bits = (uint32_t)narrow[j] << 16;
        float value;
        memcpy(&value, &bits, sizeof value);
        sum[j] += value;
    }
}
