/* sensitivity_plan.c: `tandem sensitivity --plan`: what a plan does as a whole. */
#include "cli/command/sensitivity.h"

#include <math.h>
#include <stdio.h>

#include "base/quantity.h"
#include "cli/answer.h"
#include "tandem/runtime.h"

static int is_beyond_across(const tandem_plan_estimate *e) { return e->across > TANDEM_MAX_MEAN_ERROR; }
static int is_beyond_stability(const tandem_plan_estimate *e)
{
    return e->stability < TANDEM_MIN_STABILITY;
}

static json_t *as_percent(double share) { return cli_json_number(100 * share); }

static json_t *plan_estimate_json(const tandem_plan_estimate *e)
{
    json_t *json = cli_json_new("plan_estimate"), *points = json_array();
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
    json_object_set_new(json, "is_beyond_limits",
                        json_boolean(is_beyond_across(e) || is_beyond_stability(e)));
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
    char most[TANDEM_QUANTITY_TEXT];
    (void)tandem_quantity_print_plain(most, sizeof most, 100 * TANDEM_MAX_MEAN_ERROR, 2);
    if (is_beyond_stability(e))
        answer_line("not trusted", "errors of rounding decide the steps: stability is below 1");
    if (is_beyond_across(e))
        answer_line("not trusted", "the mean of the gradient is off by more than %s%%", most);
}

static void print_plan_estimate(const tandem_plan_estimate *e)
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

static tandem_status check_plan_options(const cli_options *options, tandem_error *error)
{
    static const int foreign[] = {OPTION_BY, OPTION_DB};
    static const char *const name[] = {"--by", "--db"};
    for (size_t k = 0; k < sizeof foreign / sizeof *foreign; k++)
        if (cli_option_given(options, foreign[k]))
            return tandem_error_set(
                error, TANDEM_USAGE,
                "%s and %s contradict each other: a plan as a whole is estimated by samples, "
                "and not stored",
                name[k], options->plan ? "--plan" : "--uniform");
    return TANDEM_OK;
}

int cli_estimate_plan(const cli_options *given)
{
    cli_options options = *given;
    tandem_error error = {0};
    tandem_plan_estimate estimate;
    const int64_t n = cli_option_given(&options, OPTION_REPETITIONS) ? options.repetitions : 0;
    if (!options.plan && !options.device) cli_set_device(&options, "strongest");
    tandem_plan_estimate_request request = {
        .listener = cli_listener(&options),
        .data = options.data,
        .steps = options.steps < 0 ? 0 : options.steps,
        .at = options.at,
        .n_replicate = (int)(n > TANDEM_MAX_REPLICATE ? TANDEM_MAX_REPLICATE + 1 : n),
        .init = options.init};
    tandem_status status = check_plan_options(&options, &error);
    if (status == TANDEM_OK) status = cli_workload_request(&request.workload, &options, &error);
    if (status == TANDEM_OK) status = tandem_plan_estimate_measure(&estimate, &request, &error);
    if (status != TANDEM_OK) return cli_fail(&error);
    cli_progress_end();
    if (options.json) return cli_print_json(plan_estimate_json(&estimate));
    print_plan_estimate(&estimate);
    return 0;
}
