/* branch.c: one training of a trial. */
#include "runtime/trial/branch.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "runtime/listener.h"
#include "runtime/train/run_agreement.h"

/* --- What is trained ------------------------------------------------------------------------------------ */

uint64_t branch_seed(uint64_t seed, int pair)
{
    uint64_t hash = tandem_hash_bytes(TANDEM_HASH_START, &seed, sizeof seed);
    hash = tandem_hash_bytes(hash, &pair, sizeof pair);
    return hash & INT64_MAX; /* a seed that --seed takes, too */
}

static tandem_train_request branch_request(const branch_source *source, branch_kind kind, int pair,
                                           int64_t begin)
{
    tandem_train_request train = source->request->train;
    const uint64_t seed = branch_seed(train.workload.seed, pair);
    train.workload.memory = NULL;
    if (train.workload.plan)
        train.workload.plan = source->plan[kind];
    else if (kind == BRANCH_BASE)
        train.workload.uniform = source->base;
    train.workload.emulate = source->emulate;
    train.workload.seed = train.data_seed = train.rounding_seed = seed;
    train.has_data_seed = train.has_rounding_seed = 1;
    train.steps += begin;
    train.evaluate_in = kind == BRANCH_PLAN && train.evaluate > 0 ? source->base : NULL;
    train.evaluate_in_plan = 1;
    train.allow_nan = 1;
    train.listener = (tandem_listener){.context = NULL};
    return train;
}

/* A hash of all that decides the numbers of a training. */
static tandem_status hash_branch(uint64_t *hash, const branch_source *source,
                                 const tandem_train_request *train, const tandem_workload *workload,
                                 tandem_error *error)
{
    training_rank rank = {.backend = NULL, .data = source->data, .data_hash = source->data_hash};
    char *text = NULL;
    tandem_status status = train_config_open(&rank.config, workload->graph[0], train, error);
    if (status == TANDEM_OK) status = run_agreement_make(&text, &rank, workload, train, error);
    if (status == TANDEM_OK) *hash = tandem_hash_text(TANDEM_HASH_START, text);
    free(text);
    return status;
}

/* --- In the store --------------------------------------------------------------------------------------- */

static tandem_status load_stored_branch(branch *out, tandem_branch_record *record, const char *path,
                                        tandem_error *error)
{
    tandem_store *store = NULL;
    tandem_error none = {0};
    tandem_status status = tandem_store_open(&store, path, TANDEM_STORE_READ, &none);
    if (status == TANDEM_MISSING) return TANDEM_OK; /* there is no store yet */
    if (status != TANDEM_OK) {
        if (error) *error = none;
        return status;
    }
    status = tandem_store_load_branch(record, &out->loss, store, error);
    tandem_store_close(store);
    if (status != TANDEM_OK || !out->loss) return status;
    out->held_out = record->held_out;
    out->held_out_in_base = record->held_out_in_base;
    out->is_known = 1;
    return TANDEM_OK;
}

static tandem_status keep_branch(const branch_task *task, tandem_error *error)
{
    tandem_store *store = NULL;
    tandem_branch_record record = task->record;
    tandem_status status = tandem_store_open(&store, task->train.store, TANDEM_STORE_WRITE, error);
    if (status != TANDEM_OK) return status;
    record.held_out = task->made.held_out;
    record.held_out_in_base = task->made.held_out_in_base;
    status = tandem_store_put_branch(store, &record, task->made.loss, error);
    tandem_store_close(store);
    return status;
}

tandem_status branch_open(branch_task *task, const branch_source *source, branch_kind kind, int pair,
                          int64_t begin, tandem_error *error)
{
    branch_task opened = {.train = branch_request(source, kind, pair, begin),
                          .record = {.n_step = source->request->train.steps},
                          .made = {.held_out = NAN, .held_out_in_base = NAN}};
    tandem_branch_record *record = &opened.record;
    tandem_status status = tandem_workload_open(&opened.workload, &opened.train.workload, error);
    if (status == TANDEM_OK)
        status = hash_branch(&record->hash, source, &opened.train, &opened.workload, error);
    if (status == TANDEM_OK) {
        const tandem_graph *graph = opened.workload.graph[0];
        assert(graph); /* an open workload has one */
        record->model = graph->model;
        record->graph_hash = graph->hash;
        status = load_stored_branch(&opened.made, record, opened.train.store, error);
    }
    if (status == TANDEM_OK)
        *task = opened;
    else
        branch_close(&opened);
    return status;
}

void branch_close(branch_task *task)
{
    branch_free(&task->made);
    tandem_workload_close(&task->workload);
    *task = (branch_task){.record = {.n_step = 0}};
}

void branch_free(branch *of)
{
    free(of->loss);
    *of = (branch){0};
}

/* --- Training ------------------------------------------------------------------------------------------- */

/* A run that ended because a tensor was not finite has no losses. */
static tandem_status diverge(branch *out, int64_t n_step, tandem_error *error)
{
    out->loss = calloc((size_t)n_step, sizeof *out->loss);
    if (!out->loss) return tandem_no_memory(error, "for %lld losses", (long long)n_step);
    for (int64_t k = 0; k < n_step; k++) out->loss[k] = NAN;
    return TANDEM_OK;
}

static uint64_t sum_resident_bytes(const tandem_train_result *result)
{
    uint64_t sum = 0;
    for (int r = 0; r < result->n_rank; r++)
        if (result->rank[r].resident_bytes > 0) sum += (uint64_t)result->rank[r].resident_bytes;
    return sum;
}

tandem_status branch_train(branch_task *task, const tandem_listener *listener, tandem_error *error)
{
    tandem_train_result result = {.n_rank = 0};
    tandem_error why = {0};
    branch *out = &task->made;
    const int64_t begin_ns = tandem_now_ns();
    if (out->is_known) return TANDEM_OK;
    task->train.listener = *listener;
    const tandem_status status = tandem_train(&result, &task->train, &why);
    out->took_ns = tandem_now_ns() - begin_ns;
    if (status == TANDEM_LIMIT_EXCEEDED) {
        runtime_note(listener, "%s", why.text);
        const tandem_status made = diverge(out, task->record.n_step, error);
        return made == TANDEM_OK ? keep_branch(task, error) : made;
    }
    if (status != TANDEM_OK) {
        if (error) *error = why;
        return status;
    }
    out->loss = result.loss;
    result.loss = NULL;
    out->held_out = result.n_evaluation ? result.evaluation[result.n_evaluation - 1].loss : NAN;
    out->held_out_in_base = task->train.evaluate_in ? result.in_precision.loss : NAN;
    out->resident_bytes = sum_resident_bytes(&result);
    tandem_train_result_free(&result);
    return keep_branch(task, error);
}
