/* resolve.c: what a choice of precisions makes of the step program: types, active tasks, values and their
 * lifetimes.
 *
 * A change is followed, never the whole graph: from the operators whose precision changed along the types
 * that they hand on; from the types to the needs and the units of tasks that depend on them (STALE_…); these
 * are taken out of the program and put in anew, and values that any of their tasks touches get their
 * lifetimes anew. A program that was just laid out is one in which everything is stale. */
#include <limits.h>

#include "graph/step/transposed_copy.h"
#include "graph/step/types.h"

/* --- Values by role ------------------------------------------------------------------------------------- */

int tandem_value_activation(const tandem_step *step, int tensor, tandem_dtype dtype)
{
    if (dtype == TANDEM_S32) dtype = TANDEM_F32; /* tokens and labels have one version */
    return step->graph->view[tensor] * VALUES_PER_OP + VALUE_ACTIVATION + (int)dtype;
}

int tandem_value_gradient(const tandem_step *step, int tensor, tandem_dtype dtype)
{
    return step->index->gradient_root[tensor] * VALUES_PER_OP + VALUE_GRADIENT + (int)dtype;
}

int tandem_value_weight(const tandem_step *step, int op, tandem_dtype dtype)
{
    if (dtype == TANDEM_F32) return TANDEM_PARAMETER(step->graph->op[op].parameter[0]);
    return step->graph->n_op * VALUES_PER_OP + op * WEIGHT_COPIES_PER_OP + (int)dtype - 1;
}

int tandem_value_aux(const tandem_step *step, int op)
{
    (void)step;
    return op * VALUES_PER_OP + VALUE_AUX;
}

static int value_id(int op, int role, int slot) { return op * VALUES_PER_OP + role + slot; }

/* Of those that are there only with micro-steps or segments. */
static int extra_value_id(const tandem_step *step, int op, int role, int slot)
{
    return step->graph->n_op * BASIC_VALUES_PER_OP + op * EXTRA_VALUES_PER_OP + role + slot;
}

/* Whether operator `op` is computed again; most programs have none, and need not look. */
static int is_op_recomputed(const tandem_step *step, int op)
{
    return step->n_recompute_segment > 1 && step->index->is_recomputed[op];
}

/* What the backward pass, or an operator that is computed again for it, reads as tensor `tensor`. */
static int saved_activation(const tandem_step *step, int tensor, tandem_dtype dtype)
{
    const int root = step->graph->view[tensor];
    if (is_op_recomputed(step, root)) return step_recomputed_value(step, root, dtype);
    return tandem_value_activation(step, tensor, dtype);
}

static int saved_aux(const tandem_step *step, int op)
{
    return is_op_recomputed(step, op) ? extra_value_id(step, op, EXTRA_AUX, 0) : tandem_value_aux(step, op);
}

/* --- Who reads what in which type ----------------------------------------------------------------------- */

/* Type in which a tensor's gradient is first written (writes_f32_gradient in types.h). */
static tandem_dtype gradient_dtype_of(const tandem_step *step, int t)
{
    return step->index->has_f32_contribution[t] ? TANDEM_F32 : step->output_dtype[t];
}

static unsigned dtype_bit(tandem_dtype dtype) { return 1u << dtype; }

static unsigned saved_output_dtypes(const tandem_step *step, int t)
{
    const int is_saved = step->index->dgrad[t] >= 0 && (op_row_of(step, t)->saves & TANDEM_SAVES_OUTPUT);
    return is_saved ? dtype_bit(dgrad_dtype_of(step, t)) : 0;
}

static unsigned find_reader_dtypes(const tandem_step *step, int t)
{
    const struct tandem_step_index *index = step->index;
    unsigned dtypes = 0;
    if (step->graph->op[t].dtype != TANDEM_F32) return 0;
    for (int k = index->reader_start[t]; k < index->reader_start[t + 1]; k++)
        dtypes |= dtype_bit(forward_dtype_of(step, index->reader[k]));
    return is_op_recomputed(step, t) ? dtypes : dtypes | saved_output_dtypes(step, t);
}

