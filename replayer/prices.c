/* prices.c: the times of the tasks of a plan, summed by block and by stretch: a change of one task is O(1),
 * where the stops are is O(buckets), and a place within a stretch is found without a list of all tasks before
 * it. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "replayer/measured.h"
#include "replayer/stages.h"

/* --- Stretches and blocks ------------------------------------------------------------------------------- */

/* First and last task of a stretch, without those that begin the list. */
static tandem_block tasks_of(const tandem_step *step, int s)
{
    const int n_bucket = step->n_bucket;
    if (s > n_bucket) {
        const int update = step->bucket[s - n_bucket - 1].update_task;
        return (tandem_block){update, step->norm_task < 0 ? update + 1 : update};
    }
    return (tandem_block){s == 0 ? 0 : step->bucket[s - 1].reduce_task + 1,
                          s < n_bucket ? step->bucket[s].reduce_task : tandem_replay_behind(step)};
}

static void add_blocks(tandem_replay_member *member, int *n_block, int s, tandem_block tasks)
{
    for (int t = tasks.first; t < tasks.end; t += TANDEM_BLOCK) {
        const int end = tasks.end - t > TANDEM_BLOCK ? t + TANDEM_BLOCK : tasks.end;
        for (int k = t; k < end; k++) member->block_of[k] = *n_block;
        member->block[*n_block] = (tandem_block){t, end};
        member->stretch_of[(*n_block)++] = s;
    }
}

static void cut(tandem_replay_member *member, int n_bucket)
{
    int n_block = 0;
    for (int b = 0; b < n_bucket; b++) member->block_of[member->step->bucket[b].reduce_task] = -1;
    for (int s = 0; s < 2 * n_bucket; s++) {
        member->stretch_block[s] = n_block;
        if (s == 0) add_blocks(member, &n_block, s, tandem_replay_lead(member->step));
        if (s == 0) member->n_lead_block = n_block;
        add_blocks(member, &n_block, s, tasks_of(member->step, s));
    }
    member->stretch_block[2 * n_bucket] = n_block;
}

int tandem_prices_open(tandem_replay_member *member, int n_bucket)
{
    const size_t n_task = (size_t)member->step->n_task, n_stretch = 2 * (size_t)n_bucket;
    const size_t most_blocks = n_task / TANDEM_BLOCK + n_stretch + 1;
    member->price_ns = calloc(n_task, sizeof *member->price_ns);
    member->block = malloc(most_blocks * sizeof *member->block);
    member->block_of = malloc(n_task * sizeof *member->block_of);
    member->stretch_of = malloc(most_blocks * sizeof *member->stretch_of);
    member->stretch_block = malloc((n_stretch + 1) * sizeof *member->stretch_block);
    member->block_ns = calloc(most_blocks, sizeof *member->block_ns);
    member->stretch_ns = calloc(n_stretch, sizeof *member->stretch_ns);
    int whole = member->price_ns && member->block && member->block_of && member->stretch_of &&
                member->stretch_block && member->block_ns && member->stretch_ns;
    for (int pace = 0; pace < member->n_pace; pace++) {
        member->hand_ns[pace] = calloc((size_t)n_bucket, sizeof *member->hand_ns[pace]);
        member->wait_ns[pace] = calloc((size_t)n_bucket, sizeof *member->wait_ns[pace]);
        whole = whole && member->hand_ns[pace] && member->wait_ns[pace];
    }
    if (whole) cut(member, n_bucket);
    return whole;
}

void tandem_prices_close(tandem_replay_member *member)
{
    for (int pace = 0; pace < TANDEM_N_PACE; pace++) {
        free(member->wait_ns[pace]);
        free(member->hand_ns[pace]);
    }
    free(member->stretch_ns);
    free(member->block_ns);
    free(member->stretch_block);
    free(member->stretch_of);
    free(member->block_of);
    free(member->block);
    free(member->price_ns);
}

/* --- Changes -------------------------------------------------------------------------------------------- */

static int is_missing(const tandem_replay_member *member, const int64_t *price_ns)
{
    int missing = 0;
    for (int pace = 0; pace < member->n_pace; pace++) missing |= price_ns[pace] < 0;
    return missing;
}

void tandem_prices_update(tandem_replay_member *member, int t)
{
    const tandem_task *task = &member->step->task[t];
    const tandem_form *form = &member->costs.form[(size_t)t * TANDEM_MAX_VARIANT + (size_t)task->variant];
    int64_t *price = member->price_ns[t];
    const int block = member->block_of[t];
    if (block < 0) return;
    const int stretch = member->stretch_of[block];
    member->n_missing -= is_missing(member, price);
    for (int pace = 0; pace < member->n_pace; pace++) {
        const int64_t now = task->active ? form->ns[member->company[pace]] : 0, more = now - price[pace];
        price[pace] = now;
        member->block_ns[block][pace] += more;
        member->stretch_ns[stretch][pace] += more;
    }
    member->n_missing += is_missing(member, price);
    if (stretch < member->first_changed) member->first_changed = stretch;
    if (stretch > member->last_changed) member->last_changed = stretch;
    if (task->kind == TANDEM_TASK_UPDATE) member->update_changed = 1;
}

