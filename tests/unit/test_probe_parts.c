/* folder: runtime */
/* The parts of a probe by themselves (probe_run.h), with numbers worked out by hand: what is kept, what
 * rounding it adds to a gradient, the formats of cells, and the error of a cell from the noises of both
 * steps. */
#include <math.h>

#include "runtime/estimate/probe_run.h"
#include "graph/ir/build.h"
#include "tests/support/test_graph.h"

enum { BATCH = 8, REPLICATES = 3, MAX_PROBED = 4, ROOM = 4096 };

/* A run with the operators that a test puts there. */
typedef struct probed {
    tandem_graph *graph;
    tandem_step *step;
    tandem_estimate estimate;
    tandem_emulation emulation;
    probe_point point;
    probe_operator of[MAX_PROBED];
    double log_ratio[2 * MAX_PROBED * TANDEM_N_PROBE_PART * TANDEM_N_FORMAT];
    probe_run run;
} probed;

static void open_probed_graph(probed *p, tandem_graph *graph)
{
    tandem_error error = {0};
    *p = (probed){.graph = graph, .emulation = tandem_emulation_make(0)};
    require_ok(tandem_step_open(&p->step, p->graph, TANDEM_F32, 0, &error), &error);
    require_ok(tandem_estimate_open(&p->estimate, p->graph->n_op, 1, REPLICATES, &error), &error);
    p->estimate.batch = BATCH;
    p->point = (probe_point){.step = p->step,
                             .estimate = &p->estimate,
                             .emulation = &p->emulation,
                             .n_range_batch = 1,
                             .n_rank = REPLICATES};
    p->run = (probe_run){.point = &p->point, .operator= p->of, .log_ratio = p->log_ratio, .step = {0.25, 1}};
    require_ok(tandem_step_open(&p->run.plan, p->graph, TANDEM_F32, 0, &error), &error);
    probe_open_rooms(&p->run, ROOM);
}

static void open_probed(probed *p, const char *model) { open_probed_graph(p, open_graph(model, BATCH)); }

static void close_probed(probed *p)
{
    for (int k = 0; k < MAX_PROBED; k++)
        for (int i = 0; i < N_KEPT; i++)
            if (p->of[k].kept[i].is_own) free(p->of[k].kept[i].x);
    probe_close_rooms(&p->run);
    tandem_step_close(p->run.plan);
    tandem_estimate_close(&p->estimate);
    tandem_step_close(p->step);
    tandem_graph_close(p->graph);
}

static probe_operator *add_probed(probed *p, int op)
{
    probe_operator *of = &p->of[p->run.n_op++];
    of->op = op;
    of->is_adjustable = tandem_op_is_adjustable(&p->graph->op[op]);
    return of;
}

static void set_noise(probe_operator *of, int part, tandem_format f, double small, double large)
{
    for (int range = 0; range < N_PROBE_RANGE; range++) {
        of->sums[range].noise[part][f][0] = (range + 1) * small;
        of->sums[range].noise[part][f][1] = (range + 1) * large;
    }
}

static void assert_close(double got, double expected, const char *what)
{
    if (!(fabs(got - expected) <= 1e-9 * fmax(1, fabs(expected))))
        fail_msg("%s: %.12g, expected %.12g", what, got, expected);
}

/* --- Errors of cells ------------------------------------------------------------------------------------ */

static tandem_estimated_error error_of_probed(probed *p, int op, tandem_precision precision, int r)
{
    const int cell = tandem_estimate_cell(op, precision, TANDEM_F32);
    p->estimate.is_estimated[cell] = 1;
    probe_set_replicate(&p->run, r);
    return tandem_estimate_errors(&p->estimate, 0, cell)[r];
}

/* Ranges of one batch: a replicate has seen one and two, of which wide ones take both. So l = ½ ln 2 for the
 * first of each rank, and a growth of ln 4 is 4 of these. */
static void an_error_is_the_sum_of_its_parts(void **state)
{
    probed p;
    (void)state;
    open_probed(&p, "mlp:depth=1,width=4,image=4x4x1");
    const int op = op_of(p.graph, "fc1");
    probe_operator *of = add_probed(&p, op);
    for (int k = 0; k < 2; k++) {
        const tandem_format f = k ? TANDEM_FORMAT_S8 : TANDEM_FORMAT_BF16;
        set_noise(of, TANDEM_PROBE_INPUT, f, 1, 3);
        set_noise(of, TANDEM_PROBE_SECOND, f, 0.25, 0.75);
        set_noise(of, TANDEM_PROBE_GRADIENT, f, 2, 4);
        set_noise(of, TANDEM_PROBE_WEIGHT, f, 4, 6);
        of->sums[PROBE_OWN_RANGE].cross[f] = 2;
    }
    set_noise(of, TANDEM_PROBE_RESULT, TANDEM_FORMAT_BF16, 10, 20);
    set_noise(of, TANDEM_PROBE_GRADIENT, TANDEM_FORMAT_E5M2, 100, 100); /* of no cell that is estimated */
    for (int r = 0; r < REPLICATES; r++) {
        const tandem_estimated_error nearest = error_of_probed(&p, op, TANDEM_PRECISION_BF16, r),
                                     drawn = error_of_probed(&p, op, TANDEM_PRECISION_INT8_FULL, r);
        assert_close(nearest.total, 2 + 0.5 + 3 + 5 - 2 + 15, "bf16");
        assert_close(nearest.wide_total, 23.5 + 4 * (2 * 25.5 - 2 - 23.5), "bf16, wide");
        assert_close(nearest.shared, 0, "bf16, shared");
        assert_close(drawn.total, 2 + 0.5 + 3 + 5, "int8_full");
        assert_close(drawn.wide_total, 10.5 + 4 * 10.5, "int8_full, wide");
        assert_close(drawn.shared, 2, "int8_full, shared");
    }
    close_probed(&p);
}

