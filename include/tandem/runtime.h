/* runtime.h: what runs on devices: profile, sensitivity, train, compare. Each verb has a request and a
 * result. Nothing here prints, exits or handles a signal. docs/examples/loop.c uses all four.
 *
 * Zero-initialise a request with its function, then fill in what differs. Strings are borrowed during the
 * call only. Results own their memory; each has a function that releases it. */
#ifndef TANDEM_RUNTIME_H
#define TANDEM_RUNTIME_H

#include "tandem/trial.h"
#include "tandem/workload.h"

TANDEM_BEGIN_DECLARATIONS

/* Functions that report what happens. Each member may be NULL. Calls come from the thread that made the
 * request. */
typedef struct tandem_listener {
    void *context; /* the first argument of each call */
    /* What is under way, in a line; left_ns: time left, ≤ 0 = not known. Texts live during the call. */
    void (*progress)(void *context, int64_t left_ns, const char *text);
    void (*note)(void *context, const char *text); /* what a user should know; one or more lines */
    /* A descriptor that becomes readable when the request is to end: TANDEM_CANCELLED then. 0 = none. Only
     * requests that start their ranks look at it. */
    int cancel;
} tandem_listener;

/* The place of one process among the ranks of a run. All zero: the request starts all ranks on this host. */
typedef struct tandem_rank_place {
    int rank, n_rank;
    int local;          /* its number among those of this host */
    const char *folder; /* an empty folder that all ranks share; NULL where n_rank is 1 */
} tandem_rank_place;

/* --- Train ---------------------------------------------------------------------------------------------- */

/* How weights are updated; < 0 or NULL = as the model's optimizer has it. */
typedef struct tandem_training_options {
    double rate, decay, momentum;
    const char *betas;      /* "0.9,0.999" */
    const char *no_decay;   /* names of parameters without weight decay, "*.bias,pos*" */
    const char *schedule;   /* "constant", "cosine", "linear", "step"; NULL = constant */
    int64_t warmup;         /* steps */
    double label_smoothing; /* 0 = none */
} tandem_training_options;
/* Those of the model. */
tandem_training_options tandem_training_options_default(void);

/* All ranks of a run must agree in what decides its numbers; the first difference is TANDEM_USAGE. */
typedef struct tandem_train_request {
    tandem_workload_request workload; /* its seed draws weights, sample order and rounding, too */
    tandem_rank_place place;
    tandem_listener listener;
    const char *store;        /* profile store with the devices' algorithms; need not exist */
    const char *data;         /* data set, or a path; NULL = noise, good only for timing */
    int64_t steps;            /* of the whole run, those of a resumed checkpoint included [100] */
    int64_t evaluate;         /* test samples of an evaluation; 0 = none [2000] */
    int64_t evaluate_every;   /* steps; 0 = only after the last one */
    int evaluate_in_plan;     /* 1: evaluations have the plan's precisions; 0: they are in fp32 */
    const char *evaluate_in;  /* with it: after the run, evaluate again, all operators in this precision */
    int64_t checkpoint_every; /* steps; 0 = only after the last one */
    int64_t timeout_ns;       /* for another rank [120 s] */
    uint64_t bucket_bytes;    /* of gradients that are reduced together; 0 = 25 MiB */
    int zero;                 /* 1: ranks keep shards of the optimizer's state (ZeRO); 0 = all of it */
    const char *shards;       /* with zero: "even", or a rank's share in each class, "1,3" [even] */
    int has_data_seed, has_rounding_seed; /* 1: the next two replace workload.seed */
    uint64_t data_seed, rounding_seed;
    double error_scale;               /* emulated errors are multiplied by it [1] */
    tandem_training_options training; /* [of the model] */
    int allow_nan;                    /* 1: a loss that is not finite ends nothing */
    /* 1: sensitivities are estimated again every reestimate_every steps (0 = as few as keep that under 1 % of
     * the run), and the plan follows: it needs at most max_sensitivity more samples, a share; < 0 = the
     * least time to the same loss */
    int reestimate;
    int64_t reestimate_every;
    double max_sensitivity;
    int per_task; /* 1: the result has the times of tasks */
    /* files to write, NULL = none: the trace of the last step, a line of JSON per step, a checkpoint,
     * weights */
    const char *trace, *log, *checkpoint, *exported;
    const char *resume, *init;      /* files to read: a checkpoint to go on from, weights to begin with */
    const struct tandem_made *made; /* what a written trace and log say of their origin; NULL = nothing */
} tandem_train_request;
/* A request with the defaults in brackets above; without a workload. */
tandem_train_request tandem_train_request_default(void);

