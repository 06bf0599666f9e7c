/* bench_kernels.c: the kernel library (tandem/kernels.h) next to a copy of the same bytes, int8 products, and
 * a linear layer in each precision in the executor. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "bench/program/bench.h"
#include "tandem/kernels.h"

enum { REPETITIONS = 10, COLUMNS = 512, CACHE_LINE = 64 };
static const int64_t min_sample_ns = 300000; /* long enough to hide the cost of reading the clock */

/* Operands of one call, and the bytes that it reads and writes. */
typedef struct kernel_work {
    const tandem_kernels *kernels;
    uint64_t bytes;
    char *memory, *copy;
    tandem_quantise_call quantise;
    tandem_dequantise_call dequantise;
    tandem_cast_call cast;
    tandem_product_s8 product;
    float amax, *scale;
    size_t workspace_bytes;
} kernel_work;

typedef tandem_status (*kernel_function)(kernel_work *w, tandem_error *error);

static tandem_status call_quantise(kernel_work *w, tandem_error *error)
{
    return tandem_kernels_quantise(w->kernels, &w->quantise, error);
}
static tandem_status call_dequantise(kernel_work *w, tandem_error *error)
{
    return tandem_kernels_dequantise(w->kernels, &w->dequantise, error);
}
static tandem_status call_cast(kernel_work *w, tandem_error *error)
{
    return tandem_kernels_cast(w->kernels, &w->cast, error);
}
static tandem_status call_amax(kernel_work *w, tandem_error *error)
{
    const tandem_quantise_call *q = &w->quantise;
    return tandem_kernels_amax(w->kernels, &w->amax, q->x, q->from, q->rows, q->columns, 0, error);
}
static tandem_status call_product(kernel_work *w, tandem_error *error)
{
    return tandem_kernels_product(w->kernels, &w->product, w->workspace_bytes, error);
}
static tandem_status call_copy(kernel_work *w, tandem_error *error)
{
    (void)error;
    memcpy(w->copy, w->copy + w->bytes / 2, w->bytes / 2);
    __asm__ volatile("" ::: "memory"); /* keeps the copy, whose result is unused */
    return TANDEM_OK;
}

/* The kernels, with the bytes that they move per element. */
static const struct {
    const char *name;
    kernel_function run;
    tandem_dtype wide; /* the floating-point side */
    int bytes;
    int stochastic, with_transposed, with_amax;
    tandem_scale_mode scale_mode;
} kinds[] = {
    {"f32 to s8 nearest, range known", call_quantise, TANDEM_F32, 5, 0, 0, 0, TANDEM_SCALE_KNOWN},
    {"f32 to s8 nearest, range known, amax", call_quantise, TANDEM_F32, 5, 0, 0, 1, TANDEM_SCALE_KNOWN},
    {"f32 to s8 nearest", call_quantise, TANDEM_F32, 5, 0, 0, 0, TANDEM_SCALE_TENSOR},
    {"f32 to s8 nearest, by row", call_quantise, TANDEM_F32, 5, 0, 0, 0, TANDEM_SCALE_ROW},
    {"f32 to s8 nearest, range known, transposed too", call_quantise, TANDEM_F32, 6, 0, 1, 0,
     TANDEM_SCALE_KNOWN},
    {"f32 to s8 stochastic, range known", call_quantise, TANDEM_F32, 5, 1, 0, 0, TANDEM_SCALE_KNOWN},
    {"bf16 to s8 nearest, range known", call_quantise, TANDEM_BF16, 3, 0, 0, 0, TANDEM_SCALE_KNOWN},
    {"bf16 to s8 stochastic, range known", call_quantise, TANDEM_BF16, 3, 1, 0, 0, TANDEM_SCALE_KNOWN},
    {"f32 amax", call_amax, TANDEM_F32, 4, 0, 0, 0, TANDEM_SCALE_TENSOR},
    {"s8 to f32", call_dequantise, TANDEM_F32, 5, 0, 0, 0, TANDEM_SCALE_TENSOR},
    {"s8 to bf16", call_dequantise, TANDEM_BF16, 3, 0, 0, 0, TANDEM_SCALE_TENSOR},
    {"f32 to bf16", call_cast, TANDEM_F32, 6, 0, 0, 0, TANDEM_SCALE_TENSOR},
    {"bf16 to f32", call_cast, TANDEM_BF16, 6, 0, 0, 0, TANDEM_SCALE_TENSOR},
};
enum { N_KIND = sizeof kinds / sizeof *kinds };

/* --- Measuring ------------------------------------------------------------------------------------------ */