/* A narrow result makes narrow what depends on it: a bias passes gradients on, one with a gelu computes
 * them. */
static void check_dependent(const char *model, double expected)
{
    probed p;
    open_probed(&p, model);
    const int op = op_of(p.graph, "fc1");
    (void)add_probed(&p, op);
    probe_operator *bias = add_probed(&p, op_of(p.graph, "fc1.bias"));
    for (int part = 0; part < TANDEM_N_PROBE_PART; part++)
        set_noise(bias, part, TANDEM_FORMAT_BF16, 1 << part, 1 << part);
    const tandem_estimated_error error = error_of_probed(&p, op, TANDEM_PRECISION_BF16, 0);
    assert_close(error.total, expected, "bf16");
    assert_close(error.wide_total, expected + 4 * expected, "bf16, wide");
    assert_close(error_of_probed(&p, op, TANDEM_PRECISION_INT8_FULL, 0).total, 0, "int8_full");
    close_probed(&p);
}

static void a_narrow_result_rounds_what_follows(void **state)
{
    (void)state;
    check_dependent("mlp:depth=1,width=4,image=4x4x1", 1 << TANDEM_PROBE_RESULT);
    check_dependent("mlp:depth=1,width=4,image=4x4x1,gelu=1",
                    (1 << TANDEM_PROBE_RESULT) + (1 << TANDEM_PROBE_GRADIENT));
}

/* Of noises 8 at ε = ¼ and 2 at 1, q = 4. Where rounding moves the output by 1 and a unit of ε by 1, ε* = ½:
 * 1/ε* = 2 is α = ⅓ from 1 to 4, and the error ½·(4α + 1 − α)·(8/4 + 2) = 4. */
static double jump_error(probed *p, int op, int part, double mean_square, double error_square)
{
    probe_operator *of = &p->of[0];
    const int is_result = part == TANDEM_PROBE_RESULT;
    const tandem_format f = is_result ? TANDEM_FORMAT_BF16 : TANDEM_FORMAT_S8;
    const int other = part != TANDEM_PROBE_INPUT          ? TANDEM_PROBE_INPUT
                      : p->graph->op[op].parameter[0] < 0 ? TANDEM_PROBE_SECOND
                                                          : TANDEM_PROBE_WEIGHT;
    *of = (probe_operator){
        .op = op, .is_adjustable = 1, .is_before_jump = 1, .sums[PROBE_OWN_RANGE].rate_square = 1};
    set_noise(of, part, f, 8, 2);
    for (int i = 0; i < TANDEM_N_PROBE_PART; i++)
        of->sums[PROBE_OWN_RANGE].mean_square[i] = 1e6; /* of others */
    of->sums[PROBE_OWN_RANGE].mean_square[other] = mean_square;
    of->sums[PROBE_OWN_RANGE].error_square[part][f] = error_square;
    return error_of_probed(p, op, is_result ? TANDEM_PRECISION_BF16 : TANDEM_PRECISION_INT8_FULL, 0).total;
}

static void noise_of_jumps_is_that_of_the_rounding(void **state)
{
    probed p;
    (void)state;
    open_probed(&p, "mlp:depth=1,width=4,image=4x4x1");
    const int op = op_of(p.graph, "fc1");
    probe_operator *of = add_probed(&p, op);
    assert_close(jump_error(&p, op, TANDEM_PROBE_INPUT, 0.25, 0.25), 4,
                 "input"); /* an output sums 16 products */
    assert_close(jump_error(&p, op, TANDEM_PROBE_WEIGHT, 0.0625, 1), 4, "weight");
    assert_close(jump_error(&p, op, TANDEM_PROBE_RESULT, 0, 1), 4, "result");
    assert_close(jump_error(&p, op, TANDEM_PROBE_INPUT, 0.25, 1e6), 2, "far");   /* α = 0 */
    assert_close(jump_error(&p, op, TANDEM_PROBE_INPUT, 0.25, 1e-6), 8, "near"); /* α = 1 */
    assert_close(jump_error(&p, op, TANDEM_PROBE_INPUT, 0.25, 0), 8, "not at all");
    assert_close(jump_error(&p, op, TANDEM_PROBE_GRADIENT, 0.25, 1), 5, "gradient"); /* it makes no jumps */
    assert_close(p.run.jump_ratio, 1, "ratio of nothing");
    (void)jump_error(&p, op, TANDEM_PROBE_INPUT, 0.25, 0.25);
    set_noise(of, TANDEM_PROBE_INPUT, TANDEM_FORMAT_BF16, 18, 2);
    set_noise(of, TANDEM_PROBE_INPUT, TANDEM_FORMAT_E4M3, 3, 2);
    set_noise(of, TANDEM_PROBE_INPUT, TANDEM_FORMAT_E5M2, 5, 0);
    set_noise(of, TANDEM_PROBE_INPUT, TANDEM_FORMAT_F16, 0, 5);
    probe_set_replicate(&p.run, 0);
    assert_close(p.run.jump_ratio, 4, "the median of 9, 4, 1.5");
    set_noise(of, TANDEM_PROBE_INPUT, TANDEM_FORMAT_S8, 1, 2);
    set_noise(of, TANDEM_PROBE_INPUT, TANDEM_FORMAT_BF16, 1, 2);
    probe_set_replicate(&p.run, 0);
    assert_close(p.run.jump_ratio, 1, "at least 1");
    close_probed(&p);
    open_probed(&p, "vit_tiny:width=8,heads=2,depth=1,patch=2,image=4x4x1");
    int product = 0;
    while (p.graph->op[product].kind != TANDEM_OP_MATMUL) product++;
    const double depth = (double)tandem_shape_last(&p.graph->op[p.graph->op[product].input[0]].shape);
    (void)add_probed(&p, product);
    assert_close(jump_error(&p, product, TANDEM_PROBE_INPUT, 1 / depth, 1), 4, "first operand");
    assert_close(jump_error(&p, product, TANDEM_PROBE_SECOND, 1 / depth, 1), 4, "second operand");
    close_probed(&p);
    open_probed(&p, "gpt_tiny:width=8,depth=1,length=4");
    int table = 0;
    while (p.graph->op[table].kind != TANDEM_OP_EMBEDDING) table++;
    (void)add_probed(&p, table);
    assert_close(jump_error(&p, table, TANDEM_PROBE_WEIGHT, 7, 1), 4,
                 "table"); /* rows are read as they are */
    close_probed(&p);
}