static unsigned find_recompute_dtypes(const tandem_step *step, int t)
{
    const struct tandem_step_index *index = step->index;
    if (!is_op_recomputed(step, t)) return 0;
    unsigned dtypes = saved_output_dtypes(step, t);
    for (int k = index->reader_start[t]; k < index->reader_start[t + 1]; k++) {
        const int i = index->reader[k];
        if (index->is_recomputed[i]) dtypes |= dtype_bit(forward_dtype_of(step, i));
        if (op_saves_tensor(step, i, t) && (index->wgrad[i] >= 0 || index->dgrad[i] >= 0))
            dtypes |= dtype_bit(saved_dtype_of(step, i));
    }
    return dtypes;
}

/* Types in which operator i reads the gradient of its output. */
static unsigned gradient_dtypes_read_by(const tandem_step *step, int i)
{
    const tandem_graph *graph = step->graph;
    const struct tandem_step_index *index = step->index;
    const tandem_op_row *row = op_row_of(step, i);
    unsigned dtypes = 0;
    if (graph->op[i].kind == TANDEM_OP_RESHAPE) return 0;
    if (index->dgrad[i] >= 0 && i != graph->loss) dtypes |= dtype_bit(dgrad_dtype_of(step, i));
    if (index->wgrad[i] >= 0) dtypes |= dtype_bit(wgrad_dtype_of(step, i));
    for (int slot = 0; slot < row->n_input && row->dgrad == TANDEM_GRAD_IDENTITY; slot++) {
        const int t = input_tensor_of(step, i, slot); /* passed on to a sum: read in the type of the sum */
        if (index->edge_position[i * TANDEM_MAX_INPUT + slot] >= 0 && index->n_contribution[t] > 1)
            dtypes |= dtype_bit(index->gradient_dtype[t]);
    }
    return dtypes;
}

static unsigned find_gradient_reader_dtypes(const tandem_step *step, int root)
{
    const struct tandem_step_index *index = step->index;
    unsigned dtypes = 0;
    for (int k = index->gradient_group_start[root]; k < index->gradient_group_start[root + 1]; k++)
        dtypes |= gradient_dtypes_read_by(step, index->gradient_group[k]);
    return dtypes;
}

/* --- Following a change --------------------------------------------------------------------------------- */

static void mark_dirty(struct tandem_step_index *index, int i, int what)
{
    if (!index->dirty[i]) index->dirty_op[index->n_dirty++] = i;
    index->dirty[i] |= (unsigned char)what;
}

static void mark_inputs_dirty(tandem_step *step, int i, int what)
{
    const int n_input = op_row_of(step, i)->n_input;
    for (int slot = 0; slot < n_input; slot++) mark_dirty(step->index, input_tensor_of(step, i, slot), what);
}

static void precision_changed(tandem_step *step, int i)
{
    step->index->resolved_precision[i] = step->precision[i];
    mark_dirty(step->index, i, DIRTY_FORWARD | DIRTY_BACKWARD);
    mark_dirty(step->index, step->index->gradient_root[i], DIRTY_GRADIENT_READER_DTYPES);
    mark_inputs_dirty(step, i, DIRTY_READER_DTYPES);
}

static void gradient_dtype_changed(tandem_step *step, int t)
{
    struct tandem_step_index *index = step->index;
    mark_dirty(index, t, DIRTY_GRADIENT_CASTS | DIRTY_GRADIENT_READER_DTYPES);
    for (int k = index->gradient_group_start[t]; k < index->gradient_group_start[t + 1]; k++) {
        const int i = index->gradient_group[k]; /* a bias sums it as it comes */
        if (op_row_of(step, i)->op_class == TANDEM_DEPENDENT && index->wgrad[i] >= 0)
            mark_dirty(index, i, DIRTY_BACKWARD);
    }
    for (int k = index->reader_start[t]; k < index->reader_start[t + 1]; k++) {
        const int i = index->reader[k];
        mark_dirty(index, i, DIRTY_BACKWARD | DIRTY_SUMS | DIRTY_READER_DTYPES);
        mark_dirty(index, index->gradient_root[i], DIRTY_GRADIENT_READER_DTYPES);
    }
}

static void output_dtype_changed(tandem_step *step, int i)
{
    const tandem_graph *graph = step->graph;
    struct tandem_step_index *index = step->index;
    mark_dirty(index, i, DIRTY_FORWARD | DIRTY_CASTS);
    if (op_row_of(step, i)->op_class == TANDEM_DEPENDENT) mark_inputs_dirty(step, i, DIRTY_READER_DTYPES);
    if (computes_both_input_grads(op_row_of(step, i))) { /* in its own type */
        mark_dirty(index, i, DIRTY_BACKWARD | DIRTY_READER_DTYPES);
        mark_dirty(index, index->gradient_root[i], DIRTY_GRADIENT_READER_DTYPES);
    }
    for (int k = graph->consumer_start[i]; k < graph->consumer_start[i + 1]; k++)
        if (op_row_of(step, graph->consumer[k])->op_class == TANDEM_DEPENDENT)
            mark_op_pending(index, graph->consumer[k]);
    const tandem_dtype type = gradient_dtype_of(step, i);
    if (type == index->gradient_dtype[i]) return;
    index->gradient_dtype[i] = type;
    gradient_dtype_changed(step, i);
}

