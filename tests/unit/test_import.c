/* folder: predictor */
/* Imported times: what is filed, what is refused and says why, and what predictions make of them. */
#include <math.h>

#include "tandem/advanced/timings.h"
#include "tests/support/replay_store.h"

#define PRODUCTS "device,source,method,operator,precision,m,k,n,time_us\n"

typedef struct found_rows {
    tandem_timing row[16];
    int n;
} found_rows;

static tandem_status find_row(void *context, const tandem_timing *timing, tandem_error *error)
{
    found_rows *const found = context;
    (void)error;
    if (found->n < 16) found->row[found->n] = *timing;
    found->n++;
    return TANDEM_OK;
}

static int count_filed(tandem_store *store, const char *device)
{
    found_rows found = {.n = 0};
    tandem_error error = {0};
    require_ok(tandem_store_visit_timings(store, device, find_row, &found, &error), &error);
    return found.n;
}

/* One table in a transaction of its own. store NULL: checked only. */
static tandem_status import_text(tandem_store *store, const char *text, int force,
                                 tandem_import_summary *summary, tandem_error *error)
{
    tandem_import *import = NULL;
    FILE *const stream = fmemopen((void *)(uintptr_t)text, strlen(text), "r");
    assert_non_null(stream);
    tandem_status status = store ? tandem_store_begin(store, error) : TANDEM_OK;
    if (status == TANDEM_OK) status = tandem_import_open(&import, store, NULL, force, error);
    if (status == TANDEM_OK) status = tandem_import_read(import, stream, "rows.csv", error);
    if (status == TANDEM_OK) *summary = *tandem_import_summary_of(import);
    tandem_import_close(import);
    (void)fclose(stream);
    if (store && status == TANDEM_OK) return tandem_store_commit(store, error);
    if (store) tandem_store_rollback(store);
    return status;
}

static void rows_keep_their_source_and_how_they_were_timed(void **state)
{
    static const char text[] =
        "\xEF\xBB\xBFsource,device,method,operator,precision,pass,rows,columns,m,k,n,images,channels_in,"
        "height,"
        "width,channels_out,kernel_h,kernel_w,pad_h,pad_w,stride_h,stride_w,time_ms\r\n"
        "here,V100-PCIe-32GB,\"events,zeros\",linear,fp32,,,,4096,1024,2048,,,,,,,,,,,,2.5\r\n"
        "here,v100_pcie,loop,mul,fp32,,1024,4096,,,,,,,,,,,,,,,0.06\r\n"
        "there,v100_pcie,loop,powu,fp32,,1024,4096,,,,,,,,,,,,,,,0.05\r\n"
        "here,v100_pcie,loop,conv2d,fp32,wgrad,,,,,,8,64,56,28,32,3,1,1,0,2,1,1.5\r\n";
    replay_store s = {.path = ""};
    tandem_import_summary summary;
    tandem_error error = {0};
    found_rows found = {.n = 0};
    replay_store_open(&s);
    require_ok(import_text(s.store, text, 0, &summary, &error), &error);
    assert_true(summary.n_row == 4 && summary.n_filed == 4 && summary.n_device == 1);
    require_ok(tandem_store_visit_timings(s.store, "v100_pcie", find_row, &found, &error), &error);
    assert_int_equal(found.n, 4);
    const tandem_timing *const product = &found.row[0], *const mul = &found.row[1],
                               *const convolution = &found.row[3];
    assert_string_equal(product->method, "events,zeros");
    assert_int_equal(tandem_timing_timed(product), TANDEM_TIMED_BETWEEN_EVENTS | TANDEM_TIMED_OF_ZEROS);
    assert_true(product->time_ns == 2.5e6 && product->m == 4096 && product->k == 1024 && product->n == 2048);
    /* no step has a key for these: they are work */
    assert_string_equal(mul->kind, "mul");
    assert_true(mul->flops == 1024.0 * 4096 && mul->bytes == 3.0 * 4 * 1024 * 4096);
    assert_string_equal(found.row[2].source, "there");
    assert_true(found.row[2].flops == 20.0 * 1024 * 4096 && found.row[2].bytes == 2.0 * 4 * 1024 * 4096);
    const tandem_convolution window = {8, 64, 56, 28, 32, 3, 1, 1, 0, 2, 1};
    assert_memory_equal(&convolution->convolution, &window, sizeof window);
    assert_int_equal(convolution->pass, TANDEM_PASS_WGRAD);
    /* again, and with one more: what is there stays once */
    require_ok(import_text(s.store, text, 0, &summary, &error), &error);
    assert_true(summary.n_filed == 0 && summary.n_known == 4 && count_filed(s.store, "v100_pcie") == 4);
    require_ok(import_text(s.store,
                           PRODUCTS "v100_pcie,here,loop,linear,fp32,8,8,8,9\nv100_pcie,here,loop,linear,"
                                    "fp32,8,8,8,8\n",
                           0, &summary, &error),
               &error);
    assert_true(summary.n_filed == 2 && count_filed(s.store, "v100_pcie") == 6);
    assert_int_equal(count_filed(s.store, "v100"), 0);
    replay_store_close(&s);
}

