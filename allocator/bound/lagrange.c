/* lagrange.c: the best multipliers of one or two limits, by column generation.
 *
 * The dual of the Lagrangian bound is a linear program: the cheapest mixture of paths that keeps the limits
 * on average. It has a row per limit and one that makes the weights of the mixture sum to 1, so a basis has
 * three columns. The shortest path under the basis's multipliers is the column with the smallest reduced
 * cost. Where that is not negative, the mixture is optimal. With one limit this is the secant method on the
 * bound, a concave function of its multiplier. constraint_lp.c does the same for any number of limits: over
 * chains of 60 layers it takes 1.4 ms where this takes 0.01 ms, so both stay. */
#include "allocator/bound/path_dag.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

enum {
    N_MASTER_ROW = TANDEM_N_PATH_COST + 1,
    MAX_PASSES = 64,
    MAX_PIVOTS = 64, /* between two passes */
    FIRST_PATH_COLUMN = 2 * TANDEM_N_PATH_COST
};
static const double close_enough = 1e-6, equal_enough = 1e-9;

typedef struct column {
    double price, use[N_MASTER_ROW];
} column;

/* Columns: slack of each limit, excess of each limit (at a price above every sensitivity), then paths. */
typedef struct master_problem {
    column column[FIRST_PATH_COLUMN + MAX_PASSES];
    int n_column;
    double limit[N_MASTER_ROW], scale[TANDEM_N_PATH_COST];
    int basis[N_MASTER_ROW];
} master_problem;

/* --- Three equations, by Cramer's rule ------------------------------------------------------------------ */

static long double determinant(const long double m[N_MASTER_ROW][N_MASTER_ROW])
{
    return m[0][0] * (m[1][1] * m[2][2] - m[1][2] * m[2][1]) -
           m[0][1] * (m[1][0] * m[2][2] - m[1][2] * m[2][0]) +
           m[0][2] * (m[1][0] * m[2][1] - m[1][1] * m[2][0]);
}

/* Solves Σ_j m[i][j] x[j] = right[i]; 0: there is no unique solution. */
static int solve_3x3(double x[N_MASTER_ROW], const long double m[N_MASTER_ROW][N_MASTER_ROW],
                     const double right[N_MASTER_ROW])
{
    const long double whole = determinant(m);
    if (whole == 0) return 0;
    for (int j = 0; j < N_MASTER_ROW; j++) {
        long double replaced[N_MASTER_ROW][N_MASTER_ROW];
        for (int i = 0; i < N_MASTER_ROW; i++)
            for (int k = 0; k < N_MASTER_ROW; k++) replaced[i][k] = k == j ? right[i] : m[i][k];
        x[j] = (double)(determinant(replaced) / whole);
    }
    return 1;
}

/* --- The mixture ---------------------------------------------------------------------------------------- */

static void open_master(master_problem *m, const tandem_path_dag *paths)
{
    *m = (master_problem){.n_column = FIRST_PATH_COLUMN, .limit = {1, 1, 1}, .scale = {1, 1}};
    for (int r = 0; r < TANDEM_N_PATH_COST; r++) {
        if (r < paths->n_cost) {
            m->scale[r] = fmax(paths->reduced_limit[r], 1);
            m->limit[r] = paths->reduced_limit[r] / m->scale[r];
        }
        m->column[r].use[r] = 1;
        m->column[TANDEM_N_PATH_COST + r].use[r] = -1;
        m->column[TANDEM_N_PATH_COST + r].price =
            (paths->max_sensitivity > 0 ? 2 * paths->max_sensitivity : 1) * m->scale[r];
    }
}

/* Dual values of the rows under the basis. */
static int find_duals(const master_problem *m, double dual[N_MASTER_ROW])
{
    long double use[N_MASTER_ROW][N_MASTER_ROW];
    double price[N_MASTER_ROW];
    for (int i = 0; i < N_MASTER_ROW; i++) {
        const column *const basic = &m->column[m->basis[i]];
        price[i] = basic->price;
        for (int r = 0; r < N_MASTER_ROW; r++) use[i][r] = basic->use[r];
    }
    return solve_3x3(dual, use, price);
}

