/* add_summary.c: how near to 1 the ratios of a task's plans are. */
#include <math.h>
#include <stdlib.h>

#include "research/add.h"
#include "tandem/advanced/predictor.h"

add_summary add_summary_of(double *ratio, int n)
{
    add_summary summary = {.n = n};
    for (int i = 0; i < n; i++) summary.close += (fabs(ratio[i] - 1) <= study_margin.add_max_off) / (double)n;
    if (n > 0) summary.median = tandem_median(ratio, (size_t)n);
    return summary;
}

tandem_status add_summary_of_plans(add_summary *summary, const add_study *s, int which, int is_single,
                                   tandem_error *error)
{
    double *ratio = calloc((size_t)s->n_plan, sizeof *ratio), inside = 0;
    int n = 0;
    if (!ratio) return tandem_no_memory(error, "for the ratios of plans");
    for (int i = 0; i < s->n_plan; i++) {
        const add_result *of = &s->result[i];
        const double one = is_single ? of->by_operators : of->ratio;
        if (which && !(of->shares > 0)) continue;
        ratio[n++] = one;
        inside += fabs(of->ratio - 1) <= of->half;
    }
    *summary = add_summary_of(ratio, n);
    if (n > 0) summary->inside = inside / n;
    free(ratio);
    return TANDEM_OK;
}
