/* allocate_pareto.c: `tandem allocate --pareto`: the Pareto front of step time, sensitivity and memory. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/quantity.h"
#include "cli/answer.h"
#include "cli/command/allocate.h"
#include "cli/table.h"

/* A plan of the front, or a uniform baseline. */
typedef struct pareto_row {
    const char *name, *remark;
    int64_t step_ns, sensitivity;
    uint64_t peak_bytes;
    const tandem_goodput *goodput;
} pareto_row;

/* A front with the goodput of each of its plans. */
typedef struct known_front {
    tandem_pareto_front *front;
    tandem_goodput *goodput; /* [front->n_point] */
    tandem_goodput baseline_goodput[TANDEM_N_PRECISION];
    /* [front->n_point] what the next faster point needs more than this one; NaN: unknown, or the fastest */
    tandem_sensitivity_difference *difference;
} known_front;

/* Whether the interval of the difference to the next faster point holds 0. */
static int is_indistinguishable(const known_front *known, int k) { return known->difference[k].low <= 0; }

static int compare_pareto_rows(const void *a, const void *b)
{
    const pareto_row *x = a, *y = b;
    return (x->step_ns > y->step_ns) - (x->step_ns < y->step_ns);
}

static uint64_t pareto_peak_bytes(const uint64_t *peak_bytes)
{
    uint64_t max = 0;
    for (int c = 0; c < TANDEM_MAX_CLASS; c++)
        if (peak_bytes[c] > max) max = peak_bytes[c];
    return max;
}

static int print_pareto_rows(const allocate_context *a, const pareto_row *rows, int n)
{
    cli_table table = {0};
    cli_table_row(&table, "plan\t>step\t>ns\t>sum (%s)\t>extra samples %% (sampling)\t>goodput/s\t>memory\t",
                  cli_method_text(tandem_planner_method(a->planner)));
    for (int k = 0; k < n; k++) {
        char text[SENSITIVITY_TEXT];
        const tandem_goodput *goodput = rows[k].goodput;
        cli_table_row(&table, "%s\t%s\t%lld\t%s\t%s\t%s\t%s\t%s", rows[k].name,
                      tandem_quantity_ns(rows[k].step_ns).text, (long long)rows[k].step_ns,
                      allocate_sum(a, goodput, rows[k].sensitivity).text, goodput_sensitivity(text, goodput),
                      goodput_rate(goodput, GOODPUT_DIGITS).text, CLI_PEAK_TEXT(rows[k].peak_bytes),
                      rows[k].remark);
    }
    return cli_table_finish(&table);
}

/* How many of the plans found have a loss scale. */
static void print_pareto_loss_scales(const tandem_pareto_front *pareto)
{
    int n = 0;
    for (int k = 0; k < pareto->n_point; k++) n += pareto->point[k].plan->loss_scale != 0;
    if (n > 0)
        printf("%d of %d allocated plans have a loss scale, since their gradients are f16; it is in their "
               "steps\n",
               n, pareto->n_point);
}

static int print_pareto_text(const allocate_context *a, const known_front *known)
{
    const tandem_pareto_front *pareto = known->front;
    const int n = pareto->n_point + pareto->n_baseline;
    pareto_row *rows = calloc((size_t)n + 1, sizeof *rows);
    if (!rows) return cli_fail_with(TANDEM_NO_MEMORY, "no memory for a table");
    for (int k = 0; k < pareto->n_point; k++)
        rows[k] =
            (pareto_row){"allocated",
                         is_indistinguishable(known, k) ? "indistinguishable from the next faster one" : "",
                         pareto->point[k].step_ns,
                         pareto->point[k].sensitivity_bound,
                         pareto->point[k].peak_bytes,
                         &known->goodput[k]};
    for (int k = 0; k < pareto->n_baseline; k++) {
        const tandem_baseline *u = &pareto->baseline[k];
        rows[pareto->n_point + k] = (pareto_row){u->name,
                                                 u->fits ? "" : "out of memory",
                                                 u->step_ns,
                                                 u->sensitivity_bound,
                                                 pareto_peak_bytes(u->peak_bytes),
                                                 &known->baseline_goodput[k]};
    }
    qsort(rows, (size_t)n, sizeof *rows, compare_pareto_rows);
    answer_line("front", "%d plans that none beats in step, sum and memory together; --max-step selects one",
                pareto->n_point);
    answer_line("search", "%s by policy %s, %lld replays", a->problem->graph->model,
                pareto->point[0].plan->policy, (long long)pareto->replays);
    print_pareto_loss_scales(pareto);
    if (pareto->n_point > 0 && !known->goodput[0].is_known) answer_extra_samples(&known->goodput[0]);
    putchar('\n');
    const int code = print_pareto_rows(a, rows, n);
    free(rows);
    return code;
}

static void add_difference_json(json_t *point, const known_front *known, int k)
{
    const tandem_sensitivity_difference *d = &known->difference[k];
    json_object_set_new(point, "difference", cli_json_number(100 * d->value));
    json_object_set_new(point, "difference_low", cli_json_number(100 * d->low));
    json_object_set_new(point, "difference_high", cli_json_number(100 * d->high));
    json_object_set_new(point, "indistinguishable",
                        isnan(d->value) ? json_null() : json_boolean(is_indistinguishable(known, k)));
}

