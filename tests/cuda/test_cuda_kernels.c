/* folder: backend */
/* The CUDA kernels' bits against the CPU's: on a card in build/card/ (make test-cuda), as coroutines (simt.h)
 * elsewhere. */
#include "backend/cuda/operator.h"
#include "tests/cuda/gpu.h"
#include "tests/support/tandem_test.h"

enum {
    N = 5003,
};

static const tandem_isa_kernels *cpu(void)
{
    const tandem_isa_kernels *table = tandem_isa_kernels_find("sse41");
    assert_non_null(table);
    return table;
}

static void *alloc_array_cuda_kernels(size_t bytes)
{
    void *memory = gpu_alloc_shared(bytes);
    assert_non_null(memory);
    return memory;
}

static void free_array(void *memory) { gpu_free_shared(memory); }

/* Numbers of all sizes, both signs; some are the ends of int8 and some 0. */
static float kernel_number(uint32_t i)
{
    const uint32_t counter[4] = {i, 7, 0, 0};
    const uint32_t word = tandem_philox(counter, 3).word[0];
    const float x = tandem_philox_uniform(word) * 2 - 1;
    return word % 11 == 0 ? 0 : word % 13 == 0 ? ldexpf(x, -20) : 3 * x;
}

static float *kernel_numbers(size_t n)
{
    float *x = alloc_array_cuda_kernels(n * sizeof *x);
    for (size_t i = 0; i < n; i++) x[i] = kernel_number((uint32_t)i);
    return x;
}

static uint16_t *narrow_numbers(const float *x, size_t n)
{
    uint16_t *y = alloc_array_cuda_kernels(n * sizeof *y);
    cpu()->bf16_from_f32(y, x, n);
    return y;
}

static const tandem_rounding rounding = {12345, {1, 2, 3}, 5};

/* n codes in a row. */
static tandem_cuda_quantised flat_output(void *q, tandem_cuda_code code, size_t n, float *scale)
{
    return (tandem_cuda_quantised){.code = code, .batch = 1, .rows = 1, .columns = n, .q = q, .scale = scale};
}

/* --- Types ---------------------------------------------------------------------------------------------- */

static void ranges_are_the_largest_magnitude(void **state)
{
    float *x = kernel_numbers(N);
    uint16_t *half = narrow_numbers(x, N);
    uint32_t *bits = alloc_array_cuda_kernels(sizeof *bits);
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
    free_array(bits);
    free_array(half);
    free_array(x);
}

static void s8_codes_are_the_same(void **state)
{
    float *x = kernel_numbers(N), *scale = alloc_array_cuda_kernels(sizeof *scale),
          *back = alloc_array_cuda_kernels(N * sizeof *back),
          *right = alloc_array_cuda_kernels(N * sizeof *right);
    int8_t *q = alloc_array_cuda_kernels(N), *expected = alloc_array_cuda_kernels(N);
    uint32_t *bits = alloc_array_cuda_kernels(sizeof *bits);
    for (size_t n = 1; n <= N; n = n * 3 + 1) {
        const float amax = cpu()->amax_f32(x, n);
        assert_int_equal(tandem_cuda_amax(bits, x, TANDEM_CUDA_F32, n, NULL), 0);
        const tandem_cuda_quantised to = flat_output(q, TANDEM_CUDA_S8, n, scale);
        assert_int_equal(tandem_cuda_quantise(&to, x, TANDEM_CUDA_F32, bits, &rounding, NULL, NULL), 0);
        cpu()->quantise_f32(expected, x, n, amax > 0 ? 127 / amax : 0, &rounding);
        assert_memory_equal(q, expected, n);
        const float own = amax / 127;
        assert_memory_equal(scale, &own, sizeof own);
        assert_int_equal(tandem_cuda_quantise(&to, x, TANDEM_CUDA_F32, bits, NULL, NULL, NULL), 0);
        cpu()->quantise_nearest_f32(expected, x, n, amax > 0 ? 127 / amax : 0);
        assert_memory_equal(q, expected, n);
        assert_int_equal(tandem_cuda_dequantise(back, TANDEM_CUDA_F32, q, TANDEM_CUDA_S8, n, scale, NULL), 0);
        cpu()->dequantise_f32(right, expected, n, own);
        assert_memory_equal(back, right, n * sizeof *right);
    }
    free_array(bits);
    free_array(expected);
    free_array(q);
    free_array(right);
    free_array(back);
    free_array(scale);
    free_array(x);
}

static float float_of_code(uint8_t code, tandem_cuda_code type)
{
    return type == TANDEM_CUDA_E4M3 ? tandem_f32_of_e4m3(code) : tandem_f32_of_e5m2(code);
}

/* Types of a byte that round to nearest: of every float type, at every length of the last octet. */
static void codes_are_the_nearest(void **state)
{
    float *x = kernel_numbers(N), *scale = alloc_array_cuda_kernels(sizeof *scale),
          *back = alloc_array_cuda_kernels(N * sizeof *back);
    uint16_t *half = alloc_array_cuda_kernels(N * sizeof *half);
    uint8_t *q = alloc_array_cuda_kernels(N);
    uint32_t *bits = alloc_array_cuda_kernels(sizeof *bits);
    x[1] = 3, x[2] = -3, x[3] = -0.0f;
    for (int type = TANDEM_CUDA_E4M3; type <= TANDEM_CUDA_E5M2; type++)
        for (int from = TANDEM_CUDA_F32; from <= TANDEM_CUDA_F16; from++)
            for (size_t n = 1; n <= N; n = n * 2 + 1) {
                const tandem_cuda_code code = (tandem_cuda_code)type;
                const tandem_cuda_float own = (tandem_cuda_float)from;
                if (own != TANDEM_CUDA_F32)
                    assert_int_equal(tandem_cuda_convert(half, own, x, TANDEM_CUDA_F32, n, NULL), 0);
                const void *const in = own == TANDEM_CUDA_F32 ? (void *)x : half;
                float amax = 0;
                for (size_t i = 0; i < n; i++) {
                    back[i] = own == TANDEM_CUDA_F32    ? x[i]
                              : own == TANDEM_CUDA_BF16 ? tandem_f32_of_bf16(half[i])
                                                        : tandem_f32_of_f16(half[i]);
                    amax = fmaxf(amax, fabsf(back[i]));
                }
                const float max_value = code == TANDEM_CUDA_E4M3 ? 448 : 57344;
                assert_int_equal(tandem_cuda_amax(bits, in, own, n, NULL), 0);
                assert_memory_equal(bits, &amax, sizeof amax);
                const tandem_cuda_quantised to = flat_output(q, code, n, scale);
                assert_int_equal(tandem_cuda_quantise(&to, in, own, bits, NULL, NULL, NULL), 0);
                assert_true(*scale == amax / max_value);
                for (size_t i = 0; i < n; i++) {
                    const float scaled = back[i] * (max_value / amax);
                    assert_int_equal(q[i], code == TANDEM_CUDA_E4M3 ? tandem_e4m3_of(scaled)
                                                                    : tandem_e5m2_of(scaled));
                }
                assert_int_equal(tandem_cuda_dequantise(back, TANDEM_CUDA_F32, q, code, n, scale, NULL), 0);
                for (size_t i = 0; i < n; i++) assert_true(back[i] == float_of_code(q[i], code) * *scale);
            }
    free_array(bits);
    free_array(q);
    free_array(half);
    free_array(back);
    free_array(scale);
    free_array(x);
}

/* Codes in both orders, each between bytes that nobody may touch. */
typedef struct both_orders {
    tandem_cuda_quantised to;
    size_t n;
    uint8_t *q, *transposed_copy;
} both_orders;

enum { EDGE = 64, EDGE_BYTE = 0x3C };

static both_orders open_both(tandem_cuda_code code, size_t batch, size_t rows, size_t columns)
{
    const size_t n = batch * rows * columns;
    both_orders b = {.n = n,
                     .q = alloc_array_cuda_kernels(n + 2 * EDGE),
                     .transposed_copy = alloc_array_cuda_kernels(n + 2 * EDGE)};
    b.to = (tandem_cuda_quantised){code,
                                   batch,
                                   rows,
                                   columns,
                                   b.q + EDGE,
                                   b.transposed_copy + EDGE,
                                   alloc_array_cuda_kernels(sizeof(float))};
    return b;
}

