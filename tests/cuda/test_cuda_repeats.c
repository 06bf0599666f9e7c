/* folder: backend, and others for devices, plans or robust means */
/* Each of our own CUDA kernels twice over the same numbers, in as many blocks as a step has: the same bits.
 * On a card in build/card/ (make test-cuda), on less numbers as coroutines (simt.h) elsewhere, and where
 * `small` is said. */
#include "bench/cuda/gpu_bench.h"
#include "tests/cuda/gpu.h"
#include "tests/support/tandem_test.h"

static size_t elements = (size_t)1 << 24;

/* All arrays as a kernel leaves them. */
static tandem_status output_after(void *copy, const gpu_kernel *kernel, const gpu_arrays *a,
                                  const gpu_bench *c, tandem_error *error)
{
    const tandem_status status = gpu_arrays_fill(a, c, error);
    if (status != TANDEM_OK) return status;
    const gpu_arrays own = gpu_kernel_arrays(kernel, a);
    const int failed = kernel->launch(&own, c->device->stream);
    if (failed) return tandem_error_set(error, TANDEM_NO_DEVICE, "%s", c->device->vendor->error_text(failed));
    return tandem_cuda_backend.copy((void *)(uintptr_t)c->device, copy, a->start, a->bytes, error);
}

static void kernels_repeat_to_the_bit(void **state)
{
    void *device = NULL;
    tandem_error error = {0};
    gpu_arrays a;
    int complaints = 0;
    assert_int_equal(tandem_cuda_backend.open(&device, "cuda:0", &error), TANDEM_OK);
    gpu_bench c = {.device = device};
    assert_int_equal(gpu_arrays_open(&a, &c, elements, 256, &error), TANDEM_OK);
    void *first = malloc(a.bytes), *second = malloc(a.bytes);
    assert_non_null(first);
    assert_non_null(second);
    for (int k = 0; k < n_gpu_kernel; k++) {
        tandem_status status = output_after(first, &gpu_kernels[k], &a, &c, &error);
        for (int again = 0; again < (gpu_is_real ? 2 : 1) && status == TANDEM_OK; again++) {
            status = output_after(second, &gpu_kernels[k], &a, &c, &error);
            if (status != TANDEM_OK || memcmp(first, second, a.bytes) == 0) continue;
            print_message("%s: other bits when it runs again\n", gpu_kernels[k].name);
            complaints++;
            break;
        }
        if (status == TANDEM_OK) continue;
        print_message("%s: %s\n", gpu_kernels[k].name, error.text);
        complaints++;
    }
    free(second);
    free(first);
    gpu_free_all(&c);
    tandem_cuda_backend.close(device);
    assert_int_equal(complaints, 0);
    assert_int_equal(gpu_open_handles(), 0);
}

int main(int n, char **word)
{
    if (!gpu_is_real || (n > 1 && strcmp(word[1], "small") == 0)) elements = (size_t)1 << 18;
    const struct CMUnitTest tests[] = {cmocka_unit_test(kernels_repeat_to_the_bit)};
    return skip_without_gpu() ? 0 : cmocka_run_group_tests(tests, NULL, NULL);
}
