/* product.c: matrix products of every type, from those that the library has. */
#include <stdlib.h>

#include "backend/cuda/operator.h"

/* Sides of one-byte matrices. fp8 needs multiples of 16. s8 is documented for multiples of 4, but has few
 * kernels for them: PyTorch refuses m up to 16 in torch._int_mm, and m = 17 gave wrong sums (PyTorch issue
 * 107671). */
static int64_t round_up_to(int64_t unit, int64_t n) { return (n + unit - 1) / unit * unit; }

/* The type of the library's result: s32 for s8, the operands' type or f32 for floats, any float for fp8. */
static tandem_dtype library_result_dtype(tandem_dtype from, tandem_dtype to)
{
    if (from == TANDEM_S8) return TANDEM_S32;
    return to == from || cuda_is_code(from) ? to : TANDEM_F32;
}

/* Rows and columns of A with what lies between its rows as they are stored, and columns of C with what lies
 * between its rows. */
static int64_t wide_m(const cuda_product_spec *s) { return s->a_row && s->transpose_a ? s->a_row : s->m; }
static int64_t wide_k(const cuda_product_spec *s) { return s->a_row && !s->transpose_a ? s->a_row : s->k; }
static int64_t wide_n(const cuda_product_spec *s) { return s->c_row ? s->c_row : s->n; }

/* One-byte operands as the library needs them: A (m, k), B (n, k), padded with zeros, which add nothing. What
 * lies between the rows of A is 0, too, and gaps between rows of C may be written. */
static void plan_padding(cuda_gemm *g)
{
    const cuda_product_spec *s = &g->spec;
    g->m = round_up_to(g->a == TANDEM_S8 ? 32 : 16, wide_m(s));
    g->n = round_up_to(16, wide_n(s)), g->k = round_up_to(16, wide_k(s));
    g->repack_a = s->transpose_a || g->k != wide_k(s) || g->m != s->m;
    g->repack_b = !s->transpose_b || g->k != s->k || g->n != s->n;
}

/* From one row to the next of what is made in the workspace. */
static int64_t made_row(const cuda_gemm *g) { return g->n > wide_n(&g->spec) ? g->n : wide_n(&g->spec); }

static uint64_t gemm_operand_bytes(const cuda_gemm *g, int64_t rows, int64_t columns, tandem_dtype type)
{
    return (uint64_t)(g->spec.batch * rows * columns) * tandem_dtype_bytes(type);
}

tandem_status cuda_gemm_open(cuda_gemm *out, const tandem_kernel *kernel, const cuda_product_spec *shape,
                             const tandem_dtype operand[2], tandem_dtype to, int keep_in_workspace,
                             tandem_error *error)
{
    cuda_gemm g = {.spec = *shape,
                   .a = operand[0],
                   .b = operand[1],
                   .to = to,
                   .m = shape->m,
                   .n = shape->n,
                   .k = shape->k};
    if (!cuda_is_float(to))
        return cuda_kernel_refuse(kernel, "products are written in f32, bf16 or f16", error);
    if (cuda_is_code(g.a)) plan_padding(&g);
    const int padded = g.m != shape->m || (cuda_is_code(g.a) && g.n != wide_n(shape));
    g.made =
        keep_in_workspace || padded ? library_result_dtype(g.a, TANDEM_F32) : library_result_dtype(g.a, to);
    g.via_workspace = keep_in_workspace || padded || g.made != to;
    cuda_product_spec *const s = &g.spec;
    s->a = cuda_type_of(g.a), s->b = cuda_type_of(g.b), s->to = cuda_type_of(g.made);
    s->tf32 = tandem_precision_get(kernel->task.precision)->product_dtype == TANDEM_TF32;
    s->fast_sums = s->a == CUDA_TYPE_E4M3 && s->b == CUDA_TYPE_E4M3;
    cuda_product_spec library = *s;
    library.accumulate = s->accumulate && !g.via_workspace;
    library.m = g.m, library.n = g.n, library.k = g.k;
    if (cuda_is_code(g.a)) {
        library.transpose_a = 0, library.transpose_b = 1;
        library.a_row = library.c_row = 0;
    }
    const tandem_status status = cuda_plan_product(&g.chosen, kernel, &library, error);
    if (status != TANDEM_OK) return status;
    uint64_t end = 0;
    cuda_workspace_reserve(&end, g.chosen.algorithm.workspace_bytes);
    if (g.repack_a) g.a_offset = cuda_workspace_reserve(&end, gemm_operand_bytes(&g, g.m, g.k, g.a));
    if (g.repack_b) g.b_offset = cuda_workspace_reserve(&end, gemm_operand_bytes(&g, g.n, g.k, g.b));
    if (g.via_workspace)
        g.result_offset = cuda_workspace_reserve(&end, gemm_operand_bytes(&g, g.m, made_row(&g), g.made));
    g.workspace_bytes = end;
    *out = g;
    return TANDEM_OK;
}

