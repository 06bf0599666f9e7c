/* folder: backend */
/* Casts with an amax history on a card: integers, scale and history have the CPU's bits, on a card in
 * build/card/, as coroutines elsewhere. */
#include "backend/cuda/operator.h"
#include "tests/cuda/gpu.h"
#include "tests/support/tandem_test.h"

enum { N = 3003, WINDOW = 3, CASTS = 9 };

static void *alloc_delayed(size_t bytes)
{
    void *memory = gpu_alloc_shared(bytes);
    assert_non_null(memory);
    return memory;
}

static const tandem_rounding rounding = {12345, {1, 2, 3}, 0};

/* N codes in a row. */
static tandem_cuda_quantised delayed_output(void *q, tandem_cuda_code code, float *scale)
{
    return (tandem_cuda_quantised){.code = code, .batch = 1, .rows = 1, .columns = N, .q = q, .scale = scale};
}

static tandem_cuda_delayed_cast cast_to_row(void *q, tandem_cuda_code code, float *scale,
                                            tandem_amax_history *history, uint32_t *words)
{
    return (tandem_cuda_delayed_cast){
        .to = delayed_output(q, code, scale), .history = history, .words = words, .rounding = &rounding};
}

/* Of cast number k: sizes come and go, so that some casts outgrow their range; the first ones are all 0. */
static void fill_numbers(float *x, uint16_t *half, int k)
{
    static const float largest[CASTS] = {0, 0, 1, 4, 0.5f, 2, 1e-3f, 2e-3f, 8};
    const tandem_isa_kernels *cpu = tandem_isa_kernels_find("sse41");
    for (uint32_t i = 0; i < N; i++) {
        const uint32_t counter[4] = {i, (uint32_t)k, 0, 0};
        x[i] = largest[k] * (2 * tandem_philox_uniform(tandem_philox(counter, 3).word[0]) - 1);
    }
    cpu->bf16_from_f32(half, x, N);
}

/* Which a launch leaves as it found them. */
static uint32_t *new_words(void)
{
    return memset(alloc_delayed(2 * sizeof(uint32_t)), 0, 2 * sizeof(uint32_t));
}

static void end_words(uint32_t *words)
{
    assert_int_equal(words[0], 0);
    assert_int_equal(words[1], 0);
    gpu_free_shared(words);
}

/* The CPU's cast by the library's own means. */
static void expect_delayed(int8_t *q, float *scale, tandem_amax_history *history, int reuse_range,
                           const void *x, tandem_dtype from)
{
    const float range = reuse_range ? history->before : tandem_amax_history_range(history);
    float amax = 0;
    const tandem_quantise_call call = {.x = x,
                                       .from = from,
                                       .rows = 1,
                                       .columns = N,
                                       .q = q,
                                       .scale_mode = range > 0 ? TANDEM_SCALE_KNOWN : TANDEM_SCALE_TENSOR,
                                       .range = range,
                                       .rounding = &rounding,
                                       .scale = scale,
                                       .amax = &amax};
    const tandem_kernels *kernels = NULL;
    assert_int_equal(tandem_kernels_open(&kernels, "sse41", NULL), TANDEM_OK);
    assert_int_equal(tandem_kernels_quantise(kernels, &call, NULL), TANDEM_OK);
    if (!reuse_range) assert_int_equal(tandem_amax_history_add(history, amax, NULL), TANDEM_OK);
}

/* Where the range may be missing, there are two launches, also where it is not. */
static void casts_go_on_with_their_history(void **state)
{
    float *x = alloc_delayed(N * sizeof *x), *scale = alloc_delayed(sizeof *scale), right = 0;
    uint16_t *half = alloc_delayed(N * sizeof *half);
    int8_t *q = alloc_delayed(N), *expected = alloc_delayed(N);
    uint32_t *words = new_words();
    tandem_amax_history *history = alloc_delayed(sizeof *history), *own = alloc_delayed(sizeof *own);
    for (int way = 0; way < 4; way++) {
        const int wide = way % 2, may_lack_range = way / 2;
        assert_int_equal(tandem_amax_history_init(history, WINDOW, -1, NULL), TANDEM_OK);
        assert_int_equal(tandem_amax_history_init(own, WINDOW, -1, NULL), TANDEM_OK);
        int n_clamped = 0;
        for (int k = 0; k < 2 * CASTS; k++) {
            const int reuse_range = k % 2;
            fill_numbers(x, half, k / 2);
            const void *from = wide ? (const void *)x : half;
            tandem_cuda_delayed_cast cast = cast_to_row(q, TANDEM_CUDA_S8, scale, history, words);
            const int launches = gpu_launches();
            cast.reuse_range = reuse_range, cast.may_lack_range = may_lack_range;
            assert_int_equal(
                tandem_cuda_quantise_delayed(&cast, from, wide ? TANDEM_CUDA_F32 : TANDEM_CUDA_BF16, NULL),
                0);
            assert_true(launches < 0 || gpu_launches() == launches + 1 + may_lack_range);
            expect_delayed(expected, &right, own, reuse_range, from, wide ? TANDEM_F32 : TANDEM_BF16);
            assert_memory_equal(q, expected, N);
            assert_memory_equal(scale, &right, sizeof right);
            assert_memory_equal(history, own, tandem_amax_history_bytes(WINDOW));
            n_clamped += k > 4 && 127 * right < own->amax[(own->updates - 1) % WINDOW];
        }
        assert_int_equal(history->updates, CASTS);
        assert_in_range(n_clamped, 3, 2 * CASTS);
    }
    gpu_free_shared(own);
    gpu_free_shared(history);
    end_words(words);
    gpu_free_shared(expected);
    gpu_free_shared(q);
    gpu_free_shared(half);
    gpu_free_shared(scale);
    gpu_free_shared(x);
}

