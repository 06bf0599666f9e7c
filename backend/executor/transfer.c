/* transfer.c: copies between host and device memory, and times of tasks and buckets from events. */
#include "backend/executor/transfer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/executor/adamw.h"

/* Numbers of the events: those of the step, then of each bucket, then of each active task, then of each
 * micro-step. */
enum { EVENT_BEGIN, EVENT_INPUT, EVENT_LABELS, EVENT_SLOT, EVENT_RESULTS = EVENT_SLOT + 2, EVENT_BUCKETS };
enum { D2H_BEGIN, D2H_END, H2D_END, WAIT_BEGIN, UPDATE_BEGIN, UPDATE_END, EVENTS_PER_BUCKET };

static int bucket_event(int b, int event) { return EVENT_BUCKETS + b * EVENTS_PER_BUCKET + event; }
static int task_event(const tandem_executor *executor, int position)
{
    return EVENT_BUCKETS + executor->step->n_bucket * EVENTS_PER_BUCKET + position;
}

/* A micro-step has taken its input (its labels) from the slot. */
static int taken_event(const tandem_executor *executor, int micro, int are_labels)
{
    return task_event(executor, executor->n_active) + 2 * micro + are_labels;
}

static const tandem_device_backend *backend_of(const tandem_executor *executor)
{
    return executor->worker->backend;
}

static tandem_status record_event(const tandem_executor *executor, tandem_device_stream stream, int event,
                                  tandem_error *error)
{
    return backend_of(executor)->event_record(executor->worker->device, stream, event, error);
}

static tandem_status record_compute(const tandem_executor *executor, int event, tandem_error *error)
{
    return record_event(executor, TANDEM_DEVICE_STREAM_COMPUTE, event, error);
}

static tandem_status sync_event(const tandem_executor *executor, int event, tandem_error *error)
{
    return backend_of(executor)->event_sync(executor->worker->device, event, error);
}

/* --- Opening -------------------------------------------------------------------------------------------- */

static uint64_t batch_input_bytes(const tandem_graph *graph)
{
    return (uint64_t)tandem_shape_elements(&graph->op[graph->input].shape) * 4; /* f32 or s32 */
}

static uint64_t batch_label_bytes(const tandem_graph *graph)
{
    return (uint64_t)(graph->batch * graph->length) * sizeof(int32_t);
}

static int needs_host_gradients(const tandem_executor *executor)
{
    return tandem_executor_has_all_reduce(executor) || tandem_grad_scaler_is_used(&executor->grad_scaler);
}

/* Whether nothing that the host does within a step, or before the next one, depends on what the device found.
 * A dynamic loss scale, a clipped norm and an all-reduce do: the host has all gradients then, before the
 * update. */
static int may_be_late(const tandem_executor *executor)
{
    const char *const asked = getenv("TANDEM_LATE");
    return executor->options.late_results && !needs_host_gradients(executor) &&
           !executor->options.with_task_times && !(asked && strcmp(asked, "0") == 0);
}

uint64_t tandem_transfer_staging_bytes(const tandem_executor *executor)
{
    const uint64_t gradients = needs_host_gradients(executor) ? tandem_executor_flat_bytes(executor) : 0;
    const uint64_t input = tandem_executor_sends_images(executor) ? 0 : batch_input_bytes(executor->graph);
    return input + batch_label_bytes(executor->graph) + gradients;
}

/* Whether each weight decays: one byte for 16 of them, because parameters begin at multiples of 16. */
static tandem_status fill_decay_mask(const tandem_executor *executor, uint64_t bytes, tandem_error *error)
{
    const tandem_graph *graph = executor->graph;
    void *view = NULL;
    const tandem_status status =
        tandem_worker_view(&view, executor->worker, executor->decay_mask, bytes, 1, error);
    if (status != TANDEM_OK) return status;
    for (int p = 0; p < graph->n_parameter; p++)
        memset((char *)view + executor->step->parameter_start[p] / 16, executor->has_weight_decay[p],
               (size_t)(graph->parameter[p].elements + 15) / 16);
    return tandem_worker_end_view(executor->worker, view, executor->decay_mask, bytes, 1, error);
}

