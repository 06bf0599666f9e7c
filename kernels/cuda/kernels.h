/* kernels.h: launches of tandem's own CUDA kernels.
 *
 * Each function puts its work on a stream and returns at once: 0, or the cudaError_t of the launch. Pointers
 * lead to device memory, 16-byte aligned. No function allocates. Shapes are given after the pointers. "B:" is
 * the number of bytes that a kernel must move; the GPU's copy bandwidth then limits its speed. "CPU:" names
 * the kernel that gives the same bits (kernels/cpu/isa_kernels.h). */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "tandem/advanced/image_slots.h"
#include "kernels/cpu/isa_kernels.h"
#include "kernels/cuda/arithmetic.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct CUstream_st *tandem_cuda_stream; /* cudaStream_t */
const char *tandem_cuda_error_text(int failed); /* of a cudaError_t */

/* The float types that a kernel reads or writes, and its one-byte codes, which represent scale·code. */
typedef enum tandem_cuda_float { TANDEM_CUDA_F32, TANDEM_CUDA_BF16, TANDEM_CUDA_F16 } tandem_cuda_float;
typedef enum tandem_cuda_code { TANDEM_CUDA_S8, TANDEM_CUDA_E4M3, TANDEM_CUDA_E5M2 } tandem_cuda_code;

/* --- quantise.cu ---------------------------------------------------------------------------------------- */

/* *amax_bits = the bits of the largest |x[i]|, or of a NaN if x has one. Reinterpreted, they are a float. The
 * function sets it to 0 first. B: n·size. CPU: amax_f32, amax_bf16 (which NaN is not specified). */
int tandem_cuda_amax(uint32_t *amax_bits, const void *x, tandem_cuda_float type, size_t n,
                     tandem_cuda_stream stream);

/* *word = value, for an amax that is known in advance. */
int tandem_cuda_set_word(uint32_t *word, uint32_t value, tandem_cuda_stream stream);
int tandem_cuda_clear_words(uint32_t *words, size_t n, tandem_cuda_stream stream); /* all 0 */

/* The destination of codes: of one matrix, or of `batch` contiguous ones. */
typedef struct tandem_cuda_quantised {
    tandem_cuda_code code;
    size_t batch, rows, columns; /* without a transposed copy 1, 1, n is allowed */
    void *q;                     /* (batch, rows, columns) */
    void *transposed_copy;       /* (batch, columns, rows): the same codes; NULL = none */
    float *scale;
} tandem_cuda_quantised;

/* q = rounded x·inverse. inverse and *scale come from *amax_bits, which stays on the GPU, so the host does
 * not wait between the two passes. s8 rounds stochastically, or to nearest where `rounding` is NULL; other
 * codes round to nearest. *stream_offset, on the GPU, is added to rounding->stream[0] (NULL: 0). Element i of
 * the tensor uses half-word i % 8 of block i / 8. B: n·(size + 1); with a transposed copy n·(size + 2) where
 * rows and columns are multiples of 16, else n·(size + 3). CPU: quantise_f32, quantise_bf16,
 * quantise_nearest_f32, quantise_nearest_bf16. */
int tandem_cuda_quantise(const tandem_cuda_quantised *to, const void *x, tandem_cuda_float type,
                         const uint32_t *amax_bits, const tandem_rounding *rounding,
                         const uint32_t *stream_offset, tandem_cuda_stream stream);

/* The same with the range of `history`, an amax_history.h on the GPU. The same pass adds the amax of x to the
 * history. reuse_range: uses the last range and leaves the history unchanged. words: two words, 0 before the
 * cast and after it; casts that have them in common must not overlap. *scale is NaN where x is not finite.
 *
 * Without a range (an empty history, or one of zeros) the amax of x is the range. may_lack_range 0: one
 * launch, whose last block rounds all of x again if it has no range and x is not 0. 1: two launches; without
 * a range the first one finds the amax, else it does nothing. The bits are the same. B: as above; without a
 * range twice that. CPU: quantise_amax_f32, quantise_amax_bf16. */
