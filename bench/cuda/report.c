/* report.c: the tables. */
#include <math.h>
#include <string.h>

#include "base/quantity.h"
#include "bench/cuda/gpu_bench.h"

/* --- Cells ---------------------------------------------------------------------------------------------- */

static char *print_absent(char cell[GPU_CELL])
{
    (void)snprintf(cell, GPU_CELL, "-");
    return cell;
}

char *gpu_print_ns(char cell[GPU_CELL], int64_t ns)
{
    return ns < 0 ? print_absent(cell) : tandem_quantity_print_ns(cell, GPU_CELL, ns);
}

char *gpu_print_rate(char cell[GPU_CELL], double amount, int64_t ns, const char *unit)
{
    if (ns <= 0) return print_absent(cell);
    return tandem_quantity_print_per_second(cell, GPU_CELL, amount * 1e9 / (double)ns, unit);
}

char *gpu_print_share(char cell[GPU_CELL], double part, double whole)
{
    if (!(part >= 0 && whole > 0)) return print_absent(cell);
    (void)snprintf(cell, GPU_CELL, "%.0f%%", 100 * part / whole);
    return cell;
}

char *gpu_print_multiple(char cell[GPU_CELL], double ns, double of_ns)
{
    if (!(ns >= 0 && of_ns > 0)) return print_absent(cell);
    (void)snprintf(cell, GPU_CELL, "%.2f x", ns / of_ns);
    return cell;
}

/* What a card cannot do is no error of the report; a card that failed is. */
static int is_fatal(tandem_status status)
{
    return status != TANDEM_OK && status != TANDEM_NO_KERNEL && status != TANDEM_UNKNOWN_NAME &&
           status != TANDEM_USAGE;
}

/* --- Ceilings ------------------------------------------------------------------------------------------- */

typedef struct copies {
    const gpu_bench *c;
    char *memory;
    uint64_t bytes; /* of one copy; a turn has two arrays of so many */
} copies;

static int run_copy(void *context, int turn)
{
    const copies *of = context;
    char *const to = of->memory + (uint64_t)turn * 2 * of->bytes;
    return of->c->device->vendor->copy(to, to + of->bytes, of->bytes, of->c->device->stream);
}

static tandem_status measure_copies(gpu_bench *c, tandem_error *error)
{
    uint64_t max_bytes = 0;
    void *memory = NULL;
    char cells[3][GPU_CELL];
    for (int k = 0; k < GPU_COPIES; k++)
        if (c->sizes.copy_bytes[k] > max_bytes) max_bytes = c->sizes.copy_bytes[k];
    const uint64_t words = max_bytes / 4 * 2 * GPU_TURNS;
    tandem_status status = gpu_alloc(&memory, c, words * 4, error);
    if (status == TANDEM_OK) status = gpu_fill(c, memory, TANDEM_F32, words, 0, 0, error);
    fprintf(c->out, "\n%-34s %10s %14s\n", "ceiling", "time", "rate");
    for (int k = 0; k < GPU_COPIES && status == TANDEM_OK; k++) {
        copies of = {c, memory, c->sizes.copy_bytes[k]};
        int64_t ns = 0;
        status = gpu_time(&ns, c, "a copy", c->sizes.launches, run_copy, &of, error);
        if (status != TANDEM_OK) break;
        fprintf(c->out, "copy of %-26s %10s %14s\n",
                tandem_quantity_print_bytes(cells[0], GPU_CELL, of.bytes), gpu_print_ns(cells[1], ns),
                gpu_print_rate(cells[2], 2 * (double)of.bytes, ns, "B"));
        c->copy_bytes_per_s = fmax(c->copy_bytes_per_s, 2 * (double)of.bytes * 1e9 / (double)ns);
    }
    gpu_free_all(c);
    return status;
}

/* --- Products by the library alone ---------------------------------------------------------------------- */

typedef struct bare_product {
    const gpu_bench *c;
    cuda_work *work;
    cuda_algorithm algorithm;
    void *a, *b, *result, *workspace;
    float *scales; /* two, of fp8 */
} bare_product;

static int run_bare(void *context, int turn)
{
    (void)turn; /* one product's operands are larger than any cache */
    const bare_product *p = context;
    const cuda_operands operands = {p->a, p->b, p->result, p->scales, p->scales + 1};
    return p->c->device->vendor->work_run(p->work, &p->algorithm, &operands, p->workspace,
                                          p->c->device->stream);
}

