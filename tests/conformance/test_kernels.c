/* folder: backend */
/* kernels.h as its users see it: matrices in strides, scales, delayed scaling, a linear layer's products,
 * threads, and every bad argument by its name. What one instruction set's functions compute is
 * test_isa_kernels.c's. */
#include <float.h>
#include <pthread.h>

#include "base/philox.h"
#include "tandem/kernels.h"
#include "tests/support/tandem_test.h"

enum { ROWS = 70, COLUMNS = 136, PAD = 9, LARGEST = ROWS * (COLUMNS + PAD) };

static const char *const names[] = {"sse41",  "avx",         "avx2",        "avx2_vnni",
                                    "avx512", "avx512_vnni", "avx512_bf16", "avx512_amx"};
enum { N_NAME = sizeof names / sizeof *names };

static const tandem_kernels *next_kernels(int *at)
{
    while (*at < N_NAME) {
        const tandem_kernels *kernels = NULL;
        tandem_error error = {0};
        const char *name = names[(*at)++];
        const tandem_status status = tandem_kernels_open(&kernels, name, &error);
        if (status == TANDEM_OK) {
            assert_string_equal(tandem_kernels_isa(kernels), name);
            return kernels;
        }
        assert_int_equal(status, TANDEM_NO_DEVICE);
        assert_non_null(strstr(error.text, name));
        assert_null(kernels);
    }
    return NULL;
}

static void fill_kernels(float *x, int64_t n, uint32_t purpose)
{
    for (int64_t i = 0; i < n; i++) {
        const uint32_t counter[4] = {(uint32_t)i, 0, 0, purpose};
        x[i] = (tandem_philox_uniform(tandem_philox(counter, 7).word[0]) - 0.5f) * 6;
    }
}

static void test_opening(void **state)
{
    const tandem_kernels *kernels = NULL, *best = NULL;
    tandem_error error = {0};
    int found = 0;
    for (int at = 0; next_kernels(&at); found++) {
    }
    if (found < N_NAME)
        print_message("SKIP: this machine runs %d of %d instruction sets\n", found, (int)N_NAME);
    assert_int_equal(tandem_kernels_open(&best, "best", &error), TANDEM_OK);
    for (int at = 0; (kernels = next_kernels(&at));)
        if (at == N_NAME || kernels == best) break;
    assert_ptr_equal(kernels, best);
    assert_int_equal(tandem_kernels_open(&kernels, "avx3", &error), TANDEM_UNKNOWN_NAME);
    assert_non_null(strstr(error.text, "avx512_vnni"));
}

/* --- To int8 -------------------------------------------------------------------------------------------- */

static int8_t rounded_kernels(float x, float inverse, int64_t block, int64_t j,
                              const tandem_rounding *rounding)
{
    float steps = x * inverse;
    if (rounding) {
        const uint32_t counter[4] = {(uint32_t)(rounding->block + block + j / 8), rounding->stream[0],
                                     rounding->stream[1], rounding->stream[2]};
        const uint32_t draw = tandem_philox(counter, rounding->seed).word[j % 8 / 2] >> 16 * (j % 2) & 0xFFFF;
        steps = floorf(steps + ((float)draw + 0.5f) / 65536);
    } else {
        steps = rintf(steps);
    }
    return (int8_t)(steps > 127 ? 127 : steps >= -127 ? steps : -127);
}

/* Every kind of call at once, against its definition: a matrix in strides, with and without a transposed
 * copy. */
