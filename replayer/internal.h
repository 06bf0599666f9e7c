/* internal.h: what the files of the replayer share: costs, all-reduce times, a class's state, iterations. */
#pragma once

#include "base/arena.h"
#include "tandem/advanced/predictor.h"
#include "tandem/advanced/replayer.h"

enum { TANDEM_ALONE, TANDEM_CONTENDED, TANDEM_N_CONTENTION }; /* whether a co-runner computes meanwhile */

/* --- costs.c, interpolate.c: the cost of each variant of each task ------------------------------------- */

typedef struct tandem_variant_cost {
    int64_t ns[TANDEM_N_CONTENTION]; /* −1 = not measured, or no such variant */
    uint64_t workspace_bytes;        /* 0 where nothing is known */
} tandem_variant_cost;

/* How far a time by the form is off over the same task's in fp32: logarithmic standard deviations of what
 * tasks share, and of a task's own. */
typedef struct ratio_spread {
    float shared, own;
} ratio_spread;

/* Arrays are [n_task × TANDEM_MAX_VARIANT], with tandem_cost_slot as the index, and belong to an arena. */
typedef struct tandem_costs {
    tandem_variant_cost *variant_cost; /* of a reduce: ns with idle ranks, and with ranks that compute */
    unsigned char (*origin)[TANDEM_N_CONTENTION]; /* tandem_origin of each time */
    float (*spread)[TANDEM_N_CONTENTION];         /* of predicted times; NULL = there are none */
    short (*form_group)[TANDEM_N_CONTENTION];     /* tandem_calibration_form_group, else −1 */
    ratio_spread *ratio; /* of products, by slot: of their time over that in fp32; NULL = there are none */
    float (*sigma)[TANDEM_N_CONTENTION]; /* of measured times: see monte_carlo.c */
    int64_t n_fitted[TANDEM_N_CONTENTION], n_contradicting[TANDEM_N_CONTENTION];
    int n_others[TANDEM_N_CONTENTION][TANDEM_N_OTHERS_KERNEL]; /* rows of others of each kernel */
    tandem_kernel_style style;                                 /* of predicted times */
    int skipped_task; /* of the arrays: the norm, which this step lacks; INT_MAX = it has all */
} tandem_costs;

static inline size_t tandem_cost_slot(const tandem_costs *costs, int t, int variant)
{
    return (size_t)(t + (t >= costs->skipped_task)) * TANDEM_MAX_VARIANT + (size_t)variant;
}

static inline tandem_variant_cost *tandem_variant_cost_of(const tandem_costs *costs, int t, int variant)
{
    return &costs->variant_cost[tandem_cost_slot(costs, t, variant)];
}

/* Where the costs of a class come from. */
typedef struct tandem_cost_source {
    tandem_store *store; /* NULL = nothing was measured */
    const tandem_device *device;
    const char *co_runner; /* "" = there is none */
    int predict;           /* whether to predict what was not measured at all */
    int64_t slowdown_ppm;  /* of the cluster's class */
    tandem_kernel_style style;
    int from_description; /* 1: without what others measured */
} tandem_cost_source;

/* tandem_costs_map: the costs of all variants of all tasks of `step` but its reduces, whose times stay −1.
 * TANDEM_MISSING: there are none. TANDEM_NO_MEMORY, errors of the store. *costs is unchanged on error.
 * Cost: O(tasks × variants) searches. */
tandem_status tandem_costs_map(tandem_costs *costs, tandem_arena *arena, const tandem_step *step,
                               const tandem_cost_source *source, tandem_error *error);

/* tandem_costs_without_norm: the costs of a step without a norm, which shares the arrays of the same step
 * with one. */
tandem_costs tandem_costs_without_norm(const tandem_costs *costs, const tandem_step *with_norm);

/* tandem_costs_next_missing: the next variant of a compute task without a time; 0 = there are no more. Begin
 * with {.task = -1}. */
