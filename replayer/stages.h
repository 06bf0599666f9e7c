/* stages.h: what the stages of a replay hand on to each other: costs, wire, prices and stops, laps, timeline;
 * private to replayer/. */
#ifndef TANDEM_REPLAYER_STAGES_H
#define TANDEM_REPLAYER_STAGES_H

#include "tandem/predictor.h"
#include "tandem/replayer.h"

enum { TANDEM_ALONE, TANDEM_BESIDE, TANDEM_N_COMPANY }; /* whether a neighbour computes meanwhile */

/* --- costs.c: what each form of each task costs --------------------------------------------------------- */

typedef struct tandem_form {
    int64_t ns[TANDEM_N_COMPANY]; /* −1 = not measured, or no such form */
    uint64_t workspace_bytes;     /* 0 where nothing is known */
} tandem_form;

typedef struct tandem_costs {
    tandem_form *form; /* [n_task × TANDEM_MAX_VARIANT]; of a reduce: with idle and with busy ranks */
    unsigned char (*origin)[TANDEM_N_COMPANY]; /* the same: tandem_origin of each time */
    float (*spread)[TANDEM_N_COMPANY];         /* the same, of what was predicted; NULL = nothing was */
    float (*sigma)[TANDEM_N_COMPANY];          /* the same, of what was measured: see draws.c */
    int64_t n_fitted[TANDEM_N_COMPANY];
} tandem_costs;

/* Where costs of a class come from. */
typedef struct tandem_cost_source {
    tandem_store *store; /* NULL = nothing was measured */
    const tandem_device *device;
    const char *neighbour;   /* "" = there is none */
    int predict;             /* whether to predict what was not measured at all */
    int64_t slow_millionths; /* of the cluster's class */
} tandem_cost_source;

/* tandem_costs_map: costs of all forms of all tasks of `step` but its reduces, whose forms are left at −1.
 * TANDEM_MISSING where there is none at all, TANDEM_NO_MEMORY, what the store says. *costs is unchanged on
 * error. Cost: O(tasks × forms) searches. */
tandem_status tandem_costs_map(tandem_costs *costs, const tandem_step *step, const tandem_cost_source *source,
                               tandem_error *error);
/* Whether a form that exists has no time in that company. */
int tandem_costs_lack(const tandem_costs *costs, const tandem_step *step, int company,
                      const tandem_device *device);
/* tandem_costs_fill_batches (batches.c): times in one company that are missing in *costs, from those at other
 * batches. */
tandem_status tandem_costs_fill_batches(tandem_costs *costs, const tandem_step *step, int company,
                                        const tandem_cost_source *source, tandem_error *error);
void tandem_costs_free(tandem_costs *costs);
/* TANDEM_MISSING for task `t` in a form. beside: the neighbour beside whom its time is not known, "" = alone;
 * `neighbour` is measured along with it; more: "" or what else is missing, as part of the sentence. */
