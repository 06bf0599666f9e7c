/* kernels.h: launches of tandem's own CUDA kernels.
 *
 * Each puts its work on a stream and returns at once: 0, or the cudaError_t of the launch. Pointers lead to
 * device memory, 16-byte aligned; nothing is allocated. Shapes stand behind the pointers, the bytes that must
 * be moved (B) behind each kernel: at the card's copy bandwidth that is its limit. "CPU:" names the kernel
 * whose bits these are (backend/cpu/isa_kernels.h). */
#ifndef TANDEM_BACKEND_CUDA_KERNELS_H
#define TANDEM_BACKEND_CUDA_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#include "backend/cpu/isa_kernels.h"
#include "backend/cuda/arithmetic.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct CUstream_st *tandem_cuda_stream; /* cudaStream_t */
const char *tandem_cuda_error_text(int failed); /* of a cudaError_t */

/* What floats a kernel reads or writes, and what codes of a byte, which stand for scale·code. */
typedef enum tandem_cuda_float { TANDEM_CUDA_F32, TANDEM_CUDA_BF16, TANDEM_CUDA_F16 } tandem_cuda_float;
typedef enum tandem_cuda_code { TANDEM_CUDA_S8, TANDEM_CUDA_E4M3, TANDEM_CUDA_E5M2 } tandem_cuda_code;

/* --- quantise.cu ---------------------------------------------------------------------------------------- */

/* *amax_bits = bits of the largest |x[i]|, those of a NaN where one is among them; for a float: reinterpret.
 * Sets it to 0 first. B: n·size.  CPU: amax_f32, amax_bf16 (which NaN is not fixed). */
int tandem_cuda_amax(uint32_t *amax_bits, const void *x, tandem_cuda_float type, size_t n,
                     tandem_cuda_stream stream);

/* *word = value: an amax that is known in advance. */
int tandem_cuda_set_word(uint32_t *word, uint32_t value, tandem_cuda_stream stream);

/* Where codes go: of a matrix, or `batch` of them, one behind the other. */
typedef struct tandem_cuda_quantised {
    tandem_cuda_code code;
    size_t batch, rows, columns; /* without a transposed copy 1, 1, n will do */
    void *q;                     /* (batch, rows, columns) */
    void *transposed_copy;       /* (batch, columns, rows): the same codes; NULL: not wanted */
    float *scale;
} tandem_cuda_quantised;

/* q = rounded x·inverse with inverse and *scale from *amax_bits, which stays on the card: no wait for the
 * host between the two passes. s8 is rounded at random, but to nearest where `rounding` is NULL; the others
 * are to nearest anyway. *since, on the card, is added to rounding->stream[0] (NULL: 0). Element i of all
 * takes half-word i % 8 of block i / 8.  B: n·(size + 1); with a transposed copy n·(size + 2) where rows and
 * columns are multiples of 16, else n·(size + 3). CPU: quantise_f32, quantise_bf16, quantise_nearest_f32,
 * quantise_nearest_bf16. */
int tandem_cuda_quantise(const tandem_cuda_quantised *to, const void *x, tandem_cuda_float type,
                         const uint32_t *amax_bits, const tandem_rounding *rounding,
                         const uint32_t *stream_offset, tandem_cuda_stream stream);

/* The same with the range that `history` gives, an amax_history.h on the card, which goes on with the amax of
 * x, found in the same pass. Where it gives none, x's own, found by a pass before. repeats: with the range of
 * the last time, and the history stays. words: two, of nobody else's meanwhile. *scale is no number where x
 * is not finite.  B: as above. CPU: quantise_amax_f32, quantise_amax_bf16. */
int tandem_cuda_quantise_delayed(const tandem_cuda_quantised *to, const void *x, tandem_cuda_float type,
                                 tandem_amax_history *history, int reuse_range, uint32_t *words,
                                 const tandem_rounding *rounding, const uint32_t *stream_offset,
                                 tandem_cuda_stream stream);

