/* study_drift.c: `tandem-study drift`: whether a training whose outliers grow ends nearer to fp32 where its
 * plan follows. docs/study/README.md has the design.
 *
 * A V100 in fp32, which ends the step, beside a T4 in low precision. One plan is made at step 0. It is kept;
 * or the training estimates its sensitivities again and allocates again, within the same step. Seeds are
 * common. */
#include <math.h>
#include <stdlib.h>

#include "research/drift.h"
#include "predictor/paired.h"
#include "research/work_left.h"

enum { MAX_TASKS = 8 };

typedef drift_trained drift_seed[DRIFT_N_CELL][DRIFT_N_ARM];

typedef struct drift_study {
    study_report *report;
    const drift_plan *plan;
    int n_seed; /* of the plan's */
    study_jobs jobs;
    drift_seed *seed[MAX_TASKS]; /* [n_seed] */
    int is_left_out[MAX_TASKS];  /* records of it are missing */
    double *room;                /* [n_seed] */
} drift_study;

static const char *const cell_names[DRIFT_N_CELL] = {"as they are", "grown"};

/* --- Running ---------------------------------------------------------------------------------------------
 * */

static void name_drift_record(char text[STUDY_RECORD_NAME], const drift_training *of, int seed)
{
    static const char *const arm[DRIFT_N_ARM] = {"fp32", "kept", "replanned", "random"};
    (void)snprintf(text, STUDY_RECORD_NAME, "%s: outliers %s, %s: %d", of->task->training.model,
                   cell_names[of->cell], arm[of->arm], seed);
}

static drift_training drift_training_of(const drift_study *s, int t, int cell, int arm, int seed)
{
    return (drift_training){.plan = s->plan,
                            .task = &s->plan->task[t],
                            .cell = cell,
                            .arm = (drift_arm)arm,
                            .seed = s->report->options->seed + (uint64_t)seed};
}

static tandem_status train_drift(drift_study *s, int t, int cell, int arm, int seed, tandem_error *error)
{
    char name[STUDY_RECORD_NAME];
    double value[DRIFT_VALUES] = {0};
    const drift_training training = drift_training_of(s, t, cell, arm, seed);
    name_drift_record(name, &training, seed);
    const tandem_status status =
        study_jobs_measure(value, DRIFT_VALUES, &s->jobs, name, drift_measure, &training, error);
    s->seed[t][seed][cell][arm] =
        (drift_trained){value[0], value[1], value[2], value[3], value[4], value[5], value[6]};
    return status;
}

/* Task by task, so that a study that stops early has whole tasks. */
static tandem_status run_drift_trainings(void *study, tandem_error *error)
{
    drift_study *s = study;
    tandem_status status = TANDEM_OK;
    for (int t = 0; t < s->plan->n_task; t++) {
        const int n_missing = s->jobs.n_missing;
        for (int k = 0; k < s->n_seed; k++)
            for (int i = 0; i < DRIFT_N_CELL * DRIFT_N_ARM && status == TANDEM_OK; i++)
                status = train_drift(s, t, i / DRIFT_N_ARM, i % DRIFT_N_ARM, k, error);
        s->is_left_out[t] = s->jobs.n_missing > n_missing;
    }
    return status;
}

