/* executor_open.c: kernels, memory and weights of a step program, made ready so that a step allocates
 * nothing. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "backend/transfer.h"
#include "base/philox.h"

static tandem_status no_memory(tandem_error *error, const tandem_executor *executor)
{
    return tandem_error_set(error, TANDEM_NO_MEMORY, "no memory to run model '%s' at batch %lld",
                            executor->graph->model, (long long)executor->graph->batch);
}

/* --- Kernels -------------------------------------------------------------------------------------------- */

static int has_kernel(const tandem_executor *executor, const tandem_task *task)
{
    if (!task->active || task->kind == TANDEM_TASK_REDUCE || task->kind == TANDEM_TASK_NORM ||
        task->kind == TANDEM_TASK_UPDATE)
        return 0;
    return !(task->kind == TANDEM_TASK_FORWARD &&
             tandem_op_row_get(executor->graph->op[task->op].kind)->op_class == TANDEM_SOURCE);
}

static tandem_status check_norm(const tandem_executor *executor, tandem_error *error)
{
    const int is_used = tandem_gate_is_used(&executor->gate), is_there = executor->step->norm_task >= 0;
    if (is_used == is_there) return TANDEM_OK;
    return tandem_error_set(error, TANDEM_USAGE,
                            "training that clips gradients or scales its loss, and no other, runs a step "
                            "with the norm of "
                            "all gradients; this step has %s",
                            is_there ? "one" : "none");
}

static tandem_status prepare_kernels(tandem_executor *executor, int forward_only, tandem_error *error)
{
    const tandem_step *step = executor->step;
    for (int t = 0; t < step->n_task; t++) {
        const tandem_task *task = &step->task[t];
        if (!task->active || (forward_only && task->kind != TANDEM_TASK_FORWARD)) continue;
        if (task->op == executor->graph->loss && task->kind == TANDEM_TASK_FORWARD)
            executor->loss_forward = t;
        if (task->op == executor->graph->loss && task->kind == TANDEM_TASK_DGRAD) executor->loss_dgrad = t;
        executor->active[executor->n_active++] = t;
        if (!has_kernel(executor, task)) continue;
        const tandem_status status = executor->worker->backend->prepare(
            executor->worker->device, step, t, &executor->kernel[t], &executor->workspace[t], error);
        if (status != TANDEM_OK) return status;
    }
    return TANDEM_OK;
}

/* --- Memory --------------------------------------------------------------------------------------------- */

/* What the plan counts. */
static tandem_status take(void **memory, tandem_executor *executor, uint64_t bytes, tandem_error *error)
{
    const tandem_status status = tandem_worker_take(memory, executor->worker, TANDEM_ON_DEVICE, bytes, error);
    if (status == TANDEM_OK) executor->allocated += bytes;
    return status;
}

tandem_status tandem_executor_take_gradients(float **gradient, tandem_executor *executor, tandem_error *error)
{
    const uint64_t bytes = (uint64_t)executor->step->n_flat * sizeof(float);
    void *memory = NULL;
    const tandem_status status =
        tandem_executor_exchanges(executor)
            ? tandem_worker_take_exchanged(&memory, executor->worker, bytes, error)
            : tandem_worker_take(&memory, executor->worker, TANDEM_STAGING, bytes, error);
    if (status == TANDEM_OK) *gradient = memory;
    return status;
}

static tandem_status allocate_flat(tandem_executor *executor, tandem_error *error)
{
    const uint64_t bytes = (uint64_t)executor->step->n_flat * sizeof(float);
    const int n_state = tandem_optimizer_n_state(executor->graph->optimizer.kind);
    const int is_apart = tandem_worker_is_apart(executor->worker);
    float **const array[] = {&executor->weight, &executor->state[0], &executor->state[1]};
    tandem_status status = TANDEM_OK;
    void *memory = NULL;
    assert(1 + n_state <= (int)(sizeof array / sizeof *array));
    for (int k = 0; k < 1 + n_state && status == TANDEM_OK; k++) {
        status = take(&memory, executor, bytes, error);
        if (status == TANDEM_OK) *array[k] = memory;
    }
    if (status == TANDEM_OK && is_apart) {
        status = take(&memory, executor, bytes, error);
        if (status == TANDEM_OK) executor->gradient = memory;
    } else if (status == TANDEM_OK) {
        status = tandem_executor_take_gradients(&executor->host_gradient, executor, error);
        executor->gradient = executor->host_gradient;
        if (status == TANDEM_OK) executor->allocated += bytes;
    }
    return status;
}

