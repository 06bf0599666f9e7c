/* sensitivity.c: measures sensitivities: statistics of batches, then replicates at training points. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/process/ranks.h"
#include "runtime/estimate/batch_statistics.h"
#include "runtime/estimate/estimate.h"
#include "runtime/estimate/sensitivity.h"

_Static_assert((int)TANDEM_MAX_POINT == (int)TANDEM_MAX_TRAINING_POINT,
               "a result has room for every training point");

enum { REPLICATES = 8, STEPS = 100, BATCHES = 10 };

/* --- Checks --------------------------------------------------------------------------------------------- */

static tandem_status check_sensitivity(const tandem_sensitivity_request *request,
                                       const tandem_workload *workload, tandem_error *error)
{
    const char *device = workload->cluster.classes[0].device.name;
    if (!request->data)
        return tandem_error_set(error, TANDEM_USAGE,
                                "no data given. Use e.g. --data fashion-mnist (tandem list datasets)");
    if (tandem_cluster_n_rank(&workload->cluster) != 1)
        return tandem_error_set(error, TANDEM_USAGE,
                                "sensitivities hold for all devices. Give one device, got --device %s",
                                request->workload.cluster);
    if (request->way == TANDEM_BY_STATISTICS && (request->at || request->n_replicate))
        return tandem_error_set(error, TANDEM_USAGE,
                                "--by statistics and %s contradict each other: statistics are means over the "
                                "first --steps batches",
                                request->at ? "--at" : "--repetitions");
    if (request->way == TANDEM_BY_STATISTICS || strncmp(device, "cpu:", strlen("cpu:")) == 0)
        return TANDEM_OK;
    return tandem_error_set(
        error, TANDEM_USAGE,
        "an estimate emulates precisions and needs a CPU device; '%s' is not one. Leave --device "
        "out: sensitivities hold for all devices. --by statistics needs none",
        device);
}

/* Reports a store that cannot be written before the batches, not after. */
static tandem_status check_store(const char *path, tandem_error *error)
{
    tandem_store *store = NULL;
    const tandem_status status = tandem_store_open(&store, path, TANDEM_STORE_WRITE, error);
    tandem_store_close(store);
    return status;
}

static int64_t steps_of(const tandem_sensitivity_request *request)
{
    if (request->steps > 0) return request->steps;
    return request->way == TANDEM_BY_STATISTICS ? BATCHES : STEPS;
}

static tandem_status choose_estimate(estimate_request *estimated, const tandem_sensitivity_request *request,
                                     const tandem_workload *workload, tandem_error *error)
{
    *estimated = request->way == TANDEM_BY_PROBE
                     ? estimate_request_probe(workload)
                     : (estimate_request){.n_replicate = REPLICATES, .has_wide_ranges = 1};
    if (request->n_replicate) estimated->n_replicate = request->n_replicate;
    return estimate_choose_points(estimated, request->at, steps_of(request), error);
}

/* --- Into the store ------------------------------------------------------------------------------------- */

static tandem_status open_result_store(tandem_store **store, const char *path, tandem_error *error)
{
    char libraries[128];
    const tandem_backend_api *backend = runtime_backend(error);
    if (!backend) return TANDEM_MISSING;
    tandem_status status = tandem_store_open(store, path, TANDEM_STORE_WRITE, error);
    if (status == TANDEM_OK)
        status =
            tandem_store_set_environment(*store, backend->libraries(libraries, sizeof libraries), 1, error);
    return status;
}

static tandem_status put_statistics(const tandem_statistics *statistics, const tandem_graph *graph,
                                    const tandem_sensitivity_request *request, tandem_error *error)
{
    tandem_store *store = NULL;
    tandem_status status = open_result_store(&store, request->store, error);
    if (status == TANDEM_OK) status = tandem_store_begin(store, error);
    for (int i = 0; i < graph->n_op && status == TANDEM_OK; i++)
        if (statistics[i].n_batch > 0)
            status = tandem_store_put_statistics(store, graph, request->data, i, &statistics[i], error);
    if (status == TANDEM_OK) status = tandem_store_commit(store, error);
    if (status != TANDEM_OK && store) tandem_store_rollback(store);
    tandem_store_close(store);
    return status;
}

