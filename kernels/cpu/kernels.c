/* kernels.c: tandem/kernels.h: checks arguments, and divides matrices into the rows that an instruction set's
 * kernels process. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/cpu_tiles.h"
#include "kernels/cpu/isa_kernels.h"

enum { STRIP_ROWS = 64 }; /* rows that are transposed together: one cache line of the transposed matrix */
static const int64_t max_blocks = (int64_t)1 << 32, max_elements = (int64_t)1 << 60;

/* --- Opening -------------------------------------------------------------------------------------------- */

static const char *const isa_names[] = {"sse41",  "avx",         "avx2",        "avx2_vnni",
                                        "avx512", "avx512_vnni", "avx512_bf16", "avx512_amx"};
enum { N_ISA_NAME = sizeof isa_names / sizeof *isa_names };

static int machine_runs_isa(const char *name)
{
    __builtin_cpu_init();
    if (strcmp(name, "sse41") == 0) return __builtin_cpu_supports("sse4.1") != 0;
    if (strcmp(name, "avx") == 0) return __builtin_cpu_supports("avx") != 0;
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return 0;
    if (strcmp(name, "avx2") == 0) return 1;
#ifndef __clang__ /* clang-tidy 14 does not know this word */
    if (strcmp(name, "avx2_vnni") == 0) return __builtin_cpu_supports("avxvnni") != 0;
#endif
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
        !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512vl") ||
        !__builtin_cpu_supports("avx512cd"))
        return 0;
    if (strcmp(name, "avx512") == 0) return 1;
    if (!__builtin_cpu_supports("avx512vnni")) return 0;
    if (strcmp(name, "avx512_vnni") == 0) return 1;
    if (strcmp(name, "avx512_bf16") == 0) return __builtin_cpu_supports("avx512bf16") != 0;
    return !tandem_cpu_tiles_missing();
}

/* Of a machine that cannot run avx512_amx. */
static const char *missing_of_amx(void)
{
    const char *const tiles = tandem_cpu_tiles_missing();
    return tiles ? tiles : "AVX-512 with VNNI";
}

tandem_status tandem_kernels_open(const tandem_kernels **kernels, const char *isa, tandem_error *error)
{
    if (!kernels || !isa)
        return tandem_error_set(error, TANDEM_USAGE, "open: %s is NULL", kernels ? "isa" : "kernels");
    const int is_best = strcmp(isa, "best") == 0;
    for (int i = N_ISA_NAME - 1; i >= 0; i--) {
        if (!is_best && strcmp(isa_names[i], isa) != 0) continue;
        if (machine_runs_isa(isa_names[i])) {
            *kernels = tandem_isa_kernels_find(isa_names[i]);
            return TANDEM_OK;
        }
        if (!is_best)
            return tandem_error_set(error, TANDEM_NO_DEVICE,
                                    "this machine lacks the instruction set '%s'%s%s", isa,
                                    strcmp(isa, "avx512_amx") == 0 ? ": " : "",
                                    strcmp(isa, "avx512_amx") == 0 ? missing_of_amx() : "");
    }
    if (is_best)
        return tandem_error_set(error, TANDEM_NO_DEVICE, "this machine lacks even the instruction set sse41");
    return tandem_error_set(error, TANDEM_UNKNOWN_NAME,
                            "there is no instruction set '%.40s'; allowed: sse41, avx, avx2, avx2_vnni, "
                            "avx512, avx512_vnni, avx512_bf16, avx512_amx, best",
                            isa);
}

const char *tandem_kernels_isa(const tandem_kernels *kernels) { return kernels->isa; }

/* --- Arguments ------------------------------------------------------------------------------------------ */

static int64_t kernel_dtype_bytes(tandem_dtype type)
{
    return type == TANDEM_S8 ? 1 : type == TANDEM_BF16 ? 2 : 4;
}
static int is_float_dtype(tandem_dtype type) { return type == TANDEM_F32 || type == TANDEM_BF16; }

static tandem_status check_not_null(const char *what, const void *kernels, const void *call,
                                    tandem_error *error)
{
    if (kernels && call) return TANDEM_OK;
    return tandem_error_set(error, TANDEM_USAGE, "%s: %s is NULL", what, kernels ? "the call" : "kernels");
}

