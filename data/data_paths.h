/* data_paths.h: the files or the directory that --data names. */
#pragma once

#include <limits.h>

#include "tandem/status.h"

enum { TANDEM_DATA_MAX_PATHS = 8 };

typedef struct tandem_data_path {
    char path[PATH_MAX];
    int is_directory;
} tandem_data_path;

typedef struct tandem_data_paths {
    int n; /* 1 … TANDEM_DATA_MAX_PATHS */
    tandem_data_path at[TANDEM_DATA_MAX_PATHS];
} tandem_data_paths;

/* Finds `source`, one path or several with commas between them, each as given or below $TANDEM_DATA. What is
 * there as given is one path, also with commas in its name. TANDEM_UNKNOWN_NAME: no such file, nor such a
 * data set; the error has the nearest name; TANDEM_USAGE: too many or too long; TANDEM_IO. *paths undefined
 * on error. */
tandem_status tandem_data_paths_find(tandem_data_paths *paths, const char *source, tandem_error *error);

/* Whether the name of a path ends so: ".bin". */
int tandem_data_path_ends(const tandem_data_path *path, const char *end);