typedef struct tandem_cuda_delayed_cast {
    tandem_cuda_quantised to;
    tandem_amax_history *history;
    int reuse_range, may_lack_range;
    uint32_t *words;
    const tandem_rounding *rounding;
    const uint32_t *stream_offset;
} tandem_cuda_delayed_cast;
int tandem_cuda_quantise_delayed(const tandem_cuda_delayed_cast *cast, const void *x, tandem_cuda_float type,
                                 tandem_cuda_stream stream);

/* The same with one scale per row, scale[rows], from the row's largest magnitude, found in the same pass. A
 * row's scale is NaN where the row is not finite. Element (i, j) uses half-word j % 8 of block i·⌈columns/8⌉
 * + j/8. B: n·(size + 1) where columns is a multiple of 8 and at most 8192. Longer rows are read twice,
 * mostly from the cache; other rows are read by single elements. CPU: amax_f32, quantise_f32 … of each
 * row. */
int tandem_cuda_quantise_rows(void *q, tandem_cuda_code code, float *scale, const void *x,
                              tandem_cuda_float type, size_t rows, size_t columns,
                              const tandem_rounding *rounding, const uint32_t *stream_offset,
                              tandem_cuda_stream stream);
int tandem_cuda_dequantise_rows(void *x, tandem_cuda_float type, const void *q, tandem_cuda_code code,
                                size_t rows, size_t columns, const float *scale, tandem_cuda_stream stream);

/* x = q·scale.  B: n·(1 + size).  CPU: dequantise_f32, dequantise_bf16. */
int tandem_cuda_dequantise(void *x, tandem_cuda_float type, const void *q, tandem_cuda_code code, size_t n,
                           const float *scale, tandem_cuda_stream stream);

/* Rounds to nearest. B: n·(both sizes). CPU: bf16_from_f32, f32_from_bf16. A NaN from or to
 * f16 has no payload on a GPU. */
int tandem_cuda_convert(void *y, tandem_cuda_float to, const void *x, tandem_cuda_float from, size_t n,
                        tandem_cuda_stream stream);

/* y (batch, rows, columns) = x·*scale_a·*scale_b of the first rows and columns of x (batch, x_rows,
 * x_columns). scale_a·scale_b is rounded first, as on the CPU. accumulate: the result is added to y in f32
 * and rounded once, here and below. */
int tandem_cuda_scale_s32(void *y, tandem_cuda_float type, const int32_t *x, size_t batch, size_t rows,
                          size_t columns, size_t x_rows, size_t x_columns, const float *scale_a,
                          const float *scale_b, int accumulate, tandem_cuda_stream stream);

/* y = x·row_scale[r]·*scale of x (rows, columns); both scales are multiplied first. B: n·(4 + size);
 * accumulate: n·(4 + 2·size). CPU: gemm_s8 with one scale per row. */
int tandem_cuda_scale_rows_s32(void *y, tandem_cuda_float type, const int32_t *x, size_t rows, size_t columns,
                               const float *row_scale, const float *scale, int accumulate,
                               tandem_cuda_stream stream);

/* y (batch, rows, columns) = the first rows and columns of x (batch, x_rows, x_columns).  B: n·(4 + size). */
int tandem_cuda_crop(void *y, tandem_cuda_float type, const float *x, size_t batch, size_t rows,
                     size_t columns, size_t x_rows, size_t x_columns, int accumulate,
                     tandem_cuda_stream stream);

/* --- weights.cu ----------------------------------------------------------------------------------------- */

/* One array that is rounded to `type`: `to` has the bits of convert. rows > 0: from is (rows, n / rows), and
 * `to` its transpose. Arrays begin at multiples of 16 bytes. */
