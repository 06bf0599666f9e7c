/* softmax.cu: softmax of rows with scale and causal mask, its gradient, and the cross-entropy of logits, in
 * f32. One block per row. CPU reference: backend/cpu/op/{softmax,cross_entropy}.c. */
#include "backend/cuda/rows.h"

KERNEL softmax(float *__restrict__ y, const float *__restrict__ x /* (rows, columns) */, size_t columns,
               float scale, int causal)
{
    __shared__ float of_warp[2][WARPS];
    const size_t start = (size_t)blockIdx.x * columns, seen = causal ? blockIdx.x % columns + 1 : columns;
    const auto own = [&](size_t j) { return x[start + j]; };
    float top = -INFINITY, sum = 0;
    for_columns(seen, own, [&](size_t, float value) { top = fmaxf(top, scale * value); });
    top = block_largest(top, of_warp[0]);
    for_columns(seen, own, [&](size_t, float value) { sum += expf(scale * value - top); });
    const float inverse = 1.0f / block_sum(sum, of_warp[1]);
    for_columns(columns, own, [&](size_t j, float value) {
        y[start + j] = j < seen ? expf(scale * value - top) * inverse : 0;
    });
}

extern "C" int tandem_cuda_softmax(float *y, const float *x, size_t rows, size_t columns, float scale,
                                   int causal, tandem_cuda_stream stream)
{
    return LAUNCH(softmax, (unsigned)rows, THREADS, stream, y, x, columns, scale, causal);
}

KERNEL softmax_backward(float *__restrict__ gx, const float *__restrict__ g,
                        const float *__restrict__ y /* (rows, columns) */, size_t columns, float scale)
{
    __shared__ float of_warp[WARPS];
    const size_t start = (size_t)blockIdx.x * columns;
    struct softmax_element {
        float g, y;
    };
    const auto own = [&](size_t j) { return softmax_element{g[start + j], y[start + j]}; };
    float along = 0;
    for_columns(columns, own, [&](size_t, softmax_element p) { along += p.g * p.y; });
    along = block_sum(along, of_warp);
    for_columns(columns, own,
                [&](size_t j, softmax_element p) { gx[start + j] = scale * (p.y * (p.g - along)); });
}

extern "C" int tandem_cuda_softmax_backward(float *gx, const float *g, const float *y, size_t rows,
                                            size_t columns, float scale, tandem_cuda_stream stream)
{
    return LAUNCH(softmax_backward, (unsigned)rows, THREADS, stream, gx, g, y, columns, scale);
}

/* --- Cross-entropy -------------------------------------------------------------------------------------- */

/* A label that is neither −1 nor a class sets *bad from its row; of several, the first row wins. */
KERNEL cross_entropy(float *__restrict__ loss_of /* [rows] */, float *__restrict__ p,
                     const float *__restrict__ x /* (rows, classes) */,
                     const int32_t *__restrict__ label /* [rows] */, size_t classes, float smoothing,
                     uint32_t *bad)
{
    __shared__ float of_warp[3][WARPS];
    const size_t start = (size_t)blockIdx.x * classes;
    const int32_t own = label[blockIdx.x];
    const auto logit = [&](size_t j) { return x[start + j]; };
    float top = -INFINITY, sum = 0, sum_below_top = 0;
    for_columns(classes, logit, [&](size_t, float value) { top = fmaxf(top, value); });
    top = block_largest(top, of_warp[0]);
    for_columns(classes, logit, [&](size_t, float value) {
        sum += expf(value - top);
        sum_below_top += top - value;
    });
    sum = block_sum(sum, of_warp[1]);
    sum_below_top = block_sum(sum_below_top, of_warp[2]) / (float)classes;
    for_columns(classes, logit, [&](size_t j, float value) { p[start + j] = expf(value - top) / sum; });
    if (threadIdx.x != 0) return;
    const int is_class = own >= 0 && (size_t)own < classes;
    if (!is_class && own != -1) atomicMax(bad, 0xFFFFFFFFu - blockIdx.x);
    loss_of[blockIdx.x] =
        is_class ? (1 - smoothing) * (top - x[start + own]) + smoothing * sum_below_top + logf(sum) : 0;
}

/* One block sums the rows' losses in a fixed order. */
KERNEL sum_losses(float *loss, const float *__restrict__ loss_of /* [rows] */, size_t rows, float row_weight)
{
    __shared__ float of_warp[WARPS];
    float sum = 0;
    for_columns(
        rows, [&](size_t r) { return loss_of[r]; }, [&](size_t, float loss_of_row) { sum += loss_of_row; });
    sum = block_sum(sum, of_warp);
    if (threadIdx.x == 0) *loss = sum * row_weight;
}

extern "C" int tandem_cuda_cross_entropy(float *loss, float *p, const float *x, const int32_t *label,
                                         size_t rows, size_t classes, float row_weight, float smoothing,
                                         uint32_t *bad, void *workspace, tandem_cuda_stream stream)
{
    float *loss_of = (float *)workspace;
    const int failed =
        LAUNCH(cross_entropy, (unsigned)rows, THREADS, stream, loss_of, p, x, label, classes, smoothing, bad);
    if (failed) return failed;
    return LAUNCH(sum_losses, 1u, THREADS, stream, loss, loss_of, rows, row_weight);
}

KERNEL cross_entropy_backward(float *__restrict__ gx, const float *__restrict__ p /* (rows, classes) */,
                              const int32_t *__restrict__ label /* [rows] */, size_t classes,
                              float row_weight, const float *factor, float smoothing)
{
    const float weight = factor ? TANDEM_MUL(row_weight, *factor) : row_weight;
    const float wrong = TANDEM_DIV(smoothing, (float)classes);
    const size_t start = (size_t)blockIdx.x * classes;
    const int32_t own = label[blockIdx.x];
    for_columns(
        classes, [&](size_t j) { return p[start + j]; },
        [&](size_t j, float likely) {
            const float hit = own >= 0 && (size_t)own == j ? 1 - smoothing : 0.0f;
            gx[start + j] = own < 0 ? 0 : TANDEM_MUL(TANDEM_SUB(TANDEM_SUB(likely, wrong), hit), weight);
        });
}

extern "C" int tandem_cuda_cross_entropy_backward(float *gx, const float *p, const int32_t *label,
                                                  size_t rows, size_t classes, float row_weight,
                                                  const float *factor, float smoothing,
                                                  tandem_cuda_stream stream)
{
    return LAUNCH(cross_entropy_backward, (unsigned)rows, THREADS, stream, gx, p, label, classes, row_weight,
                  factor, smoothing);
}
