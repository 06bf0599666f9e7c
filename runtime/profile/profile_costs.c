/* profile_costs.c: measures costs in place: operators are timed inside a step that the executor runs, with
 * the caches, memory traffic and dispatch of training. */
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/path.h"
#include "runtime/profile/profile.h"
#include "runtime/profile/profile_machine.h"
#include "tandem/advanced/predictor.h"

enum {
    WARM_UP = 2,       /* steps before a plan's first round; before the others: one */
    UNIFORM_STEPS = 3, /* of a round */
    MIXED_STEPS = 3,
    MIN_ROUNDS = 4, /* of uniform plans */
    MIXED_ROUNDS = 2,
    MIXED_PLANS = 6,
    MIXED_SEED = 1,
    SWEEP_STEPS = 2 /* at least, of each plan of a network of a sweep */
};

/* More rounds follow for four seconds, since less is one moment of the machine. They go on until the plans'
 * intervals are narrow, for half as long as the first ones took. After two rounds, none begins when a minute
 * is over. */
static const double narrow_interval = 0.01, more_time = 0.5;
static const int64_t moment_ns = INT64_C(4000000000), patience_ns = INT64_C(60000000000);

/* Updates wait for all-reduces: their gradients come out of other cores' caches. They are timed in steps of
 * all ranks together, all other tasks in steps of this rank alone. */
typedef enum timed_tasks { ALL_TASKS, TASKS_BUT_UPDATES, UPDATES } timed_tasks;

typedef struct cost_profile {
    profile_rank *rank;
    const char *co_runner;
    timed_tasks timed;
    tandem_step *step;
    tandem_cost_table *known; /* in the store before this stage; NULL with --remeasure */
    key_samples *key;
    int n_key, key_capacity;
    int *key_of;      /* [n_task] of the current plan, −1 = not timed */
    int plan, n_plan; /* for the progress line */
    int round;
    unsigned char *has_run;      /* [n_plan] in the first round */
    unsigned *lacks;             /* [n_op] precisions that the device has no kernels for */
    unsigned char *lacks_kernel; /* [n_op] in the current plan */
    int64_t begin_ns;
    step_watch watch;
    profile_machine machine;
} cost_profile;

/* --- Plans ---------------------------------------------------------------------------------------------- */

static int count_precisions(unsigned precisions)
{
    return __builtin_popcount(precisions & ((1u << TANDEM_N_PRECISION) - 1));
}

static int count_uniform_plans(const tandem_device *device) { return count_precisions(device->precisions); }

static tandem_precision nth_precision(unsigned precisions, int n)
{
    for (int p = 0; p < TANDEM_N_PRECISION; p++)
        if (precisions & (1u << p) && n-- == 0) return (tandem_precision)p;
    return TANDEM_PRECISION_FP32;
}

static int count_profile_plans(const profile_rank *rank)
{
    const int n_uniform = count_uniform_plans(&rank->workload->cluster.classes[rank->class_index].device);
    if (profile_of_plan(rank->request)) return 1;
    const int n_mixed = rank->sweep_end_ns ? 1 : MIXED_PLANS;
    return n_uniform + (n_uniform > 1 ? n_mixed : 0);
}

/* An operator without kernels in its precision gets fp32. */
static void avoid_missing_kernels(tandem_precision *precision, const cost_profile *profile)
{
    for (int op = 0; op < profile->step->graph->n_op; op++)
        if (profile->lacks[op] >> precision[op] & 1) precision[op] = TANDEM_PRECISION_FP32;
}

