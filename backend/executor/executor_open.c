/* executor_open.c: kernels, memory and weights of a step program, made ready so that a step allocates
 * nothing. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "backend/executor/transfer.h"
#include "base/philox.h"

static tandem_status executor_no_memory(tandem_error *error, const tandem_executor *executor)
{
    return tandem_no_memory(error, "to run model '%s' at batch %lld", executor->graph->model,
                            (long long)executor->graph->batch);
}

/* --- Kernels -------------------------------------------------------------------------------------------- */

static int task_has_kernel(const tandem_executor *executor, const tandem_task *task)
{
    if (!task->active || task->kind == TANDEM_TASK_REDUCE || task->kind == TANDEM_TASK_NORM ||
        task->kind == TANDEM_TASK_UPDATE)
        return 0;
    return !(task->kind == TANDEM_TASK_FORWARD &&
             tandem_op_row_get(executor->graph->op[task->op].kind)->op_class == TANDEM_SOURCE);
}

static tandem_status check_norm_task(const tandem_executor *executor, tandem_error *error)
{
    const int is_used = tandem_grad_scaler_is_used(&executor->grad_scaler),
              is_there = executor->step->norm_task >= 0;
    if (is_used == is_there) return TANDEM_OK;
    return tandem_error_set(error, TANDEM_USAGE,
                            "training that clips gradients or scales its loss, and no other, runs a step "
                            "with the norm of "
                            "all gradients; this step has %s",
                            is_there ? "one" : "none");
}

static tandem_status prepare_task_kernels(tandem_executor *executor, int forward_only, tandem_error *error)
{
    const tandem_step *step = executor->step;
    for (int t = 0; t < step->n_task; t++) {
        const tandem_task *task = &step->task[t];
        if (!task->active || (forward_only && task->kind != TANDEM_TASK_FORWARD)) continue;
        if (task->op == executor->graph->loss && task->kind == TANDEM_TASK_FORWARD)
            executor->loss_forward_task = t;
        if (task->op == executor->graph->loss && task->kind == TANDEM_TASK_DGRAD)
            executor->loss_dgrad_task = t;
        executor->active[executor->n_active++] = t;
        if (!task_has_kernel(executor, task)) continue;
        const tandem_status status = executor->worker->backend->prepare(
            executor->worker->device, step, t, &executor->kernel[t], &executor->workspace[t], error);
        if (status != TANDEM_OK) return status;
    }
    return TANDEM_OK;
}

/* --- Memory --------------------------------------------------------------------------------------------- */

/* What the plan counts. */
static tandem_status alloc_planned(void **memory, tandem_executor *executor, uint64_t bytes,
                                   tandem_error *error)
{
    const tandem_status status =
        tandem_worker_alloc(memory, executor->worker, TANDEM_DEVICE_MEMORY, bytes, error);
    if (status == TANDEM_OK) executor->allocated += bytes;
    return status;
}

tandem_status tandem_executor_alloc_gradients(float **gradient, tandem_executor *executor,
                                              tandem_error *error)
{
    const uint64_t bytes = (uint64_t)executor->step->n_flat * sizeof(float);
    void *memory = NULL;
    const tandem_status status =
        tandem_executor_has_all_reduce(executor)
            ? tandem_worker_alloc_shared(&memory, executor->worker, bytes, error)
            : tandem_worker_alloc(&memory, executor->worker, TANDEM_STAGING_MEMORY, bytes, error);
    if (status == TANDEM_OK) *gradient = memory;
    return status;
}