/* A type of operands: its products by the library alone, and as a precision of a layer (NULL: no layer has
 * such products forward). fast_sums: as cuda_product_spec has it. */
typedef struct square {
    const char *name, *precision;
    cuda_type from, to;
    tandem_dtype dtype;
    int tf32, fast_sums;
} square;

/* side³ with A as (m, k) and B as (n, k), which every type can do. TANDEM_NO_KERNEL where the library cannot.
 * */
static tandem_status time_bare(int64_t *ns, gpu_bench *c, const square *type, tandem_error *error)
{
    const int64_t side = c->sizes.side;
    const cuda_type from = type->from, to = type->to;
    const tandem_dtype dtype = type->dtype;
    const cuda_product_spec spec = {.batch = 1,
                                    .m = side,
                                    .n = side,
                                    .k = side,
                                    .transpose_b = 1,
                                    .a = from,
                                    .b = from,
                                    .to = to,
                                    .tf32 = type->tf32,
                                    .fast_sums = type->fast_sums};
    void *scales = NULL;
    const cuda_vendor *vendor = c->device->vendor;
    bare_product p = {.c = c};
    const size_t n = (size_t)(side * side);
    if (vendor->product_open(&p.work, c->device->libraries, &spec))
        return tandem_error_set(error, TANDEM_NO_KERNEL, "the library has no such product");
    cuda_work_key candidate = {.work = p.work,
                               .a_bytes = n * cuda_type_bytes(from),
                               .b_bytes = n * cuda_type_bytes(from),
                               .c_bytes = n * cuda_type_bytes(to)};
    cuda_product_print(candidate.text, &spec);
    if (cuda_choose_algorithm(&p.algorithm, c->device->algorithm_cache, vendor, c->device->stream,
                              &candidate)) {
        vendor->work_close(p.work);
        return tandem_error_set(error, TANDEM_NO_KERNEL, "the library has no such product");
    }
    tandem_status status = gpu_alloc(&p.a, c, n * tandem_dtype_bytes(dtype), error);
    if (status == TANDEM_OK) status = gpu_alloc(&p.b, c, n * tandem_dtype_bytes(dtype), error);
    if (status == TANDEM_OK) status = gpu_alloc(&p.result, c, n * 4, error);
    if (status == TANDEM_OK) status = gpu_alloc(&p.workspace, c, p.algorithm.workspace_bytes, error);
    if (status == TANDEM_OK) status = gpu_alloc(&scales, c, 2 * sizeof(float), error);
    if (status == TANDEM_OK) status = gpu_fill(c, scales, TANDEM_F32, 2, 1, 0, error);
    p.scales = scales;
    if (status == TANDEM_OK) status = gpu_fill(c, p.a, dtype, n, 0, 0, error);
    if (status == TANDEM_OK) status = gpu_fill(c, p.b, dtype, n, 0, 0, error);
    const int launches = c->sizes.launches > 4 ? 4 : c->sizes.launches;
    if (status == TANDEM_OK) status = gpu_time(ns, c, "a product", launches, run_bare, &p, error);
    vendor->work_close(p.work);
    gpu_free_all(c);
    return status;
}

