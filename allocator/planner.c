/* planner.c: opens what an allocation needs: the cluster, its graphs, costs and sensitivities. */
#include "allocator/opening.h"
#include "allocator/problem.h"
#include "base/append.h"
#include "profiles/plan/plan_json.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct tandem_planner {
    tandem_allocation_problem problem;
    const tandem_sensitivity_method *method;
    int64_t *sensitivity[TANDEM_MAX_CLASS]; /* that the problem points to */
    tandem_graph *graph[TANDEM_MAX_CLASS];  /* NULL where the graph is borrowed */
    char *store, *data;                     /* of the request; data: NULL = the one measured last */
    /* of the model; the problem points to it, with a method that needs one. n_op 0: it was not read */
    tandem_estimate estimate;
    char why_no_estimate[TANDEM_ERROR_TEXT]; /* why there is none; "" = it was not looked for, or is there */
    tandem_trial_record *trial;              /* [n_trial] of the model, as the store orders them */
    int n_trial;
    tandem_tried tried[TANDEM_STORE_TRIED_PLANS]; /* [n_tried]; n_tried −1: not predicted yet */
    int n_tried;
    int64_t fp32_ns; /* the step with all operators in fp32; 0 = not simulated, −1 = unknown */
};

/* What the sensitivities are for: the samples of all ranks and micro-steps. */
static tandem_sensitivity_step sensitivity_step_of(const tandem_planner *planner)
{
    const tandem_cluster *cluster = tandem_planner_cluster(planner);
    const int n_micro = tandem_replayer_step(planner->problem.replayer, 0)->options.n_micro;
    return (tandem_sensitivity_step){.n_micro = n_micro,
                                     .global_batch = tandem_cluster_samples(cluster, n_micro),
                                     .gradient_noise = tandem_allreduce_noise(cluster)};
}

/* In the unit of the method, from `estimate`, or where that is NULL from the store: the same for classes with
 * the same AMP dtype, precisions and batch. loaded[class] has n_op × TANDEM_N_PRECISION numbers. */
static tandem_status load_method_values(double *loaded, const tandem_planner *planner, tandem_store *store,
                                        const char *data, const tandem_estimate *estimate,
                                        tandem_error *error)
{
    const tandem_cluster *cluster = tandem_planner_cluster(planner);
    const tandem_sensitivity_step step = sensitivity_step_of(planner);
    const size_t n = (size_t)planner->problem.graph->n_op * TANDEM_N_PRECISION;
    tandem_status status = TANDEM_OK;
    for (int c = 0; c < cluster->n_class && status == TANDEM_OK; c++) {
        const tandem_dtype amp_dtype = cluster->classes[c].device.amp_dtype;
        const unsigned precisions = cluster->classes[c].device.precisions;
        int same = 0;
        while (same < c &&
               (cluster->classes[same].device.amp_dtype != amp_dtype ||
                cluster->classes[same].device.precisions != precisions ||
                tandem_planner_graph(planner, same)->batch != tandem_planner_graph(planner, c)->batch))
            same++;
        if (same < c)
            memcpy(loaded + (size_t)c * n, loaded + (size_t)same * n, n * sizeof *loaded);
        else if (estimate)
            status =
                planner->method->compute_estimated(loaded + (size_t)c * n, tandem_planner_graph(planner, c),
                                                   estimate, &step, amp_dtype, precisions, error);
        else
            status =
                tandem_sensitivity_load(loaded + (size_t)c * n, store, tandem_planner_graph(planner, c),
                                        planner->method->name, data, &step, amp_dtype, precisions, error);
    }
    return status;
}

/* Multiplies by each class's part of the global batch. Returns the largest sum of any plan. */
static double weight_by_batch(double *loaded, const tandem_planner *planner)
{
    const tandem_cluster *cluster = tandem_planner_cluster(planner);
    const int n_op = planner->problem.graph->n_op;
    const double samples = (double)tandem_cluster_samples(cluster, 1);
    double largest = 0;
    for (int c = 0; c < cluster->n_class; c++) {
        const double share =
            (double)cluster->classes[c].n_rank * (double)tandem_planner_graph(planner, c)->batch / samples;
        for (int i = 0; i < n_op; i++) {
            double most = 0;
            for (int p = 0; p < TANDEM_N_PRECISION; p++) {
                double *one =
                    &loaded[((size_t)c * (size_t)n_op + (size_t)i) * TANDEM_N_PRECISION + (size_t)p];
                *one *= share;
                most = fmax(most, *one);
            }
            largest += most;
        }
    }
    return largest;
}

