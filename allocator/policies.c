/* policies.c: the list of allocation policies. */
#include "allocator/policies.h"
#include "base/nearest.h"

#include <string.h>

const tandem_policy *const tandem_policies[] = {
    &tandem_policy_exact, &tandem_policy_greedy, &tandem_policy_qsync, &tandem_policy_uniform, NULL,
};
enum { N_POLICY = sizeof tandem_policies / sizeof tandem_policies[0] - 1 };

const tandem_policy *tandem_policy_get(int index)
{
    return index >= 0 && index < (int)N_POLICY ? tandem_policies[index] : NULL;
}

tandem_status tandem_policy_find(const tandem_policy **policy, const char *name, tandem_error *error)
{
    const char *candidates[N_POLICY];
    for (size_t p = 0; p < N_POLICY; p++) {
        if (strcmp(tandem_policies[p]->name, name) == 0) {
            *policy = tandem_policies[p];
            return TANDEM_OK;
        }
        candidates[p] = tandem_policies[p]->name;
    }
    return tandem_error_set(error, TANDEM_UNKNOWN_NAME,
                            "there is no policy '%.40s'.%s `tandem list policies` shows them.", name,
                            tandem_nearest_hint(name, candidates, N_POLICY).text);
}
