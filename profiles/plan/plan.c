/* plan.c: opens, fills and compares plans in memory. */
#include "base/philox.h"
#include "base/plain_text.h"
#include "tandem/plan.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const objectives[TANDEM_N_OBJECTIVE] = {
    [TANDEM_MINIMIZE_OPEN] = "",
    [TANDEM_MINIMIZE_SENSITIVITY] = "sensitivity",
    [TANDEM_MINIMIZE_STEP] = "step",
    [TANDEM_MINIMIZE_MEMORY] = "memory",
    [TANDEM_MINIMIZE_TRAINING_TIME] = "training-time",
};

const char *tandem_objective_name(tandem_objective objective) { return objectives[objective]; }

tandem_status tandem_objective_find(tandem_objective *objective, const char *name, tandem_error *error)
{
    for (int k = TANDEM_MINIMIZE_SENSITIVITY; k < TANDEM_N_OBJECTIVE; k++)
        if (strcmp(name, objectives[k]) == 0) {
            *objective = (tandem_objective)k;
            return TANDEM_OK;
        }
    return tandem_error_set(error, TANDEM_UNKNOWN_NAME,
                            "'%.60s' is nothing to minimize; known: sensitivity, step, memory, training-time",
                            name);
}

tandem_status tandem_plan_open(tandem_plan **plan, const tandem_graph *graph, const tandem_cluster *cluster,
                               const char *name, tandem_error *error)
{
    if (cluster->n_class < 1 || cluster->n_class > TANDEM_MAX_CLASS)
        return tandem_error_set(error, TANDEM_USAGE, "a plan is for 1 to %d classes; got %d",
                                TANDEM_MAX_CLASS, cluster->n_class);
    for (int c = 0; c < cluster->n_class; c++)
        if (cluster->classes[c].batch < 1)
            return tandem_error_set(error, TANDEM_USAGE,
                                    "class %d (%s) has no batch: give batch=N after its device, "
                                    "or --batch N for all",
                                    c + 1, cluster->classes[c].device.name);
    tandem_plan *const built = calloc(1, sizeof *built);
    if (!built) return tandem_no_memory(error, "for a plan");
    const tandem_status status =
        tandem_assignment_open(&built->assignment, cluster->n_class, graph->n_op, error);
    if (status != TANDEM_OK) {
        free(built);
        return status;
    }
    (void)snprintf(built->name, sizeof built->name, "%s", name ? name : "");
    (void)snprintf(built->model, sizeof built->model, "%s", graph->model);
    built->hash = graph->hash;
    built->cluster = *cluster;
    built->max_sensitivity = built->slowdown = NAN;
    built->sensitivity_bound = built->lower_bound = built->gap = NAN;
    *plan = built;
    return TANDEM_OK;
}

void tandem_plan_close(tandem_plan *plan)
{
    if (!plan) return;
    tandem_assignment_close(&plan->assignment);
    free(plan);
}

/* The replacement for a precision that the operator or the device lacks. */
static tandem_precision fallback_precision(tandem_precision precision, const tandem_device *device)
{
    switch (precision) {
    case TANDEM_PRECISION_INT8_FULL: return TANDEM_PRECISION_INT8;
    case TANDEM_PRECISION_INT8:
    case TANDEM_PRECISION_FP8:
    case TANDEM_PRECISION_MXFP8:
    case TANDEM_PRECISION_NVFP4:
        if (device->amp_dtype == TANDEM_F32) return TANDEM_PRECISION_FP32;
        return device->amp_dtype == TANDEM_BF16 ? TANDEM_PRECISION_BF16 : TANDEM_PRECISION_FP16;
    default: return TANDEM_PRECISION_FP32;
    }
}

/* The precision of an operator if its class gets `precision`. */
static tandem_precision uniform_precision(tandem_op_kind kind, const tandem_device *device,
                                          tandem_precision precision)
{
    const tandem_op_row *const row = tandem_op_row_get(kind);
    tandem_precision chosen = row->op_class == TANDEM_ADJUSTABLE ? precision : TANDEM_PRECISION_FP32;
    while (chosen != TANDEM_PRECISION_FP32 && !(row->precisions & device->precisions & 1u << chosen))
        chosen = fallback_precision(chosen, device);
    return chosen;
}

static tandem_status refuse_precision(const tandem_device *device, tandem_precision precision,
                                      tandem_error *error)
{
    char has[128] = "";
    size_t used = 0;
    for (int p = 0; p < TANDEM_N_PRECISION && used < sizeof has; p++)
        if (device->precisions >> p & 1)
            used += (size_t)snprintf(has + used, sizeof has - used, "%s%s", used ? ", " : "",
                                     tandem_precision_get((tandem_precision)p)->name);
    return tandem_error_set(error, TANDEM_NO_KERNEL, "'%s' has no %s; it has %s", device->name,
                            tandem_precision_get(precision)->name, has);
}

static tandem_status check_plan_class(const tandem_plan *plan, const tandem_graph *graph, int c,
                                      tandem_error *error)
{
    const tandem_status status = tandem_plan_check(plan, graph, error);
    if (status != TANDEM_OK || (c >= 0 && c < plan->cluster.n_class)) return status;
    return tandem_error_set(error, TANDEM_USAGE, "class %d: the plan has %d", c + 1, plan->cluster.n_class);
}

