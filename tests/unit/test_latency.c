/* folder: allocator */
/* Times that were never measured: work and form by hand, fits that are known, and who says so. */
#include "tandem/advanced/allocator.h"
#include "tandem/advanced/predictor.h"
#include "tests/support/replay_store.h"
#include "tests/support/tandem_test.h"

static tandem_cost_key op_key_latency(const char *signature, tandem_pass pass, tandem_dtype from,
                                      tandem_dtype to)
{
    tandem_cost_key key = {.kind = TANDEM_COST_OP, .precision = "fp32", .pass = pass, .from = from, .to = to};
    (void)snprintf(key.signature, sizeof key.signature, "%s", signature);
    return key;
}

static tandem_cost_key f32_key(const char *signature, tandem_pass pass)
{
    return op_key_latency(signature, pass, TANDEM_F32, TANDEM_F32);
}

static tandem_cost_key cast_key(int64_t elements, tandem_dtype from, tandem_dtype to,
                                tandem_range_source range)
{
    return (tandem_cost_key){.kind = TANDEM_COST_CAST,
                             .precision = "",
                             .from = from,
                             .to = to,
                             .elements = elements,
                             .range_source = range};
}

/* --- Work ----------------------------------------------------------------------------------------------- */

static void work_is_counted_by_hand(void **state)
{
    static const tandem_pass FORWARD = TANDEM_PASS_FORWARD, DGRAD = TANDEM_PASS_DGRAD,
                             WGRAD = TANDEM_PASS_WGRAD, UPDATE = TANDEM_PASS_UPDATE;
    const struct {
        const char *signature;
        tandem_pass pass;
        tandem_dtype from, to;
        double flops, bytes;
    } rows[] = {
        {"linear m=8 k=4 n=2", FORWARD, TANDEM_F32, TANDEM_F32, 128, (32 + 8) * 4 + 16 * 4},
        {"linear m=8 k=4 n=2", FORWARD, TANDEM_S8, TANDEM_F32, 128, (32 + 8) * 1 + 16 * 4},
        {"linear m=8 k=4 n=2", DGRAD, TANDEM_F32, TANDEM_F32, 128, (16 + 8) * 4 + 32 * 4},
        {"linear m=8 k=4 n=2 accumulate=1", DGRAD, TANDEM_F32, TANDEM_F32, 128, (16 + 8) * 4 + 2 * 32 * 4},
        {"linear m=8 k=4 n=2", WGRAD, TANDEM_BF16, TANDEM_F32, 128, (32 + 16) * 2 + 8 * 4},
        {"linear m=8 k=4 n=2 tb=1", FORWARD, TANDEM_F32, TANDEM_F32, 128, 224},
        /* rows of the result with gaps */
        {"linear m=8 k=4 n=3 tb=1 padded=8", FORWARD, TANDEM_BF16, TANDEM_BF16, 192, (32 + 12 + 64) * 2},
        {"linear m=8 k=4 n=3 tb=1 padded=8", DGRAD, TANDEM_BF16, TANDEM_BF16, 192, (32 + 12 + 64) * 2},
        {"linear m=8 k=4 n=3 tb=1 padded=8", WGRAD, TANDEM_BF16, TANDEM_F32, 192, (32 + 64) * 2 + 12 * 4},
        {"bias n=12 period=3 padded=8", FORWARD, TANDEM_BF16, TANDEM_BF16, 12, 32 * 2 * 2},
        {"cross_entropy rows=3 n=5 saved=1 padded=8", DGRAD, TANDEM_BF16, TANDEM_BF16, 75, 24 * 2 * 2},
        {"matmul batch=3 m=8 k=4 n=2 tb=1", FORWARD, TANDEM_F32, TANDEM_F32, 384, 672},
        {"conv2d n=2 h=5 w=5 c=3 -> c=4 k=3x3 s=2 p=1", FORWARD, TANDEM_F32, TANDEM_F32, 2 * 18 * 27 * 4,
         (150 + 108 + 72) * 4},
        {"conv2d n=2 h=5 w=5 c=3 -> c=4 k=3x3 s=2 p=1", WGRAD, TANDEM_BF16, TANDEM_F32, 3888,
         (150 + 72) * 2 + 108 * 4},
        {"maxpool n=1 h=4 w=4 c=2 k=2x2 s=2 p=0", FORWARD, TANDEM_F32, TANDEM_F32, 8 * 4, (32 + 8) * 4},
        {"embedding rows=6 vocabulary=10 width=4", FORWARD, TANDEM_F32, TANDEM_F32, 0, 24 * 4 * 2},
        {"embedding rows=6 vocabulary=10 width=4", WGRAD, TANDEM_BF16, TANDEM_F32, 0, 24 * 2 + (40 + 24) * 4},
        {"bias n=12 period=4", FORWARD, TANDEM_BF16, TANDEM_BF16, 12, 12 * 2 * 2},
        {"bias n=12 period=4", WGRAD, TANDEM_F32, TANDEM_F32, 12, 12 * 4},
        {"relu n=12", DGRAD, TANDEM_F32, TANDEM_F32, 12, 12 * 3 * 4},
        {"gelu n=12", FORWARD, TANDEM_F32, TANDEM_F32, 96, 12 * 2 * 4},
        {"add n=12", FORWARD, TANDEM_F32, TANDEM_F32, 12, 12 * 3 * 4},
        {"accumulate n=12", DGRAD, TANDEM_BF16, TANDEM_BF16, 12, 12 * 3 * 2},
        {"transpose 2x3x4 axes=021", FORWARD, TANDEM_F32, TANDEM_F32, 0, 24 * 2 * 4},
        {"gather_labelled n=2 of=9 row=4 rows=3", FORWARD, TANDEM_BF16, TANDEM_BF16, 0, 24 * 2 * 2},
        {"softmax rows=3 n=5 causal=1", FORWARD, TANDEM_F32, TANDEM_F32, 90, 15 * 2 * 4},
        {"layernorm rows=3 n=5", DGRAD, TANDEM_F32, TANDEM_F32, 105, 15 * 5 * 4},
        {"batchnorm rows=3 n=5", FORWARD, TANDEM_F32, TANDEM_F32, 105, 15 * 3 * 4},
        {"cross_entropy rows=3 n=5", FORWARD, TANDEM_F32, TANDEM_F32, 75, 15 * 2 * 4},
        {"cross_entropy rows=3 n=5 saved=1", FORWARD, TANDEM_BF16, TANDEM_F32, 75, 15 * 2},
        {"cross_entropy rows=3 n=5 saved=1", DGRAD, TANDEM_BF16, TANDEM_BF16, 75, 15 * 2 * 2},
        {"images n=2 h=3 w=3 c=1", FORWARD, TANDEM_F32, TANDEM_F32, 0, 72},
        {"tokens n=2 length=7", FORWARD, TANDEM_F32, TANDEM_F32, 0, 56},
        {"sgd n=100 parameters=2", UPDATE, TANDEM_F32, TANDEM_F32, 400, 100 * 5 * 4},
        {"adamw n=100 parameters=2", UPDATE, TANDEM_F32, TANDEM_F32, 1200, 100 * 7 * 4},
    };
    for (size_t i = 0; i < N_OF(rows); i++) {
        tandem_work work = {0};
        const tandem_cost_key key = op_key_latency(rows[i].signature, rows[i].pass, rows[i].from, rows[i].to);
        if (!tandem_work_of(&work, &key)) fail_msg("%s is not known", rows[i].signature);
        if (work.flops != rows[i].flops || work.bytes != rows[i].bytes)
            fail_msg("%s: %g FLOP, %g bytes; expected %g, %g", rows[i].signature, work.flops, work.bytes,
                     rows[i].flops, rows[i].bytes);
        assert_int_equal(work.type, rows[i].from);
    }
}

static void casts_read_twice_where_the_range_is_not_known(void **state)
{
    const struct {
        tandem_dtype from, to;
        tandem_range_source range_source;
        double bytes;
    } rows[] = {{TANDEM_F32, TANDEM_S8, 0, 10 * 9},    {TANDEM_F32, TANDEM_S8, 1, 10 * 5},
                {TANDEM_BF16, TANDEM_E4M3, 0, 10 * 5}, {TANDEM_BF16, TANDEM_E4M3, 1, 10 * 3},
                {TANDEM_F32, TANDEM_E5M2, 0, 10 * 9},  {TANDEM_F32, TANDEM_F16, 0, 10 * 6},
                {TANDEM_S8, TANDEM_BF16, 0, 10 * 3}};
    for (size_t i = 0; i < N_OF(rows); i++) {
        tandem_work work;
        const tandem_cost_key key = cast_key(10, rows[i].from, rows[i].to, rows[i].range_source);
        assert_true(tandem_work_of(&work, &key));
        assert_true(work.bytes == rows[i].bytes && work.flops == 0 && !work.is_product);
    }
}

