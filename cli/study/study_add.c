/* study_add.c: `tandem study add`: whether the noise of a plan is the sum of the noises of its parts.
 *
 * Plans give each operator of a task a precision at random, or fp32. Measured is the noise of a plan's
 * gradients at held weights (predictor/sampled.c), and summed are those of its parts, each alone, with the
 * same batches and draws. A part is an operator. Operators with one precision that read one input read one
 * rounded copy of it, and so one draw: together they are one part. The sum over single operators, as plans
 * are made with, stands beside it. Intervals are the jackknife's over common replicates. For pairs of
 * operators in int8_full the same names the worst pair.
 *
 * Why tasks with relus are not additive: the first plans, and the parts of all, once more with errors times
 * a. Their noise grows with a where slopes jump, and with a² where they do not (add_law.c). Controls are the
 * same plans of the same models with gelus in the place of relus; they have no bars. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <gsl/gsl_rng.h>

#include "base/clock.h"
#include "cli/study/add_law.h"
#include "cli/study/noise_tasks.h"
#include "tandem/advanced/predictor.h"

enum {
    PLANS_OF_JOB = 50,
    ADD_VALUES = 4,  /* of a plan in a record */
    MAX_TRIES = 100, /* for a plan that is not there yet */
    N_SCALE = 4
};
static const double scales[N_SCALE] = {1.0 / 16, 0.25, 0.5, 1}; /* of errors; the law takes the last two */

/* Fixed before a run, as are the tasks. */
typedef struct add_scope {
    const noise_tasks *tasks;
    int n_plan, n_replicate;    /* plans of a task; fewer where there are no more */
    int n_scaled;               /* of these, that are also sensed with scaled errors */
    const char *const *control; /* [n_compared] tasks 0, 1, … with gelus; NULL: none */
    int n_compared, n_control_plan;
} add_scope;
/* With gelus the deep mlp diverges at its rate: no control. */
static const char *const full_controls[] = {"mlp:gelu=1", NULL,
                                            "resnet20:width=8,blocks=1,image=14x14x1,gelu=1"},
                         *const quick_controls[] = {"mlp:width=32,image=14x14x1,gelu=1"};
static const add_scope full_scope = {&noise_tasks_full, 200, 16, 24, full_controls, 3, 50},
                       quick_scope = {&noise_tasks_quick, 10, 4, 4, quick_controls, 1, 10};
static const double max_median_off = 0.05, max_off = 0.2, least_close = 0.95;

/* Of a plan, or of a pair. */
typedef struct add_result {
    double ratio, half; /* measured over summed */
    double by_operators;
    double shares; /* 1: some of its operators read one cast */
} add_result;

/* Rows that are sensed together, each [n_op of the graph]. */
typedef struct add_rows {
    tandem_precision *plan; /* [n × n_op] */
    int n, room, n_op;
} add_rows;

/* A task whose errors are not scaled, one whose are, or a control. */
typedef enum add_role { ADD_ALONE, ADD_COMPARED, ADD_CONTROL } add_role;

typedef struct add_study {
    study_report *report;
    const add_scope *scope;
    study_records records;
    noise_progress progress;
    noise_lab lab;
    add_role role;          /* of the task */
    tandem_precision *plan; /* [n_plan × graph->n_op] of the task */
    int n_plan;
    add_result *result; /* [n_plan] */
    add_result *pair;   /* [n_op·(n_op − 1)/2]; NULL: a control */
    add_rows scaled;    /* the first n_scaled plans, then the parts of all */
    int n_scaled;
    double *noise[N_SCALE]; /* [scaled.n] */
} add_study;

/* Plans, the pairs, and each scale. */
static int job_count(int n_plan, add_role role)
{
    return (n_plan + PLANS_OF_JOB - 1) / PLANS_OF_JOB + (role != ADD_CONTROL) +
           (role != ADD_ALONE ? N_SCALE : 0);
}
static int graph_size(const add_study *s) { return s->lab.workload.graph[0]->n_op; }
static const tandem_precision *plan_at(const add_study *s, int i)
{
    return s->plan + (size_t)i * (size_t)graph_size(s);
}

/* --- Plans -----------------------------------------------------------------------------------------------
 * */

static int find_row(const add_rows *rows, const tandem_precision *plan)
{
    const size_t bytes = (size_t)rows->n_op * sizeof *plan;
    int i = rows->n - 1;
    while (i >= 0 && memcmp(rows->plan + (size_t)i * (size_t)rows->n_op, plan, bytes) != 0) i--;
    return i;
}

