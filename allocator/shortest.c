/* shortest.c: shortest ways without limits, and the layout that the solvers with limits pass over. */
#include "allocator/ways.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double most_sum = 0x1p53; /* whole numbers below it are exact in doubles */
static const double most_single_harm = 1e200;

/* --- Without limits ------------------------------------------------------------------------------------- */

tandem_status tandem_solve_shortest(double *value, int *choice, const tandem_network *network,
                                    const tandem_limits *limits, double harm_weight, double time_weight,
                                    double byte_weight, tandem_error *error)
{
    const int end = network->state_start[network->n_layer + 1] - 1;
    double *const potential = malloc(((size_t)end + 1) * sizeof *potential);
    int *const next = calloc((size_t)end + 1, sizeof *next);
    tandem_status status = TANDEM_OK;
    if (!potential || !next) {
        status = tandem_error_set(error, TANDEM_NO_MEMORY, "no memory for a way through %d states", end + 1);
        goto out;
    }
    const uint64_t *const bytes = limits->bytes;
    potential[end] = 0;
    for (int s = end - 1; s >= 0; s--) {
        potential[s] = INFINITY;
        for (int a = network->arc_start[s]; a < network->arc_start[s + 1]; a++) {
            const tandem_arc *const arc = &network->arc[a];
            if (!(arc->sensitivity >= 0 && arc->sensitivity <= most_single_harm)) continue;
            const double through =
                harm_weight * arc->sensitivity + time_weight * (double)limits->time_ns[arc->bundle] +
                (bytes ? byte_weight * (double)bytes[arc->bundle] : 0) + potential[arc->to];
            if (through < potential[s]) {
                potential[s] = through;
                next[s] = a;
            }
        }
    }
    *value = potential[0] + time_weight * (double)limits->time_ns[0] +
             (bytes ? byte_weight * (double)bytes[0] : 0);
    for (int l = 0, s = 0; choice && l < network->n_layer && potential[0] < INFINITY; l++) {
        choice[l] = network->arc[next[s]].choice;
        s = network->arc[next[s]].to;
    }
out:
    free(next);
    free(potential);
    return status;
}

/* --- The layout ----------------------------------------------------------------------------------------- */

static double price(const tandem_limits *limits, int kind, int bundle)
{
    return kind == 0 ? (double)limits->time_ns[bundle] : (double)limits->bytes[bundle];
}

/* What arcs may spend of a limit. A long double holds both types. */
static long double room_of(const tandem_limits *limits, int kind)
{
    if (kind == 0) return (long double)limits->time_limit_ns - (long double)limits->time_ns[0];
    return (long double)limits->byte_limit - (long double)limits->bytes[0];
}

static void copy_arcs(tandem_ways *ways)
{
    const tandem_network *const network = ways->network;
    int n = 0;
    for (int s = 0; s < ways->n_state; s++) {
        const int begin = network->arc_start[s], end = network->arc_start[s + 1];
        ways->arc_start[s] = n;
        for (int a = begin; a < end; a++) {
            const tandem_arc *const arc = &network->arc[a];
            if (!(arc->sensitivity >= 0 && arc->sensitivity <= most_single_harm)) continue;
            ways->to[n] = arc->to;
            ways->origin[n] = a;
            ways->sensitivity[n] = arc->sensitivity;
            for (int r = 0; r < TANDEM_WAYS_COSTS; r++)
                ways->cost[r][n] =
                    r < ways->n_cost ? price(ways->limits, ways->cost_kind[r], arc->bundle) : 0;
            n++;
        }
    }
    ways->arc_start[ways->n_state] = n;
    ways->n_arc = n;
}

/* The largest sum over the layers of what an arc may have; of absolute values. */
static double most_of(const tandem_ways *ways, const double *of)
{
    double sum = 0;
    for (int l = 0; l < ways->n_layer; l++) {
        double most = 0;
        for (int a = ways->arc_start[ways->layer_start[l]]; a < ways->arc_start[ways->layer_start[l + 1]];
             a++)
            most = fabs(of[a]) > most ? fabs(of[a]) : most;
        sum += most;
    }
    return sum;
}

