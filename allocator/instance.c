/* instance.c: bare instances: groups of items as the layers of a chain, and the policies that choose on it.
 * */
#include "tandem/instance.h"
#include "allocator/solve.h"
#include "base/arena.h"
#include "base/nearest.h"
#include "base/quantity.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A layer for each group, one state in each; arc and bundle k + 1 are the same choice of one group. */
typedef struct chain {
    const tandem_instance *instance;
    tandem_network network;
    tandem_limits limits;
    int64_t *time; /* [n_bundle] what limits.time_ns points to */
    tandem_arena arena;
} chain;

static tandem_status open_chain(chain *c, const tandem_instance *instance, tandem_error *error)
{
    const size_t n = (size_t)instance->n_group;
    tandem_network *const network = &c->network;
    size_t n_arc = 0;
    *c = (chain){.instance = instance};
    network->op = tandem_arena_array(&c->arena, n, sizeof *network->op);
    network->state_start = tandem_arena_array(&c->arena, n + 2, sizeof *network->state_start);
    network->arc_start = tandem_arena_array(&c->arena, n + 2, sizeof *network->arc_start);
    if (!network->op || !network->state_start || !network->arc_start) goto no_memory;
    for (int i = 0, g = 0; i < instance->n_item; i++) {
        if (instance->item[i].group != g) continue; /* not the first of its group */
        network->op[g] = i;
        network->arc_start[g++] = (int)n_arc;
        n_arc += (size_t)instance->item[i].n_choice;
    }
    for (int l = 0; l < instance->n_group + 2; l++) network->state_start[l] = l;
    network->arc_start[n] = network->arc_start[n + 1] = (int)n_arc;
    network->n_layer = instance->n_group;
    network->n_bundle = (int)n_arc + 1;
    network->arc = tandem_arena_array(&c->arena, n_arc, sizeof *network->arc);
    network->bytes = tandem_arena_array(&c->arena, n_arc + 1, sizeof *network->bytes);
    c->time = tandem_arena_array(&c->arena, n_arc + 1, sizeof *c->time);
    if (!network->arc || !network->bytes || !c->time) goto no_memory;
    for (int i = 0; i < instance->n_item; i++) {
        const tandem_instance_item *const item = &instance->item[i];
        const int first = network->arc_start[item->group];
        for (int k = 0; k < item->n_choice; k++) {
            tandem_arc *const arc = &network->arc[first + k];
            *arc = (tandem_arc){.to = item->group + 1,
                                .bundle = first + k + 1,
                                .choice = k,
                                .sensitivity = arc->sensitivity + item->choice[k].sensitivity};
            c->time[arc->bundle] += item->choice[k].time;
            network->bytes[arc->bundle] += item->choice[k].bytes;
        }
    }
    c->limits = (tandem_limits){.time_ns = c->time,
                                .time_limit_ns = instance->time_limit,
                                .bytes = network->bytes,
                                .byte_limit = instance->byte_limit};
    return TANDEM_OK;
no_memory:
    tandem_arena_free(&c->arena);
    return tandem_error_set(error, TANDEM_NO_MEMORY, "no memory for an instance of %d items",
                            instance->n_item);
}

/* --- Greedy --------------------------------------------------------------------------------------------- */

/* What a choice costs of the limits; of one limit alone in its own unit. */
static double price_of(const chain *c, int arc)
{
    const tandem_instance *const instance = c->instance;
    const double time = (double)c->time[arc + 1], bytes = (double)c->network.bytes[arc + 1];
    if (instance->byte_limit == UINT64_MAX) return time;
    if (instance->time_limit == INT64_MAX) return bytes;
    return time / fmax((double)instance->time_limit, 1) + bytes / fmax((double)instance->byte_limit, 1);
}

typedef struct greedy {
    const chain *chain;
    int *now;        /* [n_layer] arcs */
    int *best;       /* [n_layer] the arc to change to, −1 = none */
    double *merit;   /* [n_layer] harm avoided for the price of that */
    char *too_large; /* [n_arc] arcs that did not fit */
    int64_t time;    /* of `now` */
    uint64_t bytes;
} greedy;

static void rate(greedy *g, int l)
{
    const tandem_network *const network = &g->chain->network;
    g->best[l] = -1;
    for (int a = network->arc_start[l]; a < network->arc_start[l + 1]; a++) {
        const double avoided = network->arc[g->now[l]].sensitivity - network->arc[a].sensitivity;
        const double price = price_of(g->chain, a) - price_of(g->chain, g->now[l]);
        const double merit = price > 0 ? avoided / price : INFINITY;
        if (avoided <= 0 || g->too_large[a] || (g->best[l] >= 0 && merit <= g->merit[l])) continue;
        g->best[l] = a;
        g->merit[l] = merit;
    }
}

