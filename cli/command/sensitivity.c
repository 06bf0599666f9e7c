/* sensitivity.c: `tandem sensitivity`: measures statistics of every adjustable operator and the sensitivities
 * that follow. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/quantity.h"
#include "cli/command/sensitivity.h"
#include "cli/training_rank.h"

enum { BATCHES = 10 };

typedef struct statistics_collector {
    const tandem_backend_api *backend;
    const tandem_step *step;
    tandem_statistics *statistics; /* [n_op] */
    tandem_status status;
    tandem_error error;
} statistics_collector;

/* --- What one task shows -------------------------------------------------------------------------------- */

static const float *executor_values(const statistics_collector *c, const tandem_executor *executor, int value,
                                    int gradient)
{
    return c->backend->executor_value(executor, value, gradient, NULL);
}

/* A convolution's input as a matrix: (n·out_h·out_w, kernel·kernel·c), zero outside the image. */
static float *image_columns(const tandem_graph *graph, const tandem_op *op, const float *x)
{
    const tandem_shape *in = &graph->op[op->input[0]].shape, *out = &op->shape;
    const int64_t h = in->dim[1], w = in->dim[2], channels = in->dim[3],
                  k = (int64_t)op->kernel_h * op->kernel_w * channels;
    float *columns = calloc((size_t)(out->dim[0] * out->dim[1] * out->dim[2] * k), sizeof *columns);
    if (!columns) return NULL;
    float *row = columns;
    for (int64_t n = 0; n < out->dim[0]; n++)
        for (int64_t i = 0; i < out->dim[1]; i++)
            for (int64_t j = 0; j < out->dim[2]; j++, row += k)
                for (int64_t a = 0; a < op->kernel_h; a++)
                    for (int64_t b = 0; b < op->kernel_w; b++) {
                        const int64_t y = i * op->stride + a - op->pad, z = j * op->stride + b - op->pad;
                        if (y >= 0 && y < h && z >= 0 && z < w)
                            memcpy(row + (a * op->kernel_w + b) * channels,
                                   x + ((n * h + y) * w + z) * channels, (size_t)channels * sizeof *row);
                    }
    return columns;
}

static tandem_status add_product_statistics(tandem_statistics *s, const tandem_op *op, const float *x,
                                            const float *w, const float *g, int64_t k, tandem_error *error)
{
    const int64_t columns = tandem_shape_last(&op->shape), rows = tandem_shape_elements(&op->shape) / columns;
    s->rows = rows;
    s->k = k;
    s->columns = columns;
    return tandem_statistics_add_product(s, &(tandem_product){rows, k, columns, x, w, g, op->transpose_b},
                                         error);
}

static tandem_status add_matmul_statistics(tandem_statistics *s, const tandem_graph *graph,
                                           const tandem_op *op, const float *a, const float *b,
                                           const float *g, tandem_error *error)
{
    const int64_t n = tandem_shape_last(&op->shape), m = op->shape.dim[op->shape.n_dim - 2];
    const int64_t k = tandem_shape_last(&graph->op[op->input[0]].shape);
    const int64_t products = tandem_shape_elements(&op->shape) / (m * n);
    s->rows = products * m;
    s->k = k;
    s->columns = n;
    tandem_status status = TANDEM_OK;
    for (int64_t q = 0; q < products && status == TANDEM_OK; q++)
        status = tandem_statistics_add_product(
            s, &(tandem_product){m, k, n, a + q * m * k, b + q * k * n, g + q * m * n, op->transpose_b},
            error);
    return status;
}

/* An embedding selects rows: a product with one-hot rows. */
static void add_embedding_statistics(tandem_statistics *s, const tandem_op *op, double g_square,
                                     double w_square)
{
    s->columns = tandem_shape_last(&op->shape);
    s->rows = tandem_shape_elements(&op->shape) / s->columns;
    s->k = 1;
    s->x_square += (double)s->rows;
    s->w_square += w_square;
    s->g_square += g_square;
    s->g2_x2 += g_square;
}

