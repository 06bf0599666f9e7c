/* folder: backend */
/* kernels.h's product of bf16: exact where sums are, in all orders of operands and around the sizes of tiles
 * and blocks, and every bad argument by its name. */
#include <stdlib.h>

#include "tandem/kernels.h"
#include "tests/support/bf16_numbers.h"
#include "tests/support/tandem_test.h"

static const char *const names[] = {"avx512_bf16", "avx512_amx"};
enum { N_NAME = sizeof names / sizeof *names, LARGEST_M = 140, LARGEST_N = 545, LARGEST_K = 1100, GAP = 3 };

static const tandem_kernels *open_bf16(const char *name)
{
    const tandem_kernels *kernels = NULL;
    tandem_error error = {0};
    const tandem_status status = tandem_kernels_open(&kernels, name, &error);
    assert_true(status == TANDEM_OK || status == TANDEM_NO_DEVICE);
    return kernels;
}

/* A small whole number, and its bf16. */
static int number_at(int64_t i, int64_t j) { return (int)((i * 131 + j * 71 + i * j % 13) % 17) - 8; }
/* A matrix whose element (i, j) is at i·row + j·column. */
typedef struct half_matrix {
    int64_t row, column;
    uint16_t *x;
} half_matrix;

/* order: rows side by side, columns side by side, or gaps both ways. */
static half_matrix make_matrix(int64_t rows, int64_t columns, int order, int salt)
{
    half_matrix m = {order == 0   ? columns
                     : order == 1 ? 1
                                  : 2 * columns,
                     order == 0   ? 1
                     : order == 1 ? rows
                                  : 2,
                     NULL};
    m.x = calloc((size_t)(2 * rows * columns + 1), sizeof *m.x);
    assert_non_null(m.x);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) m.x[i * m.row + j * m.column] = half_of(number_at(i + salt, j));
    return m;
}

/* Of so small whole numbers any order of the sum gives the same. */
static float exact_element(const tandem_product_bf16 *p, int64_t i, int64_t j)
{
    int64_t sum = 0;
    for (int64_t l = 0; l < p->k; l++) sum += (int64_t)number_at(i, l) * number_at(l + 5, j);
    return (float)sum + (p->bias ? p->bias[j] : 0) + (p->accumulate ? 1000 : 0);
}

static void check_product(const tandem_kernels *kernels, int64_t m, int64_t n, int64_t k, int order)
{
    half_matrix a = make_matrix(m, k, order % 3, 0), b = make_matrix(k, n, order / 3 % 3, 5);
    float *c = calloc((size_t)(m * (n + GAP)), sizeof *c), bias[LARGEST_N];
    const size_t bytes = tandem_kernels_product_bf16_workspace(kernels, m, n, k);
    void *workspace = aligned_alloc(64, (bytes + 64) / 64 * 64);
    tandem_error error = {0};
    assert_non_null(c);
    assert_non_null(workspace);
    for (int64_t j = 0; j < n; j++) bias[j] = (float)(j % 7);
    for (int64_t i = 0; i < m * (n + GAP); i++) c[i] = 1000;
    const tandem_product_bf16 p = {.m = m,
                                   .n = n,
                                   .k = k,
                                   .a = a.x,
                                   .a_row = a.row,
                                   .a_column = a.column,
                                   .b = b.x,
                                   .b_row = b.row,
                                   .b_column = b.column,
                                   .c = c,
                                   .c_row = n + GAP,
                                   .bias = order % 2 ? bias : NULL,
                                   .workspace = workspace,
                                   .accumulate = order % 4 > 1};
    assert_int_equal(tandem_kernels_product_bf16(kernels, &p, bytes, &error), TANDEM_OK);
    for (int64_t i = 0; i < m; i++) {
        for (int64_t j = 0; j < n; j++)
            if (c[i * p.c_row + j] != exact_element(&p, i, j))
                fail_msg("%d x %d x %d, order %d: (%d, %d) is %g instead of %g", (int)m, (int)n, (int)k,
                         order, (int)i, (int)j, (double)c[i * p.c_row + j], (double)exact_element(&p, i, j));
        for (int64_t j = n; j < p.c_row; j++) assert_true(c[i * p.c_row + j] == 1000);
    }
    free(a.x);
    free(b.x);
    free(c);
    free(workspace);
}

