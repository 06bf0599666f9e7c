/* advise.c: `tandem advise`: whether adding devices pays. */
#include <math.h>
#include <stdio.h>

#include "base/append.h"
#include "base/clock.h"
#include "base/quantity.h"
#include "cli/answer.h"
#include "cli/candidate_json.h"
#include "cli/goodput.h"
#include "cli/prediction.h"
#include "cli/ratios.h"
#include "cli/report_files.h"
#include "cli/table.h"

/* --- Output ----------------------------------------------------------------------------------- */

/* How much faster the best case is, in percent. */
static double best_gain_percent(const tandem_advice *v, int other)
{
    return 100 * (v->candidate[v->best].rate / v->candidate[other].rate - 1);
}

/* Significant digits of a case, as its sources allow. */
static int case_digits(const tandem_advice *v, int k)
{
    return cli_cost_sources_digits(&v->candidate[k].answer.sources);
}

static tandem_quantity case_rate(const tandem_advice *v, int k)
{
    const int digits = case_digits(v, k);
    return v->by_goodput ? goodput_rate(&v->candidate[k].answer.goodput, digits)
                         : tandem_quantity_plain(v->candidate[k].rate, digits);
}

static void append_comparison(char *text, size_t size, const tandem_advice *v, int other)
{
    const tandem_candidate *p = &v->candidate[other];
    const int decimals = case_digits(v, v->best) == 3 && case_digits(v, other) == 3;
    if (p->rate > 0)
        (void)tandem_append(text, size, ", %.*f%% more than %s (%s)", decimals, best_gain_percent(v, other),
                            p->name, case_rate(v, other).text);
    else
        (void)tandem_append(text, size, "; %s has no plan", p->name);
}

/* The case whose cost sources are printed: preferably the one with all classes. */
static int case_with_sources(const tandem_advice *v)
{
    return v->candidate[TANDEM_CASE_COMBINED].answer.plan ? TANDEM_CASE_COMBINED : v->best;
}

/* Whether it holds across the intervals of predicted times; nothing without any. */
static void append_interval(char *text, size_t size, const tandem_advice_interval *v,
                            const tandem_candidate *candidate)
{
    if (v->n == 0) return;
    if (v->holds) {
        (void)tandem_append(text, size, "It holds across the 80%% intervals of");
        for (int k = 0; k < v->n; k++)
            (void)tandem_append(text, size, "%s %s (%.0f%%)",
                                k == 0         ? ""
                                : k + 1 < v->n ? ","
                                               : " and",
                                v->shift[k].device, 100 * v->shift[k].half);
        (void)tandem_append(text, size, ".");
        return;
    }
    (void)tandem_append(text, size, "It does not hold across the 80%% intervals: with");
    for (int k = 0, n = 0; k < v->n; k++) {
        const double factor = v->shift[k].factor;
        if (fabs(factor - 1) < 1e-9) continue;
        (void)tandem_append(text, size, "%s the times of %s %.0f%% %s", n++ ? " and" : "", v->shift[k].device,
                            100 * fabs(factor - 1), factor > 1 ? "longer" : "shorter");
    }
    (void)tandem_append(text, size, ", %s has more.", candidate[v->best].name);
}

/* The advice or the prediction, with the gain. */
static void write_advice(char *text, size_t size, const tandem_advice *v, const cli_options *options)
{
    enum { N_ANSWER = 4 };
    static const char *const advice[N_ANSWER] = {"Do not add them: use fewer devices",
                                                 "Use only the added ones: fewer devices", "Add them",
                                                 "Add part of them: use fewer devices"};
    static const char *const statement[N_ANSWER] = {"Adding none of them", "Using only the added ones",
                                                    "Adding them", "Adding part of them"};
    const tandem_candidate *best = &v->candidate[v->best];
    const int answer = v->best < TANDEM_CASE_SUBSET ? v->best : TANDEM_CASE_SUBSET,
              predicted = v->is_described;
    (void)snprintf(text, size, "%s%s. %s has a %s%s of %s samples/s",
                   predicted ? statement[answer] : advice[answer],
                   predicted ? " is predicted to be fastest" : "", best->name, predicted ? "predicted " : "",
                   v->by_goodput ? "goodput" : "rate", case_rate(v, v->best).text);
    if (v->best != TANDEM_CASE_CURRENT) append_comparison(text, size, v, TANDEM_CASE_CURRENT);
    if (v->best != TANDEM_CASE_COMBINED) append_comparison(text, size, v, TANDEM_CASE_COMBINED);
    (void)tandem_append(text, size, ".%s",
                        v->best != TANDEM_CASE_COMBINED && !options->batch_auto
                            ? " --batch auto --global-batch N splits a batch so that ranks finish together."
                            : "");
}

