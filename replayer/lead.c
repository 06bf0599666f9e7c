/* lead.c: what the stops of a class mean for the wire, by groups of TANDEM_GROUP buckets, so that a lap need
 * not look at every bucket.
 *
 * With hand(c, b) and wait(c, b) the list times of the stops of class c, and sum(b) the wire's time for all
 * buckets before b:
 *     lead(c, b)   = hand(c, b) − speed(c)·sum(b)  how long the wire stands idle before bucket b is ready,
 *                  but for where c began
 *     behind(c, b) = sum(b + 1) − wait(c, b)       how far behind c's wait bucket b is through, on a wire
 *     that is never idle
 * speed: of compute while a bucket is on the wire. How long the wire has stood idle before a bucket is the
 * largest lead so far. */
#include <math.h>

#include "replayer/stages.h"

static inline double larger(double a, double b) { return a > b ? a : b; }

static void find_leads(const tandem_replayer *replayer, tandem_replay_member *member)
{
    const double *hand_ns = member->hand_ns[member->n_pace - 1], *sum_ns = replayer->loaded_sum_ns;
    const double speed = 1 / member->slowed;
    double *lead_ns = member->lead_ns, most = -INFINITY;
    int b = 0;
    *lead_ns++ = most;
    for (; b + TANDEM_GROUP <= replayer->n_bucket; b += TANDEM_GROUP) {
        double own = hand_ns[b] - speed * sum_ns[b];
        for (int k = b + 1; k < b + TANDEM_GROUP; k++) own = larger(own, hand_ns[k] - speed * sum_ns[k]);
        *lead_ns++ = most = larger(most, own);
    }
    for (; b < replayer->n_bucket; b++) *lead_ns = most = larger(most, hand_ns[b] - speed * sum_ns[b]);
    member->lead_changed = 0;
}

static void find_behind(const tandem_replayer *replayer, tandem_replay_member *member)
{
    const double *wait_ns = member->wait_ns[TANDEM_USUAL], *sum_ns = replayer->wire_sum_ns;
    for (int b = 0; b < replayer->n_bucket; b++) {
        double *const behind_ns = &member->behind_ns[b / TANDEM_GROUP];
        const double own = sum_ns[b + 1] - wait_ns[b];
        *behind_ns = b % TANDEM_GROUP == 0 ? own : larger(*behind_ns, own);
    }
    member->behind_changed = 0;
}

void tandem_leads_settle(tandem_replayer *replayer)
{
    for (int c = 0; c < replayer->n_class; c++) {
        tandem_replay_member *member = &replayer->member[c];
        if (member->lead_changed) find_leads(replayer, member);
        if (member->behind_changed && !replayer->interferes) find_behind(replayer, member);
    }
}
