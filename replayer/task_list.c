/* task_list.c: lists the tasks that a class's compute stream runs in the current plan, for the timeline. */

#include "replayer/internal.h"

static void append_list_task(tandem_sim_class *class, int t)
{
    const int i = class->list_length++;
    class->task[i] = t;
    for (int rate = 0; rate < class->n_rate; rate++)
        class->sum[rate][i + 1] = class->sum[rate][i] + class->task_ns[t][rate];
}

/* A micro-step but the last: none of its buckets becomes ready. */
static void append_micro_step(tandem_sim_class *class)
{
    const tandem_step *step = class->step;
    for (int t = tandem_step_next_active(step, 0); t < tandem_first_after_backward(step);
         t = tandem_step_next_active(step, t + 1))
        if (!tandem_task_is_collective(step->task[t].kind)) append_list_task(class, t);
}

void tandem_task_list_build(tandem_sim_class *class)
{
    const tandem_step *step = class->step;
    class->list_length = 0;
    for (int rate = 0; rate < class->n_rate; rate++) class->sum[rate][0] = 0;
    const tandem_task_range head = tandem_head_tasks(step);
    for (int t = head.first; t < head.end; t++) append_list_task(class, t);
    class->n_head = class->list_length;
    for (int micro = 1; micro < step->options.n_micro; micro++) append_micro_step(class);
    for (int t = tandem_step_next_active(step, 0); t < step->n_task;
         t = tandem_step_next_active(step, t + 1)) {
        const tandem_task *task = &step->task[t];
        if (tandem_task_is_collective(task->kind)) continue;
        if (task->kind == TANDEM_TASK_UPDATE) class->wait_position[task->bucket] = class->list_length;
        if (t < head.first) append_list_task(class, t);
    }
}
