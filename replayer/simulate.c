/* simulate.c: the event loop.
 *
 * Each class goes round its list (tandem_replay_list), which begins behind the wait for the last bucket:
 * update of the last bucket, forward, backward, handing buckets over as it passes them, the other updates,
 * each behind the wait for its bucket. Between two events (a class comes to a stop or leaves one, a bucket
 * comes off the wire) all rates are constant:
 *   a class that computes    1 / its tasks' times, alone or beside a neighbour that computes;
 *                            / slowed while a bucket is on the wire
 *   the bucket on the wire   1 / idle_ns, or 1 / loaded_ns while a class computes
 * A lap ends with the last bucket's all-reduce. Usually every class waits for it, the next lap would be
 * the same, and one lap is the answer; where a class has updates left to do by then, laps are run until
 * one repeats the one before. */
#include <assert.h>
#include <math.h>

#include "replayer/stages.h"

enum { MOST_LAPS = 16 };
static const double same_ns = 0.01; /* places of a class in two laps that lie no further apart are the same */

typedef struct runner {
    int place;   /* of its list */
    double done; /* share of the task at `place`, 0 … 1 */
    int stop;    /* the next one */
    int behind;  /* still in the former lap */
    int ahead;   /* already through with this one */
    int waits;
    int64_t spent_ns[3]; /* busy, exposed, waiting */
    double backward_end_ns;
    int backward_behind; /* that of the former lap */
} runner;
enum { BUSY, EXPOSED, WAITING };

typedef struct simulation {
    tandem_replayer *replayer;
    runner runner[TANDEM_MAX_CLASS];
    double now_ns;    /* since the lap began */
    double former_ns; /* all laps before this one */
    int n_reduced;    /* buckets of this lap that are through */
    int on_wire;
    double left;         /* share of the bucket on the wire that is still to do */
    int computing;       /* classes */
    int computing_there; /* … on the shared node */
    int recorded_lap; /* laps from here on: 0 = the one to record, 1 = the next, −1 = nothing is recorded */
} simulation;

static double absolute_ns(const simulation *s) { return s->former_ns + s->now_ns; }

/* --- Stops ---------------------------------------------------------------------------------------------- */

/* Whether what the runner does now belongs to the recorded timeline. */
static int is_recorded(const simulation *s, const runner *r, int place)
{
    if (s->recorded_lap == 0) return !r->behind && place > 0;
    return s->recorded_lap == 1 && (r->behind || place == 0);
}

static void note_wait(simulation *s, int c, int bucket, double *array)
{
    if (s->recorded_lap == 0 && !s->runner[c].behind) array[bucket] = absolute_ns(s);
}

/* Passes every stop at the class's place that is open. */
static void pass_stops(simulation *s, int c)
{
    const tandem_replay_member *member = &s->replayer->member[c];
    const int n_bucket = s->replayer->n_bucket;
    runner *r = &s->runner[c];
    while (r->place == member->stop[r->stop]) {
        const int bucket = r->stop - n_bucket; /* < 0: handed over here */
        if (bucket == 0 && !r->waits) {
            r->backward_end_ns = s->now_ns;
            r->backward_behind = r->behind;
        }
        if (bucket >= 0) {
            if (!r->waits) note_wait(s, c, bucket, member->wait_start_ns);
            r->waits = !r->behind && s->n_reduced <= bucket;
            if (r->waits) return;
            note_wait(s, c, bucket, member->wait_end_ns);
        }
        r->stop++;
        if (r->stop == 2 * n_bucket) {
            r->stop = r->place = 0;
            r->ahead = !r->behind;
            r->behind = 0;
        }
    }
}

static int is_handed_over(const simulation *s, int bucket)
{
    for (int c = 0; c < s->replayer->n_class; c++)
        if (s->runner[c].behind || s->runner[c].stop <= bucket) return 0;
    return 1;
}

static void use_wire(simulation *s)
{
    if (s->on_wire || s->n_reduced == s->replayer->n_bucket || !is_handed_over(s, s->n_reduced)) return;
    s->on_wire = 1;
    s->left = 1;
    if (s->recorded_lap == 0) s->replayer->wire_start_ns[s->n_reduced] = absolute_ns(s);
}

