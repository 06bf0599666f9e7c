/* timeline.c: the step of one rank per class: predicted above measured on one axis. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/sort.h"
#include "report/section.h"
#include "report/section/critical_path.h"

enum { MAX_CLASSES = 8, MAX_SHAPES = 7000, MAX_SHAPES_OF_LANE = 1500, N_DIFFER = 10 };

/* --- What a task is ------------------------------------------------------------------------------------- */

typedef enum task_group {
    GROUP_FORWARD,
    GROUP_BACKWARD,
    GROUP_CAST,
    GROUP_COMM,
    GROUP_UPDATE,
    GROUP_WAIT
} task_group;
static const struct {
    const char *tone, *meaning;
} groups[] = {{"c1", "forward"},    {"c2", "backward"},         {"c3", "casts"},
              {"c4", "all-reduce"}, {"c5", "optimizer update"}, {"wait", "waiting"}};
enum { N_GROUP = sizeof groups / sizeof *groups };

static task_group group_of_kind(const char *kind)
{
    if (strcmp(kind, "forward") == 0) return GROUP_FORWARD;
    if (strcmp(kind, "all-reduce") == 0) return GROUP_COMM;
    if (strcmp(kind, "wait") == 0) return GROUP_WAIT;
    if (strcmp(kind, "update") == 0 || strcmp(kind, "norm") == 0) return GROUP_UPDATE;
    return strstr(kind, "cast") ? GROUP_CAST : GROUP_BACKWARD;
}

static int is_of_communication(task_group group) { return group == GROUP_COMM || group == GROUP_WAIT; }

/* --- Lanes ---------------------------------------------------------------------------------------------- */

/* What is drawn as one shape: one task, or several that are too thin. */
typedef struct lane_shape {
    const tandem_timeline_task *task; /* the first, or the longest of several */
    int64_t start_ns, end_ns, sum_ns;
    int n;
    int64_t group_ns[N_GROUP];
} lane_shape;

typedef struct lane {
    FILE *out;
    const tandem_step_timeline *timeline;
    double span_ns;     /* of the axis */
    int64_t quantum_ns; /* shorter tasks are drawn together */
    int is_communication;
    int64_t drawn_to_ns; /* end of the last shape of a compute lane */
    int n_merged;
} lane;

static double lane_x(const lane *l, int64_t ns) { return 1000 * (double)ns / l->span_ns; }

static void put_rectangle(const lane *l, const char *tone, int64_t start_ns, int64_t end_ns)
{
    const double x = lane_x(l, start_ns), width = lane_x(l, end_ns) - x;
    report_put(l->out, "<path class=\"%s\" d=\"M%.2f 0h%.2fv18h-%.2fz\">", tone, x, width, width);
}

static void put_shape(lane *l, const lane_shape *shape)
{
    const tandem_step_timeline *const t = l->timeline;
    int longest = 0;
    if (!shape->n) return;
    for (int g = 1; g < N_GROUP; g++)
        if (shape->group_ns[g] > shape->group_ns[longest]) longest = g;
    if (!l->is_communication && shape->start_ns - l->drawn_to_ns > l->quantum_ns) {
        put_rectangle(l, "gap", l->drawn_to_ns, shape->start_ns);
        report_put(l->out, "<title>waiting: %s</title></path>",
                   report_ns((double)(shape->start_ns - l->drawn_to_ns)).text);
    }
    put_rectangle(l, groups[longest].tone, shape->start_ns, shape->end_ns);
    if (shape->n > 1)
        report_put(l->out, "<title>%d short tasks, mostly %s: %s</title></path>", shape->n,
                   groups[longest].meaning, report_ns((double)shape->sum_ns).text);
    else
        report_put(l->out, "<title>%s, %s%s%s: %s, from %s</title></path>", t->text[shape->task->name],
                   t->text[shape->task->kind], t->text[shape->task->precision][0] ? ", " : "",
                   t->text[shape->task->precision], report_ns((double)shape->sum_ns).text,
                   report_ns((double)shape->start_ns).text);
    l->n_merged += shape->n > 1 ? shape->n : 0;
    l->drawn_to_ns = shape->end_ns;
}

/* A short task joins the shape before it where that is of short tasks as well and lies close. */
static int joins_shape(const lane *l, const lane_shape *shape, const tandem_timeline_task *task)
{
    const int64_t q = l->quantum_ns;
    return shape->n && task->end_ns - task->start_ns < q && task->start_ns - shape->end_ns < q &&
           shape->sum_ns < q * shape->n && task->end_ns - shape->start_ns < 2 * q;
}

