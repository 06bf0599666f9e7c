/* folder: backend */
/* Kernels that are divided among threads (backend/cpu/isa/team.c) against those of one thread, which are the
 * reference: bit for bit, for every instruction set this machine can run and 1, 2, 3 and 8 threads. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/divided_kernels.h"
#include "backend/cpu/team.h"
#include "base/philox.h"
#include "kernels/cpu/isa_kernels.h"
#include "tests/support/tandem_test.h"

/* N: elements of which each of eight threads gets some, and the last fewer; PERIOD divides some of them. */
enum { N = 70001, PERIOD = 203, ROWS = 344, N_ROWS = PERIOD * ROWS, CHANNEL = 96, PIXELS = 727 };
_Static_assert(N_ROWS <= N && CHANNEL * PIXELS <= N, "one array for all");

static const int thread_counts[] = {1, 2, 3, 8};
static const char *const isa_names[] = {"sse41",  "avx",         "avx2",        "avx2_vnni",
                                        "avx512", "avx512_vnni", "avx512_bf16", "avx512_amx"};

/* Inputs, which no kernel changes, and what one and several threads write. */
typedef struct arrays {
    float a[N], b[N], c[N];
    uint16_t half_a[N], half_b[N];
    int8_t bytes[N];
    int32_t words[N];
} arrays;
typedef struct results {
    float x[N], y[N], z[N];
    uint16_t half[N], half_too[N];
    int8_t bytes[N];
    int32_t words[N];
    float number[4];
    int whole;
    float workspace[1 << 21] __attribute__((aligned(64)));
} results;

static arrays *in;
static results *one, *many;

static float draw(uint32_t i, uint32_t stream)
{
    const uint32_t word = (i + 1) * 2654435761u ^ stream * 40503u;
    return (float)(int32_t)(word * 2246822519u) * 0x1p-31f;
}

static void fill_arrays(void)
{
    for (uint32_t i = 0; i < N; i++) {
        in->a[i] = draw(i, 1);
        in->b[i] = draw(i, 2);
        in->c[i] = draw(i, 3) + 1.5f;
        in->half_a[i] = (uint16_t)(0x3c00 + (i * 7919u) % 0x380u + (i % 2 ? 0x8000u : 0));
        in->half_b[i] = (uint16_t)(0x3d00 + (i * 104729u) % 0x280u + (i % 3 ? 0x8000u : 0));
        in->bytes[i] = (int8_t)((i * 31u) % 255u - 127);
        in->words[i] = (int32_t)(i * 2654435761u) >> 8;
    }
}

/* --- Each kernel ---------------------------------------------------------------------------------------- */

typedef void run_kernel(const tandem_isa_kernels *k, results *to);

#define KERNEL(name, call)                                                                                   \
    static void run_##name(const tandem_isa_kernels *k, results *to) { call; }
static const tandem_rounding rounding = {.seed = 77, .stream = {1, 2, 3}, .block = 5};
static const tandem_dropout mask = {
    .seed = 78, .first = 13, .stream = {3, 2, 1}, .threshold = 6554, .scale = 1.1f};

KERNEL(amax_f32, to->number[0] = k->amax_f32(in->a, N))
KERNEL(amax_bf16, to->number[0] = k->amax_bf16(in->half_a, N))
KERNEL(quantise_f32, k->quantise_f32(to->bytes, in->a, N, 120, &rounding))
KERNEL(quantise_bf16, k->quantise_bf16(to->bytes, in->half_a, N, 120, &rounding))
KERNEL(quantise_nearest_f32, k->quantise_nearest_f32(to->bytes, in->a, N, 120))
KERNEL(quantise_nearest_bf16, k->quantise_nearest_bf16(to->bytes, in->half_a, N, 120))
KERNEL(quantise_amax_f32, to->number[0] = k->quantise_amax_f32(to->bytes, in->a, N, 120, &rounding))
KERNEL(quantise_amax_bf16, to->number[0] = k->quantise_amax_bf16(to->bytes, in->half_a, N, 120, &rounding))
KERNEL(quantise_nearest_amax_f32, to->number[0] = k->quantise_nearest_amax_f32(to->bytes, in->a, N, 120))
KERNEL(quantise_nearest_amax_bf16,
       to->number[0] = k->quantise_nearest_amax_bf16(to->bytes, in->half_a, N, 120))