typedef struct tandem_missing_cost {
    int task, variant;
    size_t slot; /* in the arrays of tandem_costs */
    uint64_t rest;
    tandem_cost_key key;
} tandem_missing_cost;
int tandem_costs_next_missing(tandem_missing_cost *at, const tandem_costs *costs, const tandem_step *step,
                              int contention, const tandem_device *device);
/* tandem_costs_interpolate: missing times from those at other batches. TANDEM_NO_MEMORY, errors of the store.
 * */
tandem_status tandem_costs_interpolate(tandem_costs *costs, const tandem_step *step, int contention,
                                       const tandem_cost_source *source, tandem_error *error);
/* tandem_costs_missing: TANDEM_MISSING for task t in a variant.
 *   busy_co_runner  whose contended time is missing; "" = the time alone is
 *   co_runner       measured along with it
 *   more            "" or what else is missing, as part of the sentence */
tandem_status tandem_costs_missing(const tandem_step *step, int t, int variant, const char *device,
                                   const char *busy_co_runner, const char *co_runner, const char *more,
                                   tandem_error *error);

/* --- collective.c: the time of an all-reduce ----------------------------------------------------------- */

/* tandem_collective_fit: the line latency + bytes · ns_per_byte, both ≥ 0, through the upper part of a
 * measured curve: the points of at least a 16th of the last one's bytes, at least three (tandem_robust_fit).
 * n ≥ 1 points, ascending in bytes; a single point's time is proportional to its bytes. TANDEM_NO_MEMORY. */
typedef struct tandem_collective_line {
    double latency_ns, ns_per_byte, spread;
} tandem_collective_line;
tandem_status tandem_collective_fit(tandem_collective_line *line, const tandem_collective_point *point, int n,
                                    tandem_error *error);

/* tandem_collective_curve_ns: time at `bytes` on a measured curve: linear between two points; the first
 * point's time below it; beyond the last point that of `line`, but at least the last point's. */
double tandem_collective_curve_ns(const tandem_collective_point *point, int n,
                                  const tandem_collective_line *line, uint64_t bytes);

/* tandem_collective_times: for each of n buckets the time while no rank computes, ns[0][b], and while some
 * compute, ns[1][b]; 0 for a single rank. From the measured curve, else from the links (collective.h).
 * TANDEM_MISSING: there is neither curve nor link. */
typedef struct tandem_allreduce_times {
    double *ns[2];          /* [n_bucket] */
    signed char *algorithm; /* [n_bucket] tandem_collective_algorithm; −1 = measured, or a single rank */
    tandem_allreduce_source *allreduce_source;
    int from_description; /* of casts of buckets: as of a tandem_cost_source */
} tandem_allreduce_times;
tandem_status tandem_collective_times(const tandem_allreduce_times *times, const tandem_cluster *cluster,
                                      const tandem_bucket *bucket, int n_bucket, tandem_store *store,
                                      tandem_collective_algorithm algorithm, tandem_error *error);

/* The measured times of its halves, [n_bucket]; NaN where there are none. */
tandem_status tandem_collective_halves(double *scatter_ns, double *gather_ns, const tandem_cluster *cluster,
                                       const tandem_bucket *bucket, int n_bucket, tandem_store *store,
                                       tandem_error *error);

/* --- A class ------------------------------------------------------------------------------------------- */

/* The rates at which a class computes. Usual: alone, or with ranks of its own class that always compute with
 * it. Contended: while another class of its machine computes. Most classes have the usual rate only. */
enum { TANDEM_RATE_USUAL, TANDEM_RATE_CONTENDED, TANDEM_N_COMPUTE_RATE };

/* The task list of a class is periodic. It begins with its head, the tasks that follow the last all-reduce:
 * the update of the last bucket or, where updates wait for the norm of all gradients, the norm and all
 * updates. The forward and backward tasks follow, then the other updates. With micro-steps, the forward and
 * backward tasks of all but the last micro-step come first; they complete no bucket and belong to interval 0.
 *
 * Synchronization points cut the list into 2·n_bucket intervals. Interval b < n_bucket ends where bucket b is
 * ready; interval n_bucket + b ends where the class waits for bucket b. Task ids are fixed, and so are
 * intervals. Each is cut into blocks of consecutive tasks. */
