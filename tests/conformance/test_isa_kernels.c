/* folder: backend */
/* The kernels of every instruction set this machine can run, against plain C: bit for bit. */
#include <inttypes.h>
#include <float.h>

#include "base/philox.h"
#include "kernels/cpu/isa_kernels.h"
#include "tests/support/tandem_test.h"

enum { N_TABLES = 8, N_SIZES = 11, LARGEST = 4099, GUARD = 64, GUARD_BYTE = 0xA5 };

static const size_t sizes[N_SIZES] = {0, 1, 7, 8, 9, 63, 64, 65, 257, 1000, LARGEST};
static const char *const names[N_TABLES] = {"sse41",  "avx",         "avx2",        "avx2_vnni",
                                            "avx512", "avx512_vnni", "avx512_bf16", "avx512_amx"};

/* --- What runs here ------------------------------------------------------------------------------------- */

/* Whether this machine has what the table's functions are compiled with. */
static int runs_here(const char *name)
{
    const tandem_kernels *with_tiles = NULL;
    __builtin_cpu_init();
    if (strcmp(name, "avx512_amx") == 0) /* Linux has a say in it */
        return tandem_kernels_open(&with_tiles, name, NULL) == TANDEM_OK;
    if (strcmp(name, "sse41") == 0) return __builtin_cpu_supports("sse4.1");
    if (strcmp(name, "avx") == 0) return __builtin_cpu_supports("avx");
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return 0;
    if (strcmp(name, "avx2") == 0) return 1;
#ifndef __clang__ /* clang-tidy 14 does not know the word; what is tested is compiled by gcc */
    if (strcmp(name, "avx2_vnni") == 0) return __builtin_cpu_supports("avxvnni");
#endif
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512cd") &&
           (strcmp(name, "avx512") == 0 || __builtin_cpu_supports("avx512vnni"));
}

/* The next table that can run, or NULL; `at` counts through `names`. */
static const tandem_isa_kernels *next_table(int *at)
{
    while (*at < N_TABLES) {
        const char *name = names[(*at)++];
        if (runs_here(name)) {
            const tandem_isa_kernels *table = tandem_isa_kernels_find(name);
            assert_non_null(table);
            assert_string_equal(table->isa, name);
            return table;
        }
    }
    return NULL;
}

/* Every table that can run, with every size. */
static void every_size(void (*check)(const tandem_isa_kernels *table, size_t n))
{
    const tandem_isa_kernels *table;
    for (int at = 0; (table = next_table(&at));)
        for (int s = 0; s < N_SIZES; s++) check(table, sizes[s]);
}

/* --- Memory with guards --------------------------------------------------------------------------------- */

/* `bytes` bytes, one element past any alignment, between guards; everything is GUARD_BYTE at first. */
typedef struct guarded {
    unsigned char *whole;
    size_t bytes, start;
    void *at;
} guarded;

static guarded guarded_new(size_t bytes, size_t element)
{
    guarded made = {.bytes = bytes, .start = GUARD + element};
    made.whole = malloc(bytes + 2 * GUARD + element);
    assert_non_null(made.whole);
    memset(made.whole, GUARD_BYTE, bytes + 2 * GUARD + element);
    made.at = made.whole + made.start;
    return made;
}

static void guarded_free(guarded *memory)
{
    for (size_t i = 0; i < memory->start; i++) assert_int_equal(memory->whole[i], GUARD_BYTE);
    for (size_t i = 0; i < GUARD; i++)
        assert_int_equal(memory->whole[memory->start + memory->bytes + i], GUARD_BYTE);
    free(memory->whole);
    *memory = (guarded){0};
}

/* --- Numbers -------------------------------------------------------------------------------------------- */

static uint32_t word(uint32_t i, uint32_t purpose)
{
    const uint32_t counter[4] = {i / 4, 0, 0, purpose};
    return tandem_philox(counter, 2024).word[i % 4];
}

static float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float widened(uint16_t half) { return float_of((uint32_t)half << 16); }

/* To nearest, ties to even, from the distance to the two neighbours; NaN stays NaN. */
static uint16_t narrowed(float value)
{
    const uint32_t bits = bits_of(value);
    if (isnan(value)) return (uint16_t)(bits >> 16 | 0x40);
    const uint32_t below = bits & 0xFFFF;
    const uint32_t up = below > 0x8000 || (below == 0x8000 && (bits >> 16 & 1));
    return (uint16_t)((bits >> 16) + up);
}

/* Between −4 and 4. */
static void fill_f32(float *x, size_t n, uint32_t purpose)
{
    for (size_t i = 0; i < n; i++) x[i] = (tandem_philox_uniform(word((uint32_t)i, purpose)) - 0.5f) * 8;
}

static void fill_bf16(uint16_t *x, size_t n, uint32_t purpose)
{
    for (size_t i = 0; i < n; i++)
        x[i] = narrowed((tandem_philox_uniform(word((uint32_t)i, purpose)) - 0.5f) * 8);
}

static void fill_s8(int8_t *x, size_t n, uint32_t purpose)
{
    for (size_t i = 0; i < n; i++) x[i] = (int8_t)((int)(word((uint32_t)i, purpose) % 255) - 127);
}

static void assert_same_f32(const char *isa, const char *what, const float *got, const float *want, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (bits_of(got[i]) != bits_of(want[i]))
            fail_msg("%s %s, n = %zu: element %zu is %a, not %a", isa, what, n, i, (double)got[i],
                     (double)want[i]);
    }
}

static void assert_same_bf16(const char *isa, const char *what, const uint16_t *got, const uint16_t *want,
                             size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (got[i] != want[i])
            fail_msg("%s %s, n = %zu: element %zu is 0x%04x, not 0x%04x", isa, what, n, i, got[i], want[i]);
    }
}

static void assert_same_s8(const char *isa, const char *what, const int8_t *got, const int8_t *want, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (got[i] != want[i])
            fail_msg("%s %s, n = %zu: element %zu is %d, not %d", isa, what, n, i, got[i], want[i]);
    }
}

/* What a kernel writes in f32 and its twin in bf16, n elements each. */
typedef struct twins {
    guarded wide, half;
} twins;

static twins twins_new(size_t n)
{
    return (twins){guarded_new(n * sizeof(float), sizeof(float)),
                   guarded_new(n * sizeof(uint16_t), sizeof(uint16_t))};
}

static void twins_free(twins *y)
{
    guarded_free(&y->wide);
    guarded_free(&y->half);
}

static void assert_same_twins(const char *isa, const char *what, const void *wide, const void *half,
                              const float *want, const uint16_t *want_half, size_t n)
{
    assert_same_f32(isa, what, wide, want, n);
    assert_same_bf16(isa, what, half, want_half, n);
}

/* --- The table, the generator --------------------------------------------------------------------------- */

static void test_every_set_has_a_table(void **state)
{
    for (int i = 0; i < N_TABLES; i++) {
        const tandem_isa_kernels *table = tandem_isa_kernels_find(names[i]);
        assert_non_null(table);
        assert_string_equal(table->isa, names[i]);
        const int has_wide_vnni = strncmp(names[i], "avx512_", 7) == 0,
                  has_tiles = strcmp(names[i], "avx512_amx") == 0;
        assert_int_equal(table->uses_onednn_int8, has_wide_vnni);
        assert_int_equal(table->has_tiles, has_tiles);
        assert_int_equal(table->multiplies_bf16, has_tiles || strcmp(names[i], "avx512_bf16") == 0);
        if (!runs_here(names[i])) print_message("SKIP: this machine cannot run %s\n", names[i]);
    }
    assert_null(tandem_isa_kernels_find("avx3"));
    assert_null(tandem_isa_kernels_find(""));
}