static void put_lane_tasks(lane *l, const tandem_timeline_rank *rank)
{
    const tandem_step_timeline *const t = l->timeline;
    lane_shape shape = {.n = 0};
    for (int k = rank->first; k < rank->first + rank->n; k++) {
        const tandem_timeline_task *const task = &t->task[k];
        const task_group group = group_of_kind(t->text[task->kind]);
        if (is_of_communication(group) != l->is_communication) continue;
        if (!joins_shape(l, &shape, task)) {
            put_shape(l, &shape);
            shape = (lane_shape){.task = task, .start_ns = task->start_ns, .end_ns = task->end_ns};
        }
        shape.n++;
        shape.sum_ns += task->end_ns - task->start_ns;
        shape.group_ns[group] += task->end_ns - task->start_ns + 1;
        if (task->end_ns > shape.end_ns) shape.end_ns = task->end_ns;
    }
    put_shape(l, &shape);
}

/* Where the critical path runs on this lane: one strip for tasks that follow each other closely. */
static void put_critical_strip(const lane *l, const tandem_timeline_rank *rank,
                               const unsigned char *is_critical)
{
    int64_t from = -1, to = -1;
    report_put(l->out, "<path class=\"critical\" d=\"");
    for (int k = rank->first; k <= rank->first + rank->n; k++) {
        const int is_end = k == rank->first + rank->n;
        const tandem_timeline_task *const task = &l->timeline->task[is_end ? k - 1 : k];
        const int is_here =
            !is_end && is_critical[k] &&
            is_of_communication(group_of_kind(l->timeline->text[task->kind])) == l->is_communication;
        if (!is_here && !is_end) continue;
        if (from >= 0 && (is_end || task->start_ns - to > l->quantum_ns)) {
            report_put(l->out, "M%.2f 20h%.2fv4h-%.2fz", lane_x(l, from), lane_x(l, to - from),
                       lane_x(l, to - from));
            from = -1;
        }
        if (is_end) break;
        if (from < 0) from = task->start_ns;
        to = task->end_ns;
    }
    report_put(l->out, "\"><title>critical path</title></path>");
}

static int rank_has_stream(const tandem_step_timeline *t, const tandem_timeline_rank *rank,
                           int is_communication)
{
    for (int k = rank->first; k < rank->first + rank->n; k++)
        if (is_of_communication(group_of_kind(t->text[t->task[k].kind])) == is_communication) return 1;
    return 0;
}

/* Returns how many tasks it drew together. */
static int put_lane(lane l, const tandem_timeline_rank *rank, const unsigned char *is_critical)
{
    const char *const origin = l.timeline->is_measured > 0    ? "measured"
                               : l.timeline->is_measured == 0 ? "predicted"
                                                              : "recorded";
    const char *const stream = l.is_communication ? "communication" : "compute";
    if (!rank_has_stream(l.timeline, rank, l.is_communication)) return 0;
    report_put(l.out,
               "<div class=\"lane\"><p>%s <b>%s</b></p><svg class=\"%s\" viewBox=\"0 0 1000 24\" "
               "preserveAspectRatio=\"none\" tabindex=\"0\" role=\"img\" aria-label=\"%s, %s, %s\">",
               stream, origin, stream, rank->name, origin, stream);
    put_lane_tasks(&l, rank);
    if (!l.is_communication && (double)l.drawn_to_ns < l.span_ns)
        report_put(l.out, "<path class=\"after\" d=\"M%.2f -1H1001V25H%.2fz\"/>", lane_x(&l, l.drawn_to_ns),
                   lane_x(&l, l.drawn_to_ns));
    put_critical_strip(&l, rank, is_critical);
    report_put(l.out, "</svg></div>\n");
    return l.n_merged;
}

/* --- One figure: a prediction, a run, or both ----------------------------------------------------------- */

typedef struct timeline_pair {
    const tandem_step_timeline *view[2]; /* predicted, measured; NULL = not there */
    const char *source[2];
    unsigned char *is_critical[2]; /* [n_task] */
    int n_namesake;                /* traces of the same name that are of another plan */
} timeline_pair;

