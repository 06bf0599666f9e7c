/* conv2d_int8.c: the gradients of a convolution whose operands are int8: tandem's own product (kernels.h)
 * over columns.
 *
 *   wgrad    gW = Xᵀ·G: X the columns of x, (places, kernel·kernel·c_in), of some images at a time; shares
 *            are added up in int32 as far as it holds them (2^17 places), and beyond in f32, in ascending
 *            order: the same bits everywhere.
 *   dgrad    with stride 1 a convolution again: the columns of g, its border as wide as a window reaches over
 *            it, times the weight with its taps turned about;
 *            else G·Wᵀ, whose rows are what each window gives back, added up in int32 where windows overlap.
 *
 * A window of 1×1 without stride or border is its own column. */
#include "backend/cpu/op/conv2d_int8.h"

#include <stdlib.h>
#include <string.h>

#include "backend/cpu/kernel.h"

/* Columns of as many images as stay in the second-level cache, and at least as many bytes as the gradient
 * that they are added to: else adding would take longer than multiplying. */
enum { COLUMN_BYTES = 1 << 20 };

typedef struct gradient {
    int64_t batch, h, w, c_in, out_h, out_w, c_out; /* images of x, and of y */
    int64_t kernel, stride, pad, taps;              /* of the window; kernel · kernel */
    int is_pointwise;
    int64_t images;   /* at once; they divide the batch */
    uint64_t product; /* offsets in the workspace: of the product's own, */
    uint64_t columns; /* of columns, */
    uint64_t turned;  /* of the weight (c_in, tap, c_out) with its taps turned about, */
    uint64_t result;  /* of sums: of the weight's gradient, or of an image's, */
    uint64_t share;   /* and of what is added to them */
} gradient;

static gradient describe(const tandem_kernel *kernel)
{
    const tandem_op *op = kernel->op;
    const tandem_shape *in = cpu_input_shape(kernel, 0), *out = &op->shape;
    return (gradient){.batch = in->dim[0],
                      .h = in->dim[1],
                      .w = in->dim[2],
                      .c_in = in->dim[3],
                      .out_h = out->dim[1],
                      .out_w = out->dim[2],
                      .c_out = out->dim[3],
                      .kernel = op->kernel_h,
                      .stride = op->stride,
                      .pad = op->pad,
                      .taps = (int64_t)op->kernel_h * op->kernel_w,
                      .is_pointwise = op->kernel_h == 1 && op->stride == 1 && op->pad == 0};
}

static int64_t images_at_once(int64_t batch, int64_t bytes_an_image, int64_t most_bytes)
{
    int64_t images = 1;
    for (int64_t n = 2; n <= batch && n * bytes_an_image <= most_bytes; n++)
        if (batch % n == 0) images = n;
    return images;
}

/* --- wgrad ---------------------------------------------------------------------------------------------- */

/* Where the sums of a weight gradient stand: shares in int32 as long as that holds them, then in f32. */
typedef struct wgrad_sums {
    const tandem_isa_kernels *isa;
    float *out;
    int32_t *sum, *share; /* m · n each */
    int64_t rows;         /* summed in `sum` */
    int flushed;          /* whether there is something in `out` */
    float scale;
    size_t n;
} wgrad_sums;

static void flush(wgrad_sums *sums)
{
    float *const more = (float *)(void *)sums->share;
    sums->isa->f32_from_s32(sums->flushed ? more : sums->out, sums->sum, sums->n, sums->scale);
    if (sums->flushed) sums->isa->add_f32(sums->out, sums->out, more, sums->n);
    sums->flushed = 1;
    sums->rows = 0;
}

/* Adds Xᵀ·G of product->k rows. */
static void add_share(wgrad_sums *sums, tandem_product_s8 *product)
{
    if (sums->rows + product->k > TANDEM_PRODUCT_MOST_K) flush(sums);
    product->c = sums->rows ? sums->share : sums->sum;
    sums->isa->gemm_s8(product);
    if (sums->rows) sums->isa->add_s32(sums->sum, sums->sum, sums->share, sums->n);
    sums->rows += product->k;
}