/* The vectors that Random123 1.x publishes (kat_vectors). */
static void test_philox_gives_the_published_answers(void **state)
{
    static const struct {
        uint32_t counter[4];
        uint64_t key;
        uint32_t answer[4];
    } known[] = {
        {{0, 0, 0, 0}, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         0xffffffffffffffff,
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         0x299f31d0a4093822,
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const tandem_philox_block block = tandem_philox(known[i].counter, known[i].key);
        assert_memory_equal(block.word, known[i].answer, sizeof known[i].answer);
    }
}

/* --- amax ----------------------------------------------------------------------------------------------- */

static void amax_of_isa_kernels(const tandem_isa_kernels *table, size_t n)
{
    float x[LARGEST];
    uint16_t half[LARGEST];
    fill_f32(x, n, 1);
    fill_bf16(half, n, 2);
    float want = 0, want_half = 0;
    for (size_t i = 0; i < n; i++) {
        want = fmaxf(want, fabsf(x[i]));
        want_half = fmaxf(want_half, fabsf(widened(half[i])));
    }
    assert_true(bits_of(table->amax_f32(x, n)) == bits_of(want));
    assert_true(bits_of(table->amax_bf16(half, n)) == bits_of(want_half));
    if (n == 0) return;
    const size_t middle = n * 3 / 4;
    x[middle] = -INFINITY;
    half[middle] = narrowed(-INFINITY);
    assert_true(table->amax_f32(x, n) == INFINITY && table->amax_bf16(half, n) == INFINITY);
    x[n - 1] = -NAN;
    half[n - 1] = narrowed(-NAN);
    assert_true(isnan(table->amax_f32(x, n)) && isnan(table->amax_bf16(half, n)));
}

static void test_amax_is_the_largest_magnitude(void **state)
{
    every_size(amax_of_isa_kernels);
    const tandem_isa_kernels *table;
    for (int at = 0; (table = next_table(&at));) {
        const float negative_zero = -0.0f;
        assert_true(bits_of(table->amax_f32(&negative_zero, 1)) == 0);
    }
}

/* --- Stochastic rounding -------------------------------------------------------------------------------- */

static int8_t rounded_isa_kernels(float x, size_t i, float inv_scale, const tandem_rounding *rounding)
{
    const uint32_t counter[4] = {rounding->block + (uint32_t)(i / 8), rounding->stream[0],
                                 rounding->stream[1], rounding->stream[2]};
    const tandem_philox_block block = tandem_philox(counter, rounding->seed);
    const uint32_t draw = block.word[i % 8 / 2] >> 16 * (i % 2) & 0xFFFF;
    const float steps = x * inv_scale;
    const float sum = steps + ((float)draw + 0.5f) / 65536;
    if (isnan(sum)) return -127;
    const float low = floorf(sum);
    return (int8_t)(low > 127 ? 127 : low < -127 ? -127 : low);
}

/* Some values at and beyond the bounds, among ordinary ones. */
static void fill_extreme(float *x, size_t n, uint32_t purpose)
{
    static const float special[] = {0,      -0.0f,   127,    -127,  127.5f, -127.5f,   126.99999f,
                                    128,    -128,    3e9f,   -3e9f, 1e38f,  -1e38f,    INFINITY,
                                    1e-40f, -1e-40f, -1e-8f, NAN,   -NAN,   -INFINITY, 0.999999f};
    for (size_t i = 0; i < n; i++) x[i] = (tandem_philox_uniform(word((uint32_t)i, purpose)) - 0.5f) * 300;
    for (size_t i = 0; i < n; i += 3) x[i] = special[i / 3 % (sizeof special / sizeof *special)];
}

static int8_t to_nearest(float x, float inv_scale)
{
    const float steps = rintf(x * inv_scale);
    return (int8_t)(steps > 127 ? 127 : steps >= -127 ? steps : -127);
}

/* rounding: NULL = to nearest, where ties matter. */
static void quantise_of(const tandem_isa_kernels *table, size_t n, float inv_scale,
                        const tandem_rounding *rounding)
{
    float x[LARGEST];
    uint16_t half[LARGEST];
    int8_t want[LARGEST], want_half[LARGEST];
    fill_extreme(x, n, 3);
    for (size_t i = 1; i < n && !rounding; i += 3) x[i] = (float)(i % 255) - 127.5f; /* ties */
    for (size_t i = 0; i < n; i++) {
        half[i] = narrowed(x[i]);
        want[i] = rounding ? rounded_isa_kernels(x[i], i, inv_scale, rounding) : to_nearest(x[i], inv_scale);
        want_half[i] = rounding ? rounded_isa_kernels(widened(half[i]), i, inv_scale, rounding)
                                : to_nearest(widened(half[i]), inv_scale);
    }
    guarded q = guarded_new(n, 1), q_half = guarded_new(n, 1);
    if (rounding) {
        table->quantise_f32(q.at, x, n, inv_scale, rounding);
        table->quantise_bf16(q_half.at, half, n, inv_scale, rounding);
    } else {
        table->quantise_nearest_f32(q.at, x, n, inv_scale);
        table->quantise_nearest_bf16(q_half.at, half, n, inv_scale);
    }
    assert_same_s8(table->isa, rounding ? "quantise_f32" : "quantise_nearest_f32", q.at, want, n);
    assert_same_s8(table->isa, rounding ? "quantise_bf16" : "quantise_nearest_bf16", q_half.at, want_half, n);
    guarded_free(&q);
    guarded_free(&q_half);
}

static void every_size_and_scale(const tandem_rounding *rounding)
{
    static const float inv_scales[] = {1, 0.37f, 1e-3f, 0};
    const tandem_isa_kernels *table;
    for (int at = 0; (table = next_table(&at));)
        for (int s = 0; s < N_SIZES * 4; s++) quantise_of(table, sizes[s / 4], inv_scales[s % 4], rounding);
}

static void test_quantise_gives_the_bits_of_its_definition(void **state)
{
    const tandem_rounding rounding = {0xfedcba9876543210, {7, 0xffffffff, 2 | 3 << 8}, 0xfffffd00};
    every_size_and_scale(&rounding);
}

static void test_quantise_to_nearest(void **state) { every_size_and_scale(NULL); }

static void test_transpose(void **state)
{
    static const int64_t shapes[][2] = {{0, 5},   {5, 0},   {1, 1},    {16, 16},
                                        {17, 33}, {64, 48}, {130, 70}, {3, 200}};
    const tandem_isa_kernels *table;
    for (int at = 0; (table = next_table(&at));) {
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
            const int64_t rows = shapes[s][0], columns = shapes[s][1], from_row = columns + 3,
                          to_row = rows + 5;
            int8_t from[130 * 204];
            fill_s8(from, (size_t)(rows * from_row), 31);
            guarded to = guarded_new((size_t)(columns * to_row), 1);
            table->transpose_s8(to.at, to_row, from, from_row, rows, columns);
            for (int64_t j = 0; j < columns; j++)
                for (int64_t i = 0; i < to_row; i++)
                    assert_int_equal(((const int8_t *)to.at)[j * to_row + i],
                                     i < rows ? from[i * from_row + j] : (int8_t)GUARD_BYTE);
            guarded_free(&to);
        }
    }
}

