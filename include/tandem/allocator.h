/* allocator.h: chooses a precision for every adjustable operator of every class, and says how far from the
 * best it is.
 *
 * Minimise the plan's sensitivity subject to the step target and each class's memory. A plan's sensitivity is
 * Σ_c share_c · Σ_op sensitivity_c(op, precision), share_c = the class's part of the global batch.
 * docs/allocation.md states the problem in full.
 *
 * Micro-steps and recomputation are the replayer's (tandem_replayer_options.step): plans are made for them,
 * and say so.
 *
 * A class that would only wait keeps the base precision: such classes are *held*. Unless a target is given,
 * it is the step of the fastest plan found that keeps them, times 1 + slowdown. The fastest class in base is
 * held whenever it fits its memory and no target asks for more. */
#ifndef TANDEM_ALLOCATOR_H
#define TANDEM_ALLOCATOR_H

#include "tandem/predictor.h"
#include "tandem/replayer.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

typedef struct tandem_allocation_problem {
    tandem_replayer *replayer; /* its precisions are changed freely */
    const tandem_graph *graph; /* operators are the same in every class */
    /* [n_op × TANDEM_N_PRECISION] of each class; see predictor.h */
    const double *sensitivity[TANDEM_MAX_CLASS];
    tandem_precision base_precision;
    tandem_precision uniform; /* policy "uniform": what lowered classes get */
    /* 0.03 = the step may be 3 % longer than the fastest; not looked at with a target */
    double slowdown;
    int64_t target_ns;       /* 0 = none given: fastest · (1 + slowdown) */
    double time_limit_s;     /* for proofs; 0 = 10 s. The last hundredth of a gap gets 3 % of it, or 0.3 s */
    int without_certificate; /* 1: plans of policies that prove nothing are not certified */
    uint64_t memory_limit_bytes; /* a rank of any class, beside the class's own limit; 0 = none */
} tandem_allocation_problem;

/* What is known of how good a plan is. It is about plans that keep the held classes in base. */
typedef struct tandem_certificate {
    /* no plan within the same target and memory has less sensitivity; NAN = none computed */
    double lower_bound;
    double gap;     /* (sensitivity − lower_bound) / sensitivity; 0 where the sensitivity is 0 */
    char proof[24]; /* which method proved it: "enumerated", "labels", "lagrangian", "zero" */
} tandem_certificate;

typedef struct tandem_allocation {
    char name[48]; /* of the plan; "" = "allocated" */
    /* of the plan; allowed; all classes in base; fastest plan found */
    int64_t step_ns, target_ns, base_ns, fastest_ns;
    double sensitivity, base_sensitivity, fastest_sensitivity;
    uint64_t peak_bytes[TANDEM_MAX_CLASS];
    int64_t replays;
    unsigned keeps_base; /* bit c: class c keeps the base precision */
    tandem_certificate certificate;
} tandem_allocation;

typedef struct tandem_policy {
    const char *name, *meaning;
    int ignores_target; /* 1: it has one plan, whatever the target */
    /* Chooses an assignment, which has the problem's shape, and fills in *allocation what it knows. Leaves
     * any precisions in the replayer. TANDEM_INFEASIBLE: no plan that it can reach fits; says which device,
     * the bytes of the smallest plan and the limit. Outputs are unspecified on error. */
    tandem_status (*allocate)(const tandem_allocation_problem *problem, tandem_assignment *assignment,
                              tandem_allocation *allocation, tandem_error *error);
} tandem_policy;

/* Every policy, one a file in allocator/; NULL behind the last. The first is meant where none is named. */
const tandem_policy *tandem_policy_get(int index);
/* TANDEM_UNKNOWN_NAME with the nearest one. */
tandem_status tandem_policy_find(const tandem_policy **policy, const char *name, tandem_error *error);

/* tandem_allocate: run a policy and write its plan. Every figure in *allocation is replayed anew from the
 * finished plan. *plan (new, the caller closes it) and *allocation are unchanged on error. */
tandem_status tandem_allocate(tandem_plan **plan, tandem_allocation *allocation, const tandem_policy *policy,
                              const tandem_allocation_problem *problem, const char *method,
                              tandem_error *error);

/* tandem_certify: bound the sensitivity of every plan within target_ns and memory that keeps the `held`
 * classes in base, and compare `sensitivity` with it. Trusts nothing but the problem's costs. Takes at most
 * time_limit_s (0 = 10 s). *certificate unchanged on error. */
