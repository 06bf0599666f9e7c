/* folder: replayer */
/* What others measured of cards: whole, true, and used for its own kernels alone. */
#include <math.h>

#include "predictor/by_others.h"
#include "predictor/form.h"
#include "tandem/advanced/replayer.h"
#include "tandem/advanced/timings.h"
#include "tests/support/tandem_test.h"

#define LINEAR "device=t4,source=x,method=loop,operator=linear,precision=fp32,"
#define END "# end\n"

static tandem_device device_of(const char *name)
{
    tandem_device device;
    assert_int_equal(tandem_device_find(&device, name, NULL), TANDEM_OK);
    return device;
}

static tandem_work product(const char *kind, const char *precision, double m, double k, double n)
{
    tandem_work work;
    tandem_timing timing = {.m = m, .k = k, .n = n};
    (void)snprintf(timing.kind, sizeof timing.kind, "%s", kind);
    (void)snprintf(timing.precision, sizeof timing.precision, "%s", precision);
    assert_int_equal(tandem_timing_work(&work, &timing, NULL), TANDEM_OK);
    return work;
}

static void what_ships_is_whole_and_small(void **state)
{
    size_t size = 0;
    int n = 0;
    for (const tandem_measured_file *file = tandem_measured_files(); file->name; file++, n++) {
        tandem_error error = {0};
        int64_t n_row = 0;
        if (tandem_measured_check(&n_row, file, &error) != TANDEM_OK) fail_msg("%s", error.text);
        assert_true(n_row > 100);
        assert_non_null(strstr(file->text, " at ")); /* source and commit */
        assert_true(strstr(file->text, "MIT") || strstr(file->text, "Apache-2.0"));
        size += strlen(file->text);
    }
    assert_true(n >= 8 && size <= 400e3);
}

