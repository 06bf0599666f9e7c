/* folder: backend */
/* Data sets: IDX images, texts, the order of samples; the real Fashion-MNIST where it is installed. */
#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include <zlib.h>

#include "backend/executor/fit_data.h"
#include "data/data_file.h"
#include "data/data_sets.h"
#include "data/idx.h"
#include "tandem/advanced/data.h"
#include "tests/support/scratch_files.h"
#include "tests/support/tandem_test.h"

static void assert_near_data(double got, double expected, double within)
{
    if (!(fabs(got - expected) <= within)) fail_msg("got %.9g, expected %.9g", got, expected);
}

/* ---- a folder of its own for each test ----------------------------------------------------------------- */

typedef struct folder {
    char path[256];
} folder;

static int make_folder_data(void **state)
{
    folder *const f = calloc(1, sizeof *f);
    const char *const base = getenv("TMPDIR");
    if (!f) return -1;
    (void)snprintf(f->path, sizeof f->path, "%s/tandem-data-XXXXXX", base && *base ? base : "/tmp");
    *state = f;
    unsetenv("TANDEM_DATA");
    return mkdtemp(f->path) ? 0 : -1;
}

static int remove_folder_data(void **state)
{
    folder *const f = *state;
    empty_folder(f->path);
    (void)rmdir(f->path);
    free(f);
    unsetenv("TANDEM_DATA");
    return 0;
}

static const char *in(const folder *f, const char *name)
{
    static char path[4][600];
    static int turn;
    char *const p = path[turn++ % 4];
    (void)snprintf(p, sizeof path[0], "%s/%s", f->path, name);
    return p;
}

static void write_gzip(const char *path, const void *bytes, size_t n)
{
    const gzFile file = gzopen(path, "wb6");
    assert_non_null(file);
    assert_int_equal(gzwrite(file, bytes, (unsigned)n), n);
    assert_int_equal(gzclose(file), Z_OK);
}

static size_t read_file_data(const char *path, uint8_t *bytes, size_t most)
{
    FILE *const file = fopen(path, "rb");
    assert_non_null(file);
    const size_t n = fread(bytes, 1, most, file);
    assert_int_equal(fclose(file), 0);
    assert_true(n < most);
    return n;
}

/* ---- a small set: 12 training images of 2 × 3, 2 test images ------------------------------------------- */

enum { N_TRAIN = 12, N_TEST = 2, N_PIXEL = 6 };

typedef struct small_set {
    uint8_t train_images[16 + N_TRAIN * N_PIXEL], train_labels[8 + N_TRAIN];
    uint8_t test_images[16 + N_TEST * N_PIXEL], test_labels[8 + N_TEST];
} small_set;

static void put_header(uint8_t *at, int n_dimension, int n)
{
    const uint8_t header[16] = {0, 0, 8, (uint8_t)n_dimension, 0, 0, 0, (uint8_t)n, 0, 0, 0, 2, 0, 0, 0, 3};
    memcpy(at, header, 4 + 4 * (size_t)n_dimension);
}

/* Pixel k of training image i is 6·i + k; label i mod 10. Test pixels are 255, labels 3 and 9. */
static small_set small(void)
{
    small_set s;
    put_header(s.train_images, 3, N_TRAIN);
    put_header(s.train_labels, 1, N_TRAIN);
    put_header(s.test_images, 3, N_TEST);
    put_header(s.test_labels, 1, N_TEST);
    for (int i = 0; i < N_TRAIN * N_PIXEL; i++) s.train_images[16 + i] = (uint8_t)i;
    for (int i = 0; i < N_TRAIN; i++) s.train_labels[8 + i] = (uint8_t)(i % 10);
    memset(s.test_images + 16, 255, N_TEST * N_PIXEL);
    s.test_labels[8] = 3;
    s.test_labels[9] = 9;
    return s;
}

static const char train_images[] = "train-images-idx3-ubyte", train_labels[] = "train-labels-idx1-ubyte";
static const char test_images[] = "t10k-images-idx3-ubyte", test_labels[] = "t10k-labels-idx1-ubyte";

static void write_small(const folder *f, const small_set *s)
{
    write_test_file(in(f, train_images), s->train_images, sizeof s->train_images);
    write_test_file(in(f, train_labels), s->train_labels, sizeof s->train_labels);
    write_test_file(in(f, test_images), s->test_images, sizeof s->test_images);
    write_test_file(in(f, test_labels), s->test_labels, sizeof s->test_labels);
}

static void check_small(const tandem_data *data)
{
    assert_int_equal(data->kind, TANDEM_DATA_IMAGES);
    assert_int_equal(data->n_train, N_TRAIN);
    assert_int_equal(data->n_test, N_TEST);
    assert_int_equal(data->height, 2);
    assert_int_equal(data->width, 3);
    assert_int_equal(data->channels, 1);
    assert_int_equal(data->n_class, 10);
    /* 0 … 71: mean 35.5, variance (72² − 1) / 12 */
    const double mean = 35.5, deviation = sqrt((72.0 * 72.0 - 1) / 12);
    assert_near_data(data->mean, mean / 255, 1e-7);
    assert_near_data(data->deviation, deviation / 255, 1e-7);
    float x[N_PIXEL + 1];
    int32_t label;
    for (int i = 0; i < N_TRAIN; i++) {
        x[N_PIXEL] = 77;
        tandem_data_read_image(data, 0, i, x, &label);
        assert_int_equal(label, i % 10);
        for (int k = 0; k < N_PIXEL; k++) assert_near_data(x[k], (N_PIXEL * i + k - mean) / deviation, 1e-5);
        assert_true(x[N_PIXEL] == 77);
    }
    tandem_data_read_image(data, 1, 1, x, &label);
    assert_int_equal(label, 9);
    assert_near_data(x[0], (255 - mean) / deviation, 1e-5);
}