/* In units (planner.h). Where sums would not be exact, an operator adds at most its part of the largest exact
 * sum: that is hundreds of times as many samples. */
static void fill_units(tandem_planner *planner, const double *loaded, double largest)
{
    const int n_class = tandem_planner_cluster(planner)->n_class, n_op = planner->problem.graph->n_op;
    const int is_percent = strcmp(planner->method->unit, "%") == 0;
    int exponent = 0;
    double parts = 1;
    while (is_percent && parts <= (double)n_class * n_op) parts *= 2;
    (void)frexp(largest, &exponent);
    const double unit = is_percent ? 1e-6 : ldexp(1, exponent - 52), n_all = (double)n_class * n_op;
    const int is_exact = (largest / unit + n_all) * parts + n_all <= 0x1p53;
    const double cap = is_exact ? 0x1p53 : floor((0x1p53 / (n_all + 1) - 1) / parts);
    planner->problem.sensitivity_unit = unit / parts;
    for (int c = 0; c < n_class; c++) {
        for (int i = 0; i < n_op * TANDEM_N_PRECISION; i++) {
            const double value = loaded[(size_t)c * (size_t)n_op * TANDEM_N_PRECISION + (size_t)i];
            const int is_lowered =
                is_percent && i % TANDEM_N_PRECISION != TANDEM_PRECISION_FP32 &&
                tandem_op_row_get(planner->problem.graph->op[i / TANDEM_N_PRECISION].kind)->precisions &
                    1u << i % TANDEM_N_PRECISION;
            planner->sensitivity[c][i] = (int64_t)(fmin(ceil(value / unit), cap) * parts) + (is_lowered != 0);
        }
        planner->problem.sensitivity[c] = planner->sensitivity[c];
    }
}

static tandem_status load_sensitivities(tandem_planner *planner, tandem_store *store, const char *data,
                                        const tandem_estimate *estimate, tandem_error *error)
{
    const int n_class = tandem_planner_cluster(planner)->n_class;
    const tandem_graph *graph = planner->problem.graph;
    const size_t n = (size_t)graph->n_op * TANDEM_N_PRECISION;
    double *loaded = calloc(n * (size_t)n_class + 1, sizeof *loaded);
    int has_memory = loaded != NULL;
    for (int c = 0; c < n_class && has_memory; c++) {
        if (!planner->sensitivity[c])
            planner->sensitivity[c] = calloc(n + 1, sizeof *planner->sensitivity[c]);
        has_memory = planner->sensitivity[c] != NULL;
    }
    tandem_status status = has_memory
                               ? load_method_values(loaded, planner, store, data, estimate, error)
                               : tandem_no_memory(error, "for the sensitivities of model %s (%d operators)",
                                                  graph->model, graph->n_op);
    if (status == TANDEM_OK) fill_units(planner, loaded, weight_by_batch(loaded, planner));
    free(loaded);
    if (status != TANDEM_OK || !planner->method->compute_estimated) return status;
    if (!estimate) status = tandem_store_load_estimate(&planner->estimate, store, graph, data, error);
    if (status != TANDEM_OK) return status;
    planner->problem.estimate = estimate ? estimate : &planner->estimate;
    planner->n_tried = -1; /* what is predicted for them follows from it */
    return TANDEM_OK;
}

/* Checks first what needs no store. */
static tandem_status read_request(tandem_planner *planner, const tandem_request *request, tandem_error *error)
{
    planner->store = request->store ? strdup(request->store) : NULL;
    planner->data = request->data ? strdup(request->data) : NULL;
    if ((request->store && !planner->store) || (request->data && !planner->data))
        return tandem_no_memory(error, "for a planner");
    planner->method = tandem_sensitivity_get(0);
    planner->problem.base_precision = TANDEM_PRECISION_FP32;
    tandem_status status = TANDEM_OK;
    if (!request->store) status = tandem_error_set(error, TANDEM_USAGE, "the request names no profile store");
    if (status == TANDEM_OK && request->method)
        status = tandem_sensitivity_find(&planner->method, request->method, error);
    if (status == TANDEM_OK && request->base_precision)
        status = tandem_precision_find(&planner->problem.base_precision, request->base_precision, error);
    return status;
}