/* The same with a scale for each row, scale[rows], from the row's own largest magnitude, found in the same
 * pass; NaN where a row is not finite. Element (i, j) takes half-word j % 8 of block i·⌈columns/8⌉ + j/8.  B:
 * n·(size + 1) where columns are a multiple of 8 and at most 8192; longer rows are read twice, mostly from
 * the cache, and others by elements. CPU: amax_f32, quantise_f32 … of each row. */
int tandem_cuda_quantise_rows(void *q, tandem_cuda_code code, float *scale, const void *x,
                              tandem_cuda_float type, size_t rows, size_t columns,
                              const tandem_rounding *rounding, const uint32_t *stream_offset,
                              tandem_cuda_stream stream);
int tandem_cuda_dequantise_rows(void *x, tandem_cuda_float type, const void *q, tandem_cuda_code code,
                                size_t rows, size_t columns, const float *scale, tandem_cuda_stream stream);

/* x = q·scale.  B: n·(1 + size).  CPU: dequantise_f32, dequantise_bf16. */
int tandem_cuda_dequantise(void *x, tandem_cuda_float type, const void *q, tandem_cuda_code code, size_t n,
                           const float *scale, tandem_cuda_stream stream);

/* To nearest.  B: n·(both sizes).  CPU: bf16_from_f32, f32_from_bf16. */
int tandem_cuda_convert(void *y, tandem_cuda_float to, const void *x, tandem_cuda_float from, size_t n,
                        tandem_cuda_stream stream);

/* y (rows, columns) = x·*scale_a·*scale_b of x (rows, stride), with scale_a·scale_b rounded first, as on the
 * CPU. adds: y + that, here and below added in f32 and rounded once. */
int tandem_cuda_scale_s32(void *y, tandem_cuda_float type, const int32_t *x, size_t rows, size_t columns,
                          size_t stride, const float *scale_a, const float *scale_b, int accumulate,
                          tandem_cuda_stream stream);

/* y = x·row_scale[r]·*scale of x (rows, columns), both scales multiplied first.  B: n·(4 + size); adds: n·(4
 * + 2·size). CPU: gemm_s8 with a scale a row. */
int tandem_cuda_scale_rows_s32(void *y, tandem_cuda_float type, const int32_t *x, size_t rows, size_t columns,
                               const float *row_scale, const float *scale, int accumulate,
                               tandem_cuda_stream stream);

/* y (batch, rows, columns) = the first rows and columns of x (batch, x_rows, x_columns).  B: n·(4 + size). */
int tandem_cuda_crop(void *y, tandem_cuda_float type, const float *x, size_t batch, size_t rows,
                     size_t columns, size_t x_rows, size_t x_columns, int accumulate,
                     tandem_cuda_stream stream);

/* --- bytes.cu ------------------------------------------------------------------------------------------- */

/* Numbers of a byte: y (batch, rows, columns) = x (batch, x_rows, x_columns), or its transpose where it is
 * stored (batch, x_columns, x_rows); 0 beyond.  B: 2n; near it where sides are multiples of 16 and nothing is
 * beyond. */
int tandem_cuda_pad_bytes(void *y, const void *x, size_t batch, size_t rows, size_t columns, size_t x_rows,
                          size_t x_columns, int transposed, tandem_cuda_stream stream);

/* --- optimizer.cu --------------------------------------------------------------------------------------- */

enum { TANDEM_CUDA_UNALIGNED = 716 }; /* cudaErrorMisalignedAddress */
/* Over any part of the flat arrays in one launch, n a multiple of 16 (TANDEM_CUDA_UNALIGNED if not). decays[i
 * / 16]: whether the 16 elements from i on lose `decay`, since every parameter begins at a multiple of 16;
 * NULL: all do. *broken becomes 1 where a gradient is not finite; it is applied all the same. rates: on the
 * card, what stands for the rate and AdamW's corrections; NULL: the arguments do. B: 20n (sgd), 28n (adamw).
 * CPU: sgd, adamw. */
int tandem_cuda_sgd(float *w, float *v, const float *g, const uint8_t *decays, size_t n, float rate,
                    float momentum, float decay, const float *rates, int *nonfinite,
                    tandem_cuda_stream stream);
