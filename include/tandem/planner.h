/* planner.h: from a profile store and the name of a cluster to a plan, in a few calls. A job scheduler needs
 * no other header of tandem. docs/examples/plan.c and tradeoff.c use it.
 *
 * One question has one answer: the command line, Slurm's plug-in and the Python package fill in a
 * tandem_allocation_request and ask here.
 *
 * Distinct threads may use distinct planners at once, also over one store file. Only one thread at a time
 * may use a planner. */
#ifndef TANDEM_PLANNER_H
#define TANDEM_PLANNER_H

#include "tandem/provenance.h"
#include "tandem/workload.h"

TANDEM_BEGIN_DECLARATIONS

/* What to plan. Zero-initialise it, then fill in what differs. Strings are borrowed during the call only. */
typedef struct tandem_request {
    const char *store; /* path of the profile store */
    const char *model; /* "bert_base:layers=4,seq=128" */
    /* the model as n_graph graphs of the caller, one for each batch that a class has: `model` is then not
     * read, and classes that name no batch have that of the first. Borrowed until the planner is closed */
    const tandem_graph *const *graph;
    int n_graph;
    const char *cluster; /* as tandem_cluster_parse reads and tandem_cluster_print writes it */
    int64_t batch;       /* local batch of classes that name none; 0 = TANDEM_DEFAULT_BATCH */
    const char *memory;  /* limit per rank, "12GiB", or per class, "12GiB,4GiB"; NULL = the cluster's */
    const char *method;  /* sensitivity method; NULL = "sampled", which needs an estimate of the model */
    const char *data;    /* data set of the estimate or statistics; NULL = the one measured last */
    const char *base_precision; /* NULL = "fp32" */
    uint64_t bucket_bytes;      /* 0 = 25 MiB */
    /* 1: times that were not measured are predicted where possible. With times_only, a missing store then
     * counts as an empty one. */
    int predict;
    tandem_collective_algorithm collective; /* of all-reduces without a measured curve; 0 = a ring */
    int times_only; /* 1: no sensitivities are loaded: enough to replay plans, too little to allocate */
    /* 1: ranks of one machine, too, all-reduce over the network (cluster.h). 0: as TANDEM_ALLREDUCE says */
    int over_network;
    tandem_dtype wire;        /* what gradients travel in: TANDEM_F32 or TANDEM_BF16 */
    tandem_step_options step; /* of the plans that are replayed, and of those that are made */
    /* 0: a plan has a dynamic loss scale where a backward product of it reads f16, and none elsewhere. Else
     * every plan has this one; < 0 = dynamic. A step with a loss scale has the norm of all gradients */
    double loss_scale;
    int norm_is_given;         /* 1: step.with_norm says whether the steps of all plans have a norm */
    tandem_kernel_set kernels; /* PyTorch's: with predict, on described GPUs */
    int without_update;        /* 1, with PyTorch's kernels: the step ends with the gradients */
    int from_description;      /* 1: what others measured of described devices does not count */
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
    const struct tandem_estimate *estimate;
} tandem_allocation_problem;

/* How good a plan is, among the plans that keep the same classes in base. */
typedef struct tandem_certificate {
    /* in units: no plan within the same target and memory has a smaller sum; −1 = not computed */
    int64_t lower_bound;
    /* (sensitivity_bound − lower_bound) / sensitivity_bound; 0 where the sum is 0; NaN = not computed */
    double gap;
    char proof[24]; /* the method that proved it: "enumerated", "labels", "lagrangian", "zero" */
} tandem_certificate;

typedef struct tandem_allocation {
    char name[48];      /* of the plan; "" = "allocated" */
    int64_t step_ns;    /* of the plan */
    int64_t target_ns;  /* the longest step allowed */
    int64_t base_ns;    /* every class in base */
    int64_t fastest_ns; /* the fastest plan found */
    /* sums of sensitivities in units: of the plan, of the next two; −1 = unknown */
    int64_t sensitivity_bound, base_sensitivity_bound, fastest_sensitivity_bound;
    uint64_t peak_bytes[TANDEM_MAX_CLASS];
    int64_t replays, work; /* of the search; of its proofs, in steps */
    unsigned keeps_base;   /* bit c: class c keeps the base precision */
    tandem_certificate certificate;
    /* step × (1 + sensitivity_bound) where that was minimized; else NaN. No plan whose step is
     * training_from_ns, the fastest found, or longer, and which has the classes of training_keeps_base in
     * base, has less than the bound; NaN: not computed */
    double training_ns, training_bound_ns;
    int64_t training_from_ns;
    unsigned training_keeps_base;
    /* where a faster plan was taken, because its sensitivity is that of the least sensitive one within 1 % of
     * the samples, as far as can be known: the step of the latter, and what the faster plan needs more, in
     * percent of samples, with its 95 % interval. 0, NaN: nothing was traded */
    int64_t indistinguishable_ns;
    double difference, difference_low, difference_high;
} tandem_allocation;

