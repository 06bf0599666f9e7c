/* work_left.c: the time of work by two trials of different length. The difference is that of the units; the
 * rest counts once. Time is that of the processor, so that other programs do not count. */
#include "research/work_left.h"
#include "research/study_runs.h"

#include <math.h>
#include <time.h>

#include "research/held_model.h"

static double processor_seconds(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

tandem_status work_cost_measure(work_cost *cost, work_trial *trial, const void *work, int64_t few,
                                int64_t more, tandem_error *error)
{
    const int64_t units[2] = {few, more};
    double seconds[2] = {0};
    for (int i = 0; i < 2; i++) {
        const double begin_s = processor_seconds();
        const tandem_status status = trial(work, units[i], error);
        if (status != TANDEM_OK) return status;
        seconds[i] = processor_seconds() - begin_s;
    }
    cost->unit_s = fmax(seconds[1] - seconds[0], 0) / (double)(more - few);
    cost->once_s = seconds[1] - cost->unit_s * (double)more;
    return TANDEM_OK;
}

double work_cost_seconds(const work_cost *cost, int64_t n) { return cost->once_s + cost->unit_s * (double)n; }

/* work: the options. */
static tandem_status try_training(const void *work, int64_t n, tandem_error *error)
{
    held_weights at = {0};
    const tandem_status status = held_weights_train(&at, &n, 1, work, error);
    held_weights_free(&at, 1);
    return status;
}

tandem_status work_cost_of_training(work_cost *cost, const cli_options *options, int64_t steps,
                                    tandem_error *error)
{
    return work_cost_measure(cost, try_training, options, steps / 40 + 1, steps / 20 + 2, error);
}

typedef struct estimate_work {
    const tandem_workload *workload;
    const cli_options *options;
    const estimate_request *request;
} estimate_work;

static tandem_status try_estimate(const void *work, int64_t n, tandem_error *error)
{
    const estimate_work *of = work;
    estimate_request request = *of->request;
    tandem_estimate estimate = {0};
    request.point[0] = 0;
    request.n_point = 1;
    request.n_replicate = (int)n;
    const tandem_status status = estimate_by_options(&estimate, of->workload, of->options, &request, error);
    tandem_estimate_close(&estimate);
    return status;
}

tandem_status work_cost_of_estimate(work_cost *cost, const tandem_workload *workload,
                                    const cli_options *options, const estimate_request *request,
                                    tandem_error *error)
{
    return work_cost_measure(cost, try_estimate, &(estimate_work){workload, options, request}, 3, 6, error);
}

/* "2577", "9.8", "0.047" */
static const char *seconds_text(char text[32], double seconds)
{
    (void)snprintf(text, 32, seconds < 10 ? "%.2g" : "%.0f", seconds);
    return text;
}

void work_left_note(const cli_options *options, const char *task, int n_left, int n, const char *units,
                    double seconds)
{
    char text[32];
    cli_note(options, "%s: %d of %d %s left, some %s s of a core", task, n_left, n, units,
             seconds_text(text, seconds));
}

void work_left_note_all(const cli_options *options, double seconds)
{
    char text[32];
    cli_note(options, "in all some %s s of a core", seconds_text(text, seconds));
}
