/* launches.c: how many kernels, products and memsets the backend for cards puts on a stream for a task: a
 * count from shapes and dtypes, so that a step can be counted where there is no card.
 * tests/cuda/test_cuda_operators.c holds it to what the backend does. */
#include "step/program/dtypes.h"

/* --- Casts ---------------------------------------------------------------------------------------------- */

enum { LAUNCHES_FOUND = 3, LAUNCHES_KNOWN = 2, LAUNCHES_DELAYED = 1 };

/* To a byte: a memset, the amax, the codes; where the range is known, a word instead of both; delayed, the
 * codes alone, whose last block updates the history. The transposed copy is written with the codes. */
static int cast_launches(const tandem_step *step, const tandem_task *task)
{
    if (tandem_dtype_bytes(task->to) > 1) return 1;
    switch (step_range_source(step, task, task->to)) {
    case TANDEM_RANGE_KNOWN: return LAUNCHES_KNOWN;
    case TANDEM_RANGE_DELAYED: return LAUNCHES_DELAYED;
    default: return LAUNCHES_FOUND;
    }
}

/* --- Products ------------------------------------------------------------------------------------------- */

/* A (m, k) times B (k, n), as they lie or transposed. */
typedef struct launched_product {
    int64_t m, k, n;
    int transpose_a, transpose_b;
    int stays;            /* the sums are left for a kernel of the caller */
    int64_t a_row, c_row; /* elements from one row to the next, where there are gaps; else 0 */
} launched_product;

/* Of operands of one byte, A must lie by rows, B by columns, sides in multiples of 16, and 32 rows of s8. */
static int product_launches(const tandem_task *task, const launched_product *p)
{
    const tandem_dtype from = task->from;
    if (tandem_dtype_bytes(from) > 1) /* narrow from wide: written wide first */
        return 1 + (!p->stays && task->to != from && task->to != TANDEM_F32);
    /* gaps are whole sixteens: what lies there is multiplied, too, and B padded with zeros there */
    const int gaps_m = p->a_row && p->transpose_a, gaps_k = p->a_row && !p->transpose_a,
              gaps_n = p->c_row > 0;
    const int pads_m = gaps_m || p->m % (from == TANDEM_S8 ? 32 : 16) > 0, pads_k = !gaps_k && p->k % 16 > 0,
              pads_n = !gaps_n && p->n % 16 > 0;
    const int repacks = (p->transpose_a || pads_k || pads_m) +
                        (!p->transpose_b || pads_k || pads_n || gaps_k || gaps_n),
              is_scaled = from == TANDEM_S8 || pads_m || pads_n;
    return repacks + 1 + (is_scaled && !p->stays);
}

static int reads_transposed_copy(const tandem_step *step, const tandem_task *task, int slot)
{
    return task->read[slot] >= 0 && tandem_value_untransposed(step, task->read[slot]) != task->read[slot];
}

static int matmul_launches(const tandem_step *step, const tandem_task *task)
{
    const tandem_op *op = &step->graph->op[task->op];
    const tandem_shape *a = &step->graph->op[op->input[0]].shape;
    const int64_t k = tandem_shape_last(a), n = tandem_shape_last(&op->shape),
                  m = op->kind == TANDEM_OP_LINEAR ? tandem_shape_elements(a) / k : a->dim[a->n_dim - 2];
    const int transposed = op->transpose_b,
              swap_operands = task->kind == TANDEM_TASK_WGRAD && transposed; /* gᵀ·a instead of aᵀ·g */
    const int64_t row = tandem_step_padded_row(step, task->op);
    launched_product p = {m, k, n, 0, transposed, 0, 0, row};
    if (task->kind == TANDEM_TASK_DGRAD) p = (launched_product){m, n, k, 0, !transposed, 0, row, 0};
    if (task->kind == TANDEM_TASK_WGRAD)
        p = (launched_product){transposed ? n : k, m, transposed ? k : n, 1, 0, 0, row, 0};
    p.transpose_a ^= reads_transposed_copy(step, task, swap_operands);
    p.transpose_b ^= reads_transposed_copy(step, task, !swap_operands);
    return product_launches(task, &p);
}