tandem_status tandem_plan_uniform(tandem_plan *plan, const tandem_graph *graph, int c,
                                  tandem_precision precision, tandem_error *error)
{
    const tandem_status status = check_plan_class(plan, graph, c, error);
    if (status != TANDEM_OK) return status;
    const tandem_device *const device = &plan->cluster.classes[c].device;
    if (!(device->precisions >> precision & 1)) return refuse_precision(device, precision, error);
    for (int op = 0; op < graph->n_op; op++)
        plan->assignment.precision[c][op] = uniform_precision(graph->op[op].kind, device, precision);
    return TANDEM_OK;
}

tandem_status tandem_plan_set(tandem_plan *plan, const tandem_graph *graph, int c, int op,
                              tandem_precision precision, tandem_error *error)
{
    const tandem_status status = check_plan_class(plan, graph, c, error);
    if (status != TANDEM_OK) return status;
    const tandem_device *const device = &plan->cluster.classes[c].device;
    if (op < 0 || op >= graph->n_op || (unsigned)precision >= TANDEM_N_PRECISION)
        return tandem_error_set(error, TANDEM_USAGE, "operator %d in precision %d; %s has operators 0 to %d",
                                op, (int)precision, graph->model, graph->n_op - 1);
    if (!(tandem_op_row_get(graph->op[op].kind)->precisions >> precision & 1))
        return tandem_error_set(error, TANDEM_USAGE, "operator '%s' (%s) has no precision %s",
                                graph->op[op].name, tandem_op_row_get(graph->op[op].kind)->name,
                                tandem_precision_get(precision)->name);
    if (!(device->precisions >> precision & 1)) return refuse_precision(device, precision, error);
    plan->assignment.precision[c][op] = precision;
    return TANDEM_OK;
}

tandem_status tandem_plan_random(tandem_plan *plan, const tandem_graph *graph, int c, unsigned precisions,
                                 uint64_t seed, tandem_error *error)
{
    const tandem_status status = check_plan_class(plan, graph, c, error);
    if (status != TANDEM_OK) return status;
    const tandem_device *const device = &plan->cluster.classes[c].device;
    tandem_precision from[TANDEM_N_PRECISION];
    uint32_t n = 0;
    for (int p = 0; p < TANDEM_N_PRECISION; p++)
        if (device->precisions & precisions & 1u << p) from[n++] = (tandem_precision)p;
    if (n == 0)
        return tandem_error_set(error, TANDEM_NO_KERNEL, "'%s' has none of the precisions to draw from",
                                device->name);
    for (int op = 0; op < graph->n_op; op++) {
        const uint32_t counter[4] = {(uint32_t)op, (uint32_t)c, 0, TANDEM_RNG_PLAN};
        plan->assignment.precision[c][op] =
            uniform_precision(graph->op[op].kind, device, from[tandem_philox(counter, seed).word[0] % n]);
    }
    return TANDEM_OK;
}

int tandem_plan_is_uniform(const tandem_plan *plan, const tandem_graph *graph, int c,
                           tandem_precision precision)
{
    const tandem_device *const device = &plan->cluster.classes[c].device;
    if (!(device->precisions >> precision & 1)) return 0;
    for (int op = 0; op < plan->assignment.n_op; op++)
        if (plan->assignment.precision[c][op] != uniform_precision(graph->op[op].kind, device, precision))
            return 0;
    return 1;
}

tandem_status tandem_plan_check(const tandem_plan *plan, const tandem_graph *graph, tandem_error *error)
{
    if (plan->hash == graph->hash && plan->assignment.n_op == graph->n_op) return TANDEM_OK;
    const bool same_name = strcmp(plan->model, graph->model) == 0;
    return tandem_error_set(
        error, TANDEM_WRONG_MODEL, "the plan '%s' was made for %s (%016llx), this is %s (%016llx)%s",
        plan->name, plan->model, (unsigned long long)plan->hash, graph->model,
        (unsigned long long)graph->hash, same_name ? ": the model has changed since; allocate again" : "");
}

/* --- The loss scale --- */

int tandem_plan_count_f16_gradients(const tandem_plan *plan, const tandem_graph *graph, int c)
{
    const tandem_dtype amp_dtype = plan->cluster.classes[c].device.amp_dtype;
    int n = 0;
    for (int op = 0; op < plan->assignment.n_op; op++)
        n += graph->op[op].needs_gradient &&
             tandem_precision_has_f16_gradient(plan->assignment.precision[c][op], amp_dtype);
    return n;
}

int tandem_plan_needs_loss_scale(const tandem_plan *plan, const tandem_graph *graph)
{
    for (int c = 0; c < plan->cluster.n_class; c++)
        if (tandem_plan_count_f16_gradients(plan, graph, c) > 0) return 1;
    return 0;
}

tandem_status tandem_loss_scale_parse(double *loss_scale, const char *word, tandem_error *error)
{
    char *end = NULL;
    if (strcmp(word, "dynamic") == 0) {
        *loss_scale = -1;
        return TANDEM_OK;
    }
    const double x = tandem_plain_read(word, &end);
    if (end == word || *end || !(x > 0 && x < 0x1p64))
        return tandem_error_set(
            error, TANDEM_USAGE,
            "a loss scale is a number above 0 and below 2^64 such as 1024, or `dynamic`, got '%.40s'", word);
    *loss_scale = x;
    return TANDEM_OK;
}

char *tandem_loss_scale_print(char text[TANDEM_LOSS_SCALE_TEXT], double loss_scale)
{
    (void)tandem_plain_print(text, TANDEM_LOSS_SCALE_TEXT, loss_scale < 0 ? "dynamic" : "%.17g", loss_scale);
    return text;
}
