/* recurrence.c: a lap where nothing interferes: every class keeps its pace, the wire its.
 *
 * With hand(c, b) and wait(c, b) the list times of the stops of class c, rest(c) how long it is still in the
 * former lap, and wire(b) the time of bucket b's all-reduce:
 *     end(b)  = max(end(b − 1), max_c rest(c) + hand(c, b)) + wire(b)
 *     late(c) = max(rest(c), max_b end(b) − wait(c, b))
 * late(c) is what the class is behind its list after the last wait: late − rest it stood still, and of that
 * no bucket was on the wire from when it came to a wait until that bucket's all-reduce began.
 *
 * Buckets are taken by groups (lead.c). A class waits with no bucket on the wire only for one that the wire
 * stands idle before: where it does so before none of a group's, and where the class comes to no wait before
 * they are through, the maxima of the group say it all. Elsewhere it is looked at bucket by bucket. */
#include <string.h>

#include "replayer/stages.h"

static inline double larger(double a, double b) { return a > b ? a : b; }

/* The way of a class past its waits. */
typedef struct course {
    double now_ns; /* time less the list's since the first wait */
    double waiting_ns;
} course;

/* When the buckets of a group go on the wire and come off it, ns since the lap began. */
static void run_wire(tandem_replayer *replayer, const tandem_lap *lap, int group, int end)
{
    const double *sum_ns = replayer->wire_sum_ns;
    double late_ns = replayer->late_ns[group];
    for (int b = group * TANDEM_GROUP; b < end; b++) {
        for (int c = 0; c < replayer->n_class; c++)
            late_ns =
                larger(late_ns, lap->rest_ns[c] + replayer->member[c].hand_ns[TANDEM_USUAL][b] - sum_ns[b]);
        replayer->wire_start_ns[b] = late_ns + sum_ns[b];
        replayer->wire_end_ns[b] = late_ns + sum_ns[b + 1];
    }
    replayer->is_run[group] = 1;
}

static void run_buckets(course *at, tandem_replayer *replayer, const tandem_lap *lap, const double *wait_ns,
                        int group)
{
    const int first = group * TANDEM_GROUP, next = first + TANDEM_GROUP;
    const int end = next < replayer->n_bucket ? next : replayer->n_bucket;
    if (!replayer->is_run[group]) run_wire(replayer, lap, group, end);
    for (int b = first; b < end; b++) {
        at->waiting_ns += larger(replayer->wire_start_ns[b] - wait_ns[b] - at->now_ns, 0);
        at->now_ns = larger(at->now_ns, replayer->wire_end_ns[b] - wait_ns[b]);
    }
}

static void run_class(tandem_lap *lap, tandem_replayer *replayer, int c, int n_group)
{
    const tandem_replay_member *member = &replayer->member[c];
    const double *late_ns = replayer->late_ns, begin_ns = lap->rest_ns[c] + member->backward_ns[TANDEM_USUAL];
    course at = {.now_ns = begin_ns};
    for (int group = 0; group < n_group; group++) {
        const double through_ns = late_ns[group + 1] + member->behind_ns[group];
        if (late_ns[group + 1] == late_ns[group])
            at.now_ns = larger(at.now_ns, through_ns);
        else if (through_ns > at.now_ns)
            run_buckets(&at, replayer, lap, member->wait_ns[TANDEM_USUAL], group);
    }
    lap->backward_end_ns[c] = begin_ns;
    lap->waiting_ns[c] = at.waiting_ns;
    lap->exposed_ns[c] = at.now_ns - begin_ns - at.waiting_ns;
}

/* How late the wire is, by the time that it has stood idle, behind the first k groups. */
static void find_late(tandem_replayer *replayer, const tandem_lap *lap, int n_group)
{
    double *late_ns = replayer->late_ns;
    for (int k = 0; k <= n_group; k++) late_ns[k] = 0;
    for (int c = 0; c < replayer->n_class; c++) {
        const double *lead_ns = replayer->member[c].lead_ns, rest_ns = lap->rest_ns[c];
        for (int k = 1; k <= n_group; k++) late_ns[k] = larger(late_ns[k], lead_ns[k] + rest_ns);
    }
    memset(replayer->is_run, 0, (size_t)n_group);
}

void tandem_lap_by_recurrence(tandem_lap *lap, tandem_replayer *replayer)
{
    const int n_bucket = replayer->n_bucket, n_group = (n_bucket + TANDEM_GROUP - 1) / TANDEM_GROUP;
    tandem_leads_settle(replayer);
    find_late(replayer, lap, n_group);
    for (int c = 0; c < replayer->n_class; c++) run_class(lap, replayer, c, n_group);
    lap->step_ns = replayer->late_ns[n_group] + replayer->wire_sum_ns[n_bucket];
    for (int c = 0; c < replayer->n_class; c++) /* behind all classes, who look at each other's */
        lap->rest_ns[c] = lap->backward_end_ns[c] + lap->exposed_ns[c] + lap->waiting_ns[c] +
                          replayer->member[c].wait_ns[TANDEM_USUAL][n_bucket - 1] - lap->step_ns;
}