tandem_status tandem_transfer_open(tandem_executor *executor, int forward_only, tandem_error *error)
{
    const int n_event =
        forward_only ? EVENT_BUCKETS : taken_event(executor, executor->step->options.n_micro, 0);
    const uint64_t loss_bytes = (uint64_t)executor->step->options.n_micro * sizeof(float);
    const uint64_t mask_bytes = (uint64_t)executor->step->n_flat / 16 + 1;
    tandem_status status = backend_of(executor)->events_create(executor->worker->device, n_event, error);
    if (!tandem_executor_sends_images(executor))
        executor->input = tandem_executor_alloc(executor, TANDEM_STAGING_MEMORY,
                                                batch_input_bytes(executor->graph), &status, error);
    if (status != TANDEM_OK || forward_only) return status;
    executor->late.is_enabled = may_be_late(executor);
    executor->micro_loss = tandem_executor_alloc(
        executor, executor->late.is_enabled ? TANDEM_DEVICE_MEMORY : TANDEM_STAGING_MEMORY, loss_bytes,
        &status, error);
    if (executor->late.is_enabled)
        executor->late.staged = tandem_executor_alloc(executor, TANDEM_STAGING_MEMORY,
                                                      TANDEM_FAULT_BYTES + loss_bytes, &status, error);
    executor->step_args =
        tandem_executor_alloc(executor, TANDEM_DEVICE_MEMORY, sizeof *executor->step_args, &status, error);
    executor->staged_step_args = tandem_executor_alloc(
        executor, TANDEM_STAGING_MEMORY, 2 * sizeof *executor->staged_step_args, &status, error);
    if (needs_host_gradients(executor))
        executor->host_gradient = tandem_executor_alloc_shared(executor, &status, error);
    executor->decay_mask = tandem_executor_alloc(executor, TANDEM_DEVICE_MEMORY, mask_bytes, &status, error);
    return status == TANDEM_OK ? fill_decay_mask(executor, mask_bytes, error) : status;
}

/* --- Batches -------------------------------------------------------------------------------------------- */

tandem_status tandem_transfer_wait_input(const tandem_executor *executor, tandem_error *error)
{
    const tandem_status status = sync_event(executor, EVENT_INPUT, error);
    return status == TANDEM_OK ? sync_event(executor, EVENT_LABELS, error) : status;
}

tandem_status tandem_transfer_copy_to_device(const tandem_executor *executor, int are_labels, void *to,
                                             const void *from, uint64_t bytes, tandem_error *error)
{
    const tandem_status status = tandem_worker_copy_async(executor->worker, to, from, bytes, error);
    return status == TANDEM_OK ? record_compute(executor, are_labels ? EVENT_LABELS : EVENT_INPUT, error)
                               : status;
}

tandem_status tandem_transfer_wait_copy_of_slot(const tandem_executor *executor, int slot,
                                                tandem_error *error)
{
    return sync_event(executor, EVENT_SLOT + slot, error);
}

/* With one micro-step a step the slot's last one belongs to a step that has ended. */
tandem_status tandem_transfer_wait_slot(const tandem_executor *executor, int64_t micro_index,
                                        tandem_error *error)
{
    const int n_micro = executor->step->options.n_micro,
              before = (int)((micro_index + n_micro * 2 - 2) % n_micro);
    tandem_status status = tandem_transfer_wait_copy_of_slot(executor, (int)(micro_index % 2), error);
    for (int k = 0; k < 2 && n_micro > 1 && status == TANDEM_OK; k++)
        status = sync_event(executor, taken_event(executor, before, k), error);
    return status;
}

tandem_status tandem_transfer_send_slot(const tandem_executor *executor, int slot, void *to, const void *from,
                                        uint64_t bytes, tandem_error *error)
{
    const tandem_status status = backend_of(executor)->copy_async(
        executor->worker->device, TANDEM_DEVICE_STREAM_INPUT, to, from, bytes, error);
    return status == TANDEM_OK ? record_event(executor, TANDEM_DEVICE_STREAM_INPUT, EVENT_SLOT + slot, error)
                               : status;
}

