/* folder: backend */
/* test_wire_laws.c: gradients that travel in bf16. Ranks are processes; sums of 2 to 5 of them, over the
 * network and in shared memory, of sizes around every border, are held to an fp64 sum within the bound of
 * docs/step.md, and to each other to the bit. */
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/comm/comm.h"
#include "backend/comm/wire.h"
#include "base/philox.h"
#include "tests/support/tandem_test.h"

enum { MAX_RANK = 5, GIVEN_UP_S = 20, N_NOISE = 1 << 16 };
static const double unit = 0x1p-8; /* the largest relative error of rounding to bf16 */

/* A slice of 1 MiB is 262144 floats, a piece in shared memory 32768. */
static const size_t sizes[] = {1, 2, 3, 4, 5, 6, 7, 11, 64, 1001, 32769, 65537, 262145 * 2 + 1, 300007};

typedef struct wire_board {
    char store[64];
    int n_rank;
    int shares;
    uint64_t hash[MAX_RANK];
    double error_square, sum_square; /* of rank 0, over numbers of one scale */
} wire_board;
static wire_board *board;

/* Of any size and sign; scale 0: all of one scale. */
static float drawn(int rank, size_t i, unsigned scale)
{
    const uint32_t counter[4] = {(uint32_t)i, (uint32_t)(i >> 32), scale, (uint32_t)rank};
    const tandem_philox_block block = tandem_philox(counter, 11);
    const float x = tandem_philox_uniform(block.word[0]) - 0.5f;
    return scale ? ldexpf(x, (int)(block.word[1] % scale)) : x;
}

/* The order of the ring: chunk c of n numbers, which ends at a multiple of 16, begins at rank c - 1 and goes
 * down to rank c. */
static int first_rank(size_t i, size_t n, int n_rank)
{
    const size_t chunk = ((n + (size_t)n_rank - 1) / (size_t)n_rank + 15) / 16 * 16;
    return (int)((i / chunk + (size_t)n_rank - 1) % (size_t)n_rank);
}

/* The sum of element i, and how far roundings after each addition may be from it. */
static double exact_sum(double *bound, size_t i, size_t n, int n_rank, unsigned scale)
{
    double sum = 0;
    *bound = 0;
    for (int k = 0, rank = first_rank(i, n, n_rank); k < n_rank; k++, rank = rank ? rank - 1 : n_rank - 1) {
        sum += (double)drawn(rank, i, scale);
        *bound += (unit + 0x1p-23) * (fabs(sum) + *bound);
    }
    return sum;
}

static uint64_t hash_words(const float *data, size_t n, uint64_t hash)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t word;
        memcpy(&word, data + i, sizeof word);
        hash = (hash ^ word) * UINT64_C(0x100000001b3);
    }
    return hash;
}

static int is_bf16(float x)
{
    uint32_t word;
    memcpy(&word, &x, sizeof word);
    return (word & 0xffff) == 0;
}

/* Returns 0, or the line that is not as it should be. */
static int check_sum(const float *data, size_t n, int n_rank, unsigned scale)
{
    for (size_t i = 0; i<n; i += n> 5000 && i + 40 < n ? 37 : 1) {
        double bound;
        const double sum = exact_sum(&bound, i, n, n_rank, scale), error = fabs((double)data[i] - sum);
        if (i + 1 < n && (!is_bf16(data[i]) || !(error <= bound))) return __LINE__;
        if (i + 1 == n && !(error <= n_rank * n_rank * ldexp(1, (int)scale - 24))) return __LINE__;
    }
    return 0;
}

static int sum_sizes(tandem_comm *comm, int rank, float *data)
{
    tandem_error error;
    for (size_t s = 0; s < N_OF(sizes); s++) {
        for (size_t i = 0; i < sizes[s]; i++) data[i] = drawn(rank, i, 20);
        if (tandem_comm_sum_gradients(comm, data, sizes[s], 1, &error) != TANDEM_OK) return __LINE__;
        const int line = check_sum(data, sizes[s], board->n_rank, 20);
        if (line) return line;
        board->hash[rank] = hash_words(data, sizes[s], board->hash[rank]);
    }
    return 0;
}

/* Infinities, NaNs, the least numbers, and what rounds to infinity. */
static int sum_odd_numbers(tandem_comm *comm, int rank, float *data)
{
    enum { N = 6 };
    const float given[N] = {rank == 0 ? INFINITY : 1,        rank == 1 ? NAN : 1, 0x1p-149f, -0.0f,
                            rank == 0 ? 0x1.fffffep127f : 0, 0.1234567f};
    memcpy(data, given, sizeof given);
    if (tandem_comm_sum_gradients(comm, data, N, 1, NULL) != TANDEM_OK) return __LINE__;
    if (!(isinf(data[0]) && isnan(data[1]) && data[2] == 0 && data[3] == 0 && isinf(data[4])))
        return __LINE__;
    if (is_bf16(data[5])) return __LINE__; /* the last one is exact */
    board->hash[rank] = hash_words(data, N, board->hash[rank]);
    return 0;
}

static int measure_noise(tandem_comm *comm, int rank, float *data)
{
    for (size_t i = 0; i < N_NOISE; i++) data[i] = drawn(rank, i, 0);
    if (tandem_comm_sum_gradients(comm, data, N_NOISE, 1, NULL) != TANDEM_OK) return __LINE__;
    for (size_t i = 0; i + 1 < N_NOISE && rank == 0; i++) {
        double bound;
        const double sum = exact_sum(&bound, i, N_NOISE, board->n_rank, 0), error = (double)data[i] - sum;
        board->error_square += error * error;
        board->sum_square += sum * sum;
    }
    return 0;
}