/* Amounts of the basic columns that sum to `right`. */
static int find_primal(const master_problem *m, double primal[N_MASTER_ROW], const double right[N_MASTER_ROW])
{
    long double use[N_MASTER_ROW][N_MASTER_ROW];
    for (int i = 0; i < N_MASTER_ROW; i++)
        for (int r = 0; r < N_MASTER_ROW; r++) use[r][i] = m->column[m->basis[i]].use[r];
    return solve_3x3(primal, use, right);
}

/* Exchanges a column for the basic one that reaches 0 first; 0: there is none. */
static int pivot_column(master_problem *m, int entering)
{
    double primal[N_MASTER_ROW], change[N_MASTER_ROW], min = INFINITY;
    int leaving = -1;
    if (!find_primal(m, primal, m->limit) || !find_primal(m, change, m->column[entering].use)) return 0;
    for (int i = 0; i < N_MASTER_ROW; i++) {
        if (change[i] <= 1e-12) continue;
        const double ratio = fmax(primal[i], 0) / change[i];
        if (ratio < min) {
            min = ratio;
            leaving = i;
        }
    }
    if (leaving < 0) return 0;
    m->basis[leaving] = entering;
    return 1;
}

/* The column with the smallest reduced cost; −1: none is negative. */
static int find_entering_column(const master_problem *m, const double dual[N_MASTER_ROW])
{
    double min = 0;
    int entering = -1;
    for (int j = 0; j < m->n_column; j++) {
        const column *const at = &m->column[j];
        double rest = at->price, size = fabs(at->price);
        for (int r = 0; r < N_MASTER_ROW; r++) {
            rest -= dual[r] * at->use[r];
            size += fabs(dual[r] * at->use[r]);
        }
        if (rest < min && rest < -1e-13 * size) {
            min = rest;
            entering = j;
        }
    }
    return entering;
}

static void solve_master(master_problem *m, double dual[N_MASTER_ROW])
{
    for (int k = 0; k < MAX_PIVOTS && find_duals(m, dual); k++) {
        const int entering = find_entering_column(m, dual);
        if (entering < 0 || !pivot_column(m, entering)) break;
    }
}

/* --- The dual ------------------------------------------------------------------------------------------- */

/* The path that begins at next[0], as a column; arc[n_layer]: its arcs in the plan DAG. */
static void read_path_column(column *found, const tandem_path_dag *paths, const master_problem *m,
                             const int *next, int *arc)
{
    *found = (column){.use = {0, 0, 1}};
    for (int l = 0, s = 0; l < paths->n_layer; l++) {
        const int a = next[s];
        arc[l] = paths->plan_arc[a];
        found->price += paths->sensitivity[a];
        for (int r = 0; r < TANDEM_N_PATH_COST; r++) found->use[r] += paths->cost[r][a];
        s = paths->to[a];
    }
    for (int r = 0; r < TANDEM_N_PATH_COST; r++) found->use[r] /= m->scale[r];
}

/* The bound that the shortest path proves, less the rounding error. Where it is positive, the granted part is
 * smaller than the path. */
static double lagrangian_bound(const tandem_path_dag *paths, const double multiplier[TANDEM_N_PATH_COST],
                               double shortest)
{
    double granted = 0;
    for (int r = 0; r < paths->n_cost; r++) granted += multiplier[r] * paths->reduced_limit[r];
    return shortest * paths->rounding_factor - granted - DBL_MIN;
}

static void set_first_basis(master_problem *m)
{
    for (int r = 0; r < TANDEM_N_PATH_COST; r++) {
        const int exceeds = m->column[FIRST_PATH_COLUMN].use[r] > m->limit[r];
        m->basis[r] = exceeds ? TANDEM_N_PATH_COST + r : r;
    }
    m->basis[N_MASTER_ROW - 1] = FIRST_PATH_COLUMN;
}

