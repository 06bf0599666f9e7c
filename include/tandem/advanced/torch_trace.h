/* torch_trace.h: joins traces of the PyTorch profiler, one file per rank: how a step's time is spent, what
 * operators cost, and which rank the others wait for.
 *
 * Files are Chrome trace JSON (an object with "traceEvents", or a bare list), plain or gzip, read as a
 * stream. Memory is bounded: 2,097,152 kernels, launches and calls of operators each are kept, 64 bytes
 * and less; beyond that they are counted as left out. Times of different ranks are compared as durations
 * only: their clocks need not agree.
 *
 *   compute        kernels and copies of a device; without any, host operators
 *   communication  NCCL kernels; without any, slices nccl:… and gloo:…; without any, operators c10d::…
 *   exposed        communication while no compute runs
 *   idle           neither
 *   self time      of an operator, without the operators it calls; casts and copies are separate rows
 *
 * A kernel belongs to the launch with its correlation: to the innermost operator at that time on that
 * thread, and to the step in whose window on the host it was launched. The step of a device ends with the
 * last kernel that it launched or with its window, whichever is later, and begins where the one before
 * ends. A first or last step that the recording cut off is a fragment and does not count. All that is left
 * out is counted (tandem_torch_left_out).
 *
 * A collective that every rank of its group recorded is joined: by operation, type, group and sequence
 * number; without sequence numbers, the k-th with the same operation and group in the same step. Its
 * transfer is the shortest of the ranks' times. The rest of a rank's time is waiting; the rank with the
 * shortest time arrived last. */
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
    /* early_ns: of compute_ns and exposed_ns, what ran beside the end of the step before.
     * compute_ns + exposed_ns + idle_ns = duration_ns + early_ns */
    int64_t duration_ns, compute_ns, comm_ns, exposed_ns, idle_ns, early_ns;
    int64_t n_kernel; /* that it launched */
} tandem_torch_step;

enum { TANDEM_TORCH_UNKNOWN_NAMES = 120 };

/* What the results do not hold, or hold with less certainty: numbers of slices and their summed times. */
typedef struct tandem_torch_left_out {
    /* kernels without an operator: their launch is missing, or is within no operator */
    int64_t n_without_operator, without_operator_ns;
    int64_t n_without_launch; /* of all kernels; they belong to the step in which they begin */
    int64_t n_by_id;          /* whose operator was found by External id, because their launch is missing */
    int64_t n_outside, outside_ns;            /* kernels that were launched in no step */
    int64_t n_in_fragment, in_fragment_ns;    /* kernels that were launched in a fragment of a step */
    int64_t n_call_outside, call_outside_ns;  /* operators that began in no whole step: their own times */
    int64_t n_unknown, unknown_ns;            /* slices of categories or devices that are not known */
    char unknown[TANDEM_TORCH_UNKNOWN_NAMES]; /* the first of their names: 'a', 'b' */
    int64_t n_pair;                           /* begin and end events, which are not read */
    int64_t n_collective_outside;             /* collectives in no whole step, which are not joined */
    int64_t n_beyond, beyond_ns; /* kernels, launches and operators beyond the limits of a file */
} tandem_torch_left_out;

typedef struct tandem_torch_rank {
    char *path;
    int rank;      /* given by the file, otherwise its index among the files */
    int is_device; /* whether kernels were recorded */
    int n_step;
    tandem_torch_step *step; /* [n_step] whole steps, by time */
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
    int64_t n_kernel, kernel_ns; /* all that a device did: kernels, copies, sets */
    int n_device, n_stream;      /* on which it did that: at most 16 and 256 are distinguished */
    /* the first or the last step, if the recording began or ended within it; they do not count */
    int n_fragment;
    tandem_torch_step fragment[2];
    tandem_torch_left_out left_out;
} tandem_torch_rank;

typedef struct tandem_torch_cost {
    /* over all calls in the trace; device: of the kernels it launched */
    int64_t calls, total_ns, self_ns, device_ns;
    int64_t step_calls, step_self_ns, step_device_ns; /* of these, within the whole steps */
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
    /* most expensive first: by device time within whole steps if there is any, otherwise by self time */
    tandem_torch_operator *operators;
    int n_collective;
    tandem_torch_collective *collective; /* longest waiting first */
    /* index of the rank that the others wait for; without joined collectives, the one that computes longest
     * */
    int slowest;
    int64_t n_joined; /* collectives */
    /* of them, those without sequence numbers: joined by their order within the step */
    int64_t n_by_order;
    int is_device; /* whether any rank recorded kernels: costs are those on the device */
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