typedef struct tandem_cuda_weight_copy {
    const float *from;
    void *to;
    uint64_t n;
    uint32_t rows;
    uint32_t first_block; /* set by the launch */
} tandem_cuda_weight_copy;
enum { TANDEM_CUDA_WEIGHT_COPIES = 96 }; /* in one launch: they are its arguments, which have 4 KB */
/* n of them in one launch; type: bf16 or f16.  B: (4 + size)·n. */
int tandem_cuda_copy_weights(const tandem_cuda_weight_copy *copy, size_t n, tandem_cuda_float type,
                             tandem_cuda_stream stream);

/* --- bytes.cu ------------------------------------------------------------------------------------------- */

/* Elements of one byte: y (batch, rows, columns) = x (batch, x_rows, x_columns), or the transpose of x where
 * x is stored (batch, x_columns, x_rows). y is 0 outside x. B: 2n; the kernel comes close to it where sides
 * are multiples of 16 and there is no padding. */
int tandem_cuda_pad_bytes(void *y, const void *x, size_t batch, size_t rows, size_t columns, size_t x_rows,
                          size_t x_columns, int transposed, tandem_cuda_stream stream);

/* --- optimizer.cu --------------------------------------------------------------------------------------- */

enum { TANDEM_CUDA_UNALIGNED = 716 }; /* cudaErrorMisalignedAddress */
/* Updates any part of the flat arrays in one launch; n is a multiple of 16, else the result is
 * TANDEM_CUDA_UNALIGNED. decays[i / 16]: whether weight decay applies to the 16 elements from i on, since
 * every parameter begins at a multiple of 16; NULL: it applies to all. Where a gradient is not finite,
 * *nonfinite becomes 2^32 − 1 − the number of its 16 elements, of the first ones, if that is larger; the
 * gradient is applied all the same. rates: on the GPU, replaces the learning rate and
 * AdamW's corrections; NULL: the arguments are used. B: 20n (sgd), 28n (adamw). CPU: sgd, adamw. */
int tandem_cuda_sgd(float *w, float *v, const float *g, const uint8_t *decays, size_t n, float rate,
                    float momentum, float decay, const float *rates, uint32_t *nonfinite,
                    tandem_cuda_stream stream);
int tandem_cuda_adamw(float *w, float *m, float *v, const float *g, const uint8_t *decays, size_t n,
                      const tandem_adamw *options, const float *rates, uint32_t *nonfinite,
                      tandem_cuda_stream stream);

/* --- elementwise.cu ------------------------------------------------------------------------------------- */

/* y = a + b; y may be a or b.  B: 3n·size.  CPU: add_f32, add_bf16. */
int tandem_cuda_add(void *y, const void *a, const void *b, tandem_cuda_float type, size_t n,
                    tandem_cuda_stream stream);

/* y = f(x), and gx = g·f′ from what the operator saves: relu and tanh save their result, gelu its input. B:
 * 2n·size forward, 3n·size backward. CPU: relu_f32, relu_backward_f32 …; for gelu and tanh oneDNN, to 1e-6 of
 * the largest. */
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
/* Bits of dropout_f32, dropout_bf16 (kernels/cpu/isa_kernels.h); *stream_offset as above. B: 2n·size. */
int tandem_cuda_dropout(void *y, const void *x, tandem_cuda_float type, size_t n, const tandem_dropout *mask,
                        const uint32_t *stream_offset, tandem_cuda_stream stream);

/* y[r·row + c] = x[r·row + c] + own[c], c < period, of n elements; row: period, or a multiple of 8 above it.
 * What lies between rows is copied. B: 2n·size.  CPU: bias_f32, bias_bf16. */
int tandem_cuda_bias(void *y, const void *x, tandem_cuda_float type, const float *own, size_t n,
                     size_t period, size_t row, tandem_cuda_stream stream);
/* y[i] = gelu(x[i] + own[i % period]).  B: 2n·size.  CPU: bias_gelu_f32, bias_gelu_bf16. */
int tandem_cuda_bias_gelu(void *y, const void *x, tandem_cuda_float type, const float *own, size_t n,
                          size_t period, tandem_cuda_stream stream);