/* The least and the most that ways cost from each state on; INFINITY and −INFINITY where there is none. */
static void find_extremes(const tandem_ways *ways, const double *cost, double *least, double *most)
{
    for (int s = ways->n_state - 1; s >= 0; s--) {
        least[s] = s == ways->n_state - 1 ? 0 : INFINITY;
        most[s] = s == ways->n_state - 1 ? 0 : -INFINITY;
        for (int a = ways->arc_start[s]; a < ways->arc_start[s + 1]; a++) {
            least[s] = tandem_lesser(least[s], cost[a] + least[ways->to[a]]);
            most[s] = -tandem_lesser(-most[s], -cost[a] - most[ways->to[a]]);
        }
    }
}

/* Takes from each arc what is needed anyway; marks arcs that no way within the limit has. */
static void reduce_cost(const tandem_ways *ways, int r, const double *least, double *reach,
                        unsigned char *drop)
{
    double *const cost = ways->cost[r];
    for (int s = 0; s < ways->n_state; s++) reach[s] = s == 0 ? 0 : INFINITY;
    for (int s = 0; s < ways->n_state; s++)
        for (int a = ways->arc_start[s]; a < ways->arc_start[s + 1]; a++) {
            const int to = ways->to[a];
            if (!(reach[s] < INFINITY && least[to] < INFINITY)) {
                drop[a] = 1;
                continue;
            }
            cost[a] += least[to] - least[s];
            if (reach[s] + cost[a] > ways->slack[r])
                drop[a] = 1;
            else
                reach[to] = tandem_lesser(reach[to], reach[s] + cost[a]);
        }
}

/* A limit that every way keeps is none: the cost behind it moves up. */
static void forget_cost(tandem_ways *ways, int r)
{
    double *const unused = ways->cost[r];
    for (int k = r; k + 1 < TANDEM_WAYS_COSTS; k++) {
        ways->cost[k] = ways->cost[k + 1];
        ways->cost_kind[k] = ways->cost_kind[k + 1];
    }
    ways->cost[TANDEM_WAYS_COSTS - 1] = unused;
    memset(unused, 0, (size_t)ways->n_arc * sizeof *unused);
    ways->n_cost--;
}

static tandem_status bind_limits(tandem_ways *ways, double *least, double *most, unsigned char *drop,
                                 tandem_error *error)
{
    for (int r = 0; r < ways->n_cost;) {
        const int kind = ways->cost_kind[r];
        if (most_of(ways, ways->cost[r]) >= most_sum)
            return tandem_error_set(error, TANDEM_MALFORMED,
                                    "the %s of a plan may come to 2^53 or more, got up to %.3g; use a larger "
                                    "unit",
                                    kind == 0 ? "time" : "bytes", most_of(ways, ways->cost[r]));
        find_extremes(ways, ways->cost[r], least, most);
        const long double room = room_of(ways->limits, kind);
        if (least[0] > room) ways->possible = 0; /* also where there is no way at all */
        if (most[0] <= room || !ways->possible) {
            forget_cost(ways, r);
            continue;
        }
        ways->slack[r] = (double)(room - (long double)least[0]);
        reduce_cost(ways, r, least, most, drop);
        r++;
    }
    return TANDEM_OK;
}

void tandem_ways_close(tandem_ways *ways)
{
    for (int r = 0; r < TANDEM_WAYS_COSTS; r++) free(ways->cost[r]);
    free(ways->sensitivity);
    free(ways->number);
    free(ways->origin);
    free(ways->to);
    free(ways->arc_start);
    free(ways->layer_start);
    *ways = (tandem_ways){0};
}

