/* advise.c: `tandem advise`: whether adding devices pays. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/append.h"
#include "base/clock.h"
#include "base/quantity.h"
#include "cli/prediction.h"
#include "cli/candidate_cluster.h"
#include "cli/command/advise_interval.h"
#include "cli/report_files.h"
#include "cli/table.h"

enum {
    CASE_CURRENT,
    CASE_NEW_ONLY,
    CASE_COMBINED,
    CASE_FIRST_SUBSET,
    MAX_CASE = CASE_FIRST_SUBSET + 2 * TANDEM_MAX_CLASS
};

typedef struct advise_context {
    const cli_options *options;
    const tandem_policy *policy;
    candidate_cluster candidate[MAX_CASE]; /* A, B, A + B, then A with subsets of B */
    int n, n_case, best;                   /* done, and to do */
    int is_worth;                          /* rates are samples/s in fp32's worth */
    int64_t begin_ns;
    advise_interval interval;
} advise_context;

/* --- Clusters --------------------------------------------------------------------------------- */

static tandem_status read_advise_clusters(tandem_cluster *a, tandem_cluster *b, const cli_options *options,
                                          tandem_error *error)
{
    if (!options->model || !options->cluster || !options->add)
        return tandem_error_set(
            error, TANDEM_USAGE,
            "advise needs a model, the current ranks and the new ranks, e.g. --model vit_tiny "
            "--cluster strongest --add weakest");
    if (options->batch_auto != (options->global_batch > 0))
        return tandem_error_set(
            error, TANDEM_USAGE,
            "--batch auto and --global-batch need each other: the samples per step are split "
            "among the ranks");
    int over_network = 0;
    tandem_status status = tandem_workload_transport(&over_network, error);
    if (status == TANDEM_OK) status = tandem_cluster_parse(a, options->cluster, error);
    if (status == TANDEM_OK) status = tandem_cluster_parse(b, options->add, error);
    if (status == TANDEM_OK) status = tandem_cluster_fill_defaults(a, options->batch, NULL, error);
    if (status == TANDEM_OK) status = tandem_cluster_fill_defaults(b, options->batch, NULL, error);
    if (status == TANDEM_OK) {
        a->over_network = b->over_network = over_network;
        a->wire = b->wire = options->wire;
    }
    if (status == TANDEM_OK && a->n_class + b->n_class > TANDEM_MAX_CLASS)
        status = tandem_error_set(error, TANDEM_USAGE,
                                  "the clusters have %d classes together; at most %d are allowed",
                                  a->n_class + b->n_class, TANDEM_MAX_CLASS);
    return status;
}

/* The slower of two links; an unknown link does not count. */
static tandem_link slower_link(tandem_link a, tandem_link b)
{
    if (a.bytes_per_s <= 0) return b;
    if (b.bytes_per_s <= 0) return a;
    return (tandem_link){fmin(a.bytes_per_s, b.bytes_per_s),
                         a.latency_ns > b.latency_ns ? a.latency_ns : b.latency_ns};
}

/* Both clusters are in one network: a link that one text gives holds for both. */
static void share_cluster_links(tandem_cluster *a, tandem_cluster *b)
{
    tandem_cluster *const side[] = {a, b};
    for (int k = 0; k < 2; k++) {
        const tandem_cluster *other = side[1 - k];
        if (side[k]->link_bytes_per_s <= 0) {
            side[k]->link_bytes_per_s = other->link_bytes_per_s;
            side[k]->link_latency_ns = other->link_latency_ns;
        }
        if (side[k]->node.bytes_per_s <= 0) side[k]->node = other->node;
    }
}

static tandem_cluster join_clusters(const tandem_cluster *a, const tandem_cluster *b)
{
    tandem_cluster all = *a;
    memcpy(&all.classes[all.n_class], b->classes, (size_t)b->n_class * sizeof *b->classes);
    all.n_class += b->n_class;
    const tandem_link net = slower_link((tandem_link){a->link_bytes_per_s, a->link_latency_ns},
                                        (tandem_link){b->link_bytes_per_s, b->link_latency_ns});
    all.link_bytes_per_s = net.bytes_per_s;
    all.link_latency_ns = net.latency_ns;
    all.node = slower_link(a->node, b->node);
    return all;
}

/* --- Cases ------------------------------------------------------------------------------------ */

static tandem_status add_advise_case(advise_context *v, const tandem_cluster *cluster, tandem_error *error)
{
    char name[256];
    const int64_t spent_ns = tandem_now_ns() - v->begin_ns;
    cli_progress(v->options, v->n > 0 ? spent_ns / v->n * (v->n_case - v->n) : -1,
                 "searching the best plan: cluster %d of %d, %s", v->n + 1, v->n_case,
                 candidate_cluster_name(name, sizeof name, cluster));
    return candidate_cluster_find(&v->candidate[v->n++], v->options, cluster, v->policy, error);
}

