/* open.c: opens an executor: its memory, its weights and its kernels' operands, so that a step allocates
 * nothing. */
#include <stdlib.h>
#include <string.h>

#include "backend/executor/image_input.h"
#include "backend/executor/transfer.h"
#include "base/philox.h"

/* --- Memory --------------------------------------------------------------------------------------------- */

/* Memory that the plan counts. */
static void *alloc_planned(tandem_executor *executor, uint64_t bytes, tandem_status *status,
                           tandem_error *error)
{
    void *memory = tandem_executor_alloc(executor, TANDEM_DEVICE_MEMORY, bytes, status, error);
    if (*status == TANDEM_OK) executor->allocated += bytes;
    return memory;
}

/* The same for what ranks exchange. */
static float *alloc_shared_array(tandem_executor *executor, tandem_status *status, tandem_error *error)
{
    float *const memory = tandem_executor_alloc_shared(executor, status, error);
    if (*status == TANDEM_OK) executor->allocated += tandem_executor_flat_bytes(executor);
    return memory;
}

static tandem_status alloc_flat_arrays(tandem_executor *executor, tandem_error *error)
{
    const uint64_t bytes = tandem_executor_flat_bytes(executor);
    const tandem_executor *lender = executor->options.lender;
    tandem_status status = TANDEM_OK;
    if (lender) { /* it has no optimizer's state */
        executor->weight = lender->weight;
        executor->gradient = executor->host_gradient = lender->host_gradient;
        return TANDEM_OK;
    }
    executor->weight = tandem_executor_is_sharded(executor) ? alloc_shared_array(executor, &status, error)
                                                            : alloc_planned(executor, bytes, &status, error);
    for (int k = 0; k < tandem_optimizer_n_state(executor->graph->optimizer.kind); k++)
        executor->state[k] = alloc_planned(executor, tandem_executor_state_bytes(executor), &status, error);
    if (tandem_worker_has_device_memory(executor->worker)) {
        executor->gradient = alloc_planned(executor, bytes, &status, error);
    } else {
        executor->host_gradient = alloc_shared_array(executor, &status, error);
        executor->gradient = executor->host_gradient;
    }
    return status;
}

/* The values' scales on the device and the labels on the host, which no plan counts. */
static tandem_status alloc_value_scales(tandem_executor *executor, tandem_error *error)
{
    const uint64_t n_label = (uint64_t)(executor->graph->batch * executor->graph->length);
    tandem_status status = TANDEM_OK;
    executor->scale = tandem_executor_alloc(
        executor, TANDEM_DEVICE_MEMORY, (uint64_t)executor->step->n_value * sizeof(float), &status, error);
    executor->label =
        tandem_executor_alloc(executor, TANDEM_STAGING_MEMORY, n_label * sizeof(int32_t), &status, error);
    return status;
}

static tandem_status alloc_arena(tandem_executor *executor, tandem_error *error)
{
    const uint64_t bytes = executor->memory.arena + executor->memory.evaluation;
    const tandem_executor *lender = executor->options.lender;
    const int is_lent = lender && lender->memory.arena + lender->memory.evaluation >= bytes;
    tandem_status status = TANDEM_OK;
    executor->arena = is_lent ? lender->arena : alloc_planned(executor, bytes, &status, error);
    if (executor->histories.n > 0)
        executor->histories.memory = alloc_planned(executor, executor->memory.histories, &status, error);
    if (status == TANDEM_OK) status = alloc_value_scales(executor, error);
    if (status == TANDEM_OK && tandem_worker_has_device_memory(executor->worker))
        status = tandem_transfer_open(executor, 0, error);
    if (status == TANDEM_OK && tandem_executor_sends_images(executor))
        status = tandem_image_input_open(executor, error);
    return status == TANDEM_OK && executor->histories.n > 0
               ? tandem_amax_histories_reset(&executor->histories, executor->worker, error)
               : status;
}