static tandem_status alloc_flat_arrays(tandem_executor *executor, tandem_error *error)
{
    const uint64_t bytes = (uint64_t)executor->step->n_flat * sizeof(float);
    const int n_state = tandem_optimizer_n_state(executor->graph->optimizer.kind);
    const int has_device_memory = tandem_worker_has_device_memory(executor->worker);
    float **const array[] = {&executor->weight, &executor->state[0], &executor->state[1]};
    tandem_status status = TANDEM_OK;
    void *memory = NULL;
    assert(1 + n_state <= (int)(sizeof array / sizeof *array));
    for (int k = 0; k < 1 + n_state && status == TANDEM_OK; k++) {
        status = alloc_planned(&memory, executor, bytes, error);
        if (status == TANDEM_OK) *array[k] = memory;
    }
    if (status == TANDEM_OK && has_device_memory) {
        status = alloc_planned(&memory, executor, bytes, error);
        if (status == TANDEM_OK) executor->gradient = memory;
    } else if (status == TANDEM_OK) {
        status = tandem_executor_alloc_gradients(&executor->host_gradient, executor, error);
        executor->gradient = executor->host_gradient;
        if (status == TANDEM_OK) executor->allocated += bytes;
    }
    return status;
}

static tandem_status initialise_flat_weights(tandem_executor *executor, tandem_error *error)
{
    const tandem_graph *graph = executor->graph;
    const uint64_t bytes = (uint64_t)executor->step->n_flat * sizeof(float);
    void *view = NULL;
    tandem_status status = tandem_worker_view(&view, executor->worker, executor->weight, bytes, 1, error);
    if (status != TANDEM_OK) return status;
    float **weight = malloc((size_t)(graph->n_parameter + 1) * sizeof *weight);
    if (weight) {
        for (int p = 0; p < graph->n_parameter; p++)
            weight[p] = (float *)view + executor->step->parameter_start[p];
        tandem_graph_init(graph, executor->options.seed, weight);
    } else {
        status = executor_no_memory(error, executor);
    }
    free(weight);
    const tandem_status ended =
        tandem_worker_end_view(executor->worker, view, executor->weight, bytes, status == TANDEM_OK, error);
    return status == TANDEM_OK ? ended : status;
}

/* --- Operands ------------------------------------------------------------------------------------------- */

static void *value_address(const tandem_executor *executor, int id, int gradient)
{
    if (id == -1) return NULL;
    if (id >= 0) return executor->arena + executor->offset[id];
    float *flat = gradient ? executor->gradient : executor->weight;
    return flat + executor->step->parameter_start[TANDEM_PARAMETER(id)];
}

static float *value_scale(const tandem_executor *executor, int id)
{
    if (id < 0) return NULL;
    const tandem_step *step = executor->step;
    const int has_scale = tandem_dtype_bytes(step->value[id].dtype) == 1;
    return has_scale ? &executor->scale[tandem_value_untransposed(step, id)] : NULL;
}

static tandem_rng_stream task_rng_stream(const tandem_executor *executor, const tandem_task *task)
{
    const int is_pass = task->kind == TANDEM_TASK_FORWARD || task->kind == TANDEM_TASK_DGRAD;
    if (is_pass && executor->graph->op[task->op].kind == TANDEM_OP_DROPOUT) /* whatever the rank */
        return (tandem_rng_stream){.seed = executor->options.seed,
                                   .stream = {0, (uint32_t)task->op, TANDEM_RNG_DROPOUT}};
    const uint32_t rank = (uint32_t)executor->worker->rank << 8;
    uint32_t purpose = TANDEM_RNG_ACTIVATION | rank;
    if (task->kind == TANDEM_TASK_WEIGHT_CAST)
        purpose = TANDEM_RNG_WEIGHT; /* every rank rounds a weight alike */
    if (task->kind == TANDEM_TASK_GRADIENT_CAST) purpose = TANDEM_RNG_GRADIENT | rank;
    return (tandem_rng_stream){.seed = executor->options.seed, .stream = {0, (uint32_t)task->op, purpose}};
}

/* A cast of recomputation does again what its first one did. */
static void bind_amax_history(tandem_executor *executor, int t)
{
    const int first = executor->histories.n > 0 ? tandem_step_amax_history(executor->step, t) : -1;
    if (first < 0) return;
    executor->call[t].history = tandem_amax_histories_get(&executor->histories, first);
    executor->call[t].reuse_range = first != t;
}

/* Where kernels find what changes from step to step. */
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

/* --- Exchange ------------------------------------------------------------------------------------------- */

