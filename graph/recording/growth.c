/* growth.c: sizes and texts of calls at another batch. */
#include "graph/recording/growth.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool grow_number(int64_t *number, const json_t *growth, int64_t more)
{
    const double grown = (double)*number + nearbyint(json_number_value(growth) * (double)more);
    if (!json_is_number(growth) || !(grown >= 0 && grown < 0x1p53)) return false;
    *number = (int64_t)grown;
    return true;
}

static bool grow_shape(tandem_shape *shape, const json_t *growths, int64_t more)
{
    if (json_array_size(growths) != (size_t)shape->n_dim) return false;
    for (int d = 0; d < shape->n_dim; d++)
        if (!grow_number(&shape->dim[d], json_array_get(growths, (size_t)d), more) || shape->dim[d] < 1)
            return false;
    return true;
}

/* The result of a call without a precision: its elements grow, and are rows of the batch where they can
 * be. */
static bool grow_elements(tandem_shape *shape, const json_t *growths, int64_t more, int64_t batch)
{
    int64_t elements = 1;
    for (int d = 0; d < shape->n_dim; d++)
        if (__builtin_mul_overflow(elements, shape->dim[d], &elements)) return false;
    if (json_array_size(growths) != 1 || !grow_number(&elements, json_array_get(growths, 0), more) ||
        elements < 1)
        return false;
    const int64_t rows = elements % batch == 0 ? batch : 1;
    *shape = (tandem_shape){2, {rows, elements / rows}};
    return true;
}

/* Each run of digits in the text is a number that grows. */
static bool grow_text(char *text, size_t size, const char *old, const json_t *growths, int64_t more)
{
    size_t used = 0, n = 0;
    while (*old && used + 1 < size) {
        if (*old < '0' || *old > '9') {
            text[used++] = *old++;
            continue;
        }
        char *end = NULL;
        int64_t number = strtoll(old, &end, 10);
        if (!grow_number(&number, json_array_get(growths, n++), more)) return false;
        used += (size_t)snprintf(text + used, size - used, "%" PRId64, number);
        old = end;
    }
    if (*old || used >= size || n != json_array_size(growths)) return false;
    text[used] = '\0';
    return true;
}

int tandem_recorded_grow(tandem_recorded_call *call, const json_t *growth, int64_t more, int64_t batch,
                         char text[TANDEM_RECORDED_TEXT + 1])
{
    if (!growth || (json_is_array(growth) && json_array_size(growth) == 0)) return 1;
    if (json_array_size(growth) != 4) return 0;
    const json_t *const of_shape = json_array_get(growth, 2);
    const bool has_sizes = grow_shape(&call->input, json_array_get(growth, 0), more) &&
                           grow_shape(&call->second, json_array_get(growth, 1), more) &&
                           (call->kind == TANDEM_OP_CALL ? grow_elements(&call->shape, of_shape, more, batch)
                                                         : grow_shape(&call->shape, of_shape, more));
    if (!has_sizes || !grow_text(text, TANDEM_RECORDED_TEXT + 1, call->text, json_array_get(growth, 3), more))
        return 0;
    call->text = text;
    return 1;
}
