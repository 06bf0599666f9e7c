/* multiply_int8.c: a product of two float matrices, in int8, beside the same in double: no graph, no store,
 * no device.
 *
 *     cc multiply_int8.c $(pkg-config --cflags --libs tandem_kernels) -lm -o multiply_int8
 *     ./multiply_int8 best
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <tandem/kernels.h>

enum { M = 64, N = 48, K = 256 };

/* C = A·B: a scale for each row of A, one for B. */
/* NOLINTNEXTLINE(readability-non-const-parameter) */
static tandem_status multiply_example(const tandem_kernels *kernels, float *c, const float *a, const float *b,
                                      tandem_error *error)
{
    static int8_t qa[M * K], qb[K * N];
    float a_scale[M], b_scale = 0;
    const tandem_quantise_call of_a = {
        .x = a, .rows = M, .columns = K, .q = qa, .scale_mode = TANDEM_SCALE_ROW, .scale = a_scale};
    const tandem_quantise_call of_b = {.x = b, .rows = K, .columns = N, .q = qb, .scale = &b_scale};
    tandem_status status = tandem_kernels_quantise(kernels, &of_a, error);
    if (status == TANDEM_OK) status = tandem_kernels_quantise(kernels, &of_b, error);
    if (status != TANDEM_OK) return status;

    const size_t bytes = (tandem_kernels_product_workspace(kernels, M, N, K) + 63) / 64 * 64;
    void *workspace = aligned_alloc(64, bytes);
    const tandem_product_s8 product = {.m = M,
                                       .n = N,
                                       .k = K,
                                       .a = qa,
                                       .a_row = K,
                                       .a_column = 1,
                                       .b = qb,
                                       .b_row = N,
                                       .b_column = 1,
                                       .c = c,
                                       .scale = b_scale,
                                       .row_scale = a_scale,
                                       .workspace = workspace};
    status = tandem_kernels_product(kernels, &product, bytes, error);
    free(workspace);
    return status;
}

int main(int argc, char **argv)
{
    static float a[M * K], b[K * N], c[M * N];
    for (int i = 0; i < M * K; i++) a[i] = (float)(i * 7919 % 1013) / 1013 - 0.5f;
    for (int i = 0; i < K * N; i++) b[i] = (float)(i * 1049 % 997) / 997 - 0.5f;
    const tandem_kernels *kernels = NULL;
    static tandem_error error;
    tandem_status status = tandem_kernels_open(&kernels, argc > 1 ? argv[1] : "best", &error);
    if (status == TANDEM_OK) status = multiply_example(kernels, c, a, b, &error);
    if (status != TANDEM_OK) {
        fprintf(stderr, "multiply_int8: %s\n", error.text);
        return tandem_status_exit_code(status);
    }
    double off = 0, all = 0;
    for (int i = 0; i < M; i++) {
        for (int j = 0; j < N; j++) {
            double sum = 0;
            for (int l = 0; l < K; l++) sum += (double)a[i * K + l] * b[l * N + j];
            off += pow(c[i * N + j] - sum, 2);
            all += sum * sum;
        }
    }
    printf("%s: %d x %d x %d in int8, relative error %.2f%%\n", tandem_kernels_isa(kernels), M, N, K,
           100 * sqrt(off / all));
    return 0;
}
