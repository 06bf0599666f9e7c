/* conv2d: channels last; weight (kernel·kernel·c_in, c_out), hwio in oneDNN's terms.
 *
 * f32 and bf16 use oneDNN's convolution in its fastest layouts; operands in another layout are reordered in
 * the workspace. Weights and their gradients are blocked: the reorder takes microseconds, the convolution
 * milliseconds (measured on resnet20's layers: 2 to 5 times as fast as plain weights from AVX on; on SSE4.1
 * plain weights are as fast, and stay). Images stay channels last, because a blocked copy costs what it saves
 * (measured on resnet50's 1x1 weight gradients).
 *
 * 3x3 without stride uses Winograd's algorithm where there is AVX-512 (isa/winograd.c), in f32 and bf16: a
 * quarter of the multiplications in f32 is faster than all of them in bf16. Its rounding errors are a few
 * times those of a plain f32 sum, and within the bound for sums.
 *
 * Other weight gradients use tandem's own product over pixels where there is AVX-512 (isa/weight_gradient.c);
 * bf16 needs bf16 dot products.
 *
 * The int8 forward pass uses oneDNN where that is exact and fast (AVX-512 with VNNI), else im2col columns of
 * some images at a time, times the weight; its gradients are in conv2d_int8.c. */
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/kernel.h"
#include "backend/cpu/op/conv2d.h"
#include "backend/cpu/op/conv2d_int8.h"
#include "backend/cpu/product.h"
#include "backend/cpu/team.h"

/* Columns of as many images as fit the second-level cache. */
enum { COLUMN_BYTES = 256 << 10 };

/* With fewer 4x4 tiles, the transform of the weights costs more than it saves. */
enum { WINOGRAD_TILES = 16, CHANNELS = 32 };

enum { N_OPERAND = 3 }; /* two inputs and the result */

typedef struct cpu_conv_state {
    cpu_primitive convolution;
    /* of the two inputs and of the result; none where the convolution uses the layout */
    cpu_primitive reorder[N_OPERAND];
    uint64_t reorder_offset[N_OPERAND]; /* of a reordered operand, in the workspace */
    uint64_t result_offset;             /* of an f32 gradient that is narrowed to bf16 */
    int is_narrowed;
    int clear_scratchpad;   /* the scratchpad, before a weight gradient */
    cpu_product product;    /* of columns, where there is no convolution */
    int64_t images, groups; /* images whose columns are multiplied together, and the number of such groups */
    uint64_t columns_offset;
} cpu_conv_state;

static void cpu_conv2d_close(cpu_conv_state *conv)
{
    cpu_primitive_close(&conv->convolution);
    for (int k = 0; k < N_OPERAND; k++) cpu_primitive_close(&conv->reorder[k]);
}

static void cpu_conv2d_destroy(void *state)
{
    cpu_conv_state *conv = state;
    cpu_conv2d_close(conv);
    cpu_product_close(&conv->product);
    free(conv);
}

/* --- Floating point, and oneDNN's int8 ------------------------------------------------------------------ */

static tandem_status cpu_conv2d_run(const tandem_kernel *kernel, const tandem_kernel_call *call,
                                    tandem_error *error)
{
    const cpu_conv_state *state = kernel->state;
    const float scale = cpu_product_scale(call);
    void *const result =
        state->is_narrowed ? cpu_workspace_at(call->workspace, state->result_offset) : call->out[0];
    const void *data[] = {call->in[0], call->in[1], result, &scale};
    tandem_status status = TANDEM_OK;
    for (int k = 0; k < N_OPERAND; k++) {
        if (!state->reorder[k].primitive) continue;
        void *const buffer = cpu_workspace_at(call->workspace, state->reorder_offset[k]);
        if (k < 2 && status == TANDEM_OK)
            status = cpu_primitive_run(&state->reorder[k], kernel, (const void *const[]){data[k], buffer},
                                       call->workspace, error);
        data[k] = buffer;
    }
    if (state->clear_scratchpad) memset(call->workspace, 0, state->convolution.scratchpad_bytes);
    if (status == TANDEM_OK)
        status = cpu_primitive_run(&state->convolution, kernel, data, call->workspace, error);
    if (status == TANDEM_OK)
        status = cpu_primitive_run(&state->reorder[2], kernel, (const void *const[]){data[2], result},
                                   call->workspace, error);
    if (status == TANDEM_OK && state->is_narrowed)
        kernel->device->isa->bf16_from_f32(call->out[0], result,
                                           (size_t)tandem_shape_elements(cpu_input_shape(kernel, 0)));
    return status;
}

