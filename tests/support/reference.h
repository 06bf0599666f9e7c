/* reference.h: the plain reference of operators, in double: what a kernel's operands and results should be.
 * */
#ifndef TANDEM_TESTS_CONFORMANCE_REFERENCE_H
#define TANDEM_TESTS_CONFORMANCE_REFERENCE_H

#include "tests/support/operator_case.h"

/* reference_fill_saved: of a dgrad, the operands that come from the forward pass (output, aux), made from the
 * others or from random inputs. */
void reference_fill_saved(task_operands *operands, const tandem_graph *graph, const tandem_op *op,
                          uint64_t key);

#endif