static void leave_wire(simulation *s)
{
    s->on_wire = 0;
    if (s->recorded_lap == 0) s->replayer->wire_end_ns[s->n_reduced] = absolute_ns(s);
    s->n_reduced++;
}

/* --- Rates ---------------------------------------------------------------------------------------------- */

static int company_of(const simulation *s, int c)
{
    const tandem_replay_member *member = &s->replayer->member[c];
    if (member->is_own_neighbour) return TANDEM_BESIDE;
    return member->shares_node && s->computing_there > 1 ? TANDEM_BESIDE : TANDEM_ALONE;
}

static double slowed(const simulation *s, int c) { return s->on_wire ? s->replayer->member[c].slowed : 1; }

/* Time of the list up to where the runner is, in a company. */
static double position_ns(const simulation *s, int c, int company)
{
    const int64_t *sum = s->replayer->member[c].sum[company];
    const runner *r = &s->runner[c];
    return r->done > 0 ? (double)sum[r->place] + r->done * (double)(sum[r->place + 1] - sum[r->place])
                       : (double)sum[r->place];
}

static double time_to_stop(const simulation *s, int c)
{
    const tandem_replay_member *member = &s->replayer->member[c];
    const int company = company_of(s, c);
    const double left = (double)member->sum[company][member->stop[s->runner[c].stop]] - position_ns(s, c, company);
    return left > 0 ? left * slowed(s, c) : 0;
}

static double time_on_wire(const simulation *s)
{
    const int b = s->n_reduced;
    return s->left * (s->computing ? s->replayer->loaded_ns[b] : s->replayer->idle_ns[b]);
}

/* --- Moving on ------------------------------------------------------------------------------------------ */

/* Times at which the runner begins and ends tasks on its way to `to_ns` of its list, which lies in the
 * task at place `to`. */
static void record(simulation *s, int c, int to, double to_ns)
{
    const tandem_replay_member *member = &s->replayer->member[c];
    const runner *r = &s->runner[c];
    const int company = company_of(s, c);
    const int64_t *sum = member->sum[company];
    const double begin = position_ns(s, c, company), slow = slowed(s, c);
    for (int i = r->place; i < to || (i == to && to_ns > (double)sum[i]); i++) {
        if (!is_recorded(s, r, i)) continue;
        if (i > r->place || r->done == 0)
            member->start_ns[i] = absolute_ns(s) + ((double)sum[i] - begin) * slow;
        if (i < to) member->end_ns[i] = absolute_ns(s) + ((double)sum[i + 1] - begin) * slow;
    }
}