static const char *no_plan_reason(const tandem_candidate *candidate)
{
    return candidate->error.status == TANDEM_MISSING      ? "not measured"
           : candidate->error.status == TANDEM_INFEASIBLE ? "nothing fits"
                                                          : "no such split";
}

static double scale_of_case(const tandem_candidate *candidate)
{
    return candidate->answer.plan ? candidate->answer.plan->loss_scale : 0;
}

/* Prints which cases have a loss scale in the step. */
static void print_advise_loss_scales(const tandem_advice *v)
{
    char scale[TANDEM_LOSS_SCALE_TEXT], without[1024] = "";
    int n = 0, n_planned = 0;
    for (int k = 0; k < v->n; k++) {
        n_planned += v->candidate[k].answer.plan != NULL;
        if (scale_of_case(&v->candidate[k]) != 0)
            tandem_loss_scale_print(scale, scale_of_case(&v->candidate[k])), n++;
    }
    if (n == 0) return;
    for (int k = 0; k < v->n && n < n_planned; k++)
        if (v->candidate[k].answer.plan && scale_of_case(&v->candidate[k]) == 0)
            (void)tandem_append(without, sizeof without, "; not in %s", v->candidate[k].name);
    answer_line("loss scale", "%s, in %d of %d steps, whose gradients are f16%s", scale, n, n_planned,
                without);
}

static void add_case_row(cli_table *table, const tandem_advice *v, int k, const cli_options *options)
{
    static const char *const role[] = {"current", "new only", "combined"};
    char batches[256], sensitivity[SENSITIVITY_TEXT];
    const tandem_candidate *p = &v->candidate[k];
    const tandem_answer *answer = &p->answer;
    const char *name = k < TANDEM_CASE_SUBSET ? role[k] : "subset";
    int64_t batch[TANDEM_MAX_CLASS];
    for (int c = 0; c < p->cluster.n_class; c++) batch[c] = p->cluster.classes[c].batch;
    cli_batch_list_print(batches, sizeof batches, batch, p->cluster.n_class);
    if (answer->plan)
        cli_table_row(
            table, "%s\t%s\t%s\t%s\t%s\t%s\t%s%s%s\t%s\t%s", name, p->name, batches,
            tandem_quantity_plain(answer->goodput.samples_per_s, case_digits(v, k)).text,
            tandem_quantity_ns_to(answer->allocation.step_ns, case_digits(v, k)).text,
            goodput_sum(&answer->goodput, answer->plan->method, answer->plan->sensitivity_bound).text,
            goodput_sensitivity(sensitivity, &answer->goodput), v->by_goodput ? "\t" : "",
            v->by_goodput ? case_rate(v, k).text : "", CLI_PEAK_TEXT(cli_largest_peak(answer)),
            k == v->best ? "<" : "");
    else
        cli_table_row(table, "%s\t%s\t%s\t-\t-\t-\t-%s\t-\t%s", name, p->name,
                      options->batch_auto ? "-" : batches, v->by_goodput ? "\t-" : "", no_plan_reason(p));
}

static void print_advise_answer(const tandem_advice *v, const char *advice, const char *interval)
{
    const tandem_time_sources *sources = &v->candidate[case_with_sources(v)].answer.sources;
    answer_line("advice", "%s", advice);
    if (*interval) answer_line("certainty", "%s", interval);
    answer_extra_samples(&v->candidate[v->best].answer.goodput);
    answer_times(sources, NAN);
    ratios_print(&v->ratios);
    print_advise_loss_scales(v);
}

