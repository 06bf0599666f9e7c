/* study_rank.c: `tandem study rank`: whether methods put operators into the order of their measured noise.
 *
 * Measured is an oracle: one operator in a precision and all else in fp32, at held weights, the noise of its
 * gradients by many replicates (predictor/sampled.c). All operators have the same batches and draws. Two
 * operators are told apart where the 95 % interval of the difference of their noises, the jackknife's over
 * common replicates, does not hold 0. Over the pairs that are told apart, within a precision and summed over
 * precisions, Kendall's tau-b counts pairs in the measured order less those in the other one:
 *     τ = (C − D)/√((C + D + T)(C + D)),    T: pairs that the method does not tell apart.
 * The interval is the bootstrap's over operators, with the same draws for all methods. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <gsl/gsl_rng.h>

#include "base/clock.h"
#include "cli/batch_statistics.h"
#include "cli/study/method/method.h"
#include "cli/study/noise_tasks.h"
#include "cli/study/rank_left.h"
#include "cli/study/study_gradient.h"
#include "cli/study/work_left.h"

/* Fixed before a run, as are the tasks. */
typedef struct rank_plan {
    const noise_tasks *tasks;
    int n_sampled, n_oracle; /* replicates of the method `sampled`, and others of the oracle */
    int n_batch;             /* of statistics, and of the probe */
    int n_bootstrap;
} rank_plan;
static const rank_plan full_plan = {&noise_tasks_full, 8, 48, 8, 2000},
                       quick_plan = {&noise_tasks_quick, 3, 8, 2, 200};
/* Jobs of a task: for all precisions, and in all, at least. */
enum { N_SHARED_JOB = 2, N_TASK_JOB = N_SHARED_JOB + 2 * NOISE_N_PRECISION };
static const double least_tau = 0.9, least_share = 0.3, magnified = 4; /* where fewer pairs are told apart */
static const unsigned long rank_bootstrap_seed = 1;

