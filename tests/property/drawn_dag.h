/* drawn_dag.h: plan DAGs drawn from a seed, small enough to walk all their paths. */
#ifndef TANDEM_TESTS_DRAWN_NETWORK_H
#define TANDEM_TESTS_DRAWN_NETWORK_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/bound/solve.h"
#include "base/philox.h"

enum { DRAWN_LAYERS = 7, DRAWN_STATES = 4, DRAWN_CHOICES = 4, DRAWN_PATHS = 16384 /* 4^7 */ };

typedef struct drawn_random {
    uint64_t seed;
    uint32_t n;
} drawn_random;

static inline double draw_dag(drawn_random *random)
{
    const uint32_t counter[4] = {random->n++, 0, 0, 99};
    return (double)tandem_philox_uniform(tandem_philox(counter, random->seed).word[0]);
}
static inline int draw_whole(drawn_random *random, int below)
{
    return (int)(draw_dag(random) * below) % below;
}

typedef struct drawn_dag {
    tandem_plan_dag plan_dag;
    tandem_limits limits;
    int op[DRAWN_LAYERS], state_start[DRAWN_LAYERS + 2], arc_start[DRAWN_LAYERS * DRAWN_STATES + 2];
    tandem_arc arc[DRAWN_LAYERS * DRAWN_STATES * DRAWN_CHOICES];
    int64_t time_ns[1 + DRAWN_LAYERS * DRAWN_CHOICES * 2];
    uint64_t bytes[1 + DRAWN_LAYERS * DRAWN_CHOICES * 2];
} drawn_dag;

typedef struct drawn_path {
    double sensitivity;
    int64_t time_ns;
    uint64_t bytes;
    int choice[DRAWN_LAYERS];
} drawn_path;

/* How sensitivities are drawn: over eleven orders of magnitude, few different ones, all of them none, or with
 * some that are never taken. */
typedef enum drawn_sensitivities {
    WIDE_SENSITIVITIES,
    TIED_SENSITIVITIES,
    NO_SENSITIVITIES,
    MISSING_SENSITIVITIES,
    N_DRAWN_SENSITIVITIES
} drawn_sensitivities;

static inline double draw_dag_sensitivity(drawn_random *random, drawn_sensitivities kind)
{
    const double wide = pow(10, -16 + 11 * draw_dag(random));
    switch (kind) {
    /* equal sums that differ by their rounding */
    case TIED_SENSITIVITIES: return draw_whole(random, 4) * 0.1;
    case NO_SENSITIVITIES: return 0;
    case MISSING_SENSITIVITIES:
        return draw_dag(random) < 0.2 ? (draw_dag(random) < 0.5 ? INFINITY : NAN) : wide;
    default: return draw_dag(random) < 0.2 ? 0 : wide;
    }
}

/* Task sets of a layer are 2 for each choice; task set 0 is what every path has. Some states have few arcs,
 * or none. */
static inline void drawn_dag_make(drawn_dag *d, uint64_t seed)
{
    drawn_random random = {.seed = seed};
    const drawn_sensitivities sensitivities = (drawn_sensitivities)(seed % N_DRAWN_SENSITIVITIES);
    const int n_layer = seed % 17 == 0 ? draw_whole(&random, 2) : 2 + draw_whole(&random, DRAWN_LAYERS - 1);
    const double max_ns = pow(10, 1 + 11 * draw_dag(&random)),
                 max_bytes = pow(10, 1 + 10 * draw_dag(&random));
    memset(d, 0, sizeof *d);
    for (int l = 0; l <= n_layer; l++)
        d->state_start[l + 1] =
            d->state_start[l] + (l == 0 || l == n_layer ? 1 : 1 + draw_whole(&random, DRAWN_STATES));
    int n_arc = 0;
    for (int l = 0; l < n_layer; l++) {
        d->op[l] = l;
        for (int s = d->state_start[l]; s < d->state_start[l + 1]; s++) {
            d->arc_start[s] = n_arc;
            for (int choice = 0; choice < DRAWN_CHOICES; choice++) {
                const int width = d->state_start[l + 2] - d->state_start[l + 1];
                tandem_arc *const arc = &d->arc[n_arc];
                arc->choice = choice;
                arc->to = d->state_start[l + 1] + draw_whole(&random, width);
                arc->task_set = 1 + 2 * (l * DRAWN_CHOICES + choice) + draw_whole(&random, 2);
                arc->sensitivity = draw_dag_sensitivity(&random, sensitivities);
                n_arc += draw_dag(&random) > (s == 0 ? 0.02 : 0.15);
            }
        }
    }
    for (int s = d->state_start[n_layer]; s <= d->state_start[n_layer + 1]; s++) d->arc_start[s] = n_arc;
    const int n_task_set = 1 + 2 * n_layer * DRAWN_CHOICES;
    for (int b = 0; b < n_task_set; b++) {
        d->time_ns[b] = (int64_t)(max_ns * draw_dag(&random) * draw_dag(&random));
        d->bytes[b] = (uint64_t)(max_bytes * draw_dag(&random));
    }
    d->plan_dag = (tandem_plan_dag){.n_layer = n_layer,
                                    .op = d->op,
                                    .state_start = d->state_start,
                                    .arc_start = d->arc_start,
                                    .arc = d->arc,
                                    .n_task_set = n_task_set};
    d->limits = (tandem_limits){
        .time_ns = d->time_ns, .time_limit_ns = INT64_MAX, .bytes = d->bytes, .byte_limit = UINT64_MAX};
}

