/* folder: step */
/* Laws of the step program, over the models of the zoo and random graphs under random plans: every task
 * reads what it should and what is there, lifetimes cover all accesses, nothing that lives at once
 * overlaps in the arena, and a plan's program does not depend on how one came to it. */
#include "step/program/step_index.h"
#include "tests/support/random_graph.h"
#include "tests/support/tandem_test.h"

enum { PLANS_A_MODEL = 12, RANDOM_GRAPHS = 400, PLANS_A_RANDOM_GRAPH = 6, ALIGNMENT = 64 };
static const uint64_t seed = 20221;

static tandem_precision draw_precision_step(chance *c, unsigned allowed)
{
    tandem_precision p;
    do p = (tandem_precision)draw_below(c, TANDEM_N_PRECISION);
    while (!(allowed & (1u << p)));
    return p;
}

static void draw_plan_step(chance *c, tandem_step *step)
{
    const uint32_t change = 1 + draw_below(c, 4); /* one operator in `change` gets a new precision */
    for (int i = 0; i < step->graph->n_op; i++) {
        const unsigned allowed = tandem_op_row_get(step->graph->op[i].kind)->precisions;
        if (!allowed || draw_below(c, change) != 0) continue;
        tandem_step_set(step, i, draw_precision_step(c, allowed));
    }
    for (int i = 0; i < step->graph->n_op && step->index->attention; i++) { /* fuses every other one */
        if (step->index->attention[i] != i || draw_below(c, 2)) continue;
        const tandem_precision p = draw_below(c, 2) ? TANDEM_PRECISION_BF16 : TANDEM_PRECISION_FP16;
        tandem_step_set(step, i, p);
        tandem_step_set(step, step_attention_of(step->graph, i).scores, p);
    }
    tandem_step_resolve(step);
}

/* --- What every task should read: values carry symbols instead of numbers ------------------------------- */

enum symbol_kind { ACTIVATION, AUX, WEIGHT, BROUGHT, PART };
static uint64_t symbol(enum symbol_kind kind, int id, int slot)
{
    const uint32_t counter[4] = {(uint32_t)id, (uint32_t)slot, (uint32_t)kind, 1};
    const tandem_philox_block block = tandem_philox(counter, seed);
    return (uint64_t)block.word[0] << 32 | block.word[1];
}

static int n_transposed_copy; /* reads of transposed copies, in all */
static int n_merged;          /* tasks that are launched with the one before, in all */
static int n_block;           /* launches of products of one tensor, in all */
static int n_in_gradients;    /* copies of weights that lie there */

typedef struct run {
    const tandem_step *step;
    /* [n_op] what the gradient of each tensor must be: the sum of all that consumers bring */
    uint64_t *gradient;
    uint64_t *value;      /* [n_value] the symbol it holds */
    int *writer;          /* [n_value] the task that wrote it, −1 = none yet */
    int *gradient_writer; /* [n_parameter] */
    int *updated;         /* [n_bucket] 0, 1 = reduced, 2 = updated */
} run;

static void expect_gradients(run *r)
{
    const tandem_graph *graph = r->step->graph;
    for (int c = graph->n_op - 1; c >= 0; c--) {
        const tandem_op *op = &graph->op[c];
        const tandem_op_row *row = tandem_op_row_get(op->kind);
        if (!op->needs_gradient || row->dgrad == TANDEM_GRAD_ABSENT) continue;
        for (int slot = 0; slot < row->n_input; slot++) {
            if (!graph->op[op->input[slot]].needs_gradient) continue;
            r->gradient[op->input[slot]] +=
                row->dgrad == TANDEM_GRAD_IDENTITY ? r->gradient[c] : symbol(BROUGHT, c, slot);
        }
    }
}

static uint64_t activation(const run *r, int tensor)
{
    return symbol(ACTIVATION, r->step->graph->view[tensor], 0);
}

/* Rows of logits may have gaps. */
static uint64_t bytes_of_step(const run *r, int tensor, tandem_dtype dtype)
{
    const tandem_op *op = &r->step->graph->op[tensor];
    const int64_t n = tandem_shape_elements(&op->shape), columns = tandem_shape_last(&op->shape),
                  row = op->kind == TANDEM_OP_CROSS_ENTROPY ? 0 : tandem_step_padded_row(r->step, tensor);
    if (!row) return tandem_dtype_size(dtype, (uint64_t)n);
    assert_true(r->step->options.padded_rows && r->step->options.narrow_rows);
    assert_true(row % 64 == 0 && row > columns && row < columns + 64 && columns % 8 > 0);
    return tandem_dtype_size(dtype, (uint64_t)(n / columns * row));
}

/* Whether operand k of a product is summed over its rows. */
static int sums_over_rows(const run *r, const tandem_task *task, int k)
{
    const tandem_op *op = &r->step->graph->op[task->op];
    if ((op->kind != TANDEM_OP_LINEAR && op->kind != TANDEM_OP_MATMUL) || k > 1) return 0;
    if (task->kind == TANDEM_TASK_WGRAD) return 1;
    return k == 1 && ((task->kind == TANDEM_TASK_FORWARD && !op->transpose_b) ||
                      (task->kind == TANDEM_TASK_DGRAD && op->transpose_b));
}

/* A transposed copy is there for those that sum over rows, and they read it where there is one, unless their
 * sides are none. */
static void check_order_step(const run *r, const tandem_task *task, int k)
{
    const int v = task->read[k], rows = tandem_value_untransposed(r->step, v);
    const tandem_op *op = &r->step->graph->op[task->op];
    const tandem_task *cast = &r->step->task[r->writer[v]];
    if (rows != v && tandem_dtype_bytes(r->step->value[v].dtype) > 1) {
        assert_true(op->kind == TANDEM_OP_CONV2D && k == 1 && task->kind != TANDEM_TASK_WGRAD);
        assert_true(r->step->options.merged_tasks && cast->n_write == 1);
    } else if (rows != v) {
        const tandem_matrices m = tandem_step_matrices(r->step, r->writer[v]);
        assert_true(sums_over_rows(r, task, k) && r->step->options.transposed_copy);
        assert_true(m.batch >= 1 && m.rows % 16 == 0 && m.columns % 16 == 0);
        assert_true((uint64_t)(m.batch * m.rows * m.columns) == r->step->value[v].bytes);
        assert_true(m.batch == 1 || op->kind == TANDEM_OP_MATMUL);
        n_transposed_copy++;
    } else if (sums_over_rows(r, task, k) && cast->n_write > 1 &&
               tandem_dtype_bytes(r->step->value[v].dtype) == 1) {
        assert_true(tandem_shape_last(&op->shape) % 16 != 0 ||
                    tandem_shape_last(&r->step->graph->op[op->input[0]].shape) % 16 != 0);
    }
}

/* Read number k of task t must be the symbol, in the type. TANDEM_S32 = of any type. */
static void check_read(const run *r, int t, int k, uint64_t wanted, tandem_dtype dtype)
{
    const tandem_task *task = &r->step->task[t];
    assert_true(k < task->n_read);
    const int v = task->read[k];
    if (v <= TANDEM_PARAMETER(0)) { /* the f32 master copy */
        assert_true(dtype == TANDEM_F32 || dtype == TANDEM_S32);
        assert_true(wanted == symbol(WEIGHT, TANDEM_PARAMETER(v), 0));
        return;
    }
    assert_in_range(v, 0, r->step->n_value - 1);
    const tandem_value *value = &r->step->value[v];
    assert_true(value->bytes > 0);
    assert_true(r->writer[v] >= 0 && r->writer[v] < t);
    assert_true(value->first <= t && t <= value->last);
    assert_true(r->value[v] == wanted);
    if (dtype != TANDEM_S32) assert_int_equal(value->dtype, dtype);
    if (task->op >= 0) check_order_step(r, task, k);
}

