/* door.c: asks for a plan through planner.h, as a job scheduler does, and prints the answer as JSON: that is
 * the other door of `make check-truth`. It includes no other header of tandem.
 *
 * usage: door --store FILE --model MODEL --cluster CLUSTER [--NAME VALUE…]
 *   --describe 1   prints the graph's name and hash only
 *   --price 1      replays plans: reads the precisions of each, class by class, from a line of the input,
 *                  and prints its step and its peaks; --norm 1: updates wait for the norm of all gradients */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tandem/planner.h"

typedef struct door_options {
    tandem_request request;
    const char *policy, *uniform, *goal;
    double slowdown, max_sensitivity; /* the latter in percent; below 0: any */
    int64_t target_ns;
    int describes, prices;
} door_options;

/* --- Options ------------------------------------------------------------------------------------------- */

static tandem_status read_named(door_options *o, const char *name, const char *value, tandem_error *error)
{
    tandem_request *r = &o->request;
    if (strcmp(name, "--loss-scale") == 0) return tandem_loss_scale_parse(&r->loss_scale, value, error);
    if (strcmp(name, "--collective") == 0)
        return tandem_collective_algorithm_find(&r->collective, value, error);
    if (strcmp(name, "--wire") == 0) return tandem_gradient_wire_find(&r->wire, value, error);
    if (strcmp(name, "--kernels") == 0) return tandem_kernel_set_find(&r->kernels, value, error);
    if (strcmp(name, "--recompute") == 0)
        return tandem_recompute_parse(&r->step.n_recompute_segment, value, error);
    return tandem_error_set(error, TANDEM_USAGE, "door: unknown option %s", name);
}

static tandem_status read_option(door_options *o, const char *name, const char *value, tandem_error *error)
{
    tandem_request *r = &o->request;
    const struct {
        const char *name, **to;
    } texts[] = {
        {"--store", &r->store},   {"--model", &r->model},        {"--cluster", &r->cluster},
        {"--memory", &r->memory}, {"--sensitivity", &r->method}, {"--base-precision", &r->base_precision},
        {"--policy", &o->policy}, {"--goal", &o->goal},          {"--uniform", &o->uniform}};
    for (size_t k = 0; k < sizeof texts / sizeof *texts; k++)
        if (strcmp(name, texts[k].name) == 0) return *texts[k].to = value, TANDEM_OK;
    if (strcmp(name, "--batch") == 0) return r->batch = strtoll(value, NULL, 10), TANDEM_OK;
    if (strcmp(name, "--bucket") == 0) return r->bucket_bytes = strtoull(value, NULL, 10), TANDEM_OK;
    if (strcmp(name, "--predict") == 0) return r->predict = 1, TANDEM_OK;
    if (strcmp(name, "--without-update") == 0) return r->without_update = 1, TANDEM_OK;
    if (strcmp(name, "--accumulate") == 0) return r->step.n_micro = (int)strtol(value, NULL, 10), TANDEM_OK;
    if (strcmp(name, "--slowdown") == 0) return o->slowdown = strtod(value, NULL), TANDEM_OK;
    if (strcmp(name, "--max-step-ns") == 0) return o->target_ns = strtoll(value, NULL, 10), TANDEM_OK;
    if (strcmp(name, "--max-sensitivity") == 0) return o->max_sensitivity = strtod(value, NULL), TANDEM_OK;
    if (strcmp(name, "--describe") == 0) return o->describes = 1, TANDEM_OK;
    if (strcmp(name, "--price") == 0) return o->prices = 1, TANDEM_OK;
    if (strcmp(name, "--norm") == 0) return r->step.with_norm = r->norm_is_given = 1, TANDEM_OK;
    return read_named(o, name, value, error);
}

static tandem_status read_options(door_options *o, int argc, char **argv, tandem_error *error)
{
    tandem_status status = TANDEM_OK;
    *o = (door_options){.max_sensitivity = -1};
    if (argc % 2 == 0) return tandem_error_set(error, TANDEM_USAGE, "door: every option has a value");
    for (int k = 1; k + 1 < argc && status == TANDEM_OK; k += 2)
        status = read_option(o, argv[k], argv[k + 1], error);
    return status;
}

