/* folder: trace */
/* What-if analysis: a step worked out by hand, traces that make no sense, and the published answers for a
 * real one. */
#include <jansson.h>
#include <unistd.h>
#include <zlib.h>

#include "tandem/advanced/whatif.h"
#include "tests/support/tandem_test.h"
#include "tests/support/whatif_parts.h"

#define HEADING "dp_rank,stage,step,optype,model_chunk,seq_id,start_us,dur_us\n"

/* Two stages, one micro-batch. Stage 0 waits 2 us to send, stage 1 pauses 2 us; in every row dp 0, step 7. */
static const char two_stages[] = HEADING "0,0,7,forward-compute,0,0,0,10\n"
                                         "0,0,7,forward-send,-1,0,10,5\n"
                                         "0,1,7,forward-recv,-1,0,12,3\n"
                                         "0,1,7,forward-compute,0,0,15,10\n"
                                         "0,1,7,backward-compute,0,0,25,20\n"
                                         "0,1,7,backward-send,-1,0,45,1\n"
                                         "0,0,7,backward-recv,-1,0,16,30\n"
                                         "0,0,7,backward-compute,0,0,46,30\n"
                                         "0,0,7,optimizer,-1,0,76,6\n"
                                         "0,1,7,optimizer,-1,0,45,2\n";

static tandem_pipeline_trace *parse_whatif(const char *text)
{
    tandem_pipeline_trace *pipeline = NULL;
    tandem_error error = {0};
    require_ok(tandem_pipeline_trace_parse(&pipeline, text, strlen(text), "trace.csv", &error), &error);
    return pipeline;
}

static tandem_whatif *analyse_whatif(const char *text)
{
    tandem_whatif *whatif = NULL;
    tandem_error error = {0};
    tandem_pipeline_trace *const pipeline = parse_whatif(text);
    require_ok(tandem_whatif_pipeline(&whatif, pipeline, NULL, &error), &error);
    tandem_pipeline_trace_close(pipeline);
    return whatif;
}

/* --- By hand -------------------------------------------------------------------------------------------- */

static void a_step_by_hand_whatif(void **state)
{
    tandem_whatif *const w = analyse_whatif(two_stages);
    assert_int_equal(w->n_step, 1);
    assert_int_equal(w->n_worker, 2);
    assert_int_equal(w->n_op, 10);
    assert_int_equal(w->step[0].number, 7);
    assert_int_equal(w->recorded_ns, 82000);
    /* compute 10, message 3, 10, 20, 1, 30, optimizer 6; the means of backward and optimizer are 25 and 4 */
    assert_int_equal(w->step_ns, 80000);
    assert_int_equal(w->ideal_ns, 78000);
    assert_int_equal(w->step[0].step_ns, 80000);
    assert_int_equal(w->step[0].ideal_ns, 78000);
    assert_int_equal(w->by_stage.n, 2);
    expect_part(&w->by_stage, "stage 0", 85000, 73000);
    expect_part(&w->by_stage, "stage 1", 73000, 85000);
    assert_string_equal(w->by_stage.part[0].name, "stage 0"); /* worst first */
    assert_int_equal(w->by_dp_rank.n, 0);
    assert_int_equal(w->by_worker.n, 2);
    assert_int_equal(w->by_operator.n, 5);
    expect_part(&w->by_operator, "forward-compute", 78000, 80000);
    expect_part(&w->by_operator, "backward-compute", 78000, 80000);
    expect_part(&w->by_operator, "optimizer", 80000, 78000);
    expect_part(&w->by_operator, "forward-pp-comm", 78000, 80000);
    assert_string_equal(w->cause.who, "dp 0 stage 0");
    assert_string_equal(w->cause.what, "backward-compute");
    assert_int_equal(w->cause.without_ns, 73000);
    assert_int_equal(w->cause.without_what_ns, 75000);
    tandem_whatif_close(w);
}