static int allocate(tandem_ways *ways, size_t n_arc)
{
    const size_t n_state = (size_t)ways->n_state, n_layer = (size_t)ways->n_layer;
    ways->layer_start = malloc((n_layer + 2) * sizeof *ways->layer_start);
    ways->arc_start = malloc((n_state + 1) * sizeof *ways->arc_start);
    ways->number = calloc(n_state, sizeof *ways->number);
    ways->to = malloc((n_arc + 1) * sizeof *ways->to);
    ways->origin = malloc((n_arc + 1) * sizeof *ways->origin);
    ways->sensitivity = malloc((n_arc + 1) * sizeof *ways->sensitivity);
    for (int r = 0; r < TANDEM_WAYS_COSTS; r++) ways->cost[r] = malloc((n_arc + 1) * sizeof *ways->cost[r]);
    return ways->layer_start && ways->arc_start && ways->number && ways->to && ways->origin &&
           ways->sensitivity && ways->cost[0] && ways->cost[1];
}

tandem_status tandem_ways_open(tandem_ways *ways, const tandem_network *network, const tandem_limits *limits,
                               tandem_error *error)
{
    const int n_layer = network->n_layer, n_state = network->state_start[n_layer + 1];
    const size_t n_arc = (size_t)network->arc_start[n_state];
    tandem_status status = TANDEM_OK;
    *ways = (tandem_ways){
        .network = network, .limits = limits, .n_layer = n_layer, .n_state = n_state, .possible = 1};
    double *const least = calloc(2 * (size_t)n_state, sizeof *least);
    unsigned char *const drop = calloc(n_arc + 1, 1);
    if (!allocate(ways, n_arc) || !least || !drop) {
        status = tandem_error_set(error, TANDEM_NO_MEMORY,
                                  "no memory for ways through %d states and %zu arcs", n_state, n_arc);
        goto out;
    }
    memcpy(ways->layer_start, network->state_start, ((size_t)n_layer + 2) * sizeof *ways->layer_start);
    if (limits->time_limit_ns != INT64_MAX) ways->cost_kind[ways->n_cost++] = 0;
    if (limits->bytes && limits->byte_limit != UINT64_MAX) ways->cost_kind[ways->n_cost++] = 1;
    copy_arcs(ways);
    status = bind_limits(ways, least, least + n_state, drop, error);
    if (status != TANDEM_OK) goto out;
    if (!ways->possible) memset(drop, 1, (size_t)ways->n_arc);
    tandem_ways_reduce(ways, drop);
    ways->most_harm = most_of(ways, ways->sensitivity) * (1 + (n_layer + 2) * DBL_EPSILON);
    /* n sums of h + λc + μc, each rounded four times, and one more sum over what came before */
    ways->keep = 1 - (6 * n_layer + 32) * (DBL_EPSILON / 2);
out:
    free(drop);
    free(least);
    if (status != TANDEM_OK) tandem_ways_close(ways);
    return status;
}

/* Marks in number[] the states that some way takes; drops the arcs that none does. */
static void mark_taken(const tandem_ways *ways, unsigned char *drop)
{
    int *const taken = ways->number;
    for (int s = 0; s < ways->n_state; s++) taken[s] = s == 0;
    for (int s = 0; s < ways->n_state; s++)
        for (int a = ways->arc_start[s]; a < ways->arc_start[s + 1]; a++) {
            if (!taken[s])
                drop[a] = 1;
            else if (!drop[a])
                taken[ways->to[a]] = 1;
        }
    for (int s = ways->n_state - 2; s >= 0; s--) {
        int leads_on = 0;
        for (int a = ways->arc_start[s]; a < ways->arc_start[s + 1]; a++) {
            if (!taken[ways->to[a]]) drop[a] = 1;
            leads_on |= !drop[a];
        }
        if (!leads_on) taken[s] = 0;
    }
}

