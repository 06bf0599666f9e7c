/* folder: backend */
/* A layernorm, alone or of a sum, and a bias with gelu that write the codes of their result themselves: the
 * same bits as the operator and its cast alone, over a history that begins empty. On a card in build/card/,
 * as coroutines elsewhere. */
#include "backend/cuda/operator.h"
#include "tests/cuda/gpu.h"
#include "tests/support/tandem_test.h"

enum { CASTS = 6, WINDOW = 3 };
static const float epsilon = 1e-5f;

typedef struct coded_case {
    int is_gelu, has_residual, has_bias;
    size_t rows, columns;
    tandem_cuda_float type;
    tandem_cuda_code code;
    int is_transposed, is_stored; /* codes in both orders; floats, too */
} coded_case;

/* What one side writes, [0] with its own codes, [1] by the operator and the cast alone. */
typedef struct coded_side {
    unsigned char *y, *sum, *q, *transposed;
    float *moments, *scale;
    tandem_amax_history *history;
} coded_side;

typedef struct coded_arrays {
    void *x, *residual;
    float *bias, *scale, *shift;
    coded_side side[2];
    uint32_t *words;
} coded_arrays;

static void *coded_array(size_t bytes)
{
    void *memory = gpu_alloc_shared(bytes);
    assert_non_null(memory);
    return memory;
}

static size_t float_bytes(const coded_case *c) { return c->type == TANDEM_CUDA_F32 ? 4 : 2; }

/* In [−largest, largest). */
static void fill_coded(void *to, tandem_cuda_float type, size_t n, float largest, uint32_t which)
{
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t counter[4] = {i, which, 0, 0};
        const float x = largest * (2 * tandem_philox_uniform(tandem_philox(counter, 5).word[0]) - 1);
        if (type == TANDEM_CUDA_F32)
            ((float *)to)[i] = x;
        else
            ((uint16_t *)to)[i] = tandem_bf16_of(x);
    }
}

static coded_arrays coded_open(const coded_case *c)
{
    const size_t n = c->rows * c->columns, bytes = n * float_bytes(c), row = c->columns * sizeof(float);
    coded_arrays a = {.x = coded_array(bytes),
                      .residual = coded_array(bytes),
                      .bias = coded_array(row),
                      .scale = coded_array(row),
                      .shift = coded_array(row),
                      .words = coded_array(2 * sizeof(uint32_t))};
    for (int k = 0; k < 2; k++) {
        a.side[k] = (coded_side){coded_array(bytes),
                                 coded_array(bytes),
                                 coded_array(n),
                                 coded_array(n),
                                 coded_array(2 * c->rows * sizeof(float)),
                                 coded_array(sizeof(float)),
                                 coded_array(sizeof(tandem_amax_history))};
        assert_int_equal(tandem_amax_history_init(a.side[k].history, WINDOW, -1, NULL), TANDEM_OK);
    }
    memset(a.words, 0, 2 * sizeof(uint32_t));
    fill_coded(a.bias, TANDEM_CUDA_F32, c->columns, 1, 1);
    fill_coded(a.scale, TANDEM_CUDA_F32, c->columns, 2, 2);
    fill_coded(a.shift, TANDEM_CUDA_F32, c->columns, 1, 3);
    return a;
}

static void coded_close(const coded_arrays *a)
{
    assert_true(a->words[0] == 0 && a->words[1] == 0);
    void *const all[] = {a->x, a->residual, a->bias, a->scale, a->shift, a->words};
    for (size_t k = 0; k < sizeof all / sizeof *all; k++) gpu_free_shared(all[k]);
    for (int k = 0; k < 2; k++) {
        const coded_side *s = &a->side[k];
        void *const own[] = {s->y, s->sum, s->q, s->transposed, s->moments, s->scale, s->history};
        for (size_t i = 0; i < sizeof own / sizeof *own; i++) gpu_free_shared(own[i]);
    }
}

static tandem_cuda_delayed_cast coded_cast(const coded_case *c, const coded_arrays *a, int which,
                                           int reuse_range, const tandem_rounding *rounding)
{
    const coded_side *s = &a->side[which];
    return (tandem_cuda_delayed_cast){.to = {.code = c->code,
                                             .batch = 1,
                                             .rows = c->rows,
                                             .columns = c->columns,
                                             .q = s->q,
                                             .transposed_copy = c->is_transposed ? s->transposed : NULL,
                                             .scale = s->scale},
                                      .history = s->history,
                                      .reuse_range = reuse_range,
                                      .words = a->words,
                                      .rounding = rounding};
}

