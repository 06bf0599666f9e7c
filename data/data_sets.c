/* data_sets.c: the table of named data sets, and where they are installed. */
#include "data/data_sets.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/nearest.h"
#include "data/bible.h"
#include "data/idx.h"
#include "data/wordnet.h"

typedef struct data_set_row {
    tandem_data_set set;
    const char *entry; /* of a directory: what the package installs */
    int is_file;
    const char *directory[2]; /* where packages install it; NULL: none */
    tandem_data_reader *read;
} data_set_row;

static tandem_status read_image_set(tandem_data *data, const char *path, int length, tandem_error *error)
{
    (void)length;
    return tandem_idx_open(data, path, error);
}

static const data_set_row sets[] = {
    {{"fashion-mnist", "dataset-fashion-mnist",
      "60000 + 10000 grey images, 28 × 28, of clothes in 10 classes", 0},
     "fashion-mnist",
     0,
     {"/usr/share/datasets", "/usr/local/share/datasets"},
     read_image_set},
    {{"bible-kjv-text", "bible-kjv-text", "the King James text, 4.4 million characters", 1},
     "bible.data",
     1,
     {"/usr/lib", NULL},
     tandem_bible_open},
    {{"wordnet-base", "wordnet-base", "117659 glosses of WordNet in the 45 classes of its source files", 1},
     "wordnet",
     0,
     {"/usr/share", NULL},
     tandem_wordnet_open},
};
enum { N_SET = sizeof sets / sizeof sets[0] };

const tandem_data_set *tandem_data_set_at(int i) { return i >= 0 && i < N_SET ? &sets[i].set : NULL; }

static const data_set_row *find_data_set(const char *name, tandem_hint *hint)
{
    const int found = tandem_name_find(name, &sets[0].set.name, N_SET, sizeof sets[0], hint);
    return found < 0 ? NULL : &sets[found];
}

tandem_data_reader *tandem_data_set_reader(const char *name)
{
    const data_set_row *const row = find_data_set(name, NULL);
    return row ? row->read : NULL;
}

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

static void print_set_names(char *text, size_t size)
{
    size_t used = 0;
    for (int i = 0; i < N_SET && used < size; i++) {
        const int n = snprintf(text + used, size - used, "%s%s", i ? ", " : "", sets[i].set.name);
        used += n > 0 ? (size_t)n : 0;
    }
}

tandem_status tandem_data_find_below(char *path, size_t size, const char *name, const char *const *directory,
                                     int n, tandem_error *error)
{
    tandem_hint hint;
    const data_set_row *const row = find_data_set(name, &hint);
    if (!row) {
        char names[200];
        print_set_names(names, sizeof names);
        return tandem_error_set(
            error, TANDEM_UNKNOWN_NAME,
            "\"%.200s\" is neither a data set nor a file or directory, here or in $TANDEM_DATA.%s A data set "
            "is %s, or files as \"tandem list datasets\" shows them.",
            name, hint.text, names);
    }
    for (int i = 0; i < n; i++) {
        char at[PATH_MAX];
        struct stat about;
        if (!directory[i] || !directory[i][0]) continue;
        const int length = snprintf(at, sizeof at, "%s/%s", directory[i], row->entry);
        if (length < 0 || (size_t)length >= sizeof at || (size_t)length >= size) continue;
        if (stat(at, &about) == 0 && (row->is_file ? S_ISREG(about.st_mode) : S_ISDIR(about.st_mode))) {
            memcpy(path, at, (size_t)length + 1);
            return TANDEM_OK;
        }
    }
    char tried[400];
    print_directories(tried, sizeof tried, directory, n, row->entry);
    return tandem_error_set(
        error, TANDEM_MISSING,
        "The data set %s is not installed: no %s %s. Install it with \"apt-get install %s\", or set "
        "TANDEM_DATA to the directory that holds %s.",
        name, row->is_file ? "file" : "directory", tried, row->set.package, row->entry);
}

tandem_status tandem_data_find(char *path, size_t size, const char *name, tandem_error *error)
{
    const data_set_row *const row = find_data_set(name, NULL);
    const char *const directory[] = {getenv("TANDEM_DATA"), row ? row->directory[0] : NULL,
                                     row ? row->directory[1] : NULL};
    return tandem_data_find_below(path, size, name, directory, 3, error);
}
