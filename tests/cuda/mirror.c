#include "tests/cuda/mirror.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/cuda/gpu.h"
#include "tests/support/operator_case.h"

extern const tandem_device_backend tandem_cuda_backend;

enum { EDGE = 256, EDGE_BYTE = 0x3C }; /* before and after each array on the card */

/* An array on the card; host: as it was before and is after a run, with its edges. */
typedef struct mirror_array {
    char *gpu, *host;
    size_t bytes;
} mirror_array;

struct tandem_kernel {
    void *device;
    tandem_kernel *real;
    int n_in, n_out;
    mirror_array in[TANDEM_TASK_READS], out[TANDEM_TASK_WRITES], workspace, scales;
};

static tandem_status open_mirror_array(mirror_array *t, void *device, size_t bytes, tandem_error *error)
{
    void *gpu = NULL;
    t->bytes = bytes;
    t->host = malloc(bytes + 2 * EDGE);
    if (!t->host) return tandem_no_memory(error, "for a copy of %zu bytes", bytes);
    const tandem_status status = tandem_cuda_backend.alloc(device, &gpu, bytes + 2 * EDGE, 0, error);
    t->gpu = gpu;
    return status;
}

static void close_mirror_array(mirror_array *t, void *device)
{
    if (t->gpu) tandem_cuda_backend.free(device, t->gpu, 0);
    free(t->host);
}

static void *mirror_data(const mirror_array *t) { return t->gpu + EDGE; }

static tandem_status copy_to_gpu(const mirror_array *t, void *device, const void *data, tandem_error *error)
{
    memset(t->host, EDGE_BYTE, t->bytes + 2 * EDGE);
    if (t->bytes) memcpy(t->host + EDGE, data, t->bytes);
    return tandem_cuda_backend.copy(device, t->gpu, t->host, t->bytes + 2 * EDGE, error);
}

static tandem_status copy_from_gpu(const mirror_array *t, void *device, void *data, tandem_error *error)
{
    const tandem_status status =
        tandem_cuda_backend.copy(device, t->host, t->gpu, t->bytes + 2 * EDGE, error);
    if (status != TANDEM_OK) return status;
    for (size_t i = 0; i < EDGE; i++)
        if (t->host[i] != EDGE_BYTE || t->host[EDGE + t->bytes + i] != EDGE_BYTE)
            return tandem_error_set(error, TANDEM_BUG,
                                    "it writes outside of an array of %zu bytes on the GPU", t->bytes);
    if (t->bytes) memcpy(data, t->host + EDGE, t->bytes);
    return TANDEM_OK;
}

static void mirror_release(tandem_kernel *kernel)
{
    if (!kernel) return;
    for (int k = 0; k < kernel->n_in; k++) close_mirror_array(&kernel->in[k], kernel->device);
    for (int k = 0; k < kernel->n_out; k++) close_mirror_array(&kernel->out[k], kernel->device);
    close_mirror_array(&kernel->workspace, kernel->device);
    close_mirror_array(&kernel->scales, kernel->device);
    tandem_cuda_backend.release(kernel->real);
    free(kernel);
}

enum { SCALES = TANDEM_TASK_READS + TANDEM_TASK_WRITES };

static tandem_status mirror_prepare(void *device, const tandem_step *step, int task, tandem_kernel **out,
                                    uint64_t *workspace_bytes, tandem_error *error)
{
    tandem_kernel *kernel = calloc(1, sizeof *kernel);
    task_operands operands;
    if (!kernel) return tandem_no_memory(error, "for a kernel");
    operands_open(&operands, step, task);
    kernel->device = device;
    kernel->n_in = operands.n_in, kernel->n_out = operands.n_out;
    tandem_status status =
        tandem_cuda_backend.prepare(device, step, task, &kernel->real, workspace_bytes, error);
    for (int k = 0; k < operands.n_in && status == TANDEM_OK; k++)
        status = open_mirror_array(&kernel->in[k], device, operands.in[k].bytes, error);
    for (int k = 0; k < operands.n_out && status == TANDEM_OK; k++)
        status = open_mirror_array(&kernel->out[k], device, operands.out[k].bytes, error);
    if (status == TANDEM_OK) status = open_mirror_array(&kernel->workspace, device, *workspace_bytes, error);
    if (status == TANDEM_OK)
        status = open_mirror_array(&kernel->scales, device, SCALES * sizeof(float), error);
    operands_close(&operands);
    if (status != TANDEM_OK) {
        mirror_release(kernel);
        return status;
    }
    *out = kernel;
    return TANDEM_OK;
}

