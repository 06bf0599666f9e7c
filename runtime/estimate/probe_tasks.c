/* probe_tasks.c: what the tasks of a step show a probe: it keeps their numbers in the pass above, w + εz, and
 * has their noise in the one below. */
#include "runtime/estimate/probe_run.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/estimate/probe_loops.h"

/* g·W of the kept samples, where W lies transposed: of an operator whose input needs no gradient. */
static void compute_transposed_gradient(float *to, const float *g, const float *w, int64_t rows,
                                        int64_t depth, int64_t columns)
{
    memset(to, 0, (size_t)(rows * depth) * sizeof *to);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++)
            for (int64_t l = 0; l < depth; l++) to[i * depth + l] += g[i * columns + j] * w[j * depth + l];
}

/* The same of a convolution: each output adds its gradient times the kernel to the window that it read. */
static void compute_kept_image_gradient(float *to, const tandem_op *op, const tandem_shape *in,
                                        const float *g, const float *w, int64_t samples)
{
    const tandem_shape *out = &op->shape;
    const int64_t height = in->dim[1], width = in->dim[2], depth = in->dim[3], columns = out->dim[3];
    memset(to, 0, (size_t)(samples * height * width * depth) * sizeof *to);
    for (int64_t o = 0; o < samples * out->dim[1] * out->dim[2]; o++) {
        const int64_t image = o / out->dim[2] / out->dim[1], top = o / out->dim[2] % out->dim[1] * op->stride,
                      left = o % out->dim[2] * op->stride;
        for (int64_t a = 0; a < (int64_t)op->kernel_h * op->kernel_w * depth; a++) {
            const int64_t y = top + a / depth / op->kernel_w - op->pad,
                          z = left + a / depth % op->kernel_w - op->pad;
            if (y < 0 || y >= height || z < 0 || z >= width) continue;
            float sum = 0;
            for (int64_t j = 0; j < columns; j++) sum += g[o * columns + j] * w[a * columns + j];
            to[((image * height + y) * width + z) * depth + a % depth] += sum;
        }
    }
}

/* The known bound of an input, which casts take in the place of its largest magnitude; 0: none. */
static float known_range(const tandem_graph *graph, const tandem_op *op, int slot)
{
    return tandem_op_row_get(graph->op[graph->view[op->input[slot]]].kind)->range;
}

static const float *value_of(const probe_run *run, int id)
{
    return run->point->backend->executor_value(run->point->executor, id, 0, NULL);
}

/* dx, of slot 0 or 1: kept above, and its noise added below. kept: [the kept numbers], or of all, `whole`. */
static void see_input_gradient(probe_run *run, probe_operator *of, int slot, const float *dx)
{
    const tandem_graph *graph = run->point->step->graph;
    probe_kept_tensor *above = &of->kept[slot ? KEPT_DX2 : KEPT_DX];
    const probe_kept_tensor *x = &of->kept[slot ? KEPT_X2 : KEPT_X];
    if (run->place == PROBE_ABOVE)
        probe_keep_values(run, above, dx,
                          tandem_shape_elements(&graph->op[graph->op[of->op].input[slot]].shape), 0);
    else
        probe_add_noise(run, of, slot ? TANDEM_PROBE_SECOND : TANDEM_PROBE_INPUT, x, above->x, dx,
                        known_range(graph, &graph->op[of->op], slot));
}

static void see_forward(probe_run *run, probe_operator *of, const float *y)
{
    const tandem_op *op = &run->point->step->graph->op[of->op];
    probe_kept_tensor *kept = &of->kept[KEPT_Y];
    if (run->place == PROBE_ABOVE) {
        probe_keep_values(run, kept, y, tandem_shape_elements(&op->shape), 0);
        return;
    }
    probe_add_noise(run, of, TANDEM_PROBE_GRADIENT, &of->kept[KEPT_G], kept->x, y, 0);
    tandem_probe_add_rate(&of->sums[PROBE_OWN_RANGE], run->difference, of->kept[KEPT_G].n);
    /* The result at the weights themselves: a bias that is moved by z would not be lost as it is there. */
    tandem_probe_middle(kept->x, y, kept->n);
}

