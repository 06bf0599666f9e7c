/* folder: predictor */
/* Tables of measured times: what a reader takes and what it refuses. */
#include <math.h>

#include "predictor/form.h"
#include "tests/support/tandem_test.h"
#include "tandem/advanced/timings.h"

typedef struct seen_rows {
    tandem_timing last;
    int n, timed; /* timed: of all rows, what any was */
} seen_rows;

static tandem_status keep_row(void *context, const tandem_timing *timing, tandem_error *error)
{
    seen_rows *const seen = context;
    (void)error;
    seen->last = *timing;
    seen->timed |= tandem_timing_timed(timing);
    seen->n++;
    return TANDEM_OK;
}

static tandem_status read_text(seen_rows *seen, const char *text, int needs_times, tandem_error *error)
{
    FILE *const stream = fmemopen((void *)(uintptr_t)text, strlen(text), "r");
    assert_non_null(stream);
    *seen = (seen_rows){.n = 0};
    const tandem_status status = tandem_timings_read(stream, "rows.csv", needs_times, keep_row, seen, error);
    (void)fclose(stream);
    return status;
}

static void columns_come_by_name(void **state)
{
    seen_rows seen;
    tandem_error error = {0};
    tandem_work work;
    const char *const text =
        "\xEF\xBB\xBFtime_us,n,\"k\",other,m,precision,operator,method,device,repeats\r\n"
        "\r\n"
        "2.5,7,5,\"a, \"\"b\"\"\",3,fp16,linear,\"events,zeros\",V100-PCIe-32GB,\r\n"
        "1e3,70,50,,30,fp32,linear,loop,t4,24";
    assert_int_equal(read_text(&seen, text, 1, &error), TANDEM_OK);
    assert_int_equal(seen.n, 2);
    assert_true(seen.last.m == 30 && seen.last.k == 50 && seen.last.n == 70 && seen.last.repeats == 24);
    assert_true(fabs(seen.last.time_ns - 1e6) < 1e-6 && seen.last.line == 4);
    assert_int_equal(tandem_timing_timed(&seen.last), 0);
    assert_int_equal(seen.timed, TANDEM_TIMED_BETWEEN_EVENTS | TANDEM_TIMED_OF_ZEROS);
    assert_int_equal(tandem_timing_work(&work, &seen.last, &error), TANDEM_OK);
    assert_true(work.flops == 2.0 * 30 * 50 * 70 && work.work_class == TANDEM_WORK_LINEAR);
    /* a table without operators holds convolutions; ms */
    assert_int_equal(read_text(&seen,
                               "images,channels_in,height,width,channels_out,kernel_h,kernel_w,pad_h,pad_w,"
                               "stride_h,stride_w,precision,pass,time_ms\n"
                               "2,3,8,6,4,3,3,1,0,1,1,bf16,wgrad,0.5\n",
                               1, &error),
                     TANDEM_OK);
    assert_int_equal(tandem_timing_work(&work, &seen.last, &error), TANDEM_OK);
    assert_true(work.work_class == TANDEM_WORK_CONVOLUTION && work.pass == TANDEM_PASS_WGRAD);
    assert_true(work.flops == 2.0 * 2 * 8 * 4 * 27 * 4 && fabs(seen.last.time_ns - 5e5) < 1e-6);
    assert_int_equal(read_text(&seen, "operator,rows,columns,precision\npowu,3,4,fp32\n", 0, &error),
                     TANDEM_OK);
    assert_int_equal(tandem_timing_work(&work, &seen.last, &error), TANDEM_OK);
    assert_true(work.bytes == 12 * 2 * 4 && work.flops > 12);
}

/* To the bit as strtod reads them, by either way. */
static void numbers_are_those_of_strtod(void **state)
{
    static const char *const numbers[] = {
        "0.1",    "52.21", "3",    "5.",   "0.30000000000000004",   "1e3",
        "00.125", "1E-2",  "+2.5", "1e15", "392.82883607598386756", "2.675"};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        seen_rows seen;
        char text[128];
        (void)snprintf(text, sizeof text, "operator,precision,m,k,n,time_ns\nlinear,fp32,1,2,3,%s\n",
                       numbers[i]);
        assert_int_equal(read_text(&seen, text, 1, NULL), TANDEM_OK);
        const double right = strtod(numbers[i], NULL);
        if (memcmp(&seen.last.time_ns, &right, sizeof right) != 0) fail_msg("%s", numbers[i]);
    }
}

