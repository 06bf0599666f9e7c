#include "cli/rank_run.h"

#include <stdlib.h>
#include <string.h>

/* Tokens are symbols of the text; a model that hides some needs one more for these. */
static tandem_status check_text(const tandem_data *data, const tandem_graph *graph, tandem_error *error)
{
    const int64_t room = graph->vocabulary - (graph->n_masked > 0);
    if (data->n_class <= room) return TANDEM_OK;
    return tandem_error_set(error, TANDEM_MALFORMED,
                            "data '%s' has %d characters, the vocabulary of model '%s' has room for %lld%s",
                            data->name, data->n_class, graph->model, (long long)room,
                            graph->n_masked ? ", and one that stands for a hidden token" : "");
}

/* Images of another size are resized, and grey ones take any number of channels. */
static tandem_status check_images(const tandem_data *data, const tandem_graph *graph, tandem_error *error)
{
    const int64_t channels = graph->op[graph->input].shape.dim[3];
    if (data->channels == 1 || data->channels == channels) return TANDEM_OK;
    return tandem_error_set(error, TANDEM_MALFORMED,
                            "data '%s' has images of %d channels, model '%s' takes %lld; say "
                            "image=HEIGHTxWIDTHx%d",
                            data->name, data->channels, graph->model, (long long)channels, data->channels);
}

static int micro_steps_of(const cli_subject *subject)
{
    return subject->plan->step.n_micro > 1 ? subject->plan->step.n_micro : 1;
}

static int64_t global_batch_of(const cli_subject *subject)
{
    int64_t batch = 0;
    for (int c = 0; c < subject->cluster.n_class; c++)
        batch += subject->cluster.classes[c].batch * subject->cluster.classes[c].n_rank;
    return batch * micro_steps_of(subject);
}

/* Whether the data's samples are what the model takes. */
static tandem_status check_data(const tandem_data *data, const tandem_graph *graph, tandem_error *error)
{
    const int takes_text = graph->op[graph->input].dtype == TANDEM_S32;
    if ((data->kind == TANDEM_DATA_TEXT) != takes_text)
        return tandem_error_set(error, TANDEM_MALFORMED, "model '%s' takes %s, data '%s' is %s", graph->model,
                                takes_text ? "text" : "images", data->name,
                                data->kind == TANDEM_DATA_TEXT ? "text" : "images");
    if (data->n_class > graph->n_class)
        return tandem_error_set(error, TANDEM_MALFORMED,
                                "data '%s' has %d classes or characters, model '%s' tells %lld apart",
                                data->name, data->n_class, graph->model, (long long)graph->n_class);
    return takes_text ? check_text(data, graph, error) : check_images(data, graph, error);
}

tandem_status rank_run_open_samples(tandem_data *data, const tandem_backend_api *backend,
                                    const tandem_graph *graph, const char *source, tandem_error *error)
{
    tandem_data opened = {0};
    const tandem_op *input = &graph->op[graph->input];
    const int64_t length =
        input->dtype == TANDEM_S32 ? tandem_shape_elements(&input->shape) / graph->batch : 1;
    tandem_status status = backend->data_open(&opened, source, (int)length, error);
    if (status == TANDEM_OK) status = check_data(&opened, graph, error);
    if (status == TANDEM_OK)
        *data = opened;
    else
        backend->data_close(&opened);
    return status;
}

tandem_status rank_run_open_data(tandem_data *data, const tandem_backend_api *backend,
                                 const cli_subject *subject, const cli_options *options, tandem_error *error)
{
    tandem_data opened = {0};
    const int64_t batch = global_batch_of(subject);
    tandem_status status = rank_run_open_samples(&opened, backend, subject->graph[0], options->data, error);
    if (status != TANDEM_OK) return status;
    if (opened.n_train < batch) {
        status = tandem_error_set(
            error, TANDEM_MALFORMED,
            "data '%s' has %lld training samples, fewer than a step of all ranks takes, %lld; lower --batch",
            opened.name, (long long)opened.n_train, (long long)batch);
        backend->data_close(&opened);
        return status;
    }
    *data = opened;
    return TANDEM_OK;
}

tandem_status rank_run_open_step(rank_run *run, const cli_subject *subject, const cli_options *options,
                                 tandem_error *error)
{
    const tandem_cluster_class *class = &subject->cluster.classes[run->class_index];
    const tandem_graph *graph = subject->graph[run->class_index];
    const tandem_status status = tandem_device_open_step(&run->step, &class->device, graph,
                                                         options->bucket_bytes, &subject->plan->step, error);
    if (status != TANDEM_OK) return status;
    for (int i = 0; i < graph->n_op; i++)
        if (tandem_op_row_get(graph->op[i].kind)->op_class == TANDEM_ADJUSTABLE)
            tandem_step_set(run->step, i, subject->plan->precision[run->class_index][i]);
    tandem_step_resolve(run->step);
    return TANDEM_OK;
}