/* --- Asking -------------------------------------------------------------------------------------------- */

static tandem_status goal_of_options(tandem_goal *goal, const door_options *o, tandem_planner *planner,
                                     tandem_error *error)
{
    static const char *const names[] = {"sensitivity", "step", "memory", "training-time"};
    const int64_t most = o->max_sensitivity >= 0
                             ? tandem_sensitivity_units(tandem_planner_problem(planner), o->max_sensitivity)
                             : INT64_MAX;
    if (!o->goal) return *goal = tandem_planner_goal(planner, o->policy), TANDEM_OK;
    for (int k = 0; k < 4; k++)
        if (strcmp(o->goal, names[k]) == 0)
            return *goal = (tandem_goal){(tandem_objective)k, most}, TANDEM_OK;
    return tandem_error_set(error, TANDEM_USAGE, "door: unknown goal %s", o->goal);
}

static tandem_status set_problem(tandem_planner *planner, const door_options *o, tandem_error *error)
{
    tandem_allocation_problem *problem = tandem_planner_problem(planner);
    problem->slowdown = o->slowdown;
    problem->target_ns = o->target_ns;
    return o->uniform ? tandem_precision_find(&problem->uniform, o->uniform, error) : TANDEM_OK;
}

/* --- Answering ----------------------------------------------------------------------------------------- */

static void print_real(const char *name, double value)
{
    if (isfinite(value))
        printf("  \"%s\": %.9g,\n", name, value);
    else
        printf("  \"%s\": null,\n", name);
}

static void print_whole(const char *name, int64_t value)
{
    printf("  \"%s\": %lld,\n", name, (long long)value);
}

static void print_answer(const tandem_planner *planner, const tandem_allocation_problem *problem,
                         const tandem_plan *plan, const tandem_allocation *found, char *plan_text)
{
    printf("{\n");
    print_whole("step_ns", found->step_ns);
    print_whole("target_ns", found->target_ns);
    print_whole("fastest_ns", found->fastest_ns);
    print_whole("indistinguishable_ns", found->indistinguishable_ns);
    print_real("training_ns", found->training_ns);
    print_real("training_bound_ns", found->training_bound_ns);
    print_real("sensitivity_bound", tandem_sensitivity_value(problem, found->sensitivity));
    print_real("fastest_sensitivity", tandem_sensitivity_value(problem, found->fastest_sensitivity));
    print_real("lower_bound", tandem_sensitivity_value(problem, found->certificate.lower_bound));
    print_real("gap", found->certificate.gap);
    printf("  \"proof\": \"%s\",\n  \"method\": \"%s\",\n  \"policy\": \"%s\",\n  \"peak_bytes\": [",
           found->certificate.proof, tandem_planner_method(planner), plan->policy);
    for (int c = 0; c < plan->cluster.n_class; c++)
        printf("%s%llu", c ? ", " : "", (unsigned long long)found->peak_bytes[c]);
    printf("],\n  \"keeps_base\": [");
    for (int c = 0; c < plan->cluster.n_class; c++)
        printf("%s%s", c ? ", " : "", found->keeps_base >> c & 1 ? "true" : "false");
    printf("],\n  \"training_from_ns\": %lld,\n  \"training_keeps_base\": [",
           (long long)found->training_from_ns);
    for (int c = 0; c < plan->cluster.n_class; c++)
        printf("%s%s", c ? ", " : "", found->training_keeps_base >> c & 1 ? "true" : "false");
    printf("],\n  \"plan_file\": %s}\n", plan_text);
}

static tandem_status describe(const tandem_planner *planner)
{
    const tandem_graph *graph = tandem_planner_graph(planner, 0);
    printf("{\"model\": \"%s\", \"graph_hash\": \"%016llx\"}\n", graph->model,
           (unsigned long long)graph->hash);
    return TANDEM_OK;
}

