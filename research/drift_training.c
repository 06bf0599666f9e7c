/* drift_training.c: one training of `tandem-study drift`: it may grow outliers, estimate its own
 * sensitivities and change its plan, by the parts of `tandem train --reestimate`. */
#include <gsl/gsl_randist.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/train/reestimate_trigger.h"
#include "runtime/estimate/estimate.h"
#include "research/drift.h"
#include "research/study_runs.h"

typedef struct drift_run {
    const drift_training *training;
    cli_options options;
    tandem_workload workload;
    training_rank rank;
    plans_card pair; /* a fast card in fp32, and a slow one */
    reestimate_trigger trigger;
    tandem_precision *first; /* [n_op] step 0's plan */
    tandem_assignment chosen;
    drift_place place[DRIFT_MAX_PLACES];
    int64_t up[DRIFT_MAX_PLACES], down[DRIFT_MAX_PLACES]; /* channels of a place: scaled up, and down */
    int n_place;                                          /* that are grown: the first */
    float *weight;                                        /* [n_flat] */
    drift_trained trained;
} drift_run;

/* --- Outliers ------------------------------------------------------------------------------------------- */

static void swap_places(drift_place *a, drift_place *b)
{
    const drift_place kept = *a;
    *a = *b;
    *b = kept;
}

/* The seed chooses places and channels. */
static tandem_status draw_places(drift_run *run, tandem_error *error)
{
    const drift_training *training = run->training;
    const int n = drift_places_find(run->place, run->workload.graph[0]);
    run->n_place = training->plan->n_place;
    if (n < run->n_place)
        return tandem_error_set(error, TANDEM_USAGE, "model '%s' has %d places for outliers, not %d",
                                training->task->training.model, n, run->n_place);
    gsl_rng *random = gsl_rng_alloc(gsl_rng_mt19937);
    if (!random) return tandem_no_memory(error, "for the places of outliers");
    gsl_rng_set(random, 1 + (unsigned long)training->seed);
    for (int i = 0; i < run->n_place; i++) {
        const int k = i + (int)gsl_rng_uniform_int(random, (unsigned long)(n - i));
        swap_places(&run->place[i], &run->place[k]);
        const unsigned long n_channel = (unsigned long)run->place[i].n_channel;
        run->up[i] = (int64_t)gsl_rng_uniform_int(random, n_channel);
        run->down[i] =
            (run->up[i] + 1 + (int64_t)gsl_rng_uniform_int(random, n_channel - 1)) % run->place[i].n_channel;
    }
    gsl_rng_free(random);
    return TANDEM_OK;
}

static int64_t share_of_steps(const drift_run *run, double share)
{
    return llround(share * (double)run->training->task->training.steps);
}

/* Before step `index`: outliers of activations by a channel that is scaled up, of gradients by one down. */
static tandem_status grow_outliers(drift_run *run, int64_t index, tandem_error *error)
{
    const drift_plan *plan = run->training->plan;
    int is_now = 0;
    for (int k = 0; k < run->training->task->n_doubling && run->training->cell == DRIFT_OUTLIERS; k++)
        is_now = is_now || index == share_of_steps(run, plan->first + k * plan->apart);
    if (!is_now) return TANDEM_OK;
    const training_rank *rank = &run->rank;
    const tandem_status status = rank->backend->executor_get_weights(rank->executor, run->weight, error);
    if (status != TANDEM_OK) return status;
    for (int i = 0; i < run->n_place; i++) {
        drift_place_scale(run->weight, rank->step, &run->place[i], run->up[i], 2);
        drift_place_scale(run->weight, rank->step, &run->place[i], run->down[i], 0.5F);
    }
    return rank->backend->executor_put_weights(rank->executor, run->weight, error);
}

/* --- Plans ---------------------------------------------------------------------------------------------- */

static tandem_status estimate_and_choose(drift_run *run, int64_t done, tandem_error *error)
{
    const drift_plan *plan = run->training->plan;
    estimate_request request = estimate_request_in_run(&run->workload, done);
    tandem_estimate estimate = {0};
    double *score = calloc((size_t)run->pair.n_op, sizeof *score);
    const tandem_train_request training = cli_training(&run->options);
    request.is_for_devices = 0;
    request.precision = tandem_precision_get(plan->precision)->name;
    request.emulation = tandem_emulation_make(run->training->seed);
    request.n_replicate = plan->n_replicate;
    request.batch = plan->estimated_batch;
    tandem_status status = score ? tandem_emulation_replace(&request.emulation, plan->formats, error)
                                 : tandem_no_memory(error, "for the scores of operators");
    if (status == TANDEM_OK)
        status = estimate_of_rank(&estimate, &run->rank, &run->workload, &training, &request, error);
    if (status == TANDEM_OK)
        status = plans_allocate(run->chosen.precision[0], score, &run->pair, &run->options, &estimate, error);
    if (status == TANDEM_OK) {
        run->trained.kept = plans_card_score(&run->pair, run->first, score);
        run->trained.chosen = plans_card_score(&run->pair, run->chosen.precision[0], score);
    }
    free(score);
    tandem_estimate_close(&estimate);
    return status;
}

static tandem_status change_to_chosen(drift_run *run, int64_t done, tandem_error *error)
{
    const tandem_precision *now = run->workload.plan->assignment.precision[0];
    int n_changed = 0;
    for (int i = 0; i < run->pair.n_op; i++) n_changed += run->chosen.precision[0][i] != now[i];
    if (done > 0) run->trained.n_changed += n_changed;
    const tandem_train_request training = cli_training(&run->options);
    return n_changed == 0
               ? TANDEM_OK
               : training_rank_change_plan(&run->rank, &run->workload, &training, &run->chosen, done, error);
}

