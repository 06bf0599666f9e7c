/* calls_of_columns.c: elementwise.cu, batch norms of norm.cu, optimizer.cu and noise.cu. */
#include "tests/ptx/library/calls.h"

static void call_bias(call *c)
{
    const size_t bytes = c->n * call_size(c->type);
    const void *const x = call_numbers(c, c->type, c->n, 3), *const g = call_numbers(c, c->type, c->n, 2);
    const float *const own = call_numbers(c, TANDEM_CUDA_F32, c->columns, 1);
    void *const y = call_result_array(c, c->type, c->n), *const z = call_result_array(c, c->type, c->n);
    void *const gx = call_result_array(c, c->type, c->n);
    float *const sum = call_array(c, 4 * c->columns);
    void *const workspace = call_array(c, tandem_cuda_column_sum_workspace(c->rows, c->columns));
    call_check(c, tandem_cuda_bias(y, x, c->type, own, c->n, c->columns, c->columns, NULL), "bias");
    call_bytes(c, "bias", y, bytes);
    call_check(c, tandem_cuda_bias_gelu(z, x, c->type, own, c->n, c->columns, NULL), "bias_gelu");
    call_close_to(c, "bias_gelu", c->type, z, c->n);
    call_check(
        c,
        tandem_cuda_column_sum(sum, g, c->type, c->rows, c->columns, c->columns, workspace, c->tickets, NULL),
        "column_sum");
    call_close_to(c, "column_sum", TANDEM_CUDA_F32, sum, c->columns);
    call_check(c,
               tandem_cuda_bias_gelu_backward(gx, sum, g, x, c->type, own, c->rows, c->columns, workspace,
                                              c->tickets, NULL),
               "bias_gelu_backward");
    call_close_to(c, "gx", c->type, gx, c->n);
    call_sums(c, "sum", TANDEM_CUDA_F32, sum, c->columns);
}

/* Rows with a gap between them. */
static void call_bias_apart(call *c)
{
    const size_t row = (c->columns + 8) / 8 * 8, n = c->rows * row;
    const void *const x = call_numbers(c, c->type, n, 3);
    const float *const own = call_numbers(c, TANDEM_CUDA_F32, c->columns, 1);
    void *const y = call_result_array(c, c->type, n);
    float *const sum = call_array(c, 4 * c->columns);
    void *const workspace = call_array(c, tandem_cuda_column_sum_workspace(c->rows, c->columns));
    call_check(c, tandem_cuda_bias(y, x, c->type, own, n, c->columns, row, NULL), "bias");
    call_bytes(c, "y", y, n * call_size(c->type));
    call_check(c,
               tandem_cuda_column_sum(sum, x, c->type, c->rows, c->columns, row, workspace, c->tickets, NULL),
               "column_sum");
    call_close_to(c, "sum", TANDEM_CUDA_F32, sum, c->columns);
}

static void call_activate(call *c)
{
    const void *const x = call_numbers(c, c->type, c->n, 3), *const g = call_numbers(c, c->type, c->n, 2);
    const void *const result =
        call_numbers(c, c->type, c->n, 1); /* no y, which differs a little between the two */
    for (int f = 0; f < 3; f++) {
        const tandem_cuda_activation activation = (tandem_cuda_activation)f;
        void *const y = call_result_array(c, c->type, c->n), *const gx = call_result_array(c, c->type, c->n);
        call_check(c, tandem_cuda_activate(y, x, activation, c->type, c->n, NULL), "activate");
        call_close_to(c, "y", c->type, y, c->n);
        const void *const saved = activation == TANDEM_CUDA_GELU ? x : result;
        call_check(c, tandem_cuda_activate_backward(gx, g, saved, activation, c->type, c->n, NULL),
                   "backward");
        call_close_to(c, "gx", c->type, gx, c->n);
    }
}

