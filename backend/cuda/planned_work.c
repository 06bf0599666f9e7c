/* planned_work.c: describes products and convolutions to the libraries, selects their algorithms and runs
 * them. */
#include <stdio.h>

#include "backend/cuda/operator.h"

/* Work that a library cannot do is no fault of the GPU; another precision may work. */
static tandem_status library_error(const tandem_kernel *kernel, int failed, tandem_error *error)
{
    if (!cuda_error_is_unsupported(failed)) return cuda_kernel_result(kernel, failed, error);
    char why[160];
    (void)snprintf(why, sizeof why, "its library says: %.100s (error %d)",
                   kernel->device->vendor->error_text(failed), failed);
    return cuda_kernel_refuse(kernel, why, error);
}

/* Selects an algorithm; closes the work on an error. */
static tandem_status plan_work(cuda_planned_work *chosen, const tandem_kernel *kernel,
                               const cuda_work_key *candidate, cuda_work *work, tandem_error *error)
{
    const cuda_device *device = kernel->device;
    cuda_algorithm algorithm;
    const int failed =
        cuda_choose_algorithm(&algorithm, device->algorithm_cache, device->vendor, device->stream, candidate);
    if (failed) {
        device->vendor->work_close(work);
        return library_error(kernel, failed, error);
    }
    *chosen = (cuda_planned_work){work, algorithm};
    return TANDEM_OK;
}

/* The compute capability, times ten, from which the libraries multiply a type (source: capability.def). */
tandem_status cuda_require_capability(const tandem_kernel *kernel, cuda_type type, int tf32,
                                      tandem_error *error)
{
    const cuda_gpu *gpu = &kernel->device->gpu;
    const int min_capability = type == CUDA_TYPE_E4M3 || type == CUDA_TYPE_E5M2 ? 89
                               : type == CUDA_TYPE_BF16 || tf32                 ? 80
                                                                                : 0;
    if (10 * gpu->major + gpu->minor >= min_capability) return TANDEM_OK;
    char why[96];
    (void)snprintf(why, sizeof why, "it needs compute capability %d.%d, and %.40s has %d.%d",
                   min_capability / 10, min_capability % 10, gpu->name, gpu->major, gpu->minor);
    return cuda_kernel_refuse(kernel, why, error);
}

tandem_status cuda_plan_product(cuda_planned_work *chosen, const tandem_kernel *kernel,
                                const cuda_product_spec *s, tandem_error *error)
{
    cuda_work *work = NULL;
    const tandem_status able = cuda_require_capability(kernel, s->a, s->tf32, error);
    if (able != TANDEM_OK) return able;
    const int failed = kernel->device->vendor->product_open(&work, kernel->device->libraries, s);
    if (failed) return library_error(kernel, failed, error);
    const int64_t more = s->batch - 1, b = s->b_apart ? s->b_apart : s->k * s->n,
                  c_own = s->c_row ? s->m * s->c_row : s->m * s->n, c = s->c_apart ? s->c_apart : c_own,
                  a = s->a_row ? (s->transpose_a ? s->k : s->m) * s->a_row : s->m * s->k;
    cuda_work_key candidate = {.work = work,
                               .a_bytes =
                                   (uint64_t)((s->has_one_a ? 1 : s->batch) * a) * cuda_type_bytes(s->a),
                               .b_bytes = (uint64_t)(more * b + s->k * s->n) * cuda_type_bytes(s->b),
                               .c_bytes = (uint64_t)(more * c + c_own) * cuda_type_bytes(s->to),
                               .has_max_workspace = s->has_one_a,
                               .max_workspace = s->max_workspace};
    cuda_product_print(candidate.text, s);
    return plan_work(chosen, kernel, &candidate, work, error);
}

tandem_status cuda_plan_convolution(cuda_planned_work *chosen, const tandem_kernel *kernel,
                                    const cuda_convolution_spec *s, tandem_error *error)
{
    cuda_work *work = NULL;
    const tandem_status able = cuda_require_capability(kernel, s->type, s->tf32, error);
    if (able != TANDEM_OK) return able;
    const int failed = kernel->device->vendor->convolution_open(&work, kernel->device->libraries, s);
    if (failed) return library_error(kernel, failed, error);
    const uint64_t size = cuda_type_bytes(s->type);
    const uint64_t x = (uint64_t)s->batch * (uint64_t)s->in_h * (uint64_t)s->in_w * (uint64_t)s->c_in * size,
                   w = (uint64_t)s->c_out * (uint64_t)s->kernel_h * (uint64_t)s->kernel_w *
                       (uint64_t)s->c_in * size,
                   y = (uint64_t)s->batch * (uint64_t)s->out_h * (uint64_t)s->out_w * (uint64_t)s->c_out *
                       size;
    cuda_work_key candidate = {.work = work,
                               .a_bytes = s->pass == CUDA_CONVOLUTION_DGRAD ? y : x,
                               .b_bytes = s->pass == CUDA_CONVOLUTION_WGRAD ? y : w,
                               .c_bytes = s->pass == CUDA_CONVOLUTION         ? y
                                          : s->pass == CUDA_CONVOLUTION_DGRAD ? x
                                                                              : w};
    cuda_convolution_print(candidate.text, s);
    return plan_work(chosen, kernel, &candidate, work, error);
}

void cuda_planned_work_close(cuda_planned_work *chosen, const cuda_device *device)
{
    if (chosen->work) device->vendor->work_close(chosen->work);
    *chosen = (cuda_planned_work){0};
}

int cuda_planned_work_run(const cuda_planned_work *chosen, const cuda_device *device,
                          const cuda_operands *operands, void *workspace)
{
    return device->vendor->work_run(chosen->work, &chosen->algorithm, operands, workspace, device->stream);
}
