/* Casts with an amax history on a card: integers, scale and history have the CPU's bits, on a card in
 * build/card/, as coroutines elsewhere. */
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

enum { N = 3003, WINDOW = 3, CASTS = 9 };

static void *taken(size_t bytes)
{
    void *memory = card_take_shared(bytes);
    assert_non_null(memory);
    return memory;
}

static const tandem_rounding rounding = {12345, {1, 2, 3}, 0};

/* N codes in a row. */
static tandem_cuda_codes codes_in(void *q, tandem_cuda_code code, float *scale)
{
    return (tandem_cuda_codes){.code = code, .batch = 1, .rows = 1, .columns = N, .q = q, .scale = scale};
}

/* Of cast number k: sizes come and go, so that some casts outgrow their range; the first ones are all 0. */
static void fill(float *x, uint16_t *half, int k)
{
    static const float largest[CASTS] = {0, 0, 1, 4, 0.5f, 2, 1e-3f, 2e-3f, 8};
    const tandem_isa_kernels *cpu = tandem_isa_kernels_find("sse41");
    for (uint32_t i = 0; i < N; i++) {
        const uint32_t counter[4] = {i, (uint32_t)k, 0, 0};
        x[i] = largest[k] * (2 * tandem_philox_uniform(tandem_philox(counter, 3).word[0]) - 1);
    }
    cpu->bf16_from_f32(half, x, N);
}

/* The CPU's cast by the library's own means. */
static void expect(int8_t *q, float *scale, tandem_amax_history *history, int repeats, const void *x,
                   tandem_dtype from)
{
    const float range = repeats ? history->before : tandem_amax_history_range(history);
    float amax = 0;
    const tandem_quantise_call call = {.x = x,
                                       .from = from,
                                       .rows = 1,
                                       .columns = N,
                                       .q = q,
                                       .scaling = range > 0 ? TANDEM_SCALE_KNOWN : TANDEM_SCALE_TENSOR,
                                       .range = range,
                                       .rounding = &rounding,
                                       .scale = scale,
                                       .amax = &amax};
    const tandem_kernels *kernels = NULL;
    assert_int_equal(tandem_kernels_open(&kernels, "sse41", NULL), TANDEM_OK);
    assert_int_equal(tandem_kernels_quantise(kernels, &call, NULL), TANDEM_OK);
    if (!repeats) assert_int_equal(tandem_amax_history_add(history, amax, NULL), TANDEM_OK);
}

static void casts_go_on_with_their_history(void **state)
{
    (void)state;
    float *x = taken(N * sizeof *x), *scale = taken(sizeof *scale), right = 0;
    uint16_t *half = taken(N * sizeof *half);
    int8_t *q = taken(N), *expected = taken(N);
    uint32_t *words = taken(2 * sizeof *words);
    tandem_amax_history *history = taken(sizeof *history), *own = taken(sizeof *own);
    for (int wide = 0; wide < 2; wide++) {
        assert_int_equal(tandem_amax_history_init(history, WINDOW, -1, NULL), TANDEM_OK);
        assert_int_equal(tandem_amax_history_init(own, WINDOW, -1, NULL), TANDEM_OK);
        int n_clamped = 0;
        for (int k = 0; k < 2 * CASTS; k++) {
            const int repeats = k % 2;
            fill(x, half, k / 2);
            const void *from = wide ? (const void *)x : half;
            const tandem_cuda_codes to = codes_in(q, TANDEM_CUDA_S8, scale);
            assert_int_equal(tandem_cuda_quantise_delayed(&to, from,
                                                          wide ? TANDEM_CUDA_F32 : TANDEM_CUDA_BF16, history,
                                                          repeats, words, &rounding, NULL, NULL),
                             0);
            expect(expected, &right, own, repeats, from, wide ? TANDEM_F32 : TANDEM_BF16);
            assert_memory_equal(q, expected, N);
            assert_memory_equal(scale, &right, sizeof right);
            assert_memory_equal(history, own, tandem_amax_history_bytes(WINDOW));
            n_clamped += k > 4 && 127 * right < own->amax[(own->updates - 1) % WINDOW];
        }
        assert_int_equal(history->updates, CASTS);
        assert_in_range(n_clamped, 3, 2 * CASTS);
    }
    card_give_shared(own);
    card_give_shared(history);
    card_give_shared(words);
    card_give_shared(expected);
    card_give_shared(q);
    card_give_shared(half);
    card_give_shared(scale);
    card_give_shared(x);
}

