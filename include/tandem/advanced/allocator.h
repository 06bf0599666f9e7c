/* allocator.h: chooses a precision for every adjustable operator of every class, and says how far the plan
 * is from the best one.
 *
 * A policy minimizes the sensitivity of the plan, subject to the step target and to the memory of each
 * class. The sensitivity of a plan is Σ_c Σ_op sensitivity_c(op, precision), each with class c's part of the
 * global batch: whole numbers, so that sums and bounds are exact. docs/allocation.md states the problem in
 * full.
 *
 * Micro-steps and recomputation are options of the replayer (tandem_replayer_options.step). A plan is made
 * for them and records them.
 *
 * Lowering a class that is not on the critical path costs accuracy and saves no time, so the class keeps the
 * base precision (`keeps_base`). The default target is (1 + slowdown) × the step of the fastest plan found
 * under that constraint. The class that is fastest in base keeps it, unless it exceeds its memory or the
 * given target is shorter. */
#ifndef TANDEM_ALLOCATOR_H
#define TANDEM_ALLOCATOR_H

#include "tandem/planner.h"
#include "tandem/advanced/predictor.h"
#include "tandem/advanced/replayer.h"

TANDEM_BEGIN_DECLARATIONS

typedef struct tandem_policy {
    const char *name, *meaning;
    int ignores_target; /* 1: it has one plan for every target */
    int takes_uniform;  /* 1: it needs problem->uniform; all others ignore it */
    /* the plan of its own that a slowdown counts from; NULL: the fastest one found */
    const char *slowdown_from;
    /* Chooses an assignment of the problem's shape and fills in what it knows of *allocation. It may leave
     * any precisions in the replayer. TANDEM_INFEASIBLE: no plan that it can reach fits; names the device,
     * the bytes of the smallest plan and the limit. Outputs are unspecified on error. */
    tandem_status (*allocate)(const tandem_allocation_problem *problem, tandem_assignment *assignment,
                              tandem_allocation *allocation, tandem_error *error);
} tandem_policy;

/* The policies, one per file in allocator/policy/; NULL after the last. The first is the default. */
const tandem_policy *tandem_policy_get(int index);
/* TANDEM_UNKNOWN_NAME: names the nearest one. */
tandem_status tandem_policy_find(const tandem_policy **policy, const char *name, tandem_error *error);

/* tandem_allocate: runs a policy, replays its assignment again and makes a plan of it. All values in
 * *allocation come from that replay. `method` names the sensitivity method; NULL = none. Leaves the plan in
 * the replayer. The caller closes *plan. Outputs unchanged on error. */
tandem_status tandem_allocate(tandem_plan **plan, tandem_allocation *allocation, const tandem_policy *policy,
                              const tandem_allocation_problem *problem, const char *method,
                              tandem_error *error);

/* tandem_certify: a lower bound on the sensitivity of every plan within target_ns and memory that keeps the
 * classes of keeps_base in base; compares `sensitivity` with it. Uses nothing but the problem's costs. Takes
 * at most the work of problem->work_limit. Leaves the replayer's precisions as they were. *certificate
 * unchanged on error. */
tandem_status tandem_certify(tandem_certificate *certificate, const tandem_allocation_problem *problem,
                             int64_t target_ns, unsigned keeps_base, int64_t sensitivity,
                             tandem_error *error);

/* tandem_plan_verify: checks a plan by the public replay call alone: its precisions exist, its step, peak
 * memory and sensitivity are as replayed, it is within its target and the cluster's memory, and its bound
 * holds. TANDEM_OK: *allocation has what was found. TANDEM_INFEASIBLE: it exceeds a limit. TANDEM_MALFORMED:
 * a value of the plan differs from the one found here; names it and both values. */
tandem_status tandem_plan_verify(tandem_allocation *allocation, const tandem_plan *plan,
                                 const tandem_allocation_problem *problem, tandem_error *error);

