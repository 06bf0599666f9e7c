/* prepare.c: makes what a step program needs before its memory: tables, kernels and the memory plan; and
 * closes an executor. */
#include <stdlib.h>

#include "backend/executor/fit_data.h"
#include "backend/executor/image_input.h"

static tandem_status alloc_task_tables(tandem_executor *executor, tandem_error *error)
{
    tandem_arena *tables = &executor->tables;
    tandem_step_times *times = &executor->times;
    const size_t n_task = (size_t)executor->step->n_task, n_value = (size_t)executor->step->n_value;
    const size_t n_micro = (size_t)executor->step->options.n_micro, n_time = n_micro * n_task;
    const size_t n_parameter = (size_t)executor->graph->n_parameter;
    times->n_micro = (int)n_micro;
    if (!(executor->kernel = tandem_arena_array(tables, n_task, sizeof *executor->kernel)) ||
        !(executor->call = tandem_arena_array(tables, n_task, sizeof *executor->call)) ||
        !(executor->workspace = tandem_arena_array(tables, n_task, sizeof *executor->workspace)) ||
        !(executor->workspace_offset = tandem_arena_array(tables, n_task, sizeof(int64_t))) ||
        !(executor->active = tandem_arena_array(tables, n_task, sizeof *executor->active)) ||
        !(executor->n_merged = tandem_arena_array(tables, n_task, sizeof *executor->n_merged)) ||
        !(executor->offset = tandem_arena_array(tables, n_value, sizeof *executor->offset)) ||
        !(executor->has_weight_decay = tandem_arena_alloc(tables, n_parameter)) ||
        !(times->all_start_ns = tandem_arena_array(tables, 2 * n_time, sizeof *times->all_start_ns)) ||
        !(times->wait_ns =
              tandem_arena_array(tables, (size_t)executor->step->n_bucket, sizeof *times->wait_ns)))
        return tandem_executor_no_memory(executor, error);
    for (size_t t = 0; t < 2 * n_time; t++) times->all_start_ns[t] = -1;
    times->all_end_ns = times->all_start_ns + n_time;
    times->start_ns = times->all_start_ns + (n_micro - 1) * n_task;
    times->end_ns = times->all_end_ns + (n_micro - 1) * n_task;
    return TANDEM_OK;
}