static dnnl_memory_desc_t conv_weight_layout(const tandem_kernel *kernel, tandem_dtype dtype,
                                             dnnl_format_tag_t tag)
{
    const tandem_op *op = kernel->op;
    const dnnl_dims_t dims = {tandem_shape_last(&op->shape), tandem_shape_last(cpu_input_shape(kernel, 0)),
                              op->kernel_h, op->kernel_w};
    dnnl_memory_desc_t layout;
    dnnl_memory_desc_init_by_tag(&layout, 4, dims, cpu_dnnl_type(dtype), tag);
    return layout;
}

dnnl_status_t cpu_conv2d_describe(dnnl_convolution_desc_t *operation, const tandem_op *op,
                                  tandem_task_kind kind, int trains, const dnnl_memory_desc_t *x,
                                  const dnnl_memory_desc_t *w, const dnnl_memory_desc_t *y)
{
    const dnnl_alg_kind_t algorithm = dnnl_convolution_direct;
    const dnnl_dims_t stride = {op->stride, op->stride}, pad = {op->pad, op->pad};
    if (kind == TANDEM_TASK_DGRAD)
        return dnnl_convolution_backward_data_desc_init(operation, algorithm, x, w, y, stride, pad, pad);
    if (kind == TANDEM_TASK_WGRAD)
        return dnnl_convolution_backward_weights_desc_init(operation, algorithm, x, w, NULL, y, stride, pad,
                                                           pad);
    return dnnl_convolution_forward_desc_init(operation,
                                              trains ? dnnl_forward_training : dnnl_forward_inference,
                                              algorithm, x, w, NULL, y, stride, pad, pad);
}

const int cpu_conv2d_argument[][3] = {
    [TANDEM_TASK_FORWARD] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST},
    [TANDEM_TASK_WGRAD] = {DNNL_ARG_SRC, DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_WEIGHTS},
    [TANDEM_TASK_DGRAD] = {DNNL_ARG_DIFF_DST, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_SRC},
};

/* On SSE4.1 because plain weights are as fast. On AVX2 because oneDNN's blocked weight gradient of a
 * strided 1x1 window writes outside its scratchpad with fewer channels than a vector's eight; with several
 * threads it does so on AVX-512, too, with fewer than sixteen (2.6.3; found by the conformance tests). */
static int uses_plain_weights(const tandem_kernel *kernel)
{
    const char *const isa = kernel->device->isa->isa;
    const tandem_op *op = kernel->op;
    if (strcmp(isa, "sse41") == 0) return 1;
    const int min_channels = kernel->device->n_core > 1 ? 16 : strncmp(isa, "avx2", 4) == 0 ? 8 : 0;
    return kernel->task.kind == TANDEM_TASK_WGRAD && op->kernel_h == 1 && op->stride > 1 &&
           tandem_shape_last(cpu_input_shape(kernel, 0)) < min_channels;
}

/* The kernel's operands: the pass's inputs, then its result. */
static void plain_layouts(dnnl_memory_desc_t plain[N_OPERAND], const tandem_kernel *kernel, tandem_dtype to)
{
    const tandem_task *task = &kernel->task;
    const int is_wgrad = task->kind == TANDEM_TASK_WGRAD;
    const tandem_shape *in = cpu_input_shape(kernel, 0), *out = &kernel->op->shape;
    const tandem_shape *first = task->kind == TANDEM_TASK_DGRAD ? out : in;
    const tandem_shape *last = task->kind == TANDEM_TASK_DGRAD ? in : out;
    plain[0] = cpu_image_descriptor(task->from, first);
    plain[1] =
        is_wgrad ? cpu_image_descriptor(task->from, out) : conv_weight_layout(kernel, task->from, dnnl_hwio);
    plain[2] = is_wgrad ? conv_weight_layout(kernel, to, dnnl_hwio) : cpu_image_descriptor(to, last);
}