static tandem_status open_bucket_reducer(tandem_executor *executor, tandem_error *error)
{
    const tandem_step *step = executor->step;
    if (!tandem_executor_has_all_reduce(executor)) return TANDEM_OK;
    tandem_bucket_view *view = malloc((size_t)(step->n_bucket + 1) * sizeof *view);
    if (!view) return executor_no_memory(error, executor);
    for (int b = 0; b < step->n_bucket; b++)
        view[b] = (tandem_bucket_view){executor->host_gradient + step->bucket[b].start,
                                       (size_t)step->bucket[b].elements};
    const tandem_status status = tandem_reducer_open(&executor->reducer, executor->worker->comm, view,
                                                     step->n_bucket, executor->worker->cpu, error);
    if (status == TANDEM_OK && tandem_worker_has_device_memory(executor->worker))
        tandem_reducer_set_wait(executor->reducer, tandem_transfer_wait_bucket, executor);
    free(view);
    return status;
}

/* --- Opening and closing -------------------------------------------------------------------------------- */

static tandem_status alloc_task_tables(tandem_executor *executor, tandem_error *error)
{
    const size_t n_task = (size_t)executor->step->n_task, n_value = (size_t)executor->step->n_value;
    const size_t n_micro = (size_t)executor->step->options.n_micro, n_time = n_micro * n_task;
    executor->kernel = calloc(n_task, sizeof *executor->kernel);
    executor->call = calloc(n_task, sizeof *executor->call);
    executor->workspace = calloc(n_task, sizeof *executor->workspace);
    executor->workspace_offset = calloc(n_task, sizeof *executor->workspace_offset);
    executor->active = calloc(n_task, sizeof *executor->active);
    executor->offset = calloc(n_value, sizeof *executor->offset);
    executor->has_weight_decay =
        calloc((size_t)executor->graph->n_parameter + 1, sizeof *executor->has_weight_decay);
    executor->times.n_micro = (int)n_micro;
    executor->times.all_start_ns = calloc(n_time, sizeof *executor->times.all_start_ns);
    executor->times.all_end_ns = calloc(n_time, sizeof *executor->times.all_end_ns);
    executor->times.wait_ns = calloc((size_t)executor->step->n_bucket + 1, sizeof *executor->times.wait_ns);
    const int complete = executor->kernel && executor->call && executor->workspace &&
                         executor->workspace_offset && executor->active && executor->offset &&
                         executor->has_weight_decay && executor->times.all_start_ns &&
                         executor->times.all_end_ns && executor->times.wait_ns;
    if (!complete) return executor_no_memory(error, executor);
    for (size_t t = 0; t < n_time; t++) executor->times.all_start_ns[t] = executor->times.all_end_ns[t] = -1;
    executor->times.start_ns = executor->times.all_start_ns + (n_micro - 1) * n_task;
    executor->times.end_ns = executor->times.all_end_ns + (n_micro - 1) * n_task;
    return TANDEM_OK;
}

/* What kernels see of each value beside its numbers, and what the host fills. */
static tandem_status alloc_value_scales(tandem_executor *executor, tandem_error *error)
{
    const uint64_t n_label = (uint64_t)(executor->graph->batch * executor->graph->length);
    void *scale = NULL, *label = NULL;
    tandem_status status = tandem_worker_alloc(&scale, executor->worker, TANDEM_DEVICE_MEMORY,
                                               (uint64_t)executor->step->n_value * sizeof(float), error);
    executor->scale = scale;
    if (status == TANDEM_OK)
        status = tandem_worker_alloc(&label, executor->worker, TANDEM_STAGING_MEMORY,
                                     n_label * sizeof(int32_t), error);
    executor->label = label;
    return status;
}

