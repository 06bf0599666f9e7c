/* planner.h: from a profile store and the name of a cluster to a plan, in a few calls. A job scheduler needs
 * no other header of tandem. docs/examples/plan.c and tradeoff.c use it.
 *
 * Distinct threads may use distinct planners at once, also over one store file. Only one thread at a time
 * may use a planner. */
#ifndef TANDEM_PLANNER_H
#define TANDEM_PLANNER_H

#include "tandem/workload.h"

TANDEM_BEGIN_DECLARATIONS

/* What to plan. Zero-initialise it, then fill in what differs. Strings are borrowed during the call only. */
typedef struct tandem_request {
    const char *store;   /* path of the profile store */
    const char *model;   /* "bert_base:layers=4,seq=128" */
    const char *cluster; /* as tandem_cluster_parse reads and tandem_cluster_print writes it */
    int64_t batch;       /* local batch of classes that name none; 0 = TANDEM_DEFAULT_BATCH */
    const char *memory;  /* limit per rank, "12GiB", or per class, "12GiB,4GiB"; NULL = the cluster's */
    const char *method;  /* sensitivity method; NULL = "sampled", which needs a sensing of the model */
    const char *data;    /* data set of the sensing or statistics; NULL = the one measured last */
    const char *base_precision; /* NULL = "fp32" */
    uint64_t bucket_bytes;      /* 0 = 25 MiB */
    /* 1: times that were not measured are predicted where possible. With times_only, a missing store then
     * counts as an empty one. */
    int predict;
    tandem_collective_algorithm collective; /* of all-reduces without a measured curve; 0 = a ring */
    int times_only;    /* 1: no sensitivities are loaded: enough to replay plans, too little to allocate */
    int over_network;  /* 1: ranks of one machine, too, all-reduce over the network (cluster.h) */
    tandem_dtype wire; /* what gradients travel in: TANDEM_F32 or TANDEM_BF16 */
    tandem_step_options step; /* of the plans that are replayed, and of those that are made */
    /* 0: a plan has a dynamic loss scale where a backward product of it reads f16, and none elsewhere. Else
     * every plan has this one; < 0 = dynamic. A step with a loss scale has the norm of all gradients */
    double loss_scale;
    int norm_is_given;         /* 1: step.with_norm says whether the steps of all plans have a norm */
    tandem_kernel_set kernels; /* PyTorch's: with predict, on described GPUs */
    int without_update;        /* 1, with PyTorch's kernels: the step ends with the gradients */
} tandem_request;

/* What a policy minimizes, and within which limits (docs/allocation.md). */
typedef struct tandem_allocation_problem {
    struct tandem_replayer *replayer; /* policies change its precisions freely */
    const tandem_graph *graph;        /* operators are the same in every class */
    /* [n_op × TANDEM_N_PRECISION] of each class, ≥ 0: what it adds to the plan's sensitivity, with the
     * class's part of the global batch, in whole units. The largest sum of a plan is below 2^53. */
    const int64_t *sensitivity[TANDEM_MAX_CLASS];
    double sensitivity_unit; /* of the method's own unit; 0 = 1 */
    tandem_precision base_precision;
    tandem_precision uniform; /* policy "uniform": the precision of the class that it lowers */
    double slowdown;          /* 0.03 = a step up to 3 % longer than the fastest; ignored with target_ns */
    int64_t target_ns;        /* the longest step allowed; 0 = fastest × (1 + slowdown) */
    int64_t work_limit; /* steps of proofs; 0 = 10^9, some 10 s. The last 1 % of a gap gets 3 % of them */
    /* 1: only plans none of whose backward products reads f16 */
    int without_f16_gradients;
    /* Bit c: class c need not be able to keep the base precision as a whole: its operators may have any; see
     * tandem_allocation.keeps_base */
    unsigned is_free;
    double loss_scale;                          /* of every plan; 0 = what each plan needs (tandem_request) */
    struct tandem_known_fastest *known_fastest; /* the allocator's own; NULL */
    int without_certificate;     /* 1: plans of policies that prove nothing are not certified */
    uint64_t memory_limit_bytes; /* per rank of any class, beside the class's own limit; 0 = none */
    /* from which the sensitivities are, where the method has intervals; NULL = it has none. Proofs then end
     * where the gap is within the plan's own interval, at most 1 % of the samples */
    const struct tandem_sensing *sensing;
    double sensitivity_floor; /* share of samples: less is no measurable loss; 0 = not known */
} tandem_allocation_problem;

