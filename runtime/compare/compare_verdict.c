/* compare_verdict.c: decides, from the errors of a prediction and how surely each is known. */
#include "runtime/compare/compare_verdict.h"

#include <math.h>
#include <stdio.h>

#include "base/append.h"
#include "base/quantity.h"

/* A kind of task matters where its error moves the step by 1.5 %. What a simulated run does not know (the
 * order of neighbours, the caches after a wait) moves a kind by less than 12 %. */
static const double kind_effect = 0.015, kind_tolerance = 0.12;
/* What others take is known to about a twentieth: whether a rank's delay holds the others up. The error is
 * of what is left. */
static const double delay_uncertainty = 0.05;

const char *tandem_compare_verdict_name(tandem_compare_verdict verdict)
{
    static const char *const name[TANDEM_N_VERDICT] = {"cannot be distinguished", "prediction holds",
                                                       "machine moved", "prediction off"};
    return name[verdict];
}

static double kind_error_of(const compare_kind *kind)
{
    return (double)kind->predicted_ns / (double)kind->measured_ns - 1;
}

/* The kind with the largest error beyond the tolerance and what is uncertain. */
static void find_kind_off(tandem_compare_speed *s, double uncertainty, const compare_kind *kind, int n_kind)
{
    s->kind = "";
    s->kind_device[0] = '\0';
    s->kind_error = NAN;
    double most = kind_tolerance + uncertainty;
    for (int k = 0; k < n_kind; k++) {
        if (fabs(kind[k].step_effect) < kind_effect) continue;
        const double error = kind_error_of(&kind[k]);
        if (fabs(error) <= most) continue;
        most = fabs(error);
        s->kind = kind[k].name;
        s->kind_error = error;
        (void)snprintf(s->kind_device, sizeof s->kind_device, "%s", kind[k].device);
    }
}

static double or_zero(double x) { return isfinite(x) ? x : 0; }

void compare_verdict_decide(tandem_compare_speed *s, double error, double tolerance, const compare_kind *kind,
                            int n_kind)
{
    const double off = fabs(s->error_at_run_speed), run = (s->high - s->low) / 2,
                 profile = or_zero(s->profile_noise) / sqrt(2), share = or_zero(s->delay_share),
                 delays = s->n_undisturbed >= 8 ? 0 : delay_uncertainty * share / fmax(1 - share, 0.01),
                 rest = sqrt(profile * profile + delays * delays), all = sqrt(run * run + rest * rest);
    s->verdict = TANDEM_VERDICT_UNKNOWN;
    s->steps_needed = 0;
    s->moved_by = (1 + s->error_at_run_speed) / (1 + error) - 1;
    find_kind_off(s, rest, kind, n_kind);
    if (!isfinite(off) || !isfinite(error) || !isfinite(run)) return;
    if (s->kind[0] || (off > tolerance && off > all))
        s->verdict = TANDEM_VERDICT_OFF;
    else if (off <= tolerance && fabs(error) > tolerance + (all > tolerance ? all : 0))
        s->verdict = TANDEM_VERDICT_MOVED;
    else if (off <= tolerance && all <= tolerance)
        s->verdict = TANDEM_VERDICT_HOLDS;
    /* the run's interval narrows with the root of the steps; the rest does not */
    const double left = tolerance * tolerance - rest * rest;
    if (s->verdict == TANDEM_VERDICT_UNKNOWN && left > 0)
        s->steps_needed = (int64_t)ceil((double)s->n_step * fmax(run * run / left, 1)) + 1;
}

const char *tandem_compare_verdict_print(char *text, size_t size, const tandem_compare_speed *s)
{
    char number[TANDEM_QUANTITY_TEXT];
    (void)snprintf(text, size, "%s", tandem_compare_verdict_name(s->verdict));
    switch (s->verdict) {
    case TANDEM_VERDICT_MOVED:
        return tandem_append(text, size, ": a step takes %s more than at the profile's speed",
                             tandem_quantity_print_ratio(number, sizeof number, s->moved_by));
    case TANDEM_VERDICT_OFF:
        return s->kind[0]
                   ? tandem_append(text, size, ": the time of %s tasks on %s by %s", s->kind, s->kind_device,
                                   tandem_quantity_print_ratio(number, sizeof number, s->kind_error))
                   : text;
    case TANDEM_VERDICT_UNKNOWN:
        return s->steps_needed > 0
                   ? tandem_append(text, size, "; about %lld steps would decide", (long long)s->steps_needed)
                   : tandem_append(text, size, "; measure the profile again when the machine is steadier");
    default: return text;
    }
}