static tandem_status run_wgrad(const tandem_kernel *kernel, const tandem_kernel_call *call,
                               tandem_error *error)
{
    (void)error;
    const gradient *s = kernel->state;
    const int64_t places = s->out_h * s->out_w, width = s->taps * s->c_in;
    const int8_t *x = call->in[0], *g = call->in[1];
    int8_t *const columns = cpu_workspace_at(call->workspace, s->columns);
    wgrad_sums sums = {.isa = kernel->device->isa,
                       .out = call->out[0],
                       .sum = cpu_workspace_at(call->workspace, s->result),
                       .share = cpu_workspace_at(call->workspace, s->share),
                       .scale = cpu_product_scale(call),
                       .n = (size_t)(width * s->c_out)};
    tandem_product_s8 product = {.m = width,
                                 .n = s->c_out,
                                 .a_row = 1,
                                 .a_column = width,
                                 .b_row = s->c_out,
                                 .b_column = 1,
                                 .c_row = s->c_out,
                                 .c_type = TANDEM_S32,
                                 .workspace = cpu_workspace_at(call->workspace, s->product)};
    for (int64_t first = 0; first < s->batch; first += s->images) {
        for (int64_t i = 0; i < s->images && !s->is_pointwise; i++)
            kernel->device->isa->im2col_s8(columns + i * places * width,
                                           x + (first + i) * s->h * s->w * s->c_in, s->h, s->w, s->c_in,
                                           s->kernel, s->stride, s->pad);
        const int8_t *const rows = s->is_pointwise ? x + first * places * width : columns;
        for (int64_t row = 0; row < s->images * places; row += product.k) {
            const int64_t rest = s->images * places - row;
            product.k = rest < TANDEM_PRODUCT_MOST_K ? rest : TANDEM_PRODUCT_MOST_K;
            product.a = rows + row * width;
            product.b = g + (first * places + row) * s->c_out;
            add_share(&sums, &product);
        }
    }
    flush(&sums);
    return TANDEM_OK;
}

static uint64_t plan_wgrad(gradient *s, const tandem_isa_kernels *isa)
{
    const int64_t places = s->out_h * s->out_w, width = s->taps * s->c_in, sums = width * s->c_out;
    const int64_t most_bytes =
        sums * (int64_t)sizeof(float) > COLUMN_BYTES ? sums * (int64_t)sizeof(float) : COLUMN_BYTES;
    s->images = s->is_pointwise ? s->batch : images_at_once(s->batch, places * width, most_bytes);
    const int64_t rows = s->images * places, k = rows < TANDEM_PRODUCT_MOST_K ? rows : TANDEM_PRODUCT_MOST_K;
    uint64_t end = 0;
    s->product = cpu_workspace_reserve(&end, isa->gemm_s8_workspace(width, s->c_out, k));
    s->columns = cpu_workspace_reserve(&end, s->is_pointwise ? 0 : (uint64_t)(rows * width));
    s->result = cpu_workspace_reserve(&end, (uint64_t)sums * sizeof(int32_t));
    s->share =
        cpu_workspace_reserve(&end, s->images < s->batch || k < rows ? (uint64_t)sums * sizeof(int32_t) : 0);
    return end;
}

/* --- dgrad ---------------------------------------------------------------------------------------------- */

static int is_convolution(const gradient *s) { return s->stride == 1; }

/* (c_in, tap, c_out) from (tap, c_in, c_out), the last tap first. */
static void turn(const gradient *s, int8_t *turned, const int8_t *weight)
{
    for (int64_t channel = 0; channel < s->c_in; channel++)
        for (int64_t tap = s->taps - 1; tap >= 0; tap--, turned += s->c_out)
            memcpy(turned, weight + (tap * s->c_in + channel) * s->c_out, (size_t)s->c_out);
}

static tandem_status run_convolution(const tandem_kernel *kernel, const tandem_kernel_call *call,
                                     tandem_error *error)
{
    (void)error;
    const gradient *s = kernel->state;
    const tandem_isa_kernels *isa = kernel->device->isa;
    const int64_t places = s->h * s->w, width = s->taps * s->c_out, image = s->out_h * s->out_w * s->c_out;
    const int8_t *g = call->in[0], *weight = call->in[1];
    int8_t *const columns = cpu_workspace_at(call->workspace, s->columns);
    if (!s->is_pointwise) {
        int8_t *const turned = cpu_workspace_at(call->workspace, s->turned);
        turn(s, turned, weight);
        weight = turned;
    }
    tandem_product_s8 product = {.m = s->images * places,
                                 .n = s->c_in,
                                 .k = width,
                                 .a_row = width,
                                 .a_column = 1,
                                 .b = weight,
                                 .b_row = 1,
                                 .b_column = width,
                                 .c_row = s->c_in,
                                 .c_type = kernel->task.to,
                                 .scale = cpu_product_scale(call),
                                 .workspace = cpu_workspace_at(call->workspace, s->product),
                                 .accumulate = kernel->task.accumulate};
    for (int64_t first = 0; first < s->batch; first += s->images) {
        for (int64_t i = 0; i < s->images && !s->is_pointwise; i++)
            isa->im2col_s8(columns + i * places * width, g + (first + i) * image, s->out_h, s->out_w,
                           s->c_out, s->kernel, 1, s->kernel - 1 - s->pad);
        product.a = s->is_pointwise ? g + first * image : columns;
        product.c =
            (char *)call->out[0] + (uint64_t)(first * places * s->c_in) * tandem_dtype_bytes(kernel->task.to);
        isa->gemm_s8(&product);
    }
    return TANDEM_OK;
}

