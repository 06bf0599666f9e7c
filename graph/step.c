/* step.c: lays out the step program of a graph once: every task any plan could need, in order, with its
 * bucket. What a plan switches on is decided in resolve.c. */
#include "tandem/step.h"

#include <assert.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "graph/columnwise.h"
#include "tandem/amax_history.h"

enum { DEFAULT_BUCKET_BYTES = 25 << 20, ALIGNMENT_ELEMENTS = 16 };

/* --- Static structure: where gradients come from -------------------------------------------------------- */

/* Edges (consumer, slot) along which a gradient reaches the tensor behind `view`, in the order in which
 * backward takes them: descending consumers. Views are looked through. */
static void count_contributions(const tandem_graph *graph, struct tandem_step_index *index)
{
    for (int t = 0; t < graph->n_op; t++) index->n_contribution[t] = 0;
    for (int c = graph->n_op - 1; c >= 0; c--) {
        const tandem_op *op = &graph->op[c];
        const tandem_op_row *row = tandem_op_row_get(op->kind);
        if (op->kind == TANDEM_OP_RESHAPE || row->dgrad == TANDEM_BACKWARD_ABSENT || !op->needs_gradient)
            continue;
        for (int slot = 0; slot < row->n_input; slot++) {
            if (!graph->op[op->input[slot]].needs_gradient) continue;
            const int t = graph->view[op->input[slot]], edge = c * TANDEM_MAX_INPUT + slot;
            index->edge_place[edge] = index->n_contribution[t]++;
            index->edge_before[edge] = index->last_edge[t];
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
        if (tandem_op_row_get(graph->op[c].kind)->dgrad == TANDEM_BACKWARD_SAME)
            index->gradient_root[t] = index->gradient_root[c];
    }
    for (int t = 0; t < graph->n_op; t++) index->gradient_root[t] = index->gradient_root[graph->view[t]];
}

/* --- Static structure: who a change reaches ------------------------------------------------------------- */

/* Turns counts at start[i + 1] into starts; fill each list with list[start[i + 1]++] afterwards, after which
 * start[i] … start[i + 1] are its bounds. */
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

static void find_sources(const tandem_graph *graph, struct tandem_step_index *index)
{
    for (int i = 0; i < graph->n_op; i++) {
        index->row[i] = tandem_op_row_get(graph->op[i].kind);
        for (int slot = 0; slot < index->row[i]->n_input; slot++)
            index->source[i * TANDEM_MAX_INPUT + slot] = graph->view[graph->op[i].input[slot]];
    }
}

static void list_readers(const tandem_graph *graph, struct tandem_step_index *index)
{
    int *const start = index->reader_start;
    for (int t = 0; t <= graph->n_op; t++) start[t] = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < graph->n_op; i++) {
            const tandem_op_row *row = index->row[i];
            const int *source = &index->source[i * TANDEM_MAX_INPUT];
            for (int slot = 0; slot < row->n_input && graph->op[i].kind != TANDEM_OP_RESHAPE; slot++) {
                const int t = source[slot];
                if (slot > 0 && t == source[0]) continue;
                if (pass)
                    index->reader[start[t + 1]++] = i;
                else
                    start[t + 1]++;
                if (slot == 0 && row->op_class == TANDEM_FIXED && row->dgrad == TANDEM_BACKWARD_TASK)
                    index->fixed_reader[t] = 1;
            }
        }
        if (!pass) counts_to_starts(start, graph->n_op);
    }
}

static void list_members(const tandem_graph *graph, struct tandem_step_index *index)
{
    int *const start = index->member_start;
    for (int t = 0; t <= graph->n_op; t++) start[t] = 0;
    for (int i = 0; i < graph->n_op; i++) start[index->gradient_root[i] + 1]++;
    counts_to_starts(start, graph->n_op);
    for (int i = 0; i < graph->n_op; i++) index->member[start[index->gradient_root[i] + 1]++] = i;
}

/* --- Buckets -------------------------------------------------------------------------------------------- */

static int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

/* A parameter's gradient is complete with its own operator's, also where another one has written to it
 * before. */
static int completes(const tandem_graph *graph, int op, int parameter)
{
    return parameter >= 0 && graph->parameter[parameter].op == op;
}

