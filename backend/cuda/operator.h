/* operator.h: how an operator is implemented on a GPU: one file per operator in backend/cuda/op/, which ends
 * in one row, as on the CPU (backend/cpu/operator.h). `prepare` checks the task and sets run, workspace_bytes
 * and state. `run` puts launches on the device's stream and returns at once. All pointers of a call lead to
 * GPU memory, scales too. */
#pragma once

#include "backend/cuda/algorithm_cache.h"
#include "backend/device/kernel_name.h"
#include "tandem/advanced/device_backend.h"

/* Faults on the GPU since the last sync. The array is in GPU memory, and all 0 without faults. */
typedef struct cuda_faults {
    uint32_t bad_label, bad_token; /* 2^32 − 1 − position */
    /* of gradients, 2^32 − 1 − the number of the first 16 elements of a launch of `update` with such a one */
    uint32_t not_finite;
} cuda_faults;

typedef struct cuda_device {
    char name[TANDEM_DEVICE_NAME];
    const cuda_vendor *vendor;
    cuda_libraries *libraries;
    tandem_cuda_stream stream;                              /* the compute stream */
    tandem_cuda_stream side_stream[TANDEM_N_DEVICE_STREAM]; /* the other streams; the first is NULL */
    tandem_cuda_event *event;                               /* [n_event] */
    int n_event, index;                                     /* index: of the GPU */
    tandem_cuda_event stream_event[TANDEM_N_DEVICE_STREAM]; /* for stream_wait */
    /* work goes into a graph; is_forked: on this stream too */
    int is_capturing;
    int is_forked[TANDEM_N_DEVICE_STREAM];
    int has_external_events; /* a probe found that the host can wait for events in graphs */
    int update_error;        /* error of an optimizer launch, until device_sync reports it */
    cuda_gpu gpu;
    cuda_algorithm_cache *algorithm_cache;
    cuda_faults *faults; /* on the GPU */
    uint32_t *tickets;   /* [TANDEM_CUDA_TICKETS], of the kernels on the compute stream */
    uint32_t *amax_bits; /* of the current cast without a history: the range */
} cuda_device;

typedef tandem_status cuda_kernel_run(const tandem_kernel *kernel, const tandem_kernel_call *call,
                                      tandem_error *error);

struct tandem_kernel {
    const cuda_device *device;
    const tandem_graph *graph;
    const tandem_op *op;
    tandem_task task;           /* a copy: kind, precision, from, to */
    int transposed_copy[2];     /* of a product: whether the operand is a transposed copy */
    tandem_attention attention; /* of one that is one task, and what that writes */
    tandem_dtype written[TANDEM_TASK_WRITES];
    int saves_input;                 /* the operator, on the step's device (op.def) */
    int64_t padded_row;              /* tandem_step_padded_row */
    tandem_merged_products products; /* of the last of several in one launch */
    tandem_matrices matrices;        /* of a cast that writes a transposed copy; rows 0: it writes none */
    int is_read_later;               /* of a cast: its operand, by a later task */
    uint64_t workspace_bytes;
    void *state; /* of the operator; freed by `destroy` */
    void (*destroy)(void *state, const cuda_device *device);
    cuda_kernel_run *run;
};

typedef struct cuda_operator {
    tandem_status (*prepare)(tandem_kernel *kernel, tandem_error *error);
    /* Without `prepare`: what runs. The tasks read and write one float type. */
    cuda_kernel_run *forward, *dgrad;
} cuda_operator;

#define ROW(NAME, name, ...) extern const cuda_operator cuda_##name;
#include "tandem/op.def"
#undef ROW
extern const cuda_operator cuda_cast, cuda_accumulate, cuda_attention;

/* --- Tasks that are one launch (merged.c) --------------------------------------------------------------- */

/* As tandem_device_backend.run_merged, with workspaces that are aligned. */
tandem_status cuda_run_merged(const tandem_kernel *const *kernel, const tandem_kernel_call *call, int n,
                              tandem_error *error);
/* Of products of one tensor (product.c). */
tandem_status cuda_run_merged_products(const tandem_kernel *const *kernel, const tandem_kernel_call *call,
                                       int n, tandem_error *error);
/* What a cast of a weight to two bytes does. */
/* What a cast with a history does. */
tandem_cuda_delayed_cast cuda_delayed_cast(const tandem_kernel *kernel, const tandem_kernel_call *call,
                                           const tandem_rounding *rounding);
