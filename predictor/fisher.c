/* fisher.c: the sensitivity in nats: how far rounding is expected to raise the training loss.
 *
 * 1. Rounding as noise. Stochastic rounding to multiples of s takes a number with fraction f (in steps) up
 *    with probability f. The error has mean 0 and variance s²·f(1 − f). Over uniform fractions the mean
 *    variance is s²∫f(1−f)df = s²/6. An int8 tensor has s = amax/127, or range/127 where op.def knows its
 *    magnitude (softmax). Floats with b bits of mantissa (bf16 7, tf32 and f16 10, E4M3 3, E5M2 2) round to
 *    nearest. Between 2^e and 2^(e+1) the error is uniform over an ulp 2^(e−b), with variance
 *    2^(2e)·2^(−2b)/12. With x = m·2^e and log m uniform over [0, log 2), as for data without a scale of its
 *    own, E m² = 3/(2 ln 2). The variance is therefore this share of the mean square:
 *        c_b = 2^(−2b)·ln 2 / 18,       2.35·10⁻⁶ for bf16.
 *    Below the least normal number, 2^l, steps are 2^(l−b) down to 0. A number that is multiplied by z before
 *    its cast has steps of s = 2^(l−b)/z. The error of small numbers is uniform over one of them, also where
 *    they round to 0:
 *        v = min(mean square, c_b·mean square + s²/12),
 *    because rounding moves no number by more than itself. E4M3 (l = −6) and E5M2 (l = −14) have z = 448/amax
 *    and 57344/amax, like int8. mxfp8 and nvfp4 (1 bit of mantissa, l = 0) count as if the tensor were one
 *    block. f16 (l = −14) has z = 1; its gradients have the loss scale, taken as the largest power of two
 *    with which no gradient exceeds 65504, where dynamic scaling settles (Micikevicius et al., "Mixed
 *    Precision Training", ICLR 2018). Amax are those of the statistics. An operand in f16 beyond 65504 would
 *    be infinite; its v is amax², the worst that noise can do. bf16 and tf32 have the
 *    exponents of f32: s = 0. v_x, v_w, v_g below are such variances per element. They are taken as equal for
 *    all elements of a tensor, and as independent. (Rounding never changes zeros: v_x is too large for the
 *    output of a relu.)
 *
 * 2. Forward. y = x·w, x (rows, k), w (k, columns), noises ξ and ω. The error of y_ij is Σ_l (ξ_il w_lj +
 *    x_il ω_lj + ξ_il ω_lj), so
 *        Var(y_ij) = v_x Σ_l w_lj² + v_w Σ_l x_il² + k v_x v_w.
 *    Its mean is 0, so to second order the loss rises by ½ Σ_ij H_ij Var(y_ij), with H the curvature of the
 *    mean loss along y_ij. For a cross-entropy the expected curvature is the Fisher information, the mean of
 *    squared gradients. The loss is the mean of N = batch × predictions per sample. One prediction's own
 *    gradient is N·g, its curvature (N g)², its share of the mean 1/N: H_ij = N g_ij². So
 *        sensitivity = ½ N [v_x·g2_w2 + v_w·g2_x2 + k v_x v_w·g_square].
 *    (Where a position affects several predictions, their gradients are uncorrelated under the model's own
 *    distribution, and the square of their sum is the sum of squares. Off-diagonal curvature is left out: all
 *    rows of a sample share the error of a weight.) A result that is itself rounded to bf16 or f16 adds
 *    c·y_ij² + s²/12. With uncorrelated products in the sum over l, y_ij² ≈ Σ_l x_il² w_lj² and Σ_ij g_ij²
 *    y_ij² ≈ (w_square/w_elements)·g2_x2, the cost of rounding w once more. An embedding is a product with
 *    one-hot rows, which are exact: its sensitivity is ½ N v_w·g_square, and the copy is not rounded again.
 *    (A convolution is the product of its unfolded input: k = kernel height × width × channels, and x_square
 *    is over rows·k.)
 *
 * 3. Gradient of the weight. dw_lj = Σ_i x_il g_ij, from rounded x and g:
 *        Var(dw_lj) = v_g Σ_i x_il² + v_x Σ_i g_ij² + rows v_g v_x.
 *    The next optimizer step adds η·(this noise) to w, and so η² Σ_l x_il² Var(dw_lj) to y_ij of the step
 *    after it, which costs as in 2:
 *        sensitivity = ½ N η² [v_g·g2_x2_c + v_x·x2_g2_d + rows v_g v_x·g2_x2].
 *    η is the learning rate; AdamW divides by the size of the gradient, so there η = rate / rms(dw). The
 *    noise of one step is counted. How long it lasts depends on curvature and momentum, as far as is known in
 *    the same way for all operators. Errors of the dw_lj are taken as independent, though those of one column
 *    share random numbers. With `int8`, x is the saved s8. Casting that to bf16 would add at most a quarter
 *    (amax² is at least the mean square), usually a fiftieth; it is left out. For an embedding, c_l counts
 *    how often row l is picked; with all rows picked alike, g2_x2_c = g_square·rows/(rows of the table).
 *
 * 4. Gradient of the input. dx_il = Σ_j g_ij w_lj, so over all elements
 *        Σ_il Var(dx_il) = rows v_g·w_square + k v_w·g_square + rows k columns v_g v_w,
 *    a share ρ of dgrad_square. This noise propagates into the weight gradients of all operators before. A
 *    linear map lengthens noise and signal alike on average, so the share is taken to stay ρ. Where a tensor
 *    has n readers, their gradients add up, and a share ρ of one is taken as ρ/n of the sum. By 3, an
 *    operator with weights pays for noise of share 1 in its output gradient (v_g = g_square/(rows·columns))
 *        own = ½ N η² g_square/(rows·columns)·g2_x2_c,
 *    so noise of share ρ in the gradient of tensor t costs ρ·U(t) with
 *        U(t) = own(t) + Σ_{inputs s of t that have a gradient} U(s)/readers(s),
 *    in one pass over the graph. Both operands of a matmul are activations. Its "weight gradient" is noise of
 *    this kind in its second input, with Σ_lj Var(db_lj) = columns v_g·x_square + k v_x·g_square + m
 *    w_elements v_g v_x, a share of wgrad_square; m: rows of one matrix of the batch.
 *
 * 5. All-reduces. Noise of the variance φ·dw_lj² in the gradient of a weight, as ranks that send bf16 add to
 *    it (tandem_allreduce_noise), costs as that of 3, in every precision:
 *        sensitivity = ½ N η² φ wgrad_square/w_elements·g2_x2,
 *    with Σ_l x_il² = 1 for an embedding. Parameters of operators without statistics are left out.
 *
 * Every term is a product of non-negative factors and grows with every step s, and amax² is at least the mean
 * square. So 0 = fp32 ≤ int8 ≤ int8_full (where f16, if it is the AMP dtype, holds what int8 casts back to
 * it) and fp32 ≤ tf32 ≤ fp16. Sensitivities add, because the noises of different operators are independent.
 * */