/* The index of a plan, which is added where it is new; −1: no memory. */
static int add_row(add_rows *rows, const tandem_precision *plan)
{
    const int found = find_row(rows, plan);
    const size_t length = (size_t)rows->n_op;
    if (found >= 0) return found;
    if (rows->n == rows->room) {
        const int room = 2 * rows->room + 64;
        tandem_precision *grown = realloc(rows->plan, (size_t)room * length * sizeof *grown);
        if (!grown) return -1;
        rows->plan = grown;
        rows->room = room;
    }
    memcpy(rows->plan + (size_t)rows->n * length, plan, length * sizeof *plan);
    return rows->n++;
}

static int count_lowered(const add_study *s, const tandem_precision *plan)
{
    int n = 0;
    for (int k = 0; k < s->lab.n_op; k++) n += plan[s->lab.op[k]] != TANDEM_PRECISION_FP32;
    return n;
}

/* Different plans of two lowered operators or more. */
static tandem_status draw_plans(add_study *s, int n_plan, int seed, tandem_error *error)
{
    const int n_op = graph_size(s);
    add_rows rows = {.n_op = n_op};
    tandem_precision *plan = calloc((size_t)n_op, sizeof *plan);
    gsl_rng *random = gsl_rng_alloc(gsl_rng_mt19937);
    int is_allocated = plan && random;
    if (random) gsl_rng_set(random, s->report->options->seed + 1 + (unsigned long)seed);
    for (int tries = 0; is_allocated && rows.n < n_plan && tries < MAX_TRIES; tries++) {
        for (int k = 0; k < s->lab.n_op; k++) {
            const unsigned long p = gsl_rng_uniform_int(random, NOISE_N_PRECISION + 1);
            plan[s->lab.op[k]] = p < NOISE_N_PRECISION ? noise_precisions[p] : TANDEM_PRECISION_FP32;
        }
        if (count_lowered(s, plan) < 2 || find_row(&rows, plan) >= 0) continue;
        is_allocated = add_row(&rows, plan) >= 0;
        tries = -1;
    }
    if (random) gsl_rng_free(random);
    free(plan);
    s->plan = rows.plan;
    s->n_plan = rows.n;
    if (!is_allocated) return tandem_no_memory(error, "for random plans");
    return s->n_plan > 0 ? TANDEM_OK
                         : tandem_error_set(error, TANDEM_BUG, "a task of the study has no plans");
}

/* Whether operators i and j read one rounded copy under a plan. */
static int shares_cast(const add_study *s, const tandem_precision *plan, int i, int j)
{
    const tandem_graph *graph = s->lab.workload.graph[0];
    return plan[i] == plan[j] && graph->view[graph->op[i].input[0]] == graph->view[graph->op[j].input[0]];
}

/* --- Sums ------------------------------------------------------------------------------------------------
 * */

/* The weights of the sum over parts: each row that is a part gets 1. is_single: each operator is a part. Adds
 * rows that are missing; weight NULL: that alone. 0: no memory. */
static int sum_parts(double *weight, add_rows *rows, const add_study *s, const tandem_precision *plan,
                     int is_single)
{
    tandem_precision *part = calloc((size_t)rows->n_op, sizeof *part);
    int is_allocated = part != NULL;
    for (int k = 0; k < s->lab.n_op && is_allocated; k++) {
        const int op = s->lab.op[k];
        int is_first = plan[op] != TANDEM_PRECISION_FP32;
        memset(part, 0, (size_t)rows->n_op * sizeof *part); /* fp32 */
        part[op] = plan[op];
        for (int j = 0; j < s->lab.n_op && !is_single; j++) {
            const int other = s->lab.op[j];
            if (other == op || !shares_cast(s, plan, op, other)) continue;
            part[other] = plan[other];
            is_first = is_first && other > op;
        }
        if (!is_first) continue;
        const int row = add_row(rows, part);
        is_allocated = row >= 0;
        if (weight && is_allocated) weight[row] += 1;
    }
    free(part);
    return is_allocated;
}

