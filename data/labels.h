/* labels.h: the labels of samples, in one byte or two. */
#pragma once

#include "data/little_endian.h"
#include "tandem/advanced/data.h"

/* Label `at` of the training part, or of the test's. */
static inline int32_t tandem_data_label(const tandem_data *data, int test, int64_t at)
{
    const uint8_t *const labels = test ? data->labels_test : data->labels_train;
    return data->label_bytes == 2 ? tandem_le16(labels + 2 * at) : labels[at];
}