/* What no table can mean ends the import, with the row, what it has and what is allowed; nothing of it
 * stays. */
static void what_cannot_be_is_refused_with_its_row(void **state)
{
    const struct {
        const char *text, *says[3];
        int is_kept_by_force;
    } rows[] = {
        {"operator,device,precision,m,k,n\nlinear,a100,fp32,8,8,8\n", {"no column of times", "time_us"}, 0},
        {"operator,device,time\nlinear,a100,1\n", {"has no unit", "time_ms"}, 0},
        {"operator,device,time_us,time_ms\nlinear,a100,1,1\n", {"two columns of times", "keep one"}, 0},
        /* a product of 137 GFLOP in 7.05 us instead of ms: at least 7.05 ms at 19.5 TFLOP/s */
        {PRODUCTS "a100,x,loop,linear,fp32,4096,4096,4096,7.5\n",
         {"line 2", "linear took 7.5 us", "1762 us, a quarter of what the peaks of a100 allow"},
         1},
        {"operator,device,precision,rows,columns,time_us\ncopy,t4,fp32,4096,4096,500\n"
         "copy,t4,fp32,4096,4096,0.4\n",
         {"line 3", "copy took 0.4 us", "104.9 us"},
         1},
        {PRODUCTS "a100,x,loop,linear,fp32,8,8,8,0\n", {"line 2", "time_us must be a time above 0"}, 0},
        {PRODUCTS "a100,x,loop,linear,fp32,8,8,8,-4\n", {"line 2", "time_us must be"}, 0},
        {PRODUCTS "a100,x,loop,linear,fp32,8,8,8,NaN\n", {"line 2", "a number, got 'NaN'"}, 0},
        {PRODUCTS "a100,x,loop,linear,fp32,8,8,8,1e300\n", {"line 2", "at most 1e15 ns, got '1e300'"}, 0},
        {PRODUCTS "a100,x,loop,linear,fp32,8,8,8,\n", {"line 2", "it has no time"}, 0},
        {PRODUCTS "a100,x,loop,linear,fp32,0,8,8,4\n", {"line 2", "m must be a whole number from 1"}, 0},
        {PRODUCTS "a100,x,loop,linear,fp32,8,8,9007199254740994,4\n", {"line 2", "n must be", "2^53"}, 0},
        {PRODUCTS "a100,x,loop,linear,fp32,,8,8,4\n", {"line 2", "linear needs m, k and n"}, 0},
        {PRODUCTS ",x,loop,linear,fp32,8,8,8,4\n", {"line 2", "names no device; --device does"}, 0},
        {PRODUCTS "a100,x,loop,linear,fp32,8,8,8\n", {"line 2 has 8 fields, its header 9"}, 0},
        {PRODUCTS "a100,x,loop,\"linear,fp32,8,8,8,4\n", {"line 2", "quote is not closed"}, 0},
        {PRODUCTS "a100,x,loop,linear,fp32,8,8,8,9\na100,y,loop,linear,fp32,8,8,8,95\n",
         {"line 3", "linear took 95 us, the same from line 2 on 9 us", "--force"},
         1},
    };
    replay_store s = {.path = ""};
    replay_store_open(&s);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tandem_import_summary summary = {.n_row = -7};
        tandem_error error = {0};
        const tandem_status status = import_text(s.store, rows[i].text, 0, &summary, &error);
        if (status != TANDEM_MALFORMED && status != TANDEM_USAGE) fail_msg("row %zu is accepted", i);
        for (int k = 0; k < 3 && rows[i].says[k]; k++)
            if (!strstr(error.text, rows[i].says[k]))
                fail_msg("'%s' lacks '%s'", error.text, rows[i].says[k]);
        assert_non_null(strstr(error.text, "rows.csv, line "));
        assert_int_equal(summary.n_row, -7);
        assert_int_equal(count_filed(s.store, "a100") + count_filed(s.store, "t4"), 0);
        const tandem_status forced = import_text(NULL, rows[i].text, 1, &summary, &error);
        assert_int_equal(forced == TANDEM_OK, rows[i].is_kept_by_force);
    }
    /* of a row that an earlier import filed */
    tandem_import_summary summary;
    tandem_error error = {0};
    require_ok(import_text(s.store, PRODUCTS "a100,x,loop,linear,fp32,8,8,8,9\n", 0, &summary, &error),
               &error);
    assert_int_equal(import_text(s.store, PRODUCTS "a100,x,loop,linear,fp32,8,8,8,99\n", 0, &summary, &error),
                     TANDEM_MALFORMED);
    assert_non_null(strstr(error.text, "the same in the store 9 us"));
    /* a host's events are another way of timing, not a contradiction */
    require_ok(import_text(s.store, PRODUCTS "a100,x,events,linear,fp32,8,8,8,99\n", 0, &summary, &error),
               &error);
    assert_int_equal(count_filed(s.store, "a100"), 2);
    replay_store_close(&s);
}

