/* noise.h: samples of no data set. */
#ifndef TANDEM_BACKEND_NOISE_H
#define TANDEM_BACKEND_NOISE_H

#include <stddef.h>
#include <stdint.h>

#include "tandem/status.h"

/* the best kernels of this machine, whatever the device; constant */
typedef struct tandem_isa_kernels tandem_noise;

/* tandem_noise_open: TANDEM_NO_DEVICE. Nothing to close. */
tandem_status tandem_noise_open(const tandem_noise **noise, tandem_error *error);
/* tandem_noise_fill: x[i] = 2·u − 1, u the float in [0, 1) of word i % 4 of the Philox block {i / 4,
 * stream…}. O(n). */
void tandem_noise_fill(const tandem_noise *noise, float *x, size_t n, uint64_t seed,
                       const uint32_t stream[3]);

#endif
