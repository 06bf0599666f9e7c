/* door.c: asks for a plan through planner.h, as a job scheduler does, and prints the answer as JSON: that is
 * the other door of `make check-truth`, and one of tests/property/test_doors.sh. It includes no header that
 * is not installed.
 *
 * usage: door --store FILE --model MODEL --cluster CLUSTER [--NAME VALUE…]
 *   --add CLUSTER  prints what these ranks would bring
 *   --describe 1   prints the graph's name and hash only
 *   --cost 1      replays plans: reads the precisions of each, class by class, from a line of the input,
 *                  and prints its step and its peaks; --norm 1: updates wait for the norm of all gradients */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tandem/advice.h"
#include "tests/support/answer_json.h"

typedef struct door_options {
    tandem_allocation_request asked;
    const char *add; /* for advice; NULL = an allocation */
    int describes, costs;
} door_options;

/* --- Options ------------------------------------------------------------------------------------------- */

static tandem_status read_named(door_options *o, const char *name, const char *value, tandem_error *error)
{
    tandem_request *r = &o->asked.of;
    if (strcmp(name, "--minimize") == 0) return tandem_objective_find(&o->asked.minimize, value, error);
    if (strcmp(name, "--loss-scale") == 0) return tandem_loss_scale_parse(&r->loss_scale, value, error);
    if (strcmp(name, "--collective") == 0)
        return tandem_collective_algorithm_find(&r->collective, value, error);
    if (strcmp(name, "--wire") == 0) return tandem_gradient_wire_find(&r->wire, value, error);
    if (strcmp(name, "--kernels") == 0) return tandem_kernel_set_find(&r->kernels, value, error);
    if (strcmp(name, "--recompute") == 0)
        return tandem_recompute_parse(&r->step.n_recompute_segment, value, error);
    return tandem_error_set(error, TANDEM_USAGE, "door: unknown option %s", name);
}

/* A limit that may be 0. */
static tandem_status set_limit(int *is_given, double *limit, const char *value)
{
    *is_given = 1;
    *limit = strtod(value, NULL);
    return TANDEM_OK;
}

static tandem_status read_option(door_options *o, const char *name, const char *value, tandem_error *error)
{
    tandem_allocation_request *a = &o->asked;
    tandem_request *r = &a->of;
    const struct {
        const char *name, **to;
    } texts[] = {
        {"--store", &r->store},   {"--model", &r->model},        {"--cluster", &r->cluster},
        {"--memory", &r->memory}, {"--sensitivity", &r->method}, {"--base-precision", &r->base_precision},
        {"--policy", &a->policy}, {"--uniform", &a->uniform},    {"--add", &o->add}};
    for (size_t k = 0; k < sizeof texts / sizeof *texts; k++)
        if (strcmp(name, texts[k].name) == 0) return *texts[k].to = value, TANDEM_OK;
    if (strcmp(name, "--batch") == 0) return r->batch = strtoll(value, NULL, 10), TANDEM_OK;
    if (strcmp(name, "--bucket") == 0) return r->bucket_bytes = strtoull(value, NULL, 10), TANDEM_OK;
    if (strcmp(name, "--predict") == 0) return r->predict = 1, TANDEM_OK;
    if (strcmp(name, "--from-description") == 0) return r->from_description = 1, TANDEM_OK;
    if (strcmp(name, "--without-update") == 0) return r->without_update = 1, TANDEM_OK;
    if (strcmp(name, "--accumulate") == 0) return r->step.n_micro = (int)strtol(value, NULL, 10), TANDEM_OK;
    if (strcmp(name, "--slowdown") == 0) return set_limit(&a->slowdown_is_given, &a->slowdown, value);
    if (strcmp(name, "--max-step-ns") == 0) return a->max_step_ns = strtoll(value, NULL, 10), TANDEM_OK;
    if (strcmp(name, "--max-sensitivity") == 0)
        return set_limit(&a->max_sensitivity_is_given, &a->max_sensitivity, value);
    if (strcmp(name, "--proof-work") == 0) return a->work_limit = strtoll(value, NULL, 10), TANDEM_OK;
    if (strcmp(name, "--global-batch") == 0) return a->global_batch = strtoll(value, NULL, 10), TANDEM_OK;
    if (strcmp(name, "--describe") == 0) return o->describes = 1, TANDEM_OK;
    if (strcmp(name, "--cost") == 0) return o->costs = 1, TANDEM_OK;
    if (strcmp(name, "--norm") == 0) return r->step.with_norm = r->norm_is_given = 1, TANDEM_OK;
    return read_named(o, name, value, error);
}

