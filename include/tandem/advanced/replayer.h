/* replayer.h: simulates one training step of a model on a cluster under a plan, from measured or predicted
 * costs.
 *
 * Each class runs its step program (step.h) on one compute stream. Buckets are all-reduced one after the
 * other on one communication stream. Bucket b starts when every class has made it ready and bucket b−1 is
 * through. The step is periodic: a class begins its next step when it has updated its last bucket. step_ns
 * is the time from the end of one step's last all-reduce to the end of the next one's.
 *
 * Ranks on one machine (`cpu:` devices of one node) share its memory system. While a co-runner computes, a
 * task takes its contended time, otherwise its time alone. While a bucket is reduced, compute on the same
 * core is slower by the measured factor, and the all-reduce takes its measured time under load. Both hold
 * only while they overlap: time advances from event to event, at rates that depend on who computes. */
#ifndef TANDEM_REPLAYER_H
#define TANDEM_REPLAYER_H

#include "tandem/plan.h"
#include "tandem/provenance.h"
#include "tandem/advanced/store.h"
#include "tandem/advanced/trace.h"

TANDEM_BEGIN_DECLARATIONS

typedef struct tandem_replayer tandem_replayer;

/* Of one rank of a class. The first three sum to step_ns. */
typedef struct tandem_replay_class {
    int64_t busy_ns;         /* the compute stream runs a task */
    int64_t exposed_comm_ns; /* it waits while a bucket is reduced */
    int64_t wait_ns;         /* it waits for another class to make a bucket ready */
    uint64_t peak_bytes;     /* of memory; 0 unless asked for */
} tandem_replay_class;

typedef struct tandem_replay {
    int64_t step_ns;
    int n_class;
    tandem_replay_class classes[TANDEM_MAX_CLASS];
    int slowest; /* the class that finishes its backward pass last */
} tandem_replay;

/* tandem_replayer_open: looks up the costs of every variant of every task of graph[c], the model at class
 * c's batch, on the devices of `cluster`. Borrows the graphs. All classes start in fp32.
 *   bucket_bytes  0 = 25 MiB
 * A missing cost is an error only when a plan needs it. TANDEM_MISSING: a device has no costs of the model,
 * or a cluster of several ranks has neither a measured all-reduce curve nor links. TANDEM_USAGE,
 * TANDEM_WRONG_MODEL, TANDEM_WRONG_GRAPH, TANDEM_NO_MEMORY, errors of the store. *replayer unchanged on
 * error. Cost: O(tasks × variants), and one query of the store per operator. */
tandem_status tandem_replayer_open(tandem_replayer **replayer, const tandem_cluster *cluster,
                                   const tandem_graph *const *graph, tandem_store *store,
                                   uint64_t bucket_bytes, tandem_error *error);
/* tandem_replayer_open_with: the same with options; NULL = all zero. store NULL: nothing was measured. With
 * `predict` a device without costs is no error where its times can be predicted. */
typedef struct tandem_replayer_options {
    uint64_t bucket_bytes; /* 0 = 25 MiB */
    int predict;           /* 1: predict times that were not measured, where possible (predictor.h) */
    tandem_collective_algorithm collective; /* of all-reduces without a measured curve; 0 = a ring */
    tandem_step_options step;               /* of every class: micro-steps, recomputation */
    /* 1: the step of a plan that needs a loss scale has the norm of all gradients, that of any other plan has
     * none: each is costed by what it needs. Without effect where step.with_norm says that all have one. */
    int norm_as_needed;
    /* Of PyTorch: needs `predict` and described devices; nothing measured of this model counts, but what was
     * measured on the device calibrates it. TANDEM_USAGE otherwise. */
    tandem_kernel_set kernels;
    int without_update;   /* 1, of PyTorch's kernels: the step ends with the gradients */
    int from_description; /* 1: what others measured of described devices does not count */
} tandem_replayer_options;
tandem_status tandem_replayer_open_with(tandem_replayer **replayer, const tandem_cluster *cluster,
                                        const tandem_graph *const *graph, tandem_store *store,
                                        const tandem_replayer_options *options, tandem_error *error);
void tandem_replayer_close(tandem_replayer *replayer); /* NULL is fine */

/* Gives one operator of one class a precision; setting the old one undoes it. Cost: O(1). */
void tandem_replayer_set(tandem_replayer *replayer, int c, int op, tandem_precision precision);
tandem_precision tandem_replayer_get(const tandem_replayer *replayer, int c, int op);
/* The same for all operators: of the assignment, or of class c, precision[n_op]. O(n_class × n_op). */
void tandem_replayer_load(tandem_replayer *replayer, const tandem_assignment *assignment);
void tandem_replayer_load_class(tandem_replayer *replayer, int c, const tandem_precision *precision);
/* Writes the current precisions into an assignment of the replayer's n_class and n_op. */
void tandem_replayer_store(const tandem_replayer *replayer, tandem_assignment *assignment);

