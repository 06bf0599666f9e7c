/* jobs.c: runs what a part of the study has to measure and has no record of, one process a core. */
#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "runtime/process/process.h"
#include "research/trainings.h"
#include "research/work_left.h"

enum { MAX_WORKERS = 64 };

tandem_status study_jobs_open(study_jobs *jobs, const cli_options *options, const char *part, uint64_t plan,
                              study_margins *margins, tandem_error *error)
{
    *jobs = (study_jobs){.options = options, .part = part, .n_worker = 1};
    char name[STUDY_PLAN_NAME];
    study_plan_name(name, plan, options->seed);
    if (study_own.recorded && access(options->checkpoint, R_OK) != 0)
        return tandem_error_set(error, TANDEM_IO, "cannot read '%s': %s", options->checkpoint,
                                strerror(errno));
    const tandem_status status =
        study_records_open(&jobs->records, options->checkpoint, name, margins, error);
    return status == TANDEM_OK ? study_lab_open(&jobs->lab, options, error) : status;
}

void study_jobs_close(study_jobs *jobs)
{
    study_lab_close(&jobs->lab);
    study_records_close(&jobs->records);
}

typedef struct training_work {
    const study_lab *lab;
    const study_training *training;
} training_work;

static tandem_status try_steps(const void *work, int64_t n, tandem_error *error)
{
    const training_work *of = work;
    study_trained trained;
    return study_train(&trained, of->lab, of->training, n, error);
}

tandem_status study_jobs_estimate(study_jobs *jobs, const study_training *training, int n,
                                  tandem_error *error)
{
    work_cost cost;
    if (n == 0) return TANDEM_OK;
    const tandem_status status = work_cost_measure(&cost, try_steps, &(training_work){&jobs->lab, training},
                                                   training->steps / 40 + 1, training->steps / 20 + 2, error);
    if (status == TANDEM_OK) jobs->left_s += n * work_cost_seconds(&cost, training->steps);
    return status;
}

void study_jobs_note(const study_jobs *jobs, const char *model, tandem_optimizer optimizer, int n_left, int n,
                     double before_s)
{
    char task[STUDY_RECORD_NAME];
    (void)snprintf(task, sizeof task, "%s, %s", model, tandem_optimizer_name(optimizer));
    work_left_note(jobs->options, task, n_left, n, "trainings", jobs->left_s - before_s);
}

int study_jobs_find(double *value, int n, int *is_own, study_jobs *jobs, const char *name)
{
    *is_own = 0;
    if (study_records_find(value, n, &jobs->records, name)) return 1;
    jobs->n_missing += study_own.recorded;
    *is_own = jobs->job++ % jobs->n_worker == jobs->worker && !study_own.recorded;
    return 0;
}

tandem_status study_jobs_require_all(const study_jobs *jobs, tandem_error *error)
{
    if (jobs->n_missing == 0) return TANDEM_OK;
    return tandem_error_set(error, TANDEM_MISSING,
                            "'%s' lacks %d records of study %s. Run it without --recorded, or ask for fewer "
                            "seeds with --repetitions",
                            jobs->records.path, jobs->n_missing, jobs->part);
}

tandem_status study_jobs_measure(double *value, int n, study_jobs *jobs, const char *name,
                                 study_measure *measure, const void *what, tandem_error *error)
{
    int is_own = 0;
    if (study_jobs_find(value, n, &is_own, jobs, name) || !is_own) return TANDEM_OK;
    const int64_t begin_ns = tandem_now_ns();
    tandem_status status = measure(value, n, &jobs->lab, what, error);
    if (status == TANDEM_LIMIT_EXCEEDED) {
        for (int i = 0; i < n; i++) value[i] = NAN;
        status = TANDEM_OK;
    }
    if (status != TANDEM_OK) return status;
    status = study_records_add(&jobs->records, name, value, n, error);
    jobs->done_s += (double)(tandem_now_ns() - begin_ns) * 1e-9;
    cli_progress(jobs->options, (int64_t)(1e9 * fmax(jobs->left_s / jobs->n_worker - jobs->done_s, 0)),
                 "study: %s, %s", jobs->part, name);
    return status;
}

/* what: the study_training. */
static tandem_status measure_training(double *value, int n, const study_lab *lab, const void *what,
                                      tandem_error *error)
{
    const study_training *training = what;
    study_trained trained = {0};
    const tandem_status status = study_train(&trained, lab, training, training->steps, error);
    const double values[STUDY_TRAINED_VALUES] = {trained.loss, trained.accuracy, trained.n_skipped};
    for (int i = 0; i < n && i < STUDY_TRAINED_VALUES; i++) value[i] = values[i];
    return status;
}

tandem_status study_jobs_train(double *value, int n, study_jobs *jobs, const char *name,
                               const study_training *training, tandem_error *error)
{
    return study_jobs_measure(value, n, jobs, name, measure_training, training, error);
}

static _Noreturn void run_worker(study_jobs *jobs, int worker, study_pass *pass, void *study)
{
    tandem_error error = {0};
    jobs->worker = worker;
    _exit(pass(study, &error) == TANDEM_OK ? 0 : cli_fail(&error));
}

static tandem_status run_workers(study_jobs *jobs, study_pass *pass, void *study, tandem_error *error)
{
    const long n_core = sysconf(_SC_NPROCESSORS_ONLN);
    int n = 0, n_done = 0, how = 0;
    jobs->n_worker = n_core < 1 ? 1 : n_core > MAX_WORKERS ? MAX_WORKERS : (int)n_core;
    children_begin();
    for (; n < jobs->n_worker && !children_are_ending(); n++) {
        const int child = child_fork();
        if (child == 0) run_worker(jobs, n, pass, study);
        if (child < 0) break;
    }
    while (child_wait(&how) > 0) n_done += WIFEXITED(how) && WEXITSTATUS(how) == 0;
    children_end();
    const int is_failed = n_done < jobs->n_worker;
    jobs->n_worker = 1;
    return is_failed ? tandem_error_set(error, TANDEM_RANK_FAILED,
                                        "a process of the study failed. Run it again: it goes on from '%s'",
                                        jobs->records.path)
                     : study_records_read(&jobs->records, error);
}

tandem_status study_jobs_run(study_jobs *jobs, study_pass *pass, void *study, tandem_error *error)
{
    const int is_split = jobs->records.file && !study_own.recorded;
    const tandem_status status = is_split ? run_workers(jobs, pass, study, error) : TANDEM_OK;
    jobs->job = jobs->n_missing = 0;
    return status == TANDEM_OK ? pass(study, error) : status;
}
