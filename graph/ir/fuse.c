/* fuse.c: joins two or three operators that one kernel computes, so that no kernel writes or reads what lies
 * between them. */
#include "graph/ir/op.h"

#include <stdlib.h>

/* What `first` and its only reader, `second`, become. A sum is joined only where a relu alone reads it; the
 * last row then joins that relu, which the kernel already includes. */
static const struct {
    tandem_op_kind first, second, both;
} pairs[] = {{TANDEM_OP_BATCHNORM, TANDEM_OP_RELU, TANDEM_OP_BATCHNORM_RELU},
             {TANDEM_OP_BIAS, TANDEM_OP_GELU, TANDEM_OP_BIAS_GELU},
             {TANDEM_OP_BATCHNORM, TANDEM_OP_ADD, TANDEM_OP_BATCHNORM_ADD_RELU},
             {TANDEM_OP_BATCHNORM_ADD_RELU, TANDEM_OP_RELU, TANDEM_OP_BATCHNORM_ADD_RELU}};
enum { N_PAIR = sizeof pairs / sizeof pairs[0] };

/* The only reader of operator i's result, or −1. */
static int only_reader(const tandem_graph *graph, int i)
{
    const int start = graph->consumer_start[i];
    return graph->consumer_start[i + 1] - start == 1 ? graph->consumer[start] : -1;
}

/* The input that a pair joins the operator to: of two the later one, since the other is ready by then. */
static int joined_slot(const tandem_op *op) { return op->input[1] > op->input[0]; }

/* The row of `pairs` that operator i completes, or −1. new_id: of the operators before it. */
static int pair_of(const tandem_graph *graph, int i, const int *new_id)
{
    const tandem_op *second = &graph->op[i];
    const int x = second->input[joined_slot(second)], reader = only_reader(graph, i);
    if (x < 0 || only_reader(graph, x) != i) return -1;
    if (second->kind == TANDEM_OP_ADD && (reader < 0 || graph->op[reader].kind != TANDEM_OP_RELU)) return -1;
    for (int k = 0; k < N_PAIR; k++)
        if (second->kind == pairs[k].second && graph->op[new_id[x]].kind == pairs[k].first) return k;
    return -1;
}

static void renumber_op(int *id, const int *new_id)
{
    if (*id >= 0) *id = new_id[*id];
}

/* The first of a pair takes the place of both. new_id[i]: the id that operator i then has. */
static void fuse_operators(tandem_graph *graph, int *new_id)
{
    int n = 0;
    for (int i = 0; i < graph->n_op; i++) {
        tandem_op *op = &graph->op[i];
        const int k = pair_of(graph, i, new_id), joined = joined_slot(op);
        for (int slot = 0; slot < TANDEM_MAX_INPUT; slot++) renumber_op(&op->input[slot], new_id);
        if (k >= 0) {
            tandem_op *first = &graph->op[op->input[joined]];
            new_id[i] = op->input[joined];
            first->kind = pairs[k].both;
            if (op->kind == TANDEM_OP_ADD) first->input[1] = op->input[!joined];
            continue;
        }
        new_id[i] = n;
        if (n != i) graph->op[n] = *op;
        n++;
    }
    graph->n_op = n;
}

tandem_status tandem_graph_fuse(tandem_graph *graph, tandem_error *error)
{
    int *const new_id = malloc((size_t)graph->n_op * sizeof *new_id);
    if (!new_id) return tandem_no_memory(error, "for a graph of %d operators", graph->n_op);
    fuse_operators(graph, new_id);
    for (int p = 0; p < graph->n_parameter; p++) {
        renumber_op(&graph->parameter[p].op, new_id);
        renumber_op(&graph->parameter[p].tied, new_id);
    }
    renumber_op(&graph->loss, new_id);
    renumber_op(&graph->input, new_id);
    renumber_op(&graph->label, new_id);
    free(new_id);
    for (int i = 0; i < graph->n_op; i++) {
        tandem_op_count(&graph->op[i], graph->op);
        tandem_op_sign(&graph->op[i], graph->op, graph->parameter);
    }
    return tandem_graph_connect(graph, error);
}
