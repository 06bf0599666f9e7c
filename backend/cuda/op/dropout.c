/* dropout: y = x / (1 − rate), or 0 with probability `rate`; gx is the same of g, with the same draws. In
 * evaluation y = x. */
#include "backend/cuda/operator.h"

tandem_dropout cuda_dropout_mask(const tandem_op *dropout, const tandem_kernel_call *call,
                                 uint64_t elements_per_sample)
{
    const tandem_rng_stream *draws = &call->rng;
    const uint32_t threshold = (uint32_t)(dropout->rate * 65536.0f + 0.5f); /* a draw has 16 bits */
    return (tandem_dropout){.seed = draws->seed,
                            .first = (uint64_t)call->first_sample * elements_per_sample,
                            .stream = {draws->stream[0], draws->stream[1], draws->stream[2]},
                            .threshold = threshold,
                            .scale = 65536.0f / (65536.0f - (float)threshold)};
}

static tandem_status cuda_dropout_run(const tandem_kernel *kernel, const tandem_kernel_call *call,
                                      tandem_error *error)
{
    const cuda_device *device = kernel->device;
    const size_t n = cuda_elements(kernel);
    const tandem_dropout mask = cuda_dropout_mask(kernel->op, call, n / (uint64_t)kernel->graph->batch);
    const int failed = call->is_evaluation
                           ? device->vendor->copy(call->out[0], call->in[0],
                                                  n * tandem_dtype_bytes(kernel->task.from), device->stream)
                           : tandem_cuda_dropout(call->out[0], call->in[0], cuda_float_of(kernel->task.from),
                                                 n, &mask, call->rng.stream_offset, device->stream);
    return cuda_kernel_result(kernel, failed, error);
}

const cuda_operator cuda_dropout = {.forward = cuda_dropout_run, .dgrad = cuda_dropout_run};