/* One rank. Medians over the steps after the first two; −1 = not known. */
typedef struct tandem_rank_report {
    char device[TANDEM_DEVICE_NAME];
    int64_t batch;
    int64_t period_ns, p10_ns, p90_ns; /* from the start of a step to the start of the next */
    int64_t wait_ns;                   /* the rank waits for gradients */
    int64_t undisturbed_ns, busy_ns;   /* a step without what other processes took; the same less waits */
    /* of memory; evaluation: the part of both that only evaluation needs */
    uint64_t allocated_bytes, planned_bytes, evaluation_bytes;
    int64_t resident_bytes; /* as the system counts it */
} tandem_rank_report;

typedef struct tandem_train_evaluation {
    int64_t step;                      /* after which; from 1 */
    double accuracy, loss, loss_error; /* share; nats per sample, with its standard error */
} tandem_train_evaluation;

/* A task of rank 0's step program. */
typedef struct tandem_train_task {
    int32_t op, kind;  /* its operator, −1 = none; a tandem_task_kind (advanced/step.h) */
    int32_t is_active; /* 0: the plan does not run it */
    int64_t start_ns;  /* in the last step */
} tandem_train_task;

typedef struct tandem_train_result {
    char model[TANDEM_MODEL_NAME]; /* canonical */
    char plan[48];                 /* its name */
    int64_t steps, resumed_at;     /* steps of this run; of the checkpoint before it */
    int64_t n_timed;               /* steps after the warm-up; 0 = there are no times */
    double *loss;                  /* [steps] */
    double accuracy;               /* of the last evaluation; NaN = none */
    double samples_per_s;          /* NaN = not known */
    int n_evaluation;
    tandem_train_evaluation *evaluation;  /* [n_evaluation] */
    tandem_train_evaluation in_precision; /* with evaluate_in; else step 0 */
    tandem_sharding sharding;             /* of ZeRO; stage 0 = none */
    int n_rank;
    tandem_rank_report *rank;          /* [n_rank] */
    struct run_steadiness *steadiness; /* [n_rank] for compare: kept steps of every rank */
    int n_task;                        /* 0 without per_task */
    int64_t *task_ns;                  /* [n_rank][n_task] medians; 0 = did not run */
    tandem_train_task *task;           /* [n_task] */
    char *estimates; /* with reestimate: a JSON array of what was estimated and decided; else NULL */
} tandem_train_result;

/* tandem_train: trains a workload under its plan. Where the request has no place, it starts a process for
 * each rank, each on a core of its own, and waits. Rank 0 has the result; the others' stays as it was.
 * TANDEM_USAGE: the request contradicts itself or another rank's; TANDEM_MISSING: a device or library;
 * TANDEM_RANK_FAILED: another rank has failed; TANDEM_LIMIT_EXCEEDED: a loss or gradient is not
 * finite. *result unchanged on error. */
tandem_status tandem_train(tandem_train_result *result, const tandem_train_request *request,
                           tandem_error *error);
void tandem_train_result_free(tandem_train_result *result); /* all zero is fine */

/* --- Profile -------------------------------------------------------------------------------------------- */

typedef struct tandem_profile_request {
    tandem_workload_request workload; /* with a plan, or a uniform precision, only its costs are measured */
    tandem_rank_place place;
    tandem_listener listener;
    const char *store;     /* profile store, into which costs go; those that it has are not measured again */
    const char *data;      /* data set, or a path; NULL = noise */
    uint64_t bucket_bytes; /* 0 = 25 MiB */
    int64_t repetitions;   /* of each plan's step; 0 = as many as its costs need */
    int remeasure;         /* 1: also what the store has */
    int allreduce_only;    /* 1: nothing but all-reduces; two ranks or more */
    int zero;              /* not 0: also reduce-scatters and all-gathers, as ZeRO takes them */
    /* > 0: no model, but networks of drawn sizes on the one device of workload.cluster, for so long; at most
     * 120 s. Costs of other models are predicted from them. store, remeasure and this count alone */
    int64_t sweep_ns;
} tandem_profile_request;

