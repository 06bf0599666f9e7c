/* whatif_parts.h: finds a part of a what-if analysis by its name. */
#ifndef TANDEM_TESTS_WHATIF_PARTS_H
#define TANDEM_TESTS_WHATIF_PARTS_H

#include "tandem/advanced/whatif.h"
#include "tests/support/tandem_test.h"

static inline const tandem_whatif_part *part_of(const tandem_whatif_parts *parts, const char *name)
{
    for (int k = 0; k < parts->n; k++)
        if (strcmp(parts->part[k].name, name) == 0) return &parts->part[k];
    fail_msg("no part '%s'", name);
    return NULL;
}

static inline void expect_part(const tandem_whatif_parts *parts, const char *name, int64_t with_ns,
                               int64_t without_ns)
{
    const tandem_whatif_part *const part = part_of(parts, name);
    if (part->with_ns != with_ns || part->without_ns != without_ns)
        fail_msg("%s: with %lld, without %lld; expected %lld, %lld", name, (long long)part->with_ns,
                 (long long)part->without_ns, (long long)with_ns, (long long)without_ns);
}

#endif