static void check_quantise(const tandem_kernels *kernels, tandem_scale_mode scale_mode, tandem_dtype from,
                           int64_t rows, int64_t columns, int64_t pad, int transposes,
                           const tandem_rounding *rounding)
{
    static float x[LARGEST], wide[LARGEST];
    static uint16_t half[LARGEST];
    static int8_t q[LARGEST], transposed[LARGEST];
    float scale[ROWS], amax = -1, largest = 0;
    tandem_error error = {0};
    const int64_t row = columns + pad;
    fill_kernels(x, LARGEST, 1);
    const tandem_cast_call narrow = {.x = x, .rows = 1, .columns = LARGEST, .y = half, .to = TANDEM_BF16};
    const tandem_cast_call widen = {.x = half, .from = TANDEM_BF16, .rows = 1, .columns = LARGEST, .y = wide};
    assert_int_equal(tandem_kernels_cast(kernels, &narrow, &error), TANDEM_OK);
    assert_int_equal(tandem_kernels_cast(kernels, &widen, &error), TANDEM_OK);
    const float *value = from == TANDEM_BF16 ? wide : x;
    memset(q, 99, sizeof q);
    memset(transposed, 99, sizeof transposed);
    const tandem_quantise_call call = {.x = from == TANDEM_BF16 ? (const void *)half : x,
                                       .from = from,
                                       .rows = rows,
                                       .columns = columns,
                                       .x_row = row,
                                       .q = q,
                                       .q_row = row,
                                       .transposed = transposes ? transposed : NULL,
                                       .transposed_row = rows + 1,
                                       .scale_mode = scale_mode,
                                       .range = 2,
                                       .rounding = rounding,
                                       .scale = scale,
                                       .amax = &amax};
    assert_int_equal(tandem_kernels_quantise(kernels, &call, &error), TANDEM_OK);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) largest = fmaxf(largest, fabsf(value[i * row + j]));
    assert_true(amax == largest);
    for (int64_t i = 0; i < rows; i++) {
        float range = scale_mode == TANDEM_SCALE_KNOWN ? 2 : largest;
        if (scale_mode == TANDEM_SCALE_ROW) {
            range = 0;
            for (int64_t j = 0; j < columns; j++) range = fmaxf(range, fabsf(value[i * row + j]));
        }
        assert_true(scale[scale_mode == TANDEM_SCALE_ROW ? i : 0] == range / 127);
        for (int64_t j = 0; j < row; j++) {
            const int8_t want = j < columns ? rounded_kernels(value[i * row + j], 127 / range,
                                                              i * ((columns + 7) / 8), j, rounding)
                                            : 99;
            if (q[i * row + j] != want && !(j >= columns && i == rows - 1))
                fail_msg("%s scaling %d from %d, %d x %d + %d: (%d, %d) is %d, not %d",
                         tandem_kernels_isa(kernels), scale_mode, from, (int)rows, (int)columns, (int)pad,
                         (int)i, (int)j, q[i * row + j], want);
            if (transposes && j < columns) assert_int_equal(transposed[j * (rows + 1) + i], want);
        }
    }
}

static void test_quantise_by_its_definition(void **state)
{
    static const int64_t shapes[][3] = {
        {1, 7, 0},   {3, 8, 0},      {5, 13, 0},           {5, 13, PAD}, {ROWS, COLUMNS, PAD},
        {64, 64, 0}, {ROWS, 128, 1}, {1, LARGEST - PAD, 0}};
    const tandem_rounding rounding = {.seed = 12, .stream = {3, 4, 5}, .block = 1000};
    const tandem_kernels *kernels;
    for (int at = 0; (kernels = next_kernels(&at));)
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
            for (int kind = 0; kind < 24; kind++)
                check_quantise(kernels, (tandem_scale_mode)(kind % 3),
                               kind / 3 % 2 ? TANDEM_BF16 : TANDEM_F32, shapes[s][0], shapes[s][1],
                               shapes[s][2], kind / 6 % 2 && shapes[s][1] <= COLUMNS,
                               kind / 12 ? &rounding : NULL);
}

