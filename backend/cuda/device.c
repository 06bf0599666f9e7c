/* device.c: the device backend "cuda": one GPU, and one CUDA stream per device stream. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/plain_text.h"
#include "backend/executor/adamw.h"
#include "backend/cuda/operator.h"

/* Workspaces are 64-byte aligned, and NVIDIA's libraries want 256. */
enum { ALIGNMENT = 256, SPARE = ALIGNMENT - 64 };

/* A reshape is a view, and a source holds input data: neither has kernels. */
#define KERNELS_OF_SOURCE(name) NULL
#define KERNELS_OF_ADJUSTABLE(name) &cuda_##name
#define KERNELS_OF_DEPENDENT(name) &cuda_##name
#define KERNELS_OF_FIXED(name) &cuda_##name
#define KERNELS_OF_BY_ROWS(name) &cuda_##name
const cuda_operator cuda_reshape = {.prepare = NULL};
static const cuda_operator *const cuda_operator_rows[N_KERNEL_ROW] = {
#define ROW(NAME, name, class, ...) [TANDEM_OP_##NAME] = KERNELS_OF_##class(name),
#include "tandem/op.def"
#undef ROW
    [KERNEL_ROW_CAST] = &cuda_cast,
    [KERNEL_ROW_ACCUMULATE] = &cuda_accumulate,
};

/* --- Opening -------------------------------------------------------------------------------------------- */

static tandem_status cuda_describe_device(char *text, size_t size, const char *name, tandem_error *error)
{
    cuda_device named = {.vendor = &tandem_cuda_vendor};
    cuda_gpu gpu = {0};
    char versions[CUDA_VERSIONS_TEXT] = "";
    (void)snprintf(named.name, sizeof named.name, "%s", name);
    const tandem_status status = find_cuda_gpu(&gpu, &named.index, &named, error);
    if (status != TANDEM_OK) return status;
    (void)tandem_cuda_vendor.versions(versions, sizeof versions);
    (void)tandem_plain_print(text, size, "%s, compute capability %d.%d, %.1f GB, driver for CUDA %d.%d; %s",
                             gpu.name, gpu.major, gpu.minor, (double)gpu.memory_bytes / 1e9,
                             gpu.driver / 1000, gpu.driver % 1000 / 10, versions);
    return TANDEM_OK;
}

static void cuda_close_device(void *device)
{
    cuda_device *cuda = device;
    if (!cuda) return;
    for (int k = 0; k < cuda->n_event; k++) cuda->vendor->event_close(cuda->event[k]);
    free(cuda->event);
    if (cuda->amax_bits) cuda->vendor->free(cuda->amax_bits, 0);
    if (cuda->tickets) cuda->vendor->free(cuda->tickets, 0);
    if (cuda->faults) cuda->vendor->free(cuda->faults, 0);
    for (int lane = 0; lane < TANDEM_N_DEVICE_STREAM; lane++) {
        if (cuda->side_stream[lane]) cuda->vendor->stream_close(cuda->side_stream[lane]);
        if (cuda->stream_event[lane]) cuda->vendor->event_close(cuda->stream_event[lane]);
    }
    close_cuda_libraries(cuda);
    free(cuda);
}

static tandem_status init_cuda_device(cuda_device *cuda, tandem_error *error)
{
    const cuda_vendor *vendor = cuda->vendor;
    const tandem_status status = open_cuda_libraries(cuda, error);
    if (status != TANDEM_OK) return status;
    int failed = 0;
    for (int lane = TANDEM_DEVICE_STREAM_COMPUTE + 1; lane < TANDEM_N_DEVICE_STREAM && !failed; lane++)
        failed = vendor->stream_open(&cuda->side_stream[lane]);
    for (int lane = 0; lane < TANDEM_N_DEVICE_STREAM && !failed; lane++)
        failed = vendor->event_open(&cuda->stream_event[lane]);
    if (!failed) failed = vendor->alloc((void **)&cuda->faults, sizeof *cuda->faults, 0);
    if (!failed) failed = vendor->alloc((void **)&cuda->amax_bits, 2 * sizeof *cuda->amax_bits, 0);
    if (!failed)
        failed = vendor->alloc((void **)&cuda->tickets, TANDEM_CUDA_TICKETS * sizeof *cuda->tickets, 0);
    if (!failed) failed = vendor->clear(cuda->faults, sizeof *cuda->faults, cuda->stream);
    if (!failed)
        failed = vendor->clear(cuda->tickets, TANDEM_CUDA_TICKETS * sizeof *cuda->tickets, cuda->stream);
    return failed ? cuda_failure(cuda, "open", failed, error) : TANDEM_OK;
}

