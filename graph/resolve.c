/* resolve.c: what a choice of precisions makes of the step program: types, active tasks, values and their
 * lifetimes.
 *
 * A change is followed, never the whole graph: from the operators whose precision changed along the types
 * that they hand on; from the types to the needs and the units of tasks that depend on them (STALE_…); these
 * are taken out of the program and put in anew, and values that any of their tasks touches get their
 * lifetimes anew. A program that was just laid out is one in which everything is stale. */
#include <limits.h>

#include "graph/columnwise.h"
#include "graph/types.h"

/* --- Values by role ------------------------------------------------------------------------------------- */

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

/* Of those that are there only with micro-steps or segments. */
static int more_of(const tandem_step *step, int op, int role, int slot)
{
    return step->graph->n_op * FIRST_MORE + op * MORE_AN_OP + role + slot;
}

/* Whether operator `op` is computed again; most programs have none, and need not look. */
static int is_again(const tandem_step *step, int op)
{
    return step->n_segment > 1 && step->index->is_again[op];
}

/* What the backward pass, or an operator that is computed again for it, reads as tensor `tensor`. */
static int saved_activation(const tandem_step *step, int tensor, tandem_dtype dtype)
{
    const int root = step->graph->view[tensor];
    if (is_again(step, root)) return step_value_again(step, root, dtype);
    return tandem_value_activation(step, tensor, dtype);
}

static int saved_aux(const tandem_step *step, int op)
{
    return is_again(step, op) ? more_of(step, op, MORE_AUX, 0) : tandem_value_aux(step, op);
}

/* --- Who reads what in which type ----------------------------------------------------------------------- */

/* Type in which a tensor's gradient is first written (brings_f32_gradient in types.h). */
static tandem_dtype gradient_type(const tandem_step *step, int t)
{
    return step->index->fixed_reader[t] ? TANDEM_F32 : step->native[t];
}

static unsigned bit(tandem_dtype dtype) { return 1u << dtype; }

static unsigned saved_output_need(const tandem_step *step, int t)
{
    const int is_saved = step->index->dgrad[t] >= 0 && (row_of(step, t)->saves & TANDEM_SAVES_OUTPUT);
    return is_saved ? bit(dgrad_type(step, t)) : 0;
}

static unsigned activation_need(const tandem_step *step, int t)
{
    const struct tandem_step_index *index = step->index;
    unsigned need = 0;
    if (step->graph->op[t].dtype != TANDEM_F32) return 0;
    for (int k = index->reader_start[t]; k < index->reader_start[t + 1]; k++)
        need |= bit(operand_type(step, index->reader[k]));
    return is_again(step, t) ? need : need | saved_output_need(step, t);
}

static unsigned again_need(const tandem_step *step, int t)
{
    const struct tandem_step_index *index = step->index;
    if (!is_again(step, t)) return 0;
    unsigned need = saved_output_need(step, t);
    for (int k = index->reader_start[t]; k < index->reader_start[t + 1]; k++) {
        const int i = index->reader[k];
        if (index->is_again[i]) need |= bit(operand_type(step, i));
        if (step_saves(step, i, t) && (index->wgrad[i] >= 0 || index->dgrad[i] >= 0))
            need |= bit(saved_type(step, i));
    }
    return need;
}

/* Types in which operator i reads the gradient of its output. */
static unsigned gradient_need_of(const tandem_step *step, int i)
{
    const tandem_graph *graph = step->graph;
    const struct tandem_step_index *index = step->index;
    const tandem_op_row *row = row_of(step, i);
    unsigned need = 0;
    if (graph->op[i].kind == TANDEM_OP_RESHAPE) return 0;
    if (index->dgrad[i] >= 0 && i != graph->loss) need |= bit(dgrad_type(step, i));
    if (index->wgrad[i] >= 0) need |= bit(wgrad_type(step, i));
    for (int slot = 0; slot < row->n_input && row->dgrad == TANDEM_BACKWARD_SAME; slot++) {
        const int t = source_of(step, i, slot); /* passed on to a sum: read in the type of the sum */
        if (index->edge_place[i * TANDEM_MAX_INPUT + slot] >= 0 && index->n_contribution[t] > 1)
            need |= bit(index->gradient_native[t]);
    }
    return need;
}