/* A matrix's layout, and its name in errors. */
typedef struct matrix_view {
    const char *what, *name;
    const void *data;
    tandem_dtype type;
    int64_t rows, columns, row, column; /* counts, and strides in elements */
} matrix_view;

static tandem_status check_matrix(const matrix_view *p, tandem_error *error)
{
    if (p->rows < 0 || p->columns < 0 || p->rows > max_elements || p->columns > max_elements)
        return tandem_error_set(error, TANDEM_USAGE,
                                "%s: %s has %" PRId64 " rows and %" PRId64 " columns; each is 0 to 2^60",
                                p->what, p->name, p->rows, p->columns);
    if (p->row < 0 || p->column < 0)
        return tandem_error_set(error, TANDEM_USAGE,
                                "%s: the strides of %s are %" PRId64 " and %" PRId64 "; they are at least 0",
                                p->what, p->name, p->row, p->column);
    if (p->rows == 0 || p->columns == 0) return TANDEM_OK;
    if (!p->data) return tandem_error_set(error, TANDEM_USAGE, "%s: %s is NULL", p->what, p->name);
    if ((uintptr_t)p->data % (uintptr_t)kernel_dtype_bytes(p->type))
        return tandem_error_set(error, TANDEM_USAGE,
                                "%s: %s is not aligned for its elements of %" PRId64 " bytes", p->what,
                                p->name, kernel_dtype_bytes(p->type));
    int64_t down, across, end;
    if (__builtin_mul_overflow(p->rows - 1, p->row, &down) ||
        __builtin_mul_overflow(p->columns - 1, p->column, &across) ||
        __builtin_add_overflow(down, across, &end) || end >= PTRDIFF_MAX / kernel_dtype_bytes(p->type))
        return tandem_error_set(error, TANDEM_USAGE,
                                "%s: %s, %" PRId64 " rows of %" PRId64 ", is larger than memory can be",
                                p->what, p->name, p->rows, p->columns);
    return TANDEM_OK;
}

/* A matrix whose rows are *row elements apart; 0 means `columns`. */
static tandem_status check_row_matrix(const char *what, const char *name, const void *data, tandem_dtype type,
                                      int64_t rows, int64_t columns, int64_t *row, tandem_error *error)
{
    if (*row == 0) *row = columns;
    const matrix_view p = {what, name, data, type, rows, columns, *row, 1};
    const tandem_status status = check_matrix(&p, error);
    if (status != TANDEM_OK) return status;
    if (*row < columns && rows > 1)
        return tandem_error_set(error, TANDEM_USAGE,
                                "%s: rows of %s lie %" PRId64 " elements apart and have %" PRId64, what, name,
                                *row, columns);
    return TANDEM_OK;
}

static tandem_status check_dtype(const char *what, const char *name, int allowed, const char *says,
                                 tandem_error *error)
{
    if (allowed) return TANDEM_OK;
    return tandem_error_set(error, TANDEM_USAGE, "%s: %s must have one of the types %s", what, name, says);
}

static const void *element_at(const void *x, tandem_dtype type, int64_t element)
{
    return (const char *)x + element * kernel_dtype_bytes(type);
}

/* --- amax ----------------------------------------------------------------------------------------------- */

/* A NaN stays one. */
static float larger_amax(float a, float b) { return isnan(a) || b <= a ? a : b; }

static float amax_of_array(const tandem_kernels *kernels, const void *x, tandem_dtype type, int64_t n)
{
    return type == TANDEM_F32 ? kernels->amax_f32(x, (size_t)n) : kernels->amax_bf16(x, (size_t)n);
}

static float amax_of_matrix(const tandem_kernels *kernels, const void *x, tandem_dtype type, int64_t rows,
                            int64_t columns, int64_t row)
{
    if (row == columns) return amax_of_array(kernels, x, type, rows * columns);
    float amax = 0;
    for (int64_t i = 0; i < rows; i++)
        amax = larger_amax(amax, amax_of_array(kernels, element_at(x, type, i * row), type, columns));
    return amax;
}

