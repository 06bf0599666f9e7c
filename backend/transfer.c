#include "backend/transfer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/adamw.h"

/* Which mark is which. */
enum { BEGIN, INPUT, LABELS, BUCKETS };
enum { LEAVES, ARRIVED, BACK, WAITS, UPDATES, UPDATED, MARKS_OF_BUCKET };

static int of_bucket(int b, int which) { return BUCKETS + b * MARKS_OF_BUCKET + which; }
static int of_task(const tandem_executor *executor, int place)
{
    return BUCKETS + executor->step->n_bucket * MARKS_OF_BUCKET + place;
}

static const tandem_device_backend *backend_of(const tandem_executor *executor)
{
    return executor->worker->backend;
}

static tandem_status mark(const tandem_executor *executor, tandem_lane lane, int which, tandem_error *error)
{
    return backend_of(executor)->mark(executor->worker->device, lane, which, error);
}

/* --- Opening -------------------------------------------------------------------------------------------- */

static uint64_t input_bytes(const tandem_graph *graph)
{
    return (uint64_t)tandem_shape_elements(&graph->op[graph->input].shape) * 4; /* f32 and s32 alike */
}

static uint64_t label_bytes(const tandem_graph *graph)
{
    return (uint64_t)(graph->batch * graph->length) * sizeof(int32_t);
}

static int needs_gradients(const tandem_executor *executor)
{
    return tandem_executor_exchanges(executor) || tandem_gate_is_used(&executor->gate);
}

uint64_t tandem_transfer_staging_bytes(const tandem_executor *executor)
{
    const uint64_t gradients =
        needs_gradients(executor) ? (uint64_t)executor->step->n_flat * sizeof(float) : 0;
    return input_bytes(executor->graph) + label_bytes(executor->graph) + gradients;
}

static tandem_status take_staging(void **memory, tandem_executor *executor, uint64_t bytes,
                                  tandem_error *error)
{
    return tandem_worker_take(memory, executor->worker, TANDEM_STAGING, bytes, error);
}

/* One byte for 16 weights, since parameters begin at multiples of 16. */
static tandem_status take_decays(tandem_executor *executor, tandem_error *error)
{
    const tandem_graph *graph = executor->graph;
    const uint64_t bytes = (uint64_t)executor->step->n_flat / 16 + 1;
    void *memory = NULL, *view = NULL;
    tandem_status status = tandem_worker_take(&memory, executor->worker, TANDEM_ON_DEVICE, bytes, error);
    executor->decay_of = memory;
    if (status == TANDEM_OK) status = tandem_worker_view(&view, executor->worker, memory, bytes, 1, error);
    if (status != TANDEM_OK) return status;
    for (int p = 0; p < graph->n_parameter; p++) {
        const size_t first = (size_t)executor->step->parameter_start[p] / 16;
        memset((char *)view + first, executor->decays[p], (size_t)(graph->parameter[p].elements + 15) / 16);
    }
    return tandem_worker_end_view(executor->worker, view, memory, bytes, 1, error);
}

static tandem_status take_now(tandem_executor *executor, tandem_error *error)
{
    void *now = NULL, *staged = NULL;
    tandem_status status =
        tandem_worker_take(&now, executor->worker, TANDEM_ON_DEVICE, sizeof *executor->now, error);
    executor->now = now;
    if (status == TANDEM_OK) status = take_staging(&staged, executor, sizeof *executor->staged_now, error);
    executor->staged_now = staged;
    return status;
}

tandem_status tandem_transfer_open(tandem_executor *executor, int forward_only, tandem_error *error)
{
    const int n_mark = forward_only ? BUCKETS : of_task(executor, executor->n_active);
    void *input = NULL, *loss = NULL;
    tandem_status status = backend_of(executor)->marks(executor->worker->device, n_mark, error);
    if (status == TANDEM_OK) status = take_staging(&input, executor, input_bytes(executor->graph), error);
    executor->input = input;
    if (status != TANDEM_OK || forward_only) return status;
    status = take_staging(&loss, executor, (uint64_t)executor->step->options.n_micro * sizeof(float), error);
    executor->micro_loss = loss;
    if (status == TANDEM_OK) status = take_now(executor, error);
    if (status == TANDEM_OK && needs_gradients(executor))
        status = tandem_executor_take_gradients(&executor->host_gradient, executor, error);
    if (status == TANDEM_OK) status = take_decays(executor, error);
    return status;
}