/* Words on the GPU by which blocks of one launch that sum the same columns find out which of them is the last
 * one. They are 0 before a launch and after it. Launches that have them in common must not overlap. */
enum { TANDEM_CUDA_TICKETS = 2048 }; /* one for 32 columns */
/* sum[c] = Σ g[r·row + c]. The order of the sum is fixed, and differs from the CPU's. B: n·size. */
size_t tandem_cuda_column_sum_workspace(size_t rows, size_t columns); /* bytes, of both */
int tandem_cuda_column_sum(float *sum, const void *g, tandem_cuda_float type, size_t rows, size_t columns,
                           size_t row, void *workspace, uint32_t *tickets, tandem_cuda_stream stream);
/* gx = g·gelu′(x + own), rounded, and its column sums, in the order of column_sum. gx may be g.  B: 3n·size.
 */
int tandem_cuda_bias_gelu_backward(void *gx, float *sum, const void *g, const void *x, tandem_cuda_float type,
                                   const float *own, size_t rows, size_t columns, void *workspace,
                                   uint32_t *tickets, tandem_cuda_stream stream);

/* --- noise.cu ------------------------------------------------------------------------------------------- */

/* x (batch, n): sample b is the noise of number first + *index·global_batch + b (mod 2^32); index is on the
 * GPU. B: 4·batch·n. CPU: noise_f32 with stream {number, 0, TANDEM_RNG_SHUFFLE}. */
int tandem_cuda_noise(float *x, size_t batch, size_t n, uint64_t seed, uint32_t first, uint32_t global_batch,
                      const uint32_t *index, tandem_cuda_stream stream);

/* --- images.cu ------------------------------------------------------------------------------------------ */

/* x (batch, height, width, channels), normalised, from the slot of the micro-step; and its labels. B: 4 a
 * number, and the slot's pixels. CPU: tandem_data_read_resized (data/idx.c). */
int tandem_cuda_images(float *x, size_t batch, unsigned height, unsigned width, unsigned channels,
                       const tandem_image_slots *s, tandem_cuda_stream stream);
int tandem_cuda_image_labels(int32_t *label, size_t n, const tandem_image_slots *s,
                             tandem_cuda_stream stream);

/* --- norm.cu: computed in f32; x, y, g (rows, columns); scale, shift [columns] -------------------------- */

/* mean, variance [rows].  B: 2n·size forward, 3n·size backward; 2n·size more for the parameters' gradients
 * where there are more columns than TANDEM_CUDA_LAYERNORM_COLUMNS, in a second launch. */
enum { TANDEM_CUDA_LAYERNORM_COLUMNS = 2048 };
int tandem_cuda_layernorm(void *y, const void *x, tandem_cuda_float type, const float *scale,
                          const float *shift, float *mean, float *variance, size_t rows, size_t columns,
                          float epsilon, tandem_cuda_stream stream);
/* The same of a sum with a residual, which is written, too: sum = residual + (x + own), y its layernorm. Each
 * is rounded as alone. own NULL: sum = residual + x.  B: 4n·size. */
typedef struct tandem_cuda_residual {
    const void *residual;
    const float *own; /* [columns] */
    void *sum;
} tandem_cuda_residual;
int tandem_cuda_add_layernorm(void *y, const tandem_cuda_residual *with, const void *x,
                              tandem_cuda_float type, const float *scale, const float *shift, float *mean,
                              float *variance, size_t rows, size_t columns, float epsilon,
                              tandem_cuda_stream stream);
size_t tandem_cuda_layernorm_workspace(size_t rows, size_t columns); /* bytes */
int tandem_cuda_layernorm_backward(void *gx, float *gscale, float *gshift, const void *g, const void *x,
                                   tandem_cuda_float type, const float *scale, const float *mean,
                                   const float *variance, size_t rows, size_t columns, float epsilon,
                                   void *workspace, uint32_t *tickets, tandem_cuda_stream stream);