tandem_status tandem_cuda_open_with(void **device, const char *name, const cuda_vendor *vendor,
                                    tandem_error *error)
{
    cuda_device *cuda = calloc(1, sizeof *cuda);
    if (!cuda) return tandem_no_memory(error, "to open device '%s'", name);
    (void)snprintf(cuda->name, sizeof cuda->name, "%s", name);
    cuda->vendor = vendor;
    const tandem_status status = init_cuda_device(cuda, error);
    if (status != TANDEM_OK) {
        cuda_close_device(cuda);
        return status;
    }
    *device = cuda;
    return TANDEM_OK;
}

/* --- Kernels -------------------------------------------------------------------------------------------- */

static void cuda_release_kernel(tandem_kernel *kernel)
{
    if (!kernel) return;
    if (kernel->destroy) kernel->destroy(kernel->state, kernel->device);
    free(kernel);
}

static tandem_status cuda_prepare_kernel(void *device, const tandem_step *step, int task,
                                         tandem_kernel **kernel, uint64_t *workspace_bytes,
                                         tandem_error *error)
{
    const tandem_task *task_spec = &step->task[task];
    const tandem_op *op = task_spec->op >= 0 ? &step->graph->op[task_spec->op] : NULL;
    tandem_attention attention = {0};
    const cuda_operator *found = tandem_step_attention(step, task, &attention)
                                     ? &cuda_attention
                                     : cuda_operator_rows[kernel_row_of(task_spec, op)];
    if (!found || (!found->prepare && !found->forward)) return kernel_missing(task, task_spec, op, error);
    tandem_kernel *prepared = calloc(1, sizeof *prepared);
    if (!prepared) return kernel_no_memory(task_spec, op, error);
    prepared->device = device;
    prepared->graph = step->graph;
    prepared->op = op;
    prepared->task = *task_spec;
    prepared->attention = attention;
    prepared->saves_input =
        op && (tandem_op_row_on(op->kind, step->options.narrow_rows)->saves & TANDEM_SAVES_INPUT);
    prepared->padded_row = op ? tandem_step_padded_row(step, task_spec->op) : 0;
    prepared->products = tandem_step_merged_products(step, task);
    for (int k = 0; k < task_spec->n_write; k++)
        if (task_spec->write[k] >= 0) prepared->written[k] = step->value[task_spec->write[k]].dtype;
    for (int k = 0; k < 2 && k < task_spec->n_read; k++)
        prepared->transposed_copy[k] =
            task_spec->read[k] >= 0 &&
            tandem_value_untransposed(step, task_spec->read[k]) != task_spec->read[k];
    const int written = task_spec->n_write > 0 ? task_spec->write[task_spec->n_write - 1] : -1;
    if (kernel_row_of(task_spec, op) == KERNEL_ROW_CAST && written >= 0 &&
        tandem_value_untransposed(step, written) != written)
        prepared->matrices = tandem_step_matrices(step, task);
    if (task_spec->kind == TANDEM_TASK_CAST && task_spec->read[0] >= 0)
        prepared->is_read_later = step->value[task_spec->read[0]].last > task;
    cuda_kernel_run *const run = task_spec->kind == TANDEM_TASK_FORWARD ? found->forward : found->dgrad;
    const tandem_status status =
        found->prepare ? found->prepare(prepared, error) : cuda_kernel_of_float(prepared, run, error);
    if (status != TANDEM_OK) {
        free(prepared);
        return status;
    }
    *kernel = prepared;
    *workspace_bytes = prepared->workspace_bytes ? prepared->workspace_bytes + SPARE : 0;
    return TANDEM_OK;
}

