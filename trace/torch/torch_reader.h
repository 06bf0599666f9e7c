/* torch_reader.h: what the parts of the reader of one rank share; private to trace/torch. */
#pragma once

#include "trace/torch/torch_rank.h"

/* Limits of a file. What is beyond them is counted as left out. */
enum {
    TORCH_MAX_SIGNATURES = 1 << 16,
    TORCH_MAX_COLLECTIVES = 1 << 20,
    TORCH_MAX_STEPS = 1 << 16,
    TORCH_MAX_CALLS = 1 << 21,
    TORCH_MAX_LAUNCHES = 1 << 21,
    TORCH_MAX_KERNELS = 1 << 21,
    TORCH_MAX_THREADS = 1 << 12,
};

/* Between the hashes of rows with one name and signature, of which one is a cast. */
#define TORCH_CAST_HASH UINT64_C(0x9e3779b97f4a7c15)

/* What a slice means for the slices inside it. */
enum {
    TORCH_PLAIN,
    TORCH_OPERATOR,
    TORCH_CALL_SCOPE,
    TORCH_BACKWARD_SCOPE,
    TORCH_OPTIMIZER_SCOPE,
    TORCH_BESIDE
};

typedef struct host_slice {
    uint64_t thread;
    int64_t start_ns, end_ns;
    int64_t external;
    int32_t signature;   /* −1 = none */
    int32_t role, index; /* index in the batch */
} host_slice;

typedef struct stack_frame {
    int64_t start_ns, end_ns, inner_ns;
    int32_t signature, call; /* call: index among the calls; −1 = none */
    tandem_torch_pass pass;
    int in_call; /* whether it or an outer slice is one */
} stack_frame;

typedef struct host_thread {
    uint64_t id;
    stack_frame *frame;
    int n, capacity;
    tandem_torch_pass scope; /* of the last backward or optimizer scope */
    int64_t scope_end_ns;    /* latest possible end of that scope */
} host_thread;

/* The operator with an External id. */
typedef struct id_owner {
    int64_t id, start_ns;
    int32_t signature;
    tandem_torch_pass pass;
} id_owner;

typedef struct torch_reader {
    torch_rank *rank;
    tandem_events events;
    tandem_error *error;
    tandem_event event;
    host_slice *batch;
    int n_batch;
    host_thread *thread;
    int n_thread, last_thread;
    id_owner *external; /* [n_external] by the low bits of the id */
    int64_t n_external;
    int is_exact; /* whether any time has a fraction of a µs */
} torch_reader;

/* torch_signatures.c: TANDEM_NO_MEMORY, with the file's name. */
tandem_status torch_reader_no_memory(const torch_reader *r);

/* torch_signatures.c: the row of the current event, and of a collective that it is. add_collective gives
 * the index of the new collective, −1 beyond the limit. */
tandem_status torch_add_signature(torch_reader *r, uint64_t hash, const char *name, const char *detail,
                                  int cast, int32_t *index);
tandem_status torch_find_signature(torch_reader *r, int is_kernel, int32_t *index);
const char *torch_collective_operation(const char *name);
tandem_status torch_add_collective(torch_reader *r, const torch_collective *added, const char *name,
                                   const char *detail, int32_t *index);
tandem_status torch_add_event_collective(torch_reader *r, int64_t end_ns, int source, int32_t *index);

/* torch_stack.c: slices of the host, in any order within a batch, become calls of operators. */
tandem_status torch_open_stacks(torch_reader *r);
tandem_status torch_add_host_slice(torch_reader *r, int64_t end_ns, int32_t signature, int role);
tandem_status torch_finish_stacks(torch_reader *r);
int torch_find_thread(torch_reader *r, uint64_t id); /* its index */
/* Gives kernels without a launch the operator that has their External id. */
void torch_link_by_id(torch_reader *r);
void torch_close_stacks(torch_reader *r);
