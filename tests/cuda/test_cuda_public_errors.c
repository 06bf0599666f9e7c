/* folder: backend */
/* tandem/cuda_kernels.h: arguments that are off are named, and nothing is launched then; launches that fail
 * are reported. */
#include "tandem/cuda_kernels.h"
#include "tests/cuda/gpu.h"
#include "tests/cuda/stand_in.h"
#include "tests/support/tandem_test.h"

enum { ROWS = 4, COLUMNS = 16, N = ROWS * COLUMNS, UNTOUCHED = 0xA5 };

static const tandem_rounding draws = {1, {2, 3, 4}, 0}, late = {1, {2, 3, 4}, UINT32_MAX};
static tandem_error error; /* of the last call */
static float *in;          /* [N] */
static uint8_t *outputs;   /* q, the transposed copy, the scales and the workspace, 256 bytes each */

static int open_error_arrays(void **state)
{
    in = gpu_alloc_shared(N * sizeof *in);
    outputs = gpu_alloc_shared(1024);
    for (int i = 0; in && i < N; i++) in[i] = (float)i / N;
    return !in || !outputs;
}

static int close_error_arrays(void **state)
{
    gpu_free_shared(outputs);
    gpu_free_shared(in);
    return 0;
}

static float *scale_array(void) { return (float *)(void *)(outputs + 512); }
static uint32_t *words_array(void) { return (uint32_t *)(void *)(outputs + 768); }

static tandem_cuda_quantise_call quantise_call(void)
{
    return (tandem_cuda_quantise_call){.x = in,
                                       .rows = ROWS,
                                       .columns = COLUMNS,
                                       .q = outputs,
                                       .to = TANDEM_S8,
                                       .transposed = outputs + 256,
                                       .rounding = &draws,
                                       .scale = scale_array(),
                                       .workspace = words_array()};
}

static tandem_cuda_dequantise_call dequantise_call(void)
{
    return (tandem_cuda_dequantise_call){in,         TANDEM_S8,           ROWS, COLUMNS, outputs,
                                         TANDEM_F32, TANDEM_SCALE_TENSOR, in};
}

static tandem_cuda_sums_call sums_call(void)
{
    return (tandem_cuda_sums_call){.sums = (const int32_t *)(const void *)in,
                                   .rows = ROWS,
                                   .columns = COLUMNS,
                                   .y = outputs,
                                   .a_scale = in,
                                   .b_scale = in};
}

/* It was refused in words that begin with `says`, and no output was touched. */
static void check_refused(tandem_status status, const char *says)
{
    assert_int_equal(status, TANDEM_USAGE);
    assert_int_equal(error.status, TANDEM_USAGE);
    if (strncmp(error.text, says, strlen(says)) != 0)
        fail_msg("'%s' does not begin with '%s'", error.text, says);
    error = (tandem_error){0};
    for (int i = 0; i < 1024; i++) assert_int_equal(outputs[i], UNTOUCHED);
}

