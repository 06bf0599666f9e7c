/* calls_of_rows.c: softmax.cu, layernorms of norm.cu, and losses. */
#include "tests/ptx/library/calls.h"

static void call_softmax(call *c)
{
    const void *const x = call_numbers(c, c->type, c->n, 3), *const g = call_numbers(c, c->type, c->n, 2);
    const void *const saved =
        call_numbers(c, c->type, c->n, 1); /* no y, which differs a little between the two */
    for (int causal = 0; causal < 2; causal++) {
        void *const y = call_result_array(c, c->type, c->n), *const gx = call_result_array(c, c->type, c->n);
        call_check(c, tandem_cuda_softmax(y, x, c->type, c->rows, c->columns, 0.7f, causal, NULL), "softmax");
        call_close_to(c, "y", c->type, y, c->n);
        call_check(c, tandem_cuda_softmax_backward(gx, g, saved, c->type, c->rows, c->columns, 0.7f, NULL),
                   "backward");
        call_close_to(c, "gx", c->type, gx, c->n);
    }
}

static void call_layernorm(call *c)
{
    const size_t rows = c->rows, columns = c->columns;
    const void *const x = call_numbers(c, c->type, c->n, 3), *const g = call_numbers(c, c->type, c->n, 2);
    const float *const scale = call_numbers(c, TANDEM_CUDA_F32, columns, 2);
    const float *const shift = call_numbers(c, TANDEM_CUDA_F32, columns, 1);
    void *const y = call_result_array(c, c->type, c->n), *const gx = call_result_array(c, c->type, c->n);
    float *const mean = call_array(c, 2 * rows * sizeof *mean), *const gscale = call_array(c, 8 * columns);
    call_check(
        c, tandem_cuda_layernorm(y, x, c->type, scale, shift, mean, mean + rows, rows, columns, 1e-5f, NULL),
        "layernorm");
    call_close_to(c, "y", c->type, y, c->n);
    call_close_to(c, "moments", TANDEM_CUDA_F32, mean, 2 * rows);
    void *const workspace = call_array(c, tandem_cuda_layernorm_workspace(rows, columns));
    call_check(c,
               tandem_cuda_layernorm_backward(gx, gscale, gscale + columns, g, x, c->type, scale, mean,
                                              mean + rows, rows, columns, 1e-5f, workspace, c->tickets, NULL),
               "backward");
    call_close_to(c, "gx", c->type, gx, c->n);
    call_close_to(c, "gscale and gshift", TANDEM_CUDA_F32, gscale, 2 * columns);
}

static void call_add_layernorm(call *c)
{
    const size_t rows = c->rows, columns = c->columns;
    const void *const x = call_numbers(c, c->type, c->n, 3), *const residual =
                                                                 call_numbers(c, c->type, c->n, 2);
    const float *const scale = call_numbers(c, TANDEM_CUDA_F32, columns, 2);
    const float *const shift = call_numbers(c, TANDEM_CUDA_F32, columns, 1);
    for (int has_own = 0; has_own < 2; has_own++) {
        void *const y = call_result_array(c, c->type, c->n), *const sum = call_result_array(c, c->type, c->n);
        float *const mean = call_array(c, 2 * rows * sizeof *mean);
        const tandem_cuda_residual with = {residual, has_own ? shift : NULL, sum};
        call_check(c,
                   tandem_cuda_add_layernorm(y, &with, x, c->type, scale, shift, mean, mean + rows, rows,
                                             columns, 1e-5f, NULL),
                   "add_layernorm");
        call_bytes(c, "sum", sum, c->n * call_size(c->type));
        call_close_to(c, "y", c->type, y, c->n);
        call_close_to(c, "moments", TANDEM_CUDA_F32, mean, 2 * rows);
    }
}

static void call_cross_entropy(call *c)
{
    const size_t rows = c->rows, columns = c->columns;
    const void *const x = call_numbers(c, c->type, c->n, 3);
    int32_t *const label = call_integers(c, rows, (double)columns);
    for (size_t r = 0; r < rows; r++) label[r] = r % 5 == 4 ? -1 : label[r] < 0 ? -label[r] : label[r];
    for (size_t r = 0; r < rows; r++)
        if (label[r] >= (int32_t)columns) label[r] = 0;
    uint32_t *const bad = call_copy(c, &(uint32_t){0}, 4);
    const float *const factor = call_copy(c, &(float){0.5f}, 4);
    for (int with_p = 0; with_p < 2; with_p++) {
        float *const loss = call_array(c, 4), *const saved = call_array(c, 8 * rows),
                     *const p = call_array(c, 4 * c->n);
        const tandem_cuda_cross_entropy_out out = {loss, saved, with_p ? p : NULL};
        void *const workspace = call_array(c, 4 * rows), *const gx = call_result_array(c, c->type, c->n);
        call_check(c,
                   tandem_cuda_cross_entropy(&out, x, c->type, label, rows, columns, columns, 0.1f, 0.1f, bad,
                                             workspace, NULL),
                   "cross_entropy");
        call_close_to(c, "loss", TANDEM_CUDA_F32, loss, 1);
        call_close_to(c, "saved", TANDEM_CUDA_F32, saved, 2 * rows);
        if (with_p) call_close_to(c, "p", TANDEM_CUDA_F32, p, c->n);
        call_check(c,
                   tandem_cuda_cross_entropy_backward(gx, x, c->type, saved, label, rows, columns, columns,
                                                      0.1f, with_p ? factor : NULL, 0.1f, NULL),
                   "backward");
        call_close_to(c, "gx", c->type, gx, c->n);
    }
    call_bytes(c, "bad", bad, 4);
}

const call_row calls_of_rows[] = {{"softmax", call_softmax},
                                  {"layernorm", call_layernorm},
                                  {"add_layernorm", call_add_layernorm},
                                  {"cross_entropy", call_cross_entropy},
                                  {NULL, NULL}};
