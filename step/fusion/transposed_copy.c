/* transposed_copy.c: which casts to one-byte dtypes also write the transposed matrices.
 *
 * Of the products of a layer, y = x·w sums over the columns of x and the rows of w; gx = g·wᵀ over the
 * columns of g and of w; gw = xᵀ·g over the rows of x and of g. Units that multiply one-byte numbers need
 * both operands along the dimension that they sum over (NVIDIA, cuBLAS documentation, cublasLtMatmul, on fp8
 * and on int8). So two of the products read an operand in both orders. A cast that writes both orders moves 6
 * bytes per element from f32 and 4 from bf16. A cast of one order with a transpose after it moves 7 and 5.
 *
 * Whether a cast writes both orders follows from the graph alone, and so does its cost. It does where every
 * precision of every operator that reads this dtype reads the transposed copy at least once. */
#include "step/fusion/transposed_copy.h"

#include "step/program/dtypes.h"

/* Rows and columns that are multiples of this need no padding, in a transpose or in a product. */
enum { TRANSPOSE_TILE = 16 };

/* --- Matrices of a product ------------------------------------------------------------------------------ */

static int is_matrix_product(const tandem_op *op)
{
    return op->kind == TANDEM_OP_LINEAR || op->kind == TANDEM_OP_MATMUL;
}

static tandem_matrices matrices_of_shape(const tandem_shape *shape, int is_stack)
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
    if (operand == OPERAND_GRADIENT) return matrices_of_shape(&op->shape, is_stack);
    if (operand == OPERAND_INPUT) return matrices_of_shape(&graph->op[op->input[0]].shape, is_stack);
    return matrices_of_shape(
        is_stack ? &graph->op[op->input[1]].shape : &graph->parameter[op->parameter[0]].shape, is_stack);
}

static int is_tile_aligned(tandem_matrices m)
{
    return m.rows % TRANSPOSE_TILE == 0 && m.columns % TRANSPOSE_TILE == 0;
}

static int are_matrices_equal(tandem_matrices a, tandem_matrices b)
{
    return a.batch == b.batch && a.rows == b.rows && a.columns == b.columns;
}

/* Whether product `pass` of operator i sums over the rows of an operand. */
static int product_sums_over_rows(const tandem_graph *graph, int i, tandem_pass pass, product_operand operand)
{
    const tandem_op *op = &graph->op[i];
    if (!is_matrix_product(op) || !is_tile_aligned(operand_matrices(graph, i, OPERAND_INPUT)) ||
        !is_tile_aligned(operand_matrices(graph, i, OPERAND_GRADIENT)))
        return 0;
    if (pass == TANDEM_PASS_WGRAD) return operand != OPERAND_OTHER;
    return operand == OPERAND_OTHER && (pass == TANDEM_PASS_DGRAD) == (op->transpose_b != 0);
}

/* --- Readers in any plan -------------------------------------------------------------------------------- */

/* The dtype in which product `pass` of operator i reads an operand in precision p; TANDEM_N_STORAGE_DTYPE:
 * the product does not read it. */
static int dtype_read_by_product(const tandem_step *step, int i, int p, tandem_pass pass,
                                 product_operand operand)
{
    const tandem_precision_row *row = tandem_precision_get((tandem_precision)p);
    const struct tandem_step_index *index = step->index;
    if (pass == TANDEM_PASS_FORWARD)
        return operand == OPERAND_GRADIENT ? TANDEM_N_STORAGE_DTYPE : (int)row->forward;
    if ((pass == TANDEM_PASS_DGRAD ? index->dgrad : index->wgrad)[i] < 0) return TANDEM_N_STORAGE_DTYPE;
    if (operand == (pass == TANDEM_PASS_DGRAD ? OPERAND_INPUT : OPERAND_OTHER)) return TANDEM_N_STORAGE_DTYPE;
    if (operand != OPERAND_GRADIENT) return (int)device_dtype(step, row->other_operand_dtype);
    return (int)device_dtype(step, pass == TANDEM_PASS_DGRAD ? row->dgrad : row->wgrad);
}

/* Accumulates, over the readers of a tensor in one dtype, whether each of their precisions reads its
 * transpose. */
typedef struct transpose_request {
    int n_reader;
    int is_refused; /* a precision does not read the transpose, or the readers' matrices differ */
    tandem_matrices matrices;
} transpose_request;

