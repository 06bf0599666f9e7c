/* images.h: what the formats of images share; tandem/advanced/data.h declares the reading of samples. */
#pragma once

#include "tandem/advanced/data.h"

/* Interleaved formats keep both parts in one array: every so manyth sample is of the test. */
enum { TANDEM_IMAGES_TEST_EVERY = 10 };

/* Sets mean and deviation of *data, whose other members are there: of the training pixels, bytes in [0, 1];
 * the deviation is 1 where all are equal. Those of bytes come from exact counts of their 256 values.
 * TANDEM_MALFORMED: a float that is not finite; `path` is for errors. *data unchanged on error. Cost: reading
 * the training part once, floats twice. */
tandem_status tandem_images_measure(tandem_data *data, const char *path, tandem_error *error);