/* Ascending: whatever an operator's type depends on has been followed before it. */
static void propagate_dtypes(tandem_step *step)
{
    struct tandem_step_index *index = step->index;
    for (int w = index->first_pending; w <= index->last_pending; w++)
        while (index->pending[w]) {
            const int i = w * WORD_BITS + __builtin_ctzll(index->pending[w]);
            index->pending[w] &= index->pending[w] - 1;
            if (step->precision[i] != index->resolved_precision[i]) precision_changed(step, i);
            const tandem_dtype type = output_dtype_of(step, i);
            if (type == step->output_dtype[i]) continue;
            step->output_dtype[i] = type;
            output_dtype_changed(step, i);
        }
    index->first_pending = INT_MAX;
    index->last_pending = -1;
}

static void update_reader_dtypes(tandem_step *step)
{
    struct tandem_step_index *index = step->index;
    for (int k = 0; k < index->n_dirty; k++) {
        const int i = index->dirty_op[k];
        if (index->dirty[i] & DIRTY_READER_DTYPES) {
            const unsigned char dtypes = (unsigned char)find_reader_dtypes(step, i),
                                recompute = (unsigned char)find_recompute_dtypes(step, i);
            if (dtypes != index->reader_dtypes[i] || recompute != index->recompute_dtypes[i])
                index->dirty[i] |= DIRTY_CASTS;
            index->reader_dtypes[i] = dtypes;
            index->recompute_dtypes[i] = recompute;
        }
        if (index->dirty[i] & DIRTY_GRADIENT_READER_DTYPES) {
            const unsigned char dtypes = (unsigned char)find_gradient_reader_dtypes(step, i);
            if (dtypes != index->gradient_reader_dtypes[i]) index->dirty[i] |= DIRTY_GRADIENT_CASTS;
            index->gradient_reader_dtypes[i] = dtypes;
        }
    }
}

/* --- Values and who reads them -------------------------------------------------------------------------- */

static void mark_lifetime_dirty(struct tandem_step_index *index, int v)
{
    if (index->lifetime_dirty[v]) return;
    index->lifetime_dirty[v] = 1;
    index->dirty_value[index->n_dirty_value++] = v;
}

static void add_reader(struct tandem_step_index *index, int v, int node)
{
    const int next = index->first_reader[v];
    index->reader_node[node] = (tandem_reader){.next = next, .previous = -1};
    if (next >= 0) index->reader_node[next].previous = node;
    index->first_reader[v] = node;
}

static void remove_reader(struct tandem_step_index *index, int v, int node)
{
    const tandem_reader reader = index->reader_node[node];
    if (reader.next >= 0) index->reader_node[reader.next].previous = reader.previous;
    if (reader.previous >= 0)
        index->reader_node[reader.previous].next = reader.next;
    else
        index->first_reader[v] = reader.next;
}

static void update_lifetimes(tandem_step *step)
{
    struct tandem_step_index *index = step->index;
    for (int k = 0; k < index->n_dirty_value; k++) {
        const int v = index->dirty_value[k];
        tandem_value *value = &step->value[v];
        index->lifetime_dirty[v] = 0;
        if (!value->bytes) {
            *value = (tandem_value){.bytes = 0};
            continue;
        }
        value->last = value->first;
        for (int node = index->first_reader[v]; node >= 0; node = index->reader_node[node].next)
            if (node / TANDEM_TASK_READS > value->last) value->last = node / TANDEM_TASK_READS;
    }
    index->n_dirty_value = 0;
}

/* --- Tasks ---------------------------------------------------------------------------------------------- */

static void activate_task(tandem_step *step, int t, tandem_dtype from, tandem_dtype to, int variant)
{
    struct tandem_step_index *index = step->index;
    tandem_task *task = &step->task[t];
    if (!task->active) index->touched[index->n_touched++] = t;
    index->active[t / WORD_BITS] |= (uint64_t)1 << t % WORD_BITS;
    task->active = 1;
    task->from = task->other_operand_dtype = from;
    task->to = to;
    task->variant = variant;
}

