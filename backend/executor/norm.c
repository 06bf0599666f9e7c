/* norm.c: the sum of squares of all gradients. Its order does not depend on which rank keeps which shard:
 * squares of 16 numbers, a grain, are added first; then the grains of 4,096 numbers, a span; then the
 * spans. With shards a rank adds up the spans that lie in its shards; of a span that has several
 * owners each adds up its grains alone. Ranks gather these parts, and all add them in the same order. */
#include <stdlib.h>

#include "backend/executor/executor.h"

enum { GRAIN = 16, SPAN = 256 /* grains */ };

/* Reads the grains of a bucket in ascending order. */
typedef struct grain_reader {
    const tandem_executor *executor;
    const tandem_bucket *bucket;
    int k; /* of the parameters in the bucket, the one that was read last */
} grain_reader;

static double sum_of_squares(const float *x, int64_t n)
{
    double sum[8] = {0};
    for (int64_t i = 0; i < n; i++) sum[i & 7] += (double)x[i] * (double)x[i];
    return ((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7]));
}

/* Constants for the compiler. */
static double sum_of_grain_squares(const float *x, int64_t n)
{
    return n == GRAIN ? sum_of_squares(x, GRAIN) : sum_of_squares(x, n);
}

/* What lies between parameters is no gradient; the last element may be the loss. */
static double read_grain(grain_reader *r, int64_t grain)
{
    const tandem_step *step = r->executor->step;
    const int64_t at = r->bucket->start + grain * GRAIN;
    for (; r->k < r->bucket->n_parameter; r->k++) {
        const int p = step->parameter_order[r->bucket->first_parameter_position + r->k];
        const int64_t left = step->parameter_start[p] + step->graph->parameter[p].elements - at;
        if (left > 0)
            return sum_of_grain_squares(r->executor->host_gradient + at, left < GRAIN ? left : GRAIN);
    }
    return 0;
}

static int64_t count_grains(const tandem_bucket *bucket) { return bucket->elements / GRAIN; }

static int64_t end_of_span(const tandem_bucket *bucket, int64_t grain)
{
    const int64_t end = (grain / SPAN + 1) * SPAN, n = count_grains(bucket);
    return end < n ? end : n;
}

static double add_all_squares(const tandem_executor *executor)
{
    double sum = 0;
    for (int b = 0; b < executor->step->n_bucket; b++) {
        const tandem_bucket *bucket = &executor->step->bucket[b];
        grain_reader r = {executor, bucket, 0};
        for (int64_t grain = 0, end; grain < count_grains(bucket); grain = end) {
            double span = 0;
            end = end_of_span(bucket, grain);
            for (int64_t g = grain; g < end; g++) span += read_grain(&r, g);
            sum += span;
        }
    }
    return sum;
}

/* --- With shards ---------------------------------------------------------------------------------------- */

static const size_t *borders_of(const tandem_executor *executor, int b)
{
    return executor->border + (size_t)b * (size_t)(executor->worker->n_rank + 1);
}

static int owner_of_grain(const size_t *border, int64_t grain)
{
    int rank = 0;
    while (border[rank + 1] <= (size_t)(grain * GRAIN)) rank++;
    return rank;
}

/* Parts by rank, in the order of the buckets. part NULL: they are counted only. */
typedef struct squares_parts {
    double *part; /* [n_rank][most] */
    int64_t *n;   /* [n_rank] parts so far */
    int64_t most; /* of a rank */
    double *span; /* what was read of this span; NULL: parts are written */
} squares_parts;

static void take_part(squares_parts *p, int owner, double value)
{
    if (p->span)
        *p->span += p->part[owner * p->most + p->n[owner]];
    else if (p->part)
        p->part[owner * p->most + p->n[owner]] = value;
    p->n[owner]++;
}

/* Counts, writes or reads the parts of a span. The grains of other ranks are not read. */
static void pass_span(const tandem_executor *executor, squares_parts *p, grain_reader *r,
                      const size_t *border, int64_t grain, int64_t end)
{
    const int rank = executor->worker->rank, first = owner_of_grain(border, grain),
              is_written = p->part && !p->span;
    double whole = 0;
    if (first == owner_of_grain(border, end - 1)) {
        for (int64_t g = grain; g < end && is_written && first == rank; g++) whole += read_grain(r, g);
        take_part(p, first, whole);
        return;
    }
    for (int64_t g = grain; g < end; g++) {
        const int owner = owner_of_grain(border, g);
        take_part(p, owner, is_written && owner == rank ? read_grain(r, g) : 0);
    }
}

static double pass_all_spans(const tandem_executor *executor, squares_parts *p, int is_read)
{
    double sum = 0;
    for (int r = 0; r < executor->worker->n_rank; r++) p->n[r] = 0;
    for (int b = 0; b < executor->step->n_bucket; b++) {
        const tandem_bucket *bucket = &executor->step->bucket[b];
        grain_reader r = {executor, bucket, 0};
        for (int64_t grain = 0, end; grain < count_grains(bucket); grain = end) {
            double span = 0;
            p->span = is_read ? &span : NULL;
            end = end_of_span(bucket, grain);
            pass_span(executor, p, &r, borders_of(executor, b), grain, end);
            sum += span;
        }
    }
    return sum;
}

tandem_status tandem_executor_sum_squares(double *sum, const tandem_executor *executor, tandem_error *error)
{
    const int n_rank = executor->worker->n_rank, rank = executor->worker->rank;
    if (!executor->border) {
        *sum = add_all_squares(executor);
        return TANDEM_OK;
    }
    squares_parts p = {.n = calloc((size_t)n_rank, sizeof *p.n)};
    if (!p.n) return tandem_executor_no_memory(executor, error);
    (void)pass_all_spans(executor, &p, 0);
    for (int r = 0; r < n_rank; r++) p.most = p.n[r] > p.most ? p.n[r] : p.most;
    const size_t bytes = (size_t)(p.most > 0 ? p.most : 1) * sizeof *p.part;
    p.part = calloc((size_t)n_rank, bytes);
    tandem_status status = p.part ? TANDEM_OK : tandem_executor_no_memory(executor, error);
    if (status == TANDEM_OK) {
        (void)pass_all_spans(executor, &p, 0);
        status = tandem_worker_gather(executor->worker, p.part + rank * p.most, p.part, bytes, error);
    }
    if (status == TANDEM_OK) *sum = pass_all_spans(executor, &p, 1);
    free(p.part);
    free(p.n);
    return status;
}
