/* comm.c: opens and closes communicators, and allocates the memory that their ranks share. */
#include "backend/comm/comm_state.h"

#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "backend/comm/mesh.h"
#include "base/hash.h"

/* Runs on the thread of the watch. */
static void abort_if_broken(void *context, int64_t counted_ns)
{
    tandem_comm *comm = context;
    pthread_mutex_lock(&comm->mutex);
    const bool is_running = comm->n_running > 0;
    pthread_mutex_unlock(&comm->mutex);
    if (is_running) tandem_gloo_count_wait(comm->gloo, counted_ns);
    if (is_running && tandem_membership_is_broken(&comm->membership)) tandem_gloo_abort(comm->gloo);
}

/* --- Opening and closing -------------------------------------------------------------------------------- */

static tandem_status check_comm_options(const tandem_comm_options *options, tandem_error *error)
{
    if (options->n_rank < 1 || options->rank < 0 || options->rank >= options->n_rank)
        return tandem_error_set(error, TANDEM_USAGE,
                                "rank %d of %d ranks; RANK counts from 0 to WORLD_SIZE - 1", options->rank,
                                options->n_rank);
    if (options->timeout_ns <= 0)
        return tandem_error_set(error, TANDEM_USAGE, "a timeout of %lld ns; it must be longer than 0",
                                (long long)options->timeout_ns);
    if (options->cpu >= CPU_SETSIZE)
        return tandem_error_set(error, TANDEM_USAGE, "core %d; they are counted up to %d, -1 = any",
                                options->cpu, CPU_SETSIZE - 1);
    if (options->wire != TANDEM_F32 && options->wire != TANDEM_BF16)
        return tandem_error_set(error, TANDEM_USAGE, "gradients travel in f32 or bf16, not in type %d",
                                (int)options->wire);
    if (options->n_rank > 1 && !options->store)
        return tandem_error_set(error, TANDEM_USAGE,
                                "no store; %d ranks need a directory that all of them reach (TANDEM_STORE)",
                                options->n_rank);
    return TANDEM_OK;
}

static tandem_status choose_network_interface(const char **interface, tandem_error *error)
{
    const char *name = getenv("TANDEM_IFACE");
    if (name && !*name) name = NULL;
    if (name && if_nametoindex(name) == 0)
        return tandem_error_set(
            error, TANDEM_USAGE,
            "TANDEM_IFACE is '%s', but this host has no network interface of that name; `ip address` lists "
            "them, unset means the loopback",
            name);
    *interface = name;
    return TANDEM_OK;
}

/* Gloo's thread inherits core and signal mask from the thread that starts it. It must handle no signal and
 * ignore SIGPIPE. */
static tandem_status start_gloo(tandem_comm *comm, const char *interface, int cpu, tandem_error *error)
{
    cpu_set_t before;
    if (cpu >= 0) {
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET((size_t)cpu, &one);
        if (pthread_getaffinity_np(pthread_self(), sizeof before, &before) != 0 ||
            pthread_setaffinity_np(pthread_self(), sizeof one, &one) != 0)
            return tandem_error_set(error, TANDEM_USAGE, "core %d is not one that this process may run on",
                                    cpu);
    }
    sigset_t all, mask;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &mask);
    tandem_gloo_error reason;
    const tandem_gloo_result result = tandem_gloo_open(&comm->gloo, interface, &reason);
    pthread_sigmask(SIG_SETMASK, &mask, NULL);
    if (cpu >= 0) pthread_setaffinity_np(pthread_self(), sizeof before, &before);
    if (result == TANDEM_GLOO_OK) return TANDEM_OK;
    return tandem_error_set(error, result == TANDEM_GLOO_NO_MEMORY ? TANDEM_NO_MEMORY : TANDEM_IO,
                            "cannot open a TCP device on the network interface '%s': %s",
                            interface ? interface : "lo", reason.text);
}

