/* add_table.c: the tables and bars of a task: measured over summed, of plans and of pairs. */
#include <math.h>

#include "research/add.h"

/* How many plans lie above their sum beyond the interval, and the largest ratio. */
static void print_ceiling(const add_study *s)
{
    double largest = 0;
    int n_above = 0;
    for (int i = 0; i < s->n_plan; i++) {
        n_above += s->result[i].ratio - s->result[i].half > 1;
        largest = fmax(largest, s->result[i].ratio);
    }
    (void)fprintf(s->report->text,
                  "\nThe sum as a ceiling: %d of %d plans lie above it beyond their interval; the largest\n"
                  "ratio is %.2f.\n",
                  n_above, s->n_plan, largest);
}

static void add_add_bar(add_study *s, const char *bar, double value, int is_met)
{
    json_t *object = json_pack("{s:s,s:s}", "model", s->lab.task->model, "bar", bar);
    json_object_set_new(object, "value", cli_json_number(value));
    study_add_cell(s->report, object, is_met);
    (void)fprintf(s->report->text, "| %s | %.3f | %s |\n", bar, value, is_met ? "yes" : "NO");
}

static void print_pair(add_study *s, const char *what, int i, int j, const add_result *of, json_t *pairs)
{
    const tandem_op *op = s->lab.workload.graph[0]->op;
    const char *a = op[s->lab.op[i]].name, *b = op[s->lab.op[j]].name;
    const double ratio = of->shares > 0 ? of->by_operators : of->ratio;
    (void)fprintf(s->report->text, "\n%s: `%s` and\n`%s` have %.2f times the sum of their noises", what, a, b,
                  ratio);
    if (!(of->shares > 0)) (void)fprintf(s->report->text, " (± %.2f)", of->half);
    (void)fputs(".\n", s->report->text);
    json_t *object = json_pack("{s:s,s:s,s:b}", "first", a, "second", b, "shares_cast", of->shares > 0);
    json_object_set_new(object, "ratio", cli_json_number(ratio));
    json_object_set_new(object, "half_width", cli_json_number(of->half));
    json_array_append_new(pairs, object);
}

/* Every pair that reads one cast, and the pair that is furthest off: of those whose interval does not hold
 * 1, if there are any. */
static json_t *print_pairs(add_study *s)
{
    json_t *pairs = json_array();
    int worst[2] = {0, 0}, at = 0, is_beyond = 0;
    const add_result *of_worst = NULL;
    for (int i = 0; i < s->lab.n_op; i++)
        for (int j = i + 1; j < s->lab.n_op; j++, at++) {
            const add_result *of = &s->pair[at];
            const double off = fabs(log(of->ratio));
            const int is_known = fabs(of->ratio - 1) > of->half;
            if (of->shares > 0) print_pair(s, "One cast", i, j, of, pairs);
            if (of->shares > 0 || !isfinite(off) || is_known < is_beyond) continue;
            if (of_worst && is_known == is_beyond && off <= fabs(log(of_worst->ratio))) continue;
            is_beyond = is_known;
            worst[0] = i;
            worst[1] = j;
            of_worst = of;
        }
    if (of_worst)
        print_pair(s, is_beyond ? "The worst pair" : "The worst pair, not beyond its interval", worst[0],
                   worst[1], of_worst, pairs);
    return pairs;
}

static void print_summary(FILE *text, const char *name, const add_summary *of, int has_interval)
{
    if (of->n == 0) return;
    (void)fprintf(text, "| %s | %d | %.3f | %.0f %% |", name, of->n, of->median, 100 * of->close);
    if (has_interval) (void)fprintf(text, " %.0f %%", 100 * of->inside);
    (void)fputs(" |\n", text);
}

static void print_add_bars(add_study *s, const add_summary *all, const add_summary *shared)
{
    (void)fputs("\n| bar | value | met |\n|---|---|---|\n", s->report->text);
    add_add_bar(s, "median within 5 % of 1", all->median,
                fabs(all->median - 1) <= study_margin.add_max_median_off);
    add_add_bar(s, "95 % of plans within 20 %", all->close, all->close >= study_margin.add_least_close);
    if (shared->n > 0)
        add_add_bar(s, "median with a shared cast within 5 % of 1", shared->median,
                    fabs(shared->median - 1) <= study_margin.add_max_median_off);
}

tandem_status add_table_print(add_study *s, tandem_error *error)
{
    add_summary all, single, shared, shared_single;
    tandem_status status = add_summary_of_plans(&all, s, 0, 0, error);
    if (status == TANDEM_OK) status = add_summary_of_plans(&single, s, 0, 1, error);
    if (status == TANDEM_OK) status = add_summary_of_plans(&shared, s, 1, 0, error);
    if (status == TANDEM_OK) status = add_summary_of_plans(&shared_single, s, 1, 1, error);
    if (status != TANDEM_OK) return status;
    FILE *text = s->report->text;
    (void)fprintf(text,
                  "\n## `%s`\n\n| measured over summed | plans | median | within 20 %% | 1 inside |\n"
                  "|---|---|---|---|---|\n",
                  s->lab.task->model);
    print_summary(text, "all plans", &all, 1);
    print_summary(text, "all plans, over single operators", &single, 0);
    print_summary(text, "with a shared cast", &shared, 1);
    print_summary(text, "with a shared cast, over single operators", &shared_single, 0);
    json_t *ratios = json_array(), *pairs = s->pair ? print_pairs(s) : json_array();
    for (int i = 0; i < s->n_plan; i++) json_array_append_new(ratios, cli_json_number(s->result[i].ratio));
    json_t *object =
        json_pack("{s:i,s:b,s:o,s:o,s:o,s:o,s:o}", "plans", s->n_plan, "control", s->role == ADD_CONTROL,
                  "median", cli_json_number(all.median), "close_share", cli_json_number(all.close),
                  "median_by_operators", cli_json_number(single.median), "ratios", ratios, "pairs", pairs);
    json_object_set_new(s->report->json, s->lab.task->model, object);
    print_ceiling(s);
    if (s->role != ADD_ALONE) status = add_scaled_print(s, object, error);
    if (status == TANDEM_OK && s->role != ADD_CONTROL) print_add_bars(s, &all, &shared);
    return status;
}