/* Sensitivity of the replayer's current precisions, in units. */
int64_t tandem_allocation_sensitivity(const tandem_allocation_problem *problem);

/* --- Other objectives -----------------------------------------------------------------------------------
 * */

/* tandem_allocate_for: tandem_allocate for any goal. It bisects over the objective's value, asks the policy
 * for a plan at each point, and ends within 1/4096 of the value. A plan that the policy does not find counts
 * as infeasible. With an estimate in the problem, the least sensitivity gives way to the fastest plan found
 * that cannot be distinguished from it, by an interval of the difference that holds 0 and ends within 1 % of
 * the samples, and that trains no longer (tandem_allocation.indistinguishable_ns). That search takes some 12
 * allocations more, where the target leaves room for a faster plan. TANDEM_INFEASIBLE: names the limits that
 * contradict each other. TANDEM_USAGE: the policy ignores targets; TANDEM_MINIMIZE_STEP or
 * TANDEM_MINIMIZE_TRAINING_TIME has a target; the latter has a method in another unit than percent. Cost:
 * about 15 allocations; of the training time up to 64, until it is within 1/1024 of the bound. */
tandem_status tandem_allocate_for(tandem_plan **plan, tandem_allocation *allocation, const tandem_goal *goal,
                                  const tandem_policy *policy, const tandem_allocation_problem *problem,
                                  const char *method, tandem_error *error);

/* How far the step of a plan may be off because of the profile alone: half the widest interval of the
 * cluster's devices over the step, from the store at `path`; NaN where it is not known. */
double tandem_profile_interval(const char *path, const tandem_cluster *cluster);

/* --- Sensitivities after a planner was opened -----------------------------------------------------------
 * */

/* tandem_planner_load_sensitivities: for a planner that was opened with times_only: those of its store, as
 * tandem_planner_open loads them. On error there are none: TANDEM_MISSING, errors of the store. Cost: a look
 * into the store per class. */
tandem_status tandem_planner_load_sensitivities(tandem_planner *planner, tandem_error *error);

/* tandem_planner_set_estimate: gives a planner the sensitivities of method "sampled" that follow from
 * `estimate`, of the same model, also where it was opened with times_only. Each precision that an operator
 * can have must be estimated in the AMP dtype of each class: else TANDEM_MISSING. TANDEM_USAGE: gradients
 * without variance. TANDEM_NO_MEMORY. The planner is unchanged on error. Cost: an estimate per operator and
 * precision. `estimate` is borrowed: plans that it cannot distinguish are found by its replicates. */
tandem_status tandem_planner_set_estimate(tandem_planner *planner, const tandem_estimate *estimate,
                                          tandem_error *error);

/* tandem_planner_trial: the trial of a plan of the planner's model against fp32 that the store had when the
 * planner opened; on the plan's devices before emulated ones, and the latest. NULL: there is none. The
 * planner keeps it. Cost: O(trials of the model). */
const struct tandem_trial_record *tandem_planner_trial(const tandem_planner *planner,
                                                       const tandem_plan *plan);
/* tandem_planner_estimate: the estimate of the planner's model that its goodputs follow from; the planner
 * owns it. *estimate NULL: there is none, for the reason *why_none. The first call reads the store. Errors of
 * the store: outputs unchanged. */
tandem_status tandem_planner_estimate(const tandem_estimate **estimate, const char **why_none,
                                      tandem_planner *planner, tandem_error *error);

/* --- Baselines ------------------------------------------------------------------------------------------
 * */