/* Hands the connections of all ranks to Gloo. file[n_rank]. */
static tandem_status connect_mesh(tandem_comm *comm, const char *interface, int64_t timeout_ns, int *file,
                                  tandem_error *error)
{
    const tandem_mesh_options options = {
        .membership = &comm->membership, .interface = interface, .timeout_ns = timeout_ns};
    tandem_error why = {TANDEM_OK, -1, ""};
    const tandem_status status = tandem_mesh_connect(file, &comm->n_stranger, &options, &why);
    if (status == TANDEM_RANK_FAILED)
        return tandem_comm_fail(comm, TANDEM_GLOO_FAILED, TANDEM_JOINING, why.text, error);
    if (status != TANDEM_OK) {
        if (error) *error = why;
        return status;
    }
    tandem_gloo_error reason;
    const tandem_gloo_result result =
        tandem_gloo_connect(comm->gloo, file, comm->rank, comm->n_rank, &reason);
    for (int r = 0; r < comm->n_rank; r++)
        if (file[r] >= 0) (void)close(file[r]);
    return result == TANDEM_GLOO_OK ? TANDEM_OK
                                    : tandem_comm_fail(comm, result, TANDEM_JOINING, reason.text, error);
}

/* Connects the ranks, which are all there. Each has the whole timeout for it, so that they give up
 * together. */
static tandem_status connect_all_ranks(tandem_comm *comm, const char *interface, int64_t timeout_ns,
                                       tandem_error *error)
{
    sigset_t mask;
    int *file = calloc((size_t)comm->n_rank, sizeof *file);
    if (!file) return tandem_comm_fail(comm, TANDEM_GLOO_NO_MEMORY, TANDEM_JOINING, "", error);
    tandem_comm_block_sigpipe(&mask);
    tandem_status status = connect_mesh(comm, interface, timeout_ns, file, error);
    tandem_comm_unblock_sigpipe(&mask);
    free(file);
    if (status == TANDEM_OK) status = tandem_watch_open(&comm->watch, abort_if_broken, comm, error);
    /* No rank may leave, and be reported as failed, before all are connected. */
    return status == TANDEM_OK ? tandem_comm_barrier(comm, 0, error) : status;
}

/* All ranks report the reason of the first rank that has one. */
static tandem_status gather_memory_errors(tandem_comm *comm, const char *own, uint32_t tag,
                                          tandem_error *error)
{
    enum { REASON_BYTES = TANDEM_ERROR_TEXT - 32 };
    char *all = malloc((size_t)comm->n_rank * REASON_BYTES);
    if (!all) return tandem_comm_fail(comm, TANDEM_GLOO_NO_MEMORY, "the sharing of memory", "", error);
    const tandem_status status = tandem_comm_gather(comm, own, all, REASON_BYTES, tag, error);
    for (int r = 0; r < comm->n_rank && status == TANDEM_OK; r++) {
        const char *reason = all + (size_t)r * REASON_BYTES;
        if (*reason && !*comm->shared_memory_error)
            (void)snprintf(comm->shared_memory_error, sizeof comm->shared_memory_error, "rank %d: %.*s", r,
                           REASON_BYTES - 1, reason);
    }
    free(all);
    return status;
}

/* TANDEM_IO: the ranks share no memory, now and later. */
static tandem_status open_shared_region(tandem_shm_region *region, tandem_comm *comm, uint64_t bytes,
                                        int is_disabled, uint32_t tag, tandem_error *error)
{
    tandem_error own = {TANDEM_OK, -1, ""};
    const tandem_shm_region_options options = {.rank = comm->rank,
                                               .n_rank = comm->n_rank,
                                               .bytes = bytes,
                                               .common_bytes = tandem_shared_sum_bytes(comm->n_rank),
                                               .is_disabled = is_disabled,
                                               .locking = comm->locking,
                                               .tag = tag};
    const tandem_status status = tandem_shm_region_open(region, comm, &options, &own);
    if (status == TANDEM_IO) {
        comm->shares_memory = false;
        const tandem_status reported = gather_memory_errors(comm, own.text, tag, error);
        return reported == TANDEM_OK ? TANDEM_IO : reported;
    }
    if (status != TANDEM_OK && error) *error = own;
    return status;
}

