/* study_plans.c: `tandem-study plans`: whether the allocator's plan loses less than others of the same step.
 * docs/study/README.md has the design.
 *
 * A card has a wide precision, and one of few bits that is emulated. Arms choose which operators are wide
 * within one step. Trainings of a seed have the same weights and samples, so that losses are paired. What is
 * predicted of each plan is in the records before its first training. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "predictor/paired.h"
#include "research/plans.h"
#include "research/study_runs.h"
#include "research/work_left.h"
#include "runtime/estimate/batch_statistics.h"

enum { MAX_TASKS = 8, STATISTICS_BATCHES = 10, PLANS_SCORES = 2 /* by default, by samples */ };

typedef study_trained plans_seed[PLANS_SETTINGS];

/* Plans of a task in a regime. */
typedef struct plans_cell {
    plans_card card;
    int is_tried;                       /* 0: its operators leave no choice */
    double *score[PLANS_SCORES];        /* [n_op] extra samples of low operators, as shares */
    tandem_precision *plan[PLANS_ARMS]; /* [n_op]; that of PLANS_RANDOM is drawn for each seed */
} plans_cell;

typedef struct plans_study {
    study_report *report;
    const plans_plan *plan;
    int n_seed; /* of the plan's */
    study_jobs jobs;
    plans_cell cell[MAX_TASKS][PLANS_REGIMES];
    plans_seed *seed[MAX_TASKS]; /* [n_seed] */
    int is_left_out[MAX_TASKS];  /* records of it are missing */
    double *room;                /* [n_seed] */
    int n_won[PLANS_ARMS];       /* tasks in which the allocated plan loses less than the arm's */
    int n_last, n_last_won;      /* cells of nvfp4, and those in which it loses less than PLANS_LAST */
} plans_study;

static int setting_of(int r, plans_arm arm) { return PLANS_COMMON + PLANS_ARMS * r + (int)arm; }

/* --- Choosing the plans ---------------------------------------------------------------------------------
 * */

static tandem_emulation regime_emulation(const plans_regime *regime, uint64_t seed)
{
    tandem_emulation emulation = tandem_emulation_make(seed);
    if (regime->format < TANDEM_N_FORMAT) emulation.format[TANDEM_S8] = regime->format;
    return emulation;
}

/* The plan by an estimate, and what the estimate says of each operator. */
static tandem_status allocate_arm(plans_study *s, int t, plans_cell *cell, plans_arm arm, double *score,
                                  tandem_error *error)
{
    const plans_regime *regime = &cell->card.regime;
    const study_rounding_plan rounding = {.precision = regime->low,
                                          .emulation = regime_emulation(regime, 0),
                                          .n_point = s->plan->n_point,
                                          .n_replicate = s->plan->n_replicate,
                                          .is_default = arm == PLANS_ALLOCATED};
    tandem_estimate estimate = {0};
    tandem_status status = study_estimate(&estimate, &s->jobs.lab, &s->plan->task[t], &rounding, error);
    if (status == TANDEM_OK)
        status = plans_allocate(cell->plan[arm], score, &cell->card, s->report->options, &estimate, error);
    tandem_estimate_close(&estimate);
    return status;
}

/* QSync's indicator of the first batches, as `tandem sensitivity` collects them. It is that of int8 in all
 * regimes: its formulas know no format of four bits, and only the order counts. */
static tandem_status indicate(double *indicator, const plans_study *s, int t, tandem_error *error)
{
    const tandem_sensitivity_method *method = NULL;
    cli_options apart = *s->report->options, options;
    study_lab lab = s->jobs.lab;
    tandem_workload workload = {0};
    training_rank rank = {.extra = {0}};
    apart.step.separate_partial_grads = 1;
    lab.options = &apart;
    tandem_status status = tandem_sensitivity_find(&method, "qsync", error);
    if (status == TANDEM_OK)
        status = study_workload_open(&workload, &options, &lab, &s->plan->task[t], error);
    if (status == TANDEM_OK) status = study_rank_open(&rank, &workload, &options, error);
    const tandem_graph *graph = status == TANDEM_OK ? workload.graph[0] : NULL;
    const size_t n_op = graph ? (size_t)graph->n_op : 0;
    tandem_statistics *statistics = calloc(n_op + 1, sizeof *statistics);
    double *value = calloc(n_op * TANDEM_N_PRECISION + 1, sizeof *value);
    const tandem_train_request training = cli_training(&options);
    if (status == TANDEM_OK && !(statistics && value)) status = tandem_no_memory(error, "for an indicator");
    if (status == TANDEM_OK)
        status = batch_statistics_collect(statistics, &rank, &training, 0, STATISTICS_BATCHES, error);
    if (status == TANDEM_OK) method->compute(value, graph, statistics, TANDEM_F32);
    for (size_t i = 0; i < n_op && status == TANDEM_OK; i++)
        indicator[i] = value[i * TANDEM_N_PRECISION + TANDEM_PRECISION_INT8_FULL];
    free(statistics);
    free(value);
    training_rank_close(&rank);
    tandem_workload_close(&workload);
    return status;
}

