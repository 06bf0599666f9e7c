/* plan_estimate.c: estimates a plan as a whole, with all its operators rounded at once. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/estimate/estimate.h"
#include "runtime/listener.h"
#include "runtime/process/process.h"
#include "runtime/process/ranks.h"
#include "runtime/recipe_note.h"
#include "runtime/unused_formats.h"
#include "tandem/advanced/predictor.h"

enum { STEPS = 100 };

/* --- What is estimated ---------------------------------------------------------------------------------- */

/* The classes' plans as rows of an estimate. All zero is closed. */
typedef struct plan_rows {
    tandem_precision *plan; /* [n_class × n_op] */
    tandem_dtype amp[TANDEM_MAX_CLASS];
    double *share;     /* [cells of tandem_estimate_cell] */
    double *loss_rise; /* [n_point × n_class × n_replicate] */
    double fp32_loss[TANDEM_MAX_TRAINING_POINT];
} plan_rows;

static void close_plan_rows(plan_rows *rows)
{
    free(rows->plan);
    free(rows->share);
    free(rows->loss_rise);
    *rows = (plan_rows){0};
}

static tandem_status refuse_exact_plan(const tandem_workload *workload, tandem_error *error)
{
    return tandem_error_set(error, TANDEM_USAGE,
                            "the plan of model %s rounds nothing: all its operators are in fp32. Give a plan "
                            "with lower precisions, or --uniform",
                            workload->graph[0]->model);
}

static tandem_status open_plan_rows(plan_rows *rows, const tandem_workload *workload,
                                    const estimate_request *asked, tandem_error *error)
{
    const int n_class = workload->cluster.n_class, n_op = workload->graph[0]->n_op;
    const size_t n_cell = (size_t)n_class * TANDEM_N_PRECISION * TANDEM_N_AMP_DTYPE;
    const double samples = (double)tandem_cluster_samples(&workload->cluster, 1);
    int n_rounded = 0;
    *rows = (plan_rows){.plan = malloc((size_t)n_class * (size_t)n_op * sizeof *rows->plan),
                        .share = calloc(n_cell, sizeof *rows->share),
                        .loss_rise = calloc((size_t)(asked->n_point * n_class * asked->n_replicate),
                                            sizeof *rows->loss_rise)};
    if (!rows->plan || !rows->share || !rows->loss_rise) {
        close_plan_rows(rows);
        return tandem_no_memory(error, "for the plan of model %s", workload->graph[0]->model);
    }
    for (int c = 0; c < n_class; c++) {
        const tandem_cluster_class *class = &workload->cluster.classes[c];
        tandem_precision *const of_class = rows->plan + (size_t)c * (size_t)n_op;
        for (int i = 0; i < n_op; i++) of_class[i] = workload->plan->assignment.precision[c][i];
        rows->amp[c] = class->device.amp_dtype;
        const tandem_precision precision = estimate_plan_precision(of_class, n_op, &asked->emulation);
        if (precision == TANDEM_PRECISION_FP32) continue;
        n_rounded++;
        rows->share[tandem_estimate_cell(c, precision, TANDEM_F32)] =
            (double)(class->batch * class->n_rank) / samples;
    }
    if (n_rounded > 0) return TANDEM_OK;
    close_plan_rows(rows);
    return refuse_exact_plan(workload, error);
}

static int rounds(const tandem_workload *planned, int c)
{
    int n = 0;
    for (int i = 0; i < planned->graph[0]->n_op; i++)
        n += planned->plan->assignment.precision[c][i] != TANDEM_PRECISION_FP32;
    return n > 0;
}

/* Of the classes that round, that with most samples in a step; the first of several. */
static int class_to_estimate(const tandem_workload *planned)
{
    int found = 0;
    int64_t most = 0;
    for (int c = 0; c < planned->cluster.n_class; c++) {
        const tandem_cluster_class *class = &planned->cluster.classes[c];
        const int64_t samples = class->batch * class->n_rank;
        if (!rounds(planned, c) || samples <= most) continue;
        most = samples;
        found = c;
    }
    return found;
}

/* The training: on one CPU of this machine, at the batch of a rank of the class that rounds most samples. */
static tandem_status open_fp32_workload(tandem_workload *fp32, const tandem_plan_estimate_request *request,
                                        const tandem_workload *planned, tandem_error *error)
{
    tandem_device strongest;
    const tandem_status status = tandem_device_resolve(&strongest, "strongest", error);
    if (status != TANDEM_OK) return status;
    const tandem_workload_request alone = {.model = planned->graph[0]->model,
                                           .cluster = strongest.name,
                                           .batch =
                                               planned->cluster.classes[class_to_estimate(planned)].batch,
                                           .seed = request->workload.seed};
    return tandem_workload_open(fp32, &alone, error);
}

static int64_t steps_before(const tandem_plan_estimate_request *request)
{
    return request->steps > 0 ? request->steps : STEPS;
}

