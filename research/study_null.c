/* study_null.c: `tandem-study null`: whether a training in low precision loses anything that can be measured.
 * docs/study/README.md has the design.
 *
 * Pairs of trainings, in fp32 and in a precision, have the same seed of weights, samples and roundings. Their
 * difference is tested for being smaller than a margin, by two one-sided tests (paired.h). A pilot of other
 * seeds gives the spread of a pair, and so the pairs that a test of the wanted power needs. */
#include <math.h>
#include <stdlib.h>

#include "research/null.h"
#include "predictor/paired.h"

enum { MAX_TASKS = 16, MAX_PAIRS = 100000 }; /* MAX_PAIRS: that are said to be needed */

typedef study_trained null_seed[NULL_PRECISIONS];

/* A measure of one precision on one task; what is lost is positive. */
typedef struct null_measure {
    paired_difference of;
    paired_interval interval; /* the one that decides: of level 1 − 2α */
    double p, pilot_deviation;
    int n_needed;
} null_measure;

typedef struct null_study {
    study_report *report;
    const null_plan *plan;
    int n_pair; /* of the plan's, at most */
    study_jobs jobs;
    null_seed *pilot[MAX_TASKS], *pair[MAX_TASKS]; /* [n_pilot], [n_pair] */
    int n_wanted[MAX_TASKS][NULL_PRECISIONS];      /* pairs, by the pilot; of fp32: the most of any */
    double *room;                                  /* [max(n_pilot, n_pair)] */
} null_study;

/* --- Running ---------------------------------------------------------------------------------------------
 * */

static study_training null_training(const null_study *s, int t, int p, int seed)
{
    const null_precision *of = &null_precisions[p];
    study_training training = s->plan->task[t];
    training.precision = of->precision;
    training.loss_scale = of->loss_scale;
    training.emulation = tandem_emulation_make(s->report->options->seed + (uint64_t)seed);
    if (of->format < TANDEM_N_FORMAT) training.emulation.format[TANDEM_S8] = of->format;
    return training;
}

static void name_null_record(char text[STUDY_RECORD_NAME], const null_study *s, int t, int p, int seed)
{
    const study_training *task = &s->plan->task[t];
    (void)snprintf(text, STUDY_RECORD_NAME, "%s %s: %s: %d", task->model,
                   tandem_optimizer_name(task->optimizer), null_precisions[p].name, seed);
}

static tandem_status train_null(study_trained *into, null_study *s, int t, int p, int seed,
                                tandem_error *error)
{
    char name[STUDY_RECORD_NAME];
    double value[STUDY_TRAINED_VALUES] = {0};
    const study_training training = null_training(s, t, p, seed);
    name_null_record(name, s, t, p, seed);
    const tandem_status status =
        study_jobs_train(value, STUDY_TRAINED_VALUES, &s->jobs, name, &training, error);
    *into = (study_trained){value[0], value[1], value[2]};
    return status;
}

static tandem_status run_pilot(void *study, tandem_error *error)
{
    null_study *s = study;
    tandem_status status = TANDEM_OK;
    for (int k = 0; k < s->plan->n_pilot; k++)
        for (int t = 0; t < s->plan->n_task; t++)
            for (int p = 0; p < NULL_PRECISIONS && status == TANDEM_OK; p++)
                status = train_null(&s->pilot[t][k][p], s, t, p, s->plan->first_pilot + k, error);
    return status;
}

/* Seed by seed, so that a study that stops early has as many of every cell. */
static tandem_status run_pairs(void *study, tandem_error *error)
{
    null_study *s = study;
    tandem_status status = TANDEM_OK;
    for (int k = 0; k < s->n_pair; k++)
        for (int t = 0; t < s->plan->n_task; t++)
            for (int p = 0; p < NULL_PRECISIONS && status == TANDEM_OK; p++)
                if (k < s->n_wanted[t][p]) status = train_null(&s->pair[t][k][p], s, t, p, k, error);
    return status;
}