/* A NaN or an infinity is seen in the scale, whatever the range says, and leaves the history alone. */
static void what_is_not_finite_is_seen(void **state)
{
    static const float wrong[] = {NAN, INFINITY, -INFINITY};
    float *x = alloc_delayed(N * sizeof *x), *scale = alloc_delayed(sizeof *scale);
    uint16_t *half = alloc_delayed(N * sizeof *half);
    int8_t *q = alloc_delayed(N);
    uint32_t *words = new_words();
    tandem_amax_history *history = alloc_delayed(sizeof *history), before;
    for (int way = 0; way < 4; way++)
        for (int k = 0; k < 3; k++) {
            const int known = way % 2;
            assert_int_equal(tandem_amax_history_init(history, WINDOW, 0, NULL), TANDEM_OK);
            if (known) assert_int_equal(tandem_amax_history_add(history, 2, NULL), TANDEM_OK);
            memcpy(&before, history, tandem_amax_history_bytes(WINDOW));
            fill_numbers(x, half, 3);
            x[N - 1 - 1000 * k] = wrong[k];
            tandem_cuda_delayed_cast cast = cast_to_row(q, TANDEM_CUDA_S8, scale, history, words);
            cast.may_lack_range = way / 2;
            assert_int_equal(tandem_cuda_quantise_delayed(&cast, x, TANDEM_CUDA_F32, NULL), 0);
            assert_true(isnan(*scale));
            assert_memory_equal(history, &before, tandem_amax_history_bytes(WINDOW));
        }
    gpu_free_shared(history);
    end_words(words);
    gpu_free_shared(q);
    gpu_free_shared(half);
    gpu_free_shared(scale);
    gpu_free_shared(x);
}

/* Eight-bit floats, too, are those of the same range known in advance. */
static void codes_of_a_range_are_the_same(void **state)
{
    static const tandem_cuda_code codes[] = {TANDEM_CUDA_E4M3, TANDEM_CUDA_E5M2};
    float *x = alloc_delayed(N * sizeof *x), *scale = alloc_delayed(sizeof *scale), right;
    uint16_t *half = alloc_delayed(N * sizeof *half);
    uint8_t *q = alloc_delayed(N), *expected = alloc_delayed(N);
    uint32_t *words = new_words(), *amax_bits = alloc_delayed(sizeof *amax_bits);
    tandem_amax_history *history = alloc_delayed(sizeof *history);
    fill_numbers(x, half, 3);
    for (int k = 0; k < 2; k++) {
        assert_int_equal(tandem_amax_history_init(history, WINDOW, 0, NULL), TANDEM_OK);
        assert_int_equal(tandem_amax_history_add(history, 2, NULL), TANDEM_OK);
        assert_int_equal(tandem_cuda_set_word(amax_bits, tandem_bits_of(2), NULL), 0);
        const tandem_cuda_quantised known = delayed_output(expected, codes[k], scale);
        const tandem_cuda_delayed_cast cast = cast_to_row(q, codes[k], scale, history, words);
        assert_int_equal(tandem_cuda_quantise(&known, x, TANDEM_CUDA_F32, amax_bits, &rounding, NULL, NULL),
                         0);
        right = *scale;
        assert_int_equal(tandem_cuda_quantise_delayed(&cast, x, TANDEM_CUDA_F32, NULL), 0);
        assert_memory_equal(q, expected, N);
        assert_memory_equal(scale, &right, sizeof right);
        assert_int_equal(history->updates, 2);
    }
    gpu_free_shared(history);
    gpu_free_shared(amax_bits);
    end_words(words);
    gpu_free_shared(expected);
    gpu_free_shared(q);
    gpu_free_shared(half);
    gpu_free_shared(scale);
    gpu_free_shared(x);
}

/* What is counted of a step without a card is what the casts above launch. */
static void launches_are_those_that_a_step_counts(void **state)
{
    const tandem_step_options options = {.narrow_rows = 1, .scaling.window = WINDOW};
    tandem_graph *graph = NULL;
    tandem_step *step = NULL;
    int n_cast = 0;
    assert_int_equal(tandem_graph_open(&graph, "mlp", 2, NULL), TANDEM_OK);
    assert_int_equal(tandem_step_open_with(&step, graph, TANDEM_BF16, 0, &options, NULL), TANDEM_OK);
    for (int i = 0; i < graph->n_op; i++)
        if (tandem_op_is_adjustable(&graph->op[i])) tandem_step_set(step, i, TANDEM_PRECISION_FP8);
    tandem_step_resolve(step);
    for (int t = 0; t < step->n_task; t++) {
        const tandem_task *task = &step->task[t];
        if (!task->active || (task->to != TANDEM_E4M3 && task->to != TANDEM_E5M2)) continue;
        assert_int_equal(tandem_step_launches(step, t), 1);
        n_cast++;
    }
    assert_in_range(n_cast, 6, 12); /* of inputs, weights and gradients */
    tandem_step_close(step);
    tandem_graph_close(graph);
}

int main(void)
{
    /* a launch is done when it returns: its results are looked at at once */
    (void)setenv("CUDA_LAUNCH_BLOCKING", "1", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(casts_go_on_with_their_history),
        cmocka_unit_test(what_is_not_finite_is_seen),
        cmocka_unit_test(codes_of_a_range_are_the_same),
        cmocka_unit_test(launches_are_those_that_a_step_counts),
    };
    return skip_without_gpu() ? 0 : cmocka_run_group_tests(tests, NULL, NULL);
}