/* Measured over summed of one plan, from a sensing of rows that have it and its parts. */
static tandem_status compare_plan(add_result *result, add_rows *rows, const add_study *s,
                                  const tandem_sensing *sensing, const tandem_precision *plan,
                                  tandem_error *error)
{
    static const tandem_precision as = TANDEM_PRECISION_INT8_FULL;
    double *weight = calloc((size_t)rows->n, sizeof *weight);
    tandem_sensitivity_estimate whole = {0}, sum = {0}, single = {0}, difference = {0};
    if (!weight) return tandem_no_memory(error, "for the parts of a plan");
    weight[find_row(rows, plan)] = 1;
    tandem_status status = noise_of_rows(&whole, sensing, as, weight, sensing->batch, error);
    memset(weight, 0, (size_t)rows->n * sizeof *weight);
    (void)sum_parts(weight, rows, s, plan, 1);
    if (status == TANDEM_OK) status = noise_of_rows(&single, sensing, as, weight, sensing->batch, error);
    memset(weight, 0, (size_t)rows->n * sizeof *weight);
    (void)sum_parts(weight, rows, s, plan, 0);
    if (status == TANDEM_OK) status = noise_of_rows(&sum, sensing, as, weight, sensing->batch, error);
    weight[find_row(rows, plan)] -= 1;
    if (status == TANDEM_OK) status = noise_of_rows(&difference, sensing, as, weight, sensing->batch, error);
    free(weight);
    if (status != TANDEM_OK) return status;
    *result = (add_result){.ratio = whole.noise / sum.noise,
                           .half = difference.noise_half / sum.noise,
                           .by_operators = whole.noise / single.noise};
    for (int i = 0; i < s->lab.n_op; i++)
        for (int j = i + 1; j < s->lab.n_op; j++)
            if (plan[s->lab.op[i]] != TANDEM_PRECISION_FP32 &&
                shares_cast(s, plan, s->lab.op[i], s->lab.op[j]))
                result->shares = 1;
    return TANDEM_OK;
}

/* Senses rows in the middle of the training. */
static tandem_status sense_rows(tandem_sensing *sensing, const add_study *s, const add_rows *rows,
                                double error_scale, tandem_error *error)
{
    sensing_request request = {.age = {s->lab.task->steps / 2},
                               .n_age = 1,
                               .n_replicate = s->scope->n_replicate,
                               .precision = tandem_precision_get(TANDEM_PRECISION_INT8_FULL)->name,
                               .emulation = tandem_emulation_make(0),
                               .plan = rows->plan,
                               .n_plan = rows->n};
    request.emulation.error_scale = error_scale;
    return sensing_run(sensing, &s->lab.workload, &s->lab.options, &request, error);
}

/* Senses n plans with their parts. */
static tandem_status compare_plans(add_result *result, const add_study *s, const tandem_precision *plan,
                                   int n, tandem_error *error)
{
    add_rows rows = {.n_op = graph_size(s)};
    tandem_sensing sensing = {0};
    int is_allocated = 1;
    for (int i = 0; i < n && is_allocated; i++) {
        const tandem_precision *one = plan + (size_t)i * (size_t)rows.n_op;
        is_allocated = add_row(&rows, one) >= 0 && sum_parts(NULL, &rows, s, one, 0) &&
                       sum_parts(NULL, &rows, s, one, 1);
    }
    tandem_status status = is_allocated ? TANDEM_OK : tandem_no_memory(error, "for plans and their parts");
    if (status == TANDEM_OK) status = sense_rows(&sensing, s, &rows, 1, error);
    for (int i = 0; i < n && status == TANDEM_OK; i++)
        status = compare_plan(&result[i], &rows, s, &sensing, plan + (size_t)i * (size_t)rows.n_op, error);
    tandem_sensing_close(&sensing);
    free(rows.plan);
    return status;
}

/* The noise of each row alone. */
static tandem_status sense_noises(double *noise, const add_study *s, const add_rows *rows, double error_scale,
                                  tandem_error *error)
{
    tandem_sensing sensing = {0};
    double *weight = calloc((size_t)rows->n, sizeof *weight);
    tandem_status status = weight ? TANDEM_OK : tandem_no_memory(error, "for the parts of plans");
    if (status == TANDEM_OK) status = sense_rows(&sensing, s, rows, error_scale, error);
    for (int i = 0; i < rows->n && status == TANDEM_OK; i++) {
        tandem_sensitivity_estimate one = {0};
        weight[i] = 1;
        status = noise_of_rows(&one, &sensing, TANDEM_PRECISION_INT8_FULL, weight, sensing.batch, error);
        weight[i] = 0;
        noise[i] = one.noise;
    }
    tandem_sensing_close(&sensing);
    free(weight);
    return status;
}