static void products_turn_with_their_pass(void **state)
{
    const double mnk[3][3] = {{8, 2, 4}, {8, 4, 2}, {4, 2, 8}};
    for (int pass = 0; pass < 3; pass++) {
        tandem_work work;
        tandem_cost_key key = f32_key("linear m=8 k=4 n=2", (tandem_pass)pass);
        assert_true(tandem_work_of(&work, &key) && work.is_product && work.count == 1 &&
                    work.work_class == TANDEM_WORK_LINEAR);
        assert_true(work.m == mnk[pass][0] && work.n == mnk[pass][1] && work.k == mnk[pass][2]);
        key = f32_key("conv2d n=2 h=5 w=5 c=3 -> c=4 k=3x3 s=2 p=1", (tandem_pass)pass);
        assert_true(tandem_work_of(&work, &key) && work.work_class == TANDEM_WORK_CONVOLUTION);
        assert_true(work.convolution.stride_w == 2 && work.convolution.kernel_h == 3 &&
                    (int)work.pass == pass);
        assert_true(fabs(work.flops - 2 * work.m * work.n * work.k) < 1e-6);
        assert_true(work.n == (pass == TANDEM_PASS_DGRAD ? 3 : 4)); /* channels of what is computed */
    }
    tandem_work rows;
    const tandem_cost_key softmax = f32_key("softmax rows=3 n=5", TANDEM_PASS_FORWARD),
                          gradient = f32_key("softmax rows=3 n=5", TANDEM_PASS_DGRAD);
    assert_true(tandem_work_of(&rows, &softmax) && rows.work_class == TANDEM_WORK_SOFTMAX && rows.rows == 3 &&
                rows.columns == 5);
    assert_true(tandem_work_of(&rows, &gradient) && rows.work_class == TANDEM_WORK_STREAM);
}

/* tf32 reads f32, and is as fast as its own rate says; nothing is transformed. */
static void tf32_has_a_rate_of_its_own(void **state)
{
    tandem_work work, plain;
    tandem_kernel_time time;
    tandem_reached_rates rates;
    const tandem_cost_key fp32 =
        f32_key("conv2d n=64 h=32 w=32 c=64 -> c=64 k=3x3 s=1 p=1", TANDEM_PASS_FORWARD);
    tandem_cost_key tf32 = fp32;
    tandem_device a100, t4;
    tf32.precision = "tf32";
    assert_true(tandem_work_of(&plain, &fp32) && tandem_work_of(&work, &tf32));
    assert_int_equal(plain.type, TANDEM_F32);
    assert_int_equal(work.type, TANDEM_TF32);
    assert_true(work.bytes == plain.bytes && work.flops == plain.flops);
    assert_int_equal(tandem_device_find(&a100, "a100", NULL), TANDEM_OK);
    assert_int_equal(tandem_device_find(&t4, "t4", NULL), TANDEM_OK);
    tandem_reached_rates_fitted(&rates, &a100);
    assert_true(tandem_kernel_time_of(&time, tandem_constants_fitted(), &a100.gpu_spec, &rates, &work) > 0);
    assert_string_equal(time.algorithm, "direct");
    assert_true(tandem_kernel_time_of(&time, tandem_constants_fitted(), &a100.gpu_spec, &rates, &plain) > 0);
    assert_string_equal(time.algorithm, "winograd");
    const tandem_cost_key large = f32_key("linear m=8192 k=8192 n=8192", TANDEM_PASS_FORWARD);
    tf32 = large;
    tf32.precision = "tf32";
    assert_true(tandem_work_of(&plain, &large) && tandem_work_of(&work, &tf32));
    const double ratio = tandem_described_ns(&a100, &plain) / tandem_described_ns(&a100, &work);
    assert_true(ratio > 6 && ratio < 9); /* 19.5 and 156 TFLOP/s */
    assert_true(tandem_described_ns(&t4, &work) < 0);
}

static void has_no_work(const tandem_cost_key *key)
{
    tandem_work work = {.bytes = 7};
    if (tandem_work_of(&work, key)) fail_msg("'%s' has work", key->signature);
    assert_true(work.bytes == 7); /* untouched */
}

static void what_is_not_known_has_no_work(void **state)
{
    const struct {
        const char *signature;
        tandem_pass pass;
    } rows[] = {
        {"warp n=4", TANDEM_PASS_FORWARD},
        {"linearly m=8 k=4 n=2", TANDEM_PASS_FORWARD},
        {"linear", TANDEM_PASS_FORWARD},
        {"linear m=8 k=4 n=2", TANDEM_PASS_UPDATE},
        {"add n=4", TANDEM_PASS_DGRAD},
        {"conv2d n=2 h=5 w=5 c=3 c=4", TANDEM_PASS_FORWARD},
        {"conv2d n=0 h=5 w=5 c=0 -> c=0 k=3x3 s=0 p=1", TANDEM_PASS_FORWARD},
        {"linear m=-8 k=4 n=2", TANDEM_PASS_FORWARD},
        {"", TANDEM_PASS_FORWARD},
    };
    for (size_t i = 0; i < N_OF(rows); i++) {
        const tandem_cost_key key = f32_key(rows[i].signature, rows[i].pass);
        has_no_work(&key);
    }
    const tandem_cost_key cast = cast_key(-5, TANDEM_F32, TANDEM_S8, 0),
                          collective = {.kind = TANDEM_COST_COLLECTIVE, .precision = "", .elements = 7};
    has_no_work(&cast);
    has_no_work(&collective);
}

/* --- The form ------------------------------------------------------------------------------------------- */

/* 1 TFLOP/s and 100 GB/s, of which half are reached; nothing of the level-2 cache is used. */
static const tandem_gpu_spec four_units = {.flops_per_s = {[TANDEM_F32] = 1e12},
                                           .bytes_per_s = 1e11,
                                           .l2_bytes = 1e6,
                                           .watts = 100,
                                           .process_nm = 14,
                                           .generation = 70,
                                           .n_sm = 4};
static const tandem_reached_rates half_rates = {
    .flops_per_s = {[TANDEM_F32] = 5e11}, .bytes_per_s = 5e10, .launch_ns = 1000};

/* Terms that can be worked out by hand: whole waves, no prologue, no loss of tiles or of depth, and compute
 * and memory one after the other. */
static tandem_constants plain_constants(void)
{
    tandem_constants c;
    tandem_constants_start(&c);
    c.value[TANDEM_CONSTANT_WAVE_SHARE] = 1;
    c.value[TANDEM_CONSTANT_PROLOGUE] = 0;
    c.value[TANDEM_CONSTANT_SPLIT_DEPTH] = 256;
    c.value[TANDEM_CONSTANT_TILE_LOSS] = 0;
    c.value[TANDEM_CONSTANT_DEPTH_LOSS] = 0;
    c.value[TANDEM_CONSTANT_OVERLAP] = c.value[TANDEM_CONSTANT_BATCHED_OVERLAP] = 1;
    c.value[TANDEM_CONSTANT_PRODUCT_BANDWIDTH] = c.value[TANDEM_CONSTANT_BATCHED_BANDWIDTH] = 1;
    c.value[TANDEM_CONSTANT_CACHE_SHARE] = 0;
    c.value[TANDEM_CONSTANT_BATCHED_TIME] = 2;
    c.value[TANDEM_CONSTANT_BATCHED_PROLOGUE] = 100;
    c.value[TANDEM_CONSTANT_SOFTMAX_FLOPS] = 100;
    c.value[TANDEM_CONSTANT_SOFTMAX_ROW] = 40;
    c.value[TANDEM_CONSTANT_LAYERNORM_CACHE] = 1;
    c.value[TANDEM_CONSTANT_LAYERNORM_ROW] = 20;
    c.value[TANDEM_CONSTANT_CONV_DIRECT] = 2;
    c.value[TANDEM_CONSTANT_CONV_PROLOGUE] = 0;
    c.value[TANDEM_CONSTANT_CONV_TAIL] = 2;
    c.value[TANDEM_CONSTANT_CONV_NARROW] = 1;
    c.value[TANDEM_CONSTANT_CONV_WGRAD] = 3;
    c.value[TANDEM_CONSTANT_CONV_WGRAD_POINTS] = 4;
    c.value[TANDEM_CONSTANT_CONV_PARTIAL] = 5;
    return c;
}

static double plain_ns(const char *signature, tandem_pass pass, tandem_kernel_time *time)
{
    tandem_work work;
    const tandem_constants constants = plain_constants();
    const tandem_cost_key key = f32_key(signature, pass);
    assert_true(tandem_work_of(&work, &key));
    return tandem_kernel_time_of(time, &constants, &four_units, &half_rates, &work);
}