static void check_write(run *r, int t, int k, uint64_t holds, tandem_dtype dtype, uint64_t bytes)
{
    const tandem_task *task = &r->step->task[t];
    assert_true(k < task->n_write);
    const int v = task->write[k];
    assert_in_range(v, 0, r->step->n_value - 1);
    const tandem_value *value = &r->step->value[v];
    assert_int_equal(r->writer[v], -1);
    assert_int_equal(value->first, t);
    assert_true(value->last >= t);
    assert_true(value->bytes == bytes);
    if (dtype != TANDEM_S32) assert_int_equal(value->dtype, dtype);
    r->writer[v] = t;
    r->value[v] = holds;
}

static void check_counts(const tandem_task *task, int n_read, int n_write)
{
    assert_int_equal(task->n_read, n_read);
    assert_int_equal(task->n_write, n_write);
}

static void check_parameter_write(run *r, int t, int k, int parameter)
{
    const tandem_task *task = &r->step->task[t];
    assert_true(k < task->n_write);
    const tandem_parameter *p = &r->step->graph->parameter[parameter];
    const int adds_itself = p->tied >= 0 && task->op == p->op;
    if (r->step->options.n_micro > 1 && task->kind != TANDEM_TASK_ACCUMULATE && !adds_itself) {
        check_write(r, t, k, symbol(PART, parameter, 0), TANDEM_F32, (uint64_t)p->elements * 4);
        return;
    }
    assert_int_equal(task->write[k], TANDEM_PARAMETER(parameter));
    if (p->tied >= 0 && task->op == p->op) { /* added to what the tied linear wrote */
        assert_true(r->gradient_writer[parameter] >= 0);
        assert_int_equal(r->step->task[r->gradient_writer[parameter]].op, p->tied);
    } else {
        assert_int_equal(r->gradient_writer[parameter], -1);
        assert_int_equal(task->op, p->tied >= 0 ? p->tied : p->op);
    }
    r->gradient_writer[parameter] = t;
}

static int n_attention; /* tasks of fused attentions, in all */

/* Backward reads the gradient first, and the results of forward last. */
static void check_attention(run *r, int t, const tandem_attention *a)
{
    const tandem_task *task = &r->step->task[t];
    const tandem_op *op = r->step->graph->op;
    const int is_forward = task->kind == TANDEM_TASK_FORWARD,
              of[] = {op[a->scores].input[0], op[a->scores].input[1], op[a->mix].input[1]};
    const uint64_t brought[] = {symbol(BROUGHT, a->scores, 0), symbol(BROUGHT, a->scores, 1),
                                symbol(BROUGHT, a->mix, 1)};
    int k = 0;
    n_attention++;
    assert_int_equal(r->step->precision[a->scores], r->step->precision[a->mix]);
    assert_true(task->op == a->mix && (r->step->options.fused_attention >> r->step->precision[a->mix] & 1));
    if (!is_forward) check_read(r, t, k++, r->gradient[a->mix], task->from);
    for (int x = 0; x < 3; x++) check_read(r, t, k++, activation(r, of[x]), task->from);
    if (is_forward) {
        check_write(r, t, 0, symbol(ACTIVATION, a->mix, 0), task->to, bytes_of_step(r, a->mix, task->to));
        check_write(r, t, 1, symbol(AUX, a->mix, 0), TANDEM_F32, (uint64_t)(a->heads * a->rows) * 4);
        check_counts(task, k, 2);
        return;
    }
    check_read(r, t, k++, activation(r, a->mix), task->from);
    check_read(r, t, k++, symbol(AUX, a->mix, 0), TANDEM_F32);
    for (int x = 0; x < 3; x++) {
        const tandem_dtype dtype = r->step->value[task->write[x]].dtype;
        check_write(r, t, x, brought[x], dtype, bytes_of_step(r, of[x], dtype));
    }
    assert_int_equal(task->to, r->step->value[task->write[0]].dtype);
    check_counts(task, k, 3);
    for (int i = a->scores; i < a->mix; i++) { /* nothing of them is in memory */
        const tandem_op_tasks part = tandem_step_op_tasks(r->step, i);
        assert_false(r->step->task[part.forward].active || r->step->task[part.dgrad].active);
    }
}

/* After its own operands, from number k on, a task may hold on to those of tasks that it is merged with:
 * their number. */
static int check_held(const run *r, int t, int k)
{
    const tandem_task *task = &r->step->task[t];
    for (int h = k; h < task->n_read; h++) {
        assert_true(r->step->options.merged_tasks && !task->accumulate);
        check_read(r, t, h, r->value[task->read[h]], TANDEM_S32);
    }
    return task->n_read - k;
}

/* What a bias writes that is merged with what follows is nowhere in memory: nothing else reads it. */
static void check_unwritten(const run *r, int bias, int t)
{
    const tandem_task *task = &r->step->task[bias];
    if (task->kind != TANDEM_TASK_FORWARD || r->step->graph->op[task->op].kind != TANDEM_OP_BIAS) return;
    const tandem_value *value = &r->step->value[task->write[0]];
    assert_true(task->n_write == 1 && value->last >= t);
    for (int other = tandem_step_next_active(r->step, t + 1); other < r->step->n_task;
         other = tandem_step_next_active(r->step, other + 1)) {
        const tandem_task *reader = &r->step->task[other];
        const int n_own = reader->kind != TANDEM_TASK_FORWARD
                              ? 1
                              : tandem_op_row_get(r->step->graph->op[reader->op].kind)->n_input;
        for (int k = 0; k < reader->n_read; k++)
            if (reader->read[k] == task->write[0]) /* held on to, at most: it may be merged, but for a cast */
                assert_true(tandem_step_is_merged(r->step, other) || k >= n_own);
    }
}

/* What the first tasks of a launch read, and none of them wrote, is there until its last one is done. */
static void check_merged(const run *r)
{
    int first = -1, before = -1;
    for (int t = tandem_step_next_active(r->step, 0); t < r->step->n_task;
         before = t, t = tandem_step_next_active(r->step, t + 1)) {
        if (!tandem_step_is_merged(r->step, t)) {
            first = t;
            continue;
        }
        n_merged++;
        assert_true(r->step->options.merged_tasks && before >= first);
        check_unwritten(r, before, t);
        for (int p = first; p <= before; p = tandem_step_next_active(r->step, p + 1))
            for (int k = 0; k < r->step->task[p].n_read; k++) {
                const int v = r->step->task[p].read[k];
                assert_true(v < 0 || r->writer[v] >= first || r->step->value[v].last >= t);
            }
    }
}

static void check_forward(run *r, int t)
{
    const tandem_task *task = &r->step->task[t];
    const tandem_op *op = &r->step->graph->op[task->op];
    const tandem_op_row *row = tandem_op_row_get(op->kind);
    int k = 0;
    for (int slot = 0; slot < row->n_input; slot++) {
        const tandem_dtype type =
            r->step->graph->op[op->input[slot]].dtype == TANDEM_F32 ? task->from : TANDEM_S32;
        check_read(r, t, k++, activation(r, op->input[slot]), type);
    }
    for (int j = 0; j < row->n_parameter; j++)
        check_read(r, t, k++, symbol(WEIGHT, op->parameter[j], 0),
                   row->op_class == TANDEM_ADJUSTABLE && op->kind != TANDEM_OP_EMBEDDING ? task->from
                                                                                         : TANDEM_F32);
    k += check_held(r, t, k);
    const tandem_dtype written = op->dtype == TANDEM_F32 ? task->to : TANDEM_S32;
    check_write(r, t, 0, symbol(ACTIVATION, task->op, 0), written, bytes_of_step(r, task->op, written));
    const int keeps_logits = op->kind == TANDEM_OP_CROSS_ENTROPY && r->step->options.narrow_rows;
    const uint64_t aux_bytes =
        keeps_logits ? 8 * (op->aux_bytes / 4 / (uint64_t)r->step->graph->n_class) : op->aux_bytes;
    if (aux_bytes) check_write(r, t, 1, symbol(AUX, task->op, 0), TANDEM_S32, aux_bytes);
    check_counts(task, k, 1 + (op->aux_bytes > 0));
}

