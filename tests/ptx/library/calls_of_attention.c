/* calls_of_attention.c: attention.cu. Rows of 70 and 45 columns leave tiles that are not full. */
#include "tests/ptx/library/calls.h"

static void attend(call *c, int causal, const tandem_dropout *dropout)
{
    enum { HEADS = 2, ROWS = 70 };
    const size_t columns = causal ? ROWS : 45, depth = c->columns, n_q = HEADS * ROWS * depth,
                 n_k = HEADS * columns * depth;
    const tandem_cuda_attention_spec spec = {HEADS, ROWS, columns, depth, 0.3f, causal, dropout, NULL};
    void *const q = call_numbers(c, c->type, n_q, 1), *const k = call_numbers(c, c->type, n_k, 1);
    void *const v = call_numbers(c, c->type, n_k, 1), *const g = call_numbers(c, c->type, n_q, 1);
    void *const o = call_result_array(c, c->type, n_q);
    float *const statistics = call_array(c, 4 * HEADS * ROWS), *const along = call_array(c, 4 * HEADS * ROWS);
    call_check(c, tandem_cuda_attention(o, statistics, q, k, v, c->type, &spec, NULL), "attention");
    call_sums(c, "o", c->type, o, n_q);
    call_close_to(c, "statistics", TANDEM_CUDA_F32, statistics, HEADS * ROWS);
    const tandem_cuda_float type[] = {TANDEM_CUDA_F32, c->type, dropout ? c->type : TANDEM_CUDA_F32};
    const size_t n[] = {n_q, n_k, n_k};
    tandem_cuda_attention_gradient gradient = {
        .g = g, .q = q, .k = k, .v = v, .o = o, .statistics = statistics};
    gradient.along = along;
    for (int p = 0; p < 3; p++) {
        gradient.gradient[p] = call_result_array(c, type[p], n[p]);
        gradient.type[p] = type[p];
    }
    call_check(c, tandem_cuda_attention_backward(&gradient, c->type, &spec, NULL), "backward");
    for (int p = 0; p < 3; p++) call_sums(c, "gradient", type[p], gradient.gradient[p], n[p]);
}

static void call_attention(call *c)
{
    static const tandem_dropout mask = {99, 16, {1, 2, 6}, 9000, 1.2f};
    c->is_unsuited = c->type == TANDEM_CUDA_F32 || c->columns > 128 || c->columns < 24;
    for (int way = 0; way < 4 && !c->is_unsuited; way++) attend(c, way % 2, way / 2 ? &mask : NULL);
}

const call_row calls_of_attention[] = {{"attention", call_attention}, {NULL, NULL}};
