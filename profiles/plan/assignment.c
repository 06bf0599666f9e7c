/* assignment.c: the precision of every operator on every class, as a value. */
#include "tandem/plan.h"

#include <stdlib.h>
#include <string.h>

static size_t assignment_bytes(const tandem_assignment *a)
{
    return (size_t)a->n_class * (size_t)a->n_op * sizeof **a->precision;
}

_Static_assert(TANDEM_PRECISION_FP32 == 0, "all zero bits are fp32");

tandem_status tandem_assignment_open(tandem_assignment *out, int n_class, int n_op, tandem_error *error)
{
    tandem_assignment a = {.n_class = n_class, .n_op = n_op};
    a.precision[0] = calloc(1, assignment_bytes(&a) + 1);
    if (!a.precision[0]) return tandem_no_memory(error, "for a plan of %d operators", n_op);
    for (int c = 1; c < n_class; c++) a.precision[c] = a.precision[0] + (size_t)c * (size_t)n_op;
    *out = a;
    return TANDEM_OK;
}

void tandem_assignment_close(tandem_assignment *a)
{
    free(a->precision[0]);
    *a = (tandem_assignment){0};
}

void tandem_assignment_copy(tandem_assignment *to, const tandem_assignment *from)
{
    memcpy(to->precision[0], from->precision[0], assignment_bytes(from));
}

int tandem_assignment_is_equal(const tandem_assignment *a, const tandem_assignment *b)
{
    return memcmp(a->precision[0], b->precision[0], assignment_bytes(a)) == 0;
}