typedef struct tandem_task_range {
    int first, end; /* tasks */
} tandem_task_range;

enum { TANDEM_TASKS_PER_BLOCK = 64, TANDEM_BUCKETS_PER_GROUP = 4 };

/* The tasks of the head. */
static inline tandem_task_range tandem_head_tasks(const tandem_step *step)
{
    const int last_update = step->bucket[step->n_bucket - 1].update_task;
    return (tandem_task_range){step->norm_task < 0 ? last_update : step->norm_task, step->n_task};
}
static inline int tandem_first_after_backward(const tandem_step *step)
{
    return step->norm_task < 0 ? step->bucket[0].update_task : step->norm_task;
}

/* The rest of an iteration, for one class, from a state that no earlier event influences (events.c). */
typedef struct tandem_memoized_suffix {
    double backlog_ns, exposed_ns, waiting_ns, backward_end_ns;
} tandem_memoized_suffix;

/* Arrays belong to the replayer's arena. */
typedef struct tandem_sim_class {
    tandem_step *step;
    tandem_costs costs;
    char device[TANDEM_DEVICE_NAME];
    char co_runner[TANDEM_DEVICE_NAME];    /* "" = none ever */
    int is_on_shared_node;                 /* with all other such classes */
    int n_rate;                            /* 1 or TANDEM_N_COMPUTE_RATE */
    int contention[TANDEM_N_COMPUTE_RATE]; /* which time of tandem_variant_cost each rate takes */
    double comm_slowdown;                  /* compute time while a bucket is reduced over time without */
    int is_dirty;                          /* precisions changed; nothing below follows them yet */
    int is_memory_dirty;                   /* `memory` does not follow them yet */

    /* Times of the current plan and their sums (cost_sums.c). A task's time is 0 where it is not in the plan,
     * −1 where it is missing. */
    int64_t (*task_ns)[TANDEM_N_COMPUTE_RATE]; /* [n_task] */
    int n_missing;                             /* tasks whose time is missing */
    tandem_task_range *block;
    int *block_of;                                 /* [n_task] −1 = no compute task */
    int *interval_of;                              /* [n_block] */
    int *interval_block;                           /* [2·n_bucket + 1] the first block of each interval */
    int n_head_block;                              /* blocks of the head */
    int64_t (*block_ns)[TANDEM_N_COMPUTE_RATE];    /* [n_block] */
    int64_t (*interval_ns)[TANDEM_N_COMPUTE_RATE]; /* [2·n_bucket] of one micro-step */
    int64_t micro_ns[TANDEM_N_COMPUTE_RATE];       /* forward and backward tasks of one micro-step */
    int first_dirty;     /* interval; synchronization points before it are valid; 2·n_bucket = all are */
    int last_dirty;      /* interval; −1 = none */
    int is_update_dirty; /* the time of an update changed, and so did the times of waits */
    /* [n_bucket] list times of the synchronization points; of waits since the first one */
    double *ready_ns[TANDEM_N_COMPUTE_RATE], *wait_ns[TANDEM_N_COMPUTE_RATE];
    double backward_ns[TANDEM_N_COMPUTE_RATE]; /* list time of the first wait: the end of the backward pass */
    double *slack_ns; /* [groups + 1] the largest slack of the first k groups of buckets (slack.c) */
    double *lag_ns;   /* [groups] the largest lag in each group */
    int is_slack_dirty, is_lag_dirty;
    int likely_interval[2];    /* of its last change of rate: in this iteration, in the previous one's list */
    uint64_t *workspace_bytes; /* [n_task] of the current variants; 0 for tasks that are not in the plan */
    tandem_memory memory;

    /* The timeline: the list by position, and times in ns since the recorded iteration began. */
    int list_length, n_head;             /* n_head: positions of the head */
    int *task;                           /* [list_length], at most n_micro · n_task */
    int64_t *sum[TANDEM_N_COMPUTE_RATE]; /* [list_length + 1] time of all positions before */
    /* [n_bucket] position after the wait; of the last bucket list_length */
    int *wait_position;
    double *start_ns, *end_ns;           /* [list_length] */
    double *wait_start_ns, *wait_end_ns; /* [n_bucket] */
    tandem_trace_event *event;           /* [list_length + 2·n_bucket] in order, since the step began */
    int n_event;
} tandem_sim_class;