static void test_exact_sums(void **state)
{
    static const int64_t size[][3] = {{1, 1, 1},     {8, 32, 2},   {7, 31, 33}, {17, 33, 64}, {9, 16, 0},
                                      {3, 100, 513}, {16, 48, 31}, {0, 5, 7},   {5, 0, 7}};
    int found = 0;
    for (int at = 0; at < N_NAME; at++) {
        const tandem_kernels *kernels = open_bf16(names[at]);
        if (!kernels) continue;
        found++;
        for (size_t i = 0; i < sizeof size / sizeof *size; i++)
            for (int order = 0; order < 9; order++)
                check_product(kernels, size[i][0], size[i][1], size[i][2], order);
        check_product(kernels, LARGEST_M, LARGEST_N, LARGEST_K, 3); /* beyond each block */
        check_product(kernels, LARGEST_M, 40, 600, 4);
    }
    if (!found) {
        print_message("SKIP: this machine runs no instruction set with dot products of bf16\n");
        skip();
    }
}

static void test_sets_without_one(void **state)
{
    static const char *const older[] = {"sse41", "avx2", "avx512", "avx512_vnni"};
    const tandem_product_bf16 p = {.m = 1, .n = 1, .k = 1};
    tandem_error error = {0};
    for (size_t i = 0; i < sizeof older / sizeof *older; i++) {
        const tandem_kernels *kernels = open_bf16(older[i]);
        if (!kernels) continue;
        assert_int_equal(tandem_kernels_product_bf16_workspace(kernels, 8, 8, 8), 0);
        assert_int_equal(tandem_kernels_product_bf16(kernels, &p, 0, &error), TANDEM_NO_KERNEL);
        assert_non_null(strstr(error.text, "avx512_bf16"));
    }
    assert_int_equal(tandem_kernels_product_bf16_workspace(NULL, 8, 8, 8), 0);
    assert_int_equal(tandem_kernels_product_bf16(NULL, &p, 0, &error), TANDEM_USAGE);
}

static void test_bad_arguments(void **state)
{
    const tandem_kernels *kernels = open_bf16("avx512_bf16");
    if (!kernels) {
        print_message("SKIP: this machine runs no instruction set with dot products of bf16\n");
        skip();
    }
    tandem_error error = {0};
    uint16_t a[64] = {0}, b[64] = {0};
    float c[64];
    const size_t bytes = tandem_kernels_product_bf16_workspace(kernels, 8, 8, 8);
    char *workspace = aligned_alloc(64, (bytes + 127) / 64 * 64);
    assert_non_null(workspace);
    const tandem_product_bf16 good = {.m = 8,
                                      .n = 8,
                                      .k = 8,
                                      .a = a,
                                      .a_row = 8,
                                      .a_column = 1,
                                      .b = b,
                                      .b_row = 8,
                                      .b_column = 1,
                                      .c = c,
                                      .c_row = 8,
                                      .workspace = workspace};
    c[0] = 99;
#define BAD(change, says)                                                                                    \
    do {                                                                                                     \
        tandem_product_bf16 bad = good;                                                                      \
        bad.change;                                                                                          \
        assert_int_equal(tandem_kernels_product_bf16(kernels, &bad, bytes, &error), TANDEM_USAGE);           \
        if (!strstr(error.text, says)) fail_msg("'%s' does not say '%s'", error.text, says);                 \
        assert_true(c[0] == 99);                                                                             \
    } while (0)
    BAD(workspace = NULL, "got 0");
    BAD(workspace = workspace + 4, "aligned");
    BAD(a = NULL, "a is NULL");
    BAD(b = NULL, "b is NULL");
    BAD(c = NULL, "c is NULL");
    BAD(m = -1, "a has");
    BAD(n = -1, "b has");
    BAD(k = INT64_MAX, "a has");
    BAD(a_row = -1, "strides of a");
    BAD(c_row = 7, "rows of c");
    BAD(bias = (const float *)(const void *)(a + 1), "bias is not aligned");
    assert_int_equal(tandem_kernels_product_bf16(kernels, &good, bytes - 1, &error), TANDEM_USAGE);
    assert_true(c[0] == 99);
    assert_int_equal(tandem_kernels_product_bf16(kernels, &good, bytes, &error), TANDEM_OK);
    assert_true(c[0] == 0);
    assert_int_equal(tandem_kernels_product_bf16_workspace(kernels, -1, 8, 8), 0);
    assert_int_equal(tandem_kernels_product_bf16_workspace(kernels, 8, 8, INT64_MAX), 0);
    free(workspace);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exact_sums),
        cmocka_unit_test(test_sets_without_one),
        cmocka_unit_test(test_bad_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
