/* sensing.c: replicates of what every operator in every precision changes of the gradient.
 *
 * For one operator in one precision, all others in fp32, an emulated executor takes the gradients of the two
 * batches of each replicate. Weights round alike in both; activations and gradients draw anew. */
#include "cli/sensing.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

enum { MAX_HALVINGS = 40 };             /* of a dynamic loss scale, until a step is not skipped */
static const double least_share = 1e-4; /* of the mean of v̂: below it, v̂ counts as that */

typedef struct sense_run {
    const cli_workload *workload;
    cli_workload sensed; /* the same at the batch that is sensed */
    const cli_options *options;
    const sensing_request *request;
    tandem_emulation emulation; /* but its seed */
    unsigned precisions;        /* that are sensed, 1 << tandem_precision */
    training_rank rank;         /* trains in fp32 */
    tandem_sensing *sensing;
    int age_index, n_cell, n_cell_done;
    int64_t n_weight;
    float *weight; /* [n_flat] at the age */
    float *metric; /* [n_weight]; NULL: 1 */
    float **exact; /* [2 · n_replicate][n_weight] of every batch, in fp32 */
    float **mean;  /* [n_replicate][n_weight] of a cell: ½(d₁ + d₂) */
    float *d[2];   /* [n_weight] */
    double *sum;   /* [n_weight] over replicates */
    int64_t begin_ns;
} sense_run;

/* --- Ages ----------------------------------------------------------------------------------------------- */

tandem_status sensing_ages_parse(int64_t age[TANDEM_MAX_AGE], int *n_age, const char *text, int64_t steps,
                                 tandem_error *error)
{
    int n = 0;
    for (const char *at = text; *at;) {
        char *end = NULL;
        const double number = strtod(at, &end);
        const int is_share = *end == '%',
                  is_number = end > at && number >= 0 && number <= (is_share ? 100 : 1e9);
        const char *next = end + is_share;
        const int64_t step = is_number ? (int64_t)(is_share ? (double)steps * number / 100 : number) : -1;
        if (!is_number || (*next && *next != ',') || step > steps || (n > 0 && step <= age[n - 1]) ||
            n == TANDEM_MAX_AGE)
            return tandem_error_set(
                error, TANDEM_USAGE,
                "--at takes up to %d ascending ages of the %lld steps of --steps, such as "
                "0,10%%,50%% or 0,200; got '%.60s' in '%.60s'",
                TANDEM_MAX_AGE, (long long)steps, at, text);
        age[n++] = step;
        at = next + (*next == ',');
    }
    *n_age = n;
    return n > 0 ? TANDEM_OK
                 : tandem_error_set(error, TANDEM_USAGE, "--at takes at least one age, such as 0");
}

/* --- Gradients ------------------------------------------------------------------------------------------ */

tandem_status sensing_copy_gradient(float *gradient, const tandem_backend_api *backend,
                                    const tandem_executor *executor, const tandem_graph *graph,
                                    tandem_error *error)
{
    for (int p = 0; p < graph->n_parameter; p++) {
        const int64_t n = graph->parameter[p].elements;
        const float *of = backend->executor_value(executor, TANDEM_PARAMETER(p), 1, NULL);
        if (!of) return tandem_no_memory(error, "to read a gradient");
        memcpy(gradient, of, (size_t)n * sizeof *gradient);
        gradient += n;
    }
    return TANDEM_OK;
}

/* Σ m·a·b */
static double product_of(const sense_run *run, const float *a, const float *b)
{
    double sum = 0;
    for (int64_t i = 0; i < run->n_weight; i++)
        sum += (double)a[i] * (double)b[i] * (run->metric ? (double)run->metric[i] : 1);
    return sum;
}

/* ⟨a, Σ of all replicates − own⟩ / (R − 1) */
static double product_with_others(const sense_run *run, const float *a, const float *own)
{
    double sum = 0;
    for (int64_t i = 0; i < run->n_weight; i++)
        sum += (double)a[i] * (run->sum[i] - (double)own[i]) * (run->metric ? (double)run->metric[i] : 1);
    return sum / (run->sensing->n_replicate - 1);
}

/* A frozen executor of the workload's model with one operator in a precision; fp32: not emulated. */
typedef struct frozen_executor {
    tandem_step *step;
    tandem_executor *executor;
} frozen_executor;