static void test_what_is_not_finite(void **state)
{
    static const float odd[] = {NAN, INFINITY, -INFINITY};
    tandem_error error = {0};
    const tandem_kernels *kernels;
    for (int at = 0; (kernels = next_kernels(&at));)
        for (int k = 0; k < 6; k++) {
            float x[16] = {1, 2, 3}, scale = -5, amax = -5;
            int8_t q[16] = {77};
            x[k % 2 ? 15 : 3] = odd[k / 2];
            tandem_quantise_call call = {
                .x = x, .rows = 2, .columns = 8, .q = q, .scale = &scale, .amax = &amax, .range = 4};
            assert_int_equal(tandem_kernels_quantise(kernels, &call, &error), TANDEM_LIMIT_EXCEEDED);
            assert_true(scale == -5 && amax == -5 && q[0] == 77);
            call.scale_mode = TANDEM_SCALE_ROW;
            float scales[2] = {-5, -5};
            call.scale = scales;
            assert_int_equal(tandem_kernels_quantise(kernels, &call, &error), TANDEM_LIMIT_EXCEEDED);
            call.scale_mode = TANDEM_SCALE_KNOWN;
            assert_int_equal(tandem_kernels_quantise(kernels, &call, &error), TANDEM_OK);
            assert_int_equal(q[k % 2 ? 15 : 3], k / 2 == 1 ? 127 : -127);
            assert_true(k / 2 == 0 ? isnan(amax) : isinf(amax));
            assert_int_equal(q[1], 64); /* 63.5, to even */
        }
}

/* Nothing but zeros, or so little that 127/amax overflows. */
static void test_nothing_to_scale(void **state)
{
    static const float little[] = {0, FLT_TRUE_MIN};
    tandem_error error = {0};
    const tandem_kernels *kernels;
    for (int at = 0; (kernels = next_kernels(&at));)
        for (int k = 0; k < 2; k++) {
            float x[8] = {0, 0, little[k]}, scale = -5, back[8] = {1};
            int8_t q[8];
            const tandem_quantise_call call = {.x = x, .rows = 1, .columns = 8, .q = q, .scale = &scale};
            const tandem_dequantise_call again = {
                .q = q, .rows = 1, .columns = 8, .x = back, .scale = &scale};
            assert_int_equal(tandem_kernels_quantise(kernels, &call, &error), TANDEM_OK);
            assert_int_equal(tandem_kernels_dequantise(kernels, &again, &error), TANDEM_OK);
            assert_true(scale == 0);
            for (int i = 0; i < 8; i++) assert_true(q[i] == 0 && back[i] == 0);
        }
}

static void test_back_in_strides(void **state)
{
    tandem_error error = {0};
    const tandem_kernels *kernels;
    for (int at = 0; (kernels = next_kernels(&at));)
        for (int by_row = 0; by_row < 2; by_row++) {
            int8_t q[3 * 50];
            float x[3 * 60], scale[3] = {0.5f, 0.25f, 3};
            uint16_t half[3 * 60], narrowed[3 * 60];
            for (int i = 0; i < 150; i++) q[i] = (int8_t)(i - 75);
            memset(x, 0, sizeof x);
            memset(half, 0, sizeof half);
            tandem_dequantise_call call = {.q = q,
                                           .rows = 3,
                                           .columns = 43,
                                           .q_row = 50,
                                           .x = x,
                                           .x_row = 60,
                                           .scale_mode = by_row ? TANDEM_SCALE_ROW : TANDEM_SCALE_TENSOR,
                                           .scale = scale};
            assert_int_equal(tandem_kernels_dequantise(kernels, &call, &error), TANDEM_OK);
            call.x = half, call.to = TANDEM_BF16;
            assert_int_equal(tandem_kernels_dequantise(kernels, &call, &error), TANDEM_OK);
            for (int i = 0; i < 3; i++)
                for (int j = 0; j < 60; j++)
                    assert_true(x[i * 60 + j] == (j < 43 ? (float)q[i * 50 + j] * scale[by_row ? i : 0] : 0));
            const tandem_cast_call cast = {
                .x = x, .rows = 3, .columns = 43, .x_row = 60, .y = narrowed, .to = TANDEM_BF16, .y_row = 60};
            memset(narrowed, 0, sizeof narrowed);
            assert_int_equal(tandem_kernels_cast(kernels, &cast, &error), TANDEM_OK);
            assert_memory_equal(half, narrowed, sizeof half);
        }
}

