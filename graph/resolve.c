/* resolve.c: what a choice of precisions makes of the step program: types, active tasks, values and their lifetimes. */
#include <string.h>

#include "graph/step_index.h"
#include "graph/types.h"

/* --- Values by role ----------------------------------------------------------------------------------------------- */

int tandem_value_activation(const tandem_step *step, int tensor, tandem_dtype dtype)
{
    if (dtype == TANDEM_S32) dtype = TANDEM_F32; /* tokens and labels have one version */
    return step->graph->view[tensor] * VALUES_AN_OP + VALUE_ACTIVATION + (int)dtype;
}

int tandem_value_gradient(const tandem_step *step, int tensor, tandem_dtype dtype)
{
    return step->index->gradient_root[tensor] * VALUES_AN_OP + VALUE_GRADIENT + (int)dtype;
}

int tandem_value_weight(const tandem_step *step, int op, tandem_dtype dtype)
{
    if (dtype == TANDEM_F32) return TANDEM_PARAMETER(step->graph->op[op].parameter[0]);
    return step->graph->n_op * VALUES_AN_OP + op * WEIGHTS_AN_OP + (int)dtype - 1;
}

int tandem_value_aux(const tandem_step *step, int op)
{
    (void)step;
    return op * VALUES_AN_OP + VALUE_AUX;
}

static int value_of(int op, int role, int slot) { return op * VALUES_AN_OP + role + slot; }

/* --- Who reads what in which type ----------------------------------------------------------------------------------- */

static void find_gradient_types(tandem_step *step)
{
    const tandem_graph *graph = step->graph;
    tandem_dtype *type = step->index->gradient_native;
    for (int t = 0; t < graph->n_op; t++) type[t] = step->native[t];
    for (int c = 0; c < graph->n_op; c++) {
        const tandem_op *op = &graph->op[c];
        if (brings_f32_gradient(tandem_op_row_get(op->kind))) type[graph->view[op->input[0]]] = TANDEM_F32;
    }
}

static void need_activation(tandem_step *step, int tensor, tandem_dtype dtype)
{
    step->index->activation_need[step->graph->view[tensor]] |= (unsigned char)(1u << dtype);
}

static void need_gradient(tandem_step *step, int tensor, tandem_dtype dtype)
{
    step->index->gradient_need[step->index->gradient_root[tensor]] |= (unsigned char)(1u << dtype);
}

static void find_needs_of(tandem_step *step, int i)
{
    const tandem_graph *graph = step->graph;
    const tandem_op *op = &graph->op[i];
    const tandem_op_row *row = tandem_op_row_get(op->kind);
    const struct tandem_step_index *index = step->index;
    if (op->kind == TANDEM_OP_RESHAPE) return;
    for (int slot = 0; slot < row->n_input; slot++)
        if (graph->op[op->input[slot]].dtype == TANDEM_F32)
            need_activation(step, op->input[slot], operand_type(step, i));
    if (index->dgrad[i] >= 0 && i != graph->loss) need_gradient(step, i, dgrad_type(step, i));
    if (index->wgrad[i] >= 0) need_gradient(step, i, wgrad_type(step, i));
    if (index->dgrad[i] >= 0 && (row->saves & TANDEM_SAVES_OUTPUT))
        need_activation(step, i, dgrad_type(step, i));
    if (row->dgrad != TANDEM_BACKWARD_SAME) return;
    for (int slot = 0; slot < row->n_input; slot++) { /* a gradient passed on to a sum is read in the type of the sum */
        const int t = graph->view[op->input[slot]];
        if (index->edge_place[i * TANDEM_MAX_INPUT + slot] >= 0 && index->n_contribution[t] > 1)
            need_gradient(step, i, index->gradient_native[t]);
    }
}

/* --- Tasks ----------------------------------------------------------------------------------------------------------- */

static void begin(tandem_task *task, tandem_dtype from, tandem_dtype to, int variant)
{
    task->active = 1;
    task->from = from;
    task->to = to;
    task->variant = variant;
    task->n_read = task->n_write = 0;
}

static void reads(tandem_step *step, int t, int id)
{
    tandem_task *task = &step->task[t];
    task->read[task->n_read++] = id;
    if (id >= 0 && step->value[id].last < t) step->value[id].last = t;
}