static void start(greedy *g)
{
    const tandem_network *const network = &g->chain->network;
    for (int l = 0; l < network->n_layer; l++) {
        g->now[l] = network->arc_start[l];
        for (int a = g->now[l]; a < network->arc_start[l + 1]; a++) {
            const double cheaper = price_of(g->chain, g->now[l]) - price_of(g->chain, a);
            if (cheaper > 0 ||
                (cheaper == 0 && network->arc[a].sensitivity < network->arc[g->now[l]].sensitivity))
                g->now[l] = a;
        }
        g->time += g->chain->time[g->now[l] + 1];
        g->bytes += network->bytes[g->now[l] + 1];
        rate(g, l);
    }
}

/* One change, or one choice less to change to; 0 where there is none. */
static int improve(greedy *g)
{
    const chain *const c = g->chain;
    int l = -1;
    for (int k = 0; k < c->network.n_layer; k++)
        if (g->best[k] >= 0 && (l < 0 || g->merit[k] > g->merit[l])) l = k;
    if (l < 0) return 0;
    const int64_t time = g->time - c->time[g->now[l] + 1] + c->time[g->best[l] + 1];
    const uint64_t bytes = g->bytes - c->network.bytes[g->now[l] + 1] + c->network.bytes[g->best[l] + 1];
    if (time <= c->limits.time_limit_ns && bytes <= c->limits.byte_limit) {
        g->time = time;
        g->bytes = bytes;
        g->now[l] = g->best[l];
    } else {
        g->too_large[g->best[l]] = 1;
    }
    rate(g, l);
    return 1;
}

/* --- Policies ------------------------------------------------------------------------------------------- */

static tandem_status solve_exact(tandem_solution *solution, chain *c, double time_limit_s,
                                 tandem_error *error)
{
    return tandem_solve_exact(solution, &c->network, &c->limits, INFINITY, 0, time_limit_s, error);
}

static tandem_status solve_bound(tandem_solution *solution, chain *c, double time_limit_s,
                                 tandem_error *error)
{
    (void)time_limit_s; /* some milliseconds */
    return tandem_solve_lagrange(solution, NULL, &c->network, &c->limits, error);
}

static tandem_status solve_greedy(tandem_solution *solution, chain *c, double time_limit_s,
                                  tandem_error *error)
{
    const tandem_network *const network = &c->network;
    const size_t n = (size_t)network->n_layer;
    greedy g = {.chain = c,
                .now = tandem_arena_array(&c->arena, n, sizeof *g.now),
                .best = tandem_arena_array(&c->arena, n, sizeof *g.best),
                .merit = tandem_arena_array(&c->arena, n, sizeof *g.merit),
                .too_large = tandem_arena_array(&c->arena, (size_t)network->n_bundle, 1)};
    if (!g.now || !g.best || !g.merit || !g.too_large)
        return tandem_error_set(error, TANDEM_NO_MEMORY, "no memory to choose for %zu groups", n);
    const tandem_status status = solve_bound(solution, c, time_limit_s, error);
    if (status != TANDEM_OK) return status;
    start(&g);
    solution->sensitivity = INFINITY;
    if (g.time > c->limits.time_limit_ns || g.bytes > c->limits.byte_limit) return TANDEM_OK;
    while (improve(&g)) continue;
    solution->sensitivity = 0;
    solution->time_ns = g.time;
    solution->bytes = g.bytes;
    for (int l = 0; l < network->n_layer; l++) {
        solution->choice[l] = network->arc[g.now[l]].choice;
        solution->sensitivity += network->arc[g.now[l]].sensitivity;
    }
    solution->lower_bound = fmin(solution->lower_bound, solution->sensitivity);
    return TANDEM_OK;
}

static const tandem_instance_policy policies[] = {
    {"exact", "the least harm, proven"},
    {"greedy", "from the fastest, most harm avoided for each ns first"},
    {"bound", "the bound of a linear program, and the best choices met on the way"},
};
static tandem_status (*const solve[])(tandem_solution *, chain *, double,
                                      tandem_error *) = {solve_exact, solve_greedy, solve_bound};