static tandem_status measure_library_products(gpu_bench *c, tandem_error *error)
{
    static const square rows[] = {{"bf16", "bf16", CUDA_TYPE_BF16, CUDA_TYPE_BF16, TANDEM_BF16, 0, 0},
                                  {"fp32", "fp32", CUDA_TYPE_F32, CUDA_TYPE_F32, TANDEM_F32, 0, 0},
                                  {"tf32", "tf32", CUDA_TYPE_F32, CUDA_TYPE_F32, TANDEM_F32, 1, 0},
                                  {"fp16", "fp16", CUDA_TYPE_F16, CUDA_TYPE_F16, TANDEM_F16, 0, 0},
                                  {"int8", "int8_full", CUDA_TYPE_S8, CUDA_TYPE_S32, TANDEM_S8, 0, 0},
                                  {"fp8", "fp8", CUDA_TYPE_E4M3, CUDA_TYPE_BF16, TANDEM_E4M3, 0, 1},
                                  {"fp8 slow", NULL, CUDA_TYPE_E4M3, CUDA_TYPE_BF16, TANDEM_E4M3, 0, 0}};
    const double flops = 2 * pow((double)c->sizes.side, 3);
    char cells[5][GPU_CELL], name[96];
    int64_t bf16_ns = -1;
    tandem_status status = TANDEM_OK;
    tandem_error aside;
    fprintf(c->out, "\n%-30s %10s %14s %12s %10s %10s\n", "product", "library", "rate", "with scales",
            "of it", "than bf16");
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        int64_t bare_ns = -1;
        gpu_linear ours = {-1, -1, -1};
        status = time_bare(&bare_ns, c, &rows[k], &aside);
        if (!is_fatal(status) && rows[k].precision)
            status = gpu_linear_time(&ours, c, c->sizes.side, c->sizes.side, c->sizes.side, rows[k].precision,
                                     0, &aside);
        if (is_fatal(status)) {
            *error = aside;
            return status;
        }
        if (k == 0) bf16_ns = bare_ns;
        const long long side = c->sizes.side;
        (void)snprintf(name, sizeof name, "%s %lld x %lld x %lld", rows[k].name, side, side, side);
        fprintf(c->out, "%-30s %10s %14s %12s %10s %10s\n", name, gpu_print_ns(cells[0], bare_ns),
                gpu_print_rate(cells[1], flops, bare_ns, "FLOP"), gpu_print_ns(cells[2], ours.forward_ns),
                gpu_print_multiple(cells[3], (double)ours.forward_ns, (double)bare_ns),
                gpu_print_multiple(cells[4], (double)bf16_ns, (double)ours.forward_ns));
    }
    if (bf16_ns > 0) c->bf16_flops_per_s = flops * 1e9 / (double)bf16_ns;
    return TANDEM_OK;
}

/* --- Kernels -------------------------------------------------------------------------------------------- */

typedef struct turns {
    const gpu_bench *c;
    gpu_arrays arrays[GPU_TURNS];
    const gpu_kernel *kernel, *before; /* before: runs first, or NULL */
} turns;

static int run_kernel(void *context, int turn)
{
    const turns *of = context;
    const gpu_arrays own = gpu_kernel_arrays(of->kernel, &of->arrays[turn]);
    int failed = 0;
    if (of->before) failed = of->before->launch(&of->arrays[turn], of->c->device->stream);
    return failed ? failed : of->kernel->launch(&own, of->c->device->stream);
}

static tandem_status time_kernel(int64_t *ns, turns *of, const gpu_kernel *before, const gpu_kernel *kernel,
                                 tandem_error *error)
{
    of->before = before;
    of->kernel = kernel;
    return gpu_time(ns, of->c, kernel->name, of->c->sizes.launches, run_kernel, of, error);
}

/* Reading the range and rounding, against two passes over memory at the copy's rate; and rounding with a
 * delayed scale, which finds the next range meanwhile, against one. */
static tandem_status measure_quantising(turns *of, tandem_error *error)
{
    static const char *const types[] = {"f32", "bf16"};
    char name[64], cells[4][GPU_CELL];
    tandem_status status = TANDEM_OK;
    fprintf(of->c->out, "\n%-34s %10s %16s %12s %16s\n", "quantise", "amax too", "of two passes", "delayed",
            "of one pass");
    for (int k = 0; k < 2; k++) {
        int64_t both_ns = -1, one_ns = -1;
        (void)snprintf(name, sizeof name, "amax %s", types[k]);
        const gpu_kernel *const amax = gpu_kernel_find(name);
        (void)snprintf(name, sizeof name, "quantise %s", types[k]);
        const gpu_kernel *const quantise = gpu_kernel_find(name);
        (void)snprintf(name, sizeof name, "quantise %s, delayed", types[k]);
        status = time_kernel(&both_ns, of, amax, quantise, error);
        if (status == TANDEM_OK) status = time_kernel(&one_ns, of, NULL, gpu_kernel_find(name), error);
        if (status != TANDEM_OK) return status;
        const double n = (double)of->arrays[0].n, per_ns = of->c->copy_bytes_per_s / 1e9;
        fprintf(of->c->out, "%-34s %10s %16s %12s %16s\n", types[k], gpu_print_ns(cells[0], both_ns),
                gpu_print_multiple(cells[1], (double)both_ns,
                                   n * (amax->bytes_an_element + quantise->bytes_an_element) / per_ns),
                gpu_print_ns(cells[2], one_ns),
                gpu_print_multiple(cells[3], (double)one_ns, n * quantise->bytes_an_element / per_ns));
    }
    return status;
}

/* A layer's products, forward two, backward five; of a causal one the half that counts. Backward makes seven,
 * since it makes the scores twice. */
