/* cuda_products.c: the products of tandem/cuda_kernels.h: plans each kind of product once (product.c), and
 * runs it on streams of the caller, in one workspace.
 *
 * A plan takes the library's first guess untried. A trial takes and frees memory, for which the host waits
 * for the GPU, and programs whose batches differ ask for new sizes again and again. */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/operator.h"
#include "kernels/cuda/arguments.h"
#include "tandem/cuda_kernels.h"

enum { MAX_PLANNED = 256, N_KEY = 11, OPERAND_ALIGNMENT = 64 };
/* A launch has fewer than 2^31 tiles of 32 by 32, also where short sides are padded. */
static const int64_t max_matrix_elements = (int64_t)1 << 34;
static const char product_name[] = "product";

typedef struct planned_product {
    int64_t key[N_KEY];
    cuda_gemm gemm;
} planned_product;

struct tandem_cuda_products {
    cuda_device device; /* an algorithm that replaces one which did not run is tried on its stream */
    pthread_mutex_t mutex;
    tandem_cuda_event done; /* after the last call, in its stream */
    void *workspace;
    uint64_t workspace_bytes;
    planned_product planned[MAX_PLANNED];
    int n_planned, oldest;
};

/* --- Opening -------------------------------------------------------------------------------------------- */

void tandem_cuda_products_close(tandem_cuda_products *products)
{
    if (!products) return;
    cuda_device *const device = &products->device;
    if (device->stream) (void)device->vendor->set_device(device->index);
    for (int k = 0; k < products->n_planned; k++) cuda_gemm_close(&products->planned[k].gemm, device);
    if (products->workspace) device->vendor->free(products->workspace, 0);
    if (products->done) device->vendor->event_close(products->done);
    close_cuda_libraries(device);
    (void)pthread_mutex_destroy(&products->mutex);
    free(products);
}

tandem_status tandem_cuda_products_open(tandem_cuda_products **out, int index, tandem_error *error)
{
    if (!out) return refuse_null(product_name, "products", error);
    tandem_cuda_products *products = calloc(1, sizeof *products);
    if (!products) return tandem_no_memory(error, "to open the products of GPU %d", index);
    cuda_device *const device = &products->device;
    (void)pthread_mutex_init(&products->mutex, NULL);
    (void)snprintf(device->name, sizeof device->name, "cuda:%d", index);
    device->vendor = &tandem_cuda_vendor;
    tandem_status status = open_cuda_libraries(device, error);
    if (status == TANDEM_OK) {
        cuda_algorithm_cache_set_trials(device->algorithm_cache, 0);
        const int failed = device->vendor->event_open(&products->done);
        if (failed) status = cuda_failure(device, "open an event", failed, error);
    }
    if (status != TANDEM_OK) {
        tandem_cuda_products_close(products);
        return status;
    }
    *out = products;
    return TANDEM_OK;
}

/* --- Arguments ------------------------------------------------------------------------------------------ */

static tandem_status check_product_types(const tandem_cuda_product_call *call, tandem_error *error)
{
    const tandem_dtype a = call->a_type, b = call->b_type;
    const int known = cuda_is_float(a) || cuda_is_code(a),
              eight_bits = cuda_is_code(a) && a != TANDEM_S8 && cuda_is_code(b) && b != TANDEM_S8;
    if (!known || !(eight_bits ? a == TANDEM_E4M3 || b == TANDEM_E4M3 : a == b))
        return tandem_error_set(error, TANDEM_USAGE,
                                "%s: the types of a and b are %d and %d; allowed: f32, bf16, f16 or s8 "
                                "(%d, %d, %d, %d) of both, or e4m3 and e5m2 (%d, %d), not e5m2 of both",
                                product_name, (int)a, (int)b, TANDEM_F32, TANDEM_BF16, TANDEM_F16, TANDEM_S8,
                                TANDEM_E4M3, TANDEM_E5M2);
    if (!cuda_is_float(call->c_type))
        return tandem_error_set(error, TANDEM_USAGE, "%s: c_type must be f32, bf16 or f16", product_name);
    if (call->tf32 && a != TANDEM_F32)
        return tandem_error_set(error, TANDEM_USAGE, "%s: tf32 goes with operands of f32 alone",
                                product_name);
    return TANDEM_OK;
}