static void check_cast(run *r, int t)
{
    const tandem_task *task = &r->step->task[t];
    const tandem_op *op = &r->step->graph->op[task->op];
    uint64_t holds = 0, bytes = 0;
    assert_int_not_equal(task->from, task->to);
    switch (task->kind) {
    case TANDEM_TASK_WEIGHT_CAST:
        holds = symbol(WEIGHT, task->parameter, 0);
        bytes = tandem_dtype_size(task->to, (uint64_t)r->step->graph->parameter[task->parameter].elements);
        break;
    case TANDEM_TASK_SAVED_CAST:
        holds = activation(r, op->input[task->slot]);
        bytes = bytes_of_step(r, op->input[task->slot], task->to);
        break;
    case TANDEM_TASK_CAST:
        holds = symbol(ACTIVATION, task->op, 0);
        bytes = bytes_of_step(r, task->op, task->to);
        break;
    default:
        holds = r->gradient[task->op];
        bytes = bytes_of_step(r, task->op, task->to);
        break;
    }
    check_read(r, t, 0, holds, task->from);
    check_write(r, t, 0, holds, task->to, bytes);
    if (task->n_write > 1) {
        check_write(r, t, 1, holds, task->to, bytes);
        assert_int_equal(tandem_dtype_bytes(task->to), 1);
        assert_true(task->write[1] != task->write[0] &&
                    tandem_value_untransposed(r->step, task->write[1]) == task->write[0]);
    }
    const int n_held = task->kind == TANDEM_TASK_CAST ? check_held(r, t, 1) : 0;
    assert_true(n_held == 0 || tandem_dtype_bytes(task->to) == 1);
    check_counts(task, 1 + n_held, task->n_write);
}

/* The sum so far, which is the last thing that a task that adds to it reads, and which nobody reads again; 0
 * where it does not. */
static uint64_t taken_over(const run *r, int t, int *k)
{
    const tandem_task *task = &r->step->task[t];
    if (!task->accumulate) return 0;
    const int v = task->read[*k];
    assert_int_equal(*k, task->n_read - 1);
    assert_in_range(v, 0, r->step->n_value - 1);
    check_read(r, t, (*k)++, r->value[v], task->to);
    assert_int_equal(r->step->value[v].last, t);
    assert_true(r->step->value[v].bytes == r->step->value[task->write[0]].bytes);
    for (int other = 0; other < task->n_read - 1; other++) assert_int_not_equal(task->read[other], v);
    return r->value[v];
}

/* Write w is the gradient of input `slot`, a second one in a type of its own; *k: the next of what is
 * read. */
static void check_brought(run *r, int t, int slot, int w, int *k)
{
    const tandem_task *task = &r->step->task[t];
    const int input = r->step->graph->op[task->op].input[slot];
    const uint64_t sum = (w == 0 ? taken_over(r, t, k) : 0) + symbol(BROUGHT, task->op, slot);
    const tandem_dtype type = w == 0 ? task->to : task->other_operand_dtype;
    check_write(r, t, w, sum, type, bytes_of_step(r, input, type));
}

static void check_wgrad(run *r, int t)
{
    const tandem_task *task = &r->step->task[t];
    const tandem_op *op = &r->step->graph->op[task->op];
    const tandem_op_row *row = tandem_op_row_get(op->kind);
    int k = 0;
    if (op->kind == TANDEM_OP_EMBEDDING)
        check_read(r, t, k++, activation(r, op->input[0]), TANDEM_S32);
    else if (row->saves & TANDEM_SAVES_INPUT)
        check_read(r, t, k++, activation(r, op->input[0]), task->other_operand_dtype);
    check_read(r, t, k++, r->gradient[task->op], task->from);
    if (row->n_parameter > 0) {
        assert_int_equal(task->to, TANDEM_F32);
        check_parameter_write(r, t, 0, op->parameter[0]);
    } else {
        check_brought(r, t, 1, 0, &k);
    }
    if (op->kind == TANDEM_OP_BIAS) k += check_held(r, t, k);
    check_counts(task, k, 1);
}

/* Whether one task computes the gradients of both inputs. */
static int has_two_gradients(tandem_op_kind kind)
{
    return kind == TANDEM_OP_BATCHNORM_ADD_RELU || kind == TANDEM_OP_CONCAT || kind == TANDEM_OP_MUL;
}

static void check_dgrad(run *r, int t)
{
    const tandem_task *task = &r->step->task[t];
    const tandem_op *op = &r->step->graph->op[task->op];
    const tandem_op_row *row = tandem_op_row_on(op->kind, r->step->options.narrow_rows);
    int k = 0, written = 1;
    if (op->kind == TANDEM_OP_CROSS_ENTROPY)
        check_read(r, t, k++, activation(r, op->input[1]), TANDEM_S32);
    else
        check_read(r, t, k++, r->gradient[task->op], task->from);
    if (op->kind == TANDEM_OP_MATMUL)
        check_read(r, t, k++, activation(r, op->input[1]), task->other_operand_dtype);
    else if (row->op_class == TANDEM_ADJUSTABLE)
        check_read(r, t, k++, symbol(WEIGHT, op->parameter[0], 0), task->other_operand_dtype);
    else if (row->saves & TANDEM_SAVES_INPUT)
        check_read(r, t, k++, activation(r, op->input[0]), task->from);
    if (op->kind == TANDEM_OP_MUL) check_read(r, t, k++, activation(r, op->input[1]), task->from);
    if (row->saves & TANDEM_SAVES_OUTPUT) check_read(r, t, k++, activation(r, task->op), task->from);
    if (row->saves & TANDEM_SAVES_AUX) check_read(r, t, k++, symbol(AUX, task->op, 0), TANDEM_S32);
    if (op->kind == TANDEM_OP_TRANSPOSE) k += check_held(r, t, k);
    check_brought(r, t, 0, 0, &k);
    if (has_two_gradients(op->kind)) check_brought(r, t, 1, written++, &k);
    if (row->wgrad == TANDEM_GRAD_FUSED && row->n_parameter > 0) {
        const int n_read = op->kind == TANDEM_OP_BATCHNORM_RELU ? 2 : 1;
        for (int j = 0; j < n_read; j++)
            check_read(r, t, k++, symbol(WEIGHT, op->parameter[j], 0), TANDEM_F32);
        for (int j = 0; j < row->n_parameter; j++) check_parameter_write(r, t, written++, op->parameter[j]);
    }
    check_counts(task, k, written);
}

static void check_accumulate(run *r, int t)
{
    const tandem_task *task = &r->step->task[t];
    assert_int_equal(task->from, task->to);
    if (task->parameter >= 0) {
        check_read(r, t, 0, symbol(PART, task->parameter, 0), TANDEM_F32);
        check_parameter_write(r, t, 0, task->parameter);
        check_counts(task, 1, 1);
        return;
    }
    uint64_t sum = 0;
    for (int k = 0; k < 2; k++) {
        const int v = task->read[k];
        assert_in_range(v, 0, r->step->n_value - 1);
        check_read(r, t, k, r->value[v], task->from);
        sum += r->value[v];
        assert_true(k == 0 || !task->accumulate || r->step->value[v].last == t);
    }
    check_write(r, t, 0, sum, task->to,
                bytes_of_step(r, r->step->graph->op[task->op].input[task->slot], task->to));
    check_counts(task, 2, 1);
}

static void check_bucket_task(run *r, int t)
{
    const tandem_task *task = &r->step->task[t];
    const tandem_bucket *bucket = &r->step->bucket[task->bucket];
    if (task->kind == TANDEM_TASK_UPDATE) {
        assert_int_equal(task->stream, TANDEM_STREAM_COMPUTE);
        assert_int_equal(bucket->update_task, t);
        assert_int_equal(r->updated[task->bucket]++, 1);
        return;
    }
    assert_int_equal(task->stream, TANDEM_STREAM_COMM);
    assert_int_equal(bucket->reduce_task, t);
    assert_int_equal(r->updated[task->bucket]++, 0);
    for (int b = 0; b < task->bucket && r->step->options.merged_tasks; b++) /* all ranks, in one order */
        assert_int_equal(r->updated[b], 1);
    int last = -1;
    for (int j = 0; j < bucket->n_parameter; j++) {
        const int p = r->step->parameter_order[bucket->first_parameter_position + j];
        assert_true(r->gradient_writer[p] >= 0);
        if (r->gradient_writer[p] > last) last = r->gradient_writer[p];
    }
    assert_int_equal(bucket->ready_task, last);
}

