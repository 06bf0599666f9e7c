/* data_formats.c: the table of formats. */
#include "data/data_formats.h"

#include "data/cifar.h"
#include "data/idx.h"
#include "data/npy.h"
#include "data/text.h"
#include "data/tokens.h"
#include "data/tsv.h"

typedef struct data_format_row {
    tandem_data_format format;
    int (*takes)(const tandem_data_paths *paths);
    tandem_status (*read)(tandem_data *data, const tandem_data_paths *paths, int length, tandem_error *error);
} data_format_row;

static tandem_status read_cifar_files(tandem_data *data, const tandem_data_paths *paths, int length,
                                      tandem_error *error)
{
    (void)length;
    return tandem_cifar_open(data, paths, error);
}

static int is_one_directory(const tandem_data_paths *paths)
{
    return paths->n == 1 && paths->at[0].is_directory;
}

static tandem_status read_idx_directory(tandem_data *data, const tandem_data_paths *paths, int length,
                                        tandem_error *error)
{
    (void)length;
    return tandem_idx_open(data, paths->at[0].path, error);
}

static int is_one_file(const tandem_data_paths *paths) { return paths->n == 1 && !paths->at[0].is_directory; }

static tandem_status read_npy_files(tandem_data *data, const tandem_data_paths *paths, int length,
                                    tandem_error *error)
{
    (void)length;
    return tandem_npy_open(data, paths, error);
}

static int is_token_file(const tandem_data_paths *paths)
{
    return is_one_file(paths) &&
           (tandem_data_path_ends(&paths->at[0], ".bin") || tandem_data_path_ends(&paths->at[0], ".bin.gz"));
}

static tandem_status read_token_file(tandem_data *data, const tandem_data_paths *paths, int length,
                                     tandem_error *error)
{
    return tandem_tokens_open(data, paths->at[0].path, length, error);
}

static int is_tsv_file(const tandem_data_paths *paths)
{
    return is_one_file(paths) &&
           (tandem_data_path_ends(&paths->at[0], ".tsv") || tandem_data_path_ends(&paths->at[0], ".tsv.gz"));
}

static tandem_status read_tsv_file(tandem_data *data, const tandem_data_paths *paths, int length,
                                   tandem_error *error)
{
    return tandem_tsv_open(data, paths->at[0].path, length, error);
}

static tandem_status read_text_file(tandem_data *data, const tandem_data_paths *paths, int length,
                                    tandem_error *error)
{
    return tandem_text_open(data, paths->at[0].path, length, error);
}

/* The first row that takes the paths reads them. */
static const data_format_row formats[] = {
    {{"DIRECTORY or A.bin,B.bin",
      "images: CIFAR-10's data_batch_*.bin and test_batch.bin, or CIFAR-100's train.bin and test.bin"},
     tandem_cifar_takes,
     read_cifar_files},
    {{"DIRECTORY", "images: the four IDX files of the MNIST family, gzipped or not"},
     is_one_directory,
     read_idx_directory},
    {{"X.npy,Y.npy", "images or features of NumPy (float32, uint8), and their labels (int64, int32, uint8)"},
     tandem_npy_takes,
     read_npy_files},
    {{"FILE.bin", "token ids of nanoGPT (uint16) or llm.c (with its header, uint16 or uint32)"},
     is_token_file,
     read_token_file},
    {{"FILE.tsv", "texts with a label each, for head=class; its first line names the columns: label, text"},
     is_tsv_file,
     read_tsv_file},
    {{"FILE", "any other file is a text: each byte is a token, gzipped or not"}, is_one_file, read_text_file},
};
enum { N_FORMAT = sizeof formats / sizeof formats[0] };

const tandem_data_format *tandem_data_format_at(int i)
{
    return i >= 0 && i < N_FORMAT ? &formats[i].format : NULL;
}

tandem_status tandem_data_formats_read(tandem_data *data, const tandem_data_paths *paths, int length,
                                       tandem_error *error)
{
    for (int i = 0; i < N_FORMAT; i++)
        if (formats[i].takes(paths)) return formats[i].read(data, paths, length, error);
    return tandem_error_set(error, TANDEM_USAGE,
                            "No format of data has %d paths such as %.300s. Give one path, or files as "
                            "\"tandem list datasets\" shows them.",
                            paths->n, paths->at[0].path);
}