/* The limits that an objective takes: the least sensitivity a target; the fastest step max_sensitivity, and
 * no target or slowdown; the least memory all of them; the least training time none. */
typedef struct tandem_goal {
    tandem_objective objective;
    int64_t max_sensitivity; /* in units; INT64_MAX = any; ignored with TANDEM_MINIMIZE_SENSITIVITY */
} tandem_goal;

/* A model on a cluster with its costs and sensitivities, ready to allocate. */
typedef struct tandem_planner tandem_planner;

/* tandem_planner_open: parses the request, opens the graphs, loads costs and sensitivities, and closes the
 * store again. TANDEM_USAGE, TANDEM_UNKNOWN_NAME, TANDEM_MISSING (what, and the command that measures it),
 * TANDEM_WRONG_MODEL (none of the caller's graphs has the batch of a class), and the errors of
 * tandem_cluster_parse, tandem_graph_open and tandem_store_open: *planner unchanged.
 * Cost: a graph and a step program per class, and one look into the store for each of their costs. */
tandem_status tandem_planner_open(tandem_planner **planner, const tandem_request *request,
                                  tandem_error *error);

/* tandem_planner_open_for: the same for a cluster and graphs of the caller. All classes have their batch;
 * graph[c] is the model at that batch. The planner borrows the graphs. Model, cluster, batch and memory of
 * the request are ignored. */
tandem_status tandem_planner_open_for(tandem_planner **planner, const tandem_request *request,
                                      const tandem_cluster *cluster, const tandem_graph *const *graph,
                                      tandem_error *error);
/* tandem_planner_open_workload: the same for a workload, with the steps, micro-steps and norm of its plan,
 * which is loaded into the replayer. Close the planner first: it borrows the graphs. */
tandem_status tandem_planner_open_workload(tandem_planner **planner, const tandem_request *request,
                                           const tandem_workload *workload, tandem_error *error);
void tandem_planner_close(tandem_planner *planner); /* NULL is fine */

/* The planner owns what these return. The caller may set the problem's fields other than replayer, graph and
 * sensitivity. With times_only, sensitivity is NULL. */
tandem_allocation_problem *tandem_planner_problem(tandem_planner *planner);
const tandem_graph *tandem_planner_graph(const tandem_planner *planner, int c);
const tandem_cluster *tandem_planner_cluster(const tandem_planner *planner);
const char *tandem_planner_method(const tandem_planner *planner); /* the sensitivity method */

/* A sensitivity of a problem in the unit of its method, and back: the largest number of units that is no
 * more than the value. NaN becomes −1, and −1 NaN. Infinity gives INT64_MAX, more than any plan has.
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

/* What a plan makes, and what of it is progress. Sensitivities are percent of more samples to the same loss,
 * with intervals of 95 %; NaN = not known. */
