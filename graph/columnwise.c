/* columnwise.c: which casts to types of a byte write a tensor's columns beside its rows.
 *
 * Of a layer's products y = x·w, gx = g·wᵀ and gw = xᵀ·g the first sums over the columns of x and the rows of
 * w, the second over the columns of g and of w, the third over the rows of x and of g. Units that multiply
 * numbers of a byte want both operands along the dimension that is summed over (NVIDIA, cuBLAS documentation,
 * cublasLtMatmul, on fp8 and on int8), so that what is read in two of the products is wanted in both orders.
 * A cast that writes both moves a number from f32 in 6 bytes, from bf16 in 4; one that writes rows, and a
 * transpose behind it, in 7 and 5.
 *
 * Whether a cast writes both follows from the graph alone, so that its cost does, too: it does where every
 * precision of every operator that reads this type would read columns of it at least once. */
#include "graph/columnwise.h"

#include "graph/types.h"

/* In units of so many numbers a matrix is turned, and taken by a product, without padding. */
enum { UNIT = 16 };

/* --- Matrices of a product ------------------------------------------------------------------------------ */

static int is_product(const tandem_op *op)
{
    return op->kind == TANDEM_OP_LINEAR || op->kind == TANDEM_OP_MATMUL;
}

static tandem_matrices matrices_of(const tandem_shape *shape, int is_stack)
{
    const int64_t columns = tandem_shape_last(shape), all = tandem_shape_elements(shape) / columns;
    const int64_t rows = is_stack ? shape->dim[shape->n_dim - 2] : all;
    return (tandem_matrices){all / rows, rows, columns};
}

/* Of linear, all but the last dimension are rows. */
static tandem_matrices operand_matrices(const tandem_graph *graph, int i, product_operand operand)
{
    const tandem_op *op = &graph->op[i];
    const int is_stack = op->kind == TANDEM_OP_MATMUL;
    if (operand == OPERAND_GRADIENT) return matrices_of(&op->shape, is_stack);
    if (operand == OPERAND_INPUT) return matrices_of(&graph->op[op->input[0]].shape, is_stack);
    return matrices_of(is_stack ? &graph->op[op->input[1]].shape : &graph->parameter[op->parameter[0]].shape,
                       is_stack);
}

static int is_in_units(tandem_matrices m) { return m.rows % UNIT == 0 && m.columns % UNIT == 0; }

static int are_same(tandem_matrices a, tandem_matrices b)
{
    return a.batch == b.batch && a.rows == b.rows && a.columns == b.columns;
}

/* Whether product `pass` of operator i sums over the rows of an operand as it lies. */
static int sums_over_rows(const tandem_graph *graph, int i, tandem_pass pass, product_operand operand)
{
    const tandem_op *op = &graph->op[i];
    if (!is_product(op) || !is_in_units(operand_matrices(graph, i, OPERAND_INPUT)) ||
        !is_in_units(operand_matrices(graph, i, OPERAND_GRADIENT)))
        return 0;
    if (pass == TANDEM_PASS_WGRAD) return operand != OPERAND_SECOND;
    return operand == OPERAND_SECOND && (pass == TANDEM_PASS_DGRAD) == (op->transpose_b != 0);
}

/* --- Who reads what, in any plan ------------------------------------------------------------------------ */

/* The type in which product `pass` of operator i reads an operand in precision p; TANDEM_N_VERSION: it does
 * not. */
static int type_read(const tandem_step *step, int i, int p, tandem_pass pass, product_operand operand)
{
    const tandem_precision_row *row = tandem_precision_get((tandem_precision)p);
    const struct tandem_step_index *index = step->index;
    if (pass == TANDEM_PASS_FORWARD)
        return operand == OPERAND_GRADIENT ? TANDEM_N_VERSION : (int)row->forward;
    if ((pass == TANDEM_PASS_DGRAD ? index->dgrad : index->wgrad)[i] < 0) return TANDEM_N_VERSION;
    if (operand == (pass == TANDEM_PASS_DGRAD ? OPERAND_INPUT : OPERAND_SECOND)) return TANDEM_N_VERSION;
    if (operand != OPERAND_GRADIENT) return (int)device_type(step, row->second);
    return (int)device_type(step, pass == TANDEM_PASS_DGRAD ? row->dgrad : row->wgrad);
}

