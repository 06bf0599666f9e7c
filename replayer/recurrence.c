/* recurrence.c: a lap where nothing interferes: every class keeps its pace, the wire its.
 *
 * With hand(c, b) and wait(c, b) the list times of the stops of class c, rest(c) how long it is still in the former lap,
 * and wire(b) the time of bucket b's all-reduce:
 *     end(b)  = max(end(b − 1), max_c rest(c) + hand(c, b)) + wire(b)
 *     late(c) = max(rest(c), max_b end(b) − wait(c, b))
 * late(c) is what the class is behind its list after the last wait: late − rest it stood still, and of that no bucket
 * was on the wire from when it came to a wait until that bucket's all-reduce began. */
#include <string.h>

#include "replayer/stages.h"

/* Two classes side by side: the compiler keeps them in one register. */
typedef double pair __attribute__((vector_size(TANDEM_LANES * sizeof(double)), may_alias));
_Static_assert(TANDEM_LANES == 2, "a pair is of two classes");

static inline double larger(double a, double b) { return a > b ? a : b; }
static inline pair larger_of_each(pair a, pair b) { return (pair){larger(a[0], b[0]), larger(a[1], b[1])}; }
static inline pair twice(double a) { return (pair){a, a}; }

/* Of classes 2·k and 2·k + 1: [n_bucket]. */
static const pair *stops_of(double *const *stops, const tandem_replayer *replayer, int k)
{
    return (const pair *)stops[TANDEM_USUAL] + (size_t)k * (size_t)replayer->n_bucket;
}

static pair rest_of(const tandem_lap *lap, int k)
{
    return (pair){lap->rest_ns[2 * k], lap->rest_ns[2 * k + 1]};
}

/* When each bucket is ready to go, as far as all pairs but the first are concerned: ns since the lap began. */
static void find_ready(double *restrict ready_ns, const tandem_lap *lap, const tandem_replayer *replayer)
{
    memset(ready_ns, 0, (size_t)replayer->n_bucket * sizeof *ready_ns);
    for (int k = 1; 2 * k < replayer->n_class; k++) {
        const pair *restrict hand = stops_of(replayer->hand_ns, replayer, k);
        const pair rest = rest_of(lap, k);
        for (int b = 0; b < replayer->n_bucket; b++) {
            const pair handed = hand[b] + rest;
            ready_ns[b] = larger(ready_ns[b], larger(handed[0], handed[1]));
        }
    }
}

/* start_ns holds what find_ready found. */
static void run_wire(double *restrict start_ns, double *restrict end_ns, const tandem_lap *lap,
                     const tandem_replayer *replayer)
{
    const pair *restrict hand = stops_of(replayer->hand_ns, replayer, 0);
    const double *restrict sum_ns = replayer->wire_sum_ns;
    const pair rest = rest_of(lap, 0);
    double late = 0;
    for (int b = 0; b < replayer->n_bucket; b++) {
        const pair handed = hand[b] + rest;
        late = larger(late, larger(start_ns[b], larger(handed[0], handed[1])) - sum_ns[b]);
        start_ns[b] = late + sum_ns[b];
        end_ns[b] = late + sum_ns[b + 1];
    }
}

/* A class comes to its first wait at `begin`; `now` is time less the list's time since then. */
static void run_pair(tandem_lap *lap, const tandem_replayer *replayer, int k)
{
    const int n_bucket = replayer->n_bucket;
    const pair *restrict wait = stops_of(replayer->wait_ns, replayer, k);
    const double *restrict start = replayer->wire_start_ns, *restrict end = replayer->wire_end_ns;
    const pair begin = rest_of(lap, k) + ((const pair *)replayer->backward_ns[TANDEM_USUAL])[k], none = {0, 0};
    pair now = begin, waiting = none;
    for (int b = 0; b < n_bucket; b++) {
        waiting += larger_of_each(twice(start[b]) - wait[b] - now, none);
        now = larger_of_each(now, twice(end[b]) - wait[b]);
    }
    const pair rest = now + wait[n_bucket - 1] - lap->step_ns, exposed = now - begin - waiting;
    for (int lane = 0; lane < 2; lane++) {
        lap->rest_ns[2 * k + lane] = rest[lane];
        lap->waiting_ns[2 * k + lane] = waiting[lane];
        lap->exposed_ns[2 * k + lane] = exposed[lane];
        lap->backward_end_ns[2 * k + lane] = begin[lane];
    }
}

void tandem_lap_by_recurrence(tandem_lap *lap, tandem_replayer *replayer)
{
    find_ready(replayer->wire_start_ns, lap, replayer);
    run_wire(replayer->wire_start_ns, replayer->wire_end_ns, lap, replayer);
    lap->step_ns = replayer->wire_end_ns[replayer->n_bucket - 1];
    for (int k = 0; 2 * k < replayer->n_class; k++) run_pair(lap, replayer, k);
}