size_t tandem_cuda_norm_workspace(size_t rows, size_t columns); /* bytes, of the three below */
/* For images: rows are the pixels of all images, columns the channels; mean, variance [columns]. workspace
 * NULL: mean and variance are inputs. B: 3n·size forward, because x is read twice, plus n·size with a
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
                                  void *workspace, uint32_t *tickets, tandem_cuda_stream stream);
int tandem_cuda_batchnorm_backward(void *gx, float *gscale, float *gshift, const void *g, const void *x,
                                   tandem_cuda_float type, const tandem_cuda_batchnorm *b, const float *mean,
                                   const float *variance, void *workspace, uint32_t *tickets,
                                   tandem_cuda_stream stream);
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
                                       const float *variance, void *workspace, uint32_t *tickets,
                                       tandem_cuda_stream stream);

/* Both arrays are [2 × columns], means before variances. running = (1 − momentum)·running +
 * momentum·batch, with the batch's variances multiplied by `unbiased` first. CPU:
 * tandem_batchnorm_stats_update (backend/executor/batchnorm_stats.c). */
int tandem_cuda_update_running(float *running, const float *batch, size_t columns, float unbiased,
                               float momentum, tandem_cuda_stream stream);

/* --- coded_results.cu: with the cast after them, as tandem_cuda_quantise_delayed ------------------------ */

/* To s8, with `rounding`, or to e4m3. A transposed copy has sides in multiples of 16. One launch, or two with
 * may_lack_range.
 *
 * A layernorm, of with->sum where there is a residual (NULL: of x), and the cast of its result. x, y: f32 or
 * bf16. y NULL: it is not written. columns: a multiple of 8, at most TANDEM_CUDA_CODED_COLUMNS; those of
 * `to`, too. B: n·(size + 1), 2n·size more with a residual, n·size with y, n with a transposed copy. Same
 * bits as tandem_cuda_layernorm or tandem_cuda_add_layernorm, then tandem_cuda_quantise_delayed. */
enum { TANDEM_CUDA_CODED_COLUMNS = 1024 };
int tandem_cuda_layernorm_coded(const tandem_cuda_delayed_cast *cast, void *y,
                                const tandem_cuda_residual *with, const void *x, tandem_cuda_float type,
                                const float *scale, const float *shift, float *mean, float *variance,
                                size_t rows, size_t columns, float epsilon, tandem_cuda_stream stream);
/* gelu(x + own) and its cast; n is a multiple of period, period one of 8. B: n·(size + 1), n·size with y, n
 * with a transposed copy. Same bits as tandem_cuda_bias_gelu, then tandem_cuda_quantise_delayed. */
int tandem_cuda_bias_gelu_coded(const tandem_cuda_delayed_cast *cast, void *y, const void *x,
                                tandem_cuda_float type, const float *own, size_t n, size_t period,
                                tandem_cuda_stream stream);

/* --- attention.cu: bf16 (from capability 8.0 on) or f16; products sum in f32 ---------------------------- */

/* o = dropout(softmax(scale·q·kᵀ))·v of each head. q, g, o (heads, rows, depth), k and v (heads, columns,
 * depth), depth at most 128. causal: of equal rows and columns. dropout NULL: none; else that of the
 * probabilities (heads, rows, columns), with the bits of tandem_cuda_dropout. */
typedef struct tandem_cuda_attention_spec {
    size_t heads, rows, columns, depth;
    float scale;
    int causal;
    const tandem_dropout *dropout;
    const uint32_t *stream_offset;
} tandem_cuda_attention_spec;
/* statistics (heads, rows): log2 of each row's sum of 2^(its scores·log2 e). B: 2·heads·depth·(rows +
 * columns)·size. */
int tandem_cuda_attention(void *o, float *statistics, const void *q, const void *k, const void *v,
                          tandem_cuda_float type, const tandem_cuda_attention_spec *spec,
                          tandem_cuda_stream stream);
/* The gradients of q, k and v, in types of their own. along (heads, rows): workspace. Two launches. B:
 * about 4·heads·depth·(rows + columns)·size. */
