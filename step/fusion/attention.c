/* attention.c: finds softmax(scale · q·kᵀ)·v among the operators of a graph, with or without dropout. Where a
 * device has one kernel for it, plans that give both products one 16-bit precision run it as one task
 * (tandem_step_attention): the scores never come to memory, and backward makes them again. In all other plans
 * the operators stay separate. Ids of tasks do not depend on it. */
#include "step/program/dtypes.h"
#include "step/program/values.h"

static int is_only_reader(const tandem_graph *graph, int t, int reader)
{
    const int start = graph->consumer_start[t];
    return graph->consumer_start[t + 1] - start == 1 && graph->consumer[start] == reader;
}

/* The operator before i that alone makes its first input and is read by i alone; −1: there is none. */
static int only_source(const tandem_graph *graph, int i, tandem_op_kind kind)
{
    const int x = graph->op[i].input[0];
    return x == i - 1 && graph->op[x].kind == kind && is_only_reader(graph, x, i) ? x : -1;
}

tandem_attention step_attention_of(const tandem_graph *graph, int mix)
{
    const tandem_op *const op = graph->op;
    const int p = op[mix].input[0], has_dropout = op[p].kind == TANDEM_OP_DROPOUT,
              softmax = has_dropout ? op[p].input[0] : p, scores = op[softmax].input[0];
    const tandem_shape *q = &op[op[scores].input[0]].shape, *s = &op[scores].shape;
    const int64_t depth = tandem_shape_last(q), rows = q->dim[q->n_dim - 2];
    return (tandem_attention){.scores = scores,
                              .softmax = softmax,
                              .dropout = has_dropout ? p : -1,
                              .mix = mix,
                              .heads = tandem_shape_elements(q) / (rows * depth),
                              .rows = rows,
                              .columns = tandem_shape_last(s),
                              .depth = depth};
}

/* Whether a gradient of the operand comes from this product alone, which then writes it as it is. */
static int is_own_gradient(const tandem_step *step, int op, int slot)
{
    const int x = input_tensor_of(step, op, slot);
    return step->index->edge_position[op * TANDEM_MAX_INPUT + slot] == 0 &&
           step->index->n_contribution[x] == 1;
}

static int can_be_fused(const tandem_step *step, int mix)
{
    const tandem_graph *graph = step->graph;
    const tandem_op *const op = graph->op;
    if (op[mix].kind != TANDEM_OP_MATMUL || op[mix].transpose_b || !op[mix].needs_gradient) return 0;
    const int dropout = only_source(graph, mix, TANDEM_OP_DROPOUT),
              softmax = only_source(graph, dropout >= 0 ? dropout : mix, TANDEM_OP_SOFTMAX),
              scores = softmax >= 0 ? only_source(graph, softmax, TANDEM_OP_MATMUL) : -1;
    if (scores < 0 || !op[scores].transpose_b) return 0;
    const int q = input_tensor_of(step, scores, 0), k = input_tensor_of(step, scores, 1),
              v = input_tensor_of(step, mix, 1);
    const int64_t depth = tandem_shape_last(&op[op[scores].input[0]].shape);
    return q != k && q != v && k != v && depth <= TANDEM_ATTENTION_DEPTH &&
           tandem_shape_last(&op[mix].shape) == depth && is_own_gradient(step, scores, 0) &&
           is_own_gradient(step, scores, 1) && is_own_gradient(step, mix, 1);
}

void step_find_attention(tandem_step *step)
{
    /* Those who inspect terms of gradients, and emulations, look between the operators. */
    if (step->options.separate_partial_grads || step->options.emulated) return;
    for (int i = 0; i < step->graph->n_op; i++)
        if (can_be_fused(step, i))
            for (int k = attention_scores_of(step->graph, i); k <= i; k++) step->index->attention[k] = i;
}

uint64_t tandem_attention_statistics_bytes(const tandem_attention *attention)
{
    return (uint64_t)(attention->heads * attention->rows) * sizeof(float);
}

int tandem_step_may_fuse(const tandem_step *step, int op, tandem_attention *attention)
{
    const int mix = attention_of(step, op);
    if (mix >= 0) *attention = step_attention_of(step->graph, mix);
    return mix >= 0;
}

int tandem_step_attention(const tandem_step *step, int t, tandem_attention *attention)
{
    const tandem_task *task = &step->task[t];
    const int is_pass = task->kind == TANDEM_TASK_FORWARD || task->kind == TANDEM_TASK_DGRAD;
    if (!is_pass || !task->active || attention_of(step, task->op) != task->op ||
        task->variant < TANDEM_ATTENTION_VARIANT)
        return 0;
    *attention = step_attention_of(step->graph, task->op);
    return 1;
}