static tandem_status put_estimate(const tandem_estimate *estimate, const tandem_graph *graph,
                                  const tandem_sensitivity_request *request, tandem_error *error)
{
    tandem_store *store = NULL;
    tandem_status status = open_result_store(&store, request->store, error);
    if (status == TANDEM_OK) status = tandem_store_put_estimate(store, graph, request->data, estimate, error);
    tandem_store_close(store);
    return status;
}

/* --- Rows of the result --------------------------------------------------------------------------------- */

static tandem_status add_row(tandem_sensitivity_result *result, const tandem_operator_sensitivity *row,
                             tandem_error *error)
{
    tandem_operator_sensitivity *grown =
        realloc(result->row, (size_t)(result->n_row + 1) * sizeof *result->row);
    if (!grown) return tandem_no_memory(error, "for sensitivities");
    result->row = grown;
    result->row[result->n_row++] = *row;
    return TANDEM_OK;
}

/* share: all 0, and all 0 again afterwards. */
static tandem_status add_estimated_rows(tandem_sensitivity_result *result, double *share,
                                        const tandem_graph *graph, const tandem_estimate *estimate,
                                        tandem_dtype amp_dtype, tandem_error *error)
{
    const tandem_sensitivity_step step = {.global_batch = estimate->batch, .n_micro = 1};
    tandem_status status = TANDEM_OK;
    for (int i = 0; i < graph->n_op * TANDEM_N_PRECISION && status == TANDEM_OK; i++) {
        tandem_operator_sensitivity row = {.op = i / TANDEM_N_PRECISION,
                                           .precision = (tandem_precision)(i % TANDEM_N_PRECISION)};
        const int cell = tandem_estimate_cell(row.op, row.precision, amp_dtype);
        tandem_sensitivity_estimate e = {0};
        if (!estimate->is_estimated[cell]) continue;
        share[cell] = 1;
        status = tandem_estimate_sensitivity(&e, estimate, share, &step, error);
        share[cell] = 0;
        row.value = e.value, row.low = e.low, row.high = e.high, row.noise = e.noise, row.bias = e.bias;
        memcpy(row.at_point, e.at_point, sizeof e.at_point);
        if (status == TANDEM_OK) status = add_row(result, &row, error);
    }
    return status;
}

tandem_status sensitivity_result_of(tandem_sensitivity_result *result, const tandem_graph *graph,
                                    const tandem_estimate *estimate, const tandem_device *device,
                                    tandem_error *error)
{
    const size_t n_cell = (size_t)graph->n_op * TANDEM_N_PRECISION * TANDEM_N_AMP_DTYPE;
    double *const share = calloc(n_cell + 1, sizeof *share);
    tandem_sensitivity_result out = {.batch = estimate->batch,
                                     .steps = estimate->steps,
                                     .n_point = estimate->n_point,
                                     .n_replicate = estimate->n_replicate};
    (void)snprintf(out.model, sizeof out.model, "%s", graph->model);
    (void)snprintf(out.device, sizeof out.device, "%s", device->name);
    memcpy(out.point, estimate->point, (size_t)estimate->n_point * sizeof *out.point);
    const tandem_status status =
        share ? add_estimated_rows(&out, share, graph, estimate, device->amp_dtype, error)
              : tandem_no_memory(error, "for sensitivities");
    free(share);
    if (status == TANDEM_OK)
        *result = out;
    else
        tandem_sensitivity_result_free(&out);
    return status;
}

/* Of the methods that need statistics alone, in the device's AMP dtype. */
static tandem_status add_statistics_rows(tandem_sensitivity_result *result, const tandem_graph *graph,
                                         const tandem_statistics *statistics, tandem_dtype amp_dtype,
                                         tandem_error *error)
{
    const size_t n_value = (size_t)graph->n_op * TANDEM_N_PRECISION;
    double *values = calloc(TANDEM_MAX_METHOD * n_value, sizeof *values);
    tandem_status status = values ? TANDEM_OK : tandem_no_memory(error, "for sensitivities");
    for (int m = 0; values && tandem_sensitivity_get(m) && result->n_method < TANDEM_MAX_METHOD; m++)
        if (tandem_sensitivity_get(m)->compute)
            tandem_sensitivity_get(m)->compute(values + (size_t)result->n_method++ * n_value, graph,
                                               statistics, amp_dtype);
    for (int i = 0; i < graph->n_op; i++)
        for (int p = 1; p < TANDEM_N_PRECISION && status == TANDEM_OK; p++) {
            tandem_operator_sensitivity row = {.op = i, .precision = (tandem_precision)p};
            row.value = row.low = row.high = row.noise = row.bias = NAN;
            if (!(tandem_op_row_get(graph->op[i].kind)->precisions & (1u << p))) continue;
            for (int m = 0; m < result->n_method; m++)
                row.method[m] = values[(size_t)m * n_value + (size_t)(i * TANDEM_N_PRECISION + p)];
            status = add_row(result, &row, error);
        }
    free(values);
    return status;
}

