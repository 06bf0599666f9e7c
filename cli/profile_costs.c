/* profile_costs.c: costs in place. Operators are timed inside the step that they are part of, run by the
 * executor that will train, so that a kernel meets the caches, the memory traffic and the dispatch it will
 * meet. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/philox.h"
#include "cli/profile.h"

enum {
    WARM_UP = 2,
    UNIFORM_REPETITIONS = 12,
    MIXED_REPETITIONS = 5,
    MIXED_PLANS = 6,
    KEY_TEXT = 256,
    MIXED_SEED = 1
};

/* Repetitions of one key, from every task and plan that has it. */
typedef struct samples {
    char text[KEY_TEXT];
    tandem_cost_key key;
    uint64_t workspace_bytes;
    int64_t *ns, n, capacity;
    int touched; /* by the plan that runs now */
} samples;

typedef struct cost_profile {
    profile_rank *rank;
    const char *co_runner;
    tandem_step *step;
    tandem_cost_table *known; /* in the store when this stage began; NULL with --again */
    samples *key;
    int n_key, key_capacity;
    int *key_of;      /* [n_task] of the plan that runs now, −1 = not timed */
    int plan, n_plan; /* for the progress line */
    /* that mixed plans draw from: those of the device, but for what it turned out to have no kernels for */
    unsigned precisions;
    int64_t begin_ns;
} cost_profile;

/* --- Plans ---------------------------------------------------------------------------------------------- */

static int count_precisions(unsigned precisions)
{
    return __builtin_popcount(precisions & ((1u << TANDEM_N_PRECISION) - 1));
}

static int uniform_count(const tandem_device *device) { return count_precisions(device->precisions); }

static tandem_precision nth_precision(unsigned precisions, int n)
{
    for (int p = 0; p < TANDEM_N_PRECISION; p++)
        if (precisions & (1u << p) && n-- == 0) return (tandem_precision)p;
    return TANDEM_PRECISION_FP32;
}

static int count_plans(const profile_rank *rank)
{
    const int n_uniform = uniform_count(&rank->subject->cluster.classes[rank->class_index].device);
    if (profile_of_plan(rank->options)) return 1;
    return n_uniform + (n_uniform > 1 ? MIXED_PLANS : 0);
}

/* Uniform plans first, then seeded mixed ones; or the one that is given. */
static tandem_status set_plan(cost_profile *profile, int k, tandem_error *error)
{
    const profile_rank *rank = profile->rank;
    const int c = rank->class_index, is_given = profile_of_plan(rank->options);
    const tandem_device *device = &rank->subject->cluster.classes[c].device;
    const tandem_graph *graph = profile->step->graph;
    tandem_plan *made = NULL;
    tandem_status status = tandem_plan_open(&made, graph, &rank->subject->cluster, "profile", error);
    if (status == TANDEM_OK && !is_given)
        status =
            k < uniform_count(device)
                ? tandem_plan_uniform(made, graph, c, nth_precision(device->precisions, k), error)
                : tandem_plan_random(made, graph, c, profile->precisions, MIXED_SEED + (uint64_t)k, error);
    const tandem_plan *plan = is_given ? rank->subject->plan : made;
    for (int i = 0; i < graph->n_op && status == TANDEM_OK; i++)
        if (tandem_op_row_get(graph->op[i].kind)->op_class == TANDEM_ADJUSTABLE)
            tandem_step_set(profile->step, i, plan->precision[c][i]);
    tandem_plan_close(made);
    if (status == TANDEM_OK) tandem_step_resolve(profile->step);
    return status;
}

/* --- Samples -------------------------------------------------------------------------------------------- */

