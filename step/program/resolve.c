/* resolve.c: what the precisions make of the step program: active tasks, their dtypes, values and lifetimes.
 *
 * The update is incremental. dtypes.c follows the operators whose precision changed and marks the units of
 * tasks that depend on a changed dtype (DIRTY_…). This file deactivates those units, sets them up again, and
 * recomputes the lifetimes of the values that they touch. In a new program everything is dirty.
 *
 * state_space.c derives the same tasks operator by operator, for all plans at once. The shared rules are in
 * dtypes.h; tests/property/test_plan_dag_laws.c compares the two. */
#include "step/fusion/transposed_copy.h"
#include "step/program/dtypes.h"
#include "step/program/values.h"

/* What the backward pass, or a recomputed operator, reads as tensor `tensor`. */
static int saved_activation(const tandem_step *step, int tensor, tandem_dtype dtype)
{
    const int root = step->graph->view[tensor];
    if (step->index->is_recomputed[root]) return extra_value_id(step, root, EXTRA_ACTIVATION, (int)dtype);
    return activation_value(step, tensor, dtype);
}

static int saved_aux(const tandem_step *step, int op)
{
    return step->index->is_recomputed[op] ? extra_value_id(step, op, EXTRA_AUX, 0)
                                          : value_id(op, VALUE_AUX, 0);
}

/* --- Lifetimes ------------------------------------------------------------------------------------------ */

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
    tandem_task *task = &step->task[t];
    if (!task->active) step->changed_task[step->n_changed_task++] = t;
    step->active[t / WORD_BITS] |= (uint64_t)1 << t % WORD_BITS;
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

/* `active` of a task that this update has deactivated, until it is activated again or the update ends. */
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
    step->changed_task[step->n_changed_task++] = t;
}

/* Tasks that stay inactive become as they were laid out. */
static void reset_inactive_tasks(tandem_step *step)
{
    for (int k = 0; k < step->n_changed_task; k++) {
        const int t = step->changed_task[k];
        tandem_task *task = &step->task[t];
        if (task->active != DEACTIVATED) continue;
        step->active[t / WORD_BITS] &= ~((uint64_t)1 << t % WORD_BITS);
        task->active = 0;
        task->variant = 0;
        task->from = task->other_operand_dtype = TANDEM_F32;
        task->precision = TANDEM_PRECISION_FP32;
        if (task->kind != TANDEM_TASK_CAST && task->kind != TANDEM_TASK_GRADIENT_CAST) task->to = TANDEM_F32;
    }
}

/* The results of a cast: value `id`, and its transposed copy. */
static void add_cast_writes(tandem_step *step, int t, int id, int op, tandem_dtype dtype, uint64_t bytes)
{
    add_task_write(step, t, id, op, dtype, bytes);
    if (has_transposed_value(step, id)) add_task_write(step, t, transposed_value(step, id), op, dtype, bytes);
}

/* Of a value of n elements. */
static uint64_t stored_bytes(const tandem_step *step, int64_t n, tandem_dtype dtype)
{
    return step->options.emulated ? (uint64_t)n * sizeof(float) : tandem_dtype_size(dtype, (uint64_t)n);
}

static uint64_t output_bytes(const tandem_step *step, int tensor, tandem_dtype dtype)
{
    return stored_bytes(step, step_stored_elements(step, tensor), dtype);
}

static void add_tensor_write(tandem_step *step, int t, int id, int tensor, tandem_dtype dtype)
{
    add_task_write(step, t, id, tensor, dtype, output_bytes(step, tensor, dtype));
}

/* The task of product `pass` reads value v as an operand, or its transposed copy. */
static void read_operand(tandem_step *step, int t, tandem_pass pass, product_operand operand, int v)
{
    add_task_read(step, t, step_operand(step, step->task[t].op, pass, operand, v));
}

/* --- Forward -------------------------------------------------------------------------------------------- */

static void resolve_weight_cast(tandem_step *step, int t, tandem_dtype to)
{
    tandem_task *task = &step->task[t];
    const int p = task->parameter;
    activate_task(step, t, TANDEM_F32, to, cast_variant(TANDEM_F32, to));
    const int v = weight_value(step, task->op, to);
    const uint64_t bytes = stored_bytes(step, step->graph->parameter[p].elements, to);
    add_task_read(step, t, TANDEM_PARAMETER(p));
    if (is_weight_transposed(step, task->op, to))
        add_task_write(step, t, transposed_value(step, v), task->op, to, bytes);
    else
        add_cast_writes(step, t, v, task->op, to, bytes);
}