/* How the precisions of those seen so far read columns of what is in one type. */
typedef struct wish {
    int n_reader;
    int is_refused; /* by a precision that has no use for them */
    tandem_matrices matrices;
} wish;

static void ask(wish *w, const tandem_step *step, int i, product_operand operand, int type)
{
    for (int p = 0; p < TANDEM_N_PRECISION; p++) {
        int reads = 0, by_columns = 0;
        if (!(row_of(step, i)->precisions & 1u << p)) continue;
        for (tandem_pass pass = TANDEM_PASS_FORWARD; pass <= TANDEM_PASS_WGRAD; pass++) {
            if (type_read(step, i, p, pass, operand) != type) continue;
            reads = 1;
            by_columns |= sums_over_rows(step->graph, i, pass, operand);
        }
        if (!reads) continue;
        if (!by_columns) {
            w->is_refused = 1;
            continue;
        }
        const tandem_matrices m = operand_matrices(step->graph, i, operand);
        if (w->n_reader++ && !are_same(m, w->matrices)) w->is_refused = 1;
        w->matrices = m;
    }
}

static wish wish_for_output(const tandem_step *step, int t, int type)
{
    const struct tandem_step_index *index = step->index;
    wish w = {0};
    for (int k = index->reader_start[t]; k < index->reader_start[t + 1]; k++) {
        const int i = index->reader[k];
        for (int slot = 0; slot < row_of(step, i)->n_input; slot++)
            if (source_of(step, i, slot) == t) ask(&w, step, i, slot ? OPERAND_SECOND : OPERAND_INPUT, type);
    }
    return w;
}

static wish wish_for_gradient(const tandem_step *step, int root, int type)
{
    const struct tandem_step_index *index = step->index;
    wish w = {0};
    for (int k = index->member_start[root]; k < index->member_start[root + 1]; k++)
        ask(&w, step, index->member[k], OPERAND_GRADIENT, type);
    return w;
}

static wish wish_for_weight(const tandem_step *step, int i, int type)
{
    wish w = {0};
    if (reads_copy(row_of(step, i), step->graph->op[i].kind)) ask(&w, step, i, OPERAND_SECOND, type);
    return w;
}

static wish wish_for(const tandem_step *step, tandem_task_kind kind, int op, int type)
{
    if (kind == TANDEM_TASK_WEIGHT_CAST) return wish_for_weight(step, op, type);
    return kind == TANDEM_TASK_CAST ? wish_for_output(step, op, type) : wish_for_gradient(step, op, type);
}

/* --- What is asked of this file ------------------------------------------------------------------------- */

static int is_of_a_byte(int type) { return tandem_dtype_bytes((tandem_dtype)type) == 1; }

static void mark(const tandem_step *step, const tandem_task *task, int type)
{
    unsigned char *const has_columns = step->index->has_columns;
    const wish w = wish_for(step, task->kind, task->op, type);
    if (!w.n_reader || w.is_refused) return;
    has_columns[step_cast_value(step, task, (tandem_dtype)type)] = 1;
    if (task->kind == TANDEM_TASK_CAST && step->index->cast_again[task->op] >= 0)
        has_columns[step_value_again(step, task->op, (tandem_dtype)type)] = 1;
}

void step_find_columnwise(tandem_step *step)
{
    for (int t = 0; t < step->n_task; t++) {
        const tandem_task *task = &step->task[t];
        const int is_of_weight = task->kind == TANDEM_TASK_WEIGHT_CAST;
        if (!is_of_weight && task->kind != TANDEM_TASK_CAST && task->kind != TANDEM_TASK_GRADIENT_CAST)
            continue;
        for (int type = 0; type < TANDEM_N_VERSION; type++)
            if (is_of_a_byte(type) && (is_of_weight || type == (int)task->to)) mark(step, task, type);
    }
}

int step_operand(const tandem_step *step, int i, tandem_pass pass, product_operand operand, int v)
{
    return step_has_columns(step, v) && sums_over_rows(step->graph, i, pass, operand)
               ? step_columnwise(step, v)
               : v;
}

tandem_matrices tandem_step_matrices(const tandem_step *step, int t)
{
    const tandem_task *task = &step->task[t];
    return wish_for(step, task->kind, task->op, (int)task->to).matrices;
}

int tandem_value_rowwise(const tandem_step *step, int v)
{
    return v >= step->index->n_rowwise ? v - step->index->n_rowwise : v;
}