tandem_status tandem_certify(tandem_certificate *certificate, const tandem_allocation_problem *problem,
                             int64_t target_ns, unsigned keeps_base, double sensitivity, double time_limit_s,
                             tandem_error *error);

/* tandem_plan_verify: whether a plan is what it says, by the public replay call alone: precisions that exist,
 * step and peak memory as replayed, within its target and the cluster's memory, its sensitivity, and its
 * bound anew. TANDEM_OK with what was found in *allocation; TANDEM_INFEASIBLE where it breaks a limit;
 * TANDEM_MALFORMED where a figure in it is not what comes out here: names it, both values. */
tandem_status tandem_plan_verify(tandem_allocation *allocation, const tandem_plan *plan,
                                 const tandem_allocation_problem *problem, tandem_error *error);

/* Sensitivity of the replayer's current precisions. */
double tandem_allocation_sensitivity(const tandem_allocation_problem *problem);

/* --- Other questions ------------------------------------------------------------------------------------ */

typedef enum tandem_objective {
    TANDEM_MINIMIZE_SENSITIVITY, /* within the target */
    TANDEM_MINIMIZE_STEP,        /* within the budget; target and slowdown are not looked at */
    TANDEM_MINIMIZE_MEMORY       /* of the class that takes most a rank, within target and budget */
} tandem_objective;
typedef struct tandem_goal {
    tandem_objective objective;
    /* most sensitivity; INFINITY = any. Not looked at with TANDEM_MINIMIZE_SENSITIVITY */
    double max_sensitivity;
} tandem_goal;

/* tandem_allocate_for: tandem_allocate, for any objective: the others by bisection over what they minimise,
 * with an answer of the policy at each place, to within 1/4096 of the value. As good as the policy is: what a
 * policy does not find counts as not there. TANDEM_INFEASIBLE names the limits that cannot be had together;
 * TANDEM_USAGE for a policy that knows no target, and for TANDEM_MINIMIZE_STEP with a target. Cost: some 15
 * allocations. */
tandem_status tandem_allocate_for(tandem_plan **plan, tandem_allocation *allocation, const tandem_goal *goal,
                                  const tandem_policy *policy, const tandem_allocation_problem *problem,
                                  const char *method, tandem_error *error);

/* --- A plan beside uniform ones ------------------------------------------------------------------------- */

typedef enum tandem_baseline_relation {
    TANDEM_BASELINE_OTHER,
    TANDEM_BASELINE_BASE,   /* every class in base */
    TANDEM_BASELINE_FASTER, /* the slowest of those that are not slower than the plan */
    TANDEM_BASELINE_SLOWER  /* the fastest of those that are slower */
} tandem_baseline_relation;
typedef struct tandem_baseline {
    char name[48]; /* "all fp32", "uniform int8" */
    tandem_precision precision;
    tandem_baseline_relation relation;
    int64_t step_ns;
    double sensitivity;
    uint64_t peak_bytes[TANDEM_MAX_CLASS];
    int fits; /* the memory of every class */
} tandem_baseline;

/* tandem_baselines_find: every class in base, then by their step the plans that give one precision to all
 * classes that `plan` lowers (where it lowers none: to the class that is slowest in base) and base to the
 * others. What a device lacks or nobody has measured is left out. Leaves `plan` in the replayer. Cost: a
 * replay each. */
tandem_status tandem_baselines_find(tandem_baseline baseline[TANDEM_N_PRECISION], int *n_baseline,
                                    const tandem_allocation_problem *problem, const tandem_plan *plan,
                                    tandem_error *error);

/* --- Step against sensitivity --------------------------------------------------------------------------- */

typedef struct tandem_pareto_point {
    int64_t target_ns, step_ns; /* asked for; reached */
    double sensitivity;
    double lower_bound;  /* of plans within target_ns; NAN = none computed */
    uint64_t peak_bytes; /* of the class that takes most */
} tandem_pareto_point;
typedef struct tandem_pareto_front {
    /* [n_point] by step; none is as good as another in step, sensitivity and memory */
    tandem_pareto_point *point;
    int n_point;
    tandem_baseline baseline[TANDEM_N_PRECISION]; /* on the front or not; base first */
    int n_baseline;
    int64_t replays;
} tandem_pareto_front;

/* tandem_pareto_front_open: what `policy` finds for n_target steps from the fastest to that of base; fewer
 * points where they coincide or are no better than others. Errors as of tandem_allocate. Cost: n_target
 * allocations. */
