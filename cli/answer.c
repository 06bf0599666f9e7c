/* answer.c: the first lines of an output. */
#include "cli/answer.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/append.h"
#include "cli/prediction.h"

void answer_line(const char *label, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    char *text = cli_format("", format, arguments);
    va_end(arguments);
    printf("%-14s %s\n", label, text ? text : "(no memory for this line)");
    free(text);
}

/* --- Extra samples -------------------------------------------------------------------------------------- */

static void append_goodput(char *text, size_t size, const tandem_goodput *g)
{
    if (!isfinite(g->samples_per_s)) return;
    (void)tandem_append(text, size, "; goodput %s samples/s", goodput_rate(g, GOODPUT_DIGITS).text);
    if (isfinite(g->fp32_samples_per_s))
        (void)tandem_append(text, size, ", all fp32 %s",
                            tandem_quantity_plain(g->fp32_samples_per_s, 4).text);
}

/* Where the loss is above all of the base's curve, an end is infinite; one pair has no interval. */
answer_text answer_interval(double mean, double low, double high, const char *unit)
{
    answer_text to;
    const double half = fmin(high - mean, mean - low) / 10; /* a digit more */
    if (isnan(mean))
        (void)snprintf(to.text, sizeof to.text, "unknown");
    else if (isinf(mean) && low < mean)
        (void)snprintf(to.text, sizeof to.text, "without limit (95%%: %s%s to no limit)",
                       tandem_quantity_plain(low, 2).text, unit);
    else if (isinf(mean))
        (void)snprintf(to.text, sizeof to.text, "without limit");
    else if (isinf(low))
        (void)snprintf(to.text, sizeof to.text, "%s%s (95%%: unknown; it takes two pairs)",
                       tandem_quantity_plain(mean, 2).text, unit);
    else if (isinf(high))
        (void)snprintf(to.text, sizeof to.text, "%s%s (95%%: %s%s to no limit)",
                       tandem_quantity_known_to(mean, half).text, unit,
                       tandem_quantity_known_to(low, half).text, unit);
    else
        (void)snprintf(
            to.text, sizeof to.text, "%s%s (95%%: %s to %s%s)", tandem_quantity_known_to(mean, half).text,
            unit, tandem_quantity_known_to(low, half).text, tandem_quantity_known_to(high, half).text, unit);
    return to;
}

static void print_trial(const tandem_goodput *g)
{
    const struct tandem_goodput_trial *t = &g->trial;
    char by[160];
    if (t->n_pair == 0) return;
    (void)snprintf(by, sizeof by, "%d pair%s of %lld steps on %s%s", t->n_pair, t->n_pair == 1 ? "" : "s",
                   (long long)t->n_step, t->data, t->is_emulated ? ", emulated" : "");
    if (t->n_diverged)
        answer_line("measured", "it diverged in %d of %s", t->n_diverged, by);
    else if (isnan(t->extra))
        answer_line("measured", "unknown: fp32's loss did not fall in %s", by);
    else
        answer_line("measured", "%s more samples than fp32, by %s",
                    answer_interval(t->extra, t->low, t->high, "%").text, by);
}

/* What trials of other plans make of the prediction. */
static void print_corrected(const tandem_goodput *g)
{
    const struct tandem_goodput_corrected *c = &g->corrected;
    if (c->n_trial == 0 || g->trial.n_pair > 0) return;
    answer_line("corrected", "%s to the same loss, by trials of %d other plan%s",
                answer_interval(c->sensitivity, c->low, c->high, "%").text, c->n_trial,
                c->n_trial == 1 ? "" : "s");
}

static void print_predicted(const tandem_goodput *g)
{
    char rate[128] = "";
    static const char *const label = "extra samples";
    if (!g->is_known) {
        answer_line(label, "unknown: %s", g->unknown);
        return;
    }
    if (g->is_fp32) {
        answer_line(label, "none: every operator is in fp32");
        return;
    }
    append_goodput(rate, sizeof rate, g);
    answer_line(label, "%s%% to the same loss (95%%: %s to %s%%)%s%s",
                goodput_percent(g, g->sensitivity).text, tandem_quantity_plain(g->prediction_low, 1).text,
                tandem_quantity_plain(g->prediction_high, 1).text, isnan(g->bias) ? ", bias unknown" : "",
                rate);
    if (g->range_batch > 0)
        answer_line("ranges", "of batches of %lld; `tandem sensitivity` estimates how they grow with others",
                    (long long)g->range_batch);
}