/* x = 1 − u_i reaches 1 exactly; 2^−17 less does not. */
static void test_quantise_turns_at_each_draw(void **state)
{
    const tandem_rounding rounding = {5, {1, 2, 3}, 0};
    float at_turn[LARGEST], before[LARGEST];
    int8_t q[LARGEST];
    for (size_t i = 0; i < LARGEST; i++) {
        const uint32_t counter[4] = {(uint32_t)(i / 8), 1, 2, 3};
        const uint32_t draw = tandem_philox(counter, 5).word[i % 8 / 2] >> 16 * (i % 2) & 0xFFFF;
        at_turn[i] = 1 - ((float)draw + 0.5f) / 65536;
        before[i] = at_turn[i] - 0x1p-17f;
    }
    const tandem_isa_kernels *table;
    for (int at = 0; (table = next_table(&at));) {
        table->quantise_f32(q, at_turn, LARGEST, 1, &rounding);
        for (size_t i = 0; i < LARGEST; i++) assert_int_equal(q[i], 1);
        table->quantise_f32(q, before, LARGEST, 1, &rounding);
        for (size_t i = 0; i < LARGEST; i++) assert_int_equal(q[i], 0);
    }
}

/* The mean of n draws lies within 4 standard deviations, sqrt(f(1 − f)/n), and the 2^−17 of the definition.
 * */
static void test_quantise_is_unbiased(void **state)
{
    enum { N = 100000 };
    static const double fractions[] = {0.001, 0.25, 0.5, 0.999};
    float *x = malloc(N * sizeof *x);
    int8_t *q = malloc(N);
    assert_non_null(x);
    assert_non_null(q);
    const tandem_isa_kernels *table;
    for (int at = 0; (table = next_table(&at));) {
        for (int f = 0; f < 8; f++) {
            const double fraction = fractions[f / 2];
            const float value = (float)((f % 2 ? -1 : 1) * (3 + fraction));
            const tandem_rounding rounding = {99, {1, (uint32_t)f, 0}, 0};
            for (int i = 0; i < N; i++) x[i] = value;
            table->quantise_f32(q, x, N, 1, &rounding);
            double sum = 0;
            for (int i = 0; i < N; i++) {
                assert_true(q[i] == floorf(value) || q[i] == ceilf(value));
                sum += q[i];
            }
            const double bound = 4 * sqrt(fraction * (1 - fraction) / N) + 0x1p-17;
            if (fabs(sum / N - (double)value) > bound)
                fail_msg("%s: the mean of %g is %g, over %g away", table->isa, (double)value, sum / N, bound);
        }
    }
    free(x);
    free(q);
}

/* --- Changes of type ------------------------------------------------------------------------------------ */

static void test_dequantise(void **state)
{
    int8_t q[LARGEST];
    float want[LARGEST];
    uint16_t want_half[LARGEST];
    static const float scales[] = {0.0123f, -0.5f, INFINITY, NAN, 0, 1e-40f, 3e38f};
    const tandem_isa_kernels *table;
    for (int at = 0; (table = next_table(&at));) {
        for (int s = 0; s < N_SIZES * 14; s++) {
            const size_t n = sizes[s / 14];
            const float scale = scales[s % 7];
            fill_s8(q, n, 4);
            for (size_t i = 600; i < n && s % 14 > 6; i += 997)
                q[i] = -128; /* never made, but a byte all the same */
            for (size_t i = 0; i < n; i++) {
                want[i] = (float)q[i] * scale;
                want_half[i] = narrowed(want[i]);
            }
            twins y = twins_new(n);
            table->dequantise_f32(y.wide.at, q, n, scale);
            table->dequantise_bf16(y.half.at, q, n, scale);
            assert_same_f32(table->isa, "dequantise_f32", y.wide.at, want, n);
            assert_same_bf16(table->isa, "dequantise_bf16", y.half.at, want_half, n);
            twins_free(&y);
        }
    }
}

static void test_every_bf16_widens_and_comes_back(void **state)
{
    enum { ALL = 65536 };
    uint16_t *half = malloc(ALL * sizeof *half), *back = malloc(ALL * sizeof *back);
    float *wide = malloc(ALL * sizeof *wide);
    assert_true(half && back && wide);
    const tandem_isa_kernels *table;
    for (int at = 0; (table = next_table(&at));) {
        for (uint32_t i = 0; i < ALL; i++) half[i] = (uint16_t)i;
        table->f32_from_bf16(wide, half, ALL);
        table->bf16_from_f32(back, wide, ALL);
        for (uint32_t i = 0; i < ALL; i++) {
            assert_true(bits_of(wide[i]) == i << 16);
            assert_int_equal(back[i], isnan(wide[i]) ? i | 0x40 : i);
        }
    }
    free(half);
    free(back);
    free(wide);
}

static void narrow_of(const tandem_isa_kernels *table, size_t n)
{
    /* Ties on both sides, a carry into the exponent and to infinity, denormals, NaNs whose payload is low. */
    static const uint32_t special[] = {0x3f808000, 0x3f818000, 0x3f807fff, 0x3f808001, 0x3fffffff,
                                       0x7f7fffff, 0x7f7f8000, 0x7f7f7fff, 0x00000001, 0x00008000,
                                       0x00008001, 0x80018000, 0x7f800000, 0xff800000, 0x7f800001,
                                       0xffffffff, 0x7fc00000, 0x80000000};
    float x[LARGEST];
    uint16_t want[LARGEST];
    for (size_t i = 0; i < n; i++) {
        const uint32_t bits =
            i % 4 ? word((uint32_t)i, 5) : special[i / 4 % (sizeof special / sizeof *special)];
        x[i] = float_of(bits);
        want[i] = narrowed(x[i]);
    }
    guarded y = guarded_new(n * sizeof(uint16_t), sizeof(uint16_t));
    table->bf16_from_f32(y.at, x, n);
    assert_same_bf16(table->isa, "bf16_from_f32", y.at, want, n);
    guarded_free(&y);
}

static void test_bf16_rounds_to_nearest_even(void **state)
{
    every_size(narrow_of);
    assert_int_equal(narrowed(float_of(0x3f808000)), 0x3f80); /* the reference itself, on two ties */
    assert_int_equal(narrowed(float_of(0x3f818000)), 0x3f82);
}

/* --- Elementwise ---------------------------------------------------------------------------------------- */

static void add_of(const tandem_isa_kernels *table, size_t n)
{
    float a[LARGEST], b[LARGEST], want[LARGEST];
    uint16_t a_half[LARGEST], b_half[LARGEST], want_half[LARGEST];
    fill_f32(a, n, 6);
    fill_f32(b, n, 7);
    fill_bf16(a_half, n, 8);
    fill_bf16(b_half, n, 9);
    for (size_t i = 0; i < n; i++) {
        want[i] = a[i] + b[i];
        want_half[i] = narrowed(widened(a_half[i]) + widened(b_half[i]));
    }
    twins y = twins_new(n);
    table->add_f32(y.wide.at, a, b, n);
    table->add_bf16(y.half.at, a_half, b_half, n);
    assert_same_f32(table->isa, "add_f32", y.wide.at, want, n);
    assert_same_bf16(table->isa, "add_bf16", y.half.at, want_half, n);
    table->add_f32(a, a, b, n);
    table->add_bf16(b_half, a_half, b_half, n);
    assert_same_twins(table->isa, "add in place", a, b_half, want, want_half, n);
    for (size_t i = 0; i < n; i++) want_half[i] = narrowed(widened(a_half[i]) + b[i]);
    memcpy(y.half.at, a_half, n * sizeof *a_half);
    table->add_f32_to_bf16(y.half.at, b, n);
    assert_same_bf16(table->isa, "add_f32_to_bf16", y.half.at, want_half, n);
    twins_free(&y);
}

static void test_add(void **state) { every_size(add_of); }