/* --- Formats -------------------------------------------------------------------------------------------- */

static void cells_have_the_formats_of_their_row(void **state)
{
    enum { NONE = TANDEM_N_FORMAT };
    static const struct {
        tandem_precision precision;
        tandem_dtype amp;
        int forward, backward, result;
    } rows[] = {
        {TANDEM_PRECISION_FP32, TANDEM_F32, NONE, NONE, NONE},
        {TANDEM_PRECISION_TF32, TANDEM_F32, TANDEM_FORMAT_TF32, TANDEM_FORMAT_TF32, NONE},
        {TANDEM_PRECISION_FP16, TANDEM_F32, TANDEM_FORMAT_F16, TANDEM_FORMAT_F16, TANDEM_FORMAT_F16},
        {TANDEM_PRECISION_FP8, TANDEM_F32, TANDEM_FORMAT_E4M3, TANDEM_FORMAT_E5M2, TANDEM_FORMAT_BF16},
        {TANDEM_PRECISION_INT8, TANDEM_F32, TANDEM_FORMAT_S8, NONE, NONE},
        {TANDEM_PRECISION_INT8, TANDEM_BF16, TANDEM_FORMAT_S8, TANDEM_FORMAT_BF16, NONE},
        {TANDEM_PRECISION_INT8, TANDEM_F16, TANDEM_FORMAT_S8, TANDEM_FORMAT_F16, NONE},
    };
    probed p;
    (void)state;
    open_probed(&p, "mlp:depth=1,width=4,image=4x4x1");
    for (size_t k = 0; k < N_OF(rows); k++) {
        const int cell = tandem_estimate_cell(2, rows[k].precision, rows[k].amp);
        const probe_cell_formats formats = probe_formats_of_cell(&p.run, cell);
        assert_int_equal(formats.of[TANDEM_PROBE_INPUT], rows[k].forward);
        assert_int_equal(formats.of[TANDEM_PROBE_SECOND], rows[k].forward);
        assert_int_equal(formats.of[TANDEM_PROBE_WEIGHT], rows[k].forward);
        assert_int_equal(formats.of[TANDEM_PROBE_GRADIENT], rows[k].backward);
        assert_int_equal(formats.of[TANDEM_PROBE_RESULT], rows[k].result);
    }
    close_probed(&p);
}

/* Only what an estimated cell asks for; what picks numbers rounds nothing; fc1's relu is after fc1, none
 * after the head. */
static void operators_are_those_that_round(void **state)
{
    static const char *const asked[] = {"fc1", "fc1.bias", "head"};
    probe_operator *const all = calloc(64, sizeof *all);
    unsigned char is_before[64] = {0};
    probed p;
    (void)state;
    open_probed(&p, "mlp:depth=1,width=4,image=4x4x1");
    assert_true(all && p.graph->n_op <= 64);
    p.run.operator= all;
    p.estimate.is_estimated[tandem_estimate_cell(op_of(p.graph, "fc1"), TANDEM_PRECISION_BF16, TANDEM_F32)] =
        1;
    probe_open_operators(&p.run);
    assert_int_equal(p.run.n_op, 3);
    p.run.n_op = 0;
    p.estimate
        .is_estimated[tandem_estimate_cell(op_of(p.graph, "fc1"), TANDEM_PRECISION_INT8_FULL, TANDEM_F32)] =
        1;
    probe_open_operators(&p.run);
    probe_find_jumps(&p.run, is_before);
    for (int k = 0; k < 3; k++) {
        const probe_operator *of = &all[k];
        const unsigned bf16 = 1U << TANDEM_FORMAT_BF16, both = bf16 | 1U << TANDEM_FORMAT_S8;
        assert_string_equal(p.graph->op[of->op].name, asked[k]);
        assert_int_equal(of->is_before_jump, k < 2);
        assert_int_equal(of->formats[TANDEM_PROBE_INPUT], k == 0 ? both : 0);
        assert_int_equal(of->formats[TANDEM_PROBE_GRADIENT], k == 0 ? both : 0);
        assert_int_equal(of->formats[TANDEM_PROBE_RESULT], k < 2 ? bf16 : 0);
        assert_int_equal(of->kept[KEPT_X].is_costly, k == 0); /* an image has no gradient */
        assert_int_equal(of->kept[KEPT_DX].is_costly, k == 0);
        const tandem_task *task = &p.step->task[of->gradient_task];
        assert_true(of->gradient_task >= 0 && task->active);
        assert_true(task->read[0] == tandem_value_gradient(p.step, of->op, TANDEM_F32) ||
                    task->read[1] == tandem_value_gradient(p.step, of->op, TANDEM_F32));
    }
    free(all);
    close_probed(&p);
}

/* --- What is kept --------------------------------------------------------------------------------------- */

static void few_thousand_numbers_are_kept(void **state)
{
    const probe_kept_tensor any = {0}, costly = {.is_costly = 1};
    (void)state;
    assert_int_equal(probe_count_kept(&any, 8, 8 * 10), 8);
    assert_int_equal(probe_count_kept(&any, 8, 8 * 1024), 4);
    assert_int_equal(probe_count_kept(&any, 8, 8 * 1025), 3);
    assert_int_equal(probe_count_kept(&any, 8, 8 * 5000), 2);
    assert_int_equal(probe_count_kept(&costly, 8, 8 * 10), 2);
    assert_int_equal(probe_count_kept(&costly, 1, 10), 1);
}