#include "predictor/methods.h"

#include <math.h>

#include "tandem/advanced/format.h"

/* What the rounding of an operand depends on. */
typedef struct operand {
    double magnitude, mean_square;
    double scale; /* z in f16 */
} operand;

/* The dtypes that a precision rounds operands to on one device, by product. */
typedef struct rounding_dtypes {
    tandem_dtype forward, output, saved, dgrad, wgrad, other_operand_dtype;
} rounding_dtypes;

typedef struct noisy_product {
    operand x, w, g;
    double rows_of_one; /* rows that one matrix w multiplies */
    double rate;        /* η */
    double half_n;      /* ½ N */
} noisy_product;

static double ratio_or_zero(double a, double b) { return b > 0 ? a / b : 0; }

/* NULL: nothing is rounded. */
static const tandem_format_row *format_of(tandem_dtype type)
{
    const tandem_format format = tandem_format_of_dtype(type);
    return format < TANDEM_N_FORMAT ? tandem_format_get(format) : NULL;
}

/* c_b */
static double rounding_share(tandem_dtype type)
{
    const double ln_2 = 0x1.62e42fefa39efp-1;
    const tandem_format_row *format = format_of(type);
    return format && format->kind == TANDEM_FORMAT_KIND_FLOAT ? ldexp(ln_2, -2 * format->mantissa) / 18 : 0;
}

