/* profile_costs.c: measures costs in place: operators are timed inside a step that the executor runs, with
 * the caches, memory traffic and dispatch of training. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/philox.h"
#include "cli/command/profile.h"

enum {
    WARM_UP = 2,
    UNIFORM_REPETITIONS = 12,
    MIXED_REPETITIONS = 5,
    MIXED_PLANS = 6,
    KEY_TEXT = 256,
    MIXED_SEED = 1
};

/* Repetitions of one key, from all tasks and plans that have it. */
typedef struct key_samples {
    char text[KEY_TEXT];
    tandem_cost_key key;
    uint64_t workspace_bytes;
    int64_t *ns, n, capacity;
    int touched; /* by the current plan */
} key_samples;

typedef struct cost_profile {
    profile_rank *rank;
    const char *co_runner;
    tandem_step *step;
    tandem_cost_table *known; /* in the store before this stage; NULL with --remeasure */
    key_samples *key;
    int n_key, key_capacity;
    int *key_of;      /* [n_task] of the current plan, −1 = not timed */
    int plan, n_plan; /* for the progress line */
    /* for mixed plans: those of the device that have kernels */
    unsigned precisions;
    int64_t begin_ns;
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
    if (profile_of_plan(rank->options)) return 1;
    return n_uniform + (n_uniform > 1 ? MIXED_PLANS : 0);
}

/* Uniform plans first, then seeded mixed ones; or the given plan. */
static tandem_status set_profile_plan(cost_profile *profile, int k, tandem_error *error)
{
    const profile_rank *rank = profile->rank;
    const int c = rank->class_index, is_given = profile_of_plan(rank->options);
    const tandem_device *device = &rank->workload->cluster.classes[c].device;
    const tandem_graph *graph = profile->step->graph;
    tandem_plan *made = NULL;
    tandem_status status = tandem_plan_open(&made, graph, &rank->workload->cluster, "profile", error);
    if (status == TANDEM_OK && !is_given)
        status =
            k < count_uniform_plans(device)
                ? tandem_plan_uniform(made, graph, c, nth_precision(device->precisions, k), error)
                : tandem_plan_random(made, graph, c, profile->precisions, MIXED_SEED + (uint64_t)k, error);
    const tandem_plan *plan = is_given ? rank->workload->plan : made;
    if (status == TANDEM_OK) tandem_step_load(profile->step, plan->assignment.precision[c]);
    tandem_plan_close(made);
    return status;
}

/* --- Samples -------------------------------------------------------------------------------------------- */

static int find_or_add_key(cost_profile *profile, const tandem_cost_key *key)
{
    char text[KEY_TEXT];
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

static int add_sample(key_samples *key, int64_t ns)
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

static tandem_status no_profile_memory(tandem_error *error)
{
    return tandem_no_memory(error, "for the repetitions of the profile");
}

/* Finds the key of each task of the current plan. *missing: keys that are not in the store. */
static tandem_status map_tasks_to_keys(cost_profile *profile, int *missing, tandem_error *error)
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
            return tandem_error_set(error, TANDEM_BUG, "task %d (%s of '%s') has no cost key in variant %d",
                                    t, tandem_task_kind_name(task->kind),
                                    task->op >= 0 ? step->graph->op[task->op].name : "", task->variant);
        profile->key_of[t] = find_or_add_key(profile, &key);
        if (profile->key_of[t] < 0) return no_profile_memory(error);
        key_samples *found = &profile->key[profile->key_of[t]];
        const int is_known = profile->known && tandem_cost_table_find(profile->known, &key) != NULL;
        if (!found->touched && !is_known && found->n == 0) (*missing)++;
        found->touched = 1;
    }
    return TANDEM_OK;
}

static tandem_status record_task_times(cost_profile *profile, const tandem_executor *executor,
                                       tandem_error *error)
{
    const tandem_step_times *times = profile->rank->backend->executor_times(executor);
    for (int t = 0; t < profile->step->n_task; t++) {
        if (profile->key_of[t] < 0) continue;
        key_samples *key = &profile->key[profile->key_of[t]];
        key->workspace_bytes = profile->rank->backend->executor_workspace_bytes(executor, t);
        if (!add_sample(key, times->end_ns[t] - times->start_ns[t])) return no_profile_memory(error);
    }
    return TANDEM_OK;
}

