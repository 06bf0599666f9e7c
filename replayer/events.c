/* events.c: a lap, event by event: always right, and what is needed where rates depend on who is busy.
 *
 * Each class goes round its list (stages.h), which begins behind the wait for the last bucket. Between two
 * events all rates are constant:
 *   a class that computes    list time at its pace: usual, or crowded while another class on its machine
 *   computes;
 *                            slower by the measured factor while a bucket is on the wire
 *   the bucket on the wire   its time with, or without, a class that computes
 * Handing a bucket over changes no rate, unless the wire was waiting for it. So events are: a class comes to
 * a wait for a bucket that is not through; a bucket that the wire waits for is ready; a bucket comes off the
 * wire.
 *
 * Two stretches of a lap need no events. While all compute (run_ahead), the wire's idle time is a maximum
 * over buckets. And where a bucket goes on the wire while each class either waits for it, or has just handed
 * it over, or has just been let go by the bucket before, nothing of the past counts any more: what is left of
 * the lap is what it was the last time, unless a price behind that bucket has changed since (the tails). */
#include <math.h>
#include <string.h>

#include "replayer/stages.h"

static const double near_ns = 0x1p-10; /* a place that differs by less is the same */

typedef struct runner {
    /* in its list, in time of its pace; below 0: so far from the end of the former lap's list */
    double at_ns;
    double left_ns;                  /* time to the wait ahead, at present rates */
    double wait_at_ns;               /* where that wait is */
    double backward_ns;              /* … and the first one */
    const double *hand_ns, *wait_ns; /* the class's, at its pace */
    double slowed, speed;            /* while a bucket is on the wire; their product is 1 */
    int pace;
    int wait;  /* the next one that is closed */
    int waits; /* stands there */
    int place; /* recorded: of the task it is in */
} runner;

typedef struct simulation {
    tandem_replayer *replayer;
    tandem_lap *lap;
    int n_class, n_bucket;
    runner *runner; /* [n_class] */
    double now_ns;  /* since the lap began */
    int n_reduced;  /* buckets of this lap that are through */
    int regroup;    /* somebody has come to a wait or left one */
    int on_wire, loaded;
    double wire_left_ns; /* on the wire; else until the next bucket is ready */
    int is_fresh;        /* it has gone on the wire just now */
    int n_passed;        /* buckets whose tails this lap will know, in `passed` */
    int recorded;        /* −1 = nothing is */
    double begin_ns;     /* of this lap, in recorded time */
} simulation;

/* --- Places --------------------------------------------------------------------------------------------- */

static void aim(runner *r, int wait)
{
    r->wait = wait;
    r->wait_at_ns = r->backward_ns + r->wait_ns[wait];
}

static double list_ns(const simulation *s, const runner *r)
{
    return r->backward_ns + r->wait_ns[s->n_bucket - 1];
}

static void take_pace(runner *r, const tandem_replay_member *member, int pace)
{
    r->pace = pace;
    r->hand_ns = member->hand_ns[pace];
    r->wait_ns = member->wait_ns[pace];
    r->backward_ns = member->backward_ns[pace];
    aim(r, r->wait);
}

/* The same place, at another pace. */
static void change_pace(simulation *s, int c, int pace)
{
    tandem_replay_member *member = &s->replayer->member[c];
    runner *r = &s->runner[c];
    const int former = r->pace, behind = r->at_ns < 0;
    if (pace == former) return;
    const double at_ns = behind ? r->at_ns + list_ns(s, r) : r->at_ns;
    take_pace(r, member, pace);
    if (!behind && at_ns == 0) return;
    r->at_ns = tandem_prices_place(member, s->n_bucket, at_ns, former, pace, &member->likely_stretch[behind]);
    if (behind) r->at_ns -= list_ns(s, r);
}

/* --- Recording ------------------------------------------------------------------------------------------ */

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

/* The step to record begins behind the tasks that begin lap 0's list, and ends with those of lap 1. */
static int is_recorded(const simulation *s, int n_lead, int behind, int place)
{
    return s->recorded == 0 ? !behind && place >= n_lead : behind || place < n_lead;
}

/* Times at which a class begins and ends tasks on its way from `from_ns` of a list to `to_ns`, which is in
 * the task at place `to`; begin_ns: when it sets out. */
