/* device.c: the device backend "cuda": one card, one stream. */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/operator.h"

enum { LEAST_MAJOR = 7, LEAST_MINOR = 5 }; /* sm_75: the oldest that CUDA 13 knows */

/* A reshape is a view, and sources bring data in: no task asks for a kernel of theirs. */
#define KERNELS_OF_SOURCE(name) NULL
#define KERNELS_OF_ADJUSTABLE(name) &cuda_##name
#define KERNELS_OF_DEPENDENT(name) &cuda_##name
#define KERNELS_OF_FIXED(name) &cuda_##name
const cuda_operator cuda_reshape = {NULL};
static const cuda_operator *const operator_of[N_KERNEL_ROW] = {
#define ROW(NAME, name, class, ...) [TANDEM_OP_##NAME] = KERNELS_OF_##class(name),
#include "tandem/op.def"
#undef ROW
    [KERNEL_ROW_CAST] = &cuda_cast,
    [KERNEL_ROW_ACCUMULATE] = &cuda_accumulate,
};

/* --- Opening ------------------------------------------------------------------------------------------------------------ */

static tandem_status failed_to(const cuda_device *cuda, const char *what, int failed, tandem_error *error)
{
    return tandem_error_set(error, TANDEM_NO_DEVICE, "device '%s' failed to %s: %s (error %d)", cuda->name,
                            what, cuda->vendor->text(failed), failed);
}

/* Which card a name means; that it is there, and not too old. */
static tandem_status choose(int *index, const cuda_device *cuda, tandem_error *error)
{
    char *end = NULL;
    const char *const digits = cuda->name + strlen("cuda:");
    const long number = strtol(digits, &end, 10);
    int n = 0;
    if (*digits < '0' || *digits > '9' || *end || number > INT_MAX)
        return tandem_error_set(error, TANDEM_UNKNOWN_NAME,
                                "there is no device '%s'; cards are cuda:0, cuda:1, …", cuda->name);
    const int failed = cuda->vendor->count(&n);
    if (failed) return failed_to(cuda, "look for cards", failed, error);
    if (number >= n)
        return tandem_error_set(error, TANDEM_NO_DEVICE, "device '%s' is not here: this machine has %d card%s",
                                cuda->name, n, n == 1 ? "" : "s");
    cuda_card card;
    const int looked = cuda->vendor->look(&card, (int)number);
    if (looked) return failed_to(cuda, "describe itself", looked, error);
    if (card.major * 10 + card.minor < LEAST_MAJOR * 10 + LEAST_MINOR)
        return tandem_error_set(error, TANDEM_NO_DEVICE,
                                "device '%s' is a %s of compute capability %d.%d; kernels are for %d.%d and later",
                                cuda->name, card.name, card.major, card.minor, LEAST_MAJOR, LEAST_MINOR);
    if (card.driver < card.runtime)
        return tandem_error_set(error, TANDEM_NO_DEVICE,
                                "the driver of device '%s' is for CUDA %d.%d, older than the %d.%d that tandem was built with; "
                                "install a newer driver, or build with an older CUDA Toolkit",
                                cuda->name, card.driver / 1000, card.driver % 1000 / 10, card.runtime / 1000,
                                card.runtime % 1000 / 10);
    *index = (int)number;
    return TANDEM_OK;
}

static void close_device(void *device)
{
    cuda_device *cuda = device;
    if (!cuda) return;
    if (cuda->amax_bits) cuda->vendor->give(cuda->amax_bits, 0);
    if (cuda->faults) cuda->vendor->give(cuda->faults, 0);
    if (cuda->stream) cuda->vendor->stream_close(cuda->stream);
    if (cuda->libraries) cuda->vendor->close(cuda->libraries);
    free(cuda);
}

static tandem_status open_parts(cuda_device *cuda, tandem_error *error)
{
    const cuda_vendor *vendor = cuda->vendor;
    int index = 0;
    const tandem_status status = choose(&index, cuda, error);
    if (status != TANDEM_OK) return status;
    int failed = vendor->open(&cuda->libraries, index);
    if (!failed) failed = vendor->stream_open(&cuda->stream);
    if (!failed) failed = vendor->take((void **)&cuda->faults, sizeof *cuda->faults, 0);
    if (!failed) failed = vendor->take((void **)&cuda->amax_bits, sizeof *cuda->amax_bits, 0);
    if (!failed) failed = vendor->clear(cuda->faults, sizeof *cuda->faults, cuda->stream);
    return failed ? failed_to(cuda, "open", failed, error) : TANDEM_OK;
}

tandem_status tandem_cuda_open_with(void **device, const char *name, const cuda_vendor *vendor, tandem_error *error)
{
    cuda_device *cuda = calloc(1, sizeof *cuda);
    if (!cuda) return tandem_error_set(error, TANDEM_NO_MEMORY, "no memory to open device '%s'", name);
    (void)snprintf(cuda->name, sizeof cuda->name, "%s", name);
    cuda->vendor = vendor;
    const tandem_status status = open_parts(cuda, error);
    if (status != TANDEM_OK) {
        close_device(cuda);
        return status;
    }
    *device = cuda;
    return TANDEM_OK;
}

/* --- Kernels ------------------------------------------------------------------------------------------------------------ */

static void release(tandem_kernel *kernel)
{
    if (!kernel) return;
    if (kernel->destroy) kernel->destroy(kernel->state, kernel->device);
    free(kernel);
}

