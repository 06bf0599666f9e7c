/* goodput.c: the extra samples of a plan and the rate that they leave, as quantities and as JSON. */
#include "cli/goodput.h"

#include <math.h>
#include <stdio.h>

#include "cli/prediction.h"

double goodput_half(const tandem_goodput *g)
{
    return g->is_known ? fmax(g->high - g->sensitivity, g->sensitivity - g->low) : NAN;
}

tandem_quantity goodput_percent(const tandem_goodput *goodput, double percent)
{
    return tandem_quantity_known_to(percent, goodput_half(goodput));
}

tandem_quantity goodput_sum(const tandem_goodput *goodput, const char *method, double sum)
{
    return tandem_quantity_known_to(sum, cli_method_is_percent(method) ? goodput_half(goodput) : NAN);
}

/* --- Text ------------------------------------------------------------------------------------- */

const char *goodput_sensitivity(char text[SENSITIVITY_TEXT], const tandem_goodput *g)
{
    (void)snprintf(text, SENSITIVITY_TEXT, g->is_fp32 ? "0" : "-");
    if (g->is_known && !g->is_fp32)
        (void)snprintf(text, SENSITIVITY_TEXT, "%.20s (%.18s to %.18s)",
                       goodput_percent(g, g->sensitivity).text, goodput_percent(g, g->low).text,
                       goodput_percent(g, g->high).text);
    return text;
}

tandem_quantity goodput_rate(const tandem_goodput *g, int digits)
{
    const double rate = g->goodput;
    if (!isfinite(rate) || !(rate > 0)) return (tandem_quantity){"-"};
    const double last_digit = pow(10, floor(log10(rate)) - (digits - 1));
    return tandem_quantity_known_to(
        rate, fmax(rate * goodput_half(g) / 100 / (1 + g->sensitivity / 100), last_digit));
}

/* --- JSON ------------------------------------------------------------------------------------- */

void goodput_add_json(json_t *object, const tandem_goodput *g)
{
    json_t *points = json_array(), *largest = json_array();
    for (int a = 0; a < g->n_point; a++)
        json_array_append_new(points, json_pack("{s:f,s:o}", "at", g->point[a], "sensitivity",
                                                cli_json_number(g->sensitivity_at[a])));
    for (int k = 0; k < g->n_largest; k++) {
        const struct tandem_goodput_operator *one = &g->largest[k];
        json_array_append_new(largest, json_pack("{s:s,s:s,s:o,s:o,s:o}", "operator", one->name, "precision",
                                                 tandem_precision_get(one->precision)->name, "sensitivity",
                                                 cli_json_number(one->sensitivity), "sensitivity_low",
                                                 cli_json_number(one->low), "sensitivity_high",
                                                 cli_json_number(one->high)));
    }
    json_object_set_new(object, "sensitivity", cli_json_number(g->sensitivity));
    json_object_set_new(object, "sensitivity_low", cli_json_number(g->low));
    json_object_set_new(object, "sensitivity_high", cli_json_number(g->high));
    json_object_set_new(object, "prediction_low", cli_json_number(g->prediction_low));
    json_object_set_new(object, "prediction_high", cli_json_number(g->prediction_high));
    json_object_set_new(object, "sensitivity_noise", cli_json_number(g->noise));
    json_object_set_new(object, "sensitivity_bias", cli_json_number(g->bias));
    json_object_set_new(object, "sensitivity_training_points", points);
    json_object_set_new(object, "sensitivity_largest", largest);
    if (g->trial.n_pair)
        json_object_set_new(object, "trial",
                            json_pack("{s:s,s:i,s:i,s:b,s:I,s:o,s:o,s:o}", "data", g->trial.data, "pairs",
                                      g->trial.n_pair, "diverged", g->trial.n_diverged, "emulated",
                                      g->trial.is_emulated, "steps", (json_int_t)g->trial.n_step,
                                      "extra_samples", cli_json_number(g->trial.extra), "low",
                                      cli_json_number(g->trial.low), "high", cli_json_number(g->trial.high)));
    if (g->corrected.n_trial)
        json_object_set_new(object, "corrected",
                            json_pack("{s:i,s:o,s:o,s:o}", "trials", g->corrected.n_trial, "sensitivity",
                                      cli_json_number(g->corrected.sensitivity), "low",
                                      cli_json_number(g->corrected.low), "high",
                                      cli_json_number(g->corrected.high)));
    json_object_set_new(object, "fp32_goodput_samples_per_s", cli_json_number(g->goodput));
    json_object_set_new(object, "fp32_samples_per_s",
                        cli_json_number(g->is_fp32 ? g->samples_per_s : g->fp32_samples_per_s));
}