static void record_places(simulation *s, int c, int behind, double from_ns, double to_ns, int to,
                          double begin_ns)
{
    tandem_replay_member *member = &s->replayer->member[c];
    runner *r = &s->runner[c];
    const int64_t *sum = member->sum[r->pace];
    const double slow = s->on_wire ? member->slowed : 1;
    for (int i = r->place; i < to || (i == to && to_ns > (double)sum[i]); i++) {
        if (!is_recorded(s, member->n_lead, behind, i)) continue;
        if (i > r->place || from_ns <= (double)sum[i])
            member->start_ns[i] = begin_ns + ((double)sum[i] - from_ns) * slow;
        if (i < to) member->end_ns[i] = begin_ns + ((double)sum[i + 1] - from_ns) * slow;
    }
    r->place = to;
}

static void record(simulation *s, int c, double to_ns, int arrives)
{
    const tandem_replay_member *member = &s->replayer->member[c];
    runner *r = &s->runner[c];
    const int64_t *sum = member->sum[r->pace];
    const double begin_ns = s->begin_ns + s->now_ns, all_ns = list_ns(s, r);
    double ahead_ns = 0;
    if (r->at_ns < 0) {
        const double from_ns = r->at_ns + all_ns;
        const int ends = to_ns >= 0;
        record_places(s, c, 1, from_ns, ends ? all_ns : to_ns + all_ns,
                      ends ? member->n_place : place_at(sum, r->place, member->n_place, to_ns + all_ns),
                      begin_ns);
        if (!ends) return;
        r->place = 0;
        ahead_ns = -r->at_ns * (s->on_wire ? member->slowed : 1);
    }
    const int stop = member->wait_place[r->wait];
    record_places(s, c, 0, r->at_ns < 0 ? 0 : r->at_ns, to_ns,
                  arrives ? stop : place_at(sum, r->place, stop, to_ns), begin_ns + ahead_ns);
}

/* --- Who does what, and until when ---------------------------------------------------------------------- */

static void regroup(simulation *s)
{
    const tandem_replayer *replayer = s->replayer;
    int computing = 0, there = 0;
    for (int c = 0; c < s->n_class; c++) {
        computing += !s->runner[c].waits;
        there += !s->runner[c].waits && replayer->member[c].shares_node;
    }
    for (int c = 0; c < s->n_class; c++)
        if (!s->runner[c].waits && replayer->member[c].n_pace > 1)
            change_pace(s, c, there > 1 ? TANDEM_CROWDED : TANDEM_USUAL);
    const int loaded = computing > 0;
    if (s->on_wire && s->loaded != loaded) { /* the share of the all-reduce that is left stays the same */
        const double former = replayer->wire_ns[s->loaded][s->n_reduced];
        if (former > 0) s->wire_left_ns *= replayer->wire_ns[loaded][s->n_reduced] / former;
    }
    s->loaded = loaded;
    s->regroup = 0;
}

static void put_on_wire(simulation *s)
{
    s->on_wire = s->is_fresh = 1;
    s->wire_left_ns = s->replayer->wire_ns[s->loaded][s->n_reduced];
    if (s->recorded == 0) s->replayer->wire_start_ns[s->n_reduced] = s->begin_ns + s->now_ns;
}

/* Time until every class has handed over the next bucket. */
static double time_until_ready(const simulation *s)
{
    double most = 0;
    for (int c = 0; c < s->n_class; c++) {
        const runner *r = &s->runner[c];
        const double left = r->hand_ns[s->n_reduced] - r->at_ns;
        if (left > most) most = left;
    }
    return most;
}

/* Time to the next event: of each class that computes in left_ns, of the wire in wire_left_ns. */
static double time_to_event(simulation *s)
{
    double dt = s->wire_left_ns;
    for (int c = 0; c < s->n_class; c++) {
        runner *r = &s->runner[c];
        if (r->waits) continue;
        r->left_ns = r->wait_at_ns - r->at_ns;
        if (s->on_wire) r->left_ns *= r->slowed;
        if (r->left_ns < dt) dt = r->left_ns;
    }
    return dt > 0 ? dt : 0;
}

/* --- Events --------------------------------------------------------------------------------------------- */

/* On its way, for `idle_ns` with nothing on the wire, then with a bucket on it, a class passes the end of its
 * backward pass. */