static int find_key(cost_profile *profile, const tandem_cost_key *key)
{
    char text[KEY_TEXT];
    tandem_cost_key_print(text, sizeof text, key);
    for (int k = 0; k < profile->n_key; k++)
        if (strcmp(profile->key[k].text, text) == 0) return k;
    if (profile->n_key == profile->key_capacity) {
        const int capacity = profile->key_capacity ? 2 * profile->key_capacity : 256;
        samples *grown = realloc(profile->key, (size_t)capacity * sizeof *grown);
        if (!grown) return -1;
        profile->key = grown;
        profile->key_capacity = capacity;
    }
    samples *fresh = &profile->key[profile->n_key];
    *fresh = (samples){.key = *key};
    memcpy(fresh->text, text, sizeof text);
    return profile->n_key++;
}

static int push(samples *key, int64_t ns)
{
    if (key->n == key->capacity) {
        const int64_t capacity = key->capacity ? 2 * key->capacity : 32;
        int64_t *grown = realloc(key->ns, (size_t)capacity * sizeof *grown);
        if (!grown) return 0;
        key->ns = grown;
        key->capacity = capacity;
    }
    key->ns[key->n++] = ns;
    return 1;
}

static tandem_status no_memory(tandem_error *error)
{
    return tandem_error_set(error, TANDEM_NO_MEMORY, "no memory for the repetitions of the profile");
}

/* Which key each task of the current plan is timed under. *missing: keys that are not in the store. */
static tandem_status map_tasks(cost_profile *profile, int *missing, tandem_error *error)
{
    const tandem_step *step = profile->step;
    *missing = 0;
    for (int k = 0; k < profile->n_key; k++) profile->key[k].touched = 0;
    for (int t = 0; t < step->n_task; t++) {
        profile->key_of[t] = -1;
        const tandem_task *task = &step->task[t];
        tandem_cost_key key;
        if (!task->active || task->kind == TANDEM_TASK_REDUCE) continue;
        if (!tandem_step_cost_key(step, t, task->variant, &key))
            return tandem_error_set(error, TANDEM_BUG, "task %d (%s of '%s') has no cost key in form %d", t,
                                    tandem_task_kind_name(task->kind),
                                    task->op >= 0 ? step->graph->op[task->op].name : "", task->variant);
        profile->key_of[t] = find_key(profile, &key);
        if (profile->key_of[t] < 0) return no_memory(error);
        samples *found = &profile->key[profile->key_of[t]];
        const int is_known = profile->known && tandem_cost_table_find(profile->known, &key) != NULL;
        if (!found->touched && !is_known && found->n == 0) (*missing)++;
        found->touched = 1;
    }
    return TANDEM_OK;
}

static tandem_status record(cost_profile *profile, const tandem_executor *executor, tandem_error *error)
{
    const tandem_step_times *times = profile->rank->backend->executor_times(executor);
    for (int t = 0; t < profile->step->n_task; t++) {
        if (profile->key_of[t] < 0) continue;
        samples *key = &profile->key[profile->key_of[t]];
        key->workspace_bytes = profile->rank->backend->executor_workspace_bytes(executor, t);
        if (!push(key, times->end_ns[t] - times->start_ns[t])) return no_memory(error);
    }
    return TANDEM_OK;
}

static tandem_status file_costs(cost_profile *profile, tandem_error *error)
{
    profile_rank *rank = profile->rank;
    tandem_status status = tandem_store_begin(rank->store, error);
    if (status != TANDEM_OK) return status;
    for (int k = 0; k < profile->n_key && status == TANDEM_OK; k++) {
        samples *key = &profile->key[k];
        if (!key->touched || (profile->known && tandem_cost_table_find(profile->known, &key->key))) continue;
        tandem_cost cost;
        tandem_cost_from_samples(&cost, key->ns, key->n, key->workspace_bytes);
        status =
            tandem_store_put_cost(rank->store, rank->device, profile->co_runner, &key->key, &cost, error);
    }
    if (status == TANDEM_OK) status = tandem_store_commit(rank->store, error);
    if (status != TANDEM_OK) tandem_store_rollback(rank->store);
    return status;
}

