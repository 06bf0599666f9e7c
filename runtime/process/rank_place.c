/* rank_place.c: which rank a process is, and on which cores it runs. */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

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

void rank_note_own_siblings(const tandem_listener *listener, int rank, taken_core *core, int n)
{
    int n_beside = 0;
    for (int k = 0; k < n; k++)
        for (int j = 0; j < n; j++)
            if (core[k].beside == core[j].cpu && core[j].cpu >= 0) {
                n_beside++;
                core[k].beside = -1;
            }
    if (n_beside > 0)
        runtime_note(
            listener,
            "rank %d has %d cores, of which %d are second threads of a physical core that it has, too", rank,
            n, n_beside);
}

tandem_status rank_cores_require(int n_rank, int n_core, int most, const tandem_listener *listener,
                                 tandem_error *error)
{
    const char *const wanted = getenv("TANDEM_OVERSUBSCRIBE"), *why = "";
    int allowed = 0;
    if (most < 2 || cores_suffice(n_core, &allowed, &why)) return TANDEM_OK;
    if (wanted && strcmp(wanted, "1") == 0) {
        runtime_note(listener,
                     "warning: %d threads on %d cores, as TANDEM_OVERSUBSCRIBE asks; measured times are "
                     "unreliable",
                     n_core, allowed);
        return TANDEM_OK;
    }
    return tandem_error_set(
        error, TANDEM_NO_DEVICE,
        "%d rank%s of up to %d cores cannot run here: %s %d in all, and this process may use %d; "
        "%s. Take fewer cores, as in cpu:avx2:%d, or allow more; TANDEM_OVERSUBSCRIBE=1 runs "
        "several threads on a core",
        n_rank, n_rank == 1 ? "" : "s", most, n_rank == 1 ? "it needs" : "they need", n_core, allowed, why,
        allowed / n_rank > 0 ? allowed / n_rank : 1);
}

static void note_taken_cores(const tandem_listener *listener, int rank, const taken_core *taken, int n)
{
    static int is_noted;
    if (is_noted) return;
    is_noted = 1;
    taken_core *const copy = malloc((size_t)n * sizeof *copy);
    if (copy) memcpy(copy, taken, (size_t)n * sizeof *copy);
    if (copy && n > 1) rank_note_own_siblings(listener, rank, copy, n);
    for (int k = 0; copy && k < n; k++) rank_note_shared_core(listener, rank, &copy[k], 0);
    free(copy);
}

tandem_status rank_cores_take(rank_cores *cores, const char *device, const tandem_rank_place *place,
                              const tandem_listener *listener, tandem_error *error)
{
    static int list[CPU_SETSIZE];
    const int n = tandem_device_cores(device);
    const tandem_status status = rank_cores_require(1, n, n, listener, error);
    if (status != TANDEM_OK) return status;
    const taken_core *const own = cores_own(n, place->local * n % CPU_SETSIZE);
    if (!own) return tandem_no_memory(error, "for the cores of rank %d", place->rank);
    note_taken_cores(listener, place->rank, own, n);
    for (int k = 0; k < n; k++) list[k] = own[k].cpu;
    *cores = (rank_cores){n, list};
    return TANDEM_OK;
}
