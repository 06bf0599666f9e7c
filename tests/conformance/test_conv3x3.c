/* folder: backend */
/* kernels.h's convolutions of 3x3 windows: all passes of every instruction set that has them, against sums in
 * double, and every bad argument by its name. */
#include <stdlib.h>

#include "base/philox.h"
#include "tandem/kernels.h"
#include "tests/support/tandem_test.h"

static const char *const names[] = {"sse41",  "avx",         "avx2",        "avx2_vnni",
                                    "avx512", "avx512_vnni", "avx512_bf16", "avx512_amx"};
enum { N_NAME = sizeof names / sizeof *names, SMALLEST = 32 };

static const tandem_kernels *open_named(const char *name)
{
    const tandem_kernels *kernels = NULL;
    tandem_error error = {0};
    const tandem_status status = tandem_kernels_open(&kernels, name, &error);
    assert_true(status == TANDEM_OK || status == TANDEM_NO_DEVICE);
    return kernels;
}

/* The tensors of a convolution: numbers that bf16 holds, both ways. */
typedef struct conv_case {
    tandem_conv3x3 shape;
    int64_t n_x, n_w, n_y; /* elements */
    float *x, *w, *g, *y, *gx, *gw;
    uint16_t *narrow_x, *narrow_w, *narrow_g;
    void *workspace;
} conv_case;

static void *allocate_test(size_t bytes)
{
    void *memory = aligned_alloc(64, (bytes + 63) / 64 * 64);
    assert_non_null(memory);
    return memory;
}

static float *draw_numbers(uint16_t **narrow, const tandem_kernels *kernels, int64_t n, uint32_t purpose)
{
    float *x = allocate_test((size_t)n * sizeof *x);
    tandem_error error = {0};
    *narrow = allocate_test((size_t)n * sizeof **narrow);
    for (int64_t i = 0; i < n; i++) {
        const uint32_t counter[4] = {(uint32_t)i, 0, 0, purpose};
        x[i] = tandem_philox_uniform(tandem_philox(counter, 7).word[0]) - 0.5f;
    }
    const tandem_cast_call there = {.x = x, .rows = 1, .columns = n, .y = *narrow, .to = TANDEM_BF16};
    const tandem_cast_call back = {.x = *narrow, .from = TANDEM_BF16, .rows = 1, .columns = n, .y = x};
    assert_int_equal(tandem_kernels_cast(kernels, &there, &error), TANDEM_OK);
    assert_int_equal(tandem_kernels_cast(kernels, &back, &error), TANDEM_OK);
    return x;
}

static conv_case make_case(const tandem_kernels *kernels, const tandem_conv3x3 *shape, size_t bytes)
{
    const int64_t pixels = shape->images * shape->height * shape->width;
    conv_case c = {.shape = *shape,
                   .n_x = pixels * shape->channels,
                   .n_w = 9 * shape->channels * shape->out,
                   .n_y = pixels * shape->out};
    c.x = draw_numbers(&c.narrow_x, kernels, c.n_x, 1);
    c.w = draw_numbers(&c.narrow_w, kernels, c.n_w, 2);
    c.g = draw_numbers(&c.narrow_g, kernels, c.n_y, 3);
    c.y = allocate_test((size_t)c.n_y * sizeof(float));
    c.gx = allocate_test((size_t)c.n_x * sizeof(float));
    c.gw = allocate_test((size_t)c.n_w * sizeof(float));
    c.workspace = allocate_test(bytes);
    return c;
}