/* Uniform plans first, then seeded mixed ones; or the given plan. */
static tandem_status set_profile_plan(cost_profile *profile, int k, tandem_error *error)
{
    const profile_rank *rank = profile->rank;
    const int c = rank->class_index, is_given = profile_of_plan(rank->request);
    const tandem_device *device = &rank->workload->cluster.classes[c].device;
    const tandem_graph *graph = profile->step->graph;
    tandem_plan *made = NULL;
    tandem_status status = tandem_plan_open(&made, graph, &rank->workload->cluster, "profile", error);
    if (status == TANDEM_OK && !is_given)
        status =
            k < count_uniform_plans(device)
                ? tandem_plan_uniform(made, graph, c, nth_precision(device->precisions, k), error)
                : tandem_plan_random(made, graph, c, device->precisions, MIXED_SEED + (uint64_t)k, error);
    if (status == TANDEM_OK && !is_given) avoid_missing_kernels(made->assignment.precision[c], profile);
    const tandem_plan *plan = is_given ? rank->workload->plan : made;
    if (status == TANDEM_OK) tandem_step_load(profile->step, plan->assignment.precision[c]);
    tandem_plan_close(made);
    return status;
}

/* --- Samples -------------------------------------------------------------------------------------------- */

static int find_or_add_key(cost_profile *profile, const tandem_cost_key *key)
{
    char text[TANDEM_COST_KEY_TEXT];
    tandem_cost_key_print(text, sizeof text, key);
    for (int k = 0; k < profile->n_key; k++)
        if (strcmp(profile->key[k].text, text) == 0) return k;
    if (profile->n_key == profile->key_capacity) {
        const int capacity = profile->key_capacity ? 2 * profile->key_capacity : 256;
        key_samples *grown = realloc(profile->key, (size_t)capacity * sizeof *grown);
        if (!grown) return -1;
        profile->key = grown;
        profile->key_capacity = capacity;
    }
    key_samples *fresh = &profile->key[profile->n_key];
    *fresh = (key_samples){.key = *key};
    memcpy(fresh->text, text, sizeof text);
    return profile->n_key++;
}

static tandem_status no_profile_memory(tandem_error *error)
{
    return tandem_no_memory(error, "for the repetitions of the profile");
}

static int is_known(const cost_profile *profile, const key_samples *key)
{
    return profile->known && tandem_cost_table_find(profile->known, &key->key) != NULL;
}

static int is_timed(const cost_profile *profile, const tandem_task *task)
{
    const int is_update = task->kind == TANDEM_TASK_NORM || task->kind == TANDEM_TASK_UPDATE;
    if (!task->active || tandem_task_is_collective(task->kind)) return 0;
    return profile->timed == ALL_TASKS || is_update == (profile->timed == UPDATES);
}

/* Finds the key of each task of the current plan. */
static tandem_status map_tasks_to_keys(cost_profile *profile, tandem_error *error)
{
    const tandem_step *step = profile->step;
    for (int k = 0; k < profile->n_key; k++) profile->key[k].touched = 0;
    for (int t = 0; t < step->n_task; t++) {
        profile->key_of[t] = -1;
        const tandem_task *task = &step->task[t];
        tandem_cost_key key;
        if (!is_timed(profile, task)) continue;
        if (!tandem_step_cost_key(step, t, task->variant, &key))
            return tandem_error_set(error, TANDEM_BUG, "task %d (%s of '%s') has no cost key in variant %d",
                                    t, tandem_task_kind_name(task->kind),
                                    task->op >= 0 ? step->graph->op[task->op].name : "", task->variant);
        profile->key_of[t] = find_or_add_key(profile, &key);
        if (profile->key_of[t] < 0) return no_profile_memory(error);
        profile->key[profile->key_of[t]].touched = 1;
    }
    return TANDEM_OK;
}

/* Whether the current plan is to run in this round. */
static int plan_wants_round(const cost_profile *profile, int k, int is_uniform)
{
    int n_new = 0, n_unknown = 0;
    const profile_rank *rank = profile->rank;
    if (rank->has_swept && tandem_now_ns() >= rank->sweep_end_ns) return 0;
    for (int i = 0; i < profile->n_key; i++) {
        const key_samples *key = &profile->key[i];
        if (!key->touched || is_known(profile, key)) continue;
        n_unknown++;
        n_new += key->n == 0;
    }
    if (profile->round == 0) return n_new > 0;
    if (!profile->has_run[k] || n_unknown == 0) return 0;
    if (!is_uniform) return profile->round < MIXED_ROUNDS;
    if (profile->round < MIN_ROUNDS || tandem_now_ns() - profile->begin_ns < moment_ns) return 1;
    return !(profile_interval_share(profile->key, profile->key_of, profile->step->n_task) <= narrow_interval);
}

