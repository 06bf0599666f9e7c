/* quantise_cuda.c: a matrix of floats to int8 and back on a card, with a scale for each row, and how far off
 * it is then.
 *
 *     cc quantise_cuda.c $(pkg-config --cflags --libs tandem_cuda_kernels) -I/usr/local/cuda/include \
 *         -L/usr/local/cuda/lib64 -lcudart -lcublasLt -lm -o quantise_cuda
 *     ./quantise_cuda
 */
#include <math.h>
#include <stdio.h>

#include <cuda_runtime_api.h>
#include <tandem/cuda_kernels.h>

enum { ROWS = 512, COLUMNS = 1024, N = ROWS * COLUMNS };

/* What lies on the card. */
typedef struct arrays {
    float *x, *back, *scale; /* (ROWS, COLUMNS) twice, [ROWS] */
    int8_t *q;               /* (ROWS, COLUMNS) */
} arrays;

/* back = x, by way of q: two launches on a stream, which nothing here waits for. */
static tandem_status there_and_back(const arrays *on_card, cudaStream_t stream, tandem_error *error)
{
    const tandem_rounding rounding = {.seed = 1};
    const tandem_cuda_quantise_call to = {.x = on_card->x,
                                          .from = TANDEM_F32,
                                          .rows = ROWS,
                                          .columns = COLUMNS,
                                          .q = on_card->q,
                                          .to = TANDEM_S8,
                                          .scale_mode = TANDEM_SCALE_ROW,
                                          .rounding = &rounding,
                                          .scale = on_card->scale};
    const tandem_cuda_dequantise_call from = {.q = on_card->q,
                                              .from = TANDEM_S8,
                                              .rows = ROWS,
                                              .columns = COLUMNS,
                                              .x = on_card->back,
                                              .to = TANDEM_F32,
                                              .scale_mode = TANDEM_SCALE_ROW,
                                              .scale = on_card->scale};
    tandem_status status = tandem_cuda_kernels_quantise(&to, stream, error);
    if (status == TANDEM_OK) status = tandem_cuda_kernels_dequantise(&from, stream, error);
    return status;
}

static tandem_status run_example(float *back, const float *x, arrays *on_card, tandem_error *error)
{
    cudaError_t failed = cudaMalloc((void **)&on_card->x, N * sizeof *x);
    if (!failed) failed = cudaMalloc((void **)&on_card->back, N * sizeof *x);
    if (!failed) failed = cudaMalloc((void **)&on_card->scale, ROWS * sizeof *x);
    if (!failed) failed = cudaMalloc((void **)&on_card->q, N);
    if (!failed) failed = cudaMemcpy(on_card->x, x, N * sizeof *x, cudaMemcpyHostToDevice);
    if (!failed) {
        const tandem_status status = there_and_back(on_card, NULL, error);
        if (status != TANDEM_OK) return status;
        failed = cudaMemcpy(back, on_card->back, N * sizeof *x, cudaMemcpyDeviceToHost);
    }
    return failed ? tandem_error_set(error, TANDEM_NO_DEVICE, "the card: %s", cudaGetErrorString(failed))
                  : TANDEM_OK;
}

int main(void)
{
    static float x[N], back[N];
    static tandem_error error;
    arrays on_card = {0};
    for (int i = 0; i < N; i++) x[i] = (float)(i * 1049 % 99991) / 99991 - 0.5f;
    const tandem_status status = run_example(back, x, &on_card, &error);
    cudaFree(on_card.q);
    cudaFree(on_card.scale);
    cudaFree(on_card.back);
    cudaFree(on_card.x);
    if (status != TANDEM_OK) {
        fprintf(stderr, "quantise_cuda: %s\n", error.text);
        return tandem_status_exit_code(status);
    }
    double off = 0, all = 0;
    for (int i = 0; i < N; i++) off += pow(back[i] - x[i], 2), all += (double)x[i] * x[i];
    printf("%d x %d in int8, a scale a row: relative error %.2f%%\n", ROWS, COLUMNS, 100 * sqrt(off / all));
    return 0;
}
