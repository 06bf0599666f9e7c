/* collective.c: the times of all-reduces, from the measured curve where there is one, else from the links. */
#include <math.h>
#include <stdlib.h>

#include "replayer/collective.h"
#include "replayer/internal.h"
#include "tandem/advanced/predictor.h"

static double curve_point_ns(const tandem_collective_point *point)
{
    return (double)tandem_cost_mean_ns(&point->cost);
}

/* Bandwidth falls where caches end, so small points say little about sizes beyond the large ones. */
enum { UPPER_FRACTION = 16, MIN_POINTS = 3 };

tandem_status tandem_collective_fit(tandem_collective_line *line, const tandem_collective_point *point, int n,
                                    tandem_error *error)
{
    int first = n;
    while (first > 0 &&
           (n - first < MIN_POINTS || point[first - 1].bytes >= point[n - 1].bytes / UPPER_FRACTION))
        first--;
    const size_t rows = (size_t)(n - first);
    double coefficient[2], spread = 0, *x = malloc(rows * 2 * sizeof *x), *y = malloc(rows * sizeof *y);
    tandem_status status = TANDEM_OK;
    if (!x || !y) status = tandem_no_memory(error, "for the %d points of a curve", n);
    for (size_t i = 0; i < rows && status == TANDEM_OK; i++) {
        const tandem_collective_point *p = &point[(size_t)first + i];
        x[2 * i] = rows > 1 || p->bytes == 0; /* a single point's time is proportional to its bytes */
        x[2 * i + 1] = (double)p->bytes;
        y[i] = curve_point_ns(p) > 1 ? curve_point_ns(p) : 1;
    }
    if (status == TANDEM_OK) status = tandem_robust_fit(coefficient, &spread, x, y, rows, 2, error);
    if (status == TANDEM_OK) *line = (tandem_collective_line){coefficient[0], coefficient[1], spread};
    free(y);
    free(x);
    return status;
}

double tandem_collective_curve_ns(const tandem_collective_point *point, int n,
                                  const tandem_collective_line *line, uint64_t bytes)
{
    const tandem_collective_point *last = &point[n - 1];
    if (bytes <= point[0].bytes) return curve_point_ns(&point[0]);
    if (bytes >= last->bytes) {
        const double extrapolated_ns = line->latency_ns + line->ns_per_byte * (double)bytes;
        return bytes > last->bytes && extrapolated_ns > curve_point_ns(last) ? extrapolated_ns
                                                                             : curve_point_ns(last);
    }
    int right = 1;
    while (point[right].bytes < bytes) right++;
    const tandem_collective_point *a = &point[right - 1], *b = &point[right];
    const double slope = (curve_point_ns(b) - curve_point_ns(a)) / (double)(b->bytes - a->bytes);
    return curve_point_ns(a) + slope * (double)(bytes - a->bytes);
}

/* In f32, as curves know it, for any dtype on the wire. */
static uint64_t bucket_size_bytes(const tandem_bucket *bucket)
{
    return (uint64_t)bucket->elements * sizeof(float);
}

/* The loaded times come from the idle curve where there is no loaded one. */
static tandem_status times_from_curves(const tandem_allreduce_times *times, const tandem_bucket *bucket,
                                       int n_bucket, tandem_collective_point *const point[2], const int n[2],
                                       tandem_error *error)
{
    for (int loaded = 0; loaded < 2; loaded++) {
        const int k = loaded && n[1] > 0;
        tandem_collective_line line;
        const tandem_status status = tandem_collective_fit(&line, point[k], n[k], error);
        if (status != TANDEM_OK) return status;
        for (int b = 0; b < n_bucket; b++)
            times->ns[loaded][b] =
                tandem_collective_curve_ns(point[k], n[k], &line, bucket_size_bytes(&bucket[b]));
        if (loaded) continue;
        *times->allreduce_source =
            (tandem_allreduce_source){.n_point = n[0],
                                      .latency_ns = line.latency_ns,
                                      .bytes_per_s = line.ns_per_byte > 0 ? 1e9 / line.ns_per_byte : 0,
                                      .spread = line.spread};
        for (int b = 0; b < n_bucket; b++)
            times->allreduce_source->n_extrapolated +=
                bucket_size_bytes(&bucket[b]) > point[0][n[0] - 1].bytes;
    }
    return TANDEM_OK;
}

/* What casts of narrow buckets take on a device, whose ranks narrow each once and widen it once; `slowest`
 * has the largest of the devices before. */
static tandem_status find_bucket_casts(double *slowest, const tandem_cluster *cluster, int c,
                                       const tandem_bucket *bucket, int n_bucket, tandem_store *store,
                                       int from_description, tandem_error *error)
{
    const tandem_device *device = &cluster->classes[c].device;
    tandem_latency *latency = NULL;
    tandem_status status = (from_description ? tandem_latency_open_described
                                             : tandem_latency_open)(&latency, device, "", store, error);
    for (int b = 0; b < n_bucket && status == TANDEM_OK; b++) {
        tandem_cost_key key = {.kind = TANDEM_COST_CAST,
                               .precision = "",
                               .from = TANDEM_F32,
                               .to = cluster->wire,
                               .elements = bucket[b].elements};
        const int64_t narrow_ns = tandem_latency_ns(latency, &key, NULL);
        key.from = cluster->wire;
        key.to = TANDEM_F32;
        const int64_t widen_ns = tandem_latency_ns(latency, &key, NULL);
        if (narrow_ns < 0 || widen_ns < 0)
            status = TANDEM_MISSING;
        else if ((double)(narrow_ns + widen_ns) > slowest[b])
            slowest[b] = (double)(narrow_ns + widen_ns);
    }
    if (status == TANDEM_OK)
        status = tandem_calibration_check_others(tandem_latency_calibration(latency), error);
    tandem_latency_close(latency);
    if (status == TANDEM_MISSING)
        return tandem_error_set(
            error, TANDEM_MISSING,
            "nothing is known of how long %s casts gradients to %s; profile these devices "
            "together with `tandem profile --wire %s`",
            device->name, tandem_dtype_name(cluster->wire), tandem_dtype_name(cluster->wire));
    return status;
}

