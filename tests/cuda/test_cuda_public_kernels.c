/* folder: backend */
/* tandem/cuda_kernels.h beside tandem/kernels.h: the same bits, on a card in build/card/ (make test-cuda), as
 * coroutines elsewhere. */
#include "kernels/cuda/arithmetic.h"
#include "tandem/cuda_kernels.h"
#include "tests/cuda/gpu.h"
#include "tests/support/tandem_test.h"

enum { MAX_ELEMENTS = 1 << 14 };
static const tandem_kernels *cpu;
static const tandem_rounding rounding = {2024, {9, 8, 7}, 3};

/* The call is good, and the card has done it. */
#define assert_done(call) (assert_int_equal((call), TANDEM_OK), gpu_sync())

/* What every test works on, on the card. */
static float *x, *scale;
static uint16_t *half;
static void *out, *transposed;
static uint32_t *workspace;
static tandem_amax_history *history;
/* And where the CPU puts the same. */
static int8_t expected[MAX_ELEMENTS], expected_transposed[MAX_ELEMENTS];
static float expected_wide[MAX_ELEMENTS], expected_scale[MAX_ELEMENTS];

static void *alloc_public(size_t bytes)
{
    void *memory = gpu_alloc_shared(bytes);
    assert_non_null(memory);
    return memory;
}

static int open_public_arrays(void **state)
{
    x = alloc_public(MAX_ELEMENTS * sizeof *x), scale = alloc_public(MAX_ELEMENTS * sizeof *scale),
    half = alloc_public(MAX_ELEMENTS * sizeof *half);
    out = alloc_public(MAX_ELEMENTS * sizeof(float)), transposed = alloc_public(MAX_ELEMENTS);
    workspace = alloc_public(TANDEM_CUDA_QUANTISE_WORDS * sizeof *workspace),
    history = alloc_public(sizeof *history);
    for (uint32_t i = 0; i < MAX_ELEMENTS; i++) {
        const uint32_t counter[4] = {i, 0, 0, 0};
        x[i] = (4 * tandem_philox_uniform(tandem_philox(counter, 5).word[0]) - 2) * (i % 7 == 0 ? 0.01f : 1);
        half[i] = tandem_bf16_of(x[i]);
    }
    return tandem_kernels_open(&cpu, "sse41", NULL);
}

static int close_public_arrays(void **state)
{
    void *const all[] = {x, scale, half, out, transposed, workspace, history};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) gpu_free_shared(all[i]);
    return 0;
}

static const void *public_numbers(tandem_dtype type) { return type == TANDEM_F32 ? (void *)x : half; }

/* --- To types of a byte --------------------------------------------------------------------------------- */

static void the_largest_magnitude_is_the_same(void **state)
{
    static const tandem_dtype types[] = {TANDEM_F32, TANDEM_BF16};
    for (int k = 0; k < 2; k++)
        for (int64_t n = 0; n < MAX_ELEMENTS; n = 3 * n + 1) {
            float right = -1;
            assert_int_equal(
                tandem_kernels_amax(cpu, &right, public_numbers(types[k]), types[k], 1, n, 0, NULL),
                TANDEM_OK);
            assert_done(tandem_cuda_kernels_amax(scale, public_numbers(types[k]), types[k], n, NULL, NULL));
            assert_memory_equal(scale, &right, sizeof right);
        }
}

/* A call of both, over the same rows and columns. */
static void check_public_quantise(tandem_dtype from, int64_t rows, int64_t columns,
                                  tandem_scale_mode scale_mode, const tandem_rounding *how)
{
    const int by_row = scale_mode == TANDEM_SCALE_ROW;
    const tandem_quantise_call here = {.x = public_numbers(from),
                                       .from = from,
                                       .rows = rows,
                                       .columns = columns,
                                       .q = expected,
                                       .transposed = by_row ? NULL : expected_transposed,
                                       .scale_mode = scale_mode,
                                       .range = 1.5f,
                                       .rounding = how,
                                       .scale = expected_scale};
    const tandem_cuda_quantise_call there = {.x = public_numbers(from),
                                             .from = from,
                                             .rows = rows,
                                             .columns = columns,
                                             .q = out,
                                             .to = TANDEM_S8,
                                             .transposed = by_row ? NULL : transposed,
                                             .scale_mode = scale_mode,
                                             .range = 1.5f,
                                             .rounding = how,
                                             .scale = scale,
                                             .workspace = by_row ? NULL : workspace};
    assert_int_equal(tandem_kernels_quantise(cpu, &here, NULL), TANDEM_OK);
    assert_done(tandem_cuda_kernels_quantise(&there, NULL, NULL));
    assert_memory_equal(out, expected, (size_t)(rows * columns));
    if (!by_row) assert_memory_equal(transposed, expected_transposed, (size_t)(rows * columns));
    assert_memory_equal(scale, expected_scale, (size_t)(by_row ? rows : 1) * sizeof *scale);
}

