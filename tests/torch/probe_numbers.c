/* folder: runtime */
/* What `tandem sensitivity` makes of tensors that a file has: tests/python/estimate.py gives the same to
 * tandem.sensitivity. usage: probe_numbers, for the sizes of parameters; probe_numbers FILE, for the numbers,
 * each a line. The file is f32: of all parameters the weights, v̂, and of each replicate, batch and pass a
 * gradient; then the weight of fc1, and of each replicate and batch what take_batch() reads. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/ir/build.h"
#include "runtime/estimate/probe_loops.h"
#include "runtime/estimate/probe_run.h"

enum { BATCH = 8, REPLICATES = 3, IN = 16, OUT = 4, SEED = 5, POINT = 7 };
static const char *const small_model = "mlp:depth=1,width=4,image=4x4x1",
                         *const large_model = "mlp:depth=1,width=1100,image=4x4x1";

static void end_with(const char *what)
{
    (void)fprintf(stderr, "probe_numbers: %s\n", what);
    exit(70);
}

static void require(tandem_status status, const tandem_error *error)
{
    if (status != TANDEM_OK) end_with(error->text);
}

static void print_number(double number) { (void)printf("%a\n", number); }

/* An opened model, and where the file is read. */
typedef struct opened_numbers {
    FILE *file;
    tandem_graph *graph;
    tandem_step *step;
    tandem_estimate estimate;
} opened_numbers;

static void read_numbers(FILE *file, float *to, int64_t n)
{
    if (fread(to, sizeof *to, (size_t)n, file) != (size_t)n) end_with("the file is too short");
}

static opened_numbers open_model(const char *model, FILE *file)
{
    opened_numbers o = {.file = file};
    tandem_error error = {0};
    require(tandem_graph_open(&o.graph, model, BATCH, &error), &error);
    require(tandem_step_open(&o.step, o.graph, TANDEM_F32, 0, &error), &error);
    require(tandem_estimate_open(&o.estimate, o.graph->n_op, 1, REPLICATES, &error), &error);
    o.estimate.batch = BATCH;
    return o;
}

static void close_model(opened_numbers *o)
{
    tandem_estimate_close(&o->estimate);
    tandem_step_close(o->step);
    tandem_graph_close(o->graph);
}

/* --- Errors of cells ------------------------------------------------------------------------------------ */

/* Asks for every format of the operator. */
static void ask_all(probe_run *run, probe_operator *of)
{
    const int each = TANDEM_N_PRECISION * TANDEM_N_AMP_DTYPE;
    for (int cell = of->op * each; cell < (of->op + 1) * each; cell++) {
        const tandem_precision p = (tandem_precision)(cell / TANDEM_N_AMP_DTYPE % TANDEM_N_PRECISION);
        const probe_cell_formats formats = probe_formats_of_cell(run, cell);
        if (p == TANDEM_PRECISION_FP32 || (cell % TANDEM_N_AMP_DTYPE && !tandem_precision_has_amp(p)))
            continue;
        run->point->estimate->is_estimated[cell] = 1;
        for (int part = 0; part < TANDEM_N_PROBE_PART; part++)
            if (formats.of[part] != TANDEM_N_FORMAT) of->formats[part] |= 1U << formats.of[part];
    }
}

/* Input, its gradient above and below, and so the output, its gradient, and the weight's gradient. */
static void take_batch(probe_run *run, probe_operator *of, FILE *file)
{
    float x[BATCH * IN], dx[2][BATCH * IN], y[2][BATCH * OUT], g[2][BATCH * OUT], dw[2][IN * OUT];
    read_numbers(file, x, BATCH * IN);
    read_numbers(file, dx[0], 2 * BATCH * IN);
    read_numbers(file, y[0], 2 * BATCH * OUT);
    read_numbers(file, g[0], 2 * BATCH * OUT);
    read_numbers(file, dw[0], 2 * IN * OUT);
    probe_keep_values(run, &of->kept[KEPT_X], x, BATCH * IN, 1);
    probe_keep_values(run, &of->kept[KEPT_Y], y[0], BATCH * OUT, 0);
    probe_keep_values(run, &of->kept[KEPT_G], g[0], BATCH * OUT, 1);
    probe_add_noise(run, of, TANDEM_PROBE_INPUT, &of->kept[KEPT_X], dx[0], dx[1], 0);
    probe_add_noise(run, of, TANDEM_PROBE_GRADIENT, &of->kept[KEPT_G], y[0], y[1], 0);
    tandem_probe_add_rate(&of->sums[PROBE_OWN_RANGE], run->difference, BATCH * OUT);
    tandem_probe_middle(of->kept[KEPT_Y].x, y[1], BATCH * OUT);
    probe_add_noise(run, of, TANDEM_PROBE_RESULT, &of->kept[KEPT_Y], g[0], g[1], 0);
    tandem_probe_difference(of->difference[run->batch], dw[0], dw[1],
                            (float)(1 / (2 * run->step[run->batch])), IN * OUT);
    run->n_batch_seen++;
}

