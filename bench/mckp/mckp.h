/* mckp.h: the multiple-choice knapsack problem that policy exact solves, without a model, store or device:
 * one choice per item, within a limit on time and one on bytes; tied items take the choice of the same
 * number.
 *
 * The file, tandem.mckp/1. Times may have fractions. Ties name items or give their numbers from 0. An absent
 * limit is none:
 *
 *   {"schema": "tandem.mckp/1",
 *    "items": [{"name": "conv1",
 *               "choices": [{"name": "int8", "time_ns": 361891.11, "sensitivity": 1.6e-3, "bytes": 36864},
 *                           {"name": "int4", "time_ns": 210944.04, "sensitivity": 0.46, "bytes": 18432}]},
 *                           …],
 *    "ties": [["conv1", "shortcut1"], [4, 7]],
 *    "limits": {"time_ns": 3100000, "bytes": 8000000}} */
#ifndef TANDEM_BENCH_MCKP_H
#define TANDEM_BENCH_MCKP_H

#include <stddef.h>
#include <stdint.h>

#include "tandem/status.h"

enum { MCKP_MAX_ITEM = 10000, MCKP_MAX_CHOICE = 1000 };

typedef struct mckp_choice {
    char *name;
    double sensitivity; /* 0 … 1e100 */
    int64_t time;       /* in units of 10^-decimals ns */
    uint64_t bytes;     /* below 2^52, summed over the largest of every item */
} mckp_choice;

typedef struct mckp_item {
    char *name; /* unique */
    int n_choice;
    mckp_choice *choice;
    int group; /* of tied items; groups are numbered by their first items */
} mckp_item;

/* Times are whole numbers of a unit in which every time of the file is whole. So sums are exact, and a limit
 * that is just met is met. Where the longest choices sum to 2^52 units or more, the unit is the smallest that
 * keeps the sum below 2^52, and times are rounded to the nearest (`is_rounded`). A limit is rounded down, or
 * to the nearest unit where that lies within the precision of its double. */
typedef struct mckp {
    int n_item, n_group;
    mckp_item *item;
    int decimals, is_rounded;
    int64_t time_limit;   /* in the same unit; INT64_MAX = none */
    double time_limit_ns; /* as given; INFINITY = none */
    uint64_t byte_limit;  /* UINT64_MAX = none */
} mckp;

/* mckp_parse: from the text of a file; `source` names it in errors. TANDEM_MALFORMED (line or member, and
 * reason), TANDEM_NO_MEMORY. *problem (new, the caller closes it) is unchanged on error. */
tandem_status mckp_parse(mckp **problem, const char *bytes, size_t n, const char *source,
                         tandem_error *error);
void mckp_close(mckp *problem); /* NULL is fine */

typedef struct mckp_answer {
    int *choice; /* [n_item], the caller's, set before the call; filled; NULL = not wanted */
    double sensitivity, time_ns;
    uint64_t bytes;
    double lower_bound; /* of the sensitivity of all choices within the limits */
    double gap;         /* (sensitivity − lower_bound) / sensitivity; 0 where the sensitivity is 0 */
} mckp_answer;

/* mckp_solve: by a policy:
 *   "exact"   the smallest sensitivity, proven; within 10 s, else the best found and what is proven
 *   "greedy"  starts from the fastest choices; applies the largest sensitivity gain per ns that fits (per
 *             byte where only bytes are limited; per part of its limit where both are)
 *   "bound"   the lower bound of a linear program, and the best choices met while it was solved
 * The bound of the last two is Lagrangian. TANDEM_INFEASIBLE where no choices keep the limits, or the policy
 * found none: says the smallest time and bytes; TANDEM_UNKNOWN_NAME; TANDEM_NO_MEMORY. *answer unchanged on
 * error. */
tandem_status mckp_solve(mckp_answer *answer, const mckp *problem, const char *policy, tandem_error *error);

#endif
