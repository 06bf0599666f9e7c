/* solve_mckp.c: a knapsack problem as a plan DAG with one state per layer, and the policies that solve it. */
#include "bench/mckp/mckp.h"

#include "allocator/bound/solve.h"
#include "base/arena.h"
#include "base/nearest.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A layer for each group, one state in each; arc k and task set k + 1 are the same choice of a group. */
typedef struct mckp_dag {
    const mckp *problem;
    tandem_plan_dag plan_dag;
    tandem_limits limits;
    int64_t *time; /* [n_task_set] what limits.time_ns points to */
    tandem_arena arena;
} mckp_dag;

static tandem_status open_mckp_dag(mckp_dag *c, const mckp *problem, tandem_error *error)
{
    const size_t n = (size_t)problem->n_group;
    tandem_plan_dag *const plan_dag = &c->plan_dag;
    size_t n_arc = 0;
    *c = (mckp_dag){.problem = problem};
    plan_dag->op = tandem_arena_array(&c->arena, n, sizeof *plan_dag->op);
    plan_dag->state_start = tandem_arena_array(&c->arena, n + 2, sizeof *plan_dag->state_start);
    plan_dag->arc_start = tandem_arena_array(&c->arena, n + 2, sizeof *plan_dag->arc_start);
    if (!plan_dag->op || !plan_dag->state_start || !plan_dag->arc_start) goto no_memory;
    for (int i = 0, g = 0; i < problem->n_item; i++) {
        if (problem->item[i].group != g) continue; /* not the first of its group */
        plan_dag->op[g] = i;
        plan_dag->arc_start[g++] = (int)n_arc;
        n_arc += (size_t)problem->item[i].n_choice;
    }
    for (int l = 0; l < problem->n_group + 2; l++) plan_dag->state_start[l] = l;
    plan_dag->arc_start[n] = plan_dag->arc_start[n + 1] = (int)n_arc;
    plan_dag->n_layer = problem->n_group;
    plan_dag->n_task_set = (int)n_arc + 1;
    plan_dag->arc = tandem_arena_array(&c->arena, n_arc, sizeof *plan_dag->arc);
    plan_dag->bytes = tandem_arena_array(&c->arena, n_arc + 1, sizeof *plan_dag->bytes);
    c->time = tandem_arena_array(&c->arena, n_arc + 1, sizeof *c->time);
    if (!plan_dag->arc || !plan_dag->bytes || !c->time) goto no_memory;
    for (int i = 0; i < problem->n_item; i++) {
        const mckp_item *const item = &problem->item[i];
        const int first = plan_dag->arc_start[item->group];
        for (int k = 0; k < item->n_choice; k++) {
            tandem_arc *const arc = &plan_dag->arc[first + k];
            *arc = (tandem_arc){.to = item->group + 1,
                                .task_set = first + k + 1,
                                .choice = k,
                                .sensitivity = arc->sensitivity + item->choice[k].sensitivity};
            c->time[arc->task_set] += item->choice[k].time;
            plan_dag->bytes[arc->task_set] += item->choice[k].bytes;
        }
    }
    c->limits = (tandem_limits){.time_ns = c->time,
                                .time_limit_ns = problem->time_limit,
                                .bytes = plan_dag->bytes,
                                .byte_limit = problem->byte_limit};
    return TANDEM_OK;
no_memory:
    tandem_arena_free(&c->arena);
    return tandem_no_memory(error, "for a knapsack problem of %d items", problem->n_item);
}

/* --- Greedy --------------------------------------------------------------------------------------------- */

/* What a choice costs of the limits; of one limit alone in its own unit. */
static double choice_price(const mckp_dag *c, int arc)
{
    const mckp *const problem = c->problem;
    const double time = (double)c->time[arc + 1], bytes = (double)c->plan_dag.bytes[arc + 1];
    if (problem->byte_limit == UINT64_MAX) return time;
    if (problem->time_limit == INT64_MAX) return bytes;
    return time / fmax((double)problem->time_limit, 1) + bytes / fmax((double)problem->byte_limit, 1);
}

typedef struct mckp_greedy {
    const mckp_dag *mckp_dag;
    int *arc_now;          /* [n_layer] arcs */
    int *best_arc;         /* [n_layer] the arc to change to, −1 = none */
    double *gain_per_cost; /* [n_layer] sensitivity avoided per price of that */
    char *does_not_fit;    /* [n_arc] arcs that did not fit */
    int64_t time;          /* of `now` */
    uint64_t bytes;
} mckp_greedy;

