/* folder: backend */
/* The references of format.def against what runs: the CPU's kernels for s8 and bf16, the CUDA kernels' own
 * arithmetic for f16, e4m3, e5m2 and s8: the same bits. */
#include "kernels/cuda/arithmetic.h"
#include "tandem/advanced/format.h"
#include "tandem/kernels.h"
#include "tests/support/tandem_test.h"

enum { N = 4099 };

static void draw_numbers(float *x, int n, uint64_t seed)
{
    for (int i = 0; i < n; i++) {
        const tandem_philox_block b =
            tandem_philox((const uint32_t[]){(uint32_t)i, 1, 2, 3}, 0x9E3779B97F4A7C15u ^ seed);
        const double u = ((double)b.word[0] + 0.5) / 4294967296.0 - 0.5;
        x[i] = b.word[1] % 4 == 0 ? 0 : (float)(u * exp2(-(double)(b.word[1] / 4 % 20)));
    }
}

static void check_same_bits(const char *what, const float *got, const float *expected, int n)
{
    for (int i = 0; i < n; i++)
        if (tandem_bits_of(got[i]) != tandem_bits_of(expected[i]) && !(got[i] == 0 && expected[i] == 0))
            fail_msg("%s: element %d is %.9g, the kernel's %.9g", what, i, (double)got[i],
                     (double)expected[i]);
}

static void round_reference(float *out, tandem_format format, const float *x, int n, float range,
                            uint64_t seed)
{
    const tandem_format_cast cast = {.format = format,
                                     .x = x,
                                     .rows = 1,
                                     .columns = n,
                                     .range = range,
                                     .error_scale = 1,
                                     .seed = seed,
                                     .stream = {5, 6, 7}};
    tandem_error error = {0};
    require_ok(tandem_format_round(out, NULL, &cast, &error), &error);
}

static void s8_has_the_bits_of_the_cpu(void **state)
{
    static float x[N], out[N], expected[N];
    static int8_t q[N];
    const tandem_kernels *kernels = NULL;
    tandem_error error = {0};
    require_ok(tandem_kernels_open(&kernels, "best", &error), &error);
    for (int run = 0; run < 12; run++) {
        draw_numbers(x, N, (uint64_t)run);
        const int is_drawn = run % 2;
        const float range = run % 3 == 2 ? 0.3f : 0; /* some numbers are clamped */
        const tandem_rounding rounding = {.seed = (uint64_t)run, .stream = {5, 6, 7}};
        float scale = 0;
        const tandem_quantise_call call = {.x = x,
                                           .from = TANDEM_F32,
                                           .rows = 1,
                                           .columns = N,
                                           .q = q,
                                           .scale_mode = range > 0 ? TANDEM_SCALE_KNOWN : TANDEM_SCALE_TENSOR,
                                           .range = range,
                                           .rounding = is_drawn ? &rounding : NULL,
                                           .scale = &scale};
        require_ok(tandem_kernels_quantise(kernels, &call, &error), &error);
        for (int i = 0; i < N; i++) expected[i] = scale * (float)q[i];
        round_reference(out, is_drawn ? TANDEM_FORMAT_S8 : TANDEM_FORMAT_S8_NEAREST, x, N, range,
                        (uint64_t)run);
        check_same_bits(is_drawn ? "s8" : "s8_nearest", out, expected, N);
    }
}

static void bf16_has_the_bits_of_the_cpu(void **state)
{
    static float x[N], out[N], expected[N];
    static uint16_t narrow[N];
    const tandem_kernels *kernels = NULL;
    tandem_error error = {0};
    require_ok(tandem_kernels_open(&kernels, "best", &error), &error);
    for (uint32_t run = 0; run < 64; run++) { /* bit patterns of all exponents */
        for (uint32_t i = 0; i < N; i++) x[i] = tandem_float_of((run * N + i) * 16411u);
        for (uint32_t i = 0; i < N; i++)
            if (isnan(x[i])) x[i] = 0;
        const tandem_cast_call call = {
            .x = x, .from = TANDEM_F32, .rows = 1, .columns = N, .y = narrow, .to = TANDEM_BF16};
        require_ok(tandem_kernels_cast(kernels, &call, &error), &error);
        for (int i = 0; i < N; i++) expected[i] = tandem_f32_of_bf16(narrow[i]);
        round_reference(out, TANDEM_FORMAT_BF16, x, N, 0, 0);
        check_same_bits("bf16", out, expected, N);
    }
}

