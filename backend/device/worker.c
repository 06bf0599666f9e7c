/* worker.c: opens this process as one rank: finds its device, pins it to its core, and connects it. */
#include "backend/device/worker.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern const tandem_device_backend tandem_cpu_backend;

/* The prefix of a device's name selects its kind. */
static tandem_status find_device_backend(const tandem_device_backend **backend, const char *device,
                                         tandem_error *error)
{
    if (strncmp(device, "cuda:", 5) == 0) return tandem_cuda_backend_load(backend, error);
    *backend = &tandem_cpu_backend;
    if (strncmp(device, "cpu:", 4) == 0) return TANDEM_OK;
    return tandem_error_set(error, TANDEM_NO_DEVICE,
                            "there are no kernels for device '%s'; there are for cpu:… and cuda:…", device);
}

tandem_status tandem_worker_describe_device(char *text, size_t size, const char *device, tandem_error *error)
{
    const tandem_device_backend *backend = NULL;
    const tandem_status status = find_device_backend(&backend, device, error);
    if (status != TANDEM_OK) return status;
    if (backend->describe) return backend->describe(text, size, device, error);
    if (size) *text = '\0';
    return TANDEM_OK;
}

/* Threads of kernels have the cores of the thread that begins them: those of the rank. */
static tandem_status pin_to_cores(const tandem_worker_options *options, tandem_error *error)
{
    const int cpu = options->cpu;
    if (cpu < 0) return TANDEM_OK;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((size_t)cpu, &set);
    for (int k = 0; options->core && k < options->n_core; k++)
        if (options->core[k] >= 0 && options->core[k] < CPU_SETSIZE) CPU_SET((size_t)options->core[k], &set);
    if (sched_setaffinity(0, sizeof set, &set) == 0) return TANDEM_OK;
    return tandem_error_set(
        error, TANDEM_NO_DEVICE,
        "cannot pin this rank to core %d: %s; LOCAL_RANK counts the cores that this process may use", cpu,
        strerror(errno));
}

/* The core of the threads that exchange gradients. Of several, the last: the first also does what is not
 * divided. */
static int comm_core(const tandem_worker_options *options)
{
    return options->core && options->n_core > 1 ? options->core[options->n_core - 1] : options->cpu;
}

static tandem_comm_lock device_locking(const tandem_worker *worker)
{
    if (!worker->backend) return (tandem_comm_lock){.lock = NULL};
    return (tandem_comm_lock){worker->backend->lock, worker->backend->unlock, worker->device};
}

tandem_status tandem_worker_open(tandem_worker **out, const tandem_worker_options *options,
                                 tandem_error *error)
{
    tandem_worker *worker = calloc(1, sizeof *worker);
    if (!worker) return tandem_no_memory(error, "for rank %d", options->rank);
    tandem_error failure = {TANDEM_OK, -1, ""};
    worker->rank = options->rank;
    worker->n_rank = options->n_rank;
    worker->cpu = comm_core(options);
    (void)snprintf(worker->device_name, sizeof worker->device_name, "%s", options->device);
    tandem_status status = find_device_backend(&worker->backend, options->device, &failure);
    /* Threads have the cores of the thread that begins them. Those of a CPU's kernels belong on the rank's
     * core; those that a GPU's driver begins would be in its way there, beside the one that reduces
     * gradients. */
    const int is_pinned_first = status == TANDEM_OK && !worker->backend->alloc;
    if (is_pinned_first) status = pin_to_cores(options, &failure);
    if (status == TANDEM_OK) status = worker->backend->open(&worker->device, options->device, &failure);
    if (status == TANDEM_OK && !is_pinned_first) status = pin_to_cores(options, &failure);
    const tandem_comm_options joining = {.rank = options->rank,
                                         .n_rank = options->n_rank,
                                         .store = options->store,
                                         .timeout_ns = options->timeout_ns,
                                         .cpu = worker->cpu,
                                         .over_network = options->over_network,
                                         .wire = options->wire,
                                         .locking = device_locking(worker),
                                         .agreement = options->agreement};
    if (status != TANDEM_OK)
        tandem_comm_refuse(&joining, failure.text);
    else if (options->n_rank > 1)
        status = tandem_comm_open(&worker->comm, &joining, &failure);
    if (status != TANDEM_OK && error) *error = failure;
    if (status != TANDEM_OK) {
        tandem_worker_close(worker);
        return status;
    }
    *out = worker;
    return TANDEM_OK;
}

void tandem_worker_close(tandem_worker *worker)
{
    if (!worker) return;
    tandem_comm_close(worker->comm);
    if (worker->device) worker->backend->close(worker->device);
    free(worker);
}

int tandem_worker_shares_memory(const tandem_worker *worker)
{
    return worker->comm && tandem_comm_shares_memory(worker->comm);
}

int64_t tandem_worker_n_stranger(const tandem_worker *worker)
{
    return worker->comm ? tandem_comm_n_stranger(worker->comm) : 0;
}

const char *tandem_worker_shared_memory_error(const tandem_worker *worker)
{
    return worker->comm ? tandem_comm_shared_memory_error(worker->comm) : "";
}

tandem_status tandem_worker_load_algorithms(tandem_worker *worker, const tandem_algorithm *choice, int n,
                                            int autotune, tandem_error *error)
{
    return worker->backend->load_algorithms
               ? worker->backend->load_algorithms(worker->device, choice, n, autotune, error)
               : TANDEM_OK;
}

const tandem_algorithm *tandem_worker_tuned_algorithms(const tandem_worker *worker, int *n)
{
    *n = 0;
    return worker->backend->tuned_algorithms ? worker->backend->tuned_algorithms(worker->device, n) : NULL;
}

int tandem_worker_clocks(const tandem_worker *worker, tandem_clocks *now)
{
    return worker->backend->clocks ? worker->backend->clocks(worker->device, now) : 0;
}

tandem_status tandem_worker_barrier(tandem_worker *worker, tandem_error *error)
{
    return worker->comm ? tandem_comm_barrier(worker->comm, TAG_WORKER, error) : TANDEM_OK;
}

tandem_status tandem_worker_gather(tandem_worker *worker, const void *mine, void *all, size_t bytes,
                                   tandem_error *error)
{
    if (worker->comm) return tandem_comm_gather(worker->comm, mine, all, bytes, TAG_WORKER, error);
    memcpy(all, mine, bytes);
    return TANDEM_OK;
}

tandem_status tandem_worker_broadcast(tandem_worker *worker, void *data, size_t bytes, int root,
                                      tandem_error *error)
{
    return worker->comm ? tandem_comm_broadcast(worker->comm, data, bytes, root, TAG_WORKER, error)
                        : TANDEM_OK;
}
