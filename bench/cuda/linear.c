/* linear.c: a linear layer's tasks of a training step, prepared and run by the backend as the executor would.
 * */
#include <stdlib.h>
#include <string.h>

#include "bench/cuda/gpu_bench.h"
#include "graph/ir/build.h"
#include "tandem/amax_history.h"

enum { MAX_TASKS = 16, WINDOW = 16 };

/* One layer between two others; of those nothing runs. */
typedef struct bench_layer {
    gpu_bench *c;
    tandem_graph *graph;
    tandem_step *step;
    int before, op;
    int n_task;
    struct {
        int id;
        int is_cast;
        tandem_kernel *kernel;
        tandem_kernel_call call;
    } task[MAX_TASKS];
    void **value;    /* [n_value] */
    float *scale;    /* [n_value] on the card */
    void *parameter; /* of the layer, f32, and its gradient */
    void *gradient;
    int only_casts, only_forward; /* of what `run` runs */
} bench_layer;

/* samples (tokens, in) → before (in) → op (out) → after (few) → loss */
static tandem_status build_bench_layer(bench_layer *l, int64_t tokens, int64_t in, int64_t out,
                                       tandem_error *error)
{
    enum { CLASSES = 16 };
    tandem_builder *b = NULL;
    tandem_status status = tandem_builder_open(&b, tokens, error);
    if (status != TANDEM_OK) return status;
    const int64_t shape[2] = {tokens, in};
    const int x = tandem_build_reshape(b, "x", tandem_build_images(b, "samples", 1, 1, in), 2, shape);
    l->before = tandem_build_linear(b, "before", x, in, 0.02f);
    l->op = tandem_build_linear(b, "layer", l->before, out, 0.02f);
    const int logits = tandem_build_linear(b, "after", l->op, CLASSES, 0.02f);
    tandem_build_cross_entropy(b, "loss", logits, tandem_build_labels(b, "labels", 1));
    const tandem_optimizer_options sgd = {.kind = TANDEM_SGD};
    status = tandem_builder_finish(b, "layer", &sgd, &l->graph, error);
    tandem_builder_close(b);
    return status;
}

static tandem_status set_layer_precisions(bench_layer *l, const char *name, int is_delayed,
                                          tandem_error *error)
{
    tandem_precision precision = TANDEM_PRECISION_FP32;
    tandem_status status = tandem_precision_find(&precision, name, error);
    const tandem_step_options options = {
        .transposed_copy = 1, .narrow_rows = 1, .scaling.window = is_delayed ? WINDOW : 0};
    if (status == TANDEM_OK)
        status = tandem_step_open_with(&l->step, l->graph, TANDEM_BF16, 0, &options, error);
    if (status != TANDEM_OK) return status;
    for (int o = 0; o < l->graph->n_op; o++)
        if (l->graph->op[o].kind == TANDEM_OP_LINEAR)
            tandem_step_set(l->step, o, o == l->op ? precision : TANDEM_PRECISION_BF16);
    tandem_step_resolve(l->step);
    return TANDEM_OK;
}

/* Whether the step has this task for the layer's sake. */
static int is_layer_task(const bench_layer *l, const tandem_task *task)
{
    switch (task->kind) {
    case TANDEM_TASK_WEIGHT_CAST:
    case TANDEM_TASK_FORWARD:
    case TANDEM_TASK_WGRAD:
    case TANDEM_TASK_DGRAD:
    case TANDEM_TASK_SAVED_CAST: return task->op == l->op;
    case TANDEM_TASK_CAST:
    case TANDEM_TASK_GRADIENT_CAST: return task->op == l->op || task->op == l->before;
    default: return 0;
    }
}

static int is_cast_task(tandem_task_kind kind)
{
    return kind != TANDEM_TASK_FORWARD && kind != TANDEM_TASK_WGRAD && kind != TANDEM_TASK_DGRAD;
}

/* --- Memory --------------------------------------------------------------------------------------------- */

/* Where a value lies: taken and filled with numbers when it is first asked for. */
static tandem_status bench_value_memory(bench_layer *l, int id, void **at, tandem_error *error)
{
    const tandem_value *value = &l->step->value[id];
    tandem_status status = TANDEM_OK;
    if (!l->value[id]) {
        status = gpu_alloc(&l->value[id], l->c, value->bytes, error);
        if (status == TANDEM_OK)
            status = gpu_fill(l->c, l->value[id], value->dtype,
                              value->bytes / tandem_dtype_bytes(value->dtype), 0, 1, error);
    }
    *at = l->value[id];
    return status;
}

static float *bench_value_scale(const bench_layer *l, int id)
{
    const int has_scale = tandem_dtype_bytes(l->step->value[id].dtype) == 1;
    return has_scale ? l->scale + tandem_value_untransposed(l->step, id) : NULL;
}

/* As after one cast of numbers below 1. */
static tandem_status open_bench_history(tandem_amax_history **on_device, bench_layer *l, tandem_error *error)
{
    tandem_amax_history history;
    void *memory = NULL;
    tandem_status status = tandem_amax_history_init(&history, WINDOW, 0, error);
    if (status == TANDEM_OK) status = tandem_amax_history_add(&history, 1, error);
    if (status == TANDEM_OK) status = gpu_alloc(&memory, l->c, sizeof history, error);
    if (status == TANDEM_OK)
        status = tandem_cuda_backend.copy((void *)(uintptr_t)l->c->device, memory, &history, sizeof history,
                                          error);
    *on_device = memory;
    return status;
}

