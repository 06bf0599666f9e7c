/* verdict.c: three lines at the top: how long a step takes, how far to trust that, and what follows. */
#include <math.h>
#include <string.h>

#include "report/section.h"

/* --- How long a step takes ------------------------------------------------------------------------------ */

/* The last case of the last comparison: of a demo, the allocated plan. */
static const json_t *find_last_case(const report_part *part)
{
    const json_t *last = NULL, *next;
    report_case_cursor cursor = {0};
    while ((next = report_next_case(part, &cursor))) last = next;
    return last;
}

static const json_t *find_first_result(const report_part *part, const char *command)
{
    int k = 0;
    return report_next_result(part, command, &k);
}

static void put_case_step(FILE *out, const report_part *part, const json_t *run)
{
    const double measured = report_get_number(run, "measured_ns");
    report_case_cursor cursor = {0};
    const json_t *first = report_next_case(part, &cursor);
    report_put(out, "<li>With plan <q>%s</q> a step takes <strong>%s</strong>, measured; %s was predicted.",
               report_get_text(run, "plan"), report_ns(measured).text,
               report_ns(report_get_number(run, "predicted_ns")).text);
    const double other = report_get_number(first, "measured_ns");
    if (first != run && other > 0 && measured > 0)
        report_put(out, " With <q>%s</q> it takes %s, %.2f times as long.", report_get_text(first, "plan"),
                   report_ns(other).text, other / measured);
    report_put(out, "</li>\n");
}

static int put_predicted_step(FILE *out, const report_part *part)
{
    const json_t *replay = find_first_result(part, "replay");
    if (!isfinite(report_get_number(replay, "step_ns"))) replay = find_first_result(part, "allocate");
    double step = report_get_number(replay, "step_ns");
    const char *plan = report_get_text(replay, "plan");
    for (int k = 0; k < part->n && !isfinite(step); k++)
        if (part->item[k]->plan && part->item[k]->plan->step_ns > 0) {
            step = (double)part->item[k]->plan->step_ns;
            plan = part->item[k]->plan->name;
        }
    if (!isfinite(step)) return 0;
    report_put(out, "<li>With plan <q>%s</q> a step takes <strong>%s</strong>, predicted.", plan,
               report_ns(step).text);
    const json_t *const baselines = json_object_get(find_first_result(part, "allocate"), "baselines");
    const json_t *const base = json_array_get(baselines, 0);
    const double base_ns = report_get_number(base, "step_ns");
    if (base_ns > 0 && step > 0)
        report_put(out, " With <q>%s</q> it takes %s, %.2f times as long.", report_get_text(base, "name"),
                   report_ns(base_ns).text, base_ns / step);
    report_put(out, "</li>\n");
    return 1;
}

static int put_recorded_step(FILE *out, const report_part *part)
{
    for (int k = 0; k < part->n; k++)
        if (part->item[k]->timeline) {
            const tandem_step_timeline *const timeline = part->item[k]->timeline;
            report_put(out, "<li>The step on the timeline takes <strong>%s</strong>, %s.</li>\n",
                       report_ns((double)timeline->span_ns).text,
                       timeline->is_measured > 0    ? "measured"
                       : timeline->is_measured == 0 ? "simulated"
                                                    : "and its file does not say whether it was measured");
            return 1;
        }
    return 0;
}

static int put_step(FILE *out, const report_part *part)
{
    const json_t *const run = find_last_case(part);
    if (run && isfinite(report_get_number(run, "measured_ns"))) {
        put_case_step(out, part, run);
        return 1;
    }
    const json_t *const train = find_first_result(part, "train");
    if (report_get_number(train, "step_ns") > 0) {
        report_put(out, "<li>With plan <q>%s</q> a step takes <strong>%s</strong>, measured.</li>\n",
                   report_get_text(train, "plan"), report_ns(report_get_number(train, "step_ns")).text);
        return 1;
    }
    return put_predicted_step(out, part) || put_recorded_step(out, part);
}

/* --- How far to trust it -------------------------------------------------------------------------------- */

static const char *verdict_meaning(const char *verdict)
{
    static const char *const meaning[][2] = {
        {"prediction holds", "the prediction holds"},
        {"prediction off", "the prediction is off, and the machine was steady enough to decide"},
        {"machine moved", "the machine moved between profile and run; the prediction is not to blame"},
        {"cannot be distinguished",
         "a wrong prediction and a machine that moved cannot be distinguished yet"}};
    for (size_t k = 0; k < sizeof meaning / sizeof *meaning; k++)
        if (strcmp(verdict, meaning[k][0]) == 0) return meaning[k][1];
    return verdict[0] ? verdict : "no verdict was possible";
}