static void add_task_read(tandem_step *step, int t, int id)
{
    tandem_task *task = &step->task[t];
    const int k = task->n_read++;
    task->read[k] = id;
    if (id < 0) return;
    add_reader(step->index, id, t * TANDEM_TASK_READS + k);
    if (step->value[id].last < t) step->value[id].last = t;
}

static void add_task_write(tandem_step *step, int t, int id, int op, tandem_dtype dtype, uint64_t bytes)
{
    tandem_task *task = &step->task[t];
    task->write[task->n_write++] = id;
    if (id < 0) return;
    step->value[id] = (tandem_value){.op = op, .dtype = dtype, .bytes = bytes, .first = t, .last = t};
    mark_lifetime_dirty(step->index, id);
}

/* A task that is taken out has `active` = OUT until it is put in again, or for good. */
enum { DEACTIVATED = -1 };

static void deactivate_task(tandem_step *step, int t)
{
    struct tandem_step_index *index = step->index;
    if (t < 0 || !step->task[t].active) return;
    tandem_task *task = &step->task[t];
    for (int k = 0; k < task->n_read; k++) {
        const int v = task->read[k];
        task->read[k] = -1;
        if (v < 0) continue;
        remove_reader(index, v, t * TANDEM_TASK_READS + k);
        mark_lifetime_dirty(index, v);
    }
    for (int k = 0; k < task->n_write; k++) {
        const int v = task->write[k];
        task->write[k] = -1;
        if (v < 0) continue;
        step->value[v].bytes = 0;
        mark_lifetime_dirty(index, v);
    }
    task->n_read = task->n_write = 0;
    task->active = DEACTIVATED;
    index->touched[index->n_touched++] = t;
}

/* What is still out stays out, as it was laid out. */
static void reset_inactive_tasks(tandem_step *step)
{
    struct tandem_step_index *index = step->index;
    for (int k = 0; k < index->n_touched; k++) {
        const int t = index->touched[k];
        tandem_task *task = &step->task[t];
        if (task->active != DEACTIVATED) continue;
        index->active[t / WORD_BITS] &= ~((uint64_t)1 << t % WORD_BITS);
        task->active = 0;
        task->variant = 0;
        task->from = task->other_operand_dtype = TANDEM_F32;
        task->precision = TANDEM_PRECISION_FP32;
        if (task->kind != TANDEM_TASK_CAST && task->kind != TANDEM_TASK_GRADIENT_CAST) task->to = TANDEM_F32;
    }
}

/* Of a cast: value `id`, and its column-wise copy. */
static void add_cast_writes(tandem_step *step, int t, int id, int op, tandem_dtype dtype, uint64_t bytes)
{
    add_task_write(step, t, id, op, dtype, bytes);
    if (step_has_transposed_copy(step, id))
        add_task_write(step, t, step_transposed_copy(step, id), op, dtype, bytes);
}

static uint64_t output_bytes(const tandem_graph *graph, int op, tandem_dtype dtype)
{
    return (uint64_t)tandem_shape_elements(&graph->op[op].shape) * tandem_dtype_bytes(dtype);
}

static void resolve_weight_cast(tandem_step *step, int t, tandem_dtype to)
{
    tandem_task *task = &step->task[t];
    const int p = task->parameter;
    activate_task(step, t, TANDEM_F32, to, cast_variant(TANDEM_F32, to));
    add_task_read(step, t, TANDEM_PARAMETER(p));
    add_cast_writes(step, t, tandem_value_weight(step, task->op, to), task->op, to,
                    (uint64_t)step->graph->parameter[p].elements * tandem_dtype_bytes(to));
}

/* first_value: of the versions of what is cast. */
static void resolve_casts(tandem_step *step, int first_task, int tensor, unsigned dtypes,
                          tandem_dtype output_dtype, int first_value)
{
    for (unsigned wanted = dtypes & ~dtype_bit(output_dtype); wanted; wanted &= wanted - 1) {
        const int d = __builtin_ctz(wanted), t = first_task + d;
        const tandem_dtype to = (tandem_dtype)d;
        activate_task(step, t, output_dtype, to, cast_variant(output_dtype, to));
        add_task_read(step, t, first_value + (int)output_dtype);
        add_cast_writes(step, t, first_value + d, tensor, to, output_bytes(step->graph, tensor, to));
    }
}

