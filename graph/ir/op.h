/* op.h: what follows from an operator's kind, attributes and shapes; private to graph/. */
#ifndef TANDEM_GRAPH_OP_H
#define TANDEM_GRAPH_OP_H

#include "graph/ir/build.h"

/* Fills op->flops and op->aux_bytes. The operator's inputs are op[…].input in `all`; shapes are settled and
 * small enough that no product overflows (build.c has checked).
 * FLOPs are those of one forward pass. A product counts its multiplications and additions. Of the others each
 * element counts its arithmetic once, exp and tanh as one operation:
 *   bias, add, relu   1   an addition, a comparison
 *   dropout           1   a multiplication; what it draws is not counted
 *   gelu              8   u = x(c₀ + c₁x²): 4; tanh: 1; ½x(1 + …): 3; with a bias 9
 *   tanh              1
 *   softmax           6   scale, maximum, subtract, exp, sum, divide; masked entries as well
 *   norms             7   mean, subtract, square, sum, multiply, scale, shift; with a relu 8
 *   pools                 entries of the window, for each element of the output
 *   cross_entropy     5   maximum, subtract, exp, sum, divide, for each logit
 *   the rest          0   they only move data */
void tandem_op_count(tandem_op *op, const tandem_op *all);

/* Writes op->signature: the kind, then everything that determines what it costs: shapes (the batch is in
 * them) and attributes; no names, no floating-point numbers. Needs the same as tandem_op_count. `parameter`:
 * of the graph, of which the operator's own are read. */
void tandem_op_sign(tandem_op *op, const tandem_op *all, const tandem_parameter *parameter);

/* 64-bit FNV-1a over a canonical text of all of the graph but its batch: model, operators (names, kinds,
 * edges, attributes, shapes of one sample), parameters, optimizer. Floating-point numbers enter as their
 * bits. Source: Fowler, Noll, Vo; draft-eastlake-fnv (offset basis and prime). */
uint64_t tandem_graph_hash(const tandem_graph *graph);

/* Fills consumer_start, consumer and view, which have room for n_op operators. TANDEM_WRONG_GRAPH where a
 * tensor but the loss has no reader. */
tandem_status tandem_graph_connect(tandem_graph *graph, tandem_error *error);

/* Joins operators that have a kernel together: a batchnorm and the relu, a bias and the gelu that alone reads
 * it. The first keeps its name and its parameters; numbers of operators close up, and the hash stays: it is
 * the same model. TANDEM_NO_MEMORY, and the graph is as it was. Cost: O(operators). */
tandem_status tandem_graph_fuse(tandem_graph *graph, tandem_error *error);

/* Lets a builder take so many operators at most; the next one is TANDEM_LIMIT_EXCEEDED. How many it has
 * taken. */
void tandem_builder_set_max_op(tandem_builder *b, int max_op);
int tandem_builder_n_op(const tandem_builder *b);

/* The local batch of a builder: what its sources' first dimension is. */
int64_t tandem_builder_batch(const tandem_builder *b);

/* Shape of a tensor built so far; all zero for −1, which a failed builder hands out. Valid until the next
 * operator. */
const tandem_shape *tandem_builder_shape(const tandem_builder *b, int tensor);

#endif
