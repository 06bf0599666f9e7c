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
#include "backend/cpu/team.h"

/* Columns of as many images as fit the second-level cache, and of at least as many bytes as the gradient that
 * they are added to: else the sum would take longer than the product. */
enum { COLUMN_BYTES = 1 << 20 };

typedef struct conv_gradient_plan {
    int64_t batch, h, w, c_in, out_h, out_w, c_out; /* images of x, and of y */
    int64_t kernel, stride, pad, taps;              /* of the window; kernel · kernel */
    int is_pointwise;
    int64_t images;   /* at once; they divide the batch */
    uint64_t product; /* offsets in the workspace: of the product's own, */
    uint64_t columns; /* of columns, */
    uint64_t rotated; /* of the weight (c_in, tap, c_out) with its taps turned about, */
    uint64_t result;  /* of sums: of the weight's gradient, or of an image's, */
    uint64_t partial; /* and of the shares that are added to them */
} conv_gradient_plan;

static conv_gradient_plan conv_gradient_shape(const tandem_kernel *kernel)
{
    const tandem_op *op = kernel->op;
    const tandem_shape *in = cpu_input_shape(kernel, 0), *out = &op->shape;
    return (conv_gradient_plan){.batch = in->dim[0],
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

static int64_t images_per_block(int64_t batch, int64_t bytes_an_image, int64_t max_bytes)
{
    int64_t images = 1;
    for (int64_t n = 2; n <= batch && n * bytes_an_image <= max_bytes; n++)
        if (batch % n == 0) images = n;
    return images;
}

/* Columns of `n` images, which lie one after another. */
typedef struct columns_call {
    const tandem_isa_kernels *isa;
    int8_t *columns;
    const int8_t *image;
    int64_t of_columns, h, w, c, kernel, stride, pad; /* of_columns: of one image */
} columns_call;

static void make_columns_part(void *context, int64_t begin, int64_t end)
{
    const columns_call *of = context;
    for (int64_t i = begin; i < end; i++)
        of->isa->im2col_s8(of->columns + i * of->of_columns, of->image + i * of->h * of->w * of->c, of->h,
                           of->w, of->c, of->kernel, of->stride, of->pad);
}

static void make_columns(int64_t n, columns_call call) { cpu_for(n, 1, make_columns_part, &call); }

/* --- wgrad ---------------------------------------------------------------------------------------------- */

/* The sums of a weight gradient: shares in int32 as long as that is exact, then in f32. */
typedef struct wgrad_accumulator {
    const tandem_isa_kernels *isa;
    float *out;
    int32_t *sum, *partial; /* m · n each */
    int64_t rows;           /* summed in `sum` */
    int flushed;            /* whether `out` has a value */
    float scale;
    size_t n;
} wgrad_accumulator;

static void wgrad_flush(wgrad_accumulator *sums)
{
    float *const more = (float *)(void *)sums->partial;
    sums->isa->f32_from_s32(sums->flushed ? more : sums->out, sums->sum, sums->n, sums->scale);
    if (sums->flushed) sums->isa->add_f32(sums->out, sums->out, more, sums->n);
    sums->flushed = 1;
    sums->rows = 0;
}

/* Adds Xᵀ·G of product->k rows. */
static void wgrad_add_partial(wgrad_accumulator *sums, tandem_product_s8 *product)
{
    if (sums->rows + product->k > TANDEM_PRODUCT_MAX_K) wgrad_flush(sums);
    product->c = sums->rows ? sums->partial : sums->sum;
    sums->isa->gemm_s8(product);
    if (sums->rows) sums->isa->add_s32(sums->sum, sums->sum, sums->partial, sums->n);
    sums->rows += product->k;
}

static tandem_status int8_wgrad_run(const tandem_kernel *kernel, const tandem_kernel_call *call,
                                    tandem_error *error)
{
    const conv_gradient_plan *s = kernel->state;
    const int64_t positions = s->out_h * s->out_w, width = s->taps * s->c_in;
    const int8_t *x = call->in[0], *g = call->in[1];
    int8_t *const columns = cpu_workspace_at(call->workspace, s->columns);
    wgrad_accumulator sums = {.isa = kernel->device->isa,
                              .out = call->out[0],
                              .sum = cpu_workspace_at(call->workspace, s->result),
                              .partial = cpu_workspace_at(call->workspace, s->partial),
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
        if (!s->is_pointwise)
            make_columns(s->images, (columns_call){kernel->device->isa, columns,
                                                   x + first * s->h * s->w * s->c_in, positions * width, s->h,
                                                   s->w, s->c_in, s->kernel, s->stride, s->pad});
        const int8_t *const rows = s->is_pointwise ? x + first * positions * width : columns;
        for (int64_t row = 0; row < s->images * positions; row += product.k) {
            const int64_t rest = s->images * positions - row;
            product.k = rest < TANDEM_PRODUCT_MAX_K ? rest : TANDEM_PRODUCT_MAX_K;
            product.a = rows + row * width;
            product.b = g + (first * positions + row) * s->c_out;
            wgrad_add_partial(&sums, &product);
        }
    }
    wgrad_flush(&sums);
    return TANDEM_OK;
}

static uint64_t int8_wgrad_plan(conv_gradient_plan *s, const tandem_isa_kernels *isa)
{
    const int64_t positions = s->out_h * s->out_w, width = s->taps * s->c_in, sums = width * s->c_out;
    const int64_t max_bytes =
        sums * (int64_t)sizeof(float) > COLUMN_BYTES ? sums * (int64_t)sizeof(float) : COLUMN_BYTES;
    s->images = s->is_pointwise ? s->batch : images_per_block(s->batch, positions * width, max_bytes);
    const int64_t rows = s->images * positions, k = rows < TANDEM_PRODUCT_MAX_K ? rows : TANDEM_PRODUCT_MAX_K;
    uint64_t end = 0;
    s->product = cpu_workspace_reserve(&end, isa->gemm_s8_workspace(width, s->c_out, k));
    s->columns = cpu_workspace_reserve(&end, s->is_pointwise ? 0 : (uint64_t)(rows * width));
    s->result = cpu_workspace_reserve(&end, (uint64_t)sums * sizeof(int32_t));
    s->partial =
        cpu_workspace_reserve(&end, s->images < s->batch || k < rows ? (uint64_t)sums * sizeof(int32_t) : 0);
    return end;
}

/* --- dgrad ---------------------------------------------------------------------------------------------- */

static int is_unit_stride(const conv_gradient_plan *s) { return s->stride == 1; }

/* (c_in, tap, c_out) from (tap, c_in, c_out), the last tap first. */
static void rotate_taps(const conv_gradient_plan *s, int8_t *rotated, const int8_t *weight)
{
    for (int64_t channel = 0; channel < s->c_in; channel++)
        for (int64_t tap = s->taps - 1; tap >= 0; tap--, rotated += s->c_out)
            memcpy(rotated, weight + (tap * s->c_in + channel) * s->c_out, (size_t)s->c_out);
}

static tandem_status int8_dgrad_run(const tandem_kernel *kernel, const tandem_kernel_call *call,
                                    tandem_error *error)
{
    const conv_gradient_plan *s = kernel->state;
    const tandem_isa_kernels *isa = kernel->device->isa;
    const int64_t positions = s->h * s->w, width = s->taps * s->c_out, image = s->out_h * s->out_w * s->c_out;
    const int8_t *g = call->in[0], *weight = call->in[1];
    int8_t *const columns = cpu_workspace_at(call->workspace, s->columns);
    if (!s->is_pointwise) {
        int8_t *const rotated = cpu_workspace_at(call->workspace, s->rotated);
        rotate_taps(s, rotated, weight);
        weight = rotated;
    }
    tandem_product_s8 product = {.m = s->images * positions,
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
        if (!s->is_pointwise)
            make_columns(s->images,
                         (columns_call){isa, columns, g + first * image, positions * width, s->out_h,
                                        s->out_w, s->c_out, s->kernel, 1, s->kernel - 1 - s->pad});
        product.a = s->is_pointwise ? g + first * image : columns;
        product.c = (char *)call->out[0] +
                    (uint64_t)(first * positions * s->c_in) * tandem_dtype_bytes(kernel->task.to);
        isa->gemm_s8(&product);
    }
    return TANDEM_OK;
}

/* Adds each window's gradient to that of the image; a line of a window is contiguous in a line of the
 * image. */
static void scatter_windows(const conv_gradient_plan *s, const tandem_isa_kernels *isa, int32_t *image,
                            const int32_t *windows)
{
    memset(image, 0, (size_t)(s->h * s->w * s->c_in) * sizeof *image);
    for (int64_t position = 0; position < s->out_h * s->out_w; position++, windows += s->taps * s->c_in) {
        const int64_t y = position / s->out_w * s->stride - s->pad,
                      x = position % s->out_w * s->stride - s->pad;
        const int64_t begin = x < 0 ? -x : 0, end = x + s->kernel > s->w ? s->w - x : s->kernel;
        for (int64_t line = 0; line < s->kernel && begin < end; line++) {
            if (y + line < 0 || y + line >= s->h) continue;
            int32_t *to = image + ((y + line) * s->w + x + begin) * s->c_in;
            isa->add_s32(to, to, windows + (line * s->kernel + begin) * s->c_in,
                         (size_t)((end - begin) * s->c_in));
        }
    }
}

static tandem_status int8_dgrad_run_strided(const tandem_kernel *kernel, const tandem_kernel_call *call,
                                            tandem_error *error)
{
    const conv_gradient_plan *s = kernel->state;
    const tandem_isa_kernels *isa = kernel->device->isa;
    const int64_t positions = s->out_h * s->out_w, width = s->taps * s->c_in, image = s->h * s->w * s->c_in;
    const float scale = cpu_product_scale(call);
    int32_t *const windows = cpu_workspace_at(call->workspace, s->columns);
    tandem_product_s8 product = {.m = positions,
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
        product.a = (const int8_t *)call->in[0] + i * positions * s->c_out;
        isa->gemm_s8(&product);
        scatter_windows(s, isa, sums, windows);
        if (kernel->task.to == TANDEM_BF16)
            isa->bf16_from_s32((uint16_t *)call->out[0] + i * image, sums, (size_t)image, scale);
        else
            isa->f32_from_s32((float *)call->out[0] + i * image, sums, (size_t)image, scale);
    }
    return TANDEM_OK;
}

static uint64_t int8_dgrad_plan(conv_gradient_plan *s, const tandem_isa_kernels *isa)
{
    uint64_t end = 0;
    if (!is_unit_stride(s)) {
        const int64_t positions = s->out_h * s->out_w, width = s->taps * s->c_in;
        s->product = cpu_workspace_reserve(&end, isa->gemm_s8_workspace(positions, width, s->c_out));
        s->columns = cpu_workspace_reserve(&end, (uint64_t)(positions * width) * sizeof(int32_t));
        s->result = cpu_workspace_reserve(&end, (uint64_t)(s->h * s->w * s->c_in) * sizeof(int32_t));
        return end;
    }
    const int64_t positions = s->h * s->w, width = s->taps * s->c_out;
    s->images = s->is_pointwise ? s->batch : images_per_block(s->batch, positions * width, COLUMN_BYTES);
    s->product = cpu_workspace_reserve(&end, isa->gemm_s8_workspace(s->images * positions, s->c_in, width));
    s->columns = cpu_workspace_reserve(&end, s->is_pointwise ? 0 : (uint64_t)(s->images * positions * width));
    s->rotated = cpu_workspace_reserve(&end, s->is_pointwise ? 0 : (uint64_t)(width * s->c_in));
    return end;
}

tandem_status cpu_conv2d_int8_gradient(tandem_kernel *kernel, tandem_error *error)
{
    const int is_wgrad = kernel->task.kind == TANDEM_TASK_WGRAD;
    conv_gradient_plan plan = conv_gradient_shape(kernel);
    if (!is_wgrad && plan.taps * plan.c_out > TANDEM_PRODUCT_MAX_K)
        return cpu_kernel_refuse(kernel, "an int8 sum of more than 131072 products can overflow", error);
    conv_gradient_plan *state = malloc(sizeof *state);
    if (!state) return cpu_kernel_no_memory(kernel, error);
    kernel->workspace_bytes =
        is_wgrad ? int8_wgrad_plan(&plan, kernel->device->isa) : int8_dgrad_plan(&plan, kernel->device->isa);
    kernel->run = is_wgrad ? int8_wgrad_run : is_unit_stride(&plan) ? int8_dgrad_run : int8_dgrad_run_strided;
    *state = plan;
    kernel->state = state;
    kernel->destroy = free;
    return TANDEM_OK;
}