static void run_coded(const coded_case *c, const coded_arrays *a, int reuse_range, int may_lack_range,
                      const tandem_rounding *rounding)
{
    const coded_side *s = &a->side[0];
    tandem_cuda_delayed_cast cast = coded_cast(c, a, 0, reuse_range, rounding);
    cast.may_lack_range = may_lack_range;
    void *const y = c->is_stored ? s->y : NULL;
    const tandem_cuda_residual with = {c->has_residual ? a->residual : NULL, c->has_bias ? a->bias : NULL,
                                       c->has_residual ? s->sum : NULL};
    const int before = gpu_launches();
    if (c->is_gelu)
        assert_int_equal(tandem_cuda_bias_gelu_coded(&cast, y, a->x, c->type, a->bias, c->rows * c->columns,
                                                     c->columns, NULL),
                         0);
    else
        assert_int_equal(tandem_cuda_layernorm_coded(&cast, y, &with, a->x, c->type, a->scale, a->shift,
                                                     s->moments, s->moments + c->rows, c->rows, c->columns,
                                                     epsilon, NULL),
                         0);
    if (before >= 0) assert_int_equal(gpu_launches(), before + 1 + may_lack_range);
}

static void run_alone(const coded_case *c, const coded_arrays *a, int reuse_range,
                      const tandem_rounding *rounding)
{
    const coded_side *s = &a->side[1];
    const tandem_cuda_delayed_cast cast = coded_cast(c, a, 1, reuse_range, rounding);
    const tandem_cuda_residual with = {a->residual, c->has_bias ? a->bias : NULL, s->sum};
    float *const mean = s->moments, *const variance = mean + c->rows;
    if (c->is_gelu)
        assert_int_equal(
            tandem_cuda_bias_gelu(s->y, a->x, c->type, a->bias, c->rows * c->columns, c->columns, NULL), 0);
    else if (c->has_residual)
        assert_int_equal(tandem_cuda_add_layernorm(s->y, &with, a->x, c->type, a->scale, a->shift, mean,
                                                   variance, c->rows, c->columns, epsilon, NULL),
                         0);
    else
        assert_int_equal(tandem_cuda_layernorm(s->y, a->x, c->type, a->scale, a->shift, mean, variance,
                                               c->rows, c->columns, epsilon, NULL),
                         0);
    assert_int_equal(tandem_cuda_quantise_delayed(&cast, s->y, c->type, NULL), 0);
}

static void check_coded(const coded_case *c, const coded_arrays *a)
{
    const size_t n = c->rows * c->columns;
    const coded_side *own = &a->side[0], *right = &a->side[1];
    assert_memory_equal(own->history, right->history, tandem_amax_history_bytes(WINDOW));
    assert_memory_equal(own->scale, right->scale, sizeof(float));
    assert_memory_equal(own->q, right->q, n);
    if (c->is_transposed) assert_memory_equal(own->transposed, right->transposed, n);
    if (c->is_stored)
        assert_memory_equal(own->y, right->y, n * float_bytes(c));
    else
        for (size_t i = 0; i < n * float_bytes(c); i++) assert_int_equal(own->y[i], 0xA5);
    if (c->has_residual) assert_memory_equal(own->sum, right->sum, n * float_bytes(c));
    if (!c->is_gelu) assert_memory_equal(own->moments, right->moments, 2 * c->rows * sizeof(float));
}

/* Sizes come and go: the first cast has no range, nor has the one after a window of zeros; some outgrow
 * theirs. */
static void check_coded_case(const coded_case *c, int may_lack_range)
{
    static const float largest[CASTS] = {0, 1, 4, 0.5f, 0.01f, 3};
    const coded_arrays a = coded_open(c);
    for (int k = 0; k < CASTS; k++) {
        const tandem_rounding rounding = {77, {(uint32_t)k, 2, 3}, 0};
        fill_coded(a.x, c->type, c->rows * c->columns, largest[k], 10 + (uint32_t)k);
        fill_coded(a.residual, c->type, c->rows * c->columns, largest[k], 20 + (uint32_t)k);
        fill_coded(a.shift, TANDEM_CUDA_F32, c->columns, largest[k], 30 + (uint32_t)k);
        if (c->is_gelu) fill_coded(a.bias, TANDEM_CUDA_F32, c->columns, largest[k], 40 + (uint32_t)k);
        for (int reuse_range = 0; reuse_range < (k > 1 ? 2 : 1); reuse_range++) {
            run_coded(c, &a, reuse_range, may_lack_range, &rounding);
            run_alone(c, &a, reuse_range, &rounding);
            gpu_sync();
            check_coded(c, &a);
        }
    }
    coded_close(&a);
}

static void check_with_launches(const coded_case *c)
{
    for (int may_lack_range = 0; may_lack_range < 2; may_lack_range++) check_coded_case(c, may_lack_range);
}