tandem_status tandem_kernels_amax(const tandem_kernels *kernels, float *amax, const void *x,
                                  tandem_dtype from, int64_t rows, int64_t columns, int64_t x_row,
                                  tandem_error *error)
{
    tandem_status status = check_not_null("amax", kernels, kernels, error);
    if (status == TANDEM_OK && !amax) status = tandem_error_set(error, TANDEM_USAGE, "amax: amax is NULL");
    if (status == TANDEM_OK) status = check_dtype("amax", "from", is_float_dtype(from), "f32, bf16", error);
    if (status == TANDEM_OK) status = check_row_matrix("amax", "x", x, from, rows, columns, &x_row, error);
    if (status == TANDEM_OK) *amax = amax_of_matrix(kernels, x, from, rows, columns, x_row);
    return status;
}

tandem_status tandem_kernels_column_sums(const tandem_kernels *kernels, float *sums, const float *x,
                                         int64_t rows, int64_t columns, tandem_error *error)
{
    static const char what[] = "column sums";
    int64_t row = columns;
    tandem_status status = check_not_null(what, kernels, kernels, error);
    if (status == TANDEM_OK) status = check_row_matrix(what, "x", x, TANDEM_F32, rows, columns, &row, error);
    if (status == TANDEM_OK)
        status = check_row_matrix(what, "sums", sums, TANDEM_F32, 1, columns, &row, error);
    if (status == TANDEM_OK) kernels->column_sum_f32(sums, x, (size_t)(rows * columns), (size_t)columns);
    return status;
}

/* --- To int8 -------------------------------------------------------------------------------------------- */

static tandem_status check_quantise_call(tandem_quantise_call *call, tandem_error *error)
{
    static const char what[] = "quantise";
    tandem_status status = check_dtype(what, "from", is_float_dtype(call->from), "f32, bf16", error);
    if (status == TANDEM_OK)
        status =
            check_row_matrix(what, "x", call->x, call->from, call->rows, call->columns, &call->x_row, error);
    if (status == TANDEM_OK)
        status =
            check_row_matrix(what, "q", call->q, TANDEM_S8, call->rows, call->columns, &call->q_row, error);
    if (status == TANDEM_OK && call->transposed)
        status = check_row_matrix(what, "transposed", call->transposed, TANDEM_S8, call->columns, call->rows,
                                  &call->transposed_row, error);
    if (status == TANDEM_OK && !call->scale)
        status = tandem_error_set(error, TANDEM_USAGE, "%s: scale is NULL", what);
    if (status == TANDEM_OK && (unsigned)call->scale_mode > TANDEM_SCALE_KNOWN)
        status = tandem_error_set(error, TANDEM_USAGE, "%s: scale_mode is %d; allowed: TENSOR, ROW, KNOWN",
                                  what, (int)call->scale_mode);
    if (status == TANDEM_OK && call->scale_mode == TANDEM_SCALE_KNOWN &&
        !(call->range >= 0 && isfinite(call->range)))
        status = tandem_error_set(error, TANDEM_USAGE, "%s: range is %g; it is finite and at least 0", what,
                                  (double)call->range);
    if (status != TANDEM_OK || !call->rounding || call->rows == 0) return status;
    const int64_t blocks = call->columns / 8 + (call->columns % 8 > 0);
    if (blocks > (max_blocks - call->rounding->block) / call->rows)
        return tandem_error_set(error, TANDEM_USAGE,
                                "%s: %" PRId64 " rows of %" PRId64 " from block %" PRIu32
                                " on need more than 2^32 blocks of "
                                "random numbers; use another stream for a part of them",
                                what, call->rows, call->columns, call->rounding->block);
    return TANDEM_OK;
}

/* How numbers become quantisation steps, and back. */
typedef struct quant_scale {
    float inverse, scale;
} quant_scale;

static quant_scale quant_scale_of(float amax)
{
    const quant_scale s = {amax > 0 ? 127 / amax : 0, amax / 127};
    return isfinite(s.inverse) ? s : (quant_scale){0, 0};
}

static tandem_status refuse_nonfinite_amax(float amax, tandem_error *error)
{
    return tandem_error_set(error, TANDEM_LIMIT_EXCEEDED,
                            "quantise: the largest magnitude of x is %g, which gives no scale", (double)amax);
}

static void quantise_row(const tandem_kernels *kernels, const tandem_quantise_call *call, int8_t *q,
                         const void *x, float inverse, const tandem_rounding *rounding)
{
    const size_t n = (size_t)call->columns;
    if (call->from == TANDEM_F32)
        rounding ? kernels->quantise_f32(q, x, n, inverse, rounding)
                 : kernels->quantise_nearest_f32(q, x, n, inverse);
    else
        rounding ? kernels->quantise_bf16(q, x, n, inverse, rounding)
                 : kernels->quantise_nearest_bf16(q, x, n, inverse);
}

