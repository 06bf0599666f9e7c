/* lower_product.c: Conv, Gemm and MatMul. */
#include "graph/onnx/onnx_types.h"

#include <inttypes.h>
#include <string.h>

/* Replaces the atoms of the last dimension, which are the last in memory, by one of `size`. */
static void replace_last(onnx_view *view, int64_t size)
{
    const int last = view->n_dim - 1;
    view->n_atom -= view->n_of[last];
    view->n_of[last] = size != 1;
    if (size == 1) return;
    view->order[view->n_atom] = view->n_atom;
    view->size[view->n_atom++] = size;
}

/* --- Linear layers -------------------------------------------------------------------------------------- */

/* The record of the embedding whose table the weight is; −1: none. */
static int embedding_of(const onnx_import *import, int weight)
{
    for (int i = 0; i < import->n_record; i++)
        if (import->record[i].kind == TANDEM_OP_EMBEDDING && import->record[i].parameter[0].weight == weight)
            return i;
    return -1;
}

/* x·w over x's last dimension; w's dimension k is summed over. */
static bool lower_linear(onnx_import *import, onnx_value *x, onnx_value *w, int k)
{
    const int last = x->view.n_dim - 1;
    int table = embedding_of(import, w->weight), turned = -1;
    const int64_t depth = onnx_view_dim(&x->view, last), n = onnx_view_dim(&w->view, 1 - k);
    char name[48];
    if (depth != onnx_view_dim(&w->view, k))
        return onnx_fail_node(import, "%" PRId64 " columns by %" PRId64 " rows; allowed are as many", depth,
                              onnx_view_dim(&w->view, k));
    if (table < 0 && k == 0 && !onnx_find_turned_table(import, w, &turned)) return false;
    const bool is_tied = turned >= 0 || (table >= 0 && onnx_view_is_plain(&w->view) == (k == 1));
    table = turned >= 0 ? turned : table;
    if (onnx_weight_is_taken(import, w->weight) && !(is_tied && import->weight[w->weight].n_use == 1))
        return onnx_refuse(
            import,
            "weight '%.80s' is read by another node, too; allowed is one reader, or an embedding "
            "and a linear layer",
            import->weight[w->weight].name);
    if (!onnx_view_match(&x->view, last, &w->view, k)) return onnx_refuse(import, "this layout of its input");
    const int record = onnx_make_last(import, x, 1, &last);
    if (record < 0) return onnx_end_node(import, record);
    onnx_parameter parameter = {w->weight, w->view};
    const int used = onnx_follow_memory(&x->view, last, &w->view, k, parameter.view.order);
    memcpy(parameter.view.order + used, w->view.order + onnx_view_start(&w->view, 1 - k),
           (size_t)w->view.n_of[1 - k] * sizeof(int));
    const int64_t rows = onnx_view_elements(&x->view) / depth;
    const int flat = onnx_reshape_record(import, record, 2, (const int64_t[]){rows, depth});
    import->weight[w->weight].n_use++;
    if (turned >= 0) import->weight[import->record[turned].parameter[0].weight].n_use++;
    onnx_module_name(import, is_tied ? "" : import->weight[w->weight].name, name);
    onnx_record *const r = flat < 0 ? NULL : onnx_add_record(import, TANDEM_OP_LINEAR, name, flat, -1);
    if (!r) return false;
    r->shape.dim[1] = r->n = n;
    if (is_tied)
        r->transpose_b = 1, r->start = table;
    else
        r->parameter[0] = parameter;
    onnx_view view = x->view;
    replace_last(&view, n);
    return onnx_set_tensor(import, x, import->n_record - 1, &view);
}

bool onnx_lower_gemm(onnx_import *import)
{
    onnx_value x = *onnx_input(import, 0), w = *onnx_input(import, 1), bias = *onnx_input(import, 2);
    const bool is_transposed = onnx_int(import, "transB", 0) != 0;
    if (w.kind == ONNX_CONSTANT && w.weight >= 0) w.kind = ONNX_WEIGHT;
    if (x.kind != ONNX_TENSOR || x.is_index || w.kind != ONNX_WEIGHT || w.rows)
        return onnx_refuse(import, "it multiplies others than a tensor and a weight");
    if (x.view.n_dim != 2 || w.view.n_dim != 2)
        return onnx_fail_node(import, "%d and %d dimensions; allowed are 2 and 2", x.view.n_dim,
                              w.view.n_dim);
    if (onnx_int(import, "transA", 0) || onnx_float(import, "alpha", 1) != 1.0f ||
        onnx_float(import, "beta", 1) != 1.0f)
        return onnx_refuse(import, "transA, alpha or beta are set");
    if (!lower_linear(import, &x, &w, is_transposed)) return false;
    if (onnx_output(import, 0)->kind == ONNX_REFUSED) return true;
    if (bias.kind != ONNX_ABSENT && !onnx_add_bias(import, &x, &bias)) return false;
    if (onnx_output(import, 0)->kind != ONNX_REFUSED) *onnx_output(import, 0) = x;
    return true;
}