static void kept_numbers_take_spare_memory_first(void **state)
{
    enum { BIG = ROOM / 4 * 3 };
    static float x[BATCH * BIG];
    static char spare[192];
    probed p;
    (void)state;
    open_probed(&p, "mlp:depth=1,width=4,image=4x4x1");
    p.run.spare = spare;
    p.run.n_spare = sizeof spare;
    for (int i = 0; i < BATCH * BIG; i++) x[i] = (float)i;
    probe_kept_tensor *kept = p.of[0].kept;
    probe_keep_values(&p.run, &kept[0], x, 2 * BATCH, 0); /* one line of 64 bytes, then two */
    probe_keep_values(&p.run, &kept[1], x, 3 * BATCH, 0);
    assert_true((char *)kept[0].x == spare && (char *)kept[1].x == spare + 64);
    assert_true(p.run.n_spare == 0 && p.run.spare == spare + 192);
    probe_keep_values(&p.run, &kept[2], x, BATCH, 0);
    assert_true(kept[2].is_own && kept[2].n == BATCH && kept[2].n_sample == BATCH);
    const float *const before = kept[1].x;
    probe_keep_values(&p.run, &kept[1], x, 3 * BATCH, 0); /* what fits stays where it is */
    assert_true(kept[1].x == before && memcmp(kept[1].x, x, 3 * BATCH * sizeof *x) == 0);
    assert_int_equal(p.run.room_size, ROOM);
    probe_keep_values(&p.run, &kept[1], x, (int64_t)BATCH * BIG, 0); /* two samples, and larger rooms */
    assert_true(kept[1].is_own && kept[1].n_sample == 2 && kept[1].n == 2 * BIG);
    assert_int_equal(p.run.room_size, 2 * BIG);
    assert_memory_equal(kept[1].x, x, 2 * BIG * sizeof *x);
    assert_null(probe_keep_samples(&p.run, &kept[0], BATCH + 1)); /* no samples */
    assert_true(kept[0].n == 0 && p.run.status == TANDEM_OK);
    assert_null(probe_keep_samples(&p.run, &kept[0], 0));
    close_probed(&p);
}

/* The largest is after the two samples that are kept. */
static void ranges_are_those_of_the_last_batches(void **state)
{
    static const float largest[] = {9, 5, 3, 4, 1, 1, 1, 1, 1, 1, 1}, own[] = {9, 9, 5, 4, 4, 1, 1},
                       wide[] = {9, 9, 9, 9, 9, 9, 9, 9, 5, 4, 4};
    static float x[BATCH * 5000];
    probed p;
    (void)state;
    open_probed(&p, "mlp:depth=1,width=4,image=4x4x1");
    p.point.n_range_batch = 2;
    for (int b = 0; b < (int)N_OF(largest); b++) {
        x[N_OF(x) - 1] = -largest[b];
        p.run.n_batch_seen = b;
        probe_keep_values(&p.run, &p.of[0].kept[0], x, N_OF(x), 1);
        if (b < (int)N_OF(own)) assert_true(p.of[0].kept[0].amax[PROBE_OWN_RANGE] == own[b]);
        assert_true(p.of[0].kept[0].amax[PROBE_WIDE_RANGE] == wide[b]);
    }
    close_probed(&p);
}

/* --- Noise ---------------------------------------------------------------------------------------------- */

/* Two of eight samples, of two numbers each; D = 1, 2, 3, 4 over a step of ±½, in the second batch. */
static float four[] = {0.5F, 1.25F, 2, -0.5F};
static const float four_above[] = {2, 2, 3, 4}, four_below[] = {1, 0, 0, 0};

static probe_operator *add_four(probed *p, int part, tandem_format f, float own, float wide, float range)
{
    const probe_kept_tensor x = {.x = four, .n = 4, .n_sample = 2, .amax = {own, wide}};
    probe_operator *of = &p->of[0];
    *of = (probe_operator){.op = op_of(p->graph, "fc1"), .is_adjustable = 1, .is_before_jump = 1};
    of->formats[part] = 1U << f;
    p->run.batch = 1;
    p->run.step[1] = 0.5;
    probe_add_noise(&p->run, of, part, &x, four_above, four_below, range);
    require_ok(p->run.status, &p->run.error);
    return of;
}

/* In steps of 1 the variances are f(1 − f) = ¼, 3/16, 0, ¼: Σ v·D² = 5, of a quarter of the samples. In steps
 * of 2 they are ¾, 15/16, 0, ¾: 16.5. */
static void drawn_noise_is_that_of_all_samples(void **state)
{
    probed p;
    (void)state;
    open_probed(&p, "mlp:depth=1,width=4,image=4x4x1");
    for (int is_estimated = 0; is_estimated < 2; is_estimated++) {
        p.estimate.range_batch = is_estimated;
        const probe_operator *of = add_four(&p, TANDEM_PROBE_INPUT, TANDEM_FORMAT_S8, 127, 254, 0);
        assert_close(of->sums[PROBE_OWN_RANGE].noise[TANDEM_PROBE_INPUT][TANDEM_FORMAT_S8][1], 20, "own");
        assert_close(of->sums[PROBE_OWN_RANGE].noise[TANDEM_PROBE_INPUT][TANDEM_FORMAT_S8][0], 0,
                     "the other batch");
        assert_close(of->sums[PROBE_WIDE_RANGE].noise[TANDEM_PROBE_INPUT][TANDEM_FORMAT_S8][1],
                     is_estimated ? 66 : 20, "wide");
        assert_close(of->sums[PROBE_OWN_RANGE].error_square[TANDEM_PROBE_INPUT][TANDEM_FORMAT_S8], 0.6875 / 8,
                     "errors");
        assert_close(of->sums[PROBE_WIDE_RANGE].error_square[TANDEM_PROBE_INPUT][TANDEM_FORMAT_S8],
                     is_estimated ? 2.4375 / 8 : 0.6875 / 8, "errors, wide");
        assert_close(of->sums[PROBE_OWN_RANGE].mean_square[TANDEM_PROBE_INPUT], 6.0625 / 8, "mean square");
    }
    const probe_kept_tensor x = {.x = four, .n = 4, .n_sample = 2, .amax = {127, 127}};
    probe_add_noise(&p.run, &p.of[0], TANDEM_PROBE_INPUT, &x, four_above, four_below, 0); /* one batch more */
    assert_close(p.of[0].sums[PROBE_WIDE_RANGE].error_square[TANDEM_PROBE_INPUT][TANDEM_FORMAT_S8], 3.125 / 8,
                 "both");
    const probe_operator *known = add_four(&p, TANDEM_PROBE_INPUT, TANDEM_FORMAT_S8, 1, 2, 127);
    assert_close(known->sums[PROBE_OWN_RANGE].noise[TANDEM_PROBE_INPUT][TANDEM_FORMAT_S8][1], 20, "known");
    assert_close(known->sums[PROBE_WIDE_RANGE].noise[TANDEM_PROBE_INPUT][TANDEM_FORMAT_S8][1], 20,
                 "known, wide");
    close_probed(&p);
}