/* Returns its amax. */
static float quantise_row_amax(const tandem_kernels *kernels, const tandem_quantise_call *call, int8_t *q,
                               const void *x, float inverse, const tandem_rounding *rounding)
{
    const size_t n = (size_t)call->columns;
    if (call->from == TANDEM_F32)
        return rounding ? kernels->quantise_amax_f32(q, x, n, inverse, rounding)
                        : kernels->quantise_nearest_amax_f32(q, x, n, inverse);
    return rounding ? kernels->quantise_amax_bf16(q, x, n, inverse, rounding)
                    : kernels->quantise_nearest_amax_bf16(q, x, n, inverse);
}

/* Row by row; the transposed copy is made of rows that are still in the cache. */
static tandem_status quantise_rows_cpu(const tandem_kernels *kernels, const tandem_quantise_call *call,
                                       quant_scale tensor, float *amax, tandem_error *error)
{
    const int by_row = call->scale_mode == TANDEM_SCALE_ROW,
              find_amax = call->scale_mode == TANDEM_SCALE_KNOWN && call->amax;
    for (int64_t i = 0; i < call->rows; i++) {
        quant_scale s = tensor;
        if (by_row) {
            const float of_row = amax_of_array(kernels, element_at(call->x, call->from, i * call->x_row),
                                               call->from, call->columns);
            if (!isfinite(of_row)) return refuse_nonfinite_amax(of_row, error);
            *amax = larger_amax(*amax, of_row);
            s = quant_scale_of(of_row);
            call->scale[i] = s.scale;
        }
        const void *const x = element_at(call->x, call->from, i * call->x_row);
        int8_t *const q = call->q + i * call->q_row;
        tandem_rounding draws = {0}, *const rounding = call->rounding ? &draws : NULL;
        if (rounding) {
            draws = *call->rounding;
            draws.block += (uint32_t)(i * (call->columns / 8 + (call->columns % 8 > 0)));
        }
        if (find_amax)
            *amax = larger_amax(*amax, quantise_row_amax(kernels, call, q, x, s.inverse, rounding));
        else
            quantise_row(kernels, call, q, x, s.inverse, rounding);
        if (call->transposed && (i % STRIP_ROWS == STRIP_ROWS - 1 || i == call->rows - 1)) {
            const int64_t begin = i / STRIP_ROWS * STRIP_ROWS;
            kernels->transpose_s8(call->transposed + begin, call->transposed_row,
                                  call->q + begin * call->q_row, call->q_row, i + 1 - begin, call->columns);
        }
    }
    return TANDEM_OK;
}

tandem_status tandem_kernels_quantise(const tandem_kernels *kernels, const tandem_quantise_call *given,
                                      tandem_error *error)
{
    tandem_status status = check_not_null("quantise", kernels, given, error);
    if (status != TANDEM_OK) return status;
    tandem_quantise_call call = *given;
    status = check_quantise_call(&call, error);
    if (status != TANDEM_OK) return status;
    const int by_row = call.scale_mode == TANDEM_SCALE_ROW;
    /* Contiguous rows are one row where draws continue across their ends. */
    if (!by_row && !call.transposed && call.x_row == call.columns && call.q_row == call.columns &&
        (!call.rounding || call.columns % 8 == 0)) {
        call.columns *= call.rows;
        call.rows = 1;
    }
    float amax = 0;
    quant_scale tensor = {0, 0};
    if (call.scale_mode == TANDEM_SCALE_TENSOR) {
        amax = amax_of_matrix(kernels, call.x, call.from, call.rows, call.columns, call.x_row);
        if (!isfinite(amax)) return refuse_nonfinite_amax(amax, error);
    }
    if (!by_row) tensor = quant_scale_of(call.scale_mode == TANDEM_SCALE_KNOWN ? call.range : amax);
    status = quantise_rows_cpu(kernels, &call, tensor, &amax, error);
    if (status != TANDEM_OK) return status;
    if (!by_row) *call.scale = tensor.scale;
    if (call.amax) *call.amax = amax;
    return TANDEM_OK;
}

