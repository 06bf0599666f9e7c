/* op.h: what follows from an operator's kind, attributes and shapes; limits and results of builders. */
#pragma once

#include "graph/ir/build.h"

/* Fills op->flops and op->aux_bytes from the shapes of its inputs, operators in `all`. The builder has
 * checked that no product overflows. FLOPs are those of one forward pass. A product counts multiplications
 * and additions. Other operators count per element, exp and tanh as one operation:
 *   bias, add, relu   1   an addition, a comparison
 *   scale, mul, mul_constant   1   a multiplication
 *   map                   of its function (function.def)
 *   dropout           1   a multiplication; random numbers are not counted
 *   gelu              8   u = x(c₀ + c₁x²): 4; tanh: 1; ½x(1 + …): 3; with a bias 9
 *   tanh              1
 *   softmax           6   scale, maximum, subtract, exp, sum, divide; also for masked entries
 *   norms             7   mean, subtract, square, sum, multiply, scale, shift; with a relu 8
 *   pools                 entries of the window, per element of the output
 *   cross_entropy     5   maximum, subtract, exp, sum, divide, per logit
 *   others            0   they only move data */
void tandem_op_count(tandem_op *op, const tandem_op *all);

/* How many factors an operator of kind mul_constant reaches. */
int64_t tandem_op_n_factor(const tandem_op *op);

/* Fills op->signature: the kind, and all shapes (with the batch) and attributes that determine its cost; no
 * names and no floating-point numbers. `parameter`: those of the graph. */
void tandem_op_sign(tandem_op *op, const tandem_op *all, const tandem_parameter *parameter);

/* The hash (base/hash.h) of a canonical text of the graph without its batch: model, operators (names, kinds,
 * edges, attributes, shapes of one sample), parameters, optimizer. Floating-point numbers enter as their
 * bits. */
uint64_t tandem_graph_hash(const tandem_graph *graph);

/* Fills consumer_start, consumer and view, which have room for n_op operators. TANDEM_WRONG_GRAPH: a tensor
 * other than the loss has no reader. */
tandem_status tandem_graph_connect(tandem_graph *graph, tandem_error *error);

/* Joins operators that share a kernel, such as a batchnorm and the relu that alone reads it. The first one
 * keeps its name and parameters, ids become consecutive again, and the hash stays. TANDEM_NO_MEMORY: graph
 * unchanged. Cost: O(operators). */
tandem_status tandem_graph_fuse(tandem_graph *graph, tandem_error *error);

/* The largest number of operators that a builder takes: one more is TANDEM_LIMIT_EXCEEDED. How many it
 * has. */
void tandem_builder_set_max_op(tandem_builder *b, int max_op);
int tandem_builder_n_op(const tandem_builder *b);

/* The local batch, which is the first dimension of the sources. */
int64_t tandem_builder_batch(const tandem_builder *b);

/* The shape of a tensor; all zero for −1, the id that a failed builder returns. Valid until the next
 * operator. */
const tandem_shape *tandem_builder_shape(const tandem_builder *b, int tensor);