/* The first described device of a cluster; NULL: none. */
static const char *find_described_device(const tandem_cluster *cluster)
{
    for (int c = 0; c < cluster->n_class; c++)
        if (tandem_device_is_described(&cluster->classes[c].device)) return cluster->classes[c].device.name;
    return NULL;
}

/* Described devices can be replayed without a store: *store stays NULL. */
static tandem_status open_planner_store(tandem_store **store, const tandem_request *request,
                                        const tandem_cluster *cluster, const char *model, tandem_error *error)
{
    const char *described = request->predict ? NULL : find_described_device(cluster);
    tandem_error opening = {0};
    const tandem_status status = tandem_store_open(store, request->store, TANDEM_STORE_READ, &opening);
    if (status == TANDEM_MISSING && request->predict && request->times_only) return TANDEM_OK;
    if (status == TANDEM_MISSING && described)
        return tandem_error_set(
            error, TANDEM_MISSING,
            "there is no profile store '%.200s', and '%s' is a description, which nothing can be measured "
            "on: --predict takes its times from there%s%s%s",
            request->store, described, request->times_only ? "" : ", and `tandem sensitivity --model ",
            request->times_only ? "" : model, request->times_only ? "" : " --data DATA` begins a store");
    if (status == TANDEM_MISSING && !request->times_only)
        return tandem_error_set(error, TANDEM_MISSING,
                                "there is no profile store '%.200s': `tandem sensitivity --model %s --data "
                                "DATA` begins one%s; or name another with --db",
                                request->store, model,
                                request->predict ? ", which is all that --predict needs"
                                                 : ", and `tandem profile` adds what kernels cost");
    if (status != TANDEM_OK && error) *error = opening;
    return status;
}

/* Where another framework runs the model, its optimizer waits for all gradients, and its buckets and
 * all-reduces are those of PyTorch's DistributedDataParallel over a network. */
static void run_as_recorded(tandem_cluster *cluster, tandem_step_options *step)
{
    cluster->over_network = 1;
    step->with_norm = 1;
    step->ddp_buckets = 1;
    step->ddp_bucket_memory = tandem_cluster_n_rank(cluster) > 1;
}

tandem_status tandem_planner_open_for(tandem_planner **planner, const tandem_request *request,
                                      const tandem_cluster *cluster, const tandem_graph *const *graph,
                                      tandem_error *error)
{
    tandem_store *store = NULL;
    tandem_planner *made = calloc(1, sizeof *made);
    if (!made) return tandem_no_memory(error, "for a planner");
    tandem_status status = read_request(made, request, error);
    if (status == TANDEM_OK) status = open_planner_store(&store, request, cluster, graph[0]->model, error);
    tandem_replayer_options options = {.bucket_bytes = request->bucket_bytes,
                                       .predict = request->predict,
                                       .collective = request->collective,
                                       .step = request->step,
                                       .norm_as_needed = !request->norm_is_given,
                                       .kernels = request->kernels,
                                       .without_update = request->without_update,
                                       .from_description = request->from_description};
    tandem_cluster run_by = *cluster;
    made->problem.loss_scale = request->loss_scale;
    if (request->loss_scale != 0) options.step.with_norm = 1;
    if (graph[0]->is_recorded) run_as_recorded(&run_by, &options.step);
    if (status == TANDEM_OK)
        status = tandem_replayer_open_with(&made->problem.replayer, &run_by, graph, store, &options, error);
    made->problem.graph = graph[0];
    made->n_tried = -1;
    if (status == TANDEM_OK && !request->times_only)
        status = load_sensitivities(made, store, request->data, NULL, error);
    if (status == TANDEM_OK && store)
        status = tandem_store_load_trials(&made->trial, &made->n_trial, store, graph[0]->hash, error);
    tandem_store_close(store);
    if (status == TANDEM_OK)
        *planner = made;
    else
        tandem_planner_close(made);
    return status;
}

tandem_status tandem_planner_load_sensitivities(tandem_planner *planner, tandem_error *error)
{
    tandem_store *store = NULL;
    tandem_status status = tandem_store_open(&store, planner->store, TANDEM_STORE_READ, error);
    if (status == TANDEM_OK) status = load_sensitivities(planner, store, planner->data, NULL, error);
    tandem_store_close(store);
    for (int c = 0; c < TANDEM_MAX_CLASS && status != TANDEM_OK; c++) planner->problem.sensitivity[c] = NULL;
    return status;
}

