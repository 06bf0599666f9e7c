/* Every operator of the CUDA backend, in every precision, against the reference, and the same bits twice: on a card in build/card/
 * (make test-cuda). Elsewhere its host code and its kernels as they are, the kernels' threads as coroutines (simt.h), NVIDIA's
 * libraries as plain loops (stand_in.h). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tests/conformance/every_case.h"
#include "tests/cuda/card.h"
#include "tests/cuda/mirror.h"

static const unsigned all_precisions = (1u << TANDEM_N_PRECISION) - 1;

static void every_operator_agrees_with_the_reference(void **state)
{
    (void)state;
    const tandem_device row = {.name = "cuda:0", .precisions = all_precisions, .wider = TANDEM_BF16};
    bench b = {.backend = &mirror_backend, .row = &row, .narrow_gradients = 1, .is_card = 1};
    tandem_error error = {0};
    assert_int_equal(mirror_backend.open(&b.device, "cuda:0", &error), TANDEM_OK);
    bench_check_every_case(&b);
    bench_check_every_precision(&b);
    b.backend->close(b.device);
    assert_int_equal(b.complaints, 0);
    assert_true(b.checks > 300);
    assert_int_equal(card_open_things(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_operator_agrees_with_the_reference)};
    return card_skips() ? 0 : cmocka_run_group_tests(tests, NULL, NULL);
}
