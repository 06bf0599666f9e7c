/* api.c: the one exported function of libtandem_backend. */
#include <stdint.h>
#include <stdio.h>

#include "backend/checkpoint.h"
#include "backend/comm/gloo_shim.h"
#include "backend/executor.h"
#include "backend/measure.h"

static const char *libraries(char *text, size_t size)
{
    extern const tandem_device_backend tandem_cpu_backend;
    (void)snprintf(text, size, "%s, %s", tandem_cpu_backend.version(), tandem_gloo_version());
    return text;
}

static const tandem_step_times *times(const tandem_executor *executor) { return &executor->times; }
static uint64_t allocated(const tandem_executor *executor) { return executor->allocated; }

static int64_t resident(const tandem_executor *executor)
{
    return tandem_resident_peak_bytes(&executor->resident, executor->worker);
}

static const tandem_memory *memory(const tandem_executor *executor) { return &executor->memory; }
static uint64_t workspace(const tandem_executor *executor, int task) { return executor->workspace[task]; }

static void set_rate(tandem_executor *executor, float rate) { executor->optimizer.rate = rate; }

static void observe(tandem_executor *executor, tandem_observer *observer, void *context)
{
    executor->observer = observer;
    executor->observer_context = context;
}

/* Copies are made for observers, who cannot change what they see. */
static const void *value(const tandem_executor *executor, int id, int gradient, float *scale)
{
    return tandem_executor_value((tandem_executor *)(uintptr_t)executor, id, gradient, scale);
}

static tandem_step_report report(const tandem_executor *executor)
{
    const tandem_gate *gate = &executor->gate;
    return (tandem_step_report){.gradient_norm = tandem_gate_is_used(gate) ? gate->norm : -1,
                                .loss_scale = gate->step_scale,
                                .skipped = gate->skips};
}

static const char *note(const tandem_executor *executor) { return executor->graphs.note; }

static const tandem_backend_api api = {
    .version = TANDEM_BACKEND_VERSION,
    .libraries = libraries,
    .device_look = tandem_worker_look,
    .data_open = tandem_data_open,
    .data_close = tandem_data_close,
    .data_at = tandem_data_at,
    .data_find = tandem_data_find,
    .worker_open = tandem_worker_open,
    .worker_close = tandem_worker_close,
    .worker_shares = tandem_worker_shares,
    .worker_why_apart = tandem_worker_why_apart,
    .worker_recall = tandem_worker_recall,
    .worker_tried = tandem_worker_tried,
    .worker_clocks = tandem_worker_clocks,
    .worker_barrier = tandem_worker_barrier,
    .worker_sum = tandem_worker_sum,
    .worker_gather = tandem_worker_gather,
    .worker_broadcast = tandem_worker_broadcast,
    .executor_open = tandem_executor_open,
    .executor_close = tandem_executor_close,
    .executor_set_rate = set_rate,
    .executor_step = tandem_executor_step,
    .executor_report = report,
    .executor_note = note,
    .executor_times = times,
    .executor_allocated = allocated,
    .executor_resident = resident,
    .executor_memory = memory,
    .executor_workspace = workspace,
    .executor_observe = observe,
    .executor_value = value,
    .executor_evaluate = tandem_executor_evaluate,
    .executor_save = tandem_executor_save,
    .executor_restore = tandem_executor_restore,
    .checkpoint_inspect = tandem_checkpoint_inspect,
    .executor_import = tandem_executor_import,
    .executor_export = tandem_executor_export,
    .tensors_inspect = tandem_tensors_inspect,
    .executor_alone = tandem_executor_alone,
    .measure_all_reduce = tandem_measure_all_reduce,
};

__attribute__((visibility("default"))) const tandem_backend_api *tandem_backend_get(int version)
{
    return version == TANDEM_BACKEND_VERSION ? &api : NULL;
}
