/* data_formats.h: the formats of files that people give a path of, and what reads them. */
#pragma once

#include "data/data_paths.h"
#include "tandem/advanced/data.h"

/* Reads what tandem_data_paths_find found, in the format of the first row that takes such paths. `length` as
 * for tandem_data_open, whose errors it has. *data unchanged on error. */
tandem_status tandem_data_formats_read(tandem_data *data, const tandem_data_paths *paths, int length,
                                       tandem_error *error);