typedef enum tandem_baseline_relation {
    TANDEM_BASELINE_OTHER,
    TANDEM_BASELINE_BASE,   /* every class in base */
    TANDEM_BASELINE_FASTER, /* the slowest baseline that is not slower than the plan */
    TANDEM_BASELINE_SLOWER  /* the fastest baseline that is slower */
} tandem_baseline_relation;
typedef struct tandem_baseline {
    char name[48]; /* "all fp32", "uniform int8" */
    tandem_precision precision;
    tandem_baseline_relation relation;
    int64_t step_ns;
    int64_t sensitivity_bound; /* in units */
    uint64_t peak_bytes[TANDEM_MAX_CLASS];
    int fits;         /* the memory of every class */
    unsigned lowered; /* bit c: class c has the precision; the others have base */
} tandem_baseline;

/* tandem_baselines_find: plans to compare `plan` with. The first has every class in base. The others, in
 * order of their step, give one precision to the classes that `plan` lowers and base to the rest. If it
 * lowers none, they lower the class that is slowest in base. Precisions that a device lacks or that have no
 * costs are left out. Leaves `plan` in the replayer. Cost: a replay each. */
tandem_status tandem_baselines_find(tandem_baseline baseline[TANDEM_N_PRECISION], int *n_baseline,
                                    const tandem_allocation_problem *problem, const tandem_plan *plan,
                                    tandem_error *error);

/* tandem_baseline_goodput: of a baseline that was found beside `plan` (tandem_planner_goodput). */
tandem_status tandem_baseline_goodput(tandem_goodput *goodput, tandem_planner *planner,
                                      const tandem_baseline *baseline, const tandem_plan *plan,
                                      tandem_error *error);

/* --- The Pareto front of step and sensitivity -----------------------------------------------------------
 * */

typedef struct tandem_pareto_point {
    int64_t target_ns, step_ns; /* asked for; reached */
    int64_t sensitivity_bound;  /* in units */
    int64_t lower_bound;        /* of plans within target_ns; −1 = not computed */
    uint64_t peak_bytes;        /* the largest of any rank */
    tandem_plan *plan;          /* owned by the front */
} tandem_pareto_point;
typedef struct tandem_pareto_front {
    /* [n_point] by step; none is as good as another in step, sensitivity and memory */
    tandem_pareto_point *point;
    int n_point;
    tandem_baseline baseline[TANDEM_N_PRECISION]; /* on the front or not; base first */
    int n_baseline;
    int64_t replays;
} tandem_pareto_front;

/* tandem_pareto_front_open: the plans of `policy` for n_target steps from the fastest to that of base, and
 * the baselines that fit. Equal and dominated points are left out. Errors of tandem_allocate; TANDEM_USAGE:
 * n_target < 2, or the policy ignores targets. Cost: n_target allocations. */
tandem_status tandem_pareto_front_open(tandem_pareto_front **front, const tandem_policy *policy,
                                       const tandem_allocation_problem *problem, int n_target,
                                       tandem_error *error);
void tandem_pareto_front_close(tandem_pareto_front *front); /* NULL is fine */

/* --- Why an operator has its precision ------------------------------------------------------------------
 * */

/* A precision that an operator could have on a class. Differences are to the plan in the replayer, with this
 * one operator changed. */
typedef struct tandem_choice {
    tandem_precision precision;
    int is_chosen;
    int is_measured;     /* 0: a time of it is missing, and the fields after `sensitivity` are 0 */
    int64_t sensitivity; /* its part of the plan's, in units */
    /* time of the operator's own tasks, with the casts of its weights and saved inputs; contended where
     * ranks share a machine */
    int64_t self_ns;
    int64_t step_delta_ns;    /* of the step */
    int64_t peak_delta_bytes; /* of the class's peak */
    int64_t excess_ns;        /* of the step over the target; 0 = within */
    uint64_t excess_bytes;    /* of the class's peak over its limit; 0 = within */
} tandem_choice;

/* tandem_choices_explain: the precisions that operator `op` could have on class c, widest first, compared
 * with the plan in the replayer, which stays there. target_ns: 0 = none. TANDEM_USAGE: the operator is not
 * adjustable. Cost: a replay each. */