tandem_status tandem_costs_missing(const tandem_step *step, int t, int variant, const char *device,
                                   const char *beside, const char *neighbour, const char *more,
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
typedef struct tandem_wire {
    double *ns[2]; /* [n_bucket] */
    /* [n_bucket] tandem_collective_algorithm; −1 = measured, or there is nothing to exchange */
    signed char *by;
    tandem_exchange *exchange;
} tandem_wire;
tandem_status tandem_collective_times(const tandem_wire *wire, const tandem_cluster *cluster,
                                      const tandem_bucket *bucket, int n_bucket, tandem_store *store,
                                      tandem_collective_algorithm algorithm, tandem_error *error);

/* --- A class -------------------------------------------------------------------------------------------- */

/* In which company a class computes: as usual, alone, or beside ranks of its own that always compute with it;
 * or crowded, beside another class that computes at the moment. Most classes have the usual pace only. */
enum { TANDEM_USUAL, TANDEM_CROWDED, TANDEM_N_PACE };

/* The list that a class goes round: the update of the last bucket, the forward and backward tasks, the other
 * updates; where the norm of all gradients comes before any update, it and all updates come first, and none
 * behind. With micro-steps, the forward and backward tasks of all but the last come before those of the last:
 * they hand nothing over, and count to the first stretch. The list falls into 2·n_bucket stretches, each of
 * which ends at a stop: stretch b < n_bucket where bucket b is handed over, stretch n_bucket + b where bucket
 * b must be through. Task ids being fixed, so are stretches; each is cut into blocks of tasks in order. */
typedef struct tandem_block {
    int first, end; /* tasks */
} tandem_block;

enum { TANDEM_BLOCK = 64, TANDEM_GROUP = 4 };

/* The tasks that begin the list: they follow the last bucket's all-reduce. */
static inline tandem_block tandem_replay_lead(const tandem_step *step)
{
    return (tandem_block){
        step->norm_task < 0 ? step->bucket[step->n_bucket - 1].update_task : step->norm_task, step->n_task};
}
/* The first task behind the backward pass. */
static inline int tandem_replay_behind(const tandem_step *step)
{
    return step->norm_task < 0 ? step->bucket[0].update_task : step->norm_task;
}

/* What is left of a lap from a state that says everything about it (events.c); of one class. */
typedef struct tandem_tail {
    double rest_ns, exposed_ns, waiting_ns, backward_end_ns;
} tandem_tail;

typedef struct tandem_replay_member {
    tandem_step *step;
    tandem_costs costs;
    char device[TANDEM_DEVICE_NAME];
    char neighbour[TANDEM_DEVICE_NAME]; /* the device busy beside it; "" = none ever */
    int shares_node;                    /* with the other classes that say so */
    int n_pace;
    int company[TANDEM_N_PACE]; /* what each pace is to the costs */
    double slowed;              /* how many times longer compute takes while a bucket is on the wire */
    int changed;                /* precisions are not yet in what follows */
    int memory_changed;         /* … nor in `memory` */
    /* Times of the current plan (prices.c): of each task, 0 where it is not in the plan, −1 where it is
     * missing; and their sums */
    int64_t (*price_ns)[TANDEM_N_PACE]; /* [n_task] */
    int n_missing;                      /* tasks whose price is missing */
    tandem_block *block;
    int *block_of;                        /* [n_task] −1 = no compute task */
    int *stretch_of;                      /* [n_block] */
    int *stretch_block;                   /* [2·n_bucket + 1] the first block of each stretch */
    int n_lead_block;                     /* of the tasks that begin the list */
    int64_t (*block_ns)[TANDEM_N_PACE];   /* [n_block] */
    int64_t (*stretch_ns)[TANDEM_N_PACE]; /* [2·n_bucket] of one micro-step */
    int64_t micro_ns[TANDEM_N_PACE];      /* forward and backward tasks once */
    int first_changed;  /* stretch; 2·n_bucket = none: stops before it are where they were */
    int last_changed;   /* stretch; −1 = none */
    int update_changed; /* … as are waits, unless an update's price changed */
    /* Where the stops are, in list time: [n_bucket] */
    double *hand_ns[TANDEM_N_PACE], *wait_ns[TANDEM_N_PACE]; /* waits: since the first one */
    double backward_ns[TANDEM_N_PACE]; /* the first wait: the end of the backward pass */
    /* By groups of TANDEM_GROUP buckets (lead.c): the largest lead of the first k groups, [groups + 1]; the
     * farthest behind in each, [groups] */
    double *lead_ns, *behind_ns;
    int lead_changed, behind_changed; /* they are not yet brought up to date */
    int likely_stretch[2];            /* where it changed its pace last: in a lap, in the former lap's list */
    uint64_t *workspace_bytes;        /* [n_task] of the current forms; of tasks that are not in the plan 0 */
    tandem_memory memory;
    /* The timeline: the list place by place; of each place and each wait, ns since the recorded lap began;
     * then in order, from the begin of the step */
    int n_place, n_lead;         /* n_lead: of tasks that begin the list */
    int *task;                   /* [n_place], at most n_micro · n_task */
    int64_t *sum[TANDEM_N_PACE]; /* [n_place + 1] time of all places before */
    int *wait_place; /* [n_bucket] the place behind the wait for bucket b; of the last one n_place */
    double *start_ns, *end_ns;           /* [n_place] */
    double *wait_start_ns, *wait_end_ns; /* [n_bucket] */
    tandem_trace_event *event;           /* [n_place + 2·n_bucket] */
    int n_event;
} tandem_replay_member;

struct tandem_replayer {
    tandem_cluster cluster;
    tandem_replay_member *member; /* [n_class] */
    int n_class, n_bucket;
    /* all-reduces: multiples of 1/1024 ns, so that sums of times are exact */
    double *measured_ns[2]; /* [n_bucket] without and with ranks that compute meanwhile */
    double *wire_ns[2];     /* the same, or what the caller took for them */
    signed char *wire_by;   /* [n_bucket] see tandem_wire */
    tandem_collective_algorithm collective;
    tandem_exchange exchange;
    double *wire_sum_ns;   /* [n_bucket + 1] idle times of all buckets before */
    double *loaded_sum_ns; /* … and loaded ones */
    /* [groups + 1] scratch of a lap by the recurrence: how late the wire is behind the first k groups */
    double *late_ns;
    unsigned char *is_run; /* [groups] scratch: their buckets' wire_start_ns and wire_end_ns are known */
    /* laps by events, bucket by bucket: what followed last time from the state in which it went on the wire
     * */
    uint64_t *tail_key; /* [n_bucket] the state; 0 = nothing is known */
    double *tail_ns;    /* [n_bucket] to the end of the lap */
    tandem_tail *tail;  /* [n_bucket × n_class] */
    int *passed;        /* [n_bucket] scratch */
    /* buckets that were through before a class ended its backward pass, in the last lap that began with all
     * classes at once, and in the last that did not */
    int ahead[2];
    int interferes; /* whether anybody's rate depends on what others do */
    /* [n_bucket] of the recorded step; scratch of a lap by the recurrence */
    double *wire_start_ns, *wire_end_ns;
};

static inline int64_t tandem_whole_ns(double ns) { return (int64_t)(ns + 0.5); } /* ns ≥ 0 */
/* To the nearest ns; half a ns, and what would be half a ns but for rounding on the way, upwards. */
static inline int64_t tandem_rounded_ns(double ns) { return tandem_whole_ns(ns + 0x1p-12); }

/* --- prices.c: what the tasks of the current plan cost, summed up so that one change costs O(1) --------- */

/* Allocates all of it, each task at 0. Returns 0 without memory. */
int tandem_prices_open(tandem_replay_member *member, int n_bucket);
void tandem_prices_close(tandem_replay_member *member);
/* Task t has another form or another time, or is in the plan or out of it. */
void tandem_prices_update(tandem_replay_member *member, int t);
/* Puts the stops where the sums say. */
void tandem_prices_settle(tandem_replay_member *member, int n_bucket);
/* TANDEM_MISSING names the first of the n_missing costs. */
tandem_status tandem_prices_missing(const tandem_replay_member *member, tandem_error *error);
/* The place `at_ns` of the list at one pace, in list time of the other. *stretch: where to look for it first;
 * where it is. */
double tandem_prices_place(const tandem_replay_member *member, int n_bucket, double at_ns, int from, int to,
                           int *stretch);

/* --- list.c: the list of a class place by place, for the timeline --------------------------------------- */
void tandem_replay_list(tandem_replay_member *member);

/* --- Laps ----------------------------------------------------------------------------------------------- */

/* From the end of one last all-reduce to the next one's. */
typedef struct tandem_lap {
    /* in: how long each class is still in the former lap; out: in this one; list time at its usual pace */
    double rest_ns[TANDEM_MAX_CLASS];
    double step_ns;                           /* its length */
    double exposed_ns[TANDEM_MAX_CLASS];      /* a class stands still while a bucket is on the wire */
    double waiting_ns[TANDEM_MAX_CLASS];      /* … while none is */
    double backward_end_ns[TANDEM_MAX_CLASS]; /* since the lap began; may lie behind its end */
} tandem_lap;

/* lead.c: brings lead_ns and behind_ns up to date. Cost: O(buckets) for each class that changed. */
void tandem_leads_settle(tandem_replayer *replayer);
/* recurrence.c: where nothing interferes. Cost: O(buckets / TANDEM_GROUP) and the buckets that the wire
 * stands idle before while a class waits for them, times classes. */
void tandem_lap_by_recurrence(tandem_lap *lap, tandem_replayer *replayer);
/* events.c: what is known of laps' tails holds no more for buckets before `end`. */
void tandem_tails_forget(tandem_replayer *replayer, int end);
/* events.c: always. `recorded`: −1; or where the timeline goes: 0 = this is the lap to record, from
 * `begin_ns` on; 1 = the one after it. Cost: O(buckets + waits), times classes. */
void tandem_lap_by_events(tandem_lap *lap, tandem_replayer *replayer, int recorded, double begin_ns);

/* --- simulate.c ----------------------------------------------------------------------------------------- */

/* tandem_simulate: one step, once steps repeat themselves: all of *replay but peak_bytes. with_timeline:
 * records when each task begins and ends, too: start_ns … wait_end_ns of the members, wire_start_ns and
 * wire_end_ns. */
void tandem_simulate(tandem_replay *replay, tandem_replayer *replayer, int with_timeline);

/* Of the step that was recorded last: what the task at a place took, which stretch it is in, and how long the
 * class was still in the former lap's list when the recorded one began. */
static inline double tandem_recorded_ns(const tandem_replay_member *member, int place)
{
    return member->end_ns[place] - member->start_ns[place];
}
static inline int tandem_recorded_stretch(const tandem_replay_member *member, int place)
{
    const int n_micro = member->step->options.n_micro,
              a_micro_step = (member->wait_place[0] - member->n_lead) / n_micro;
    if (place < member->n_lead + (n_micro - 1) * a_micro_step) return 0; /* all micro-steps but the last */
    return member->stretch_of[member->block_of[member->task[place]]];
}
static inline double tandem_recorded_rest_ns(const tandem_replay_member *member)
{
    double ns = member->start_ns[member->n_lead];
    for (int i = 0; i < member->n_lead; i++) ns -= tandem_recorded_ns(member, i);
    return ns;
}

/* --- timeline.c: events of each class from the recorded times ------------------------------------------- */
void tandem_timeline_make(tandem_replayer *replayer);

#endif