static void relu_of(const tandem_isa_kernels *table, size_t n)
{
    static const float special[] = {0, -0.0f, INFINITY, -INFINITY, 1e-40f, -1e-40f};
    float x[LARGEST], gy[LARGEST], want[LARGEST], want_gradient[LARGEST];
    uint16_t half[LARGEST], gy_half[LARGEST], want_half[LARGEST], want_gradient_half[LARGEST];
    fill_f32(x, n, 10);
    fill_f32(gy, n, 11);
    fill_bf16(gy_half, n, 12);
    for (size_t i = 0; i < n; i += 5) x[i] = special[i / 5 % 6];
    for (size_t i = 0; i < n; i++) {
        half[i] = narrowed(x[i]);
        want[i] = x[i] < 0 ? 0 : x[i];
        want_half[i] = widened(half[i]) < 0 ? 0 : half[i];
        want_gradient[i] = x[i] > 0 ? gy[i] : 0;
        want_gradient_half[i] = widened(half[i]) > 0 ? gy_half[i] : 0;
    }
    twins y = twins_new(n);
    table->relu_f32(y.wide.at, x, n);
    table->relu_bf16(y.half.at, half, n);
    assert_same_f32(table->isa, "relu_f32", y.wide.at, want, n);
    assert_same_bf16(table->isa, "relu_bf16", y.half.at, want_half, n);
    table->relu_backward_f32(y.wide.at, gy, x, n);
    table->relu_backward_bf16(y.half.at, gy_half, half, n);
    assert_same_f32(table->isa, "relu_backward_f32", y.wide.at, want_gradient, n);
    assert_same_bf16(table->isa, "relu_backward_bf16", y.half.at, want_gradient_half, n);
    twins_free(&y);
}

static void test_relu_and_its_gradient(void **state)
{
    every_size(relu_of);
    const tandem_isa_kernels *table;
    for (int at = 0; (table = next_table(&at));) {
        const float nan = -NAN;
        const uint16_t nan_half = narrowed(nan);
        float y;
        uint16_t y_half;
        table->relu_f32(&y, &nan, 1);
        table->relu_bf16(&y_half, &nan_half, 1);
        assert_true(isnan(y) && isnan(widened(y_half))); /* a NaN is passed on, to be seen */
    }
}

/* Against the generator itself, from places within and at the ends of a group, and beyond 2^35, where the
 * block's index has more than 32 bits. */
static void test_dropout(void **state)
{
    static const uint64_t firsts[] = {0, 1, 63, 130, (UINT64_C(1) << 35) - 5};
    float x[LARGEST], want[LARGEST];
    uint16_t half[LARGEST], want_half[LARGEST];
    fill_f32(x, LARGEST, 21);
    fill_bf16(half, LARGEST, 22);
    x[3] = INFINITY; /* what is dropped is 0, whatever it was */
    const tandem_isa_kernels *table;
    for (int at = 0; (table = next_table(&at));)
        for (size_t f = 0; f < sizeof firsts / sizeof *firsts; f++)
            for (int s = 0; s < N_SIZES; s++) {
                const size_t n = sizes[s];
                const tandem_dropout mask = {77, firsts[f], {5, 9, TANDEM_RNG_DROPOUT}, 0x4000, 4.0f / 3};
                size_t dropped = 0;
                for (size_t i = 0; i < n; i++) {
                    const uint64_t e = firsts[f] + i, block = e / 8;
                    const uint32_t counter[4] = {(uint32_t)block, 5, 9,
                                                 TANDEM_RNG_DROPOUT | (uint32_t)(block >> 32) << 8};
                    const uint32_t drawn = tandem_philox(counter, 77).word[e / 2 % 4];
                    const int drops = (e % 2 ? drawn >> 16 : drawn & 0xFFFF) < mask.threshold;
                    dropped += (size_t)drops;
                    want[i] = drops ? 0 : mask.scale * x[i];
                    want_half[i] = drops ? 0 : narrowed(mask.scale * widened(half[i]));
                }
                twins y = twins_new(n);
                table->dropout_f32(y.wide.at, x, n, &mask);
                table->dropout_bf16(y.half.at, half, n, &mask);
                assert_same_f32(table->isa, "dropout_f32", y.wide.at, want, n);
                assert_same_bf16(table->isa, "dropout_bf16", y.half.at, want_half, n);
                if (n >= 1000) assert_true(dropped > n / 5 && dropped < n * 3 / 10);
                twins_free(&y);
            }
}

static void test_bias_and_its_gradient(void **state)
{
    static const size_t periods[] = {1, 3, 10, 16, 65, 500};
    enum { MAX = 500 * 37 };
    static float x[MAX], want[MAX], bias[500], sum[500], sum_half[500];
    static uint16_t half[MAX], want_half[MAX];
    const tandem_isa_kernels *table;
    for (int at = 0; (table = next_table(&at));) {
        for (int s = 0; s < 24; s++) {
            const size_t period = periods[s / 4], rows = (size_t[]){0, 1, 6, 37}[s % 4], n = period * rows;
            fill_f32(x, n, 13);
            fill_bf16(half, n, 14);
            fill_f32(bias, period, 15);
            memset(sum, 0, sizeof sum);
            memset(sum_half, 0, sizeof sum_half);
            for (size_t i = 0; i < n; i++) {
                want[i] = x[i] + bias[i % period];
                want_half[i] = narrowed(widened(half[i]) + bias[i % period]);
                sum[i % period] += x[i];
                sum_half[i % period] += widened(half[i]);
            }
            twins y = twins_new(n);
            guarded total = guarded_new(period * sizeof(float), sizeof(float));
            table->bias_f32(y.wide.at, x, bias, n, period);
            table->bias_bf16(y.half.at, half, bias, n, period);
            assert_same_f32(table->isa, "bias_f32", y.wide.at, want, n);
            assert_same_bf16(table->isa, "bias_bf16", y.half.at, want_half, n);
            table->column_sum_f32(total.at, x, n, period);
            assert_same_f32(table->isa, "column_sum_f32", total.at, sum, period);
            const size_t first = n / period / 2 * period; /* in two parts */
            table->column_sum_f32(total.at, x, first, period);
            table->add_rows_f32(total.at, x + first, n - first, period);
            assert_same_f32(table->isa, "add_rows_f32", total.at, sum, period);
            table->column_sum_bf16(total.at, half, n, period);
            assert_same_f32(table->isa, "column_sum_bf16", total.at, sum_half, period);
            table->bias_f32(x, x, bias, n, period);
            table->bias_bf16(half, half, bias, n, period);
            assert_same_twins(table->isa, "bias in place", x, half, want, want_half, n);
            twins_free(&y);
            guarded_free(&total);
        }
    }
}

/* --- Batchnorm ------------------------------------------------------------------------------------------ */

/* What it writes, forward and backward, in one row of floats and one of bf16, after another. */
enum {
    NORM_ELEMENTS = 641 * 64,
    NORM_CHANNELS = 2100,
    NORM_BYTES = 3 * 4 * NORM_ELEMENTS + 4 * 4 * NORM_CHANNELS
};

static float norm_draw(size_t i, uint32_t what)
{
    return 4 * tandem_philox_uniform(tandem_philox((const uint32_t[4]){(uint32_t)i, what, 0, 0}, 5).word[0]) -
           1;
}

/* What follows the norm: nothing, a rectifier, a sum; of that its gradients in the same type, or both
 * in the other. */
enum { NORM_ALONE, NORM_RECTIFIED, NORM_SUM, NORM_SUM_OTHER, N_NORM };