/* A product of columns. */
static int columns_launches(const tandem_step *step, const tandem_task *task, int64_t depth)
{
    const tandem_op *op = &step->graph->op[task->op];
    const int64_t n = tandem_shape_last(&op->shape), positions = tandem_shape_elements(&op->shape) / n;
    const int is_pointwise = tandem_conv2d_is_pointwise(op);
    launched_product p = {positions, depth, n, 0, 0, 0, 0, 0};
    if (task->kind == TANDEM_TASK_DGRAD)
        p = (launched_product){positions, n, depth, 0, 1, !is_pointwise, 0, 0};
    if (task->kind == TANDEM_TASK_WGRAD) p = (launched_product){depth, positions, n, 1, 0, 0, 0, 0};
    return product_launches(task, &p) + !is_pointwise; /* which makes columns, or sums them */
}

/* cuDNN's, with the weight or its gradient transposed, unless a cast has done so, and the result cast where
 * its dtype is another one; the gradient of the weight is cast as it is transposed. */
static int conv2d_launches(const tandem_step *step, const tandem_task *task)
{
    const tandem_op *op = &step->graph->op[task->op];
    const int64_t channels = tandem_shape_last(&step->graph->op[op->input[0]].shape);
    if (tandem_dtype_bytes(task->from) == 1 || tandem_conv2d_is_pointwise(op))
        return columns_launches(step, task, op->kernel_h * op->kernel_w * channels);
    if (task->kind == TANDEM_TASK_WGRAD) return 2;
    return 1 + !reads_transposed_copy(step, task, 1) + (task->to != task->from);
}

/* --- Other operators ------------------------------------------------------------------------------------ */

/* Labels are gathered first where a sample has fewer rows than labels. */
static int cross_entropy_launches(const tandem_step *step, const tandem_task *task)
{
    const tandem_graph *graph = step->graph;
    const tandem_op *op = &graph->op[task->op];
    const tandem_shape *logits = &graph->op[op->input[0]].shape;
    const int64_t rows = tandem_shape_elements(logits) / tandem_shape_last(logits);
    const int gathers = rows != tandem_shape_elements(&graph->op[op->input[1]].shape);
    return (task->kind == TANDEM_TASK_FORWARD ? 2 : 1) + (gathers ? 2 : 0);
}

/* Elements come in octets, with a kernel of their own for the rest. A rank whose samples do not begin with an
 * octet has that kernel alone. */
static int dropout_launches(const tandem_op *op)
{
    const int64_t n = tandem_shape_elements(&op->shape);
    return (n >= 8) + (n % 8 > 0);
}

/* The gradient of a table longer than what is added is 0 after that. */
static int clears_unused(const tandem_step *step, const tandem_op *op)
{
    const tandem_parameter *own = &step->graph->parameter[op->parameter[0]];
    return tandem_bias_period(op, own) < own->elements;
}

/* Of the other kinds, in each pass; 0: no task, or not on cards. */
static const struct {
    tandem_op_kind kind;
    unsigned char forward, dgrad, wgrad;
} launches_of[] = {{TANDEM_OP_EMBEDDING, 1, 0, 2},
                   {TANDEM_OP_BIAS, 1, 0, 1},
                   {TANDEM_OP_BIAS_GELU, 1, 1, 0},
                   {TANDEM_OP_RELU, 1, 1, 0},
                   {TANDEM_OP_ADD, 1, 0, 0},
                   {TANDEM_OP_BATCHNORM, 2, 2, 0},
                   {TANDEM_OP_BATCHNORM_RELU, 2, 2, 0},
                   {TANDEM_OP_BATCHNORM_ADD_RELU, 2, 2, 0},
                   {TANDEM_OP_MAXPOOL, 1, 1, 0},
                   {TANDEM_OP_AVGPOOL, 1, 1, 0},
                   {TANDEM_OP_TRANSPOSE, 1, 1, 0},
                   {TANDEM_OP_SLICE, 1, 1, 0},
                   {TANDEM_OP_GATHER_LABELLED, 2, 2, 0},
                   {TANDEM_OP_CONCAT_TOKEN, 1, 1, 2},
                   {TANDEM_OP_TANH, 1, 1, 0},
                   {TANDEM_OP_GELU, 1, 1, 0},
                   {TANDEM_OP_SOFTMAX, 1, 1, 0},
                   {TANDEM_OP_LAYERNORM, 1, 1, 0}};

/* Of a layernorm's rows, up to which one pass makes all of its gradients. */
enum { MAX_NORM_COLUMNS = 2048 };

enum { LAUNCHES_ATTENTION_BACKWARD = 2 };