static void communication_is_usually_the_median(void **state)
{
    /* One stage, three ranks, three steps: only the gather differs: 2, 2, 11 us; no messages, no stages. */
    char text[2000] = HEADING;
    static const int gather_us[] = {2, 2, 11};
    for (int step = 0; step < 3; step++)
        for (int dp = 0; dp < 3; dp++) {
            char rows[200];
            (void)snprintf(rows, sizeof rows,
                           "%d,0,%d,params-all-gather,0,0,%d,%d\n%d,0,%d,forward-compute,0,0,20,5\n", dp,
                           step, dp, gather_us[step] + 2 - dp, dp, step);
            (void)strcat(text, rows);
        }
    tandem_whatif *const w = analyse_whatif(text);
    assert_int_equal(w->n_step, 3);
    assert_int_equal(w->ideal_ns, 7000);
    assert_int_equal(w->step_ns, 10000); /* (7 + 7 + 16) / 3 */
    assert_int_equal(w->step[2].step_ns, 16000);
    assert_int_equal(w->by_stage.n, 0);
    assert_int_equal(w->by_dp_rank.n, 3);
    expect_part(&w->by_operator, "params-all-gather", 10000, 7000);
    expect_part(&w->by_operator, "forward-compute", 7000, 10000);
    expect_part(&w->by_dp_rank, "dp 0", 10000, 10000); /* a transfer ends when it ends, for each of them */
    assert_string_equal(w->cause.who, "");
    assert_string_equal(w->cause.what, "params-all-gather");
    tandem_whatif_close(w);
}

/* Two stages that hold two chunks each: the micro-batch goes round twice, and nothing runs beside anything.
 * */
static void chunks_go_round(void **state)
{
    for (int with_empty = 0; with_empty < 2; with_empty++) {
        char text[8000] = HEADING;
        for (int place = 0; place < 8; place++) {
            const int is_backward = place > 3, at = is_backward ? 7 - place : place, stage = at % 2,
                      chunk = at / 2;
            const char *const way = is_backward ? "backward" : "forward";
            const int has_next = is_backward ? at > 0 : at < 3, has_before = is_backward ? at < 3 : at > 0;
            char row[400];
            int n = 0;
            if (has_before || with_empty)
                n += snprintf(row + n, sizeof row - (size_t)n, "0,%d,1,%s-recv,-1,%d,%d,1\n", stage, way,
                              place, 100 * place);
            n += snprintf(row + n, sizeof row - (size_t)n, "0,%d,1,%s-compute,%d,%d,%d,%d\n", stage, way,
                          chunk, place, 100 * place + 1, is_backward ? 20 : 10);
            if (has_next || with_empty)
                n += snprintf(row + n, sizeof row - (size_t)n, "0,%d,1,%s-send,-1,%d,%d,1\n", stage, way,
                              place, 100 * place + 100);
            assert_true(n < (int)sizeof row);
            (void)strcat(text, row);
        }
        tandem_whatif *const w = analyse_whatif(text);
        /* messages 1 us each, empty ones beside; a backward message that has nobody to send to ends the step
         * 1 us later, a forward one that comes from nobody begins it 1 us later */
        assert_int_equal(w->step_ns, (4 * 10 + 4 * 20 + 6 + (with_empty ? 2 : 0)) * 1000);
        tandem_whatif_close(w);
    }
}

/* The transfers that a trace shows would be shorter than those recorded here: only the order counts. */
static void messages_wait_for_compute(void **state)
{
    /* The second message is sent at 3, but received after the first compute of stage 1: at 13; compute from
     * 15 to 25. */
    tandem_whatif *w =
        analyse_whatif(HEADING "0,0,1,forward-compute,0,0,0,1\n0,0,1,forward-send,-1,0,1,2\n"
                               "0,0,1,forward-compute,0,1,1,1\n0,0,1,forward-send,-1,1,3,12\n"
                               "0,1,1,forward-recv,-1,0,1,2\n0,1,1,forward-compute,0,0,3,10\n"
                               "0,1,1,forward-recv,-1,1,13,2\n0,1,1,forward-compute,0,1,15,10\n");
    assert_int_equal(w->step_ns, 25000);
    tandem_whatif_close(w);
    /* Stage 0: forward 1, 20, 1; the first gradient is ready at 5, but received after the second forward:
     * from 21 to 26. */
    w = analyse_whatif(HEADING "0,0,1,forward-compute,0,0,0,1\n0,0,1,forward-send,-1,0,1,1\n"
                               "0,0,1,forward-compute,0,1,1,20\n0,0,1,forward-send,-1,1,21,1\n"
                               "0,0,1,forward-compute,0,2,21,1\n0,0,1,forward-send,-1,2,22,1\n"
                               "0,0,1,backward-recv,-1,0,21,5\n0,0,1,backward-compute,0,0,26,1\n"
                               "0,1,1,forward-recv,-1,0,1,1\n0,1,1,forward-compute,0,0,2,1\n"
                               "0,1,1,backward-compute,0,0,3,2\n0,1,1,backward-send,-1,0,5,21\n"
                               "0,1,1,forward-recv,-1,1,21,1\n0,1,1,forward-compute,0,1,22,1\n"
                               "0,1,1,forward-recv,-1,2,22,1\n0,1,1,forward-compute,0,2,23,1\n");
    assert_int_equal(w->step_ns, 27000);
    tandem_whatif_close(w);
}