static tandem_status add_subset_cases(advise_context *v, const tandem_cluster *a, const tandem_cluster *b,
                                      tandem_error *error)
{
    tandem_status status = TANDEM_OK;
    for (int c = 0; c < b->n_class && b->n_class > 1 && status == TANDEM_OK; c++) {
        const tandem_cluster part = cli_cluster_without(b, c), joined = join_clusters(a, &part);
        status = add_advise_case(v, &joined, error);
    }
    for (int c = 0; c < b->n_class && status == TANDEM_OK; c++) {
        tandem_cluster part = *b;
        if (part.classes[c].n_rank < 2) continue;
        part.classes[c].n_rank /= 2;
        if (part.classes[c].per_node > part.classes[c].n_rank)
            part.classes[c].per_node = part.classes[c].n_rank;
        const tandem_cluster joined = join_clusters(a, &part);
        status = add_advise_case(v, &joined, error);
    }
    return status;
}

static tandem_status evaluate_cases(advise_context *v, tandem_error *error)
{
    tandem_cluster a, b;
    tandem_status status = read_advise_clusters(&a, &b, v->options, error);
    v->policy = tandem_policy_get(0);
    if (status == TANDEM_OK && v->options->policy)
        status = tandem_policy_find(&v->policy, v->options->policy, error);
    if (status == TANDEM_OK && v->policy->ignores_target)
        status = tandem_error_set(
            error, TANDEM_USAGE,
            "policy %s has a single plan and cannot compare clusters. Use another --policy", v->policy->name);
    if (status != TANDEM_OK) return status;
    share_cluster_links(&a, &b);
    const tandem_cluster all = join_clusters(&a, &b);
    v->begin_ns = tandem_now_ns();
    v->n_case = CASE_FIRST_SUBSET + (b.n_class > 1 ? b.n_class : 0);
    for (int c = 0; c < b.n_class; c++) v->n_case += b.classes[c].n_rank > 1;
    status = add_advise_case(v, &a, error);
    if (status == TANDEM_OK) status = add_advise_case(v, &b, error);
    if (status == TANDEM_OK) status = add_advise_case(v, &all, error);
    if (status == TANDEM_OK) status = add_subset_cases(v, &a, &b, error);
    if (status != TANDEM_OK) return status;
    /* B alone may be impossible; the other two are needed */
    for (int k = CASE_CURRENT; k <= CASE_COMBINED; k += CASE_COMBINED - CASE_CURRENT)
        if (v->candidate[k].error.status != TANDEM_OK && v->candidate[k].error.status != TANDEM_INFEASIBLE) {
            *error = v->candidate[k].error;
            return error->status;
        }
    v->is_worth = candidate_clusters_rate(v->candidate, v->n);
    for (int k = 0; k < v->n; k++)
        if (v->candidate[k].rate > v->candidate[v->best].rate) v->best = k;
    if (v->candidate[v->best].rate > 0) return TANDEM_OK;
    *error = v->candidate[CASE_COMBINED].error;
    return error->status;
}

/* --- Output ----------------------------------------------------------------------------------- */

/* How much faster the best case is, in percent. */
static double best_gain_percent(const advise_context *v, int other)
{
    return 100 * (v->candidate[v->best].rate / v->candidate[other].rate - 1);
}

/* Significant digits of a case, as its sources allow. */
static int case_digits(const advise_context *v, int k)
{
    return cli_cost_sources_digits(&v->candidate[k].sources);
}

static tandem_quantity case_rate(const advise_context *v, int k)
{
    const int digits = case_digits(v, k);
    return v->is_worth ? goodput_rate(&v->candidate[k].goodput, digits)
                       : tandem_quantity_plain(v->candidate[k].rate, digits);
}

static void append_comparison(char *text, size_t size, const advise_context *v, int other)
{
    const candidate_cluster *p = &v->candidate[other];
    const int decimals = case_digits(v, v->best) == 3 && case_digits(v, other) == 3;
    if (p->rate > 0)
        (void)tandem_append(text, size, ", %.*f%% more than %s (%s)", decimals, best_gain_percent(v, other),
                            p->name, case_rate(v, other).text);
    else
        (void)tandem_append(text, size, "; %s has no plan", p->name);
}

/* Whether no time was measured: then the answer is a prediction, not advice. */
static int is_predicted_only(const advise_context *v)
{
    for (int k = 0; k < v->n; k++)
        if (v->candidate[k].goodput.samples_per_s > 0 &&
            !tandem_time_sources_are_described(&v->candidate[k].sources))
            return 0;
    return 1;
}