/* Every way to hold a row, with tiles that are full and that are not. */
static void layernorms_write_the_codes_of_their_cast(void **state)
{
    static const coded_case cases[] = {
        {0, 0, 0, 48, 32, TANDEM_CUDA_BF16, TANDEM_CUDA_E4M3, 1, 0},
        {0, 1, 1, 80, 128, TANDEM_CUDA_BF16, TANDEM_CUDA_E4M3, 1, 1},
        {0, 1, 0, 16, 144, TANDEM_CUDA_F32, TANDEM_CUDA_E4M3, 1, 0},
        {0, 1, 1, 37, 264, TANDEM_CUDA_BF16, TANDEM_CUDA_S8, 0, 0},
        {0, 1, 1, 64, 768, TANDEM_CUDA_BF16, TANDEM_CUDA_E4M3, 1, 0},
        {0, 0, 0, 33, 776, TANDEM_CUDA_F32, TANDEM_CUDA_S8, 0, 1},
        {0, 0, 0, 48, 1024, TANDEM_CUDA_F32, TANDEM_CUDA_S8, 1, 0},
        {0, 1, 1, 1, 8, TANDEM_CUDA_BF16, TANDEM_CUDA_S8, 0, 1},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) check_with_launches(&cases[k]);
    (void)state;
}

static void biases_with_gelu_write_the_codes_of_their_cast(void **state)
{
    static const coded_case cases[] = {
        {1, 0, 1, 48, 144, TANDEM_CUDA_BF16, TANDEM_CUDA_E4M3, 1, 0},
        {1, 0, 1, 160, 256, TANDEM_CUDA_F32, TANDEM_CUDA_E4M3, 1, 1},
        {1, 0, 1, 37, 264, TANDEM_CUDA_BF16, TANDEM_CUDA_S8, 0, 1},
        {1, 0, 1, 64, 768, TANDEM_CUDA_F32, TANDEM_CUDA_S8, 1, 0},
        {1, 0, 1, 5, 8, TANDEM_CUDA_F32, TANDEM_CUDA_S8, 0, 0},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) check_with_launches(&cases[k]);
    (void)state;
}

/* What is not finite is seen in the scale, and the history stays as it is. */
static void codes_of_what_is_not_finite_have_no_scale(void **state)
{
    for (int is_gelu = 0; is_gelu < 2; is_gelu++)
        for (int way = 0; way < 4; way++) {
            const int known = way % 2;
            const coded_case c = {is_gelu, 0, 1, 32, 64, TANDEM_CUDA_F32, TANDEM_CUDA_E4M3, 1, 0};
            const coded_arrays a = coded_open(&c);
            tandem_amax_history before;
            if (known) assert_int_equal(tandem_amax_history_add(a.side[0].history, 2, NULL), TANDEM_OK);
            memcpy(&before, a.side[0].history, tandem_amax_history_bytes(WINDOW));
            fill_coded(a.x, c.type, c.rows * c.columns, 1, 9);
            ((float *)a.x)[17 * c.columns + 3] = INFINITY;
            run_coded(&c, &a, 0, way / 2, NULL);
            gpu_sync();
            assert_true(isnan(*a.side[0].scale));
            assert_memory_equal(a.side[0].history, &before, tandem_amax_history_bytes(WINDOW));
            coded_close(&a);
        }
    (void)state;
}

/* Rows that no kernel keeps, types and codes that it has none for. */
static void other_codes_are_refused(void **state)
{
    const coded_case c = {0, 0, 0, 16, 16, TANDEM_CUDA_F32, TANDEM_CUDA_E4M3, 0, 0};
    const coded_arrays a = coded_open(&c);
    const tandem_cuda_residual none = {NULL};
    tandem_cuda_delayed_cast cast = coded_cast(&c, &a, 0, 0, NULL);
    static const size_t columns[] = {12, 1032};
    for (int k = 0; k < 2; k++)
        assert_int_not_equal(tandem_cuda_layernorm_coded(&cast, NULL, &none, a.x, TANDEM_CUDA_F32, a.scale,
                                                         a.shift, a.side[0].moments, a.side[0].moments, 1,
                                                         columns[k], epsilon, NULL),
                             0);
    assert_int_not_equal(tandem_cuda_bias_gelu_coded(&cast, NULL, a.x, TANDEM_CUDA_F16, a.bias, 32, 16, NULL),
                         0);
    cast.to.code = TANDEM_CUDA_E5M2;
    assert_int_not_equal(tandem_cuda_bias_gelu_coded(&cast, NULL, a.x, TANDEM_CUDA_F32, a.bias, 32, 16, NULL),
                         0);
    coded_close(&a);
    (void)state;
}

int main(void)
{
    if (skip_without_gpu()) return 0;
    const struct CMUnitTest tests[] = {cmocka_unit_test(layernorms_write_the_codes_of_their_cast),
                                       cmocka_unit_test(biases_with_gelu_write_the_codes_of_their_cast),
                                       cmocka_unit_test(codes_of_what_is_not_finite_have_no_scale),
                                       cmocka_unit_test(other_codes_are_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
