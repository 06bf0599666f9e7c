/* Trains an imported model on samples and labels from files, for checks against PyTorch and ONNX's own cases.
 * usage: train_steps MODEL BATCH
 *        train_steps MODEL BATCH DEVICE SAMPLES LABELS STEPS LOGITS RATE [whole]
 *
 * SAMPLES: the input's numbers (f32, or s32 for tokens) as the graph has them, channels last. LABELS: s32;
 * "-": all 0. LOGITS: written, f32: what the loss reads in the first step. whole: the output as one row, in
 * ONNX's order, with a softmax at its end. Prints each step's loss; exit codes are those of tandem. STEPS 0:
 * an evaluation before any step, LOGITS with the file's running statistics of batchnorms. With MODEL and
 * BATCH alone: prints the milliseconds of processor time that an import takes, the median of N_IMPORT (other
 * programs may hold the processor meanwhile), and the bytes of the buckets
 * that PyTorch's DDP makes of its gradients. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backend/executor/executor.h"
#include "base/file.h"
#include "graph/onnx/onnx.h"
#include "tandem/advanced/backend.h"
#include "tandem/advanced/step.h"
#include "tandem/cluster.h"

enum { N_IMPORT = 5 };

typedef struct run_state {
    const tandem_backend_api *backend;
    const tandem_step *step;
    const tandem_graph *graph;
    char *samples, *labels;
    size_t n_samples, n_labels;
    float *logits;
    size_t n_logits;
    int is_read;
} run_state;

static void *value_of(const run_state *s, const tandem_executor *executor, int op, tandem_dtype dtype)
{
    const void *const at =
        s->backend->executor_value(executor, tandem_value_activation(s->step, op, dtype), 0, NULL);
    void *place;
    memcpy(&place, &at, sizeof place); /* on a CPU it is the value itself */
    return place;
}

static void observe_training(void *context, const tandem_executor *executor, int task)
{
    run_state *const s = context;
    const tandem_task *const t = &s->step->task[task];
    const tandem_graph *const g = s->graph;
    if (t->kind != TANDEM_TASK_FORWARD) return;
    if (t->op == g->input) memcpy(value_of(s, executor, t->op, g->op[t->op].dtype), s->samples, s->n_samples);
    if (t->op == g->label) memcpy(value_of(s, executor, t->op, TANDEM_S32), s->labels, s->n_labels);
    if (t->op == g->loss && !s->is_read) {
        memcpy(s->logits, value_of(s, executor, g->view[g->op[g->loss].input[0]], TANDEM_F32), s->n_logits);
        s->is_read = 1;
    }
}

static size_t value_bytes(const tandem_graph *graph, int op)
{
    return (size_t)tandem_shape_elements(&graph->op[op].shape) * 4;
}

static tandem_status read_operands(run_state *s, char **argument, tandem_error *error)
{
    size_t n = 0;
    s->n_samples = value_bytes(s->graph, s->graph->input);
    s->n_labels = value_bytes(s->graph, s->graph->label);
    s->n_logits = value_bytes(s->graph, s->graph->op[s->graph->loss].input[0]);
    s->logits = malloc(s->n_logits);
    tandem_status status = tandem_file_read(&s->samples, &n, argument[4], s->n_samples, error);
    if (status == TANDEM_OK && n != s->n_samples)
        return tandem_error_set(error, TANDEM_USAGE, "samples of %zu bytes; allowed are %zu", n,
                                s->n_samples);
    if (strcmp(argument[5], "-") == 0) {
        s->labels = calloc(1, s->n_labels);
        return status;
    }
    if (status == TANDEM_OK) status = tandem_file_read(&s->labels, &n, argument[5], s->n_labels, error);
    if (status == TANDEM_OK && n != s->n_labels)
        return tandem_error_set(error, TANDEM_USAGE, "labels of %zu bytes; allowed are %zu", n, s->n_labels);
    return status;
}

static tandem_status open_model(tandem_graph **graph, char **argument, int is_whole, tandem_error *error)
{
    const tandem_onnx_options options = {.whole_output = 1};
    if (is_whole) return tandem_onnx_open(graph, "whole", argument[1], &options, 1, error);
    return tandem_graph_open(graph, argument[1], strtoll(argument[2], NULL, 10), error);
}

static tandem_status train(run_state *s, tandem_executor *executor, int64_t steps, float rate,
                           tandem_error *error)
{
    tandem_status status = TANDEM_OK;
    s->backend->executor_set_rate(executor, rate);
    s->backend->executor_observe(executor, observe_training, s);
    for (int64_t k = 0; k < steps && status == TANDEM_OK; k++) {
        double loss = 0;
        status = s->backend->executor_step(executor, k, &loss, error);
        if (status == TANDEM_OK) printf("%.9g\n", loss);
    }
    return status;
}