typedef struct tandem_profile_count {
    int64_t measured, known; /* costs measured now; costs that the store had */
} tandem_profile_count;

/* Smallest and largest clock rates seen; 0 = unknown. */
typedef struct tandem_clock_range {
    tandem_clocks min, max;
} tandem_clock_range;

typedef struct tandem_profile_report {
    char device[TANDEM_DEVICE_NAME];
    tandem_profile_count alone, contended; /* beside a busy co-runner */
    tandem_clock_range clocks;
    int64_t event_ns; /* what timing a task adds to it, which costs are without; −1 = none, or not measured */
    /* shares; NaN = not known: (p90 − p10) / median of the machine's speed samples; of the time, what other
     * processes and other virtual machines took; half the interval of a plan's step */
    double compute_spread, memory_spread, delay_share, steal_share, interval_share;
} tandem_profile_report;

typedef struct tandem_profile_result {
    char model[TANDEM_MODEL_NAME];  /* "" of a sweep */
    int n_rank, n_network;          /* n_network: of a sweep */
    tandem_profile_report *rank;    /* [n_rank] */
    tandem_profile_count allreduce; /* sizes */
    int64_t ns;                     /* the time that it took */
} tandem_profile_result;

/* tandem_profile: measures the costs of a workload's operators, casts, updates and all-reduces on its
 * devices: each alone, then beside the others. Where the request has no place, it starts a process for each
 * rank. Rank 0 has the result. TANDEM_USAGE, TANDEM_MISSING, TANDEM_RANK_FAILED, errors of the store.
 * *result unchanged on error; what was measured before stays in the store. */
tandem_status tandem_profile(tandem_profile_result *result, const tandem_profile_request *request,
                             tandem_error *error);
void tandem_profile_result_free(tandem_profile_result *result); /* all zero is fine */

/* --- Sensitivity ---------------------------------------------------------------------------------------- */

typedef enum tandem_sensitivity_way {
    TANDEM_BY_PROBE,     /* two batches a replicate for all operators; estimates noise, and no bias */
    TANDEM_BY_SAMPLES,   /* two gradients for each operator and precision: bias, too; takes a hundred times as
                            long */
    TANDEM_BY_STATISTICS /* only what the methods fisher and qsync need; any device */
} tandem_sensitivity_way;

typedef struct tandem_sensitivity_request {
    tandem_workload_request workload; /* one rank; its precisions do not count */
    tandem_listener listener;
    const char *store; /* profile store, to which the result is written */
    const char *data;  /* data set, or a path */
    tandem_sensitivity_way way;
    int64_t steps;    /* of the fp32 training; by statistics, batches; 0 = 100, or 10 */
    const char *at;   /* training points, "0,10%,200"; NULL = 50 % and 90 % of the steps */
    int n_replicate;  /* 0 = as many as the way needs */
    const char *init; /* weights to begin with; NULL = drawn by the seed */
    int has_training; /* 1: training replaces the model's in the fp32 training */
    tandem_training_options training;
} tandem_sensitivity_request;

enum { TANDEM_MAX_POINT = 8, TANDEM_MAX_METHOD = 8 };

/* What one precision of one operator costs: more samples to the same loss, as a share. */
typedef struct tandem_operator_sensitivity {
    int32_t op; /* of the model's graph */
    tandem_precision precision;
    double value, low, high, noise, bias; /* low to high: 95 % interval; NaN = not known */
    double at_point[TANDEM_MAX_POINT];    /* value at each training point */
    double method[TANDEM_MAX_METHOD];     /* by statistics: of each method that needs no more */
} tandem_operator_sensitivity;

typedef struct tandem_sensitivity_result {
    char model[TANDEM_MODEL_NAME], device[TANDEM_DEVICE_NAME];
    int64_t batch, steps;
    int n_point, n_replicate;
    int64_t point[TANDEM_MAX_POINT]; /* steps */
    int n_method;                    /* by statistics */
    int n_row;
    tandem_operator_sensitivity *row; /* [n_row] operators in graph order, each with its precisions */
} tandem_sensitivity_result;

