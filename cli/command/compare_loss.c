/* compare_loss.c: `tandem compare --measure-loss`: what a plan costs in loss and in samples. */
#include <math.h>
#include <stdio.h>

#include "base/quantity.h"
#include "cli/answer.h"
#include "cli/command/compare.h"
#include "runtime/process/rank_place.h"
#include "tandem/runtime.h"

/* --- As JSON -------------------------------------------------------------------------------------------- */

static json_t *interval_json(const tandem_trial_interval *of)
{
    return json_pack("{s:o,s:o,s:o}", "mean", cli_json_number(of->mean), "low", cli_json_number(of->low),
                     "high", cli_json_number(of->high));
}

/* formats: those of --emulate; "": each dtype's own. */
static json_t *loss_result_json(const tandem_loss_result *r, double at_most, const char *formats)
{
    const tandem_trial_result *t = &r->trial;
    json_t *json = cli_json_new("compare_loss");
    json_object_set_new(json, "model", json_string(r->model));
    json_object_set_new(json, "plan", json_string(r->plan));
    json_object_set_new(json, "base", json_string(r->base));
    json_object_set_new(json, "formats", *formats ? json_string(formats) : json_null());
    json_object_set_new(json, "emulated_on", *r->emulated_on ? json_string(r->emulated_on) : json_null());
    json_object_set_new(json, "steps_before", json_integer(r->begin));
    json_object_set_new(json, "steps", json_integer(r->steps));
    json_object_set_new(json, "pairs", json_integer(t->n_pair));
    json_object_set_new(json, "diverged", json_integer(t->n_diverged));
    json_object_set_new(json, "branches_known", json_integer(r->n_known));
    json_object_set_new(json, "branch_ns", json_integer(r->branch_ns));
    json_object_set_new(json, "pair_ns", json_integer(r->pair_ns));
    json_object_set_new(json, "first_seed", json_integer((json_int_t)r->first_seed));
    json_object_set_new(json, "base_loss", cli_json_number(t->base_loss));
    json_object_set_new(json, "training", interval_json(&t->training));
    json_object_set_new(json, "held_out", interval_json(&t->held_out));
    json_object_set_new(json, "held_out_in_base", interval_json(&t->held_out_in_base));
    json_object_set_new(json, "extra_samples", interval_json(&t->extra));
    json_object_set_new(json, "at_most", at_most < 0 ? json_null() : json_real(at_most));
    json_object_set_new(json, "answer",
                        at_most < 0 ? json_null() : json_string(tandem_trial_answer_name(t->answer)));
    json_object_set_new(json, "pairs_needed", json_integer(t->pairs_needed));
    return json;
}

/* --- As text -------------------------------------------------------------------------------------------- */

static answer_text interval_of(const tandem_trial_interval *of, double factor, const char *unit)
{
    return answer_interval(factor * of->mean, factor * of->low, factor * of->high, unit);
}

/* How many pairs may decide, and in which time. */
static void print_undecided(const tandem_loss_result *r)
{
    const tandem_trial_result *t = &r->trial;
    const int64_t left_ns = (t->pairs_needed - t->n_pair) * r->pair_ns;
    if (isnan(t->extra.mean))
        answer_line("answer", "unknown: %s's loss does not fall over these steps", r->base);
    else if (t->pairs_needed < 0)
        answer_line("answer", "undecided after %d pairs; %d would not decide: take more --steps", t->n_pair,
                    TANDEM_TRIAL_MOST_PAIRS);
    else
        answer_line("answer", "undecided after %d pairs: --repetitions %d may decide%s%s", t->n_pair,
                    t->pairs_needed, left_ns > 0 ? ", in some " : "",
                    left_ns > 0 ? tandem_quantity_ns(left_ns).text : "");
}

static void print_loss_decision(const tandem_loss_result *r, double at_most)
{
    const tandem_trial_result *t = &r->trial;
    if (t->answer == TANDEM_TRIAL_UNDECIDED)
        print_undecided(r);
    else
        answer_line("answer", "%s than %s extra samples, after %d pairs",
                    t->answer == TANDEM_TRIAL_BEYOND ? "no: more" : "yes: not more",
                    tandem_quantity_ratio(at_most).text, t->n_pair);
}

static void print_loss_result(const tandem_loss_result *r, double at_most, const char *formats)
{
    const tandem_trial_result *t = &r->trial;
    cli_progress_end();
    if (at_most >= 0) print_loss_decision(r, at_most);
    if (t->n_diverged) answer_line("diverged", "the plan, in %d of %d pairs", t->n_diverged, t->n_pair);
    if (isnan(t->extra.mean))
        answer_line("extra samples", "unknown: %s's loss does not fall over these steps", r->base);
    else
        answer_line("extra samples", "%s to the same training loss", interval_of(&t->extra, 100, "%").text);
    answer_line("training loss", "%s over %s's %s nats, inside the rounding",
                interval_of(&t->training, 1, "").text, r->base, tandem_quantity_plain(t->base_loss, 4).text);
    if (!isnan(t->held_out.mean))
        answer_line("held-out loss", "%s in the plan's precisions; %s in %s",
                    interval_of(&t->held_out, 1, "").text, interval_of(&t->held_out_in_base, 1, "").text,
                    r->base);
    answer_line("trial", "%s, %s against %s; %d pair%s of %lld steps after step %lld%s%s%s%s", r->model,
                r->plan, r->base, t->n_pair, t->n_pair == 1 ? "" : "s", (long long)r->steps,
                (long long)r->begin, *r->emulated_on ? ", emulated on " : "", r->emulated_on,
                *formats ? " in " : "", formats);
    if (r->n_known) answer_line("stored", "%d of %d branches were in the store", r->n_known, 2 * t->n_pair);
}

/* --- The command ---------------------------------------------------------------------------------------- */

static tandem_status make_loss_request(tandem_loss_request *request, const cli_options *options,
                                       tandem_error *error)
{
    *request = tandem_loss_request_default();
    const int64_t steps = request->train.steps;
    tandem_status status = cli_train_request(&request->train, options, error);
    if (status == TANDEM_OK && rank_place_from_environment(&request->train.place, error) < 0)
        status = error->status;
    if (options->steps < 0) request->train.steps = steps;
    request->train.made = NULL;
    request->base = options->base_precision;
    if (cli_option_given(options, OPTION_REPETITIONS))
        request->n_pair = options->repetitions < INT32_MAX ? (int)options->repetitions : INT32_MAX;
    if (options->at_most >= 0) request->at_most = options->at_most;
    return status;
}

int cli_compare_loss(const cli_options *options)
{
    tandem_error error = {0};
    tandem_loss_request request;
    tandem_loss_result result;
    tandem_status status = make_loss_request(&request, options, &error);
    if (status == TANDEM_OK) status = tandem_compare_loss(&result, &request, &error);
    if (status != TANDEM_OK) return cli_fail(&error);
    int code = 0;
    const char *const formats = options->emulate ? options->emulate : "";
    if (options->json)
        code = cli_print_json(loss_result_json(&result, options->at_most, formats));
    else
        print_loss_result(&result, options->at_most, formats);
    return code == 0 && result.trial.answer == TANDEM_TRIAL_BEYOND ? 1 : code;
}