/* "rank 3: cpu:avx2 (one of 4)" is of class "cpu:avx2 (one of 4)". */
static const char *class_of_rank(const tandem_timeline_rank *rank)
{
    const char *const after = strstr(rank->name, ": ");
    return after ? after + 2 : rank->name;
}

/* The first rank of its class. */
static int is_representative(const tandem_step_timeline *t, int r)
{
    for (int k = 0; k < r; k++)
        if (strcmp(class_of_rank(&t->rank[k]), class_of_rank(&t->rank[r])) == 0) return 0;
    return t->rank[r].n > 0;
}

static const tandem_timeline_rank *rank_with_number(const tandem_step_timeline *t, int64_t number)
{
    for (int r = 0; r < t->n_rank; r++)
        if (t->rank[r].number == number) return t->rank[r].n ? &t->rank[r] : NULL;
    return NULL;
}

static int is_same_step(const tandem_step_timeline *a, const tandem_step_timeline *b)
{
    if (strcmp(a->title, b->title) != 0 || a->n_rank != b->n_rank) return 0;
    for (int r = 0; r < a->n_rank; r++)
        if (!rank_with_number(b, a->rank[r].number) && a->rank[r].n) return 0;
    return 1;
}

static void put_timeline_legend(FILE *out)
{
    report_put(out, "<p class=\"keys\">");
    for (int g = 0; g < N_GROUP; g++) report_legend(out, groups[g].tone, groups[g].meaning);
    report_legend(out, "critical", "critical path, below the tasks");
    report_put(out, "</p>");
}

static void put_timeline_notes(FILE *out, const timeline_pair *pair, int n_hidden, int n_merged,
                               int64_t quantum_ns)
{
    report_put(out, "<figcaption>");
    if (!pair->view[0])
        report_put(
            out, "Only the run is here; <code>tandem replay --plan FILE --trace predicted.json</code> makes "
                 "its prediction. ");
    if (!pair->view[1])
        report_put(out,
                   "Only the prediction is here; <code>tandem train --plan FILE --trace measured.json</code> "
                   "records a run. ");
    for (int v = 0; v < 2; v++)
        if (pair->view[v] && pair->view[v]->n_negative)
            report_put(out, "%lld durations of %s are below 0, since a clock was set; they count as 0. ",
                       (long long)pair->view[v]->n_negative, pair->source[v]);
    if (pair->n_namesake)
        report_put(
            out,
            "A trace of the same name is of another plan, whose tasks have other precisions: it is drawn "
            "apart. ");
    if (n_merged)
        report_put(out, "%d tasks shorter than %s are drawn together with their neighbours. ", n_merged,
                   report_ns((double)quantum_ns).text);
    if (n_hidden) report_put(out, "%d more ranks are not drawn. ", n_hidden);
    report_put(out, "One rank of each class is drawn. Hatched: the rank waits.</figcaption>");
}

static void put_rank_lanes(FILE *out, const timeline_pair *pair, const tandem_timeline_rank *rank,
                           double span_ns, int64_t quantum_ns, int *n_merged)
{
    report_put(out, "<h4>%s</h4>\n", rank->name);
    for (int stream = 0; stream < 2; stream++)
        for (int v = 0; v < 2; v++) {
            const tandem_timeline_rank *const same =
                pair->view[v] ? rank_with_number(pair->view[v], rank->number) : NULL;
            if (!same) continue;
            const lane l = {.out = out,
                            .timeline = pair->view[v],
                            .span_ns = span_ns,
                            .quantum_ns = quantum_ns,
                            .is_communication = stream};
            *n_merged += put_lane(l, same, pair->is_critical[v]);
        }
}