static double attention_flops(const gpu_attention *a, int n_product)
{
    const double pairs = (double)(a->batch * a->heads) * (double)a->tokens * (double)a->tokens;
    return 2 * n_product * pairs * (double)a->depth / (a->causal ? 2 : 1);
}

static tandem_status measure_attention(gpu_bench *c, tandem_error *error)
{
    char cells[6][GPU_CELL], name[64];
    fprintf(c->out, "\n%-38s %10s %14s %8s %10s %14s %8s\n", "attention bf16", "forward", "rate", "of bf16",
            "backward", "rate", "of bf16");
    for (int k = 0; k < GPU_ATTENTIONS; k++) {
        const gpu_attention *const a = &c->sizes.attention[k];
        const double forward = attention_flops(a, 2), backward = attention_flops(a, 5);
        gpu_attention_times t = {-1, -1};
        tandem_error aside = {0};
        const tandem_status status = gpu_attention_time(&t, c, a, &aside);
        if (is_fatal(status)) {
            *error = aside;
            return status;
        }
        (void)snprintf(name, sizeof name, "%zu x %zu x %zu x %zu%s%s", a->batch, a->heads, a->tokens,
                       a->depth, a->causal ? ", causal" : "", a->has_dropout ? ", dropout" : "");
        fprintf(c->out, "%-38s %10s %14s %8s %10s %14s %8s\n", name, gpu_print_ns(cells[0], t.forward_ns),
                gpu_print_rate(cells[1], forward, t.forward_ns, "FLOP"),
                gpu_print_share(cells[2], forward * 1e9 / (double)t.forward_ns, c->bf16_flops_per_s),
                gpu_print_ns(cells[3], t.backward_ns),
                gpu_print_rate(cells[4], backward, t.backward_ns, "FLOP"),
                gpu_print_share(cells[5], backward * 1e9 / (double)t.backward_ns, c->bf16_flops_per_s));
    }
    return TANDEM_OK;
}

static tandem_status measure_kernels(gpu_bench *c, tandem_error *error)
{
    turns of = {.c = c};
    char cells[4][GPU_CELL];
    tandem_status status = TANDEM_OK;
    for (int k = 0; k < GPU_TURNS && status == TANDEM_OK; k++) {
        status = gpu_arrays_open(&of.arrays[k], c, c->sizes.elements, c->sizes.columns, error);
        if (status == TANDEM_OK) status = gpu_arrays_fill(&of.arrays[k], c, error);
    }
    fprintf(c->out, "\n%-34s %10s %10s %14s %8s\n", "kernel", "bytes", "time", "rate", "of copy");
    for (int k = 0; k < n_gpu_kernel && status == TANDEM_OK; k++) {
        const gpu_arrays own = gpu_kernel_arrays(&gpu_kernels[k], &of.arrays[0]);
        const double bytes = gpu_kernels[k].bytes_an_element * (double)(own.rows * own.columns);
        int64_t ns = -1;
        status = time_kernel(&ns, &of, NULL, &gpu_kernels[k], error);
        if (status != TANDEM_OK) break;
        fprintf(c->out, "%-34s %10s %10s %14s %8s\n", gpu_kernels[k].name,
                tandem_quantity_print_bytes(cells[0], GPU_CELL, (uint64_t)bytes), gpu_print_ns(cells[1], ns),
                gpu_print_rate(cells[2], bytes, ns, "B"),
                gpu_print_share(cells[3], bytes * 1e9 / (double)ns, c->copy_bytes_per_s));
    }
    if (status == TANDEM_OK) status = measure_quantising(&of, error);
    gpu_free_all(c);
    return status == TANDEM_OK ? measure_attention(c, error) : status;
}

/* --- The transformer layer ------------------------------------------------------------------------------ */

enum { PRODUCTS = 4 };

/* How its products are made. */
typedef struct manner {
    const char *name, *precision;
    int is_delayed;
} manner;

static tandem_status time_layer(gpu_linear times[PRODUCTS], gpu_linear *sum, gpu_bench *c, const manner *how,
                                tandem_error *error)
{
    const int64_t h = c->sizes.hidden, f = c->sizes.ffn;
    const int64_t shape[PRODUCTS][2] = {{h, 3 * h}, {h, h}, {h, f}, {f, h}};
    tandem_status status = TANDEM_OK;
    gpu_linear all = {0};
    for (int k = 0; k < PRODUCTS && status == TANDEM_OK; k++) {
        status = gpu_linear_time(&times[k], c, c->sizes.tokens, shape[k][0], shape[k][1], how->precision,
                                 how->is_delayed, error);
        if (status != TANDEM_OK) break;
        all.forward_ns += times[k].forward_ns, all.all_ns += times[k].all_ns,
            all.casts_ns += times[k].casts_ns;
    }
    if (status == TANDEM_OK)
        *sum = all;
    else
        for (int k = 0; k < PRODUCTS; k++) times[k] = (gpu_linear){-1, -1, -1};
    return is_fatal(status) ? status : TANDEM_OK;
}