static void images_are_read_plain_or_gzipped(void **state)
{
    const folder *const f = *state;
    const small_set s = small();
    tandem_data data = {0};
    tandem_error error = {0};
    write_small(f, &s);
    assert_int_equal(tandem_data_open(&data, f->path, 0, &error), TANDEM_OK);
    check_small(&data);
    assert_string_equal(data.name, f->path);
    tandem_data_close(&data);
    assert_null(data.pixels_train);

    assert_int_equal(unlink(in(f, train_images)), 0);
    assert_int_equal(unlink(in(f, test_labels)), 0);
    write_gzip(in(f, "train-images-idx3-ubyte.gz"), s.train_images, sizeof s.train_images);
    write_gzip(in(f, "t10k-labels-idx1-ubyte.gz"), s.test_labels, sizeof s.test_labels);
    assert_int_equal(tandem_data_open(&data, f->path, 0, &error), TANDEM_OK);
    check_small(&data);
    tandem_data_close(&data);
    tandem_data_close(&data);
}

static void colour_images_have_channels_and_labels_more_classes(void **state)
{
    const folder *const f = *state;
    small_set s = small();
    uint8_t colour[20 + 12 * 2 * 2 * 3] = {0, 0, 8, 4, 0, 0, 0, 12, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 3};
    uint8_t colour_test[20 + 2 * 2 * 2 * 3] = {0, 0, 8, 4, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 3};
    memset(colour + 20, 50, sizeof colour - 20);
    s.train_labels[8 + 4] = 25;
    write_small(f, &s);
    write_test_file(in(f, train_images), colour, sizeof colour);
    write_test_file(in(f, test_images), colour_test, sizeof colour_test);
    tandem_data data = {0};
    assert_int_equal(tandem_data_open(&data, f->path, 0, NULL), TANDEM_OK);
    assert_int_equal(data.height, 2);
    assert_int_equal(data.width, 2);
    assert_int_equal(data.channels, 3);
    assert_int_equal(data.n_class, 26);
    assert_true(data.deviation == 1.0f); /* all pixels are equal: nothing to divide by */
    float x[12];
    int32_t label;
    tandem_data_read_image(&data, 0, 4, x, &label);
    assert_true(x[11] == 0.0f);
    assert_int_equal(label, 25);
    tandem_data_close(&data);
}

/* Row of n values, 0 … 255, as a data set of one grey image of `height` rows. */
static tandem_data one_image(uint8_t *pixels, uint8_t *label, int height, int width, int channels)
{
    return (tandem_data){.kind = TANDEM_DATA_IMAGES,
                         .n_train = 1,
                         .height = height,
                         .width = width,
                         .channels = channels,
                         .pixels_train = pixels,
                         .labels_train = label,
                         .mean = 0,
                         .deviation = 1.0f / 255}; /* so that numbers are pixels */
}

static void images_are_resized_between_the_centres_of_pixels(void **state)
{
    uint8_t row[2] = {10, 50}, square[4] = {0, 100, 200, 60}, colour[6] = {1, 2, 3, 101, 102, 103},
            label[1] = {7};
    float x[64];
    int32_t got = 0;
    tandem_data data = one_image(row, label, 1, 2, 1);
    tandem_data_read_resized(&data, 0, 0, 1, 4, 1, x, &got); /* centres at −¼, ¼, ¾, 1¼ of the old ones */
    const double four[] = {10, 20, 40, 50};
    for (int i = 0; i < 4; i++) assert_near_data(x[i], four[i], 1e-4);
    assert_int_equal(got, 7);
    x[1] = 77;
    tandem_data_read_resized(&data, 0, 0, 1, 1, 1, x, &got); /* the middle */
    assert_near_data(x[0], 30, 1e-4);
    assert_true(x[1] == 77);
    data = one_image(square, label, 2, 2, 1);
    tandem_data_read_resized(&data, 0, 0, 3, 3, 3, x, &got); /* grey in every channel */
    const double nine[] = {0, 50, 100, 100, 90, 80, 200, 130, 60};
    for (int i = 0; i < 27; i++) assert_near_data(x[i], nine[i / 3], 1e-4);
    data = one_image(colour, label, 1, 2, 3);
    tandem_data_read_resized(&data, 0, 0, 2, 2, 3, x, &got);
    for (int i = 0; i < 12; i++) assert_near_data(x[i], colour[i % 6], 1e-4);
    /* in its own size an image is what it is */
    float plain[4], same[4];
    data = one_image(square, label, 2, 2, 1);
    tandem_data_read_image(&data, 0, 0, plain, &got);
    tandem_data_read_resized(&data, 0, 0, 2, 2, 1, same, &got);
    assert_memory_equal(plain, same, sizeof plain);
}

/* ---- what a model takes -------------------------------------------------------------------------------- */

typedef struct taking_model {
    tandem_graph graph;
    tandem_op op[1];
    tandem_weight_source source; /* of a model from a file */
} taking_model;

/* The input of a model: its sample as a file has it, and as it lies in memory. */
static void take_sample(taking_model *m, tandem_sample_layout layout, int n_dim, const int64_t *dim)
{
    const int64_t one[3] = {1, 1, 1};
    int64_t n = 1;
    *m = (taking_model){.graph = {.batch = 2, .n_class = 10, .length = 1, .n_op = 1}};
    m->graph.op = m->op;
    m->graph.source = &m->source;
    m->graph.sample = (tandem_sample){.layout = layout, .n_dim = n_dim};
    for (int d = 0; d < n_dim; d++) m->graph.sample.dim[d] = dim[d], n *= dim[d];
    const int64_t *const d = n_dim == 3 ? dim : one;
    const int64_t last[3] = {d[0], d[1], d[2]}, first[3] = {d[1], d[2], d[0]}, row[3] = {1, 1, n};
    const int64_t *const memory = layout == TANDEM_SAMPLE_CHANNELS_LAST    ? last
                                  : layout == TANDEM_SAMPLE_CHANNELS_FIRST ? first
                                                                           : row;
    m->op[0].shape = (tandem_shape){4, {2, memory[0], memory[1], memory[2]}};
    m->op[0].dtype = TANDEM_F32;
}