/* The plans that need no training. */
static tandem_status draw_arms(plans_cell *cell, tandem_error *error)
{
    static const plans_arm arms[] = {PLANS_LAST, PLANS_ENDS, PLANS_WORST};
    tandem_status status = TANDEM_OK;
    plans_uniform(cell->plan[PLANS_LOW], &cell->card);
    for (size_t k = 0; k < sizeof arms / sizeof *arms && status == TANDEM_OK; k++)
        status = plans_draw(cell->plan[arms[k]], &cell->card, arms[k], 0, cell->score[1], error);
    return status;
}

static tandem_status choose_plans(plans_study *s, int t, plans_cell *cell, tandem_error *error)
{
    double *indicator = calloc((size_t)cell->card.n_op, sizeof *indicator);
    tandem_status status = indicator ? TANDEM_OK : tandem_no_memory(error, "for an indicator");
    if (status == TANDEM_OK) status = allocate_arm(s, t, cell, PLANS_ALLOCATED, cell->score[0], error);
    if (status == TANDEM_OK) status = allocate_arm(s, t, cell, PLANS_BY_SAMPLES, cell->score[1], error);
    if (status == TANDEM_OK) status = indicate(indicator, s, t, error);
    if (status == TANDEM_OK)
        status =
            plans_allocate_by(cell->plan[PLANS_QSYNC], &cell->card, s->report->options, indicator, error);
    if (status == TANDEM_OK) status = draw_arms(cell, error);
    free(indicator);
    return status;
}

/* A record has the scores, then which operators of each arm's plan are low. */
static void pack_cell(double *value, const plans_cell *cell)
{
    const int n_op = cell->card.n_op;
    for (int i = 0; i < n_op; i++) {
        for (int k = 0; k < PLANS_SCORES; k++) value[k * n_op + i] = cell->score[k][i];
        for (int a = 0; a < PLANS_ARMS; a++)
            value[(PLANS_SCORES + a) * n_op + i] = cell->plan[a][i] == cell->card.regime.low;
    }
}

static void unpack_cell(plans_cell *cell, const double *value)
{
    const int n_op = cell->card.n_op;
    for (int a = 0; a < PLANS_ARMS; a++) {
        plans_uniform(cell->plan[a], &cell->card);
        for (int i = 0; i < n_op; i++)
            if (cell->card.low_ps[i] > 0 && !(value[(PLANS_SCORES + a) * n_op + i] > 0))
                cell->plan[a][i] = cell->card.regime.high;
    }
    for (int k = 0; k < PLANS_SCORES; k++)
        memcpy(cell->score[k], value + k * n_op, (size_t)n_op * sizeof *value);
}

static tandem_status choose_cell(plans_study *s, int t, int r, tandem_error *error)
{
    plans_cell *cell = &s->cell[t][r];
    const study_training *task = &s->plan->task[t];
    const int n = (PLANS_SCORES + PLANS_ARMS) * cell->card.n_op;
    char name[STUDY_RECORD_NAME];
    int is_own = 0;
    if (!cell->is_tried) return TANDEM_OK;
    double *value = calloc((size_t)n, sizeof *value);
    if (!value) return tandem_no_memory(error, "for a plan's record");
    (void)snprintf(name, sizeof name, "%s %s: %s, plans", task->model, tandem_optimizer_name(task->optimizer),
                   cell->card.regime.name);
    tandem_status status = TANDEM_OK;
    if (study_jobs_find(value, n, &is_own, &s->jobs, name)) {
        unpack_cell(cell, value);
    } else if (is_own) {
        status = choose_plans(s, t, cell, error);
        pack_cell(value, cell);
        if (status == TANDEM_OK) status = study_records_add(&s->jobs.records, name, value, n, error);
    }
    free(value);
    return status;
}