/* Rows that this version can say nothing of are counted, with the reason and the first line. */
static void rows_of_unknown_things_are_left_out_and_said(void **state)
{
    static const char text[] = PRODUCTS "A101,x,loop,linear,fp32,8,8,8,4\n"
                                        "t4,x,loop,linear,bf16,8,8,8,4\n"
                                        "A101,x,loop,linear,fp32,8,8,9,4\n"
                                        "t4,x,loop,linaer,fp32,8,8,8,4\n"
                                        "t4,x,loop,linear,fp23,8,8,8,4\n"
                                        "cpu:avx2,x,loop,linear,fp32,8,8,8,4\n"
                                        "t4,x,loop,linear,fp32,8,8,8,4\n";
    const struct {
        int64_t n_row, line;
        const char *says[3];
    } reasons[] = {{2, 2, {"'A101'", "Did you mean 'a10", "level-2 cache, watts, process, clock"}},
                   {1, 3, {"t4 has no units for bf16"}},
                   {1, 5, {"'linaer'", "Did you mean 'linear'"}},
                   {1, 6, {"'fp23'", "Did you mean 'fp32'"}},
                   {1, 7, {"the device 'cpu:avx2' is not described"}}};
    tandem_import_summary summary;
    tandem_error error = {0};
    require_ok(import_text(NULL, text, 0, &summary, &error), &error);
    assert_true(summary.n_row == 7 && summary.n_filed == 1 && summary.n_left_out == 6);
    assert_int_equal(summary.n_reason, 5);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(summary.reason[i].n_row, reasons[i].n_row);
        assert_int_equal(summary.reason[i].line, reasons[i].line);
        for (int k = 0; k < 3 && reasons[i].says[k]; k++)
            if (!strstr(summary.reason[i].why, reasons[i].says[k]))
                fail_msg("'%s' lacks '%s'", summary.reason[i].why, reasons[i].says[k]);
    }
}

/* --- What predictions make of them ---------------------------------------------------------------------- */

static void import_work(tandem_work *work, const char *kind, double m, double k, double n)
{
    tandem_timing timing = {.precision = "fp32", .m = m, .k = k, .n = n, .rows = m, .columns = n};
    (void)snprintf(timing.kind, sizeof timing.kind, "%s", kind);
    assert_int_equal(tandem_timing_work(work, &timing, NULL), TANDEM_OK);
}