static void a_trace_is_written(void **state)
{
    char path[] = "/tmp/tandem_whatif_XXXXXX";
    const int file = mkstemp(path);
    assert_true(file >= 0);
    (void)close(file);
    tandem_whatif *whatif = NULL;
    tandem_pipeline_trace *const pipeline = parse_whatif(two_stages);
    assert_int_equal(tandem_whatif_pipeline(&whatif, pipeline, path, NULL), TANDEM_OK);
    json_t *const root = json_load_file(path, JSON_REJECT_DUPLICATES, NULL);
    (void)unlink(path);
    assert_non_null(root);
    const json_t *const all = json_object_get(root, "traceEvents");
    double longest[2] = {0, 0};
    int n[2] = {0, 0};
    for (size_t i = 0; i < json_array_size(all); i++) {
        const json_t *const one = json_array_get(all, i), *const view = json_object_get(one, "cat");
        if (!view) continue;
        const int is_ideal = strcmp(json_string_value(view), "ideal") == 0;
        const double end =
            json_number_value(json_object_get(one, "ts")) + json_number_value(json_object_get(one, "dur"));
        if (end > longest[is_ideal]) longest[is_ideal] = end;
        n[is_ideal]++;
    }
    assert_int_equal(n[0], 10);
    assert_int_equal(n[1], 10);
    assert_true(longest[0] == 80 && longest[1] == 78);
    json_decref(root);
    tandem_whatif_close(whatif);
    tandem_pipeline_trace_close(pipeline);
}

/* --- Columns and files ---------------------------------------------------------------------------------- */

static void columns_are_in_any_order(void **state)
{
    tandem_pipeline_trace *const pipeline =
        parse_whatif("x,dur_us,optype,seq_id,start_us,step,stage,dp_rank,tp_rank\r\n"
                     "?,1.0005,gc,4,-2.5e3,9,0,1,-1\r\n"
                     "\r\n"
                     "?,0,optimizer,4,1694639310786340.25,9,0,0,1");
    assert_int_equal(pipeline->n_op, 2);
    assert_int_equal(pipeline->n_step, 1);
    assert_int_equal(pipeline->n_dp, 2);
    assert_int_equal(pipeline->n_tp, 2);
    assert_int_equal(pipeline->n_chunk, 1);
    assert_int_equal(pipeline->op[0].kind, TANDEM_PIPELINE_OPTIMIZER);
    assert_int_equal(pipeline->op[0].start_ns, INT64_C(1694639310786340250));
    assert_int_equal(pipeline->op[1].start_ns, -2500000);
    assert_int_equal(pipeline->op[1].duration_ns, 1001);
    assert_int_equal(pipeline->op[1].sequence, 4);
    tandem_pipeline_trace_close(pipeline);
}

static void errors_say_which_line(void **state)
{
    static const struct {
        const char *text, *word, *more;
    } cases[] = {
        {"", "line 1: no column dp_rank", "start_us"},
        {"dp_rank,stage,step,optyp,seq_id,start_us,dur_us\n", "no column optype", "'optyp'"},
        {HEADING, "no operators", ""},
        {HEADING "0,0,7,gc,0,0,0\n", "line 2: 7 cells", "expected 8"},
        {HEADING "0,0,7,gc,0,0,0,1\n0,0,7,gc,0,0,0,1,2\n", "line 3: 9 cells", "expected 8"},
        {HEADING "0,-1,7,gc,0,0,0,1\n", "line 2: stage must be", "'-1'"},
        {HEADING "0,0,7.5,gc,0,0,0,1\n", "line 2: step must be", "'7.5'"},
        {HEADING "0,0,,gc,0,0,0,1\n", "line 2: step must be", "''"},
        {HEADING "99999999999999999999,0,7,gc,0,0,0,1\n", "dp_rank must be", "9999"},
        {HEADING "0,0,7,forward-comput,0,0,0,1\n", "no operator type 'forward-comput'", "'forward-compute'"},
        {HEADING "0,0,7,gc,0,0,nan,1\n", "start_us must be a number", "'nan'"},
        {HEADING "0,0,7,gc,0,0,1e99,1\n", "start_us must be a time", "'1e99'"},
        {HEADING "0,0,7,gc,0,0,0,-10000.001\n", "line 2: dur_us must be from -10000 us", "'-10000.001'"},
        {HEADING "0,0,7,gc,0,0,0,-1e99\n", "line 2: dur_us must be from -10000 us", "'-1e99'"},
        {HEADING "0,0,7,gc,0,0,0,1e13\n", "dur_us must be from -10000 us", "104 days"},
        {HEADING "0,0,7,gc,0,0,0,\n", "dur_us must be a number", "''"},
        {HEADING "0,0,7,gc,0,0,0,1e\n", "dur_us must be a number", "'1e'"},
    };
    for (size_t i = 0; i < N_OF(cases); i++) {
        tandem_pipeline_trace *const untouched = (tandem_pipeline_trace *)(uintptr_t)16,
                                     *pipeline = untouched;
        tandem_error error = {0};
        assert_int_equal(
            tandem_pipeline_trace_parse(&pipeline, cases[i].text, strlen(cases[i].text), "trace.csv", &error),
            TANDEM_MALFORMED);
        assert_ptr_equal(pipeline, untouched);
        if (!strstr(error.text, cases[i].word) || !strstr(error.text, cases[i].more) ||
            !strstr(error.text, "trace.csv"))
            fail_msg("case %zu, '%s' and '%s': %s", i, cases[i].word, cases[i].more, error.text);
    }
}