static tandem_status initialise_flat_weights(tandem_executor *executor, tandem_error *error)
{
    if (executor->options.lender) return TANDEM_OK;
    const tandem_graph *graph = executor->graph;
    const uint64_t bytes = tandem_executor_flat_bytes(executor);
    void *view = NULL;
    tandem_status status = tandem_worker_view(&view, executor->worker, executor->weight, bytes, 1, error);
    if (status != TANDEM_OK) return status;
    const float *const given = executor->options.weight;
    float **weight = given ? NULL : malloc((size_t)(graph->n_parameter + 1) * sizeof *weight);
    if (given) {
        memcpy(view, given, (size_t)executor->step->n_flat * sizeof *given);
    } else if (weight) {
        for (int p = 0; p < graph->n_parameter; p++)
            weight[p] = (float *)view + executor->step->parameter_start[p];
        status = tandem_graph_init(graph, executor->options.seed, weight, error);
    } else {
        status = tandem_executor_no_memory(executor, error);
    }
    free(weight);
    const tandem_status ended =
        tandem_worker_end_view(executor->worker, view, executor->weight, bytes, status == TANDEM_OK, error);
    return status == TANDEM_OK ? ended : status;
}

/* --- Operands ------------------------------------------------------------------------------------------- */

unsigned char *tandem_executor_place(const tandem_executor *executor, int id)
{
    const int64_t offset = executor->offset[id];
    return offset >= 0 ? executor->arena + offset
                       : (unsigned char *)executor->gradient + TANDEM_IN_GRADIENTS(offset);
}

static void *value_address(const tandem_executor *executor, int id, int gradient)
{
    if (id == -1) return NULL;
    if (id >= 0) return tandem_executor_place(executor, id);
    float *flat = gradient ? executor->gradient : executor->weight;
    return flat + executor->step->parameter_start[TANDEM_PARAMETER(id)];
}

static float *value_scale(const tandem_executor *executor, int id)
{
    if (id < 0) return NULL;
    const tandem_step *step = executor->step;
    const int has_scale = !step->options.emulated && tandem_dtype_bytes(step->value[id].dtype) == 1;
    return has_scale ? &executor->scale[tandem_value_untransposed(step, id)] : NULL;
}

static tandem_rng_stream task_rng_stream(const tandem_executor *executor, const tandem_task *task)
{
    const int is_pass = task->kind == TANDEM_TASK_FORWARD || task->kind == TANDEM_TASK_DGRAD;
    tandem_attention attention;
    const int dropout = tandem_step_attention(executor->step, (int)(task - executor->step->task), &attention)
                            ? attention.dropout
                        : is_pass && executor->graph->op[task->op].kind == TANDEM_OP_DROPOUT ? task->op
                                                                                             : -1;
    if (dropout >= 0) /* the same on every rank */
        return (tandem_rng_stream){.seed = executor->options.seed,
                                   .stream = {0, (uint32_t)dropout, TANDEM_RNG_DROPOUT}};
    const uint32_t rank = (uint32_t)executor->worker->rank << 8;
    uint32_t purpose = TANDEM_RNG_ACTIVATION | rank;
    if (task->kind == TANDEM_TASK_WEIGHT_CAST)
        purpose = TANDEM_RNG_WEIGHT; /* every rank rounds a weight the same way */
    if (task->kind == TANDEM_TASK_GRADIENT_CAST) purpose = TANDEM_RNG_GRADIENT | rank;
    const uint64_t *seed = executor->options.rounding_seed;
    return (tandem_rng_stream){.seed = seed ? *seed : executor->options.seed,
                               .stream = {0, (uint32_t)task->op, purpose}};
}

/* A cast of a recomputed tensor repeats the first one, with its range. */
static void bind_amax_history(tandem_executor *executor, int t)
{
    const int first = executor->histories.n > 0 ? tandem_step_amax_history(executor->step, t) : -1;
    if (first < 0) return;
    executor->call[t].history = tandem_amax_histories_get(&executor->histories, first);
    executor->call[t].reuse_range = first != t;
}

/* Lets kernels read the arguments that change from step to step. */
static void bind_step_args(tandem_executor *executor, int t)
{
    tandem_kernel_call *call = &executor->call[t];
    if (!executor->step_args) return;
    call->rng.stream_offset = call->rng.stream[2] == TANDEM_RNG_DROPOUT ? &executor->step_args->step_index
                                                                        : &executor->step_args->micro_index;
    call->row_factor = &executor->step_args->loss_scale;
}

