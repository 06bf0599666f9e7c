/* internal.h: what the stages of a replay hand on to each other: costs, wire, prices and stops, laps,
 * timeline; private to replayer/. */
#ifndef TANDEM_REPLAYER_INTERNAL_H
#define TANDEM_REPLAYER_INTERNAL_H

#include "tandem/predictor.h"
#include "tandem/replayer.h"

enum { TANDEM_ALONE, TANDEM_CONTENDED, TANDEM_N_CONTENTION }; /* whether a neighbour computes meanwhile */

/* --- costs.c: what each form of each task costs --------------------------------------------------------- */

typedef struct tandem_variant_cost {
    int64_t ns[TANDEM_N_CONTENTION]; /* −1 = not measured, or no such form */
    uint64_t workspace_bytes;        /* 0 where nothing is known */
} tandem_variant_cost;

typedef struct tandem_costs {
    /* [n_task × TANDEM_MAX_VARIANT]; of a reduce: with idle and with busy ranks */
    tandem_variant_cost *variant_cost;
    unsigned char (*origin)[TANDEM_N_CONTENTION]; /* the same: tandem_origin of each time */
    float (*spread)[TANDEM_N_CONTENTION];         /* the same, of what was predicted; NULL = nothing was */
    float (*sigma)[TANDEM_N_CONTENTION];          /* the same, of what was measured: see monte_carlo.c */
    int64_t n_fitted[TANDEM_N_CONTENTION];
} tandem_costs;

/* Where costs of a class come from. */
typedef struct tandem_cost_source {
    tandem_store *store; /* NULL = nothing was measured */
    const tandem_device *device;
    const char *co_runner; /* "" = there is none */
    int predict;           /* whether to predict what was not measured at all */
    int64_t slowdown_ppm;  /* of the cluster's class */
} tandem_cost_source;

/* tandem_costs_map: costs of all forms of all tasks of `step` but its reduces, whose forms are left at −1.
 * TANDEM_MISSING where there is none at all, TANDEM_NO_MEMORY, what the store says. *costs is unchanged on
 * error. Cost: O(tasks × forms) searches. */
tandem_status tandem_costs_map(tandem_costs *costs, const tandem_step *step, const tandem_cost_source *source,
                               tandem_error *error);
/* Whether a form that exists has no time in that company. */
int tandem_costs_any_missing(const tandem_costs *costs, const tandem_step *step, int contention,
                             const tandem_device *device);
/* tandem_costs_interpolate (interpolate.c): times in one company that are missing in *costs, from those at
 * other batches. */
tandem_status tandem_costs_interpolate(tandem_costs *costs, const tandem_step *step, int contention,
                                       const tandem_cost_source *source, tandem_error *error);
void tandem_costs_free(tandem_costs *costs);
/* TANDEM_MISSING for task `t` in a form. beside: the neighbour beside whom its time is not known, "" = alone;
 * `neighbour` is measured along with it; more: "" or what else is missing, as part of the sentence. */
tandem_status tandem_costs_missing(const tandem_step *step, int t, int variant, const char *device,
                                   const char *busy_co_runner, const char *co_runner, const char *more,
                                   tandem_error *error);

/* --- collective.c: what an all-reduce costs ------------------------------------------------------------- */

/* tandem_collective_fit: latency + bytes · ns_per_byte, both ≥ 0, through the upper part of a measured curve:
 * the points of at least a 16th of the last one's bytes, or the last three, by robust regression of relative
 * errors (predictor/robust.h). n ≥ 1 points ascending in bytes; of one point, in proportion to its bytes.
 * TANDEM_NO_MEMORY. */
typedef struct tandem_collective_line {
    double latency_ns, ns_per_byte, spread;
} tandem_collective_line;
tandem_status tandem_collective_fit(tandem_collective_line *line, const tandem_collective_point *point, int n,
                                    tandem_error *error);

/* tandem_collective_curve_ns: time at `bytes` on a measured curve: a straight line between two points; the
 * first point's time below it; beyond the last that of `line`, but no less than the last one's. */
double tandem_collective_curve_ns(const tandem_collective_point *point, int n,
                                  const tandem_collective_line *line, uint64_t bytes);