/* Of an operator whose input has no gradient: computed, of the kept samples. */
static void see_absent_gradient(probe_run *run, probe_operator *of, const float *g)
{
    const tandem_graph *graph = run->point->step->graph;
    const tandem_op *op = &graph->op[of->op];
    const tandem_shape *in = &graph->op[op->input[0]].shape;
    probe_kept_tensor *above = &of->kept[KEPT_DX];
    const int64_t batch = run->point->estimate->batch, n = tandem_shape_elements(in),
                  samples = n % batch ? 0 : probe_count_kept(above, batch, n), each = n / batch;
    const float *w = value_of(run, TANDEM_PARAMETER(op->parameter[0]));
    if (samples == 0 || op->parameter[0] < 0) return;
    float *to = run->place == PROBE_ABOVE ? probe_keep_samples(run, above, n) : run->room;
    float *own = NULL;
    if (run->place == PROBE_BELOW && to) to = own = malloc((size_t)(samples * each) * sizeof *own);
    if (!to) {
        run->status = tandem_no_memory(&run->error, "for the tensors of a probe");
        return;
    }
    if (op->kind == TANDEM_OP_LINEAR)
        (op->transpose_b ? compute_transposed_gradient
                         : probe_linear_gradient)(to, g, w, samples * each / tandem_shape_last(in),
                                                  tandem_shape_last(in), tandem_shape_last(&op->shape));
    else
        compute_kept_image_gradient(to, op, in, g, w, samples);
    if (run->place == PROBE_BELOW) see_input_gradient(run, of, 0, to);
    free(own);
}

static void see_wgrad(probe_run *run, probe_operator *of, const tandem_task *task)
{
    const tandem_step *step = run->point->step;
    const tandem_op *op = &step->graph->op[of->op], *input = &step->graph->op[op->input[0]];
    const float *g = value_of(run, task->read[1]);
    const int64_t n_y = tandem_shape_elements(&op->shape);
    if (run->place == PROBE_ABOVE) {
        probe_keep_values(run, &of->kept[KEPT_G], g, n_y, 1);
        if (op->kind != TANDEM_OP_EMBEDDING)
            probe_keep_values(run, &of->kept[KEPT_X], value_of(run, task->read[0]),
                              tandem_shape_elements(&input->shape), 1);
        if (op->parameter[0] < 0)
            probe_keep_values(run, &of->kept[KEPT_X2],
                              value_of(run, tandem_value_activation(step, op->input[1], TANDEM_F32)),
                              tandem_shape_elements(&step->graph->op[op->input[1]].shape), 1);
    } else {
        probe_add_noise(run, of, TANDEM_PROBE_RESULT, &of->kept[KEPT_Y], of->kept[KEPT_G].x, g, 0);
    }
    if (op->parameter[0] < 0) see_input_gradient(run, of, 1, value_of(run, task->write[0]));
    if (!input->needs_gradient && op->kind != TANDEM_OP_EMBEDDING) see_absent_gradient(run, of, g);
}

/* Of operators without products: the gradient of the output, at the first task that reads it. */
static void see_dependent_gradients(probe_run *run, int t)
{
    const tandem_step *step = run->point->step;
    for (int k = 0; k < run->n_op; k++) {
        probe_operator *of = &run->operator[k];
        if (of->is_adjustable || of->gradient_task != t || run->status != TANDEM_OK) continue;
        const float *g = value_of(run, tandem_value_gradient(step, of->op, TANDEM_F32));
        if (run->place == PROBE_ABOVE)
            probe_keep_values(run, &of->kept[KEPT_G], g,
                              tandem_shape_elements(&step->graph->op[of->op].shape), 1);
        else
            probe_add_noise(run, of, TANDEM_PROBE_RESULT, &of->kept[KEPT_Y], of->kept[KEPT_G].x, g, 0);
    }
}

void probe_see_task(void *context, const tandem_executor *executor, int t)
{
    probe_run *run = context;
    const tandem_task *task = &run->point->step->task[t];
    (void)executor;
    int k = 0;
    while (k < run->n_op && run->operator[k].op != task->op) k++;
    see_dependent_gradients(run, t);
    if (task->op < 0 || k == run->n_op || run->status != TANDEM_OK) return;
    probe_operator *of = &run->operator[k];
    if (task->kind == TANDEM_TASK_FORWARD) see_forward(run, of, value_of(run, task->write[0]));
    if (!of->is_adjustable) return;
    if (task->kind == TANDEM_TASK_DGRAD) see_input_gradient(run, of, 0, value_of(run, task->write[0]));
    if (task->kind == TANDEM_TASK_WGRAD) see_wgrad(run, of, task);
}

void probe_see_weight_gradients(probe_run *run)
{
    const probe_point *point = run->point;
    for (int k = 0; k < run->n_op; k++) {
        probe_operator *of = &run->operator[k];
        const int p = point->step->graph->op[of->op].parameter[0];
        if (of->n_kept_weight == 0) continue;
        const float *g = point->backend->executor_value(point->executor, TANDEM_PARAMETER(p), 1, NULL);
        float *const to = run->place == PROBE_ABOVE ? of->w_above : run->room;
        for (int64_t i = 0; i < of->n_kept_weight; i++) to[i] = g[i * of->stride];
        if (run->place == PROBE_BELOW)
            tandem_probe_difference(of->difference[run->batch], of->w_above, to,
                                    (float)(1 / (2 * run->step[run->batch])), of->n_kept_weight);
    }
}
