/* data.h: data sets to train on, read from local files; nothing is downloaded. */
#ifndef TANDEM_DATA_H
#define TANDEM_DATA_H

#include <stddef.h>
#include <stdint.h>

#include "tandem/advanced/image_slots.h"
#include "tandem/status.h"

TANDEM_BEGIN_DECLARATIONS

typedef enum tandem_data_kind { TANDEM_DATA_IMAGES, TANDEM_DATA_TEXT } tandem_data_kind;

/* Numbers of a sample: n of them, whose pixels are `step` apart in the stored image; 0: the same one. */
typedef struct tandem_data_axis {
    int64_t n, step;
} tandem_data_axis;
enum { TANDEM_DATA_AXES = 3 };

/* A data set, in memory or mapped, read-only after opening; threads may share it. */
typedef struct tandem_data {
    tandem_data_kind kind;
    char name[128];              /* "fashion-mnist", or the given path, cut to fit */
    int64_t n_train, n_test;     /* images; text: windows of `length` + 1 characters, `length` apart */
    int height, width, channels; /* images: float pixels, channels last, normalised by mean and deviation of
                                    the training set */
    int n_class;  /* labels 0 … n_class−1: of images; of a text that has classes; else n_symbol */
    int n_symbol; /* text: size of the alphabet; of token ids: the largest one + 1 */
    int is_flat;  /* images: a sample is `width` numbers without places, height and channels are 1 */
    /* private */
    uint8_t *pixels_train, *pixels_test; /* (n, height, width, channels) */
    uint8_t *labels_train, *labels_test; /* (n); NULL: a text without classes */
    int is_f32;         /* images: a pixel is a float of four bytes, least significant first */
    int label_bytes;    /* 2: of a label, least significant first; 0: a label is a byte */
    int is_interleaved; /* images: every tenth one of pixels_train and labels_train is of the test */
    /* (n_text) symbols; the last tenth is the test part, or, with classes, what follows n_train samples */
    uint8_t *text;
    int64_t n_text;
    int64_t *start;  /* texts of lines: (n_train + n_test + 1) where each begins; NULL: one text in windows */
    int token_bytes; /* text: 2, 4: of a token id, least significant first; 0: symbols of a byte */
    const uint8_t
        *mapped; /* (n_mapped) a file's bytes, with pixels_train or `text` in them; NULL: allocated */
    size_t n_mapped;
    int length;            /* text: characters per sample */
    float mean, deviation; /* of the training pixels, bytes in [0, 1]; deviation is 1 where all are equal */
    int is_shared;         /* 1: a copy of one that stays open; closing it frees nothing */
    /* set by data_fit: pixels of a stored image, 0: height·width·channels; whether a sample has them
     * in another order, and which, outermost first */
    int64_t stored;
    int is_reordered;
    tandem_data_axis axis[TANDEM_DATA_AXES];
    uint8_t symbol[256]; /* text: byte → symbol, in order of byte value; 0 for bytes that do not occur */
} tandem_data;

/* tandem_data_open: reads `source`: the name of a data set below; or a directory with the four IDX files
 * of the MNIST family (train-images-idx3-ubyte and so on, gzipped or not; images may have a fourth
 * dimension, the channels); or a directory or a list, with commas, of CIFAR's binary files; or
 * X.npy,Y.npy: samples and labels of NumPy; or FILE.bin of token ids, as nanoGPT and llm.c write them; or
 * FILE.tsv of texts with labels; or a text file of any bytes, gzipped or not. `length` ≥ 1: characters or
 * tokens per sample; ignored for images. A path is tried as given, then below $TANDEM_DATA. Token ids and
 * samples of NumPy stay in the file, which is mapped; of others it reads at most 1 GiB.
 * TANDEM_UNKNOWN_NAME: the error gives the nearest name; TANDEM_MISSING: the package is not installed, or
 * a directory lacks one of the files; TANDEM_MALFORMED: a file is cut short, has the wrong magic or
 * inconsistent counts, a label, token id or number is not allowed, or a text has fewer than 10·(length+1)
 * bytes or tokens; TANDEM_USAGE: a length below 1, no source, or a list that no format has; TANDEM_IO;
 * TANDEM_NO_MEMORY. *data unchanged on error. Cost: reading and decompressing; fashion-mnist takes some
 * tenths of a second and 55 MB. */
tandem_status tandem_data_open(tandem_data *data, const char *source, int length, tandem_error *error);
/* A hash of all samples, labels and their shape: two data sets with the same hash are the same, under any
 * name. Cost: reading them once. */
uint64_t tandem_data_hash(const tandem_data *data);
void tandem_data_close(tandem_data *data); /* an all-zero one is fine, and is what it leaves */

