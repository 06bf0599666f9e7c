/* images.h: what the formats of images share; tandem/advanced/data.h declares the reading of samples. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "tandem/advanced/data.h"

/* Sets mean and deviation of *data: of the n_pixel > 0 training pixels, in [0, 1], from exact counts of their
 * 256 values; the deviation is 1 where all are equal. */
void tandem_images_measure(tandem_data *data, const uint8_t *pixel, size_t n_pixel);
