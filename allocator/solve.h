/* solve.h: shortest ways through a network under limits; private to allocator/.
 *
 * Each solver minimises harm subject to Σ time ≤ time_limit_ns and Σ bytes ≤ byte_limit. Harm of a bundle-0 task is 0. */
#ifndef TANDEM_ALLOCATOR_SOLVE_H
#define TANDEM_ALLOCATOR_SOLVE_H

#include "allocator/network.h"

typedef struct tandem_limits {
    const int64_t *time_ns; /* [n_bundle] */
    int64_t time_limit_ns;  /* INT64_MAX = none */
    const uint64_t *bytes;  /* [n_bundle]; NULL = 0 everywhere */
    uint64_t byte_limit;    /* UINT64_MAX = none */
} tandem_limits;

typedef struct tandem_solution {
    double lower_bound; /* no way within the limits has less harm; INFINITY: there is none at all */
    double harm;        /* of the best way found; INFINITY: none was found */
    int *choice;        /* [n_layer], the caller's; filled where one was found */
    int proven;         /* harm is the least there is (to within the tolerance asked for) */
    int64_t labels;     /* work done */
} tandem_solution;

/* tandem_solve_shortest: the way with the least Σ (harm_weight·harm + time_weight·time_ns + byte_weight·bytes), whatever
 * the limits. *value: that sum, bundle 0 included. choice[n_layer] may be NULL. Cost: O(arcs). TANDEM_NO_MEMORY. */
tandem_status tandem_solve_shortest(double *value, int *choice, const tandem_network *network,
                                    const tandem_limits *limits, double harm_weight, double time_weight,
                                    double byte_weight, tandem_error *error);

/* tandem_solve_lagrange: lower bound by Lagrangian relaxation of both limits: max over λ, μ ≥ 0 of the least
 * (harm + λ(time − limit) + μ(bytes − limit)), with the best way within the limits that was met on the way.
 * multiplier[2]: λ (1/ns), μ (1/byte) of the bound; may be NULL. The bound is that of a linear program over the ways:
 * source: Geoffrion, Math. Programming Study 2 (1974). Cost: some tens of shortest ways. TANDEM_NO_MEMORY. */
tandem_status tandem_solve_lagrange(tandem_solution *solution, double multiplier[2], const tandem_network *network,
                                    const tandem_limits *limits, tandem_error *error);

/* tandem_solve_exact: the least harm within the limits, by labels with dominance, pruned by Lagrangian bounds of what is
 * still to come. A way is not looked for where it could not be better than `cutoff` (INFINITY = none) or better than the best
 * found by more than `tolerance` (relative, 0 = prove the optimum): lower_bound says what then holds. Stops after
 * `most_seconds`, with the best found and the bound proven so far. Cost: labels × log. TANDEM_NO_MEMORY. */
tandem_status tandem_solve_exact(tandem_solution *solution, const tandem_network *network,
                                 const tandem_limits *limits, double cutoff, double tolerance, double most_seconds,
                                 tandem_error *error);

/* Ways within the limits in order of harm, best first, *without* dominance: for whoever has to test each one against
 * something that is not a sum. Two ways of equal harm come in order of their choices. */
typedef struct tandem_enumeration tandem_enumeration;
tandem_status tandem_enumeration_open(tandem_enumeration **enumeration, const tandem_network *network,
                                      const tandem_limits *limits, tandem_error *error);
void tandem_enumeration_close(tandem_enumeration *enumeration); /* NULL is fine */
/* *harm = INFINITY: there are no more; else choice[n_layer] is the next way. bound (may be NULL): no way that is still to
 * come has less harm; also where this call gave up after `most_labels` (TANDEM_OK, *harm = NAN). TANDEM_NO_MEMORY. */
tandem_status tandem_enumeration_next(tandem_enumeration *enumeration, double *harm, int *choice, double *bound,
                                      int64_t most_labels, tandem_error *error);

#endif
