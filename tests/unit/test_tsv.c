/* folder: data */
/* link: --wrap=malloc --wrap=calloc --wrap=realloc --wrap=free */
/* Tables of texts and labels: small ones of our own, and what must be refused. */
#include "data/tsv.h"
#include "tests/support/fail_allocation.h"
#include "tests/support/scratch_files.h"
#include "tests/support/tandem_test.h"

enum { N_ROW = 20, LENGTH = 6 };

/* "text 00" … in N_ROW lines after the first; label(i) of the row. */
static void print_table(char *to, size_t size, const char *first, const char *format,
                        const char *const *label)
{
    size_t n = (size_t)snprintf(to, size, "%s", first);
    for (int i = 0; i < N_ROW; i++) n += (size_t)snprintf(to + n, size - n, format, label[i % 4], 'a' + i);
}

static tandem_status read_table(tandem_data *data, const char *table, int length, tandem_error *error)
{
    return tandem_tsv_from_bytes(data, length, (const uint8_t *)table, strlen(table), "t.tsv", error);
}

/* Each row is in one sample, which has its text, cut or filled, and the class of its label. */
static void check_rows(const tandem_data *data, const int class[4], const char *text, int length)
{
    uint64_t seen = 0;
    assert_int_equal(data->n_train, N_ROW - 2);
    assert_int_equal(data->n_test, 2);
    for (int sample = 0; sample < N_ROW; sample++) {
        const int test = sample >= data->n_train;
        int32_t token[32], label = -1;
        char expected[32];
        tandem_data_read_text_class(data, test, test ? sample - data->n_train : sample, token, &label);
        int row = 0;
        while (row < N_ROW - 1 && data->symbol['a' + row] != token[0]) row++;
        assert_int_equal(data->symbol['a' + row], token[0]);
        seen |= UINT64_C(1) << row;
        assert_int_equal(label, class[row % 4]);
        (void)snprintf(expected, sizeof expected, "%c%s", 'a' + row, text);
        for (int k = 0; k < length; k++)
            assert_int_equal(token[k], data->symbol[k < (int)strlen(expected) ? (uint8_t)expected[k] : '\n']);
    }
    assert_int_equal(seen, (UINT64_C(1) << N_ROW) - 1);
}

static void columns_are_named_by_the_first_line(void **state)
{
    static const char *const numbers[] = {"0", "2", "+1", "7"}, *const names[] = {"pos", "neg", "po", "10"};
    const struct {
        const char *first, *format, *text;
        const char *const *label;
        int n_class, class[4], length;
    } cases[] = {
        {"label\ttext\n", "%s\t%c12\n", "12", numbers, 8, {0, 2, 1, 7}, LENGTH},
        {"label\ttext\n", "%s\t%c12345678\n", "12345", numbers, 8, {0, 2, 1, 7}, LENGTH},
        {"label\tsentence\r\n", "%s\t%c12\r\n", "12", names, 4, {3, 1, 2, 0}, LENGTH},
        {"label\ttext\n", "%s\t%c1\n", "", names, 4, {3, 1, 2, 0}, 1},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        char table[2000];
        tandem_data data = {0};
        tandem_error error = {0};
        print_table(table, sizeof table, cases[k].first, cases[k].format, cases[k].label);
        require_ok(read_table(&data, table, cases[k].length, &error), &error);
        assert_int_equal(data.kind, TANDEM_DATA_TEXT);
        assert_int_equal(data.n_class, cases[k].n_class);
        check_rows(&data, cases[k].class, cases[k].text, cases[k].length);
        assert_int_equal(data.symbol['8'], 0); /* what is cut off has no symbol */
        tandem_data_close(&data);
    }
}

static void columns_have_any_order(void **state)
{
    static const int class[] = {1, 0, 1, 0};
    char table[2000] = "text\tlabel\n", path[128];
    size_t n = strlen(table);
    for (int i = 0; i < N_ROW; i++)
        n += (size_t)snprintf(table + n, sizeof table - n, "%c!\t%s\n", 'a' + i, i % 2 ? "no" : "yes");
    table[n - 1] = '\0'; /* the last line need not end */
    (void)snprintf(path, sizeof path, "%s/reviews.tsv", ((const test_folder *)*state)->folder);
    write_test_file(path, table, n - 1);
    tandem_data data = {0};
    tandem_error error = {0};
    require_ok(tandem_data_open(&data, path, LENGTH, &error), &error);
    check_rows(&data, class, "!", LENGTH);
    const uint64_t hash = tandem_data_hash(&data);
    data.start[3]++;
    assert_true(hash != tandem_data_hash(&data));
    tandem_data_close(&data);
}