/* All paths, whatever the limits, in the order of their choices; how many. */
static inline int drawn_dag_walk(const drawn_dag *d, drawn_path *path)
{
    const tandem_plan_dag *const plan_dag = &d->plan_dag;
    int n = 0, depth = 0, at[DRAWN_LAYERS + 1] = {d->arc_start[0]}, state[DRAWN_LAYERS + 1] = {0};
    drawn_path begun[DRAWN_LAYERS + 1] = {{.time_ns = d->time_ns[0], .bytes = d->bytes[0]}};
    while (depth >= 0) {
        if (depth == plan_dag->n_layer) {
            path[n++] = begun[depth--];
            continue;
        }
        if (at[depth] == d->arc_start[state[depth] + 1]) {
            depth--;
            continue;
        }
        const tandem_arc *const arc = &d->arc[at[depth]++];
        if (!(arc->sensitivity < INFINITY)) continue;
        drawn_path *const next = &begun[depth + 1];
        *next = begun[depth];
        next->sensitivity += arc->sensitivity;
        next->time_ns += d->time_ns[arc->task_set];
        next->bytes += d->bytes[arc->task_set];
        next->choice[depth++] = arc->choice;
        state[depth] = arc->to;
        at[depth] = d->arc_start[arc->to];
    }
    return n;
}

/* --- Chains too long for all their paths ---------------------------------------------------------------- */

enum { DRAWN_CHAIN_LAYERS = 60, DRAWN_CHAIN_CHOICES = 4, DRAWN_CHAIN_MAX_NS = 3000 };
typedef struct drawn_chain {
    tandem_plan_dag plan_dag;
    tandem_limits limits;
    int op[DRAWN_CHAIN_LAYERS], state_start[DRAWN_CHAIN_LAYERS + 2], arc_start[DRAWN_CHAIN_LAYERS + 2];
    tandem_arc arc[DRAWN_CHAIN_LAYERS * DRAWN_CHAIN_CHOICES];
    int64_t time_ns[1 + DRAWN_CHAIN_LAYERS * DRAWN_CHAIN_CHOICES];
} drawn_chain;

/* What a choice saves is nearly what it sensitivities: the hardest case, in which no choice is better than
 * another. */
static inline void drawn_chain_make(drawn_chain *c, uint64_t seed)
{
    drawn_random random = {.seed = seed};
    memset(c, 0, sizeof *c);
    for (int l = 0; l <= DRAWN_CHAIN_LAYERS + 1; l++) c->state_start[l] = l;
    for (int l = 0; l < DRAWN_CHAIN_LAYERS; l++) {
        c->arc_start[l] = l * DRAWN_CHAIN_CHOICES;
        for (int k = 0; k < DRAWN_CHAIN_CHOICES; k++) {
            const int a = l * DRAWN_CHAIN_CHOICES + k;
            c->time_ns[a + 1] = 1 + draw_whole(&random, DRAWN_CHAIN_MAX_NS / DRAWN_CHAIN_LAYERS);
            c->arc[a] = (tandem_arc){
                .to = l + 1,
                .task_set = a + 1,
                .choice = k,
                .sensitivity = (double)(DRAWN_CHAIN_MAX_NS / DRAWN_CHAIN_LAYERS + 1 - c->time_ns[a + 1]) +
                               1e-5 * draw_dag(&random)};
        }
    }
    c->arc_start[DRAWN_CHAIN_LAYERS] = c->arc_start[DRAWN_CHAIN_LAYERS + 1] =
        DRAWN_CHAIN_LAYERS * DRAWN_CHAIN_CHOICES;
    c->plan_dag = (tandem_plan_dag){.n_layer = DRAWN_CHAIN_LAYERS,
                                    .op = c->op,
                                    .state_start = c->state_start,
                                    .arc_start = c->arc_start,
                                    .arc = c->arc,
                                    .n_task_set = 1 + DRAWN_CHAIN_LAYERS * DRAWN_CHAIN_CHOICES};
    c->limits =
        (tandem_limits){.time_ns = c->time_ns,
                        .time_limit_ns = (int64_t)(DRAWN_CHAIN_MAX_NS * (0.2 + 0.4 * draw_dag(&random))),
                        .byte_limit = UINT64_MAX};
}

#endif
