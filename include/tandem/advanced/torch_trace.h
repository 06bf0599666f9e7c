/* torch_trace.h: joins traces of the PyTorch profiler, one file per rank: how a step's time is spent, what
 * operators cost, and which rank the others wait for.
 *
 * Files are Chrome trace JSON (an object with "traceEvents", or a bare list), plain or gzip, read as a
 * stream. Memory depends on the number of different operators, steps and collectives, not on how often they
 * run, and is bounded (tandem_torch_rank.joined_ns). Times of different ranks are compared as durations
 * only: their clocks need not agree.
 *
 *   compute        kernels and copies of a device; without any, host operators
 *   communication  NCCL kernels; without any, slices nccl:… and gloo:…; without any, operators c10d::…
 *   exposed        communication while no compute runs
 *   idle           neither
 *   self time      of an operator, without the operators it calls; casts and copies are separate rows
 *
 * A collective that every rank of its group recorded is joined: the k-th with the same operation, size and
 * members in the same step. Its transfer is the shortest of the ranks' times. The rest of a rank's time is
 * waiting; the rank with the shortest time arrived last. */
#ifndef TANDEM_TORCH_TRACE_H
#define TANDEM_TORCH_TRACE_H

#include <stddef.h>
#include <stdint.h>

#include "tandem/status.h"

TANDEM_BEGIN_DECLARATIONS

typedef enum tandem_torch_pass {
    TANDEM_TORCH_FORWARD,
    TANDEM_TORCH_BACKWARD,  /* within autograd::engine::evaluate_function */
    TANDEM_TORCH_OPTIMIZER, /* within Optimizer.step */
    TANDEM_TORCH_UNKNOWN,   /* a kernel whose operator was not recorded */
    TANDEM_N_TORCH_PASS
} tandem_torch_pass;
/* "forward", "backward", "optimizer", "unknown" */
const char *tandem_torch_pass_name(tandem_torch_pass pass);

typedef struct tandem_torch_step {
    int64_t number; /* ProfilerStep#N; −1 = the trace has no steps and counts as one */
    int64_t duration_ns, compute_ns, comm_ns, exposed_ns, idle_ns;
} tandem_torch_step;

typedef struct tandem_torch_rank {
    char *path;
    int rank;      /* given by the file, otherwise its index among the files */
    int is_device; /* whether kernels were recorded */
    int n_step;
    tandem_torch_step *step; /* [n_step] by number */
    tandem_torch_step mean;
    /* per step, over all joined collectives */
    int64_t wait_ns; /* waiting for other ranks */
    /* arriving later than the last but one: an upper bound of what the step gains without the delay */
    int64_t late_ns;
    int64_t n_last; /* collectives at which it arrived last */
    /* about the file */
    int64_t n_event, n_incomplete; /* slices without ts or dur, which are skipped */
    int64_t n_negative;            /* slices with a dur from −10 ms to 0, which count as 0 */
    /* slices that end after their outer slice: cut at its end */
    int64_t n_overlapping;
    int64_t n_unjoined; /* collectives that lack parts */
    /* gaps between kernels that were closed to bound memory: busy times may be too long by this much */
    int64_t joined_ns;
} tandem_torch_rank;

typedef struct tandem_torch_cost {
    /* over all calls in the trace; device: of the kernels it launched */
    int64_t calls, total_ns, self_ns, device_ns;
} tandem_torch_cost;

typedef struct tandem_torch_operator {
    /* "aten::addmm", "[[768],[4096,768],[768,768]] float,float,float"; "" = not recorded */
    char *name, *signature;
    tandem_torch_pass pass;
    int is_cast;             /* to, _to_copy, or copy_ between two types */
    tandem_torch_cost cost;  /* over all ranks */
    tandem_torch_cost *rank; /* [n_rank] */
} tandem_torch_operator;

typedef struct tandem_torch_collective {
    char *name, *signature; /* "all-reduce", "n=4096 [0,1]" */
    int64_t n;              /* how many were joined */
    int64_t transfer_ns;    /* median */
    int64_t wait_ns;        /* over all of them and all ranks */
} tandem_torch_collective;

typedef struct tandem_torch_summary {
    int n_rank;
    tandem_torch_rank *rank; /* [n_rank] by rank */
    int n_operator;
    /* most expensive first: by device time if there is any, otherwise by self time */
    tandem_torch_operator *operators;
    int n_collective;
    tandem_torch_collective *collective; /* longest waiting first */
    /* index of the rank that the others wait for; without joined collectives, the one that computes longest
     * */
    int slowest;
    int64_t n_joined; /* collectives */
    /* index of the operator on which the slowest rank exceeds the median of the others most; −1 = none */
    int excess;
    int64_t excess_ns; /* per step */
} tandem_torch_summary;

/* tandem_torch_read: reads n ≥ 1 files. TANDEM_MALFORMED with file, byte and what was expected, or if two
 * files have the same rank; TANDEM_IO; TANDEM_NO_MEMORY. *torch unchanged on error. Cost: O(bytes).
 * tandem_torch_parse: one file from memory. */
tandem_status tandem_torch_read(tandem_torch_summary **torch, const char *const *path, int n,
                                tandem_error *error);
tandem_status tandem_torch_parse(tandem_torch_summary **torch, const void *bytes, size_t n,
                                 const char *source, tandem_error *error);
void tandem_torch_close(tandem_torch_summary *torch); /* NULL is fine */

TANDEM_END_DECLARATIONS
#endif
