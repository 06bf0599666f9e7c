/* folder: allocator */
/* Laws of the solvers over drawn plan DAGs, beside all paths there are. A failure names its seed. */
#include "tests/property/drawn_dag.h"
#include "tests/support/tandem_test.h"

enum { N_SEED = 2000 };

typedef struct problem {
    drawn_dag drawn;
    uint64_t seed;
    drawn_path path[DRAWN_PATHS]; /* in the order of their choices */
    int n_path;
    double best;  /* the least sensitivity within the limits; INFINITY: none is */
    int n_within; /* paths within the limits */
} problem;

#define demand(p, law)                                                                                       \
    do {                                                                                                     \
        if (!(law)) fail_msg("seed %llu: %s", (unsigned long long)(p)->seed, #law);                          \
    } while (0)

static int is_within(const problem *p, const drawn_path *path)
{
    return path->time_ns <= p->drawn.limits.time_limit_ns && path->bytes <= p->drawn.limits.byte_limit;
}

/* Limits that nothing, something, one path to the last bit, or everything keeps. */
static void draw_limits(problem *p, drawn_random *random)
{
    tandem_limits *const limits = &p->drawn.limits;
    const drawn_path *const some = &p->path[draw_whole(random, p->n_path)],
                            *const other = &p->path[draw_whole(random, p->n_path)];
    const int kind = draw_whole(random, 8);
    if (kind != 0) limits->time_limit_ns = some->time_ns;
    if (kind >= 4) limits->byte_limit = other->bytes;
    if (kind == 1) limits->time_limit_ns = INT64_MAX, limits->byte_limit = some->bytes;
    if (kind == 2)
        for (int w = 0; w < p->n_path; w++)
            if (p->path[w].time_ns <= limits->time_limit_ns) limits->time_limit_ns = p->path[w].time_ns;
    if (kind == 2 && draw_dag(random) < 0.5) limits->time_limit_ns--;
    if (kind == 7) limits->byte_limit = some->bytes;
}

static void make_solve(problem *p, uint64_t seed)
{
    drawn_random random = {.seed = seed, .n = 100000};
    p->seed = seed;
    drawn_dag_make(&p->drawn, seed);
    p->n_path = drawn_dag_walk(&p->drawn, p->path);
    if (p->n_path > 0) draw_limits(p, &random);
    p->best = INFINITY;
    p->n_within = 0;
    for (int w = 0; w < p->n_path; w++) {
        if (!is_within(p, &p->path[w])) continue;
        p->n_within++;
        if (p->path[w].sensitivity < p->best) p->best = p->path[w].sensitivity;
    }
}

/* The path with these choices. */
static const drawn_path *find_solve(const problem *p, const int *choice)
{
    for (int w = 0; w < p->n_path; w++)
        if (memcmp(p->path[w].choice, choice, (size_t)p->drawn.plan_dag.n_layer * sizeof *choice) == 0)
            return &p->path[w];
    fail_msg("seed %llu: no path has these choices", (unsigned long long)p->seed);
    return NULL;
}

/* What is said about the path found is so. */
static void check_path(const problem *p, const tandem_solution *solution)
{
    if (!(solution->sensitivity < INFINITY)) return;
    const drawn_path *const path = find_solve(p, solution->choice);
    demand(p, is_within(p, path));
    demand(p, path->sensitivity == solution->sensitivity);
    demand(p, path->time_ns == solution->time_ns && path->bytes == solution->bytes);
}

/* --- Shortest paths ------------------------------------------------------------------------------------- */

static void check_shortest(const problem *p, double sensitivity_weight, double time_weight,
                           double byte_weight)
{
    double value = -1, min = INFINITY;
    int choice[DRAWN_LAYERS] = {0};
    tandem_error error = {0};
    require_ok_seed(tandem_solve_shortest(&value, choice, &p->drawn.plan_dag, &p->drawn.limits,
                                          sensitivity_weight, time_weight, byte_weight, &error),
                    &error, p->seed);
    for (int w = 0; w < p->n_path; w++)
        min =
            fmin(min, sensitivity_weight * p->path[w].sensitivity + time_weight * (double)p->path[w].time_ns +
                          byte_weight * (double)p->path[w].bytes);
    if (p->n_path == 0) {
        demand(p, isinf(value));
        return;
    }
    const drawn_path *const path = find_solve(p, choice);
    const double reached = sensitivity_weight * path->sensitivity + time_weight * (double)path->time_ns +
                           byte_weight * (double)path->bytes;
    demand(p, fabs(value - min) <= 1e-12 * min && fabs(reached - min) <= 1e-12 * min);
}

static void shortest_paths_are_the_shortest_of_all(void **state)
{
    problem *const p = *state;
    for (uint64_t seed = 1; seed <= N_SEED; seed++) {
        make_solve(p, seed);
        check_shortest(p, 1, 0, 0);
        check_shortest(p, 0, 1, 0);
        check_shortest(p, 0, 0, 1);
        check_shortest(p, 1, 1e-15, 1e-14);
    }
}

/* --- Bounds --------------------------------------------------------------------------------------------- */

/* The best bound that one limit has: where the lower hull of all paths, as points (time, sensitivity),
 * crosses it. */
static double hull_at_limit(const problem *p)
{
    const int64_t limit_ns = p->drawn.limits.time_limit_ns;
    double min = p->best;
    for (int a = 0; a < p->n_path; a++) {
        if (p->path[a].time_ns > limit_ns || p->path[a].sensitivity > p->best * 1e6) continue;
        for (int b = 0; b < p->n_path; b++) {
            const drawn_path *const in = &p->path[a], *const out = &p->path[b];
            if (out->time_ns <= limit_ns || out->sensitivity >= min) continue;
            const double share = (double)(limit_ns - in->time_ns) / (double)(out->time_ns - in->time_ns);
            min = fmin(min, in->sensitivity + (out->sensitivity - in->sensitivity) * share);
        }
    }
    return min;
}

static double lagrange_solve(const problem *p, const tandem_limits *limits, tandem_solution *solution,
                             double multiplier[2])
{
    tandem_error error = {0};
    require_ok_seed(tandem_solve_lagrange(solution, multiplier, &p->drawn.plan_dag, limits, &error), &error,
                    p->seed);
    return solution->lower_bound;
}

static void bounds_are_no_more_than_the_best_and_no_less_than_they_can_be(void **state)
{
    problem *const p = *state;
    int n_hull = 0, n_tight = 0, n_loose = 0;
    for (uint64_t seed = 1; seed <= N_SEED; seed++) {
        int choice[DRAWN_LAYERS];
        tandem_solution solution = {.choice = choice}, one = {0};
        double multiplier[2] = {-1, -1};
        make_solve(p, seed);
        tandem_limits limits = p->drawn.limits;
        const double bound = lagrange_solve(p, &limits, &solution, multiplier);
        demand(p, bound <= p->best);
        demand(p, solution.sensitivity >= p->best);
        demand(p, multiplier[0] >= 0 && multiplier[1] >= 0);
        demand(p, !solution.proven || solution.sensitivity <= p->best * (1 + 2e-9) || isinf(bound));
        check_path(p, &solution);
        limits.byte_limit = UINT64_MAX;
        demand(p, bound >= lagrange_solve(p, &limits, &one, NULL) * (1 - 2e-6));
        limits = p->drawn.limits;
        limits.time_limit_ns = INT64_MAX;
        demand(p, bound >= lagrange_solve(p, &limits, &one, NULL) * (1 - 2e-6));
        if (p->n_within > 0 && p->n_path < 600 && p->drawn.limits.byte_limit == UINT64_MAX) {
            demand(p, bound >= hull_at_limit(p) * (1 - 2e-6));
            n_hull++;
        }
        n_tight += bound == p->best;
        n_loose += bound < p->best * 0.9;
    }
    demand(p, n_hull > 50 && n_tight > 50 && n_loose > 50);
}

/* --- The least sensitivity ------------------------------------------------------------------------------ */

static void solve_solve(const problem *p, tandem_solution *solution, double cutoff, double tolerance,
                        int64_t max_labels)
{
    tandem_error error = {0};
    solution->lower_bound = solution->sensitivity = -1;
    require_ok_seed(tandem_solve_exact(solution, &p->drawn.plan_dag, &p->drawn.limits, cutoff, tolerance,
                                       max_labels, &error),
                    &error, p->seed);
    demand(p, solution->lower_bound <= p->best);
    demand(p, solution->sensitivity >= p->best);
    check_path(p, solution);
}

static void exact_is_exact(void **state)
{
    problem *const p = *state;
    int n_none = 0;
    for (uint64_t seed = 1; seed <= N_SEED; seed++) {
        int choice[DRAWN_LAYERS];
        tandem_solution s = {.choice = choice};
        make_solve(p, seed);
        solve_solve(p, &s, INFINITY, 0, INT64_MAX);
        demand(p, s.proven && s.sensitivity == p->best && s.lower_bound == p->best);
        n_none += p->n_within == 0;
        solve_solve(p, &s, p->best, 0, INT64_MAX);
        demand(p, s.proven && s.lower_bound == p->best);
        solve_solve(p, &s, p->best * 1.01 + 1e-30, 0, INT64_MAX);
        demand(p, s.proven && s.sensitivity == p->best && s.lower_bound == p->best);
        solve_solve(p, &s, p->best / 2, 0, INT64_MAX);
        demand(p, s.proven && s.lower_bound >= p->best / 2);
        solve_solve(p, &s, INFINITY, 0.05, INT64_MAX);
        demand(p, s.proven && (s.sensitivity == p->best || s.sensitivity * 0.95 <= s.lower_bound));
        solve_solve(p, &s, INFINITY, 0, 0);
        demand(p, s.proven == (s.lower_bound >= s.sensitivity));
    }
    demand(p, n_none > 10 && n_none < N_SEED / 4);
}

/* --- One after the other -------------------------------------------------------------------------------- */

static int compare_choices(const problem *p, const int *a, const int *b)
{
    for (int l = 0; l < p->drawn.plan_dag.n_layer; l++)
        if (a[l] != b[l]) return a[l] < b[l] ? -1 : 1;
    return 0;
}

/* All that come, in their order, at most so many labels at a time; how many. */
static int enumerate_solve(const problem *p, drawn_path *found, int64_t max_labels)
{
    tandem_enumeration *enumeration = NULL;
    tandem_error error = {0};
    double sensitivity = 0, bound = 0, bounded = 0;
    int n = 0, choice[DRAWN_LAYERS];
    require_ok_seed(tandem_enumeration_open(&enumeration, &p->drawn.plan_dag, &p->drawn.limits, &error),
                    &error, p->seed);
    while (sensitivity < INFINITY || isnan(sensitivity)) {
        require_ok_seed(
            tandem_enumeration_next(enumeration, &sensitivity, choice, &bound, max_labels, &error), &error,
            p->seed);
        demand(p, isnan(sensitivity) || sensitivity >= bounded);
        demand(p, bound >= bounded * (1 - 0x1p-29));
        bounded = bound;
        if (!(sensitivity < INFINITY)) continue;
        demand(p, n < p->n_within);
        found[n] = *find_solve(p, choice);
        demand(p, is_within(p, &found[n]) && found[n].sensitivity == sensitivity);
        n++;
    }
    demand(p, isinf(bound));
    tandem_enumeration_close(enumeration);
    return n;
}

static void paths_come_once_each_in_their_order(void **state)
{
    problem *const p = *state;
    static drawn_path found[DRAWN_PATHS];
    static char seen[DRAWN_PATHS];
    for (uint64_t seed = 1; seed <= N_SEED; seed++) {
        make_solve(p, seed);
        if (p->n_path > 1500) continue;
        const int n = enumerate_solve(p, found, seed % 3 == 0 ? 7 : 1 << 20);
        demand(p, n == p->n_within);
        memset(seen, 0, sizeof seen);
        for (int i = 0; i < n; i++) {
            const long w = find_solve(p, found[i].choice) - p->path;
            demand(p, !seen[w]);
            seen[w] = 1;
            if (i == 0) continue;
            demand(p, found[i].sensitivity >= found[i - 1].sensitivity * (1 - 0x1p-29));
            demand(p, found[i].sensitivity != found[i - 1].sensitivity ||
                          compare_choices(p, found[i - 1].choice, found[i].choice) < 0);
        }
    }
}

/* --- Chains too long for all their paths ---------------------------------------------------------------- */

/* The least sensitivity for each time that is allowed: dynamic programming over times. */
static double best_of_chain(const drawn_chain *c)
{
    static double min[2][DRAWN_CHAIN_MAX_NS + 1];
    for (int t = 0; t <= DRAWN_CHAIN_MAX_NS; t++) min[0][t] = 0;
    for (int l = 0; l < DRAWN_CHAIN_LAYERS; l++)
        for (int t = 0; t <= DRAWN_CHAIN_MAX_NS; t++) {
            min[(l + 1) % 2][t] = INFINITY;
            for (int a = c->arc_start[l]; a < c->arc_start[l + 1]; a++) {
                const int64_t rest_ns = t - c->time_ns[a + 1];
                if (rest_ns < 0) continue;
                min[(l + 1) % 2][t] = fmin(min[(l + 1) % 2][t], min[l % 2][rest_ns] + c->arc[a].sensitivity);
            }
        }
    return min[DRAWN_CHAIN_LAYERS % 2][c->limits.time_limit_ns];
}

static void long_chains_are_solved_as_dynamic_programming_solves_them(void **state)
{
    int64_t max_labels = 0;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        drawn_chain c;
        tandem_solution s = {0};
        tandem_error error = {0};
        drawn_chain_make(&c, seed);
        const double best = best_of_chain(&c);
        assert_int_equal(tandem_solve_exact(&s, &c.plan_dag, &c.limits, INFINITY, 0, INT64_MAX, &error),
                         TANDEM_OK);
        if (!s.proven || s.sensitivity != best || s.lower_bound != best)
            fail_msg("seed %llu: %.17g, %.17g proven; the best is %.17g", (unsigned long long)seed,
                     s.sensitivity, s.lower_bound, best);
        if (s.labels > max_labels) max_labels = s.labels;
        assert_int_equal(tandem_solve_exact(&s, &c.plan_dag, &c.limits, INFINITY, 0, 0, &error), TANDEM_OK);
        if (s.lower_bound > best || s.sensitivity < best)
            fail_msg("seed %llu: %.17g to %.17g without time; the best is %.17g", (unsigned long long)seed,
                     s.lower_bound, s.sensitivity, best);
    }
    print_message("at most %lld labels\n", (long long)max_labels);
    assert_true(max_labels > 100000); /* so that some had to be left out at first */
}

static int open_problem_solve(void **state)
{
    *state = malloc(sizeof(problem));
    return *state ? 0 : -1;
}

static int close_problem(void **state)
{
    free(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shortest_paths_are_the_shortest_of_all),
        cmocka_unit_test(bounds_are_no_more_than_the_best_and_no_less_than_they_can_be),
        cmocka_unit_test(exact_is_exact),
        cmocka_unit_test(paths_come_once_each_in_their_order),
        cmocka_unit_test(long_chains_are_solved_as_dynamic_programming_solves_them),
    };
    return cmocka_run_group_tests_name("solvers: laws", tests, open_problem_solve, close_problem);
}
