/* events.c: an iteration, event by event. It is always right, and needed where rates depend on who computes.
 *
 * Each class goes through its list (internal.h), which begins after the wait for the last bucket. Between two
 * events all rates are constant:
 *   a class that computes        list time at its rate, contended while another class of its machine
 *   computes;
 *                                slower by the measured factor while a bucket is reduced
 *   the bucket that is reduced   its time with, or without, a class that computes
 * A bucket that becomes ready changes no rate, unless the network waits for it. Events are therefore: a class
 * reaches a wait for a bucket that is not through; the bucket that the network waits for is ready; an
 * all-reduce ends.
 *
 * Two parts of an iteration need no events. While all classes compute (skip_overlapped), the idle time of the
 * network is a maximum over buckets. The second part begins with an all-reduce at whose start each class
 * waits for that bucket, has just made it ready, or has just been released by the bucket before. Such a state
 * has no history: the rest of the iteration is what it was the last time, unless the time of a later task
 * changed. These are the memoized suffixes. */
#include <math.h>
#include <string.h>

#include "replayer/internal.h"

static const double tolerance_ns = 0x1p-10; /* positions that differ by less are the same */

typedef struct class_progress {
    /* its list time, at its rate; below 0: minus the time to the end of the previous iteration's list */
    double at_ns;
    double left_ns;                   /* time to the next wait, at present rates */
    double next_wait_ns;              /* list time of that wait */
    double backward_ns;               /* list time of the first wait */
    const double *ready_ns, *wait_ns; /* the class's, at its rate */
    double comm_slowdown, speed;      /* while a bucket is reduced; their product is 1 */
    int rate;
    int next_wait;  /* for the next bucket that is not through */
    int is_waiting; /* it has reached that wait */
    int position;   /* of the task it is in; for recording */
} class_progress;

typedef struct event_simulation {
    tandem_replayer *replayer;
    tandem_iteration *iteration;
    int n_class, n_bucket;
    class_progress *progress; /* [n_class] */
    double now_ns;            /* since the iteration began */
    int n_reduced;            /* buckets of this iteration that are through */
    int rates_dirty;          /* a class has reached a wait or left one */
    int is_reducing, is_loaded;
    double comm_left_ns;  /* of the all-reduce; else until the next bucket is ready */
    int has_just_started; /* the all-reduce has */
    int n_pending;        /* suffixes to store, in `pending_suffix` */
    int recording;        /* −1 = no; see tandem_iteration_by_events */
    double begin_ns;      /* of this iteration, in recorded time */
} event_simulation;

/* --- List times ----------------------------------------------------------------------------------------- */

static void set_next_wait(class_progress *r, int wait)
{
    r->next_wait = wait;
    r->next_wait_ns = r->backward_ns + r->wait_ns[wait];
}

static double list_total_ns(const event_simulation *s, const class_progress *r)
{
    return r->backward_ns + r->wait_ns[s->n_bucket - 1];
}

static void set_compute_rate(class_progress *r, const tandem_sim_class *class, int rate)
{
    r->rate = rate;
    r->ready_ns = class->ready_ns[rate];
    r->wait_ns = class->wait_ns[rate];
    r->backward_ns = class->backward_ns[rate];
    set_next_wait(r, r->next_wait);
}

/* Goes on from the same point at another rate. */
static void change_compute_rate(event_simulation *s, int c, int rate)
{
    tandem_sim_class *class = &s->replayer->classes[c];
    class_progress *r = &s->progress[c];
    const int previous = r->rate, in_previous = r->at_ns < 0;
    if (rate == previous) return;
    const double at_ns = in_previous ? r->at_ns + list_total_ns(s, r) : r->at_ns;
    set_compute_rate(r, class, rate);
    if (!in_previous && at_ns == 0) return;
    r->at_ns = tandem_cost_sums_convert_ns(class, s->n_bucket, at_ns, previous, rate,
                                           &class->likely_interval[in_previous]);
    if (in_previous) r->at_ns -= list_total_ns(s, r);
}