/* The casts of a tensor, or of its gradient, from dtype `from` to each of `dtypes`. first_task: to f32;
 * first_value: in f32. */
static void resolve_casts(tandem_step *step, int first_task, int tensor, unsigned dtypes, tandem_dtype from,
                          int first_value)
{
    for (unsigned left = dtypes & ~dtype_bit(from); left; left &= left - 1) {
        const int d = __builtin_ctz(left), t = first_task + d;
        const tandem_dtype to = (tandem_dtype)d;
        activate_task(step, t, from, to, cast_variant(from, to));
        add_task_read(step, t, first_value + (int)from);
        add_cast_writes(step, t, first_value + d, tensor, to, output_bytes(step, tensor, to));
    }
}

/* What the forward tasks read that operator i's, task t, may be merged with: the last of them, or all. */
static void hold_operands(tandem_step *step, int t, int i)
{
    const int *const merged_before = step->index->merged_before;
    for (int j = merged_before ? merged_before[i] : -1; j >= 0; j = merged_before[j])
        /* what a transpose reads, its bias made in the same launch */
        for (int slot = 0;
             slot < op_row_of(step, j)->n_input && step->graph->op[j].kind != TANDEM_OP_TRANSPOSE; slot++)
            add_task_read(step, t,
                          activation_value(step, step->graph->op[j].input[slot], forward_dtype_of(step, j)));
}

/* Casts to a byte hold on to what operator i's forward task reads, and those merged with that: it may write
 * their codes. */
static void hold_operands_for_casts(tandem_step *step, int i)
{
    const struct tandem_step_index *index = step->index;
    if (!index->writes_codes || !index->writes_codes[i]) return;
    for (int t = tandem_step_next_active(step, index->cast[i]);
         t < index->cast[i] + TANDEM_N_STORAGE_DTYPE && t < step->n_task;
         t = tandem_step_next_active(step, t + 1)) {
        const tandem_task *task = &step->task[t];
        if (task->active == DEACTIVATED || step_range_source(step, task, task->to) != TANDEM_RANGE_DELAYED)
            continue;
        add_task_read(step, t,
                      activation_value(step, step->graph->op[i].input[0], forward_dtype_of(step, i)));
        hold_operands(step, t, i);
    }
}

/* What the transposes' dgrads before that of `transpose` in a launch read. */
static void hold_gradients(tandem_step *step, int t, int transpose)
{
    const int *const before = step->index->sums_before;
    for (int j = before && transpose >= 0 ? before[transpose] : -1; j >= 0; j = before[j])
        add_task_read(step, t, gradient_value(step, j, dgrad_dtype_of(step, j)));
}

/* Task t: the forward task of operator i, or the one that recomputes it. */
static void resolve_forward_task(tandem_step *step, int i, int t)
{
    const tandem_op *op = &step->graph->op[i];
    const tandem_op_row *row = op_row_of(step, i);
    const tandem_dtype from = forward_dtype_of(step, i), to = step->output_dtype[i];
    const tandem_dtype stored = op->dtype == TANDEM_F32 ? to : op->dtype;
    const int is_first = t == step->index->forward[i];
    activate_task(step, t, from, to, forward_variant(step, i));
    step->task[t].precision = step->precision[i];
    for (int slot = 0; slot < row->n_input; slot++) {
        const int x = op->input[slot];
        const tandem_dtype dtype = step->graph->op[x].dtype == TANDEM_F32 ? from : TANDEM_S32;
        read_operand(step, t, TANDEM_PASS_FORWARD, slot ? OPERAND_OTHER : OPERAND_INPUT,
                     is_first ? activation_value(step, x, dtype) : saved_activation(step, x, dtype));
    }
    for (int j = 0; j < row->n_parameter; j++)
        read_operand(step, t, TANDEM_PASS_FORWARD, OPERAND_OTHER,
                     uses_cast_weight(row, op->kind) ? weight_value(step, i, from)
                                                     : TANDEM_PARAMETER(op->parameter[j]));
    hold_operands(step, t, i);
    add_tensor_write(
        step, t, is_first ? activation_value(step, i, stored) : saved_activation(step, i, stored), i, stored);
    if (!op->aux_bytes) return;
    add_task_write(step, t, is_first ? value_id(i, VALUE_AUX, 0) : saved_aux(step, i), i, TANDEM_F32,
                   aux_bytes_of(step, i));
}

