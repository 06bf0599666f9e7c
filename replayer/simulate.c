/* simulate.c: laps until one is like the one before.
 *
 * A lap ends with the last bucket's all-reduce. Usually every class waits for it, the next lap would be
 * the same, and one lap is the answer; where a class has updates left to do by then, laps are run until
 * one repeats the one before. */
#include <math.h>
#include <string.h>

#include "replayer/stages.h"

enum { MOST_LAPS = 16 };
static const double same_ns = 0.01; /* what is left of two laps that differs by no more is the same */

static int is_same(const double *before, const double *rest, int n_class)
{
    for (int c = 0; c < n_class; c++)
        if (fabs(rest[c] - before[c]) > same_ns) return 0;
    return 1;
}

/* A class that gains as little on the others in this lap as in the former one will do so until it waits for
 * them: it is put there at once. One that falls behind them as little will do so until they wait for it, as
 * they do where it is a whole lap behind: from there one more lap brings it to where it stays. gain[c]: in
 * the former lap. */
static void catch_up(const double *before, tandem_lap *lap, double *gain, int n_class)
{
    for (int c = 0; c < n_class; c++) {
        const double former = gain[c];
        gain[c] = before[c] - lap->rest_ns[c];
        if (fabs(gain[c]) > same_ns && fabs(gain[c] - former) <= same_ns)
            lap->rest_ns[c] = gain[c] > 0 ? 0 : lap->step_ns;
    }
}

static void report(tandem_replay *replay, const tandem_lap *lap, int n_class)
{
    *replay = (tandem_replay){.step_ns = tandem_rounded_ns(lap->step_ns), .n_class = n_class};
    for (int c = 0; c < n_class; c++) {
        tandem_replay_class *member = &replay->member[c];
        const int64_t idle_ns = tandem_rounded_ns(lap->exposed_ns[c] + lap->waiting_ns[c]);
        member->exposed_comm_ns = tandem_rounded_ns(lap->exposed_ns[c]);
        member->wait_ns = idle_ns - member->exposed_comm_ns;
        member->busy_ns = replay->step_ns - idle_ns;
        if (lap->backward_end_ns[c] > lap->backward_end_ns[replay->slowest]) replay->slowest = c;
    }
}

/* The step that is recorded begins in one lap and ends in the next. */
static void record(tandem_lap *lap, tandem_replayer *replayer)
{
    const size_t n_bucket = (size_t)replayer->n_bucket;
    for (int c = 0; c < replayer->n_class; c++) {
        tandem_replay_member *member = &replayer->member[c];
        tandem_replay_list(member);
        memset(member->wait_start_ns, 0, n_bucket * sizeof *member->wait_start_ns);
        memset(member->wait_end_ns, 0, n_bucket * sizeof *member->wait_end_ns);
    }
    tandem_lap_by_events(lap, replayer, 0, 0);
    tandem_lap_by_events(lap, replayer, 1, lap->step_ns);
}

void tandem_simulate(tandem_replay *replay, tandem_replayer *replayer, int with_timeline)
{
    const int n_class = replayer->n_class;
    tandem_lap lap;
    double before[TANDEM_MAX_CLASS], gain[TANDEM_MAX_CLASS];
    for (int c = 0; c < TANDEM_MAX_CLASS; c++) lap.rest_ns[c] = gain[c] = 0;
    for (int n_lap = 1;; n_lap++) {
        memcpy(before, lap.rest_ns, sizeof before);
        if (replayer->interferes || with_timeline)
            tandem_lap_by_events(&lap, replayer, -1, 0);
        else
            tandem_lap_by_recurrence(&lap, replayer);
        if (is_same(before, lap.rest_ns, n_class) || n_lap == MOST_LAPS) break;
        catch_up(before, &lap, gain, n_class);
    }
    report(replay, &lap, n_class);
    if (with_timeline) record(&lap, replayer);
}