/* The named data sets, one row each; tandem_data_set_at(i) is NULL after the last. */
typedef struct tandem_data_set {
    const char *name;    /* "fashion-mnist" */
    const char *package; /* Debian's package that installs it */
    const char *text;    /* a short description */
    int is_optional;     /* the project's set-up leaves it out */
} tandem_data_set;
const tandem_data_set *tandem_data_set_at(int i);

/* The formats of files that `source` may name, one row each, in the order in which they are tried;
 * tandem_data_format_at(i) is NULL after the last. */
typedef struct tandem_data_format {
    const char *given; /* "FILE.bin": how its paths look */
    const char *text;  /* a short description */
} tandem_data_format;
const tandem_data_format *tandem_data_format_at(int i);

/* tandem_data_find: writes the path of the data set `name` to path[size], below $TANDEM_DATA or where
 * Debian's package installs it: a directory, or the file bible.data. Errors of tandem_data_open; path
 * unchanged on error. */
tandem_status tandem_data_find(char *path, size_t size, const char *name, tandem_error *error);

/* tandem_data_order: the order of the training samples in one epoch: a permutation of 0 … n−1 that depends
 * only on seed and epoch (Fisher–Yates with Philox, purpose TANDEM_RNG_SHUFFLE; all permutations equally
 * likely to within n/2^64). order[n], n ≤ 2^32. O(n). */
void tandem_data_order(int64_t *order, int64_t n, uint64_t seed, int64_t epoch);

/* tandem_data_sample: the training sample at `position` (0 … global_batch−1) of step `step`. Epochs of
 * n_train samples are cut into global batches; an incomplete last batch is dropped. The order depends on the
 * global batch alone, so two ranks of 8 see the samples of one rank of 16: rank r with batch b_r has
 * positions Σ_{q<r} b_q …. `cursor` caches the permutation between calls: start with {0}; free it with
 * tandem_data_cursor_free; one per thread. TANDEM_MALFORMED: the data set is smaller than a batch;
 * TANDEM_USAGE: step, batch or position out of range; TANDEM_NO_MEMORY. *sample and *cursor unchanged on
 * error. O(1), but O(n_train) for the first of an epoch. */
typedef struct tandem_data_cursor {
    int64_t *order; /* (n) */
    int64_t epoch;  /* epoch, seed and n of `order` */
    uint64_t seed;
    int64_t n;
} tandem_data_cursor;
tandem_status tandem_data_sample(int64_t *sample, tandem_data_cursor *cursor, const tandem_data *data,
                                 uint64_t seed, int64_t step, int64_t global_batch, int64_t position,
                                 tandem_error *error);
void tandem_data_cursor_free(tandem_data_cursor *cursor);

/* Writes one sample. images: x (height·width·channels) floats, label one int. text: tokens (length) ints and
 * label (length) ints, the next tokens; sample s is the text from s·length on. test = 0: the training part;
 * 1: the test part; sample lies in 0 … n_train−1 or n_test−1. Thread-safe. */
void tandem_data_read_image(const tandem_data *data, int test, int64_t sample, float *x, int32_t *label);
void tandem_data_read_text(const tandem_data *data, int test, int64_t sample, int32_t *tokens,
                           int32_t *label);

/* Writes an image in another size: x (height·width·channels), bilinear between the pixels' centres, constant
 * beyond the outermost ones. A grey image fills every channel; else `channels` must be the data's. */
void tandem_data_read_resized(const tandem_data *data, int test, int64_t sample, int height, int width,
                              int channels, float *x, int32_t *label);

/* Of a resized image: where each of n rows (or columns) lies among the `size` ones of the data set's. */
void tandem_data_blends(tandem_pixel_blend *blend, int64_t n, int64_t size);

/* A training image of bytes as it is kept: pixels (height·width·channels) bytes of the data set's size, which
 * are not normalised, in the order of data_fit; and its label. */
void tandem_data_read_pixels(const tandem_data *data, int64_t sample, uint8_t *pixels, int32_t *label);

/* A text sample with one label: its class or, in a text without classes, the character after its last one. */
void tandem_data_read_text_class(const tandem_data *data, int test, int64_t sample, int32_t *tokens,
                                 int32_t *label);

/* tandem_data_mask: masks n of `length` tokens (n ≤ length), which the model predicts from the others.
 * Labels become the token at masked positions, −1 elsewhere. A masked token becomes `mask` with probability
 * 0.8, one of 0 … n_symbol−1 with 0.1, and stays with 0.1. All choices of positions are equally likely; the
 * choice depends on seed and sample alone (Philox, TANDEM_RNG_MASK). Source: Devlin et al., NAACL 2019,
 * section 3.1. O(length). */
void tandem_data_mask(int32_t *tokens, int32_t *label, int64_t length, int64_t n, int32_t mask,
                      int64_t n_symbol, uint64_t seed, int64_t sample);

TANDEM_END_DECLARATIONS
#endif