static void check_fitted_image(const tandem_data *of, tandem_sample_layout layout, int n_dim,
                               const int64_t *dim, int n, const int *wanted, const char *said)
{
    taking_model m;
    tandem_data data = *of;
    tandem_error error = {0};
    char text[TANDEM_DATA_SAID] = "-";
    float x[64];
    uint8_t pixels[64];
    int32_t label = -1;
    take_sample(&m, layout, n_dim, dim);
    assert_int_equal(tandem_data_fit(&data, &m.graph, text, &error), TANDEM_OK);
    tandem_data_read_image(&data, 0, 1, x, &label);
    for (int i = 0; i < n; i++) assert_near_data(x[i], wanted[i], 1e-4);
    assert_int_equal(label, 8);
    tandem_data_read_pixels(&data, 1, pixels, &label);
    for (int i = 0; i < n; i++) assert_int_equal(pixels[i], wanted[i]);
    tandem_data_read_image(&data, 1, 0, x, &label);
    for (int i = 0; i < n; i++) assert_near_data(x[i], wanted[i], 1e-4);
    assert_int_equal(strcmp(text, said) == 0 || (*said && strstr(text, said)), 1);
    /* what was fitted stays so, and fits no other model */
    const tandem_data before = data;
    assert_int_equal(tandem_data_fit(&data, &m.graph, text, &error), TANDEM_OK);
    assert_memory_equal(&before, &data, sizeof data);
    m.op[0].shape.dim[3]++;
    assert_int_equal(tandem_data_fit(&data, &m.graph, text, &error), TANDEM_USAGE);
}

static void numbers_of_an_image_have_the_order_of_the_model(void **state)
{
    static const tandem_sample_layout FIRST = TANDEM_SAMPLE_CHANNELS_FIRST,
                                      LAST = TANDEM_SAMPLE_CHANNELS_LAST, ROW = TANDEM_SAMPLE_NUMBERS;
    /* two images of 2 rows, 2 columns and 3 channels; the second is 1 … 12 */
    uint8_t colour[24] = {0}, grey[12] = {0}, label[2] = {7, 8};
    for (int i = 0; i < 12; i++) colour[12 + i] = (uint8_t)(i + 1);
    for (int i = 0; i < 6; i++) grey[6 + i] = (uint8_t)(i + 1);
    tandem_data data = one_image(colour, label, 2, 2, 3);
    data.pixels_test = colour + 12;
    static const int as_stored[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12},
                     by_channel[12] = {1, 4, 7, 10, 2, 5, 8, 11, 3, 6, 9, 12};
    uint8_t test_label[1] = {8};
    data.labels_test = test_label;
    data.n_train = 2;
    const int64_t first[3] = {3, 2, 2}, last[3] = {2, 2, 3}, flat = 12, split[2] = {3, 4}, mixed[2] = {4, 3};
    check_fitted_image(&data, FIRST, 3, first, 12, as_stored, ""); /* memory has channels last */
    check_fitted_image(&data, LAST, 3, last, 12, as_stored, "");
    check_fitted_image(&data, ROW, 3, first, 12, by_channel, "taken as 3 × 2 × 2 (channels first)");
    check_fitted_image(&data, ROW, 3, last, 12, as_stored, "taken as 2 × 2 × 3 (channels last)");
    check_fitted_image(&data, ROW, 1, &flat, 12, by_channel, "taken as 12 (flattened, channel by channel)");
    check_fitted_image(&data, ROW, 2, split, 12, by_channel, "taken as 3 × 4 (channels × pixels)");
    check_fitted_image(&data, ROW, 2, mixed, 12, as_stored, "taken as 4 × 3 (pixels × channels)");
    /* a file whose images have channels last: memory has columns, channels, rows */
    static const int turned[12] = {1, 7, 2, 8, 3, 9, 4, 10, 5, 11, 6, 12};
    check_fitted_image(&data, FIRST, 3, last, 12, turned, "taken as 2 × 2 × 3 (channels last)");
    data = one_image(grey, label, 2, 3, 1);
    data.pixels_test = grey + 6;
    data.labels_test = test_label;
    data.n_train = 2;
    const int64_t rows[3] = {2, 3, 1}, six[2] = {1, 6}, three[3] = {3, 2, 3}, deep[4] = {1, 2, 1, 3};
    static const int filled[18] = {1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4, 5, 5, 5, 6, 6, 6},
                     thrice[18] = {1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6},
                     columns[6] = {1, 4, 2, 5, 3, 6};
    check_fitted_image(&data, ROW, 2, rows, 6, as_stored, "taken as 2 × 3 (row by row)");
    check_fitted_image(&data, ROW, 2, six, 6, as_stored, "taken as 1 × 6 (flattened, row by row)");
    check_fitted_image(&data, ROW, 4, deep, 6, as_stored, "taken as 1 × 2 × 1 × 3 (row by row)");
    check_fitted_image(&data, FIRST, 3, rows, 6, columns, "taken as 2 × 3 × 1 (row by row)");
    check_fitted_image(&data, FIRST, 3, three, 18, filled, "(channels first, grey in every channel)");
    check_fitted_image(&data, ROW, 3, three, 18, thrice, "(channels first, grey in every channel)");
}

static void images_that_are_no_such_samples_are_refused_with_both_shapes(void **state)
{
    static const struct {
        tandem_sample_layout layout;
        int n_dim, channels; /* of the data's images of 8 × 8 */
        int64_t dim[4], length, n_class;
        const char *has, *also;
    } cases[] = {
        {TANDEM_SAMPLE_NUMBERS, 1, 1, {20}, 1, 10, "samples of 20,", "8 × 8 × 1"},
        {TANDEM_SAMPLE_NUMBERS, 0, 1, {0}, 1, 10, "samples of 1,", "8 × 8 × 1"},
        {TANDEM_SAMPLE_NUMBERS, 2, 1, {4, 16}, 1, 10, "samples of 4 × 16,", "8 × 8 × 1"},
        {TANDEM_SAMPLE_NUMBERS, 1, 1, {192}, 1, 10, "samples of 192,", "8 × 8 × 1"},
        {TANDEM_SAMPLE_SEVERAL, 1, 1, {64}, 1, 10, "64 numbers in several inputs", "8 × 8 × 1"},
        {TANDEM_SAMPLE_CHANNELS_FIRST, 3, 1, {2, 8, 8}, 1, 10, "2 × 8 × 8 (channels", "8 × 8 × 1"},
        {TANDEM_SAMPLE_CHANNELS_FIRST, 3, 3, {1, 8, 8}, 1, 10, "1 × 8 × 8 (channels", "8 × 8 × 3"},
        {TANDEM_SAMPLE_CHANNELS_FIRST, 3, 1, {1, 1, 16}, 1, 10, "1 × 1 × 16", "8 × 8 × 1"},
        {TANDEM_SAMPLE_CHANNELS_FIRST, 3, 1, {1, 8, 17}, 1, 10, "1 × 8 × 17", "batch × 1 × 8 × 8"},
        {TANDEM_SAMPLE_CHANNELS_FIRST, 3, 1, {1, 8, 8}, 64, 10, "one label for each image", "predicts 64"},
        {TANDEM_SAMPLE_CHANNELS_FIRST, 3, 1, {1, 8, 8}, 1, 9, "has 10 classes", "9 outputs"},
    };
    uint8_t pixels[192] = {0}, label[1] = {1};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        taking_model m;
        tandem_error error = {0};
        char said[TANDEM_DATA_SAID] = "unchanged";
        tandem_data data = one_image(pixels, label, 8, 8, cases[i].channels);
        data.n_class = 10;
        const tandem_data before = data;
        take_sample(&m, cases[i].layout, cases[i].n_dim, cases[i].dim);
        m.graph.length = cases[i].length;
        m.graph.n_class = cases[i].n_class;
        assert_int_equal(tandem_data_fit(&data, &m.graph, said, &error), TANDEM_MALFORMED);
        assert_non_null(strstr(error.text, cases[i].has));
        assert_non_null(strstr(error.text, cases[i].also));
        assert_memory_equal(&before, &data, sizeof data);
        assert_string_equal(said, "unchanged");
    }
}