/* --- Jobs, and their records -----------------------------------------------------------------------------
 * */

static tandem_status run_add_job(add_study *s, const char *what, add_result *result,
                                 const tandem_precision *plan, int n, tandem_error *error)
{
    char name[STUDY_RECORD_NAME];
    double value[ADD_VALUES * 64 * 32];
    const int n_value = ADD_VALUES * n;
    int64_t took_ns = 0;
    (void)snprintf(name, sizeof name, "%s: %s", s->lab.task->model, what);
    if (n_value > (int)(sizeof value / sizeof *value))
        return tandem_error_set(error, TANDEM_BUG, "a job of the study has %d plans", n);
    if (!study_records_find(value, n_value, &s->records, name)) {
        const int64_t begin_ns = tandem_now_ns();
        tandem_status status = compare_plans(result, s, plan, n, error);
        for (int i = 0; i < n && status == TANDEM_OK; i++) {
            const double of[ADD_VALUES] = {result[i].ratio, result[i].half, result[i].by_operators,
                                           result[i].shares};
            memcpy(value + ADD_VALUES * i, of, sizeof of);
        }
        if (status == TANDEM_OK) status = study_records_add(&s->records, name, value, n_value, error);
        if (status != TANDEM_OK) return status;
        took_ns = tandem_now_ns() - begin_ns;
    }
    for (int i = 0; i < n; i++) {
        const double *of = value + ADD_VALUES * i;
        result[i] = (add_result){of[0], of[1], of[2], of[3]};
    }
    noise_progress_add(&s->progress, s->report->options, took_ns);
    return TANDEM_OK;
}

static tandem_status run_scale_job(add_study *s, int k, tandem_error *error)
{
    char name[STUDY_RECORD_NAME];
    const int n = s->scaled.n;
    int64_t took_ns = 0;
    (void)snprintf(name, sizeof name, "%s: errors × %g, %d plans and %d parts", s->lab.task->model, scales[k],
                   s->n_scaled, n - s->n_scaled);
    if (!(s->noise[k] = calloc((size_t)n, sizeof *s->noise[k])))
        return tandem_no_memory(error, "for the study's results");
    if (!study_records_find(s->noise[k], n, &s->records, name)) {
        const int64_t begin_ns = tandem_now_ns();
        tandem_status status = sense_noises(s->noise[k], s, &s->scaled, scales[k], error);
        if (status == TANDEM_OK) status = study_records_add(&s->records, name, s->noise[k], n, error);
        if (status != TANDEM_OK) return status;
        took_ns = tandem_now_ns() - begin_ns;
    }
    noise_progress_add(&s->progress, s->report->options, took_ns);
    return TANDEM_OK;
}

static tandem_status run_scale_jobs(add_study *s, tandem_error *error)
{
    int is_allocated = 1;
    s->n_scaled = s->n_plan < s->scope->n_scaled ? s->n_plan : s->scope->n_scaled;
    s->scaled.n_op = graph_size(s);
    for (int i = 0; i < s->n_scaled && is_allocated; i++)
        is_allocated = add_row(&s->scaled, plan_at(s, i)) >= 0;
    for (int i = 0; i < s->n_plan && is_allocated; i++)
        is_allocated = sum_parts(NULL, &s->scaled, s, plan_at(s, i), 0);
    tandem_status status = is_allocated ? TANDEM_OK : tandem_no_memory(error, "for plans and their parts");
    for (int k = 0; k < N_SCALE && status == TANDEM_OK; k++) status = run_scale_job(s, k, error);
    return status;
}

/* All pairs of operators in int8_full, [n_pair × graph->n_op]. */
static tandem_precision *make_pairs(const add_study *s, int n_pair)
{
    const size_t n_op = (size_t)graph_size(s);
    tandem_precision *plan = calloc((size_t)n_pair * n_op, sizeof *plan), *of = plan;
    for (int i = 0; i < s->lab.n_op && plan; i++)
        for (int j = i + 1; j < s->lab.n_op; j++, of += n_op)
            of[s->lab.op[i]] = of[s->lab.op[j]] = TANDEM_PRECISION_INT8_FULL;
    return plan;
}

