/* folder: backend */
/* link: --wrap=malloc --wrap=calloc --wrap=realloc --wrap=free */
/* Arrays of NumPy: samples and labels that tests write, and what must be refused. */
#include <unistd.h>

#include "backend/executor/fit_data.h"
#include "data/npy.h"
#include "tests/support/fail_allocation.h"
#include "tests/support/scratch_files.h"
#include "tests/support/tandem_test.h"

enum { N_SAMPLE = 21, MAX_FILE = 1 << 14 };

typedef struct npy_bytes {
    uint8_t bytes[MAX_FILE];
    size_t n;
} npy_bytes;

/* A file of `version` with the dictionary `header` and values[n]. */
static npy_bytes array_of(int version, const char *header, const void *values, size_t n)
{
    npy_bytes f = {.bytes = "\x93NUMPY", .n = version == 1 ? 10 : 12};
    const size_t length = strlen(header);
    f.bytes[6] = (uint8_t)version;
    f.bytes[8] = (uint8_t)length;
    f.bytes[9] = (uint8_t)(length >> 8);
    memcpy(f.bytes + f.n, header, length);
    if (n) memcpy(f.bytes + f.n + length, values, n);
    f.n += length + n;
    return f;
}

static npy_bytes typed_array(const char *type, const char *shape, const void *values, size_t n)
{
    char header[200];
    (void)snprintf(header, sizeof header, "{'descr': '%s', 'fortran_order': False, 'shape': %s, }   \n", type,
                   shape);
    return array_of(1, header, values, n);
}

static const char *pair_of(const test_folder *folder, const npy_bytes *x, const npy_bytes *y)
{
    static char pair[300];
    char path[128];
    (void)snprintf(path, sizeof path, "%s/x.npy", folder->folder);
    write_test_file(path, x->bytes, x->n);
    (void)snprintf(path, sizeof path, "%s/y.npy", folder->folder);
    write_test_file(path, y->bytes, y->n);
    (void)snprintf(pair, sizeof pair, "%s/x.npy,%s/y.npy", folder->folder, folder->folder);
    return pair;
}

/* --- Samples: number k of sample i is 12·i + k, its label 10·i --------------------------------------- */

enum { N_NUMBER = 12 };
static float floats[N_SAMPLE * N_NUMBER];
static uint8_t bytes[N_SAMPLE * N_NUMBER];
static int64_t wide_labels[N_SAMPLE];
static int32_t labels[N_SAMPLE];
static uint8_t narrow_labels[N_SAMPLE];

static void fill_arrays(void)
{
    for (int i = 0; i < N_SAMPLE * N_NUMBER; i++) {
        floats[i] = (float)i - 100.5f;
        bytes[i] = (uint8_t)i;
    }
    for (int i = 0; i < N_SAMPLE; i++) wide_labels[i] = labels[i] = narrow_labels[i] = (uint8_t)(10 * i);
}

static npy_bytes float_array(const char *shape) { return typed_array("<f4", shape, floats, sizeof floats); }
static npy_bytes byte_array(const char *shape) { return typed_array("|u1", shape, bytes, sizeof bytes); }
static npy_bytes label_array(void) { return typed_array("<i8", "(21,)", wide_labels, sizeof wide_labels); }

/* Rows 9 and 19 are the test, the others in order the training part. */
static void check_samples(const tandem_data *data, int is_float)
{
    assert_int_equal(data->n_train, N_SAMPLE - 2);
    assert_int_equal(data->n_test, 2);
    assert_int_equal(data->n_class, 201);
    double sum = 0, square = 0;
    int n = 0, row = 0;
    for (int sample = 0; sample < data->n_train + data->n_test; sample++) {
        const int test = sample >= data->n_train;
        float x[N_NUMBER];
        int32_t label = -1;
        if (test) row = sample == data->n_train ? 9 : 19;
        if (!test && row % 10 == 9) row++;
        tandem_data_read_image(data, test, test ? sample - data->n_train : sample, x, &label);
        assert_int_equal(label, 10 * row);
        for (int k = 0; k < N_NUMBER; k++) {
            const double number = x[k] * (double)data->deviation + (double)data->mean,
                         expected = N_NUMBER * row + k;
            assert_true(fabs((is_float ? number + 100.5 : number * 255) - expected) < 1e-3);
            sum += test ? 0 : (double)x[k];
            square += test ? 0 : (double)x[k] * (double)x[k];
            n += !test;
        }
        row++;
    }
    assert_true(fabs(sum / n) < 1e-5); /* normalised by the training part alone */
    assert_true(fabs(square / n - 1) < 1e-5);
}

