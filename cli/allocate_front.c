/* allocate_front.c: `tandem allocate --front`: what can be had for which step. */
#include <stdio.h>
#include <stdlib.h>

#include "base/quantity.h"
#include "cli/allocate.h"
#include "cli/table.h"

/* A row of the table: a plan of the front, or a uniform one. */
typedef struct row {
    const char *name, *remark;
    int64_t step_ns;
    double sensitivity;
    uint64_t peak_bytes;
} row;

static int by_step(const void *a, const void *b)
{
    const row *x = a, *y = b;
    return (x->step_ns > y->step_ns) - (x->step_ns < y->step_ns);
}

static uint64_t largest(const uint64_t *peak_bytes)
{
    uint64_t most = 0;
    for (int c = 0; c < TANDEM_MAX_CLASS; c++)
        if (peak_bytes[c] > most) most = peak_bytes[c];
    return most;
}

static int print_rows(const allocating *a, const row *rows, int n)
{
    char step[TANDEM_QUANTITY_TEXT], bytes[TANDEM_QUANTITY_TEXT];
    cli_table table = {0};
    cli_table_row(&table, "plan\t>step\t>ns\t>sensitivity (%s)\t>memory\t",
                  cli_method_text(tandem_planner_method(a->planner)));
    for (int k = 0; k < n; k++)
        cli_table_row(&table, "%s\t%s\t%lld\t%.4g\t%s\t%s", rows[k].name,
                      tandem_quantity_print_ns(step, sizeof step, rows[k].step_ns),
                      (long long)rows[k].step_ns, rows[k].sensitivity,
                      tandem_quantity_print_bytes(bytes, sizeof bytes, rows[k].peak_bytes), rows[k].remark);
    const int code = cli_table_print(&table);
    cli_table_free(&table);
    return code;
}

static int print_text(const allocating *a, const tandem_pareto_front *front)
{
    const int n = front->n_point + front->n_baseline;
    row *rows = calloc((size_t)n + 1, sizeof *rows);
    if (!rows) return cli_refuse(TANDEM_NO_MEMORY, "no memory for a table");
    for (int k = 0; k < front->n_point; k++)
        rows[k] = (row){"allocated", "", front->point[k].step_ns, front->point[k].sensitivity,
                        front->point[k].peak_bytes};
    for (int k = 0; k < front->n_baseline; k++) {
        const tandem_baseline *u = &front->baseline[k];
        rows[front->n_point + k] =
            (row){u->name, u->fits ? "" : "lacks memory", u->step_ns, u->sensitivity, largest(u->peak_bytes)};
    }
    qsort(rows, (size_t)n, sizeof *rows, by_step);
    char scale[TANDEM_LOSS_SCALE_TEXT];
    printf("%s by policy %s: %lld replays; --target makes one of these plans\n", a->problem->graph->model,
           a->policy->name, (long long)front->replays);
    if (a->loss_scale != 0)
        printf("every step has a loss scale in it (--loss-scale %s), which gradients in f16 need\n",
               tandem_loss_scale_print(scale, a->loss_scale));
    putchar('\n');
    const int code = print_rows(a, rows, n);
    free(rows);
    return code;
}

static int print_json(const allocating *a, const tandem_pareto_front *front)
{
    json_t *result = cli_json("allocate"), *points = json_array(), *uniform = json_array();
    for (int k = 0; k < front->n_point; k++) {
        const tandem_pareto_point *p = &front->point[k];
        json_array_append_new(points,
                              json_pack("{s:I,s:I,s:o,s:o,s:I}", "target_ns", (json_int_t)p->target_ns,
                                        "step_ns", (json_int_t)p->step_ns, "sensitivity",
                                        cli_number(p->sensitivity), "lower_bound", cli_number(p->lower_bound),
                                        "peak_bytes", (json_int_t)p->peak_bytes));
    }
    for (int k = 0; k < front->n_baseline; k++) {
        const tandem_baseline *u = &front->baseline[k];
        json_array_append_new(uniform,
                              json_pack("{s:s,s:s,s:I,s:o,s:I,s:b}", "name", u->name, "precision",
                                        tandem_precision_get(u->precision)->name, "step_ns",
                                        (json_int_t)u->step_ns, "sensitivity", cli_number(u->sensitivity),
                                        "peak_bytes", (json_int_t)largest(u->peak_bytes), "fits", u->fits));
    }
    json_object_set_new(result, "model", json_string(a->problem->graph->model));
    json_object_set_new(result, "policy", json_string(a->policy->name));
    json_object_set_new(result, "method", json_string(tandem_planner_method(a->planner)));
    json_object_set_new(result, "loss_scale", cli_loss_scale_json(a->loss_scale));
    json_object_set_new(result, "replays", json_integer(front->replays));
    json_object_set_new(result, "front", points);
    json_object_set_new(result, "uniform", uniform);
    return cli_print_json(result);
}

int allocate_front(allocating *a)
{
    tandem_error error = {0};
    tandem_pareto_front *front = NULL;
    int code = 0;
    tandem_status status =
        tandem_pareto_front_open(&front, a->policy, a->problem, (int)a->options->pareto, &error);
    if (status == TANDEM_MISSING && a->options->loss_scale == 0 && a->loss_scale != 0) {
        status = allocate_reopen(a, 0, &error);
        if (status == TANDEM_OK)
            status = tandem_pareto_front_open(&front, a->policy, a->problem, (int)a->options->pareto, &error);
    }
    if (status == TANDEM_INFEASIBLE) return allocate_shortfall(a, &error);
    if (status == TANDEM_OK && a->options->svg) status = allocate_svg(front, a, a->options->svg, &error);
    if (status != TANDEM_OK)
        code = cli_fail(&error);
    else
        code = a->options->json ? print_json(a, front) : print_text(a, front);
    if (code == 0 && a->options->svg) cli_note(a->options, "drawn in %s", a->options->svg);
    tandem_pareto_front_close(front);
    return code;
}