tandem_rounding cuda_cast_rounding(const tandem_kernel_call *call);
tandem_cuda_weight_copy cuda_weight_copy(const tandem_kernel *kernel, const tandem_kernel_call *call);
tandem_cuda_permutation cuda_transpose_order(const tandem_kernel *kernel);

/* The backend over another vendor table than NVIDIA's, for tests: the table of device.c except `open`. */
tandem_status tandem_cuda_open_with(void **device, const char *name, const cuda_vendor *vendor,
                                    tandem_error *error);
extern const tandem_device_backend tandem_cuda_backend;

/* --- gpu.c ---------------------------------------------------------------------------------------------- */

/* TANDEM_NO_MEMORY or TANDEM_NO_DEVICE, with what the device was to do, and the text of the error. */
tandem_status cuda_failure(const cuda_device *cuda, const char *what, int failed, tandem_error *error);
/* Finds the GPU that the device is named after, and checks that it exists and is not too old. */
tandem_status find_cuda_gpu(cuda_gpu *gpu, int *index, const cuda_device *cuda, tandem_error *error);
enum { CUDA_VERSIONS_TEXT = 96 };
/* Fills in gpu, index, libraries, stream and the cache of algorithms; name and vendor are set. Also where it
 * fails, close_cuda_libraries gives them back. The GPU becomes the current one of the calling thread. */
tandem_status open_cuda_libraries(cuda_device *cuda, tandem_error *error);
void close_cuda_libraries(cuda_device *cuda);

/* --- graph_probe.c -------------------------------------------------------------------------------------- */

/* *does_wait: whether a thread that waits for an event which event_record_external put into a graph sleeps
 * until the graph comes there, and wakes then, in two launches; and whether the event has a time. No
 * documentation says so, so it is tried with a graph that is held before the event. Takes some ms, and 2 s
 * where the thread does not wake: it is then left alone with what it waits for. Not in a capture. 0, or an
 * error of the vendor. */
int cuda_probe_external_events(int *does_wait, const cuda_device *device);

/* --- Shared by the operators (kernel.c)
 * ------------------------------------------------------------------ */
/* TANDEM_NO_KERNEL with the device, the kernel and the reason. */
static inline tandem_status cuda_kernel_refuse(const tandem_kernel *kernel, const char *why,
                                               tandem_error *error)
{
    return kernel_refuse(kernel->device->name, &kernel->task, kernel->op, why, error);
}
static inline tandem_status cuda_kernel_no_memory(const tandem_kernel *kernel, tandem_error *error)
{
    return kernel_no_memory(&kernel->task, kernel->op, error);
}
/* TANDEM_OK where `failed` is 0, else TANDEM_NO_DEVICE with the library's text: a launch or a library call
 * failed. */
tandem_status cuda_kernel_result(const tandem_kernel *kernel, int failed, tandem_error *error);
const tandem_shape *cuda_input_shape(const tandem_kernel *kernel, int slot);
/* The window of a pool or a convolution, and the images that it moves over. */
tandem_cuda_pool cuda_window_of(const tandem_kernel *kernel);
static inline size_t cuda_elements(const tandem_kernel *kernel)
{
    return (size_t)tandem_shape_elements(&kernel->op->shape);
}
/* With what lies between the rows of the operator's result. */
static inline size_t cuda_stored_elements(const tandem_kernel *kernel)
{
    const size_t columns = (size_t)tandem_shape_last(&kernel->op->shape);
    return kernel->padded_row ? cuda_elements(kernel) / columns * (size_t)kernel->padded_row
                              : cuda_elements(kernel);
}
static inline int cuda_is_float(tandem_dtype dtype)
{
    return dtype == TANDEM_F32 || dtype == TANDEM_BF16 || dtype == TANDEM_F16;
}
static inline tandem_cuda_float cuda_float_of(tandem_dtype dtype)
{
    return dtype == TANDEM_BF16 ? TANDEM_CUDA_BF16 : dtype == TANDEM_F16 ? TANDEM_CUDA_F16 : TANDEM_CUDA_F32;
}
/* One-byte types, which have a scale. */
static inline int cuda_is_code(tandem_dtype dtype)
{
    return dtype == TANDEM_S8 || dtype == TANDEM_E4M3 || dtype == TANDEM_E5M2;
}
static inline tandem_cuda_code cuda_code_of(tandem_dtype dtype)
{
    return dtype == TANDEM_E4M3 ? TANDEM_CUDA_E4M3 : dtype == TANDEM_E5M2 ? TANDEM_CUDA_E5M2 : TANDEM_CUDA_S8;
}
/* The mask of the samples of this call, which have so many elements each. */
tandem_dropout cuda_dropout_mask(const tandem_op *dropout, const tandem_kernel_call *call,
                                 uint64_t elements_per_sample);