static tandem_status run_pairs_job(add_study *s, tandem_error *error)
{
    const int n_pair = s->lab.n_op * (s->lab.n_op - 1) / 2;
    tandem_precision *pairs = make_pairs(s, n_pair);
    s->pair = calloc((size_t)n_pair + 1, sizeof *s->pair);
    const tandem_status status = pairs && s->pair ? run_add_job(s, "pairs", s->pair, pairs, n_pair, error)
                                                  : tandem_no_memory(error, "for the study's results");
    free(pairs);
    return status;
}

static tandem_status run_add_jobs(add_study *s, tandem_error *error)
{
    tandem_status status = TANDEM_OK;
    s->result = calloc((size_t)s->n_plan + 1, sizeof *s->result);
    if (!s->result) status = tandem_no_memory(error, "for the study's results");
    for (int first = 0; first < s->n_plan && status == TANDEM_OK; first += PLANS_OF_JOB) {
        const int n = s->n_plan - first < PLANS_OF_JOB ? s->n_plan - first : PLANS_OF_JOB;
        char what[32];
        (void)snprintf(what, sizeof what, "plans %d to %d", first + 1, first + n);
        status = run_add_job(s, what, s->result + first, plan_at(s, first), n, error);
    }
    if (status == TANDEM_OK && s->role != ADD_CONTROL) status = run_pairs_job(s, error);
    if (status == TANDEM_OK && s->role != ADD_ALONE) status = run_scale_jobs(s, error);
    return status;
}

/* --- The tables ------------------------------------------------------------------------------------------
 * */

typedef struct add_summary {
    double median, close, inside;
    int n;
} add_summary;

/* But `inside`. Sorts the ratios. */
static add_summary summary_of(double *ratio, int n)
{
    add_summary summary = {.n = n};
    for (int i = 0; i < n; i++) summary.close += (fabs(ratio[i] - 1) <= max_off) / (double)n;
    if (n > 0) summary.median = tandem_median(ratio, (size_t)n);
    return summary;
}

/* which: 0 all plans, 1 those with a shared cast; is_single: over the sums of single operators. */
static tandem_status summarise_plans(add_summary *summary, const add_study *s, int which, int is_single,
                                     tandem_error *error)
{
    double *ratio = calloc((size_t)s->n_plan, sizeof *ratio), inside = 0;
    int n = 0;
    if (!ratio) return tandem_no_memory(error, "for the ratios of plans");
    for (int i = 0; i < s->n_plan; i++) {
        const add_result *of = &s->result[i];
        const double one = is_single ? of->by_operators : of->ratio;
        if (which && !(of->shares > 0)) continue;
        ratio[n++] = one;
        inside += fabs(of->ratio - 1) <= of->half;
    }
    *summary = summary_of(ratio, n);
    if (n > 0) summary->inside = inside / n;
    free(ratio);
    return TANDEM_OK;
}

/* How many plans lie above their sum beyond the interval, and the largest ratio. */
static void print_ceiling(const add_study *s)
{
    double largest = 0;
    int n_above = 0;
    for (int i = 0; i < s->n_plan; i++) {
        n_above += s->result[i].ratio - s->result[i].half > 1;
        largest = fmax(largest, s->result[i].ratio);
    }
    (void)fprintf(s->report->text,
                  "\nThe sum as a ceiling: %d of %d plans lie above it beyond their interval; the largest\n"
                  "ratio is %.2f.\n",
                  n_above, s->n_plan, largest);
}

static void add_add_bar(add_study *s, const char *bar, double value, int is_met)
{
    json_t *object = json_pack("{s:s,s:s}", "model", s->lab.task->model, "bar", bar);
    json_object_set_new(object, "value", cli_json_number(value));
    study_add_cell(s->report, object, is_met);
    (void)fprintf(s->report->text, "| %s | %.3f | %s |\n", bar, value, is_met ? "yes" : "NO");
}

static void print_pair(add_study *s, const char *what, int i, int j, const add_result *of, json_t *pairs)
{
    const tandem_op *op = s->lab.workload.graph[0]->op;
    const char *a = op[s->lab.op[i]].name, *b = op[s->lab.op[j]].name;
    const double ratio = of->shares > 0 ? of->by_operators : of->ratio;
    (void)fprintf(s->report->text, "\n%s: `%s` and\n`%s` have %.2f times the sum of their noises", what, a, b,
                  ratio);
    if (!(of->shares > 0)) (void)fprintf(s->report->text, " (± %.2f)", of->half);
    (void)fputs(".\n", s->report->text);
    json_t *object = json_pack("{s:s,s:s,s:b}", "first", a, "second", b, "shares_cast", of->shares > 0);
    json_object_set_new(object, "ratio", cli_json_number(ratio));
    json_object_set_new(object, "half_width", cli_json_number(of->half));
    json_array_append_new(pairs, object);
}