tandem_status tandem_choices_explain(tandem_choice choice[TANDEM_N_PRECISION], int *n_choice,
                                     const tandem_allocation_problem *problem, int64_t target_ns, int c,
                                     int op, tandem_error *error);

/* --- Why no plan fits -----------------------------------------------------------------------------------
 * */

typedef struct tandem_memory_deficit {
    int c;
    uint64_t peak_bytes, limit_bytes; /* per rank, of the smallest plan found */
    int64_t batch; /* the largest that fits; 0 = not even 1 does; −1 = it was captured at this one alone */
} tandem_memory_deficit;

/* tandem_memory_deficits_find: the classes whose smallest plan exceeds their memory at their batch.
 * *n_deficit = 0: memory is not the reason. Needs no times. Changes the replayer's precisions. Cost: several
 * memory plans for each operator and precision, and one for each halving of the batch. */
tandem_status tandem_memory_deficits_find(tandem_memory_deficit deficit[TANDEM_MAX_CLASS], int *n_deficit,
                                          const tandem_allocation_problem *problem, tandem_error *error);

/* A change to a plan that saves memory, with the values of the changed plan. */
typedef struct tandem_remedy {
    char what[128]; /* "--recompute sqrt" */
    uint64_t peak_bytes;
    int64_t step_ns; /* −1 = a cost is missing */
    int fits;
} tandem_remedy;
enum { TANDEM_MAX_REMEDIES = 12 };
/* tandem_remedies_find: changes that save memory for class c of a workload, which needs peak_bytes: the
 * fastest fitting recomputation, micro-steps, both, lower precisions, smaller buckets, and the largest
 * fitting batch. Each is planned and replayed.
 *   request  what planners are opened with, besides the workload
 *   sharding of ZeRO, whose shards count; NULL = none
 * Errors of tandem_planner_open_workload. Cost: a planner for each change that is tried, some 20. */
tandem_status tandem_remedies_find(tandem_remedy remedy[TANDEM_MAX_REMEDIES], int *n,
                                   const tandem_request *request, const tandem_workload *workload,
                                   const tandem_sharding *sharding, int c, uint64_t peak_bytes,
                                   tandem_error *error);

/* --- Precisions and batches together --------------------------------------------------------------------
 * */

/* Opens problems at other batches. */
typedef struct tandem_batch_source {
    void *context;
    /* The problem with batch[c] on every rank of class c. The source owns it until close. TANDEM_MISSING:
     * the split is passed over. */
    tandem_status (*open)(void *context, const int64_t batch[TANDEM_MAX_CLASS],
                          tandem_allocation_problem **problem, tandem_error *error);
    void (*close)(void *context, tandem_allocation_problem *problem);
} tandem_batch_source;

/* tandem_batch_choose: splits global_batch among the classes and chooses the precisions: the least
 * sensitivity within target_ns. 0 = (1 + slowdown) × the fastest step found over all splits. With neither,
 * slowdown < 0: the least step × (1 + sensitivity) over all splits where the method counts samples and the
 * policy has more than one plan; else the least sensitivity at the fastest step. All ranks of a class get the
 * same whole number of samples. TANDEM_USAGE: no such split exists. TANDEM_MISSING: no split has all its
 * costs; says what the most even one lacks. TANDEM_INFEASIBLE. *choice unchanged on error; release it with
 * tandem_batch_choice_free. Cost: tens to hundreds of allocations by policy greedy, three by `policy`;
 * of the least training time each split that may have it takes up to 64, and the three as many. */
tandem_status tandem_batch_choose(tandem_batch_choice *choice, const tandem_cluster *cluster,
                                  int64_t global_batch, const tandem_batch_source *source,
                                  const tandem_policy *policy, const char *method, int64_t target_ns,
                                  double slowdown, tandem_error *error);
void tandem_batch_choice_free(tandem_batch_choice *choice);

TANDEM_END_DECLARATIONS
#endif
