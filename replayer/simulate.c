/* simulate.c: iterations until steps repeat.
 *
 * An iteration ends with the last bucket's all-reduce. Usually every class waits for it, and the next
 * iteration is the same: one is enough. Where a class still has updates to run by then, iterations run until
 * one has the backlog of the one before. */
#include <math.h>
#include <string.h>

#include "replayer/internal.h"

enum { MAX_ITERATIONS = 16 };
static const double steady_tolerance_ns = 0.01; /* backlogs that differ by no more are the same */

static int is_steady(const double *before, const double *backlog_ns, int n_class)
{
    for (int c = 0; c < n_class; c++)
        if (fabs(backlog_ns[c] - before[c]) > steady_tolerance_ns) return 0;
    return 1;
}

/* A class that gains the same time on the others in two iterations will do so until it waits for them: it is
 * put there at once. A class that loses the same time does so until the others wait for it, as they do when
 * it is a whole iteration late: it is put there. gain[c]: in the previous iteration. */
static void extrapolate_drift(const double *before, tandem_iteration *iteration, double *gain, int n_class)
{
    for (int c = 0; c < n_class; c++) {
        const double previous = gain[c];
        gain[c] = before[c] - iteration->backlog_ns[c];
        if (fabs(gain[c]) > steady_tolerance_ns && fabs(gain[c] - previous) <= steady_tolerance_ns)
            iteration->backlog_ns[c] = gain[c] > 0 ? 0 : iteration->step_ns;
    }
}

void tandem_replay_split_step(tandem_replay *replay, int c, double exposed_ns, double idle_ns)
{
    tandem_replay_class *class = &replay->classes[c];
    const int64_t idle = tandem_round_noisy_ns(idle_ns), exposed = tandem_round_noisy_ns(exposed_ns);
    class->exposed_comm_ns = exposed < idle ? exposed : idle;
    class->wait_ns = idle - class->exposed_comm_ns;
    class->busy_ns = replay->step_ns - idle;
}

static void report_step(tandem_replay *replay, const tandem_iteration *iteration, int n_class)
{
    *replay = (tandem_replay){.step_ns = tandem_round_noisy_ns(iteration->step_ns), .n_class = n_class};
    for (int c = 0; c < n_class; c++) {
        tandem_replay_split_step(replay, c, iteration->exposed_ns[c],
                                 iteration->exposed_ns[c] + iteration->waiting_ns[c]);
        if (iteration->backward_end_ns[c] > iteration->backward_end_ns[replay->slowest]) replay->slowest = c;
    }
}

/* The recorded step begins in one iteration and ends in the next. */
static void record_timeline(tandem_iteration *iteration, tandem_replayer *replayer)
{
    const size_t n_bucket = (size_t)replayer->n_bucket;
    for (int c = 0; c < replayer->n_class; c++) {
        tandem_sim_class *class = &replayer->classes[c];
        tandem_task_list_build(class);
        memset(class->wait_start_ns, 0, n_bucket * sizeof *class->wait_start_ns);
        memset(class->wait_end_ns, 0, n_bucket * sizeof *class->wait_end_ns);
    }
    tandem_iteration_by_events(iteration, replayer, 0, 0);
    tandem_iteration_by_events(iteration, replayer, 1, iteration->step_ns);
}

void tandem_replay_simulate(tandem_replay *replay, tandem_replayer *replayer, int with_timeline)
{
    const int n_class = replayer->n_class;
    tandem_iteration iteration;
    double before[TANDEM_MAX_CLASS], gain[TANDEM_MAX_CLASS];
    for (int c = 0; c < TANDEM_MAX_CLASS; c++) iteration.backlog_ns[c] = gain[c] = 0;
    for (int n_iteration = 1;; n_iteration++) {
        memcpy(before, iteration.backlog_ns, sizeof before);
        if (replayer->has_contention || with_timeline)
            tandem_iteration_by_events(&iteration, replayer, -1, 0);
        else
            tandem_iteration_by_recurrence(&iteration, replayer);
        if (is_steady(before, iteration.backlog_ns, n_class) || n_iteration == MAX_ITERATIONS) break;
        extrapolate_drift(before, &iteration, gain, n_class);
    }
    report_step(replay, &iteration, n_class);
    if (with_timeline) record_timeline(&iteration, replayer);
}