static unsigned gradient_need(const tandem_step *step, int root)
{
    const struct tandem_step_index *index = step->index;
    unsigned need = 0;
    for (int k = index->member_start[root]; k < index->member_start[root + 1]; k++)
        need |= gradient_need_of(step, index->member[k]);
    return need;
}

/* --- Following a change --------------------------------------------------------------------------------- */

static void mark(struct tandem_step_index *index, int i, int what)
{
    if (!index->stale[i]) index->stale_op[index->n_stale++] = i;
    index->stale[i] |= (unsigned char)what;
}

static void mark_inputs(tandem_step *step, int i, int what)
{
    const int n_input = row_of(step, i)->n_input;
    for (int slot = 0; slot < n_input; slot++) mark(step->index, source_of(step, i, slot), what);
}

static void precision_changed(tandem_step *step, int i)
{
    step->index->resolved[i] = step->precision[i];
    mark(step->index, i, STALE_FORWARD | STALE_BACKWARD);
    mark(step->index, step->index->gradient_root[i], STALE_GRADIENT_NEED);
    mark_inputs(step, i, STALE_NEED);
}

static void gradient_type_changed(tandem_step *step, int t)
{
    struct tandem_step_index *index = step->index;
    mark(index, t, STALE_GRADIENT_CASTS | STALE_GRADIENT_NEED);
    for (int k = index->member_start[t]; k < index->member_start[t + 1]; k++) {
        const int i = index->member[k]; /* a bias sums it as it comes */
        if (row_of(step, i)->op_class == TANDEM_DEPENDENT && index->wgrad[i] >= 0)
            mark(index, i, STALE_BACKWARD);
    }
    for (int k = index->reader_start[t]; k < index->reader_start[t + 1]; k++) {
        const int i = index->reader[k];
        mark(index, i, STALE_BACKWARD | STALE_SUMS | STALE_NEED);
        mark(index, index->gradient_root[i], STALE_GRADIENT_NEED);
    }
}

static void type_changed(tandem_step *step, int i)
{
    const tandem_graph *graph = step->graph;
    struct tandem_step_index *index = step->index;
    mark(index, i, STALE_FORWARD | STALE_CASTS);
    if (row_of(step, i)->op_class == TANDEM_DEPENDENT) mark_inputs(step, i, STALE_NEED);
    if (brings_both(row_of(step, i))) { /* in its own type */
        mark(index, i, STALE_BACKWARD | STALE_NEED);
        mark(index, index->gradient_root[i], STALE_GRADIENT_NEED);
    }
    for (int k = graph->consumer_start[i]; k < graph->consumer_start[i + 1]; k++)
        if (row_of(step, graph->consumer[k])->op_class == TANDEM_DEPENDENT)
            step_note(index, graph->consumer[k]);
    const tandem_dtype type = gradient_type(step, i);
    if (type == index->gradient_native[i]) return;
    index->gradient_native[i] = type;
    gradient_type_changed(step, i);
}

/* Ascending: whatever an operator's type depends on has been followed before it. */
static void follow(tandem_step *step)
{
    struct tandem_step_index *index = step->index;
    for (int w = index->first_pending; w <= index->last_pending; w++)
        while (index->pending[w]) {
            const int i = w * WORD_BITS + __builtin_ctzll(index->pending[w]);
            index->pending[w] &= index->pending[w] - 1;
            if (step->precision[i] != index->resolved[i]) precision_changed(step, i);
            const tandem_dtype type = native_type(step, i);
            if (type == step->native[i]) continue;
            step->native[i] = type;
            type_changed(step, i);
        }
    index->first_pending = INT_MAX;
    index->last_pending = -1;
}

static void gather_needs(tandem_step *step)
{
    struct tandem_step_index *index = step->index;
    for (int k = 0; k < index->n_stale; k++) {
        const int i = index->stale_op[k];
        if (index->stale[i] & STALE_NEED) {
            const unsigned char need = (unsigned char)activation_need(step, i),
                                again = (unsigned char)again_need(step, i);
            if (need != index->activation_need[i] || again != index->again_need[i])
                index->stale[i] |= STALE_CASTS;
            index->activation_need[i] = need;
            index->again_need[i] = again;
        }
        if (index->stale[i] & STALE_GRADIENT_NEED) {
            const unsigned char need = (unsigned char)gradient_need(step, i);
            if (need != index->gradient_need[i]) index->stale[i] |= STALE_GRADIENT_CASTS;
            index->gradient_need[i] = need;
        }
    }
}