/* Tries it with a part of one byte, because a device may be unable to lock its part. */
static tandem_status try_shared_memory(tandem_comm *comm, int is_disabled, tandem_error *error)
{
    tandem_shm_region trial_region;
    const tandem_status status = open_shared_region(&trial_region, comm, 1, is_disabled, 0, error);
    comm->shares_memory = status == TANDEM_OK;
    if (status == TANDEM_OK) tandem_shm_region_close(&trial_region);
    return status == TANDEM_IO ? TANDEM_OK : status;
}

/* Sums in different types would wait for each other. Every rank gets the same error: no rank leaves before
 * all know. */
static tandem_status check_same_wire(tandem_comm *comm, tandem_error *error)
{
    static const char *const name[] = {[TANDEM_F32] = "f32", [TANDEM_BF16] = "bf16"};
    int32_t own = (int32_t)comm->wire, *all = malloc((size_t)comm->n_rank * sizeof *all);
    if (!all) return tandem_comm_fail(comm, TANDEM_GLOO_NO_MEMORY, TANDEM_JOINING, "", error);
    tandem_status status = tandem_comm_gather(comm, &own, all, sizeof own, 0, error);
    int other = 1;
    while (status == TANDEM_OK && other < comm->n_rank && all[other] == all[0]) other++;
    if (status == TANDEM_OK && other < comm->n_rank) {
        (void)tandem_comm_barrier(comm, 0, NULL);
        status = tandem_error_set(error, TANDEM_USAGE,
                                  "gradients travel in %s from rank 0, and in %s from rank %d; all ranks "
                                  "need the same type (--wire f32 or bf16)",
                                  name[all[0]], name[all[other]], other);
        if (error) error->rank = 0;
    }
    free(all);
    return status;
}

/* --- Agreement ------------------------------------------------------------------------------------------ */

typedef struct agreement_size {
    uint64_t hash, bytes;
} agreement_size;

/* The first line in which two texts differ, without its end. */
static void find_difference(const char **mine, const char **other)
{
    while (**mine && **other) {
        const size_t n = strcspn(*mine, "\n"), m = strcspn(*other, "\n");
        if (n != m || memcmp(*mine, *other, n) != 0) break;
        *mine += n + ((*mine)[n] == '\n');
        *other += m + ((*other)[m] == '\n');
    }
}

static void describe_difference(const char *mine, const char *other, int rank, tandem_error *error)
{
    find_difference(&mine, &other);
    const int n = (int)strcspn(mine, "\n"), m = (int)strcspn(other, "\n");
    (void)tandem_error_set(
        error, TANDEM_USAGE,
        "the ranks were not started alike: rank 0 has '%.*s', rank %d has '%.*s'. Start all "
        "ranks with the same program, options and files",
        n < 300 ? n : 300, mine, rank, m < 300 ? m : 300, other);
}

/* The ranks' texts differ: all ranks read them, and find the same difference. */
static tandem_status find_different_rank(tandem_comm *comm, const char *own, const agreement_size *size,
                                         tandem_error *error)
{
    uint64_t bytes = 0;
    for (int r = 0; r < comm->n_rank; r++) bytes = size[r].bytes > bytes ? size[r].bytes : bytes;
    bytes++;
    char *mine = calloc(1, bytes), *all = calloc((size_t)comm->n_rank, bytes);
    if (!mine || !all) {
        free(mine);
        free(all);
        return tandem_comm_fail(comm, TANDEM_GLOO_NO_MEMORY, TANDEM_JOINING, "", error);
    }
    memcpy(mine, own, size[comm->rank].bytes);
    tandem_status status = tandem_comm_gather(comm, mine, all, bytes, 0, error);
    if (status == TANDEM_OK) {
        tandem_error why;
        int other = 1;
        while (other < comm->n_rank - 1 && memcmp(all, all + (size_t)other * bytes, bytes) == 0) other++;
        describe_difference(all, all + (size_t)other * bytes, other, &why);
        status = tandem_membership_refuse_all(&comm->membership, &why);
        (void)tandem_comm_barrier(comm, 0, NULL); /* no rank leaves before all know */
        if (error) *error = why;
    }
    free(mine);
    free(all);
    return status;
}

