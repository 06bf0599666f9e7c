/* probe.c: the noise that rounding puts into the whole gradient, by differences of two gradients.
 *
 * The loss of a batch is L(w, x) with a cast tensor x. Rounding x by ξ, of variances v and mean 0, changes
 * the gradient by (∂²L/∂w∂x)·ξ to first order. For a direction z of independent random signs, E over z and
 * ξ of (zᵀ(∂²L/∂w∂x)ξ)² is the expected square of that change, in the metric in which z has the unit
 * covariance: 1 is SGD's, and signs times the root of 1/√v̂ have AdamW's. Mixed derivatives commute, so
 * zᵀ(∂²L/∂w∂x) is the change of ∂L/∂x along z,
 *     D = (∂L/∂x(w + εz) − ∂L/∂x(w − εz)) / 2ε,
 * and the expected square is Σ v·D². Rounding to nearest has an error e that is known and not independent
 * from element to element: equal numbers have equal errors. Its square is then (Σ e·D)². What D is taken
 * of, by what is rounded:
 *   input     the gradient that the operator returns for it; forward and weight gradient read one rounded
 * copy
 *   weight    the weight's gradient; forward and input gradient read one rounded copy. The second input of a
 *             product of two activations: its gradient
 *   gradient  of the operator's output: the gradient enters all weight gradients below linearly, as
 * γᵀ(∂y/∂w), so D
 *             is the change of the output y along z
 *   result    the gradient of the output
 * A slope that jumps, as that of a relu, has no derivative there. Rounding then turns units on and off, and
 * the expected square grows with the size of the error, not with its square: D does not show that.
 *
 * One pair of steps serves all operators, parts and formats. z·ε is small beside the weights, and large
 * beside their last bit. Cost: three gradients. */
#include "research/probe.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/philox.h"

static const double epsilon = 0x1p-10; /* of the root of the mean square of all weights */

enum { AT_WEIGHTS, ABOVE, BELOW, N_PLACE };

typedef struct probe_array {
    float *x; /* [n] */
    int64_t n;
} probe_array;

typedef struct probe_run {
    held_model *model;
    float *direction; /* [n_flat] z */
    int place;
    /* at the weights: what is rounded; above and below: what D is taken of */
    probe_array array[N_PLACE][STUDY_MAX_OPERATORS][N_PROBED_PART];
    tandem_status status;
} probe_run;

/* --- What tasks show -------------------------------------------------------------------------------------
 * */

static float *keep_probe_array(probe_run *run, int k, rounded_part part, int64_t n)
{
    probe_array *array = &run->array[run->place][k][part];
    free(array->x);
    array->n = n;
    array->x = malloc((size_t)n * sizeof *array->x);
    if (!array->x) run->status = TANDEM_NO_MEMORY;
    return array->x;
}

static void copy_probe_array(probe_run *run, int k, rounded_part part, const float *x, int64_t n)
{
    float *to = keep_probe_array(run, k, part, n);
    if (to && x) memcpy(to, x, (size_t)n * sizeof *to);
}

/* g·Wᵀ: of an operator whose input needs no gradient. */
static void compute_input_gradient(probe_run *run, int k, const tandem_op *op, const float *g, const float *w,
                                   int64_t n_x)
{
    const int64_t columns = tandem_shape_last(&op->shape), rows = tandem_shape_elements(&op->shape) / columns,
                  depth = n_x / rows;
    float *to = keep_probe_array(run, k, PART_INPUT, n_x);
    for (int64_t i = 0; to && i < rows; i++)
        for (int64_t l = 0; l < depth; l++) {
            double sum = 0;
            for (int64_t j = 0; j < columns; j++) {
                const float weight = op->transpose_b ? w[j * depth + l] : w[l * columns + j];
                sum += (double)g[i * columns + j] * (double)weight;
            }
            to[i * depth + l] = (float)sum;
        }
}

