/* product.c: matrix products of every type out of those that the library has. */
#include <stdlib.h>

#include "backend/cuda/operator.h"

static int64_t up_to_4(int64_t n) { return (n + 3) / 4 * 4; }

static tandem_status open_float(cuda_gemm *matmul, const tandem_kernel *kernel, tandem_error *error)
{
    cuda_product_spec *s = &matmul->spec;
    uint64_t end = 0;
    s->a = s->b = matmul->from == TANDEM_BF16 ? CUDA_TYPE_BF16 : CUDA_TYPE_F32;
    const int narrows = matmul->from == TANDEM_F32 && matmul->to == TANDEM_BF16;
    s->to = matmul->to == TANDEM_BF16 && !narrows ? CUDA_TYPE_BF16 : CUDA_TYPE_F32;
    const tandem_status status = cuda_product_choose(&matmul->chosen, kernel, s, error);
    if (status != TANDEM_OK) return status;
    cuda_workspace_reserve(&end, matmul->chosen.algorithm.workspace_bytes);
    if (narrows)
        matmul->result_offset = cuda_workspace_reserve(&end, (uint64_t)(s->batch * s->m * s->n) * sizeof(float));
    matmul->workspace_bytes = end;
    return TANDEM_OK;
}

/* Operands as the library takes them: A (m, k), B (n, k), with k and n in fours; zeros behind the rest add nothing. */
static tandem_status open_s8(cuda_gemm *matmul, const tandem_kernel *kernel, tandem_error *error)
{
    const cuda_product_spec *s = &matmul->spec;
    matmul->m = s->m, matmul->n = up_to_4(s->n), matmul->k = up_to_4(s->k);
    matmul->moves_a = s->transpose_a || matmul->k != s->k;
    matmul->moves_b = !s->transpose_b || matmul->k != s->k || matmul->n != s->n;
    const cuda_product_spec whole = {.batch = s->batch,
                                     .m = matmul->m,
                                     .n = matmul->n,
                                     .k = matmul->k,
                                     .transpose_b = 1,
                                     .a = CUDA_TYPE_S8,
                                     .b = CUDA_TYPE_S8,
                                     .to = CUDA_TYPE_S32};
    const tandem_status status = cuda_product_choose(&matmul->chosen, kernel, &whole, error);
    if (status != TANDEM_OK) return status;
    uint64_t end = 0;
    cuda_workspace_reserve(&end, matmul->chosen.algorithm.workspace_bytes);
    if (matmul->moves_a)
        matmul->a_offset = cuda_workspace_reserve(&end, (uint64_t)(s->batch * matmul->m * matmul->k));
    if (matmul->moves_b)
        matmul->b_offset = cuda_workspace_reserve(&end, (uint64_t)(s->batch * matmul->n * matmul->k));
    matmul->result_offset =
        cuda_workspace_reserve(&end, (uint64_t)(s->batch * matmul->m * matmul->n) * sizeof(int32_t));
    matmul->workspace_bytes = end;
    return TANDEM_OK;
}

tandem_status cuda_gemm_open(cuda_gemm *out, const tandem_kernel *kernel, const cuda_product_spec *shape,
                             tandem_dtype from, tandem_dtype to, tandem_error *error)
{
    cuda_gemm matmul = {.spec = *shape, .from = from, .to = to};
    if (!cuda_is_float(to)) return cuda_kernel_refuse(kernel, "products are written in f32 or bf16", error);
    const tandem_status status =
        from == TANDEM_S8 ? open_s8(&matmul, kernel, error) : open_float(&matmul, kernel, error);
    if (status == TANDEM_OK) *out = matmul;
    return status;
}

void cuda_gemm_close(cuda_gemm *matmul, const cuda_device *device)
{
    cuda_chosen_close(&matmul->chosen, device);
    *matmul = (cuda_gemm){0};
}

static int run_s8(const cuda_gemm *matmul, const cuda_device *device, const void *a, const void *b, void *c,
                  const float *scale_a, const float *scale_b, void *workspace)
{
    const cuda_product_spec *s = &matmul->spec;
    int failed = 0;
    if (matmul->moves_a) {
        int8_t *const moved = cuda_workspace_at(workspace, matmul->a_offset);
        failed = tandem_cuda_pad_bytes(moved, a, (size_t)s->batch, (size_t)matmul->m, (size_t)matmul->k,
                                       (size_t)s->m, (size_t)s->k, s->transpose_a, device->stream);
        a = moved;
    }
    if (!failed && matmul->moves_b) {
        int8_t *const moved = cuda_workspace_at(workspace, matmul->b_offset);
        failed = tandem_cuda_pad_bytes(moved, b, (size_t)s->batch, (size_t)matmul->n, (size_t)matmul->k,
                                       (size_t)s->n, (size_t)s->k, !s->transpose_b, device->stream);
        b = moved;
    }
    int32_t *const result = cuda_workspace_at(workspace, matmul->result_offset);
    if (!failed)
        failed = cuda_chosen_run(&matmul->chosen, device, &(cuda_operands){a, b, result, NULL, NULL}, workspace);
    if (failed || !c) return failed;
    return tandem_cuda_scale_s32(c, cuda_float_of(matmul->to), result, (size_t)(s->batch * s->m),
                                 (size_t)s->n, (size_t)matmul->n, scale_a, scale_b, device->stream);
}

const int32_t *cuda_gemm_integers(const cuda_gemm *matmul, void *workspace)
{
    return cuda_workspace_at(workspace, matmul->result_offset);
}

tandem_status cuda_gemm_run(const cuda_gemm *matmul, const tandem_kernel *kernel, const void *a, const void *b,
                            void *c, const float *scale_a, const float *scale_b, void *workspace, tandem_error *error)
{
    const cuda_device *device = kernel->device;
    const cuda_product_spec *s = &matmul->spec;
    if (matmul->from == TANDEM_S8)
        return cuda_kernel_result(kernel, run_s8(matmul, device, a, b, c, scale_a, scale_b, workspace), error);
    const int narrows = matmul->to == TANDEM_BF16 && s->to == CUDA_TYPE_F32;
    void *const result = narrows ? cuda_workspace_at(workspace, matmul->result_offset) : c;
    int failed = cuda_chosen_run(&matmul->chosen, device, &(cuda_operands){a, b, result, NULL, NULL}, workspace);
    if (!failed && narrows)
        failed = tandem_cuda_convert(c, TANDEM_CUDA_BF16, result, TANDEM_CUDA_F32,
                                     (size_t)(s->batch * s->m * s->n), device->stream);
    return cuda_kernel_result(kernel, failed, error);
}

/* --- A kernel that is one product ----------------------------------------------------------------------------------------- */

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

tandem_status cuda_gemm_prepare(tandem_kernel *kernel, const cuda_product_spec *shape, int swaps, tandem_error *error)
{
    product_state *state = calloc(1, sizeof *state);
    if (!state) return cuda_kernel_no_memory(kernel, error);
    state->swaps = swaps;
    const tandem_status status =
        cuda_gemm_open(&state->matmul, kernel, shape, kernel->task.from, kernel->task.to, error);
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
