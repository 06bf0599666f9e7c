/* worker.h: this process as one rank: its core, its device, its connection to the other ranks. */
#pragma once

#include "backend/comm/comm.h"
#include "tandem/advanced/backend.h"
#include "tandem/advanced/device_backend.h"

struct tandem_worker {
    int rank, n_rank;
    int cpu; /* of the threads that exchange gradients; −1 = any */
    const tandem_device_backend *backend;
    void *device;
    char device_name[TANDEM_DEVICE_NAME];
    tandem_comm *comm; /* NULL for one rank */
};

/* device_describe of backend.h. */
tandem_status tandem_worker_describe_device(char *text, size_t size, const char *device, tandem_error *error);
/* Loads the table of libtandem_cuda.so (cuda_library.c): from the path in TANDEM_CUDA, from this library's
 * folder, or by the system's search. TANDEM_NO_DEVICE: the error says what is missing. */
tandem_status tandem_cuda_backend_load(const tandem_device_backend **backend, tandem_error *error);

/* The tag of collectives on the calling thread; the reducer's thread has its own tag. */
enum { TAG_WORKER = 1 };

tandem_status tandem_worker_open(tandem_worker **worker, const tandem_worker_options *options,
                                 tandem_error *error);
void tandem_worker_close(tandem_worker *worker);
int tandem_worker_shares_memory(const tandem_worker *worker);
int64_t tandem_worker_n_stranger(const tandem_worker *worker);
const char *tandem_worker_shared_memory_error(const tandem_worker *worker);
tandem_status tandem_worker_load_algorithms(tandem_worker *worker, const tandem_algorithm *choice, int n,
                                            int autotune, tandem_error *error);
const tandem_algorithm *tandem_worker_tuned_algorithms(const tandem_worker *worker, int *n);
int tandem_worker_clocks(const tandem_worker *worker, tandem_clocks *now);
tandem_status tandem_worker_barrier(tandem_worker *worker, tandem_error *error);
tandem_status tandem_worker_gather(tandem_worker *worker, const void *mine, void *all, size_t bytes,
                                   tandem_error *error);
tandem_status tandem_worker_broadcast(tandem_worker *worker, void *data, size_t bytes, int root,
                                      tandem_error *error);

/* measure_collective of backend.h (measure_all_reduce.c). */
tandem_status tandem_measure_collective(tandem_worker *worker, tandem_task_kind kind, uint64_t bytes,
                                        int loaded, int64_t *sample_ns, int n, double *slowdown,
                                        tandem_error *error);