/* Task t: the forward task of operator i, or the one that computes it again. */
static void resolve_forward_task(tandem_step *step, int i, int t)
{
    const tandem_graph *graph = step->graph;
    const tandem_op *op = &graph->op[i];
    const tandem_op_row *row = op_row_of(step, i);
    const tandem_dtype from = forward_dtype_of(step, i), to = step->output_dtype[i];
    const int recompute = t != step->index->forward[i];
    tandem_task *task = &step->task[t];
    activate_task(step, t, from, to, op_variant_of(step, i, to));
    task->precision = step->precision[i];
    for (int slot = 0; slot < row->n_input; slot++) {
        const int source = op->input[slot];
        const tandem_dtype type = graph->op[source].dtype == TANDEM_F32 ? from : TANDEM_S32;
        const int x =
            recompute ? saved_activation(step, source, type) : tandem_value_activation(step, source, type);
        add_task_read(step, t,
                      step_operand(step, i, TANDEM_PASS_FORWARD, slot ? OPERAND_OTHER : OPERAND_INPUT, x));
    }
    for (int j = 0; j < row->n_parameter; j++)
        add_task_read(step, t,
                      uses_cast_weight(row, op->kind)
                          ? step_operand(step, i, TANDEM_PASS_FORWARD, OPERAND_OTHER,
                                         tandem_value_weight(step, i, from))
                          : TANDEM_PARAMETER(op->parameter[j]));
    const tandem_dtype stored = op->dtype == TANDEM_F32 ? to : op->dtype;
    add_task_write(step, t,
                   recompute ? saved_activation(step, i, stored) : tandem_value_activation(step, i, stored),
                   i, stored, output_bytes(graph, i, stored));
    if (op->aux_bytes)
        add_task_write(step, t, recompute ? saved_aux(step, i) : tandem_value_aux(step, i), i, TANDEM_F32,
                       op->aux_bytes);
}

static void resolve_forward(tandem_step *step, int i)
{
    const struct tandem_step_index *index = step->index;
    const tandem_dtype from = forward_dtype_of(step, i);
    if (index->weight_cast[i] >= 0 && from != TANDEM_F32)
        resolve_weight_cast(step, index->weight_cast[i], from);
    resolve_forward_task(step, i, index->forward[i]);
    if (is_op_recomputed(step, i)) resolve_forward_task(step, i, index->recomputed_forward[i]);
}

/* The saved input of slot `slot` in the type of the backward pass: the version that was saved, or a restored
 * copy. */
static int saved_input(tandem_step *step, int i, int slot, tandem_dtype type)
{
    const tandem_graph *graph = step->graph;
    const int source = graph->op[i].input[slot];
    const tandem_dtype saved = tandem_precision_get(step->precision[i])->saved;
    const int kept = saved_activation(step, source, saved);
    if (saved == type) return kept;
    const int t = step->index->saved_cast[i] + slot;
    activate_task(step, t, saved, type, cast_variant(saved, type));
    add_task_read(step, t, kept);
    const int saved_cast = value_id(i, VALUE_SAVED_CAST, slot);
    add_task_write(step, t, saved_cast, i, type, output_bytes(graph, source, type));
    return saved_cast;
}

/* The gradient that edge (consumer, slot) brings to its tensor, in the tensor's type. */
static int contribution_value(const tandem_step *step, int consumer, int slot, tandem_dtype type)
{
    if (op_row_of(step, consumer)->dgrad == TANDEM_GRAD_IDENTITY)
        return tandem_value_gradient(step, consumer, type);
    return value_id(consumer, VALUE_CONTRIBUTION, slot);
}

/* Sums are chained in backward order: what an edge adds its part to is the part of the first edge, or the sum
 * up to the edge before it. */
static int partial_sum_before(const tandem_step *step, int edge, tandem_dtype type)
{
    const struct tandem_step_index *index = step->index;
    const int before = index->previous_edge[edge];
    const int consumer = before / TANDEM_MAX_INPUT, slot = before % TANDEM_MAX_INPUT;
    return index->edge_position[before] == 0 ? contribution_value(step, consumer, slot, type)
                                             : value_id(consumer, VALUE_PARTIAL, slot);
}