tandem_status tandem_transfer_join_input(const tandem_executor *executor, tandem_error *error)
{
    return backend_of(executor)->stream_wait_stream(executor->worker->device, TANDEM_DEVICE_STREAM_COMPUTE,
                                                    TANDEM_DEVICE_STREAM_INPUT, error);
}

tandem_status tandem_transfer_take_slot(const tandem_executor *executor, int micro, int are_labels,
                                        tandem_error *error)
{
    return record_compute(executor, taken_event(executor, micro, are_labels), error);
}

/* --- Buckets -------------------------------------------------------------------------------------------- */

static tandem_status copy_gradients_to_host(const tandem_executor *executor, int b, tandem_error *error)
{
    const tandem_device_backend *backend = backend_of(executor);
    void *device = executor->worker->device;
    const tandem_bucket *bucket = &executor->step->bucket[b];
    tandem_status status =
        backend->stream_wait_stream(device, TANDEM_DEVICE_STREAM_D2H, TANDEM_DEVICE_STREAM_COMPUTE, error);
    if (status == TANDEM_OK)
        status = record_event(executor, TANDEM_DEVICE_STREAM_D2H, bucket_event(b, D2H_BEGIN), error);
    if (status == TANDEM_OK)
        status = backend->copy_async(
            device, TANDEM_DEVICE_STREAM_D2H, executor->host_gradient + bucket->start,
            executor->gradient + bucket->start, (uint64_t)bucket->elements * sizeof(float), error);
    if (status == TANDEM_OK)
        status = record_event(executor, TANDEM_DEVICE_STREAM_D2H, bucket_event(b, D2H_END), error);
    return status;
}

/* The loss is copied here, on the compute stream: the first bucket's task is its last reader, so after it the
 * arena may hold another value in its place. With several ranks it must leave before that bucket, too. */
tandem_status tandem_transfer_send_bucket(const tandem_executor *executor, int b, int64_t micro_index,
                                          tandem_error *error)
{
    const int64_t n_micro = executor->step->options.n_micro, micro = micro_index % n_micro;
    tandem_status status = TANDEM_OK;
    if (b == 0) {
        const int id = tandem_value_activation(executor->step, executor->graph->loss, TANDEM_F32);
        status = tandem_worker_copy_async(executor->worker, &executor->micro_loss[micro],
                                          executor->arena + executor->offset[id], sizeof(float), error);
    }
    if (status != TANDEM_OK || micro < n_micro - 1 || !executor->host_gradient) return status;
    status = copy_gradients_to_host(executor, b, error);
    if (status == TANDEM_OK && executor->reducer && !executor->graphs.is_capturing)
        tandem_reducer_ready(executor->reducer, b);
    return status;
}

/* This rank's loss: the sum over its micro-steps, in order. */
static float sum_micro_losses(const tandem_executor *executor, const float *micro_loss)
{
    float sum = micro_loss[0];
    for (int m = 1; m < executor->step->options.n_micro; m++) sum += micro_loss[m];
    return sum;
}

/* Losses reach the host before the first bucket does. */
tandem_status tandem_transfer_wait_bucket(void *context, int b, tandem_error *error)
{
    const tandem_executor *executor = context;
    const tandem_status status = sync_event(executor, bucket_event(b, D2H_END), error);
    if (status == TANDEM_OK && b == 0)
        *tandem_executor_loss_slot(executor) = sum_micro_losses(executor, executor->micro_loss);
    return status;
}

tandem_status tandem_transfer_record_wait(const tandem_executor *executor, int b, tandem_error *error)
{
    const int is_recorded =
        b == 0 && executor->host_gradient && executor->graphs.was_launched && !executor->graphs.is_capturing;
    return is_recorded ? TANDEM_OK : record_compute(executor, bucket_event(b, WAIT_BEGIN), error);
}

