/* constraint_lp.c: column generation over the paths of a plan DAG. */
#include "allocator/bound/constraint_lp.h"

#include <glpk.h>
#include <math.h>
#include <setjmp.h>
#include <stdlib.h>

#include "allocator/bound/solve.h"

enum { MAX_COLUMNS = 200 };
static const double lp_tolerance = 1e-5; /* relative distance of the bound from the program's optimum */
static const double rounding = 1e-11;    /* exceeds the relative error of a sum of products of doubles */

static int64_t path_usage(const int64_t *weight, const tandem_plan_dag *plan_dag, const int *choice)
{
    int64_t sum = weight[0];
    for (int l = 0, state = 0; l < plan_dag->n_layer; l++) {
        int a = plan_dag->arc_start[state];
        while (plan_dag->arc[a].choice != choice[l]) a++;
        sum += weight[plan_dag->arc[a].task_set];
        state = plan_dag->arc[a].to;
    }
    return sum;
}

int64_t tandem_constraint_lp_usage(const tandem_constraint_lp *constraints, const tandem_plan_dag *plan_dag,
                                   int r, const int *choice)
{
    return path_usage(constraints->weight + (size_t)r * (size_t)plan_dag->n_task_set, plan_dag, choice);
}

static double path_sensitivity(const tandem_plan_dag *plan_dag, const int *choice)
{
    double sum = 0;
    for (int l = 0, state = 0; l < plan_dag->n_layer; l++) {
        int a = plan_dag->arc_start[state];
        while (plan_dag->arc[a].choice != choice[l]) a++;
        sum += plan_dag->arc[a].sensitivity;
        state = plan_dag->arc[a].to;
    }
    return sum;
}

enum { INFEASIBLE_FACTOR = 16 }; /* times the largest sensitivity of a path */

/* An upper bound of the sensitivity of a path. */
static double max_path_sensitivity(const tandem_plan_dag *plan_dag)
{
    double sum = 0;
    for (int l = 0; l < plan_dag->n_layer; l++) {
        double max = 0;
        const int end = plan_dag->arc_start[plan_dag->state_start[l + 1]];
        for (int a = plan_dag->arc_start[plan_dag->state_start[l]]; a < end; a++)
            max = fmax(max, plan_dag->arc[a].sensitivity);
        sum += max;
    }
    return sum;
}

typedef struct column_generation {
    const tandem_constraint_lp *constraints;
    const tandem_plan_dag *plan_dag;
    glp_prob *lp;
    /* cost of the column for "no path"; scales all sensitivities */
    double infeasible_cost;
    double *dual_price; /* [n_row] scaled */
    int64_t *joint;     /* [n_task_set] sum of the rows, weighted by prices */
    int *choice;        /* [n_layer] the last column */
    int *index;         /* [n_row + 2] scratch of a column */
    int n_column;
    double *value;
} column_generation;

/* --- The program: columns are paths; rows: one for each limit, one that says that shares add up to 1 ---- */

static void add_path_column(column_generation *g, double sensitivity, const int *choice)
{
    const int n = g->constraints->n_row, column = glp_add_cols(g->lp, 1);
    glp_set_col_bnds(g->lp, column, GLP_LO, 0, 0);
    glp_set_obj_coef(g->lp, column, sensitivity / g->infeasible_cost);
    for (int r = 0; r < n; r++) {
        const double limit = fmax((double)g->constraints->limit[r], 1);
        g->index[r + 1] = r + 1;
        g->value[r + 1] =
            choice ? (double)tandem_constraint_lp_usage(g->constraints, g->plan_dag, r, choice) / limit : 0;
    }
    g->index[n + 1] = n + 1;
    g->value[n + 1] = 1;
    glp_set_mat_col(g->lp, column, n + 1, g->index, g->value);
}

static void open_lp(column_generation *g)
{
    const int n = g->constraints->n_row;
    g->lp = glp_create_prob();
    glp_set_obj_dir(g->lp, GLP_MIN);
    glp_add_rows(g->lp, n + 1);
    for (int r = 0; r < n; r++)
        glp_set_row_bnds(g->lp, r + 1, GLP_UP, 0, g->constraints->limit[r] > 0 ? 1 : 0);
    glp_set_row_bnds(g->lp, n + 1, GLP_FX, 1, 1);
    add_path_column(g, g->infeasible_cost, NULL);
}

/* Sets the dual prices. Returns the program's optimum, NAN where GLPK fails. */
static double solve_lp(column_generation *g)
{
    glp_smcp settings;
    glp_init_smcp(&settings);
    settings.msg_lev = GLP_MSG_OFF;
    if (glp_simplex(g->lp, &settings) != 0 || glp_get_status(g->lp) != GLP_OPT) return NAN;
    for (int r = 0; r < g->constraints->n_row; r++)
        g->dual_price[r] = fmax(-glp_get_row_dual(g->lp, r + 1), 0);
    return glp_get_obj_val(g->lp) * g->infeasible_cost;
}

/* --- Paths under prices --------------------------------------------------------------------------------- */