/* A call with one change. */
#define REFUSED(call, function, name, change, says)                                                          \
    do {                                                                                                     \
        call c = function##_call();                                                                          \
        change;                                                                                              \
        check_refused(tandem_cuda_kernels_##name(&c, NULL, &error), says);                                   \
    } while (0)
#define BAD_QUANTISE(change, says)                                                                           \
    REFUSED(tandem_cuda_quantise_call, quantise, quantise, change, "quantise: " says)
#define BAD_DEQUANTISE(change, says)                                                                         \
    REFUSED(tandem_cuda_dequantise_call, dequantise, dequantise, change, "dequantise: " says)

static void arguments_of_quantise_are_named(void **state)
{
    tandem_amax_history *const history = (tandem_amax_history *)(void *)in;
    check_refused(tandem_cuda_kernels_quantise(NULL, NULL, &error), "quantise: the call is NULL");
    BAD_QUANTISE(c.x = NULL, "x is NULL");
    BAD_QUANTISE(c.x = in + 1, "x lies at");
    BAD_QUANTISE(c.from = TANDEM_S8, "from must be");
    BAD_QUANTISE(c.to = TANDEM_F32, "to must be");
    BAD_QUANTISE(c.rows = -1, "batch, rows and columns are 1, -1 and 16");
    BAD_QUANTISE(c.columns = -1, "batch, rows");
    BAD_QUANTISE(c.batch = -1, "batch, rows");
    BAD_QUANTISE(c.rows = INT64_MAX; c.columns = 4, "batch, rows");
    BAD_QUANTISE(c.rows = INT64_MAX; c.batch = 4; c.columns = 0, "batch, rows");
    BAD_QUANTISE(c.q = NULL, "q is NULL");
    BAD_QUANTISE(c.q = outputs + 8, "q lies at");
    BAD_QUANTISE(c.transposed = outputs + 257, "transposed lies at");
    BAD_QUANTISE(c.scale_mode = TANDEM_SCALE_ROW, "transposed is not made");
    BAD_QUANTISE(c.rows = 1; c.columns = (int64_t)1 << 37; c.rounding = NULL, "transposed would need");
    BAD_QUANTISE(c.transposed = NULL; c.scale_mode = TANDEM_SCALE_ROW;
                 c.rows = (int64_t)1 << 31, "there are 2147483648 rows");
    BAD_QUANTISE(c.scale_mode = (tandem_scale_mode)3, "scale_mode is 3");
    BAD_QUANTISE(c.scale_mode = TANDEM_SCALE_KNOWN; c.range = -1, "range is -1");
    BAD_QUANTISE(c.scale_mode = TANDEM_SCALE_KNOWN; c.range = NAN, "range is nan");
    BAD_QUANTISE(c.scale_mode = TANDEM_SCALE_KNOWN; c.range = INFINITY, "range is inf");
    BAD_QUANTISE(c.history = history, "history goes with");
    BAD_QUANTISE(c.reuse_range = 1, "reuse_range needs");
    BAD_QUANTISE(c.scale_mode = TANDEM_SCALE_KNOWN; c.history = (void *)(outputs + 4), "history lies at");
    BAD_QUANTISE(c.stream_offset = (void *)(outputs + 2), "stream_offset lies at");
    BAD_QUANTISE(c.scale = NULL, "scale is NULL");
    BAD_QUANTISE(c.scale = (void *)(outputs + 2), "scale lies at");
    BAD_QUANTISE(c.workspace = NULL, "workspace is NULL");
    BAD_QUANTISE(c.rounding = &late, "64 elements from rounding's block 4294967295 on");
}

static void arguments_of_the_others_are_named(void **state)
{
    check_refused(tandem_cuda_kernels_dequantise(NULL, NULL, &error), "dequantise: the call is NULL");
    BAD_DEQUANTISE(c.q = NULL, "q is NULL");
    BAD_DEQUANTISE(c.from = TANDEM_BF16, "from must be");
    BAD_DEQUANTISE(c.to = TANDEM_S32, "to must be");
    BAD_DEQUANTISE(c.rows = -5, "batch, rows");
    BAD_DEQUANTISE(c.x = outputs + 4, "x lies at");
    BAD_DEQUANTISE(c.scale_mode = (tandem_scale_mode)-1, "scale_mode is -1");
    BAD_DEQUANTISE(c.scale_mode = TANDEM_SCALE_ROW; c.rows = (int64_t)1 << 31, "there are");
    BAD_DEQUANTISE(c.scale = NULL, "scale is NULL");
    check_refused(tandem_cuda_kernels_scale_sums(NULL, NULL, &error), "scale_sums: the call is NULL");
    REFUSED(tandem_cuda_sums_call, sums, scale_sums, c.sums = NULL, "scale_sums: sums is NULL");
    REFUSED(tandem_cuda_sums_call, sums, scale_sums, c.y = NULL, "scale_sums: y is NULL");
    REFUSED(tandem_cuda_sums_call, sums, scale_sums, c.to = TANDEM_S8, "scale_sums: to must be");
    REFUSED(tandem_cuda_sums_call, sums, scale_sums, c.columns = -1, "scale_sums: batch, rows");
    REFUSED(tandem_cuda_sums_call, sums, scale_sums, c.scale_mode = (tandem_scale_mode)9,
            "scale_sums: scale_mode is 9");
    REFUSED(tandem_cuda_sums_call, sums, scale_sums, c.a_scale = NULL, "scale_sums: a_scale is NULL");
    REFUSED(tandem_cuda_sums_call, sums, scale_sums, c.b_scale = NULL, "scale_sums: b_scale is NULL");
    check_refused(tandem_cuda_kernels_amax(NULL, in, TANDEM_F32, N, NULL, &error), "amax: amax is NULL");
    check_refused(tandem_cuda_kernels_amax(scale_array(), NULL, TANDEM_F32, N, NULL, &error),
                  "amax: x is NULL");
    check_refused(tandem_cuda_kernels_amax(scale_array(), in, TANDEM_S32, N, NULL, &error),
                  "amax: from must be");
    check_refused(tandem_cuda_kernels_amax(scale_array(), in, TANDEM_F32, -1, NULL, &error),
                  "amax: batch, rows");
    check_refused(tandem_cuda_kernels_cast(outputs, TANDEM_F32, in, TANDEM_F32, N, NULL, &error),
                  "cast: to is the same");
    check_refused(tandem_cuda_kernels_cast(outputs, TANDEM_S8, in, TANDEM_F32, N, NULL, &error),
                  "cast: to must be");
    check_refused(tandem_cuda_kernels_cast(outputs, TANDEM_BF16, in, TANDEM_TF32, N, NULL, &error),
                  "cast: from must be");
    check_refused(tandem_cuda_kernels_cast(NULL, TANDEM_BF16, in, TANDEM_F32, N, NULL, &error),
                  "cast: y is NULL");
    check_refused(tandem_cuda_kernels_cast(outputs, TANDEM_BF16, NULL, TANDEM_F32, N, NULL, &error),
                  "cast: x is NULL");
}

/* Calls that are all of launches, each to a fresh state. */
static tandem_status call_one(int which, tandem_amax_history *history)
{
    tandem_cuda_quantise_call quantise = quantise_call();
    const tandem_cuda_dequantise_call dequantise = dequantise_call();
    const tandem_cuda_sums_call sums = sums_call();
    switch (which) {
    case 0: return tandem_cuda_kernels_quantise(&quantise, NULL, &error);
    case 1:
        quantise.scale_mode = TANDEM_SCALE_KNOWN;
        quantise.history = history;
        return tandem_cuda_kernels_quantise(&quantise, NULL, &error);
    case 2:
        quantise.scale_mode = TANDEM_SCALE_ROW;
        quantise.transposed = NULL;
        return tandem_cuda_kernels_quantise(&quantise, NULL, &error);
    case 3: return tandem_cuda_kernels_dequantise(&dequantise, NULL, &error);
    case 4: return tandem_cuda_kernels_scale_sums(&sums, NULL, &error);
    case 5: return tandem_cuda_kernels_amax(scale_array(), in, TANDEM_F32, N, NULL, &error);
    default: return tandem_cuda_kernels_cast(outputs, TANDEM_BF16, in, TANDEM_F32, N, NULL, &error);
    }
}

static void launches_that_fail_are_reported(void **state)
{
    static const int n_launch[] = {4, 3, 1, 1,
                                   /* rows are no sixteens: codes are turned by a launch of their own */
                                   1, 2, 1};
    tandem_amax_history *history = gpu_alloc_shared(sizeof *history);
    assert_non_null(history);
    assert_int_equal(tandem_amax_history_init(history, 4, 0, NULL), TANDEM_OK);
    for (int which = 0; which < 7; which++)
        for (int k = 0; k <= n_launch[which]; k++) {
            error = (tandem_error){0};
            stand_in_calls_to_failure = k;
            const tandem_status status = call_one(which, history);
            stand_in_calls_to_failure = -1;
            assert_int_equal(status, k < n_launch[which] ? TANDEM_NO_DEVICE : TANDEM_OK);
            assert_int_equal(error.status, status);
            if (status != TANDEM_OK) assert_non_null(strstr(error.text, "the launch failed: CUDA error"));
        }
    gpu_free_shared(history);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arguments_of_quantise_are_named),
        cmocka_unit_test(arguments_of_the_others_are_named),
        cmocka_unit_test(launches_that_fail_are_reported),
    };
    return cmocka_run_group_tests(tests, open_error_arrays, close_error_arrays);
}