static void wipe_both(const both_orders *b)
{
    memset(b->q, EDGE_BYTE, b->n + 2 * EDGE);
    memset(b->transposed_copy, EDGE_BYTE, b->n + 2 * EDGE);
    *b->to.scale = -1;
}

static void close_both(both_orders *b)
{
    free_array(b->to.scale);
    free_array(b->transposed_copy);
    free_array(b->q);
}

/* The row-wise codes are `expected`, the others their transposes, and nothing lies beside them. */
static void check_both(const both_orders *b, const uint8_t *expected)
{
    const size_t rows = b->to.rows, columns = b->to.columns;
    assert_memory_equal(b->to.q, expected, b->n);
    for (size_t i = 0; i < b->n; i++) {
        const size_t c = i % columns, r = i / columns % rows, matrix = i / columns / rows;
        assert_int_equal(b->transposed_copy[EDGE + (matrix * columns + c) * rows + r], expected[i]);
    }
    for (size_t i = 0; i < EDGE; i++) {
        assert_true(b->q[i] == EDGE_BYTE && b->q[EDGE + b->n + i] == EDGE_BYTE);
        assert_true(b->transposed_copy[i] == EDGE_BYTE && b->transposed_copy[EDGE + b->n + i] == EDGE_BYTE);
    }
}

/* What is written in both orders is what is written in one, with the range of now and with that of a history,
 * which goes on alike. */
static void check_both_orders(size_t batch, size_t rows, size_t columns, const void *x,
                              tandem_cuda_float type, tandem_cuda_code code, float first_amax)
{
    /* of s8: to nearest, too */
    const tandem_rounding *const how = type == TANDEM_CUDA_F16 ? NULL : &rounding;
    both_orders b = open_both(code, batch, rows, columns);
    uint8_t *expected = alloc_array_cuda_kernels(b.n);
    float *scale = alloc_array_cuda_kernels(sizeof *scale);
    uint32_t *words = alloc_array_cuda_kernels(2 * sizeof *words);
    tandem_amax_history *history = alloc_array_cuda_kernels(sizeof *history),
                        *own = alloc_array_cuda_kernels(sizeof *own);
    const tandem_cuda_quantised flat = flat_output(expected, code, b.n, scale);
    wipe_both(&b);
    assert_int_equal(tandem_cuda_amax(words, x, type, b.n, NULL), 0);
    assert_int_equal(tandem_cuda_quantise(&flat, x, type, words, how, NULL, NULL), 0);
    assert_int_equal(tandem_cuda_quantise(&b.to, x, type, words, how, NULL, NULL), 0);
    check_both(&b, expected);
    assert_memory_equal(b.to.scale, scale, sizeof *scale);
    if (code == TANDEM_CUDA_S8 && type == TANDEM_CUDA_F32)
        cpu()->quantise_f32((int8_t *)expected, x, b.n, 127 / tandem_float_of(*words), &rounding);
    if (code == TANDEM_CUDA_S8 && type == TANDEM_CUDA_BF16)
        cpu()->quantise_bf16((int8_t *)expected, x, b.n, 127 / tandem_float_of(*words), &rounding);
    assert_memory_equal(b.to.q, expected, b.n);
    assert_int_equal(tandem_amax_history_init(history, 4, 0, NULL), TANDEM_OK);
    assert_int_equal(tandem_amax_history_init(own, 4, 0, NULL), TANDEM_OK);
    assert_int_equal(tandem_cuda_clear_words(words, 2, NULL), 0);
    const tandem_cuda_delayed_cast in_order = {
        .to = flat, .history = history, .words = words, .rounding = how};
    tandem_cuda_delayed_cast in_both = {.to = b.to, .history = own, .words = words, .rounding = how};
    for (int k = 0; k < 2; k++) { /* without a range, then with the first one's */
        wipe_both(&b);
        in_both.may_lack_range = columns % 32 == 0;
        assert_int_equal(tandem_cuda_quantise_delayed(&in_order, x, type, NULL), 0);
        assert_int_equal(tandem_cuda_quantise_delayed(&in_both, x, type, NULL), 0);
        check_both(&b, expected);
        assert_memory_equal(b.to.scale, scale, sizeof *scale);
        assert_memory_equal(own, history, tandem_amax_history_bytes(4));
        history->amax[0] = own->amax[0] = first_amax;
    }
    free_array(own);
    free_array(history);
    free_array(words);
    free_array(scale);
    free_array(expected);
    close_both(&b);
}

/* Sides that are sixteens by tiles, with whole and with broken ones; others by two passes. */
static void codes_are_written_in_both_orders(void **state)
{
    static const size_t shapes[][3] = {{1, 16, 16}, {2, 144, 272}, {1, 128, 128}, {3, 48, 16},
                                       {3, 40, 24}, {2, 35, 17},   {1, 1, 40},    {1, 33, 1}};
    float *x = kernel_numbers((size_t)2 * 144 * 272);
    uint16_t *half = alloc_array_cuda_kernels((size_t)2 * 144 * 272 * sizeof *half);
    for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++)
        for (int type = TANDEM_CUDA_F32; type <= TANDEM_CUDA_F16; type++)
            for (int code = TANDEM_CUDA_S8; code <= TANDEM_CUDA_E5M2; code++) {
                const size_t n = shapes[k][0] * shapes[k][1] * shapes[k][2];
                const tandem_cuda_float from = (tandem_cuda_float)type;
                if (from != TANDEM_CUDA_F32)
                    assert_int_equal(tandem_cuda_convert(half, from, x, TANDEM_CUDA_F32, n, NULL), 0);
                check_both_orders(shapes[k][0], shapes[k][1], shapes[k][2],
                                  from == TANDEM_CUDA_F32 ? (void *)x : half, from, (tandem_cuda_code)code,
                                  2.5f);
            }
    free_array(half);
    free_array(x);
}

/* Rows of all kinds; one is 0, and one too small to have a scale. */
static float *rows_of_numbers(size_t rows, size_t columns)
{
    float *x = kernel_numbers(rows * columns);
    for (size_t c = 0; c < columns && rows > 2; c++) x[columns + c] = 0, x[2 * columns + c] = 1e-40f;
    for (size_t c = 0; c < columns && rows > 3; c++) x[3 * columns + c] *= 100;
    return x;
}

/* Codes, scales and numbers back are the CPU's. */
static void check_rows_of_s8(size_t rows, size_t columns, const void *x, tandem_cuda_float type,
                             const tandem_rounding *how)
{
    const size_t n = rows * columns;
    const tandem_dtype dtype = type == TANDEM_CUDA_F32 ? TANDEM_F32 : TANDEM_BF16;
    int8_t *q = alloc_array_cuda_kernels(n), *expected = alloc_array_cuda_kernels(n);
    float *scale = alloc_array_cuda_kernels(rows * sizeof *scale),
          *right = alloc_array_cuda_kernels(rows * sizeof *right);
    float *back = alloc_array_cuda_kernels(n * sizeof *back),
          *right_back = alloc_array_cuda_kernels(n * sizeof *right_back);
    const tandem_quantise_call call = {.x = x,
                                       .from = dtype,
                                       .rows = (int64_t)rows,
                                       .columns = (int64_t)columns,
                                       .q = expected,
                                       .scale_mode = TANDEM_SCALE_ROW,
                                       .rounding = how,
                                       .scale = right};
    const tandem_dequantise_call way_back = {.q = expected,
                                             .rows = (int64_t)rows,
                                             .columns = (int64_t)columns,
                                             .x = right_back,
                                             .to = dtype,
                                             .scale_mode = TANDEM_SCALE_ROW,
                                             .scale = right};
    assert_int_equal(tandem_kernels_quantise(cpu(), &call, NULL), TANDEM_OK);
    assert_int_equal(
        tandem_cuda_quantise_rows(q, TANDEM_CUDA_S8, scale, x, type, rows, columns, how, NULL, NULL), 0);
    assert_memory_equal(q, expected, n);
    assert_memory_equal(scale, right, rows * sizeof *scale);
    assert_int_equal(tandem_kernels_dequantise(cpu(), &way_back, NULL), TANDEM_OK);
    assert_int_equal(tandem_cuda_dequantise_rows(back, type, q, TANDEM_CUDA_S8, rows, columns, scale, NULL),
                     0);
    assert_memory_equal(back, right_back, n * (type == TANDEM_CUDA_F32 ? sizeof(float) : sizeof(uint16_t)));
    free_array(right_back);
    free_array(back);
    free_array(right);
    free_array(scale);
    free_array(expected);
    free_array(q);
}

