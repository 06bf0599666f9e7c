/* folder: data */
/* link: --wrap=malloc --wrap=calloc --wrap=realloc --wrap=free */
/* The binary files of CIFAR-10 and CIFAR-100: small ones of our own, and what must be refused. */
#include <unistd.h>

#include "data/cifar.h"
#include "tests/support/fail_allocation.h"
#include "tests/support/scratch_files.h"
#include "tests/support/tandem_test.h"

enum { N_RECORD = 3, MAX_RECORD = 2 + TANDEM_CIFAR_PIXELS, PLANE = 1024 };

typedef struct cifar_bytes {
    uint8_t bytes[N_RECORD * MAX_RECORD];
    size_t n;
} cifar_bytes;

static uint8_t pixel_of(int seed, int i, int at, int c) { return (uint8_t)(seed + 7 * i + 3 * at + 50 * c); }

/* Image i has the label 2·i + seed, and in CIFAR-100 the coarse label i. */
static cifar_bytes records_of(int n_label, int seed)
{
    cifar_bytes f = {.n = 0};
    for (int i = 0; i < N_RECORD; i++) {
        if (n_label == 2) f.bytes[f.n++] = (uint8_t)i;
        f.bytes[f.n++] = (uint8_t)(2 * i + seed);
        for (int c = 0; c < 3; c++)
            for (int at = 0; at < PLANE; at++) f.bytes[f.n++] = pixel_of(seed, i, at, c);
    }
    return f;
}

static const char *in_folder(const test_folder *folder, const char *name)
{
    static char path[4][128];
    static int turn;
    char *const p = path[turn++ % 4];
    (void)snprintf(p, sizeof path[0], "%s/%s", folder->folder, name);
    return p;
}

static void write_records(const test_folder *folder, const char *name, int n_label, int seed)
{
    const cifar_bytes f = records_of(n_label, seed);
    write_test_file(in_folder(folder, name), f.bytes, f.n);
}

static void write_cifar_10(const test_folder *folder)
{
    for (int k = 1; k <= 5; k++) {
        char name[20];
        (void)snprintf(name, sizeof name, "data_batch_%d.bin", k);
        write_records(folder, name, 1, k - 1);
    }
    write_records(folder, "test_batch.bin", 1, 5);
}

/* The last image of a part, read in (height, width, channels), normalised. */
static void check_last_image(const tandem_data *data, int test, int seed)
{
    static float x[TANDEM_CIFAR_PIXELS];
    int32_t label = -1;
    const int i = N_RECORD - 1;
    tandem_data_read_image(data, test, (test ? data->n_test : data->n_train) - 1, x, &label);
    assert_int_equal(label, 2 * i + seed);
    for (int at = 0; at < PLANE; at++)
        for (int c = 0; c < 3; c++) {
            const double pixel = x[3 * at + c] * (double)data->deviation + (double)data->mean;
            assert_true(fabs(pixel * 255 - pixel_of(seed, i, at, c)) < 1e-3);
        }
}

static void planes_become_pixels(void **state)
{
    tandem_data data = {0};
    tandem_error error = {0};
    const test_folder *const folder = *state;
    write_cifar_10(folder);
    require_ok(tandem_data_open(&data, folder->folder, 0, &error), &error);
    assert_int_equal(data.kind, TANDEM_DATA_IMAGES);
    assert_int_equal(data.n_train, 5 * N_RECORD);
    assert_int_equal(data.n_test, N_RECORD);
    assert_int_equal(data.height, 32);
    assert_int_equal(data.width, 32);
    assert_int_equal(data.channels, 3);
    assert_int_equal(data.n_class, 10);
    check_last_image(&data, 0, 4);
    check_last_image(&data, 1, 5);
    double sum = 0;
    for (int k = 0; k < 5; k++)
        for (int i = 0; i < N_RECORD; i++)
            for (int at = 0; at < 3 * PLANE; at++) sum += pixel_of(k, i, at / 3, at % 3);
    assert_true(fabs(data.mean * 255 - sum / (5 * N_RECORD * 3 * PLANE)) < 1e-3);
    tandem_data_close(&data);
}

static void the_fine_label_counts(void **state)
{
    tandem_data data = {0};
    tandem_error error = {0};
    const test_folder *const folder = *state;
    write_records(folder, "train.bin", 2, 90);
    write_records(folder, "test.bin", 2, 30);
    require_ok(tandem_data_open(&data, folder->folder, 0, &error), &error);
    assert_int_equal(data.n_class, 100);
    assert_int_equal(data.n_train, N_RECORD);
    check_last_image(&data, 0, 90);
    check_last_image(&data, 1, 30);
    tandem_data_close(&data);
}

static void files_are_listed_in_any_order(void **state)
{
    tandem_data data = {0};
    tandem_error error = {0};
    char list[400];
    const test_folder *const folder = *state;
    write_cifar_10(folder);
    (void)snprintf(list, sizeof list, "%s,%s,%s", in_folder(folder, "test_batch.bin"),
                   in_folder(folder, "data_batch_3.bin"), in_folder(folder, "data_batch_1.bin"));
    require_ok(tandem_data_open(&data, list, 0, &error), &error);
    assert_int_equal(data.n_train, 2 * N_RECORD);
    check_last_image(&data, 0, 0);
    check_last_image(&data, 1, 5);
    tandem_data_close(&data);
    setenv("TANDEM_DATA", folder->folder, 1);
    require_ok(tandem_data_open(&data, "data_batch_2.bin,test_batch.bin", 0, &error), &error);
    unsetenv("TANDEM_DATA");
    check_last_image(&data, 0, 1);
    tandem_data_close(&data);
}

