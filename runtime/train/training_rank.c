#include "runtime/train/training_rank.h"

#include "runtime/train/run_agreement.h"
#include "runtime/train/train_sharding.h"

#include <malloc.h>
#include <stdlib.h>
#include <string.h>

static int count_micro_steps(const tandem_workload *workload)
{
    return workload->plan->step.n_micro > 1 ? workload->plan->step.n_micro : 1;
}

static int64_t count_global_batch(const tandem_workload *workload)
{
    return tandem_cluster_samples(&workload->cluster, workload->plan->step.n_micro);
}

/* Whether the model can take the data's samples; the executor shows them so. */
static tandem_status check_training_data(const tandem_data *data, const tandem_backend_api *backend,
                                         const tandem_graph *graph, tandem_error *error)
{
    tandem_data fitted = *data;
    return backend->data_fit(&fitted, graph, NULL, error);
}

void training_rank_note_data(const tandem_data *data, const tandem_backend_api *backend,
                             const tandem_graph *graph, const tandem_listener *listener)
{
    tandem_data fitted = *data;
    char said[TANDEM_DATA_SAID];
    if (backend->data_fit(&fitted, graph, said, NULL) == TANDEM_OK && *said)
        runtime_note(listener, "data '%s': %s", data->name, said);
}

tandem_status training_rank_inspect_init(const tandem_backend_api *backend, const tandem_graph *graph,
                                         const char *init, const tandem_listener *listener,
                                         tandem_error *error)
{
    char said[TANDEM_TENSORS_SAID] = "";
    const tandem_status status = backend->tensors_inspect(said, init, graph, error);
    if (status == TANDEM_OK && *said)
        runtime_note(listener, "weights of '%s', by published names: %s", init, said);
    return status;
}

tandem_status training_rank_open_samples(tandem_data *data, const tandem_backend_api *backend,
                                         const tandem_graph *graph, const char *source, tandem_error *error)
{
    tandem_data opened = {0};
    const tandem_op *input = &graph->op[graph->input];
    const int64_t length =
        input->dtype == TANDEM_S32 ? tandem_shape_elements(&input->shape) / graph->batch : 1;
    tandem_status status = backend->data_open(&opened, source, (int)length, error);
    if (status == TANDEM_OK) status = check_training_data(&opened, backend, graph, error);
    if (status == TANDEM_OK)
        *data = opened;
    else
        backend->data_close(&opened);
    return status;
}

tandem_status training_rank_open_data(tandem_data *data, const tandem_backend_api *backend,
                                      const tandem_workload *workload, const char *source,
                                      const tandem_data *shared, tandem_error *error)
{
    tandem_data opened = {0};
    const int64_t batch = count_global_batch(workload);
    tandem_status status = TANDEM_OK;
    if (shared && strcmp(shared->name, source) == 0) {
        opened = *shared;
        opened.is_shared = 1;
        status = check_training_data(&opened, backend, workload->graph[0], error);
    } else {
        status = training_rank_open_samples(&opened, backend, workload->graph[0], source, error);
    }
    if (status != TANDEM_OK) return status;
    if (opened.n_train < batch) {
        status =
            tandem_error_set(error, TANDEM_MALFORMED,
                             "data '%s' has %lld training samples, but a step of all ranks takes %lld. Use a "
                             "smaller --batch",
                             opened.name, (long long)opened.n_train, (long long)batch);
        backend->data_close(&opened);
        return status;
    }
    *data = opened;
    return TANDEM_OK;
}

tandem_status training_rank_open_step(training_rank *rank, const tandem_workload *workload,
                                      const tandem_train_request *request, tandem_error *error)
{
    const tandem_cluster_class *class = &workload->cluster.classes[rank->class_index];
    const tandem_graph *graph = workload->graph[rank->class_index];
    tandem_step_options options = workload->plan->step;
    tandem_status status = TANDEM_OK;
    if (!rank->is_sharding_known)
        status = train_sharding_make(&rank->sharding, request, &workload->cluster, rank->self.rank, error);
    rank->is_sharding_known = 1;
    options.sharding = rank->sharding;
    if (status == TANDEM_OK)
        status = tandem_device_open_step(&rank->step, &class->device, graph, request->bucket_bytes, &options,
                                         error);
    if (status != TANDEM_OK) return status;
    tandem_step_load(rank->step, workload->plan->assignment.precision[rank->class_index]);
    return TANDEM_OK;
}