/* Task t: the forward task of the attention that ends with operator i, or the one that recomputes it. */
static void resolve_attention_forward(tandem_step *step, int i, int t)
{
    const tandem_attention attention = step_attention_of(step->graph, i);
    const int is_first = t == step->index->forward[i];
    const tandem_dtype dtype = precision_row_of(step, i)->forward;
    const tandem_op *const op = step->graph->op;
    const int input[] = {op[attention.scores].input[0], op[attention.scores].input[1], op[i].input[1]};
    activate_task(step, t, dtype, dtype, attention_variant(step->precision[i], dtype));
    step->task[t].precision = step->precision[i];
    for (int k = 0; k < 3; k++)
        add_task_read(step, t,
                      is_first ? activation_value(step, input[k], dtype)
                               : saved_activation(step, input[k], dtype));
    add_tensor_write(step, t, is_first ? activation_value(step, i, dtype) : saved_activation(step, i, dtype),
                     i, dtype);
    add_task_write(step, t, is_first ? value_id(i, VALUE_AUX, 0) : saved_aux(step, i), i, TANDEM_F32,
                   tandem_attention_statistics_bytes(&attention));
}

static void resolve_forward(tandem_step *step, int i)
{
    if (is_fused(step, i)) {
        resolve_attention_forward(step, i, step->index->forward[i]);
        if (step->index->is_recomputed[i])
            resolve_attention_forward(step, i, step->index->recomputed_forward[i]);
        return;
    }
    const struct tandem_step_index *index = step->index;
    const tandem_dtype from = forward_dtype_of(step, i);
    if (index->weight_cast[i] >= 0 && from != TANDEM_F32)
        resolve_weight_cast(step, index->weight_cast[i], from);
    resolve_forward_task(step, i, index->forward[i]);
    if (is_recomputed_now(step, i)) resolve_forward_task(step, i, index->recomputed_forward[i]);
}

/* --- Backward ------------------------------------------------------------------------------------------- */

/* The value of the saved input in the dtype of the backward pass: the one that was saved, or its saved
 * cast. */
static int saved_input(tandem_step *step, int i, int slot, tandem_dtype dtype)
{
    const int x = step->graph->op[i].input[slot];
    const tandem_dtype saved = precision_row_of(step, i)->saved;
    const int v = saved_activation(step, x, saved);
    if (saved == dtype) return v;
    const int t = step->index->saved_cast[i] + slot, result = value_id(i, VALUE_SAVED_CAST, slot);
    activate_task(step, t, saved, dtype, cast_variant(saved, dtype));
    add_task_read(step, t, v);
    add_task_write(step, t, result, i, dtype, output_bytes(step, x, dtype));
    return result;
}

/* The gradient that operator `consumer` computes of its input, in the dtype of that tensor's gradient. */
static int contribution_value(const tandem_step *step, int consumer, int slot, tandem_dtype dtype)
{
    return op_row_of(step, consumer)->dgrad == TANDEM_GRAD_IDENTITY
               ? gradient_value(step, consumer, dtype)
               : value_id(consumer, VALUE_CONTRIBUTION, slot);
}

/* Sums are chained in backward order. The sum before `edge` is the gradient of the first edge, or the sum up
 * to the previous one. */
static int partial_sum_before(const tandem_step *step, int edge, tandem_dtype dtype)
{
    const struct tandem_step_index *index = step->index;
    const int previous = index->previous_edge[edge];
    const int consumer = previous / TANDEM_MAX_INPUT, slot = previous % TANDEM_MAX_INPUT;
    return index->edge_position[previous] == 0 ? contribution_value(step, consumer, slot, dtype)
                                               : value_id(consumer, VALUE_PARTIAL, slot);
}