/* --- Values and who reads them -------------------------------------------------------------------------- */

static void loosen(struct tandem_step_index *index, int v)
{
    if (index->is_loose[v]) return;
    index->is_loose[v] = 1;
    index->loose[index->n_loose++] = v;
}

static void add_reader(struct tandem_step_index *index, int v, int place)
{
    const int next = index->first_reader[v];
    index->read_place[place] = (tandem_reader){.next = next, .before = -1};
    if (next >= 0) index->read_place[next].before = place;
    index->first_reader[v] = place;
}

static void remove_reader(struct tandem_step_index *index, int v, int place)
{
    const tandem_reader reader = index->read_place[place];
    if (reader.next >= 0) index->read_place[reader.next].before = reader.before;
    if (reader.before >= 0)
        index->read_place[reader.before].next = reader.next;
    else
        index->first_reader[v] = reader.next;
}

static void settle_lifetimes(tandem_step *step)
{
    struct tandem_step_index *index = step->index;
    for (int k = 0; k < index->n_loose; k++) {
        const int v = index->loose[k];
        tandem_value *value = &step->value[v];
        index->is_loose[v] = 0;
        if (!value->bytes) {
            *value = (tandem_value){.bytes = 0};
            continue;
        }
        value->last = value->first;
        for (int place = index->first_reader[v]; place >= 0; place = index->read_place[place].next)
            if (place / TANDEM_TASK_READS > value->last) value->last = place / TANDEM_TASK_READS;
    }
    index->n_loose = 0;
}

/* --- Tasks ---------------------------------------------------------------------------------------------- */

static void begin(tandem_step *step, int t, tandem_dtype from, tandem_dtype to, int variant)
{
    struct tandem_step_index *index = step->index;
    tandem_task *task = &step->task[t];
    if (!task->active) index->touched[index->n_touched++] = t;
    index->active[t / WORD_BITS] |= (uint64_t)1 << t % WORD_BITS;
    task->active = 1;
    task->from = task->second = from;
    task->to = to;
    task->variant = variant;
}

static void reads(tandem_step *step, int t, int id)
{
    tandem_task *task = &step->task[t];
    const int k = task->n_read++;
    task->read[k] = id;
    if (id < 0) return;
    add_reader(step->index, id, t * TANDEM_TASK_READS + k);
    if (step->value[id].last < t) step->value[id].last = t;
}

static void writes(tandem_step *step, int t, int id, int op, tandem_dtype dtype, uint64_t bytes)
{
    tandem_task *task = &step->task[t];
    task->write[task->n_write++] = id;
    if (id < 0) return;
    step->value[id] = (tandem_value){.op = op, .dtype = dtype, .bytes = bytes, .first = t, .last = t};
    loosen(step->index, id);
}

/* A task that is taken out has `active` = OUT until it is put in again, or for good. */
enum { OUT = -1 };

static void take_out(tandem_step *step, int t)
{
    struct tandem_step_index *index = step->index;
    if (t < 0 || !step->task[t].active) return;
    tandem_task *task = &step->task[t];
    for (int k = 0; k < task->n_read; k++) {
        const int v = task->read[k];
        task->read[k] = -1;
        if (v < 0) continue;
        remove_reader(index, v, t * TANDEM_TASK_READS + k);
        loosen(index, v);
    }
    for (int k = 0; k < task->n_write; k++) {
        const int v = task->write[k];
        task->write[k] = -1;
        if (v < 0) continue;
        step->value[v].bytes = 0;
        loosen(index, v);
    }
    task->n_read = task->n_write = 0;
    task->active = OUT;
    index->touched[index->n_touched++] = t;
}

/* What is still out stays out, as it was laid out. */
static void leave_out(tandem_step *step)
{
    struct tandem_step_index *index = step->index;
    for (int k = 0; k < index->n_touched; k++) {
        const int t = index->touched[k];
        tandem_task *task = &step->task[t];
        if (task->active != OUT) continue;
        index->active[t / WORD_BITS] &= ~((uint64_t)1 << t % WORD_BITS);
        task->active = 0;
        task->variant = 0;
        task->from = task->second = TANDEM_F32;
        task->precision = TANDEM_PRECISION_FP32;
        if (task->kind != TANDEM_TASK_CAST && task->kind != TANDEM_TASK_GRADIENT_CAST) task->to = TANDEM_F32;
    }
}

