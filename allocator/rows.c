/* rows.c: column generation over the ways of a network. */
#include "allocator/rows.h"

#include <glpk.h>
#include <math.h>
#include <setjmp.h>
#include <stdlib.h>

#include "allocator/solve.h"

enum { MOST_COLUMNS = 200 };
static const double good_enough = 1e-5; /* relative distance of the bound from the program's value */
static const double rounding = 1e-11;   /* relative error of a sum of products of doubles, on the safe side */

static int64_t way_length(const int64_t *weight, const tandem_network *network, const int *choice)
{
    int64_t sum = weight[0];
    for (int l = 0, state = 0; l < network->n_layer; l++) {
        int a = network->arc_start[state];
        while (network->arc[a].choice != choice[l]) a++;
        sum += weight[network->arc[a].bundle];
        state = network->arc[a].to;
    }
    return sum;
}

int64_t tandem_rows_length(const tandem_rows *rows, const tandem_network *network, int r, const int *choice)
{
    return way_length(rows->weight + (size_t)r * (size_t)network->n_bundle, network, choice);
}

static double way_harm(const tandem_network *network, const int *choice)
{
    double sum = 0;
    for (int l = 0, state = 0; l < network->n_layer; l++) {
        int a = network->arc_start[state];
        while (network->arc[a].choice != choice[l]) a++;
        sum += network->arc[a].sensitivity;
        state = network->arc[a].to;
    }
    return sum;
}

enum { BEYOND = 16 }; /* times the harm that no way exceeds */

/* No way has more harm. */
static double most_harm(const tandem_network *network)
{
    double sum = 0;
    for (int l = 0; l < network->n_layer; l++) {
        double most = 0;
        const int end = network->arc_start[network->state_start[l + 1]];
        for (int a = network->arc_start[network->state_start[l]]; a < end; a++)
            most = fmax(most, network->arc[a].sensitivity);
        sum += most;
    }
    return sum;
}

typedef struct generation {
    const tandem_rows *rows;
    const tandem_network *network;
    glp_prob *program;
    double beyond;  /* harm of the column that stands for no way at all; harms are scaled by it */
    double *price;  /* [n_row] of the program, scaled */
    int64_t *joint; /* [n_bundle] rows weighted by prices */
    int *choice;    /* [n_layer] the last column */
    int *index;     /* [n_row + 2] scratch of a column */
    double *value;
} generation;

/* --- The program: columns are ways; rows: one for each limit, one that says that shares add up to 1 ----- */

static void add_column(generation *g, double harm, const int *choice)
{
    const int n = g->rows->n_row, column = glp_add_cols(g->program, 1);
    glp_set_col_bnds(g->program, column, GLP_LO, 0, 0);
    glp_set_obj_coef(g->program, column, harm / g->beyond);
    for (int r = 0; r < n; r++) {
        const double limit = fmax((double)g->rows->limit[r], 1);
        g->index[r + 1] = r + 1;
        g->value[r + 1] = choice ? (double)tandem_rows_length(g->rows, g->network, r, choice) / limit : 0;
    }
    g->index[n + 1] = n + 1;
    g->value[n + 1] = 1;
    glp_set_mat_col(g->program, column, n + 1, g->index, g->value);
}

static void open_program(generation *g)
{
    const int n = g->rows->n_row;
    g->program = glp_create_prob();
    glp_set_obj_dir(g->program, GLP_MIN);
    glp_add_rows(g->program, n + 1);
    for (int r = 0; r < n; r++) glp_set_row_bnds(g->program, r + 1, GLP_UP, 0, g->rows->limit[r] > 0 ? 1 : 0);
    glp_set_row_bnds(g->program, n + 1, GLP_FX, 1, 1);
    add_column(g, g->beyond, NULL);
}

/* Fills in prices. Returns the program's value, NAN where it could not be solved. */
static double solve_program(generation *g)
{
    glp_smcp settings;
    glp_init_smcp(&settings);
    settings.msg_lev = GLP_MSG_OFF;
    if (glp_simplex(g->program, &settings) != 0 || glp_get_status(g->program) != GLP_OPT) return NAN;
    for (int r = 0; r < g->rows->n_row; r++) g->price[r] = fmax(-glp_get_row_dual(g->program, r + 1), 0);
    return glp_get_obj_val(g->program) * g->beyond;
}

/* --- Ways under prices ---------------------------------------------------------------------------------- */

