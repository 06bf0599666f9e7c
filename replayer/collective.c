/* collective.c: what an all-reduce costs: from the measured curve where there is one, else from the link. */
#include <stdlib.h>

#include "replayer/stages.h"

static double point_ns(const tandem_collective_point *point)
{
    return (double)tandem_cost_mean_ns(&point->cost);
}

double tandem_collective_curve_ns(const tandem_collective_point *point, int n, uint64_t bytes)
{
    if (bytes <= point[0].bytes) return point_ns(&point[0]);
    if (n == 1)
        return point[0].bytes ? point_ns(&point[0]) * (double)bytes / (double)point[0].bytes : point_ns(&point[0]);
    int right = 1;
    while (right < n - 1 && point[right].bytes < bytes) right++;
    const tandem_collective_point *a = &point[right - 1], *b = &point[right];
    double slope = (point_ns(b) - point_ns(a)) / (double)(b->bytes - a->bytes);
    if (bytes > b->bytes && slope < 0) slope = 0;
    return bytes > b->bytes ? point_ns(b) + slope * (double)(bytes - b->bytes)
                            : point_ns(a) + slope * (double)(bytes - a->bytes);
}

double tandem_collective_ring_ns(int n_rank, uint64_t bytes, double link_bytes_per_s, int64_t link_latency_ns)
{
    const double n_message = 2.0 * (n_rank - 1);
    return n_message * ((double)link_latency_ns + (double)bytes / n_rank / link_bytes_per_s * 1e9);
}

static uint64_t bytes_of(const tandem_bucket *bucket) { return (uint64_t)bucket->elements * sizeof(float); }

static void from_curves(double *idle_ns, double *loaded_ns, const tandem_bucket *bucket, int n_bucket,
                        tandem_collective_point *const point[2], const int n[2])
{
    const int loaded = n[1] > 0;
    for (int b = 0; b < n_bucket; b++) {
        idle_ns[b] = tandem_collective_curve_ns(point[0], n[0], bytes_of(&bucket[b]));
        loaded_ns[b] = tandem_collective_curve_ns(point[loaded], n[loaded], bytes_of(&bucket[b]));
    }
}

static tandem_status from_link(double *idle_ns, double *loaded_ns, const tandem_bucket *bucket, int n_bucket,
                               const tandem_cluster *cluster, const char *group, tandem_error *error)
{
    if (cluster->link_bytes_per_s <= 0) {
        char text[256];
        tandem_cluster_print(text, sizeof text, cluster);
        return tandem_error_set(
            error, TANDEM_MISSING,
            "no all-reduce among %s has been measured, and the cluster '%s' names no link; profile these "
            "devices together with `tandem profile`, or add net=BANDWIDTH,LATENCY, as in net=10Gbit/s,20us",
            group, text);
    }
    for (int b = 0; b < n_bucket; b++)
        idle_ns[b] = loaded_ns[b] =
            tandem_collective_ring_ns(tandem_cluster_n_rank(cluster), bytes_of(&bucket[b]),
                                      cluster->link_bytes_per_s, cluster->link_latency_ns);
    return TANDEM_OK;
}

tandem_status tandem_collective_times(double *idle_ns, double *loaded_ns, int *measured,
                                      const tandem_cluster *cluster, const tandem_bucket *bucket,
                                      int n_bucket, tandem_store *store, tandem_error *error)
{
    char group[TANDEM_MAX_CLASS * (TANDEM_DEVICE_NAME + 12)];
    tandem_collective_point *point[2] = {NULL, NULL};
    int n[2] = {0, 0};
    tandem_status status = TANDEM_OK;
    *measured = 0;
    if (tandem_cluster_n_rank(cluster) == 1) {
        for (int b = 0; b < n_bucket; b++) idle_ns[b] = loaded_ns[b] = 0;
        return TANDEM_OK;
    }
    tandem_cluster_group(group, sizeof group, cluster);
    for (int loaded = 0; loaded < 2 && status == TANDEM_OK; loaded++)
        status = tandem_store_load_collective(&point[loaded], &n[loaded], store, group, "all-reduce", loaded, error);
    if (status == TANDEM_OK) {
        *measured = n[0] > 0;
        if (*measured)
            from_curves(idle_ns, loaded_ns, bucket, n_bucket, point, n);
        else
            status = from_link(idle_ns, loaded_ns, bucket, n_bucket, cluster, group, error);
    }
    free(point[1]);
    free(point[0]);
    return status;
}
