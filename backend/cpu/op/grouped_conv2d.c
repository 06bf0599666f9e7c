/* grouped_conv2d: channels last, in f32. Channels are in groups; each group of results reads its own group
 * of the input. Weight (kernel_h·kernel_w·c_in/groups, c_out). Entries of a window are `dilation` apart. One
 * backward task computes the gradients of the input and of the weight. */
#include <string.h>

#include "backend/cpu/kernel.h"

typedef struct grouped_shape {
    const tandem_op *op;
    int64_t h, w, c, out_h, out_w, out_c, depth, per; /* depth, per: channels of a group, in and out */
} grouped_shape;

static grouped_shape grouped_shape_of(const tandem_kernel *kernel)
{
    const int64_t *const in = cpu_input_shape(kernel, 0)->dim, *const out = kernel->op->shape.dim;
    const int groups = kernel->op->groups;
    return (grouped_shape){kernel->op, in[1],  in[2],          in[3],          out[1],
                           out[2],     out[3], in[3] / groups, out[3] / groups};
}

/* The place of entry k of the window at `window` of one axis; −1: in the padding. */
static int64_t entry_place(const grouped_shape *s, int64_t window, int64_t k, int64_t size)
{
    const int64_t at = window * s->op->stride - s->op->pad + k * s->op->dilation;
    return at >= 0 && at < size ? at : -1;
}

/* What a window's entry does: y gets x·w, or the gradients get theirs. */
static void forward_entry(const grouped_shape *s, const float *x, const float *w, float *y)
{
    if (s->depth == 1 && s->per == 1) { /* one channel each */
        for (int64_t o = 0; o < s->out_c; o++) y[o] += x[o] * w[o];
        return;
    }
    for (int64_t d = 0; d < s->depth; d++)
        for (int64_t o = 0; o < s->out_c; o++) y[o] += x[o / s->per * s->depth + d] * w[d * s->out_c + o];
}

static void backward_entry(const grouped_shape *s, const float *x, const float *w, const float *g, float *gx,
                           float *gw)
{
    for (int64_t d = 0; d < s->depth; d++)
        for (int64_t o = 0; o < s->out_c; o++) {
            const int64_t from = o / s->per * s->depth + d;
            gw[d * s->out_c + o] += g[o] * x[from];
            if (gx) gx[from] += g[o] * w[d * s->out_c + o];
        }
}

/* Calls one of the two for every entry of every window. `y`: the result, or its gradient. */
static void visit_entries(const grouped_shape *s, int64_t images, const float *x, const float *w, float *y,
                          const float *g, float *gx, float *gw)
{
    const int64_t row = s->depth * s->out_c;
    for (int64_t n = 0; n < images; n++)
        for (int64_t i = 0; i < s->out_h; i++)
            for (int64_t j = 0; j < s->out_w; j++) {
                const int64_t out = ((n * s->out_h + i) * s->out_w + j) * s->out_c;
                for (int64_t k = 0; k < (int64_t)s->op->kernel_h * s->op->kernel_w; k++) {
                    const int64_t a = entry_place(s, i, k / s->op->kernel_w, s->h),
                                  b = entry_place(s, j, k % s->op->kernel_w, s->w);
                    if (a < 0 || b < 0) continue;
                    const int64_t in = ((n * s->h + a) * s->w + b) * s->c;
                    if (y)
                        forward_entry(s, x + in, w + k * row, y + out);
                    else
                        backward_entry(s, x + in, w + k * row, g + out, gx ? gx + in : NULL, gw + k * row);
                }
            }
}

static void convolve_images(const tandem_kernel *kernel, const tandem_kernel_call *call, int64_t begin,
                            int64_t end)
{
    const grouped_shape s = grouped_shape_of(kernel);
    const int64_t in = s.h * s.w * s.c, out = s.out_h * s.out_w * s.out_c;
    float *const y = (float *)call->out[0] + begin * out;
    memset(y, 0, (size_t)((end - begin) * out) * sizeof *y);
    visit_entries(&s, end - begin, (const float *)call->in[0] + begin * in, call->in[1], y, NULL, NULL, NULL);
}

static tandem_status cpu_grouped_conv2d_run(const tandem_kernel *kernel, const tandem_kernel_call *call,
                                            tandem_error *error)
{
    const grouped_shape s = grouped_shape_of(kernel);
    const int64_t images = kernel->op->shape.dim[0];
    const tandem_parameter *const own = &kernel->graph->parameter[kernel->op->parameter[0]];
    if (kernel->task.kind == TANDEM_TASK_FORWARD) {
        cpu_kernel_rows(kernel, call, images, s.out_h * s.out_w * s.out_c, convolve_images);
        return TANDEM_OK;
    }
    float *const gx = call->out[0], *const gw = call->out[1];
    if (gx) memset(gx, 0, (size_t)tandem_shape_elements(cpu_input_shape(kernel, 0)) * sizeof *gx);
    memset(gw, 0, (size_t)own->elements * sizeof *gw);
    visit_entries(&s, images, call->in[1], call->in[2], NULL, call->in[0], gx, gw);
    return TANDEM_OK;
}

static tandem_status cpu_grouped_conv2d_prepare(tandem_kernel *kernel, tandem_error *error)
{
    kernel->run = cpu_grouped_conv2d_run;
    return TANDEM_OK;
}

const cpu_operator cpu_grouped_conv2d = {.prepare = cpu_grouped_conv2d_prepare};