static void call_add_and_dropout(call *c)
{
    const size_t bytes = c->n * call_size(c->type);
    const void *const a = call_numbers(c, c->type, c->n, 3), *const b = call_numbers(c, c->type, c->n, 2);
    const uint32_t *const offset = call_copy(c, &(uint32_t){11}, 4);
    void *const sum = call_result_array(c, c->type, c->n);
    call_check(c, tandem_cuda_add(sum, a, b, c->type, c->n, NULL), "add");
    call_bytes(c, "sum", sum, bytes);
    for (int way = 0; way < 2; way++) {
        const tandem_dropout mask = {99, way ? 5 : 8, {1, 2, 6}, 20000, 1.5f};
        void *const y = call_result_array(c, c->type, c->n);
        call_check(c, tandem_cuda_dropout(y, a, c->type, c->n, &mask, way ? offset : NULL, NULL), "dropout");
        call_bytes(c, "dropout", y, bytes);
    }
}

static void call_batchnorm(call *c)
{
    const size_t rows = c->rows, columns = c->columns;
    const void *const x = call_numbers(c, c->type, c->n, 3), *const g = call_numbers(c, c->type, c->n, 2);
    const void *const residual = call_numbers(c, c->type, c->n, 2);
    const float *const scale = call_numbers(c, TANDEM_CUDA_F32, columns, 2);
    const float *const shift = call_numbers(c, TANDEM_CUDA_F32, columns, 1);
    void *const workspace = call_array(c, tandem_cuda_norm_workspace(rows, columns));
    float *const mean = call_array(c, 8 * columns), *const gscale = call_array(c, 8 * columns);
    float *const variance = mean + columns, *const gshift = gscale + columns;
    for (int way = 0; way < 3; way++) { /* plain; with relu; given moments and a residual */
        const tandem_cuda_batchnorm b = {
            rows, columns, scale, shift, 1e-5f, way == 1, way == 2 ? residual : NULL};
        void *const y = call_result_array(c, c->type, c->n), *const gx = call_result_array(c, c->type, c->n);
        void *const given = way == 2 ? NULL : workspace;
        call_check(c,
                   tandem_cuda_batchnorm_forward(y, x, c->type, &b, mean, variance, given, c->tickets, NULL),
                   "forward");
        call_close_to(c, "y", c->type, y, c->n);
        call_close_to(c, "moments", TANDEM_CUDA_F32, mean, 2 * columns);
        if (way == 2) continue;
        call_check(c,
                   tandem_cuda_batchnorm_backward(gx, gscale, gshift, g, x, c->type, &b, mean, variance,
                                                  workspace, c->tickets, NULL),
                   "backward");
        call_close_to(c, "gx", c->type, gx, c->n);
        call_close_to(c, "gscale and gshift", TANDEM_CUDA_F32, gscale, 2 * columns);
    }
}

/* Each gradient has a type of its own. */
static void call_batchnorm_add(call *c)
{
    const size_t rows = c->rows, columns = c->columns;
    const void *const x = call_numbers(c, c->type, c->n, 3), *const g = call_numbers(c, c->type, c->n, 2);
    const float *const scale = call_numbers(c, TANDEM_CUDA_F32, columns, 2);
    const float *const shift = call_numbers(c, TANDEM_CUDA_F32, columns, 1);
    void *const workspace = call_array(c, tandem_cuda_norm_workspace(rows, columns));
    float *const mean = call_array(c, 8 * columns), *const gscale = call_array(c, 8 * columns);
    void *const y = call_result_array(c, c->type, c->n);
    tandem_cuda_batchnorm b = {rows, columns, scale, shift, 1e-5f, 1, call_numbers(c, c->type, c->n, 2)};
    call_check(
        c,
        tandem_cuda_batchnorm_forward(y, x, c->type, &b, mean, mean + columns, workspace, c->tickets, NULL),
        "forward");
    call_close_to(c, "y", c->type, y, c->n);
    b.residual = NULL;
    const void *const result =
        call_numbers(c, c->type, c->n, 1); /* no y, which differs a little between the two */
    for (int k = 0; k < 9; k++) {
        const tandem_cuda_float x_type = (tandem_cuda_float)(k % 3), r_type = (tandem_cuda_float)(k / 3);
        void *const gx = call_result_array(c, x_type, c->n), *const gr = call_result_array(c, r_type, c->n);
        const tandem_cuda_batchnorm_gradients out = {gx, gr, x_type, r_type, gscale, gscale + columns};
        call_check(c,
                   tandem_cuda_batchnorm_add_backward(&out, g, x, result, c->type, &b, mean, mean + columns,
                                                      workspace, c->tickets, NULL),
                   "backward");
        call_close_to(c, "gx", x_type, gx, c->n);
        call_close_to(c, "gr", r_type, gr, c->n);
        call_close_to(c, "gscale and gshift", TANDEM_CUDA_F32, gscale, 2 * columns);
    }
}