static void writes(tandem_step *step, int t, int id, int op, tandem_dtype dtype, uint64_t bytes)
{
    tandem_task *task = &step->task[t];
    task->write[task->n_write++] = id;
    if (id >= 0)
        step->value[id] = (tandem_value){.op = op, .dtype = dtype, .bytes = bytes, .first = t, .last = t};
}

static uint64_t output_bytes(const tandem_graph *graph, int op, tandem_dtype dtype)
{
    return (uint64_t)tandem_shape_elements(&graph->op[op].shape) * tandem_dtype_bytes(dtype);
}

static void resolve_weight_cast(tandem_step *step, int t, tandem_dtype to)
{
    tandem_task *task = &step->task[t];
    const int p = task->parameter;
    begin(task, TANDEM_F32, to, TANDEM_F32 * TANDEM_N_VERSION + (int)to);
    reads(step, t, TANDEM_PARAMETER(p));
    writes(step, t, tandem_value_weight(step, task->op, to), task->op, to,
           (uint64_t)step->graph->parameter[p].elements * tandem_dtype_bytes(to));
}

static void resolve_casts(tandem_step *step, int first_task, int tensor, unsigned need, tandem_dtype native, int gradient)
{
    for (int d = 0; d < TANDEM_N_VERSION; d++) {
        const tandem_dtype to = (tandem_dtype)d;
        if (to == native || !(need & (1u << d))) continue;
        const int t = first_task + d;
        begin(&step->task[t], native, to, (int)native * TANDEM_N_VERSION + d);
        reads(step, t, value_of(tensor, gradient ? VALUE_GRADIENT : VALUE_ACTIVATION, (int)native));
        writes(step, t, value_of(tensor, gradient ? VALUE_GRADIENT : VALUE_ACTIVATION, d), tensor, to,
               output_bytes(step->graph, tensor, to));
    }
}

static void resolve_forward(tandem_step *step, int i)
{
    const tandem_graph *graph = step->graph;
    const tandem_op *op = &graph->op[i];
    const tandem_op_row *row = tandem_op_row_get(op->kind);
    const struct tandem_step_index *index = step->index;
    if (op->kind == TANDEM_OP_RESHAPE) return;
    const int t = index->forward[i];
    const tandem_dtype from = operand_type(step, i), to = step->native[i];
    if (index->weight_cast[i] >= 0 && from != TANDEM_F32)
        resolve_weight_cast(step, index->weight_cast[i], from);

    tandem_task *task = &step->task[t];
    begin(task, from, to, form_of(step, i, to));
    task->precision = step->precision[i];
    for (int slot = 0; slot < row->n_input; slot++) {
        const int source = op->input[slot];
        reads(step, t,
              tandem_value_activation(step, source, graph->op[source].dtype == TANDEM_F32 ? from : TANDEM_S32));
    }
    for (int j = 0; j < row->n_parameter; j++)
        reads(step, t,
              row->op_class == TANDEM_ADJUSTABLE ? tandem_value_weight(step, i, from)
                                                 : TANDEM_PARAMETER(op->parameter[j]));
    const tandem_dtype stored = op->dtype == TANDEM_F32 ? to : op->dtype;
    writes(step, t, tandem_value_activation(step, i, stored), i, stored, output_bytes(graph, i, stored));
    if (op->aux_bytes) writes(step, t, value_of(i, VALUE_AUX, 0), i, TANDEM_F32, op->aux_bytes);
    if (index->cast[i] >= 0) resolve_casts(step, index->cast[i], i, index->activation_need[i], to, 0);
}

/* The saved input of slot `slot` in the type of the backward pass: the version that was saved, or a restored copy. */
static int saved_input(tandem_step *step, int i, int slot, tandem_dtype type)
{
    const tandem_graph *graph = step->graph;
    const int source = graph->op[i].input[slot];
    const tandem_dtype saved = tandem_precision_get(step->precision[i])->saved;
    const int kept = tandem_value_activation(step, source, saved);
    if (saved == type) return kept;
    const int t = step->index->restore[i] + slot;
    begin(&step->task[t], saved, type, (int)saved * TANDEM_N_VERSION + (int)type);
    reads(step, t, kept);
    const int restored = value_of(i, VALUE_RESTORED, slot);
    writes(step, t, restored, i, type, output_bytes(graph, source, type));
    return restored;
}

