/* ways.h: a network laid out for passes under given limits: what the solvers of solve.h share; private to
 * them.
 *
 * Costs are time and bytes, those of them whose limit can bind. They are reduced: from each arc's cost the
 * least that any way through its start needs from there is taken, and what is needed behind it is added; so
 * costs are ≥ 0, a way's costs are what it spends beyond the least, and `slack` is what it may spend. All are
 * whole numbers below 2^53, so sums of them are exact in doubles. Arcs that no way within a limit can take
 * are left out, and so are states that none reaches. */
#ifndef TANDEM_ALLOCATOR_WAYS_H
#define TANDEM_ALLOCATOR_WAYS_H

#include <math.h>

#include "allocator/solve.h"

enum { TANDEM_WAYS_COSTS = 2 };

/* fmin without a call of the library: a pass has millions of them. */
static inline double tandem_lesser(double a, double b) { return a < b ? a : b; }

typedef struct tandem_ways {
    const tandem_network *network;
    const tandem_limits *limits;
    int n_layer, n_state, n_arc;
    int possible;                     /* 0: no way keeps each limit for itself; there are no arcs then */
    int n_cost;                       /* limits that can bind */
    int cost_kind[TANDEM_WAYS_COSTS]; /* 0: time, 1: bytes */
    int *layer_start;                 /* [n_layer + 2] as tandem_network.state_start */
    int *arc_start;                   /* [n_state + 1] */
    int *to, *origin;                 /* [n_arc]; origin: number of the arc in the network */
    int *number;                      /* [n_state] room for tandem_ways_reduce */
    double *sensitivity;              /* [n_arc] */
    double *cost[TANDEM_WAYS_COSTS];  /* [n_arc]; all 0 from n_cost on */
    double slack[TANDEM_WAYS_COSTS];
    double most_harm; /* no way has more */
    double keep;      /* 1 − what rounding may add to a sum of harms and multiplied costs, relatively */
} tandem_ways;

/* `ways` need not be initialised; after an error there is nothing to close. */
tandem_status tandem_ways_open(tandem_ways *ways, const tandem_network *network, const tandem_limits *limits,
                               tandem_error *error);
void tandem_ways_close(tandem_ways *ways); /* an all-zero one is fine */
/* Leaves out the arcs with drop[arc] ≠ 0, and what no way takes any more. drop is overwritten. */
void tandem_ways_reduce(tandem_ways *ways, unsigned char *drop);

/* potential[n_state]: the least Σ (harm + multiplier · cost) from a state to the end; next[n_state]: its
 * first arc, the lowest of equal ones, −1 at the end. */
void tandem_ways_pass(const tandem_ways *ways, const double multiplier[TANDEM_WAYS_COSTS], double *potential,
                      int *next);

/* The best way found so far. */
typedef struct tandem_best {
    double sensitivity; /* INFINITY: none */
    int *arc;           /* [n_layer] numbers of the network */
} tandem_best;
/* Takes arc[n_layer] (numbers of the network) for the best where it is within the limits and better. */
void tandem_best_offer(tandem_best *best, const tandem_ways *ways, const int *arc);
/* Fills in harm, time_ns, bytes and choice. */
void tandem_best_report(const tandem_best *best, const tandem_network *network, const tandem_limits *limits,
                        tandem_solution *solution);

/* tandem_ways_dual: the best multipliers, see tandem_solve_lagrange; ways met are offered to `best`. *bound:
 * INFINITY: there is no way within the limits. *passes is increased. */
tandem_status tandem_ways_dual(const tandem_ways *ways, double multiplier[TANDEM_WAYS_COSTS], double *bound,
                               tandem_best *best, int64_t *passes, tandem_error *error);

/* --- Bounds of what is still to come -------------------------------------------------------------------- */

/* Several multipliers at once: a state deep in the network, or a way that has spent more than others, has
 * other best ones than the whole. Arrays of [n_state × TANDEM_COMPLETION_SETS] are row-major. */
enum { TANDEM_COMPLETION_SETS = 8 };
typedef struct tandem_completion {
    double multiplier[TANDEM_COMPLETION_SETS][TANDEM_WAYS_COSTS];
    double *potential;   /* least Σ (harm + multiplier · cost) to the end, rounding taken off */
    int *next;           /* the first arc of that way, −1 at the end */
    double *sensitivity; /* of that way */
    double *spent[TANDEM_WAYS_COSTS]; /* by that way */
    double *least[TANDEM_WAYS_COSTS]; /* [n_state] least cost to the end */
    double *reach;                    /* [n_state × (sets + costs)] room for tandem_completion_prune */
} tandem_completion;

/* Around the multipliers of the dual. Filled. An all-zero one may be closed; after an error there is nothing
 * to close. */
tandem_status tandem_completion_open(tandem_completion *completion, const tandem_ways *ways,
                                     const double multiplier[TANDEM_WAYS_COSTS], tandem_error *error);
void tandem_completion_close(tandem_completion *completion);
/* Anew, after the ways were reduced or with other multipliers of the dual. */
void tandem_completion_fill(tandem_completion *completion, const tandem_ways *ways,
                            const double multiplier[TANDEM_WAYS_COSTS]);
/* Leaves out of the ways, and of the completion, what no way within the limits with less harm than `target`
 * takes. drop[n_arc]: room. */
void tandem_completion_prune(tandem_completion *completion, tandem_ways *ways, double target,
                             unsigned char *drop);

/* No way within the limits that comes to state s with this harm, having spent so much, has less harm;
 * INFINITY: none is within the limits. */
static inline double tandem_completion_bound(const tandem_completion *completion, const tandem_ways *ways,
                                             int s, double harm, const double spent[TANDEM_WAYS_COSTS])
{
    const double *const potential = &completion->potential[(size_t)s * TANDEM_COMPLETION_SETS];
    const double left0 = ways->slack[0] - spent[0], left1 = ways->slack[1] - spent[1];
    /* what rounding adds to it is less than `keep` takes where the sum is positive, and only then it counts
     * */
    double most = 0;
    if (left0 < completion->least[0][s] || left1 < completion->least[1][s]) return INFINITY;
    for (int k = 0; k < TANDEM_COMPLETION_SETS; k++) {
        const double *const multiplier = completion->multiplier[k];
        const double rest = potential[k] - (multiplier[0] * left0 + multiplier[1] * left1);
        most = rest > most ? rest : most;
    }
    return harm * ways->keep + most;
}

#endif