static void shapes_and_types_are_read(void **state)
{
    const struct {
        const char *shape;
        int height, width, channels, is_flat;
    } cases[] = {{"(21, 2, 3, 2)", 2, 3, 2, 0}, {"(21, 4, 3)", 4, 3, 1, 0}, {"(21, 12)", 1, 12, 1, 1}};
    fill_arrays();
    for (size_t k = 0; k < 3; k++)
        for (int is_float = 0; is_float < 2; is_float++)
            for (int label_type = 0; label_type < 3; label_type++) {
                const npy_bytes x = is_float ? float_array(cases[k].shape) : byte_array(cases[k].shape),
                                y = label_type == 0   ? label_array()
                                    : label_type == 1 ? typed_array("<i4", "(21,)", labels, sizeof labels)
                                                      : typed_array("|u1", "(21,)", narrow_labels, N_SAMPLE);
                tandem_data data = {0};
                tandem_error error = {0};
                require_ok(tandem_data_open(&data, pair_of(*state, &x, &y), 1, &error), &error);
                assert_int_equal(data.kind, TANDEM_DATA_IMAGES);
                assert_int_equal(data.height, cases[k].height);
                assert_int_equal(data.width, cases[k].width);
                assert_int_equal(data.channels, cases[k].channels);
                assert_int_equal(data.is_flat, cases[k].is_flat);
                check_samples(&data, is_float);
                tandem_data_close(&data);
            }
}

static void headers_may_be_written_otherwise(void **state)
{
    static const char *const headers[] = {
        "{'descr': '<f4', 'fortran_order': False, 'shape': (21, 12), }\n",
        "{\"shape\":(21L,12L),\"fortran_order\":False,\"descr\":\"<f4\"}",
        "{ 'shape' : ( 21 , 12 , ) , 'descr' : '<f4' , 'fortran_order' : False }     \n"};
    fill_arrays();
    for (int version = 1; version <= 3; version++)
        for (size_t k = 0; k < 3; k++) {
            const npy_bytes f = array_of(version, headers[k], floats, sizeof floats);
            tandem_npy npy = {.n_dim = 0};
            tandem_error error = {0};
            require_ok(tandem_npy_parse(&npy, f.bytes, f.n, 0, "x.npy", &error), &error);
            assert_int_equal(npy.type, TANDEM_NPY_F32);
            assert_int_equal(npy.n_dim, 2);
            assert_int_equal(npy.dim[0], 21);
            assert_int_equal(npy.dim[1], 12);
            assert_int_equal(npy.dim[2], 1);
            assert_int_equal(npy.n_value, 252);
            assert_ptr_equal(npy.values, f.bytes + f.n - sizeof floats);
        }
}

/* --- What must be refused ------------------------------------------------------------------------------- */

static void refused_array(const npy_bytes *f, int is_label, const char *has)
{
    tandem_npy npy = {.n_dim = 4711};
    tandem_error error = {0};
    const tandem_status status = tandem_npy_parse(&npy, f->bytes, f->n, is_label, "x.npy", &error);
    if (status != TANDEM_MALFORMED || !strstr(error.text, has))
        fail_msg("got %s (%s), expected \"%s\"", tandem_status_name(status), error.text, has);
    assert_int_equal(npy.n_dim, 4711);
}