/* Of a matrix of `width` channels, those from `from` on. */
static void run_norm(const tandem_isa_kernels *isa, size_t rows, size_t channels, size_t from, size_t width,
                     int form, int narrow, unsigned char *written)
{
    static float x[NORM_ELEMENTS], g[NORM_ELEMENTS], scale[NORM_CHANNELS], shift[NORM_CHANNELS],
        workspace[7 * NORM_CHANNELS];
    static uint16_t x16[NORM_ELEMENTS], g16[NORM_ELEMENTS];
    for (size_t i = 0; i < rows * channels; i++) {
        const size_t place = i / channels * width + from + i % channels;
        x[i] = norm_draw(place, 0), g[i] = norm_draw(place, 1);
    }
    for (size_t j = 0; j < channels; j++)
        scale[j] = norm_draw(from + j, 2), shift[j] = norm_draw(from + j, 3) - 1;
    isa->bf16_from_f32(x16, x, rows * channels);
    isa->bf16_from_f32(g16, g, rows * channels);
    float *const y = (float *)(void *)written, *const gx = y + NORM_ELEMENTS,
                 *const gresidual = gx + NORM_ELEMENTS, *const statistics = gresidual + NORM_ELEMENTS;
    uint16_t *const y16 = (uint16_t *)(void *)y;
    const tandem_batchnorm norm = {.rows = rows,
                                   .channels = channels,
                                   .has_relu = form == NORM_RECTIFIED,
                                   .epsilon = 1e-5f,
                                   .scale = scale,
                                   .shift = shift,
                                   .mean = statistics,
                                   .variance = statistics + NORM_CHANNELS,
                                   .workspace = workspace};
    float *const gscale = statistics + (size_t)2 * NORM_CHANNELS, *const gshift = gscale + NORM_CHANNELS;
    const int gradients_are_narrow = narrow != (form == NORM_SUM_OTHER);
    const tandem_batchnorm_gradients out = {.x = gx,
                                            .residual = gresidual,
                                            .x_is_bf16 = gradients_are_narrow,
                                            .residual_is_bf16 = gradients_are_narrow,
                                            .scale = gscale,
                                            .shift = gshift};
    if (form >= NORM_SUM && narrow) { /* g, for a residual */
        isa->batchnorm_add_bf16(&norm, y16, x16, g16);
        isa->batchnorm_add_backward_bf16(&norm, &out, g16, x16, y16);
    } else if (form >= NORM_SUM) {
        isa->batchnorm_add_f32(&norm, y, x, g);
        isa->batchnorm_add_backward_f32(&norm, &out, g, x, y);
    } else if (narrow) {
        isa->batchnorm_bf16(&norm, y16, x16);
        isa->batchnorm_backward_bf16(&norm, &out, g16, x16);
    } else {
        isa->batchnorm_f32(&norm, y, x);
        isa->batchnorm_backward_f32(&norm, &out, g, x);
    }
}

/* That they are right is the operator's test; here, that every table writes the same bits. */
static void test_batchnorm_has_the_same_bits_everywhere(void **state)
{
    static const size_t shapes[][2] = {{1, 1}, {7, 3}, {13, 33}, {8191, 5}, {641, 64}, {67, 512}, {19, 2100}};
    static unsigned char first[NORM_BYTES], written[NORM_BYTES];
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int form = 0; form < 2 * N_NORM; form++) {
            int n_run = 0, at = 0;
            for (const tandem_isa_kernels *isa; (isa = next_table(&at)); n_run++) {
                unsigned char *const to = n_run ? written : first;
                memset(to, 0, NORM_BYTES);
                run_norm(isa, shapes[s][0], shapes[s][1], 0, shapes[s][1], form / 2, form % 2, to);
                if (n_run && memcmp(first, written, NORM_BYTES) != 0)
                    fail_msg("%s: a batchnorm of %zux%zu (form %d, bf16 %d) has other bits", isa->isa,
                             shapes[s][0], shapes[s][1], form / 2, form % 2);
            }
            assert_true(n_run > 0);
        }
}

/* Few rows, whose sums are made in one go: a matrix has the same bits as its columns in parts. */
static void test_channels_of_a_batchnorm_have_nothing_to_do_with_one_another(void **state)
{
    enum { ROWS = 31, WIDTH = 512, PART = 64 };
    static unsigned char whole[NORM_BYTES], part[NORM_BYTES];
    const tandem_isa_kernels *isa = tandem_isa_kernels_find("sse41"); /* others have the same bits */
    for (int form = 0; form < 2 * N_NORM; form++) {
        const size_t narrow = (size_t)form % 2, narrow_gradients = narrow != (form / 2 == NORM_SUM_OTHER);
        run_norm(isa, ROWS, WIDTH, 0, WIDTH, form / 2, form % 2, whole);
        for (size_t from = 0; from < WIDTH; from += PART) {
            run_norm(isa, ROWS, PART, from, WIDTH, form / 2, form % 2, part);
            for (size_t array = 0; array < (form / 2 >= NORM_SUM ? 3 : 2); array++)
                for (size_t r = 0; r < ROWS; r++) {
                    const size_t size = (array ? narrow_gradients : narrow) ? 2 : 4,
                                 at = array * 4 * NORM_ELEMENTS;
                    assert_memory_equal(whole + at + (r * WIDTH + from) * size, part + at + r * PART * size,
                                        PART * size);
                }
        }
    }
}

/* A sum and a rectifier after a norm, in one pass and in three: in f32 nothing is rounded between them. */
static void test_a_batchnorm_with_its_sum_has_the_bits_of_the_parts(void **state)
{
    enum { ROWS = 333, CHANNELS = 21, N = ROWS * CHANNELS };
    static float x[N], residual[N], g[N], y[2][N], sum[N], gx[2][N], masked[2][N];
    float scale[CHANNELS], shift[CHANNELS], aux[2][2 * CHANNELS], of_parameters[2][2 * CHANNELS],
        workspace[7 * CHANNELS];
    for (size_t i = 0; i < N; i++)
        x[i] = norm_draw(i, 0), residual[i] = norm_draw(i, 1) - 1, g[i] = norm_draw(i, 4);
    for (size_t j = 0; j < CHANNELS; j++) scale[j] = norm_draw(j, 2), shift[j] = norm_draw(j, 3) - 1;
    tandem_batchnorm norm = {
        .rows = ROWS, .channels = CHANNELS, .epsilon = 1e-5f, .scale = scale, .shift = shift};
    norm.workspace = workspace;
    int at = 0;
    for (const tandem_isa_kernels *isa; (isa = next_table(&at));) {
        norm.mean = aux[0], norm.variance = aux[0] + CHANNELS;
        isa->batchnorm_f32(&norm, sum, x);
        isa->add_f32(sum, sum, residual, N);
        isa->relu_f32(y[0], sum, N);
        isa->relu_backward_f32(masked[0], g, y[0], N);
        const tandem_batchnorm_gradients of_norm = {
            .x = gx[0], .scale = of_parameters[0], .shift = of_parameters[0] + CHANNELS};
        isa->batchnorm_backward_f32(&norm, &of_norm, masked[0], x);
        norm.mean = aux[1], norm.variance = aux[1] + CHANNELS;
        isa->batchnorm_add_f32(&norm, y[1], x, residual);
        const tandem_batchnorm_gradients out = {.x = gx[1],
                                                .residual = masked[1],
                                                .scale = of_parameters[1],
                                                .shift = of_parameters[1] + CHANNELS};
        isa->batchnorm_add_backward_f32(&norm, &out, g, x, y[1]);
        assert_memory_equal(y[0], y[1], sizeof y[0]);
        assert_memory_equal(masked[0], masked[1], sizeof masked[0]);
        assert_memory_equal(gx[0], gx[1], sizeof gx[0]);
        assert_memory_equal(aux[0], aux[1], sizeof aux[0]);
        assert_memory_equal(of_parameters[0], of_parameters[1], sizeof of_parameters[0]);
    }
}

/* --- Exponentials --------------------------------------------------------------------------------------- */