static int print_advise_text(const tandem_advice *v, const cli_options *options, const char *advice,
                             const char *interval)
{
    cli_table table = {0};
    print_advise_answer(v, advice, interval);
    cli_table_row(
        &table,
        "\tranks\tbatch/rank\t>samples/s\t>step\t>sum (%s)\t>extra samples %% (sampling)%s\t>memory\t",
        cli_method_text(v->candidate[v->best].answer.plan->method), v->by_goodput ? "\t>goodput/s" : "");
    for (int k = 0; k < v->n; k++) add_case_row(&table, v, k, options);
    putchar('\n');
    const int code = cli_table_finish(&table);
    if (!code && options->details) {
        putchar('\n');
        answer_extra_samples_details(&v->candidate[v->best].answer.goodput);
        answer_times_details(&v->candidate[case_with_sources(v)].answer.sources);
        (void)ratios_print_details(&v->ratios);
    }
    for (int k = 0; k < v->n; k++)
        if (v->candidate[k].error.status != TANDEM_OK)
            cli_note(options, "%s: %s", v->candidate[k].name, v->candidate[k].error.text);
    return code;
}

/* {"holds", "best", "devices": [{"device", "half", "factor"}]}, or null. */
static json_t *advise_interval_json(const tandem_advice_interval *v)
{
    if (v->n == 0) return json_null();
    json_t *const devices = json_array();
    for (int k = 0; k < v->n; k++)
        json_array_append_new(devices, json_pack("{s:s,s:f,s:f}", "device", v->shift[k].device, "half",
                                                 v->shift[k].half, "factor", v->shift[k].factor));
    return json_pack("{s:b,s:o,s:o}", "holds", v->holds, "best",
                     v->best < 0 ? json_null() : json_integer(v->best), "devices", devices);
}

static json_t *advise_result_json(const tandem_advice *v, const cli_options *options, const char *advice,
                                  const char *interval)
{
    char verdict[4096];
    const tandem_plan *plan = v->candidate[v->best].answer.plan;
    static const char *const role[] = {"current", "new_only", "combined"};
    json_t *result = cli_json_new("advise"), *cases = json_array();
    for (int k = 0; k < v->n; k++) {
        json_t *one = cli_candidate_json(&v->candidate[k]);
        json_object_set_new(one, "role", json_string(k < TANDEM_CASE_SUBSET ? role[k] : "subset"));
        json_array_append_new(cases, one);
    }
    json_object_set_new(result, "model", json_string(plan->model));
    json_object_set_new(result, "policy", json_string(plan->policy));
    json_object_set_new(result, "method", json_string(plan->method));
    json_object_set_new(result, "slowdown", json_real(fmax(options->slowdown, 0)));
    json_object_set_new(result, "cases", cases);
    json_object_set_new(result, "compared_by",
                        json_string(v->by_goodput ? "fp32_goodput_samples_per_s" : "samples_per_s"));
    json_object_set_new(result, "best", json_integer(v->best));
    json_object_set_new(result, "worth_adding", json_boolean(v->best != TANDEM_CASE_CURRENT));
    json_object_set_new(result, "from_descriptions", json_boolean(v->is_described));
    json_object_set_new(result, "interval_80", advise_interval_json(&v->interval));
    json_object_set_new(result, "ratios", ratios_json(&v->ratios));
    (void)snprintf(verdict, sizeof verdict, "%s%s%s", advice, *interval ? " " : "", interval);
    json_object_set_new(result, "verdict", json_string(verdict));
    return result;
}

/* --- The command ------------------------------------------------------------------------------ */

typedef struct advise_progress {
    const cli_options *options;
    int64_t begin_ns;
} advise_progress;

static void show_next_case(void *context, int k, int n, const char *cluster)
{
    const advise_progress *p = context;
    const int64_t spent_ns = tandem_now_ns() - p->begin_ns;
    cli_progress(p->options, k > 0 ? spent_ns / k * (n - k) : -1,
                 "searching the best plan: cluster %d of %d, %s", k + 1, n, cluster);
}

