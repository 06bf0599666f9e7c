/* stages.h: what the stages of a replay hand on to each other: costs, wire, lists to run, simulation,
 * timeline; private to replayer/. */
#ifndef TANDEM_REPLAYER_STAGES_H
#define TANDEM_REPLAYER_STAGES_H

#include "tandem/predictor.h"
#include "tandem/replayer.h"

enum { TANDEM_ALONE, TANDEM_BESIDE, TANDEM_N_COMPANY }; /* whether a neighbour computes meanwhile */

/* --- costs.c: what each form of each task costs --------------------------------------------------------- */

typedef struct tandem_form {
    int64_t ns[TANDEM_N_COMPANY]; /* −1 = not measured, or no such form */
} tandem_form;

typedef struct tandem_costs {
    tandem_form *form; /* [n_task × TANDEM_MAX_VARIANT]; of a reduce: with idle and with busy ranks */
    uint64_t *workspace_bytes;                 /* the same; 0 where nothing is known */
    unsigned char (*origin)[TANDEM_N_COMPANY]; /* the same: tandem_origin of each time */
    float (*spread)[TANDEM_N_COMPANY];         /* the same, of what was predicted; NULL = nothing was */
    int64_t n_fitted[TANDEM_N_COMPANY];
} tandem_costs;

/* Where costs of a class come from. */
typedef struct tandem_cost_source {
    tandem_store *store; /* NULL = nothing was measured */
    const tandem_device *device;
    const char *neighbour; /* "" = there is none */
    int predict;           /* whether to predict what was not measured at all */
} tandem_cost_source;

/* tandem_costs_map: costs of all forms of all tasks of `step` but its reduces, whose forms are left at −1.
 * TANDEM_MISSING where there is none at all, TANDEM_NO_MEMORY, what the store says. *costs is unchanged on
 * error. Cost: O(tasks × forms) searches. */
tandem_status tandem_costs_map(tandem_costs *costs, const tandem_step *step, const tandem_cost_source *source,
                               tandem_error *error);
/* Whether a form that exists has no time in that company. */
int tandem_costs_lack(const tandem_costs *costs, const tandem_step *step, int company);
/* tandem_costs_fill_batches (batches.c): times in one company that are missing in *costs, from those at other batches. */
tandem_status tandem_costs_fill_batches(tandem_costs *costs, const tandem_step *step, int company,
                                        const tandem_cost_source *source, tandem_error *error);
void tandem_costs_free(tandem_costs *costs);
/* TANDEM_MISSING for task `t` in a form. beside: the neighbour beside whom its time is not known, "" = alone; `neighbour` is
 * measured along with it; more: "" or what else is missing, as part of the sentence. */
tandem_status tandem_costs_missing(const tandem_step *step, int t, int variant, const char *device,
                                   const char *beside, const char *neighbour, const char *more, tandem_error *error);

/* --- collective.c: what an all-reduce costs ------------------------------------------------------------- */

/* tandem_collective_fit: latency + bytes · ns_per_byte, both ≥ 0, through the upper part of a measured curve: the points of at least
 * a 16th of the last one's bytes, or the last three, by robust regression of relative errors (predictor/robust.h). n ≥ 1
 * points ascending in bytes; of one point, in proportion to its bytes. TANDEM_NO_MEMORY. */
typedef struct tandem_collective_line {
    double latency_ns, ns_per_byte, spread;
} tandem_collective_line;
tandem_status tandem_collective_fit(tandem_collective_line *line, const tandem_collective_point *point, int n,
                                    tandem_error *error);

/* tandem_collective_curve_ns: time at `bytes` on a measured curve: a straight line between two points; the first
 * point's time below it; beyond the last that of `line`, but no less than the last one's. */
double tandem_collective_curve_ns(const tandem_collective_point *point, int n,
                                  const tandem_collective_line *line, uint64_t bytes);

/* tandem_collective_ring_ns: a ring all-reduce among n ranks: 2(n−1) messages of bytes/n one after the other.
 * Source: Patarasuk, Yuan, J. Parallel Distrib. Comput. 69 (2009). */
double tandem_collective_ring_ns(int n_rank, uint64_t bytes, double link_bytes_per_s, int64_t link_latency_ns);

/* tandem_collective_times: of each of n buckets, idle_ns[b] where no rank computes meanwhile and
 * loaded_ns[b] where some do, and where they come from. 0 for a single rank. TANDEM_MISSING where there
 * is neither curve nor link. */
tandem_status tandem_collective_times(double *idle_ns, double *loaded_ns, tandem_exchange *exchange,
                                      const tandem_cluster *cluster, const tandem_bucket *bucket,
                                      int n_bucket, tandem_store *store, tandem_error *error);

/* --- A class -------------------------------------------------------------------------------------------- */

typedef struct tandem_replay_member {
    tandem_step *step;
    tandem_costs costs;
    char device[TANDEM_DEVICE_NAME];
    char neighbour[TANDEM_DEVICE_NAME]; /* the device busy beside it; "" = none ever */
    int shares_node;                    /* with the other classes that say so */
    int is_own_neighbour;               /* another rank of the class is on its node */
    double slowed;      /* how many times longer compute takes while a bucket is on the wire */
    int changed;        /* precisions are not yet in what follows */
    int memory_changed; /* … nor in `memory` */
    /* The list to run, in the order in which it repeats: the update of the last bucket, the forward and
     * backward tasks, the other updates. sum[company][i] is the time of the i tasks before place i. */
    int n_place;
    int *task;                      /* [n_place] */
    int64_t *sum[TANDEM_N_COMPANY]; /* [n_place + 1] */
    int *stop; /* [2 × n_bucket] places, ascending: where bucket b is handed over; then where bucket b must be
                  through, the last of which is n_place */
    uint64_t *workspace_bytes; /* [n_task] of the current forms */
    tandem_memory memory;
    /* The timeline: of each place and each wait, ns since the simulation began; then in order, from the
     * begin of the step */
    double *start_ns, *end_ns;           /* [n_task] by place */
    double *wait_start_ns, *wait_end_ns; /* [n_bucket] */
    tandem_trace_event *event;           /* [n_task + n_bucket] */
    int n_event;
} tandem_replay_member;

struct tandem_replayer {
    tandem_cluster cluster;
    tandem_replay_member *member; /* [n_class] */
    int n_class, n_bucket;
    tandem_exchange exchange;
    double *idle_ns, *loaded_ns;         /* [n_bucket] of the all-reduces */
    double *wire_start_ns, *wire_end_ns; /* [n_bucket] of the timeline */
};

/* tandem_replay_list: the list to run of the current, resolved plan. TANDEM_MISSING names the first cost
 * that is not there. */
tandem_status tandem_replay_list(tandem_replay_member *member, int n_bucket, tandem_error *error);

/* --- simulate.c ----------------------------------------------------------------------------------------- */

/* tandem_simulate: one step, once steps repeat themselves: all of *replay but peak_bytes. with_timeline:
 * records when each task begins and ends, too: start_ns … wait_end_ns of the members, wire_start_ns and
 * wire_end_ns. */
void tandem_simulate(tandem_replay *replay, tandem_replayer *replayer, int with_timeline);

/* --- timeline.c: events of each class from the recorded times ------------------------------------------- */
void tandem_timeline_make(tandem_replayer *replayer);

#endif
