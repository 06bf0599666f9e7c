/* step.c: lays out the step program of a graph: every task that some plan needs, in order, and the buckets.
 * resolve.c decides which tasks a plan has. */
#include "tandem/advanced/step.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "step/fusion/merged.h"
#include "step/fusion/transposed_copy.h"
#include "step/program/values.h"
#include "tandem/amax_history.h"

enum { DEFAULT_BUCKET_BYTES = 25 << 20, FIRST_DDP_BUCKET_BYTES = 1 << 20, ALIGNMENT_ELEMENTS = 16 };

/* --- Static structure: gradients ------------------------------------------------------------------------ */

/* The edges along which a gradient reaches each tensor, in backward order: by descending consumer. Views
 * count as the tensor they are of. */
static void count_contributions(const tandem_graph *graph, struct tandem_step_index *index)
{
    for (int c = graph->n_op - 1; c >= 0; c--) {
        const tandem_op *op = &graph->op[c];
        const tandem_op_row *row = tandem_op_row_get(op->kind);
        if (op->kind == TANDEM_OP_RESHAPE || row->dgrad == TANDEM_GRAD_ABSENT || !op->needs_gradient)
            continue;
        for (int slot = 0; slot < row->n_input; slot++) {
            if (!graph->op[op->input[slot]].needs_gradient) continue;
            const int t = graph->view[op->input[slot]], edge = c * TANDEM_MAX_INPUT + slot;
            index->edge_position[edge] = index->n_contribution[t]++;
            index->previous_edge[edge] = index->last_edge[t];
            index->last_edge[t] = edge;
        }
    }
}

static void find_gradient_roots(const tandem_graph *graph, struct tandem_step_index *index)
{
    for (int t = graph->n_op - 1; t >= 0; t--) {
        index->gradient_root[t] = t;
        if (graph->view[t] != t || index->n_contribution[t] != 1) continue;
        const int c = index->last_edge[t] / TANDEM_MAX_INPUT;
        if (tandem_op_row_get(graph->op[c].kind)->dgrad == TANDEM_GRAD_IDENTITY)
            index->gradient_root[t] = index->gradient_root[c];
    }
    for (int t = 0; t < graph->n_op; t++) index->gradient_root[t] = index->gradient_root[graph->view[t]];
}

/* --- Static structure: what a change reaches ------------------------------------------------------------ */

/* Turns counts at start[i + 1] into starts. Callers then fill each list with list[start[i + 1]++], after
 * which its bounds are start[i] and start[i + 1]. */
static void counts_to_starts(int *start, int n)
{
    int sum = 0;
    start[0] = 0;
    for (int i = 1; i <= n; i++) {
        const int count = start[i];
        start[i] = sum;
        sum += count;
    }
}

static void find_input_tensors(const tandem_graph *graph, int narrow_rows, struct tandem_step_index *index)
{
    for (int i = 0; i < graph->n_op; i++) {
        index->row[i] = tandem_op_row_on(graph->op[i].kind, narrow_rows);
        for (int slot = 0; slot < index->row[i]->n_input; slot++)
            index->input_tensor[i * TANDEM_MAX_INPUT + slot] = graph->view[graph->op[i].input[slot]];
    }
}

static void list_readers(const tandem_graph *graph, struct tandem_step_index *index)
{
    int *const start = index->reader_start;
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < graph->n_op; i++) {
            const tandem_op_row *row = index->row[i];
            const int *input_tensors = &index->input_tensor[i * TANDEM_MAX_INPUT];
            for (int slot = 0; slot < row->n_input && graph->op[i].kind != TANDEM_OP_RESHAPE; slot++) {
                const int t = input_tensors[slot];
                if (slot > 0 && t == input_tensors[0]) continue;
                if (pass)
                    index->reader[start[t + 1]++] = i;
                else
                    start[t + 1]++;
                if (slot == 0 && row->op_class == TANDEM_FIXED && row->dgrad == TANDEM_GRAD_TASK)
                    index->has_f32_contribution[t] = 1;
            }
        }
        if (!pass) counts_to_starts(start, graph->n_op);
    }
}

static void list_gradient_groups(const tandem_graph *graph, struct tandem_step_index *index)
{
    int *const start = index->gradient_group_start;
    for (int i = 0; i < graph->n_op; i++) start[index->gradient_root[i] + 1]++;
    counts_to_starts(start, graph->n_op);
    for (int i = 0; i < graph->n_op; i++) index->gradient_group[start[index->gradient_root[i] + 1]++] = i;
}

/* --- Buckets -------------------------------------------------------------------------------------------- */

