/* compare_speed.c: predicts each kept step of a run at the speed that the machine had, and with what others
 * took in it. */
#include <math.h>
#include <stdlib.h>

#include "base/sort.h"
#include "runtime/compare/compare_case.h"
#include "runtime/workload_planner.h"

enum { UNDISTURBED_SHARE = 100, ENOUGH_UNDISTURBED = 8 };

/* One class of devices: its steady speed sample, and the tasks' times there. */
typedef struct speed_class {
    tandem_speed_sample steady;
    double interval_share; /* of its profile */
    int first_rank, n_rank, n_task;
    int64_t *ns;          /* [2][n_task] alone and contended, as profiled; −1 = none */
    double *memory_share; /* [n_task] */
    int64_t busy_ns;      /* their sum */
} speed_class;

typedef struct run_speed {
    const tandem_compare_result *run;
    tandem_replayer *replayer;
    int n_class;
    speed_class classes[TANDEM_MAX_CLASS];
    double *error;         /* [KEPT_STEPS] */
    unsigned char *counts; /* [KEPT_STEPS] whether the step counts */
} run_speed;

/* --- What was profiled ---------------------------------------------------------------------------------- */

/* The steadiness beside the co-runner that the class has, or alone. */
static tandem_status get_class_steadiness(speed_class *class, tandem_store *store,
                                          const tandem_cluster *cluster, int c, tandem_error *error)
{
    tandem_steadiness found, beside;
    tandem_status status =
        tandem_store_get_steadiness(&found, store, cluster->classes[c].device.name, "", error);
    for (int other = 0; other < cluster->n_class && status == TANDEM_OK; other++) {
        if (other == c && cluster->classes[c].n_rank < 2) continue;
        status = tandem_store_get_steadiness(&beside, store, cluster->classes[c].device.name,
                                             cluster->classes[other].device.name, error);
        if (status != TANDEM_OK || beside.compute_speed_sample_ns == 0) continue;
        beside.interval_share = fmax(beside.interval_share, found.interval_share);
        found = beside;
    }
    if (status != TANDEM_OK) return status;
    class->steady = (tandem_speed_sample){found.compute_speed_sample_ns, found.memory_speed_sample_ns};
    class->interval_share = found.interval_share;
    return TANDEM_OK;
}

static tandem_status open_class_times(speed_class *class, const tandem_replayer *replayer, int c,
                                      tandem_error *error)
{
    const tandem_step *step = tandem_replayer_step(replayer, c);
    const size_t n_task = (size_t)step->n_task;
    class->n_task = step->n_task;
    class->ns = malloc(2 * n_task * sizeof *class->ns);
    class->memory_share = calloc(n_task, sizeof *class->memory_share);
    if (!class->ns || !class->memory_share)
        return tandem_no_memory(error, "for the times of %zu tasks", n_task);
    for (int t = 0; t < step->n_task; t++) {
        const tandem_task *task = &step->task[t];
        const int is_timed = task->active && !tandem_task_is_collective(task->kind);
        tandem_cost_key key;
        for (int contended = 0; contended < 2; contended++)
            class->ns[contended * step->n_task + t] =
                is_timed ? tandem_replayer_variant_ns(replayer, c, t, task->variant, contended) : -1;
        const int64_t ns = class->ns[t] > 0 ? class->ns[t] : class->ns[step->n_task + t];
        if (ns > 0 && tandem_step_cost_key(step, t, task->variant, &key))
            class->memory_share[t] = task_memory_share(&key, ns, &class->steady);
        class->busy_ns += ns > 0 ? ns : 0;
    }
    return TANDEM_OK;
}