static tandem_status initialise_weights(tandem_executor *executor, tandem_error *error)
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
        status = no_memory(error, executor);
    }
    free(weight);
    const tandem_status ended =
        tandem_worker_end_view(executor->worker, view, executor->weight, bytes, status == TANDEM_OK, error);
    return status == TANDEM_OK ? ended : status;
}

/* --- Operands ------------------------------------------------------------------------------------------- */

static void *address(const tandem_executor *executor, int id, int gradient)
{
    if (id == -1) return NULL;
    if (id >= 0) return executor->arena + executor->offset[id];
    float *flat = gradient ? executor->gradient : executor->weight;
    return flat + executor->step->parameter_start[TANDEM_PARAMETER(id)];
}

static float *scale_of(const tandem_executor *executor, int id)
{
    if (id < 0) return NULL;
    const tandem_step *step = executor->step;
    const int has_scale = tandem_dtype_bytes(step->value[id].dtype) == 1;
    return has_scale ? &executor->scale[tandem_value_rowwise(step, id)] : NULL;
}

static tandem_draws draws_of(const tandem_executor *executor, const tandem_task *task)
{
    const int is_pass = task->kind == TANDEM_TASK_FORWARD || task->kind == TANDEM_TASK_DGRAD;
    if (is_pass && executor->graph->op[task->op].kind == TANDEM_OP_DROPOUT) /* whatever the rank */
        return (tandem_draws){.seed = executor->options.seed,
                              .stream = {0, (uint32_t)task->op, TANDEM_DRAW_DROPOUT}};
    const uint32_t rank = (uint32_t)executor->worker->rank << 8;
    uint32_t purpose = TANDEM_DRAW_ACTIVATION | rank;
    if (task->kind == TANDEM_TASK_WEIGHT_CAST)
        purpose = TANDEM_DRAW_WEIGHT; /* every rank rounds a weight alike */
    if (task->kind == TANDEM_TASK_GRADIENT_CAST) purpose = TANDEM_DRAW_GRADIENT | rank;
    return (tandem_draws){.seed = executor->options.seed, .stream = {0, (uint32_t)task->op, purpose}};
}

/* A cast of recomputation does again what its first one did. */
static void bind_history(tandem_executor *executor, int t)
{
    const int first = executor->histories.n > 0 ? tandem_step_history(executor->step, t) : -1;
    if (first < 0) return;
    executor->call[t].history = tandem_histories_of(&executor->histories, first);
    executor->call[t].repeats = first != t;
}

/* Where kernels find what changes from step to step. */
static void bind_now(tandem_executor *executor, int t)
{
    tandem_kernel_call *call = &executor->call[t];
    if (!executor->now) return;
    call->draws.since =
        call->draws.stream[2] == TANDEM_DRAW_DROPOUT ? &executor->now->index : &executor->now->pass;
    call->row_factor = &executor->now->loss_scale;
}

static void bind_operands(tandem_executor *executor)
{
    const int64_t rows = executor->options.global_batch * tandem_graph_n_prediction(executor->graph);
    if (!tandem_worker_is_apart(executor->worker))
        executor->input =
            executor->arena +
            executor->offset[tandem_value_activation(executor->step, executor->graph->input, TANDEM_F32)];
    for (int k = 0; k < executor->n_active; k++) {
        const int t = executor->active[k];
        const tandem_task *task = &executor->step->task[t];
        tandem_kernel_call *call = &executor->call[t];
        for (int r = 0; r < task->n_read; r++) {
            call->in[r] = address(executor, task->read[r], 0);
            call->in_scale[r] = scale_of(executor, task->read[r]);
        }
        for (int w = 0; w < task->n_write; w++) {
            call->out[w] = address(executor, task->write[w], 1);
            call->out_scale[w] = scale_of(executor, task->write[w]);
        }
        if (task->kind == TANDEM_TASK_ACCUMULATE && task->parameter >= 0) { /* in place */
            call->in[1] = call->in[0];
            call->in[0] = call->out[0];
        }
        if (executor->workspace_offset[t] >= 0)
            call->workspace = executor->arena + executor->workspace_offset[t];
        call->row_weight = 1.0f / (float)rows;
        call->smoothing = executor->options.label_smoothing;
        call->evaluates = executor->evaluates;
        if (executor->evaluates && task->op >= 0 && executor->statistics.start[task->op] >= 0)
            call->running = executor->statistics.value + executor->statistics.start[task->op];
        if (task->op >= 0) call->draws = draws_of(executor, task);
        bind_history(executor, t);
        bind_now(executor, t);
    }
}

