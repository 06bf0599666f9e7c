/* link: --wrap=malloc --wrap=calloc --wrap=realloc */
/* link: --wrap=tandem_gloo_wait_received --wrap=tandem_gloo_wait_sent */
/* link: --wrap=tandem_delivery_run */
/* link: --wrap=memfd_create --wrap=fallocate */
/* link: --wrap=tandem_membership_write_address --wrap=tandem_membership_read_address */
/* folder: backend */
/* test_comm.c: ranks that die, hang, leave or never come, and what the others get to know; and that sums are
 * right: over the network, and in memory that the ranks share.
 *
 * Every rank is a forked process. It reports on a board of shared memory; the parent, which never touches
 * Gloo, judges. */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "backend/comm/comm.h"
#include "backend/comm/delivery.h"
#include "backend/comm/gloo_shim.h"
#include "backend/comm/membership.h"
#include "base/clock.h"
#include "base/philox.h"
#include "base/run_report.h"
#include "tests/support/fail_allocation.h"
#include "tests/support/tandem_test.h"

enum { MAX_RANK = 4, MS = 1000000, GIVEN_UP_S = 20 };

typedef struct report {
    tandem_error error[2]; /* of two threads, where the test has two */
    int64_t noticed_ns;
    atomic_int ready; /* the rank is in the state in which the parent is to strike */
    uint64_t hash, nan_hash;
} report;

typedef struct board {
    char store[64];
    int n_rank;
    int64_t timeout_ns;
    int choice;  /* whatever the test passes to its ranks */
    bool shares; /* memory is what sums are made in */
    atomic_int go;
    report rank[MAX_RANK];
} board;

/* Runs in the process of a rank. Returns 0, or the line that is not as it should be. */
typedef int body(board *board, int rank);

/* Is not cmocka's: a rank has no test to fail, only an exit code. */
#define EXPECT(condition)                                                                                    \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            const tandem_error *last = &my->rank[rank].error[0];                                             \
            (void)fprintf(stderr, "rank %d, line %d: %s; its last error: %s '%s'\n", rank, __LINE__,         \
                          #condition, tandem_status_name(last->status), last->text);                         \
            return __LINE__;                                                                                 \
        }                                                                                                    \
    } while (0)

static bool tests_sharing; /* of the group of tests that runs */
static board *b;           /* of the test that runs */
static pid_t process[MAX_RANK];
static unsigned given_up_s;

static int set_up_comm(void **state)
{
    b = mmap(NULL, sizeof *b, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (b == MAP_FAILED) return -1;
    const char *parent = getenv("TMPDIR");
    (void)snprintf(b->store, sizeof b->store, "%s/tandem-comm-XXXXXX",
                   parent && strlen(parent) < 40 ? parent : "/tmp");
    b->timeout_ns = 10000 * (int64_t)MS;
    b->shares = tests_sharing;
    given_up_s = GIVEN_UP_S;
    return mkdtemp(b->store) ? 0 : -1;
}

static void remove_store(void)
{
    DIR *directory = opendir(b->store);
    for (struct dirent *entry; directory && (entry = readdir(directory)) != NULL;)
        (void)unlinkat(dirfd(directory), entry->d_name, 0);
    if (directory) (void)closedir(directory);
    (void)rmdir(b->store);
}

static int tear_down_comm(void **state)
{
    remove_store();
    return munmap(b, sizeof *b);
}

static void start_ranks(int n_started, body *what)
{
    (void)fflush(NULL);
    for (int r = 0; r < n_started; r++) {
        process[r] = fork();
        assert_true(process[r] >= 0);
        if (process[r] == 0) {
            (void)alarm(given_up_s); /* a rank that hangs dies of it, and its wait status says so */
            _exit(what(b, r) == 0 ? 0 : 1);
        }
    }
}

/* The wait status of rank r: an exit code, or 1000 + the signal it died of. */
static int end_of(int r)
{
    int status;
    assert_int_equal(waitpid(process[r], &status, 0), process[r]);
    return WIFSIGNALED(status) ? 1000 + WTERMSIG(status) : WEXITSTATUS(status);
}

static void run_ranks(int n_rank, body *what)
{
    b->n_rank = n_rank;
    start_ranks(n_rank, what);
    int end[MAX_RANK];
    for (int r = 0; r < n_rank; r++) end[r] = end_of(r);
    for (int r = 0; r < n_rank; r++) assert_int_equal(end[r], 0);
}

static void wait_until_ready(int n_rank)
{
    for (int r = 0; r < n_rank; r++)
        for (int tries = 0; !atomic_load(&b->rank[r].ready); tries++) {
            assert_true(tries < 10000);
            (void)usleep(1000);
        }
}

static tandem_status open_comm(tandem_comm **comm, int rank, tandem_error *error)
{
    const tandem_comm_options options = {.rank = rank,
                                         .n_rank = b->n_rank,
                                         .store = b->store,
                                         .timeout_ns = b->timeout_ns,
                                         .cpu = -1,
                                         .over_network = !b->shares};
    return tandem_comm_open(comm, &options, error);
}

/* Zeros to be summed, in shared memory where the test is of that; NULL without. Whoever does not give them
 * back leaves them to the end of the process. */
static float *take_floats(tandem_comm *comm, size_t n)
{
    void *memory = NULL;
    if (!b->shares) return calloc(n + 1, sizeof(float));
    return tandem_comm_alloc_shared(comm, &memory, n * sizeof(float), 5, NULL) == TANDEM_OK ? memory : NULL;
}

static void give_floats(tandem_comm *comm, float *data)
{
    if (!tandem_comm_free_shared(comm, data)) free(data);
}

/* Element i of rank r: of any size and sign, so that the order of summing shows in the bits. */
static float element(int rank, size_t i)
{
    const uint32_t counter[4] = {(uint32_t)i, 0, 0, (uint32_t)rank};
    const tandem_philox_block block = tandem_philox(counter, 7);
    return ldexpf(tandem_philox_uniform(block.word[0]) - 0.5f, (int)(block.word[1] % 20));
}

static void fill_comm(float *data, size_t n, int rank)
{
    for (size_t i = 0; i < n; i++) data[i] = element(rank, i);
}

/* Of whole words. */
static uint64_t hash_of(const void *data, size_t bytes, uint64_t hash)
{
    uint32_t word;
    for (size_t i = 0; i + sizeof word <= bytes; i += sizeof word) {
        memcpy(&word, (const char *)data + i, sizeof word);
        hash = (hash ^ word) * 0x100000001b3u;
    }
    return hash;
}

/* Off by no more than one rounding of each addition; looks at every `stride`th element. */
static bool is_sum(const float *data, size_t n, int n_rank, size_t stride)
{
    for (size_t i = 0; i < n; i += stride) {
        double sum = 0, size = 0;
        for (int r = 0; r < n_rank; r++) {
            sum += (double)element(r, i);
            size += fabs((double)element(r, i));
        }
        if (!(fabs((double)data[i] - sum) <= size * n_rank * 0x1p-24)) return false;
    }
    return true;
}

/* --- Collectives ---------------------------------------------------------------------------------------- */

/* Around the borders of chunk, segment (512 KiB = 131072 floats) and window (8 segments). */
static const size_t sum_size[] = {0, 1, 2, 3, 4, 5, 7, 1000, 131071, 131072 * 2, 131073 * 3, 131072 * 21 + 5};
enum { N_SUM_SIZE = sizeof sum_size / sizeof *sum_size };

static int sum_all_sizes(board *my, int rank)
{
    tandem_comm *comm = NULL;
    EXPECT(open_comm(&comm, rank, &my->rank[rank].error[0]) == TANDEM_OK);
    EXPECT(!tandem_comm_shares_memory(comm) == !my->shares);
    const size_t largest = sum_size[N_SUM_SIZE - 1];
    float *all = take_floats(comm, largest + 3), *data = all, *mine = malloc(largest * sizeof *mine);
    EXPECT(data && mine);
    fill_comm(mine, largest, rank);
    for (size_t s = 0; s < N_SUM_SIZE; s++) {
        const size_t n = sum_size[s];
        uint64_t hash[2];
        for (int run = 0; run < 2; run++) {
            data = all + s % 4; /* at any multiple of a float */
            memcpy(data, mine, n * sizeof *data);
            EXPECT(tandem_comm_sum_f32(comm, data, n, 3, &my->rank[rank].error[0]) == TANDEM_OK);
            hash[run] = hash_of(data, n * sizeof *data, 0);
        }
        EXPECT(is_sum(data, n, my->n_rank, n > 10000 ? 97 : 1));
        EXPECT(hash[0] == hash[1]);
        my->rank[rank].hash = hash_of(hash, sizeof hash, my->rank[rank].hash);
    }
    /* The sum of two different NaNs depends on their order. */
    const uint32_t payload = 0x7fc00000u + (uint32_t)rank;
    memcpy(data, &payload, sizeof payload);
    data[1] = rank == 0 ? INFINITY : -INFINITY;
    EXPECT(tandem_comm_sum_f32(comm, data, 2, 3, NULL) == TANDEM_OK);
    EXPECT(isnan(data[0]) && isnan(data[1]));
    my->rank[rank].nan_hash = hash_of(data, 2 * sizeof *data, 0);
    give_floats(comm, all);
    free(mine);
    tandem_comm_close(comm);
    return 0;
}

static void sums_are_right_and_the_same_bits(void **state)
{
    static uint64_t over_network[MAX_RANK + 1];
    for (int n_rank = 2; n_rank <= MAX_RANK; n_rank++) {
        run_ranks(n_rank, sum_all_sizes);
        for (int r = 1; r < n_rank; r++) assert_true(b->rank[r].hash == b->rank[0].hash);
        for (int r = 1; r < n_rank; r++) assert_true(b->rank[r].nan_hash == b->rank[0].nan_hash);
        if (!b->shares)
            over_network[n_rank] = b->rank[0].hash;
        else /* that group of tests ran before */
            assert_true(b->rank[0].hash == over_network[n_rank]);
        remove_store();
        assert_int_equal(mkdir(b->store, 0700), 0);
        memset(b->rank, 0, sizeof b->rank);
    }
}

static int other_collectives(board *my, int rank)
{
    enum { LARGE = 5000000 };
    tandem_comm *comm = NULL;
    tandem_error *error = &my->rank[rank].error[0];
    EXPECT(open_comm(&comm, rank, error) == TANDEM_OK);
    const int n_rank = my->n_rank;
    unsigned char *all = malloc((size_t)n_rank * LARGE), *mine = malloc(LARGE);
    EXPECT(all && mine);
    static const size_t size[] = {1, 3, 8, 1000, LARGE};
    for (size_t s = 0; s < sizeof size / sizeof *size; s++) {
        memset(all, 0xee, (size_t)n_rank * size[s]);
        for (size_t i = 0; i < size[s]; i++) mine[i] = (unsigned char)(i * 7 + (size_t)rank);
        EXPECT(tandem_comm_gather(comm, mine, all, size[s], 1, error) == TANDEM_OK);
        for (int r = 0; r < n_rank; r++)
            for (size_t i = 0; i < size[s]; i++)
                EXPECT(all[(size_t)r * size[s] + i] == (unsigned char)(i * 7 + (size_t)r));
        for (int root = 0; root < n_rank; root++) {
            for (size_t i = 0; i < size[s]; i++) mine[i] = (unsigned char)(i * 5 + (size_t)rank);
            EXPECT(tandem_comm_broadcast(comm, mine, size[s], root, 1, error) == TANDEM_OK);
            for (size_t i = 0; i < size[s]; i++) EXPECT(mine[i] == (unsigned char)(i * 5 + (size_t)root));
        }
    }
    EXPECT(tandem_comm_broadcast(comm, mine, 1, n_rank, 1, error) == TANDEM_USAGE);
    EXPECT(tandem_comm_sum_f32(comm, NULL, 5, 1, error) == TANDEM_USAGE);
    EXPECT(tandem_comm_gather(comm, mine, NULL, 1, 1, error) == TANDEM_USAGE);
    EXPECT(tandem_comm_gather(comm, NULL, NULL, 0, 1, error) == TANDEM_OK);
    free(all);
    free(mine);
    tandem_comm_close(comm);
    return 0;
}

static void gather_and_broadcast_move_the_right_bytes(void **state) { run_ranks(3, other_collectives); }

/* Nobody leaves a barrier before the last has come; and who waits does not burn its core. */
static int wait_for_the_last(board *my, int rank)
{
    tandem_comm *comm = NULL;
    EXPECT(open_comm(&comm, rank, &my->rank[rank].error[0]) == TANDEM_OK);
    struct rusage before, after;
    for (int late = 0; late < my->n_rank; late++) {
        if (rank == late) {
            (void)usleep(200000);
            atomic_store(&my->rank[late].ready, 1);
        }
        EXPECT(getrusage(RUSAGE_SELF, &before) == 0);
        EXPECT(tandem_comm_barrier(comm, 1, &my->rank[rank].error[0]) == TANDEM_OK);
        EXPECT(getrusage(RUSAGE_SELF, &after) == 0);
        EXPECT(atomic_load(&my->rank[late].ready));
        const int64_t burnt_us = (after.ru_utime.tv_sec + after.ru_stime.tv_sec - before.ru_utime.tv_sec -
                                  before.ru_stime.tv_sec) *
                                     1000000 +
                                 after.ru_utime.tv_usec + after.ru_stime.tv_usec - before.ru_utime.tv_usec -
                                 before.ru_stime.tv_usec;
        EXPECT(burnt_us < 100000); /* of 200 ms; spinning would take them all */
    }
    tandem_comm_close(comm);
    return 0;
}

static void a_barrier_waits_for_all_and_does_not_spin(void **state) { run_ranks(3, wait_for_the_last); }

static void one_rank_needs_nobody(void **state)
{
    tandem_comm *comm = NULL;
    tandem_error error;
    const tandem_comm_options options = {.rank = 0, .n_rank = 1, .store = NULL, .timeout_ns = MS, .cpu = -1};
    assert_int_equal(tandem_comm_open(&comm, &options, &error), TANDEM_OK);
    float data[3] = {1, 2, 3};
    float all[3] = {0};
    assert_int_equal(tandem_comm_sum_f32(comm, data, 3, 1, &error), TANDEM_OK);
    assert_int_equal(tandem_comm_barrier(comm, 1, &error), TANDEM_OK);
    assert_int_equal(tandem_comm_broadcast(comm, data, sizeof data, 0, 1, &error), TANDEM_OK);
    assert_int_equal(tandem_comm_gather(comm, data, all, sizeof data, 1, &error), TANDEM_OK);
    assert_memory_equal(all, ((float[]){1, 2, 3}), sizeof all);
    tandem_comm_close(comm);
    tandem_comm_close(NULL);
}

/* --- Opening -------------------------------------------------------------------------------------------- */

static void assert_refused_comm(const tandem_comm_options *options, tandem_status status, const char *words)
{
    tandem_comm *comm = NULL;
    tandem_error error = {TANDEM_OK, 0, ""};
    assert_int_equal(tandem_comm_open(&comm, options, &error), status);
    assert_int_equal(error.status, status);
    assert_null(comm);
    if (!strstr(error.text, words)) fail_msg("'%s' does not say '%s'", error.text, words);
}

static void what_cannot_be_opened_is_refused(void **state)
{
    const tandem_comm_options good = {.rank = 0, .n_rank = 2, .store = b->store, .timeout_ns = MS, .cpu = -1};
    tandem_comm_options options = good;
    options.rank = 2;
    assert_refused_comm(&options, TANDEM_USAGE, "rank 2 of 2");
    options = good;
    options.timeout_ns = 0;
    assert_refused_comm(&options, TANDEM_USAGE, "timeout");
    options = good;
    options.store = NULL;
    assert_refused_comm(&options, TANDEM_USAGE, "TANDEM_STORE");
    options = good;
    options.store = "/nowhere/at/all";
    assert_refused_comm(&options, TANDEM_USAGE, "/nowhere/at/all");
    options = good;
    options.cpu = 100000;
    assert_refused_comm(&options, TANDEM_USAGE, "core 100000");
}

static int just_open(board *my, int rank)
{
    tandem_comm *comm = NULL;
    (void)open_comm(&comm, rank, &my->rank[rank].error[0]);
    tandem_comm_close(comm);
    return 0;
}

static int open_off_core(board *my, int rank)
{
    tandem_comm *comm = NULL;
    if (rank == 1) EXPECT(setenv("TANDEM_IFACE", "no-such-interface", 1) == 0);
    const tandem_comm_options options = {.rank = rank,
                                         .n_rank = my->n_rank,
                                         .store = my->store,
                                         .timeout_ns = my->timeout_ns,
                                         .cpu = rank == 2 ? CPU_SETSIZE - 1 : -1};
    EXPECT(tandem_comm_open(&comm, &options, &my->rank[rank].error[0]) != TANDEM_OK);
    return 0;
}

static void a_rank_that_cannot_join_reports_to_the_others(void **state)
{
    if (sysconf(_SC_NPROCESSORS_CONF) >= CPU_SETSIZE) {
        print_message("SKIP: this machine has as many cores as there can be\n");
        skip();
    }
    const int64_t begin_ns = tandem_now_ns();
    run_ranks(3, open_off_core);
    assert_true(tandem_now_ns() - begin_ns < b->timeout_ns);
    assert_int_equal(b->rank[0].error[0].status, TANDEM_RANK_FAILED);
    assert_true(b->rank[0].error[0].rank == 1 || b->rank[0].error[0].rank == 2);
    assert_non_null(strstr(b->rank[0].error[0].text, "could not join"));
    /* Either may have heard of the other before it came to its own fault. */
    assert_true(strstr(b->rank[1].error[0].text, "no-such-interface") || b->rank[1].error[0].rank == 2);
    assert_true(b->rank[2].error[0].status == TANDEM_USAGE || b->rank[2].error[0].rank == 1);
}

static void a_missing_rank_is_named(void **state)
{
    b->n_rank = 3;
    b->timeout_ns = 300 * (int64_t)MS;
    start_ranks(2, just_open);
    for (int r = 0; r < 2; r++) assert_int_equal(end_of(r), 0);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(b->rank[r].error[0].status, TANDEM_RANK_FAILED);
        assert_int_equal(b->rank[r].error[0].rank, 2);
        assert_non_null(strstr(b->rank[r].error[0].text, "rank 2 of 3 did not join within 0.3 s"));
        assert_non_null(strstr(b->rank[r].error[0].text, "RANK=2"));
    }
}