/* The first sample of the rank in the global batch: ranks follow each other, class by class. */
static int64_t first_sample_of(const tandem_workload *workload, int rank)
{
    int64_t self = 0;
    for (int r = 0; r < rank; r++)
        self += workload->cluster.classes[tandem_cluster_class_of(&workload->cluster, r)].batch;
    return self * count_micro_steps(workload);
}

static tandem_status make_emulation(tandem_emulation *emulation, const tandem_train_request *request,
                                    tandem_error *error)
{
    *emulation =
        tandem_emulation_make(request->has_rounding_seed ? request->rounding_seed : request->workload.seed);
    emulation->error_scale = request->error_scale;
    return request->workload.emulate ? tandem_emulation_replace(emulation, request->workload.emulate, error)
                                     : TANDEM_OK;
}

/* Opens the executor; memory not NULL: only plans what it would take. */
static tandem_status open_training_executor(training_rank *rank, const tandem_workload *workload,
                                            const tandem_train_request *request, const float *weight,
                                            tandem_memory *memory, tandem_error *error)
{
    const uint64_t limit = tandem_cluster_memory_limit(&workload->cluster, rank->class_index);
    const int has_data_seed = request->has_data_seed;
    tandem_emulation emulation;
    const tandem_status status = make_emulation(&emulation, request, error);
    if (status != TANDEM_OK) return status;
    emulation.exact_micro_steps = rank->extra.exact_micro_steps;
    tandem_executor_options executor_options = {.step = rank->step,
                                                .data = request->data ? &rank->data : NULL,
                                                .seed = request->workload.seed,
                                                .weight = weight,
                                                .data_seed = has_data_seed ? &request->data_seed : NULL,
                                                .rounding_seed = &emulation.seed,
                                                .emulation = request->workload.emulate ? &emulation : NULL,
                                                .hold_weights = rank->extra.hold_weights,
                                                .global_batch = rank->global_batch,
                                                .first_sample = first_sample_of(workload, rank->self.rank),
                                                .with_task_times = request->per_task || request->trace,
                                                .memory_limit_bytes = limit ? &limit : NULL,
                                                .optimizer = &rank->config.optimizer,
                                                .no_decay = request->training.no_decay,
                                                .label_smoothing = (float)request->training.label_smoothing,
                                                .clip = request->workload.clip,
                                                .loss_scale = (float)workload->loss_scale,
                                                .with_evaluation = request->data && request->evaluate > 0,
                                                .evaluate_in_plan = request->evaluate_in_plan,
                                                .allow_nan = request->allow_nan,
                                                .late_results = rank->extra.late_results};
    return memory ? rank->backend->executor_plan(memory, rank->worker, &executor_options, error)
                  : rank->backend->executor_open(&rank->executor, rank->worker, &executor_options, error);
}

/* All ranks: the shares that fit into the ranks' limits of memory, for which the step is opened again. */
static tandem_status fit_shards(training_rank *rank, const tandem_workload *workload,
                                const tandem_train_request *request, tandem_error *error)
{
    tandem_memory memory;
    if (!tandem_shards_fit(request->shards) || rank->sharding.stage == 0) return TANDEM_OK;
    tandem_status status = open_training_executor(rank, workload, request, NULL, &memory, error);
    if (status == TANDEM_OK)
        status = train_sharding_fit(rank, &workload->cluster, &memory, &request->listener, error);
    if (status != TANDEM_OK) return status;
    tandem_step_close(rank->step);
    rank->step = NULL;
    return training_rank_open_step(rank, workload, request, error);
}

