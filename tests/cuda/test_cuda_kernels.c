/* The CUDA kernels' bits against the CPU's: on a card in build/card/ (make test-cuda), as coroutines (simt.h) elsewhere. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backend/cuda/operator.h"
#include "tests/cuda/card.h"

enum {
    N = 5003,
    ROWS = 37,
    COLUMNS = 136
}; /* no multiples of what threads and blocks work on; columns in eights */

static const tandem_isa_kernels *cpu(void)
{
    const tandem_isa_kernels *table = tandem_isa_kernels_find("sse41");
    assert_non_null(table);
    return table;
}

static void *taken(size_t bytes)
{
    void *memory = card_take_shared(bytes);
    assert_non_null(memory);
    return memory;
}

static void given(void *memory) { card_give_shared(memory); }

/* Numbers of all sizes, both signs; some are the ends of int8 and some 0. */
static float number(uint32_t i)
{
    const uint32_t counter[4] = {i, 7, 0, 0};
    const uint32_t word = tandem_philox(counter, 3).word[0];
    const float x = tandem_philox_uniform(word) * 2 - 1;
    return word % 11 == 0 ? 0 : word % 13 == 0 ? ldexpf(x, -20) : 3 * x;
}

static float *numbers(size_t n)
{
    float *x = taken(n * sizeof *x);
    for (size_t i = 0; i < n; i++) x[i] = number((uint32_t)i);
    return x;
}

static uint16_t *narrowed(const float *x, size_t n)
{
    uint16_t *y = taken(n * sizeof *y);
    cpu()->bf16_from_f32(y, x, n);
    return y;
}

static const tandem_rounding rounding = {12345, {1, 2, 3}, 5};

/* --- Types ---------------------------------------------------------------------------------------------------------------- */

static void ranges_are_the_largest_magnitude(void **state)
{
    (void)state;
    float *x = numbers(N);
    uint16_t *half = narrowed(x, N);
    uint32_t *bits = taken(sizeof *bits);
    for (size_t n = 1; n <= N; n = n * 3 + 1) {
        assert_int_equal(tandem_cuda_amax(bits, x, TANDEM_CUDA_F32, n, NULL), 0);
        const float wide = cpu()->amax_f32(x, n), narrow = cpu()->amax_bf16(half, n);
        assert_memory_equal(bits, &wide, sizeof wide);
        assert_int_equal(tandem_cuda_amax(bits, half, TANDEM_CUDA_BF16, n, NULL), 0);
        assert_memory_equal(bits, &narrow, sizeof narrow);
    }
    x[N - 1] = NAN;
    assert_int_equal(tandem_cuda_amax(bits, x, TANDEM_CUDA_F32, N, NULL), 0);
    assert_true(isnan(tandem_float_of(*bits)));
    given(bits);
    given(half);
    given(x);
}

static void integers_are_the_same(void **state)
{
    (void)state;
    float *x = numbers(N), *scale = taken(sizeof *scale), *back = taken(N * sizeof *back),
          *right = taken(N * sizeof *right);
    int8_t *q = taken(N), *expected = taken(N);
    uint32_t *bits = taken(sizeof *bits);
    for (size_t n = 1; n <= N; n = n * 3 + 1) {
        const float amax = cpu()->amax_f32(x, n);
        assert_int_equal(tandem_cuda_amax(bits, x, TANDEM_CUDA_F32, n, NULL), 0);
        assert_int_equal(tandem_cuda_quantise(q, scale, x, TANDEM_CUDA_F32, n, bits, &rounding, NULL), 0);
        cpu()->quantise_f32(expected, x, n, amax > 0 ? 127 / amax : 0, &rounding);
        assert_memory_equal(q, expected, n);
        const float own = amax / 127;
        assert_memory_equal(scale, &own, sizeof own);
        assert_int_equal(tandem_cuda_dequantise(back, TANDEM_CUDA_F32, q, n, scale, NULL), 0);
        cpu()->dequantise_f32(right, expected, n, own);
        assert_memory_equal(back, right, n * sizeof *right);
    }
    given(bits);
    given(expected);
    given(q);
    given(right);
    given(back);
    given(scale);
    given(x);
}

static void a_matrix_and_its_transpose_have_the_same_integers(void **state)
{
    (void)state;
    const size_t n = (size_t)ROWS * COLUMNS;
    float *x = numbers(n), *scale = taken(sizeof *scale);
    int8_t *plain = taken(n), *q = taken(n), *turned = taken(n);
    uint32_t *bits = taken(sizeof *bits);
    assert_int_equal(tandem_cuda_amax(bits, x, TANDEM_CUDA_F32, n, NULL), 0);
    assert_int_equal(tandem_cuda_quantise(plain, scale, x, TANDEM_CUDA_F32, n, bits, &rounding, NULL), 0);
    assert_int_equal(
        tandem_cuda_quantise_both(q, turned, scale, x, TANDEM_CUDA_F32, ROWS, COLUMNS, bits, &rounding, NULL), 0);
    assert_memory_equal(q, plain, n);
    for (size_t r = 0; r < ROWS; r++)
        for (size_t c = 0; c < COLUMNS; c++) assert_int_equal(turned[c * ROWS + r], plain[r * COLUMNS + c]);
    assert_int_equal(tandem_cuda_quantise_both(q, turned, scale, x, TANDEM_CUDA_F32, ROWS, 12, bits, &rounding, NULL),
                     TANDEM_CUDA_UNALIGNED);
    given(bits);
    given(turned);
    given(q);
    given(plain);
    given(scale);
    given(x);
}

