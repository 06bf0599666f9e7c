/* call: what another framework ran (tandem/record.h). It can be simulated; no kernel here computes it. */
#include "backend/cuda/operator.h"

static tandem_status cuda_call_prepare(tandem_kernel *kernel, tandem_error *error)
{
    return cuda_kernel_refuse(kernel, "it was recorded in another framework, which alone can run it", error);
}

const cuda_operator cuda_call = {.prepare = cuda_call_prepare},
                    cuda_call_trained = {.prepare = cuda_call_prepare};