typedef struct tandem_cuda_attention_gradient {
    void *gradient[3];
    tandem_cuda_float type[3];
    const void *g, *q, *k, *v, *o;
    const float *statistics;
    float *along;
} tandem_cuda_attention_gradient;
int tandem_cuda_attention_backward(const tandem_cuda_attention_gradient *gradient, tandem_cuda_float type,
                                   const tandem_cuda_attention_spec *spec, tandem_cuda_stream stream);

/* --- softmax.cu: any float type, computed in f32 -------------------------------------------------------- */

/* y = softmax(scale·x) per row. causal: entry (i, j) with j > i of the last two dimensions is 0. B: 2n·size
 * forward, 3n·size backward. */
int tandem_cuda_softmax(void *y, const void *x, tandem_cuda_float type, size_t rows, size_t columns,
                        float scale, int causal, tandem_cuda_stream stream);
int tandem_cuda_softmax_backward(void *gx, const void *g, const void *y, tandem_cuda_float type, size_t rows,
                                 size_t columns, float scale, tandem_cuda_stream stream);

/* *loss = row_weight·Σ −Σ t log p. t: 1 − smoothing at the label, plus smoothing/classes for every class. A
 * row with label −1 does not count. *bad, 0 at the start, becomes 2^32 − 1 − r for the first row r with an
 * invalid label. workspace: rows floats. `type` is that of the logits x (rows, classes), whose rows lie `row`
 * elements apart. saved [2·rows]: the
 * largest logit of each row, then Σ e^(logit − that) of each; from these backward makes the probabilities
 * again. p (rows, classes): the probabilities, for evaluations; NULL = not wanted.  B: n·size; n·(2·size + 4)
 * with p. */
typedef struct tandem_cuda_cross_entropy_out {
    float *loss, *saved, *p; /* saved or p may be NULL */
} tandem_cuda_cross_entropy_out;
int tandem_cuda_cross_entropy(const tandem_cuda_cross_entropy_out *out, const void *x, tandem_cuda_float type,
                              const int32_t *label, size_t rows, size_t classes, size_t row, float row_weight,
                              float smoothing, uint32_t *bad, void *workspace, tandem_cuda_stream stream);
/* The gradient is multiplied by row_weight·*factor; factor is on the GPU (NULL: 1). x and gx have one type
 * and rows alike, and may be one array. gx is 0 between its rows. saved NULL: x are the probabilities.  B:
 * 2n·size. */
int tandem_cuda_cross_entropy_backward(void *gx, const void *x, tandem_cuda_float type, const float *saved,
                                       const int32_t *label, size_t rows, size_t classes, size_t row,
                                       float row_weight, const float *factor, float smoothing,
                                       tandem_cuda_stream stream);

/* --- layout.cu ------------------------------------------------------------------------------------------ */

/* y[i] = table[token[i]], rounded to y's type; *bad as above. The gradient adds rows in the order of the
 * tokens, as the CPU does. accumulate: adds to the present gradient, else to 0. */
int tandem_cuda_embedding(void *y, const float *table, tandem_cuda_float type, const int32_t *token, size_t n,
                          size_t vocabulary, size_t width, uint32_t *bad, tandem_cuda_stream stream);
int tandem_cuda_embedding_gradient(float *gradient, const int32_t *token, const void *g,
                                   tandem_cuda_float type, size_t n, size_t vocabulary, size_t width,
                                   int accumulate, tandem_cuda_stream stream);

/* y has the dimensions dim; its element (i0 … i3) is x[Σ i·stride]. B: 2n·size. */
typedef struct tandem_cuda_permutation {
    size_t dim[4], stride[4];
} tandem_cuda_permutation;
int tandem_cuda_transpose(void *y, const void *x, tandem_cuda_float type,
                          const tandem_cuda_permutation *permutation, tandem_cuda_stream stream);
/* y = transpose(x + own[i % period]) of up to TANDEM_CUDA_PARTS arrays of one shape, rounded before it is
 * moved, as bias and transpose are. The permutation keeps the last dimension; that and the period are
 * multiples of 8.  B: 2n·size. */