static tandem_status observe_wgrad(statistics_collector *c, const tandem_executor *executor,
                                   const tandem_task *task)
{
    const tandem_graph *graph = c->step->graph;
    const tandem_op *op = &graph->op[task->op];
    tandem_statistics *s = &c->statistics[task->op];
    const int64_t n_g = tandem_shape_elements(&op->shape),
                  n_x = tandem_shape_elements(&graph->op[op->input[0]].shape);
    const float *g = executor_values(c, executor, task->read[1], 0),
                *x = executor_values(c, executor, task->read[0], 0), *w;
    int64_t n_w;
    if (op->kind == TANDEM_OP_MATMUL) {
        w = executor_values(c, executor, tandem_value_activation(c->step, op->input[1], TANDEM_F32), 0);
        n_w = tandem_shape_elements(&graph->op[op->input[1]].shape);
    } else {
        w = executor_values(c, executor, TANDEM_PARAMETER(op->parameter[0]), 0);
        n_w = graph->parameter[op->parameter[0]].elements;
    }
    s->local_batch = graph->batch;
    s->x_elements = n_x;
    s->w_elements = n_w;
    s->w_amax += tandem_statistics_amax(w, n_w);
    s->g_amax += tandem_statistics_amax(g, n_g);
    s->wgrad_square += tandem_statistics_square(executor_values(c, executor, task->write[0], 1), n_w);
    if (op->kind == TANDEM_OP_EMBEDDING) {
        add_embedding_statistics(s, op, tandem_statistics_square(g, n_g), tandem_statistics_square(w, n_w));
        return TANDEM_OK;
    }
    s->x_amax += tandem_statistics_amax(x, n_x);
    if (op->kind == TANDEM_OP_MATMUL) return add_matmul_statistics(s, graph, op, x, w, g, &c->error);
    if (op->kind == TANDEM_OP_LINEAR)
        return add_product_statistics(s, op, x, w, g, tandem_shape_last(&graph->op[op->input[0]].shape),
                                      &c->error);
    float *columns = image_columns(graph, op, x);
    if (!columns) return tandem_no_memory(&c->error, "for the columns of '%s'", op->name);
    const tandem_status status = add_product_statistics(
        s, op, columns, w, g, graph->parameter[op->parameter[0]].shape.dim[0], &c->error);
    free(columns);
    return status;
}

static void observe_task(void *context, const tandem_executor *executor, int t)
{
    statistics_collector *c = context;
    const tandem_task *task = &c->step->task[t];
    if (c->status != TANDEM_OK || task->op < 0) return;
    const tandem_op *op = &c->step->graph->op[task->op];
    if (!tandem_op_is_adjustable(op)) return;
    if (task->kind == TANDEM_TASK_WGRAD) c->status = observe_wgrad(c, executor, task);
    if (task->kind == TANDEM_TASK_DGRAD)
        c->statistics[task->op].dgrad_square +=
            tandem_statistics_square(executor_values(c, executor, task->write[0], 0),
                                     tandem_shape_elements(&c->step->graph->op[op->input[0]].shape));
}

/* --- The batches ---------------------------------------------------------------------------------------- */

static tandem_status collect_statistics(statistics_collector *c, training_rank *rank,
                                        const cli_options *options, int64_t batches, tandem_error *error)
{
    tandem_status status = TANDEM_OK;
    const int64_t begin_ns = tandem_now_ns();
    rank->backend->executor_observe(rank->executor, observe_task, c);
    for (int64_t i = 0; i < batches && status == TANDEM_OK; i++) {
        double loss = 0;
        status = rank->backend->executor_step(rank->executor, i, &loss, error);
        if (status == TANDEM_OK && c->status != TANDEM_OK) {
            *error = c->error;
            status = c->status;
        }
        cli_progress(options, (tandem_now_ns() - begin_ns) / (i + 1) * (batches - 1 - i),
                     "sensitivity: batch %lld of %lld, loss %.4f", (long long)(i + 1), (long long)batches,
                     loss);
    }
    for (int i = 0; i < c->step->graph->n_op; i++)
        if (c->statistics[i].rows > 0) tandem_statistics_finish(&c->statistics[i], batches);
    return status;
}

