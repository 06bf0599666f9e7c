/* folder: backend */
/* weight_gradient (kernels.def) against a plain sum over places: of so small whole numbers any order of the
 * sum gives the same bits. Random shapes, for every instruction set that this machine runs, in f32 and bf16.
 * It writes only the channels that it is asked for, and stays within its workspace. */
#include <stdlib.h>
#include <string.h>

#include "base/philox.h"
#include "kernels/cpu/isa_kernels.h"
#include "tests/support/bf16_numbers.h"
#include "tests/support/tandem_test.h"

static const char *const isa_names[] = {"avx512", "avx512_vnni", "avx512_bf16", "avx512_amx"};
enum { N_ISA = sizeof isa_names / sizeof *isa_names, CHUNK = 32, GUARD = 64, N_SHAPE = 60 };
static const float untouched = 12345;

static int number_at(int64_t i, uint32_t salt)
{
    return (int)(((uint32_t)i * 2654435761u ^ salt) >> 13) % 5 - 2;
}

/* n numbers, in f32 or bf16. */
static void *numbers(int64_t n, uint32_t salt, int is_bf16)
{
    void *const x = malloc((size_t)n * (is_bf16 ? sizeof(uint16_t) : sizeof(float)));
    assert_non_null(x);
    for (int64_t i = 0; i < n; i++)
        if (is_bf16)
            ((uint16_t *)x)[i] = half_of(number_at(i, salt));
        else
            ((float *)x)[i] = (float)number_at(i, salt);
    return x;
}

static int64_t draw(uint32_t shape, uint32_t what, int64_t most)
{
    const tandem_philox_block block = tandem_philox((const uint32_t[]){shape, what, 0, 0}, 2026);
    return 1 + block.word[0] % most;
}

static tandem_weight_gradient random_shape(uint32_t shape)
{
    tandem_weight_gradient g = {.n = draw(shape, 0, 5),
                                .height = draw(shape, 1, shape % 7 == 0 ? 40 : 12),
                                .width = draw(shape, 2, shape % 7 == 0 ? 70 : 12),
                                .from = CHUNK * draw(shape, 3, 6),
                                .to = CHUNK * draw(shape, 4, 4),
                                .kernel_h = draw(shape, 5, 5),
                                .kernel_w = draw(shape, 6, 5),
                                .stride = draw(shape, 7, 3)};
    const int64_t least = g.kernel_h < g.kernel_w ? g.kernel_h : g.kernel_w;
    g.pad = draw(shape, 8, least) - 1;
    if (g.height + 2 * g.pad < g.kernel_h) g.height = g.kernel_h;
    if (g.width + 2 * g.pad < g.kernel_w) g.width = g.kernel_w;
    g.out_height = (g.height + 2 * g.pad - g.kernel_h) / g.stride + 1;
    g.out_width = (g.width + 2 * g.pad - g.kernel_w) / g.stride + 1;
    if (shape % 3 == 0 && g.to > CHUNK) {
        g.to_begin = CHUNK;
        g.to_end = g.to;
    }
    return g;
}

/* The sum of one element, place by place. */
static float plain_sum(const tandem_weight_gradient *g, int64_t down, int64_t across, int64_t from,
                       int64_t to)
{
    int64_t sum = 0;
    for (int64_t n = 0; n < g->n; n++)
        for (int64_t i = 0; i < g->out_height; i++)
            for (int64_t j = 0; j < g->out_width; j++) {
                const int64_t y = i * g->stride + down - g->pad, x = j * g->stride + across - g->pad;
                if (y < 0 || y >= g->height || x < 0 || x >= g->width) continue;
                const int64_t pixel = ((n * g->height + y) * g->width + x) * g->from + from,
                              place = ((n * g->out_height + i) * g->out_width + j) * g->to + to;
                sum += (int64_t)number_at(pixel, 1) * number_at(place, 2);
            }
    return (float)sum;
}

static void check_sums(const tandem_weight_gradient *g, const char *isa, uint32_t shape)
{
    const int64_t end = g->to_end > 0 ? g->to_end : g->to, from_end = g->from_end > 0 ? g->from_end : g->from;
    for (int64_t tap = 0; tap < g->kernel_h * g->kernel_w; tap++)
        for (int64_t from = 0; from < g->from; from += 5)
            for (int64_t to = 0; to < g->to; to++) {
                const int is_asked =
                    to >= g->to_begin && to < end && from >= g->from_begin && from < from_end;
                const float got = g->y[(tap * g->from + from) * g->to + to],
                            want = is_asked ? plain_sum(g, tap / g->kernel_w, tap % g->kernel_w, from, to)
                                            : untouched;
                if (got != want) /* NOLINT: exact */
                    fail_msg("%s, shape %u, %s: tap %d, channels %d and %d: %g instead of %g", isa, shape,
                             g->is_bf16 ? "bf16" : "f32", (int)tap, (int)from, (int)to, (double)got,
                             (double)want);
                if (to % 7 == 3) to += 3;
            }
}

static void check_shape(const tandem_isa_kernels *table, uint32_t shape, int is_bf16)
{
    tandem_weight_gradient g = random_shape(shape);
    g.is_bf16 = is_bf16;
    if (is_bf16 && table->has_tiles && shape % 4 == 1 && g.from > CHUNK) {
        g.from_begin = CHUNK;
        g.from_end = shape % 8 == 1 ? 2 * CHUNK : g.from;
    }
    const int64_t elements = g.kernel_h * g.kernel_w * g.from * g.to;
    void *const x = numbers(g.n * g.height * g.width * g.from, 1, is_bf16), *const gradient = numbers(
                                                                                g.n * g.out_height *
                                                                                    g.out_width * g.to,
                                                                                2, is_bf16);
    g.y = malloc((size_t)elements * sizeof *g.y);
    const size_t bytes = table->weight_gradient_workspace(&g);
    unsigned char *const workspace = aligned_alloc(64, (bytes + GUARD + 63) / 64 * 64);
    assert_non_null(g.y);
    assert_non_null(workspace);
    for (int64_t i = 0; i < elements; i++) g.y[i] = untouched;
    memset(workspace, 0xFF, bytes + GUARD); /* NaN wherever it is read unwritten */
    g.x = x;
    g.gradient = gradient;
    g.workspace = (float *)(void *)workspace;
    table->weight_gradient(&g);
    check_sums(&g, table->isa, shape);
    for (size_t i = bytes; i < bytes + GUARD; i++) assert_int_equal(workspace[i], 0xFF);
    free(x);
    free(gradient);
    free(g.y);
    free(workspace);
}

static void test_sums_are_exact(void **state)
{
    int n_table = 0;
    for (int i = 0; i < N_ISA; i++) {
        const tandem_kernels *table = NULL;
        if (tandem_kernels_open(&table, isa_names[i], NULL) != TANDEM_OK) continue;
        n_table++;
        for (uint32_t shape = 0; shape < N_SHAPE; shape++)
            for (int is_bf16 = 0; is_bf16 <= table->multiplies_bf16; is_bf16++)
                check_shape(table, shape, is_bf16);
    }
    if (n_table == 0) {
        print_message("SKIP: this machine has no AVX-512\n");
        skip();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sums_are_exact)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
