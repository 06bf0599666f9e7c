/* recurrence.c: a lap where nothing interferes: every class keeps its pace, the wire its.
 *
 * With hand(c, b) and wait(c, b) the list times of the stops of class c and wire(b) the time of bucket b's all-reduce:
 *     end(b)   = max(end(b − 1), max_c rest(c) + hand(c, b)) + wire(b)
 *     late(c)  = max(rest(c), max_b end(b) − wait(c, b))          what the class is late, in the end, behind its list
 * A class stands still for late − rest, and while it does, no bucket is on the wire before that of the wait begins.
 * Classes lie side by side in pairs, so that the loops over buckets run over both at once. */
#include <math.h>

#include "replayer/stages.h"

enum { LANES = TANDEM_LANES };

static double larger(double a, double b) { return a > b ? a : b; }

/* When each bucket is ready to go, as far as classes 2·pair and 2·pair + 1 are concerned. */
static void find_ready(double *restrict ready_ns, const tandem_lap *lap, const tandem_replayer *replayer, int pair)
{
    const int n_bucket = replayer->n_bucket;
    const double *hand = replayer->hand_ns[TANDEM_USUAL] + (size_t)pair * (size_t)n_bucket * LANES;
    const double first = lap->rest_ns[pair * LANES], second = lap->rest_ns[pair * LANES + 1];
    for (int b = 0; b < n_bucket; b++)
        ready_ns[b] = larger(ready_ns[b], larger(hand[b * LANES] + first, hand[b * LANES + 1] + second));
}

static void run_wire(tandem_replayer *replayer)
{
    const double *sum = replayer->wire_sum_ns;
    double *start = replayer->wire_start_ns, *end = replayer->wire_end_ns; /* start: when ready, so far */
    double late = 0;
    for (int b = 0; b < replayer->n_bucket; b++) {
        late = larger(late, start[b] - sum[b]);
        start[b] = late + sum[b];
        end[b] = late + sum[b + 1];
    }
}

static void run_pair(tandem_lap *lap, const tandem_replayer *replayer, int pair)
{
    const int n_bucket = replayer->n_bucket;
    const double *wait = replayer->wait_ns[TANDEM_USUAL] + (size_t)pair * (size_t)n_bucket * LANES;
    const double *start = replayer->wire_start_ns, *end = replayer->wire_end_ns;
    double begin[LANES], now[LANES], before[LANES], idle[LANES] = {0};
    for (int k = 0; k < LANES; k++) {
        const int c = pair * LANES + k;
        begin[k] = now[k] = before[k] = lap->rest_ns[c] + (c < replayer->n_class ? replayer->member[c].backward_ns[TANDEM_USUAL] : 0);
    }
    for (int b = 0; b < n_bucket; b++)
        for (int k = 0; k < LANES; k++) { /* now: time less the list's time since the first wait */
            before[k] = now[k];
            idle[k] += larger(0, start[b] - wait[b * LANES + k] - now[k]);
            now[k] = larger(now[k], end[b] - wait[b * LANES + k]);
        }
    for (int k = 0; k < LANES; k++) {
        const int c = pair * LANES + k;
        lap->rest_ns[c] = larger(0, before[k] + wait[(n_bucket - 1) * LANES + k] - lap->step_ns);
        lap->waiting_ns[c] = idle[k];
        lap->exposed_ns[c] = now[k] - begin[k] - idle[k];
        lap->backward_end_ns[c] = begin[k];
    }
}

void tandem_lap_by_recurrence(tandem_lap *lap, tandem_replayer *replayer)
{
    const int n_pair = (replayer->n_class + LANES - 1) / LANES;
    for (int b = 0; b < replayer->n_bucket; b++) replayer->wire_start_ns[b] = 0;
    for (int pair = 0; pair < n_pair; pair++) find_ready(replayer->wire_start_ns, lap, replayer, pair);
    run_wire(replayer);
    lap->step_ns = replayer->wire_end_ns[replayer->n_bucket - 1];
    for (int pair = 0; pair < n_pair; pair++) run_pair(lap, replayer, pair);
}