/* TANDEM_NO_KERNEL where tensor cores of this GPU do not multiply the type. */
tandem_status cuda_require_capability(const tandem_kernel *kernel, cuda_type type, int tf32,
                                      tandem_error *error);
/* Sets `run`. TANDEM_NO_KERNEL unless the task reads and writes one float type. */
tandem_status cuda_kernel_of_float(tandem_kernel *kernel, cuda_kernel_run *run, tandem_error *error);
/* The libraries' name of a type. */
cuda_type cuda_type_of(tandem_dtype dtype);
/* The type of operand 0 or 1 of an adjustable operator's task. A backward product has a gradient as operand,
 * which may have its own type. */
tandem_dtype cuda_operand_type(const tandem_kernel *kernel, int slot);
/* Offsets in the workspace are multiples of 256. */
static inline uint64_t cuda_workspace_reserve(uint64_t *end, uint64_t bytes)
{
    const uint64_t start = *end;
    *end = (start + bytes + 255) / 256 * 256;
    return start;
}
static inline void *cuda_workspace_at(void *workspace, uint64_t offset) { return (char *)workspace + offset; }

/* --- Products and convolutions of the libraries (planned_work.c)
 * ----------------------------------------- */

/* A piece of work and its algorithm; all 0 = none. */
typedef struct cuda_planned_work {
    cuda_work *work;
    cuda_algorithm algorithm;
} cuda_planned_work;
/* TANDEM_NO_KERNEL: the library has no algorithm. */
tandem_status cuda_plan_product(cuda_planned_work *chosen, const tandem_kernel *kernel,
                                const cuda_product_spec *spec, tandem_error *error);
tandem_status cuda_plan_convolution(cuda_planned_work *chosen, const tandem_kernel *kernel,
                                    const cuda_convolution_spec *spec, tandem_error *error);
void cuda_planned_work_close(cuda_planned_work *chosen, const cuda_device *device);
int cuda_planned_work_run(const cuda_planned_work *chosen, const cuda_device *device,
                          const cuda_operands *operands, void *workspace);

/* --- product.c ------------------------------------------------------------------------------------------ */

/* A product in any type that tandem has. Operands of a byte that do not lie as the library wants them are
 * transposed in the workspace, and padded with zeros to sides that it takes. What it cannot write itself is
 * made in the workspace: integers before they are scaled, results with padding, and those narrower than its
 * operands. */
typedef struct cuda_gemm {
    cuda_product_spec spec;      /* as asked for; types as the library has them */
    tandem_dtype a, b, made, to; /* made: by the library */
    cuda_planned_work chosen;
    int64_t k, n, m;                            /* padded */
    uint64_t a_offset, b_offset, result_offset; /* in the workspace, where they are used */
    int repack_a, repack_b, via_workspace;
    uint64_t workspace_bytes;
} cuda_gemm;

/* operand: types of A and B. stays: the result is left in the workspace, in s32 or f32, rows `n` of the
 * padded sizes apart. */
tandem_status cuda_gemm_open(cuda_gemm *matmul, const tandem_kernel *kernel, const cuda_product_spec *shape,
                             const tandem_dtype operand[2], tandem_dtype to, int keep_in_workspace,
                             tandem_error *error);
void cuda_gemm_close(cuda_gemm *matmul, const cuda_device *device);
/* scale_a, scale_b: on the GPU, of one-byte operands. c NULL: the result stays in the workspace. 0, or the
 * error of a library. */
int cuda_gemm_launch(const cuda_gemm *matmul, const cuda_device *device, const void *a, const void *b,
                     void *c, const float *scale_a, const float *scale_b, void *workspace);
tandem_status cuda_gemm_run(const cuda_gemm *matmul, const tandem_kernel *kernel, const void *a,
                            const void *b, void *c, const float *scale_a, const float *scale_b,
                            void *workspace, tandem_error *error);
void *cuda_gemm_result(const cuda_gemm *matmul, void *workspace);
/* A kernel that is one product of its operands, as they lie row by row; swaps: A is operand 1. */
tandem_status cuda_gemm_prepare(tandem_kernel *kernel, const cuda_product_spec *shape, int swap_operands,
                                tandem_error *error);
