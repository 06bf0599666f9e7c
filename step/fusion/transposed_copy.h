/* transposed_copy.h: which casts write a transposed copy, and which products read it. None with
 * tandem_step_options.transposed_copy 0: then the device does not need them. */
#pragma once

#include "step/program/values.h"

typedef enum product_operand { OPERAND_INPUT, OPERAND_OTHER, OPERAND_GRADIENT } product_operand;

/* Fills index->has_transposed_copy; needs the list of tasks. Cost: O(tasks × precisions). */
void step_find_transposed_copies(tandem_step *step);

/* The value that product `pass` of operator i reads for operand v: v, or its transposed copy. */
int step_operand(const tandem_step *step, int i, tandem_pass pass, product_operand operand, int v);