/* --- Recording ------------------------------------------------------------------------------------------ */

/* The last position in [low, high) that begins at or before `at_ns`. */
static int position_at(const int64_t *sum, int low, int high, double at_ns)
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

/* The recorded step begins after the head of iteration 0 and ends with the head of iteration 1. */
static int is_position_recorded(const event_simulation *s, int n_head, int in_previous, int position)
{
    return s->recording == 0 ? !in_previous && position >= n_head : in_previous || position < n_head;
}

/* Records when a class begins and ends tasks on its way from list time `from_ns` to `to_ns`, which lies in
 * the task at position `to`. begin_ns: when it is at from_ns. */
static void record_positions(event_simulation *s, int c, int in_previous, double from_ns, double to_ns,
                             int to, double begin_ns)
{
    tandem_sim_class *class = &s->replayer->classes[c];
    class_progress *r = &s->progress[c];
    const int64_t *sum = class->sum[r->rate];
    const double slow = s->is_reducing ? class->comm_slowdown : 1;
    for (int i = r->position; i < to || (i == to && to_ns > (double)sum[i]); i++) {
        if (!is_position_recorded(s, class->n_head, in_previous, i)) continue;
        if (i > r->position || from_ns <= (double)sum[i])
            class->start_ns[i] = begin_ns + ((double)sum[i] - from_ns) * slow;
        if (i < to) class->end_ns[i] = begin_ns + ((double)sum[i + 1] - from_ns) * slow;
    }
    r->position = to;
}

static void record_progress(event_simulation *s, int c, double to_ns, int arrives)
{
    const tandem_sim_class *class = &s->replayer->classes[c];
    class_progress *r = &s->progress[c];
    const int64_t *sum = class->sum[r->rate];
    const double begin_ns = s->begin_ns + s->now_ns, all_ns = list_total_ns(s, r);
    double previous_ns = 0;
    if (r->at_ns < 0) {
        const double from_ns = r->at_ns + all_ns;
        const int ends = to_ns >= 0;
        record_positions(s, c, 1, from_ns, ends ? all_ns : to_ns + all_ns,
                         ends ? class->list_length
                              : position_at(sum, r->position, class->list_length, to_ns + all_ns),
                         begin_ns);
        if (!ends) return;
        r->position = 0;
        previous_ns = -r->at_ns * (s->is_reducing ? class->comm_slowdown : 1);
    }
    const int wait_position = class->wait_position[r->next_wait];
    record_positions(s, c, 0, r->at_ns < 0 ? 0 : r->at_ns, to_ns,
                     arrives ? wait_position : position_at(sum, r->position, wait_position, to_ns),
                     begin_ns + previous_ns);
}

/* --- Rates, and the time to the next event -------------------------------------------------------------- */

static void update_rates(event_simulation *s)
{
    const tandem_replayer *replayer = s->replayer;
    int computing = 0, n_on_node = 0;
    for (int c = 0; c < s->n_class; c++) {
        computing += !s->progress[c].is_waiting;
        n_on_node += !s->progress[c].is_waiting && replayer->classes[c].is_on_shared_node;
    }
    for (int c = 0; c < s->n_class; c++)
        if (!s->progress[c].is_waiting && replayer->classes[c].n_rate > 1)
            change_compute_rate(s, c, n_on_node > 1 ? TANDEM_RATE_CONTENDED : TANDEM_RATE_USUAL);
    const int loaded = computing > 0;
    /* the remaining share of the all-reduce stays the same */
    if (s->is_reducing && s->is_loaded != loaded) {
        const double previous = replayer->allreduce_ns[s->is_loaded][s->n_reduced];
        if (previous > 0) s->comm_left_ns *= replayer->allreduce_ns[loaded][s->n_reduced] / previous;
    }
    s->is_loaded = loaded;
    s->rates_dirty = 0;
}