/* Constants of a header, remarks, and a second table in one file. */
static void a_header_has_constants(void **state)
{
    seen_rows seen;
    tandem_error error = {0};
    const char *const text =
        "# remark, with, commas\n"
        "device=t4,\"method=events,zeros\",operator=linear,precision=fp16,count=1,m,k,n,time_us\n"
        "3,5,7,2.5\n"
        "# another\n"
        "device=t4,operator=relu,precision=fp32,pass=dgrad,unknown=1,rows,columns,time_us\n"
        "8,9,4\n";
    assert_int_equal(read_text(&seen, text, 1, &error), TANDEM_OK);
    assert_int_equal(seen.n, 2);
    assert_int_equal(seen.timed, TANDEM_TIMED_BETWEEN_EVENTS | TANDEM_TIMED_OF_ZEROS);
    assert_string_equal(seen.last.kind, "relu");
    assert_string_equal(seen.last.precision, "fp32");
    assert_string_equal(seen.last.method, "");
    assert_true(seen.last.pass == TANDEM_PASS_DGRAD && seen.last.rows == 8 && seen.last.m == 0);
    assert_int_equal(seen.last.line, 6);
    /* one row more, or less, than its header says */
    assert_int_equal(read_text(&seen,
                               "device=t4,operator=relu,precision=fp32,count=1,rows,columns,time_us\n8,9,4\n"
                               "8,9,5\n",
                               1, &error),
                     TANDEM_MALFORMED);
    assert_non_null(
        strstr(error.text, "rows.csv, line 3: the table that ends here has 2 rows, its header says"));
}