void answer_extra_samples(const tandem_goodput *g)
{
    print_predicted(g);
    print_corrected(g);
    print_trial(g);
}

static void print_largest_operators(const tandem_goodput *g)
{
    char text[512] = "";
    for (int k = 0; k < g->n_largest; k++) {
        const struct tandem_goodput_operator *part = &g->largest[k];
        const double half = fmax(part->high - part->sensitivity, part->sensitivity - part->low);
        (void)tandem_append(text, sizeof text, "%s%s in %s %s%%", k ? ", " : "", part->name,
                            tandem_precision_get(part->precision)->name,
                            tandem_quantity_known_to(part->sensitivity, half).text);
    }
    if (g->n_largest) answer_line("most of them", "%s", text);
}

void answer_extra_samples_details(const tandem_goodput *g)
{
    char point[128] = "";
    int worst = 0;
    if (!g->is_known || g->is_fp32) return;
    for (int a = 1; a < g->n_point; a++)
        if (g->sensitivity_at[a] > g->sensitivity_at[worst]) worst = a;
    if (g->n_point > 1 && g->sensitivity_at[worst] > 0)
        (void)snprintf(point, sizeof point, "; most at %.0f%% of the training: %s%%", g->point[worst],
                       goodput_percent(g, g->sensitivity_at[worst]).text);
    answer_line("sampling", "%s to %s%%: other batches of the estimate would say so in 95 of 100 cases",
                goodput_percent(g, g->low).text, goodput_percent(g, g->high).text);
    answer_line("their parts", "noise %s%%, bias %s%s%s", goodput_percent(g, fmax(g->noise, 0)).text,
                isnan(g->bias) ? "unknown" : goodput_percent(g, fmax(g->bias, 0)).text,
                isnan(g->bias) ? "" : "%", point);
    print_largest_operators(g);
}

/* --- Where times come from ------------------------------------------------------------------------------ */

/* Whether a class before c has the same device. */
static int is_repeated_device(const tandem_time_sources *sources, int c)
{
    for (int k = 0; k < c; k++)
        if (strcmp(sources->device[k], sources->device[c]) == 0) return 1;
    return 0;
}

/* Whether times by the form follow what others measured of the card, its description, or both. */
static void append_evidence(char *text, size_t size, const tandem_provenance *times)
{
    const long long rows = (long long)times->others_rows;
    if (times->others_share > 0.9995)
        (void)tandem_append(text, size, ", measured by others (%lld rows)", rows);
    else if (times->others_share > 0)
        (void)tandem_append(text, size, ", %s measured by others (%lld rows), the rest described",
                            tandem_quantity_ratio(times->others_share).text, rows);
    else
        (void)tandem_append(text, size, ", described");
    if (times->n_unmeasured_kernel)
        (void)tandem_append(text, size,
                            ", int8 on its tensor cores, too: only its dot products were timed (%d tasks)",
                            times->n_unmeasured_kernel);
}

/* How sure predicted times are: by the fit of the description's form, or by measured costs around them. */
static void append_uncertainty(char *text, size_t size, const tandem_provenance *times)
{
    if (!isnan(times->form_interval)) {
        (void)tandem_append(text, size, " within %.0f%%", 100 * times->form_interval);
        append_evidence(text, size, times);
    } else if (!isnan(times->spread))
        (void)tandem_append(text, size, " from %lld measured costs, %s apart from their fit",
                            (long long)times->n_fitted, tandem_quantity_ratio(times->spread).text);
    else if (!times->n_fitted)
        (void)tandem_append(text, size, " from its description alone");
    if (times->kernels != TANDEM_KERNELS_TANDEM)
        (void)tandem_append(text, size, ", of %s's kernels%s", tandem_kernel_set_name(times->kernels),
                            times->without_update ? " without the update" : "");
    if (times->n_contradicting)
        (void)tandem_append(text, size,
                            ", without %lld costs that contradict its datasheet, or others' times, "
                            "by more than 3 x",
                            (long long)times->n_contradicting);
}

