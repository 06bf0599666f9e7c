/* study_tensors.c: tensors of a training in fp32, for the parts of the study that round real numbers. */
#include "research/study.h"
#include "research/study_runs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/train/training_rank.h"

typedef struct tensor_collector {
    const training_rank *rank;
    study_tensor *tensor;
    int n_tensor;
    int64_t point; /* −1: of no interest */
    /* [kind] the tensor of this training point that the next of its kind replaces; −1: none */
    int first[STUDY_N_TENSOR_KIND], last[STUDY_N_TENSOR_KIND];
    tandem_status status;
    tandem_error *error;
} tensor_collector;

const char *study_tensor_kind_name(study_tensor_kind kind)
{
    static const char *const name[STUDY_N_TENSOR_KIND] = {"relu output", "softmax", "weight", "gradient"};
    return name[kind];
}

void study_tensors_free(study_tensor *tensor, int n_tensor)
{
    for (int i = 0; i < n_tensor; i++) free(tensor[i].x);
}

/* The entry for one more tensor of a kind: the first two of a training point are new ones, then the second is
 * replaced.
 * */
static study_tensor *next_tensor(tensor_collector *c, study_tensor_kind kind)
{
    if (c->last[kind] >= 0) {
        free(c->tensor[c->last[kind]].x);
        return &c->tensor[c->last[kind]];
    }
    if (c->n_tensor == STUDY_MAX_TENSORS) return NULL;
    int *const slot = c->first[kind] < 0 ? &c->first[kind] : &c->last[kind];
    *slot = c->n_tensor;
    return &c->tensor[c->n_tensor++];
}

static void keep_tensor(tensor_collector *c, study_tensor_kind kind, int op, const float *x, int64_t n)
{
    study_tensor *tensor = next_tensor(c, kind);
    if (!tensor) return;
    *tensor =
        (study_tensor){.kind = kind, .point = c->point, .n = n < STUDY_MAX_ELEMENTS ? n : STUDY_MAX_ELEMENTS};
    (void)snprintf(tensor->name, sizeof tensor->name, "%s", c->rank->step->graph->op[op].name);
    for (int64_t i = 0; i < n; i++) tensor->amax = fmaxf(tensor->amax, fabsf(x[i]));
    tensor->x = malloc((size_t)tensor->n * sizeof *tensor->x);
    if (tensor->x)
        memcpy(tensor->x, x, (size_t)tensor->n * sizeof *tensor->x);
    else
        c->status = tandem_no_memory(c->error, "for a tensor of the study");
}

static void observe_tensors(void *context, const tandem_executor *executor, int t)
{
    tensor_collector *c = context;
    const tandem_step *step = c->rank->step;
    const tandem_graph *graph = step->graph;
    const tandem_task *task = &step->task[t];
    if (c->point < 0 || c->status != TANDEM_OK || task->op < 0) return;
    const tandem_op *op = &graph->op[task->op];
    const int64_t n = tandem_shape_elements(&op->shape);
    const int is_relu = op->kind == TANDEM_OP_RELU || op->kind == TANDEM_OP_BATCHNORM_RELU ||
                        op->kind == TANDEM_OP_BATCHNORM_ADD_RELU;
    const tandem_backend_api *backend = c->rank->backend;
    if (task->kind == TANDEM_TASK_FORWARD && (is_relu || op->kind == TANDEM_OP_SOFTMAX))
        keep_tensor(c, is_relu ? STUDY_RELU_OUTPUT : STUDY_SOFTMAX, task->op,
                    backend->executor_value(executor, task->write[0], 0, NULL), n);
    if (task->kind != TANDEM_TASK_WGRAD || !tandem_op_is_adjustable(op)) return;
    keep_tensor(c, STUDY_GRADIENT, task->op, backend->executor_value(executor, task->read[1], 0, NULL), n);
    if (op->parameter[0] >= 0)
        keep_tensor(c, STUDY_WEIGHT, task->op,
                    backend->executor_value(executor, TANDEM_PARAMETER(op->parameter[0]), 0, NULL),
                    graph->parameter[op->parameter[0]].elements);
}

static tandem_status train_and_collect(tensor_collector *c, const cli_options *options, const int64_t *point,
                                       int n_point, tandem_error *error)
{
    tandem_status status = TANDEM_OK;
    int next = 0;
    c->rank->backend->executor_observe(c->rank->executor, observe_tensors, c);
    for (int64_t i = 0; i <= point[n_point - 1] && status == TANDEM_OK; i++) {
        double loss = 0;
        c->point = next < n_point && point[next] == i ? i : -1;
        next += c->point >= 0;
        for (int k = 0; k < STUDY_N_TENSOR_KIND; k++) c->first[k] = c->last[k] = -1;
        status = c->rank->backend->executor_step(c->rank->executor, i, &loss, error);
        if (status == TANDEM_OK) status = c->status;
        if (i % 16 == 0)
            cli_progress(options, -1, "study: %s, step %lld of %lld", c->rank->step->graph->model,
                         (long long)i, (long long)point[n_point - 1]);
    }
    return status;
}

tandem_status study_tensors_collect(study_tensor tensor[STUDY_MAX_TENSORS], int *n_tensor,
                                    const cli_options *given, const char *model, int64_t batch,
                                    const int64_t *point, int n_point, tandem_error *error)
{
    cli_options options = *given;
    options.model = model;
    options.batch = batch;
    options.data = STUDY_DATA;
    options.steps = point[n_point - 1] + 1;
    tandem_workload workload = {0};
    training_rank rank = {0};
    tensor_collector c = {.rank = &rank, .tensor = tensor, .n_tensor = *n_tensor, .error = error};
    tandem_status status = cli_workload_open(&workload, &options, error);
    if (status == TANDEM_OK) status = study_rank_open(&rank, &workload, &options, error);
    if (status == TANDEM_OK) status = train_and_collect(&c, given, point, n_point, error);
    *n_tensor = c.n_tensor;
    training_rank_close(&rank);
    tandem_workload_close(&workload);
    return status;
}
