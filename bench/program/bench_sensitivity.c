/* bench_sensitivity.c: what an estimate costs beside the training that it estimates: processor time, in
 * steps, and memory. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

#include "base/quantity.h"
#include "bench/program/bench.h"
#include "runtime/estimate/estimate.h"
#include "cli/table.h"

enum { STEPS = 20, WARM_UP = 4, ESTIMATES = 5, N_CASE = 2 };

typedef struct estimate_cost {
    const char *name;
    estimate_request request;
    int64_t gradients, ns; /* ns of the processor */
    int64_t peak_bytes;    /* of the process, from its beginning to the end of the estimate */
} estimate_cost;

static int64_t peak_resident_bytes(void)
{
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? (int64_t)usage.ru_maxrss * 1024 : -1;
}

/* Of the processor: what others take from it counts in neither side of the ratio. */
static int64_t processor_ns(void)
{
    struct timespec now = {0};
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (int64_t)now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

/* The median of steps on noise. */
static tandem_status measure_steps(int64_t *step_ns, training_rank *rank, int64_t n, tandem_error *error)
{
    int64_t *const sample_ns = malloc((size_t)n * sizeof *sample_ns);
    tandem_status status = sample_ns ? TANDEM_OK : tandem_no_memory(error, "for %lld steps", (long long)n);
    for (int64_t i = 0; i < n + WARM_UP && status == TANDEM_OK; i++) {
        double loss = 0;
        const int64_t begin = processor_ns();
        status = rank->backend->executor_step(rank->executor, i, &loss, error);
        if (i >= WARM_UP) sample_ns[i - WARM_UP] = processor_ns() - begin;
    }
    if (status == TANDEM_OK) *step_ns = bench_median(sample_ns, n);
    free(sample_ns);
    return status;
}

/* The median of estimates, after a first one, in which kernels are made for its batch: as of steps. */
static tandem_status measure_estimate(estimate_cost *cost, training_rank *rank,
                                      const tandem_workload *workload, const cli_options *options,
                                      tandem_error *error)
{
    int64_t sample_ns[ESTIMATES];
    const tandem_train_request training = cli_training(options);
    tandem_status status = TANDEM_OK;
    for (int i = -1; i < ESTIMATES && status == TANDEM_OK; i++) {
        tandem_estimate estimate = {0};
        const int64_t begin = processor_ns();
        status = estimate_of_rank(&estimate, rank, workload, &training, &cost->request, error);
        if (i >= 0) sample_ns[i] = processor_ns() - begin;
        tandem_estimate_close(&estimate);
    }
    if (status == TANDEM_OK) cost->ns = bench_median(sample_ns, ESTIMATES);
    cost->peak_bytes = peak_resident_bytes();
    cost->gradients = estimate_count_gradients(workload, &cost->request);
    return status;
}

/* What a run that estimates its own sensitivities spends on it, by the time of one estimate. */
typedef struct reestimate_cost {
    /* steps: that of `train --reestimate`, and the least of a share of 1 % */
    int64_t interval, least_interval;
    double share; /* of the run, at that interval */
} reestimate_cost;

static reestimate_cost reestimate_cost_of(const estimate_cost *cost, int64_t step_ns,
                                          const tandem_workload *workload)
{
    const double steps = (double)cost->ns / (double)step_ns;
    const int64_t interval = estimate_interval_in_run(workload);
    return (reestimate_cost){.interval = interval,
                             .least_interval = (int64_t)ceil(99 * steps),
                             .share = steps / ((double)interval + steps)};
}

static int print_estimate_json(const estimate_cost *cost, const training_rank *rank, int64_t step_ns,
                               int64_t training_bytes, const reestimate_cost *reestimate)
{
    json_t *const object = cli_json_new("bench"), *const cases = json_array();
    for (int k = 0; k < N_CASE; k++)
        json_array_append_new(
            cases,
            json_pack("{s:s,s:I,s:I,s:I,s:o,s:o}", "name", cost[k].name, "batch",
                      (json_int_t)(cost[k].request.batch ? cost[k].request.batch : rank->step->graph->batch),
                      "gradients", (json_int_t)cost[k].gradients, "ns", (json_int_t)cost[k].ns, "steps",
                      cli_json_number((double)cost[k].ns / (double)step_ns), "more_memory",
                      cli_json_number((double)cost[k].peak_bytes / (double)training_bytes - 1)));
    json_object_set_new(object, "what", json_string("sensitivity"));
    json_object_set_new(object, "model", json_string(rank->step->graph->model));
    json_object_set_new(object, "step_ns", json_integer((json_int_t)step_ns));
    json_object_set_new(object, "training_bytes", json_integer((json_int_t)training_bytes));
    json_object_set_new(object, "cases", cases);
    json_object_set_new(object, "resense_interval", json_integer((json_int_t)reestimate->interval));
    json_object_set_new(object, "resense_share", cli_json_number(reestimate->share));
    json_object_set_new(object, "resense_least_interval",
                        json_integer((json_int_t)reestimate->least_interval));
    return cli_print_json(object);
}

static int print_estimate_text(const estimate_cost *cost, const training_rank *rank, int64_t step_ns,
                               int64_t training_bytes, const reestimate_cost *reestimate)
{
    cli_table table = {0};
    cli_progress_end();
    printf("%s at batch %lld: a step takes %s, its process %s\n", rank->step->graph->model,
           (long long)rank->step->graph->batch, tandem_quantity_ns(step_ns).text,
           tandem_quantity_bytes((uint64_t)training_bytes).text);
    cli_table_row(&table, "a point of\t>gradients\t>of samples\t>time\t>in steps' time\t>more memory");
    for (int k = 0; k < N_CASE; k++)
        cli_table_row(&table, "%s\t%lld\t%lld\t%s\t%.1f\t%.0f %%", cost[k].name, (long long)cost[k].gradients,
                      (long long)(cost[k].request.batch ? cost[k].request.batch : rank->step->graph->batch),
                      tandem_quantity_ns(cost[k].ns).text, (double)cost[k].ns / (double)step_ns,
                      100 * ((double)cost[k].peak_bytes / (double)training_bytes - 1));
    const int code = cli_table_finish(&table);
    printf(
        "train --reestimate: an estimate every %lld steps takes %.2g %% of the run; at most 1 %% from %lld "
        "steps on\n",
        (long long)reestimate->interval, 100 * reestimate->share, (long long)reestimate->least_interval);
    return code;
}

/* The smaller estimate first: the process remembers its largest memory only. */
static tandem_status measure_costs(estimate_cost cost[N_CASE], int64_t *step_ns, int64_t *training_bytes,
                                   training_rank *rank, const tandem_workload *workload,
                                   const cli_options *options, tandem_error *error)
{
    const int64_t n = options->repetitions;
    tandem_status status = measure_steps(step_ns, rank, n, error);
    *training_bytes = peak_resident_bytes();
    cost[0] = (estimate_cost){.name = "train --reestimate",
                              .request = estimate_request_in_run(workload, options->steps)};
    cost[1] = (estimate_cost){.name = "sensitivity", .request = estimate_request_probe(workload)};
    cost[1].request.point[0] = options->steps;
    cost[1].request.n_point = cost[1].request.is_at_hand = 1;
    for (int k = 0; k < N_CASE && status == TANDEM_OK; k++)
        status = measure_estimate(&cost[k], rank, workload, options, error);
    return status;
}

int bench_sensitivity(const cli_options *given)
{
    const tandem_rank_place alone = {.n_rank = 1};
    cli_options options = *given;
    tandem_workload workload = {0};
    training_rank rank = {0};
    tandem_error error = {0};
    estimate_cost cost[N_CASE];
    int64_t step_ns = 0, training_bytes = 0;
    if (!options.model) options.model = "resnet20";
    if (!options.device) cli_set_device(&options, "strongest");
    if (options.repetitions <= 0) options.repetitions = STEPS;
    options.steps = options.repetitions + WARM_UP;
    tandem_status status = cli_workload_open(&workload, &options, &error);
    const tandem_train_request training = cli_training(&options);
    if (status == TANDEM_OK) status = training_rank_open(&rank, &workload, &training, &alone, &error);
    if (status == TANDEM_OK)
        status = measure_costs(cost, &step_ns, &training_bytes, &rank, &workload, &options, &error);
    int code;
    if (status != TANDEM_OK) {
        code = cli_fail(&error);
    } else {
        const reestimate_cost reestimate = reestimate_cost_of(&cost[0], step_ns, &workload);
        code = options.json ? print_estimate_json(cost, &rank, step_ns, training_bytes, &reestimate)
                            : print_estimate_text(cost, &rank, step_ns, training_bytes, &reestimate);
    }
    training_rank_close(&rank);
    tandem_workload_close(&workload);
    return code;
}
