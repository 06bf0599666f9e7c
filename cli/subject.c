/* subject.c: what most commands are about: a model at the batch of every class of a cluster, and a plan for
 * it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "cli/cli.h"

enum { LIST_TEXT = 512 };

static tandem_status read_cluster(tandem_cluster *cluster, const cli_options *options, tandem_error *error)
{
    if (options->cluster && options->device)
        return tandem_error_set(error, TANDEM_USAGE,
                                "--cluster and --device both say which ranks there are: give one of them");
    if (options->cluster) return tandem_cluster_parse(cluster, options->cluster, error);
    if (!options->device)
        return tandem_error_set(error, TANDEM_USAGE,
                                "say on which devices: --cluster \"cpu:avx2 + cpu:sse41\" (tandem list "
                                "devices)");
    char text[LIST_TEXT] = "";
    for (const char *c = options->device; *c && strlen(text) + 4 < sizeof text; c++)
        (void)snprintf(text + strlen(text), sizeof text - strlen(text), *c == ',' ? " + " : "%c", *c);
    return tandem_cluster_parse(cluster, text, error);
}

static tandem_status make_class_uniform(cli_subject *subject, int c, const char *word, uint64_t seed,
                                        tandem_error *error)
{
    tandem_precision precision;
    if (strcmp(word, "drawn") == 0)
        return tandem_plan_random(subject->plan, subject->graph[c], c,
                                  subject->cluster.classes[c].device.precisions, seed, error);
    const tandem_status status = tandem_precision_find(&precision, word, error);
    return status == TANDEM_OK ? tandem_plan_uniform(subject->plan, subject->graph[c], c, precision, error)
                               : status;
}

static tandem_status make_uniform(cli_subject *subject, const char *uniform, uint64_t seed,
                                  tandem_error *error)
{
    for (int c = 0; c < subject->cluster.n_class; c++) {
        char word[64];
        if (!tandem_list_word(word, sizeof word, uniform, c, subject->cluster.n_class))
            return tandem_error_set(error, TANDEM_USAGE,
                                    "--uniform '%s' does not fit %d classes: give one precision for all, or "
                                    "one for each",
                                    uniform, subject->cluster.n_class);
        const tandem_status status = make_class_uniform(subject, c, word, seed, error);
        if (status != TANDEM_OK) return status;
    }
    return TANDEM_OK;
}

static tandem_status open_planned(cli_subject *subject, const cli_options *options, tandem_error *error)
{
    tandem_graph *read = NULL;
    const char *second = options->cluster                          ? "--cluster"
                         : options->device                         ? "--device"
                         : options->uniform                        ? "--uniform"
                         : cli_option_given(options, OPTION_BATCH) ? "--batch"
                                                                   : NULL;
    if (second)
        return tandem_error_set(
            error, TANDEM_USAGE,
            "--plan and %s contradict each other: a plan says its ranks, batches and precisions itself",
            second);
    tandem_status status = tandem_plan_read(&subject->plan, &read, options->plan, error);
    tandem_graph_close(read);
    if (status != TANDEM_OK) return status;
    subject->cluster = subject->plan->cluster;
    status = tandem_cluster_fill_defaults(&subject->cluster, 0, options->memory, error);
    /* a plan names its model; where one is given too, they must be the same */
    const char *model = options->model ? options->model : subject->plan->model;
    if (status == TANDEM_OK)
        status = tandem_cluster_open_graphs(subject->graph, &subject->cluster, model, error);
    return status == TANDEM_OK ? tandem_plan_check(subject->plan, subject->graph[0], error) : status;
}

static tandem_status open_named(cli_subject *subject, const cli_options *options, tandem_error *error)
{
    if (!options->model)
        return tandem_error_set(error, TANDEM_USAGE,
                                "say which model: --model vit_tiny (tandem list models), or --plan FILE");
    tandem_status status = read_cluster(&subject->cluster, options, error);
    if (status == TANDEM_OK)
        status = tandem_cluster_fill_defaults(&subject->cluster, options->batch, options->memory, error);
    if (status == TANDEM_OK)
        status = tandem_cluster_open_graphs(subject->graph, &subject->cluster, options->model, error);
    char name[sizeof subject->plan->name];
    (void)snprintf(name, sizeof name, "uniform %s", options->uniform ? options->uniform : "fp32");
    if (status == TANDEM_OK)
        status = tandem_plan_open(&subject->plan, subject->graph[0], &subject->cluster, name, error);
    if (status == TANDEM_OK && options->uniform)
        status = make_uniform(subject, options->uniform, options->seed, error);
    return status;
}