/* Of all micro-steps but the last, which come before every stop. */
static int64_t lead_ns(tandem_replay_member *member, int n_bucket, int pace)
{
    const int n_micro = member->step->options.n_micro;
    if (n_micro == 1) return 0;
    int64_t sum = 0;
    for (int k = 0; k < member->n_lead_block; k++) sum -= member->block_ns[k][pace];
    for (int s = 0; s <= n_bucket; s++) sum += member->stretch_ns[s][pace];
    member->micro_ns[pace] = sum;
    return (n_micro - 1) * sum;
}

static void settle_pace(tandem_replay_member *member, int n_bucket, int pace)
{
    int64_t(*const stretch_ns)[TANDEM_N_PACE] = member->stretch_ns;
    double *hand_ns = member->hand_ns[pace], *wait_ns = member->wait_ns[pace];
    int64_t sum = lead_ns(member, n_bucket, pace);
    int s = sum > 0 ? 0 : member->first_changed;
    if (s > 0 && s <= n_bucket) sum = (int64_t)hand_ns[s - 1];
    for (; s < n_bucket; s++) {
        sum += stretch_ns[s][pace];
        hand_ns[s] = (double)sum;
    }
    if (s == n_bucket) member->backward_ns[pace] = (double)(sum + stretch_ns[s][pace]);
    if (!member->update_changed) return;
    sum = 0;
    for (int b = 1; b < n_bucket; b++) {
        sum += stretch_ns[n_bucket + b][pace];
        wait_ns[b] = (double)sum;
    }
}

void tandem_prices_settle(tandem_replay_member *member, int n_bucket)
{
    for (int pace = 0; pace < member->n_pace; pace++) settle_pace(member, n_bucket, pace);
    member->first_changed = 2 * n_bucket;
    member->last_changed = -1;
    member->lead_changed = 1;
    member->behind_changed |= member->update_changed;
    member->update_changed = 0;
}

/* --- Places --------------------------------------------------------------------------------------------- */

/* Where stretch s begins: at the stop that ends the one before it. */
static double begin_of(const tandem_replay_member *member, int n_bucket, int s, int pace)
{
    if (s == 0) return 0;
    return s <= n_bucket ? member->hand_ns[pace][s - 1]
                         : member->backward_ns[pace] + member->wait_ns[pace][s - 1 - n_bucket];
}