static void the_form_is_worked_out_by_hand(void **state)
{
    const struct {
        const char *signature;
        double compute, memory;
    } rows[] = {
        /* one wave of four tiles of 128²: 128² · 2 · 1000 FLOP each at 125 GFLOP/s */
        {"linear m=256 k=1000 n=256", 262144, (256 * 1000 * 2 + 256 * 256) * 4 / 50.0},
        /* 257 columns: 2 × 33 tiles of 128 × 8 are 17 waves, each a 16th as long */
        {"linear m=256 k=1000 n=257", 278528, (256 * 1000 + 1000 * 257 + 256 * 257) * 4 / 50.0},
        /* 16 tiles of 32² are four waves, each as long as a 16th of what a tile of 128² takes, split in four
         */
        {"linear m=128 k=4096 n=128", 268435.456, (128 * 4096 * 2 + 128 * 128) * 4 / 50.0},
        /* batched on this generation: 4 of 64 × 64, at twice the time, 100 deeper */
        {"matmul batch=4 m=64 k=400 n=64", 2 * 64 * 64 * 2 * 500 / 125.0,
         4 * (2 * 64 * 400 + 4096) * 4 / 50.0},
        {"add n=1000000", 1e6 / 500, 12e6 / 50},
        /* two passes; above 1024 columns, 100 FLOP an element at the peak; 10 rows of 40 ns on four units */
        {"softmax rows=10 n=2000", 20000 * 100 / 1000.0, 20000 * 2 * 4 / 50.0 + 100},
        {"softmax rows=10 n=1000", 10000 * 6 / 500.0, 10000 * 2 * 4 / 50.0 + 100},
    };
    for (size_t i = 0; i < N_OF(rows); i++) {
        tandem_kernel_time time;
        const double ns = plain_ns(rows[i].signature, TANDEM_PASS_FORWARD, &time);
        const int is_product = strchr("lm", rows[i].signature[0]) != NULL;
        /* streams hide the smaller, but softmax of long rows a part of it */
        const double exponent = strstr(rows[i].signature, "n=2000") ? 1.5 : is_product ? 1 : 32;
        const double rest = pow(pow(rows[i].compute, exponent) + pow(rows[i].memory, exponent), 1 / exponent);
        if (fabs(time.compute_ns - rows[i].compute) > 1e-6 * rows[i].compute)
            fail_msg("%s: compute %g ns, not %g", rows[i].signature, time.compute_ns, rows[i].compute);
        if (fabs(time.memory_ns - rows[i].memory) > 1e-6 * rows[i].memory)
            fail_msg("%s: memory %g ns, not %g", rows[i].signature, time.memory_ns, rows[i].memory);
        assert_true(fabs(ns - (1000 + rest)) < 1e-6 * ns && fabs(time.launch_ns - 1000) < 1e-9);
    }
}

/* Sixteen rows in flight on each of four units, of 250 × 4 bytes, are 64 kB of a cache of 1 MB: a 245th
 * of the rows is read again. Rows 125 times as long are 8 caches, and 64 of 65 parts are. */
static void layernorm_reads_rows_again_past_the_cache(void **state)
{
    tandem_kernel_time small, large;
    (void)plain_ns("layernorm rows=100 n=250", TANDEM_PASS_FORWARD, &small);
    (void)plain_ns("layernorm rows=100 n=31250", TANDEM_PASS_FORWARD, &large);
    const double row = 250 * 4, again = 0.064 * 0.064 / (1 + 0.064 * 0.064);
    assert_true(fabs(small.bytes / (100 * row * (2 + again)) - 1) < 1e-9);
    assert_true(fabs(small.memory_ns - (small.bytes / 50 + 100 * 20 / 4.0)) < 1e-6);
    assert_true(fabs(large.bytes / (100 * 125 * row * (2 + 64.0 / 65)) - 1) < 1e-9);
}

/* At twice the depth that loses half, four fifths are lost: of 1 before 7.0, of a tenth from 7.0 on. */
static void deep_products_lose_by_generation(void **state)
{
    tandem_constants constants = plain_constants();
    tandem_gpu_spec old = four_units;
    tandem_kernel_time new_time, old_time;
    const tandem_cost_key key = f32_key("linear m=512 k=40000 n=512", TANDEM_PASS_FORWARD);
    tandem_work work;
    constants.value[TANDEM_CONSTANT_DEPTH_LOSS] = 0.1;
    constants.value[TANDEM_CONSTANT_DEPTH_LOSS_OLD] = 1;
    constants.value[TANDEM_CONSTANT_DEPTH_HALF] = 20;
    old.generation = 61;
    assert_true(tandem_work_of(&work, &key));
    (void)tandem_kernel_time_of(&new_time, &constants, &four_units, &half_rates, &work);
    (void)tandem_kernel_time_of(&old_time, &constants, &old, &half_rates, &work);
    assert_true(fabs(old_time.compute_ns / new_time.compute_ns - 1.8 / 1.08) < 1e-9);
}

/* Kernels of 7 × 7 are never transformed. 65536 windows by 64 are 1024 tiles of 128 × 32: 256 waves, and
 * two that hide nothing. */
static void passes_of_convolutions_have_their_factors(void **state)
{
    static const char conv[] = "conv2d n=64 h=32 w=32 c=64 -> c=64 k=7x7 s=1 p=3";
    tandem_kernel_time forward, dgrad, strided, transformed;
    (void)plain_ns(conv, TANDEM_PASS_FORWARD, &forward);
    (void)plain_ns(conv, TANDEM_PASS_DGRAD, &dgrad);
    assert_true(fabs(dgrad.compute_ns / forward.compute_ns - 1) < 1e-6);
    assert_true(fabs(forward.compute_ns - 2 * 258.0 * 128 * 32 * 2 * 3136 / 125) < 1);
    (void)plain_ns("conv2d n=64 h=32 w=32 c=64 -> c=64 k=2x2 s=2 p=0", TANDEM_PASS_DGRAD, &strided);
    assert_string_equal(strided.algorithm, "gemm");
    (void)plain_ns("conv2d n=64 h=32 w=32 c=64 -> c=64 k=3x3 s=1 p=1", TANDEM_PASS_FORWARD, &transformed);
    assert_string_equal(transformed.algorithm, "winograd");
    assert_true(transformed.executed_flops < 2 * 65536.0 * 9 * 64 * 64 / 3.9);
    (void)plain_ns("conv2d n=64 h=32 w=32 c=64 -> c=64 k=5x5 s=1 p=2", TANDEM_PASS_FORWARD, &transformed);
    assert_string_equal(transformed.algorithm, "winograd");
    /* 81 products for a tile of 5 × 5 results */
    assert_true(fabs(transformed.executed_flops / (2 * 64 * 49.0 * 81 * 64 * 64) - 1) < 1e-9);
}

/* On tensor cores a tap with one channel takes a tile of 64 of a gradient of weights, whatever the factor of
 * those in f32; one more than 64 take two. */
static void narrow_gradients_of_weights_have_tiles_for_each_tap(void **state)
{
    tandem_device v100;
    tandem_reached_rates rates;
    tandem_constants constants = *tandem_constants_fitted();
    tandem_convolution v = {16, 1, 64, 64, 128, 3, 3, 1, 1, 1, 1};
    double compute_ns[3];
    assert_int_equal(tandem_device_find(&v100, "v100", NULL), TANDEM_OK);
    tandem_reached_rates_fitted(&rates, &v100);
    for (int i = 0; i < 3; i++) {
        tandem_kernel_time time;
        tandem_work work = {.kind = "conv2d"};
        v.channels_in = i == 0 ? 1 : i == 1 ? 64 : 65;
        constants.value[TANDEM_CONSTANT_CONV_WGRAD] = 1 + i;
        assert_true(tandem_work_of_convolution(&work, &v, TANDEM_F16, TANDEM_PASS_WGRAD, 2, 2));
        (void)tandem_kernel_time_of(&time, &constants, &v100.gpu_spec, &rates, &work);
        compute_ns[i] = time.compute_ns;
    }
    assert_true(fabs(compute_ns[1] / compute_ns[0] - 1) < 1e-9);
    assert_true(compute_ns[2] > 1.6 * compute_ns[1]);
}

/* 64 × 16 × 16 tiles of 2 × 2 results, of 16 points, in blocks of 32 tiles: 512 on four multiprocessors, each
 * for 32 channels where the result has four, and two waves that hide nothing. No tensor is transformed
 * through memory. */
static void winograd_in_one_kernel_takes_few_channels(void **state)
{
    static const char conv[] = "conv2d n=64 h=32 w=32 c=256 -> c=4 k=3x3 s=1 p=1";
    tandem_kernel_time fused, gradient;
    (void)plain_ns(conv, TANDEM_PASS_FORWARD, &fused);
    assert_string_equal(fused.algorithm, "winograd fused");
    assert_true(fabs(fused.compute_ns / ((128 + 2) * 512.0 * 32 * 2 * 256 / 125) - 1) < 1e-6);
    assert_true(fabs(fused.executed_flops / (2 * 16384.0 * 16 * 256 * 4) - 1) < 1e-9);
    assert_true(fabs(fused.memory_ns - 4 * (65536.0 * 260 + 9 * 256 * 4) / 50) < 1);
    (void)plain_ns(conv, TANDEM_PASS_WGRAD, &gradient);
    assert_string_not_equal(gradient.algorithm, "winograd fused");
}

/* A gradient of weights splits its windows evenly: 65536 windows by 3136 × 64 are 25 tiles of 128 × 64. Five
 * passes over the weights add them up. Kernels of 1 × 1 pad 64 channels to 128, and so do Winograd's
 * products: 36 of (128, 4096) by (4096, 128), with all 64 channels or with 128. */