static int is_matrix_allowed(int64_t batch, int64_t rows, int64_t columns)
{
    return rows == 0 || columns == 0 || batch <= max_matrix_elements / rows / columns;
}

static tandem_status check_product_sizes(const tandem_cuda_product_call *call, tandem_error *error)
{
    const int64_t side[] = {call->batch, call->m, call->n, call->k};
    int is_allowed = 1;
    for (int i = 0; i < 4; i++) is_allowed &= side[i] >= 0 && side[i] <= INT32_MAX;
    if (is_allowed)
        is_allowed = is_matrix_allowed(call->batch, call->m, call->k) &&
                     is_matrix_allowed(call->batch, call->k, call->n) &&
                     is_matrix_allowed(call->batch, call->m, call->n);
    if (!is_allowed)
        return tandem_error_set(error, TANDEM_USAGE,
                                "%s: batch, m, n and k are %" PRId64 ", %" PRId64 ", %" PRId64 " and %" PRId64
                                "; each is at least 0 and below 2^31, and a, b and c have at most 2^34 "
                                "elements each",
                                product_name, call->batch, call->m, call->n, call->k);
    if (call->a_type == TANDEM_S8 && call->k > TANDEM_PRODUCT_MAX_K)
        return tandem_error_set(error, TANDEM_USAGE,
                                "%s: k is %" PRId64 "; sums of s8 have at most %d terms, which int32 holds. "
                                "Cut the product, and add its parts with accumulate",
                                product_name, call->k, TANDEM_PRODUCT_MAX_K);
    return TANDEM_OK;
}

static tandem_status check_product_pointers(const tandem_cuda_product_call *call, tandem_error *error)
{
    tandem_status status = check_device_pointer(product_name, "c", call->c, OPERAND_ALIGNMENT, error);
    if (call->k == 0) return status; /* nothing is read */
    if (status == TANDEM_OK)
        status = check_device_pointer(product_name, "a", call->a, OPERAND_ALIGNMENT, error);
    if (status == TANDEM_OK)
        status = check_device_pointer(product_name, "b", call->b, OPERAND_ALIGNMENT, error);
    if (!cuda_is_code(call->a_type)) return status;
    if (status == TANDEM_OK)
        status = check_device_pointer(product_name, "a_scale", call->a_scale, sizeof *call->a_scale, error);
    if (status == TANDEM_OK)
        status = check_device_pointer(product_name, "b_scale", call->b_scale, sizeof *call->b_scale, error);
    return status;
}

/* --- Plans ---------------------------------------------------------------------------------------------- */

/* The precision whose forward product it is: it says how to multiply f32, and names the product in errors. */
static tandem_precision precision_of_product(const tandem_cuda_product_call *call)
{
    switch (call->a_type) {
    case TANDEM_F32: return call->tf32 ? TANDEM_PRECISION_TF32 : TANDEM_PRECISION_FP32;
    case TANDEM_BF16: return TANDEM_PRECISION_BF16;
    case TANDEM_F16: return TANDEM_PRECISION_FP16;
    case TANDEM_S8: return TANDEM_PRECISION_INT8_FULL;
    default: return TANDEM_PRECISION_FP8;
    }
}

/* What product.c knows of a kernel: the device, and names for errors. */
static void name_product_kernel(tandem_kernel *kernel, tandem_op *op, const cuda_device *device,
                                const tandem_cuda_product_call *call)
{
    *op = (tandem_op){.kind = TANDEM_OP_MATMUL, .name = "product"};
    *kernel = (tandem_kernel){.device = device, .op = op};
    kernel->task.kind = TANDEM_TASK_FORWARD;
    kernel->task.precision = precision_of_product(call);
    kernel->task.from = call->a_type, kernel->task.to = call->c_type;
}

static planned_product *find_planned(tandem_cuda_products *products, const int64_t key[N_KEY])
{
    for (int i = 0; i < products->n_planned; i++)
        if (memcmp(products->planned[i].key, key, sizeof products->planned[i].key) == 0)
            return &products->planned[i];
    return NULL;
}

