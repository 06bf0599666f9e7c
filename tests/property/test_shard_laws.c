/* folder: backend */
/* test_shard_laws.c: the halves of an all-reduce. Ranks are processes; sums of 1 to 5 of them, over the
 * network and in shared memory, in f32 and bf16, of sizes around every border, are scattered to shards of any
 * size and gathered: to the bits of tandem_comm_sum_gradients. */
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/comm/comm.h"
#include "base/philox.h"
#include "tests/support/tandem_test.h"

enum { MAX_RANK = 5, GIVEN_UP_S = 180, N_DRAWN = 3, LARGEST = 1500007 };

/* The largest has several slices of 512 KiB per chunk, in bf16 too, and more than a window of them in all. */
static const size_t sizes[] = {1, 15, 16, 17, 33, 1000, 4097, 100003, LARGEST};

typedef struct shard_board {
    char store[64];
    int n_rank, shares;
    tandem_dtype wire;
} shard_board;
static shard_board *board;

/* What a rank works with; each array has room for LARGEST. */
typedef struct shard_rank {
    tandem_comm *comm;
    int rank;
    float *data;           /* in shared memory, where the case is of that */
    float *expected, *own; /* the sum, this rank's summands */
} shard_rank;

static uint32_t drawn_word(uint32_t a, uint32_t b, uint32_t c)
{
    const uint32_t counter[4] = {a, b, c, 0};
    return tandem_philox(counter, 23).word[0];
}

/* Of any size and sign, and now and then a NaN with a payload of the rank's. */
static float drawn_summand(int rank, size_t i)
{
    const uint32_t word = drawn_word((uint32_t)i, (uint32_t)rank, 1);
    const uint32_t nan = 0x7fc00000u + (uint32_t)rank * 0x10000u;
    float x = ldexpf((float)(word >> 8) * 0x1p-24f - 0.5f, (int)(word % 20));
    if (i % 97 == 5 && word % 3 == 0) memcpy(&x, &nan, sizeof x);
    return x;
}

/* --- Borders -------------------------------------------------------------------------------------------- */

/* Those of the chunks, in which the ring leaves the sums. */
static void divide_evenly(size_t *border, size_t n)
{
    const size_t n_rank = (size_t)board->n_rank, chunk = ((n + n_rank - 1) / n_rank + 15) / 16 * 16;
    for (size_t r = 0; r <= n_rank; r++) border[r] = r * chunk < n ? r * chunk : n;
}

static void give_all_to(size_t *border, size_t n, int owner)
{
    for (int r = 0; r <= board->n_rank; r++) border[r] = r <= owner ? 0 : n;
}

static int compare_borders(const void *a, const void *b)
{
    const size_t x = *(const size_t *)a, y = *(const size_t *)b;
    return (x > y) - (x < y);
}

/* Many shards are empty, those of small n most. */
static void draw_borders(size_t *border, size_t n, uint32_t draw)
{
    border[0] = 0;
    border[board->n_rank] = n;
    for (int r = 1; r < board->n_rank; r++) {
        const uint32_t word = drawn_word((uint32_t)n, (uint32_t)r, 100 + draw);
        const size_t drawn = word % 5 == 0 ? border[r - 1] : word % (n + 16) / 16 * 16;
        border[r] = drawn < n ? drawn : n;
    }
    qsort(border, (size_t)board->n_rank + 1, sizeof *border, compare_borders);
}

/* Division d of n floats; returns 0 after the last. */
static int divide_floats(size_t *border, size_t n, int d)
{
    if (d == 0)
        divide_evenly(border, n);
    else if (d <= board->n_rank)
        give_all_to(border, n, d - 1);
    else
        draw_borders(border, n, (uint32_t)d);
    return d <= board->n_rank + N_DRAWN;
}

/* --- Laws, in the process of a rank: each returns 0, or the line that failed ---------------------------- */

static int are_same_bits(const float *a, const float *b, size_t begin, size_t end)
{
    return memcmp(a + begin, b + begin, (end - begin) * sizeof *a) == 0;
}