static void free_case(conv_case *c)
{
    void *const all[] = {c->x,  c->w,        c->g,        c->y,        c->gx,
                         c->gw, c->narrow_x, c->narrow_w, c->narrow_g, c->workspace};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

/* Sums of products, and of their magnitudes, which bound the rounding errors. */
typedef struct conv_sums {
    double *value, *size;
} conv_sums;

static conv_sums make_sums(int64_t n)
{
    conv_sums s = {calloc((size_t)n, sizeof(double)), calloc((size_t)n, sizeof(double))};
    assert_non_null(s.value);
    assert_non_null(s.size);
    return s;
}

static void add_product(conv_sums *s, int64_t at, double a, double b)
{
    s->value[at] += a * b;
    s->size[at] += fabs(a * b);
}

/* All three results, product by product. */
static void sum_up(conv_sums sums[3], const conv_case *c)
{
    const tandem_conv3x3 *s = &c->shape;
    for (int64_t pixel = 0; pixel < s->images * s->height * s->width; pixel++)
        for (int64_t tap = 0; tap < 9; tap++) {
            const int64_t line = pixel / s->width % s->height + tap / 3 - 1,
                          column = pixel % s->width + tap % 3 - 1;
            if (line < 0 || line >= s->height || column < 0 || column >= s->width) continue;
            const int64_t from = pixel + (tap / 3 - 1) * s->width + tap % 3 - 1;
            for (int64_t o = 0; o < s->out; o++)
                for (int64_t i = 0; i < s->channels; i++) {
                    const int64_t x = from * s->channels + i, y = pixel * s->out + o,
                                  w = (o * 9 + tap) * s->channels + i;
                    add_product(&sums[0], y, c->x[x], c->w[w]);
                    add_product(&sums[1], x, c->g[y], c->w[w]);
                    add_product(&sums[2], w, c->g[y], c->x[x]);
                }
        }
}

static void check_result(const float *found, const conv_sums *sums, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (!(fabs(found[i] - sums->value[i]) <= 1e-5 * sums->size[i]))
            fail_msg("element %d is %g instead of %g", (int)i, (double)found[i], sums->value[i]);
}

static void run_conv3x3(const tandem_kernels *kernels, conv_case *c, size_t bytes, int is_narrow)
{
    tandem_conv3x3 pass = c->shape;
    tandem_error error = {0};
    pass.from = is_narrow ? TANDEM_BF16 : TANDEM_F32;
    pass.x = is_narrow ? (const void *)c->narrow_x : c->x;
    pass.w = is_narrow ? (const void *)c->narrow_w : c->w;
    pass.workspace = c->workspace;
    pass.y = c->y;
    assert_int_equal(tandem_kernels_conv3x3(kernels, &pass, bytes, &error), TANDEM_OK);
    pass.g = is_narrow ? (const void *)c->narrow_g : c->g;
    pass.y = NULL;
    pass.gx = c->gx;
    pass.gw = c->gw;
    assert_int_equal(tandem_kernels_conv3x3(kernels, &pass, bytes, &error), TANDEM_OK);
}

/* Sides that are and are no multiples of a tile's; more weights than tiles, and more tiles than a block. */
static void test_all_passes(void **state)
{
    const tandem_conv3x3 shape[] = {{.images = 2, .height = 5, .width = 8, .channels = 64, .out = 96},
                                    {.images = 1, .height = 4, .width = 11, .channels = 96, .out = 32},
                                    {.images = 16, .height = 9, .width = 10, .channels = 32, .out = 64}};
    int found = 0;
    for (size_t k = 0; k < sizeof shape / sizeof *shape; k++)
        for (int at = 0; at < N_NAME; at++) {
            const tandem_kernels *kernels = open_named(names[at]);
            const size_t bytes = tandem_kernels_conv3x3_workspace(kernels, &shape[k]);
            if (!bytes) continue;
            found++;
            conv_case c = make_case(kernels, &shape[k], bytes);
            conv_sums sums[3] = {make_sums(c.n_y), make_sums(c.n_x), make_sums(c.n_w)};
            sum_up(sums, &c);
            for (int is_narrow = 0; is_narrow < 2; is_narrow++) {
                run_conv3x3(kernels, &c, bytes, is_narrow);
                check_result(c.y, &sums[0], c.n_y);
                check_result(c.gx, &sums[1], c.n_x);
                check_result(c.gw, &sums[2], c.n_w);
            }
            for (int i = 0; i < 3; i++) {
                free(sums[i].value);
                free(sums[i].size);
            }
            free_case(&c);
        }
    if (!found) {
        print_message("SKIP: this machine runs no instruction set with convolutions of 3x3\n");
        skip();
    }
}

static void test_sets_without_one(void **state)
{
    const tandem_conv3x3 shape = {
        .images = 1, .height = 4, .width = 4, .channels = SMALLEST, .out = SMALLEST};
    const tandem_kernels *kernels = open_named("sse41");
    tandem_error error = {0};
    assert_int_equal(tandem_kernels_conv3x3_workspace(kernels, &shape), 0);
    assert_int_equal(tandem_kernels_conv3x3(kernels, &shape, 0, &error), TANDEM_NO_KERNEL);
    assert_non_null(strstr(error.text, "avx512"));
    assert_int_equal(tandem_kernels_conv3x3_workspace(NULL, &shape), 0);
    assert_int_equal(tandem_kernels_conv3x3(NULL, &shape, 0, &error), TANDEM_USAGE);
    assert_int_equal(tandem_kernels_conv3x3(kernels, NULL, 0, &error), TANDEM_USAGE);
}

/* Outputs stay as they are. */
static void test_bad_arguments(void **state)
{
    const tandem_kernels *kernels = open_named("avx512");
    if (!kernels) {
        print_message("SKIP: this machine runs no instruction set with convolutions of 3x3\n");
        skip();
    }
    tandem_error error = {0};
    const tandem_conv3x3 shape = {
        .images = 1, .height = 4, .width = 4, .channels = SMALLEST, .out = SMALLEST};
    const size_t bytes = tandem_kernels_conv3x3_workspace(kernels, &shape);
    conv_case c = make_case(kernels, &shape, bytes);
    tandem_conv3x3 good = shape;
    good.x = c.x, good.w = c.w, good.g = c.g, good.y = c.y, good.gx = c.gx, good.gw = c.gw;
    good.workspace = c.workspace;
    c.y[0] = 99;
#define BAD(change, says)                                                                                    \
    do {                                                                                                     \
        tandem_conv3x3 bad = good;                                                                           \
        bad.change;                                                                                          \
        assert_int_equal(tandem_kernels_conv3x3(kernels, &bad, bytes, &error), TANDEM_USAGE);                \
        assert_non_null(strstr(error.text, says));                                                           \
        assert_true(c.y[0] == 99);                                                                           \
    } while (0)
    BAD(images = 0, "0 images");
    BAD(height = 3, "3x4x32");
    BAD(width = -4, "4x-4x32");
    BAD(channels = 31, "multiples of 32");
    BAD(out = 0, "0 results");
    BAD(images = (int64_t)1 << 30; bad.height = bad.width = (int64_t)1 << 20, "no sizes");
    BAD(images = (int64_t)1 << 26; bad.height = bad.width = (int64_t)1 << 12, "no sizes"); /* 2^61 */
    BAD(channels = (int64_t)1 << 31, "no sizes");
    BAD(from = TANDEM_S8, "allowed: f32, bf16");
    BAD(x = NULL, "x is NULL");
    BAD(w = NULL, "w is NULL");
    BAD(g = NULL, "g is NULL");
    BAD(x = NULL; bad.y = bad.gx = NULL, "x is NULL"); /* each pass by itself */
    BAD(w = NULL; bad.y = bad.gw = NULL, "w is NULL");
    BAD(g = NULL; bad.y = bad.gw = NULL, "g is NULL");
    BAD(g = NULL; bad.y = bad.gx = NULL, "g is NULL");
    BAD(workspace = NULL, "got 0");
    BAD(workspace = (char *)c.workspace + 4, "aligned");
    assert_int_equal(tandem_kernels_conv3x3(kernels, &good, bytes - 1, &error), TANDEM_USAGE);
    assert_true(c.y[0] == 99);
    assert_int_equal(tandem_kernels_conv3x3(kernels, &good, bytes, &error), TANDEM_OK);
    assert_true(c.y[0] != 99);
    free_case(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_passes),
        cmocka_unit_test(test_sets_without_one),
        cmocka_unit_test(test_bad_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