enum { TANDEM_GOODPUT_POINTS = 8, TANDEM_GOODPUT_LARGEST = 3 };
typedef struct tandem_goodput {
    int is_known;                    /* whether the sensitivity is */
    char unknown[TANDEM_ERROR_TEXT]; /* why it is not */
    /* every operator is, and the exchange rounds nothing: the sensitivity is 0, estimated or not */
    int is_fp32;
    double sensitivity, low, high; /* percent; the 95 % interval of sampling: other batches of the estimate */
    /* where 95 % of trainings would lie: as trials scatter about predictions (tandem_prediction_interval) */
    double prediction_low, prediction_high;
    double noise, bias; /* its parts, which may come out negative */
    int n_point; /* at which the model was estimated: percent of its training, and the sensitivity there */
    double point[TANDEM_GOODPUT_POINTS], sensitivity_at[TANDEM_GOODPUT_POINTS];
    int n_largest; /* operators above 0 in one precision, on all classes that run it so; descending */
    struct tandem_goodput_operator {
        char name[64]; /* cut to fit */
        tandem_precision precision;
        double sensitivity, low, high;
    } largest[TANDEM_GOODPUT_LARGEST];
    /* the latest trial of this very plan that the store has (trial.h), beside what is predicted. Percent of
     * more samples than fp32; n_pair 0 = there is none */
    struct tandem_goodput_trial {
        int n_pair, n_diverged, is_emulated;
        int64_t n_step;
        char data[64]; /* cut to fit */
        double extra, low, high;
    } trial;
    /* what is predicted, by trials of the model's other plans whose largest part is of the same kind of
     * errors: 8-bit integers, 8-bit floats or wider numbers. Percent; n_trial 0 = there is none */
    struct tandem_goodput_corrected {
        int n_trial;
        double sensitivity, low, high;
    } corrected;
    int64_t range_batch;  /* that was estimated, where ranges do not convert to the plan's; 0: all convert */
    double samples_per_s; /* of all ranks and micro-steps */
    double goodput;       /* samples_per_s / (1 + sensitivity): training in fp32 that makes as much */
    double fp32_samples_per_s; /* of the same ranks, all in fp32, simulated */
} tandem_goodput;
/* tandem_planner_goodput: of a plan for the planner's model and batches, in a step of plan->step_ns; 0 = no
 * rates. The first call reads the model's estimate from the request's store, and simulates the step in fp32;
 * the replayer's precisions stay, and its last run may be another one. A model without an estimate is no
 * error, nor is an operator without an estimate in its precision. TANDEM_WRONG_MODEL, TANDEM_NO_MEMORY,
 * errors of the store: *goodput unchanged. Cost: an estimate for each operator that is lowered. */
tandem_status tandem_planner_goodput(tandem_goodput *goodput, tandem_planner *planner,
                                     const tandem_plan *plan, tandem_error *error);
/* Sets the rates of another step than the plan's, as one that was measured; fp32_samples_per_s stays. */
void tandem_goodput_set_rate(tandem_goodput *goodput, double samples_per_s);

/* --- A question and its answer ------------------------------------------------------------------------- */

/* What to plan, and which of its plans is wanted: with what the store has, all that an answer depends on.
 * Zero-initialise it, then fill in what differs: that asks for the least training time by policy "exact".
 * Strings are borrowed during the calls that take it. */
typedef struct tandem_allocation_request {
    tandem_request of;
    const char *policy;  /* NULL = the first policy, "exact" */
    const char *uniform; /* of policy "uniform", which needs it: the precision of the class that it lowers */
    /* 0 = what the limits leave: with max_sensitivity the step; with slowdown or max_step_ns the sensitivity;
     * without a limit the training time where the method counts samples and the policy has more than one
     * plan, else the sensitivity at the fastest step */
    tandem_objective minimize;
    int slowdown_is_given;
    double slowdown;     /* 0.03 = a step up to 3 % longer than the fastest */
    int64_t max_step_ns; /* the longest step; 0 = any */
    int max_sensitivity_is_given;
    double max_sensitivity; /* 0.01 = at most 1 % more samples */
    /* samples of a step of all ranks and micro-steps: the best split among the classes is found together with
     * the precisions. 0 = each class has its batch */
    int64_t global_batch;
    int64_t work_limit; /* steps of proofs; 0 = 10^9, some 10 s. The same steps give the same plan */
    unsigned is_free;   /* as in tandem_allocation_problem, as the next two */
    int without_f16_gradients;
    int without_certificate;
} tandem_allocation_request;

/* tandem_allocation_request_check: what is wrong with a question, before a store is read. TANDEM_USAGE:
 * limits that contradict each other, a limit in samples with a method that counts none, policy "uniform"
 * without a precision. TANDEM_UNKNOWN_NAME: of a policy, a precision or a method. */
tandem_status tandem_allocation_request_check(const tandem_allocation_request *request, tandem_error *error);

/* What a checked question minimizes. */
tandem_objective tandem_allocation_request_objective(const tandem_allocation_request *request);