/* Leaves out the spare element, which stays 0 on the device, so that the update does not change it. */
static tandem_status copy_gradients_to_device(const tandem_executor *executor, int b, tandem_error *error)
{
    const tandem_device_backend *backend = backend_of(executor);
    void *device = executor->worker->device;
    const tandem_bucket *bucket = &executor->step->bucket[b];
    tandem_status status = backend->copy_async(
        device, TANDEM_DEVICE_STREAM_H2D, executor->gradient + bucket->start,
        executor->host_gradient + bucket->start, (uint64_t)(bucket->elements - 1) * sizeof(float), error);
    if (status == TANDEM_OK)
        status = record_event(executor, TANDEM_DEVICE_STREAM_H2D, bucket_event(b, H2D_END), error);
    if (status == TANDEM_OK)
        status = backend->stream_wait_stream(device, TANDEM_DEVICE_STREAM_COMPUTE, TANDEM_DEVICE_STREAM_H2D,
                                             error);
    return status;
}

/* Updates all parameters of n buckets, which lie one after the other, in one launch. The device reports a
 * failed launch, as it does a gradient that is not finite, at the end of the step. */
static void launch_update(const tandem_executor *executor, int b, int n, int64_t t)
{
    const tandem_bucket *bucket = &executor->step->bucket[b], *last = bucket + n - 1;
    const int64_t elements = last->start + last->elements - bucket->start;
    float *const state[2] = {executor->state[0] + bucket->start,
                             executor->state[1] ? executor->state[1] + bucket->start : NULL};
    (void)backend_of(executor)->update(
        executor->worker->device, &executor->optimizer, 1, executor->decay_mask + bucket->start / 16,
        executor->weight + bucket->start, state, executor->gradient + bucket->start, elements, t,
        executor->step_args->rates);
}

tandem_status tandem_transfer_update_bucket(const tandem_executor *executor, int b, int64_t t,
                                            tandem_error *error)
{
    tandem_status status = TANDEM_OK;
    if (executor->host_gradient && !executor->grad_scaler.skip_step)
        status = copy_gradients_to_device(executor, b, error);
    if (status == TANDEM_OK) status = record_compute(executor, bucket_event(b, UPDATE_BEGIN), error);
    if (status == TANDEM_OK && !executor->grad_scaler.skip_step) launch_update(executor, b, 1, t);
    if (status == TANDEM_OK) status = record_compute(executor, bucket_event(b, UPDATE_END), error);
    return status;
}

tandem_status tandem_transfer_update_buckets(const tandem_executor *executor, int b, int n, int64_t t,
                                             tandem_error *error)
{
    tandem_status status = record_compute(executor, bucket_event(b, WAIT_BEGIN), error);
    if (status == TANDEM_OK) status = record_compute(executor, bucket_event(b, UPDATE_BEGIN), error);
    if (status == TANDEM_OK) launch_update(executor, b, n, t);
    return status == TANDEM_OK ? record_compute(executor, bucket_event(b + n - 1, UPDATE_END), error)
                               : status;
}

/* --- Times ---------------------------------------------------------------------------------------------- */

/* The step before the last has ended, so the device has read what is staged here. */
tandem_status tandem_transfer_begin_step(tandem_executor *executor, int64_t index, int64_t t,
                                         tandem_error *error)
{
    const tandem_optimizer_options *own = &executor->optimizer;
    const int64_t overhead_ns = executor->times.step_ns - executor->busy_ns;
    executor->host_overhead_ns = executor->busy_ns > 0 && overhead_ns > 0 ? overhead_ns : 0;
    tandem_step_args *const staged = &executor->staged_step_args[executor->graphs.n_step % 2];
    *staged = (tandem_step_args){
        .micro_index = (uint32_t)(index * executor->step->options.n_micro),
        .step_index = (uint32_t)index,
        .loss_scale = executor->grad_scaler.loss_scale.scale,
        .rates = {own->rate, tandem_adamw_correction(own->beta1, t), tandem_adamw_correction(own->beta2, t)}};
    const tandem_status status =
        tandem_worker_copy_async(executor->worker, executor->step_args, staged, sizeof *staged, error);
    return status == TANDEM_OK ? record_compute(executor, EVENT_BEGIN, error) : status;
}

