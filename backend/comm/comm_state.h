/* comm_state.h: the state of a communicator, for comm.c and collectives.c. Private to backend/comm. */
#pragma once

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>

#include "backend/comm/comm.h"
#include "backend/comm/gloo_shim.h"
#include "backend/comm/membership.h"
#include "backend/comm/shared_sum.h"
#include "backend/comm/watch.h"

/* Memory of tandem_comm_alloc_shared that was not freed yet. */
typedef struct shared_allocation {
    tandem_shared_sum sum;
    struct shared_allocation *next;
} shared_allocation;

struct tandem_comm {
    int rank, n_rank;
    tandem_dtype wire;  /* of gradients */
    bool shares_memory; /* with all ranks */
    char shared_memory_error[TANDEM_ERROR_TEXT];
    tandem_comm_lock locking;
    int64_t timeout_ms;
    int64_t n_stranger; /* connections that were none of the run's */
    tandem_membership membership;
    tandem_gloo *gloo;   /* NULL for one rank */
    tandem_watch *watch; /* NULL for one rank */

    pthread_mutex_t mutex; /* guards all below */
    int n_running;         /* collectives that have begun and not ended */
    bool is_dead;
    tandem_error failure;     /* why it is dead */
    shared_allocation *first; /* of all allocations */
    void *spare;              /* scratch memory of the last sum, kept for the next */
    size_t spare_bytes;
};

/* Ends the communicator. The first thread that fails finds the failed rank and breaks the connections, which
 * wakes the other threads; they get the same error. `what`: "a barrier"; `reason`: the cause as the lower
 * layer reports it. */
tandem_status tandem_comm_fail(tandem_comm *comm, tandem_gloo_result result, const char *what,
                               const char *reason, tandem_error *error);
/* TANDEM_RANK_FAILED, with the failure, once a failure has ended it. */
tandem_status tandem_comm_check_alive(tandem_comm *comm, tandem_error *error);

/* A write to a dead rank raises SIGPIPE in the thread that writes, which would end the process. */
void tandem_comm_block_sigpipe(sigset_t *before);
void tandem_comm_unblock_sigpipe(const sigset_t *before);
