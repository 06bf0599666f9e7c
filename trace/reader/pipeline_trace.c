/* pipeline_trace.c: operator types of pipeline traces; sorts the operators and counts steps, stages and
 * ranks. */
#include "trace/reader/pipeline_trace.h"

#include "base/grow.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name, *shown;
    int is_comm;
} op_kinds[TANDEM_N_PIPELINE_OP_KIND] = {
#define ROW(id, trace, shown, comm) {trace, shown, comm},
    TANDEM_PIPELINE_OP_KIND_TABLE(ROW)
#undef ROW
};

const char *tandem_pipeline_op_kind_name(int kind) { return op_kinds[kind].name; }
const char *tandem_pipeline_op_report_row(int kind) { return op_kinds[kind].shown; }
int tandem_pipeline_op_kind_is_comm(int kind) { return op_kinds[kind].is_comm; }

int tandem_pipeline_op_kind_find(const char *name, size_t n)
{
    for (int kind = 0; kind < TANDEM_N_PIPELINE_OP_KIND; kind++)
        if (strlen(op_kinds[kind].name) == n && memcmp(op_kinds[kind].name, name, n) == 0) return kind;
    return -1;
}

tandem_status tandem_pipeline_ops_add(tandem_pipeline_ops *rows, const tandem_pipeline_op *op,
                                      const char *source, tandem_error *error)
{
    enum { MAX_PIPELINE_OPS = INT_MAX / 8 }; /* indices of edges and streams must fit an int */
    tandem_pipeline_op *const more =
        tandem_grow(rows->op, &rows->capacity, rows->n, sizeof *more, MAX_PIPELINE_OPS);
    if (!more) return tandem_no_memory(error, "for the %d operators of '%.200s' so far", rows->n, source);
    rows->op = more;
    rows->op[rows->n++] = *op;
    return TANDEM_OK;
}

static int sign_of_difference(int64_t a, int64_t b) { return (a > b) - (a < b); }

static int by_pipeline_order(const void *left, const void *right)
{
    const tandem_pipeline_op *const a = left, *const b = right;
    int order = sign_of_difference(a->step, b->step);
    if (!order) order = sign_of_difference(a->dp_rank, b->dp_rank);
    if (!order) order = sign_of_difference(a->stage, b->stage);
    if (!order) order = sign_of_difference(a->tp_rank, b->tp_rank);
    if (!order) order = sign_of_difference(a->start_ns, b->start_ns);
    if (!order) order = sign_of_difference(a->sequence, b->sequence);
    if (!order) order = sign_of_difference(a->kind, b->kind);
    return order ? order : sign_of_difference(a->chunk, b->chunk);
}

/* Replaces step numbers by indices. Each count is one more than the largest index. */
static void count_pipeline_dimensions(tandem_pipeline_trace *pipeline)
{
    int step = -1;
    for (int i = 0; i < pipeline->n_op; i++) {
        tandem_pipeline_op *const op = &pipeline->op[i];
        if (step < 0 || pipeline->step[step] != op->step) pipeline->step[++step] = op->step;
        op->step = step;
        if (op->dp_rank >= pipeline->n_dp) pipeline->n_dp = op->dp_rank + 1;
        if (op->stage >= pipeline->n_stage) pipeline->n_stage = op->stage + 1;
        if (op->tp_rank >= pipeline->n_tp) pipeline->n_tp = op->tp_rank + 1;
        if (op->chunk >= pipeline->n_chunk) pipeline->n_chunk = op->chunk + 1;
    }
    pipeline->n_step = step + 1;
}

static int count_pipeline_steps(const tandem_pipeline_op *op, int n)
{
    int n_step = 1;
    for (int i = 1; i < n; i++) n_step += op[i].step != op[i - 1].step;
    return n_step;
}

tandem_status tandem_pipeline_trace_open(tandem_pipeline_trace **pipeline, tandem_pipeline_ops *rows,
                                         const char *source, tandem_error *error)
{
    tandem_pipeline_trace *opened = NULL;
    tandem_status status = TANDEM_OK;
    if (rows->n == 0) {
        status = tandem_error_set(error, TANDEM_MALFORMED, "'%.200s' holds no operators", source);
        goto out;
    }
    qsort(rows->op, (size_t)rows->n, sizeof *rows->op, by_pipeline_order);
    opened = calloc(1, sizeof *opened);
    if (opened) opened->step = malloc((size_t)count_pipeline_steps(rows->op, rows->n) * sizeof *opened->step);
    if (!opened || !opened->step) {
        status = tandem_no_memory(error, "for the %d operators of '%.200s'", rows->n, source);
        goto out;
    }
    opened->op = rows->op;
    opened->n_op = rows->n;
    opened->n_negative = rows->n_negative;
    rows->op = NULL;
    count_pipeline_dimensions(opened);
    *pipeline = opened;
    opened = NULL;
out:
    tandem_pipeline_trace_close(opened);
    free(rows->op);
    *rows = (tandem_pipeline_ops){0};
    return status;
}

void tandem_pipeline_trace_close(tandem_pipeline_trace *pipeline)
{
    if (!pipeline) return;
    free(pipeline->step);
    free(pipeline->op);
    free(pipeline);
}