static tandem_status bind_task(bench_layer *l, int t, tandem_kernel_call *call, tandem_error *error)
{
    const tandem_task *task = &l->step->task[t];
    tandem_status status =
        tandem_step_amax_history(l->step, t) == t ? open_bench_history(&call->history, l, error) : TANDEM_OK;
    for (int k = 0; k < task->n_read && status == TANDEM_OK; k++) {
        void *at = l->parameter;
        if (task->read[k] >= 0) {
            status = bench_value_memory(l, task->read[k], &at, error);
            call->in_scale[k] = bench_value_scale(l, task->read[k]);
        }
        call->in[k] = at;
    }
    for (int k = 0; k < task->n_write && status == TANDEM_OK; k++) {
        void *at = l->gradient;
        if (task->write[k] >= 0) {
            status = bench_value_memory(l, task->write[k], &at, error);
            call->out_scale[k] = bench_value_scale(l, task->write[k]);
        }
        call->out[k] = at;
    }
    call->rng = (tandem_rng_stream){.seed = 1, .stream = {0, (uint32_t)task->op, 0}};
    call->row_weight = 1;
    return status;
}

/* --- Kernels -------------------------------------------------------------------------------------------- */

static tandem_status prepare_layer(bench_layer *l, tandem_error *error)
{
    uint64_t max_bytes = 0, bytes = 0;
    void *workspace = NULL, *device = (void *)(uintptr_t)l->c->device;
    tandem_status status = TANDEM_OK;
    for (int t = 0; t < l->step->n_task && status == TANDEM_OK; t++) {
        const tandem_task *task = &l->step->task[t];
        if (!task->active || !is_layer_task(l, task)) continue;
        if (l->n_task == MAX_TASKS)
            return tandem_error_set(error, TANDEM_BUG, "a layer of more than %d tasks", MAX_TASKS);
        const int k = l->n_task;
        status = tandem_cuda_backend.prepare(device, l->step, t, &l->task[k].kernel, &bytes, error);
        if (status != TANDEM_OK) break;
        l->task[k].id = t;
        l->task[k].is_cast = is_cast_task(task->kind);
        l->n_task++;
        if (bytes > max_bytes) max_bytes = bytes;
        status = bind_task(l, t, &l->task[k].call, error);
    }
    if (status == TANDEM_OK) status = gpu_alloc(&workspace, l->c, max_bytes, error);
    for (int k = 0; k < l->n_task; k++) l->task[k].call.workspace = workspace;
    return status;
}

/* The layer's tasks in the step's order; errors of the backend are reported as one number, as launches
 * are. */
static int run_layer(void *context, int turn)
{
    (void)turn;
    const bench_layer *l = context;
    tandem_error error;
    for (int k = 0; k < l->n_task; k++) {
        const tandem_task *task = &l->step->task[l->task[k].id];
        if (l->only_casts && !l->task[k].is_cast) continue;
        if (l->only_forward && task->kind != TANDEM_TASK_FORWARD) continue;
        if (tandem_cuda_backend.run(l->task[k].kernel, &l->task[k].call, &error) != TANDEM_OK) return 1;
    }
    return 0;
}

static tandem_status measure_linear(gpu_linear *times, bench_layer *l, tandem_error *error)
{
    gpu_linear t = {0};
    const int launches = l->c->sizes.launches > 4 ? 4 : l->c->sizes.launches; /* each is long */
    tandem_status status = gpu_time(&t.all_ns, l->c, "a linear layer", launches, run_layer, l, error);
    int casts = 0;
    for (int k = 0; k < l->n_task; k++) casts += l->task[k].is_cast;
    l->only_casts = 1;
    if (status == TANDEM_OK && casts)
        status = gpu_time(&t.casts_ns, l->c, "the casts of a linear layer", launches, run_layer, l, error);
    l->only_casts = 0, l->only_forward = 1;
    if (status == TANDEM_OK)
        status =
            gpu_time(&t.forward_ns, l->c, "the product of a linear layer", launches, run_layer, l, error);
    if (status == TANDEM_OK) *times = t;
    return status;
}

static void close_bench_layer(bench_layer *l)
{
    for (int k = 0; k < l->n_task; k++) tandem_cuda_backend.release(l->task[k].kernel);
    free(l->value);
    tandem_step_close(l->step);
    tandem_graph_close(l->graph);
    gpu_free_all(l->c);
}

tandem_status gpu_linear_time(gpu_linear *times, gpu_bench *c, int64_t tokens, int64_t in, int64_t out,
                              const char *precision, int is_delayed, tandem_error *error)
{
    bench_layer l = {.c = c};
    void *scales = NULL;
    const uint64_t weights = (uint64_t)(in * out);
    tandem_status status = build_bench_layer(&l, tokens, in, out, error);
    if (status == TANDEM_OK) status = set_layer_precisions(&l, precision, is_delayed, error);
    if (status == TANDEM_OK) {
        l.value = calloc((size_t)l.step->n_value, sizeof *l.value);
        if (!l.value) status = tandem_no_memory(error, "for a layer's values");
    }
    if (status == TANDEM_OK) status = gpu_alloc(&scales, c, (uint64_t)l.step->n_value * sizeof(float), error);
    l.scale = scales;
    if (status == TANDEM_OK) status = gpu_alloc(&l.parameter, c, weights * sizeof(float), error);
    if (status == TANDEM_OK) status = gpu_alloc(&l.gradient, c, weights * sizeof(float), error);
    if (status == TANDEM_OK) status = gpu_fill(c, l.parameter, TANDEM_F32, weights, 0, 0, error);
    if (status == TANDEM_OK) status = prepare_layer(&l, error);
    if (status == TANDEM_OK) status = measure_linear(times, &l, error);
    close_bench_layer(&l);
    return status;
}