/* s²/12 */
static double subnormal_variance(tandem_dtype type, double scale)
{
    const tandem_format_row *format = format_of(type);
    if (!format) return 0;
    const double step = ratio_or_zero(ldexp(1, format->least), scale);
    return step * step / 12;
}

static double rounding_variance(tandem_dtype type, operand source)
{
    const tandem_format_row *format = format_of(type);
    if (!format) return 0;
    const double largest = tandem_format_largest(format);
    const int is_scaled =
        format->scale != TANDEM_FORMAT_SCALE_NONE && format->scale != TANDEM_FORMAT_SCALE_LOSS;
    const double scale = is_scaled ? ratio_or_zero(largest, source.magnitude) : source.scale;
    if (format->kind == TANDEM_FORMAT_KIND_INTEGER) {
        const double step = ratio_or_zero(1, scale);
        return step * step / (format->rounding == TANDEM_ROUNDING_STOCHASTIC ? 6 : 12);
    }
    if (format->overflow == TANDEM_OVERFLOW_INFINITE && source.magnitude * scale > largest)
        return source.magnitude * source.magnitude;
    return fmin(source.mean_square,
                rounding_share(type) * source.mean_square + subnormal_variance(type, scale));
}

double tandem_rounding_variance(tandem_dtype type, double amax, double mean_square)
{
    return rounding_variance(type, (operand){amax, mean_square, 1});
}

/* The loss scale of f16 gradients (section 1). */
static double loss_scale(const tandem_graph *graph, const tandem_statistics *statistics)
{
    double max = 0;
    for (int i = 0; i < graph->n_op; i++) max = fmax(max, statistics[i].g_amax);
    const double largest = tandem_format_largest(tandem_format_get(TANDEM_FORMAT_F16));
    return max > 0 ? exp2(floor(log2(largest / max))) : 1;
}

/* Largest magnitude of input `slot` as the cast of the step program knows it: that of the tensor below
 * views. */
static double input_magnitude(const tandem_graph *graph, const tandem_op *op, int slot, double measured)
{
    if (slot >= tandem_op_row_get(op->kind)->n_input) return measured;
    const double range = (double)tandem_op_row_get(graph->op[graph->view[op->input[slot]]].kind)->range;
    return range > 0 ? range : measured;
}

static double effective_learning_rate(const tandem_optimizer_options *optimizer, const tandem_statistics *s)
{
    if (optimizer->kind == TANDEM_SGD) return (double)optimizer->rate;
    const double rms = sqrt(ratio_or_zero(s->wgrad_square, (double)s->w_elements));
    return ratio_or_zero((double)optimizer->rate, rms);
}

static noisy_product noisy_product_of(const tandem_graph *graph, int i, const tandem_statistics *s,
                                      double scale)
{
    const tandem_op *op = &graph->op[i];
    const int is_matmul = op->kind == TANDEM_OP_MATMUL;
    return (noisy_product){
        .x = {input_magnitude(graph, op, 0, s->x_amax),
              ratio_or_zero(s->x_square, (double)s->rows * (double)s->k), 1},
        .w = {input_magnitude(graph, op, 1, s->w_amax), ratio_or_zero(s->w_square, (double)s->w_elements), 1},
        .g = {s->g_amax, ratio_or_zero(s->g_square, (double)s->rows * (double)s->columns), scale},
        .rows_of_one = is_matmul ? (double)op->shape.dim[op->shape.n_dim - 2] : (double)s->rows,
        .rate = effective_learning_rate(&graph->optimizer, s),
        .half_n = (double)s->local_batch * (double)graph->length / 2,
    };
}