/* All buckets are reduced, none is updated. */
static void check_norm(run *r, int t)
{
    assert_int_equal(t, r->step->norm_task);
    assert_int_equal(r->step->task[t].stream, TANDEM_STREAM_COMPUTE);
    for (int b = 0; b < r->step->n_bucket; b++) assert_int_equal(r->updated[b], 1);
}

static int brings_two(const tandem_step *step, const tandem_task *task)
{
    return task->kind == TANDEM_TASK_DGRAD && has_two_gradients(step->graph->op[task->op].kind);
}

/* Types of a product's operands are those of its precision's row. */
static void check_types_step(const run *r, const tandem_task *task)
{
    const tandem_precision_row *row = tandem_precision_get(task->precision);
    const int is_product = task->op >= 0 && tandem_op_is_adjustable(&r->step->graph->op[task->op]);
    tandem_dtype from = task->from, other_operand_dtype = from;
    if (is_product && task->kind == TANDEM_TASK_FORWARD) from = other_operand_dtype = row->forward;
    if (is_product && task->kind == TANDEM_TASK_DGRAD)
        from = row->dgrad, other_operand_dtype = row->other_operand_dtype;
    if (is_product && task->kind == TANDEM_TASK_WGRAD)
        from = row->wgrad, other_operand_dtype = row->other_operand_dtype;
    /* works in its own type; that of the second gradient is checked where it is written */
    if (brings_two(r->step, task)) {
        from = r->step->output_dtype[task->op];
        other_operand_dtype = task->other_operand_dtype;
    }
    assert_int_equal(task->from, from == TANDEM_AMP ? r->step->amp_dtype : from);
    assert_int_equal(task->other_operand_dtype,
                     other_operand_dtype == TANDEM_AMP ? r->step->amp_dtype : other_operand_dtype);
}

static void check_task_step(run *r, int t)
{
    const tandem_task *task = &r->step->task[t];
    tandem_attention attention;
    check_types_step(r, task);
    if (tandem_step_attention(r->step, t, &attention)) {
        check_attention(r, t, &attention);
        return;
    }
    switch (task->kind) {
    case TANDEM_TASK_FORWARD: check_forward(r, t); return;
    case TANDEM_TASK_WGRAD: check_wgrad(r, t); return;
    case TANDEM_TASK_DGRAD: check_dgrad(r, t); return;
    case TANDEM_TASK_ACCUMULATE: check_accumulate(r, t); return;
    case TANDEM_TASK_NORM: check_norm(r, t); return;
    case TANDEM_TASK_REDUCE:
    case TANDEM_TASK_UPDATE: check_bucket_task(r, t); return;
    default: check_cast(r, t); return;
    }
}

/* The cost of every active task is filed under a key, and the key says what the task says. */
static void check_key(const tandem_step *step, int t)
{
    const tandem_task *task = &step->task[t];
    tandem_cost_key key;
    assert_in_range(task->variant, 0, TANDEM_MAX_VARIANT - 1);
    assert_true(tandem_step_cost_key(step, t, task->variant, &key));
    unsigned precisions = 1u << TANDEM_PRECISION_FP32;
    for (int i = 0; i < step->graph->n_op; i++) precisions |= 1u << step->precision[i];
    assert_true(tandem_step_variants(step, t, precisions) >> task->variant & 1);
    if (task->kind == TANDEM_TASK_REDUCE) {
        assert_int_equal(key.kind, TANDEM_COST_COLLECTIVE);
        assert_true(key.elements == step->bucket[task->bucket].elements);
        return;
    }
    assert_int_equal(key.from, task->from);
    assert_int_equal(key.to, brings_two(step, task) ? task->from : task->to);
    const int is_cast = task->kind == TANDEM_TASK_WEIGHT_CAST || task->kind == TANDEM_TASK_CAST ||
                        task->kind == TANDEM_TASK_GRADIENT_CAST || task->kind == TANDEM_TASK_SAVED_CAST;
    assert_int_equal(key.kind, is_cast ? TANDEM_COST_CAST : TANDEM_COST_OP);
    assert_int_equal(key.transposed_copy, is_cast && task->n_write > 1);
    assert_true(is_cast ? key.elements > 0 : key.signature[0] != '\0');
    if (task->op >= 0 && tandem_op_is_adjustable(&step->graph->op[task->op]) &&
        (task->kind == TANDEM_TASK_FORWARD || task->kind == TANDEM_TASK_DGRAD ||
         task->kind == TANDEM_TASK_WGRAD)) {
        assert_string_equal(key.precision, tandem_precision_get(step->precision[task->op])->name);
        assert_int_equal(task->precision, step->precision[task->op]);
    }
}

static void *array_step(size_t n, size_t size)
{
    void *a = calloc(n ? n : 1, size);
    assert_non_null(a);
    return a;
}

/* Of what is computed again the forward pass leaves nothing, and something is read. */
static void check_again_step(const run *r, const int *n_reader)
{
    const tandem_step *step = r->step;
    int first = step->n_task;
    for (int t = step->n_task - 1; t >= 0; t--)
        if (step->task[t].kind == TANDEM_TASK_WGRAD || step->task[t].kind == TANDEM_TASK_DGRAD) first = t;
    for (int t = 0; t < step->n_task; t++) {
        const tandem_task *again = &step->task[t];
        if (!again->active || !tandem_step_is_recomputed(step, t) || again->kind != TANDEM_TASK_FORWARD)
            continue;
        const int forward = tandem_step_op_tasks(step, again->op).forward;
        assert_int_equal(again->variant, step->task[forward].variant);
        int n = 0;
        for (int k = 0; k < again->n_write; k++) {
            assert_true(step->value[step->task[forward].write[k]].last < first);
            n += n_reader[again->write[k]];
        }
        assert_true(n > 0);
    }
}

static void check_program(const tandem_step *step)
{
    const tandem_graph *graph = step->graph;
    run r = {.step = step,
             .gradient = array_step((size_t)graph->n_op, sizeof *r.gradient),
             .value = array_step((size_t)step->n_value, sizeof *r.value),
             .writer = array_step((size_t)step->n_value, sizeof *r.writer),
             .gradient_writer = array_step((size_t)graph->n_parameter, sizeof *r.gradient_writer),
             .updated = array_step((size_t)step->n_bucket, sizeof *r.updated)};
    memset(r.writer, -1, (size_t)step->n_value * sizeof *r.writer);
    memset(r.gradient_writer, -1, (size_t)graph->n_parameter * sizeof *r.gradient_writer);
    int *n_reader = array_step((size_t)step->n_value, sizeof *n_reader);
    expect_gradients(&r);
    for (int t = 0; t < step->n_task; t++) {
        const tandem_task *task = &step->task[t];
        if (!task->active) continue;
        check_task_step(&r, t);
        check_key(step, t);
        for (int k = 0; k < task->n_read; k++)
            if (task->read[k] >= 0) n_reader[task->read[k]]++;
    }
    check_merged(&r);
    for (int v = 0; v < step->n_value; v++) {
        assert_int_equal(step->value[v].bytes > 0, r.writer[v] >= 0);
        if (r.writer[v] < 0) continue;
        const tandem_task *writer = &step->task[r.writer[v]]; /* nothing is converted or summed for nobody */
        const int may_be_unread = writer->kind == TANDEM_TASK_FORWARD || writer->kind == TANDEM_TASK_DGRAD;
        const int has_copy = !may_be_unread && writer->n_write > 1; /* one of the two orders is read */
        assert_true(may_be_unread || n_reader[v] > 0 ||
                    (has_copy && n_reader[writer->write[0]] + n_reader[writer->write[1]] > 0));
    }
    for (int p = 0; p < graph->n_parameter; p++) {
        assert_true(r.gradient_writer[p] >= 0);
        assert_int_equal(step->task[r.gradient_writer[p]].op, graph->parameter[p].op);
    }
    for (int b = 0; b < step->n_bucket; b++) assert_int_equal(r.updated[b], 2);
    check_again_step(&r, n_reader);
    free(n_reader);
    free(r.updated);
    free(r.gradient_writer);
    free(r.writer);
    free(r.value);
    free(r.gradient);
}

