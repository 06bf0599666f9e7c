/* joined.c: which consecutive tasks a device launches as one (option joined_tasks). Values, dtypes and casts
 * stay those of separate tasks, and so do the bits. But a task then reads its operands while the tasks behind
 * it write, so these hold on to its operands: the last task of such a launch has them among its reads, behind
 * its own. Which operators may be joined follows from the graph alone; whether their tasks are, from the
 * plan. */
#include "graph/step/joined.h"

#include "graph/step/dtypes.h"
#include "graph/step/values.h"

/* Octets of a row are moved together. */
enum { OCTET = 8 };

/* The operator behind i, with views left out; n_op: there is none. */
static int operator_behind(const tandem_graph *graph, int i)
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

static void join_forward(struct tandem_step_index *index, int i, int j)
{
    index->joined_before[j] = i;
    index->joined_behind[i] = j;
}

/* A bias and its transpose; backward, the transpose and the bias's sums. */
static void find_joined_transpose(tandem_step *step, int i, int j)
{
    struct tandem_step_index *index = step->index;
    if (!is_transpose_of_bias(step->graph, j, i)) return;
    join_forward(index, i, j);
    if (index->n_contribution[step->graph->view[i]] == 1 && has_wgrad(step->graph, i) &&
        has_dgrad(step->graph, j))
        index->summed_transpose[i] = j;
}

/* A sum and its layernorm, and before them a bias. */
static void find_joined_norm(tandem_step *step, int bias, int add, int norm)
{
    const tandem_graph *graph = step->graph;
    struct tandem_step_index *index = step->index;
    const int64_t columns = tandem_shape_last(&graph->op[add].shape);
    if (norm == graph->n_op || graph->op[norm].kind != TANDEM_OP_LAYERNORM || !step->options.narrow_rows ||
        tandem_shape_last(&graph->op[norm].shape) != columns || !reads_once(step, norm, add))
        return;
    join_forward(index, add, norm);
    if (bias >= 0 && is_bias_of_columns(graph, bias, columns) && reads_once(step, add, bias))
        join_forward(index, bias, add);
}

void step_find_joined(tandem_step *step)
{
    const tandem_graph *graph = step->graph;
    int before = -1; /* the operator before i, no view */
    if (step->n_recompute_segment > 1 || step->options.emulated) return;
    for (int i = 0; i < graph->n_op; i++) {
        const int j = operator_behind(graph, i);
        if (graph->op[i].kind == TANDEM_OP_ADD) find_joined_norm(step, before, i, j);
        if (j < graph->n_op && reads_once(step, j, i)) find_joined_transpose(step, i, j);
        if (graph->op[i].kind != TANDEM_OP_RESHAPE) before = i;
    }
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
static int joins_weight_cast(const tandem_step *step, const tandem_task *before, const tandem_task *task)
{
    return before->kind == TANDEM_TASK_WEIGHT_CAST && before->to == task->to &&
           tandem_dtype_bytes(task->to) > 1 &&
           step->index->weight_cast_number[task->op] % TANDEM_MAX_JOINED_CASTS > 0;
}

int tandem_step_is_joined(const tandem_step *step, int t)
{
    const struct tandem_step_index *index = step->index;
    const tandem_task *task = &step->task[t];
    const int p = step->options.joined_tasks && task->active ? active_task_before(step, t) : -1;
    if (p < 0) return 0;
    const tandem_task *before = &step->task[p];
    switch (task->kind) {
    case TANDEM_TASK_UPDATE: return before->kind == TANDEM_TASK_UPDATE;
    case TANDEM_TASK_WEIGHT_CAST:
        return t == index->weight_cast[task->op] && joins_weight_cast(step, before, task);
    case TANDEM_TASK_FORWARD: {
        const int i = index->joined_before[task->op];
        return i >= 0 && p == index->forward[i] && has_one_dtype(before, task->from) &&
               has_one_dtype(task, task->from);
    }
    case TANDEM_TASK_WGRAD: {
        const int transpose = index->summed_transpose[task->op];
        return transpose >= 0 && p == index->dgrad[transpose] && has_one_dtype(before, task->from) &&
               before->write[0] == task->read[0];
    }
    default: return 0;
    }
}
