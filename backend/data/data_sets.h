/* data_sets.h: where the data sets with a name lie. */
#ifndef TANDEM_BACKEND_DATA_FIND_H
#define TANDEM_BACKEND_DATA_FIND_H

#include "tandem/data.h"

/* tandem_data_find_below: as tandem_data_find, but below the given directories: `n` of them, NULL ones are
 * passed over. */
tandem_status tandem_data_find_below(char *path, size_t size, const char *name, const char *const *directory,
                                     int n, tandem_error *error);

#endif