static void note_backward(simulation *s, int c, double idle_ns)
{
    const runner *r = &s->runner[c];
    double *const end_ns = &s->lap->backward_end_ns[c], left_ns = r->backward_ns - r->at_ns;
    if (*end_ns >= 0) return;
    *end_ns = s->now_ns + (left_ns <= idle_ns ? left_ns : idle_ns + (left_ns - idle_ns) * r->slowed);
}

static void move(simulation *s, int c, double dt_ns)
{
    runner *r = &s->runner[c];
    const int arrives = r->left_ns <= dt_ns;
    const double to_ns = arrives ? r->wait_at_ns : r->at_ns + (s->on_wire ? dt_ns * r->speed : dt_ns);
    if (to_ns >= r->backward_ns) note_backward(s, c, s->on_wire ? 0 : dt_ns);
    if (s->recorded >= 0) record(s, c, to_ns, arrives);
    if (s->recorded == 0 && arrives)
        s->replayer->member[c].wait_start_ns[r->wait] = s->begin_ns + s->now_ns + dt_ns;
    r->at_ns = to_ns;
    r->waits = arrives;
    s->regroup |= arrives;
}

/* Waits for this bucket end. */
static void take_off_wire(simulation *s)
{
    tandem_replayer *replayer = s->replayer;
    const int through = s->n_reduced++, is_last = s->n_reduced == s->n_bucket;
    s->on_wire = 0;
    if (s->recorded == 0) replayer->wire_end_ns[through] = s->begin_ns + s->now_ns;
    for (int c = 0; c < s->n_class; c++) {
        runner *r = &s->runner[c];
        if (r->wait > through) continue;
        if (s->recorded == 0 && r->waits) replayer->member[c].wait_end_ns[r->wait] = s->begin_ns + s->now_ns;
        if (is_last) continue;
        s->regroup |= r->waits;
        r->waits = 0;
        aim(r, s->n_reduced);
    }
}

static void to_next_event(simulation *s)
{
    const double dt = time_to_event(s);
    const int of_wire = s->wire_left_ns <= dt;
    for (int c = 0; c < s->n_class; c++)
        if (s->runner[c].waits)
            *(s->on_wire ? &s->lap->exposed_ns[c] : &s->lap->waiting_ns[c]) += dt;
        else
            move(s, c, dt);
    s->now_ns += dt;
    if (!of_wire)
        s->wire_left_ns -= dt;
    else if (s->on_wire)
        take_off_wire(s);
    else
        put_on_wire(s);
}

/* --- While everybody computes --------------------------------------------------------------------------- */

/* How long the wire has stood idle when bucket b goes on it, if everybody computes until then. */
static double idle_before(const simulation *s, int b)
{
    const double *sum_ns = s->replayer->loaded_sum_ns;
    double idle_ns = 0;
    for (int c = 0; c < s->n_class; c++) {
        const runner *r = &s->runner[c];
        double lead = s->replayer->member[c].lead_ns[b / TANDEM_GROUP];
        for (int k = b / TANDEM_GROUP * TANDEM_GROUP; k <= b; k++) {
            const double own = r->hand_ns[k] - r->speed * sum_ns[k];
            lead = own > lead ? own : lead;
        }
        if (lead - r->at_ns > idle_ns) idle_ns = lead - r->at_ns;
    }
    return idle_ns;
}

/* Whether everybody computes until bucket b, which is not the last one, is through. */
static int is_ahead(const simulation *s, int b)
{
    if (b >= s->n_bucket - 1) return 0;
    const double idle_ns = idle_before(s, b), wire_ns = s->replayer->loaded_sum_ns[b + 1];
    for (int c = 0; c < s->n_class; c++)
        if (s->runner[c].at_ns + idle_ns + wire_ns * s->runner[c].speed >= s->runner[c].backward_ns) return 0;
    return 1;
}

