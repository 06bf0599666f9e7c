/* described_time.c: the form with its fitted constants, for a device of which nothing else is known. */
#include "predictor/form.h"

void tandem_reached_rates_fitted(tandem_reached_rates *rates, const tandem_device *device)
{
    const tandem_gpu_spec *const spec = &device->gpu_spec;
    tandem_reached_rates_shared(rates, spec, tandem_constants_fitted());
    const double bandwidth = tandem_measured_share(device->name, TANDEM_N_COMPUTE_DTYPE);
    if (bandwidth > 0) rates->bytes_per_s = bandwidth * spec->bytes_per_s;
    for (int t = 0; t < TANDEM_N_COMPUTE_DTYPE; t++) {
        const double share = tandem_measured_share(device->name, t);
        if (share <= 0) continue;
        rates->flops_per_s[t] = share * spec->flops_per_s[t];
        rates->is_power_bound[t] = 0;
    }
}

double tandem_described_ns(const tandem_device *device, const tandem_work *work)
{
    tandem_reached_rates rates;
    tandem_reached_rates_fitted(&rates, device);
    return tandem_kernel_time_of(NULL, tandem_constants_fitted(), &device->gpu_spec, &rates, work);
}