static void gradients_of_weights_split_their_windows(void **state)
{
    tandem_kernel_time wide, point;
    (void)plain_ns("conv2d n=64 h=32 w=32 c=64 -> c=64 k=7x7 s=1 p=3", TANDEM_PASS_WGRAD, &wide);
    const double tile = 128 * 64 * 2 * 65536 / 125.0, bytes = 4 * (65536 * 128 + 3136 * 64.0);
    assert_true(fabs(wide.compute_ns / (3 * tile * 25 / 4.0) - 1) < 1e-6);
    assert_true(fabs(wide.memory_ns - (bytes + 5 * 4 * 3136 * 64.0) / 50) < 1);
    (void)plain_ns("conv2d n=64 h=32 w=32 c=64 -> c=64 k=1x1 s=1 p=0", TANDEM_PASS_WGRAD, &point);
    assert_true(fabs(point.compute_ns / (4 * 2 * tile / 4.0) - 1) < 1e-6);
    tandem_kernel_time narrow, full;
    (void)plain_ns("conv2d n=64 h=32 w=32 c=64 -> c=64 k=3x3 s=1 p=1", TANDEM_PASS_WGRAD, &narrow);
    (void)plain_ns("conv2d n=64 h=32 w=32 c=128 -> c=128 k=3x3 s=1 p=1", TANDEM_PASS_WGRAD, &full);
    assert_string_equal(full.algorithm, "winograd");
    assert_true(fabs(full.compute_ns / (1.2 * 36 * 128 * 128 * 2 * 4096 / 500.0) - 1) <
                1e-6); /* WINOGRAD begins at 1.2 */
    assert_string_equal(narrow.algorithm, "winograd");
    assert_true(fabs(narrow.compute_ns / full.compute_ns - 1) < 1e-6);
}

static double typed_convolution_ns(const tandem_gpu_spec *spec, const tandem_reached_rates *rates,
                                   const char *precision, const char *channels)
{
    tandem_work work;
    const tandem_constants constants = plain_constants();
    tandem_kernel_time time;
    tandem_precision row;
    assert_int_equal(tandem_precision_find(&row, precision, NULL), TANDEM_OK);
    const tandem_dtype type = tandem_precision_get(row)->forward;
    tandem_cost_key key = {.kind = TANDEM_COST_OP,
                           .precision = precision,
                           .pass = TANDEM_PASS_FORWARD,
                           .from = type,
                           .to = type};
    (void)snprintf(key.signature, sizeof key.signature, "conv2d n=64 h=32 w=32 c=%s -> c=64 k=7x7 s=1 p=3",
                   channels);
    assert_true(tandem_work_of(&work, &key));
    assert_true(tandem_kernel_time_of(&time, &constants, spec, rates, &work) > 0);
    return time.compute_ns;
}

/* Tensor cores sum over channels in eights, before 8.0 in thirty-twos; tf32's kernels are of tensor cores. */
static void few_channels_cost_as_many(void **state)
{
    tandem_gpu_spec spec = four_units;
    tandem_reached_rates rates = half_rates;
    spec.flops_per_s[TANDEM_F16] = 8e12;
    rates.flops_per_s[TANDEM_F16] = 4e12;
    spec.flops_per_s[TANDEM_TF32] = rates.flops_per_s[TANDEM_TF32] = 4e12;
    spec.generation = 80;
    assert_true(fabs(typed_convolution_ns(&spec, &rates, "tf32", "3") -
                     typed_convolution_ns(&spec, &rates, "tf32", "8")) < 1e-6);
    assert_true(typed_convolution_ns(&spec, &rates, "fp32", "8") >
                2 * typed_convolution_ns(&spec, &rates, "fp32", "3"));
    const double eight = typed_convolution_ns(&spec, &rates, "fp16", "8");
    assert_true(fabs(typed_convolution_ns(&spec, &rates, "fp16", "3") / eight - 1) < 1e-9);
    assert_true(fabs(typed_convolution_ns(&spec, &rates, "fp16", "9") / eight - 2) < 1e-9);
    spec.generation = 70;
    assert_true(fabs(typed_convolution_ns(&spec, &rates, "fp16", "3") / eight - 4) < 1e-9);
    assert_true(fabs(typed_convolution_ns(&spec, &rates, "fp16", "32") / eight - 4) < 1e-9);
}

/* A framework's rule counts for convolutions in four bytes; a host's events for all, more in front of what a
 * library multiplies. */
static void timings_hold_what_their_way_adds(void **state)
{
    tandem_calibration *calibration = NULL;
    tandem_device device;
    char notes[TANDEM_CALIBRATION_NOTES];
    const double *const c = tandem_constants_fitted()->value;
    const double of_stream = 1e3 * c[TANDEM_CONSTANT_EVENTS],
                 of_product = 1e3 * c[TANDEM_CONSTANT_EVENTS_PRODUCT];
    const double rule = c[TANDEM_CONSTANT_CONV_BY_RULE];
    assert_int_equal(tandem_device_find(&device, "v100", NULL), TANDEM_OK);
    assert_int_equal(tandem_calibration_open(&calibration, &device, NULL), TANDEM_OK);
    tandem_calibration_finish(calibration, notes);
    assert_true(of_stream > 0 && of_product > of_stream && rule > 1);
    static const char *const signature[] = {"conv2d n=64 h=32 w=32 c=64 -> c=64 k=7x7 s=1 p=3",
                                            "linear m=256 k=1000 n=256", "add n=1000000"};
    for (int i = 0; i < 3; i++) {
        tandem_work work;
        const tandem_cost_key key = f32_key(signature[i], TANDEM_PASS_FORWARD);
        assert_true(tandem_work_of(&work, &key));
        const double ns = tandem_calibrated_ns(NULL, calibration, &work),
                     timed = tandem_calibrated_timed_ns(calibration, &work, TANDEM_TIMED_BETWEEN_EVENTS);
        assert_true(fabs(timed - (ns * (i == 0 ? rule : 1) + (i < 2 ? of_product : of_stream))) < 1);
    }
    tandem_calibration_close(calibration);
}

/* 100 W pay for 100 / (12 pJ · 14/7) FLOP/s in f32: more than the peak, less than 200 times it. */
static void watts_limit_the_rate(void **state)
{
    tandem_reached_rates rates;
    tandem_gpu_spec hungry = four_units;
    const tandem_constants constants = plain_constants();
    tandem_reached_rates_shared(&rates, &four_units, &constants);
    assert_true(!rates.is_power_bound[TANDEM_F32] && fabs(rates.flops_per_s[TANDEM_F32] - 0.85e12) < 1);
    hungry.flops_per_s[TANDEM_F32] = 2e14;
    tandem_reached_rates_shared(&rates, &hungry, &constants);
    assert_true(rates.is_power_bound[TANDEM_F32]);
    assert_true(fabs(rates.flops_per_s[TANDEM_F32] - 100 / 24e-12) < 1e6);
}

static void a_type_without_units_is_refused(void **state)
{
    tandem_work work;
    const tandem_constants constants = plain_constants();
    const tandem_cost_key product =
        op_key_latency("linear m=8 k=4 n=2", TANDEM_PASS_FORWARD, TANDEM_S8, TANDEM_F32);
    assert_true(tandem_work_of(&work, &product));
    assert_true(tandem_kernel_time_of(NULL, &constants, &four_units, &half_rates, &work) < 0);
    const tandem_cost_key cast = cast_key(1000000, TANDEM_F32, TANDEM_S8, 1);
    assert_true(tandem_work_of(&work, &cast));
    assert_true(fabs(tandem_kernel_time_of(NULL, &constants, &four_units, &half_rates, &work) -
                     (5e6 / 50 + 1000)) < 1e-6);
}

/* --- Calibration ---------------------------------------------------------------------------------------- */

static tandem_work work_of_text(const char *signature)
{
    tandem_work work;
    const tandem_cost_key key = f32_key(signature, TANDEM_PASS_FORWARD);
    assert_true(tandem_work_of(&work, &key));
    return work;
}

