/* fit.h: for readers of pixels: how many a stored image has, also where a fit shows them otherwise. */
#pragma once

#include "tandem/advanced/data.h"

static inline int64_t tandem_data_stored_pixels(const tandem_data *data)
{
    return data->stored ? data->stored : (int64_t)data->height * data->width * data->channels;
}