/* The same of a convolution: each output adds its gradient times the kernel to the window that it read. */
static void compute_image_gradient(probe_run *run, int k, const tandem_op *op, const tandem_shape *in,
                                   const float *g, const float *w)
{
    const tandem_shape *out = &op->shape;
    const int64_t height = in->dim[1], width = in->dim[2], depth = in->dim[3], columns = out->dim[3];
    float *to = keep_probe_array(run, k, PART_INPUT, tandem_shape_elements(in));
    if (to) memset(to, 0, (size_t)tandem_shape_elements(in) * sizeof *to);
    for (int64_t o = 0; to && o < out->dim[0] * out->dim[1] * out->dim[2]; o++) {
        const int64_t image = o / out->dim[2] / out->dim[1], top = o / out->dim[2] % out->dim[1] * op->stride,
                      left = o % out->dim[2] * op->stride;
        for (int64_t a = 0; a < (int64_t)op->kernel_h * op->kernel_w * depth; a++) {
            const int64_t y = top + a / depth / op->kernel_w - op->pad,
                          z = left + a / depth % op->kernel_w - op->pad;
            double sum = 0;
            if (y < 0 || y >= height || z < 0 || z >= width) continue;
            for (int64_t j = 0; j < columns; j++)
                sum += (double)g[o * columns + j] * (double)w[a * columns + j];
            to[((image * height + y) * width + z) * depth + a % depth] += (float)sum;
        }
    }
}

/* What PART_WEIGHT rounds: a parameter, or the second input of a product of two activations. */
static const float *second_operand(int64_t *n, const probe_run *run, const tandem_executor *executor,
                                   const tandem_op *op)
{
    const tandem_step *step = run->model->rank.step;
    const int has_parameter = op->parameter[0] >= 0;
    const int id = has_parameter ? TANDEM_PARAMETER(op->parameter[0])
                                 : tandem_value_activation(step, op->input[1], TANDEM_F32);
    *n = has_parameter ? step->graph->parameter[op->parameter[0]].elements
                       : tandem_shape_elements(&step->graph->op[op->input[1]].shape);
    return run->model->rank.backend->executor_value(executor, id, 0, NULL);
}

/* At the weights: what the task reads. Above and below: gradients that no task writes, or no parameter has.
 */
static void observe_probe_wgrad(probe_run *run, const tandem_executor *executor, const tandem_task *task,
                                int k)
{
    const tandem_backend_api *backend = run->model->rank.backend;
    const tandem_graph *graph = run->model->rank.step->graph;
    const tandem_op *op = &graph->op[task->op], *input = &graph->op[op->input[0]];
    const int64_t n_x = tandem_shape_elements(&input->shape);
    const int is_embedding = op->kind == TANDEM_OP_EMBEDDING;
    const float *g = backend->executor_value(executor, task->read[1], 0, NULL);
    int64_t n_w = 0;
    const float *w = second_operand(&n_w, run, executor, op);
    if (run->place == AT_WEIGHTS) {
        if (!is_embedding)
            copy_probe_array(run, k, PART_INPUT, backend->executor_value(executor, task->read[0], 0, NULL),
                             n_x);
        copy_probe_array(run, k, PART_GRADIENT, g, tandem_shape_elements(&op->shape));
        copy_probe_array(run, k, PART_WEIGHT, w, n_w);
        return;
    }
    copy_probe_array(run, k, PART_RESULT, g, tandem_shape_elements(&op->shape));
    if (op->parameter[0] < 0)
        copy_probe_array(run, k, PART_WEIGHT, backend->executor_value(executor, task->write[0], 0, NULL),
                         n_w);
    if (input->needs_gradient || is_embedding) return;
    if (op->kind == TANDEM_OP_LINEAR)
        compute_input_gradient(run, k, op, g, w, n_x);
    else
        compute_image_gradient(run, k, op, &input->shape, g, w);
}

static void observe_probe(void *context, const tandem_executor *executor, int t)
{
    probe_run *run = context;
    const tandem_backend_api *backend = run->model->rank.backend;
    const tandem_step *step = run->model->rank.step;
    const tandem_task *task = &step->task[t];
    int k = 0;
    while (k < run->model->n_op && run->model->op[k] != task->op) k++;
    if (k == run->model->n_op || task->op < 0 || run->status != TANDEM_OK) return;
    const tandem_op *op = &step->graph->op[task->op];
    const int64_t n_y = tandem_shape_elements(&op->shape),
                  n_x = tandem_shape_elements(&step->graph->op[op->input[0]].shape);
    const int is_at_weights = run->place == AT_WEIGHTS;
    if (task->kind == TANDEM_TASK_FORWARD)
        copy_probe_array(run, k, is_at_weights ? PART_RESULT : PART_GRADIENT,
                         backend->executor_value(executor, task->write[0], 0, NULL), n_y);
    if (task->kind == TANDEM_TASK_DGRAD && !is_at_weights)
        copy_probe_array(run, k, PART_INPUT, backend->executor_value(executor, task->write[0], 0, NULL), n_x);
    if (task->kind == TANDEM_TASK_WGRAD) observe_probe_wgrad(run, executor, task, k);
}

