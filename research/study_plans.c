/* study_plans.c: `tandem-study plans`: whether the allocator's plan loses less than others of the same step.
 * docs/study/README.md has the design.
 *
 * A step has as many samples of a fast card, in fp32, as of a slow one, in low precision. The second
 * micro-step of an emulated training is the slow card's; the first rounds nothing. All plans end their step
 * with the fast card. Pairs of trainings have the same seed of weights, samples and roundings. */
#include <math.h>
#include <stdlib.h>

#include "predictor/paired.h"
#include "research/plans.h"
#include "research/work_left.h"

enum { MAX_TASKS = 8, PLANS_SHARES = 2 /* before the precisions in a record */ };

typedef study_trained plans_seed[PLANS_SETTINGS];

typedef struct plans_cell {
    plans_pair pair;
    tandem_precision *allocated; /* [n_op] */
    plans_shares shares;
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
    /* of the cells in which uniform low loses: how many, and of those whose plan wins it back */
    int n_lost, n_won;
    unsigned won_regimes, won_tasks; /* bits */
    double best;                     /* points */
} plans_study;

/* --- Running ---------------------------------------------------------------------------------------------
 * */

static plans_cell *cell_of_setting(plans_study *s, int t, int setting)
{
    return &s->cell[t][(setting - PLANS_COMMON) / PLANS_ARMS];
}

static void name_plans_record(char text[STUDY_RECORD_NAME], const plans_study *s, int t, int setting,
                              int seed)
{
    static const char *const common[PLANS_COMMON] = {"fp32", "fp32, batches split by speed"},
                             *const arm[PLANS_ARMS] = {"uniform", "allocated", "random"};
    const study_training *task = &s->plan->task[t];
    const int k = setting - PLANS_COMMON;
    (void)snprintf(text, STUDY_RECORD_NAME, "%s %s: %s%s%s: %d", task->model,
                   tandem_optimizer_name(task->optimizer),
                   k < 0 ? common[setting] : plans_regimes[k / PLANS_ARMS].name, k < 0 ? "" : ", ",
                   k < 0 ? "" : arm[k % PLANS_ARMS], seed);
}

static tandem_emulation regime_emulation(const plans_regime *regime, uint64_t seed)
{
    tandem_emulation emulation = tandem_emulation_make(seed);
    for (int k = 0; k < regime->n_format; k++)
        emulation.format[regime->replaced[k].dtype] = regime->replaced[k].format;
    return emulation;
}

/* plan: room for the operators' precisions; the training borrows it. */
static tandem_status plans_training(study_training *training, tandem_precision *plan, plans_study *s, int t,
                                    int setting, int seed, tandem_error *error)
{
    const plans_cell *cell = cell_of_setting(s, t, setting < PLANS_COMMON ? PLANS_COMMON : setting);
    const uint64_t drawn = s->report->options->seed + (uint64_t)seed;
    *training = s->plan->task[t];
    training->emulation = tandem_emulation_make(drawn);
    if (setting == PLANS_SPLIT) {
        training->batch += llround((double)training->batch * cell->pair.split);
        training->n_micro = 1;
    }
    if (setting < PLANS_COMMON) return TANDEM_OK;
    const plans_regime *regime = &plans_regimes[(setting - PLANS_COMMON) / PLANS_ARMS];
    const plans_arm arm = (plans_arm)((setting - PLANS_COMMON) % PLANS_ARMS);
    training->op_precision = arm == PLANS_ALLOCATED ? cell->allocated : plan;
    training->emulation = regime_emulation(regime, drawn);
    training->emulation.exact_micro_steps = 1; /* of the fast card */
    if (arm == PLANS_LOW) plans_uniform(plan, &cell->pair);
    return arm == PLANS_RANDOM ? plans_random(plan, &cell->pair, drawn, error) : TANDEM_OK;
}

static tandem_status train_plans(plans_study *s, int t, int setting, int seed, tandem_error *error)
{
    char name[STUDY_RECORD_NAME];
    double value[STUDY_TRAINED_VALUES] = {0};
    study_training training;
    tandem_precision *plan = calloc((size_t)s->cell[t][0].pair.n_op, sizeof *plan);
    tandem_status status = plan ? TANDEM_OK : tandem_no_memory(error, "for a plan");
    name_plans_record(name, s, t, setting, seed);
    if (status == TANDEM_OK) status = plans_training(&training, plan, s, t, setting, seed, error);
    if (status == TANDEM_OK)
        status = study_jobs_train(value, STUDY_TRAINED_VALUES, &s->jobs, name, &training, error);
    s->seed[t][seed][setting] = (study_trained){value[0], value[1], value[2]};
    free(plan);
    return status;
}

