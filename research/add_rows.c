/* add_rows.c: the plans of a task, drawn at random, and the parts over which their noises are summed. */
#include <stdlib.h>
#include <string.h>

#include <gsl/gsl_rng.h>

#include "research/add.h"

enum { MAX_TRIES = 100 }; /* for a plan that is not there yet */

int add_rows_find(const add_rows *rows, const tandem_precision *plan)
{
    const size_t bytes = (size_t)rows->n_op * sizeof *plan;
    int i = rows->n - 1;
    while (i >= 0 && memcmp(rows->plan + (size_t)i * (size_t)rows->n_op, plan, bytes) != 0) i--;
    return i;
}

int add_rows_add(add_rows *rows, const tandem_precision *plan)
{
    const int found = add_rows_find(rows, plan);
    const size_t length = (size_t)rows->n_op;
    if (found >= 0) return found;
    if (rows->n == rows->room) {
        const int room = 2 * rows->room + 64;
        tandem_precision *grown = realloc(rows->plan, (size_t)room * length * sizeof *grown);
        if (!grown) return -1;
        rows->plan = grown;
        rows->room = room;
    }
    memcpy(rows->plan + (size_t)rows->n * length, plan, length * sizeof *plan);
    return rows->n++;
}

static int count_lowered(const add_study *s, const tandem_precision *plan)
{
    int n = 0;
    for (int k = 0; k < s->lab.n_op; k++) n += plan[s->lab.op[k]] != TANDEM_PRECISION_FP32;
    return n;
}

tandem_status add_plans_draw(add_study *s, int n_plan, int seed, tandem_error *error)
{
    const int n_op = s->lab.workload.graph[0]->n_op;
    add_rows rows = {.n_op = n_op};
    tandem_precision *plan = calloc((size_t)n_op, sizeof *plan);
    gsl_rng *random = gsl_rng_alloc(gsl_rng_mt19937);
    int is_allocated = plan && random;
    if (random) gsl_rng_set(random, s->report->options->seed + 1 + (unsigned long)seed);
    for (int tries = 0; is_allocated && rows.n < n_plan && tries < MAX_TRIES; tries++) {
        for (int k = 0; k < s->lab.n_op; k++) {
            const unsigned long p = gsl_rng_uniform_int(random, NOISE_N_PRECISION + 1);
            plan[s->lab.op[k]] = p < NOISE_N_PRECISION ? noise_precisions[p] : TANDEM_PRECISION_FP32;
        }
        if (count_lowered(s, plan) < 2 || add_rows_find(&rows, plan) >= 0) continue;
        is_allocated = add_rows_add(&rows, plan) >= 0;
        tries = -1;
    }
    if (random) gsl_rng_free(random);
    free(plan);
    s->plan = rows.plan;
    s->n_plan = rows.n;
    if (!is_allocated) return tandem_no_memory(error, "for random plans");
    return s->n_plan > 0 ? TANDEM_OK
                         : tandem_error_set(error, TANDEM_BUG, "a task of the study has no plans");
}

int add_plan_shares_cast(const add_study *s, const tandem_precision *plan, int i, int j)
{
    const tandem_graph *graph = s->lab.workload.graph[0];
    return plan[i] == plan[j] && graph->view[graph->op[i].input[0]] == graph->view[graph->op[j].input[0]];
}

int add_rows_sum_parts(double *weight, add_rows *rows, const add_study *s, const tandem_precision *plan,
                       int is_single)
{
    tandem_precision *part = calloc((size_t)rows->n_op, sizeof *part);
    int is_allocated = part != NULL;
    for (int k = 0; k < s->lab.n_op && is_allocated; k++) {
        const int op = s->lab.op[k];
        int is_first = plan[op] != TANDEM_PRECISION_FP32;
        memset(part, 0, (size_t)rows->n_op * sizeof *part); /* fp32 */
        part[op] = plan[op];
        for (int j = 0; j < s->lab.n_op && !is_single; j++) {
            const int other = s->lab.op[j];
            if (other == op || !add_plan_shares_cast(s, plan, op, other)) continue;
            part[other] = plan[other];
            is_first = is_first && other > op;
        }
        if (!is_first) continue;
        const int row = add_rows_add(rows, part);
        is_allocated = row >= 0;
        if (weight && is_allocated) weight[row] += 1;
    }
    free(part);
    return is_allocated;
}

tandem_status add_rows_of_plans(add_rows *rows, const add_study *s, const tandem_precision *plan, int n,
                                tandem_error *error)
{
    int is_allocated = 1;
    *rows = (add_rows){.n_op = s->lab.workload.graph[0]->n_op};
    for (int i = 0; i < n && is_allocated; i++) {
        const tandem_precision *one = plan + (size_t)i * (size_t)rows->n_op;
        is_allocated = add_rows_add(rows, one) >= 0 && add_rows_sum_parts(NULL, rows, s, one, 0) &&
                       add_rows_sum_parts(NULL, rows, s, one, 1);
    }
    return is_allocated ? TANDEM_OK : tandem_no_memory(error, "for plans and their parts");
}
