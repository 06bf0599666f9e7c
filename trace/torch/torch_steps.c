/* torch_steps.c: steps of a trace. A step of a device is what was launched by it: a host may be far ahead of
 * its device.
 *
 * A step ends with its window on the host, or with the last kernel that it launched, whichever is later. It
 * begins with its window, or where the step before ends. The first one has none before it: where its kernels
 * end after its window, it begins with its first kernel, or as long before its end as the window takes. */
#include <stdlib.h>
#include <string.h>

#include "base/sort.h"
#include "trace/torch/torch_reader.h"

/* --- Windows -------------------------------------------------------------------------------------------- */

static int by_number_begin(const void *left, const void *right)
{
    const torch_step_window *const a = left, *const b = right;
    const int order = TANDEM_ORDER(a->number, b->number);
    return order ? order : TANDEM_ORDER(a->begin_ns, b->begin_ns);
}

static int by_window_begin(const void *left, const void *right)
{
    const torch_step_window *const a = left, *const b = right;
    const int order = TANDEM_ORDER(a->begin_ns, b->begin_ns);
    return order ? order : TANDEM_ORDER(a->number, b->number);
}

/* By time. Slices of one number that overlap are one step: some versions write it twice. */
static void sort_windows(torch_rank *rank)
{
    int n = 0;
    if (rank->n_window == 0) return;
    qsort(rank->window, (size_t)rank->n_window, sizeof *rank->window, by_number_begin);
    for (int k = 0; k < rank->n_window; k++) {
        const torch_step_window window = rank->window[k];
        torch_step_window *const last = n ? &rank->window[n - 1] : NULL;
        if (last && last->number == window.number && window.begin_ns < last->end_ns) {
            if (window.end_ns > last->end_ns) last->end_ns = window.end_ns;
        } else {
            rank->window[n++] = window;
        }
    }
    rank->n_window = n;
    qsort(rank->window, (size_t)n, sizeof *rank->window, by_window_begin);
    for (int k = 0; k < n; k++) {
        rank->window[k].first_kernel_ns = INT64_MAX;
        rank->window[k].last_kernel_ns = rank->window[k].between_end_ns = INT64_MIN;
    }
}