static tandem_status cpu_conv2d_open(cpu_conv_state *state, const tandem_kernel *kernel, tandem_error *error)
{
    const tandem_task *task = &kernel->task;
    const tandem_task_kind kind = task->kind;
    const tandem_dtype to = state->is_narrowed ? TANDEM_F32 : task->to;
    const dnnl_format_tag_t tag = uses_plain_weights(kernel) ? dnnl_hwio : dnnl_format_tag_any;
    const tandem_shape *in = cpu_input_shape(kernel, 0), *out = &kernel->op->shape;
    const dnnl_memory_desc_t x = cpu_image_descriptor(kind == TANDEM_TASK_DGRAD ? to : task->from, in);
    const dnnl_memory_desc_t w = conv_weight_layout(kernel, kind == TANDEM_TASK_WGRAD ? to : task->from, tag);
    const dnnl_memory_desc_t y = cpu_image_descriptor(kind == TANDEM_TASK_FORWARD ? to : task->from, out);
    const dnnl_memory_desc_t hint_x = cpu_image_descriptor(task->from, in),
                             hint_y = cpu_image_descriptor(task->from, out);
    const dnnl_memory_desc_t hint_w = conv_weight_layout(kernel, task->from, tag);
    dnnl_convolution_desc_t operation, forward;
    if (cpu_conv2d_describe(&operation, kernel->op, kind, 1, &x, &w, &y) != dnnl_success ||
        cpu_conv2d_describe(&forward, kernel->op, TANDEM_TASK_FORWARD, 1, &hint_x, &hint_w, &hint_y) !=
            dnnl_success)
        return cpu_kernel_refuse(kernel, "oneDNN takes no convolution of these shapes", error);
    return cpu_primitive_make(&state->convolution, kernel, &operation,
                              kind == TANDEM_TASK_FORWARD ? NULL : &forward, 3, cpu_conv2d_argument[kind],
                              error);
}

/* Reorders between the operands' layouts and the convolution's. */
static tandem_status cpu_conv2d_open_reorders(cpu_conv_state *state, const tandem_kernel *kernel,
                                              tandem_dtype to, uint64_t *end, tandem_error *error)
{
    dnnl_memory_desc_t plain[N_OPERAND];
    const dnnl_memory_desc_t *wanted[N_OPERAND] = {NULL};
    uint64_t scratchpad_bytes = state->convolution.scratchpad_bytes;
    plain_layouts(plain, kernel, to);
    for (int k = 0; k < N_OPERAND; k++) {
        dnnl_memory_get_memory_desc(state->convolution.argument[k].memory, &wanted[k]);
        if (!wanted[k]) return cpu_kernel_no_memory(kernel, error);
        cpu_primitive *reorder = &state->reorder[k];
        const tandem_status status =
            k == 2 ? cpu_primitive_reorder(reorder, kernel, wanted[k], &plain[k], error)
                   : cpu_primitive_reorder(reorder, kernel, &plain[k], wanted[k], error);
        if (status != TANDEM_OK) return status;
        if (reorder->scratchpad_bytes > scratchpad_bytes) scratchpad_bytes = reorder->scratchpad_bytes;
    }
    cpu_workspace_reserve(end, scratchpad_bytes);
    for (int k = 0; k < N_OPERAND; k++)
        if (state->reorder[k].primitive)
            state->reorder_offset[k] = cpu_workspace_reserve(end, dnnl_memory_desc_get_size(wanted[k]));
    return TANDEM_OK;
}

