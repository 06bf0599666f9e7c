/* trial.c: what a plan costs in loss and in samples, by pairs of trainings. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "runtime/process/process.h"
#include "runtime/train/training_rank.h"
#include "runtime/trial/branch.h"
#include "runtime/unused_formats.h"
#include "tandem/advanced/store.h"

enum { DEFAULT_STEPS = 200, DEFAULT_PAIRS = 8, MAX_EMULATED_RANKS = 16 };

typedef struct trial {
    const tandem_loss_request *request;
    tandem_workload workload; /* the plan's */
    uint64_t plan_hash;       /* of the plan as it was asked for */
    char *plan_text;          /* of the same */
    uint64_t training;        /* the hash of its first branch */
    branch_source source;
    char plan_path[2][SCRATCH_JSON];
    int64_t begin;
    branch branch[2][TANDEM_TRIAL_MOST_PAIRS];
    int n_pair;
    tandem_loss_result out;
    /* progress */
    branch_kind kind;
    int64_t trained_ns, pairs_ns; /* of branches, and of the pairs that trained any */
    int n_trained, n_trained_pair;
    uint64_t branch_bytes; /* the most that a branch took of memory; 0 = none was trained */
} trial;

static const char *trial_base(const tandem_loss_request *request)
{
    return request->base ? request->base : "fp32";
}

/* --- Which devices train -------------------------------------------------------------------------------- */

static int is_here(const tandem_cluster *cluster)
{
    for (int c = 0; c < cluster->n_class; c++)
        if (runtime_device_require(cluster->classes[c].device.name, NULL) != TANDEM_OK) return 0;
    return 1;
}

static tandem_status choose_devices(trial *t, tandem_error *error)
{
    const tandem_cluster *cluster = &t->workload.cluster;
    const int n_rank = tandem_cluster_n_rank(cluster);
    tandem_device device = cluster->classes[0].device;
    t->source.emulate = t->request->train.workload.emulate;
    if (!t->source.emulate && is_here(cluster)) return TANDEM_OK;
    if (!t->source.emulate) t->source.emulate = "";
    if (n_rank > MAX_EMULATED_RANKS)
        return tandem_error_set(error, TANDEM_USAGE,
                                "a trial emulates %d ranks at most, got %d of %s. Give a cluster with fewer "
                                "ranks of each device",
                                MAX_EMULATED_RANKS, n_rank, device.name);
    const tandem_status status =
        tandem_device_is_described(&device) ? tandem_device_resolve(&device, "strongest", error) : TANDEM_OK;
    (void)snprintf(t->out.emulated_on, sizeof t->out.emulated_on, "%s", device.name);
    return status;
}

/* --- Plans of both branches ----------------------------------------------------------------------------- */

static tandem_status write_plan(trial *t, branch_kind kind, const tandem_plan *plan, tandem_error *error)
{
    tandem_status status = scratch_json_make(t->plan_path[kind], error);
    if (status == TANDEM_OK)
        status = tandem_plan_write(plan, t->workload.graph[0], t->plan_path[kind], error);
    t->source.plan[kind] = t->plan_path[kind];
    return status;
}

/* The same ranks, batches and steps, with all operators in one precision, and no loss scale of the plan's. A
 * branch in the base precision may take more memory than the plan may: limits are no part of a trial. */
static tandem_status write_plans(trial *t, tandem_error *error)
{
    tandem_workload *workload = &t->workload;
    tandem_plan *base = NULL;
    tandem_precision precision;
    for (int c = 0; c < workload->cluster.n_class; c++)
        workload->cluster.classes[c].memory_bytes = workload->plan->cluster.classes[c].memory_bytes = 0;
    tandem_status status = tandem_precision_find(&precision, trial_base(t->request), error);
    if (status == TANDEM_OK)
        status =
            tandem_plan_open(&base, workload->graph[0], &workload->cluster, trial_base(t->request), error);
    for (int c = 0; c < workload->cluster.n_class && status == TANDEM_OK; c++)
        status = tandem_plan_uniform(base, workload->graph[c], c, precision, error);
    if (status == TANDEM_OK) {
        base->step = workload->plan->step;
        status = write_plan(t, BRANCH_BASE, base, error);
    }
    if (status == TANDEM_OK) status = write_plan(t, BRANCH_PLAN, workload->plan, error);
    tandem_plan_close(base);
    return status;
}

/* --- Opening -------------------------------------------------------------------------------------------- */