/* How many windows begin up to a time. */
static int count_windows_begun(const torch_rank *rank, int64_t at_ns)
{
    int low = 0, high = rank->n_window;
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (rank->window[middle].begin_ns <= at_ns)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The step within which a time is; −1 = none. */
static int find_window(const torch_rank *rank, int64_t at_ns)
{
    const int last = count_windows_begun(rank, at_ns) - 1;
    return last >= 0 && at_ns < rank->window[last].end_ns ? last : -1;
}

/* --- What belongs to a step ----------------------------------------------------------------------------- */

/* When the first kernel begins whose launch was recorded, if most launches were; otherwise INT64_MIN. Kernels
 * without a launch that begin earlier were launched before the recording. */
static int64_t find_recording_begin(const torch_rank *rank)
{
    int64_t first_ns = INT64_MAX;
    int n = 0;
    for (int k = 0; k < rank->n_kernel; k++) {
        if (!rank->kernel[k].has_launch) continue;
        if (rank->kernel[k].start_ns < first_ns) first_ns = rank->kernel[k].start_ns;
        n++;
    }
    return 2 * (int64_t)n > rank->n_kernel ? first_ns : INT64_MIN;
}

static int64_t launch_time_ns(const torch_kernel *kernel, int64_t recording_begin_ns)
{
    if (kernel->launch_ns != INT64_MIN) return kernel->launch_ns;
    return kernel->start_ns < recording_begin_ns ? INT64_MIN : kernel->start_ns;
}

static void place_kernel(torch_rank *rank, torch_kernel *kernel, int64_t at_ns)
{
    kernel->window = find_window(rank, at_ns);
    if (kernel->collective >= 0) rank->collective[kernel->collective].window = kernel->window;
    if (kernel->window >= 0) {
        torch_step_window *const window = &rank->window[kernel->window];
        window->n_kernel++;
        torch_add_ns(&window->kernel_ns, kernel->end_ns - kernel->start_ns);
        if (kernel->launch_ns != INT64_MIN && kernel->start_ns < window->first_kernel_ns)
            window->first_kernel_ns = kernel->start_ns;
        if (kernel->end_ns > window->last_kernel_ns) window->last_kernel_ns = kernel->end_ns;
        return;
    }
    const int next = count_windows_begun(rank, at_ns); /* its work delays the next step */
    if (next < rank->n_window && kernel->end_ns > rank->window[next].between_end_ns)
        rank->window[next].between_end_ns = kernel->end_ns;
    rank->left_out.n_outside++;
    torch_add_ns(&rank->left_out.outside_ns, kernel->end_ns - kernel->start_ns);
}

/* A recording that begins or ends within a step leaves a fragment of it: less than three quarters of the
 * work of every other step. Of two steps only one that also takes less than half as long, or has no work
 * at all. */
static int is_fragment(const torch_rank *rank, int at)
{
    const torch_step_window *const window = &rank->window[at];
    int64_t least = INT64_MAX;
    int n_other = 0, other = 0;
    for (int k = 0; k < rank->n_window; k++) {
        if (k == at || rank->window[k].is_fragment) continue;
        if (rank->window[k].n_work < least) least = rank->window[k].n_work;
        other = k;
        n_other++;
    }
    if (n_other == 0 || least == 0) return 0;
    if (n_other > 1) return 4 * window->n_work < 3 * least;
    const torch_step_window *const only = &rank->window[other];
    return window->n_work == 0 || (2 * window->n_work < least &&
                                   2 * (window->end_ns - window->begin_ns) < only->end_ns - only->begin_ns);
}

/* The smaller of the two ends first: it must not hide the other. */
static void find_fragments(torch_rank *rank)
{
    const int last = rank->n_window - 1;
    if (last < 1) return;
    const int is_last_smaller = rank->window[last].n_work <= rank->window[0].n_work;
    const int order[2] = {is_last_smaller ? last : 0, is_last_smaller ? 0 : last};
    for (int k = 0; k < 2; k++) rank->window[order[k]].is_fragment = is_fragment(rank, order[k]);
}

static int is_in_whole_step(const torch_rank *rank, int window)
{
    return rank->n_window == 0 || (window >= 0 && !rank->window[window].is_fragment);
}

/* Costs of calls within whole steps, and what is in none. */
static void add_call_costs(torch_rank *rank)
{
    tandem_torch_left_out *const out = &rank->left_out;
    for (int k = 0; k < rank->n_call; k++) {
        const torch_call *const call = &rank->call[k];
        tandem_torch_cost *const cost = &rank->signature[call->signature].cost[call->pass];
        if (!call->is_row) continue;
        if (is_in_whole_step(rank, find_window(rank, call->start_ns))) {
            cost->step_calls++;
            torch_add_ns(&cost->step_self_ns, call->self_ns);
        } else {
            out->n_call_outside++;
            torch_add_ns(&out->call_outside_ns, call->self_ns);
        }
    }
}

/* Kernels without an operator have a row of their own. */
static void add_kernel_costs(torch_rank *rank)
{
    for (int k = 0; k < rank->n_kernel; k++) {
        const torch_kernel *const kernel = &rank->kernel[k];
        const int64_t took_ns = kernel->end_ns - kernel->start_ns;
        const int is_owned = kernel->owner >= 0, is_counted = is_in_whole_step(rank, kernel->window);
        tandem_torch_cost *const cost = &rank->signature[is_owned ? kernel->owner : kernel->signature]
                                             .cost[is_owned ? kernel->pass : TANDEM_TORCH_UNKNOWN];
        torch_add_ns(&cost->device_ns, took_ns);
        cost->calls += !is_owned;
        if (is_counted) torch_add_ns(&cost->step_device_ns, took_ns);
        cost->step_calls += !is_owned && is_counted;
    }
}

/* Kernels are a step's work; without any in steps, its operators are. */
static void count_work(torch_rank *rank)
{
    int64_t n_kernel = 0;
    for (int k = 0; k < rank->n_window; k++) n_kernel += rank->window[k].n_work = rank->window[k].n_kernel;
    for (int k = 0; k < rank->n_call && n_kernel == 0; k++) {
        const int window = find_window(rank, rank->call[k].start_ns);
        if (window >= 0) rank->window[window].n_work++;
    }
}

void torch_rank_place_in_steps(torch_rank *rank)
{
    sort_windows(rank);
    const int64_t recording_begin_ns = find_recording_begin(rank);
    for (int k = 0; k < rank->n_kernel && rank->n_window; k++)
        place_kernel(rank, &rank->kernel[k], launch_time_ns(&rank->kernel[k], recording_begin_ns));
    for (int k = 0; k < rank->n_collective; k++)
        if (rank->collective[k].source != TORCH_KERNEL)
            rank->collective[k].window = find_window(rank, rank->collective[k].start_ns);
    count_work(rank);
    find_fragments(rank);
    for (int k = 0; k < rank->n_window; k++) {
        if (!rank->window[k].is_fragment) continue;
        rank->left_out.n_in_fragment += rank->window[k].n_kernel;
        torch_add_ns(&rank->left_out.in_fragment_ns, rank->window[k].kernel_ns);
    }
    add_call_costs(rank);
    add_kernel_costs(rank);
}

/* --- Measuring ------------------------------------------------------------------------------------------ */

int torch_rank_comm_source(const torch_rank *rank)
{
    for (int k = 0; k < rank->n_kernel; k++)
        if (rank->kernel[k].is_comm) return TORCH_KERNEL;
    for (int source = TORCH_SLICE; source < N_TORCH_SOURCE; source++)
        if (rank->comm[source].n) return source;
    return 0;
}

/* Busy times of one step. */
typedef struct step_meter {
    const torch_rank *rank;
    torch_kernel *kernel; /* by step and start */
    int next, source;
    tandem_interval_set compute, comm;
    int64_t filled_gap_ns;
    tandem_error *error;
} step_meter;

static int by_window_start(const void *left, const void *right)
{
    const torch_kernel *const a = left, *const b = right;
    int order = TANDEM_ORDER(a->window, b->window);
    if (!order) order = TANDEM_ORDER(a->start_ns, b->start_ns);
    return order ? order : TANDEM_ORDER(a->end_ns, b->end_ns);
}

static void clear_intervals(step_meter *m, tandem_interval_set *set)
{
    m->filled_gap_ns += set->filled_gap_ns;
    set->n = set->n_merged = 0;
    set->filled_gap_ns = 0;
}

/* Gathers the kernels of one window: −1 = of the whole trace. */
static tandem_status gather_step_kernels(step_meter *m, int window)
{
    tandem_status status = TANDEM_OK;
    clear_intervals(m, &m->compute);
    clear_intervals(m, &m->comm);
    while (m->next < m->rank->n_kernel && m->kernel[m->next].window < window) m->next++;
    for (; m->next < m->rank->n_kernel && m->kernel[m->next].window == window && status == TANDEM_OK;
         m->next++) {
        const torch_kernel *const kernel = &m->kernel[m->next];
        status = tandem_interval_set_add(kernel->is_comm ? &m->comm : &m->compute, kernel->start_ns,
                                         kernel->end_ns, m->error);
    }
    tandem_interval_set_merge(&m->compute);
    tandem_interval_set_merge(&m->comm);
    return status;
}

/* Kernels of a step count as a whole, busy times of the host within the step. */
static void measure_step(const step_meter *m, const torch_step_window *window, int64_t begin_ns,
                         int64_t end_ns, tandem_torch_step *step)
{
    const int is_device = m->rank->n_kernel > 0, is_kernel = is_device && m->source == TORCH_KERNEL;
    const tandem_interval_set *const compute = is_device ? &m->compute : &m->rank->host;
    const tandem_interval_set *const comm = is_kernel ? &m->comm : &m->rank->comm[m->source];
    const int64_t first_ns = INT64_MIN / 2, last_ns = INT64_MAX / 2;
    const int64_t compute_from = is_device ? first_ns : begin_ns, compute_to = is_device ? last_ns : end_ns;
    const int64_t comm_from = is_kernel ? first_ns : begin_ns, comm_to = is_kernel ? last_ns : end_ns;
    *step = (tandem_torch_step){
        .number = window->number, .duration_ns = end_ns - begin_ns, .n_kernel = window->n_kernel};
    step->compute_ns = tandem_interval_set_covered_ns(compute, compute_from, compute_to);
    step->comm_ns = tandem_interval_set_covered_ns(comm, comm_from, comm_to);
    step->exposed_ns = step->comm_ns - tandem_interval_set_common_ns(compute, comm, comm_from, comm_to);
    const int64_t within_ns = tandem_interval_set_covered_ns(compute, begin_ns, end_ns) -
                              tandem_interval_set_common_ns(compute, comm, begin_ns, end_ns) +
                              tandem_interval_set_covered_ns(comm, begin_ns, end_ns);
    step->idle_ns = step->duration_ns - within_ns;
    step->early_ns = step->compute_ns + step->exposed_ns - within_ns;
}

/* When a step begins, if the one before and the work after it end at `before_ns`; INT64_MIN = there is
 * none. */
static int64_t find_step_begin(const torch_step_window *w, int64_t before_ns, int is_first)
{
    if (before_ns > w->begin_ns) return before_ns;
    if (!is_first || w->last_kernel_ns <= w->end_ns) return w->begin_ns;
    const int64_t by_window_ns = w->last_kernel_ns - (w->end_ns - w->begin_ns);
    const int64_t begin_ns = w->first_kernel_ns < by_window_ns ? w->first_kernel_ns : by_window_ns;
    return begin_ns > w->begin_ns ? begin_ns : w->begin_ns;
}

static int64_t later_time_ns(int64_t a_ns, int64_t b_ns) { return a_ns > b_ns ? a_ns : b_ns; }

static tandem_status measure_windows(step_meter *m, tandem_torch_rank *result)
{
    const torch_rank *const rank = m->rank;
    int64_t before_ns = INT64_MIN;
    tandem_status status = TANDEM_OK;
    for (int k = 0; k < rank->n_window && status == TANDEM_OK; k++) {
        const torch_step_window *const w = &rank->window[k];
        before_ns = later_time_ns(before_ns, w->between_end_ns);
        const int64_t begin_ns =
            w->is_fragment ? w->begin_ns : find_step_begin(w, before_ns, !result->n_step);
        const int64_t own_end_ns = later_time_ns(w->end_ns, w->last_kernel_ns);
        const int64_t end_ns = later_time_ns(own_end_ns, begin_ns);
        status = gather_step_kernels(m, k);
        measure_step(m, w, begin_ns, end_ns,
                     w->is_fragment ? &result->fragment[result->n_fragment++]
                                    : &result->step[result->n_step++]);
        before_ns = later_time_ns(before_ns, w->is_fragment ? w->last_kernel_ns : end_ns);
    }
    return status;
}

static tandem_status measure_whole_trace(step_meter *m, tandem_torch_rank *result)
{
    const torch_rank *const rank = m->rank;
    const torch_step_window whole = {.number = -1, .n_kernel = rank->n_kernel};
    const tandem_status status = gather_step_kernels(m, -1);
    if (status != TANDEM_OK) return status;
    result->n_step = 1;
    measure_step(m, &whole, rank->first_ns, rank->last_ns, result->step);
    return TANDEM_OK;
}

/* The mean of one member of all steps, without a sum that could overflow: rounded down. */
static int64_t mean_of_member(const tandem_torch_rank *result, size_t offset)
{
    int64_t whole = 0, rest = 0;
    for (int k = 0; k < result->n_step; k++) {
        int64_t value;
        memcpy(&value, (const char *)&result->step[k] + offset, sizeof value);
        whole += value / result->n_step;
        rest += value % result->n_step;
    }
    return whole + rest / result->n_step;
}

static void find_mean(tandem_torch_rank *result)
{
    result->mean = (tandem_torch_step){.number = -1};
#define MEAN(member) result->mean.member = mean_of_member(result, offsetof(tandem_torch_step, member));
    MEAN(duration_ns)
    MEAN(compute_ns)
    MEAN(comm_ns)
    MEAN(exposed_ns)
    MEAN(idle_ns)
    MEAN(early_ns)
    MEAN(n_kernel)
#undef MEAN
}

tandem_status torch_rank_measure_steps(const torch_rank *rank, tandem_torch_rank *result, tandem_error *error)
{
    step_meter m = {
        .rank = rank, .kernel = rank->kernel, .source = torch_rank_comm_source(rank), .error = error};
    result->step = calloc((size_t)rank->n_window + 1, sizeof *result->step);
    if (!result->step) return tandem_no_memory(error, "for %d steps of a trace", rank->n_window);
    if (rank->n_kernel) qsort(m.kernel, (size_t)rank->n_kernel, sizeof *m.kernel, by_window_start);
    const tandem_status status =
        rank->n_window ? measure_windows(&m, result) : measure_whole_trace(&m, result);
    clear_intervals(&m, &m.compute);
    clear_intervals(&m, &m.comm);
    result->joined_ns = m.filled_gap_ns;
    if (rank->n_kernel == 0) result->joined_ns += rank->host.filled_gap_ns;
    result->joined_ns += rank->comm[m.source].filled_gap_ns;
    tandem_interval_set_free(&m.compute);
    tandem_interval_set_free(&m.comm);
    if (status == TANDEM_OK) find_mean(result);
    return status;
}
