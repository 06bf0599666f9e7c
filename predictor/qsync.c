/* qsync.c: the sensitivity of QSync as published (IPDPS 2024), the reference for other methods.
 *
 *   Ω = γ·(L − d)·F + d·B          γ = 4; d: depth of the operator; L: the largest depth
 *
 *   int8      F = ⅙ (W·S_v²·D_v + X·S_w²·D_w)
 *             B = ⅙ (G·S_v²·D_v + X·2^(2e_v)·2^(−2k)·D_o)                 k = 9
 *   16 bits   F = ⅙·2^(−2k) (W·D_v·e_v + X·D_w·e_w)
 *             B = ⅙·2^(−2k) (G·D_v·e_v + X·D_o·e_g)                       k = 7 for bf16, 9 for fp16 and tf32
 *   fp8       as int8, with steps S = amax/14 of E4M3 where they are widest, and k = 2 of E5M2 in B
 *   fp32      0
 *
 * v, w, o, g: input, weight, output, output gradient. S = amax/127; e = ⌊log₂ amax⌋; D: number of elements;
 * X, W, G: L2 norms of input, weight and *weight* gradient. Where the formulas leave a choice: d counts the
 * edges on the shortest path from any source, with reshapes as nodes; the second operand of a matmul is its
 * weight.
 *
 * The paper has FP16 and INT8. bf16 takes the formula of FP16 with its own 7 stored bits of mantissa, tf32
 * that of FP16 unchanged. fp8 is scaled by tensor and takes that of INT8, as if all its steps, up to 448,
 * were as wide as the widest,
 * 32. int8 and int8_full get the same value: the formulas know one backward pass, in 16 bits.
 *
 * Where it departs from the theory it rests on (variances of unbiased rounding, propagated to the gradient):
 *   - The norms are not squared, though a variance scales with the square of its factor.
 *   - With 16 bits, e is used where 2^(2e) belongs. e is negative for magnitudes below 1, as weights and
 *     gradients are, so the sensitivity would be negative; here it is cut off at 0.
 *   - The weight gradient replaces the output gradient.
 *   - Depth weights operators. No measurement says how much the loss responds to any of them: there is no
 *     unit. */
#include "predictor/methods.h"

#include <math.h>

#include "tandem/advanced/format.h"

static const double gamma_forward = 4;
static const int fp16_bits = 9; /* k, as published */

/* ⌊log₂ amax⌋; 0 where amax is 0: then every product with it is 0, too. */
static double amax_exponent(double amax) { return amax > 0 ? (double)ilogb(amax) : 0; }

typedef struct qsync_terms {
    double forward, backward; /* F, B */
} qsync_terms;

/* One byte: steps from 0 to amax; bits of the gradients. */
static qsync_terms scaled_terms(const tandem_statistics *s, double steps, int bits)
{
    const double x = sqrt(s->x_square), w = sqrt(s->w_square), g = sqrt(s->wgrad_square);
    const double d_v = (double)s->x_elements, d_w = (double)s->w_elements,
                 d_o = (double)s->rows * (double)s->columns;
    const double s_v = s->x_amax / steps, s_w = s->w_amax / steps, input = s_v * s_v * d_v;
    const double ulp_square = s->x_amax > 0 ? exp2(2 * amax_exponent(s->x_amax) - 2 * bits) : 0;
    return (qsync_terms){(w * input + x * s_w * s_w * d_w) / 6, (g * input + x * ulp_square * d_o) / 6};
}

static qsync_terms sixteen_bit_terms(const tandem_statistics *s, int bits)
{
    const double x = sqrt(s->x_square), w = sqrt(s->w_square), g = sqrt(s->wgrad_square);
    const double d_v = (double)s->x_elements, d_w = (double)s->w_elements,
                 d_o = (double)s->rows * (double)s->columns;
    const double e_v = amax_exponent(s->x_amax), e_w = amax_exponent(s->w_amax),
                 e_g = amax_exponent(s->g_amax);
    const double sixth = exp2(-2 * bits) / 6;
    return (qsync_terms){sixth * (w * d_v * e_v + x * d_w * e_w), sixth * (g * d_v * e_v + x * d_o * e_g)};
}

static qsync_terms qsync_terms_of(tandem_precision precision, const tandem_statistics *s)
{
    const tandem_precision_row *row = tandem_precision_get(precision);
    const tandem_format format = tandem_format_of_dtype(row->forward);
    if (format == TANDEM_N_FORMAT) return sixteen_bit_terms(s, fp16_bits); /* tf32 */
    const tandem_format_row *forward = tandem_format_get(format);
    /* the largest number, in the widest steps */
    if (forward->kind == TANDEM_FORMAT_KIND_INTEGER) return scaled_terms(s, forward->significand, fp16_bits);
    if (forward->scale == TANDEM_FORMAT_SCALE_TENSOR)
        return scaled_terms(s, forward->significand,
                            tandem_format_get(tandem_format_of_dtype(row->wgrad))->mantissa);
    return sixteen_bit_terms(s, format == TANDEM_FORMAT_F16 ? fp16_bits : forward->mantissa);
}

static void qsync_compute(double *sensitivity, const tandem_graph *graph, const tandem_statistics *statistics,
                          tandem_dtype amp_dtype)
{
    (void)amp_dtype; /* the backward pass is in 16 bits on every device */
    double max_depth = 0;
    for (int i = 0; i < graph->n_op; i++) { /* depths, in the column of fp32 until the end */
        const tandem_op *op = &graph->op[i];
        const int n_input = tandem_op_row_get(op->kind)->n_input;
        double depth = n_input > 0 ? INFINITY : 0;
        for (int slot = 0; slot < n_input; slot++)
            depth =
                fmin(depth, sensitivity[op->input[slot] * TANDEM_N_PRECISION + TANDEM_PRECISION_FP32] + 1);
        sensitivity[i * TANDEM_N_PRECISION + TANDEM_PRECISION_FP32] = depth;
        max_depth = fmax(max_depth, depth);
    }
    for (int i = 0; i < graph->n_op; i++) {
        double *row = sensitivity + i * TANDEM_N_PRECISION;
        const double depth = row[TANDEM_PRECISION_FP32];
        const unsigned precisions = tandem_op_row_get(graph->op[i].kind)->precisions;
        for (int p = 0; p < TANDEM_N_PRECISION; p++) {
            row[p] = 0;
            if (p == TANDEM_PRECISION_FP32 || !(precisions & 1u << p)) continue;
            const qsync_terms terms = qsync_terms_of((tandem_precision)p, &statistics[i]);
            row[p] = fmax(0, gamma_forward * (max_depth - depth) * terms.forward + depth * terms.backward);
        }
    }
}

const tandem_sensitivity_method tandem_sensitivity_qsync = {
    .name = "qsync",
    .meaning = "gradient variance weighted by depth, as published for QSync",
    .unit = "none",
    .compute = qsync_compute,
};
