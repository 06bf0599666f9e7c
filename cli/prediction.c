#include "cli/prediction.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/append.h"
#include "base/quantity.h"

tandem_request cli_planner_request(const cli_options *options)
{
    return (tandem_request){.store = options->db,
                            .method = options->method,
                            .base_precision = options->base_precision,
                            .bucket_bytes = options->bucket_bytes,
                            .collective = options->collective,
                            .step = options->step,
                            .predict = options->predict,
                            .kernels = options->kernels,
                            .loss_scale = options->loss_scale,
                            .without_update = options->without_update,
                            .from_description = options->from_description};
}

tandem_status cli_planner_open(tandem_planner **planner, const cli_options *options,
                               const tandem_workload *workload, int times_only, tandem_error *error)
{
    tandem_request request = cli_planner_request(options);
    request.times_only = times_only;
    return tandem_planner_open_workload(planner, &request, workload, error);
}

int cli_method_is_percent(const char *method) { return strcmp(cli_method_unit(method), " %") == 0; }

json_t *cli_peak_json(uint64_t bytes) { return bytes ? json_integer((json_int_t)bytes) : json_null(); }

const char *cli_method_unit(const char *method)
{
    static char text[32];
    const tandem_sensitivity_method *row = NULL;
    const int is_known = tandem_sensitivity_find(&row, method, NULL) == TANDEM_OK;
    if (!is_known || strcmp(row->unit, "none") == 0) return "";
    (void)snprintf(text, sizeof text, " %s", row->unit);
    return text;
}

const char *cli_method_text(const char *method)
{
    static char text[64];
    const char *unit = cli_method_unit(method);
    (void)snprintf(text, sizeof text, "%s,%s", method, *unit ? unit : " no unit");
    return text;
}

/* --- Where times come from --- */

double cli_origin_share(const tandem_provenance *provenance, tandem_origin origin)
{
    int64_t sum = 0;
    for (int k = 0; k < TANDEM_N_ORIGIN; k++) sum += provenance->ns[k];
    return sum > 0 ? (double)provenance->ns[origin] / (double)sum : 0;
}

static json_t *interval_cards_json(const tandem_provenance *provenance)
{
    json_t *const cards = json_array();
    for (const char *at = provenance->interval_cards; *at; at += strcspn(at, " ") + 1)
        json_array_append_new(cards, json_stringn(at, strcspn(at, " ")));
    return cards;
}

json_t *cli_cost_sources_json(const tandem_time_sources *sources, int c)
{
    const tandem_provenance *provenance = &sources->of[c];
    json_t *costs = json_object();
    for (int k = 0; k < TANDEM_N_ORIGIN; k++)
        json_object_set_new(costs, tandem_origin_name((tandem_origin)k),
                            json_pack("{s:i,s:f}", "tasks", provenance->n_task[k], "share",
                                      cli_origin_share(provenance, (tandem_origin)k)));
    json_object_set_new(costs, "fitted_to", json_integer((json_int_t)provenance->n_fitted));
    json_object_set_new(costs, "contradicting", json_integer((json_int_t)provenance->n_contradicting));
    json_object_set_new(costs, "spread", cli_json_number(provenance->spread));
    json_object_set_new(costs, "kernels", json_string(tandem_kernel_set_name(provenance->kernels)));
    json_object_set_new(costs, "without_update", json_boolean(provenance->without_update));
    json_object_set_new(costs, "others_share", json_real(provenance->others_share));
    json_object_set_new(costs, "others_rows", json_integer((json_int_t)provenance->others_rows));
    json_object_set_new(costs, "unmeasured_kernel_tasks", json_integer(provenance->n_unmeasured_kernel));
    json_object_set_new(costs, "amp_ratio",
                        cli_json_number(provenance->amp_ratio > 0 ? provenance->amp_ratio : NAN));
    json_object_set_new(costs, "form_interval_80", cli_json_number(provenance->form_interval));
    json_object_set_new(costs, "interval_rows", json_integer((json_int_t)provenance->interval_rows));
    json_object_set_new(costs, "interval_error", cli_json_number(provenance->interval_error));
    json_object_set_new(costs, "interval_cards", interval_cards_json(provenance));
    return costs;
}

int cli_cost_sources_digits(const tandem_time_sources *sources)
{
    for (int c = 0; c < sources->n_class; c++)
        if (sources->of[c].n_task[TANDEM_ORIGIN_PREDICTED]) return 2;
    return 3;
}

int cli_profile_interval_digits(double interval) { return interval >= 0.05 ? 2 : 3; }

json_t *cli_provenance_json(const tandem_replayer *replayer, int c)
{
    tandem_time_sources sources;
    tandem_replayer_sources(replayer, &sources);
    return cli_cost_sources_json(&sources, c);
}
