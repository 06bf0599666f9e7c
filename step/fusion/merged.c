/* merged.c: which consecutive tasks a device launches as one (option merged_tasks). Values, dtypes and casts
 * stay those of separate tasks, and so do the bits. But a task then reads its operands while the tasks after
 * it write, so these hold on to its operands: the last task of such a launch has them among its reads, after
 * its own. Which operators may be merged follows from the graph alone; whether their tasks are, from the
 * plan. */
#include "step/fusion/merged.h"

#include "step/program/dtypes.h"
#include "step/program/values.h"

/* Octets of a row are moved together. */
enum { OCTET = 8 };

/* The operator after i, with views left out; n_op: there is none. */
static int operator_after(const tandem_graph *graph, int i)
{
    do i++;
    while (i < graph->n_op && graph->op[i].kind == TANDEM_OP_RESHAPE);
    return i;
}

/* Whether operator j reads the result of operator i once. */
static int reads_once(const tandem_step *step, int j, int i)
{
    int n = 0;
    for (int slot = 0; slot < op_row_of(step, j)->n_input; slot++)
        n += input_tensor_of(step, j, slot) == step->graph->view[i];
    return n == 1;
}

/* Whether nothing else reads the result of operator i, which j reads once. */
static int is_read_by(const tandem_step *step, int i, int j)
{
    const int *start = step->index->reader_start, t = step->graph->view[i];
    return start[t + 1] - start[t] == 1 && reads_once(step, j, i);
}

/* Whether bias i adds one number to each column, all of its parameter. */
static int is_bias_of_columns(const tandem_graph *graph, int i, int64_t columns)
{
    if (graph->op[i].kind != TANDEM_OP_BIAS) return 0;
    const tandem_parameter *own = &graph->parameter[graph->op[i].parameter[0]];
    return own->elements == columns && tandem_bias_period(&graph->op[i], own) == columns;
}

/* Whether the transpose moves whole rows of its last dimension, and the two last ones are columns of bias i.
 */
static int is_transpose_of_bias(const tandem_graph *graph, int transpose, int i)
{
    const tandem_op *op = &graph->op[transpose];
    const tandem_shape *x = &graph->op[op->input[0]].shape;
    return op->kind == TANDEM_OP_TRANSPOSE && x->n_dim == 4 && op->axis[3] == 3 && x->dim[3] % OCTET == 0 &&
           is_bias_of_columns(graph, i, x->dim[2] * x->dim[3]);
}

static void merge_forward(struct tandem_step_index *index, int i, int j)
{
    index->merged_before[j] = i;
    index->merged_after[i] = j;
}

/* A bias and its transpose; backward, the transpose and the bias's sums. */
static void find_merged_transpose(tandem_step *step, int i, int j)
{
    struct tandem_step_index *index = step->index;
    if (!is_transpose_of_bias(step->graph, j, i)) return;
    merge_forward(index, i, j);
    if (index->n_contribution[step->graph->view[i]] == 1 && has_wgrad(step->graph, i) &&
        has_dgrad(step->graph, j))
        index->summed_transpose[i] = j;
}

/* A sum and its layernorm, and before them a bias. */
static void find_merged_norm(tandem_step *step, int bias, int add, int norm)
{
    const tandem_graph *graph = step->graph;
    struct tandem_step_index *index = step->index;
    const int64_t columns = tandem_shape_last(&graph->op[add].shape);
    if (norm == graph->n_op || graph->op[norm].kind != TANDEM_OP_LAYERNORM || !step->options.narrow_rows ||
        tandem_shape_last(&graph->op[norm].shape) != columns || !reads_once(step, norm, add))
        return;
    merge_forward(index, add, norm);
    if (bias >= 0 && is_bias_of_columns(graph, bias, columns) && is_read_by(step, bias, add))
        merge_forward(index, bias, add);
}