enum { WAVES = 6, WAVE = 777, WAVE_BYTES = 4 * WAVES * WAVE };

/* Every kernel that has an e^x in it, on numbers of which some are large, infinite or none. */
static void run_exponentials(const tandem_isa_kernels *isa, unsigned char *written)
{
    static float x[WAVE], g[WAVE], bias[WAVE];
    static uint16_t x16[WAVE], g16[WAVE];
    for (size_t i = 0; i < WAVE; i++)
        x[i] = 4 * norm_draw(i, 0), g[i] = norm_draw(i, 1), bias[i] = norm_draw(i, 2);
    x[5] = 1e30f, x[6] = -1e30f, x[7] = INFINITY, x[8] = -60;
    isa->bf16_from_f32(x16, x, WAVE);
    isa->bf16_from_f32(g16, g, WAVE);
    float *const y = (float *)(void *)written;
    float *to[WAVES];
    for (int k = 0; k < WAVES; k++) to[k] = y + (ptrdiff_t)k * WAVE;
    isa->bias_gelu_f32(to[0], x, bias, WAVE, WAVE / 7);
    isa->bias_gelu_bf16((uint16_t *)(void *)to[1], x16, bias, WAVE, WAVE / 7);
    isa->bias_gelu_backward_f32(to[2], to[4], g, x, bias, WAVE, WAVE / 7);
    isa->bias_gelu_backward_bf16((uint16_t *)(void *)to[3], to[4] + WAVE / 7, g16, x16, bias, WAVE, WAVE / 7);
    x[7] = x[5] = 1;
    isa->softmax_f32(to[5], x, WAVE, WAVE - 3, 0.5f, &to[4][WAVE - 1]);
    isa->softmax_backward_f32(to[5] + WAVE / 2, g, to[5], WAVE / 2, 0.5f);
}

static void test_exponentials_have_the_same_bits_everywhere(void **state)
{
    static unsigned char first[WAVE_BYTES], written[WAVE_BYTES];
    int n_run = 0, at = 0;
    for (const tandem_isa_kernels *isa; (isa = next_table(&at)); n_run++) {
        unsigned char *const to = n_run ? written : first;
        memset(to, 0, WAVE_BYTES);
        run_exponentials(isa, to);
        for (size_t i = 0; n_run && i < WAVE_BYTES; i++)
            if (first[i] != written[i])
                fail_msg("%s: kernel %zu, number %zu has other bits", isa->isa, i / (4 * WAVE),
                         i % (4 * WAVE) / 4);
    }
    assert_true(n_run > 0);
}

/* Within a few roundings of what double arithmetic gives, from the least to the largest that is asked for. */
static void test_gelu_and_softmax_are_near_the_truth(void **state)
{
    static float x[4001], y[4001], p[4001];
    const tandem_isa_kernels *isa;
    for (int i = 0; i <= 4000; i++) x[i] = (float)(i - 2000) / 50;
    for (int at = 0; (isa = next_table(&at));) {
        float top = 0;
        isa->gelu_f32(y, x, 4001);
        const double sum = (double)isa->softmax_f32(p, x, 4001, 4001, 1, &top);
        double all = 0;
        for (int i = 0; i <= 4000; i++) all += exp((double)x[i] - (double)x[4000]);
        assert_true(top >= x[4000] && top <= x[4000] && fabs(sum / all - 1) < 0x1p-20);
        for (int i = 0; i <= 4000; i++) {
            const double v = (double)x[i], u2 = 2 * 0.7978845608028654 * (v + 0.044715 * v * v * v);
            const double want = v / (1 + exp(-u2)), slack = 0x1p-20 + 0x1p-22 * fabs(u2);
            assert_true(fabs((double)y[i] - want) <= slack * fabs(want) + 1e-30);
            const double share = exp(v - (double)top) / all, rounding = 0x1p-20 + 0x1p-23 * ((double)top - v);
            assert_true(fabs((double)p[i] - share) <= rounding * share + 1e-37); /* so little is 0 */
        }
    }
    float alone[3] = {-INFINITY, 3, -INFINITY}, none[2] = {1, NAN}, top = 0;
    isa = tandem_isa_kernels_find("sse41");
    isa->softmax_f32(alone, alone, 3, 3, 1, &top);
    assert_true(alone[0] <= 0 && alone[1] >= 1 && alone[1] <= 1 && alone[2] <= 0);
    isa->softmax_f32(none, none, 2, 2, 1, &top);
    assert_true(isnan(none[0]) && isnan(none[1]));
}

/* --- Optimizers ----------------------------------------------------------------------------------------- */

static void sgd_of(const tandem_isa_kernels *table, size_t n)
{
    float w[LARGEST], v[LARGEST], g[LARGEST], want_w[LARGEST], want_v[LARGEST];
    const float rate = 0.1f, momentum = 0.9f, decay = 5e-4f;
    fill_f32(w, n, 16);
    fill_f32(v, n, 17);
    fill_f32(g, n, 18);
    for (size_t i = 0; i < n; i++) {
        const float carried = momentum * v[i] + g[i];
        want_v[i] = carried + decay * w[i];
        want_w[i] = w[i] - rate * want_v[i];
    }
    table->sgd(w, v, g, n, rate, momentum, decay);
    assert_same_f32(table->isa, "sgd: w", w, want_w, n);
    assert_same_f32(table->isa, "sgd: v", v, want_v, n);
}

static void test_sgd(void **state) { every_size(sgd_of); }

static void adamw_of(const tandem_isa_kernels *table, size_t n)
{
    float w[LARGEST], m[LARGEST], v[LARGEST], g[LARGEST], want_w[LARGEST], want_m[LARGEST], want_v[LARGEST];
    const float rate = 1e-3f, beta1 = 0.9f, beta2 = 0.999f, epsilon = 1e-8f, decay = 0.01f;
    const float correction1 = 1 / (1 - 0.9f * 0.9f), correction2 = 1 / (1 - 0.999f * 0.999f);
    fill_f32(w, n, 19);
    fill_f32(m, n, 20);
    fill_f32(v, n, 21);
    fill_f32(g, n, 22);
    for (size_t i = 0; i < n; i++) {
        v[i] *= v[i];
        if (i % 7 == 0) v[i] = g[i] = 0; /* a weight that never had a gradient: 0 / epsilon */
        const float new_g = (1 - beta1) * g[i], new_g2 = (1 - beta2) * g[i];
        want_m[i] = beta1 * m[i] + new_g;
        want_v[i] = beta2 * v[i] + new_g2 * g[i];
        const float step = (want_m[i] * correction1) / (sqrtf(want_v[i] * correction2) + epsilon);
        want_w[i] = w[i] - rate * (step + decay * w[i]);
    }
    table->adamw(w, m, v, g, n, rate, beta1, beta2, epsilon, decay, correction1, correction2);
    assert_same_f32(table->isa, "adamw: w", w, want_w, n);
    assert_same_f32(table->isa, "adamw: m", m, want_m, n);
    assert_same_f32(table->isa, "adamw: v", v, want_v, n);
}

static void test_adamw(void **state) { every_size(adamw_of); }

