/* whole_plan.c: what a plan does as a whole, as text and as JSON. */
#include "cli/whole_plan.h"

#include <math.h>

#include "base/append.h"
#include "base/quantity.h"
#include "cli/answer.h"

static json_t *as_percent(double share) { return cli_json_number(100 * share); }

json_t *whole_plan_json(const tandem_plan_estimate *e)
{
    json_t *json = json_object(), *points = json_array();
    const tandem_prediction prediction =
        tandem_prediction_interval(e->samples, e->samples_low, e->samples_high);
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
    json_object_set_new(json, "prediction_low", as_percent(prediction.low));
    json_object_set_new(json, "prediction_high", as_percent(prediction.high));
    json_object_set_new(json, "noise", as_percent(e->noise));
    json_object_set_new(json, "bias", as_percent(e->along));
    json_object_set_new(json, "bias_half", as_percent(e->along_half));
    json_object_set_new(json, "mean_error", as_percent(e->across));
    json_object_set_new(json, "mean_error_half", as_percent(e->across_half));
    json_object_set_new(json, "fp32_loss", cli_json_number(e->fp32_loss));
    json_object_set_new(json, "loss_rise", cli_json_number(e->loss_rise));
    json_object_set_new(json, "loss_rise_half", cli_json_number(e->loss_rise_half));
    json_object_set_new(json, "stability", cli_json_number(e->stability));
    json_object_set_new(json, "formats", *e->formats ? json_string(e->formats) : json_null());
    json_object_set_new(json, "is_beyond_limits",
                        json_boolean((tandem_plan_estimate_beyond(e) & TANDEM_BEYOND_TRUST) != 0));
    json_object_set_new(json, "is_biased",
                        json_boolean((tandem_plan_estimate_beyond(e) & TANDEM_BEYOND_MEAN_ERROR) != 0));
    return json;
}

/* "4.4% (±1.6)"; so many digits as the interval leaves. */
typedef struct known_text {
    char text[3 * TANDEM_QUANTITY_TEXT];
} known_text;
static known_text known(double value, double half, const char *unit)
{
    known_text to;
    const double least = 1e-3 * fabs(value), shown = half > least ? half : least;
    (void)snprintf(to.text, sizeof to.text, "%s%s (\xc2\xb1%s)", tandem_quantity_known_to(value, shown).text,
                   unit, tandem_quantity_plain(half, 2).text);
    return to;
}

static known_text mean_error_text(const tandem_plan_estimate *e)
{
    known_text to;
    if (!isfinite(e->across))
        (void)snprintf(to.text, sizeof to.text, "unknown");
    else if (e->across == 0)
        (void)snprintf(to.text, sizeof to.text, "none seen");
    else
        to = known(100 * e->across, 100 * e->across_half, "%");
    return to;
}

static known_text loss_rise_text(const tandem_plan_estimate *e)
{
    known_text to;
    if (isfinite(e->loss_rise)) return known(e->loss_rise, e->loss_rise_half, " nats");
    (void)snprintf(to.text, sizeof to.text, "not finite");
    return to;
}

static void print_gradient(const tandem_plan_estimate *e)
{
    char against[TANDEM_QUANTITY_TEXT * 4] = "";
    if (!isfinite(e->across)) {
        answer_line("gradient",
                    "its mean is lost in noise: no bias is known. More --repetitions may show one");
        return;
    }
    if (isfinite(e->along))
        (void)tandem_append(against, sizeof against, "; %s of the step is lost",
                            known(100 * e->along, 100 * e->along_half, "%").text);
    answer_line("gradient", "mean error in any direction, of its length: %s%s", mean_error_text(e).text,
                against);
}

static void print_stability(const tandem_plan_estimate *e)
{
    if (isfinite(e->stability))
        answer_line("stability",
                    "%s: the gradient over \xe2\x88\x9a"
                    "3 times its error; not trusted below %g",
                    tandem_quantity_plain(e->stability, 2).text, TANDEM_MIN_STABILITY);
    else
        answer_line("stability", "rounding changes nothing here. Do the gradients vanish?");
}

static void print_limits(const tandem_plan_estimate *e)
{
    const unsigned beyond = tandem_plan_estimate_beyond(e);
    if (beyond & TANDEM_BEYOND_FINITE)
        answer_line("not trusted", "numbers overflow: the loss within the rounding is not finite");
    if (beyond & TANDEM_BEYOND_STEP)
        answer_line("not trusted", "gradients vanish: more than %g%% of the step along them is lost",
                    100 * TANDEM_MAX_LOST_STEP);
    if (beyond & TANDEM_BEYOND_SAMPLES)
        answer_line("not trusted", "it takes more than %g%% extra samples", 100 * TANDEM_MAX_EXTRA_SAMPLES);
    if (beyond & TANDEM_BEYOND_STABILITY)
        answer_line("not trusted", "errors of rounding decide the steps: stability is below %g",
                    TANDEM_MIN_STABILITY);
    if (beyond & TANDEM_BEYOND_BIAS)
        answer_line("not trusted",
                    "the mean of the gradient is off by more than %g%%, and every step repeats such errors",
                    100 * TANDEM_MAX_MEAN_ERROR);
    else if (beyond & TANDEM_BEYOND_MEAN_ERROR)
        answer_line("caution", "the mean of the gradient is off by more than 10%%, and such errors add up");
}

static void print_samples(const char *label, const tandem_plan_estimate *e, const char *rest)
{
    const double half = 100 * fmax(e->samples_high - e->samples, e->samples - e->samples_low);
    const tandem_prediction prediction =
        tandem_prediction_interval(e->samples, e->samples_low, e->samples_high);
    answer_line(label, "%s%% (95%%: %s to %s%%; of sampling: %s to %s%%)%s",
                tandem_quantity_known_to(100 * e->samples, half).text,
                tandem_quantity_plain(100 * prediction.low, 1).text,
                tandem_quantity_plain(100 * prediction.high, 1).text,
                tandem_quantity_known_to(100 * e->samples_low, half).text,
                tandem_quantity_known_to(100 * e->samples_high, half).text, rest);
}

void whole_plan_print_short(const tandem_plan_estimate *e)
{
    char rest[10 * TANDEM_QUANTITY_TEXT];
    (void)snprintf(rest, sizeof rest, " more samples; loss %s, mean error %s, stability %s",
                   loss_rise_text(e).text, mean_error_text(e).text,
                   isfinite(e->stability) ? tandem_quantity_plain(e->stability, 2).text : "without limit");
    print_samples("as a whole", e, rest);
    print_limits(e);
}

void whole_plan_print(const tandem_plan_estimate *e)
{
    print_samples("extra samples", e, ", all operators rounded at once");
    answer_line("loss", "%s nats in fp32; within the rounding %s%s",
                tandem_quantity_plain(e->fp32_loss, 3).text, isfinite(e->loss_rise) ? "higher by " : "",
                loss_rise_text(e).text);
    print_gradient(e);
    print_stability(e);
    print_limits(e);
    answer_line("estimated",
                "%lld samples at a time, %d pairs of batches, up to step %lld; emulated on %s%s%s",
                (long long)e->estimated_batch, e->n_replicate, (long long)e->point[e->n_point - 1], e->device,
                *e->formats ? ", in " : "", e->formats);
}
