#include "cli/compare_json.h"

#include <math.h>

int64_t cli_unplanned_bytes(const tandem_compare_class *class)
{
    return class->resident_peak_bytes - (int64_t)(class->predicted_peak_bytes + class->evaluation_bytes);
}

/* Appends to the array of that name, which the first element creates. */
static void append_json_member(json_t *object, const char *member, json_t *value)
{
    if (!json_object_get(object, member)) json_object_set_new(object, member, json_array());
    json_array_append_new(json_object_get(object, member), value);
}

static void add_class_json(json_t *object, const tandem_compare_result *out,
                           const tandem_compare_class *class)
{
    const int is_known = class->resident_peak_bytes >= 0;
    append_json_member(object, "devices", json_string(class->device));
    append_json_member(object, "predicted_peak_bytes",
                       json_integer((json_int_t) class->predicted_peak_bytes));
    append_json_member(object, "allocated_peak_bytes",
                       json_integer((json_int_t) class->allocated_peak_bytes));
    append_json_member(object, "evaluation_bytes", json_integer((json_int_t) class->evaluation_bytes));
    append_json_member(object, "resident_peak_bytes", cli_json_known_integer(class->resident_peak_bytes));
    append_json_member(object, "unplanned_bytes",
                       is_known ? json_integer(cli_unplanned_bytes(class)) : json_null());
    append_json_member(object, "predicted_wait_ns", json_integer(class->predicted_wait_ns));
    append_json_member(object, "measured_wait_ns", json_integer(class->measured_wait_ns));
    append_json_member(object, "resimulated_busy_ns",
                       out->resimulated_ns ? json_integer(class->resimulated_busy_ns) : json_null());
    append_json_member(object, "measured_busy_ns", cli_json_known_integer(class->measured_busy_ns));
}

static void add_steadiness_json(json_t *object, const tandem_compare_speed *s)
{
    json_object_set_new(object, "error_at_run_speed", cli_json_number(s->error_at_run_speed));
    json_object_set_new(object, "error_at_run_speed_interval",
                        json_pack("[o,o]", cli_json_number(s->low), cli_json_number(s->high)));
    json_object_set_new(object, "profile_noise", cli_json_number(s->profile_noise));
    json_object_set_new(object, "verdict", json_string(tandem_compare_verdict_name(s->verdict)));
    json_object_set_new(object, "moved_by", cli_json_number(s->moved_by));
    json_object_set_new(object, "steps_needed",
                        s->steps_needed > 0 ? json_integer(s->steps_needed) : json_null());
    json_object_set_new(object, "kept_steps", json_integer(s->n_step));
    json_object_set_new(object, "undisturbed_steps", json_integer(s->n_undisturbed));
    json_object_set_new(object, "delay_share", cli_json_number(s->delay_share));
    json_object_set_new(object, "speed_sample_share", cli_json_number(s->speed_sample_share));
    json_object_set_new(object, "compute_slowdown", cli_json_number(s->compute_slowdown));
    json_object_set_new(object, "memory_slowdown", cli_json_number(s->memory_slowdown));
    json_object_set_new(object, "kind_off",
                        s->kind && s->kind[0] ? json_pack("{s:s,s:s,s:o}", "device", s->kind_device, "kind",
                                                          s->kind, "error", cli_json_number(s->kind_error))
                                              : json_null());
}

json_t *cli_compare_json(const tandem_compare_result *out, const tandem_goodput *goodput)
{
    json_t *result =
        json_pack("{s:s,s:I,s:I,s:I,s:I,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "plan", out->plan,
                  "predicted_ns", (json_int_t)out->predicted_ns, "measured_ns", (json_int_t)out->measured_ns,
                  "measured_p10_ns", (json_int_t)out->measured_p10_ns, "measured_p90_ns",
                  (json_int_t)out->measured_p90_ns, "undisturbed_ns",
                  cli_json_known_integer(out->undisturbed_ns), "error", cli_json_number(out->error),
                  "remeasured_ns", out->remeasured_ns ? json_integer(out->remeasured_ns) : json_null(),
                  "drift", cli_json_number(tandem_compare_drift(out)), "resimulated_ns",
                  out->resimulated_ns ? json_integer(out->resimulated_ns) : json_null(), "simulation_error",
                  cli_json_number(tandem_compare_simulation_error(out)), "sensitivity_bound",
                  cli_json_number(out->sensitivity_bound), "samples_per_s",
                  cli_json_number(out->samples_per_s), "first_loss", cli_json_number(out->first_loss),
                  "final_loss", cli_json_number(out->final_loss), "accuracy", cli_json_number(out->accuracy));
    goodput_add_json(result, goodput);
    add_steadiness_json(result, &out->steady);
    for (int c = 0; c < out->n_class; c++) add_class_json(result, out, &out->classes[c]);
    return result;
}