static tandem_status cpu_conv2d_prepare_float(cpu_conv_state *state, tandem_kernel *kernel,
                                              tandem_error *error)
{
    const tandem_task *task = &kernel->task;
    state->is_narrowed =
        task->kind == TANDEM_TASK_DGRAD && task->from == TANDEM_F32 && task->to == TANDEM_BF16;
    /* If the image is narrower than the stride, oneDNN's bf16 weight gradient multiplies unwritten scratchpad
     * by zeros (2.6.3; found by the conformance tests). The scratchpad may hold NaN, so this clears it. */
    state->clear_scratchpad = task->kind == TANDEM_TASK_WGRAD && task->from == TANDEM_BF16 &&
                              cpu_input_shape(kernel, 0)->dim[2] < kernel->op->stride;
    tandem_status status = cpu_conv2d_open(state, kernel, error);
    uint64_t end = 0;
    if (status == TANDEM_OK)
        status =
            cpu_conv2d_open_reorders(state, kernel, state->is_narrowed ? TANDEM_F32 : task->to, &end, error);
    if (status != TANDEM_OK) return status;
    if (state->is_narrowed)
        state->result_offset = cpu_workspace_reserve(
            &end, (uint64_t)tandem_shape_elements(cpu_input_shape(kernel, 0)) * sizeof(float));
    kernel->workspace_bytes = end;
    kernel->run = cpu_conv2d_run;
    return TANDEM_OK;
}

/* --- Winograd's algorithm ------------------------------------------------------------------------------- */

/* In images smaller than a tile, sums are so short that their rounding errors would exceed the bound of a
 * plain sum. */
static int uses_winograd(const tandem_kernel *kernel)
{
    const tandem_op *op = kernel->op;
    const tandem_shape *in = cpu_input_shape(kernel, 0);
    return kernel->device->isa->winograd && kernel->task.from != TANDEM_S8 &&
           !(kernel->task.from == TANDEM_BF16 && kernel->device->isa->has_tiles) && op->kernel_h == 3 &&
           op->kernel_w == 3 && op->stride == 1 && op->pad == 1 && in->dim[1] >= 4 && in->dim[2] >= 4 &&
           tandem_shape_last(in) % CHANNELS == 0 && tandem_shape_last(&op->shape) % CHANNELS == 0 &&
           in->dim[0] * ((in->dim[1] + 3) / 4) * ((in->dim[2] + 3) / 4) >= WINOGRAD_TILES;
}

static tandem_winograd winograd_call(const tandem_kernel *kernel)
{
    const tandem_task *task = &kernel->task;
    const tandem_shape *in = cpu_input_shape(kernel, 0);
    const int64_t c_in = tandem_shape_last(in), c_out = tandem_shape_last(&kernel->op->shape);
    const int is_dgrad = task->kind == TANDEM_TASK_DGRAD;
    return (tandem_winograd){.n = in->dim[0],
                             .height = in->dim[1],
                             .width = in->dim[2],
                             .from = is_dgrad ? c_out : c_in,
                             .to = is_dgrad ? c_in : c_out,
                             .is_dgrad = is_dgrad,
                             .is_wgrad = task->kind == TANDEM_TASK_WGRAD,
                             .from_bf16 = task->from == TANDEM_BF16,
                             .to_bf16 = task->to == TANDEM_BF16};
}

static tandem_status cpu_conv2d_run_winograd(const tandem_kernel *kernel, const tandem_kernel_call *call,
                                             tandem_error *error)
{
    tandem_winograd convolution = winograd_call(kernel);
    convolution.x = call->in[0];
    convolution.w = call->in[1];
    convolution.y = call->out[0];
    convolution.workspace = call->workspace;
    kernel->device->isa->winograd(&convolution);
    return TANDEM_OK;
}

static void cpu_conv2d_prepare_winograd(tandem_kernel *kernel)
{
    const tandem_winograd convolution = winograd_call(kernel);
    kernel->workspace_bytes = kernel->device->isa->winograd_workspace(&convolution);
    kernel->run = cpu_conv2d_run_winograd;
}

/* --- int8 ----------------------------------------------------------------------------------------------- */