/* Times of a card that reaches other shares than the fitted ones: three rows find most of it. */
static void three_rows_do_most_of_a_calibration(void **state)
{
    static const char *const rows[] = {"linear m=4096 k=2048 n=4096", "add n=40000000", "relu n=64"};
    static const char *const asked[] = {"linear m=2000 k=1000 n=3000", "matmul batch=64 m=512 k=64 n=512",
                                        "gelu n=9000000", "relu n=5000"};
    tandem_device device;
    tandem_reached_rates truth;
    tandem_calibration *calibration = NULL;
    char notes[TANDEM_CALIBRATION_NOTES] = "?";
    assert_int_equal(tandem_device_find(&device, "l4", NULL), TANDEM_OK);
    tandem_reached_rates_fitted(&truth, &device);
    truth.flops_per_s[TANDEM_F32] *= 1.6;
    truth.bytes_per_s *= 0.8;
    truth.launch_ns *= 2;
    assert_int_equal(tandem_calibration_open(&calibration, &device, NULL), TANDEM_OK);
    for (size_t i = 0; i < N_OF(rows); i++) {
        const tandem_work work = work_of_text(rows[i]);
        const double ns =
            tandem_kernel_time_of(NULL, tandem_constants_fitted(), &device.gpu_spec, &truth, &work);
        assert_int_equal(tandem_calibration_add(calibration, &work, ns, 0, NULL), TANDEM_OK);
    }
    tandem_calibration_finish(calibration, notes);
    assert_string_equal(notes, "");
    for (size_t i = 0; i < N_OF(asked); i++) {
        const tandem_work work = work_of_text(asked[i]);
        const double ns = tandem_kernel_time_of(NULL, tandem_constants_fitted(), &device.gpu_spec, &truth,
                                                &work),
                     found = tandem_calibrated_ns(NULL, calibration, &work);
        if (fabs(found / ns - 1) > 0.01) fail_msg("%s: %g ns, not %g", asked[i], found, ns);
    }
    tandem_calibration_close(calibration);
}

/* What the form is wrong about near a measured shape follows it, and far away hardly. */
static void shapes_near_a_measured_one_follow_it(void **state)
{
    tandem_device device;
    tandem_calibration *calibration = NULL;
    char notes[TANDEM_CALIBRATION_NOTES];
    const tandem_work here = work_of_text("matmul batch=64 m=512 k=64 n=512"),
                      near = work_of_text("matmul batch=64 m=512 k=64 n=600"),
                      far = work_of_text("matmul batch=2 m=4096 k=4096 n=4096");
    assert_int_equal(tandem_device_find(&device, "v100", NULL), TANDEM_OK);
    assert_int_equal(tandem_calibration_open(&calibration, &device, NULL), TANDEM_OK);
    const double plain = tandem_described_ns(&device, &here);
    for (int i = 0; i < 4; i++)
        assert_int_equal(tandem_calibration_add(calibration, &here, 1.5 * plain, 0, NULL), TANDEM_OK);
    tandem_calibration_finish(calibration, notes);
    const double at = tandem_calibrated_ns(NULL, calibration, &here) / plain,
                 beside =
                     tandem_calibrated_ns(NULL, calibration, &near) / tandem_described_ns(&device, &near),
                 away = tandem_calibrated_ns(NULL, calibration, &far) / tandem_described_ns(&device, &far);
    assert_true(at > 1.4 && at <= 1.5 && beside > 1.35 && beside <= at && away < beside);
    tandem_calibration_close(calibration);
}

/* Ten times longer than the datasheet can explain: said, and without effect. */
static void what_contradicts_the_datasheet_is_said(void **state)
{
    tandem_device device;
    tandem_calibration *calibration = NULL;
    char notes[TANDEM_CALIBRATION_NOTES];
    const tandem_work work = work_of_text("linear m=4096 k=2048 n=4096");
    assert_int_equal(tandem_device_find(&device, "a100", NULL), TANDEM_OK);
    const double plain = tandem_described_ns(&device, &work);
    assert_int_equal(tandem_calibration_open(&calibration, &device, NULL), TANDEM_OK);
    assert_int_equal(tandem_calibration_add(calibration, &work, 10 * plain, 0, NULL), TANDEM_OK);
    tandem_calibration_finish(calibration, notes);
    assert_non_null(strstr(notes, "contradict"));
    assert_true(fabs(tandem_calibrated_ns(NULL, calibration, &work) / plain - 1) < 1e-9);
    tandem_calibration_close(calibration);
    assert_int_equal(tandem_device_find(&device, "cpu:avx2", NULL), TANDEM_OK);
    assert_int_equal(tandem_calibration_open(&calibration, &device, NULL), TANDEM_NO_DEVICE);
}

/* A card that its watts hold back multiplies zeros at the rate of all cards. */
static void zeros_take_no_power(void **state)
{
    tandem_device device;
    tandem_calibration *calibration = NULL;
    char notes[TANDEM_CALIBRATION_NOTES];
    const tandem_work product = work_of_text("linear m=4096 k=2048 n=4096"),
                      copy = work_of_text("add n=40000000");
    assert_int_equal(tandem_device_find(&device, "p100_pcie", NULL), TANDEM_OK);
    assert_int_equal(tandem_calibration_open(&calibration, &device, NULL), TANDEM_OK);
    const double slow = 1.5 * tandem_described_ns(&device, &product);
    assert_int_equal(tandem_calibration_add(calibration, &product, slow, 0, NULL), TANDEM_OK);
    tandem_calibration_finish(calibration, notes);
    assert_true(fabs(tandem_calibrated_timed_ns(calibration, &product, 0) / slow - 1) < 0.02);
    assert_true(tandem_calibrated_timed_ns(calibration, &product, TANDEM_TIMED_OF_ZEROS) < 0.75 * slow);
    assert_true(fabs(tandem_calibrated_timed_ns(calibration, &copy, TANDEM_TIMED_OF_ZEROS) /
                         tandem_calibrated_timed_ns(calibration, &copy, 0) -
                     1) < 1e-9);
    tandem_calibration_close(calibration);
}

/* --- Robust fits ---------------------------------------------------------------------------------------- */

static void a_fit_looks_past_what_lies_off(void **state)
{
    enum { N = 20 };
    double x[N * 3], y[N], coefficient[3], spread = -1;
    for (int i = 0; i < N; i++) {
        x[3 * i] = 1;
        x[3 * i + 1] = (double)(i * i % 7);
        x[3 * i + 2] = (double)(i + 1);
        y[i] = 50 + 3 * x[3 * i + 1] + 20 * x[3 * i + 2];
    }
    assert_int_equal(tandem_robust_fit(coefficient, &spread, x, y, N, 3, NULL), TANDEM_OK);
    assert_true(fabs(coefficient[0] - 50) < 1e-6 && fabs(coefficient[1] - 3) < 1e-6 &&
                fabs(coefficient[2] - 20) < 1e-6);
    assert_true(spread < 1e-9);
    y[3] *= 30;
    y[11] /= 30;
    assert_int_equal(tandem_robust_fit(coefficient, &spread, x, y, N, 3, NULL), TANDEM_OK);
    assert_true(fabs(coefficient[0] - 50) < 1 && fabs(coefficient[2] - 20) < 0.2);
    for (int i = 0; i < N; i++)
        y[i] = 500 - 20 * x[3 * i + 2]; /* a part that would be negative is left out */
    assert_int_equal(tandem_robust_fit(coefficient, &spread, x, y, N, 3, NULL), TANDEM_OK);
    assert_true(coefficient[0] > 0 && coefficient[1] >= 0 && coefficient[2] >= 0);
    assert_int_equal(tandem_robust_fit(coefficient, &spread, x, y, 2, 3, NULL), TANDEM_USAGE);
    const double nothing[3] = {0, 0, 0};
    assert_int_equal(tandem_robust_fit(coefficient, &spread, nothing, y, 1, 3, NULL), TANDEM_USAGE);
}

/* --- Fitted to a store ---------------------------------------------------------------------------------- */

static void put_latency(replay_store *s, const char *device, const char *co_runner,
                        const tandem_cost_key *key, double ns)
{
    tandem_error error = {0};
    const tandem_cost cost = replay_cost((int64_t)ns, 0);
    require_ok(tandem_store_put_cost(s->store, device, co_runner, key, &cost, &error), &error);
}

/* 2 µs, 100 FLOP a ns, 10 bytes a ns: linear forward in f32 at 8 sizes; relu at 2 with a µs and 5 bytes a ns.
 * */
static double linear_ns(double m, double k, double n)
{
    return 2000 + 2 * m * k * n / 100 + (m * k + k * n + m * n) * 4 / 10;
}

static void measure_latency(replay_store *s, const char *device, const char *co_runner, double times)
{
    for (int i = 0; i < 8; i++) {
        char text[64];
        const int m = 100 + 300 * i, k = 64 << i % 3, n = 50 + 70 * (i % 4);
        (void)snprintf(text, sizeof text, "linear m=%d k=%d n=%d", m, k, n);
        const tandem_cost_key key = f32_key(text, TANDEM_PASS_FORWARD);
        put_latency(s, device, co_runner, &key, times * linear_ns(m, k, n));
    }
    const tandem_cost_key small = f32_key("relu n=1000", TANDEM_PASS_FORWARD),
                          large = f32_key("relu n=100000", TANDEM_PASS_FORWARD);
    put_latency(s, device, co_runner, &small, times * (1000 + 8000 / 5.0));
    put_latency(s, device, co_runner, &large, times * (1000 + 800000 / 5.0));
}

static int64_t predicted(const tandem_latency *latency, const char *signature, tandem_pass pass,
                         double *spread)
{
    const tandem_cost_key key = f32_key(signature, pass);
    return tandem_latency_ns(latency, &key, spread);
}