static tandem_status choose_all_plans(void *study, tandem_error *error)
{
    plans_study *s = study;
    tandem_status status = TANDEM_OK;
    for (int t = 0; t < s->plan->n_task; t++)
        for (int r = 0; r < PLANS_REGIMES && status == TANDEM_OK; r++) status = choose_cell(s, t, r, error);
    return status;
}

/* As a share of the samples; score: by default, by samples. */
static double predicted(const plans_cell *cell, plans_arm arm, int score)
{
    return plans_card_score(&cell->card, cell->plan[arm], cell->score[score]);
}

/* --- Training them --------------------------------------------------------------------------------------
 * */

static void name_plans_record(char text[STUDY_RECORD_NAME], const plans_study *s, int t, int setting,
                              int seed)
{
    const study_training *task = &s->plan->task[t];
    const int k = setting - PLANS_COMMON;
    (void)snprintf(text, STUDY_RECORD_NAME, "%s %s: %s%s%s: %d", task->model,
                   tandem_optimizer_name(task->optimizer),
                   k < 0 ? "fp32" : plans_regimes[k / PLANS_ARMS].name, k < 0 ? "" : ", ",
                   k < 0 ? "" : plans_arm_names[k % PLANS_ARMS], seed);
}

static int is_setting_tried(const plans_study *s, int t, int setting)
{
    return setting < PLANS_COMMON || s->cell[t][(setting - PLANS_COMMON) / PLANS_ARMS].is_tried;
}

/* The plan of PLANS_RANDOM for a seed is put into the cell; the training borrows it. */
static tandem_status plans_training(study_training *training, plans_study *s, int t, int setting, int seed,
                                    tandem_error *error)
{
    const uint64_t drawn = s->report->options->seed + (uint64_t)seed;
    *training = s->plan->task[t];
    training->emulation = tandem_emulation_make(drawn);
    if (setting < PLANS_COMMON) return TANDEM_OK;
    plans_cell *cell = &s->cell[t][(setting - PLANS_COMMON) / PLANS_ARMS];
    const plans_arm arm = (plans_arm)((setting - PLANS_COMMON) % PLANS_ARMS);
    training->op_precision = cell->plan[arm];
    training->emulation = regime_emulation(&cell->card.regime, drawn);
    return arm == PLANS_RANDOM ? plans_draw(cell->plan[arm], &cell->card, arm, drawn, NULL, error)
                               : TANDEM_OK;
}

static tandem_status train_plans(plans_study *s, int t, int setting, int seed, tandem_error *error)
{
    char name[STUDY_RECORD_NAME];
    double value[STUDY_TRAINED_VALUES] = {0};
    study_training training;
    if (!is_setting_tried(s, t, setting)) return TANDEM_OK;
    name_plans_record(name, s, t, setting, seed);
    tandem_status status = plans_training(&training, s, t, setting, seed, error);
    if (status == TANDEM_OK)
        status = study_jobs_train(value, STUDY_TRAINED_VALUES, &s->jobs, name, &training, error);
    s->seed[t][seed][setting] = (study_trained){value[0], value[1], value[2]};
    return status;
}

/* Task by task, so that a study that stops early has whole tasks. */
static tandem_status train_all_plans(void *study, tandem_error *error)
{
    plans_study *s = study;
    tandem_status status = TANDEM_OK;
    for (int t = 0; t < s->plan->n_task; t++) {
        const int n_missing = s->jobs.n_missing;
        for (int k = 0; k < s->n_seed; k++)
            for (int a = 0; a < PLANS_SETTINGS && status == TANDEM_OK; a++)
                status = train_plans(s, t, a, k, error);
        s->is_left_out[t] = s->jobs.n_missing > n_missing;
    }
    return status;
}