/* Of eight-bit floats each row is what a tensor would be. */
static void check_rows_of_codes(size_t rows, size_t columns, const float *x, tandem_cuda_code code)
{
    const size_t n = rows * columns;
    const float max_value = code == TANDEM_CUDA_E4M3 ? 448 : 57344;
    uint8_t *q = alloc_array_cuda_kernels(n);
    float *scale = alloc_array_cuda_kernels(rows * sizeof *scale),
          *back = alloc_array_cuda_kernels(n * sizeof *back);
    assert_int_equal(
        tandem_cuda_quantise_rows(q, code, scale, x, TANDEM_CUDA_F32, rows, columns, NULL, NULL, NULL), 0);
    assert_int_equal(tandem_cuda_dequantise_rows(back, TANDEM_CUDA_F32, q, code, rows, columns, scale, NULL),
                     0);
    for (size_t r = 0; r < rows; r++) {
        float amax = 0;
        for (size_t c = 0; c < columns; c++) amax = fmaxf(amax, fabsf(x[r * columns + c]));
        const tandem_quant_scale own = tandem_quant_scale_of(amax, max_value);
        assert_true(scale[r] == own.scale);
        for (size_t c = 0; c < columns; c++) {
            const size_t i = r * columns + c;
            const float scaled = x[i] * own.inverse;
            assert_int_equal(q[i],
                             code == TANDEM_CUDA_E4M3 ? tandem_e4m3_of(scaled) : tandem_e5m2_of(scaled));
            assert_true(back[i] == float_of_code(q[i], code) * scale[r]);
        }
    }
    free_array(back);
    free_array(scale);
    free_array(q);
}

/* By a warp, by several, by a block, by a block in parts; of whole octets and of others. */
static void rows_have_scales_of_their_own(void **state)
{
    static const size_t side[][2] = {{9, 8},    {20, 24},  {3, 1},    {5, 13},   {7, 1024},
                                     {3, 1100}, {5, 4096}, {2, 5001}, {3, 8192}, {2, 16648}};
    for (size_t k = 0; k < sizeof side / sizeof *side; k++) {
        const size_t rows = side[k][0], columns = side[k][1];
        float *x = rows_of_numbers(rows, columns);
        uint16_t *half = narrow_numbers(x, rows * columns);
        for (int at_random = 0; at_random < 2; at_random++) {
            check_rows_of_s8(rows, columns, x, TANDEM_CUDA_F32, at_random ? &rounding : NULL);
            check_rows_of_s8(rows, columns, half, TANDEM_CUDA_BF16, at_random ? &rounding : NULL);
        }
        check_rows_of_codes(rows, columns, x, TANDEM_CUDA_E4M3);
        check_rows_of_codes(rows, columns, x, TANDEM_CUDA_E5M2);
        free_array(half);
        free_array(x);
    }
}

/* A row that is not finite spoils its own scale alone; nothing lies beside the codes. */
static void a_row_that_is_not_finite_is_alone(void **state)
{
    static const size_t widths[] = {24, 13};
    for (size_t k = 0; k < 2; k++) {
        const size_t columns = widths[k], n = 3 * columns;
        float *x = kernel_numbers(n), *scale = alloc_array_cuda_kernels(3 * sizeof *scale);
        uint8_t *q = alloc_array_cuda_kernels(n + 2 * EDGE);
        memset(q, EDGE_BYTE, n + 2 * EDGE);
        x[2 * columns - 1] = NAN;
        assert_int_equal(tandem_cuda_quantise_rows(q + EDGE, TANDEM_CUDA_S8, scale, x, TANDEM_CUDA_F32, 3,
                                                   columns, &rounding, NULL, NULL),
                         0);
        assert_true(scale[0] > 0 && isnan(scale[1]) && scale[2] > 0);
        for (size_t i = 0; i < EDGE; i++) assert_true(q[i] == EDGE_BYTE && q[EDGE + n + i] == EDGE_BYTE);
        free_array(q);
        free_array(scale);
        free_array(x);
    }
}

/* A range that is no number gives none: the gradients report the step. */
static void a_range_that_is_none_spoils_the_scale(void **state)
{
    float *x = kernel_numbers(24), *scale = alloc_array_cuda_kernels(sizeof *scale);
    uint8_t *q = alloc_array_cuda_kernels(24);
    uint32_t *bits = alloc_array_cuda_kernels(sizeof *bits);
    x[20] = INFINITY;
    for (int type = TANDEM_CUDA_S8; type <= TANDEM_CUDA_E5M2; type++) {
        assert_int_equal(tandem_cuda_amax(bits, x, TANDEM_CUDA_F32, 24, NULL), 0);
        const tandem_cuda_quantised to = flat_output(q, (tandem_cuda_code)type, 24, scale);
        assert_int_equal(tandem_cuda_quantise(&to, x, TANDEM_CUDA_F32, bits, &rounding, NULL, NULL), 0);
        assert_true(isnan(*scale));
    }
    free_array(bits);
    free_array(q);
    free_array(scale);
    free_array(x);
}

/* Sides that are sixteens go by wide tiles, others by small ones; with whole and with broken tiles. */
static void bytes_are_transposed_and_padded(void **state)
{
    static const struct {
        size_t batch, rows, columns, x_rows, x_columns;
        int transposed;
    } cases[] = {{1, 16, 16, 16, 16, 1}, {2, 144, 272, 144, 272, 1}, {1, 128, 128, 128, 128, 1},
                 {3, 40, 24, 40, 24, 1}, {2, 36, 20, 35, 17, 1},     {1, 48, 32, 47, 32, 1},
                 {2, 36, 20, 35, 17, 0}, {1, 16, 32, 16, 32, 0}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        const size_t rows = cases[k].rows, columns = cases[k].columns, x_rows = cases[k].x_rows,
                     x_columns = cases[k].x_columns;
        uint8_t *x = alloc_array_cuda_kernels(cases[k].batch * x_rows * x_columns),
                *y = alloc_array_cuda_kernels(cases[k].batch * rows * columns);
        for (size_t i = 0; i < cases[k].batch * x_rows * x_columns; i++) x[i] = (uint8_t)(i * 167 + i / 251);
        assert_int_equal(tandem_cuda_pad_bytes(y, x, cases[k].batch, rows, columns, x_rows, x_columns,
                                               cases[k].transposed, NULL),
                         0);
        for (size_t i = 0; i < cases[k].batch * rows * columns; i++) {
            const size_t c = i % columns, r = i / columns % rows, b = i / columns / rows;
            const size_t at =
                b * x_rows * x_columns + (cases[k].transposed ? c * x_rows + r : r * x_columns + c);
            assert_int_equal(y[i], r < x_rows && c < x_columns ? x[at] : 0);
        }
        free_array(y);
        free_array(x);
    }
}

/* By words of 16 bytes, by elements, and as a matrix. */
static void tensors_are_permuted(void **state)
{
    static const tandem_cuda_permutation cases[] = {
        {{2, 3, 5, 16}, {240, 16, 48, 1}}, /* heads before places */
        {{2, 3, 5, 7}, {105, 7, 21, 1}},   {{1, 1, 67, 70}, {0, 0, 1, 67}},
        {{2, 3, 7, 5}, {105, 35, 1, 7}},   {{2, 2, 3, 8}, {48, 24, 8, 1}},
    };
    uint32_t *x = alloc_array_cuda_kernels(N * sizeof *x), *y = alloc_array_cuda_kernels(N * sizeof *y);
    uint16_t *const half = (uint16_t *)x, *const half_out = (uint16_t *)y;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++)
        for (int type = TANDEM_CUDA_F32; type <= TANDEM_CUDA_F16; type++) {
            const size_t *const dim = cases[k].dim, *const stride = cases[k].stride,
                                n = dim[0] * dim[1] * dim[2] * dim[3];
            for (size_t i = 0; i < n; i++)
                if (type == TANDEM_CUDA_F32)
                    x[i] = (uint32_t)i;
                else
                    half[i] = (uint16_t)i;
            assert_int_equal(tandem_cuda_transpose(y, x, (tandem_cuda_float)type, &cases[k], NULL), 0);
            for (size_t i = 0; i < n; i++) {
                const size_t at = i % dim[3] * stride[3] + i / dim[3] % dim[2] * stride[2] +
                                  i / dim[3] / dim[2] % dim[1] * stride[1] +
                                  i / dim[3] / dim[2] / dim[1] * stride[0];
                assert_int_equal(type == TANDEM_CUDA_F32 ? y[i] : half_out[i], at);
            }
        }
    free_array(y);
    free_array(x);
}