static void a_device_is_fitted_to_what_was_measured(void **state)
{
    replay_store s = {.path = ""};
    tandem_device device;
    tandem_latency *latency = NULL;
    double spread = -1;
    replay_store_open(&s);
    measure_latency(&s, "cpu:avx2", "", 1);
    measure_latency(&s, "cpu:avx2", "cpu:sse41", 3);
    assert_int_equal(tandem_device_find(&device, "cpu:avx2", NULL), TANDEM_OK);
    const struct {
        const char *co_runner;
        double times;
    } rows[] = {{"", 1}, {"cpu:sse41", 3}, {"cpu:avx512", 1}}; /* beside what was not measured: as alone */
    for (size_t i = 0; i < N_OF(rows); i++) {
        assert_int_equal(tandem_latency_open(&latency, &device, rows[i].co_runner, s.store, NULL), TANDEM_OK);
        assert_int_equal(tandem_latency_fitted(latency), 10);
        const double expected = rows[i].times * linear_ns(1234, 77, 333);
        const int64_t ns = predicted(latency, "linear m=1234 k=77 n=333", TANDEM_PASS_FORWARD, &spread);
        assert_true(fabs((double)ns - expected) < 0.001 * expected && spread < 0.001);
        /* a pass that was not measured: the products' class */
        assert_true(predicted(latency, "linear m=1234 k=77 n=333", TANDEM_PASS_DGRAD, NULL) > 0);
        /* 40,000 elements: (1 µs + 320,000 / 5) */
        assert_true(fabs((double)predicted(latency, "relu n=40000", TANDEM_PASS_FORWARD, NULL) -
                         rows[i].times * 65000) < 2);
        /* a kind that was never seen moves its bytes as relu does */
        assert_true(fabs((double)predicted(latency, "gelu n=40000", TANDEM_PASS_FORWARD, NULL) -
                         rows[i].times * 65000) < 2);
        const tandem_cost_key narrow =
            op_key_latency("linear m=8 k=4 n=2", TANDEM_PASS_FORWARD, TANDEM_BF16, TANDEM_BF16);
        assert_int_equal(tandem_latency_ns(latency, &narrow, NULL), -1); /* no product in bf16 was measured */
        assert_int_equal(predicted(latency, "warp n=8", TANDEM_PASS_FORWARD, NULL), -1);
        tandem_latency_close(latency);
    }
    replay_store_close(&s);
}

/* Of five sizes nothing is learned about a product: its rate and its bandwidth could be anything. */
static void few_sizes_do_not_speak_for_a_kind(void **state)
{
    replay_store s = {.path = ""};
    tandem_device device;
    tandem_latency *latency = NULL;
    replay_store_open(&s);
    for (int i = 0; i < 5; i++) {
        char text[64];
        (void)snprintf(text, sizeof text, "linear m=%d k=64 n=50", 100 + 300 * i);
        const tandem_cost_key key = f32_key(text, TANDEM_PASS_FORWARD);
        put_latency(&s, "cpu:avx2", "", &key, 10000 * (i + 1));
    }
    assert_int_equal(tandem_device_find(&device, "cpu:avx2", NULL), TANDEM_OK);
    assert_int_equal(tandem_latency_open(&latency, &device, "", s.store, NULL), TANDEM_OK);
    assert_int_equal(predicted(latency, "linear m=50 k=64 n=50", TANDEM_PASS_FORWARD, NULL), -1);
    tandem_latency_close(latency);
    replay_store_close(&s);
}

/* --- Fitted to a sweep: many sizes ---------------------------------------------------------------------- */

/* A latency of cpu:avx2 fitted to what `put` files; the caller closes it. */
static tandem_latency *latency_of_many(void (*put)(replay_store *s))
{
    replay_store s = {.path = ""};
    tandem_device device;
    tandem_latency *latency = NULL;
    replay_store_open(&s);
    put(&s);
    assert_int_equal(tandem_device_find(&device, "cpu:avx2", NULL), TANDEM_OK);
    assert_int_equal(tandem_latency_open(&latency, &device, "", s.store, NULL), TANDEM_OK);
    replay_store_close(&s);
    return latency;
}

static void is_predicted(const tandem_latency *latency, const char *signature, double expected, double off)
{
    const double ns = (double)predicted(latency, signature, TANDEM_PASS_FORWARD, NULL);
    if (fabs(ns / expected - 1) > off) fail_msg("%s: %g ns, not %g", signature, ns, expected);
}

/* Columns in vectors of eight; 8, 3 and 5 bytes a ns of the first operand, the second and the result. */
static double operands_ns(double m, double k, double n)
{
    return 500 + 2 * m * k * ceil(n / 8) * 8 / 200 + 4 * (m * k / 8 + k * n / 3 + m * n / 5);
}

static void put_operands(replay_store *s)
{
    for (int i = 0; i < 60; i++) {
        char text[64];
        const int m = 16 << i % 7, k = 24 + 40 * (i % 11), n = 5 + 37 * (i % 13);
        (void)snprintf(text, sizeof text, "linear m=%d k=%d n=%d", m, k, n);
        const tandem_cost_key key = f32_key(text, TANDEM_PASS_FORWARD);
        put_latency(s, "cpu:avx2", "", &key, operands_ns(m, k, n));
    }
}

static void every_operand_has_a_bandwidth_and_columns_are_vectors(void **state)
{
    tandem_latency *const latency = latency_of_many(put_operands);
    is_predicted(latency, "linear m=48 k=3000 n=33", operands_ns(48, 3000, 33), 0.01);
    is_predicted(latency, "linear m=4000 k=64 n=9", operands_ns(4000, 64, 9), 0.01);
    is_predicted(latency, "linear m=300 k=64 n=700", operands_ns(300, 64, 700), 0.01);
    tandem_latency_close(latency);
}

/* Past 32 KiB, 1 MiB and 8 MiB each further byte takes longer. */
static double levels_ns(double n)
{
    const double bytes = 8 * n;
    return 300 + bytes / 100 + fmax(0, bytes - (32 << 10)) / 60 + fmax(0, bytes - (1 << 20)) / 30 +
           fmax(0, bytes - (8 << 20)) / 10;
}

static void put_levels(replay_store *s)
{
    double n = 50;
    while (n < 1e7) {
        char text[64];
        (void)snprintf(text, sizeof text, "relu n=%.0f", n);
        const tandem_cost_key key = f32_key(text, TANDEM_PASS_FORWARD);
        put_latency(s, "cpu:avx2", "", &key, levels_ns(floor(n + 0.5)));
        n *= 1.3;
    }
}

static void every_level_of_the_cache_has_a_bandwidth(void **state)
{
    tandem_latency *const latency = latency_of_many(put_levels);
    static const int n[] = {1700, 60000, 400000, 2000000, 90000000};
    for (size_t i = 0; i < N_OF(n); i++) {
        char text[64];
        (void)snprintf(text, sizeof text, "relu n=%d", n[i]);
        is_predicted(latency, text, levels_ns(n[i]), 0.01);
    }
    tandem_latency_close(latency);
}

/* Depths about 200 take 1.5 times as long as the sum says, which no coefficient knows; one row is far off. */
static double with_a_bump(double m, double k, double n)
{
    return operands_ns(m, k, n) * (k > 150 && k < 260 ? 1.5 : 1);
}

static void put_bump(replay_store *s)
{
    for (int i = 0; i < 300; i++) {
        char text[64];
        const int m = 128 << i % 2, k = 40 + 20 * (i % 25), n = 128 + 16 * (i % 7);
        const double ns = with_a_bump(m, k, n);
        (void)snprintf(text, sizeof text, "linear m=%d k=%d n=%d", m, k, n);
        const tandem_cost_key key = f32_key(text, TANDEM_PASS_FORWARD);
        put_latency(s, "cpu:avx2", "", &key, i == 101 ? 6 * ns : ns);
    }
}

static void shapes_near_measured_ones_follow_them(void **state)
{
    tandem_latency *const latency = latency_of_many(put_bump);
    is_predicted(latency, "linear m=256 k=204 n=160", with_a_bump(256, 204, 160), 0.1);
    is_predicted(latency, "linear m=256 k=404 n=160", with_a_bump(256, 404, 160), 0.1);
    /* beside row 101, m=256 k=60 n=176, which took 6 times as long as its neighbours */
    is_predicted(latency, "linear m=256 k=60 n=180", with_a_bump(256, 60, 180), 0.1);
    tandem_latency_close(latency);
}

/* Windows of 3 x 3 are another kernel than those of 1 x 1: 4 times the rate. */
static void put_windows(replay_store *s)
{
    for (int i = 0; i < 60; i++) {
        char text[96];
        const int side = 8 + 4 * (i % 5), c = 32 * (1 + i % 3), kernel = i % 2 ? 3 : 1;
        (void)snprintf(text, sizeof text, "conv2d n=%d h=%d w=%d c=%d -> c=%d k=%dx%d s=1 p=%d", 1 + i % 7,
                       side, side, c, 64, kernel, kernel, kernel / 2);
        const tandem_cost_key key = f32_key(text, TANDEM_PASS_FORWARD);
        const double flops = 2.0 * (1 + i % 7) * side * side * c * 64 * kernel * kernel;
        put_latency(s, "cpu:avx2", "", &key, 1000 + flops / (kernel == 3 ? 200 : 50));
    }
}

