/* cost_sums.c: the task times of a plan, summed by block and by interval. A change of one task costs O(1),
 * the list times of all synchronization points cost O(buckets), and a time within an interval is converted
 * without a list of all tasks before it. */
#include <stdio.h>
#include <string.h>

#include "replayer/internal.h"

/* --- Intervals and blocks ------------------------------------------------------------------------------- */

/* The tasks of an interval, without the head. */
static tandem_task_range interval_tasks(const tandem_step *step, int s)
{
    const int n_bucket = step->n_bucket;
    if (s > n_bucket) {
        const int update = step->bucket[s - n_bucket - 1].update_task;
        return (tandem_task_range){update, step->norm_task < 0 ? update + 1 : update};
    }
    return (tandem_task_range){s == 0 ? 0 : step->bucket[s - 1].reduce_task + 1,
                               s < n_bucket ? step->bucket[s].reduce_task
                                            : tandem_first_after_backward(step)};
}

static void add_blocks(tandem_sim_class *class, int *n_block, int s, tandem_task_range tasks)
{
    for (int t = tasks.first; t < tasks.end; t += TANDEM_TASKS_PER_BLOCK) {
        const int end = tasks.end - t > TANDEM_TASKS_PER_BLOCK ? t + TANDEM_TASKS_PER_BLOCK : tasks.end;
        for (int k = t; k < end; k++) class->block_of[k] = *n_block;
        class->block[*n_block] = (tandem_task_range){t, end};
        class->interval_of[(*n_block)++] = s;
    }
}

static void cut_intervals(tandem_sim_class *class, int n_bucket)
{
    int n_block = 0;
    for (int b = 0; b < n_bucket; b++) class->block_of[class->step->bucket[b].reduce_task] = -1;
    for (int s = 0; s < 2 * n_bucket; s++) {
        class->interval_block[s] = n_block;
        if (s == 0) add_blocks(class, &n_block, s, tandem_head_tasks(class->step));
        if (s == 0) class->n_head_block = n_block;
        add_blocks(class, &n_block, s, interval_tasks(class->step, s));
    }
    class->interval_block[2 * n_bucket] = n_block;
}

int tandem_cost_sums_open(tandem_sim_class *class, tandem_arena *arena, int n_bucket)
{
    const size_t n_task = (size_t) class->step->n_task, n_interval = 2 * (size_t)n_bucket;
    const size_t max_block = n_task / TANDEM_TASKS_PER_BLOCK + n_interval + 1;
    for (int rate = 0; rate < class->n_rate; rate++)
        if (!(class->ready_ns[rate] = tandem_arena_array(arena, (size_t)n_bucket, sizeof(double))) ||
            !(class->wait_ns[rate] = tandem_arena_array(arena, (size_t)n_bucket, sizeof(double))))
            return 0;
    const int is_complete =
        (class->task_ns = tandem_arena_array(arena, n_task, sizeof *class->task_ns)) &&
        (class->block = tandem_arena_array(arena, max_block, sizeof *class->block)) &&
        (class->block_of = tandem_arena_array(arena, n_task, sizeof *class->block_of)) &&
        (class->interval_of = tandem_arena_array(arena, max_block, sizeof *class->interval_of)) &&
        (class->interval_block = tandem_arena_array(arena, n_interval + 1, sizeof *class->interval_block)) &&
        (class->block_ns = tandem_arena_array(arena, max_block, sizeof *class->block_ns)) &&
        (class->interval_ns = tandem_arena_array(arena, n_interval, sizeof *class->interval_ns));
    if (is_complete) cut_intervals(class, n_bucket);
    return is_complete;
}

/* --- Changes -------------------------------------------------------------------------------------------- */

static int is_cost_missing(const tandem_sim_class *class, const int64_t *task_ns)
{
    int missing = 0;
    for (int rate = 0; rate < class->n_rate; rate++) missing |= task_ns[rate] < 0;
    return missing;
}

void tandem_cost_sums_set_task(tandem_sim_class *class, int t)
{
    const tandem_task *task = &class->step->task[t];
    const tandem_variant_cost *variant_cost = tandem_variant_cost_of(&class->costs, t, task->variant);
    int64_t *task_ns = class->task_ns[t];
    const int block = class->block_of[t];
    if (block < 0) return;
    const int interval = class->interval_of[block];
    class->n_missing -= is_cost_missing(class, task_ns);
    for (int rate = 0; rate < class->n_rate; rate++) {
        const int64_t now = task->active ? variant_cost->ns[class->contention[rate]] : 0,
                      more = now - task_ns[rate];
        task_ns[rate] = now;
        class->block_ns[block][rate] += more;
        class->interval_ns[interval][rate] += more;
    }
    class->n_missing += is_cost_missing(class, task_ns);
    if (interval < class->first_dirty) class->first_dirty = interval;
    if (interval > class->last_dirty) class->last_dirty = interval;
    if (task->kind == TANDEM_TASK_UPDATE) class->is_update_dirty = 1;
}