enum { N_POLICY = sizeof policies / sizeof *policies };
_Static_assert(sizeof solve / sizeof *solve == N_POLICY, "a function for each policy");

const tandem_instance_policy *tandem_instance_policy_get(int index)
{
    return index >= 0 && index < (int)N_POLICY ? &policies[index] : NULL;
}

static tandem_status find_policy(int *found, const char *name, tandem_error *error)
{
    const char *names[N_POLICY];
    for (int p = 0; p < (int)N_POLICY; p++) {
        names[p] = policies[p].name;
        if (name && strcmp(names[p], name) != 0) continue;
        *found = p;
        return TANDEM_OK;
    }
    return tandem_error_set(error, TANDEM_UNKNOWN_NAME,
                            "no policy '%.64s' for an instance.%s There are: exact, greedy, bound", name,
                            tandem_nearest_hint(name, names, N_POLICY).text);
}

/* --- The answer ----------------------------------------------------------------------------------------- */

static double ns_of(const tandem_instance *instance, double time)
{
    double power = 1;
    for (int d = 0; d < instance->decimals; d++) power *= 10;
    return time / power;
}

/* Why there is no answer: what is the least that each limit could be. */
static tandem_status refuse(const chain *c, int none_exists, tandem_error *error)
{
    const tandem_limits *const limits = &c->limits;
    double time = 0, least_bytes = 0;
    char about_time[96] = "", about_bytes[96] = "";
    tandem_status status = tandem_solve_shortest(&time, NULL, &c->network, limits, 0, 1, 0, error);
    if (status == TANDEM_OK)
        status = tandem_solve_shortest(&least_bytes, NULL, &c->network, limits, 0, 0, 1, error);
    if (status != TANDEM_OK) return status;
    if (limits->time_limit_ns != INT64_MAX)
        (void)snprintf(about_time, sizeof about_time, " The least time is %.15g ns, the limit %.15g ns.",
                       ns_of(c->instance, time), c->instance->time_limit_ns);
    if (limits->byte_limit != UINT64_MAX)
        (void)snprintf(about_bytes, sizeof about_bytes, " The fewest bytes are %.16g, the limit %" PRIu64 ".",
                       least_bytes, limits->byte_limit);
    const int each = time <= (double)limits->time_limit_ns && least_bytes <= (double)limits->byte_limit;
    return tandem_error_set(
        error, TANDEM_NO_FIT, "%s.%s%s%s",
        none_exists ? "no choices keep the limits"
                    : "no choices within the limits were found; that there are none is not proven",
        about_time, about_bytes, each && none_exists ? " Each limit can be kept, but not both at once." : "");
}

static void report(tandem_instance_answer *answer, const tandem_solution *solution, const chain *c,
                   const char *proof)
{
    const tandem_instance *const instance = c->instance;
    for (int i = 0; answer->choice && i < instance->n_item; i++)
        answer->choice[i] = solution->choice[instance->item[i].group];
    answer->sensitivity = solution->sensitivity;
    answer->time_ns = ns_of(instance, (double)solution->time_ns);
    answer->bytes = solution->bytes;
    answer->lower_bound = solution->lower_bound;
    answer->gap = solution->sensitivity > 0
                      ? (solution->sensitivity - solution->lower_bound) / solution->sensitivity
                      : 0;
    (void)snprintf(answer->proof, sizeof answer->proof, "%s", proof);
}

tandem_status tandem_instance_solve(tandem_instance_answer *answer, const tandem_instance *instance,
                                    const char *policy, double time_limit_s, tandem_error *error)
{
    chain c;
    int p = 0;
    tandem_solution solution = {0};
    tandem_status status = find_policy(&p, policy, error);
    if (status == TANDEM_OK) status = open_chain(&c, instance, error);
    if (status != TANDEM_OK) return status;
    solution.choice = tandem_arena_array(&c.arena, (size_t)instance->n_group, sizeof *solution.choice);
    if (!solution.choice)
        status = tandem_error_set(error, TANDEM_NO_MEMORY, "no memory for %d choices", instance->n_group);
    if (status == TANDEM_OK) status = solve[p](&solution, &c, tandem_allowed_seconds(time_limit_s), error);
    if (status == TANDEM_OK && !(solution.sensitivity < INFINITY))
        status = refuse(&c, isinf(solution.lower_bound), error);
    if (status == TANDEM_OK) report(answer, &solution, &c, p == 0 ? "labels" : "lagrangian");
    tandem_arena_free(&c.arena);
    return status;
}
