/* layer_kernels.c: passes of a layer (tandem/kernels.h): its operands rounded, its products, its
 * bias, in one call. A pass is made of the public functions, which check what they get; here is checked only
 * what they cannot see. */
#include <inttypes.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "kernels/cpu/isa_kernels.h"

/* Windows of as many images as fit the second-level cache are multiplied together. */
enum { WINDOW_BYTES = 1 << 20 };
static const int64_t max_size = (int64_t)1 << 30; /* of a dimension: products of two cannot overflow */

static int64_t larger_size(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t smaller_size(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t aligned_size(int64_t bytes) { return (bytes + 63) / 64 * 64; }

/* --- What passes share ---------------------------------------------------------------------------------- */

/* Whole rows that stay in the first cache while they are read twice. */
static int64_t elements_at_a_time(int64_t columns)
{
    enum { PIECE = 1 << 13 };
    return larger_size(1, PIECE / columns / 4) * 4 * columns;
}

/* The largest magnitude of rows that a bias is added to, and the sums of their columns. */
static float sum_and_amax(const tandem_kernels *kernels, float *sums, const float *x, int64_t elements,
                          int64_t columns)
{
    const int64_t step = elements_at_a_time(columns);
    float amax = 0;
    memset(sums, 0, (size_t)columns * sizeof *sums);
    for (int64_t at = 0; at < elements; at += step) {
        const size_t n = (size_t)smaller_size(step, elements - at);
        const float of_rows = kernels->amax_f32(x + at, n);
        if (!(of_rows <= amax) && !isnan(amax)) amax = of_rows; /* a NaN stays one */
        kernels->add_rows_f32(sums, x + at, n, (size_t)columns);
    }
    return amax;
}

/* Such rows in bf16, and the sums of their columns. */
static void sum_and_narrow(const tandem_kernels *kernels, float *sums, const tandem_layer_operand *operand,
                           int64_t columns)
{
    const int64_t step = elements_at_a_time(columns);
    memset(sums, 0, (size_t)columns * sizeof *sums);
    for (int64_t at = 0; at < operand->elements; at += step) {
        const size_t n = (size_t)smaller_size(step, operand->elements - at);
        kernels->bf16_from_f32(operand->half + at, operand->x + at, n);
        kernels->add_rows_f32(sums, operand->x + at, n, (size_t)columns);
    }
}

/* To bf16; with `sums`, the sums of its columns, too. */
static tandem_status narrow_layer_operand(const tandem_kernels *kernels, const tandem_layer_operand *operand,
                                          float *sums, int64_t columns, tandem_error *error)
{
    if (!operand->x) return TANDEM_OK;
    if (sums && columns > 0 && operand->half) {
        sum_and_narrow(kernels, sums, operand, columns);
        return TANDEM_OK;
    }
    const tandem_cast_call call = {.x = operand->x,
                                   .from = TANDEM_F32,
                                   .rows = 1,
                                   .columns = operand->elements,
                                   .y = operand->half,
                                   .to = TANDEM_BF16};
    return tandem_kernels_cast(kernels, &call, error);
}

/* To int8; with `sums`, the sums of its columns, too. */
static tandem_status round_layer_operand(const tandem_kernels *kernels, tandem_layer_operand *operand,
                                         uint64_t seed, const uint32_t stream[2], float *sums,
                                         int64_t columns, tandem_error *error)
{
    if (!operand->x) return TANDEM_OK;
    const tandem_rounding rounding = {.seed = seed, .stream = {stream[0], stream[1], operand->stream}};
    tandem_quantise_call call = {.x = operand->x,
                                 .from = TANDEM_F32,
                                 .rows = 1,
                                 .columns = operand->elements,
                                 .q = operand->q,
                                 .scale_mode = TANDEM_SCALE_TENSOR,
                                 .rounding = &rounding,
                                 .scale = &operand->scale};
    if (sums && columns > 0) {
        call.range = sum_and_amax(kernels, sums, operand->x, operand->elements, columns);
        if (isfinite(call.range)) call.scale_mode = TANDEM_SCALE_KNOWN; /* else the call says what is wrong */
    }
    return tandem_kernels_quantise(kernels, &call, error);
}

/* Of products whose sums are cut: the last part of one may need more than a longer part. */
static int64_t cut_product_bytes(const tandem_kernels *kernels, int64_t m, int64_t n, int64_t k)
{
    const int64_t part = smaller_size(k, TANDEM_PRODUCT_MAX_K), rest = k % TANDEM_PRODUCT_MAX_K;
    return larger_size((int64_t)tandem_kernels_product_workspace(kernels, m, n, part),
                       (int64_t)tandem_kernels_product_workspace(kernels, m, n, rest));
}

/* One product of any k, whose sums are cut where they could leave int32. */
static tandem_status multiply_cut(const tandem_kernels *kernels, const tandem_product_s8 *whole,
                                  size_t workspace_bytes, tandem_error *error)
{
    tandem_product_s8 part = *whole;
    tandem_status status = TANDEM_OK;
    int64_t begin = 0;
    do {
        part.k = smaller_size(whole->k - begin, TANDEM_PRODUCT_MAX_K);
        part.a = whole->a + begin * whole->a_column;
        part.b = whole->b + begin * whole->b_row;
        part.bias = begin == 0 ? whole->bias : NULL;
        part.accumulate = whole->accumulate || begin > 0;
        status = tandem_kernels_product(kernels, &part, workspace_bytes, error);
        begin += part.k;
    } while (begin < whole->k && status == TANDEM_OK);
    return status;
}

static tandem_status refuse_operand(const char *pass, const char *name, const tandem_layer_operand *operand,
                                    int64_t needs, tandem_error *error)
{
    if (!operand->q) return tandem_error_set(error, TANDEM_USAGE, "%s: the q of %s is NULL", pass, name);
    return tandem_error_set(error, TANDEM_USAGE,
                            "%s: %s has %" PRId64 " elements; its sizes and strides reach over %" PRId64,
                            pass, name, operand->elements, needs);
}

static int is_size(int64_t size) { return size >= 0 && size <= max_size; }

/* --- Linear layers and matrix products ------------------------------------------------------------------ */

static int are_linear_sizes(int64_t m, int64_t n, int64_t k)
{
    return is_size(m) && is_size(n) && is_size(k);
}

/* Of one product. */
static int64_t linear_product_bytes(const tandem_kernels *kernels, tandem_dtype to, int64_t m, int64_t n,
                                    int64_t k)
{
    return to == TANDEM_BF16 ? (int64_t)tandem_kernels_product_bf16_workspace(kernels, m, n, k)
                             : cut_product_bytes(kernels, m, n, k);
}

size_t tandem_kernels_linear_workspace(const tandem_kernels *kernels, tandem_dtype to, int64_t m, int64_t n,
                                       int64_t k)
{
    if (!kernels || !are_linear_sizes(m, n, k) || (to != TANDEM_S8 && to != TANDEM_BF16)) return 0;
    const int64_t forward = linear_product_bytes(kernels, to, m, n, k),
                  of_a = linear_product_bytes(kernels, to, m, k, n),
                  of_b = linear_product_bytes(kernels, to, k, n, m),
                  turned = linear_product_bytes(kernels, to, n, k, m);
    return (size_t)larger_size(larger_size(forward, of_a), larger_size(of_b, turned));
}

/* A matrix of each product: an operand as it is, or transposed. */
typedef struct layer_matrix {
    const tandem_layer_operand *of;
    int64_t row, column;
    int64_t at; /* the element that it begins with */
} layer_matrix;

static layer_matrix as_it_is(const tandem_layer_operand *of)
{
    return (layer_matrix){of, of->row, of->column, 0};
}
static layer_matrix transposed_matrix(const tandem_layer_operand *of)
{
    return (layer_matrix){of, of->column, of->row, 0};
}
static layer_matrix matrix_of_product(layer_matrix first, int64_t s, int64_t t)
{
    first.at = s * first.of->step[0] + t * first.of->step[1];
    return first;
}

static tandem_status check_linear_operand(const tandem_linear_pass *pass, const char *name,
                                          const tandem_layer_operand *operand, int64_t rows, int64_t columns,
                                          tandem_error *error)
{
    const int64_t count[] = {rows, columns, pass->batch[0], pass->batch[1]};
    const int64_t stride[] = {operand->row, operand->column, operand->step[0], operand->step[1]};
    int64_t end = 1;
    for (int i = 0; i < 4; i++) {
        if (stride[i] < 0 || stride[i] > INT64_MAX / 4 / larger_size(count[i], 1))
            return tandem_error_set(error, TANDEM_USAGE, "linear: a stride of %s is %" PRId64, name,
                                    stride[i]);
        if (count[i] == 0) return TANDEM_OK;
        end += (count[i] - 1) * stride[i];
    }
    return operand->q && end <= operand->elements ? TANDEM_OK
                                                  : refuse_operand("linear", name, operand, end, error);
}

static tandem_status check_linear_pass(const tandem_linear_pass *pass, tandem_error *error)
{
    if (!are_linear_sizes(pass->m, pass->n, pass->k) || !is_size(pass->batch[0]) || !is_size(pass->batch[1]))
        return tandem_error_set(error, TANDEM_USAGE,
                                "linear: m, n, k and batch are %" PRId64 ", %" PRId64 ", %" PRId64
                                ", %" PRId64 " and %" PRId64 "; each is 0 to 2^30",
                                pass->m, pass->n, pass->k, pass->batch[0], pass->batch[1]);
    if (pass->to != TANDEM_S8 && pass->to != TANDEM_BF16)
        return tandem_error_set(error, TANDEM_USAGE, "linear: `to` is %d; allowed: s8, bf16", (int)pass->to);
    tandem_status status = TANDEM_OK;
    if (pass->c || pass->gb || pass->a.x)
        status = check_linear_operand(pass, "a", &pass->a, pass->m, pass->k, error);
    if (status == TANDEM_OK && (pass->c || pass->ga || pass->b.x))
        status = check_linear_operand(pass, "b", &pass->b, pass->k, pass->n, error);
    if (status == TANDEM_OK && (pass->ga || pass->gb || pass->g.x))
        status = check_linear_operand(pass, "g", &pass->g, pass->m, pass->n, error);
    if (status == TANDEM_OK && pass->g_bias && !pass->g.x)
        status = tandem_error_set(error, TANDEM_USAGE, "linear: g.x is NULL, and g_bias is wanted");
    return status;
}

/* result = a·b of one product in bf16. */
static tandem_status multiply_narrow(const tandem_kernels *kernels, const tandem_linear_pass *pass,
                                     float *result, const int64_t size[3], layer_matrix a, layer_matrix b,
                                     const float *bias, tandem_error *error)
{
    tandem_product_bf16 product = {.m = size[0],
                                   .n = size[1],
                                   .k = size[2],
                                   .a = a.of->half + a.at,
                                   .a_row = a.row,
                                   .a_column = a.column,
                                   .b = b.of->half + b.at,
                                   .b_row = b.row,
                                   .b_column = b.column,
                                   .c_row = size[1],
                                   .bias = bias,
                                   .workspace = pass->workspace};
    product.c = result;
    return tandem_kernels_product_bf16(kernels, &product, pass->workspace_bytes, error);
}

/* The same in int8. */
static tandem_status multiply_rounded(const tandem_kernels *kernels, const tandem_linear_pass *pass,
                                      float *result, const int64_t size[3], layer_matrix a, layer_matrix b,
                                      const float *bias, tandem_error *error)
{
    tandem_product_s8 product = {.m = size[0],
                                 .n = size[1],
                                 .k = size[2],
                                 .a = a.of->q + a.at,
                                 .a_row = a.row,
                                 .a_column = a.column,
                                 .b = b.of->q + b.at,
                                 .b_row = b.row,
                                 .b_column = b.column,
                                 .c_row = size[1],
                                 .c_type = TANDEM_F32,
                                 .scale = a.of->scale * b.of->scale,
                                 .bias = bias,
                                 .workspace = pass->workspace};
    product.c = result;
    return multiply_cut(kernels, &product, pass->workspace_bytes, error);
}

/* result = a·b, (rows, columns), of each product; size: rows, columns, terms of a sum. */
static tandem_status multiply_matrices(const tandem_kernels *kernels, const tandem_linear_pass *pass,
                                       float *result, const int64_t size[3], layer_matrix a, layer_matrix b,
                                       const float *bias, tandem_error *error)
{
    tandem_status status = TANDEM_OK;
    for (int64_t s = 0; s < pass->batch[0]; s++)
        for (int64_t t = 0; t < pass->batch[1] && status == TANDEM_OK; t++) {
            status = (pass->to == TANDEM_BF16 ? multiply_narrow : multiply_rounded)(
                kernels, pass, result, size, matrix_of_product(a, s, t), matrix_of_product(b, s, t), bias,
                error);
            result += size[0] * size[1];
        }
    return status;
}

static tandem_status multiply_linear(const tandem_kernels *kernels, const tandem_linear_pass *pass,
                                     tandem_error *error)
{
    const int64_t m = pass->m, n = pass->n, k = pass->k;
    const layer_matrix a = as_it_is(&pass->a), b = as_it_is(&pass->b), g = as_it_is(&pass->g);
    const layer_matrix at = transposed_matrix(&pass->a), bt = transposed_matrix(&pass->b),
                       gt = transposed_matrix(&pass->g);
    tandem_status status = TANDEM_OK;
    if (pass->c)
        status =
            multiply_matrices(kernels, pass, pass->c, (const int64_t[]){m, n, k}, a, b, pass->bias, error);
    if (status == TANDEM_OK && pass->ga)
        status = multiply_matrices(kernels, pass, pass->ga, (const int64_t[]){m, k, n}, g, bt, NULL, error);
    if (status == TANDEM_OK && pass->gb && pass->gb_transposed)
        status = multiply_matrices(kernels, pass, pass->gb, (const int64_t[]){n, k, m}, gt, a, NULL, error);
    else if (status == TANDEM_OK && pass->gb)
        status = multiply_matrices(kernels, pass, pass->gb, (const int64_t[]){k, n, m}, at, g, NULL, error);
    return status;
}

tandem_status tandem_kernels_linear(const tandem_kernels *kernels, tandem_linear_pass *pass,
                                    tandem_error *error)
{
    if (!kernels || !pass)
        return tandem_error_set(error, TANDEM_USAGE, "linear: %s is NULL", kernels ? "the pass" : "kernels");
    tandem_status status = check_linear_pass(pass, error);
    tandem_layer_operand *const operand[] = {&pass->a, &pass->b, &pass->g};
    for (int i = 0; i < 3 && status == TANDEM_OK; i++) {
        float *const sums = i == 2 ? pass->g_bias : NULL;
        status = pass->to == TANDEM_BF16 ? narrow_layer_operand(kernels, operand[i], sums, pass->n, error)
                                         : round_layer_operand(kernels, operand[i], pass->seed, pass->stream,
                                                               sums, pass->n, error);
    }
    return status == TANDEM_OK ? multiply_linear(kernels, pass, error) : status;
}

/* --- Convolutions --------------------------------------------------------------------------------------- */

/* Sizes that follow from those of a convolution, and what of its workspace is whose. */
typedef struct conv_layout {
    int64_t out_height, out_width, positions, pixels, image, result; /* of one image: x, and y */
    int64_t taps, width;     /* kernel², and the numbers of a window of x */
    int is_plain;            /* each window is a pixel: images are their own windows */
    int64_t forward, gx, gw; /* images at a time in each pass */
    int64_t product_bytes, window_bytes, other_bytes;
} conv_layout;

/* As many images as have windows of WINDOW_BYTES together. */
static int64_t images_together(int64_t images, int64_t bytes_an_image)
{
    return smaller_size(larger_size(images, 1),
                        larger_size(1, WINDOW_BYTES / larger_size(1, bytes_an_image)));
}

/* Of the passes over all images, `step` at a time, whose products are (rows of an image, n, k). */
static int64_t rows_product_bytes(const tandem_kernels *kernels, int64_t images, int64_t step, int64_t rows,
                                  int64_t n, int64_t k)
{
    return larger_size(cut_product_bytes(kernels, step * rows, n, k),
                       cut_product_bytes(kernels, images % step * rows, n, k));
}

static void plan_conv_gx(const tandem_kernels *kernels, const tandem_conv2d_s8 *p, conv_layout *s)
{
    const int64_t depth = s->taps * p->out;
    if (p->stride == 1) { /* windows of g, times the weight turned round */
        s->gx = s->is_plain ? p->images : images_together(p->images, s->pixels * depth);
        s->product_bytes = larger_size(
            s->product_bytes, rows_product_bytes(kernels, p->images, s->gx, s->pixels, p->channels, depth));
        if (s->is_plain) return;
        s->window_bytes = larger_size(s->window_bytes, s->gx * s->pixels * depth);
        s->other_bytes = depth * p->channels;
    } else { /* what each window gives back */
        const int64_t bytes_an_image = s->positions * s->width * (int64_t)sizeof(int32_t);
        s->gx = images_together(p->images, bytes_an_image);
        s->product_bytes = larger_size(
            s->product_bytes, rows_product_bytes(kernels, p->images, s->gx, s->positions, s->width, p->out));
        s->window_bytes = larger_size(s->window_bytes, s->gx * bytes_an_image);
        s->other_bytes = s->image * (int64_t)sizeof(int32_t);
    }
}

static conv_layout plan_conv_layout(const tandem_kernels *kernels, const tandem_conv2d_s8 *p)
{
    conv_layout s = {.out_height = (p->height + 2 * p->pad - p->kernel) / p->stride + 1,
                     .out_width = (p->width + 2 * p->pad - p->kernel) / p->stride + 1};
    const int is_pixel = p->kernel == 1 && p->pad == 0;
    s.positions = s.out_height * s.out_width;
    s.pixels = p->height * p->width;
    s.image = s.pixels * p->channels;
    s.result = s.positions * p->out;
    s.taps = p->kernel * p->kernel;
    s.width = s.taps * p->channels;
    s.is_plain = is_pixel && p->stride == 1;
    s.forward = s.is_plain ? p->images : images_together(p->images, s.positions * s.width);
    /* windows of at least as many bytes as the gradient, which is read and written for each group */
    const int64_t of_gw = WINDOW_BYTES * s.positions / (4 * larger_size(p->out, 1));
    s.gw = is_pixel ? p->images
                    : images_together(p->images, smaller_size(s.positions * s.width, larger_size(1, of_gw)));
    s.gw = larger_size(s.gw, 1), s.forward = larger_size(s.forward, 1);
    s.product_bytes =
        larger_size(rows_product_bytes(kernels, p->images, s.forward, s.positions, p->out, s.width),
                    larger_size(cut_product_bytes(kernels, p->out, s.width, s.gw * s.positions),
                                cut_product_bytes(kernels, p->out, s.width, p->images % s.gw * s.positions)));
    s.window_bytes = s.is_plain ? 0 : larger_size(s.forward, s.gw) * s.positions * s.width;
    plan_conv_gx(kernels, p, &s);
    s.gx = larger_size(s.gx, 1);
    s.product_bytes = aligned_size(s.product_bytes);
    s.window_bytes = aligned_size(s.window_bytes);
    return s;
}

static int are_conv_sizes(const tandem_conv2d_s8 *p)
{
    const int64_t size[] = {p->images, p->height, p->width,  p->channels,
                            p->out,    p->kernel, p->stride, p->pad};
    for (size_t i = 0; i < sizeof size / sizeof *size; i++)
        if (!is_size(size[i])) return 0;
    if (p->kernel < 1 || p->kernel > 1 << 10 || p->stride < 1 || p->pad >= p->kernel ||
        p->height + 2 * p->pad < p->kernel || p->width + 2 * p->pad < p->kernel)
        return 0;
    /* the windows of all images, times the channels of y, and those of g */
    const int64_t channels = larger_size(p->channels, p->out);
    int64_t all = larger_size(p->images, 1);
    const int64_t factor[] = {p->height + p->kernel, p->width + p->kernel, p->kernel * p->kernel,
                              larger_size(channels, 1), sizeof(int32_t)};
    for (size_t i = 0; i < sizeof factor / sizeof *factor; i++)
        if (__builtin_mul_overflow(all, factor[i], &all)) return 0;
    return all < INT64_MAX / 4;
}

size_t tandem_kernels_conv2d_s8_workspace(const tandem_kernels *kernels, const tandem_conv2d_s8 *shape)
{
    if (!kernels || !shape || !are_conv_sizes(shape)) return 0;
    const conv_layout s = plan_conv_layout(kernels, shape);
    return (size_t)(s.product_bytes + s.window_bytes + s.other_bytes);
}

static tandem_status check_conv_operand(const char *name, const tandem_layer_operand *operand, int64_t needs,
                                        int is_read, tandem_error *error)
{
    if (!is_read || needs == 0 || (operand->q && operand->elements == needs)) return TANDEM_OK;
    return refuse_operand("convolution", name, operand, needs, error);
}

static tandem_status check_conv_pass(const tandem_kernels *kernels, const tandem_conv2d_s8 *p,
                                     tandem_error *error)
{
    const size_t needs = tandem_kernels_conv2d_s8_workspace(kernels, p);
    if (!are_conv_sizes(p))
        return tandem_error_set(
            error, TANDEM_USAGE,
            "convolution: %" PRId64 " images of %" PRId64 "x%" PRId64 "x%" PRId64 " with kernel %" PRId64
            ", stride %" PRId64 ", pad %" PRId64 " and %" PRId64 " results are no sizes; see kernels.h",
            p->images, p->height, p->width, p->channels, p->kernel, p->stride, p->pad, p->out);
    if (p->workspace_bytes < needs || (needs && (!p->workspace || (uintptr_t)p->workspace % 64)))
        return tandem_error_set(error, TANDEM_USAGE,
                                "convolution: a workspace of %zu bytes, 64-byte aligned, is needed; got %zu",
                                needs, p->workspace_bytes);
    const conv_layout s = plan_conv_layout(kernels, p);
    if (p->gx && p->stride > 1 && s.taps * p->out > TANDEM_PRODUCT_MAX_K)
        return tandem_error_set(error, TANDEM_USAGE,
                                "convolution: kernel²·out is %" PRId64
                                "; sums of more than %d products, where "
                                "windows overlap, can leave int32",
                                s.taps * p->out, TANDEM_PRODUCT_MAX_K);
    tandem_status status =
        check_conv_operand("x", &p->x, p->images * s.image, p->y || p->gw || p->x.x, error);
    if (status == TANDEM_OK)
        status = check_conv_operand("w", &p->w, p->out * s.width, p->y || p->gx || p->w.x, error);
    if (status == TANDEM_OK)
        status = check_conv_operand("g", &p->g, p->images * s.result, p->gx || p->gw || p->g.x, error);
    if (status == TANDEM_OK && p->g_bias && !p->g.x)
        status = tandem_error_set(error, TANDEM_USAGE, "convolution: g.x is NULL, and g_bias is wanted");
    return status;
}

/* A convolution on its way: its parts of the workspace. */
typedef struct conv_run {
    const tandem_kernels *kernels;
    const tandem_conv2d_s8 *pass;
    conv_layout layout;
    int8_t *windows, *other;
} conv_run;

/* The windows of some images of x, one a row: a copy, but where an image is its own windows. */
static const int8_t *windows_of_x(const conv_run *r, int64_t first, int64_t images)
{
    const tandem_conv2d_s8 *p = r->pass;
    const conv_layout *s = &r->layout;
    const int8_t *const x = p->x.q + first * s->image;
    if (s->is_plain) return x;
    for (int64_t i = 0; i < images; i++)
        r->kernels->im2col_s8(r->windows + i * s->positions * s->width, x + i * s->image, p->height, p->width,
                              p->channels, p->kernel, p->stride, p->pad);
    return r->windows;
}

static tandem_status convolve_y(const conv_run *r, tandem_error *error)
{
    const tandem_conv2d_s8 *p = r->pass;
    const conv_layout *s = &r->layout;
    tandem_product_s8 product = {.n = p->out,
                                 .k = s->width,
                                 .a_row = s->width,
                                 .a_column = 1,
                                 .b = p->w.q,
                                 .b_row = 1,
                                 .b_column = s->width,
                                 .c_row = p->out,
                                 .c_type = TANDEM_F32,
                                 .scale = p->x.scale * p->w.scale,
                                 .bias = p->bias,
                                 .workspace = p->workspace};
    tandem_status status = TANDEM_OK;
    for (int64_t first = 0; first < p->images && status == TANDEM_OK; first += s->forward) {
        const int64_t images = smaller_size(s->forward, p->images - first);
        product.m = images * s->positions;
        product.a = windows_of_x(r, first, images);
        product.c = p->y + first * s->result;
        status = multiply_cut(r->kernels, &product, (size_t)s->product_bytes, error);
    }
    return status;
}

static tandem_status convolve_gw(const conv_run *r, tandem_error *error)
{
    const tandem_conv2d_s8 *p = r->pass;
    const conv_layout *s = &r->layout;
    tandem_product_s8 product = {.m = p->out,
                                 .n = s->width,
                                 .a_row = 1,
                                 .a_column = p->out,
                                 .b_row = s->width,
                                 .b_column = 1,
                                 .c = p->gw,
                                 .c_row = s->width,
                                 .c_type = TANDEM_F32,
                                 .scale = p->g.scale * p->x.scale,
                                 .workspace = p->workspace};
    tandem_status status = TANDEM_OK;
    for (int64_t first = 0; first < p->images && status == TANDEM_OK; first += s->gw) {
        const int64_t images = smaller_size(s->gw, p->images - first);
        product.k = images * s->positions;
        product.a = p->g.q + first * s->result;
        product.b = windows_of_x(r, first, images);
        product.accumulate = first > 0;
        status = multiply_cut(r->kernels, &product, (size_t)s->product_bytes, error);
    }
    return status;
}

/* The weight (out, tap, channels) as (tap, out, channels), the last tap first. */
static void turn_weight(const conv_run *r)
{
    const tandem_conv2d_s8 *p = r->pass;
    const int64_t taps = r->layout.taps;
    int8_t *to = r->other;
    for (int64_t tap = taps - 1; tap >= 0; tap--)
        for (int64_t j = 0; j < p->out; j++, to += p->channels)
            memcpy(to, p->w.q + (j * taps + tap) * p->channels, (size_t)p->channels);
}

/* With stride 1: a convolution of g, its border as wide as a window reaches over it. */
static tandem_status convolve_gx(const conv_run *r, tandem_error *error)
{
    const tandem_conv2d_s8 *p = r->pass;
    const conv_layout *s = &r->layout;
    const int64_t depth = s->taps * p->out;
    tandem_product_s8 product = {.n = p->channels,
                                 .k = depth,
                                 .a_row = depth,
                                 .a_column = 1,
                                 .b = s->is_plain ? p->w.q : r->other,
                                 .b_row = p->channels,
                                 .b_column = 1,
                                 .c_row = p->channels,
                                 .c_type = TANDEM_F32,
                                 .scale = p->g.scale * p->w.scale,
                                 .workspace = p->workspace};
    if (!s->is_plain) turn_weight(r);
    tandem_status status = TANDEM_OK;
    for (int64_t first = 0; first < p->images && status == TANDEM_OK; first += s->gx) {
        const int64_t images = smaller_size(s->gx, p->images - first);
        const int8_t *const g = p->g.q + first * s->result;
        for (int64_t i = 0; i < images && !s->is_plain; i++)
            r->kernels->im2col_s8(r->windows + i * s->pixels * depth, g + i * s->result, s->out_height,
                                  s->out_width, p->out, p->kernel, 1, p->kernel - 1 - p->pad);
        product.m = images * s->pixels;
        product.a = s->is_plain ? g : r->windows;
        product.c = p->gx + first * s->image;
        status = multiply_cut(r->kernels, &product, (size_t)s->product_bytes, error);
    }
    return status;
}

/* Adds what each window of an image gives back; a line of a window is contiguous in a line of the image. */
static void add_windows(const conv_run *r, int32_t *image, const int32_t *windows)
{
    const tandem_conv2d_s8 *p = r->pass;
    const conv_layout *s = &r->layout;
    memset(image, 0, (size_t)s->image * sizeof *image);
    for (int64_t at = 0; at < s->positions; at++, windows += s->width) {
        const int64_t y = at / s->out_width * p->stride - p->pad, x = at % s->out_width * p->stride - p->pad;
        const int64_t begin = larger_size(-x, 0), end = smaller_size(p->width - x, p->kernel);
        for (int64_t line = larger_size(-y, 0); line < smaller_size(p->height - y, p->kernel); line++) {
            int32_t *const to = image + ((y + line) * p->width + x + begin) * p->channels;
            if (begin < end)
                r->kernels->add_s32(to, to, windows + (line * p->kernel + begin) * p->channels,
                                    (size_t)((end - begin) * p->channels));
        }
    }
}

/* With any stride: g·W, whose rows are what each window gives back. */
static tandem_status convolve_gx_strided(const conv_run *r, tandem_error *error)
{
    const tandem_conv2d_s8 *p = r->pass;
    const conv_layout *s = &r->layout;
    int32_t *const windows = (int32_t *)(void *)r->windows, *const sums = (int32_t *)(void *)r->other;
    tandem_product_s8 product = {.n = s->width,
                                 .k = p->out,
                                 .a_row = p->out,
                                 .a_column = 1,
                                 .b = p->w.q,
                                 .b_row = s->width,
                                 .b_column = 1,
                                 .c = windows,
                                 .c_row = s->width,
                                 .c_type = TANDEM_S32,
                                 .workspace = p->workspace};
    for (int64_t first = 0; first < p->images; first += s->gx) {
        const int64_t images = smaller_size(s->gx, p->images - first);
        product.m = images * s->positions;
        product.a = p->g.q + first * s->result;
        const tandem_status status =
            tandem_kernels_product(r->kernels, &product, (size_t)s->product_bytes, error);
        if (status != TANDEM_OK) return status;
        for (int64_t i = 0; i < images; i++) {
            add_windows(r, sums, windows + i * s->positions * s->width);
            r->kernels->f32_from_s32(p->gx + (first + i) * s->image, sums, (size_t)s->image,
                                     p->g.scale * p->w.scale);
        }
    }
    return TANDEM_OK;
}

tandem_status tandem_kernels_conv2d_s8(const tandem_kernels *kernels, tandem_conv2d_s8 *pass,
                                       tandem_error *error)
{
    if (!kernels || !pass)
        return tandem_error_set(error, TANDEM_USAGE, "convolution: %s is NULL",
                                kernels ? "the pass" : "kernels");
    tandem_status status = check_conv_pass(kernels, pass, error);
    tandem_layer_operand *const operand[] = {&pass->x, &pass->w, &pass->g};
    for (int i = 0; i < 3 && status == TANDEM_OK; i++)
        status = round_layer_operand(kernels, operand[i], pass->seed, pass->stream,
                                     i == 2 ? pass->g_bias : NULL, pass->out, error);
    if (status != TANDEM_OK) return status;
    conv_run run = {.kernels = kernels, .pass = pass, .layout = plan_conv_layout(kernels, pass)};
    run.windows = (int8_t *)pass->workspace + run.layout.product_bytes;
    run.other = run.windows + run.layout.window_bytes;
    if (pass->y) status = convolve_y(&run, error);
    if (status == TANDEM_OK && pass->gx)
        status = pass->stride == 1 ? convolve_gx(&run, error) : convolve_gx_strided(&run, error);
    if (status == TANDEM_OK && pass->gw) status = convolve_gw(&run, error);
    return status;
}