/* The plan aligns to 64 bytes; NVIDIA's libraries want a workspace with 256. */
static tandem_kernel_call align_workspace(const tandem_kernel_call *call)
{
    tandem_kernel_call aligned = *call;
    aligned.workspace = (char *)call->workspace + (-(uintptr_t)call->workspace & (ALIGNMENT - 1));
    return aligned;
}

static tandem_status cuda_run_kernel(const tandem_kernel *kernel, const tandem_kernel_call *call,
                                     tandem_error *error)
{
    if (!call->workspace) return kernel->run(kernel, call, error);
    const tandem_kernel_call aligned = align_workspace(call);
    return kernel->run(kernel, &aligned, error);
}

static tandem_status cuda_run_merged_kernels(const tandem_kernel *const *kernel,
                                             const tandem_kernel_call *const *call, int n,
                                             tandem_error *error)
{
    tandem_kernel_call aligned[TANDEM_MAX_MERGED_CASTS];
    for (int k = 0; k < n; k++) aligned[k] = align_workspace(call[k]);
    return cuda_run_merged(kernel, aligned, n, error);
}

static tandem_status cuda_load_algorithms(void *device, const tandem_algorithm *choice, int n, int autotune,
                                          tandem_error *error)
{
    return cuda_algorithm_cache_load(((cuda_device *)device)->algorithm_cache, choice, n, autotune, error);
}

static const tandem_algorithm *cuda_tuned_algorithms(const void *device, int *n)
{
    return cuda_algorithm_cache_tuned(((const cuda_device *)device)->algorithm_cache, n);
}

/* --- The optimizer -------------------------------------------------------------------------------------- */

static int cuda_update_weights(void *device, const tandem_optimizer_options *options, int decays,
                               const unsigned char *decay_mask, float *weight, float *const *state,
                               const float *gradient, int64_t n, int64_t t, const float *rates)
{
    cuda_device *cuda = device;
    const float decay = decays ? options->decay : 0;
    const size_t padded = ((size_t)n + 15) / 16 * 16;
    int failed;
    if (options->kind == TANDEM_SGD) {
        failed = tandem_cuda_sgd(weight, state[0], gradient, decay_mask, padded, options->rate,
                                 options->momentum, decay, rates, &cuda->faults->not_finite, cuda->stream);
    } else {
        const tandem_adamw adamw = {options->rate,
                                    options->beta1,
                                    options->beta2,
                                    options->epsilon,
                                    decay,
                                    tandem_adamw_correction(options->beta1, t),
                                    tandem_adamw_correction(options->beta2, t)};
        failed = tandem_cuda_adamw(weight, state[0], state[1], gradient, decay_mask, padded, &adamw, rates,
                                   &cuda->faults->not_finite, cuda->stream);
    }
    if (failed) cuda->update_error = failed;
    return 1; /* device_sync reports an error */
}

static tandem_status cuda_fill_noise(void *device, float *x, int64_t batch, int64_t n, uint64_t seed,
                                     uint32_t first, uint32_t global_batch, const uint32_t *index,
                                     tandem_error *error)
{
    const cuda_device *cuda = device;
    const int failed =
        tandem_cuda_noise(x, (size_t)batch, (size_t)n, seed, first, global_batch, index, cuda->stream);
    return failed ? cuda_failure(cuda, "fill noise", failed, error) : TANDEM_OK;
}

static tandem_status cuda_fill_images(void *device, float *x, const int64_t *dim,
                                      const tandem_image_slots *slots, tandem_error *error)
{
    const cuda_device *cuda = device;
    const int failed = tandem_cuda_images(x, (size_t)dim[0], (unsigned)dim[1], (unsigned)dim[2],
                                          (unsigned)dim[3], slots, cuda->stream);
    return failed ? cuda_failure(cuda, "normalise images", failed, error) : TANDEM_OK;
}