/* Where operator i's dgrad (or wgrad of a matmul) puts the gradient of input `slot`, and in which type. */
static void write_contribution(tandem_step *step, int t, int i, int slot)
{
    const tandem_graph *graph = step->graph;
    const struct tandem_step_index *index = step->index;
    const int tensor = graph->view[graph->op[i].input[slot]];
    const tandem_dtype type = index->gradient_native[tensor];
    const int place = index->edge_place[i * TANDEM_MAX_INPUT + slot];
    const int id = place >= 0 && index->n_contribution[tensor] == 1 ? value_of(tensor, VALUE_GRADIENT, (int)type)
                                                                    : value_of(i, VALUE_CONTRIBUTION, slot);
    writes(step, t, id, tensor, type, output_bytes(graph, tensor, type));
}

static void resolve_wgrad(tandem_step *step, int i)
{
    const tandem_graph *graph = step->graph;
    const tandem_op *op = &graph->op[i];
    const tandem_op_row *row = tandem_op_row_get(op->kind);
    const int t = step->index->wgrad[i];
    const tandem_dtype from = wgrad_type(step, i);
    tandem_dtype to = TANDEM_F32;
    if (row->n_parameter == 0) to = step->index->gradient_native[graph->view[op->input[1]]];
    int x = -1;
    if (op->kind == TANDEM_OP_EMBEDDING)
        x = tandem_value_activation(step, op->input[0], TANDEM_S32);
    else if (row->saves & TANDEM_SAVES_INPUT)
        x = saved_input(step, i, 0, from);
    begin(&step->task[t], from, to, form_of(step, i, to));
    step->task[t].precision = step->precision[i];
    if (row->op_class != TANDEM_ADJUSTABLE) step->task[t].variant = from == TANDEM_BF16;
    if (x >= 0) reads(step, t, x);
    reads(step, t, tandem_value_gradient(step, i, from));
    if (row->n_parameter == 0)
        write_contribution(step, t, i, 1);
    else
        writes(step, t, TANDEM_PARAMETER(op->parameter[0]), i, to, 0);
}

static void read_backward_weight(tandem_step *step, int t, int i, tandem_dtype type)
{
    const tandem_dtype forward = tandem_precision_get(step->precision[i])->forward;
    if (type != TANDEM_F32 && type != forward)
        resolve_weight_cast(step, step->index->backward_weight_cast[i], type);
    reads(step, t, tandem_value_weight(step, i, type));
}

static void resolve_dgrad(tandem_step *step, int i)
{
    const tandem_graph *graph = step->graph;
    const tandem_op *op = &graph->op[i];
    const tandem_op_row *row = tandem_op_row_get(op->kind);
    const int t = step->index->dgrad[i];
    const tandem_dtype from = dgrad_type(step, i);
    const tandem_dtype to =
        row->op_class == TANDEM_FIXED ? TANDEM_F32 : step->index->gradient_native[graph->view[op->input[0]]];
    const int second = op->kind == TANDEM_OP_MATMUL ? saved_input(step, i, 1, from) : -1;
    tandem_task *task = &step->task[t];
    begin(task, from, to, form_of(step, i, to));
    task->precision = step->precision[i];
    if (op->kind == TANDEM_OP_CROSS_ENTROPY)
        reads(step, t, tandem_value_activation(step, op->input[1], TANDEM_S32));
    else
        reads(step, t, tandem_value_gradient(step, i, from));
    if (second >= 0)
        reads(step, t, second);
    else if (row->op_class == TANDEM_ADJUSTABLE)
        read_backward_weight(step, t, i, from);
    else if (row->saves & TANDEM_SAVES_INPUT)
        reads(step, t, tandem_value_activation(step, op->input[0], TANDEM_F32));
    if (row->saves & TANDEM_SAVES_OUTPUT) reads(step, t, tandem_value_activation(step, i, from));
    if (row->saves & TANDEM_SAVES_AUX) reads(step, t, tandem_value_aux(step, i));
    write_contribution(step, t, i, 0);
    if (row->wgrad != TANDEM_BACKWARD_BESIDE) return;
    reads(step, t, TANDEM_PARAMETER(op->parameter[0]));
    for (int j = 0; j < row->n_parameter; j++)
        writes(step, t, TANDEM_PARAMETER(op->parameter[j]), i, TANDEM_F32, 0);
}