/* --- Delayed scaling ------------------------------------------------------------------------------------ */

static void test_history(void **state)
{
    static tandem_amax_history history, saved;
    tandem_error error = {0};
    assert_int_equal(tandem_amax_history_init(&history, 3, 1, &error), TANDEM_OK);
    assert_true(tandem_amax_history_range(&history) == -1);
    static const float amax[] = {5, 1, 2, 3, 0.5f, 0, 0, 0}, want[] = {10, 10, 10, 6, 6, 6, 1, 0};
    for (int i = 0; i < 8; i++) {
        assert_int_equal(tandem_amax_history_add(&history, amax[i], &error), TANDEM_OK);
        assert_true(tandem_amax_history_range(&history) == want[i]);
    }
    saved = history;
    static const float refused[] = {NAN, INFINITY, -1};
    for (int i = 0; i < 3; i++)
        assert_int_equal(tandem_amax_history_add(&history, refused[i], &error), TANDEM_LIMIT_EXCEEDED);
    assert_memory_equal(&saved, &history, sizeof history);
    assert_int_equal(tandem_amax_history_add(&history, FLT_MAX, &error), TANDEM_OK);
    assert_true(tandem_amax_history_range(&history) == FLT_MAX);
    static const int windows[] = {0, -1, TANDEM_AMAX_WINDOW + 1}, margins[] = {65, -65};
    for (int i = 0; i < 3; i++)
        assert_int_equal(tandem_amax_history_init(&saved, windows[i], 0, &error), TANDEM_USAGE);
    for (int i = 0; i < 2; i++)
        assert_int_equal(tandem_amax_history_init(&saved, 4, margins[i], &error), TANDEM_USAGE);
    assert_int_equal(tandem_amax_history_init(NULL, 4, 0, &error), TANDEM_USAGE);
}

/* --- Products ------------------------------------------------------------------------------------------- */

/* y = x·Wᵀ, gx = g·W, gW = gᵀ·x, in the strides that kernels.h gives, all in s32. */
static void run_linear(const tandem_kernels *kernels, int32_t *y, int32_t *gx, int32_t *gw, const int8_t *x,
                       const int8_t *w, const int8_t *g, int64_t m, int64_t n, int64_t k, void *workspace,
                       size_t bytes)
{
    const tandem_product_s8 products[] = {{.m = m,
                                           .n = n,
                                           .k = k,
                                           .a = x,
                                           .a_row = k,
                                           .a_column = 1,
                                           .b = w,
                                           .b_row = 1,
                                           .b_column = k,
                                           .c = y},
                                          {.m = m,
                                           .n = k,
                                           .k = n,
                                           .a = g,
                                           .a_row = n,
                                           .a_column = 1,
                                           .b = w,
                                           .b_row = k,
                                           .b_column = 1,
                                           .c = gx},
                                          {.m = n,
                                           .n = k,
                                           .k = m,
                                           .a = g,
                                           .a_row = 1,
                                           .a_column = n,
                                           .b = x,
                                           .b_row = k,
                                           .b_column = 1,
                                           .c = gw}};
    for (int i = 0; i < 3; i++) {
        tandem_product_s8 product = products[i];
        tandem_error error = {0};
        product.c_type = TANDEM_S32;
        product.workspace = workspace;
        assert_true(tandem_kernels_product_workspace(kernels, product.m, product.n, product.k) <= bytes);
        assert_int_equal(tandem_kernels_product(kernels, &product, bytes, &error), TANDEM_OK);
    }
}

enum { LM = 37, LN = 41, LK = 29, WORKSPACE = 1 << 17 };
typedef struct linear {
    const tandem_kernels *kernels;
    int8_t x[LM * LK], w[LN * LK], g[LM * LN];
    int32_t y[LM * LN], gx[LM * LK], gw[LN * LK];
    _Alignas(64) char workspace[WORKSPACE];
} linear;