static void refused_table(const char *table, int length, tandem_status expected, const char *has)
{
    tandem_data data = {.n_text = 4711};
    tandem_error error = {0};
    const tandem_status status = read_table(&data, table, length, &error);
    if (status != expected || !strstr(error.text, has))
        fail_msg("got %s (%s), expected \"%s\"", tandem_status_name(status), error.text, has);
    assert_int_equal(data.n_text, 4711);
}

static void wrong_tables_are_refused(void **state)
{
    static const char *const first[] = {"",
                                        "\n",
                                        "label text\n",
                                        "label\ttext\tmore\n",
                                        "label\tlabel\n",
                                        "1\tsome words\n",
                                        "Label\tText\n"};
    static const char *const lines[] = {"1\n", "1\ta\tb\n", "\ta\n", "1\t\n", "\n", "1\t\r\n"};
    char table[200];
    for (size_t k = 0; k < sizeof first / sizeof *first; k++)
        refused_table(first[k], LENGTH, TANDEM_MALFORMED, "allowed are \"label\" and \"text\" in any order");
    for (size_t k = 0; k < sizeof lines / sizeof *lines; k++) {
        (void)snprintf(table, sizeof table, "label\ttext\n1\ta\n%s1\tb\n", lines[k]);
        refused_table(table, LENGTH, TANDEM_MALFORMED, "line 3 is no label and text with one tab");
    }
    refused_table("label\ttext\n1\ta\n1\ta\n1\ta\n1\ta\n1\ta\n1\ta\n1\ta\n1\ta\n1\ta\n", LENGTH,
                  TANDEM_MALFORMED, "has 9 samples, allowed are at least 10");
    refused_table("label\ttext\n", 0, TANDEM_USAGE, "it needs 1 or more");
}

static void labels_out_of_range_are_refused(void **state)
{
    static const char *const wrong[][2] = {{"-1", "line 3 has the label -1, allowed are 0 to 65535"},
                                           {"65536", "line 3 has the label 65536"},
                                           {"99999999999999999999", "line 3 has the label 9999"}};
    for (int k = 0; k < 3; k++) {
        const char *const label[] = {"0", wrong[k][0], "65535", "1"};
        char table[2000];
        print_table(table, sizeof table, "label\ttext\n", "%s\t%c\n", label);
        refused_table(table, LENGTH, TANDEM_MALFORMED, wrong[k][1]);
    }
    enum { TOO_MANY = (1 << 16) + 1 };
    char *const table = malloc(32 * TOO_MANY);
    assert_non_null(table);
    size_t n = (size_t)sprintf(table, "label\ttext\n");
    for (int i = 0; i < TOO_MANY; i++) n += (size_t)sprintf(table + n, "n%d\tx\n", i);
    refused_table(table, LENGTH, TANDEM_MALFORMED, "more than 65536 names");
    free(table);
}

static void each_allocation_of_tsv_may_fail(void **state)
{
    static const char *const names[] = {"a", "b", "c", "d"};
    char table[2000];
    tandem_data data = {0};
    tandem_error error = {0};
    long n_try = 0;
    print_table(table, sizeof table, "label\ttext\n", "%s\t%c\n", names);
    for (int failed = 1; failed; n_try++) {
        const long alive = tandem_allocations_alive();
        tandem_fail_allocation_after(n_try);
        const tandem_status status = read_table(&data, table, LENGTH, &error);
        failed = tandem_allocation_failed();
        tandem_fail_allocation_after(-1);
        assert_int_equal(status, failed ? TANDEM_NO_MEMORY : TANDEM_OK);
        tandem_data_close(&data);
        assert_int_equal(tandem_allocations_alive(), alive);
    }
    assert_int_equal(n_try, 9); /* rows, order, classes, text, starts, two of labels, names */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(columns_are_named_by_the_first_line),
        cmocka_unit_test_setup_teardown(columns_have_any_order, test_folder_open, test_folder_close),
        cmocka_unit_test(wrong_tables_are_refused),
        cmocka_unit_test(labels_out_of_range_are_refused),
        cmocka_unit_test(each_allocation_of_tsv_may_fail),
    };
    return cmocka_run_group_tests_name("tsv", tests, NULL, NULL);
}