tandem_status sensitivity_result_of_statistics(tandem_sensitivity_result *result, const tandem_graph *graph,
                                               const tandem_statistics *statistics, int64_t n_batch,
                                               const tandem_device *device, tandem_error *error)
{
    tandem_sensitivity_result out = {.batch = graph->batch, .steps = n_batch};
    (void)snprintf(out.model, sizeof out.model, "%s", graph->model);
    (void)snprintf(out.device, sizeof out.device, "%s", device->name);
    const tandem_status status = add_statistics_rows(&out, graph, statistics, device->amp_dtype, error);
    if (status == TANDEM_OK)
        *result = out;
    else
        tandem_sensitivity_result_free(&out);
    return status;
}

/* --- Measuring ------------------------------------------------------------------------------------------ */

static tandem_train_request training_of(const tandem_sensitivity_request *request)
{
    tandem_train_request training = tandem_train_request_default();
    training.workload = request->workload;
    training.listener = request->listener;
    training.store = request->store;
    training.data = request->data;
    training.steps = steps_of(request);
    training.init = request->init;
    if (request->has_training) training.training = request->training;
    return training;
}

/* Trains in fp32 for the first n_batch batches, and stores their statistics. result: NULL, or what follows
 * from them. */
static tandem_status measure_statistics(tandem_sensitivity_result *result,
                                        const tandem_sensitivity_request *request, int64_t n_batch,
                                        tandem_error *error)
{
    tandem_train_request training = training_of(request);
    training.workload.step.separate_partial_grads = 1;
    tandem_workload workload = {0};
    training_rank rank = {0};
    tandem_statistics *statistics = NULL;
    const tandem_rank_place alone = {.n_rank = 1};
    tandem_status status = tandem_workload_open(&workload, &training.workload, error);
    if (status == TANDEM_OK) status = training_rank_open(&rank, &workload, &training, &alone, error);
    if (status == TANDEM_OK) status = check_store(request->store, error);
    if (status == TANDEM_OK && request->init)
        status = training_rank_inspect_init(rank.backend, workload.graph[0], request->init,
                                            &request->listener, error);
    if (status == TANDEM_OK && request->init)
        status = rank.backend->executor_import(rank.executor, request->init, error);
    if (status == TANDEM_OK && !(statistics = calloc((size_t)rank.step->graph->n_op, sizeof *statistics)))
        status = tandem_no_memory(error, "for statistics");
    if (status == TANDEM_OK)
        status = batch_statistics_collect(statistics, &rank, &training, 0, n_batch, error);
    if (status == TANDEM_OK) status = put_statistics(statistics, rank.step->graph, request, error);
    if (status == TANDEM_OK && result)
        status = sensitivity_result_of_statistics(result, workload.graph[0], statistics, n_batch,
                                                  &workload.cluster.classes[0].device, error);
    free(statistics);
    training_rank_close(&rank);
    tandem_workload_close(&workload);
    return status;
}

static tandem_status measure_samples(tandem_sensitivity_result *result,
                                     const tandem_sensitivity_request *request,
                                     const tandem_workload *workload, tandem_error *error)
{
    const int64_t steps = steps_of(request);
    const tandem_train_request training = training_of(request);
    estimate_request estimated;
    tandem_estimate estimate = {0};
    tandem_status status = choose_estimate(&estimated, request, workload, error);
    if (status == TANDEM_OK) status = check_store(request->store, error);
    if (status == TANDEM_OK)
        status = measure_statistics(NULL, request, steps < BATCHES ? steps : BATCHES, error);
    if (status == TANDEM_OK) status = estimate_run(&estimate, workload, &training, &estimated, error);
    if (status == TANDEM_OK) status = put_estimate(&estimate, workload->graph[0], request, error);
    if (status == TANDEM_OK)
        status = sensitivity_result_of(result, workload->graph[0], &estimate,
                                       &workload->cluster.classes[0].device, error);
    tandem_estimate_close(&estimate);
    return status;
}