static tandem_status note_plans(plans_study *s, tandem_error *error)
{
    tandem_status status = TANDEM_OK;
    for (int t = 0; t < s->plan->n_task; t++) {
        const double before_s = s->jobs.left_s;
        int n = 0, n_all = 0;
        for (int a = 0; a < PLANS_SETTINGS && status == TANDEM_OK; a++) {
            study_training training;
            int n_missing = 0;
            if (!is_setting_tried(s, t, a)) continue;
            for (int k = 0; k < s->n_seed; k++) {
                char name[STUDY_RECORD_NAME];
                double value[STUDY_TRAINED_VALUES];
                name_plans_record(name, s, t, a, k);
                n_missing += !study_records_find(value, STUDY_TRAINED_VALUES, &s->jobs.records, name);
            }
            status = plans_training(&training, s, t, a, 0, error);
            if (status == TANDEM_OK) status = study_jobs_estimate(&s->jobs, &training, n_missing, error);
            n += n_missing;
            n_all += s->n_seed;
        }
        if (status == TANDEM_OK)
            study_jobs_note(&s->jobs, s->plan->task[t].model, s->plan->task[t].optimizer, n, n_all, before_s);
    }
    if (status == TANDEM_OK) work_left_note_all(s->report->options, s->jobs.left_s);
    return status;
}

/* --- Statistics ------------------------------------------------------------------------------------------
 * */

/* A training that diverged knows nothing: its loss is that of chance. */
static double plans_loss_of(const plans_study *s, int t, int seed, int setting)
{
    const double loss = s->seed[t][seed][setting].loss;
    return isfinite(loss) ? loss : log((double)s->cell[t][0].card.graph[0]->n_class);
}

/* A mean over seeds, in nats. */
typedef struct plans_loss {
    double mean, low, high;
} plans_loss;

static plans_loss loss_over_room(const plans_study *s)
{
    const paired_difference of = paired_difference_of(s->room, s->n_seed);
    const paired_interval interval = paired_interval_of(&of, study_margin.plans_level);
    return (plans_loss){of.mean, interval.low, interval.high};
}

/* By how much a setting's loss is above another's, in pairs. */
static plans_loss loss_above(plans_study *s, int t, int setting, int over)
{
    for (int k = 0; k < s->n_seed; k++)
        s->room[k] = plans_loss_of(s, t, k, setting) - plans_loss_of(s, t, k, over);
    return loss_over_room(s);
}

/* The allocated plan's loss less an arm's, in the mean of the regimes that were tried. */
static plans_loss loss_in_task(plans_study *s, int t, plans_arm arm)
{
    int n_regime = 0;
    for (int k = 0; k < s->n_seed; k++) s->room[k] = 0;
    for (int r = 0; r < PLANS_REGIMES; r++) {
        if (!s->cell[t][r].is_tried) continue;
        n_regime++;
        for (int k = 0; k < s->n_seed; k++)
            s->room[k] += plans_loss_of(s, t, k, setting_of(r, PLANS_ALLOCATED)) -
                          plans_loss_of(s, t, k, setting_of(r, arm));
    }
    for (int k = 0; k < s->n_seed; k++) s->room[k] /= n_regime;
    return loss_over_room(s);
}

static int count_diverged(const plans_study *s, int t, int setting)
{
    int n = 0;
    for (int k = 0; k < s->n_seed; k++) n += !isfinite(s->seed[t][k][setting].loss);
    return n;
}

/* --- The tables ------------------------------------------------------------------------------------------
 * */

static void print_loss(FILE *text, const plans_loss *loss)
{
    (void)fprintf(text, " %.4f (%.4f to %.4f) |", loss->mean, loss->low, loss->high);
}

static json_t *loss_json(const plans_loss *loss)
{
    json_t *object = json_object();
    json_object_set_new(object, "nats", cli_json_number(loss->mean));
    json_object_set_new(object, "low", cli_json_number(loss->low));
    json_object_set_new(object, "high", cli_json_number(loss->high));
    return object;
}

/* Which operators a plan keeps wide, of those that have a choice. */
static json_t *wide_operators_json(const plans_cell *cell, plans_arm arm)
{
    json_t *wide = json_array();
    for (int i = 0; i < cell->card.n_op; i++)
        if (cell->card.low_ps[i] > 0 && cell->plan[arm][i] != cell->card.regime.low)
            json_array_append_new(wide, json_string(cell->card.graph[0]->op[i].name));
    return wide;
}