static void a_number_of_200_digits_is_too_large(void **state)
{
    char text[400] = HEADING "0,0,7,gc,0,0,0,";
    tandem_pipeline_trace *pipeline = NULL;
    tandem_error error = {0};
    const size_t n = strlen(text);
    memset(text + n, '9', 200);
    assert_int_equal(tandem_pipeline_trace_parse(&pipeline, text, n + 200, "t", &error), TANDEM_MALFORMED);
    assert_non_null(strstr(error.text, "dur_us must be from -10000 us"));
    memset(text + n, '0', 199); /* 000…09 is 9 */
    assert_int_equal(tandem_pipeline_trace_parse(&pipeline, text, n + 200, "t", &error), TANDEM_OK);
    assert_int_equal(pipeline->op[0].duration_ns, 9000);
    tandem_pipeline_trace_close(pipeline);
    (void)memcpy(text + n, "0.", 2); /* 0.000…09 is 0 */
    assert_int_equal(tandem_pipeline_trace_parse(&pipeline, text, n + 200, "t", &error), TANDEM_OK);
    assert_int_equal(pipeline->op[0].duration_ns, 0);
    tandem_pipeline_trace_close(pipeline);
}

static void files_that_are_not_there(void **state)
{
    tandem_pipeline_trace *pipeline = NULL;
    tandem_error error = {0};
    assert_int_equal(tandem_pipeline_trace_read(&pipeline, "/nonexistent/trace.csv", &error), TANDEM_IO);
    assert_non_null(strstr(error.text, "/nonexistent/trace.csv"));
    assert_int_equal(tandem_pipeline_trace_read(&pipeline, "/", &error), TANDEM_IO);
}

static size_t pack(unsigned char *to, size_t room, const char *text)
{
    z_stream stream = {0};
    assert_int_equal(deflateInit2(&stream, 9, Z_DEFLATED, 15 + 16, 9, Z_DEFAULT_STRATEGY), Z_OK);
    stream.next_in = (unsigned char *)(uintptr_t)text;
    stream.avail_in = (uInt)strlen(text);
    stream.next_out = to;
    stream.avail_out = (uInt)room;
    assert_int_equal(deflate(&stream, Z_FINISH), Z_STREAM_END);
    (void)deflateEnd(&stream);
    return room - stream.avail_out;
}

static void compressed_files_are_read(void **state)
{
    unsigned char bytes[4096];
    tandem_pipeline_trace *pipeline = NULL;
    tandem_error error = {0};
    size_t n = pack(bytes, sizeof bytes, HEADING "0,0,7,gc,0,0,0,1\n");
    /* a second member continues the first */
    n += pack(bytes + n, sizeof bytes - n, "0,0,7,optimizer,0,0,1,1\n");
    assert_int_equal(tandem_pipeline_trace_parse(&pipeline, bytes, n, "t.gz", &error), TANDEM_OK);
    assert_int_equal(pipeline->n_op, 2);
    tandem_pipeline_trace_close(pipeline);
    for (size_t cut = 2; cut < n; cut++) { /* wherever it is cut off, but between the members */
        const tandem_status status = tandem_pipeline_trace_parse(&pipeline, bytes, cut, "t.gz", &error);
        if (status == TANDEM_OK)
            tandem_pipeline_trace_close(pipeline);
        else
            assert_int_equal(status, TANDEM_MALFORMED);
        if (cut == n - 1) assert_non_null(strstr(error.text, "cut off"));
    }
    bytes[n] = 'x';
    assert_int_equal(tandem_pipeline_trace_parse(&pipeline, bytes, n + 1, "t.gz", &error), TANDEM_MALFORMED);
    assert_non_null(strstr(error.text, "after the end of the compressed data"));
    bytes[30] ^= 0x55;
    assert_int_equal(tandem_pipeline_trace_parse(&pipeline, bytes, n, "t.gz", &error), TANDEM_MALFORMED);
}