static int join_another_world(board *my, int rank)
{
    tandem_comm *comm = NULL;
    const tandem_comm_options options = {
        .rank = rank, .n_rank = 2 + rank, .store = my->store, .timeout_ns = my->timeout_ns, .cpu = -1};
    EXPECT(tandem_comm_open(&comm, &options, &my->rank[rank].error[0]) != TANDEM_OK);
    return 0;
}

static void ranks_of_different_worlds_do_not_join(void **state)
{
    run_ranks(2, join_another_world);
    for (int r = 0; r < 2; r++) assert_non_null(strstr(b->rank[r].error[0].text, "WORLD_SIZE"));
}

static void assert_store_refused(const char *words)
{
    for (int r = 0; r < b->n_rank; r++) {
        const tandem_comm_options options = {
            .rank = r, .n_rank = b->n_rank, .store = b->store, .timeout_ns = MS, .cpu = -1};
        assert_refused_comm(&options, TANDEM_USAGE, words);
        assert_refused_comm(&options, TANDEM_USAGE, b->store);
    }
}

static void a_store_is_good_for_one_run(void **state)
{
    run_ranks(2, just_open);
    assert_int_equal(b->rank[0].error[0].status, TANDEM_OK);
    assert_store_refused("left over from another run; give a fresh directory");
}

static int stay(board *my, int rank)
{
    tandem_comm *comm = NULL;
    EXPECT(open_comm(&comm, rank, &my->rank[rank].error[0]) == TANDEM_OK);
    atomic_store(&my->rank[rank].ready, 1);
    for (;;) (void)pause();
}

static void a_store_in_use_is_refused(void **state)
{
    b->n_rank = 2;
    start_ranks(2, stay);
    wait_until_ready(2);
    assert_store_refused("is in use by another run");
    for (int r = 0; r < 2; r++) assert_int_equal(kill(process[r], SIGKILL), 0);
    for (int r = 0; r < 2; r++) assert_int_equal(end_of(r), 1000 + SIGKILL);
    assert_store_refused("left over from another run");
}

/* A number from the environment, for longer runs (tests/fault/neighbours.sh). */
static int count_from_environment(const char *name, int otherwise)
{
    const char *text = getenv(name);
    const int n = text ? atoi(text) : 0;
    return n > 0 ? n : otherwise;
}

static int refuse_few_descriptors(board *my, int rank)
{
    tandem_comm *comm = NULL;
    tandem_error *error = &my->rank[rank].error[0];
    if (rank == 1) {
        const int next = dup(STDERR_FILENO); /* the lowest free one */
        const struct rlimit limit = {.rlim_cur = (rlim_t)next + 10, .rlim_max = (rlim_t)next + 10};
        EXPECT(next >= 0 && close(next) == 0 && setrlimit(RLIMIT_NOFILE, &limit) == 0);
    }
    EXPECT(open_comm(&comm, rank, error) == (rank == 1 ? TANDEM_IO : TANDEM_RANK_FAILED));
    return 0;
}

static void a_rank_without_descriptors_is_named_with_the_remedy(void **state)
{
    run_ranks(3, refuse_few_descriptors);
    for (int r = 0; r < 3; r++) {
        assert_non_null(
            strstr(b->rank[r].error[0].text, "too few file descriptors are left to join 3 ranks"));
        assert_non_null(strstr(b->rank[r].error[0].text, "ulimit -n"));
        if (r != 1) assert_int_equal(b->rank[r].error[0].rank, 1);
    }
}

/* Rank 1 starts, and its process ends before it opens a communicator. */
static int end_before_joining(board *my, int rank)
{
    tandem_comm *comm = NULL;
    EXPECT(tandem_run_start(my->store, rank) >= 0);
    if (rank == 1) return 0;
    EXPECT(open_comm(&comm, rank, &my->rank[rank].error[0]) == TANDEM_RANK_FAILED);
    return 0;
}

static void a_rank_that_ends_before_it_joins_is_named_at_once(void **state)
{
    b->timeout_ns = 3600000 * (int64_t)MS; /* else alarm() ends the test */
    run_ranks(3, end_before_joining);
    for (int r = 0; r < 3; r += 2) {
        assert_int_equal(b->rank[r].error[0].rank, 1);
        assert_non_null(strstr(b->rank[r].error[0].text, "rank 1 ended before it joined"));
    }
}

static int say_why_before_joining(board *my, int rank)
{
    tandem_comm *comm = NULL;
    EXPECT(tandem_run_start(my->store, rank) >= 0);
    if (rank == 1) {
        tandem_run_report_own(my->store, 1, "'x.json' cannot be read");
        return 0;
    }
    EXPECT(open_comm(&comm, rank, &my->rank[rank].error[0]) == TANDEM_RANK_FAILED);
    return 0;
}