/* Task by task, so that a study that stops early has whole tasks. */
static tandem_status run_plans_pairs(void *study, tandem_error *error)
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

static tandem_status estimate_and_allocate(plans_study *s, int t, int r, tandem_error *error)
{
    const plans_regime *regime = &plans_regimes[r];
    plans_cell *cell = &s->cell[t][r];
    const study_rounding_plan rounding = {.precision = regime->precision,
                                          .emulation = regime_emulation(regime, 0),
                                          .n_point = s->plan->n_point,
                                          .n_replicate = s->plan->n_replicate};
    tandem_estimate estimate = {0};
    tandem_status status = study_estimate(&estimate, &s->jobs.lab, &s->plan->task[t], &rounding, error);
    if (status == TANDEM_OK)
        status =
            plans_allocate(cell->allocated, &cell->shares, &cell->pair, s->report->options, &estimate, error);
    tandem_estimate_close(&estimate);
    return status;
}

/* The plan of a cell, from its record: the extra samples, then the precisions. */
static tandem_status allocate_cell(plans_study *s, int t, int r, tandem_error *error)
{
    plans_cell *cell = &s->cell[t][r];
    const study_training *task = &s->plan->task[t];
    const int n_op = cell->pair.n_op, n = PLANS_SHARES + n_op;
    char name[STUDY_RECORD_NAME];
    int is_own = 0;
    double *value = calloc((size_t)n, sizeof *value);
    if (!value) return tandem_no_memory(error, "for a plan's record");
    (void)snprintf(name, sizeof name, "%s %s: %s, plan", task->model, tandem_optimizer_name(task->optimizer),
                   plans_regimes[r].name);
    tandem_status status = TANDEM_OK;
    if (study_jobs_find(value, n, &is_own, &s->jobs, name)) {
        cell->shares = (plans_shares){.allocated = value[0], .uniform = value[1]};
        for (int i = 0; i < n_op; i++)
            cell->allocated[i] = value[PLANS_SHARES + i] > 0 ? cell->pair.precision : TANDEM_PRECISION_FP32;
    } else if (is_own) {
        status = estimate_and_allocate(s, t, r, error);
        value[0] = cell->shares.allocated;
        value[1] = cell->shares.uniform;
        for (int i = 0; i < n_op; i++) value[PLANS_SHARES + i] = cell->allocated[i] != TANDEM_PRECISION_FP32;
        if (status == TANDEM_OK) status = study_records_add(&s->jobs.records, name, value, n, error);
    }
    free(value);
    return status;
}

static tandem_status run_plans_allocations(void *study, tandem_error *error)
{
    plans_study *s = study;
    tandem_status status = TANDEM_OK;
    for (int t = 0; t < s->plan->n_task; t++)
        for (int r = 0; r < PLANS_REGIMES && status == TANDEM_OK; r++) status = allocate_cell(s, t, r, error);
    return status;
}

static tandem_status note_plans(plans_study *s, tandem_error *error)
{
    tandem_status status = TANDEM_OK;
    for (int t = 0; t < s->plan->n_task; t++) {
        const double before_s = s->jobs.left_s;
        tandem_precision *plan = calloc((size_t)s->cell[t][0].pair.n_op, sizeof *plan);
        if (!plan) return tandem_no_memory(error, "for a plan");
        int n = 0;
        for (int a = 0; a < PLANS_SETTINGS && status == TANDEM_OK; a++) {
            study_training training;
            int n_missing = 0;
            for (int k = 0; k < s->n_seed; k++) {
                char name[STUDY_RECORD_NAME];
                double value[STUDY_TRAINED_VALUES];
                name_plans_record(name, s, t, a, k);
                n_missing += !study_records_find(value, STUDY_TRAINED_VALUES, &s->jobs.records, name);
            }
            status = plans_training(&training, plan, s, t, a, 0, error);
            if (status == TANDEM_OK) status = study_jobs_estimate(&s->jobs, &training, n_missing, error);
            n += n_missing;
        }
        free(plan);
        if (status == TANDEM_OK)
            study_jobs_note(&s->jobs, s->plan->task[t].model, s->plan->task[t].optimizer, n,
                            s->n_seed * PLANS_SETTINGS, before_s);
    }
    if (status == TANDEM_OK) work_left_note_all(s->report->options, s->jobs.left_s);
    return status;
}

