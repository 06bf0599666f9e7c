/* mckp.h: bare allocation instances: items with a few choices each, of which each has a time, a harm and a
 * size; limits; and items that must choose alike. For those who have such figures from elsewhere: no model,
 * no store, no device.
 *
 * Its file, tandem.instance/1; times may have fractions, ties name items or give their numbers from 0, a
 * limit that is absent is none:
 *
 *   {"schema": "tandem.instance/1",
 *    "items": [{"name": "conv1", "choices": [{"name": "int8", "time_ns": 361891.11, "harm": 1.6e-3, "bytes":
 *    36864},
 *                                            {"name": "int4", "time_ns": 210944.04, "harm": 0.46, "bytes":
 *                                            18432}]}, …],
 *    "ties": [["conv1", "shortcut1"], [4, 7]],
 *    "limits": {"time_ns": 3100000, "bytes": 8000000}} */
#ifndef TANDEM_MCKP_H
#define TANDEM_MCKP_H

#include <stddef.h>
#include <stdint.h>

#include "tandem/status.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

enum { TANDEM_MCKP_MAX_ITEM = 10000, TANDEM_MCKP_MAX_CHOICE = 1000 };

typedef struct tandem_mckp_choice {
    char *name;
    double sensitivity; /* 0 … 1e100 */
    int64_t time;       /* in units of 10^-decimals ns */
    uint64_t bytes;     /* below 2^52, summed over the largest of every item */
} tandem_mckp_choice;

typedef struct tandem_mckp_item {
    char *name; /* no two alike */
    int n_choice;
    tandem_mckp_choice *choice;
    /* items of one group take the choice of the same number; groups are numbered by their first items */
    int group;
} tandem_mckp_item;

/* Times are whole numbers of a unit in which every time of the file is whole, so that sums are exact and a
 * limit that is just met is met. Where the sum of the longest choices comes to 2^52 such units, the unit is
 * as small as that allows and times are rounded to the nearest (`rounded`): to some 1e-15 of their sum. A
 * limit is rounded down, but to the nearest where it lies within the precision of its double from there. */
typedef struct tandem_mckp {
    int n_item, n_group;
    tandem_mckp_item *item;
    int decimals, rounded;
    int64_t time_limit;   /* in the same unit; INT64_MAX = none */
    double time_limit_ns; /* as given; INFINITY = none */
    uint64_t byte_limit;  /* UINT64_MAX = none */
} tandem_mckp;

/* tandem_mckp_parse: from the text of a file; `source` names it in errors. TANDEM_MALFORMED (line, or member,
 * and what), TANDEM_NO_MEMORY. *instance (new, the caller closes it) is unchanged on error. */
tandem_status tandem_mckp_parse(tandem_mckp **mckp, const char *bytes, size_t n, const char *source,
                                tandem_error *error);
/* tandem_mckp_read: the same from a file. TANDEM_IO besides. */
tandem_status tandem_mckp_read(tandem_mckp **mckp, const char *path, tandem_error *error);
void tandem_mckp_close(tandem_mckp *mckp); /* NULL is fine */

typedef struct tandem_mckp_answer {
    int *choice; /* [n_item], the caller's, set before the call; filled; NULL = not wanted */
    double sensitivity;
    double time_ns;
    uint64_t bytes;
    double lower_bound; /* no choices within the limits have less harm */
    double gap;         /* (harm − lower_bound) / harm; 0 where the harm is 0 */
    char proof[24];     /* of the lower bound: "labels", "lagrangian" */
} tandem_mckp_answer;

/* A way to solve instances. */
typedef struct tandem_mckp_policy {
    const char *name, *meaning;
} tandem_mckp_policy;
/* By number, the default first; NULL where there is none. */
const tandem_mckp_policy *tandem_mckp_policy_get(int index);

/* tandem_mckp_solve: by the policy named, NULL = the first:
 *   "exact"   the least harm, proven; where time_limit_s (0 = 10) or memory run out, the best found and what
 *             is proven
 *   "greedy"  from the fastest choices, always the change of one group that avoids most harm for each ns
 *             (each byte, where only bytes are limited; each part of its limit, where both are) and fits,
 *             until none does
 *   "bound"   the lower bound of a linear program, and the best choices met while it was solved
 * The bound of the last two is Lagrangian. TANDEM_INFEASIBLE where no choices keep the limits (says how
 * little time and how few bytes are possible), or the policy found none; TANDEM_UNKNOWN_NAME;
 * TANDEM_NO_MEMORY. *answer unchanged on error. */
tandem_status tandem_mckp_solve(tandem_mckp_answer *answer, const tandem_mckp *mckp, const char *policy,
                                double time_limit_s, tandem_error *error);

/* tandem_mckp_write: an answer as a file, tandem.choices/1: its figures, and of each item, by name and in
 * order, the name of its choice. path "-" = stdout; else the file is old or new, never half. answer->choice
 * is needed. TANDEM_IO, TANDEM_NO_MEMORY. */
tandem_status tandem_mckp_write(const tandem_mckp *mckp, const tandem_mckp_answer *answer, const char *path,
                                tandem_error *error);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