tandem_status cli_exchange_choose(int *over_network, tandem_error *error)
{
    const char *exchange = getenv("TANDEM_EXCHANGE");
    const int is_network = exchange && strcmp(exchange, "network") == 0;
    if (exchange && *exchange && !is_network)
        return tandem_error_set(error, TANDEM_USAGE,
                                "TANDEM_EXCHANGE is '%s'; 'network' keeps ranks of one machine from "
                                "exchanging gradients in "
                                "memory that they share, unset leaves them to",
                                exchange);
    *over_network = is_network;
    return TANDEM_OK;
}

/* A plan's file may ask for more: it is cut as far as it can be. */
static tandem_status check_segments(int n_recompute_segment, const tandem_graph *graph, tandem_error *error)
{
    tandem_step *step = NULL;
    tandem_status status =
        n_recompute_segment > 1 ? tandem_step_open(&step, graph, TANDEM_F32, 0, error) : TANDEM_OK;
    const int most = step ? tandem_step_max_segments(step) : n_recompute_segment;
    if (n_recompute_segment > most)
        status = tandem_error_set(error, TANDEM_USAGE,
                                  "--recompute %d: model %s falls into %d segments at most; give 1 to %d, or "
                                  "sqrt",
                                  n_recompute_segment, graph->model, most, most);
    tandem_step_close(step);
    return status;
}

tandem_status cli_subject_open(cli_subject *subject, const cli_options *options, tandem_error *error)
{
    cli_subject made = {0};
    int over_network = 0;
    tandem_status status = cli_exchange_choose(&over_network, error);
    if (status == TANDEM_OK)
        status = options->plan ? open_planned(&made, options, error) : open_named(&made, options, error);
    if (status == TANDEM_OK) status = check_segments(options->step.n_recompute_segment, made.graph[0], error);
    if (status != TANDEM_OK) {
        cli_subject_close(&made);
        return status;
    }
    made.cluster.over_network = over_network;
    if (options->step.n_micro) made.plan->step.n_micro = options->step.n_micro;
    if (options->step.n_recompute_segment)
        made.plan->step.n_recompute_segment = options->step.n_recompute_segment;
    if (options->step.scaling.window) made.plan->step.scaling = options->step.scaling;
    made.loss_scale = options->loss_scale != 0 ? options->loss_scale : made.plan->loss_scale;
    made.plan->step.with_norm = options->clip > 0 || made.loss_scale != 0;
    *subject = made;
    return TANDEM_OK;
}

/* Whether a backward product of a precision reads its gradient in f16 on a device. */
static int reads_f16(const tandem_device *device, tandem_precision precision)
{
    const tandem_dtype dgrad = tandem_precision_get(precision)->dgrad,
                       wgrad = tandem_precision_get(precision)->wgrad;
    return dgrad == TANDEM_F16 || wgrad == TANDEM_F16 ||
           (device->amp_dtype == TANDEM_F16 && (dgrad == TANDEM_AMP || wgrad == TANDEM_AMP));
}

int cli_gradients_in_f16(const tandem_plan *plan, const tandem_graph *graph, char *where, size_t size)
{
    int most = 0;
    if (size > 0) where[0] = '\0';
    for (int c = 0; c < plan->cluster.n_class; c++) {
        const tandem_device *device = &plan->cluster.classes[c].device;
        const size_t used = size > 0 ? strlen(where) : 0;
        int n = 0;
        for (int op = 0; op < plan->n_op; op++)
            n += graph->op[op].needs_gradient && reads_f16(device, plan->precision[c][op]);
        if (n > 0 && size > 0)
            (void)snprintf(where + used, size - used, "%s%s", used ? ", " : "", device->name);
        if (n > most) most = n;
    }
    return most;
}

int cli_may_have_gradients_in_f16(const tandem_cluster *cluster)
{
    for (int c = 0; c < cluster->n_class; c++)
        for (int p = 0; p < TANDEM_N_PRECISION; p++)
            if (cluster->classes[c].device.precisions >> p & 1 &&
                reads_f16(&cluster->classes[c].device, (tandem_precision)p))
                return 1;
    return 0;
}

void cli_note_loss_scale(const cli_options *options, const tandem_plan *plan, const tandem_graph *graph,
                         double loss_scale, const char *advice)
{
    char where[256] = "";
    const int n = loss_scale == 0 ? cli_gradients_in_f16(plan, graph, where, sizeof where) : 0;
    if (n > 0)
        cli_note(options,
                 "gradients of %d operators are f16 on %s, where small ones vanish: %s --loss-scale "
                 "dynamic",
                 n, where, advice);
}

void cli_subject_close(cli_subject *subject)
{
    tandem_plan_close(subject->plan);
    for (int c = TANDEM_MAX_CLASS - 1; c >= 0; c--) tandem_graph_close(subject->graph[c]);
    *subject = (cli_subject){0};
}