static tandem_status make_advice(tandem_advice *advice, const cli_options *options, tandem_error *error)
{
    advise_progress progress = {options, tandem_now_ns()};
    const tandem_advice_listener listener = {&progress, show_next_case};
    tandem_allocation_request request;
    if (options->batch_auto != (options->global_batch > 0))
        return tandem_error_set(
            error, TANDEM_USAGE,
            "--batch auto and --global-batch need each other: the samples per step are split "
            "among the ranks");
    const tandem_status status = cli_allocation_request(&request, options, error);
    return status == TANDEM_OK ? tandem_advise(advice, &request, options->add, &listener, error) : status;
}

static int run_advise(const cli_options *options)
{
    tandem_error error = {0};
    tandem_advice advice = {.candidate = NULL};
    char text[2048], interval[1024] = "";
    if (cli_report_check(options, &error) != TANDEM_OK || make_advice(&advice, options, &error) != TANDEM_OK)
        return cli_fail(&error);
    write_advice(text, sizeof text, &advice, options);
    append_interval(interval, sizeof interval, &advice.interval, advice.candidate);
    int code = options->json ? cli_print_json(advise_result_json(&advice, options, text, interval))
                             : print_advise_text(&advice, options, text, interval);
    if (code == 0 && options->report)
        code =
            cli_report_write_result(options, advise_result_json(&advice, options, text, interval), "advise");
    tandem_advice_close(&advice);
    return code;
}

static const int options[] = {OPTION_MODEL,
                              OPTION_SET,
                              OPTION_LOSS,
                              OPTION_CLUSTER,
                              OPTION_ADD,
                              OPTION_BATCH,
                              OPTION_POLICY,
                              OPTION_SLOWDOWN,
                              OPTION_BASE_PRECISION,
                              OPTION_METHOD,
                              OPTION_BUCKET,
                              OPTION_COLLECTIVE,
                              OPTION_WIRE,
                              OPTION_PREDICT,
                              OPTION_FROM_DESCRIPTION,
                              OPTION_KERNELS,
                              OPTION_WITHOUT_UPDATE,
                              OPTION_GLOBAL_BATCH,
                              OPTION_LOSS_SCALE,
                              OPTION_REPORT,
                              OPTION_DB,
                              OPTION_QUIET,
                              OPTION_PROOF_WORK,
                              OPTION_DETAILS,
                              OPTION_END};
const cli_command command_advise = {
    .name = "advise",
    .words = "",
    .summary = "Whether adding devices to a cluster pays",
    .option = options,
    .description =
        "Examples:\n"
        "  tandem advise --model vit_tiny --cluster strongest --add weakest\n"
        "  tandem advise --model resnet20 --cluster \"2*strongest\" --add \"2*cpu:avx + weakest\" "
        "--slowdown 3%\n"
        "  tandem advise --model resnet50 --cluster \"16*v100@8 net=100Gbit/s,5us\" --add \"16*t4@8\" "
        "--predict \\\n"
        "    --base-precision fp16 --batch auto --global-batch 1024       with GPU descriptions, on any "
        "machine\n"
        "Compares the current ranks, the new ranks alone, both together, and both without one new class or "
        "half\n"
        "of its ranks. Each case has the plan with the highest goodput, that is the least\n"
        "step x (1 + sensitivity); with --slowdown the least sensitive one. The case with the highest "
        "goodput is best.\n"
        "Where a plan's extra samples are not known, samples/s decide. The answer may be to use fewer "
        "devices.\n"
        "With --batch, every rank has its own batch, so more ranks take more samples per step. With\n"
        "--batch auto --global-batch N, all cases have N samples per step, split among mixed devices.\n"
        "A net= or node= of one cluster holds for both.\n"
        "--base-precision is the precision of your training today; classes that need not be lowered keep "
        "it.\n"
        "A plan with gradients in f16 has --loss-scale dynamic in its step.\n"
        "Needs costs (`tandem profile` or --predict) and an estimate of the model (`tandem sensitivity`).",
    .run = run_advise,
};