static void plan_buckets(tandem_step *step)
{
    const tandem_graph *graph = step->graph;
    int place = 0;
    for (int i = graph->n_op - 1; i >= 0; i--)
        for (int j = 0; j < TANDEM_MAX_PARAMETER; j++)
            if (completes(graph, i, graph->op[i].parameter[j]))
                step->parameter_order[place++] = graph->op[i].parameter[j];

    int64_t start = 0, used = 0;
    int b = -1;
    for (place = 0; place < graph->n_parameter; place++) {
        const int p = step->parameter_order[place];
        const int64_t elements = round_up(graph->parameter[p].elements, ALIGNMENT_ELEMENTS);
        if (b < 0 || (uint64_t)(used + elements) * sizeof(float) > step->bucket_bytes) {
            if (b >= 0) start += step->bucket[b].elements;
            step->bucket[++b] = (tandem_bucket){.first_parameter_place = place, .start = start};
            used = 0;
        }
        step->parameter_start[p] = start + used;
        used += elements;
        step->bucket[b].n_parameter++;
        step->bucket[b].elements = round_up(used + 1, ALIGNMENT_ELEMENTS); /* + 1: the spare element */
        step->index->bucket_of[p] = b;
    }
    step->n_bucket = b + 1;
    step->n_flat = b < 0 ? 0 : start + step->bucket[b].elements;
}

/* --- The list of tasks ---------------------------------------------------------------------------------- */

static int append(tandem_step *step, tandem_task_kind kind, int op, int slot)
{
    tandem_task *task = &step->task[step->n_task];
    *task = (tandem_task){.kind = kind, .op = op, .slot = slot, .parameter = -1, .bucket = -1};
    for (int k = 0; k < TANDEM_TASK_READS; k++) task->read[k] = -1;
    for (int k = 0; k < TANDEM_TASK_WRITES; k++) task->write[k] = -1;
    return step->n_task++;
}

static void append_casts(tandem_step *step, tandem_task_kind kind, int op)
{
    for (int to = 0; to < TANDEM_N_VERSION; to++) {
        const int task = append(step, kind, op, 0);
        step->task[task].to = (tandem_dtype)to;
    }
}

static void append_weight_cast(tandem_step *step, int op)
{
    const int task = append(step, TANDEM_TASK_WEIGHT_CAST, op, 0);
    step->task[task].parameter = step->graph->op[op].parameter[0];
}

static void append_forward(tandem_step *step, int i)
{
    const tandem_op *op = &step->graph->op[i];
    const tandem_op_row *row = tandem_op_row_get(op->kind);
    struct tandem_step_index *index = step->index;
    if (op->kind == TANDEM_OP_RESHAPE) return;
    if (reads_copy(row, op->kind)) {
        index->weight_cast[i] = step->n_task;
        append_weight_cast(step, i);
    }
    index->forward[i] = append(step, TANDEM_TASK_FORWARD, i, 0);
    if (op->dtype != TANDEM_F32) return;
    index->cast[i] = step->n_task;
    append_casts(step, TANDEM_TASK_CAST, i);
}

/* Adds what operator i writes of parameter number j's gradient in one micro-step to the step's. −1 = its
 * kernel does, or there is one micro-step only. */
static int append_sum(tandem_step *step, int i, int j)
{
    const tandem_op *op = &step->graph->op[i];
    const int p = op->parameter[j];
    const int adds_itself = op->kind == TANDEM_OP_EMBEDDING && step->graph->parameter[p].tied >= 0;
    if (step->options.n_micro == 1 || adds_itself) return -1;
    const int task = append(step, TANDEM_TASK_ACCUMULATE, i, 0);
    step->task[task].parameter = p;
    step->index->sum[i * TANDEM_MAX_PARAMETER + j] = task;
    return task;
}

/* Hands a bucket over, if the gradient of parameter p, which task `ready` has just completed, was the last it
 * lacked. */
static void append_reduce(tandem_step *step, int p, int ready)
{
    const int b = step->index->bucket_of[p];
    tandem_bucket *bucket = &step->bucket[b];
    if (step->parameter_order[bucket->first_parameter_place + bucket->n_parameter - 1] != p) return;
    bucket->ready_task = ready;
    bucket->reduce_task = append(step, TANDEM_TASK_REDUCE, -1, 0);
    step->task[bucket->reduce_task].stream = TANDEM_STREAM_COMM;
    step->task[bucket->reduce_task].bucket = b;
}