static tandem_status evaluate(run_state *s, tandem_executor *executor, tandem_error *error)
{
    tandem_evaluation seen;
    tandem_executor *const evaluator = executor->evaluator;
    s->step = evaluator->step;
    evaluator->observer = observe_training;
    evaluator->observer_context = s;
    return s->backend->executor_evaluate(executor, NULL, s->graph->batch, &seen, error);
}

static tandem_status run(char **argument, int is_whole, tandem_error *error)
{
    run_state s = {.backend = tandem_backend_get(TANDEM_BACKEND_VERSION)};
    tandem_graph *graph = NULL;
    tandem_step *step = NULL;
    tandem_worker *worker = NULL;
    tandem_executor *executor = NULL;
    tandem_device device;
    tandem_status status = open_model(&graph, argument, is_whole, error);
    s.graph = graph;
    if (status == TANDEM_OK) status = read_operands(&s, argument, error);
    if (status == TANDEM_OK) status = tandem_device_find(&device, argument[3], error);
    if (status == TANDEM_OK) status = tandem_device_open_step(&step, &device, graph, 0, NULL, error);
    s.step = step;
    if (status == TANDEM_OK) tandem_step_resolve(step);
    const tandem_worker_options rank = {
        .device = argument[3], .n_rank = 1, .cpu = -1, .timeout_ns = INT64_C(20000000000)};
    if (status == TANDEM_OK) status = s.backend->worker_open(&worker, &rank, error);
    const int64_t n_step = strtoll(argument[6], NULL, 10);
    const tandem_executor_options options = {.step = step,
                                             .global_batch = graph ? graph->batch : 1,
                                             .allow_nan = is_whole,
                                             .with_evaluation = n_step == 0};
    if (status == TANDEM_OK) status = s.backend->executor_open(&executor, worker, &options, error);
    if (status == TANDEM_OK)
        status = n_step ? train(&s, executor, n_step, strtof(argument[8], NULL), error)
                        : evaluate(&s, executor, error);
    FILE *const out = status == TANDEM_OK ? fopen(argument[7], "wb") : NULL;
    if (status == TANDEM_OK && (!out || fwrite(s.logits, 1, s.n_logits, out) != s.n_logits))
        status = tandem_error_set(error, TANDEM_IO, "'%s' cannot be written", argument[7]);
    if (out && fclose(out) != 0)
        status = tandem_error_set(error, TANDEM_IO, "'%s' cannot be written", argument[7]);
    if (executor) s.backend->executor_close(executor);
    if (worker) s.backend->worker_close(worker);
    tandem_step_close(step);
    tandem_graph_close(graph);
    free(s.samples);
    free(s.labels);
    free(s.logits);
    return status;
}

static int compare_times(const void *a, const void *b)
{
    const clock_t x = *(const clock_t *)a, y = *(const clock_t *)b;
    return (x > y) - (x < y);
}

static tandem_status inspect(const char *model, int64_t batch, tandem_error *error)
{
    const tandem_step_options as_ddp = {.ddp_buckets = 1};
    clock_t time[N_IMPORT];
    tandem_graph *graph = NULL;
    tandem_step *step = NULL;
    tandem_status status = TANDEM_OK;
    for (int k = 0; k < N_IMPORT && status == TANDEM_OK; k++) {
        tandem_graph_close(graph);
        graph = NULL;
        const clock_t begin = clock();
        status = tandem_graph_open(&graph, model, batch, error);
        time[k] = clock() - begin;
    }
    if (status == TANDEM_OK) status = tandem_step_open_with(&step, graph, TANDEM_F32, 0, &as_ddp, error);
    if (status == TANDEM_OK) {
        qsort(time, N_IMPORT, sizeof *time, compare_times);
        printf("%.2f", (double)time[N_IMPORT / 2] * 1e3 / CLOCKS_PER_SEC);
        for (int b = 0; b < step->n_bucket; b++) {
            int64_t elements = 0;
            for (int k = 0; k < step->bucket[b].n_parameter; k++)
                elements +=
                    graph->parameter[step->parameter_order[step->bucket[b].first_parameter_position + k]]
                        .elements;
            printf(" %" PRId64, 4 * elements);
        }
        printf("\n");
    }
    tandem_step_close(step);
    tandem_graph_close(graph);
    return status;
}

int main(int argc, char **argv)
{
    tandem_error error = {0};
    if (argc != 3 && argc < 9) {
        fputs("usage: train_steps MODEL BATCH [DEVICE SAMPLES LABELS STEPS LOGITS RATE [whole]]\n", stderr);
        return 2;
    }
    if ((argc == 3 ? inspect(argv[1], strtoll(argv[2], NULL, 10), &error) : run(argv, argc > 9, &error)) ==
        TANDEM_OK)
        return 0;
    fprintf(stderr, "%s\n", error.text);
    return tandem_status_exit_code(error.status);
}