/* What a timed task takes without the event after its launch, which all tasks merged in it share. */
static int64_t own_time_ns(const tandem_step *step, const tandem_step_times *times, int t, int64_t event_ns)
{
    int first = t, last = t;
    const double ns = (double)(times->end_ns[t] - times->start_ns[t]);
    while (first > 0 && (!step->task[first].active || tandem_step_is_merged(step, first))) first--;
    for (int k = t + 1; k < step->n_task && (!step->task[k].active || tandem_step_is_merged(step, k)); k++)
        if (step->task[k].active) last = k;
    const double launch_ns = (double)(times->end_ns[last] - times->start_ns[first]);
    const double own_ns = launch_ns > 0 ? ns - (double)event_ns * ns / launch_ns : 0;
    return own_ns > 0 ? llround(own_ns) : 0;
}

/* A speed sample lies before the step and after it, where one was due. */
static tandem_status record_task_times(cost_profile *profile, const tandem_executor *executor,
                                       const tandem_speed_sample *before, tandem_error *error)
{
    const tandem_backend_api *backend = profile->rank->backend;
    const tandem_step_times *times = backend->executor_times(executor);
    const tandem_speed_sample *after = &profile->watch.speed_sample;
    const int64_t event_ns = profile->rank->event_ns > 0 ? profile->rank->event_ns : 0;
    const tandem_speed_sample beside = {(before->compute_ns + after->compute_ns) / 2,
                                        (before->memory_ns + after->memory_ns) / 2};
    tandem_status status = profile_machine_add(&profile->machine, &profile->watch, times->step_ns, error);
    for (int t = 0; t < profile->step->n_task && status == TANDEM_OK; t++) {
        if (profile->key_of[t] < 0) continue;
        key_samples *key = &profile->key[profile->key_of[t]];
        key->workspace_bytes = backend->executor_workspace_bytes(executor, t);
        status = key_samples_add(key, own_time_ns(profile->step, times, t, event_ns),
                                 profile->watch.last_delay_ns[t], &beside, profile->round, error);
    }
    return status;
}

/* Summarises and stores the costs of the current plan. */
static tandem_status store_profile_costs(cost_profile *profile, tandem_error *error)
{
    profile_rank *rank = profile->rank;
    tandem_status status = tandem_store_begin(rank->store, error);
    if (status != TANDEM_OK) return status;
    profile_machine_settle(&profile->machine);
    for (int k = 0; k < profile->n_key && status == TANDEM_OK; k++) {
        key_samples *key = &profile->key[k];
        if (!key->touched || key->n == 0) continue;
        status = key_samples_summarise(key, &profile->machine.steady, error);
        if (status == TANDEM_OK && !is_known(profile, key))
            status = tandem_store_put_cost(rank->store, rank->device, profile->co_runner, &key->key,
                                           &key->cost, error);
    }
    if (status == TANDEM_OK) status = tandem_store_commit(rank->store, error);
    if (status != TANDEM_OK) tandem_store_rollback(rank->store);
    return status;
}

/* --- Being a busy neighbour until all are done ---------------------------------------------------------- */

static void done_file_path(const profile_rank *rank, int r, char *path, size_t size)
{
    (void)snprintf(path, size, "%s/profiled.%d", rank->self.folder, r);
}

static void mark_rank_done(const profile_rank *rank)
{
    char path[4096];
    done_file_path(rank, rank->self.rank, path, sizeof path);
    const int file = tandem_path_open(path, O_CREAT, NULL);
    if (file >= 0) (void)close(file);
}

static int all_ranks_done(const profile_rank *rank)
{
    char path[4096];
    for (int r = 0; r < rank->self.n_rank; r++) {
        done_file_path(rank, r, path, sizeof path);
        if (access(path, F_OK) != 0) return 0;
    }
    return 1;
}

/* --- Running plans -------------------------------------------------------------------------------------- */