static void spoil_but(float *data, size_t begin, size_t end, size_t n)
{
    memset(data, 0x5a, begin * sizeof *data);
    memset(data + end, 0x5a, (n - end) * sizeof *data);
}

/* A shard is the sum's, and shards that are gathered are the sum. */
static int halves_make_the_sum(shard_rank *my, size_t n, const size_t *border)
{
    tandem_error error;
    const size_t begin = border[my->rank], end = border[my->rank + 1];
    memcpy(my->data, my->own, n * sizeof *my->data);
    if (tandem_comm_scatter_gradients(my->comm, my->data, n, border, 1, &error) != TANDEM_OK) return __LINE__;
    if (!are_same_bits(my->data, my->expected, begin, end)) return __LINE__;
    spoil_but(my->data, begin, end, n);
    if (tandem_comm_gather_shards(my->comm, my->data, n, border, 1, &error) != TANDEM_OK) return __LINE__;
    return are_same_bits(my->data, my->expected, 0, n) ? 0 : __LINE__;
}

/* Words of any bits, which as floats may be signalling NaNs. */
static int any_bits_are_gathered(shard_rank *my, size_t n, const size_t *border)
{
    tandem_error error;
    for (int r = 0; r < board->n_rank; r++)
        for (size_t i = border[r]; i < border[r + 1]; i++) {
            uint32_t word = drawn_word((uint32_t)i, (uint32_t)r, 2) | (i % 2 ? 0x7f800000u : 0);
            memcpy(my->expected + i, &word, sizeof word);
            if (r != my->rank) word = ~word;
            memcpy(my->data + i, &word, sizeof word);
        }
    if (tandem_comm_gather_shards(my->comm, my->data, n, border, 1, &error) != TANDEM_OK) return __LINE__;
    return are_same_bits(my->data, my->expected, 0, n) ? 0 : __LINE__;
}

static int check_size(shard_rank *my, size_t n)
{
    size_t border[MAX_RANK + 1];
    for (size_t i = 0; i < n; i++) my->own[i] = drawn_summand(my->rank, i);
    memcpy(my->data, my->own, n * sizeof *my->data);
    if (tandem_comm_sum_gradients(my->comm, my->data, n, 1, NULL) != TANDEM_OK) return __LINE__;
    memcpy(my->expected, my->data, n * sizeof *my->data);
    int line = 0;
    for (int d = 0; !line && divide_floats(border, n, d); d++) {
        line = halves_make_the_sum(my, n, border);
        if (line) (void)fprintf(stderr, "%zu floats, division %d\n", n, d);
    }
    for (int d = 0; !line && n < 10000 && divide_floats(border, n, d); d++)
        line = any_bits_are_gathered(my, n, border);
    return line;
}

static int wrong_borders_are_refused(const shard_rank *my)
{
    enum { N = 100 };
    const int last = board->n_rank;
    static const size_t no_floats[MAX_RANK + 1];
    size_t good[MAX_RANK + 1], wrong[MAX_RANK + 1];
    give_all_to(good, N, 0);
    for (int k = 0; k < 5; k++) {
        memcpy(wrong, good, sizeof wrong);
        if (k == 0) wrong[0] = 16;
        if (k == 1) wrong[last] = N + 1;
        if (k == 2) wrong[last] = N - 1;
        if (k > 2 && last == 1) continue;
        if (k == 3) wrong[1] = 8;
        if (k == 4) wrong[1] = 2 * N;
        if (tandem_comm_scatter_gradients(my->comm, my->data, N, wrong, 1, NULL) != TANDEM_USAGE)
            return __LINE__;
        if (tandem_comm_gather_shards(my->comm, my->data, N, wrong, 1, NULL) != TANDEM_USAGE) return __LINE__;
    }
    if (tandem_comm_scatter_gradients(my->comm, my->data, N, NULL, 1, NULL) != TANDEM_USAGE) return __LINE__;
    if (tandem_comm_gather_shards(my->comm, NULL, N, good, 1, NULL) != TANDEM_USAGE) return __LINE__;
    return tandem_comm_scatter_gradients(my->comm, NULL, 0, no_floats, 1, NULL) == TANDEM_OK ? 0 : __LINE__;
}