/* Wherever it is in a vector or after the last; the largest and the smallest numbers are finite. */
static void test_optimizers_see_what_is_not_finite(void **state)
{
    static const float odd[] = {NAN, -NAN, INFINITY, -INFINITY},
                       fine[] = {FLT_MAX, -FLT_MAX, FLT_TRUE_MIN, -0.0f};
    float w[LARGEST], m[LARGEST], v[LARGEST], g[LARGEST];
    const tandem_isa_kernels *table;
    for (int at = 0; (table = next_table(&at));)
        for (int s = 0; s < N_SIZES; s++)
            for (size_t i = 0; i < sizes[s]; i += sizes[s] < 100 ? 1 : 41)
                for (int k = 0; k < 8; k++) {
                    const size_t n = sizes[s];
                    fill_f32(g, n, 18);
                    memset(w, 0, sizeof w);
                    memset(m, 0, sizeof m);
                    memset(v, 0, sizeof v);
                    g[i] = k < 4 ? odd[k] : fine[k - 4];
                    assert_int_equal(table->sgd(w, m, g, n, 0.1f, 0.9f, 0), k >= 4);
                    assert_int_equal(table->adamw(w, m, v, g, n, 0.1f, 0.9f, 0.99f, 1e-8f, 0, 1, 1), k >= 4);
                }
}

/* --- im2col --------------------------------------------------------------------------------------------- */

static void test_im2col(void **state)
{
    static const struct {
        int64_t h, w, c, kernel, stride, pad;
    } cases[] = {{5, 7, 3, 3, 1, 1},  {8, 8, 16, 3, 2, 1}, {9, 5, 1, 5, 1, 2}, {4, 4, 64, 1, 1, 0},
                 {7, 7, 33, 1, 2, 0}, {12, 9, 3, 7, 2, 3}, {1, 1, 8, 3, 1, 1}, {2, 3, 5, 5, 1, 4},
                 {3, 4, 2, 2, 1, 4},  {3, 3, 2, 3, 3, 0},  {2, 2, 3, 3, 1, 0}};
    const tandem_isa_kernels *table;
    for (int at = 0; (table = next_table(&at));) {
        for (size_t s = 0; s < sizeof cases / sizeof *cases; s++) {
            const int64_t h = cases[s].h, w = cases[s].w, c = cases[s].c, kernel = cases[s].kernel;
            const int64_t stride = cases[s].stride, pad = cases[s].pad;
            const int64_t span_h = h + 2 * pad - kernel, span_w = w + 2 * pad - kernel;
            const int64_t out_h = span_h < 0 ? 0 : span_h / stride + 1,
                          out_w = span_w < 0 ? 0 : span_w / stride + 1;
            const size_t n = (size_t)(out_h * out_w * kernel * kernel * c);
            int8_t *image = malloc((size_t)(h * w * c)), *want = malloc(n + 1);
            assert_true(image && want);
            fill_s8(image, (size_t)(h * w * c), 23);
            int8_t *next = want;
            for (int64_t i = 0; i < out_h * out_w * kernel * kernel * c; i++) {
                const int64_t channel = i % c, x_in = i / c % kernel, y_in = i / c / kernel % kernel;
                const int64_t pixel = i / c / kernel / kernel;
                const int64_t x = pixel % out_w * stride + x_in - pad,
                              y = pixel / out_w * stride + y_in - pad;
                *next++ = x < 0 || x >= w || y < 0 || y >= h ? 0 : image[(y * w + x) * c + channel];
            }
            guarded columns = guarded_new(n, 1);
            table->im2col_s8(columns.at, image, h, w, c, kernel, stride, pad);
            assert_same_s8(table->isa, "im2col_s8", columns.at, want, n);
            guarded_free(&columns);
            free(image);
            free(want);
        }
    }
}

/* --- The int8 product ----------------------------------------------------------------------------------- */

typedef enum strides { PLAIN, PADDED, SPREAD } strides;
typedef enum values { RANDOM, ALL_127, ALL_OPPOSED, MIXED_SIGNS, ALL_128 } values;

typedef struct product_case {
    int64_t m, n, k;
    int transpose_a, transpose_b;
    strides strides;
    values values;
    tandem_dtype c_type;
    int row_scale, column_scale, bias; /* whether there is one */
    int accumulate;
} product_case;

/* What is in C before, where a product is added to it. */
static float prior_of(int64_t i, int64_t j) { return (float)((7 * i + j) % 13 - 6); }

static void put_prior(const tandem_product_s8 *p)
{
    for (int64_t i = 0; i < p->m; i++)
        for (int64_t j = 0; j < p->n; j++) {
            if (p->c_type == TANDEM_F32) ((float *)p->c)[i * p->c_row + j] = prior_of(i, j);
            if (p->c_type == TANDEM_BF16) ((uint16_t *)p->c)[i * p->c_row + j] = narrowed(prior_of(i, j));
        }
}

static void set_strides(int64_t *row, int64_t *column, int64_t rows, int64_t columns, int transpose,
                        strides kind)
{
    const int64_t step = kind == SPREAD ? 3 : 1, padding = kind == PLAIN ? 0 : 5;
    *row = transpose ? step : columns * step + padding;
    *column = transpose ? rows * step + padding : step;
}

static void fill_operand(int8_t *x, size_t n, values kind, uint32_t purpose)
{
    fill_s8(x, n, purpose);
    for (size_t i = 0; i < n; i++) {
        if (kind == ALL_127) x[i] = 127;
        if (kind == ALL_OPPOSED) x[i] = purpose & 1 ? 127 : -127;
        if (kind == MIXED_SIGNS) x[i] = x[i] < 0 ? -127 : 127;
        if (kind == ALL_128) x[i] = -128;
    }
}

static void check_element(const char *isa, const tandem_product_s8 *p, int64_t i, int64_t j)
{
    int64_t sum = 0;
    for (int64_t l = 0; l < p->k; l++)
        sum += (int64_t)p->a[i * p->a_row + l * p->a_column] * p->b[l * p->b_row + j * p->b_column];
    const float of_row = p->row_scale ? p->scale * p->row_scale[i] : p->scale;
    float want = (float)sum * of_row;
    if (p->column_scale) want *= p->column_scale[j];
    if (p->bias) want += p->bias[j];
    if (p->accumulate) want = prior_of(i, j) + want;
    const int64_t at = i * p->c_row + j;
    const int same = p->c_type == TANDEM_S32    ? ((const int32_t *)p->c)[at] == sum
                     : p->c_type == TANDEM_BF16 ? ((const uint16_t *)p->c)[at] == narrowed(want)
                                                : bits_of(((const float *)p->c)[at]) == bits_of(want);
    if (!same)
        fail_msg("%s gemm_s8 %" PRId64 " x %" PRId64 " x %" PRId64 ", strides %" PRId64 " %" PRId64
                 ", %" PRId64 " %" PRId64 ", type %d: element (%" PRId64 ", %" PRId64 ") is not %g",
                 isa, p->m, p->n, p->k, p->a_row, p->a_column, p->b_row, p->b_column, (int)p->c_type, i, j,
                 (double)want);
}