static void bind_task_operands(tandem_executor *executor)
{
    const int64_t rows = executor->options.global_batch * tandem_graph_n_prediction(executor->graph);
    if (!tandem_worker_has_device_memory(executor->worker))
        executor->input =
            executor->arena +
            executor->offset[tandem_value_activation(executor->step, executor->graph->input, TANDEM_F32)];
    for (int k = 0; k < executor->n_active; k++) {
        const int t = executor->active[k];
        const tandem_task *task = &executor->step->task[t];
        tandem_kernel_call *call = &executor->call[t];
        for (int r = 0; r < task->n_read; r++) {
            call->in[r] = value_address(executor, task->read[r], 0);
            call->in_scale[r] = value_scale(executor, task->read[r]);
        }
        for (int w = 0; w < task->n_write; w++) {
            call->out[w] = value_address(executor, task->write[w], 1);
            call->out_scale[w] = value_scale(executor, task->write[w]);
        }
        if (task->kind == TANDEM_TASK_ACCUMULATE && task->parameter >= 0) { /* in place */
            call->in[1] = call->in[0];
            call->in[0] = call->out[0];
        }
        if (executor->workspace_offset[t] >= 0)
            call->workspace = executor->arena + executor->workspace_offset[t];
        call->row_weight = 1.0f / (float)rows;
        call->smoothing = executor->options.label_smoothing;
        call->is_evaluation = executor->is_evaluation;
        if (executor->is_evaluation && task->op >= 0 && executor->batchnorm_stats.start[task->op] >= 0)
            call->running_stats = executor->batchnorm_stats.value + executor->batchnorm_stats.start[task->op];
        if (task->op >= 0) call->rng = task_rng_stream(executor, task);
        bind_amax_history(executor, t);
        bind_step_args(executor, t);
    }
}

/* --- Emulation ------------------------------------------------------------------------------------------ */

tandem_status tandem_executor_set_emulation(tandem_executor *executor, const tandem_emulation *emulation,
                                            tandem_error *error)
{
    if (!executor->step->options.emulated)
        return tandem_error_set(error, TANDEM_USAGE, "this executor was opened without an emulation");
    if ((int)emulation->recipe != executor->step->options.recipe)
        return tandem_error_set(error, TANDEM_USAGE,
                                "the emulation's recipe is not the one that the step is laid out for");
    executor->emulation = *emulation;
    for (int k = 0; k < executor->n_active; k++) {
        const int t = executor->active[k];
        tandem_kernel_call *call = &executor->call[t];
        call->emulation = &executor->emulation;
        if (call->rng.stream[2] != TANDEM_RNG_DROPOUT) call->rng.seed = emulation->seed;
    }
    return TANDEM_OK;
}

/* --- Weights -------------------------------------------------------------------------------------------- */

static tandem_status copy_flat_array(float *to, const tandem_executor *executor, float *flat,
                                     tandem_error *error)
{
    const uint64_t bytes = tandem_executor_flat_bytes(executor);
    void *view = NULL;
    tandem_status status = tandem_worker_view(&view, executor->worker, flat, bytes, 1, error);
    if (status != TANDEM_OK) return status;
    memcpy(to, view, bytes);
    return tandem_worker_end_view(executor->worker, view, flat, bytes, 0, error);
}

tandem_status tandem_executor_get_weights(const tandem_executor *executor, float *weight, tandem_error *error)
{
    return copy_flat_array(weight, executor, executor->weight, error);
}

float *tandem_executor_weights(tandem_executor *executor)
{
    return tandem_worker_has_device_memory(executor->worker) ? NULL : executor->weight;
}

float *tandem_executor_mean_squares(tandem_executor *executor)
{
    const int is_kept =
        !tandem_worker_has_device_memory(executor->worker) && !tandem_executor_is_sharded(executor);
    return is_kept ? executor->state[1] : NULL;
}

void *tandem_executor_spare(const tandem_executor *executor, uint64_t *bytes)
{
    const tandem_executor *lender = executor->options.lender;
    const uint64_t used = (executor->memory.arena + 63) / 64 * 64,
                   there = lender ? lender->memory.arena + lender->memory.evaluation : 0;
    const int is_lent = lender && executor->arena == lender->arena;
    *bytes = !is_lent ? there : there > used ? there - used : 0;
    return *bytes ? lender->arena + (is_lent ? used : 0) : NULL;
}

tandem_status tandem_executor_get_mean_squares(const tandem_executor *executor, float *mean_square,
                                               tandem_error *error)
{
    if (tandem_executor_is_sharded(executor))
        return tandem_error_set(error, TANDEM_USAGE,
                                "mean squares of gradients are not read from shards of the optimizer's "
                                "state. Leave out --reestimate or --zero");
    if (!executor->state[1])
        return tandem_error_set(error, TANDEM_USAGE, "the optimizer %s keeps no mean squares of gradients",
                                tandem_optimizer_name(executor->optimizer.kind));
    return copy_flat_array(mean_square, executor, executor->state[1], error);
}