static tandem_status set_executor_optimizer(tandem_executor *executor, tandem_error *error)
{
    const tandem_optimizer_options *given = executor->options.optimizer, *own = &executor->graph->optimizer;
    executor->optimizer = given ? *given : *own;
    const char *no_decay = executor->options.no_decay;
    for (int p = 0; p < executor->graph->n_parameter; p++)
        executor->has_weight_decay[p] = executor->graph->parameter[p].has_weight_decay &&
                                        !(no_decay && tandem_parameter_matches(executor->graph, p, no_decay));
    if (executor->optimizer.kind == own->kind) return TANDEM_OK;
    return tandem_error_set(error, TANDEM_USAGE, "model '%s' is trained by %s, not by %s",
                            executor->graph->model, tandem_optimizer_name(own->kind),
                            tandem_optimizer_name(given->kind));
}

/* Evaluations run between steps, when nothing in the arena is of use to anyone: there they have their place.
 * */
static tandem_status prepare_evaluator(tandem_executor *executor, tandem_error *error)
{
    tandem_executor_options options = executor->options;
    tandem_status status = tandem_step_open(&executor->evaluator_step, executor->graph,
                                            executor->step->amp_dtype, executor->step->bucket_bytes, error);
    options.step = executor->evaluator_step;
    options.with_evaluation = 0;
    options.without_all_reduce = 1; /* and no gradients are looked at */
    options.clip = 0;
    options.loss_scale = 0;
    if (status == TANDEM_OK)
        status = tandem_executor_prepare(&executor->evaluator, executor->worker, &options, 1, error);
    if (status != TANDEM_OK) return status;
    tandem_memory *memory = &executor->memory;
    const uint64_t needed = executor->evaluator->memory.arena;
    executor->evaluator->is_evaluation = 1;
    memory->evaluation = needed > memory->arena ? needed - memory->arena : 0;
    memory->peak += memory->evaluation;
    return TANDEM_OK;
}

tandem_status tandem_executor_prepare(tandem_executor **out, tandem_worker *worker,
                                      const tandem_executor_options *options, int forward_only,
                                      tandem_error *error)
{
    tandem_executor *executor = calloc(1, sizeof *executor);
    if (!executor) return tandem_no_memory(error, "for an executor");
    executor->worker = worker;
    executor->options = *options;
    executor->step = options->step;
    executor->graph = options->step->graph;
    executor->loaded_micro_index = -1;
    tandem_grad_scaler_open(&executor->grad_scaler, options);
    tandem_status status = tandem_noise_open(&executor->noise_kernels, error);
    if (status == TANDEM_OK && !forward_only) status = check_norm_task(executor, error);
    if (status == TANDEM_OK) status = alloc_task_tables(executor, error);
    if (status == TANDEM_OK) status = set_executor_optimizer(executor, error);
    if (status == TANDEM_OK)
        status = tandem_batchnorm_stats_open(&executor->batchnorm_stats, executor->graph, worker, error);
    if (status == TANDEM_OK) status = tandem_amax_histories_open(&executor->histories, executor->step, error);
    if (status == TANDEM_OK) status = prepare_task_kernels(executor, forward_only, error);
    if (status == TANDEM_OK)
        status = tandem_memory_plan(&executor->memory, executor->step, executor->workspace, executor->offset,
                                    executor->workspace_offset, error);
    if (status == TANDEM_OK && options->with_evaluation) status = prepare_evaluator(executor, error);
    if (status != TANDEM_OK) {
        tandem_executor_close(executor);
        return status;
    }
    *out = executor;
    return TANDEM_OK;
}

static tandem_status alloc_arena(tandem_executor *executor, tandem_error *error)
{
    void *arena = NULL;
    tandem_status status =
        alloc_planned(&arena, executor, executor->memory.arena + executor->memory.evaluation, error);
    executor->arena = arena;
    if (status == TANDEM_OK) status = alloc_value_scales(executor, error);
    if (status == TANDEM_OK && tandem_worker_has_device_memory(executor->worker))
        status = tandem_transfer_open(executor, 0, error);
    return status;
}

static tandem_status alloc_amax_histories(tandem_executor *executor, tandem_error *error)
{
    if (executor->histories.n == 0) return TANDEM_OK;
    void *memory = NULL;
    const tandem_status status = alloc_planned(&memory, executor, executor->memory.histories, error);
    executor->histories.memory = memory;
    return status == TANDEM_OK ? tandem_amax_histories_reset(&executor->histories, executor->worker, error)
                               : status;
}