static void start_allreduce(event_simulation *s)
{
    s->is_reducing = s->has_just_started = 1;
    s->comm_left_ns = s->replayer->allreduce_ns[s->is_loaded][s->n_reduced];
    if (s->recording == 0) s->replayer->allreduce_start_ns[s->n_reduced] = s->begin_ns + s->now_ns;
}

/* Time until every class has made the next bucket ready. */
static double time_until_ready(const event_simulation *s)
{
    double max_ns = 0;
    for (int c = 0; c < s->n_class; c++) {
        const class_progress *r = &s->progress[c];
        const double left = r->ready_ns[s->n_reduced] - r->at_ns;
        if (left > max_ns) max_ns = left;
    }
    return max_ns;
}

/* Time to the next event. Sets left_ns of each class that computes. */
static double time_to_next_event(event_simulation *s)
{
    double dt = s->comm_left_ns;
    for (int c = 0; c < s->n_class; c++) {
        class_progress *r = &s->progress[c];
        if (r->is_waiting) continue;
        r->left_ns = r->next_wait_ns - r->at_ns;
        if (s->is_reducing) r->left_ns *= r->comm_slowdown;
        if (r->left_ns < dt) dt = r->left_ns;
    }
    return dt > 0 ? dt : 0;
}

/* --- Events --------------------------------------------------------------------------------------------- */

/* Notes the end of the backward pass, which a class passes on its way: for `idle_ns` while the network is
 * idle, then while a bucket is reduced. */
static void note_backward_end(event_simulation *s, int c, double idle_ns)
{
    const class_progress *r = &s->progress[c];
    double *const end_ns = &s->iteration->backward_end_ns[c], left_ns = r->backward_ns - r->at_ns;
    if (*end_ns >= 0) return;
    *end_ns = s->now_ns + (left_ns <= idle_ns ? left_ns : idle_ns + (left_ns - idle_ns) * r->comm_slowdown);
}

static void advance_class(event_simulation *s, int c, double dt_ns)
{
    class_progress *r = &s->progress[c];
    const int arrives = r->left_ns <= dt_ns;
    const double to_ns = arrives ? r->next_wait_ns : r->at_ns + (s->is_reducing ? dt_ns * r->speed : dt_ns);
    if (to_ns >= r->backward_ns) note_backward_end(s, c, s->is_reducing ? 0 : dt_ns);
    if (s->recording >= 0) record_progress(s, c, to_ns, arrives);
    if (s->recording == 0 && arrives)
        s->replayer->classes[c].wait_start_ns[r->next_wait] = s->begin_ns + s->now_ns + dt_ns;
    r->at_ns = to_ns;
    r->is_waiting = arrives;
    s->rates_dirty |= arrives;
}

/* Releases the classes that wait for this bucket. */
static void finish_allreduce(event_simulation *s)
{
    tandem_replayer *replayer = s->replayer;
    const int bucket = s->n_reduced++, is_last = s->n_reduced == s->n_bucket;
    s->is_reducing = 0;
    if (s->recording == 0) replayer->allreduce_end_ns[bucket] = s->begin_ns + s->now_ns;
    for (int c = 0; c < s->n_class; c++) {
        class_progress *r = &s->progress[c];
        if (r->next_wait > bucket) continue;
        if (s->recording == 0 && r->is_waiting)
            replayer->classes[c].wait_end_ns[r->next_wait] = s->begin_ns + s->now_ns;
        if (is_last) continue;
        s->rates_dirty |= r->is_waiting;
        r->is_waiting = 0;
        set_next_wait(r, s->n_reduced);
    }
}

static void advance_to_next_event(event_simulation *s)
{
    const double dt = time_to_next_event(s);
    const int is_comm_event = s->comm_left_ns <= dt;
    for (int c = 0; c < s->n_class; c++)
        if (s->progress[c].is_waiting)
            *(s->is_reducing ? &s->iteration->exposed_ns[c] : &s->iteration->waiting_ns[c]) += dt;
        else
            advance_class(s, c, dt);
    s->now_ns += dt;
    if (!is_comm_event)
        s->comm_left_ns -= dt;
    else if (s->is_reducing)
        finish_allreduce(s);
    else
        start_allreduce(s);
}