/* The case whose cost sources are printed: preferably the one with all classes. */
static int case_with_sources(const advise_context *v)
{
    return v->candidate[CASE_COMBINED].goodput.samples_per_s > 0 ? CASE_COMBINED : v->best;
}

static const char *advise_method(const advise_context *v)
{
    return v->options->method ? v->options->method : tandem_sensitivity_get(0)->name;
}

/* The advice or the prediction, with the gain. */
static void print_advice(char *text, size_t size, const advise_context *v)
{
    enum { N_ANSWER = 4 };
    static const char *const advice[N_ANSWER] = {"Do not add them: use fewer devices",
                                                 "Use only the added ones: fewer devices", "Add them",
                                                 "Add part of them: use fewer devices"};
    static const char *const statement[N_ANSWER] = {"Adding none of them", "Using only the added ones",
                                                    "Adding them", "Adding part of them"};
    const candidate_cluster *best = &v->candidate[v->best];
    const int answer = v->best < CASE_FIRST_SUBSET ? v->best : CASE_FIRST_SUBSET,
              predicted = is_predicted_only(v);
    (void)snprintf(text, size, "%s%s. %s %s %s samples/s%s", predicted ? statement[answer] : advice[answer],
                   predicted ? " is predicted to be fastest" : "", best->name,
                   predicted ? "is predicted to make" : "makes", case_rate(v, v->best).text,
                   v->is_worth ? " in fp32's worth" : "");
    if (v->best != CASE_CURRENT) append_comparison(text, size, v, CASE_CURRENT);
    if (v->best != CASE_COMBINED) append_comparison(text, size, v, CASE_COMBINED);
    (void)tandem_append(text, size, ". The sensitivities of its plan sum to %s (%s).%s",
                        goodput_sum(&best->goodput, advise_method(v), best->sensitivity_bound).text,
                        cli_method_text(advise_method(v)),
                        v->best != CASE_COMBINED && !v->options->batch_auto
                            ? " --batch auto --global-batch N splits a batch so that ranks finish together."
                            : "");
    advise_interval_print(text, size, &v->interval, v->candidate);
}

static const char *no_plan_reason(const candidate_cluster *candidate)
{
    return candidate->error.status == TANDEM_MISSING      ? "not measured"
           : candidate->error.status == TANDEM_INFEASIBLE ? "nothing fits"
                                                          : "no such split";
}

/* Prints which cases have a loss scale in the step. */
static void print_advise_loss_scales(const advise_context *v)
{
    char scale[TANDEM_LOSS_SCALE_TEXT];
    int n = 0, n_planned = 0;
    for (int k = 0; k < v->n; k++) {
        n_planned += v->candidate[k].goodput.samples_per_s > 0;
        if (v->candidate[k].goodput.samples_per_s > 0 && v->candidate[k].loss_scale != 0)
            tandem_loss_scale_print(scale, v->candidate[k].loss_scale), n++;
    }
    if (n == 0) return;
    printf("%d of %d steps include a loss scale (--loss-scale %s), which gradients in f16 need", n, n_planned,
           scale);
    for (int k = 0; k < v->n && n < n_planned; k++)
        if (v->candidate[k].goodput.samples_per_s > 0 && v->candidate[k].loss_scale == 0)
            printf("; not %s", v->candidate[k].name);
    putchar('\n');
}

static int print_advise_text(const advise_context *v, const char *verdict)
{
    static const char *const role[] = {"current", "new only", "combined"};
    char batches[256], price[SENSITIVITY_TEXT];
    cli_table table = {0};
    cli_table_row(&table, "\tranks\tbatch/rank\t>samples/s\t>step\t>sum (%s)\t>more samples %%%s\t>memory\t",
                  cli_method_text(advise_method(v)), v->is_worth ? "\t>worth/s" : "");
    for (int k = 0; k < v->n; k++) {
        const candidate_cluster *p = &v->candidate[k];
        const char *name = k < CASE_FIRST_SUBSET ? role[k] : "subset";
        int64_t batch[TANDEM_MAX_CLASS];
        for (int c = 0; c < p->cluster.n_class; c++) batch[c] = p->cluster.classes[c].batch;
        cli_batch_list_print(batches, sizeof batches, batch, p->cluster.n_class);
        if (p->goodput.samples_per_s > 0)
            cli_table_row(&table, "%s\t%s\t%s\t%s\t%s\t%s\t%s%s%s\t%s\t%s", name, p->name, batches,
                          tandem_quantity_plain(p->goodput.samples_per_s, case_digits(v, k)).text,
                          tandem_quantity_ns_to(p->allocation.step_ns, case_digits(v, k)).text,
                          goodput_sum(&p->goodput, advise_method(v), p->sensitivity_bound).text,
                          goodput_sensitivity(price, &p->goodput), v->is_worth ? "\t" : "",
                          v->is_worth ? case_rate(v, k).text : "", CLI_PEAK_TEXT(p->peak_bytes),
                          k == v->best ? "<" : "");
        else
            cli_table_row(&table, "%s\t%s\t%s\t-\t-\t-\t-%s\t-\t%s", name, p->name,
                          v->options->batch_auto ? "-" : batches, v->is_worth ? "\t-" : "",
                          no_plan_reason(p));
    }
    const int code = cli_table_finish(&table);
    if (!code) {
        printf("\n%s\n", verdict);
        goodput_print(&v->candidate[v->best].goodput);
        print_advise_loss_scales(v);
        cli_cost_sources_print(&v->candidate[case_with_sources(v)].sources);
    }
    for (int k = 0; k < v->n; k++)
        if (v->candidate[k].error.status != TANDEM_OK)
            cli_note(v->options, "%s: %s", v->candidate[k].name, v->candidate[k].error.text);
    return code;
}

