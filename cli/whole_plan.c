/* whole_plan.c: what a plan does as a whole, as text and as JSON. */
#include "cli/whole_plan.h"

#include <math.h>

#include "base/quantity.h"
#include "cli/answer.h"

static json_t *as_percent(double share) { return cli_json_number(100 * share); }

json_t *whole_plan_json(const tandem_plan_estimate *e)
{
    json_t *json = json_object(), *points = json_array();
    for (int a = 0; a < e->n_point; a++) json_array_append_new(points, json_integer(e->point[a]));
    json_object_set_new(json, "model", json_string(e->model));
    json_object_set_new(json, "emulated_on", json_string(e->device));
    json_object_set_new(json, "batch", json_integer(e->batch));
    json_object_set_new(json, "estimated_batch", json_integer(e->estimated_batch));
    json_object_set_new(json, "steps", json_integer(e->steps));
    json_object_set_new(json, "training_points", points);
    json_object_set_new(json, "replicates", json_integer(e->n_replicate));
    json_object_set_new(json, "extra_samples", as_percent(e->samples));
    json_object_set_new(json, "extra_samples_low", as_percent(e->samples_low));
    json_object_set_new(json, "extra_samples_high", as_percent(e->samples_high));
    json_object_set_new(json, "noise", as_percent(e->noise));
    json_object_set_new(json, "bias", as_percent(e->along));
    json_object_set_new(json, "bias_half", as_percent(e->along_half));
    json_object_set_new(json, "mean_error", as_percent(e->across));
    json_object_set_new(json, "loss_rise", cli_json_number(e->loss_rise));
    json_object_set_new(json, "loss_rise_half", cli_json_number(e->loss_rise_half));
    json_object_set_new(json, "stability", cli_json_number(e->stability));
    json_object_set_new(json, "is_beyond_limits", json_boolean(tandem_plan_estimate_beyond(e) != 0));
    return json;
}

static void print_bias(const tandem_plan_estimate *e)
{
    const double half = 100 * e->along_half;
    if (!isfinite(e->along) || !isfinite(e->across))
        answer_line("gradient", "its mean is lost in noise here: no bias is known; give more --repetitions");
    else if (e->across == 0)
        answer_line("gradient", "its mean is off by less than these batches show");
    else
        answer_line(
            "gradient",
            "its mean is off by %s%% of its length, in any direction; %s%% (\xc2\xb1%s) against itself",
            tandem_quantity_plain(100 * e->across, 2).text,
            tandem_quantity_known_to(100 * e->along, half).text, tandem_quantity_plain(half, 2).text);
}

static void print_limits(const tandem_plan_estimate *e)
{
    const unsigned beyond = tandem_plan_estimate_beyond(e);
    if (beyond & TANDEM_BEYOND_SAMPLES) answer_line("not trusted", "it takes more than twice the samples");
    if (beyond & TANDEM_BEYOND_STABILITY)
        answer_line("not trusted", "errors of rounding decide the steps: stability is below 1");
    if (beyond & TANDEM_BEYOND_MEAN_ERROR)
        answer_line("caution", "the mean of the gradient is off by more than 10%%, and such errors add up");
}

void whole_plan_print_short(const tandem_plan_estimate *e)
{
    const double half = 100 * fmax(e->samples_high - e->samples, e->samples - e->samples_low);
    answer_line("as a whole", "%s%% more samples (%s to %s%%), loss %s nats, mean error %s%s, stability %s",
                tandem_quantity_known_to(100 * e->samples, half).text,
                tandem_quantity_known_to(100 * e->samples_low, half).text,
                tandem_quantity_known_to(100 * e->samples_high, half).text,
                tandem_quantity_known_to(e->loss_rise, e->loss_rise_half).text,
                isfinite(e->across) ? tandem_quantity_plain(100 * e->across, 2).text : "unknown",
                isfinite(e->across) ? "%" : "", tandem_quantity_plain(e->stability, 2).text);
    print_limits(e);
}

void whole_plan_print(const tandem_plan_estimate *e)
{
    const double half = 100 * fmax(e->samples_high - e->samples, e->samples - e->samples_low);
    answer_line("extra samples", "%s%% (95%% by sampling: %s to %s%%), all operators rounded at once",
                tandem_quantity_known_to(100 * e->samples, half).text,
                tandem_quantity_known_to(100 * e->samples_low, half).text,
                tandem_quantity_known_to(100 * e->samples_high, half).text);
    answer_line("loss", "%s nats (\xc2\xb1%s) higher within the rounding",
                tandem_quantity_known_to(e->loss_rise, e->loss_rise_half).text,
                tandem_quantity_plain(e->loss_rise_half, 2).text);
    print_bias(e);
    answer_line("stability",
                "%s (the gradient over \xe2\x88\x9a"
                "3 times its error; unstable below 1)",
                tandem_quantity_plain(e->stability, 2).text);
    print_limits(e);
    answer_line("estimated", "after %lld steps%s, %d pairs of batches; emulated on %s",
                (long long)e->point[e->n_point - 1], e->n_point > 1 ? " and before" : "", e->n_replicate,
                e->device);
}