int tandem_cuda_adamw(float *w, float *m, float *v, const float *g, const uint8_t *decays, size_t n,
                      const tandem_adamw *options, const float *rates, int *nonfinite,
                      tandem_cuda_stream stream);

/* --- elementwise.cu ------------------------------------------------------------------------------------- */

/* y = a + b; y may be a or b.  B: 3n·size.  CPU: add_f32, add_bf16. */
int tandem_cuda_add(void *y, const void *a, const void *b, tandem_cuda_float type, size_t n,
                    tandem_cuda_stream stream);

/* y = f(x), and gx = g·f′ from what the operator saves: relu and tanh their result, gelu its input. B:
 * 2n·size, 3n·size. CPU: relu_f32, relu_backward_f32 …; oneDNN for gelu and tanh, to 1e-6 of the largest. */
typedef enum tandem_cuda_activation {
    TANDEM_CUDA_RELU,
    TANDEM_CUDA_GELU,
    TANDEM_CUDA_TANH
} tandem_cuda_activation;
int tandem_cuda_activate(void *y, const void *x, tandem_cuda_activation activation, tandem_cuda_float type,
                         size_t n, tandem_cuda_stream stream);
int tandem_cuda_activate_backward(void *gx, const void *g, const void *saved,
                                  tandem_cuda_activation activation, tandem_cuda_float type, size_t n,
                                  tandem_cuda_stream stream);
/* Bits of dropout_f32, dropout_bf16 (backend/cpu/isa_kernels.h); *since as above. B: 2n·size. */
int tandem_cuda_dropout(void *y, const void *x, tandem_cuda_float type, size_t n, const tandem_dropout *mask,
                        const uint32_t *stream_offset, tandem_cuda_stream stream);

/* y[i] = x[i] + own[i % period].  B: 2n·size.  CPU: bias_f32, bias_bf16. */
int tandem_cuda_bias(void *y, const void *x, tandem_cuda_float type, const float *own, size_t n,
                     size_t period, tandem_cuda_stream stream);
/* y[i] = gelu(x[i] + own[i % period]), and gx from g and x.  B: 2n·size; backward 3n·size.  CPU:
 * bias_gelu_f32, bias_gelu_bf16. */
int tandem_cuda_bias_gelu(void *y, const void *x, tandem_cuda_float type, const float *own, size_t n,
                          size_t period, tandem_cuda_stream stream);
int tandem_cuda_bias_gelu_backward(void *gx, const void *g, const void *x, tandem_cuda_float type,
                                   const float *own, size_t n, size_t period, tandem_cuda_stream stream);
/* sum[c] = Σ g[r][c], in an order that is always the same, not the CPU's.  B: n·size. */
size_t tandem_cuda_column_sum_workspace(size_t rows, size_t columns); /* bytes */
int tandem_cuda_column_sum(float *sum, const void *g, tandem_cuda_float type, size_t rows, size_t columns,
                           void *workspace, tandem_cuda_stream stream);

/* --- noise.cu ------------------------------------------------------------------------------------------- */

/* x (batch, n): sample b is the noise of number first + *index·global_batch + b (mod 2^32); index on the
 * card.  B: 4·batch·n. CPU: noise_f32, by stream {number, 0, TANDEM_RNG_SHUFFLE}. */
int tandem_cuda_noise(float *x, size_t batch, size_t n, uint64_t seed, uint32_t first, uint32_t global_batch,
                      const uint32_t *index, tandem_cuda_stream stream);

/* --- norm.cu: f32; x, y, g (rows, columns); scale, shift [columns] -------------------------------------- */

/* mean, variance [rows].  B: 8n forward, 12n backward and 8n for the parameters' gradients. */
int tandem_cuda_layernorm(float *y, const float *x, const float *scale, const float *shift, float *mean,
                          float *variance, size_t rows, size_t columns, float epsilon,
                          tandem_cuda_stream stream);
size_t tandem_cuda_norm_workspace(size_t rows, size_t columns); /* bytes, of the three below */
int tandem_cuda_layernorm_backward(float *gx, float *gscale, float *gshift, const float *g, const float *x,
                                   const float *scale, const float *mean, const float *variance, size_t rows,
                                   size_t columns, float epsilon, void *workspace, tandem_cuda_stream stream);