static tandem_status open_run_speed(run_speed *speed, const tandem_compare_request *request,
                                    const tandem_workload *workload, tandem_error *error)
{
    tandem_store *store = NULL;
    tandem_status status = tandem_store_open(&store, request->train.store, TANDEM_STORE_READ, error);
    int rank = 0;
    for (int c = 0; c < speed->n_class && status == TANDEM_OK; c++) {
        speed_class *class = &speed->classes[c];
        class->first_rank = rank;
        class->n_rank = workload->cluster.classes[c].n_rank;
        rank += class->n_rank;
        status = get_class_steadiness(class, store, &workload->cluster, c, error);
        if (status == TANDEM_OK) status = open_class_times(class, speed->replayer, c, error);
    }
    tandem_store_close(store);
    if (status != TANDEM_OK) return status;
    speed->error = calloc(KEPT_STEPS, sizeof *speed->error);
    speed->counts = calloc(KEPT_STEPS, 1);
    return speed->error && speed->counts ? TANDEM_OK : tandem_no_memory(error, "for the errors of steps");
}

static void close_run_speed(run_speed *speed)
{
    for (int c = 0; c < speed->n_class; c++) {
        free(speed->classes[c].ns);
        free(speed->classes[c].memory_share);
    }
    free(speed->error);
    free(speed->counts);
}

/* --- One step ------------------------------------------------------------------------------------------- */

/* Of the ranks of a class, that from which others took most in this step. */
static const run_steadiness *delayed_rank(const run_speed *speed, const speed_class *class, int step,
                                          int64_t *ns)
{
    const run_steadiness *most = NULL;
    *ns = -1;
    for (int r = 0; r < class->n_rank; r++) {
        const run_steadiness *rank = &speed->run->steadiness[class->first_rank + r];
        int64_t sum = 0;
        for (int k = 0; k < rank->n_delay; k++)
            if (rank->delay[k].step == step) sum += rank->delay[k].ns;
        if (sum <= *ns) continue;
        *ns = sum;
        most = rank;
    }
    return most;
}

static void set_class_times(run_speed *speed, int c, const tandem_speed_sample *sample, double delay_factor)
{
    const speed_class *class = &speed->classes[c];
    const tandem_step *program = tandem_replayer_step(speed->replayer, c);
    for (int t = 0; t < class->n_task; t++) {
        const double slowdown =
            tandem_speed_sample_slowdown(sample, &class->steady, class->memory_share[t]) * delay_factor;
        for (int contended = 0; contended < 2; contended++) {
            const int64_t ns = class->ns[contended * class->n_task + t];
            if (ns >= 0)
                tandem_replayer_set_variant_ns(speed->replayer, c, t, program->task[t].variant, contended,
                                               llround((double)ns * slowdown));
        }
    }
}

static void add_task_delay(run_speed *speed, int c, int t, int64_t delay_ns)
{
    const speed_class *class = &speed->classes[c];
    const tandem_task *task = &tandem_replayer_step(speed->replayer, c)->task[t];
    for (int contended = 0; contended < 2; contended++)
        if (class->ns[contended * class->n_task + t] >= 0)
            tandem_replayer_set_variant_ns(
                speed->replayer, c, t, task->variant, contended,
                tandem_replayer_variant_ns(speed->replayer, c, t, task->variant, contended) + delay_ns);
}

/* At the speed sample beside the step, and with_delays or without. Delays of unknown place stretch all
 * tasks. */
static void set_step_times(run_speed *speed, int c, int step, int with_delays)
{
    const speed_class *class = &speed->classes[c];
    int64_t all_ns = 0, spread_ns = 0;
    const run_steadiness *rank = delayed_rank(speed, class, step, &all_ns);
    const int n_micro = tandem_replayer_step(speed->replayer, c)->options.n_micro;
    for (int k = 0; k < rank->n_delay && with_delays; k++)
        if (rank->delay[k].step == step && rank->delay[k].task < 0) spread_ns += rank->delay[k].ns;
    set_class_times(speed, c, &rank->speed_sample[step],
                    class->busy_ns > 0 ? 1 + (double)spread_ns / n_micro / (double)class->busy_ns : 1);
    for (int k = 0; k < rank->n_delay && with_delays; k++)
        if (rank->delay[k].step == step && rank->delay[k].task >= 0 && rank->delay[k].task < class->n_task)
            add_task_delay(speed, c, rank->delay[k].task, rank->delay[k].ns / n_micro);
}