static tandem_status open_profile_executor(cost_profile *profile, tandem_executor **executor,
                                           int with_task_times, tandem_error *error)
{
    profile_rank *rank = profile->rank;
    const tandem_executor_options options = {.step = profile->step,
                                             .data = rank->request->data ? &rank->data : NULL,
                                             .seed = rank->request->workload.seed,
                                             .global_batch =
                                                 profile->step->graph->batch * profile->step->options.n_micro,
                                             .clip = rank->request->workload.clip,
                                             .loss_scale = (float)rank->workload->loss_scale,
                                             .without_all_reduce = profile->timed != UPDATES,
                                             .with_task_times = with_task_times,
                                             .lacks_kernel = profile->lacks_kernel};
    return rank->backend->executor_open(executor, rank->worker, &options, error);
}

/* Of the rounds that are certain to come. */
static void show_profile_progress(const cost_profile *profile)
{
    const profile_rank *rank = profile->rank;
    if (profile->co_runner[0] && rank->self.rank != 0) return;
    if (rank->sweep_end_ns) {
        runtime_progress(&rank->request->listener, rank->sweep_end_ns - tandem_now_ns(),
                         "sweep %s: %s, plan %d of %d", rank->device, profile->step->graph->model,
                         profile->plan + 1, profile->n_plan);
        return;
    }
    const double done = profile->round * profile->n_plan + profile->plan + 1,
                 all = (double)profile->n_plan *
                       (profile->round < MIN_ROUNDS ? MIN_ROUNDS : profile->round + 1);
    const int64_t spent = tandem_now_ns() - profile->begin_ns,
                  left = (int64_t)((double)spent / done * (all - done));
    runtime_progress(&rank->request->listener,
                     rank->request->repetitions > 0 || left > moment_ns - spent ? left : moment_ns - spent,
                     "profile %s %s%s: round %d, plan %d of %d", rank->device,
                     profile->co_runner[0] ? "beside a busy " : "alone", profile->co_runner,
                     profile->round + 1, profile->plan + 1, profile->n_plan);
}

/* Stores clock rates while the device is warm. */
static tandem_status store_device_clocks(profile_rank *rank, tandem_error *error)
{
    tandem_clocks now, *min = &rank->clocks.min, *max = &rank->clocks.max;
    if (!rank->backend->worker_clocks(rank->worker, &now)) return TANDEM_OK;
    const int is_first = max->compute_mhz == 0;
    if (is_first || now.compute_mhz < min->compute_mhz) min->compute_mhz = now.compute_mhz;
    if (is_first || now.memory_mhz < min->memory_mhz) min->memory_mhz = now.memory_mhz;
    if (now.compute_mhz > max->compute_mhz) max->compute_mhz = now.compute_mhz;
    if (now.memory_mhz > max->memory_mhz) max->memory_mhz = now.memory_mhz;
    return tandem_store_put_clocks(rank->store, rank->device, now.compute_mhz, now.memory_mhz, error);
}

/* Steps of the current plan in this round, at least: --repetitions is for the first rounds together. */
static int steps_of_round(const cost_profile *profile, int is_uniform)
{
    const int64_t asked = profile->rank->request->repetitions;
    if (profile->rank->sweep_end_ns) return SWEEP_STEPS;
    if (!is_uniform) return profile->round == 0 ? MIXED_STEPS : MIXED_STEPS - 1;
    return asked > 0 ? (int)(asked + MIN_ROUNDS - 1 - profile->round) / MIN_ROUNDS : UNIFORM_STEPS;
}

static tandem_status run_profile_step(cost_profile *profile, tandem_executor *executor, int64_t index,
                                      int is_counted, tandem_error *error)
{
    step_watch *watch = &profile->watch;
    double loss = 0;
    if (step_watch_is_speed_sample_due(watch)) step_watch_take_speed_sample(watch);
    const tandem_speed_sample before = watch->speed_sample;
    step_watch_begin(watch);
    const tandem_status status = profile->rank->backend->executor_step(executor, index, &loss, error);
    step_watch_end(watch);
    if (step_watch_is_speed_sample_due(watch)) step_watch_take_speed_sample(watch);
    return status == TANDEM_OK && is_counted ? record_task_times(profile, executor, &before, error) : status;
}