/* --- While all classes compute -------------------------------------------------------------------------- */

/* Idle time of the network before bucket b, if all classes compute until then. */
static double comm_idle_before(const event_simulation *s, int b)
{
    const double *sum_ns = s->replayer->loaded_sum_ns;
    double idle_ns = 0;
    for (int c = 0; c < s->n_class; c++) {
        const class_progress *r = &s->progress[c];
        double slack = s->replayer->classes[c].slack_ns[b / TANDEM_BUCKETS_PER_GROUP];
        for (int k = b / TANDEM_BUCKETS_PER_GROUP * TANDEM_BUCKETS_PER_GROUP; k <= b; k++) {
            const double own = r->ready_ns[k] - r->speed * sum_ns[k];
            slack = own > slack ? own : slack;
        }
        if (slack - r->at_ns > idle_ns) idle_ns = slack - r->at_ns;
    }
    return idle_ns;
}

/* Whether all classes compute until bucket b is through; never for the last bucket. */
static int is_overlapped(const event_simulation *s, int b)
{
    if (b >= s->n_bucket - 1) return 0;
    const double idle_ns = comm_idle_before(s, b), allreduce_ns = s->replayer->loaded_sum_ns[b + 1];
    for (int c = 0; c < s->n_class; c++)
        if (s->progress[c].at_ns + idle_ns + allreduce_ns * s->progress[c].speed >=
            s->progress[c].backward_ns)
            return 0;
    return 1;
}