static void public_s8_codes_are_the_same(void **state)
{
    static const int64_t sides[][2] = {{64, 48}, {5, 24}, {1, 1037}, {3, 1600}, {128, 128}, {0, 8}, {3, 0}};
    for (size_t k = 0; k < sizeof sides / sizeof *sides; k++)
        for (int scale_mode = TANDEM_SCALE_TENSOR; scale_mode <= TANDEM_SCALE_KNOWN; scale_mode++)
            for (int at_random = 0; at_random < 2; at_random++) {
                const tandem_rounding *const how = at_random ? &rounding : NULL;
                check_public_quantise(TANDEM_F32, sides[k][0], sides[k][1], (tandem_scale_mode)scale_mode,
                                      how);
                check_public_quantise(TANDEM_BF16, sides[k][0], sides[k][1], (tandem_scale_mode)scale_mode,
                                      how);
            }
    /* each row's draws begin at a block of its own */
    check_public_quantise(TANDEM_F32, 7, 13, TANDEM_SCALE_ROW, &rounding);
}

/* Matrices of a batch are turned each for itself; `since` moves the stream on. */
static void batches_and_streams_are_those_of_single_calls(void **state)
{
    enum { BATCH = 3, ROWS = 16, COLUMNS = 32, EACH = ROWS * COLUMNS };
    uint32_t *stream_offset = alloc_public(sizeof *stream_offset);
    const tandem_cuda_quantise_call there = {.x = x,
                                             .batch = BATCH,
                                             .rows = ROWS,
                                             .columns = COLUMNS,
                                             .q = out,
                                             .to = TANDEM_S8,
                                             .transposed = transposed,
                                             .scale_mode = TANDEM_SCALE_KNOWN,
                                             .range = 1,
                                             .rounding = &rounding,
                                             .stream_offset = stream_offset,
                                             .scale = scale,
                                             .workspace = workspace};
    *stream_offset = 40;
    assert_done(tandem_cuda_kernels_quantise(&there, NULL, NULL));
    for (uint32_t b = 0; b < BATCH; b++) {
        tandem_rounding own = rounding;
        own.stream[0] += 40;
        own.block += b * EACH / 8;
        const tandem_quantise_call here = {.x = x + b * EACH,
                                           .rows = ROWS,
                                           .columns = COLUMNS,
                                           .q = expected,
                                           .transposed = expected_transposed,
                                           .scale_mode = TANDEM_SCALE_KNOWN,
                                           .range = 1,
                                           .rounding = &own,
                                           .scale = expected_scale};
        assert_int_equal(tandem_kernels_quantise(cpu, &here, NULL), TANDEM_OK);
        assert_memory_equal((int8_t *)out + b * EACH, expected, EACH);
        assert_memory_equal((int8_t *)transposed + b * EACH, expected_transposed, EACH);
    }
    gpu_free_shared(stream_offset);
}

/* The history's range, found and followed on the card as by the functions of amax_history.h. */
static void a_history_goes_on(void **state)
{
    enum { N = 1003 };
    tandem_amax_history own;
    assert_int_equal(tandem_amax_history_init(history, 3, -1, NULL), TANDEM_OK);
    assert_int_equal(tandem_amax_history_init(&own, 3, -1, NULL), TANDEM_OK);
    for (int k = 0; k < 5; k++)
        for (int reuse_range = 0; reuse_range < 2; reuse_range++) {
            float range = reuse_range ? own.before : tandem_amax_history_range(&own), amax = 0;
            const tandem_quantise_call here = {.x = x + 8 * k,
                                               .rows = 1,
                                               .columns = N - 100 * k,
                                               .q = expected,
                                               .scale_mode =
                                                   range > 0 ? TANDEM_SCALE_KNOWN : TANDEM_SCALE_TENSOR,
                                               .range = range,
                                               .rounding = &rounding,
                                               .scale = expected_scale,
                                               .amax = &amax};
            const tandem_cuda_quantise_call there = {.x = x + 8 * k,
                                                     .rows = 1,
                                                     .columns = N - 100 * k,
                                                     .q = out,
                                                     .to = TANDEM_S8,
                                                     .scale_mode = TANDEM_SCALE_KNOWN,
                                                     .history = history,
                                                     .reuse_range = reuse_range,
                                                     .rounding = &rounding,
                                                     .scale = scale,
                                                     .workspace = workspace};
            assert_int_equal(tandem_kernels_quantise(cpu, &here, NULL), TANDEM_OK);
            if (!reuse_range) assert_int_equal(tandem_amax_history_add(&own, amax, NULL), TANDEM_OK);
            assert_done(tandem_cuda_kernels_quantise(&there, NULL, NULL));
            assert_memory_equal(out, expected, (size_t)here.columns);
            assert_memory_equal(scale, expected_scale, sizeof *scale);
            assert_memory_equal(history, &own, tandem_amax_history_bytes(3));
        }
}