/* The points, the replicates and the formats. */
static tandem_status choose_estimated(estimate_request *to, const tandem_plan_estimate_request *request,
                                      tandem_error *error)
{
    *to = (estimate_request){.n_replicate = request->n_replicate ? request->n_replicate : PLAN_REPLICATES};
    const tandem_status status = estimate_choose_points(to, request->at, steps_before(request), error);
    to->emulation = tandem_emulation_make(request->workload.seed);
    return status == TANDEM_OK && request->workload.emulate
               ? tandem_emulation_replace(&to->emulation, request->workload.emulate, error)
               : status;
}

/* --- Measuring ------------------------------------------------------------------------------------------ */

static tandem_status conclude(tandem_plan_estimate *to, const tandem_estimate *estimate,
                              const plan_rows *rows, const tandem_workload *planned,
                              const tandem_workload *fp32, tandem_error *error)
{
    const tandem_step_options *step_options = &planned->plan->step;
    const tandem_sensitivity_step step = {
        .global_batch = tandem_cluster_samples(&planned->cluster, step_options->n_micro),
        .n_micro = step_options->n_micro > 1 ? step_options->n_micro : 1,
        .gradient_noise = tandem_allreduce_noise(&planned->cluster)};
    tandem_whole_plan whole;
    const tandem_status status =
        tandem_estimate_whole_plan(&whole, estimate, rows->share, rows->loss_rise, &step, error);
    if (status != TANDEM_OK) return status;
    *to = (tandem_plan_estimate){.batch = step.global_batch,
                                 .estimated_batch = estimate->batch,
                                 .steps = estimate->steps,
                                 .n_point = estimate->n_point,
                                 .n_replicate = estimate->n_replicate,
                                 .samples = whole.samples.value,
                                 .samples_low = whole.samples.low,
                                 .samples_high = whole.samples.high,
                                 .noise = whole.samples.noise,
                                 .along = whole.samples.bias,
                                 .along_half = whole.samples.bias_half,
                                 .across = whole.across,
                                 .across_half = whole.across_half,
                                 .fp32_loss = rows->fp32_loss[estimate->n_point - 1],
                                 .loss_rise = whole.loss_rise,
                                 .loss_rise_half = whole.loss_rise_half,
                                 .stability = whole.stability};
    memcpy(to->point, estimate->point, (size_t)estimate->n_point * sizeof *to->point);
    (void)snprintf(to->model, sizeof to->model, "%s", planned->graph[0]->model);
    (void)snprintf(to->device, sizeof to->device, "%s", fp32->cluster.classes[0].device.name);
    return TANDEM_OK;
}

static tandem_status measure_plan(tandem_plan_estimate *to, const tandem_plan_estimate_request *request,
                                  const tandem_workload *planned, tandem_error *error)
{
    estimate_request asked;
    tandem_workload fp32 = {.loss_scale = 0};
    tandem_estimate estimate = {0};
    plan_rows rows = {0};
    tandem_status status = choose_estimated(&asked, request, error);
    if (status == TANDEM_OK) status = open_fp32_workload(&fp32, request, planned, error);
    if (status == TANDEM_OK) status = open_plan_rows(&rows, planned, &asked, error);
    if (status == TANDEM_OK && planned->plan->step.scaling.window > 0)
        runtime_note(&request->listener,
                     "delayed scaling is estimated as current scaling; its errors are larger");
    if (status == TANDEM_OK) runtime_note_recipe(&request->listener, planned);
    if (status == TANDEM_OK) note_unused_formats(&request->listener, planned, request->workload.emulate);
    asked.fp32_loss = rows.fp32_loss;
    asked.loss_scale = planned->loss_scale;
    asked.plan = rows.plan;
    asked.n_plan = planned->cluster.n_class;
    asked.plan_amp = rows.amp;
    asked.loss_rise = rows.loss_rise;
    tandem_train_request training = tandem_train_request_default();
    training.workload.seed = request->workload.seed;
    training.listener = request->listener;
    training.data = request->data;
    training.steps = steps_before(request);
    training.init = request->init;
    if (request->has_training) training.training = request->training;
    if (status == TANDEM_OK) status = estimate_run(&estimate, &fp32, &training, &asked, error);
    if (status == TANDEM_OK) status = conclude(to, &estimate, &rows, planned, &fp32, error);
    if (status == TANDEM_OK && request->workload.emulate)
        (void)snprintf(to->formats, sizeof to->formats, "%s",
                       *request->workload.emulate ? request->workload.emulate : "each dtype's own");
    tandem_estimate_close(&estimate);
    close_plan_rows(&rows);
    tandem_workload_close(&fp32);
    return status;
}

/* What can be wrong, before a process starts. *cluster: that of the plan, whose first class gives the
 * cores. */