static int has_f16_gradient(tandem_precision precision, tandem_dtype amp_dtype)
{
    const tandem_precision_row *row = tandem_precision_get(precision);
    const tandem_dtype of[] = {row->dgrad, row->wgrad};
    for (int k = 0; k < 2; k++)
        if (of[k] == TANDEM_F16 || (of[k] == TANDEM_AMP && amp_dtype == TANDEM_F16)) return 1;
    return 0;
}

static int has_precision(const tandem_op *op, int precision)
{
    return tandem_op_is_adjustable(op) && tandem_op_row_get(op->kind)->precisions & 1u << precision;
}

static void close_frozen_executor(frozen_executor *frozen, const sense_run *run)
{
    if (frozen->executor) run->rank.backend->executor_close(frozen->executor);
    tandem_step_close(frozen->step);
    *frozen = (frozen_executor){0};
}

static tandem_status open_frozen_executor(frozen_executor *frozen, const sense_run *run, int op,
                                          tandem_precision precision, tandem_dtype amp_dtype,
                                          tandem_error *error)
{
    const cli_options *options = run->options;
    const int is_emulated = precision != TANDEM_PRECISION_FP32,
              is_scaled = has_f16_gradient(precision, amp_dtype);
    tandem_device device = run->workload->cluster.classes[0].device;
    tandem_step_options step_options = run->workload->plan->step;
    if (is_emulated) device.amp_dtype = amp_dtype;
    step_options.emulated = is_emulated;
    step_options.n_micro = 1; /* a sensitivity is converted to the micro-steps of a training */
    step_options.with_norm = is_scaled;
    tandem_status status = tandem_device_open_step(&frozen->step, &device, run->sensed.graph[0],
                                                   options->bucket_bytes, &step_options, error);
    if (status != TANDEM_OK) return status;
    for (int i = 0; i < run->sensing->n_op && is_emulated; i++)
        if (i == op ||
            (run->request->is_whole_plan && has_precision(&run->workload->graph[0]->op[i], precision)))
            tandem_step_set(frozen->step, i, precision);
    tandem_step_resolve(frozen->step);
    const tandem_executor_options executor_options = {.step = frozen->step,
                                                      .data = &run->rank.data,
                                                      .seed = options->seed,
                                                      .emulation = is_emulated ? &run->emulation : NULL,
                                                      .hold_weights = 1,
                                                      .global_batch = run->sensing->batch,
                                                      .loss_scale = is_scaled ? -1 : 0,
                                                      .allow_nan = 1};
    status = run->rank.backend->executor_open(&frozen->executor, run->rank.worker, &executor_options, error);
    if (status == TANDEM_OK)
        status = run->rank.backend->executor_put_weights(frozen->executor, run->weight, error);
    if (status != TANDEM_OK) close_frozen_executor(frozen, run);
    return status;
}

/* The gradient of batch b of the age. A step that overflows has none: it is lost. */
static tandem_status take_frozen_gradient(float *gradient, const frozen_executor *frozen,
                                          const sense_run *run, int b, tandem_error *error)
{
    const tandem_backend_api *backend = run->rank.backend;
    const int64_t index =
        run->options->steps +
        2 * ((int64_t)run->age_index * TANDEM_MAX_REPLICATE + run->request->first_replicate) + b;
    double loss = 0;
    tandem_status status = TANDEM_OK;
    int is_lost = 1;
    for (int k = 0; k < MAX_HALVINGS && is_lost && status == TANDEM_OK; k++) {
        status = backend->executor_step(frozen->executor, index, &loss, error);
        if (status == TANDEM_OK) is_lost = backend->executor_report(frozen->executor).skipped;
    }
    if (status == TANDEM_LIMIT_EXCEEDED) status = TANDEM_OK;
    if (status == TANDEM_OK)
        status = sensing_copy_gradient(gradient, backend, frozen->executor, frozen->step->graph, error);
    for (int64_t i = 0; i < run->n_weight && !is_lost; i++) is_lost = !isfinite(gradient[i]);
    if (status == TANDEM_OK && is_lost) memset(gradient, 0, (size_t)run->n_weight * sizeof *gradient);
    return status;
}

/* --- fp32 ----------------------------------------------------------------------------------------------- */

/* Adds ½(a + b) of a replicate to the sum over replicates. */
static void add_mean(sense_run *run, float *mean, const float *a, const float *b)
{
    for (int64_t i = 0; i < run->n_weight; i++) {
        mean[i] = 0.5f * (a[i] + b[i]);
        run->sum[i] += (double)mean[i];
    }
}

/* 1/√v̂ of AdamW. v̂ from its state; before the first step from the batches. Weights whose v̂ is far below
 * the mean would count without bounds. */