static tandem_status check_loss_request(const tandem_loss_request *request, tandem_error *error)
{
    const tandem_train_request *train = &request->train;
    if (!train->data)
        return tandem_error_set(error, TANDEM_USAGE,
                                "a trial trains on samples: give --data. `tandem list datasets` shows some");
    if (train->steps < TANDEM_TRIAL_LEAST_STEPS)
        return tandem_error_set(error, TANDEM_USAGE, "a branch of %lld steps: it takes %d or more",
                                (long long)train->steps, TANDEM_TRIAL_LEAST_STEPS);
    if (request->n_pair < 1 || request->n_pair > TANDEM_TRIAL_MOST_PAIRS)
        return tandem_error_set(error, TANDEM_USAGE, "%d pairs: allowed are 1 to %d", request->n_pair,
                                TANDEM_TRIAL_MOST_PAIRS);
    if (!isnan(request->at_most) && request->n_pair < TANDEM_TRIAL_LEAST_PAIRS)
        return tandem_error_set(error, TANDEM_USAGE, "%d pairs decide nothing: --at-most takes %d or more",
                                request->n_pair, TANDEM_TRIAL_LEAST_PAIRS);
    if (!train->workload.plan && train->workload.uniform && strstr(train->workload.uniform, "random"))
        return tandem_error_set(error, TANDEM_USAGE,
                                "a trial is of one plan: give --plan, or a precision that is not random");
    if (train->place.n_rank > 0)
        return tandem_error_set(
            error, TANDEM_USAGE,
            "a trial starts its own ranks and cannot join a run: start it once, without RANK");
    if (!train->store)
        return tandem_error_set(error, TANDEM_USAGE, "a trial keeps its branches in a store: give --db");
    return TANDEM_OK;
}

static tandem_status open_trial(trial *t, tandem_error *error)
{
    const tandem_train_request *train = &t->request->train;
    tandem_checkpoint_info info = {.step = 0};
    tandem_status status = tandem_workload_open(&t->workload, &train->workload, error);
    if (status != TANDEM_OK) return status;
    const tandem_backend_api *backend = runtime_backend(error);
    if (!backend) return TANDEM_MISSING;
    note_unused_formats(&train->listener, &t->workload, train->workload.emulate);
    t->plan_hash = tandem_trial_plan_hash(t->workload.plan);
    t->plan_text = tandem_plan_text(t->workload.plan, t->workload.graph[0]);
    if (!t->plan_text) return tandem_no_memory(error, "for the text of a plan");
    t->source.request = t->request;
    t->source.base = trial_base(t->request);
    status = choose_devices(t, error);
    if (status == TANDEM_OK && train->workload.plan) status = write_plans(t, error);
    if (status == TANDEM_OK && train->resume)
        status = backend->checkpoint_inspect(&info, train->resume, t->workload.graph[0], error);
    t->begin = info.step;
    if (status == TANDEM_OK)
        status = training_rank_open_data(&t->source.data, backend, &t->workload, train->data, NULL, error);
    if (status == TANDEM_OK) t->source.data_hash = backend->data_hash(&t->source.data);
    return status;
}

static void close_trial(trial *t)
{
    const tandem_backend_api *backend = runtime_backend(NULL);
    for (int k = 0; k < 2; k++) {
        if (*t->plan_path[k]) scratch_file_remove(t->plan_path[k]);
        for (int i = 0; i < TANDEM_TRIAL_MOST_PAIRS; i++) branch_free(&t->branch[k][i]);
    }
    if (backend) backend->data_close(&t->source.data);
    free(t->plan_text);
    tandem_workload_close(&t->workload);
}

/* --- Progress ------------------------------------------------------------------------------------------- */

/* Of the branch that trains, with the time of all that may follow. */
static void show_trial_progress(void *context, int64_t left_ns, const char *text)
{
    const trial *t = context;
    const int n_pair_left = t->request->n_pair - t->n_pair - 1;
    const int64_t branch_ns = t->n_trained ? t->trained_ns / t->n_trained : 0,
                  pair_ns = t->n_trained_pair ? t->pairs_ns / t->n_trained_pair : 2 * branch_ns;
    const int64_t plan_ns = t->kind == BRANCH_BASE ? branch_ns : 0;
    runtime_progress(&t->request->train.listener, pair_ns ? left_ns + plan_ns + n_pair_left * pair_ns : 0,
                     "pair %d of at most %d, %s: %s", t->n_pair + 1, t->request->n_pair,
                     t->kind == BRANCH_PLAN ? "plan" : "base", text);
}

/* Branches say the same: the first of each kind is heard. What differs from a checkpoint is the trial's own
 * doing. */