/* --- Products of two tensors ---------------------------------------------------------------------------- */

/* Takes a constant factor out of a value: a scale may come before a product as well as after it. */
static bool take_factor(onnx_import *import, onnx_value *v, double *factor)
{
    double one, shift;
    const onnx_expression *const e = &import->expression[v->expression];
    if (e->record != -1 || !onnx_is_linear(import, v->expression, &one, &shift) || shift != 0 || one == 1)
        return true;
    v->expression = onnx_expression_of(import, e->base);
    *factor *= one;
    return v->expression >= 0;
}

/* The place in b's `order` of each of a's leading atoms. */
static int put_leading(const onnx_view *a, const onnx_view *b, int n_lead, int *wanted_a, int *wanted_b)
{
    int n = 0, of[ONNX_MAX_ATOM];
    for (int i = 0; i < ONNX_MAX_ATOM; i++) of[i] = -1;
    for (int d = 0, k = 0; d < n_lead; d++)
        for (int i = 0; i < a->n_of[d]; i++, k++) of[a->order[k]] = b->order[k];
    for (int pass = 0; pass < 2; pass++) /* samples first */
        for (int p = 0; p < a->n_atom; p++)
            if (of[p] >= 0 && (p == a->batch) == (pass == 0)) wanted_a[n] = p, wanted_b[n++] = of[p];
    return n;
}

static bool match_operands(onnx_import *import, onnx_value *a, onnx_value *b)
{
    const int n = a->view.n_dim;
    for (int d = 0; d < n - 2; d++)
        if (onnx_view_dim(&a->view, d) != onnx_view_dim(&b->view, d) ||
            !onnx_view_match(&a->view, d, &b->view, d))
            return onnx_refuse(import,
                               "leading dimensions of %" PRId64 " and %" PRId64 "; allowed are equal ones",
                               onnx_view_dim(&a->view, d), onnx_view_dim(&b->view, d));
    if (onnx_view_dim(&a->view, n - 1) != onnx_view_dim(&b->view, n - 2))
        return onnx_fail_node(import, "%" PRId64 " columns by %" PRId64 " rows; allowed are as many",
                              onnx_view_dim(&a->view, n - 1), onnx_view_dim(&b->view, n - 2));
    return onnx_view_match(&a->view, n - 1, &b->view, n - 2) ||
           onnx_refuse(import, "these layouts of its inputs");
}

static bool multiply_tensors(onnx_import *import, onnx_value *a, onnx_value *b)
{
    int wanted_a[ONNX_MAX_ATOM], wanted_b[ONNX_MAX_ATOM];
    const int n = a->view.n_dim;
    const int n_lead = put_leading(&a->view, &b->view, n - 2, wanted_a, wanted_b);
    const bool has_samples = a->view.batch < 0 || (n_lead > 0 && wanted_a[0] == a->view.batch);
    if (!has_samples && import->batch != 1) return onnx_refuse(import, "it mixes samples");
    (void)onnx_put_axis(&a->view, n - 1, wanted_a, onnx_put_axis(&a->view, n - 2, wanted_a, n_lead));
    const int k_start = onnx_view_start(&b->view, n - 2), c_start = onnx_view_start(&b->view, n - 1);
    const bool transpose =
        b->view.n_of[n - 2] && b->view.n_of[n - 1] && b->view.order[c_start] < b->view.order[k_start];
    const int first = transpose ? n - 1 : n - 2, then = transpose ? n - 2 : n - 1;
    (void)onnx_put_axis(&b->view, then, wanted_b, onnx_put_axis(&b->view, first, wanted_b, n_lead));
    const int64_t m = onnx_view_dim(&a->view, n - 2), k = onnx_view_dim(&a->view, n - 1),
                  c = onnx_view_dim(&b->view, n - 1), lead = onnx_view_elements(&a->view) / (m * k);
    int left = onnx_arrange(import, a, wanted_a), right = left < 0 ? left : onnx_arrange(import, b, wanted_b);
    if (right < 0) return onnx_end_node(import, right);
    left = onnx_reshape_record(import, left, 3, (const int64_t[]){lead, m, k});
    right = onnx_reshape_record(import, right, 3,
                                transpose ? (const int64_t[]){lead, c, k} : (const int64_t[]){lead, k, c});
    onnx_record *const r =
        left < 0 || right < 0 ? NULL : onnx_add_record(import, TANDEM_OP_MATMUL, NULL, left, right);
    if (!r) return false;
    r->transpose_b = transpose;
    r->shape.dim[2] = c;
    onnx_view view = a->view;
    replace_last(&view, c);
    return onnx_set_tensor(import, onnx_output(import, 0), import->n_record - 1, &view);
}