/* What follows the task that has written the gradients of an operator's parameters. */
static void append_followers(tandem_step *step, int producer)
{
    const int i = step->task[producer].op;
    const int *parameter = step->graph->op[i].parameter;
    for (int j = 0; j < TANDEM_MAX_PARAMETER && parameter[j] >= 0; j++) {
        const int sum = append_sum(step, i, j);
        if (completes(step->graph, i, parameter[j]))
            append_reduce(step, parameter[j], sum >= 0 ? sum : producer);
    }
}

/* The forward tasks of the segment that operator `last` ends, as far as the backward pass wants them again.
 * */
static void append_again(tandem_step *step, int last)
{
    struct tandem_step_index *index = step->index;
    if (index->segment_begin[last] < 0) return;
    for (int i = index->segment_begin[last]; i <= last; i++) {
        if (!index->is_again[i]) continue;
        index->forward_again[i] = append(step, TANDEM_TASK_FORWARD, i, 0);
        index->cast_again[i] = step->n_task;
        append_casts(step, TANDEM_TASK_CAST, i);
    }
}

/* The edge that brings a gradient behind edge `before`; −1 = none. */
static int edge_behind(const tandem_graph *graph, const struct tandem_step_index *index, int before)
{
    const tandem_op *op = &graph->op[before / TANDEM_MAX_INPUT];
    int edge = index->last_edge[graph->view[op->input[before % TANDEM_MAX_INPUT]]];
    while (edge >= 0 && index->edge_before[edge] != before) edge = index->edge_before[edge];
    return edge;
}

/* Whether operator m reads the gradient of its output in backward tasks of operator i or of one behind it,
 * the sum that begins with edge `own` aside. A sum that begins with the gradient that m passes on reads it
 * with its second part. */
static int reads_from(const tandem_graph *graph, const struct tandem_step_index *index, int m, int i, int own)
{
    const tandem_op_row *row = tandem_op_row_get(graph->op[m].kind);
    if (m <= i && (has_wgrad(graph, m) || has_dgrad(graph, m))) return 1;
    for (int slot = 0; slot < row->n_input && row->dgrad == TANDEM_BACKWARD_SAME; slot++) {
        const int edge = m * TANDEM_MAX_INPUT + slot, place = index->edge_place[edge];
        if (edge == own || place < 0 || index->n_contribution[graph->view[graph->op[m].input[slot]]] < 2)
            continue;
        if ((place > 0 ? m : edge_behind(graph, index, edge) / TANDEM_MAX_INPUT) <= i) return 1;
    }
    return 0;
}

/* Whether the sum that begins with edge `own`, with its part from operator i, is the last to read what the
 * edge passes on. */
static int reads_last(const tandem_graph *graph, const struct tandem_step_index *index, int own, int i)
{
    const int root = index->gradient_root[own / TANDEM_MAX_INPUT];
    for (int k = index->member_start[root]; k < index->member_start[root + 1]; k++)
        if (reads_from(graph, index, index->member[k], i, own)) return 0;
    return 1;
}

/* Whether the part that edge (i, slot) brings may be written over the sum of those before it. */
static int takes_over(const tandem_step *step, int i, int slot)
{
    const tandem_graph *graph = step->graph;
    const struct tandem_step_index *index = step->index;
    const int edge = i * TANDEM_MAX_INPUT + slot, before = index->edge_before[edge];
    if (step->options.parts_apart || index->edge_place[edge] < 1) return 0;
    const int is_passed_on =
        index->edge_place[before] == 0 &&
        tandem_op_row_get(graph->op[before / TANDEM_MAX_INPUT].kind)->dgrad == TANDEM_BACKWARD_SAME;
    return !is_passed_on || reads_last(graph, index, before, i);
}

/* Of the task that computes the gradient of input `slot`: it is added to those that came before where that
 * can be done. */
static void append_sum_of_parts(tandem_step *step, int i, int slot, int producer)
{
    struct tandem_step_index *index = step->index;
    const int edge = i * TANDEM_MAX_INPUT + slot;
    if (index->edge_place[edge] < 1) return;
    const int is_free = takes_over(step, i, slot), is_own = index->edge_before[edge] / TANDEM_MAX_INPUT == i;
    if (is_free && !is_own && producer >= 0 && adds_gradient(step->graph, i)) {
        step->task[producer].adds = 1;
        return;
    }
    index->accumulate[edge] = append(step, TANDEM_TASK_ACCUMULATE, i, slot);
    step->task[index->accumulate[edge]].adds = is_free;
}