tandem_status tandem_pareto_front_open(tandem_pareto_front **front, const tandem_policy *policy,
                                       const tandem_allocation_problem *problem, int n_target,
                                       tandem_error *error);
void tandem_pareto_front_close(tandem_pareto_front *front); /* NULL is fine */

/* --- Why an operator has its precision ------------------------------------------------------------------ */

/* A precision that an operator could have on a class; changes are to the plan in the replayer, with this
 * alone changed. */
typedef struct tandem_choice {
    tandem_precision precision;
    int is_chosen;
    int is_measured;    /* whether every time of it is known; else what follows `harm` is 0 */
    double sensitivity; /* its part of the plan's sensitivity: share × harm */
    /* of the operator's own tasks, casts of its weights and saved inputs with them; beside a busy
     * neighbour where there is one */
    int64_t self_ns;
    int64_t step_delta_ns;    /* the step */
    int64_t peak_delta_bytes; /* the class's peak */
    int64_t excess_ns;        /* the step over the target; 0 = within */
    uint64_t excess_bytes;    /* the class's peak over its limit; 0 = within */
} tandem_choice;

/* tandem_choices_explain: what operator `op` could have on class c, widest first, beside the plan in the
 * replayer, which is there again afterwards. target_ns: 0 = none. TANDEM_USAGE where the operator carries no
 * precision. Cost: a replay each. */
tandem_status tandem_choices_explain(tandem_choice choice[TANDEM_N_PRECISION], int *n_choice,
                                     const tandem_allocation_problem *problem, int64_t target_ns, int c,
                                     int op, tandem_error *error);

/* --- Where nothing fits --------------------------------------------------------------------------------- */

typedef struct tandem_memory_deficit {
    int c;
    uint64_t peak_bytes, limit_bytes; /* of the smallest plan found; a rank */
    int64_t batch;                    /* the largest that fits; 0 = not even 1 does */
} tandem_memory_deficit;

/* tandem_memory_deficits_find: classes whose smallest plan exceeds their memory, at their batch; *n_deficit =
 * 0: memory is not what is lacking. Needs no times. Changes the replayer's precisions. Cost: a memory plan
 * for each operator and precision, some times over; one for each halving of the batch. */
tandem_status tandem_memory_deficits_find(tandem_memory_deficit deficit[TANDEM_MAX_CLASS], int *n_deficit,
                                          const tandem_allocation_problem *problem, tandem_error *error);

/* --- Precision and batch together ----------------------------------------------------------------------- */

/* Where problems at other batches come from. */
typedef struct tandem_batch_source {
    void *context;
    /* The problem with batch[c] on every rank of class c: the source's, until it is closed. TANDEM_MISSING:
     * passed over. */
    tandem_status (*open)(void *context, const int64_t batch[TANDEM_MAX_CLASS],
                          tandem_allocation_problem **problem, tandem_error *error);
    void (*close)(void *context, tandem_allocation_problem *problem);
} tandem_batch_source;

typedef struct tandem_batch_plan {
    int64_t batch[TANDEM_MAX_CLASS];
    tandem_plan *plan; /* NULL: there is none at that split */
    tandem_allocation allocation;
} tandem_batch_plan;
typedef struct tandem_batch_choice {
    tandem_batch_plan precision_alone; /* every rank the same batch, as near as can be; precisions chosen */
    tandem_batch_plan batch_alone;     /* every class in base; the fastest split found */
    tandem_batch_plan both;
    int n_split, n_missing; /* splits looked at; of these, without all costs */
} tandem_batch_choice;

/* tandem_batch_choose: how to split global_batch among the classes, and which precisions go with it: the
 * least sensitivity within target_ns, or where that is 0 within the fastest step found over all splits times
 * 1 + slowdown. Integers a rank, the same for all ranks of a class. TANDEM_USAGE where there is no such
 * split; TANDEM_MISSING where none has all its costs (of the most even one: what it lacks);
 * TANDEM_INFEASIBLE. *choice: release it with tandem_batch_choice_free; unchanged on error. Cost: some tens
 * to hundreds of allocations by policy greedy, three by `policy`. */
tandem_status tandem_batch_choose(tandem_batch_choice *choice, const tandem_cluster *cluster,
                                  int64_t global_batch, const tandem_batch_source *source,
                                  const tandem_policy *policy, const char *method, int64_t target_ns,
                                  double slowdown, tandem_error *error);
void tandem_batch_choice_free(tandem_batch_choice *choice);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
