/* idx.h: the files of the MNIST family: two zero bytes, the type (8: unsigned byte), the number of
 * dimensions, each dimension as four bytes, most significant first, then the values, last dimension fastest.
 * Source: LeCun, Cortes, Burges, "The MNIST database of handwritten digits", section "file formats". */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "tandem/advanced/data.h"

enum { TANDEM_IDX_DIMENSIONS = 4 }; /* at most */

typedef struct tandem_idx {
    int n_dimension;                     /* 1 … 4 */
    int64_t size[TANDEM_IDX_DIMENSIONS]; /* 1 after the last */
    const uint8_t *values;               /* (size[0], size[1], …), within the parsed bytes */
    size_t n_value;                      /* the product of the sizes */
} tandem_idx;

/* Parses bytes[n], which the caller keeps; `path` names them in errors. TANDEM_MALFORMED: wrong magic,
 * another type, no or too many dimensions, or another number of bytes than the sizes demand. *idx unchanged
 * on error. O(1). */
tandem_status tandem_idx_parse(tandem_idx *idx, const uint8_t *bytes, size_t n, const char *path,
                               tandem_error *error);

/* Reads the four files of `directory` into kind, n_train, n_test, height, width, channels, n_class, pixels,
 * labels, mean and deviation of *data; errors of tandem_data_open. *data unchanged on error. */
tandem_status tandem_idx_open(tandem_data *data, const char *directory, tandem_error *error);