static void print_errors(FILE *file, const double step[2])
{
    opened_numbers o = open_model(small_model, file);
    const tandem_emulation emulation = tandem_emulation_make(0);
    const probe_point point = {
        .step = o.step, .estimate = &o.estimate, .emulation = &emulation, .n_range_batch = 1, .n_rank = 1};
    float w[IN * OUT], differences[2][IN * OUT];
    double log_ratio[TANDEM_N_PROBE_PART * TANDEM_N_FORMAT];
    probe_operator of = {
        .is_adjustable = 1, .is_before_jump = 1, .n_weight = IN * OUT, .n_kept_weight = IN * OUT};
    probe_run run = {
        .point = &point, .operator= & of, .n_op = 1, .log_ratio = log_ratio, .step = {step[0], step[1]}};
    tandem_error error = {0};
    while (strcmp(o.graph->op[of.op].name, "fc1") != 0) of.op++;
    require(tandem_step_open(&run.plan, o.graph, TANDEM_F32, 0, &error), &error);
    probe_open_rooms(&run, BATCH * IN);
    read_numbers(file, w, IN * OUT);
    of.w = w;
    of.amax = probe_amax(w, IN * OUT);
    for (int b = 0; b < 2; b++) of.difference[b] = differences[b];
    ask_all(&run, &of);
    for (int r = 0; r < REPLICATES; r++) {
        probe_clear_sums(&run, &of);
        for (run.batch = 0; run.batch < 2; run.batch++) take_batch(&run, &of, file);
        probe_add_weight_noise(&run, &of);
        require(run.status, &run.error);
        probe_set_replicate(&run, r);
    }
    for (int cell = 0; cell < o.graph->n_op * TANDEM_N_PRECISION * TANDEM_N_AMP_DTYPE; cell++)
        for (int r = 0; r < REPLICATES && o.estimate.is_estimated[cell]; r++) {
            print_number(tandem_estimate_errors(&o.estimate, 0, cell)[r].total);
            print_number(tandem_estimate_errors(&o.estimate, 0, cell)[r].shared);
        }
    for (int i = 0; i < N_KEPT; i++) free(of.kept[i].x);
    probe_close_rooms(&run);
    tandem_step_close(run.plan);
    close_model(&o);
}

/* --- Directions and gradients --------------------------------------------------------------------------- */

/* As they lie in the arrays of a step. */
static float *read_parameters(const opened_numbers *o)
{
    float *const all = calloc((size_t)o->step->n_flat, sizeof *all);
    if (!all) end_with("no memory");
    for (int p = 0; p < o->graph->n_parameter; p++)
        read_numbers(o->file, all + o->step->parameter_start[p], o->graph->parameter[p].elements);
    return all;
}

static double sum_over_parameters(const opened_numbers *o, const float *all,
                                  double (*of)(const float *x, int64_t n), double by)
{
    double sum = 0;
    for (int p = 0; p < o->graph->n_parameter; p++)
        sum += by * of(all + o->step->parameter_start[p], o->graph->parameter[p].elements);
    return sum;
}

static void print_directions(double step[2], const opened_numbers *o)
{
    tandem_error error = {0};
    float *const weight = read_parameters(o), *const square = read_parameters(o);
    probe_metric metric = {.mean_square = square, .by = 0.75F};
    probe_direction moved, summed;
    static float sketch[REPLICATES * 2][TANDEM_PROBE_SKETCH];
    metric.least = tandem_probe_least_square(sum_over_parameters(o, square, tandem_probe_sum, 0.75),
                                             tandem_graph_n_weight(o->graph));
    require(probe_direction_open(&summed, o->step, 0, &error), &error);
    require(probe_direction_open(&moved, o->step, 1, &error), &error);
    probe_direction_draw(&summed, &metric, 0, 0);
    tandem_probe_steps(step, sum_over_parameters(o, weight, tandem_probe_square, 1),
                       probe_direction_square(&summed));
    for (int i = 0; i < REPLICATES * 4; i++) {
        float *const gradient = read_parameters(o);
        probe_direction_project(sketch[i / 2], TANDEM_PROBE_SKETCH, &summed, 0.5F, gradient);
        free(gradient);
    }
    probe_direction_draw(&moved, &metric, SEED, tandem_probe_stream(POINT, 1));
    probe_direction_keep(&moved, weight);
    probe_direction_move(&moved, weight, (float)step[0]);
    for (int p = 0; p < o->graph->n_parameter; p++)
        for (int64_t i = 0; i < o->graph->parameter[p].elements; i++)
            print_number((double)weight[o->step->parameter_start[p] + i]);
    tandem_probe_set_gradients((tandem_estimate *)&o->estimate, 0, sketch[0]);
    for (int r = 0; r < REPLICATES; r++) {
        print_number(o->estimate.gradient[r].variance);
        print_number(o->estimate.gradient[r].mean_square);
    }
    probe_direction_close(&summed);
    probe_direction_close(&moved);
    free(weight);
    free(square);
}

int main(int argc, char **argv)
{
    FILE *const file = argc > 1 ? fopen(argv[1], "rb") : NULL;
    double step[2];
    opened_numbers o = open_model(large_model, file);
    for (int p = 0; p < o.graph->n_parameter && argc == 1; p++)
        (void)printf("%lld\n", (long long)o.graph->parameter[p].elements);
    if (argc > 1 && !file) end_with("the file is not here");
    if (file) {
        print_directions(step, &o);
        print_errors(file, step);
        (void)fclose(file);
    }
    close_model(&o);
    return 0;
}