void cuda_gemm_close(cuda_gemm *g, const cuda_device *device)
{
    cuda_planned_work_close(&g->chosen, device);
    *g = (cuda_gemm){0};
}

/* Transposes and pads an operand of a byte where that is needed. */
static int repack_operand(const void **operand, void *to, int repack, const cuda_gemm *g, int64_t rows,
                          int64_t x_rows, int64_t x_columns, int transposed, tandem_cuda_stream stream)
{
    if (!repack) return 0;
    const void *const from = *operand;
    *operand = to;
    return tandem_cuda_pad_bytes(to, from, (size_t)g->spec.batch, (size_t)rows, (size_t)g->k, (size_t)x_rows,
                                 (size_t)x_columns, transposed, stream);
}

/* What was made in the workspace, into c: scaled, without what pads it, in the type that is wanted, and added
 * to what is there where that is. */
static int finish_gemm(const cuda_gemm *g, void *c, void *made, const float *scale_a, const float *scale_b,
                       tandem_cuda_stream stream)
{
    const cuda_product_spec *s = &g->spec;
    const size_t batch = (size_t)s->batch, rows = (size_t)s->m, columns = (size_t)wide_n(s),
                 made_columns = (size_t)made_row(g);
    const tandem_cuda_float to = cuda_float_of(g->to);
    if (g->made == TANDEM_S32)
        return tandem_cuda_scale_s32(c, to, made, batch, rows, columns, (size_t)g->m, made_columns, scale_a,
                                     scale_b, s->accumulate, stream);
    if (g->m == s->m && made_columns == columns && !s->accumulate)
        return tandem_cuda_convert(c, to, made, cuda_float_of(g->made), batch * rows * columns, stream);
    return tandem_cuda_crop(c, to, made, batch, rows, columns, (size_t)g->m, made_columns, s->accumulate,
                            stream);
}

void *cuda_gemm_result(const cuda_gemm *g, void *workspace)
{
    return cuda_workspace_at(workspace, g->result_offset);
}

int cuda_gemm_launch(const cuda_gemm *g, const cuda_device *device, const void *a, const void *b, void *c,
                     const float *scale_a, const float *scale_b, void *workspace)
{
    const cuda_product_spec *s = &g->spec;
    void *const made = g->via_workspace ? cuda_gemm_result(g, workspace) : c;
    int failed = repack_operand(&a, cuda_workspace_at(workspace, g->a_offset), g->repack_a, g, g->m,
                                wide_m(s), wide_k(s), s->transpose_a, device->stream);
    if (!failed)
        failed = repack_operand(&b, cuda_workspace_at(workspace, g->b_offset), g->repack_b, g, g->n, s->n,
                                s->k, !s->transpose_b, device->stream);
    if (!failed)
        failed = cuda_planned_work_run(&g->chosen, device, &(cuda_operands){a, b, made, scale_a, scale_b},
                                       workspace);
    if (!failed && g->via_workspace && c) failed = finish_gemm(g, c, made, scale_a, scale_b, device->stream);
    return failed;
}

tandem_status cuda_gemm_run(const cuda_gemm *g, const tandem_kernel *kernel, const void *a, const void *b,
                            void *c, const float *scale_a, const float *scale_b, void *workspace,
                            tandem_error *error)
{
    return cuda_kernel_result(
        kernel, cuda_gemm_launch(g, kernel->device, a, b, c, scale_a, scale_b, workspace), error);
}