struct tandem_replayer {
    tandem_arena arena;
    tandem_cluster cluster;
    /* Of steps without and with a norm; NULL where there is one program. Then only `cluster`, n_class and
     * n_f16_gradient are used here. */
    tandem_replayer *program[2];
    int n_f16_gradient;        /* operators of all classes whose backward products read f16 */
    tandem_sim_class *classes; /* [n_class] */
    int n_class, n_bucket;
    /* Times of all-reduces are multiples of 1/1024 ns, so that their sums are exact. */
    double *default_allreduce_ns[2]; /* [n_bucket] without and with ranks that compute meanwhile */
    double *scatter_ns, *gather_ns;  /* [n_bucket] of its halves, as measured; NaN: they were not */
    double *allreduce_ns[2];         /* the same, or what the caller set instead */
    signed char *allreduce_by;       /* [n_bucket] see tandem_allreduce_times */
    tandem_collective_algorithm collective;
    tandem_allreduce_source allreduce_source;
    double *allreduce_sum_ns; /* [n_bucket + 1] sums of allreduce_ns[0] */
    double *loaded_sum_ns;    /* [n_bucket + 1] sums of allreduce_ns[1] */
    /* [groups + 1] idle time of the network before each group (recurrence.c) */
    double *comm_idle_ns;
    /* [groups] the group's allreduce_start_ns and allreduce_end_ns are valid */
    unsigned char *is_group_timed;
    /* Memoized suffixes (events.c): by bucket, what followed the state in which its all-reduce began. */
    uint64_t *suffix_key;           /* [n_bucket] the state; 0 = none is stored */
    double *suffix_ns;              /* [n_bucket] to the end of the iteration */
    tandem_memoized_suffix *suffix; /* [n_bucket × n_class] */
    int *pending_suffix;            /* [n_bucket] scratch */
    /* Buckets that were through before any backward pass ended: in the last iteration that all classes began
     * at once, and in the last other one. */
    int n_overlapped[2];
    int has_contention; /* whether any rate depends on what others do */
    /* [n_bucket] of the recorded step; scratch of recurrence.c */
    double *allreduce_start_ns, *allreduce_end_ns;
};

/* The program that the current precisions need. */
static inline tandem_replayer *tandem_replayer_program(const tandem_replayer *replayer)
{
    return replayer->program[0] ? replayer->program[replayer->n_f16_gradient > 0]
                                : (tandem_replayer *)(uintptr_t)replayer;
}

static inline int64_t tandem_round_ns(double ns) { return (int64_t)(ns + 0.5); } /* ns ≥ 0 */
/* Rounds to the nearest ns. Half a ns goes up, also where rounding errors made it slightly less. */
static inline int64_t tandem_round_noisy_ns(double ns) { return tandem_round_ns(ns + 0x1p-12); }

/* --- cost_sums.c: sums of the plan's task times; one change costs O(1) --------------------------------- */

/* Allocates everything, with each task at 0. Returns 0 where memory is out. */
int tandem_cost_sums_open(tandem_sim_class *class, tandem_arena *arena, int n_bucket);
/* Task t has another variant or time, or entered or left the plan. */
void tandem_cost_sums_set_task(tandem_sim_class *class, int t);
/* Computes the list times of the synchronization points from the sums. */
void tandem_cost_sums_update(tandem_sim_class *class, int n_bucket);
/* TANDEM_MISSING names the first of the n_missing costs. */
tandem_status tandem_cost_sums_missing(const tandem_sim_class *class, tandem_error *error);
/* Converts the list time `at_ns` at rate `from` to the list time of the same progress at rate `to`.
 * *interval: a guess of the interval that it lies in; then that interval. */
