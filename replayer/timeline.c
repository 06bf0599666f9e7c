/* timeline.c: a recorded step as events: first what the compute stream does, in order, waits between; then
 * the all-reduces. */
#include <math.h>

#include "replayer/stages.h"

/* The step begins where the first class begins its forward pass. */
static double origin_of(const tandem_replayer *replayer)
{
    double origin = INFINITY;
    for (int c = 0; c < replayer->n_class; c++)
        origin = fmin(origin, replayer->member[c].start_ns[replayer->member[c].n_lead]);
    return origin;
}

static void append(tandem_replay_member *member, double origin, double start_ns, double end_ns, int task)
{
    tandem_trace_event *event = &member->event[member->n_event++];
    *event = (tandem_trace_event){llround(start_ns - origin), llround(end_ns - origin), task};
}

/* The compute stream's events join: what is computed to begin when its predecessor ends may differ in the
 * last bit, and would then be rounded to another nanosecond. */
static void append_joined(tandem_replay_member *member, double origin, double start_ns, double end_ns,
                          int task)
{
    append(member, origin, start_ns, end_ns, task);
    if (member->n_event < 2) return;
    tandem_trace_event *event = &member->event[member->n_event - 1];
    const int64_t gap = event->start_ns - event[-1].end_ns;
    if (gap == 1 || gap == -1) event->start_ns = event[-1].end_ns;
    if (event->end_ns < event->start_ns) event->end_ns = event->start_ns;
}

static void append_place(tandem_replay_member *member, double origin, int place)
{
    append_joined(member, origin, member->start_ns[place], member->end_ns[place], member->task[place]);
}

static void append_wait(tandem_replay_member *member, double origin, int bucket)
{
    const double start = member->wait_start_ns[bucket], end = member->wait_end_ns[bucket];
    if (llround(end - origin) > llround(start - origin)) append_joined(member, origin, start, end, -1);
}

static void make(const tandem_replayer *replayer, tandem_replay_member *member, double origin)
{
    const int n_bucket = replayer->n_bucket;
    int bucket = 0;
    member->n_event = 0;
    for (int i = member->n_lead; i < member->n_place; i++) {
        for (; member->wait_place[bucket] == i; bucket++) append_wait(member, origin, bucket);
        append_place(member, origin, i);
    }
    for (; bucket < n_bucket; bucket++) append_wait(member, origin, bucket);
    for (int i = 0; i < member->n_lead; i++) append_place(member, origin, i);
    for (int b = 0; b < n_bucket; b++)
        append(member, origin, replayer->wire_start_ns[b], replayer->wire_end_ns[b],
               member->step->bucket[b].reduce_task);
}

void tandem_timeline_make(tandem_replayer *replayer)
{
    const double origin = origin_of(replayer);
    for (int c = 0; c < replayer->n_class; c++) make(replayer, &replayer->member[c], origin);
}