static void pass_note(void *context, const char *text)
{
    const trial *t = context;
    if (t->n_pair > 0 || strncmp(text, "warning: differs from the checkpoint", 36) == 0 ||
        strncmp(text, "warning: --emulate=", 19) == 0) /* said before, of the plan */
        return;
    runtime_note(&t->request->train.listener, "%s: %s", t->kind == BRANCH_PLAN ? "plan" : "base", text);
}

/* --- Pairs ---------------------------------------------------------------------------------------------- */

/* What can be had without swapping, as Linux counts it; 0 = not known. */
static uint64_t available_bytes(void)
{
    char line[128];
    unsigned long long kib = 0;
    FILE *file = fopen("/proc/meminfo", "re");
    if (!file) return 0;
    while (fgets(line, sizeof line, file) && sscanf(line, "MemAvailable: %llu kB", &kib) != 1) kib = 0;
    (void)fclose(file);
    return (uint64_t)kib << 10;
}

/* Whether there are cores and memory for both branches at once; half of the memory stays free. The first pair
 * says what a branch takes. */
static int has_room_for_both(const trial *t, const branch_task *task)
{
    usable_cores cores;
    if (task[BRANCH_BASE].made.is_known || task[BRANCH_PLAN].made.is_known || !t->branch_bytes) return 0;
    cores_read(&cores);
    return cores.n >= 2 * tandem_cluster_n_core(&t->workload.cluster) &&
           2 * t->branch_bytes <= available_bytes() / 2;
}

typedef struct base_training {
    branch_task *task;
    tandem_listener listener;
    tandem_status status;
    tandem_error error;
} base_training;

static void *train_base(void *context)
{
    base_training *base = context;
    base->status = branch_train(base->task, &base->listener, &base->error);
    return NULL;
}

/* The base in a thread of its own, which says nothing: its notes were those of the first pair. */
static tandem_status train_side_by_side(branch_task *task, const tandem_listener *listener,
                                        tandem_error *error)
{
    base_training base = {.task = &task[BRANCH_BASE], .listener = {.cancel = listener->cancel}};
    pthread_t thread;
    const int has_thread = pthread_create(&thread, NULL, train_base, &base) == 0;
    if (!has_thread) (void)train_base(&base);
    const tandem_status status = branch_train(&task[BRANCH_PLAN], listener, error);
    if (has_thread) (void)pthread_join(thread, NULL);
    if (status != TANDEM_OK || base.status == TANDEM_OK) return status;
    if (error) *error = base.error;
    return base.status;
}

static tandem_status train_both(trial *t, branch_task *task, tandem_error *error)
{
    const tandem_listener listener = {.context = t,
                                      .progress = show_trial_progress,
                                      .note = pass_note,
                                      .cancel = t->request->train.listener.cancel};
    tandem_status status = TANDEM_OK;
    if (has_room_for_both(t, task)) {
        t->kind = BRANCH_PLAN;
        return train_side_by_side(task, &listener, error);
    }
    for (int kind = BRANCH_BASE; kind <= BRANCH_PLAN && status == TANDEM_OK; kind++) {
        t->kind = (branch_kind)kind;
        status = branch_train(&task[kind], &listener, error);
    }
    return status;
}

/* Takes over what was trained, or known. */
static void take_both(trial *t, branch_task *task)
{
    for (int kind = BRANCH_BASE; kind <= BRANCH_PLAN; kind++) {
        branch *made = &task[kind].made;
        t->out.n_known += made->is_known;
        t->n_trained += made->loss && !made->is_known;
        t->trained_ns += made->took_ns;
        if (made->resident_bytes > t->branch_bytes) t->branch_bytes = made->resident_bytes;
        t->branch[kind][t->n_pair] = *made;
        *made = (branch){.loss = NULL};
    }
}

static tandem_status run_pair(trial *t, tandem_error *error)
{
    branch_task task[2] = {{.record = {.n_step = 0}}};
    const int64_t begin_ns = tandem_now_ns();
    const int n_before = t->n_trained;
    tandem_status status = TANDEM_OK;
    for (int kind = BRANCH_BASE; kind <= BRANCH_PLAN && status == TANDEM_OK; kind++)
        status = branch_open(&task[kind], &t->source, (branch_kind)kind, t->n_pair, t->begin, error);
    if (t->n_pair == 0) t->training = task[BRANCH_PLAN].record.hash;
    if (status == TANDEM_OK) status = train_both(t, task, error);
    take_both(t, task);
    for (int kind = BRANCH_BASE; kind <= BRANCH_PLAN; kind++) branch_close(&task[kind]);
    if (t->n_trained > n_before) {
        t->n_trained_pair++;
        t->pairs_ns += tandem_now_ns() - begin_ns;
    }
    if (status == TANDEM_OK) t->n_pair++;
    return status;
}