/* What integers become after a product, and biases: where rows are octets and where they are not. */
static void rows_of_any_width_are_scaled_and_shifted(void **state)
{
    static const size_t widths[] = {8, 40, 13, 1};
    float *own = kernel_numbers(40), *y = alloc_array_cuda_kernels(N * sizeof *y), *x = kernel_numbers(N),
          *scale = alloc_array_cuda_kernels(2 * sizeof *scale);
    int32_t *sum = alloc_array_cuda_kernels(N * sizeof *sum);
    scale[0] = 0.37f, scale[1] = 1.21f;
    for (size_t i = 0; i < N; i++) sum[i] = (int32_t)(i * 7919) - 20000000;
    for (size_t k = 0; k < 4; k++)
        for (size_t beyond = 0; beyond < 2; beyond++) {
            const size_t columns = widths[k], rows = 37, stride = columns + beyond;
            assert_int_equal(tandem_cuda_scale_s32(y, TANDEM_CUDA_F32, sum, 1, rows, columns, rows, stride,
                                                   scale, scale + 1, 0, NULL),
                             0);
            for (size_t i = 0; i < rows * columns; i++)
                assert_true(y[i] == (float)sum[i / columns * stride + i % columns] * (0.37f * 1.21f));
            for (size_t i = 0; i < N; i++) y[i] = x[i];
            assert_int_equal(tandem_cuda_scale_s32(y, TANDEM_CUDA_F32, sum, 1, rows, columns, rows, stride,
                                                   scale, scale + 1, 1, NULL),
                             0);
            for (size_t i = 0; i < rows * columns; i++)
                assert_true(y[i] == x[i] + (float)sum[i / columns * stride + i % columns] * (0.37f * 1.21f));
            assert_int_equal(
                tandem_cuda_bias(y, x, TANDEM_CUDA_F32, own, rows * columns, columns, columns, NULL), 0);
            for (size_t i = 0; i < rows * columns; i++) assert_true(y[i] == x[i] + own[i % columns]);
        }
    free_array(sum);
    free_array(scale);
    free_array(x);
    free_array(y);
    free_array(own);
}

static void float_casts_are_the_same(void **state)
{
    float *x = kernel_numbers(N), *wide = alloc_array_cuda_kernels(N * sizeof *wide),
          *right = alloc_array_cuda_kernels(N * sizeof *right);
    x[1] = NAN, x[2] = INFINITY, x[3] = -0.0f, x[4] = 0x1.01p0f, x[5] = 0x1.03p0f; /* ties to even */
    uint16_t *expected = narrow_numbers(x, N), *half = alloc_array_cuda_kernels(N * sizeof *half);
    assert_int_equal(tandem_cuda_convert(half, TANDEM_CUDA_BF16, x, TANDEM_CUDA_F32, N, NULL), 0);
    assert_memory_equal(half, expected, N * sizeof *half);
    assert_int_equal(tandem_cuda_convert(wide, TANDEM_CUDA_F32, half, TANDEM_CUDA_BF16, N, NULL), 0);
    cpu()->f32_from_bf16(right, expected, N);
    assert_memory_equal(wide, right, N * sizeof *wide);
    assert_int_equal(tandem_cuda_convert(half, TANDEM_CUDA_F16, x, TANDEM_CUDA_F32, N, NULL), 0);
    for (size_t i = 0; i < N; i++) assert_int_equal(half[i], tandem_f16_of(x[i]));
    assert_int_equal(tandem_cuda_convert(wide, TANDEM_CUDA_F32, half, TANDEM_CUDA_F16, N, NULL), 0);
    for (size_t i = 0; i < N; i++) { /* a GPU's instruction has one NaN */
        const float value = tandem_f32_of_f16(half[i]);
        assert_true(isnan(value) ? isnan(wide[i]) : tandem_bits_of(wide[i]) == tandem_bits_of(value));
    }
    free_array(half);
    free_array(expected);
    free_array(right);
    free_array(wide);
    free_array(x);
}

/* --- What changes from step to step is read on the card ------------------------------------------------- */

static void draws_are_those_of_the_step(void **state)
{
    float *x = kernel_numbers(N), *y = alloc_array_cuda_kernels(N * sizeof *y),
          *right = alloc_array_cuda_kernels(N * sizeof *right),
          *scale = alloc_array_cuda_kernels(sizeof *scale);
    int8_t *q = alloc_array_cuda_kernels(N), *expected = alloc_array_cuda_kernels(N);
    uint32_t *bits = alloc_array_cuda_kernels(sizeof *bits),
             *stream_offset = alloc_array_cuda_kernels(sizeof *stream_offset);
    const tandem_dropout mask = {.seed = 7, .stream = {11, 2, 6}, .threshold = 1 << 14, .scale = 4.0f / 3},
                         before = {.seed = 7, .stream = {3, 2, 6}, .threshold = 1 << 14, .scale = 4.0f / 3};
    tandem_rounding after = rounding;
    *stream_offset = 8;
    after.stream[0] += *stream_offset;
    assert_int_equal(tandem_cuda_amax(bits, x, TANDEM_CUDA_F32, N, NULL), 0);
    const tandem_cuda_quantised to = flat_output(q, TANDEM_CUDA_S8, N, scale);
    assert_int_equal(tandem_cuda_quantise(&to, x, TANDEM_CUDA_F32, bits, &rounding, stream_offset, NULL), 0);
    cpu()->quantise_f32(expected, x, N, 127 / cpu()->amax_f32(x, N), &after);
    assert_memory_equal(q, expected, N);
    assert_int_equal(tandem_cuda_dropout(y, x, TANDEM_CUDA_F32, N, &before, stream_offset, NULL), 0);
    cpu()->dropout_f32(right, x, N, &mask);
    assert_memory_equal(y, right, N * sizeof *y);
    free_array(stream_offset);
    free_array(bits);
    free_array(expected);
    free_array(q);
    free_array(scale);
    free_array(right);
    free_array(y);
    free_array(x);
}

/* Of any length, and numbers that go round at 2^32. */
static void noise_is_the_cpu_s(void **state)
{
    enum { BATCH = 3 };
    static const size_t lengths[] = {1, 3, 4, 1000, 4099, 12288};
    static const uint32_t firsts[] = {5, UINT32_MAX - 1};
    uint32_t *index = alloc_array_cuda_kernels(sizeof *index);
    *index = 7;
    for (size_t k = 0; k < sizeof lengths / sizeof *lengths; k++)
        for (int f = 0; f < 2; f++) {
            const size_t n = lengths[k];
            float *x = alloc_array_cuda_kernels(BATCH * n * sizeof *x),
                  *right = alloc_array_cuda_kernels(n * sizeof *right);
            assert_int_equal(tandem_cuda_noise(x, BATCH, n, 99, firsts[f], 12, index, NULL), 0);
            for (uint32_t b = 0; b < BATCH; b++) {
                cpu()->noise_f32(right, n, 99,
                                 (const uint32_t[3]){firsts[f] + 7 * 12 + b, 0, TANDEM_RNG_SHUFFLE});
                assert_memory_equal(x + b * n, right, n * sizeof *x);
            }
            free_array(right);
            free_array(x);
        }
    free_array(index);
}