/* tandem_sensitivity_measure: trains the model in fp32 in a process of its own and measures what lower
 * precisions change of its gradients (docs/sensitivity.md). Statistics of the first 10 batches are stored,
 * too. TANDEM_USAGE: no data, several devices, a device that is no CPU (but by statistics), points that are
 * none; TANDEM_MISSING; errors of a training and of the store. *result unchanged on error. */
tandem_status tandem_sensitivity_measure(tandem_sensitivity_result *result,
                                         const tandem_sensitivity_request *request, tandem_error *error);
void tandem_sensitivity_result_free(tandem_sensitivity_result *result); /* all zero is fine */

/* --- A plan as a whole ---------------------------------------------------------------------------------- */

typedef struct tandem_plan_estimate_request {
    tandem_workload_request workload; /* with a plan, or with uniform precisions */
    /* in the place of the workload's, of which seed and emulation count; and its model's graph. Borrowed;
     * NULL = none */
    const tandem_plan *plan;
    const tandem_graph *graph;
    tandem_listener listener;
    const char *data; /* data set, or a path */
    int64_t steps;    /* of the fp32 training; 0 = 100 */
    const char *at;   /* training points, "0,10%,200"; NULL = 50 % and 90 % of the steps */
    int n_replicate;  /* pairs of batches at each training point; 0 = 16 */
    const char *init; /* weights to begin with; NULL = drawn by the seed */
    int has_training; /* 1: training replaces the model's in the fp32 training */
    tandem_training_options training;
} tandem_plan_estimate_request;

/* Shares: 0.01 is 1 %. low to high, and value ± half: 95 % intervals of sampling. NaN = not known. */
typedef struct tandem_plan_estimate {
    char model[TANDEM_MODEL_NAME], device[TANDEM_DEVICE_NAME]; /* device: that emulated it */
    int64_t batch, estimated_batch; /* samples: of a step of the plan, and of an estimated gradient */
    int64_t steps;
    int n_point, n_replicate;
    int64_t point[TANDEM_MAX_POINT];
    double samples, samples_low, samples_high; /* more samples to the same loss */
    double noise, along, along_half;           /* parts of it: noise, and what it loses along the gradient */
    double across, across_half;                /* the mean error in any direction, of the gradient's length */
    double fp32_loss;                          /* nats, at the last point */
    double loss_rise, loss_rise_half;          /* within the rounding, less in fp32 */
    double stability; /* the gradient over √3 times the root mean square of its error */
    char formats[64]; /* that are emulated in the place of dtypes; "" = none */
} tandem_plan_estimate;

/* Limits of trust, from trainings (docs/sensitivity.md): between the plan that needed most samples and was
 * estimated best, and the harmless one that was estimated worst. Those of samples and of stability are of two
 * models, that of the mean error of ten others. The last is of the step along the gradient: where so much of
 * it is lost, gradients vanish. */
#define TANDEM_MAX_EXTRA_SAMPLES 1.7
#define TANDEM_MIN_STABILITY 0.5
#define TANDEM_MAX_MEAN_ERROR 0.57
#define TANDEM_MAX_LOST_STEP 0.95

/* What of an estimate is beyond its limit: extra samples; a mean error above 10 %; the stability; a loss that
 * is not finite; the part of the step that is lost; a mean error above its limit. The second is a warning,
 * the others are TANDEM_BEYOND_TRUST: a training may not go on. */
enum {
    TANDEM_BEYOND_SAMPLES = 1,
    TANDEM_BEYOND_MEAN_ERROR = 2,
    TANDEM_BEYOND_STABILITY = 4,
    TANDEM_BEYOND_FINITE = 8, /* the loss within the rounding is not finite */
    TANDEM_BEYOND_STEP = 16,
    TANDEM_BEYOND_BIAS = 32,
    TANDEM_BEYOND_TRUST = TANDEM_BEYOND_SAMPLES | TANDEM_BEYOND_STABILITY | TANDEM_BEYOND_FINITE |
                          TANDEM_BEYOND_STEP | TANDEM_BEYOND_BIAS
};
unsigned tandem_plan_estimate_beyond(const tandem_plan_estimate *estimate);

/* tandem_plan_estimate_measure: what a plan does to gradient and loss with all its operators rounded at once,
 * emulated by this machine's strongest CPU at the batch of a rank of the class that rounds most samples
 * (docs/sensitivity.md). Trains in fp32 up to each training point, in a process of its own. Cost: there, two
 * gradients a replicate in fp32, and two for each class. TANDEM_USAGE: no data, points that are none, a
 * plan that rounds nothing; TANDEM_MISSING; errors of a training. *estimate unchanged on error. */