void tandem_transfer_close(tandem_executor *executor)
{
    tandem_worker_give(executor->worker, TANDEM_STAGING, executor->input);
    tandem_worker_give(executor->worker, TANDEM_STAGING, executor->micro_loss);
    tandem_worker_give(executor->worker, TANDEM_ON_DEVICE, executor->now);
    tandem_worker_give(executor->worker, TANDEM_STAGING, executor->staged_now);
    tandem_worker_give(executor->worker, TANDEM_ON_DEVICE, executor->decay_of);
}

/* --- Batches -------------------------------------------------------------------------------------------- */

tandem_status tandem_transfer_await_input(const tandem_executor *executor, tandem_error *error)
{
    const tandem_status status = backend_of(executor)->reach(executor->worker->device, INPUT, error);
    return status == TANDEM_OK ? backend_of(executor)->reach(executor->worker->device, LABELS, error)
                               : status;
}

tandem_status tandem_transfer_bring(const tandem_executor *executor, int are_labels, void *to,
                                    const void *from, uint64_t bytes, tandem_error *error)
{
    const tandem_status status = tandem_worker_move(executor->worker, to, from, bytes, error);
    return status == TANDEM_OK ? mark(executor, TANDEM_LANE_COMPUTE, are_labels ? LABELS : INPUT, error)
                               : status;
}

/* --- Buckets -------------------------------------------------------------------------------------------- */

static tandem_status send_gradients(const tandem_executor *executor, int b, tandem_error *error)
{
    const tandem_device_backend *backend = backend_of(executor);
    void *device = executor->worker->device;
    const tandem_bucket *bucket = &executor->step->bucket[b];
    tandem_status status = backend->follow(device, TANDEM_LANE_DOWN, TANDEM_LANE_COMPUTE, error);
    if (status == TANDEM_OK) status = mark(executor, TANDEM_LANE_DOWN, of_bucket(b, LEAVES), error);
    if (status == TANDEM_OK)
        status = backend->queue_copy(device, TANDEM_LANE_DOWN, executor->host_gradient + bucket->start,
                                     executor->gradient + bucket->start,
                                     (uint64_t)bucket->elements * sizeof(float), error);
    if (status == TANDEM_OK) status = mark(executor, TANDEM_LANE_DOWN, of_bucket(b, ARRIVED), error);
    return status;
}

tandem_status tandem_transfer_send_bucket(const tandem_executor *executor, int b, int64_t pass,
                                          tandem_error *error)
{
    const int64_t n_micro = executor->step->options.n_micro, micro = pass % n_micro;
    tandem_status status = TANDEM_OK;
    if (b == 0) {
        const int id = tandem_value_activation(executor->step, executor->graph->loss, TANDEM_F32);
        status = tandem_worker_move(executor->worker, &executor->micro_loss[micro],
                                    executor->arena + executor->offset[id], sizeof(float), error);
    }
    if (status != TANDEM_OK || micro < n_micro - 1 || !executor->host_gradient) return status;
    status = send_gradients(executor, b, error);
    if (status == TANDEM_OK && executor->reducer && !executor->graphs.records)
        tandem_reducer_ready(executor->reducer, b);
    return status;
}

/* Of this rank: over the micro-steps, in their order. */
static float own_loss(const tandem_executor *executor)
{
    float sum = executor->micro_loss[0];
    for (int m = 1; m < executor->step->options.n_micro; m++) sum += executor->micro_loss[m];
    return sum;
}

/* Losses arrived before the first bucket did. */
tandem_status tandem_transfer_await_bucket(void *context, int b, tandem_error *error)
{
    const tandem_executor *executor = context;
    const tandem_status status =
        backend_of(executor)->reach(executor->worker->device, of_bucket(b, ARRIVED), error);
    if (status == TANDEM_OK && b == 0) *tandem_executor_loss_carrier(executor) = own_loss(executor);
    return status;
}

tandem_status tandem_transfer_begin_wait(const tandem_executor *executor, int b, tandem_error *error)
{
    const int is_set =
        b == 0 && executor->host_gradient && executor->graphs.replays && !executor->graphs.records;
    return is_set ? TANDEM_OK : mark(executor, TANDEM_LANE_COMPUTE, of_bucket(b, WAITS), error);
}

/* But for the spare element, so that on the device it stays 0, and the update changes nothing there. */
static tandem_status bring_gradients(const tandem_executor *executor, int b, tandem_error *error)
{
    const tandem_device_backend *backend = backend_of(executor);
    void *device = executor->worker->device;
    const tandem_bucket *bucket = &executor->step->bucket[b];
    tandem_status status = backend->queue_copy(device, TANDEM_LANE_UP, executor->gradient + bucket->start,
                                               executor->host_gradient + bucket->start,
                                               (uint64_t)(bucket->elements - 1) * sizeof(float), error);
    if (status == TANDEM_OK) status = mark(executor, TANDEM_LANE_UP, of_bucket(b, BACK), error);
    if (status == TANDEM_OK) status = backend->follow(device, TANDEM_LANE_COMPUTE, TANDEM_LANE_UP, error);
    return status;
}

