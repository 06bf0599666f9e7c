/* candidate_rate.c: what clusters are compared by. */
#include "cli/candidate_cluster.h"

int candidate_clusters_rate(candidate_cluster *candidate, int n)
{
    int is_worth = 1;
    for (int k = 0; k < n; k++) {
        const candidate_cluster *p = &candidate[k];
        if (p->goodput.samples_per_s > 0 && !(p->goodput.goodput > 0)) is_worth = 0;
    }
    for (int k = 0; k < n; k++) {
        candidate_cluster *p = &candidate[k];
        p->rate = is_worth && p->goodput.samples_per_s > 0 ? p->goodput.goodput : p->goodput.samples_per_s;
    }
    return is_worth;
}
