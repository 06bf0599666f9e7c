/* folder: backend */
/* The products of tandem/cuda_kernels.h against sums in double, and those of int8 against tandem/kernels.h,
 * whose bits they have; on a card in build/card/ (make test-cuda), over the stand-in elsewhere. */
#include "kernels/cuda/arithmetic.h"
#include "tandem/cuda_kernels.h"
#include "tandem/graph.h"
#include "tests/cuda/gpu.h"
#include "tests/support/tandem_test.h"

enum { MAX_ELEMENTS = 1 << 13 };
static tandem_cuda_products *products;
static void *a_array, *b_array, *c_array; /* MAX_ELEMENTS numbers each, of at most 4 bytes */
static float *scales;                     /* of a, of b */
static double before[MAX_ELEMENTS];       /* of c, where a product is added to it */

static int open_product_arrays(void **state)
{
    a_array = gpu_alloc_shared(MAX_ELEMENTS * sizeof(float));
    b_array = gpu_alloc_shared(MAX_ELEMENTS * sizeof(float));
    c_array = gpu_alloc_shared(MAX_ELEMENTS * sizeof(float));
    scales = gpu_alloc_shared(2 * sizeof *scales);
    if (!a_array || !b_array || !c_array || !scales) return -1;
    scales[0] = 0.37f, scales[1] = 0.011f;
    return tandem_cuda_products_open(&products, 0, NULL);
}

static int close_product_arrays(void **state)
{
    tandem_cuda_products_close(products);
    void *const all[] = {a_array, b_array, c_array, scales};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) gpu_free_shared(all[i]);
    return gpu_open_handles();
}

static float number_at(const void *array, tandem_dtype type, int64_t i)
{
    switch (type) {
    case TANDEM_BF16: return tandem_f32_of_bf16(((const uint16_t *)array)[i]);
    case TANDEM_F16: return tandem_f32_of_f16(((const uint16_t *)array)[i]);
    case TANDEM_S8: return ((const int8_t *)array)[i];
    case TANDEM_E4M3: return tandem_f32_of_e4m3(((const uint8_t *)array)[i]);
    case TANDEM_E5M2: return tandem_f32_of_e5m2(((const uint8_t *)array)[i]);
    default: return ((const float *)array)[i];
    }
}

static void set_number(void *array, tandem_dtype type, int64_t i, float value)
{
    switch (type) {
    case TANDEM_BF16: ((uint16_t *)array)[i] = tandem_bf16_of(value); return;
    case TANDEM_F16: ((uint16_t *)array)[i] = tandem_f16_of(value); return;
    case TANDEM_S8: ((int8_t *)array)[i] = (int8_t)(127 * value); return;
    case TANDEM_E4M3: ((uint8_t *)array)[i] = tandem_e4m3_of(value); return;
    case TANDEM_E5M2: ((uint8_t *)array)[i] = tandem_e5m2_of(value); return;
    default: ((float *)array)[i] = value; return;
    }
}

/* Numbers in [−1, 1), others for each seed. */
static void fill_numbers(void *array, tandem_dtype type, uint32_t seed)
{
    for (uint32_t i = 0; i < MAX_ELEMENTS; i++) {
        const uint32_t counter[4] = {i, seed, 0, 0};
        set_number(array, type, i, 2 * tandem_philox_uniform(tandem_philox(counter, 9).word[0]) - 1);
    }
}

static int is_scaled(tandem_dtype type) { return tandem_dtype_bytes(type) == 1; }

/* How far off a sum may be, over the sum of its terms' magnitudes: f32 adds up to 2^8 of them here, tf32
 * reads 10 bits, and the tensor cores have about 14 for 8-bit floats (docs/cuda.md). */
static double sum_bound(const tandem_cuda_product_call *call)
{
    if (call->tf32) return ldexp(1, -9);
    return is_scaled(call->a_type) && call->a_type != TANDEM_S8 ? ldexp(1, -11) : ldexp(1, -16);
}

static double result_bound(tandem_dtype type)
{
    return type == TANDEM_BF16 ? ldexp(1, -8) : type == TANDEM_F16 ? ldexp(1, -11) : ldexp(1, -23);
}

