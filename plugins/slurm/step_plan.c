/* step_plan.c: the question of a step's options, and whether a plan answers it. */
#include "plugins/slurm/step_plan.h"

#include <math.h>
#include <string.h>

#include "base/quantity.h"
#include "plugins/slurm/submission.h"
#include "tandem/advanced/allocator.h"

enum { STEP_PROOF_WORK = 5000000 }; /* some 50 ms: the job waits for it */

/* --- Options -------------------------------------------------------------------------------------------- */

/* Writes the value of an option into the question; texts that the library reads are only looked at. */
static tandem_status read_option(tandem_allocation_request *r, tandem_spank_option option, const char *text,
                                 tandem_error *error)
{
    const tandem_policy *policy;
    const tandem_sensitivity_method *method;
    tandem_precision base;
    uint64_t bytes = 0;
    switch (option) {
    case TANDEM_SPANK_MODEL: r->of.model = text; return TANDEM_OK;
    case TANDEM_SPANK_BATCH: return tandem_submission_batch(&r->of.batch, text, error);
    case TANDEM_SPANK_GLOBAL_BATCH: return tandem_submission_batch(&r->global_batch, text, error);
    case TANDEM_SPANK_MEMORY: r->of.memory = text; return tandem_submission_memory(&bytes, text, error);
    case TANDEM_SPANK_SLOWDOWN:
        r->slowdown_is_given = 1;
        return tandem_quantity_parse_ratio(&r->slowdown, text, error);
    case TANDEM_SPANK_MAX_SENSITIVITY:
        r->max_sensitivity_is_given = 1;
        return tandem_quantity_parse_ratio(&r->max_sensitivity, text, error);
    case TANDEM_SPANK_MAX_STEP: return tandem_quantity_parse_ns(&r->max_step_ns, text, error);
    case TANDEM_SPANK_BASE: r->of.base_precision = text; return tandem_precision_find(&base, text, error);
    case TANDEM_SPANK_POLICY: r->policy = text; return tandem_policy_find(&policy, text, error);
    case TANDEM_SPANK_METHOD: r->of.method = text; return tandem_sensitivity_find(&method, text, error);
    case TANDEM_SPANK_MINIMIZE: return tandem_objective_find(&r->minimize, text, error);
    case TANDEM_SPANK_DB:
    case TANDEM_SPANK_PLAN:
    case TANDEM_N_SPANK_OPTION: break;
    }
    return TANDEM_OK;
}

tandem_status tandem_step_check_option(tandem_spank_option option, const char *name, const char *text,
                                       tandem_error *error)
{
    tandem_allocation_request request = {.policy = NULL};
    if (!text || !*text) return tandem_error_set(error, TANDEM_USAGE, "--%s needs a value", name);
    return read_option(&request, option, text, error);
}

tandem_status tandem_step_ask(tandem_step_question *question, const char *const *given,
                              const tandem_node *node, int n_node, const char *net, const char *store,
                              tandem_error *error)
{
    tandem_allocation_request *r = &question->request;
    *question = (tandem_step_question){
        .request = {.of = {.store = store, .cluster = question->cluster}, .work_limit = STEP_PROOF_WORK}};
    for (int i = 0; i < n_node; i++)
        if (tandem_device_is_described(&node[i].device)) r->of.predict = 1;
    tandem_status status = tandem_layout_print(question->cluster, node, n_node, net, error);
    for (int k = 0; k < TANDEM_N_SPANK_OPTION && status == TANDEM_OK; k++)
        if (given[k]) status = read_option(r, (tandem_spank_option)k, given[k], error);
    return status == TANDEM_OK ? tandem_allocation_request_check(r, error) : status;
}

/* --- Plans of earlier steps ----------------------------------------------------------------------------- */

static int has_model(const tandem_plan *plan, const tandem_graph *graph, const char *model)
{
    tandem_graph *asked = NULL;
    const int is_same = tandem_graph_open(&asked, model, graph->batch, NULL) == TANDEM_OK &&
                        tandem_plan_check(plan, asked, NULL) == TANDEM_OK;
    tandem_graph_close(asked);
    return is_same;
}

/* With a global batch, the plan's batches are its split. */
static int has_cluster(const tandem_plan *plan, const tandem_allocation_request *r)
{
    char wanted[TANDEM_LAYOUT_TEXT], there[TANDEM_LAYOUT_TEXT];
    tandem_cluster asked, planned = plan->cluster;
    const int64_t batch = r->of.batch ? r->of.batch : TANDEM_DEFAULT_BATCH;
    if (tandem_cluster_parse(&asked, r->of.cluster, NULL) != TANDEM_OK ||
        tandem_cluster_fill_defaults(&asked, batch, r->of.memory, NULL) != TANDEM_OK)
        return 0;
    for (int c = 0; c < asked.n_class && c < planned.n_class && r->global_batch; c++)
        asked.classes[c].batch = planned.classes[c].batch;
    tandem_cluster_print(wanted, sizeof wanted, &asked);
    tandem_cluster_print(there, sizeof there, &planned);
    return strcmp(wanted, there) == 0 &&
           (!r->global_batch || tandem_cluster_samples(&planned, plan->step.n_micro) == r->global_batch);
}

static int has_method(const tandem_plan *plan, const tandem_request *r)
{
    tandem_precision base = TANDEM_PRECISION_FP32;
    if (r->base_precision && tandem_precision_find(&base, r->base_precision, NULL) != TANDEM_OK) return 0;
    return plan->base_precision == base &&
           strcmp(plan->method, r->method ? r->method : tandem_sensitivity_get(0)->name) == 0;
}

static int is_nearly(double a, double b) { return fabs(a - b) <= 1e-6 * fmax(1, fabs(b)); }

/* A limit that the objective does not take is in no request that was checked. */
static int has_limits(const tandem_plan *plan, const tandem_allocation_request *r)
{
    const int is_of_slowdown =
        plan->objective == TANDEM_MINIMIZE_SENSITIVITY || plan->objective == TANDEM_MINIMIZE_MEMORY;
    if (plan->objective != tandem_allocation_request_objective(r)) return 0;
    if (r->max_sensitivity_is_given != isfinite(plan->max_sensitivity)) return 0;
    if (r->max_sensitivity_is_given && !is_nearly(plan->max_sensitivity, 100 * r->max_sensitivity)) return 0;
    if (r->max_step_ns) return plan->target_ns == r->max_step_ns;
    return !is_of_slowdown || is_nearly(plan->slowdown, r->slowdown_is_given ? r->slowdown : 0);
}

int tandem_step_plan_answers(const tandem_plan *plan, const tandem_graph *graph,
                             const tandem_allocation_request *request)
{
    return has_model(plan, graph, request->of.model) && has_cluster(plan, request) &&
           has_method(plan, &request->of) && has_limits(plan, request) &&
           (!request->policy || strcmp(plan->policy, request->policy) == 0);
}