/* Of a cast: value `id`, and its column-wise copy. */
static void writes_cast(tandem_step *step, int t, int id, int op, tandem_dtype dtype, uint64_t bytes)
{
    writes(step, t, id, op, dtype, bytes);
    if (step_has_columns(step, id)) writes(step, t, step_columnwise(step, id), op, dtype, bytes);
}

static uint64_t output_bytes(const tandem_graph *graph, int op, tandem_dtype dtype)
{
    return (uint64_t)tandem_shape_elements(&graph->op[op].shape) * tandem_dtype_bytes(dtype);
}

static void resolve_weight_cast(tandem_step *step, int t, tandem_dtype to)
{
    tandem_task *task = &step->task[t];
    const int p = task->parameter;
    begin(step, t, TANDEM_F32, to, cast_form(TANDEM_F32, to));
    reads(step, t, TANDEM_PARAMETER(p));
    writes_cast(step, t, tandem_value_weight(step, task->op, to), task->op, to,
                (uint64_t)step->graph->parameter[p].elements * tandem_dtype_bytes(to));
}

/* first_value: of the versions of what is cast. */
static void resolve_casts(tandem_step *step, int first_task, int tensor, unsigned need, tandem_dtype native,
                          int first_value)
{
    for (unsigned wanted = need & ~bit(native); wanted; wanted &= wanted - 1) {
        const int d = __builtin_ctz(wanted), t = first_task + d;
        const tandem_dtype to = (tandem_dtype)d;
        begin(step, t, native, to, cast_form(native, to));
        reads(step, t, first_value + (int)native);
        writes_cast(step, t, first_value + d, tensor, to, output_bytes(step->graph, tensor, to));
    }
}

/* Task t: the forward task of operator i, or the one that computes it again. */
static void resolve_forward_task(tandem_step *step, int i, int t)
{
    const tandem_graph *graph = step->graph;
    const tandem_op *op = &graph->op[i];
    const tandem_op_row *row = row_of(step, i);
    const tandem_dtype from = operand_type(step, i), to = step->native[i];
    const int again = t != step->index->forward[i];
    tandem_task *task = &step->task[t];
    begin(step, t, from, to, form_of(step, i, to));
    task->precision = step->precision[i];
    for (int slot = 0; slot < row->n_input; slot++) {
        const int source = op->input[slot];
        const tandem_dtype type = graph->op[source].dtype == TANDEM_F32 ? from : TANDEM_S32;
        const int x =
            again ? saved_activation(step, source, type) : tandem_value_activation(step, source, type);
        reads(step, t, step_operand(step, i, TANDEM_PASS_FORWARD, slot ? OPERAND_SECOND : OPERAND_INPUT, x));
    }
    for (int j = 0; j < row->n_parameter; j++)
        reads(step, t,
              reads_copy(row, op->kind) ? step_operand(step, i, TANDEM_PASS_FORWARD, OPERAND_SECOND,
                                                       tandem_value_weight(step, i, from))
                                        : TANDEM_PARAMETER(op->parameter[j]));
    const tandem_dtype stored = op->dtype == TANDEM_F32 ? to : op->dtype;
    writes(step, t, again ? saved_activation(step, i, stored) : tandem_value_activation(step, i, stored), i,
           stored, output_bytes(graph, i, stored));
    if (op->aux_bytes)
        writes(step, t, again ? saved_aux(step, i) : tandem_value_aux(step, i), i, TANDEM_F32, op->aux_bytes);
}

static void resolve_forward(tandem_step *step, int i)
{
    const struct tandem_step_index *index = step->index;
    const tandem_dtype from = operand_type(step, i);
    if (index->weight_cast[i] >= 0 && from != TANDEM_F32)
        resolve_weight_cast(step, index->weight_cast[i], from);
    resolve_forward_task(step, i, index->forward[i]);
    if (is_again(step, i)) resolve_forward_task(step, i, index->forward_again[i]);
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
    const int t = step->index->restore[i] + slot;
    begin(step, t, saved, type, cast_form(saved, type));
    reads(step, t, kept);
    const int restored = value_of(i, VALUE_RESTORED, slot);
    writes(step, t, restored, i, type, output_bytes(graph, source, type));
    return restored;
}