tandem_status tandem_planner_open_workload(tandem_planner **planner, const tandem_request *request,
                                           const tandem_workload *workload, tandem_error *error)
{
    tandem_request asked = *request;
    asked.step = workload->plan->step;
    asked.norm_is_given = !workload->scale_is_by_need;
    if (workload->scale_is_by_need) asked.step.with_norm = 0; /* a step in fp32 has none */
    const tandem_status status = tandem_planner_open_for(planner, &asked, &workload->cluster,
                                                         (const tandem_graph *const *)workload->graph, error);
    if (status == TANDEM_OK) tandem_replayer_load((*planner)->problem.replayer, &workload->plan->assignment);
    return status;
}

/* --- Graphs of a request -------------------------------------------------------------------------------- */

static tandem_status refuse_batch(const tandem_request *request, const tandem_cluster_class *class,
                                  tandem_error *error)
{
    char batches[128] = "";
    for (int k = 0; k < request->n_graph; k++)
        (void)tandem_append(batches, sizeof batches, "%s%lld", k ? ", " : "",
                            (long long)request->graph[k]->batch);
    return tandem_error_set(
        error, TANDEM_WRONG_MODEL,
        "'%s' has batch %lld, and the model was captured with batch %s: give batch=, or a "
        "list with a capture of every batch",
        class->device.name, (long long)class->batch, batches);
}

/* The caller's graph of each class's batch. */
static tandem_status choose_graphs(const tandem_graph **graph, const tandem_request *request,
                                   const tandem_cluster *cluster, tandem_error *error)
{
    for (int c = 0; c < cluster->n_class; c++) {
        graph[c] = NULL;
        for (int k = 0; k < request->n_graph; k++)
            if (request->graph[k]->batch == cluster->classes[c].batch) graph[c] = request->graph[k];
        if (!graph[c]) return refuse_batch(request, &cluster->classes[c], error);
    }
    return TANDEM_OK;
}

tandem_status tandem_planner_open_at(tandem_planner **planner, const tandem_request *request,
                                     const tandem_cluster *cluster, tandem_error *error)
{
    const tandem_graph *chosen[TANDEM_MAX_CLASS] = {0};
    tandem_graph *opened[TANDEM_MAX_CLASS] = {0};
    tandem_planner *made = NULL;
    assert(cluster->n_class > 0);
    tandem_status status = request->n_graph
                               ? choose_graphs(chosen, request, cluster, error)
                               : tandem_cluster_open_graphs(opened, cluster, request->model, error);
    for (int c = 0; c < cluster->n_class && !request->n_graph; c++) chosen[c] = opened[c];
    if (status == TANDEM_OK)
        status = tandem_check_model(chosen[0], request->memory, request->step.n_recompute_segment, error);
    if (status == TANDEM_OK) status = tandem_planner_open_for(&made, request, cluster, chosen, error);
    if (status != TANDEM_OK) {
        for (int c = 0; c < cluster->n_class; c++) tandem_graph_close(opened[c]);
        return status;
    }
    memcpy(made->graph, opened, sizeof opened);
    *planner = made;
    return TANDEM_OK;
}

tandem_status tandem_request_cluster(tandem_cluster *out, const tandem_request *request, tandem_error *error)
{
    tandem_cluster cluster;
    const char *model = request->n_graph ? request->graph[0]->model : request->model;
    const int64_t batch = request->batch || !request->n_graph ? request->batch : request->graph[0]->batch;
    const tandem_status status =
        tandem_open_cluster(&cluster, model, request->cluster, batch, request->memory, 0, error);
    if (status != TANDEM_OK) return status;
    cluster.over_network |= request->over_network;
    cluster.wire = request->wire;
    *out = cluster;
    return TANDEM_OK;
}

tandem_status tandem_planner_open(tandem_planner **planner, const tandem_request *request,
                                  tandem_error *error)
{
    tandem_cluster cluster;
    const tandem_status status = tandem_request_cluster(&cluster, request, error);
    return status == TANDEM_OK ? tandem_planner_open_at(planner, request, &cluster, error) : status;
}

void tandem_planner_close(tandem_planner *planner)
{
    if (!planner) return;
    for (int c = 0; c < TANDEM_MAX_CLASS; c++) free(planner->sensitivity[c]);
    tandem_estimate_close(&planner->estimate);
    tandem_store_close_trials(planner->trial, planner->n_trial);
    free(planner->store);
    free(planner->data);
    tandem_replayer_close(planner->problem.replayer);
    for (int c = 0; c < TANDEM_MAX_CLASS; c++) tandem_graph_close(planner->graph[c]);
    free(planner);
}