tandem_status tandem_path_dag_dual(const tandem_path_dag *paths, double multiplier[TANDEM_N_PATH_COST],
                                   double *bound, tandem_best_path *best, int64_t *passes,
                                   tandem_error *error)
{
    const size_t n_state = (size_t)paths->n_state;
    master_problem *const m = malloc(sizeof *m);
    double *const potential = malloc(n_state * sizeof *potential);
    int *const next = malloc(n_state * sizeof *next);
    int *const arc = malloc(((size_t)paths->n_layer + 1) * sizeof *arc);
    double candidate[TANDEM_N_PATH_COST] = {0}, dual[N_MASTER_ROW] = {0}, best_bound = 0;
    tandem_status status = TANDEM_OK;
    if (!m || !potential || !next || !arc) {
        status = tandem_no_memory(error, "to bound paths through %d states", paths->n_state);
        goto out;
    }
    open_master(m, paths);
    for (int r = 0; r < TANDEM_N_PATH_COST; r++) multiplier[r] = 0;
    for (int iteration = 0; iteration < MAX_PASSES; iteration++) {
        tandem_path_dag_shortest(paths, candidate, potential, next);
        ++*passes;
        read_path_column(&m->column[m->n_column++], paths, m, next, arc);
        tandem_best_path_offer(best, paths, arc);
        const double proven = lagrangian_bound(paths, candidate, potential[0]);
        if (proven > best_bound) {
            best_bound = proven;
            for (int r = 0; r < TANDEM_N_PATH_COST; r++) multiplier[r] = candidate[r];
        }
        if (iteration == 0) set_first_basis(m);
        solve_master(m, dual);
        double price = 0; /* of the mixture */
        for (int r = 0; r < N_MASTER_ROW; r++) price += dual[r] * m->limit[r];
        if (best_bound > paths->max_sensitivity || price - best_bound <= close_enough * fabs(price)) break;
        double moved = 0;
        for (int r = 0; r < TANDEM_N_PATH_COST; r++) {
            const double now = fmax(-dual[r] / m->scale[r], 0);
            moved = fmax(moved, fabs(now - candidate[r]) - 1e-14 * now);
            candidate[r] = now;
        }
        if (moved <= 0) break;
    }
    *bound = best_bound > paths->max_sensitivity ? INFINITY : best_bound;
out:
    free(arc);
    free(next);
    free(potential);
    free(m);
    return status;
}

tandem_status tandem_solve_lagrange(tandem_solution *solution, double multiplier[2],
                                    const tandem_plan_dag *plan_dag, const tandem_limits *limits,
                                    tandem_error *error)
{
    tandem_path_dag paths;
    tandem_best_path best = {.sensitivity = INFINITY};
    double found[TANDEM_N_PATH_COST] = {0}, bound = INFINITY;
    int64_t passes = 0;
    tandem_status status = tandem_path_dag_open(&paths, plan_dag, limits, error);
    if (status != TANDEM_OK) return status;
    best.arc = malloc(((size_t)plan_dag->n_layer + 1) * sizeof *best.arc);
    if (!best.arc) {
        status = tandem_no_memory(error, "for a path of %d layers", plan_dag->n_layer);
        goto out;
    }
    if (paths.is_feasible) status = tandem_path_dag_dual(&paths, found, &bound, &best, &passes, error);
    if (status != TANDEM_OK) goto out;
    tandem_best_path_report(&best, plan_dag, limits, solution);
    solution->lower_bound = fmin(bound, best.sensitivity);
    solution->proven = bound >= best.sensitivity * (1 - equal_enough);
    solution->labels = passes;
    for (int r = 0; multiplier && r < 2; r++) multiplier[r] = 0;
    for (int r = 0; multiplier && r < paths.n_cost; r++) multiplier[paths.cost_kind[r]] = found[r];
out:
    free(best.arc);
    tandem_path_dag_close(&paths);
    return status;
}
