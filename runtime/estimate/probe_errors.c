/* probe_errors.c: the error of a cell, from the sums of its operator and of those that depend on it. */
#include "runtime/estimate/probe_run.h"

#include <math.h>
#include <string.h>

/* Cells whose operator writes a narrow result. */
static int has_narrow_result(const probe_run *run, int cell)
{
    return probe_formats_of_cell(run, cell).of[TANDEM_PROBE_RESULT] != TANDEM_N_FORMAT;
}

/* q, of the replicate. */
static void find_jump_ratio(probe_run *run)
{
    int n = 0;
    for (int k = 0; k < run->n_op; k++)
        n += tandem_probe_log_ratios(run->log_ratio + n, &run->operator[k].sums[PROBE_OWN_RANGE]);
    run->jump_ratio = tandem_probe_jump_ratio(run->log_ratio, n);
}

/* Adds what an operator puts into the gradient whose parts have these formats, with both ranges. */
static void add_operator_error(tandem_estimated_error *error, const probe_run *run, const probe_operator *of,
                               const probe_cell_formats *formats)
{
    tandem_estimated_error wide = {.total = error->wide_total};
    tandem_probe_add_error(error, &of->sums[PROBE_OWN_RANGE], formats->of, run->step, run->jump_ratio);
    tandem_probe_add_error(&wide, &of->sums[PROBE_WIDE_RANGE], formats->of, run->step, run->jump_ratio);
    error->wide_total = wide.total;
}

/* What the operators after it add that its narrow result makes narrow. */
static void add_dependent_errors(tandem_estimated_error *error, const probe_run *run, int cell)
{
    if (!has_narrow_result(run, cell)) return;
    probe_set_plan_of_cell(run, cell);
    for (int k = 0; k < run->n_op; k++) {
        probe_cell_formats formats;
        for (int part = 0; part < TANDEM_N_PROBE_PART; part++)
            formats.of[part] = probe_format_of_dependent(run, &run->operator[k], part);
        add_operator_error(error, run, &run->operator[k], &formats);
    }
}

/* ln of the samples that wide ranges have over those that ranges have: the mean over a replicate's batches.
 */
static double log_widening(const probe_run *run, int r)
{
    const int seen = 2 * (r / run->point->n_rank) + 1;
    double sum = 0;
    for (int b = 0; b < 2; b++)
        sum += log((double)probe_batches_of_range(run, PROBE_WIDE_RANGE, seen + b) /
                   probe_batches_of_range(run, PROBE_OWN_RANGE, seen + b));
    return sum / 2;
}

/* Early replicates have seen few batches. Noise grows with the logarithm of the samples of a range
 * (predictor/sampled.c), so each says of the growth what its own widening l has of it, with a weight that
 * makes the mean over R replicates the least squares': by R·l/Σl² to the growth of one unit. */
static double growth_of_widening(const probe_run *run, int r)
{
    const int n = run->point->estimate->n_replicate;
    double square = 0;
    for (int i = 0; i < n; i++) square += log_widening(run, i) * log_widening(run, i);
    return square > 0 ? n * log_widening(run, r) / square * log(TANDEM_WIDE_RANGE) : 0;
}

/* What no range decides. */
static void share_between_ranges(const probe_run *run, probe_operator *of)
{
    const tandem_probe_sums *own = &of->sums[PROBE_OWN_RANGE];
    tandem_probe_sums *wide = &of->sums[PROBE_WIDE_RANGE];
    probe_describe_sums(run, of);
    wide->rate_square = own->rate_square;
    memcpy(wide->mean_square, own->mean_square, sizeof wide->mean_square);
    memcpy(wide->cross, own->cross, sizeof wide->cross);
}

void probe_set_replicate(probe_run *run, int r)
{
    const double by = growth_of_widening(run, r);
    for (int k = 0; k < run->n_op; k++) share_between_ranges(run, &run->operator[k]);
    find_jump_ratio(run);
    tandem_estimate *estimate = run->point->estimate;
    const int each = TANDEM_N_PRECISION * TANDEM_N_AMP_DTYPE;
    for (int k = 0; k < run->n_op; k++) {
        const probe_operator *of = &run->operator[k];
        for (int cell = of->op * each; cell < (of->op + 1) * each && of->is_adjustable; cell++) {
            if (!estimate->is_estimated[cell]) continue;
            tandem_estimated_error *error =
                &tandem_estimate_errors(estimate, run->point->point_index, cell)[r];
            const probe_cell_formats formats = probe_formats_of_cell(run, cell);
            *error = (tandem_estimated_error){0};
            add_operator_error(error, run, of, &formats);
            add_dependent_errors(error, run, cell);
            error->wide_total = error->total + by * (error->wide_total - error->total);
        }
    }
}