static void a_rank_that_fails_before_it_joins_says_why(void **state)
{
    b->timeout_ns = 3600000 * (int64_t)MS;
    run_ranks(3, say_why_before_joining);
    for (int r = 0; r < 3; r += 2) {
        assert_int_equal(b->rank[r].error[0].rank, 1);
        assert_string_equal(b->rank[r].error[0].text, "rank 1 could not join: 'x.json' cannot be read");
    }
}

/* A rank that started first may not have written its version, or its number of ranks. */
static int join_with_another_version(board *my, int rank)
{
    tandem_comm *comm = NULL;
    if (rank == 1) { /* as another version writes it */
        const int directory = open(my->store, O_RDONLY | O_DIRECTORY),
                  file = openat(directory, "rank.1.alive", O_RDWR | O_CREAT | O_EXCL, 0666);
        struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
        EXPECT(write(file, "3\n9.9.9\n", 8) == 8 && fcntl(file, F_OFD_SETLK, &whole) == 0);
        while (!atomic_load(&my->rank[0].ready) || !atomic_load(&my->rank[2].ready)) (void)usleep(1000);
        return 0;
    }
    EXPECT(open_comm(&comm, rank, &my->rank[rank].error[0]) == TANDEM_USAGE);
    atomic_store(&my->rank[rank].ready, 1);
    return 0;
}

static void a_rank_of_another_version_is_refused_by_all(void **state)
{
    run_ranks(3, join_with_another_version);
    for (int r = 0; r < 3; r += 2) {
        assert_non_null(strstr(b->rank[r].error[0].text, "rank 1 has libtandem_backend of version 9.9.9"));
        assert_non_null(strstr(b->rank[r].error[0].text, "of version " TANDEM_VERSION));
    }
}

/* --- What ranks agree about ----------------------------------------------------------------------------- */

/* choice: the rank that has other lines; -1 = none. */
static int bring_lines(board *my, int rank)
{
    tandem_comm *comm = NULL;
    tandem_error *error = &my->rank[rank].error[0];
    const tandem_comm_options options = {
        .rank = rank,
        .n_rank = my->n_rank,
        .store = my->store,
        .timeout_ns = my->timeout_ns,
        .cpu = -1,
        .agreement = rank == my->choice ? "version: 1\nlearning rate: 0.2\nmore: b, and longer\n"
                                        : "version: 1\nlearning rate: 0.05\nmore: a\n"};
    const tandem_status status = tandem_comm_open(&comm, &options, error);
    EXPECT(status == (my->choice < 0 ? TANDEM_OK : TANDEM_USAGE));
    tandem_comm_close(comm);
    return 0;
}

static void ranks_agree_about_every_line(void **state)
{
    for (b->choice = -1; b->choice < 3; b->choice++) {
        char words[80];
        run_ranks(3, bring_lines);
        remove_store();
        assert_int_equal(mkdir(b->store, 0700), 0);
        if (b->choice < 0) continue;
        const int other = b->choice ? b->choice : 1;
        (void)snprintf(words, sizeof words, "rank 0 has 'learning rate: %s', rank %d has 'learning rate: %s'",
                       b->choice ? "0.05" : "0.2", other, b->choice ? "0.2" : "0.05");
        for (int r = 0; r < 3; r++)
            if (!strstr(b->rank[r].error[0].text, words))
                fail_msg("'%s' does not say '%s'", b->rank[r].error[0].text, words);
    }
}

/* --- Strangers ------------------------------------------------------------------------------------------ */

/* Which of its steps rank 2 delays until the parent lets it go on: 1: it gives its address late, so that all
 * others only listen; 2: it reads those of others late, so that they accept. */
static int delayed_step;

/* See fail_allocation.c for what the linker makes of these names. */
tandem_status __real_tandem_membership_write_address(const tandem_membership *membership, const char *text,
                                                     tandem_error *error);
tandem_status __wrap_tandem_membership_write_address(const tandem_membership *membership, const char *text,
                                                     tandem_error *error);
bool __real_tandem_membership_read_address(const tandem_membership *membership, int rank, char *text,
                                           size_t size);
bool __wrap_tandem_membership_read_address(const tandem_membership *membership, int rank, char *text,
                                           size_t size);

tandem_status __wrap_tandem_membership_write_address(const tandem_membership *membership, const char *text,
                                                     tandem_error *error)
{
    while (delayed_step == 1 && !atomic_load(&b->go)) (void)usleep(1000);
    return __real_tandem_membership_write_address(membership, text, error);
}

bool __wrap_tandem_membership_read_address(const tandem_membership *membership, int rank, char *text,
                                           size_t size)
{
    while (delayed_step == 2 && !atomic_load(&b->go)) (void)usleep(1000);
    return __real_tandem_membership_read_address(membership, rank, text, size);
}

static int join_among_strangers(board *my, int rank)
{
    tandem_comm *comm = NULL;
    tandem_error *error = &my->rank[rank].error[0];
    if (rank == my->n_rank - 1) delayed_step = my->choice;
    EXPECT(open_comm(&comm, rank, error) == TANDEM_OK);
    my->rank[rank].hash = (uint64_t)tandem_comm_n_stranger(comm);
    float one[1000];
    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < 1000; i++) one[i] = (float)i;
        EXPECT(tandem_comm_sum_f32(comm, one, 1000, 1, error) == TANDEM_OK);
        for (int i = 0; i < 1000; i++) EXPECT(one[i] == (float)(my->n_rank * i));
    }
    tandem_comm_close(comm);
    return 0;
}

/* The socket of a stranger who has found the port of rank r. */
static int connect_to_rank(int r)
{
    char path[128], text[256] = "";
    unsigned port = 0;
    (void)snprintf(path, sizeof path, "%s/rank.%d.address", b->store, r);
    for (int tries = 0; !port; tries++) {
        assert_true(tries < 10000);
        const int file = open(path, O_RDONLY | O_CLOEXEC);
        if (file >= 0 && read(file, text, sizeof text - 1) > 0) (void)sscanf(text, "127.0.0.1 %u ", &port);
        if (file >= 0) (void)close(file);
        if (!port) (void)usleep(1000);
    }
    const struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int file = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(file >= 0 && connect(file, (const struct sockaddr *)&to, sizeof to) == 0);
    return file;
}