/* --- A kernel that is one product ----------------------------------------------------------------------- */

typedef struct cuda_product_state {
    cuda_gemm matmul;
    int swap_operands;
    cuda_planned_work merged; /* with those before it (kernel->products); none where they run one by one */
} cuda_product_state;

static tandem_status cuda_product_kernel_run(const tandem_kernel *kernel, const tandem_kernel_call *call,
                                             tandem_error *error)
{
    const cuda_product_state *state = kernel->state;
    const int a = state->swap_operands, b = !state->swap_operands;
    return cuda_gemm_run(&state->matmul, kernel, call->in[a], call->in[b], call->out[0], call->in_scale[a],
                         call->in_scale[b], call->workspace, error);
}

static void cuda_product_destroy(void *state, const cuda_device *device)
{
    cuda_planned_work_close(&((cuda_product_state *)state)->merged, device);
    cuda_gemm_close(&((cuda_product_state *)state)->matmul, device);
    free(state);
}

/* A library that has no algorithm for them, or none with so little workspace, multiplies one by one. */
static tandem_status open_merged_products(cuda_product_state *state, const tandem_kernel *kernel,
                                          tandem_error *error)
{
    cuda_product_spec all = state->matmul.spec;
    tandem_error own = {0};
    if (kernel->products.n < 2 || state->swap_operands || state->matmul.via_workspace || all.accumulate ||
        all.a_row || all.c_row)
        return TANDEM_OK;
    all.batch = kernel->products.n;
    all.has_one_a = 1;
    all.b_apart = kernel->products.operand_apart, all.c_apart = kernel->products.result_apart;
    all.max_workspace = state->matmul.chosen.algorithm.workspace_bytes;
    const tandem_status status = cuda_plan_product(&state->merged, kernel, &all, &own);
    if (status == TANDEM_OK || status == TANDEM_NO_KERNEL) return TANDEM_OK;
    if (error) *error = own;
    return status;
}

tandem_status cuda_run_merged_products(const tandem_kernel *const *kernel, const tandem_kernel_call *call,
                                       int n, tandem_error *error)
{
    const cuda_product_state *state = kernel[n - 1]->state;
    if (!state->merged.work || kernel[n - 1]->products.n != n) {
        tandem_status status = TANDEM_OK;
        for (int k = 0; k < n && status == TANDEM_OK; k++)
            status = cuda_product_kernel_run(kernel[k], &call[k], error);
        return status;
    }
    const cuda_operands operands = {call[0].in[0], call[0].in[1], call[0].out[0], NULL, NULL};
    return cuda_kernel_result(
        kernel[n - 1],
        cuda_planned_work_run(&state->merged, kernel[n - 1]->device, &operands, call[n - 1].workspace),
        error);
}

tandem_status cuda_gemm_prepare(tandem_kernel *kernel, const cuda_product_spec *shape, int swap_operands,
                                tandem_error *error)
{
    cuda_product_state *state = calloc(1, sizeof *state);
    if (!state) return cuda_kernel_no_memory(kernel, error);
    state->swap_operands = swap_operands;
    cuda_product_spec lies = *shape;
    lies.transpose_a ^= kernel->transposed_copy[swap_operands],
        lies.transpose_b ^= kernel->transposed_copy[!swap_operands];
    const tandem_dtype operand[2] = {cuda_operand_type(kernel, swap_operands),
                                     cuda_operand_type(kernel, !swap_operands)};
    tandem_status status = cuda_gemm_open(&state->matmul, kernel, &lies, operand, kernel->task.to, 0, error);
    if (status == TANDEM_OK) status = open_merged_products(state, kernel, error);
    if (status != TANDEM_OK) {
        cuda_gemm_close(&state->matmul, kernel->device);
        free(state);
        return status;
    }
    kernel->state = state;
    kernel->destroy = cuda_product_destroy;
    kernel->workspace_bytes = state->matmul.workspace_bytes;
    kernel->run = cuda_product_kernel_run;
    return TANDEM_OK;
}