/* --- From int8, and between floats ---------------------------------------------------------------------- */

tandem_status tandem_kernels_dequantise(const tandem_kernels *kernels, const tandem_dequantise_call *given,
                                        tandem_error *error)
{
    static const char what[] = "dequantise";
    tandem_status status = check_not_null(what, kernels, given, error);
    if (status != TANDEM_OK) return status;
    tandem_dequantise_call call = *given;
    status = check_dtype(what, "to", is_float_dtype(call.to), "f32, bf16", error);
    if (status == TANDEM_OK)
        status = check_row_matrix(what, "q", call.q, TANDEM_S8, call.rows, call.columns, &call.q_row, error);
    if (status == TANDEM_OK)
        status = check_row_matrix(what, "x", call.x, call.to, call.rows, call.columns, &call.x_row, error);
    if (status == TANDEM_OK && !call.scale)
        status = tandem_error_set(error, TANDEM_USAGE, "%s: scale is NULL", what);
    if (status != TANDEM_OK) return status;
    const int by_row = call.scale_mode == TANDEM_SCALE_ROW;
    if (!by_row && call.q_row == call.columns && call.x_row == call.columns) {
        call.columns *= call.rows;
        call.rows = 1;
    }
    for (int64_t i = 0; i < call.rows; i++) {
        const int8_t *q = call.q + i * call.q_row;
        void *x = (char *)call.x + i * call.x_row * kernel_dtype_bytes(call.to);
        const float scale = call.scale[by_row ? i : 0];
        if (call.to == TANDEM_F32)
            kernels->dequantise_f32(x, q, (size_t)call.columns, scale);
        else
            kernels->dequantise_bf16(x, q, (size_t)call.columns, scale);
    }
    return TANDEM_OK;
}

tandem_status tandem_kernels_cast(const tandem_kernels *kernels, const tandem_cast_call *given,
                                  tandem_error *error)
{
    static const char what[] = "cast";
    tandem_status status = check_not_null(what, kernels, given, error);
    if (status != TANDEM_OK) return status;
    tandem_cast_call call = *given;
    status = check_dtype(what, "from", is_float_dtype(call.from), "f32, bf16", error);
    if (status == TANDEM_OK)
        status = check_dtype(what, "to", is_float_dtype(call.to) && call.to != call.from,
                             "f32, bf16, and not `from`", error);
    if (status == TANDEM_OK)
        status = check_row_matrix(what, "x", call.x, call.from, call.rows, call.columns, &call.x_row, error);
    if (status == TANDEM_OK)
        status = check_row_matrix(what, "y", call.y, call.to, call.rows, call.columns, &call.y_row, error);
    if (status != TANDEM_OK) return status;
    if (call.x_row == call.columns && call.y_row == call.columns) {
        call.columns *= call.rows;
        call.rows = 1;
    }
    for (int64_t i = 0; i < call.rows; i++) {
        const void *x = element_at(call.x, call.from, i * call.x_row);
        void *y = (char *)call.y + i * call.y_row * kernel_dtype_bytes(call.to);
        if (call.to == TANDEM_BF16)
            kernels->bf16_from_f32(y, x, (size_t)call.columns);
        else
            kernels->f32_from_bf16(y, x, (size_t)call.columns);
    }
    return TANDEM_OK;
}

/* --- The int8 product ----------------------------------------------------------------------------------- */

size_t tandem_kernels_product_workspace(const tandem_kernels *kernels, int64_t m, int64_t n, int64_t k)
{
    if (!kernels || m < 0 || n < 0 || k < 0 || m > max_elements || n > max_elements ||
        k > TANDEM_PRODUCT_MAX_K)
        return 0;
    return kernels->gemm_s8_workspace(m, n, k);
}

