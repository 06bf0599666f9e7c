/* replayer.h: simulates one training step of a model on a cluster under a plan, from measured costs.
 *
 * Each class runs its step program (step.h) on one compute stream; buckets are all-reduced one after the
 * other on one communication stream, bucket b once every class has finished the task that completes it and
 * bucket b−1 is through. The step is periodic: a class begins the next step when it has updated its last
 * bucket, whatever the others do; step_ns is the time from the end of one step's last all-reduce to the end
 * of the next one's.
 *
 * Ranks on one machine (`cpu:` devices of one node) share its memory system: while a neighbour computes, a
 * task takes its measured time beside that neighbour, otherwise its time alone. While a bucket is being
 * reduced, compute on the same core is slower by the measured factor, and the all-reduce takes its measured
 * time under load; both only while they really overlap. So time advances from event to event at rates that
 * depend on who is busy. */
#ifndef TANDEM_REPLAYER_H
#define TANDEM_REPLAYER_H

#include "tandem/plan.h"
#include "tandem/store.h"
#include "tandem/trace.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

typedef struct tandem_replayer tandem_replayer;

typedef struct tandem_replay_class {
    int64_t busy_ns;         /* compute stream runs a task */
    int64_t exposed_comm_ns; /* compute stream stands still while a bucket is on the wire */
    int64_t wait_ns;         /* compute stream stands still because another class has not finished a bucket */
    uint64_t peak_bytes;     /* of memory; 0 unless asked for */
} tandem_replay_class;

typedef struct tandem_replay {
    int64_t step_ns;
    int n_class;
    tandem_replay_class classes[TANDEM_MAX_CLASS];
    int slowest; /* the class that finishes its backward pass last */
} tandem_replay;

/* How ranks exchange what no curve was measured of: replayer/collective.h has the formulas and their sources.
 * */
typedef enum tandem_collective_algorithm {
    TANDEM_RING, /* as tandem's own executor does it */
    TANDEM_TREE, /* two binary trees at once */
    TANDEM_HALVING_DOUBLING,
    TANDEM_HIERARCHICAL, /* within nodes, between nodes, within nodes */
    TANDEM_N_COLLECTIVE_ALGORITHM,
    TANDEM_AUTO = TANDEM_N_COLLECTIVE_ALGORITHM /* whichever of them is fastest for that many bytes */
} tandem_collective_algorithm;
const char *tandem_collective_algorithm_name(tandem_collective_algorithm algorithm); /* "ring", …, "auto" */
/* By name. TANDEM_UNKNOWN_NAME with the nearest one. */
tandem_status tandem_collective_algorithm_find(tandem_collective_algorithm *algorithm, const char *name,
                                               tandem_error *error);

/* tandem_replayer_open: gather the costs of every form of every task of `graph[c]` (the model at class c's
 * batch; borrowed) on the devices of `cluster`. All classes start in fp32. bucket_bytes: 0 = 25 MiB.
 * A cost that is missing is no error yet: it is one when a plan needs it. TANDEM_MISSING where a device has
 * no costs of the model, or a cluster of several ranks neither a measured all-reduce curve nor links. Cost:
 * O(tasks × forms), and one look into the store an operator. */
tandem_status tandem_replayer_open(tandem_replayer **replayer, const tandem_cluster *cluster,
                                   const tandem_graph *const *graph, tandem_store *store,
                                   uint64_t bucket_bytes, tandem_error *error);
/* tandem_replayer_open_with: the same with more choices; options NULL = all zero. store NULL: nothing was
 * measured. With `predict` a device without costs is no error where its times can be predicted. */
typedef struct tandem_replayer_options {
    uint64_t bucket_bytes; /* 0 = 25 MiB */
    int predict;           /* 1: times that were not measured are predicted where they can be (predictor.h) */
    tandem_collective_algorithm collective; /* of all-reduces without a measured curve; 0 = a ring */
    tandem_step_options step;               /* of every class: micro-steps, recomputation */
} tandem_replayer_options;
tandem_status tandem_replayer_open_with(tandem_replayer **replayer, const tandem_cluster *cluster,
                                        const tandem_graph *const *graph, tandem_store *store,
                                        const tandem_replayer_options *options, tandem_error *error);
void tandem_replayer_close(tandem_replayer *replayer); /* NULL is fine */