static void append_backward(tandem_step *step, int i)
{
    const tandem_graph *graph = step->graph;
    const tandem_op *op = &graph->op[i];
    const tandem_op_row *row = tandem_op_row_get(op->kind);
    struct tandem_step_index *index = step->index;
    if (row->op_class == TANDEM_SOURCE || op->kind == TANDEM_OP_RESHAPE || !op->needs_gradient) return;

    if (index->gradient_root[i] == i && i != graph->loss) {
        index->gradient_cast[i] = step->n_task;
        append_casts(step, TANDEM_TASK_GRADIENT_CAST, i);
    }
    if (row->op_class == TANDEM_ADJUSTABLE && row->dgrad == TANDEM_BACKWARD_TASK) {
        index->restore[i] = step->n_task;
        for (int slot = 0; slot < row->n_input; slot++) append(step, TANDEM_TASK_RESTORE, i, slot);
        if (row->n_parameter > 0) {
            index->backward_weight_cast[i] = step->n_task;
            append_weight_cast(step, i);
        }
    }
    if (has_wgrad(graph, i)) {
        index->wgrad[i] = append(step, TANDEM_TASK_WGRAD, i, 0);
        append_followers(step, index->wgrad[i]);
    }
    if (has_dgrad(graph, i)) {
        index->dgrad[i] = append(step, TANDEM_TASK_DGRAD, i, 0);
        if (row->wgrad == TANDEM_BACKWARD_BESIDE) append_followers(step, index->dgrad[i]);
    }
    for (int slot = 0; slot < row->n_input; slot++)
        append_sum_of_parts(step, i, slot, slot == 0 ? index->dgrad[i] : index->wgrad[i]);
}

static void append_all(tandem_step *step)
{
    const int n_op = step->graph->n_op;
    for (int i = 0; i < n_op; i++) append_forward(step, i);
    for (int i = n_op - 1; i >= 0; i--) {
        append_again(step, i);
        append_backward(step, i);
    }
    step->norm_task = step->options.with_norm ? append(step, TANDEM_TASK_NORM, -1, 0) : -1;
    for (int b = 0; b < step->n_bucket; b++) {
        step->bucket[b].update_task = append(step, TANDEM_TASK_UPDATE, -1, 0);
        step->task[step->n_task - 1].bucket = b;
    }
}

/* --- Opening and closing -------------------------------------------------------------------------------- */

static void *array(size_t count, size_t size) { return calloc(count ? count : 1, size); }

static size_t n_word(size_t n) { return (n + WORD_BITS - 1) / WORD_BITS; }

static int allocate_index(struct tandem_step_index *index, size_t n_op, size_t n_parameter)
{
    /* every array of ints in one block: op-sized ones first, edge-sized ones, one a parameter, two lists of
     * starts */
    const size_t n_edge = n_op * TANDEM_MAX_INPUT;
    const size_t n = n_op * N_OP_ARRAY + n_edge * N_EDGE_ARRAY + n_parameter + 2 * (n_op + 1);
    int *block = array(n, sizeof *block);
    index->gradient_native = array(n_op, sizeof *index->gradient_native);
    index->resolved = array(n_op, sizeof *index->resolved);
    index->row = array(n_op, sizeof *index->row);
    index->pending = array(n_word(n_op), sizeof *index->pending);
    index->activation_need = array(n_op, 6); /* and the other five arrays of bytes */
    index->block = block;
    if (!block || !index->row || !index->gradient_native || !index->resolved || !index->pending ||
        !index->activation_need)
        return 0;
    index->gradient_need = index->activation_need + n_op;
    index->fixed_reader = index->gradient_need + n_op;
    index->stale = index->fixed_reader + n_op;
    index->is_again = index->stale + n_op;
    index->again_need = index->is_again + n_op;
    index->first_pending = INT_MAX;
    index->last_pending = -1;
    for (size_t i = 0; i < n; i++) block[i] = -1;
    int **const op_array[N_OP_ARRAY] = {
        &index->n_contribution, &index->last_edge,     &index->gradient_root,
        &index->forward,        &index->cast,          &index->gradient_cast,
        &index->weight_cast,    &index->restore,       &index->backward_weight_cast,
        &index->wgrad,          &index->dgrad,         &index->member,
        &index->stale_op,       &index->forward_again, &index->cast_again,
        &index->segment_begin};
    int **const edge_array[N_EDGE_ARRAY] = {&index->edge_place, &index->edge_before, &index->accumulate,
                                            &index->reader,     &index->source,      &index->sum};
    for (int k = 0; k < N_OP_ARRAY; k++, block += n_op) *op_array[k] = block;
    for (int k = 0; k < N_EDGE_ARRAY; k++, block += n_edge) *edge_array[k] = block;
    index->bucket_of = block;
    index->reader_start = block + n_parameter;
    index->member_start = index->reader_start + n_op + 1;
    return 1;
}