/* Small steps go on for the time between two speed samples, unless --repetitions says how many they are. */
static int is_step_wanted(const cost_profile *profile, int i, int least, int64_t begin_ns)
{
    enum { MOST = 64 };
    const int64_t some_ns = 20000000;
    if (i < least) return 1;
    return profile->rank->request->repetitions <= 0 && i < MOST && tandem_now_ns() - begin_ns < some_ns;
}

/* The median time of a step of the current plan, with its tasks timed or not. */
static tandem_status time_whole_step(double *median_ns, cost_profile *profile, int with_task_times,
                                     tandem_error *error)
{
    enum { FIRST = 3, N = 12 }; /* graphs are made in the second step */
    const tandem_backend_api *backend = profile->rank->backend;
    tandem_executor *executor = NULL;
    double ns[N] = {0}, loss = 0;
    tandem_status status = open_profile_executor(profile, &executor, with_task_times, error);
    for (int i = 0; i < FIRST + N && status == TANDEM_OK; i++) {
        status = backend->executor_step(executor, i, &loss, error);
        if (status == TANDEM_OK && i >= FIRST)
            ns[i - FIRST] = (double)backend->executor_times(executor)->step_ns;
    }
    if (executor) backend->executor_close(executor);
    if (status == TANDEM_OK) *median_ns = tandem_median(ns, N);
    return status;
}

/* On a GPU an event after each task times it, and takes time that a run's step does not have: what a timed
 * step is longer, for each of its events. Measured once, in the first plan. */
static tandem_status measure_event(cost_profile *profile, tandem_error *error)
{
    profile_rank *rank = profile->rank;
    double timed_ns = 0, plain_ns = 0;
    int64_t n_event = 0;
    if (rank->event_ns >= 0 || strncmp(rank->device, "cuda:", 5) != 0) return TANDEM_OK;
    for (int t = 0; t < profile->step->n_task; t++)
        n_event += profile->key_of[t] >= 0 && !tandem_step_is_merged(profile->step, t);
    tandem_status status = time_whole_step(&timed_ns, profile, 1, error);
    if (status == TANDEM_OK) status = time_whole_step(&plain_ns, profile, 0, error);
    if (status != TANDEM_OK || n_event == 0) return status;
    const double of_event = (timed_ns - plain_ns) / (double)(n_event * profile->step->options.n_micro);
    rank->event_ns = of_event > 0 ? (int64_t)of_event : 0;
    return TANDEM_OK;
}

static tandem_status run_profile_plan(cost_profile *profile, int k, int is_uniform, tandem_error *error)
{
    profile_rank *rank = profile->rank;
    const int least = steps_of_round(profile, is_uniform), warm_up = profile->round == 0 ? WARM_UP : 1;
    tandem_executor *executor = NULL;
    if (least < 1) return TANDEM_OK;
    tandem_status status = measure_event(profile, error);
    if (status == TANDEM_OK) status = open_profile_executor(profile, &executor, 1, error);
    if (status == TANDEM_OK) step_watch_tasks(&profile->watch, rank->backend, executor, 1);
    for (int i = 0; i < warm_up && status == TANDEM_OK; i++)
        status = run_profile_step(profile, executor, i, 0, error);
    const int64_t begin_ns = tandem_now_ns();
    for (int i = 0; status == TANDEM_OK && is_step_wanted(profile, i, least, begin_ns); i++)
        status = run_profile_step(profile, executor, i + warm_up, 1, error);
    show_profile_progress(profile);
    if (status == TANDEM_OK) status = store_device_clocks(rank, error);
    if (executor) rank->backend->executor_close(executor);
    if (status == TANDEM_OK) status = store_profile_costs(profile, error);
    if (status == TANDEM_OK) profile->has_run[k] = 1;
    rank->has_swept = rank->sweep_end_ns > 0;
    return status;
}

