/* data_sets.h: where the named data sets are, and what reads them. */
#pragma once

#include "tandem/advanced/data.h"

/* Reads what tandem_data_find found. `length` is ignored for images. */
typedef tandem_status tandem_data_reader(tandem_data *data, const char *path, int length,
                                         tandem_error *error);
/* NULL: no data set has this name. */
tandem_data_reader *tandem_data_set_reader(const char *name);

/* As tandem_data_find, but below the n given directories; NULL ones are ignored. */
tandem_status tandem_data_find_below(char *path, size_t size, const char *name, const char *const *directory,
                                     int n, tandem_error *error);