static void put_trust(FILE *out, const report_part *part)
{
    const json_t *const run = find_last_case(part);
    const double error = report_get_number(run, "error"),
                 at_speed = report_get_number(run, "error_at_run_speed"),
                 steps = report_get_number(run, "steps_needed");
    if (!run) {
        report_put(
            out, "<li>No run is on this page, so the error of the prediction is not known here. <code>tandem "
                 "compare --plan FILE --report PAGE</code> measures it.</li>\n");
        return;
    }
    report_put(out, "<li>The prediction is off by %s as it is", report_signed_ratio(error).text);
    if (isfinite(at_speed))
        report_put(out, ", and by <strong>%s</strong> at the speed that the machine had in the run",
                   report_signed_ratio(at_speed).text);
    report_put(out, ": %s.", verdict_meaning(report_get_text(run, "verdict")));
    if (strcmp(report_get_text(run, "verdict"), "cannot be distinguished") == 0 && steps > 0)
        report_put(out, " %.0f steps would decide.", steps);
    report_put(out, "</li>\n");
}

/* --- What follows --------------------------------------------------------------------------------------- */

static int put_bound(FILE *out, const report_part *part)
{
    const json_t *const plan = find_first_result(part, "allocate");
    double gap = report_get_number(plan, "gap");
    for (int k = 0; k < part->n && !isfinite(gap); k++)
        if (part->item[k]->plan) gap = part->item[k]->plan->gap;
    if (!isfinite(gap)) return 0;
    const double shown = gap > 1e-4 ? gap : 1e-4;
    if (gap <= 0)
        report_put(out, "<li>No plan with a step this short has a lower sensitivity: that is proven.</li>\n");
    else
        report_put(out,
                   "<li>No plan with a step this short has a sensitivity lower by more than %s: that is "
                   "proven.</li>\n",
                   report_ratio(shown).text);
    return 1;
}

static int put_waiting(FILE *out, const report_part *part)
{
    const json_t *const replay = find_first_result(part, "replay"), *const devices =
                                                                        json_object_get(replay, "devices");
    const json_t *idlest = NULL, *device;
    size_t k;
    json_array_foreach(devices, k, device)
    {
        if (!idlest || report_get_number(device, "wait_ns") > report_get_number(idlest, "wait_ns"))
            idlest = device;
    }
    const double step = report_get_number(replay, "step_ns"), wait = report_get_number(idlest, "wait_ns");
    if (!(wait >= 0) || !(step > 0)) return 0;
    if (wait < 0.01 * step)
        report_put(out, "<li>No device waits for another for more than 1%% of the step.</li>\n");
    else
        report_put(out, "<li>%s waits for others during %s of the step's %s; %s sets the pace.</li>\n",
                   report_get_text(idlest, "name"), report_ns(wait).text, report_ns(step).text,
                   report_get_text(replay, "slowest"));
    return 1;
}

static int put_straggler(FILE *out, const report_part *part)
{
    const json_t *const whatif = find_first_result(part, "whatif");
    const double slowdown = report_get_number(whatif, "slowdown");
    const char *const who = report_get_text(json_object_get(whatif, "cause"), "who");
    if (!isfinite(slowdown)) return 0;
    report_put(out, "<li>Stragglers make the recorded step %.2f times as long as it could be", slowdown);
    if (who[0]) report_put(out, "; most of it is due to <strong>%s</strong>", who);
    report_put(out, ".</li>\n");
    return 1;
}

static int draw_verdict(FILE *out, const report_part *part)
{
    int is_there = 0;
    for (int k = 0; k < part->n; k++)
        is_there |= part->item[k]->plan || part->item[k]->timeline ||
                    report_is_result(part->item[k], "replay") || report_is_result(part->item[k], "train");
    is_there |= find_last_case(part) || find_first_result(part, "allocate") != NULL;
    const char *const advice = report_get_text(find_first_result(part, "advise"), "verdict");
    if (!is_there && !advice[0] && !find_first_result(part, "whatif")) return 1;
    report_put(out, "<ol class=\"verdict\">\n");
    if (advice[0]) report_put(out, "<li>%s</li>\n", advice);
    if (is_there && put_step(out, part)) put_trust(out, part);
    if (!put_bound(out, part) && !put_straggler(out, part)) (void)put_waiting(out, part);
    report_put(out, "</ol>\n");
    return 1;
}

const report_section report_verdict = {"verdict", "Verdict", draw_verdict, NULL};
