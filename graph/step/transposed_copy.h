/* columnwise.h: which casts write a column-wise copy, and which products read it; private to graph/. Where
 * the device has no use for them (tandem_step_options.columnwise 0), none. */
#ifndef TANDEM_GRAPH_TRANSPOSED_COPY_H
#define TANDEM_GRAPH_TRANSPOSED_COPY_H

#include "graph/step/values.h"

typedef enum product_operand { OPERAND_INPUT, OPERAND_OTHER, OPERAND_GRADIENT } product_operand;

/* Fills index->has_transposed_copy; needs the list of tasks. Cost: O(tasks · precisions). */
void step_find_transposed_copies(tandem_step *step);

/* What product `pass` of operator i reads for value v as an operand: v, or its column-wise copy. */
int step_operand(const tandem_step *step, int i, tandem_pass pass, product_operand operand, int v);

#endif