tandem_status tandem_planner_set_estimate(tandem_planner *planner, const tandem_estimate *estimate,
                                          tandem_error *error)
{
    const tandem_sensitivity_method *const before = planner->method;
    tandem_status status = tandem_sensitivity_find(&planner->method, "sampled", error);
    if (status == TANDEM_OK) status = load_sensitivities(planner, NULL, NULL, estimate, error);
    if (status != TANDEM_OK) planner->method = before;
    return status;
}

/* A text that fits, where tandem_store_load_estimate names what there is instead. */
static void write_why_no_estimate(tandem_planner *planner)
{
    tandem_error why = {0};
    tandem_error_set(&why, TANDEM_MISSING, "`tandem sensitivity --model %s --data DATA` measures it",
                     planner->problem.graph->model);
    memcpy(planner->why_no_estimate, why.text, sizeof planner->why_no_estimate);
}

tandem_status tandem_planner_estimate(const tandem_estimate **estimate, const char **why_none,
                                      tandem_planner *planner, tandem_error *error)
{
    tandem_store *store = NULL;
    tandem_error why = {0};
    tandem_status status = TANDEM_OK;
    if (!planner->problem.estimate && !planner->estimate.n_op && !planner->why_no_estimate[0]) {
        status = tandem_store_open(&store, planner->store, TANDEM_STORE_READ, &why);
        if (status == TANDEM_OK)
            status = tandem_store_load_estimate(&planner->estimate, store, planner->problem.graph,
                                                planner->data, &why);
        tandem_store_close(store);
        if (status == TANDEM_MISSING) write_why_no_estimate(planner);
        if (status != TANDEM_OK && status != TANDEM_MISSING) return tandem_error_forward(status, &why, error);
    }
    *estimate = planner->problem.estimate    ? planner->problem.estimate
                : planner->estimate.n_op > 0 ? &planner->estimate
                                             : NULL;
    *why_none = planner->why_no_estimate;
    return TANDEM_OK;
}

/* A text of another model, or of devices that are not known here, says nothing. */
static tandem_status predict_tried(tandem_planner *planner, const tandem_trial_record *trial,
                                   const tandem_estimate *estimate, tandem_error *error)
{
    tandem_plan *plan = NULL;
    tandem_error why = {0};
    tandem_plan_sensitivity of = {.n_largest = 0};
    const tandem_graph *graph = planner->problem.graph;
    if (!trial->plan || strcmp(trial->base, "fp32") != 0) return TANDEM_OK;
    if (estimate->data[0] && strcmp(estimate->data, trial->data) != 0) return TANDEM_OK;
    for (int k = 0; k < planner->n_tried; k++)
        if (planner->tried[k].plan_hash == trial->plan_hash) return TANDEM_OK; /* the best one came before */
    tandem_status status =
        tandem_plan_parse_of(&plan, graph, trial->plan, strlen(trial->plan), "the plan of a trial", &why);
    if (status == TANDEM_OK) status = tandem_plan_sensitivity_estimate(&of, estimate, plan, graph, &why);
    tandem_plan_close(plan);
    if (status == TANDEM_OK && of.n_largest > 0)
        planner->tried[planner->n_tried++] = (tandem_tried){.plan_hash = trial->plan_hash,
                                                            .precision = of.largest[0].precision,
                                                            .plan = {.predicted = of.estimate.value,
                                                                     .extra = trial->extra,
                                                                     .low = trial->extra_low,
                                                                     .high = trial->extra_high,
                                                                     .diverged = trial->n_diverged > 0}};
    return status == TANDEM_NO_MEMORY ? tandem_error_forward(status, &why, error) : TANDEM_OK;
}

tandem_status tandem_planner_tried(const tandem_tried **tried, int *n, tandem_planner *planner,
                                   const tandem_estimate *estimate, tandem_error *error)
{
    tandem_status status = TANDEM_OK;
    if (planner->n_tried < 0) {
        planner->n_tried = 0;
        for (int k = 0; k < planner->n_trial && status == TANDEM_OK; k++)
            status = predict_tried(planner, &planner->trial[k], estimate, error);
    }
    if (status != TANDEM_OK) planner->n_tried = -1;
    *tried = planner->tried;
    *n = status == TANDEM_OK ? planner->n_tried : 0;
    return status;
}