static int64_t round_up_to_multiple(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

/* A parameter's gradient is complete after its own operator, also where another one writes to it before. */
static int completes_parameter(const tandem_graph *graph, int op, int parameter)
{
    return parameter >= 0 && graph->parameter[parameter].op == op;
}

/* Whether no more goes into bucket b of `used` elements, before `elements` more. */
static int is_bucket_full(const tandem_step *step, int b, int64_t used, int64_t elements)
{
    const uint64_t bytes = (uint64_t)used * sizeof(float);
    if (step->options.ddp_buckets) return bytes >= (b == 0 ? FIRST_DDP_BUCKET_BYTES : step->bucket_bytes);
    return bytes + (uint64_t)elements * sizeof(float) > step->bucket_bytes;
}

static void order_parameters_of(tandem_step *step, int op, int *position)
{
    for (int j = 0; j < TANDEM_MAX_PARAMETER; j++)
        if (completes_parameter(step->graph, op, step->graph->op[op].parameter[j]))
            step->parameter_order[(*position)++] = step->graph->op[op].parameter[j];
}

static int is_bias_of_convolution(const tandem_graph *graph, int op)
{
    const tandem_op_kind kind = graph->op[op].kind;
    if (kind != TANDEM_OP_BIAS && kind != TANDEM_OP_BIAS_GELU) return 0;
    const tandem_op_kind of = graph->op[graph->op[op].input[0]].kind;
    return of == TANDEM_OP_CONV2D || of == TANDEM_OP_GROUPED_CONV2D;
}

/* As the backward pass completes gradients. Weight and bias of a convolution are one module in PyTorch, where
 * autograd hands on the weight's gradient first; a linear layer's bias comes first there as here. */
static void order_parameters(tandem_step *step)
{
    const tandem_graph *graph = step->graph;
    const int as_ddp = step->options.ddp_buckets;
    int position = 0;
    for (int i = graph->n_op - 1; i >= 0; i--) {
        if (as_ddp && is_bias_of_convolution(graph, i)) continue;
        order_parameters_of(step, i, &position);
        for (int k = graph->consumer_start[i]; k < graph->consumer_start[i + 1] && as_ddp; k++)
            if (is_bias_of_convolution(graph, graph->consumer[k]))
                order_parameters_of(step, graph->consumer[k], &position);
    }
}

/* Whether PyTorch hands on parameter q with p, which comes before it. */
static int is_of_same_module(const tandem_graph *graph, int p, int q)
{
    return graph->parameter[p].op == graph->parameter[q].op ||
           is_bias_of_convolution(graph, graph->parameter[q].op);
}

/* What PyTorch's forward pass read before other operators, which the backward pass then ends first. */
static void postpone_parameters(tandem_step *step)
{
    const tandem_graph *graph = step->graph;
    int *const order = step->parameter_order, n = graph->n_parameter;
    for (int k = 0; k < n;) {
        const int p = order[k], after = graph->parameter[p].after;
        int to = k;
        while (after >= 0 && to < n && order[to] != after) to++;
        if (to == n || to == k) {
            k++;
            continue;
        }
        while (to + 1 < n && is_of_same_module(graph, order[to], order[to + 1])) to++;
        memmove(&order[k], &order[k + 1], (size_t)(to - k) * sizeof *order);
        order[to] = p; /* another one is at place k now; p is not moved again, as `after` comes before it */
    }
}

static void plan_buckets(tandem_step *step)
{
    const tandem_graph *graph = step->graph;
    order_parameters(step);
    if (step->options.ddp_buckets) postpone_parameters(step);
    int64_t start = 0, used = 0;
    int b = -1;
    for (int position = 0; position < graph->n_parameter; position++) {
        const int p = step->parameter_order[position];
        const int64_t elements = round_up_to_multiple(graph->parameter[p].elements, ALIGNMENT_ELEMENTS);
        if (b < 0 || is_bucket_full(step, b, used, elements)) {
            if (b >= 0) start += step->bucket[b].elements;
            step->bucket[++b] = (tandem_bucket){.first_parameter_position = position, .start = start};
            used = 0;
        }
        step->parameter_start[p] = start + used;
        used += elements;
        step->bucket[b].n_parameter++;
        /* + 1: the spare element */
        step->bucket[b].elements = round_up_to_multiple(used + 1, ALIGNMENT_ELEMENTS);
        step->index->bucket_of[p] = b;
        step->index->n_awaited[b]++;
    }
    step->n_bucket = b + 1;
    step->n_flat = b < 0 ? 0 : start + step->bucket[b].elements;
}

/* --- The list of tasks ---------------------------------------------------------------------------------- */

static int append_task(tandem_step *step, tandem_task_kind kind, int op, int slot)
{
    tandem_task *task = &step->task[step->n_task];
    *task = (tandem_task){.kind = kind, .op = op, .slot = slot, .parameter = -1, .bucket = -1};
    for (int k = 0; k < TANDEM_TASK_READS; k++) task->read[k] = -1;
    for (int k = 0; k < TANDEM_TASK_WRITES; k++) task->write[k] = -1;
    return step->n_task++;
}

static void append_casts(tandem_step *step, tandem_task_kind kind, int op)
{
    for (int to = 0; to < TANDEM_N_STORAGE_DTYPE; to++) {
        const int task = append_task(step, kind, op, 0);
        step->task[task].to = (tandem_dtype)to;
    }
}

static void append_weight_cast(tandem_step *step, int op)
{
    const int task = append_task(step, TANDEM_TASK_WEIGHT_CAST, op, 0);
    step->task[task].parameter = step->graph->op[op].parameter[0];
}

/* Before the operator's forward task, or, to be one launch, before all operators. */
static void append_forward_weight_cast(tandem_step *step, int op)
{
    struct tandem_step_index *index = step->index;
    if (!uses_cast_weight(tandem_op_row_get(step->graph->op[op].kind), step->graph->op[op].kind)) return;
    index->weight_cast[op] = step->n_task;
    if (step->options.merged_tasks) index->weight_cast_number[op] = index->n_weight_cast++;
    append_weight_cast(step, op);
}

static void append_one_forward(tandem_step *step, int i)
{
    const tandem_op *op = &step->graph->op[i];
    struct tandem_step_index *index = step->index;
    if (op->kind == TANDEM_OP_RESHAPE) return;
    if (!step->options.merged_tasks) append_forward_weight_cast(step, i);
    index->forward[i] = append_task(step, TANDEM_TASK_FORWARD, i, 0);
    if (op->dtype != TANDEM_F32) return;
    index->cast[i] = step->n_task;
    append_casts(step, TANDEM_TASK_CAST, i);
}

/* Products of one tensor are placed where the first of them is. */
static void append_forward(tandem_step *step, int i)
{
    const step_products *one = products_with(step, i);
    if (!one) append_one_forward(step, i);
    for (int k = 0; one && i == one->op[0] && k < one->n; k++) append_one_forward(step, one->op[k]);
}

/* The task that adds the gradient of parameter j of operator i, from one micro-step, to that of the step. −1:
 * the kernel adds it, or there is one micro-step. */
static int append_micro_sum(tandem_step *step, int i, int j)
{
    const tandem_op *op = &step->graph->op[i];
    const int p = op->parameter[j];
    const int is_summed_by_kernel = op->kind == TANDEM_OP_EMBEDDING && step->graph->parameter[p].tied >= 0;
    if (step->options.n_micro == 1 || is_summed_by_kernel) return -1;
    const int task = append_task(step, TANDEM_TASK_ACCUMULATE, i, 0);
    step->task[task].parameter = p;
    step->index->sum[i * TANDEM_MAX_PARAMETER + j] = task;
    return task;
}

static int append_collective(tandem_step *step, tandem_task_kind kind, int b)
{
    const int task = append_task(step, kind, -1, 0);
    step->task[task].stream = TANDEM_STREAM_COMM;
    step->task[task].bucket = b;
    return task;
}

static void append_reduce(tandem_step *step, int b)
{
    tandem_bucket *bucket = &step->bucket[b];
    bucket->reduce_task = append_collective(
        step, step->options.sharding.stage > 0 ? TANDEM_TASK_SCATTER : TANDEM_TASK_REDUCE, b);
}

/* Appends the all-reduce of a bucket, if p's gradient is its last one. Task `ready` completes it. Where
 * products lie side by side, a later bucket may be complete first: it waits, since all ranks reduce in one
 * order. */
static void complete_parameter(tandem_step *step, int p, int ready)
{
    struct tandem_step_index *index = step->index;
    const int b = index->bucket_of[p];
    if (--index->n_awaited[b] > 0) return;
    step->bucket[b].ready_task = ready;
    if (index->n_products == 0)
        append_reduce(step, b);
    else
        while (index->n_reduced < step->n_bucket && index->n_awaited[index->n_reduced] == 0)
            append_reduce(step, index->n_reduced++);
}

/* What follows `producer`, which writes the gradients of an operator's parameters. */
static void append_after_gradient(tandem_step *step, int producer)
{
    const int i = step->task[producer].op;
    const int *parameter = step->graph->op[i].parameter;
    for (int j = 0; j < TANDEM_MAX_PARAMETER && parameter[j] >= 0; j++) {
        const int sum = append_micro_sum(step, i, j);
        if (completes_parameter(step->graph, i, parameter[j]))
            complete_parameter(step, parameter[j], sum >= 0 ? sum : producer);
    }
}

/* The forward tasks to recompute of the segment that ends with operator `last`. */
static void append_recomputed(tandem_step *step, int last)
{
    struct tandem_step_index *index = step->index;
    if (index->recompute_segment_begin[last] < 0) return;
    for (int i = index->recompute_segment_begin[last]; i <= last; i++) {
        if (!index->is_recomputed[i]) continue;
        index->recomputed_forward[i] = append_task(step, TANDEM_TASK_FORWARD, i, 0);
        index->recomputed_cast[i] = step->n_task;
        append_casts(step, TANDEM_TASK_CAST, i);
    }
}

/* The edge after `previous` along which the tensor gets a gradient; −1: none. */
static int next_edge(const tandem_graph *graph, const struct tandem_step_index *index, int previous)
{
    const tandem_op *op = &graph->op[previous / TANDEM_MAX_INPUT];
    int edge = index->last_edge[graph->view[op->input[previous % TANDEM_MAX_INPUT]]];
    while (edge >= 0 && index->previous_edge[edge] != previous) edge = index->previous_edge[edge];
    return edge;
}

/* Whether operator m reads its output gradient in backward tasks of operator i or later ones, apart from the
 * sum that begins with own_edge. A sum that begins with the gradient that m passes on reads it with its
 * second term. */
static int reads_gradient_later(const tandem_graph *graph, const struct tandem_step_index *index, int m,
                                int i, int own_edge)
{
    const tandem_op_row *row = tandem_op_row_get(graph->op[m].kind);
    if (m <= i && (has_wgrad(graph, m) || has_dgrad(graph, m))) return 1;
    for (int slot = 0; slot < row->n_input && row->dgrad == TANDEM_GRAD_IDENTITY; slot++) {
        const int edge = m * TANDEM_MAX_INPUT + slot, position = index->edge_position[edge];
        if (edge == own_edge || position < 0 ||
            index->n_contribution[graph->view[graph->op[m].input[slot]]] < 2)
            continue;
        if ((position > 0 ? m : next_edge(graph, index, edge) / TANDEM_MAX_INPUT) <= i) return 1;
    }
    return 0;
}

/* Whether the sum that begins with own_edge, at its term from operator i, is the last to read that
 * gradient. */
static int is_last_gradient_reader(const tandem_graph *graph, const struct tandem_step_index *index,
                                   int own_edge, int i)
{
    const int root = index->gradient_root[own_edge / TANDEM_MAX_INPUT];
    for (int k = index->gradient_group_start[root]; k < index->gradient_group_start[root + 1]; k++)
        if (reads_gradient_later(graph, index, index->gradient_group[k], i, own_edge)) return 0;
    return 1;
}

/* Whether the term of edge (i, slot) may be added to the sum before it in place. */
static int can_overwrite_sum(const tandem_step *step, int i, int slot)
{
    const tandem_graph *graph = step->graph;
    const struct tandem_step_index *index = step->index;
    const int edge = i * TANDEM_MAX_INPUT + slot, previous = index->previous_edge[edge];
    if (step->options.separate_partial_grads || index->edge_position[edge] < 1) return 0;
    const int is_passed_on =
        index->edge_position[previous] == 0 &&
        tandem_op_row_get(graph->op[previous / TANDEM_MAX_INPUT].kind)->dgrad == TANDEM_GRAD_IDENTITY;
    return !is_passed_on || is_last_gradient_reader(graph, index, previous, i);
}

/* Adds the gradient of input `slot` to the sum before it: in `producer` itself where its kernel can, else by
 * a task of its own. */
static void append_partial_sum(tandem_step *step, int i, int slot, int producer)
{
    struct tandem_step_index *index = step->index;
    const int edge = i * TANDEM_MAX_INPUT + slot;
    if (index->edge_position[edge] < 1) return;
    const int can_overwrite = can_overwrite_sum(step, i, slot),
              is_own = index->previous_edge[edge] / TANDEM_MAX_INPUT == i;
    if (can_overwrite && !is_own && producer >= 0 && can_accumulate_gradient(&step->graph->op[i])) {
        step->task[producer].accumulate = 1;
        return;
    }
    index->accumulate_task[edge] = append_task(step, TANDEM_TASK_ACCUMULATE, i, slot);
    step->task[index->accumulate_task[edge]].accumulate = can_overwrite;
}

/* Casts of operator i's output gradient, and those of its own backward products. */
static void append_backward_casts(tandem_step *step, int i)
{
    const tandem_op_row *row = tandem_op_row_get(step->graph->op[i].kind);
    struct tandem_step_index *index = step->index;
    if (index->gradient_root[i] == i && i != step->graph->loss) {
        index->gradient_cast[i] = step->n_task;
        append_casts(step, TANDEM_TASK_GRADIENT_CAST, i);
    }
    if (row->op_class != TANDEM_ADJUSTABLE || row->dgrad != TANDEM_GRAD_TASK) return;
    index->saved_cast[i] = step->n_task;
    for (int slot = 0; slot < row->n_input; slot++) append_task(step, TANDEM_TASK_SAVED_CAST, i, slot);
    if (row->n_parameter == 0) return;
    index->backward_weight_cast[i] = step->n_task;
    append_weight_cast(step, i);
}

static void append_wgrad(tandem_step *step, int i)
{
    if (!has_wgrad(step->graph, i)) return;
    step->index->wgrad[i] = append_task(step, TANDEM_TASK_WGRAD, i, 0);
    append_after_gradient(step, step->index->wgrad[i]);
}

static void append_dgrad(tandem_step *step, int i)
{
    const tandem_op_row *row = tandem_op_row_get(step->graph->op[i].kind);
    struct tandem_step_index *index = step->index;
    if (has_dgrad(step->graph, i)) {
        index->dgrad[i] = append_task(step, TANDEM_TASK_DGRAD, i, 0);
        if (row->wgrad == TANDEM_GRAD_FUSED) append_after_gradient(step, index->dgrad[i]);
    }
    for (int slot = 0; slot < row->n_input; slot++)
        append_partial_sum(step, i, slot, slot == 0 ? index->dgrad[i] : index->wgrad[i]);
}

/* The gradient of the input comes first where the weight is at least as large as the input of one sample: its
 * narrow copy may then lie where the weight's gradient is written (step_home_of_copy). Else the input is free
 * earlier. The batch has no say: task ids are the same in all classes. */
static int begins_with_dgrad(const tandem_step *step, int i)
{
    const tandem_graph *graph = step->graph;
    const tandem_op *op = &graph->op[i];
    const int is_asked_for = step->options.copies_in_gradients && !step->options.merged_tasks;
    if (!is_asked_for || !step_is_written_by(graph, i)) return 0;
    return graph->parameter[op->parameter[0]].elements >=
           tandem_shape_elements(&graph->op[op->input[0]].shape) / graph->batch;
}

/* Products of one tensor are placed where the first of them is, and add to its gradient in their order. */
static void append_backward(tandem_step *step, int i)
{
    typedef void append_backward_part(tandem_step *, int);
    append_backward_part *const append_part[] = {append_backward_casts,
                                                 begins_with_dgrad(step, i) ? append_dgrad : append_wgrad,
                                                 begins_with_dgrad(step, i) ? append_wgrad : append_dgrad};
    const tandem_op *op = &step->graph->op[i];
    const step_products alone = {{i}, 1}, *const together = products_with(step, i),
                        *const all = together ? together : &alone;
    if (tandem_op_row_get(op->kind)->op_class == TANDEM_SOURCE || op->kind == TANDEM_OP_RESHAPE ||
        !op->needs_gradient || i != all->op[0])
        return;
    for (size_t part = 0; part < sizeof append_part / sizeof *append_part; part++)
        for (int k = all->n - 1; k >= 0; k--) append_part[part](step, all->op[k]);
}

static void append_all_tasks(tandem_step *step)
{
    const int n_op = step->graph->n_op;
    for (int i = 0; i < n_op && step->options.merged_tasks; i++) append_forward_weight_cast(step, i);
    for (int i = 0; i < n_op; i++) append_forward(step, i);
    for (int i = n_op - 1; i >= 0; i--) {
        append_recomputed(step, i);
        append_backward(step, i);
    }
    step->norm_task = step->options.with_norm ? append_task(step, TANDEM_TASK_NORM, -1, 0) : -1;
    for (int b = 0; b < step->n_bucket; b++) {
        step->bucket[b].update_task = append_task(step, TANDEM_TASK_UPDATE, -1, 0);
        step->task[step->n_task - 1].bucket = b;
        step->bucket[b].gather_task =
            step->options.sharding.stage > 0 ? append_collective(step, TANDEM_TASK_GATHER, b) : -1;
    }
}

/* --- Opening and closing -------------------------------------------------------------------------------- */

/* All arrays come from one arena. A failure is remembered, and checked once at the end. */
static void *alloc_array(tandem_step *step, size_t count, size_t size)
{
    void *array = tandem_arena_array(&step->index->arena, count, size);
    step->index->is_out_of_memory |= !array;
    return array;
}

static int *alloc_ids(tandem_step *step, size_t count) /* all −1 */
{
    int *ids = alloc_array(step, count, sizeof *ids);
    for (size_t k = 0; ids && k < count; k++) ids[k] = -1;
    return ids;
}

static size_t word_count(size_t n) { return (n + WORD_BITS - 1) / WORD_BITS; }

/* Who looks into values of a step wants them as their shapes say. */
static int pads_rows(const tandem_step_options *options)
{
    return options->padded_rows && options->narrow_rows && !options->emulated &&
           !options->separate_partial_grads;
}

static void alloc_graph_arrays(tandem_step *step, size_t n_op, size_t n_parameter)
{
    struct tandem_step_index *index = step->index;
    const size_t n_edge = n_op * TANDEM_MAX_INPUT;
    step->precision = alloc_array(step, n_op, sizeof *step->precision);
    step->output_dtype = alloc_array(step, n_op, sizeof *step->output_dtype);
    step->bucket = alloc_array(step, n_parameter, sizeof *step->bucket);
    step->parameter_order = alloc_array(step, n_parameter, sizeof *step->parameter_order);
    step->parameter_start = alloc_array(step, n_parameter, sizeof *step->parameter_start);
    index->row = alloc_array(step, n_op, sizeof *index->row);
    index->input_tensor = alloc_ids(step, n_edge);
    index->n_contribution = alloc_array(step, n_op, sizeof *index->n_contribution);
    index->last_edge = alloc_ids(step, n_op);
    index->edge_position = alloc_ids(step, n_edge);
    index->previous_edge = alloc_ids(step, n_edge);
    index->gradient_root = alloc_ids(step, n_op);
    if (step->options.fused_attention) index->attention = alloc_ids(step, n_op);
    if (pads_rows(&step->options)) index->padded_row = alloc_array(step, n_op, sizeof *index->padded_row);
    if (step->options.merged_tasks) {
        index->merged_before = alloc_ids(step, n_op);
        index->merged_after = alloc_ids(step, n_op);
        index->summed_transpose = alloc_ids(step, n_op);
        index->sums_before = alloc_ids(step, n_op);
        index->sums_after = alloc_ids(step, n_op);
        index->products = alloc_array(step, n_op / 2, sizeof *index->products);
        index->products_of = alloc_ids(step, n_op);
        index->product_of_root = alloc_ids(step, n_op);
        index->weight_cast_number = alloc_ids(step, n_op);
        index->writes_codes = alloc_array(step, n_op, sizeof *index->writes_codes);
    }
    index->forward = alloc_ids(step, n_op);
    index->cast = alloc_ids(step, n_op);
    index->gradient_cast = alloc_ids(step, n_op);
    index->weight_cast = alloc_ids(step, n_op);
    index->saved_cast = alloc_ids(step, n_op);
    index->backward_weight_cast = alloc_ids(step, n_op);
    index->wgrad = alloc_ids(step, n_op);
    index->dgrad = alloc_ids(step, n_op);
    index->recomputed_forward = alloc_ids(step, n_op);
    index->recomputed_cast = alloc_ids(step, n_op);
    index->accumulate_task = alloc_ids(step, n_edge);
    index->sum = alloc_ids(step, n_op * TANDEM_MAX_PARAMETER);
    index->recompute_segment_begin = alloc_ids(step, n_op);
    index->bucket_of = alloc_ids(step, n_parameter);
    index->n_awaited = alloc_array(step, n_parameter, sizeof *index->n_awaited);
    index->reader_start = alloc_array(step, n_op + 1, sizeof *index->reader_start);
    index->reader = alloc_ids(step, n_edge);
    index->gradient_group_start = alloc_array(step, n_op + 1, sizeof *index->gradient_group_start);
    index->gradient_group = alloc_ids(step, n_op);
    index->has_f32_contribution = alloc_array(step, n_op, 1);
    index->is_recomputed = alloc_array(step, n_op, 1);
    index->resolved_precision = alloc_array(step, n_op, sizeof *index->resolved_precision);
    index->gradient_dtype = alloc_array(step, n_op, sizeof *index->gradient_dtype);
    index->reader_dtypes = alloc_array(step, n_op, 1);
    index->gradient_reader_dtypes = alloc_array(step, n_op, 1);
    index->recompute_dtypes = alloc_array(step, n_op, 1);
    index->pending = alloc_array(step, word_count(n_op), sizeof *index->pending);
    index->dirty = alloc_array(step, n_op, 1);
    index->dirty_op = alloc_ids(step, n_op);
}

static void alloc_task_arrays(tandem_step *step, size_t max_tasks, size_t n_value)
{
    struct tandem_step_index *index = step->index;
    step->task = alloc_array(step, max_tasks, sizeof *step->task);
    step->value = alloc_array(step, n_value, sizeof *step->value);
    step->active = alloc_array(step, word_count(max_tasks), sizeof *step->active);
    step->changed_task = alloc_ids(step, max_tasks);
    index->reader_node = alloc_array(step, max_tasks * TANDEM_TASK_READS, sizeof *index->reader_node);
    index->first_reader = alloc_ids(step, n_value);
    index->lifetime_dirty = alloc_array(step, n_value, 1);
    index->dirty_value = alloc_ids(step, n_value);
    if (step->options.transposed_copy)
        index->has_transposed_copy = alloc_array(step, (size_t)index->n_untransposed, 1);
}

tandem_status tandem_step_open(tandem_step **step, const tandem_graph *graph, tandem_dtype amp_dtype,
                               uint64_t bucket_bytes, tandem_error *error)
{
    return tandem_step_open_with(step, graph, amp_dtype, bucket_bytes, NULL, error);
}

static tandem_status check_cast_scaling(tandem_cast_scaling scaling, tandem_error *error)
{
    if (scaling.window < -1 || scaling.window > TANDEM_AMAX_WINDOW)
        return tandem_error_set(error, TANDEM_USAGE, "the window of delayed scaling is 1 to %d casts, got %d",
                                TANDEM_AMAX_WINDOW, scaling.window);
    if (scaling.margin < -TANDEM_AMAX_MARGIN || scaling.margin > TANDEM_AMAX_MARGIN)
        return tandem_error_set(error, TANDEM_USAGE, "the margin of delayed scaling is %d to %d, got %d",
                                -TANDEM_AMAX_MARGIN, TANDEM_AMAX_MARGIN, scaling.margin);
    return TANDEM_OK;
}

static tandem_status check_sharding(const tandem_sharding *s, tandem_error *error)
{
    int64_t ranks = 0, units = 0;
    if (s->stage != 1)
        return tandem_error_set(error, TANDEM_USAGE,
                                "a step shards the optimizer's state (stage 1), got stage %d", s->stage);
    if (s->n_rank < 1 || s->rank < 0 || s->rank >= s->n_rank || s->n_share < 0 ||
        s->n_share > TANDEM_MAX_SHARE)
        return tandem_error_set(error, TANDEM_USAGE, "shards of rank %d of %d, in %d classes of at most %d",
                                s->rank, s->n_rank, s->n_share, (int)TANDEM_MAX_SHARE);
    for (int c = 0; c < s->n_share; c++) {
        if (s->class_ranks[c] < 1 || s->class_units[c] < 0 || s->class_units[c] > TANDEM_MAX_SHARE_UNITS)
            return tandem_error_set(
                error, TANDEM_USAGE,
                "shares are 0 to %d units for each of 1 rank or more, got %d units for %d "
                "ranks",
                (int)TANDEM_MAX_SHARE_UNITS, s->class_units[c], s->class_ranks[c]);
        ranks += s->class_ranks[c];
        units += s->class_units[c];
    }
    if (s->n_share > 0 && (ranks != s->n_rank || units == 0))
        return tandem_error_set(error, TANDEM_USAGE,
                                "shares are for all of %d ranks and not all 0, got %lld ranks", s->n_rank,
                                (long long)ranks);
    return TANDEM_OK;
}

static tandem_status check_step_options(const tandem_step_options *options, tandem_error *error)
{
    if (options->n_micro < 0 || options->n_micro > TANDEM_MAX_MICRO)
        return tandem_error_set(error, TANDEM_USAGE, "a step has 1 to %d micro-steps, got %d",
                                TANDEM_MAX_MICRO, options->n_micro);
    if (options->n_recompute_segment < TANDEM_RECOMPUTE_SQRT)
        return tandem_error_set(error, TANDEM_USAGE, "a graph is cut into 1 segment or more, got %d",
                                options->n_recompute_segment);
    if (options->sharding.stage != 0) {
        const tandem_status status = check_sharding(&options->sharding, error);
        if (status != TANDEM_OK) return status;
    }
    return check_cast_scaling(options->scaling, error);
}

tandem_status tandem_step_open_with(tandem_step **out, const tandem_graph *graph, tandem_dtype amp_dtype,
                                    uint64_t bucket_bytes, const tandem_step_options *given,
                                    tandem_error *error)
{
    const tandem_step_options options = given ? *given : (tandem_step_options){0};
    const int is_plain =
        options.n_micro <= 1 && (options.n_recompute_segment == 0 || options.n_recompute_segment == 1);
    const size_t n_op = (size_t)graph->n_op, n_parameter = (size_t)graph->n_parameter;
    const size_t max_tasks =
        n_op * (size_t)(MAX_TASKS_PER_OP + (is_plain ? 0 : EXTRA_TASKS_PER_OP)) + 3 * n_parameter + 1;
    const tandem_status status = check_step_options(&options, error);
    if (status != TANDEM_OK) return status;
    tandem_step *step = calloc(1, sizeof *step);
    if (!step) goto no_memory;
    step->options = options;
    step->options.n_micro = options.n_micro > 1 ? options.n_micro : 1;
    step->graph = graph;
    step->amp_dtype = amp_dtype;
    step->bucket_bytes = bucket_bytes ? bucket_bytes : DEFAULT_BUCKET_BYTES;
    struct tandem_step_index *index = step->index = calloc(1, sizeof *step->index);
    if (!index) goto no_memory;
    index->n_untransposed = (int)n_op * (BASIC_VALUES_PER_OP + (is_plain ? 0 : EXTRA_VALUES_PER_OP));
    step->n_value = index->n_untransposed * (options.transposed_copy ? 2 : 1);
    alloc_graph_arrays(step, n_op, n_parameter);
    alloc_task_arrays(step, max_tasks, (size_t)step->n_value);
    if (index->is_out_of_memory) goto no_memory;

    count_contributions(graph, index);
    find_gradient_roots(graph, index);
    find_input_tensors(graph, options.narrow_rows, index);
    list_readers(graph, index);
    list_gradient_groups(graph, index);
    if (index->attention) step_find_attention(step);
    if (index->padded_row) step_find_padded_rows(step);
    plan_buckets(step);
    if (!step_cut_segments(step)) goto no_memory;
    if (options.merged_tasks) step_find_merged(step);
    append_all_tasks(step);
    assert((size_t)step->n_task <= max_tasks);
    if (options.transposed_copy) step_find_transposed_copies(step);
    step_resolve_all(step);
    *out = step;
    return TANDEM_OK;

no_memory:
    tandem_step_close(step);
    return tandem_no_memory(error, "for the step program of model '%s' (%d operators)", graph->model,
                            graph->n_op);
}

void tandem_step_close(tandem_step *step)
{
    if (!step) return;
    if (step->index) tandem_arena_free(&step->index->arena);
    free(step->index);
    free(step);
}

void tandem_step_set(tandem_step *step, int op, tandem_precision precision)
{
    assert(tandem_op_row_get(step->graph->op[op].kind)->precisions & (1u << precision));
    step->precision[op] = precision;
    mark_op_pending(step->index, op);
}

void tandem_step_load(tandem_step *step, const tandem_precision *precision)
{
    for (int op = 0; op < step->graph->n_op; op++)
        if (tandem_op_is_adjustable(&step->graph->op[op])) tandem_step_set(step, op, precision[op]);
    tandem_step_resolve(step);
}

tandem_op_tasks tandem_step_op_tasks(const tandem_step *step, int op)
{
    const struct tandem_step_index *index = step->index;
    return (tandem_op_tasks){index->forward[op], index->wgrad[op], index->dgrad[op]};
}

int tandem_step_is_recomputed(const tandem_step *step, int task)
{
    const int op = step->task[task].op, first = op >= 0 ? step->index->recomputed_forward[op] : -1;
    /* its casts follow it */
    return first >= 0 && first <= task && task <= first + TANDEM_N_STORAGE_DTYPE;
}

int tandem_task_wraps_iteration(const tandem_step *step, int task)
{
    const int first = step->norm_task >= 0 ? step->norm_task : step->bucket[step->n_bucket - 1].update_task;
    return task >= first;
}

int tandem_step_runs_per_step(const tandem_step *step, const tandem_task *task)
{
    const int is_once = tandem_task_is_collective(task->kind) || task->kind == TANDEM_TASK_NORM ||
                        task->kind == TANDEM_TASK_UPDATE;
    return is_once ? 1 : step->options.n_micro;
}

const char *tandem_task_kind_name(tandem_task_kind kind)
{
    static const char *const name[TANDEM_N_TASK_KIND] = {
        "weight cast", "forward",    "cast", "gradient cast", "saved cast",     "wgrad",     "dgrad",
        "accumulate",  "all-reduce", "norm", "update",        "reduce-scatter", "all-gather"};
    return (int)kind >= 0 && kind < TANDEM_N_TASK_KIND ? name[kind] : "?";
}

const char *tandem_pass_name(tandem_pass pass)
{
    static const char *const name[TANDEM_N_PASS] = {"forward", "dgrad", "wgrad", "update"};
    return (int)pass >= 0 && pass < TANDEM_N_PASS ? name[pass] : "?";
}