/* Of all micro-steps but the last, which come before every synchronization point. */
static int64_t earlier_micro_steps_ns(tandem_sim_class *class, int n_bucket, int rate)
{
    const int n_micro = class->step->options.n_micro;
    if (n_micro == 1) return 0;
    int64_t sum = 0;
    for (int k = 0; k < class->n_head_block; k++) sum -= class->block_ns[k][rate];
    for (int s = 0; s <= n_bucket; s++) sum += class->interval_ns[s][rate];
    class->micro_ns[rate] = sum;
    return (n_micro - 1) * sum;
}

static void update_sync_points(tandem_sim_class *class, int n_bucket, int rate)
{
    int64_t(*const interval_ns)[TANDEM_N_COMPUTE_RATE] = class->interval_ns;
    double *ready_ns = class->ready_ns[rate], *wait_ns = class->wait_ns[rate];
    int64_t sum = earlier_micro_steps_ns(class, n_bucket, rate);
    int s = sum > 0 ? 0 : class->first_dirty;
    if (s > 0 && s <= n_bucket) sum = (int64_t)ready_ns[s - 1];
    for (; s < n_bucket; s++) {
        sum += interval_ns[s][rate];
        ready_ns[s] = (double)sum;
    }
    if (s == n_bucket) class->backward_ns[rate] = (double)(sum + interval_ns[s][rate]);
    if (!class->is_update_dirty) return;
    sum = 0;
    for (int b = 1; b < n_bucket; b++) {
        sum += interval_ns[n_bucket + b][rate];
        wait_ns[b] = (double)sum;
    }
}

void tandem_cost_sums_update(tandem_sim_class *class, int n_bucket)
{
    for (int rate = 0; rate < class->n_rate; rate++) update_sync_points(class, n_bucket, rate);
    class->first_dirty = 2 * n_bucket;
    class->last_dirty = -1;
    class->is_slack_dirty = 1;
    class->is_lag_dirty |= class->is_update_dirty;
    class->is_update_dirty = 0;
}

/* --- Conversion between rates --------------------------------------------------------------------------- */

/* The list time at which interval s begins: that of the synchronization point that ends the one before. */
static double interval_begin_ns(const tandem_sim_class *class, int n_bucket, int s, int rate)
{
    if (s == 0) return 0;
    return s <= n_bucket ? class->ready_ns[rate][s - 1]
                         : class->backward_ns[rate] + class->wait_ns[rate][s - 1 - n_bucket];
}