static void a_loss_is_scaled_first(void **state)
{
    enum { ROWS = 5, CLASSES = 7, ALL = ROWS * CLASSES };
    float *x = kernel_numbers(ALL), *saved = kernel_numbers(2 * ROWS),
          *a = alloc_array_cuda_kernels(ALL * sizeof *a), *b = alloc_array_cuda_kernels(ALL * sizeof *b),
          *factor = alloc_array_cuda_kernels(sizeof *factor);
    int32_t *label = alloc_array_cuda_kernels(ROWS * sizeof *label);
    for (int r = 0; r < ROWS; r++) label[r] = r - 1;
    const float weight = 0.123f;
    *factor = 1000.1f;
    for (int r = 0; r < ROWS; r++) saved[r] = 3, saved[ROWS + r] = 7;
    assert_int_equal(tandem_cuda_cross_entropy_backward(a, x, TANDEM_CUDA_F32, saved, label, ROWS, CLASSES,
                                                        CLASSES, weight, factor, 0.1f, NULL),
                     0);
    assert_int_equal(tandem_cuda_cross_entropy_backward(b, x, TANDEM_CUDA_F32, saved, label, ROWS, CLASSES,
                                                        CLASSES, weight * *factor, NULL, 0.1f, NULL),
                     0);
    assert_memory_equal(a, b, ALL * sizeof *a);
    free_array(label);
    free_array(factor);
    free_array(b);
    free_array(a);
    free_array(saved);
    free_array(x);
}

/* More places than a block looks through at once: few rows of the table have many, in order; one has none. */
static void rows_of_a_table_add_up_in_order(void **state)
{
    enum { PLACES = 9001, WIDTH = 3, ROWS = 6 };
    float *g = kernel_numbers((size_t)PLACES * WIDTH),
          *sum = alloc_array_cuda_kernels(ROWS * WIDTH * sizeof *sum);
    float expected[ROWS * WIDTH] = {0};
    int32_t *token = alloc_array_cuda_kernels(PLACES * sizeof *token);
    for (int i = 0; i < PLACES; i++) token[i] = i % 4096 == 77 ? 5 : i * 7 / 3 % 4;
    for (int i = 0; i < PLACES * WIDTH; i++) expected[token[i / WIDTH] * WIDTH + i % WIDTH] += g[i];
    assert_int_equal(
        tandem_cuda_embedding_gradient(sum, token, g, TANDEM_CUDA_F32, PLACES, ROWS, WIDTH, 0, NULL), 0);
    assert_memory_equal(sum, expected, sizeof expected);
    free_array(token);
    free_array(sum);
    free_array(g);
}

/* --- Norms and pools ------------------------------------------------------------------------------------ */

static void assert_near_reference(const float *y, const double *expected, size_t n)
{
    for (size_t i = 0; i < n; i++)
        assert_true(fabs((double)y[i] - expected[i]) <= 2e-5 * (1 + fabs(expected[i])));
}

static uint32_t *new_tickets(void)
{
    uint32_t *tickets = alloc_array_cuda_kernels(TANDEM_CUDA_TICKETS * sizeof *tickets);
    memset(tickets, 0, TANDEM_CUDA_TICKETS * sizeof *tickets);
    return tickets;
}

/* Each launch leaves them as it found them. */
static void end_tickets(uint32_t *tickets)
{
    for (size_t i = 0; i < TANDEM_CUDA_TICKETS; i++) assert_int_equal(tickets[i], 0);
    free_array(tickets);
}

typedef struct norm_case {
    size_t rows, columns;
    /* own: scale, shift, mean, variance, their gradients */
    float *x, *residual, *g, *y, *gx, *own, *workspace;
    uint32_t *tickets;
} norm_case;

static norm_case batchnorm_case(size_t rows, size_t columns)
{
    const size_t n = rows * columns;
    norm_case c = {rows,
                   columns,
                   kernel_numbers(n),
                   kernel_numbers(n),
                   kernel_numbers(n),
                   kernel_numbers(n),
                   kernel_numbers(n),
                   kernel_numbers(6 * columns),
                   NULL,
                   NULL};
    for (size_t i = 0; i < n; i++)
        c.residual[i] = kernel_number((uint32_t)i + 77), c.g[i] = kernel_number((uint32_t)i + 99);
    c.workspace = alloc_array_cuda_kernels(tandem_cuda_norm_workspace(rows, columns));
    c.tickets = new_tickets();
    return c;
}

static void end_norm(const norm_case *c)
{
    end_tickets(c->tickets);
    free_array(c->workspace);
    free_array(c->own);
    free_array(c->gx);
    free_array(c->y);
    free_array(c->g);
    free_array(c->residual);
    free_array(c->x);
}

/* In double: y of the norm, its sum with a residual and a rectifier; then all gradients. */
static void check_batchnorm_case(const norm_case *c)
{
    const size_t rows = c->rows, columns = c->columns, n = rows * columns;
    const float *scale = c->own, *shift = scale + columns;
    float *mean = c->own + 2 * columns, *variance = mean + columns, *of_scale = variance + columns;
    const tandem_cuda_batchnorm b = {rows, columns, scale, shift, 1e-5f, 1, c->residual};
    const tandem_cuda_batchnorm_gradients out = {c->gx,           c->residual, TANDEM_CUDA_F32,
                                                 TANDEM_CUDA_F32, of_scale,    of_scale + columns};
    double *expected = calloc(n, sizeof *expected);
    assert_non_null(expected);
    assert_int_equal(tandem_cuda_batchnorm_forward(c->y, c->x, TANDEM_CUDA_F32, &b, mean, variance,
                                                   c->workspace, c->tickets, NULL),
                     0);
    for (size_t k = 0; k < columns; k++) {
        double sum = 0, square = 0;
        for (size_t r = 0; r < rows; r++) sum += (double)c->x[r * columns + k] / (double)rows;
        for (size_t r = 0; r < rows; r++)
            square += pow((double)c->x[r * columns + k] - sum, 2) / (double)rows;
        for (size_t i = k; i < n; i += columns)
            expected[i] = fmax(((double)c->x[i] - sum) / sqrt(square + 1e-5) * (double)scale[k] +
                                   (double)shift[k] + (double)c->residual[i],
                               0);
    }
    assert_near_reference(c->y, expected, n);
    assert_int_equal(tandem_cuda_batchnorm_add_backward(&out, c->g, c->x, c->y, TANDEM_CUDA_F32, &b, mean,
                                                        variance, c->workspace, c->tickets, NULL),
                     0);
    for (size_t i = 0; i < n; i++) assert_true(c->residual[i] == (c->y[i] > 0 ? c->g[i] : 0));
    for (size_t k = 0; k < columns; k++) {
        const double inverse = 1 / sqrt((double)variance[k] + 1e-5), centre = (double)mean[k];
        double sum = 0, along = 0;
        for (size_t i = k; i < n; i += columns) {
            sum += (double)c->residual[i];
            along += (double)c->residual[i] * ((double)c->x[i] - centre) * inverse;
        }
        assert_true(fabs((double)of_scale[k] - along) <= 1e-4 * sqrt((double)rows));
        assert_true(fabs((double)of_scale[columns + k] - sum) <= 1e-4 * sqrt((double)rows));
        for (size_t i = k; i < n; i += columns)
            expected[i] = (double)scale[k] * inverse *
                          ((double)c->residual[i] -
                           (sum + ((double)c->x[i] - centre) * inverse * along) / (double)rows);
    }
    assert_near_reference(c->gx, expected, n);
    free(expected);
}

/* Of several parts, whose blocks come in another order the second time. */
static void column_sums_have_the_same_bits_in_any_order(void **state)
{
    enum { ROWS = 1300, COLUMNS = 70 };
    float *g = kernel_numbers(ROWS * COLUMNS), *sum = kernel_numbers(2 * COLUMNS), *again = sum + COLUMNS;
    void *workspace = alloc_array_cuda_kernels(tandem_cuda_column_sum_workspace(ROWS, COLUMNS));
    uint32_t *tickets = new_tickets();
    for (int k = 0; k < 2; k++)
        assert_int_equal(tandem_cuda_column_sum(k ? again : sum, g, TANDEM_CUDA_F32, ROWS, COLUMNS, COLUMNS,
                                                workspace, tickets, NULL),
                         0);
    for (size_t c = 0; c < COLUMNS; c++) {
        double expected = 0;
        for (size_t r = 0; r < ROWS; r++) expected += (double)g[r * COLUMNS + c];
        assert_true(fabs((double)sum[c] - expected) <= 1e-4 * sqrt(ROWS));
        assert_true(sum[c] == again[c]);
    }
    end_tickets(tickets);
    free_array(workspace);
    free_array(sum);
    free_array(g);
}