/* Whether the operator may write the codes of its result, and their amax: by octets, a layernorm's of rows
 * that a kernel keeps in registers. Backward reads what else the launch writes, so that it lives on. */
static int may_write_codes(const tandem_step *step, int i)
{
    const tandem_op *op = &step->graph->op[i];
    if ((op->kind != TANDEM_OP_LAYERNORM && op->kind != TANDEM_OP_BIAS_GELU) || !has_dgrad(step->graph, i))
        return 0;
    const int64_t columns = tandem_shape_last(&op->shape);
    if (op->kind == TANDEM_OP_LAYERNORM) return columns % OCTET == 0 && columns <= TANDEM_MAX_CODED_COLUMNS;
    const int64_t period = tandem_bias_period(op, &step->graph->parameter[op->parameter[0]]);
    return period % OCTET == 0;
}

/* --- Products of one tensor ----------------------------------------------------------------------------- */

/* Whether operators i and j are linears of one tensor, with weights of one shape and their own. */
static int are_alike(const tandem_step *step, int i, int j)
{
    const tandem_op *const a = &step->graph->op[i], *const b = &step->graph->op[j];
    if (a->kind != TANDEM_OP_LINEAR || b->kind != TANDEM_OP_LINEAR || a->transpose_b || b->transpose_b)
        return 0;
    const tandem_parameter *const v = &step->graph->parameter[a->parameter[0]],
                                  *const w = &step->graph->parameter[b->parameter[0]];
    return v != w && v->op == i && w->op == j && v->elements == w->elements &&
           input_tensor_of(step, i, 0) == input_tensor_of(step, j, 0);
}

/* Whether operator j only hands on the result of the one before it, as a bias, a view or a transpose. */
static int hands_on(const tandem_step *step, int j)
{
    const tandem_graph *graph = step->graph;
    const tandem_op_kind kind = graph->op[j].kind;
    return (kind == TANDEM_OP_BIAS || kind == TANDEM_OP_RESHAPE || kind == TANDEM_OP_TRANSPOSE) &&
           graph->op[j].input[0] == j - 1 && graph->consumer_start[j] - graph->consumer_start[j - 1] == 1;
}

/* Of a linear: the transpose of its bias, where those two are one launch; else −1. */
static int transpose_of_linear(const tandem_step *step, int linear)
{
    const int bias = operator_after(step->graph, linear);
    if (bias >= step->graph->n_op || step->graph->op[bias].kind != TANDEM_OP_BIAS) return -1;
    const int next = step->index->merged_after[bias];
    return next >= 0 && step->graph->op[next].kind == TANDEM_OP_TRANSPOSE ? next : -1;
}

/* The biases and transposes after two products, which are one launch, too. */
static void merge_transposes(tandem_step *step, int before, int i)
{
    struct tandem_step_index *index = step->index;
    const int p = transpose_of_linear(step, before), t = transpose_of_linear(step, i);
    if (p < 0 || t < 0) return;
    const tandem_op *const a = &step->graph->op[p], *const b = &step->graph->op[t];
    for (int d = 0; d < a->shape.n_dim; d++)
        if (a->shape.dim[d] != b->shape.dim[d] || a->axis[d] != b->axis[d]) return;
    merge_forward(index, p, index->merged_before[t]);
    if (index->summed_transpose[index->merged_before[p]] != p ||
        index->summed_transpose[index->merged_before[t]] != t)
        return;
    index->sums_before[p] = t; /* backward, later operators come first */
    index->sums_after[t] = p;
}

/* Where the gradient of the linear's result has memory of its own, which nothing else is added to. */
static void find_product_root(tandem_step *step, int linear)
{
    struct tandem_step_index *index = step->index;
    const int root = index->gradient_root[linear];
    if (step->graph->op[linear].needs_gradient && index->n_contribution[root] == 1)
        index->product_of_root[root] = linear;
}