/* --- Being a busy neighbour until all are done ---------------------------------------------------------- */

static void done_path(const profile_rank *rank, int r, char *path, size_t size)
{
    (void)snprintf(path, size, "%s/profiled.%d", rank->place.store, r);
}

static void mark_done(const profile_rank *rank)
{
    char path[4096];
    done_path(rank, rank->place.rank, path, sizeof path);
    const int file = open(path, O_CREAT | O_WRONLY | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (file >= 0) (void)close(file);
}

static int all_done(const profile_rank *rank)
{
    char path[4096];
    for (int r = 0; r < rank->place.n_rank; r++) {
        done_path(rank, r, path, sizeof path);
        if (access(path, F_OK) != 0) return 0;
    }
    return 1;
}

/* --- Running plans -------------------------------------------------------------------------------------- */

static tandem_status open_executor(cost_profile *profile, tandem_executor **executor, tandem_error *error)
{
    profile_rank *rank = profile->rank;
    const tandem_executor_options options = {.step = profile->step,
                                             .data = rank->options->data ? &rank->data : NULL,
                                             .seed = rank->options->seed,
                                             .global_batch =
                                                 profile->step->graph->batch * profile->step->options.n_micro,
                                             .clip = rank->options->clip,
                                             .loss_scale = (float)rank->subject->loss_scale,
                                             .without_all_reduce = 1,
                                             .with_task_times = 1};
    return rank->backend->executor_open(executor, rank->worker, &options, error);
}

static void show_progress(const cost_profile *profile, int repetition, int n)
{
    const profile_rank *rank = profile->rank;
    if (profile->co_runner[0] && rank->place.rank != 0) return;
    const double done = profile->plan + (double)(repetition + 1) / n;
    const int64_t spent = tandem_now_ns() - profile->begin_ns;
    cli_progress(rank->options, (int64_t)((double)spent / done * (profile->n_plan - done)),
                 "profile %s %s%s: plan %d of %d", rank->device,
                 profile->co_runner[0] ? "beside a busy " : "alone", profile->co_runner, profile->plan + 1,
                 profile->n_plan);
}

/* While the device is warm from its steps. */
static tandem_status file_clocks(profile_rank *rank, tandem_error *error)
{
    tandem_clocks now, *least = &rank->clocks.least, *most = &rank->clocks.most;
    if (!rank->backend->worker_clocks(rank->worker, &now)) return TANDEM_OK;
    const int is_first = most->compute_mhz == 0;
    if (is_first || now.compute_mhz < least->compute_mhz) least->compute_mhz = now.compute_mhz;
    if (is_first || now.memory_mhz < least->memory_mhz) least->memory_mhz = now.memory_mhz;
    if (now.compute_mhz > most->compute_mhz) most->compute_mhz = now.compute_mhz;
    if (now.memory_mhz > most->memory_mhz) most->memory_mhz = now.memory_mhz;
    return tandem_store_put_clocks(rank->store, rank->device, now.compute_mhz, now.memory_mhz, error);
}

static tandem_status run_plan(cost_profile *profile, int k, tandem_error *error)
{
    profile_rank *rank = profile->rank;
    const tandem_device *device = &rank->subject->cluster.classes[rank->class_index].device;
    const int asked = (int)rank->options->repetitions;
    const int n = k < uniform_count(device) ? (asked > 0 ? asked : UNIFORM_REPETITIONS) : MIXED_REPETITIONS;
    tandem_executor *executor = NULL;
    tandem_status status = open_executor(profile, &executor, error);
    for (int i = -WARM_UP; i < n && status == TANDEM_OK; i++) {
        double loss = 0;
        status = rank->backend->executor_step(executor, i + WARM_UP, &loss, error);
        if (status != TANDEM_OK || i < 0) continue;
        status = record(profile, executor, error);
        if (i % 4 == 3) show_progress(profile, i, n);
    }
    if (status == TANDEM_OK) status = file_clocks(rank, error);
    if (executor) rank->backend->executor_close(executor);
    if (status == TANDEM_OK) status = file_costs(profile, error);
    return status;
}

static tandem_status run_new(cost_profile *profile, int k, tandem_error *error)
{
    int missing = 0;
    profile->plan = k;
    tandem_status status = set_plan(profile, k, error);
    if (status == TANDEM_OK) status = map_tasks(profile, &missing, error);
    if (status == TANDEM_OK && missing > 0) status = run_plan(profile, k, error);
    return status;
}

/* A card's row says what cards of its kind may have; which of it this one has is known here. */
static int is_lacking(cost_profile *profile, int k)
{
    const profile_rank *rank = profile->rank;
    const tandem_device *device = &rank->subject->cluster.classes[rank->class_index].device;
    if (profile_of_plan(rank->options) || k >= uniform_count(device)) return 0;
    const tandem_precision precision = nth_precision(device->precisions, k);
    if (precision == TANDEM_PRECISION_FP32) return 0;
    profile->precisions &= ~(1u << precision);
    cli_note(rank->options, "%s has no kernels for all of %s: it is not measured", rank->device,
             tandem_precision_get(precision)->name);
    return 1;
}

/* All plans that would tell something new. */
static tandem_status run_plans(cost_profile *profile, tandem_error *error)
{
    for (int k = 0; k < profile->n_plan; k++) {
        const int n_key = profile->n_key;
        const tandem_status status = run_new(profile, k, error);
        if (status == TANDEM_NO_KERNEL && is_lacking(profile, k))
            profile->n_key = n_key;
        else if (status != TANDEM_OK)
            return status;
    }
    return TANDEM_OK;
}

/* This rank has measured all it wanted; it goes on computing so that the others keep a busy neighbour. */
static tandem_status stay_busy(cost_profile *profile, tandem_error *error)
{
    tandem_executor *executor = NULL;
    if (all_done(profile->rank)) return TANDEM_OK;
    tandem_status status = open_executor(profile, &executor, error);
    for (int64_t i = 0; status == TANDEM_OK && !all_done(profile->rank); i++) {
        double loss = 0;
        status = profile->rank->backend->executor_step(executor, i, &loss, error);
    }
    if (executor) profile->rank->backend->executor_close(executor);
    return status;
}

static void release(cost_profile *profile)
{
    for (int k = 0; k < profile->n_key; k++) free(profile->key[k].ns);
    free(profile->key);
    free(profile->key_of);
    tandem_cost_table_free(profile->known);
    tandem_step_close(profile->step);
}

tandem_status profile_costs(profile_rank *rank, const char *co_runner, profile_count *count,
                            tandem_error *error)
{
    const tandem_device *device = &rank->subject->cluster.classes[rank->class_index].device;
    cost_profile profile = {
        .rank = rank, .co_runner = co_runner, .begin_ns = tandem_now_ns(), .precisions = device->precisions};
    profile.n_plan = count_plans(rank);
    tandem_status status =
        tandem_device_open_step(&profile.step, device, rank->subject->graph[rank->class_index],
                                rank->options->bucket_bytes, &rank->subject->plan->step, error);
    if (status == TANDEM_OK && !rank->options->again)
        status = tandem_store_load_costs(&profile.known, rank->store, rank->device, co_runner, profile.step,
                                         error);
    if (status == TANDEM_OK &&
        !(profile.key_of = calloc((size_t)profile.step->n_task, sizeof *profile.key_of)))
        status = no_memory(error);
    if (status == TANDEM_OK) status = run_plans(&profile, error);
    if (co_runner[0]) {
        mark_done(rank);
        if (status == TANDEM_OK) status = stay_busy(&profile, error);
    }
    for (int k = 0; k < profile.n_key; k++) *(profile.key[k].n > 0 ? &count->measured : &count->known) += 1;
    release(&profile);
    return status;
}