/* The gradient that edge (consumer, slot) brings to its tensor, in the tensor's type. */
static int contribution(const tandem_step *step, int consumer, int slot, tandem_dtype type)
{
    if (row_of(step, consumer)->dgrad == TANDEM_BACKWARD_SAME)
        return tandem_value_gradient(step, consumer, type);
    return value_of(consumer, VALUE_CONTRIBUTION, slot);
}

/* Sums are chained in backward order: what an edge adds its part to is the part of the first edge, or the sum
 * up to the edge before it. */
static int sum_before(const tandem_step *step, int edge, tandem_dtype type)
{
    const struct tandem_step_index *index = step->index;
    const int before = index->edge_before[edge];
    const int consumer = before / TANDEM_MAX_INPUT, slot = before % TANDEM_MAX_INPUT;
    return index->edge_place[before] == 0 ? contribution(step, consumer, slot, type)
                                          : value_of(consumer, VALUE_PARTIAL, slot);
}

/* The sum up to edge (i, slot), the last of them the gradient itself. */
static void write_sum(tandem_step *step, int t, int i, int slot)
{
    const struct tandem_step_index *index = step->index;
    const int tensor = source_of(step, i, slot);
    const tandem_dtype type = index->gradient_native[tensor];
    const int is_last = index->edge_place[i * TANDEM_MAX_INPUT + slot] == index->n_contribution[tensor] - 1;
    writes(step, t, is_last ? value_of(tensor, VALUE_GRADIENT, (int)type) : value_of(i, VALUE_PARTIAL, slot),
           tensor, type, output_bytes(step->graph, tensor, type));
}

/* Where operator i's dgrad (or wgrad of a matmul) puts the gradient of input `slot`, and in which type. Its
 * last read, where it adds to it, is the sum so far. */
static void write_contribution(tandem_step *step, int t, int i, int slot)
{
    const struct tandem_step_index *index = step->index;
    const int tensor = source_of(step, i, slot), edge = i * TANDEM_MAX_INPUT + slot;
    const tandem_dtype type = index->gradient_native[tensor];
    if (step->task[t].adds) {
        reads(step, t, sum_before(step, edge, type));
        write_sum(step, t, i, slot);
        return;
    }
    const int is_alone = index->edge_place[edge] >= 0 && index->n_contribution[tensor] == 1;
    writes(step, t,
           is_alone ? value_of(tensor, VALUE_GRADIENT, (int)type) : value_of(i, VALUE_CONTRIBUTION, slot),
           tensor, type, output_bytes(step->graph, tensor, type));
}

/* The gradient of parameter number j of operator i: where the step's is, or one of this micro-step. */
static void write_weight_gradient(tandem_step *step, int t, int i, int j)
{
    const int p = step->graph->op[i].parameter[j];
    if (step->options.n_micro == 1 || step->index->sum[i * TANDEM_MAX_PARAMETER + j] < 0)
        writes(step, t, TANDEM_PARAMETER(p), i, TANDEM_F32, 0);
    else
        writes(step, t, more_of(step, i, MORE_WEIGHT_GRADIENT, j), i, TANDEM_F32,
               (uint64_t)step->graph->parameter[p].elements * sizeof(float));
}