/* Errors −½, −¼, 0, ½: the samples add −1 and 2, of variance 4½, times 8 samples. */
static void nearest_noise_is_a_variance_over_samples(void **state)
{
    probed p;
    (void)state;
    open_probed(&p, "mlp:depth=1,width=4,image=4x4x1");
    const tandem_format f = TANDEM_FORMAT_S8_NEAREST;
    const probe_operator *of = add_four(&p, TANDEM_PROBE_INPUT, f, 127, 127, 0);
    assert_close(of->sums[PROBE_OWN_RANGE].noise[TANDEM_PROBE_INPUT][f][1], 36, "input");
    assert_close(of->sums[PROBE_OWN_RANGE].error_square[TANDEM_PROBE_INPUT][f], 0.5625 / 8, "errors");
    of = add_four(&p, TANDEM_PROBE_GRADIENT, f, 127, 127, 0); /* makes no jumps: no squares are read */
    assert_close(of->sums[PROBE_OWN_RANGE].noise[TANDEM_PROBE_GRADIENT][f][1], 36, "gradient");
    assert_close(of->sums[PROBE_OWN_RANGE].error_square[TANDEM_PROBE_GRADIENT][f], 0, "errors of a gradient");
    assert_close(of->sums[PROBE_OWN_RANGE].mean_square[TANDEM_PROBE_GRADIENT], 0,
                 "mean square of a gradient");
    of = add_four(&p, TANDEM_PROBE_RESULT, f, 127, 127, 0);
    assert_close(of->sums[PROBE_OWN_RANGE].noise[TANDEM_PROBE_RESULT][f][1], 36, "result");
    assert_close(of->sums[PROBE_OWN_RANGE].mean_square[TANDEM_PROBE_RESULT], 0, "mean square of a result");
    close_probed(&p);
}

/* Whether f16 keeps a small number beside a largest one. f16 has steps of 2^-24; scales end at 2^16. */
static int keeps_number(probed *p, int part, float amax, float small)
{
    float x[] = {amax, small}, zero[] = {0, 0}, above[] = {1, 1};
    const probe_kept_tensor kept = {.x = x, .n = 2, .n_sample = 2, .amax = {amax, amax}};
    probe_operator *of = &p->of[0];
    *of = (probe_operator){.op = op_of(p->graph, "fc1"), .is_adjustable = 1};
    of->formats[part] = 1U << TANDEM_FORMAT_F16;
    probe_add_noise(&p->run, of, part, &kept, above, zero, 0);
    require_ok(p->run.status, &p->run.error);
    return of->sums[PROBE_OWN_RANGE].noise[part][TANDEM_FORMAT_F16][0] == 0;
}

static void gradients_in_f16_have_a_loss_scale(void **state)
{
    probed p;
    (void)state;
    open_probed(&p, "mlp:depth=1,width=4,image=4x4x1");
    assert_true(keeps_number(&p, TANDEM_PROBE_INPUT, 1, 0x1p-24F) &&
                !keeps_number(&p, TANDEM_PROBE_INPUT, 1, 0x1p-25F));
    assert_true(keeps_number(&p, TANDEM_PROBE_GRADIENT, 1, 0x1p-39F)); /* 2^15: at 2^16, 1 overflows */
    assert_true(!keeps_number(&p, TANDEM_PROBE_GRADIENT, 1, 0x1p-40F));
    assert_true(keeps_number(&p, TANDEM_PROBE_GRADIENT, 0x1p-10F, 0x1p-40F));
    assert_true(!keeps_number(&p, TANDEM_PROBE_GRADIENT, 0x1p-10F, 0x1p-41F));
    close_probed(&p);
}

/* y = 1 + 2^-9 rounds to 1 in bf16, and so does the sum x = 1 + 2^-8 that reads it: 2^-9 of the sum's
 * error is not its own. Of eight samples the first of two errs, by u: 8·(u² − u²/2). */