/* A NaN or an infinity is seen in the scale, whatever the range says, and leaves the history alone. */
static void what_is_not_finite_is_seen(void **state)
{
    (void)state;
    static const float wrong[] = {NAN, INFINITY, -INFINITY};
    float *x = taken(N * sizeof *x), *scale = taken(sizeof *scale);
    uint16_t *half = taken(N * sizeof *half);
    int8_t *q = taken(N);
    uint32_t *words = taken(2 * sizeof *words);
    tandem_amax_history *history = taken(sizeof *history), before;
    for (int known = 0; known < 2; known++)
        for (int k = 0; k < 3; k++) {
            assert_int_equal(tandem_amax_history_init(history, WINDOW, 0, NULL), TANDEM_OK);
            if (known) assert_int_equal(tandem_amax_history_add(history, 2, NULL), TANDEM_OK);
            memcpy(&before, history, tandem_amax_history_bytes(WINDOW));
            fill(x, half, 3);
            x[N - 1 - 1000 * k] = wrong[k];
            const tandem_cuda_codes to = codes_in(q, TANDEM_CUDA_S8, scale);
            assert_int_equal(tandem_cuda_quantise_delayed(&to, x, TANDEM_CUDA_F32, history, 0, words,
                                                          &rounding, NULL, NULL),
                             0);
            assert_true(isnan(*scale));
            assert_memory_equal(history, &before, tandem_amax_history_bytes(WINDOW));
        }
    card_give_shared(history);
    card_give_shared(words);
    card_give_shared(q);
    card_give_shared(half);
    card_give_shared(scale);
    card_give_shared(x);
}

/* Eight-bit floats, too, are those of the same range known in advance. */
static void codes_of_a_range_are_the_same(void **state)
{
    (void)state;
    static const tandem_cuda_code codes[] = {TANDEM_CUDA_E4M3, TANDEM_CUDA_E5M2};
    float *x = taken(N * sizeof *x), *scale = taken(sizeof *scale), right;
    uint16_t *half = taken(N * sizeof *half);
    uint8_t *q = taken(N), *expected = taken(N);
    uint32_t *words = taken(2 * sizeof *words);
    tandem_amax_history *history = taken(sizeof *history);
    fill(x, half, 3);
    for (int k = 0; k < 2; k++) {
        assert_int_equal(tandem_amax_history_init(history, WINDOW, 0, NULL), TANDEM_OK);
        assert_int_equal(tandem_amax_history_add(history, 2, NULL), TANDEM_OK);
        assert_int_equal(tandem_cuda_set_word(words, tandem_bits_of(2), NULL), 0);
        const tandem_cuda_codes to = codes_in(q, codes[k], scale),
                                known = codes_in(expected, codes[k], scale);
        assert_int_equal(tandem_cuda_quantise(&known, x, TANDEM_CUDA_F32, words, &rounding, NULL, NULL), 0);
        right = *scale;
        assert_int_equal(
            tandem_cuda_quantise_delayed(&to, x, TANDEM_CUDA_F32, history, 0, words, &rounding, NULL, NULL),
            0);
        assert_memory_equal(q, expected, N);
        assert_memory_equal(scale, &right, sizeof right);
        assert_int_equal(history->updates, 2);
    }
    card_give_shared(history);
    card_give_shared(words);
    card_give_shared(expected);
    card_give_shared(q);
    card_give_shared(half);
    card_give_shared(scale);
    card_give_shared(x);
}

int main(void)
{
    /* a launch is done when it returns: its results are looked at at once */
    (void)setenv("CUDA_LAUNCH_BLOCKING", "1", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(casts_go_on_with_their_history),
        cmocka_unit_test(what_is_not_finite_is_seen),
        cmocka_unit_test(codes_of_a_range_are_the_same),
    };
    return card_skips() ? 0 : cmocka_run_group_tests(tests, NULL, NULL);
}