static void refused_cifar(const char *source, tandem_status expected, const char *has)
{
    tandem_data data = {.n_text = 4711};
    tandem_error error = {0};
    const tandem_status status = tandem_data_open(&data, source, 1, &error);
    if (status != expected || !strstr(error.text, has))
        fail_msg("%s: got %s (%s), expected %s with \"%s\"", source, tandem_status_name(status), error.text,
                 tandem_status_name(expected), has);
    assert_int_equal(data.n_text, 4711);
}

static void absent_and_other_files_are_named(void **state)
{
    const test_folder *const folder = *state;
    char list[400];
    write_cifar_10(folder);
    refused_cifar(in_folder(folder, "data_batch_1.bin"), TANDEM_MISSING, "names no file for the test");
    refused_cifar(in_folder(folder, "test_batch.bin"), TANDEM_MISSING, "names no file for training");
    assert_int_equal(unlink(in_folder(folder, "data_batch_4.bin")), 0);
    refused_cifar(folder->folder, TANDEM_MISSING,
                  "has no file data_batch_4.bin; a directory of CIFAR-10 has");
    write_records(folder, "train.bin", 2, 0);
    write_records(folder, "other.bin", 1, 0);
    (void)snprintf(list, sizeof list, "%s,%s", in_folder(folder, "data_batch_1.bin"),
                   in_folder(folder, "train.bin"));
    refused_cifar(list, TANDEM_USAGE, "train.bin is no file of CIFAR-10");
    (void)snprintf(list, sizeof list, "%s,%s", in_folder(folder, "other.bin"),
                   in_folder(folder, "test_batch.bin"));
    refused_cifar(list, TANDEM_USAGE, "other.bin is no file of CIFAR;");
    (void)snprintf(list, sizeof list, "%s,%s", in_folder(folder, "data_batch_1.bin"),
                   in_folder(folder, "nowhere.bin"));
    refused_cifar(list, TANDEM_IO, "nowhere.bin");
}

static void damaged_records_are_refused(void **state)
{
    const test_folder *const folder = *state;
    cifar_bytes f = records_of(1, 0);
    write_cifar_10(folder);
    write_test_file(in_folder(folder, "data_batch_2.bin"), f.bytes, f.n - 1);
    refused_cifar(folder->folder, TANDEM_MALFORMED,
                  "data_batch_2.bin has 9218 bytes, expected records of 3073");
    write_test_file(in_folder(folder, "data_batch_2.bin"), f.bytes, 0);
    refused_cifar(folder->folder, TANDEM_MALFORMED, "data_batch_2.bin has 0 bytes");
    f.bytes[3073] = 10;
    write_test_file(in_folder(folder, "data_batch_2.bin"), f.bytes, f.n);
    refused_cifar(folder->folder, TANDEM_MALFORMED, "record 1 has the label 10, allowed are 0 to 9");
    assert_int_equal(truncate(in_folder(folder, "data_batch_2.bin"), INT64_C(2) << 30), 0);
    refused_cifar(folder->folder, TANDEM_MALFORMED, "were never written");

    (void)empty_folder(folder->folder);
    write_records(folder, "test.bin", 2, 0);
    write_records(folder, "train.bin", 1, 0);
    refused_cifar(folder->folder, TANDEM_MALFORMED, "expected records of 3074");
    write_records(folder, "train.bin", 2, 96);
    refused_cifar(folder->folder, TANDEM_MALFORMED, "record 2 has the label 100, allowed are 0 to 99");
    f = records_of(2, 0);
    f.bytes[0] = 20;
    write_test_file(in_folder(folder, "train.bin"), f.bytes, f.n);
    refused_cifar(folder->folder, TANDEM_MALFORMED, "record 0 has the coarse label 20, allowed are 0 to 19");
}

static void each_allocation_of_cifar_may_fail(void **state)
{
    const test_folder *const folder = *state;
    tandem_data data = {0};
    tandem_error error = {0};
    long n_try = 0;
    write_records(folder, "train.bin", 2, 0);
    write_records(folder, "test.bin", 2, 0);
    for (int failed = 1; failed; n_try++) {
        const long alive = tandem_allocations_alive();
        tandem_fail_allocation_after(n_try);
        const tandem_status status = tandem_data_open(&data, folder->folder, 1, &error);
        failed = tandem_allocation_failed();
        tandem_fail_allocation_after(-1);
        /* a buffer that cannot be made smaller stays as it is */
        assert_true(status == TANDEM_OK || (status == TANDEM_NO_MEMORY && failed));
        tandem_data_close(&data);
        assert_int_equal(tandem_allocations_alive(), alive);
    }
    assert_true(n_try > 5);
}

int main(void)
{
#define WITH_FOLDER(test) cmocka_unit_test_setup_teardown(test, test_folder_open, test_folder_close)
    const struct CMUnitTest tests[] = {
        WITH_FOLDER(planes_become_pixels),          WITH_FOLDER(the_fine_label_counts),
        WITH_FOLDER(files_are_listed_in_any_order), WITH_FOLDER(absent_and_other_files_are_named),
        WITH_FOLDER(damaged_records_are_refused),   WITH_FOLDER(each_allocation_of_cifar_may_fail),
    };
    return cmocka_run_group_tests_name("cifar", tests, NULL, NULL);
}