static tandem_status check_product_call(tandem_product_s8 *p, tandem_error *error)
{
    static const char what[] = "product";
    const matrix_view a = {what, "a", p->a, TANDEM_S8, p->m, p->k, p->a_row, p->a_column};
    const matrix_view b = {what, "b", p->b, TANDEM_S8, p->k, p->n, p->b_row, p->b_column};
    const matrix_view row_scale = {what, "row_scale", p->row_scale, TANDEM_F32, 1, p->m, 0, 1};
    const matrix_view column_scale = {what, "column_scale", p->column_scale, TANDEM_F32, 1, p->n, 0, 1};
    const matrix_view bias = {what, "bias", p->bias, TANDEM_F32, 1, p->n, 0, 1};
    tandem_status status = check_matrix(&a, error);
    if (status == TANDEM_OK) status = check_matrix(&b, error);
    if (status == TANDEM_OK && p->row_scale) status = check_matrix(&row_scale, error);
    if (status == TANDEM_OK && p->column_scale) status = check_matrix(&column_scale, error);
    if (status == TANDEM_OK && p->bias) status = check_matrix(&bias, error);
    if (status == TANDEM_OK)
        status = check_dtype(what, "c_type", is_float_dtype(p->c_type) || p->c_type == TANDEM_S32,
                             "f32, bf16, s32", error);
    if (status == TANDEM_OK && p->accumulate && p->c_type == TANDEM_S32)
        status = tandem_error_set(error, TANDEM_USAGE,
                                  "%s: sums in s32 cannot be accumulated; leave out `accumulate`", what);
    if (status == TANDEM_OK)
        status = check_row_matrix(what, "c", p->c, p->c_type, p->m, p->n, &p->c_row, error);
    if (status == TANDEM_OK && p->k > TANDEM_PRODUCT_MAX_K)
        status = tandem_error_set(error, TANDEM_USAGE,
                                  "%s: k is %" PRId64
                                  "; a sum of more than %d products can leave int32: cut k, and add up",
                                  what, p->k, TANDEM_PRODUCT_MAX_K);
    return status;
}

tandem_status tandem_kernels_products(const tandem_kernels *kernels, const tandem_product_s8 *first,
                                      int64_t batch, size_t workspace_bytes, tandem_error *error)
{
    tandem_status status = check_not_null("product", kernels, first, error);
    if (status != TANDEM_OK) return status;
    tandem_product_s8 product = *first;
    status = check_product_call(&product, error);
    if (status == TANDEM_OK && (batch < 0 || batch > max_elements))
        status =
            tandem_error_set(error, TANDEM_USAGE, "product: batch is %" PRId64 "; it is 0 to 2^60", batch);
    if (status != TANDEM_OK) return status;
    const size_t needs = kernels->gemm_s8_workspace(product.m, product.n, product.k);
    if (workspace_bytes < needs)
        return tandem_error_set(error, TANDEM_USAGE,
                                "product: workspace_bytes is %zu; %zu are needed: "
                                "tandem_kernels_product_workspace",
                                workspace_bytes, needs);
    if (needs && (!product.workspace || (uintptr_t)product.workspace % 64))
        return tandem_error_set(error, TANDEM_USAGE, "product: workspace is %s",
                                product.workspace ? "not 64-byte aligned" : "NULL");
    for (int64_t i = 0; i < batch; i++) {
        kernels->gemm_s8(&product);
        product.a += product.m * product.k;
        product.b += product.k * product.n;
        product.c = (char *)product.c + product.m * product.c_row * kernel_dtype_bytes(product.c_type);
    }
    return TANDEM_OK;
}

tandem_status tandem_kernels_product(const tandem_kernels *kernels, const tandem_product_s8 *product,
                                     size_t workspace_bytes, tandem_error *error)
{
    return tandem_kernels_products(kernels, product, 1, workspace_bytes, error);
}

/* --- The bf16 product ----------------------------------------------------------------------------------- */

size_t tandem_kernels_product_bf16_workspace(const tandem_kernels *kernels, int64_t m, int64_t n, int64_t k)
{
    if (!kernels || m < 0 || n < 0 || k < 0 || m > max_elements || n > max_elements || k > max_elements)
        return 0;
    return kernels->multiplies_bf16 ? kernels->gemm_bf16_workspace(m, n, k) : 0;
}

static tandem_status check_bf16_product(tandem_product_bf16 *p, tandem_error *error)
{
    static const char what[] = "product";
    const matrix_view a = {what, "a", p->a, TANDEM_BF16, p->m, p->k, p->a_row, p->a_column};
    const matrix_view b = {what, "b", p->b, TANDEM_BF16, p->k, p->n, p->b_row, p->b_column};
    const matrix_view bias = {what, "bias", p->bias, TANDEM_F32, 1, p->n, 0, 1};
    tandem_status status = check_matrix(&a, error);
    if (status == TANDEM_OK) status = check_matrix(&b, error);
    if (status == TANDEM_OK && p->bias) status = check_matrix(&bias, error);
    if (status == TANDEM_OK)
        status = check_row_matrix(what, "c", p->c, TANDEM_F32, p->m, p->n, &p->c_row, error);
    return status;
}