static void put_pair(FILE *out, const timeline_pair *pair)
{
    const tandem_step_timeline *const first = pair->view[0] ? pair->view[0] : pair->view[1];
    int n_class = 0, n_hidden = 0, n_merged = 0;
    double span_ns = 1;
    for (int v = 0; v < 2; v++)
        if (pair->view[v]) span_ns = fmax(span_ns, (double)pair->view[v]->span_ns);
    for (int r = 0; r < first->n_rank; r++) n_class += is_representative(first, r);
    const int n_shown = n_class < MAX_CLASSES ? n_class : MAX_CLASSES;
    const int both = pair->view[0] && pair->view[1], n_lane = 2 * (1 + both) * (n_shown ? n_shown : 1);
    const int n_shape = MAX_SHAPES / n_lane < MAX_SHAPES_OF_LANE ? MAX_SHAPES / n_lane : MAX_SHAPES_OF_LANE;
    const int64_t quantum_ns = (int64_t)(span_ns / n_shape);
    report_put(out, "<h3>%s</h3>\n", first->title[0] ? first->title : pair->source[first == pair->view[1]]);
    put_timeline_legend(out);
    report_put(out, "<figure class=\"timeline\" data-span=\"%.0f\">\n", span_ns);
    for (int r = 0, n = 0; r < first->n_rank; r++) {
        if (!is_representative(first, r)) continue;
        if (n++ < MAX_CLASSES)
            put_rank_lanes(out, pair, &first->rank[r], span_ns, quantum_ns, &n_merged);
        else
            n_hidden++;
    }
    const report_axis axis = {.max = span_ns, .unit = REPORT_NS};
    report_put(out, "<div class=\"lane\"><p>time</p>");
    report_ticks_x(out, &axis);
    report_put(out, "</div>\n");
    put_timeline_notes(out, pair, n_hidden, n_merged, quantum_ns);
    report_put(out, "</figure>\n");
}

/* --- The tasks that differ most ------------------------------------------------------------------------- */

/* All runs of one task of one rank. */
typedef struct differing_task {
    int64_t rank;
    int32_t id;
    const tandem_timeline_rank *of;
    const char *name, *kind;
    int64_t ns[2];
    int n[2];
} differing_task;

static int by_rank_and_id(const void *left, const void *right)
{
    const differing_task *const a = left, *const b = right;
    const int order = TANDEM_ORDER(a->rank, b->rank);
    return order ? order : TANDEM_ORDER(a->id, b->id);
}

static int64_t difference(const differing_task *task) { return llabs(task->ns[1] - task->ns[0]); }

static int by_difference(const void *left, const void *right)
{
    const differing_task *const a = left, *const b = right;
    const int order = TANDEM_ORDER(difference(b), difference(a));
    return order ? order : by_rank_and_id(a, b);
}

/* One entry for each task that both have; all-reduces hold waiting and are left out. Returns how many. */
static int join_tasks(differing_task *task, const timeline_pair *pair)
{
    int n = 0, n_joined = 0;
    for (int v = 0; v < 2; v++)
        for (int k = 0; k < pair->view[v]->n_task; k++) {
            const tandem_step_timeline *const t = pair->view[v];
            const tandem_timeline_task *const row = &t->task[k];
            if (is_of_communication(group_of_kind(t->text[row->kind]))) continue;
            task[n] = (differing_task){.rank = t->rank[row->rank].number,
                                       .id = row->id,
                                       .of = &t->rank[row->rank],
                                       .name = t->text[row->name],
                                       .kind = t->text[row->kind]};
            task[n].ns[v] = row->end_ns - row->start_ns;
            task[n++].n[v] = 1;
        }
    qsort(task, (size_t)n, sizeof *task, by_rank_and_id);
    for (int k = 0; k < n;) {
        differing_task sum = task[k];
        for (k++; k < n && by_rank_and_id(&task[k], &sum) == 0; k++)
            for (int v = 0; v < 2; v++) {
                sum.ns[v] += task[k].ns[v];
                sum.n[v] += task[k].n[v];
            }
        if (sum.n[0] && sum.n[1]) task[n_joined++] = sum;
    }
    qsort(task, (size_t)n_joined, sizeof *task, by_difference);
    return n_joined;
}

static int put_differing_tasks(FILE *out, const timeline_pair *pair)
{
    if (!pair->view[0] || !pair->view[1]) return 1;
    const size_t n_both = (size_t)pair->view[0]->n_task + (size_t)pair->view[1]->n_task;
    differing_task *const task = calloc(n_both, sizeof *task);
    if (!task) return 0;
    const int n = join_tasks(task, pair);
    if (n)
        report_put(
            out, "<h4>Tasks that differ most</h4><div class=\"scroll\" tabindex=\"0\" role=\"region\" "
                 "aria-label=\"Tasks that differ most\"><table><thead><tr><th>task</th><th>kind</th><th>rank"
                 "</th><th class=\"n\">predicted</th><th class=\"n\">measured</th><th class=\"n\">predicted "
                 "&#8722; measured</th></tr></thead><tbody>\n");
    for (int k = 0; k < n && k < N_DIFFER; k++)
        report_put(out,
                   "<tr><th scope=\"row\">%s</th><td>%s</td><td>%s</td><td class=\"n\">%s</td><td "
                   "class=\"n\">%s</td><td class=\"n\">%s</td></tr>\n",
                   task[k].name, task[k].kind, task[k].of->name, report_ns((double)task[k].ns[0]).text,
                   report_ns((double)task[k].ns[1]).text,
                   report_ns((double)(task[k].ns[0] - task[k].ns[1])).text);
    if (n)
        report_put(out,
                   "</tbody></table></div><p class=\"note\">Of one recorded step, in which any task may have "
                   "been disturbed. All-reduces are left out: in a run they include waiting.</p>\n");
    free(task);
    return 1;
}