/* The sum up to edge (i, slot); the last sum is the tensor's gradient itself. */
static void write_gradient_sum(tandem_step *step, int t, int i, int slot)
{
    const struct tandem_step_index *index = step->index;
    const int x = input_tensor_of(step, i, slot);
    const tandem_dtype dtype = index->gradient_dtype[x];
    const int is_last = index->edge_position[i * TANDEM_MAX_INPUT + slot] == index->n_contribution[x] - 1;
    add_tensor_write(step, t,
                     is_last ? value_id(x, VALUE_GRADIENT, (int)dtype) : value_id(i, VALUE_PARTIAL, slot), x,
                     dtype);
}

/* The gradient of input `slot`, from operator i's dgrad (or the wgrad of a matmul). A task that accumulates
 * reads the sum so far last. */
static void write_contribution(tandem_step *step, int t, int i, int slot)
{
    const struct tandem_step_index *index = step->index;
    const int x = input_tensor_of(step, i, slot), edge = i * TANDEM_MAX_INPUT + slot;
    const tandem_dtype dtype = index->gradient_dtype[x];
    if (step->task[t].accumulate) {
        add_task_read(step, t, partial_sum_before(step, edge, dtype));
        write_gradient_sum(step, t, i, slot);
        return;
    }
    const int is_alone = index->edge_position[edge] >= 0 && index->n_contribution[x] == 1;
    add_tensor_write(
        step, t, is_alone ? value_id(x, VALUE_GRADIENT, (int)dtype) : value_id(i, VALUE_CONTRIBUTION, slot),
        x, dtype);
}

/* The gradient of parameter j of operator i: of the step, or of one micro-step. */
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
    const tandem_op *op = &step->graph->op[i];
    const tandem_op_row *row = op_row_of(step, i);
    const int t = step->index->wgrad[i];
    const tandem_dtype from = wgrad_dtype_of(step, i);
    tandem_dtype to = TANDEM_F32;
    if (row->n_parameter == 0) to = step->index->gradient_dtype[input_tensor_of(step, i, 1)];
    int x = -1;
    if (op->kind == TANDEM_OP_EMBEDDING)
        x = activation_value(step, op->input[0], TANDEM_S32);
    else if (row->saves & TANDEM_SAVES_INPUT)
        x = saved_input(step, i, 0, other_operand_dtype_of(step, i));
    activate_task(step, t, from, to, op_variant_of(step, i, to));
    step->task[t].precision = step->precision[i];
    if (row->op_class == TANDEM_ADJUSTABLE)
        step->task[t].other_operand_dtype = other_operand_dtype_of(step, i);
    else
        step->task[t].variant = output_dtype_index(from);
    if (x >= 0) read_operand(step, t, TANDEM_PASS_WGRAD, OPERAND_INPUT, x);
    read_operand(step, t, TANDEM_PASS_WGRAD, OPERAND_GRADIENT, gradient_value(step, i, from));
    const int transpose = step->index->summed_transpose ? step->index->summed_transpose[i] : -1;
    if (transpose >= 0)
        add_task_read(step, t, gradient_value(step, transpose, dgrad_dtype_of(step, transpose)));
    hold_gradients(step, t, transpose);
    if (row->n_parameter == 0)
        write_contribution(step, t, i, 1);
    else
        write_weight_gradient(step, t, i, 0);
}

/* The operand of an adjustable operator's dgrad that is not the gradient: a matmul's second input, or the
 * weight. */
static int dgrad_operand(tandem_step *step, int i)
{
    const tandem_dtype dtype = other_operand_dtype_of(step, i);
    if (step->graph->op[i].kind == TANDEM_OP_MATMUL) return saved_input(step, i, 1, dtype);
    if (dtype != TANDEM_F32 && dtype != precision_row_of(step, i)->forward)
        resolve_weight_cast(step, step->index->backward_weight_cast[i], dtype);
    return weight_value(step, i, dtype);
}

