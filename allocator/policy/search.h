/* search.h: trying changes of one class's precisions and taking them back; private to allocator/.
 *
 * A move gives one precision to a few operators at once: to a single one, or to several whose costs hang
 * together because they share a cast: those that read the same tensor (q, k and v of an attention), and a
 * producer with its consumers where only dependent operators (bias, relu, transpose …) lie between them.
 * Members that lack the precision keep theirs. */
#ifndef TANDEM_ALLOCATOR_SEARCH_H
#define TANDEM_ALLOCATOR_SEARCH_H

#include "tandem/advanced/allocator.h"

/* The figures of a plan that the search goes by. */
typedef struct tandem_plan_metrics {
    int64_t step_ns, busy_ns; /* of the cluster; of the class */
    uint64_t excess_bytes;    /* of the class over its limit; 0 = it fits */
    double sensitivity;       /* of the class, not weighted by its share */
} tandem_plan_metrics;

typedef struct tandem_move {
    int first, n_op; /* place in tandem_search.move_op */
    tandem_precision precision;
    /* from its last measurement */
    int is_possible;      /* whether every cost is there, and something changes */
    int64_t evaluated_at; /* value of tandem_search.n_change then */
    tandem_plan_metrics after;
    double sensitivity_saved; /* harm before − harm after */
    int64_t busy_delta_ns;    /* that it keeps the class busy */
    double gain_per_cost;     /* the searcher's own */
} tandem_move;

typedef struct tandem_search {
    const tandem_allocation_problem *problem;
    int c; /* the class whose precisions change */
    int n_op;
    uint64_t limit_bytes; /* 0 = none */
    /* whether trials plan memory; else they are taken to fit */
    int should_plan_memory;
    uint64_t min_peak_bytes, max_peak_bytes; /* of all plans weighed */
    tandem_precision *current;               /* [n_op] what the replayer has */
    tandem_plan_metrics metrics;             /* of that */
    int64_t n_change;                        /* moves made */
    int64_t replays;
    unsigned *candidates; /* [n_op] bit p: moves give the operator precision p */
    int *move_op;         /* operators of moves, several moves to a list */
    tandem_move *move;    /* [n_move]: single operators in order, then groups; of each, widest first */
    int n_move;
    struct { /* what tandem_search_rollback goes back to */
        tandem_precision *current;
        tandem_plan_metrics metrics;
        int64_t n_change;
        tandem_move *move;
    } snapshot;
} tandem_search;

/* tandem_search_open: a search from the precisions that the replayer has now, which must be replayable. On
 * error there is nothing to close. */
tandem_status tandem_search_open(tandem_search *search, const tandem_allocation_problem *problem, int c,
                                 tandem_error *error);
void tandem_search_close(tandem_search *search);

/* tandem_search_evaluate: replay the plan with the move made, and take it back: the replayer is as it was. A
 * move that changes nothing, or needs a cost that was not measured, is no error, but not possible. */
tandem_status tandem_search_evaluate(tandem_search *search, tandem_move *move, tandem_error *error);
/* tandem_search_evaluate_all: the same for every move. */
tandem_status tandem_search_evaluate_all(tandem_search *search, tandem_error *error);
/* Makes a move whose measurement is up to date (evaluated_at = n_change). */
void tandem_search_apply(tandem_search *search, const tandem_move *move);

/* Keeps the plan and all measurements, and goes back to what was kept: no replay, as often as wanted. */
void tandem_search_snapshot(tandem_search *search);
void tandem_search_rollback(tandem_search *search);

/* tandem_search_set_plan: to another plan of the class, precision[n_op]. TANDEM_MISSING where a cost of it is
 * missing: the search is then where it was. */
tandem_status tandem_search_set_plan(tandem_search *search, const tandem_precision *precision,
                                     tandem_error *error);

/* Whether the limit is far above every plan weighed so far, or there is none: then trials need not be
 * weighed, only what comes of them. */
int tandem_search_has_ample_memory(const tandem_search *search);
/* Weighs the plan, and every trial from now on, where there is a limit. */
tandem_status tandem_search_enable_memory(tandem_search *search, tandem_error *error);

/* Bit p: operator and device both have precision p. */
unsigned tandem_search_precisions(const tandem_search *search, int op);
/* Whether two moves have an operator in common. */
int tandem_search_overlap(const tandem_search *search, const tandem_move *a, const tandem_move *b);

#endif