/* All parameters of the bucket in one launch. A launch that fails is as silent as a gradient that is not
 * finite, until the device is asked at the end of the step. */
static void update_all(const tandem_executor *executor, int b, int64_t t)
{
    const tandem_bucket *bucket = &executor->step->bucket[b];
    float *const state[2] = {executor->state[0] + bucket->start,
                             executor->state[1] ? executor->state[1] + bucket->start : NULL};
    (void)backend_of(executor)->update(
        executor->worker->device, &executor->optimizer, 1, executor->decay_of + bucket->start / 16,
        executor->weight + bucket->start, state, executor->gradient + bucket->start, bucket->elements, t,
        executor->now->rates);
}

tandem_status tandem_transfer_update(const tandem_executor *executor, int b, int64_t t, tandem_error *error)
{
    tandem_status status = TANDEM_OK;
    if (executor->host_gradient && !executor->gate.skips) status = bring_gradients(executor, b, error);
    if (status == TANDEM_OK) status = mark(executor, TANDEM_LANE_COMPUTE, of_bucket(b, UPDATES), error);
    if (status == TANDEM_OK && !executor->gate.skips) update_all(executor, b, t);
    if (status == TANDEM_OK) status = mark(executor, TANDEM_LANE_COMPUTE, of_bucket(b, UPDATED), error);
    return status;
}

/* --- Times ---------------------------------------------------------------------------------------------- */

/* The last step has ended, so that what is written here was read. */
tandem_status tandem_transfer_begin_step(tandem_executor *executor, int64_t index, int64_t t,
                                         tandem_error *error)
{
    const tandem_optimizer_options *own = &executor->optimizer;
    const int64_t besides_ns = executor->times.step_ns - executor->busy_ns;
    executor->late_ns = executor->busy_ns > 0 && besides_ns > 0 ? besides_ns : 0;
    *executor->staged_now = (tandem_step_now){
        .pass = (uint32_t)(index * executor->step->options.n_micro),
        .index = (uint32_t)index,
        .loss_scale = executor->gate.scaling.scale,
        .rates = {own->rate, tandem_adamw_correction(own->beta1, t), tandem_adamw_correction(own->beta2, t)}};
    const tandem_status status = tandem_worker_move(executor->worker, executor->now, executor->staged_now,
                                                    sizeof *executor->now, error);
    return status == TANDEM_OK ? mark(executor, TANDEM_LANE_COMPUTE, BEGIN, error) : status;
}

tandem_status tandem_transfer_end_task(const tandem_executor *executor, int place, tandem_error *error)
{
    if (!executor->options.timed) return TANDEM_OK;
    return mark(executor, TANDEM_LANE_COMPUTE, of_task(executor, place), error);
}

/* Steps follow one another: what the last one took on the host's side, until the device had work again, is
 * counted as the begin of this one. */
static tandem_status when(int64_t *ns, const tandem_executor *executor, int which, tandem_error *error)
{
    int64_t since_begin_ns = 0;
    const tandem_status status =
        backend_of(executor)->elapsed(&since_begin_ns, executor->worker->device, BEGIN, which, error);
    if (status == TANDEM_OK) *ns = executor->late_ns + since_begin_ns;
    return status;
}

/* A task lasts from the end of the one before to its own: on a lane there is nothing between them. */
static tandem_status read_tasks(tandem_executor *executor, int micro, tandem_error *error)
{
    tandem_step_times *times = &executor->times;
    const size_t row = (size_t)micro * (size_t)executor->step->n_task;
    tandem_status status = TANDEM_OK;
    if (micro == 0) executor->timed_until_ns = 0;
    for (int k = 0; k < executor->n_active && status == TANDEM_OK; k++) {
        const int t = executor->active[k];
        const tandem_task_kind kind = executor->step->task[t].kind;
        if (kind == TANDEM_TASK_NORM || kind == TANDEM_TASK_UPDATE) break;
        if (kind == TANDEM_TASK_REDUCE) continue;
        times->all_start_ns[row + (size_t)t] = executor->timed_until_ns;
        status = when(&times->all_end_ns[row + (size_t)t], executor, of_task(executor, k), error);
        executor->timed_until_ns = times->all_end_ns[row + (size_t)t];
    }
    return status;
}