/* Says what is left to run, before it starts: seeds from `first`, n of each cell, or those that it wants. */
static tandem_status note_null_plan(null_study *s, const char *of, int first, int n, tandem_error *error)
{
    tandem_status status = TANDEM_OK;
    int n_all = 0;
    s->jobs.left_s = 0;
    for (int t = 0; t < s->plan->n_task; t++)
        for (int p = 0; p < NULL_PRECISIONS && status == TANDEM_OK; p++) {
            const study_training training = null_training(s, t, p, first);
            const int n_wanted = n < s->n_wanted[t][p] ? n : s->n_wanted[t][p];
            int n_left = 0;
            for (int k = 0; k < n_wanted; k++) {
                char name[STUDY_RECORD_NAME];
                double value[STUDY_TRAINED_VALUES];
                name_null_record(name, s, t, p, first + k);
                n_left += !study_records_find(value, STUDY_TRAINED_VALUES, &s->jobs.records, name);
            }
            status = study_jobs_estimate(&s->jobs, &training, n_left, error);
            n_all += n_left;
        }
    if (status == TANDEM_OK && n_all > 0)
        cli_note(s->report->options, "%s: %d trainings left, %.2g s each, some %.0f s of a core", of, n_all,
                 s->jobs.left_s / n_all, s->jobs.left_s);
    return status;
}

/* --- Statistics ------------------------------------------------------------------------------------------
 * */

typedef double null_loss(const study_trained *low, const study_trained *fp32);
static double percent_of_loss(const study_trained *low, const study_trained *fp32)
{
    return 100 * (low->loss / fp32->loss - 1);
}
static double points_lost(const study_trained *low, const study_trained *fp32)
{
    return 100 * (fp32->accuracy - low->accuracy);
}

static paired_difference difference_of(null_study *s, const null_seed *seed, int n, int p, null_loss *loss)
{
    for (int k = 0; k < n; k++) s->room[k] = loss(&seed[k][p], &seed[k][0]);
    return paired_difference_of(s->room, n);
}

static null_measure measure_null(null_study *s, int t, int p, null_loss *loss, double margin)
{
    null_measure m;
    const int n = s->n_wanted[t][p] < s->n_pair ? s->n_wanted[t][p] : s->n_pair;
    m.pilot_deviation = difference_of(s, s->pilot[t], s->plan->n_pilot, p, loss).deviation;
    m.n_needed = paired_equivalence_pairs(m.pilot_deviation, margin, study_margin.null_alpha,
                                          study_margin.null_power, MAX_PAIRS);
    m.of = difference_of(s, s->pair[t], n, p, loss);
    m.interval = paired_interval_of(&m.of, 1 - 2 * study_margin.null_alpha);
    m.p = paired_equivalence_p(&m.of, margin);
    return m;
}

/* The pairs of each cell: those that its test of the loss needs. */
static void want_pairs(null_study *s)
{
    for (int t = 0; t < s->plan->n_task; t++) {
        int most = 0;
        for (int p = 1; p < NULL_PRECISIONS; p++) {
            const double deviation =
                difference_of(s, s->pilot[t], s->plan->n_pilot, p, percent_of_loss).deviation;
            const int n = paired_equivalence_pairs(deviation, study_margin.null_loss, study_margin.null_alpha,
                                                   study_margin.null_power, s->plan->n_pair);
            s->n_wanted[t][p] = n > s->plan->n_pair    ? s->plan->n_pair
                                : n < s->plan->n_least ? s->plan->n_least
                                                       : n;
            most = most < s->n_wanted[t][p] ? s->n_wanted[t][p] : most;
        }
        s->n_wanted[t][0] = most;
    }
}

/* --- The table -------------------------------------------------------------------------------------------
 * */

/* Better and worse: the interval lies on one side of 0. */
static const char *null_result(const null_measure *m)
{
    const int is_worse = m->interval.low > 0, is_better = m->interval.high < 0;
    if (m->p < study_margin.null_alpha)
        return is_worse ? "shown, a little worse" : is_better ? "shown, a little better" : "shown";
    return is_worse ? "worse" : is_better ? "better" : "open";
}