/* --- Traces that make no sense -------------------------------------------------------------------------- */

static void replace_whatif(char *text, const char *old, const char *new)
{
    char *const at = strstr(text, old);
    assert_non_null(at);
    memmove(at + strlen(new), at + strlen(old), strlen(at + strlen(old)) + 1);
    memcpy(at, new, strlen(new));
}

static void broken_steps_are_named(void **state)
{
    static const struct {
        const char *old, *new, *words[3];
    } cases[] = {
        {"0,1,7,forward-recv,-1,0,12,3\n",
         "",
         {"step 7, dp 0 stage 1", "0 forward-recv for 1 forward-compute", "expected 1"}},
        {"0,1,7,optimizer", "0,1,8,optimizer", {"step 8", "dp 0 stage 0", "no operators"}},
        {"0,1,7,optimizer", "2,1,7,optimizer", {"step 7", "dp 1 stage 0", "no operators"}},
        {"0,1,7,optimizer", "2000000000,30000,7,optimizer", {"step 7", "no operators", "2000000001 x 30001"}},
        {"0,1,7,optimizer",
         "0,1,7,optimizer-clip-main-grad",
         {"step 7, dp 0 stage 1: optimizer-clip-main-grad 0", "1 of 2", "partner"}},
        {"0,1,7,optimizer", "0,1,7,embedding-grads-all-reduce", {"dp 0 stage 1: embedding", "1 of 2", ""}},
        {"compute,0,0,46,30",
         "compute,0,0,-46,30",
         {"form a dependency cycle", "forward-compute", "backward"}},
    };
    for (size_t i = 0; i < N_OF(cases); i++) {
        char text[sizeof two_stages + 100];
        tandem_whatif *const untouched = (tandem_whatif *)(uintptr_t)16, *whatif = untouched;
        tandem_error error = {0};
        memcpy(text, two_stages, sizeof two_stages);
        replace_whatif(text, cases[i].old, cases[i].new);
        tandem_pipeline_trace *const pipeline = parse_whatif(text);
        assert_int_equal(tandem_whatif_pipeline(&whatif, pipeline, NULL, &error), TANDEM_MALFORMED);
        assert_ptr_equal(whatif, untouched);
        for (size_t w = 0; w < N_OF(cases[i].words); w++)
            if (!strstr(error.text, cases[i].words[w]))
                fail_msg("case %zu, '%s': %s", i, cases[i].words[w], error.text);
        tandem_pipeline_trace_close(pipeline);
    }
}

static void clocks_that_differ_do_no_sensitivity(void **state)
{
    char text[sizeof two_stages + 100];
    memcpy(text, two_stages, sizeof two_stages);
    /* after the send has ended */
    replace_whatif(text, "0,1,7,forward-recv,-1,0,12,3", "0,1,7,forward-recv,-1,0,16,0.5");
    tandem_whatif *const w = analyse_whatif(text);
    assert_int_equal(w->step_ns, 77500); /* the sender's transfer counts as 0, the receiver's as it is */
    tandem_whatif_close(w);
}

/* --- A production trace: eight of its steps ------------------------------------------------------------- */

#define CUT "tests/data/straggler/trace-ST-8-steps.csv.gz"

static void near(const char *what, double got, double expected, double tolerance)
{
    if (!(fabs(got / expected - 1) <= tolerance))
        fail_msg("%s: %.9g, expected %.9g: %+.4f%%", what, got, expected, 100 * (got / expected - 1));
}

static tandem_whatif *analyse_job_whatif(tandem_pipeline_trace *pipeline)
{
    tandem_whatif *whatif = NULL;
    tandem_error error = {0};
    require_ok(tandem_whatif_pipeline(&whatif, pipeline, NULL, &error), &error);
    tandem_pipeline_trace_close(pipeline);
    return whatif;
}

/* What was published of these steps (result-ST.json: step_t_base, step_t_nodelay), in s. The published ideal
 * is of all 32 steps. */