/* Every element where these are few, else the edges of C and some others. */
static void check_product(const tandem_isa_kernels *table, const product_case *of)
{
    enum { MAX = 1100 };
    float row_scale[MAX], column_scale[MAX], bias[MAX];
    fill_f32(row_scale, MAX, 26);
    fill_f32(column_scale, MAX, 27);
    fill_f32(bias, MAX, 28);
    tandem_product_s8 p = {.m = of->m,
                           .n = of->n,
                           .k = of->k,
                           .c_type = of->c_type,
                           .scale = 0.0037f,
                           .row_scale = of->row_scale ? row_scale : NULL,
                           .column_scale = of->column_scale ? column_scale : NULL,
                           .bias = of->bias ? bias : NULL,
                           .accumulate = of->accumulate};
    set_strides(&p.a_row, &p.a_column, p.m, p.k, of->transpose_a, of->strides);
    set_strides(&p.b_row, &p.b_column, p.k, p.n, of->transpose_b, of->strides);
    p.c_row = p.n + (of->strides == PLAIN ? 0 : 3);
    const int empty_a = p.m == 0 || p.k == 0, empty_b = p.n == 0 || p.k == 0;
    const size_t a_bytes = empty_a ? 0 : (size_t)((p.m - 1) * p.a_row + (p.k - 1) * p.a_column + 1);
    const size_t b_bytes = empty_b ? 0 : (size_t)((p.k - 1) * p.b_row + (p.n - 1) * p.b_column + 1);
    const size_t element = of->c_type == TANDEM_BF16 ? sizeof(uint16_t) : sizeof(float),
                 c_bytes = (size_t)(p.m * p.c_row) * element;
    const size_t workspace_bytes = table->gemm_s8_workspace(p.m, p.n, p.k);
    /* Operands of exactly their size, so that a sanitizer sees any byte read past them. */
    int8_t *a = malloc(a_bytes), *b = malloc(b_bytes);
    assert_true((a || a_bytes == 0) && (b || b_bytes == 0));
    fill_operand(a, a_bytes, of->values, 24);
    fill_operand(b, b_bytes, of->values, 25);
    guarded c = guarded_new(c_bytes, element);
    unsigned char *workspace = aligned_alloc(64, workspace_bytes + 64);
    assert_non_null(workspace);
    memset(workspace, GUARD_BYTE, workspace_bytes + 64);
    p.a = a;
    p.b = b;
    p.c = c.at;
    p.workspace = workspace;
    if (p.accumulate) put_prior(&p);
    table->gemm_s8(&p);

    const int64_t step_i = p.m > 70 ? 13 : 1, step_j = p.n > 70 ? 11 : 1;
    for (int64_t i = 0; i < p.m; i = i + step_i >= p.m && i < p.m - 1 ? p.m - 1 : i + step_i) {
        for (int64_t j = 0; j < p.n; j = j + step_j >= p.n && j < p.n - 1 ? p.n - 1 : j + step_j)
            check_element(table->isa, &p, i, j);
    }
    for (int64_t i = 0; i < p.m; i++) { /* between the rows of C */
        for (int64_t at = (i * p.c_row + p.n) * (int64_t)element; at < (i + 1) * p.c_row * (int64_t)element;
             at++)
            assert_int_equal(((const unsigned char *)c.at)[at], GUARD_BYTE);
    }
    for (size_t i = 0; i < 64; i++) assert_int_equal(workspace[workspace_bytes + i], GUARD_BYTE);
    guarded_free(&c);
    free(workspace);
    free(a);
    free(b);
}

static void check_products(const product_case *cases, size_t n)
{
    const tandem_isa_kernels *table;
    for (int at = 0; (table = next_table(&at));) {
        for (size_t i = 0; i < n; i++) {
            product_case of = cases[i];
            for (int transposition = 0; transposition < 4; transposition++) {
                of.transpose_a = transposition & 1;
                of.transpose_b = transposition >> 1;
                check_product(table, &of);
            }
        }
    }
}

static void test_products_of_odd_shapes(void **state)
{
    static const int64_t shapes[][3] = {{1, 1, 1},    {2, 3, 5},    {7, 9, 17},   {8, 32, 4},   {9, 33, 31},
                                        {17, 47, 16}, {64, 64, 64}, {65, 10, 63}, {3, 100, 65}, {16, 16, 100},
                                        {5, 49, 33},  {12, 17, 2},  {33, 70, 76}, {9, 64, 260}};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        for (int kind = 0; kind < 16; kind++) {
            const product_case of = {.m = shapes[s][0],
                                     .n = shapes[s][1],
                                     .k = shapes[s][2],
                                     .strides = (strides)(kind % 3),
                                     .c_type = kind % 4 == 3 ? TANDEM_S32 : (tandem_dtype)(kind % 2),
                                     .row_scale = kind >> 1 & 1,
                                     .column_scale = kind >> 2 & 1,
                                     .bias = kind >> 3 & 1,
                                     .accumulate = kind % 4 == 1 || kind % 8 == 2};
            check_products(&of, 1);
        }
    }
}

/* More than one block of m, n and k (1100 > 1024 terms), and of all at once. */
static void test_products_of_several_blocks(void **state)
{
    static const product_case cases[] = {
        {.m = 300, .n = 20, .k = 70},
        {.m = 20, .n = 1050, .k = 33},
        {.m = 9, .n = 21, .k = 3000},
        {.m = 270, .n = 530, .k = 1100},
        {.m = 40, .n = 70, .k = 1100, .accumulate = 1},
        {.m = 261, .n = 519, .k = 1030, .strides = PADDED, .c_type = TANDEM_BF16, .bias = 1}};
    check_products(cases, sizeof cases / sizeof *cases);
}

/* Where a 16-bit intermediate would saturate, and an int32 sum comes nearest to its bound. */
static void test_products_are_exact_at_the_extremes(void **state)
{
    static const product_case cases[] = {
        {.m = 19, .n = 35, .k = 4096, .values = ALL_127},
        {.m = 19, .n = 35, .k = 4096, .values = ALL_OPPOSED},
        {.m = 19, .n = 35, .k = 4096, .values = MIXED_SIGNS},
        {.m = 19, .n = 35, .k = 4095, .values = MIXED_SIGNS, .strides = SPREAD},
        {.m = 9, .n = 17, .k = 131, .values = ALL_128},
        {.m = 9, .n = 33, .k = 131, .values = ALL_128, .c_type = TANDEM_S32},
        {.m = 2, .n = 3, .k = 131072, .values = ALL_127, .c_type = TANDEM_S32},
        {.m = 2, .n = 3, .k = 131072, .values = ALL_OPPOSED}};
    check_products(cases, sizeof cases / sizeof *cases);
}

static void test_empty_products(void **state)
{
    static const product_case cases[] = {
        {.m = 0, .n = 5, .k = 5}, {.m = 5, .n = 0, .k = 5}, {.m = 5, .n = 37, .k = 0}};
    check_products(cases, sizeof cases / sizeof *cases);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_set_has_a_table),
        cmocka_unit_test(test_philox_gives_the_published_answers),
        cmocka_unit_test(test_amax_is_the_largest_magnitude),
        cmocka_unit_test(test_quantise_gives_the_bits_of_its_definition),
        cmocka_unit_test(test_quantise_to_nearest),
        cmocka_unit_test(test_transpose),
        cmocka_unit_test(test_quantise_turns_at_each_draw),
        cmocka_unit_test(test_quantise_is_unbiased),
        cmocka_unit_test(test_dequantise),
        cmocka_unit_test(test_every_bf16_widens_and_comes_back),
        cmocka_unit_test(test_bf16_rounds_to_nearest_even),
        cmocka_unit_test(test_add),
        cmocka_unit_test(test_relu_and_its_gradient),
        cmocka_unit_test(test_dropout),
        cmocka_unit_test(test_bias_and_its_gradient),
        cmocka_unit_test(test_batchnorm_has_the_same_bits_everywhere),
        cmocka_unit_test(test_channels_of_a_batchnorm_have_nothing_to_do_with_one_another),
        cmocka_unit_test(test_a_batchnorm_with_its_sum_has_the_bits_of_the_parts),
        cmocka_unit_test(test_exponentials_have_the_same_bits_everywhere),
        cmocka_unit_test(test_gelu_and_softmax_are_near_the_truth),
        cmocka_unit_test(test_sgd),
        cmocka_unit_test(test_adamw),
        cmocka_unit_test(test_optimizers_see_what_is_not_finite),
        cmocka_unit_test(test_im2col),
        cmocka_unit_test(test_products_of_odd_shapes),
        cmocka_unit_test(test_products_of_several_blocks),
        cmocka_unit_test(test_products_are_exact_at_the_extremes),
        cmocka_unit_test(test_empty_products),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
