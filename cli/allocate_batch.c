/* allocate_batch.c: `tandem allocate --batch free`: the global batch split among the classes along with the
 * precisions. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/quantity.h"
#include "cli/allocate.h"
#include "cli/table.h"

/* --- Output ----------------------------------------------------------------------------------- */

enum { N_WAY = 3 };
static const char *const way_name[N_WAY] = {"precision alone", "batch alone", "both"};

static const tandem_batch_plan *way_of(const tandem_batch_choice *choice, int k)
{
    return k == 0 ? &choice->precision_alone : k == 1 ? &choice->batch_alone : &choice->both;
}

typedef struct split {
    const cli_options *options;
    cli_subject subject;
    double loss_scale; /* that is in the steps; 0 = none */
} split;

static int print_text(const split *s, const tandem_batch_choice *choice, const char *method)
{
    char cluster[1024], batches[256], step[TANDEM_QUANTITY_TEXT];
    const int64_t samples = s->options->global_batch;
    const int n_micro = s->options->step.n_micro;
    tandem_cluster without_batches = s->subject.cluster;
    cli_table table = {0};
    for (int c = 0; c < without_batches.n_class; c++) without_batches.classes[c].batch = 0;
    tandem_cluster_print(cluster, sizeof cluster, &without_batches);
    printf("%s on %s, %lld samples a step", s->subject.graph[0]->model, cluster, (long long)samples);
    if (n_micro > 1) printf(" in %d micro-steps", n_micro);
    printf("; %d splits looked at", choice->n_split);
    if (choice->n_missing) printf(", %d of them not measured", choice->n_missing);
    fputs("\n\n", stdout);
    cli_table_row(&table, "chosen\tbatch a rank\t>step\t>samples/s\t>sensitivity (%s)",
                  cli_method_text(method));
    for (int k = 0; k < N_WAY; k++) {
        const tandem_batch_plan *way = way_of(choice, k);
        if (!way->plan) {
            cli_table_row(&table, "%s\t%s\tno plan there", way_name[k],
                          cli_batches_print(batches, sizeof batches, way->batch, s->subject.cluster.n_class));
            continue;
        }
        cli_table_row(&table, "%s\t%s\t%s\t%.1f\t%.4g", way_name[k],
                      cli_batches_print(batches, sizeof batches, way->batch, s->subject.cluster.n_class),
                      tandem_quantity_print_ns(step, sizeof step, way->allocation.step_ns),
                      (double)samples / ((double)way->allocation.step_ns * 1e-9),
                      way->allocation.sensitivity);
    }
    const int code = cli_table_print(&table);
    cli_table_free(&table);
    if (s->loss_scale != 0) putchar('\n');
    allocate_print_loss_scale(s->loss_scale, choice->both.plan, s->subject.graph[0]);
    return code;
}

static json_t *way_json(const tandem_batch_plan *way, int n_class, int64_t samples)
{
    json_t *batches = json_array();
    for (int c = 0; c < n_class; c++) json_array_append_new(batches, json_integer(way->batch[c]));
    if (!way->plan)
        return json_pack("{s:o,s:n,s:n,s:n}", "batch", batches, "step_ns", "samples_per_s", "sensitivity");
    return json_pack("{s:o,s:I,s:f,s:o}", "batch", batches, "step_ns", (json_int_t)way->allocation.step_ns,
                     "samples_per_s", (double)samples / ((double)way->allocation.step_ns * 1e-9),
                     "sensitivity", cli_number(way->allocation.sensitivity));
}

static int print_json(const split *s, const tandem_batch_choice *choice, const char *method)
{
    static const char *const member[N_WAY] = {"precision_alone", "batch_alone", "both"};
    json_t *result = cli_json("allocate");
    json_object_set_new(result, "model", json_string(s->subject.graph[0]->model));
    json_object_set_new(result, "method", json_string(method));
    json_object_set_new(result, "global_batch", json_integer(s->options->global_batch));
    json_object_set_new(result, "micro_steps",
                        json_integer(s->options->step.n_micro > 1 ? s->options->step.n_micro : 1));
    json_object_set_new(result, "loss_scale", cli_loss_scale_json(s->loss_scale));
    json_object_set_new(result, "splits", json_integer(choice->n_split));
    json_object_set_new(result, "splits_not_measured", json_integer(choice->n_missing));
    for (int k = 0; k < N_WAY; k++)
        json_object_set_new(
            result, member[k],
            way_json(way_of(choice, k), s->subject.cluster.n_class, s->options->global_batch));
    return cli_print_json(result);
}

