/* answer_json.h: an answer as JSON, for programs that ask through a door (tests/truth/door.c,
 * tests/slurm/door.c). Reals have all their digits. */
#pragma once

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "tandem/planner.h"

static inline void print_real(const char *name, double value)
{
    if (isfinite(value))
        printf("  \"%s\": %.17g,\n", name, value);
    else
        printf("  \"%s\": null,\n", name);
}

static inline void print_whole(const char *name, int64_t value)
{
    printf("  \"%s\": %lld,\n", name, (long long)value);
}

static inline void print_classes(const char *name, int n, unsigned bits)
{
    printf("  \"%s\": [", name);
    for (int c = 0; c < n; c++) printf("%s%s", c ? ", " : "", bits >> c & 1 ? "true" : "false");
    printf("],\n");
}

static inline void print_answer(const tandem_answer *answer)
{
    char *const plan_text = tandem_plan_text(answer->plan, tandem_planner_graph(answer->planner, 0));
    const tandem_allocation_problem *problem = tandem_planner_problem(answer->planner);
    const tandem_plan *plan = answer->plan;
    const tandem_allocation *found = &answer->allocation;
    printf("{\n");
    print_whole("step_ns", found->step_ns);
    print_whole("target_ns", found->target_ns);
    print_whole("fastest_ns", found->fastest_ns);
    print_whole("indistinguishable_ns", found->indistinguishable_ns);
    print_real("training_ns", found->training_ns);
    print_real("training_bound_ns", found->training_bound_ns);
    print_real("sensitivity_bound", tandem_sensitivity_value(problem, found->sensitivity_bound));
    print_real("fastest_sensitivity_bound",
               tandem_sensitivity_value(problem, found->fastest_sensitivity_bound));
    print_real("lower_bound", tandem_sensitivity_value(problem, found->certificate.lower_bound));
    print_real("gap", found->certificate.gap);
    printf("  \"proof\": \"%s\",\n  \"method\": \"%s\",\n  \"policy\": \"%s\",\n  \"peak_bytes\": [",
           found->certificate.proof, plan->method, plan->policy);
    for (int c = 0; c < plan->cluster.n_class; c++)
        printf("%s%llu", c ? ", " : "", (unsigned long long)found->peak_bytes[c]);
    printf("],\n");
    print_classes("keeps_base", plan->cluster.n_class, found->keeps_base);
    print_whole("training_from_ns", found->training_from_ns);
    print_classes("training_keeps_base", plan->cluster.n_class, found->training_keeps_base);
    print_real("samples_per_s", answer->goodput.samples_per_s);
    print_real("sensitivity", answer->goodput.sensitivity);
    print_real("sensitivity_low", answer->goodput.low);
    print_real("sensitivity_high", answer->goodput.high);
    print_real("goodput", answer->goodput.goodput);
    printf("  \"plan_file\": %s}\n", plan_text);
    free(plan_text);
}