static void print_layer(const gpu_bench *c, const char *name, const char *precision, const gpu_linear *t,
                        const gpu_linear *bf16, double flops)
{
    char cells[4][GPU_CELL];
    fprintf(c->out, "%-14s %-18s %12s %14s %12s %10s\n", name, precision, gpu_print_ns(cells[0], t->all_ns),
            gpu_print_rate(cells[1], flops, t->all_ns, "FLOP"),
            gpu_print_share(cells[2], (double)t->casts_ns, (double)t->all_ns),
            gpu_print_multiple(cells[3], (double)bf16->all_ns, (double)t->all_ns));
}

static tandem_status measure_layer(gpu_bench *c, tandem_error *error)
{
    static const char *const names[PRODUCTS] = {"QKV", "projection", "FFN up", "FFN down"};
    static const manner manners[] = {{"bf16", "bf16", 0},
                                     {"int8_full", "int8_full", 0},
                                     {"int8_full delayed", "int8_full", 1},
                                     {"fp8", "fp8", 0},
                                     {"fp8 delayed", "fp8", 1}};
    enum { N_MANNER = sizeof manners / sizeof *manners };
    gpu_linear times[N_MANNER][PRODUCTS], sum[N_MANNER];
    const double h = (double)c->sizes.hidden, f = (double)c->sizes.ffn, tokens = (double)c->sizes.tokens;
    const double weights[PRODUCTS] = {3 * h * h, h * h, h * f, f * h};
    for (int p = 0; p < N_MANNER; p++) {
        sum[p] = (gpu_linear){-1, -1, -1};
        const tandem_status status = time_layer(times[p], &sum[p], c, &manners[p], error);
        if (status != TANDEM_OK) return status;
    }
    fprintf(c->out,
            "\nForward, dgrad and wgrad of a layer's products, all casts included: %lld tokens, "
            "hidden %lld, FFN %lld\n",
            (long long)c->sizes.tokens, (long long)c->sizes.hidden, (long long)c->sizes.ffn);
    fprintf(c->out, "%-14s %-18s %12s %14s %12s %10s\n", "product", "precision", "time", "rate",
            "of it casts", "than bf16");
    for (int k = 0; k <= PRODUCTS; k++)
        for (int p = 0; p < N_MANNER; p++)
            print_layer(c, k < PRODUCTS ? names[k] : "all four", manners[p].name,
                        k < PRODUCTS ? &times[p][k] : &sum[p], k < PRODUCTS ? &times[0][k] : &sum[0],
                        6 * tokens *
                            (k < PRODUCTS ? weights[k] : weights[0] + weights[1] + weights[2] + weights[3]));
    return TANDEM_OK;
}

/* --- All of it ------------------------------------------------------------------------------------------ */

static void print_clocks_of_table(const gpu_bench *c)
{
    const gpu_clocks *k = c->clocks;
    if (k->max.compute_mhz > 0)
        fprintf(c->out, "at %d to %d MHz, memory %d to %d MHz\n", k->min.compute_mhz, k->max.compute_mhz,
                k->min.memory_mhz, k->max.memory_mhz);
}

tandem_status gpu_bench_report(gpu_bench *c, tandem_error *error)
{
    static tandem_status (*const tables[])(gpu_bench * c, tandem_error * error) = {
        measure_copies, measure_library_products, measure_kernels, measure_layer};
    enum { N_TABLE = sizeof tables / sizeof *tables };
    const int n_table = c->n_table > 0 && c->n_table < N_TABLE ? c->n_table : N_TABLE;
    tandem_status status = TANDEM_OK;
    for (int k = 0; k < n_table && status == TANDEM_OK; k++) {
        gpu_clocks clocks = {0};
        c->clocks = &clocks;
        status = tables[k](c, error);
        if (status == TANDEM_OK) print_clocks_of_table(c);
        c->clocks = NULL;
    }
    if (status != TANDEM_OK) gpu_free_all(c);
    return status;
}
