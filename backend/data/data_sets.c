/* data_sets.c: the table of named data sets, and where they are installed. */
#include "backend/data/data_sets.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/nearest.h"

static const tandem_data_set sets[] = {
    {"fashion-mnist", "dataset-fashion-mnist",
     "60000 + 10000 grey images, 28 × 28, of clothes in 10 classes"},
};
enum { N_SET = sizeof sets / sizeof sets[0] };

const tandem_data_set *tandem_data_set_at(int i) { return i >= 0 && i < N_SET ? &sets[i] : NULL; }

/* Lists the directories for the error, cut to fit. */
static void print_directories(char *text, size_t size, const char *const *directory, int n, const char *name)
{
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < n && used < size; i++)
        if (directory[i]) {
            const int length =
                snprintf(text + used, size - used, "%s%s/%s", used ? ", " : "", directory[i], name);
            used += length > 0 ? (size_t)length : 0;
        }
}

tandem_status tandem_data_find_below(char *path, size_t size, const char *name, const char *const *directory,
                                     int n, tandem_error *error)
{
    tandem_hint hint;
    const int found = tandem_name_find(name, &sets[0].name, N_SET, sizeof sets[0], &hint);
    if (found < 0)
        return tandem_error_set(
            error, TANDEM_UNKNOWN_NAME,
            "\"%.200s\" is neither a data set nor a file or directory, here or in $TANDEM_DATA.%s A data set "
            "is %s, a directory with the four files of the MNIST family, or a text file.",
            name, hint.text, sets[0].name);
    for (int i = 0; i < n; i++) {
        char at[PATH_MAX];
        struct stat about;
        if (!directory[i] || !directory[i][0]) continue;
        const int length = snprintf(at, sizeof at, "%s/%s", directory[i], name);
        if (length < 0 || (size_t)length >= sizeof at || (size_t)length >= size) continue;
        if (stat(at, &about) == 0 && S_ISDIR(about.st_mode)) {
            memcpy(path, at, (size_t)length + 1);
            return TANDEM_OK;
        }
    }
    char tried[400];
    print_directories(tried, sizeof tried, directory, n, name);
    return tandem_error_set(
        error, TANDEM_MISSING,
        "The data set %s is not installed: no directory %s. Install it with \"apt-get install %s\", or set "
        "TANDEM_DATA to the directory that holds %s.",
        name, tried, sets[found].package, name);
}

tandem_status tandem_data_find(char *path, size_t size, const char *name, tandem_error *error)
{
    const char *const directory[] = {getenv("TANDEM_DATA"), "/usr/share/datasets",
                                     "/usr/local/share/datasets"};
    return tandem_data_find_below(path, size, name, directory, 3, error);
}
