/* torch_rank.h: the trace of one rank while it is read; private to trace/. */
#pragma once

#include "base/arena.h"
#include "base/hash.h"
#include "trace/reader/read_events.h"
#include "trace/interval_set.h"
#include "tandem/advanced/torch_trace.h"

/* An operator or collective by name and signature, with one cost per pass. */
typedef struct torch_signature {
    uint64_t hash;
    const char *name, *detail; /* in the arena */
    int is_cast;
    tandem_torch_cost cost[TANDEM_N_TORCH_PASS];
} torch_signature;

/* Sources of communication slices. The lowest that occurs counts. */
enum { TORCH_KERNEL, TORCH_SLICE, TORCH_CALL, N_TORCH_SOURCE };

typedef struct torch_collective {
    int64_t start_ns, duration_ns;
    uint64_t key;     /* of its operation and group; later also of its number */
    int64_t sequence; /* within its group; −1 = not given */
    int32_t window;   /* step; −1 = none */
    int32_t signature, source;
} torch_collective;

/* A step on the host, and what the device did for it. */
typedef struct torch_step_window {
    int64_t number, begin_ns, end_ns;
    /* first start of a kernel whose launch is known, last end of any; INT64_MAX, INT64_MIN = none */
    int64_t first_kernel_ns, last_kernel_ns;
    int64_t
        between_end_ns; /* latest end of a kernel that was launched between the step before and this one */
    int64_t n_kernel;   /* that it launched */
    int64_t n_work;     /* its kernels; where no step has any, its operators */
    int64_t kernel_ns;  /* sum of its kernels */
    int is_fragment;
} torch_step_window;

/* One call of an operator, to find the operator of a launch and the step of a call. */
typedef struct torch_call {
    int64_t start_ns, end_ns, self_ns;
    int32_t signature, order; /* order: of those that begin and end together, the outer first */
    uint16_t thread;
    uint8_t pass;
    uint8_t is_row; /* 0: communication beside its thread, which has no row of its own */
} torch_call;

/* A call of the runtime or driver: all that a device does has the correlation of the call that caused it. */
typedef struct torch_launch {
    int64_t correlation, start_ns;
    int32_t thread;
    int32_t call; /* innermost operator; −1 = none */
} torch_launch;

/* Anything that the device did: kernels, copies, sets. */
typedef struct torch_kernel {
    int64_t start_ns, end_ns;
    int64_t launch_ns;             /* INT64_MIN = unknown */
    int64_t correlation, external; /* −1 = none */
    int32_t signature, owner;      /* of its name, and of its operator; owner −1 = none */
    int32_t collective;            /* −1 = none */
    int32_t window;                /* step; −1 = none */
    uint8_t pass;                  /* of its operator */
    uint8_t is_comm, has_launch, is_copy;
} torch_kernel;

typedef struct torch_rank {
    tandem_arena arena;
    int64_t rank; /* −1 = not given */
    /* collectives beyond the limit */
    int64_t n_event, n_incomplete, n_negative, n_overlapping, n_dropped;
    int64_t first_ns, last_ns;
    torch_signature *signature;
    int n_signature, signature_capacity;
    tandem_hash_index table;   /* of signatures */
    torch_step_window *window; /* steps: sorted at the end */
    int n_window, window_capacity;
    torch_collective *collective;
    int n_collective, collective_capacity;
    torch_call *call;
    int n_call, call_capacity;
    torch_launch *launch;
    int n_launch, launch_capacity;
    torch_kernel *kernel;
    int n_kernel, kernel_capacity;
    uint64_t device[16], stream[256]; /* that occurred, as far as they fit */
    int n_device, n_stream;
    tandem_torch_left_out left_out;
    tandem_interval_set host, comm[N_TORCH_SOURCE]; /* comm of TORCH_KERNEL is empty: its kernels are kept */
} torch_rank;

/* Adds to a sum of times, which stays at the largest number where it would overflow. */
static inline void torch_add_ns(int64_t *sum_ns, int64_t ns)
{
    if (__builtin_add_overflow(*sum_ns, ns, sum_ns)) *sum_ns = INT64_MAX;
}

/* Reads an open file. *rank is to be closed on error, too. */
tandem_status torch_rank_read(torch_rank *rank, tandem_input *input, tandem_error *error);
void torch_rank_close(torch_rank *rank); /* all zero is fine */

/* torch_kernels.c: finds launch and operator of each kernel, and adds the kernels' times to their operators.
 * TANDEM_NO_MEMORY. */
tandem_status torch_rank_join_kernels(torch_rank *rank, tandem_error *error);

/* torch_steps.c: sorts the windows, finds the step of each kernel and collective, and which steps are
 * fragments; counts what is in no step. */
void torch_rank_place_in_steps(torch_rank *rank);

/* Where communication is read from; 0 if there is none. */
int torch_rank_comm_source(const torch_rank *rank);

/* Measures the steps into result->step, result->mean and result->fragment. TANDEM_NO_MEMORY. */
tandem_status torch_rank_measure_steps(const torch_rank *rank, tandem_torch_rank *result,
                                       tandem_error *error);
