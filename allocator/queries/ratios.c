/* ratios.c: whether a plan holds across what is not known of ratios between predicted times. */
#include "allocator/opening.h"
#include "allocator/queries/question.h"

#include <stdio.h>
#include <stdlib.h>

/* A class's times in a precision: [n_task × TANDEM_MAX_VARIANT × 2], alone and contended. */
typedef struct kept_times {
    tandem_replayer *replayer;
    int c;
    tandem_precision precision;
    int64_t *ns;
} kept_times;

typedef struct asked_question {
    tandem_planner *planner;
    const tandem_answer *answer;
    const tandem_policy *policy;
} asked_question;

/* Visits all times; factor 0 keeps them, 1 restores them, another one sets them to so many of those kept. */
static void shift_times(const kept_times *kept, double factor)
{
    const tandem_step *step = tandem_replayer_step(kept->replayer, kept->c);
    for (int t = 0; t < step->n_task; t++) {
        uint64_t left = tandem_step_is_product(step, t) ? tandem_precision_variants(kept->precision) : 0;
        for (; left; left &= left - 1)
            for (int contended = 0; contended < 2; contended++) {
                const int variant = __builtin_ctzll(left);
                int64_t *const ns = &kept->ns[(t * TANDEM_MAX_VARIANT + variant) * 2 + contended];
                if (factor > 0 && *ns > 0)
                    tandem_replayer_set_variant_ns(kept->replayer, kept->c, t, variant, contended,
                                                   (int64_t)((double)*ns * factor));
                else if (!(factor > 0))
                    *ns = tandem_replayer_variant_ns(kept->replayer, kept->c, t, variant, contended);
            }
    }
}

static void compare_precisions(tandem_ratio_shift *shift, int end, const tandem_graph *graph,
                               const tandem_plan *a, const tandem_plan *b)
{
    double most = -1;
    shift->n_changed[end] = 0;
    for (int c = 0; c < a->cluster.n_class; c++)
        for (int i = 0; i < graph->n_op; i++) {
            if (!tandem_op_is_adjustable(&graph->op[i]) ||
                a->assignment.precision[c][i] == b->assignment.precision[c][i])
                continue;
            shift->n_changed[end]++;
            if (graph->op[i].flops <= most) continue;
            most = graph->op[i].flops;
            (void)snprintf(shift->to_measure[end], sizeof shift->to_measure[end], "%s", graph->op[i].name);
        }
}

/* The answer's question again, with the times that the replayer has now. */
static tandem_status ask_again(tandem_ratio_shift *shift, int end, const asked_question *asked,
                               tandem_error *error)
{
    const tandem_answer *const answer = asked->answer;
    tandem_allocation_problem problem = *tandem_planner_problem(asked->planner);
    tandem_allocation there = {.step_ns = 0};
    tandem_plan *plan = NULL;
    tandem_replay kept;
    problem.known_fastest = NULL; /* they are of other times */
    problem.without_certificate = 1;
    tandem_status status = tandem_replayer_run(problem.replayer, &kept, 0, error);
    if (status == TANDEM_OK)
        status = tandem_allocate_for(&plan, &there, &answer->goal, asked->policy, &problem,
                                     tandem_planner_method(asked->planner), error);
    shift->n_changed[end] = -1;
    if (status == TANDEM_INFEASIBLE) return TANDEM_OK;
    if (status != TANDEM_OK) return status;
    compare_precisions(shift, end, problem.graph, answer->plan, plan);
    shift->gain[end] = 1 - (double)there.step_ns / (double)kept.step_ns;
    tandem_plan_close(plan);
    return TANDEM_OK;
}

/* Tasks are numbered by the program that the plan in the replayer needs, so times are set under one plan. */
static void load_answer(tandem_replayer *replayer, const asked_question *asked)
{
    tandem_replayer_load(replayer, &asked->answer->plan->assignment);
}

static tandem_status check_shift(tandem_ratio_shift *shift, const asked_question *asked, tandem_error *error)
{
    tandem_replayer *replayer = tandem_planner_problem(asked->planner)->replayer;
    load_answer(replayer, asked);
    const size_t n_task = (size_t)tandem_replayer_step(replayer, shift->c)->n_task;
    kept_times kept = {.replayer = replayer, .c = shift->c, .precision = shift->precision};
    kept.ns = calloc(n_task * TANDEM_MAX_VARIANT * 2, sizeof *kept.ns);
    if (!kept.ns) return tandem_no_memory(error, "to check %zu times", n_task);
    tandem_status status = TANDEM_OK;
    shift_times(&kept, 0);
    for (int end = 0; end < 2 && status == TANDEM_OK; end++) {
        shift_times(&kept, end == 0 ? 1 + shift->half : 1 / (1 + shift->half));
        status = ask_again(shift, end, asked, error);
        load_answer(replayer, asked);
    }
    shift_times(&kept, 1);
    free(kept.ns);
    return status;
}

tandem_status tandem_answer_check_ratios(tandem_ratio_check *out, tandem_planner *planner,
                                         const tandem_answer *answer,
                                         const tandem_allocation_request *request, tandem_error *error)
{
    tandem_ratio_check check = {.n = 0};
    tandem_replayer *replayer = tandem_planner_problem(planner)->replayer;
    const tandem_cluster *cluster = tandem_replayer_cluster(replayer);
    asked_question asked = {.planner = planner, .answer = answer};
    tandem_status status = tandem_request_policy(&asked.policy, request, error);
    for (int c = 0; c < cluster->n_class && status == TANDEM_OK && answer->split.n_split == 0; c++)
        for (int p = 0; p < TANDEM_N_PRECISION && status == TANDEM_OK; p++) {
            tandem_ratio_shift shift = {.c = c, .precision = (tandem_precision)p};
            if (p == TANDEM_PRECISION_FP32) continue;
            (void)snprintf(shift.device, sizeof shift.device, "%s", cluster->classes[c].device.name);
            shift.ratio = tandem_replayer_product_ratio(&shift.half, replayer, c, (tandem_precision)p);
            if (!(shift.ratio > 0)) continue;
            if (check.n == TANDEM_MAX_RATIO_SHIFT) {
                check.n_left_out++;
                continue;
            }
            status = check_shift(&shift, &asked, error);
            check.shift[check.n++] = shift;
        }
    load_answer(replayer, &asked);
    if (status == TANDEM_OK) *out = check;
    return status;
}