static json_t *arm_json(plans_study *s, int t, int r, plans_arm arm)
{
    const plans_cell *cell = &s->cell[t][r];
    const plans_loss above = loss_above(s, t, setting_of(r, arm), 0),
                     less = loss_above(s, t, setting_of(r, PLANS_ALLOCATED), setting_of(r, arm));
    json_t *object = json_pack("{s:s,s:o,s:i}", "arm", plans_arm_names[arm], "above_fp32", loss_json(&above),
                               "diverged", count_diverged(s, t, setting_of(r, arm)));
    if (arm != PLANS_ALLOCATED) json_object_set_new(object, "allocated_less", loss_json(&less));
    if (arm == PLANS_RANDOM) return object;
    json_object_set_new(
        object, "step",
        cli_json_number((double)plans_card_ps(&cell->card, cell->plan[arm]) / (double)cell->card.target_ps));
    json_object_set_new(object, "by_default", cli_json_number(100 * predicted(cell, arm, 0)));
    json_object_set_new(object, "by_samples", cli_json_number(100 * predicted(cell, arm, 1)));
    json_object_set_new(object, "wide", wide_operators_json(cell, arm));
    return object;
}

static void add_plans_cell(plans_study *s, int t, int r)
{
    const plans_cell *cell = &s->cell[t][r];
    const study_training *task = &s->plan->task[t];
    FILE *text = s->report->text;
    json_t *arms = json_array();
    (void)fprintf(text,
                  "\n`%s`, %s, %s: %d operators\nhave a choice, and more than 10^%.0f plans are "
                  "within the step.\n\n",
                  task->model, tandem_optimizer_name(task->optimizer), cell->card.regime.name,
                  cell->card.n_choice, floor(plans_card_log_count(&cell->card)));
    (void)fputs(
        "| plan | extra samples, % by default | by samples | loss above fp32's, nats | allocated less "
        "it | diverged |\n|---|---|---|---|---|---|\n",
        text);
    for (int a = 0; a < PLANS_ARMS; a++) {
        const plans_loss above = loss_above(s, t, setting_of(r, (plans_arm)a), 0);
        const plans_loss less = loss_above(s, t, setting_of(r, PLANS_ALLOCATED), setting_of(r, (plans_arm)a));
        (void)fprintf(text, "| %s |", plans_arm_names[a]);
        if (a == PLANS_RANDOM)
            (void)fputs(" | |", text);
        else
            (void)fprintf(text, " %.3g | %.3g |", 100 * predicted(cell, (plans_arm)a, 0),
                          100 * predicted(cell, (plans_arm)a, 1));
        print_loss(text, &above);
        if (a == PLANS_ALLOCATED)
            (void)fputs(" |", text);
        else
            print_loss(text, &less);
        (void)fprintf(text, " %d |\n", count_diverged(s, t, setting_of(r, (plans_arm)a)));
        json_array_append_new(arms, arm_json(s, t, r, (plans_arm)a));
    }
    json_t *object = json_pack("{s:s,s:s,s:s,s:i,s:o}", "model", task->model, "optimizer",
                               tandem_optimizer_name(task->optimizer), "regime", cell->card.regime.name,
                               "operators", cell->card.n_choice, "arms", arms);
    json_object_set_new(object, "log10_plans", cli_json_number(plans_card_log_count(&cell->card)));
    json_array_append_new(s->report->cells, object);
    const plans_loss random = loss_above(s, t, setting_of(r, PLANS_ALLOCATED), setting_of(r, PLANS_RANDOM)),
                     last = loss_above(s, t, setting_of(r, PLANS_ALLOCATED), setting_of(r, PLANS_LAST));
    study_figure_add(s->report, random.low, random.mean, random.high, NAN, "%s: %s", task->model,
                     cell->card.regime.name);
    if (cell->card.regime.low != TANDEM_PRECISION_NVFP4) return;
    s->n_last++;
    s->n_last_won += last.high < 0;
}