static json_t *pareto_result_json(const allocate_context *a, const known_front *known)
{
    const tandem_pareto_front *pareto = known->front;
    json_t *result = cli_json_new("allocate"), *points = json_array(), *uniform = json_array();
    for (int k = 0; k < pareto->n_point; k++) {
        const tandem_pareto_point *p = &pareto->point[k];
        json_t *point = json_pack(
            "{s:I,s:I,s:o,s:o,s:o}", "target_ns", (json_int_t)p->target_ns, "step_ns", (json_int_t)p->step_ns,
            "sensitivity_bound", cli_json_number(allocate_value(a, p->sensitivity_bound)), "lower_bound",
            cli_json_number(p->plan->lower_bound), "peak_bytes", cli_peak_json(p->peak_bytes));
        json_object_set_new(point, "loss_scale", cli_loss_scale_json(p->plan->loss_scale));
        json_object_set_new(point, "keeps_base", allocate_kept_json(p->plan, p->plan->keeps_base));
        goodput_add_json(point, &known->goodput[k]);
        add_difference_json(point, known, k);
        json_array_append_new(points, point);
    }
    for (int k = 0; k < pareto->n_baseline; k++) {
        const tandem_baseline *u = &pareto->baseline[k];
        json_t *one =
            json_pack("{s:s,s:s,s:I,s:o,s:o,s:b}", "name", u->name, "precision",
                      tandem_precision_get(u->precision)->name, "step_ns", (json_int_t)u->step_ns,
                      "sensitivity_bound", cli_json_number(allocate_value(a, u->sensitivity_bound)),
                      "peak_bytes", cli_peak_json(pareto_peak_bytes(u->peak_bytes)), "fits", u->fits);
        goodput_add_json(one, &known->baseline_goodput[k]);
        json_array_append_new(uniform, one);
    }
    json_object_set_new(result, "model", json_string(a->problem->graph->model));
    json_object_set_new(result, "policy", json_string(pareto->point[0].plan->policy));
    json_object_set_new(result, "method", json_string(tandem_planner_method(a->planner)));
    json_object_set_new(result, "loss_scale", cli_loss_scale_json(a->options->loss_scale));
    json_object_set_new(result, "replays", json_integer(pareto->replays));
    json_object_set_new(result, "pareto", points);
    json_object_set_new(result, "baselines", uniform);
    return result;
}

static tandem_status find_front(tandem_pareto_front **front, const allocate_context *a, tandem_error *error)
{
    const tandem_policy *policy = tandem_policy_get(0);
    const tandem_status status =
        a->request.policy ? tandem_policy_find(&policy, a->request.policy, error) : TANDEM_OK;
    return status == TANDEM_OK
               ? tandem_pareto_front_open(front, policy, a->problem, (int)a->options->pareto, error)
               : status;
}

static tandem_status compare_neighbours(known_front *known, const allocate_context *a, int k,
                                        tandem_error *error)
{
    const tandem_pareto_point *point = known->front->point;
    const tandem_estimate *estimate = NULL;
    const char *why = NULL;
    known->difference[k] = (tandem_sensitivity_difference){NAN, NAN, NAN};
    const tandem_status status = tandem_planner_estimate(&estimate, &why, a->planner, error);
    if (status != TANDEM_OK || k == 0 || !estimate || !known->goodput[k].is_known ||
        !known->goodput[k - 1].is_known)
        return status;
    return tandem_plan_sensitivity_compare(&known->difference[k], estimate, point[k - 1].plan, point[k].plan,
                                           a->problem->graph, error);
}

static tandem_status find_goodputs(known_front *known, const allocate_context *a, tandem_error *error)
{
    const tandem_pareto_front *front = known->front;
    known->goodput = calloc((size_t)front->n_point + 1, sizeof *known->goodput);
    known->difference = calloc((size_t)front->n_point + 1, sizeof *known->difference);
    tandem_status status = known->goodput && known->difference
                               ? TANDEM_OK
                               : tandem_no_memory(error, "for the goodputs of a front");
    for (int k = 0; k < front->n_point && status == TANDEM_OK; k++) {
        status = tandem_planner_goodput(&known->goodput[k], a->planner, front->point[k].plan, error);
        if (status == TANDEM_OK) status = compare_neighbours(known, a, k, error);
    }
    for (int k = 0; k < front->n_baseline && status == TANDEM_OK; k++)
        status = tandem_baseline_goodput(&known->baseline_goodput[k], a->planner, &front->baseline[k],
                                         front->point[0].plan, error);
    return status;
}

int allocate_pareto(allocate_context *a)
{
    tandem_error error = {0};
    known_front pareto = {.front = NULL};
    int code = 0;
    cli_progress(a->options, -1, "allocating for %lld targets", (long long)a->options->pareto);
    tandem_status status = find_front(&pareto.front, a, &error);
    if (status == TANDEM_OK) status = find_goodputs(&pareto, a, &error);
    cli_progress_end();
    if (status == TANDEM_INFEASIBLE) return allocate_explain_infeasible(a, &error);
    if (status != TANDEM_OK)
        code = cli_fail(&error);
    else
        code =
            a->options->json ? cli_print_json(pareto_result_json(a, &pareto)) : print_pareto_text(a, &pareto);
    if (code == 0 && a->options->report)
        code = cli_report_write_result(a->options, pareto_result_json(a, &pareto), "allocate --pareto");
    tandem_pareto_front_close(pareto.front);
    free(pareto.goodput);
    free(pareto.difference);
    return code;
}