/* Repeats a call until the clock can measure it. */
static tandem_status time_call(kernel_work *w, kernel_function run, int64_t *sample_ns, tandem_error *error)
{
    const int64_t begin_ns = tandem_now_ns();
    int64_t passed_ns = 0, n = 0;
    tandem_status status = TANDEM_OK;
    for (; passed_ns < min_sample_ns && status == TANDEM_OK; n++, passed_ns = tandem_now_ns() - begin_ns)
        status = run(w, error);
    *sample_ns = passed_ns / n;
    return status;
}

/* Alternates copy and kernel, so that disturbances affect both. */
static tandem_status measure_kernel(bench_result *result, kernel_work *w, const char *name,
                                    kernel_function run, int64_t n, int with_copy, tandem_error *error)
{
    int64_t *kernel_ns = calloc((size_t)n, sizeof *kernel_ns), *copy_ns = calloc((size_t)n, sizeof *copy_ns),
            warm_ns;
    tandem_status status =
        kernel_ns && copy_ns ? TANDEM_OK : tandem_no_memory(error, "for %" PRId64 " samples", n);
    if (status == TANDEM_OK) status = time_call(w, run, &warm_ns, error);
    for (int64_t i = 0; i < n && status == TANDEM_OK; i++) {
        if (with_copy) status = time_call(w, call_copy, &copy_ns[i], error);
        if (status == TANDEM_OK) status = time_call(w, run, &kernel_ns[i], error);
    }
    if (status == TANDEM_OK) {
        bench_add_case(result, name, kernel_ns, n);
        bench_case *one = &result->one[result->n_case - 1];
        if (with_copy) {
            one->bytes_per_s = (double)w->bytes * 1e9 / (double)one->median_ns;
            one->of_copy = (double)bench_median(copy_ns, n) / (double)one->median_ns;
        }
    }
    free(kernel_ns);
    free(copy_ns);
    return status;
}

/* --- Kernels that move bytes ---------------------------------------------------------------------------- */

