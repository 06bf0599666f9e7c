/* policies.c: the list of allocation policies. */
#include <string.h>

#include "allocator/policies.h"
#include "base/nearest.h"

static const tandem_policy *const policies[] = {&tandem_policy_exact, &tandem_policy_greedy,
                                                &tandem_policy_qsync, &tandem_policy_uniform};
enum { N_POLICY = sizeof policies / sizeof *policies };

const tandem_policy *tandem_policy_get(int index)
{
    return index >= 0 && index < (int)N_POLICY ? policies[index] : NULL;
}

tandem_status tandem_policy_find(const tandem_policy **policy, const char *name, tandem_error *error)
{
    const char *candidates[N_POLICY];
    for (size_t p = 0; p < N_POLICY; p++) {
        if (strcmp(policies[p]->name, name) == 0) {
            *policy = policies[p];
            return TANDEM_OK;
        }
        candidates[p] = policies[p]->name;
    }
    return tandem_error_set(error, TANDEM_UNKNOWN_NAME,
                            "there is no policy '%.40s'.%s `tandem list policies` shows them.", name,
                            tandem_nearest_hint(name, candidates, N_POLICY).text);
}