/* One mechanism: what the store has calibrates as the same rows of a file do, to the last bit. */
static void stored_rows_calibrate_as_rows_of_a_file(void **state)
{
    static const char text[] = PRODUCTS "t4,x,loop,linear,fp32,4096,2048,4096,15000\n"
                                        "t4,x,loop,linear,fp32,64,64,64,11\n"
                                        "t4,x,events,linear,fp32,512,512,512,141\n";
    replay_store s = {.path = ""};
    tandem_import_summary summary;
    tandem_error error = {0};
    tandem_calibration *by_file = NULL, *by_store = NULL;
    tandem_device device;
    tandem_latency *latency = NULL;
    found_rows found = {.n = 0};
    char notes[TANDEM_CALIBRATION_NOTES];
    replay_store_open(&s);
    require_ok(import_text(s.store, text, 0, &summary, &error), &error);
    assert_int_equal(tandem_device_find(&device, "t4", NULL), TANDEM_OK);
    require_ok(tandem_calibration_open(&by_file, &device, &error), &error);
    require_ok(tandem_calibration_open(&by_store, &device, &error), &error);
    FILE *const stream = fmemopen((void *)(uintptr_t)text, strlen(text), "r");
    require_ok(tandem_timings_read(stream, "t", 1, find_row, &found, &error), &error);
    (void)fclose(stream);
    for (int i = 0; i < found.n; i++) {
        tandem_work work;
        require_ok(tandem_timing_work(&work, &found.row[i], &error), &error);
        require_ok(tandem_calibration_add(by_file, &work, found.row[i].time_ns,
                                          tandem_timing_timed(&found.row[i]), &error),
                   &error);
    }
    tandem_calibration_finish(by_file, notes);
    require_ok(tandem_calibration_add_stored(by_store, s.store, &error), &error);
    tandem_calibration_finish(by_store, notes);
    require_ok(tandem_calibration_add_others(by_file, &error), &error);
    require_ok(tandem_calibration_add_others(by_store, &error), &error);
    require_ok(tandem_latency_open(&latency, &device, "", s.store, &error), &error);
    assert_int_equal(tandem_latency_fitted(latency), 3);
    for (int i = 1; i < 400; i++) {
        tandem_cost_key key = {
            .kind = TANDEM_COST_OP, .precision = "fp32", .from = TANDEM_F32, .to = TANDEM_F32};
        tandem_work work;
        (void)snprintf(key.signature, sizeof key.signature, "linear m=%d k=%d n=%d", 9 * i, 5 * i, 7 * i);
        assert_true(tandem_work_of(&work, &key));
        const double a = tandem_calibrated_ns(NULL, by_file, &work),
                     b = tandem_calibrated_ns(NULL, by_store, &work);
        assert_memory_equal(&a, &b, sizeof a);
        assert_int_equal(tandem_latency_ns(latency, &key, NULL), llround(a));
    }
    tandem_latency_close(latency);
    tandem_calibration_close(by_store);
    tandem_calibration_close(by_file);
    replay_store_close(&s);
}

/* Rows timed between events on a host that adds 90 us, three times what the fit's hosts did: the card
 * itself is as the form says, and so are its predictions. */
static void what_a_hosts_events_add_ends_in_no_prediction(void **state)
{
    static const double host_ns = 90e3;
    tandem_calibration *calibration = NULL;
    tandem_device device;
    tandem_error error = {0};
    tandem_work work;
    char notes[TANDEM_CALIBRATION_NOTES];
    for (int with_tiny = 0; with_tiny < 2; with_tiny++) {
        assert_int_equal(tandem_device_find(&device, "a100_pcie", NULL), TANDEM_OK);
        require_ok(tandem_calibration_open(&calibration, &device, &error), &error);
        for (int i = with_tiny ? 0 : 3; i < 9; i++) { /* from tiny ones to 20 ms */
            const double size = 32 << i;
            for (int kind = 0; kind < 2; kind++) {
                import_work(&work, kind ? "linear" : "add", size, size, size);
                const double ns = tandem_described_ns(&device, &work);
                if (!with_tiny && ns < 0.3 * host_ns) continue;
                require_ok(tandem_calibration_add(calibration, &work, ns + host_ns,
                                                  TANDEM_TIMED_BETWEEN_EVENTS, &error),
                           &error);
            }
        }
        tandem_calibration_finish(calibration, notes);
        for (int i = 0; i < 9; i++)
            for (int kind = 0; kind < 2; kind++) {
                const double size = 45 << i;
                import_work(&work, kind ? "linear" : "add", size, size, size);
                const double ratio =
                    tandem_calibrated_ns(NULL, calibration, &work) / tandem_described_ns(&device, &work);
                /* where no tiny row shows what this host adds, it may be as wrong as 60 us are of a long
                 * row */
                const double most = with_tiny ? 1.02 : 1.2;
                if (!(ratio < most && ratio > 1 / most))
                    fail_msg("%d: %s of %g is %g times what the card takes", with_tiny, work.kind, size,
                             ratio);
            }
        assert_int_equal(tandem_calibration_basis_of(calibration)->n_launch, 0);
        tandem_calibration_close(calibration);
    }
}