static tandem_status run_plan_if_wanted(cost_profile *profile, int k, int *has_run, tandem_error *error)
{
    const profile_rank *rank = profile->rank;
    const tandem_device *device = &rank->workload->cluster.classes[rank->class_index].device;
    const int is_uniform = profile_of_plan(rank->request) || k < count_uniform_plans(device);
    profile->plan = k;
    tandem_status status = set_profile_plan(profile, k, error);
    if (status == TANDEM_OK) status = map_tasks_to_keys(profile, error);
    if (status != TANDEM_OK || !plan_wants_round(profile, k, is_uniform)) return status;
    *has_run = 1;
    return run_profile_plan(profile, k, is_uniform, error);
}

/* A GPU's row lists precisions of its kind; the device may lack kernels of some, for some shapes. Leaves them
 * out of the profile: those of operators of the current plan alone, the precision stays. Returns how many; 0
 * also for fp32 and given plans, which have nothing in their place. */
static int leave_out_missing_kernels(cost_profile *profile)
{
    const tandem_step *step = profile->step;
    int n_out = 0, of_precision[TANDEM_N_PRECISION] = {0}, first[TANDEM_N_PRECISION] = {0};
    if (profile_of_plan(profile->rank->request)) return 0;
    for (int op = 0; op < step->graph->n_op; op++) {
        const tandem_precision precision = step->precision[op];
        const int is_lacking = profile->lacks_kernel[op];
        profile->lacks_kernel[op] = 0;
        if (!is_lacking || precision == TANDEM_PRECISION_FP32) continue;
        profile->lacks[op] |= 1u << precision;
        if (of_precision[precision]++ == 0) first[precision] = op;
        n_out++;
    }
    for (int p = 0; p < TANDEM_N_PRECISION; p++)
        if (of_precision[p])
            runtime_note(&profile->rank->request->listener,
                         "%s lacks kernels for %d operator%s in %s ('%s'%s), which %s not measured",
                         profile->rank->device, of_precision[p], of_precision[p] == 1 ? "" : "s",
                         tandem_precision_get((tandem_precision)p)->name, step->graph->op[first[p]].name,
                         of_precision[p] == 1 ? "" : ", …", of_precision[p] == 1 ? "is" : "are");
    return n_out;
}

/* Runs all plans that want this round, one after the other, so that a slow moment falls on no plan alone. */
static tandem_status run_profile_round(cost_profile *profile, int *has_run, tandem_error *error)
{
    for (int k = 0; k < profile->n_plan;) {
        const int n_key = profile->n_key;
        const tandem_status status = run_plan_if_wanted(profile, k, has_run, error);
        if (status == TANDEM_NO_KERNEL && profile->round == 0 && leave_out_missing_kernels(profile)) {
            for (; profile->n_key > n_key; profile->n_key--)
                key_samples_free(&profile->key[profile->n_key - 1]);
            continue; /* the same plan, without them */
        }
        if (status != TANDEM_OK) return status;
        k++;
    }
    return TANDEM_OK;
}

static tandem_status run_profile_rounds(cost_profile *profile, tandem_error *error)
{
    const int is_bounded = profile->rank->request->repetitions > 0,
              is_sweep = profile->rank->sweep_end_ns > 0;
    const int most = is_sweep ? 1 : is_bounded ? MIN_ROUNDS : PROFILE_MAX_ROUNDS;
    int64_t enough_ns = INT64_MAX;
    int has_run = 1;
    for (int round = 0; round < most && has_run; round++) {
        profile->round = round;
        has_run = 0;
        const tandem_status status = run_profile_round(profile, &has_run, error);
        const int64_t spent_ns = tandem_now_ns() - profile->begin_ns;
        if (status != TANDEM_OK) return status;
        if (round + 1 == MIN_ROUNDS)
            enough_ns = (int64_t)fmax((1 + more_time) * (double)spent_ns, (double)moment_ns);
        if (spent_ns >= enough_ns || (round > 0 && spent_ns >= patience_ns)) return TANDEM_OK;
    }
    return TANDEM_OK;
}