/* Its place in the global batch: ranks stand one behind the other, class by class. */
static int64_t first_place_of(const cli_subject *subject, int rank)
{
    int64_t place = 0;
    for (int r = 0; r < rank; r++)
        place += subject->cluster.classes[tandem_cluster_class_of(&subject->cluster, r)].batch;
    return place * micro_steps_of(subject);
}

static tandem_status open_executor(rank_run *run, const cli_subject *subject, const cli_options *options,
                                   tandem_error *error)
{
    const uint64_t limit = tandem_cluster_memory_limit(&subject->cluster, run->class_index);
    tandem_executor_options how = {.step = run->step,
                                   .data = options->data ? &run->data : NULL,
                                   .seed = options->seed,
                                   .global_batch = run->global_batch,
                                   .first_sample = first_place_of(subject, run->place.rank),
                                   .with_task_times = options->per_operator || options->trace,
                                   .memory_limit_bytes = limit ? &limit : NULL,
                                   .optimizer = &run->config.optimizer,
                                   .no_decay = options->no_decay,
                                   .label_smoothing = (float)options->label_smoothing,
                                   .clip = options->clip,
                                   .loss_scale = (float)subject->loss_scale,
                                   .with_evaluation = options->data && options->evaluate > 0,
                                   .allow_nan = options->allow_nan};
    return run->backend->executor_open(&run->executor, run->worker, &how, error);
}

tandem_status rank_run_recall(const tandem_backend_api *backend, tandem_worker *worker, tandem_store *store,
                              int tries, tandem_error *error)
{
    tandem_algorithm *choice = NULL;
    int n = 0;
    tandem_status status = store ? tandem_store_load_algorithms(&choice, &n, store, error) : TANDEM_OK;
    if (status == TANDEM_OK) status = backend->worker_load_algorithms(worker, choice, n, tries, error);
    free(choice);
    return status;
}

/* What a profile chose, so that its memory is this run's. A run needs no store: where there is none to be
 * read, it does without. */
static tandem_status recall(rank_run *run, const cli_options *options, tandem_error *error)
{
    tandem_store *store = NULL;
    if (tandem_store_open(&store, options->db, TANDEM_STORE_READ, NULL) != TANDEM_OK) return TANDEM_OK;
    const tandem_status status = rank_run_recall(run->backend, run->worker, store, 0, error);
    tandem_store_close(store);
    return status;
}

void rank_run_note_exchange(const tandem_backend_api *backend, const tandem_worker *worker, int rank,
                            const cli_options *options)
{
    const char *why = backend->worker_shared_memory_error(worker);
    if (*why && rank == 0)
        cli_note(options, "gradients go over the network, since ranks cannot share memory; %s", why);
}

tandem_status rank_run_open(rank_run *run, const cli_subject *subject, const cli_options *options,
                            const cli_rank *place, tandem_error *error)
{
    *run = (rank_run){.place = *place};
    const int n_rank = tandem_cluster_n_rank(&subject->cluster);
    if (place->n_rank != n_rank)
        return tandem_error_set(error, TANDEM_USAGE, "WORLD_SIZE is %d, the cluster of the plan has %d ranks",
                                place->n_rank, n_rank);
    run->class_index = tandem_cluster_class_of(&subject->cluster, place->rank);
    const char *device = subject->cluster.classes[run->class_index].device.name;
    const char *meant = getenv("TANDEM_DEVICE");
    if (meant && *meant && strcmp(meant, device) != 0)
        return tandem_error_set(error, TANDEM_USAGE,
                                "TANDEM_DEVICE is '%s', rank %d of the plan is a %s; ranks go class by class",
                                meant, place->rank, device);
    tandem_status status = tandem_device_require(device, error);
    if (status == TANDEM_OK && !(run->backend = cli_backend(error))) status = TANDEM_MISSING;
    run->global_batch = global_batch_of(subject);
    if (status == TANDEM_OK)
        status = recipe_open(&run->config, subject->graph[run->class_index], options, error);
    if (status == TANDEM_OK && options->data)
        status = rank_run_open_data(&run->data, run->backend, subject, options, error);
    if (status == TANDEM_OK) status = rank_run_open_step(run, subject, options, error);
    if (status == TANDEM_OK)
        status = run->backend->worker_open(
            &run->worker,
            &(tandem_worker_options){.device = device,
                                     .rank = place->rank,
                                     .n_rank = place->n_rank,
                                     .store = place->store,
                                     .cpu = place->cpu,
                                     .timeout_ns = options->timeout_ns,
                                     .over_network = !tandem_cluster_shares_memory(&subject->cluster)},
            error);
    if (status == TANDEM_OK) status = recall(run, options, error);
    if (status == TANDEM_OK) status = open_executor(run, subject, options, error);
    if (status == TANDEM_OK)
        rank_run_note_exchange(run->backend, run->worker, place->rank, options);
    else
        rank_run_close(run);
    return status;
}

void rank_run_close(rank_run *run)
{
    if (run->backend && run->executor) run->backend->executor_close(run->executor);
    if (run->backend && run->worker) run->backend->worker_close(run->worker);
    if (run->backend) run->backend->data_close(&run->data);
    tandem_step_close(run->step);
    *run = (rank_run){0};
}
