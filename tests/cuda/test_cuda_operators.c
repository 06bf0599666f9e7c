/* Every operator of the CUDA backend, in every precision, against the reference: its host code and its kernels as they are, the
 * kernels' threads as coroutines, NVIDIA's libraries as plain loops (stand_in.h). What needs a card is tested on one
 * (make test-cuda). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "backend/cuda/operator.h"
#include "tests/conformance/every_case.h"
#include "tests/cuda/stand_in.h"

static const unsigned all_precisions = 1u << TANDEM_PRECISION_FP32 | 1u << TANDEM_PRECISION_BF16 | 1u << TANDEM_PRECISION_INT8 |
                                       1u << TANDEM_PRECISION_INT8_FULL; /* that it has kernels for */

static void every_operator_agrees_with_the_reference(void **state)
{
    (void)state;
    const tandem_device row = {.name = "cuda:0", .precisions = all_precisions, .wider = TANDEM_BF16};
    bench b = {.backend = &tandem_cuda_backend, .row = &row, .narrow_gradients = 1};
    tandem_error error = {0};
    assert_int_equal(tandem_cuda_open_with(&b.device, "cuda:0", &stand_in_vendor, &error), TANDEM_OK);
    bench_check_every_case(&b);
    bench_check_every_precision(&b);
    b.backend->close(b.device);
    assert_int_equal(b.complaints, 0);
    assert_true(b.checks > 300);
    assert_int_equal(stand_in_open_things(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_operator_agrees_with_the_reference)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