tandem_status tandem_kernels_product_bf16(const tandem_kernels *kernels, const tandem_product_bf16 *product,
                                          size_t workspace_bytes, tandem_error *error)
{
    tandem_status status = check_not_null("product", kernels, product, error);
    if (status != TANDEM_OK) return status;
    if (!kernels->multiplies_bf16)
        return tandem_error_set(error, TANDEM_NO_KERNEL,
                                "product: '%s' has none of bf16; open avx512_bf16 or avx512_amx",
                                kernels->isa);
    tandem_product_bf16 call = *product;
    status = check_bf16_product(&call, error);
    if (status != TANDEM_OK) return status;
    const size_t needs = kernels->gemm_bf16_workspace(call.m, call.n, call.k);
    if (workspace_bytes < needs || (needs && (!call.workspace || (uintptr_t)call.workspace % 64)))
        return tandem_error_set(error, TANDEM_USAGE,
                                "product: a workspace of %zu bytes, 64-byte aligned, is needed; got %zu",
                                needs, call.workspace ? workspace_bytes : 0);
    kernels->gemm_bf16(&call);
    return TANDEM_OK;
}

/* --- Windows of images ---------------------------------------------------------------------------------- */

static tandem_status check_windows_call(const tandem_windows_call *call, tandem_error *error)
{
    static const char what[] = "windows";
    const int64_t limit = max_elements;
    const struct {
        const char *name;
        int64_t value, min, max;
    } number[] = {
        {"images", call->images, 0, limit},      {"height", call->height, 0, limit},
        {"width", call->width, 0, limit},        {"channels", call->channels, 0, limit},
        {"kernel", call->kernel, 1, 1 << 20},    {"stride", call->stride, 1, 1 << 20},
        {"pad", call->pad, 0, call->kernel - 1},
    };
    for (size_t i = 0; i < sizeof number / sizeof *number; i++)
        if (number[i].value < number[i].min || number[i].value > number[i].max)
            return tandem_error_set(error, TANDEM_USAGE,
                                    "%s: %s is %" PRId64 "; allowed %" PRId64 " … %" PRId64, what,
                                    number[i].name, number[i].value, number[i].min, number[i].max);
    int64_t pixels = 0, elements = 0, of_windows = 0;
    if (__builtin_mul_overflow(call->height, call->width, &pixels) ||
        __builtin_mul_overflow(pixels, call->channels, &elements) ||
        __builtin_mul_overflow(elements, call->images, &elements) ||
        __builtin_mul_overflow(elements, call->kernel * call->kernel, &of_windows))
        return tandem_error_set(error, TANDEM_USAGE, "%s: the images have more than 2^63 elements", what);
    if (elements > 0 && (!call->x || !call->columns))
        return tandem_error_set(error, TANDEM_USAGE, "%s: %s is NULL", what, call->x ? "columns" : "x");
    return TANDEM_OK;
}

tandem_status tandem_kernels_windows(const tandem_kernels *kernels, const tandem_windows_call *call,
                                     tandem_error *error)
{
    tandem_status status = check_not_null("windows", kernels, call, error);
    if (status == TANDEM_OK) status = check_windows_call(call, error);
    if (status != TANDEM_OK) return status;
    const int64_t out_h = (call->height + 2 * call->pad - call->kernel) / call->stride + 1,
                  out_w = (call->width + 2 * call->pad - call->kernel) / call->stride + 1;
    if (call->height + 2 * call->pad < call->kernel || call->width + 2 * call->pad < call->kernel)
        return TANDEM_OK; /* no window fits */
    const int64_t image = call->height * call->width * call->channels,
                  columns = out_h * out_w * call->kernel * call->kernel * call->channels;
    for (int64_t i = 0; i < call->images; i++)
        kernels->im2col_s8(call->columns + i * columns, call->x + i * image, call->height, call->width,
                           call->channels, call->kernel, call->stride, call->pad);
    return TANDEM_OK;
}