static json_t *null_measure_json(const null_measure *m)
{
    json_t *object =
        json_pack("{s:i,s:i,s:s}", "pairs", m->of.n, "pairs_needed", m->n_needed, "result", null_result(m));
    json_object_set_new(object, "pilot_deviation", cli_json_number(m->pilot_deviation));
    json_object_set_new(object, "lost", cli_json_number(m->of.mean));
    json_object_set_new(object, "low", cli_json_number(m->interval.low));
    json_object_set_new(object, "high", cli_json_number(m->interval.high));
    json_object_set_new(object, "p", cli_json_number(m->p));
    return object;
}

static void print_null_measure(FILE *text, const null_measure *m)
{
    (void)fprintf(text, " %d | %.2g | %.2g (%.2g to %.2g) | %.2g | %s |", m->n_needed, m->pilot_deviation,
                  m->of.mean, m->interval.low, m->interval.high, m->p, null_result(m));
}

static void add_null_cell(null_study *s, int t, int p)
{
    const study_training *task = &s->plan->task[t];
    const null_precision *precision = &null_precisions[p];
    const char *optimizer = tandem_optimizer_name(task->optimizer);
    const null_measure loss = measure_null(s, t, p, percent_of_loss, study_margin.null_loss),
                       points = measure_null(s, t, p, points_lost, study_margin.null_points);
    double fp32_loss = 0, n_skipped = 0;
    int n_diverged = 0;
    for (int k = 0; k < loss.of.n; k++) {
        fp32_loss += s->pair[t][k][0].loss / loss.of.n;
        n_diverged += isnan(s->pair[t][k][p].loss);
        n_skipped += s->pair[t][k][p].n_skipped / loss.of.n;
    }
    json_t *object =
        json_pack("{s:s,s:s,s:s,s:b,s:b,s:i}", "model", task->model, "optimizer", optimizer, "precision",
                  precision->name, "emulated", 1, "control", precision->is_control, "diverged", n_diverged);
    json_object_set_new(object, "fp32_loss", cli_json_number(fp32_loss));
    json_object_set_new(object, "skipped_steps", cli_json_number(n_skipped));
    json_object_set_new(object, "loss", null_measure_json(&loss));
    json_object_set_new(object, "points", null_measure_json(&points));
    if (precision->is_control)
        json_array_append_new(s->report->cells, object);
    else
        study_add_cell(s->report, object, loss.p < study_margin.null_alpha);
    (void)fprintf(s->report->text, "| `%s` %s | %s%s | %d |", task->model, optimizer, precision->name,
                  precision->is_control ? " (control)" : "", loss.of.n);
    print_null_measure(s->report->text, &loss);
    print_null_measure(s->report->text, &points);
    (void)fprintf(s->report->text, " %d | %.2g |\n", n_diverged, n_skipped);
    study_figure_add(s->report, loss.interval.low, loss.of.mean, loss.interval.high, NAN, "%s %s: %s",
                     task->model, optimizer, precision->name);
}