tandem_status tandem_executor_put_weights(tandem_executor *executor, const float *weight, tandem_error *error)
{
    const uint64_t bytes = tandem_executor_flat_bytes(executor);
    void *view = NULL;
    tandem_status status = tandem_worker_view(&view, executor->worker, executor->weight, bytes, 1, error);
    if (status != TANDEM_OK) return status;
    memcpy(view, weight, bytes);
    return tandem_worker_end_view(executor->worker, view, executor->weight, bytes, 1, error);
}

/* --- Opening -------------------------------------------------------------------------------------------- */

static tandem_status open_bucket_reducer(tandem_executor *executor, tandem_error *error)
{
    const tandem_step *step = executor->step;
    if (!tandem_executor_has_all_reduce(executor)) return TANDEM_OK;
    tandem_bucket_view *view = malloc((size_t)(step->n_bucket + 1) * sizeof *view);
    if (!view) return tandem_executor_no_memory(executor, error);
    for (int b = 0; b < step->n_bucket; b++)
        view[b] = (tandem_bucket_view){
            .data = executor->host_gradient + step->bucket[b].start,
            .n = (size_t)step->bucket[b].elements,
            .border = executor->border ? executor->border + (size_t)b * (size_t)(executor->worker->n_rank + 1)
                                       : NULL,
            .weight = executor->weight + step->bucket[b].start};
    const tandem_status status = tandem_reducer_open(&executor->reducer, executor->worker->comm, view,
                                                     step->n_bucket, executor->worker->cpu, error);
    if (status == TANDEM_OK && tandem_worker_has_device_memory(executor->worker))
        tandem_reducer_set_wait(executor->reducer, tandem_transfer_wait_bucket, executor);
    free(view);
    return status;
}

/* It has the same model and buckets, so it shares the weights. */
static tandem_status bind_evaluator(tandem_executor *executor, tandem_error *error)
{
    tandem_executor *evaluator = executor->evaluator;
    evaluator->weight = executor->weight;
    evaluator->arena = executor->arena;
    evaluator->gradient = executor->gradient; /* in which copies of weights lie */
    tandem_status status = alloc_value_scales(evaluator, error);
    if (status == TANDEM_OK && tandem_worker_has_device_memory(evaluator->worker))
        status = tandem_transfer_open(evaluator, 1, error);
    if (status != TANDEM_OK) return status;
    bind_task_operands(evaluator);
    const tandem_emulation *emulation = evaluator->options.emulation;
    return emulation ? tandem_executor_set_emulation(evaluator, emulation, error) : TANDEM_OK;
}

tandem_status tandem_executor_open(tandem_executor **out, tandem_worker *worker,
                                   const tandem_executor_options *options, tandem_error *error)
{
    tandem_resident resident = {.before_bytes = -1}; /* a borrower leaves the process's peak to its lender */
    if (!options->lender) resident = tandem_resident_begin(worker);
    tandem_executor *executor = NULL;
    tandem_status status = tandem_executor_prepare(&executor, worker, options, 0, error);
    if (status == TANDEM_OK) executor->resident = resident;
    if (status == TANDEM_OK && !options->lender) status = tandem_executor_check_memory(executor, error);
    if (status == TANDEM_OK && tandem_worker_has_device_memory(worker))
        executor->free_before_bytes = worker->backend->free_bytes(worker->device);
    if (status == TANDEM_OK) status = alloc_flat_arrays(executor, error);
    if (status == TANDEM_OK) status = alloc_arena(executor, error);
    if (status == TANDEM_OK && executor->evaluator) status = bind_evaluator(executor, error);
    if (status == TANDEM_OK) status = initialise_flat_weights(executor, error);
    if (status == TANDEM_OK) status = open_bucket_reducer(executor, error);
    if (status == TANDEM_OK) status = tandem_device_graphs_open(executor, error);
    if (status == TANDEM_OK) bind_task_operands(executor);
    if (status == TANDEM_OK && options->emulation)
        status = tandem_executor_set_emulation(executor, options->emulation, error);
    if (status != TANDEM_OK) {
        tandem_executor_close(executor);
        return status;
    }
    *out = executor;
    return TANDEM_OK;
}