/* What is kept of every task and every value, once there are tasks. */
static int allocate_plan(struct tandem_step_index *index, size_t n_task, size_t n_value)
{
    index->active = array(n_word(n_task), sizeof *index->active);
    index->read_place = array(n_task * TANDEM_TASK_READS, sizeof *index->read_place);
    index->touched = array(n_task + 2 * n_value, sizeof *index->touched);
    index->is_loose = array(n_value, 1);
    if (!index->active || !index->read_place || !index->touched || !index->is_loose) return 0;
    index->first_reader = index->touched + n_task;
    index->loose = index->first_reader + n_value;
    for (size_t v = 0; v < n_value; v++) index->first_reader[v] = -1;
    return 1;
}

static void free_index(struct tandem_step_index *index)
{
    if (!index) return;
    free(index->has_columns);
    free(index->is_loose);
    free(index->touched);
    free(index->read_place);
    free(index->active);
    free(index->activation_need);
    free(index->pending);
    free(index->row);
    free(index->resolved);
    free(index->gradient_native);
    free(index->block);
    free(index);
}

tandem_status tandem_step_open(tandem_step **step, const tandem_graph *graph, tandem_dtype wider,
                               uint64_t bucket_bytes, tandem_error *error)
{
    return tandem_step_open_with(step, graph, wider, bucket_bytes, NULL, error);
}

static tandem_status check_scaling(tandem_cast_scaling scaling, tandem_error *error)
{
    if (scaling.window < -1 || scaling.window > TANDEM_AMAX_WINDOW)
        return tandem_error_set(error, TANDEM_USAGE, "the window of delayed scaling is 1 to %d casts, got %d",
                                TANDEM_AMAX_WINDOW, scaling.window);
    if (scaling.margin < -TANDEM_AMAX_MARGIN || scaling.margin > TANDEM_AMAX_MARGIN)
        return tandem_error_set(error, TANDEM_USAGE, "the margin of delayed scaling is %d to %d, got %d",
                                -TANDEM_AMAX_MARGIN, TANDEM_AMAX_MARGIN, scaling.margin);
    return TANDEM_OK;
}

static tandem_status check(const tandem_step_options *options, tandem_error *error)
{
    if (options->n_micro < 0 || options->n_micro > TANDEM_MAX_MICRO)
        return tandem_error_set(error, TANDEM_USAGE, "a step has 1 to %d micro-steps, got %d",
                                TANDEM_MAX_MICRO, options->n_micro);
    if (options->n_segment < TANDEM_SEGMENTS_SQRT)
        return tandem_error_set(error, TANDEM_USAGE, "a graph is cut into 1 segment or more, got %d",
                                options->n_segment);
    return check_scaling(options->scaling, error);
}