static void resolve_wgrad(tandem_step *step, int i)
{
    const tandem_graph *graph = step->graph;
    const tandem_op *op = &graph->op[i];
    const tandem_op_row *row = row_of(step, i);
    const int t = step->index->wgrad[i];
    const tandem_dtype from = wgrad_type(step, i);
    tandem_dtype to = TANDEM_F32;
    if (row->n_parameter == 0) to = step->index->gradient_native[source_of(step, i, 1)];
    int x = -1;
    if (op->kind == TANDEM_OP_EMBEDDING)
        x = tandem_value_activation(step, op->input[0], TANDEM_S32);
    else if (row->saves & TANDEM_SAVES_INPUT)
        x = saved_input(step, i, 0, second_type(step, i));
    begin(step, t, from, to, form_of(step, i, to));
    step->task[t].precision = step->precision[i];
    if (row->op_class == TANDEM_ADJUSTABLE)
        step->task[t].second = second_type(step, i);
    else
        step->task[t].variant = native_place(from);
    if (x >= 0) reads(step, t, step_operand(step, i, TANDEM_PASS_WGRAD, OPERAND_INPUT, x));
    reads(step, t,
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
    reads(step, t,
          step_operand(step, i, TANDEM_PASS_DGRAD, OPERAND_SECOND, tandem_value_weight(step, i, type)));
}

static void resolve_dgrad(tandem_step *step, int i)
{
    const tandem_graph *graph = step->graph;
    const tandem_op *op = &graph->op[i];
    const tandem_op_row *row = row_of(step, i);
    const int t = step->index->dgrad[i];
    const tandem_dtype from = dgrad_type(step, i);
    const tandem_dtype to = brought_type(step, i);
    const int second = op->kind == TANDEM_OP_MATMUL ? saved_input(step, i, 1, second_type(step, i)) : -1;
    tandem_task *task = &step->task[t];
    begin(step, t, from, to, dgrad_form(step, i));
    task->precision = step->precision[i];
    if (row->op_class == TANDEM_ADJUSTABLE) task->second = second_type(step, i);
    if (brings_both(row)) task->second = step->index->gradient_native[source_of(step, i, 1)];
    if (op->kind == TANDEM_OP_CROSS_ENTROPY)
        reads(step, t, tandem_value_activation(step, op->input[1], TANDEM_S32));
    else
        reads(step, t, tandem_value_gradient(step, i, from));
    if (second >= 0)
        reads(step, t, step_operand(step, i, TANDEM_PASS_DGRAD, OPERAND_SECOND, second));
    else if (row->op_class == TANDEM_ADJUSTABLE)
        read_backward_weight(step, t, i, task->second);
    else if (row->saves & TANDEM_SAVES_INPUT)
        reads(step, t, saved_activation(step, op->input[0], from));
    if (row->saves & TANDEM_SAVES_OUTPUT) reads(step, t, saved_activation(step, i, from));
    if (row->saves & TANDEM_SAVES_AUX) reads(step, t, saved_aux(step, i));
    write_contribution(step, t, i, 0);
    if (brings_both(row)) write_contribution(step, t, i, 1);
    if (row->wgrad != TANDEM_BACKWARD_BESIDE) return;
    reads(step, t, TANDEM_PARAMETER(op->parameter[0]));
    if (op->kind == TANDEM_OP_BATCHNORM_RELU) reads(step, t, TANDEM_PARAMETER(op->parameter[1]));
    for (int j = 0; j < row->n_parameter; j++) write_weight_gradient(step, t, i, j);
}

static void resolve_accumulate(tandem_step *step, int i, int slot)
{
    const struct tandem_step_index *index = step->index;
    const int edge = i * TANDEM_MAX_INPUT + slot, t = index->accumulate[edge];
    if (t < 0) return;
    const tandem_dtype type = index->gradient_native[source_of(step, i, slot)];
    begin(step, t, type, type, native_place(type));
    reads(step, t, contribution(step, i, slot, type));
    reads(step, t, sum_before(step, edge, type));
    write_sum(step, t, i, slot);
}

/* --- Units of tasks ------------------------------------------------------------------------------------- */

static void take_out_casts(tandem_step *step, int first_task)
{
    if (first_task < 0) return;
    for (int t = next_active(step, first_task); t < first_task + TANDEM_N_VERSION;
         t = next_active(step, t + 1))
        take_out(step, t);
}

static void take_out_units(tandem_step *step, int i, int stale)
{
    const struct tandem_step_index *index = step->index;
    if (stale & STALE_FORWARD) {
        take_out(step, index->weight_cast[i]);
        take_out(step, index->forward[i]);
        if (is_again(step, i)) take_out(step, index->forward_again[i]);
    }
    if (stale & STALE_CASTS) {
        take_out_casts(step, index->cast[i]);
        if (is_again(step, i)) take_out_casts(step, index->cast_again[i]);
    }
    if (stale & STALE_GRADIENT_CASTS) take_out_casts(step, index->gradient_cast[i]);
    if (stale & STALE_BACKWARD) {
        const int n_input = row_of(step, i)->n_input;
        for (int slot = 0; slot < n_input && index->restore[i] >= 0; slot++)
            take_out(step, index->restore[i] + slot);
        take_out(step, index->backward_weight_cast[i]);
        take_out(step, index->wgrad[i]);
        take_out(step, index->dgrad[i]);
    }
    if (stale & STALE_SUMS)
        for (int slot = 0; slot < TANDEM_MAX_INPUT; slot++)
            take_out(step, index->accumulate[i * TANDEM_MAX_INPUT + slot]);
}

static void resolve_units(tandem_step *step, int i, int stale)
{
    const struct tandem_step_index *index = step->index;
    if (stale & STALE_FORWARD && index->forward[i] >= 0) resolve_forward(step, i);
    if (stale & STALE_CASTS && index->cast[i] >= 0)
        resolve_casts(step, index->cast[i], i, index->activation_need[i], step->native[i],
                      value_of(i, VALUE_ACTIVATION, 0));
    if (stale & STALE_CASTS && is_again(step, i))
        resolve_casts(step, index->cast_again[i], i, index->again_need[i], step->native[i],
                      step_value_again(step, i, TANDEM_F32));
    if (stale & STALE_GRADIENT_CASTS && index->gradient_cast[i] >= 0)
        resolve_casts(step, index->gradient_cast[i], i, index->gradient_need[i], index->gradient_native[i],
                      value_of(i, VALUE_GRADIENT, 0));
    if (stale & STALE_BACKWARD && index->wgrad[i] >= 0) resolve_wgrad(step, i);
    if (stale & STALE_BACKWARD && index->dgrad[i] >= 0) resolve_dgrad(step, i);
    for (int slot = 0; slot < TANDEM_MAX_INPUT && stale & STALE_SUMS; slot++)
        resolve_accumulate(step, i, slot);
}

/* A task that every plan has, as it is: the buckets', and sums over micro-steps. */
static void resolve_fixed_task(tandem_step *step, int t)
{
    take_out(step, t);
    begin(step, t, TANDEM_F32, TANDEM_F32, 0);
}

static void resolve_sums(tandem_step *step, int i)
{
    for (int j = 0; j < TANDEM_MAX_PARAMETER; j++) {
        const int t = step->index->sum[i * TANDEM_MAX_PARAMETER + j];
        if (t < 0) continue;
        resolve_fixed_task(step, t);
        reads(step, t, more_of(step, i, MORE_WEIGHT_GRADIENT, j));
        writes(step, t, TANDEM_PARAMETER(step->task[t].parameter), i, TANDEM_F32, 0);
    }
}

/* First all that is stale goes out, so that what one unit no longer writes another may. */
static void resolve_stale(tandem_step *step)
{
    struct tandem_step_index *index = step->index;
    gather_needs(step);
    for (int k = 0; k < index->n_stale; k++)
        take_out_units(step, index->stale_op[k], index->stale[index->stale_op[k]]);
    for (int k = 0; k < index->n_stale; k++) {
        const int i = index->stale_op[k];
        resolve_units(step, i, index->stale[i]);
        index->stale[i] = 0;
    }
    index->n_stale = 0;
    leave_out(step);
    settle_lifetimes(step);
}

void tandem_step_resolve(tandem_step *step)
{
    step->index->n_touched = 0;
    follow(step);
    resolve_stale(step);
}

void tandem_step_resolve_all(tandem_step *step)
{
    struct tandem_step_index *index = step->index;
    index->n_touched = 0;
    for (int i = 0; i < step->graph->n_op; i++) {
        step->native[i] = native_type(step, i);
        index->gradient_native[i] = gradient_type(step, i);
        index->resolved[i] = step->precision[i];
        mark(index, i, STALE_ALL);
        resolve_sums(step, i);
    }
    for (int b = 0; b < step->n_bucket; b++) {
        resolve_fixed_task(step, step->bucket[b].reduce_task);
        resolve_fixed_task(step, step->bucket[b].update_task);
    }
    if (step->norm_task >= 0) resolve_fixed_task(step, step->norm_task);
    if (step->n_bucket > 0) /* the first bucket takes the loss along */
        reads(step, step->bucket[0].reduce_task,
              tandem_value_activation(step, step->graph->loss, TANDEM_F32));
    resolve_stale(step);
}