/* All codes of f16, and the floats around each and around the middle to the next. */
static void f16_has_the_bits_of_cuda(void **state)
{
    enum { AROUND = 6 };
    float x[AROUND], out[AROUND], expected[AROUND];
    for (uint32_t code = 0; code < 0x10000u; code++) {
        const float at = tandem_f32_of_f16((uint16_t)code), next = tandem_f32_of_f16((uint16_t)(code + 1));
        if (isnan(at) || isnan(next) || isinf(at)) continue;
        const float middle = isinf(next) ? copysignf(65520, at) : (at + next) / 2;
        const float around[AROUND] = {at,     nextafterf(at, INFINITY),     nextafterf(at, -INFINITY),
                                      middle, nextafterf(middle, INFINITY), nextafterf(middle, -INFINITY)};
        memcpy(x, around, sizeof x);
        for (int i = 0; i < AROUND; i++) expected[i] = tandem_f32_of_f16(tandem_f16_of(x[i]));
        round_reference(out, TANDEM_FORMAT_F16, x, AROUND, 0, 0);
        check_same_bits("f16", out, expected, AROUND);
    }
}

/* One byte: whole tensors, with their scale. */
static void one_byte_has_the_bits_of_cuda(void **state)
{
    static float x[N], out[N], expected[N];
    for (int run = 0; run < 6; run++) {
        draw_numbers(x, N, 100 + (uint64_t)run);
        if (run == 5) /* every code, and the middles */
            for (int i = 0; i < 254; i++)
                x[i] = i % 2 ? tandem_f32_of_e4m3((uint8_t)(i / 2))
                             : (tandem_f32_of_e4m3((uint8_t)(i / 2)) +
                                (i / 2 < 126 ? tandem_f32_of_e4m3((uint8_t)(i / 2 + 1)) : 448)) /
                                   2;
        float amax = 0;
        for (int i = 0; i < N; i++) amax = fmaxf(amax, fabsf(x[i]));
        const tandem_quant_scale e4m3 = tandem_quant_scale_of(amax, 448),
                                 e5m2 = tandem_quant_scale_of(amax, 57344),
                                 s8 = tandem_quant_scale_of(amax, 127);
        for (int i = 0; i < N; i++)
            expected[i] = tandem_f32_of_e4m3(tandem_e4m3_of(x[i] * e4m3.inverse)) * e4m3.scale;
        round_reference(out, TANDEM_FORMAT_E4M3, x, N, 0, 0);
        check_same_bits("e4m3", out, expected, N);
        for (int i = 0; i < N; i++)
            expected[i] = tandem_f32_of_e5m2(tandem_e5m2_of(x[i] * e5m2.inverse)) * e5m2.scale;
        round_reference(out, TANDEM_FORMAT_E5M2, x, N, 0, 0);
        check_same_bits("e5m2", out, expected, N);
        for (int i = 0; i < N; i++) {
            const tandem_philox_block draws =
                tandem_philox((const uint32_t[]){(uint32_t)i / 8, 5, 6, 7}, (uint64_t)run);
            expected[i] =
                (float)tandem_round_s8(x[i], s8.inverse, tandem_draw_float(draws, i % 8)) * s8.scale;
        }
        round_reference(out, TANDEM_FORMAT_S8, x, N, 0, (uint64_t)run);
        check_same_bits("s8", out, expected, N);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(s8_has_the_bits_of_the_cpu),
        cmocka_unit_test(bf16_has_the_bits_of_the_cpu),
        cmocka_unit_test(f16_has_the_bits_of_cuda),
        cmocka_unit_test(one_byte_has_the_bits_of_cuda),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
