/* call: what another framework ran (tandem/record.h). It can be simulated; no kernel here computes it. */
#include "backend/cpu/kernel.h"

static tandem_status cpu_call_prepare(tandem_kernel *kernel, tandem_error *error)
{
    return cpu_kernel_refuse(kernel, "it was recorded in another framework, which alone can run it", error);
}

const cpu_operator cpu_call = {.prepare = cpu_call_prepare}, cpu_call_trained = {.prepare = cpu_call_prepare};
