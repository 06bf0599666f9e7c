/* training.c: loss and accuracy over the steps of one run or several. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "report/section.h"

enum { MAX_RUNS = 64, MAX_DRAWN = 400 };

/* A run: a log, or the result of `train`. */
typedef struct training_run {
    const char *name;
    report_log log;
    int is_own; /* whether the lines are released with the section */
} training_run;

typedef struct training_runs {
    training_run run[MAX_RUNS];
    int n;
} training_runs;

/* --- Reading -------------------------------------------------------------------------------------------- */

static int by_step(const void *left, const void *right)
{
    const report_log_line *const a = left, *const b = right;
    return (a->step > b->step) - (a->step < b->step);
}

/* Loss by step, and the evaluations as lines of their own. 0 = no memory. */
static int read_train_result(training_run *run, const json_t *result)
{
    const json_t *const loss = json_object_get(result, "loss"),
                        *const evaluations = json_object_get(result, "evaluations"), *one;
    const double resumed = report_get_number(result, "resumed_at");
    const int64_t begin = resumed > 0 && resumed < 0x1p53 ? (int64_t)resumed : 0;
    size_t k;
    run->is_own = 1;
    run->log.line = calloc(json_array_size(loss) + json_array_size(evaluations) + 1, sizeof *run->log.line);
    if (!run->log.line) return 0;
    json_array_foreach(loss, k, one)
    {
        run->log.line[run->log.n++] = (report_log_line){
            begin + (int64_t)k + 1, json_is_number(one) ? json_number_value(one) : NAN, NAN};
    }
    json_array_foreach(evaluations, k, one)
    {
        const double step = report_get_number(one, "step");
        if (step >= 0 && step < 0x1p53)
            run->log.line[run->log.n++] =
                (report_log_line){(int64_t)step, NAN, report_get_number(one, "accuracy")};
    }
    qsort(run->log.line, (size_t)run->log.n, sizeof *run->log.line, by_step);
    return 1;
}

static int read_runs(training_runs *runs, const report_part *part)
{
    for (int k = 0; k < part->n && runs->n < MAX_RUNS; k++) {
        const report_item *const item = part->item[k];
        training_run *const run = &runs->run[runs->n];
        *run = (training_run){.name = item->source, .log = item->log};
        if (report_is_result(item, "train") && !read_train_result(run, item->result)) return 0;
        runs->n += run->log.n > 0;
        if (run->log.n == 0 && run->is_own) free(run->log.line);
    }
    return 1;
}

/* --- Drawing -------------------------------------------------------------------------------------------- */

static double line_value(const report_log_line *line, int is_accuracy)
{
    return is_accuracy ? line->accuracy : line->loss;
}

/* Of a long run the mean of each stretch; a value that is missing is a gap in the line. */
static void put_run_line(FILE *out, const training_run *run, int is_accuracy, const char *tone,
                         const report_axis *x, const report_axis *y)
{
    const int n = run->log.n, every = n / MAX_DRAWN + 1;
    int is_open = 0;
    report_put(out, "<path class=\"line %s\" d=\"", tone);
    for (int k = 0; k < n; k += every) {
        double sum = 0, step = 0;
        int n_value = 0;
        for (int m = k; m < k + every && m < n; m++) {
            const double value = line_value(&run->log.line[m], is_accuracy);
            if (!isfinite(value)) continue;
            sum += value;
            step += (double)run->log.line[m].step;
            n_value++;
        }
        if (n_value)
            report_put(out, "%s%.1f %.1f", is_open ? "L" : "M", report_x(x, step / n_value),
                       report_y(y, sum / n_value));
        if (n_value == 1 && every == 1 && !is_open) report_put(out, "h0"); /* so that one point is seen */
        is_open = n_value > 0 || (is_open && is_accuracy); /* accuracies are taken now and then */
    }
    report_put(out, "\"><title>%s</title></path>", run->name);
}

/* Mean and standard deviation over the runs, at steps that all have. */
typedef struct run_spread {
    double step, mean, deviation;
} run_spread;

/* Returns how many steps all runs have; at most MAX_DRAWN, at equal distances. */
static int find_spread(run_spread spread[MAX_DRAWN], const training_runs *runs, int is_accuracy)
{
    int at[MAX_RUNS] = {0}, n = 0;
    const int every = runs->run[0].log.n / MAX_DRAWN + 1;
    for (int k = 0; k < runs->run[0].log.n && n < MAX_DRAWN; k += every) {
        const int64_t step = runs->run[0].log.line[k].step;
        double sum = 0, squares = 0;
        int n_value = 0;
        for (int r = 0; r < runs->n; r++) {
            const report_log *const log = &runs->run[r].log;
            while (at[r] < log->n && log->line[at[r]].step < step) at[r]++;
            for (int m = at[r]; m < log->n && log->line[m].step == step; m++) {
                const double value = line_value(&log->line[m], is_accuracy);
                if (!isfinite(value)) continue;
                sum += value;
                squares += value * value;
                n_value++;
                break;
            }
        }
        if (n_value < runs->n) continue;
        const double mean = sum / n_value, variance = (squares - sum * mean) / (n_value - 1);
        spread[n++] = (run_spread){(double)step, mean, sqrt(fmax(variance, 0))};
    }
    return n;
}

