/* gpu_bench.h: what the CUDA backend reaches on one card, beside what the card reaches: bench_gpu.c prints
 * it (make bench-cuda).
 *
 * The two ceilings come first, measured in the same run: how fast the card copies its own memory (bytes read
 * and written together), and how fast its library multiplies in bf16. A kernel that only moves memory is held
 * to the first, a product to the second. Times are medians of samples between two events; the buffers of one
 * launch are larger than any cache and turns take different ones. Inputs are random: a card multiplies zeros
 * faster.
 *
 * It links the library's own objects, and so runs where a stand-in does for NVIDIA's
 * (tests/cuda/test_cuda_bench.c). */
#ifndef TANDEM_BENCH_CUDA_GPU_BENCH_H
#define TANDEM_BENCH_CUDA_GPU_BENCH_H

#include <stdio.h>

#include "backend/cuda/operator.h"

enum { GPU_COPIES = 3, GPU_ATTENTIONS = 4, GPU_TURNS = 2, GPU_MAX_SAMPLES = 64, GPU_MAX_MEMORY = 64 };

/* Of one layer. */
typedef struct gpu_attention {
    size_t batch, heads, tokens, depth;
    int causal, has_dropout;
} gpu_attention;

typedef struct gpu_bench_sizes {
    uint64_t copy_bytes[GPU_COPIES];
    /* of the arrays that kernels run over: matrices of so many columns, a multiple of 64 */
    size_t elements, columns;
    int64_t side;                /* of the square products */
    int64_t tokens, hidden, ffn; /* of the transformer layer */
    gpu_attention attention[GPU_ATTENTIONS];
    int samples, launches; /* a median is over so many samples, of so many launches each */
} gpu_bench_sizes;

/* Of the card while it worked; all 0 before it did, or where they are not known. */
typedef struct gpu_clocks {
    tandem_clocks min, max;
} gpu_clocks;

typedef struct gpu_bench {
    const cuda_device *device; /* opened by the backend */
    gpu_bench_sizes sizes;
    int n_table; /* the first so many of the tables; 0 = all */
    FILE *out;
    double copy_bytes_per_s, bf16_flops_per_s; /* the ceilings; 0 before they are measured */
    void *memory[GPU_MAX_MEMORY];              /* what was taken and not given back */
    int n_memory;
    gpu_clocks *clocks; /* of the table under way; NULL = not wanted */
} gpu_bench;

/* --- measure.c ------------------------------------------------------------------------------------------ */

/* Memory of the card until gpu_free_all. TANDEM_NO_MEMORY. */
tandem_status gpu_alloc(void **memory, gpu_bench *c, uint64_t bytes, tandem_error *error);
void gpu_free_all(gpu_bench *c);
/* n random numbers: of f32, bf16, f16 and e4m3 in [−1, 1), or [0, 1) where `positive`; of s8 any; of s32
 * below `below`. The same each time. */
tandem_status gpu_fill(const gpu_bench *c, void *memory, tandem_dtype dtype, size_t n, int positive,
                       int32_t below, tandem_error *error);

/* Puts work on the device's stream; returns 0 or the library's error. turn: 0 … GPU_TURNS − 1. */
typedef int gpu_work(void *context, int turn);
/* Time of one launch: the median over the samples, after one that is not counted. TANDEM_NO_DEVICE names
 * `what`. */
tandem_status gpu_time(int64_t *launch_ns, const gpu_bench *c, const char *what, int launches, gpu_work *work,
                       void *context, tandem_error *error);

/* --- kernels.c: launches of our own kernels, whose bytes are known -------------------------------------- */

/* One set of arrays, all of them on the card. */
typedef struct gpu_arrays {
    size_t n, rows, columns;
    size_t n_of_row;                 /* at least the rows and the columns of every kernel */
    void *x, *y, *z;                 /* [n] of f32 in [−1, 1) */
    float *positive;                 /* [n] in [0, 1) */
    uint16_t *half, *half_out;       /* [n] */
    void *q, *transposed;            /* [n] of s8 */
    float *of_row, *mean, *variance; /* [n_of_row] */
    uint32_t *words;                 /* [16] 0 */
    uint32_t *tickets;               /* [TANDEM_CUDA_TICKETS] 0 */
    tandem_amax_history *history;    /* whose range is 1 */
    int32_t *label;                  /* [n_of_row] below rows and columns */
    void *workspace;
    void *start; /* of all of them */
    uint64_t bytes;
} gpu_arrays;
tandem_status gpu_arrays_open(gpu_arrays *arrays, gpu_bench *c, size_t n, size_t columns,
                              tandem_error *error);
/* Puts random numbers into all of them: the same each time. */
tandem_status gpu_arrays_fill(const gpu_arrays *arrays, const gpu_bench *c, tandem_error *error);

typedef struct gpu_kernel {
    const char *name;
    double bytes_an_element; /* that must be moved for each of the n elements */
    int (*launch)(const gpu_arrays *a, tandem_cuda_stream stream);
    size_t columns; /* of its matrices, of about n elements; 0: those of the arrays */
} gpu_kernel;
extern const gpu_kernel gpu_kernels[];
extern const int n_gpu_kernel;
const gpu_kernel *gpu_kernel_find(const char *name); /* one that is there */
/* Its rows and columns. */
gpu_arrays gpu_kernel_arrays(const gpu_kernel *kernel, const gpu_arrays *arrays);

/* --- linear.c: a linear layer as the backend runs it ---------------------------------------------------- */

typedef struct gpu_linear {
    int64_t forward_ns; /* the product alone, scaling included */
    int64_t all_ns;     /* forward, dgrad, wgrad and every cast that they need; weights are cast from f32 */
    int64_t casts_ns;   /* of that, the casts */
} gpu_linear;
/* x (tokens, in) comes in bf16 and its gradient goes in bf16, as from a neighbour in bf16. is_delayed: casts
 * take their ranges from those before. TANDEM_UNKNOWN_NAME, TANDEM_NO_KERNEL: there is no such precision, or
 * not here. */
tandem_status gpu_linear_time(gpu_linear *times, gpu_bench *c, int64_t tokens, int64_t in, int64_t out,
                              const char *precision, int is_delayed, tandem_error *error);

/* --- attention.c: attention as the backend runs it ------------------------------------------------------ */

typedef struct gpu_attention_times {
    int64_t forward_ns, backward_ns; /* one launch; two together */
} gpu_attention_times;
/* In bf16. TANDEM_NO_KERNEL: the GPU is older than compute capability 8.0. It frees all memory. */
tandem_status gpu_attention_time(gpu_attention_times *times, gpu_bench *c, const gpu_attention *shape,
                                 tandem_error *error);

/* --- report.c ------------------------------------------------------------------------------------------- */

/* Cells of the tables. A time that is not there (< 0) makes all of them "-". */
enum { GPU_CELL = 24 };
char *gpu_print_ns(char cell[GPU_CELL], int64_t ns);
char *gpu_print_rate(char cell[GPU_CELL], double amount, int64_t ns, const char *unit); /* "3.21 TFLOP/s" */
char *gpu_print_share(char cell[GPU_CELL], double part, double whole);                  /* "93%" */
char *gpu_print_multiple(char cell[GPU_CELL], double ns, double of_ns);                 /* "1.07 x" */

/* Measures and prints everything. TANDEM_NO_MEMORY, TANDEM_NO_DEVICE; what this card cannot do is "-" and no
 * error. */
tandem_status gpu_bench_report(gpu_bench *c, tandem_error *error);

#endif
