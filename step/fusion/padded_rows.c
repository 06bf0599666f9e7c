/* padded_rows.c: which tensors have gaps between their rows (option padded_rows).
 *
 * A GPU loads 16 bytes at a time, and the copy engine of Hopper's multiprocessors wants rows that begin at
 * multiples of 16 bytes (NVIDIA, CUDA Driver API, cuTensorMapEncodeTiled, globalStrides). Logits over 50,257
 * words have rows of 100,514 bytes in bf16, so that products fall back to loads of one element. Their rows,
 * and those of their gradient, begin at multiples of ROW elements instead. What lies between two rows of the
 * gradient is 0; what lies there in the logits is not read. */
#include "step/program/step_index.h"

/* In elements: a multiple of 64 bytes in every dtype, as the memory plan places tensors. */
enum { LOADED_TOGETHER = 8, ROW = 64 };

/* The one operator that reads the tensor; −1: there are several, or none. */
static int only_reader_of_logits(const struct tandem_step_index *index, int tensor)
{
    const int first = index->reader_start[tensor];
    return index->reader_start[tensor + 1] - first == 1 ? index->reader[first] : -1;
}

/* Of a tied linear, the weight has rows of the dimension that forward sums over, and needs no gaps. The rows
 * of other weights are as odd as the logits, and to pad the logits alone would not make their product load
 * more at once. */
static int is_tied_head(const tandem_graph *graph, int i)
{
    return graph->op[i].kind == TANDEM_OP_LINEAR && graph->op[i].transpose_b;
}

/* A bias of one parameter for each column. */
static int is_column_bias(const tandem_graph *graph, int i)
{
    const tandem_op *op = &graph->op[i];
    return op->kind == TANDEM_OP_BIAS &&
           tandem_bias_period(op, &graph->parameter[op->parameter[0]]) == tandem_shape_last(&op->shape);
}

void step_find_padded_rows(tandem_step *step)
{
    const tandem_graph *graph = step->graph;
    const struct tandem_step_index *index = step->index;
    const int loss = graph->loss;
    if (graph->op[loss].kind != TANDEM_OP_CROSS_ENTROPY) return;
    const int logits = input_tensor_of(step, loss, 0),
              head = is_column_bias(graph, logits) ? input_tensor_of(step, logits, 0) : logits;
    const int64_t columns = tandem_shape_last(&graph->op[logits].shape);
    if (columns % LOADED_TOGETHER == 0 || !is_tied_head(graph, head) ||
        only_reader_of_logits(index, logits) != loss ||
        (head != logits && only_reader_of_logits(index, head) != logits) ||
        tandem_shape_last(&graph->op[graph->op[loss].input[0]].shape) != columns ||
        tandem_shape_last(&graph->op[head].shape) != columns)
        return;
    index->padded_row[head] = index->padded_row[logits] = (columns + ROW - 1) / ROW * ROW;
}

static int64_t row_of_tensor(const tandem_step *step, int tensor)
{
    return step->index->padded_row ? step->index->padded_row[tensor] : 0;
}

int64_t tandem_step_padded_row(const tandem_step *step, int op)
{
    const int is_loss = step->graph->op[op].kind == TANDEM_OP_CROSS_ENTROPY;
    return row_of_tensor(step, is_loss ? input_tensor_of(step, op, 0) : op);
}

int64_t step_stored_elements(const tandem_step *step, int tensor)
{
    const tandem_shape *shape = &step->graph->op[tensor].shape;
    const int64_t elements = tandem_shape_elements(shape), row = row_of_tensor(step, tensor);
    return row ? elements / tandem_shape_last(shape) * row : elements;
}