KERNEL(dequantise_f32, k->dequantise_f32(to->x, in->bytes, N, 0.3f))
KERNEL(dequantise_bf16, k->dequantise_bf16(to->half, in->bytes, N, 0.3f))
KERNEL(bf16_from_f32, k->bf16_from_f32(to->half, in->a, N))
KERNEL(f32_from_bf16, k->f32_from_bf16(to->x, in->half_a, N))
KERNEL(add_s32, k->add_s32(to->words, in->words, in->words, N))
KERNEL(f32_from_s32, k->f32_from_s32(to->x, in->words, N, 0.01f))
KERNEL(bf16_from_s32, k->bf16_from_s32(to->half, in->words, N, 0.01f))
KERNEL(add_f32, k->add_f32(to->x, in->a, in->b, N))
KERNEL(add_bf16, k->add_bf16(to->half, in->half_a, in->half_b, N))
KERNEL(add_f32_to_bf16, memcpy(to->half, in->half_b, sizeof to->half); k->add_f32_to_bf16(to->half, in->a, N))
KERNEL(bias_f32, k->bias_f32(to->x, in->a, in->b, N_ROWS, PERIOD))
KERNEL(bias_bf16, k->bias_bf16(to->half, in->half_a, in->b, N_ROWS, PERIOD))
KERNEL(column_sum_f32, k->column_sum_f32(to->x, in->a, N_ROWS, PERIOD))
KERNEL(column_sum_bf16, k->column_sum_bf16(to->x, in->half_a, N_ROWS, PERIOD))
KERNEL(relu_f32, k->relu_f32(to->x, in->a, N))
KERNEL(relu_bf16, k->relu_bf16(to->half, in->half_a, N))
KERNEL(relu_backward_f32, k->relu_backward_f32(to->x, in->a, in->b, N))
KERNEL(relu_backward_bf16, k->relu_backward_bf16(to->half, in->half_a, in->half_b, N))
KERNEL(dropout_f32, k->dropout_f32(to->x, in->a, N, &mask))
KERNEL(dropout_bf16, k->dropout_bf16(to->half, in->half_a, N, &mask))
KERNEL(gelu_f32, k->gelu_f32(to->x, in->a, N))
KERNEL(gelu_backward_f32, k->gelu_backward_f32(to->x, in->a, in->b, N))
KERNEL(bias_gelu_f32, k->bias_gelu_f32(to->x, in->a, in->b, N_ROWS, PERIOD))
KERNEL(bias_gelu_bf16, k->bias_gelu_bf16(to->half, in->half_a, in->b, N_ROWS, PERIOD))
KERNEL(bias_gelu_backward_f32, k->bias_gelu_backward_f32(to->x, to->y, in->a, in->b, in->c, N_ROWS, PERIOD))
KERNEL(bias_gelu_backward_bf16,
       k->bias_gelu_backward_bf16(to->half, to->y, in->half_a, in->half_b, in->c, N_ROWS, PERIOD))
KERNEL(sgd, memcpy(to->x, in->a, sizeof to->x); memcpy(to->y, in->b, sizeof to->y);
       to->whole = k->sgd(to->x, to->y, in->c, N, 0.1f, 0.9f, 0.01f))
KERNEL(adamw, memcpy(to->x, in->a, sizeof to->x); memcpy(to->y, in->b, sizeof to->y);
       memcpy(to->z, in->c, sizeof to->z);
       to->whole = k->adamw(to->x, to->y, to->z, in->b, N, 0.1f, 0.9f, 0.99f, 1e-8f, 0.1f, 2, 3))

