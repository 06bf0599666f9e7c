/* What the CUDA backend says where a card is missing, too old, full or lost, and that nothing is left behind then. Libraries are
 * stood in for (stand_in.h), kernels run as coroutines (simt.h). */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backend/cuda/operator.h"
#include "tests/cuda/stand_in.h"

/* --- Opening ------------------------------------------------------------------------------------------------------------- */

static void refused(const char *name, tandem_status status, const char *text)
{
    void *device = &device;
    void *const before = device;
    tandem_error error = {0};
    assert_int_equal(tandem_cuda_open_with(&device, name, &stand_in_vendor, &error), status);
    assert_non_null(strstr(error.text, text));
    assert_ptr_equal(device, before);
    assert_int_equal(stand_in_open_things(), 0);
}

static void a_card_that_cannot_be_used_is_refused(void **state)
{
    (void)state;
    const cuda_card good = stand_in_card;
    refused("cuda:1", TANDEM_NO_DEVICE, "has 1 card");
    refused("cuda:x", TANDEM_UNKNOWN_NAME, "cuda:0, cuda:1");
    refused("cuda:", TANDEM_UNKNOWN_NAME, "cuda:0, cuda:1");
    stand_in_card.major = 7, stand_in_card.minor = 0;
    refused("cuda:0", TANDEM_NO_DEVICE, "compute capability 7.0");
    stand_in_card = good;
    stand_in_card.driver = 12040;
    refused("cuda:0", TANDEM_NO_DEVICE, "CUDA 12.4, older than the 13.0");
    stand_in_card = good;
    const int64_t left = stand_in_memory_left;
    stand_in_memory_left = 8;
    refused("cuda:0", TANDEM_NO_DEVICE, "no memory");
    stand_in_memory_left = left;
}

static void a_card_lost_while_it_is_opened_leaves_nothing_behind(void **state)
{
    (void)state;
    void *device = NULL;
    tandem_error error = {0};
    int n = 0;
    for (; n < 100; n++) {
        stand_in_fails_after = n;
        const tandem_status status = tandem_cuda_open_with(&device, "cuda:0", &stand_in_vendor, &error);
        stand_in_fails_after = -1;
        if (status == TANDEM_OK) break;
        assert_int_equal(status, TANDEM_NO_DEVICE);
        assert_non_null(strstr(error.text, "the card is gone"));
        assert_int_equal(stand_in_open_things(), 0);
    }
    assert_in_range(n, 4, 99);
    tandem_cuda_backend.close(device);
    assert_int_equal(stand_in_open_things(), 0);
}

static void memory_is_cleared_and_ends(void **state)
{
    (void)state;
    void *device = NULL, *memory = NULL;
    tandem_error error = {0};
    const char zeros[100] = {0};
    char back[100] = "x";
    assert_int_equal(tandem_cuda_open_with(&device, "cuda:0", &stand_in_vendor, &error), TANDEM_OK);
    assert_int_equal(tandem_cuda_backend.take(device, &memory, sizeof back, 0, &error), TANDEM_OK);
    assert_int_equal(tandem_cuda_backend.copy(device, back, memory, sizeof back, &error), TANDEM_OK);
    assert_memory_equal(back, zeros, sizeof back);
    void *more = NULL;
    assert_int_equal(tandem_cuda_backend.take(device, &more, UINT64_C(1) << 40, 0, &error), TANDEM_NO_MEMORY);
    assert_non_null(strstr(error.text, "cuda:0"));
    assert_null(more);
    stand_in_fails_after = 0;
    assert_int_equal(tandem_cuda_backend.copy(device, back, memory, sizeof back, &error), TANDEM_NO_DEVICE);
    stand_in_fails_after = -1;
    tandem_cuda_backend.give(device, memory, 0);
    tandem_cuda_backend.close(device);
    assert_int_equal(stand_in_open_things(), 0);
}

static void gradients_that_are_not_finite_are_told_once(void **state)
{
    (void)state;
    enum { FLAT = 32 };
    void *device = NULL;
    tandem_error error = {0};
    int is_finite = -1;
    const tandem_optimizer_options sgd = {.kind = TANDEM_SGD, .rate = 0.1f, .momentum = 0.9f};
    assert_int_equal(tandem_cuda_open_with(&device, "cuda:0", &stand_in_vendor, &error), TANDEM_OK);
    void *memory = NULL;
    assert_int_equal(tandem_cuda_backend.take(device, &memory, 3 * FLAT * sizeof(float), 0, &error), TANDEM_OK);
    float *const w = memory, *const v = w + FLAT, *const g = v + FLAT;
    float *const states[2] = {v, NULL};
    for (int round = 0; round < 3; round++) {
        g[5] = round == 1 ? NAN : 1;
        assert_int_equal(tandem_cuda_backend.update(device, &sgd, 1, NULL, w, states, g, FLAT, round + 1), 1);
        assert_int_equal(tandem_cuda_backend.settle(device, &is_finite, &error), TANDEM_OK);
        assert_int_equal(is_finite, round != 1);
    }
    tandem_cuda_backend.give(device, memory, 0);
    tandem_cuda_backend.close(device);
    assert_int_equal(stand_in_open_things(), 0);
}

static void the_library_is_of_one_version(void **state)
{
    (void)state;
    const tandem_device_backend *tandem_cuda_get(int version);
    assert_ptr_equal(tandem_cuda_get(TANDEM_BACKEND_VERSION), &tandem_cuda_backend);
    assert_null(tandem_cuda_get(TANDEM_BACKEND_VERSION + 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_card_that_cannot_be_used_is_refused),
        cmocka_unit_test(a_card_lost_while_it_is_opened_leaves_nothing_behind),
        cmocka_unit_test(memory_is_cleared_and_ends),
        cmocka_unit_test(gradients_that_are_not_finite_are_told_once),
        cmocka_unit_test(the_library_is_of_one_version),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
