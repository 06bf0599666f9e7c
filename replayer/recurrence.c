/* recurrence.c: an iteration without contention: every class keeps its rate, and so does the network.
 *
 * With ready(c, b) and wait(c, b) the list times of the synchronization points of class c, backlog(c) what
 * remains of its previous iteration, and reduce(b) the time of bucket b's all-reduce:
 *     end(b)  = max(end(b − 1), max_c backlog(c) + ready(c, b)) + reduce(b)
 *     late(c) = max(backlog(c), max_b end(b) − wait(c, b))
 * late(c) is how far class c lags its list after the last wait. It waited for late − backlog. Part
 * of that was before the all-reduce that it waited for began; during the rest, a bucket was reduced.
 *
 * Buckets are taken by groups (slack.c). A class waits for a bucket whose all-reduce has not begun only where
 * the network is idle before that bucket. The maxima of a group suffice where the network is idle before none
 * of its buckets, or where all of them are through before the class waits for one. Other groups are gone
 * through bucket by bucket. */
#include <string.h>

#include "replayer/internal.h"

static inline double later_ns(double a, double b) { return a > b ? a : b; }

/* How far a class has come on its way through its waits. */
typedef struct wait_progress {
    double now_ns; /* time minus list time since the first wait */
    double waiting_ns;
} wait_progress;

/* Finds when the all-reduces of a group start and end, in ns since the iteration began. */
static void time_group_allreduces(tandem_replayer *replayer, const tandem_iteration *iteration, int group,
                                  int end)
{
    const double *sum_ns = replayer->allreduce_sum_ns;
    double comm_idle_ns = replayer->comm_idle_ns[group];
    for (int b = group * TANDEM_BUCKETS_PER_GROUP; b < end; b++) {
        for (int c = 0; c < replayer->n_class; c++)
            comm_idle_ns =
                later_ns(comm_idle_ns, iteration->backlog_ns[c] +
                                           replayer->classes[c].ready_ns[TANDEM_RATE_USUAL][b] - sum_ns[b]);
        replayer->allreduce_start_ns[b] = comm_idle_ns + sum_ns[b];
        replayer->allreduce_end_ns[b] = comm_idle_ns + sum_ns[b + 1];
    }
    replayer->is_group_timed[group] = 1;
}

static void pass_group_waits(wait_progress *at, tandem_replayer *replayer, const tandem_iteration *iteration,
                             const double *wait_ns, int group)
{
    const int first = group * TANDEM_BUCKETS_PER_GROUP, next = first + TANDEM_BUCKETS_PER_GROUP;
    const int end = next < replayer->n_bucket ? next : replayer->n_bucket;
    if (!replayer->is_group_timed[group]) time_group_allreduces(replayer, iteration, group, end);
    for (int b = first; b < end; b++) {
        at->waiting_ns += later_ns(replayer->allreduce_start_ns[b] - wait_ns[b] - at->now_ns, 0);
        at->now_ns = later_ns(at->now_ns, replayer->allreduce_end_ns[b] - wait_ns[b]);
    }
}

static void run_class_iteration(tandem_iteration *iteration, tandem_replayer *replayer, int c, int n_group)
{
    const tandem_sim_class *class = &replayer->classes[c];
    const double *comm_idle_ns = replayer->comm_idle_ns,
                 begin_ns = iteration->backlog_ns[c] + class->backward_ns[TANDEM_RATE_USUAL];
    wait_progress at = {.now_ns = begin_ns};
    for (int group = 0; group < n_group; group++) {
        const double group_end_ns = comm_idle_ns[group + 1] + class->lag_ns[group];
        if (comm_idle_ns[group + 1] == comm_idle_ns[group])
            at.now_ns = later_ns(at.now_ns, group_end_ns);
        else if (group_end_ns > at.now_ns)
            pass_group_waits(&at, replayer, iteration, class->wait_ns[TANDEM_RATE_USUAL], group);
    }
    iteration->backward_end_ns[c] = begin_ns;
    iteration->waiting_ns[c] = at.waiting_ns;
    iteration->exposed_ns[c] = at.now_ns - begin_ns - at.waiting_ns;
}

/* Finds how long the network has been idle after the first k groups. */
static void find_comm_idle(tandem_replayer *replayer, const tandem_iteration *iteration, int n_group)
{
    double *comm_idle_ns = replayer->comm_idle_ns;
    for (int k = 0; k <= n_group; k++) comm_idle_ns[k] = 0;
    for (int c = 0; c < replayer->n_class; c++) {
        const double *slack_ns = replayer->classes[c].slack_ns, backlog_ns = iteration->backlog_ns[c];
        for (int k = 1; k <= n_group; k++)
            comm_idle_ns[k] = later_ns(comm_idle_ns[k], slack_ns[k] + backlog_ns);
    }
    memset(replayer->is_group_timed, 0, (size_t)n_group);
}

void tandem_iteration_by_recurrence(tandem_iteration *iteration, tandem_replayer *replayer)
{
    const int n_bucket = replayer->n_bucket,
              n_group = (n_bucket + TANDEM_BUCKETS_PER_GROUP - 1) / TANDEM_BUCKETS_PER_GROUP;
    tandem_slack_update(replayer);
    find_comm_idle(replayer, iteration, n_group);
    for (int c = 0; c < replayer->n_class; c++) run_class_iteration(iteration, replayer, c, n_group);
    iteration->step_ns = replayer->comm_idle_ns[n_group] + replayer->allreduce_sum_ns[n_bucket];
    for (int c = 0; c < replayer->n_class; c++) /* only now: every class used the others' */
        iteration->backlog_ns[c] =
            iteration->backward_end_ns[c] + iteration->exposed_ns[c] + iteration->waiting_ns[c] +
            replayer->classes[c].wait_ns[TANDEM_RATE_USUAL][n_bucket - 1] - iteration->step_ns;
}
