/* advice.h: whether devices that are added to a cluster pay, and whether fewer would make more. */
#ifndef TANDEM_ADVICE_H
#define TANDEM_ADVICE_H

#include "tandem/planner.h"

TANDEM_BEGIN_DECLARATIONS

/* A cluster at its best plan. */
typedef struct tandem_candidate {
    tandem_cluster cluster; /* with the plan's batches */
    char name[256];         /* devices and ranks, cut to fit: "2*v100@2 + t4" */
    /* TANDEM_OK, or why there is no plan: TANDEM_MISSING, TANDEM_INFEASIBLE, TANDEM_USAGE (no such split) */
    tandem_error error;
    int64_t samples;      /* of a step of all ranks, micro-steps included */
    double rate;          /* what clusters are compared by; 0 without a plan */
    tandem_answer answer; /* without a planner; all zero without a plan */
} tandem_candidate;
void tandem_candidate_close(tandem_candidate *candidate); /* all zero is fine; all zero afterwards */

/* tandem_smaller_cluster_find: the cluster of an answer's plan without one of its classes that makes most,
 * where one makes more than the plan does: each by policy greedy, for the request's slowdown and without its
 * other limits. *smaller is all zero where none does. by_goodput: rates are goodput, else samples/s. The
 * caller closes *smaller. TANDEM_NO_MEMORY, errors of the store; outputs unchanged then. Cost: an allocation
 * for each class. */
tandem_status tandem_smaller_cluster_find(tandem_candidate *smaller, int *by_goodput,
                                          const tandem_allocation_request *request,
                                          const tandem_answer *answer, tandem_error *error);

/* Whether an answer holds across the 80 % intervals of predicted times. */
enum { TANDEM_MAX_SHIFT = 6 }; /* different devices; later ones keep their times */
typedef struct tandem_advice_interval {
    int n; /* predicted devices; 0: nothing rests on an interval */
    /* a predicted device, half of its interval over its times, and the factor on them with which the answer
     * is another one */
    struct tandem_time_shift {
        char device[TANDEM_DEVICE_NAME];
        double half, factor;
    } shift[TANDEM_MAX_SHIFT];
    int holds;
    int best; /* the best case with these factors; −1 = it holds */
} tandem_advice_interval;

/* The clusters that are compared; from TANDEM_CASE_SUBSET on, the current ranks with part of the new ones:
 * without one class of them, or with half of its ranks. */
typedef enum tandem_advice_case {
    TANDEM_CASE_CURRENT,
    TANDEM_CASE_NEW_ONLY,
    TANDEM_CASE_COMBINED,
    TANDEM_CASE_SUBSET
} tandem_advice_case;
typedef struct tandem_advice {
    tandem_candidate *candidate; /* [n] */
    int n, best;                 /* best: the case with the highest rate */
    int by_goodput;              /* rates are goodput; else samples/s: some plan's sensitivity is not known */
    int is_described;            /* no time was measured: the advice is a prediction */
    tandem_advice_interval interval;
    tandem_ratio_check ratios; /* of the best case's plan */
} tandem_advice;

/* `next` is called before each of the n cases. */
typedef struct tandem_advice_listener {
    void *context;
    void (*next)(void *context, int k, int n, const char *cluster);
} tandem_advice_listener;

/* tandem_advise: compares clusters, each at the best plan for the request.
 *   request  its cluster is the current ranks; with a global batch each cluster splits it, else each class
 *            has its batch, and more ranks take more samples. No plan has a certificate
 *   add      the new ranks, as a cluster. Both are in one network: a link that one names holds for both
 * TANDEM_USAGE: no model or cluster, too many classes, a policy with a single plan; errors of
 * tandem_allocation_request_check. The current ranks and all together need costs, or one that says what is
 * missing is the error; other cases may have none. *advice unchanged on error; the caller closes it. Cost: an
 * answer per case, 3^(predicted devices) comparisons, and tandem_answer_check_ratios. */
tandem_status tandem_advise(tandem_advice *advice, const tandem_allocation_request *request, const char *add,
                            const tandem_advice_listener *listener, tandem_error *error);
void tandem_advice_close(tandem_advice *advice); /* all zero is fine; all zero afterwards */

TANDEM_END_DECLARATIONS
#endif