tandem_status training_rank_load_algorithms(const tandem_backend_api *backend, tandem_worker *worker,
                                            tandem_store *store, int autotune, tandem_error *error)
{
    tandem_algorithm *choice = NULL;
    int n = 0;
    tandem_status status = store ? tandem_store_load_algorithms(&choice, &n, store, error) : TANDEM_OK;
    if (status == TANDEM_OK) status = backend->worker_load_algorithms(worker, choice, n, autotune, error);
    free(choice);
    return status;
}

/* Loads the algorithms of the profile, so that memory use is as planned. A run needs no store: without one it
 * goes on. */
static tandem_status load_stored_algorithms(training_rank *rank, const tandem_train_request *request,
                                            tandem_error *error)
{
    tandem_store *store = NULL;
    if (tandem_store_open(&store, request->store, TANDEM_STORE_READ, NULL) != TANDEM_OK) return TANDEM_OK;
    const tandem_status status = training_rank_load_algorithms(rank->backend, rank->worker, store, 0, error);
    tandem_store_close(store);
    return status;
}

void training_rank_note_transport(const tandem_backend_api *backend, const tandem_worker *worker, int rank,
                                  const tandem_listener *listener)
{
    const char *why = backend->worker_shared_memory_error(worker);
    const int64_t n_stranger = backend->worker_n_stranger(worker);
    if (n_stranger > 0)
        runtime_note(
            listener,
            "rank %d: %lld connections came while the ranks joined that were not of this run; they were "
            "closed",
            rank, (long long)n_stranger);
    if (*why && rank == 0)
        runtime_note(listener, "gradients go over the network, because ranks cannot share memory: %s", why);
}

/* Joins the other ranks, which have the same agreement. */
static tandem_status open_training_worker(training_rank *rank, const tandem_workload *workload,
                                          const tandem_train_request *request, tandem_error *error)
{
    const tandem_rank_place *self = &rank->self;
    const char *device = workload->cluster.classes[rank->class_index].device.name;
    char *agreement = NULL;
    rank_cores cores;
    tandem_status status = rank_cores_take(&cores, device, self, &request->listener, error);
    if (status == TANDEM_OK && self->n_rank > 1)
        status = run_agreement_make(&agreement, rank, workload, request, error);
    if (status == TANDEM_OK)
        status = rank->backend->worker_open(
            &rank->worker,
            &(tandem_worker_options){.device = device,
                                     .rank = self->rank,
                                     .n_rank = self->n_rank,
                                     .store = self->folder,
                                     .cpu = cores.core[0],
                                     .timeout_ns = request->timeout_ns,
                                     .over_network = !tandem_cluster_shares_memory(&workload->cluster),
                                     .wire = workload->cluster.wire,
                                     .agreement = agreement,
                                     .core = cores.core,
                                     .n_core = cores.n},
            error);
    free(agreement);
    if (status == TANDEM_OK) rank_start_joined();
    return status;
}