static void a_cut_of_a_published_trace_gives_its_answers(void **state)
{
    static const struct {
        int number;
        double recorded, step;
    } published[] = {{23, 2.381652117, 2.339666261},  {25, 2.375451565, 2.333383741},
                     {33, 2.145037413, 2.102941519},  {34, 2.100548267, 2.058266774},
                     {36, 2.132040739, 2.089849878},  {259, 2.210853338, 2.168677330},
                     {261, 2.222348452, 2.180068677}, {263, 2.227321625, 2.184960831}};
    const double published_ideal = 1.843295824;
    tandem_pipeline_trace *pipeline = NULL;
    tandem_error error = {0};
    require_ok(tandem_pipeline_trace_read(&pipeline, CUT, &error), &error);
    tandem_whatif *const w = analyse_job_whatif(pipeline);
    assert_int_equal(w->n_step, N_OF(published));
    assert_int_equal(w->n_negative, 0);
    for (int k = 0; k < w->n_step; k++) {
        assert_int_equal(w->step[k].number, published[k].number);
        near("recorded step", (double)w->step[k].recorded_ns / 1e9, published[k].recorded, 1e-4);
        near("step", (double)w->step[k].step_ns / 1e9, published[k].step, 1e-6);
    }
    near("ideal step", (double)w->ideal_ns / 1e9, published_ideal, 0.025);
    assert_string_equal(w->cause.who, "stage 3");
    assert_string_equal(w->by_worker.part[0].name, "dp 1 stage 3");
    tandem_whatif_close(w);
}

/* The cut as text, of which durations below 50 us are −26.9 and −9999 us by turns. */
static char *cut_with_negatives(int *n_changed)
{
    enum { MAX = 1 << 18 };
    static const char *const instead[] = {"-26.9", "-9999"};
    char line[400], *const text = malloc(MAX);
    size_t n = 0;
    assert_non_null(text);
    const gzFile file = gzopen(CUT, "rb");
    assert_non_null(file);
    for (*n_changed = -1; gzgets(file, line, sizeof line);) { /* the heading's "duration" is 0 */
        char *const last = strrchr(line, ',');
        assert_non_null(last);
        const int is_short = strtod(last + 1, NULL) < 50;
        if (is_short && *n_changed >= 0) (void)snprintf(last + 1, 16, "%s\n", instead[*n_changed % 2]);
        *n_changed += is_short;
        n += (size_t)snprintf(text + n, MAX - n, "%s", line);
        assert_true(n < MAX);
    }
    assert_int_equal(gzclose(file), Z_OK);
    return text;
}

static void parts_are_near(const tandem_whatif_parts *got, const tandem_whatif_parts *expected)
{
    assert_int_equal(got->n, expected->n);
    for (int k = 0; k < expected->n; k++) {
        const tandem_whatif_part *const one = &expected->part[k], *const other = part_of(got, one->name);
        near(one->name, (double)other->with_ns, (double)one->with_ns, 1e-3);
        near(one->name, (double)other->without_ns, (double)one->without_ns, 1e-3);
    }
}

static void small_negative_durations_change_no_answer(void **state)
{
    int n_changed = 0;
    tandem_pipeline_trace *pipeline = NULL;
    tandem_error error = {0};
    char *const text = cut_with_negatives(&n_changed);
    assert_true(n_changed > 100);
    require_ok(tandem_pipeline_trace_read(&pipeline, CUT, &error), &error);
    tandem_whatif *const expected = analyse_job_whatif(pipeline), *const got =
                                                                      analyse_job_whatif(parse_whatif(text));
    assert_int_equal(got->n_negative, n_changed);
    near("recorded", (double)got->recorded_ns, (double)expected->recorded_ns, 1e-3);
    near("step", (double)got->step_ns, (double)expected->step_ns, 1e-3);
    near("ideal", (double)got->ideal_ns, (double)expected->ideal_ns, 1e-3);
    for (int k = 0; k < expected->n_step; k++) {
        near("a step", (double)got->step[k].step_ns, (double)expected->step[k].step_ns, 1e-3);
        near("a recorded step", (double)got->step[k].recorded_ns, (double)expected->step[k].recorded_ns,
             1e-3);
    }
    parts_are_near(&got->by_operator, &expected->by_operator);
    parts_are_near(&got->by_stage, &expected->by_stage);
    parts_are_near(&got->by_dp_rank, &expected->by_dp_rank);
    parts_are_near(&got->by_worker, &expected->by_worker);
    assert_string_equal(got->cause.who, expected->cause.who);
    assert_string_equal(got->cause.what, expected->cause.what);
    tandem_whatif_close(got);
    tandem_whatif_close(expected);
    free(text);
}