/* --- Statistics ------------------------------------------------------------------------------------------
 * */

/* A training that diverged knows nothing: its accuracy is that of chance. */
static double points_of(const study_trained *trained)
{
    return isnan(trained->accuracy) ? 10 : 100 * trained->accuracy;
}

/* By how many points one setting is above another, in pairs. */
typedef struct plans_gain {
    double points, low, high;
} plans_gain;

static plans_gain gain_of(plans_study *s, int t, int setting, int over)
{
    for (int k = 0; k < s->n_seed; k++)
        s->room[k] = points_of(&s->seed[t][k][setting]) - points_of(&s->seed[t][k][over]);
    const paired_difference of = paired_difference_of(s->room, s->n_seed);
    const paired_interval interval = paired_interval_of(&of, study_margin.plans_level);
    return (plans_gain){of.mean, interval.low, interval.high};
}

/* What the plans of a cell are beside each other. */
typedef struct plans_measured {
    plans_gain lost, over_uniform, over_random, over_split;
    double low_share; /* of the slow card's arithmetic in the allocated plan */
    double slow;      /* the slow card's time over the step, under it */
    int n_diverged;
    const char *result;
} plans_measured;

static plans_measured measure_plans_cell(plans_study *s, int t, int r)
{
    const int first = PLANS_COMMON + PLANS_ARMS * r;
    const plans_cell *cell = &s->cell[t][r];
    plans_measured of = {.lost = gain_of(s, t, PLANS_FP32, first + PLANS_LOW),
                         .over_uniform = gain_of(s, t, first + PLANS_ALLOCATED, first + PLANS_LOW),
                         .over_random = gain_of(s, t, first + PLANS_ALLOCATED, first + PLANS_RANDOM),
                         .over_split = gain_of(s, t, first + PLANS_ALLOCATED, PLANS_SPLIT)};
    int64_t low_ps = 0, all_ps = 0;
    for (int i = 0; i < cell->pair.n_op; i++) {
        all_ps += cell->pair.fp32_ps[i];
        low_ps += cell->allocated[i] != TANDEM_PRECISION_FP32 ? cell->pair.fp32_ps[i] : 0;
    }
    of.low_share = (double)low_ps / (double)all_ps;
    of.slow = (double)plans_pair_ps(&cell->pair, cell->allocated) / (double)cell->pair.fast_ps;
    for (int k = 0; k < s->n_seed; k++)
        for (int a = 0; a < PLANS_ARMS; a++) of.n_diverged += isnan(s->seed[t][k][first + a].accuracy);
    return of;
}

/* --- The tables ------------------------------------------------------------------------------------------
 * */

static void print_gain(FILE *text, const plans_gain *gain)
{
    (void)fprintf(text, " %.2f (%.2f to %.2f) |", gain->points, gain->low, gain->high);
}

static json_t *gain_json(const plans_gain *gain)
{
    json_t *object = json_object();
    json_object_set_new(object, "points", cli_json_number(gain->points));
    json_object_set_new(object, "low", cli_json_number(gain->low));
    json_object_set_new(object, "high", cli_json_number(gain->high));
    return object;
}

static json_t *plans_cell_json(const plans_study *s, int t, int r, const plans_measured *of)
{
    const study_training *task = &s->plan->task[t];
    const plans_cell *cell = &s->cell[t][r];
    json_t *fp32 = json_array();
    for (int i = 0; i < cell->pair.n_op; i++)
        if (cell->pair.low_ps[i] > 0 && cell->allocated[i] == TANDEM_PRECISION_FP32)
            json_array_append_new(fp32, json_string(cell->pair.graph[0]->op[i].name));
    json_t *object = json_pack("{s:s,s:s,s:s,s:o,s:i,s:s}", "model", task->model, "optimizer",
                               tandem_optimizer_name(task->optimizer), "regime", plans_regimes[r].name,
                               "in_fp32", fp32, "diverged", of->n_diverged, "result", of->result);
    json_object_set_new(object, "sensitivity_allocated", cli_json_number(100 * cell->shares.allocated));
    json_object_set_new(object, "sensitivity_uniform", cli_json_number(100 * cell->shares.uniform));
    json_object_set_new(object, "low_share", cli_json_number(of->low_share));
    json_object_set_new(object, "slow_card_of_step", cli_json_number(of->slow));
    json_object_set_new(object, "lost_by_uniform", gain_json(&of->lost));
    json_object_set_new(object, "over_uniform", gain_json(&of->over_uniform));
    json_object_set_new(object, "over_random", gain_json(&of->over_random));
    json_object_set_new(object, "over_split", gain_json(&of->over_split));
    return object;
}