/* Reports a store that cannot be written before the batches, not after. */
static tandem_status check_store_writable(const char *db, tandem_error *error)
{
    tandem_store *store = NULL;
    const tandem_status status = tandem_store_open(&store, db, TANDEM_STORE_WRITE, error);
    tandem_store_close(store);
    return status;
}

static tandem_status put_all_statistics(const statistics_collector *c, const cli_options *options,
                                        tandem_error *error)
{
    const tandem_graph *graph = c->step->graph;
    char libraries[128];
    tandem_store *store = NULL;
    double *sensitivity = calloc((size_t)graph->n_op * TANDEM_N_PRECISION, sizeof *sensitivity);
    if (!sensitivity) return tandem_no_memory(error, "for sensitivities");
    tandem_status status = tandem_store_open(&store, options->db, TANDEM_STORE_WRITE, error);
    if (status == TANDEM_OK)
        status =
            tandem_store_set_environment(store, c->backend->libraries(libraries, sizeof libraries), 1, error);
    if (status == TANDEM_OK) status = tandem_store_begin(store, error);
    for (int i = 0; i < graph->n_op && status == TANDEM_OK; i++)
        if (c->statistics[i].n_batch > 0)
            status = tandem_store_put_statistics(store, graph, options->data, i, &c->statistics[i], error);
    for (int m = 0; tandem_sensitivity_get(m) && status == TANDEM_OK; m++) {
        const tandem_sensitivity_method *method = tandem_sensitivity_get(m);
        if (!method->compute) continue;
        static const tandem_dtype amp_dtype[] = {TANDEM_F32, TANDEM_BF16, TANDEM_F16};
        for (size_t k = 0; k < sizeof amp_dtype / sizeof *amp_dtype && status == TANDEM_OK; k++) {
            method->compute(sensitivity, graph, c->statistics, amp_dtype[k]);
            for (int i = 0; i < graph->n_op; i++)
                for (int p = 0; p < TANDEM_N_PRECISION && status == TANDEM_OK; p++)
                    if (tandem_op_row_get(graph->op[i].kind)->precisions & (1u << p))
                        status = tandem_store_put_sensitivity(store, graph, method->name, i,
                                                              (tandem_precision)p, amp_dtype[k],
                                                              sensitivity[i * TANDEM_N_PRECISION + p], error);
        }
    }
    if (status == TANDEM_OK) status = tandem_store_commit(store, error);
    if (status != TANDEM_OK && store) tandem_store_rollback(store);
    tandem_store_close(store);
    free(sensitivity);
    return status;
}

/* --- Report --------------------------------------------------------------------------------------------- */

static int print_sensitivity_report(const statistics_collector *c, const cli_options *options,
                                    const tandem_device *device)
{
    const tandem_graph *graph = c->step->graph;
    double *sensitivity[8] = {0};
    int n_method = 0, code = 0;
    /* those that need statistics stand first */
    for (; n_method < 8 && tandem_sensitivity_get(n_method)->compute; n_method++) {
        sensitivity[n_method] = calloc((size_t)graph->n_op * TANDEM_N_PRECISION, sizeof **sensitivity);
        if (!sensitivity[n_method]) code = cli_fail_with(TANDEM_NO_MEMORY, "no memory for sensitivities");
        if (sensitivity[n_method])
            tandem_sensitivity_get(n_method)->compute(sensitivity[n_method], graph, c->statistics,
                                                      device->amp_dtype);
    }
    json_t *operators = json_array();
    cli_progress_end();
    if (!options->json && !code)
        printf("%-28s %-10s %14s %14s\n", "operator", "precision", "fisher (nats)", "qsync");
    for (int i = 0; i < graph->n_op && !code; i++)
        for (int p = 1; p < TANDEM_N_PRECISION; p++) {
            const tandem_op_row *row = tandem_op_row_get(graph->op[i].kind);
            if (!(row->precisions & (1u << p))) continue;
            json_t *methods = json_object();
            if (!options->json)
                printf("%-28s %-10s", graph->op[i].name, tandem_precision_get((tandem_precision)p)->name);
            for (int m = 0; m < n_method; m++) {
                const double h = sensitivity[m][i * TANDEM_N_PRECISION + p];
                json_object_set_new(methods, tandem_sensitivity_get(m)->name, json_real(h));
                if (!options->json) printf(" %14s", tandem_quantity_known_to(h, NAN).text);
            }
            if (!options->json) putchar('\n');
            json_array_append_new(operators,
                                  json_pack("{s:s,s:s,s:o}", "operator", graph->op[i].name, "precision",
                                            tandem_precision_get((tandem_precision)p)->name, "sensitivity",
                                            methods));
        }
    for (int m = 0; m < n_method; m++) free(sensitivity[m]);
    if (!options->json || code) {
        json_decref(operators);
        return code;
    }
    json_t *result = cli_json_new("sensitivity");
    json_object_set_new(result, "model", json_string(graph->model));
    json_object_set_new(result, "device", json_string(device->name));
    json_object_set_new(result, "batches", json_integer(options->steps));
    json_object_set_new(result, "operators", operators);
    return cli_print_json(result);
}

