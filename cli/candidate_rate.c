/* candidate_rate.c: what clusters are compared by. */
#include "cli/candidate_cluster.h"

int candidate_clusters_rate(candidate_cluster *candidate, int n)
{
    int is_worth = 1;
    for (int k = 0; k < n; k++) {
        const candidate_cluster *p = &candidate[k];
        if (p->samples_per_s > 0 && !(plan_price_worth(&p->price) > 0)) is_worth = 0;
    }
    for (int k = 0; k < n; k++) {
        candidate_cluster *p = &candidate[k];
        p->rate = is_worth && p->samples_per_s > 0 ? plan_price_worth(&p->price) : p->samples_per_s;
    }
    return is_worth;
}
