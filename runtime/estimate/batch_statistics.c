/* batch_statistics.c: observes the weight and input gradients of an executor's steps. */
#include "runtime/estimate/batch_statistics.h"

#include <stdlib.h>

#include "base/clock.h"

typedef struct statistics_collector {
    const tandem_backend_api *backend;
    const tandem_step *step;
    tandem_statistics *statistics; /* [n_op] */
    tandem_status status;
    tandem_error error;
} statistics_collector;

/* --- What one task shows -------------------------------------------------------------------------------- */

static const float *executor_values(const statistics_collector *c, const tandem_executor *executor, int value,
                                    int gradient)
{
    return c->backend->executor_value(executor, value, gradient, NULL);
}

static tandem_window window_of_op(const tandem_graph *graph, const tandem_op *op)
{
    const tandem_shape *in = &graph->op[op->input[0]].shape, *out = &op->shape;
    return (tandem_window){.n = in->dim[0],
                           .height = in->dim[1],
                           .width = in->dim[2],
                           .channels = in->dim[3],
                           .out_height = out->dim[1],
                           .out_width = out->dim[2],
                           .kernel_h = op->kernel_h,
                           .kernel_w = op->kernel_w,
                           .stride = op->stride,
                           .pad = op->pad};
}

static tandem_status add_call_statistics(tandem_statistics *s, const tandem_graph *graph, const tandem_op *op,
                                         const float *x, const float *w, const float *g, tandem_error *error)
{
    const int64_t columns = tandem_shape_last(&op->shape),
                  k = tandem_shape_last(&graph->op[op->input[0]].shape),
                  rows = op->kind == TANDEM_OP_MATMUL ? op->shape.dim[op->shape.n_dim - 2]
                                                      : tandem_shape_elements(&op->shape) / columns,
                  count = tandem_shape_elements(&op->shape) / (rows * columns);
    const tandem_product product = {rows, k, columns, x, w, g, op->transpose_b};
    const tandem_window window =
        op->kind == TANDEM_OP_CONV2D ? window_of_op(graph, op) : (tandem_window){.n = 0};
    return tandem_statistics_add_call(s, &product, count, window.n > 0 ? &window : NULL, error);
}

/* An embedding selects rows: a product with one-hot rows. */
static void add_embedding_statistics(tandem_statistics *s, const tandem_op *op, double g_square,
                                     double w_square)
{
    s->columns = tandem_shape_last(&op->shape);
    s->rows = tandem_shape_elements(&op->shape) / s->columns;
    s->k = 1;
    s->x_square += (double)s->rows;
    s->w_square += w_square;
    s->g_square += g_square;
    s->g2_x2 += g_square;
}

static tandem_status observe_wgrad(statistics_collector *c, const tandem_executor *executor,
                                   const tandem_task *task)
{
    const tandem_graph *graph = c->step->graph;
    const tandem_op *op = &graph->op[task->op];
    tandem_statistics *s = &c->statistics[task->op];
    const int64_t n_g = tandem_shape_elements(&op->shape);
    const float *g = executor_values(c, executor, task->read[1], 0),
                *x = executor_values(c, executor, task->read[0], 0), *w;
    int64_t n_w;
    if (op->kind == TANDEM_OP_MATMUL) {
        w = executor_values(c, executor, tandem_value_activation(c->step, op->input[1], TANDEM_F32), 0);
        n_w = tandem_shape_elements(&graph->op[op->input[1]].shape);
    } else {
        w = executor_values(c, executor, TANDEM_PARAMETER(op->parameter[0]), 0);
        n_w = graph->parameter[op->parameter[0]].elements;
    }
    s->local_batch = graph->batch;
    s->wgrad_square += tandem_statistics_square(executor_values(c, executor, task->write[0], 1), n_w);
    if (op->kind != TANDEM_OP_EMBEDDING) return add_call_statistics(s, graph, op, x, w, g, &c->error);
    s->x_elements = tandem_shape_elements(&graph->op[op->input[0]].shape);
    s->w_elements = n_w;
    s->w_amax += tandem_statistics_amax(w, n_w);
    s->g_amax += tandem_statistics_amax(g, n_g);
    add_embedding_statistics(s, op, tandem_statistics_square(g, n_g), tandem_statistics_square(w, n_w));
    return TANDEM_OK;
}

static void observe_task(void *context, const tandem_executor *executor, int t)
{
    statistics_collector *c = context;
    const tandem_task *task = &c->step->task[t];
    if (c->status != TANDEM_OK || task->op < 0) return;
    const tandem_op *op = &c->step->graph->op[task->op];
    if (!tandem_op_is_adjustable(op)) return;
    if (task->kind == TANDEM_TASK_WGRAD) c->status = observe_wgrad(c, executor, task);
    if (task->kind == TANDEM_TASK_DGRAD)
        c->statistics[task->op].dgrad_square +=
            tandem_statistics_square(executor_values(c, executor, task->write[0], 0),
                                     tandem_shape_elements(&c->step->graph->op[op->input[0]].shape));
}

/* --- The batches ---------------------------------------------------------------------------------------- */

tandem_status batch_statistics_collect(tandem_statistics *statistics, const training_rank *rank,
                                       const tandem_train_request *training, int64_t first, int64_t n_batch,
                                       tandem_error *error)
{
    statistics_collector c = {.backend = rank->backend, .step = rank->step, .statistics = statistics};
    tandem_status status = TANDEM_OK;
    const int64_t begin_ns = tandem_now_ns();
    rank->backend->executor_observe(rank->executor, observe_task, &c);
    for (int64_t i = 0; i < n_batch && status == TANDEM_OK; i++) {
        double loss = 0;
        status = rank->backend->executor_step(rank->executor, first + i, &loss, error);
        if (status == TANDEM_OK && c.status != TANDEM_OK) {
            *error = c.error;
            status = c.status;
        }
        runtime_progress(&training->listener, (tandem_now_ns() - begin_ns) / (i + 1) * (n_batch - 1 - i),
                         "sensitivity: batch %lld of %lld, loss %.4f", (long long)(i + 1), (long long)n_batch,
                         loss);
    }
    rank->backend->executor_observe(rank->executor, NULL, NULL);
    for (int i = 0; i < c.step->graph->n_op; i++)
        if (statistics[i].rows > 0) tandem_statistics_finish(&statistics[i], n_batch);
    return status;
}
