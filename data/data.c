/* data.c: opens data sets, and gives each step its samples. */
#include "tandem/advanced/data.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/hash.h"
#include "data/data_sets.h"
#include "data/idx.h"
#include "data/text.h"

/* Finds a path as given, or below $TANDEM_DATA. */
static tandem_status locate_source(char *path, size_t size, struct stat *about, const char *source,
                                   tandem_error *error)
{
    const char *const base = getenv("TANDEM_DATA");
    int length = snprintf(path, size, "%s", source);
    if (length < 0 || (size_t)length >= size)
        return tandem_error_set(error, TANDEM_USAGE,
                                "The path of the data set has %zu bytes, at most %zu are allowed.",
                                strlen(source), size - 1);
    if (stat(path, about) == 0) return TANDEM_OK;
    const int cause = errno;
    if (base && base[0] && source[0] != '/') {
        length = snprintf(path, size, "%s/%s", base, source);
        if (length > 0 && (size_t)length < size && stat(path, about) == 0) return TANDEM_OK;
    }
    if (cause == ENOENT && !strchr(source, '/'))
        /* no data set has this name either; the error names the nearest */
        return tandem_data_find(path, size, source, error);
    return tandem_error_set(error, TANDEM_IO, "Cannot open the data set %.300s: %s.", source,
                            strerror(cause));
}

tandem_status tandem_data_open(tandem_data *data, const char *source, int length, tandem_error *error)
{
    char path[PATH_MAX];
    struct stat about;
    tandem_data result = {0};
    if (!source || !source[0])
        return tandem_error_set(
            error, TANDEM_USAGE,
            "No data set is named. Give %s, a directory with the four files of the MNIST family, or a text "
            "file.",
            tandem_data_set_at(0)->name);
    tandem_data_reader *const read = tandem_data_set_reader(source);
    tandem_status status = read ? tandem_data_find(path, sizeof path, source, error)
                                : locate_source(path, sizeof path, &about, source, error);
    if (status != TANDEM_OK) return status;
    if (read)
        status = read(&result, path, length, error);
    else if (S_ISDIR(about.st_mode))
        status = tandem_idx_open(&result, path, error);
    else
        status = tandem_text_open(&result, path, length, error);
    if (status != TANDEM_OK) return status;
    (void)snprintf(result.name, sizeof result.name, "%s", source);
    *data = result;
    return TANDEM_OK;
}

uint64_t tandem_data_hash(const tandem_data *data)
{
    const int64_t shape[] = {data->kind,     data->n_train, data->n_test,   data->height, data->width,
                             data->channels, data->n_class, data->n_symbol, data->n_text, data->length};
    const uint64_t of_pixels = (uint64_t)data->height * (uint64_t)data->width * (uint64_t)data->channels,
                   n_train = (uint64_t)data->n_train, n_test = (uint64_t)data->n_test;
    uint64_t hash = tandem_hash_bytes(TANDEM_HASH_START, shape, sizeof shape);
    if (data->pixels_train) hash = tandem_hash_bytes(hash, data->pixels_train, n_train * of_pixels);
    if (data->pixels_test) hash = tandem_hash_bytes(hash, data->pixels_test, n_test * of_pixels);
    if (data->labels_train) hash = tandem_hash_bytes(hash, data->labels_train, n_train);
    if (data->labels_test) hash = tandem_hash_bytes(hash, data->labels_test, n_test);
    if (data->text) hash = tandem_hash_bytes(hash, data->text, (uint64_t)data->n_text);
    return tandem_hash_bytes(hash, data->symbol, sizeof data->symbol);
}

void tandem_data_close(tandem_data *data)
{
    if (!data->is_shared) {
        free(data->pixels_train);
        free(data->pixels_test);
        free(data->labels_train);
        free(data->labels_test);
        free(data->text);
    }
    *data = (tandem_data){0};
}