static void a_text_fits_a_model_of_its_length_and_alphabet(void **state)
{
    static const struct {
        int64_t length, n_class, vocabulary, taken;
        const char *has; /* NULL: it fits */
    } cases[] = {
        {6, 4, 4, 6, NULL},
        {1, 4, 4, 6, NULL},
        {3, 4, 4, 6, "predicts 3 characters of a sample of 6"},
        {6, 3, 4, 6, "has 4 classes or characters"},
        {6, 4, 3, 6, "the vocabulary of model '' has room for 3"},
        {6, 4, 4, 7, "takes samples of 7 characters"},
    };
    uint8_t text[] = "abcdabcdabcdabcd";
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        taking_model m;
        tandem_error error = {0};
        const tandem_data opened = {
            .kind = TANDEM_DATA_TEXT, .length = 6, .n_symbol = 4, .n_class = 4, .text = text, .n_text = 16};
        tandem_data data = opened;
        take_sample(&m, TANDEM_SAMPLE_CHANNELS_LAST, 1, &cases[i].taken);
        m.op[0].shape = (tandem_shape){2, {2, cases[i].taken}};
        m.op[0].dtype = TANDEM_S32;
        m.graph.length = cases[i].length;
        m.graph.n_class = cases[i].n_class;
        m.graph.vocabulary = cases[i].vocabulary;
        const tandem_status status = tandem_data_fit(&data, &m.graph, NULL, &error);
        assert_int_equal(status, cases[i].has ? TANDEM_MALFORMED : TANDEM_OK);
        if (cases[i].has) assert_non_null(strstr(error.text, cases[i].has));
    }
}

/* ---- what must be refused ------------------------------------------------------------------------------ */

static void refused_data(const char *source, int length, tandem_status expected, const char *first,
                         const char *second)
{
    tandem_data data, before;
    tandem_error error = {0};
    memset(&data, 0x5a, sizeof data);
    memcpy(&before, &data, sizeof data);
    const tandem_status status = tandem_data_open(&data, source, length, &error);
    if (status != expected)
        fail_msg("%s: got %s (%s), expected %s", source ? source : "NULL", tandem_status_name(status),
                 error.text, tandem_status_name(expected));
    assert_int_equal(error.status, expected);
    if (!strstr(error.text, first) || !strstr(error.text, second))
        fail_msg("\"%s\" lacks \"%s\" or \"%s\"", error.text, first, second);
    assert_memory_equal(&data, &before, sizeof data);
}

static void damaged_images_are_refused(void **state)
{
    const folder *const f = *state;
    small_set s = small();
    const struct {
        const char *file;
        uint8_t *byte;
        uint8_t value;
        const char *first, *second;
    } cases[] = {
        {train_images, &s.train_images[0], 1, train_images, "magic is 0x01000803"},
        {train_images, &s.train_images[2], 13, train_images, "type 0x0d"},
        {train_images, &s.train_images[3], 0, train_images, "0 dimensions"},
        {train_images, &s.train_images[3], 5, train_images, "5 dimensions"},
        {train_images, &s.train_images[3], 2, train_images, "is too long: got 88 bytes, expected 36"},
        {train_images, &s.train_images[7], 13, train_images, "is cut short: got 88 bytes, expected 94"},
        {train_images, &s.train_images[7], 11, train_images, "is too long: got 88 bytes, expected 82"},
        {train_images, &s.train_images[4], 255, train_images, "got 88 bytes, expected 25669140568"},
        {test_images, &s.test_images[11], 3, test_images, "got 28 bytes, expected 34"},
        {test_labels, &s.test_labels[3], 3, test_labels, "got 10 bytes, expected a header of 16"},
        {test_labels, &s.test_labels[9], 10, test_labels, "label 1 is 10, but the training labels end at 9"},
    };
    for (size_t i = 0; i < N_OF(cases); i++) {
        const uint8_t good = *cases[i].byte;
        *cases[i].byte = cases[i].value;
        write_small(f, &s);
        *cases[i].byte = good;
        refused_data(f->path, 0, TANDEM_MALFORMED, cases[i].first, cases[i].second);
    }
}

static void counts_and_shapes_that_disagree_are_refused(void **state)
{
    const folder *const f = *state;
    small_set s = small();
    write_small(f, &s);
    s.train_labels[7] = N_TRAIN - 1;
    write_test_file(in(f, train_labels), s.train_labels, sizeof s.train_labels - 1);
    refused_data(f->path, 0, TANDEM_MALFORMED, "12 images", "11 labels");

    s = small();
    write_small(f, &s);
    s.test_images[11] = 3;
    s.test_images[15] = 2;
    write_test_file(in(f, test_images), s.test_images, sizeof s.test_images);
    refused_data(f->path, 0, TANDEM_MALFORMED, "2 × 3 × 1", "3 × 2 × 1");

    s = small();
    write_small(f, &s);
    write_test_file(in(f, train_images), s.train_labels, sizeof s.train_labels);
    refused_data(f->path, 0, TANDEM_MALFORMED, train_images, "1 dimensions, expected 3");

    write_small(f, &s);
    write_test_file(in(f, test_labels), s.test_images, sizeof s.test_images);
    refused_data(f->path, 0, TANDEM_MALFORMED, test_labels, "3 dimensions, expected 1");

    write_small(f, &s);
    s.test_images[7] = s.test_labels[7] = 0;
    write_test_file(in(f, test_images), s.test_images, 16);
    write_test_file(in(f, test_labels), s.test_labels, 8);
    refused_data(f->path, 0, TANDEM_MALFORMED, test_images, "is empty");
}