static tandem_status fill_metric(sense_run *run, int64_t age, tandem_error *error)
{
    const tandem_step *step = run->rank.step;
    const tandem_graph *graph = step->graph;
    const int n_batch = 2 * run->sensing->n_replicate;
    const double beta = (double)run->rank.config.optimizer.beta2, kept = 1 - pow(beta, (double)age);
    float *state = malloc((size_t)step->n_flat * sizeof *state);
    if (!state) return tandem_no_memory(error, "for the optimizer's state");
    const tandem_status status =
        age > 0 ? run->rank.backend->executor_get_mean_squares(run->rank.executor, state, error) : TANDEM_OK;
    double mean = 0;
    int64_t i = 0;
    for (int p = 0; p < graph->n_parameter && status == TANDEM_OK; p++)
        for (int64_t k = 0; k < graph->parameter[p].elements; k++, i++) {
            double square = 0;
            for (int b = 0; b < n_batch && age == 0; b++)
                square += (double)run->exact[b][i] * (double)run->exact[b][i] / n_batch;
            if (age > 0) square = (double)state[step->parameter_start[p] + k] / kept;
            run->metric[i] = (float)square;
            mean += square / (double)run->n_weight;
        }
    for (i = 0; i < run->n_weight && mean > 0; i++)
        run->metric[i] = (float)(1 / sqrt(fmax((double)run->metric[i], least_share * mean)));
    free(state);
    return status;
}

static tandem_status sense_fp32(sense_run *run, int64_t age, tandem_error *error)
{
    const int n = run->sensing->n_replicate;
    frozen_executor frozen = {0};
    tandem_status status = open_frozen_executor(&frozen, run, 0, TANDEM_PRECISION_FP32, TANDEM_F32, error);
    for (int b = 0; b < 2 * n && status == TANDEM_OK; b++)
        status = take_frozen_gradient(run->exact[b], &frozen, run, b, error);
    close_frozen_executor(&frozen, run);
    if (status == TANDEM_OK && run->metric) status = fill_metric(run, age, error);
    if (status != TANDEM_OK) return status;
    memset(run->sum, 0, (size_t)run->n_weight * sizeof *run->sum);
    for (int r = 0; r < n; r++) add_mean(run, run->mean[r], run->exact[2 * r], run->exact[2 * r + 1]);
    for (int r = 0; r < n; r++) {
        const float *g[2] = {run->exact[2 * r], run->exact[2 * r + 1]};
        run->sensing->gradient[run->age_index * n + r] = (tandem_sensed_gradient){
            .variance = 0.5 * (product_of(run, g[0], g[0]) + product_of(run, g[1], g[1])) -
                        product_of(run, g[0], g[1]),
            .mean_square = product_with_others(run, run->mean[r], run->mean[r])};
    }
    return TANDEM_OK;
}

/* --- One operator in one precision ---------------------------------------------------------------------- */

static tandem_status take_errors(sense_run *run, const frozen_executor *frozen, int r, tandem_error *error)
{
    tandem_emulation emulation = run->emulation;
    emulation.seed = run->options->seed + 1 + (uint64_t)run->request->first_replicate + (uint64_t)r;
    emulation.same_weight_draws = 1;
    tandem_status status = run->rank.backend->executor_set_emulation(frozen->executor, &emulation, error);
    for (int k = 0; k < 2 && status == TANDEM_OK; k++) {
        status = take_frozen_gradient(run->d[k], frozen, run, 2 * r + k, error);
        for (int64_t i = 0; i < run->n_weight; i++) run->d[k][i] -= run->exact[2 * r + k][i];
    }
    return status;
}

/* The mean over both ways of −⟨d of one replicate, g of another⟩; ḡ of each from its two batches. */
static void set_pair_means(sense_run *run, tandem_sensed_error *of)
{
    const int n = run->sensing->n_replicate;
    for (int r = 0; r < n; r++) {
        of[r].mean_square = product_with_others(run, run->mean[r], run->mean[r]);
        for (int k = 0; k < 2; k++) /* d of the others, own g */
            of[r].against -= 0.25 * product_with_others(run, run->exact[2 * r + k], run->mean[r]);
    }
    memset(run->sum, 0, (size_t)run->n_weight * sizeof *run->sum);
    for (int b = 0; b < 2 * n; b++)
        for (int64_t i = 0; i < run->n_weight; i++) run->sum[i] += 0.5 * (double)run->exact[b][i];
    for (int r = 0; r < n; r++) { /* own d, g of the others */
        for (int64_t i = 0; i < run->n_weight; i++)
            run->d[0][i] = 0.5f * (run->exact[2 * r][i] + run->exact[2 * r + 1][i]);
        of[r].against -= 0.5 * product_with_others(run, run->mean[r], run->d[0]);
    }
}

