/* call: what no kernel here computes, of another framework (tandem/record.h) or of an imported model. It is
 * simulated. */
#include "backend/cpu/kernel.h"

static tandem_status cpu_call_prepare(tandem_kernel *kernel, tandem_error *error)
{
    return cpu_kernel_refuse(kernel, "planned, not trained: no kernel here computes it", error);
}

const cpu_operator cpu_call = {.prepare = cpu_call_prepare}, cpu_call_trained = {.prepare = cpu_call_prepare};