/* Adds what each window of an image gives back to the image's gradient: a line of a window is one piece of a
 * line of it. */
static void give_back(const gradient *s, const tandem_isa_kernels *isa, int32_t *image,
                      const int32_t *windows)
{
    memset(image, 0, (size_t)(s->h * s->w * s->c_in) * sizeof *image);
    for (int64_t place = 0; place < s->out_h * s->out_w; place++, windows += s->taps * s->c_in) {
        const int64_t y = place / s->out_w * s->stride - s->pad, x = place % s->out_w * s->stride - s->pad;
        const int64_t begin = x < 0 ? -x : 0, end = x + s->kernel > s->w ? s->w - x : s->kernel;
        for (int64_t line = 0; line < s->kernel && begin < end; line++) {
            if (y + line < 0 || y + line >= s->h) continue;
            int32_t *to = image + ((y + line) * s->w + x + begin) * s->c_in;
            isa->add_s32(to, to, windows + (line * s->kernel + begin) * s->c_in,
                         (size_t)((end - begin) * s->c_in));
        }
    }
}

static tandem_status run_strided(const tandem_kernel *kernel, const tandem_kernel_call *call,
                                 tandem_error *error)
{
    (void)error;
    const gradient *s = kernel->state;
    const tandem_isa_kernels *isa = kernel->device->isa;
    const int64_t places = s->out_h * s->out_w, width = s->taps * s->c_in, image = s->h * s->w * s->c_in;
    const float scale = cpu_product_scale(call);
    int32_t *const windows = cpu_workspace_at(call->workspace, s->columns);
    tandem_product_s8 product = {.m = places,
                                 .n = width,
                                 .k = s->c_out,
                                 .a_row = s->c_out,
                                 .a_column = 1,
                                 .b = call->in[1],
                                 .b_row = 1,
                                 .b_column = s->c_out,
                                 .c = windows,
                                 .c_row = width,
                                 .c_type = TANDEM_S32,
                                 .workspace = cpu_workspace_at(call->workspace, s->product)};
    for (int64_t i = 0; i < s->batch; i++) {
        int32_t *const sums = cpu_workspace_at(call->workspace, s->result);
        product.a = (const int8_t *)call->in[0] + i * places * s->c_out;
        isa->gemm_s8(&product);
        give_back(s, isa, sums, windows);
        if (kernel->task.to == TANDEM_BF16)
            isa->bf16_from_s32((uint16_t *)call->out[0] + i * image, sums, (size_t)image, scale);
        else
            isa->f32_from_s32((float *)call->out[0] + i * image, sums, (size_t)image, scale);
    }
    return TANDEM_OK;
}

static uint64_t plan_dgrad(gradient *s, const tandem_isa_kernels *isa)
{
    uint64_t end = 0;
    if (!is_convolution(s)) {
        const int64_t places = s->out_h * s->out_w, width = s->taps * s->c_in;
        s->product = cpu_workspace_reserve(&end, isa->gemm_s8_workspace(places, width, s->c_out));
        s->columns = cpu_workspace_reserve(&end, (uint64_t)(places * width) * sizeof(int32_t));
        s->result = cpu_workspace_reserve(&end, (uint64_t)(s->h * s->w * s->c_in) * sizeof(int32_t));
        return end;
    }
    const int64_t places = s->h * s->w, width = s->taps * s->c_out;
    s->images = s->is_pointwise ? s->batch : images_at_once(s->batch, places * width, COLUMN_BYTES);
    s->product = cpu_workspace_reserve(&end, isa->gemm_s8_workspace(s->images * places, s->c_in, width));
    s->columns = cpu_workspace_reserve(&end, s->is_pointwise ? 0 : (uint64_t)(s->images * places * width));
    s->turned = cpu_workspace_reserve(&end, s->is_pointwise ? 0 : (uint64_t)(width * s->c_in));
    return end;
}

tandem_status cpu_conv2d_int8_gradient(tandem_kernel *kernel, tandem_error *error)
{
    const int is_wgrad = kernel->task.kind == TANDEM_TASK_WGRAD;
    gradient plan = describe(kernel);
    if (!is_wgrad && plan.taps * plan.c_out > TANDEM_PRODUCT_MOST_K)
        return cpu_kernel_refuse(kernel, "an int8 sum of more than 131072 products can overflow", error);
    gradient *state = malloc(sizeof *state);
    if (!state) return cpu_kernel_no_memory(kernel, error);
    kernel->workspace_bytes =
        is_wgrad ? plan_wgrad(&plan, kernel->device->isa) : plan_dgrad(&plan, kernel->device->isa);
    kernel->run = is_wgrad ? run_wgrad : is_convolution(&plan) ? run_convolution : run_strided;
    *state = plan;
    kernel->state = state;
    kernel->destroy = free;
    return TANDEM_OK;
}