typedef struct tandem_batch_plan {
    int64_t batch[TANDEM_MAX_CLASS]; /* of a rank */
    tandem_plan *plan;               /* NULL: no plan at that split */
    tandem_allocation allocation;
    tandem_goodput goodput; /* of an answer; fp32_samples_per_s is known of `both` alone */
} tandem_batch_plan;
typedef struct tandem_batch_choice {
    tandem_batch_plan precision_alone; /* the most even split; precisions chosen */
    tandem_batch_plan batch_alone;     /* every class in base; the fastest split found */
    tandem_batch_plan both;
    int n_split, n_missing; /* splits tried; of these, splits without all costs */
} tandem_batch_choice;

typedef struct tandem_answer {
    tandem_plan *plan; /* of the answer */
    tandem_goal goal;  /* that was asked for */
    /* The bound is allocation.certificate's, or training_bound_ns. It is of the plans within target_ns and
     * memory that keep the classes of keeps_base, or training_keeps_base, in base */
    tandem_allocation allocation;
    char left_out[TANDEM_ERROR_TEXT]; /* why no plan has gradients in f16, nor the bound; "" = some may */
    tandem_planned_step step;
    tandem_time_sources sources;
    tandem_goodput goodput;
    /* with a global batch: other splits. both.plan is `plan`; else n_split is 0 */
    tandem_batch_choice split;
    tandem_planner *planner; /* of tandem_answer_open: at the plan's batches, with the plan in its replayer */
} tandem_answer;

/* tandem_planner_ask: the best plan for an open planner. Of the request, all but `of` is read. The planner's
 * problem has the request's limits afterwards, its replayer the plan. Close the answer before the planner.
 * Errors of tandem_allocation_request_check. TANDEM_INFEASIBLE: no plan fits, or none reaches the target;
 * names limits that contradict each other. TANDEM_USAGE: a global batch, or a planner opened with times_only.
 * *answer unchanged on error. Cost: about 15 allocations by the policy; of the training time up to 64. */
tandem_status tandem_planner_ask(tandem_answer *answer, tandem_planner *planner,
                                 const tandem_allocation_request *request, tandem_error *error);
/* tandem_answer_open: checks the request, opens a planner and asks it. Errors of tandem_planner_open and
 * tandem_planner_ask. With a global batch TANDEM_USAGE: no split gives all ranks of a class the same whole
 * number of samples. *answer unchanged on error. Cost, with a global batch: tens to hundreds of allocations
 * by policy greedy. */
tandem_status tandem_answer_open(tandem_answer *answer, const tandem_allocation_request *request,
                                 tandem_error *error);
void tandem_answer_close(tandem_answer *answer); /* all zero is fine; all zero afterwards */

/* --- Whether a plan holds where times are predicted -----------------------------------------------------
 * A plan rests on ratios of times between precisions more than on times. */

/* A class's products in a precision, and what becomes of the answer where they take longer, or shorter. */
typedef struct tandem_ratio_shift {
    int c;
    char device[TANDEM_DEVICE_NAME];
    tandem_precision precision;
    double ratio; /* their time over that of fp32, where both are predicted */
    double half;  /* half of its 80 % interval, over the ratio */
    /* [0] at ratio × (1 + half), [1] at ratio / (1 + half): how many operators of all classes have another
     * precision in the answer there; −1: no plan is found. */
    int n_changed[2];
    double gain[2];         /* the share of the plan's step there that this answer saves; may be below 0 */
    char to_measure[2][48]; /* of those that change, the one with most FLOPs: what to measure; "": none */
} tandem_ratio_shift;
enum { TANDEM_MAX_RATIO_SHIFT = 64 };
typedef struct tandem_ratio_check {
    tandem_ratio_shift shift[TANDEM_MAX_RATIO_SHIFT];
    int n; /* 0: no time of two precisions is predicted; as with a global batch, which is not checked */
    int n_left_out; /* beyond the first TANDEM_MAX_RATIO_SHIFT */
} tandem_ratio_check;
/* tandem_answer_check_ratios: asks the answer's question again, with the products of each predicted class
 * and precision shifted to both ends of the ratio's interval, and all others as they are. Leaves the answer's
 * plan and times in its replayer.
 *   planner  the one that gave the answer: of tandem_answer_open, answer->planner
 *   request  what the answer was asked by
 * TANDEM_NO_MEMORY; *check unchanged on error. Cost: two allocations for each, without proofs; of the
 * training time up to 128. */
tandem_status tandem_answer_check_ratios(tandem_ratio_check *check, tandem_planner *planner,
                                         const tandem_answer *answer,
                                         const tandem_allocation_request *request, tandem_error *error);

TANDEM_END_DECLARATIONS
#endif