/* Every pair that reads one cast, and the pair that is furthest off: of those whose interval does not hold
 * 1, if there are any. */
static json_t *print_pairs(add_study *s)
{
    json_t *pairs = json_array();
    int worst[2] = {0, 0}, at = 0, is_beyond = 0;
    const add_result *of_worst = NULL;
    for (int i = 0; i < s->lab.n_op; i++)
        for (int j = i + 1; j < s->lab.n_op; j++, at++) {
            const add_result *of = &s->pair[at];
            const double off = fabs(log(of->ratio));
            const int is_known = fabs(of->ratio - 1) > of->half;
            if (of->shares > 0) print_pair(s, "One cast", i, j, of, pairs);
            if (of->shares > 0 || !isfinite(off) || is_known < is_beyond) continue;
            if (of_worst && is_known == is_beyond && off <= fabs(log(of_worst->ratio))) continue;
            is_beyond = is_known;
            worst[0] = i;
            worst[1] = j;
            of_worst = of;
        }
    if (of_worst)
        print_pair(s, is_beyond ? "The worst pair" : "The worst pair, not beyond its interval", worst[0],
                   worst[1], of_worst, pairs);
    return pairs;
}

static void print_summary(FILE *text, const char *name, const add_summary *of, int has_interval)
{
    if (of->n == 0) return;
    (void)fprintf(text, "| %s | %d | %.3f | %.0f %% |", name, of->n, of->median, 100 * of->close);
    if (has_interval) (void)fprintf(text, " %.0f %%", 100 * of->inside);
    (void)fputs(" |\n", text);
}

/* --- Scaled errors ---------------------------------------------------------------------------------------
 * */

static double sum_of_parts(const double *weight, const double *noise, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++) sum += weight[i] * noise[i];
    return sum;
}

/* Of all plans, from their parts. ratio: [n_plan]; weight: room for [scaled.n]. 0: no memory. */
static int fill_law_ratios(double *ratio, double *weight, add_study *s)
{
    const int n = s->scaled.n;
    const add_law_parts parts = {s->noise[N_SCALE - 1], s->noise[N_SCALE - 2], weight, n};
    for (int i = 0; i < s->n_plan; i++) {
        memset(weight, 0, (size_t)n * sizeof *weight);
        if (!sum_parts(weight, &s->scaled, s, plan_at(s, i), 0)) return 0;
        ratio[i] = s->result[i].ratio * sum_of_parts(weight, parts.whole, n) / add_law_noise(&parts);
    }
    return 1;
}

/* Measured over summed of the first plans at one scale; as fill_law_ratios. */
static int fill_scaled_ratios(double *ratio, double *weight, add_study *s, int k)
{
    for (int i = 0; i < s->n_scaled; i++) {
        memset(weight, 0, (size_t)s->scaled.n * sizeof *weight);
        if (!sum_parts(weight, &s->scaled, s, plan_at(s, i), 0)) return 0;
        ratio[i] = s->noise[k][i] / sum_of_parts(weight, s->noise[k], s->scaled.n);
    }
    return 1;
}

/* The median power with which the plans' noise grows up to a scale; NaN: none is known. power: room. */
static double median_power(double *power, const add_study *s, int k)
{
    int n = 0;
    for (int i = 0; i < s->n_scaled && k > 0; i++) {
        power[n] = add_law_power(s->noise[k][i], s->noise[k - 1][i], scales[k], scales[k - 1]);
        n += isfinite(power[n]);
    }
    return n > 0 ? tandem_median(power, (size_t)n) : NAN;
}