/* --- Exchange ------------------------------------------------------------------------------------------- */

static tandem_status open_reducer(tandem_executor *executor, tandem_error *error)
{
    const tandem_step *step = executor->step;
    if (!tandem_executor_exchanges(executor)) return TANDEM_OK;
    tandem_bucket_view *view = malloc((size_t)(step->n_bucket + 1) * sizeof *view);
    if (!view) return no_memory(error, executor);
    for (int b = 0; b < step->n_bucket; b++)
        view[b] = (tandem_bucket_view){executor->host_gradient + step->bucket[b].start,
                                       (size_t)step->bucket[b].elements};
    const tandem_status status = tandem_reducer_open(&executor->reducer, executor->worker->comm, view,
                                                     step->n_bucket, executor->worker->cpu, error);
    if (status == TANDEM_OK && tandem_worker_is_apart(executor->worker))
        tandem_reducer_set_arrival(executor->reducer, tandem_transfer_await_bucket, executor);
    free(view);
    return status;
}

/* --- Opening and closing -------------------------------------------------------------------------------- */

static tandem_status allocate_tables(tandem_executor *executor, tandem_error *error)
{
    const size_t n_task = (size_t)executor->step->n_task, n_value = (size_t)executor->step->n_value;
    const size_t n_micro = (size_t)executor->step->options.n_micro, n_time = n_micro * n_task;
    executor->kernel = calloc(n_task, sizeof *executor->kernel);
    executor->call = calloc(n_task, sizeof *executor->call);
    executor->workspace = calloc(n_task, sizeof *executor->workspace);
    executor->workspace_offset = calloc(n_task, sizeof *executor->workspace_offset);
    executor->active = calloc(n_task, sizeof *executor->active);
    executor->offset = calloc(n_value, sizeof *executor->offset);
    executor->decays = calloc((size_t)executor->graph->n_parameter + 1, sizeof *executor->decays);
    executor->times.n_micro = (int)n_micro;
    executor->times.all_start_ns = calloc(n_time, sizeof *executor->times.all_start_ns);
    executor->times.all_end_ns = calloc(n_time, sizeof *executor->times.all_end_ns);
    executor->times.wait_ns = calloc((size_t)executor->step->n_bucket + 1, sizeof *executor->times.wait_ns);
    const int complete = executor->kernel && executor->call && executor->workspace &&
                         executor->workspace_offset && executor->active && executor->offset &&
                         executor->decays && executor->times.all_start_ns && executor->times.all_end_ns &&
                         executor->times.wait_ns;
    if (!complete) return no_memory(error, executor);
    for (size_t t = 0; t < n_time; t++) executor->times.all_start_ns[t] = executor->times.all_end_ns[t] = -1;
    executor->times.start_ns = executor->times.all_start_ns + (n_micro - 1) * n_task;
    executor->times.end_ns = executor->times.all_end_ns + (n_micro - 1) * n_task;
    return TANDEM_OK;
}

/* What kernels see of each value beside its numbers, and what the host fills. */
static tandem_status take_tables(tandem_executor *executor, tandem_error *error)
{
    const uint64_t n_label = (uint64_t)(executor->graph->batch * executor->graph->length);
    void *scale = NULL, *label = NULL;
    tandem_status status = tandem_worker_take(&scale, executor->worker, TANDEM_ON_DEVICE,
                                              (uint64_t)executor->step->n_value * sizeof(float), error);
    executor->scale = scale;
    if (status == TANDEM_OK)
        status =
            tandem_worker_take(&label, executor->worker, TANDEM_STAGING, n_label * sizeof(int32_t), error);
    executor->label = label;
    return status;
}

