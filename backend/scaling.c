#include "backend/scaling.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static tandem_status no_memory(int n, tandem_error *error)
{
    return tandem_error_set(error, TANDEM_NO_MEMORY, "no memory for the histories of %d casts", n);
}

tandem_status tandem_histories_open(tandem_histories *out, const tandem_step *step, tandem_error *error)
{
    tandem_histories h = {.step = step, .stride_bytes = tandem_step_history_bytes(step)};
    for (int t = 0; t < step->n_task && h.stride_bytes; t++) h.n += tandem_step_history(step, t) == t;
    if (h.n > 0 && !(h.task = malloc((size_t)h.n * sizeof *h.task))) return no_memory(h.n, error);
    for (int t = 0, k = 0; k < h.n; t++)
        if (tandem_step_history(step, t) == t) h.task[k++] = t;
    *out = h;
    return TANDEM_OK;
}

void tandem_histories_close(tandem_histories *histories)
{
    free(histories->task);
    *histories = (tandem_histories){0};
}

static int compare(const void *a, const void *b)
{
    const int x = *(const int *)a, y = *(const int *)b;
    return (x > y) - (x < y);
}

tandem_amax_history *tandem_histories_of(const tandem_histories *histories, int task)
{
    const int *found = bsearch(&task, histories->task, (size_t)histories->n, sizeof task, compare);
    assert(found);
    return (tandem_amax_history *)(void *)(histories->memory +
                                           (uint64_t)(found - histories->task) * histories->stride_bytes);
}

/* Of a view of them. */
static tandem_amax_history *nth(const tandem_histories *h, void *view, int k)
{
    return (tandem_amax_history *)(void *)((unsigned char *)view + (uint64_t)k * h->stride_bytes);
}

static uint64_t all_bytes(const tandem_histories *h) { return (uint64_t)h->n * h->stride_bytes; }

tandem_status tandem_histories_begin(tandem_histories *h, tandem_worker *worker, tandem_error *error)
{
    return tandem_histories_restore(h, &(tandem_history_image){0}, worker, error);
}

/* --- Checkpoints ---------------------------------------------------------------------------------------- */

static void name_record(tandem_history_record *record, const tandem_histories *h, int k)
{
    const tandem_task *task = &h->step->task[h->task[k]];
    (void)snprintf(record->kind, sizeof record->kind, "%s", tandem_task_kind_name(task->kind));
    (void)snprintf(record->to, sizeof record->to, "%s", tandem_dtype_name(task->to));
    record->op = task->op;
}

/* This rank's, in an image's `n` places. */
static tandem_status fill_records(unsigned char *records, const tandem_histories *h, uint64_t record_bytes,
                                  tandem_worker *worker, tandem_error *error)
{
    if (h->n == 0) return TANDEM_OK;
    void *view = NULL;
    const tandem_status status = tandem_worker_view(&view, worker, h->memory, all_bytes(h), 1, error);
    if (status != TANDEM_OK) return status;
    for (int k = 0; k < h->n; k++) {
        tandem_history_record *record =
            (tandem_history_record *)(void *)(records + (uint64_t)k * record_bytes);
        name_record(record, h, k);
        memcpy(&record->history, nth(h, view, k), tandem_amax_history_bytes(h->step->options.scaling.window));
    }
    return tandem_worker_end_view(worker, view, h->memory, all_bytes(h), 0, error);
}

/* How many records a rank has at most. */
static tandem_status most_records(int32_t *most, const tandem_histories *h, tandem_worker *worker,
                                  tandem_error *error)
{
    const int32_t own = h->n;
    int32_t *all = malloc((size_t)worker->n_rank * sizeof *all);
    if (!all) return no_memory(h->n, error);
    const tandem_status status = tandem_worker_gather(worker, &own, all, sizeof own, error);
    *most = 0;
    for (int r = 0; r < worker->n_rank && status == TANDEM_OK; r++)
        if (all[r] > *most) *most = all[r];
    free(all);
    return status;
}

tandem_status tandem_histories_gather(tandem_history_image *out, const tandem_histories *h,
                                      tandem_worker *worker, tandem_error *error)
{
    tandem_history_image image = {.n_rank = worker->n_rank, .window = h->step->options.scaling.window};
    unsigned char *own = NULL;
    tandem_status status = image.window > 0 ? most_records(&image.n, h, worker, error) : TANDEM_OK;
    if (status != TANDEM_OK) return status;
    if (image.n == 0) {
        *out = (tandem_history_image){0};
        return TANDEM_OK;
    }
    image.record_bytes = tandem_history_record_bytes(image.window);
    own = calloc((size_t)image.n, image.record_bytes);
    image.record = malloc((size_t)image.n_rank * (size_t)image.n * image.record_bytes);
    status = own && image.record ? fill_records(own, h, image.record_bytes, worker, error)
                                 : no_memory(image.n, error);
    if (status == TANDEM_OK)
        status = tandem_worker_gather(worker, own, image.record, (size_t)image.n * image.record_bytes, error);
    free(own);
    if (status == TANDEM_OK)
        *out = image;
    else
        free(image.record);
    return status;
}

static const tandem_history_record *find_record(const tandem_histories *h, int k,
                                                const tandem_history_image *image, int rank)
{
    tandem_history_record wanted = {.op = 0};
    name_record(&wanted, h, k);
    for (int r = 0; r < image->n; r++) {
        const void *at =
            image->record + ((uint64_t)rank * (uint64_t)image->n + (uint64_t)r) * image->record_bytes;
        if (memcmp(at, &wanted, offsetof(tandem_history_record, history)) == 0) return at;
    }
    return NULL;
}

tandem_status tandem_histories_restore(tandem_histories *h, const tandem_history_image *image,
                                       tandem_worker *worker, tandem_error *error)
{
    if (h->n == 0) return TANDEM_OK;
    const tandem_cast_scaling scaling = h->step->options.scaling;
    const int fits = image->n_rank == worker->n_rank && image->window == scaling.window;
    void *view = NULL;
    const tandem_status status = tandem_worker_view(&view, worker, h->memory, all_bytes(h), 0, error);
    if (status != TANDEM_OK) return status;
    memset(view, 0, (size_t)all_bytes(h));
    for (int k = 0; k < h->n; k++) {
        tandem_amax_history *history = nth(h, view, k);
        const tandem_history_record *found = fits ? find_record(h, k, image, worker->rank) : NULL;
        /* the step has checked them */
        (void)tandem_amax_history_init(history, scaling.window, scaling.margin, NULL);
        if (!found || found->history.updates < 0) continue;
        history->updates = found->history.updates;
        history->before = found->history.before;
        memcpy(history->amax, found->history.amax, (size_t)scaling.window * sizeof *history->amax);
    }
    return tandem_worker_end_view(worker, view, h->memory, all_bytes(h), 1, error);
}
