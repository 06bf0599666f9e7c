/* candidate_json.c: a cluster at its best plan, as JSON and as text. */
#include "cli/candidate_json.h"

#include <math.h>

#include "base/append.h"
#include "cli/goodput.h"
#include "cli/prediction.h"

const char *cli_batch_list_print(char *text, size_t size, const int64_t *batch, int n_class)
{
    text[0] = '\0';
    for (int c = 0; c < n_class; c++)
        (void)tandem_append(text, size, "%s%lld", c ? " + " : "", (long long)batch[c]);
    return text;
}

uint64_t cli_largest_peak(const tandem_answer *answer)
{
    uint64_t peak_bytes = 0;
    for (int c = 0; answer->plan && c < answer->plan->cluster.n_class; c++)
        if (answer->allocation.peak_bytes[c] > peak_bytes) peak_bytes = answer->allocation.peak_bytes[c];
    return peak_bytes;
}

json_t *cli_loss_scale_json(double loss_scale)
{
    char text[TANDEM_LOSS_SCALE_TEXT];
    return loss_scale == 0 ? json_null() : json_string(tandem_loss_scale_print(text, loss_scale));
}

static json_t *candidate_devices_json(const tandem_time_sources *sources)
{
    json_t *devices = json_array();
    for (int c = 0; c < sources->n_class; c++)
        json_array_append_new(devices, json_pack("{s:s,s:o}", "name", sources->device[c], "costs",
                                                 cli_cost_sources_json(sources, c)));
    return devices;
}

json_t *cli_candidate_json(const tandem_candidate *candidate)
{
    static const tandem_goodput no_goodput = {.sensitivity = NAN,
                                              .prediction_low = NAN,
                                              .prediction_high = NAN,
                                              .low = NAN,
                                              .high = NAN,
                                              .noise = NAN,
                                              .bias = NAN,
                                              .goodput = NAN,
                                              .fp32_samples_per_s = NAN};
    char text[4096];
    tandem_cluster_print(text, sizeof text, &candidate->cluster);
    const tandem_answer *answer = &candidate->answer;
    const tandem_plan *plan = answer->plan;
    json_t *result =
        json_pack("{s:s,s:s?,s:I}", "cluster", text, "error", plan ? NULL : candidate->error.text, "samples",
                  (json_int_t)candidate->samples);
    json_object_set_new(result, "samples_per_s",
                        plan ? json_real(answer->goodput.samples_per_s) : json_null());
    json_object_set_new(result, "step_ns", plan ? json_integer(answer->allocation.step_ns) : json_null());
    goodput_add_json(result, plan ? &answer->goodput : &no_goodput);
    json_object_set_new(result, "sensitivity_bound", cli_json_number(plan ? plan->sensitivity_bound : NAN));
    json_object_set_new(result, "peak_bytes", cli_peak_json(cli_largest_peak(answer)));
    json_object_set_new(result, "loss_scale", plan ? cli_loss_scale_json(plan->loss_scale) : json_null());
    json_object_set_new(result, "devices", plan ? candidate_devices_json(&answer->sources) : json_null());
    return result;
}