/* Give one operator of one class a precision; undone by setting the old one. O(1). */
void tandem_replayer_set(tandem_replayer *replayer, int c, int op, tandem_precision precision);
tandem_precision tandem_replayer_get(const tandem_replayer *replayer, int c, int op);
/* The same for all operators: of the assignment, or of class c, precision[n_op]. O(n_class × n_op). */
void tandem_replayer_load(tandem_replayer *replayer, const tandem_assignment *assignment);
void tandem_replayer_load_class(tandem_replayer *replayer, int c, const tandem_precision *precision);
/* Writes the current precisions into an assignment of the replayer's n_class and n_op. */
void tandem_replayer_store(const tandem_replayer *replayer, tandem_assignment *assignment);

enum { TANDEM_REPLAY_MEMORY = 1, TANDEM_REPLAY_EVENTS = 2 };
/* tandem_replayer_run: simulate one step. flags: TANDEM_REPLAY_MEMORY plans memory too (peak_bytes),
 * TANDEM_REPLAY_EVENTS keeps the timeline. *replay unchanged on error. TANDEM_MISSING names device, operator,
 * shape, precision, pass and the command that measures it. Cost: O(tasks that changed + buckets × classes),
 * whatever the number of tasks and of ranks; where classes interfere, + the waits and changes of rate of a
 * step; with TANDEM_REPLAY_MEMORY, + tasks of the classes whose precisions changed; with
 * TANDEM_REPLAY_EVENTS, + all tasks. Allocates nothing without TANDEM_REPLAY_MEMORY. Distinct replayers may
 * run on distinct threads. */
tandem_status tandem_replayer_run(tandem_replayer *replayer, tandem_replay *replay, unsigned flags,
                                  tandem_error *error);

/* --- Steps that vary
 * ------------------------------------------------------------------------------------------------------ The
 * times of a replay are means. In a real step every task of every rank takes another time, and all wait for
 * the slowest rank: the more ranks, the longer the usual step. Here each rank draws the time of each task,
 * lognormal with the replay's time as its mean and the measured percentiles' spread (replayer/monte_carlo.c),
 * independently; who is slowed by whom, and what all-reduces take, stays as in the replay. */
enum { TANDEM_MAX_SIMULATIONS = 1000000, TANDEM_MAX_SIMULATED_RANKS = 65536 };
typedef struct tandem_monte_carlo_options {
    int n_simulation; /* steps, 1 … TANDEM_MAX_SIMULATIONS, behind four that only warm up */
    uint64_t seed;
    /* standard deviation over mean of tasks that were not measured; < 0 = as those of the class that were */
    double spread;
} tandem_monte_carlo_options;
typedef struct tandem_monte_carlo {
    int n_simulation, n_rank;
    int64_t mean_ns, p50_ns, p95_ns, min_ns, max_ns; /* of a step; percentiles are nearest ranks */
    double sigma;          /* of the logarithm of a task's time, mean over time and classes */
    double measured_share; /* share of the time whose spread was measured */
} tandem_monte_carlo;
/* tandem_replayer_monte_carlo: steps under the current plan with times that are drawn; the same for the same
 * seed. Without any spread all are the replay's step, to the nanosecond. TANDEM_USAGE for too many draws or
 * ranks, TANDEM_NO_MEMORY, what tandem_replayer_run says. *noise unchanged on error. Cost: O(draws × ranks ×
 * tasks), some 60 ns each. */
tandem_status tandem_replayer_monte_carlo(tandem_monte_carlo *out, tandem_replayer *replayer,
                                          const tandem_monte_carlo_options *options, tandem_error *error);

/* Of the last run; belong to the replayer. */
const tandem_step *tandem_replayer_step(const tandem_replayer *replayer, int c);
const tandem_memory *tandem_replayer_memory(const tandem_replayer *replayer, int c);
/* tandem_replayer_plan_memory: the memory of class c in its present precisions, also where times of it are
 * missing. TANDEM_NO_MEMORY. Cost: that of a memory plan. */
tandem_status tandem_replayer_plan_memory(tandem_replayer *replayer, int c, tandem_memory *memory,
                                          tandem_error *error);
/* Bytes each task of class c needs beside its operands in its current form, [n_task]: as
 * tandem_memory_timeline takes them. */
const uint64_t *tandem_replayer_workspace(const tandem_replayer *replayer, int c);
const tandem_trace_event *tandem_replayer_events(const tandem_replayer *replayer, int c, int *n_event);
const tandem_cluster *tandem_replayer_cluster(const tandem_replayer *replayer);
/* Predicted time of a task in its current form, alone (beside = 0) or beside its busy neighbour; −1 = not
 * measured. */