static void files_cut_anywhere_are_refused(void **state)
{
    const folder *const f = *state;
    const small_set s = small();
    write_small(f, &s);
    char expected[80];
    for (size_t n = 0; n < sizeof s.train_images; n++) {
        write_test_file(in(f, train_images), s.train_images, n);
        (void)snprintf(expected, sizeof expected, "got %zu bytes, expected", n);
        refused_data(f->path, 0, TANDEM_MALFORMED, train_images, expected);
    }
    assert_int_equal(unlink(in(f, train_images)), 0);
    uint8_t packed[400];
    write_gzip(in(f, "train-images-idx3-ubyte.gz"), s.train_images, sizeof s.train_images);
    const size_t n_packed = read_file_data(in(f, "train-images-idx3-ubyte.gz"), packed, sizeof packed);
    for (size_t n = 0; n < n_packed; n++) {
        write_test_file(in(f, "train-images-idx3-ubyte.gz"), packed, n);
        refused_data(f->path, 0, TANDEM_MALFORMED, "train-images-idx3-ubyte.gz", "expected");
    }
}

static void damaged_gzip_is_refused(void **state)
{
    const folder *const f = *state;
    const small_set s = small();
    char path[600];
    uint8_t packed[400];
    (void)snprintf(path, sizeof path, "%s", in(f, "train-images-idx3-ubyte.gz"));
    write_small(f, &s);
    assert_int_equal(unlink(in(f, train_images)), 0);
    write_gzip(path, s.train_images, sizeof s.train_images);
    const size_t n = read_file_data(path, packed, sizeof packed);
    packed[n - 6] ^= 1; /* of the checksum: everything else is right */
    write_test_file(path, packed, n);
    refused_data(f->path, 0, TANDEM_MALFORMED, "train-images-idx3-ubyte.gz is damaged",
                 "(incorrect data check)");
    packed[n - 6] ^= 1;
    write_test_file(path, packed, n - 20); /* cut in the middle of the data */
    refused_data(f->path, 0, TANDEM_MALFORMED, "gzip stream breaks off", "expected 88 and");
}

static void what_is_absent_is_named(void **state)
{
    const folder *const f = *state;
    const small_set s = small();
    refused_data(f->path, 0, TANDEM_MISSING, f->path, train_images);
    write_small(f, &s);
    assert_int_equal(unlink(in(f, test_labels)), 0);
    refused_data(f->path, 0, TANDEM_MISSING, f->path, test_labels);
    refused_data("fashion-mnits", 0, TANDEM_UNKNOWN_NAME, "fashion-mnits", "Did you mean 'fashion-mnist'?");
    refused_data("quite-another", 0, TANDEM_UNKNOWN_NAME, "quite-another", "fashion-mnist");
    refused_data("", 0, TANDEM_USAGE, "No data set", "fashion-mnist");
    refused_data(NULL, 0, TANDEM_USAGE, "No data set", "fashion-mnist");
    refused_data(in(f, "nothing.txt"), 8, TANDEM_IO, "nothing.txt", "No such file");
    char *const long_path = calloc(1, 10001);
    assert_non_null(long_path);
    memset(long_path, 'a', 10000);
    refused_data(long_path, 8, TANDEM_USAGE, "10000 bytes", "4095");
    free(long_path);
}

static void a_missing_package_is_named(void **state)
{
    const folder *const f = *state;
    const char *const nowhere[] = {f->path, NULL, "/nonexistent"};
    char path[600] = "before";
    tandem_error error = {0};
    assert_int_equal(tandem_data_find_below(path, sizeof path, "fashion-mnist", nowhere, 3, &error),
                     TANDEM_MISSING);
    assert_non_null(strstr(error.text, "apt-get install dataset-fashion-mnist"));
    assert_non_null(strstr(error.text, f->path));
    assert_string_equal(path, "before");
    assert_int_equal(mkdir(in(f, "fashion-mnist"), 0700), 0);
    assert_int_equal(tandem_data_find_below(path, sizeof path, "fashion-mnist", nowhere, 3, &error),
                     TANDEM_OK);
    assert_string_equal(path, in(f, "fashion-mnist"));
    assert_int_equal(tandem_data_find_below(path, 8, "fashion-mnist", nowhere, 3, &error), TANDEM_MISSING);
    assert_int_equal(tandem_data_find_below(path, sizeof path, "mnist", nowhere, 3, &error),
                     TANDEM_UNKNOWN_NAME);
}

static void the_search_path_honours_the_environment(void **state)
{
    const folder *const f = *state;
    folder inner;
    const small_set s = small();
    (void)snprintf(inner.path, sizeof inner.path, "%.200s/fashion-mnist", f->path);
    assert_int_equal(mkdir(inner.path, 0700), 0);
    write_small(&inner, &s);
    write_test_file(in(f, "words.txt"), "abcabcabcabcabcabcabcabcabcabc", 30);
    setenv("TANDEM_DATA", f->path, 1);
    tandem_data data = {0};
    assert_int_equal(tandem_data_open(&data, "fashion-mnist", 0, NULL), TANDEM_OK);
    check_small(&data);
    assert_string_equal(data.name, "fashion-mnist");
    tandem_data_close(&data);
    assert_int_equal(tandem_data_open(&data, "words.txt", 2, NULL), TANDEM_OK);
    assert_int_equal(data.n_class, 3);
    tandem_data_close(&data);
    unsetenv("TANDEM_DATA");
    refused_data("words.txt", 2, TANDEM_UNKNOWN_NAME, "words.txt", "TANDEM_DATA");
}