/* Keeps computing after its own measurements, so that the other ranks keep a busy co-runner. */
static tandem_status keep_computing(cost_profile *profile, tandem_error *error)
{
    tandem_executor *executor = NULL;
    if (all_ranks_done(profile->rank)) return TANDEM_OK;
    tandem_status status = open_profile_executor(profile, &executor, 1, error);
    for (int64_t i = 0; status == TANDEM_OK && !all_ranks_done(profile->rank); i++) {
        double loss = 0;
        status = profile->rank->backend->executor_step(executor, i, &loss, error);
    }
    if (executor) profile->rank->backend->executor_close(executor);
    return status;
}

static void release_cost_profile(cost_profile *profile)
{
    for (int k = 0; k < profile->n_key; k++) key_samples_free(&profile->key[k]);
    free(profile->key);
    free(profile->key_of);
    free(profile->has_run);
    free(profile->lacks);
    free(profile->lacks_kernel);
    profile_machine_free(&profile->machine);
    step_watch_close(&profile->watch);
    tandem_cost_table_free(profile->known);
    tandem_step_close(profile->step);
}

static tandem_status open_cost_profile(cost_profile *profile, tandem_error *error)
{
    profile_rank *rank = profile->rank;
    const tandem_device *device = &rank->workload->cluster.classes[rank->class_index].device;
    profile->n_plan = profile->timed == UPDATES ? 1 : count_profile_plans(rank);
    tandem_status status =
        tandem_device_open_step(&profile->step, device, rank->workload->graph[rank->class_index],
                                rank->request->bucket_bytes, &rank->workload->plan->step, error);
    if (status == TANDEM_OK && !rank->request->remeasure)
        status = tandem_store_load_costs(&profile->known, rank->store, rank->device, profile->co_runner,
                                         profile->step, error);
    if (status != TANDEM_OK) return status;
    profile->key_of = calloc((size_t)profile->step->n_task, sizeof *profile->key_of);
    profile->has_run = calloc((size_t)profile->n_plan, 1);
    profile->lacks = calloc((size_t)profile->step->graph->n_op, sizeof *profile->lacks);
    profile->lacks_kernel = calloc((size_t)profile->step->graph->n_op, 1);
    if (!profile->key_of || !profile->has_run || !profile->lacks || !profile->lacks_kernel)
        return no_profile_memory(error);
    status = step_watch_open(&profile->watch, rank->device, error);
    if (status == TANDEM_OK) status = step_watch_set_tasks(&profile->watch, profile->step->n_task, error);
    return status == TANDEM_OK
               ? profile_machine_open(&profile->machine, rank->store, rank->device, profile->co_runner, error)
               : status;
}

/* Of the widest plan. */
static tandem_status widest_interval(cost_profile *profile, double *widest, tandem_error *error)
{
    *widest = NAN;
    for (int k = 0; k < profile->n_plan; k++) {
        if (!profile->has_run[k]) continue;
        tandem_status status = set_profile_plan(profile, k, error);
        if (status == TANDEM_OK) status = map_tasks_to_keys(profile, error);
        if (status != TANDEM_OK) return status;
        *widest = fmax(*widest, profile_interval_share(profile->key, profile->key_of, profile->step->n_task));
    }
    return TANDEM_OK;
}

/* How steady the machine was, where anything was measured. */
static tandem_status store_profile_steadiness(cost_profile *profile, tandem_error *error)
{
    profile_rank *rank = profile->rank;
    double widest = NAN;
    if (profile->machine.n == 0) return TANDEM_OK;
    tandem_status status = widest_interval(profile, &widest, error);
    if (status != TANDEM_OK) return status;
    const tandem_steadiness steadiness = profile_machine_summary(&profile->machine, widest);
    profile_keep_worse(&rank->steadiness, &steadiness);
    return tandem_store_put_steadiness(rank->store, rank->device, profile->co_runner, &steadiness, error);
}

static void count_profile_keys(const cost_profile *profile, tandem_profile_count *count)
{
    for (int k = 0; k < profile->n_key; k++) *(profile->key[k].n > 0 ? &count->measured : &count->known) += 1;
}