/* Step 0's plan. */
static tandem_status choose_first(drift_run *run, tandem_error *error)
{
    if (run->training->arm == DRIFT_FP32) return TANDEM_OK;
    run->rank.extra.exact_micro_steps = 1; /* of the fast card */
    const tandem_status status = estimate_and_choose(run, 0, error);
    if (status != TANDEM_OK) return status;
    memcpy(run->first, run->chosen.precision[0], (size_t)run->pair.n_op * sizeof *run->first);
    return change_to_chosen(run, 0, error);
}

static tandem_status choose_again(drift_run *run, int64_t done, int doubled, tandem_error *error)
{
    run->trained.n_estimated++;
    run->trained.n_by_range += doubled >= 0;
    const uint64_t drawn = run->training->seed * 1000 + (uint64_t)done;
    const tandem_status status =
        run->training->arm == DRIFT_RANDOM
            ? plans_draw(run->chosen.precision[0], &run->pair, PLANS_RANDOM, drawn, NULL, error)
            : estimate_and_choose(run, done, error);
    return status == TANDEM_OK ? change_to_chosen(run, done, error) : status;
}

/* --- The training --------------------------------------------------------------------------------------- */

static tandem_status open_drift_run(drift_run *run, const study_lab *lab, tandem_error *error)
{
    const drift_training *training = run->training;
    const int is_emulated = training->arm != DRIFT_FP32;
    study_training in_fp32 = training->task->training;
    const plans_regime regime = {.cluster = "v100 + t4 net=100Gbit/s,5us",
                                 .high = TANDEM_PRECISION_FP32,
                                 .low = training->plan->precision,
                                 .format = TANDEM_N_FORMAT};
    in_fp32.precision = is_emulated ? tandem_precision_get(TANDEM_PRECISION_FP32)->name : NULL;
    tandem_status status = study_workload_open(&run->workload, &run->options, lab, &in_fp32, error);
    if (status != TANDEM_OK) return status;
    run->options.seed = training->seed;
    run->options.emulate = is_emulated ? training->plan->formats : NULL;
    run->options.evaluate = in_fp32.n_test;
    run->options.checkpoint = NULL; /* the study's records, and no training's */
    status = plans_card_open(&run->pair, &in_fp32, &regime, error);
    if (status == TANDEM_OK) status = draw_places(run, error);
    if (status == TANDEM_OK) status = study_rank_open(&run->rank, &run->workload, &run->options, error);
    run->rank.config.schedule = in_fp32.schedule;
    const int has_trigger = training->arm == DRIFT_REPLANNED || training->arm == DRIFT_RANDOM;
    if (status == TANDEM_OK)
        status = reestimate_trigger_open(&run->trigger, &run->rank,
                                         has_trigger ? share_of_steps(run, training->plan->every) : 0, error);
    if (status == TANDEM_OK) status = tandem_assignment_open(&run->chosen, 1, run->pair.n_op, error);
    if (status != TANDEM_OK) return status;
    run->first = calloc((size_t)run->pair.n_op, sizeof *run->first);
    run->weight = calloc((size_t)run->rank.step->n_flat, sizeof *run->weight);
    return run->first && run->weight ? TANDEM_OK : tandem_no_memory(error, "for a training of the study");
}

static void close_drift_run(drift_run *run)
{
    free(run->weight);
    free(run->first);
    tandem_assignment_close(&run->chosen);
    reestimate_trigger_close(&run->trigger);
    training_rank_close(&run->rank);
    plans_card_close(&run->pair);
    tandem_workload_close(&run->workload);
}

static tandem_status run_drift_step(drift_run *run, int64_t index, tandem_error *error)
{
    const tandem_backend_api *backend = run->rank.backend;
    int is_due = 0, doubled = -1;
    double loss = 0;
    tandem_status status = grow_outliers(run, index, error);
    if (status != TANDEM_OK) return status;
    reestimate_trigger_before(&run->trigger, index + 1);
    backend->executor_set_rate(run->rank.executor, train_config_rate(&run->rank.config, index));
    status = backend->executor_step(run->rank.executor, index, &loss, error);
    if (status == TANDEM_OK)
        status = reestimate_trigger_after(&run->trigger, index + 1, &is_due, &doubled, error);
    if (status != TANDEM_OK || !is_due || index + 1 == run->training->task->training.steps) return status;
    return choose_again(run, index + 1, doubled, error);
}

tandem_status drift_measure(double *value, int n, const study_lab *lab, const void *what, tandem_error *error)
{
    drift_run run = {.training = what};
    tandem_evaluation seen = {0};
    tandem_status status = open_drift_run(&run, lab, error);
    if (status == TANDEM_OK) status = choose_first(&run, error);
    for (int64_t i = 0; i < run.training->task->training.steps && status == TANDEM_OK; i++)
        status = run_drift_step(&run, i, error);
    if (status == TANDEM_OK)
        status = lab->backend->executor_evaluate(run.rank.executor, study_data(STUDY_DATA),
                                                 run.training->task->training.n_test, &seen, error);
    if (status == TANDEM_OK) {
        run.trained.loss = seen.loss / (double)seen.total;
        run.trained.accuracy = (double)seen.correct / (double)seen.total;
    }
    const double values[DRIFT_VALUES] = {
        run.trained.loss,      run.trained.accuracy, run.trained.n_estimated, run.trained.n_by_range,
        run.trained.n_changed, run.trained.kept,     run.trained.chosen};
    for (int i = 0; i < n && i < DRIFT_VALUES; i++) value[i] = values[i];
    close_drift_run(&run);
    return status;
}