/* By trials in uniform low precision, which leave out what an estimate takes. */
static tandem_status note_drift(drift_study *s, tandem_error *error)
{
    tandem_status status = TANDEM_OK;
    for (int t = 0; t < s->plan->n_task && status == TANDEM_OK; t++) {
        study_training low = s->plan->task[t].training;
        int n_missing = 0;
        low.precision = tandem_precision_get(s->plan->precision)->name;
        low.emulation = tandem_emulation_make(s->report->options->seed);
        for (int i = 0; i < s->n_seed * DRIFT_N_CELL * DRIFT_N_ARM; i++) {
            char name[STUDY_RECORD_NAME];
            double value[DRIFT_VALUES];
            const int k = i / (DRIFT_N_CELL * DRIFT_N_ARM), of = i % (DRIFT_N_CELL * DRIFT_N_ARM);
            const drift_training training = drift_training_of(s, t, of / DRIFT_N_ARM, of % DRIFT_N_ARM, k);
            name_drift_record(name, &training, k);
            n_missing += !study_records_find(value, DRIFT_VALUES, &s->jobs.records, name);
        }
        const double before_s = s->jobs.left_s;
        status = study_jobs_estimate(&s->jobs, &low, n_missing, error);
        if (status == TANDEM_OK)
            study_jobs_note(&s->jobs, low.model, low.optimizer, n_missing,
                            s->n_seed * DRIFT_N_CELL * DRIFT_N_ARM, before_s);
    }
    if (status == TANDEM_OK) work_left_note_all(s->report->options, s->jobs.left_s);
    return status;
}

/* --- Statistics ------------------------------------------------------------------------------------------
 * */

/* A training that diverged knows nothing. */
static double loss_of(const drift_trained *of) { return isnan(of->loss) ? log(10) : of->loss; }
static double points_of_drift(const drift_trained *of)
{
    return isnan(of->accuracy) ? 10 : 100 * of->accuracy;
}

typedef struct drift_mean {
    double value, low, high;
} drift_mean;

static drift_mean mean_of_room(const drift_study *s)
{
    const paired_difference of = paired_difference_of(s->room, s->n_seed);
    const paired_interval interval = paired_interval_of(&of, study_margin.drift_level);
    return (drift_mean){of.mean, interval.low, interval.high};
}

/* Test loss above fp32's. */
static drift_mean loss_over_fp32(const drift_study *s, int t, int cell, int arm)
{
    for (int k = 0; k < s->n_seed; k++)
        s->room[k] = loss_of(&s->seed[t][k][cell][arm]) - loss_of(&s->seed[t][k][cell][DRIFT_FP32]);
    return mean_of_room(s);
}

/* By how much the replanned training ends nearer to fp32's test loss than another. */
static drift_mean nearer_than(const drift_study *s, int t, int cell, int other)
{
    for (int k = 0; k < s->n_seed; k++) {
        const drift_trained *of = s->seed[t][k][cell];
        const double fp32 = loss_of(&of[DRIFT_FP32]);
        s->room[k] = fabs(loss_of(&of[other]) - fp32) - fabs(loss_of(&of[DRIFT_REPLANNED]) - fp32);
    }
    return mean_of_room(s);
}

static drift_mean points_over_kept(const drift_study *s, int t, int cell)
{
    for (int k = 0; k < s->n_seed; k++)
        s->room[k] = points_of_drift(&s->seed[t][k][cell][DRIFT_REPLANNED]) -
                     points_of_drift(&s->seed[t][k][cell][DRIFT_KEPT]);
    return mean_of_room(s);
}

/* Means over the replanned trainings that went to their end. */
static drift_trained mean_replanned(const drift_study *s, int t, int cell, int *n_diverged)
{
    drift_trained mean = {0};
    int n = 0;
    *n_diverged = 0;
    for (int k = 0; k < s->n_seed; k++) {
        const drift_trained *of = &s->seed[t][k][cell][DRIFT_REPLANNED];
        for (int a = 0; a < DRIFT_N_ARM; a++) *n_diverged += isnan(s->seed[t][k][cell][a].loss);
        if (isnan(of->loss)) continue;
        n++;
        mean.n_estimated += of->n_estimated;
        mean.n_by_range += of->n_by_range;
        mean.n_changed += of->n_changed;
        mean.kept += of->kept;
        mean.chosen += of->chosen;
    }
    return (drift_trained){.n_estimated = mean.n_estimated / n,
                           .n_by_range = mean.n_by_range / n,
                           .n_changed = mean.n_changed / n,
                           .kept = 100 * mean.kept / n,
                           .chosen = 100 * mean.chosen / n};
}

/* --- The table -------------------------------------------------------------------------------------------
 * */