/* One row only, or tiny ones only: what follows is said, and nothing else moves. */
static void one_row_gives_what_it_can(void **state)
{
    const struct {
        const char *kind;
        double size;
        double slower; /* than the description */
        int n_rate, n_bandwidth, n_launch, n_contradicting;
    } rows[] = {{"linear", 4096, 1.3, 1, 0, 0, 0}, {"add", 8192, 1.3, 0, 1, 0, 0},
                {"add", 16, 2, 0, 0, 1, 0},        {"softmax", 4096, 1.2, 0, 0, 0, 0},
                {"linear", 4096, 3.6, 0, 0, 0, 1}, {"add", 8192, 3.6, 0, 0, 0, 1}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tandem_calibration *calibration = NULL;
        tandem_device device;
        tandem_error error = {0};
        tandem_work work, other;
        char notes[TANDEM_CALIBRATION_NOTES];
        assert_int_equal(tandem_device_find(&device, "h100", NULL), TANDEM_OK);
        require_ok(tandem_calibration_open(&calibration, &device, &error), &error);
        import_work(&work, rows[i].kind, rows[i].size, rows[i].size, rows[i].size);
        const double ns = tandem_described_ns(&device, &work) * rows[i].slower;
        require_ok(tandem_calibration_add(calibration, &work, ns, 0, &error), &error);
        tandem_calibration_finish(calibration, notes);
        const tandem_calibration_basis *const basis = tandem_calibration_basis_of(calibration);
        assert_int_equal(basis->n_rate[TANDEM_F32], rows[i].n_rate);
        assert_int_equal(basis->n_rate[TANDEM_N_COMPUTE_DTYPE], rows[i].n_bandwidth);
        assert_int_equal(basis->n_launch, rows[i].n_launch);
        assert_int_equal(basis->n_contradicting, rows[i].n_contradicting);
        assert_int_equal(notes[0] != '\0', rows[i].n_contradicting > 0);
        import_work(&other, rows[i].kind[0] == 'l' ? "add" : "linear", 4096, 4096, 4096);
        const double moved = tandem_calibrated_ns(NULL, calibration, &other) /
                             tandem_described_ns(&device, &other),
                     own =
                         tandem_calibrated_ns(NULL, calibration, &work) / tandem_described_ns(&device, &work);
        if (!(fabs(moved - 1) < 0.05)) fail_msg("row %zu moves another class by %g", i, moved);
        if (rows[i].n_contradicting ? fabs(own - 1) > 1e-6 : own < 1.05) fail_msg("row %zu: %g", i, own);
        tandem_calibration_close(calibration);
    }
}

/* A product, a copy and a tiny kernel of a card that reaches other shares of its peaks than the fit
 * expects: most of the error goes. */
static void three_rows_do_most_of_it(void **state)
{
    static const char *const kinds[] = {"linear", "add", "softmax"};
    tandem_calibration *calibration = NULL;
    tandem_device device;
    tandem_reached_rates truth;
    tandem_error error = {0};
    tandem_work work;
    char notes[TANDEM_CALIBRATION_NOTES];
    double before = 0, after = 0;
    assert_int_equal(tandem_device_find(&device, "l4", NULL), TANDEM_OK);
    tandem_reached_rates_fitted(&truth, &device);
    truth.flops_per_s[TANDEM_F32] *= 0.6;
    truth.bytes_per_s *= 0.8;
    truth.launch_ns *= 2;
    require_ok(tandem_calibration_open(&calibration, &device, &error), &error);
    for (int i = 0; i < 3; i++) {
        import_work(&work, i == 0 ? "linear" : "add", i == 2 ? 64 : 4096, 2048, i == 2 ? 64 : 8192);
        const double ns =
            tandem_kernel_time_of(NULL, tandem_constants_fitted(), &device.gpu_spec, &truth, &work);
        require_ok(tandem_calibration_add(calibration, &work, ns, 0, &error), &error);
    }
    tandem_calibration_finish(calibration, notes);
    for (int i = 0; i < 300; i++) {
        import_work(&work, kinds[i % 3], 64 + 31 * i, 128 + 11 * (i % 97), 32 + 23 * (i % 89));
        const double ns =
            tandem_kernel_time_of(NULL, tandem_constants_fitted(), &device.gpu_spec, &truth, &work);
        before += fabs(tandem_described_ns(&device, &work) / ns - 1) / 300;
        after += fabs(tandem_calibrated_ns(NULL, calibration, &work) / ns - 1) / 300;
    }
    printf("mean error %.1f %% before three rows, %.1f %% after\n", 100 * before, 100 * after);
    assert_true(before > 0.2 && after < 0.1 * before);
    tandem_calibration_close(calibration);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_keep_their_source_and_how_they_were_timed),
        cmocka_unit_test(what_cannot_be_is_refused_with_its_row),
        cmocka_unit_test(rows_of_unknown_things_are_left_out_and_said),
        cmocka_unit_test(stored_rows_calibrate_as_rows_of_a_file),
        cmocka_unit_test(what_a_hosts_events_add_ends_in_no_prediction),
        cmocka_unit_test(one_row_gives_what_it_can),
        cmocka_unit_test(three_rows_do_most_of_it),
    };
    return cmocka_run_group_tests_name("imported times", tests, NULL, NULL);
}