int64_t tandem_replayer_task_ns(const tandem_replayer *replayer, int c, int task, int contended);
/* … and in any form: TANDEM_MAX_VARIANT forms a task. */
int64_t tandem_replayer_variant_ns(const tandem_replayer *replayer, int c, int task, int variant,
                                   int contended);
/* tandem_replayer_set_variant_ns: what if it took `ns` instead? Only in this replayer, of this one task of
 * class c, from the next run on. Undone by setting what tandem_replayer_variant_ns said before. beside as
 * there; of an all-reduce (its only variant is 0) in every class: while nobody computes (0), while somebody
 * does (1).
 *   ns  ≥ 0; or −1 = not measured, but not for an all-reduce.
 * Cost: O(1); of an all-reduce O(buckets + classes). Memory is not planned anew.
 * Example: tandem_replayer_set_variant_ns(replayer, 1, t, step->task[t].variant, 0, ns / 2): twice as fast.
 * */
void tandem_replayer_set_variant_ns(tandem_replayer *replayer, int c, int task, int variant, int contended,
                                    int64_t ns);

/* --- Where times come from
 * ------------------------------------------------------------------------------------------------ A time
 * that was not measured at the class's batch comes, in this order, from what was measured at others (a
 * straight line between the two batches around it; beyond them the line of the nearest two, whose fixed part
 * is not below 0 and which never falls with the batch), from the predictor where that was asked for, or is
 * missing. docs/costs.md */
typedef enum tandem_origin {
    TANDEM_ORIGIN_MEASURED,
    TANDEM_ORIGIN_INTERPOLATED, /* between two batches */
    TANDEM_ORIGIN_EXTRAPOLATED, /* from two batches on one side */
    TANDEM_ORIGIN_PREDICTED,    /* from other operators, or from a description; workspace counts as none */
    TANDEM_N_ORIGIN
} tandem_origin;
const char *tandem_origin_name(tandem_origin origin); /* "measured", … */

/* Of the compute tasks of class c in the plan of the last run, those whose time is of each origin, the later
 * one in the list above where their time alone and their time beside a neighbour differ in it. Share of an
 * origin: ns of Σ ns. */
typedef struct tandem_provenance {
    int n_task[TANDEM_N_ORIGIN];
    int64_t ns[TANDEM_N_ORIGIN]; /* their times, beside the neighbour where there is one */
    /* measured costs that the predictor is fitted to; 0 = it has the device's description alone */
    int64_t n_fitted;
    /* of what is predicted: how far the costs it rests on lie from their fits (tandem_latency_ns), mean over
     * time; NaN where some of it rests on a description, or nothing is predicted */
    double spread;
} tandem_provenance;
void tandem_replayer_provenance(const tandem_replayer *replayer, int c, tandem_provenance *provenance);

/* The all-reduces: from a measured curve, beyond its last point from a line fitted to it; or by formula over
 * the cluster's links. */
typedef struct tandem_allreduce_source {
    int n_point;                    /* of the curve; 0 = there is none */
    int n_extrapolated;             /* buckets beyond its last point */
    double latency_ns, bytes_per_s; /* of the line; bytes_per_s 0 = it is flat, or there is none */
    double spread;                  /* how far the points lie from it: median relative residual / 0.6745 */
    int n_by_algorithm[TANDEM_N_COLLECTIVE_ALGORITHM]; /* buckets by formula, of each algorithm */
} tandem_allreduce_source;
const tandem_allreduce_source *tandem_replayer_allreduce_source(const tandem_replayer *replayer);

/* What the simulation goes by beside the times of tasks: for whoever reasons about replays without running
 * them. */
typedef struct tandem_contention {
    int is_always_contended; /* another rank of the class is on its node: it never computes alone */
    int is_on_shared_node;   /* computes beside whichever other class that says so computes too */
    double comm_slowdown;    /* how many times longer compute takes while a bucket is on the wire */
} tandem_contention;
void tandem_replayer_contention(const tandem_replayer *replayer, int c, tandem_contention *contention);
/* Time of bucket b on the wire while no class computes, and while some do. */
void tandem_replayer_bucket_ns(const tandem_replayer *replayer, int b, double *idle_ns, double *loaded_ns);
/* Where it comes from: "measured", or the name of the algorithm; NULL where there is one rank. */
const char *tandem_replayer_bucket_source(const tandem_replayer *replayer, int b);
/* Whether any time depends on who else is busy: of a task on neighbours or on the wire, of an all-reduce on
 * who computes. */
int tandem_replayer_has_contention(const tandem_replayer *replayer);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