/* The sum up to edge (i, slot), the last of them the gradient itself. */
static void write_gradient_sum(tandem_step *step, int t, int i, int slot)
{
    const struct tandem_step_index *index = step->index;
    const int tensor = input_tensor_of(step, i, slot);
    const tandem_dtype type = index->gradient_dtype[tensor];
    const int is_last =
        index->edge_position[i * TANDEM_MAX_INPUT + slot] == index->n_contribution[tensor] - 1;
    add_task_write(step, t,
                   is_last ? value_id(tensor, VALUE_GRADIENT, (int)type) : value_id(i, VALUE_PARTIAL, slot),
                   tensor, type, output_bytes(step->graph, tensor, type));
}

/* Where operator i's dgrad (or wgrad of a matmul) puts the gradient of input `slot`, and in which type. Its
 * last read, where it adds to it, is the sum so far. */
static void write_contribution(tandem_step *step, int t, int i, int slot)
{
    const struct tandem_step_index *index = step->index;
    const int tensor = input_tensor_of(step, i, slot), edge = i * TANDEM_MAX_INPUT + slot;
    const tandem_dtype type = index->gradient_dtype[tensor];
    if (step->task[t].accumulate) {
        add_task_read(step, t, partial_sum_before(step, edge, type));
        write_gradient_sum(step, t, i, slot);
        return;
    }
    const int is_alone = index->edge_position[edge] >= 0 && index->n_contribution[tensor] == 1;
    add_task_write(step, t,
                   is_alone ? value_id(tensor, VALUE_GRADIENT, (int)type)
                            : value_id(i, VALUE_CONTRIBUTION, slot),
                   tensor, type, output_bytes(step->graph, tensor, type));
}

/* The gradient of parameter number j of operator i: where the step's is, or one of this micro-step. */
static void write_weight_gradient(tandem_step *step, int t, int i, int j)
{
    const int p = step->graph->op[i].parameter[j];
    if (step->options.n_micro == 1 || step->index->sum[i * TANDEM_MAX_PARAMETER + j] < 0)
        add_task_write(step, t, TANDEM_PARAMETER(p), i, TANDEM_F32, 0);
    else
        add_task_write(step, t, extra_value_id(step, i, EXTRA_WEIGHT_GRADIENT, j), i, TANDEM_F32,
                       (uint64_t)step->graph->parameter[p].elements * sizeof(float));
}

static void resolve_wgrad(tandem_step *step, int i)
{
    const tandem_graph *graph = step->graph;
    const tandem_op *op = &graph->op[i];
    const tandem_op_row *row = op_row_of(step, i);
    const int t = step->index->wgrad[i];
    const tandem_dtype from = wgrad_dtype_of(step, i);
    tandem_dtype to = TANDEM_F32;
    if (row->n_parameter == 0) to = step->index->gradient_dtype[input_tensor_of(step, i, 1)];
    int x = -1;
    if (op->kind == TANDEM_OP_EMBEDDING)
        x = tandem_value_activation(step, op->input[0], TANDEM_S32);
    else if (row->saves & TANDEM_SAVES_INPUT)
        x = saved_input(step, i, 0, other_operand_dtype_of(step, i));
    activate_task(step, t, from, to, op_variant_of(step, i, to));
    step->task[t].precision = step->precision[i];
    if (row->op_class == TANDEM_ADJUSTABLE)
        step->task[t].other_operand_dtype = other_operand_dtype_of(step, i);
    else
        step->task[t].variant = output_dtype_index(from);
    if (x >= 0) add_task_read(step, t, step_operand(step, i, TANDEM_PASS_WGRAD, OPERAND_INPUT, x));
    add_task_read(
        step, t,
        step_operand(step, i, TANDEM_PASS_WGRAD, OPERAND_GRADIENT, tandem_value_gradient(step, i, from)));
    if (row->n_parameter == 0)
        write_contribution(step, t, i, 1);
    else
        write_weight_gradient(step, t, i, 0);
}

static void read_backward_weight(tandem_step *step, int t, int i, tandem_dtype type)
{
    const tandem_dtype forward = tandem_precision_get(step->precision[i])->forward;
    if (type != TANDEM_F32 && type != forward)
        resolve_weight_cast(step, step->index->backward_weight_cast[i], type);
    add_task_read(
        step, t, step_operand(step, i, TANDEM_PASS_DGRAD, OPERAND_OTHER, tandem_value_weight(step, i, type)));
}