/* The last place in [low, high) at or before `at_ns`. */
static int place_at(const int64_t *sum, int low, int high, double at_ns)
{
    while (high - low > 1) {
        const int middle = low + (high - low) / 2;
        if ((double)sum[middle] <= at_ns)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static void move(simulation *s, int c, double dt_ns, int arrives)
{
    const tandem_replay_member *member = &s->replayer->member[c];
    runner *r = &s->runner[c];
    const int company = company_of(s, c), stop = member->stop[r->stop];
    const int64_t *sum = member->sum[company];
    const double to_ns = position_ns(s, c, company) + dt_ns / slowed(s, c);
    if (arrives || to_ns >= (double)sum[stop]) {
        if (s->recorded_lap >= 0) record(s, c, stop, (double)sum[stop]);
        r->place = stop;
        r->done = 0;
        return;
    }
    const int place = place_at(sum, r->place, stop, to_ns);
    if (s->recorded_lap >= 0) record(s, c, place, to_ns);
    r->place = place;
    r->done = (to_ns - (double)sum[place]) / (double)(sum[place + 1] - sum[place]);
}

/* To the next event. */
static void move_all(simulation *s)
{
    const int n_class = s->replayer->n_class;
    double time[TANDEM_MAX_CLASS], wire = s->on_wire ? time_on_wire(s) : INFINITY, dt = wire;
    for (int c = 0; c < n_class; c++) {
        time[c] = s->runner[c].waits ? INFINITY : time_to_stop(s, c);
        if (time[c] < dt) dt = time[c];
    }
    assert(dt < INFINITY);
    const int64_t passed = llround(s->now_ns + dt) - llround(s->now_ns);
    for (int c = 0; c < n_class; c++) {
        runner *r = &s->runner[c];
        r->spent_ns[!r->waits ? BUSY : s->on_wire ? EXPOSED : WAITING] += passed;
        if (!r->waits) move(s, c, dt, time[c] <= dt);
    }
    if (s->on_wire && wire > dt) s->left *= 1 - dt / wire;
    s->now_ns += dt;
    if (wire <= dt) leave_wire(s);
}

static void look_around(simulation *s)
{
    for (int c = 0; c < s->replayer->n_class; c++) pass_stops(s, c);
    use_wire(s);
    s->computing = s->computing_there = 0;
    for (int c = 0; c < s->replayer->n_class; c++) {
        s->computing += !s->runner[c].waits;
        s->computing_there += !s->runner[c].waits && s->replayer->member[c].shares_node;
    }
}

/* --- Laps ----------------------------------------------------------------------------------------------- */

static void run_lap(simulation *s)
{
    const int n_class = s->replayer->n_class;
    s->former_ns += s->now_ns;
    s->now_ns = 0;
    s->n_reduced = 0;
    for (int c = 0; c < n_class; c++) {
        runner *r = &s->runner[c];
        r->spent_ns[BUSY] = r->spent_ns[EXPOSED] = r->spent_ns[WAITING] = 0;
        r->backward_end_ns = 0;
    }
    while (s->n_reduced < s->replayer->n_bucket) {
        look_around(s);
        move_all(s);
    }
    for (int c = 0; c < n_class; c++) {
        runner *r = &s->runner[c];
        pass_stops(s, c);
        r->behind = !r->ahead;
        r->ahead = 0;
    }
}

/* How much further a class is at the end of `b` than of `a`, in time of its list; INFINITY: by a lap. */
static double gain_ns(const simulation *a, const simulation *b, int c)
{
    const int company = a->replayer->member[c].is_own_neighbour ? TANDEM_BESIDE : TANDEM_ALONE;
    if (a->runner[c].behind != b->runner[c].behind) return a->runner[c].behind ? INFINITY : -INFINITY;
    return position_ns(b, c, company) - position_ns(a, c, company);
}

static int is_same(const simulation *a, const simulation *b)
{
    for (int c = 0; c < a->replayer->n_class; c++)
        if (fabs(gain_ns(a, b, c)) > same_ns) return 0;
    return 1;
}

/* A class that gains as little on the others in this lap as in the former one will do so until it waits
 * for them: it is put there at once. gain[c]: in the former lap. */
static void catch_up(const simulation *before, simulation *s, double *gain)
{
    for (int c = 0; c < s->replayer->n_class; c++) {
        runner *r = &s->runner[c];
        const double former = gain[c];
        gain[c] = gain_ns(before, s, c);
        if (!r->behind || gain[c] <= same_ns || fabs(gain[c] - former) > same_ns) continue;
        r->place = r->stop = r->behind = 0;
        r->done = 0;
    }
}

static void report(tandem_replay *replay, const simulation *s)
{
    double last = -1;
    replay->n_class = s->replayer->n_class;
    replay->step_ns = llround(s->now_ns);
    for (int c = 0; c < replay->n_class; c++) {
        const runner *r = &s->runner[c];
        replay->member[c].busy_ns = r->spent_ns[BUSY];
        replay->member[c].exposed_comm_ns = r->spent_ns[EXPOSED];
        replay->member[c].wait_ns = r->spent_ns[WAITING];
        const double end = r->backward_end_ns + (r->backward_behind ? s->now_ns : 0);
        if (end <= last) continue;
        last = end;
        replay->slowest = c;
    }
}

void tandem_simulate(tandem_replay *replay, tandem_replayer *replayer, int with_timeline)
{
    simulation s = {.replayer = replayer, .recorded_lap = -1}, before;
    double gain[TANDEM_MAX_CLASS] = {0};
    int n_lap = 0;
    for (;;) {
        before = s;
        run_lap(&s);
        if (is_same(&before, &s) || ++n_lap == MOST_LAPS) break;
        catch_up(&before, &s, gain);
    }
    report(replay, &s);
    if (!with_timeline) return;
    for (s.recorded_lap = 0; s.recorded_lap < 2; s.recorded_lap++) run_lap(&s);
}