/* tandem_collective_times: of each of n buckets, ns[0][b] where no rank computes meanwhile and ns[1][b] where
 * some do, and where they come from. 0 for a single rank. From the measured curve, else from the links by
 * `algorithm` (collective.h). TANDEM_MISSING where there is neither curve nor link. */
typedef struct tandem_allreduce_times {
    double *ns[2]; /* [n_bucket] */
    /* [n_bucket] tandem_collective_algorithm; −1 = measured, or there is nothing to exchange */
    signed char *algorithm;
    tandem_allreduce_source *allreduce_source;
} tandem_allreduce_times;
tandem_status tandem_collective_times(const tandem_allreduce_times *times, const tandem_cluster *cluster,
                                      const tandem_bucket *bucket, int n_bucket, tandem_store *store,
                                      tandem_collective_algorithm algorithm, tandem_error *error);

/* --- A class -------------------------------------------------------------------------------------------- */

/* In which company a class computes: as usual, alone, or beside ranks of its own that always compute with it;
 * or crowded, beside another class that computes at the moment. Most classes have the usual pace only. */
enum { TANDEM_RATE_USUAL, TANDEM_RATE_CONTENDED, TANDEM_N_COMPUTE_RATE };

/* The list that a class goes round: the update of the last bucket, the forward and backward tasks, the other
 * updates; where the norm of all gradients comes before any update, it and all updates come first, and none
 * behind. With micro-steps, the forward and backward tasks of all but the last come before those of the last:
 * they hand nothing over, and count to the first stretch. The list falls into 2·n_bucket stretches, each of
 * which ends at a stop: stretch b < n_bucket where bucket b is handed over, stretch n_bucket + b where bucket
 * b must be through. Task ids being fixed, so are stretches; each is cut into blocks of tasks in order. */
typedef struct tandem_task_range {
    int first, end; /* tasks */
} tandem_task_range;

enum { TANDEM_TASKS_PER_BLOCK = 64, TANDEM_BUCKETS_PER_GROUP = 4 };

/* The tasks that begin the list: they follow the last bucket's all-reduce. */
static inline tandem_task_range tandem_head_tasks(const tandem_step *step)
{
    return (tandem_task_range){
        step->norm_task < 0 ? step->bucket[step->n_bucket - 1].update_task : step->norm_task, step->n_task};
}
/* The first task behind the backward pass. */
static inline int tandem_first_after_backward(const tandem_step *step)
{
    return step->norm_task < 0 ? step->bucket[0].update_task : step->norm_task;
}

/* What is left of a lap from a state that says everything about it (events.c); of one class. */
typedef struct tandem_memoized_suffix {
    double carry_over_ns, exposed_ns, waiting_ns, backward_end_ns;
} tandem_memoized_suffix;