/* --- Ranks ---------------------------------------------------------------------------------------------- */

static int check_rank(shard_rank *my)
{
    const size_t bytes = LARGEST * sizeof(float);
    void *memory = NULL;
    if (board->shares && tandem_comm_alloc_shared(my->comm, &memory, bytes, 1, NULL) != TANDEM_OK)
        return __LINE__;
    if (!memory && board->shares && board->n_rank > 1) return __LINE__;
    float *local = memory ? NULL : malloc(bytes);
    my->data = memory ? memory : local;
    my->expected = malloc(bytes);
    my->own = malloc(bytes);
    int line = my->data && my->expected && my->own ? 0 : __LINE__;
    for (size_t s = 0; !line && s < N_OF(sizes); s++) line = check_size(my, sizes[s]);
    if (!line) line = wrong_borders_are_refused(my);
    free(my->own);
    free(my->expected);
    free(local);
    return line;
}

static int run_rank(int rank)
{
    const tandem_comm_options options = {.rank = rank,
                                         .n_rank = board->n_rank,
                                         .store = board->store,
                                         .timeout_ns = INT64_C(20000000000),
                                         .cpu = -1,
                                         .over_network = !board->shares,
                                         .wire = board->wire};
    shard_rank my = {.rank = rank};
    if (tandem_comm_open(&my.comm, &options, NULL) != TANDEM_OK) return __LINE__;
    const int line = check_rank(&my);
    tandem_comm_close(my.comm);
    return line;
}

static void run_ranks(int n_rank, int shares, tandem_dtype wire)
{
    char command[96];
    pid_t pid[MAX_RANK];
    *board =
        (shard_board){.store = "/tmp/tandem-shards-XXXXXX", .n_rank = n_rank, .shares = shares, .wire = wire};
    assert_non_null(mkdtemp(board->store));
    (void)fflush(NULL);
    for (int r = 0; r < n_rank; r++) {
        pid[r] = fork();
        assert_true(pid[r] >= 0);
        if (pid[r]) continue;
        (void)alarm(GIVEN_UP_S);
        const int line = run_rank(r);
        if (line) (void)fprintf(stderr, "rank %d of %d: line %d\n", r, n_rank, line);
        _exit(line != 0);
    }
    int failed = 0;
    for (int r = 0; r < n_rank; r++) {
        int status = 0;
        assert_int_equal(waitpid(pid[r], &status, 0), pid[r]);
        failed |= status;
    }
    (void)snprintf(command, sizeof command, "rm -rf '%s'", board->store);
    assert_int_equal(system(command), 0);
    assert_int_equal(failed, 0);
}

static void run_numbers_of_ranks(int shares, tandem_dtype wire)
{
    for (int n_rank = 1; n_rank <= MAX_RANK; n_rank++) run_ranks(n_rank, shares, wire);
}

static void halves_over_the_network_make_the_sum(void **state) { run_numbers_of_ranks(0, TANDEM_F32); }
static void halves_over_the_network_in_bf16_make_it(void **state) { run_numbers_of_ranks(0, TANDEM_BF16); }
static void halves_in_shared_memory_make_the_sum(void **state) { run_numbers_of_ranks(1, TANDEM_F32); }
static void halves_in_shared_memory_in_bf16_make_it(void **state) { run_numbers_of_ranks(1, TANDEM_BF16); }

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(halves_over_the_network_make_the_sum),
        cmocka_unit_test(halves_over_the_network_in_bf16_make_it),
        cmocka_unit_test(halves_in_shared_memory_make_the_sum),
        cmocka_unit_test(halves_in_shared_memory_in_bf16_make_it),
    };
    board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return board == MAP_FAILED ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
}
