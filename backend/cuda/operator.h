/* operator.h: how an operator is implemented on a card: one file each in backend/cuda/op/, ending in one row, as on the CPU
 * (backend/cpu/operator.h). `prepare` looks at the task and sets run, workspace_bytes and state; `run` puts launches on the
 * device's stream and comes back at once. All pointers of a call lead to memory of the card, scales too. */
#ifndef TANDEM_BACKEND_CUDA_OPERATOR_H
#define TANDEM_BACKEND_CUDA_OPERATOR_H

#include "backend/cuda/vendor.h"
#include "backend/kernel_name.h"
#include "tandem/backend.h"

/* What went wrong on the card since the host last looked; in its memory, all 0 while nothing did. */
typedef struct cuda_faults {
    uint32_t bad_label, bad_token; /* 2^32 − 1 − place */
    int32_t not_finite;
} cuda_faults;

typedef struct cuda_device {
    char name[TANDEM_DEVICE_NAME];
    const cuda_vendor *vendor;
    cuda_libraries *libraries;
    tandem_cuda_stream stream;                /* of kernels: the first lane */
    tandem_cuda_stream beside[TANDEM_N_LANE]; /* of the other lanes; the first is NULL */
    tandem_cuda_event *mark;                  /* [n_mark] */
    int n_mark, index;                        /* index: of the card */
    int failed_update;                        /* error of a launch of the optimizer, until `settle` tells it */
    cuda_faults *faults;                      /* on the card */
    uint32_t *amax_bits;                      /* … of the cast that runs */
} cuda_device;

struct tandem_kernel {
    const cuda_device *device;
    const tandem_graph *graph;
    const tandem_op *op;
    tandem_task task; /* a copy: kind, precision, from, to */
    uint64_t workspace_bytes;
    void *state; /* of the operator; released by `destroy` */
    void (*destroy)(void *state, const cuda_device *device);
    tandem_status (*run)(const tandem_kernel *kernel, const tandem_kernel_call *call, tandem_error *error);
};

typedef struct cuda_operator {
    tandem_status (*prepare)(tandem_kernel *kernel, tandem_error *error);
} cuda_operator;

#define ROW(NAME, name, ...) extern const cuda_operator cuda_##name;
#include "tandem/op.def"
#undef ROW
extern const cuda_operator cuda_cast, cuda_accumulate;

/* The backend with other libraries than NVIDIA's behind it, for tests: the table of device.c as it is, but for `open`. */
tandem_status tandem_cuda_open_with(void **device, const char *name, const cuda_vendor *vendor, tandem_error *error);
extern const tandem_device_backend tandem_cuda_backend;

/* --- What the operators' files share (kernel.c) ------------------------------------------------------------------------- */
/* TANDEM_NO_KERNEL: the device, the kernel, and why. */
static inline tandem_status cuda_kernel_refuse(const tandem_kernel *kernel, const char *why, tandem_error *error)
{
    return kernel_refuse(kernel->device->name, &kernel->task, kernel->op, why, error);
}
static inline tandem_status cuda_kernel_no_memory(const tandem_kernel *kernel, tandem_error *error)
{
    return kernel_no_memory(&kernel->task, kernel->op, error);
}
/* TANDEM_OK where `failed` is 0, else TANDEM_NO_DEVICE with the library's own words: a launch or a library failed. */
tandem_status cuda_kernel_result(const tandem_kernel *kernel, int failed, tandem_error *error);
const tandem_shape *cuda_input_shape(const tandem_kernel *kernel, int slot);
static inline size_t cuda_elements(const tandem_kernel *kernel)
{
    return (size_t)tandem_shape_elements(&kernel->op->shape);
}
static inline tandem_cuda_float cuda_float_of(tandem_dtype dtype)
{
    return dtype == TANDEM_BF16 ? TANDEM_CUDA_BF16 : TANDEM_CUDA_F32;
}
static inline int cuda_is_float(tandem_dtype dtype) { return dtype == TANDEM_F32 || dtype == TANDEM_BF16; }
/* Places in the workspace are multiples of 256. */
static inline uint64_t cuda_workspace_reserve(uint64_t *end, uint64_t bytes)
{
    const uint64_t start = *end;
    *end = (start + bytes + 255) / 256 * 256;
    return start;
}
static inline void *cuda_workspace_at(void *workspace, uint64_t offset) { return (char *)workspace + offset; }

/* --- product.c ------------------------------------------------------------------------------------------------------------ */

/* A product in any type that tandem has. f32 and bf16 are the library's, with the result in either. s8 is written in s32 and
 * scaled by what the integers stand for; operands that do not lie as the library wants them are transposed in the
 * workspace, and sizes that are no multiple of 4 padded with zeros. */
typedef struct cuda_gemm {
    cuda_product_spec spec; /* as asked for; from, to as in the graph */
    tandem_dtype from, to;
    cuda_product *product;
    int64_t k, n, m;                            /* padded */
    uint64_t a_offset, b_offset, result_offset; /* in the workspace; of s8, and of results that are narrowed */
    int moves_a, moves_b;
    uint64_t workspace_bytes;
} cuda_gemm;

tandem_status cuda_gemm_open(cuda_gemm *matmul, const tandem_kernel *kernel, const cuda_product_spec *shape,
                             tandem_dtype from, tandem_dtype to, tandem_error *error);
void cuda_gemm_close(cuda_gemm *matmul, const cuda_device *device);
/* scale_a, scale_b: on the card, of s8 operands. c NULL: the integers stay in the workspace, rows `n` of the padded sizes apart. */
tandem_status cuda_gemm_run(const cuda_gemm *matmul, const tandem_kernel *kernel, const void *a,
                            const void *b, void *c, const float *scale_a, const float *scale_b,
                            void *workspace, tandem_error *error);
const int32_t *cuda_gemm_integers(const cuda_gemm *matmul, void *workspace);
/* A kernel that is one product of its operands; swaps: A is operand 1. */
tandem_status cuda_gemm_prepare(tandem_kernel *kernel, const cuda_product_spec *shape, int swaps, tandem_error *error);

#endif