static void a_row_has_its_own_range(void **state)
{
    (void)state;
    static const size_t widths[] = {8, COLUMNS, 2056, 8200}; /* one to eight octets a thread */
    for (size_t k = 0; k < sizeof widths / sizeof widths[0]; k++) {
        const size_t columns = widths[k], rows = 3, n = rows * columns;
        float *x = numbers(n), *scale = taken(rows * sizeof *scale);
        int8_t *q = taken(n), *expected = taken(n);
        assert_int_equal(tandem_cuda_quantise_rows(q, scale, x, TANDEM_CUDA_F32, rows, columns, &rounding, NULL), 0);
        for (size_t r = 0; r < rows; r++) {
            const float amax = cpu()->amax_f32(x + r * columns, columns), own = amax / 127;
            tandem_rounding from = rounding;
            from.block += (uint32_t)(r * columns / 8);
            cpu()->quantise_f32(expected + r * columns, x + r * columns, columns, 127 / amax, &from);
            assert_memory_equal(&scale[r], &own, sizeof own);
        }
        assert_memory_equal(q, expected, n);
        given(expected);
        given(q);
        given(scale);
        given(x);
    }
}

static void casts_are_the_same(void **state)
{
    (void)state;
    float *x = numbers(N), *wide = taken(N * sizeof *wide), *right = taken(N * sizeof *right);
    x[1] = NAN, x[2] = INFINITY, x[3] = -0.0f, x[4] = 0x1.01p0f, x[5] = 0x1.03p0f; /* ties to even */
    uint16_t *expected = narrowed(x, N), *half = taken(N * sizeof *half);
    assert_int_equal(tandem_cuda_narrow(half, x, N, NULL), 0);
    assert_memory_equal(half, expected, N * sizeof *half);
    assert_int_equal(tandem_cuda_widen(wide, half, N, NULL), 0);
    cpu()->f32_from_bf16(right, expected, N);
    assert_memory_equal(wide, right, N * sizeof *wide);
    given(half);
    given(expected);
    given(right);
    given(wide);
    given(x);
}

/* --- The optimizer -------------------------------------------------------------------------------------------------------- */

static void updates_are_the_same(void **state)
{
    (void)state;
    enum { FLAT = 4096 };
    float *array[6];
    for (int k = 0; k < 6; k++) {
        array[k] = numbers(FLAT);
        for (int i = 0; i < FLAT; i++) array[k][i] = fabsf(number((uint32_t)(i + 977 * (k % 3)))) + 0x1p-10f;
    }
    float *g = numbers(FLAT);
    int *broken = taken(sizeof *broken);
    *broken = 0;
    const tandem_adamw options = {0.01f, 0.9f, 0.999f, 1e-8f, 0.1f, 1 / 0.271f, 1 / 0.003f};
    assert_int_equal(tandem_cuda_adamw(array[0], array[1], array[2], g, NULL, FLAT, &options, broken, NULL), 0);
    assert_int_equal(cpu()->adamw(array[3], array[4], array[5], g, FLAT, options.rate, options.beta1, options.beta2,
                                  options.epsilon, options.decay, options.correction1, options.correction2),
                     1);
    for (int k = 0; k < 3; k++) assert_memory_equal(array[k], array[k + 3], FLAT * sizeof(float));
    uint8_t *decays = taken(FLAT / 16);
    memset(decays, 0, FLAT / 16);
    memset(decays, 1, FLAT / 32);
    assert_int_equal(tandem_cuda_sgd(array[0], array[1], g, decays, FLAT, 0.1f, 0.9f, 0.01f, broken, NULL), 0);
    assert_int_equal(cpu()->sgd(array[3], array[4], g, FLAT / 2, 0.1f, 0.9f, 0.01f), 1);
    assert_int_equal(cpu()->sgd(array[3] + FLAT / 2, array[4] + FLAT / 2, g + FLAT / 2, FLAT / 2, 0.1f, 0.9f, 0), 1);
    for (int k = 0; k < 2; k++) assert_memory_equal(array[k], array[k + 3], FLAT * sizeof(float));
    assert_int_equal(*broken, 0);
    g[FLAT - 3] = INFINITY;
    assert_int_equal(tandem_cuda_sgd(array[0], array[1], g, decays, FLAT, 0.1f, 0.9f, 0.01f, broken, NULL), 0);
    assert_int_equal(*broken, 1);
    assert_int_equal(tandem_cuda_sgd(array[0], array[1], g, decays, 17, 0.1f, 0.9f, 0.01f, broken, NULL),
                     TANDEM_CUDA_UNALIGNED);
    given(decays);
    given(broken);
    given(g);
    for (int k = 0; k < 6; k++) given(array[k]);
}

int main(void)
{
    (void)setenv("CUDA_LAUNCH_BLOCKING", "1", 1); /* a launch is done when it returns: its results are looked at at once */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranges_are_the_largest_magnitude),
        cmocka_unit_test(integers_are_the_same),
        cmocka_unit_test(a_matrix_and_its_transpose_have_the_same_integers),
        cmocka_unit_test(a_row_has_its_own_range),
        cmocka_unit_test(casts_are_the_same),
        cmocka_unit_test(updates_are_the_same),
    };
    return card_skips() ? 0 : cmocka_run_group_tests(tests, NULL, NULL);
}