/* Costs one gather of 16 bytes where all agree. */
static tandem_status check_agreement(tandem_comm *comm, const char *text, tandem_error *error)
{
    const char *own = text ? text : "";
    const agreement_size mine = {tandem_hash_text(TANDEM_HASH_START, own), strlen(own)};
    agreement_size *all = calloc((size_t)comm->n_rank, sizeof *all);
    if (!all) return tandem_comm_fail(comm, TANDEM_GLOO_NO_MEMORY, TANDEM_JOINING, "", error);
    tandem_status status = tandem_comm_gather(comm, &mine, all, sizeof mine, 0, error);
    int other = 1;
    while (status == TANDEM_OK && other < comm->n_rank && all[other].hash == all[0].hash &&
           all[other].bytes == all[0].bytes)
        other++;
    if (status == TANDEM_OK && other < comm->n_rank) status = find_different_rank(comm, own, all, error);
    free(all);
    return status;
}

/* --- Joining -------------------------------------------------------------------------------------------- */

/* The descriptors that joining needs at once: a connection and a moment's second one per rank, strangers, and
 * those of Gloo and of shared memory. Others would learn of a lack only by a time-out. */
static tandem_status check_descriptors(int n_rank, tandem_error *error)
{
    enum { OTHERS = 24 };
    const int n = 2 * n_rank + OTHERS;
    struct rlimit limit = {0};
    int *file = calloc((size_t)n, sizeof *file), n_open = 0;
    if (!file) return tandem_no_memory(error, "to join %d ranks", n_rank);
    while (n_open < n && (file[n_open] = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0) n_open++;
    const int code = errno;
    for (int k = 0; k < n_open; k++) (void)close(file[k]);
    free(file);
    if (n_open == n || (code != EMFILE && code != ENFILE)) return TANDEM_OK;
    (void)getrlimit(RLIMIT_NOFILE, &limit);
    return tandem_error_set(error, TANDEM_IO,
                            "too few file descriptors are left to join %d ranks: %d, of the %d needed; the "
                            "limit of this process is %llu. Raise it with `ulimit -n`, to 1024 say",
                            n_rank, n_open, n, (unsigned long long)limit.rlim_cur);
}

static tandem_status join_run(tandem_comm *comm, const tandem_comm_options *options, tandem_error *error)
{
    const char *interface = NULL;
    tandem_status status = choose_network_interface(&interface, error);
    if (status == TANDEM_OK)
        status = tandem_membership_join(&comm->membership, options->store, options->timeout_ns, error);
    if (status == TANDEM_OK) status = start_gloo(comm, interface, options->cpu, error);
    if (status == TANDEM_OK) status = connect_all_ranks(comm, interface, options->timeout_ns, error);
    if (status == TANDEM_OK) status = check_agreement(comm, options->agreement, error);
    if (status == TANDEM_OK) status = check_same_wire(comm, error);
    if (status == TANDEM_OK) status = try_shared_memory(comm, options->over_network, error);
    return status;
}

static void destroy_comm(tandem_comm *comm)
{
    tandem_watch_close(comm->watch);
    tandem_gloo_close(comm->gloo);
    tandem_membership_close(&comm->membership);
    while (comm->first)
        tandem_comm_free_shared(comm, tandem_shm_region_part(&comm->first->sum.region, comm->rank));
    free(comm->spare);
    pthread_mutex_destroy(&comm->mutex);
    free(comm);
}

tandem_status tandem_comm_open(tandem_comm **out, const tandem_comm_options *options, tandem_error *error)
{
    tandem_status status = check_comm_options(options, error);
    if (status != TANDEM_OK) return status;
    tandem_comm *comm = calloc(1, sizeof *comm);
    if (!comm) return tandem_no_memory(error, "for a communicator");
    comm->rank = options->rank;
    comm->n_rank = options->n_rank;
    comm->locking = options->locking;
    comm->wire = options->wire;
    const int64_t timeout_ms = options->timeout_ns / 1000000 + (options->timeout_ns % 1000000 != 0);
    comm->timeout_ms = timeout_ms < INT32_MAX ? timeout_ms : INT32_MAX;
    comm->membership = (tandem_membership){.directory = -1, .lock = -1};
    pthread_mutex_init(&comm->mutex, NULL);
    tandem_error local = {TANDEM_OK, -1, ""};
    if (options->n_rank > 1) status = check_descriptors(options->n_rank, &local);
    if (status != TANDEM_OK) tandem_comm_refuse(options, local.text);
    if (status == TANDEM_OK && options->n_rank > 1)
        status =
            tandem_membership_open(&comm->membership, options->store, options->rank, options->n_rank, &local);
    if (status == TANDEM_OK && options->n_rank > 1) {
        status = join_run(comm, options, &local);
        /* else the other ranks wait for this one until the timeout */
        if (status != TANDEM_OK && status != TANDEM_RANK_FAILED) {
            char text[TANDEM_ERROR_TEXT];
            (void)snprintf(text, sizeof text, "rank %d could not join: %.900s", options->rank, local.text);
            tandem_membership_report_failed(&comm->membership, options->rank, text);
        }
    }
    if (status != TANDEM_OK) {
        destroy_comm(comm);
        if (error) *error = local;
        return status;
    }
    *out = comm;
    return TANDEM_OK;
}

void tandem_comm_refuse(const tandem_comm_options *options, const char *why)
{
    char text[TANDEM_ERROR_TEXT];
    if (options->n_rank < 2 || !options->store) return;
    (void)snprintf(text, sizeof text, "rank %d could not join: %.900s", options->rank, why);
    tandem_membership_refuse(options->store, options->rank, options->n_rank, text);
}

void tandem_comm_close(tandem_comm *comm)
{
    if (!comm) return;
    if (comm->n_rank > 1 && tandem_comm_check_alive(comm, NULL) == TANDEM_OK)
        tandem_membership_leave(&comm->membership);
    destroy_comm(comm);
}

/* --- Shared memory -------------------------------------------------------------------------------------- */

int tandem_comm_shares_memory(const tandem_comm *comm) { return comm->shares_memory; }

const char *tandem_comm_shared_memory_error(const tandem_comm *comm) { return comm->shared_memory_error; }

tandem_status tandem_comm_alloc_shared(tandem_comm *comm, void **memory, uint64_t bytes, uint32_t tag,
                                       tandem_error *error)
{
    if (!comm->shares_memory) {
        *memory = NULL;
        return tandem_comm_check_alive(comm, error);
    }
    shared_allocation *taken = calloc(1, sizeof *taken);
    if (!taken) return tandem_comm_fail(comm, TANDEM_GLOO_NO_MEMORY, "the sharing of memory", "", error);
    const tandem_status status = open_shared_region(&taken->sum.region, comm, bytes, 0, tag, error);
    if (status != TANDEM_OK) {
        free(taken);
        if (status == TANDEM_IO) *memory = NULL;
        return status == TANDEM_IO ? TANDEM_OK : status;
    }
    pthread_mutex_lock(&comm->mutex);
    taken->next = comm->first;
    comm->first = taken;
    pthread_mutex_unlock(&comm->mutex);
    *memory = tandem_shm_region_part(&taken->sum.region, comm->rank);
    return TANDEM_OK;
}

int64_t tandem_comm_n_stranger(const tandem_comm *comm) { return comm->n_stranger; }

uint64_t tandem_comm_peer_bytes(tandem_comm *comm)
{
    uint64_t bytes = 0;
    pthread_mutex_lock(&comm->mutex);
    for (const shared_allocation *s = comm->first; s; s = s->next)
        bytes += (uint64_t)(s->sum.region.n_rank - 1) * s->sum.region.bytes;
    pthread_mutex_unlock(&comm->mutex);
    return bytes;
}

int tandem_comm_free_shared(tandem_comm *comm, void *memory)
{
    pthread_mutex_lock(&comm->mutex);
    shared_allocation **link = &comm->first;
    while (*link && (void *)tandem_shm_region_part(&(*link)->sum.region, comm->rank) != memory)
        link = &(*link)->next;
    shared_allocation *freed = *link;
    if (freed) *link = freed->next;
    pthread_mutex_unlock(&comm->mutex);
    if (!freed) return 0;
    tandem_shm_region_close(&freed->sum.region);
    free(freed);
    return 1;
}
