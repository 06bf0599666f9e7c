/* lagrange.c: the best multipliers of the limits, by column generation.
 *
 * The dual of the Lagrangian bound is a linear program: the cheapest mixture of ways that keeps the limits on
 * average. It has a row for each limit and one that makes it a mixture, so a basis is three columns. A
 * shortest way under the basis's multipliers is the column that is worth most; where it is worth nothing, the
 * mixture is the best. With one limit this is the secant method on the bound, a concave function of its
 * multiplier. */
#include "allocator/ways.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

enum {
    ROWS = TANDEM_WAYS_COSTS + 1,
    MOST_PASSES = 64,
    MOST_PIVOTS = 64, /* between two passes */
    FIRST_WAY = 2 * TANDEM_WAYS_COSTS
};
static const double close_enough = 1e-6, equal_enough = 1e-9;

typedef struct column {
    double price, use[ROWS];
} column;

/* Columns: what of each limit is left, what each is exceeded by (at a price above all harm), then ways. */
typedef struct mixture {
    column column[FIRST_WAY + MOST_PASSES];
    int n_column;
    double limit[ROWS], scale[TANDEM_WAYS_COSTS];
    int basis[ROWS];
} mixture;

/* --- Three equations, by Cramer's rule ------------------------------------------------------------------ */

static long double determinant(const long double m[ROWS][ROWS])
{
    return m[0][0] * (m[1][1] * m[2][2] - m[1][2] * m[2][1]) -
           m[0][1] * (m[1][0] * m[2][2] - m[1][2] * m[2][0]) +
           m[0][2] * (m[1][0] * m[2][1] - m[1][1] * m[2][0]);
}

/* Σ_j m[i][j] x[j] = right[i]; 0 where that has no single solution. */
static int solve(double x[ROWS], const long double m[ROWS][ROWS], const double right[ROWS])
{
    const long double whole = determinant(m);
    if (whole == 0) return 0;
    for (int j = 0; j < ROWS; j++) {
        long double replaced[ROWS][ROWS];
        for (int i = 0; i < ROWS; i++)
            for (int k = 0; k < ROWS; k++) replaced[i][k] = k == j ? right[i] : m[i][k];
        x[j] = (double)(determinant(replaced) / whole);
    }
    return 1;
}

/* --- The mixture ---------------------------------------------------------------------------------------- */

static void open_mixture(mixture *m, const tandem_ways *ways)
{
    *m = (mixture){.n_column = FIRST_WAY, .limit = {1, 1, 1}, .scale = {1, 1}};
    for (int r = 0; r < TANDEM_WAYS_COSTS; r++) {
        if (r < ways->n_cost) {
            m->scale[r] = fmax(ways->slack[r], 1);
            m->limit[r] = ways->slack[r] / m->scale[r];
        }
        m->column[r].use[r] = 1;
        m->column[TANDEM_WAYS_COSTS + r].use[r] = -1;
        m->column[TANDEM_WAYS_COSTS + r].price =
            (ways->most_harm > 0 ? 2 * ways->most_harm : 1) * m->scale[r];
    }
}

/* What the rows are worth: prices of the columns in the basis, spread over what they use. */
static int find_worth(const mixture *m, double worth[ROWS])
{
    long double use[ROWS][ROWS];
    double price[ROWS];
    for (int i = 0; i < ROWS; i++) {
        const column *const basic = &m->column[m->basis[i]];
        price[i] = basic->price;
        for (int r = 0; r < ROWS; r++) use[i][r] = basic->use[r];
    }
    return solve(worth, use, price);
}

/* Amounts of the columns in the basis that make up `right`. */
static int find_amounts(const mixture *m, double amount[ROWS], const double right[ROWS])
{
    long double use[ROWS][ROWS];
    for (int i = 0; i < ROWS; i++)
        for (int r = 0; r < ROWS; r++) use[r][i] = m->column[m->basis[i]].use[r];
    return solve(amount, use, right);
}

/* Brings a column into the basis, for the one that is used up first; 0 where that cannot be told. */
static int enter(mixture *m, int entering)
{
    double amount[ROWS], change[ROWS], least = INFINITY;
    int leaving = -1;
    if (!find_amounts(m, amount, m->limit) || !find_amounts(m, change, m->column[entering].use)) return 0;
    for (int i = 0; i < ROWS; i++) {
        if (change[i] <= 1e-12) continue;
        const double lasts = fmax(amount[i], 0) / change[i];
        if (lasts < least) {
            least = lasts;
            leaving = i;
        }
    }
    if (leaving < 0) return 0;
    m->basis[leaving] = entering;
    return 1;
}

/* The column that would make the mixture cheaper by most; −1 = there is none. */
static int most_wanted(const mixture *m, const double worth[ROWS])
{
    double least = 0;
    int wanted = -1;
    for (int j = 0; j < m->n_column; j++) {
        const column *const at = &m->column[j];
        double rest = at->price, size = fabs(at->price);
        for (int r = 0; r < ROWS; r++) {
            rest -= worth[r] * at->use[r];
            size += fabs(worth[r] * at->use[r]);
        }
        if (rest < least && rest < -1e-13 * size) {
            least = rest;
            wanted = j;
        }
    }
    return wanted;
}

static void mix(mixture *m, double worth[ROWS])
{
    for (int k = 0; k < MOST_PIVOTS && find_worth(m, worth); k++) {
        const int wanted = most_wanted(m, worth);
        if (wanted < 0 || !enter(m, wanted)) break;
    }
}