static tandem_status replay_step(int64_t *ns, run_speed *speed, int step, int with_delays,
                                 tandem_error *error)
{
    tandem_replay replay;
    for (int c = 0; c < speed->n_class; c++) set_step_times(speed, c, step, with_delays);
    const tandem_status status = tandem_replayer_run(speed->replayer, &replay, 0, error);
    if (status == TANDEM_OK) *ns = replay.step_ns;
    return status;
}

/* What the delays add to the simulated step is taken off the measured one: long delays do not dilute the
 * tasks' error. */
static tandem_status predict_step(run_speed *speed, int step, tandem_error *error)
{
    int64_t most_ns = 0, alone_ns = 0, delayed_ns = 0;
    const int64_t measured_ns = speed->run->steadiness[0].step_ns[step];
    for (int c = 0; c < speed->n_class; c++) {
        int64_t ns = 0;
        (void)delayed_rank(speed, &speed->classes[c], step, &ns);
        if (ns > most_ns) most_ns = ns;
    }
    tandem_status status = replay_step(&alone_ns, speed, step, 0, error);
    delayed_ns = alone_ns;
    if (status == TANDEM_OK && most_ns > 0) status = replay_step(&delayed_ns, speed, step, 1, error);
    if (status != TANDEM_OK) return status;
    const double own_ns = (double)(measured_ns - (delayed_ns - alone_ns));
    speed->counts[step] = most_ns <= measured_ns / UNDISTURBED_SHARE;
    speed->error[step] = own_ns > 0 ? ((double)alone_ns - own_ns) / own_ns : NAN;
    return TANDEM_OK;
}

/* --- All steps ------------------------------------------------------------------------------------------ */

