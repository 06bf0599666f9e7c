/* methods.c: the table of methods that `tandem-study rank` compares. */
#include "research/method/method.h"

#include <string.h>

static const rank_method method_estimated_probe = {"sensed_probe", "%", RANK_NEEDS_ESTIMATED_PROBE, NULL},
                         method_sampled = {"sampled", "%", RANK_NEEDS_ESTIMATE, NULL},
                         method_sampled_noise = {"sampled_noise", "%", RANK_NEEDS_ESTIMATE, NULL},
                         method_fisher = {"fisher", "nats", RANK_NEEDS_STATISTICS, NULL},
                         method_qsync = {"qsync", "none", RANK_NEEDS_STATISTICS, NULL};

const rank_method *const rank_methods[RANK_N_METHOD] = {
    &rank_method_probe,      &method_estimated_probe, &method_sampled,         &method_sampled_noise,
    &rank_method_local,      &method_fisher,          &method_qsync,           &rank_method_qsync_theory,
    &rank_method_taylor_mse, &rank_method_snip_r,     &rank_method_hutchinson, &rank_method_weight_error,
    &rank_method_magnitude,  &rank_method_ends,       &rank_method_random};

int rank_method_find(const char *name)
{
    int m = 0;
    while (strcmp(rank_methods[m]->name, name) != 0) m++;
    return m;
}

const char *rank_needs_name(rank_needs needs)
{
    static const char *const name[] = {"nothing", "statistics", "a probe", "a probe", "a sensing"};
    return name[needs];
}