static void only_regular_files_up_to_the_limit_are_read(void **state)
{
    const folder *const f = *state;
    assert_int_equal(mkfifo(in(f, "pipe"), 0600), 0);
    /* and does not wait for a writer */
    refused_data(in(f, "pipe"), 4, TANDEM_MALFORMED, "pipe", "no regular file");
    static uint8_t zeros[300000];
    write_gzip(in(f, "zeros.gz"), zeros, sizeof zeros);
    tandem_data_file file = {0};
    tandem_error error = {0};
    assert_int_equal(tandem_data_file_read(&file, in(f, "zeros.gz"), sizeof zeros - 1, &error),
                     TANDEM_MALFORMED);
    assert_non_null(strstr(error.text, "more than 299999 bytes"));
    assert_null(file.bytes);
    assert_int_equal(tandem_data_file_read(&file, in(f, "zeros.gz"), sizeof zeros, &error), TANDEM_OK);
    assert_int_equal(file.n, sizeof zeros);
    assert_false(file.cut_short);
    free(file.bytes);
    write_test_file(in(f, "empty"), "", 0);
    assert_int_equal(tandem_data_file_read(&file, in(f, "empty"), 10, &error), TANDEM_OK);
    assert_int_equal(file.n, 0);
    assert_non_null(file.bytes);
    free(file.bytes);
}

/* ---- texts --------------------------------------------------------------------------------------------- */

static void text_windows_are_cut(void **state)
{
    const folder *const f = *state;
    /* 45 characters: 41 to train, the last 4 to test */
    static const char text[] = "the quick brown fox jumps over the lazy dog!\n";
    assert_int_equal(sizeof text - 1, 45);
    write_test_file(in(f, "text"), text, 45);
    tandem_data data = {0};
    tandem_error error = {0};
    assert_int_equal(tandem_data_open(&data, in(f, "text"), 3, &error), TANDEM_OK);
    assert_int_equal(data.kind, TANDEM_DATA_TEXT);
    assert_int_equal(data.n_text, 45);
    assert_int_equal(data.n_train, 13); /* (41 − 1) / 3 */
    assert_int_equal(data.n_test, 1);   /* (4 − 1) / 3 */
    assert_int_equal(data.n_class, 29); /* a to z, blank, '!', newline */
    assert_int_equal(data.symbol['\n'], 0);
    assert_int_equal(data.symbol[' '], 1);
    assert_int_equal(data.symbol['!'], 2);
    assert_int_equal(data.symbol['a'], 3);
    assert_int_equal(data.symbol['z'], 28);
    int32_t tokens[4] = {0, 0, 0, 77}, label[4] = {0, 0, 0, 77};
    for (int s = 0; s < 13; s++) {
        tandem_data_read_text(&data, 0, s, tokens, label);
        for (int i = 0; i < 3; i++) {
            assert_int_equal(tokens[i], data.symbol[(uint8_t)text[3 * s + i]]);
            assert_int_equal(label[i], data.symbol[(uint8_t)text[3 * s + i + 1]]);
        }
    }
    tandem_data_read_text(&data, 1, 0, tokens, label);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(tokens[i], data.symbol[(uint8_t)text[41 + i]]);
        assert_int_equal(label[i], data.symbol[(uint8_t)text[42 + i]]);
    }
    assert_int_equal(tokens[3], 77);
    assert_int_equal(label[3], 77);
    tandem_data_close(&data);
    /* The last window needs a character after it: 41 / 2 and 4 / 2 leave one, and none. */
    assert_int_equal(tandem_data_open(&data, in(f, "text"), 2, &error), TANDEM_OK);
    assert_int_equal(data.n_train, 20);
    assert_int_equal(data.n_test, 1);
    tandem_data_close(&data);
    refused_data(in(f, "text"), 4, TANDEM_MALFORMED, "45 bytes", "need 50");
    refused_data(in(f, "text"), 0, TANDEM_USAGE, "0 characters", "1 or more");
    refused_data(in(f, "text"), -5, TANDEM_USAGE, "-5 characters", "1 or more");
    refused_data(in(f, "text"), INT32_MAX, TANDEM_MALFORMED, "45 bytes", "21474836480");
}

static void any_bytes_are_a_text(void **state)
{
    const folder *const f = *state;
    uint8_t bytes[2560];
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (uint8_t)(i * 7 + 13);
    write_test_file(in(f, "all"), bytes, sizeof bytes);
    tandem_data data = {0};
    assert_int_equal(tandem_data_open(&data, in(f, "all"), 255, NULL), TANDEM_OK); /* exactly 10·256 bytes */
    assert_int_equal(data.n_class, 256);
    assert_int_equal(data.n_test, 1);
    for (int byte = 0; byte < 256; byte++) assert_int_equal(data.symbol[byte], byte);
    tandem_data_close(&data);
    refused_data(in(f, "all"), 256, TANDEM_MALFORMED, "2560 bytes", "need 2570");

    write_gzip(in(f, "all.gz"), bytes, sizeof bytes);
    assert_int_equal(tandem_data_open(&data, in(f, "all.gz"), 255, NULL), TANDEM_OK);
    assert_int_equal(data.n_text, sizeof bytes);
    tandem_data_close(&data);
    uint8_t packed[4000];
    const size_t n = read_file_data(in(f, "all.gz"), packed, sizeof packed);
    write_test_file(in(f, "all.gz"), packed, n - 3);
    refused_data(in(f, "all.gz"), 3, TANDEM_MALFORMED, "all.gz", "gzip stream breaks off");
}

/* ---- order --------------------------------------------------------------------------------------------- */

static void the_order_is_a_permutation(void **state)
{
    enum { N = 10007 };
    static int64_t a[N], b[N];
    static uint8_t seen[N];
    tandem_data_order(a, N, 42, 3);
    for (int i = 0; i < N; i++) {
        assert_true(a[i] >= 0 && a[i] < N && !seen[a[i]]);
        seen[a[i]] = 1;
    }
    tandem_data_order(b, N, 42, 3);
    assert_memory_equal(a, b, sizeof a);
    const struct {
        uint64_t seed;
        int64_t epoch;
    } others[] = {{43, 3}, {42, 4}, {42 | 1ull << 63, 3}, {42, 3 | 1ll << 40}, {42, 0}};
    for (size_t k = 0; k < N_OF(others); k++) {
        int same = 0;
        tandem_data_order(b, N, others[k].seed, others[k].epoch);
        for (int i = 0; i < N; i++) same += a[i] == b[i];
        assert_true(same < 12); /* one is expected */
    }
    int64_t one = 77;
    tandem_data_order(&one, 1, 1, 1);
    assert_int_equal(one, 0);
    tandem_data_order(NULL, 0, 1, 1);
}