/* Of images: rows are places of all of them, columns channels; mean, variance [columns]. workspace NULL: mean
 * and variance are given, and only read.  B: 4n·size forward (x is read three times), and n·size of a
 * residual; 5n·size backward. */
typedef struct tandem_cuda_batchnorm {
    size_t rows, columns;
    const float *scale, *shift; /* [columns] */
    float epsilon;
    int has_relu;         /* y = max(that, 0) */
    const void *residual; /* y = max(that + residual, 0), of x's shape and type; NULL = none */
} tandem_cuda_batchnorm;
int tandem_cuda_batchnorm_forward(void *y, const void *x, tandem_cuda_float type,
                                  const tandem_cuda_batchnorm *b, float *mean, float *variance,
                                  void *workspace, tandem_cuda_stream stream);
int tandem_cuda_batchnorm_backward(void *gx, float *gscale, float *gshift, const void *g, const void *x,
                                   tandem_cuda_float type, const tandem_cuda_batchnorm *b, const float *mean,
                                   const float *variance, void *workspace, tandem_cuda_stream stream);
/* The same of a sum with a residual. g passes where y, the result, is above 0, and that is the residual's
 * gradient. Each gradient has its own type; g, x and y have `type`.  B: 7n·size. */
typedef struct tandem_cuda_batchnorm_gradients {
    void *x, *residual; /* (rows, columns) */
    tandem_cuda_float x_type, residual_type;
    float *scale, *shift; /* [columns] */
} tandem_cuda_batchnorm_gradients;
int tandem_cuda_batchnorm_add_backward(const tandem_cuda_batchnorm_gradients *out, const void *g,
                                       const void *x, const void *y, tandem_cuda_float type,
                                       const tandem_cuda_batchnorm *b, const float *mean,
                                       const float *variance, void *workspace, tandem_cuda_stream stream);

/* Both [2 × columns], means before variances: running becomes 0.9 of itself and 0.1 of the batch's, whose
 * variances are multiplied by `unbiased` first.  CPU: tandem_batchnorm_stats_update
 * (backend/executor/batchnorm_stats.c). */
int tandem_cuda_update_running(float *running, const float *batch, size_t columns, float unbiased,
                               tandem_cuda_stream stream);

/* --- softmax.cu: f32 ------------------------------------------------------------------------------------ */

/* y = softmax(scale·x) of each row; causal: entry (i, j) with j > i of the last two dimensions is 0.  B: 8n,
 * 12n. */
int tandem_cuda_softmax(float *y, const float *x, size_t rows, size_t columns, float scale, int causal,
                        tandem_cuda_stream stream);
int tandem_cuda_softmax_backward(float *gx, const float *g, const float *y, size_t rows, size_t columns,
                                 float scale, tandem_cuda_stream stream);

/* *loss = row_weight·Σ −Σ t log p, p the probabilities, t 1 − smoothing at the label and smoothing/classes
 * everywhere besides; a row labelled −1 counts for nothing. *bad, 0 before, becomes 2^32 − 1 − r for the
 * first row r whose label is none. workspace: rows floats. Backward, row_weight·*factor, which is on the card
 * (NULL: 1).  B: 8n; backward 8n. */
int tandem_cuda_cross_entropy(float *loss, float *p, const float *x, const int32_t *label, size_t rows,
                              size_t classes, float row_weight, float smoothing, uint32_t *bad,
                              void *workspace, tandem_cuda_stream stream);
int tandem_cuda_cross_entropy_backward(float *gx, const float *p, const int32_t *label, size_t rows,
                                       size_t classes, float row_weight, const float *factor, float smoothing,
                                       tandem_cuda_stream stream);

/* --- layout.cu ------------------------------------------------------------------------------------------ */

/* y[i] = table[token[i]], rounded to its type; *bad as above.  The gradient adds up rows in the order of the
 * places, as the CPU does; adds: to what is there, else to 0. */
int tandem_cuda_embedding(void *y, const float *table, tandem_cuda_float type, const int32_t *token, size_t n,
                          size_t vocabulary, size_t width, uint32_t *bad, tandem_cuda_stream stream);