static void check_element(const tandem_cuda_product_call *call, int64_t matrix, int64_t i, int64_t j)
{
    const int64_t m = call->m, n = call->n, k = call->k, at = (matrix * m + i) * n + j;
    double sum = 0, size = 0;
    for (int64_t l = 0; l < k; l++) {
        const int64_t of_a = matrix * m * k + (call->a_transposed ? l * m + i : i * k + l),
                      of_b = matrix * k * n + (call->b_transposed ? j * k + l : l * n + j);
        const double term =
            (double)number_at(call->a, call->a_type, of_a) * (double)number_at(call->b, call->b_type, of_b);
        sum += term, size += fabs(term);
    }
    const double scale = is_scaled(call->a_type) ? (double)scales[0] * (double)scales[1] : 1,
                 right = sum * scale + (call->accumulate ? before[at] : 0),
                 got = (double)number_at(c_array, call->c_type, at),
                 bound = scale * size * sum_bound(call) +
                         result_bound(call->c_type) * (fabs(right) + fabs(scale * sum)) + 1e-7;
    if (!(fabs(got - right) <= bound))
        fail_msg("%d·%d, batch %d, %d %d %d, transposed %d %d: c[%d] is %g, not %g", (int)call->a_type,
                 (int)call->b_type, (int)call->batch, (int)m, (int)n, (int)k, call->a_transposed,
                 call->b_transposed, (int)at, got, right);
}

static void check_products(tandem_cuda_product_call call)
{
    tandem_error error = {0};
    const int64_t batch = call.batch ? call.batch : 1, n = batch * call.m * call.n;
    call.a = a_array, call.b = b_array, call.c = c_array;
    if (is_scaled(call.a_type)) call.a_scale = &scales[0], call.b_scale = &scales[1];
    fill_numbers(c_array, call.c_type, 3);
    for (int64_t i = 0; i < MAX_ELEMENTS; i++) before[i] = (double)number_at(c_array, call.c_type, i);
    if (tandem_cuda_products_run(products, &call, NULL, &error) != TANDEM_OK) fail_msg("%s", error.text);
    gpu_sync();
    for (int64_t at = 0; at < n; at++)
        check_element(&call, at / call.n / call.m, at / call.n % call.m, at % call.n);
    for (int64_t i = n; i < MAX_ELEMENTS; i++)
        assert_true((double)number_at(c_array, call.c_type, i) == before[i]); /* nothing after it */
}

static const tandem_dtype operand_types[][2] = {
    {TANDEM_F32, TANDEM_F32},   {TANDEM_BF16, TANDEM_BF16}, {TANDEM_F16, TANDEM_F16},  {TANDEM_S8, TANDEM_S8},
    {TANDEM_E4M3, TANDEM_E4M3}, {TANDEM_E5M2, TANDEM_E4M3}, {TANDEM_E4M3, TANDEM_E5M2}};

/* Sides that fit, that are odd, that are 1, and none. */
static void products_are_sums(void **state)
{
    static const int64_t sides[][4] = {{0, 32, 48, 64}, {1, 5, 7, 13},  {1, 1, 1, 1}, {2, 17, 9, 33},
                                       {3, 3, 16, 5},   {1, 33, 1, 20}, {1, 0, 4, 4}, {1, 4, 0, 4},
                                       {1, 4, 4, 0},    {0, 64, 32, 64}};
    for (size_t t = 0; t < sizeof operand_types / sizeof *operand_types; t++) {
        fill_numbers(a_array, operand_types[t][0], 1);
        fill_numbers(b_array, operand_types[t][1], 2);
        for (size_t k = 0; k < sizeof sides / sizeof *sides; k++)
            for (int how = 0; how < 16; how++)
                check_products((tandem_cuda_product_call){.batch = sides[k][0],
                                                          .m = sides[k][1],
                                                          .n = sides[k][2],
                                                          .k = sides[k][3],
                                                          .a_type = operand_types[t][0],
                                                          .b_type = operand_types[t][1],
                                                          .a_transposed = how & 1,
                                                          .b_transposed = how >> 1 & 1,
                                                          .c_type = how & 4 ? TANDEM_BF16 : TANDEM_F32,
                                                          .accumulate = how >> 3 & 1,
                                                          .tf32 = t == 0 && how & 1});
        check_products((tandem_cuda_product_call){.m = 6,
                                                  .n = 10,
                                                  .k = 40,
                                                  .a_type = operand_types[t][0],
                                                  .b_type = operand_types[t][1],
                                                  .c_type = TANDEM_F16});
    }
}

/* --- A linear layer in int8: the CPU's bits ------------------------------------------------------------- */

enum { ROWS = 37, IN = 29, OUT = 19 };