static void rate_group(mckp_greedy *g, int l)
{
    const tandem_plan_dag *const plan_dag = &g->mckp_dag->plan_dag;
    g->best_arc[l] = -1;
    for (int a = plan_dag->arc_start[l]; a < plan_dag->arc_start[l + 1]; a++) {
        const double sensitivity_delta =
            plan_dag->arc[g->arc_now[l]].sensitivity - plan_dag->arc[a].sensitivity;
        const double price = choice_price(g->mckp_dag, a) - choice_price(g->mckp_dag, g->arc_now[l]);
        const double gain_per_cost = price > 0 ? sensitivity_delta / price : INFINITY;
        if (sensitivity_delta <= 0 || g->does_not_fit[a] ||
            (g->best_arc[l] >= 0 && gain_per_cost <= g->gain_per_cost[l]))
            continue;
        g->best_arc[l] = a;
        g->gain_per_cost[l] = gain_per_cost;
    }
}

static void start_mckp_greedy(mckp_greedy *g)
{
    const tandem_plan_dag *const plan_dag = &g->mckp_dag->plan_dag;
    for (int l = 0; l < plan_dag->n_layer; l++) {
        g->arc_now[l] = plan_dag->arc_start[l];
        for (int a = g->arc_now[l]; a < plan_dag->arc_start[l + 1]; a++) {
            const double cheaper = choice_price(g->mckp_dag, g->arc_now[l]) - choice_price(g->mckp_dag, a);
            if (cheaper > 0 ||
                (cheaper == 0 && plan_dag->arc[a].sensitivity < plan_dag->arc[g->arc_now[l]].sensitivity))
                g->arc_now[l] = a;
        }
        g->time += g->mckp_dag->time[g->arc_now[l] + 1];
        g->bytes += plan_dag->bytes[g->arc_now[l] + 1];
        rate_group(g, l);
    }
}

/* One change, or one choice less to change to; 0 where there is none. */
static int apply_best_change(mckp_greedy *g)
{
    const mckp_dag *const c = g->mckp_dag;
    int l = -1;
    for (int k = 0; k < c->plan_dag.n_layer; k++)
        if (g->best_arc[k] >= 0 && (l < 0 || g->gain_per_cost[k] > g->gain_per_cost[l])) l = k;
    if (l < 0) return 0;
    const int64_t time = g->time - c->time[g->arc_now[l] + 1] + c->time[g->best_arc[l] + 1];
    const uint64_t bytes =
        g->bytes - c->plan_dag.bytes[g->arc_now[l] + 1] + c->plan_dag.bytes[g->best_arc[l] + 1];
    if (time <= c->limits.time_limit_ns && bytes <= c->limits.byte_limit) {
        g->time = time;
        g->bytes = bytes;
        g->arc_now[l] = g->best_arc[l];
    } else {
        g->does_not_fit[g->best_arc[l]] = 1;
    }
    rate_group(g, l);
    return 1;
}

/* --- Policies ------------------------------------------------------------------------------------------- */

static tandem_status solve_mckp_exact(tandem_solution *solution, mckp_dag *c, tandem_error *error)
{
    return tandem_solve_exact(solution, &c->plan_dag, &c->limits, INFINITY, 0, INT64_MAX, error);
}

static tandem_status solve_mckp_bound(tandem_solution *solution, mckp_dag *c, tandem_error *error)
{
    return tandem_solve_lagrange(solution, NULL, &c->plan_dag, &c->limits, error);
}

static tandem_status solve_mckp_greedy(tandem_solution *solution, mckp_dag *c, tandem_error *error)
{
    const tandem_plan_dag *const plan_dag = &c->plan_dag;
    const size_t n = (size_t)plan_dag->n_layer;
    mckp_greedy g = {.mckp_dag = c,
                     .arc_now = tandem_arena_array(&c->arena, n, sizeof *g.arc_now),
                     .best_arc = tandem_arena_array(&c->arena, n, sizeof *g.best_arc),
                     .gain_per_cost = tandem_arena_array(&c->arena, n, sizeof *g.gain_per_cost),
                     .does_not_fit = tandem_arena_array(&c->arena, (size_t)plan_dag->n_task_set, 1)};
    if (!g.arc_now || !g.best_arc || !g.gain_per_cost || !g.does_not_fit)
        return tandem_no_memory(error, "to choose for %zu groups", n);
    const tandem_status status = solve_mckp_bound(solution, c, error);
    if (status != TANDEM_OK) return status;
    start_mckp_greedy(&g);
    solution->sensitivity = INFINITY;
    if (g.time > c->limits.time_limit_ns || g.bytes > c->limits.byte_limit) return TANDEM_OK;
    while (apply_best_change(&g)) continue;
    solution->sensitivity = 0;
    solution->time_ns = g.time;
    solution->bytes = g.bytes;
    for (int l = 0; l < plan_dag->n_layer; l++) {
        solution->choice[l] = plan_dag->arc[g.arc_now[l]].choice;
        solution->sensitivity += plan_dag->arc[g.arc_now[l]].sensitivity;
    }
    solution->lower_bound = fmin(solution->lower_bound, solution->sensitivity);
    return TANDEM_OK;
}