/* Where uniform low loses: whether enough of it is won back. */
static int count_plans_cell(plans_study *s, int t, int r, const plans_measured *of)
{
    const plans_gain *gain = &of->over_uniform;
    const int is_won = gain->points >= study_margin.plans_least_points && gain->low > 0 &&
                       gain->points >= study_margin.plans_least_won * of->lost.points;
    s->n_lost++;
    s->n_won += is_won;
    if (is_won) {
        s->won_regimes |= 1u << r;
        s->won_tasks |= 1u << t;
        s->best = fmax(s->best, gain->points);
    }
    return is_won;
}

static void add_plans_cell(plans_study *s, int t, int r)
{
    plans_measured of = measure_plans_cell(s, t, r);
    const study_training *task = &s->plan->task[t];
    const char *optimizer = tandem_optimizer_name(task->optimizer);
    const plans_cell *cell = &s->cell[t][r];
    FILE *text = s->report->text;
    const int is_lost = of.lost.low > 0;
    of.result = "nothing measurable is lost";
    if (is_lost) of.result = count_plans_cell(s, t, r, &of) ? "won back" : "NO";
    json_t *object = plans_cell_json(s, t, r, &of);
    if (is_lost)
        study_add_cell(s->report, object, of.result[0] == 'w');
    else
        json_array_append_new(s->report->cells, object);
    (void)fprintf(text, "| `%s` %s | %s | %.3g | %.3g | %.0f |", task->model, optimizer,
                  plans_regimes[r].name, 100 * cell->shares.uniform, 100 * cell->shares.allocated,
                  100 * of.low_share);
    print_gain(text, &of.lost);
    print_gain(text, &of.over_uniform);
    print_gain(text, &of.over_random);
    print_gain(text, &of.over_split);
    (void)fprintf(text, " %d | %s |\n", of.n_diverged, of.result);
    study_figure_add(s->report, of.over_uniform.low, of.over_uniform.points, of.over_uniform.high, NAN,
                     "%s %s: %s", task->model, optimizer, plans_regimes[r].name);
}

static void print_plans_bars(plans_study *s)
{
    const int n_regime = __builtin_popcount(s->won_regimes), n_task = __builtin_popcount(s->won_tasks);
    const int is_met = n_regime >= study_margin.plans_least_regimes &&
                       n_task >= study_margin.plans_least_tasks && s->best >= study_margin.plans_best_points;
    (void)fprintf(
        s->report->text,
        "\nUniform low loses in %d cells. The allocated plan wins it back in %d, of %d regimes (%.0f) "
        "and\n%d tasks (%.0f), at best %.2f points (%.2f): %s.\n",
        s->n_lost, s->n_won, n_regime, study_margin.plans_least_regimes, n_task,
        study_margin.plans_least_tasks, s->best, study_margin.plans_best_points, is_met ? "yes" : "NO");
    json_object_set_new(s->report->json, "bar",
                        json_pack("{s:i,s:i,s:i,s:i,s:f,s:b}", "lost", s->n_lost, "won", s->n_won, "regimes",
                                  n_regime, "tasks", n_task, "best_points", s->best, "met", is_met));
    s->report->n_failed = !is_met; /* the bar is of all cells together */
}

static void print_plans_tasks(plans_study *s)
{
    (void)fputs("\n| task | fp32's accuracy | its step, of the pair's | batches split by speed, over fp32 "
                "|\n|---|---|---|---|\n",
                s->report->text);
    for (int t = 0; t < s->plan->n_task; t++) {
        const study_training *task = &s->plan->task[t];
        if (s->is_left_out[t]) continue;
        const plans_gain split = gain_of(s, t, PLANS_SPLIT, PLANS_FP32);
        double mean = 0;
        for (int k = 0; k < s->n_seed; k++) mean += points_of(&s->seed[t][k][PLANS_FP32]) / s->n_seed;
        (void)fprintf(s->report->text, "| `%s` %s | %.2f | %.2f |", task->model,
                      tandem_optimizer_name(task->optimizer), mean, 1 / s->cell[t][0].pair.split);
        print_gain(s->report->text, &split);
        (void)fputs("\n", s->report->text);
    }
}

