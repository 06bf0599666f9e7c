#include "replayer/job.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name, *shown;
    int is_comm;
} kinds[TANDEM_N_JOB_KIND] = {
#define ROW(id, trace, shown, comm) {trace, shown, comm},
    TANDEM_JOB_KIND_TABLE(ROW)
#undef ROW
};

const char *tandem_job_kind_name(int kind) { return kinds[kind].name; }
const char *tandem_job_kind_shown(int kind) { return kinds[kind].shown; }
int tandem_job_kind_is_comm(int kind) { return kinds[kind].is_comm; }

int tandem_job_kind_find(const char *name, size_t n)
{
    for (int kind = 0; kind < TANDEM_N_JOB_KIND; kind++)
        if (strlen(kinds[kind].name) == n && memcmp(kinds[kind].name, name, n) == 0) return kind;
    return -1;
}

tandem_status tandem_job_rows_add(tandem_job_rows *rows, const tandem_job_op *op, const char *source,
                                  tandem_error *error)
{
    enum { MOST = INT_MAX / 8 }; /* indices of edges and streams stay within int */
    if (rows->n == rows->capacity) {
        const int capacity = rows->capacity ? rows->capacity < MOST / 2 ? 2 * rows->capacity : MOST : 1024;
        tandem_job_op *const more =
            rows->n < MOST ? realloc(rows->op, (size_t)capacity * sizeof *more) : NULL;
        if (!more)
            return tandem_error_set(error, TANDEM_NO_MEMORY,
                                    "no memory for the %d operators of '%.200s' so far", rows->n, source);
        rows->op = more;
        rows->capacity = capacity;
    }
    rows->op[rows->n++] = *op;
    return TANDEM_OK;
}

/* −1, 0, 1. */
static int order_of(int64_t a, int64_t b) { return (a > b) - (a < b); }

static int by_step_worker_start(const void *left, const void *right)
{
    const tandem_job_op *const a = left, *const b = right;
    int order = order_of(a->step, b->step);
    if (!order) order = order_of(a->dp_rank, b->dp_rank);
    if (!order) order = order_of(a->stage, b->stage);
    if (!order) order = order_of(a->tp_rank, b->tp_rank);
    if (!order) order = order_of(a->start_ns, b->start_ns);
    if (!order) order = order_of(a->sequence, b->sequence);
    if (!order) order = order_of(a->kind, b->kind);
    return order ? order : order_of(a->chunk, b->chunk);
}

/* Steps get places instead of numbers; sizes are one more than the largest index. */
static void measure(tandem_job *job)
{
    int step = -1;
    for (int i = 0; i < job->n_op; i++) {
        tandem_job_op *const op = &job->op[i];
        if (step < 0 || job->step[step] != op->step) job->step[++step] = op->step;
        op->step = step;
        if (op->dp_rank >= job->n_dp) job->n_dp = op->dp_rank + 1;
        if (op->stage >= job->n_stage) job->n_stage = op->stage + 1;
        if (op->tp_rank >= job->n_tp) job->n_tp = op->tp_rank + 1;
        if (op->chunk >= job->n_chunk) job->n_chunk = op->chunk + 1;
    }
    job->n_step = step + 1;
}

static int count_steps(const tandem_job_op *op, int n)
{
    int n_step = 1;
    for (int i = 1; i < n; i++) n_step += op[i].step != op[i - 1].step;
    return n_step;
}

tandem_status tandem_job_open(tandem_job **job, tandem_job_rows *rows, const char *source,
                              tandem_error *error)
{
    tandem_job *made = NULL;
    tandem_status status = TANDEM_OK;
    if (rows->n == 0) {
        status = tandem_error_set(error, TANDEM_MALFORMED, "'%.200s' holds no operators", source);
        goto out;
    }
    qsort(rows->op, (size_t)rows->n, sizeof *rows->op, by_step_worker_start);
    made = calloc(1, sizeof *made);
    if (made) made->step = malloc((size_t)count_steps(rows->op, rows->n) * sizeof *made->step);
    if (!made || !made->step) {
        status = tandem_error_set(error, TANDEM_NO_MEMORY, "no memory for the %d operators of '%.200s'",
                                  rows->n, source);
        goto out;
    }
    made->op = rows->op;
    made->n_op = rows->n;
    made->n_negative = rows->n_negative;
    rows->op = NULL;
    measure(made);
    *job = made;
    made = NULL;
out:
    tandem_job_close(made);
    free(rows->op);
    *rows = (tandem_job_rows){0};
    return status;
}

void tandem_job_close(tandem_job *job)
{
    if (!job) return;
    free(job->step);
    free(job->op);
    free(job);
}