/* What has one type: made once. */
static void call_optimizers(call *c)
{
    if (c->type != TANDEM_CUDA_F32) {
        c->is_unsuited = 1;
        return;
    }
    const size_t n = (c->n + 15) / 16 * 16;
    const float *const g = call_numbers(c, TANDEM_CUDA_F32, n, 1), *const rates = call_copy(
                                                                       c, (const float[]){0.1f, 1.1f, 1.2f},
                                                                       12);
    const uint8_t *const decays = call_copy(c, g, n / 16);
    uint32_t *const nonfinite = call_copy(c, &(uint32_t){0}, 4);
    const tandem_adamw options = {0.1f, 0.9f, 0.999f, 1e-8f, 0.01f, 1.1f, 1.2f};
    for (int way = 0; way < 2; way++) {
        float *const w = call_numbers(c, TANDEM_CUDA_F32, n, 1), *const m =
                                                                     call_numbers(c, TANDEM_CUDA_F32, n, 1);
        float *const v = call_numbers(c, TANDEM_CUDA_F32, n, 1);
        for (size_t i = 0; i < n; i++) v[i] = v[i] < 0 ? -v[i] : v[i];
        call_check(c,
                   tandem_cuda_sgd(w, m, g, way ? decays : NULL, n, 0.1f, 0.9f, 0.01f, way ? rates : NULL,
                                   nonfinite, NULL),
                   "sgd");
        call_bytes(c, "w", w, 4 * n);
        call_check(c,
                   tandem_cuda_adamw(w, m, v, g, way ? decays : NULL, n, &options, way ? rates : NULL,
                                     nonfinite, NULL),
                   "adamw");
        call_bytes(c, "w", w, 4 * n);
        call_bytes(c, "m", m, 4 * n);
        call_bytes(c, "v", v, 4 * n);
    }
    float *const running = call_numbers(c, TANDEM_CUDA_F32, 2 * c->columns, 1);
    call_check(c, tandem_cuda_update_running(running, g, c->columns, 1.1f, 0.1f, NULL), "update_running");
    call_bytes(c, "running", running, 8 * c->columns);
    const uint32_t *const at = call_copy(c, &(uint32_t){3}, 4);
    float *const noise = call_array(c, 4 * c->n);
    call_check(c, tandem_cuda_noise(noise, c->rows, c->columns, 99, 7, 64, at, NULL), "noise");
    call_close_to(c, "noise", TANDEM_CUDA_F32, noise, c->n);
}

const call_row calls_of_columns[] = {{"bias", call_bias},
                                     {"bias_apart", call_bias_apart},
                                     {"activate", call_activate},
                                     {"add_and_dropout", call_add_and_dropout},
                                     {"batchnorm", call_batchnorm},
                                     {"batchnorm_add", call_batchnorm_add},
                                     {"optimizers", call_optimizers},
                                     {NULL, NULL}};