/* A refusal names the line and what was wrong. */
static void what_is_no_table_is_refused(void **state)
{
    static const char header[] = "operator,m,k,n,precision,time_us\n";
    const struct {
        const char *text, *says;
        int has_header;
    } rows[] = {
        {"", "names of the columns", 0},
        {"operator,m,time\n", "has no unit", 0},
        {"operator,m\nlinear,1\n", "no column of times", 0},
        {"operator,time_us,time_ms\n", "two columns of times", 0},
        {"operator,time_us,operator\n", "is there twice", 0},
        {"time_us\n1\n", "no column 'operator'", 0},
        {"linear,1,2,3,fp32\n", "line 2 has 5 fields, its header 6", 1},
        {"linear,1,2,3,fp32,1,\n", "7 fields", 1},
        {"linear,1,2,3,fp32,0\n", "time_us must be a time above 0", 1},
        {"linear,1,2,3,fp32,-1\n", "time_us", 1},
        {"linear,1,2,3,fp32,1e300\n", "time_us", 1},
        {"linear,1,2,3,fp32,nan\n", "a number, got 'nan'", 1},
        {"linear,1,2,3,fp32,0x10\n", "a number", 1},
        {"linear,1.5,2,3,fp32,1\n", "m must be a whole number", 1},
        {"linear,0,2,3,fp32,1\n", "m must be a whole number", 1},
        {"linear,9007199254740994,2,3,fp32,1\n", "2^53", 1},
        {"\"linear,1,2,3,fp32,1\n", "quote is not closed", 1},
        {"device=t4,operator,count=-1,m,time_us\n", "count= must be a whole number from 0 to 1e9, got '-1'",
         0},
        {"device=t4,operator,count=1,time_us=0\n", "time_us must be a time above 0", 0},
        {"device=t4,operator=linear,operator,time_us\n", "is there twice", 0},
        {"device=t4,operator=linear,count=1,m,k,n,time_us\n", "has 0 rows, its header says count=1", 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[256];
        seen_rows seen;
        tandem_error error = {0};
        (void)snprintf(text, sizeof text, "%s%s", rows[i].has_header ? header : "", rows[i].text);
        if (!*text) (void)snprintf(text, sizeof text, "%s", "\n");
        const tandem_status status = read_text(&seen, text, 1, &error);
        if (status != TANDEM_MALFORMED || (*rows[i].text && !strstr(error.text, rows[i].says)))
            fail_msg("'%s': %s", text, error.text);
        assert_int_equal(seen.n, 0);
    }
    seen_rows seen;
    tandem_work work = {.flops = -7};
    tandem_error error = {0};
    assert_int_equal(read_text(&seen, "operator,m,precision,time_us\nlinaer,1,fp32,1\n", 1, &error),
                     TANDEM_OK);
    assert_int_equal(tandem_timing_work(&work, &seen.last, &error), TANDEM_UNKNOWN_NAME);
    assert_non_null(strstr(error.text, "Did you mean 'linear'"));
    assert_int_equal(read_text(&seen, "operator,m,precision,time_us\nlinear,1,fp32,1\n", 1, &error),
                     TANDEM_OK);
    assert_int_equal(tandem_timing_work(&work, &seen.last, &error), TANDEM_MALFORMED);
    assert_non_null(strstr(error.text, "m, k and n"));
    assert_true(work.flops == -7);
}

static void tables_write_cards_with_their_form(void **state)
{
    tandem_device device;
    tandem_error error = {0};
    assert_int_equal(tandem_timing_device(&device, "V100-PCIe-32GB", &error), TANDEM_OK);
    assert_string_equal(device.name, "v100_pcie");
    assert_int_equal(tandem_timing_device(&device, "a40", &error), TANDEM_OK);
    assert_int_equal(tandem_timing_device(&device, "A41", &error), TANDEM_UNKNOWN_NAME);
    assert_non_null(strstr(error.text, "Did you mean 'a4"));
}

static void a_way_is_one_that_the_convolution_has(void **state)
{
    const tandem_convolution strided = {8, 64, 28, 28, 64, 3, 3, 1, 1, 2, 2},
                             wide = {8, 64, 28, 28, 64, 5, 5, 2, 2, 1, 1};
    tandem_work work = {.kind = "conv2d"};
    assert_true(tandem_work_of_convolution(&work, &strided, TANDEM_F32, TANDEM_PASS_FORWARD, 4, 4));
    assert_int_equal(tandem_convolution_way(&work, "WINOGRAD"), WAY_FASTEST);
    assert_int_equal(tandem_convolution_way(&work, "IMPLICIT_GEMM"), WAY_DIRECT);
    assert_true(tandem_work_of_convolution(&work, &wide, TANDEM_F32, TANDEM_PASS_FORWARD, 4, 4));
    assert_int_equal(tandem_convolution_way(&work, "winograd"), WAY_FASTEST);
    assert_int_equal(tandem_convolution_way(&work, "winograd_nonfused"), WAY_TRANSFORMED);
    assert_int_equal(tandem_convolution_way(&work, "fft"), WAY_FASTEST);
    assert_int_equal(tandem_convolution_way(&work, ""), WAY_FASTEST);
}

static void deepbench_states_the_library_of_v100_alone(void **state)
{
    tandem_timing timing = {.source = "deepbench", .device = "P100", .method = "loop"};
    assert_int_equal(tandem_timing_timed(&timing), TANDEM_TIMED_OF_OLD_LIBRARY);
    memcpy(timing.device, "v100", sizeof "v100"); /* as in a store */
    assert_int_equal(tandem_timing_timed(&timing), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(columns_come_by_name),
        cmocka_unit_test(numbers_are_those_of_strtod),
        cmocka_unit_test(a_header_has_constants),
        cmocka_unit_test(what_is_no_table_is_refused),
        cmocka_unit_test(tables_write_cards_with_their_form),
        cmocka_unit_test(a_way_is_one_that_the_convolution_has),
        cmocka_unit_test(deepbench_states_the_library_of_v100_alone),
    };
    return cmocka_run_group_tests_name("timing tables", tests, NULL, NULL);
}