/* --- The three gradients ---------------------------------------------------------------------------------
 * */

static int64_t parameter_offset(const tandem_graph *graph, int parameter)
{
    int64_t offset = 0;
    for (int p = 0; p < parameter; p++) offset += graph->parameter[p].elements;
    return offset;
}

static tandem_status take_gradient(probe_run *run, int place, const float *weight, int64_t index,
                                   float *gradient, tandem_error *error)
{
    held_model *model = run->model;
    const tandem_graph *graph = model->rank.step->graph;
    run->place = place;
    tandem_status status = model->rank.backend->executor_put_weights(model->rank.executor, weight, error);
    if (status == TANDEM_OK) status = held_model_gradient(model, index, gradient, error);
    if (status == TANDEM_OK && run->status != TANDEM_OK)
        status = tandem_no_memory(error, "for the tensors of a probe");
    for (int k = 0; k < model->n_op && status == TANDEM_OK && place != AT_WEIGHTS; k++) {
        const int p = graph->op[model->op[k]].parameter[0];
        if (p < 0) continue;
        copy_probe_array(run, k, PART_WEIGHT, gradient + parameter_offset(graph, p),
                         graph->parameter[p].elements);
    }
    return status;
}

/* z on every parameter: signs, times the root of the metric; 0 elsewhere in the flat array. */
static void draw_direction(float *direction, const float *metric, const tandem_step *step, uint64_t seed)
{
    tandem_philox_block block = {{0}};
    int64_t place = 0;
    memset(direction, 0, (size_t)step->n_flat * sizeof *direction);
    for (int p = 0; p < step->graph->n_parameter; p++) {
        float *of = direction + step->parameter_start[p];
        for (int64_t i = 0; i < step->graph->parameter[p].elements; i++, place++) {
            if (i % 128 == 0)
                block =
                    tandem_philox((const uint32_t[]){(uint32_t)(i / 128), (uint32_t)p, 0, 0x50524F42u}, seed);
            const float sign = block.word[i % 128 / 32] >> (i % 32) & 1 ? 1 : -1;
            of[i] = metric ? sign * sqrtf(metric[place]) : sign;
        }
    }
}

/* moved = weight + by·z */
static void move_weights(float *moved, const float *weight, const probe_run *run, double by)
{
    for (int64_t i = 0; i < run->model->rank.step->n_flat; i++)
        moved[i] = (float)((double)weight[i] + by * (double)run->direction[i]);
}

static double parameter_rms(const float *weight, const tandem_step *step)
{
    double square = 0, n = 0;
    for (int p = 0; p < step->graph->n_parameter; p++)
        for (int64_t i = 0; i < step->graph->parameter[p].elements; i++, n++)
            square += pow((double)weight[step->parameter_start[p] + i], 2);
    return n > 0 ? sqrt(square / n) : 0;
}

/* --- The sums --------------------------------------------------------------------------------------------
 * */

/* D of a part, into [n]. */
static void take_difference(double *difference, const probe_run *run, int k, rounded_part part, double step)
{
    const float *above = run->array[ABOVE][k][part].x, *below = run->array[BELOW][k][part].x;
    for (int64_t i = 0; i < run->array[AT_WEIGHTS][k][part].n; i++)
        difference[i] = ((double)above[i] - (double)below[i]) / (2 * step);
}

/* Σ v·D² where errors are drawn; (Σ e·D)² where the error e is known. room: [n]. */
static tandem_status sum_probe_format(double *sum, const probe_array *x, const double *difference,
                                      tandem_format format, float range, float *room, tandem_error *error)
{
    const tandem_format_cast cast = {
        .format = format, .x = x->x, .rows = 1, .columns = x->n, .range = range, .error_scale = 1};
    const int is_drawn = tandem_format_get(format)->rounding == TANDEM_ROUNDING_STOCHASTIC;
    const tandem_status status = is_drawn ? tandem_format_variance(room, NULL, &cast, error)
                                          : tandem_format_round(room, NULL, &cast, error);
    double total = 0;
    for (int64_t i = 0; i < x->n && status == TANDEM_OK; i++)
        total += is_drawn ? (double)room[i] * difference[i] * difference[i]
                          : ((double)room[i] - (double)x->x[i]) * difference[i];
    *sum = is_drawn ? total : total * total;
    return status;
}

