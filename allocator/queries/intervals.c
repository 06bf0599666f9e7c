/* intervals.c: how far predictions may be off: the cases of an advice with predicted times anywhere in their
 * intervals, and a step by the steadiness of its profile. */
#include "allocator/queries/candidate.h"
#include "tandem/advanced/allocator.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* --- Advice --------------------------------------------------------------------------------------------- */

static int find_shift(const tandem_advice_interval *v, const char *device)
{
    for (int k = 0; k < v->n; k++)
        if (strcmp(v->shift[k].device, device) == 0) return k;
    return -1;
}

/* A device's widest interval in any case. */
static void collect_shifts(tandem_advice_interval *v, const tandem_candidate *candidate, int n)
{
    for (int i = 0; i < n; i++) {
        const tandem_time_sources *const sources = &candidate[i].answer.sources;
        for (int c = 0; candidate[i].rate > 0 && c < sources->n_class; c++) {
            const double half = sources->of[c].form_interval;
            int k = find_shift(v, sources->device[c]);
            if (isnan(half) || (k < 0 && v->n == TANDEM_MAX_SHIFT)) continue;
            if (k < 0) {
                k = v->n++;
                v->shift[k] = (struct tandem_time_shift){.factor = 1};
                (void)snprintf(v->shift[k].device, sizeof v->shift[k].device, "%s", sources->device[c]);
            }
            v->shift[k].half = fmax(v->shift[k].half, half);
        }
    }
}

static double shifted_rate(const tandem_advice_interval *v, const tandem_candidate *p)
{
    const tandem_answer *answer = &p->answer;
    double busiest = 0, shifted = 0;
    for (int c = 0; c < answer->sources.n_class; c++) {
        const int k = find_shift(v, answer->sources.device[c]);
        const double ns = (double)answer->step.classes[c].busy_ns;
        busiest = fmax(busiest, ns);
        shifted = fmax(shifted, ns * (k < 0 ? 1 : v->shift[k].factor));
    }
    const double step = (double)answer->allocation.step_ns;
    return p->rate * step / fmax(1, step + shifted - busiest);
}

static int find_best_case(const tandem_advice_interval *v, const tandem_candidate *candidate, int n)
{
    int best = 0;
    double highest = 0;
    for (int i = 0; i < n; i++) {
        const double rate = shifted_rate(v, &candidate[i]);
        if (rate > highest) highest = rate, best = i;
    }
    return best;
}

void tandem_advice_interval_find(tandem_advice_interval *out, const tandem_candidate *candidate, int n,
                                 int best)
{
    tandem_advice_interval v = {.best = -1}, found;
    int n_corner = 1, fewest = TANDEM_MAX_SHIFT + 1;
    collect_shifts(&v, candidate, n);
    found = v;
    found.holds = 1;
    for (int k = 0; k < v.n; k++) n_corner *= 3;
    for (int corner = 1; corner < n_corner; corner++) {
        int n_moved = 0;
        for (int k = 0, rest = corner; k < v.n; k++, rest /= 3) {
            const double most = 1 + v.shift[k].half;
            v.shift[k].factor = rest % 3 == 0 ? 1 : rest % 3 == 1 ? most : 1 / most;
            n_moved += rest % 3 != 0;
        }
        if (n_moved >= fewest) continue;
        const int other = find_best_case(&v, candidate, n);
        if ((other == TANDEM_CASE_CURRENT) == (best == TANDEM_CASE_CURRENT)) continue;
        fewest = n_moved;
        found = v;
        found.best = other;
    }
    *out = found;
}

/* --- Profiles ------------------------------------------------------------------------------------------- */

double tandem_profile_interval(const char *path, const tandem_cluster *cluster)
{
    double widest = NAN;
    tandem_store *store = NULL;
    if (tandem_store_open(&store, path, TANDEM_STORE_READ, NULL) != TANDEM_OK) return NAN;
    for (int c = 0; c < cluster->n_class; c++)
        for (int other = -1; other < cluster->n_class; other++) {
            tandem_steadiness found;
            if (tandem_store_get_steadiness(&found, store, cluster->classes[c].device.name,
                                            other < 0 ? "" : cluster->classes[other].device.name,
                                            NULL) == TANDEM_OK)
                widest = fmax(widest, found.interval_share);
        }
    tandem_store_close(store);
    return widest;
}
