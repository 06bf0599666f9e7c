/* trainings.h: what the parts of the study that train have in common: one training, and running what is
 * missing, one process a core. */
#ifndef TANDEM_RESEARCH_TRAININGS_H
#define TANDEM_RESEARCH_TRAININGS_H

#include "research/study.h"
#include "research/study_runs.h"
#include "research/study_records.h"
#include "runtime/train/train_config.h"
#include "tandem/advanced/estimate.h"

/* --- One training (training.c) ---------------------------------------------------------------------------
 * */

/* The device of all trainings. All zero is closed. */
typedef struct study_lab {
    const cli_options *options;
    const tandem_backend_api *backend;
    tandem_workload workload; /* of no training: it names the device */
    tandem_worker *worker;
} study_lab;
tandem_status study_lab_open(study_lab *lab, const cli_options *options, tandem_error *error);
void study_lab_close(study_lab *lab);

typedef struct study_training {
    const char *model, *data;             /* data: NULL: STUDY_DATA */
    const char *precision;                /* uniform; NULL: fp32, not emulated */
    const tandem_precision *op_precision; /* [n_op] in its place, of those that have it; NULL; borrowed */
    tandem_emulation emulation;           /* its seed is that of weights and order of samples, too */
    double rate;                          /* the highest */
    double loss_scale;                    /* 0: none, < 0: dynamic */
    int64_t batch;                        /* of a micro-step */
    int64_t steps, n_test;                /* n_test: test samples of an evaluation */
    tandem_optimizer optimizer;           /* SGD with a momentum of 0.9, AdamW without decay */
    rate_schedule schedule;
    int n_micro;
    int n_evaluation; /* in the last quarter of the training; their mean is the result. 1: at the end */
} study_training;

/* One whose last rate is 0, so that one evaluation at its end is enough. No sample comes twice: noise hides
 * no overfitting. */
#define STUDY_ANNEALED_TRAINING(MODEL, OPTIMIZER, RATE, BATCH, N_MICRO, STEPS, N_TEST)                       \
    STUDY_ANNEALED_TRAINING_ON(NULL, MODEL, OPTIMIZER, RATE, BATCH, N_MICRO, STEPS, N_TEST)
#define STUDY_ANNEALED_TRAINING_ON(DATA, MODEL, OPTIMIZER, RATE, BATCH, N_MICRO, STEPS, N_TEST)              \
    {                                                                                                        \
        .model = (MODEL), .data = (DATA), .optimizer = (OPTIMIZER), .schedule = SCHEDULE_COSINE,             \
        .rate = (RATE), .batch = (BATCH), .n_micro = (N_MICRO), .steps = (STEPS), .n_test = (N_TEST),        \
        .n_evaluation = 1                                                                                    \
    }

/* study_training_data_open: opens the data set of a training at the length of its model's samples. Errors of
 * study_data_open and tandem_graph_open. */
tandem_status study_training_data_open(const study_training *training, tandem_error *error);
/* The training's model with its optimizer, in lab->options' place. The caller closes *workload. */
tandem_status study_workload_open(tandem_workload *workload, cli_options *options, const study_lab *lab,
                                  const study_training *training, tandem_error *error);

typedef struct study_trained {
    double loss, accuracy; /* of the test samples: mean in nats, share; means over the evaluations */
    double n_skipped;      /* steps that overflowed */
} study_trained;
enum { STUDY_TRAINED_VALUES = sizeof(study_trained) / sizeof(double) };

/* study_train: trains.
 *   steps  those of the training, or fewer for a trial
 * TANDEM_LIMIT_EXCEEDED: it diverged. Cost: that of the steps and evaluations. */
tandem_status study_train(study_trained *trained, const study_lab *lab, const study_training *training,
                          int64_t steps, tandem_error *error);

/* --- What a rounding changes of its gradients (study_estimate.c) ------------------------------------------
 * */

typedef struct study_rounding_plan {
    tandem_precision precision;
    tandem_emulation emulation;
    int n_point; /* in the middle of each n_point-th of the training */
    int n_replicate;
    int is_whole;         /* 1: all operators are rounded at once, as row 0; else each alone */
    int is_curved;        /* as in estimate_request */
    int is_default;       /* 1: as `tandem sensitivity` without options, or with is_whole as with --plan, at
                             its points and of its replicates: of the others precision and emulation count */
    double *own_products; /* [n_point × n_replicate], as in estimate_request; borrowed. NULL: not wanted */
} study_rounding_plan;
/* study_estimate: the training runs in fp32 up to each training point. The caller closes *estimate. Errors
 * and cost of estimate_run. */
