#include "cli/profile_json.h"

static json_t *count_json(const tandem_profile_count *count)
{
    return json_pack("{s:I,s:I}", "measured", (json_int_t)count->measured, "known", (json_int_t)count->known);
}

/* null if unknown. */
static json_t *clocks_json(const tandem_clock_range *clocks)
{
    if (clocks->max.compute_mhz == 0) return json_null();
    return json_pack("{s:[i,i],s:[i,i]}", "compute_mhz", clocks->min.compute_mhz, clocks->max.compute_mhz,
                     "memory_mhz", clocks->min.memory_mhz, clocks->max.memory_mhz);
}

static json_t *profile_steadiness_json(const tandem_profile_report *rank)
{
    return json_pack("{s:o,s:o,s:o,s:o,s:o}", "compute_spread", cli_json_number(rank->compute_spread),
                     "memory_spread", cli_json_number(rank->memory_spread), "delay_share",
                     cli_json_number(rank->delay_share), "steal_share", cli_json_number(rank->steal_share),
                     "interval", cli_json_number(rank->interval_share));
}

static json_t *device_json(const tandem_profile_report *rank)
{
    return json_pack("{s:s,s:o,s:o,s:o,s:o,s:o}", "name", rank->device, "alone", count_json(&rank->alone),
                     "contended", count_json(&rank->contended), "clocks", clocks_json(&rank->clocks),
                     "steadiness", profile_steadiness_json(rank), "event_ns",
                     cli_json_known_integer(rank->event_ns));
}

json_t *cli_profile_json(const tandem_profile_result *result, const char *store)
{
    json_t *object = cli_json_new("profile"), *devices = json_array();
    for (int r = 0; r < result->n_rank; r++) json_array_append_new(devices, device_json(&result->rank[r]));
    json_object_set_new(object, "model", json_string(result->model));
    json_object_set_new(object, "store", json_string(store));
    json_object_set_new(object, "devices", devices);
    json_object_set_new(object, "allreduce", count_json(&result->allreduce));
    json_object_set_new(object, "seconds", json_real((double)result->ns * 1e-9));
    return object;
}

json_t *cli_sweep_json(const tandem_profile_result *result, const char *store)
{
    const tandem_profile_report *rank = &result->rank[0];
    json_t *object = cli_json_new("profile");
    json_t *sweep = json_pack("{s:s,s:i,s:I,s:o,s:o}", "device", rank->device, "networks", result->n_network,
                              "measured", (json_int_t)rank->alone.measured, "clocks",
                              clocks_json(&rank->clocks), "steadiness", profile_steadiness_json(rank));
    json_object_set_new(object, "store", json_string(store));
    json_object_set_new(object, "sweep", sweep);
    json_object_set_new(object, "seconds", json_real((double)result->ns * 1e-9));
    return object;
}