double tandem_cost_sums_convert_ns(const tandem_sim_class *class, int n_bucket, double at_ns, int from,
                                   int to, int *interval);

/* --- task_list.c: the list of a class by position, for the timeline ------------------------------------ */
void tandem_task_list_build(tandem_sim_class *class);

/* --- Iterations ---------------------------------------------------------------------------------------- */

/* From the end of one last all-reduce to the end of the next one. */
typedef struct tandem_iteration {
    /* in: how long each class is still in the previous iteration; out: in this one; at its usual rate */
    double backlog_ns[TANDEM_MAX_CLASS];
    double step_ns;                           /* its length */
    double exposed_ns[TANDEM_MAX_CLASS];      /* a class waits while a bucket is reduced */
    double waiting_ns[TANDEM_MAX_CLASS];      /* a class waits while none is */
    double backward_end_ns[TANDEM_MAX_CLASS]; /* since it began; may lie after its end */
} tandem_iteration;

/* slack.c: computes slack_ns and lag_ns where they are dirty. Cost: O(buckets) per class that changed. */
void tandem_slack_update(tandem_replayer *replayer);
/* recurrence.c: an iteration without contention. Cost per class: O(buckets / TANDEM_BUCKETS_PER_GROUP), and
 * the buckets that the network waits for while the class waits for them. */
void tandem_iteration_by_recurrence(tandem_iteration *iteration, tandem_replayer *replayer);
/* events.c: invalidates the memoized suffixes of buckets before `end`. */
void tandem_suffixes_forget(tandem_replayer *replayer, int end);
/* events.c: any iteration. recorded: −1; 0 = the recorded step begins in this iteration, at `begin_ns`; 1 =
 * it ends in this one. Cost: O(buckets + waits) per class. */
void tandem_iteration_by_events(tandem_iteration *iteration, tandem_replayer *replayer, int recorded,
                                double begin_ns);

/* --- simulate.c ---------------------------------------------------------------------------------------- */

/* tandem_replay_simulate: one step, once steps repeat: all of *replay but peak_bytes. with_timeline: also
 * records start_ns … wait_end_ns of the classes, allreduce_start_ns and allreduce_end_ns. */
void tandem_replay_simulate(tandem_replay *replay, tandem_replayer *replayer, int with_timeline);
/* Splits replay->step_ns of a class into whole busy, exposed and waiting ns. idle_ns: exposed and waiting. */
void tandem_replay_split_step(tandem_replay *replay, int c, double exposed_ns, double idle_ns);

/* Of the last recorded step: the time of the task at a position, and the interval of that position. */
static inline double tandem_recorded_task_ns(const tandem_sim_class *class, int position)
{
    return class->end_ns[position] - class->start_ns[position];
}
static inline int tandem_recorded_interval(const tandem_sim_class *class, int position)
{
    const int n_micro = class->step->options.n_micro,
              per_micro_step = (class->wait_position[0] - class->n_head) / n_micro;
    /* all micro-steps but the last */
    if (position < class->n_head + (n_micro - 1) * per_micro_step) return 0;
    return class->interval_of[class->block_of[class->task[position]]];
}
/* How long the class was still in the previous iteration when the recorded one began. */
static inline double tandem_recorded_backlog_ns(const tandem_sim_class *class)
{
    double ns = class->start_ns[class->n_head];
    for (int i = 0; i < class->n_head; i++) ns -= tandem_recorded_task_ns(class, i);
    return ns;
}

/* --- timeline.c: events of each class from the recorded times ------------------------------------------ */
void tandem_timeline_build(tandem_replayer *replayer);