static void round_operand(int8_t *q, float *scale, const float *x, int64_t n, uint32_t purpose,
                          uint32_t *room)
{
    const tandem_rounding rounding = {11, {1, 0, purpose}, 0};
    const tandem_cuda_quantise_call call = {.x = x,
                                            .rows = 1,
                                            .columns = n,
                                            .q = q,
                                            .to = TANDEM_S8,
                                            .rounding = &rounding,
                                            .scale = scale,
                                            .workspace = room};
    assert_int_equal(tandem_cuda_kernels_quantise(&call, NULL, NULL), TANDEM_OK);
}

/* The same product by both; strides are those of the CPU's. */
static void check_same_bits(const tandem_kernels *cpu, const tandem_cuda_product_call *there,
                            tandem_product_s8 here)
{
    static float right[OUT * ROWS + OUT * IN + ROWS * IN];
    const size_t bytes = tandem_kernels_product_workspace(cpu, there->m, there->n, there->k);
    here.m = there->m, here.n = here.c_row = there->n, here.k = there->k;
    here.a = there->a, here.b = there->b, here.c = right;
    here.workspace = aligned_alloc(64, (bytes + 63) / 64 * 64);
    assert_int_equal(tandem_cuda_products_run(products, there, NULL, NULL), TANDEM_OK);
    gpu_sync();
    here.scale = *there->a_scale * *there->b_scale;
    assert_int_equal(tandem_kernels_product(cpu, &here, bytes, NULL), TANDEM_OK);
    assert_memory_equal(there->c, right, (size_t)(there->m * there->n) * sizeof *right);
    free(here.workspace);
}

static void a_linear_layer_has_the_bits_of_the_cpu(void **state)
{
    const tandem_kernels *cpu = NULL;
    int8_t *q = gpu_alloc_shared(3 << 11), *const x = q, *const w = q + 2048, *const g = q + 4096;
    float *scale = gpu_alloc_shared(3 * sizeof *scale);
    uint32_t *room = gpu_alloc_shared(TANDEM_CUDA_QUANTISE_WORDS * sizeof *room);
    assert_non_null(q);
    assert_non_null(scale);
    assert_non_null(room);
    assert_int_equal(tandem_kernels_open(&cpu, "sse41", NULL), TANDEM_OK);
    fill_numbers(a_array, TANDEM_F32, 4);
    round_operand(x, &scale[0], a_array, ROWS * IN, 1, room);
    round_operand(w, &scale[1], (const float *)a_array + 2048, OUT * IN, 2, room);
    round_operand(g, &scale[2], (const float *)a_array + 4096, ROWS * OUT, 3, room);
    const tandem_cuda_product_call s8 = {.a_type = TANDEM_S8, .b_type = TANDEM_S8, .c = c_array};
    tandem_cuda_product_call call = s8; /* y = x·Wᵀ */
    call.m = ROWS, call.n = OUT, call.k = IN, call.b_transposed = 1;
    call.a = x, call.a_scale = &scale[0], call.b = w, call.b_scale = &scale[1];
    check_same_bits(cpu, &call, (tandem_product_s8){.a_row = IN, .a_column = 1, .b_row = 1, .b_column = IN});
    call = s8; /* gx = g·W */
    call.m = ROWS, call.n = IN, call.k = OUT;
    call.a = g, call.a_scale = &scale[2], call.b = w, call.b_scale = &scale[1];
    check_same_bits(cpu, &call, (tandem_product_s8){.a_row = OUT, .a_column = 1, .b_row = IN, .b_column = 1});
    call = s8; /* gW = gᵀ·x */
    call.m = OUT, call.n = IN, call.k = ROWS, call.a_transposed = 1;
    call.a = g, call.a_scale = &scale[2], call.b = x, call.b_scale = &scale[0];
    check_same_bits(cpu, &call, (tandem_product_s8){.a_row = 1, .a_column = OUT, .b_row = IN, .b_column = 1});
    gpu_free_shared(room);
    gpu_free_shared(scale);
    gpu_free_shared(q);
}

/* More kinds of products than are kept: the first is planned again, and right. */
static void kinds_may_be_many(void **state)
{
    fill_numbers(a_array, TANDEM_F32, 1);
    fill_numbers(b_array, TANDEM_F32, 2);
    for (int k = 1; k <= 300; k++) check_products((tandem_cuda_product_call){.m = 1, .n = 2, .k = k});
    check_products((tandem_cuda_product_call){.m = 1, .n = 2, .k = 1});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_are_sums),
        cmocka_unit_test(a_linear_layer_has_the_bits_of_the_cpu),
        cmocka_unit_test(kinds_may_be_many),
    };
    return skip_without_gpu() ? 0 : cmocka_run_group_tests(tests, open_product_arrays, close_product_arrays);
}