static void windows_are_kernels_of_their_own(void **state)
{
    tandem_latency *const latency = latency_of_many(put_windows);
    is_predicted(latency, "conv2d n=3 h=14 w=14 c=64 -> c=64 k=3x3 s=1 p=1",
                 1000 + 2.0 * 3 * 196 * 64 * 64 * 9 / 200, 0.02);
    is_predicted(latency, "conv2d n=3 h=14 w=14 c=64 -> c=64 k=1x1 s=1 p=0",
                 1000 + 2.0 * 3 * 196 * 64 * 64 / 50, 0.02);
    tandem_latency_close(latency);
}

static void a_description_is_calibrated_by_what_was_measured(void **state)
{
    replay_store s = {.path = ""};
    tandem_device device;
    tandem_latency *latency = NULL;
    tandem_work work;
    double spread = 0;
    const tandem_cost_key product = f32_key("linear m=4096 k=1024 n=1024", TANDEM_PASS_DGRAD),
                          measured = f32_key("linear m=4096 k=2048 n=4096", TANDEM_PASS_FORWARD);
    assert_int_equal(tandem_device_find(&device, "t4", NULL), TANDEM_OK);
    assert_true(tandem_work_of(&work, &product));
    const double described = tandem_described_ns(&device, &work);
    assert_int_equal(tandem_latency_open_described(&latency, &device, "", NULL, NULL), TANDEM_OK);
    assert_int_equal(tandem_latency_ns(latency, &product, &spread), llround(described));
    assert_true(isnan(spread));
    assert_int_equal(tandem_latency_fitted(latency), 0);
    tandem_latency_close(latency);

    replay_store_open(&s);
    assert_true(tandem_work_of(&work, &measured));
    put_latency(&s, "t4", "", &measured, 2 * tandem_described_ns(&device, &work));
    assert_int_equal(tandem_latency_open_described(&latency, &device, "", s.store, NULL), TANDEM_OK);
    assert_int_equal(tandem_latency_fitted(latency), 1);
    const double ratio = (double)tandem_latency_ns(latency, &product, NULL) / described;
    assert_true(ratio > 1.9 && ratio < 2.1);
    tandem_latency_close(latency);
    /* where others measured the card, one row that they contradict is believed in part */
    assert_int_equal(tandem_latency_open(&latency, &device, "", s.store, NULL), TANDEM_OK);
    const double at_it = (double)tandem_latency_ns(latency, &product, NULL);
    tandem_latency_close(latency);
    assert_int_equal(tandem_latency_open(&latency, &device, "", NULL, NULL), TANDEM_OK);
    const double slower = at_it / (double)tandem_latency_ns(latency, &product, NULL);
    assert_true(slower > 1.02 && slower < 2);
    tandem_latency_close(latency);
    replay_store_close(&s);
}

/* A class's shared part does not average out over equal tasks; their own parts do. */
static void a_step_of_many_tasks_keeps_the_shared_error(void **state)
{
    tandem_cluster cluster = {.n_class = 1};
    tandem_provenance few, many;
    const char *const models[] = {"gpt_tiny:depth=1", "gpt_tiny:depth=12"};
    tandem_provenance *const out[] = {&few, &many};
    cluster.classes[0] = (tandem_cluster_class){.n_rank = 1, .batch = 64};
    assert_int_equal(tandem_device_find(&cluster.classes[0].device, "v100", NULL), TANDEM_OK);
    for (int i = 0; i < 2; i++) {
        tandem_graph *graph = NULL;
        tandem_replayer *replayer = NULL;
        tandem_replay result;
        tandem_error error = {0};
        require_ok(tandem_graph_open(&graph, models[i], 64, &error), &error);
        const tandem_graph *const graphs[] = {graph};
        const tandem_replayer_options options = {.predict = 1, .from_description = 1};
        require_ok(tandem_replayer_open_with(&replayer, &cluster, graphs, NULL, &options, &error), &error);
        require_ok(tandem_replayer_run(replayer, &result, 0, &error), &error);
        tandem_replayer_provenance(replayer, 0, out[i]);
        tandem_replayer_close(replayer);
        tandem_graph_close(graph);
    }
    /* however many tasks and groups: what a device and its groups share stays, all in one direction */
    double least = INFINITY;
    for (int g = 0; g < TANDEM_N_SPREAD_GROUP; g++)
        least = fmin(least, tandem_spread_shared((tandem_spread_group)g, 0));
    assert_true(least > 0.05 && many.form_interval < few.form_interval * 1.2);
    assert_true(many.form_interval > 1.2816 * least);
    /* the groups that its tasks are of, and their cards */
    assert_true(few.interval_rows > 1000 && few.interval_error > 0.01 && few.interval_error < 1);
    assert_non_null(strstr(few.interval_cards, "v100_pcie "));
}

/* Simulated steps of a described card lie within the interval of its step as often as it says. */
static void simulated_steps_draw_from_the_interval(void **state)
{
    tandem_cluster cluster = {.n_class = 1};
    tandem_graph *graph = NULL;
    tandem_replayer *replayer = NULL;
    tandem_replay result;
    tandem_provenance provenance;
    tandem_monte_carlo drawn, again;
    tandem_error error = {0};
    const tandem_replayer_options options = {.predict = 1};
    const tandem_monte_carlo_options draws = {.n_simulation = 2000, .seed = 3, .spread = 0};
    cluster.classes[0] = (tandem_cluster_class){.n_rank = 1, .batch = 64};
    assert_int_equal(tandem_device_find(&cluster.classes[0].device, "v100", NULL), TANDEM_OK);
    require_ok(tandem_graph_open(&graph, "gpt_tiny:depth=2", 64, &error), &error);
    const tandem_graph *const graphs[] = {graph};
    require_ok(tandem_replayer_open_with(&replayer, &cluster, graphs, NULL, &options, &error), &error);
    require_ok(tandem_replayer_run(replayer, &result, 0, &error), &error);
    tandem_replayer_provenance(replayer, 0, &provenance);
    require_ok(tandem_replayer_monte_carlo(&drawn, replayer, &draws, &error), &error);
    require_ok(tandem_replayer_monte_carlo(&again, replayer, &draws, &error), &error);
    assert_memory_equal(&drawn, &again, sizeof drawn);
    assert_true(fabs(drawn.interval_share - 1) < 1e-9);
    assert_true(fabs((double)drawn.mean_ns / (double)result.step_ns - 1) < 0.02);
    /* 1.645 standard deviations above the median, of which the interval is 1.2816 */
    const double sigma = log((double)drawn.p95_ns / (double)drawn.p50_ns) / 1.645;
    assert_true(fabs(1.2816 * sigma / provenance.form_interval - 1) < 0.15);
    tandem_replayer_close(replayer);
    tandem_graph_close(graph);
}

static void an_interval_says_what_it_rests_on(void **state)
{
    for (int g = 0; g < TANDEM_N_SPREAD_GROUP; g++) {
        const tandem_spread *const spread = tandem_spread_fitted((tandem_spread_group)g);
        assert_true(spread->n_row >= 10 * spread->n_cell && spread->error > 0);
        int n = 0;
        for (const char *at = spread->cards; *at; at++) n += *at == ' ';
        assert_true(n >= 1 && n <= spread->n_cell);
    }
}

/* A device of which nothing was measured has its datasheet's error besides. */
static void a_measured_row_narrows_the_interval(void **state)
{
    for (int g = 0; g < TANDEM_N_SPREAD_GROUP; g++) {
        const tandem_spread_group group = (tandem_spread_group)g;
        const double device = tandem_device_spread_fitted(group)->shared,
                     shared = tandem_spread_fitted(group)->shared;
        assert_true(device > 0.01 && tandem_device_spread_fitted(group)->n_share > 3);
        assert_true(fabs(tandem_spread_shared(group, 0) - hypot(device, shared)) < 1e-12);
        assert_true(fabs(tandem_spread_shared(group, 1) - shared) < 1e-12);
    }
}

static void a_device_of_which_nothing_is_known_is_refused(void **state)
{
    replay_store s = {.path = ""};
    tandem_device device;
    tandem_error error = {0};
    tandem_latency *untouched = (tandem_latency *)(uintptr_t)0x10, *latency = untouched;
    replay_store_open(&s);
    assert_int_equal(tandem_device_find(&device, "cpu:avx2", NULL), TANDEM_OK);
    assert_int_equal(tandem_latency_open(&latency, &device, "cpu:sse41", s.store, &error), TANDEM_MISSING);
    assert_non_null(strstr(error.text, "tandem profile --device cpu:avx2"));
    assert_int_equal(tandem_latency_open(&latency, &device, "", NULL, &error), TANDEM_MISSING);
    assert_ptr_equal(latency, untouched);
    tandem_latency_close(NULL);
    replay_store_close(&s);
}

/* --- In a replay ---------------------------------------------------------------------------------------- */