/* --- Namesakes ------------------------------------------------------------------------------------------ */

typedef struct compared_task {
    int64_t rank;
    int32_t id;
    const char *name, *precision;
} compared_task;

static int by_rank_and_task(const void *left, const void *right)
{
    const compared_task *const a = left, *const b = right;
    const int order = TANDEM_ORDER(a->rank, b->rank);
    return order ? order : TANDEM_ORDER(a->id, b->id);
}

/* Plans of one name may differ: a task that both traces have then has another precision. A task that only one
 * has is no difference, since a run may lack some. −1 = no memory. */
static int have_equal_tasks(const tandem_step_timeline *a, const tandem_step_timeline *b)
{
    const tandem_step_timeline *const both[] = {a, b};
    compared_task *const task = calloc((size_t)a->n_task + (size_t)b->n_task + 1, sizeof *task);
    int n = 0, are_equal = 1;
    if (!task) return -1;
    for (int v = 0; v < 2; v++)
        for (int k = 0; k < both[v]->n_task; k++) {
            const tandem_timeline_task *const row = &both[v]->task[k];
            if (row->id < 0) continue;
            task[n++] = (compared_task){.rank = both[v]->rank[row->rank].number,
                                        .id = row->id,
                                        .name = both[v]->text[row->name],
                                        .precision = both[v]->text[row->precision]};
        }
    qsort(task, (size_t)n, sizeof *task, by_rank_and_task);
    for (int k = 1; k < n && are_equal; k++)
        are_equal = by_rank_and_task(&task[k - 1], &task[k]) != 0 ||
                    (strcmp(task[k - 1].name, task[k].name) == 0 &&
                     strcmp(task[k - 1].precision, task[k].precision) == 0);
    free(task);
    return are_equal;
}

/* --- The section ---------------------------------------------------------------------------------------- */

static int draw_pair(FILE *out, timeline_pair *pair)
{
    int whole = 1;
    for (int v = 0; v < 2 && whole; v++)
        if (pair->view[v]) whole = (pair->is_critical[v] = report_critical_path(pair->view[v])) != NULL;
    if (whole) put_pair(out, pair);
    if (whole) whole = put_differing_tasks(out, pair);
    for (int v = 0; v < 2; v++) free(pair->is_critical[v]);
    return whole;
}

static int draw_timeline(FILE *out, const report_part *part)
{
    unsigned char *const is_drawn = calloc((size_t)part->n + 1, 1);
    int whole = is_drawn != NULL;
    for (int k = 0; k < part->n && whole; k++) {
        const report_item *const item = part->item[k];
        timeline_pair pair = {.view = {NULL}};
        if (!item->timeline || is_drawn[k]) continue;
        const int view = item->timeline->is_measured > 0;
        pair.view[view] = item->timeline;
        pair.source[view] = item->source;
        for (int m = k + 1; m < part->n && whole && !pair.view[!view]; m++) {
            const report_item *const other = part->item[m];
            if (!other->timeline || is_drawn[m] || (other->timeline->is_measured > 0) == view) continue;
            if (!is_same_step(item->timeline, other->timeline)) continue;
            const int are_equal = have_equal_tasks(item->timeline, other->timeline);
            whole = are_equal >= 0;
            pair.n_namesake += are_equal == 0;
            if (are_equal <= 0) continue;
            pair.view[!view] = other->timeline;
            pair.source[!view] = other->source;
            is_drawn[m] = 1;
        }
        whole = whole && draw_pair(out, &pair);
    }
    free(is_drawn);
    return whole;
}

const report_section report_timeline = {"timeline", "Timeline", draw_timeline,
                                        "tandem replay --plan plan.json --trace predicted.json"};
