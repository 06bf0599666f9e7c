/* list.c: the tasks of a class that its compute stream runs in the current plan, with sums of their times,
 * so that the simulation moves over any stretch of them at once. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "replayer/measured.h"
#include "replayer/stages.h"

static int needs_alone(const tandem_replay_member *member) { return !member->is_own_neighbour; }
static int needs_beside(const tandem_replay_member *member) { return member->neighbour[0] != '\0'; }

static const tandem_form *form_of(const tandem_replay_member *member, int t)
{
    return &member->costs.form[(size_t)t * TANDEM_MAX_VARIANT + (size_t)member->step->task[t].variant];
}

/* In which company the time of a form is needed and not known; −1 = in none. */
static int missing_in(const tandem_replay_member *member, const tandem_form *form)
{
    if (needs_alone(member) && form->ns[TANDEM_ALONE] < 0) return TANDEM_ALONE;
    return needs_beside(member) && form->ns[TANDEM_BESIDE] < 0 ? TANDEM_BESIDE : -1;
}

static int missing_of(const tandem_replay_member *member, int t)
{
    return missing_in(member, form_of(member, t));
}

/* Whether a task of the plan lacks a time. */
static int is_missing(const tandem_replay_member *member, int t)
{
    const tandem_task *task = &member->step->task[t];
    return task->active && task->stream == TANDEM_STREAM_COMPUTE && missing_of(member, t) >= 0;
}

/* Whether the task's cost is filed under another key than those of the tasks before it that lack theirs; its text. */
static int is_new_key(char text[TANDEM_COST_KEY_TEXT], const tandem_replay_member *member, int first, int t)
{
    const tandem_step *step = member->step;
    char earlier[TANDEM_COST_KEY_TEXT];
    tandem_cost_key key;
    if (!tandem_step_key(step, t, step->task[t].variant, &key)) return 0;
    tandem_cost_key_print(text, TANDEM_COST_KEY_TEXT, &key);
    for (int k = first; k < t; k++) {
        if (!is_missing(member, k) || !tandem_step_key(step, k, step->task[k].variant, &key)) continue;
        tandem_cost_key_print(earlier, sizeof earlier, &key);
        if (strcmp(earlier, text) == 0) return 0;
    }
    return 1;
}

/* Names the first cost that is missing, how many tasks more lack theirs, and the next two of other keys. */
static tandem_status report_missing(const tandem_replay_member *member, tandem_error *error)
{
    const tandem_step *step = member->step;
    char more[2 * TANDEM_COST_KEY_TEXT + 80] = "", such[2 * TANDEM_COST_KEY_TEXT + 16] = "",
                                         text[TANDEM_COST_KEY_TEXT];
    int first = -1, n = 0, n_named = 0;
    for (int t = 0; t < step->n_task; t++) {
        if (!is_missing(member, t)) continue;
        if (first < 0) first = t;
        n++;
        if (first == t || n_named == 2 || !is_new_key(text, member, first, t)) continue;
        const size_t used = strlen(such);
        (void)snprintf(such + used, sizeof such - used, "%s'%s'", n_named++ ? ", " : "", text);
    }
    assert(first >= 0);
    if (n > 1)
        (void)snprintf(more, sizeof more, ", nor have %d more tasks of this plan%s%s%s", n - 1,
                       such[0] ? " (" : "", such, such[0] ? ")" : "");
    const char *beside = missing_of(member, first) == TANDEM_ALONE ? "" : member->neighbour;
    return tandem_costs_missing(step, first, step->task[first].variant, member->device, beside,
                                member->neighbour, more, error);
}

/* Returns the bits of the times that were put in: negative where one of those that are needed is missing. */
static int64_t put(tandem_replay_member *member, int t)
{
    const int i = member->n_place++;
    const tandem_form *form = form_of(member, t);
    int64_t seen = 0;
    member->task[i] = t;
    if (needs_alone(member)) seen |= form->ns[TANDEM_ALONE];
    if (needs_beside(member)) seen |= form->ns[TANDEM_BESIDE];
    for (int company = 0; company < TANDEM_N_COMPANY; company++)
        member->sum[company][i + 1] = member->sum[company][i] + form->ns[company];
    return seen;
}

tandem_status tandem_replay_list(tandem_replay_member *member, int n_bucket, tandem_error *error)
{
    const tandem_step *step = member->step;
    int64_t seen = 0;
    member->n_place = 0;
    member->sum[TANDEM_ALONE][0] = member->sum[TANDEM_BESIDE][0] = 0;
    seen |= put(member, step->bucket[n_bucket - 1].update_task);
    for (int t = 0; t < step->n_task; t++) {
        const tandem_task *task = &step->task[t];
        if (!task->active) continue;
        if (task->kind == TANDEM_TASK_REDUCE) {
            member->stop[task->bucket] = member->n_place;
            continue;
        }
        if (task->kind == TANDEM_TASK_UPDATE) {
            member->stop[n_bucket + task->bucket] = member->n_place;
            if (task->bucket == n_bucket - 1) continue; /* is in the first place */
        }
        seen |= put(member, t);
    }
    return seen < 0 ? report_missing(member, error) : TANDEM_OK;
}

int tandem_replayer_measured(const tandem_replayer *replayer, int c, int task, int variant)
{
    const tandem_replay_member *member = &replayer->member[c];
    return missing_in(member, &member->costs.form[(size_t)task * TANDEM_MAX_VARIANT + (size_t)variant]) < 0;
}

tandem_status tandem_replayer_missing(const tandem_replayer *replayer, int c, int task, int variant,
                                      tandem_error *error)
{
    const tandem_replay_member *member = &replayer->member[c];
    const tandem_form *form = &member->costs.form[(size_t)task * TANDEM_MAX_VARIANT + (size_t)variant];
    const char *beside = missing_in(member, form) == TANDEM_ALONE ? "" : member->neighbour;
    return tandem_costs_missing(member->step, task, variant, member->device, beside, member->neighbour, "", error);
}
