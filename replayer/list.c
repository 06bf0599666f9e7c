/* list.c: the tasks of a class that its compute stream runs in the current plan, one by one, for the
 * timeline. */
#include <assert.h>

#include "graph/step_index.h"
#include "replayer/stages.h"

static void put(tandem_replay_member *member, int t)
{
    const int i = member->n_place++;
    member->task[i] = t;
    for (int pace = 0; pace < member->n_pace; pace++)
        member->sum[pace][i + 1] = member->sum[pace][i] + member->price_ns[t][pace];
}

/* One that hands nothing over. */
static void put_micro_step(tandem_replay_member *member)
{
    const tandem_step *step = member->step;
    for (int t = next_active(step, 0); t < tandem_replay_behind(step); t = next_active(step, t + 1))
        if (step->task[t].kind != TANDEM_TASK_REDUCE) put(member, t);
}

void tandem_replay_list(tandem_replay_member *member)
{
    const tandem_step *step = member->step;
    member->n_place = 0;
    for (int pace = 0; pace < member->n_pace; pace++) member->sum[pace][0] = 0;
    const tandem_block lead = tandem_replay_lead(step);
    for (int t = lead.first; t < lead.end; t++) put(member, t);
    member->n_lead = member->n_place;
    for (int micro = 1; micro < step->options.n_micro; micro++) put_micro_step(member);
    for (int t = next_active(step, 0); t < step->n_task; t = next_active(step, t + 1)) {
        const tandem_task *task = &step->task[t];
        if (task->kind == TANDEM_TASK_REDUCE) continue;
        if (task->kind == TANDEM_TASK_UPDATE) member->wait_place[task->bucket] = member->n_place;
        if (t < lead.first) put(member, t);
    }
}