void tandem_ways_reduce(tandem_ways *ways, unsigned char *drop)
{
    int n_state = 0, n_arc = 0;
    mark_taken(ways, drop);
    if (!ways->number[0] || !ways->number[ways->n_state - 1]) {
        ways->possible = ways->n_arc = 0;
        return;
    }
    for (int l = 0; l <= ways->n_layer; l++) {
        const int begin = ways->layer_start[l], end = ways->layer_start[l + 1];
        ways->layer_start[l] = n_state;
        for (int s = begin; s < end; s++) ways->number[s] = ways->number[s] ? n_state++ : -1;
    }
    ways->layer_start[ways->n_layer + 1] = n_state;
    for (int s = 0; s < ways->n_state; s++) {
        if (ways->number[s] < 0) continue;
        const int begin = ways->arc_start[s], end = ways->arc_start[s + 1];
        ways->arc_start[ways->number[s]] = n_arc;
        for (int a = begin; a < end; a++) {
            if (drop[a]) continue;
            ways->to[n_arc] = ways->number[ways->to[a]];
            ways->origin[n_arc] = ways->origin[a];
            ways->sensitivity[n_arc] = ways->sensitivity[a];
            for (int r = 0; r < TANDEM_WAYS_COSTS; r++) ways->cost[r][n_arc] = ways->cost[r][a];
            n_arc++;
        }
    }
    ways->arc_start[n_state] = n_arc;
    ways->n_state = n_state;
    ways->n_arc = n_arc;
}

void tandem_ways_pass(const tandem_ways *ways, const double multiplier[TANDEM_WAYS_COSTS], double *potential,
                      int *next)
{
    const double *const harm = ways->sensitivity, *const c0 = ways->cost[0], *const c1 = ways->cost[1];
    const double m0 = multiplier[0], m1 = multiplier[1];
    const int *const to = ways->to;
    potential[ways->n_state - 1] = 0;
    next[ways->n_state - 1] = -1;
    for (int s = ways->n_state - 2; s >= 0; s--) {
        const int end = ways->arc_start[s + 1];
        double least = INFINITY;
        int first = -1;
        if (ways->n_cost < 2) {
            for (int a = ways->arc_start[s]; a < end; a++) {
                const double through = harm[a] + m0 * c0[a] + potential[to[a]];
                first = through < least ? a : first;
                least = through < least ? through : least;
            }
        } else {
            for (int a = ways->arc_start[s]; a < end; a++) {
                const double through = harm[a] + (m0 * c0[a] + m1 * c1[a]) + potential[to[a]];
                first = through < least ? a : first;
                least = through < least ? through : least;
            }
        }
        potential[s] = least;
        next[s] = first;
    }
}

/* --- The best way found so far -------------------------------------------------------------------------- */

void tandem_best_offer(tandem_best *best, const tandem_ways *ways, const int *arc)
{
    const tandem_network *const network = ways->network;
    const tandem_limits *const limits = ways->limits;
    double harm = 0;
    int64_t time_ns = limits->time_ns[0];
    uint64_t bytes = limits->bytes ? limits->bytes[0] : 0;
    for (int l = 0; l < ways->n_layer; l++) {
        const tandem_arc *const taken = &network->arc[arc[l]];
        harm += taken->sensitivity;
        time_ns += limits->time_ns[taken->bundle];
        if (limits->bytes) bytes += limits->bytes[taken->bundle];
    }
    if (time_ns > limits->time_limit_ns || bytes > limits->byte_limit || harm >= best->sensitivity) return;
    best->sensitivity = harm;
    if (ways->n_layer) memcpy(best->arc, arc, (size_t)ways->n_layer * sizeof *arc);
}

void tandem_best_report(const tandem_best *best, const tandem_network *network, const tandem_limits *limits,
                        tandem_solution *solution)
{
    solution->sensitivity = best->sensitivity;
    solution->time_ns = 0;
    solution->bytes = 0;
    if (!(best->sensitivity < INFINITY)) return;
    solution->time_ns = limits->time_ns[0];
    if (limits->bytes) solution->bytes = limits->bytes[0];
    for (int l = 0; l < network->n_layer; l++) {
        const tandem_arc *const taken = &network->arc[best->arc[l]];
        solution->time_ns += limits->time_ns[taken->bundle];
        if (limits->bytes) solution->bytes += limits->bytes[taken->bundle];
        if (solution->choice) solution->choice[l] = taken->choice;
    }
}
