/* growth.h: a captured module at another batch than it was captured with. */
#pragma once

#include <jansson.h>
#include <stdint.h>

#include "tandem/record.h"

/* tandem_recorded_grow: gives a call `more` samples (fewer: below 0), `batch` in all.
 *   growth  the call's member of that name: how the sizes of input, second and shape, and the numbers in its
 *           text, grow with each sample, of a call without a precision in the
 *           place of its shape the number of elements; an empty array: they do not
 *   text    [out] what call->text then points to
 * 0: the growth is no such list, or a size would be below 1 or too long. Cost: O(text). */
int tandem_recorded_grow(tandem_recorded_call *call, const json_t *growth, int64_t more, int64_t batch,
                         char text[TANDEM_RECORDED_TEXT + 1]);
