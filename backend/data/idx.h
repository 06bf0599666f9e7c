/* idx.h: the files of the MNIST family: two zero bytes, the type (8: unsigned byte), the number of
 * dimensions, each dimension as four bytes, the most significant first, then the values, the last dimension
 * fastest.
 * Source: LeCun, Cortes, Burges, "The MNIST database of handwritten digits", section "file formats". */
#ifndef TANDEM_BACKEND_DATA_IDX_H
#define TANDEM_BACKEND_DATA_IDX_H

#include <stddef.h>
#include <stdint.h>

#include "tandem/data.h"

enum { TANDEM_IDX_DIMENSIONS = 4 }; /* at most */

typedef struct tandem_idx {
    int n_dimension;                     /* 1 … 4 */
    int64_t size[TANDEM_IDX_DIMENSIONS]; /* 1 behind the last */
    const uint8_t *values;               /* (size[0], size[1], …), inside of the bytes that were parsed */
    size_t n_value;                      /* the product of the sizes */
} tandem_idx;

/* tandem_idx_parse: read bytes[n], which stay the caller's. `path` names them in errors.
 * TANDEM_MALFORMED: wrong magic, another type, no or too many dimensions, or a number of bytes that is not
 * the one its sizes ask for (says both). *idx unchanged on error. O(1). */
tandem_status tandem_idx_parse(tandem_idx *idx, const uint8_t *bytes, size_t n, const char *path,
                               tandem_error *error);

/* tandem_idx_open: read the four files of `directory` into kind, n_train, n_test, height, width, channels,
 * n_class, pixels, labels, mean and deviation of *data; errors as tandem_data_open. *data unchanged on
 * error. */
tandem_status tandem_idx_open(tandem_data *data, const char *directory, tandem_error *error);

#endif
