/* torch_trace.h: traces of the PyTorch profiler, one file a rank: where the time of a step goes, what
 * operators cost, and which rank the others wait for.
 *
 * Files are Chrome trace JSON (an object with "traceEvents", or a bare list), plain or compressed with gzip,
 * and are read as a stream: memory depends on how many different operators, steps and collectives there are,
 * not on how often they run, and is bounded in any case (see tandem_torch_rank.joined_ns). Times of different
 * ranks are compared as durations only: their clocks need not agree.
 *
 *   compute     kernels and copies of a device; in a trace without any, operators on the host
 *   communication   kernels of NCCL; without any, slices nccl:… and gloo:…; without any, operators c10d::…
 *   exposed     communication while nothing computes
 *   idle        neither
 *   self time   of an operator, without what it calls; casts and copies are rows of their own
 *
 * A collective that every rank of a group has recorded is joined over them: the k-th of the same operation,
 * size and members in the same step. Its transfer is the shortest of their times; what a rank spends beyond
 * that, it waits; the one with the shortest time came last. */
#ifndef TANDEM_TORCH_TRACE_H
#define TANDEM_TORCH_TRACE_H

#include <stddef.h>
#include <stdint.h>

#include "tandem/status.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

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
    int64_t number; /* ProfilerStep#N; −1: the trace has none, and is taken as one step */
    int64_t duration_ns, compute_ns, comm_ns, exposed_ns, idle_ns;
} tandem_torch_step;

typedef struct tandem_torch_rank {
    char *path;
    int rank;      /* as the file says, or its place among the files */
    int is_device; /* whether kernels were recorded */
    int n_step;
    tandem_torch_step *step; /* [n_step] by number */
    tandem_torch_step mean;
    /* a step, over all joined collectives */
    int64_t wait_ns; /* it waits for others */
    /* it comes later than the last but one: so much the step would be shorter at most without it */
    int64_t late_ns;
    int64_t n_last; /* collectives to which it came last */
    /* what to know about the file */
    int64_t n_event, n_incomplete; /* slices without ts or dur, which are passed over */
    int64_t n_negative;            /* with a dur below 0, down to −10 ms, which counts as 0 */
    /* slices that end after the one they begin in: counted as part of it up to its end */
    int64_t n_overlapping;
    int64_t n_unjoined; /* collectives that lack partners */
    /* gaps between kernels that were closed to bound memory: busy times are too long by less than this */
    int64_t joined_ns;
} tandem_torch_rank;

typedef struct tandem_torch_cost {
    /* of all its calls in the trace; device: of the kernels it started */
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
    int64_t n;              /* joined */
    int64_t transfer_ns;    /* median */
    int64_t wait_ns;        /* over all of them and all ranks */
} tandem_torch_collective;

typedef struct tandem_torch_summary {
    int n_rank;
    tandem_torch_rank *rank; /* [n_rank] by rank */
    int n_operator;
    /* most expensive first: by device time where there is one, else by self time */
    tandem_torch_operator *operators;
    int n_collective;
    tandem_torch_collective *collective; /* most waited for first */
    /* place in rank: the one the others wait for; without joined collectives the one that computes longest */
    int slowest;
    int64_t n_joined; /* collectives */
    /* place in operators: what the slowest rank spends most on beyond the median of the others; −1 = nothing
     * */
    int excess;
    int64_t excess_ns; /* a step */
} tandem_torch_summary;

/* tandem_torch_read: read n ≥ 1 files. TANDEM_MALFORMED with file, byte and what was expected, and where two
 * files are of the same rank; TANDEM_IO; TANDEM_NO_MEMORY. *torch unchanged on error. Cost: O(bytes).
 * tandem_torch_parse: one from memory. */
tandem_status tandem_torch_read(tandem_torch_summary **torch, const char *const *path, int n,
                                tandem_error *error);
tandem_status tandem_torch_parse(tandem_torch_summary **torch, const void *bytes, size_t n,
                                 const char *source, tandem_error *error);
void tandem_torch_close(tandem_torch_summary *torch); /* NULL is fine */

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