/* The last interval that begins at or before `at_ns`. likely: a guess. */
static int find_interval(const tandem_sim_class *class, int n_bucket, double at_ns, int rate, int likely)
{
    int low = 0, high = 2 * n_bucket;
    if (interval_begin_ns(class, n_bucket, likely, rate) <= at_ns)
        low = likely;
    else
        high = likely;
    if (low == likely && (low + 1 == high || interval_begin_ns(class, n_bucket, low + 1, rate) > at_ns))
        return low;
    while (high - low > 1) {
        const int middle = low + (high - low) / 2;
        if (interval_begin_ns(class, n_bucket, middle, rate) <= at_ns)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* Skips whole micro-steps in the first interval, from the end of the head on. Returns the end of the blocks
 * to go on with: in the last micro-step that of the interval, else that of a whole micro-step. */
static int skip_micro_steps(const tandem_sim_class *class, int n_bucket, int from, int to, int64_t *left,
                            int64_t *passed)
{
    const int64_t n_before = class->step->options.n_micro - 1, n_whole = *left / class->micro_ns[from];
    const int64_t n = n_whole < n_before ? n_whole : n_before;
    *left -= n * class->micro_ns[from];
    *passed += n * class->micro_ns[to];
    return class->interval_block[n < n_before ? n_bucket + 1 : 1]; /* interval 0 holds the head's blocks */
}

double tandem_cost_sums_convert_ns(const tandem_sim_class *class, int n_bucket, double at_ns, int from,
                                   int to, int *interval)
{
    const int s = find_interval(class, n_bucket, at_ns, from, *interval),
              has_micro_steps = s == 0 && class->micro_ns[from] > 0;
    const double into_ns = at_ns - interval_begin_ns(class, n_bucket, s, from);
    /* Task times are whole: the fraction matters in the last task only. */
    int64_t left = (int64_t)into_ns, passed = 0;
    const double fraction_ns = into_ns - (double)left;
    int k = class->interval_block[s], end = class->interval_block[s + 1];
    *interval = s;
    for (; k < end && class->block_ns[k][from] <= left; k++) {
        left -= class->block_ns[k][from];
        passed += class->block_ns[k][to];
        if (k == class->n_head_block - 1 && has_micro_steps)
            end = skip_micro_steps(class, n_bucket, from, to, &left, &passed);
    }
    const int last = k < end ? class->block[k].end : 0;
    int t = k < end ? class->block[k].first : 0;
    for (; t < last && class->task_ns[t][from] <= left; t++) {
        left -= class->task_ns[t][from];
        passed += class->task_ns[t][to];
    }
    const double at_other_ns = interval_begin_ns(class, n_bucket, s, to) + (double)passed;
    if (t == last) return at_other_ns;
    return at_other_ns +
           ((double)left + fraction_ns) / (double)class->task_ns[t][from] * (double)class->task_ns[t][to];
}

/* --- Missing costs -------------------------------------------------------------------------------------- */

/* Whether no task from `first` to t misses a cost under the key that t's is missing under. text: that key. */
static int is_new_missing_key(char text[TANDEM_COST_KEY_TEXT], const tandem_sim_class *class, int first,
                              int t)
{
    const tandem_step *step = class->step;
    char earlier[TANDEM_COST_KEY_TEXT];
    tandem_cost_key key;
    if (!tandem_step_cost_key(step, t, step->task[t].variant, &key)) return 0;
    tandem_cost_key_print(text, TANDEM_COST_KEY_TEXT, &key);
    for (int k = first; k < t; k++) {
        if (!is_cost_missing(class, class->task_ns[k]) ||
            !tandem_step_cost_key(step, k, step->task[k].variant, &key))
            continue;
        tandem_cost_key_print(earlier, sizeof earlier, &key);
        if (strcmp(earlier, text) == 0) return 0;
    }
    return 1;
}

/* ", nor have 17 more tasks of this plan ('KEY', 'KEY')": names two other keys, where they leave enough room
 * for the rest of the message. */
static void print_more_missing(char *text, size_t size, const tandem_sim_class *class, int first)
{
    char named[320] = "", key[TANDEM_COST_KEY_TEXT];
    int n_named = 0;
    for (int t = first + 1; t < class->step->n_task && n_named < 2; t++) {
        const size_t used = strlen(named);
        if (!is_cost_missing(class, class->task_ns[t]) || !is_new_missing_key(key, class, first, t)) continue;
        if (used + strlen(key) + sizeof ", ''" > sizeof named) continue;
        (void)snprintf(named + used, sizeof named - used, "%s'%s'", n_named++ ? ", " : "", key);
    }
    (void)snprintf(text, size, ", nor have %d more tasks of this plan%s%s%s", class->n_missing - 1,
                   named[0] ? " (" : "", named, named[0] ? ")" : "");
}

static tandem_status report_missing_cost(const tandem_sim_class *class, int t, int variant, const char *more,
                                         tandem_error *error)
{
    const int is_alone = class->contention[TANDEM_RATE_USUAL] == TANDEM_ALONE &&
                         tandem_variant_cost_of(&class->costs, t, variant)->ns[TANDEM_ALONE] < 0;
    return tandem_costs_missing(class->step, t, variant, class->device, is_alone ? "" : class->co_runner,
                                class->co_runner, more, error);
}

tandem_status tandem_cost_sums_missing(const tandem_sim_class *class, tandem_error *error)
{
    char more[400] = "";
    int first = 0;
    while (!is_cost_missing(class, class->task_ns[first])) first++;
    if (class->n_missing > 1) print_more_missing(more, sizeof more, class, first);
    return report_missing_cost(class, first, class->step->task[first].variant, more, error);
}

int tandem_replayer_has_cost(const tandem_replayer *replayer, int c, int task, int variant)
{
    const tandem_sim_class *class = &tandem_replayer_program(replayer)->classes[c];
    const tandem_variant_cost *variant_cost = tandem_variant_cost_of(&class->costs, task, variant);
    for (int rate = 0; rate < class->n_rate; rate++)
        if (variant_cost->ns[class->contention[rate]] < 0) return 0;
    return 1;
}

tandem_status tandem_replayer_missing_cost(const tandem_replayer *replayer, int c, int task, int variant,
                                           tandem_error *error)
{
    return report_missing_cost(&tandem_replayer_program(replayer)->classes[c], task, variant, "", error);
}
