#include "report/section/critical_path.h"

#include <stdlib.h>
#include <string.h>

#include "base/sort.h"

/* Tasks of one rank by their end, waits left out. */
typedef struct path_finder {
    const tandem_step_timeline *timeline;
    int *by_end;              /* [n_task] indices, by rank and end */
    int *of_reduce, n_reduce; /* indices of all-reduces by id, then by start */
    unsigned char *is_critical;
    int *limit; /* [n_rank] of by_end: tasks from here on were passed */
} path_finder;

static int is_all_reduce(const tandem_step_timeline *t, int k)
{
    return strcmp(t->text[t->task[k].kind], "all-reduce") == 0;
}

static int compare_ends(const void *left, const void *right, void *context)
{
    const tandem_timeline_task *const task = context, *const a = &task[*(const int *)left],
                                      *const b = &task[*(const int *)right];
    int order = TANDEM_ORDER(a->rank, b->rank);
    if (!order) order = TANDEM_ORDER(a->end_ns, b->end_ns);
    return order ? order : TANDEM_ORDER(*(const int *)left, *(const int *)right);
}

static int compare_reduces(const void *left, const void *right, void *context)
{
    const tandem_timeline_task *const task = context, *const a = &task[*(const int *)left],
                                      *const b = &task[*(const int *)right];
    int order = TANDEM_ORDER(a->id, b->id);
    if (!order) order = TANDEM_ORDER(a->start_ns, b->start_ns);
    return order ? order : TANDEM_ORDER(*(const int *)left, *(const int *)right);
}

/* The task of the rank that ended last, not after `ns`; of tasks that end together, the last in order. −1 =
 * none. The path leads back in time, so what was passed once is not looked at again. */
static int find_before(const path_finder *p, int rank, int64_t ns)
{
    const tandem_step_timeline *const t = p->timeline;
    int low = t->rank[rank].first, high = p->limit[rank];
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (t->task[p->by_end[middle]].end_ns <= ns)
            low = middle + 1;
        else
            high = middle;
    }
    for (int k = low - 1; k >= t->rank[rank].first; k--) {
        const int task = p->by_end[k];
        if (t->task[task].id >= 0 && !p->is_critical[task]) return task;
    }
    return -1;
}

/* What the all-reduce waited for: of the tasks that ended before its parts began, the last one. */
static int find_before_reduce(const path_finder *p, int reduce)
{
    const tandem_step_timeline *const t = p->timeline;
    int before = -1, low = 0, high = p->n_reduce;
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (t->task[p->of_reduce[middle]].id < t->task[reduce].id)
            low = middle + 1;
        else
            high = middle;
    }
    for (int k = low; k < p->n_reduce && t->task[p->of_reduce[k]].id == t->task[reduce].id; k++) {
        const tandem_timeline_task *const part = &t->task[p->of_reduce[k]];
        if (part->start_ns > t->task[reduce].end_ns) break;
        const int candidate = find_before(p, part->rank, part->start_ns);
        if (candidate >= 0 && (before < 0 || t->task[candidate].end_ns > t->task[before].end_ns))
            before = candidate;
    }
    return before;
}

static void walk_path(const path_finder *p)
{
    const tandem_step_timeline *const t = p->timeline;
    int at = -1;
    for (int k = 0; k < t->n_task; k++)
        if (t->task[k].id >= 0 && (at < 0 || t->task[k].end_ns > t->task[at].end_ns)) at = k;
    while (at >= 0) {
        const tandem_timeline_task *const task = &t->task[at];
        p->is_critical[at] = 1;
        at = is_all_reduce(t, at) ? find_before_reduce(p, at) : find_before(p, task->rank, task->start_ns);
        if (at < 0) break;
        int *const limit = &p->limit[t->task[at].rank];
        while (*limit > t->rank[t->task[at].rank].first && p->by_end[*limit - 1] != at) --*limit;
    }
}

unsigned char *report_critical_path(const tandem_step_timeline *timeline)
{
    const size_t n = (size_t)timeline->n_task;
    path_finder p = {.timeline = timeline,
                     .by_end = malloc((n + 1) * sizeof(int)),
                     .of_reduce = malloc((n + 1) * sizeof(int)),
                     .is_critical = calloc(n + 1, 1),
                     .limit = malloc(((size_t)timeline->n_rank + 1) * sizeof(int))};
    if (p.by_end && p.of_reduce && p.is_critical && p.limit) {
        for (int r = 0; r < timeline->n_rank; r++) p.limit[r] = timeline->rank[r].first + timeline->rank[r].n;
        for (int k = 0; k < timeline->n_task; k++) {
            p.by_end[k] = k;
            if (is_all_reduce(timeline, k)) p.of_reduce[p.n_reduce++] = k;
        }
        qsort_r(p.by_end, n, sizeof(int), compare_ends, timeline->task);
        qsort_r(p.of_reduce, (size_t)p.n_reduce, sizeof(int), compare_reduces, timeline->task);
        walk_path(&p);
    } else {
        free(p.is_critical);
        p.is_critical = NULL;
    }
    free(p.limit);
    free(p.by_end);
    free(p.of_reduce);
    return p.is_critical;
}