/* In place of the oldest where there is no more room: what it put on streams needs it no more. */
static void keep_planned(tandem_cuda_products *products, const int64_t key[N_KEY], const cuda_gemm *gemm)
{
    planned_product *place = &products->planned[products->oldest];
    products->oldest = (products->oldest + 1) % MAX_PLANNED;
    if (products->n_planned == MAX_PLANNED)
        cuda_gemm_close(&place->gemm, &products->device);
    else
        products->n_planned++;
    memcpy(place->key, key, sizeof place->key);
    place->gemm = *gemm;
}

/* *is_new: it was not kept from an earlier call. */
static tandem_status plan_cuda_product(planned_product **planned, int *is_new, tandem_cuda_products *products,
                                       const tandem_cuda_product_call *call, const tandem_kernel *kernel,
                                       tandem_error *error)
{
    const int64_t key[N_KEY] = {call->batch,
                                call->m,
                                call->n,
                                call->k,
                                call->a_type,
                                call->b_type,
                                call->c_type,
                                call->tf32 != 0,
                                call->a_transposed != 0,
                                call->b_transposed != 0,
                                call->accumulate != 0};
    *planned = find_planned(products, key);
    *is_new = !*planned;
    if (*planned) return TANDEM_OK;
    const cuda_product_spec spec = {.batch = call->batch,
                                    .m = call->m,
                                    .n = call->n,
                                    .k = call->k,
                                    .transpose_a = call->a_transposed != 0,
                                    .transpose_b = call->b_transposed != 0,
                                    .accumulate = call->accumulate != 0};
    const tandem_dtype operand[2] = {call->a_type, call->b_type};
    cuda_gemm made;
    const tandem_status status = cuda_gemm_open(&made, kernel, &spec, operand, call->c_type, 0, error);
    if (status != TANDEM_OK) return status;
    keep_planned(products, key, &made);
    *planned = find_planned(products, key);
    return TANDEM_OK;
}

/* Nothing finds it any more. */
static void forget_planned(planned_product *planned, const cuda_device *device)
{
    cuda_gemm_close(&planned->gemm, device);
    planned->key[0] = -1;
}

/* Freeing waits for what still uses the old one. */
static tandem_status reserve_workspace(tandem_cuda_products *products, uint64_t bytes, tandem_error *error)
{
    const cuda_device *const device = &products->device;
    if (bytes <= products->workspace_bytes) return TANDEM_OK;
    if (products->workspace) device->vendor->free(products->workspace, 0);
    products->workspace = NULL, products->workspace_bytes = 0;
    const int failed = device->vendor->alloc(&products->workspace, bytes, 0);
    if (failed) {
        char what[64];
        products->workspace = NULL;
        (void)snprintf(what, sizeof what, "take a workspace of %" PRIu64 " bytes", bytes);
        return cuda_failure(device, what, failed, error);
    }
    products->workspace_bytes = bytes;
    return TANDEM_OK;
}

/* --- Running -------------------------------------------------------------------------------------------- */

/* Sums without terms. */
static tandem_status clear_result(const tandem_cuda_product_call *call, const cuda_device *device,
                                  tandem_error *error)
{
    const uint64_t bytes = (uint64_t)(call->batch * call->m * call->n) * tandem_dtype_bytes(call->c_type);
    const int failed = call->accumulate ? 0 : device->vendor->clear(call->c, bytes, device->stream);
    return failed ? cuda_failure(device, "clear the result", failed, error) : TANDEM_OK;
}

/* A capture that waits for the event of another stream is broken, so it is refused before. */
static tandem_status refuse_capture(const cuda_device *device, tandem_cuda_stream stream, tandem_error *error)
{
    int is_capturing = 0;
    const int failed = device->vendor->stream_is_capturing(&is_capturing, stream);
    if (failed) return cuda_failure(device, "say whether a stream is captured", failed, error);
    if (!is_capturing) return TANDEM_OK;
    return tandem_error_set(error, TANDEM_USAGE,
                            "%s: the stream is being captured into a CUDA graph; only streams that are not "
                            "can run products, which wait for those before on other streams. Leave the "
                            "product out of the graph, or capture one of cuBLAS",
                            product_name);
}