/* Number of buckets that are through while all classes compute. likely: a guess. */
static int count_overlapped(const event_simulation *s, int likely)
{
    int low = 0, high = s->n_bucket; /* the first `low` are; number `high` is not */
    if (is_overlapped(s, likely))
        low = likely + 1;
    else
        high = likely;
    if (low == 0 && likely > 0) {
        if (is_overlapped(s, likely - 1)) return likely;
        high = likely - 1;
    }
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (is_overlapped(s, middle))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static int all_begin_together(const tandem_iteration *iteration, int n_class)
{
    int late = 0;
    for (int c = 0; c < n_class; c++) late |= iteration->backlog_ns[c] > 0;
    return !late;
}

/* From the begin of an iteration to the start of the first all-reduce during which a class ends its backward
 * pass. */
static void skip_overlapped(event_simulation *s)
{
    tandem_replayer *replayer = s->replayer;
    tandem_slack_update(replayer);
    int *const likely = &replayer->n_overlapped[!all_begin_together(s->iteration, s->n_class)];
    const int n = *likely = count_overlapped(s, *likely);
    if (n == 0) return;
    const double idle_ns = comm_idle_before(s, n - 1), allreduce_ns = replayer->loaded_sum_ns[n];
    for (int c = 0; c < s->n_class; c++) {
        class_progress *r = &s->progress[c];
        r->at_ns += idle_ns + allreduce_ns * r->speed;
        set_next_wait(r, n);
    }
    s->now_ns = idle_ns + allreduce_ns;
    s->n_reduced = n;
}

/* While all classes compute on past their backward pass, each bucket takes the time until it is ready and the
 * time of its all-reduce. */
static void skip_past_backward(event_simulation *s)
{
    const tandem_replayer *replayer = s->replayer;
    const int first = s->n_reduced;
    for (; s->n_reduced < s->n_bucket - 1; s->n_reduced++) {
        const double idle_ns = time_until_ready(s), allreduce_ns = replayer->allreduce_ns[1][s->n_reduced];
        for (int c = 0; c < s->n_class; c++) {
            const class_progress *r = &s->progress[c];
            const double wait_at_ns = r->backward_ns + r->wait_ns[s->n_reduced];
            if (r->is_waiting || r->at_ns + idle_ns + allreduce_ns * r->speed >= wait_at_ns) goto out;
        }
        for (int c = 0; c < s->n_class; c++) {
            class_progress *r = &s->progress[c];
            const double to_ns = r->at_ns + idle_ns + allreduce_ns * r->speed;
            if (to_ns >= r->backward_ns) note_backward_end(s, c, idle_ns);
            r->at_ns = to_ns;
        }
        s->now_ns += idle_ns + allreduce_ns;
    }
out:
    for (int c = 0; c < s->n_class && s->n_reduced > first; c++) set_next_wait(&s->progress[c], s->n_reduced);
}

/* --- Memoized suffixes ---------------------------------------------------------------------------------- */

void tandem_suffixes_forget(tandem_replayer *replayer, int end)
{
    const int n = end < replayer->n_bucket ? end : replayer->n_bucket;
    if (n > 0) memset(replayer->suffix_key, 0, (size_t)n * sizeof *replayer->suffix_key);
}

static int is_near_ns(double a, double b) { return fabs(a - b) < tolerance_ns; }

/* Which point without history a class is at when an all-reduce starts; 0 = at none. */
static unsigned memoryless_point(const event_simulation *s, const class_progress *r)
{
    enum { WAITING = 1, BUCKET_READY, RELEASED };
    const int b = s->n_reduced;
    if (r->is_waiting) return WAITING;
    if (is_near_ns(r->at_ns, r->ready_ns[b])) return BUCKET_READY;
    return b > 0 && is_near_ns(r->at_ns, r->backward_ns + r->wait_ns[b - 1]) ? RELEASED : 0;
}

/* Two bits per class; 0 = the state has a history. */
static uint64_t sync_state_key(const event_simulation *s)
{
    uint64_t key = 0;
    for (int c = 0; c < s->n_class; c++) {
        const unsigned position = memoryless_point(s, &s->progress[c]);
        if (position == 0) return 0;
        key = key << 2 | position;
    }
    return key;
}
_Static_assert(2 * TANDEM_MAX_CLASS <= 64, "a state has two bits per class");

static void apply_suffix(event_simulation *s)
{
    const tandem_memoized_suffix *suffix = &s->replayer->suffix[s->n_reduced * s->n_class];
    tandem_iteration *iteration = s->iteration;
    for (int c = 0; c < s->n_class; c++) {
        iteration->backlog_ns[c] = suffix[c].backlog_ns;
        iteration->exposed_ns[c] += suffix[c].exposed_ns;
        iteration->waiting_ns[c] += suffix[c].waiting_ns;
        if (iteration->backward_end_ns[c] < 0)
            iteration->backward_end_ns[c] = s->now_ns + suffix[c].backward_end_ns;
    }
    iteration->step_ns = s->now_ns + s->replayer->suffix_ns[s->n_reduced];
}

/* Begins a suffix with the totals so far; store_suffixes completes it. */
static void begin_suffix(event_simulation *s, uint64_t key)
{
    tandem_replayer *replayer = s->replayer;
    tandem_memoized_suffix *suffix = &replayer->suffix[s->n_reduced * s->n_class];
    replayer->suffix_key[s->n_reduced] = key;
    replayer->suffix_ns[s->n_reduced] = s->now_ns;
    for (int c = 0; c < s->n_class; c++) {
        suffix[c].exposed_ns = s->iteration->exposed_ns[c];
        suffix[c].waiting_ns = s->iteration->waiting_ns[c];
    }
    replayer->pending_suffix[s->n_pending++] = s->n_reduced;
}

static void store_suffixes(const event_simulation *s)
{
    tandem_replayer *replayer = s->replayer;
    const tandem_iteration *iteration = s->iteration;
    for (int i = 0; i < s->n_pending; i++) {
        const int b = replayer->pending_suffix[i];
        tandem_memoized_suffix *suffix = &replayer->suffix[b * s->n_class];
        for (int c = 0; c < s->n_class; c++)
            suffix[c] = (tandem_memoized_suffix){iteration->backlog_ns[c],
                                                 iteration->exposed_ns[c] - suffix[c].exposed_ns,
                                                 iteration->waiting_ns[c] - suffix[c].waiting_ns,
                                                 iteration->backward_end_ns[c] - replayer->suffix_ns[b]};
        replayer->suffix_ns[b] = iteration->step_ns - replayer->suffix_ns[b];
    }
}

/* At the start of an all-reduce: whether the rest of the iteration is known, and now in *s->iteration. */
static int apply_known_suffix(event_simulation *s)
{
    s->has_just_started = 0;
    const uint64_t key = sync_state_key(s);
    if (key == 0) return 0;
    if (s->replayer->suffix_key[s->n_reduced] != key) {
        begin_suffix(s, key);
        return 0;
    }
    apply_suffix(s);
    return 1;
}

/* --- An iteration --------------------------------------------------------------------------------------- */

static void begin_iteration(event_simulation *s)
{
    for (int c = 0; c < s->n_class; c++) {
        const tandem_sim_class *class = &s->replayer->classes[c];
        class_progress *r = &s->progress[c];
        r->at_ns = -s->iteration->backlog_ns[c];
        r->comm_slowdown = class->comm_slowdown;
        r->speed = 1 / class->comm_slowdown;
        r->next_wait = r->is_waiting = r->position = 0;
        set_compute_rate(r, class, TANDEM_RATE_USUAL);
        s->iteration->exposed_ns[c] = s->iteration->waiting_ns[c] = 0;
        s->iteration->backward_end_ns[c] = -1;
        if (s->recording >= 0 && r->at_ns < 0)
            r->position = position_at(class->sum[TANDEM_RATE_USUAL], 0, class->list_length,
                                      r->at_ns + list_total_ns(s, r));
    }
}

static void finish_iteration(event_simulation *s)
{
    s->iteration->step_ns = s->now_ns;
    for (int c = 0; c < s->n_class; c++) {
        const class_progress *r = &s->progress[c];
        if (r->is_waiting) {
            s->iteration->backlog_ns[c] = 0;
            continue;
        }
        change_compute_rate(s, c, TANDEM_RATE_USUAL);
        s->iteration->backlog_ns[c] = list_total_ns(s, r) - r->at_ns;
        if (s->iteration->backward_end_ns[c] < 0)
            s->iteration->backward_end_ns[c] = s->now_ns + r->backward_ns - r->at_ns;
    }
}

/* Runs a whole iteration. Returns 1 where it ended with a memoized suffix. */
static int run_iteration(event_simulation *s)
{
    const int can_skip = s->recording < 0;
    begin_iteration(s);
    update_rates(s);
    if (can_skip) skip_overlapped(s);
    while (s->n_reduced < s->n_bucket) {
        if (s->rates_dirty) update_rates(s);
        if (!s->is_reducing && can_skip) skip_past_backward(s);
        if (!s->is_reducing) s->comm_left_ns = time_until_ready(s);
        if (!s->is_reducing && s->comm_left_ns <= 0) start_allreduce(s);
        if (s->has_just_started && can_skip && apply_known_suffix(s)) return 1;
        advance_to_next_event(s);
    }
    return 0;
}

void tandem_iteration_by_events(tandem_iteration *iteration, tandem_replayer *replayer, int recorded,
                                double begin_ns)
{
    class_progress progress[TANDEM_MAX_CLASS];
    event_simulation s = {.replayer = replayer,
                          .iteration = iteration,
                          .n_class = replayer->n_class,
                          .n_bucket = replayer->n_bucket,
                          .progress = progress,
                          .recording = recorded,
                          .begin_ns = begin_ns};
    if (!run_iteration(&s)) finish_iteration(&s);
    store_suffixes(&s);
}