bool onnx_lower_matmul(onnx_import *import)
{
    onnx_value a = *onnx_input(import, 0), b = *onnx_input(import, 1);
    double factor = 1;
    onnx_value *const out = onnx_output(import, 0);
    if (b.kind == ONNX_CONSTANT && b.weight >= 0) b.kind = ONNX_WEIGHT;
    if (a.kind != ONNX_TENSOR || a.is_index)
        return onnx_refuse(import, "its first input is no tensor of numbers");
    if (b.kind == ONNX_WEIGHT && b.view.n_dim == 2 && !b.rows && a.view.n_dim > 0) {
        if (!lower_linear(import, &a, &b, 0)) return false;
        if (out->kind != ONNX_REFUSED) *out = a;
        return true;
    }
    if (b.kind != ONNX_TENSOR || b.is_index || a.view.n_dim != b.view.n_dim || a.view.n_dim < 2)
        return onnx_refuse(import, "%d by %d dimensions; allowed are as many, from 2, or a matrix of weights",
                           a.view.n_dim, b.view.n_dim);
    if (!take_factor(import, &a, &factor) || !take_factor(import, &b, &factor)) return false;
    if (!match_operands(import, &a, &b)) return false;
    if (out->kind == ONNX_REFUSED) return true;
    if (!multiply_tensors(import, &a, &b)) return false;
    if (out->kind == ONNX_REFUSED || factor == 1) return true;
    out->expression = onnx_express(import, ONNX_F_MUL, out->expression, -1, factor, 0, 0);
    return out->expression >= 0;
}

/* --- Convolutions --------------------------------------------------------------------------------------- */

static bool check_auto_pad(onnx_import *import)
{
    static const char *const allowed[] = {"NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"};
    const Onnx__Attribute *const given = onnx_attribute(import, "auto_pad");
    bool is_known = !given;
    for (size_t i = 0; i < sizeof allowed / sizeof *allowed; i++)
        is_known |= onnx_has_text(import, "auto_pad", allowed[i]);
    if (is_known) return true;
    return onnx_fail_node(import, "auto_pad '%.*s'; allowed are NOTSET, SAME_UPPER, SAME_LOWER and VALID",
                          (int)(given->s.len < 40 ? given->s.len : 40),
                          given->s.data ? (const char *)given->s.data : "");
}

bool onnx_read_window(onnx_import *import, int64_t h, int64_t w, onnx_window *window)
{
    size_t n_kernel, n_stride, n_pad, n_dilation;
    const int64_t *const kernel = onnx_ints(import, "kernel_shape", &n_kernel),
                         *const stride = onnx_ints(import, "strides", &n_stride),
                         *const pad = onnx_ints(import, "pads", &n_pad),
                         *const dilation = onnx_ints(import, "dilations", &n_dilation);
    const int64_t size[2] = {h, w};
    const bool is_valid = onnx_has_text(import, "auto_pad", "VALID");
    if (!check_auto_pad(import)) return false;
    if ((kernel && n_kernel != 2) || (stride && n_stride != 2) || (pad && n_pad != 4) ||
        (dilation && n_dilation != 2))
        return onnx_fail_node(import, "its attributes are not those of two dimensions");
    for (int d = 0; d < 2; d++) {
        if (kernel) window->kernel[d] = kernel[d];
        window->stride[d] = stride ? stride[d] : 1;
        window->dilation[d] = dilation ? dilation[d] : 1;
        window->before[d] = pad && !is_valid ? pad[d] : 0;
        window->after[d] = pad && !is_valid ? pad[d + 2] : 0;
        const int64_t limit = 1 << 20;
        if (window->kernel[d] < 1 || window->kernel[d] > limit || window->stride[d] < 1 ||
            window->stride[d] > limit || window->dilation[d] < 1 || window->dilation[d] > limit ||
            window->before[d] < 0 || window->after[d] < 0 || window->before[d] > limit ||
            window->after[d] > limit)
            return onnx_fail_node(
                import, "kernel, stride, dilation or padding out of range; allowed are 1 (padding 0) "
                        "to 2^20");
        const int64_t reach = (window->kernel[d] - 1) * window->dilation[d] + 1;
        const bool upper = onnx_has_text(import, "auto_pad", "SAME_UPPER"),
                   lower = onnx_has_text(import, "auto_pad", "SAME_LOWER");
        if (upper || lower) {
            const int64_t steps = (size[d] + window->stride[d] - 1) / window->stride[d];
            int64_t all = (steps - 1) * window->stride[d] + reach - size[d];
            all = all < 0 ? 0 : all;
            window->before[d] = lower ? all - all / 2 : all / 2;
            window->after[d] = all - window->before[d];
        }
        const int64_t room = size[d] + window->before[d] + window->after[d] - reach;
        if (room < 0)
            return onnx_fail_node(import,
                                  "a window of %" PRId64 " on %" PRId64
                                  " padded elements; allowed are windows that fit",
                                  reach, room + reach);
        window->n[d] =
            (onnx_int(import, "ceil_mode", 0) ? room + window->stride[d] - 1 : room) / window->stride[d] + 1;
        /* a window that begins past the padded end is left out */
        if ((window->n[d] - 1) * window->stride[d] >= size[d] + window->before[d]) window->n[d]--;
    }
    return true;
}