tandem_status tandem_transfer_end_task(const tandem_executor *executor, int position, tandem_error *error)
{
    if (!executor->options.with_task_times) return TANDEM_OK;
    return record_compute(executor, task_event(executor, position), error);
}

/* Consecutive steps overlap no work, so the host's overhead of the last step counts as the begin of this one.
 * */
static tandem_status event_time_ns(int64_t *ns, const tandem_executor *executor, int event,
                                   tandem_error *error)
{
    int64_t since_begin_ns = 0;
    const tandem_status status = backend_of(executor)->event_elapsed(
        &since_begin_ns, executor->worker->device, EVENT_BEGIN, event, error);
    if (status == TANDEM_OK) *ns = executor->host_overhead_ns + since_begin_ns;
    return status;
}

static int is_operand(const tandem_task *task, int v)
{
    for (int k = 0; k < task->n_read; k++)
        if (task->read[k] == v) return 1;
    for (int k = 0; k < task->n_write; k++)
        if (task->write[k] == v) return 1;
    return 0;
}

/* What the operands of number k + i take, without those of the tasks before it in the launch, which begins
 * with number k: bandwidth bounds all tasks that are merged, but for products, which are alike. */
static uint64_t merged_task_bytes(const tandem_executor *executor, int k, int i)
{
    const tandem_step *step = executor->step;
    const tandem_task *task = &step->task[executor->active[k + i]];
    uint64_t bytes = 0;
    if (task->op >= 0 && task->kind != TANDEM_TASK_WEIGHT_CAST &&
        tandem_op_is_adjustable(&step->graph->op[task->op]))
        return 1;
    for (int r = 0; r < task->n_read + task->n_write; r++) {
        const int v = r < task->n_read ? task->read[r] : task->write[r - task->n_read];
        int is_counted = 0;
        for (int p = 0; p < i && task->kind != TANDEM_TASK_WEIGHT_CAST && !is_counted; p++)
            is_counted = is_operand(&step->task[executor->active[k + p]], v);
        if (is_counted) continue;
        bytes += v >= 0 ? step->value[v].bytes
                        : (uint64_t)step->graph->parameter[TANDEM_PARAMETER(v)].elements * sizeof(float);
    }
    return bytes;
}

/* Divides the time of one launch among its n tasks, from number k on, by their bytes. */
static void divide_time(tandem_executor *executor, int k, int n, size_t row, int64_t start_ns, int64_t end_ns)
{
    double all = 0, so_far = 0;
    int64_t before_ns = start_ns;
    for (int i = 0; i < n && n > 1; i++) all += (double)merged_task_bytes(executor, k, i);
    for (int i = 0; i < n; i++) {
        const size_t at = row + (size_t)executor->active[k + i];
        executor->times.all_start_ns[at] = before_ns;
        if (i < n - 1) {
            so_far += (double)merged_task_bytes(executor, k, i);
            before_ns = start_ns + (int64_t)((double)(end_ns - start_ns) * so_far / all);
        } else {
            before_ns = end_ns;
        }
        executor->times.all_end_ns[at] = before_ns;
    }
}

/* A task lasts from the end of the task before it to its own end, because its stream is never idle in
 * between. */
static tandem_status read_task_times(tandem_executor *executor, int micro, tandem_error *error)
{
    const size_t row = (size_t)micro * (size_t)executor->step->n_task;
    tandem_status status = TANDEM_OK;
    if (micro == 0) executor->timed_until_ns = 0;
    for (int k = 0, n; k < executor->n_active && status == TANDEM_OK; k += n) {
        const tandem_task_kind kind = executor->step->task[executor->active[k]].kind;
        if (kind == TANDEM_TASK_NORM || kind == TANDEM_TASK_UPDATE) break;
        n = tandem_executor_merged(executor, k);
        if (kind == TANDEM_TASK_REDUCE) continue;
        int64_t end_ns = 0;
        status = event_time_ns(&end_ns, executor, task_event(executor, k + n - 1), error);
        if (status == TANDEM_OK) divide_time(executor, k, n, row, executor->timed_until_ns, end_ns);
        executor->timed_until_ns = end_ns;
    }
    return status;
}