/* Consecutive linears of one tensor. */
static void find_products_of_tensors(tandem_step *step)
{
    struct tandem_step_index *index = step->index;
    for (int i = 0, end; i < step->graph->n_op; i = end) {
        step_products found = {{i}, 1};
        for (end = i + 1; end < step->graph->n_op; end++)
            if (found.n < TANDEM_MAX_MERGED_PRODUCTS && are_alike(step, i, end))
                found.op[found.n++] = end;
            else if (!hands_on(step, end))
                break;
        if (found.n == 1) {
            end = i + 1;
            continue;
        }
        for (int k = 0; k < found.n; k++) {
            index->products_of[found.op[k]] = index->n_products;
            find_product_root(step, found.op[k]);
            if (k > 0) merge_transposes(step, found.op[k - 1], found.op[k]);
        }
        index->products[index->n_products++] = found;
    }
}

void step_find_merged(tandem_step *step)
{
    const tandem_graph *graph = step->graph;
    int before = -1; /* the operator before i, no view */
    if (step->n_recompute_segment > 1 || step->options.emulated) return;
    for (int i = 0; i < graph->n_op; i++) {
        const int j = operator_after(graph, i);
        if (graph->op[i].kind == TANDEM_OP_ADD) find_merged_norm(step, before, i, j);
        if (j < graph->n_op && is_read_by(step, i, j)) find_merged_transpose(step, i, j);
        if (graph->op[i].kind != TANDEM_OP_RESHAPE) before = i;
        step->index->writes_codes[i] = (unsigned char)may_write_codes(step, i);
    }
    find_products_of_tensors(step);
}

static int active_task_before(const tandem_step *step, int t)
{
    int w = (t - 1) / WORD_BITS;
    if (t == 0) return -1;
    uint64_t word = step->active[w] << (WORD_BITS - 1 - (t - 1) % WORD_BITS);
    if (word) return t - 1 - __builtin_clzll(word);
    while (--w >= 0)
        if (step->active[w]) return w * WORD_BITS + WORD_BITS - 1 - __builtin_clzll(step->active[w]);
    return -1;
}

static int has_one_dtype(const tandem_task *task, tandem_dtype dtype)
{
    return task->from == dtype && task->to == dtype;
}

/* Weights' copies of one dtype, not scaled, as many as the arguments of a kernel have room for. */
static int merges_weight_cast(const tandem_step *step, const tandem_task *before, const tandem_task *task)
{
    return before->kind == TANDEM_TASK_WEIGHT_CAST && before->to == task->to &&
           tandem_dtype_bytes(task->to) > 1 &&
           step->index->weight_cast_number[task->op] % TANDEM_MAX_MERGED_CASTS > 0;
}

/* Whether a task of the products of one tensor may follow the one before it, p. Weights have copies, which
 * lie side by side, as the casts that make them do. A result of the backward pass is the gradient of the
 * parameter. What the tasks read is there until all are done. */
static int merges_product(const tandem_step *step, int p, int t)
{
    const tandem_task *before = &step->task[p], *task = &step->task[t];
    const step_products *all = products_with(step, task->op);
    if (!all || before->kind != task->kind || all != products_with(step, before->op) ||
        before->variant != task->variant || before->read[0] != task->read[0] ||
        tandem_dtype_bytes(task->from) < 2 || before->read[1] == task->read[1])
        return 0;
    if (task->kind == TANDEM_TASK_FORWARD) return task->from != TANDEM_F32;
    const int *const root = step->index->gradient_root, *const of_root = step->index->product_of_root;
    return task->write[0] < 0 && of_root[root[task->op]] == task->op &&
           of_root[root[before->op]] == before->op;
}

static int64_t flat_distance(const tandem_step *step, int p, int t)
{
    return step->parameter_start[step->graph->op[step->task[t].op].parameter[0]] -
           step->parameter_start[step->graph->op[step->task[p].op].parameter[0]];
}