typedef struct tandem_sim_class {
    tandem_step *step;
    tandem_costs costs;
    char device[TANDEM_DEVICE_NAME];
    char co_runner[TANDEM_DEVICE_NAME]; /* the device busy beside it; "" = none ever */
    int is_on_shared_node;              /* with the other classes that say so */
    int n_rate;
    int contention[TANDEM_N_COMPUTE_RATE]; /* what each pace is to the costs */
    double comm_slowdown; /* how many times longer compute takes while a bucket is on the wire */
    int is_dirty;         /* precisions are not yet in what follows */
    int is_memory_dirty;  /* … nor in `memory` */
    /* Times of the current plan (cost_sums.c): of each task, 0 where it is not in the plan, −1 where it is
     * missing; and their sums */
    int64_t (*task_ns)[TANDEM_N_COMPUTE_RATE]; /* [n_task] */
    int n_missing;                             /* tasks whose price is missing */
    tandem_task_range *block;
    int *block_of;                                 /* [n_task] −1 = no compute task */
    int *interval_of;                              /* [n_block] */
    int *interval_block;                           /* [2·n_bucket + 1] the first block of each stretch */
    int n_head_block;                              /* of the tasks that begin the list */
    int64_t (*block_ns)[TANDEM_N_COMPUTE_RATE];    /* [n_block] */
    int64_t (*interval_ns)[TANDEM_N_COMPUTE_RATE]; /* [2·n_bucket] of one micro-step */
    int64_t micro_ns[TANDEM_N_COMPUTE_RATE];       /* forward and backward tasks once */
    int first_dirty;     /* stretch; 2·n_bucket = none: stops before it are where they were */
    int last_dirty;      /* stretch; −1 = none */
    int is_update_dirty; /* … as are waits, unless an update's price changed */
    /* Where the stops are, in list time: [n_bucket] */
    double *ready_ns[TANDEM_N_COMPUTE_RATE], *wait_ns[TANDEM_N_COMPUTE_RATE]; /* waits: since the first one */
    double backward_ns[TANDEM_N_COMPUTE_RATE]; /* the first wait: the end of the backward pass */
    /* By groups of TANDEM_BUCKETS_PER_GROUP buckets (slack.c): the largest lead of the first k groups,
     * [groups + 1]; the farthest behind in each, [groups] */
    double *slack_ns, *lag_ns;
    int is_slack_dirty, is_lag_dirty; /* they are not yet brought up to date */
    /* where it changed its pace last: in a lap, in the former lap's list */
    int likely_interval[2];
    uint64_t *workspace_bytes; /* [n_task] of the current forms; of tasks that are not in the plan 0 */
    tandem_memory memory;
    /* The timeline: the list place by place; of each place and each wait, ns since the recorded lap began;
     * then in order, from the begin of the step */
    int list_length, n_head;             /* n_head: of tasks that begin the list */
    int *task;                           /* [list_length], at most n_micro · n_task */
    int64_t *sum[TANDEM_N_COMPUTE_RATE]; /* [list_length + 1] time of all places before */
    int *wait_position; /* [n_bucket] the place behind the wait for bucket b; of the last one list_length */
    double *start_ns, *end_ns;           /* [list_length] */
    double *wait_start_ns, *wait_end_ns; /* [n_bucket] */
    tandem_trace_event *event;           /* [list_length + 2·n_bucket] */
    int n_event;
} tandem_sim_class;

struct tandem_replayer {
    tandem_cluster cluster;
    tandem_sim_class *classes; /* [n_class] */
    int n_class, n_bucket;
    /* all-reduces: multiples of 1/1024 ns, so that sums of times are exact */
    double *default_allreduce_ns[2]; /* [n_bucket] without and with ranks that compute meanwhile */
    double *allreduce_ns[2];         /* the same, or what the caller took for them */
    signed char *allreduce_by;       /* [n_bucket] see tandem_allreduce_times */
    tandem_collective_algorithm collective;
    tandem_allreduce_source allreduce_source;
    double *allreduce_sum_ns; /* [n_bucket + 1] idle times of all buckets before */
    double *loaded_sum_ns;    /* … and loaded ones */
    /* [groups + 1] scratch of a lap by the recurrence: how late the wire is behind the first k groups */
    double *comm_idle_ns;
    /* [groups] scratch: their buckets' allreduce_start_ns and allreduce_end_ns are known */
    unsigned char *is_group_timed;
    /* laps by events, bucket by bucket: what followed last time from the state in which it went on the wire
     * */
    uint64_t *suffix_key;           /* [n_bucket] the state; 0 = nothing is known */
    double *suffix_ns;              /* [n_bucket] to the end of the lap */
    tandem_memoized_suffix *suffix; /* [n_bucket × n_class] */
    int *pending_suffix;            /* [n_bucket] scratch */
    /* buckets that were through before a class ended its backward pass, in the last lap that began with all
     * classes at once, and in the last that did not */
    int n_overlapped[2];
    int has_contention; /* whether anybody's rate depends on what others do */
    /* [n_bucket] of the recorded step; scratch of a lap by the recurrence */
    double *allreduce_start_ns, *allreduce_end_ns;
};

static inline int64_t tandem_round_ns(double ns) { return (int64_t)(ns + 0.5); } /* ns ≥ 0 */
/* To the nearest ns; half a ns, and what would be half a ns but for rounding on the way, upwards. */
static inline int64_t tandem_round_noisy_ns(double ns) { return tandem_round_ns(ns + 0x1p-12); }

/* --- cost_sums.c: what the tasks of the current plan cost, summed up so that one change costs O(1) ------ */