/* The next micro-step records its events again. */
tandem_status tandem_transfer_end_micro_step(tandem_executor *executor, int micro, tandem_error *error)
{
    if (!executor->options.with_task_times || micro == executor->step->options.n_micro - 1) return TANDEM_OK;
    int last = executor->n_backward - 1;
    while (executor->step->task[executor->active[last]].kind == TANDEM_TASK_REDUCE) last--;
    const tandem_status status = sync_event(executor, task_event(executor, last), error);
    return status == TANDEM_OK ? read_task_times(executor, micro, error) : status;
}

/* An all-reduce lasts from when its bucket leaves, or the bucket before is back, until it is back. */
static tandem_status read_bucket_times(tandem_executor *executor, int b, tandem_error *error)
{
    const tandem_bucket *bucket = &executor->step->bucket[b];
    tandem_step_times *times = &executor->times;
    int64_t wait_begin_ns = 0, d2h_begin_ns = 0, *start = times->start_ns, *end = times->end_ns;
    tandem_status status = event_time_ns(&wait_begin_ns, executor, bucket_event(b, WAIT_BEGIN), error);
    if (status == TANDEM_OK)
        status = event_time_ns(&start[bucket->update_task], executor, bucket_event(b, UPDATE_BEGIN), error);
    if (status == TANDEM_OK)
        status = event_time_ns(&end[bucket->update_task], executor, bucket_event(b, UPDATE_END), error);
    if (status != TANDEM_OK) return status;
    times->wait_ns[b] = start[bucket->update_task] - wait_begin_ns;
    if (!executor->reducer || executor->grad_scaler.skip_step) return TANDEM_OK;
    status = event_time_ns(&d2h_begin_ns, executor, bucket_event(b, D2H_BEGIN), error);
    if (status == TANDEM_OK)
        status = event_time_ns(&end[bucket->reduce_task], executor, bucket_event(b, H2D_END), error);
    const int64_t before = b > 0 ? end[executor->step->bucket[b - 1].reduce_task] : 0;
    start[bucket->reduce_task] = d2h_begin_ns > before ? d2h_begin_ns : before;
    return status;
}

/* Divides the time of one launch that updates n buckets among them, by their elements. */
static tandem_status read_merged_bucket_times(tandem_executor *executor, int b, int n, tandem_error *error)
{
    const tandem_bucket *bucket = &executor->step->bucket[b];
    tandem_step_times *times = &executor->times;
    const double all = (double)(bucket[n - 1].start + bucket[n - 1].elements - bucket->start);
    int64_t start_ns = 0, end_ns = 0;
    tandem_status status = event_time_ns(&start_ns, executor, bucket_event(b, UPDATE_BEGIN), error);
    if (status == TANDEM_OK)
        status = event_time_ns(&end_ns, executor, bucket_event(b + n - 1, UPDATE_END), error);
    for (int i = 0; i < n; i++) {
        const double from = (double)(bucket[i].start - bucket->start), to = from + (double)bucket[i].elements;
        times->start_ns[bucket[i].update_task] =
            start_ns + (int64_t)((double)(end_ns - start_ns) * from / all);
        times->end_ns[bucket[i].update_task] = start_ns + (int64_t)((double)(end_ns - start_ns) * to / all);
        times->wait_ns[b + i] = 0;
    }
    return status;
}

static tandem_status read_all_bucket_times(tandem_executor *executor, tandem_error *error)
{
    tandem_status status = TANDEM_OK;
    for (int b = 0, n; b < executor->step->n_bucket && status == TANDEM_OK; b += n) {
        n = executor->host_gradient ? 1 : tandem_executor_merged(executor, executor->n_backward + b);
        status =
            n > 1 ? read_merged_bucket_times(executor, b, n, error) : read_bucket_times(executor, b, error);
    }
    return status;
}

tandem_status tandem_transfer_read_times(tandem_executor *executor, tandem_error *error)
{
    if (!executor->options.with_task_times) return TANDEM_OK;
    tandem_status status = read_task_times(executor, executor->step->options.n_micro - 1, error);
    if (status == TANDEM_OK) status = read_all_bucket_times(executor, error);
    if (status == TANDEM_OK)
        status = backend_of(executor)->event_elapsed(
            &executor->busy_ns, executor->worker->device, EVENT_BEGIN,
            bucket_event(executor->step->n_bucket - 1, UPDATE_END), error);
    return status;
}