/* Workspaces are as large as the kernel says: what it writes beyond them is seen. */
static void *guarded_workspace(results *to, size_t bytes)
{
    assert_true(bytes + 64 <= sizeof to->workspace);
    memset((char *)to->workspace + bytes, 0x5A, 64);
    return to->workspace;
}

static void assert_guarded(const results *to, size_t bytes)
{
    for (size_t i = 0; i < 64; i++) assert_int_equal(((const unsigned char *)to->workspace)[bytes + i], 0x5A);
}

/* --- Batch normalisation -------------------------------------------------------------------------------- */

static tandem_batchnorm norm_into(const tandem_isa_kernels *k, results *to, int has_relu)
{
    return (tandem_batchnorm){.rows = PIXELS,
                              .channels = CHANNEL,
                              .has_relu = has_relu,
                              .epsilon = 1e-5f,
                              .scale = in->c,
                              .shift = in->b,
                              .mean = to->z,
                              .variance = to->z + CHANNEL,
                              .workspace = guarded_workspace(to, k->batchnorm_workspace(PIXELS, CHANNEL))};
}

static void assert_norm_guarded(const tandem_isa_kernels *k, const results *to)
{
    assert_guarded(to, k->batchnorm_workspace(PIXELS, CHANNEL));
}

static tandem_batchnorm norm_of_inputs(const tandem_isa_kernels *k, results *to)
{
    tandem_batchnorm norm = norm_into(k, to, 1);
    for (int j = 0; j < CHANNEL; j++) {
        norm.mean[j] = in->a[j];
        norm.variance[j] = in->c[j];
    }
    return norm;
}

static tandem_batchnorm_gradients norm_gradients(results *to, int is_bf16, int with_residual)
{
    return (tandem_batchnorm_gradients){.x = is_bf16 ? (void *)to->half : (void *)to->x,
                                        .residual = !with_residual ? NULL
                                                    : is_bf16      ? (void *)to->half_too
                                                                   : (void *)to->y,
                                        .x_is_bf16 = is_bf16,
                                        .residual_is_bf16 = is_bf16,
                                        .scale = to->z + 2 * CHANNEL,
                                        .shift = to->z + 3 * CHANNEL};
}

KERNEL(batchnorm_f32, const tandem_batchnorm norm = norm_into(k, to, 1);
       k->batchnorm_f32(&norm, to->x, in->a); assert_norm_guarded(k, to))
KERNEL(batchnorm_bf16, const tandem_batchnorm norm = norm_into(k, to, 0);
       k->batchnorm_bf16(&norm, to->half, in->half_a); assert_norm_guarded(k, to))
KERNEL(batchnorm_add_f32, const tandem_batchnorm norm = norm_into(k, to, 0);
       k->batchnorm_add_f32(&norm, to->x, in->a, in->b); assert_norm_guarded(k, to))
KERNEL(batchnorm_add_bf16, const tandem_batchnorm norm = norm_into(k, to, 0);
       k->batchnorm_add_bf16(&norm, to->half, in->half_a, in->half_b); assert_norm_guarded(k, to))
KERNEL(batchnorm_backward_f32, const tandem_batchnorm norm = norm_of_inputs(k, to);
       const tandem_batchnorm_gradients out = norm_gradients(to, 0, 0);
       k->batchnorm_backward_f32(&norm, &out, in->b, in->a); assert_norm_guarded(k, to))
KERNEL(batchnorm_backward_bf16, const tandem_batchnorm norm = norm_of_inputs(k, to);
       const tandem_batchnorm_gradients out = norm_gradients(to, 1, 0);
       k->batchnorm_backward_bf16(&norm, &out, in->half_b, in->half_a); assert_norm_guarded(k, to))