static void fill_small(int8_t *x, int64_t n, int step)
{
    for (int64_t i = 0; i < n; i++) x[i] = (int8_t)(i * step % 255 - 127);
}

static void linear_fill(linear *l, int seed)
{
    for (int i = 0; i < LM * LK; i++) l->x[i] = (int8_t)((i * 7 + seed) % 255 - 127);
    for (int i = 0; i < LN * LK; i++) l->w[i] = (int8_t)((i * 11 + seed) % 255 - 127);
    for (int i = 0; i < LM * LN; i++) l->g[i] = (int8_t)((i * 13 + seed) % 255 - 127);
}

static void linear_check(const linear *l)
{
    for (int i = 0; i < LM; i++)
        for (int j = 0; j < LN; j++) {
            int32_t sum = 0;
            for (int k = 0; k < LK; k++) sum += l->x[i * LK + k] * l->w[j * LK + k];
            assert_int_equal(l->y[i * LN + j], sum);
        }
    for (int i = 0; i < LM; i++)
        for (int k = 0; k < LK; k++) {
            int32_t sum = 0;
            for (int j = 0; j < LN; j++) sum += l->g[i * LN + j] * l->w[j * LK + k];
            assert_int_equal(l->gx[i * LK + k], sum);
        }
    for (int j = 0; j < LN; j++)
        for (int k = 0; k < LK; k++) {
            int32_t sum = 0;
            for (int i = 0; i < LM; i++) sum += l->g[i * LN + j] * l->x[i * LK + k];
            assert_int_equal(l->gw[j * LK + k], sum);
        }
}

static void linear_run(linear *l)
{
    run_linear(l->kernels, l->y, l->gx, l->gw, l->x, l->w, l->g, LM, LN, LK, l->workspace, WORKSPACE);
}

static void test_the_products_of_a_linear_layer(void **state)
{
    linear *l = aligned_alloc(64, sizeof *l);
    assert_non_null(l);
    for (int at = 0; (l->kernels = next_kernels(&at));) {
        linear_fill(l, at);
        linear_run(l);
        linear_check(l);
    }
    free(l);
}

static void *run_often(void *context)
{
    for (int i = 0; i < 50; i++) linear_run(context);
    return NULL;
}

/* One tandem_kernels, a workspace for each thread. */
static void test_threads_share_kernels(void **state)
{
    enum { N = 4 };
    linear *l = aligned_alloc(64, N * sizeof *l);
    pthread_t thread[N];
    tandem_error error = {0};
    assert_non_null(l);
    for (int i = 0; i < N; i++) {
        assert_int_equal(tandem_kernels_open(&l[i].kernels, "best", &error), TANDEM_OK);
        linear_fill(&l[i], i);
        assert_int_equal(pthread_create(&thread[i], NULL, run_often, &l[i]), 0);
    }
    for (int i = 0; i < N; i++) {
        assert_int_equal(pthread_join(thread[i], NULL), 0);
        linear_check(&l[i]);
    }
    free(l);
}

/* --- Bad arguments -------------------------------------------------------------------------------------- */

static void assert_refused_kernels(tandem_status status, tandem_error *error, const char *says)
{
    if (status != TANDEM_USAGE || !strstr(error->text, says))
        fail_msg("expected USAGE with '%s', got %s: %s", says, tandem_status_name(status), error->text);
    *error = (tandem_error){0};
}