/* Section 2. */
static double forward_sensitivity(const noisy_product *o, const tandem_statistics *s, tandem_op_kind kind,
                                  const rounding_dtypes *to)
{
    const double v_w = rounding_variance(to->forward, o->w);
    if (kind == TANDEM_OP_EMBEDDING) return o->half_n * v_w * s->g_square;
    const double v_x = rounding_variance(to->forward, o->x);
    const double operands = v_x * s->g2_w2 + v_w * s->g2_x2 + (double)s->k * v_x * v_w * s->g_square;
    const double result = rounding_share(to->output) * o->w.mean_square * s->g2_x2 +
                          subnormal_variance(to->output, 1) * s->g_square;
    return o->half_n * (operands + result);
}

/* Σ_ij g_ij² Σ_l x_il² c_l */
static double squares_through_weight(const tandem_statistics *s, tandem_op_kind kind)
{
    if (kind != TANDEM_OP_EMBEDDING) return s->g2_x2_c;
    return s->g_square * ratio_or_zero((double)s->rows * (double)s->columns, (double)s->w_elements);
}

/* The variance of x in the backward pass: x is rounded when saved, and again to the dtype of the product. */
static double saved_variance(const noisy_product *o, const rounding_dtypes *to)
{
    return fmax(rounding_variance(to->saved, o->x), rounding_variance(to->other_operand_dtype, o->x));
}

/* Section 3. */
static double wgrad_sensitivity(const noisy_product *o, const tandem_statistics *s, tandem_op_kind kind,
                                const rounding_dtypes *to)
{
    const double v_g = rounding_variance(to->wgrad, o->g);
    const double v_x = kind == TANDEM_OP_EMBEDDING ? 0 : saved_variance(o, to);
    const double sum =
        v_g * squares_through_weight(s, kind) + v_x * s->x2_g2_d + (double)s->rows * v_g * v_x * s->g2_x2;
    return o->half_n * o->rate * o->rate * sum;
}

/* Section 4: the share of noise in the gradient of the first input; below, in that of a matmul's second
 * input. */
static double dgrad_share(const noisy_product *o, const tandem_statistics *s, const rounding_dtypes *to)
{
    const double v_g = rounding_variance(to->dgrad, o->g),
                 v_w = rounding_variance(to->other_operand_dtype, o->w);
    const double sum = v_g * o->rows_of_one * s->w_square + v_w * (double)s->k * s->g_square +
                       (double)s->rows * (double)s->k * (double)s->columns * v_g * v_w;
    return ratio_or_zero(sum, s->dgrad_square);
}

static double second_input_share(const noisy_product *o, const tandem_statistics *s,
                                 const rounding_dtypes *to)
{
    const double v_g = rounding_variance(to->wgrad, o->g), v_x = saved_variance(o, to);
    const double sum = v_g * (double)s->columns * s->x_square + v_x * (double)s->k * s->g_square +
                       o->rows_of_one * (double)s->w_elements * v_g * v_x;
    return ratio_or_zero(sum, s->wgrad_square);
}

/* U(input)/readers of one input of operator i, from the column of fp32; 0 where it has no gradient. */
static double input_noise_cost(const double *sensitivity, const tandem_graph *graph, int i, int slot)
{
    const tandem_op_row *row = tandem_op_row_get(graph->op[i].kind);
    if (slot >= row->n_input || row->dgrad == TANDEM_GRAD_ABSENT) return 0;
    const int t = graph->op[i].input[slot];
    if (!graph->op[t].needs_gradient) return 0;
    const int readers = graph->consumer_start[t + 1] - graph->consumer_start[t];
    return sensitivity[t * TANDEM_N_PRECISION + TANDEM_PRECISION_FP32] / readers;
}

/* U(i), from the U of the operators before i. */
static double gradient_noise_cost(const double *sensitivity, const tandem_graph *graph, int i,
                                  const tandem_statistics *s)
{
    const tandem_op_row *row = tandem_op_row_get(graph->op[i].kind);
    double sum = input_noise_cost(sensitivity, graph, i, 0) + input_noise_cost(sensitivity, graph, i, 1);
    if (row->op_class == TANDEM_ADJUSTABLE && row->n_parameter > 0) {
        const noisy_product o = noisy_product_of(graph, i, s, 1);
        sum += o.half_n * o.rate * o.rate * o.g.mean_square * squares_through_weight(s, graph->op[i].kind);
    }
    return sum;
}