/* --- Plans with and without a loss scale ------------------------------------------------------------------
 * With norm_as_needed a replayer has two programs: steps with a norm and steps without. It replays the
 * current precisions by the one that they need, and all its results are of that one. */
/* Whether a backward product of the current precisions reads gradients in f16. */
int tandem_replayer_needs_loss_scale(const tandem_replayer *replayer);
/* The replayer of all plans whose steps have a norm (1), or have none (0), by need or not; NULL: there is
 * one program only. It has the same current precisions, and belongs to `replayer`. Bounds run it and look at
 * its tasks and times. A search may give the one with a norm precisions of its own: tandem_replayer_load with
 * `replayer` makes both equal again. */
tandem_replayer *tandem_replayer_of_norm(const tandem_replayer *replayer, int with_norm);
/* TANDEM_MISSING: plans that need a loss scale cannot be replayed, since some class has no time for the norm;
 * names it and the command that measures it. */
tandem_status tandem_replayer_check_norm(const tandem_replayer *replayer, tandem_error *error);

enum { TANDEM_REPLAY_MEMORY = 1, TANDEM_REPLAY_EVENTS = 2 };
/* tandem_replayer_run: simulates one step.
 *   flags  TANDEM_REPLAY_MEMORY: also plans memory (peak_bytes); TANDEM_REPLAY_EVENTS: also keeps the
 *          timeline
 * TANDEM_MISSING names device, operator, shape, precision, pass and the command that measures the cost.
 * TANDEM_NO_MEMORY with TANDEM_REPLAY_MEMORY only: without it, a run allocates nothing. *replay unchanged on
 * error. Cost: O(tasks that changed + buckets × classes), independent of the numbers of tasks and ranks.
 * With contention, also the waits and rate changes of a step; with TANDEM_REPLAY_MEMORY, also the tasks of
 * classes whose precisions changed; with TANDEM_REPLAY_EVENTS, also all tasks. Distinct replayers may run
 * on distinct threads. */
tandem_status tandem_replayer_run(tandem_replayer *replayer, tandem_replay *replay, unsigned flags,
                                  tandem_error *error);

/* --- Monte Carlo simulation ------------------------------------------------------------------------------
 * A replay uses mean times. In a real step the time of every task of every rank varies, and all ranks wait
 * for the slowest: the more ranks, the longer the usual step. Here each rank draws the time of each task
 * from a lognormal distribution, with the replay's time as its mean and the measured spread
 * (replayer/monte_carlo.c). Draws are independent. A time by the form of a description is drawn from its 80 %
 * interval besides: in each step one error for all ranks of a device. Contention and the times of
 * all-reduces stay as in the replay. */
enum { TANDEM_MAX_SIMULATIONS = 1000000, TANDEM_MAX_SIMULATED_RANKS = 65536 };
typedef struct tandem_monte_carlo_options {
    int n_simulation; /* steps, 1 … TANDEM_MAX_SIMULATIONS, after four warm-up steps */
    uint64_t seed;
    /* standard deviation over mean of unmeasured task times; < 0 = as the measured ones of the class */
    double spread;
} tandem_monte_carlo_options;
typedef struct tandem_monte_carlo {
    int n_simulation, n_rank;
    int64_t mean_ns, p50_ns, p95_ns, min_ns, max_ns; /* of a step; percentiles are nearest ranks */
    double sigma;          /* of the logarithm of a task's time, mean over time and classes */
    double measured_share; /* share of the time whose spread was measured */
    double interval_share; /* share of the time that is drawn from an interval */
} tandem_monte_carlo;
/* tandem_replayer_monte_carlo: steps under the current plan with random times; the same seed gives the same
 * steps. Without any spread or interval every step is the replay's, to the nanosecond. TANDEM_USAGE: too
 * many steps or ranks. TANDEM_NO_MEMORY, errors of tandem_replayer_run. *out unchanged on error. Cost:
 * O(steps × ranks × tasks), about 60 ns each. */
tandem_status tandem_replayer_monte_carlo(tandem_monte_carlo *out, tandem_replayer *replayer,
                                          const tandem_monte_carlo_options *options, tandem_error *error);

/* --- The last run ----------------------------------------------------------------------------------------
 * What these return belongs to the replayer. */