static void print_scale(json_t *rows, const add_study *s, int k, double power, double *ratio)
{
    const add_summary of = summary_of(ratio, s->n_scaled);
    char text[32] = "";
    if (k > 0) (void)snprintf(text, sizeof text, "%.2f", power);
    (void)fprintf(s->report->text, "| %g | %s | %.3f | %.0f %% |\n", scales[k], text, of.median,
                  100 * of.close);
    json_t *object = json_pack("{s:f,s:i}", "error_scale", scales[k], "plans", s->n_scaled);
    json_object_set_new(object, "power", cli_json_number(power));
    json_object_set_new(object, "median", cli_json_number(of.median));
    json_object_set_new(object, "close_share", cli_json_number(of.close));
    json_array_append_new(rows, object);
}

/* Adds "scales" and "law" to the task's object. */
static tandem_status print_scaled(add_study *s, json_t *object, tandem_error *error)
{
    double *ratio = calloc((size_t)s->n_plan + 1, sizeof *ratio),
           *weight = calloc((size_t)s->scaled.n + 1, sizeof *weight);
    json_t *rows = json_array();
    int is_allocated = ratio && weight && rows;
    (void)fprintf(s->report->text,
                  "\nErrors times a, %d plans:\n\n"
                  "| a | power of a, from the line above | measured over summed: median | within 20 %% |\n"
                  "|---|---|---|---|\n",
                  s->n_scaled);
    for (int k = 0; k < N_SCALE && is_allocated; k++) {
        const double power = median_power(ratio, s, k);
        is_allocated = fill_scaled_ratios(ratio, weight, s, k);
        if (is_allocated) print_scale(rows, s, k, power, ratio);
    }
    is_allocated = is_allocated && fill_law_ratios(ratio, weight, s);
    if (is_allocated) {
        const add_summary law = summary_of(ratio, s->n_plan);
        (void)fprintf(s->report->text,
                      "\nMeasured over ΣB + √ΣA², %d plans: median %.3f, within 20 %% %.0f %%.\n", s->n_plan,
                      law.median, 100 * law.close);
        json_t *of = json_object();
        json_object_set_new(of, "median", cli_json_number(law.median));
        json_object_set_new(of, "close_share", cli_json_number(law.close));
        json_object_set_new(object, "law", of);
    }
    json_object_set_new(object, "scales", rows);
    free(ratio);
    free(weight);
    return is_allocated ? TANDEM_OK : tandem_no_memory(error, "for the ratios of plans");
}

static void print_add_bars(add_study *s, const add_summary *all, const add_summary *shared)
{
    (void)fputs("\n| bar | value | met |\n|---|---|---|\n", s->report->text);
    add_add_bar(s, "median within 5 % of 1", all->median, fabs(all->median - 1) <= max_median_off);
    add_add_bar(s, "95 % of plans within 20 %", all->close, all->close >= least_close);
    if (shared->n > 0)
        add_add_bar(s, "median with a shared cast within 5 % of 1", shared->median,
                    fabs(shared->median - 1) <= max_median_off);
}

static tandem_status print_add_task(add_study *s, tandem_error *error)
{
    add_summary all, single, shared, shared_single;
    tandem_status status = summarise_plans(&all, s, 0, 0, error);
    if (status == TANDEM_OK) status = summarise_plans(&single, s, 0, 1, error);
    if (status == TANDEM_OK) status = summarise_plans(&shared, s, 1, 0, error);
    if (status == TANDEM_OK) status = summarise_plans(&shared_single, s, 1, 1, error);
    if (status != TANDEM_OK) return status;
    FILE *text = s->report->text;
    (void)fprintf(text,
                  "\n## `%s`\n\n| measured over summed | plans | median | within 20 %% | 1 inside |\n"
                  "|---|---|---|---|---|\n",
                  s->lab.task->model);
    print_summary(text, "all plans", &all, 1);
    print_summary(text, "all plans, over single operators", &single, 0);
    print_summary(text, "with a shared cast", &shared, 1);
    print_summary(text, "with a shared cast, over single operators", &shared_single, 0);
    json_t *ratios = json_array(), *pairs = s->pair ? print_pairs(s) : json_array();
    for (int i = 0; i < s->n_plan; i++) json_array_append_new(ratios, cli_json_number(s->result[i].ratio));
    json_t *object =
        json_pack("{s:i,s:b,s:o,s:o,s:o,s:o,s:o}", "plans", s->n_plan, "control", s->role == ADD_CONTROL,
                  "median", cli_json_number(all.median), "close_share", cli_json_number(all.close),
                  "median_by_operators", cli_json_number(single.median), "ratios", ratios, "pairs", pairs);
    json_object_set_new(s->report->json, s->lab.task->model, object);
    print_ceiling(s);
    if (s->role != ADD_ALONE) status = print_scaled(s, object, error);
    if (status == TANDEM_OK && s->role != ADD_CONTROL) print_add_bars(s, &all, &shared);
    return status;
}