static tandem_dtype rounded_dtype(tandem_precision precision, tandem_dtype type, tandem_dtype amp_dtype)
{
    return tandem_precision_product_dtype(precision, type == TANDEM_AMP ? amp_dtype : type);
}

static rounding_dtypes rounding_dtypes_of(tandem_precision precision, tandem_dtype amp_dtype)
{
    const tandem_precision_row *row = tandem_precision_get(precision);
    return (rounding_dtypes){.forward = rounded_dtype(precision, row->forward, amp_dtype),
                             .output = row->output,
                             .saved = row->saved,
                             .dgrad = rounded_dtype(precision, row->dgrad, amp_dtype),
                             .wgrad = rounded_dtype(precision, row->wgrad, amp_dtype),
                             .other_operand_dtype =
                                 rounded_dtype(precision, row->other_operand_dtype, amp_dtype)};
}

static double fisher_sensitivity_of(const double *sensitivity, const tandem_graph *graph, int i,
                                    const tandem_statistics *s, const rounding_dtypes *to, double scale)
{
    const tandem_op *op = &graph->op[i];
    const noisy_product o = noisy_product_of(graph, i, s, scale);
    double sum = forward_sensitivity(&o, s, op->kind, to);
    if (tandem_op_row_get(op->kind)->n_parameter > 0)
        sum += wgrad_sensitivity(&o, s, op->kind, to);
    else
        sum += second_input_share(&o, s, to) * input_noise_cost(sensitivity, graph, i, 1);
    return sum + dgrad_share(&o, s, to) * input_noise_cost(sensitivity, graph, i, 0);
}

static void fisher_compute(double *sensitivity, const tandem_graph *graph,
                           const tandem_statistics *statistics, tandem_dtype amp_dtype)
{
    const double scale = loss_scale(graph, statistics);
    for (int i = 0; i < graph->n_op; i++) /* the column of fp32 holds U until the end */
        sensitivity[i * TANDEM_N_PRECISION + TANDEM_PRECISION_FP32] =
            gradient_noise_cost(sensitivity, graph, i, &statistics[i]);
    for (int i = 0; i < graph->n_op; i++) {
        const unsigned precisions = tandem_op_row_get(graph->op[i].kind)->precisions;
        for (int p = 0; p < TANDEM_N_PRECISION; p++) {
            if (p == TANDEM_PRECISION_FP32) continue;
            const rounding_dtypes to = rounding_dtypes_of((tandem_precision)p, amp_dtype);
            double *const entry = &sensitivity[i * TANDEM_N_PRECISION + p];
            *entry = 0;
            if (precisions & 1u << p)
                *entry = fisher_sensitivity_of(sensitivity, graph, i, &statistics[i], &to, scale);
        }
    }
    for (int i = 0; i < graph->n_op; i++) sensitivity[i * TANDEM_N_PRECISION + TANDEM_PRECISION_FP32] = 0;
}

/* Section 5. */
static void fisher_add_gradient_noise(double *sensitivity, const tandem_graph *graph,
                                      const tandem_statistics *statistics, double noise)
{
    for (int i = 0; i < graph->n_op; i++) {
        const tandem_op_row *row = tandem_op_row_get(graph->op[i].kind);
        const tandem_statistics *s = &statistics[i];
        if (row->op_class != TANDEM_ADJUSTABLE || row->n_parameter == 0) continue;
        const noisy_product o = noisy_product_of(graph, i, s, 1);
        const double variance = noise * ratio_or_zero(s->wgrad_square, (double)s->w_elements),
                     reached = graph->op[i].kind == TANDEM_OP_EMBEDDING ? s->g_square : s->g2_x2;
        for (int p = 0; p < TANDEM_N_PRECISION; p++)
            sensitivity[i * TANDEM_N_PRECISION + p] += o.half_n * o.rate * o.rate * variance * reached;
    }
}

const tandem_sensitivity_method tandem_sensitivity_fisher = {
    .name = "fisher",
    .meaning = "expected rise of the loss, from the variance of rounding and the Fisher information",
    .unit = "nats",
    .compute = fisher_compute,
    .add_gradient_noise = fisher_add_gradient_noise,
};
