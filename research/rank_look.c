/* rank_look.c: what the methods of statistics and of a probe say of operators, at held weights. */
#include <math.h>
#include <stdlib.h>

#include "research/probe.h"
#include "research/rank.h"
#include "runtime/estimate/batch_statistics.h"

int rank_steps_of(const rank_study *s, rank_needs needs)
{
    const estimate_request probe = estimate_request_probe(&s->lab.workload);
    const int64_t samples = estimate_count_gradients(&s->lab.workload, &probe) * probe.batch;
    const int of[] = {0, s->plan->n_batch, 3 * s->plan->n_batch,
                      (int)((samples - 1) / s->lab.task->batch) + 1,
                      2 * s->plan->n_sampled * (1 + NOISE_N_PRECISION * s->lab.n_op)};
    return of[needs];
}

/* What they see at one training point. */
typedef struct rank_view {
    tandem_statistics *statistics; /* [graph->n_op] */
    rank_probe *probe;             /* [NOISE_N_PRECISION × n_op] */
    double *of_product;            /* [graph->n_op × TANDEM_N_PRECISION] */
} rank_view;

/* Adds one replicate of a probe: sums of squares, and a share of the traces. */
static void add_probe(rank_view *view, const rank_study *s, const held_model *model, const probe_sums *sums)
{
    const int n_op = s->lab.n_op;
    for (int i = 0; i < NOISE_N_PRECISION * n_op; i++) {
        const tandem_precision_row *row = tandem_precision_get(noise_precisions[i / n_op]);
        const tandem_format forward = tandem_format_of_dtype(row->forward),
                            backward = tandem_format_of_dtype(row->wgrad),
                            written = tandem_format_of_dtype(row->output);
        int k = 0;
        while (k < model->n_op && model->op[k] != s->lab.op[i % n_op]) k++;
        const int is_seen = k < model->n_op;
        view->probe[i].noise += is_seen
                                    ? sums->sum[k][PART_INPUT][forward] + sums->sum[k][PART_WEIGHT][forward] +
                                          sums->sum[k][PART_GRADIENT][backward] +
                                          (written < TANDEM_N_FORMAT ? sums->sum[k][PART_RESULT][written] : 0)
                                    : NAN;
        view->probe[i].trace += is_seen ? sums->trace[k] / s->plan->n_batch : NAN;
    }
}

static tandem_status probe_all(rank_view *view, const rank_study *s, held_model *model,
                               const held_weights *at, int64_t first, tandem_error *error)
{
    probe_sums *sums = malloc(sizeof *sums);
    double square = 0; /* of the gradients */
    tandem_status status = sums ? TANDEM_OK : tandem_no_memory(error, "for a probe's sums");
    for (int b = 0; b < s->plan->n_batch && status == TANDEM_OK; b++) {
        const probe_request request = {at, first + b, (uint64_t)b + 1};
        status = probe_predict(sums, model, &request, error);
        if (status != TANDEM_OK) break;
        add_probe(view, s, model, sums);
        square += sums->square;
    }
    for (int i = 0; i < NOISE_N_PRECISION * s->lab.n_op; i++) view->probe[i].noise *= 100 / square;
    free(sums);
    return status;
}

/* Adds a share of one training point to what methods say of all operators. */
static tandem_status add_values(double *value, const rank_study *s, const rank_view *view, int p,
                                double share, tandem_error *error)
{
    const tandem_graph *graph = s->lab.workload.graph[0];
    const rank_input input = {.graph = graph,
                              .op = s->lab.op,
                              .n_op = s->lab.n_op,
                              .precision = noise_precisions[p],
                              .statistics = view->statistics,
                              .probe = view->probe + (size_t)p * (size_t)s->lab.n_op};
    for (int m = 0; m < RANK_N_METHOD; m++) {
        const rank_method *method = rank_methods[m];
        const tandem_sensitivity_method *product = NULL;
        if (method->needs >= RANK_NEEDS_ESTIMATED_PROBE) continue;
        if (!method->compute) {
            const tandem_status status = tandem_sensitivity_find(&product, method->name, error);
            if (status != TANDEM_OK) return status;
            product->compute(view->of_product, graph, view->statistics, TANDEM_F32);
        }
        for (int k = 0; k < s->lab.n_op; k++)
            value[m * s->lab.n_op + k] +=
                share * (product
                             ? view->of_product[s->lab.op[k] * TANDEM_N_PRECISION + (int)noise_precisions[p]]
                             : method->compute(&input, k));
    }
    return TANDEM_OK;
}

static tandem_status look_at_point(rank_study *s, held_model *model, const held_weights *at,
                                   tandem_error *error)
{
    const tandem_graph *graph = s->lab.workload.graph[0];
    const int64_t first =
        s->lab.options.steps + 4 * (int64_t)TANDEM_MAX_REPLICATE; /* no batch of an estimate */
    rank_view view = {calloc((size_t)graph->n_op, sizeof *view.statistics),
                      calloc((size_t)(NOISE_N_PRECISION * s->lab.n_op), sizeof *view.probe),
                      calloc((size_t)graph->n_op * TANDEM_N_PRECISION, sizeof *view.of_product)};
    tandem_status status =
        view.statistics && view.probe && view.of_product
            ? model->rank.backend->executor_put_weights(model->rank.executor, at->weight, error)
            : tandem_no_memory(error, "for what methods see");
    const tandem_train_request training = cli_training(&s->lab.options);
    if (status == TANDEM_OK)
        status = batch_statistics_collect(view.statistics, &model->rank, &training, first, s->plan->n_batch,
                                          error);
    if (status == TANDEM_OK) status = probe_all(&view, s, model, at, first, error);
    for (int p = 0; p < NOISE_N_PRECISION && status == TANDEM_OK; p++)
        status = add_values(s->result[p].value, s, &view, p, 1.0 / s->lab.task->n_point, error);
    free(view.statistics);
    free(view.probe);
    free(view.of_product);
    return status;
}

tandem_status rank_look_at_task(rank_study *s, tandem_error *error)
{
    held_weights at[NOISE_MAX_POINT] = {{0}};
    held_model model = {0};
    const noise_task *task = s->lab.task;
    tandem_status status = held_weights_train(at, task->point, task->n_point, &s->lab.options, error);
    if (status == TANDEM_OK) status = held_model_open(&model, &s->lab.options, error);
    for (int a = 0; a < task->n_point && status == TANDEM_OK; a++)
        status = look_at_point(s, &model, &at[a], error);
    held_model_close(&model);
    held_weights_free(at, NOISE_MAX_POINT);
    return status;
}
