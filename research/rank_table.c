/* rank_table.c: the tables of `tandem-study rank`: of each task, and of the bars. */
#include <math.h>

#include "research/rank.h"

static void print_method(rank_study *s, int m, json_t *methods)
{
    const rank_method *method = rank_methods[m];
    const study_interval interval = rank_interval_of(s, s->n_task, m, -1);
    const int steps = rank_steps_of(s, method->needs);
    json_t *object = json_pack("{s:s,s:s,s:s,s:i}", "method", method->name, "unit", method->unit, "needs",
                               rank_needs_name(method->needs), "steps", steps);
    json_object_set_new(object, "tau", cli_json_number(s->tau[s->n_task][m]));
    json_object_set_new(object, "tau_low", cli_json_number(interval.low));
    json_object_set_new(object, "tau_high", cli_json_number(interval.high));
    (void)fprintf(s->report->text, "| %s | %s | %s | %d | %.2f (%.2f to %.2f)", method->name, method->unit,
                  rank_needs_name(method->needs), steps, s->tau[s->n_task][m], interval.low, interval.high);
    for (int p = 0; p < NOISE_N_PRECISION; p++) {
        const double tau = rank_tau_of_method(s, m, p, 1, NULL, 0);
        (void)fprintf(s->report->text, " | %.2f", tau);
        json_object_set_new(object, tandem_precision_get(noise_precisions[p])->name, cli_json_number(tau));
    }
    (void)fputs(" |\n", s->report->text);
    json_array_append_new(methods, object);
}

static json_t *oracle_json(const rank_study *s, int p)
{
    const rank_result *result = &s->result[p];
    json_t *noise = json_object();
    for (int k = 0; k < s->lab.n_op; k++)
        json_object_set_new(noise, s->lab.workload.graph[0]->op[s->lab.op[k]].name,
                            cli_json_number(100 * result->noise[k]));
    return json_pack("{s:f,s:i,s:i,s:o}", "error_scale", result->error_scale, "pairs", result->n_pair,
                     "told_apart", result->n_distinguished, "measured", noise);
}

void rank_table_print(rank_study *s)
{
    json_t *methods = json_array(), *oracle = json_object();
    FILE *text = s->report->text;
    (void)fprintf(text, "\n## `%s`\n\n%d operators. Pairs distinguished: ", s->lab.task->model, s->lab.n_op);
    for (int p = 0; p < NOISE_N_PRECISION; p++) {
        const rank_result *result = &s->result[p];
        const char *name = tandem_precision_get(noise_precisions[p])->name;
        (void)fprintf(text, "%s%s %d of %d (%.0f %%)", p ? ",\n" : "", name, result->n_distinguished,
                      result->n_pair, 100.0 * result->n_distinguished / result->n_pair);
        if (result->error_scale > 1) (void)fprintf(text, " with errors × %g", result->error_scale);
        json_object_set_new(oracle, name, oracle_json(s, p));
    }
    (void)fputs(".\n\n| method | unit | needs | steps | τ | bf16 | fp8 | int8_full |\n"
                "|---|---|---|---|---|---|---|---|\n",
                text);
    for (int m = 0; m < RANK_N_METHOD; m++) print_method(s, m, methods);
    json_object_set_new(s->report->json, s->lab.task->model,
                        json_pack("{s:o,s:o}", "oracle", oracle, "methods", methods));
}

static void add_rank_bar(rank_study *s, int t, const char *bar, double value, study_interval interval,
                         int is_met)
{
    json_t *object = json_pack("{s:s,s:s}", "model", s->model[t], "bar", bar);
    json_object_set_new(object, "value", cli_json_number(value));
    json_object_set_new(object, "low", cli_json_number(interval.low));
    json_object_set_new(object, "high", cli_json_number(interval.high));
    study_add_cell(s->report, object, is_met);
    (void)fprintf(s->report->text, "| `%s` | %s | %.2f (%.2f to %.2f) | %s |\n", s->model[t], bar, value,
                  interval.low, interval.high, is_met ? "yes" : "NO");
}

void rank_bars_print(rank_study *s)
{
    const int qsync = rank_method_find("qsync"), random = rank_method_find("random");
    int best = 0;
    double best_sum = -INFINITY;
    for (int m = 0; m < RANK_N_METHOD; m++) {
        double sum = 0;
        for (int t = 0; t < s->n_task; t++) sum += isnan(s->tau[t][m]) ? 0 : s->tau[t][m];
        if (sum > best_sum) {
            best_sum = sum;
            best = m;
        }
    }
    json_object_set_new(s->report->json, "best", json_string(rank_methods[best]->name));
    (void)fprintf(s->report->text,
                  "\n## Bars\n\nThe largest mean of τ over tasks has *%s*.\n\n"
                  "| task | bar | value | met |\n|---|---|---|---|\n",
                  rank_methods[best]->name);
    for (int t = 0; t < s->n_task; t++) {
        const study_interval none = rank_interval_of(s, t, random, -1),
                             above = rank_interval_of(s, t, best, qsync);
        add_rank_bar(s, t, "τ of the best method is 0.9 or more", s->tau[t][best],
                     rank_interval_of(s, t, best, -1), s->tau[t][best] >= study_margin.rank_least_tau);
        add_rank_bar(s, t, "it is above that of qsync: the difference", s->tau[t][best] - s->tau[t][qsync],
                     above, above.low > 0);
        add_rank_bar(s, t, "the interval of random holds 0", s->tau[t][random], none,
                     none.low <= 0 && none.high >= 0);
    }
}
