/* dropout: y = x / (1 − rate), or 0 with probability `rate`; gx is the same of g. The backward pass repeats
 * the draws instead of storing them. In evaluation y = x. Source: Srivastava et al., Journal of Machine
 * Learning Research 15 (2014), section 10. */
#include <string.h>

#include "backend/cpu/kernel.h"
#include "backend/cpu/op/dropout.h"

/* A draw has 16 bits, so the rate is rounded to a multiple of 2^−16; the scale uses the rounded rate. */
tandem_dropout cpu_dropout_mask(const tandem_graph *graph, const tandem_op *op,
                                const tandem_kernel_call *call)
{
    const int64_t sample = tandem_shape_elements(&op->shape) / graph->batch;
    const tandem_rng_stream *draws = &call->rng;
    const uint32_t threshold = (uint32_t)(op->rate * 65536.0f + 0.5f);
    return (tandem_dropout){.seed = draws->seed,
                            .first = (uint64_t)(call->first_sample * sample),
                            .stream = {draws->stream[0], draws->stream[1], draws->stream[2]},
                            .threshold = threshold,
                            .scale = 65536.0f / (65536.0f - (float)threshold)};
}

static tandem_status cpu_dropout_run(const tandem_kernel *kernel, const tandem_kernel_call *call,
                                     tandem_error *error)
{
    const tandem_isa_kernels *isa = kernel->device->isa;
    const size_t n = (size_t)tandem_shape_elements(&kernel->op->shape);
    const tandem_dropout mask = cpu_dropout_mask(kernel->graph, kernel->op, call);
    if (call->is_evaluation)
        memcpy(call->out[0], call->in[0], n * tandem_dtype_bytes(kernel->task.from));
    else if (kernel->task.from == TANDEM_F32)
        isa->dropout_f32(call->out[0], call->in[0], n, &mask);
    else
        isa->dropout_bf16(call->out[0], call->in[0], n, &mask);
    return TANDEM_OK;
}

const cpu_operator cpu_dropout = {.forward = cpu_dropout_run, .dgrad = cpu_dropout_run};