static tandem_status set_optimizer(tandem_executor *executor, tandem_error *error)
{
    const tandem_optimizer_options *given = executor->options.optimizer, *own = &executor->graph->optimizer;
    executor->optimizer = given ? *given : *own;
    const char *without = executor->options.no_decay;
    for (int p = 0; p < executor->graph->n_parameter; p++)
        executor->decays[p] = executor->graph->parameter[p].decays &&
                              !(without && tandem_parameter_matches(executor->graph, p, without));
    if (executor->optimizer.kind == own->kind) return TANDEM_OK;
    return tandem_error_set(error, TANDEM_USAGE, "model '%s' is trained by %s, not by %s",
                            executor->graph->model, tandem_optimizer_name(own->kind),
                            tandem_optimizer_name(given->kind));
}

/* Evaluations run between steps, when nothing in the arena is of use to anyone: there they have their place.
 * */
static tandem_status prepare_evaluation(tandem_executor *executor, tandem_error *error)
{
    tandem_executor_options options = executor->options;
    tandem_status status = tandem_step_open(&executor->forward_step, executor->graph,
                                            executor->step->amp_dtype, executor->step->bucket_bytes, error);
    options.step = executor->forward_step;
    options.with_evaluation = 0;
    options.without_exchange = 1; /* and no gradients are looked at */
    options.clip = 0;
    options.loss_scale = 0;
    if (status == TANDEM_OK)
        status = tandem_executor_prepare(&executor->forward, executor->worker, &options, 1, error);
    if (status != TANDEM_OK) return status;
    tandem_memory *memory = &executor->memory;
    const uint64_t needed = executor->forward->memory.arena;
    executor->forward->evaluates = 1;
    memory->evaluation = needed > memory->arena ? needed - memory->arena : 0;
    memory->peak += memory->evaluation;
    return TANDEM_OK;
}

tandem_status tandem_executor_prepare(tandem_executor **out, tandem_worker *worker,
                                      const tandem_executor_options *options, int forward_only,
                                      tandem_error *error)
{
    tandem_executor *executor = calloc(1, sizeof *executor);
    if (!executor) return tandem_error_set(error, TANDEM_NO_MEMORY, "no memory for an executor");
    executor->worker = worker;
    executor->options = *options;
    executor->step = options->step;
    executor->graph = options->step->graph;
    executor->loaded = -1;
    tandem_gate_open(&executor->gate, options);
    tandem_status status = tandem_noise_open(&executor->noise_kernels, error);
    if (status == TANDEM_OK && !forward_only) status = check_norm(executor, error);
    if (status == TANDEM_OK) status = allocate_tables(executor, error);
    if (status == TANDEM_OK) status = set_optimizer(executor, error);
    if (status == TANDEM_OK)
        status = tandem_running_open(&executor->statistics, executor->graph, worker, error);
    if (status == TANDEM_OK) status = tandem_histories_open(&executor->histories, executor->step, error);
    if (status == TANDEM_OK) status = prepare_kernels(executor, forward_only, error);
    if (status == TANDEM_OK)
        status = tandem_memory_plan(&executor->memory, executor->step, executor->workspace, executor->offset,
                                    executor->workspace_offset, error);
    if (status == TANDEM_OK && options->with_evaluation) status = prepare_evaluation(executor, error);
    if (status != TANDEM_OK) {
        tandem_executor_close(executor);
        return status;
    }
    *out = executor;
    return TANDEM_OK;
}

static tandem_status allocate_arena(tandem_executor *executor, tandem_error *error)
{
    void *arena = NULL;
    tandem_status status =
        take(&arena, executor, executor->memory.arena + executor->memory.evaluation, error);
    executor->arena = arena;
    if (status == TANDEM_OK) status = take_tables(executor, error);
    if (status == TANDEM_OK && tandem_worker_is_apart(executor->worker))
        status = tandem_transfer_open(executor, 0, error);
    return status;
}