static void other_types_are_refused_by_name(void **state)
{
    static const struct {
        const char *type;
        int is_label;
        const char *has;
    } cases[] = {{"<f8", 0, "samples of dtype '<f8' (float64), allowed are float32 and uint8"},
                 {">f4", 0, "'>f4' (big-endian float32)"},
                 {"<f2", 0, "(float16)"},
                 {"<i8", 0, "samples of dtype '<i8' (int64)"},
                 {"|b1", 0, "(bool)"},
                 {"|O", 0, "(object)"},
                 {"<c8", 0, "(complex64)"},
                 {"<U5", 1, "labels of dtype '<U5' (str), allowed are int64, int32 and uint8"},
                 {"<f4", 1, "labels of dtype '<f4' (float32)"},
                 {">i8", 1, "(big-endian int64)"},
                 {"", 1, "(unknown)"}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        const npy_bytes f = typed_array(cases[k].type, "(1,)", "12345678", 8);
        refused_array(&f, cases[k].is_label, cases[k].has);
    }
    const npy_bytes fields = array_of(
        1, "{'descr': [('a', '<f4'), ('b', '<f4', (2,))], 'fortran_order': False, 'shape': (1,)}", "", 0);
    refused_array(&fields, 0, "of dtype 'fields'");
}

static void damaged_arrays_are_refused(void **state)
{
    static const char *const headers[] = {
        "",
        "{",
        "{}",
        "{'descr': '<f4', 'shape': (21, 12)}",
        "{'descr': '<f4, 'fortran_order': False, 'shape': ()}",
        "{'descr': '<f4', 'fortran_order': 0, 'shape': (21, 12)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (21 12)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-21, 12)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (21, 12), 'other': 1}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (21, 12)} more",
        "{'descr': [('a', '<f4'), 'fortran_order': False, 'shape': (21, 12)}"};
    fill_arrays();
    for (size_t k = 0; k < sizeof headers / sizeof *headers; k++) {
        const npy_bytes f = array_of(1, headers[k], floats, sizeof floats);
        refused_array(&f, 0, "a header that is no dictionary");
    }
    npy_bytes f =
        array_of(1, "{'descr': '<f4', 'fortran_order': True, 'shape': (21, 12)}", floats, sizeof floats);
    refused_array(&f, 0, "is in Fortran order, allowed is C order");
    f = float_array("(21, 1, 1, 12, 1)");
    refused_array(&f, 0, "has 5 dimensions, allowed are at most 4");
    f = float_array("(21, 13)");
    refused_array(&f, 0, "is cut short: got 1008 bytes of values, expected 1092");
    f = float_array("(21, 11)");
    refused_array(&f, 0, "is too long: got 1008 bytes of values, expected 924");
    f = float_array("(4294967296, 4294967296, 2)");
    refused_array(&f, 0, "is cut short");
    f = float_array("(21, 12)");
    f.bytes[6] = 4;
    refused_array(&f, 0, "format version 4.0");
    f.bytes[6] = 1, f.bytes[9] = 255;
    refused_array(&f, 0, "expected a header of");
    f.bytes[1] = 'M';
    refused_array(&f, 0, "is no array of NumPy");
    f.n = 0;
    refused_array(&f, 0, "is no array of NumPy");
}

static void refused_pair(const char *pair, tandem_status expected, const char *has)
{
    tandem_data data = {.n_text = 4711};
    tandem_error error = {0};
    const tandem_status status = tandem_data_open(&data, pair, 1, &error);
    if (status != expected || !strstr(error.text, has))
        fail_msg("got %s (%s), expected %s with \"%s\"", tandem_status_name(status), error.text,
                 tandem_status_name(expected), has);
    assert_int_equal(data.n_text, 4711);
}

