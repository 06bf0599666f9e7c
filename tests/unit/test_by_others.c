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
    assert_int_equal(tandem_by_others_used(of), 0); /* no time was asked for */
    const double ns = tandem_by_others_ns(NULL, of, &work, 0),
                 again = tandem_by_others_ns(NULL, of, &work, 0);
    assert_memory_equal(&ns, &again, sizeof ns);
    assert_int_equal(tandem_by_others_used(of), N);
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
    const tandem_kriging_rule plain = {2, 0.25, 0}, exact = {8, 1e-4, 0}, trusting = {8, 1e-2, 0},
                              wary = {8, 1e-2, 4};
    const float one[TANDEM_N_SHAPE] = {1}, middle[TANDEM_N_SHAPE] = {0.5F}, far[TANDEM_N_SHAPE] = {1e3F};
    assert_true(fabs(tandem_kriging_residual(rows, 1, &plain, one) - 0.5 * exp(-0.5) / 1.25) < 1e-6);
    assert_true(fabs(tandem_kriging_residual(rows, 1, &plain, far)) < 1e-12);
    assert_true(tandem_kriging_residual(rows, 0, &plain, one) == 0);
    for (int i = 0; i < 9; i++) rows[i] = kriged(shapes[i], i - 4, 0.1 * (i - 4), 0.05);
    assert_true(fabs(tandem_kriging_residual(rows, 9, &exact, middle) - 0.05) < 1e-3);
    /* the same row twice counts as one, of half the noise */
    const tandem_kriged twice[] = {rows[5], rows[5]};
    assert_true(fabs(tandem_kriging_residual(twice, 2, &plain, one) - 0.1 / 1.125) < 1e-6);
    rows[4].residual = 1.5;
    const double moved = tandem_kriging_residual(rows, 9, &trusting, middle),
                 unmoved = tandem_kriging_residual(rows, 9, &wary, middle);
    assert_true(moved > 0.5 && fabs(unmoved - 0.05) < 0.05);
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
    assert_int_equal(tandem_by_others_used(of), 0);
    const double near = tandem_by_others_ns(&time, of, &slow, 0) / tandem_described_ns(&t4, &slow);
    const tandem_work away = product("linear", "fp32", 64, 16384, 64);
    const double far = tandem_by_others_ns(NULL, of, &away, 0) / tandem_described_ns(&t4, &away);
    assert_true(near > 1.85 && near < 2.01 && time.n_row == 48);
    assert_true(far > 1.45 && far < 1.75);
    assert_int_equal(tandem_by_others_used(of), 48);
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

/* With one row of the user's, 1.3 times what the description says. */
static tandem_calibration *calibrated_by_own(const tandem_device *device, const tandem_work *work)
{
    tandem_calibration *made = NULL;
    char notes[TANDEM_CALIBRATION_NOTES];
    tandem_error error = {0};
    require_ok(tandem_calibration_open(&made, device, &error), &error);
    require_ok(tandem_calibration_add(made, work, 1.3 * tandem_described_ns(device, work), 0, &error),
               &error);
    tandem_calibration_finish(made, notes);
    return made;
}

static void own_rows_go_before_those_of_others(void **state)
{
    const tandem_device t4 = device_of("t4");
    const tandem_work linear = product("linear", "fp32", 2048, 2048, 2048),
                      half = product("linear", "fp16", 2048, 2048, 2048);
    tandem_calibration *const with = calibrated_by_own(&t4, &linear), *const without =
                                                                          calibrated_by_own(&t4, &linear);
    assert_int_equal(tandem_calibration_add_others(with, NULL), TANDEM_OK);
    assert_true(tandem_calibration_others_count(with) > 1000);
    assert_int_equal(tandem_calibration_others(with, &linear, 0), 0);
    const double own = tandem_calibrated_ns(NULL, with, &linear),
                 same = tandem_calibrated_ns(NULL, without, &linear);
    assert_memory_equal(&own, &same, sizeof own);
    assert_true(tandem_calibration_others(with, &half, 0) > 50);
    assert_int_equal(tandem_calibration_evidence(with, &half), TANDEM_EVIDENCE_OTHERS);
    tandem_calibration_close(with);
    tandem_calibration_close(without);
}

/* A row that is mostly launch and events. */
static void a_row_that_says_nothing_displaces_none(void **state)
{
    const tandem_device t4 = device_of("t4");
    const tandem_work tiny = product("linear", "fp16", 16, 16, 16),
                      large = product("linear", "fp16", 2048, 2048, 2048);
    tandem_calibration *const with = calibrated_by_own(&t4, &tiny);
    tandem_error error = {0};
    require_ok(tandem_calibration_add_others(with, &error), &error);
    assert_true(tandem_calibration_others(with, &large, 0) > 50);
    tandem_calibration_close(with);
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
                                       cmocka_unit_test(a_task_follows_rows_near_to_it),
                                       cmocka_unit_test(events_end_in_no_prediction),
                                       cmocka_unit_test(own_rows_go_before_those_of_others),
                                       cmocka_unit_test(a_row_that_says_nothing_displaces_none),
                                       cmocka_unit_test(a_step_says_whose_rows_it_rests_on),
                                       cmocka_unit_test(rows_of_another_kernel_calibrate_nothing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