/* Of the attention that ends with operator i. */
static void resolve_attention_backward(tandem_step *step, int i)
{
    const tandem_attention attention = step_attention_of(step->graph, i);
    const tandem_op *const op = step->graph->op;
    const int t = step->index->dgrad[i], *const of_scores = op[attention.scores].input;
    const tandem_dtype dtype = precision_row_of(step, i)->forward,
                       to = step->index->gradient_dtype[input_tensor_of(step, attention.scores, 0)];
    activate_task(step, t, dtype, to, attention_variant(step->precision[i], to));
    step->task[t].precision = step->precision[i];
    add_task_read(step, t, gradient_value(step, i, dtype));
    add_task_read(step, t, saved_activation(step, of_scores[0], dtype));
    add_task_read(step, t, saved_activation(step, of_scores[1], dtype));
    add_task_read(step, t, saved_activation(step, op[i].input[1], dtype));
    add_task_read(step, t, saved_activation(step, i, dtype));
    add_task_read(step, t, saved_aux(step, i));
    write_contribution(step, t, attention.scores, 0);
    write_contribution(step, t, attention.scores, 1);
    write_contribution(step, t, i, 1);
}

static void resolve_dgrad(tandem_step *step, int i)
{
    const tandem_op *op = &step->graph->op[i];
    const tandem_op_row *row = op_row_of(step, i);
    const int t = step->index->dgrad[i], is_both = computes_both_input_grads(row);
    const tandem_dtype from = dgrad_dtype_of(step, i);
    tandem_task *task = &step->task[t];
    activate_task(step, t, from, dgrad_output_dtype(step, i), dgrad_variant(step, i));
    task->precision = step->precision[i];
    if (row->op_class == TANDEM_ADJUSTABLE) task->other_operand_dtype = other_operand_dtype_of(step, i);
    if (is_both) task->other_operand_dtype = step->index->gradient_dtype[input_tensor_of(step, i, 1)];
    if (op->kind == TANDEM_OP_CROSS_ENTROPY)
        add_task_read(step, t, activation_value(step, op->input[1], TANDEM_S32));
    else
        add_task_read(step, t, gradient_value(step, i, from));
    if (row->op_class == TANDEM_ADJUSTABLE)
        read_operand(step, t, TANDEM_PASS_DGRAD, OPERAND_OTHER, dgrad_operand(step, i));
    else if (row->saves & TANDEM_SAVES_INPUT)
        add_task_read(step, t, saved_activation(step, op->input[0], from));
    if (is_both && op_saves_input(row, 1)) add_task_read(step, t, saved_activation(step, op->input[1], from));
    if (row->saves & TANDEM_SAVES_OUTPUT) add_task_read(step, t, saved_activation(step, i, from));
    if (row->saves & TANDEM_SAVES_AUX) add_task_read(step, t, saved_aux(step, i));
    hold_gradients(step, t, i);
    write_contribution(step, t, i, 0);
    if (is_both) write_contribution(step, t, i, 1);
    if (row->wgrad != TANDEM_GRAD_FUSED || row->n_parameter == 0) return;
    add_task_read(step, t, TANDEM_PARAMETER(op->parameter[0]));
    if (op->kind == TANDEM_OP_BATCHNORM_RELU) add_task_read(step, t, TANDEM_PARAMETER(op->parameter[1]));
    for (int j = 0; j < row->n_parameter; j++) write_weight_gradient(step, t, i, j);
}

static void resolve_accumulate(tandem_step *step, int i, int slot)
{
    const struct tandem_step_index *index = step->index;
    const int edge = i * TANDEM_MAX_INPUT + slot, t = index->accumulate_task[edge];
    if (t < 0) return;
    const tandem_dtype dtype = index->gradient_dtype[input_tensor_of(step, i, slot)];
    activate_task(step, t, dtype, dtype, output_dtype_index(dtype));
    add_task_read(step, t, contribution_value(step, i, slot, dtype));
    add_task_read(step, t, partial_sum_before(step, edge, dtype));
    write_gradient_sum(step, t, i, slot);
}

/* --- Units of tasks ------------------------------------------------------------------------------------- */

static void deactivate_casts(tandem_step *step, int first_task)
{
    if (first_task < 0) return;
    for (int t = tandem_step_next_active(step, first_task); t < first_task + TANDEM_N_STORAGE_DTYPE;
         t = tandem_step_next_active(step, t + 1))
        deactivate_task(step, t);
}