static void pairs_that_disagree_are_refused(void **state)
{
    fill_arrays();
    npy_bytes x = float_array("(21, 12)"), y = label_array(), other;
    refused_pair(strchr(pair_of(*state, &x, &y), ',') + 1, TANDEM_USAGE,
                 "names 1 files of NumPy, expected two");
    other = typed_array("|u1", "(21,)", bytes, N_SAMPLE);
    refused_pair(pair_of(*state, &other, &y), TANDEM_MALFORMED, "x.npy has 1 dimensions and 21 values");
    other = typed_array("|u1", "(21, 0)", "", 0);
    refused_pair(pair_of(*state, &other, &y), TANDEM_MALFORMED, "and 0 values");
    other = typed_array("<i8", "(21, 1)", wide_labels, sizeof wide_labels);
    refused_pair(pair_of(*state, &x, &other), TANDEM_MALFORMED, "y.npy has 2 dimensions, expected 1");
    other = typed_array("<i8", "(20,)", wide_labels, 160);
    refused_pair(pair_of(*state, &x, &other), TANDEM_MALFORMED, "has 21 samples and");
    other = typed_array("<i8", "(9,)", wide_labels, 72);
    const npy_bytes few = typed_array("|u1", "(9, 1)", bytes, 9);
    refused_pair(pair_of(*state, &few, &other), TANDEM_MALFORMED, "at least 10");
}

static void numbers_that_cannot_be_are_refused(void **state)
{
    fill_arrays();
    npy_bytes x = float_array("(21, 12)"), y = label_array();
    wide_labels[7] = -1;
    npy_bytes wrong = label_array();
    refused_pair(pair_of(*state, &x, &wrong), TANDEM_MALFORMED, "label 7 is -1, allowed are 0 to 65535");
    wide_labels[7] = INT64_C(1) << 32;
    wrong = label_array();
    refused_pair(pair_of(*state, &x, &wrong), TANDEM_MALFORMED, "label 7 is 4294967296");
    wide_labels[7] = 65535;
    wrong = label_array();
    tandem_data data = {0};
    tandem_error error = {0};
    require_ok(tandem_data_open(&data, pair_of(*state, &x, &wrong), 1, &error), &error);
    assert_int_equal(data.n_class, 65536);
    tandem_data_close(&data);
    for (int row = 3; row < 10; row += 6) { /* of the training part, and of the test */
        fill_arrays();
        floats[N_NUMBER * row + 2] = row == 3 ? NAN : INFINITY;
        x = float_array("(21, 12)");
        refused_pair(pair_of(*state, &x, &y), TANDEM_MALFORMED,
                     row == 3 ? "number 2 of sample 3 is nan" : "number 2 of sample 9 is inf");
    }
    const test_folder *const folder = *state;
    char path[128];
    const char *const pair = pair_of(folder, &x, &y);
    (void)snprintf(path, sizeof path, "%s/x.npy", folder->folder);
    assert_int_equal(truncate(path, INT64_C(2) << 30), 0);
    refused_pair(pair, TANDEM_MALFORMED, "were never written");
}

/* --- With models ---------------------------------------------------------------------------------------- */

static void features_fit_models_of_features_alone(void **state)
{
    const struct {
        int height, width, channels;
        tandem_status expected;
    } cases[] = {{1, 12, 1, TANDEM_OK},
                 {4, 3, 1, TANDEM_MALFORMED},
                 {1, 12, 3, TANDEM_MALFORMED},
                 {1, 24, 1, TANDEM_MALFORMED}};
    fill_arrays();
    const npy_bytes x = float_array("(21, 12)"), y = label_array();
    tandem_data data = {0};
    tandem_error error = {0};
    require_ok(tandem_data_open(&data, pair_of(*state, &x, &y), 1, &error), &error);
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        tandem_op op = {.shape = {4, {2, cases[k].height, cases[k].width, cases[k].channels}},
                        .dtype = TANDEM_F32};
        const tandem_graph graph = {.op = &op,
                                    .model = "mlp",
                                    .n_class = 201,
                                    .length = 1,
                                    .batch = 2,
                                    .sample = {.n_dim = 3,
                                               .dim = {cases[k].height, cases[k].width, cases[k].channels},
                                               .layout = TANDEM_SAMPLE_CHANNELS_LAST}};
        tandem_data fitted = data;
        char said[TANDEM_DATA_SAID];
        assert_int_equal(tandem_data_fit(&fitted, &graph, said, &error), cases[k].expected);
        if (cases[k].expected == TANDEM_OK) assert_string_equal(said, "");
        if (cases[k].expected != TANDEM_OK) assert_non_null(strstr(error.text, "12 features"));
        if (cases[k].expected != TANDEM_OK) assert_non_null(strstr(error.text, "image=1x12x1"));
    }
    tandem_data_close(&data);
}