/* The same model and bucket plan: the same flat layout. */
static tandem_status bind_evaluator(tandem_executor *executor, tandem_error *error)
{
    tandem_executor *evaluator = executor->evaluator;
    evaluator->weight = executor->weight;
    evaluator->arena = executor->arena;
    tandem_status status = alloc_value_scales(evaluator, error);
    if (status == TANDEM_OK && tandem_worker_has_device_memory(evaluator->worker))
        status = tandem_transfer_open(evaluator, 1, error);
    if (status == TANDEM_OK) bind_task_operands(evaluator);
    return status;
}

tandem_status tandem_executor_open(tandem_executor **out, tandem_worker *worker,
                                   const tandem_executor_options *options, tandem_error *error)
{
    const tandem_resident resident = tandem_resident_begin(worker);
    tandem_executor *executor = NULL;
    tandem_status status = tandem_executor_prepare(&executor, worker, options, 0, error);
    if (status == TANDEM_OK) executor->resident = resident;
    if (status == TANDEM_OK) status = tandem_executor_check_memory(executor, error);
    if (status == TANDEM_OK) status = alloc_flat_arrays(executor, error);
    if (status == TANDEM_OK) status = alloc_arena(executor, error);
    if (status == TANDEM_OK && executor->evaluator) status = bind_evaluator(executor, error);
    if (status == TANDEM_OK) status = alloc_amax_histories(executor, error);
    if (status == TANDEM_OK) status = initialise_flat_weights(executor, error);
    if (status == TANDEM_OK) status = open_bucket_reducer(executor, error);
    if (status == TANDEM_OK) status = tandem_device_graphs_open(executor, error);
    if (status != TANDEM_OK) {
        tandem_executor_close(executor);
        return status;
    }
    bind_task_operands(executor);
    *out = executor;
    return TANDEM_OK;
}

void tandem_executor_close(tandem_executor *executor)
{
    if (!executor) return;
    tandem_executor_close(executor->evaluator);
    tandem_step_close(executor->evaluator_step);
    tandem_reducer_close(executor->reducer);
    tandem_device_graphs_close(executor);
    for (int t = 0; executor->kernel && t < executor->step->n_task; t++)
        if (executor->kernel[t]) executor->worker->backend->release(executor->kernel[t]);
    if (tandem_worker_has_device_memory(executor->worker)) tandem_transfer_close(executor);
    tandem_worker *worker = executor->worker;
    if (executor->is_evaluation) executor->weight = NULL, executor->arena = NULL; /* the trained executor's */
    tandem_worker_free(worker, TANDEM_DEVICE_MEMORY, executor->weight);
    tandem_worker_free_shared(worker, executor->host_gradient);
    if (executor->gradient != executor->host_gradient)
        tandem_worker_free(worker, TANDEM_DEVICE_MEMORY, executor->gradient);
    tandem_worker_free(worker, TANDEM_DEVICE_MEMORY, executor->state[0]);
    tandem_worker_free(worker, TANDEM_DEVICE_MEMORY, executor->state[1]);
    tandem_worker_free(worker, TANDEM_DEVICE_MEMORY, executor->arena);
    tandem_worker_free(worker, TANDEM_DEVICE_MEMORY, executor->histories.memory);
    tandem_worker_free(worker, TANDEM_DEVICE_MEMORY, executor->scale);
    tandem_worker_free(worker, TANDEM_STAGING_MEMORY, executor->label);
    tandem_batchnorm_stats_close(&executor->batchnorm_stats, worker);
    tandem_amax_histories_close(&executor->histories);
    free(executor->host_copy);
    free(executor->times.wait_ns);
    free(executor->times.all_end_ns);
    free(executor->times.all_start_ns);
    free(executor->has_weight_decay);
    free(executor->offset);
    free(executor->active);
    free(executor->workspace_offset);
    free(executor->workspace);
    free(executor->call);
    free(executor->kernel);
    tandem_data_cursor_free(&executor->cursor);
    free(executor);
}
