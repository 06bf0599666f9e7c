/* search.h: local search over the precisions of one class: evaluates moves, applies them, and rolls back;
 * private to allocator/.
 *
 * A move gives one precision to one operator, or to several that share a cast: the readers of one tensor (q,
 * k and v of an attention), or a producer with its consumers where only dependent operators (bias, relu,
 * transpose …) lie between. Operators that lack the precision keep theirs. */
#pragma once

#include "tandem/advanced/allocator.h"

/* What the search compares plans by. */
typedef struct tandem_plan_metrics {
    int64_t step_ns, busy_ns; /* of the cluster; of the class */
    uint64_t excess_bytes;    /* of the class over its limit; 0 = it fits */
    int64_t sensitivity;      /* of the class */
} tandem_plan_metrics;

typedef struct tandem_move {
    int first, n_op; /* positions in tandem_search.move_op */
    tandem_precision precision;
    /* from its last evaluation */
    int is_possible;      /* every cost is known, and a precision changes */
    int64_t evaluated_at; /* tandem_search.n_change at that time */
    tandem_plan_metrics after;
    int64_t sensitivity_saved; /* sensitivity before − after */
    int64_t busy_delta_ns;     /* busy time of the class, after − before */
    double gain_per_cost;      /* of the policy */
} tandem_move;

typedef struct tandem_search {
    const tandem_allocation_problem *problem;
    int c; /* the class that it searches */
    int n_op;
    uint64_t limit_bytes; /* 0 = none */
    /* 0: trials count as fitting */
    int should_plan_memory;
    uint64_t min_peak_bytes, max_peak_bytes; /* of all plans with planned memory */
    tandem_precision *current;               /* [n_op] as in the replayer */
    tandem_plan_metrics metrics;             /* of the current plan */
    int64_t n_change;                        /* moves applied and plans set */
    int64_t replays;
    unsigned *candidates; /* [n_op] bit p: moves try precision p */
    int *move_op;         /* the operators of all moves; moves share lists */
    tandem_move *move;    /* [n_move]: single operators in order, then groups; of each, widest first */
    int n_move;
    struct { /* for tandem_search_rollback */
        tandem_precision *current;
        tandem_plan_metrics metrics;
        int64_t n_change;
        tandem_move *move;
    } snapshot;
} tandem_search;

/* tandem_search_open: begins at the replayer's precisions, which must have all their costs. On error there is
 * nothing to close. */
tandem_status tandem_search_open(tandem_search *search, const tandem_allocation_problem *problem, int c,
                                 tandem_error *error);
void tandem_search_close(tandem_search *search);

/* tandem_search_evaluate: replays the plan with the move applied, and takes the move back. A move that
 * changes nothing or lacks a cost is no error: its is_possible is 0. */
tandem_status tandem_search_evaluate(tandem_search *search, tandem_move *move, tandem_error *error);
/* The same for every move that is not up to date. */
tandem_status tandem_search_evaluate_all(tandem_search *search, tandem_error *error);
/* Applies a move whose evaluation is up to date (evaluated_at = n_change). */
void tandem_search_apply(tandem_search *search, const tandem_move *move);

/* Save the plan with all evaluations; go back to the saved one, without a replay, any number of times. */
void tandem_search_snapshot(tandem_search *search);
void tandem_search_rollback(tandem_search *search);

/* tandem_search_set_plan: goes to another plan of the class, precision[n_op]. TANDEM_MISSING: a cost is
 * missing, and the search stays where it was. */
tandem_status tandem_search_set_plan(tandem_search *search, const tandem_precision *precision,
                                     tandem_error *error);

/* Whether there is no limit, or it is far above all plans seen. Then only the result needs planned memory.
 * */
int tandem_search_has_ample_memory(const tandem_search *search);
/* Plans memory for the current plan and all later trials, if there is a limit. */
tandem_status tandem_search_enable_memory(tandem_search *search, tandem_error *error);

/* Whether two moves have an operator in common. */
int tandem_search_overlap(const tandem_search *search, const tandem_move *a, const tandem_move *b);