/* The last stretch that begins at or before `at_ns`; most likely the one that is named. */
static int stretch_at(const tandem_replay_member *member, int n_bucket, double at_ns, int pace, int likely)
{
    int low = 0, high = 2 * n_bucket;
    if (begin_of(member, n_bucket, likely, pace) <= at_ns)
        low = likely;
    else
        high = likely;
    if (low == likely && (low + 1 == high || begin_of(member, n_bucket, low + 1, pace) > at_ns)) return low;
    while (high - low > 1) {
        const int middle = low + (high - low) / 2;
        if (begin_of(member, n_bucket, middle, pace) <= at_ns)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* Within the first stretch: goes on by whole micro-steps, from behind the tasks that begin the list. Returns
 * where the blocks end that it stopped in front of: in the last micro-step those of the stretch, else those
 * of a whole one. */
static int pass_micro_steps(const tandem_replay_member *member, int n_bucket, int from, int to, int64_t *left,
                            int64_t *passed)
{
    const int64_t n_before = member->step->options.n_micro - 1, whole = *left / member->micro_ns[from];
    const int64_t n = whole < n_before ? whole : n_before;
    *left -= n * member->micro_ns[from];
    *passed += n * member->micro_ns[to];
    return member->stretch_block[n < n_before ? n_bucket + 1 : 1]; /* lead blocks are the first stretch's */
}

double tandem_prices_place(const tandem_replay_member *member, int n_bucket, double at_ns, int from, int to,
                           int *stretch)
{
    const int s = stretch_at(member, n_bucket, at_ns, from, *stretch),
              repeats = s == 0 && member->micro_ns[from] > 0;
    const double into_ns = at_ns - begin_of(member, n_bucket, s, from);
    /* times of tasks are whole: what is over counts in the last one only */
    int64_t left = (int64_t)into_ns, passed = 0;
    const double over_ns = into_ns - (double)left;
    int k = member->stretch_block[ *stretch = s], end = member->stretch_block[s + 1];
    for (; k < end && member->block_ns[k][from] <= left; k++) {
        left -= member->block_ns[k][from];
        passed += member->block_ns[k][to];
        if (k == member->n_lead_block - 1 && repeats)
            end = pass_micro_steps(member, n_bucket, from, to, &left, &passed);
    }
    const int last = k < end ? member->block[k].end : 0;
    int t = k < end ? member->block[k].first : 0;
    for (; t < last && member->price_ns[t][from] <= left; t++) {
        left -= member->price_ns[t][from];
        passed += member->price_ns[t][to];
    }
    const double place = begin_of(member, n_bucket, s, to) + (double)passed;
    if (t == last) return place;
    return place +
           ((double)left + over_ns) / (double)member->price_ns[t][from] * (double)member->price_ns[t][to];
}

/* --- What is missing ------------------------------------------------------------------------------------ */

/* Whether the task's cost is filed under another key than those of the tasks from `first` on that lack
 * theirs; its text. */
static int is_new_key(char text[TANDEM_COST_KEY_TEXT], const tandem_replay_member *member, int first, int t)
{
    const tandem_step *step = member->step;
    char earlier[TANDEM_COST_KEY_TEXT];
    tandem_cost_key key;
    if (!tandem_step_key(step, t, step->task[t].variant, &key)) return 0;
    tandem_cost_key_print(text, TANDEM_COST_KEY_TEXT, &key);
    for (int k = first; k < t; k++) {
        if (!is_missing(member, member->price_ns[k]) ||
            !tandem_step_key(step, k, step->task[k].variant, &key))
            continue;
        tandem_cost_key_print(earlier, sizeof earlier, &key);
        if (strcmp(earlier, text) == 0) return 0;
    }
    return 1;
}

/* ", nor have 17 more tasks of this plan ('KEY', 'KEY')": two of other keys than the first one's, if they are
 * short enough to leave room for what to do about it. */
static void print_more(char *text, size_t size, const tandem_replay_member *member, int first)
{
    char such[320] = "", key[TANDEM_COST_KEY_TEXT];
    int n_named = 0;
    for (int t = first + 1; t < member->step->n_task && n_named < 2; t++) {
        const size_t used = strlen(such);
        if (!is_missing(member, member->price_ns[t]) || !is_new_key(key, member, first, t)) continue;
        if (used + strlen(key) + sizeof ", ''" > sizeof such) continue;
        (void)snprintf(such + used, sizeof such - used, "%s'%s'", n_named++ ? ", " : "", key);
    }
    (void)snprintf(text, size, ", nor have %d more tasks of this plan%s%s%s", member->n_missing - 1,
                   such[0] ? " (" : "", such, such[0] ? ")" : "");
}

tandem_status tandem_prices_missing(const tandem_replay_member *member, tandem_error *error)
{
    const tandem_step *step = member->step;
    char more[400] = "";
    int first = 0;
    while (!is_missing(member, member->price_ns[first])) first++;
    if (member->n_missing > 1) print_more(more, sizeof more, member, first);
    const int alone =
        member->company[TANDEM_USUAL] == TANDEM_ALONE && member->price_ns[first][TANDEM_USUAL] < 0;
    return tandem_costs_missing(step, first, step->task[first].variant, member->device,
                                alone ? "" : member->neighbour, member->neighbour, more, error);
}

/* --- Forms that the plan need not have ------------------------------------------------------------------ */

static const tandem_form *form_at(const tandem_replayer *replayer, int c, int task, int variant)
{
    return &replayer->member[c].costs.form[(size_t)task * TANDEM_MAX_VARIANT + (size_t)variant];
}

int tandem_replayer_measured(const tandem_replayer *replayer, int c, int task, int variant)
{
    const tandem_replay_member *member = &replayer->member[c];
    const tandem_form *form = form_at(replayer, c, task, variant);
    int64_t price_ns[TANDEM_N_PACE];
    for (int pace = 0; pace < member->n_pace; pace++) price_ns[pace] = form->ns[member->company[pace]];
    return !is_missing(member, price_ns);
}

tandem_status tandem_replayer_missing(const tandem_replayer *replayer, int c, int task, int variant,
                                      tandem_error *error)
{
    const tandem_replay_member *member = &replayer->member[c];
    const int alone = member->company[TANDEM_USUAL] == TANDEM_ALONE &&
                      form_at(replayer, c, task, variant)->ns[TANDEM_ALONE] < 0;
    return tandem_costs_missing(member->step, task, variant, member->device, alone ? "" : member->neighbour,
                                member->neighbour, "", error);
}