int tandem_cuda_embedding_gradient(float *gradient, const int32_t *token, const void *g,
                                   tandem_cuda_float type, size_t n, size_t vocabulary, size_t width,
                                   int accumulate, tandem_cuda_stream stream);

/* y of dimensions dim, whose element at (i0 … i3) is x[Σ i·stride].  B: 2n·size. */
typedef struct tandem_cuda_permutation {
    size_t dim[4], stride[4];
} tandem_cuda_permutation;
int tandem_cuda_transpose(void *y, const void *x, tandem_cuda_float type,
                          const tandem_cuda_permutation *permutation, tandem_cuda_stream stream);

/* y (batch, to, width): its row r is row r + shift of x (batch, from, width); where there is none,
 * row[width], or 0 for NULL. */
int tandem_cuda_shift_rows(void *y, const void *x, tandem_cuda_float type, const float *row, size_t batch,
                           size_t to, size_t from, size_t width, long shift, tandem_cuda_stream stream);

/* place[r]: where the label of row r of `n` rows a sample stands among the sample's `length` labels, and
 * those of the samples before: that of its label number r % n that is not −1. *bad as above where there are
 * too few; the place is then the sample's first. */
int tandem_cuda_label_indices(int32_t *index, const int32_t *label, size_t batch, size_t length, size_t n,
                              uint32_t *bad, tandem_cuda_stream stream);
/* y[r] = x[place[r]], rows of `width`.  Backward: gx[place[r]] = g[r], the other rows of gx 0. */
int tandem_cuda_gather_rows(void *y, const void *x, tandem_cuda_float type, const int32_t *index, size_t n,
                            size_t width, tandem_cuda_stream stream);
int tandem_cuda_scatter_rows(void *gx, const void *g, tandem_cuda_float type, const int32_t *index, size_t n,
                             size_t all, size_t width, tandem_cuda_stream stream);

/* Images are (batch, height, width, channels). place: of each window's largest within the window, ky·kernel_w
 * + kx; windows have at most 256 places. pool_backward: of a maxpool with its places, of an average with
 * NULL. */
typedef struct tandem_cuda_pool {
    int batch, in_h, in_w, channels, out_h, out_w, kernel_h, kernel_w, stride, pad;
} tandem_cuda_pool;
/* The first window of a pool that a place of its input lies in. */
TANDEM_HOST_DEVICE int tandem_cuda_first_window(int at, int kernel, const tandem_cuda_pool *pool)
{
    const int first = at + pool->pad - kernel + 1;
    return first > 0 ? (first + pool->stride - 1) / pool->stride : 0;
}
/* columns (batch·out_h·out_w, kernel_h·kernel_w·channels), 0 where a window leaves its image; numbers of a
 * byte. CPU: im2col_s8. */
int tandem_cuda_im2col_bytes(void *columns, const void *x, const tandem_cuda_pool *pool,
                             tandem_cuda_stream stream);
/* Its gradient: what lies in several windows is added up; integers before they are multiplied by both scales,
 * floats in f32 (which have them already). Rows of the columns lie `stride` apart. */
int tandem_cuda_col2im_s32(void *gx, tandem_cuda_float type, const int32_t *columns, size_t stride,
                           const tandem_cuda_pool *pool, const float *scale_a, const float *scale_b,
                           tandem_cuda_stream stream);
int tandem_cuda_col2im_f32(void *gx, tandem_cuda_float type, const float *columns, size_t stride,
                           const tandem_cuda_pool *pool, tandem_cuda_stream stream);
int tandem_cuda_maxpool(void *y, uint8_t *index, const void *x, tandem_cuda_float type,
                        const tandem_cuda_pool *pool, tandem_cuda_stream stream);
int tandem_cuda_avgpool(void *y, const void *x, tandem_cuda_float type, const tandem_cuda_pool *pool,
                        tandem_cuda_stream stream);
int tandem_cuda_pool_backward(void *gx, const void *g, const uint8_t *index, tandem_cuda_float type,
                              const tandem_cuda_pool *pool, tandem_cuda_stream stream);

#ifdef __cplusplus
}
#endif
#endif