static tandem_status cuda_fill_labels(void *device, int32_t *label, int64_t n,
                                      const tandem_image_slots *slots, tandem_error *error)
{
    const cuda_device *cuda = device;
    const int failed = tandem_cuda_image_labels(label, (size_t)n, slots, cuda->stream);
    return failed ? cuda_failure(cuda, "take labels", failed, error) : TANDEM_OK;
}

static tandem_status cuda_update_running_stats(void *device, float *running, const float *batch,
                                               int64_t channels, int64_t n, float momentum,
                                               tandem_error *error)
{
    const cuda_device *cuda = device;
    const float unbiased = n > 1 ? (float)n / (float)(n - 1) : 1.0f;
    const int failed =
        tandem_cuda_update_running(running, batch, (size_t)channels, unbiased, momentum, cuda->stream);
    return failed ? cuda_failure(cuda, "update running statistics", failed, error) : TANDEM_OK;
}

/* --- Memory --------------------------------------------------------------------------------------------- */

static tandem_status cuda_alloc(void *device, void **memory, uint64_t bytes, int is_staging,
                                tandem_error *error)
{
    const cuda_device *cuda = device;
    void *taken = NULL;
    const uint64_t some = bytes ? bytes : ALIGNMENT;
    int failed = cuda->vendor->alloc(&taken, some, is_staging);
    if (failed == CUDA_OUT_OF_MEMORY)
        return tandem_error_set(error, TANDEM_NO_MEMORY, "device '%s' has no %llu bytes of %s left",
                                cuda->name, (unsigned long long)some,
                                is_staging ? "page-locked memory of the host" : "memory");
    if (failed) return cuda_failure(cuda, "allocate memory", failed, error);
    if (is_staging)
        memset(taken, 0, some);
    else
        failed = cuda->vendor->clear(taken, some, cuda->stream);
    if (failed) {
        cuda->vendor->free(taken, is_staging);
        return cuda_failure(cuda, "clear memory", failed, error);
    }
    *memory = taken;
    return TANDEM_OK;
}

static void cuda_free(void *device, void *memory, int is_staging)
{
    const cuda_device *cuda = device;
    if (memory) cuda->vendor->free(memory, is_staging);
}

static tandem_status cuda_lock_host_memory(void *device, void *memory, uint64_t bytes, tandem_error *error)
{
    const cuda_device *cuda = device;
    const int failed = cuda->vendor->lock(memory, bytes);
    if (failed == CUDA_OUT_OF_MEMORY) /* of what may be locked, not of the card's */
        return tandem_error_set(error, TANDEM_NO_MEMORY,
                                "device '%s' failed to page-lock memory that ranks share: no memory",
                                cuda->name);
    return failed ? cuda_failure(cuda, "page-lock memory that ranks share", failed, error) : TANDEM_OK;
}

static void cuda_unlock_host_memory(void *device, void *memory)
{
    ((const cuda_device *)device)->vendor->unlock(memory);
}

static int cuda_read_clocks(void *device, tandem_clocks *now)
{
    const cuda_device *cuda = device;
    tandem_clocks seen;
    if (cuda->vendor->read_clocks(&seen.compute_mhz, &seen.memory_mhz, cuda->index)) return 0;
    *now = seen;
    return 1;
}

static uint64_t cuda_free_bytes(void *device)
{
    const cuda_device *cuda = device;
    uint64_t bytes = 0;
    return cuda->vendor->free_bytes(&bytes) ? 0 : bytes;
}

static uint64_t cuda_unplanned_bytes(void *device, uint64_t seen)
{
    return cuda_algorithm_cache_unplanned(((cuda_device *)device)->algorithm_cache, seen);
}