static int operator_launches(const tandem_step *step, const tandem_task *task)
{
    if (task->variant >= TANDEM_ATTENTION_VARIANT)
        return task->kind == TANDEM_TASK_FORWARD ? 1 : LAUNCHES_ATTENTION_BACKWARD;
    const tandem_op *op = &step->graph->op[task->op];
    int n = 0;
    for (size_t i = 0; i < sizeof launches_of / sizeof *launches_of; i++)
        if (launches_of[i].kind == op->kind)
            n = task->kind == TANDEM_TASK_FORWARD ? launches_of[i].forward
                : task->kind == TANDEM_TASK_DGRAD ? launches_of[i].dgrad
                                                  : launches_of[i].wgrad;
    switch (op->kind) {
    case TANDEM_OP_LINEAR:
    case TANDEM_OP_MATMUL: return matmul_launches(step, task);
    case TANDEM_OP_CONV2D: return conv2d_launches(step, task);
    case TANDEM_OP_CROSS_ENTROPY: return cross_entropy_launches(step, task);
    case TANDEM_OP_DROPOUT: return dropout_launches(op);
    case TANDEM_OP_LAYERNORM:
        return n + (task->kind == TANDEM_TASK_DGRAD && tandem_shape_last(&op->shape) > MAX_NORM_COLUMNS);
    case TANDEM_OP_BIAS:
    case TANDEM_OP_BIAS_GELU: return n + (task->kind != TANDEM_TASK_FORWARD && clears_unused(step, op));
    /* a tied table's gradient is added to what its linear wrote, and not cleared */
    case TANDEM_OP_EMBEDDING:
        return n - (task->kind == TANDEM_TASK_WGRAD && step->graph->parameter[op->parameter[0]].tied >= 0);
    default: return n;
    }
}

int tandem_step_launches(const tandem_step *step, int t)
{
    const tandem_task *task = &step->task[t];
    if (!task->active || tandem_step_is_merged(step, t)) return 0;
    switch (task->kind) {
    case TANDEM_TASK_WEIGHT_CAST:
    case TANDEM_TASK_CAST:
    case TANDEM_TASK_GRADIENT_CAST:
    case TANDEM_TASK_SAVED_CAST: return cast_launches(step, task);
    case TANDEM_TASK_FORWARD:
    case TANDEM_TASK_WGRAD:
    case TANDEM_TASK_DGRAD: return operator_launches(step, task);
    case TANDEM_TASK_ACCUMULATE:
    case TANDEM_TASK_UPDATE: return 1;
    default: return 0; /* hosts reduce buckets and find the norm of gradients */
    }
}

/* --- Bytes of a launch ---------------------------------------------------------------------------------- */

/* The first task, and the last, of the launch that task t is part of. */
static int first_of_launch(const tandem_step *step, int t)
{
    for (int before = t; tandem_step_is_merged(step, t); t = before) do
            before--;
        while (!step->task[before].active);
    return t;
}

static int last_of_launch(const tandem_step *step, int t)
{
    for (int next = tandem_step_next_active(step, t + 1);
         next < step->n_task && tandem_step_is_merged(step, next);
         next = tandem_step_next_active(step, t + 1))
        t = next;
    return t;
}

static int is_written_between(const tandem_step *step, int v, int first, int end)
{
    for (int t = first; t < end; t++)
        for (int k = 0; k < step->task[t].n_write && step->task[t].active; k++)
            if (step->task[t].write[k] == v) return 1;
    return 0;
}

uint64_t tandem_step_unmoved_bytes(const tandem_step *step, int t)
{
    const tandem_task *task = &step->task[t];
    uint64_t bytes = 0;
    if (!task->active || task->kind == TANDEM_TASK_WEIGHT_CAST || task->kind == TANDEM_TASK_UPDATE) return 0;
    const int first = first_of_launch(step, t), last = last_of_launch(step, t);
    /* operands after its own are only kept alive */
    const int n_own = task->kind == TANDEM_TASK_FORWARD ? op_row_of(step, task->op)->n_input : 1;
    for (int k = 0; k < n_own && k < task->n_read; k++)
        if (task->read[k] >= 0 && is_written_between(step, task->read[k], first, t))
            bytes += step->value[task->read[k]].bytes;
    for (int k = 0; k < task->n_write; k++)
        if (task->write[k] >= 0 && t < last && step->value[task->write[k]].last <= last)
            bytes += step->value[task->write[k]].bytes;
    return bytes;
}
