/* call: what no kernel here computes, of another framework (tandem/record.h) or of an imported model. It is
 * simulated. */
#include "backend/cuda/operator.h"

static tandem_status cuda_call_prepare(tandem_kernel *kernel, tandem_error *error)
{
    return cuda_kernel_refuse(kernel, "planned, not trained: no kernel here computes it", error);
}

const cuda_operator cuda_call = {.prepare = cuda_call_prepare},
                    cuda_call_trained = {.prepare = cuda_call_prepare};