static int run_rank(int rank)
{
    const tandem_comm_options options = {.rank = rank,
                                         .n_rank = board->n_rank,
                                         .store = board->store,
                                         .timeout_ns = INT64_C(10000000000),
                                         .cpu = -1,
                                         .over_network = !board->shares,
                                         .wire = TANDEM_BF16};
    tandem_comm *comm = NULL;
    const size_t bytes = 600000 * sizeof(float);
    void *memory = NULL;
    if (tandem_comm_open(&comm, &options, NULL) != TANDEM_OK) return __LINE__;
    if (board->shares && tandem_comm_alloc_shared(comm, &memory, bytes, 1, NULL) != TANDEM_OK)
        return __LINE__;
    if (!board->shares) memory = malloc(bytes);
    if (!memory) return __LINE__;
    int line = sum_sizes(comm, rank, memory);
    if (!line) line = sum_odd_numbers(comm, rank, memory);
    if (!line) line = measure_noise(comm, rank, memory);
    if (!board->shares) free(memory);
    tandem_comm_close(comm);
    return line;
}

/* Runs the ranks; every one ends with the same bits, which it returns. */
static uint64_t run_all(int n_rank, int shares)
{
    char command[96];
    pid_t pid[MAX_RANK];
    memset(board, 0, sizeof *board);
    board->n_rank = n_rank;
    board->shares = shares;
    (void)snprintf(board->store, sizeof board->store, "/tmp/tandem-wire-XXXXXX");
    assert_non_null(mkdtemp(board->store));
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
    for (int r = 1; r < n_rank; r++) assert_true(board->hash[r] == board->hash[0]);
    return board->hash[0];
}

static void sums_keep_to_their_bound_with_the_same_bits_everywhere(void **state)
{
    for (int n_rank = 2; n_rank <= MAX_RANK; n_rank++) {
        const uint64_t over_network = run_all(n_rank, 0);
        assert_true(run_all(n_rank, 1) == over_network);
        /* predictor.h: c (n + 1)/2 of the sum's mean square, with c of numbers that are uniform on a
         * logarithmic scale, which these are only roughly */
        const double c = 0x1p-14 * 0.6931471805599453 / 18, predicted = c * (n_rank + 1) / 2,
                     measured = board->error_square / board->sum_square;
        print_message("%d ranks: noise %.3g of the sum's mean square, predicted %.3g\n", n_rank, measured,
                      predicted);
        assert_true(measured > 0.75 * predicted && measured < 1.25 * predicted);
    }
}

/* Every span of up to 40 floats, of which any number at its end stays f32. */
static void spans_are_packed_where_they_lie(void **state)
{
    enum { N = 40 };
    for (size_t n = 0; n <= N; n++)
        for (size_t n_narrow = 0; n_narrow <= n; n_narrow++) {
            float data[N + 1], more[N + 1], sum[N + 1];
            for (size_t i = 0; i <= N; i++) data[i] = drawn(0, i, 9), more[i] = drawn(1, i, 9);
            for (size_t i = 0; i <= N; i++) {
                const float x = (i < n_narrow ? tandem_narrow_rounded(more[i]) : more[i]) + data[i];
                sum[i] = i < n_narrow ? tandem_narrow_rounded(x) : x;
            }
            const float past_end = data[n];
            tandem_narrow_pack(more, NULL, n, n_narrow);
            tandem_narrow_pack(data, more, n, n_narrow);
            assert_true(tandem_narrow_bytes(n, n_narrow) <= n * sizeof(float));
            tandem_narrow_unpack(data, n, n_narrow);
            for (size_t i = 0; i < n; i++) assert_memory_equal(&data[i], &sum[i], sizeof sum[i]);
            assert_memory_equal(&data[n], &past_end, sizeof past_end);
        }
}

static void rounding_is_to_nearest_and_ties_are_even(void **state)
{
    static const float cases[][2] = {{1 + 0x1p-8f, 1},
                                     {1 + 3 * 0x1p-8f, 1 + 0x1p-6f},
                                     {1 + 0x1p-8f + 0x1p-23f, 1 + 0x1p-7f},
                                     {-1 - 0x1p-8f - 0x1p-23f, -1 - 0x1p-7f},
                                     {0x1.fep127f, 0x1.fep127f},
                                     {0x1.fffffep127f, INFINITY},
                                     {0x1p-133f, 0x1p-133f},
                                     {0x1p-134f, 0}};
    for (size_t k = 0; k < N_OF(cases); k++) {
        const float rounded = tandem_narrow_rounded(cases[k][0]);
        assert_memory_equal(&rounded, &cases[k][1], sizeof rounded);
    }
    for (uint32_t payload = 1; payload; payload <<= 1) { /* of a NaN */
        const uint32_t word = 0x7f800000 | payload;
        float nan;
        memcpy(&nan, &word, sizeof nan);
        if (isnan(nan)) assert_true(isnan(tandem_narrow_rounded(nan)));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rounding_is_to_nearest_and_ties_are_even),
        cmocka_unit_test(spans_are_packed_where_they_lie),
        cmocka_unit_test(sums_keep_to_their_bound_with_the_same_bits_everywhere),
    };
    board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return board == MAP_FAILED ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
}