static tandem_status check_before_estimating(tandem_cluster *cluster,
                                             const tandem_plan_estimate_request *request, tandem_error *error)
{
    estimate_request asked;
    plan_rows rows = {0};
    tandem_workload planned = {.loss_scale = 0};
    tandem_status status = tandem_workload_open(&planned, &request->workload, error);
    if (status == TANDEM_OK && !request->data)
        status = tandem_error_set(error, TANDEM_USAGE,
                                  "no data given. Use e.g. --data fashion-mnist (tandem list datasets)");
    if (status == TANDEM_OK) status = choose_estimated(&asked, request, error);
    if (status == TANDEM_OK) status = open_plan_rows(&rows, &planned, &asked, error);
    close_plan_rows(&rows);
    if (status == TANDEM_OK) *cluster = planned.cluster;
    tandem_workload_close(&planned);
    return status;
}

/* --- Between processes ---------------------------------------------------------------------------------- */

static void pack_plan_estimate_request(packet *p, void *of)
{
    tandem_plan_estimate_request *request = of;
    packet_value(p, request, sizeof *request);
    workload_request_pack(p, &request->workload);
    const char **const text[] = {&request->data, &request->at, &request->init};
    for (size_t k = 0; k < sizeof text / sizeof *text; k++) packet_text(p, text[k]);
    training_options_pack(p, &request->training);
}

static tandem_status run_plan_estimate_verb(packet *answer, void *of, const tandem_rank_place *place,
                                            const tandem_listener *listener, tandem_error *error)
{
    tandem_plan_estimate_request request = *(const tandem_plan_estimate_request *)of;
    tandem_plan_estimate result = {.steps = 0};
    tandem_workload planned = {.loss_scale = 0};
    (void)place;
    request.listener = *listener;
    tandem_status status = tandem_workload_open(&planned, &request.workload, error);
    if (status == TANDEM_OK) status = measure_plan(&result, &request, &planned, error);
    if (status == TANDEM_OK) packet_value(answer, &result, sizeof result);
    tandem_workload_close(&planned);
    return status;
}

const rank_verb plan_estimate_verb = {.name = "plan-estimate",
                                      .request_bytes = sizeof(tandem_plan_estimate_request),
                                      .pack_request = pack_plan_estimate_request,
                                      .run = run_plan_estimate_verb};

/* --- Public --------------------------------------------------------------------------------------------- */

unsigned tandem_plan_estimate_beyond(const tandem_plan_estimate *estimate)
{
    return (estimate->samples <= TANDEM_MAX_EXTRA_SAMPLES ? 0u : TANDEM_BEYOND_SAMPLES) |
           (estimate->across > 0.1 ? TANDEM_BEYOND_MEAN_ERROR : 0u) |
           (estimate->across > TANDEM_MAX_MEAN_ERROR ? TANDEM_BEYOND_BIAS : 0u) |
           (estimate->stability >= TANDEM_MIN_STABILITY ? 0u : TANDEM_BEYOND_STABILITY) |
           (estimate->along > TANDEM_MAX_LOST_STEP ? TANDEM_BEYOND_STEP : 0u) |
           (isfinite(estimate->loss_rise) ? 0u : TANDEM_BEYOND_FINITE);
}

/* Ranks read a plan from a file. */
static tandem_status measure_given_plan(tandem_plan_estimate *estimate,
                                        const tandem_plan_estimate_request *request, tandem_error *error)
{
    char path[SCRATCH_JSON];
    tandem_plan_estimate_request of_file = *request;
    of_file.plan = NULL;
    of_file.graph = NULL;
    of_file.workload = (tandem_workload_request){
        .plan = path, .seed = request->workload.seed, .emulate = request->workload.emulate};
    tandem_status status = scratch_json_make(path, error);
    if (status != TANDEM_OK) return status;
    status = tandem_plan_write(request->plan, request->graph, path, error);
    if (status == TANDEM_OK) status = tandem_plan_estimate_measure(estimate, &of_file, error);
    scratch_file_remove(path);
    return status;
}

tandem_status tandem_plan_estimate_measure(tandem_plan_estimate *estimate,
                                           const tandem_plan_estimate_request *request, tandem_error *error)
{
    packet answer = {0};
    tandem_plan_estimate_request copy = *request;
    if (request->plan) return measure_given_plan(estimate, request, error);
    tandem_plan_estimate read = {.steps = 0};
    tandem_cluster cluster;
    tandem_status status = check_before_estimating(&cluster, request, error);
    if (status == TANDEM_OK)
        status = ranks_run(&answer, &plan_estimate_verb, &copy, &cluster, 1, &request->listener, error);
    if (status == TANDEM_OK) {
        packet_value(&answer, &read, sizeof read);
        if (answer.has_failed) status = tandem_no_memory(error, "for the estimate of a plan");
    }
    packet_free(&answer);
    if (status == TANDEM_OK) *estimate = read;
    return status;
}
