/* benchmark.c: times a product of the step alone, as a library's benchmark does: the least time that it
 * takes. */
#include <string.h>

#include "backend/executor/executor.h"
#include "base/clock.h"

/* A kernel with operands of its own. */
typedef struct product_benchmark {
    tandem_kernel *kernel;
    int is_own; /* this benchmark prepared the kernel */
    tandem_kernel_call call;
    void *memory[TANDEM_TASK_READS + TANDEM_TASK_WRITES + 1]; /* operands and workspace */
    int n_memory;
} product_benchmark;

static tandem_status alloc_for_benchmark(void **memory, product_benchmark *a, const tandem_executor *executor,
                                         uint64_t bytes, tandem_error *error)
{
    const tandem_status status =
        tandem_worker_alloc(memory, executor->worker, TANDEM_DEVICE_MEMORY, bytes, error);
    if (status == TANDEM_OK) a->memory[a->n_memory++] = *memory;
    return status;
}

/* Fills an operand with numbers between −1 and 1, so that no product meets denormals. */
static void fill_with_ramp(void *operand, uint64_t bytes, tandem_dtype dtype)
{
    const uint64_t n = bytes / tandem_dtype_bytes(dtype);
    for (uint64_t i = 0; i < n; i++) {
        const float x = (float)(i % 1021) / 511 - 1;
        uint32_t bits;
        memcpy(&bits, &x, sizeof bits);
        if (dtype == TANDEM_F32) ((float *)operand)[i] = x;
        if (dtype == TANDEM_BF16) ((uint16_t *)operand)[i] = (uint16_t)(bits >> 16);
        if (dtype == TANDEM_S8) ((int8_t *)operand)[i] = (int8_t)(x * 127);
    }
}

static uint64_t operand_bytes(const tandem_executor *executor, int id)
{
    if (id >= 0) return executor->step->value[id].bytes;
    return (uint64_t)executor->graph->parameter[TANDEM_PARAMETER(id)].elements * sizeof(float);
}

static tandem_status alloc_filled_operand(void **operand, product_benchmark *a,
                                          const tandem_executor *executor, uint64_t bytes, tandem_dtype dtype,
                                          tandem_error *error)
{
    const tandem_status status = alloc_for_benchmark(operand, a, executor, bytes, error);
    if (status == TANDEM_OK) fill_with_ramp(*operand, bytes, dtype);
    return status;
}

/* The step's own kernel, with the step's scales. */
static tandem_status open_step_product(product_benchmark *a, const tandem_executor *executor, int t,
                                       tandem_error *error)
{
    const tandem_task *task = &executor->step->task[t];
    void *memory = NULL;
    tandem_status status = TANDEM_OK;
    a->kernel = executor->kernel[t];
    a->call = executor->call[t];
    for (int r = 0; r < task->n_read && status == TANDEM_OK; r++) {
        if (task->read[r] == -1) continue;
        const tandem_dtype dtype =
            task->read[r] >= 0 ? executor->step->value[task->read[r]].dtype : TANDEM_F32;
        status =
            alloc_filled_operand(&memory, a, executor, operand_bytes(executor, task->read[r]), dtype, error);
        a->call.in[r] = memory;
    }
    if (task->accumulate) a->call.out[0] = memory; /* the last operand that it reads */
    for (int w = task->accumulate; w < task->n_write && status == TANDEM_OK; w++) {
        if (task->write[w] == -1) continue;
        status = alloc_for_benchmark(&memory, a, executor, operand_bytes(executor, task->write[w]), error);
        a->call.out[w] = memory;
    }
    if (status == TANDEM_OK && executor->workspace[t])
        status = alloc_for_benchmark(&a->call.workspace, a, executor, executor->workspace[t], error);
    return status;
}

static tandem_status open_library_product(product_benchmark *a, const tandem_executor *executor, int t,
                                          tandem_error *error)
{
    const tandem_device_backend *backend = executor->worker->backend;
    const tandem_dtype from = executor->step->task[t].from;
    uint64_t bytes[3], workspace_bytes = 0;
    void *memory = NULL;
    if (!backend->prepare_library)
        return tandem_error_set(error, TANDEM_NO_KERNEL,
                                "device '%s' has no kernels of a library to compare with",
                                executor->worker->device_name);
    tandem_status status = backend->prepare_library(executor->worker->device, executor->step, t, &a->kernel,
                                                    bytes, &workspace_bytes, error);
    a->is_own = status == TANDEM_OK;
    for (int k = 0; k < 2 && status == TANDEM_OK; k++) {
        status = alloc_filled_operand(&memory, a, executor, bytes[k], from, error);
        a->call.in[k] = memory;
    }
    if (status == TANDEM_OK) status = alloc_for_benchmark(&a->call.out[0], a, executor, bytes[2], error);
    return status == TANDEM_OK ? alloc_for_benchmark(&a->call.workspace, a, executor, workspace_bytes, error)
                               : status;
}

static tandem_status check_task_is_product(const tandem_executor *executor, int t, tandem_error *error)
{
    const tandem_step *step = executor->step;
    if (tandem_worker_has_device_memory(executor->worker))
        return tandem_error_set(error, TANDEM_USAGE, "products are measured alone on CPUs, not on '%s'",
                                executor->worker->device_name);
    const tandem_task *task = t >= 0 && t < step->n_task ? &step->task[t] : NULL;
    const int is_pass = task && task->active &&
                        (task->kind == TANDEM_TASK_FORWARD || task->kind == TANDEM_TASK_WGRAD ||
                         task->kind == TANDEM_TASK_DGRAD);
    const tandem_op_kind kind = is_pass ? step->graph->op[task->op].kind : TANDEM_N_OP_KIND;
    if (kind == TANDEM_OP_LINEAR || kind == TANDEM_OP_MATMUL || kind == TANDEM_OP_CONV2D) return TANDEM_OK;
    return tandem_error_set(error, TANDEM_USAGE,
                            "task %d of the step is no product; those of linear, matmul and conv2d are", t);
}

tandem_status tandem_executor_benchmark_product(const tandem_executor *executor, int t, int use_library,
                                                int64_t *sample_ns, int n, tandem_error *error)
{
    const tandem_device_backend *backend = executor->worker->backend;
    product_benchmark a = {.n_memory = 0};
    tandem_status status = check_task_is_product(executor, t, error);
    if (status != TANDEM_OK) return status;
    status = use_library ? open_library_product(&a, executor, t, error)
                         : open_step_product(&a, executor, t, error);
    for (int i = -1; i < n && status == TANDEM_OK; i++) {
        const int64_t begin_ns = tandem_now_ns();
        status = backend->run(a.kernel, &a.call, error);
        if (i >= 0) sample_ns[i] = tandem_now_ns() - begin_ns;
    }
    for (int k = 0; k < a.n_memory; k++)
        tandem_worker_free(executor->worker, TANDEM_DEVICE_MEMORY, a.memory[k]);
    if (a.is_own) backend->release(a.kernel);
    return status;
}