/* Allocates all of it, each task at 0. Returns 0 without memory. */
int tandem_cost_sums_open(tandem_sim_class *class, int n_bucket);
void tandem_cost_sums_close(tandem_sim_class *class);
/* Task t has another form or another time, or is in the plan or out of it. */
void tandem_cost_sums_set_task(tandem_sim_class *class, int t);
/* Puts the stops where the sums say. */
void tandem_cost_sums_update(tandem_sim_class *class, int n_bucket);
/* TANDEM_MISSING names the first of the n_missing costs. */
tandem_status tandem_cost_sums_missing(const tandem_sim_class *class, tandem_error *error);
/* The place `at_ns` of the list at one pace, in list time of the other. *stretch: where to look for it first;
 * where it is. */
double tandem_cost_sums_convert_ns(const tandem_sim_class *class, int n_bucket, double at_ns, int from,
                                   int to, int *interval);

/* --- task_list.c: the list of a class place by place, for the timeline ---------------------------------- */
void tandem_task_list_build(tandem_sim_class *class);

/* --- Laps ----------------------------------------------------------------------------------------------- */

/* From the end of one last all-reduce to the next one's. */
typedef struct tandem_iteration {
    /* in: how long each class is still in the former lap; out: in this one; list time at its usual pace */
    double carry_over_ns[TANDEM_MAX_CLASS];
    double step_ns;                           /* its length */
    double exposed_ns[TANDEM_MAX_CLASS];      /* a class stands still while a bucket is on the wire */
    double waiting_ns[TANDEM_MAX_CLASS];      /* … while none is */
    double backward_end_ns[TANDEM_MAX_CLASS]; /* since the lap began; may lie behind its end */
} tandem_iteration;

/* slack.c: brings slack_ns and lag_ns up to date. Cost: O(buckets) for each class that changed. */
void tandem_slack_update(tandem_replayer *replayer);
/* recurrence.c: where nothing interferes. Cost: O(buckets / TANDEM_BUCKETS_PER_GROUP) and the buckets that
 * the wire stands idle before while a class waits for them, times classes. */
void tandem_iteration_by_recurrence(tandem_iteration *iteration, tandem_replayer *replayer);
/* events.c: what is known of laps' tails holds no more for buckets before `end`. */
void tandem_suffixes_forget(tandem_replayer *replayer, int end);
/* events.c: always. `recorded`: −1; or where the timeline goes: 0 = this is the lap to record, from
 * `begin_ns` on; 1 = the one after it. Cost: O(buckets + waits), times classes. */
void tandem_iteration_by_events(tandem_iteration *iteration, tandem_replayer *replayer, int recorded,
                                double begin_ns);

/* --- simulate.c ----------------------------------------------------------------------------------------- */

/* tandem_replay_simulate: one step, once steps repeat themselves: all of *replay but peak_bytes.
 * with_timeline: records when each task begins and ends, too: start_ns … wait_end_ns of the members,
 * allreduce_start_ns and allreduce_end_ns. */
void tandem_replay_simulate(tandem_replay *replay, tandem_replayer *replayer, int with_timeline);

/* Of the step that was recorded last: what the task at a place took, which stretch it is in, and how long the
 * class was still in the former lap's list when the recorded one began. */
static inline double tandem_recorded_task_ns(const tandem_sim_class *class, int position)
{
    return class->end_ns[position] - class->start_ns[position];
}
static inline int tandem_recorded_interval(const tandem_sim_class *class, int position)
{
    const int n_micro = class->step->options.n_micro,
              a_micro_step = (class->wait_position[0] - class->n_head) / n_micro;
    if (position < class->n_head + (n_micro - 1) * a_micro_step) return 0; /* all micro-steps but the last */
    return class->interval_of[class->block_of[class->task[position]]];
}
static inline double tandem_recorded_carry_over_ns(const tandem_sim_class *class)
{
    double ns = class->start_ns[class->n_head];
    for (int i = 0; i < class->n_head; i++) ns -= tandem_recorded_task_ns(class, i);
    return ns;
}

/* --- timeline.c: events of each class from the recorded times ------------------------------------------- */
void tandem_timeline_build(tandem_replayer *replayer);

#endif