#define REFUSED(verb, call, change, says)                                                                    \
    do {                                                                                                     \
        tandem_##verb##_call bad = call;                                                                     \
        bad.change;                                                                                          \
        assert_refused_kernels(tandem_kernels_##verb(kernels, &bad, &error), &error, says);                  \
    } while (0)

static void test_bad_arguments_of_rounding(void **state)
{
    const tandem_kernels *kernels = NULL;
    tandem_error error = {0};
    float x[32] = {0}, scale = -5;
    int8_t q[32], t[32];
    const tandem_rounding rounding = {.seed = 1, .block = UINT32_MAX};
    assert_int_equal(tandem_kernels_open(&kernels, "best", &error), TANDEM_OK);
    const tandem_quantise_call call = {.x = x, .rows = 4, .columns = 8, .q = q, .scale = &scale};
    assert_refused_kernels(tandem_kernels_quantise(NULL, &call, &error), &error, "kernels is NULL");
    assert_refused_kernels(tandem_kernels_quantise(kernels, NULL, &error), &error, "call is NULL");
    REFUSED(quantise, call, x = NULL, "x is NULL");
    REFUSED(quantise, call, x = (const char *)x + 1, "x is not aligned");
    REFUSED(quantise, call, q = NULL, "q is NULL");
    REFUSED(quantise, call, scale = NULL, "scale is NULL");
    REFUSED(quantise, call, from = TANDEM_S8, "from");
    REFUSED(quantise, call, from = (tandem_dtype)77, "from");
    REFUSED(quantise, call, rows = -1, "rows");
    REFUSED(quantise, call, columns = INT64_MIN, "columns");
    REFUSED(quantise, call, columns = INT64_MAX, "columns");
    REFUSED(quantise, call, rows = (int64_t)1 << 60, "larger than memory");
    REFUSED(quantise, call, x_row = 7, "rows of x");
    REFUSED(quantise, call, q_row = 7, "rows of q");
    REFUSED(quantise, call, x_row = -8, "strides of x");
    REFUSED(quantise, call, x_row = INT64_MAX, "larger than memory");
    REFUSED(quantise, call, scale_mode = (tandem_scale_mode)3, "scale_mode");
    REFUSED(quantise, call, scale_mode = (tandem_scale_mode)-1, "scale_mode");
    REFUSED(quantise, call, rounding = &rounding, "blocks");
    tandem_quantise_call known = call;
    known.scale_mode = TANDEM_SCALE_KNOWN;
    REFUSED(quantise, known, range = NAN, "range");
    REFUSED(quantise, known, range = INFINITY, "range");
    REFUSED(quantise, known, range = -1, "range");
    known.transposed = t;
    REFUSED(quantise, known, transposed_row = 3, "rows of transposed");
    float amax = 0;
    assert_refused_kernels(tandem_kernels_amax(kernels, NULL, x, TANDEM_F32, 1, 8, 0, &error), &error,
                           "amax is NULL");
    assert_refused_kernels(tandem_kernels_amax(kernels, &amax, NULL, TANDEM_F32, 1, 8, 0, &error), &error,
                           "x is NULL");
    assert_refused_kernels(tandem_kernels_amax(kernels, &amax, x, TANDEM_S32, 1, 8, 0, &error), &error,
                           "from");
    assert_refused_kernels(tandem_kernels_amax(NULL, &amax, x, TANDEM_F32, 1, 8, 0, &error), &error,
                           "kernels is NULL");
    const tandem_dequantise_call back = {.q = q, .rows = 4, .columns = 8, .x = x, .scale = &scale};
    REFUSED(dequantise, back, q = NULL, "q is NULL");
    REFUSED(dequantise, back, x = NULL, "x is NULL");
    REFUSED(dequantise, back, scale = NULL, "scale is NULL");
    REFUSED(dequantise, back, to = TANDEM_S8, "to");
    REFUSED(dequantise, back, columns = -2, "columns");
    const tandem_cast_call cast = {.x = x, .rows = 4, .columns = 8, .y = t, .to = TANDEM_BF16};
    REFUSED(cast, cast, to = TANDEM_F32, "to");
    REFUSED(cast, cast, from = TANDEM_S8, "from");
    REFUSED(cast, cast, y = (char *)x + 1, "y is not aligned");
    REFUSED(cast, cast, y = NULL, "y is NULL");
    assert_true(scale == -5);
    const tandem_quantise_call nothing = {.rows = 0, .columns = 8, .scale = &scale};
    assert_int_equal(tandem_kernels_quantise(kernels, &nothing, &error), TANDEM_OK);
}

/* Of every set the same bits: rows are added in ascending order, whatever is added side by side. */
static void test_column_sums(void **state)
{
    enum { SUM_ROWS = 11, SUM_COLUMNS = 37 };
    float x[SUM_ROWS * SUM_COLUMNS], sums[SUM_COLUMNS + 1];
    const tandem_kernels *kernels = NULL;
    tandem_error error = {0};
    for (int i = 0; i < SUM_ROWS * SUM_COLUMNS; i++)
        x[i] = (float)(i * 7919 % 1000) / 3 - (float)(i % 5) * 1e4f;
    for (int at = 0; (kernels = next_kernels(&at));) {
        sums[SUM_COLUMNS] = 99;
        assert_int_equal(tandem_kernels_column_sums(kernels, sums, x, SUM_ROWS, SUM_COLUMNS, &error),
                         TANDEM_OK);
        for (int j = 0; j < SUM_COLUMNS; j++) {
            float sum = 0;
            for (int i = 0; i < SUM_ROWS; i++) sum += x[i * SUM_COLUMNS + j];
            assert_true(sums[j] == sum);
        }
        assert_int_equal(tandem_kernels_column_sums(kernels, sums, NULL, 0, SUM_COLUMNS, &error), TANDEM_OK);
        assert_true(sums[0] == 0 && sums[SUM_COLUMNS - 1] == 0 && sums[SUM_COLUMNS] == 99);
        assert_int_equal(tandem_kernels_column_sums(kernels, NULL, NULL, SUM_ROWS, 0, &error), TANDEM_OK);
        assert_refused_kernels(tandem_kernels_column_sums(kernels, NULL, x, SUM_ROWS, SUM_COLUMNS, &error),
                               &error, "sums is NULL");
        assert_refused_kernels(tandem_kernels_column_sums(kernels, sums, x, -1, SUM_COLUMNS, &error), &error,
                               "x has -1 rows");
    }
    assert_refused_kernels(tandem_kernels_column_sums(NULL, sums, x, 1, 1, &error), &error,
                           "kernels is NULL");
}

/* A batch is its products one by one, and nothing beyond it is written. */
static void test_a_batch_of_products(void **state)
{
    enum { M = 3, N = 5, K = 7, BATCH = 4 };
    static int8_t a[BATCH * M * K], b[BATCH * K * N];
    _Alignas(64) static char workspace[WORKSPACE];
    const tandem_kernels *kernels = NULL;
    tandem_error error = {0};
    fill_small(a, BATCH * M * K, 3);
    fill_small(b, BATCH * K * N, 5);
    for (int at = 0; (kernels = next_kernels(&at));) {
        float c[BATCH * M * N + 1], want[M * N];
        for (int i = 0; i <= BATCH * M * N; i++) c[i] = 99;
        tandem_product_s8 one = {.m = M,
                                 .n = N,
                                 .k = K,
                                 .a = a,
                                 .a_row = K,
                                 .a_column = 1,
                                 .b = b,
                                 .b_row = N,
                                 .b_column = 1,
                                 .c = c,
                                 .scale = 0.5f,
                                 .workspace = workspace};
        assert_int_equal(tandem_kernels_products(kernels, &one, 0, WORKSPACE, &error), TANDEM_OK);
        assert_true(c[0] == 99);
        assert_int_equal(tandem_kernels_products(kernels, &one, BATCH, WORKSPACE, &error), TANDEM_OK);
        for (int i = 0; i < BATCH; i++) {
            one.a = a + i * M * K;
            one.b = b + i * K * N;
            one.c = want;
            assert_int_equal(tandem_kernels_product(kernels, &one, WORKSPACE, &error), TANDEM_OK);
            assert_memory_equal(c + i * M * N, want, sizeof want);
        }
        assert_true(c[BATCH * M * N] == 99);
        assert_refused_kernels(tandem_kernels_products(kernels, &one, -1, WORKSPACE, &error), &error,
                               "batch is -1");
    }
}

static void test_bad_arguments_of_products(void **state)
{
    const tandem_kernels *kernels = NULL;
    tandem_error error = {0};
    int8_t a[64] = {0}, b[64] = {0};
    float c[64];
    _Alignas(64) static char workspace[WORKSPACE + 1];
    assert_int_equal(tandem_kernels_open(&kernels, "best", &error), TANDEM_OK);
    const tandem_product_s8 good = {.m = 8,
                                    .n = 8,
                                    .k = 8,
                                    .a = a,
                                    .a_row = 8,
                                    .a_column = 1,
                                    .b = b,
                                    .b_row = 8,
                                    .b_column = 1,
                                    .c = c,
                                    .scale = 1,
                                    .workspace = workspace};
    size_t bytes = tandem_kernels_product_workspace(kernels, 8, 8, 8);
    assert_int_equal(tandem_kernels_product(kernels, &good, bytes, &error), TANDEM_OK);
    assert_refused_kernels(tandem_kernels_product(NULL, &good, bytes, &error), &error, "kernels is NULL");
    assert_refused_kernels(tandem_kernels_product(kernels, NULL, bytes, &error), &error, "call is NULL");
    assert_refused_kernels(tandem_kernels_product(kernels, &good, bytes - 1, &error), &error,
                           "workspace_bytes");
#define BAD(change, says)                                                                                    \
    do {                                                                                                     \
        tandem_product_s8 bad = good;                                                                        \
        bad.change;                                                                                          \
        assert_refused_kernels(tandem_kernels_product(kernels, &bad, bytes, &error), &error, says);          \
    } while (0)
    BAD(workspace = NULL, "workspace is NULL");
    BAD(workspace = workspace + 1, "not 64-byte aligned");
    BAD(a = NULL, "a is NULL");
    BAD(b = NULL, "b is NULL");
    BAD(c = NULL, "c is NULL");
    BAD(c = (char *)c + 2, "c is not aligned");
    BAD(m = -1, "a has");
    BAD(n = -1, "b has");
    BAD(k = -1, "a has");
    BAD(m = INT64_MAX, "a has");
    BAD(m = (int64_t)1 << 60, "larger than memory");
    BAD(a_row = -1, "strides of a");
    BAD(b_column = INT64_MIN, "strides of b");
    BAD(b_row = INT64_MAX, "larger than memory");
    BAD(c_row = 7, "rows of c");
    BAD(c_type = TANDEM_S8, "c_type");
    BAD(c_type = (tandem_dtype)-1, "c_type");
    BAD(c_type = TANDEM_S32; bad.accumulate = 1, "accumulate");
    BAD(bias = (const float *)(const void *)(a + 1), "bias is not aligned");
    BAD(row_scale = (const float *)(const void *)(a + 1), "row_scale is not aligned");
    BAD(column_scale = (const float *)(const void *)(a + 1), "column_scale is not aligned");
    bytes = sizeof workspace;
    BAD(k = TANDEM_PRODUCT_MAX_K + 1, "int32");
    assert_int_equal(tandem_kernels_product_workspace(kernels, 8, 8, TANDEM_PRODUCT_MAX_K + 1), 0);
    assert_int_equal(tandem_kernels_product_workspace(kernels, -8, 8, 8), 0);
    assert_int_equal(tandem_kernels_product_workspace(kernels, INT64_MAX, 8, 8), 0);
    assert_int_equal(tandem_kernels_product_workspace(NULL, 8, 8, 8), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_opening),
        cmocka_unit_test(test_quantise_by_its_definition),
        cmocka_unit_test(test_what_is_not_finite),
        cmocka_unit_test(test_nothing_to_scale),
        cmocka_unit_test(test_back_in_strides),
        cmocka_unit_test(test_history),
        cmocka_unit_test(test_the_products_of_a_linear_layer),
        cmocka_unit_test(test_threads_share_kernels),
        cmocka_unit_test(test_bad_arguments_of_rounding),
        cmocka_unit_test(test_column_sums),
        cmocka_unit_test(test_a_batch_of_products),
        cmocka_unit_test(test_bad_arguments_of_products),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
