/* timeline.c: a recorded step as events: the tasks and waits of the compute stream in order, then the
 * all-reduces. */
#include <math.h>

#include "replayer/internal.h"

/* The step begins where the first class begins its forward pass. */
static double first_forward_start_ns(const tandem_replayer *replayer)
{
    double step_start_ns = INFINITY;
    for (int c = 0; c < replayer->n_class; c++)
        step_start_ns = fmin(step_start_ns, replayer->classes[c].start_ns[replayer->classes[c].n_head]);
    return step_start_ns;
}

static void append_event(tandem_sim_class *class, double step_start_ns, double start_ns, double end_ns,
                         int task)
{
    tandem_trace_event *event = &class->event[class->n_event++];
    *event = (tandem_trace_event){llround(start_ns - step_start_ns), llround(end_ns - step_start_ns), task};
}

/* Closes gaps of 1 ns on the compute stream: where an event starts when the one before ends, the two times
 * may differ in the last bit and round to different nanoseconds. */
static void append_joined_event(tandem_sim_class *class, double step_start_ns, double start_ns, double end_ns,
                                int task)
{
    append_event(class, step_start_ns, start_ns, end_ns, task);
    if (class->n_event < 2) return;
    tandem_trace_event *event = &class->event[class->n_event - 1];
    const int64_t gap = event->start_ns - event[-1].end_ns;
    if (gap == 1 || gap == -1) event->start_ns = event[-1].end_ns;
    if (event->end_ns < event->start_ns) event->end_ns = event->start_ns;
}

static void append_task_event(tandem_sim_class *class, double step_start_ns, int position)
{
    append_joined_event(class, step_start_ns, class->start_ns[position], class->end_ns[position],
                        class->task[position]);
}

static void append_wait_event(tandem_sim_class *class, double step_start_ns, int bucket)
{
    const double start = class->wait_start_ns[bucket], end = class->wait_end_ns[bucket];
    if (llround(end - step_start_ns) > llround(start - step_start_ns))
        append_joined_event(class, step_start_ns, start, end, -1);
}

static void build_class_timeline(const tandem_replayer *replayer, tandem_sim_class *class,
                                 double step_start_ns)
{
    const int n_bucket = replayer->n_bucket;
    int bucket = 0;
    class->n_event = 0;
    for (int i = class->n_head; i < class->list_length; i++) {
        for (; class->wait_position[bucket] == i; bucket++) append_wait_event(class, step_start_ns, bucket);
        append_task_event(class, step_start_ns, i);
    }
    for (; bucket < n_bucket; bucket++) append_wait_event(class, step_start_ns, bucket);
    for (int i = 0; i < class->n_head; i++) append_task_event(class, step_start_ns, i);
    for (int b = 0; b < n_bucket; b++)
        append_event(class, step_start_ns, replayer->allreduce_start_ns[b], replayer->allreduce_end_ns[b],
                     class->step->bucket[b].reduce_task);
}

void tandem_timeline_build(tandem_replayer *replayer)
{
    const double step_start_ns = first_forward_start_ns(replayer);
    for (int c = 0; c < replayer->n_class; c++)
        build_class_timeline(replayer, &replayer->classes[c], step_start_ns);
}