const tandem_step *tandem_replayer_step(const tandem_replayer *replayer, int c);
const tandem_memory *tandem_replayer_memory(const tandem_replayer *replayer, int c);
/* tandem_replayer_plan_memory: the memory of class c in its current precisions; its times may be missing.
 * TANDEM_NO_MEMORY. Cost: that of a memory plan. */
tandem_status tandem_replayer_plan_memory(tandem_replayer *replayer, int c, tandem_memory *memory,
                                          tandem_error *error);
/* [n_task] bytes that each task of class c needs in addition to its operands: as tandem_memory_timeline
 * takes them. */
const uint64_t *tandem_replayer_workspace(const tandem_replayer *replayer, int c);
const tandem_trace_event *tandem_replayer_events(const tandem_replayer *replayer, int c, int *n_event);
const tandem_cluster *tandem_replayer_cluster(const tandem_replayer *replayer);

/* --- Times of tasks -------------------------------------------------------------------------------------
 * */
/* Time of a task in its current variant: alone (contended = 0), or while its co-runner computes; −1 =
 * missing. */
int64_t tandem_replayer_task_ns(const tandem_replayer *replayer, int c, int task, int contended);
/* The same in any variant, 0 … TANDEM_MAX_VARIANT−1. */
int64_t tandem_replayer_variant_ns(const tandem_replayer *replayer, int c, int task, int variant,
                                   int contended);
/* tandem_replayer_set_variant_ns: sets this time from the next run on, in this replayer and for this one
 * task of class c. Setting the old time undoes it.
 *   contended  as above; of an all-reduce (variant 0, in every class): while some class computes
 *   ns         ≥ 0, or −1 = missing; an all-reduce must have a time
 * Cost: O(1); of an all-reduce O(buckets + classes). Memory is not planned again. With two programs the task
 * is one of the program that the current precisions need, and the other program takes the time, too.
 * Example: tandem_replayer_set_variant_ns(replayer, 1, t, step->task[t].variant, 0, ns / 2): twice as fast.
 * */
void tandem_replayer_set_variant_ns(tandem_replayer *replayer, int c, int task, int variant, int contended,
                                    int64_t ns);
/* Whether a variant has every time that a replay of class c needs: alone, contended, or both. */
int tandem_replayer_has_cost(const tandem_replayer *replayer, int c, int task, int variant);
/* TANDEM_MISSING: names the missing cost of such a variant, and the command that measures it. */
tandem_status tandem_replayer_missing_cost(const tandem_replayer *replayer, int c, int task, int variant,
                                           tandem_error *error);

/* --- Where times come from (provenance.h) ---------------------------------------------------------------
 * Of class c in the plan of the last run; of its all-reduces; and of all classes. */
void tandem_replayer_provenance(const tandem_replayer *replayer, int c, tandem_provenance *provenance);
/* tandem_replayer_product_ratio: what class c's products take in `precision` over what the same take in
 * fp32, of sums over all tasks whose times a description or others' rows give in both. 0: there are none.
 * *half: the ratio's 80 % interval is from ratio / (1 + half) to ratio · (1 + half): of how far the tasks'
 * own ratios are off (tandem_calibration_ratio_spread), and times in fp32 where a task's shares of both sums
 * differ. Cost: O(tasks). */
double tandem_replayer_product_ratio(double *half, const tandem_replayer *replayer, int c,
                                     tandem_precision precision);
const tandem_allreduce_source *tandem_replayer_allreduce_source(const tandem_replayer *replayer);
void tandem_replayer_sources(const tandem_replayer *replayer, tandem_time_sources *sources);

/* What else the simulation depends on, for code that reasons about replays without running them. */
typedef struct tandem_contention {
    int is_always_contended; /* another rank of the class is on its node: it never computes alone */
    int is_on_shared_node;   /* its tasks are contended while another such class computes */
    double comm_slowdown;    /* compute time while a bucket is reduced over compute time otherwise */
} tandem_contention;
void tandem_replayer_contention(const tandem_replayer *replayer, int c, tandem_contention *contention);
/* Time of the all-reduce of bucket b while no class computes, and while some do. */
void tandem_replayer_bucket_ns(const tandem_replayer *replayer, int b, double *idle_ns, double *loaded_ns);
/* Where that time comes from: "measured", or the name of the algorithm; NULL for a single rank. */
const char *tandem_replayer_bucket_source(const tandem_replayer *replayer, int b);
/* Whether any time depends on who computes: of a task on co-runners or all-reduces, of an all-reduce on
 * tasks. */
int tandem_replayer_has_contention(const tandem_replayer *replayer);

TANDEM_END_DECLARATIONS
#endif
