/* random.c: no order: numbers that are drawn again for each draw of the bootstrap. What this row has beside
 * 0, the machinery invents. Unit: none. */
#include "base/philox.h"
#include "research/method/method.h"

static double random_compute(const rank_input *input, int k)
{
    const uint32_t counter[] = {(uint32_t)k, (uint32_t)input->precision, (uint32_t)input->draw, 0x52414E44u};
    return (double)tandem_philox_uniform(tandem_philox(counter, 0).word[0]);
}

const rank_method rank_method_random = {"random", "none", RANK_NEEDS_NOTHING, random_compute};