static tandem_status sense_cell(sense_run *run, int op, tandem_precision precision, tandem_dtype amp_dtype,
                                tandem_error *error)
{
    const int n = run->sensing->n_replicate, cell = tandem_sensing_cell(op, precision, amp_dtype);
    tandem_sensed_error *of = tandem_sensing_errors(run->sensing, run->age_index, cell);
    frozen_executor frozen = {0};
    tandem_status status = open_frozen_executor(&frozen, run, op, precision, amp_dtype, error);
    memset(run->sum, 0, (size_t)run->n_weight * sizeof *run->sum);
    for (int r = 0; r < n && status == TANDEM_OK; r++) {
        status = take_errors(run, &frozen, r, error);
        if (status != TANDEM_OK) break;
        of[r] = (tandem_sensed_error){
            .total = 0.5 * (product_of(run, run->d[0], run->d[0]) + product_of(run, run->d[1], run->d[1])),
            .shared = product_of(run, run->d[0], run->d[1])};
        add_mean(run, run->mean[r], run->d[0], run->d[1]);
    }
    close_frozen_executor(&frozen, run);
    if (status != TANDEM_OK) return status;
    set_pair_means(run, of);
    run->sensing->is_sensed[cell] = 1;
    const int64_t now = tandem_now_ns();
    run->n_cell_done++;
    cli_progress(run->options, (now - run->begin_ns) / run->n_cell_done * (run->n_cell - run->n_cell_done),
                 "sensitivity: cell %d of %d", run->n_cell_done, run->n_cell);
    return TANDEM_OK;
}

/* Each variant of an operator's precisions; is_counted: counts them only. */
static tandem_status for_cells_of_op(int *n_cell, sense_run *run, int op, int is_counted, tandem_error *error)
{
    const tandem_graph *graph = run->workload->graph[0];
    static const tandem_dtype amp_dtypes[TANDEM_N_AMP_DTYPE] = {TANDEM_F32, TANDEM_BF16, TANDEM_F16};
    tandem_status status = TANDEM_OK;
    for (int p = TANDEM_PRECISION_FP32 + 1; p < TANDEM_N_PRECISION; p++) {
        if (!(run->precisions & 1u << p) || !has_precision(&graph->op[op], p)) continue;
        if (run->request->is_whole_plan && *n_cell > 0) break;
        const int n_amp = tandem_precision_has_amp((tandem_precision)p) ? TANDEM_N_AMP_DTYPE : 1;
        for (int k = 0; k < n_amp && status == TANDEM_OK; k++) {
            ++*n_cell;
            if (!is_counted) status = sense_cell(run, op, (tandem_precision)p, amp_dtypes[k], error);
        }
    }
    return status;
}

/* --- A training ----------------------------------------------------------------------------------------- */

static tandem_status sense_age(sense_run *run, int a, tandem_error *error)
{
    const tandem_graph *graph = run->workload->graph[0];
    int n_cell = 0;
    run->age_index = a;
    tandem_status status = run->rank.backend->executor_get_weights(run->rank.executor, run->weight, error);
    if (status == TANDEM_OK) status = sense_fp32(run, run->sensing->age[a], error);
    for (int op = 0; op < graph->n_op && status == TANDEM_OK; op++)
        status = for_cells_of_op(&n_cell, run, op, 0, error);
    return status;
}

static tandem_status train_and_sense(sense_run *run, tandem_error *error)
{
    const tandem_backend_api *backend = run->rank.backend;
    tandem_status status = run->options->init
                               ? backend->executor_import(run->rank.executor, run->options->init, error)
                               : TANDEM_OK;
    int64_t step = 0;
    for (int a = 0; a < run->sensing->n_age && status == TANDEM_OK; a++) {
        for (; step < run->sensing->age[a] && status == TANDEM_OK; step++) {
            double loss = 0;
            backend->executor_set_rate(run->rank.executor, train_config_rate(&run->rank.config, step));
            status = backend->executor_step(run->rank.executor, step, &loss, error);
            if (step % 16 == 0)
                cli_progress(run->options, -1, "sensitivity: step %lld of %lld, loss %.4f", (long long)step,
                             (long long)run->sensing->age[run->sensing->n_age - 1], loss);
        }
        if (status == TANDEM_OK && a == 0) run->begin_ns = tandem_now_ns();
        if (status == TANDEM_OK) status = sense_age(run, a, error);
    }
    return status;
}

