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
    uint64_t key; /* of its signature; later with step and count */
    int32_t signature, source;
} torch_collective;

typedef struct torch_step_window {
    int64_t number, begin_ns, end_ns;
} torch_step_window;

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
    tandem_interval_set device, host, comm[N_TORCH_SOURCE];
} torch_rank;

/* Reads an open file. *rank is to be closed on error, too. */
tandem_status torch_rank_read(torch_rank *rank, tandem_input *input, tandem_error *error);
void torch_rank_close(torch_rank *rank); /* all zero is fine */
