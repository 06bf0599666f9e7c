/* cifar.h: the binary version of CIFAR-10 and CIFAR-100: records of one label byte (CIFAR-100: the coarse and
 * the fine label), then 32 × 32 pixels of red, of green and of blue, row by row. Source: Krizhevsky, "The
 * CIFAR-10 dataset", https://www.cs.toronto.edu/~kriz/cifar.html, section "Binary version". */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "data/data_paths.h"
#include "tandem/advanced/data.h"

enum { TANDEM_CIFAR_SIDE = 32, TANDEM_CIFAR_PIXELS = 3 * TANDEM_CIFAR_SIDE * TANDEM_CIFAR_SIDE };

/* A variant of the format. */
typedef struct tandem_cifar_kind {
    const char *name, *files; /* files: their names, for errors */
    int n_label; /* bytes of a record's labels, 1 or 2; the last one is used, which has n_class values */
    int n_class, n_coarse;
} tandem_cifar_kind;
enum { TANDEM_CIFAR_KINDS = 2 };
extern const tandem_cifar_kind tandem_cifar_kinds[TANDEM_CIFAR_KINDS]; /* CIFAR-10, CIFAR-100 */

/* Checks bytes[n] of a file, which the caller keeps, and sets the number of its images; `path` is for errors.
 * TANDEM_MALFORMED: no image, no whole number of records, or a label that the kind does not have. *n_image
 * unchanged on error. O(n). */
tandem_status tandem_cifar_count(int64_t *n_image, const tandem_cifar_kind *kind, const uint8_t *bytes,
                                 size_t n, const char *path, tandem_error *error);

/* Writes the images of checked bytes: pixels (n_image, 32, 32, 3) and label (n_image). */
void tandem_cifar_unpack(uint8_t *pixels, uint8_t *label, const tandem_cifar_kind *kind, const uint8_t *bytes,
                         int64_t n_image);

/* Whether the paths are files of CIFAR: a directory that has some of them, a file of a name that no other
 * format has, or a list of FILE.bin. */
int tandem_cifar_takes(const tandem_data_paths *paths);

/* Reads a directory with data_batch_1.bin to data_batch_5.bin and test_batch.bin, or train.bin and test.bin;
 * or a list of such files, of one kind and at least one for training and one for the test. Sets kind,
 * n_train, n_test, height, width, channels, n_class, pixels, labels, mean and deviation of *data.
 * TANDEM_MISSING: one of the files; TANDEM_USAGE: a list of other files; TANDEM_MALFORMED; errors of
 * tandem_data_file_read, whose limit holds for all files together. *data unchanged on error. */
tandem_status tandem_cifar_open(tandem_data *data, const tandem_data_paths *paths, tandem_error *error);