tandem_status training_rank_open(training_rank *rank, const tandem_workload *workload,
                                 const tandem_train_request *request, const tandem_rank_place *self,
                                 tandem_error *error)
{
    *rank = (training_rank){.self = *self, .extra = rank->extra};
    const int n_rank = tandem_cluster_n_rank(&workload->cluster);
    if (self->n_rank != n_rank)
        return tandem_error_set(error, TANDEM_USAGE, "WORLD_SIZE is %d, but the plan's cluster has %d ranks",
                                self->n_rank, n_rank);
    rank->class_index = tandem_cluster_class_of(&workload->cluster, self->rank);
    const char *device = workload->cluster.classes[rank->class_index].device.name;
    const char *meant = getenv("TANDEM_DEVICE");
    if (meant && *meant && strcmp(meant, device) != 0)
        return tandem_error_set(
            error, TANDEM_USAGE,
            "TANDEM_DEVICE is '%s', but rank %d of the plan is a %s. Ranks are numbered class by class",
            meant, self->rank, device);
    tandem_status status = tandem_device_require(device, error);
    if (status == TANDEM_OK && !(rank->backend = runtime_backend(error))) status = TANDEM_MISSING;
    rank->global_batch = count_global_batch(workload);
    if (status == TANDEM_OK)
        status = train_config_open(&rank->config, workload->graph[rank->class_index], request, error);
    if (status == TANDEM_OK && request->data)
        status = training_rank_open_data(&rank->data, rank->backend, workload, request->data,
                                         rank->extra.data, error);
    if (status == TANDEM_OK && request->data && self->rank == 0)
        training_rank_note_data(&rank->data, rank->backend, workload->graph[rank->class_index],
                                &request->listener);
    if (status == TANDEM_OK && request->data && (self->n_rank > 1 || request->checkpoint || request->resume))
        rank->data_hash = rank->backend->data_hash(&rank->data);
    if (status == TANDEM_OK) status = training_rank_open_step(rank, workload, request, error);
    if (status == TANDEM_OK) status = open_training_worker(rank, workload, request, error);
    if (status == TANDEM_OK) status = load_stored_algorithms(rank, request, error);
    if (status == TANDEM_OK) status = fit_shards(rank, workload, request, error);
    if (status == TANDEM_OK) status = open_training_executor(rank, workload, request, NULL, NULL, error);
    if (status == TANDEM_OK)
        training_rank_note_transport(rank->backend, rank->worker, self->rank, &request->listener);
    else
        training_rank_close(rank);
    return status;
}

static void close_training_executor(training_rank *rank)
{
    if (rank->executor) rank->backend->executor_close(rank->executor);
    rank->executor = NULL;
    tandem_step_close(rank->step);
    rank->step = NULL;
}

tandem_status training_rank_suspend(training_rank *rank, char path[SCRATCH_JSON], int64_t done,
                                    tandem_error *error)
{
    tandem_error own = {0};
    const int is_0 = rank->self.rank == 0;
    *path = '\0';
    if (is_0 && scratch_json_make(path, &own) == TANDEM_OK) own = (tandem_error){0};
    tandem_status status = rank->self.n_rank > 1
                               ? rank->backend->worker_broadcast(rank->worker, &own, sizeof own, 0, error)
                               : TANDEM_OK;
    if (status == TANDEM_OK && own.status != TANDEM_OK) {
        if (error) *error = own;
        status = own.status;
    }
    if (status == TANDEM_OK) status = rank->backend->executor_save(rank->executor, path, done, "", error);
    if (status == TANDEM_OK) close_training_executor(rank);
    if (status == TANDEM_OK) (void)malloc_trim(0); /* else the arena stays with the process */
    return status;
}

tandem_status training_rank_resume(training_rank *rank, const tandem_workload *workload,
                                   const tandem_train_request *request, const char *path, const float *weight,
                                   tandem_error *error)
{
    tandem_checkpoint_info info;
    close_training_executor(rank);
    (void)malloc_trim(0); /* what was taken meanwhile */
    tandem_status status = training_rank_open_step(rank, workload, request, error);
    if (status == TANDEM_OK) status = open_training_executor(rank, workload, request, weight, NULL, error);
    return status == TANDEM_OK ? rank->backend->executor_restore(rank->executor, path, &info, error) : status;
}

tandem_status training_rank_change_plan(training_rank *rank, const tandem_workload *workload,
                                        const tandem_train_request *request, const tandem_assignment *chosen,
                                        int64_t done, tandem_error *error)
{
    char path[SCRATCH_JSON] = "";
    tandem_status status = training_rank_suspend(rank, path, done, error);
    if (status == TANDEM_OK) {
        tandem_assignment_copy(&workload->plan->assignment, chosen);
        status = training_rank_resume(rank, workload, request, path, NULL, error);
    }
    if (*path) scratch_file_remove(path);
    return status;
}

void training_rank_close(training_rank *rank)
{
    if (rank->backend && rank->executor) rank->backend->executor_close(rank->executor);
    if (rank->backend && rank->worker) rank->backend->worker_close(rank->worker);
    if (rank->backend) rank->backend->data_close(&rank->data);
    tandem_step_close(rank->step);
    *rank = (training_rank){.extra = rank->extra};
}