/* How good a plan is, among the plans that keep the same classes in base. */
typedef struct tandem_certificate {
    /* in units: no plan within the same target and memory has less sensitivity; −1 = not computed */
    int64_t lower_bound;
    /* (sensitivity − lower_bound) / sensitivity; 0 where the sensitivity is 0; NaN = not computed */
    double gap;
    char proof[24]; /* the method that proved it: "enumerated", "labels", "lagrangian", "zero" */
} tandem_certificate;

typedef struct tandem_allocation {
    char name[48];                                              /* of the plan; "" = "allocated" */
    int64_t step_ns;                                            /* of the plan */
    int64_t target_ns;                                          /* the longest step allowed */
    int64_t base_ns;                                            /* every class in base */
    int64_t fastest_ns;                                         /* the fastest plan found */
    int64_t sensitivity, base_sensitivity, fastest_sensitivity; /* in units; −1 = unknown */
    uint64_t peak_bytes[TANDEM_MAX_CLASS];
    int64_t replays, work; /* of the search; of its proofs, in steps */
    unsigned keeps_base;   /* bit c: class c keeps the base precision */
    tandem_certificate certificate;
    /* step × (1 + sensitivity) where that was minimized; else NaN. No plan whose step is training_from_ns,
     * the fastest found, or longer, and which has the classes of training_keeps_base in base, has less than
     * the bound; NaN: not computed */
    double training_ns, training_bound_ns;
    int64_t training_from_ns;
    unsigned training_keeps_base;
    /* where a faster plan was taken, because nothing tells its sensitivity from that of the least sensitive
     * plan, or because it lies below the floor: the step of that plan, and what this one needs more, in
     * percent of samples, with its 95 % interval. 0, NaN: nothing was traded */
    int64_t indistinguishable_ns;
    double difference, difference_low, difference_high;
} tandem_allocation;

typedef enum tandem_objective {
    TANDEM_MINIMIZE_SENSITIVITY, /* within the target */
    TANDEM_MINIMIZE_STEP,        /* within max_sensitivity; target and slowdown are ignored */
    TANDEM_MINIMIZE_MEMORY,      /* the largest peak of any rank, within target and max_sensitivity */
    /* step × (1 + sensitivity): the time to the same loss, in fp32's samples; target, slowdown and
     * max_sensitivity are ignored. Needs a method in percent */
    TANDEM_MINIMIZE_TRAINING_TIME
} tandem_objective;
typedef struct tandem_goal {
    tandem_objective objective;
    int64_t max_sensitivity; /* in units; INT64_MAX = any; ignored with TANDEM_MINIMIZE_SENSITIVITY */
} tandem_goal;

/* A model on a cluster with its costs and sensitivities, ready to allocate. */
typedef struct tandem_planner tandem_planner;

/* tandem_planner_open: parses the request, opens the graphs, loads costs and sensitivities, and closes the
 * store again. TANDEM_USAGE, TANDEM_UNKNOWN_NAME, TANDEM_MISSING (what, and the command that measures it),
 * and the errors of tandem_cluster_parse, tandem_graph_open and tandem_store_open: *planner unchanged.
 * Cost: a graph and a step program per class, and one look into the store for each of their costs. */
tandem_status tandem_planner_open(tandem_planner **planner, const tandem_request *request,
                                  tandem_error *error);

/* tandem_planner_open_for: the same for a cluster and graphs of the caller. All classes have their batch;
 * graph[c] is the model at that batch. The planner borrows the graphs. Model, cluster, batch and memory of
 * the request are ignored. */
tandem_status tandem_planner_open_for(tandem_planner **planner, const tandem_request *request,
                                      const tandem_cluster *cluster, const tandem_graph *const *graph,
                                      tandem_error *error);
void tandem_planner_close(tandem_planner *planner); /* NULL is fine */