/* The same, with those before it in the launch: their second operands live on, and the gradients of their
 * weights are equally far apart. */
static int is_merged_product(const tandem_step *step, int p, int t)
{
    if (!merges_product(step, p, t) || step->value[step->task[p].read[1]].last < t) return 0;
    const int is_wgrad = step->task[t].kind == TANDEM_TASK_WGRAD, first = active_task_before(step, p);
    if (is_wgrad && flat_distance(step, p, t) <= 0) return 0;
    return first < 0 || !is_wgrad || !is_merged_product(step, first, p) ||
           flat_distance(step, first, p) == flat_distance(step, p, t);
}

/* Whether the dgrad of a transpose goes on where the sums of another one's bias end: its own sums follow. */
static int is_merged_transpose_sum(const tandem_step *step, int p, int t)
{
    const struct tandem_step_index *index = step->index;
    const int before = index->sums_before[step->task[t].op];
    if (before < 0 || p != index->wgrad[index->merged_before[before]] || !tandem_step_is_merged(step, p))
        return 0;
    const int sums = index->wgrad[index->merged_before[step->task[t].op]];
    return has_one_dtype(&step->task[t], step->task[p].from) &&
           tandem_step_next_active(step, t + 1) == sums && step->task[sums].read[0] == step->task[t].write[0];
}

/* Whether a forward task may follow that of operator i, p. After a transpose another bias begins, with its
 * own transpose. */
static int is_merged_forward(const tandem_step *step, int i, int p, int t)
{
    const struct tandem_step_index *index = step->index;
    const tandem_task *task = &step->task[t];
    if (i < 0 || p != index->forward[i] || !has_one_dtype(&step->task[p], task->from) ||
        !has_one_dtype(task, task->from))
        return 0;
    if (step->graph->op[i].kind != TANDEM_OP_TRANSPOSE) return 1;
    const int next = index->forward[index->merged_after[task->op]];
    return tandem_step_is_merged(step, p) && tandem_step_next_active(step, t + 1) == next &&
           has_one_dtype(&step->task[next], task->from);
}

/* Whether the operator that has task p writes the codes of cast t with its result: their scale is known
 * beforehand. */
static int is_merged_cast(const tandem_step *step, int p, int t)
{
    const tandem_task *task = &step->task[t];
    const struct tandem_step_index *index = step->index;
    if (!index->writes_codes[task->op] || p != index->forward[task->op] || task->from == TANDEM_F16 ||
        !has_one_dtype(&step->task[p], task->from) || (task->to != TANDEM_S8 && task->to != TANDEM_E4M3) ||
        step_range_source(step, task, task->to) != TANDEM_RANGE_DELAYED)
        return 0;
    const tandem_op *op = &step->graph->op[task->op];
    if (op->kind != TANDEM_OP_LAYERNORM || task->n_write == 1) return 1;
    const tandem_matrices m = tandem_step_matrices(step, t);
    return m.batch == 1 && m.columns == tandem_shape_last(&op->shape);
}

int tandem_step_is_merged(const tandem_step *step, int t)
{
    const struct tandem_step_index *index = step->index;
    const tandem_task *task = &step->task[t];
    const int p = step->options.merged_tasks && task->active ? active_task_before(step, t) : -1;
    if (p < 0) return 0;
    const tandem_task *before = &step->task[p];
    switch (task->kind) {
    case TANDEM_TASK_UPDATE: return before->kind == TANDEM_TASK_UPDATE;
    case TANDEM_TASK_WEIGHT_CAST:
        return t == index->weight_cast[task->op] && merges_weight_cast(step, before, task);
    case TANDEM_TASK_CAST: return is_merged_cast(step, p, t);
    case TANDEM_TASK_FORWARD:
        return is_merged_product(step, p, t) || is_merged_forward(step, index->merged_before[task->op], p, t);
    case TANDEM_TASK_DGRAD: return is_merged_transpose_sum(step, p, t);
    case TANDEM_TASK_WGRAD: {
        const int transpose = index->summed_transpose[task->op];
        if (transpose < 0) return is_merged_product(step, p, t);
        return transpose >= 0 && p == index->dgrad[transpose] && has_one_dtype(before, task->from) &&
               before->write[0] == task->read[0];
    }
    default: return 0;
    }
}