static tandem_status measure_here(tandem_sensitivity_result *result,
                                  const tandem_sensitivity_request *request, const tandem_workload *workload,
                                  tandem_error *error)
{
    if (request->way != TANDEM_BY_STATISTICS) return measure_samples(result, request, workload, error);
    return measure_statistics(result, request, steps_of(request), error);
}

/* --- Between processes ---------------------------------------------------------------------------------- */

static void pack_sensitivity_request(packet *p, void *of)
{
    tandem_sensitivity_request *request = of;
    packet_value(p, request, sizeof *request);
    workload_request_pack(p, &request->workload);
    const char **const text[] = {&request->store, &request->data, &request->at, &request->init};
    for (size_t k = 0; k < sizeof text / sizeof *text; k++) packet_text(p, text[k]);
    training_options_pack(p, &request->training);
}

static void pack_sensitivity_result(packet *p, tandem_sensitivity_result *result)
{
    packet_value(p, result, sizeof *result);
    packet_array(p, &result->row, (size_t)result->n_row, sizeof *result->row);
}

static tandem_status run_sensitivity_verb(packet *answer, void *of, const tandem_rank_place *place,
                                          const tandem_listener *listener, tandem_error *error)
{
    tandem_sensitivity_request request = *(const tandem_sensitivity_request *)of;
    tandem_sensitivity_result result = {.n_row = 0};
    tandem_workload workload = {0};
    (void)place;
    request.listener = *listener;
    tandem_status status = tandem_workload_open(&workload, &request.workload, error);
    if (status == TANDEM_OK) status = measure_here(&result, &request, &workload, error);
    if (status == TANDEM_OK) pack_sensitivity_result(answer, &result);
    tandem_sensitivity_result_free(&result);
    tandem_workload_close(&workload);
    return status;
}

const rank_verb sensitivity_verb = {.name = "sensitivity",
                                    .request_bytes = sizeof(tandem_sensitivity_request),
                                    .pack_request = pack_sensitivity_request,
                                    .run = run_sensitivity_verb};

/* --- Public --------------------------------------------------------------------------------------------- */

/* What can be wrong, before a process starts. *cluster: whose first class measures. */
static tandem_status check_before_measuring(tandem_cluster *cluster,
                                            const tandem_sensitivity_request *request, tandem_error *error)
{
    tandem_workload workload = {0};
    estimate_request estimated;
    tandem_status status = tandem_workload_open(&workload, &request->workload, error);
    if (status == TANDEM_OK) status = check_sensitivity(request, &workload, error);
    if (status == TANDEM_OK && request->way != TANDEM_BY_STATISTICS)
        status = choose_estimate(&estimated, request, &workload, error);
    if (status == TANDEM_OK) status = runtime_device_require(workload.cluster.classes[0].device.name, error);
    if (status == TANDEM_OK) status = check_store(request->store, error);
    if (status == TANDEM_OK) *cluster = workload.cluster;
    tandem_workload_close(&workload);
    return status;
}

tandem_status tandem_sensitivity_measure(tandem_sensitivity_result *result,
                                         const tandem_sensitivity_request *request, tandem_error *error)
{
    packet answer = {0};
    tandem_sensitivity_request copy = *request;
    tandem_sensitivity_result read = {.n_row = 0};
    tandem_cluster cluster;
    tandem_status status = check_before_measuring(&cluster, request, error);
    if (status == TANDEM_OK)
        status = ranks_run(&answer, &sensitivity_verb, &copy, &cluster, 1, &request->listener, error);
    if (status == TANDEM_OK) {
        pack_sensitivity_result(&answer, &read);
        if (answer.has_failed) status = tandem_no_memory(error, "for sensitivities");
    }
    packet_free(&answer);
    if (status == TANDEM_OK)
        *result = read;
    else
        tandem_sensitivity_result_free(&read);
    return status;
}

void tandem_sensitivity_result_free(tandem_sensitivity_result *result)
{
    free(result->row);
    *result = (tandem_sensitivity_result){0};
}