static tandem_status prepare(void *device, const tandem_step *step, int task, tandem_kernel **kernel,
                             uint64_t *workspace_bytes, tandem_error *error)
{
    const tandem_task *form = &step->task[task];
    const tandem_op *op = form->op >= 0 ? &step->graph->op[form->op] : NULL;
    const cuda_operator *found = operator_of[kernel_row_of(form, op)];
    if (!found || !found->prepare) return kernel_missing(task, form, op, error);
    tandem_kernel *prepared = calloc(1, sizeof *prepared);
    if (!prepared) return kernel_no_memory(form, op, error);
    prepared->device = device;
    prepared->graph = step->graph;
    prepared->op = op;
    prepared->task = *form;
    const tandem_status status = found->prepare(prepared, error);
    if (status != TANDEM_OK) {
        free(prepared);
        return status;
    }
    *kernel = prepared;
    *workspace_bytes = prepared->workspace_bytes;
    return TANDEM_OK;
}

static tandem_status run(const tandem_kernel *kernel, const tandem_kernel_call *call, tandem_error *error)
{
    return kernel->run(kernel, call, error);
}

/* --- The optimizer ------------------------------------------------------------------------------------------------------ */

static int update(void *device, const tandem_optimizer_options *options, int decays, float *weight,
                  float *const *state, const float *gradient, int64_t n, int64_t t)
{
    const cuda_device *cuda = device;
    const float decay = decays ? options->decay : 0;
    const size_t padded = ((size_t)n + 15) / 16 * 16;
    if (options->kind == TANDEM_SGD)
        return !tandem_cuda_sgd(weight, state[0], gradient, NULL, padded, options->rate, options->momentum,
                                decay, &cuda->faults->not_finite, cuda->stream);
    const tandem_adamw adamw = {options->rate,
                                options->beta1,
                                options->beta2,
                                options->epsilon,
                                decay,
                                (float)(1 / (1 - pow((double)options->beta1, (double)t))),
                                (float)(1 / (1 - pow((double)options->beta2, (double)t)))};
    return !tandem_cuda_adamw(weight, state[0], state[1], gradient, NULL, padded, &adamw,
                              &cuda->faults->not_finite, cuda->stream);
}

/* --- Memory ------------------------------------------------------------------------------------------------------------- */

static tandem_status take(void *device, void **memory, uint64_t bytes, tandem_error *error)
{
    const cuda_device *cuda = device;
    void *taken = NULL;
    const uint64_t some = bytes ? bytes : 256;
    if (cuda->vendor->take(&taken, some, 0))
        return tandem_error_set(error, TANDEM_NO_MEMORY, "device '%s' has no %llu bytes of memory left",
                                cuda->name, (unsigned long long)some);
    const int failed = cuda->vendor->clear(taken, some, cuda->stream);
    if (failed) {
        cuda->vendor->give(taken, 0);
        return failed_to(cuda, "clear memory", failed, error);
    }
    *memory = taken;
    return TANDEM_OK;
}

static void give(void *device, void *memory)
{
    const cuda_device *cuda = device;
    if (memory) cuda->vendor->give(memory, 0);
}

static tandem_status copy(void *device, void *to, const void *from, uint64_t bytes, tandem_error *error)
{
    const cuda_device *cuda = device;
    int failed = cuda->vendor->copy(to, from, bytes, cuda->stream);
    if (!failed) failed = cuda->vendor->wait(cuda->stream);
    return failed ? failed_to(cuda, "copy", failed, error) : TANDEM_OK;
}

static tandem_status settle(void *device, int *is_finite, tandem_error *error)
{
    const cuda_device *cuda = device;
    cuda_faults faults = {0};
    const tandem_status status = copy(device, &faults, cuda->faults, sizeof faults, error);
    if (status != TANDEM_OK) return status;
    const int failed = cuda->vendor->clear(cuda->faults, sizeof faults, cuda->stream);
    if (failed) return failed_to(cuda, "clear memory", failed, error);
    if (faults.bad_label || faults.bad_token)
        return tandem_error_set(error, TANDEM_MALFORMED,
                                "%s %u of the batch is out of its range; labels are classes, or -1 for none, and tokens "
                                "are numbers of the vocabulary",
                                faults.bad_label ? "label" : "token",
                                0xFFFFFFFFu - (faults.bad_label ? faults.bad_label : faults.bad_token));
    *is_finite = !faults.not_finite;
    return TANDEM_OK;
}

/* --- The table ---------------------------------------------------------------------------------------------------------- */

static tandem_status open_device(void **device, const char *name, tandem_error *error)
{
    return tandem_cuda_open_with(device, name, &tandem_cuda_vendor, error);
}

static const char *version(void)
{
    static _Thread_local char text[96];
    return tandem_cuda_vendor.versions(text, sizeof text) ? "CUDA" : text;
}

const tandem_device_backend tandem_cuda_backend = {
    .prefix = "cuda",
    .open = open_device,
    .close = close_device,
    .prepare = prepare,
    .release = release,
    .run = run,
    .update = update,
    .version = version,
    .take = take,
    .give = give,
    .copy = copy,
    .settle = settle,
};

/* The one exported function: the table, or NULL where `version` is not that of backend.h when this was built. */
__attribute__((visibility("default"))) const tandem_device_backend *tandem_cuda_get(int version);
const tandem_device_backend *tandem_cuda_get(int version)
{
    return version == TANDEM_BACKEND_VERSION ? &tandem_cuda_backend : NULL;
}