/* On the kernel's stream, after the product before. *failed: the error of a library, or 0. */
static tandem_status launch_cuda_product(int *failed, int *is_new, tandem_cuda_products *products,
                                         const tandem_cuda_product_call *call, const tandem_kernel *kernel,
                                         const cuda_device *on_stream, tandem_error *error)
{
    planned_product *planned = NULL;
    tandem_status status = plan_cuda_product(&planned, is_new, products, call, kernel, error);
    if (status == TANDEM_OK) status = reserve_workspace(products, planned->gemm.workspace_bytes, error);
    if (status != TANDEM_OK) return status;
    *failed = on_stream->vendor->stream_wait_event(on_stream->stream, products->done);
    if (*failed) return cuda_failure(on_stream, "wait for the product before", *failed, error);
    *failed = cuda_gemm_launch(&planned->gemm, on_stream, call->a, call->b, call->c, call->a_scale,
                               call->b_scale, products->workspace);
    if (*failed >= CUDA_FROM_CUBLASLT && *is_new) forget_planned(planned, on_stream);
    return TANDEM_OK;
}

/* The library may refuse to run what its check lets pass. Then nothing has run, and the plan takes the next
 * algorithm that runs in a trial. */
static tandem_status launch_or_replan(tandem_cuda_products *products, const tandem_cuda_product_call *call,
                                      const tandem_kernel *kernel, const cuda_device *on_stream,
                                      tandem_error *error)
{
    cuda_algorithm_cache *const cache = products->device.algorithm_cache;
    int failed = 0, is_new = 0;
    tandem_status status = launch_cuda_product(&failed, &is_new, products, call, kernel, on_stream, error);
    if (status == TANDEM_OK && failed >= CUDA_FROM_CUBLASLT && is_new) {
        cuda_algorithm_cache_set_trials(cache, 1);
        status = launch_cuda_product(&failed, &is_new, products, call, kernel, on_stream, error);
        cuda_algorithm_cache_set_trials(cache, 0);
    }
    return status == TANDEM_OK ? cuda_kernel_result(kernel, failed, error) : status;
}

static tandem_status run_cuda_product(tandem_cuda_products *products, const tandem_cuda_product_call *call,
                                      tandem_cuda_stream stream, tandem_error *error)
{
    const cuda_vendor *const vendor = products->device.vendor;
    cuda_device on_stream = products->device;
    tandem_kernel kernel;
    tandem_op op;
    int failed = vendor->set_device(products->device.index);
    if (failed) return cuda_failure(&on_stream, "become the current one", failed, error);
    on_stream.stream = stream;
    tandem_status status = refuse_capture(&on_stream, stream, error);
    if (status != TANDEM_OK) return status;
    if (call->k == 0) return clear_result(call, &on_stream, error);
    name_product_kernel(&kernel, &op, &products->device, call);
    status = launch_or_replan(products, call, &kernel, &on_stream, error);
    failed = vendor->event_record(products->done, stream);
    return status == TANDEM_OK && failed ? cuda_failure(&on_stream, "record an event", failed, error)
                                         : status;
}

tandem_status tandem_cuda_products_run(tandem_cuda_products *products, const tandem_cuda_product_call *given,
                                       tandem_cuda_stream stream, tandem_error *error)
{
    if (!products) return refuse_null(product_name, "products", error);
    if (!given) return refuse_null(product_name, "the call", error);
    tandem_cuda_product_call call = *given;
    if (call.batch == 0) call.batch = 1;
    tandem_status status = check_product_types(&call, error);
    if (status == TANDEM_OK) status = check_product_sizes(&call, error);
    if (status != TANDEM_OK || call.m == 0 || call.n == 0) return status;
    status = check_product_pointers(&call, error);
    if (status != TANDEM_OK) return status;
    pthread_mutex_lock(&products->mutex);
    status = run_cuda_product(products, &call, stream, error);
    pthread_mutex_unlock(&products->mutex);
    return status;
}