/* --- The command ---------------------------------------------------------------------------------------- */

static int run_sensitivity(const cli_options *given)
{
    cli_options options = *given;
    if (!options.device) options.device = "strongest";
    if (!options.data)
        return cli_fail_with(TANDEM_USAGE,
                             "no data given. Use e.g. --data fashion-mnist (tandem list datasets)");
    if (options.device && strchr(options.device, ','))
        return cli_fail_with(TANDEM_USAGE,
                             "sensitivities hold for all devices. Give one device, got --device %s",
                             options.device);
    if (options.at) return sensitivity_sense(&options);
    if (options.steps < 0) options.steps = BATCHES;
    options.step.separate_partial_grads = 1;
    tandem_error error = {0};
    cli_workload workload = {0};
    training_rank rank = {0};
    statistics_collector c = {0};
    const cli_rank alone = {.rank = 0, .n_rank = 1, .store = NULL, .cpu = -1};
    tandem_status status = cli_workload_open(&workload, &options, &error);
    if (status == TANDEM_OK) status = training_rank_open(&rank, &workload, &options, &alone, &error);
    if (status == TANDEM_OK) status = check_store_writable(options.db, &error);
    if (status == TANDEM_OK) {
        c = (statistics_collector){.backend = rank.backend, .step = rank.step};
        c.statistics = calloc((size_t)rank.step->graph->n_op, sizeof *c.statistics);
        status = c.statistics ? collect_statistics(&c, &rank, &options, options.steps, &error)
                              : tandem_no_memory(&error, "for statistics");
    }
    if (status == TANDEM_OK) status = put_all_statistics(&c, &options, &error);
    const int code = status == TANDEM_OK
                         ? print_sensitivity_report(&c, &options, &workload.cluster.classes[0].device)
                         : cli_fail(&error);
    free(c.statistics);
    training_rank_close(&rank);
    cli_workload_close(&workload);
    return code;
}

static const int options[] = {OPTION_MODEL, OPTION_SET,   OPTION_LOSS,  OPTION_DATA, OPTION_DEVICE,
                              OPTION_BATCH, OPTION_STEPS, OPTION_SEED,  OPTION_AT,   OPTION_REPETITIONS,
                              OPTION_INIT,  OPTION_DB,    OPTION_QUIET, OPTION_END};
const cli_command command_sensitivity = {
    .name = "sensitivity",
    .words = "",
    .summary = "Measure statistics over real batches, and the sensitivities that follow",
    .option = options,
    .description =
        "Example:\n"
        "  tandem sensitivity --model vit_tiny --data fashion-mnist --batch 16 --steps 10\n"
        "Trains in fp32 for that many batches [10] and stores the statistics of every operator. They "
        "hold for all\n"
        "devices; --device [the strongest one here] only computes them.\n"
        "  tandem sensitivity --model mlp --data fashion-mnist --batch 32 --steps 400 --at 0,10%,50%,90%\n"
        "Senses what precisions change of real gradients at these ages of a training, and stores it for\n"
        "--sensitivity sampled: more samples to the same loss, in percent.",
    .run = run_sensitivity,
};