/* The call with everything in it on the card. */
static tandem_status copy_call_to_gpu(tandem_kernel_call *there, const tandem_kernel *kernel,
                                      const tandem_kernel_call *here, tandem_error *error)
{
    float scales[SCALES] = {0};
    *there = *here;
    there->workspace = mirror_data(&kernel->workspace);
    tandem_status status = copy_to_gpu(&kernel->workspace, kernel->device, here->workspace, error);
    for (int k = 0; k < kernel->n_in && status == TANDEM_OK; k++) {
        there->in[k] = mirror_data(&kernel->in[k]);
        status = copy_to_gpu(&kernel->in[k], kernel->device, here->in[k], error);
        if (!here->in_scale[k]) continue;
        scales[k] = *here->in_scale[k];
        there->in_scale[k] = (float *)mirror_data(&kernel->scales) + k;
    }
    for (int k = 0; k < kernel->n_out && status == TANDEM_OK; k++) {
        there->out[k] = mirror_data(&kernel->out[k]);
        status = copy_to_gpu(&kernel->out[k], kernel->device, here->out[k], error);
        if (!here->out_scale[k]) continue;
        there->out_scale[k] = (float *)mirror_data(&kernel->scales) + TANDEM_TASK_READS + k;
    }
    return status == TANDEM_OK ? copy_to_gpu(&kernel->scales, kernel->device, scales, error) : status;
}

static int last_launches;
int mirror_last_launches(void) { return last_launches; }

static tandem_status mirror_run(const tandem_kernel *kernel, const tandem_kernel_call *call,
                                tandem_error *error)
{
    tandem_kernel_call there;
    float scales[SCALES];
    int is_finite = 0;
    tandem_status status = copy_call_to_gpu(&there, kernel, call, error);
    const int launches_before = gpu_launches();
    if (status == TANDEM_OK) status = tandem_cuda_backend.run(kernel->real, &there, error);
    last_launches = gpu_launches() - launches_before;
    if (status == TANDEM_OK) status = tandem_cuda_backend.device_sync(kernel->device, &is_finite, error);
    if (status == TANDEM_OK) status = copy_from_gpu(&kernel->scales, kernel->device, scales, error);
    if (status == TANDEM_OK)
        status = copy_from_gpu(&kernel->workspace, kernel->device, call->workspace, error);
    for (int k = 0; k < kernel->n_in && status == TANDEM_OK; k++) /* which it has no business to change */
        status = copy_from_gpu(&kernel->in[k], kernel->device, (void *)(uintptr_t)call->in[k], error);
    for (int k = 0; k < kernel->n_out && status == TANDEM_OK; k++) {
        status = copy_from_gpu(&kernel->out[k], kernel->device, call->out[k], error);
        if (call->out_scale[k]) *call->out_scale[k] = scales[TANDEM_TASK_READS + k];
    }
    return status;
}

static tandem_status mirror_open_device(void **device, const char *name, tandem_error *error)
{
    return tandem_cuda_backend.open(device, name, error);
}

static void mirror_close_device(void *device) { tandem_cuda_backend.close(device); }

const tandem_device_backend mirror_backend = {.open = mirror_open_device,
                                              .close = mirror_close_device,
                                              .prepare = mirror_prepare,
                                              .release = mirror_release,
                                              .run = mirror_run};