/* --- Public ----------------------------------------------------------------------------------- */

static tandem_status write_plan(const split *s, const tandem_batch_choice *choice, tandem_error *error)
{
    return s->options->output
               ? tandem_plan_write(choice->both.plan, s->subject.graph[0], s->options->output, error)
               : TANDEM_OK;
}

/* What is split among the ranks is a micro-step's part of what was asked for. */
static void mention_micro_steps(tandem_error *error, int n_micro)
{
    const size_t used = strlen(error->text);
    if (error->status == TANDEM_USAGE && n_micro > 1)
        (void)snprintf(error->text + used, sizeof error->text - used,
                       "; --accumulate %d takes %d of them for a --global-batch", n_micro, n_micro);
}

static int has_f16(const split *s, const tandem_batch_choice *choice)
{
    return cli_gradients_in_f16(choice->both.plan, s->subject.graph[0], NULL, 0) > 0;
}

static tandem_status choose(split *s, tandem_batch_choice *choice, const allocating *a, const char *method,
                            double loss_scale, tandem_error *error)
{
    cli_batches problem_of = {
        .options = a->options, .cluster = &s->subject.cluster, .with_norm = loss_scale != 0};
    const tandem_batch_source problems = cli_batches_source(&problem_of);
    const int n_micro = a->options->step.n_micro > 1 ? a->options->step.n_micro : 1;
    tandem_batch_choice_free(choice);
    const tandem_status status =
        tandem_batch_choose(choice, &s->subject.cluster, a->options->global_batch / n_micro, &problems,
                            a->policy, method, a->options->max_step_ns, fmax(a->options->slowdown, 0), error);
    s->loss_scale = loss_scale;
    if (status == TANDEM_OK) choice->both.plan->loss_scale = loss_scale;
    mention_micro_steps(error, n_micro);
    return status;
}

/* As for one batch (allocate.c): with the loss scale that the plan found needs. */
static tandem_status choose_scaled(split *s, tandem_batch_choice *choice, const allocating *a,
                                   const char *method, tandem_error *error)
{
    const double first = cli_loss_scale_first(a->options, &s->subject.cluster);
    tandem_status status = choose(s, choice, a, method, first, error);
    if (status == TANDEM_MISSING && a->options->loss_scale == 0 && first != 0)
        return choose(s, choice, a, method, 0, error);
    if (status != TANDEM_OK || a->options->loss_scale != 0 || first == 0 || has_f16(s, choice)) return status;
    status = choose(s, choice, a, method, 0, error);
    return status == TANDEM_OK && has_f16(s, choice) ? choose(s, choice, a, method, first, error) : status;
}

int allocate_batch(allocating *a)
{
    tandem_error error = {0};
    tandem_batch_choice choice = {.n_split = 0};
    split s = {.options = a->options};
    const tandem_sensitivity_method *method = tandem_sensitivity_get(0);
    const int is_plan_on_stdout = a->options->output && strcmp(a->options->output, "-") == 0;
    int code = 0;
    tandem_status status = TANDEM_OK;
    if (a->options->method) status = tandem_sensitivity_find(&method, a->options->method, &error);
    if (status == TANDEM_OK) status = cli_subject_open(&s.subject, a->options, &error);
    if (status == TANDEM_OK) status = choose_scaled(&s, &choice, a, method->name, &error);
    if (status == TANDEM_OK) status = write_plan(&s, &choice, &error);
    if (status != TANDEM_OK)
        code = cli_fail(&error);
    else if (!is_plan_on_stdout)
        code =
            a->options->json ? print_json(&s, &choice, method->name) : print_text(&s, &choice, method->name);
    if (code == 0)
        cli_note_loss_scale(a->options, choice.both.plan, s.subject.graph[0], s.loss_scale,
                            CLI_UNPRICED_SCALE);
    if (code == 0 && a->options->output && !is_plan_on_stdout)
        cli_note(a->options, "plan written to %s", a->options->output);
    tandem_batch_choice_free(&choice);
    cli_subject_close(&s.subject);
    return code;
}
