/* candidate.h: clusters at their best plans; private to allocator/. */
#pragma once

#include "tandem/advice.h"

/* tandem_candidate_find: the answer to a checked request on a cluster whose classes have batches. A missing
 * cost, an infeasible limit or an impossible split is no error: candidate->error says it. */
tandem_status tandem_candidate_find(tandem_candidate *candidate, const tandem_allocation_request *request,
                                    const tandem_cluster *cluster, tandem_error *error);
/* Sets the rates of n candidates: goodput where it is known of each plan, and then returns 1; else samples/s.
 */
int tandem_candidates_rate(tandem_candidate *candidate, int n);
/* The name of a candidate. Returns name. */
const char *tandem_candidate_name(char *name, size_t size, const tandem_cluster *cluster);
/* The cluster without class c. */
tandem_cluster tandem_cluster_without(const tandem_cluster *cluster, int c);

/* tandem_advice_interval_find: compares the rates of n cases with every predicted device's times at either
 * end of its interval, or in its middle. The answer is whether the current case is best. Where it does not
 * hold: the factors of the fewest devices with which it does not. Plans and splits stay; where a class is no
 * longer the busiest, the step follows the one that is. */
void tandem_advice_interval_find(tandem_advice_interval *interval, const tandem_candidate *candidate, int n,
                                 int best);