/* Each is refused, and what is wrong is said. */
static void a_bad_file_is_refused(void **state)
{
    static const char header[] = "# remark\n" LINEAR "count=2,m,k,n,time_us\n";
    const struct {
        const char *text, *says;
    } bad[] = {
        {"512,512,512,90\n512,512,256,60\n", "does not end with the line \"# end\""},
        {"512,512,512,90\n" END, "has 1 rows, its header says count=2"},
        {"512,512,512,90\n512,512\n" END, "line 4 has 2 fields, its header 4"},
        {"512,512,512,90\n512,512,256,60\n" END "# remark\n" LINEAR
         "count=2,m,k,n,time_us\n512,512,512,91\n512,512,256,61\n" END,
         "timed by 'loop' is there twice"},
        {"512,512,512,90\n512,512,256,60\ndevice=v100,source=x,operator=linear,precision=fp32,count=1,m,k,n,"
         "time_us\n512,512,512,90\n" END,
         "of the card 'v100' by the source 'x'"},
        {"512,512,512,90\n512,512,512,90\n" END, "the row is there twice"},
        {"512,512,512,90\n512,512,256,60\ndevice=t4,source=x,operator=linear,precision=fp16,m,k,n,time_us\n"
         "512,512,512,90\n" END,
         "line 5: the header has no count= of its rows"},
        {"512,512,512,90\n4096,4096,4096,60\n" END, "a quarter of what the peaks of t4 allow"},
        {"512,512,512,90\n512,512,512,nan\n" END, "time_us must be a number"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char text[1024];
        tandem_error error = {0};
        (void)snprintf(text, sizeof text, "%s%s", header, bad[i].text);
        const tandem_measured_file file = {"t4_x", text};
        const tandem_status status = tandem_measured_check(NULL, &file, &error);
        if (status != TANDEM_MALFORMED || !strstr(error.text, bad[i].says))
            fail_msg("%zu: %d, %s", i, (int)status, error.text);
    }
}

/* No card has this name: rows under it would calibrate nothing, and silently. */
static void a_gpu_has_one_name(void **state)
{
    static const char *const files[][2] = {
        {"T4_x", "# remark\ndevice=T4,source=x,operator=linear,precision=fp32,count=1,m,k,n,time_us\n"
                 "512,512,512,90\n" END},
        {"t5_x", "# remark\ndevice=t5,source=x,operator=linear,precision=fp32,count=1,m,k,n,time_us\n"
                 "512,512,512,90\n" END}};
    static const char *const says[] = {"'T4' is the card t4", "t5"};
    for (int i = 0; i < 2; i++) {
        tandem_error error = {0};
        const tandem_measured_file file = {files[i][0], files[i][1]};
        assert_int_not_equal(tandem_measured_check(NULL, &file, &error), TANDEM_OK);
        if (!strstr(error.text, says[i])) fail_msg("%s", error.text);
    }
}

/* A file may begin with a table, and have many; each of its rows counts once. */
static void all_tables_of_a_file_count(void **state)
{
    enum { N = 300 };
    const tandem_device t4 = device_of("t4");
    char *const text = malloc(N * 128);
    size_t at = 0;
    assert_non_null(text);
    for (int i = 0; i < N; i++)
        at +=
            (size_t)snprintf(&text[at], N * 128 - at,
                             "device=t4,source=x,method=loop%d,operator=linear,precision=fp32,count=1,m,k,n,"
                             "time_us\n512,512,%d,90\n",
                             i, 512 + i);
    (void)snprintf(&text[at], N * 128 - at, END);
    const tandem_measured_file files[] = {{"t4_x", text}, {NULL, NULL}};
    tandem_by_others *of = NULL;
    const tandem_work work = product("linear", "fp32", 512, 512, 600);
    assert_int_equal(tandem_measured_check(NULL, files, NULL), TANDEM_OK);
    assert_int_equal(tandem_by_others_open(&of, files, &t4, NULL), TANDEM_OK);
    assert_int_equal(tandem_by_others_count(of), N);
    assert_int_equal(tandem_by_others_rows(of, &work, 0), N);
    const double ns = tandem_by_others_ns(NULL, of, &work, 0),
                 again = tandem_by_others_ns(NULL, of, &work, 0);
    assert_memory_equal(&ns, &again, sizeof ns);
    assert_int_equal(tandem_by_others_kernel_rows(of, tandem_others_kernel(&t4.gpu_spec, &work, 0)), N);
    tandem_by_others_close(of);
    free(text);
}

static tandem_kriged kriged(float *shape, double x, double residual, double agreement)
{
    memset(shape, 0, TANDEM_N_SHAPE * sizeof *shape);
    *shape = (float)x;
    return (tandem_kriged){shape, residual, 1, agreement};
}

/* By hand: of one row, exp(−d / length) / (1 + noise) of its residual. Of rows on a line, what lies between
 * them, and a row that contradicts its neighbours moves it little. */
static void kriging_follows_rows(void **state)
{
    float shapes[9][TANDEM_N_SHAPE];
    tandem_kriged rows[9] = {kriged(shapes[0], 0, 0.5, 0.1)};
    const tandem_kriging_rule plain = {2, 0.25, 0, 0}, exact = {8, 1e-4, 0, 0}, trusting = {8, 1e-2, 0, 0},
                              wary = {8, 1e-2, 4, 0};
    const float one[TANDEM_N_SHAPE] = {1}, middle[TANDEM_N_SHAPE] = {0.5F}, far[TANDEM_N_SHAPE] = {1e3F};
    assert_true(fabs(tandem_kriging_residual(NULL, rows, 1, &plain, one) - 0.5 * exp(-0.5) / 1.25) < 1e-6);
    assert_true(fabs(tandem_kriging_residual(NULL, rows, 1, &plain, far)) < 1e-12);
    assert_true(tandem_kriging_residual(NULL, rows, 0, &plain, one) == 0);
    for (int i = 0; i < 9; i++) rows[i] = kriged(shapes[i], i - 4, 0.1 * (i - 4), 0.05);
    assert_true(fabs(tandem_kriging_residual(NULL, rows, 9, &exact, middle) - 0.05) < 1e-3);
    /* the same row twice counts as one, of half the noise */
    const tandem_kriged twice[] = {rows[5], rows[5]};
    assert_true(fabs(tandem_kriging_residual(NULL, twice, 2, &plain, one) - 0.1 / 1.125) < 1e-6);
    rows[4].residual = 1.5;
    const double moved = tandem_kriging_residual(NULL, rows, 9, &trusting, middle),
                 unmoved = tandem_kriging_residual(NULL, rows, 9, &wary, middle);
    assert_true(moved > 0.5 && fabs(unmoved - 0.05) < 0.05);
}

/* By hand: of one row, shared + exp(−d / length) over shared + 1 + noise of its residual, and of variance
 * shared + 1 − (shared + exp(−d / length))² over that left. */
static void kriging_knows_what_rows_share(void **state)
{
    float shape[TANDEM_N_SHAPE];
    const tandem_kriged row = kriged(shape, 0, 0.5, 1);
    const tandem_kriging_rule rule = {2, 0.25, 0, 3};
    const float one[TANDEM_N_SHAPE] = {1}, far[TANDEM_N_SHAPE] = {1e3F};
    double unknown;
    const double near = 3 + exp(-0.5);
    assert_true(fabs(tandem_kriging_residual(&unknown, &row, 1, &rule, one) - 0.5 * near / 4.25) < 1e-6);
    assert_true(fabs(unknown - (4 - near * near / 4.25)) < 1e-6);
    assert_true(fabs(tandem_kriging_residual(&unknown, &row, 1, &rule, far) - 0.5 * 3 / 4.25) < 1e-6);
    assert_true(fabs(unknown - (4 - 9 / 4.25)) < 1e-6);
    (void)tandem_kriging_residual(&unknown, NULL, 0, &rule, far);
    assert_true(fabs(unknown - 4) < 1e-12);
}

/* Rows 1.5 times as slow as the description, but eight of about one size, which are twice as slow:
 * a product near to those follows them, others the level. */
static void a_task_follows_rows_near_to_it(void **state)
{
    char text[4096] = "# remark\n" LINEAR "count=48,m,k,n,time_us\n";
    const tandem_device t4 = device_of("t4");
    const tandem_work slow = product("linear", "fp32", 730, 900, 800);
    tandem_by_others *of = NULL;
    tandem_by_others_time time;
    int at = (int)strlen(text);
    for (int i = 0; i < 48; i++) {
        const tandem_work work = i < 40 ? product("linear", "fp32", 64 << i % 5, 64 << i % 4, 64 << i % 7)
                                        : product("linear", "fp32", 700 + 10 * (i - 40), 900, 800);
        at += snprintf(&text[at], sizeof text - (size_t)at, "%g,%g,%g,%.9g\n", work.m, work.k, work.n,
                       1e-3 * tandem_described_ns(&t4, &work) * (i < 40 ? 1.5 : 2));
    }
    (void)snprintf(&text[at], sizeof text - (size_t)at, END);
    const tandem_measured_file files[] = {{"t4_x", text}, {NULL, NULL}};
    tandem_error error = {0};
    assert_int_equal(tandem_by_others_open(&of, files, &t4, &error), TANDEM_OK);
    assert_int_equal(tandem_by_others_count(of), 48);
    const int kernel = tandem_others_kernel(&t4.gpu_spec, &slow, 0);
    assert_int_equal(tandem_by_others_kernel_rows(of, kernel), 0); /* no time was asked for */
    const double near = tandem_by_others_ns(&time, of, &slow, 0) / tandem_described_ns(&t4, &slow);
    const tandem_work away = product("linear", "fp32", 64, 16384, 64);
    const double far = tandem_by_others_ns(NULL, of, &away, 0) / tandem_described_ns(&t4, &away);
    assert_true(near > 1.85 && near < 2.01 && time.n_row == 48);
    assert_true(far > 1.45 && far < 1.75);
    assert_int_equal(tandem_by_others_kernel_rows(of, kernel), 48);
    /* of other classes, types and cards they say nothing */
    const tandem_work half = product("linear", "fp16", 512, 512, 512),
                      batched = product("matmul", "fp32", 64, 64, 64);
    assert_true(tandem_by_others_ns(NULL, of, &half, 0) < 0 &&
                tandem_by_others_ns(NULL, of, &batched, 0) < 0);
    tandem_by_others_close(of);
    const tandem_device v100 = device_of("v100");
    assert_int_equal(tandem_by_others_open(&of, files, &v100, &error), TANDEM_OK);
    assert_null(of);
}

/* A host's 80 us in front of each call end in no prediction, but in what such a timing shows. */
static void events_end_in_no_prediction(void **state)
{
    char text[4096] =
        "# remark\ndevice=t4,source=x,method=events,operator=linear,precision=fp32,count=30,m,k,n,"
        "time_us\n";
    const tandem_device t4 = device_of("t4");
    tandem_by_others *of = NULL;
    int at = (int)strlen(text);
    for (int i = 0; i < 30; i++) {
        const tandem_work work = product("linear", "fp32", 16 << i % 8, 16 << i % 7, 16 << i % 9);
        at += snprintf(&text[at], sizeof text - (size_t)at, "%g,%g,%g,%.9g\n", work.m, work.k, work.n,
                       80 + 1e-3 * tandem_described_ns(&t4, &work));
    }
    (void)snprintf(&text[at], sizeof text - (size_t)at, END);
    const tandem_measured_file files[] = {{"t4_x", text}, {NULL, NULL}};
    assert_int_equal(tandem_by_others_open(&of, files, &t4, NULL), TANDEM_OK);
    for (int size = 64; size <= 2048; size *= 2) {
        const tandem_work work = product("linear", "fp32", size, size, size);
        const double ns = tandem_described_ns(&t4, &work);
        tandem_by_others_time time;
        assert_true(fabs(tandem_by_others_ns(NULL, of, &work, 0) / ns - 1) < 0.15);
        (void)tandem_by_others_ns(&time, of, &work, TANDEM_TIMED_BETWEEN_EVENTS);
        assert_true(fabs(time.timed_ns / (ns + 80e3) - 1) < 0.1);
    }
    tandem_by_others_close(of);
}

static tandem_calibration *calibrated_by_others(const tandem_device *device)
{
    tandem_calibration *made = NULL;
    tandem_error error = {0};
    require_ok(tandem_calibration_open(&made, device, &error), &error);
    require_ok(tandem_calibration_add_others(made, &error), &error);
    return made;
}

/* With n own rows, each so many times as slow as others' rows say, if there are any. */
static tandem_calibration *calibrated_by_own(const tandem_device *device, const tandem_work *works, int n,
                                             double slower)
{
    tandem_calibration *const theirs = calibrated_by_others(device), *made = NULL;
    char notes[TANDEM_CALIBRATION_NOTES];
    tandem_error error = {0};
    require_ok(tandem_calibration_open(&made, device, &error), &error);
    for (int i = 0; i < n; i++)
        require_ok(tandem_calibration_add(made, &works[i],
                                          slower * tandem_calibrated_ns(NULL, theirs, &works[i]), 0, &error),
                   &error);
    tandem_calibration_finish(made, notes);
    require_ok(tandem_calibration_add_others(made, &error), &error);
    tandem_calibration_close(theirs);
    return made;
}

static double ratio_of(const tandem_calibration *a, const tandem_calibration *b, const tandem_work *work)
{
    return tandem_calibrated_ns(NULL, a, work) / tandem_calibrated_ns(NULL, b, work);
}

/* One row 1.3 times as slow: its own shape follows it in most, another shape of the kernel in part, and other
 * kernels not at all; others' rows all count still. */
static void own_rows_correct_those_of_others(void **state)
{
    const tandem_device t4 = device_of("t4");
    const tandem_work here = product("linear", "fp32", 2048, 2048, 2048),
                      away = product("linear", "fp32", 300, 9000, 80),
                      half = product("linear", "fp16", 2048, 2048, 2048);
    tandem_calibration *const theirs = calibrated_by_others(&t4), *const own =
                                                                      calibrated_by_own(&t4, &here, 1, 1.3);
    const double at_it = ratio_of(own, theirs, &here), off_it = ratio_of(own, theirs, &away);
    assert_true(at_it > 1.12 && at_it < 1.3);
    assert_true(off_it > 1.02 && off_it < at_it);
    assert_true(fabs(ratio_of(own, theirs, &half) - 1) < 1e-9);
    assert_int_equal(tandem_calibration_others(own, &here, 0), tandem_calibration_others(theirs, &here, 0));
    assert_int_equal(tandem_calibration_evidence(own, &here), TANDEM_EVIDENCE_OTHERS);
    assert_int_equal(tandem_calibration_own_about_others(own, &here, 0), 1);
    assert_int_equal(tandem_calibration_own_about_others(own, &half, 0), 0);
    /* it leaves less unknown, near to it most */
    const double left = tandem_calibration_unknown(own, &here, 0),
                 left_away = tandem_calibration_unknown(own, &away, 0);
    assert_true(left < left_away && left_away < 1 && left > 0.1);
    assert_true(tandem_calibration_unknown(own, &half, 0) == 1 &&
                tandem_calibration_unknown(theirs, &here, 0) == 1);
    tandem_calibration_close(own);
    tandem_calibration_close(theirs);
}

/* Many rows that are alike slow say what the card has in common. */
static void many_own_rows_are_a_common_factor(void **state)
{
    enum { N = 16 };
    const tandem_device t4 = device_of("t4");
    tandem_work works[N];
    for (int i = 0; i < N; i++) works[i] = product("linear", "fp32", 512 << i % 4, 700 << i / 4 % 4, 1100);
    const tandem_work away = product("linear", "fp32", 3000, 300, 9000);
    tandem_calibration *const theirs = calibrated_by_others(&t4), *const own =
                                                                      calibrated_by_own(&t4, works, N, 1.25);
    const double off_them = ratio_of(own, theirs, &away);
    assert_true(off_them > 1.17 && off_them < 1.26);
    assert_true(tandem_calibration_unknown(own, &away, 0) < 0.95);
    tandem_calibration_close(own);
    tandem_calibration_close(theirs);
}

/* By more than 3 times: it is left out, and counted. */
static void a_row_far_from_theirs_is_counted(void **state)
{
    const tandem_device t4 = device_of("t4");
    const tandem_work here = product("linear", "fp32", 1024, 1024, 1024);
    tandem_calibration *const theirs = calibrated_by_others(&t4), *const own =
                                                                      calibrated_by_own(&t4, &here, 1, 3.3);
    assert_int_equal(tandem_calibration_basis_of(own)->n_contradicting, 1);
    assert_int_equal(tandem_calibration_own_about_others(own, &here, 0), 0);
    assert_true(fabs(ratio_of(own, theirs, &here) - 1) < 1e-9);
    tandem_calibration_close(own);
    tandem_calibration_close(theirs);
}

/* A row that is mostly launch. */
static void a_row_that_says_nothing_corrects_nothing(void **state)
{
    const tandem_device t4 = device_of("t4");
    const tandem_work tiny = product("linear", "fp16", 16, 16, 16),
                      large = product("linear", "fp16", 2048, 2048, 2048);
    tandem_calibration *const theirs = calibrated_by_others(&t4), *const own =
                                                                      calibrated_by_own(&t4, &tiny, 1, 1.3);
    assert_true(tandem_calibration_others(own, &large, 0) > 50);
    assert_int_equal(tandem_calibration_own_about_others(own, &large, 0), 0);
    assert_true(fabs(ratio_of(own, theirs, &large) - 1) < 1e-9);
    tandem_calibration_close(own);
    tandem_calibration_close(theirs);
}

/* A user's host takes 150 us more in front of each call than the others' did: that is no time of a kernel. */
static void events_of_the_users_host_are_its_own(void **state)
{
    const tandem_device t4 = device_of("t4");
    tandem_calibration *const theirs = calibrated_by_others(&t4), *own = NULL;
    const int events = TANDEM_TIMED_BETWEEN_EVENTS;
    char notes[TANDEM_CALIBRATION_NOTES];
    tandem_error error = {0};
    require_ok(tandem_calibration_open(&own, &t4, &error), &error);
    for (int size = 16; size <= 4096; size *= 2) {
        const tandem_work work = product("linear", "fp32", size, size, size);
        const double timed_ns = tandem_calibrated_timed_ns(theirs, &work, events) + 150e3;
        require_ok(tandem_calibration_add(own, &work, timed_ns, events, &error), &error);
    }
    tandem_calibration_finish(own, notes);
    require_ok(tandem_calibration_add_others(own, &error), &error);
    for (int size = 64; size <= 4096; size *= 2) {
        const tandem_work work = product("linear", "fp32", size, size, size);
        const double timed_ns = tandem_calibrated_timed_ns(theirs, &work, events) + 150e3;
        assert_true(fabs(ratio_of(own, theirs, &work) - 1) < 0.05);
        assert_true(fabs(tandem_calibrated_timed_ns(own, &work, events) / timed_ns - 1) < 0.05);
    }
    tandem_calibration_close(own);
    tandem_calibration_close(theirs);
}

/* --- Shapes --------------------------------------------------------------------------------------------- */

static tandem_work windows(const char *precision, tandem_pass pass, double images, double channels,
                           double side, double out, double kernel, double stride)
{
    tandem_work work;
    tandem_timing timing = {.pass = pass,
                            .convolution = {images, channels, side, side, out, kernel, kernel,
                                            floor(kernel / 2), floor(kernel / 2), stride, stride}};
    (void)snprintf(timing.kind, sizeof timing.kind, "conv2d");
    (void)snprintf(timing.precision, sizeof timing.precision, "%s", precision);
    assert_int_equal(tandem_timing_work(&work, &timing, NULL), TANDEM_OK);
    return work;
}

/* Also says that no term exceeds the time. */
static void require_no_faster(const tandem_calibration *c, tandem_work work, const char *what)
{
    double before = 0;
    for (int doubling = 0; doubling < 13; doubling++) {
        tandem_kernel_time time;
        const double ns = tandem_calibrated_ns(&time, c, &work);
        if (ns < before * (1 - 1e-9))
            fail_msg("%s %s %s, m %g k %g n %g count %g images %g: %.0f ns, %.0f ns with half the batch",
                     tandem_calibration_device(c)->name, what, work.kind, work.m, work.k, work.n, work.count,
                     work.convolution.images, ns, before);
        assert_true(time.launch_ns + fmax(time.compute_ns, time.memory_ns) <= ns * (1 + 1e-9));
        before = ns;
        assert_int_equal(tandem_work_of_batch(&work, &work, 2), 1);
    }
}

static void require_no_faster_products(const tandem_calibration *c, const char *precision)
{
    static const double depths[] = {64, 500, 1024, 4096, 20000}, widths[] = {8, 64, 1000, 4096, 30000};
    for (int i = 0; i < 5; i++)
        for (int j = 0; j < 5; j++) {
            tandem_work work = product("linear", precision, 1, depths[i], widths[j]);
            require_no_faster(c, work, precision);
            work.pass = TANDEM_PASS_WGRAD; /* its batch is its depth */
            work.m = depths[i], work.k = 1;
            require_no_faster(c, work, "wgrad");
            require_no_faster(c, product("matmul", precision, depths[i], 64, fmin(widths[j], 4096)),
                              precision);
        }
}

static void require_no_faster_windows(const tandem_calibration *c, const char *precision)
{
    static const double shapes[][5] = {{3, 224, 64, 7, 2},   {64, 56, 64, 1, 1},    {64, 56, 64, 3, 1},
                                       {128, 28, 128, 3, 1}, {256, 14, 256, 3, 1},  {512, 7, 512, 3, 1},
                                       {2048, 7, 512, 1, 1}, {512, 28, 1024, 1, 2}, {3, 32, 16, 3, 1}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int pass = TANDEM_PASS_FORWARD; pass <= TANDEM_PASS_WGRAD; pass++) {
            const double *const s = shapes[i];
            require_no_faster(c, windows(precision, (tandem_pass)pass, 1, s[0], s[1], s[2], s[3], s[4]),
                              precision);
        }
}

/* A larger batch contains a smaller one. */
static void no_task_gets_faster_with_its_batch(void **state)
{
    static const char *const cards[] = {"t4", "v100", "v100_pcie", "a100", "a100_pcie", "a100_pcie_40gb"};
    for (size_t i = 0; i < sizeof cards / sizeof *cards; i++) {
        const tandem_device gpu = device_of(cards[i]);
        tandem_calibration *const c = calibrated_by_others(&gpu);
        for (int p = 0; p < TANDEM_N_PRECISION; p++) {
            const char *const precision = tandem_precision_get((tandem_precision)p)->name;
            if (!(gpu.precisions >> p & 1) || strcmp(precision, "int8_full") == 0) continue;
            require_no_faster_products(c, precision);
            require_no_faster_windows(c, precision);
        }
        tandem_calibration_close(c);
    }
}

/* By hand: a task of double and half the batch has the same weights. */
static void a_batch_scales_all_but_weights(void **state)
{
    tandem_work linear = product("linear", "fp16", 64, 100, 30),
                wide = windows("fp32", TANDEM_PASS_WGRAD, 8, 16, 32, 24, 3, 1),
                expected = windows("fp32", TANDEM_PASS_WGRAD, 4, 16, 32, 24, 3, 1);
    assert_int_equal(tandem_work_of_batch(&linear, &linear, 2), 1);
    assert_true(linear.m == 128 && linear.flops == 2.0 * 128 * 100 * 30);
    assert_true(linear.bytes == 2.0 * (128 * 100 + 100 * 30 + 128 * 30));
    assert_int_equal(tandem_work_of_batch(&wide, &wide, 0.5), 1);
    assert_true(wide.k == expected.k && wide.m == expected.m && wide.convolution.images == 4);
    assert_true(wide.flops == expected.flops && fabs(wide.bytes - expected.bytes) < 1);
    tandem_work one = product("linear", "fp16", 1, 100, 30);
    assert_int_equal(tandem_work_of_batch(&one, &one, 0.5), 0);
    assert_true(one.m == 1);
}

/* Beyond all rows an interval says so, and no factor is larger than that of a near row. */
static void an_extrapolation_says_so(void **state)
{
    const tandem_device a100 = device_of("a100");
    tandem_calibration *const c = calibrated_by_others(&a100);
    const tandem_work within = product("linear", "int8", 16, 1024, 1024),
                      beyond = product("linear", "int8", 16, 200000, 8);
    assert_true(tandem_calibration_own_spread(c, &beyond, 0) >
                1.5 * tandem_calibration_own_spread(c, &within, 0));
    tandem_calibration_close(c);
}

/* A step says what its times rest on, and its interval is narrower for it. */
static void a_step_says_whose_rows_it_rests_on(void **state)
{
    tandem_cluster cluster = {.n_class = 1};
    tandem_graph *graph = NULL;
    tandem_provenance provenance[2];
    cluster.classes[0] = (tandem_cluster_class){.n_rank = 1, .batch = 8, .device = device_of("t4")};
    assert_int_equal(tandem_graph_open(&graph, "resnet20", 8, NULL), TANDEM_OK);
    const tandem_graph *const graphs[] = {graph};
    for (int described = 0; described < 2; described++) {
        tandem_replayer *replayer = NULL;
        tandem_replay result;
        const tandem_replayer_options options = {.predict = 1, .from_description = described};
        assert_int_equal(tandem_replayer_open_with(&replayer, &cluster, graphs, NULL, &options, NULL),
                         TANDEM_OK);
        assert_int_equal(tandem_replayer_run(replayer, &result, 0, NULL), TANDEM_OK);
        tandem_replayer_provenance(replayer, 0, &provenance[described]);
        tandem_replayer_close(replayer);
    }
    assert_true(provenance[0].others_share > 0.5 && provenance[0].others_rows > 500);
    /* those of the kernels of this plan, not of all that other plans would take */
    tandem_calibration *const all = calibrated_by_others(&cluster.classes[0].device);
    const tandem_work half = product("linear", "fp16", 512, 512, 512),
                      windows_of_half = windows("fp16", TANDEM_PASS_FORWARD, 8, 16, 32, 16, 3, 1),
                      batched = product("matmul", "fp32", 64, 64, 64);
    assert_true(provenance[0].others_rows <= tandem_calibration_others_count(all) -
                                                 tandem_calibration_others(all, &half, 0) -
                                                 tandem_calibration_others(all, &windows_of_half, 0) -
                                                 tandem_calibration_others(all, &batched, 0));
    tandem_calibration_close(all);
    assert_true(provenance[1].others_share == 0 && provenance[1].others_rows == 0);
    assert_true(provenance[0].form_interval < provenance[1].form_interval);
    assert_true(provenance[0].n_fitted == 0 && provenance[0].n_unmeasured_kernel == 0);
    tandem_graph_close(graph);
}

/* The int8 rows of T4 are by dot products: its tensor cores, which ours takes, follow the description. */
static void rows_of_another_kernel_calibrate_nothing(void **state)
{
    const tandem_device t4 = device_of("t4"), v100 = device_of("v100");
    const tandem_work work = product("linear", "int8", 2048, 2048, 2048);
    const int dots = TANDEM_TIMED_BY_DOT_PRODUCTS;
    tandem_calibration *c = NULL;
    char notes[TANDEM_CALIBRATION_NOTES];
    assert_int_equal(tandem_calibration_open(&c, &t4, NULL), TANDEM_OK);
    assert_int_equal(tandem_calibration_add_others(c, NULL), TANDEM_OK);
    assert_int_equal(tandem_calibration_evidence(c, &work), TANDEM_EVIDENCE_OTHER_KERNEL);
    const double tensor_ns = tandem_calibrated_ns(NULL, c, &work),
                 described = tandem_described_ns(&t4, &work),
                 dots_ns = tandem_calibrated_timed_ns(c, &work, dots);
    assert_memory_equal(&tensor_ns, &described, sizeof described);
    assert_true(dots_ns > 2 * tensor_ns && tandem_calibration_others(c, &work, dots) > 40);
    /* nor do a user's own */
    assert_int_equal(tandem_calibration_add(c, &work, dots_ns, dots, NULL), TANDEM_OK);
    tandem_calibration_finish(c, notes);
    const double after = tandem_calibrated_ns(NULL, c, &work);
    assert_memory_equal(&after, &described, sizeof described);
    assert_true(fabs(tandem_calibrated_timed_ns(c, &work, dots) / dots_ns - 1) < 0.25);
    tandem_calibration_close(c);
    /* V100 has no other kernel */
    assert_int_equal(tandem_is_other_kernel(&v100.gpu_spec, &work, dots), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_ships_is_whole_and_small),
                                       cmocka_unit_test(a_bad_file_is_refused),
                                       cmocka_unit_test(a_gpu_has_one_name),
                                       cmocka_unit_test(all_tables_of_a_file_count),
                                       cmocka_unit_test(kriging_follows_rows),
                                       cmocka_unit_test(kriging_knows_what_rows_share),
                                       cmocka_unit_test(a_task_follows_rows_near_to_it),
                                       cmocka_unit_test(events_end_in_no_prediction),
                                       cmocka_unit_test(own_rows_correct_those_of_others),
                                       cmocka_unit_test(a_row_far_from_theirs_is_counted),
                                       cmocka_unit_test(many_own_rows_are_a_common_factor),
                                       cmocka_unit_test(a_row_that_says_nothing_corrects_nothing),
                                       cmocka_unit_test(events_of_the_users_host_are_its_own),
                                       cmocka_unit_test(no_task_gets_faster_with_its_batch),
                                       cmocka_unit_test(a_batch_scales_all_but_weights),
                                       cmocka_unit_test(an_extrapolation_says_so),
                                       cmocka_unit_test(a_step_says_whose_rows_it_rests_on),
                                       cmocka_unit_test(rows_of_another_kernel_calibrate_nothing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