const tandem_trial_record *tandem_planner_trial(const tandem_planner *planner, const tandem_plan *plan)
{
    const uint64_t hash = tandem_trial_plan_hash(plan);
    for (int k = 0; k < planner->n_trial; k++)
        if (planner->trial[k].plan_hash == hash && strcmp(planner->trial[k].base, "fp32") == 0)
            return &planner->trial[k];
    return NULL;
}

/* Gives the replayer the precisions of `before` back. */
static int64_t simulate_fp32(tandem_replayer *replayer, const tandem_assignment *before)
{
    tandem_replay replay;
    for (int c = 0; c < before->n_class; c++)
        for (int op = 0; op < before->n_op; op++) tandem_replayer_set(replayer, c, op, TANDEM_PRECISION_FP32);
    const tandem_status status = tandem_replayer_run(replayer, &replay, 0, NULL);
    tandem_replayer_load(replayer, before);
    return status == TANDEM_OK ? replay.step_ns : -1;
}

tandem_status tandem_planner_fp32_step(int64_t *step_ns, tandem_planner *planner, tandem_error *error)
{
    tandem_replayer *const replayer = planner->problem.replayer;
    tandem_assignment before = {0};
    if (!planner->fp32_ns) {
        const tandem_status status = tandem_assignment_open(&before, tandem_planner_cluster(planner)->n_class,
                                                            planner->problem.graph->n_op, error);
        if (status != TANDEM_OK) return status;
        tandem_replayer_store(replayer, &before);
        planner->fp32_ns = simulate_fp32(replayer, &before);
        tandem_assignment_close(&before);
    }
    *step_ns = planner->fp32_ns;
    return TANDEM_OK;
}

tandem_allocation_problem *tandem_planner_problem(tandem_planner *planner) { return &planner->problem; }

const tandem_graph *tandem_planner_graph(const tandem_planner *planner, int c)
{
    return tandem_replayer_step(planner->problem.replayer, c)->graph;
}

const tandem_cluster *tandem_planner_cluster(const tandem_planner *planner)
{
    return tandem_replayer_cluster(planner->problem.replayer);
}

const char *tandem_planner_method(const tandem_planner *planner) { return planner->method->name; }

/* The share of the compute time of all classes that was measured, in millionths. */
static int64_t measured_share_ppm(const tandem_replayer *replayer, int n_class)
{
    double measured_ns = 0, all_ns = 0;
    for (int c = 0; c < n_class; c++) {
        tandem_provenance provenance;
        tandem_replayer_provenance(replayer, c, &provenance);
        measured_ns += (double)provenance.ns[TANDEM_ORIGIN_MEASURED];
        for (int k = 0; k < TANDEM_N_ORIGIN; k++) all_ns += (double)provenance.ns[k];
    }
    return all_ns > 0 ? (int64_t)(1e6 * measured_ns / all_ns) : 0;
}

tandem_status tandem_planner_replay(tandem_planned_step *step, tandem_planner *planner,
                                    const tandem_plan *plan, tandem_error *error)
{
    tandem_replayer *const replayer = planner->problem.replayer;
    const tandem_cluster *const cluster = tandem_planner_cluster(planner);
    tandem_replay replay;
    tandem_status status = tandem_plan_check(plan, planner->problem.graph, error);
    if (status == TANDEM_OK && plan->cluster.n_class != cluster->n_class)
        status = tandem_error_set(error, TANDEM_WRONG_MODEL,
                                  "the plan was made for %d classes of ranks; the cluster has %d",
                                  plan->cluster.n_class, cluster->n_class);
    if (status != TANDEM_OK) return status;
    tandem_replayer_load(replayer, &plan->assignment);
    status = tandem_replayer_run(replayer, &replay, TANDEM_REPLAY_MEMORY, error);
    if (status != TANDEM_OK) return status;
    *step = (tandem_planned_step){.step_ns = replay.step_ns,
                                  .n_class = replay.n_class,
                                  .slowest = replay.slowest,
                                  .measured_ppm = measured_share_ppm(replayer, replay.n_class)};
    for (int c = 0; c < replay.n_class; c++) {
        const tandem_replay_class *one = &replay.classes[c];
        step->classes[c] =
            (struct tandem_planned_class){one->busy_ns, one->exposed_comm_ns, one->wait_ns, one->peak_bytes,
                                          cluster->classes[c].batch * cluster->classes[c].n_rank *
                                              tandem_replayer_step(replayer, c)->options.n_micro};
    }
    return TANDEM_OK;
}
