/* merged.c: launches that do several tasks (tandem_step_is_merged), with the bits of the tasks alone. */
#include "backend/cuda/operator.h"

_Static_assert((int)TANDEM_CUDA_PARTS == (int)TANDEM_MAX_MERGED_PRODUCTS, "biases of one launch");
_Static_assert((int)TANDEM_CUDA_CODED_COLUMNS == (int)TANDEM_MAX_CODED_COLUMNS, "rows with codes");
_Static_assert((int)TANDEM_CUDA_WEIGHT_COPIES == (int)TANDEM_MAX_MERGED_CASTS, "casts of one launch");

static int run_weight_copies(const tandem_kernel *const *kernel, const tandem_kernel_call *call, int n)
{
    tandem_cuda_weight_copy copy[TANDEM_CUDA_WEIGHT_COPIES];
    for (int k = 0; k < n; k++) copy[k] = cuda_weight_copy(kernel[k], &call[k]);
    return tandem_cuda_copy_weights(copy, (size_t)n, cuda_float_of(kernel[0]->task.to),
                                    kernel[0]->device->stream);
}

/* Of n / 2 biases, each before its transpose. */
static int run_bias_transposes(const tandem_kernel *const *kernel, const tandem_kernel_call *call, int n)
{
    const tandem_cuda_permutation order = cuda_transpose_order(kernel[1]);
    const size_t period = (size_t)tandem_shape_last(&kernel[0]->op->shape);
    tandem_cuda_bias_part part[TANDEM_CUDA_PARTS];
    for (int k = 0; k < n / 2; k++)
        part[k] = (tandem_cuda_bias_part){call[2 * k + 1].out[0], call[2 * k].in[0], call[2 * k].in[1]};
    return tandem_cuda_bias_transpose(part, (size_t)n / 2, cuda_float_of(kernel[0]->task.from), period,
                                      &order, kernel[0]->device->stream);
}

/* Of n / 2 transposes, each before the sums of its bias. The workspace is that of the last sums, which has
 * room for all. */
static int run_transpose_sums(const tandem_kernel *const *kernel, const tandem_kernel_call *call, int n)
{
    const cuda_device *device = kernel[0]->device;
    const tandem_cuda_permutation order = cuda_transpose_order(kernel[0]);
    tandem_cuda_sum_part part[TANDEM_CUDA_PARTS];
    for (int k = 0; k < n / 2; k++)
        part[k] = (tandem_cuda_sum_part){call[2 * k].out[0], call[2 * k + 1].out[0], call[2 * k].in[0]};
    return tandem_cuda_transpose_sum(part, (size_t)n / 2, cuda_float_of(kernel[0]->task.from), &order,
                                     call[n - 1].workspace, device->tickets, device->stream);
}

/* What a sum and its layernorm add, n = 2; with a bias before them, n = 3. */
static tandem_cuda_residual summands_of(const tandem_kernel_call *call, int n)
{
    const tandem_kernel_call *bias = &call[0], *add = &call[n - 2];
    const int has_bias = n == 3,
              slot = has_bias && add->in[1] != bias->out[0]; /* of the sum's operands: the one with a bias */
    return (tandem_cuda_residual){
        .residual = add->in[slot], .own = has_bias ? bias->in[1] : NULL, .sum = add->out[0]};
}

/* n = 3: a bias, a sum and a layernorm; 2: the last two. */
static int run_add_layernorm(const tandem_kernel *const *kernel, const tandem_kernel_call *call, int n)
{
    const tandem_kernel *norm = kernel[n - 1];
    const tandem_kernel_call *own = &call[n - 1];
    const tandem_cuda_residual with = summands_of(call, n);
    const size_t columns = (size_t)tandem_shape_last(&norm->op->shape), rows = cuda_elements(norm) / columns;
    float *const mean = own->out[1];
    return tandem_cuda_add_layernorm(own->out[0], &with, n == 3 ? call[0].in[0] : call[0].in[1],
                                     cuda_float_of(norm->task.from), own->in[1], own->in[2], mean,
                                     mean + rows, rows, columns, norm->op->epsilon, norm->device->stream);
}

/* A layernorm, alone or with what run_add_layernorm adds, or a bias with gelu; and the cast of its result,
 * which is stored as floats where a later task reads it. */
static int run_coded_result(const tandem_kernel *const *kernel, const tandem_kernel_call *call, int n)
{
    const tandem_kernel *made = kernel[n - 2], *cast = kernel[n - 1];
    const tandem_kernel_call *own = &call[n - 2];
    const tandem_cuda_float type = cuda_float_of(made->task.from);
    const size_t columns = (size_t)tandem_shape_last(&made->op->shape), rows = cuda_elements(made) / columns;
    const tandem_rounding rounding = cuda_cast_rounding(&call[n - 1]);
    const tandem_cuda_delayed_cast codes = cuda_delayed_cast(cast, &call[n - 1], &rounding);
    void *const y = cast->is_read_later ? own->out[0] : NULL;
    if (made->op->kind == TANDEM_OP_BIAS_GELU) {
        const tandem_parameter *bias = &made->graph->parameter[made->op->parameter[0]];
        return tandem_cuda_bias_gelu_coded(&codes, y, own->in[0], type, own->in[1], cuda_elements(made),
                                           (size_t)tandem_bias_period(made->op, bias), made->device->stream);
    }
    float *const mean = own->out[1];
    const tandem_cuda_residual with = n > 2 ? summands_of(call, n - 1) : (tandem_cuda_residual){NULL};
    const void *const x = n == 3 ? call[0].in[1] : call[0].in[0];
    return tandem_cuda_layernorm_coded(&codes, y, &with, x, type, own->in[1], own->in[2], mean, mean + rows,
                                       rows, columns, made->op->epsilon, made->device->stream);
}

tandem_status cuda_run_merged(const tandem_kernel *const *kernel, const tandem_kernel_call *call, int n,
                              tandem_error *error)
{
    const tandem_kernel *last = kernel[n - 1];
    int failed;
    if (last->op->kind == TANDEM_OP_LINEAR && last->task.kind != TANDEM_TASK_WEIGHT_CAST)
        return cuda_run_merged_products(kernel, call, n, error);
    if (last->task.kind == TANDEM_TASK_WEIGHT_CAST)
        failed = run_weight_copies(kernel, call, n);
    else if (last->task.kind == TANDEM_TASK_CAST)
        failed = run_coded_result(kernel, call, n);
    else if (last->task.kind == TANDEM_TASK_WGRAD)
        failed = run_transpose_sums(kernel, call, n);
    else if (last->op->kind == TANDEM_OP_TRANSPOSE)
        failed = run_bias_transposes(kernel, call, n);
    else
        failed = run_add_layernorm(kernel, call, n);
    return cuda_kernel_result(last, failed, error);
}