/* --- Replaying plans ----------------------------------------------------------------------------------- */

/* The precisions of a line, for the operators that are adjustable. */
static tandem_status read_plan(tandem_plan *plan, const tandem_planner *planner, char *line,
                               tandem_error *error)
{
    char *rest = NULL, *word = strtok_r(line, " \n", &rest);
    tandem_status status = TANDEM_OK;
    for (int c = 0; c < plan->cluster.n_class; c++) {
        const tandem_graph *graph = tandem_planner_graph(planner, c);
        for (int op = 0; op < graph->n_op && status == TANDEM_OK; op++) {
            tandem_precision precision = TANDEM_PRECISION_FP32;
            if (!tandem_op_is_adjustable(&graph->op[op])) continue;
            status = tandem_precision_find(&precision, word ? word : "", error);
            if (status == TANDEM_OK) status = tandem_plan_set(plan, graph, c, op, precision, error);
            word = strtok_r(NULL, " \n", &rest);
        }
    }
    return status;
}

static tandem_status print_price(tandem_planner *planner, const tandem_plan *plan, tandem_error *error)
{
    tandem_planned_step step;
    const tandem_status status = tandem_planner_replay(&step, planner, plan, error);
    if (status != TANDEM_OK) return status;
    printf("%lld", (long long)step.step_ns);
    for (int c = 0; c < step.n_class; c++) printf(" %llu", (unsigned long long)step.classes[c].peak_bytes);
    putchar('\n');
    return TANDEM_OK;
}

static tandem_status price_plans(tandem_planner *planner, const door_options *o, tandem_error *error)
{
    char line[4096];
    tandem_plan *plan = NULL;
    tandem_status status = tandem_plan_open(&plan, tandem_planner_graph(planner, 0),
                                            tandem_planner_cluster(planner), "priced", error);
    if (status == TANDEM_OK) plan->step = o->request.step;
    if (status == TANDEM_OK) plan->loss_scale = o->request.step.with_norm ? -1 : 0;
    while (status == TANDEM_OK && fgets(line, sizeof line, stdin)) {
        status = read_plan(plan, planner, line, error);
        if (status == TANDEM_OK) status = print_price(planner, plan, error);
    }
    tandem_plan_close(plan);
    return status;
}

/* --- The command --------------------------------------------------------------------------------------- */

static tandem_status ask(tandem_planner *planner, const door_options *o, tandem_error *error)
{
    tandem_plan *plan = NULL;
    tandem_allocation found;
    tandem_goal goal;
    tandem_status status = set_problem(planner, o, error);
    if (status == TANDEM_OK) status = goal_of_options(&goal, o, planner, error);
    if (status == TANDEM_OK)
        status = tandem_planner_allocate_for(&plan, &found, planner, &goal, o->policy, error);
    if (status != TANDEM_OK) return status;
    char *plan_text = tandem_plan_text(plan, tandem_planner_graph(planner, 0));
    if (plan_text)
        print_answer(planner, tandem_planner_problem(planner), plan, &found, plan_text);
    else
        status = tandem_error_set(error, TANDEM_NO_MEMORY, "door: no memory for the plan's text");
    free(plan_text);
    tandem_plan_close(plan);
    return status;
}

int main(int argc, char **argv)
{
    tandem_planner *planner = NULL;
    tandem_error error = {0};
    door_options options;
    tandem_status status = read_options(&options, argc, argv, &error);
    options.request.times_only = options.describes || options.prices;
    options.request.norm_is_given |= options.prices;
    if (status == TANDEM_OK) status = tandem_planner_open(&planner, &options.request, &error);
    if (status == TANDEM_OK)
        status = options.describes ? describe(planner)
                 : options.prices  ? price_plans(planner, &options, &error)
                                   : ask(planner, &options, &error);
    if (status != TANDEM_OK) fprintf(stderr, "door: %s\n", error.text);
    tandem_planner_close(planner);
    return tandem_status_exit_code(status);
}