/* A micro-step more or less changes no task, one or several of them do. */
tandem_status tandem_step_open_with(tandem_step **out, const tandem_graph *graph, tandem_dtype wider,
                                    uint64_t bucket_bytes, const tandem_step_options *given,
                                    tandem_error *error)
{
    const tandem_step_options options = given ? *given : (tandem_step_options){0};
    const int is_plain = options.n_micro <= 1 && (options.n_segment == 0 || options.n_segment == 1);
    const size_t n_op = (size_t)graph->n_op, n_parameter = (size_t)graph->n_parameter;
    const size_t most_tasks =
        n_op * (size_t)(MOST_TASKS_AN_OP + (is_plain ? 0 : MORE_TASKS_AN_OP)) + 2 * n_parameter + 1;
    const tandem_status status = check(&options, error);
    if (status != TANDEM_OK) return status;
    tandem_step *step = calloc(1, sizeof *step);
    if (!step) goto no_memory;
    step->options = options;
    step->options.n_micro = options.n_micro > 1 ? options.n_micro : 1;
    step->graph = graph;
    step->amp_dtype = wider;
    step->bucket_bytes = bucket_bytes ? bucket_bytes : DEFAULT_BUCKET_BYTES;
    const int n_rowwise = (int)n_op * (FIRST_MORE + (is_plain ? 0 : MORE_AN_OP));
    step->n_value = n_rowwise * (options.transposed_copy ? 2 : 1);
    step->index = calloc(1, sizeof *step->index);
    step->precision = array(n_op, sizeof *step->precision);
    step->native = array(n_op, sizeof *step->native);
    step->task = array(most_tasks, sizeof *step->task);
    step->value = array((size_t)step->n_value, sizeof *step->value);
    step->bucket = array(n_parameter, sizeof *step->bucket);
    step->parameter_order = array(n_parameter, sizeof *step->parameter_order);
    step->parameter_start = array(n_parameter, sizeof *step->parameter_start);
    if (!step->index || !step->precision || !step->native || !step->task || !step->value || !step->bucket ||
        !step->parameter_order || !step->parameter_start || !allocate_index(step->index, n_op, n_parameter))
        goto no_memory;
    step->index->n_rowwise = n_rowwise;
    if (options.transposed_copy && !(step->index->has_columns = array((size_t)n_rowwise, 1))) goto no_memory;

    count_contributions(graph, step->index);
    find_gradient_roots(graph, step->index);
    find_sources(graph, step->index);
    list_readers(graph, step->index);
    list_members(graph, step->index);
    plan_buckets(step);
    if (!step_cut(step)) goto no_memory;
    append_all(step);
    assert((size_t)step->n_task <= most_tasks);
    if (options.transposed_copy) step_find_columnwise(step);
    if (!allocate_plan(step->index, (size_t)step->n_task, (size_t)step->n_value)) goto no_memory;
    tandem_step_resolve_all(step);
    *out = step;
    return TANDEM_OK;

no_memory:
    tandem_step_close(step);
    return tandem_error_set(error, TANDEM_NO_MEMORY,
                            "no memory for the step program of model '%s' (%d "
                            "operators)",
                            graph->model, graph->n_op);
}

void tandem_step_close(tandem_step *step)
{
    if (!step) return;
    free(step->parameter_start);
    free(step->parameter_order);
    free(step->bucket);
    free(step->value);
    free(step->task);
    free(step->native);
    free(step->precision);
    free_index(step->index);
    free(step);
}

void tandem_step_set(tandem_step *step, int op, tandem_precision precision)
{
    assert(tandem_op_row_get(step->graph->op[op].kind)->precisions & (1u << precision));
    step->precision[op] = precision;
    step_note(step->index, op);
}

int tandem_step_is_again(const tandem_step *step, int task)
{
    const int op = step->task[task].op, first = op >= 0 ? step->index->forward_again[op] : -1;
    return first >= 0 && first <= task && task <= first + TANDEM_N_VERSION; /* the casts stand behind it */
}

int tandem_step_begins(const tandem_step *step, int task)
{
    const int first = step->norm_task >= 0 ? step->norm_task : step->bucket[step->n_bucket - 1].update_task;
    return task >= first;
}

int tandem_step_repeats(const tandem_step *step, const tandem_task *task)
{
    const int is_once = task->kind == TANDEM_TASK_REDUCE || task->kind == TANDEM_TASK_NORM ||
                        task->kind == TANDEM_TASK_UPDATE;
    return is_once ? 1 : step->options.n_micro;
}

const char *tandem_task_kind_name(tandem_task_kind kind)
{
    static const char *const name[TANDEM_N_TASK_KIND] = {"weight cast", "forward", "cast",  "gradient cast",
                                                         "restore",     "wgrad",   "dgrad", "accumulate",
                                                         "all-reduce",  "norm",    "update"};
    return (int)kind >= 0 && kind < TANDEM_N_TASK_KIND ? name[kind] : "?";
}

const char *tandem_pass_name(tandem_pass pass)
{
    static const char *const name[TANDEM_N_PASS] = {"forward", "dgrad", "wgrad", "update"};
    return (int)pass >= 0 && pass < TANDEM_N_PASS ? name[pass] : "?";
}