static float **open_vectors(int n, int64_t length)
{
    float **vector = calloc((size_t)n, sizeof *vector);
    for (int i = 0; vector && i < n; i++) {
        vector[i] = calloc((size_t)length, sizeof **vector);
        if (vector[i]) continue;
        while (i-- > 0) free(vector[i]);
        free((void *)vector);
        return NULL;
    }
    return vector;
}

static void close_vectors(float **vector, int n)
{
    for (int i = 0; vector && i < n; i++) free(vector[i]);
    free((void *)vector);
}

static tandem_status open_sense_run(sense_run *run, tandem_error *error)
{
    const cli_rank alone = {.rank = 0, .n_rank = 1, .store = NULL, .cpu = -1};
    const tandem_graph *graph = run->workload->graph[0];
    const tandem_status status = training_rank_open(&run->rank, run->workload, run->options, &alone, error);
    if (status != TANDEM_OK) return status;
    run->n_weight = tandem_graph_n_weight(graph);
    run->sensing->batch = run->sensed.graph[0]->batch;
    run->sensing->steps = run->options->steps;
    run->sensing->seed = run->options->seed;
    run->sensing->optimizer = graph->optimizer.kind;
    const int n = run->sensing->n_replicate, has_metric = graph->optimizer.kind == TANDEM_ADAMW;
    const size_t bytes = (size_t)run->n_weight * sizeof(float);
    for (int op = 0; op < graph->n_op; op++) (void)for_cells_of_op(&run->n_cell, run, op, 1, NULL);
    run->n_cell *= run->sensing->n_age;
    run->weight = malloc((size_t)run->rank.step->n_flat * sizeof *run->weight);
    run->metric = has_metric ? malloc(bytes) : NULL;
    run->exact = open_vectors(2 * n, run->n_weight);
    run->mean = open_vectors(n, run->n_weight);
    run->d[0] = malloc(bytes);
    run->d[1] = malloc(bytes);
    run->sum = calloc((size_t)run->n_weight, sizeof *run->sum);
    if (!run->weight || (has_metric && !run->metric) || !run->exact || !run->mean || !run->d[0] ||
        !run->d[1] || !run->sum)
        return tandem_no_memory(error, "for the gradients of %d batches", 2 * n);
    return TANDEM_OK;
}

static void close_sense_run(sense_run *run)
{
    const int n = run->request->n_replicate;
    free(run->weight);
    free(run->metric);
    close_vectors(run->exact, 2 * n);
    close_vectors(run->mean, n);
    free(run->d[0]);
    free(run->d[1]);
    free(run->sum);
    training_rank_close(&run->rank);
    cli_workload_close(&run->sensed);
}

static tandem_status choose_precisions(sense_run *run, tandem_error *error)
{
    tandem_precision precision;
    run->emulation = tandem_emulation_make(run->options->seed);
    run->precisions = ~0u;
    if (!run->request->precision) return TANDEM_OK;
    run->emulation = run->request->emulation;
    const tandem_status status = tandem_precision_find(&precision, run->request->precision, error);
    if (status == TANDEM_OK) run->precisions = 1u << precision;
    return status;
}

tandem_status sensing_run(tandem_sensing *sensing, const cli_workload *workload, const cli_options *options,
                          const sensing_request *request, tandem_error *error)
{
    tandem_sensing made = {0};
    cli_options sensed_options = *options;
    sense_run run = {.workload = workload, .options = options, .request = request, .sensing = &made};
    tandem_status status =
        tandem_sensing_open(&made, workload->graph[0]->n_op, request->n_age, request->n_replicate, error);
    if (status != TANDEM_OK) return status;
    memcpy(made.age, request->age, sizeof made.age);
    if (request->batch > 0) sensed_options.batch = request->batch;
    status = choose_precisions(&run, error);
    if (status == TANDEM_OK) status = cli_workload_open(&run.sensed, &sensed_options, error);
    if (status == TANDEM_OK) status = open_sense_run(&run, error);
    if (status == TANDEM_OK) status = train_and_sense(&run, error);
    close_sense_run(&run);
    if (status == TANDEM_OK)
        *sensing = made;
    else
        tandem_sensing_close(&made);
    return status;
}