/* --- The published timeline, as it is fetched ----------------------------------------------------------- */

/* The cut again as the timeline that its authors published: events, and threads whose names say stage and
 * stream. */
static void write_timeline(const char *path)
{
    char line[400];
    const gzFile from = gzopen(CUT, "rb"), to = gzopen(path, "wb1");
    assert_true(from && to && gzgets(from, line, sizeof line) && gzputs(to, "[") > 0);
    while (gzgets(from, line, sizeof line)) {
        char kind[64], stream[16], rest[3][16];
        int dp = 0, stage = 0, tp = 0, step = 0, n[3];
        double start = 0, duration = 0;
        assert_int_equal(sscanf(line, "%d,%d,%d,%15[^,],%d,%63[^,],%d,%d,%d,%lf,%lf", &dp, &stage, &tp,
                                stream, &step, kind, &n[0], &n[1], &n[2], &start, &duration),
                         11);
        for (int k = 0; k < 3; k++) (void)snprintf(rest[k], sizeof rest[k], n[k] < 0 ? "null" : "%d", n[k]);
        const int thread = 5 * (2 * stage + dp) + (stream[0] == 'c' ? 0 : stream[0] == 'p' ? 1 : 3);
        assert_true(gzprintf(to,
                             "{\"name\": \"%s\", \"cat\": \"%s\", \"pid\": %d, \"tid\": %d, \"ts\": %.6f, "
                             "\"dur\": %.6f, \"ph\": \"X\", \"args\": "
                             "{\"step\": %d, \"model_chunk\": %s, \"mb_id\": %s, \"seq_id\": %s}}, "
                             "{\"name\": \"thread_name\", \"pid\": %d, "
                             "\"tid\": %d, \"ph\": \"M\", \"args\": {\"name\": \"PP rank %d, TP rank %d, "
                             "%s\"}}, ",
                             kind, kind, dp, thread, start, duration, step, rest[0], rest[1], rest[2], dp,
                             thread, stage, tp, stream) > 0);
    }
    assert_true(gzputs(to, "{\"name\": \"process_name\", \"pid\": 0, \"ph\": \"M\", \"args\": {\"name\": "
                           "\"DP rank [0]\"}}]") > 0);
    assert_int_equal(gzclose(from), Z_OK);
    assert_int_equal(gzclose(to), Z_OK);
}

static void the_published_timeline_becomes_the_trace(void **state)
{
    if (system("command -v jq >/dev/null") != 0) {
        print_message("SKIP: bench/whatif.sh --convert needs jq: apt-get install jq\n");
        skip();
    }
    char path[] = "/tmp/tandem_timeline_XXXXXX", command[200];
    const int file = mkstemp(path);
    assert_true(file >= 0 && close(file) == 0);
    write_timeline(path);
    (void)snprintf(command, sizeof command,
                   "bash -c 'cmp <(bench/whatif.sh --convert %s | LC_ALL=C sort) <(gunzip -c %s | LC_ALL=C "
                   "sort)'",
                   path, CUT);
    const int differs = system(command);
    (void)unlink(path);
    assert_int_equal(differs, 0);
}

/* --- The published answers ------------------------------------------------------------------------------ */

/* $TANDEM_SHARED_DATA/straggler, or beside the repository. */
static const char *folder(void)
{
    static char path[1000];
    const char *const given = getenv("TANDEM_SHARED_DATA");
    (void)snprintf(path, sizeof path, "%s/straggler", given ? given : "../shared/data");
    return access(path, R_OK) == 0 ? path : NULL;
}

static json_t *load_whatif(const char *name)
{
    char path[1100];
    json_error_t why;
    (void)snprintf(path, sizeof path, "%s/%s", folder(), name);
    json_t *const root = json_load_file(path, 0, &why);
    if (!root) fail_msg("%s: %s", path, why.text);
    return root;
}

static double mean_of(const json_t *object)
{
    double sum = 0;
    /* jansson iterates through a non-const pointer; nothing is changed. */
    for (void *at = json_object_iter((json_t *)(uintptr_t)object); at;
         at = json_object_iter_next((json_t *)(uintptr_t)object, at))
        sum += json_number_value(json_object_iter_value(at));
    return sum / (double)json_object_size(object);
}

