/* held_run.h: one rank on a CPU that every machine has, with a model of the zoo, in a test that cannot go on
 * without. A test opens the step program, sets what it wants in it, and opens the executor. */
#ifndef TANDEM_TESTS_SUPPORT_HELD_RUN_H
#define TANDEM_TESTS_SUPPORT_HELD_RUN_H

#include "tandem/advanced/backend.h"
#include "tests/support/tandem_test.h"

typedef struct held_run {
    const tandem_backend_api *backend;
    tandem_worker *worker;
    tandem_graph *graph;
    tandem_step *step;
    tandem_executor *executor;
} held_run;

/* All but the executor. */
static inline void open_held_step(held_run *r, const char *model, int64_t batch,
                                  const tandem_step_options *options)
{
    const tandem_worker_options worker = {.device = "cpu:sse41", .n_rank = 1, .cpu = -1};
    tandem_error error = {0};
    *r = (held_run){.backend = tandem_backend_get(TANDEM_BACKEND_VERSION)};
    require_ok(r->backend->worker_open(&r->worker, &worker, &error), &error);
    require_ok(tandem_graph_open(&r->graph, model, batch, &error), &error);
    require_ok(tandem_step_open_with(&r->step, r->graph, TANDEM_F32, 0, options, &error), &error);
}

/* In fp32 with separate_partial_grads, as a probe wants it (estimate_probe.h); its weights are held. */
static inline void open_held_run(held_run *r, const char *model, int64_t batch)
{
    tandem_error error = {0};
    open_held_step(r, model, batch, &(tandem_step_options){.separate_partial_grads = 1});
    const tandem_executor_options how = {
        .step = r->step, .seed = 5, .global_batch = batch, .hold_weights = 1};
    require_ok(r->backend->executor_open(&r->executor, r->worker, &how, &error), &error);
}

static inline void close_held_run(const held_run *r)
{
    r->backend->executor_close(r->executor);
    r->backend->worker_close(r->worker);
    tandem_step_close(r->step);
    tandem_graph_close(r->graph);
}

#endif
