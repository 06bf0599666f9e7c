/* npy.h: arrays in the files of NumPy: "\x93NUMPY", the version (1.0, 2.0 or 3.0), the header's length (two
 * bytes; four from 2.0 on), a dictionary {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), } and the
 * values. Source: NumPy, numpy.lib.format, "NPY format",
 * https://numpy.org/devdocs/reference/generated/numpy.lib.format.html. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "data/data_paths.h"
#include "tandem/advanced/data.h"

enum { TANDEM_NPY_DIMENSIONS = 4 }; /* at most */

typedef enum tandem_npy_type {
    TANDEM_NPY_F32,
    TANDEM_NPY_U8,
    TANDEM_NPY_S32,
    TANDEM_NPY_S64
} tandem_npy_type;

typedef struct tandem_npy {
    tandem_npy_type type;
    int n_dim;                          /* 0 … 4 */
    int64_t dim[TANDEM_NPY_DIMENSIONS]; /* 1 after the last */
    const uint8_t *values;              /* (dim[0], dim[1], …), little-endian, within the parsed bytes */
    int64_t n_value;                    /* the product of the dimensions */
} tandem_npy;

/* Parses bytes[n], which the caller keeps; `path` names them in errors. is_label: the array is of labels
 * (int64, int32, uint8), else of samples (float32, uint8). TANDEM_MALFORMED: wrong magic or version, a header
 * that is no such dictionary, another type (named, as are big-endian ones), Fortran order, more dimensions,
 * or another number of bytes than the shape demands. *npy unchanged on error. O(header). */
tandem_status tandem_npy_parse(tandem_npy *npy, const uint8_t *bytes, size_t n, int is_label,
                               const char *path, tandem_error *error);

/* Whether one of the paths is FILE.npy. */
int tandem_npy_takes(const tandem_data_paths *paths);

/* Maps x.npy, of shape (N, height, width, channels), (N, height, width) or (N, features), and reads y.npy of
 * N labels. Every tenth sample is of the test. Sets kind, n_train, n_test, height, width, channels, n_class,
 * pixels, labels, is_f32, is_flat, is_interleaved, label_bytes, mean, deviation and mapped of *data.
 * TANDEM_USAGE: no such pair; TANDEM_MALFORMED: as above, other shapes, fewer than 10 samples, a label
 * outside of 0 … 65535, a number that is not finite; errors of tandem_mapped_file_open. *data unchanged on
 * error. Cost: reading both once. */
tandem_status tandem_npy_open(tandem_data *data, const tandem_data_paths *paths, tandem_error *error);