static void near_all(const tandem_whatif *w, const tandem_whatif_parts *parts, const char *prefix,
                     const json_t *expected)
{
    assert_int_equal(parts->n, json_object_size(expected));
    for (int k = 0; k < parts->n; k++) {
        const char *const name = parts->part[k].name;
        assert_int_equal(strncmp(name, prefix, strlen(prefix)), 0);
        near(name, (double)parts->part[k].with_ns / (double)w->ideal_ns,
             json_number_value(json_object_get(expected, name + strlen(prefix))), 1e-5);
    }
}

static void published_answers_are_met(void **state)
{
    if (!folder()) {
        print_message("SKIP: no straggler/ in $TANDEM_SHARED_DATA or ../shared/data (bench/whatif.sh "
                      "--fetch): the published answers are not compared\n");
        skip();
    }
    char path[1100];
    tandem_pipeline_trace *pipeline = NULL;
    tandem_whatif *w = NULL;
    tandem_error error = {0};
    (void)snprintf(path, sizeof path, "%s/trace-ST.csv", folder());
    if (tandem_pipeline_trace_read(&pipeline, path, &error) != TANDEM_OK ||
        tandem_whatif_pipeline(&w, pipeline, NULL, &error) != TANDEM_OK)
        fail_msg("%s", error.text);
    json_t *const result = load_whatif("result-ST.json"), *const stage = load_whatif("ms-ST.json"),
                  *const worker = load_whatif("mw-ST.json");
    near("recorded step", (double)w->recorded_ns / 1e9, mean_of(json_object_get(result, "step_t_base")),
         1e-4);
    near("step", (double)w->step_ns / 1e9, mean_of(json_object_get(result, "step_t_nodelay")), 1e-5);
    near("ideal step", (double)w->ideal_ns / 1e9, mean_of(json_object_get(result, "step_t_noblk")), 1e-5);
    near("slowdown", (double)w->step_ns / (double)w->ideal_ns,
         json_number_value(json_object_get(result, "blocking_slowdown")), 1e-5);
    near_all(w, &w->by_operator, "", json_object_get(result, "blocking_decompose_by_optype"));
    near_all(w, &w->by_stage, "stage ", json_object_get(result, "blocking_decompose_by_stage"));
    near_all(w, &w->by_dp_rank, "dp ", json_object_get(result, "blocking_decompose_by_dp_rank"));
    for (int k = 0; k < w->n_step; k++) {
        char number[24];
        (void)snprintf(number, sizeof number, "%lld", (long long)w->step[k].number);
        near(number, (double)w->step[k].step_ns / 1e9,
             json_number_value(json_object_get(json_object_get(result, "step_t_nodelay"), number)), 1e-5);
    }
    /* both ways, for the last stage and for the worst worker */
    near("with stage 3", (double)part_of(&w->by_stage, "stage 3")->with_ns / 1e9,
         json_number_value(json_object_get(stage, "tadd")), 1e-5);
    near("without stage 3", (double)part_of(&w->by_stage, "stage 3")->without_ns / 1e9,
         json_number_value(json_object_get(stage, "trem")), 1e-5);
    assert_string_equal(w->by_worker.part[0].name, "dp 1 stage 3");
    near("with the worst worker", (double)w->by_worker.part[0].with_ns / 1e9,
         json_number_value(json_object_get(worker, "tadd")), 1e-5);
    near("without it", (double)w->by_worker.part[0].without_ns / 1e9,
         json_number_value(json_object_get(worker, "trem")), 1e-5);
    assert_string_equal(w->cause.who, "stage 3");
    json_decref(worker);
    json_decref(stage);
    json_decref(result);
    tandem_whatif_close(w);
    tandem_pipeline_trace_close(pipeline);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_by_hand_whatif),
        cmocka_unit_test(communication_is_usually_the_median),
        cmocka_unit_test(chunks_go_round),
        cmocka_unit_test(messages_wait_for_compute),
        cmocka_unit_test(a_trace_is_written),
        cmocka_unit_test(columns_are_in_any_order),
        cmocka_unit_test(errors_say_which_line),
        cmocka_unit_test(a_number_of_200_digits_is_too_large),
        cmocka_unit_test(files_that_are_not_there),
        cmocka_unit_test(compressed_files_are_read),
        cmocka_unit_test(broken_steps_are_named),
        cmocka_unit_test(clocks_that_differ_do_no_sensitivity),
        cmocka_unit_test(a_cut_of_a_published_trace_gives_its_answers),
        cmocka_unit_test(small_negative_durations_change_no_answer),
        cmocka_unit_test(the_published_timeline_becomes_the_trace),
        cmocka_unit_test(published_answers_are_met),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