static void resolve_dgrad(tandem_step *step, int i)
{
    const tandem_graph *graph = step->graph;
    const tandem_op *op = &graph->op[i];
    const tandem_op_row *row = op_row_of(step, i);
    const int t = step->index->dgrad[i];
    const tandem_dtype from = dgrad_dtype_of(step, i);
    const tandem_dtype to = dgrad_output_dtype(step, i);
    const int other_operand_dtype =
        op->kind == TANDEM_OP_MATMUL ? saved_input(step, i, 1, other_operand_dtype_of(step, i)) : -1;
    tandem_task *task = &step->task[t];
    activate_task(step, t, from, to, dgrad_variant(step, i));
    task->precision = step->precision[i];
    if (row->op_class == TANDEM_ADJUSTABLE) task->other_operand_dtype = other_operand_dtype_of(step, i);
    if (computes_both_input_grads(row))
        task->other_operand_dtype = step->index->gradient_dtype[input_tensor_of(step, i, 1)];
    if (op->kind == TANDEM_OP_CROSS_ENTROPY)
        add_task_read(step, t, tandem_value_activation(step, op->input[1], TANDEM_S32));
    else
        add_task_read(step, t, tandem_value_gradient(step, i, from));
    if (other_operand_dtype >= 0)
        add_task_read(step, t, step_operand(step, i, TANDEM_PASS_DGRAD, OPERAND_OTHER, other_operand_dtype));
    else if (row->op_class == TANDEM_ADJUSTABLE)
        read_backward_weight(step, t, i, task->other_operand_dtype);
    else if (row->saves & TANDEM_SAVES_INPUT)
        add_task_read(step, t, saved_activation(step, op->input[0], from));
    if (row->saves & TANDEM_SAVES_OUTPUT) add_task_read(step, t, saved_activation(step, i, from));
    if (row->saves & TANDEM_SAVES_AUX) add_task_read(step, t, saved_aux(step, i));
    write_contribution(step, t, i, 0);
    if (computes_both_input_grads(row)) write_contribution(step, t, i, 1);
    if (row->wgrad != TANDEM_GRAD_FUSED) return;
    add_task_read(step, t, TANDEM_PARAMETER(op->parameter[0]));
    if (op->kind == TANDEM_OP_BATCHNORM_RELU) add_task_read(step, t, TANDEM_PARAMETER(op->parameter[1]));
    for (int j = 0; j < row->n_parameter; j++) write_weight_gradient(step, t, i, j);
}

static void resolve_accumulate(tandem_step *step, int i, int slot)
{
    const struct tandem_step_index *index = step->index;
    const int edge = i * TANDEM_MAX_INPUT + slot, t = index->accumulate_task[edge];
    if (t < 0) return;
    const tandem_dtype type = index->gradient_dtype[input_tensor_of(step, i, slot)];
    activate_task(step, t, type, type, output_dtype_index(type));
    add_task_read(step, t, contribution_value(step, i, slot, type));
    add_task_read(step, t, partial_sum_before(step, edge, type));
    write_gradient_sum(step, t, i, slot);
}

/* --- Units of tasks ------------------------------------------------------------------------------------- */

static void deactivate_casts(tandem_step *step, int first_task)
{
    if (first_task < 0) return;
    for (int t = next_active(step, first_task); t < first_task + TANDEM_N_STORAGE_DTYPE;
         t = next_active(step, t + 1))
        deactivate_task(step, t);
}

static void deactivate_units(tandem_step *step, int i, int dirty)
{
    const struct tandem_step_index *index = step->index;
    if (dirty & DIRTY_FORWARD) {
        deactivate_task(step, index->weight_cast[i]);
        deactivate_task(step, index->forward[i]);
        if (is_op_recomputed(step, i)) deactivate_task(step, index->recomputed_forward[i]);
    }
    if (dirty & DIRTY_CASTS) {
        deactivate_casts(step, index->cast[i]);
        if (is_op_recomputed(step, i)) deactivate_casts(step, index->recomputed_cast[i]);
    }
    if (dirty & DIRTY_GRADIENT_CASTS) deactivate_casts(step, index->gradient_cast[i]);
    if (dirty & DIRTY_BACKWARD) {
        const int n_input = op_row_of(step, i)->n_input;
        for (int slot = 0; slot < n_input && index->saved_cast[i] >= 0; slot++)
            deactivate_task(step, index->saved_cast[i] + slot);
        deactivate_task(step, index->backward_weight_cast[i]);
        deactivate_task(step, index->wgrad[i]);
        deactivate_task(step, index->dgrad[i]);
    }
    if (dirty & DIRTY_SUMS)
        for (int slot = 0; slot < TANDEM_MAX_INPUT; slot++)
            deactivate_task(step, index->accumulate_task[i * TANDEM_MAX_INPUT + slot]);
}