static const char model[] = "mlp:width=64,depth=2,image=8x8x1";

static void a_described_cluster_replays_where_that_is_asked_for(void **state)
{
    tandem_cluster cluster;
    tandem_graph *graph = NULL;
    tandem_replayer *replayer = NULL;
    tandem_replay replay;
    tandem_error error = {0};
    assert_int_equal(tandem_cluster_parse(&cluster, "v100 + t4 net=10Gbit/s,20us", &error), TANDEM_OK);
    assert_int_equal(tandem_graph_open(&graph, model, 32, &error), TANDEM_OK);
    const tandem_graph *graphs[] = {graph, graph};
    tandem_replayer_options options = {.predict = 0};
    assert_int_equal(tandem_replayer_open_with(&replayer, &cluster, graphs, NULL, &options, &error),
                     TANDEM_MISSING);
    assert_non_null(strstr(error.text, "--predict"));
    options.predict = 1;
    assert_int_equal(tandem_replayer_open_with(&replayer, &cluster, graphs, NULL, &options, &error),
                     TANDEM_OK);
    assert_int_equal(tandem_replayer_run(replayer, &replay, TANDEM_REPLAY_MEMORY, &error), TANDEM_OK);
    assert_true(replay.step_ns > 0);
    for (int c = 0; c < 2; c++) {
        tandem_provenance provenance;
        tandem_replayer_provenance(replayer, c, &provenance);
        assert_true(provenance.n_task[TANDEM_ORIGIN_PREDICTED] > 20 && isnan(provenance.spread));
        assert_int_equal(provenance.n_task[TANDEM_ORIGIN_MEASURED] +
                             provenance.n_task[TANDEM_ORIGIN_INTERPOLATED] +
                             provenance.n_task[TANDEM_ORIGIN_EXTRAPOLATED],
                         0);
        assert_int_equal(provenance.n_fitted, 0);
        const tandem_step *step = tandem_replayer_step(replayer, c);
        for (int t = 0; t < step->n_task; t++) /* neither card has bf16, tf32, fp8, nor blocks */
            for (int variant = 0; variant < TANDEM_MAX_VARIANT; variant++) {
                tandem_cost_key key;
                if (!tandem_step_cost_key(step, t, variant, &key) || key.kind == TANDEM_COST_COLLECTIVE)
                    continue;
                const int can = key.from != TANDEM_BF16 && key.to != TANDEM_BF16 && key.from != TANDEM_E4M3 &&
                                key.to != TANDEM_E4M3 && key.from != TANDEM_E5M2 && key.to != TANDEM_E5M2 &&
                                !tandem_dtype_is_in_blocks(key.from) && !tandem_dtype_is_in_blocks(key.to) &&
                                (key.kind == TANDEM_COST_CAST || strcmp(key.precision, "tf32") != 0);
                assert_int_equal(tandem_replayer_variant_ns(replayer, c, t, variant, 0) > 0, can);
            }
    }
    assert_int_equal(tandem_replayer_allreduce_source(replayer)->n_point, 0);
    tandem_replayer_close(replayer);
    tandem_graph_close(graph);
}

static int64_t hundred(void *context, const tandem_cost_key *key, uint64_t *workspace_bytes)
{
    const char *without = context;
    *workspace_bytes = 64;
    return strncmp(key->signature, without, strlen(without)) == 0 ? -1 : 100;
}

static void what_was_measured_stays_as_it_is(void **state)
{
    replay_store s = {.path = ""};
    char without[] = "relu";
    tandem_graph *graph = NULL;
    tandem_replayer *replayer = NULL;
    tandem_replay replay;
    tandem_error error = {0};
    tandem_provenance provenance;
    replay_store_open(&s);
    tandem_cluster cluster = {.n_class = 1, .classes = {replay_class("cpu:avx2", TANDEM_F32, 1, 0)}};
    assert_int_equal(tandem_graph_open(&graph, model, 32, &error), TANDEM_OK);
    replay_store_fill(&s, graph, TANDEM_F32, 0, "cpu:avx2", "", hundred, without);
    const tandem_graph *graphs[] = {graph};
    tandem_replayer_options options = {.predict = 0};
    assert_int_equal(tandem_replayer_open_with(&replayer, &cluster, graphs, s.store, &options, &error),
                     TANDEM_OK);
    assert_int_equal(tandem_replayer_run(replayer, &replay, 0, &error), TANDEM_MISSING);
    assert_non_null(strstr(error.text, "relu"));
    tandem_replayer_close(replayer);
    options.predict = 1;
    assert_int_equal(tandem_replayer_open_with(&replayer, &cluster, graphs, s.store, &options, &error),
                     TANDEM_OK);
    assert_int_equal(tandem_replayer_run(replayer, &replay, 0, &error), TANDEM_OK);
    tandem_replayer_provenance(replayer, 0, &provenance);
    assert_int_equal(provenance.n_task[TANDEM_ORIGIN_PREDICTED], 4); /* two relus, forward and backward */
    assert_int_equal(provenance.ns[TANDEM_ORIGIN_MEASURED], 100 * provenance.n_task[TANDEM_ORIGIN_MEASURED]);
    assert_true(provenance.n_fitted > 20 && provenance.spread >= 0);
    assert_true(provenance.ns[TANDEM_ORIGIN_PREDICTED] > 0);
    tandem_replayer_close(replayer);
    tandem_graph_close(graph);
    replay_store_close(&s);
}

static void a_planner_predicts_where_it_is_asked_to(void **state)
{
    tandem_planner *planner = NULL;
    tandem_error error = {0};
    tandem_replay replay;
    tandem_request request = {.store = "/nowhere/tandem.db",
                              .model = model,
                              .cluster = "v100 + t4 net=10Gbit/s,20us",
                              .times_only = 1};
    assert_int_equal(tandem_planner_open(&planner, &request, &error), TANDEM_MISSING);
    request.predict = 1;
    assert_int_equal(tandem_planner_open(&planner, &request, &error), TANDEM_OK);
    assert_int_equal(tandem_replayer_run(tandem_planner_problem(planner)->replayer, &replay, 0, &error),
                     TANDEM_OK);
    tandem_planner_close(planner);
    request.times_only = 0; /* sensitivities are never predicted */
    assert_int_equal(tandem_planner_open(&planner, &request, &error), TANDEM_MISSING);
    assert_non_null(strstr(error.text, "/nowhere/tandem.db"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(work_is_counted_by_hand),
        cmocka_unit_test(casts_read_twice_where_the_range_is_not_known),
        cmocka_unit_test(products_turn_with_their_pass),
        cmocka_unit_test(tf32_has_a_rate_of_its_own),
        cmocka_unit_test(what_is_not_known_has_no_work),
        cmocka_unit_test(the_form_is_worked_out_by_hand),
        cmocka_unit_test(passes_of_convolutions_have_their_factors),
        cmocka_unit_test(winograd_in_one_kernel_takes_few_channels),
        cmocka_unit_test(narrow_gradients_of_weights_have_tiles_for_each_tap),
        cmocka_unit_test(gradients_of_weights_split_their_windows),
        cmocka_unit_test(layernorm_reads_rows_again_past_the_cache),
        cmocka_unit_test(deep_products_lose_by_generation),
        cmocka_unit_test(few_channels_cost_as_many),
        cmocka_unit_test(timings_hold_what_their_way_adds),
        cmocka_unit_test(zeros_take_no_power),
        cmocka_unit_test(watts_limit_the_rate),
        cmocka_unit_test(three_rows_do_most_of_a_calibration),
        cmocka_unit_test(shapes_near_a_measured_one_follow_it),
        cmocka_unit_test(what_contradicts_the_datasheet_is_said),
        cmocka_unit_test(a_type_without_units_is_refused),
        cmocka_unit_test(a_fit_looks_past_what_lies_off),
        cmocka_unit_test(a_device_is_fitted_to_what_was_measured),
        cmocka_unit_test(few_sizes_do_not_speak_for_a_kind),
        cmocka_unit_test(every_operand_has_a_bandwidth_and_columns_are_vectors),
        cmocka_unit_test(every_level_of_the_cache_has_a_bandwidth),
        cmocka_unit_test(shapes_near_measured_ones_follow_them),
        cmocka_unit_test(windows_are_kernels_of_their_own),
        cmocka_unit_test(a_description_is_calibrated_by_what_was_measured),
        cmocka_unit_test(a_step_of_many_tasks_keeps_the_shared_error),
        cmocka_unit_test(a_measured_row_narrows_the_interval),
        cmocka_unit_test(simulated_steps_draw_from_the_interval),
        cmocka_unit_test(an_interval_says_what_it_rests_on),
        cmocka_unit_test(a_device_of_which_nothing_is_known_is_refused),
        cmocka_unit_test(a_described_cluster_replays_where_that_is_asked_for),
        cmocka_unit_test(what_was_measured_stays_as_it_is),
        cmocka_unit_test(a_planner_predicts_where_it_is_asked_to),
    };
    return cmocka_run_group_tests_name("latency", tests, NULL, NULL);
}