/* g->choice: the shortest path under the prices; *bound: the Lagrangian bound that it proves. */
static tandem_status find_best_column(column_generation *g, double *bound, tandem_error *error)
{
    const tandem_constraint_lp *constraints = g->constraints;
    const size_t n_task_set = (size_t)g->plan_dag->n_task_set;
    double max_price = 0, limit = 0, value;
    for (int r = 0; r < constraints->n_row; r++)
        max_price = fmax(max_price, g->dual_price[r] / fmax((double)constraints->limit[r], 1));
    for (size_t k = 0; k < n_task_set; k++) {
        double sum = 0;
        for (int r = 0; r < constraints->n_row && max_price > 0; r++)
            if (g->dual_price[r] > 0)
                sum += g->dual_price[r] / fmax((double)constraints->limit[r], 1) / max_price *
                       (double)constraints->weight[(size_t)r * n_task_set + k];
        g->joint[k] = (int64_t)floor(sum * (1 - rounding));
    }
    for (int r = 0; r < constraints->n_row && max_price > 0; r++)
        limit += g->dual_price[r] / fmax((double)constraints->limit[r], 1) / max_price *
                 (double)constraints->limit[r];
    const tandem_limits limits = {.time_ns = g->joint, .time_limit_ns = INT64_MAX, .byte_limit = UINT64_MAX};
    const double weight = max_price * g->infeasible_cost;
    const tandem_status status =
        tandem_solve_shortest(&value, g->choice, g->plan_dag, &limits, 1, weight, 0, error);
    if (status == TANDEM_OK) *bound = value - weight * limit - rounding * (fabs(value) + weight * limit);
    return status;
}

static int is_within_all_rows(const column_generation *g)
{
    for (int r = 0; r < g->constraints->n_row; r++)
        if (tandem_constraint_lp_usage(g->constraints, g->plan_dag, r, g->choice) > g->constraints->limit[r])
            return 0;
    return 1;
}

static tandem_status generate_columns(column_generation *g, double *bound, double *multiplier,
                                      double *sensitivity, int *choice, tandem_error *error)
{
    const int n_row = g->constraints->n_row;
    tandem_status status = TANDEM_OK;
    *bound = -INFINITY;
    for (int r = 0; r < n_row; r++) g->dual_price[r] = multiplier[r] = 0;
    for (int k = 0; k < MAX_COLUMNS && status == TANDEM_OK; k++) {
        double price_bound, value = INFINITY;
        status = find_best_column(g, &price_bound, error);
        if (status != TANDEM_OK) break;
        if (price_bound > *bound) {
            *bound = price_bound;
            for (int r = 0; r < n_row; r++)
                multiplier[r] =
                    g->dual_price[r] * g->infeasible_cost / fmax((double)g->constraints->limit[r], 1);
        }
        const double found_sensitivity = path_sensitivity(g->plan_dag, g->choice);
        if (found_sensitivity < *sensitivity && is_within_all_rows(g)) {
            *sensitivity = found_sensitivity;
            for (int l = 0; l < g->plan_dag->n_layer; l++) choice[l] = g->choice[l];
        }
        add_path_column(g, found_sensitivity, g->choice);
        g->n_column++;
        value = solve_lp(g);
        if (isnan(value) || value - *bound <= lp_tolerance * fabs(value)) break;
    }
    /* no path keeps all rows */
    if (*bound > g->infeasible_cost / INFEASIBLE_FACTOR * (1 + rounding)) *bound = INFINITY;
    return status;
}

/* --- GLPK ends the program where memory runs out: a jump leaves it -------------------------------------- */

typedef struct memory_exit {
    jmp_buf where;
} memory_exit;

static void leave_glpk(void *info) { longjmp(((memory_exit *)info)->where, 1); }

static tandem_status lp_no_memory(tandem_error *error)
{
    return tandem_no_memory(error, "to bound plans under several limits");
}

static tandem_status run_column_generation(column_generation *g, double *bound, double *multiplier,
                                           double *sensitivity, int *choice, tandem_error *error)
{
    memory_exit out;
    /* GLPK keeps an environment per thread, which would outlive this call */
    const int is_ours = glp_init_env() == 0;
    if (setjmp(out.where)) {
        glp_error_hook(NULL, NULL);
        glp_free_env(); /* with everything allocated in it */
        return lp_no_memory(error);
    }
    glp_error_hook(leave_glpk, &out);
    open_lp(g);
    const tandem_status status = generate_columns(g, bound, multiplier, sensitivity, choice, error);
    glp_delete_prob(g->lp);
    glp_error_hook(NULL, NULL);
    if (is_ours) glp_free_env();
    return status;
}

tandem_status tandem_constraint_lp_bound(double *bound, double *multiplier, double *sensitivity, int *choice,
                                         int *n_column, const tandem_constraint_lp *constraints,
                                         const tandem_plan_dag *plan_dag, tandem_error *error)
{
    const size_t n_row = (size_t)constraints->n_row;
    column_generation g = {.constraints = constraints,
                           .plan_dag = plan_dag,
                           .infeasible_cost = INFEASIBLE_FACTOR * max_path_sensitivity(plan_dag)};
    double proven = -INFINITY;
    if (g.infeasible_cost <= 0) g.infeasible_cost = 1;
    g.dual_price = calloc(n_row + 1, sizeof *g.dual_price);
    g.value = calloc(n_row + 2, sizeof *g.value);
    g.index = calloc(n_row + 2, sizeof *g.index);
    g.joint = malloc((size_t)plan_dag->n_task_set * sizeof *g.joint);
    g.choice = malloc(((size_t)plan_dag->n_layer + 1) * sizeof *g.choice);
    tandem_status status = TANDEM_OK;
    if (!g.dual_price || !g.value || !g.index || !g.joint || !g.choice)
        status = lp_no_memory(error);
    else
        status = run_column_generation(&g, &proven, multiplier, sensitivity, choice, error);
    free(g.choice);
    free(g.joint);
    free(g.index);
    free(g.value);
    free(g.dual_price);
    *n_column = g.n_column;
    if (status == TANDEM_OK) *bound = proven;
    return status;
}