static void print_drift_mean(FILE *text, const drift_mean *of, int digits)
{
    (void)fprintf(text, " %.*f (%.*f to %.*f) |", digits, of->value, digits, of->low, digits, of->high);
}

static void set_drift_mean(json_t *object, const char *key, const drift_mean *of)
{
    json_t *mean = json_object();
    json_object_set_new(mean, "value", cli_json_number(of->value));
    json_object_set_new(mean, "low", cli_json_number(of->low));
    json_object_set_new(mean, "high", cli_json_number(of->high));
    json_object_set_new(object, key, mean);
}

static void add_drift_cell(drift_study *s, int t, int cell)
{
    static const char *const over[DRIFT_N_ARM] = {NULL, "kept_over_fp32", "replanned_over_fp32",
                                                  "random_over_fp32"};
    FILE *text = s->report->text;
    int n_diverged = 0;
    double fp32 = 0;
    const drift_trained replanned = mean_replanned(s, t, cell, &n_diverged);
    const drift_mean nearer = nearer_than(s, t, cell, DRIFT_KEPT),
                     nearer_than_random = nearer_than(s, t, cell, DRIFT_RANDOM),
                     points = points_over_kept(s, t, cell);
    const int is_met = nearer.low > 0, scale = cell == DRIFT_AS_IS ? 1 : 1 << s->plan->task[t].n_doubling;
    for (int k = 0; k < s->n_seed; k++) fp32 += loss_of(&s->seed[t][k][cell][DRIFT_FP32]) / s->n_seed;
    json_t *object = json_pack("{s:s,s:s,s:i,s:i}", "model", s->plan->task[t].training.model, "outliers",
                               cell_names[cell], "scale", scale, "diverged", n_diverged);
    json_object_set_new(object, "fp32_loss", cli_json_number(fp32));
    (void)fprintf(text, "| `%s` | %s, × %d | %.4f |", s->plan->task[t].training.model, cell_names[cell],
                  scale, fp32);
    for (int arm = DRIFT_KEPT; arm < DRIFT_N_ARM; arm++) {
        const drift_mean of = loss_over_fp32(s, t, cell, arm);
        set_drift_mean(object, over[arm], &of);
        print_drift_mean(text, &of, 4);
    }
    set_drift_mean(object, "nearer", &nearer);
    set_drift_mean(object, "nearer_than_random", &nearer_than_random);
    set_drift_mean(object, "points", &points);
    json_object_set_new(object, "sensed", cli_json_number(replanned.n_estimated));
    json_object_set_new(object, "sensed_by_range", cli_json_number(replanned.n_by_range));
    json_object_set_new(object, "changed", cli_json_number(replanned.n_changed));
    json_object_set_new(object, "sensitivity_kept", cli_json_number(replanned.kept));
    json_object_set_new(object, "sensitivity_replanned", cli_json_number(replanned.chosen));
    print_drift_mean(text, &nearer, 4);
    print_drift_mean(text, &nearer_than_random, 4);
    print_drift_mean(text, &points, 2);
    (void)fprintf(text, " %.1f, %.1f | %.1f | %.3g, %.3g | %d | %s |\n", replanned.n_estimated,
                  replanned.n_by_range, replanned.n_changed, replanned.kept, replanned.chosen, n_diverged,
                  cell == DRIFT_AS_IS ? ""
                  : is_met            ? "yes"
                                      : "NO");
    if (cell == DRIFT_AS_IS)
        json_array_append_new(s->report->cells, object);
    else
        study_add_cell(s->report, object, is_met);
    study_figure_add(s->report, nearer.low, nearer.value, nearer.high, NAN, "%s, outliers %s",
                     s->plan->task[t].training.model, cell_names[cell]);
}