/* A mean of 10,000 deviations: squares of the numbers themselves would leave no digit of the variance. */
static void variances_do_not_depend_on_the_mean(void **state)
{
    enum { ROWS = 700, COLUMNS = 3 };
    static const float one[COLUMNS] = {1, 1, 1}, none[COLUMNS] = {0};
    const tandem_cuda_batchnorm b = {ROWS, COLUMNS, one, none, 0, 0, NULL};
    float *x = kernel_numbers(ROWS * COLUMNS), *y = kernel_numbers(ROWS * COLUMNS);
    float *mean = kernel_numbers(2 * COLUMNS), *variance = mean + COLUMNS;
    void *workspace = alloc_array_cuda_kernels(tandem_cuda_norm_workspace(ROWS, COLUMNS));
    uint32_t *tickets = new_tickets();
    for (size_t i = 0; i < ROWS * COLUMNS; i++) x[i] = 10000 + (float)(i / COLUMNS % 5) - 2;
    assert_int_equal(
        tandem_cuda_batchnorm_forward(y, x, TANDEM_CUDA_F32, &b, mean, variance, workspace, tickets, NULL),
        0);
    for (size_t c = 0; c < COLUMNS; c++) {
        assert_true(fabsf(mean[c] - 10000) <= 0.002f);
        assert_true(fabsf(variance[c] - 2) <= 0.0001f); /* of −2, −1, 0, 1, 2 */
    }
    end_tickets(tickets);
    free_array(workspace);
    free_array(mean);
    free_array(y);
    free_array(x);
}

/* Channels that are octets of a block and others, and more rows than parts of the least size are. */
static void norms_are_those_of_the_channels(void **state)
{
    static const size_t side[][2] = {{301, 16}, {37, 264}, {50, 5}, {140001, 1}};
    for (size_t k = 0; k < sizeof side / sizeof *side; k++) {
        const norm_case c = batchnorm_case(side[k][0], side[k][1]);
        check_batchnorm_case(&c);
        end_norm(&c);
    }
}

/* In double: the gradients of a layernorm's input, scale and shift. */
static void check_layernorm_gradients(size_t rows, size_t columns)
{
    const size_t n = rows * columns;
    float *x = kernel_numbers(n), *g = kernel_numbers(n + 99), *gx = kernel_numbers(n),
          *own = kernel_numbers(5 * columns), *mean = kernel_numbers(2 * rows), *again = own + 3 * columns;
    void *workspace = alloc_array_cuda_kernels(tandem_cuda_layernorm_workspace(rows, columns));
    double *expected = calloc(n, sizeof *expected), *sums = calloc(2 * columns, sizeof *sums);
    uint32_t *tickets = new_tickets();
    assert_true(expected && sums);
    memmove(g, g + 99, n * sizeof *g); /* other numbers than x */
    for (size_t r = 0; r < rows; r++) mean[rows + r] = 0.5f + fabsf(mean[rows + r]);
    for (int k = 0; k < 2; k++)
        assert_int_equal(tandem_cuda_layernorm_backward(gx, k ? again : own + columns,
                                                        k ? again + columns : own + 2 * columns, g, x,
                                                        TANDEM_CUDA_F32, own, mean, mean + rows, rows,
                                                        columns, 1e-5f, workspace, tickets, NULL),
                         0);
    for (size_t r = 0; r < rows; r++) {
        const double inverse = 1 / sqrt((double)mean[rows + r] + 1e-5), centre = (double)mean[r];
        double sum = 0, along = 0;
        for (size_t c = 0, i = r * columns; c < columns; c++, i++) {
            const double normal = ((double)x[i] - centre) * inverse;
            sum += (double)own[c] * (double)g[i] / (double)columns;
            along += (double)own[c] * (double)g[i] * normal / (double)columns;
            sums[c] += (double)g[i] * normal;
            sums[columns + c] += (double)g[i];
        }
        for (size_t c = 0, i = r * columns; c < columns; c++, i++)
            expected[i] =
                inverse * ((double)own[c] * (double)g[i] - sum - ((double)x[i] - centre) * inverse * along);
    }
    for (size_t i = 0; i < n; i++) assert_true(fabs((double)gx[i] - expected[i]) <= 1e-3);
    for (size_t c = 0; c < 2 * columns; c++)
        assert_true(fabs((double)own[columns + c] - sums[c]) <= 1e-3 * sqrt((double)rows));
    assert_memory_equal(own + columns, again, 2 * columns * sizeof *own);
    end_tickets(tickets);
    free(sums);
    free(expected);
    free_array(workspace);
    free_array(mean);
    free_array(own);
    free_array(gx);
    free_array(g);
    free_array(x);
}

/* In one pass, of one group of blocks and of several, a last one that is not whole; in two, of long rows. */
static void gradients_of_rows_add_up_in_order(void **state)
{
    static const size_t side[][2] = {{5, 40}, {300, 24}, {1100, 7}, {3, 2048}, {3, 2049}};
    for (size_t k = 0; k < sizeof side / sizeof *side; k++) check_layernorm_gradients(side[k][0], side[k][1]);
}

/* The sums beside gelu's gradient are those of the gradient as it is rounded. */
static void sums_are_those_of_the_rounded_gradient(void **state)
{
    enum { ROWS = 700, COLUMNS = 37 };
    uint16_t *g = alloc_array_cuda_kernels(ROWS * COLUMNS * sizeof *g),
             *x = alloc_array_cuda_kernels(ROWS * COLUMNS * sizeof *x);
    float *own = kernel_numbers(COLUMNS), *sum = kernel_numbers(2 * COLUMNS), *alone = sum + COLUMNS;
    void *workspace = alloc_array_cuda_kernels(tandem_cuda_column_sum_workspace(ROWS, COLUMNS));
    uint32_t *tickets = new_tickets();
    for (uint32_t i = 0; i < ROWS * COLUMNS; i++) {
        g[i] = tandem_bf16_of(kernel_number(i));
        x[i] = tandem_bf16_of(kernel_number(i + 5));
    }
    assert_int_equal(tandem_cuda_bias_gelu_backward(g, sum, g, x, TANDEM_CUDA_BF16, own, ROWS, COLUMNS,
                                                    workspace, tickets, NULL),
                     0);
    assert_int_equal(
        tandem_cuda_column_sum(alone, g, TANDEM_CUDA_BF16, ROWS, COLUMNS, COLUMNS, workspace, tickets, NULL),
        0);
    assert_memory_equal(sum, alone, COLUMNS * sizeof *sum);
    end_tickets(tickets);
    free_array(workspace);
    free_array(sum);
    free_array(own);
    free_array(x);
    free_array(g);
}

/* Three arrays that are transposed and summed in one launch: each has tickets of its own, whichever order
 * their blocks come in. */
static void sums_of_arrays_do_not_take_each_others_tickets(void **state)
{
    enum { ARRAYS = TANDEM_CUDA_PARTS, A = 2, B = 5, C = 300, D = 8, LAUNCHES = 16 };
    enum { ROWS = A * C, COLUMNS = B * D, ALL = ROWS * COLUMNS };
    const tandem_cuda_permutation order = {{A, C, B, D}, {B * C * D, D, C * D, 1}};
    const size_t own_bytes = tandem_cuda_column_sum_workspace(ROWS, COLUMNS);
    float *x = kernel_numbers(ARRAYS * ALL), *y = kernel_numbers(ARRAYS * ALL),
          *sum = kernel_numbers(ARRAYS * COLUMNS), *alone = kernel_numbers(COLUMNS);
    void *workspace = alloc_array_cuda_kernels(ARRAYS * own_bytes);
    uint32_t *tickets = new_tickets();
    tandem_cuda_sum_part part[ARRAYS];
    for (size_t k = 0; k < ARRAYS; k++)
        part[k] = (tandem_cuda_sum_part){y + k * ALL, sum + k * COLUMNS, x + k * ALL};
    assert_true(own_bytes > COLUMNS * sizeof(float)); /* several parts: who is the last matters */
    for (int i = 0; i < LAUNCHES; i++) {
        memset(workspace, 0xFF, ARRAYS * own_bytes);
        memset(sum, 0xFF, ARRAYS * COLUMNS * sizeof *sum);
        assert_int_equal(
            tandem_cuda_transpose_sum(part, ARRAYS, TANDEM_CUDA_F32, &order, workspace, tickets, NULL), 0);
        gpu_sync();
        for (size_t k = 0; k < ARRAYS; k++) {
            assert_int_equal(tandem_cuda_column_sum(alone, y + k * ALL, TANDEM_CUDA_F32, ROWS, COLUMNS,
                                                    COLUMNS, workspace, tickets, NULL),
                             0);
            gpu_sync();
            assert_memory_equal(sum + k * COLUMNS, alone, COLUMNS * sizeof *alone);
        }
    }
    end_tickets(tickets);
    free_array(workspace);
    free_array(alone);
    free_array(sum);
    free_array(y);
    free_array(x);
}

