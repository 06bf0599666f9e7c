/* builder.h: what the rules of operators (build.c) need of the builder. */
#pragma once

#include <stdbool.h>

#include "graph/ir/op.h"

struct tandem_builder {
    int64_t batch;
    int max_op;
    tandem_error error; /* the first one */
    tandem_op *op;
    tandem_parameter *parameter;
    int n_op, n_parameter, op_capacity, parameter_capacity;
    int *by_name; /* open addressing, 2 × op_capacity slots (a power of two): operator id + 1, or 0 */
    int input, label;
    int64_t masked;
    struct given_constant {
        const float *number; /* of the caller */
        int64_t n;
    } * given;        /* [n_constant], and … */
    float **constant; /* … a copy of each */
    int n_constant, constant_capacity;
};

/* Starts an operator after the last one; finish_op adds it. Its shape is that of its first input, which must
 * have min_dim … max_dim dimensions. NULL: an error is set, now or earlier. */
tandem_op *begin_op(tandem_builder *b, tandem_op_kind kind, const char *name, int x, int y, int min_dim,
                    int max_dim);
int finish_op(tandem_builder *b, tandem_op *op); /* its id, or −1 */

/* Sets the error where there is none. Returns false. */
bool fail_build(tandem_builder *b, const tandem_op *op, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
bool check_shape(tandem_builder *b, const tandem_op *op, const char *what, const tandem_shape *shape);
bool check_n_dim(tandem_builder *b, const tandem_op *op, int slot, int min, int max);
bool check_op_range(tandem_builder *b, const tandem_op *op, const char *what, int64_t got, int64_t min,
                    int64_t max);

enum { SHAPE_TEXT = 96 };
const char *shape_as_text(char text[SHAPE_TEXT], const tandem_shape *shape);
static inline const tandem_shape *input_shape(const tandem_builder *b, const tandem_op *op, int slot)
{
    return &b->op[op->input[slot]].shape;
}

/* A copy of n numbers, the same one for the same numbers of the caller's. NULL: an error is set. */
const float *keep_constant(tandem_builder *b, const float *given, int64_t n);

/* Gives the operator its next parameter. A deviation of 0 means zeros; `ones` overrides it. */
bool add_parameter(tandem_builder *b, tandem_op *op, tandem_shape shape, float deviation, bool ones,
                   bool has_weight_decay);