/* --- The part --------------------------------------------------------------------------------------------
 * */

static void free_add_task(add_study *s)
{
    free(s->plan);
    free(s->result);
    free(s->pair);
    free(s->scaled.plan);
    s->plan = NULL;
    s->result = s->pair = NULL;
    s->scaled = (add_rows){0};
    for (int k = 0; k < N_SCALE; k++) {
        free(s->noise[k]);
        s->noise[k] = NULL;
    }
    noise_lab_close(&s->lab);
}

/* seed: of its plans. */
static tandem_status run_add_task(add_study *s, const noise_task *task, int n_plan, int seed,
                                  tandem_error *error)
{
    tandem_error why = {0};
    tandem_status status = noise_lab_open(&s->lab, task, s->report->options, &why);
    s->progress.n_job -= job_count(n_plan, s->role);
    if (status != TANDEM_OK && noise_task_skip(s->report, task, status)) return TANDEM_OK;
    if (status != TANDEM_OK) *error = why;
    if (status == TANDEM_OK) status = draw_plans(s, n_plan, seed, error);
    s->progress.n_job += job_count(s->n_plan, s->role);
    if (status == TANDEM_OK) status = run_add_jobs(s, error);
    if (status == TANDEM_OK) status = print_add_task(s, error);
    free_add_task(s);
    return status;
}

/* Each task, and its control. */
static tandem_status run_add_tasks(add_study *s, tandem_error *error)
{
    const add_scope *scope = s->scope;
    tandem_status status = TANDEM_OK;
    for (int t = 0; t < scope->tasks->n && status == TANDEM_OK; t++) {
        noise_task task = scope->tasks->task[t];
        s->role = t < scope->n_compared ? ADD_COMPARED : ADD_ALONE;
        status = run_add_task(s, &task, scope->n_plan, t, error);
        if (s->role == ADD_ALONE || !scope->control[t] || status != TANDEM_OK) continue;
        s->role = ADD_CONTROL;
        task.model = scope->control[t];
        status = run_add_task(s, &task, scope->n_control_plan, t, error);
    }
    return status;
}

static int count_add_jobs(const add_scope *scope)
{
    int n = 0;
    for (int t = 0; t < scope->tasks->n; t++) {
        n += job_count(scope->n_plan, t < scope->n_compared ? ADD_COMPARED : ADD_ALONE);
        if (t < scope->n_compared && scope->control[t]) n += job_count(scope->n_control_plan, ADD_CONTROL);
    }
    return n;
}

tandem_status study_add(study_report *report, tandem_error *error)
{
    add_study s = {.report = report,
                   .scope = report->options->quick ? &quick_scope : &full_scope,
                   .progress = {.part = "add"}};
    const double number[] = {s.scope->n_plan, s.scope->n_replicate, PLANS_OF_JOB};
    char name[STUDY_PLAN_NAME];
    s.progress.n_job = count_add_jobs(s.scope);
    noise_plan_name(name, s.scope->tasks, "add", number, sizeof number / sizeof *number,
                    report->options->seed);
    (void)fprintf(
        report->text,
        "# Noise of a plan, and the sum over its parts\n\n"
        "Up to %d different plans of a task give each operator bf16, fp8, int8_full or fp32 at random.\n"
        "*measured*: the noise φρ of the whole plan's gradients. *summed*: those of its parts, each alone,\n"
        "with the same batches and draws. Operators that read one rounded copy are one part; *over single\n"
        "operators* counts each of them alone. *1 inside*: of the 95 %% interval of a plan's ratio.\n\n"
        "Models with gelu=1 are controls, with %d of the same plans and no bars. *Power of a*: with which\n"
        "the noise of plans grows between two scales of all errors: 1 where slopes jump, else 2. A and B of\n"
        "a part are the jumping and the smooth share of its noise, A·a + B·a².\n",
        s.scope->n_plan, s.scope->n_control_plan);
    tandem_status status = study_records_open(&s.records, report->options->checkpoint, name, error);
    if (status == TANDEM_OK) status = run_add_tasks(&s, error);
    study_records_close(&s.records);
    return status;
}