/* Eight-bit floats, by the definition of their types; and back. */
static void eight_bit_floats_are_the_nearest(void **state)
{
    enum { ROWS = 5, COLUMNS = 40 };
    for (int e5m2 = 0; e5m2 < 2; e5m2++)
        for (int by_row = 0; by_row < 2; by_row++) {
            const tandem_dtype code = e5m2 ? TANDEM_E5M2 : TANDEM_E4M3;
            const tandem_scale_mode scale_mode = by_row ? TANDEM_SCALE_ROW : TANDEM_SCALE_TENSOR;
            const tandem_cuda_quantise_call to = {.x = x,
                                                  .rows = ROWS,
                                                  .columns = COLUMNS,
                                                  .q = transposed,
                                                  .to = code,
                                                  .scale_mode = scale_mode,
                                                  .scale = scale,
                                                  .workspace = workspace};
            const tandem_cuda_dequantise_call back = {transposed, code,       ROWS,       COLUMNS,
                                                      out,        TANDEM_F32, scale_mode, scale};
            assert_done(tandem_cuda_kernels_quantise(&to, NULL, NULL));
            assert_done(tandem_cuda_kernels_dequantise(&back, NULL, NULL));
            for (int i = 0; i < ROWS * COLUMNS; i++) {
                const int row = i / COLUMNS, first = by_row ? row * COLUMNS : 0,
                          end = by_row ? first + COLUMNS : ROWS * COLUMNS;
                float amax = 0;
                for (int l = first; l < end; l++) amax = fmaxf(amax, fabsf(x[l]));
                const float scaled = x[i] * ((e5m2 ? 57344 : 448) / amax);
                const uint8_t right = e5m2 ? tandem_e5m2_of(scaled) : tandem_e4m3_of(scaled);
                assert_int_equal(((uint8_t *)transposed)[i], right);
                assert_true(((float *)out)[i] ==
                            (e5m2 ? tandem_f32_of_e5m2(right) : tandem_f32_of_e4m3(right)) *
                                scale[by_row ? row : 0]);
            }
        }
}

/* --- Back, between floats, and after a product ---------------------------------------------------------- */

static void numbers_come_back_the_same(void **state)
{
    enum { ROWS = 9, COLUMNS = 77, N = ROWS * COLUMNS };
    int8_t *const q = transposed;
    for (int i = 0; i < N; i++) q[i] = (int8_t)(i * 37);
    memcpy(scale, x, ROWS * sizeof *scale);
    for (int wide = 0; wide < 2; wide++)
        for (int scale_mode = TANDEM_SCALE_TENSOR; scale_mode <= TANDEM_SCALE_KNOWN; scale_mode++) {
            const tandem_dtype to = wide ? TANDEM_F32 : TANDEM_BF16;
            const tandem_dequantise_call here = {
                q, ROWS, COLUMNS, 0, expected_wide, to, 0, (tandem_scale_mode)scale_mode, scale};
            const tandem_cuda_dequantise_call there = {
                q, TANDEM_S8, ROWS, COLUMNS, out, to, (tandem_scale_mode)scale_mode, scale};
            assert_int_equal(tandem_kernels_dequantise(cpu, &here, NULL), TANDEM_OK);
            assert_done(tandem_cuda_kernels_dequantise(&there, NULL, NULL));
            assert_memory_equal(out, expected_wide, N * (wide ? sizeof(float) : sizeof(uint16_t)));
        }
}