static void put_spread(FILE *out, const training_runs *runs, int is_accuracy, const report_axis *x,
                       const report_axis *y)
{
    run_spread spread[MAX_DRAWN];
    const int n = runs->n > 1 ? find_spread(spread, runs, is_accuracy) : 0;
    if (n < 2) return;
    report_put(out, "<path class=\"band\" d=\"");
    for (int k = 0; k < 2 * n; k++) {
        const run_spread *const band = &spread[k < n ? k : 2 * n - 1 - k];
        const double value = band->mean + (k < n ? band->deviation : -band->deviation);
        report_put(out, "%s%.1f %.1f", k ? "L" : "M", report_x(x, band->step), report_y(y, value));
    }
    report_put(out, "z\"><title>mean of the runs, and one standard deviation</title></path>");
}

static int has_values(const training_runs *runs, int is_accuracy)
{
    for (int r = 0; r < runs->n; r++)
        for (int k = 0; k < runs->run[r].log.n; k++)
            if (isfinite(line_value(&runs->run[r].log.line[k], is_accuracy))) return 1;
    return 0;
}

static void put_training_plot(FILE *out, const training_runs *runs, int is_accuracy)
{
    report_axis x = report_axis_new(REPORT_COUNT, 0, "step"),
                y = report_axis_new(is_accuracy ? REPORT_RATIO : REPORT_PLAIN, 0,
                                    is_accuracy ? "accuracy on the test set" : "loss (nats)");
    if (!has_values(runs, is_accuracy)) return;
    for (int r = 0; r < runs->n; r++)
        for (int k = 0; k < runs->run[r].log.n; k++) {
            report_axis_add(&x, (double)runs->run[r].log.line[k].step);
            report_axis_add(&y, line_value(&runs->run[r].log.line[k], is_accuracy));
        }
    report_axis_round(&x);
    report_axis_round(&y);
    report_plot_begin(out, &x, &y, is_accuracy ? "Accuracy over the steps" : "Loss over the steps");
    put_spread(out, runs, is_accuracy, &x, &y);
    for (int r = 0; r < runs->n; r++) put_run_line(out, &runs->run[r], is_accuracy, report_tone(r), &x, &y);
    report_plot_labels(out, &x, &y);
    report_plot_end(
        out, runs->n > 1 ? "Across: training steps. The band is one standard deviation around the mean of "
                           "the runs, at steps that all have."
                         : "Across: training steps.");
}

static void put_runs_table(FILE *out, const training_runs *runs)
{
    report_put(out,
               "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Runs\"><table><thead><tr>"
               "<th>run</th><th class=\"n\">steps</th><th class=\"n\">first loss</th><th class=\"n\">last "
               "loss</th><th class=\"n\">last accuracy</th><th class=\"n\">losses missing</th></tr></thead>"
               "<tbody>\n");
    for (int r = 0; r < runs->n; r++) {
        const report_log *const log = &runs->run[r].log;
        double first = NAN, last = NAN, accuracy = NAN;
        int n_missing = 0;
        for (int k = 0; k < log->n; k++) {
            const double loss = log->line[k].loss;
            if (isfinite(log->line[k].accuracy)) accuracy = log->line[k].accuracy;
            if (!isfinite(loss) && !isfinite(log->line[k].accuracy)) n_missing++;
            if (!isfinite(loss)) continue;
            if (!isfinite(first)) first = loss;
            last = loss;
        }
        report_put(out, "<tr><th scope=\"row\"><i class=\"%s\"></i> %s</th><td class=\"n\">%lld</td>",
                   report_tone(r), runs->run[r].name, log->n ? (long long)log->line[log->n - 1].step : 0);
        report_put(out,
                   "<td class=\"n\">%s</td><td class=\"n\">%s</td><td class=\"n\">%s</td><td "
                   "class=\"n\">%d</td></tr>\n",
                   report_number(first).text, report_number(last).text, report_ratio(accuracy).text,
                   n_missing);
    }
    report_put(out, "</tbody></table></div>\n");
}

static int draw_training(FILE *out, const report_part *part)
{
    training_runs *const runs = calloc(1, sizeof *runs);
    const int whole = runs && read_runs(runs, part);
    if (whole && runs->n) {
        put_training_plot(out, runs, 0);
        put_training_plot(out, runs, 1);
        put_runs_table(out, runs);
    }
    for (int r = 0; runs && r < runs->n; r++)
        if (runs->run[r].is_own) free(runs->run[r].log.line);
    free(runs);
    return whole;
}

const report_section report_training = {"training", "Training", draw_training,
                                        "tandem train --plan plan.json --data DATA --log run.jsonl"};
