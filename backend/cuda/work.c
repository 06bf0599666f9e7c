/* work.c: products and convolutions of the libraries, described, chosen for and run. */
#include <stdio.h>

#include "backend/cuda/operator.h"

/* What a library has no way to do is no failure of the card: another precision may do. */
static tandem_status told(const tandem_kernel *kernel, int failed, tandem_error *error)
{
    const cuda_vendor *vendor = kernel->device->vendor;
    if (!vendor->is_unsupported(failed)) return cuda_kernel_result(kernel, failed, error);
    char why[160];
    (void)snprintf(why, sizeof why, "its library says: %.100s (error %d)", vendor->error_text(failed),
                   failed);
    return cuda_kernel_refuse(kernel, why, error);
}

/* Chooses, and closes the work where that fails. */
static tandem_status choose(cuda_chosen *chosen, const tandem_kernel *kernel,
                            const cuda_candidate_work *candidate, cuda_work *work, tandem_error *error)
{
    const cuda_device *device = kernel->device;
    cuda_algorithm algorithm;
    const int failed = cuda_choose(&algorithm, device->choices, device->vendor, device->stream, candidate);
    if (failed) {
        device->vendor->work_close(work);
        return told(kernel, failed, error);
    }
    *chosen = (cuda_chosen){work, algorithm};
    return TANDEM_OK;
}

/* Which compute capability, times ten, the libraries' products of a type begin with (capability.def says
 * where that is from). */
static tandem_status require(const tandem_kernel *kernel, cuda_type type, int tf32, tandem_error *error)
{
    const cuda_card *card = &kernel->device->card;
    const int least = type == CUDA_TYPE_E4M3 || type == CUDA_TYPE_E5M2 ? 89
                      : type == CUDA_TYPE_BF16 || tf32                 ? 80
                                                                       : 0;
    if (10 * card->major + card->minor >= least) return TANDEM_OK;
    char why[96];
    (void)snprintf(why, sizeof why, "it needs compute capability %d.%d, and %.40s has %d.%d", least / 10,
                   least % 10, card->name, card->major, card->minor);
    return cuda_kernel_refuse(kernel, why, error);
}

tandem_status cuda_product_choose(cuda_chosen *chosen, const tandem_kernel *kernel,
                                  const cuda_product_spec *s, tandem_error *error)
{
    cuda_work *work = NULL;
    const tandem_status able = require(kernel, s->a, s->tf32, error);
    if (able != TANDEM_OK) return able;
    const int failed = kernel->device->vendor->product_open(&work, kernel->device->libraries, s);
    if (failed) return told(kernel, failed, error);
    cuda_candidate_work candidate = {.work = work,
                                     .a_bytes = (uint64_t)(s->batch * s->m * s->k) * cuda_type_bytes(s->a),
                                     .b_bytes = (uint64_t)(s->batch * s->k * s->n) * cuda_type_bytes(s->b),
                                     .c_bytes = (uint64_t)(s->batch * s->m * s->n) * cuda_type_bytes(s->to)};
    cuda_product_print(candidate.text, s);
    return choose(chosen, kernel, &candidate, work, error);
}

tandem_status cuda_convolution_choose(cuda_chosen *chosen, const tandem_kernel *kernel,
                                      const cuda_convolution_spec *s, tandem_error *error)
{
    cuda_work *work = NULL;
    const tandem_status able = require(kernel, s->type, s->tf32, error);
    if (able != TANDEM_OK) return able;
    const int failed = kernel->device->vendor->convolution_open(&work, kernel->device->libraries, s);
    if (failed) return told(kernel, failed, error);
    const uint64_t size = cuda_type_bytes(s->type);
    const uint64_t x = (uint64_t)s->batch * (uint64_t)s->in_h * (uint64_t)s->in_w * (uint64_t)s->c_in * size,
                   w = (uint64_t)s->c_out * (uint64_t)s->kernel_h * (uint64_t)s->kernel_w *
                       (uint64_t)s->c_in * size,
                   y = (uint64_t)s->batch * (uint64_t)s->out_h * (uint64_t)s->out_w * (uint64_t)s->c_out *
                       size;
    cuda_candidate_work candidate = {.work = work,
                                     .a_bytes = s->pass == CUDA_CONVOLUTION_DGRAD ? y : x,
                                     .b_bytes = s->pass == CUDA_CONVOLUTION_WGRAD ? y : w,
                                     .c_bytes = s->pass == CUDA_CONVOLUTION         ? y
                                                : s->pass == CUDA_CONVOLUTION_DGRAD ? x
                                                                                    : w};
    cuda_convolution_print(candidate.text, s);
    return choose(chosen, kernel, &candidate, work, error);
}

void cuda_chosen_close(cuda_chosen *chosen, const cuda_device *device)
{
    if (chosen->work) device->vendor->work_close(chosen->work);
    *chosen = (cuda_chosen){0};
}

int cuda_chosen_run(const cuda_chosen *chosen, const cuda_device *device, const cuda_operands *operands,
                    void *workspace)
{
    return device->vendor->work_run(chosen->work, &chosen->algorithm, operands, workspace, device->stream);
}