static void public_casts_are_the_same(void **state)
{
    enum { N = 1003 };
    const tandem_cast_call narrow = {x, TANDEM_F32, 1, N, 0, expected_wide, TANDEM_BF16, 0},
                           widen = {half, TANDEM_BF16, 1, N, 0, expected_wide, TANDEM_F32, 0};
    assert_int_equal(tandem_kernels_cast(cpu, &narrow, NULL), TANDEM_OK);
    assert_done(tandem_cuda_kernels_cast(out, TANDEM_BF16, x, TANDEM_F32, N, NULL, NULL));
    assert_memory_equal(out, expected_wide, N * sizeof(uint16_t));
    assert_int_equal(tandem_kernels_cast(cpu, &widen, NULL), TANDEM_OK);
    assert_done(tandem_cuda_kernels_cast(out, TANDEM_F32, half, TANDEM_BF16, N, NULL, NULL));
    assert_memory_equal(out, expected_wide, N * sizeof(float));
    assert_done(tandem_cuda_kernels_cast(out, TANDEM_F16, x, TANDEM_F32, N, NULL, NULL));
    for (int i = 0; i < N; i++) assert_int_equal(((uint16_t *)out)[i], tandem_f16_of(x[i]));
}

/* The product itself is the CPU's: its sums are handed to the card, which gives them their scales. */
static void sums_are_scaled_as_in_the_product(void **state)
{
    enum { M = 12, N = 40, K = 64 };
    static int8_t a[M * K], b[K * N];
    for (int i = 0; i < M * K; i++) a[i] = (int8_t)(i * 31);
    for (int i = 0; i < K * N; i++) b[i] = (int8_t)(i * 77);
    int32_t *sums = alloc_public(M * N * sizeof *sums);
    const size_t bytes = (tandem_kernels_product_workspace(cpu, M, N, K) + 63) / 64 * 64;
    void *own = aligned_alloc(64, bytes + 64);
    assert_non_null(own);
    for (int i = 0; i <= M; i++) scale[i] = fabsf(x[i]) + 0.1f;
    for (int k = 0; k < 16; k++) {
        const int by_row = k & 1, accumulate = k >> 1 & 1, wide = k >> 2 & 1, ragged = k >> 3;
        const tandem_dtype to = wide ? TANDEM_F32 : TANDEM_BF16;
        tandem_product_s8 product = {.m = M,
                                     .n = N - 3 * ragged,
                                     .k = K,
                                     .a = a,
                                     .a_row = K,
                                     .a_column = 1,
                                     .b = b,
                                     .b_row = N,
                                     .b_column = 1,
                                     .c = sums,
                                     .c_type = TANDEM_S32,
                                     .workspace = own};
        assert_int_equal(tandem_kernels_product(cpu, &product, bytes, NULL), TANDEM_OK);
        memcpy(out, public_numbers(to), M * N * sizeof(float));
        memcpy(expected_wide, out, M * N * sizeof(float));
        product.c = expected_wide;
        product.c_type = to;
        product.accumulate = accumulate;
        product.scale = by_row ? scale[M] : scale[0] * scale[M];
        product.row_scale = by_row ? scale : NULL;
        assert_int_equal(tandem_kernels_product(cpu, &product, bytes, NULL), TANDEM_OK);
        const tandem_cuda_sums_call call = {.sums = sums,
                                            .rows = M,
                                            .columns = product.n,
                                            .y = out,
                                            .to = to,
                                            .scale_mode = by_row ? TANDEM_SCALE_ROW : TANDEM_SCALE_TENSOR,
                                            .a_scale = scale,
                                            .b_scale = scale + M,
                                            .accumulate = accumulate};
        assert_done(tandem_cuda_kernels_scale_sums(&call, NULL, NULL));
        assert_memory_equal(out, expected_wide, M * N * sizeof(float));
    }
    free(own);
    gpu_free_shared(sums);
}

int main(void)
{
    /* a launch is done when it returns: its results are looked at at once */
    (void)setenv("CUDA_LAUNCH_BLOCKING", "1", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_largest_magnitude_is_the_same),
        cmocka_unit_test(public_s8_codes_are_the_same),
        cmocka_unit_test(batches_and_streams_are_those_of_single_calls),
        cmocka_unit_test(a_history_goes_on),
        cmocka_unit_test(eight_bit_floats_are_the_nearest),
        cmocka_unit_test(numbers_come_back_the_same),
        cmocka_unit_test(public_casts_are_the_same),
        cmocka_unit_test(sums_are_scaled_as_in_the_product),
    };
    return skip_without_gpu() ? 0 : cmocka_run_group_tests(tests, open_public_arrays, close_public_arrays);
}