static tandem_status cuda_copy(void *device, void *to, const void *from, uint64_t bytes, tandem_error *error)
{
    const cuda_device *cuda = device;
    /* a thread that measures collectives did not open the GPU */
    int failed = cuda->vendor->set_device(cuda->index);
    if (!failed) failed = cuda->vendor->copy(to, from, bytes, cuda->stream);
    if (!failed) failed = cuda->vendor->stream_sync(cuda->stream);
    return failed ? cuda_failure(cuda, "copy", failed, error) : TANDEM_OK;
}

/* Of a launch whose error `update` could not return. */
static tandem_status report_update_error(cuda_device *cuda, tandem_error *error)
{
    const int failed = cuda->update_error;
    cuda->update_error = 0;
    return failed ? cuda_failure(cuda, "update weights", failed, error) : TANDEM_OK;
}

static tandem_status clear_faults(const cuda_device *cuda, tandem_error *error)
{
    const int failed = cuda->vendor->clear(cuda->faults, sizeof *cuda->faults, cuda->stream);
    return failed ? cuda_failure(cuda, "clear memory", failed, error) : TANDEM_OK;
}

static tandem_status cuda_read_faults(int64_t *nonfinite, const void *staged, tandem_error *error)
{
    const cuda_faults *faults = staged;
    if (faults->bad_label || faults->bad_token)
        return tandem_error_set(error, TANDEM_MALFORMED,
                                "%s %u of the batch is out of range; labels are classes, or -1 for none, "
                                "and tokens are below the vocabulary's size",
                                faults->bad_label ? "label" : "token",
                                0xFFFFFFFFu - (faults->bad_label ? faults->bad_label : faults->bad_token));
    *nonfinite = faults->not_finite ? (int64_t)(0xFFFFFFFFu - faults->not_finite) : -1;
    return TANDEM_OK;
}

static tandem_status cuda_device_sync(void *device, int *is_finite, tandem_error *error)
{
    cuda_device *cuda = device;
    cuda_faults faults = {0};
    int64_t nonfinite = -1;
    tandem_status status = report_update_error(cuda, error);
    if (status == TANDEM_OK) status = cuda_copy(device, &faults, cuda->faults, sizeof faults, error);
    if (status == TANDEM_OK) status = clear_faults(cuda, error);
    if (status == TANDEM_OK) status = cuda_read_faults(&nonfinite, &faults, error);
    if (status == TANDEM_OK) *is_finite = nonfinite < 0;
    return status;
}

_Static_assert(sizeof(cuda_faults) <= TANDEM_FAULT_BYTES, "staged faults");

static tandem_status cuda_queue_faults(void *device, void *staged, tandem_error *error)
{
    cuda_device *cuda = device;
    const tandem_status status = report_update_error(cuda, error);
    if (status != TANDEM_OK) return status;
    const int failed = cuda->vendor->copy(staged, cuda->faults, sizeof *cuda->faults, cuda->stream);
    return failed ? cuda_failure(cuda, "copy", failed, error) : clear_faults(cuda, error);
}

/* --- Streams -------------------------------------------------------------------------------------------- */

static tandem_cuda_stream cuda_stream_of(const cuda_device *cuda, tandem_device_stream lane)
{
    return lane == TANDEM_DEVICE_STREAM_COMPUTE ? cuda->stream : cuda->side_stream[lane];
}

static tandem_status cuda_reserve_events(void *device, int n, tandem_error *error)
{
    cuda_device *cuda = device;
    if (n <= cuda->n_event) return TANDEM_OK;
    tandem_cuda_event *grown = realloc(cuda->event, (size_t)n * sizeof(tandem_cuda_event));
    if (!grown) return tandem_no_memory(error, "for %d marks of device '%s'", n, cuda->name);
    cuda->event = grown;
    for (; cuda->n_event < n; cuda->n_event++) {
        const int failed = cuda->vendor->event_open(&cuda->event[cuda->n_event]);
        if (failed) return cuda_failure(cuda, "open an event", failed, error);
    }
    return TANDEM_OK;
}

