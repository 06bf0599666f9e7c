/* branch.c: one training of a trial. */
#include "runtime/trial/branch.h"

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

static tandem_status keep_branch(const branch *of, tandem_branch_record *record, const char *path,
                                 tandem_error *error)
{
    tandem_store *store = NULL;
    tandem_status status = tandem_store_open(&store, path, TANDEM_STORE_WRITE, error);
    if (status != TANDEM_OK) return status;
    record->held_out = of->held_out;
    record->held_out_in_base = of->held_out_in_base;
    status = tandem_store_put_branch(store, record, of->loss, error);
    tandem_store_close(store);
    return status;
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

static tandem_status train_branch(branch *out, const tandem_train_request *train, int64_t n_step,
                                  tandem_error *error)
{
    tandem_train_result result = {.n_rank = 0};
    tandem_error why = {0};
    const int64_t begin_ns = tandem_now_ns();
    const tandem_status status = tandem_train(&result, train, &why);
    out->took_ns = tandem_now_ns() - begin_ns;
    if (status == TANDEM_LIMIT_EXCEEDED) {
        runtime_note(&train->listener, "%s", why.text);
        return diverge(out, n_step, error);
    }
    if (status != TANDEM_OK) {
        if (error) *error = why;
        return status;
    }
    out->loss = result.loss;
    result.loss = NULL;
    out->held_out = result.n_evaluation ? result.evaluation[result.n_evaluation - 1].loss : NAN;
    out->held_out_in_base = train->evaluate_in ? result.in_precision.loss : NAN;
    tandem_train_result_free(&result);
    return TANDEM_OK;
}

tandem_status branch_run(branch *out, const branch_source *source, branch_kind kind, int pair, int64_t begin,
                         const tandem_listener *listener, tandem_error *error)
{
    tandem_workload workload = {.loss_scale = 0};
    branch made = {.held_out = NAN, .held_out_in_base = NAN};
    tandem_train_request train = branch_request(source, kind, pair, begin);
    tandem_branch_record record = {.n_step = source->request->train.steps};
    train.listener = *listener;
    tandem_status status = tandem_workload_open(&workload, &train.workload, error);
    if (status == TANDEM_OK) status = hash_branch(&record.hash, source, &train, &workload, error);
    if (status == TANDEM_OK) {
        record.model = workload.graph[0]->model;
        record.graph_hash = workload.graph[0]->hash;
        status = load_stored_branch(&made, &record, train.store, error);
    }
    if (status == TANDEM_OK && !made.is_known) {
        status = train_branch(&made, &train, record.n_step, error);
        if (status == TANDEM_OK) status = keep_branch(&made, &record, train.store, error);
    }
    tandem_workload_close(&workload);
    if (status == TANDEM_OK)
        *out = made;
    else
        branch_free(&made);
    return status;
}

void branch_free(branch *of)
{
    free(of->loss);
    *of = (branch){0};
}