static void every_order_is_equally_likely(void **state)
{
    enum { N = 24000 };
    int count[27] = {0}, kinds = 0;
    for (int i = 0; i < N; i++) {
        int64_t order[3];
        tandem_data_order(order, 3, (uint64_t)(i / 100), i % 100);
        count[order[0] * 9 + order[1] * 3 + order[2]]++;
    }
    for (int k = 0; k < 27; k++) {
        kinds += count[k] > 0;
        assert_true(count[k] == 0 || abs(count[k] - N / 6) < 5 * 58); /* five standard deviations */
    }
    assert_int_equal(kinds, 6);
}

/* Only these fields of a data set bear on the order. */
static tandem_data of_size(int64_t n) { return (tandem_data){.n_train = n, .name = "made up"}; }

static void ranks_together_see_what_one_sees(void **state)
{
    enum { N = 100, BATCH = 16, STEPS = 20 }; /* 6 batches an epoch: more than three epochs */
    const tandem_data data = of_size(N);
    static const int split[][4] = {{16}, {8, 8}, {3, 13}, {5, 1, 7, 3}};
    int64_t reference[STEPS][BATCH];
    for (size_t k = 0; k < N_OF(split); k++) {
        int first = 0;
        for (int rank = 0; rank < 4; first += split[k][rank++]) {
            tandem_data_cursor cursor = {0};
            for (int step = 0; step < STEPS; step++)
                for (int i = 0; i < split[k][rank]; i++) {
                    int64_t sample = -1;
                    assert_int_equal(
                        tandem_data_sample(&sample, &cursor, &data, 9, step, BATCH, first + i, NULL),
                        TANDEM_OK);
                    if (k == 0) reference[step][i] = sample;
                    assert_int_equal(sample, reference[step][first + i]);
                }
            tandem_data_cursor_free(&cursor);
        }
        assert_int_equal(first, BATCH);
    }
    int64_t order[N];
    for (int epoch = 0; epoch < 3; epoch++) { /* 96 samples of the epoch's order, the last 4 dropped */
        tandem_data_order(order, N, 9, epoch);
        for (int i = 0; i < 96; i++) assert_int_equal(reference[epoch * 6 + i / BATCH][i % BATCH], order[i]);
    }
}

static void a_cursor_follows_whatever_is_asked(void **state)
{
    const tandem_data data = of_size(50), smaller = of_size(20);
    tandem_data_cursor cursor = {0};
    int64_t order[50], sample = -1;
    const struct {
        const tandem_data *data;
        uint64_t seed;
        int64_t step;
    } asked[] = {{&data, 1, 0},    {&data, 1, 7}, {&data, 2, 7},
                 {&smaller, 2, 7}, {&data, 1, 0}, {&data, 1, 1000000007}};
    for (size_t i = 0; i < N_OF(asked); i++) {
        const int64_t n = asked[i].data->n_train, batches = n / 10;
        assert_int_equal(
            tandem_data_sample(&sample, &cursor, asked[i].data, asked[i].seed, asked[i].step, 10, 3, NULL),
            TANDEM_OK);
        tandem_data_order(order, n, asked[i].seed, asked[i].step / batches);
        assert_int_equal(sample, order[asked[i].step % batches * 10 + 3]);
    }
    tandem_data_cursor_free(&cursor);
    assert_null(cursor.order);
    tandem_data_cursor_free(&cursor);
}

static void batches_that_cannot_be_are_refused(void **state)
{
    const tandem_data data = of_size(15), none = of_size(0);
    tandem_data_cursor cursor = {0};
    tandem_error error = {0};
    int64_t sample = 77;
    assert_int_equal(tandem_data_sample(&sample, &cursor, &data, 1, 0, 16, 0, &error), TANDEM_MALFORMED);
    assert_non_null(strstr(error.text, "15 training samples"));
    assert_int_equal(tandem_data_sample(&sample, &cursor, &none, 1, 0, 1, 0, &error), TANDEM_MALFORMED);
    assert_int_equal(tandem_data_sample(&sample, &cursor, &data, 1, -1, 4, 0, &error), TANDEM_USAGE);
    assert_int_equal(tandem_data_sample(&sample, &cursor, &data, 1, 0, 0, 0, &error), TANDEM_USAGE);
    assert_int_equal(tandem_data_sample(&sample, &cursor, &data, 1, 0, -4, 0, &error), TANDEM_USAGE);
    assert_int_equal(tandem_data_sample(&sample, &cursor, &data, 1, 0, 4, 4, &error), TANDEM_USAGE);
    assert_int_equal(tandem_data_sample(&sample, &cursor, &data, 1, 0, 4, -1, &error), TANDEM_USAGE);
    assert_int_equal(sample, 77);
    assert_null(cursor.order);
}

/* ---- the real one -------------------------------------------------------------------------------------- */

static void fashion_mnist_is_what_it_is(void **state)
{
    char path[600];
    tandem_data data = {0};
    tandem_error error = {0};
    if (tandem_data_find(path, sizeof path, "fashion-mnist", &error) != TANDEM_OK) {
        printf("SKIP: %s\n", error.text);
        skip();
    }
    require_ok(tandem_data_open(&data, "fashion-mnist", 0, &error), &error);
    assert_int_equal(data.n_train, 60000);
    assert_int_equal(data.n_test, 10000);
    assert_int_equal(data.height, 28);
    assert_int_equal(data.width, 28);
    assert_int_equal(data.channels, 1);
    assert_int_equal(data.n_class, 10);
    assert_near_data(data.mean, 0.2860, 0.00005);
    assert_near_data(data.deviation, 0.3530, 0.00005);
    double sum = 0, square = 0;
    int train[10] = {0}, test[10] = {0};
    static float x[784];
    int32_t label;
    for (int64_t i = 0; i < 60000; i++) {
        tandem_data_read_image(&data, 0, i, x, &label);
        train[label]++;
        for (int k = 0; k < 784; k++) {
            sum += (double)x[k];
            square += (double)x[k] * (double)x[k];
        }
    }
    for (int64_t i = 0; i < 10000; i++) {
        tandem_data_read_image(&data, 1, i, x, &label);
        test[label]++;
    }
    for (int k = 0; k < 10; k++) {
        assert_int_equal(train[k], 6000);
        assert_int_equal(test[k], 1000);
    }
    assert_near_data(sum / (60000.0 * 784), 0, 1e-5); /* normalised: mean 0, deviation 1 */
    assert_near_data(square / (60000.0 * 784), 1, 1e-5);
    tandem_data_read_image(&data, 0, 0, x, &label);
    assert_int_equal(label, 9); /* the first one is an ankle boot */
    tandem_data_close(&data);
}