/* oneDNN's convolution. The scale is a one-element multiplication in its epilogue, because oneDNN takes no
 * scale that is known at run time only. TANDEM_OK without a convolution where none is both exact and fast. */
static tandem_status cpu_conv2d_open_int8(cpu_conv_state *state, const tandem_kernel *kernel, uint64_t *end,
                                          tandem_error *error)
{
    if (!kernel->device->isa->uses_onednn_int8) return TANDEM_OK;
    const dnnl_memory_desc_t x = cpu_image_descriptor(TANDEM_S8, cpu_input_shape(kernel, 0));
    const dnnl_memory_desc_t w = conv_weight_layout(kernel, TANDEM_S8, dnnl_format_tag_any);
    const dnnl_memory_desc_t y = cpu_image_descriptor(TANDEM_F32, &kernel->op->shape);
    dnnl_convolution_desc_t operation;
    if (cpu_conv2d_describe(&operation, kernel->op, TANDEM_TASK_FORWARD, 0, &x, &w, &y) != dnnl_success)
        return cpu_kernel_refuse(kernel, "oneDNN takes no convolution of these shapes", error);
    dnnl_memory_desc_t one;
    dnnl_memory_desc_init_by_tag(&one, 4, (dnnl_dims_t){1, 1, 1, 1}, dnnl_f32, dnnl_abcd);
    dnnl_primitive_attr_t attributes = NULL;
    dnnl_post_ops_t epilogue = NULL;
    dnnl_primitive_desc_t description = NULL;
    tandem_status status = TANDEM_OK;
    if (dnnl_primitive_attr_create(&attributes) != dnnl_success ||
        dnnl_post_ops_create(&epilogue) != dnnl_success ||
        dnnl_post_ops_append_binary(epilogue, dnnl_binary_mul, &one) != dnnl_success ||
        dnnl_primitive_attr_set_post_ops(attributes, epilogue) != dnnl_success)
        status = cpu_kernel_no_memory(kernel, error);
    if (status == TANDEM_OK)
        status = cpu_primitive_describe(&description, kernel, &operation, attributes, NULL, error);
    if (epilogue) dnnl_post_ops_destroy(epilogue);
    if (attributes) dnnl_primitive_attr_destroy(attributes);
    if (status == TANDEM_NO_KERNEL) return TANDEM_OK;
    if (status != TANDEM_OK) return status;
    if (cpu_primitive_is_reference(description)) {
        dnnl_primitive_desc_destroy(description);
        return TANDEM_OK;
    }
    const int argument[] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST,
                            DNNL_ARG_ATTR_MULTIPLE_POST_OP(0) | DNNL_ARG_SRC_1};
    status = cpu_primitive_open(&state->convolution, kernel, description, 4, argument, error);
    return status == TANDEM_OK ? cpu_conv2d_open_reorders(state, kernel, TANDEM_F32, end, error) : status;
}

typedef struct image_columns {
    const tandem_kernel *kernel;
    const int8_t *x;
    int8_t *columns;
    int64_t image, of_image; /* elements of an image, and of its columns */
} image_columns;

static void make_image_columns(void *context, int64_t begin, int64_t end)
{
    const image_columns *of = context;
    const tandem_op *op = of->kernel->op;
    const int64_t *const in = cpu_input_shape(of->kernel, 0)->dim;
    for (int64_t i = begin; i < end; i++)
        of->kernel->device->isa->im2col_s8(of->columns + i * of->of_image, of->x + i * of->image, in[1],
                                           in[2], in[3], op->kernel_h, op->stride, op->pad);
}

