/* amax_histories.c: finds, resets, saves and restores the amax histories of an executor's casts. */
#include "backend/executor/amax_histories.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static tandem_status histories_no_memory(int n, tandem_error *error)
{
    return tandem_no_memory(error, "for the histories of %d casts", n);
}

tandem_status tandem_amax_histories_open(tandem_amax_histories *out, const tandem_step *step,
                                         tandem_error *error)
{
    tandem_amax_histories h = {.step = step, .stride_bytes = tandem_step_amax_history_bytes(step)};
    for (int t = 0; t < step->n_task && h.stride_bytes; t++) h.n += tandem_step_amax_history(step, t) == t;
    if (h.n > 0 && !(h.task = malloc((size_t)h.n * sizeof *h.task))) return histories_no_memory(h.n, error);
    for (int t = 0, k = 0; k < h.n; t++)
        if (tandem_step_amax_history(step, t) == t) h.task[k++] = t;
    *out = h;
    return TANDEM_OK;
}

void tandem_amax_histories_close(tandem_amax_histories *histories)
{
    free(histories->task);
    *histories = (tandem_amax_histories){0};
}

static int compare_tasks(const void *a, const void *b)
{
    const int x = *(const int *)a, y = *(const int *)b;
    return (x > y) - (x < y);
}

tandem_amax_history *tandem_amax_histories_get(const tandem_amax_histories *histories, int task)
{
    const int *found = bsearch(&task, histories->task, (size_t)histories->n, sizeof task, compare_tasks);
    assert(found);
    return (tandem_amax_history *)(void *)(histories->memory +
                                           (uint64_t)(found - histories->task) * histories->stride_bytes);
}

/* History k in a view of them all. */
static tandem_amax_history *history_in_view(const tandem_amax_histories *h, void *view, int k)
{
    return (tandem_amax_history *)(void *)((unsigned char *)view + (uint64_t)k * h->stride_bytes);
}

static uint64_t all_histories_bytes(const tandem_amax_histories *h)
{
    return (uint64_t)h->n * h->stride_bytes;
}

tandem_status tandem_amax_histories_reset(tandem_amax_histories *h, tandem_worker *worker,
                                          tandem_error *error)
{
    return tandem_amax_histories_restore(h, &(tandem_amax_snapshot){0}, worker, error);
}

/* --- Checkpoints ---------------------------------------------------------------------------------------- */

static void set_record_key(tandem_amax_record *record, const tandem_amax_histories *h, int k)
{
    const tandem_task *task = &h->step->task[h->task[k]];
    (void)snprintf(record->kind, sizeof record->kind, "%s", tandem_task_kind_name(task->kind));
    (void)snprintf(record->to, sizeof record->to, "%s", tandem_dtype_name(task->to));
    record->op = task->op;
}

/* Writes this rank's records. */
static tandem_status fill_amax_records(unsigned char *records, const tandem_amax_histories *h,
                                       uint64_t record_bytes, tandem_worker *worker, tandem_error *error)
{
    if (h->n == 0) return TANDEM_OK;
    void *view = NULL;
    const tandem_status status =
        tandem_worker_view(&view, worker, h->memory, all_histories_bytes(h), 1, error);
    if (status != TANDEM_OK) return status;
    for (int k = 0; k < h->n; k++) {
        tandem_amax_record *record = (tandem_amax_record *)(void *)(records + (uint64_t)k * record_bytes);
        set_record_key(record, h, k);
        memcpy(&record->history, history_in_view(h, view, k),
               tandem_amax_history_bytes(h->step->options.scaling.window));
    }
    return tandem_worker_end_view(worker, view, h->memory, all_histories_bytes(h), 0, error);
}

/* The largest number of records that a rank has. */
static tandem_status max_records_of_ranks(int32_t *max_records, const tandem_amax_histories *h,
                                          tandem_worker *worker, tandem_error *error)
{
    const int32_t own = h->n;
    int32_t *all = malloc((size_t)worker->n_rank * sizeof *all);
    if (!all) return histories_no_memory(h->n, error);
    const tandem_status status = tandem_worker_gather(worker, &own, all, sizeof own, error);
    *max_records = 0;
    for (int r = 0; r < worker->n_rank && status == TANDEM_OK; r++)
        if (all[r] > *max_records) *max_records = all[r];
    free(all);
    return status;
}

tandem_status tandem_amax_histories_gather(tandem_amax_snapshot *out, const tandem_amax_histories *h,
                                           tandem_worker *worker, tandem_error *error)
{
    tandem_amax_snapshot snapshot = {.n_rank = worker->n_rank, .window = h->step->options.scaling.window};
    unsigned char *own = NULL;
    tandem_status status =
        snapshot.window > 0 ? max_records_of_ranks(&snapshot.n, h, worker, error) : TANDEM_OK;
    if (status != TANDEM_OK) return status;
    if (snapshot.n == 0) {
        *out = (tandem_amax_snapshot){0};
        return TANDEM_OK;
    }
    snapshot.record_bytes = tandem_amax_record_bytes(snapshot.window);
    own = calloc((size_t)snapshot.n, snapshot.record_bytes);
    snapshot.record = malloc((size_t)snapshot.n_rank * (size_t)snapshot.n * snapshot.record_bytes);
    status = own && snapshot.record ? fill_amax_records(own, h, snapshot.record_bytes, worker, error)
                                    : histories_no_memory(snapshot.n, error);
    if (status == TANDEM_OK)
        status = tandem_worker_gather(worker, own, snapshot.record,
                                      (size_t)snapshot.n * snapshot.record_bytes, error);
    free(own);
    if (status == TANDEM_OK)
        *out = snapshot;
    else
        free(snapshot.record);
    return status;
}

static const tandem_amax_record *find_amax_record(const tandem_amax_histories *h, int k,
                                                  const tandem_amax_snapshot *snapshot, int rank)
{
    tandem_amax_record key = {.op = 0};
    set_record_key(&key, h, k);
    for (int r = 0; r < snapshot->n; r++) {
        const void *at = snapshot->record +
                         ((uint64_t)rank * (uint64_t)snapshot->n + (uint64_t)r) * snapshot->record_bytes;
        if (memcmp(at, &key, offsetof(tandem_amax_record, history)) == 0) return at;
    }
    return NULL;
}

tandem_status tandem_amax_histories_restore(tandem_amax_histories *h, const tandem_amax_snapshot *snapshot,
                                            tandem_worker *worker, tandem_error *error)
{
    if (h->n == 0) return TANDEM_OK;
    const tandem_cast_scaling scaling = h->step->options.scaling;
    const int fits = snapshot->n_rank == worker->n_rank && snapshot->window == scaling.window;
    void *view = NULL;
    const tandem_status status =
        tandem_worker_view(&view, worker, h->memory, all_histories_bytes(h), 0, error);
    if (status != TANDEM_OK) return status;
    memset(view, 0, (size_t)all_histories_bytes(h));
    for (int k = 0; k < h->n; k++) {
        tandem_amax_history *history = history_in_view(h, view, k);
        const tandem_amax_record *found = fits ? find_amax_record(h, k, snapshot, worker->rank) : NULL;
        /* the step has checked these options */
        (void)tandem_amax_history_init(history, scaling.window, scaling.margin, NULL);
        if (!found || found->history.updates < 0) continue;
        history->updates = found->history.updates;
        history->before = found->history.before;
        memcpy(history->amax, found->history.amax, (size_t)scaling.window * sizeof *history->amax);
    }
    return tandem_worker_end_view(worker, view, h->memory, all_histories_bytes(h), 1, error);
}