enum { TANDEM_CUDA_PARTS = 3 };
typedef struct tandem_cuda_bias_part {
    void *y;
    const void *x;
    const float *own;
} tandem_cuda_bias_part;
int tandem_cuda_bias_transpose(const tandem_cuda_bias_part *part, size_t n_part, tandem_cuda_float type,
                               size_t period, const tandem_cuda_permutation *permutation,
                               tandem_cuda_stream stream);
/* y = transpose(x), and the sums of its columns, which are its two last dimensions, in the order of
 * column_sum; of up to TANDEM_CUDA_PARTS arrays of one shape, with as many workspaces of column_sum.
 * B: 2n·size. */
typedef struct tandem_cuda_sum_part {
    void *y;
    float *sum;
    const void *x;
} tandem_cuda_sum_part;
int tandem_cuda_transpose_sum(const tandem_cuda_sum_part *part, size_t n_part, tandem_cuda_float type,
                              const tandem_cuda_permutation *permutation, void *workspace, uint32_t *tickets,
                              tandem_cuda_stream stream);
/* y (rows, columns), f32, of x (columns, rows).  B: n·(size + 4). */
int tandem_cuda_transpose_to_f32(float *y, const void *x, tandem_cuda_float type, size_t rows, size_t columns,
                                 tandem_cuda_stream stream);

/* y (batch, to, width): row r is row r + shift of x (batch, from, width). Where x has no such row, y has
 * row[width], or 0 for NULL. */
int tandem_cuda_shift_rows(void *y, const void *x, tandem_cuda_float type, const float *row, size_t batch,
                           size_t to, size_t from, size_t width, long shift, tandem_cuda_stream stream);

/* index[r]: for row r, with n rows per sample, the position of its label in the label array, whose samples
 * have `length` labels each. Its label is number r % n of those that are not −1. *bad is set as above where a
 * sample has too few; the index is then the sample's first. */
int tandem_cuda_label_indices(int32_t *index, const int32_t *label, size_t batch, size_t length, size_t n,
                              uint32_t *bad, tandem_cuda_stream stream);
/* y[r] = x[index[r]], rows of `width`. Backward: gx[index[r]] = g[r]; the other rows of gx are 0. */
int tandem_cuda_gather_rows(void *y, const void *x, tandem_cuda_float type, const int32_t *index, size_t n,
                            size_t width, tandem_cuda_stream stream);
int tandem_cuda_scatter_rows(void *gx, const void *g, tandem_cuda_float type, const int32_t *index, size_t n,
                             size_t all, size_t width, tandem_cuda_stream stream);

/* Images are (batch, height, width, channels). index: the position of each window's maximum in the window,
 * ky·kernel_w + kx; windows have at most 256 positions. pool_backward: of a maxpool with its index, of an
 * average pool with NULL. */
typedef struct tandem_cuda_pool {
    int batch, in_h, in_w, channels, out_h, out_w, kernel_h, kernel_w, stride, pad;
} tandem_cuda_pool;
/* The first window of a pool that contains position `at` of its input. */
TANDEM_HOST_DEVICE int tandem_cuda_first_window(int at, int kernel, const tandem_cuda_pool *pool)
{
    const int first = at + pool->pad - kernel + 1;
    return first > 0 ? (first + pool->stride - 1) / pool->stride : 0;
}
/* columns (batch·out_h·out_w, kernel_h·kernel_w·channels), 0 where a window leaves its image. Elements of
 * element_bytes: 1, 2 or 4; all bits 0 is 0. CPU: im2col_s8. */
int tandem_cuda_im2col(void *columns, const void *x, size_t element_bytes, const tandem_cuda_pool *pool,
                       tandem_cuda_stream stream);
/* The gradient of im2col: positions that lie in several windows are summed. Integers are summed first and
 * then multiplied by both scales; floats include the scales and are summed in f32. Rows of the columns are
 * `stride` apart. */
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