/* --- The end of a step ---------------------------------------------------------------------------------- */

static int are_all_finite(const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(x[i])) return 0;
    return 1;
}

/* Finds the first one in backward order, as an optimizer on the host does. */
static tandem_status find_nonfinite_parameter(tandem_executor *executor, tandem_error *error)
{
    for (int k = 0; k < executor->graph->n_parameter && executor->nonfinite_parameter < 0; k++) {
        const int p = executor->step->parameter_order[k];
        const int64_t n = executor->graph->parameter[p].elements;
        float *gradient = executor->gradient + executor->step->parameter_start[p];
        const uint64_t bytes = (uint64_t)n * sizeof *gradient;
        void *view = NULL;
        const tandem_status status = tandem_worker_view(&view, executor->worker, gradient, bytes, 1, error);
        if (status != TANDEM_OK) return status;
        if (!are_all_finite(view, n)) executor->nonfinite_parameter = p;
        (void)tandem_worker_end_view(executor->worker, view, gradient, bytes, 0, NULL);
    }
    return TANDEM_OK;
}

tandem_status tandem_transfer_end_step(tandem_executor *executor, float *loss, tandem_error *error)
{
    int all_finite = 1;
    tandem_status status = backend_of(executor)->device_sync(executor->worker->device, &all_finite, error);
    if (status == TANDEM_OK && !all_finite && !executor->options.allow_nan)
        status = find_nonfinite_parameter(executor, error);
    if (status == TANDEM_OK && !executor->options.with_task_times)
        status = read_all_bucket_times(executor, error);
    if (status == TANDEM_OK)
        *loss = executor->reducer ? *tandem_executor_loss_slot(executor)
                                  : sum_micro_losses(executor, executor->micro_loss);
    return status;
}

/* --- Late results --------------------------------------------------------------------------------------- */

int tandem_transfer_updates_at_once(const tandem_executor *executor)
{
    return tandem_executor_merged(executor, executor->n_backward) == executor->step->n_bucket;
}

tandem_status tandem_transfer_queue_results(const tandem_executor *executor, tandem_error *error)
{
    unsigned char *const staged = executor->late.staged;
    tandem_status status = tandem_worker_copy_async(
        executor->worker, staged + TANDEM_FAULT_BYTES, executor->micro_loss,
        (uint64_t)executor->step->options.n_micro * sizeof *executor->micro_loss, error);
    if (status == TANDEM_OK)
        status = backend_of(executor)->queue_faults(executor->worker->device, staged, error);
    return status == TANDEM_OK ? record_compute(executor, EVENT_RESULTS, error) : status;
}

/* The parameter that has the 16 elements of this number, of all flat arrays. */
static int parameter_of_group(const tandem_executor *executor, int64_t group)
{
    const tandem_step *step = executor->step;
    int k = executor->graph->n_parameter - 1;
    while (k > 0 && step->parameter_start[step->parameter_order[k]] > group * 16) k--;
    return step->parameter_order[k];
}

tandem_status tandem_transfer_read_results(tandem_executor *executor, float *loss, tandem_error *error)
{
    const unsigned char *const staged = executor->late.staged;
    int64_t nonfinite = -1;
    tandem_status status = sync_event(executor, EVENT_RESULTS, error);
    if (status == TANDEM_OK) status = backend_of(executor)->read_faults(&nonfinite, staged, error);
    if (status != TANDEM_OK) return status;
    if (nonfinite >= 0 && !executor->options.allow_nan) {
        if (!tandem_transfer_updates_at_once(executor)) /* and nothing has run after it */
            status = find_nonfinite_parameter(executor, error);
        else
            executor->nonfinite_parameter = parameter_of_group(executor, nonfinite);
    }
    *loss = sum_micro_losses(executor, (const float *)(const void *)(staged + TANDEM_FAULT_BYTES));
    return status;
}