/* Weights of all sizes in one launch, as they lie and transposed, have the bits of a cast of each. */
static void weights_are_rounded_together(void **state)
{
    static const uint32_t sizes[][2] = {{8, 0}, {13, 0}, {9000, 0}, {70 * 66, 70}, {3 * 5, 3}, {16384, 128}};
    enum { N_WEIGHT = sizeof sizes / sizeof *sizes, MOST_WEIGHTS = 17000 };
    float *x = kernel_numbers(MOST_WEIGHTS);
    uint16_t *one = alloc_array_cuda_kernels(MOST_WEIGHTS * sizeof *one);
    for (int type = TANDEM_CUDA_BF16; type <= TANDEM_CUDA_F16; type++) {
        tandem_cuda_weight_copy copy[N_WEIGHT];
        for (int k = 0; k < N_WEIGHT; k++)
            copy[k] = (tandem_cuda_weight_copy){x, alloc_array_cuda_kernels((sizes[k][0] + 8) * sizeof *one),
                                                sizes[k][0], sizes[k][1], 0};
        for (int k = 0; k < N_WEIGHT; k++) memset(copy[k].to, 0x3C, (sizes[k][0] + 8) * sizeof *one);
        assert_int_equal(tandem_cuda_copy_weights(copy, N_WEIGHT, (tandem_cuda_float)type, NULL), 0);
        assert_int_equal(
            tandem_cuda_convert(one, (tandem_cuda_float)type, x, TANDEM_CUDA_F32, MOST_WEIGHTS, NULL), 0);
        for (int k = 0; k < N_WEIGHT; k++) {
            const uint32_t n = sizes[k][0], rows = sizes[k][1], columns = rows ? n / rows : 1;
            const uint16_t *const to = copy[k].to;
            for (uint32_t i = 0; i < n; i++)
                assert_int_equal(to[rows ? i % columns * rows + i / columns : i], one[i]);
            for (uint32_t i = n; i < n + 8; i++) assert_int_equal(to[i], 0x3C3C);
            free_array(copy[k].to);
        }
    }
    assert_int_not_equal(
        tandem_cuda_copy_weights(NULL, TANDEM_CUDA_WEIGHT_COPIES + 1, TANDEM_CUDA_BF16, NULL), 0);
    free_array(one);
    free_array(x);
}

/* Eight channels more at once have what each has by itself; windows overlap and leave the image. */
static void pools_of_octets_are_those_of_channels(void **state)
{
    enum { IN = 2 * 7 * 6, OUT = 2 * 4 * 3, CHANNELS = 16 };
    const tandem_cuda_pool wide = {2, 7, 6, CHANNELS, 4, 3, 3, 3, 2, 1};
    tandem_cuda_pool thin = wide;
    thin.channels = 1;
    float *x = kernel_numbers((size_t)IN * CHANNELS), *one = kernel_numbers(IN),
          *y = kernel_numbers((size_t)OUT * CHANNELS), *y_of = kernel_numbers(OUT),
          *gx = kernel_numbers((size_t)IN * CHANNELS), *gx_of = kernel_numbers(IN);
    uint8_t *argmax = alloc_array_cuda_kernels((size_t)OUT * CHANNELS),
            *argmax_of = alloc_array_cuda_kernels(OUT);
    assert_int_equal(tandem_cuda_maxpool(y, argmax, x, TANDEM_CUDA_F32, &wide, NULL), 0);
    assert_int_equal(tandem_cuda_pool_backward(gx, y, argmax, TANDEM_CUDA_F32, &wide, NULL), 0);
    for (int c = 0; c < CHANNELS; c++) {
        for (int i = 0; i < IN; i++) one[i] = x[i * CHANNELS + c];
        assert_int_equal(tandem_cuda_maxpool(y_of, argmax_of, one, TANDEM_CUDA_F32, &thin, NULL), 0);
        assert_int_equal(tandem_cuda_pool_backward(gx_of, y_of, argmax_of, TANDEM_CUDA_F32, &thin, NULL), 0);
        for (int i = 0; i < OUT; i++) assert_true(y[i * CHANNELS + c] == y_of[i]);
        for (int i = 0; i < OUT; i++) assert_int_equal(argmax[i * CHANNELS + c], argmax_of[i]);
        for (int i = 0; i < IN; i++) assert_true(gx[i * CHANNELS + c] == gx_of[i]);
    }
    assert_int_equal(tandem_cuda_pool_backward(gx, y, NULL, TANDEM_CUDA_F32, &wide, NULL), 0); /* of a mean */
    for (int i = 0; i < OUT; i++) y_of[i] = y[i * CHANNELS + 11];
    assert_int_equal(tandem_cuda_pool_backward(gx_of, y_of, NULL, TANDEM_CUDA_F32, &thin, NULL), 0);
    for (int i = 0; i < IN; i++) assert_true(gx[i * CHANNELS + 11] == gx_of[i]);
    free_array(argmax_of);
    free_array(argmax);
    free_array(gx_of);
    free_array(gx);
    free_array(y_of);
    free_array(y);
    free_array(one);
    free_array(x);
}

/* Sixteen channels are moved at once, by the same windows as one. */
static void columns_of_images_are_their_windows(void **state)
{
    enum { IN = 2 * 5 * 4, WINDOWS = 2 * 3 * 2, CHANNELS = 32, WINDOW = 9 };
    const tandem_cuda_pool wide = {2, 5, 4, CHANNELS, 3, 2, 3, 3, 2, 1};
    tandem_cuda_pool thin = wide;
    thin.channels = 1;
    uint8_t *x = alloc_array_cuda_kernels((size_t)IN * CHANNELS), *one = alloc_array_cuda_kernels(IN),
            *all = alloc_array_cuda_kernels((size_t)WINDOWS * WINDOW * CHANNELS),
            *own = alloc_array_cuda_kernels((size_t)WINDOWS * WINDOW);
    for (int i = 0; i < IN * CHANNELS; i++) x[i] = (uint8_t)(i * 37 / 5 + 1);
    assert_int_equal(tandem_cuda_im2col(all, x, 1, &wide, NULL), 0);
    for (int c = 0; c < CHANNELS; c++) {
        for (int i = 0; i < IN; i++) one[i] = x[i * CHANNELS + c];
        assert_int_equal(tandem_cuda_im2col(own, one, 1, &thin, NULL), 0);
        for (int i = 0; i < WINDOWS * WINDOW; i++) assert_int_equal(all[i * CHANNELS + c], own[i]);
    }
    free_array(own);
    free_array(all);
    free_array(one);
    free_array(x);
}

/* Channels of several bytes lie as that many channels of one. */
static void columns_of_floats_are_columns_of_their_bytes(void **state)
{
    enum { IN = 2 * 5 * 4, COLUMNS = 2 * 3 * 2 * 9, MOST_BYTES = 32 };
    uint8_t *x = alloc_array_cuda_kernels((size_t)IN * MOST_BYTES),
            *all = alloc_array_cuda_kernels((size_t)COLUMNS * MOST_BYTES),
            *bytes = alloc_array_cuda_kernels((size_t)COLUMNS * MOST_BYTES);
    for (int i = 0; i < IN * MOST_BYTES; i++) x[i] = (uint8_t)(i * 37 / 5 + 1);
    for (int channels = 3; channels <= 8; channels += 5)
        for (int size = 2; size <= 4; size *= 2) {
            const tandem_cuda_pool of_floats = {2, 5, 4, channels, 3, 2, 3, 3, 2, 1};
            tandem_cuda_pool of_bytes = of_floats;
            of_bytes.channels *= size;
            assert_int_equal(tandem_cuda_im2col(all, x, (size_t)size, &of_floats, NULL), 0);
            assert_int_equal(tandem_cuda_im2col(bytes, x, 1, &of_bytes, NULL), 0);
            assert_memory_equal(all, bytes, (size_t)(COLUMNS * channels * size));
        }
    free_array(bytes);
    free_array(all);
    free_array(x);
}