tandem_status study_estimate(tandem_estimate *estimate, const study_lab *lab, const study_training *in_fp32,
                             const study_rounding_plan *rounding, tandem_error *error);
/* [cells of the estimate]: every operator that was estimated in the precision has it in that part of the
 * batch. The caller frees it. NULL: no memory. */
double *study_shares_open(const tandem_estimate *estimate, const study_lab *lab, tandem_precision precision,
                          double of_batch);

/* --- Plans: what is fixed before a part runs (training.c) -------------------------------------------------
 * */

/* The hash of a plan that has this number, or this training, next; precisions are not read. */
uint64_t study_hash_number(uint64_t hash, double x);
uint64_t study_hash_training(uint64_t hash, const study_training *training);
/* Says in the report that a task was not run, for time. */
void study_leave_out(study_report *report, const study_training *task);
/* The name of a plan in a file of records: the hash of what decides their values, and the seed. */
void study_plan_name(char text[STUDY_PLAN_NAME], uint64_t hash, uint64_t seed);

enum { STUDY_MAX_SEEDS = 256 }; /* of a part */
/* The seeds that are planned; fewer where --repetitions asks for fewer. */
int study_seed_count(const cli_options *options, int n_planned);
/* Whether a part does not report what is left to run before it starts. */
int study_is_silent(const cli_options *options);

/* --- Jobs: what is to be measured (jobs.c) ---------------------------------------------------------------
 * */

typedef struct study_jobs {
    const cli_options *options;
    const char *part; /* of the study; borrowed */
    study_lab lab;
    study_records records;
    double left_s, done_s;     /* time of what is missing, by trials, and of what this process ran */
    int n_missing;             /* with --recorded: records that the last pass lacked */
    int worker, n_worker, job; /* this process runs the missing jobs number worker, worker + n_worker, … */
} study_jobs;
/* options->checkpoint is the file of the records; `plan` the hash of what decides their values, `margins`
 * those that judge them, as study_records_open takes them. Errors of study_records_open and study_lab_open.
 * The caller closes *jobs, after errors too. */
tandem_status study_jobs_open(study_jobs *jobs, const cli_options *options, const char *part, uint64_t plan,
                              study_margins *margins, tandem_error *error);
void study_jobs_close(study_jobs *jobs);

/* Adds the time of n trainings to jobs->left_s, by two trials of fewer steps; nothing for n = 0. */
tandem_status study_jobs_estimate(study_jobs *jobs, const study_training *training, int n,
                                  tandem_error *error);
/* Says what is left of a task: n_left of n trainings, and what jobs->left_s has grown by since before_s. */
void study_jobs_note(const study_jobs *jobs, const char *model, tandem_optimizer optimizer, int n_left, int n,
                     double before_s);

/* 1: the record is known. 0: it is missing; *is_own: this process is to measure and add it; never where
 * --recorded. */
int study_jobs_find(double *value, int n, int *is_own, study_jobs *jobs, const char *name);
/* n values of a job, from its record, or by `measure`, which gets `what`. TANDEM_LIMIT_EXCEEDED from it, a
 * training that diverged: NaN. Where another process runs it, *value is unchanged. */
typedef tandem_status study_measure(double *value, int n, const study_lab *lab, const void *what,
                                    tandem_error *error);
tandem_status study_jobs_measure(double *value, int n, study_jobs *jobs, const char *name,
                                 study_measure *measure, const void *what, tandem_error *error);
/* The same of a training: the first n of its values. */
tandem_status study_jobs_train(double *value, int n, study_jobs *jobs, const char *name,
                               const study_training *training, tandem_error *error);

/* Goes through all jobs, in an order that depends on nothing else. */
typedef tandem_status study_pass(void *study, tandem_error *error);
/* TANDEM_MISSING: the last pass lacked records, for --recorded. */
tandem_status study_jobs_require_all(const study_jobs *jobs, tandem_error *error);
/* Runs what is missing: where there is a file of records, one process a core goes through the pass, and each
 * runs its share. Then this process goes through it. `jobs` is a part of `study`. TANDEM_RANK_FAILED: a
 * process failed; its records are kept. */
tandem_status study_jobs_run(study_jobs *jobs, study_pass *pass, void *study, tandem_error *error);

#endif