bool onnx_window_is_simple(const onnx_window *w)
{
    return w->stride[0] == w->stride[1] && w->dilation[0] == 1 && w->dilation[1] == 1 &&
           w->before[0] == w->before[1] && w->before[0] == w->after[0] && w->before[1] == w->after[1];
}

bool onnx_lower_conv(onnx_import *import)
{
    onnx_value x = *onnx_input(import, 0), w = *onnx_input(import, 1), bias = *onnx_input(import, 2);
    onnx_window window = {.kernel = {0}};
    char name[48];
    const int64_t group = onnx_int(import, "group", 1);
    if (x.kind != ONNX_TENSOR || x.is_index) return onnx_refuse(import, "its input is no tensor of numbers");
    if (!onnx_as_weight(import, &w) || w.rows)
        return onnx_refuse(import, "its weight is no initializer that it alone reads");
    if (x.view.n_dim != w.view.n_dim || x.view.n_dim < 3)
        return onnx_fail_node(import, "%d dimensions, and %d of its weight; allowed are as many",
                              x.view.n_dim, w.view.n_dim);
    if (x.view.n_dim != 4) return onnx_refuse(import, "%d dimensions; allowed are 4", x.view.n_dim);
    const int64_t c = onnx_view_dim(&x.view, 1), out = onnx_view_dim(&w.view, 0);
    window.kernel[0] = onnx_view_dim(&w.view, 2), window.kernel[1] = onnx_view_dim(&w.view, 3);
    if (!onnx_read_window(import, onnx_view_dim(&x.view, 2), onnx_view_dim(&x.view, 3), &window))
        return false;
    if (window.kernel[0] != onnx_view_dim(&w.view, 2) || window.kernel[1] != onnx_view_dim(&w.view, 3) ||
        group < 1 || c % group != 0 || out % group != 0 || onnx_view_dim(&w.view, 1) != c / group)
        return onnx_fail_node(import,
                              "%" PRId64 " channels in %" PRId64 " groups, and a weight for %" PRId64
                              "; allowed are equal ones, and a kernel_shape that is the weight's",
                              c, group, onnx_view_dim(&w.view, 1));
    const bool is_plain = group == 1 && onnx_window_is_simple(&window) &&
                          window.kernel[0] == window.kernel[1] && window.before[0] <= window.kernel[0] - 1;
    const int64_t end = window.after[0] - window.before[0];
    if (window.stride[0] != window.stride[1] || window.dilation[0] != window.dilation[1] ||
        window.before[0] != window.before[1] || window.after[0] != window.after[1] || end < 0)
        return onnx_refuse(import, "different strides, paddings or dilations in height and width");
    const int record = onnx_as_image(import, &x);
    if (record < 0) return onnx_end_node(import, record);
    onnx_view_transpose(&w.view, (const int[]){2, 3, 1, 0});
    onnx_take_weight(import, w.weight, name);
    onnx_record *const r =
        onnx_add_record(import, is_plain ? TANDEM_OP_CONV2D : TANDEM_OP_GROUPED_CONV2D, name, record, -1);
    if (!r) return false;
    r->parameter[0] = (onnx_parameter){w.weight, w.view};
    r->kernel_h = (int)window.kernel[0], r->kernel_w = (int)window.kernel[1];
    r->stride = (int)window.stride[0], r->pad = (int)window.before[0], r->pad_end = (int)end;
    r->groups = (int)group, r->dilation = (int)window.dilation[0];
    r->n = out;
    r->shape = (tandem_shape){4, {r->shape.dim[0], window.n[0], window.n[1], out}};
    const onnx_view view = onnx_image_view(&x.view, window.n[0], window.n[1], out);
    if (!onnx_set_tensor(import, &x, import->n_record - 1, &view)) return false;
    if (bias.kind != ONNX_ABSENT && !onnx_add_channel_bias(import, &x, &bias)) return false;
    if (onnx_output(import, 0)->kind != ONNX_REFUSED) *onnx_output(import, 0) = x;
    return true;
}