static tandem_status print_drift_study(drift_study *s, tandem_error *error)
{
    const drift_plan *plan = s->plan;
    int n_task = 0;
    json_object_set_new(s->report->json, "seeds", json_integer(s->n_seed));
    (void)fprintf(
        s->report->text,
        "# Drift: a plan that follows the training\n\n"
        "A V100 in fp32 beside a T4 in %s, whose 8-bit format is %s, with as many samples. *kept*: the\n"
        "plan of the least sensitivity within the V100's step, made at step 0. *replanned*: the training\n"
        "senses itself by a probe after every %.3g %% of its steps, and earlier where the range of a\n"
        "gradient has doubled, and allocates again within the same step. *random*: another plan of the\n"
        "step on the same occasions. *outliers grown*: from %.3g %% of the training on, after every\n"
        "%.3g %% of it, two channels in each of %d places are scaled by 2 and by 1/2, and the weights that\n"
        "read them by 1/2 and by 2, until the scale is that of the table; fp32 computes the same. Each\n"
        "seed has its own places. Test losses in nats, with the %.0f %% interval of the mean of %d pairs,\n"
        "of %d planned. *nearer*: by how much the replanned training ends nearer to fp32's test loss than\n"
        "another. *sensed*: occasions of the replanned training, and those by range. *changed*: precisions.\n"
        "*sensitivity*: percent of samples at the last sensing, of step 0's plan and of the new one.\n"
        "*diverged*: trainings; they count as chance. met: nearer than kept, the interval above 0.\n\n"
        "| task | outliers | fp32's loss | kept, over fp32 | replanned, over fp32 | random, over fp32 "
        "| nearer than kept | nearer than random | points over kept | sensed | changed | sensitivity "
        "| diverged | met |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n",
        tandem_precision_get(plan->precision)->name, plan->formats, 100 * plan->every, 100 * plan->first,
        100 * plan->apart, plan->n_place, 100 * study_margin.drift_level, s->n_seed, plan->n_seed);
    study_figure_begin(s->report, "Drift: by how much a plan that follows ends nearer to fp32",
                       "nats of test loss", NAN);
    for (int t = 0; t < plan->n_task; t++) {
        n_task += !s->is_left_out[t];
        for (int cell = 0; cell < DRIFT_N_CELL && !s->is_left_out[t]; cell++) add_drift_cell(s, t, cell);
    }
    for (int t = 0; t < plan->n_task; t++)
        if (s->is_left_out[t]) study_leave_out(s->report, &plan->task[t].training);
    return n_task > 0 ? TANDEM_OK : study_jobs_require_all(&s->jobs, error);
}

/* --- The part --------------------------------------------------------------------------------------------
 * */

static tandem_status open_drift_study(drift_study *s, const cli_options *options, tandem_error *error)
{
    int is_allocated = (s->room = calloc((size_t)s->n_seed, sizeof *s->room)) != NULL;
    for (int t = 0; t < s->plan->n_task && is_allocated; t++)
        is_allocated = (s->seed[t] = calloc((size_t)s->n_seed, sizeof *s->seed[t])) != NULL;
    if (!is_allocated) return tandem_no_memory(error, "for the study's trainings");
    study_margins_add(&s->report->margins, "seeds", s->plan->n_seed);
    return study_jobs_open(&s->jobs, options, "drift", drift_plan_hash(s->plan), &s->report->margins, error);
}

tandem_status study_drift(study_report *report, tandem_error *error)
{
    const cli_options *options = report->options;
    drift_study s = {.report = report, .plan = study_own.quick ? &drift_plan_quick : &drift_plan_full};
    s.n_seed = study_seed_count(options, s.plan->n_seed);
    tandem_status status = open_drift_study(&s, options, error);
    if (status == TANDEM_OK && !study_is_silent(options)) status = note_drift(&s, error);
    if (status == TANDEM_OK) status = study_jobs_run(&s.jobs, run_drift_trainings, &s, error);
    if (status == TANDEM_OK) status = print_drift_study(&s, error);
    study_jobs_close(&s.jobs);
    for (int t = 0; t < MAX_TASKS; t++) free(s.seed[t]);
    free(s.room);
    return status;
}
