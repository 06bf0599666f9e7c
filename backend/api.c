/* api.c: the one exported function of libtandem_backend, and the table that it returns. */
#include <stdint.h>
#include <stdio.h>

#include "backend/checkpoint.h"
#include "backend/comm/gloo_shim.h"
#include "backend/executor/executor.h"
#include "backend/executor/fit_data.h"

static const char *api_libraries(char *text, size_t size)
{
    extern const tandem_device_backend tandem_cpu_backend;
    (void)snprintf(text, size, "%s, %s", tandem_cpu_backend.version(), tandem_gloo_version());
    return text;
}

static const tandem_step_times *api_times(const tandem_executor *executor) { return &executor->times; }
static uint64_t api_allocated_bytes(const tandem_executor *executor) { return executor->allocated; }

static int64_t api_resident_bytes(const tandem_executor *executor)
{
    return tandem_resident_peak_bytes(&executor->resident, executor->worker);
}

static const tandem_memory *api_memory(const tandem_executor *executor) { return &executor->memory; }
static uint64_t api_workspace_bytes(const tandem_executor *executor, int task)
{
    return executor->workspace[task];
}

static void api_set_rate(tandem_executor *executor, float rate) { executor->optimizer.rate = rate; }

static void api_observe(tandem_executor *executor, tandem_observer *observer, void *context)
{
    executor->observer = observer;
    executor->observer_context = context;
}

/* The copy that it makes for an observer does not change the executor's values. */
static const void *api_value(const tandem_executor *executor, int id, int gradient, float *scale)
{
    return tandem_executor_value((tandem_executor *)(uintptr_t)executor, id, gradient, scale);
}

static tandem_step_report api_report(const tandem_executor *executor)
{
    const tandem_grad_scaler *scaler = &executor->grad_scaler;
    return (tandem_step_report){.gradient_norm = tandem_grad_scaler_is_used(scaler) ? scaler->norm : -1,
                                .loss_scale = scaler->step_scale,
                                .skipped = scaler->skip_step};
}

static const char *api_note(const tandem_executor *executor) { return executor->graphs.note; }

static const tandem_backend_api backend_api = {
    .version = TANDEM_BACKEND_VERSION,
    .libraries = api_libraries,
    .device_describe = tandem_worker_describe_device,
    .data_open = tandem_data_open,
    .data_hash = tandem_data_hash,
    .data_close = tandem_data_close,
    .data_fit = tandem_data_fit,
    .data_set_at = tandem_data_set_at,
    .data_find = tandem_data_find,
    .worker_open = tandem_worker_open,
    .worker_close = tandem_worker_close,
    .worker_shares_memory = tandem_worker_shares_memory,
    .worker_shared_memory_error = tandem_worker_shared_memory_error,
    .worker_n_stranger = tandem_worker_n_stranger,
    .worker_load_algorithms = tandem_worker_load_algorithms,
    .worker_tuned_algorithms = tandem_worker_tuned_algorithms,
    .worker_clocks = tandem_worker_clocks,
    .worker_barrier = tandem_worker_barrier,
    .worker_gather = tandem_worker_gather,
    .worker_broadcast = tandem_worker_broadcast,
    .executor_open = tandem_executor_open,
    .executor_plan = tandem_executor_plan,
    .executor_close = tandem_executor_close,
    .executor_set_rate = api_set_rate,
    .executor_set_emulation = tandem_executor_set_emulation,
    .executor_get_weights = tandem_executor_get_weights,
    .executor_weights = tandem_executor_weights,
    .executor_mean_squares = tandem_executor_mean_squares,
    .executor_spare = tandem_executor_spare,
    .executor_get_mean_squares = tandem_executor_get_mean_squares,
    .executor_put_weights = tandem_executor_put_weights,
    .executor_step = tandem_executor_step,
    .executor_is_pending = tandem_executor_is_pending,
    .executor_settle = tandem_executor_settle,
    .executor_report = api_report,
    .executor_note = api_note,
    .executor_times = api_times,
    .executor_allocated_bytes = api_allocated_bytes,
    .executor_resident_bytes = api_resident_bytes,
    .executor_memory = api_memory,
    .executor_workspace_bytes = api_workspace_bytes,
    .executor_observe = api_observe,
    .executor_value = api_value,
    .executor_evaluate = tandem_executor_evaluate,
    .executor_save = tandem_executor_save,
    .executor_restore = tandem_executor_restore,
    .checkpoint_inspect = tandem_checkpoint_inspect,
    .executor_import = tandem_executor_import,
    .executor_export = tandem_executor_export,
    .tensors_inspect = tandem_tensors_inspect,
    .executor_benchmark_product = tandem_executor_benchmark_product,
    .measure_collective = tandem_measure_collective,
};

__attribute__((visibility("default"))) const tandem_backend_api *tandem_backend_get(int version)
{
    return version == TANDEM_BACKEND_VERSION ? &backend_api : NULL;
}