static tandem_status cuda_event_record(void *device, tandem_device_stream lane, int k, tandem_error *error)
{
    const cuda_device *cuda = device;
    const tandem_cuda_stream stream = cuda_stream_of(cuda, lane);
    const int failed = cuda->is_capturing ? cuda->vendor->event_record_external(cuda->event[k], stream)
                                          : cuda->vendor->event_record(cuda->event[k], stream);
    return failed ? cuda_failure(cuda, "record an event", failed, error) : TANDEM_OK;
}

/* Uses the stream's own event: events that the host waits for are external to a graph, and no stream in it
 * may wait for one. */
static tandem_status cuda_stream_wait(void *device, tandem_device_stream lane, tandem_device_stream leader,
                                      tandem_error *error)
{
    cuda_device *cuda = device;
    int failed = cuda->vendor->event_record(cuda->stream_event[lane], cuda_stream_of(cuda, leader));
    if (!failed)
        failed = cuda->vendor->stream_wait_event(cuda_stream_of(cuda, lane), cuda->stream_event[lane]);
    if (failed) return cuda_failure(cuda, "wait for an event", failed, error);
    cuda->is_forked[lane] = cuda->is_capturing && lane != TANDEM_DEVICE_STREAM_COMPUTE;
    return TANDEM_OK;
}

static tandem_status cuda_event_sync(void *device, int k, tandem_error *error)
{
    const cuda_device *cuda = device;
    int failed = cuda->vendor->set_device(cuda->index);
    if (!failed) failed = cuda->vendor->event_sync(cuda->event[k]);
    return failed ? cuda_failure(cuda, "finish its work", failed, error) : TANDEM_OK;
}

static tandem_status cuda_elapsed_ns(int64_t *ns, void *device, int from, int to, tandem_error *error)
{
    const cuda_device *cuda = device;
    const int failed = cuda->vendor->elapsed_ns(ns, cuda->event[from], cuda->event[to]);
    return failed ? cuda_failure(cuda, "time its work", failed, error) : TANDEM_OK;
}

static tandem_status cuda_queue_copy(void *device, tandem_device_stream lane, void *to, const void *from,
                                     uint64_t bytes, tandem_error *error)
{
    const cuda_device *cuda = device;
    const int failed = cuda->vendor->copy(to, from, bytes, cuda_stream_of(cuda, lane));
    return failed ? cuda_failure(cuda, "copy", failed, error) : TANDEM_OK;
}

/* --- Graphs --------------------------------------------------------------------------------------------- */

static tandem_status probe_graph_events(cuda_device *cuda, tandem_error *error)
{
    const int failed =
        cuda->has_external_events ? 0 : cuda_probe_external_events(&cuda->has_external_events, cuda);
    if (failed) return cuda_failure(cuda, "probe graphs", failed, error);
    return cuda->has_external_events
               ? TANDEM_OK
               : tandem_error_set(error, TANDEM_NO_DEVICE,
                                  "cuda:%d: this driver cannot wait for an event in a graph", cuda->index);
}

static tandem_status cuda_graph_begin_capture(void *device, tandem_error *error)
{
    cuda_device *cuda = device;
    const tandem_status status = probe_graph_events(cuda, error);
    if (status != TANDEM_OK) return status;
    const int failed = cuda->vendor->capture_begin(cuda->stream);
    if (failed) return cuda_failure(cuda, "begin a graph", failed, error);
    cuda->is_capturing = 1;
    return TANDEM_OK;
}

/* Forked streams must join before the capture ends. */
static tandem_status join_forked_streams(cuda_device *cuda, tandem_error *error)
{
    tandem_status status = TANDEM_OK;
    for (int lane = TANDEM_DEVICE_STREAM_COMPUTE + 1; lane < TANDEM_N_DEVICE_STREAM && status == TANDEM_OK;
         lane++)
        if (cuda->is_forked[lane])
            status = cuda_stream_wait(cuda, TANDEM_DEVICE_STREAM_COMPUTE, (tandem_device_stream)lane, error);
    memset(cuda->is_forked, 0, sizeof cuda->is_forked);
    return status;
}