/* "v100 predicted within 22%", "cpu:avx2 97% measured, 3% interpolated". */
static void write_device_times(char *text, size_t size, const char *device, const tandem_provenance *times)
{
    int n = 0;
    for (int k = 0; k < TANDEM_N_ORIGIN; k++) n += times->n_task[k] > 0;
    (void)snprintf(text, size, "%s", device);
    for (int k = 0, at = 0; k < TANDEM_N_ORIGIN; k++) {
        if (!times->n_task[k]) continue;
        (void)tandem_append(text, size, "%s", at++ ? ", " : " ");
        if (n > 1)
            (void)tandem_append(text, size, "%s ",
                                tandem_quantity_ratio(cli_origin_share(times, (tandem_origin)k)).text);
        (void)tandem_append(text, size, "%s", tandem_origin_name((tandem_origin)k));
    }
    if (times->n_task[TANDEM_ORIGIN_PREDICTED]) append_uncertainty(text, size, times);
    if (times->amp_ratio > 1)
        (void)tandem_append(text, size,
                            ", where 16-bit products take %.2f x the time of fp32 (int8's gradients, too)",
                            times->amp_ratio);
}

static void append_allreduce_times(char *text, size_t size, const tandem_time_sources *sources)
{
    int n_by_formula = 0;
    const tandem_allreduce_source *source = &sources->allreduce;
    for (int k = 0; k < TANDEM_N_COLLECTIVE_ALGORITHM; k++) n_by_formula += source->n_by_algorithm[k];
    if (n_by_formula) (void)tandem_append(text, size, "; all-reduces by formula from the links");
    if (n_by_formula && sources->is_net_within_nodes)
        (void)tandem_append(text, size, " (no link= or node=: net= inside nodes, too)");
    if (!source->n_point) return;
    (void)tandem_append(text, size, "; all-reduces measured");
    if (source->n_extrapolated)
        (void)tandem_append(text, size, ", %d buckets extrapolated", source->n_extrapolated);
}

void answer_times(const tandem_time_sources *sources, double profile_interval)
{
    char text[1024] = "", of_class[TANDEM_MAX_CLASS][384];
    bool has_interval = false;
    for (int c = 0; c < sources->n_class; c++) {
        int same = 0; /* classes of one device may have other batches, and other origins */
        write_device_times(of_class[c], sizeof of_class[c], sources->device[c], &sources->of[c]);
        while (strcmp(of_class[same], of_class[c]) != 0) same++;
        if (same == c) (void)tandem_append(text, sizeof text, "%s%s", c ? "; " : "", of_class[c]);
        has_interval |= !isnan(sources->of[c].form_interval);
    }
    if (has_interval) (void)tandem_append(text, sizeof text, " (in 80%% of cases)");
    append_allreduce_times(text, sizeof text, sources);
    if (profile_interval >= 0.02)
        (void)tandem_append(text, sizeof text,
                            "; profile uncertainty: %s of the step, of an unsteady machine",
                            tandem_quantity_ratio(profile_interval).text);
    answer_line("times", "%s", text);
}

/* --- The same with --details ---------------------------------------------------------------------------- */