static tandem_status judge_pairs(trial *t, tandem_error *error)
{
    tandem_trial_pair pair[TANDEM_TRIAL_MOST_PAIRS];
    const int n_look = t->request->n_pair - TANDEM_TRIAL_LEAST_PAIRS + 1;
    const tandem_trial_question question = {
        .n_step = t->request->train.steps, .at_most = t->request->at_most, .n_look = n_look > 1 ? n_look : 1};
    for (int i = 0; i < t->n_pair; i++)
        pair[i] = (tandem_trial_pair){.base_loss = t->branch[BRANCH_BASE][i].loss,
                                      .plan_loss = t->branch[BRANCH_PLAN][i].loss,
                                      .base_held_out = t->branch[BRANCH_BASE][i].held_out,
                                      .plan_held_out = t->branch[BRANCH_PLAN][i].held_out,
                                      .plan_held_out_in_base = t->branch[BRANCH_PLAN][i].held_out_in_base};
    return tandem_trial_conclude(&t->out.trial, pair, t->n_pair, &question, error);
}

static tandem_status train_pairs(trial *t, tandem_error *error)
{
    tandem_status status = TANDEM_OK;
    while (t->n_pair < t->request->n_pair && status == TANDEM_OK &&
           t->out.trial.answer == TANDEM_TRIAL_UNDECIDED) {
        status = run_pair(t, error);
        if (status == TANDEM_OK) status = judge_pairs(t, error);
    }
    return status;
}

static tandem_status keep_trial(const trial *t, tandem_error *error)
{
    if (t->request->train.workload.emulate) return TANDEM_OK; /* of other formats, errors or devices */
    const tandem_trial_result *found = &t->out.trial;
    tandem_store *store = NULL;
    tandem_trial_record record = {.plan_hash = t->plan_hash,
                                  .plan = t->plan_text,
                                  .training = t->training,
                                  .steps_before = t->begin,
                                  .n_step = t->request->train.steps,
                                  .is_emulated = *t->out.emulated_on != '\0',
                                  .n_pair = found->n_pair,
                                  .n_diverged = found->n_diverged,
                                  .extra = found->extra.mean,
                                  .extra_low = found->extra.low,
                                  .extra_high = found->extra.high};
    (void)snprintf(record.data, sizeof record.data, "%s", t->source.data.name);
    (void)snprintf(record.base, sizeof record.base, "%s", trial_base(t->request));
    tandem_status status = tandem_store_open(&store, t->request->train.store, TANDEM_STORE_WRITE, error);
    if (status == TANDEM_OK)
        status = tandem_store_put_trial(store, t->workload.graph[0]->model, t->workload.graph[0]->hash,
                                        &record, error);
    tandem_store_close(store);
    return status;
}

static void put_result(trial *t)
{
    (void)snprintf(t->out.model, sizeof t->out.model, "%s", t->workload.graph[0]->model);
    (void)snprintf(t->out.plan, sizeof t->out.plan, "%s", t->workload.plan->name);
    (void)snprintf(t->out.base, sizeof t->out.base, "%s", trial_base(t->request));
    t->out.steps = t->request->train.steps;
    t->out.begin = t->begin;
    t->out.first_seed = branch_seed(t->request->train.workload.seed, 0);
    t->out.branch_ns = t->n_trained ? t->trained_ns / t->n_trained : 0;
    t->out.pair_ns = t->n_trained_pair ? t->pairs_ns / t->n_trained_pair : 0;
}

/* --- Public --------------------------------------------------------------------------------------------- */

tandem_loss_request tandem_loss_request_default(void)
{
    tandem_loss_request request = {
        .train = tandem_train_request_default(), .n_pair = DEFAULT_PAIRS, .at_most = NAN};
    request.train.steps = DEFAULT_STEPS;
    return request;
}

tandem_status tandem_compare_loss(tandem_loss_result *result, const tandem_loss_request *request,
                                  tandem_error *error)
{
    tandem_status status = check_loss_request(request, error);
    if (status != TANDEM_OK) return status;
    trial *t = calloc(1, sizeof *t);
    if (!t) return tandem_no_memory(error, "for a trial");
    t->request = request;
    status = open_trial(t, error);
    if (status == TANDEM_OK) status = train_pairs(t, error);
    if (status == TANDEM_OK) status = keep_trial(t, error);
    if (status == TANDEM_OK) {
        put_result(t);
        *result = t->out;
    }
    close_trial(t);
    free(t);
    return status;
}