KERNEL(batchnorm_add_backward_f32, const tandem_batchnorm norm = norm_of_inputs(k, to);
       const tandem_batchnorm_gradients out = norm_gradients(to, 0, 1);
       k->batchnorm_add_backward_f32(&norm, &out, in->b, in->a, in->c); assert_norm_guarded(k, to))
KERNEL(batchnorm_add_backward_bf16, const tandem_batchnorm norm = norm_of_inputs(k, to);
       const tandem_batchnorm_gradients out = norm_gradients(to, 1, 1);
       k->batchnorm_add_backward_bf16(&norm, &out, in->half_b, in->half_a, in->half_a);
       assert_norm_guarded(k, to))

/* --- Products: many rows, few rows and many columns, a sum that is cut ---------------------------------- */

static void run_gemm_s8(const tandem_isa_kernels *k, results *to)
{
    static const int64_t size[][3] = {{151, 37, 95}, {7, 333, 130}, {40, 40, 1100}, {1, 1, 3}, {64, 64, 0}};
    int64_t at = 0;
    for (size_t s = 0; s < sizeof size / sizeof *size; s++) {
        const int64_t m = size[s][0], n = size[s][1], depth = size[s][2];
        const size_t bytes = k->gemm_s8_workspace(m, n, depth);
        tandem_product_s8 p = {.m = m,
                               .n = n,
                               .k = depth,
                               .a = in->bytes,
                               .a_row = depth,
                               .a_column = 1,
                               .b = in->bytes + 11,
                               .b_row = n,
                               .b_column = 1,
                               .c = to->x + at,
                               .c_row = n,
                               .c_type = TANDEM_F32,
                               .scale = 0.01f,
                               .row_scale = in->c,
                               .column_scale = in->c + 500,
                               .bias = in->b,
                               .workspace = guarded_workspace(to, bytes)};
        k->gemm_s8(&p);
        p.c = to->words + at;
        p.c_type = TANDEM_S32;
        p.row_scale = p.column_scale = p.bias = NULL;
        k->gemm_s8(&p);
        assert_guarded(to, bytes);
        at += m * n;
    }
    assert_true(at <= N);
}

/* Sizes, which differ; the kernels above ask for them. */
static void run_gemm_s8_workspace(const tandem_isa_kernels *k, results *to)
{
    (void)k;
    (void)to;
}

static void run_batchnorm_workspace(const tandem_isa_kernels *k, results *to)
{
    (void)k;
    (void)to;
}

/* --- Convolutions, where there is AVX-512 --------------------------------------------------------------- */

/* More images than threads, and fewer; more tiles than channels, and fewer. */
static void run_winograd(const tandem_isa_kernels *k, results *to)
{
    static const int64_t size[][5] = {{9, 8, 7, 32, 64}, {1, 9, 11, 32, 96}, {2, 4, 4, 64, 96}};
    if (!k->winograd) return;
    for (size_t s = 0; s < sizeof size / sizeof *size; s++)
        for (int pass = 0; pass < 3; pass++) {
            tandem_winograd w = {.n = size[s][0],
                                 .height = size[s][1],
                                 .width = size[s][2],
                                 .from = size[s][3],
                                 .to = size[s][4],
                                 .is_dgrad = pass == 1,
                                 .is_wgrad = pass == 2,
                                 .x = in->a,
                                 .w = in->b,
                                 .y = pass == 1   ? to->y
                                      : pass == 2 ? to->z
                                                  : to->x};
            w.out_first = s == 1;
            const size_t bytes = k->winograd_workspace(&w);
            w.workspace = guarded_workspace(to, bytes);
            k->winograd(&w);
            assert_guarded(to, bytes);
        }
}

