/* slack.c: slack and lag of a class's synchronization points by groups of TANDEM_BUCKETS_PER_GROUP buckets,
 * so that an iteration need not look at every bucket.
 *
 * With ready(c, b) and wait(c, b) the list times of the synchronization points of class c, and sum(b) the
 * time of all all-reduces before b:
 *     slack(c, b) = ready(c, b) − speed(c)·sum(b)  idle time of the network before bucket b, if c began at 0
 *     lag(c, b)   = sum(b + 1) − wait(c, b)        how long after c's wait bucket b is through, on a network
 *                 that
 *                                                  is never idle
 * speed: of compute while a bucket is reduced. The network's idle time before a bucket is the largest slack
 * so far. */
#include <math.h>

#include "replayer/internal.h"

static inline double larger_slack(double a, double b) { return a > b ? a : b; }

static void find_slack(const tandem_replayer *replayer, tandem_sim_class *class)
{
    const double *ready_ns = class->ready_ns[class->n_rate - 1], *sum_ns = replayer->loaded_sum_ns;
    const double speed = 1 / class->comm_slowdown;
    double *slack_ns = class->slack_ns, max = -INFINITY;
    int b = 0;
    *slack_ns++ = max;
    for (; b + TANDEM_BUCKETS_PER_GROUP <= replayer->n_bucket; b += TANDEM_BUCKETS_PER_GROUP) {
        double own = ready_ns[b] - speed * sum_ns[b];
        for (int k = b + 1; k < b + TANDEM_BUCKETS_PER_GROUP; k++)
            own = larger_slack(own, ready_ns[k] - speed * sum_ns[k]);
        *slack_ns++ = max = larger_slack(max, own);
    }
    for (; b < replayer->n_bucket; b++) *slack_ns = max = larger_slack(max, ready_ns[b] - speed * sum_ns[b]);
    class->is_slack_dirty = 0;
}

static void find_lag(const tandem_replayer *replayer, tandem_sim_class *class)
{
    const double *wait_ns = class->wait_ns[TANDEM_RATE_USUAL], *sum_ns = replayer->allreduce_sum_ns;
    for (int b = 0; b < replayer->n_bucket; b++) {
        double *const lag_ns = &class->lag_ns[b / TANDEM_BUCKETS_PER_GROUP];
        const double own = sum_ns[b + 1] - wait_ns[b];
        *lag_ns = b % TANDEM_BUCKETS_PER_GROUP == 0 ? own : larger_slack(*lag_ns, own);
    }
    class->is_lag_dirty = 0;
}

void tandem_slack_update(tandem_replayer *replayer)
{
    for (int c = 0; c < replayer->n_class; c++) {
        tandem_sim_class *class = &replayer->classes[c];
        if (class->is_slack_dirty) find_slack(replayer, class);
        if (class->is_lag_dirty && !replayer->has_contention) find_lag(replayer, class);
    }
}