static int task_has_kernel(const tandem_executor *executor, const tandem_task *task)
{
    if (!task->active || tandem_task_is_collective(task->kind) || task->kind == TANDEM_TASK_NORM ||
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
    return tandem_error_set(
        error, TANDEM_USAGE,
        "a step with the norm of all gradients is for training that clips gradients or scales its loss, and "
        "for no other; this step has %s",
        is_there ? "that norm" : "no such norm");
}

/* Where the caller wants all operators that lack a kernel, the error is that of the first. */
static tandem_status prepare_task_kernels(tandem_executor *executor, int forward_only, tandem_error *error)
{
    const tandem_step *step = executor->step;
    unsigned char *const lacks_kernel = executor->options.lacks_kernel;
    int is_lacking = 0;
    if (forward_only) executor->loss_forward_task = -1;
    const int first_after = step->norm_task >= 0 ? step->norm_task : step->bucket[0].update_task;
    for (int t = 0; t < step->n_task; t++) {
        const tandem_task *task = &step->task[t];
        if (forward_only && executor->loss_forward_task >= 0) break; /* nothing after the loss */
        if (!task->active) continue;
        if (task->op == executor->graph->loss && task->kind == TANDEM_TASK_FORWARD)
            executor->loss_forward_task = t;
        if (task->op == executor->graph->loss && task->kind == TANDEM_TASK_DGRAD)
            executor->loss_dgrad_task = t;
        executor->active[executor->n_active++] = t;
        executor->n_backward += t < first_after;
        executor->n_run += !executor->options.hold_weights || t < step->bucket[0].update_task;
        if (!task_has_kernel(executor, task)) continue;
        const tandem_status status =
            executor->worker->backend->prepare(executor->worker->device, step, t, &executor->kernel[t],
                                               &executor->workspace[t], is_lacking ? NULL : error);
        if (status == TANDEM_NO_KERNEL && lacks_kernel && task->op >= 0)
            lacks_kernel[task->op] = 1, is_lacking = 1;
        else if (status != TANDEM_OK)
            return status;
    }
    return is_lacking ? TANDEM_NO_KERNEL : TANDEM_OK;
}

static void find_merged_tasks(tandem_executor *executor)
{
    for (int k = executor->n_active - 1; k >= 0; k--)
        executor->n_merged[k] = k + 1 < executor->n_active && executor->worker->backend->run_merged &&
                                        tandem_step_is_merged(executor->step, executor->active[k + 1])
                                    ? executor->n_merged[k + 1] + 1
                                    : 1;
}

static tandem_status set_executor_kind(tandem_executor *executor, tandem_error *error)
{
    const tandem_executor_options *options = &executor->options;
    const int is_emulated = options->emulation != NULL;
    executor->data_seed = options->data_seed ? *options->data_seed : options->seed;
    if (is_emulated) executor->emulation = *options->emulation;
    if (is_emulated != executor->step->options.emulated)
        return tandem_error_set(error, TANDEM_USAGE,
                                "an emulation needs a step that is laid out as emulated, and no other does");
    if (is_emulated && tandem_worker_has_device_memory(executor->worker))
        return tandem_error_set(error, TANDEM_USAGE,
                                "number formats are emulated on CPU devices only (tandem list devices)");
    if (options->hold_weights && executor->worker->n_rank > 1 && !options->without_all_reduce)
        return tandem_error_set(error, TANDEM_USAGE,
                                "weights are held still on one rank, not on %d, or without all-reduce",
                                executor->worker->n_rank);
    const tandem_executor *lender = options->lender;
    if (lender &&
        (!options->hold_weights || !options->without_all_reduce ||
         tandem_worker_has_device_memory(executor->worker) || lender->step->n_flat != executor->step->n_flat))
        return tandem_error_set(error, TANDEM_USAGE,
                                "memory is lent on CPU devices, for the same parameters, to an executor that "
                                "holds weights and reduces no gradients");
    return TANDEM_OK;
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

/* Evaluations run between steps, when the arena holds nothing that is needed, so they use the arena. */
static tandem_status prepare_evaluator(tandem_executor *executor, tandem_error *error)
{
    tandem_executor_options options = executor->options;
    const int in_plan = options.evaluate_in_plan;
    tandem_status status =
        tandem_step_open_with(&executor->evaluator_step, executor->graph, executor->step->amp_dtype,
                              executor->step->bucket_bytes, in_plan ? &executor->step->options : NULL, error);
    if (status == TANDEM_OK && in_plan) tandem_step_load(executor->evaluator_step, executor->step->precision);
    options.step = executor->evaluator_step;
    options.with_evaluation = 0;
    options.without_all_reduce = 1; /* and it has no gradients */
    options.clip = 0;
    options.loss_scale = 0;
    if (!in_plan) options.emulation = NULL;
    options.hold_weights = 0;
    options.lender = NULL;
    options.data_seed = &executor->data_seed;
    options.data = NULL; /* each evaluation brings its own */
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

static tandem_status refuse_recorded(const tandem_graph *graph, tandem_error *error)
{
    return tandem_error_set(error, TANDEM_NO_KERNEL,
                            "'%s' is a module that PyTorch runs: no kernel here does. tandem.profile and "
                            "tandem.sensitivity of the Python package measure it, and tandem.apply runs its "
                            "plan (docs/pytorch.md)",
                            graph->model);
}

tandem_status tandem_executor_take_data(tandem_executor *executor, const tandem_data *data,
                                        tandem_error *error)
{
    tandem_data fitted = data ? *data : (tandem_data){0};
    const tandem_status status = data ? tandem_data_fit(&fitted, executor->graph, NULL, error) : TANDEM_OK;
    if (status != TANDEM_OK) return status;
    executor->data = fitted;
    executor->options.data = data ? &executor->data : NULL;
    return TANDEM_OK;
}

tandem_status tandem_executor_prepare(tandem_executor **out, tandem_worker *worker,
                                      const tandem_executor_options *options, int forward_only,
                                      tandem_error *error)
{
    if (options->step->graph->is_recorded) return refuse_recorded(options->step->graph, error);
    tandem_executor *executor = calloc(1, sizeof *executor);
    if (!executor) return tandem_no_memory(error, "for an executor");
    executor->worker = worker;
    executor->options = *options;
    executor->step = options->step;
    executor->graph = options->step->graph;
    executor->loaded_micro_index = -1;
    executor->cursor = options->lender ? options->lender->cursor : &executor->own_cursor;
    tandem_grad_scaler_open(&executor->grad_scaler, options);
    tandem_status status = tandem_executor_take_data(executor, options->data, error);
    if (status == TANDEM_OK) status = tandem_kernels_open(&executor->noise_kernels, "best", error);
    if (status == TANDEM_OK && !forward_only) status = check_norm_task(executor, error);
    if (status == TANDEM_OK) status = set_executor_kind(executor, error);
    if (status == TANDEM_OK) status = alloc_task_tables(executor, error);
    if (status == TANDEM_OK && !forward_only) status = tandem_executor_open_shards(executor, error);
    if (status == TANDEM_OK) status = set_executor_optimizer(executor, error);
    if (status == TANDEM_OK)
        status = tandem_batchnorm_stats_open(&executor->batchnorm_stats, executor->graph, worker, error);
    if (status == TANDEM_OK) status = tandem_amax_histories_open(&executor->histories, executor->step, error);
    if (status == TANDEM_OK) status = prepare_task_kernels(executor, forward_only, error);
    if (status == TANDEM_OK) find_merged_tasks(executor);
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

tandem_status tandem_executor_plan(tandem_memory *memory, tandem_worker *worker,
                                   const tandem_executor_options *options, tandem_error *error)
{
    tandem_executor *executor = NULL;
    const tandem_status status = tandem_executor_prepare(&executor, worker, options, 0, error);
    if (status == TANDEM_OK) *memory = executor->memory;
    tandem_executor_close(executor);
    return status;
}

void tandem_executor_close(tandem_executor *executor)
{
    if (!executor) return;
    tandem_worker *worker = executor->worker;
    tandem_late_close(executor);
    tandem_executor_close(executor->evaluator);
    tandem_step_close(executor->evaluator_step);
    tandem_reducer_close(executor->reducer);
    tandem_device_graphs_close(executor);
    tandem_image_input_close(executor);
    for (int t = 0; executor->kernel && t < executor->step->n_task; t++)
        if (executor->kernel[t]) worker->backend->release(executor->kernel[t]);
    while (executor->n_owned-- > 0)
        tandem_worker_free(worker, executor->owned[executor->n_owned].location,
                           executor->owned[executor->n_owned].memory);
    if (!executor->options.lender) tandem_worker_free_shared(worker, executor->host_gradient);
    if (executor->border) tandem_worker_free_shared(worker, executor->weight);
    tandem_batchnorm_stats_close(&executor->batchnorm_stats, worker);
    tandem_amax_histories_close(&executor->histories);
    free(executor->host_copy);
    tandem_arena_free(&executor->tables);
    tandem_data_cursor_free(&executor->own_cursor);
    free(executor);
}
