/* noise.c: see noise.h. */
#include "backend/executor/noise.h"

#include "backend/cpu/isa_kernels.h"

tandem_status tandem_noise_open(const tandem_noise **noise, tandem_error *error)
{
    return tandem_kernels_open(noise, "best", error);
}

void tandem_noise_fill(const tandem_noise *noise, float *x, size_t n, uint64_t seed, const uint32_t stream[3])
{
    noise->noise_f32(x, n, seed, stream);
}