/* What pads the matrices of a batch is passed over. */
static void padded_batches_of_sums_are_scaled_without_their_padding(void **state)
{
    enum { BATCH = 3, ROWS = 5, X_ROWS = 7 };
    static const size_t widths[][2] = {{8, 8}, {13, 16}};
    float *y = alloc_array_cuda_kernels(N * sizeof *y), *scale = alloc_array_cuda_kernels(2 * sizeof *scale);
    int32_t *sum = alloc_array_cuda_kernels(N * sizeof *sum);
    scale[0] = 0.37f, scale[1] = 1.21f;
    for (size_t i = 0; i < N; i++) sum[i] = (int32_t)(i * 7919) - 20000000;
    for (size_t k = 0; k < 2; k++) {
        const size_t columns = widths[k][0], x_columns = widths[k][1];
        assert_int_equal(tandem_cuda_scale_s32(y, TANDEM_CUDA_F32, sum, BATCH, ROWS, columns, X_ROWS,
                                               x_columns, scale, scale + 1, 0, NULL),
                         0);
        for (size_t i = 0; i < BATCH * ROWS * columns; i++) {
            const size_t r = i / columns, row = r / ROWS * X_ROWS + r % ROWS;
            assert_true(y[i] == (float)sum[row * x_columns + i % columns] * (0.37f * 1.21f));
        }
    }
    free_array(sum);
    free_array(scale);
    free_array(y);
}

/* --- The optimizer -------------------------------------------------------------------------------------- */

static void updates_are_the_same(void **state)
{
    enum { FLAT = 4096 };
    float *array[6];
    for (int k = 0; k < 6; k++) {
        array[k] = kernel_numbers(FLAT);
        for (int i = 0; i < FLAT; i++)
            array[k][i] = fabsf(kernel_number((uint32_t)(i + 977 * (k % 3)))) + 0x1p-10f;
    }
    float *g = kernel_numbers(FLAT);
    uint32_t *broken = alloc_array_cuda_kernels(sizeof *broken);
    *broken = 0;
    const tandem_adamw options = {0.01f, 0.9f, 0.999f, 1e-8f, 0.1f, 1 / 0.271f, 1 / 0.003f};
    assert_int_equal(
        tandem_cuda_adamw(array[0], array[1], array[2], g, NULL, FLAT, &options, NULL, broken, NULL), 0);
    assert_int_equal(cpu()->adamw(array[3], array[4], array[5], g, FLAT, options.rate, options.beta1,
                                  options.beta2, options.epsilon, options.decay, options.correction1,
                                  options.correction2),
                     1);
    for (int k = 0; k < 3; k++) assert_memory_equal(array[k], array[k + 3], FLAT * sizeof(float));
    uint8_t *decays = alloc_array_cuda_kernels(FLAT / 16);
    memset(decays, 0, FLAT / 16);
    memset(decays, 1, FLAT / 32);
    assert_int_equal(
        tandem_cuda_sgd(array[0], array[1], g, decays, FLAT, 0.1f, 0.9f, 0.01f, NULL, broken, NULL), 0);
    assert_int_equal(cpu()->sgd(array[3], array[4], g, FLAT / 2, 0.1f, 0.9f, 0.01f), 1);
    assert_int_equal(
        cpu()->sgd(array[3] + FLAT / 2, array[4] + FLAT / 2, g + FLAT / 2, FLAT / 2, 0.1f, 0.9f, 0), 1);
    for (int k = 0; k < 2; k++) assert_memory_equal(array[k], array[k + 3], FLAT * sizeof(float));
    float *rates = alloc_array_cuda_kernels(3 * sizeof *rates); /* the arguments' places are taken */
    const tandem_adamw other = {0.7f, 0.9f, 0.999f, 1e-8f, 0.1f, 7, 7};
    memcpy(rates, (float[3]){0.02f, 1 / 0.19f, 1 / 0.002f}, 3 * sizeof *rates);
    assert_int_equal(
        tandem_cuda_adamw(array[0], array[1], array[2], g, NULL, FLAT, &other, rates, broken, NULL), 0);
    (void)cpu()->adamw(array[3], array[4], array[5], g, FLAT, rates[0], 0.9f, 0.999f, 1e-8f, 0.1f, rates[1],
                       rates[2]);
    assert_int_equal(
        tandem_cuda_sgd(array[0], array[1], g, NULL, FLAT, 0.7f, 0.9f, 0.01f, rates, broken, NULL), 0);
    (void)cpu()->sgd(array[3], array[4], g, FLAT, rates[0], 0.9f, 0.01f);
    for (int k = 0; k < 3; k++) assert_memory_equal(array[k], array[k + 3], FLAT * sizeof(float));
    free_array(rates);
    assert_int_equal(*broken, 0);
    g[FLAT - 3] = INFINITY;
    assert_int_equal(
        tandem_cuda_sgd(array[0], array[1], g, decays, FLAT, 0.1f, 0.9f, 0.01f, NULL, broken, NULL), 0);
    assert_int_equal(*broken, ~(uint32_t)(FLAT / 16 - 1));
    g[16 * 9 + 5] = g[16 * 30] = NAN; /* the first 16 elements with one stay */
    assert_int_equal(
        tandem_cuda_adamw(array[0], array[1], array[2], g, NULL, FLAT, &options, NULL, broken, NULL), 0);
    assert_int_equal(*broken, ~(uint32_t)9);
    g[16 * 9 + 5] = 0;
    assert_int_equal(
        tandem_cuda_sgd(array[0], array[1], g, decays, FLAT, 0.1f, 0.9f, 0.01f, NULL, broken, NULL), 0);
    assert_int_equal(*broken, ~(uint32_t)9);
    assert_int_equal(
        tandem_cuda_sgd(array[0], array[1], g, decays, 17, 0.1f, 0.9f, 0.01f, NULL, broken, NULL),
        TANDEM_CUDA_UNALIGNED);
    free_array(decays);
    free_array(broken);
    free_array(g);
    for (int k = 0; k < 6; k++) free_array(array[k]);
}

int main(void)
{
    /* a launch is done when it returns: its results are looked at at once */
    (void)setenv("CUDA_LAUNCH_BLOCKING", "1", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranges_are_the_largest_magnitude),
        cmocka_unit_test(s8_codes_are_the_same),
        cmocka_unit_test(codes_are_the_nearest),
        cmocka_unit_test(codes_are_written_in_both_orders),
        cmocka_unit_test(rows_have_scales_of_their_own),
        cmocka_unit_test(a_row_that_is_not_finite_is_alone),
        cmocka_unit_test(a_range_that_is_none_spoils_the_scale),
        cmocka_unit_test(bytes_are_transposed_and_padded),
        cmocka_unit_test(tensors_are_permuted),
        cmocka_unit_test(rows_of_any_width_are_scaled_and_shifted),
        cmocka_unit_test(float_casts_are_the_same),
        cmocka_unit_test(draws_are_those_of_the_step),
        cmocka_unit_test(noise_is_the_cpu_s),
        cmocka_unit_test(a_loss_is_scaled_first),
        cmocka_unit_test(rows_of_a_table_add_up_in_order),
        cmocka_unit_test(column_sums_have_the_same_bits_in_any_order),
        cmocka_unit_test(variances_do_not_depend_on_the_mean),
        cmocka_unit_test(norms_are_those_of_the_channels),
        cmocka_unit_test(gradients_of_rows_add_up_in_order),
        cmocka_unit_test(sums_are_those_of_the_rounded_gradient),
        cmocka_unit_test(sums_of_arrays_do_not_take_each_others_tickets),
        cmocka_unit_test(weights_are_rounded_together),
        cmocka_unit_test(pools_of_octets_are_those_of_channels),
        cmocka_unit_test(columns_of_images_are_their_windows),
        cmocka_unit_test(columns_of_floats_are_columns_of_their_bytes),
        cmocka_unit_test(padded_batches_of_sums_are_scaled_without_their_padding),
        cmocka_unit_test(updates_are_the_same),
    };
    return skip_without_gpu() ? 0 : cmocka_run_group_tests(tests, NULL, NULL);
}