static void check_read_errors(const char *model, tandem_op_kind kind)
{
    float y[] = {1 + 0x1p-9F, 1}, x[] = {1 + 0x1p-8F, 1}, zero[] = {0, 0}, above[] = {1, 1};
    const tandem_format f = TANDEM_FORMAT_BF16;
    probed p;
    open_probed(&p, model);
    int op = 0;
    while (p.graph->op[op].kind != kind) op++;
    probe_operator *read = add_probed(&p, p.graph->view[p.graph->op[op].input[0]]), *sum = add_probed(&p, op);
    p.run.step[0] = 0.5;
    read->formats[TANDEM_PROBE_RESULT] = sum->formats[TANDEM_PROBE_RESULT] = 1U << f;
    read->kept[KEPT_Y] = (probe_kept_tensor){.x = y, .n = 2, .n_sample = 2, .amax = {1, 1}};
    sum->kept[KEPT_Y] = (probe_kept_tensor){.x = x, .n = 2, .n_sample = 2, .amax = {1, 1}};
    probe_add_noise(&p.run, sum, TANDEM_PROBE_RESULT, &sum->kept[KEPT_Y], above, zero, 0);
    assert_close(1e6 * sum->sums[PROBE_OWN_RANGE].noise[TANDEM_PROBE_RESULT][f][0], 1e6 * 4 * 0x1p-18,
                 "after the read");
    read->formats[TANDEM_PROBE_RESULT] = 0; /* in f32 it errs by nothing */
    probe_add_noise(&p.run, sum, TANDEM_PROBE_RESULT, &sum->kept[KEPT_Y], above, zero, 0);
    assert_close(1e6 * sum->sums[PROBE_OWN_RANGE].noise[TANDEM_PROBE_RESULT][f][0], 1e6 * 4 * 0x1p-16,
                 "alone");
    close_probed(&p);
}

static void a_sum_rounds_rounded_numbers(void **state)
{
    (void)state;
    check_read_errors("mlp:depth=1,width=4,image=4x4x1", TANDEM_OP_BIAS);
    check_read_errors("vit_tiny:width=8,heads=2,depth=1,patch=2,image=4x4x1", TANDEM_OP_ADD);
}

/* Two of six numbers: variances ¼, 3/16; D = 1, 2 and 3, 4. */
static void weights_are_rounded_once_for_both_batches(void **state)
{
    float w[] = {0.5F, 1.25F}, first[] = {1, 2}, second[] = {3, 4};
    probed p;
    (void)state;
    open_probed(&p, "mlp:depth=1,width=4,image=4x4x1");
    probe_operator *of = add_probed(&p, op_of(p.graph, "fc1"));
    of->formats[TANDEM_PROBE_WEIGHT] = 1U << TANDEM_FORMAT_S8 | 1U << TANDEM_FORMAT_S8_NEAREST;
    of->n_weight = 6;
    of->n_kept_weight = 2;
    of->w = w;
    of->difference[0] = first;
    of->difference[1] = second;
    of->amax = 127;
    probe_add_weight_noise(&p.run, of);
    for (int range = 0; range < N_PROBE_RANGE; range++) {
        const double *noise = of->sums[range].noise[TANDEM_PROBE_WEIGHT][TANDEM_FORMAT_S8],
                     *nearest = of->sums[range].noise[TANDEM_PROBE_WEIGHT][TANDEM_FORMAT_S8_NEAREST];
        assert_close(noise[0], 3 * (0.25 + 0.75), "first");
        assert_close(noise[1], 3 * (2.25 + 3), "second");
        assert_close(nearest[0], 3 * (0.25 + 0.25), "first, nearest"); /* squares ¼, 1/16 */
        assert_close(nearest[1], 3 * (2.25 + 1), "second, nearest");
        assert_close(of->sums[range].error_square[TANDEM_PROBE_WEIGHT][TANDEM_FORMAT_S8], 0.4375 / 2,
                     "errors");
    }
    assert_close(of->sums[PROBE_OWN_RANGE].cross[TANDEM_FORMAT_S8], 3 * (0.75 + 1.5), "cross");
    assert_close(of->sums[PROBE_OWN_RANGE].mean_square[TANDEM_PROBE_WEIGHT], 1.8125 / 2, "mean square");
    close_probed(&p);
}

/* Errors of x + 3·(Q(x) − x) are three times those of Q(x): all squares are nine times theirs. */
static void magnified_errors_have_their_square_in_the_noise(void **state)
{
    const tandem_format formats[] = {TANDEM_FORMAT_S8, TANDEM_FORMAT_S8_NEAREST};
    const double noise[] = {9 * 20, 9 * 36}, square[] = {9 * 0.6875 / 8, 9 * 0.5625 / 8};
    float w[] = {0.5F, 1.25F}, first[] = {1, 2}, second[] = {3, 4};
    probed p;
    (void)state;
    open_probed(&p, "mlp:depth=1,width=4,image=4x4x1");
    p.emulation.error_scale = 3;
    for (int k = 0; k < 2; k++) {
        const probe_operator *of = add_four(&p, TANDEM_PROBE_INPUT, formats[k], 127, 127, 0);
        assert_close(of->sums[PROBE_OWN_RANGE].noise[TANDEM_PROBE_INPUT][formats[k]][1], noise[k], "input");
        assert_close(of->sums[PROBE_OWN_RANGE].error_square[TANDEM_PROBE_INPUT][formats[k]], square[k],
                     "errors");
    }
    probe_operator *of = add_probed(&p, op_of(p.graph, "fc1"));
    *of = (probe_operator){.op = of->op, .n_weight = 6, .n_kept_weight = 2, .w = w, .amax = 127};
    of->formats[TANDEM_PROBE_WEIGHT] = 1U << TANDEM_FORMAT_S8 | 1U << TANDEM_FORMAT_S8_NEAREST;
    of->difference[0] = first;
    of->difference[1] = second;
    probe_add_weight_noise(&p.run, of);
    assert_close(of->sums[PROBE_OWN_RANGE].noise[TANDEM_PROBE_WEIGHT][TANDEM_FORMAT_S8][0], 9 * 3 * 1,
                 "weight");
    assert_close(of->sums[PROBE_OWN_RANGE].noise[TANDEM_PROBE_WEIGHT][TANDEM_FORMAT_S8_NEAREST][0],
                 9 * 3 * 0.5, "weight, nearest");
    assert_close(of->sums[PROBE_OWN_RANGE].cross[TANDEM_FORMAT_S8], 9 * 3 * 2.25, "cross");
    close_probed(&p);
}

/* --- What tasks show ------------------------------------------------------------------------------------ */