/* Many channels of the result, or of x: each is what some kernels divide. */
static void run_weight_gradient_of(const tandem_isa_kernels *k, results *to, int is_bf16)
{
    static const int64_t channels[][2] = {{32, 160}, {96, 64}};
    for (int i = 0; i < 4; i++) {
        const int kernel = i % 2 ? 3 : 1;
        tandem_weight_gradient g = {.n = 5,
                                    .height = 12,
                                    .width = 10,
                                    .out_height = 6,
                                    .out_width = 5,
                                    .from = channels[i / 2][0],
                                    .to = channels[i / 2][1],
                                    .kernel_h = kernel,
                                    .kernel_w = kernel,
                                    .stride = 2,
                                    .pad = kernel / 2,
                                    .is_bf16 = is_bf16,
                                    .x = is_bf16 ? (const void *)in->half_a : in->a,
                                    .gradient = is_bf16 ? (const void *)in->half_b : in->b,
                                    .y = i < 2    ? to->x
                                         : i == 2 ? to->y
                                                  : to->z};
        if (i == 1) g.y += 32 * 160;
        const size_t bytes = k->weight_gradient_workspace(&g);
        g.workspace = guarded_workspace(to, bytes);
        k->weight_gradient(&g);
        assert_guarded(to, bytes);
    }
}

static void run_weight_gradient(const tandem_isa_kernels *k, results *to)
{
    if (k->weight_gradient) run_weight_gradient_of(k, to, 0);
}

static void run_weight_gradient_bf16(const tandem_isa_kernels *k, results *to)
{
    if (k->weight_gradient && k->multiplies_bf16) run_weight_gradient_of(k, to, 1);
}

/* --- bf16 products, which devices with tiles call ------------------------------------------------------- */

static void run_gemm_bf16(const tandem_isa_kernels *k, results *to)
{
    static const int64_t size[][3] = {{151, 37, 95}, {7, 333, 130}, {40, 40, 1100}, {1, 1, 3}, {64, 64, 0}};
    int64_t at = 0;
    if (!k->has_tiles) return;
    for (size_t s = 0; s < sizeof size / sizeof *size; s++) {
        const int64_t m = size[s][0], n = size[s][1], depth = size[s][2];
        const size_t bytes = k->gemm_bf16_workspace(m, n, depth);
        const tandem_product_bf16 p = {.m = m,
                                       .n = n,
                                       .k = depth,
                                       .a = in->half_a,
                                       .a_row = s % 2 ? depth : 1,
                                       .a_column = s % 2 ? 1 : m,
                                       .b = in->half_b,
                                       .b_row = n,
                                       .b_column = 1,
                                       .c = to->x + at,
                                       .c_row = n,
                                       .bias = s % 2 ? in->b : NULL,
                                       .workspace = guarded_workspace(to, bytes)};
        k->gemm_bf16(&p);
        assert_guarded(to, bytes);
        at += m * n;
    }
    assert_true(at <= N);
}

