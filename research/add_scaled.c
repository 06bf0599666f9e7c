/* add_scaled.c: the tables of a task with scaled errors: with which power of the scale noises grow, and the
 * law of jumping and smooth parts (add_law.c). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "research/add.h"
#include "research/add_law.h"
#include "tandem/advanced/predictor.h"

const double add_scales[ADD_N_SCALE] = {1.0 / 16, 0.25, 0.5, 1};

static double sum_of_parts(const double *weight, const double *noise, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++) sum += weight[i] * noise[i];
    return sum;
}

/* Of all plans, from their parts. ratio: [n_plan]; weight: room for [scaled.n]. 0: no memory. */
static int fill_law_ratios(double *ratio, double *weight, add_study *s)
{
    const int n = s->scaled.n;
    const add_law_parts parts = {s->noise[ADD_N_SCALE - 1], s->noise[ADD_N_SCALE - 2], weight, n};
    for (int i = 0; i < s->n_plan; i++) {
        memset(weight, 0, (size_t)n * sizeof *weight);
        if (!add_rows_sum_parts(weight, &s->scaled, s, add_plan_at(s, i), 0)) return 0;
        ratio[i] = s->result[i].ratio * sum_of_parts(weight, parts.whole, n) / add_law_noise(&parts);
    }
    return 1;
}

/* Measured over summed of the first plans at one scale; as fill_law_ratios. */
static int fill_scaled_ratios(double *ratio, double *weight, add_study *s, int k)
{
    for (int i = 0; i < s->n_scaled; i++) {
        memset(weight, 0, (size_t)s->scaled.n * sizeof *weight);
        if (!add_rows_sum_parts(weight, &s->scaled, s, add_plan_at(s, i), 0)) return 0;
        ratio[i] = s->noise[k][i] / sum_of_parts(weight, s->noise[k], s->scaled.n);
    }
    return 1;
}

/* The median power with which the plans' noise grows up to a scale; NaN: none is known. power: room. */
static double median_power(double *power, const add_study *s, int k)
{
    int n = 0;
    for (int i = 0; i < s->n_scaled && k > 0; i++) {
        power[n] = add_law_power(s->noise[k][i], s->noise[k - 1][i], add_scales[k], add_scales[k - 1]);
        n += isfinite(power[n]);
    }
    return n > 0 ? tandem_median(power, (size_t)n) : NAN;
}

static void print_scale(json_t *rows, const add_study *s, int k, double power, double *ratio)
{
    const add_summary of = add_summary_of(ratio, s->n_scaled);
    char text[32] = "";
    if (k > 0) (void)snprintf(text, sizeof text, "%.2f", power);
    (void)fprintf(s->report->text, "| %g | %s | %.3f | %.0f %% |\n", add_scales[k], text, of.median,
                  100 * of.close);
    json_t *object = json_pack("{s:f,s:i}", "error_scale", add_scales[k], "plans", s->n_scaled);
    json_object_set_new(object, "power", cli_json_number(power));
    json_object_set_new(object, "median", cli_json_number(of.median));
    json_object_set_new(object, "close_share", cli_json_number(of.close));
    json_array_append_new(rows, object);
}

tandem_status add_scaled_print(add_study *s, json_t *object, tandem_error *error)
{
    double *ratio = calloc((size_t)s->n_plan + 1, sizeof *ratio),
           *weight = calloc((size_t)s->scaled.n + 1, sizeof *weight);
    json_t *rows = json_array();
    int is_allocated = ratio && weight && rows;
    (void)fprintf(s->report->text,
                  "\nErrors times a, %d plans:\n\n"
                  "| a | power of a, from the line above | measured over summed: median | within 20 %% |\n"
                  "|---|---|---|---|\n",
                  s->n_scaled);
    for (int k = 0; k < ADD_N_SCALE && is_allocated; k++) {
        const double power = median_power(ratio, s, k);
        is_allocated = fill_scaled_ratios(ratio, weight, s, k);
        if (is_allocated) print_scale(rows, s, k, power, ratio);
    }
    is_allocated = is_allocated && fill_law_ratios(ratio, weight, s);
    if (is_allocated) {
        const add_summary law = add_summary_of(ratio, s->n_plan);
        (void)fprintf(s->report->text,
                      "\nMeasured over ΣB + √ΣA², %d plans: median %.3f, within 20 %% %.0f %%.\n", s->n_plan,
                      law.median, 100 * law.close);
        json_t *of = json_object();
        json_object_set_new(of, "median", cli_json_number(law.median));
        json_object_set_new(of, "close_share", cli_json_number(law.close));
        json_object_set_new(object, "law", of);
    }
    json_object_set_new(object, "scales", rows);
    free(ratio);
    free(weight);
    return is_allocated ? TANDEM_OK : tandem_no_memory(error, "for the ratios of plans");
}