/* --- Buckets and memory --------------------------------------------------------------------------------- */

static void check_buckets_step(const tandem_step *step)
{
    const tandem_graph *graph = step->graph;
    int64_t end = 0;
    int place = 0;
    for (int b = 0; b < step->n_bucket; b++) {
        const tandem_bucket *bucket = &step->bucket[b];
        assert_int_equal(bucket->first_parameter_position, place);
        assert_true(bucket->n_parameter > 0);
        assert_true(bucket->start == end && bucket->start % 16 == 0 && bucket->elements % 16 == 0);
        for (int j = 0; j < bucket->n_parameter; j++, place++) {
            const int p = step->parameter_order[place];
            assert_true(step->parameter_start[p] >= end);
            end = step->parameter_start[p] + graph->parameter[p].elements;
        }
        assert_true(end < bucket->start + bucket->elements); /* the last element is spare */
        end = bucket->start + bucket->elements;
    }
    assert_int_equal(place, graph->n_parameter);
    assert_true(step->n_flat == end);
}

typedef struct piece {
    int64_t start;
    uint64_t bytes;
    int first, last;
} piece;

static uint64_t padded(uint64_t bytes) { return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

static void check_pieces(const tandem_memory *memory, const piece *all, int n)
{
    for (int i = 0; i < n; i++) {
        assert_true(all[i].start >= 0 && all[i].start % ALIGNMENT == 0);
        assert_true((uint64_t)all[i].start + all[i].bytes <= memory->arena);
        for (int j = 0; j < i; j++) {
            const int at_once = all[i].first <= all[j].last && all[j].first <= all[i].last;
            const int overlap = all[i].start < all[j].start + (int64_t)all[j].bytes &&
                                all[j].start < all[i].start + (int64_t)all[i].bytes;
            assert_false(at_once && overlap);
        }
    }
}

static uint64_t max_alive(const piece *all, int n, int n_task)
{
    uint64_t most = 0, alive = 0;
    uint64_t *change = array_step((size_t)n_task + 1, sizeof *change); /* wraps around where it falls */
    for (int i = 0; i < n; i++) {
        change[all[i].first] += padded(all[i].bytes);
        change[all[i].last + 1] -= padded(all[i].bytes);
    }
    for (int t = 0; t < n_task; t++) {
        alive += change[t];
        if (alive > most) most = alive;
    }
    free(change);
    return most;
}

/* Values that products of one launch read or write: they lie one after the other. */
typedef struct block {
    int value[TANDEM_MAX_MERGED_PRODUCTS], n;
} block;

static int before_task(const tandem_step *step, int t)
{
    do t--;
    while (!step->task[t].active);
    return t;
}

/* Of each launch of products, the distances that the library gets hold for every operand. */
static int find_blocks(block *found, const tandem_step *step, const int64_t *offset)
{
    int n = 0;
    for (int t = 0; t < step->n_task; t++) {
        const tandem_merged_products all = tandem_step_merged_products(step, t);
        const tandem_task *task = &step->task[t];
        const int is_forward = task->kind == TANDEM_TASK_FORWARD;
        if (all.n == 0) continue;
        assert_true(task->active && (is_forward || task->kind == TANDEM_TASK_WGRAD));
        assert_in_range(all.n, 2, TANDEM_MAX_MERGED_PRODUCTS);
        block *own = &found[n++];
        own->n = all.n;
        for (int k = all.n - 1, at = t; k >= 0; k--, at = before_task(step, at)) {
            const tandem_task *one = &step->task[at];
            assert_int_equal(tandem_step_is_merged(step, at), k > 0);
            assert_true(one->kind == task->kind && one->read[0] == task->read[0]);
            own->value[k] = is_forward ? one->write[0] : one->read[1];
            if (k == all.n - 1) continue;
            const tandem_task *following = &step->task[tandem_step_next_active(step, at + 1)];
            const int64_t size = (int64_t)tandem_dtype_bytes(task->from);
            assert_true(offset[following->read[1]] - offset[one->read[1]] == all.operand_apart * size);
            assert_true((is_forward ? offset[following->write[0]] - offset[one->write[0]]
                                    : (step->parameter_start[TANDEM_PARAMETER(following->write[0])] -
                                       step->parameter_start[TANDEM_PARAMETER(one->write[0])]) *
                                          size) == all.result_apart * size);
        }
    }
    n_block += n;
    return n;
}

static const block *block_with(const block *all, int n, int v)
{
    for (int i = 0; i < n; i++)
        for (int k = 0; k < all[i].n; k++)
            if (all[i].value[k] == v) return &all[i];
    return NULL;
}

/* A value has its memory from here on. */
static int born(const tandem_step *step, const block *all, int n, int v)
{
    const block *own = block_with(all, n, v);
    int first = step->value[v].first;
    for (int k = 0; own && k < own->n; k++)
        if (step->value[own->value[k]].first < first) first = step->value[own->value[k]].first;
    return first;
}

/* First fit, said plainly: the lowest place that nothing alive is in. */
static int64_t lowest_place(const piece *alive, int n, uint64_t bytes)
{
    int64_t at = 0;
    for (int i = 0; i < n; i++) {
        const int64_t end = alive[i].start + (int64_t)padded(alive[i].bytes);
        if (alive[i].start >= at + (int64_t)padded(bytes) || end <= at) continue;
        at = end;
        i = -1;
    }
    return at;
}

/* The values that get their memory with v; none where v has it. */
static block placed_with(const tandem_step *step, const block *all, int n, int v, int t)
{
    const block *own = block_with(all, n, v);
    if (!own) return (block){{v}, 1};
    if (born(step, all, n, v) < t) return (block){{0}, 0};
    for (int w = 0; w < step->task[t].n_write && step->task[t].write[w] != v; w++)
        if (block_with(all, n, step->task[t].write[w]) == own) return (block){{0}, 0};
    return *own;
}

static void check_first_fit(const tandem_step *step, const uint64_t *workspace, const int64_t *offset,
                            const int64_t *workspace_offset, const block *blocks, int n_blocks)
{
    piece *alive = array_step((size_t)step->n_value + 1, sizeof *alive);
    int n = 0;
    for (int t = 0; t < step->n_task; t++) {
        const tandem_task *task = &step->task[t];
        if (!task->active) continue;
        for (int i = 0; i < n && task->accumulate; i++)
            if (alive[i].start == offset[task->read[task->n_read - 1]])
                alive[i].last = step->value[task->write[0]].last;
        for (int k = task->accumulate; k < task->n_write; k++) {
            const int v = task->write[k];
            if (v < 0 || offset[v] < -1) continue;
            const block own = placed_with(step, blocks, n_blocks, v, t);
            if (own.n > 0)
                assert_true(offset[own.value[0]] ==
                            lowest_place(alive, n, (uint64_t)own.n * padded(step->value[v].bytes)));
            for (int i = 0; i < own.n; i++)
                alive[n++] =
                    (piece){offset[own.value[i]], step->value[v].bytes, t, step->value[own.value[i]].last};
        }
        if (workspace[t]) assert_true(workspace_offset[t] == lowest_place(alive, n, workspace[t]));
        for (int i = 0; i < n; i++)
            if (alive[i].last == t) alive[i--] = alive[--n];
    }
    free(alive);
}

/* Of every task all categories sum to the peak, and what the arena holds is what lives. */
static void check_timeline(const tandem_step *step, const uint64_t *workspace, const tandem_memory *memory,
                           const piece *all, int n)
{
    tandem_memory_row *row = array_step((size_t)step->n_task, sizeof *row);
    assert_int_equal(tandem_memory_timeline(row, step, workspace, NULL), TANDEM_OK);
    for (int t = 0; t < step->n_task; t++) {
        uint64_t sum = 0, live = 0;
        for (int k = 0; k < TANDEM_N_MEMORY_CATEGORY; k++) sum += row[t].bytes[k];
        assert_true(sum == (step->task[t].active ? memory->peak : 0));
        for (int i = 0; i < n; i++)
            if (all[i].first <= t && t <= all[i].last) live += padded(all[i].bytes);
        if (step->task[t].active) assert_true(row[t].bytes[TANDEM_MEMORY_UNUSED] == memory->arena - live);
    }
    const uint64_t *at_peak = row[memory->peak_task].bytes;
    assert_true(at_peak[TANDEM_MEMORY_UNUSED] == memory->arena - memory->arena_live);
    assert_true(at_peak[TANDEM_MEMORY_WORKSPACE] == memory->workspace);
    assert_true(at_peak[TANDEM_MEMORY_WEIGHT_COPIES] == memory->weight_copies);
    free(row);
}

/* A copy of a weight that lies in the gradients: within its own weight's, after whatever reads it has the
 * gradient its first value, and no other copy lies there meanwhile. */
static void check_in_gradients(const tandem_step *step, const int64_t *offset, int v)
{
    const tandem_value *value = &step->value[v];
    const int p = step->graph->op[value->op].parameter[0];
    const int64_t byte = TANDEM_IN_GRADIENTS(offset[v]), begin = step->parameter_start[p] * 4,
                  bytes = (int64_t)value->bytes;
    n_in_gradients++;
    assert_true(step->options.n_micro <= 1 && byte % 64 == 0);
    assert_true(byte >= begin && byte + bytes <= begin + step->graph->parameter[p].elements * 4);
    for (int t = 0; t < step->n_task; t++)
        for (int k = 0; k < step->task[t].n_write && step->task[t].active; k++)
            if (step->task[t].write[k] == TANDEM_PARAMETER(p)) assert_true(t > value->last);
    for (int other = 0; other < step->n_value; other++) {
        if (other == v || offset[other] >= -1) continue;
        const int64_t at = TANDEM_IN_GRADIENTS(offset[other]);
        assert_true(at >= byte + bytes || at + (int64_t)step->value[other].bytes <= byte);
    }
}

static void check_memory(const tandem_step *step, chance *c)
{
    const size_t n_value = (size_t)step->n_value, n_task = (size_t)step->n_task;
    uint64_t *workspace = array_step(n_task, sizeof *workspace);
    int64_t *offset = array_step(n_value, sizeof *offset),
            *workspace_offset = array_step(n_task, sizeof *workspace_offset);
    piece *all = array_step(n_value + n_task, sizeof *all);
    for (size_t t = 0; t < n_task; t++) workspace[t] = draw_below(c, 3) ? 0 : 1 + draw_below(c, 100000);
    tandem_memory memory;
    assert_int_equal(tandem_memory_plan(&memory, step, workspace, offset, workspace_offset, NULL), TANDEM_OK);
    block *blocks = array_step(n_task, sizeof *blocks);
    const int n_blocks = find_blocks(blocks, step, offset);
    int n = 0;
    for (int v = 0; v < step->n_value; v++) {
        const tandem_value *value = &step->value[v];
        assert_int_equal(offset[v] != -1, value->bytes > 0);
        if (offset[v] < -1)
            check_in_gradients(step, offset, v);
        else if (value->bytes)
            all[n++] = (piece){offset[v], value->bytes, born(step, blocks, n_blocks, v), value->last};
    }
    for (int t = 0; t < step->n_task; t++) {
        const tandem_task *task = &step->task[t];
        if (!task->active || !task->accumulate) continue;
        const int taken = task->read[task->n_read - 1];
        assert_true(offset[task->write[0]] == offset[taken]);
        for (int i = 0; i < n; i++) /* from here on it is the result */
            if (all[i].start == offset[taken] && all[i].last == t && all[i].first < t) all[i].last--;
    }
    for (int t = 0; t < step->n_task; t++) {
        assert_int_equal(workspace_offset[t] >= 0, step->task[t].active && workspace[t] > 0);
        if (workspace_offset[t] >= 0) all[n++] = (piece){workspace_offset[t], workspace[t], t, t};
    }
    check_pieces(&memory, all, n);
    check_first_fit(step, workspace, offset, workspace_offset, blocks, n_blocks);
    free(blocks);
    assert_true(memory.arena_live == max_alive(all, n, step->n_task));
    assert_true(memory.arena_live == memory.activations + memory.activation_gradients + memory.weight_copies +
                                         memory.workspace + memory.weight_gradients);
    assert_true(memory.arena >= memory.arena_live);
    const uint64_t flat = (uint64_t)step->n_flat * 4;
    assert_true(memory.weights == flat && memory.gradients == flat && memory.optimizer >= flat);
    assert_true(memory.peak ==
                memory.weights + memory.gradients + memory.optimizer + memory.histories + memory.arena);
    tandem_memory again;
    assert_int_equal(tandem_memory_plan(&again, step, workspace, NULL, NULL, NULL), TANDEM_OK);
    assert_memory_equal(&again, &memory, sizeof memory);
    check_timeline(step, workspace, &memory, all, n);
    free(all);
    free(workspace_offset);
    free(offset);
    free(workspace);
}

/* --- Ways to a plan ------------------------------------------------------------------------------------- */

/* Every public field, of what is not in the plan, too. */
static void check_equal(const tandem_step *a, const tandem_step *b)
{
    const size_t n_op = (size_t)a->graph->n_op, n_task = (size_t)a->n_task, n_value = (size_t)a->n_value;
    assert_true(a->n_task == b->n_task && a->n_value == b->n_value && a->n_bucket == b->n_bucket);
    assert_memory_equal(a->precision, b->precision, n_op * sizeof *a->precision);
    assert_memory_equal(a->output_dtype, b->output_dtype, n_op * sizeof *a->output_dtype);
    assert_memory_equal(a->task, b->task, n_task * sizeof *a->task);
    assert_memory_equal(a->value, b->value, n_value * sizeof *a->value);
    assert_memory_equal(a->bucket, b->bucket, (size_t)a->n_bucket * sizeof *a->bucket);
}

/* One that was resolved as a whole. */
static void check_against_fresh(const tandem_step *step, uint64_t bucket_bytes)
{
    tandem_step *fresh = NULL;
    assert_int_equal(
        tandem_step_open_with(&fresh, step->graph, step->amp_dtype, bucket_bytes, &step->options, NULL),
        TANDEM_OK);
    memcpy(fresh->precision, step->precision, (size_t)step->graph->n_op * sizeof *step->precision);
    step_resolve_all(fresh);
    check_equal(step, fresh);
    tandem_step_close(fresh);
}

static void check_undo(tandem_step *step, chance *c, uint64_t bucket_bytes)
{
    const size_t bytes = (size_t)step->graph->n_op * sizeof *step->precision;
    tandem_precision *before = array_step(1, bytes);
    memcpy(before, step->precision, bytes);
    draw_plan_step(c, step);
    for (int i = 0; i < step->graph->n_op; i++)
        if (before[i] != step->precision[i]) tandem_step_set(step, i, before[i]);
    tandem_step_resolve(step);
    check_against_fresh(step, bucket_bytes);
    free(before);
}

enum { CHANGES = 8, MAX_TOGETHER = 3 };

static tandem_step *draw_step(chance *c, const tandem_graph *graph, uint64_t bucket_bytes)
{
    static const int n_micro[] = {0, 1, 3}, n_recompute_segment[] = {0, TANDEM_RECOMPUTE_SQRT, 2, 7};
    tandem_step *step = NULL;
    static const tandem_dtype amp_dtypes[] = {TANDEM_F32, TANDEM_BF16, TANDEM_F16};
    const tandem_dtype amp_dtype = amp_dtypes[draw_below(c, 3)];
    const tandem_step_options options = {.n_micro = n_micro[draw_below(c, 3)],
                                         .n_recompute_segment = n_recompute_segment[draw_below(c, 4)],
                                         .scaling.window = draw_below(c, 2) ? 5 : 0,
                                         .separate_partial_grads = draw_below(c, 4) == 0,
                                         .transposed_copy = (int)draw_below(c, 2),
                                         .narrow_rows = (int)draw_below(c, 2),
                                         .fused_attention = draw_below(c, TANDEM_ATTENTION_PRECISIONS + 1),
                                         .merged_tasks = (int)draw_below(c, 2),
                                         .copies_in_gradients = (int)draw_below(c, 2),
                                         .padded_rows = (int)draw_below(c, 2), /* with narrow_rows alone */
                                         .with_norm = (int)draw_below(c, 2)};
    assert_int_equal(tandem_step_open_with(&step, graph, amp_dtype, bucket_bytes, &options, NULL), TANDEM_OK);
    assert_in_range(step->n_recompute_segment, 1, tandem_step_max_segments(step));
    return step;
}

static int draw_adjustable(chance *c, const tandem_graph *graph)
{
    int i;
    do i = (int)draw_below(c, (uint32_t)graph->n_op);
    while (!tandem_op_row_get(graph->op[i].kind)->precisions);
    return i;
}

/* A few operators at a time, some of them twice before the program is resolved; every other change is undone.
 * */
static void check_changes(const tandem_graph *graph, chance *c, uint64_t bucket_bytes)
{
    tandem_step *step = draw_step(c, graph, bucket_bytes);
    for (int n = 0; n < CHANGES; n++) {
        int op[MAX_TOGETHER];
        tandem_precision before[MAX_TOGETHER];
        const int together = 1 + (int)draw_below(c, MAX_TOGETHER);
        for (int k = 0; k < together; k++) {
            op[k] = draw_adjustable(c, graph);
            before[k] = step->precision[op[k]];
            tandem_step_set(step, op[k],
                            draw_precision_step(c, tandem_op_row_get(graph->op[op[k]].kind)->precisions));
        }
        tandem_step_resolve(step);
        check_against_fresh(step, bucket_bytes);
        if (draw_below(c, 2)) continue;
        for (int k = together - 1; k >= 0; k--) tandem_step_set(step, op[k], before[k]);
        tandem_step_resolve(step);
        check_against_fresh(step, bucket_bytes);
    }
    tandem_step_close(step);
}

static void check_graph_step(const tandem_graph *graph, chance *c, int n_plan)
{
    static const uint64_t bucket_bytes[] = {0, 1, 4096, 65536};
    check_changes(graph, c, bucket_bytes[draw_below(c, 4)]);
    for (int n = 0; n < n_plan; n++) {
        const uint64_t bytes = bucket_bytes[draw_below(c, 4)];
        tandem_step *step = draw_step(c, graph, bytes);
        check_buckets_step(step);
        for (int k = 0; k < 2; k++) {
            if (n + k > 0) draw_plan_step(c, step); /* the very first: all in fp32 */
            check_program(step);
            check_memory(step, c);
        }
        check_undo(step, c, bytes);
        tandem_step_close(step);
    }
}

/* --- Graphs --------------------------------------------------------------------------------------------- */

static void laws_hold_on_the_zoo_step(void **state)
{
    for (int m = 0; m < tandem_model_count(); m++) {
        tandem_graph *graph = NULL;
        tandem_error error = {0};
        require_ok(tandem_graph_open(&graph, tandem_model_get(m)->name, 4, &error), &error);
        chance c = {.seed = seed, .series = (uint32_t)m};
        print_message("%s: seed %llu, series %u\n", graph->model, (unsigned long long)seed, c.series);
        check_graph_step(graph, &c, PLANS_A_MODEL);
        tandem_graph_close(graph);
    }
    assert_true(n_transposed_copy > 1000 && n_merged > 1000 && n_block > 0);
    assert_in_range(n_in_gradients, 100, INT32_MAX);
    assert_true(n_attention > 100);
}

static void laws_hold_on_random_graphs_step(void **state)
{
    print_message("random graphs: seed %llu, series 1000 … %d\n", (unsigned long long)seed,
                  1000 + RANDOM_GRAPHS - 1);
    for (int g = 0; g < RANDOM_GRAPHS; g++) {
        chance c = {.seed = seed, .series = 1000 + (uint32_t)g};
        tandem_graph *graph = random_graph(&c);
        check_graph_step(graph, &c, PLANS_A_RANDOM_GRAPH);
        tandem_graph_close(graph);
    }
}

/* Casts to f32 of a step in bf16, and the bytes of its arena. */
static int casts_to_f32(const tandem_graph *graph, int narrow_rows, uint64_t *bytes)
{
    const tandem_step_options options = {.narrow_rows = narrow_rows};
    tandem_step *step = NULL;
    tandem_memory memory;
    int n = 0;
    assert_int_equal(tandem_step_open_with(&step, graph, TANDEM_BF16, 0, &options, NULL), TANDEM_OK);
    for (int i = 0; i < graph->n_op; i++)
        if (tandem_op_is_adjustable(&graph->op[i])) tandem_step_set(step, i, TANDEM_PRECISION_BF16);
    tandem_step_resolve(step);
    for (int t = 0; t < step->n_task; t++) {
        const tandem_task *task = &step->task[t];
        n += task->active && task->to == TANDEM_F32 &&
             (task->kind == TANDEM_TASK_CAST || task->kind == TANDEM_TASK_GRADIENT_CAST);
        if (task->active && task->op == graph->loss && task->kind == TANDEM_TASK_FORWARD) {
            assert_int_equal(task->from, narrow_rows ? TANDEM_BF16 : TANDEM_F32);
            assert_int_equal(task->to, TANDEM_F32);
        }
    }
    assert_int_equal(tandem_memory_plan(&memory, step, NULL, NULL, NULL, NULL), TANDEM_OK);
    *bytes = memory.arena;
    tandem_step_close(step);
    return n;
}

/* Where kernels of rows convert inside, a transformer in bf16 has no cast to f32, and takes less memory. */
static void narrow_rows_need_no_casts(void **state)
{
    tandem_graph *graph = NULL;
    uint64_t wide = 0, narrow = 0;
    assert_int_equal(tandem_graph_open(&graph, "gpt_tiny", 4, NULL), TANDEM_OK);
    assert_true(casts_to_f32(graph, 0, &wide) > 10);
    assert_int_equal(casts_to_f32(graph, 1, &narrow), 0);
    assert_true(narrow < wide);
    tandem_graph_close(graph);
}

/* A step in bf16 on cards: bytes that live at its peak without workspace, and tasks. */
static uint64_t attention_bytes(const tandem_graph *graph, unsigned fused_attention, int *n_active)
{
    const tandem_step_options options = {.narrow_rows = 1, .fused_attention = fused_attention};
    tandem_step *step = NULL;
    tandem_memory memory;
    assert_int_equal(tandem_step_open_with(&step, graph, TANDEM_BF16, 0, &options, NULL), TANDEM_OK);
    for (int i = 0; i < graph->n_op; i++)
        if (tandem_op_is_adjustable(&graph->op[i])) tandem_step_set(step, i, TANDEM_PRECISION_BF16);
    tandem_step_resolve(step);
    *n_active = 0;
    for (int t = 0; t < step->n_task; t++) *n_active += step->task[t].active;
    assert_int_equal(tandem_memory_plan(&memory, step, NULL, NULL, NULL, NULL), TANDEM_OK);
    tandem_step_close(step);
    return memory.arena_live;
}

/* Separate operators keep the probabilities for backward before dropout and after it. One task keeps its
 * result and a number for each row instead. Of ten tasks two are left. */
static void fused_attention_keeps_no_scores(void **state)
{
    enum { BATCH_SIZE = 2, HEADS = 4, LENGTH = 256, DEPTH = 4, CHANNELS = 128 };
    tandem_graph *graph = NULL;
    int separate_tasks = 0, tasks = 0;
    assert_int_equal(tandem_graph_open(&graph, "gpt_tiny:length=256,dropout=0.1", BATCH_SIZE, NULL),
                     TANDEM_OK);
    const uint64_t separate = attention_bytes(graph, 0, &separate_tasks),
                   fused = attention_bytes(graph, 1u << TANDEM_PRECISION_BF16, &tasks),
                   heads = (uint64_t)BATCH_SIZE * HEADS * DEPTH, kept = heads * LENGTH * LENGTH * 2 * 2,
                   statistics = heads * LENGTH * sizeof(float),
                   results = (uint64_t)BATCH_SIZE * LENGTH * CHANNELS * DEPTH * 2;
    assert_int_equal(separate - fused, kept - statistics - results);
    assert_int_equal(separate_tasks - tasks, 8 * DEPTH);
    tandem_graph_close(graph);
}

/* Launches of products that end a launch of a step of cards, by how many there are in each. */
static void count_products(int n[2][TANDEM_MAX_MERGED_PRODUCTS + 1], const tandem_step *step)
{
    memset(n, 0, 2 * sizeof *n);
    for (int t = 0; t < step->n_task; t++)
        if (step->task[t].kind == TANDEM_TASK_FORWARD || step->task[t].kind == TANDEM_TASK_WGRAD)
            n[step->task[t].kind == TANDEM_TASK_WGRAD][tandem_step_merged_products(step, t).n]++;
}

static int operator_named(const tandem_graph *graph, const char *name)
{
    for (int i = 0; i < graph->n_op; i++)
        if (strcmp(graph->op[i].name, name) == 0) return i;
    fail_msg("no operator '%s'", name);
    return -1;
}

/* a and c have a bias each, b has none; that of d is read by a transpose and a product. */
static tandem_graph *uneven_products(void)
{
    static const int64_t shape[3] = {BATCH, ROWS, WIDTH}, heads[4] = {BATCH, ROWS, 1, WIDTH},
                         flat[2] = {BATCH, ROWS * WIDTH};
    static const int axis[4] = {0, 2, 1, 3};
    tandem_builder *b = NULL;
    tandem_graph *graph = NULL;
    assert_int_equal(tandem_builder_open(&b, BATCH, NULL), TANDEM_OK);
    int x = tandem_build_reshape(b, "in", tandem_build_images(b, "image", ROWS, 2, WIDTH / 2), 3, shape);
    x = tandem_build_linear(b, "x", x, WIDTH, 0.1f);
    const int one = tandem_build_bias(b, "a.bias", tandem_build_linear(b, "a", x, WIDTH, 0.1f), 1, 0);
    const int two = tandem_build_linear(b, "b", x, WIDTH, 0.1f),
              three = tandem_build_bias(b, "c.bias", tandem_build_linear(b, "c", x, WIDTH, 0.1f), 1, 0);
    const int four = tandem_build_linear(b, "d", tandem_build_relu(b, "y", x), WIDTH, 0.1f),
              shifted = tandem_build_bias(b, "d.bias", four, 1, 0),
              split = tandem_build_reshape(b, "d.split", shifted, 4, heads),
              turned = tandem_build_transpose(b, "d.turned", split, axis),
              back = tandem_build_reshape(b, "d.back", turned, 3, shape);
    int all = tandem_build_mul(b, "ab", tandem_build_mul(b, "dd", back, shifted), one);
    all = tandem_build_mul(b, "abd", all, two);
    all = tandem_build_reshape(b, "flat", tandem_build_mul(b, "abc", all, three), 2, flat);
    tandem_build_cross_entropy(b, "loss", tandem_build_linear(b, "head", all, 4, 0.1f),
                               tandem_build_labels(b, "label", 1));
    const tandem_optimizer_options options = {.kind = TANDEM_SGD};
    assert_int_equal(tandem_builder_finish(b, "uneven", &options, &graph, NULL), TANDEM_OK);
    tandem_builder_close(b);
    return graph;
}

/* Of three products, weights' gradients that a bias's lies between are not as far apart as those without one.
 * A bias that is read twice is stored. So all laws hold, whatever buckets there are. */
static void products_that_lie_unevenly_are_separate(void **state)
{
    static const uint64_t bucket_bytes[] = {0, 1, 4096, 16384};
    int n[2][TANDEM_MAX_MERGED_PRODUCTS + 1];
    tandem_graph *graph = uneven_products();
    chance c = {.seed = seed, .series = 1};
    for (int k = 0; k < 4; k++) {
        const tandem_step_options options = {.narrow_rows = 1, .merged_tasks = 1};
        tandem_step *step = NULL;
        assert_int_equal(tandem_step_open_with(&step, graph, TANDEM_BF16, bucket_bytes[k], &options, NULL),
                         TANDEM_OK);
        for (int i = 0; i < graph->n_op; i++)
            if (graph->op[i].kind == TANDEM_OP_LINEAR) tandem_step_set(step, i, TANDEM_PRECISION_BF16);
        tandem_step_resolve(step);
        check_program(step);
        check_memory(step, &c);
        count_products(n, step);
        assert_int_equal(n[0][3], 1);
        assert_int_equal(n[0][2] + n[1][3], 0);
        if (k == 0) assert_int_equal(n[1][2], 1);
        tandem_step_close(step);
    }
    tandem_graph_close(graph);
    (void)state;
}

/* q, k and v are one product forward and one for their weights' gradients; with the biases and transposes
 * after them they are ten launches less. One that another precision has is alone, and so do bytes, which
 * have a scale each; with a bucket for each parameter, weights' gradients are not equally far apart. */
static void products_of_one_tensor_are_one_launch(void **state)
{
    enum { DEPTH = 3 };
    const tandem_step_options options = {
        .narrow_rows = 1, .fused_attention = 1u << TANDEM_PRECISION_BF16, .merged_tasks = 1};
    int n[2][TANDEM_MAX_MERGED_PRODUCTS + 1];
    tandem_graph *graph = NULL;
    tandem_step *step = NULL;
    assert_int_equal(tandem_graph_open(&graph, "gpt_tiny:depth=3", 2, NULL), TANDEM_OK);
    assert_int_equal(tandem_step_open_with(&step, graph, TANDEM_BF16, 0, &options, NULL), TANDEM_OK);
    for (int i = 0; i < graph->n_op; i++)
        if (tandem_op_is_adjustable(&graph->op[i])) tandem_step_set(step, i, TANDEM_PRECISION_BF16);
    tandem_step_resolve(step);
    count_products(n, step);
    assert_true(n[0][3] == DEPTH && n[1][3] == DEPTH && n[0][2] == 0 && n[1][2] == 0);
    const int v = operator_named(graph, "block1.attention.v");
    static const tandem_precision others[] = {TANDEM_PRECISION_FP8, TANDEM_PRECISION_FP32};
    for (int k = 0; k < 2; k++) {
        tandem_step_set(step, v, others[k]);
        tandem_step_resolve(step);
        count_products(n, step);
        assert_true(n[0][3] == DEPTH - 1 && n[1][3] == DEPTH - 1 && n[0][2] == 1 && n[1][2] == 1);
    }
    for (int i = 0; i < graph->n_op; i++)
        if (graph->op[i].kind == TANDEM_OP_LINEAR) tandem_step_set(step, i, TANDEM_PRECISION_FP8);
    tandem_step_resolve(step);
    count_products(n, step);
    assert_true(n[0][3] + n[1][3] + n[0][2] + n[1][2] == 0);
    tandem_step_close(step);
    tandem_graph_close(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(laws_hold_on_the_zoo_step),
        cmocka_unit_test(laws_hold_on_random_graphs_step),
        cmocka_unit_test(narrow_rows_need_no_casts),
        cmocka_unit_test(fused_attention_keeps_no_scores),
        cmocka_unit_test(products_of_one_tensor_are_one_launch),
        cmocka_unit_test(products_that_lie_unevenly_are_separate),
    };
    return cmocka_run_group_tests_name("step laws", tests, NULL, NULL);
}