tandem_status tandem_plan_estimate_measure(tandem_plan_estimate *estimate,
                                           const tandem_plan_estimate_request *request, tandem_error *error);

/* --- Compare -------------------------------------------------------------------------------------------- */

typedef struct tandem_compare_request {
    /* The run that is measured: of 3 steps or more [30], with no evaluation unless it is asked for. It may
     * have a place; rank 0 then compares, and the others train with it. No resume, no reestimate */
    tandem_train_request train;
    /* 1: the costs of the plan are measured again after the run, into a store of its own. Not with a place */
    int remeasure;
    int per_task;     /* 1: the step is replayed with the task times of the run, and these are stored */
    double tolerance; /* errors up to it count as correct [0.05] */
} tandem_compare_request;
tandem_compare_request tandem_compare_request_default(void);

/* The ranks of one class. Bytes are per rank. */
typedef struct tandem_compare_class {
    char device[TANDEM_DEVICE_NAME];
    int n_rank;
    uint64_t predicted_peak_bytes, allocated_peak_bytes; /* allocated: the largest of the class */
    uint64_t evaluation_bytes;                           /* allocated in addition for an evaluation */
    /* increase of the system's resident memory; the largest of the class; −1 = unknown */
    int64_t resident_peak_bytes;
    /* per step, without waits and other processes: replayed with the run's task times, and the mean of the
     * run; −1 = unknown */
    int64_t resimulated_busy_ns, measured_busy_ns;
    int64_t predicted_wait_ns, measured_wait_ns; /* per step, waiting for buckets; measured: mean */
} tandem_compare_class;

/* One task. Times are per rank; 0 = not in the plan, or not in the run. */
typedef struct tandem_compare_task {
    int op;                                 /* −1 = none */
    const char *kind, *stream;              /* static */
    int64_t measured_ns, measured_start_ns; /* of rank 0, from the start of the step */
    int64_t class_predicted_ns[TANDEM_MAX_CLASS],
        class_measured_ns[TANDEM_MAX_CLASS]; /* mean of the ranks' medians */
} tandem_compare_task;

typedef enum tandem_compare_verdict {
    TANDEM_VERDICT_UNKNOWN, /* "cannot be distinguished": too uncertain */
    TANDEM_VERDICT_HOLDS,   /* "prediction holds": both errors are small */
    TANDEM_VERDICT_MOVED,   /* "machine moved": the prediction is right at the run's speed */
    TANDEM_VERDICT_OFF,     /* "prediction off" */
    TANDEM_N_VERDICT
} tandem_compare_verdict;

/* Errors are (predicted − measured) / measured; NaN = unknown. */
typedef struct tandem_compare_speed {
    /* each kept step's own error: predicted at the speed sample beside it, and measured less what the delays
     * in it add to the simulated step; their median, and an interval that holds it in 95 of 100 cases */
    double error_at_run_speed, low, high;
    int n_step, n_undisturbed; /* kept steps; those in which others took 1 % or less. Where these are 8 or
                                * more, the others do not count */
    double delay_share; /* of the kept steps' time, others took from the rank that they took most from */
    double speed_sample_share; /* of the run's time, speed samples took */
    /* median speed sample of the run over the profile's; of the slowest device */
    double compute_slowdown, memory_slowdown;
    double profile_noise; /* how far two profiles differ: √2 times the profile's interval */
    double moved_by; /* how much longer a step took than at the profile's speed without delays, of its time */
    tandem_compare_verdict verdict;
    int64_t steps_needed; /* for a verdict; 0 = no number of steps would do, or it is there */
    /* the kind of task that is off by most, of those that matter; "" = none is */
    char kind_device[TANDEM_DEVICE_NAME];
    const char *kind; /* static */
    double kind_error;
} tandem_compare_speed;