/* --- All of them ---------------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    run_kernel *run;
} kernels[] = {
#define DIVIDED(name) {#name, run_##name},
#include "backend/cpu/isa/divided.def"
#undef DIVIDED
    {"winograd", run_winograd},
    {"weight_gradient", run_weight_gradient},
    {"weight_gradient of bf16", run_weight_gradient_bf16},
    {"gemm_bf16", run_gemm_bf16},
};

static void assert_same(const char *isa, const char *kernel, int threads)
{
    const size_t compared = offsetof(results, workspace);
    if (memcmp(one, many, compared) == 0) return;
    size_t at = 0;
    while (((const char *)one)[at] == ((const char *)many)[at]) at++;
    fail_msg("%s of %s on %d threads: byte %zu of the results differs", kernel, isa, threads, at);
}

static void divided_kernels_have_the_bits_of_one_thread(void **state)
{
    int n_table = 0;
    for (size_t i = 0; i < sizeof isa_names / sizeof *isa_names; i++) {
        const tandem_kernels *table = NULL;
        if (tandem_kernels_open(&table, isa_names[i], NULL) != TANDEM_OK) continue;
        tandem_isa_kernels divided;
        cpu_divide_kernels(&divided, table);
        n_table++;
        for (size_t k = 0; k < sizeof kernels / sizeof *kernels; k++) {
            memset(one, 0x11, sizeof *one);
            kernels[k].run(table, one);
            for (size_t t = 0; t < sizeof thread_counts / sizeof *thread_counts; t++) {
                cpu_team_set(thread_counts[t]);
                memset(many, 0x11, sizeof *many);
                kernels[k].run(&divided, many);
                assert_same(isa_names[i], kernels[k].name, thread_counts[t]);
            }
        }
    }
    if (n_table == 0) {
        print_message("SKIP: this machine lacks even sse41\n");
        skip();
    }
}

/* What is not finite is found on whatever thread it lies. */
static void divided_kernels_find_what_is_not_finite(void **state)
{
    static const size_t places[] = {0, 4096, N / 2, N - 1};
    const tandem_kernels *table = NULL;
    if (tandem_kernels_open(&table, "best", NULL) != TANDEM_OK) skip();
    tandem_isa_kernels divided;
    cpu_divide_kernels(&divided, table);
    float *const x = malloc(sizeof in->a);
    assert_non_null(x);
    for (size_t p = 0; p < sizeof places / sizeof *places; p++)
        for (size_t t = 0; t < sizeof thread_counts / sizeof *thread_counts; t++) {
            cpu_team_set(thread_counts[t]);
            memcpy(x, in->a, sizeof in->a);
            x[places[p]] = NAN;
            assert_true(isnan(divided.amax_f32(x, N)));
            assert_true(isnan(divided.quantise_amax_f32(many->bytes, x, N, 120, &rounding)));
            assert_int_equal(divided.sgd(many->x, many->y, x, N, 0.1f, 0.9f, 0), 0);
            x[places[p]] = -9;
            assert_true(divided.amax_f32(x, N) == 9.0f); /* NOLINT: exact */
            assert_int_equal(divided.sgd(many->x, many->y, x, N, 0.1f, 0.9f, 0), 1);
        }
    free(x);
}

/* --- The team ------------------------------------------------------------------------------------------- */

typedef struct seen_parts {
    int64_t n, grain;
    unsigned char seen[1000];
} seen_parts;

static void note_part(void *context, int64_t begin, int64_t end)
{
    seen_parts *of = context;
    if (begin % of->grain != 0) of->seen[0] = 99;
    for (int64_t i = begin; i < end; i++) of->seen[i]++;
}

static void every_element_is_in_one_part(void **state)
{
    static const int64_t lengths[] = {0, 1, 7, 8, 9, 63, 64, 65, 999, 1000}, grains[] = {1, 8, 64, 2000};
    for (size_t n = 0; n < sizeof lengths / sizeof *lengths; n++)
        for (size_t g = 0; g < sizeof grains / sizeof *grains; g++)
            for (size_t t = 0; t < sizeof thread_counts / sizeof *thread_counts; t++) {
                seen_parts of = {.n = lengths[n], .grain = grains[g]};
                cpu_team_set(thread_counts[t]);
                assert_int_equal(cpu_team_size(), thread_counts[t]);
                cpu_for(of.n, of.grain, note_part, &of);
                for (int64_t i = 0; i < 1000; i++) assert_int_equal(of.seen[i], i < of.n);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_element_is_in_one_part),
                                       cmocka_unit_test(divided_kernels_have_the_bits_of_one_thread),
                                       cmocka_unit_test(divided_kernels_find_what_is_not_finite)};
    in = calloc(1, sizeof *in);
    one = aligned_alloc(64, (sizeof *one + 63) / 64 * 64);
    many = aligned_alloc(64, (sizeof *many + 63) / 64 * 64);
    if (!in || !one || !many) return 1;
    fill_arrays();
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    free(in);
    free(one);
    free(many);
    return failed;
}