/* The planner owns what these return. The caller may set the problem's fields other than replayer, graph and
 * sensitivity. With times_only, sensitivity is NULL. */
tandem_allocation_problem *tandem_planner_problem(tandem_planner *planner);
const tandem_graph *tandem_planner_graph(const tandem_planner *planner, int c);
const tandem_cluster *tandem_planner_cluster(const tandem_planner *planner);
const char *tandem_planner_method(const tandem_planner *planner); /* the sensitivity method */

/* A sensitivity of a problem in the unit of its method, and back: the largest number of units that is no
 * more than the value. NaN and −1 stand for each other. Infinity gives INT64_MAX, more than any plan has.
 *
 * A planner's units: a method in percent has millionths of a percent, each divided into as many parts as
 * there are operators in all classes, or up to twice as many. What an operator adds is rounded up to a
 * millionth; a lowered one adds one part more. So sums are exact, and of plans that are equal to a millionth
 * the one with fewer lowered operators has less. A method in another unit only ranks: its unit is a power of
 * two, so fine that the largest sum is 2^51 or more. */
double tandem_sensitivity_value(const tandem_allocation_problem *problem, int64_t units);
int64_t tandem_sensitivity_units(const tandem_allocation_problem *problem, double value);

/* One simulated step. Of each class, the first three times sum to step_ns. */
typedef struct tandem_planned_step {
    int64_t step_ns;
    int n_class, slowest; /* the class that finishes its backward pass last */
    struct tandem_planned_class {
        int64_t busy_ns;         /* a rank computes */
        int64_t exposed_comm_ns; /* it waits while gradients are reduced */
        int64_t wait_ns;         /* it waits for another class */
        uint64_t peak_bytes;     /* of memory, as our executor would use it */
        int64_t sample_per_step; /* of all its ranks */
    } classes[TANDEM_MAX_CLASS];
    int64_t
        measured_ppm; /* share of the compute time that was measured; the rest is interpolated or predicted */
} tandem_planned_step;
/* tandem_planner_replay: simulates a step of a plan for the planner's model and cluster.
 * TANDEM_WRONG_MODEL: of another one. TANDEM_MISSING: a time was not measured. TANDEM_NO_MEMORY. *step
 * unchanged on error. Cost: a replay and a plan of memory. */
tandem_status tandem_planner_replay(tandem_planned_step *step, tandem_planner *planner,
                                    const tandem_plan *plan, tandem_error *error);

/* tandem_planner_goal: what is asked for where nothing is. TANDEM_MINIMIZE_TRAINING_TIME: the method counts
 * samples, the problem has neither a target nor a slowdown, and the policy (NULL = the first) more than one
 * plan. Else TANDEM_MINIMIZE_SENSITIVITY, also for an unknown policy. */
tandem_goal tandem_planner_goal(const tandem_planner *planner, const char *policy);

/* tandem_planner_allocate: runs a policy on the planner's problem, for the goal of tandem_planner_goal; NULL
 * = the first policy, "exact". The caller closes *plan. TANDEM_INFEASIBLE: no plan fits, or none reaches the
 * target. TANDEM_UNKNOWN_NAME. TANDEM_USAGE: opened with times_only. Outputs unchanged on error. */
tandem_status tandem_planner_allocate(tandem_plan **plan, tandem_allocation *allocation,
                                      tandem_planner *planner, const char *policy, tandem_error *error);

/* tandem_planner_allocate_for: the same for any goal. A largest sensitivity of 1 % of samples is
 * tandem_sensitivity_units(problem, 1). TANDEM_USAGE, too: the policy has a single plan, a target contradicts
 * the goal, or the goal needs a method in percent: TANDEM_MINIMIZE_STEP and TANDEM_MINIMIZE_TRAINING_TIME do.
 * TANDEM_INFEASIBLE names limits that contradict each other. */
tandem_status tandem_planner_allocate_for(tandem_plan **plan, tandem_allocation *allocation,
                                          tandem_planner *planner, const tandem_goal *goal,
                                          const char *policy, tandem_error *error);

TANDEM_END_DECLARATIONS
#endif