static tandem_status read_options(door_options *o, int argc, char **argv, tandem_error *error)
{
    tandem_status status = TANDEM_OK;
    *o = (door_options){.describes = 0};
    if (argc % 2 == 0) return tandem_error_set(error, TANDEM_USAGE, "door: every option has a value");
    for (int k = 1; k + 1 < argc && status == TANDEM_OK; k += 2)
        status = read_option(o, argv[k], argv[k + 1], error);
    return status;
}

/* --- Answering ----------------------------------------------------------------------------------------- */

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

static tandem_status print_cost(tandem_planner *planner, const tandem_plan *plan, tandem_error *error)
{
    tandem_planned_step step;
    const tandem_status status = tandem_planner_replay(&step, planner, plan, error);
    if (status != TANDEM_OK) return status;
    printf("%lld", (long long)step.step_ns);
    for (int c = 0; c < step.n_class; c++) printf(" %llu", (unsigned long long)step.classes[c].peak_bytes);
    putchar('\n');
    return TANDEM_OK;
}

static tandem_status cost_plans(tandem_planner *planner, const door_options *o, tandem_error *error)
{
    char line[4096];
    tandem_plan *plan = NULL;
    tandem_status status = tandem_plan_open(&plan, tandem_planner_graph(planner, 0),
                                            tandem_planner_cluster(planner), "costed", error);
    if (status == TANDEM_OK) plan->step = o->asked.of.step;
    if (status == TANDEM_OK) plan->loss_scale = o->asked.of.step.with_norm ? -1 : 0;
    while (status == TANDEM_OK && fgets(line, sizeof line, stdin)) {
        status = read_plan(plan, planner, line, error);
        if (status == TANDEM_OK) status = print_cost(planner, plan, error);
    }
    tandem_plan_close(plan);
    return status;
}

/* --- The command --------------------------------------------------------------------------------------- */

static tandem_status ask(const door_options *o, tandem_error *error)
{
    tandem_answer answer = {.plan = NULL};
    const tandem_status status = tandem_answer_open(&answer, &o->asked, error);
    if (status == TANDEM_OK) print_answer(&answer);
    tandem_answer_close(&answer);
    return status;
}

static void print_advice(const tandem_advice *advice)
{
    printf("{\n  \"best\": %d,\n  \"by_goodput\": %d,\n  \"cases\": [\n", advice->best, advice->by_goodput);
    for (int k = 0; k < advice->n; k++) {
        const tandem_candidate *one = &advice->candidate[k];
        printf("    {\"name\": \"%s\", \"rate\": %.17g, \"step_ns\": %lld, \"has_plan\": %d}%s\n", one->name,
               one->rate, (long long)one->answer.step.step_ns, one->answer.plan != NULL,
               k + 1 < advice->n ? "," : "");
    }
    puts("  ]\n}");
}

static tandem_status advise(const door_options *o, tandem_error *error)
{
    tandem_advice advice = {.candidate = NULL};
    const tandem_status status = tandem_advise(&advice, &o->asked, o->add, NULL, error);
    if (status == TANDEM_OK) print_advice(&advice);
    tandem_advice_close(&advice);
    return status;
}

/* What is said without an allocation. */
static tandem_status look(door_options *o, tandem_error *error)
{
    tandem_planner *planner = NULL;
    o->asked.of.times_only = 1;
    o->asked.of.norm_is_given |= o->costs;
    tandem_status status = tandem_planner_open(&planner, &o->asked.of, error);
    if (status == TANDEM_OK) status = o->describes ? describe(planner) : cost_plans(planner, o, error);
    tandem_planner_close(planner);
    return status;
}

int main(int argc, char **argv)
{
    tandem_error error = {0};
    door_options options;
    tandem_status status = read_options(&options, argc, argv, &error);
    if (status == TANDEM_OK)
        status = options.describes || options.costs ? look(&options, &error)
                 : options.add                      ? advise(&options, &error)
                                                    : ask(&options, &error);
    if (status != TANDEM_OK) fprintf(stderr, "door: %s\n", error.text);
    return tandem_status_exit_code(status);
}