/* A gradient of ones for the outputs, weights 1, 2, 3, … */
static float ones[4096], counted[4096];
static const void *shown_value(const tandem_executor *executor, int value, int gradient, float *scale)
{
    (void)executor, (void)gradient, (void)scale;
    return value < 0 ? counted : ones;
}
static const tandem_backend_api shown_backend = {.executor_value = shown_value};

/* The weight gradient of a product, after which that of an image is computed, since no task does. */
static void see_product(probed *p, const char *name)
{
    for (int i = 0; i < (int)N_OF(ones); i++) {
        ones[i] = 1;
        counted[i] = (float)(i + 1);
    }
    probe_operator *of = add_probed(p, op_of(p->graph, name));
    of->kept[KEPT_X].is_costly = of->kept[KEPT_DX].is_costly = 1;
    p->point.backend = &shown_backend;
    p->run.place = PROBE_ABOVE;
    int task = 0;
    while (p->step->task[task].kind != TANDEM_TASK_WGRAD || p->step->task[task].op != of->op) task++;
    probe_see_task(&p->run, NULL, task);
    require_ok(p->run.status, &p->run.error);
}

/* Weights [16 × 4]: row l has 4l + 1 … 4l + 4. Transposed, [4 × 16], column l has l + 1, l + 17, l + 33, and
 * l + 49. */
static void an_image_gets_the_gradient_of_a_linear(void **state)
{
    (void)state;
    for (int transposed = 0; transposed < 2; transposed++) {
        probed p;
        open_probed(&p, "mlp:depth=1,width=4,image=4x4x1");
        p.graph->op[op_of(p.graph, "fc1")].transpose_b = transposed;
        see_product(&p, "fc1");
        const probe_kept_tensor *dx = &p.of[0].kept[KEPT_DX];
        assert_true(dx->n_sample == 2 && dx->n == 32 && p.of[0].kept[KEPT_G].n == BATCH * 4);
        for (int i = 0; i < 32; i++)
            assert_true(dx->x[i] == (float)(transposed ? 4 * (i % 16) + 100 : 16 * (i % 16) + 10));
        close_probed(&p);
    }
    probed p;
    open_probed(&p, "mlp:depth=1,width=4,image=4x4x1");
    see_product(&p, "head"); /* whose input has a gradient */
    assert_true(p.of[0].kept[KEPT_DX].n == 0 && p.of[0].kept[KEPT_G].n > 0);
    close_probed(&p);
}

/* Of 5×5 with 2 channels, by a kernel of 3×3 to 3 channels, in steps of 2, with one number of padding. Row
 * a of the weights, of place and channel, sums to 9a + 6. */
static void an_image_gets_the_gradient_of_a_convolution(void **state)
{
    const int64_t flat[2] = {BATCH, 27};
    tandem_builder *b = NULL;
    tandem_graph *graph = NULL;
    tandem_error error = {0};
    probed p;
    (void)state;
    require_ok(tandem_builder_open(&b, BATCH, &error), &error);
    const int image = tandem_build_images(b, "image", 5, 5, 2), label = tandem_build_labels(b, "label", 1),
              y = tandem_build_conv2d(b, "conv", image, 3, 3, 2, 1),
              logits = tandem_build_linear(b, "head", tandem_build_reshape(b, "flat", y, 2, flat), 10, 1);
    (void)tandem_build_cross_entropy(b, "loss", logits, label);
    const tandem_optimizer_options optimizer = {.kind = TANDEM_SGD, .rate = 1};
    require_ok(tandem_builder_finish(b, "strided", &optimizer, &graph, &error), &error);
    open_probed_graph(&p, graph);
    see_product(&p, "conv");
    const probe_kept_tensor *dx = &p.of[0].kept[KEPT_DX];
    assert_int_equal(dx->n, 2 * 50);
    for (int i = 0; i < dx->n; i++) {
        const int row = i / 10 % 5, column = i / 2 % 5, channel = i % 2;
        float expected = 0; /* output (o, q) reads image (2o − 1 + r, 2q − 1 + s) by kernel place (r, s) */
        for (int o = 0; o < 3; o++)
            for (int q = 0; q < 3; q++) {
                const int r = row + 1 - 2 * o, s = column + 1 - 2 * q;
                if (r < 0 || r > 2 || s < 0 || s > 2) continue;
                expected += (float)(9 * ((r * 3 + s) * 2 + channel) + 6);
            }
        if (dx->x[i] != expected) fail_msg("%d: %g, expected %g", i, (double)dx->x[i], (double)expected);
    }
    close_probed(&p);
    tandem_builder_close(b);
}

/* y is 3 above and 1 below, over a step of ½: a rate of 4. What is kept of y is its middle. */
static void a_forward_task_shows_rate_and_result(void **state)
{
    float y[8], g[8];
    (void)state;
    for (int is_before = 0; is_before < 2; is_before++) {
        probed p;
        open_probed(&p, "mlp:depth=1,width=4,image=4x4x1");
        probe_operator *of = add_probed(&p, op_of(p.graph, "fc1"));
        for (int i = 0; i < 8; i++) {
            y[i] = 3;
            g[i] = ones[i] = 1;
        }
        of->is_before_jump = is_before;
        of->kept[KEPT_Y] = (probe_kept_tensor){.x = y, .n = 8, .n_sample = 2};
        of->kept[KEPT_G] = (probe_kept_tensor){.x = g, .n = 8, .n_sample = 2};
        p.point.backend = &shown_backend;
        p.run.place = PROBE_BELOW;
        int task = 0;
        while (p.step->task[task].kind != TANDEM_TASK_FORWARD || p.step->task[task].op != of->op) task++;
        probe_see_task(&p.run, NULL, task);
        assert_close(of->sums[PROBE_OWN_RANGE].rate_square, is_before ? 8 : 0, "rate");
        for (int i = 0; i < 8; i++) assert_true(y[i] == 2);
        close_probed(&p);
    }
}