static tandem_status add_bucket_casts(const tandem_allreduce_times *times, const tandem_cluster *cluster,
                                      const tandem_bucket *bucket, int n_bucket, tandem_store *store,
                                      tandem_error *error)
{
    if (cluster->wire == TANDEM_F32) return TANDEM_OK;
    double *slowest = calloc((size_t)n_bucket + 1, sizeof *slowest);
    tandem_status status =
        slowest ? TANDEM_OK : tandem_no_memory(error, "for the casts of %d buckets", n_bucket);
    for (int c = 0; c < cluster->n_class && status == TANDEM_OK; c++)
        status =
            find_bucket_casts(slowest, cluster, c, bucket, n_bucket, store, times->from_description, error);
    for (int b = 0; b < n_bucket && status == TANDEM_OK; b++)
        times->ns[0][b] = times->ns[1][b] = times->ns[0][b] + slowest[b];
    free(slowest);
    return status;
}

static tandem_status times_from_links(const tandem_allreduce_times *times, const tandem_bucket *bucket,
                                      int n_bucket, const tandem_cluster *cluster,
                                      tandem_collective_algorithm algorithm, const char *group,
                                      tandem_error *error)
{
    tandem_topology *topology = NULL;
    tandem_error missing_link = {0};
    const tandem_status status = tandem_topology_open(&topology, cluster, algorithm, &missing_link);
    if (status == TANDEM_MISSING)
        return tandem_error_set(error, TANDEM_MISSING,
                                "no all-reduce among %s has been measured, and %s; or profile these devices "
                                "together with `tandem profile%s`",
                                group, missing_link.text, cluster->wire == TANDEM_F32 ? "" : " --wire bf16");
    if (status != TANDEM_OK) return tandem_error_set(error, status, "%s", missing_link.text);
    for (int b = 0; b < n_bucket; b++) {
        tandem_collective_algorithm used;
        times->ns[0][b] = times->ns[1][b] = tandem_collective_ns(
            topology, TANDEM_ALL_REDUCE, tandem_cluster_wire_bytes(cluster, bucket[b].elements), &used);
        times->allreduce_source->n_by_algorithm[used]++;
        times->algorithm[b] = (signed char)used;
    }
    tandem_topology_close(topology);
    return TANDEM_OK;
}

static tandem_status half_from_curve(double *ns, const char *name, const char *group,
                                     const tandem_bucket *bucket, int n_bucket, tandem_store *store,
                                     tandem_error *error)
{
    tandem_collective_point *point = NULL;
    tandem_collective_line line;
    int n = 0;
    for (int b = 0; b < n_bucket; b++) ns[b] = NAN;
    tandem_status status =
        store ? tandem_store_load_collective(&point, &n, store, group, name, 0, error) : TANDEM_OK;
    if (status == TANDEM_OK && n > 0) status = tandem_collective_fit(&line, point, n, error);
    for (int b = 0; b < n_bucket && n > 0 && status == TANDEM_OK; b++)
        ns[b] = tandem_collective_curve_ns(point, n, &line, bucket_size_bytes(&bucket[b]));
    free(point);
    return status;
}

tandem_status tandem_collective_halves(double *scatter_ns, double *gather_ns, const tandem_cluster *cluster,
                                       const tandem_bucket *bucket, int n_bucket, tandem_store *store,
                                       tandem_error *error)
{
    char group[TANDEM_GROUP_KEY_TEXT];
    tandem_cluster_group_key(group, sizeof group, cluster);
    const tandem_status status = half_from_curve(scatter_ns, tandem_task_kind_name(TANDEM_TASK_SCATTER),
                                                 group, bucket, n_bucket, store, error);
    return status == TANDEM_OK ? half_from_curve(gather_ns, tandem_task_kind_name(TANDEM_TASK_GATHER), group,
                                                 bucket, n_bucket, store, error)
                               : status;
}

tandem_status tandem_collective_times(const tandem_allreduce_times *times, const tandem_cluster *cluster,
                                      const tandem_bucket *bucket, int n_bucket, tandem_store *store,
                                      tandem_collective_algorithm algorithm, tandem_error *error)
{
    char group[TANDEM_GROUP_KEY_TEXT];
    tandem_collective_point *point[2] = {NULL, NULL};
    int n[2] = {0, 0};
    tandem_status status = TANDEM_OK;
    *times->allreduce_source = (tandem_allreduce_source){0};
    for (int b = 0; b < n_bucket; b++) {
        times->ns[0][b] = times->ns[1][b] = 0;
        times->algorithm[b] = -1;
    }
    if (tandem_cluster_n_rank(cluster) == 1) return TANDEM_OK;
    tandem_cluster_group_key(group, sizeof group, cluster);
    for (int loaded = 0; loaded < 2 && status == TANDEM_OK && store; loaded++)
        status = tandem_store_load_collective(&point[loaded], &n[loaded], store, group, "all-reduce", loaded,
                                              error);
    if (status == TANDEM_OK)
        status = n[0] > 0 ? times_from_curves(times, bucket, n_bucket, point, n, error)
                          : times_from_links(times, bucket, n_bucket, cluster, algorithm, group, error);
    if (status == TANDEM_OK && n[0] == 0)
        status = add_bucket_casts(times, cluster, bucket, n_bucket, store, error);
    free(point[1]);
    free(point[0]);
    return status;
}