static void deactivate_units(tandem_step *step, int i, int dirty)
{
    const struct tandem_step_index *index = step->index;
    if (dirty & DIRTY_FORWARD) {
        deactivate_task(step, index->weight_cast[i]);
        deactivate_task(step, index->forward[i]);
        deactivate_task(step, index->recomputed_forward[i]);
    }
    if (dirty & DIRTY_CASTS) {
        deactivate_casts(step, index->cast[i]);
        deactivate_casts(step, index->recomputed_cast[i]);
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
    for (int slot = 0; slot < TANDEM_MAX_INPUT && dirty & DIRTY_SUMS; slot++)
        deactivate_task(step, index->accumulate_task[i * TANDEM_MAX_INPUT + slot]);
}

static void resolve_units(tandem_step *step, int i, int dirty)
{
    const struct tandem_step_index *index = step->index;
    if (is_fused_into_later(step, i)) return;
    if (dirty & DIRTY_FORWARD && index->forward[i] >= 0) resolve_forward(step, i);
    if (dirty & DIRTY_CASTS && index->cast[i] >= 0)
        resolve_casts(step, index->cast[i], i, index->reader_dtypes[i], step->output_dtype[i],
                      value_id(i, VALUE_ACTIVATION, 0));
    if (dirty & DIRTY_CASTS && index->cast[i] >= 0) hold_operands_for_casts(step, i);
    if (dirty & DIRTY_CASTS && index->recomputed_cast[i] >= 0)
        resolve_casts(step, index->recomputed_cast[i], i, index->recompute_dtypes[i], step->output_dtype[i],
                      extra_value_id(step, i, EXTRA_ACTIVATION, 0));
    if (dirty & DIRTY_GRADIENT_CASTS && index->gradient_cast[i] >= 0)
        resolve_casts(step, index->gradient_cast[i], i, index->gradient_reader_dtypes[i],
                      index->gradient_dtype[i], value_id(i, VALUE_GRADIENT, 0));
    const int is_attention = is_fused(step, i);
    if (dirty & DIRTY_BACKWARD && is_attention) resolve_attention_backward(step, i);
    if (dirty & DIRTY_BACKWARD && index->wgrad[i] >= 0 && !is_attention) resolve_wgrad(step, i);
    if (dirty & DIRTY_BACKWARD && index->dgrad[i] >= 0 && !is_attention) resolve_dgrad(step, i);
    for (int slot = 0; slot < TANDEM_MAX_INPUT && dirty & DIRTY_SUMS; slot++)
        resolve_accumulate(step, i, slot);
}

/* All dirty units are deactivated first: a unit may write a value that another one no longer writes. */
static void resolve_dirty(tandem_step *step)
{
    struct tandem_step_index *index = step->index;
    step_update_reader_dtypes(step);
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
    step->n_changed_task = 0;
    step_update_dtypes(step);
    resolve_dirty(step);
}

/* A task that every plan has in the same form: of a bucket, or a sum over micro-steps. */
static void activate_fixed_task(tandem_step *step, int t)
{
    deactivate_task(step, t);
    activate_task(step, t, TANDEM_F32, TANDEM_F32, 0);
}

void step_resolve_all(tandem_step *step)
{
    step->n_changed_task = 0;
    for (int k = 0; k < step->graph->n_op * TANDEM_MAX_PARAMETER; k++) {
        const int t = step->index->sum[k], i = k / TANDEM_MAX_PARAMETER;
        if (t < 0) continue;
        activate_fixed_task(step, t);
        add_task_read(step, t, extra_value_id(step, i, EXTRA_WEIGHT_GRADIENT, k % TANDEM_MAX_PARAMETER));
        add_task_write(step, t, TANDEM_PARAMETER(step->task[t].parameter), i, TANDEM_F32, 0);
    }
    for (int b = 0; b < step->n_bucket; b++) {
        activate_fixed_task(step, step->bucket[b].reduce_task);
        activate_fixed_task(step, step->bucket[b].update_task);
        if (step->bucket[b].gather_task >= 0) activate_fixed_task(step, step->bucket[b].gather_task);
    }
    if (step->norm_task >= 0) activate_fixed_task(step, step->norm_task);
    if (step->n_bucket > 0) /* the first bucket carries the loss */
        add_task_read(step, step->bucket[0].reduce_task,
                      activation_value(step, step->graph->loss, TANDEM_F32));
    step_init_dtypes(step);
    resolve_dirty(step);
}