static void print_plans_tasks(plans_study *s)
{
    FILE *text = s->report->text;
    json_t *tasks = json_array();
    (void)fputs("\nThe allocated plan's loss less that of another, in the mean of a task's regimes, nats:\n\n"
                "| task | fp32's loss |",
                text);
    for (int a = 0; a < PLANS_ARMS; a++)
        if (a != PLANS_ALLOCATED) (void)fprintf(text, " %s |", plans_arm_names[a]);
    (void)fputs("\n|---|---|---|---|---|---|---|---|---|\n", text);
    for (int t = 0; t < s->plan->n_task; t++) {
        double of_fp32 = 0;
        if (s->is_left_out[t]) continue;
        for (int k = 0; k < s->n_seed; k++) of_fp32 += plans_loss_of(s, t, k, 0) / s->n_seed;
        (void)fprintf(text, "| `%s` | %.4f |", s->plan->task[t].model, of_fp32);
        json_t *task = json_pack("{s:s}", "model", s->plan->task[t].model);
        json_object_set_new(task, "fp32", cli_json_number(of_fp32));
        for (int a = 0; a < PLANS_ARMS; a++) {
            const plans_loss less = loss_in_task(s, t, (plans_arm)a);
            s->n_won[a] += less.high < 0;
            if (a == PLANS_ALLOCATED) continue;
            print_loss(text, &less);
            json_object_set_new(task, plans_arm_names[a], loss_json(&less));
        }
        (void)fputs("\n", text);
        json_array_append_new(tasks, task);
    }
    json_object_set_new(s->report->json, "tasks", tasks);
}

static int print_plans_bar(plans_study *s, plans_arm arm)
{
    const int is_met = s->n_won[arm] >= study_margin.plans_least_tasks;
    (void)fprintf(s->report->text, "- less than %s in %d tasks, of %.0f that are asked for: %s\n",
                  plans_arm_names[arm], s->n_won[arm], study_margin.plans_least_tasks, is_met ? "yes" : "NO");
    return is_met;
}

static void print_plans_bars(plans_study *s)
{
    (void)fprintf(s->report->text, "\nWith an interval of %.0f %% below 0, the allocated plan loses\n\n",
                  100 * study_margin.plans_level);
    const int is_met = print_plans_bar(s, PLANS_RANDOM) & print_plans_bar(s, PLANS_QSYNC);
    (void)fprintf(s->report->text,
                  "- less than last high in %d of %d cells of nvfp4, of 1 that is asked for: "
                  "%s\n",
                  s->n_last_won, s->n_last, s->n_last_won > 0 ? "yes" : "NO");
    json_object_set_new(s->report->json, "bar",
                        json_pack("{s:i,s:i,s:i,s:b}", "random", s->n_won[PLANS_RANDOM], "qsync",
                                  s->n_won[PLANS_QSYNC], "last", s->n_last_won, "met",
                                  is_met && s->n_last_won > 0));
    s->report->n_failed = !(is_met && s->n_last_won > 0); /* the bar is of all cells together */
}

static void print_plans_study(plans_study *s)
{
    json_object_set_new(s->report->json, "seeds", json_integer(s->n_seed));
    (void)fprintf(
        s->report->text,
        "# Plans of one step: which operators stay wide\n\n"
        "A card has fp32 and, in the place of s8, mxfp4 to nearest (e2m1) or s4; or bf16 and nvfp4. All\n"
        "plans but *uniform* keep at least %.0f %% of what low precision everywhere saves of the step, with\n"
        "nvfp4 %.0f %%. Times are the arithmetic of products at the datasheets' peaks.\n\n"
        "- *allocated*: the default estimate and the allocator\n"
        "- *by samples*: the allocator, with the estimate by samples\n"
        "- *QSync's*: the least sum of its indicator, by the same solver\n"
        "- *last high*, *ends high*: operators from the end, or from both ends in turns\n"
        "- *random*: another plan for each seed\n"
        "- *worst*: those that need the fewest samples for their time are wide\n\n"
        "Losses are of the test samples, in pairs of one seed, with the %.0f %% interval of the mean of\n"
        "%d, of %d planned. A training that diverged has the loss of chance.\n",
        100 * plans_regimes[0].kept, 100 * plans_regimes[PLANS_REGIMES - 1].kept,
        100 * study_margin.plans_level, s->n_seed, s->plan->n_seed);
    study_figure_begin(s->report, "Plans of one step: the allocated plan's loss less that of random ones",
                       "nats of test loss", 0);
    for (int t = 0; t < s->plan->n_task; t++)
        for (int r = 0; r < PLANS_REGIMES && !s->is_left_out[t]; r++)
            if (s->cell[t][r].is_tried) add_plans_cell(s, t, r);
    print_plans_tasks(s);
    for (int t = 0; t < s->plan->n_task; t++)
        if (s->is_left_out[t]) study_leave_out(s->report, &s->plan->task[t]);
    print_plans_bars(s);
}

