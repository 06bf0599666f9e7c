/* advise_interval.c: the cases of `tandem advise` with predicted times anywhere in their intervals. */
#include "base/append.h"
#include "cli/command/advise_interval.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static int find_shift(const advise_interval *v, const char *device)
{
    for (int k = 0; k < v->n; k++)
        if (strcmp(v->shift[k].device, device) == 0) return k;
    return -1;
}

/* A device's widest interval in any case. */
static void collect_shifts(advise_interval *v, const candidate_cluster *candidate, int n)
{
    for (int i = 0; i < n; i++) {
        const tandem_time_sources *const sources = &candidate[i].sources;
        for (int c = 0; candidate[i].goodput.samples_per_s > 0 && c < sources->n_class; c++) {
            const double half = sources->of[c].form_interval;
            int k = find_shift(v, sources->device[c]);
            if (isnan(half) || (k < 0 && v->n == ADVISE_MAX_SHIFT)) continue;
            if (k < 0) {
                k = v->n++;
                v->shift[k] = (advise_shift){.factor = 1};
                (void)snprintf(v->shift[k].device, sizeof v->shift[k].device, "%s", sources->device[c]);
            }
            v->shift[k].half = fmax(v->shift[k].half, half);
        }
    }
}

static double shifted_rate(const advise_interval *v, const candidate_cluster *p)
{
    double busiest = 0, shifted = 0;
    for (int c = 0; c < p->sources.n_class; c++) {
        const int k = find_shift(v, p->sources.device[c]);
        const double ns = (double)p->busy_ns[c];
        busiest = fmax(busiest, ns);
        shifted = fmax(shifted, ns * (k < 0 ? 1 : v->shift[k].factor));
    }
    const double step = (double)p->allocation.step_ns;
    return p->rate * step / fmax(1, step + shifted - busiest);
}

static int find_best_case(const advise_interval *v, const candidate_cluster *candidate, int n)
{
    int best = 0;
    double highest = 0;
    for (int i = 0; i < n; i++) {
        const double rate = shifted_rate(v, &candidate[i]);
        if (rate > highest) highest = rate, best = i;
    }
    return best;
}

void advise_interval_find(advise_interval *out, const candidate_cluster *candidate, int n, int current,
                          int best)
{
    advise_interval v = {.best = -1}, found;
    int n_corner = 1, fewest = ADVISE_MAX_SHIFT + 1;
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
        if ((other == current) == (best == current)) continue;
        fewest = n_moved;
        found = v;
        found.best = other;
    }
    *out = found;
}

void advise_interval_print(char *text, size_t size, const advise_interval *v,
                           const candidate_cluster *candidate)
{
    if (v->n == 0) return;
    if (v->holds) {
        (void)tandem_append(text, size, " It holds across the 80%% intervals of");
        for (int k = 0; k < v->n; k++)
            (void)tandem_append(text, size, "%s %s (%.0f%%)",
                                k == 0         ? ""
                                : k + 1 < v->n ? ","
                                               : " and",
                                v->shift[k].device, 100 * v->shift[k].half);
        (void)tandem_append(text, size, ".");
        return;
    }
    (void)tandem_append(text, size, " It does not hold across the 80%% intervals: with");
    for (int k = 0, n = 0; k < v->n; k++) {
        const double factor = v->shift[k].factor;
        if (fabs(factor - 1) < 1e-9) continue;
        (void)tandem_append(text, size, "%s the times of %s %.0f%% %s", n++ ? " and" : "", v->shift[k].device,
                            100 * fabs(factor - 1), factor > 1 ? "longer" : "shorter");
    }
    (void)tandem_append(text, size, ", %s makes more.", candidate[v->best].name);
}

json_t *advise_interval_json(const advise_interval *v)
{
    if (v->n == 0) return json_null();
    json_t *const devices = json_array();
    for (int k = 0; k < v->n; k++)
        json_array_append_new(devices, json_pack("{s:s,s:f,s:f}", "device", v->shift[k].device, "half",
                                                 v->shift[k].half, "factor", v->shift[k].factor));
    return json_pack("{s:b,s:o,s:o}", "holds", v->holds, "best",
                     v->best < 0 ? json_null() : json_integer(v->best), "devices", devices);
}
