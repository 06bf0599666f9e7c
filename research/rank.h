/* rank.h: what the stages of `tandem-study rank` share: what is left is reported (rank_left.c), methods look
 * at statistics and a probe (rank_look.c), jobs estimate what others and the oracle need (rank_jobs.c),
 * orders are compared (rank_tau.c) and printed (rank_table.c). */
#ifndef TANDEM_RESEARCH_RANK_H
#define TANDEM_RESEARCH_RANK_H

#include "research/method/method.h"
#include "research/noise_tasks.h"

/* Fixed before a run, as are the tasks. */
typedef struct rank_plan {
    const noise_tasks *tasks;
    int n_sampled, n_oracle; /* replicates of the method `sampled`, and others of the oracle */
    int n_batch;             /* of statistics, and of the probe */
    int n_bootstrap;
} rank_plan;
/* Jobs of a task: for all precisions, and in all, at least. */
enum { RANK_N_SHARED_JOB = 2, RANK_N_TASK_JOB = RANK_N_SHARED_JOB + 2 * NOISE_N_PRECISION };
extern const double rank_magnified; /* where too few pairs are distinguished */

/* A task in one precision. */
typedef struct rank_result {
    double error_scale;
    double *value; /* [RANK_N_METHOD × n_op] */
    double *noise; /* [n_op] of the oracle; then, [n_op·(n_op − 1)/2], half intervals of differences */
    int n_pair, n_distinguished;
} rank_result;

typedef struct rank_study {
    study_report *report;
    const rank_plan *plan;
    study_records records;
    noise_progress progress;
    noise_lab lab; /* of the task that runs */
    rank_result result[NOISE_N_PRECISION];
    /* of all tasks; [RANK_N_METHOD × n_bootstrap], NULL: skipped */
    double *drawn[NOISE_MAX_TASKS], tau[NOISE_MAX_TASKS][RANK_N_METHOD];
    const char *model[NOISE_MAX_TASKS];
    int n_task;
    double *room; /* [n_bootstrap] */
} rank_study;

static inline int rank_pair_count(int n) { return n * (n - 1) / 2; }

/* --- Methods of statistics and of the probe (rank_look.c) ----------------------------------------------- */

/* Steps of a training point for all three precisions. */
int rank_steps_of(const rank_study *s, rank_needs needs);
/* What these methods say of the task's operators, the mean over its training points, added to s->result. */
tandem_status rank_look_at_task(rank_study *s, tandem_error *error);

/* --- Jobs, and their records (rank_jobs.c) -------------------------------------------------------------- */

extern const char rank_job_statistics[], rank_job_probe[], rank_job_sampled[];
void rank_record_name(char text[STUDY_RECORD_NAME], const rank_study *s, int p, const char *what);
void rank_oracle_record_name(char text[STUDY_RECORD_NAME], const rank_study *s, int p, double error_scale);
/* How many pairs an oracle distinguishes; whether these are so few that errors are magnified. */
void rank_count_distinguished(rank_result *result, int n_op);
int rank_has_few_distinguished(const rank_result *result);
/* Runs the jobs that have no record, and fills in the results of all. */
tandem_status rank_jobs_run(rank_study *s, tandem_error *error);

/* --- What is left (rank_left.c) ------------------------------------------------------------------------- */

/* Says what a task has left before its jobs start, and adds its seconds to *left_s. */
tandem_status rank_left_note(double *left_s, rank_study *s, tandem_error *error);

/* --- Kendall's tau (rank_tau.c) ------------------------------------------------------------------------- */

/* Of a method over some precisions. draw: of the bootstrap, for the method that draws. times: how often each
 * operator is there; NULL: once. */
double rank_tau_of_method(const rank_study *s, int m, int first, int n_precision, const int *times,
                          uint64_t draw);
/* The tau of each method and its draws, of the task that runs. TANDEM_NO_MEMORY. */
tandem_status rank_bootstrap(rank_study *s, tandem_error *error);
/* Of a method's tau; less: of its difference to that of another, −1: none. */
study_interval rank_interval_of(rank_study *s, int t, int m, int less);

/* --- Tables (rank_table.c) ------------------------------------------------------------------------------ */

void rank_table_print(rank_study *s); /* of the task that runs */
void rank_bars_print(rank_study *s);  /* of all tasks */

#endif