/* --- The part --------------------------------------------------------------------------------------------
 * */

static tandem_status open_plans_cell(plans_cell *cell, const study_training *task, const plans_regime *regime,
                                     tandem_error *error)
{
    const tandem_status status = plans_card_open(&cell->card, task, regime, error);
    if (status != TANDEM_OK) return status;
    const size_t n_op = (size_t)cell->card.n_op;
    int is_allocated = 1;
    cell->is_tried = cell->card.n_choice > 1;
    for (int k = 0; k < PLANS_SCORES; k++)
        is_allocated = is_allocated && (cell->score[k] = calloc(n_op, sizeof *cell->score[k]));
    for (int a = 0; a < PLANS_ARMS; a++)
        is_allocated = is_allocated && (cell->plan[a] = calloc(n_op, sizeof *cell->plan[a]));
    return is_allocated ? TANDEM_OK : tandem_no_memory(error, "for the study's plans");
}

/* TANDEM_MISSING: the task's data set is not here. */
static tandem_status open_plans_task(plans_study *s, int t, tandem_error *error)
{
    const study_training *task = &s->plan->task[t];
    tandem_status status = TANDEM_OK;
    for (int r = 0; r < PLANS_REGIMES && status == TANDEM_OK; r++)
        status = open_plans_cell(&s->cell[t][r], task, &plans_regimes[r], error);
    if (status == TANDEM_OK) status = study_training_data_open(task, error);
    s->seed[t] = calloc((size_t)s->n_seed, sizeof *s->seed[t]);
    return status == TANDEM_OK && !s->seed[t] ? tandem_no_memory(error, "for the study's plans") : status;
}

static tandem_status open_plans_study(plans_study *s, const cli_options *options, tandem_error *error)
{
    study_margins_add(&s->report->margins, "seeds", s->plan->n_seed);
    tandem_status status =
        study_jobs_open(&s->jobs, options, "plans", plans_plan_hash(s->plan), &s->report->margins, error);
    s->room = calloc((size_t)s->n_seed, sizeof *s->room);
    if (status == TANDEM_OK && !s->room) status = tandem_no_memory(error, "for the study's plans");
    for (int t = 0; t < s->plan->n_task && status == TANDEM_OK; t++) status = open_plans_task(s, t, error);
    return status;
}

static void close_plans_cell(plans_cell *cell)
{
    for (int k = 0; k < PLANS_SCORES; k++) free(cell->score[k]);
    for (int a = 0; a < PLANS_ARMS; a++) free(cell->plan[a]);
    plans_card_close(&cell->card);
}

static void close_plans_study(plans_study *s)
{
    study_jobs_close(&s->jobs);
    for (int t = 0; t < MAX_TASKS; t++) {
        for (int r = 0; r < PLANS_REGIMES; r++) close_plans_cell(&s->cell[t][r]);
        free(s->seed[t]);
    }
    free(s->room);
}

tandem_status study_plans(study_report *report, tandem_error *error)
{
    const cli_options *options = report->options;
    plans_study s = {.report = report, .plan = study_own.quick ? &plans_plan_quick : &plans_plan_full};
    s.n_seed = study_seed_count(options, s.plan->n_seed);
    tandem_status status = open_plans_study(&s, options, error);
    if (status == TANDEM_OK) status = study_jobs_run(&s.jobs, choose_all_plans, &s, error);
    if (status == TANDEM_OK && !study_is_silent(options)) status = note_plans(&s, error);
    if (status == TANDEM_OK) status = study_jobs_run(&s.jobs, train_all_plans, &s, error);
    if (status == TANDEM_OK) print_plans_study(&s);
    close_plans_study(&s);
    return status;
}