tandem_status profile_costs(profile_rank *rank, const char *co_runner, tandem_profile_count *count,
                            tandem_error *error)
{
    cost_profile profile = {.rank = rank,
                            .co_runner = co_runner,
                            .timed = co_runner[0] ? TASKS_BUT_UPDATES : ALL_TASKS,
                            .begin_ns = tandem_now_ns(),
                            .watch.probe.file = -1};
    tandem_status status = open_cost_profile(&profile, error);
    if (status == TANDEM_OK) status = run_profile_rounds(&profile, error);
    if (status == TANDEM_OK) status = store_profile_steadiness(&profile, error);
    if (co_runner[0]) {
        mark_rank_done(rank);
        if (status == TANDEM_OK) status = keep_computing(&profile, error);
    }
    count_profile_keys(&profile, count);
    release_cost_profile(&profile);
    return status;
}

/* --- Updates, in steps of all ranks --------------------------------------------------------------------- */

/* Whether a rank lacks costs of updates; the same on all ranks. */
static tandem_status ask_for_updates(int *is_wanted, const cost_profile *profile, tandem_error *error)
{
    const profile_rank *rank = profile->rank;
    int32_t mine = 0, all[PROFILE_MAX_RANKS] = {0};
    for (int k = 0; k < profile->n_key; k++)
        mine |= profile->key[k].touched && !is_known(profile, &profile->key[k]);
    *is_wanted = 0;
    const tandem_status status = rank->backend->worker_gather(rank->worker, &mine, all, sizeof mine, error);
    for (int r = 0; r < rank->self.n_rank; r++) *is_wanted |= all[r];
    return status;
}

/* As many steps as take a second, or --repetitions; the same on all ranks. */
static tandem_status choose_update_steps(int *n, const cost_profile *profile, int64_t step_ns,
                                         tandem_error *error)
{
    enum { LEAST = 6, MOST = 64 };
    const int64_t some_ns = 1000000000;
    int64_t steps = step_ns > 0 ? some_ns / step_ns : MOST;
    steps = steps < LEAST ? LEAST : steps > MOST ? MOST : steps;
    if (profile->rank->request->repetitions > 0) steps = profile->rank->request->repetitions;
    const tandem_status status =
        profile->rank->backend->worker_broadcast(profile->rank->worker, &steps, sizeof steps, 0, error);
    *n = (int)steps;
    return status;
}

static tandem_status run_update_steps(cost_profile *profile, tandem_error *error)
{
    const tandem_backend_api *backend = profile->rank->backend;
    tandem_executor *executor = NULL;
    int n = 0;
    tandem_status status = open_profile_executor(profile, &executor, 1, error);
    if (status == TANDEM_OK) step_watch_tasks(&profile->watch, backend, executor, 1);
    for (int i = 0; i < WARM_UP && status == TANDEM_OK; i++)
        status = run_profile_step(profile, executor, i, 0, error);
    if (status == TANDEM_OK)
        status = choose_update_steps(&n, profile, backend->executor_times(executor)->step_ns, error);
    for (int i = 0; i < n && status == TANDEM_OK; i++) {
        profile->round = i * MIN_ROUNDS / n;
        status = run_profile_step(profile, executor, i + WARM_UP, 1, error);
    }
    if (executor) backend->executor_close(executor);
    return status == TANDEM_OK ? store_profile_costs(profile, error) : status;
}

tandem_status profile_updates(profile_rank *rank, const char *co_runner, tandem_profile_count *count,
                              tandem_error *error)
{
    cost_profile profile = {.rank = rank,
                            .co_runner = co_runner,
                            .timed = UPDATES,
                            .begin_ns = tandem_now_ns(),
                            .watch.probe.file = -1};
    int is_wanted = 0;
    tandem_status status = open_cost_profile(&profile, error);
    if (status == TANDEM_OK) status = set_profile_plan(&profile, 0, error);
    if (status == TANDEM_OK) status = map_tasks_to_keys(&profile, error);
    if (status == TANDEM_OK) status = ask_for_updates(&is_wanted, &profile, error);
    if (status == TANDEM_OK && is_wanted) status = run_update_steps(&profile, error);
    count_profile_keys(&profile, count);
    release_cost_profile(&profile);
    return status;
}