static void print_null_study(null_study *s)
{
    json_object_set_new(s->report->json, "pairs_at_most", json_integer(s->n_pair));
    json_object_set_new(s->report->json, "pairs_planned", json_integer(s->plan->n_pair));
    (void)fprintf(
        s->report->text,
        "# No measurable loss: low precision beside fp32, in pairs of trainings\n\n"
        "Every precision but fp32 is emulated. *more loss*: the test loss above that of fp32, in percent\n"
        "of it; *points lost*: of accuracy, below fp32's; both with the %.0f %% interval of the mean over\n"
        "pairs. Below 0: better than fp32. *p*: of two one-sided tests that less than %.3g %% or %.3g\n"
        "points are lost, either way; shown: below %.3g. *needed*: pairs for a power of %.0f %%, by\n"
        "the spread of a pair among %d others; *pairs*: that ran: as many as the test of the loss\n"
        "needs, at least %d and at most %d, of %d planned. *ulp*: fp32 with its last bit drawn, no cell\n"
        "of the bar. *skipped*: steps of a training that overflowed.\n\n"
        "| task | precision | pairs | needed | spread, %% | more loss, %% | p | no measurable loss "
        "| needed | spread, points | points lost | p | no points lost | diverged | skipped |\n"
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n",
        100 * (1 - 2 * study_margin.null_alpha), study_margin.null_loss, study_margin.null_points,
        study_margin.null_alpha, 100 * study_margin.null_power, s->plan->n_pilot, s->plan->n_least, s->n_pair,
        s->plan->n_pair);
    study_figure_begin(s->report, "No measurable loss: more test loss than fp32",
                       "percent; dashed: the margin", study_margin.null_loss);
    for (int t = 0; t < s->plan->n_task; t++)
        for (int p = 1; p < NULL_PRECISIONS; p++) add_null_cell(s, t, p);
    (void)fprintf(s->report->text, "\n%d of %d cells are shown.\n", s->report->n_cell - s->report->n_failed,
                  s->report->n_cell);
}

/* --- The part --------------------------------------------------------------------------------------------
 * */

static tandem_status open_null_study(null_study *s, const cli_options *options, tandem_error *error)
{
    const int n = s->plan->n_pilot > s->n_pair ? s->plan->n_pilot : s->n_pair;
    int is_allocated = (s->room = calloc((size_t)n, sizeof *s->room)) != NULL;
    for (int t = 0; t < s->plan->n_task && is_allocated; t++) {
        is_allocated = (s->pilot[t] = calloc((size_t)s->plan->n_pilot, sizeof *s->pilot[t])) &&
                       (s->pair[t] = calloc((size_t)s->n_pair, sizeof *s->pair[t]));
        for (int p = 0; p < NULL_PRECISIONS; p++) s->n_wanted[t][p] = s->plan->n_pair;
    }
    study_margins_add(&s->report->margins, "least_pairs", s->plan->n_least);
    study_margins_add(&s->report->margins, "most_pairs", s->plan->n_pair);
    return is_allocated ? study_jobs_open(&s->jobs, options, "null", null_plan_hash(s->plan),
                                          &s->report->margins, error)
                        : tandem_no_memory(error, "for the study's pairs");
}

static void close_null_study(null_study *s)
{
    study_jobs_close(&s->jobs);
    for (int t = 0; t < MAX_TASKS; t++) {
        free(s->pilot[t]);
        free(s->pair[t]);
    }
    free(s->room);
}

static tandem_status run_null_study(null_study *s, tandem_error *error)
{
    const cli_options *options = s->report->options;
    const int is_noted = !study_is_silent(options);
    tandem_status status = TANDEM_OK;
    if (is_noted) status = note_null_plan(s, "pilot", s->plan->first_pilot, s->plan->n_pilot, error);
    if (status == TANDEM_OK) status = study_jobs_run(&s->jobs, run_pilot, s, error);
    if (status == TANDEM_OK) status = study_jobs_require_all(&s->jobs, error);
    if (status == TANDEM_OK) want_pairs(s);
    if (status == TANDEM_OK && is_noted) status = note_null_plan(s, "pairs", 0, s->n_pair, error);
    if (status == TANDEM_OK) status = study_jobs_run(&s->jobs, run_pairs, s, error);
    if (status == TANDEM_OK) status = study_jobs_require_all(&s->jobs, error);
    return status;
}

tandem_status study_null(study_report *report, tandem_error *error)
{
    const cli_options *options = report->options;
    null_study s = {.report = report, .plan = study_own.quick ? &null_plan_quick : &null_plan_full};
    s.n_pair = study_seed_count(options, s.plan->n_pair);
    tandem_status status = open_null_study(&s, options, error);
    if (status == TANDEM_OK) status = run_null_study(&s, error);
    if (status == TANDEM_OK) print_null_study(&s);
    close_null_study(&s);
    return status;
}