static json_t *advise_result_json(const advise_context *v, const char *verdict)
{
    static const char *const role[] = {"current", "new_only", "combined"};
    json_t *result = cli_json_new("advise"), *cases = json_array();
    for (int k = 0; k < v->n; k++) {
        json_t *one = candidate_cluster_json(&v->candidate[k]);
        json_object_set_new(one, "role", json_string(k < CASE_FIRST_SUBSET ? role[k] : "subset"));
        json_array_append_new(cases, one);
    }
    json_object_set_new(result, "model", json_string(v->candidate[v->best].model));
    json_object_set_new(result, "policy", json_string(v->policy->name));
    json_object_set_new(result, "method", json_string(advise_method(v)));
    json_object_set_new(result, "slowdown", json_real(fmax(v->options->slowdown, 0)));
    json_object_set_new(result, "cases", cases);
    json_object_set_new(result, "compared_by",
                        json_string(v->is_worth ? "fp32_worth_samples_per_s" : "samples_per_s"));
    json_object_set_new(result, "best", json_integer(v->best));
    json_object_set_new(result, "worth_adding", json_boolean(v->best != CASE_CURRENT));
    json_object_set_new(result, "from_descriptions", json_boolean(is_predicted_only(v)));
    json_object_set_new(result, "interval_80", advise_interval_json(&v->interval));
    json_object_set_new(result, "verdict", json_string(verdict));
    return result;
}

/* --- The command ------------------------------------------------------------------------------ */

static int run_advise(const cli_options *options)
{
    tandem_error error = {0};
    advise_context v = {.options = options};
    char verdict[2048];
    if (cli_report_check(options, &error) != TANDEM_OK || evaluate_cases(&v, &error) != TANDEM_OK)
        return cli_fail(&error);
    advise_interval_find(&v.interval, v.candidate, v.n, CASE_CURRENT, v.best);
    print_advice(verdict, sizeof verdict, &v);
    const int code =
        options->json ? cli_print_json(advise_result_json(&v, verdict)) : print_advise_text(&v, verdict);
    return code == 0 && options->report
               ? cli_report_write_result(options, advise_result_json(&v, verdict), "advise")
               : code;
}

static const int options[] = {
    OPTION_MODEL,          OPTION_SET,          OPTION_LOSS,       OPTION_CLUSTER,        OPTION_ADD,
    OPTION_BATCH,          OPTION_POLICY,       OPTION_SLOWDOWN,   OPTION_BASE_PRECISION, OPTION_METHOD,
    OPTION_BUCKET,         OPTION_COLLECTIVE,   OPTION_WIRE,       OPTION_PREDICT,        OPTION_KERNELS,
    OPTION_WITHOUT_UPDATE, OPTION_GLOBAL_BATCH, OPTION_LOSS_SCALE, OPTION_REPORT,         OPTION_DB,
    OPTION_QUIET,          OPTION_END};
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
        "of its ranks. Each case has the plan with the most samples/s in fp32's worth, that is the least\n"
        "step x (1 + sensitivity); with --slowdown the least sensitive one. The case with the most samples/s "
        "in\n"
        "fp32's worth is best. Where a plan's price is not known, samples/s decide. The answer may be to\n"
        "use fewer devices.\n"
        "With --batch, every rank has its own batch, so more ranks take more samples per step. With\n"
        "--batch auto --global-batch N, all cases have N samples per step, split among unlike ranks.\n"
        "A net= or node= of one cluster holds for both.\n"
        "--base-precision is the precision of your training today; classes that need not be lowered keep "
        "it.\n"
        "A plan with gradients in f16 has --loss-scale dynamic in its step.\n"
        "Needs costs (`tandem profile` or --predict) and a sensing of the model (`tandem sensitivity`).",
    .run = run_advise,
};