/* --- What products of one launch read and write --------------------------------------------------------- */

/* The value of a product's task that follows that of the last product in memory: the result of a forward
 * task, the gradient that a wgrad reads. */
static int value_in_block(const tandem_task *task)
{
    return task->kind == TANDEM_TASK_FORWARD ? task->write[0] : task->read[1];
}

/* The product's task that puts value v into a block; −1: none. */
static int task_of_block(const tandem_step *step, int v)
{
    const struct tandem_step_index *index = step->index;
    const int i = v / VALUES_PER_OP, role = v % VALUES_PER_OP;
    int t = -1;
    if (index->n_products == 0 || v < 0 || i >= step->graph->n_op) return -1;
    if (role < VALUE_GRADIENT && index->products_of[i] >= 0) t = index->forward[i];
    if (role >= VALUE_GRADIENT && role < VALUE_AUX && index->product_of_root[i] >= 0)
        t = index->wgrad[index->product_of_root[i]];
    return t >= 0 && step->task[t].active && value_in_block(&step->task[t]) == v ? t : -1;
}

int step_block_of_value(const tandem_step *step, int v, int block[TANDEM_MAX_MERGED_PRODUCTS])
{
    const int t = task_of_block(step, v);
    int n = 1, first = t;
    if (t < 0) return 0;
    while (tandem_step_is_merged(step, first)) first = active_task_before(step, first);
    block[0] = value_in_block(&step->task[first]);
    for (int next = tandem_step_next_active(step, first + 1);
         next < step->n_task && n < TANDEM_MAX_MERGED_PRODUCTS && tandem_step_is_merged(step, next);
         next = tandem_step_next_active(step, next + 1))
        block[n++] = value_in_block(&step->task[next]);
    return n > 1 ? n : 0;
}

int step_first_of_block(const tandem_step *step, const int *block, int n)
{
    int first = block[0];
    for (int k = 1; k < n; k++)
        if (step->value[block[k]].first < step->value[first].first) first = block[k];
    const tandem_task *writer = &step->task[step->value[first].first];
    for (int w = 0; w < writer->n_write; w++)
        for (int k = 0; k < n; k++)
            if (writer->write[w] == block[k]) return block[k];
    return first;
}

int step_value_born(const tandem_step *step, int v)
{
    int block[TANDEM_MAX_MERGED_PRODUCTS];
    const int n = step_block_of_value(step, v, block);
    return step->value[n ? step_first_of_block(step, block, n) : v].first;
}

tandem_merged_products tandem_step_merged_products(const tandem_step *step, int t)
{
    const tandem_task *task = &step->task[t];
    const int next = tandem_step_next_active(step, t + 1), is_forward = task->kind == TANDEM_TASK_FORWARD;
    tandem_merged_products all = {0};
    if (!task->active || (!is_forward && task->kind != TANDEM_TASK_WGRAD) || !products_with(step, task->op) ||
        !tandem_step_is_merged(step, t) || (next < step->n_task && tandem_step_is_merged(step, next)))
        return all;
    const int before = active_task_before(step, t);
    const uint64_t operand_bytes = padded_bytes(step->value[task->read[1]].bytes);
    all.n = 2 + tandem_step_is_merged(step, before);
    all.operand_apart = (int64_t)(operand_bytes / tandem_dtype_bytes(task->from));
    all.result_apart =
        is_forward ? (int64_t)(padded_bytes(step->value[task->write[0]].bytes) / tandem_dtype_bytes(task->to))
                   : flat_distance(step, before, t);
    return all;
}