/* The shortest way under the prices goes to g->choice; *bound: what it proves. */
static tandem_status shortest(generation *g, double *bound, tandem_error *error)
{
    const tandem_rows *rows = g->rows;
    const size_t n_bundle = (size_t)g->network->n_bundle;
    double dearest = 0, limit = 0, value;
    for (int r = 0; r < rows->n_row; r++)
        dearest = fmax(dearest, g->price[r] / fmax((double)rows->limit[r], 1));
    for (size_t k = 0; k < n_bundle; k++) {
        double sum = 0;
        for (int r = 0; r < rows->n_row && dearest > 0; r++)
            if (g->price[r] > 0)
                sum += g->price[r] / fmax((double)rows->limit[r], 1) / dearest *
                       (double)rows->weight[(size_t)r * n_bundle + k];
        g->joint[k] = (int64_t)floor(sum * (1 - rounding));
    }
    for (int r = 0; r < rows->n_row && dearest > 0; r++)
        limit += g->price[r] / fmax((double)rows->limit[r], 1) / dearest * (double)rows->limit[r];
    const tandem_limits limits = {.time_ns = g->joint, .time_limit_ns = INT64_MAX, .byte_limit = UINT64_MAX};
    const double weight = dearest * g->beyond;
    const tandem_status status =
        tandem_solve_shortest(&value, g->choice, g->network, &limits, 1, weight, 0, error);
    if (status == TANDEM_OK) *bound = value - weight * limit - rounding * (fabs(value) + weight * limit);
    return status;
}

static int is_within_all(const generation *g)
{
    for (int r = 0; r < g->rows->n_row; r++)
        if (tandem_rows_length(g->rows, g->network, r, g->choice) > g->rows->limit[r]) return 0;
    return 1;
}

static tandem_status generate(generation *g, double *bound, double *multiplier, double *harm, int *choice,
                              tandem_error *error)
{
    const int n_row = g->rows->n_row;
    tandem_status status = TANDEM_OK;
    *bound = -INFINITY;
    for (int r = 0; r < n_row; r++) g->price[r] = multiplier[r] = 0;
    for (int k = 0; k < MOST_COLUMNS && status == TANDEM_OK; k++) {
        double of_prices, value = INFINITY;
        status = shortest(g, &of_prices, error);
        if (status != TANDEM_OK) break;
        if (of_prices > *bound) {
            *bound = of_prices;
            for (int r = 0; r < n_row; r++)
                multiplier[r] = g->price[r] * g->beyond / fmax((double)g->rows->limit[r], 1);
        }
        const double of_way = way_harm(g->network, g->choice);
        if (of_way < *harm && is_within_all(g)) {
            *harm = of_way;
            for (int l = 0; l < g->network->n_layer; l++) choice[l] = g->choice[l];
        }
        add_column(g, of_way, g->choice);
        value = solve_program(g);
        if (isnan(value) || value - *bound <= good_enough * fabs(value)) break;
    }
    if (*bound > g->beyond / BEYOND * (1 + rounding)) *bound = INFINITY; /* no way is within the rows */
    return status;
}

/* --- GLPK gives up where memory is out: it is left by a jump -------------------------------------------- */

typedef struct way_out {
    jmp_buf where;
} way_out;

static void give_up(void *info) { longjmp(((way_out *)info)->where, 1); }

static tandem_status no_memory(tandem_error *error)
{
    return tandem_error_set(error, TANDEM_NO_MEMORY, "no memory to bound plans under several limits");
}

static tandem_status run(generation *g, double *bound, double *multiplier, double *harm, int *choice,
                         tandem_error *error)
{
    way_out out;
    /* GLPK keeps an environment a thread: it would outlive this one */
    const int is_ours = glp_init_env() == 0;
    if (setjmp(out.where)) {
        glp_error_hook(NULL, NULL);
        glp_free_env(); /* and whatever was allocated in it */
        return no_memory(error);
    }
    glp_error_hook(give_up, &out);
    open_program(g);
    const tandem_status status = generate(g, bound, multiplier, harm, choice, error);
    glp_delete_prob(g->program);
    glp_error_hook(NULL, NULL);
    if (is_ours) glp_free_env();
    return status;
}

tandem_status tandem_rows_bound(double *bound, double *multiplier, double *harm, int *choice,
                                const tandem_rows *rows, const tandem_network *network, tandem_error *error)
{
    const size_t n_row = (size_t)rows->n_row;
    generation g = {.rows = rows, .network = network, .beyond = BEYOND * most_harm(network)};
    double proven = -INFINITY;
    if (g.beyond <= 0) g.beyond = 1;
    g.price = calloc(n_row + 1, sizeof *g.price);
    g.value = calloc(n_row + 2, sizeof *g.value);
    g.index = calloc(n_row + 2, sizeof *g.index);
    g.joint = malloc((size_t)network->n_bundle * sizeof *g.joint);
    g.choice = malloc(((size_t)network->n_layer + 1) * sizeof *g.choice);
    tandem_status status = TANDEM_OK;
    if (!g.price || !g.value || !g.index || !g.joint || !g.choice)
        status = no_memory(error);
    else
        status = run(&g, &proven, multiplier, harm, choice, error);
    free(g.choice);
    free(g.joint);
    free(g.index);
    free(g.value);
    free(g.price);
    if (status == TANDEM_OK) *bound = proven;
    return status;
}
