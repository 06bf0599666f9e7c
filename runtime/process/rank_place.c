/* rank_place.c: which rank a process is, and on which core it runs. */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>

#include "runtime/process/rank_place.h"

#include "runtime/listener.h"

static int read_environment_number(const char *variable, long *number)
{
    const char *text = getenv(variable);
    if (!text) return 0;
    char *end = NULL;
    errno = 0;
    *number = strtol(text, &end, 10);
    return errno || end == text || *end ? -1 : 1;
}

int rank_place_from_environment(tandem_rank_place *place, tandem_error *error)
{
    long number = 0, size = 0, local = 0;
    const int has_rank = read_environment_number("RANK", &number),
              has_size = read_environment_number("WORLD_SIZE", &size);
    if (!has_rank && !has_size) return 0;
    const char *store = getenv("TANDEM_STORE");
    if (has_rank < 0 || has_size < 0 || !has_rank || !has_size || size < 1 || size > 4096 || number < 0 ||
        number >= size) {
        (void)tandem_error_set(
            error, TANDEM_USAGE,
            "invalid RANK='%s' or WORLD_SIZE='%s': a run of N ranks has WORLD_SIZE=N and RANK from 0 to N-1",
            getenv("RANK") ? getenv("RANK") : "", getenv("WORLD_SIZE") ? getenv("WORLD_SIZE") : "");
        return -1;
    }
    if (size > 1 && (!store || !*store)) {
        (void)tandem_error_set(error, TANDEM_USAGE,
                               "TANDEM_STORE is not set. Give all ranks the same empty directory");
        return -1;
    }
    if (read_environment_number("LOCAL_RANK", &local) != 1) local = number;
    *place = (tandem_rank_place){.rank = (int)number,
                                 .n_rank = (int)size,
                                 .folder = store,
                                 .local = local >= 0 ? (int)(local % CPU_SETSIZE) : 0};
    return 1;
}

/* Of a core that `n_own` ranks of this run have, too. */
void rank_note_shared_core(const tandem_listener *listener, int rank, const taken_core *core, int n_own)
{
    if (core->cpu < 0)
        runtime_note(listener, "rank %d runs on any core: the system does not report which it may use", rank);
    else if (core->lock < 0)
        runtime_note(listener, "rank %d runs on core %d without a lock: whether others do, too, is not known",
                     rank, core->cpu);
    else if (core->n_other > n_own)
        runtime_note(
            listener,
            "warning: rank %d shares core %d with another run: all that it may use are taken; measured times "
            "are unreliable",
            rank, core->cpu);
    else if (core->beside >= 0)
        runtime_note(listener,
                     "rank %d runs on core %d and another on core %d: both are threads of one physical core",
                     rank, core->cpu, core->beside);
}

int rank_core(const tandem_rank_place *place, const tandem_listener *listener)
{
    static int is_noted;
    const taken_core *const own = core_own(place->local);
    if (!is_noted) rank_note_shared_core(listener, place->rank, own, 0);
    is_noted = 1;
    return own->cpu;
}