/* ---- hidden tokens ------------------------------------------------------------------------------------- */

static void tokens_are_hidden_as_many_as_asked(void **state)
{
    enum { LENGTH = 128, N = 19, SAMPLES = 4000, MASK = 999, SYMBOLS = 50 };
    int hidden_at[LENGTH] = {0}, masked = 0, other = 0, kept = 0;
    for (int sample = 0; sample < SAMPLES; sample++) {
        int32_t tokens[LENGTH], label[LENGTH], again[LENGTH], other_seed[LENGTH];
        for (int i = 0; i < LENGTH; i++)
            tokens[i] = again[i] = 100 + i; /* none is a symbol that could be drawn */
        tandem_data_mask(again, other_seed, LENGTH, N, MASK, SYMBOLS, 6, sample);
        for (int i = 0; i < LENGTH; i++) again[i] = 100 + i;
        tandem_data_mask(again, label, LENGTH, N, MASK, SYMBOLS, 5, sample);
        tandem_data_mask(tokens, label, LENGTH, N, MASK, SYMBOLS, 5, sample);
        assert_memory_equal(tokens, again, sizeof tokens);
        assert_memory_not_equal(label, other_seed, sizeof label);
        int n = 0;
        for (int i = 0; i < LENGTH; i++) {
            if (label[i] < 0) {
                assert_int_equal(label[i], -1);
                assert_int_equal(tokens[i], 100 + i);
                continue;
            }
            assert_int_equal(label[i], 100 + i);
            n++;
            hidden_at[i]++;
            masked += tokens[i] == MASK;
            kept += tokens[i] == label[i];
            other += tokens[i] < SYMBOLS;
        }
        assert_int_equal(n, N);
    }
    assert_int_equal(masked + kept + other, N * SAMPLES);
    /* 76000 draws: shares deviate by 0.0015 and 0.0011; a place is hidden 594 times ± 22.5 */
    assert_near_data((double)masked / (N * SAMPLES), 0.8, 5 * 0.0015);
    assert_near_data((double)kept / (N * SAMPLES), 0.1, 5 * 0.0011);
    for (int i = 0; i < LENGTH; i++) assert_near_data(hidden_at[i], (double)N * SAMPLES / LENGTH, 5 * 22.5);
}

static void all_tokens_or_one_can_be_hidden(void **state)
{
    for (int length = 1; length <= 9; length++)
        for (int n = 1; n <= length; n++) {
            int32_t tokens[9] = {0}, label[9];
            int hidden = 0;
            tandem_data_mask(tokens, label, length, n, 3, 2, 1, 7);
            for (int i = 0; i < length; i++) hidden += label[i] == 0;
            assert_int_equal(hidden, n);
        }
}

static void a_text_has_a_class_the_next_character(void **state)
{
    uint8_t symbols[12] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
    const tandem_data data = {.kind = TANDEM_DATA_TEXT, .text = symbols, .n_text = 12, .length = 3};
    int32_t tokens[4] = {0, 0, 0, 77}, label[2] = {0, 77};
    tandem_data_read_text_class(&data, 0, 2, tokens, label);
    for (int i = 0; i < 3; i++) assert_int_equal(tokens[i], 6 + i);
    assert_int_equal(label[0], 9);
    assert_int_equal(tokens[3], 77);
    assert_int_equal(label[1], 77);
}

int main(void)
{
    static const tandem_data_set *first;
    first = tandem_data_set_at(0);
    if (!first || tandem_data_set_at(-1) || !first->package[0]) return 1;
#define WITH_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder_data, remove_folder_data)
    const struct CMUnitTest tests[] = {
        WITH_FOLDER(images_are_read_plain_or_gzipped),
        WITH_FOLDER(colour_images_have_channels_and_labels_more_classes),
        WITH_FOLDER(damaged_images_are_refused),
        WITH_FOLDER(counts_and_shapes_that_disagree_are_refused),
        WITH_FOLDER(files_cut_anywhere_are_refused),
        WITH_FOLDER(damaged_gzip_is_refused),
        WITH_FOLDER(what_is_absent_is_named),
        WITH_FOLDER(a_missing_package_is_named),
        WITH_FOLDER(the_search_path_honours_the_environment),
        WITH_FOLDER(only_regular_files_up_to_the_limit_are_read),
        WITH_FOLDER(text_windows_are_cut),
        WITH_FOLDER(any_bytes_are_a_text),
        cmocka_unit_test(numbers_of_an_image_have_the_order_of_the_model),
        cmocka_unit_test(images_that_are_no_such_samples_are_refused_with_both_shapes),
        cmocka_unit_test(a_text_fits_a_model_of_its_length_and_alphabet),
        cmocka_unit_test(the_order_is_a_permutation),
        cmocka_unit_test(every_order_is_equally_likely),
        cmocka_unit_test(ranks_together_see_what_one_sees),
        cmocka_unit_test(a_cursor_follows_whatever_is_asked),
        cmocka_unit_test(batches_that_cannot_be_are_refused),
        cmocka_unit_test(images_are_resized_between_the_centres_of_pixels),
        cmocka_unit_test(tokens_are_hidden_as_many_as_asked),
        cmocka_unit_test(all_tokens_or_one_can_be_hidden),
        cmocka_unit_test(a_text_has_a_class_the_next_character),
        cmocka_unit_test(fashion_mnist_is_what_it_is),
    };
    return cmocka_run_group_tests_name("data", tests, NULL, NULL);
}