/* Fills the operands in w->memory, floats first, with numbers between −1 and 1. */
static void set_kernel_operands(kernel_work *w, int k)
{
    static const tandem_rounding rounding = {.seed = 1, .stream = {1, 2, 3}};
    const int64_t rows = (int64_t)w->bytes / kinds[k].bytes / COLUMNS, n = rows * COLUMNS;
    const int is_cast = kinds[k].run == call_cast, to_bf16 = is_cast && kinds[k].wide == TANDEM_F32;
    const size_t wide_bytes =
        (size_t)n * (kinds[k].wide == TANDEM_F32 || is_cast ? sizeof(float) : sizeof(uint16_t));
    char *narrow = w->memory + (wide_bytes + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE;
    float *x = (float *)(void *)w->memory;
    for (size_t i = 0; i < wide_bytes / sizeof *x; i++) x[i] = (float)(i % 1021) / 511 - 1;
    memset(narrow, 1, (size_t)n * (is_cast ? sizeof(uint16_t) : 1));
    w->quantise = (tandem_quantise_call){.x = w->memory,
                                         .from = kinds[k].wide,
                                         .rows = rows,
                                         .columns = COLUMNS,
                                         .q = (int8_t *)narrow,
                                         .transposed = kinds[k].with_transposed ? (int8_t *)narrow + n : NULL,
                                         .scale_mode = kinds[k].scale_mode,
                                         .range = 1,
                                         .rounding = kinds[k].stochastic ? &rounding : NULL,
                                         .scale = w->scale,
                                         .amax = kinds[k].with_amax ? &w->amax : NULL};
    w->dequantise = (tandem_dequantise_call){.q = (int8_t *)narrow,
                                             .rows = rows,
                                             .columns = COLUMNS,
                                             .x = w->memory,
                                             .to = kinds[k].wide,
                                             .scale = w->scale};
    w->cast = (tandem_cast_call){.x = to_bf16 ? w->memory : narrow,
                                 .from = kinds[k].wide,
                                 .rows = rows,
                                 .columns = COLUMNS,
                                 .y = to_bf16 ? narrow : w->memory,
                                 .to = to_bf16 ? TANDEM_BF16 : TANDEM_F32};
}

static tandem_status measure_byte_kernels(bench_result *result, const tandem_kernels *kernels, uint64_t bytes,
                                          const char *size, int64_t n, tandem_error *error)
{
    kernel_work w = {.kernels = kernels, .bytes = bytes};
    char name[96];
    tandem_status status = TANDEM_OK;
    /* amax reads all bytes and also has an int8 result */
    w.memory = aligned_alloc(4096, 2 * bytes);
    w.copy = aligned_alloc(4096, bytes);
    w.scale = calloc(bytes / COLUMNS, sizeof *w.scale);
    if (!w.memory || !w.copy || !w.scale)
        status = tandem_no_memory(error, "for operands of %s", size);
    else
        memset(w.copy, 1, bytes);
    (void)snprintf(name, sizeof name, "%s: copy", size);
    if (status == TANDEM_OK) status = measure_kernel(result, &w, name, call_copy, n, 1, error);
    for (int k = 0; k < N_KIND && status == TANDEM_OK; k++) {
        set_kernel_operands(&w, k);
        w.scale[0] = 1.0f / 127;
        (void)snprintf(name, sizeof name, "%s: %s", size, kinds[k].name);
        status = measure_kernel(result, &w, name, kinds[k].run, n, 1, error);
    }
    free(w.memory);
    free(w.copy);
    free(w.scale);
    return status;
}

/* --- Products ------------------------------------------------------------------------------------------- */

enum { M = BENCH_LINEAR_ROWS, N = BENCH_LINEAR_WIDTH, K = BENCH_LINEAR_WIDTH };
static const tandem_product_s8 products[] = {
    {.m = M, .n = N, .k = K, .a_row = K, .a_column = 1, .b_row = 1, .b_column = K},
    {.m = M, .n = K, .k = N, .a_row = N, .a_column = 1, .b_row = K, .b_column = 1},
    {.m = N, .n = K, .k = M, .a_row = 1, .a_column = N, .b_row = K, .b_column = 1},
};
static const char *const product_names[] = {"s8 product, forward (x times W transposed)",
                                            "s8 product, dgrad (g times W)",
                                            "s8 product, wgrad (g transposed times x)"};

static tandem_status measure_s8_products(bench_result *result, const tandem_kernels *kernels, int64_t n,
                                         tandem_error *error)
{
    kernel_work w = {.kernels = kernels};
    tandem_status status = TANDEM_OK;
    int8_t *a = malloc((size_t)M * K), *b = malloc((size_t)M * K);
    float *c = calloc((size_t)M * N, sizeof *c);
    for (int k = 0; k < 3; k++) {
        const size_t workspace_bytes =
            tandem_kernels_product_workspace(kernels, products[k].m, products[k].n, products[k].k);
        if (workspace_bytes > w.workspace_bytes)
            w.workspace_bytes = (workspace_bytes + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE;
    }
    void *workspace = aligned_alloc(CACHE_LINE, w.workspace_bytes);
    if (!a || !b || !c || !workspace) status = tandem_no_memory(error, "for operands of a product");
    for (int i = 0; i < M * K && status == TANDEM_OK; i++) a[i] = b[i] = (int8_t)(i % 255 - 127);
    for (int k = 0; k < 3 && status == TANDEM_OK; k++) {
        w.product = products[k];
        w.product.a = a;
        w.product.b = b;
        w.product.c = c;
        w.product.scale = 1e-4f;
        w.product.workspace = workspace;
        status = measure_kernel(result, &w, product_names[k], call_product, n, 0, error);
        if (status == TANDEM_OK)
            result->one[result->n_case - 1].ops_per_s =
                2.0 * M * N * K * 1e9 / (double)result->one[result->n_case - 1].median_ns;
    }
    free(a);
    free(b);
    free(c);
    free(workspace);
    return status;
}

int bench_kernels(bench_result *result, const cli_options *given)
{
    static const struct {
        const char *name;
        uint64_t bytes;
    } sizes[] = {{"64 KiB", 64 << 10}, {"1 MiB", 1 << 20}, {"64 MiB", 64 << 20}};
    cli_options options = *given;
    tandem_error error = {0};
    tandem_device device = {.name = ""};
    const tandem_kernels *kernels = NULL;
    const int64_t n = options.repetitions > 0 ? options.repetitions : REPETITIONS;
    tandem_status status =
        tandem_device_resolve(&device, options.device ? options.device : "strongest", &error);
    const char *isa = strchr(device.name, ':');
    cli_set_device(&options, device.name);
    if (status == TANDEM_OK) status = tandem_kernels_open(&kernels, isa ? isa + 1 : "best", &error);
    (void)snprintf(result->model, sizeof result->model, "kernels, one thread");
    (void)snprintf(result->cluster, sizeof result->cluster, "%s", device.name);
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes && status == TANDEM_OK; s++)
        status = measure_byte_kernels(result, kernels, sizes[s].bytes, sizes[s].name, n, &error);
    if (status == TANDEM_OK) status = measure_s8_products(result, kernels, n, &error);
    if (status == TANDEM_OK) status = bench_linear(result, &options, n, &error);
    return status == TANDEM_OK ? 0 : cli_fail(&error);
}
