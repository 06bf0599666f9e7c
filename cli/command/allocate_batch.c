/* allocate_batch.c: `tandem allocate --batch auto`: splits the global batch among the classes and chooses
 * precisions. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/append.h"
#include "base/quantity.h"
#include "cli/answer.h"
#include "cli/command/allocate.h"
#include "cli/table.h"

/* --- Output ----------------------------------------------------------------------------------- */

enum { N_BATCH_PLAN = 3 };
static const char *const batch_plan_name[N_BATCH_PLAN] = {"precision alone", "batch alone", "both"};

static const tandem_batch_plan *batch_plan_at(const tandem_batch_choice *choice, int k)
{
    return k == 0 ? &choice->precision_alone : k == 1 ? &choice->batch_alone : &choice->both;
}

typedef struct split_context {
    const cli_options *options;
    tandem_answer answer;
    const tandem_graph *graph;
    int is_estimated;
} split_context;

static void add_split_row(cli_table *table, const split_context *s, int k)
{
    char batches[256], text[SENSITIVITY_TEXT];
    const tandem_batch_plan *one = batch_plan_at(&s->answer.split, k);
    const tandem_goodput *goodput = &one->goodput;
    cli_batch_list_print(batches, sizeof batches, one->batch, s->answer.plan->cluster.n_class);
    if (!one->plan) {
        cli_table_row(table, "%s\t%s\tno plan there", batch_plan_name[k], batches);
        return;
    }
    const tandem_quantity step = tandem_quantity_ns(one->allocation.step_ns),
                          sum = goodput_sum(goodput, s->answer.plan->method, one->plan->sensitivity_bound);
    if (s->is_estimated)
        cli_table_row(table, "%s\t%s\t%s\t%.1f\t%s\t%s\t%s", batch_plan_name[k], batches, step.text,
                      goodput->samples_per_s, sum.text, goodput_sensitivity(text, goodput),
                      goodput_rate(goodput, GOODPUT_DIGITS).text);
    else
        cli_table_row(table, "%s\t%s\t%s\t%.1f\t%s", batch_plan_name[k], batches, step.text,
                      goodput->samples_per_s, sum.text);
}

static int print_split_text(const split_context *s)
{
    char cluster[1024], batches[256], micro[64] = "", missing[64] = "";
    const int n_micro = s->options->step.n_micro;
    const tandem_batch_plan *both = &s->answer.split.both;
    tandem_cluster without_batches = s->answer.plan->cluster;
    cli_table table = {0};
    for (int c = 0; c < without_batches.n_class; c++) without_batches.classes[c].batch = 0;
    tandem_cluster_print(cluster, sizeof cluster, &without_batches);
    if (n_micro > 1) (void)snprintf(micro, sizeof micro, " in %d micro-steps", n_micro);
    if (s->answer.split.n_missing)
        (void)snprintf(missing, sizeof missing, ", %d others not measured", s->answer.split.n_missing);
    cli_batch_list_print(batches, sizeof batches, both->batch, s->answer.plan->cluster.n_class);
    answer_line("batch split", "%s on %s: %lld samples per step%s", batches, cluster,
                (long long)s->options->global_batch, micro);
    answer_line("step", "%s, %.1f samples/s", tandem_quantity_ns(both->allocation.step_ns).text,
                both->goodput.samples_per_s);
    answer_extra_samples(&both->goodput);
    answer_line("search", "%d splits compared%s", s->answer.split.n_split, missing);
    allocate_print_loss_scale(s->answer.plan->loss_scale, s->answer.plan, s->graph);
    putchar('\n');
    cli_table_row(&table, "chosen\tbatch/rank\t>step\t>samples/s\t>sum (%s)%s",
                  cli_method_text(s->answer.plan->method),
                  s->is_estimated ? "\t>extra samples % (sampling)\t>goodput/s" : "");
    for (int k = 0; k < N_BATCH_PLAN; k++) add_split_row(&table, s, k);
    return cli_table_finish(&table);
}

static json_t *batch_plan_json(const tandem_batch_plan *one, int n_class)
{
    json_t *batches = json_array();
    for (int c = 0; c < n_class; c++) json_array_append_new(batches, json_integer(one->batch[c]));
    if (!one->plan)
        return json_pack("{s:o,s:n,s:n,s:n}", "batch", batches, "step_ns", "samples_per_s",
                         "sensitivity_bound");
    json_t *made = json_pack("{s:o,s:I,s:f,s:o}", "batch", batches, "step_ns",
                             (json_int_t)one->allocation.step_ns, "samples_per_s", one->goodput.samples_per_s,
                             "sensitivity_bound", cli_json_number(one->plan->sensitivity_bound));
    goodput_add_json(made, &one->goodput);
    return made;
}

static int print_split_json(const split_context *s)
{
    static const char *const json_name[N_BATCH_PLAN] = {"precision_alone", "batch_alone", "both"};
    json_t *result = cli_json_new("allocate");
    json_object_set_new(result, "model", json_string(s->answer.plan->model));
    json_object_set_new(result, "method", json_string(s->answer.plan->method));
    json_object_set_new(result, "global_batch", json_integer(s->options->global_batch));
    json_object_set_new(result, "micro_steps",
                        json_integer(s->options->step.n_micro > 1 ? s->options->step.n_micro : 1));
    json_object_set_new(result, "loss_scale", cli_loss_scale_json(s->answer.plan->loss_scale));
    json_object_set_new(result, "splits", json_integer(s->answer.split.n_split));
    json_object_set_new(result, "splits_not_measured", json_integer(s->answer.split.n_missing));
    for (int k = 0; k < N_BATCH_PLAN; k++)
        json_object_set_new(
            result, json_name[k],
            batch_plan_json(batch_plan_at(&s->answer.split, k), s->answer.plan->cluster.n_class));
    return cli_print_json(result);
}

/* --- Public ----------------------------------------------------------------------------------- */

static tandem_status write_split_plan(const split_context *s, tandem_error *error)
{
    if (!s->options->output) return TANDEM_OK;
    s->answer.plan->made = *cli_made();
    return tandem_plan_write(s->answer.plan, s->graph, s->options->output, error);
}

/* Whether the model has an estimate: without that, no plan's sensitivity is known. */
static tandem_status find_split_estimate(split_context *s, tandem_error *error)
{
    const tandem_estimate *estimate = NULL;
    const char *why = NULL;
    const tandem_status status = tandem_planner_estimate(&estimate, &why, s->answer.planner, error);
    s->is_estimated = estimate != NULL;
    return status;
}

int allocate_batch(allocate_context *a)
{
    tandem_error error = {0};
    split_context s = {.options = a->options};
    const int is_plan_on_stdout = a->options->output && strcmp(a->options->output, "-") == 0;
    int code = 0;
    tandem_status status = tandem_answer_open(&s.answer, &a->request, &error);
    if (status == TANDEM_OK) s.graph = tandem_planner_graph(s.answer.planner, 0);
    if (status == TANDEM_OK) status = find_split_estimate(&s, &error);
    if (status == TANDEM_OK) status = write_split_plan(&s, &error);
    if (status != TANDEM_OK)
        code = cli_fail(&error);
    else if (!is_plan_on_stdout)
        code = a->options->json ? print_split_json(&s) : print_split_text(&s);
    if (code == 0 && a->options->output && !is_plan_on_stdout)
        cli_note(a->options, "plan written to %s", a->options->output);
    tandem_answer_close(&s.answer);
    return code;
}