/* How many buckets are through while everybody computes; most likely as many as last time. */
static int count_ahead(const simulation *s, int likely)
{
    int low = 0, high = s->n_bucket; /* the first `low` are, number `high` is not */
    if (is_ahead(s, likely))
        low = likely + 1;
    else
        high = likely;
    if (low == 0 && likely > 0) {
        if (is_ahead(s, likely - 1)) return likely;
        high = likely - 1;
    }
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (is_ahead(s, middle))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static int begins_at_once(const tandem_lap *lap, int n_class)
{
    int late = 0;
    for (int c = 0; c < n_class; c++) late |= lap->rest_ns[c] > 0;
    return !late;
}

/* From the begin of a lap, everybody computes: to where the first bucket goes on the wire that will see a
 * class come to the end of its backward pass. */
static void run_ahead(simulation *s)
{
    tandem_replayer *replayer = s->replayer;
    tandem_leads_settle(replayer);
    int *const likely = &replayer->ahead[!begins_at_once(s->lap, s->n_class)];
    const int n = *likely = count_ahead(s, *likely);
    if (n == 0) return;
    const double idle_ns = idle_before(s, n - 1), wire_ns = replayer->loaded_sum_ns[n];
    for (int c = 0; c < s->n_class; c++) {
        runner *r = &s->runner[c];
        r->at_ns += idle_ns + wire_ns * r->speed;
        aim(r, n);
    }
    s->now_ns = idle_ns + wire_ns;
    s->n_reduced = n;
}

/* While everybody goes on computing, past the end of the backward pass, a bucket is two steps: until it is
 * ready, and its all-reduce. */
static void run_on(simulation *s)
{
    const tandem_replayer *replayer = s->replayer;
    const int first = s->n_reduced;
    for (; s->n_reduced < s->n_bucket - 1; s->n_reduced++) {
        const double idle_ns = time_until_ready(s), wire_ns = replayer->wire_ns[1][s->n_reduced];
        for (int c = 0; c < s->n_class; c++) {
            const runner *r = &s->runner[c];
            const double wait_at_ns = r->backward_ns + r->wait_ns[s->n_reduced];
            if (r->waits || r->at_ns + idle_ns + wire_ns * r->speed >= wait_at_ns) goto out;
        }
        for (int c = 0; c < s->n_class; c++) {
            runner *r = &s->runner[c];
            const double to_ns = r->at_ns + idle_ns + wire_ns * r->speed;
            if (to_ns >= r->backward_ns) note_backward(s, c, idle_ns);
            r->at_ns = to_ns;
        }
        s->now_ns += idle_ns + wire_ns;
    }
out:
    for (int c = 0; c < s->n_class && s->n_reduced > first; c++) aim(&s->runner[c], s->n_reduced);
}

/* --- Tails ---------------------------------------------------------------------------------------------- */

void tandem_tails_forget(tandem_replayer *replayer, int end)
{
    const int n = end < replayer->n_bucket ? end : replayer->n_bucket;
    if (n > 0) memset(replayer->tail_key, 0, (size_t)n * sizeof *replayer->tail_key);
}

static int is_near(double a, double b) { return fabs(a - b) < near_ns; }

/* Which of the places that leave no past a class is at, when a bucket goes on the wire; 0 = at none. */
static unsigned place_of(const simulation *s, const runner *r)
{
    enum { WAITS = 1, HAS_HANDED_OVER, IS_LET_GO };
    const int b = s->n_reduced;
    if (r->waits) return WAITS;
    if (is_near(r->at_ns, r->hand_ns[b])) return HAS_HANDED_OVER;
    return b > 0 && is_near(r->at_ns, r->backward_ns + r->wait_ns[b - 1]) ? IS_LET_GO : 0;
}

/* Two bits a class; 0 = a past that counts. */
static uint64_t state_of(const simulation *s)
{
    uint64_t key = 0;
    for (int c = 0; c < s->n_class; c++) {
        const unsigned place = place_of(s, &s->runner[c]);
        if (place == 0) return 0;
        key = key << 2 | place;
    }
    return key;
}
_Static_assert(2 * TANDEM_MAX_CLASS <= 64, "a state has two bits a class");

static void add_tail(simulation *s)
{
    const tandem_tail *tail = &s->replayer->tail[s->n_reduced * s->n_class];
    tandem_lap *lap = s->lap;
    for (int c = 0; c < s->n_class; c++) {
        lap->rest_ns[c] = tail[c].rest_ns;
        lap->exposed_ns[c] += tail[c].exposed_ns;
        lap->waiting_ns[c] += tail[c].waiting_ns;
        if (lap->backward_end_ns[c] < 0) lap->backward_end_ns[c] = s->now_ns + tail[c].backward_end_ns;
    }
    lap->step_ns = s->now_ns + s->replayer->tail_ns[s->n_reduced];
}

/* What the lap has come to so far; it ends as tails. */
static void pass(simulation *s, uint64_t key)
{
    tandem_replayer *replayer = s->replayer;
    tandem_tail *tail = &replayer->tail[s->n_reduced * s->n_class];
    replayer->tail_key[s->n_reduced] = key;
    replayer->tail_ns[s->n_reduced] = s->now_ns;
    for (int c = 0; c < s->n_class; c++) {
        tail[c].exposed_ns = s->lap->exposed_ns[c];
        tail[c].waiting_ns = s->lap->waiting_ns[c];
    }
    replayer->passed[s->n_passed++] = s->n_reduced;
}

static void keep_tails(const simulation *s)
{
    tandem_replayer *replayer = s->replayer;
    const tandem_lap *lap = s->lap;
    for (int i = 0; i < s->n_passed; i++) {
        const int b = replayer->passed[i];
        tandem_tail *tail = &replayer->tail[b * s->n_class];
        for (int c = 0; c < s->n_class; c++)
            tail[c] = (tandem_tail){lap->rest_ns[c], lap->exposed_ns[c] - tail[c].exposed_ns,
                                    lap->waiting_ns[c] - tail[c].waiting_ns,
                                    lap->backward_end_ns[c] - replayer->tail_ns[b]};
        replayer->tail_ns[b] = lap->step_ns - replayer->tail_ns[b];
    }
}

/* A bucket has gone on the wire: whether what follows is known, and is in the lap now. */
static int ends_as_known(simulation *s)
{
    s->is_fresh = 0;
    const uint64_t key = state_of(s);
    if (key == 0) return 0;
    if (s->replayer->tail_key[s->n_reduced] != key) {
        pass(s, key);
        return 0;
    }
    add_tail(s);
    return 1;
}

/* --- A lap ---------------------------------------------------------------------------------------------- */

static void begin(simulation *s)
{
    for (int c = 0; c < s->n_class; c++) {
        const tandem_replay_member *member = &s->replayer->member[c];
        runner *r = &s->runner[c];
        r->at_ns = -s->lap->rest_ns[c];
        r->slowed = member->slowed;
        r->speed = 1 / member->slowed;
        r->wait = r->waits = r->place = 0;
        take_pace(r, member, TANDEM_USUAL);
        s->lap->exposed_ns[c] = s->lap->waiting_ns[c] = 0;
        s->lap->backward_end_ns[c] = -1;
        if (s->recorded >= 0 && r->at_ns < 0)
            r->place = place_at(member->sum[TANDEM_USUAL], 0, member->n_place, r->at_ns + list_ns(s, r));
    }
}

static void finish(simulation *s)
{
    s->lap->step_ns = s->now_ns;
    for (int c = 0; c < s->n_class; c++) {
        const runner *r = &s->runner[c];
        if (r->waits) {
            s->lap->rest_ns[c] = 0;
            continue;
        }
        change_pace(s, c, TANDEM_USUAL);
        s->lap->rest_ns[c] = list_ns(s, r) - r->at_ns;
        if (s->lap->backward_end_ns[c] < 0)
            s->lap->backward_end_ns[c] = s->now_ns + r->backward_ns - r->at_ns;
    }
}

/* From the begin of a lap to its end; 1 = over a tail that was known. */
static int go_round(simulation *s)
{
    const int may_skip = s->recorded < 0;
    begin(s);
    regroup(s);
    if (may_skip) run_ahead(s);
    while (s->n_reduced < s->n_bucket) {
        if (s->regroup) regroup(s);
        if (!s->on_wire && may_skip) run_on(s);
        if (!s->on_wire) s->wire_left_ns = time_until_ready(s);
        if (!s->on_wire && s->wire_left_ns <= 0) put_on_wire(s);
        if (s->is_fresh && may_skip && ends_as_known(s)) return 1;
        to_next_event(s);
    }
    return 0;
}

void tandem_lap_by_events(tandem_lap *lap, tandem_replayer *replayer, int recorded, double begin_ns)
{
    runner each[TANDEM_MAX_CLASS];
    simulation s = {.replayer = replayer,
                    .lap = lap,
                    .n_class = replayer->n_class,
                    .n_bucket = replayer->n_bucket,
                    .runner = each,
                    .recorded = recorded,
                    .begin_ns = begin_ns};
    if (!go_round(&s)) finish(&s);
    keep_tails(&s);
}