/* Says what stranger number k says, and leaves: at once, with a reset, or, returning the socket, later. */
static int be_stranger(int k, int r)
{
    enum { N_KIND = 8 };
    char bytes[4096] = "";
    size_t n = 0;
    const int file = connect_to_rank(r);
    const struct linger reset = {.l_onoff = 1};
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (char)(i * 131 + (size_t)k * 17);
    switch (k % N_KIND) {
    case 0: n = (size_t)snprintf(bytes, sizeof bytes, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"); break;
    case 1: memcpy(bytes, "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", n = 11); break; /* TLS */
    case 2: n = sizeof bytes; break;
    case 3: break; /* connects and holds */
    case 4: (void)setsockopt(file, SOL_SOCKET, SO_LINGER, &reset, sizeof reset); break;
    case 5: /* as rank 2 does it, but for the secrets */
        memcpy(bytes, "tandem>", 8);
        memcpy(bytes + 8, (const int32_t[]){2, r}, 2 * sizeof(int32_t));
        n = 48;
        break;
    case 6: memset(bytes, 0, n = 48), bytes[0] = 48; break; /* what Gloo takes for a message */
    case 7: memset(bytes, 0xff, n = 48); break;
    }
    if (n) (void)send(file, bytes, n, MSG_NOSIGNAL);
    if (k % 2) return file;
    (void)close(file);
    return -1;
}

static void strangers_disturb_no_joining(void **state)
{
    const int n = count_from_environment("N_STRANGERS", 10);
    int *kept = malloc((size_t)n * sizeof *kept);
    assert_non_null(kept);
    for (b->choice = 1; b->choice <= 2; b->choice++) {
        b->n_rank = 3;
        atomic_store(&b->go, 0);
        start_ranks(3, join_among_strangers);
        for (int k = 0; k < n; k++) kept[k] = be_stranger(k, k / 8 % 2);
        atomic_store(&b->go, 1);
        for (int r = 0; r < 3; r++) assert_int_equal(end_of(r), 0);
        for (int k = 0; k < n; k++)
            if (kept[k] >= 0) (void)close(kept[k]);
        if (b->choice == 2)
            assert_true(b->rank[0].hash + b->rank[1].hash == (uint64_t)n); /* each is counted */
        remove_store();
        assert_int_equal(mkdir(b->store, 0700), 0);
    }
    free(kept);
}

/* --- Failure of a rank ---------------------------------------------------------------------------------- */

/* All-reduces until one fails; then everything else must fail alike, at once. */
static int sum_for_ever(board *my, int rank)
{
    enum { N = 300000 };
    tandem_comm *comm = NULL;
    tandem_error *error = &my->rank[rank].error[0], second;
    EXPECT(open_comm(&comm, rank, error) == TANDEM_OK);
    float *data = take_floats(comm, N);
    EXPECT(data);
    tandem_status status = TANDEM_OK;
    for (int round = 0; status == TANDEM_OK; round++) {
        memset(data, 0, N * sizeof *data);
        status = tandem_comm_sum_f32(comm, data, N, 1, error);
        if (round == 3) atomic_store(&my->rank[rank].ready, 1);
    }
    my->rank[rank].noticed_ns = tandem_now_ns();
    EXPECT(status == TANDEM_RANK_FAILED && error->status == TANDEM_RANK_FAILED);
    EXPECT(tandem_comm_barrier(comm, 2, &second) == TANDEM_RANK_FAILED);
    EXPECT(strcmp(second.text, error->text) == 0 && second.rank == error->rank);
    EXPECT(tandem_comm_sum_f32(comm, data, 0, 1, NULL) == TANDEM_RANK_FAILED);
    EXPECT(tandem_comm_sum_f32(comm, data, N, 1, NULL) == TANDEM_RANK_FAILED);
    EXPECT(tandem_now_ns() - my->rank[rank].noticed_ns < 500 * (int64_t)MS);
    give_floats(comm, data);
    tandem_comm_close(comm);
    return 0;
}

static void assert_all_blame(int n_rank, int culprit, const char *words)
{
    for (int r = 0; r < n_rank; r++) {
        if (r == culprit) continue;
        const tandem_error *error = &b->rank[r].error[0];
        assert_int_equal(error->status, TANDEM_RANK_FAILED);
        assert_int_equal(error->rank, culprit);
        if (!strstr(error->text, words)) fail_msg("'%s' does not say '%s'", error->text, words);
    }
}

static void strike_rank(int n_rank, int victim, int signal, body *what)
{
    b->n_rank = n_rank;
    start_ranks(n_rank, what);
    wait_until_ready(n_rank);
    (void)usleep(3000 * (useconds_t)(victim + 1));
    const int64_t struck_ns = tandem_now_ns();
    assert_int_equal(kill(process[victim], signal), 0);
    for (int r = 0; r < n_rank; r++) {
        if (r == victim) continue;
        assert_int_equal(end_of(r), 0);
        assert_true(b->rank[r].noticed_ns - struck_ns < 5000 * (int64_t)MS);
    }
}

static void a_killed_rank_is_named_by_all(void **state)
{
    const int victim = *(const int *)*state;
    strike_rank(MAX_RANK - victim % 2, victim, SIGKILL, sum_for_ever);
    assert_int_equal(end_of(victim), 1000 + SIGKILL);
    char words[40];
    (void)snprintf(words, sizeof words, "rank %d died during an all-reduce (", victim);
    assert_all_blame(b->n_rank, victim, words);
}

/* --- Failure in the halves of an all-reduce ------------------------------------------------------------- */

enum { N_SHARED_OUT = 300000 };

/* Every rank owns something, and much of it lies in the chunk of another one. */
static void set_uneven_borders(size_t *border, int n_rank)
{
    border[0] = 0;
    for (int r = 1; r < n_rank; r++) border[r] = N_SHARED_OUT / 2 + (size_t)r * 1600;
    border[n_rank] = N_SHARED_OUT;
}

static tandem_status scatter_or_gather_once(const board *my, tandem_comm *comm, float *data,
                                            const size_t *border, tandem_error *error)
{
    return my->choice ? tandem_comm_gather_shards(comm, data, N_SHARED_OUT, border, 1, error)
                      : tandem_comm_scatter_gradients(comm, data, N_SHARED_OUT, border, 1, error);
}

/* Scatters, or with choice gathers, until it fails. */
static int halves_for_ever(board *my, int rank)
{
    tandem_comm *comm = NULL;
    tandem_error *error = &my->rank[rank].error[0], second;
    size_t border[MAX_RANK + 1];
    EXPECT(open_comm(&comm, rank, error) == TANDEM_OK);
    float *data = take_floats(comm, N_SHARED_OUT);
    EXPECT(data);
    set_uneven_borders(border, my->n_rank);
    tandem_status status = TANDEM_OK;
    for (int round = 0; status == TANDEM_OK; round++) {
        status = scatter_or_gather_once(my, comm, data, border, error);
        if (round == 3) atomic_store(&my->rank[rank].ready, 1);
    }
    my->rank[rank].noticed_ns = tandem_now_ns();
    EXPECT(status == TANDEM_RANK_FAILED && error->status == TANDEM_RANK_FAILED);
    EXPECT(scatter_or_gather_once(my, comm, data, border, &second) == TANDEM_RANK_FAILED);
    EXPECT(strcmp(second.text, error->text) == 0 && second.rank == error->rank);
    give_floats(comm, data);
    tandem_comm_close(comm);
    return 0;
}

static void a_rank_killed_in_a_half_is_named_by_all(void **state)
{
    static const char *const name[] = {"a reduce-scatter", "an all-gather"};
    for (b->choice = 0; b->choice < 2; b->choice++)
        for (int victim = 0; victim < 3; victim++) {
            char words[60];
            strike_rank(3 + victim % 2, victim, SIGKILL, halves_for_ever);
            assert_int_equal(end_of(victim), 1000 + SIGKILL);
            (void)snprintf(words, sizeof words, "rank %d died during %s (", victim, name[b->choice]);
            assert_all_blame(b->n_rank, victim, words);
            remove_store();
            assert_int_equal(mkdir(b->store, 0700), 0);
            memset(b->rank, 0, sizeof b->rank);
        }
}

/* Set in the process of a rank that dies when sums go to the owners of shards. */
static bool dies_in_delivery;

tandem_gloo_result __real_tandem_delivery_run(const tandem_delivery *delivery, tandem_gloo *gloo,
                                              tandem_gloo_error *why);
tandem_gloo_result __wrap_tandem_delivery_run(const tandem_delivery *delivery, tandem_gloo *gloo,
                                              tandem_gloo_error *why);

tandem_gloo_result __wrap_tandem_delivery_run(const tandem_delivery *delivery, tandem_gloo *gloo,
                                              tandem_gloo_error *why)
{
    if (dies_in_delivery) (void)raise(SIGKILL);
    return __real_tandem_delivery_run(delivery, gloo, why);
}

/* Rank 1 owns nothing, and the others wait for halves of its chunk. */
static int die_in_delivery(board *my, int rank)
{
    static const size_t border[4] = {0, N_SHARED_OUT / 2 / 16 * 16, N_SHARED_OUT / 2 / 16 * 16, N_SHARED_OUT};
    tandem_comm *comm = NULL;
    tandem_error *error = &my->rank[rank].error[0];
    EXPECT(open_comm(&comm, rank, error) == TANDEM_OK);
    float *data = take_floats(comm, N_SHARED_OUT);
    EXPECT(data);
    EXPECT(tandem_comm_scatter_gradients(comm, data, N_SHARED_OUT, border, 1, error) == TANDEM_OK);
    EXPECT(tandem_comm_barrier(comm, 1, error) == TANDEM_OK); /* all have left the first one */
    dies_in_delivery = rank == 1;
    EXPECT(tandem_comm_scatter_gradients(comm, data, N_SHARED_OUT, border, 1, error) == TANDEM_RANK_FAILED);
    give_floats(comm, data);
    tandem_comm_close(comm);
    return 0;
}

static void a_rank_killed_between_the_ring_and_the_shards_is_named_by_all(void **state)
{
    b->n_rank = 3;
    start_ranks(3, die_in_delivery);
    for (int r = 0; r < 3; r++) assert_int_equal(end_of(r), r == 1 ? 1000 + SIGKILL : 0);
    assert_all_blame(3, 1, "rank 1 died during a reduce-scatter (");
}

/* With choice 0 and 1 about the borders, with 2 and 3 about what to do. */
static int disagree_about_shards(board *my, int rank)
{
    tandem_comm *comm = NULL;
    tandem_error *error = &my->rank[rank].error[0];
    size_t border[MAX_RANK + 1];
    EXPECT(open_comm(&comm, rank, error) == TANDEM_OK);
    float *data = take_floats(comm, N_SHARED_OUT);
    EXPECT(data);
    set_uneven_borders(border, my->n_rank);
    if (my->choice < 2) {
        if (rank == 1) border[1] += 16;
        EXPECT(scatter_or_gather_once(my, comm, data, border, error) == TANDEM_RANK_FAILED);
    } else if (rank == 1 && my->choice == 2) {
        EXPECT(tandem_comm_sum_f32(comm, data, N_SHARED_OUT, 1, error) == TANDEM_RANK_FAILED);
    } else if (rank == 1) {
        EXPECT(tandem_comm_gather_shards(comm, data, N_SHARED_OUT, border, 1, error) == TANDEM_RANK_FAILED);
    } else {
        EXPECT(tandem_comm_scatter_gradients(comm, data, N_SHARED_OUT, border, 1, error) ==
               TANDEM_RANK_FAILED);
    }
    give_floats(comm, data);
    tandem_comm_close(comm);
    return 0;
}

static void ranks_that_disagree_about_shards_fail(void **state)
{
    b->timeout_ns = 300 * (int64_t)MS;
    for (b->choice = 0; b->choice < 4; b->choice++) {
        run_ranks(3, disagree_about_shards);
        assert_all_blame(3, -1, "disagree");
        remove_store();
        assert_int_equal(mkdir(b->store, 0700), 0);
        memset(b->rank, 0, sizeof b->rank);
    }
}

/* --- Messages to the dead, and silent ranks ------------------------------------------------------------- */

/* A collective posts all it can before it waits. Where `posted` is set, this rank's next wait sets it. */
static atomic_int *posted;

/* See fail_allocation.c for what the linker makes of these names. */
tandem_gloo_result __real_tandem_gloo_wait_received(tandem_gloo_buffer *buffer, int64_t timeout_ms,
                                                    tandem_gloo_error *why);
tandem_gloo_result __real_tandem_gloo_wait_sent(tandem_gloo_buffer *buffer, int64_t timeout_ms,
                                                tandem_gloo_error *why);
tandem_gloo_result __wrap_tandem_gloo_wait_received(tandem_gloo_buffer *buffer, int64_t timeout_ms,
                                                    tandem_gloo_error *why);
tandem_gloo_result __wrap_tandem_gloo_wait_sent(tandem_gloo_buffer *buffer, int64_t timeout_ms,
                                                tandem_gloo_error *why);

tandem_gloo_result __wrap_tandem_gloo_wait_received(tandem_gloo_buffer *buffer, int64_t timeout_ms,
                                                    tandem_gloo_error *why)
{
    if (posted) atomic_store(posted, 1);
    return __real_tandem_gloo_wait_received(buffer, timeout_ms, why);
}

tandem_gloo_result __wrap_tandem_gloo_wait_sent(tandem_gloo_buffer *buffer, int64_t timeout_ms,
                                                tandem_gloo_error *why)
{
    if (posted) atomic_store(posted, 1);
    return __real_tandem_gloo_wait_sent(buffer, timeout_ms, why);
}

/* SIGSTOP takes effect when a thread of the process next runs; until then its other threads go on. */
static void stop(int r)
{
    int status;
    assert_int_equal(kill(process[r], SIGSTOP), 0);
    assert_int_equal(waitpid(process[r], &status, WUNTRACED), process[r]);
    assert_true(WIFSTOPPED(status)); /* every thread of it */
}

/* Rank 0 only sends. Its first message goes to a process that died, its second meets the connection reset:
 * Gloo wakes nobody who waits for that one, and the kernel sends SIGPIPE. */
static int broadcast_to_the_dying(board *my, int rank)
{
    static char data[1000000]; /* two segments */
    tandem_comm *comm = NULL;
    tandem_error *error = &my->rank[rank].error[0];
    EXPECT(open_comm(&comm, rank, error) == TANDEM_OK);
    while (rank == 1 && !atomic_load(&my->go)) (void)usleep(1000);
    posted = &my->rank[rank].ready;
    EXPECT(tandem_comm_broadcast(comm, data, sizeof data, 0, 1, error) == TANDEM_RANK_FAILED);
    my->rank[rank].noticed_ns = tandem_now_ns();
    tandem_comm_close(comm);
    return 0;
}

static void a_message_to_the_dead_is_given_up(void **state)
{
    b->n_rank = 2;
    start_ranks(2, broadcast_to_the_dying);
    wait_until_ready(1); /* rank 0 waits for rank 1 to ask for the data */
    stop(0);
    atomic_store(&b->go, 1);
    wait_until_ready(2); /* rank 1 has asked; rank 0 cannot hear it */
    assert_int_equal(kill(process[1], SIGKILL), 0);
    assert_int_equal(end_of(1), 1000 + SIGKILL);
    const int64_t struck_ns = tandem_now_ns();
    assert_int_equal(kill(process[0], SIGCONT), 0);
    assert_int_equal(end_of(0), 0);
    assert_true(b->rank[0].noticed_ns - struck_ns < 5000 * (int64_t)MS);
    assert_all_blame(2, 1, "rank 1 died during a broadcast (");
}

/* Rank 1 comes so late that its own timeout is far when that of rank 0 is over, yet not it is silent, but
 * rank 2. */
static int come_late(board *my, int rank)
{
    tandem_comm *comm = NULL;
    tandem_error *error = &my->rank[rank].error[0];
    EXPECT(open_comm(&comm, rank, error) == TANDEM_OK);
    atomic_store(&my->rank[rank].ready, 1);
    if (rank == 2) (void)pause();
    (void)usleep(rank == 1 ? 1100000 : 0);
    EXPECT(tandem_comm_barrier(comm, 1, error) == TANDEM_RANK_FAILED);
    tandem_comm_close(comm);
    return 0;
}

static void a_late_rank_is_not_blamed_for_a_silent_one(void **state)
{
    b->timeout_ns = 1300 * (int64_t)MS;
    b->n_rank = 3;
    start_ranks(3, come_late);
    assert_int_equal(end_of(0), 0);
    assert_int_equal(end_of(1), 0);
    assert_int_equal(kill(process[2], SIGKILL), 0);
    assert_int_equal(end_of(2), 1000 + SIGKILL);
    assert_all_blame(3, 2, "rank 2 was silent during a barrier (");
}

static void a_stopped_rank_is_named_after_the_timeout(void **state)
{
    b->timeout_ns = 500 * (int64_t)MS;
    strike_rank(3, 1, SIGSTOP, sum_for_ever);
    assert_all_blame(3, 1, "rank 1 was silent during an all-reduce (");
    /* It wakes up, and learns that the others have given it up. */
    assert_int_equal(kill(process[1], SIGCONT), 0);
    assert_int_equal(end_of(1), 0);
    assert_int_equal(b->rank[1].error[0].rank, 1);
    assert_string_equal(b->rank[1].error[0].text, b->rank[0].error[0].text);
}

static int leave_early(board *my, int rank)
{
    tandem_comm *comm = NULL;
    tandem_error *error = &my->rank[rank].error[0];
    EXPECT(open_comm(&comm, rank, error) == TANDEM_OK);
    float *one = take_floats(comm, 1);
    EXPECT(one);
    *one = 1;
    EXPECT(tandem_comm_sum_f32(comm, one, 1, 1, error) == TANDEM_OK);
    EXPECT(*one == (float)my->n_rank);
    if (rank != 1) EXPECT(tandem_comm_sum_f32(comm, one, 1, 1, error) == TANDEM_RANK_FAILED);
    give_floats(comm, one);
    tandem_comm_close(comm);
    return 0;
}

static int sum_until_stopped(board *my, int rank)
{
    enum { N = 300000 };
    tandem_comm *comm = NULL;
    tandem_error *error = &my->rank[rank].error[0];
    EXPECT(open_comm(&comm, rank, error) == TANDEM_OK);
    float *data = take_floats(comm, N), is_over = 0;
    EXPECT(data);
    for (int round = 0; is_over == 0; round++) {
        for (int i = 0; i < N; i++) data[i] = (float)rank;
        EXPECT(tandem_comm_sum_f32(comm, data, N, 1, error) == TANDEM_OK);
        for (int i = 0; i < N; i++) EXPECT(data[i] == 3);
        if (rank == 0) (void)usleep(2000); /* the others wait for it when they are stopped */
        is_over = (float)(atomic_load(&my->go) != 0);
        EXPECT(tandem_comm_broadcast(comm, &is_over, sizeof is_over, 0, 1, error) == TANDEM_OK);
        if (round == 3) atomic_store(&my->rank[rank].ready, 1);
    }
    give_floats(comm, data);
    tandem_comm_close(comm);
    return 0;
}

static void continue_ranks(int n_rank)
{
    for (int r = 0; r < n_rank; r++) assert_int_equal(kill(process[r], SIGCONT), 0);
}

/* All at once, as a scheduler does it; it is over when the last one has stopped. */
static void stop_ranks(int n_rank)
{
    int status;
    for (int r = 0; r < n_rank; r++) assert_int_equal(kill(process[r], SIGSTOP), 0);
    for (int r = 0; r < n_rank; r++) {
        assert_int_equal(waitpid(process[r], &status, WUNTRACED), process[r]);
        assert_true(WIFSTOPPED(status));
    }
}

/* All ranks are stopped for twice as long as a silent one is waited for. */
static void ranks_that_are_stopped_together_go_on(void **state)
{
    given_up_s = GIVEN_UP_S + 5 * (unsigned)count_from_environment("N_SUSPENSIONS", 2);
    b->timeout_ns = 1500 * (int64_t)MS;
    b->n_rank = 3;
    start_ranks(3, sum_until_stopped);
    wait_until_ready(3);
    for (int k = count_from_environment("N_SUSPENSIONS", 2); k > 0; k--) {
        stop_ranks(3);
        (void)usleep(3000000);
        continue_ranks(3);
        (void)usleep(20000 * (useconds_t)(k % 5)); /* they are stopped next at some other point */
    }
    atomic_store(&b->go, 1);
    for (int r = 0; r < 3; r++) assert_int_equal(end_of(r), 0);
}

static void a_rank_that_is_stopped_for_less_than_the_timeout_goes_on(void **state)
{
    b->timeout_ns = 4000 * (int64_t)MS;
    b->n_rank = 3;
    start_ranks(3, sum_until_stopped);
    wait_until_ready(3);
    stop(1);
    (void)usleep(500000);
    assert_int_equal(kill(process[1], SIGCONT), 0);
    atomic_store(&b->go, 1);
    for (int r = 0; r < 3; r++) assert_int_equal(end_of(r), 0);
}

/* While ranks join, too: two wait for the third, which comes when they go on. */
static void ranks_that_are_stopped_while_they_join_go_on(void **state)
{
    b->timeout_ns = 1000 * (int64_t)MS;
    b->n_rank = 3;
    atomic_store(&b->go, 1);
    start_ranks(2, sum_until_stopped);
    (void)usleep(100000);
    stop_ranks(2);
    (void)usleep(1500000);
    (void)fflush(NULL);
    process[2] = fork();
    if (process[2] == 0) {
        (void)alarm(given_up_s);
        _exit(sum_until_stopped(b, 2) == 0 ? 0 : 1);
    }
    continue_ranks(2);
    for (int r = 0; r < 3; r++) assert_int_equal(end_of(r), 0);
}

static void a_rank_that_left_is_not_called_dead(void **state)
{
    const int64_t begin_ns = tandem_now_ns();
    run_ranks(3, leave_early);
    assert_true(tandem_now_ns() - begin_ns < b->timeout_ns);
    assert_all_blame(3, 1, "rank 1 left the run before an all-reduce was over");
}

static int end_in_good_order(board *my, int rank)
{
    tandem_comm *comm = NULL;
    tandem_error *error = &my->rank[rank].error[0];
    EXPECT(open_comm(&comm, rank, error) == TANDEM_OK);
    float *data = take_floats(comm, 1000);
    EXPECT(data);
    for (int round = 0; round < 20; round++)
        EXPECT(tandem_comm_sum_f32(comm, data, 1000, 1, error) == TANDEM_OK);
    give_floats(comm, data);
    tandem_comm_close(comm); /* at once: what was sent must still arrive */
    return 0;
}

static void ranks_that_close_together_do_not_fail(void **state)
{
    for (int round = 0; round < 5; round++) {
        run_ranks(3, end_in_good_order);
        remove_store();
        assert_int_equal(mkdir(b->store, 0700), 0);
    }
}

static int disagree(board *my, int rank)
{
    tandem_comm *comm = NULL;
    tandem_error *error = &my->rank[rank].error[0];
    EXPECT(open_comm(&comm, rank, error) == TANDEM_OK);
    float *data = take_floats(comm, 2);
    EXPECT(data);
    EXPECT(tandem_comm_sum_f32(comm, data, rank == 0 ? 1 : 2, 1, error) == TANDEM_RANK_FAILED);
    give_floats(comm, data);
    tandem_comm_close(comm);
    return 0;
}

static void ranks_that_disagree_time_out(void **state)
{
    b->timeout_ns = 300 * (int64_t)MS;
    run_ranks(2, disagree);
    assert_all_blame(2, -1, "disagree");
}

/* Two threads of each rank in collectives of their own when a rank dies. */
typedef struct second_thread {
    tandem_comm *comm;
    tandem_error *error;
    tandem_status status;
} second_thread;

static void *barriers(void *argument)
{
    second_thread *second = argument;
    do second->status = tandem_comm_barrier(second->comm, 9, second->error);
    while (second->status == TANDEM_OK);
    return NULL;
}

static int two_threads(board *my, int rank)
{
    tandem_comm *comm = NULL;
    EXPECT(open_comm(&comm, rank, &my->rank[rank].error[0]) == TANDEM_OK);
    float *data = take_floats(comm, 200000);
    EXPECT(data);
    second_thread second = {comm, &my->rank[rank].error[1], TANDEM_OK};
    pthread_t thread;
    EXPECT(pthread_create(&thread, NULL, barriers, &second) == 0);
    tandem_status status = TANDEM_OK;
    for (int round = 0; status == TANDEM_OK; round++) {
        /* Only rank 2 is still to come: the others can notice its death only of each other. */
        if (round == 10) {
            atomic_store(&my->rank[rank].ready, 1);
            if (rank == 2) (void)pause();
        }
        status = tandem_comm_sum_f32(comm, data, 200000, 4, &my->rank[rank].error[0]);
    }
    EXPECT(pthread_join(thread, NULL) == 0);
    EXPECT(status == TANDEM_RANK_FAILED && second.status == TANDEM_RANK_FAILED);
    give_floats(comm, data);
    tandem_comm_close(comm);
    return 0;
}

static void every_thread_learns_of_a_death(void **state)
{
    b->n_rank = 4;
    start_ranks(4, two_threads);
    wait_until_ready(4);
    (void)usleep(20000);
    assert_int_equal(kill(process[2], SIGKILL), 0);
    for (int r = 0; r < 4; r++) assert_int_equal(end_of(r), r == 2 ? 1000 + SIGKILL : 0);
    assert_all_blame(4, 2, "rank 2 died");
    for (int r = 0; r < 4; r++)
        if (r != 2) assert_string_equal(b->rank[r].error[0].text, b->rank[r].error[1].text);
}

/* --- The reducer ---------------------------------------------------------------------------------------- */

enum { N_BUCKET = 6 };

static const size_t bucket_size[N_BUCKET] = {1, 50000, 0, 400000, 7, 131072};

static int reduce_steps(board *my, int rank)
{
    static const int order[3][N_BUCKET] = {{0, 1, 2, 3, 4, 5}, {5, 4, 3, 2, 1, 0}, {3, 0, 5, 1, 4, 2}};
    tandem_comm *comm = NULL;
    tandem_reducer *reducer = NULL;
    tandem_error *error = &my->rank[rank].error[0];
    EXPECT(open_comm(&comm, rank, error) == TANDEM_OK);
    tandem_bucket_view view[N_BUCKET];
    size_t n = 0;
    for (int i = 0; i < N_BUCKET; i++) n += bucket_size[i];
    float *data = take_floats(comm, n);
    EXPECT(data);
    for (int i = 0; i < N_BUCKET; i++) {
        n -= bucket_size[i];
        view[i] = (tandem_bucket_view){.data = data + n, .n = bucket_size[i]};
    }
    EXPECT(tandem_reducer_open(&reducer, comm, view, N_BUCKET, -1, error) == TANDEM_OK);
    for (int step = 0; step < 6; step++) {
        int64_t start_ns = 0, end_ns = 0, last_ns = tandem_now_ns();
        float token = (float)rank;
        for (int i = 0; i < N_BUCKET; i++) {
            const int ready = order[(step + rank) % 3][i]; /* another order on each rank */
            fill_comm(view[ready].data, view[ready].n, rank);
            tandem_reducer_ready(reducer, ready);
            if (i == 2) /* the caller may use the communicator meanwhile */
                EXPECT(tandem_comm_sum_f32(comm, &token, 1, 1, error) == TANDEM_OK);
        }
        EXPECT(token == (float)(my->n_rank * (my->n_rank - 1) / 2));
        for (int i = 0; i < N_BUCKET; i++) {
            EXPECT(tandem_reducer_wait(reducer, i, &start_ns, &end_ns, error) == TANDEM_OK);
            EXPECT(last_ns <= start_ns && start_ns <= end_ns && end_ns <= tandem_now_ns());
            last_ns = end_ns;
            EXPECT(is_sum(view[i].data, view[i].n, my->n_rank, 101));
        }
        EXPECT(tandem_reducer_wait(reducer, N_BUCKET, NULL, NULL, error) == TANDEM_USAGE);
        EXPECT(tandem_reducer_wait(reducer, 0, NULL, NULL, NULL) == TANDEM_OK);
        tandem_reducer_next_step(reducer);
    }
    tandem_reducer_ready(reducer, 1); /* never all of the next step */
    tandem_reducer_close(reducer);
    give_floats(comm, data);
    tandem_comm_close(comm);
    return 0;
}

static void buckets_are_reduced_in_any_order_of_coming(void **state) { run_ranks(3, reduce_steps); }

typedef struct waiter {
    tandem_reducer *reducer;
    tandem_error error;
} waiter;

static void *wait_for_last_bucket(void *argument)
{
    waiter *w = argument;
    int64_t start_ns = -1;
    (void)tandem_reducer_wait(w->reducer, N_BUCKET - 1, &start_ns, NULL, &w->error);
    return start_ns == -1 ? NULL : argument;
}

static int reduce_until_death(board *my, int rank)
{
    tandem_comm *comm = NULL;
    tandem_reducer *reducer = NULL;
    tandem_error *error = &my->rank[rank].error[0];
    EXPECT(open_comm(&comm, rank, error) == TANDEM_OK);
    float *data = take_floats(comm, N_BUCKET);
    EXPECT(data);
    tandem_bucket_view view[N_BUCKET];
    for (int i = 0; i < N_BUCKET; i++) view[i] = (tandem_bucket_view){.data = &data[i], .n = 1};
    EXPECT(tandem_reducer_open(&reducer, comm, view, N_BUCKET, -1, error) == TANDEM_OK);
    tandem_reducer_ready(reducer, 0);
    EXPECT(tandem_reducer_wait(reducer, 0, NULL, NULL, error) == TANDEM_OK);
    if (rank == 0) { /* with bucket 1 the others come to wait for it */
        atomic_store(&my->rank[rank].ready, 1);
        (void)pause();
    }
    tandem_reducer_ready(reducer, 1);
    waiter w = {reducer, {TANDEM_OK, 0, ""}}; /* for a bucket that never becomes ready */
    pthread_t thread;
    EXPECT(pthread_create(&thread, NULL, wait_for_last_bucket, &w) == 0);
    atomic_store(&my->rank[rank].ready, 1);
    EXPECT(tandem_reducer_wait(reducer, 1, NULL, NULL, error) == TANDEM_RANK_FAILED);
    void *wrong;
    EXPECT(pthread_join(thread, &wrong) == 0 && !wrong);
    EXPECT(w.error.status == TANDEM_RANK_FAILED && w.error.rank == error->rank);
    EXPECT(tandem_reducer_wait(reducer, 0, NULL, NULL, NULL) == TANDEM_OK); /* before the failure: done */
    tandem_reducer_ready(reducer, 2);
    tandem_reducer_next_step(reducer);
    tandem_reducer_ready(reducer, 0);
    EXPECT(tandem_reducer_wait(reducer, 0, NULL, NULL, NULL) == TANDEM_RANK_FAILED);
    tandem_reducer_close(reducer);
    give_floats(comm, data);
    tandem_comm_close(comm);
    return 0;
}

static void a_death_wakes_all_who_wait_for_buckets(void **state)
{
    b->n_rank = 3;
    start_ranks(3, reduce_until_death);
    wait_until_ready(3);
    (void)usleep(20000);
    assert_int_equal(kill(process[0], SIGKILL), 0);
    for (int r = 0; r < 3; r++) assert_int_equal(end_of(r), r == 0 ? 1000 + SIGKILL : 0);
    assert_all_blame(3, 0, "rank 0 died");
}

/* The peer is dead and nobody has waited: close must come back all the same. */
static int close_beside_the_dead(board *my, int rank)
{
    tandem_comm *comm = NULL;
    tandem_reducer *reducer = NULL;
    tandem_error *error = &my->rank[rank].error[0];
    EXPECT(open_comm(&comm, rank, error) == TANDEM_OK);
    float *data = take_floats(comm, 2);
    EXPECT(data);
    const tandem_bucket_view view[2] = {{.data = &data[0], .n = 1}, {.data = &data[1], .n = 1}};
    EXPECT(tandem_reducer_open(&reducer, comm, view, 2, -1, error) == TANDEM_OK);
    if (rank == 1) {
        (void)usleep(50000);
        (void)raise(SIGKILL);
    }
    tandem_reducer_ready(reducer, 0);
    (void)usleep(my->choice ? 200000 : 0);
    tandem_reducer_close(reducer);
    tandem_reducer_close(NULL);
    give_floats(comm, data);
    tandem_comm_close(comm);
    return 0;
}

static void a_reducer_closes_beside_the_dead(void **state)
{
    b->n_rank = 2;
    for (b->choice = 0; b->choice < 2; b->choice++) {
        const int64_t begin_ns = tandem_now_ns();
        start_ranks(2, close_beside_the_dead);
        assert_int_equal(end_of(0), 0);
        assert_int_equal(end_of(1), 1000 + SIGKILL);
        assert_true(tandem_now_ns() - begin_ns < 5000 * (int64_t)MS);
        remove_store();
        assert_int_equal(mkdir(b->store, 0700), 0);
    }
}

/* --- The reducer with shards ---------------------------------------------------------------------------- */

enum { N_SHARD_STEP = 4 };

typedef struct sharded_buckets {
    tandem_bucket_view view[N_BUCKET];
    size_t border[N_BUCKET][MAX_RANK + 1];
    float *gradients, *weights; /* of all buckets */
    float *wanted;              /* what the weights must be, by sums of whole buckets */
    float *scratch;             /* [largest bucket] */
} sharded_buckets;

/* Some shards are empty; each bucket has other owners. */
static void set_bucket_borders(size_t *border, size_t n, int bucket, int n_rank)
{
    for (int r = 1; r < n_rank; r++) {
        const size_t cut = n * (size_t)((bucket + r) % 4) / 4 / 16 * 16;
        border[r] = cut < border[r - 1] ? border[r - 1] : cut;
    }
    border[n_rank] = n;
}

static int make_sharded_buckets(sharded_buckets *s, board *my, int rank, tandem_comm *comm)
{
    size_t n = 0;
    for (int i = 0; i < N_BUCKET; i++) n += bucket_size[i];
    s->gradients = take_floats(comm, n);
    s->weights = take_floats(comm, n);
    s->wanted = calloc(n, sizeof *s->wanted);
    s->scratch = calloc(n, sizeof *s->scratch);
    EXPECT(s->gradients && s->weights && s->wanted && s->scratch);
    for (int i = 0; i < N_BUCKET; i++) {
        n -= bucket_size[i];
        set_bucket_borders(s->border[i], bucket_size[i], i, my->n_rank);
        s->view[i] = (tandem_bucket_view){s->gradients + n, bucket_size[i], s->border[i], s->weights + n};
    }
    return 0;
}

static void free_sharded_buckets(sharded_buckets *s, tandem_comm *comm)
{
    free(s->scratch);
    free(s->wanted);
    give_floats(comm, s->weights);
    give_floats(comm, s->gradients);
}

static float bucket_gradient(int rank, int bucket, int step, size_t i)
{
    return element(rank, i + (size_t)step) * (float)(bucket + 1);
}

static void update_weights(float *weight, const float *gradient, size_t begin, size_t end)
{
    for (size_t i = begin; i < end; i++) weight[i] -= 0.25f * gradient[i];
}

/* Updates the weights that are wanted by an all-reduce of the same gradients. */
static int update_wanted(sharded_buckets *s, board *my, int rank, tandem_comm *comm, int step)
{
    for (int i = 0; i < N_BUCKET; i++) {
        const tandem_bucket_view *v = &s->view[i];
        for (size_t k = 0; k < v->n; k++) s->scratch[k] = bucket_gradient(rank, i, step, k);
        EXPECT(tandem_comm_sum_gradients(comm, s->scratch, v->n, 1, &my->rank[rank].error[0]) == TANDEM_OK);
        update_weights(s->wanted + (v->data - s->gradients), s->scratch, 0, v->n);
    }
    return 0;
}

static int step_with_shards(sharded_buckets *s, board *my, int rank, tandem_reducer *reducer, int step)
{
    tandem_error *error = &my->rank[rank].error[0];
    int64_t start_ns = 0, end_ns = 0, last_ns = tandem_now_ns();
    for (int k = 0; k < N_BUCKET; k++) {
        const int i = step % 2 ? k : N_BUCKET - 1 - (k + rank) % N_BUCKET;
        for (size_t j = 0; j < s->view[i].n; j++) s->view[i].data[j] = bucket_gradient(rank, i, step, j);
        tandem_reducer_ready(reducer, i);
    }
    for (int k = 0; k < N_BUCKET; k++) {
        const int i = step % 2 ? k : (k + rank) % N_BUCKET;
        EXPECT(tandem_reducer_wait(reducer, i, &start_ns, &end_ns, error) == TANDEM_OK);
        if (end_ns > last_ns) last_ns = end_ns;
        update_weights(s->view[i].weight, s->view[i].data, s->border[i][rank], s->border[i][rank + 1]);
        tandem_reducer_updated(reducer, i);
    }
    for (int i = 0; i < N_BUCKET; i++) { /* after the last scatter, in ascending order */
        EXPECT(tandem_reducer_wait_gathered(reducer, i, &start_ns, &end_ns, error) == TANDEM_OK);
        EXPECT(last_ns <= start_ns && start_ns <= end_ns && end_ns <= tandem_now_ns());
        last_ns = end_ns;
        EXPECT(memcmp(s->view[i].weight, s->wanted + (s->view[i].data - s->gradients),
                      s->view[i].n * sizeof(float)) == 0);
    }
    return 0;
}

static int reduce_with_shards(board *my, int rank)
{
    tandem_comm *comm = NULL;
    tandem_reducer *reducer = NULL;
    sharded_buckets s = {.gradients = NULL};
    tandem_error *error = &my->rank[rank].error[0];
    EXPECT(open_comm(&comm, rank, error) == TANDEM_OK);
    EXPECT(make_sharded_buckets(&s, my, rank, comm) == 0);
    EXPECT(tandem_reducer_open(&reducer, comm, s.view, N_BUCKET, -1, error) == TANDEM_OK);
    for (int step = 0; step < N_SHARD_STEP; step++) {
        EXPECT(update_wanted(&s, my, rank, comm, step) == 0);
        EXPECT(step_with_shards(&s, my, rank, reducer, step) == 0);
        EXPECT(tandem_reducer_wait_gathered(reducer, N_BUCKET, NULL, NULL, error) == TANDEM_USAGE);
        tandem_reducer_next_step(reducer);
    }
    tandem_reducer_ready(reducer, 1); /* never all of the next step */
    tandem_reducer_updated(reducer, 0);
    tandem_reducer_close(reducer);
    free_sharded_buckets(&s, comm);
    tandem_comm_close(comm);
    return 0;
}

static void buckets_with_borders_are_scattered_and_gathered(void **state)
{
    for (int n_rank = b->shares ? 2 : 1; n_rank <= MAX_RANK; n_rank++) { /* one rank shares nothing */
        run_ranks(n_rank, reduce_with_shards);
        remove_store();
        assert_int_equal(mkdir(b->store, 0700), 0);
    }
}

/* Rank 0 never updates its shards. */
static int gather_until_death(board *my, int rank)
{
    tandem_comm *comm = NULL;
    tandem_reducer *reducer = NULL;
    tandem_error *error = &my->rank[rank].error[0];
    EXPECT(open_comm(&comm, rank, error) == TANDEM_OK);
    static const size_t border[] = {0, 16, 32, 48};
    float *data = take_floats(comm, 48), *weight = take_floats(comm, 48);
    EXPECT(data && weight);
    const tandem_bucket_view view = {data, 48, border, weight};
    EXPECT(tandem_reducer_open(&reducer, comm, &view, 1, -1, error) == TANDEM_OK);
    tandem_reducer_ready(reducer, 0);
    EXPECT(tandem_reducer_wait(reducer, 0, NULL, NULL, error) == TANDEM_OK);
    atomic_store(&my->rank[rank].ready, 1);
    if (rank == 0) (void)pause();
    tandem_reducer_updated(reducer, 0);
    EXPECT(tandem_reducer_wait_gathered(reducer, 0, NULL, NULL, error) == TANDEM_RANK_FAILED);
    EXPECT(tandem_reducer_wait(reducer, 0, NULL, NULL, NULL) == TANDEM_OK); /* before the failure */
    tandem_reducer_next_step(reducer);
    tandem_reducer_ready(reducer, 0);
    EXPECT(tandem_reducer_wait_gathered(reducer, 0, NULL, NULL, NULL) == TANDEM_RANK_FAILED);
    tandem_reducer_close(reducer);
    give_floats(comm, weight);
    give_floats(comm, data);
    tandem_comm_close(comm);
    return 0;
}

static void a_death_wakes_all_who_wait_for_weights(void **state)
{
    b->n_rank = 3;
    start_ranks(3, gather_until_death);
    wait_until_ready(3);
    (void)usleep(20000);
    assert_int_equal(kill(process[0], SIGKILL), 0);
    for (int r = 0; r < 3; r++) assert_int_equal(end_of(r), r == 0 ? 1000 + SIGKILL : 0);
    assert_all_blame(3, 0, "rank 0 died during an all-gather (");
}

static void views_that_do_not_fit_together_are_refused(void **state)
{
    static const size_t border[] = {0, 4};
    float data[8] = {0};
    tandem_comm *comm = NULL;
    tandem_reducer *reducer = NULL;
    tandem_error error;
    tandem_bucket_view view[2] = {{data, 4, border, data + 4}, {.data = data, .n = 4}};
    const tandem_comm_options options = {.rank = 0, .n_rank = 1, .timeout_ns = MS, .cpu = -1};
    assert_int_equal(tandem_comm_open(&comm, &options, &error), TANDEM_OK);
    assert_int_equal(tandem_reducer_open(&reducer, comm, view, 2, -1, &error), TANDEM_USAGE);
    assert_non_null(strstr(error.text, "buckets 0 and 1 differ"));
    view[0].weight = NULL;
    assert_int_equal(tandem_reducer_open(&reducer, comm, view, 1, -1, &error), TANDEM_USAGE);
    assert_non_null(strstr(error.text, "bucket 0 has borders, but no weights"));
    assert_null(reducer);
    assert_int_equal(tandem_reducer_open(&reducer, comm, view + 1, 1, -1, &error), TANDEM_OK);
    assert_int_equal(tandem_reducer_wait_gathered(reducer, 0, NULL, NULL, &error), TANDEM_USAGE);
    assert_non_null(strstr(error.text, "no borders"));
    tandem_reducer_close(reducer);
    tandem_comm_close(comm);
}

/* --- Memory --------------------------------------------------------------------------------------------- */

static int run_out_of_memory(board *my, int rank)
{
    tandem_comm *comm = NULL;
    tandem_reducer *reducer = NULL;
    tandem_error *error = &my->rank[rank].error[0];
    tandem_fail_allocation_after(0);
    EXPECT(open_comm(&comm, rank, error) == TANDEM_NO_MEMORY && !comm);
    EXPECT(open_comm(&comm, rank, error) == TANDEM_OK);
    tandem_fail_allocation_after(0);
    EXPECT(tandem_reducer_open(&reducer, comm, NULL, 0, -1, error) == TANDEM_NO_MEMORY && !reducer);
    EXPECT(tandem_reducer_open(&reducer, comm, NULL, 0, -1, error) == TANDEM_OK);
    tandem_reducer_close(reducer);
    static float data[100000];
    if (rank == 1) tandem_fail_allocation_after(0);
    EXPECT(tandem_comm_sum_f32(comm, data, 100000, 1, error) ==
           (rank == 1 ? TANDEM_NO_MEMORY : TANDEM_RANK_FAILED));
    EXPECT(tandem_comm_barrier(comm, 1, NULL) == TANDEM_RANK_FAILED);
    tandem_comm_close(comm);
    return 0;
}

static void a_rank_out_of_memory_is_named(void **state)
{
    run_ranks(3, run_out_of_memory);
    assert_int_equal(b->rank[1].error[0].status, TANDEM_NO_MEMORY);
    assert_all_blame(3, 1, "rank 1 ran out of memory during an all-reduce");
}

/* --- Shared memory -------------------------------------------------------------------------------------- */

static bool has_no_memfd;
static off_t max_shared = INT64_MAX; /* bytes that one more part may have */

int __real_memfd_create(const char *name, unsigned flags);
int __wrap_memfd_create(const char *name, unsigned flags);
int __real_fallocate(int file, int mode, off_t begin, off_t bytes);
int __wrap_fallocate(int file, int mode, off_t begin, off_t bytes);

int __wrap_memfd_create(const char *name, unsigned flags)
{
    if (!has_no_memfd) return __real_memfd_create(name, flags);
    errno = ENOSYS;
    return -1;
}

int __wrap_fallocate(int file, int mode, off_t begin, off_t bytes)
{
    if (bytes <= max_shared) return __real_fallocate(file, mode, begin, bytes);
    errno = ENOSPC;
    return -1;
}

/* How many mappings and open files of this process are shared memory of tandem. */
static int n_left(void)
{
    char line[512];
    int n = 0;
    FILE *maps = fopen("/proc/self/maps", "re");
    while (maps && fgets(line, sizeof line, maps)) n += strstr(line, "memfd:tandem") != NULL;
    if (maps) (void)fclose(maps);
    for (int file = 0; file < 256; file++) {
        char path[40], target[64] = "";
        (void)snprintf(path, sizeof path, "/proc/self/fd/%d", file);
        n += readlink(path, target, sizeof target - 1) > 0 && strstr(target, "memfd:tandem") != NULL;
    }
    return n;
}

static int take_and_give(board *my, int rank)
{
    static const uint64_t size[] = {0, 4, 4096, 4097, 5000000, 0};
    tandem_comm *comm = NULL;
    tandem_error *error = &my->rank[rank].error[0];
    EXPECT(open_comm(&comm, rank, error) == TANDEM_OK);
    EXPECT(n_left() == 0);
    for (size_t s = 0; s < sizeof size / sizeof *size; s++) {
        void *both[2];
        for (int k = 0; k < 2; k++)
            EXPECT(tandem_comm_alloc_shared(comm, &both[k], size[s], 5, error) == TANDEM_OK && both[k]);
        EXPECT(n_left() == 2); /* mappings, no files */
        for (uint64_t i = 0; i < size[s]; i++) EXPECT(((char *)both[0])[i] == 0 && ((char *)both[1])[i] == 0);
        for (int k = 0; k < 2; k++) EXPECT((uintptr_t)both[k] % 64 == 0);
        const size_t n = size[s] / sizeof(float);
        fill_comm(both[0], n, rank);
        EXPECT(tandem_comm_sum_f32(comm, both[0], n, 1, error) == TANDEM_OK);
        EXPECT(is_sum(both[0], n, my->n_rank, 7));
        for (size_t i = 0; i < n; i++) EXPECT(((float *)both[1])[i] == 0);
        for (int k = 0; k < 2; k++) EXPECT(tandem_comm_free_shared(comm, both[k]));
        EXPECT(!tandem_comm_free_shared(comm, NULL) && !tandem_comm_free_shared(comm, both));
        EXPECT(n_left() == 0);
    }
    void *memory = NULL; /* that is not given back */
    EXPECT(tandem_comm_alloc_shared(comm, &memory, 100, 5, error) == TANDEM_OK && memory);
    tandem_comm_close(comm);
    EXPECT(n_left() == 0);
    return 0;
}

static void what_is_taken_is_cleared_and_given_back(void **state) { run_ranks(3, take_and_give); }

/* In the same memory, one place on one rank and another on the other. */
static int disagree_about_the_place(board *my, int rank)
{
    tandem_comm *comm = NULL;
    tandem_error *error = &my->rank[rank].error[0];
    EXPECT(open_comm(&comm, rank, error) == TANDEM_OK);
    float *data = take_floats(comm, 20);
    EXPECT(data);
    EXPECT(tandem_comm_sum_f32(comm, data + rank, 10, 1, error) == TANDEM_RANK_FAILED);
    tandem_comm_close(comm);
    return 0;
}

static void ranks_that_disagree_about_the_place_fail(void **state)
{
    run_ranks(2, disagree_about_the_place);
    assert_all_blame(2, -1, "disagree");
}

/* One rank that cannot, or will not: all sum over the network. */
static int do_without(board *my, int rank)
{
    tandem_comm *comm = NULL;
    tandem_error *error = &my->rank[rank].error[0];
    if (my->choice == 2) has_no_memfd = true;
    const tandem_comm_options options = {.rank = rank,
                                         .n_rank = my->n_rank,
                                         .store = my->store,
                                         .timeout_ns = my->timeout_ns,
                                         .cpu = -1,
                                         .over_network = my->choice == rank};
    EXPECT(tandem_comm_open(&comm, &options, error) == TANDEM_OK);
    EXPECT(!tandem_comm_shares_memory(comm));
    EXPECT(!strstr(tandem_comm_shared_memory_error(comm), "rank 0: shared memory: cannot make it") ==
           (my->choice != 2));
    EXPECT(!*tandem_comm_shared_memory_error(comm) == (my->choice != 2)); /* somebody chose the network */
    void *memory = comm;
    EXPECT(tandem_comm_alloc_shared(comm, &memory, 100, 5, error) == TANDEM_OK && !memory);
    float one = 1;
    EXPECT(tandem_comm_sum_f32(comm, &one, 1, 1, error) == TANDEM_OK && one == 2);
    tandem_comm_close(comm);
    return 0;
}

static void where_one_does_not_share_nobody_does(void **state)
{
    for (b->choice = 0; b->choice < 3; b->choice++) {
        run_ranks(2, do_without);
        remove_store();
        assert_int_equal(mkdir(b->store, 0700), 0);
    }
}

/* A limit on files is none on training: gradients that are larger than it go over the network. */
static int share_more_than_files_may_hold(board *my, int rank)
{
    const struct rlimit limit = {.rlim_cur = 1000000, .rlim_max = RLIM_INFINITY};
    tandem_comm *comm = NULL;
    tandem_error *error = &my->rank[rank].error[0];
    if (rank == 0) EXPECT(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    EXPECT(open_comm(&comm, rank, error) == TANDEM_OK);
    void *memory = &memory;
    EXPECT(!tandem_comm_shares_memory(comm));
    EXPECT(tandem_comm_alloc_shared(comm, &memory, 500000, 5, error) == TANDEM_OK && !memory);
    tandem_comm_close(comm);
    return 0;
}

static void a_limit_on_files_ends_nobody(void **state) { run_ranks(2, share_more_than_files_may_hold); }

static int share_too_much(board *my, int rank)
{
    tandem_comm *comm = NULL;
    tandem_error *error = &my->rank[rank].error[0];
    EXPECT(open_comm(&comm, rank, error) == TANDEM_OK);
    if (rank == 1) max_shared = 1000000;
    void *memory = &memory;
    EXPECT(tandem_comm_alloc_shared(comm, &memory, 2000000, 5, error) == TANDEM_NO_MEMORY &&
           memory == &memory);
    EXPECT(n_left() == 0);
    EXPECT(tandem_comm_alloc_shared(comm, &memory, 1000000, 5, error) == TANDEM_OK && memory);
    if (rank == 1) tandem_fail_allocation_after(0);
    EXPECT(tandem_comm_alloc_shared(comm, &memory, 8, 5, error) ==
           (rank == 1 ? TANDEM_NO_MEMORY : TANDEM_RANK_FAILED));
    tandem_comm_close(comm);
    return 0;
}

static void too_little_shared_memory_is_said_by_all(void **state)
{
    run_ranks(3, share_too_much);
    assert_all_blame(3, 1, "rank 1 ran out of memory during the sharing of memory");
}

/* --- Locked memory -------------------------------------------------------------------------------------- */

/* What a device would do with the parts of a rank. */
typedef struct keeper {
    uint64_t max_bytes, locked_bytes; /* that it can lock at once, that it holds */
    int n_locked, n_calls;
    bool is_wrong;
} keeper;

static tandem_status keep_comm(void *device, void *memory, uint64_t bytes, tandem_error *error)
{
    keeper *k = device;
    k->n_calls++;
    if (bytes == 0 || bytes % 4096 || (uintptr_t)memory % 4096) k->is_wrong = true;
    if (bytes > k->max_bytes) return tandem_error_set(error, TANDEM_NO_DEVICE, "the keeper is full");
    ((char *)memory)[bytes - 1] = 0;
    k->n_locked++;
    k->locked_bytes += bytes;
    return TANDEM_OK;
}

static void let_go(void *device, void *memory)
{
    keeper *k = device;
    *(char *)memory = 0; /* it is still there */
    k->n_locked--;
}

static tandem_status open_locking(tandem_comm **comm, keeper *k, int rank, tandem_error *error)
{
    const tandem_comm_options options = {.rank = rank,
                                         .n_rank = b->n_rank,
                                         .store = b->store,
                                         .timeout_ns = b->timeout_ns,
                                         .cpu = -1,
                                         .locking = {k ? keep_comm : NULL, let_go, k}};
    return tandem_comm_open(comm, &options, error);
}

/* Ranks 0 and 2 lock their parts, rank 1 none. */
static int lock_and_unlock(board *my, int rank)
{
    tandem_comm *comm = NULL;
    tandem_error *error = &my->rank[rank].error[0];
    keeper k = {.max_bytes = UINT64_MAX};
    EXPECT(open_locking(&comm, rank == 1 ? NULL : &k, rank, error) == TANDEM_OK);
    EXPECT(tandem_comm_shares_memory(comm) && !*tandem_comm_shared_memory_error(comm));
    EXPECT(k.n_locked == 0 && k.n_calls == (rank != 1));
    k.locked_bytes = 0;
    void *memory[3];
    for (int i = 0; i < 3; i++)
        EXPECT(tandem_comm_alloc_shared(comm, &memory[i],
                                        i == 0   ? 0
                                        : i == 1 ? 4097
                                                 : 2100000,
                                        5, error) == TANDEM_OK);
    EXPECT(k.n_locked == (rank == 1 ? 0 : 2) && !k.is_wrong);
    EXPECT(k.locked_bytes == (rank == 1 ? 0 : 8192 + 513 * 4096)); /* no more than was taken */
    EXPECT(tandem_comm_free_shared(comm, memory[1]));
    EXPECT(k.n_locked == (rank == 1 ? 0 : 1));
    tandem_comm_close(comm); /* the last was not given back */
    EXPECT(k.n_locked == 0);
    return 0;
}

static void parts_are_locked_while_they_are_taken(void **state) { run_ranks(3, lock_and_unlock); }

/* The reason is not reported for want of memory. */
static int lack_a_reason(board *my, int rank)
{
    tandem_comm *comm = NULL;
    tandem_error *error = &my->rank[rank].error[0];
    keeper k = {.max_bytes = 4096};
    EXPECT(open_locking(&comm, &k, rank, error) == TANDEM_OK);
    void *memory = comm;
    if (rank == 2) tandem_fail_allocation_after(1); /* after what notes that memory was taken */
    EXPECT(tandem_comm_alloc_shared(comm, &memory, 10000, 5, error) ==
           (rank == 2 ? TANDEM_NO_MEMORY : TANDEM_RANK_FAILED));
    EXPECT(memory == comm && n_left() == 0 && k.n_locked == 0);
    tandem_comm_close(comm);
    return 0;
}

static void a_reason_that_finds_no_memory_is_an_error_of_all(void **state)
{
    run_ranks(3, lack_a_reason);
    assert_all_blame(3, 2, "rank 2 ran out of memory during the sharing of memory");
}

/* One rank can lock too little: a page of those that are tried, where choice is 0, or all of what is taken
 * later. */
static int lock_too_little(board *my, int rank)
{
    tandem_comm *comm = NULL;
    tandem_error *error = &my->rank[rank].error[0];
    keeper k = {.max_bytes = rank == 1 ? (uint64_t)my->choice * 4096 : UINT64_MAX};
    EXPECT(open_locking(&comm, &k, rank, error) == TANDEM_OK);
    EXPECT(tandem_comm_shares_memory(comm) == my->choice);
    void *memory = comm, *before = NULL;
    if (my->choice) EXPECT(tandem_comm_alloc_shared(comm, &before, 100, 5, error) == TANDEM_OK && before);
    EXPECT(tandem_comm_alloc_shared(comm, &memory, 10000, 5, error) == TANDEM_OK && !memory);
    EXPECT(!tandem_comm_shares_memory(comm) && k.n_locked == my->choice && n_left() == my->choice);
    EXPECT(strcmp(tandem_comm_shared_memory_error(comm), "rank 1: the keeper is full") == 0);
    const int calls = k.n_calls;
    memory = comm;
    EXPECT(tandem_comm_alloc_shared(comm, &memory, 100, 5, error) == TANDEM_OK && !memory); /* nor later */
    EXPECT(k.n_calls == calls);
    float one = 1, *shared = before;
    if (shared) *shared = 1;
    EXPECT(tandem_comm_sum_f32(comm, &one, 1, 1, error) == TANDEM_OK && one == 3);
    EXPECT(!shared || (tandem_comm_sum_f32(comm, shared, 1, 1, error) == TANDEM_OK && *shared == 3));
    tandem_comm_close(comm);
    EXPECT(k.n_locked == 0 && !k.is_wrong);
    return 0;
}

static void where_one_cannot_lock_nobody_shares(void **state)
{
    for (b->choice = 0; b->choice < 2; b->choice++) {
        run_ranks(3, lock_too_little);
        remove_store();
        assert_int_equal(mkdir(b->store, 0700), 0);
    }
}

int main(void)
{
    static int victim[3] = {0, 1, 2};
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up_comm, tear_down_comm)
#define TEST_OF_DEATH(n)                                                                                     \
    {                                                                                                        \
        "a_killed_rank_" #n "_is_named_by_all", a_killed_rank_is_named_by_all, set_up_comm, tear_down_comm,  \
            &victim[n]                                                                                       \
    }
    const struct CMUnitTest tests[] = {
        TEST(sums_are_right_and_the_same_bits),
        TEST(gather_and_broadcast_move_the_right_bytes),
        TEST(a_barrier_waits_for_all_and_does_not_spin),
        TEST(one_rank_needs_nobody),
        TEST(what_cannot_be_opened_is_refused),
        TEST(a_rank_that_cannot_join_reports_to_the_others),
        TEST(a_missing_rank_is_named),
        TEST(ranks_of_different_worlds_do_not_join),
        TEST(a_rank_without_descriptors_is_named_with_the_remedy),
        TEST(a_rank_that_ends_before_it_joins_is_named_at_once),
        TEST(a_rank_that_fails_before_it_joins_says_why),
        TEST(a_rank_of_another_version_is_refused_by_all),
        TEST(ranks_agree_about_every_line),
        TEST(strangers_disturb_no_joining),
        TEST(ranks_that_are_stopped_while_they_join_go_on),
        TEST(a_rank_that_is_stopped_for_less_than_the_timeout_goes_on),
        TEST(a_store_is_good_for_one_run),
        TEST(a_store_in_use_is_refused),
        TEST_OF_DEATH(0),
        TEST_OF_DEATH(1),
        TEST_OF_DEATH(2),
        TEST(a_rank_killed_in_a_half_is_named_by_all),
        TEST(a_rank_killed_between_the_ring_and_the_shards_is_named_by_all),
        TEST(a_message_to_the_dead_is_given_up),
        TEST(a_late_rank_is_not_blamed_for_a_silent_one),
        TEST(a_stopped_rank_is_named_after_the_timeout),
        TEST(ranks_that_are_stopped_together_go_on),
        TEST(a_rank_that_left_is_not_called_dead),
        TEST(ranks_that_close_together_do_not_fail),
        TEST(ranks_that_disagree_time_out),
        TEST(ranks_that_disagree_about_shards_fail),
        TEST(every_thread_learns_of_a_death),
        TEST(buckets_are_reduced_in_any_order_of_coming),
        TEST(a_death_wakes_all_who_wait_for_buckets),
        TEST(a_reducer_closes_beside_the_dead),
        TEST(buckets_with_borders_are_scattered_and_gathered),
        TEST(a_death_wakes_all_who_wait_for_weights),
        TEST(views_that_do_not_fit_together_are_refused),
        TEST(a_rank_out_of_memory_is_named),
    };
    const struct CMUnitTest sharing[] = {
        TEST(sums_are_right_and_the_same_bits),
        TEST(what_is_taken_is_cleared_and_given_back),
        TEST(where_one_does_not_share_nobody_does),
        TEST_OF_DEATH(0),
        TEST_OF_DEATH(1),
        TEST_OF_DEATH(2),
        TEST(a_stopped_rank_is_named_after_the_timeout),
        TEST(ranks_that_are_stopped_together_go_on),
        TEST(a_rank_that_left_is_not_called_dead),
        TEST(ranks_that_close_together_do_not_fail),
        TEST(ranks_that_disagree_time_out),
        TEST(ranks_that_disagree_about_the_place_fail),
        TEST(ranks_that_disagree_about_shards_fail),
        TEST(a_rank_killed_in_a_half_is_named_by_all),
        TEST(every_thread_learns_of_a_death),
        TEST(buckets_are_reduced_in_any_order_of_coming),
        TEST(a_death_wakes_all_who_wait_for_buckets),
        TEST(a_reducer_closes_beside_the_dead),
        TEST(buckets_with_borders_are_scattered_and_gathered),
        TEST(a_death_wakes_all_who_wait_for_weights),
        TEST(a_limit_on_files_ends_nobody),
        TEST(too_little_shared_memory_is_said_by_all),
        TEST(parts_are_locked_while_they_are_taken),
        TEST(where_one_cannot_lock_nobody_shares),
        TEST(a_reason_that_finds_no_memory_is_an_error_of_all),
    };
    const int failed = cmocka_run_group_tests_name("comm over a network", tests, NULL, NULL);
    tests_sharing = true;
    return failed + cmocka_run_group_tests_name("comm in shared memory", sharing, NULL, NULL);
}