static void resolve_units(tandem_step *step, int i, int dirty)
{
    const struct tandem_step_index *index = step->index;
    if (dirty & DIRTY_FORWARD && index->forward[i] >= 0) resolve_forward(step, i);
    if (dirty & DIRTY_CASTS && index->cast[i] >= 0)
        resolve_casts(step, index->cast[i], i, index->reader_dtypes[i], step->output_dtype[i],
                      value_id(i, VALUE_ACTIVATION, 0));
    if (dirty & DIRTY_CASTS && is_op_recomputed(step, i))
        resolve_casts(step, index->recomputed_cast[i], i, index->recompute_dtypes[i], step->output_dtype[i],
                      step_recomputed_value(step, i, TANDEM_F32));
    if (dirty & DIRTY_GRADIENT_CASTS && index->gradient_cast[i] >= 0)
        resolve_casts(step, index->gradient_cast[i], i, index->gradient_reader_dtypes[i],
                      index->gradient_dtype[i], value_id(i, VALUE_GRADIENT, 0));
    if (dirty & DIRTY_BACKWARD && index->wgrad[i] >= 0) resolve_wgrad(step, i);
    if (dirty & DIRTY_BACKWARD && index->dgrad[i] >= 0) resolve_dgrad(step, i);
    for (int slot = 0; slot < TANDEM_MAX_INPUT && dirty & DIRTY_SUMS; slot++)
        resolve_accumulate(step, i, slot);
}

/* A task that every plan has, as it is: the buckets', and sums over micro-steps. */
static void resolve_fixed_task(tandem_step *step, int t)
{
    deactivate_task(step, t);
    activate_task(step, t, TANDEM_F32, TANDEM_F32, 0);
}

static void resolve_sums(tandem_step *step, int i)
{
    for (int j = 0; j < TANDEM_MAX_PARAMETER; j++) {
        const int t = step->index->sum[i * TANDEM_MAX_PARAMETER + j];
        if (t < 0) continue;
        resolve_fixed_task(step, t);
        add_task_read(step, t, extra_value_id(step, i, EXTRA_WEIGHT_GRADIENT, j));
        add_task_write(step, t, TANDEM_PARAMETER(step->task[t].parameter), i, TANDEM_F32, 0);
    }
}

/* First all that is stale goes out, so that what one unit no longer writes another may. */
static void resolve_dirty(tandem_step *step)
{
    struct tandem_step_index *index = step->index;
    update_reader_dtypes(step);
    for (int k = 0; k < index->n_dirty; k++)
        deactivate_units(step, index->dirty_op[k], index->dirty[index->dirty_op[k]]);
    for (int k = 0; k < index->n_dirty; k++) {
        const int i = index->dirty_op[k];
        resolve_units(step, i, index->dirty[i]);
        index->dirty[i] = 0;
    }
    index->n_dirty = 0;
    reset_inactive_tasks(step);
    update_lifetimes(step);
}

void tandem_step_resolve(tandem_step *step)
{
    step->index->n_touched = 0;
    propagate_dtypes(step);
    resolve_dirty(step);
}

void tandem_step_resolve_all(tandem_step *step)
{
    struct tandem_step_index *index = step->index;
    index->n_touched = 0;
    for (int i = 0; i < step->graph->n_op; i++) {
        step->output_dtype[i] = output_dtype_of(step, i);
        index->gradient_dtype[i] = gradient_dtype_of(step, i);
        index->resolved_precision[i] = step->precision[i];
        mark_dirty(index, i, DIRTY_ALL);
        resolve_sums(step, i);
    }
    for (int b = 0; b < step->n_bucket; b++) {
        resolve_fixed_task(step, step->bucket[b].reduce_task);
        resolve_fixed_task(step, step->bucket[b].update_task);
    }
    if (step->norm_task >= 0) resolve_fixed_task(step, step->norm_task);
    if (step->n_bucket > 0) /* the first bucket takes the loss along */
        add_task_read(step, step->bucket[0].reduce_task,
                      tandem_value_activation(step, step->graph->loss, TANDEM_F32));
    resolve_dirty(step);
}