/* The known bound of an input, which casts take in the place of its largest magnitude; 0: none. */
static float range_of(const probe_run *run, int k, rounded_part part)
{
    const tandem_graph *graph = run->model->rank.step->graph;
    const tandem_op *op = &graph->op[run->model->op[k]];
    const int slot = part == PART_WEIGHT;
    if (part > PART_WEIGHT || slot >= tandem_op_row_get(op->kind)->n_input) return 0;
    return tandem_op_row_get(graph->op[graph->view[op->input[slot]]].kind)->range;
}

static tandem_status sum_probe_part(double sum[TANDEM_N_FORMAT], const probe_run *run, int k,
                                    rounded_part part, double step, tandem_error *error)
{
    const probe_array *x = &run->array[AT_WEIGHTS][k][part];
    const float range = range_of(run, k, part);
    float *room = malloc((size_t)x->n * sizeof *room);
    double *difference = malloc((size_t)x->n * sizeof *difference);
    tandem_status status =
        room && difference ? TANDEM_OK : tandem_no_memory(error, "for the sums of a probe");
    if (status == TANDEM_OK) take_difference(difference, run, k, part, step);
    for (int f = 0; f < TANDEM_N_FORMAT && status == TANDEM_OK; f++)
        status = sum_probe_format(&sum[f], x, difference, (tandem_format)f, range, room, error);
    free(room);
    free(difference);
    return status;
}

/* Σ z'·(difference over 2ε) over the operator's weight, with z' = z over the metric: E z'zᵀ is the unit. */
static double trace_of(const probe_run *run, int k, double step)
{
    const tandem_step *program = run->model->rank.step;
    const int p = program->graph->op[run->model->op[k]].parameter[0];
    const probe_array *above = &run->array[ABOVE][k][PART_WEIGHT],
                      *below = &run->array[BELOW][k][PART_WEIGHT];
    double trace = 0;
    if (p < 0) return NAN;
    const float *direction = run->direction + program->parameter_start[p];
    for (int64_t i = 0; i < above->n; i++)
        trace += ((double)above->x[i] - (double)below->x[i]) / (2 * step * (double)direction[i]);
    return trace;
}

static tandem_status sum_probe_operator(probe_sums *sums, const probe_run *run, int k, double step,
                                        tandem_error *error)
{
    tandem_status status = TANDEM_OK;
    for (int part = 0; part < N_PROBED_PART && status == TANDEM_OK; part++)
        if (run->array[AT_WEIGHTS][k][part].n > 0)
            status = sum_probe_part(sums->sum[k][part], run, k, (rounded_part)part, step, error);
    sums->trace[k] = trace_of(run, k, step);
    return status;
}

tandem_status probe_predict(probe_sums *sums, held_model *model, const probe_request *request,
                            tandem_error *error)
{
    const tandem_step *program = model->rank.step;
    const float *weight = request->at->weight;
    probe_run *run = calloc(1, sizeof *run);
    float *moved = malloc((size_t)program->n_flat * sizeof *moved),
          *direction = malloc((size_t)program->n_flat * sizeof *direction),
          *gradient = malloc((size_t)model->n_weight * sizeof *gradient);
    tandem_status status =
        run && moved && direction && gradient ? TANDEM_OK : tandem_no_memory(error, "for a probe");
    double step = 0;
    *sums = (probe_sums){0};
    if (status == TANDEM_OK) {
        run->model = model;
        run->direction = direction;
        draw_direction(direction, request->at->metric, program, request->seed);
        step = epsilon * parameter_rms(weight, program) / parameter_rms(direction, program);
        model->rank.backend->executor_observe(model->rank.executor, observe_probe, run);
        status = take_gradient(run, AT_WEIGHTS, weight, request->index, gradient, error);
    }
    for (int64_t i = 0; i < model->n_weight && status == TANDEM_OK; i++)
        sums->square += (double)gradient[i] * (double)gradient[i] *
                        (request->at->metric ? (double)request->at->metric[i] : 1);
    for (int place = ABOVE; place <= BELOW && status == TANDEM_OK; place++) {
        move_weights(moved, weight, run, place == ABOVE ? step : -step);
        status = take_gradient(run, place, moved, request->index, gradient, error);
    }
    for (int k = 0; k < model->n_op && status == TANDEM_OK; k++)
        status = sum_probe_operator(sums, run, k, step, error);
    model->rank.backend->executor_observe(model->rank.executor, NULL, NULL);
    for (int i = 0; run && i < N_PLACE * STUDY_MAX_OPERATORS * N_PROBED_PART; i++)
        free((&run->array[0][0][0])[i].x);
    free(run);
    free(moved);
    free(direction);
    free(gradient);
    return status;
}