/* All-reduces, updates, and the norm before these. */
static int is_of_buckets(const tandem_task *task)
{
    return task->bucket >= 0 || task->kind == TANDEM_TASK_NORM;
}

/* The next micro-step sets its marks anew. */
tandem_status tandem_transfer_end_pass(tandem_executor *executor, int micro, tandem_error *error)
{
    if (!executor->options.timed || micro == executor->step->options.n_micro - 1) return TANDEM_OK;
    int last = executor->n_active - 1;
    while (is_of_buckets(&executor->step->task[executor->active[last]])) last--;
    const tandem_status status =
        backend_of(executor)->reach(executor->worker->device, of_task(executor, last), error);
    return status == TANDEM_OK ? read_tasks(executor, micro, error) : status;
}

/* An all-reduce lasts from when its bucket leaves, or the one before is back, until it is back. */
static tandem_status read_bucket(tandem_executor *executor, int b, tandem_error *error)
{
    const tandem_bucket *bucket = &executor->step->bucket[b];
    tandem_step_times *times = &executor->times;
    int64_t waits = 0, leaves = 0, *start = times->start_ns, *end = times->end_ns;
    tandem_status status = when(&waits, executor, of_bucket(b, WAITS), error);
    if (status == TANDEM_OK)
        status = when(&start[bucket->update_task], executor, of_bucket(b, UPDATES), error);
    if (status == TANDEM_OK) status = when(&end[bucket->update_task], executor, of_bucket(b, UPDATED), error);
    if (status != TANDEM_OK) return status;
    times->wait_ns[b] = start[bucket->update_task] - waits;
    if (!executor->reducer || executor->gate.skips) return TANDEM_OK;
    status = when(&leaves, executor, of_bucket(b, LEAVES), error);
    if (status == TANDEM_OK) status = when(&end[bucket->reduce_task], executor, of_bucket(b, BACK), error);
    const int64_t before = b > 0 ? end[executor->step->bucket[b - 1].reduce_task] : 0;
    start[bucket->reduce_task] = leaves > before ? leaves : before;
    return status;
}

static tandem_status read_buckets(tandem_executor *executor, tandem_error *error)
{
    tandem_status status = TANDEM_OK;
    for (int b = 0; b < executor->step->n_bucket && status == TANDEM_OK; b++)
        status = read_bucket(executor, b, error);
    return status;
}

tandem_status tandem_transfer_read_times(tandem_executor *executor, tandem_error *error)
{
    if (!executor->options.timed) return TANDEM_OK;
    tandem_status status = read_tasks(executor, executor->step->options.n_micro - 1, error);
    if (status == TANDEM_OK) status = read_buckets(executor, error);
    if (status == TANDEM_OK)
        status = backend_of(executor)->elapsed(&executor->busy_ns, executor->worker->device, BEGIN,
                                               of_bucket(executor->step->n_bucket - 1, UPDATED), error);
    return status;
}

/* --- The end of a step ---------------------------------------------------------------------------------- */

static int is_finite(const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(x[i])) return 0;
    return 1;
}

/* The first in backward order, as where the optimizer runs on the host. */
static tandem_status find_broken(tandem_executor *executor, tandem_error *error)
{
    for (int k = 0; k < executor->graph->n_parameter && executor->not_finite < 0; k++) {
        const int p = executor->step->parameter_order[k];
        const int64_t n = executor->graph->parameter[p].elements;
        float *gradient = executor->gradient + executor->step->parameter_start[p];
        const uint64_t bytes = (uint64_t)n * sizeof *gradient;
        void *view = NULL;
        const tandem_status status = tandem_worker_view(&view, executor->worker, gradient, bytes, 1, error);
        if (status != TANDEM_OK) return status;
        if (!is_finite(view, n)) executor->not_finite = p;
        (void)tandem_worker_end_view(executor->worker, view, gradient, bytes, 0, NULL);
    }
    return TANDEM_OK;
}

tandem_status tandem_transfer_end_step(tandem_executor *executor, float *loss, tandem_error *error)
{
    int all_finite = 1;
    tandem_status status = backend_of(executor)->settle(executor->worker->device, &all_finite, error);
    if (status == TANDEM_OK && !all_finite && !executor->options.allow_nan)
        status = find_broken(executor, error);
    if (status == TANDEM_OK && !executor->options.timed) status = read_buckets(executor, error);
    if (status == TANDEM_OK)
        *loss = executor->reducer ? *tandem_executor_loss_carrier(executor) : own_loss(executor);
    return status;
}