typedef struct tandem_compare_result {
    char plan[48];
    int64_t predicted_ns;
    /* of the run: period of a step */
    int64_t steps, measured_ns, measured_p10_ns, measured_p90_ns;
    double error; /* (predicted − measured) / measured */
    /* replayed with the task times of this run; 0 = unknown */
    int64_t resimulated_ns;
    /* the step less the time of other processes on a rank's core, of the rank with the least; −1 = unknown */
    int64_t undisturbed_ns;
    /* predicted from costs measured after the run; 0 = not measured */
    int64_t remeasured_ns;
    int n_class;
    tandem_compare_class classes[TANDEM_MAX_CLASS];
    double sensitivity_bound;                               /* the allocator's sum; NaN without statistics */
    double samples_per_s, first_loss, final_loss, accuracy; /* NaN = unknown */
    int n_task;
    tandem_compare_task *task; /* [n_task] by task id */
    int n_rank;
    struct run_steadiness *steadiness; /* [n_rank] what each rank saw of the machine */
    tandem_compare_speed steady;
} tandem_compare_result;

/* tandem_compare_predict: the part before the run: what the profile store says of the plan. TANDEM_MISSING:
 * a cost was not measured; errors of the workload and the store. The caller releases *result, which is
 * unchanged on error. */
tandem_status tandem_compare_predict(tandem_compare_result *result, const tandem_compare_request *request,
                                     tandem_error *error);
/* tandem_compare: predicts a step of the plan, trains under it, and says how far apart both are and why; the
 * run goes into the store. Errors of tandem_compare_predict and tandem_train. */
tandem_status tandem_compare(tandem_compare_result *result, const tandem_compare_request *request,
                             tandem_error *error);
void tandem_compare_result_free(tandem_compare_result *result); /* all zero is fine */

/* The name of a verdict, and what moved, what is off, or what would decide, in words. Returns text. */
const char *tandem_compare_verdict_name(tandem_compare_verdict verdict);
const char *tandem_compare_verdict_print(char *text, size_t size, const tandem_compare_speed *speed);
/* Drift of the machine since it was profiled, relative to the predicted step; NaN if not measured. */
double tandem_compare_drift(const tandem_compare_result *result);
/* Error of the simulation: (resimulated − measured) / measured; NaN if unknown. */
double tandem_compare_simulation_error(const tandem_compare_result *result);

/* --- Compare losses ------------------------------------------------------------------------------------- */

typedef struct tandem_loss_request {
    /* A branch under the plan: its steps [200] follow those of the checkpoint to resume, if any, and its test
     * samples [2000] are evaluated at the end. Its seed draws each pair's order of samples, rounding and,
     * without init and resume, weights. No place, reestimate, and of files to write only none; its listener
     * hears of all branches */
    tandem_train_request train;
    const char *base; /* precision of the other branch; NULL = fp32 */
    int n_pair;       /* at most [8] */
    double at_most;   /* share of extra samples: pairs end when this is decided; NaN = all pairs run [NaN] */
} tandem_loss_request;
/* A request with the defaults in brackets above; without a workload. */
tandem_loss_request tandem_loss_request_default(void);

typedef struct tandem_loss_result {
    char model[TANDEM_MODEL_NAME]; /* canonical */
    char plan[48], base[16];       /* the plan's name, the base precision's */
    int64_t steps, begin;          /* of a branch; steps of the checkpoint before it */
    uint64_t first_seed;           /* of the first pair: a training with this seed is its branch */
    int n_known;                   /* branches that the store had */
    int64_t branch_ns;             /* what a branch took, the mean; 0 = the store had all */
    int64_t pair_ns;               /* what a pair took: less than two branches where both trained at once */
    /* "" = trained on the plan's devices; else the device that emulated all of them */
    char emulated_on[TANDEM_DEVICE_NAME];
    tandem_trial_result trial;
} tandem_loss_result;

/* tandem_compare_loss: trains pairs of branches, in the base precision and under the plan, and says what the
 * plan costs in loss and in samples (trial.h). On devices that are not here all are emulated by the strongest
 * of this machine. Each branch that ends is in the store, and another request that needs it finds it there.
 * TANDEM_USAGE: no data, too few steps or pairs, more than 16 emulated ranks; TANDEM_LIMIT_EXCEEDED: the base
 * diverges; errors of tandem_train and the store. *result unchanged on error. Cost: 2 n_pair trainings. */
tandem_status tandem_compare_loss(tandem_loss_result *result, const tandem_loss_request *request,
                                  tandem_error *error);

TANDEM_END_DECLARATIONS
#endif