static const char *const names[] = {"exact", "greedy", "bound"};
static tandem_status (*const solvers[])(tandem_solution *, mckp_dag *, tandem_error *) = {
    solve_mckp_exact, solve_mckp_greedy, solve_mckp_bound};
enum { N_POLICY = sizeof names / sizeof *names };

static tandem_status find_mckp_policy(int *found, const char *name, tandem_error *error)
{
    for (*found = 0; *found < N_POLICY; ++*found)
        if (strcmp(names[*found], name) == 0) return TANDEM_OK;
    return tandem_error_set(error, TANDEM_UNKNOWN_NAME, "no policy '%.64s'.%s Allowed: exact, greedy, bound",
                            name, tandem_nearest_hint(name, names, N_POLICY).text);
}

/* --- The answer ----------------------------------------------------------------------------------------- */

static double units_to_ns(const mckp *problem, double time)
{
    double power = 1;
    for (int d = 0; d < problem->decimals; d++) power *= 10;
    return time / power;
}

/* Says why there is no answer: the smallest time and bytes that any choices take. */
static tandem_status explain_infeasible(const mckp_dag *c, int none_exists, tandem_error *error)
{
    const tandem_limits *const limits = &c->limits;
    double time = 0, min_bytes = 0;
    char about_time[96] = "", about_bytes[96] = "";
    tandem_status status = tandem_solve_shortest(&time, NULL, &c->plan_dag, limits, 0, 1, 0, error);
    if (status == TANDEM_OK)
        status = tandem_solve_shortest(&min_bytes, NULL, &c->plan_dag, limits, 0, 0, 1, error);
    if (status != TANDEM_OK) return status;
    if (limits->time_limit_ns != INT64_MAX)
        (void)snprintf(about_time, sizeof about_time, " The smallest time is %.15g ns, the limit %.15g ns.",
                       units_to_ns(c->problem, time), c->problem->time_limit_ns);
    if (limits->byte_limit != UINT64_MAX)
        (void)snprintf(about_bytes, sizeof about_bytes, " The fewest bytes are %.16g, the limit %" PRIu64 ".",
                       min_bytes, limits->byte_limit);
    const int each = time <= (double)limits->time_limit_ns && min_bytes <= (double)limits->byte_limit;
    return tandem_error_set(
        error, TANDEM_INFEASIBLE, "%s.%s%s%s",
        none_exists ? "no choices keep the limits"
                    : "no choices within the limits were found; that there are none is not proven",
        about_time, about_bytes, each && none_exists ? " Each limit can be kept, but not both at once." : "");
}

static void fill_answer(mckp_answer *answer, const tandem_solution *solution, const mckp_dag *c)
{
    const mckp *const problem = c->problem;
    for (int i = 0; answer->choice && i < problem->n_item; i++)
        answer->choice[i] = solution->choice[problem->item[i].group];
    answer->sensitivity = solution->sensitivity;
    answer->time_ns = units_to_ns(problem, (double)solution->time_ns);
    answer->bytes = solution->bytes;
    answer->lower_bound = solution->lower_bound;
    answer->gap = solution->sensitivity > 0
                      ? (solution->sensitivity - solution->lower_bound) / solution->sensitivity
                      : 0;
}

tandem_status mckp_solve(mckp_answer *answer, const mckp *problem, const char *policy, tandem_error *error)
{
    mckp_dag c;
    int p = 0;
    tandem_solution solution = {0};
    tandem_status status = find_mckp_policy(&p, policy, error);
    if (status == TANDEM_OK) status = open_mckp_dag(&c, problem, error);
    if (status != TANDEM_OK) return status;
    solution.choice = tandem_arena_array(&c.arena, (size_t)problem->n_group, sizeof *solution.choice);
    if (!solution.choice) status = tandem_no_memory(error, "for %d choices", problem->n_group);
    if (status == TANDEM_OK) status = solvers[p](&solution, &c, error);
    if (status == TANDEM_OK && !(solution.sensitivity < INFINITY))
        status = explain_infeasible(&c, isinf(solution.lower_bound), error);
    if (status == TANDEM_OK) fill_answer(answer, &solution, &c);
    tandem_arena_free(&c.arena);
    return status;
}