static tandem_status cpu_conv2d_run_columns(const tandem_kernel *kernel, const tandem_kernel_call *call,
                                            tandem_error *error)
{
    const cpu_conv_state *state = kernel->state;
    const tandem_shape *in = cpu_input_shape(kernel, 0);
    const cpu_product_spec *s = &state->product.spec;
    const int64_t image = in->dim[1] * in->dim[2] * in->dim[3];
    const float scale = cpu_product_scale(call);
    int8_t *const columns = cpu_workspace_at(call->workspace, state->columns_offset);
    image_columns of = {kernel, call->in[0], columns, image, s->m / state->images * s->k};
    float *y = call->out[0];
    tandem_status status = TANDEM_OK;
    for (int64_t group = 0; group < state->groups && status == TANDEM_OK; group++, y += s->m * s->n) {
        cpu_for(state->images, 1, make_image_columns, &of);
        of.x += state->images * image;
        status =
            cpu_product_run(&state->product, kernel, columns, call->in[1], y, scale, call->workspace, error);
    }
    return status;
}

/* A 1×1 window without stride: the images are their own columns. */
static tandem_status cpu_conv2d_run_pointwise(const tandem_kernel *kernel, const tandem_kernel_call *call,
                                              tandem_error *error)
{
    const cpu_conv_state *state = kernel->state;
    return cpu_product_run(&state->product, kernel, call->in[0], call->in[1], call->out[0],
                           cpu_product_scale(call), call->workspace, error);
}

static int64_t images_per_group(int64_t batch, int64_t bytes_an_image)
{
    int64_t images = 1;
    for (int64_t n = 2; n <= batch && n * bytes_an_image <= COLUMN_BYTES; n++)
        if (batch % n == 0) images = n;
    return images;
}

static tandem_status cpu_conv2d_prepare_columns(cpu_conv_state *state, tandem_kernel *kernel,
                                                tandem_error *error)
{
    const tandem_op *op = kernel->op;
    const tandem_shape *in = cpu_input_shape(kernel, 0), *out = &op->shape;
    const int64_t positions = out->dim[1] * out->dim[2],
                  k = (int64_t)op->kernel_h * op->kernel_w * in->dim[3];
    const int pointwise = op->kernel_h == 1 && op->stride == 1 && op->pad == 0;
    state->images = pointwise ? in->dim[0] : images_per_group(in->dim[0], positions * k);
    state->groups = in->dim[0] / state->images;
    const cpu_product_spec spec = {.batch = 1,
                                   .m = state->images * positions,
                                   .n = out->dim[3],
                                   .k = k,
                                   .from = TANDEM_S8,
                                   .to = TANDEM_F32};
    const tandem_status status = cpu_product_open(&state->product, kernel, &spec, error);
    if (status != TANDEM_OK) return status;
    uint64_t end = 0;
    cpu_workspace_reserve(&end, state->product.workspace_bytes);
    if (!pointwise) state->columns_offset = cpu_workspace_reserve(&end, (uint64_t)(spec.m * spec.k));
    kernel->workspace_bytes = end;
    kernel->run = pointwise ? cpu_conv2d_run_pointwise : cpu_conv2d_run_columns;
    return TANDEM_OK;
}

static tandem_status cpu_conv2d_prepare_int8(cpu_conv_state *state, tandem_kernel *kernel,
                                             tandem_error *error)
{
    if (kernel->task.to != TANDEM_F32)
        return cpu_kernel_refuse(kernel, "int8 convolutions have f32 results only", error);
    uint64_t end = 0;
    const tandem_status status = cpu_conv2d_open_int8(state, kernel, &end, error);
    if (status != TANDEM_OK) return status;
    if (!state->convolution.primitive) return cpu_conv2d_prepare_columns(state, kernel, error);
    kernel->workspace_bytes = end;
    kernel->run = cpu_conv2d_run;
    return TANDEM_OK;
}

/* --- Weight gradients that Winograd's algorithm does not cover ------------------------------------------ */

/* With cold caches, on resnet50's 1x1 in f32: 7.5 to 7.9 ms; oneDNN's product takes 7.8 to 10.0. */
static int uses_weight_gradient(const tandem_kernel *kernel)
{
    const tandem_isa_kernels *isa = kernel->device->isa;
    const tandem_dtype from = kernel->task.from;
    return kernel->task.kind == TANDEM_TASK_WGRAD && kernel->task.to == TANDEM_F32 && isa->weight_gradient &&
           (from == TANDEM_F32 || (from == TANDEM_BF16 && isa->multiplies_bf16)) &&
           tandem_shape_last(cpu_input_shape(kernel, 0)) % CHANNELS == 0 &&
           tandem_shape_last(&kernel->op->shape) % CHANNELS == 0;
}

