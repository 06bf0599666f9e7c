/* product.c: matrix products of every type out of those that the library has. */
#include <stdlib.h>

#include "backend/cuda/operator.h"

/* Sides of matrices of a byte: fp8 has to be in whole units of 16, and of s8, which could be in fours, fewer
 * kernels are. */
static int64_t whole_units(int64_t n) { return (n + 15) / 16 * 16; }

/* In which type the library writes: sums of s8 are s32; it narrows to its operands' type, and sums of fp8 to
 * any float. */
static tandem_dtype made_by_library(tandem_dtype from, tandem_dtype to)
{
    if (from == TANDEM_S8) return TANDEM_S32;
    return to == from || cuda_is_code(from) ? to : TANDEM_F32;
}

/* Operands of a byte as the library takes them: A (m, k), B (n, k), in whole units; zeros behind the rest add
 * nothing. */
static void pad_bytes(cuda_gemm *g)
{
    const cuda_product_spec *s = &g->spec;
    g->m = g->a == TANDEM_S8 ? s->m : whole_units(s->m);
    g->n = whole_units(s->n), g->k = whole_units(s->k);
    g->moves_a = s->transpose_a || g->k != s->k || g->m != s->m;
    g->moves_b = !s->transpose_b || g->k != s->k || g->n != s->n;
}

static uint64_t bytes_of(const cuda_gemm *g, int64_t rows, int64_t columns, tandem_dtype type)
{
    return (uint64_t)(g->spec.batch * rows * columns) * tandem_dtype_bytes(type);
}

tandem_status cuda_gemm_open(cuda_gemm *out, const tandem_kernel *kernel, const cuda_product_spec *shape,
                             const tandem_dtype operand[2], tandem_dtype to, int stays, tandem_error *error)
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
    if (cuda_is_code(g.a)) pad_bytes(&g);
    const int padded = g.m != shape->m || g.n != shape->n;
    g.made = stays || padded ? made_by_library(g.a, TANDEM_F32) : made_by_library(g.a, to);
    g.detours = stays || padded || g.made != to;
    cuda_product_spec *const s = &g.spec;
    s->a = cuda_type_of(g.a), s->b = cuda_type_of(g.b), s->to = cuda_type_of(g.made);
    s->tf32 = tandem_precision_get(kernel->task.precision)->product_dtype == TANDEM_TF32;
    s->fast_sums = s->a == CUDA_TYPE_E4M3 && s->b == CUDA_TYPE_E4M3;
    cuda_product_spec library = *s;
    library.accumulate = s->accumulate && !g.detours;
    library.m = g.m, library.n = g.n, library.k = g.k;
    if (cuda_is_code(g.a)) library.transpose_a = 0, library.transpose_b = 1;
    const tandem_status status = cuda_product_choose(&g.chosen, kernel, &library, error);
    if (status != TANDEM_OK) return status;
    uint64_t end = 0;
    cuda_workspace_reserve(&end, g.chosen.algorithm.workspace_bytes);
    if (g.moves_a) g.a_offset = cuda_workspace_reserve(&end, bytes_of(&g, g.m, g.k, g.a));
    if (g.moves_b) g.b_offset = cuda_workspace_reserve(&end, bytes_of(&g, g.n, g.k, g.b));
    if (g.detours) g.result_offset = cuda_workspace_reserve(&end, bytes_of(&g, g.m, g.n, g.made));
    g.workspace_bytes = end;
    *out = g;
    return TANDEM_OK;
}

void cuda_gemm_close(cuda_gemm *g, const cuda_device *device)
{
    cuda_chosen_close(&g->chosen, device);
    *g = (cuda_gemm){0};
}

/* Transposes and pads an operand of a byte where that is needed. */
static int move(const void **operand, void *to, int moves, const cuda_gemm *g, int64_t rows, int64_t x_rows,
                int transposed, tandem_cuda_stream stream)
{
    if (!moves) return 0;
    const void *const from = *operand;
    *operand = to;
    return tandem_cuda_pad_bytes(to, from, (size_t)g->spec.batch, (size_t)rows, (size_t)g->k, (size_t)x_rows,
                                 (size_t)g->spec.k, transposed, stream);
}