/* The gradient that edge (consumer, slot) brings to its tensor, in the tensor's type. */
static int contribution(const tandem_step *step, int consumer, int slot, tandem_dtype type)
{
    const tandem_op *op = &step->graph->op[consumer];
    if (tandem_op_row_get(op->kind)->dgrad == TANDEM_BACKWARD_SAME)
        return tandem_value_gradient(step, consumer, type);
    return value_of(consumer, VALUE_CONTRIBUTION, slot);
}

/* Sums are chained in backward order: `so_far[tensor]` is the value of the sum up to the last contribution resolved. */
static void resolve_accumulate(tandem_step *step, int i, int slot, int *so_far)
{
    const tandem_graph *graph = step->graph;
    const struct tandem_step_index *index = step->index;
    const int edge = i * TANDEM_MAX_INPUT + slot;
    if (index->edge_place[edge] < 0) return;
    const int tensor = graph->view[graph->op[i].input[slot]];
    if (index->n_contribution[tensor] == 1) return;
    const tandem_dtype type = index->gradient_native[tensor];
    const int added = contribution(step, i, slot, type);
    if (index->edge_place[edge] == 0) {
        *so_far = added;
        return;
    }
    const int t = index->accumulate[edge];
    begin(&step->task[t], type, type, type == TANDEM_BF16);
    reads(step, t, *so_far);
    reads(step, t, added);
    const int is_last = index->edge_place[edge] == index->n_contribution[tensor] - 1;
    *so_far = is_last ? value_of(tensor, VALUE_GRADIENT, (int)type) : value_of(i, VALUE_PARTIAL, slot);
    writes(step, t, *so_far, tensor, type, output_bytes(graph, tensor, type));
}

static void resolve_backward(tandem_step *step, int i)
{
    const tandem_graph *graph = step->graph;
    const tandem_op *op = &graph->op[i];
    struct tandem_step_index *index = step->index;
    if (index->gradient_cast[i] >= 0)
        resolve_casts(step, index->gradient_cast[i], i, index->gradient_need[i], index->gradient_native[i], 1);
    if (index->wgrad[i] >= 0) resolve_wgrad(step, i);
    if (index->dgrad[i] >= 0) resolve_dgrad(step, i);
    const int n_input = tandem_op_row_get(op->kind)->n_input;
    for (int slot = 0; slot < n_input; slot++)
        if (op->kind != TANDEM_OP_RESHAPE)
            resolve_accumulate(step, i, slot, &index->sum_so_far[graph->view[op->input[slot]]]);
}

void tandem_step_resolve(tandem_step *step)
{
    const tandem_graph *graph = step->graph;
    const size_t n_op = (size_t)graph->n_op;
    for (int i = 0; i < graph->n_op; i++) step->native[i] = native_type(step, i);
    find_gradient_types(step);
    memset(step->index->activation_need, 0, n_op);
    memset(step->index->gradient_need, 0, n_op);
    for (int i = 0; i < graph->n_op; i++) find_needs_of(step, i);

    for (int t = 0; t < step->n_task; t++) step->task[t].active = 0;
    for (int v = 0; v < step->n_value; v++) step->value[v].bytes = 0;
    for (int i = 0; i < graph->n_op; i++) resolve_forward(step, i);
    for (int i = graph->n_op - 1; i >= 0; i--) resolve_backward(step, i);
    for (int b = 0; b < step->n_bucket; b++) {
        begin(&step->task[step->bucket[b].reduce_task], TANDEM_F32, TANDEM_F32, 0);
        begin(&step->task[step->bucket[b].update_task], TANDEM_F32, TANDEM_F32, 0);
    }
    if (step->n_bucket > 0) /* the first bucket takes the loss along */
        reads(step, step->bucket[0].reduce_task, tandem_value_activation(step, graph->loss, TANDEM_F32));
}