/* A task in one precision. */
typedef struct rank_result {
    double error_scale;
    double *value; /* [RANK_N_METHOD × n_op] */
    double *noise; /* [n_op] of the oracle; then, [n_op·(n_op − 1)/2], half intervals of differences */
    int n_pair, n_told;
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

static int pair_count(int n) { return n * (n - 1) / 2; }

static tandem_status open_results(rank_study *s, tandem_error *error)
{
    const int n = s->lab.n_op;
    int is_allocated = 1;
    if (n < 2 || n > STUDY_MAX_OPERATORS)
        return tandem_error_set(error, TANDEM_BUG, "a task of the study has %d operators", n);
    for (int p = 0; p < NOISE_N_PRECISION; p++) {
        s->result[p].value = calloc((size_t)(RANK_N_METHOD * n), sizeof(double));
        s->result[p].noise = calloc((size_t)(n + pair_count(n)), sizeof(double));
        is_allocated = is_allocated && s->result[p].value && s->result[p].noise;
    }
    return is_allocated ? TANDEM_OK : tandem_no_memory(error, "for the study's results");
}

static void close_results(rank_study *s)
{
    for (int p = 0; p < NOISE_N_PRECISION; p++) {
        free(s->result[p].value);
        free(s->result[p].noise);
        s->result[p] = (rank_result){0};
    }
    noise_lab_close(&s->lab);
}

/* Steps of an age for all three precisions. */
static int steps_of(const rank_study *s, rank_needs needs)
{
    const sensing_request probe = sensing_request_probe(&s->lab.workload);
    const int64_t samples = sensing_count_gradients(&s->lab.workload, &probe) * probe.batch;
    const int of[] = {0, s->plan->n_batch, 3 * s->plan->n_batch,
                      (int)((samples - 1) / s->lab.task->batch) + 1,
                      2 * s->plan->n_sampled * (1 + NOISE_N_PRECISION * s->lab.n_op)};
    return of[needs];
}

/* --- Methods of statistics and of the probe --------------------------------------------------------------
 * */

/* What they see at one age. */
typedef struct rank_view {
    tandem_statistics *statistics; /* [graph->n_op] */
    rank_probe *probe;             /* [NOISE_N_PRECISION × n_op] */
    double *of_product;            /* [graph->n_op × TANDEM_N_PRECISION] */
} rank_view;

/* Adds one replicate of a probe: sums of squares, and a share of the traces. */
static void add_probe(rank_view *view, const rank_study *s, const held_model *model, const probe_sums *sums)
{
    const int n_op = s->lab.n_op;
    for (int i = 0; i < NOISE_N_PRECISION * n_op; i++) {
        const tandem_precision_row *row = tandem_precision_get(noise_precisions[i / n_op]);
        const tandem_format forward = tandem_format_of_dtype(row->forward),
                            backward = tandem_format_of_dtype(row->wgrad),
                            written = tandem_format_of_dtype(row->output);
        int k = 0;
        while (k < model->n_op && model->op[k] != s->lab.op[i % n_op]) k++;
        const int is_seen = k < model->n_op;
        view->probe[i].noise += is_seen
                                    ? sums->sum[k][PART_INPUT][forward] + sums->sum[k][PART_WEIGHT][forward] +
                                          sums->sum[k][PART_GRADIENT][backward] +
                                          (written < TANDEM_N_FORMAT ? sums->sum[k][PART_RESULT][written] : 0)
                                    : NAN;
        view->probe[i].trace += is_seen ? sums->trace[k] / s->plan->n_batch : NAN;
    }
}

static tandem_status probe_all(rank_view *view, const rank_study *s, held_model *model,
                               const held_weights *at, int64_t first, tandem_error *error)
{
    probe_sums *sums = malloc(sizeof *sums);
    double square = 0; /* of the gradients */
    tandem_status status = sums ? TANDEM_OK : tandem_no_memory(error, "for a probe's sums");
    for (int b = 0; b < s->plan->n_batch && status == TANDEM_OK; b++) {
        const probe_request request = {at, first + b, (uint64_t)b + 1, .is_alone = 1};
        status = probe_predict(sums, model, &request, error);
        if (status != TANDEM_OK) break;
        add_probe(view, s, model, sums);
        square += sums->square;
    }
    for (int i = 0; i < NOISE_N_PRECISION * s->lab.n_op; i++) view->probe[i].noise *= 100 / square;
    free(sums);
    return status;
}

/* Adds a share of one age to what methods say of all operators. */
static tandem_status add_values(double *value, const rank_study *s, const rank_view *view, int p,
                                double share, tandem_error *error)
{
    const tandem_graph *graph = s->lab.workload.graph[0];
    const rank_input input = {.graph = graph,
                              .op = s->lab.op,
                              .n_op = s->lab.n_op,
                              .precision = noise_precisions[p],
                              .statistics = view->statistics,
                              .probe = view->probe + (size_t)p * (size_t)s->lab.n_op};
    for (int m = 0; m < RANK_N_METHOD; m++) {
        const rank_method *method = rank_methods[m];
        const tandem_sensitivity_method *product = NULL;
        if (method->needs >= RANK_NEEDS_SENSED_PROBE) continue;
        if (!method->compute) {
            const tandem_status status = tandem_sensitivity_find(&product, method->name, error);
            if (status != TANDEM_OK) return status;
            product->compute(view->of_product, graph, view->statistics, TANDEM_F32);
        }
        for (int k = 0; k < s->lab.n_op; k++)
            value[m * s->lab.n_op + k] +=
                share * (product
                             ? view->of_product[s->lab.op[k] * TANDEM_N_PRECISION + (int)noise_precisions[p]]
                             : method->compute(&input, k));
    }
    return TANDEM_OK;
}

static tandem_status look_at_age(rank_study *s, held_model *model, const held_weights *at,
                                 tandem_error *error)
{
    const tandem_graph *graph = s->lab.workload.graph[0];
    const int64_t first =
        s->lab.options.steps + 4 * (int64_t)TANDEM_MAX_REPLICATE; /* no batch of a sensing */
    rank_view view = {calloc((size_t)graph->n_op, sizeof *view.statistics),
                      calloc((size_t)(NOISE_N_PRECISION * s->lab.n_op), sizeof *view.probe),
                      calloc((size_t)graph->n_op * TANDEM_N_PRECISION, sizeof *view.of_product)};
    tandem_status status =
        view.statistics && view.probe && view.of_product
            ? model->rank.backend->executor_put_weights(model->rank.executor, at->weight, error)
            : tandem_no_memory(error, "for what methods see");
    if (status == TANDEM_OK)
        status = batch_statistics_collect(view.statistics, &model->rank, &s->lab.options, first,
                                          s->plan->n_batch, error);
    if (status == TANDEM_OK) status = probe_all(&view, s, model, at, first, error);
    for (int p = 0; p < NOISE_N_PRECISION && status == TANDEM_OK; p++)
        status = add_values(s->result[p].value, s, &view, p, 1.0 / s->lab.task->n_age, error);
    free(view.statistics);
    free(view.probe);
    free(view.of_product);
    return status;
}

static tandem_status look_at_task(rank_study *s, tandem_error *error)
{
    held_weights at[NOISE_MAX_AGE] = {{0}};
    held_model model = {0};
    const noise_task *task = s->lab.task;
    tandem_status status = held_weights_train(at, task->age, task->n_age, &s->lab.options, error);
    if (status == TANDEM_OK) status = held_model_open(&model, &s->lab.options, "fp32", error);
    for (int a = 0; a < task->n_age && status == TANDEM_OK; a++)
        status = look_at_age(s, &model, &at[a], error);
    held_model_close(&model);
    held_weights_free(at, NOISE_MAX_AGE);
    return status;
}

/* --- Jobs, and their records -----------------------------------------------------------------------------
 * */

static const char job_statistics[] = "by statistics and probe", job_probe[] = "sensed by a probe",
                  job_sampled[] = "sampled";

static void name_rank_record(char text[STUDY_RECORD_NAME], const rank_study *s, int p, const char *what)
{
    (void)snprintf(text, STUDY_RECORD_NAME, "%s: %s: %s", s->lab.task->model,
                   tandem_precision_get(noise_precisions[p])->name, what);
}

static void name_oracle_record(char text[STUDY_RECORD_NAME], const rank_study *s, int p, double error_scale)
{
    char what[64];
    (void)snprintf(what, sizeof what, "oracle, errors × %g", error_scale);
    name_rank_record(text, s, p, what);
}

static tandem_status run_statistics_job(rank_study *s, tandem_error *error)
{
    const int n = RANK_N_METHOD * s->lab.n_op;
    char name[STUDY_RECORD_NAME];
    int n_found = 0;
    for (int p = 0; p < NOISE_N_PRECISION; p++) {
        name_rank_record(name, s, p, job_statistics);
        n_found += study_records_find(s->result[p].value, n, &s->records, name);
    }
    const int64_t begin_ns = tandem_now_ns();
    tandem_status status = TANDEM_OK;
    if (n_found < NOISE_N_PRECISION) {
        for (int p = 0; p < NOISE_N_PRECISION; p++)
            memset(s->result[p].value, 0, (size_t)n * sizeof *s->result[p].value);
        status = look_at_task(s, error);
    }
    for (int p = 0; p < NOISE_N_PRECISION && status == TANDEM_OK && n_found < NOISE_N_PRECISION; p++) {
        name_rank_record(name, s, p, job_statistics);
        status = study_records_add(&s->records, name, s->result[p].value, n, error);
    }
    noise_progress_add(&s->progress, s->report->options,
                       n_found < NOISE_N_PRECISION ? tandem_now_ns() - begin_ns : 0);
    return status;
}

static tandem_status sense_task(tandem_sensing *sensing, const rank_study *s, int p, int first, int n,
                                double error_scale, tandem_error *error)
{
    sensing_request request = {.n_age = s->lab.task->n_age,
                               .n_replicate = n,
                               .first_replicate = first,
                               .precision = tandem_precision_get(noise_precisions[p])->name,
                               .emulation = tandem_emulation_make(0)};
    request.emulation.error_scale = error_scale;
    memcpy(request.age, s->lab.task->age, sizeof s->lab.task->age);
    return sensing_run(sensing, &s->lab.workload, &s->lab.options, &request, error);
}

/* Noises of all operators, then of their differences the half intervals. */
static tandem_status measure_pairs(double *noise, const rank_study *s, int p, const tandem_sensing *sensing,
                                   tandem_error *error)
{
    const int n = s->lab.n_op;
    double *weight = calloc((size_t)sensing->n_op, sizeof *weight), *half = noise + n;
    tandem_sensitivity_estimate of = {0};
    tandem_status status = weight ? TANDEM_OK : tandem_no_memory(error, "for pairs of operators");
    for (int i = 0; i < n && status == TANDEM_OK; i++) {
        weight[s->lab.op[i]] = 1;
        status = noise_of_rows(&of, sensing, noise_precisions[p], weight, s->lab.task->batch, error);
        noise[i] = of.noise;
        for (int j = i + 1; j < n && status == TANDEM_OK; j++) {
            weight[s->lab.op[j]] = -1;
            status = noise_of_rows(&of, sensing, noise_precisions[p], weight, s->lab.task->batch, error);
            *half++ = of.noise_half;
            weight[s->lab.op[j]] = 0;
        }
        weight[s->lab.op[i]] = 0;
    }
    free(weight);
    return status;
}

static void count_told(rank_result *result, int n_op)
{
    const double *noise = result->noise, *half = noise + n_op;
    result->n_pair = pair_count(n_op);
    result->n_told = 0;
    for (int i = 0; i < n_op; i++)
        for (int j = i + 1; j < n_op; j++) result->n_told += fabs(noise[i] - noise[j]) > *half++;
}

static int is_told_too_little(const rank_result *result)
{
    return result->n_told < least_share * result->n_pair;
}

static tandem_status run_oracle_job(rank_study *s, int p, double error_scale, tandem_error *error)
{
    const int n = s->lab.n_op + pair_count(s->lab.n_op);
    char name[STUDY_RECORD_NAME];
    tandem_sensing sensing = {0};
    name_oracle_record(name, s, p, error_scale);
    s->result[p].error_scale = error_scale;
    int64_t took_ns = 0;
    if (!study_records_find(s->result[p].noise, n, &s->records, name)) {
        const int64_t begin_ns = tandem_now_ns();
        tandem_status status =
            sense_task(&sensing, s, p, s->plan->n_sampled, s->plan->n_oracle, error_scale, error);
        if (status == TANDEM_OK) status = measure_pairs(s->result[p].noise, s, p, &sensing, error);
        tandem_sensing_close(&sensing);
        if (status == TANDEM_OK) status = study_records_add(&s->records, name, s->result[p].noise, n, error);
        if (status != TANDEM_OK) return status;
        took_ns = tandem_now_ns() - begin_ns;
    }
    noise_progress_add(&s->progress, s->report->options, took_ns);
    count_told(&s->result[p], s->lab.n_op);
    return TANDEM_OK;
}

/* What `--sensitivity sampled` says, and its noise alone, [2 × n_op]. */
static tandem_status read_sampled(double *value, const rank_study *s, int p, const tandem_sensing *sensing,
                                  tandem_error *error)
{
    double *weight = calloc((size_t)sensing->n_op, sizeof *weight);
    tandem_status status = weight ? TANDEM_OK : tandem_no_memory(error, "for the rows of operators");
    for (int k = 0; k < s->lab.n_op && status == TANDEM_OK; k++) {
        tandem_sensitivity_estimate of = {0};
        weight[s->lab.op[k]] = 1;
        status = noise_of_rows(&of, sensing, noise_precisions[p], weight, s->lab.task->batch, error);
        weight[s->lab.op[k]] = 0;
        value[k] = of.value;
        value[s->lab.n_op + k] = of.noise;
    }
    free(weight);
    return status;
}

static tandem_status run_sampled_job(rank_study *s, int p, tandem_error *error)
{
    const int n = 2 * s->lab.n_op;
    double *value =
        s->result[p].value + rank_method_find("sampled") * s->lab.n_op; /* its noise stands next */
    char name[STUDY_RECORD_NAME];
    tandem_sensing sensing = {0};
    int64_t took_ns = 0;
    name_rank_record(name, s, p, job_sampled);
    if (!study_records_find(value, n, &s->records, name)) {
        const int64_t begin_ns = tandem_now_ns();
        tandem_status status = sense_task(&sensing, s, p, 0, s->plan->n_sampled, 1, error);
        if (status == TANDEM_OK) status = read_sampled(value, s, p, &sensing, error);
        tandem_sensing_close(&sensing);
        if (status == TANDEM_OK) status = study_records_add(&s->records, name, value, n, error);
        if (status != TANDEM_OK) return status;
        took_ns = tandem_now_ns() - begin_ns;
    }
    noise_progress_add(&s->progress, s->report->options, took_ns);
    return TANDEM_OK;
}

/* All precisions at once, as `tandem sensitivity` senses them; converted to the task's batch. */
static tandem_status sense_by_probe(rank_study *s, tandem_error *error)
{
    sensing_request request = sensing_request_probe(&s->lab.workload);
    double *weight = calloc((size_t)s->lab.workload.graph[0]->n_op, sizeof *weight);
    tandem_sensing sensing = {0};
    request.n_age = s->lab.task->n_age;
    memcpy(request.age, s->lab.task->age, sizeof s->lab.task->age);
    tandem_status status = weight ? sensing_run(&sensing, &s->lab.workload, &s->lab.options, &request, error)
                                  : tandem_no_memory(error, "for the rows of operators");
    for (int i = 0; i < NOISE_N_PRECISION * s->lab.n_op && status == TANDEM_OK; i++) {
        const int p = i / s->lab.n_op, k = i % s->lab.n_op;
        tandem_sensitivity_estimate of = {0};
        weight[s->lab.op[k]] = 1;
        status = noise_of_rows(&of, &sensing, noise_precisions[p], weight, s->lab.task->batch, error);
        weight[s->lab.op[k]] = 0;
        s->result[p].value[rank_method_find("sensed_probe") * s->lab.n_op + k] = of.noise;
    }
    tandem_sensing_close(&sensing);
    free(weight);
    return status;
}

static tandem_status run_probe_job(rank_study *s, tandem_error *error)
{
    const int n = s->lab.n_op, m = rank_method_find("sensed_probe");
    char name[STUDY_RECORD_NAME];
    int n_found = 0;
    int64_t took_ns = 0;
    for (int p = 0; p < NOISE_N_PRECISION; p++) {
        name_rank_record(name, s, p, job_probe);
        n_found += study_records_find(s->result[p].value + m * n, n, &s->records, name);
    }
    if (n_found < NOISE_N_PRECISION) {
        const int64_t begin_ns = tandem_now_ns();
        tandem_status status = sense_by_probe(s, error);
        for (int p = 0; p < NOISE_N_PRECISION && status == TANDEM_OK; p++) {
            name_rank_record(name, s, p, job_probe);
            status = study_records_add(&s->records, name, s->result[p].value + m * n, n, error);
        }
        if (status != TANDEM_OK) return status;
        took_ns = tandem_now_ns() - begin_ns;
    }
    noise_progress_add(&s->progress, s->report->options, took_ns);
    return TANDEM_OK;
}

static tandem_status run_task_jobs(rank_study *s, tandem_error *error)
{
    tandem_status status = run_statistics_job(s, error);
    if (status == TANDEM_OK) status = run_probe_job(s, error);
    for (int p = 0; p < NOISE_N_PRECISION && status == TANDEM_OK; p++) {
        status = run_sampled_job(s, p, error);
        if (status == TANDEM_OK) status = run_oracle_job(s, p, 1, error);
        if (status == TANDEM_OK && is_told_too_little(&s->result[p])) {
            s->progress.n_job++;
            status = run_oracle_job(s, p, magnified, error);
        }
    }
    return status;
}

/* --- What is left, before it starts ----------------------------------------------------------------------
 * */

static void count_sensing_left(rank_left *left, int n_replicate)
{
    left->n_job++;
    left->n_sensing++;
    left->n_replicate += n_replicate;
}

/* An oracle with magnified errors is known of once that without them has its record. *n_all: all jobs. */
static rank_left count_rank_left(int *n_all, rank_study *s)
{
    const int n = s->lab.n_op, n_oracle = n + pair_count(n);
    char name[STUDY_RECORD_NAME];
    int has_statistics = 1, has_probe = 1;
    rank_left left = {0};
    *n_all = N_TASK_JOB;
    for (int p = 0; p < NOISE_N_PRECISION; p++) {
        rank_result *result = &s->result[p];
        name_rank_record(name, s, p, job_statistics);
        has_statistics = has_statistics && study_records_has(&s->records, name, RANK_N_METHOD * n);
        name_rank_record(name, s, p, job_probe);
        has_probe = has_probe && study_records_has(&s->records, name, n);
        name_rank_record(name, s, p, job_sampled);
        if (!study_records_has(&s->records, name, 2 * n)) count_sensing_left(&left, s->plan->n_sampled);
        name_oracle_record(name, s, p, 1);
        if (!study_records_find(result->noise, n_oracle, &s->records, name)) {
            count_sensing_left(&left, s->plan->n_oracle);
            continue;
        }
        count_told(result, n);
        if (!is_told_too_little(result)) continue;
        ++*n_all;
        name_oracle_record(name, s, p, magnified);
        if (!study_records_has(&s->records, name, n_oracle)) count_sensing_left(&left, s->plan->n_oracle);
    }
    left.n_job += !has_statistics + !has_probe;
    left.n_probe = has_statistics ? 0 : s->plan->n_batch;
    left.n_step = has_probe ? 0 : steps_of(s, RANK_NEEDS_SENSED_PROBE);
    return left;
}

/* Says what a task has left, and adds its seconds to *left_s; nothing where its data set is not here. */
static tandem_status note_rank_task(double *left_s, rank_study *s, const noise_task *task,
                                    tandem_error *error)
{
    tandem_error why = {0};
    double seconds = 0;
    int n_all = 0;
    tandem_status status = noise_lab_open(&s->lab, task, s->report->options, &why);
    const int is_here = status == TANDEM_OK;
    if (is_here) status = open_results(s, error);
    if (status == TANDEM_OK) {
        const rank_left left = count_rank_left(&n_all, s);
        status = rank_left_seconds(&seconds, &s->lab, &left, error);
        if (status == TANDEM_OK)
            work_left_note(s->report->options, task->model, left.n_job, n_all, "jobs", seconds);
        *left_s += seconds;
    }
    close_results(s);
    return is_here ? status : TANDEM_OK; /* the run says what is wrong */
}

static tandem_status note_rank_plan(rank_study *s, tandem_error *error)
{
    double left_s = 0;
    tandem_status status = TANDEM_OK;
    for (int t = 0; t < s->plan->tasks->n && status == TANDEM_OK; t++)
        status = note_rank_task(&left_s, s, &s->plan->tasks->task[t], error);
    if (status == TANDEM_OK) work_left_note_all(s->report->options, left_s);
    return status;
}

/* --- Kendall's tau ---------------------------------------------------------------------------------------
 * */

typedef struct rank_counts {
    double same, other, tied;
} rank_counts;

/* NaN: no pair is told apart. */
static double tau_of(const rank_counts *counts)
{
    const double told = counts->same + counts->other;
    if (told + counts->tied == 0) return NAN;
    return told > 0 ? (counts->same - counts->other) / sqrt(told * (told + counts->tied)) : 0;
}

/* times: how often each operator is there; NULL: once. */
static void count_pairs(rank_counts *counts, const rank_result *result, const double *value, const int *times,
                        int n)
{
    const double *half = result->noise + n;
    for (int i = 0; i < n; i++)
        for (int j = i + 1; j < n; j++) {
            const double measured = result->noise[i] - result->noise[j], said = value[i] - value[j],
                         by = times ? (double)times[i] * times[j] : 1;
            if (fabs(measured) <= *half++) continue;
            if (said * measured > 0)
                counts->same += by;
            else if (said * measured < 0)
                counts->other += by;
            else
                counts->tied += by;
        }
}

/* Of a method over some precisions. draw: of the bootstrap, for the method that draws. */
static double tau_of_method(const rank_study *s, int m, int first, int n_precision, const int *times,
                            uint64_t draw)
{
    rank_counts counts = {0};
    const int n = s->lab.n_op, is_random = rank_methods[m] == &rank_method_random;
    for (int p = first; p < first + n_precision; p++) {
        const rank_input input = {.precision = noise_precisions[p], .draw = draw};
        double value[STUDY_MAX_OPERATORS] = {0};
        for (int k = 0; k < n; k++)
            value[k] = is_random ? rank_method_random.compute(&input, k) : s->result[p].value[m * n + k];
        count_pairs(&counts, &s->result[p], value, times, n);
    }
    return tau_of(&counts);
}

/* At least two operators, so that there is a pair. */
static void draw_operators(int times[STUDY_MAX_OPERATORS], int n, gsl_rng *random)
{
    int n_other = 0;
    while (n_other == 0) {
        memset(times, 0, (size_t)n * sizeof *times);
        for (int k = 0; k < n; k++) times[gsl_rng_uniform_int(random, (unsigned long)n)]++;
        for (int k = 0; k < n; k++) n_other += times[k] > 0 && times[k] < n;
    }
}

static tandem_status bootstrap_task(rank_study *s, tandem_error *error)
{
    int times[STUDY_MAX_OPERATORS];
    const int n_draw = s->plan->n_bootstrap, t = s->n_task;
    gsl_rng *random = gsl_rng_alloc(gsl_rng_mt19937);
    s->drawn[t] = calloc((size_t)RANK_N_METHOD * (size_t)n_draw, sizeof *s->drawn[t]);
    if (random && s->drawn[t]) {
        gsl_rng_set(random, rank_bootstrap_seed + (unsigned long)t);
        for (int i = 0; i < n_draw; i++) {
            draw_operators(times, s->lab.n_op, random);
            for (int m = 0; m < RANK_N_METHOD; m++)
                s->drawn[t][m * n_draw + i] =
                    tau_of_method(s, m, 0, NOISE_N_PRECISION, times, (uint64_t)i + 1);
        }
        for (int m = 0; m < RANK_N_METHOD; m++)
            s->tau[t][m] = tau_of_method(s, m, 0, NOISE_N_PRECISION, NULL, 0);
    }
    const int is_drawn = random && s->drawn[t];
    if (random) gsl_rng_free(random);
    return is_drawn ? TANDEM_OK : tandem_no_memory(error, "for the draws of a bootstrap");
}

/* Of a method's tau; less: of its difference to that of another, −1: none. */
static study_interval rank_interval_of(rank_study *s, int t, int m, int less)
{
    const int n_draw = s->plan->n_bootstrap;
    int n = 0;
    for (int i = 0; i < n_draw; i++) {
        const double one = s->drawn[t][m * n_draw + i] - (less < 0 ? 0 : s->drawn[t][less * n_draw + i]);
        if (!isnan(one)) s->room[n++] = one; /* else the draw has no pair */
    }
    return study_draws_interval(s->room, n);
}

/* --- The tables ------------------------------------------------------------------------------------------
 * */

static void print_method(rank_study *s, int m, json_t *methods)
{
    const rank_method *method = rank_methods[m];
    const study_interval interval = rank_interval_of(s, s->n_task, m, -1);
    const int steps = steps_of(s, method->needs);
    json_t *object = json_pack("{s:s,s:s,s:s,s:i}", "method", method->name, "unit", method->unit, "needs",
                               rank_needs_name(method->needs), "steps", steps);
    json_object_set_new(object, "tau", cli_json_number(s->tau[s->n_task][m]));
    json_object_set_new(object, "tau_low", cli_json_number(interval.low));
    json_object_set_new(object, "tau_high", cli_json_number(interval.high));
    (void)fprintf(s->report->text, "| %s | %s | %s | %d | %.2f (%.2f to %.2f)", method->name, method->unit,
                  rank_needs_name(method->needs), steps, s->tau[s->n_task][m], interval.low, interval.high);
    for (int p = 0; p < NOISE_N_PRECISION; p++) {
        const double tau = tau_of_method(s, m, p, 1, NULL, 0);
        (void)fprintf(s->report->text, " | %.2f", tau);
        json_object_set_new(object, tandem_precision_get(noise_precisions[p])->name, cli_json_number(tau));
    }
    (void)fputs(" |\n", s->report->text);
    json_array_append_new(methods, object);
}

static json_t *oracle_json(const rank_study *s, int p)
{
    const rank_result *result = &s->result[p];
    json_t *noise = json_object();
    for (int k = 0; k < s->lab.n_op; k++)
        json_object_set_new(noise, s->lab.workload.graph[0]->op[s->lab.op[k]].name,
                            cli_json_number(100 * result->noise[k]));
    return json_pack("{s:f,s:i,s:i,s:o}", "error_scale", result->error_scale, "pairs", result->n_pair,
                     "told_apart", result->n_told, "measured", noise);
}

static void print_rank_task(rank_study *s)
{
    json_t *methods = json_array(), *oracle = json_object();
    FILE *text = s->report->text;
    (void)fprintf(text, "\n## `%s`\n\n%d operators. Pairs told apart: ", s->lab.task->model, s->lab.n_op);
    for (int p = 0; p < NOISE_N_PRECISION; p++) {
        const rank_result *result = &s->result[p];
        const char *name = tandem_precision_get(noise_precisions[p])->name;
        (void)fprintf(text, "%s%s %d of %d (%.0f %%)", p ? ",\n" : "", name, result->n_told, result->n_pair,
                      100.0 * result->n_told / result->n_pair);
        if (result->error_scale > 1) (void)fprintf(text, " with errors × %g", result->error_scale);
        json_object_set_new(oracle, name, oracle_json(s, p));
    }
    (void)fputs(".\n\n| method | unit | needs | steps | τ | bf16 | fp8 | int8_full |\n"
                "|---|---|---|---|---|---|---|---|\n",
                text);
    for (int m = 0; m < RANK_N_METHOD; m++) print_method(s, m, methods);
    json_object_set_new(s->report->json, s->lab.task->model,
                        json_pack("{s:o,s:o}", "oracle", oracle, "methods", methods));
}

static void add_rank_bar(rank_study *s, int t, const char *bar, double value, study_interval interval,
                         int is_met)
{
    json_t *object = json_pack("{s:s,s:s}", "model", s->model[t], "bar", bar);
    json_object_set_new(object, "value", cli_json_number(value));
    json_object_set_new(object, "low", cli_json_number(interval.low));
    json_object_set_new(object, "high", cli_json_number(interval.high));
    study_add_cell(s->report, object, is_met);
    (void)fprintf(s->report->text, "| `%s` | %s | %.2f (%.2f to %.2f) | %s |\n", s->model[t], bar, value,
                  interval.low, interval.high, is_met ? "yes" : "NO");
}

static void print_rank_bars(rank_study *s)
{
    const int qsync = rank_method_find("qsync"), random = rank_method_find("random");
    int best = 0;
    double best_sum = -INFINITY;
    for (int m = 0; m < RANK_N_METHOD; m++) {
        double sum = 0;
        for (int t = 0; t < s->n_task; t++) sum += isnan(s->tau[t][m]) ? 0 : s->tau[t][m];
        if (sum > best_sum) {
            best_sum = sum;
            best = m;
        }
    }
    json_object_set_new(s->report->json, "best", json_string(rank_methods[best]->name));
    (void)fprintf(s->report->text,
                  "\n## Bars\n\nThe largest mean of τ over tasks has *%s*.\n\n"
                  "| task | bar | value | met |\n|---|---|---|---|\n",
                  rank_methods[best]->name);
    for (int t = 0; t < s->n_task; t++) {
        const study_interval none = rank_interval_of(s, t, random, -1),
                             above = rank_interval_of(s, t, best, qsync);
        add_rank_bar(s, t, "τ of the best method is 0.9 or more", s->tau[t][best],
                     rank_interval_of(s, t, best, -1), s->tau[t][best] >= least_tau);
        add_rank_bar(s, t, "it is above that of qsync: the difference", s->tau[t][best] - s->tau[t][qsync],
                     above, above.low > 0);
        add_rank_bar(s, t, "the interval of random holds 0", s->tau[t][random], none,
                     none.low <= 0 && none.high >= 0);
    }
}

/* --- The part --------------------------------------------------------------------------------------------
 * */

static tandem_status run_rank_task(rank_study *s, const noise_task *task, tandem_error *error)
{
    tandem_error why = {0};
    tandem_status status = noise_lab_open(&s->lab, task, s->report->options, &why);
    if (status != TANDEM_OK && noise_task_skip(s->report, task, status)) {
        s->progress.n_job -= N_TASK_JOB;
        return TANDEM_OK;
    }
    if (status != TANDEM_OK) *error = why;
    if (status == TANDEM_OK) status = open_results(s, error);
    if (status == TANDEM_OK) status = run_task_jobs(s, error);
    if (status == TANDEM_OK) status = bootstrap_task(s, error);
    if (status == TANDEM_OK) {
        print_rank_task(s);
        s->model[s->n_task++] = task->model;
    }
    close_results(s);
    return status;
}

static tandem_status open_rank_records(rank_study *s, tandem_error *error)
{
    const rank_plan *plan = s->plan;
    const double number[] = {plan->n_sampled, plan->n_oracle, plan->n_batch};
    char name[STUDY_PLAN_NAME];
    noise_plan_name(name, plan->tasks, "rank", number, sizeof number / sizeof *number,
                    s->report->options->seed);
    return study_records_open(&s->records, s->report->options->checkpoint, name, error);
}

tandem_status study_rank(study_report *report, tandem_error *error)
{
    rank_study s = {.report = report, .plan = report->options->quick ? &quick_plan : &full_plan};
    s.progress = (noise_progress){.part = "rank", .n_job = s.plan->tasks->n * N_TASK_JOB};
    (void)fprintf(
        report->text,
        "# The order of operators\n\n"
        "One operator has a precision, all else is fp32. Measured: the noise φρ of its gradients, by %d\n"
        "replicates of two batches at each age. τ: Kendall's tau-b over the pairs of operators that this\n"
        "tells apart, within a precision, with its 95 %% interval over operators. *steps*: what a method\n"
        "takes at one age for three precisions.\n",
        s.plan->n_oracle);
    s.room = calloc((size_t)s.plan->n_bootstrap, sizeof *s.room);
    tandem_status status = s.room ? open_rank_records(&s, error) : tandem_no_memory(error, "for a bootstrap");
    if (status == TANDEM_OK && !report->options->quiet) status = note_rank_plan(&s, error);
    for (int t = 0; t < s.plan->tasks->n && status == TANDEM_OK; t++)
        status = run_rank_task(&s, &s.plan->tasks->task[t], error);
    if (status == TANDEM_OK) print_rank_bars(&s);
    study_records_close(&s.records);
    for (int t = 0; t < NOISE_MAX_TASKS; t++) free(s.drawn[t]);
    free(s.room);
    return status;
}
