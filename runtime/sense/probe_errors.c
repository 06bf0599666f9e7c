/* probe_errors.c: the error of a cell, from the noise of its parts at both steps (sensing_probe.c). */
#include "runtime/sense/probe_run.h"

#include <math.h>

#include <gsl/gsl_sort.h>
#include <gsl/gsl_statistics_double.h>

#include "tandem/advanced/format.h"

/* Cells whose operator writes a narrow result. */
static int has_narrow_result(const probe_run *run, int cell)
{
    return probe_formats_of_cell(run, cell).of[PROBE_RESULT] != TANDEM_N_FORMAT;
}

/* The products that an output sums. */
static double products_of_output(const tandem_graph *graph, const tandem_op *op)
{
    if (op->parameter[0] < 0) return (double)tandem_shape_last(&graph->op[op->input[0]].shape);
    return (double)graph->parameter[op->parameter[0]].elements / (double)tandem_shape_last(&op->shape);
}

/* α: the part of the small step. */
static double share_of_small_step(const probe_run *run, const probe_operator *of, int part, tandem_format f,
                                  int range)
{
    const tandem_graph *graph = run->age->step->graph;
    const tandem_op *op = &graph->op[of->op];
    const int other = part != PROBE_INPUT ? PROBE_INPUT : op->parameter[0] < 0 ? PROBE_SECOND : PROBE_WEIGHT;
    const double first = 1 / run->step[0], last = 1 / run->step[1];
    const double by = part == PROBE_RESULT || op->kind == TANDEM_OP_EMBEDDING
                          ? 1
                          : products_of_output(graph, op) * of->mean_square[other];
    const double moved = sqrt(by * of->error_square[range][part][f]);
    if (!(moved > 0)) return 1;
    return (fmin(fmax(2 * sqrt(of->rate_square) / moved, last), first) - last) / (first - last);
}

/* q: the median, over all that makes jumps, of the noise at the small step over that at the large one. */
static void find_jump_ratio(probe_run *run)
{
    size_t n = 0;
    for (int k = 0; k < run->n_op; k++)
        for (int i = 0; i < N_PROBE_PART * TANDEM_N_FORMAT; i++) {
            const probe_operator *of = &run->operator[k];
            const double *noise = of->noise[PROBE_OWN_RANGE][i / TANDEM_N_FORMAT][i % TANDEM_N_FORMAT];
            if (probe_makes_jumps(of, i / TANDEM_N_FORMAT) && noise[0] > 0 && noise[1] > 0)
                run->log_ratio[n++] = log(noise[0] / noise[1]);
        }
    gsl_sort(run->log_ratio, 1, n);
    run->jump_ratio = n > 0 ? fmax(1, exp(gsl_stats_median_from_sorted_data(run->log_ratio, 1, n))) : 1;
}

static double noise_of_part(const probe_run *run, const probe_operator *of, int part, tandem_format f,
                            int range)
{
    const double *noise = of->noise[range][part][f], q = run->jump_ratio;
    if (!probe_makes_jumps(of, part)) return 0.5 * (noise[0] + noise[1]);
    const double small = share_of_small_step(run, of, part, f, range);
    return 0.5 * (small * q + 1 - small) * (noise[0] / q + noise[1]);
}

static tandem_sensed_error error_of_cell(const probe_run *run, const probe_operator *of, int cell)
{
    const probe_cell_formats formats = probe_formats_of_cell(run, cell);
    tandem_sensed_error error = {0};
    for (int part = 0; part < N_PROBE_PART; part++) {
        const tandem_format f = formats.of[part];
        if (f == TANDEM_N_FORMAT) continue;
        error.total += noise_of_part(run, of, part, f, PROBE_OWN_RANGE);
        error.wide_total += noise_of_part(run, of, part, f, PROBE_WIDE_RANGE);
        if (part != PROBE_WEIGHT) continue;
        if (tandem_format_get(f)->rounding == TANDEM_ROUNDING_STOCHASTIC) {
            error.shared = of->cross[f];
        } else {
            error.total -= of->cross[f];
            error.wide_total -= of->cross[f];
        }
    }
    return error;
}

/* What the operators behind it add that its narrow result makes narrow. */
static void add_dependent_errors(tandem_sensed_error *error, const probe_run *run, int cell)
{
    if (!has_narrow_result(run, cell)) return;
    probe_set_plan_of_cell(run, cell);
    for (int k = 0; k < run->n_op; k++)
        for (int part = 0; part < N_PROBE_PART; part++) {
            const probe_operator *of = &run->operator[k];
            const tandem_format f = probe_format_of_dependent(run, of, part);
            if (f == TANDEM_N_FORMAT) continue;
            error->total += noise_of_part(run, of, part, f, PROBE_OWN_RANGE);
            error->wide_total += noise_of_part(run, of, part, f, PROBE_WIDE_RANGE);
        }
}

/* ln of the samples that wide ranges have over those that ranges have: the mean over a replicate's batches.
 */
static double log_widening(const probe_run *run, int r)
{
    const int seen = 2 * (r / run->age->n_rank) + 1;
    double sum = 0;
    for (int b = 0; b < 2; b++)
        sum += log((double)probe_batches_of_range(run, PROBE_WIDE_RANGE, seen + b) /
                   probe_batches_of_range(run, PROBE_OWN_RANGE, seen + b));
    return sum / 2;
}

/* Early replicates have seen few batches. Noise grows with the logarithm of the samples of a range
 * (predictor/sampled.c), so each tells of the growth what its own widening l has of it, with a weight that
 * makes the mean over R replicates the least squares': by R·l/Σl² to the growth of one unit. */
static double growth_of_widening(const probe_run *run, int r)
{
    const int n = run->age->sensing->n_replicate;
    double square = 0;
    for (int i = 0; i < n; i++) square += log_widening(run, i) * log_widening(run, i);
    return square > 0 ? n * log_widening(run, r) / square * log(TANDEM_WIDE_RANGE) : 0;
}

void probe_set_replicate(probe_run *run, int r)
{
    const double by = growth_of_widening(run, r);
    find_jump_ratio(run);
    tandem_sensing *sensing = run->age->sensing;
    const int each = TANDEM_N_PRECISION * TANDEM_N_AMP_DTYPE;
    for (int k = 0; k < run->n_op; k++) {
        const probe_operator *of = &run->operator[k];
        for (int cell = of->op * each; cell < (of->op + 1) * each && of->is_adjustable; cell++) {
            if (!sensing->is_sensed[cell]) continue;
            tandem_sensed_error *error = &tandem_sensing_errors(sensing, run->age->age_index, cell)[r];
            *error = error_of_cell(run, of, cell);
            add_dependent_errors(error, run, cell);
            error->wide_total = error->total + by * (error->wide_total - error->total);
        }
    }
}