static tandem_weight_gradient weight_gradient_call(const tandem_kernel *kernel)
{
    const tandem_op *op = kernel->op;
    const tandem_shape *in = cpu_input_shape(kernel, 0), *out = &op->shape;
    return (tandem_weight_gradient){.n = in->dim[0],
                                    .height = in->dim[1],
                                    .width = in->dim[2],
                                    .out_height = out->dim[1],
                                    .out_width = out->dim[2],
                                    .from = tandem_shape_last(in),
                                    .to = tandem_shape_last(out),
                                    .kernel_h = op->kernel_h,
                                    .kernel_w = op->kernel_w,
                                    .stride = op->stride,
                                    .pad = op->pad,
                                    .is_bf16 = kernel->task.from == TANDEM_BF16};
}

static tandem_status cpu_conv2d_run_wgrad(const tandem_kernel *kernel, const tandem_kernel_call *call,
                                          tandem_error *error)
{
    tandem_weight_gradient convolution = weight_gradient_call(kernel);
    convolution.x = call->in[0];
    convolution.gradient = call->in[1];
    convolution.y = call->out[0];
    convolution.workspace = call->workspace;
    kernel->device->isa->weight_gradient(&convolution);
    return TANDEM_OK;
}

static void cpu_conv2d_prepare_wgrad(tandem_kernel *kernel)
{
    const tandem_weight_gradient convolution = weight_gradient_call(kernel);
    kernel->workspace_bytes = kernel->device->isa->weight_gradient_workspace(&convolution);
    kernel->run = cpu_conv2d_run_wgrad;
}

/* An accumulated gradient of a 1x1 window without stride: g·Wᵀ. oneDNN's backward convolutions cannot
 * accumulate; on resnet50 its product takes the same time and saves the sum. */
static tandem_status cpu_conv2d_prepare_sum(tandem_kernel *kernel, tandem_error *error)
{
    const tandem_shape *in = cpu_input_shape(kernel, 0);
    const int64_t c_in = tandem_shape_last(in);
    const cpu_product_spec spec = {.batch = 1,
                                   .m = tandem_shape_elements(in) / c_in,
                                   .n = c_in,
                                   .k = tandem_shape_last(&kernel->op->shape),
                                   .transpose_b = 1,
                                   .from = kernel->task.from,
                                   .to = kernel->task.to,
                                   .accumulate = 1};
    return cpu_product_prepare(kernel, &spec, error);
}

static tandem_status cpu_conv2d_prepare(tandem_kernel *kernel, tandem_error *error)
{
    if (kernel->task.from == TANDEM_S8 && kernel->task.kind != TANDEM_TASK_FORWARD)
        return cpu_conv2d_int8_gradient(kernel, error);
    if (kernel->task.accumulate) return cpu_conv2d_prepare_sum(kernel, error);
    if (uses_winograd(kernel)) {
        cpu_conv2d_prepare_winograd(kernel);
        return TANDEM_OK;
    }
    if (uses_weight_gradient(kernel)) {
        cpu_conv2d_prepare_wgrad(kernel);
        return TANDEM_OK;
    }
    cpu_conv_state *state = calloc(1, sizeof *state);
    if (!state) return cpu_kernel_no_memory(kernel, error);
    const tandem_status status = kernel->task.from == TANDEM_S8
                                     ? cpu_conv2d_prepare_int8(state, kernel, error)
                                     : cpu_conv2d_prepare_float(state, kernel, error);
    if (status != TANDEM_OK) {
        cpu_conv2d_destroy(state);
        return status;
    }
    kernel->state = state;
    kernel->destroy = cpu_conv2d_destroy;
    return TANDEM_OK;
}

const cpu_operator cpu_conv2d = {.prepare = cpu_conv2d_prepare};