/* What was made in the workspace, into c: scaled, without what pads it, in the type that is wanted, and added
 * to what is there where that is. */
static int finish(const cuda_gemm *g, void *c, void *made, const float *scale_a, const float *scale_b,
                  tandem_cuda_stream stream)
{
    const cuda_product_spec *s = &g->spec;
    const size_t batch = (size_t)s->batch, rows = (size_t)s->m, columns = (size_t)s->n;
    const tandem_cuda_float to = cuda_float_of(g->to);
    if (g->made == TANDEM_S32)
        return tandem_cuda_scale_s32(c, to, made, batch * rows, columns, (size_t)g->n, scale_a, scale_b,
                                     s->accumulate, stream);
    if (g->m == s->m && g->n == s->n && !s->accumulate)
        return tandem_cuda_convert(c, to, made, cuda_float_of(g->made), batch * rows * columns, stream);
    return tandem_cuda_crop(c, to, made, batch, rows, columns, (size_t)g->m, (size_t)g->n, s->accumulate,
                            stream);
}

void *cuda_gemm_result(const cuda_gemm *g, void *workspace)
{
    return cuda_workspace_at(workspace, g->result_offset);
}

tandem_status cuda_gemm_run(const cuda_gemm *g, const tandem_kernel *kernel, const void *a, const void *b,
                            void *c, const float *scale_a, const float *scale_b, void *workspace,
                            tandem_error *error)
{
    const cuda_device *device = kernel->device;
    const cuda_product_spec *s = &g->spec;
    void *const made = g->detours ? cuda_gemm_result(g, workspace) : c;
    int failed = move(&a, cuda_workspace_at(workspace, g->a_offset), g->moves_a, g, g->m, s->m,
                      s->transpose_a, device->stream);
    if (!failed)
        failed = move(&b, cuda_workspace_at(workspace, g->b_offset), g->moves_b, g, g->n, s->n,
                      !s->transpose_b, device->stream);
    if (!failed)
        failed =
            cuda_chosen_run(&g->chosen, device, &(cuda_operands){a, b, made, scale_a, scale_b}, workspace);
    if (!failed && g->detours && c) failed = finish(g, c, made, scale_a, scale_b, device->stream);
    return cuda_kernel_result(kernel, failed, error);
}

/* --- A kernel that is one product ----------------------------------------------------------------------- */

typedef struct product_state {
    cuda_gemm matmul;
    int swaps;
} product_state;

static tandem_status run(const tandem_kernel *kernel, const tandem_kernel_call *call, tandem_error *error)
{
    const product_state *state = kernel->state;
    const int a = state->swaps, b = !state->swaps;
    return cuda_gemm_run(&state->matmul, kernel, call->in[a], call->in[b], call->out[0], call->in_scale[a],
                         call->in_scale[b], call->workspace, error);
}

static void destroy(void *state, const cuda_device *device)
{
    cuda_gemm_close(&((product_state *)state)->matmul, device);
    free(state);
}

tandem_status cuda_gemm_prepare(tandem_kernel *kernel, const cuda_product_spec *shape, int swaps,
                                tandem_error *error)
{
    product_state *state = calloc(1, sizeof *state);
    if (!state) return cuda_kernel_no_memory(kernel, error);
    state->swaps = swaps;
    cuda_product_spec lies = *shape;
    lies.transpose_a ^= kernel->transposed_copy[swaps], lies.transpose_b ^= kernel->transposed_copy[!swaps];
    const tandem_dtype operand[2] = {cuda_operand_type(kernel, swaps), cuda_operand_type(kernel, !swaps)};
    const tandem_status status =
        cuda_gemm_open(&state->matmul, kernel, &lies, operand, kernel->task.to, 0, error);
    if (status != TANDEM_OK) {
        free(state);
        return status;
    }
    kernel->state = state;
    kernel->destroy = destroy;
    kernel->workspace_bytes = state->matmul.workspace_bytes;
    kernel->run = run;
    return TANDEM_OK;
}