static tandem_status allocate_histories(tandem_executor *executor, tandem_error *error)
{
    if (executor->histories.n == 0) return TANDEM_OK;
    void *memory = NULL;
    const tandem_status status = take(&memory, executor, executor->memory.histories, error);
    executor->histories.memory = memory;
    return status == TANDEM_OK ? tandem_histories_begin(&executor->histories, executor->worker, error)
                               : status;
}

/* The same model and bucket plan: the same flat layout. */
static tandem_status place_evaluation(tandem_executor *executor, tandem_error *error)
{
    tandem_executor *forward = executor->forward;
    forward->weight = executor->weight;
    forward->arena = executor->arena;
    tandem_status status = take_tables(forward, error);
    if (status == TANDEM_OK && tandem_worker_is_apart(forward->worker))
        status = tandem_transfer_open(forward, 1, error);
    if (status == TANDEM_OK) bind_operands(forward);
    return status;
}

tandem_status tandem_executor_open(tandem_executor **out, tandem_worker *worker,
                                   const tandem_executor_options *options, tandem_error *error)
{
    const tandem_resident resident = tandem_resident_begin(worker);
    tandem_executor *executor = NULL;
    tandem_status status = tandem_executor_prepare(&executor, worker, options, 0, error);
    if (status == TANDEM_OK) executor->resident = resident;
    if (status == TANDEM_OK) status = tandem_executor_check_fit(executor, error);
    if (status == TANDEM_OK) status = allocate_flat(executor, error);
    if (status == TANDEM_OK) status = allocate_arena(executor, error);
    if (status == TANDEM_OK && executor->forward) status = place_evaluation(executor, error);
    if (status == TANDEM_OK) status = allocate_histories(executor, error);
    if (status == TANDEM_OK) status = initialise_weights(executor, error);
    if (status == TANDEM_OK) status = open_reducer(executor, error);
    if (status == TANDEM_OK) status = tandem_graphs_open(executor, error);
    if (status != TANDEM_OK) {
        tandem_executor_close(executor);
        return status;
    }
    bind_operands(executor);
    *out = executor;
    return TANDEM_OK;
}

void tandem_executor_close(tandem_executor *executor)
{
    if (!executor) return;
    tandem_executor_close(executor->forward);
    tandem_step_close(executor->forward_step);
    tandem_reducer_close(executor->reducer);
    tandem_graphs_close(executor);
    for (int t = 0; executor->kernel && t < executor->step->n_task; t++)
        if (executor->kernel[t]) executor->worker->backend->release(executor->kernel[t]);
    if (tandem_worker_is_apart(executor->worker)) tandem_transfer_close(executor);
    tandem_worker *worker = executor->worker;
    if (executor->evaluates) executor->weight = NULL, executor->arena = NULL; /* the trained executor's */
    tandem_worker_give(worker, TANDEM_ON_DEVICE, executor->weight);
    tandem_worker_give_exchanged(worker, executor->host_gradient);
    if (executor->gradient != executor->host_gradient)
        tandem_worker_give(worker, TANDEM_ON_DEVICE, executor->gradient);
    tandem_worker_give(worker, TANDEM_ON_DEVICE, executor->state[0]);
    tandem_worker_give(worker, TANDEM_ON_DEVICE, executor->state[1]);
    tandem_worker_give(worker, TANDEM_ON_DEVICE, executor->arena);
    tandem_worker_give(worker, TANDEM_ON_DEVICE, executor->histories.memory);
    tandem_worker_give(worker, TANDEM_ON_DEVICE, executor->scale);
    tandem_worker_give(worker, TANDEM_STAGING, executor->label);
    tandem_running_close(&executor->statistics, worker);
    tandem_histories_close(&executor->histories);
    free(executor->mirror);
    free(executor->times.wait_ns);
    free(executor->times.all_end_ns);
    free(executor->times.all_start_ns);
    free(executor->decays);
    free(executor->offset);
    free(executor->active);
    free(executor->workspace_offset);
    free(executor->workspace);
    free(executor->call);
    free(executor->kernel);
    tandem_data_cursor_free(&executor->cursor);
    free(executor);
}