/* Ends the capture on an error too, so that streams run their work again. */
static tandem_status cuda_graph_end_capture(void *device, void **graph, tandem_error *error)
{
    cuda_device *cuda = device;
    tandem_cuda_graph made = NULL;
    tandem_status status = join_forked_streams(cuda, error);
    const int update_error = cuda->update_error, failed = cuda->vendor->capture_end(&made, cuda->stream);
    cuda->is_capturing = cuda->update_error = 0;
    if (status == TANDEM_OK && update_error)
        status = cuda_failure(cuda, "update weights", update_error, error);
    else if (status == TANDEM_OK && failed)
        status = cuda_failure(cuda, "build a graph", failed, error);
    if (status == TANDEM_OK)
        *graph = made;
    else if (made)
        cuda->vendor->graph_destroy(made);
    return status;
}

static tandem_status cuda_graph_launch(void *device, void *graph, tandem_error *error)
{
    const cuda_device *cuda = device;
    const int failed = cuda->vendor->graph_launch(graph, cuda->stream);
    return failed ? cuda_failure(cuda, "run a graph", failed, error) : TANDEM_OK;
}

static void cuda_graph_destroy(void *device, void *graph)
{
    const cuda_device *cuda = device;
    if (graph) cuda->vendor->graph_destroy(graph);
}

/* --- The table ------------------------------------------------------------------------------------------ */

static tandem_status cuda_open_device(void **device, const char *name, tandem_error *error)
{
    return tandem_cuda_open_with(device, name, &tandem_cuda_vendor, error);
}

static const char *cuda_libraries_text(void)
{
    static _Thread_local char text[CUDA_VERSIONS_TEXT];
    return tandem_cuda_vendor.versions(text, sizeof text) ? "CUDA" : text;
}

const tandem_device_backend tandem_cuda_backend = {
    .describe = cuda_describe_device,
    .open = cuda_open_device,
    .close = cuda_close_device,
    .prepare = cuda_prepare_kernel,
    .release = cuda_release_kernel,
    .run = cuda_run_kernel,
    .run_merged = cuda_run_merged_kernels,
    .load_algorithms = cuda_load_algorithms,
    .tuned_algorithms = cuda_tuned_algorithms,
    .update = cuda_update_weights,
    .version = cuda_libraries_text,
    .alloc = cuda_alloc,
    .free = cuda_free,
    .lock = cuda_lock_host_memory,
    .unlock = cuda_unlock_host_memory,
    .free_bytes = cuda_free_bytes,
    .unplanned_bytes = cuda_unplanned_bytes,
    .clocks = cuda_read_clocks,
    .copy = cuda_copy,
    .device_sync = cuda_device_sync,
    .queue_faults = cuda_queue_faults,
    .read_faults = cuda_read_faults,
    .events_create = cuda_reserve_events,
    .event_record = cuda_event_record,
    .stream_wait_stream = cuda_stream_wait,
    .event_sync = cuda_event_sync,
    .event_elapsed = cuda_elapsed_ns,
    .copy_async = cuda_queue_copy,
    .fill_noise = cuda_fill_noise,
    .fill_images = cuda_fill_images,
    .fill_labels = cuda_fill_labels,
    .batchnorm_update = cuda_update_running_stats,
    .graph_begin_capture = cuda_graph_begin_capture,
    .graph_end_capture = cuda_graph_end_capture,
    .graph_launch = cuda_graph_launch,
    .graph_destroy = cuda_graph_destroy,
};

/* The only exported function: the table, or NULL where api_version differs from the one that this was built
 * with. */
__attribute__((visibility("default"))) const tandem_device_backend *tandem_cuda_get(int api_version);
const tandem_device_backend *tandem_cuda_get(int api_version)
{
    return api_version == TANDEM_BACKEND_VERSION ? &tandem_cuda_backend : NULL;
}