/* --- The dual ------------------------------------------------------------------------------------------- */

/* The way that begins at next[0], as a column; arc[n_layer]: its arcs in the network. */
static void follow(column *found, const tandem_ways *ways, const mixture *m, const int *next, int *arc)
{
    *found = (column){.use = {0, 0, 1}};
    for (int l = 0, s = 0; l < ways->n_layer; l++) {
        const int a = next[s];
        arc[l] = ways->origin[a];
        found->price += ways->sensitivity[a];
        for (int r = 0; r < TANDEM_WAYS_COSTS; r++) found->use[r] += ways->cost[r][a];
        s = ways->to[a];
    }
    for (int r = 0; r < TANDEM_WAYS_COSTS; r++) found->use[r] /= m->scale[r];
}

/* What the shortest way proves, rounding taken off: where it is positive, what is granted is less than the
 * way. */
static double bound_of(const tandem_ways *ways, const double multiplier[TANDEM_WAYS_COSTS], double shortest)
{
    double granted = 0;
    for (int r = 0; r < ways->n_cost; r++) granted += multiplier[r] * ways->slack[r];
    return shortest * ways->keep - granted - DBL_MIN;
}

static void start(mixture *m)
{
    for (int r = 0; r < TANDEM_WAYS_COSTS; r++) {
        const int exceeds = m->column[FIRST_WAY].use[r] > m->limit[r];
        m->basis[r] = exceeds ? TANDEM_WAYS_COSTS + r : r;
    }
    m->basis[ROWS - 1] = FIRST_WAY;
}

tandem_status tandem_ways_dual(const tandem_ways *ways, double multiplier[TANDEM_WAYS_COSTS], double *bound,
                               tandem_best *best, int64_t *passes, tandem_error *error)
{
    const size_t n_state = (size_t)ways->n_state;
    mixture *const m = malloc(sizeof *m);
    double *const potential = malloc(n_state * sizeof *potential);
    int *const next = malloc(n_state * sizeof *next);
    int *const arc = malloc(((size_t)ways->n_layer + 1) * sizeof *arc);
    double tried[TANDEM_WAYS_COSTS] = {0}, worth[ROWS] = {0}, most = 0;
    tandem_status status = TANDEM_OK;
    if (!m || !potential || !next || !arc) {
        status = tandem_error_set(error, TANDEM_NO_MEMORY, "no memory to bound ways through %d states",
                                  ways->n_state);
        goto out;
    }
    open_mixture(m, ways);
    for (int r = 0; r < TANDEM_WAYS_COSTS; r++) multiplier[r] = 0;
    for (int pass = 0; pass < MOST_PASSES; pass++) {
        tandem_ways_pass(ways, tried, potential, next);
        ++*passes;
        follow(&m->column[m->n_column++], ways, m, next, arc);
        tandem_best_offer(best, ways, arc);
        const double proven = bound_of(ways, tried, potential[0]);
        if (proven > most) {
            most = proven;
            for (int r = 0; r < TANDEM_WAYS_COSTS; r++) multiplier[r] = tried[r];
        }
        if (pass == 0) start(m);
        mix(m, worth);
        double price = 0; /* of the mixture */
        for (int r = 0; r < ROWS; r++) price += worth[r] * m->limit[r];
        if (most > ways->most_harm || price - most <= close_enough * fabs(price)) break;
        double moved = 0;
        for (int r = 0; r < TANDEM_WAYS_COSTS; r++) {
            const double now = fmax(-worth[r] / m->scale[r], 0);
            moved = fmax(moved, fabs(now - tried[r]) - 1e-14 * now);
            tried[r] = now;
        }
        if (moved <= 0) break;
    }
    *bound = most > ways->most_harm ? INFINITY : most;
out:
    free(arc);
    free(next);
    free(potential);
    free(m);
    return status;
}

tandem_status tandem_solve_lagrange(tandem_solution *solution, double multiplier[2],
                                    const tandem_network *network, const tandem_limits *limits,
                                    tandem_error *error)
{
    tandem_ways ways;
    tandem_best best = {.sensitivity = INFINITY};
    double found[TANDEM_WAYS_COSTS] = {0}, bound = INFINITY;
    int64_t passes = 0;
    tandem_status status = tandem_ways_open(&ways, network, limits, error);
    if (status != TANDEM_OK) return status;
    best.arc = malloc(((size_t)network->n_layer + 1) * sizeof *best.arc);
    if (!best.arc) {
        status =
            tandem_error_set(error, TANDEM_NO_MEMORY, "no memory for a way of %d layers", network->n_layer);
        goto out;
    }
    if (ways.possible) status = tandem_ways_dual(&ways, found, &bound, &best, &passes, error);
    if (status != TANDEM_OK) goto out;
    tandem_best_report(&best, network, limits, solution);
    solution->lower_bound = fmin(bound, best.sensitivity);
    solution->proven = bound >= best.sensitivity * (1 - equal_enough);
    solution->labels = passes;
    for (int r = 0; multiplier && r < 2; r++) multiplier[r] = 0;
    for (int r = 0; multiplier && r < ways.n_cost; r++) multiplier[ways.cost_kind[r]] = found[r];
out:
    free(best.arc);
    tandem_ways_close(&ways);
    return status;
}