/* Appends what the predicted times are based on. */
static void append_fit_source(char *line, size_t size, const tandem_provenance *provenance)
{
    if (!provenance->n_fitted && provenance->others_share > 0)
        append_evidence(line, size, provenance);
    else if (!provenance->n_fitted)
        (void)tandem_append(line, size, ", from the description alone");
    else if (isnan(provenance->spread))
        (void)tandem_append(line, size, ", from the description and %lld measured costs",
                            (long long)provenance->n_fitted);
    else
        (void)tandem_append(line, size, ", fitted to %lld measured costs, which differ from the fit by %s",
                            (long long)provenance->n_fitted, tandem_quantity_ratio(provenance->spread).text);
    if (provenance->n_contradicting)
        (void)tandem_append(line, size,
                            ", without %lld of them that contradict the datasheet, or others' times, "
                            "by more than 3 x",
                            (long long)provenance->n_contradicting);
    if (provenance->kernels != TANDEM_KERNELS_TANDEM)
        (void)tandem_append(line, size, ", of %s's kernels%s", tandem_kernel_set_name(provenance->kernels),
                            provenance->without_update ? " without the update" : "");
}

/* What the times of a class are based on. */
static void write_sources(char *line, size_t size, const tandem_provenance *provenance)
{
    *line = '\0';
    for (int k = 0; k < TANDEM_N_ORIGIN; k++)
        if (provenance->n_task[k])
            (void)tandem_append(line, size, "%s%s %s (%d tasks)", *line ? ", " : "",
                                tandem_quantity_ratio(cli_origin_share(provenance, (tandem_origin)k)).text,
                                tandem_origin_name((tandem_origin)k), provenance->n_task[k]);
    if (provenance->n_task[TANDEM_ORIGIN_PREDICTED]) append_fit_source(line, size, provenance);
}

/* Which GPUs the interval of a class's predicted times rests on. */
static void print_interval_source(const char *device, const tandem_provenance *provenance)
{
    char names[TANDEM_INTERVAL_CARDS];
    int n = 0;
    if (isnan(provenance->form_interval)) return;
    (void)snprintf(names, sizeof names, "%s", provenance->interval_cards);
    for (const char *at = names; *at; at++) n += *at == ' ';
    if (n > 0) names[strlen(names) - 1] = '\0';
    printf("interval on %s: from %lld rows of %d GPU%s (%s); leave-one-out error %s on average\n", device,
           (long long)provenance->interval_rows, n, n == 1 ? "" : "s", names,
           tandem_quantity_ratio(provenance->interval_error).text);
}

static void print_allreduce_details(const tandem_time_sources *sources)
{
    const tandem_allreduce_source *source = &sources->allreduce;
    char rate[TANDEM_QUANTITY_TEXT] = "any rate";
    int n = 0;
    for (int k = 0; k < TANDEM_N_COLLECTIVE_ALGORITHM; k++)
        if (source->n_by_algorithm[k])
            printf("%s%d %s", n++ ? ", " : "all-reduces by formula: ", source->n_by_algorithm[k],
                   tandem_collective_algorithm_name((tandem_collective_algorithm)k));
    if (n) putchar('\n');
    if (n && sources->is_net_within_nodes)
        puts("net= holds inside nodes, too: give link= or node= if devices of a node are joined faster");
    if (!source->n_point) return;
    if (source->bytes_per_s > 0) tandem_quantity_print_bps(rate, sizeof rate, source->bytes_per_s);
    printf("all-reduces measured: a curve of %d points; its upper part differs by %s from a line of %s and "
           "%s",
           source->n_point, tandem_quantity_ratio(source->spread).text,
           tandem_quantity_ns(llround(source->latency_ns)).text, rate);
    if (source->n_extrapolated) printf("; %d buckets are extrapolated on that line", source->n_extrapolated);
    putchar('\n');
}

void answer_times_details(const tandem_time_sources *sources)
{
    char line[TANDEM_MAX_CLASS][384];
    for (int c = 0; c < sources->n_class; c++) {
        int is_printed = 0;
        write_sources(line[c], sizeof line[c], &sources->of[c]);
        for (int k = 0; k < c; k++)
            is_printed |=
                strcmp(sources->device[k], sources->device[c]) == 0 && strcmp(line[k], line[c]) == 0;
        if (*line[c] && !is_printed) printf("times on %s: %s\n", sources->device[c], line[c]);
    }
    for (int c = 0; c < sources->n_class; c++)
        if (!is_repeated_device(sources, c)) print_interval_source(sources->device[c], &sources->of[c]);
    print_allreduce_details(sources);
}
