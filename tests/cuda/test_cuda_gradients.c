/* folder: backend */
/* Backward kernels of the CUDA backend against finite differences of its forward kernels: on a card in
 * build/card/ (make test-cuda), a few elements of each operand as coroutines (simt.h) elsewhere. */
#include "tests/cuda/gpu.h"
#include "tests/cuda/mirror.h"
#include "tests/support/gradient_check.h"
#include "tests/support/tandem_test.h"

static void gradients_are_slopes(void **state)
{
    gradients g = {.backend = &mirror_backend, .is_gpu = 1, .max_elements = gpu_is_real ? 120 : 2};
    tandem_error error = {0};
    assert_int_equal(mirror_backend.open(&g.device, "cuda:0", &error), TANDEM_OK);
    gradients_check_every_case(&g);
    mirror_backend.close(g.device);
    assert_int_equal(g.complaints, 0);
    assert_int_equal(gpu_open_handles(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(gradients_are_slopes)};
    return skip_without_gpu() ? 0 : cmocka_run_group_tests(tests, NULL, NULL);
}
