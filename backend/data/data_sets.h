/* data_sets.h: the directories of the named data sets. */
#pragma once

#include "tandem/advanced/data.h"

/* As tandem_data_find, but below the n given directories; NULL ones are ignored. */
tandem_status tandem_data_find_below(char *path, size_t size, const char *name, const char *const *directory,
                                     int n, tandem_error *error);