static int compare_double(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median and the sign test's interval of the steps that count. */
static void summarise_errors(tandem_compare_speed *out, const run_speed *speed, int n_step)
{
    double sorted[KEPT_STEPS];
    int n = 0;
    for (int k = 0; k < n_step; k++)
        if (speed->counts[k] && isfinite(speed->error[k])) sorted[n++] = speed->error[k];
    if (n == 0) return;
    qsort(sorted, (size_t)n, sizeof *sorted, compare_double);
    int below = (int)floor((double)n / 2 - 0.98 * sqrt((double)n)) - 1;
    if (below < 0) below = 0;
    out->error_at_run_speed = (sorted[(n - 1) / 2] + sorted[n / 2]) / 2;
    out->low = sorted[below];
    out->high = sorted[n - 1 - below];
}

static double slowdown_of_run(const run_steadiness *rank, const tandem_speed_sample *steady, int is_memory)
{
    int64_t ns[KEPT_STEPS];
    const int64_t steady_ns = is_memory ? steady->memory_ns : steady->compute_ns;
    if (rank->n_step == 0 || steady_ns <= 0 || (is_memory && rank->speed_sample[0].memory_ns == 0))
        return NAN;
    for (int k = 0; k < rank->n_step; k++)
        ns[k] = is_memory ? rank->speed_sample[k].memory_ns : rank->speed_sample[k].compute_ns;
    tandem_sort_int64(ns, (size_t)rank->n_step);
    return (double)tandem_sorted_median(ns, (size_t)rank->n_step) / (double)steady_ns;
}

static void summarise_machine(tandem_compare_speed *out, const run_speed *speed, int n_rank)
{
    double interval = NAN;
    for (int c = 0; c < speed->n_class; c++) {
        const speed_class *class = &speed->classes[c];
        const run_steadiness *rank = &speed->run->steadiness[class->first_rank];
        out->compute_slowdown = fmax(out->compute_slowdown, slowdown_of_run(rank, &class->steady, 0));
        out->memory_slowdown = fmax(out->memory_slowdown, slowdown_of_run(rank, &class->steady, 1));
        interval = fmax(interval, class->interval_share);
    }
    out->profile_noise = sqrt(2) * interval;
    for (int r = 0; r < n_rank; r++) {
        const run_steadiness *rank = &speed->run->steadiness[r];
        double delays = 0, steps = 0;
        for (int k = 0; k < rank->n_delay; k++) delays += (double)rank->delay[k].ns;
        for (int k = 0; k < rank->n_step; k++) steps += (double)rank->step_ns[k];
        if (rank->is_delay_known && steps > 0) out->delay_share = fmax(out->delay_share, delays / steps);
        out->speed_sample_share = fmax(out->speed_sample_share, rank->speed_sample_share);
    }
}

/* Steps without delays count alone, where there are enough. */
static void choose_steps(tandem_compare_speed *out, run_speed *speed, int n_step)
{
    out->n_step = n_step;
    out->n_undisturbed = 0;
    for (int k = 0; k < n_step; k++) out->n_undisturbed += speed->counts[k];
    for (int k = 0; k < n_step && out->n_undisturbed < ENOUGH_UNDISTURBED; k++) speed->counts[k] = 1;
}

/* --- Kinds of tasks ------------------------------------------------------------------------------------- */

enum { MAX_KINDS = TANDEM_MAX_CLASS * TANDEM_N_TASK_KIND };

static tandem_speed_sample median_speed_sample_of_run(const run_steadiness *rank,
                                                      const tandem_speed_sample *steady)
{
    const double compute = slowdown_of_run(rank, steady, 0), memory = slowdown_of_run(rank, steady, 1);
    return (tandem_speed_sample){isnan(compute) ? 0 : llround(compute * (double)steady->compute_ns),
                                 isnan(memory) ? 0 : llround(memory * (double)steady->memory_ns)};
}

/* At the median speed sample of the run, without delays. */
static void set_median_times(run_speed *speed, int c)
{
    const speed_class *class = &speed->classes[c];
    const tandem_speed_sample sample =
        median_speed_sample_of_run(&speed->run->steadiness[class->first_rank], &class->steady);
    set_class_times(speed, c, &sample, 1);
}

/* of[TANDEM_N_TASK_KIND]: the times of a class by kind, from the replay that was run last. */
static void sum_kinds(compare_kind *of, const run_speed *speed, int c)
{
    int n_event = 0;
    const tandem_step *step = tandem_replayer_step(speed->replayer, c);
    const tandem_trace_event *event = tandem_replayer_events(speed->replayer, c, &n_event);
    for (int k = 0; k < TANDEM_N_TASK_KIND; k++)
        of[k] = (compare_kind){.device = speed->run->classes[c].device,
                               .name = tandem_task_kind_name((tandem_task_kind)k)};
    for (int e = 0; e < n_event; e++) {
        if (event[e].task < 0 || tandem_task_is_collective(step->task[event[e].task].kind)) continue;
        compare_kind *kind = &of[step->task[event[e].task].kind];
        kind->predicted_ns += event[e].end_ns - event[e].start_ns;
        kind->measured_ns += speed->run->task[event[e].task].class_measured_ns[c];
    }
}

/* What the step would gain or lose if this kind took its measured time. */
static tandem_status find_step_effect(compare_kind *of, run_speed *speed, int c, tandem_task_kind kind,
                                      int64_t step_ns, tandem_error *error)
{
    tandem_replay replay;
    const tandem_step *step = tandem_replayer_step(speed->replayer, c);
    const double factor = (double)of->measured_ns / (double)of->predicted_ns;
    for (int t = 0; t < step->n_task; t++)
        for (int contended = 0; contended < 2 && step->task[t].kind == kind; contended++) {
            const int variant = step->task[t].variant;
            if (speed->classes[c].ns[contended * step->n_task + t] < 0) continue;
            const int64_t ns = tandem_replayer_variant_ns(speed->replayer, c, t, variant, contended);
            tandem_replayer_set_variant_ns(speed->replayer, c, t, variant, contended,
                                           llround((double)ns * factor));
        }
    const tandem_status status = tandem_replayer_run(speed->replayer, &replay, 0, error);
    if (status == TANDEM_OK) of->step_effect = (double)replay.step_ns / (double)step_ns - 1;
    set_median_times(speed, c);
    return status;
}

static tandem_status compare_kinds(compare_kind *kind, int *n_kind, run_speed *speed, tandem_error *error)
{
    tandem_replay replay;
    compare_kind of[TANDEM_MAX_CLASS][TANDEM_N_TASK_KIND];
    *n_kind = 0;
    for (int c = 0; c < speed->n_class; c++) set_median_times(speed, c);
    tandem_status status = tandem_replayer_run(speed->replayer, &replay, TANDEM_REPLAY_EVENTS, error);
    if (status != TANDEM_OK) return status;
    for (int c = 0; c < speed->n_class; c++) sum_kinds(of[c], speed, c);
    for (int c = 0; c < speed->n_class; c++)
        for (int k = 0; k < TANDEM_N_TASK_KIND && status == TANDEM_OK; k++) {
            if (of[c][k].measured_ns <= 0 || of[c][k].predicted_ns <= 0) continue;
            status = find_step_effect(&of[c][k], speed, c, (tandem_task_kind)k, replay.step_ns, error);
            kind[(*n_kind)++] = of[c][k];
        }
    return status;
}

/* Walks that say nothing of tasks do not count. */
static void drop_unreliable_walks(run_steadiness *rank)
{
    int64_t ns[KEPT_STEPS];
    const int n = rank->n_step;
    for (int k = 0; k < n; k++) ns[k] = rank->speed_sample[k].memory_ns;
    tandem_sort_int64(ns, (size_t)n);
    if (n == 0 || (double)(ns[9 * n / 10] - ns[n / 10]) <= SPEED_SAMPLE_UNRELIABLE * (double)ns[n / 2])
        return;
    for (int k = 0; k < n; k++) rank->speed_sample[k].memory_ns = 0;
}

static tandem_status judge_steps(tandem_compare_result *out, const tandem_compare_request *request,
                                 run_speed *speed, tandem_error *error)
{
    compare_kind kind[MAX_KINDS];
    int n_kind = 0;
    const int n_step = out->steadiness[0].n_step;
    tandem_status status = TANDEM_OK;
    for (int r = 0; r < out->n_rank; r++) drop_unreliable_walks(&out->steadiness[r]);
    for (int k = 0; k < n_step && status == TANDEM_OK; k++) status = predict_step(speed, k, error);
    if (status != TANDEM_OK) return status;
    choose_steps(&out->steady, speed, n_step);
    summarise_errors(&out->steady, speed, n_step);
    summarise_machine(&out->steady, speed, out->n_rank);
    status = compare_kinds(kind, &n_kind, speed, error);
    if (status == TANDEM_OK)
        compare_verdict_decide(&out->steady, out->error, request->tolerance, kind, n_kind);
    return status;
}

tandem_status compare_judge(tandem_compare_result *out, const tandem_compare_request *request,
                            const tandem_workload *workload, tandem_error *error)
{
    tandem_planner *planner = NULL;
    tandem_replay replay;
    out->steady = (tandem_compare_speed){.error_at_run_speed = NAN,
                                         .low = NAN,
                                         .high = NAN,
                                         .delay_share = NAN,
                                         .speed_sample_share = NAN,
                                         .compute_slowdown = NAN,
                                         .memory_slowdown = NAN,
                                         .profile_noise = NAN,
                                         .moved_by = NAN,
                                         .kind = "",
                                         .kind_error = NAN};
    if (!out->steadiness || out->steadiness[0].n_step == 0) return TANDEM_OK;
    tandem_status status = workload_planner_open(&planner, workload, &request->train, 1, error);
    if (status != TANDEM_OK) return status;
    run_speed speed = {
        .run = out, .replayer = tandem_planner_problem(planner)->replayer, .n_class = out->n_class};
    /* finds which variant of each task the plan has */
    status = tandem_replayer_run(speed.replayer, &replay, 0, error);
    if (status == TANDEM_OK) status = open_run_speed(&speed, request, workload, error);
    if (status == TANDEM_OK) status = judge_steps(out, request, &speed, error);
    close_run_speed(&speed);
    tandem_planner_close(planner);
    return status;
}