static tandem_status store_profile_costs(cost_profile *profile, tandem_error *error)
{
    profile_rank *rank = profile->rank;
    tandem_status status = tandem_store_begin(rank->store, error);
    if (status != TANDEM_OK) return status;
    for (int k = 0; k < profile->n_key && status == TANDEM_OK; k++) {
        key_samples *key = &profile->key[k];
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

static void done_file_path(const profile_rank *rank, int r, char *path, size_t size)
{
    (void)snprintf(path, size, "%s/profiled.%d", rank->self.store, r);
}

static void mark_rank_done(const profile_rank *rank)
{
    char path[4096];
    done_file_path(rank, rank->self.rank, path, sizeof path);
    const int file = open(path, O_CREAT | O_WRONLY | O_NOFOLLOW | O_CLOEXEC, 0644);
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
                                           tandem_error *error)
{
    profile_rank *rank = profile->rank;
    const tandem_executor_options options = {.step = profile->step,
                                             .data = rank->options->data ? &rank->data : NULL,
                                             .seed = rank->options->seed,
                                             .global_batch =
                                                 profile->step->graph->batch * profile->step->options.n_micro,
                                             .clip = rank->options->clip,
                                             .loss_scale = (float)rank->workload->loss_scale,
                                             .without_all_reduce = 1,
                                             .with_task_times = 1};
    return rank->backend->executor_open(executor, rank->worker, &options, error);
}

static void show_profile_progress(const cost_profile *profile, int repetition, int n)
{
    const profile_rank *rank = profile->rank;
    if (profile->co_runner[0] && rank->self.rank != 0) return;
    const double done = profile->plan + (double)(repetition + 1) / n;
    const int64_t spent = tandem_now_ns() - profile->begin_ns;
    cli_progress(rank->options, (int64_t)((double)spent / done * (profile->n_plan - done)),
                 "profile %s %s%s: plan %d of %d", rank->device,
                 profile->co_runner[0] ? "beside a busy " : "alone", profile->co_runner, profile->plan + 1,
                 profile->n_plan);
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

static tandem_status run_profile_plan(cost_profile *profile, int k, tandem_error *error)
{
    profile_rank *rank = profile->rank;
    const tandem_device *device = &rank->workload->cluster.classes[rank->class_index].device;
    const int asked = (int)rank->options->repetitions;
    const int n =
        k < count_uniform_plans(device) ? (asked > 0 ? asked : UNIFORM_REPETITIONS) : MIXED_REPETITIONS;
    tandem_executor *executor = NULL;
    tandem_status status = open_profile_executor(profile, &executor, error);
    for (int i = -WARM_UP; i < n && status == TANDEM_OK; i++) {
        double loss = 0;
        status = rank->backend->executor_step(executor, i + WARM_UP, &loss, error);
        if (status != TANDEM_OK || i < 0) continue;
        status = record_task_times(profile, executor, error);
        if (i % 4 == 3) show_profile_progress(profile, i, n);
    }
    if (status == TANDEM_OK) status = store_device_clocks(rank, error);
    if (executor) rank->backend->executor_close(executor);
    if (status == TANDEM_OK) status = store_profile_costs(profile, error);
    return status;
}

static tandem_status run_plan_if_new(cost_profile *profile, int k, tandem_error *error)
{
    int missing = 0;
    profile->plan = k;
    tandem_status status = set_profile_plan(profile, k, error);
    if (status == TANDEM_OK) status = map_tasks_to_keys(profile, &missing, error);
    if (status == TANDEM_OK && missing > 0) status = run_profile_plan(profile, k, error);
    return status;
}

/* A GPU's row lists precisions of its kind; the device may lack kernels for some. */
static int skip_unsupported_precision(cost_profile *profile, int k)
{
    const profile_rank *rank = profile->rank;
    const tandem_device *device = &rank->workload->cluster.classes[rank->class_index].device;
    if (profile_of_plan(rank->options) || k >= count_uniform_plans(device)) return 0;
    const tandem_precision precision = nth_precision(device->precisions, k);
    if (precision == TANDEM_PRECISION_FP32) return 0;
    profile->precisions &= ~(1u << precision);
    cli_note(rank->options, "%s lacks some kernels for %s, which is not measured", rank->device,
             tandem_precision_get(precision)->name);
    return 1;
}

/* Runs all plans that have unmeasured keys. */
static tandem_status run_profile_plans(cost_profile *profile, tandem_error *error)
{
    for (int k = 0; k < profile->n_plan; k++) {
        const int n_key = profile->n_key;
        const tandem_status status = run_plan_if_new(profile, k, error);
        if (status == TANDEM_NO_KERNEL && skip_unsupported_precision(profile, k))
            profile->n_key = n_key;
        else if (status != TANDEM_OK)
            return status;
    }
    return TANDEM_OK;
}

/* Keeps computing after its own measurements, so that the other ranks keep a busy co-runner. */
static tandem_status keep_computing(cost_profile *profile, tandem_error *error)
{
    tandem_executor *executor = NULL;
    if (all_ranks_done(profile->rank)) return TANDEM_OK;
    tandem_status status = open_profile_executor(profile, &executor, error);
    for (int64_t i = 0; status == TANDEM_OK && !all_ranks_done(profile->rank); i++) {
        double loss = 0;
        status = profile->rank->backend->executor_step(executor, i, &loss, error);
    }
    if (executor) profile->rank->backend->executor_close(executor);
    return status;
}

static void release_cost_profile(cost_profile *profile)
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
    const tandem_device *device = &rank->workload->cluster.classes[rank->class_index].device;
    cost_profile profile = {
        .rank = rank, .co_runner = co_runner, .begin_ns = tandem_now_ns(), .precisions = device->precisions};
    profile.n_plan = count_profile_plans(rank);
    tandem_status status =
        tandem_device_open_step(&profile.step, device, rank->workload->graph[rank->class_index],
                                rank->options->bucket_bytes, &rank->workload->plan->step, error);
    if (status == TANDEM_OK && !rank->options->remeasure)
        status = tandem_store_load_costs(&profile.known, rank->store, rank->device, co_runner, profile.step,
                                         error);
    if (status == TANDEM_OK &&
        !(profile.key_of = calloc((size_t)profile.step->n_task, sizeof *profile.key_of)))
        status = no_profile_memory(error);
    if (status == TANDEM_OK) status = run_profile_plans(&profile, error);
    if (co_runner[0]) {
        mark_rank_done(rank);
        if (status == TANDEM_OK) status = keep_computing(&profile, error);
    }
    for (int k = 0; k < profile.n_key; k++) *(profile.key[k].n > 0 ? &count->measured : &count->known) += 1;
    release_cost_profile(&profile);
    return status;
}
