/* library.c: products and convolutions by oneDNN alone, to compare them with tandem's kernels. */
#include "backend/cpu/library.h"

#include "backend/cpu/dnnl_primitive.h"
#include "backend/cpu/kernel.h"
#include "backend/cpu/op/conv2d.h"

static dnnl_memory_desc_t any_layout(tandem_dtype dtype, int n_dim, const dnnl_dims_t dims)
{
    dnnl_memory_desc_t layout;
    dnnl_memory_desc_init_by_tag(&layout, n_dim, dims, cpu_dnnl_type(dtype), dnnl_format_tag_any);
    return layout;
}

static dnnl_memory_desc_t any_layout_image(tandem_dtype dtype, const tandem_shape *shape)
{
    const int64_t *dim = shape->dim; /* n, h, w, c */
    return any_layout(dtype, 4, (dnnl_dims_t){dim[0], dim[3], dim[1], dim[2]});
}

static dnnl_memory_desc_t any_layout_matrices(tandem_dtype dtype, int64_t batch, int64_t rows,
                                              int64_t columns)
{
    return batch == 1 ? any_layout(dtype, 2, (dnnl_dims_t){rows, columns})
                      : any_layout(dtype, 3, (dnnl_dims_t){batch, rows, columns});
}

static tandem_status make_library_convolution(cpu_primitive *primitive, const tandem_kernel *kernel,
                                              tandem_dtype to, tandem_error *error)
{
    const tandem_op *op = kernel->op;
    const tandem_task_kind kind = kernel->task.kind;
    const tandem_dtype from = kernel->task.from;
    const tandem_shape *in = cpu_input_shape(kernel, 0), *out = &op->shape;
    const dnnl_dims_t window = {tandem_shape_last(out), tandem_shape_last(in), op->kernel_h, op->kernel_w};
    const dnnl_memory_desc_t x = any_layout_image(kind == TANDEM_TASK_DGRAD ? to : from, in);
    const dnnl_memory_desc_t w = any_layout(kind == TANDEM_TASK_WGRAD ? to : from, 4, window);
    const dnnl_memory_desc_t y = any_layout_image(kind == TANDEM_TASK_FORWARD ? to : from, out);
    const dnnl_memory_desc_t hint_x = any_layout_image(from, in), hint_w = any_layout(from, 4, window),
                             hint_y = any_layout_image(from, out);
    dnnl_convolution_desc_t operation, forward;
    if (cpu_conv2d_describe(&operation, op, kind, 1, &x, &w, &y) != dnnl_success ||
        cpu_conv2d_describe(&forward, op, TANDEM_TASK_FORWARD, 1, &hint_x, &hint_w, &hint_y) != dnnl_success)
        return cpu_kernel_refuse(kernel, "oneDNN takes no convolution of these shapes", error);
    return cpu_primitive_make(primitive, kernel, &operation, kind == TANDEM_TASK_FORWARD ? NULL : &forward, 3,
                              cpu_conv2d_argument[kind], error);
}

static tandem_status make_library_product(cpu_primitive *primitive, const tandem_kernel *kernel,
                                          tandem_dtype to, tandem_error *error)
{
    const tandem_shape *in = cpu_input_shape(kernel, 0);
    const int64_t columns = tandem_shape_last(in), rows = tandem_shape_elements(in) / columns;
    int64_t m = kernel->op->kind == TANDEM_OP_MATMUL ? in->dim[in->n_dim - 2] : rows;
    int64_t n = tandem_shape_last(&kernel->op->shape), k = columns;
    const int64_t batch = rows / m;
    if (kernel->task.kind == TANDEM_TASK_DGRAD) /* g (m, n) times (n, k) */
        k = n, n = columns;
    else if (kernel->task.kind == TANDEM_TASK_WGRAD) /* (k, m) times g (m, n) */
        k = m, m = columns;
    const tandem_dtype from = kernel->task.from;
    const dnnl_memory_desc_t a = any_layout_matrices(from, batch, m, k),
                             b = any_layout_matrices(from, batch, k, n),
                             c = any_layout_matrices(to, batch, m, n);
    dnnl_matmul_desc_t operation;
    if (dnnl_matmul_desc_init(&operation, &a, &b, NULL, &c) != dnnl_success)
        return cpu_kernel_refuse(kernel, "oneDNN takes no product of these shapes", error);
    const int argument[] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST};
    return cpu_primitive_make(primitive, kernel, &operation, NULL, 3, argument, error);
}

tandem_status cpu_library_prepare(tandem_kernel *kernel, uint64_t bytes[3], tandem_error *error)
{
    const tandem_task *task = &kernel->task;
    if (!cpu_is_float(task->from) || kernel->attention.heads > 0)
        return cpu_kernel_refuse(kernel, "only single products of floats are compared with oneDNN", error);
    /* oneDNN does not narrow the result */
    const tandem_dtype to = task->from == TANDEM_F32 ? TANDEM_F32 : task->to;
    cpu_primitive primitive = {0};
    const tandem_status status = kernel->op->kind == TANDEM_OP_CONV2D
                                     ? make_library_convolution(&primitive, kernel, to, error)
                                     : make_library_product(&primitive, kernel, to, error);
    if (status != TANDEM_OK) return status;
    for (int k = 0; k < 3; k++) {
        const dnnl_memory_desc_t *layout = NULL;
        dnnl_memory_get_memory_desc(primitive.argument[k].memory, &layout);
        bytes[k] = layout ? dnnl_memory_desc_get_size(layout) : 0;
    }
    return cpu_primitive_keep(kernel, &primitive, 2, error);
}