static void floats_are_resized_like_bytes(void **state)
{
    float from_floats[48], from_bytes[48];
    int32_t label;
    fill_arrays();
    for (int i = 0; i < N_SAMPLE * N_NUMBER; i++) floats[i] = (float)bytes[i] / 255;
    const npy_bytes x = float_array("(21, 4, 3)"), u = byte_array("(21, 4, 3)"), y = label_array();
    tandem_error error = {0};
    tandem_data data = {0};
    require_ok(tandem_data_open(&data, pair_of(*state, &x, &y), 1, &error), &error);
    const uint64_t hash = tandem_data_hash(&data);
    tandem_data_read_resized(&data, 1, 1, 8, 6, 1, from_floats, &label);
    assert_int_equal(label, 190);
    tandem_data_close(&data);
    require_ok(tandem_data_open(&data, pair_of(*state, &u, &y), 1, &error), &error);
    assert_true(hash != tandem_data_hash(&data));
    tandem_data_read_resized(&data, 1, 1, 8, 6, 1, from_bytes, &label);
    tandem_data_close(&data);
    for (int i = 0; i < 48; i++) assert_true(fabsf(from_floats[i] - from_bytes[i]) < 1e-5f);
}

static void a_hash_is_of_all_rows(void **state)
{
    fill_arrays();
    uint64_t hash[3];
    for (int k = 0; k < 3; k++) {
        if (k == 1) floats[N_SAMPLE * N_NUMBER - 1] += 1;
        if (k == 2) wide_labels[N_SAMPLE - 1]--;
        const npy_bytes x = float_array("(21, 12)"), y = label_array();
        tandem_error error = {0};
        tandem_data data = {0};
        require_ok(tandem_data_open(&data, pair_of(*state, &x, &y), 1, &error), &error);
        data.n_class = 201; /* so that the labels alone differ */
        hash[k] = tandem_data_hash(&data);
        tandem_data_close(&data);
    }
    assert_true(hash[0] != hash[1] && hash[1] != hash[2]);
}

static void each_allocation_of_npy_may_fail(void **state)
{
    tandem_data data = {0};
    tandem_error error = {0};
    long n_try = 0;
    fill_arrays();
    const npy_bytes x = float_array("(21, 12)"), y = label_array();
    const char *const pair = pair_of(*state, &x, &y);
    for (int failed = 1; failed; n_try++) {
        const long alive = tandem_allocations_alive();
        tandem_fail_allocation_after(n_try);
        const tandem_status status = tandem_data_open(&data, pair, 1, &error);
        failed = tandem_allocation_failed();
        tandem_fail_allocation_after(-1);
        assert_int_equal(status, failed ? TANDEM_NO_MEMORY : TANDEM_OK);
        tandem_data_close(&data);
        assert_int_equal(tandem_allocations_alive(), alive);
    }
    assert_int_equal(n_try, 3); /* paths and labels */
}

int main(void)
{
#define WITH_FOLDER(test) cmocka_unit_test_setup_teardown(test, test_folder_open, test_folder_close)
    const struct CMUnitTest tests[] = {
        WITH_FOLDER(shapes_and_types_are_read),
        cmocka_unit_test(headers_may_be_written_otherwise),
        cmocka_unit_test(other_types_are_refused_by_name),
        cmocka_unit_test(damaged_arrays_are_refused),
        WITH_FOLDER(pairs_that_disagree_are_refused),
        WITH_FOLDER(numbers_that_cannot_be_are_refused),
        WITH_FOLDER(features_fit_models_of_features_alone),
        WITH_FOLDER(floats_are_resized_like_bytes),
        WITH_FOLDER(a_hash_is_of_all_rows),
        WITH_FOLDER(each_allocation_of_npy_may_fail),
    };
    return cmocka_run_group_tests_name("npy", tests, NULL, NULL);
}