static void add_transpose_request(transpose_request *request, const tandem_step *step, int i,
                                  product_operand operand, int type)
{
    for (int p = 0; p < TANDEM_N_PRECISION; p++) {
        int reads = 0, by_columns = 0;
        if (!(op_row_of(step, i)->precisions & 1u << p)) continue;
        for (tandem_pass pass = TANDEM_PASS_FORWARD; pass <= TANDEM_PASS_WGRAD; pass++) {
            if (dtype_read_by_product(step, i, p, pass, operand) != type) continue;
            reads = 1;
            by_columns |= product_sums_over_rows(step->graph, i, pass, operand);
        }
        if (!reads) continue;
        if (!by_columns) {
            request->is_refused = 1;
            continue;
        }
        const tandem_matrices m = operand_matrices(step->graph, i, operand);
        if (request->n_reader++ && !are_matrices_equal(m, request->matrices)) request->is_refused = 1;
        request->matrices = m;
    }
}

static transpose_request transpose_request_of_output(const tandem_step *step, int t, int type)
{
    const struct tandem_step_index *index = step->index;
    transpose_request request = {0};
    for (int k = index->reader_start[t]; k < index->reader_start[t + 1]; k++) {
        const int i = index->reader[k];
        for (int slot = 0; slot < op_row_of(step, i)->n_input; slot++)
            if (input_tensor_of(step, i, slot) == t)
                add_transpose_request(&request, step, i, slot ? OPERAND_OTHER : OPERAND_INPUT, type);
    }
    return request;
}

static transpose_request transpose_request_of_gradient(const tandem_step *step, int root, int type)
{
    const struct tandem_step_index *index = step->index;
    transpose_request request = {0};
    for (int k = index->gradient_group_start[root]; k < index->gradient_group_start[root + 1]; k++)
        add_transpose_request(&request, step, index->gradient_group[k], OPERAND_GRADIENT, type);
    return request;
}

static transpose_request transpose_request_of_weight(const tandem_step *step, int i, int type)
{
    transpose_request request = {0};
    if (uses_cast_weight(op_row_of(step, i), step->graph->op[i].kind))
        add_transpose_request(&request, step, i, OPERAND_OTHER, type);
    return request;
}

static transpose_request transpose_request_of(const tandem_step *step, tandem_task_kind kind, int op,
                                              int type)
{
    if (kind == TANDEM_TASK_WEIGHT_CAST) return transpose_request_of_weight(step, op, type);
    return kind == TANDEM_TASK_CAST ? transpose_request_of_output(step, op, type)
                                    : transpose_request_of_gradient(step, op, type);
}

/* --- Casts and products --------------------------------------------------------------------------------- */

/* Of types in blocks a cast rounds each layout by itself (predictor/task_work.c). */
static int has_copies(int type)
{
    return tandem_dtype_bytes((tandem_dtype)type) == 1 && !tandem_dtype_is_in_blocks((tandem_dtype)type);
}

static void mark_transposed_copy(const tandem_step *step, const tandem_task *task, int type)
{
    unsigned char *const has_transposed_copy = step->index->has_transposed_copy;
    const transpose_request request = transpose_request_of(step, task->kind, task->op, type);
    if (!request.n_reader || request.is_refused) return;
    has_transposed_copy[step_cast_value(step, task, (tandem_dtype)type)] = 1;
    if (task->kind == TANDEM_TASK_CAST && step->index->recomputed_cast[task->op] >= 0)
        has_transposed_copy[extra_value_id(step, task->op, EXTRA_ACTIVATION, type)] = 1;
}

void step_find_transposed_copies(tandem_step *step)
{
    for (int t = 0; t < step->n_task; t++) {
        const tandem_task *task = &step->task[t];
        const int is_weight_cast = task->kind == TANDEM_TASK_WEIGHT_CAST;
        if (!is_weight_cast && task->kind != TANDEM_TASK_CAST && task->kind != TANDEM_TASK_GRADIENT_CAST)
            continue;
        for (int type = 0; type < TANDEM_N_STORAGE_DTYPE; type++)
            if (has_copies(type) && (is_weight_cast || type == (int)task->to))
                mark_transposed_copy(step, task, type);
    }
}

int step_operand(const tandem_step *step, int i, tandem_pass pass, product_operand operand, int v)
{
    if (v >= 0 && operand == OPERAND_OTHER && is_weight_transposed(step, i, weight_dtype(step, v)))
        return transposed_value(step, v);
    return has_transposed_value(step, v) && product_sums_over_rows(step->graph, i, pass, operand)
               ? transposed_value(step, v)
               : v;
}

tandem_matrices tandem_step_matrices(const tandem_step *step, int t)
{
    const tandem_task *task = &step->task[t];
    if (task->kind == TANDEM_TASK_WEIGHT_CAST && is_weight_transposed(step, task->op, task->to))
        return operand_matrices(step->graph, task->op, OPERAND_OTHER);
    return transpose_request_of(step, task->kind, task->op, (int)task->to).matrices;
}