static void print_plans_study(plans_study *s)
{
    json_object_set_new(s->report->json, "seeds", json_integer(s->n_seed));
    (void)fprintf(
        s->report->text,
        "# Plans of one step: a V100 in fp32 beside a T4 in low precision\n\n"
        "Both have as many samples. *uniform*: the T4's operators are all low. *allocated*: the least\n"
        "sensitivity within the same step, which the V100 ends. *random*: operators in a random order get\n"
        "fp32 back, as long as the step stays; another plan for each seed. *split*: both in fp32, a\n"
        "smaller batch on the T4, the same step. Times are the arithmetic of products at the datasheets'\n"
        "peaks; formats that a T4 lacks run at the rate of its 8-bit units. *sensitivity*: in percent of\n"
        "samples. *low*: percent of the T4's arithmetic that is low in the allocated plan. Points are of\n"
        "test accuracy, with the %.0f %% interval of the mean of %d pairs, of %d planned. *lost*: fp32 on\n"
        "both, a longer step, over uniform. *result*: won back, where uniform measurably loses: the\n"
        "allocated plan is %.2f points or more above it, the interval above 0, and half of the loss or\n"
        "more. *diverged*: trainings; they count as 10 %% right.\n\n"
        "| task | regime | sensitivity of uniform | of allocated | low | lost | allocated over uniform "
        "| over random | over split | diverged | result |\n|---|---|---|---|---|---|---|---|---|---|---|\n",
        100 * study_margin.plans_level, s->n_seed, s->plan->n_seed, study_margin.plans_least_points);
    study_figure_begin(s->report, "Plans of one step: what allocation wins over uniform low precision",
                       "points of test accuracy", study_margin.plans_least_points);
    for (int t = 0; t < s->plan->n_task; t++)
        for (int r = 0; r < PLANS_REGIMES && !s->is_left_out[t]; r++) add_plans_cell(s, t, r);
    print_plans_tasks(s);
    for (int t = 0; t < s->plan->n_task; t++)
        if (s->is_left_out[t]) study_leave_out(s->report, &s->plan->task[t]);
    print_plans_bars(s);
}

/* --- The part --------------------------------------------------------------------------------------------
 * */

static tandem_status open_plans_study(plans_study *s, const cli_options *options, tandem_error *error)
{
    study_margins_add(&s->report->margins, "seeds", s->plan->n_seed);
    tandem_status status =
        study_jobs_open(&s->jobs, options, "plans", plans_plan_hash(s->plan), &s->report->margins, error);
    int is_allocated = (s->room = calloc((size_t)s->n_seed, sizeof *s->room)) != NULL;
    for (int t = 0; t < s->plan->n_task && status == TANDEM_OK; t++) {
        is_allocated = is_allocated && (s->seed[t] = calloc((size_t)s->n_seed, sizeof *s->seed[t]));
        for (int r = 0; r < PLANS_REGIMES && status == TANDEM_OK; r++) {
            plans_cell *cell = &s->cell[t][r];
            status = plans_pair_open(&cell->pair, &s->plan->task[t], &plans_regimes[r], error);
            cell->allocated = calloc((size_t)cell->pair.n_op + 1, sizeof *cell->allocated);
            is_allocated = is_allocated && cell->allocated;
        }
    }
    if (status == TANDEM_OK && !is_allocated) status = tandem_no_memory(error, "for the study's plans");
    return status;
}

static void close_plans_study(plans_study *s)
{
    study_jobs_close(&s->jobs);
    for (int t = 0; t < MAX_TASKS; t++) {
        for (int r = 0; r < PLANS_REGIMES; r++) {
            free(s->cell[t][r].allocated);
            plans_pair_close(&s->cell[t][r].pair);
        }
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
    if (status == TANDEM_OK) status = study_jobs_run(&s.jobs, run_plans_allocations, &s, error);
    if (status == TANDEM_OK && !study_is_silent(options)) status = note_plans(&s, error);
    if (status == TANDEM_OK) status = study_jobs_run(&s.jobs, run_plans_pairs, &s, error);
    if (status == TANDEM_OK) print_plans_study(&s);
    close_plans_study(&s);
    return status;
}