/* The gradient of a bias is that which its first reader sees. */
static void a_dependent_gradient_is_seen_at_its_task(void **state)
{
    probed p;
    (void)state;
    open_probed(&p, "mlp:depth=1,width=4,image=4x4x1");
    probe_operator *bias = add_probed(&p, op_of(p.graph, "fc1.bias"));
    p.point.backend = &shown_backend;
    bias->gradient_task = p.step->n_task - 1;
    probe_see_task(&p.run, NULL, 0);
    assert_int_equal(bias->kept[KEPT_G].n, 0);
    probe_see_task(&p.run, NULL, bias->gradient_task);
    assert_int_equal(bias->kept[KEPT_G].n, 4 * BATCH);
    close_probed(&p);
}

/* Attention's weights, of a softmax, have the known range 1: x = 0.5/127 has the variance ¼ of a squared
 * step. The other operand has its own range, 2, where ½ a step is 1/127. D = −2. */
static void operands_have_their_ranges(void **state)
{
    enum { N = 4 };
    float x[N], other[N], zero[N] = {0};
    probed p;
    (void)state;
    open_probed(&p, "vit_tiny:width=8,heads=2,depth=1,patch=2,image=4x4x1");
    int op = 0, task = 0;
    while (p.graph->op[op].kind != TANDEM_OP_MATMUL ||
           p.graph->op[p.graph->view[p.graph->op[op].input[0]]].kind != TANDEM_OP_SOFTMAX)
        op++;
    probe_operator *of = add_probed(&p, op);
    for (int i = 0; i < N; i++) {
        x[i] = 0.5F / 127;
        other[i] = 1.0F / 127;
        ones[i] = 1;
    }
    of->formats[TANDEM_PROBE_INPUT] = of->formats[TANDEM_PROBE_SECOND] = 1U << TANDEM_FORMAT_S8;
    of->kept[KEPT_X] = (probe_kept_tensor){.x = x, .n = N, .n_sample = 2, .amax = {0.5F / 127, 0.5F / 127}};
    of->kept[KEPT_X2] = (probe_kept_tensor){.x = other, .n = N, .n_sample = 2, .amax = {2, 2}};
    of->kept[KEPT_DX].x = of->kept[KEPT_DX2].x = zero;
    p.point.backend = &shown_backend;
    p.run.place = PROBE_BELOW;
    for (; task < p.step->n_task; task++)
        if (p.step->task[task].op == op && p.step->task[task].kind != TANDEM_TASK_FORWARD)
            probe_see_task(&p.run, NULL, task);
    require_ok(p.run.status, &p.run.error);
    const double expected = N * 4 * 0.25 / (127 * 127) * BATCH / 2;
    const double input = of->sums[PROBE_OWN_RANGE].noise[TANDEM_PROBE_INPUT][TANDEM_FORMAT_S8][0],
                 second = of->sums[PROBE_OWN_RANGE].noise[TANDEM_PROBE_SECOND][TANDEM_FORMAT_S8][0];
    if (!(fabs(input / expected - 1) < 1e-3)) fail_msg("input: %g, expected %g", input, expected);
    if (!(fabs(second / (4 * expected) - 1) < 1e-3))
        fail_msg("second: %g, expected %g", second, 4 * expected);
    close_probed(&p);
}

/* Every second number; ±¼ is half a step: what differs between the passes, over ½. */
static void weight_gradients_are_differences_over_the_step(void **state)
{
    float above[2] = {0}, first[2] = {0}, second[2] = {0};
    probed p;
    (void)state;
    open_probed(&p, "mlp:depth=1,width=4,image=4x4x1");
    probe_operator *of = add_probed(&p, op_of(p.graph, "fc1"));
    p.point.backend = &shown_backend;
    of->stride = 2;
    of->n_kept_weight = 2;
    of->w_above = above;
    of->difference[0] = first;
    of->difference[1] = second;
    counted[0] = 5, counted[1] = 99, counted[2] = 7;
    p.run.place = PROBE_ABOVE;
    probe_see_weight_gradients(&p.run);
    assert_true(above[0] == 5 && above[1] == 7);
    counted[0] = 4, counted[2] = 5;
    p.run.place = PROBE_BELOW;
    probe_see_weight_gradients(&p.run);
    assert_true(first[0] == 2 && first[1] == 4 && second[0] == 0);
    p.run.batch = 1; /* ±1 */
    probe_see_weight_gradients(&p.run);
    assert_true(second[0] == 0.5F && second[1] == 1 && first[0] == 2);
    close_probed(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_error_is_the_sum_of_its_parts),
        cmocka_unit_test(a_narrow_result_rounds_what_follows),
        cmocka_unit_test(noise_of_jumps_is_that_of_the_rounding),
        cmocka_unit_test(cells_have_the_formats_of_their_row),
        cmocka_unit_test(operators_are_those_that_round),
        cmocka_unit_test(few_thousand_numbers_are_kept),
        cmocka_unit_test(kept_numbers_take_spare_memory_first),
        cmocka_unit_test(ranges_are_those_of_the_last_batches),
        cmocka_unit_test(drawn_noise_is_that_of_all_samples),
        cmocka_unit_test(nearest_noise_is_a_variance_over_samples),
        cmocka_unit_test(gradients_in_f16_have_a_loss_scale),
        cmocka_unit_test(a_sum_rounds_rounded_numbers),
        cmocka_unit_test(weights_are_rounded_once_for_both_batches),
        cmocka_unit_test(magnified_errors_have_their_square_in_the_noise),
        cmocka_unit_test(an_image_gets_the_gradient_of_a_linear),
        cmocka_unit_test(an_image_gets_the_gradient_of_a_convolution),
        cmocka_unit_test(a_forward_task_shows_rate_and_result),
        cmocka_unit_test(a_dependent_gradient_is_seen_at_its_task),
        cmocka_unit_test(operands_have_their_ranges),
        cmocka_unit_test(weight_gradients_are_differences_over_the_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
